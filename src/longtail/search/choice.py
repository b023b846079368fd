"""Which index searches the rows of a model fastest, by measurement on this machine: exact, a sketch of all rows,
leaves of a tree, or HNSW.

What is not exact must find 95% of the true 100 best and 97% of the true 10 best of sampled queries; of its settings
the cheapest that does is taken. It must also be clearly faster than exact search, alone and in batches taken
together: a coin's toss should not decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from longtail.errors import ConfigError, MissingExtra
from longtail.search.index import HnswIndex, HnswSettings, Index
from longtail.search.packed import PackedIndex
from longtail.search.sketch import WIDTH, SketchIndex
from longtail.types import F32, TopK

SearchKind: TypeAlias = Literal["auto", "exact", "sketch", "tree", "hnsw"]
RECALL_AT_100, RECALL_AT_10 = 0.95, 0.97
# How many times faster than exact search something else must be to take its place.
_CLEARLY = 1.2
# Rows of fewer bytes stay exact unmeasured: reading them takes less time than all else.
SMALL = 1 << 20
# Queries that recall is measured with; queries asked one by one, in a batch, and in how many turns, for times.
QUERIES, _SINGLES, _BATCH, _TURNS = 500, 100, 256, 5
# Up to so many rows a sketch of all is tried; from so many on a tree, with so many rows per leaf; up to so many an
# HNSW graph: it takes a millisecond per row to build, and where it was measured (7,683 and 100,000 rows) three and
# twelve times as long as exact search over bytes to ask.
_SKETCH_UP_TO, _TREE_FROM, _LEAF, _HNSW_UP_TO = 500_000, 50_000, 64, 20_000


@dataclass(frozen=True)
class Measured:
    """One way to search.  recall: share of the true best found.  single_ms, batch_ms: per query for the 10 best.
    seconds: to build.
    """

    kind: str
    settings: dict[str, int]
    recall_at_100: float
    recall_at_10: float
    single_ms: float
    batch_ms: float
    seconds: float
    bytes: int

    @property
    def good_enough(self) -> bool:
        return self.recall_at_100 >= RECALL_AT_100 and self.recall_at_10 >= RECALL_AT_10

    @property
    def cost(self) -> float:
        """A single document and a batch count alike: the geometric mean of both times."""
        return (self.single_ms * self.batch_ms) ** 0.5

    def about(self) -> dict[str, Any]:
        """What a bundle may keep of it: nothing that differs from one packing to the next."""
        return {
            "kind": self.kind,
            **self.settings,
            "recall_at_100": round(self.recall_at_100, 4),
            "recall_at_10": round(self.recall_at_10, 4),
        }


@dataclass(frozen=True)
class Tried:
    """An index with the settings that find enough, if any do.  seconds: to build.  bytes: of what it reads."""

    kind: str
    index: Index
    settings: dict[str, int]
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Choice:
    """The index that was taken and its numbers, if it was measured; the numbers of all that were tried, and what was
    not tried and why.
    """

    index: Index
    kind: str
    taken: Measured | None = None
    tried: tuple[Measured, ...] = ()
    notes: tuple[str, ...] = ()

    def about(self) -> dict[str, Any]:
        return {"kind": self.kind} if self.taken is None else self.taken.about()

    def render(self) -> str:
        lines = [
            f"{'search':<10}{'recall@100':>12}{'recall@10':>12}"
            f"{'ms alone':>12}{'ms in batch':>12}{'build s':>10}{'MB':>10}"
        ]
        for one in self.tried:
            mark = " <- taken" if one is self.taken else "" if one.good_enough else "  too few found"
            numbers = (
                f"{one.recall_at_100:>12.3f}{one.recall_at_10:>12.3f}"
                f"{one.single_ms:>12.3f}{one.batch_ms:>12.4f}{one.seconds:>10.1f}{one.bytes / 1e6:>10.1f}"
            )
            lines.append(
                f"{one.kind:<10}{numbers}{mark}  {' '.join(f'{k}={v}' for k, v in one.settings.items())}".rstrip()
            )
        return "\n".join([*(lines if self.tried else []), *self.notes])


class _Trial:
    """Queries and their true answers."""

    def __init__(self, exact: PackedIndex, queries: F32) -> None:
        self.exact, self.queries = exact, queries
        depth = min(100, len(exact))
        self.truth = exact.query(queries, depth), exact.query(queries, min(10, depth))

    def recall(self, index: Index) -> tuple[float, float]:
        at_100, at_10 = (shared(index.query(self.queries, true.k), true) for true in self.truth)
        return at_100, at_10

    def finds_enough(self, index: Index) -> bool:
        """Of the 100 best first: mostly these are what is missing."""
        goals = zip(self.truth, (RECALL_AT_100, RECALL_AT_10), strict=True)
        return all(shared(index.query(self.queries, true.k), true) >= goal for true, goal in goals)

    def measured(self, tried: list[Tried]) -> list[Measured]:
        """All take turns, so that a busy machine slows all."""
        queries = [self.queries[row : row + 1] for row in range(min(_SINGLES, len(self.queries)))]
        single: list[list[float]] = [[] for _ in tried]
        batch: list[list[float]] = [[] for _ in tried]
        for turn in range(_TURNS):
            for number, one in enumerate(tried):
                one.index.query(self.queries[:_BATCH], 10)  # into the caches, what another left there out of them
                batch[number].append(
                    timed(partial(one.index.query, self.queries[:_BATCH], 10)) / len(self.queries[:_BATCH])
                )
                single[number] += [timed(partial(one.index.query, query, 10)) for query in queries[turn::_TURNS]]
        return [
            Measured(
                one.kind,
                one.settings,
                *self.recall(one.index),
                1000 * float(np.median(single[n])),
                1000 * float(np.median(batch[n])),
                one.seconds,
                one.bytes,
            )
            for n, one in enumerate(tried)
        ]

    def first_good(self, variants: Iterator[tuple[Index, dict[str, int]]]) -> tuple[Index, dict[str, int]]:
        """The first that finds enough; else the last."""
        found: tuple[Index, dict[str, int]] | None = None
        for found in variants:
            if self.finds_enough(found[0]):
                break
        assert found is not None
        return found


def shared(found: TopK, true: TopK) -> float:
    """Which share of the true best was found."""
    both = [len(np.intersect1d(a, b)) for a, b in zip(found.ids, true.ids, strict=True)]
    return float(np.mean(both)) / max(true.k, 1)


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def choose(exact: PackedIndex, queries: Callable[[], F32], kind: SearchKind = "auto", *, seed: int = 0) -> Choice:
    """An index over the rows of `exact`, of the kind asked for, or the fastest.

    queries: gives (Q, D) or (Q, D + 1), such as documents ask; called only where something is to be measured.
    """
    if kind not in get_args(SearchKind):
        raise ConfigError(
            f"index '{kind}', expected {', '.join(get_args(SearchKind))}", "auto measures and takes the fastest"
        )
    if kind == "exact":
        return Choice(exact, "exact")
    if kind == "auto" and exact.rows.values.nbytes < SMALL:
        return Choice(
            exact,
            "exact",
            notes=(
                f"search: exact; {len(exact):,} rows of {exact.rows.shape[1]} numbers are too few for another to win",
            ),
        )
    trial = _Trial(exact, queries())
    tried = [Tried("exact", exact, {}, 0.0, exact.rows.values.nbytes)]
    notes: list[str] = []
    for name in ("sketch", "tree", "hnsw") if kind == "auto" else (kind,):
        reason = _not_worth_trying(name, exact) if kind == "auto" else ""
        try:
            tried += [] if reason else _TRIALS[name](trial, np.random.default_rng([seed, 0x1DE]))
        except MissingExtra as problem:
            if kind != "auto":
                raise
            reason = problem.message
        notes += [f"{name}: not tried, {reason}"] if reason else []
    measured = trial.measured(tried)
    taken = _fastest(measured) if kind == "auto" else min(measured[1:], key=lambda one: (not one.good_enough, one.cost))
    return Choice(tried[measured.index(taken)].index, taken.kind, taken, tuple(measured), tuple(notes))


def _fastest(measured: list[Measured]) -> Measured:
    """The fastest that finds enough and is clearly faster than the first, which is exact."""
    exact, *others = measured
    return min(
        (one for one in others if one.good_enough and one.cost * _CLEARLY < exact.cost),
        key=lambda one: one.cost,
        default=exact,
    )


def _not_worth_trying(name: str, exact: PackedIndex) -> str:
    rows, width = exact.rows.shape
    if name == "sketch" and width < 2 * WIDTH:
        return f"rows have {width} numbers, a sketch {WIDTH}"
    if name == "sketch" and rows > _SKETCH_UP_TO:
        return f"of {rows:,} rows even a sketch takes longer to read than a tree"
    if name == "tree" and (rows < _TREE_FROM or width < WIDTH):
        return f"{rows:,} rows of {width} numbers; it begins to pay at {_TREE_FROM:,} of {WIDTH}"
    if name == "hnsw" and rows > _HNSW_UP_TO:
        return f"building it over {rows:,} rows takes about {rows / 1000:,.0f} seconds; --index hnsw does it"
    return ""


def _try_sketch(trial: _Trial, rng: np.random.Generator) -> list[Tried]:
    """Two: longer sketches need fewer candidates."""
    found: list[Tried] = []
    for width in (WIDTH, 2 * WIDTH):
        if width == WIDTH or 2 * width <= trial.exact.rows.shape[1]:
            started = time.perf_counter()
            built = SketchIndex.build(trial.exact, width=width)
            seconds = time.perf_counter() - started
            index, settings = trial.first_good(
                (built.tuned(more=more), {"width": width, "more": more}) for more in (20, 50, 100, 200, 400, 800)
            )
            size = trial.exact.rows.values.nbytes + built.heads.interleaved.nbytes
            found.append(Tried("sketch", index, settings, seconds, size))
    return found


def _try_tree(trial: _Trial, rng: np.random.Generator) -> list[Tried]:
    started = time.perf_counter()
    rows, width = trial.exact.rows.shape
    built = SketchIndex.build(
        trial.exact, width=2 * WIDTH if width >= 2 * WIDTH else WIDTH, leaves=max(1, rows // _LEAF), rng=rng
    )
    seconds = time.perf_counter() - started

    effort, candidates = 2000, (20, 100, 400)
    while effort <= rows // 2 and not trial.finds_enough(built.tuned(more=candidates[-1], effort=effort)):
        effort += effort // 6
    # The rows being enough, fewer candidates may be.
    index, settings = trial.first_good(
        (built.tuned(more=more, effort=effort), {"leaves": built.leaves, "effort": effort, "more": more})
        for more in candidates
    )
    return [Tried("tree", index, settings, seconds, trial.exact.rows.values.nbytes + built.heads.interleaved.nbytes)]


def _try_hnsw(trial: _Trial, rng: np.random.Generator) -> list[Tried]:
    vectors = trial.exact.vectors()
    started = time.perf_counter()
    built = HnswIndex.build(vectors, HnswSettings(neighbours=32, build_effort=100), trial.exact.similarity)
    seconds = time.perf_counter() - started
    efforts = (50, 100, 200, 400, 800)
    variants: Iterator[tuple[Index, dict[str, int]]] = (
        (replace(built, query_effort=effort), {"query_effort": effort}) for effort in efforts
    )
    index, settings = trial.first_good(variants)
    # Links of the lowest level, two for each neighbour, beside the rows as they are.
    return [Tried("hnsw", index, settings, seconds, vectors.nbytes + len(vectors) * 64 * 4)]


_TRIALS: dict[str, Callable[[_Trial, np.random.Generator], list[Tried]]] = {
    "sketch": _try_sketch,
    "tree": _try_tree,
    "hnsw": _try_hnsw,
}
