"""Rankers inside clusters: which documents they learn from, their scores by brute force, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.linear_model import LogisticRegression

from longtail.errors import ConfigError
from longtail.persistence import State, load_part, save_part
from longtail.recipes.gnnxml.ranker import ClusterRankers, Clusters, RankerInput, cluster_documents
from longtail.search.linear import LinearConfig
from longtail.types import TopK

EXACT = LinearConfig(loss="logistic", tolerance=1e-6, rounds=10_000, prune=0.0)
LABELS, CLUSTERS, DOCUMENTS, WIDTH = 9, 3, 80, 12
# Labels out of order, and one without a cluster.
CLUSTER_OF = np.array([2, 0, 1, 0, -1, 2, 0, 1, 0], dtype=np.int32)


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    words = csr_array(random_array((DOCUMENTS, WIDTH), density=0.4, rng=rng, dtype=np.float32))
    targets = np.where(rng.random((DOCUMENTS, LABELS)) < 0.25, 1, 0).astype(np.float32)
    targets[:, 4] = 0
    found = csr_array((rng.random((DOCUMENTS, CLUSTERS)) < 0.2).astype(np.float32))
    vectors = rng.standard_normal((DOCUMENTS, 5)).astype(np.float32)
    masked = np.array(
        [[d, label] for d in range(0, DOCUMENTS, 9) for label in (0, 3) if not targets[d, label]], dtype=np.int64
    )
    return {"words": words, "vectors": vectors, "targets": csr_array(targets), "found": found, "masked": masked}


def reading(world: dict[str, Any], reads: str) -> RankerInput:
    return RankerInput(world["words"] if reads != "vectors" else None, world["vectors"] if reads != "words" else None)


def fitted(world: dict[str, Any], reads: str, config: LinearConfig = EXACT, **more: Any) -> Any:
    arguments = {"found": world["found"], "masked": world["masked"], **more}
    return ClusterRankers.fit(
        reading(world, reads),
        world["targets"],
        CLUSTER_OF,
        arguments["found"],
        arguments["masked"],
        config,
        np.random.default_rng(1),
        rarity=more.get("rarity", 0.0),
    )


def matrix(world: dict[str, Any], reads: str) -> Any:
    parts = {
        "words": [world["words"].toarray()],
        "vectors": [world["vectors"]],
        "both": [world["words"].toarray(), world["vectors"]],
    }
    return np.concatenate(parts[reads], axis=1).astype(np.float64)


def expected_probabilities(world: dict[str, Any], reads: str) -> Any:
    """(N, L): logistic regressions of scikit-learn on the documents of a label's cluster: those with a
    label of it, and those that the matcher sent there."""
    x, y, found = matrix(world, reads), world["targets"].toarray(), world["found"].toarray()
    masked = {tuple(pair) for pair in world["masked"].tolist()}
    probabilities = np.zeros((DOCUMENTS, LABELS))
    for label, cluster in enumerate(CLUSTER_OF):
        if cluster >= 0:
            of_cluster = (y[:, cluster == CLUSTER_OF].sum(axis=1) > 0) | (found[:, cluster] > 0)
            rows = [d for d in np.flatnonzero(of_cluster) if (d, label) not in masked]
            model = LogisticRegression(C=1.0, solver="liblinear", tol=1e-10, max_iter=100_000).fit(
                x[rows], y[rows, label]
            )
            probabilities[:, label] = model.predict_proba(x)[:, 1]
    return probabilities


def probabilities(rankers: ClusterRankers, x: RankerInput, clusters: Any) -> Any:
    """(B, L): of labels in the clusters (B, m) of each document; nan elsewhere. Gates are 1, so scores are
    probabilities.
    """
    top = TopK.padding(len(clusters), LABELS)
    rankers.rank(x, clusters, np.ones(clusters.shape, np.float32), top)
    table = np.full((len(clusters), LABELS), np.nan, dtype=np.float32)
    documents, places = np.nonzero(top.ids >= 0)
    table[documents, top.ids[documents, places]] = top.scores[documents, places]
    return table


@pytest.mark.parametrize("reads", ["words", "vectors", "both"])
def test_each_label_is_a_logistic_regression_in_its_cluster(world: dict[str, Any], reads: str) -> None:
    rankers = fitted(world, reads)
    expected = expected_probabilities(world, reads)
    np.testing.assert_array_equal(rankers.clusters, CLUSTER_OF)
    clusters = np.tile(np.array([[1, 0, 2]], dtype=np.int32), (DOCUMENTS, 1))
    found = probabilities(rankers, reading(world, reads), clusters)
    np.testing.assert_array_equal(np.isnan(found), np.tile(CLUSTER_OF < 0, (DOCUMENTS, 1)))
    np.testing.assert_allclose(found[:, CLUSTER_OF >= 0], expected[:, CLUSTER_OF >= 0], atol=2e-4, rtol=0)


def test_who_the_negatives_are(world: dict[str, Any]) -> None:
    groups = cluster_documents(world["targets"], CLUSTER_OF, world["found"]).toarray() > 0
    y, found = world["targets"].toarray(), world["found"].toarray()
    for cluster in range(CLUSTERS):
        np.testing.assert_array_equal(
            groups[cluster], (y[:, cluster == CLUSTER_OF].max(axis=1) > 0) | (found[:, cluster] > 0)
        )


@pytest.mark.parametrize("k", [1, 3, 20])
def test_ranking_is_gate_times_probability(world: dict[str, Any], k: int) -> None:
    rankers = fitted(world, "both")
    rng = np.random.default_rng(2)
    clusters = np.stack([rng.permutation(CLUSTERS)[:2] for _ in range(DOCUMENTS)]).astype(np.int32)
    clusters[3, 1] = clusters[4] = -1
    gates = rng.random(clusters.shape).astype(np.float32)
    top = TopK.padding(DOCUMENTS, min(k, LABELS))
    rankers.rank(reading(world, "both"), clusters, gates, top)
    table = probabilities(rankers, reading(world, "both"), clusters)
    for document in range(DOCUMENTS):
        gate_of = dict(zip(clusters[document].tolist(), gates[document], strict=True))
        labels = np.flatnonzero(~np.isnan(table[document]))
        assert set(labels.tolist()) == {label for label in range(LABELS) if CLUSTER_OF[label] in set(gate_of) - {-1}}
        expected = sorted((-gate_of[int(CLUSTER_OF[label])] * table[document, label], label) for label in labels)[
            : top.k
        ]
        padding = [-1] * (top.k - len(expected))
        assert top.ids[document].tolist() == [int(label) for _, label in expected] + padding
        np.testing.assert_allclose(top.scores[document][: len(expected)], [-score for score, _ in expected], rtol=1e-6)
    assert (top.ids[4] == -1).all(), "nothing is found in no cluster"


@pytest.mark.parametrize("reads", ["words", "vectors", "both"])
def test_saved_and_loaded(world: dict[str, Any], reads: str, tmp_path: Path) -> None:
    rankers = fitted(world, reads)
    save_part(rankers, tmp_path / "part")
    clusters = np.tile(np.arange(CLUSTERS, dtype=np.int32), (DOCUMENTS, 1))
    before, after = (
        probabilities(part, reading(world, reads), clusters) for part in (rankers, load_part(tmp_path / "part"))
    )
    np.testing.assert_array_equal(before, after)


def test_pruned_weights_are_gone(world: dict[str, Any]) -> None:
    whole, some = (fitted(world, "words", LinearConfig(loss="logistic", prune=prune)).words for prune in (0.0, 0.3))
    assert some.values.size < whole.values.size
    assert np.abs(some.values).min() > 0.3


def test_nonsense_is_refused(world: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="squared_hinge"):
        fitted(world, "words", LinearConfig())
    rankers = fitted(world, "both")
    with pytest.raises(ValueError, match="as those of training"):
        probabilities(rankers, reading(world, "words"), np.zeros((DOCUMENTS, 1), np.int32))
    state = rankers.state()
    for name, array in (
        ("labels", state.arrays["labels"] + 5),
        ("starts", state.arrays["starts"] + 1),
        ("rows", state.arrays["rows"][1:]),
    ):
        with pytest.raises(ValueError):
            ClusterRankers.from_state(State(state.values, {**state.arrays, name: array}))


def test_log_odds_of_rare_labels_may_be_raised(world: dict[str, Any]) -> None:
    plain = fitted(world, "both")
    raised = fitted(world, "both", rarity=0.5)
    counts = np.asarray(world["targets"].sum(axis=0)).ravel()[plain.labels]
    np.testing.assert_allclose(raised.bias - plain.bias, 0.5 * np.log(counts.max() / counts), atol=1e-5)


def test_sums_by_cluster(world: dict[str, Any]) -> None:
    weights = world["targets"].multiply(np.arange(1, LABELS + 1, dtype=np.float32)[None, :]).tocsr()
    found = Clusters(CLUSTER_OF).sums(weights).toarray()
    for cluster in range(CLUSTERS):
        np.testing.assert_allclose(found[:, cluster], weights.toarray()[:, cluster == CLUSTER_OF].sum(axis=1))
