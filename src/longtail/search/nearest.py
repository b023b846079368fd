"""Nearest training documents vote for their labels: the baseline that every trained recipe must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.config import setting
from longtail.errors import ConfigError
from longtail.persistence import State
from longtail.types import F32, Batch, Csr, TopK


@dataclass(frozen=True)
class VoteConfig:
    """How neighbours vote."""

    neighbours: int = setting(20, "training documents that vote", low=1, high=10_000)
    power: float = setting(2.0, "a neighbour votes with similarity ** power", low=0.0, high=20.0)


class NearestDocuments:
    """A ranker without training: exact cosine neighbours among the training documents, then a weighted vote.

    documents: (N, V) CSR with rows of unit length and positive values, or (N, D) dense.
    targets: (N, L) CSR.
    """

    KIND = "nearest-documents"

    def __init__(self, documents: Csr | F32, targets: Csr, config: VoteConfig, postings: Csr | None = None) -> None:
        self.documents, self.config = documents, config
        self.targets = targets
        self.postings = postings if postings is not None else inverted(documents) if hasattr(documents, "indptr") else None

    def rank(self, batch: Batch, k: int) -> TopK:
        """The `k` labels with the largest share of the vote; fewer (padded) where the neighbours have fewer labels."""
        k = min(k, self.targets.shape[1])
        ids = np.full((len(batch), k), TopK.PAD, dtype=np.int32)
        scores = np.full((len(batch), k), -np.inf, dtype=np.float32)
        if self.postings is not None:
            self._rank_sparse(batch, ids, scores)
        else:
            self._rank_dense(batch, ids, scores)
        return TopK(ids, scores)

    def _rank_sparse(self, batch: Batch, ids: Any, scores: Any) -> None:
        from longtail.search.nearest_kernels import rank_sparse

        postings, queries = self.postings, batch.sparse
        if postings is None or queries is None or queries.shape[1] != postings.shape[0]:
            raise ConfigError("this model reads sparse features of its own vocabulary", "let the bundle's featurizer make the batch")
        rank_sparse(
            queries.indptr.astype(np.int64),
            queries.indices.astype(np.int32),
            queries.data.astype(np.float32),
            postings.indptr.astype(np.int64, copy=False),
            postings.indices,
            postings.data,
            self.targets.indptr.astype(np.int64, copy=False),
            self.targets.indices,
            self.targets.shape[1],
            min(self.config.neighbours, self.targets.shape[0]),
            self.config.power,
            ids,
            scores,
            worker_count(len(batch)),
        )

    def _rank_dense(self, batch: Batch, ids: Any, scores: Any, block: int = 256) -> None:
        from longtail.search.nearest_kernels import vote_all

        if batch.dense is None or batch.dense.shape[1] != self.documents.shape[1]:
            raise ConfigError(f"this model reads dense vectors of width {self.documents.shape[1]}", "give vectors made in the same way as those of training")
        n = min(self.config.neighbours, self.targets.shape[0])
        for start in range(0, len(batch), block):
            similarity = batch.dense[start : start + block] @ self.documents.T
            rows = np.argsort(-similarity, axis=1, kind="stable")[:, :n].astype(np.int32)
            found = np.take_along_axis(similarity, rows, axis=1)
            vote_all(
                rows,
                np.maximum(found, 0.0).astype(np.float32),
                self.targets.indptr.astype(np.int64, copy=False),
                self.targets.indices,
                self.targets.shape[1],
                self.config.power,
                ids[start : start + block],
                scores[start : start + block],
                worker_count(len(rows)),
            )

    def state(self) -> State:
        arrays = {"targets": self.targets, "postings": self.postings} if self.postings is not None else {"targets": self.targets, "documents": self.documents}
        return State({"neighbours": self.config.neighbours, "power": self.config.power}, arrays)

    @classmethod
    def from_state(cls, state: State) -> NearestDocuments:
        config = VoteConfig(state.values["neighbours"], state.values["power"])
        postings = state.arrays.get("postings")
        return cls(state.arrays.get("documents", postings), state.arrays["targets"], config, postings)


def inverted(documents: Csr) -> Csr:
    """(V, N) CSR: for every feature the documents that hold it."""
    from scipy.sparse import csr_array

    turned = csr_array(documents.T)
    turned.sort_indices()
    return csr_array((turned.data.astype(np.float32), turned.indices.astype(np.int32), turned.indptr.astype(np.int64)), shape=turned.shape)


def worker_count(n_items: int) -> int:
    """Threads worth starting for `n_items` independent pieces of work."""
    import numba

    return max(1, min(int(numba.get_num_threads()), n_items))
