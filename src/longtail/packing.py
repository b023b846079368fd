"""Packing a bundle: float16 or int8 in place of float32, the fastest search over its rows, and what that saves and
costs. And a trained encoder as ONNX, for other programs. Needs neither torch nor onnx.

What is packed: `longtail.search.packed.Packer`, and `packed` of each part of a model. Which index searches the rows
fastest is measured on this machine (`choose`): exact, a sketch of all rows, leaves of sketches, or HNSW. What is not
exact must find 95% of the true 100 best and 97% of the true 10 best of sampled queries; of its settings the cheapest
that does is taken. It must also be clearly faster than exact search, alone and in batches taken together: a coin's toss
should not decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from longtail.bundle import Bundle, bytes_by_part, open_bundle, write_bundle
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import ConfigError, MissingExtra
from longtail.evaluation import evaluate
from longtail.label_changes import with_changes
from longtail.persistence import written_aside
from longtail.predictor import Predictor
from longtail.search.index import HnswIndex, HnswSettings, Index
from longtail.search.packed import PackedIndex, PackedType, Packer
from longtail.search.sketch import WIDTH, SketchIndex
from longtail.types import F32, TopK
from longtail.writing import refuse_sealed, refuse_taken

SearchKind: TypeAlias = Literal["auto", "exact", "sketch", "leaves", "hnsw"]
METRICS = ("P@1", "PSP@5")


@dataclass(frozen=True)
class PackReport:
    """What packing did.  sizes: part -> bytes before and after.  accuracy: metric -> percent before and after, where
    data was given.

    search: how rows are searched and what else was measured; empty where a model has no rows to search.
    """

    dtype: str
    sizes: Mapping[str, tuple[int, int]]
    accuracy: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)

    def render(self) -> str:
        lines = [f"{'bytes of':<24}{'before':>14}{'after':>14}"]
        lines += [f"{name:<24}{before:>14,}{after:>14,}" for name, (before, after) in self.sizes.items()]
        if self.accuracy:
            lines += ["", f"{'percent':<24}{'before':>14}{'after':>14}{'change':>10}"]
            lines += [
                f"{name:<24}{before:>14.2f}{after:>14.2f}{after - before:>+10.2f}"
                for name, (before, after) in self.accuracy.items()
            ]
        return "\n".join([*lines, *(["", self.search["table"]] if self.search else [])])


def pack(
    model: str | Path,
    out: str | Path,
    dtype: PackedType = "int8",
    *,
    features: int = 0,
    index: SearchKind = "auto",
    data: Dataset | str | Path | None = None,
) -> PackReport:
    """Write the model of a run or bundle to the new bundle `out` with its tables in `dtype`.

    features: keep the vectors of so many words only, the most useful; 0: all.
    index: how the rows of a model that compares all labels are searched; auto: what is fastest here (`choose`).
    data: measure the accuracy before and after on its test documents; the index is then chosen by queries of its
    training documents, else by those of label names. Equal models and equal choices give equal bytes.
    """
    model, out = Path(model), Path(out)
    data = data if data is None or isinstance(data, Dataset) else read(Path(data))
    refuse_taken(out)
    refuse_sealed(out)
    if features < 0:
        raise ConfigError(f"features is {features}, expected a whole number >= 0", "0 keeps the vectors of all words")
    bundle = with_changes(open_bundle(model))
    ranker = bundle.ranker.packed(Packer(dtype, features, bundle.featurizer.word_influence()))
    ranker, choice = with_index(bundle, ranker, index, data)
    chosen = {} if choice is None else {"search": choice.about()}
    kept = ("recipe", "seed", "data", "columns", "vocabulary", "metrics", "calibration", "label_changes")
    about = {name: value for name, value in bundle.manifest.items() if name in kept}
    write_bundle(
        out,
        about={
            **about,
            "packed": {"dtype": dtype, "features": features, **chosen, "from": bundle.digest},
        },
        config=bundle.config(),
        labels=bundle.labels,
        featurizer=bundle.featurizer,
        ranker=ranker,
        held_out=bundle.held_out(),
        company=bundle.company(),
        calibration=bundle.calibration(),
    )
    before, after = (bytes_by_part(folder) for folder in (bundle.folder, out))
    sizes = {name: (before.get(name, 0), after.get(name, 0)) for name in sorted(before | after)}
    total = {"all": (sum(before.values()), sum(after.values()))}
    accuracy = {} if data is None else change_in_accuracy(bundle, out, data)
    search = (
        {}
        if choice is None
        else {"taken": choice.about(), "tried": [vars(one) for one in choice.tried], "table": choice.render()}
    )
    return PackReport(dtype, {**sizes, **total}, accuracy, search)


def with_index(bundle: Bundle, ranker: Any, kind: SearchKind, data: Dataset | None) -> tuple[Any, Choice | None]:
    """The packed model with the index that its rows are searched by; None where it has no rows that all documents are
    compared with.
    """
    index = ranker.packed_rows()
    if index is None:
        if kind not in ("auto", "exact"):
            raise ConfigError(
                f"--index {kind}: this model does not compare documents with all labels",
                "leave --index out; models of direct have the choice",
            )
        return ranker, None
    if data is None and not bundle.featurizer.fields and kind != "exact":
        # Trained on given vectors, it cannot read label names, and there is nothing else to ask it.
        if kind != "auto":
            raise ConfigError(
                f"--index {kind}: what it finds is measured with documents, and this model reads no text",
                "give documents with --data",
            )
        return ranker, Choice(
            index, "exact", notes=("search: exact; others are measured with documents: give some with --data",)
        )
    choice = choose(
        index, lambda: word_queries(bundle, ranker) if data is None else document_queries(bundle, ranker, data), kind
    )
    return replace(ranker, index=choice.index), choice


def word_queries(bundle: Bundle, ranker: Any) -> F32:
    """What label names ask the index, as if they were documents: a bundle holds no others."""
    chosen = np.sort(np.random.default_rng(0x5EA).permutation(len(bundle.labels))[:QUERIES])
    return ranker.queries(bundle.featurizer.batch_of_texts(bundle.labels.names.take(chosen)))


def document_queries(bundle: Bundle, ranker: Any, data: Dataset) -> F32:
    """What training documents ask the index."""
    chosen = np.sort(np.random.default_rng(0x5EA).permutation(len(data.train))[:QUERIES])
    return ranker.queries(bundle.featurizer.batch(data.train.documents.rows(chosen)))


def change_in_accuracy(bundle: Bundle, packed: Path, data: Dataset) -> dict[str, tuple[float, float]]:
    before, after = evaluate(Predictor(bundle), data), evaluate(Predictor.open(packed), data)
    return {name: (before[name], after[name]) for name in METRICS}


GRAPH, TOKENIZER = "encoder.onnx", "tokenizer.json"


def export(model: Predictor, out: Path) -> None:
    """Write the transformer of a model to the new folder `out`.

    encoder.onnx: inputs ``tokens`` (texts, length) int64 and ``there`` (texts, length) float32, 1 at tokens and 0 at
    padding; output ``vectors`` (texts, D) of unit length.  tokenizer.json: what gives the token numbers (`tokenizers`
    reads it).
    """
    graph, tokenizer = model.bundle.ranker.onnx(), getattr(model.bundle.featurizer, "tokenizer", None)
    if graph is None or tokenizer is None:
        recipe = model.bundle.manifest.get("recipe")
        raise ConfigError(
            f"this model of the recipe '{recipe}' has no transformer to export",
            "train with --set features.checkpoint=FOLDER",
        )
    refuse_taken(out)
    with written_aside(out) as aside:
        aside.mkdir()
        (aside / GRAPH).write_bytes(graph)
        (aside / TOKENIZER).write_text(tokenizer, encoding="utf-8")


# ---- the fastest search over rows ----

RECALL_AT_100, RECALL_AT_10 = 0.95, 0.97
# How many times faster than exact search something else must be to take its place.
_CLEARLY = 1.2
# Rows of fewer bytes stay exact unmeasured: reading them takes less time than all else.
SMALL = 1 << 20
# Queries that recall is measured with; queries asked one by one, in a batch, and in how many turns, for times.
QUERIES, _SINGLES, _BATCH, _TURNS = 500, 100, 256, 5
# Up to so many rows a sketch of all is tried; from so many on leaves, of so many rows each; up to so many an HNSW
# graph: it takes a millisecond per row to build, and has been slower than exact search over bytes.
_SKETCH_UP_TO, _LEAVES_FROM, _LEAF, _HNSW_UP_TO = 500_000, 50_000, 64, 20_000


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
    for name in ("sketch", "leaves", "hnsw") if kind == "auto" else (kind,):
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
        return f"of {rows:,} rows even a sketch takes longer to read than leaves"
    if name == "leaves" and (rows < _LEAVES_FROM or width < WIDTH):
        return f"{rows:,} rows of {width} numbers; they begin to pay at {_LEAVES_FROM:,} of {WIDTH}"
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


def _try_leaves(trial: _Trial, rng: np.random.Generator) -> list[Tried]:
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
    return [Tried("leaves", index, settings, seconds, trial.exact.rows.values.nbytes + built.heads.interleaved.nbytes)]


def _try_hnsw(trial: _Trial, rng: np.random.Generator) -> list[Tried]:
    vectors = trial.exact.read()
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
    "leaves": _try_leaves,
    "hnsw": _try_hnsw,
}
