"""GAME on a tree that was trained without it: against the formula, as nothing where labels are unrelated, and what it
finds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

from longtail.errors import BundleError
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.persistence import PART_FORMAT, load_part, save_part, write_json
from longtail.recipes.astec.ranker import FindsClusters, SpreadTree
from longtail.recipes.astec.tree import ClusterTree, TreeConfig
from longtail.search.shortlist import GameSettings, cluster_graph
from longtail.types import Batch, Csr, Ranker

LABELS = 24


def planted(seed: int = 0, n: int = 240) -> tuple[Csr, Csr]:
    """Each label has a word of its own and a partner on the same documents; the last label has no document."""
    rng = np.random.default_rng(seed)
    x, y = np.zeros((n, LABELS + 10), np.float32), np.zeros((n, LABELS), np.float32)
    for row in range(n):
        label = row % (LABELS - 2)
        x[row, label], x[row, LABELS + rng.integers(10)] = 1, 0.5
        y[row, [label, label ^ 1]] = 1
    return csr_array(x / np.linalg.norm(x, axis=1, keepdims=True)), csr_array(y)


def small_tree(seed: int = 0, dense: bool = False) -> tuple[ClusterTree, Any, Csr]:
    x, y = planted(seed)
    # Partners are torn apart on purpose: 2-means would put them together, and GAME would have nothing to do.
    clusters = (np.arange(LABELS, dtype=np.int32) % 2) * 4 + np.arange(LABELS, dtype=np.int32) // 6
    documents = x.toarray() if dense else x
    tree = ClusterTree.fit(documents, y, TreeConfig(beam=2), np.random.default_rng(seed), clusters=clusters)
    return tree, Batch(dense=documents) if dense else Batch(sparse=documents), y


def graph_of(y: Csr) -> Csr:
    return label_graph(y, LabelGraphConfig(head_documents=100), np.random.default_rng(1))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("mix", [0.5, 1.0])
def test_it_is_the_formula(dense: bool, transpose: bool, mix: float) -> None:
    tree, batch, y = small_tree(dense=dense)
    edges = graph_of(y)
    spread = SpreadTree.build(tree, edges, GameSettings(mix=mix, transpose=transpose))
    labels = edges.toarray().astype(float)
    leaves = cluster_graph(edges, tree.clusters, tree.n_leaves).toarray().astype(float)
    if transpose:
        labels, leaves = labels.T, leaves.T
    top = spread.rank(batch, LABELS)
    for row in range(30):
        found = tree.leaf_scores(batch.rows(slice(row, row + 1)))
        p = np.zeros(tree.n_leaves)
        p[found.ids[0]] = found.scores[0]
        p = mix * leaves @ p + (1 - mix) * p
        chosen = np.lexsort((np.arange(len(p)), -p))[:2].astype(np.int32)
        ids, scores = tree.label_scores(batch.rows(slice(row, row + 1)), chosen[None])
        r = np.zeros(LABELS)
        r[ids[0][ids[0] >= 0]] = scores[0][ids[0] >= 0]
        joint = r * p[tree.clusters]
        joint = mix * labels @ joint + (1 - mix) * joint
        wanted = {int(label): joint[label] for label in ids[0] if label >= 0}
        real = top.ids[row] >= 0
        assert set(top.ids[row][real].tolist()) == wanted.keys()
        np.testing.assert_allclose(
            top.scores[row][real], [wanted[label] for label in top.ids[row][real].tolist()], rtol=1e-4
        )


def test_unrelated_labels_leave_the_tree_as_it_is() -> None:
    tree, batch, _ = small_tree()
    alone = SpreadTree(
        tree,
        eye_array(tree.n_leaves, format="csr", dtype=np.float32),
        eye_array(LABELS, format="csr", dtype=np.float32),
    )
    before, after = tree.rank(batch, 10), alone.rank(batch, 10)
    np.testing.assert_array_equal(before.ids, after.ids)
    np.testing.assert_array_equal(before.scores, after.scores)


def test_a_rare_label_is_found_through_the_label_it_occurs_with() -> None:
    """Odd labels have one document each, of noise, that an even label shares: no word leads to them. Claim E18 in
    small.
    """
    rng, frequent = np.random.default_rng(0), np.arange(0, LABELS, 2)
    x, y = np.zeros((10 * len(frequent), LABELS + 20), np.float32), np.zeros((10 * len(frequent), LABELS), np.float32)
    for row, label in enumerate(np.tile(frequent, 10)):
        y[row, label] = 1
        if row < len(frequent):
            y[row, label + 1], x[row, LABELS + rng.integers(20, size=2)] = 1, 1
        else:
            x[row, label] = 1
    tree = ClusterTree.fit(csr_array(x), csr_array(y), TreeConfig(leaf_size=4, beam=3), np.random.default_rng(0))
    spread = SpreadTree.build(tree, graph_of(csr_array(y)), GameSettings())
    words = Batch(sparse=csr_array(np.eye(LABELS, LABELS + 20, dtype=np.float32)[frequent]))
    plain, found = (
        np.mean([label + 1 in top for label, top in zip(frequent, model.rank(words, 2).ids, strict=True)])
        for model in (tree, spread)
    )
    assert found > 0.8 > 0.5 > plain


def test_it_is_a_ranker_and_survives_saving(tmp_path: Path) -> None:
    tree, batch, y = small_tree()
    assert isinstance(tree, FindsClusters)
    spread = SpreadTree.build(tree, graph_of(y), GameSettings(mix=0.5, transpose=True, clusters="both"))
    assert isinstance(spread, Ranker)
    save_part(spread, tmp_path / "part")
    before, after = spread.rank(batch, 5), load_part(tmp_path / "part").rank(batch, 5)
    np.testing.assert_array_equal(before.ids, after.ids)
    np.testing.assert_array_equal(before.scores, after.scores)


def test_foreign_parts_and_graphs_are_refused(tmp_path: Path) -> None:
    tree, _, y = small_tree()
    with pytest.raises(ValueError, match="over 8 leaves"):
        SpreadTree(tree, eye_array(3, format="csr"), eye_array(LABELS, format="csr"))
    with pytest.raises(ValueError, match="over 24 labels"):
        SpreadTree(tree, eye_array(8, format="csr"), eye_array(3, format="csr"))
    save_part(SpreadTree.build(tree, graph_of(y), GameSettings()), tmp_path / "part")
    write_json(tmp_path / "part" / "base" / "part.json", {"format": PART_FORMAT, "kind": "none"})
    with pytest.raises(BundleError, match="spread-tree"):
        load_part(tmp_path / "part")


def test_blocks_of_documents_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, batch, y = small_tree()
    spread = SpreadTree.build(tree, graph_of(y), GameSettings())
    whole = spread.rank(batch, 5)
    monkeypatch.setattr("longtail.recipes.astec.ranker._BLOCK", 7)
    np.testing.assert_array_equal(spread.rank(batch, 5).ids, whole.ids)
