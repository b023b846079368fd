"""Softer truth: labels that are probably missing get a target between 0 and 1."""

from __future__ import annotations

import numpy as np

from longtail.graph.ops import prune_rows, scale_rows_to_sum_one, unit_rows
from longtail.kernels.arrays import csr_of_rows
from longtail.search.nearest import NearestDocuments, VoteConfig
from longtail.types import Batch, Csr

# Completion compares documents by so many of their strongest features: all of them would take several times as long,
# and the rest weighs little.
_COMPARED_FEATURES = 32
# A label with a smaller share of the vote is not well supported: most of the votes are such noise.
_LEAST_SHARE = 0.1
# Labels that a document's vote may end in, its own among them; and documents that vote at a time.
_LISTED, _BLOCK = 128, 8192


def smoothed_targets(targets: Csr, graph: Csr, most: float) -> Csr:
    """(N, L): 1 where a label is given; elsewhere up to `most`, by how close it is to the given ones in the label
    graph.

    A label that gets all the weight of one given label's row of the graph (l1, itself included) would have `most`.
    """
    return _softened(targets, (targets @ scale_rows_to_sum_one(graph)).tocsr(), most)


def completed_targets(targets: Csr, documents: Csr, most: float, *, neighbours: int, masked: Csr | None = None) -> Csr:
    """(N, L): 1 where a label is given; elsewhere `most` times the label's share of a vote of similar documents.

    documents: (N, V) CSR. Each document's `neighbours` nearest others vote for their labels with the square of their
    cosine, and it votes for its own with 1: few or far neighbours complete little. Shares below a tenth are left out.
    masked: (N, L), pairs that get no target.
    """
    compared = unit_rows(prune_rows(documents, _COMPARED_FEATURES))
    # A document is the nearest to itself, and its own labels are given anyhow.
    voters = NearestDocuments(compared, targets, VoteConfig(neighbours=neighbours + 1))
    support = _votes(voters, compared)
    if masked is not None:
        support = (support - support.multiply(masked != 0)).tocsr()
        support.eliminate_zeros()
    return _softened(targets, support, most)


def _votes(voters: NearestDocuments, documents: Csr) -> Csr:
    """(N, L) CSR: each label's share of the vote, where it is not too small."""
    from scipy.sparse import vstack

    blocks = []
    for start in range(0, documents.shape[0], _BLOCK):
        found = voters.rank(Batch(sparse=documents[start : start + _BLOCK]), _LISTED)
        sizes = (found.scores >= _LEAST_SHARE).sum(axis=1)  # scores decrease
        blocks.append(csr_of_rows(found.ids, found.scores, sizes, voters.targets.shape[1]))
    return vstack(blocks, format="csr")


def _softened(targets: Csr, support: Csr, most: float) -> Csr:
    """1 where a label is given; elsewhere `most` times its support, and no more than `most`. Changes `support`."""
    support.data = np.minimum(support.data * np.float32(most), np.float32(most))
    soft = (targets + support).tocsr()
    soft.data = np.where(soft.data >= 1, np.float32(1), soft.data).astype(np.float32)
    soft.sort_indices()
    return soft
