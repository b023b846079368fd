"""Promising labels for a document vector: by the labels' centroids, by the labels of similar documents, or by both.

All have ``query(vectors, k, exclude=None) -> TopK``. `exclude` (B,) int64 holds, for queries that are training
documents, their row number (-1 for others): a document must not vote for its own labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from longtail.errors import ConfigError
from longtail.kernels.arrays import Pieces, freeze, pieces
from longtail.kernels.threads import threads_for
from longtail.persistence import DataPart, State, csr_from_pieces
from longtail.search.cluster import label_centroids, spherical_kmeans
from longtail.search.index import DOCUMENTS, Heaps, Index, IndexBuilder, build_index
from longtail.search.packed import Packer
from longtail.types import F32, I32, I64, Csr, Shortlister, TopK

document_index: IndexBuilder = partial(build_index, hnsw=DOCUMENTS)


class Labels(Protocol):
    """What every shortlister here offers (a `longtail.types.Shortlister` that can leave a training document out)."""

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK: ...

    def packed(self, packer: Packer, width: int) -> Labels: ...


@dataclass(frozen=True)
class LabelIndex(DataPart, Shortlister):
    """Labels by the cosine of their centroid, or of the nearest of several. Paper: Astec Sec. 4, Module II and App.
    A.4 (ANNS^mu).

    owners: (rows of the index,) int32, ascending: the label of each centroid. Labels without documents are never found.
    """

    KIND = "label-index"

    index: Index
    owners: I32

    def __post_init__(self) -> None:
        if len(self.index) != len(self.owners):
            raise ValueError(f"{len(self.index)} centroids for {len(self.owners)} owners")
        freeze(self, "owners")

    @cached_property
    def _repeats(self) -> int:
        return len(self.owners) - len(np.unique(self.owners))

    @classmethod
    def build(
        cls,
        vectors: F32,
        y: Csr,
        *,
        make_index: IndexBuilder = build_index,
        head_centres: int = 1,
        head_documents: int = 7500,
        rng: np.random.Generator | None = None,
    ) -> LabelIndex:
        """vectors: (N, D) of the training documents; y: (N, L).

        Labels with at least `head_documents` documents get `head_centres` k-means centres (`rng`) beside their mean.
        """
        centroids = label_centroids(vectors, y)
        owners = np.flatnonzero(np.any(centroids != 0, axis=1))
        rows = [centroids[owners]]
        if head_centres > 1:
            if rng is None:
                raise ValueError("k-means needs a generator")
            documents = y.T.tocsr()
            for label in np.flatnonzero(np.diff(documents.indptr) >= max(head_documents, head_centres)):
                own = documents.indices[documents.indptr[label] : documents.indptr[label + 1]]
                rows.append(spherical_kmeans(vectors[np.sort(own)], head_centres, rng))
                owners = np.append(owners, np.full(len(rows[-1]), label))
        # Ascending owners make the index, which breaks ties by row, break them by label.
        order = np.argsort(owners, kind="stable")
        return cls(make_index(np.concatenate(rows)[order]), owners[order].astype(np.int32))

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK:
        """`exclude` changes nothing: a centroid stands for all documents of its label."""
        if not self._repeats:
            rows = self.index.query(vectors, k)
            # One more owner at the end, for padding: -1 means the last.
            return TopK(np.append(self.owners, np.int32(TopK.PAD))[rows.ids], rows.scores)
        enough = min(len(self.index), k + self._repeats)
        ask = min(enough, 2 * k)
        answer = self._by_label(vectors, k, ask)
        short = np.flatnonzero(np.any(answer.ids == TopK.PAD, axis=1))
        while len(short) and ask < enough:
            ask = min(enough, 2 * ask)
            more = self._by_label(vectors[short], k, ask)
            answer.ids[short], answer.scores[short] = more.ids, more.scores
            short = short[np.any(more.ids == TopK.PAD, axis=1)]
        return answer

    def _by_label(self, vectors: F32, k: int, ask: int) -> TopK:
        from longtail.search.kernels.shortlist import best_row_per_label

        rows, answer = self.index.query(vectors, ask), Heaps(len(vectors), k)
        with threads_for(len(vectors)):
            best_row_per_label(rows.ids, rows.scores, self.owners, answer.ids, answer.scores, answer.sizes)
        return answer.ranked()

    def packed(self, packer: Packer, width: int) -> LabelIndex:
        return LabelIndex(self.index.packed(packer), self.owners)


@dataclass(frozen=True)
class InstanceVote(Shortlister):
    """Labels of the most similar training documents: each neighbour gives its cosine to its labels; the largest sum
    counts 1.

    Paper: Astec Sec. 4, Module II (ANNS^x). Differs: a neighbour with a negative cosine has no vote (Astec's vectors
    have none), and a training document does not vote for itself (`exclude`), which the released code allows.

    index: of the N training documents.  targets: (N, L) CSR, their labels; its values are not read, nor saved.
    """

    KIND = "instance-vote"

    index: Index
    targets: Csr
    neighbours: int

    def __post_init__(self) -> None:
        if len(self.index) != self.targets.shape[0]:
            raise ValueError(f"{len(self.index)} documents in the index, {self.targets.shape[0]} with labels")
        if self.neighbours < 1:
            raise ConfigError(f"{self.neighbours} neighbours shall vote", "use at least 1")

    @cached_property
    def _labels(self) -> Pieces:
        return pieces(self.targets)

    @classmethod
    def build(
        cls, vectors: F32, y: Csr, *, neighbours: int = 100, make_index: IndexBuilder = document_index
    ) -> InstanceVote:
        """vectors: (N, D) of the training documents; y: (N, L) their labels."""
        return cls(make_index(vectors), y, neighbours)

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK:
        from longtail.search.kernels.shortlist import vote

        nearest, answer = self.index.query(vectors, self.neighbours + (exclude is not None)), Heaps(len(vectors), k)
        if exclude is None:
            exclude = np.full(len(vectors), -1, dtype=np.int64)
        indptr, labels, _ = self._labels
        with threads_for(len(vectors)):
            vote(
                nearest.ids,
                nearest.scores,
                exclude,
                self.neighbours,
                indptr,
                labels,
                answer.ids,
                answer.scores,
                answer.sizes,
            )
        return answer.ranked()

    def packed(self, packer: Packer, width: int) -> InstanceVote:
        return InstanceVote(self.index.packed(packer), self.targets, self.neighbours)

    def voting_documents(self) -> tuple[F32, Csr] | None:
        vectors = self.index.plain_vectors()
        return None if vectors is None else (vectors, self.targets)

    def state(self) -> State:
        values = {"neighbours": self.neighbours, "n_labels": int(self.targets.shape[1])}
        return State(values, {"label_ptr": self._labels.indptr, "labels": self._labels.indices}, {"index": self.index})

    @classmethod
    def from_state(cls, state: State) -> InstanceVote:
        labels, indptr = state.arrays["labels"], state.arrays["label_ptr"]
        y = csr_from_pieces(
            np.ones(len(labels), np.float32), labels, indptr, (len(indptr) - 1, int(state.values["n_labels"]))
        )
        index = state.parts["index"]
        if not isinstance(index, Index):
            raise ValueError("a shortlister needs an index")
        return cls(index, y, int(state.values["neighbours"]))


@dataclass(frozen=True)
class MergedShortlist(DataPart, Shortlister):
    """Both: s = (1 - gamma) cos + gamma vote. A label that only one of them finds takes 0 from the other. Paper:
    Astec Sec. 4, Module II.

    Differs: as gamma is small, labels found by votes alone stand at the end and would all be cut where centroids
    alone give k labels. So up to `reserved` of the k places are kept for the best of them (the released code gets the
    same effect by asking the centroids for 300 of 500 labels).
    """

    KIND = "merged-shortlist"

    labels: LabelIndex
    instances: InstanceVote
    gamma: float = 0.075
    reserved: float = 0.2

    def __post_init__(self) -> None:
        for name, value in (("gamma", self.gamma), ("reserved", self.reserved)):
            if not 0 <= value <= 1:
                raise ConfigError(
                    f"{name} is {value}, expected 0 to 1",
                    "gamma weighs the votes, reserved is the share of places for labels found by votes only",
                )

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK:
        from longtail.search.kernels.shortlist import merge

        near, voted, answer = (
            self.labels.query(vectors, k),
            self.instances.query(vectors, k, exclude),
            Heaps(len(vectors), k),
        )
        with threads_for(len(vectors)):
            merge(
                near.ids,
                near.scores,
                voted.ids,
                voted.scores,
                self.gamma,
                int(self.reserved * k),
                answer.ids,
                answer.scores,
                answer.sizes,
            )
        return answer.ranked()

    def packed(self, packer: Packer, width: int) -> MergedShortlist:
        labels, instances = self.labels.packed(packer, width), self.instances.packed(packer, width)
        return MergedShortlist(labels, instances, self.gamma, self.reserved)

    def voting_documents(self) -> tuple[F32, Csr] | None:
        return self.instances.voting_documents()
