"""Counts of all workers in one file that they share, and as Prometheus reads them.

Every worker has a row of float64 numbers and writes to no other; whoever is asked adds up all rows. A worker that takes
the place of a dead one goes on with its row, so that nothing that was counted is lost.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

STATUSES = (200, 204, 304, 400, 401, 403, 404, 405, 408, 409, 413, 415, 500, 503, 507)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_OF_ROUTE = (*(f"status_{status}" for status in STATUSES), "status_other", *(f"up_to_{s}" for s in SECONDS), "seconds")
_OF_MODEL = ("texts", "abstained", "shed", "swaps", "batches", "busy_seconds", *(f"of_{n}" for n in TEXTS))
_GAUGES = ("waiting", "version")
_OF_WORKER = ("begun", "connections", "started")


class _Numbers:
    """Named numbers of a row; an attribute reads and writes one."""

    __slots__ = ("_places", "_row")
    _places: dict[str, int]
    _row: Any  # a memoryview of float64

    def __init__(self, row: Any, places: dict[str, int]) -> None:
        object.__setattr__(self, "_row", row)
        object.__setattr__(self, "_places", places)

    def __getattr__(self, name: str) -> float:
        return float(self._row[self._places[name]])

    def __setattr__(self, name: str, value: float) -> None:
        self._row[self._places[name]] = value


class _OfModel(_Numbers):
    def batch(self, texts: int, seconds: float) -> None:
        self.batches += 1
        self.texts += texts
        self.busy_seconds += seconds
        for bound in TEXTS[bisect_left(TEXTS, texts) :][:1]:
            setattr(self, f"of_{bound}", getattr(self, f"of_{bound}") + 1)


class _OfRoute(_Numbers):
    def answered(self, status: int, seconds: float) -> None:
        row, places = self._row, self._places
        row[places.get(f"status_{status}", places["status_other"])] += 1
        bound = bisect_left(SECONDS, seconds)
        if bound < len(SECONDS):
            row[places[f"up_to_{SECONDS[bound]}"]] += 1
        row[places["seconds"]] += seconds


class Counters:
    """The rows of all workers; `slot` is one's own."""

    def __init__(self, path: Path | str, slots: int, slot: int, routes: Sequence[str], models: Sequence[str]) -> None:
        self.routes, self.models, self.slots = tuple(routes), tuple(models), slots
        self._layout: dict[tuple[str, str], dict[str, int]] = {}
        place = 0
        for kind, names, fields in (
            ("route", self.routes, _OF_ROUTE),
            ("model", self.models, (*_OF_MODEL, *_GAUGES)),
            ("worker", ("",), _OF_WORKER),
        ):
            for name in names:
                self._layout[kind, name] = {field: place + number for number, field in enumerate(fields)}
                place += len(fields)
        self.width = place
        with Path(path).open("r+b") as file:
            file.truncate(max(8 * self.width * slots, 8))
            self._file = mmap.mmap(file.fileno(), 8 * self.width * slots)
        self._all = memoryview(self._file).cast("d")
        self._rows = [self._all[self.width * n : self.width * (n + 1)] for n in range(slots)]
        row = self._rows[slot]
        self._routes = {name: _OfRoute(row, self._layout["route", name]) for name in self.routes}
        self._models = {name: _OfModel(row, self._layout["model", name]) for name in self.models}
        self.worker = _Numbers(row, self._layout["worker", ""])
        self.clear_gauges()

    def clear_gauges(self) -> None:
        """A worker that begins has nothing waiting."""
        self.worker.begun = self.worker.connections = 0
        for one in self._models.values():
            one.waiting = 0

    def route(self, name: str) -> _OfRoute:
        return self._routes[name]

    def model(self, name: str) -> _OfModel:
        return self._models[name]

    def fewest_connections(self) -> float:
        """Of any worker."""
        place = self._layout["worker", ""]["connections"]
        return min(row[place] for row in self._rows)

    def total(self, kind: str, name: str, field: str) -> float:
        place = self._layout[kind, name][field]
        return sum(row[place] for row in self._rows)

    def render(self) -> str:
        """The text format of Prometheus."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("longtail_requests_total", "counter", "requests answered, by route and status")
        for route in self.routes:
            for status in (*STATUSES, "other"):
                count = self.total("route", route, f"status_{status}")
                if count:
                    yield f'longtail_requests_total{{route="{route}",status="{status}"}} {count:.0f}'
        yield from _head("longtail_request_seconds", "histogram", "from the first byte of a request to its answer")
        for route in self.routes:
            count = sum(self.total("route", route, f"status_{status}") for status in (*STATUSES, "other"))
            if not count:
                continue
            pairs = [(f"{bound:g}", self.total("route", route, f"up_to_{bound}")) for bound in SECONDS]
            seconds = f"{self.total('route', route, 'seconds'):.6f}"
            yield from _histogram("longtail_request_seconds", f'route="{route}"', pairs, seconds, count)
        yield from _head("longtail_requests_begun", "gauge", "requests that are being answered")
        yield f"longtail_requests_begun {self.total('worker', '', 'begun'):.0f}"
        yield from _head("longtail_connections", "gauge", "connections that are open")
        yield f"longtail_connections {self.total('worker', '', 'connections'):.0f}"
        for field, kind, about in (
            ("texts", "counter", "texts ranked"),
            ("abstained", "counter", "texts that were given no label"),
            ("shed", "counter", "requests refused as too many waited"),
            ("swaps", "counter", "times that a worker took up another version"),
            ("busy_seconds", "counter", "time spent ranking"),
            ("waiting", "gauge", "texts that wait"),
        ):
            name = f"longtail_{field}" + ("_total" if kind == "counter" else "")
            yield from _head(name, kind, about)
            for model in self.models:
                value = self.total("model", model, field)
                yield (
                    f'{name}{{model="{model}"}} {value:.6f}'
                    if "seconds" in field
                    else (f'{name}{{model="{model}"}} {value:.0f}')
                )
        yield from _head("longtail_batch_texts", "histogram", "texts that were ranked together")
        for model in self.models:
            pairs = [(str(bound), self.total("model", model, f"of_{bound}")) for bound in TEXTS]
            texts, batches = f"{self.total('model', model, 'texts'):.0f}", self.total("model", model, "batches")
            yield from _histogram("longtail_batch_texts", f'model="{model}"', pairs, texts, batches)
        yield from _head("longtail_model_info", "gauge", "the version that a worker answers with")
        for model in self.models:
            place = self._layout["model", model]["version"]
            for slot, row in enumerate(self._rows):
                # Twelve hexadecimal digits are 48 bits, which a float64 holds exactly.
                if row[place]:
                    yield f'longtail_model_info{{model="{model}",worker="{slot}",version="{int(row[place]):012x}"}} 1'
        yield from _head("longtail_worker_starts_total", "counter", "workers started, the replaced ones among them")
        yield f"longtail_worker_starts_total {self.total('worker', '', 'started'):.0f}"


def _histogram(name: str, label: str, counts: Sequence[tuple[str, float]], total: str, count: float) -> Iterator[str]:
    """counts: how many are up to each bound and above the one before."""
    below = 0.0
    for bound, more in counts:
        below += more
        yield f'{name}_bucket{{{label},le="{bound}"}} {below:.0f}'
    yield f'{name}_bucket{{{label},le="+Inf"}} {count:.0f}'
    yield f"{name}_sum{{{label}}} {total}"
    yield f"{name}_count{{{label}}} {count:.0f}"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
