"""What documents are trained towards beside their labels: likely labels that they lack, and anchors of graphs.

Anchors are labels for the time of a training. This is RAMEN's idea for trainings that score every label in every step:
documents that are linked to the same anchors get similar vectors, and nothing of it is left at prediction, because the
rows of anchors are left out of the model.

Differs from RAMEN: no triplets, no bandit, no completion, no pruning: an anchor is scored against all documents as a
label is, and one that explains nothing learns a row that disturbs nobody else's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.graph.anchor_graph import Side, anchor_graphs
from longtail.graph.ops import scale_rows_to_sum_one
from longtail.recipes.direct.settings import AnchorsConfig
from longtail.training.prepare import TrainingSet
from longtail.types import Csr


def smoothed_targets(targets: Csr, graph: Csr, most: float) -> Csr:
    """(N, L): 1 where a label is given; elsewhere up to `most`, by how close it is to the given ones in the label
    graph.

    A label that gets all the weight of one given label's row of the graph (l1, itself included) would have `most`.
    """
    near = (targets @ scale_rows_to_sum_one(graph)).tocsr()
    near.data = np.minimum(near.data * np.float32(most), np.float32(most))
    soft = (targets + near).tocsr()
    soft.data = np.where(soft.data >= 1, np.float32(1), soft.data).astype(np.float32)
    soft.sort_indices()
    return soft


@dataclass(frozen=True)
class AnchorColumns:
    """M anchors of all graphs of a data set, side by side.

    texts: (M, V) CSR, their titles in the vocabulary of the documents.  documents: (N, M) CSR of ones, links.
    own_documents: (N, M) CSR of ones, pairs where both are the same thing: neither linked nor unlike.
    """

    texts: Csr
    documents: Csr
    own_documents: Csr

    @property
    def count(self) -> int:
        return int(self.texts.shape[0])


def anchor_columns(data: TrainingSet, config: AnchorsConfig) -> AnchorColumns | None:
    """None where the settings do not ask for anchors, or where none has enough links and a known word."""
    from scipy.sparse import csr_array, hstack, vstack

    if not config.weight or data.documents.sparse is None:
        return None
    texts, documents = [], []
    for graph in anchor_graphs(data.graphs):
        anchors = data.graphs[graph.name].anchors
        assert anchors is not None, "anchor_graphs gives graphs with anchors only"
        words: Csr = data.featurizer.batch_of_texts(anchors.titles()).sparse
        items: dict[Side, int] = {"documents": data.n_documents, "labels": data.n_labels}
        links = [
            graph.sides.get(side, csr_array((rows, len(anchors)), dtype=np.float32)) for side, rows in items.items()
        ]
        degree = sum(np.bincount(side.indices, minlength=len(anchors)) for side in links)
        kept = np.flatnonzero((degree >= config.fewest) & (np.diff(words.indptr) > 0))
        texts.append(words[kept])
        documents.append(links[0][:, kept])
    if not sum(part.shape[0] for part in texts):
        return None
    of_anchors = vstack(texts, format="csr")
    return AnchorColumns(of_anchors, hstack(documents, format="csr"), same_texts(data.documents.sparse, of_anchors))


def same_texts(left: Csr, right: Csr) -> Csr:
    """(rows of left, rows of right) CSR of ones where both have the same features, how often each does not matter;
    rows without one have no twin.
    """
    from scipy.sparse import csr_array

    by_features: dict[bytes, list[int]] = {}
    for row in range(right.shape[0]):
        by_features.setdefault(_features(right, row), []).append(row)
    by_features.pop(b"", None)
    pairs = [(row, twin) for row in range(left.shape[0]) for twin in by_features.get(_features(left, row), ())]
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return csr_array((np.ones(len(pairs), np.float32), (rows, columns)), shape=(left.shape[0], right.shape[0]))


def _features(matrix: Csr, row: int) -> bytes:
    return bytes(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].astype(np.int64).tobytes())
