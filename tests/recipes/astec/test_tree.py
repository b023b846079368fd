"""The cluster tree against searches in plain Python, a second solver, planted answers, and at its borders."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array
from sklearn.svm import LinearSVC

from longtail.errors import BundleError, ConfigError
from longtail.persistence import load_part, map_arrays, save_part, write_arrays
from longtail.recipes.astec.tree import ClusterTree, DenseWeights, TreeConfig, leaf_count
from longtail.search.linear import LinearConfig, LinearRows, SparseWeights
from longtail.types import Batch, Csr, Ranker, TopK

WIDTH = 12


def planted(seed: int = 0, n: int = 200, n_labels: int = 24, noise: int = 20) -> tuple[Csr, Csr]:
    """Documents of one or two labels: each label's own word, and three noise words. Every label has documents."""
    rng = np.random.default_rng(seed)
    x, y = np.zeros((n, n_labels + noise), np.float32), np.zeros((n, n_labels), np.float32)
    for row in range(n):
        chosen = [row % n_labels, int(rng.integers(n_labels))]
        x[row, chosen] = y[row, chosen] = 1
        x[row, n_labels + rng.integers(noise, size=3)] = 0.5
    return csr_array(x / np.linalg.norm(x, axis=1, keepdims=True)), csr_array(y)


def random_tree(
    rng: np.random.Generator, n_leaves: int, loss: Any, dense: bool, beam: int
) -> tuple[ClusterTree, LinearRows]:
    """A tree whose classifiers are random (so that every search order is met), and these classifiers as plain rows."""
    sizes = rng.integers(0, 4, n_leaves)
    n_present = int(sizes.sum())
    starts = np.append(2 * np.arange(n_leaves), 2 * (n_leaves - 1) + np.cumsum(sizes))
    labels = rng.permutation(n_present + 3)[:n_present].astype(np.int32)
    weights = np.round(
        rng.standard_normal((2 * (n_leaves - 1) + n_present, WIDTH)) * (rng.random((1, WIDTH)) < 0.6), 1
    ).astype(np.float32)
    weights *= rng.random(weights.shape) < 0.5
    bias = np.round(rng.standard_normal(len(weights)), 1).astype(np.float32)
    rows = LinearRows(weights if dense else csr_array(weights), bias, np.zeros(len(bias), np.int32))
    config = TreeConfig(beam=beam, linear=LinearConfig(loss=loss))
    packed = DenseWeights(WIDTH, starts, bias, weights) if dense else SparseWeights.of(rows, starts)
    return ClusterTree(config, n_present + 3, labels, packed), LinearRows(weights, bias, rows.rounds)


def naive_log(score: float, loss: str) -> float:
    return -(max(0.0, 1.0 - score) ** 2) if loss == "squared_hinge" else -math.log1p(math.exp(-score))


def naive_leaves(tree: ClusterTree, rows: LinearRows, document: Any, beam: int) -> list[tuple[int, float]]:
    """(leaf, log probability), best first, by a beam search over lists."""
    leaf_sizes = np.bincount(tree.clusters[tree.clusters >= 0], minlength=tree.n_leaves)
    depth, nodes = int(math.log2(tree.n_leaves)), [(0, 0.0)]
    for level in range(1, depth + 1):
        below = []
        for node, log in nodes:
            for child in (2 * node, 2 * node + 1):
                span = 2 ** (depth - level)
                if leaf_sizes[child * span : (child + 1) * span].sum():
                    classifier = 2**level - 2 + child
                    score = float(rows.weights[classifier].astype(float) @ document + rows.bias[classifier])
                    below.append((child, log + naive_log(score, tree.config.linear.loss)))
        nodes = sorted(below, key=lambda found: (-found[1], found[0]))[:beam]
    return nodes


def naive_labels(tree: ClusterTree, rows: LinearRows, document: Any, leaf: int) -> dict[int, float]:
    """Label -> log probability given the leaf."""
    first = 2 * (tree.n_leaves - 1)
    return {
        int(label): naive_log(
            float(rows.weights[first + place].astype(float) @ document + rows.bias[first + place]),
            tree.config.linear.loss,
        )
        for place, label in enumerate(tree.labels)
        if tree.clusters[label] == leaf
    }


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_leaves=st.sampled_from([1, 2, 4, 16]),
    loss=st.sampled_from(["squared_hinge", "logistic"]),
    dense=st.booleans(),
    beam=st.sampled_from([1, 2, 3, 100]),
)
def test_ranks_like_a_search_over_lists(seed: int, n_leaves: int, loss: str, dense: bool, beam: int) -> None:
    """With a beam of 100 this is scoring every label of every leaf."""
    rng = np.random.default_rng(seed)
    tree, rows = random_tree(rng, n_leaves, loss, dense, beam)
    documents = csr_array(random_array((5, WIDTH), density=0.4, rng=rng, dtype=np.float32))
    top = tree.rank(Batch(dense=documents.toarray()) if dense else Batch(sparse=documents), 6)
    assert top.ids.shape == (5, min(6, tree.n_labels))
    for row, document in enumerate(documents.toarray().astype(float)):
        scores = {
            label: math.exp(log + given)
            for leaf, log in naive_leaves(tree, rows, document, beam)
            for label, given in naive_labels(tree, rows, document, leaf).items()
        }
        expected = sorted(scores.values(), reverse=True)[:6]
        found = top.ids[row] >= 0
        assert found.sum() == min(len(expected), top.k)
        np.testing.assert_allclose(top.scores[row][found], expected, rtol=1e-4)
        np.testing.assert_allclose(
            top.scores[row][found], [scores[label] for label in top.ids[row][found].tolist()], rtol=1e-4
        )
        pairs = list(zip(-top.scores[row][found], top.ids[row][found], strict=True))
        assert pairs == sorted(pairs), "ties go by label number"
        assert np.all(np.isneginf(top.scores[row][~found]))


@pytest.mark.parametrize("dense", [False, True])
def test_leaf_and_label_scores_are_the_factors_of_the_ranking(dense: bool) -> None:
    rng = np.random.default_rng(3)
    tree, rows = random_tree(rng, 8, "logistic", dense, 3)
    documents = csr_array(random_array((4, WIDTH), density=0.5, rng=rng, dtype=np.float32))
    batch = Batch(dense=documents.toarray()) if dense else Batch(sparse=documents)
    leaves = tree.leaf_scores(batch)
    ids, probabilities = tree.label_scores(batch, leaves.ids)
    assert ids.shape == probabilities.shape == (4, 3 * tree.largest_leaf)
    for row, document in enumerate(documents.toarray().astype(float)):
        expected = naive_leaves(tree, rows, document, 3)
        assert leaves.ids[row].tolist() == [leaf for leaf, _ in expected]
        np.testing.assert_allclose(leaves.scores[row], [math.exp(log) for _, log in expected], rtol=1e-4)
        for place, (leaf, _) in enumerate(expected):
            block = slice(place * tree.largest_leaf, (place + 1) * tree.largest_leaf)
            inside, given_leaf = ids[row, block], probabilities[row, block]
            naive = naive_labels(tree, rows, document, leaf)
            assert set(inside[inside >= 0].tolist()) == set(naive)
            np.testing.assert_allclose(
                given_leaf[inside >= 0], [math.exp(naive[label]) for label in inside[inside >= 0].tolist()], rtol=1e-4
            )
            assert not given_leaf[inside < 0].any()
    assert tree.leaf_scores(batch, beam=100).k == 8


def test_ranking_in_given_leaves_uses_their_scores() -> None:
    rng = np.random.default_rng(4)
    tree, rows = random_tree(rng, 4, "squared_hinge", True, 2)
    document = rng.standard_normal((1, WIDTH)).astype(np.float32)
    filled = np.flatnonzero(np.bincount(tree.clusters[tree.clusters >= 0], minlength=4))
    leaves = TopK(np.array([[filled[0], TopK.PAD]], np.int32), np.array([[0.25, -np.inf]], np.float32))
    top = tree.rank_in(Batch(dense=document), leaves, 100)
    expected = naive_labels(tree, rows, document[0].astype(float), int(filled[0]))
    found = top.ids[0] >= 0
    assert set(top.ids[0][found].tolist()) == set(expected)
    np.testing.assert_allclose(
        top.scores[0][found], [0.25 * math.exp(expected[label]) for label in top.ids[0][found].tolist()], rtol=1e-4
    )
    with pytest.raises(ValueError, match="leaves"):
        tree.label_scores(Batch(dense=document), np.array([[4]], np.int32))


def test_classifiers_are_trained_on_the_right_documents() -> None:
    """Each node against its sibling's documents, each label against the documents of its leaf; scikit-learn is the
    witness.
    """
    x, y = planted(1, n=120, n_labels=8)
    clusters = np.arange(8, dtype=np.int32) // 2
    config = TreeConfig(linear=LinearConfig(tolerance=1e-6, rounds=100_000))
    tree = ClusterTree.fit(x.toarray(), y, config, np.random.default_rng(0), clusters=clusters)
    assert isinstance(tree.weights, DenseWeights)
    documents, truth = x.toarray(), y.toarray() > 0
    has = [
        truth[:, np.isin(clusters, leaves)].any(axis=1) for leaves in ([0, 1, 2, 3], [0, 1], [2, 3], [0], [1], [2], [3])
    ]
    problems = [(has[(node - 1) // 2], has[node]) for node in range(1, 7)]
    problems += [(has[3 + clusters[label]], truth[:, label]) for label in tree.labels]
    for number, (group, positive) in enumerate(problems):
        witness = LinearSVC(tol=1e-8, max_iter=1_000_000).fit(documents[group], positive[group])
        np.testing.assert_allclose(tree.weights.rows[number], witness.coef_[0], atol=2e-3)
        assert tree.weights.bias[number] == pytest.approx(witness.intercept_[0], abs=2e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("dense", [False, True])
def test_finds_the_planted_labels(dense: bool, loss: Any) -> None:
    x, y = planted(2)
    config = TreeConfig(leaf_size=4, linear=LinearConfig(loss=loss, cost=10.0))
    tree = ClusterTree.fit(x.toarray() if dense else x, y, config, np.random.default_rng(0))
    assert isinstance(tree, Ranker)
    new, truth = planted(3, n=60)
    top = tree.rank(Batch(dense=new.toarray()) if dense else Batch(sparse=new), 2)
    assert np.mean(truth.toarray()[np.arange(60), top.ids[:, 0]]) > 0.97


def test_leaves_are_balanced_and_small_enough() -> None:
    x, y = planted(4, n_labels=23)
    tree = ClusterTree.fit(x, y, TreeConfig(leaf_size=5), np.random.default_rng(0))
    sizes = np.bincount(tree.clusters, minlength=tree.n_leaves)
    assert tree.n_leaves == 8
    assert set(sizes.tolist()) <= {2, 3}
    assert tree.largest_leaf == 3
    assert [leaf_count(n, 100) for n in (0, 1, 100, 101, 400, 401)] == [1, 1, 1, 2, 4, 8]


def topics(rng: np.random.Generator, n: int, per_topic: int = 8, n_topics: int = 8) -> tuple[Csr, Csr]:
    """A label is a topic and a member in it; topics have words of their own, and member words are the same in all
    topics.

    So a topic's labels can be told from the rest by a line, and a random set of labels cannot. Numbers say nothing
    about topics.
    """
    shuffled = np.random.default_rng(99).permutation(n_topics * per_topic)
    x, y = np.zeros((n, n_topics * 6 + per_topic), np.float32), np.zeros((n, n_topics * per_topic), np.float32)
    for row in range(n):
        topic, member = int(rng.integers(n_topics)), int(rng.integers(per_topic))
        y[row, shuffled[topic * per_topic + member]] = 1
        x[row, topic * 6 + rng.integers(6, size=2)] = 1
        x[row, n_topics * 6 + member] = 1
    return csr_array(x / np.linalg.norm(x, axis=1, keepdims=True)), csr_array(y)


def test_clusters_of_similar_labels_beat_random_ones() -> None:
    rng = np.random.default_rng(5)
    x, y = topics(rng, 800)
    new, truth = topics(rng, 400)
    config = TreeConfig(leaf_size=8, beam=1)
    shuffled = rng.permutation(np.arange(64) // 8).astype(np.int32)
    hits = {}
    for name, clusters in (("similar", None), ("random", shuffled)):
        tree = ClusterTree.fit(x, y, config, np.random.default_rng(0), clusters=clusters)
        assert tree.n_leaves == 8
        hits[name] = np.mean(truth.toarray()[np.arange(400), tree.rank(Batch(sparse=new), 1).ids[:, 0]])
    assert hits["similar"] > hits["random"] + 0.3


@pytest.mark.parametrize("dense", [False, True])
def test_result_does_not_depend_on_threads_batch_or_block(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = planted(6)
    documents = x.toarray() if dense else x

    def batch(rows: Any) -> Batch:
        return Batch(dense=documents[rows]) if dense else Batch(sparse=documents[rows])

    whole_tree = ClusterTree.fit(documents, y, TreeConfig(leaf_size=4, beam=3), np.random.default_rng(0))
    whole = whole_tree.rank(batch(slice(None)), 5)
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        alone = ClusterTree.fit(documents, y, TreeConfig(leaf_size=4, beam=3), np.random.default_rng(0)).rank(
            batch(slice(None)), 5
        )
    finally:
        numba.set_num_threads(threads)
    monkeypatch.setattr("longtail.recipes.astec.tree._BLOCK", 7)
    for other in (alone, whole_tree.rank(batch(slice(None)), 5)):
        np.testing.assert_array_equal(other.ids, whole.ids)
        np.testing.assert_array_equal(other.scores, whole.scores)
    for row in range(20):
        one = whole_tree.rank(batch([row]), 5)
        np.testing.assert_array_equal(one.ids[0], whole.ids[row])
        np.testing.assert_array_equal(one.scores[0], whole.scores[row])


@pytest.mark.parametrize("dense", [False, True])
def test_save_and_load_is_bit_equal(dense: bool, tmp_path: Path) -> None:
    x, y = planted(7)
    documents = x.toarray() if dense else x
    batch = Batch(dense=documents) if dense else Batch(sparse=documents)
    config = TreeConfig(leaf_size=4, beam=2, linear=LinearConfig(loss="logistic", cost=3.0))
    tree = ClusterTree.fit(documents, y, config, np.random.default_rng(0))
    save_part(tree, tmp_path / "tree")
    loaded = load_part(tmp_path / "tree")
    assert loaded.config == config
    np.testing.assert_array_equal(loaded.clusters, tree.clusters)
    np.testing.assert_array_equal(loaded.rank(batch, 9).ids, tree.rank(batch, 9).ids)
    np.testing.assert_array_equal(loaded.rank(batch, 9).scores, tree.rank(batch, 9).scores)


def spoil_dtype(arrays: dict[str, Any]) -> None:
    arrays["weights.bias"] = arrays["weights.bias"].astype(np.float64)


def spoil_children(arrays: dict[str, Any]) -> None:
    arrays["weights.children"] = arrays["weights.children"] + 50


def spoil_labels(arrays: dict[str, Any]) -> None:
    arrays["labels"] = arrays["labels"] + 1


def spoil_starts(arrays: dict[str, Any]) -> None:
    arrays["weights.starts"] = arrays["weights.starts"][1:]


def spoil_order(arrays: dict[str, Any]) -> None:
    arrays["weights.word_starts"] = arrays["weights.word_starts"][::-1]


def spoil_bias(arrays: dict[str, Any]) -> None:
    arrays["weights.bias"] = arrays["weights.bias"][:-1]


def spoil_values(arrays: dict[str, Any]) -> None:
    arrays["weights.values"] = arrays["weights.values"][:-1]


@pytest.mark.parametrize(
    "spoil", [spoil_dtype, spoil_children, spoil_labels, spoil_starts, spoil_order, spoil_bias, spoil_values]
)
def test_an_altered_file_is_refused(spoil: Any, tmp_path: Path) -> None:
    x, y = planted(8)
    save_part(ClusterTree.fit(x, y, TreeConfig(leaf_size=4), np.random.default_rng(0)), tmp_path / "tree")
    file = tmp_path / "tree" / "arrays.safetensors"
    arrays = {name: np.array(array) for name, array in map_arrays(file).items()}
    spoil(arrays)
    write_arrays(file, {name: np.ascontiguousarray(array) for name, array in arrays.items()})
    with pytest.raises(BundleError, match="cluster-tree"):
        load_part(tmp_path / "tree")


def test_altered_settings_are_refused(tmp_path: Path) -> None:
    x, y = planted(8)
    for name, spoil in (("beam", {"beam": 0}), ("width", None)):
        save_part(ClusterTree.fit(x.toarray(), y, TreeConfig(), np.random.default_rng(0)), tmp_path / name)
        head = json.loads((tmp_path / name / "part.json").read_text())
        head["values"]["config"] |= spoil or {}
        head["values"]["weights.width"] += spoil is None
        (tmp_path / name / "part.json").write_text(json.dumps(head))
        with pytest.raises(BundleError, match=name):
            load_part(tmp_path / name)


# ---- borders ----


def test_one_label() -> None:
    x, _ = planted(9, n=5)
    tree = ClusterTree.fit(x, csr_array(np.ones((5, 1), np.float32)), TreeConfig(), np.random.default_rng(0))
    assert tree.n_leaves == 1
    top = tree.rank(Batch(sparse=x), 10)
    assert top.ids.tolist() == [[0]] * 5
    assert np.all(top.scores > 0.5)


def test_fewer_labels_than_a_leaf_holds() -> None:
    x, y = planted(10, n_labels=6)
    tree = ClusterTree.fit(x, y, TreeConfig(), np.random.default_rng(0))
    assert tree.n_leaves == 1
    assert tree.leaf_scores(Batch(sparse=x[:2])).scores.tolist() == [[1.0], [1.0]]
    assert np.mean(y.toarray()[np.arange(200), tree.rank(Batch(sparse=x), 3).ids[:, 0]]) > 0.99


def test_labels_without_documents_are_never_predicted() -> None:
    x, y = planted(11, n_labels=6)
    wide = csr_array(np.insert(y.toarray(), [0, 3, 6], 0, axis=1))
    tree = ClusterTree.fit(x, wide, TreeConfig(leaf_size=2), np.random.default_rng(0))
    assert np.flatnonzero(tree.clusters < 0).tolist() == [0, 4, 8]
    top = tree.rank(Batch(sparse=x), 9)
    assert set(np.unique(top.ids).tolist()) == {TopK.PAD, 1, 2, 3, 5, 6, 7}
    assert np.mean(wide.toarray()[np.arange(200), top.ids[:, 0]]) > 0.99


@pytest.mark.parametrize("n_labels", [0, 4])
def test_no_label_has_documents(n_labels: int) -> None:
    x, _ = planted(12, n=5)
    for documents in (x, x.toarray()):
        tree = ClusterTree.fit(
            documents, csr_array((5, n_labels), dtype=np.float32), TreeConfig(), np.random.default_rng(0)
        )
        batch = Batch(dense=documents) if isinstance(documents, np.ndarray) else Batch(sparse=documents)
        top = tree.rank(batch, 3)
        assert top.ids.shape == (5, min(3, n_labels))
        assert np.all(top.ids == TopK.PAD)


def test_a_tree_of_empty_leaves_finds_nothing() -> None:
    nothing = LinearRows(csr_array((6, WIDTH), dtype=np.float32), np.zeros(6, np.float32), np.zeros(6, np.int32))
    starts = np.array([0, 2, 4, 6, 6, 6, 6, 6])
    tree = ClusterTree(TreeConfig(), 3, np.zeros(0, np.int32), SparseWeights.of(nothing, starts))
    batch = Batch(sparse=csr_array(np.ones((2, WIDTH), np.float32)))
    assert np.all(tree.leaf_scores(batch).ids == TopK.PAD)
    assert np.all(tree.rank(batch, 3).ids == TopK.PAD)


def test_documents_without_features_or_labels() -> None:
    x, y = planted(13)
    features, labels = x.toarray(), y.toarray()
    features[:20] = 0
    labels[20:40] = 0
    labels[:20] = 0
    labels[:20, 3] = 1
    tree = ClusterTree.fit(csr_array(features), csr_array(labels), TreeConfig(leaf_size=4), np.random.default_rng(0))
    top = tree.rank(Batch(sparse=csr_array((2, features.shape[1]), dtype=np.float32)), 5)
    assert top.ids[:, 0].tolist() == [3, 3], "what such documents had in training"
    assert len(tree.rank(Batch(sparse=x[:0]), 5)) == 0


def test_a_label_that_every_document_has() -> None:
    x, y = planted(14)
    labels = y.toarray()
    labels[:, 7] = 1
    tree = ClusterTree.fit(x, csr_array(labels), TreeConfig(leaf_size=4), np.random.default_rng(0))
    top = tree.rank(Batch(sparse=x), 4)
    assert np.mean(np.any(top.ids == 7, axis=1)) > 0.99


def test_duplicate_documents_and_labels_that_tie() -> None:
    x, y = planted(15, n=48)
    labels = y.toarray()
    labels[:, 20] = labels[:, 5]
    tree = ClusterTree.fit(
        csr_array(np.repeat(x.toarray(), 3, axis=0)),
        csr_array(np.repeat(labels, 3, axis=0)),
        TreeConfig(),
        np.random.default_rng(0),
    )
    with_both = x[np.flatnonzero(labels[:, 5])]
    top = tree.rank(Batch(sparse=with_both), 24)
    for ids, scores in zip(top.ids.tolist(), top.scores, strict=True):
        assert scores[ids.index(5)] == pytest.approx(scores[ids.index(20)], rel=0.1)
        assert {5, 20} <= set(ids[:4])
        pairs = list(zip(-scores, ids, strict=True))
        assert pairs == sorted(pairs)


def test_given_clusters_may_leave_leaves_empty() -> None:
    x, y = planted(16, n_labels=6)
    clusters = np.array([0, 0, 4, 4, 4, 0], np.int32)
    tree = ClusterTree.fit(x, y, TreeConfig(beam=1), np.random.default_rng(0), clusters=clusters)
    assert tree.n_leaves == 8
    np.testing.assert_array_equal(tree.clusters, clusters)
    assert set(np.unique(tree.leaf_scores(Batch(sparse=x)).ids).tolist()) == {0, 4}
    assert np.mean(y.toarray()[np.arange(200), tree.rank(Batch(sparse=x), 1).ids[:, 0]]) > 0.9
    with pytest.raises(ValueError, match="no cluster"):
        ClusterTree.fit(x, y, TreeConfig(), np.random.default_rng(0), clusters=clusters - 1)


def test_features_of_another_model_are_refused() -> None:
    x, y = planted(17)
    sparse = ClusterTree.fit(x, y, TreeConfig(), np.random.default_rng(0))
    dense = ClusterTree.fit(x.toarray(), y, TreeConfig(), np.random.default_rng(0))
    for tree, batch, expected in (
        (sparse, Batch(sparse=x[:, :5]), "vocabulary of 44"),
        (sparse, Batch(dense=x.toarray()), "vocabulary of 44"),
        (dense, Batch(dense=x.toarray()[:, :5]), "width 44"),
        (dense, Batch(sparse=x), "width 44"),
    ):
        with pytest.raises(ConfigError, match=expected):
            tree.rank(batch, 3)
