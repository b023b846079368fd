"""Everything that a report says of a model, found once: predictions, metrics with intervals, weak labels, examples and
suspected errors. What it costs is bounded: of many test documents a sample is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from longtail import metrics
from longtail.data.dataset import Dataset
from longtail.data.inspect import Finding, check, statistics
from longtail.diagnosis import LookInside, diagnose, training_log
from longtail.errors import ConfigError
from longtail.evaluation import KS, Yardstick, context_of_test, held_out_data, rank_test
from longtail.explanation import Explanation
from longtail.failures import Failures, WeakLabel
from longtail.metrics.ranking import hits, positives
from longtail.persistence import load_part
from longtail.picture import Picture
from longtail.predictor import Predictor
from longtail.suspects import Suspects, suspects
from longtail.training.progress import Display
from longtail.types import F32, I32, I64, Context, TopK

# Test documents that are looked at, unless more are asked for: an interval of P@1 is then about 2 points wide.
DOCUMENTS = 10_000
# Places of a list that weak labels, examples and suspected errors look at.
SHOWN = max(KS)
EXAMPLES = 5
EXPLAINED = 3


@dataclass(frozen=True)
class MeasuredModel:
    """One model on the test documents.

    ranked: uncut; top: without masked pairs.  intervals: of every metric.  by_frequency, by_volume: what labels of like
    frequency give to metrics, with intervals: (metric, bin) -> interval.
    """

    name: str
    model: Predictor
    context: Context | None
    ranked: TopK
    top: TopK
    intervals: Mapping[str, metrics.Interval]
    by_bin: Mapping[str, Mapping[tuple[str, str], metrics.Interval]]
    macro: Mapping[str, float]


@dataclass(frozen=True)
class ShownDocument:
    """A document with its labels, and why it got those that it was given first.

    row: of the test documents.  right: which of `why` are in the truth.  missed: labels of the truth that are not among
    the first places.
    """

    row: int
    why: Sequence[Explanation]
    right: Sequence[bool]
    missed: Sequence[str]


@dataclass(frozen=True)
class WeakLabels:
    """Counts over all labels, and the worst of each kind. support: test documents, or predictions, of those listed."""

    labels: int
    never: int
    wrong: int
    support: int
    missed: Sequence[WeakLabel]
    never_found: Sequence[WeakLabel]
    always_wrong: Sequence[WeakLabel]


@dataclass
class Findings:
    """What sections are made of.

    data: its test side is what was looked at.  tested: how many test documents there are in all.
    held_out: whether they are documents that training held out.
    """

    data: Dataset
    tested: int
    held_out: bool
    yardstick: Yardstick
    statistics: Mapping[str, Any]
    remarks: Sequence[Finding]
    side: MeasuredModel
    other: MeasuredModel | None
    log: Sequence[Mapping[str, Any]]
    diagnosis: Mapping[str, Any]
    pictures: Sequence[Picture]
    weak: WeakLabels
    best: Sequence[ShownDocument]
    worst: Sequence[ShownDocument]
    suspects: Suspects
    resamples: int
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)


def find(
    model: Predictor,
    data: Dataset,
    other: Predictor | None,
    *,
    names: tuple[str, str],
    documents: int = DOCUMENTS,
    resamples: int = 1000,
    seed: int = 0,
    display: Display,
) -> Findings:
    """names: what the two models are called.  documents: at most so many test documents; 0: all."""
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        display.say(f"report: {what}")
        started = time.monotonic()
        yield
        seconds[what] = seconds.get(what, 0.0) + time.monotonic() - started

    held_out = data.test is None
    if held_out:
        data = held_out_data(model, data, *([] if other is None else [other]))
    with timed("what the data are"):
        counts = statistics(data)
        remarks = check(data, counts)
    tested = len(data.need_test())
    data = sampled(data, documents, seed)
    yardstick = Yardstick.of(data)
    with timed("predictions"):
        start = context_of_test(model, yardstick)
        ranked = rank_test(model, yardstick, display, start)
    with timed("metrics with intervals"):
        side = measured(names[0], model, start, ranked, yardstick, resamples, seed)
    beside = None
    if other is not None:
        with timed("the other model"):
            known = context_of_test(other, yardstick)
            beside = measured(
                names[1], other, known, rank_test(other, yardstick, display, known), yardstick, resamples, seed
            )
    with timed("weak labels"):
        weak = weak_labels_of(ranked, yardstick)
    with timed("examples"):
        best, worst = examples(side, yardstick)
    with timed("suspected errors"):
        doubtful = suspects(model, yardstick, ranked, at=SHOWN, context=start, display=display)
    with timed("inside the model"):
        inside = diagnose(model, yardstick)
        pictures = pictures_of(model, yardstick)
    return Findings(
        data=data,
        tested=tested,
        held_out=held_out,
        yardstick=yardstick,
        statistics=counts,
        remarks=remarks,
        side=side,
        other=beside,
        log=training_log(model),
        diagnosis=inside,
        pictures=pictures,
        weak=weak,
        best=best,
        worst=worst,
        suspects=doubtful,
        resamples=resamples,
        seed=seed,
        seconds=seconds,
    )


def sampled(data: Dataset, documents: int, seed: int) -> Dataset:
    """The same with at most so many test documents, drawn by seed; 0: all."""
    test = data.need_test()
    if not documents or len(test) <= documents:
        return data
    rows = np.sort(np.random.default_rng([seed, 0x4E]).permutation(len(test))[:documents])
    return replace(data, test=test.rows(rows))


def measured(
    name: str,
    model: Predictor,
    context: Context | None,
    ranked: TopK,
    yardstick: Yardstick,
    resamples: int,
    seed: int,
) -> MeasuredModel:
    def intervals(found: metrics.PerDocument) -> dict[str, metrics.Interval]:
        return metrics.bootstrap_interval(found, resamples, rng=np.random.default_rng(seed))

    top, near = yardstick.cut(ranked), yardstick.measure_hierarchy(ranked)
    by_bin = {}
    for convention in ("by_frequency", "equal_volume"):
        bins = metrics.bins_for(convention, yardstick.counts)
        parts = intervals(metrics.measure_bins(top, yardstick.truth, yardstick.inverse_propensity, bins, (SHOWN,)))
        by_bin[convention] = {
            (metric, one): parts[metrics.in_bin(f"{metric}@{SHOWN}", one)]
            for metric in ("P", "PSP", "FN")
            for one in bins.names
        }
    return MeasuredModel(
        name=name,
        model=model,
        context=context,
        ranked=ranked,
        top=top,
        intervals={**intervals(yardstick.measure(ranked)), **({} if near is None else intervals(near))},
        by_bin=by_bin,
        macro={
            **metrics.macro_score(top, yardstick.truth, KS),
            **metrics.calibration_errors(top, yardstick.truth, KS),
        },
    )


def weak_labels_of(ranked: TopK, yardstick: Yardstick, listed: int = 15) -> WeakLabels:
    found = Failures.of(ranked, yardstick, SHOWN)
    counts = found.counts
    never, wrong = (counts.found == 0) & (counts.true > 0), (counts.found == 0) & (counts.predicted > 0)
    # One document proves little, where there are labels with more.
    support = next((n for n in (5, 3, 2) if (counts.true >= n).sum() >= listed), 1)
    return WeakLabels(
        labels=int((counts.true > 0).sum()),
        never=int(never.sum()),
        wrong=int(wrong.sum()),
        support=support,
        missed=found.missed(limit=listed),
        never_found=found.never_found(support, listed),
        always_wrong=found.always_wrong(support, listed),
    )


def examples(side: MeasuredModel, yardstick: Yardstick) -> tuple[list[ShownDocument], list[ShownDocument]]:
    """Best: all labels found and first, the rarest labels before others. Worst: surest of labels that are all wrong."""
    top, truth = metrics.cut(side.top, SHOWN), positives(yardstick.truth)
    hit, each = hits(top, truth), np.diff(truth.indptr)
    found = hit.sum(axis=1)
    # As many right ones in the first places as there are labels: nothing better is possible.
    first = np.minimum(each, SHOWN)
    perfect = (each > 0) & (np.cumsum(hit, axis=1)[np.arange(len(top)), np.maximum(first, 1) - 1] == first)
    weight = np.where(hit, yardstick.inverse_propensity[top.ids], 0.0).sum(axis=1) / np.maximum(found, 1)
    surest = np.where(top.ids[:, 0] >= 0, top.scores[:, 0], -np.inf)
    best = np.lexsort((-surest, -weight, ~perfect))[:EXAMPLES]
    wrong = (each > 0) & (found == 0) & (top.ids[:, 0] >= 0)
    worst = np.lexsort((-surest, ~wrong))[:EXAMPLES]
    return (
        explained(best[perfect[best]], side, yardstick, hit),
        explained(worst[wrong[worst]], side, yardstick, hit),
    )


def explained(rows: I64, side: MeasuredModel, yardstick: Yardstick, hit: Any) -> list[ShownDocument]:
    if not len(rows):
        return []
    data, model = yardstick.data, side.model
    known = {uid: number for number, uid in enumerate(model.bundle.labels.uids)}
    of_model = np.array([known.get(uid, -1) for uid in data.labels.uids] + [-1], dtype=np.int32)
    ids = of_model[side.top.ids[rows, :EXPLAINED]]
    context = None if side.context is None else side.context.rows(rows)
    documents = data.need_test().documents.rows(rows)
    try:
        whys = model.explain_labels(documents, ids, context=context)
    except ConfigError as problem:  # a model that reads no words
        scores = side.top.scores[rows, :EXPLAINED]
        whys = [unexplained(model, *one, problem.message) for one in zip(ids, scores, strict=True)]
    truth = positives(yardstick.truth)
    found: list[ShownDocument] = []
    for row, why in zip(rows.tolist(), whys, strict=True):
        first = set(side.top.ids[row, :SHOWN].tolist())
        of_row = truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist()
        missed = [data.labels.name(label) for label in of_row if label not in first]
        found.append(ShownDocument(row, why, [bool(one) for one in hit[row, : len(why)]], missed))
    return found


def unexplained(model: Predictor, ids: I32, scores: F32, note: str) -> list[Explanation]:
    """What a document was given, without reasons."""
    labels = model.bundle.labels
    pairs = [(number, score) for number, score in zip(ids.tolist(), scores.tolist(), strict=True) if number >= 0]
    return [
        Explanation(labels.uids[number], labels.names[number], score, "exact", (), 0.0, score, "", note=note)
        for number, score in pairs
    ]


def pictures_of(model: Predictor, yardstick: Yardstick) -> list[Picture]:
    """What the model shows of itself, and what training left of it in its run."""
    found = model.bundle.ranker.pictures(LookInside(model, yardstick))
    run = model.bundle.folder.parent
    # A model of an ensemble stands for the others, which were made in the same way.
    left = [run / "analysis", run / "members" / "0" / "analysis"]
    for folder in (folder for parent in left if parent.is_dir() for folder in sorted(parent.iterdir())):
        part: Any = load_part(folder)
        if hasattr(part, "pictures"):
            found += part.pictures()
    return found
