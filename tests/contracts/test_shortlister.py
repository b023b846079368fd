"""What every shortlister promises. A new one joins by one line in `BUILDERS`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.persistence import load_part, save_part
from longtail.recipes.astec.ranker import InstanceVote, MergedShortlist
from longtail.search.index import HnswIndex
from longtail.search.shortlist import ClusterBeam, LabelIndex, Labels, cluster_graph
from longtail.types import F32, Csr, Shortlister, TopK


def several_centres(vectors: F32, y: Csr) -> LabelIndex:
    return LabelIndex.build(vectors, y, head_centres=4, head_documents=5, rng=np.random.default_rng(0))


def merged(vectors: F32, y: Csr) -> MergedShortlist:
    return MergedShortlist(several_centres(vectors, y), InstanceVote.build(vectors, y, neighbours=5))


def clusters(vectors: F32, y: Csr, game: bool) -> ClusterBeam:
    """Two labels per cluster, whose head is the mean of their documents; labels without documents have no cluster."""
    y = y.tocsr()
    counts = np.bincount(y.indices, minlength=y.shape[1])
    clusters = np.where(counts > 0, np.arange(y.shape[1]) // 2, -1).astype(np.int32)
    n_clusters = int(clusters.max()) + 1
    heads = np.stack([vectors.T @ y.toarray()[:, clusters == c].sum(axis=1) for c in range(n_clusters)]).astype(
        np.float32
    )
    graph = cluster_graph(
        label_graph(y, LabelGraphConfig(head_documents=1000), np.random.default_rng(0)), clusters, n_clusters
    )
    return ClusterBeam.of(heads, clusters, graph if game else None, beam=4)


BUILDERS: dict[str, Callable[[F32, Csr], Labels]] = {
    "label-index": LabelIndex.build,
    "label-index-several-centres": several_centres,
    "label-index-hnsw": partial(LabelIndex.build, make_index=HnswIndex.build),
    "instance-vote": partial(InstanceVote.build, neighbours=5),
    "instance-vote-hnsw": partial(InstanceVote.build, neighbours=5, make_index=HnswIndex.build),
    "merged": merged,
    "cluster-beam": partial(clusters, game=False),
    "cluster-beam-game": partial(clusters, game=True),
}


@pytest.fixture(params=sorted(BUILDERS))
def build(request: pytest.FixtureRequest) -> Any:
    return BUILDERS[request.param]


def data(documents: int = 60, labels: int = 15, seed: int = 0, share: float = 0.15) -> tuple[F32, Csr]:
    """Non-negative vectors, as after a ReLU. Label 3 has no document; document 0 is zero; documents 1, 2 and 5 are
    equal.
    """
    rng = np.random.default_rng(seed)
    vectors, targets = (
        rng.random((documents, 8)).astype(np.float32),
        (rng.random((documents, labels)) < share).astype(np.float32),
    )
    vectors[0] = 0
    if documents > 5:
        vectors[[2, 5]] = vectors[1]
    if labels > 3:
        targets[:, 3] = 0
    return vectors, csr_array(targets)


def check(found: TopK, queries: int, k: int, labels: int) -> None:
    assert found.ids.shape == found.scores.shape == (queries, k)
    assert found.ids.dtype == np.int32
    assert found.scores.dtype == np.float32
    for ids, scores in zip(found.ids, found.scores, strict=True):
        real = ids >= 0
        assert not (np.diff(real.astype(int)) > 0).any()  # padding at the end
        assert len(np.unique(ids[real])) == real.sum()
        assert (ids[real] < labels).all()
        assert np.isneginf(scores[~real]).all()
        assert np.isfinite(scores[real]).all()
        assert [*zip(-scores[real], ids[real], strict=True)] == sorted(
            zip(-scores[real], ids[real], strict=True)
        )  # ties by label


@pytest.mark.parametrize("k", [0, 1, 5, 40])
def test_lists_are_well_formed(build: Any, k: int) -> None:
    vectors, y = data()
    shortlister: Labels = build(vectors, y)
    assert isinstance(build(vectors, y), Shortlister)
    check(shortlister.query(vectors, k), 60, k, 15)
    check(shortlister.query(vectors, k, exclude=np.arange(60)), 60, k, 15)
    assert not (shortlister.query(vectors, k).ids == 3).any()


def test_no_query(build: Any) -> None:
    check(build(*data()).query(np.zeros((0, 8), np.float32), 4), 0, 4, 15)


@pytest.mark.parametrize(("documents", "labels"), [(1, 1), (2, 1), (1, 5)])
def test_smallest(build: Any, documents: int, labels: int) -> None:
    vectors = np.ones((documents, 8), np.float32)
    shortlister = build(vectors, csr_array(np.ones((documents, labels), np.float32)))
    assert shortlister.query(vectors[:1], labels + 2).ids.tolist() == [[*range(labels), -1, -1]]


def test_a_document_without_words_is_no_error(build: Any) -> None:
    vectors, y = data()
    check(build(vectors, y).query(np.zeros((2, 8), np.float32), 6), 2, 6, 15)


def test_threads_and_batch_do_not_matter(build: Any) -> None:
    vectors, y = data(seed=1)
    shortlister = build(vectors, y)
    vectors = np.tile(vectors, (4, 1))  # enough for two threads
    together = shortlister.query(vectors, 9)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        again = shortlister.query(vectors, 9)
        alone = [shortlister.query(vectors[i : i + 1], 9) for i in range(8)]
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(together.ids, again.ids)
    assert np.array_equal(together.scores, again.scores)
    assert np.allclose(np.concatenate([a.scores for a in alone]), together.scores[:8], atol=1e-6)


def test_saved_and_loaded_it_answers_bit_for_bit(build: Any, tmp_path: Path) -> None:
    vectors, y = data(seed=2)
    shortlister, queries = build(vectors, y), data(seed=3)[0]
    save_part(shortlister, tmp_path / "part")
    loaded = load_part(tmp_path / "part")
    for exclude in (None, np.arange(60)):
        before, after = shortlister.query(queries, 12, exclude), loaded.query(queries, 12, exclude)
        assert np.array_equal(before.ids, after.ids)
        assert np.array_equal(before.scores, after.scores)
