"""Learning how sure a model may be: `longtail calibrate`, and taking it back.

Scores become probabilities by maps that are fitted on documents which training did not see: those that
`train --holdout` kept apart, or others. Which maps are taken (isotonic or a temperature; one for all, or one for each
group of places and of labels of similar frequency) is decided by cross-fitting: documents are split into five parts,
each part is judged by maps of the other four, and the likeliest win. The errors that are reported, and the thresholds
for a precision, come from these probabilities as well, so no document is judged by a map that has seen it.

What is right is what the truth lists. Label sets are often incomplete; then a probability says how likely a label is to
be *listed*, which is at most how likely it is to be right. ``missing="propensity"`` lets each label of the truth stand
for those of its frequency that are likely to be missing (1 / its propensity, with the constants of PSP).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from longtail import metrics
from longtail.bundle import open_bundle, set_calibration
from longtail.data.dataset import Dataset, Items
from longtail.data.identity import check_reciprocal, full_texts, self_pairs, training_digest
from longtail.data.read import WITH_LABEL_IDS, read, recognise
from longtail.errors import ConfigError, DataError
from longtail.evaluation import HELD_OUT, KS, MANY_LEARNT, Yardstick, held_out_data, rank_test
from longtail.models.calibration import LEAST, MOST, STEPS, Calibration, ScoreMap
from longtail.predictor import Predictor
from longtail.training.progress import Display, SilentDisplay
from longtail.types import F32, I64, BoolArray, TopK

Method: TypeAlias = Literal["auto", "isotonic", "temperature"]
Missing: TypeAlias = Literal["none", "propensity"]
F64: TypeAlias = NDArray[np.float64]

# Places of each document that maps are fitted on. Labels further down are hardly ever shown, and their scores occur
# higher up as well.
DEPTH = 20
FOLDS = 5
# Right labels that a fit needs, and that a group of labels needs for a map of its own.
FEWEST, FEWEST_OF_GROUP = 20, 100
# Labels that a block of an isotonic map holds at least, and that a precision is measured on at least.
BLOCK, FEWEST_SHOWN = 50, 30
SHOWN_PRECISIONS = (0.95, 0.9, 0.8, 0.5)


@dataclass(frozen=True)
class Judged:
    """Ranked labels of documents that training did not see, as a model ranks them.

    top: (N, DEPTH) places at most, in the label numbers of the data.  worth: (N, DEPTH) what each place is right by: 1
    or 0, or what it stands for.  counted: (N, DEPTH) whether it can be judged: neither padding nor a masked pair.
    counts: (L,) training documents of each label.
    """

    top: TopK
    worth: F64
    counted: BoolArray
    counts: I64

    def rows(self, index: BoolArray) -> Judged:
        top = TopK(self.top.ids[index], self.top.scores[index])
        return Judged(top, self.worth[index], self.counted[index], self.counts)


@dataclass(frozen=True)
class Groups:
    """Where groups of places and of labels begin (`Calibration`)."""

    places: tuple[int, ...] = (0,)
    fewest: tuple[int, ...] = (0,)


# ---- maps ----


def isotonic(scores: F64, worth: F64) -> ScoreMap:
    """The non-decreasing map that is nearest to the truth in squares, drawn through the middles of its steps: between
    them the probability rises with the score.

    Labels are taken in blocks of `BLOCK` by their score, so that no few of them make a step of their own.
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(scores, kind="stable")
    starts = np.arange(0, max(1, len(order) // BLOCK)) * BLOCK
    sizes = np.diff(np.append(starts, len(order))).astype(np.float64)
    said = np.add.reduceat(scores[order], starts) / sizes
    right = np.add.reduceat(worth[order], starts) / sizes
    # Half a label right and half a label wrong more: a block that is all right is not certain.
    found = isotonic_regression((right * sizes + 0.5) / (sizes + 1.0), weights=sizes)
    steps = found.blocks[:-1]
    middles = np.add.reduceat(said * sizes, steps) / np.add.reduceat(sizes, steps)
    return _increasing(middles, found.x[steps])


def temperature(scores: F64, worth: F64) -> ScoreMap:
    """sigmoid(a * log-odds + b) with a > 0, as likely as can be: a temperature 1 / a, and a shift.

    Scores of models that give no probabilities (beyond 0 to 1) stand in the place of log-odds themselves.
    """
    odds = _log_odds if scores.min() >= 0.0 and scores.max() <= 1.0 else _as_they_are
    inputs, a, b = odds(scores), 1.0, 0.0
    centre, spread = float(inputs.mean()), float(inputs.std()) or 1.0
    inputs = (inputs - centre) / spread
    for _ in range(50):  # Newton's method; few rounds are needed
        said = _sigmoid(a * inputs + b)
        weight, gap = said * (1.0 - said) + 1e-9, said - worth
        gradient = np.array([gap @ inputs + 1e-3 * a, gap.sum() + 1e-3 * b])
        cross = float(weight @ inputs)
        curvature = np.array([[weight @ inputs**2 + 1e-3, cross], [cross, weight.sum() + 1e-3]])
        step = np.linalg.solve(curvature, gradient)
        a, b = max(a - float(np.clip(step[0], -2, 2)), 1e-3), b - float(np.clip(step[1], -2, 2))
        if np.abs(step).max() < 1e-7:
            break
    knots = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, 257)))
    return _increasing(knots, _sigmoid(a * (odds(knots) - centre) / spread + b))


def _log_odds(scores: F64) -> F64:
    within = np.clip(scores, LEAST, MOST)
    return np.log(within) - np.log1p(-within)


def _as_they_are(scores: F64) -> F64:
    return scores


def _sigmoid(values: F64) -> F64:
    found: F64 = 1.0 / (1.0 + np.exp(-np.clip(values, -60.0, 60.0)))
    return found


def _increasing(scores: F64, probabilities: F64) -> ScoreMap:
    scores, first = np.unique(scores, return_index=True)
    return ScoreMap(scores, np.maximum.accumulate(np.clip(probabilities[first], LEAST, MOST)))


METHODS: Mapping[str, Callable[[F64, F64], ScoreMap]] = {"isotonic": isotonic, "temperature": temperature}


# ---- fitting ----


def place_groups(judged: Judged) -> tuple[int, ...]:
    """Place 1, place 2, places 3 to 5, and the others, where each has enough right labels."""
    right = np.where(judged.counted, judged.worth > 0, False).sum(axis=0)
    return _joined((0, 1, 2, 5), lambda begin, end: int(right[begin:end].sum()) >= FEWEST_OF_GROUP)


def label_groups(judged: Judged, places: tuple[int, ...]) -> tuple[int, ...]:
    """The bins of `longtail.metrics.by_frequency`, joined until each has enough right labels in each group of
    places.
    """
    right = judged.counted & (judged.worth > 0)
    counts = np.where(right, judged.counts[judged.top.ids], -1)
    parts = [counts[:, begin:end] for begin, end in pairwise([*places, counts.shape[1]])]

    def enough(begin: int, end: int) -> bool:
        return all(int(((part >= begin) & (part < end)).sum()) >= FEWEST_OF_GROUP for part in parts)

    return _joined((0, 1, 2, 5, 10, 100), enough)


def _joined(edges: Sequence[int], enough: Callable[[int, int], bool]) -> tuple[int, ...]:
    """Where groups begin, each of as few of the ranges between `edges` as are enough; what is left over at the end
    belongs to the last.
    """
    found: list[int] = []
    begin = edges[0]
    for end in [*edges[1:], np.iinfo(np.int64).max]:
        if enough(begin, end):
            found.append(begin)
            begin = end
    return tuple(found) or (0,)


def fitted(judged: Judged, method: str, groups: Groups) -> Calibration:
    """Without thresholds for a precision."""
    make, counted, worth = METHODS[method], judged.counted, judged.worth
    places, fewest = (np.array(starts, dtype=np.int64) for starts in (groups.places, groups.fewest))
    none = np.full(STEPS + 1, np.inf, dtype=np.float32)
    scores = judged.top.scores.astype(np.float64)
    pooled = make(scores[counted], worth[counted])
    if len(places) * len(fewest) == 1:
        return Calibration(places, fewest, (pooled,), None, none)
    drawn = Calibration(places, fewest, (pooled,) * (len(places) * len(fewest)), pooled, none)
    of_labels = drawn.label_groups(judged.counts)
    group = np.where(counted, drawn.groups(judged.top, of_labels), -1)
    maps = tuple(make(scores[group == number], worth[group == number]) for number in range(len(drawn.maps)))
    held = np.minimum.accumulate(replace(drawn, maps=maps).by_group(judged.top, of_labels), axis=1)
    return Calibration(places, fewest, maps, make(held[counted], worth[counted]), none)


def cross_fitted(judged: Judged, method: str, groups: Groups) -> TopK:
    """The probabilities of all documents, each by a map of documents in other parts."""
    part = np.random.default_rng(0xCA11).permutation(len(judged.top)) % FOLDS
    scores = judged.top.scores.copy()
    for number in range(FOLDS):
        own = part == number
        found = fitted(judged.rows(~own), method, groups)
        asked = TopK(judged.top.ids[own], judged.top.scores[own])
        scores[own] = found.calibrated(asked, found.label_groups(judged.counts)).scores
    return TopK(judged.top.ids, scores)


def unlikeliness(said: TopK, judged: Judged, k: int = KS[-1]) -> float:
    """The mean log loss of the labels shown."""
    counted = judged.counted[:, :k]
    p, right = said.scores[:, :k][counted].astype(np.float64), judged.worth[:, :k][counted]
    return float(-np.mean(right * np.log(p) + (1.0 - right) * np.log1p(-p)))


def precision_thresholds(said: TopK, judged: Judged) -> F32:
    """(STEPS + 1,) as `Calibration.thresholds`: the lowest probability such that labels with at least this one are
    right so often. A standard error is taken off what was found: the promise is *at least*.
    """
    p, right = said.scores[judged.counted], judged.worth[judged.counted]
    order = np.argsort(-p, kind="stable")
    p, each = p[order], np.arange(1, int(judged.counted.sum()) + 1)
    found = np.minimum(np.cumsum(right[order]) / each, 1.0)
    found -= np.sqrt(found * (1.0 - found) / each)
    last_of_equals = np.append(p[1:] != p[:-1], True)[: len(p)]
    good = np.where(last_of_equals & (each >= FEWEST_SHOWN), found, -1.0)
    # The longest list that is good enough: what holds for a higher precision holds for a lower one.
    best = np.maximum.accumulate(good[::-1])[::-1]
    long = np.searchsorted(-best, -np.arange(STEPS + 1) / STEPS, side="right")
    return np.append(np.float32(np.inf), p)[long].astype(np.float32)


# ---- documents that training did not see ----


def judged_by(model: Predictor, yardstick: Yardstick, missing: Missing, display: Display) -> Judged:
    """What a model says of the test side, and whether it is right."""
    top = rank_test(model, yardstick, display)
    top = TopK(top.ids[:, :DEPTH], top.scores[:, :DEPTH])
    hit = metrics.hits(top, yardstick.truth)
    worth = hit.astype(np.float64) if missing == "none" else np.where(hit, yardstick.inverse_propensity[top.ids], 0.0)
    numbers = {uid: number for number, uid in enumerate(model.bundle.labels.uids)}
    counts = model.bundle.labels.counts
    of_data = np.array([counts[numbers[uid]] if uid in numbers else 0 for uid in yardstick.data.labels.uids])
    counted = (top.ids != TopK.PAD) & ~metrics.hits(top, yardstick.masked_pairs())
    return Judged(top, worth, counted, of_data.astype(np.int64))


def read_on(data: Path, on: Path, **options: Any) -> Dataset:
    """The data set at `data` with the documents of the file `on` as its test side.  options: those of `read`."""
    kind = recognise(data)
    if kind in WITH_LABEL_IDS:
        return read(data, **{**options, "test_file": on})
    if kind != "lf":
        raise ConfigError(
            f"documents of a file beside data in the format '{kind}'",
            "hold documents out when training: longtail train --holdout 0.05; or convert the data to a table",
        )
    from longtail.data.graph_files import find_json
    from longtail.data.lf import read_split

    own = find_json(data, "tst")
    if own is not None and on.exists() and own.samefile(on):
        return read(data, **options)
    whole = read(data, test=False, **options)
    made = replace(whole, test=read_split(on, len(whole.labels), Counter()))
    test = made.need_test()
    masked = np.concatenate([self_pairs(test.documents, made.labels), check_reciprocal(made).test])
    return replace(made, test=replace(test, masked=np.unique(masked, axis=0)))


def unseen(model: Predictor, data: Dataset, display: Display) -> Dataset:
    """`data` without the test documents that training has seen: those with the text of a training document, or with its
    id where ids were given. Where they are many, the file is taken for the training documents, and refused.
    """
    if not model.bundle.was_trained_on(training_digest(data.digest)):
        raise DataError(
            f"'{data.name}' is not the data that the model was trained on; which documents training has seen is not "
            "known",
            "give the same data as in training, and other documents with --on FILE",
        )
    held = set(model.bundle.held_out() or ())
    trained = np.array([row for row, uid in enumerate(data.train.documents.uids) if uid not in held], dtype=np.int64)
    known, test = data.train.documents.rows(trained), data.need_test()
    by_content = set(_contents(known))
    seen = np.array([content in by_content for content in _contents(test.documents)], dtype=np.bool_)
    if data.columns is None or data.columns.id is not None:  # else ids are numbers of rows
        ids = set(known.uids)
        seen |= np.array([uid in ids for uid in test.documents.uids], dtype=np.bool_)
    if "from" in model.bundle.manifest:
        seen |= _seen_before(model, test.documents)
    if seen.sum() > MANY_LEARNT * len(test):
        first = test.documents.uids[int(np.argmax(seen))]
        raise DataError(
            f"the model was trained on {int(seen.sum()):,} of these {len(test):,} documents, e.g. {first!r}: it knows "
            "them by heart, and would be calibrated to be far too sure",
            "give documents that it was not trained on; longtail train --holdout 0.05 keeps some apart",
        )
    if seen.any():
        display.say(f"note: {int(seen.sum()):,} of {len(test):,} documents are training documents, and are left out")
    return replace(data, test=test.rows(np.flatnonzero(~seen)))


def _seen_before(model: Predictor, documents: Items) -> BoolArray:
    """(n,): which documents a model that went on from another has from there; those may be missed that have words
    which only joined since, as texts of before are gone.
    """
    from longtail.training.parent import trained_on, training_set_of

    trained = training_set_of(model.bundle)
    if trained is None:
        raise DataError(
            f"{model.bundle.folder}: this model went on from another, and which documents that one has seen is not "
            "known without the run",
            "calibrate the run, then copy the bundle",
        )
    return trained_on(trained, documents)


def _contents(documents: Items) -> list[str | bytes]:
    """What a document says, to be compared; documents that say nothing are never alike."""
    texts: list[str | bytes] = [
        text or f"\0{uid}" for text, uid in zip(full_texts(documents), documents.uids, strict=True)
    ]
    if documents.vectors is None or any(documents.fields.values()):
        return texts
    from scipy.sparse import csr_array

    rows = csr_array(documents.vectors)
    rows.sort_indices()
    return [
        rows.indices[a:b].astype(np.int64).tobytes() + rows.data[a:b].astype(np.float32).tobytes()
        for a, b in pairwise(rows.indptr.tolist())
    ]


# ---- the command ----


def calibrate(
    path: Path | str,
    data: Dataset | Path | str,
    *,
    on: Path | str | None = None,
    on_test: bool = False,
    method: Method = "auto",
    missing: Missing = "none",
    display: Display | None = None,
) -> dict[str, Any]:
    """Make the model of a run or bundle give probabilities. What its manifest then says of it (``calibration``) is
    given back.

    data: what the model was trained on. It is calibrated on the documents that training held out, or on those of the
        file `on`, which are read as test documents of `data`; on_test: on the test side that `data` has.
    method: "isotonic", "temperature", or "auto", which is likelier.
    missing: whether labels count that the truth may lack, "none" or "propensity".
    """
    for name, value, known in (("method", method, get_args(Method)), ("missing", missing, get_args(Missing))):
        if value not in known:
            raise ConfigError(f"{name} '{value}', expected {', '.join(known)}", f"'{known[0]}' is usual")
    path, display = Path(path), display or SilentDisplay()
    bundle = open_bundle(path)
    model = Predictor(replace(bundle, manifest=_without(bundle.manifest)))
    if not isinstance(data, Dataset):
        data = read(data, columns=model.columns) if on is None else read_on(Path(data), Path(on), columns=model.columns)
    elif on is not None:
        raise ConfigError("'on' is a file beside files of data, and the data is a Dataset already", "use on_test=True")
    others = on is not None or on_test
    slice_of = unseen(model, data, display) if others else held_out_data(model, data)
    yardstick = Yardstick.of(slice_of)
    judged = judged_by(model, yardstick, missing, display)
    right, wrong = (int((judged.counted & sign).sum()) for sign in (judged.worth > 0, judged.worth == 0))
    if min(right, wrong, len(judged.top)) < FEWEST:
        raise DataError(
            f"{len(judged.top):,} documents, of which the model says {right:,} right and {wrong:,} wrong labels, are "
            f"too few to learn from; {FEWEST} of each are needed",
            "hold out more documents (longtail train --holdout 0.2), or give more with --on FILE",
        )
    calibration, about = best_calibration(judged, yardstick, method)
    about = {
        **about,
        "documents": len(judged.top),
        "from": "other documents" if others else HELD_OUT,
        "missing": missing,
        "propensity": yardstick.about()["propensity"],
    }
    set_calibration(path, calibration, about)
    return about


def undo(path: Path | str) -> bool:
    """Take the calibration out of the model of a run or bundle; whether there was one."""
    there = "calibration" in open_bundle(Path(path)).manifest
    if there:
        set_calibration(Path(path), None)
    return there


def _without(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in manifest.items() if name != "calibration"}


def best_calibration(judged: Judged, yardstick: Yardstick, method: Method) -> tuple[Calibration, dict[str, Any]]:
    """The likeliest of all calibrations by cross-fitting, with its thresholds, and what is told of it."""
    places = place_groups(judged)
    choices = [Groups(), Groups(fewest=label_groups(judged, (0,))), Groups(places)]
    choices.append(Groups(places, label_groups(judged, places)))
    methods = METHODS if method == "auto" else (method,)
    found = {
        (name, groups): cross_fitted(judged, name, groups) for name in methods for groups in dict.fromkeys(choices)
    }
    (name, groups), said = min(found.items(), key=lambda one: unlikeliness(one[1], judged))
    thresholds = precision_thresholds(said, judged)
    calibration = replace(fitted(judged, name, groups), thresholds=thresholds)
    return calibration, {
        "method": name,
        "places": [first + 1 for first in groups.places],
        "label_documents": list(groups.fewest),
        "before": _errors(judged.top, judged),
        "after": _errors(said, judged),
        "log_loss": round(unlikeliness(said, judged), 4),
        "threshold": metrics.best_threshold(yardstick.cut(said), yardstick.truth),
        "precision": [_promised(said, judged, thresholds, asked) for asked in SHOWN_PRECISIONS],
        "right": {
            "listed": round(100 * float((judged.worth[:, : KS[-1]] > 0)[judged.counted[:, : KS[-1]]].mean()), 2),
            "with missing ones": _with_missing(judged, yardstick),
        },
    }


def _errors(said: TopK, judged: Judged) -> dict[str, float]:
    """ECE@k in percent; masked pairs are passed over, and those below them move up."""
    order = np.argsort(~judged.counted, axis=1, kind="stable")
    counted, p, worth = (np.take_along_axis(one, order, axis=1) for one in (judged.counted, said.scores, judged.worth))
    return {
        f"ECE@{k}": round(metrics.binned(p[:, :k][counted[:, :k]], worth[:, :k][counted[:, :k]]).error(), 3) for k in KS
    }


def _promised(said: TopK, judged: Judged, thresholds: F32, asked: float) -> dict[str, Any]:
    """What is shown of the documents that were calibrated on, where such a precision is asked for."""
    lowest = thresholds[round(asked * STEPS)]
    if not np.isfinite(lowest):
        return {"asked": asked, "threshold": None}
    shown = judged.counted & (said.scores >= lowest)
    return {
        "asked": asked,
        "threshold": round(float(lowest), 6),
        "found": round(float(judged.worth[shown].mean()), 4),
        "labels per document": round(float(shown.sum(axis=1).mean()), 4),
        "documents without a label": round(float((~shown.any(axis=1)).mean()), 4),
    }


def _with_missing(judged: Judged, yardstick: Yardstick) -> float:
    """Share of the first five places that would be right if the truth were complete, as propensities say."""
    k = KS[-1]
    counted = judged.counted[:, :k]
    worth = np.where(judged.worth[:, :k] > 0, yardstick.inverse_propensity[judged.top.ids[:, :k]], 0.0)
    return round(100 * float(min(worth[counted].mean(), 1.0)), 2)


def render(about: Mapping[str, Any]) -> str:
    """What was found, for people."""
    p, before, after = about["propensity"], about["before"], about["after"]
    by = [
        f"{len(starts)} groups of {what} (from {', '.join(map(str, starts))})"
        for what, starts in (("places", about["places"]), ("training documents per label", about["label_documents"]))
        if len(starts) > 1
    ]
    lines = [
        f"calibrated on {about['documents']:,} {about['from']}: {about['method']}, "
        + (" and ".join(by) if by else "one map for all labels"),
        f"{'percent, cross-fitted':<24}{'before':>10}{'after':>10}",
        *(f"{name:<24}{before[name]:>10.2f}{after[name]:>10.2f}" for name in before),
        "",
        f"{'precision asked for':<24}{'threshold':>10}{'found':>10}{'labels each':>14}{'documents without':>20}",
    ]
    for one in about["precision"]:
        asked = f"{one['asked']:<24g}"
        if one["threshold"] is None:
            lines.append(f"{asked}{'never reached':>20}")
            continue
        each, none = one["labels per document"], one["documents without a label"]
        lines.append(f"{asked}{one['threshold']:>10.4f}{one['found']:>10.3f}{each:>14.2f}{100 * none:>19.1f}%")
    right, weighed = about["right"], about["missing"] == "propensity"
    return "\n".join(
        [
            *lines,
            "",
            f"of the five best labels {right['listed']:.1f}% are listed in the truth; if it lacks labels as A={p['A']} "
            f"B={p['B']} ({p['family']}) says, {right['with missing ones']:.1f}% are right",
            "a probability says how likely a label is "
            + ("to be right, listed or not" if weighed else "to be listed (--missing propensity: to be right)"),
        ]
    )
