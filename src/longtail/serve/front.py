"""A model whose shards are other servers (``longtail serve SHARD``): each is asked, side by side with the others, and
what they found is put together to the answer of the model that was split.

A front encodes nothing and has no rows. It knows ids, names and frequencies of all labels, which it hears from the
shards when it is opened. An answer comes from all shards, of the versions that it was opened with, or there is none.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import numpy as np

from longtail.bundle import LabelTable, digest_of
from longtail.errors import ConfigError, LongtailError
from longtail.models.gathered import ranked
from longtail.persistence import StringTable
from longtail.predictor import with_finite_scores
from longtail.search.split import ShardLists
from longtail.serve.hosted import Facts, Hosted, annif_uids
from longtail.serve.limits import Plan
from longtail.serve.problems import Problem, as_json, bad, busy, shown
from longtail.serve.wire import PROTOCOL, found_from_bytes
from longtail.types import I32, Context, TopK

Result = TypeVar("Result")
# Characters of texts that are sent at once: a shard refuses bodies that are too large.
_CHARACTERS = 2_000_000
_SOON_S = 2.0  # when a shard that is away may be asked for again


def addresses(path: str) -> list[str]:
    """Of the servers of shards, where a model is named by these: ``http://one:8000,http://two:8000``."""
    return [one.rstrip("/") for one in path.split(",")] if path.startswith(("http://", "https://")) else []


class ShardServer:
    """One connection to a server, for one request at a time. A connection that broke is made anew, once."""

    def __init__(self, address: str, token: str, timeout_s: float) -> None:
        self.address, self.timeout_s = address, timeout_s
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        found = urlsplit(address)
        try:
            self._where = found.hostname or "", found.port
        except ValueError:
            self._where = "", None
        if found.scheme not in ("http", "https") or not self._where[0] or found.query or found.fragment:
            raise ConfigError(f"{shown(address)} is no address of a server", "e.g. http://127.0.0.1:8001")
        self._kind = http.client.HTTPSConnection if found.scheme == "https" else http.client.HTTPConnection
        self._prefix = found.path
        self._line: http.client.HTTPConnection | None = None

    def ask(self, path: str, body: Any = None) -> bytes:
        """The body of an answer; a `Problem` (503) that names the server where there is none."""
        for again in (True, False):
            try:
                return self._asked(path, None if body is None else as_json(body))
            except TimeoutError:
                self._close()
                raise self.away(f"did not answer within {self.timeout_s:g} seconds") from None
            except (OSError, http.client.HTTPException) as problem:
                self._close()
                if not again:
                    raise self.away(f"cannot be reached ({_said(problem)})") from None
        raise AssertionError("both rounds return or raise")

    def _asked(self, path: str, body: bytes | None) -> bytes:
        if self._line is None:
            self._line = self._kind(*self._where, timeout=self.timeout_s)
        kind = {} if body is None else {"Content-Type": "application/json"}
        self._line.request("GET" if body is None else "POST", self._prefix + path, body, {**self.headers, **kind})
        answer = self._line.getresponse()
        content = answer.read()
        if answer.status == 200:
            return content
        detail = f"answered {answer.status}: {_detail(content)}"
        wait = answer.getheader("Retry-After", "")
        raise self.away(detail, float(wait) if wait.isdigit() else _SOON_S)

    def away(self, what: str, seconds: float = _SOON_S) -> Problem:
        return busy(f"the server of shards {self.address} {what}", seconds)

    def _close(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def object(self, path: str, body: Any = None) -> dict[str, Any]:
        content = self.ask(path, body)
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self.away("answered something else than a server of shards does")
        return found


def _said(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


def _detail(content: bytes) -> str:
    try:
        return shown(json.loads(content)["detail"], 300)
    except (ValueError, KeyError, TypeError):
        return shown(content.decode("utf-8", "replace"), 100)


@dataclass(frozen=True)
class RemoteShard:
    """A shard as its server tells of it. number: from 0."""

    server: ShardServer
    name: str
    number: int
    of: int
    model: str
    labels: int
    facts: Facts

    def __str__(self) -> str:
        return f"shard {self.number + 1} of {self.of} at {self.server.address}"

    def at(self, what: str) -> str:
        return f"/shard/v1/{quote(self.name)}/{what}"

    def check(self, version: Any) -> None:
        """An answer must come from the version that the front was opened with."""
        if version != self.facts.sha:
            raise busy(
                f"{self} has version {str(version)[:12]}, and the front knows {self.facts.sha[:12]}; it takes up new "
                "versions when all shards have them: by SIGHUP, the route reload, or --watch",
                _SOON_S,
            )

    def wrong(self, problem: Exception) -> Problem:
        return self.server.away(f"answered something that is not what a shard finds ({_said(problem)})")

    def found(self, texts: Sequence[str], k: int) -> ShardLists:
        content = self.server.ask(self.at("found"), {"texts": texts, "k": k})
        try:
            head, found = found_from_bytes(content)
            largest = max(int(top.ids.max(initial=-1)) for top in found.lists)
            if len(found.lists[0]) != len(texts) or largest >= self.labels:
                raise ValueError(f"lists of {len(found.lists[0])} texts, labels up to {largest}")
        except (ValueError, KeyError, TypeError) as problem:
            raise self.wrong(problem) from None
        self.check(head["version"])
        return found

    def reasons(self, texts: Sequence[str], labels: Sequence[Sequence[int]]) -> list[list[str]]:
        said = self.server.object(self.at("reasons"), {"texts": texts, "labels": labels})
        self.check(said.get("version"))
        try:
            given = [[as_json(one).decode() for one in each] for each in said["reasons"]]
            if [len(each) for each in given] != [len(each) for each in labels]:
                raise ValueError("reasons of other labels")
        except (ValueError, KeyError, TypeError) as problem:
            raise self.wrong(problem) from None
        return given

    def table(self) -> Iterator[tuple[str, str, int]]:
        """Ids, names and frequencies of its labels."""
        told = 0
        while told < self.labels:
            said = self.server.object(f"{self.at('labels')}?from={told}")
            self.check(said.get("version"))
            try:
                some = [(str(uid), str(name), int(count)) for uid, name, count in said["labels"]]
            except (ValueError, KeyError, TypeError) as problem:
                raise self.wrong(problem) from None
            if not some or told + len(some) > self.labels:
                raise self.wrong(ValueError(f"{told + len(some)} labels of {self.labels}"))
            told += len(some)
            yield from some


class Shards:
    """All shards of one model, in their order."""

    def __init__(self, shards: Sequence[RemoteShard]) -> None:
        self.shards = shards
        # A thread for each server: its connection takes one request at a time.
        self.servers = list(dict.fromkeys(shard.server for shard in shards))
        self._pool = ThreadPoolExecutor(len(self.servers), "longtail-front")

    @classmethod
    def open(cls, path: str, plan: Plan) -> Shards:
        """Those that the servers at these addresses have; an error where they are not all shards of one model."""
        servers = [ShardServer(one, plan.shard_token, plan.limits.timeout_s) for one in addresses(path)]
        with ThreadPoolExecutor(len(servers)) as pool:
            try:
                told = list(pool.map(lambda server: server.object("/shard/v1"), servers))
            except Problem as problem:
                raise LongtailError(problem.detail, "start the servers of all shards first") from None
        found = [shard for server, said in zip(servers, told, strict=True) for shard in _shards(server, said)]
        return cls(belonging_together(found))

    @property
    def sha(self) -> str:
        """Names the version: that of the folder of all these shards."""
        return digest_of([shard.facts.sha for shard in self.shards])

    def each(self, work: Callable[[RemoteShard], Result]) -> list[Result]:
        """Work for every shard, side by side; results in the order of shards."""

        def of_server(server: ShardServer) -> list[tuple[int, Result]]:
            return [(shard.number, work(shard)) for shard in self.shards if shard.server is server]

        working = [self._pool.submit(of_server, server) for server in self.servers]
        wait(working)  # all of them, also where one failed: the next request needs their connections
        results = dict(pair for one in working for pair in one.result())
        return [results[shard.number] for shard in self.shards]

    def labels(self) -> LabelTable:
        def table(shard: RemoteShard) -> LabelTable:
            uids, names, counts = zip(*shard.table(), strict=True)
            return LabelTable(StringTable.of(uids), StringTable.of(names), np.array(counts, np.int64))

        return LabelTable.interleaved(self.each(table))


def _shards(server: ShardServer, said: dict[str, Any]) -> list[RemoteShard]:
    if said.get("protocol") != PROTOCOL:
        raise LongtailError(
            f"{server.address}: speaks protocol {shown(said.get('protocol'))}, this front {PROTOCOL}",
            "use the same version of longtail for shards and front",
        )
    try:
        return [_shard(server, one) for one in said["shards"]]
    except (KeyError, TypeError, ValueError) as problem:
        raise LongtailError(
            f"{server.address}: tells of its shards what is not understood ({_said(problem)})",
            "use the same version of longtail for shards and front",
        ) from None


def _shard(server: ShardServer, said: dict[str, Any]) -> RemoteShard:
    facts = Facts(**{one.name: said[one.name] for one in fields(Facts)})
    about = facts.shard or {}
    number, of, labels = (int(n) for n in (about["number"], about["of"], said["labels"]))
    if not 1 <= number <= of or labels < 1:
        raise ValueError(f"shard {number} of {of}, with {labels} labels")
    return RemoteShard(server, str(said["name"]), number - 1, of, str(about["model"]), labels, facts)


def belonging_together(found: Sequence[RemoteShard]) -> list[RemoteShard]:
    """In their order; an error that names what is missing, twice there or of another model."""
    hint = "name the servers of all shards that one 'longtail split' wrote, each once"
    if not found:
        raise ConfigError("no server has a shard", hint)
    first = found[0]
    by_number: dict[int, RemoteShard] = {}
    for shard in found:
        if (shard.model, shard.of) != (first.model, first.of):
            raise ConfigError(
                f"{shard} is of another model than {first} ({shard.model[:12]} and {first.model[:12]})", hint
            )
        if shard.number in by_number:
            raise ConfigError(f"{shard} is also at {by_number[shard.number].server.address}", hint)
        by_number[shard.number] = shard
    missing = [number + 1 for number in range(first.of) if number not in by_number]
    if missing:
        raise ConfigError(f"no server has shard {missing[0]} of {first.of}", hint)
    shards = [by_number[number] for number in range(first.of)]
    sizes = [shard.labels for shard in shards]
    if sizes != [len(range(number, sum(sizes), first.of)) for number in range(first.of)]:
        raise ConfigError(f"shards of {sizes} labels do not fit together", "split the model again")
    calibrated = [shard for shard in shards if shard.facts.calibration is not None]
    if calibrated:
        raise ConfigError(
            f"{calibrated[0]} is calibrated by itself", "probabilities are of all labels: calibrate --undo the shard"
        )
    return shards


class Front(Hosted):
    def __init__(
        self, name: str, shards: Shards, annif_uids: Sequence[str] | None = None, *, corrections: bool = False
    ) -> None:
        told = shards.shards[0].facts
        # Newest of all; what is written like this is in the order of time.
        changed = max(shard.facts.changed for shard in shards.shards)
        averages = any(found.depth for found in shards.each(lambda shard: shard.found(["a"], 1)))
        facts = replace(told, sha=shards.sha, changed=changed, shard=None, explains=told.explains and not averages)
        super().__init__(name, facts, shards.labels(), annif_uids, corrections=corrections)
        self.shards = shards

    @classmethod
    def open(cls, name: str, path: str, plan: Plan) -> Front:
        shards = Shards.open(path, plan)
        try:
            return cls(name, shards, annif_uids(plan), corrections=bool(plan.corrections))
        except Problem as problem:
            raise LongtailError(problem.detail, "look at the log of that server") from None

    def turn(self) -> AbstractContextManager[Any]:
        """No kernel is called here."""
        return nullcontext()

    def lowest_score(self, threshold: float | None, precision: float | None) -> float | None:
        if precision is not None:
            raise ConfigError(f"a precision of {precision} is asked for, and a model in shards is not calibrated", "")
        return threshold

    def ranked(self, texts: Sequence[str], depth: int, context: Context | None) -> TopK:
        return with_finite_scores(ranked(self._found(texts, depth), depth, len(self)))

    def _found(self, texts: Sequence[str], depth: int) -> list[ShardLists]:
        pieces = list(_pieces(texts))

        def found(shard: RemoteShard) -> ShardLists:
            return ShardLists.stacked([shard.found(piece, depth) for piece in pieces])

        return self.shards.each(found)

    def reasons(self, texts: Sequence[str], ids: I32, context: Context | None) -> list[list[str]]:
        """Each label is explained by the shard that has it, as it would be by the whole: for a label that the whole
        does not vote on a shard might tell of votes, so that none such is explained. Nor are means of several models
        (`Facts.explains`): a shard knows only its own lists of these.
        """
        found = self._found(texts, 1)
        if found[0].voted:
            _, voted = ranked(found, found[0].voted, len(self)).looked_up(ids)
            if not voted[ids >= 0].all():
                most = found[0].voted
                raise bad(f"a model in shards can say why of the {most} best labels of a text alone; others are wanted")
        count = len(self.shards.shards)
        rows = [[number for number in row if number >= 0] for row in ids.tolist()]

        def said(shard: RemoteShard) -> list[list[str]]:
            own = [[number // count for number in row if number % count == shard.number] for row in rows]
            return shard.reasons(texts, own) if any(own) else [[] for _ in texts]

        each = [[iter(reasons) for reasons in of_texts] for of_texts in self.shards.each(said)]
        return [[next(each[number % count][text]) for number in row] for text, row in enumerate(rows)]


def _pieces(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Texts in their order, so many at once that a request stays small; one at least."""
    start, size = 0, 0
    for number, text in enumerate(texts):
        if number > start and size + len(text) > _CHARACTERS:
            yield texts[start:number]
            start, size = number, 0
        size += len(text)
    yield texts[start:]
