"""Graph networks with linked test documents: the layers, the linker, and that true links help where anchors tell
labels apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.claims import linked_networks as networks
from benchmarks.claims.entries import Variant
from benchmarks.claims.measures import Trained
from benchmarks.claims.verdict import Column
from benchmarks.claims.workshop import Workshop
from benchmarks.claims.worlds import Planted
from scipy.sparse import csr_array

from longtail.errors import ConfigError

pytestmark = pytest.mark.usefixtures("one_thread")

WORLD = {
    "documents": 300,
    "test_documents": 400,
    "labels": 60,
    "topics": 6,
    "graph_coverage": 1.0,
    "noise_edges": 0.0,
    "token_dropout": 0.7,
}


@pytest.fixture(scope="module")
def ance(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Any:
    workshop = Workshop(tmp_path_factory.mktemp("cache"), device="cpu")
    small = Variant("ance", ("features.pairs=false", "features.subwords=none", "encoder.width=32", "train.epochs=6"))
    return workshop.trained(small, Planted("tiny", WORLD), 0)


def test_what_layers_read() -> None:
    items, anchors = np.eye(2, 3, dtype=np.float32), np.array([[0, 0, 1], [0, 1, 0]], np.float32)
    sides = networks.Sides(items, anchors, csr_array(np.array([[1, 1], [0, 0]], np.float32)))
    third = 1 / 3
    np.testing.assert_allclose(sides.inputs("gcn"), np.array([[third, third, third], [0, 1, 0]]), atol=1e-6)
    np.testing.assert_allclose(sides.inputs("sage"), np.array([[1, 0, 0, 0, 0.5, 0.5], [0, 1, 0, 0, 0, 0]]), atol=1e-6)


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_layers_start_as_means_and_give_unit_vectors(kind: Any) -> None:
    layer = networks.LinkedLayer(kind, 3)
    x = torch.randn(4, 3 if kind == "gcn" else 6)
    expected = torch.nn.functional.normalize(x[:, :3], dim=1)
    torch.testing.assert_close(layer(x), expected)
    np.testing.assert_allclose(np.linalg.norm(layer.vectors(x.numpy()), axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_a_layer_learns_to_swap_what_is_swapped(kind: Any) -> None:
    """Documents at one axis have the label at the other."""
    axes = np.eye(4, dtype=np.float32)
    rows = np.tile(axes[:2], (40, 1))
    targets = csr_array(np.tile(np.eye(2, dtype=np.float32)[::-1], (40, 1)))
    zero = np.zeros_like(rows)
    inputs = (lambda x, m: x + 0 * m) if kind == "gcn" else (lambda x, m: np.concatenate([x, m], axis=1))
    labels = inputs(axes[2:], np.zeros((2, 4), np.float32))
    layer = networks.trained_layer(kind, inputs(rows, zero), labels, targets, np.zeros((0, 2), np.int64), seed=0)
    scores = layer.vectors(inputs(rows[:2], zero[:2])) @ layer.vectors(labels).T
    assert scores[0, 1] > scores[0, 0]
    assert scores[1, 0] > scores[1, 1]


def test_the_linker_takes_the_nearest() -> None:
    anchors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    found = networks.nearest_links(np.array([[1, 0], [0, 1]], np.float32), anchors, 2)
    np.testing.assert_array_equal(found.toarray(), [[1, 0, 1], [0, 1, 1]])


def test_true_links_help_and_bins_sum_to_what_is_missed(ance: Any) -> None:
    oracle, linked, own = (measure(ance) for measure in (networks.sage_oracle, networks.sage_linked, networks.missed))
    assert oracle["FN@10"].value < linked["FN@10"].value - 1
    for columns in (oracle, linked, own):
        assert sum(c.value for name, c in columns.items() if name.startswith("FN@10 [")) == pytest.approx(
            columns["FN@10"].value
        )
    np.testing.assert_array_equal(
        own["P@1"].numerator > 0, ance.world.yardstick.measure(ance.predictions()).numerators[:, 0] > 0
    )
    assert networks.gcn_unlinked(ance)["P@1"].value > 5
    assert {m.__name__ for m in (networks.gcn_linked, networks.sage_oracle)} == {"gcn_linked", "sage_oracle"}


def test_worlds_without_graphs_are_refused(ance: Any) -> None:
    bare = Trained(ance.run.parent, ance.world, 0, {})
    bare.__dict__["training"] = replace(ance.training, graphs={})
    with pytest.raises(ConfigError, match="needs a graph"):
        networks.ranked(bare, "gcn", "linked")


def test_the_tail_is_compared_with_its_nearest_rival() -> None:
    def columns(head: float, middle: float, tail: float) -> Any:
        return {
            f"FN@10 [{name}]": Column(np.array([value, value]), np.ones(2))
            for name, value in (("1", head), ("2", middle), ("3", tail))
        }

    tail, other, rival = networks.tail_gains_most([columns(0.1, 0.1, 0.1)], [columns(0.1, 0.3, 0.6)])
    assert rival == "FN@10 [2]"
    assert (tail[0].value, other[0].value) == (pytest.approx(-50), pytest.approx(-20))
