"""Labels near a document's own in the label graph, by personalised PageRank. Paper: ECLARE Sec. 4 (ECLARE-PPR)."""

from __future__ import annotations

import numpy as np

from longtail.graph.ops import prune_rows, scale_rows_to_sum_one
from longtail.types import I64, Csr, TopK

# Labels kept of a walk from step to step, for each that is asked for: without a cut the lists grow tenfold with every
# step.
_KEPT = 4


class PersonalisedPageRank:
    """Walks along the graph that begin at a document's labels (each alike) and go back there with chance `teleport`.

    targets: (N, L) CSR.  graph: (L, L) CSR, not negative; its rows are scaled to sum one.
    steps: walks are followed so far; 0.8^20 is 1%.
    """

    def __init__(self, targets: Csr, graph: Csr, *, teleport: float = 0.2, steps: int = 20) -> None:
        self.starts, self.graph = scale_rows_to_sum_one(targets.astype(np.float32)), scale_rows_to_sum_one(graph)
        self.teleport, self.steps = teleport, steps

    def rank(self, rows: I64, k: int) -> TopK:
        """The `k` labels in which walks of the documents at `rows` are found most often; the documents' own are among
        them.
        """
        walks = self.starts[rows]
        found = self.teleport * walks
        for _ in range(self.steps):
            walks = prune_rows((1 - self.teleport) * (walks @ self.graph), _KEPT * k)
            found = found + self.teleport * walks
        best = prune_rows(found.tocsr(), k)
        ids, scores = (
            np.full((len(rows), k), TopK.PAD, dtype=np.int32),
            np.full((len(rows), k), -np.inf, dtype=np.float32),
        )
        real = np.arange(k) < np.diff(best.indptr)[:, None]
        ids[real], scores[real] = best.indices, best.data
        # Columns ascend, so a stable sort by score leaves ties in the order of labels.
        order = np.argsort(-scores, axis=1, kind="stable")
        return TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))
