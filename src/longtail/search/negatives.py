"""Which wrong labels a document is trained against: drawn at random, or taken from a shortlist.

Every sampler gives ``draw(rows, rng) -> (B, S) int32`` for training documents `rows`: labels in range, different from
each other, never a positive and never a masked pair of the document; -1 where there is none. Paper: Astec Sec. 3
(Module II).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import numpy as np

from longtail.declared import Shaped
from longtail.errors import ConfigError, DataError
from longtail.kernels.arrays import canonical, csr, frozen, new_seed, pieces
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart
from longtail.search.shortlist import Labels
from longtail.types import F32, I32, I64, Candidates, Csr, TopK

# A pool this many times larger than what is wanted or ruled out is sampled by drawing and rejecting.
_SPARSE = 4
_BLOCK = 4096
# A step of a few hundred documents is drawn on one thread, beside the threads that train.
DOCUMENTS_PER_THREAD = 512


@runtime_checkable
class Negatives(Protocol):
    def draw(self, rows: I64, rng: np.random.Generator) -> I32: ...


def forbidden_pairs(y: Csr, masked: I64 | None = None) -> Csr:
    """What must not serve as a negative: (N, L) CSR of ones at the positives `y` and the `masked` (P, 2) pairs."""
    pairs = canonical(y)
    if masked is not None and len(masked):
        from scipy.sparse import csr_array

        extra = csr_array((np.ones(len(masked), np.float32), (masked[:, 0], masked[:, 1])), shape=y.shape)
        pairs = canonical((pairs + extra).tocsr())
    return csr(np.ones(pairs.nnz, np.float32), pairs.indices, pairs.indptr, pairs.shape)


class RandomNegatives:
    """`count` labels per document, drawn anew at each call: evenly, or with given weights (a label of weight 0 never
    comes).

    Paper: the baselines of Astec Sec. 5 ("uniform", and "NEG": frequency to the power 0.75), and its random extras.
    With very uneven weights fewer than `count` may come.
    """

    def __init__(self, forbidden: Csr, count: int, weights: F32 | None = None) -> None:
        check_count(count)
        self.count, self.n_labels = count, int(forbidden.shape[1])
        self._forbidden = pieces(forbidden)
        self._weights = frozen(np.zeros(0, np.float32) if weights is None else np.asarray(weights, np.float32))
        self._keep, self._other = frozen(np.zeros(0, np.float32)), frozen(np.zeros(0, np.int32))
        if weights is not None:
            self._use_weights()

    def _use_weights(self) -> None:
        from longtail.search.kernels.negatives import alias_table

        weights = self._weights
        if (
            len(weights) != self.n_labels
            or not np.isfinite(weights).all()
            or (weights < 0).any()
            or not (weights > 0).any()
        ):
            raise DataError(
                f"weights of {self.n_labels} labels must be finite, not negative and not all zero",
                "give each label its frequency, e.g. its documents",
            )
        keep, other = np.empty(self.n_labels, np.float32), np.empty(self.n_labels, np.int32)
        alias_table(weights.astype(np.float64), keep, other)
        self._keep, self._other = frozen(keep), frozen(other)

    @classmethod
    def unigram(cls, y: Csr, forbidden: Csr, count: int, power: float = 0.75) -> RandomNegatives:
        """Labels by their number of documents in `y`, to the given power."""
        return cls(forbidden, count, np.bincount(y.indices, minlength=y.shape[1]) ** power)

    def draw(self, rows: I64, rng: np.random.Generator, avoid: I32 | None = None) -> I32:
        """`avoid`: (B, m) labels per document (-1 for none) that must not come either."""
        from longtail.search.kernels.negatives import sample_all, sample_pool

        seed, out = new_seed(rng), np.empty((len(rows), self.count), np.int32)
        avoid = np.empty((len(rows), 0), np.int32) if avoid is None else avoid
        indptr, labels, _ = self._forbidden
        ruled_out = int((indptr[rows + 1] - indptr[rows]).max(initial=0)) + avoid.shape[1]
        with threads_for(len(rows), DOCUMENTS_PER_THREAD):
            if self.n_labels > _SPARSE * (self.count + ruled_out):
                sample_all(self.n_labels, self._keep, self._other, rows, seed, indptr, labels, avoid, out)
            else:
                sample_pool(
                    np.arange(self.n_labels, dtype=np.int32), self._weights, rows, seed, indptr, labels, avoid, out
                )
        return out


@dataclass(frozen=True)
class ShortlistNegatives(DataPart):
    """The labels that a shortlister confuses a document with: (N, S) int32, found once. Paper: Astec Sec. 4, Module
    II, ECLARE Sec. 3.4.

    Which shortlister was asked (centroids, votes, both) is the sampler's whole difference.
    """

    KIND = "shortlist-negatives"

    ids: Annotated[I32, Shaped("documents", "_", plain=True)]

    @classmethod
    def mine(cls, shortlister: Labels, vectors: F32, forbidden: Csr, size: int) -> ShortlistNegatives:
        """vectors: (N, D) of the training documents, in their order; each is left out of its own neighbours."""
        return cls.from_rankings(lambda rows, k: shortlister.query(vectors[rows], k, exclude=rows), forbidden, size)

    @classmethod
    def from_rankings(cls, rank: Callable[[I64, int], TopK], forbidden: Csr, size: int) -> ShortlistNegatives:
        """rank: gives the best k labels of the training documents at some rows; what is forbidden is struck out."""
        from longtail.search.kernels.negatives import strike_out

        check_count(size)
        indptr, labels, _ = pieces(forbidden)
        n_documents = int(forbidden.shape[0])
        ids = np.empty((n_documents, size), np.int32)
        for start in range(0, n_documents, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, n_documents))
            # Room for the forbidden labels that will be struck out; a document with very many may get fewer negatives.
            spare = min(int((indptr[rows + 1] - indptr[rows]).max()), size)
            strike_out(rank(rows, size + spare).ids, rows, indptr, labels, ids[start : start + len(rows)])
        return cls(ids)

    def draw(self, rows: I64, rng: np.random.Generator) -> I32:
        return np.asarray(self.ids[rows])

    def with_random(self, forbidden: Csr, count: int) -> Negatives:
        """These, and `count` random ones in every step."""
        return WithRandom(self, RandomNegatives(forbidden, count)) if count else self


class WithRandom:
    """Hard negatives, and random ones that are not among them, new at each call. Paper: Astec Sec. 4, Module II (500
    + up to 50).
    """

    def __init__(self, hard: Negatives, extras: RandomNegatives) -> None:
        self.hard, self.extras = hard, extras

    def draw(self, rows: I64, rng: np.random.Generator) -> I32:
        hard = self.hard.draw(rows, rng)
        return np.concatenate([hard, self.extras.draw(rows, rng, avoid=hard)], axis=1)


def candidates(
    rows: I64, y: Csr, negatives: Negatives, rng: np.random.Generator, *, max_positives: int = 20
) -> Candidates:
    """The labels of one training step: up to `max_positives` random positives of each document, then its negatives."""
    from longtail.search.kernels.negatives import join

    check_count(max_positives)
    drawn = negatives.draw(rows, rng)
    chosen = pieces(y[rows])
    width = min(int(np.diff(chosen.indptr).max(initial=0)), max_positives) + drawn.shape[1]
    ids, targets = np.full((len(rows), width), -1, np.int32), np.zeros((len(rows), width), np.float32)
    mask = np.zeros((len(rows), width), np.bool_)
    with threads_for(len(rows), DOCUMENTS_PER_THREAD):
        join(chosen.indptr, chosen.indices, drawn, max_positives, new_seed(rng), ids, targets, mask)
    return Candidates(ids, targets, mask)


def check_count(count: int) -> None:
    if count < 1:
        raise ConfigError(f"{count} labels per document asked for", "use at least 1")
