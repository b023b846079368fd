"""Nearest training documents vote for their labels: the baseline that every trained recipe must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from longtail.config import setting
from longtail.declared import Shaped
from longtail.errors import ConfigError
from longtail.explanation import Cause, Reasons
from longtail.kernels.arrays import csr, frozen, pieces, run_starts, taken_runs
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart
from longtail.types import F32, I32, I64, Batch, BoolArray, Context, Csr, Ranker, TopK

# Neighbours that are named for each label when it is explained.
_NAMED = 5


@dataclass(frozen=True)
class VoteConfig:
    """How neighbours vote."""

    neighbours: int = setting(50, "training documents that vote", low=1, high=10_000)
    power: float = setting(2.0, "a neighbour votes with similarity ** power", low=0.0, high=20.0)


@dataclass(frozen=True)
class Inverted:
    """For every feature the documents that hold it.

    postings: (V, N) CSR. heaviest: (V,) the largest value of each feature. non_negative: no value is below 0.
    """

    postings: Annotated[Csr, Shaped("features", "documents")]
    heaviest: Annotated[F32, Shaped("features")]
    non_negative: bool

    def fits(self, documents: Csr) -> bool:
        """Whether it can be of these documents; kernels trust its sizes."""
        count, width = documents.shape
        return self.postings.shape == (width, count) and self.heaviest.shape == (width,)

    @classmethod
    def of(cls, documents: Csr) -> Inverted:
        from scipy.sparse import csr_array

        postings = csr_array(documents.T)
        postings.sort_indices()
        heaviest = np.zeros(documents.shape[1], dtype=np.float32)
        np.maximum.at(heaviest, documents.indices, documents.data)
        return cls(postings, heaviest, documents.nnz == 0 or bool(documents.data.min() >= 0))

    def prunes(self, queries: Csr) -> bool:
        """Whether lists of frequent words may be left unread: no value is below 0."""
        return self.non_negative and (queries.nnz == 0 or bool(queries.data.min() >= 0))


@dataclass(frozen=True)
class NearestDocuments(DataPart, Ranker):
    """A ranker without training: exact cosine neighbours among the training documents, then a weighted vote.

    documents: (N, V) CSR with rows of unit length and positive values, or (N, D) dense.
    targets: (N, L) CSR.
    inverse: of sparse documents; made where it is not given.
    """

    KIND = "nearest-documents"

    documents: Annotated[Csr, Shaped("documents", "_")] | Annotated[F32, Shaped("documents", "_")]
    targets: Annotated[Csr, Shaped("documents", "labels")]
    config: VoteConfig
    inverse: Inverted | None = None

    def __post_init__(self) -> None:
        if self.inverse is None and hasattr(self.documents, "indptr"):
            object.__setattr__(self, "inverse", Inverted.of(self.documents))
        if self.inverse is not None and not self.inverse.fits(self.documents):
            raise ValueError("lists of other documents")

    @classmethod
    def of(cls, documents: Batch, targets: Csr, config: VoteConfig) -> NearestDocuments:
        """By the sparse view of the documents, where they have one."""
        return cls(documents.dense if documents.sparse is None else documents.sparse, targets, config)

    @property
    def n_labels(self) -> int:
        return int(self.targets.shape[1])

    def rank(self, batch: Batch, k: int) -> TopK:
        """The `k` labels with the largest share of the vote; fewer (padded) where the neighbours have fewer labels."""
        k = min(k, self.targets.shape[1])
        top = TopK.padding(len(batch), k)
        if self.inverse is not None:
            self._rank_sparse(batch, self.inverse, top.ids, top.scores)
        else:
            self._rank_dense(batch, top.ids, top.scores)
        return top

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """A neighbour's vote is split among the words that make it similar; how similar it is in all, and which
        documents are the nearest, is taken as it is.
        """
        if self.inverse is None or batch.sparse is None:
            return None
        near = self._neighbours(batch.sparse, self.inverse)
        scores, links = np.zeros(ids.shape, dtype=np.float32), {}
        voters: list[tuple[I64, F32]] = []  # of every document and label, and what each is worth per similarity
        for document, labels in enumerate(ids):
            rows = near.ids[document][near.ids[document] >= 0].astype(np.int64)
            similarity = near.scores[document, : len(rows)]
            votes = similarity ** np.float32(self.config.power)
            votes /= votes.sum() or np.float32(1)
            worth = votes / similarity  # a word has as much of a vote as of the similarity
            carried = self._carried(rows, labels)
            for place, has in enumerate(carried):
                voters.append((rows[has], worth[has]))
                scores[document, place] = votes[has].sum()
                links[document, place] = [
                    Cause("document", row, f"training document {row}", vote)
                    for row, vote in zip(rows[has][:_NAMED].tolist(), votes[has][:_NAMED].tolist(), strict=True)
                ]
        return Reasons(
            scores=scores,
            totals=scores,
            shares=self._shares(batch.sparse, voters, ids.shape[1]),
            bias=np.zeros(ids.shape, dtype=np.float32),
            formula="score = total; the documents named have this part of all votes",
            found=scores > 0,
            links=links,
        )

    def _neighbours(self, queries: Csr, inverse: Inverted) -> TopK:
        """The documents that vote for each, best first."""
        from numba import get_num_threads

        from longtail.search.kernels.nearest import neighbours_of

        size = (queries.shape[0], min(self.config.neighbours, self.targets.shape[0]))
        found = TopK(np.full(size, TopK.PAD, dtype=np.int32), np.zeros(size, dtype=np.float32))
        with threads_for(len(found), each=4):
            neighbours_of(
                lists(queries),
                lists(inverse.postings),
                lists(self.documents),
                frozen(inverse.heaviest),
                inverse.prunes(queries),
                found.ids,
                found.scores,
                get_num_threads(),
            )
        return found

    def _carried(self, rows: I64, labels: I32) -> BoolArray:
        """(C, n): which of n documents carry each label; none carries padding."""
        starts, numbers, _ = lists(self.targets)
        pointers, places = taken_runs(starts, rows)
        owners, theirs = np.repeat(np.arange(len(rows)), np.diff(pointers)), numbers[places]
        carried = np.zeros((len(labels), len(rows)), dtype=np.bool_)
        for place, label in enumerate(labels.tolist()):
            carried[place, owners[theirs == label]] = label >= 0
        return carried

    def _shares(self, queries: Csr, voters: Sequence[tuple[I64, F32]], each: int) -> F32:
        """(E, C): what each entry of documents adds to the votes for `each` labels of a document."""
        starts, columns, values = pieces(queries)
        weights = csr(
            np.concatenate([np.zeros(0, np.float32), *(worth for _, worth in voters)]),
            np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in voters)]),
            run_starts([len(rows) for rows, _ in voters]),
            (len(voters), self.documents.shape[0]),
        )
        summed = pieces((weights @ self.documents).tocsr())  # (documents x labels, V)
        shares = np.zeros((len(columns), each), dtype=np.float32)
        for number in range(len(voters)):
            document, place = divmod(number, each)
            own = slice(int(starts[document]), int(starts[document + 1]))
            theirs = slice(int(summed.indptr[number]), int(summed.indptr[number + 1]))
            words = summed.indices[theirs]
            at = np.searchsorted(words, columns[own])
            at[at == len(words)] = 0
            if len(words):
                shares[own, place] = np.where(words[at] == columns[own], summed.data[theirs][at], 0) * values[own]
        return shares

    def _rank_sparse(self, batch: Batch, inverse: Inverted, ids: Any, scores: Any) -> None:
        from numba import get_num_threads

        from longtail.search.kernels.nearest import rank_sparse

        queries = batch.sparse
        if queries is None or queries.shape[1] != self.documents.shape[1]:
            raise ConfigError(
                "this model reads sparse features of its own vocabulary", "let the bundle's featurizer make the batch"
            )
        with threads_for(len(batch), each=4):
            rank_sparse(
                lists(queries),
                lists(inverse.postings),
                lists(self.documents),
                frozen(inverse.heaviest),
                inverse.prunes(queries),
                lists(self.targets)[:2],
                self.targets.shape[1],
                min(self.config.neighbours, self.targets.shape[0]),
                self.config.power,
                ids,
                scores,
                get_num_threads(),
            )

    def _rank_dense(self, batch: Batch, ids: Any, scores: Any, block: int = 256) -> None:
        from numba import get_num_threads

        from longtail.search.kernels.nearest import vote_all

        if batch.dense is None or batch.dense.shape[1] != self.documents.shape[1]:
            raise ConfigError(
                f"this model reads dense vectors of width {self.documents.shape[1]}",
                "give vectors made in the same way as those of training",
            )
        n = min(self.config.neighbours, self.targets.shape[0])
        for start in range(0, len(batch), block):
            similarity = batch.dense[start : start + block] @ self.documents.T
            rows = np.argsort(-similarity, axis=1, kind="stable")[:, :n].astype(np.int32)
            found = np.take_along_axis(similarity, rows, axis=1)
            votes = rows, np.maximum(found, 0.0).astype(np.float32), lists(self.targets)[:2], self.targets.shape[1]
            best = ids[start : start + block], scores[start : start + block]
            with threads_for(len(rows), each=1):
                vote_all(*votes, self.config.power, *best, get_num_threads())


def lists(matrix: Csr) -> tuple[I64, I32, F32]:
    """The pieces of a CSR array in the types that kernels are compiled for, copied only where they differ; read-only,
    as those of a model that was just made and those of one that was opened shall share one machine code.
    """
    return (
        frozen(matrix.indptr.astype(np.int64, copy=False)),
        frozen(matrix.indices.astype(np.int32, copy=False)),
        frozen(matrix.data.astype(np.float32, copy=False)),
    )
