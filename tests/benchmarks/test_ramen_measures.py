"""The worlds and measuring functions of RAMEN's claims, on small planted worlds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.claims.crafted_worlds import SECOND, UnseenLabels, augmented_world, two_sets_world
from benchmarks.claims.entries import Variant
from benchmarks.claims.ramen_measures import (
    edges_told_apart,
    link_recall,
    paired_difference,
    time_ratio,
    unseen_ranking,
    weight_order,
)
from benchmarks.claims.workshop import Workshop
from benchmarks.claims.worlds import Crafted, Planted

from longtail.errors import ConfigError

pytestmark = pytest.mark.usefixtures("one_thread")

KNOBS = {"documents": 400, "test_documents": 200, "labels": 60, "topics": 6, "noise_edges": 0.5, "graph_coverage": 0.9}
SMALL = ("features.subwords=none", "features.pairs=false", "encoder.width=16", "train.epochs=4", "train.rate=0.01")
RAMEN = Variant("ramen", (*SMALL, "regularise.warm_up=1", "regularise.every=1", "bandit.block=10"))
ANCE = Variant("ance", SMALL)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("claims"), device="cpu")


def test_edges_and_links(workshop: Workshop) -> None:
    trained = workshop.trained(RAMEN, Planted("small", KNOBS), 0)
    told = {name: column.value for name, column in edges_told_apart(trained).items()}
    assert told["AUC"] > 65
    assert told["AUC by chance"] == pytest.approx(50, abs=8)
    planted: Any = trained.world.planted
    graph: Any = trained.world.dataset.graphs["anchors"]
    # A few training documents may have been left out, so the share of true edges is not exactly that of the whole
    # graph.
    assert told["precision of all"] == pytest.approx(
        100 * (1 - planted.injected_documents.nnz / graph.documents.nnz), abs=2
    )
    assert told["precision of kept"] > told["precision of all"]
    links = {name: column.value for name, column in link_recall(trained).items()}
    assert 0 < links["links R@10"] <= links["links R@100"] <= 100


def test_measures_refuse_what_they_cannot_know(workshop: Workshop) -> None:
    world = Crafted(two_sets_world, KNOBS)
    trained = workshop.trained(ANCE, world, 0)
    for measure in (edges_told_apart, link_recall, weight_order):
        with pytest.raises(ConfigError):
            measure(trained)


def test_the_second_set_is_junk_or_a_twin() -> None:
    junk: Any
    twin: Any
    junk, twin = (two_sets_world(0, junk=junk, **KNOBS).graphs for junk in (True, False))
    first, other = junk["anchors"].documents, junk[SECOND].documents
    assert other.nnz == first.nnz
    assert (other != first).nnz > first.nnz
    assert (twin[SECOND].documents != twin["anchors"].documents).nnz == 0


def test_weights_of_two_sets(workshop: Workshop) -> None:
    trained = workshop.trained(RAMEN, Crafted(two_sets_world, KNOBS), 0)
    assert weight_order(trained)["junk below"].value in (0, 100)


def test_labels_are_spread_to_documents_that_share_an_anchor() -> None:
    spread = augmented_world(0, **KNOBS)
    plain: Any = Planted("small", KNOBS).world(0, None).dataset
    graph = plain.graphs["anchors"]
    expected = (plain.train.targets.toarray() + graph.documents.toarray() @ graph.labels.toarray().T) > 0
    np.testing.assert_array_equal(spread.train.targets.toarray() > 0, expected)
    assert spread.train.targets.nnz > 2 * plain.train.targets.nnz
    assert set(spread.train.targets.data.tolist()) == {1.0}


def test_unseen_labels_are_ranked_by_their_texts(workshop: Workshop) -> None:
    spec = UnseenLabels(KNOBS)
    trained = workshop.trained(ANCE, spec, 0)
    world = trained.world
    assert not set(world.dataset.labels.uids) & set(world.yardstick.data.labels.uids)
    found = unseen_ranking(trained)
    assert len(found["P@1"].numerator) == world.yardstick.truth.shape[0]
    assert found["P@1"].value > 2 * 100 / len(world.yardstick.data.labels)
    assert "unseen labels" in spec.describe()


def test_probes(workshop: Workshop, tmp_path: Path) -> None:
    data = Planted("small", KNOBS)
    ratio, numbers = time_ratio(workshop, of=RAMEN, to=ANCE, data=data)
    assert 0.1 < ratio.value < 10
    assert ratio.low <= ratio.value <= ratio.high
    assert len(numbers["seconds"]) == 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.claims.ramen_measures.SEEDS", 1)
        found, sides = paired_difference(
            workshop, a=(ANCE, Crafted(augmented_world, KNOBS)), b=(ANCE, data), metric="P@1"
        )
    assert found.value == pytest.approx(sides["a"][0] - sides["b"][0])
