"""Is a difference more than chance? Documents are drawn anew with replacement, and the metrics computed again.

"A is better than B" needs a 95% interval of the paired difference that excludes 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longtail.errors import DataError
from longtail.metrics.scores import PerDocument, percent

# Resamples per matrix product. Fewer make the product slow (its threads wait for each other); 64 take 0.5 GB for a
# million documents.
BLOCK = 64


@dataclass(frozen=True)
class Interval:
    """A metric in percent as measured (`mean`), and the interval that holds the given share of the resamples."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Interval):
    """The first model minus the second, in percent points."""

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def bootstrap_interval(
    measured: PerDocument, resamples: int = 1000, *, rng: np.random.Generator, level: float = 0.95
) -> dict[str, Interval]:
    """How far each metric of one model depends on the choice of test documents."""
    return {
        name: Interval(*ends)
        for name, ends in zip(
            measured.names, _intervals(measured, measured.numerators, resamples, rng, level), strict=True
        )
    }


def paired_bootstrap(
    a: PerDocument, b: PerDocument, resamples: int = 1000, *, rng: np.random.Generator, level: float = 0.95
) -> dict[str, Difference]:
    """a - b for each metric, both models measured on the same resampled documents.

    The denominators (best possible gains, numbers of documents) belong to the truth and not to a model, so the
    difference of the two ratios of resampled sums is the ratio of the summed differences. Equal predictions give
    exactly 0.
    """
    if (
        a.names != b.names
        or not np.array_equal(a.divisor, b.divisor)
        or not np.array_equal(a.denominators, b.denominators)
    ):
        raise DataError(
            "the two models were not measured on the same documents, labels and metrics",
            "evaluate both on the same data, with the same masked pairs and settings",
        )
    return {
        name: Difference(*ends)
        for name, ends in zip(a.names, _intervals(a, a.numerators - b.numerators, resamples, rng, level), strict=True)
    }


def _intervals(
    measured: PerDocument, numerators: NDArray[np.float64], resamples: int, rng: np.random.Generator, level: float
) -> list[tuple[float, float, float]]:
    """(measured, low, high) per metric, for the metrics of `measured` with these numerators in place of its own."""
    if len(measured) == 0:
        raise DataError("there are no documents to resample", "evaluate on a data set that has test documents")
    width = len(measured.names)
    sums = _resampled_sums(np.hstack([numerators, measured.denominators]), resamples, rng)
    drawn = percent(sums[:, :width], sums[:, width:][:, measured.divisor])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    mean = percent(numerators.sum(axis=0), measured.denominators.sum(axis=0)[measured.divisor])
    return list(zip(mean.tolist(), low.tolist(), high.tolist(), strict=True))


def _resampled_sums(columns: NDArray[np.float64], resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(resamples, C): the sum of each column over N rows drawn with replacement."""
    n = len(columns)
    columns = _exactly_summable(columns)
    sums = np.empty((resamples, columns.shape[1]))
    for start in range(0, resamples, BLOCK):
        times_drawn = np.empty((min(BLOCK, resamples - start), n))
        for row in times_drawn:
            row[:] = np.bincount(rng.integers(0, n, size=n), minlength=n)
        sums[start : start + BLOCK] = times_drawn @ columns
    return sums


def _exactly_summable(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to a binary grid so coarse that any sum of N entries is exact in float64.

    Then the order of additions, and with it the number of threads of the matrix product, cannot change a result. The
    grid is finer than 1e-9 of the largest entry for up to millions of documents.
    """
    _, exponent = np.frexp(len(columns) * np.abs(columns).max(axis=0))
    bits = 52 - exponent
    return np.ldexp(np.rint(np.ldexp(columns, bits)), -bits)
