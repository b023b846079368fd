"""From measurements to a verdict: an interval, a rule, and how much more data an undecided question would need.

The unit is a ratio of sums over test documents, in percent, once per seed. A difference is paired: both sides are
measured on the same documents. Its 95% interval has two parts:

- Documents: drawn anew with replacement (paired bootstrap). Seeds that share their test documents (a real data set)
  draw the same ones; seeds with a planted world of their own draw independently.
- Seeds: what the seeds differ by *beyond* that (method of moments) is added to every draw as Student's t with S - 1
  degrees of freedom, since few seeds say little about their own spread. Where seeds agree, this part is 0 and the
  plain paired bootstrap is left; where training is unstable, the interval is that of a t-test over seeds.

Plainly averaging the seeds and resampling documents would treat three lucky trainings as the truth about all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.scores import percent

Rule = Literal["above", "below", "within", "not above"]
Outcome = Literal["pass", "fail", "inconclusive"]

RESAMPLES = 1000
FEWEST_SEEDS = 3
# For a 95% interval that excludes the bound in 80% of repetitions.
_Z_INTERVAL, _Z_POWER = 1.96, 0.8416

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """One metric of every test document, as a ratio of sums: 100 * sum(numerator) / sum(denominator). Both (N,)."""

    numerator: Floats
    denominator: Floats

    @property
    def value(self) -> float:
        """Over all documents, in percent."""
        return float(percent(self.numerator.sum(), self.denominator.sum()))

    def halves(self) -> tuple[Column, Column]:
        """The documents at even and at odd places."""
        even, odd = (Column(self.numerator[start::2], self.denominator[start::2]) for start in (0, 1))
        return even, odd


@dataclass(frozen=True)
class Estimate:
    """A measured number with its 95% interval, and where its uncertainty comes from.

    document_variance: of the value, because of the choice of test documents. seed_variance: of one seed around the
        mean of all.
    documents: per seed, on average. shared: the seeds were measured on the same documents.
    """

    value: float
    low: float
    high: float
    per_seed: tuple[float, ...] = ()
    document_variance: float = 0.0
    seed_variance: float = 0.0
    documents: int = 0
    shared: bool = False

    @property
    def seeds(self) -> int:
        return len(self.per_seed)

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two independent numbers, its interval by the rule for normal errors."""
        reach = math.hypot(self.high - self.low, other.high - other.low) / 2
        value = self.value - other.value
        return Estimate(value, value - reach, value + reach)


@dataclass(frozen=True)
class Power:
    """What would decide: a 95% interval on one side of the bound in 80% of repetitions, if the truth is what was
    measured.

    seeds: at the same number of documents each. documents: per seed, at the same number of seeds. None: no number
        suffices.
    detectable: the smallest distance from the bound that this experiment would have decided.
    """

    seeds: int | None
    documents: int | None
    detectable: float


def judge(estimate: Estimate, rule: Rule, bound: float) -> Outcome:
    """Pass: the whole interval is on the right side of `bound`. Fail: the whole interval is on the wrong side.

    above: more than the bound. below: less than it. within: between -bound and bound.
    not above: it is not shown to be more than the bound; what is unclear passes, so this says little without a
    contrast that must show.
    """
    low, high = estimate.low, estimate.high
    if rule == "not above":
        inside, outside = low <= bound, low > bound
    elif rule == "within":
        inside, outside = -bound < low and high < bound, low >= bound or high <= -bound
    elif rule == "above":
        inside, outside = low > bound, high <= bound
    else:
        inside, outside = high < bound, low >= bound
    return "pass" if inside else "fail" if outside else "inconclusive"


def combine(all_of: Sequence[Outcome], any_of: Sequence[Outcome] = ()) -> Outcome:
    """All of the first must pass, and of the second (where there are any) at least one."""
    if "fail" in all_of or (any_of and all(outcome == "fail" for outcome in any_of)):
        return "fail"
    if all(outcome == "pass" for outcome in all_of) and (not any_of or "pass" in any_of):
        return "pass"
    return "inconclusive"


def estimate(
    a: Sequence[Column], b: Sequence[Column] | None, *, shared: bool, key: str, resamples: int = RESAMPLES
) -> Estimate:
    """The mean over seeds of a, or of a - b: one `Column` per seed and side.

    shared: all seeds have the same test documents. key: names the random draws, so that a repetition gives the same
        interval.
    """
    tables = [_table(column, None if b is None else b[seed]) for seed, column in enumerate(a)]
    if shared and len({len(table) for table in tables}) > 1:
        raise ValueError("seeds with different numbers of test documents cannot share them")
    observed = np.array([float(_statistic(table.sum(axis=0))) for table in tables])
    # (resamples, S): the statistic of every seed on redrawn documents
    drawn = np.stack(
        [
            _statistic(_redrawn_sums(table, _generator(key, 0 if shared else seed), resamples))
            for seed, table in enumerate(tables)
        ],
        axis=1,
    )
    seeds = len(tables)
    seed_variance = 0.0
    if seeds > 1:
        by_documents = (drawn - observed).var(axis=1, ddof=1).mean()
        seed_variance = max(0.0, float(observed.var(ddof=1) - by_documents))
    means = drawn.mean(axis=1)
    if seed_variance:
        means = means + math.sqrt(seed_variance / seeds) * _generator(key, seeds).standard_t(seeds - 1, resamples)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(
        value=float(observed.mean()),
        low=float(low),
        high=float(high),
        per_seed=tuple(observed.tolist()),
        document_variance=float(drawn.mean(axis=1).var()),
        seed_variance=seed_variance,
        documents=round(float(np.mean([len(table) for table in tables]))),
        shared=shared,
    )


def power(estimate: Estimate, rule: Rule, bound: float) -> Power:
    """How many seeds, or documents per seed, would decide an undecided estimate."""
    distance = abs(abs(estimate.value) - bound) if rule == "within" else abs(estimate.value - bound)
    needed = (distance / (_Z_INTERVAL + _Z_POWER)) ** 2  # variance of the value that would do
    by_documents, by_seeds = estimate.document_variance, estimate.seed_variance
    detectable = (_Z_INTERVAL + _Z_POWER) * math.sqrt(by_documents + by_seeds / estimate.seeds)
    # With worlds of their own, more seeds bring more documents too; with shared ones they do not.
    falls, stays = (by_seeds, by_documents) if estimate.shared else (by_seeds + by_documents * estimate.seeds, 0.0)
    seeds = _ratio(falls, needed - stays)
    documents = _ratio(by_documents * estimate.documents, needed - by_seeds / estimate.seeds)
    return Power(
        seeds=None if seeds is None else max(seeds, estimate.seeds + 1),
        documents=None if documents is None else max(documents, estimate.documents + 1),
        detectable=detectable,
    )


def best_elsewhere(candidates: Sequence[Column]) -> tuple[Column, tuple[int, int]]:
    """The best of several candidates, chosen and measured on different documents: the two halves choose for each other.

    Returns the column of chosen values in the order of documents, and which candidate was taken for the even and the
    odd ones. (Taking the maximum over the very documents it is measured on would favour whoever has more candidates.)
    """
    halves = [column.halves() for column in candidates]
    numerator, denominator = np.empty_like(candidates[0].numerator), np.empty_like(candidates[0].denominator)
    taken = []
    for half, other in ((0, 1), (1, 0)):
        chosen = int(np.argmax([pair[other].value for pair in halves]))
        numerator[half::2], denominator[half::2] = halves[chosen][half].numerator, halves[chosen][half].denominator
        taken.append(chosen)
    return Column(numerator, denominator), (taken[0], taken[1])


def slope(x: Floats, y: Floats) -> Estimate:
    """The slope of y over x by least squares, with the 95% interval of Student's t on the residuals."""
    from scipy.stats import linregress, t

    fitted = linregress(x, y)
    reach = float(t.ppf(0.975, len(x) - 2) * fitted.stderr)
    return Estimate(float(fitted.slope), float(fitted.slope) - reach, float(fitted.slope) + reach)


def _ratio(have: float, want: float) -> int | None:
    return math.ceil(have / want) if want > 0 and have / want < 1e9 else None


def _table(a: Column, b: Column | None) -> Floats:
    """(N, 4): numerator and denominator of both sides; the second side of a single number is 0 / 1."""
    if b is None:
        b = Column(np.zeros_like(a.numerator), np.ones_like(a.numerator))
    if len(a.numerator) != len(b.numerator):
        raise ValueError(
            f"a paired difference needs the same documents on both sides, got {len(a.numerator)} and {len(b.numerator)}"
        )
    if not len(a.numerator):
        raise ValueError("there are no documents to resample")
    return np.stack([a.numerator, a.denominator, b.numerator, b.denominator], axis=1).astype(np.float64)


def _statistic(sums: Floats) -> Floats:
    """Sums of a table's columns (any, 4) -> difference of the two ratios, in percent."""
    return percent(sums[..., 0], sums[..., 1]) - percent(sums[..., 2], sums[..., 3])


def _redrawn_sums(table: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    """(resamples, C): sums of the columns over rows drawn with replacement."""
    sums, n = np.empty((resamples, table.shape[1])), len(table)
    for row in sums:
        times_drawn = np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64)
        # einsum adds in a fixed order, whatever the number of threads
        np.einsum("n,nc->c", times_drawn, table, out=row)
    return sums


def _generator(key: str, number: int) -> np.random.Generator:
    return np.random.default_rng([number, *key.encode()])
