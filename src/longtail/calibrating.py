"""Learning how sure a model may be: `longtail calibrate`, and taking it back.

Scores become probabilities by maps that are fitted on documents which training did not see: those that
`train --holdout` kept apart, or others. Which map is taken (isotonic or a temperature; one for all labels or one for
each group of similar frequency) is decided by cross-fitting: documents are split into five parts, each part is judged by
a map of the other four, and the likeliest wins. The errors that are reported, and the thresholds for a precision, come
from these probabilities as well, so no document is judged by a map that has seen it.

What is right is what the truth lists. Label sets are often incomplete; then a probability says how likely a label is to
be *listed*, which is at most how likely it is to be right. ``missing="propensity"`` lets each label of the truth stand
for those of its frequency that are likely to be missing (1 / its propensity, with the constants of PSP).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from longtail import metrics
from longtail.bundle import Bundle, open_bundle
from longtail.data.dataset import Dataset, Items
from longtail.data.identity import check_reciprocal, full_texts, self_pairs, training_digest
from longtail.data.read import WITH_LABEL_IDS, read, recognise
from longtail.errors import ConfigError, DataError
from longtail.evaluation import KS, MANY_LEARNT, Yardstick, held_out_data, rank_test
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
FEWEST, FEWEST_OF_GROUP = 20, 200
# Labels that a block of an isotonic map holds at least, and that a precision is measured on at least.
BLOCK, FEWEST_SHOWN = 50, 30


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
    """The bins of `longtail.metrics.by_frequency`, joined until each has enough right labels at each group of places."""
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
    right so often, by the probabilities and by the truth both.
    """
    p, right = said.scores[judged.counted], judged.worth[judged.counted]
    order = np.argsort(-p, kind="stable")
    p, right = p[order], right[order]
    each = np.arange(1, len(p) + 1)
    expected, found = np.cumsum(p, dtype=np.float64) / each, np.cumsum(right) / each
    last_of_equals = np.append(p[1:] != p[:-1], True)
    good = np.where(last_of_equals & (each >= FEWEST_SHOWN), np.minimum(expected, found), -1.0)
    # The longest list that is good enough: what holds for a higher precision holds for a lower one.
    best = np.maximum.accumulate(good[::-1])[::-1]
    wanted = np.arange(STEPS + 1) / STEPS
    long = np.searchsorted(-best, -wanted, side="right")
    return np.where(long > 0, p[np.maximum(long, 1) - 1], np.float32(np.inf)).astype(np.float32)
