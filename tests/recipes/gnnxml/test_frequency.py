"""Frequencies of labels and clusters side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.persistence import load_part, save_part
from longtail.recipes.gnnxml.label_clusters import FrequencyCurves, cluster_frequencies

TARGETS = csr_array(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]], dtype=np.float32))
CLUSTERS = np.array([0, 1, 1, -1], dtype=np.int32)


def test_a_cluster_has_the_documents_of_all_its_labels(tmp_path: Path) -> None:
    curves = FrequencyCurves.of(TARGETS, CLUSTERS, np.array([5, 6, 7, 8], np.int32))
    assert curves.labels.tolist() == [3, 2, 2]
    assert curves.clusters.tolist() == [3, 3], "the document with both labels of a cluster counts once"
    assert curves.sizes.tolist() == [1, 2]
    assert curves.frequent_shares(2) == pytest.approx((100 / 3, 100))
    save_part(curves, tmp_path / "curves")
    again = load_part(tmp_path / "curves")
    assert again.words.tolist() == [5, 6, 7, 8]
    assert again.frequent_shares(2) == curves.frequent_shares(2)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_by_counting(seed: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    y = (rng.random((15, 12)) < 0.2).astype(np.float32)
    clusters = rng.integers(-1, n_clusters, 12).astype(np.int32)
    documents, sizes = cluster_frequencies(csr_array(y), clusters)
    for cluster in range(int(clusters.max()) + 1):
        assert documents[cluster] == (y[:, clusters == cluster].sum(axis=1) > 0).sum()
        assert sizes[cluster] == (clusters == cluster).sum()
    assert len(documents) == int(clusters.max()) + 1
