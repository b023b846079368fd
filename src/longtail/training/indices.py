"""Indices where training runs.

The exact one on a GPU is one blocked matrix product and a top-k; saved, it is a plain `ExactIndex`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch

from longtail.graph.ops import unit_rows
from longtail.persistence import State
from longtail.search.index import ExactIndex, HnswSettings, IndexBuilder, IndexKind, Similarity, build_index
from longtail.search.shortlist import ClusterBeam, GameSettings, cluster_graph
from longtail.types import F32, I32, Csr, TopK

# Scores per block, in float32: 1 GiB.
_BLOCK_SCORES = 1 << 28


@dataclass(frozen=True)
class GpuExactIndex(ExactIndex):
    """Same answers as `ExactIndex` up to the order of nearly equal scores (float32 products; TF32 is not used)."""

    device: str = "cuda"

    @cached_property
    def _on_device(self) -> torch.Tensor:
        return torch.from_numpy(np.array(self.vectors)).to(self.device)

    def state(self) -> State:
        return ExactIndex(self.vectors, self.similarity).state()

    @classmethod
    def build(cls, vectors: F32, similarity: Similarity = "cosine", device: str = "cuda") -> GpuExactIndex:
        exact = ExactIndex.build(vectors, similarity)
        return cls(exact.vectors, similarity, device)

    def query(self, vectors: F32, k: int) -> TopK:
        queries = unit_rows(vectors) if self.similarity == "cosine" else vectors
        found = min(k, len(self))
        ids = np.full((len(queries), k), TopK.PAD, dtype=np.int32)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        step = max(1, _BLOCK_SCORES // max(len(self), 1))
        for start in range(0, len(queries) if found else 0, step):
            block = torch.from_numpy(np.ascontiguousarray(queries[start : start + step], dtype=np.float32)).to(
                self.device
            )
            best, at = torch.topk(block @ self._on_device.T, found, dim=1)
            # topk leaves ties in any order; ours is by number.
            at, order = at.sort(dim=1)
            best, order = best.gather(1, order).sort(dim=1, descending=True, stable=True)
            ids[start : start + step, :found] = at.gather(1, order).int().cpu().numpy()
            scores[start : start + step, :found] = best.cpu().numpy()
        return TopK(ids, scores)


def exact_index_on(device: str, similarity: Similarity = "cosine") -> Callable[[F32], ExactIndex]:
    """What makes an exact index where training runs: on a GPU the product is faster at any size that fits."""
    return partial((GpuExactIndex if device == "cuda" else ExactIndex).build, similarity=similarity)


def index_on(device: str, kind: IndexKind, hnsw: HnswSettings) -> IndexBuilder:
    """What makes an index by the cosine: on a GPU exact unless HNSW is asked for; on a CPU `auto` goes by size."""
    if device == "cuda" and kind != "hnsw":
        return exact_index_on(device)
    return partial(build_index, kind=kind, hnsw=hnsw)


def cluster_beam(
    heads: F32, clusters: I32, graph: Csr | None, game: GameSettings, *, beam: int, device: str
) -> ClusterBeam:
    """The best clusters by their classifiers `heads`, searched on a GPU while training where there is one.

    graph: (L, L), of labels, along which GAME spreads scores; None: no GAME.
    """
    return ClusterBeam.of(
        heads,
        clusters,
        None if graph is None else cluster_graph(graph, clusters, len(heads), game.clusters),
        beam=beam,
        game_mix=game.mix,
        game_transpose=game.transpose,
        make_index=exact_index_on(device, "dot"),
    )
