"""A tree on frozen features is the tree on what the encoder makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, random_array

from longtail.models.encoders import FrozenBag
from longtail.persistence import load_part, save_part
from longtail.recipes.astec.ranker import EncodedTree
from longtail.recipes.astec.tree import ClusterTree, TreeConfig
from longtail.types import Batch, Csr, Ranker


def documents(rng: np.random.Generator) -> tuple[Csr, Csr]:
    x = csr_array(random_array((80, 30), density=0.2, rng=rng, dtype=np.float32))
    y = csr_array((np.eye(10)[rng.integers(10, size=80)]).astype(np.float32))
    return x, y


def test_ranks_what_the_encoder_makes_and_survives_saving(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = documents(rng)
    encoder = FrozenBag(rng.standard_normal((30, 8)).astype(np.float32))
    vectors = encoder.encode(Batch(sparse=x))
    tree = ClusterTree.fit(vectors, y, TreeConfig(leaf_size=4), rng)
    ranker = EncodedTree(encoder, tree)
    assert isinstance(ranker, Ranker)
    expected = tree.rank(Batch(dense=vectors), 5)
    save_part(ranker, tmp_path / "ranker")
    for made in (ranker, load_part(tmp_path / "ranker")):
        top = made.rank(Batch(sparse=x), 5)
        np.testing.assert_array_equal(top.ids, expected.ids)
        np.testing.assert_array_equal(top.scores, expected.scores)
