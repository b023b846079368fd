"""The frozen graph network and the model around it: the numpy twin, the product score, GAME on top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array

from longtail.errors import ConfigError
from longtail.nn.blocks import BatchNorm, GinLayer
from longtail.persistence import load_part, save_part
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.network import BilateralGin, DeviceGraphs
from longtail.recipes.gnnxml.ranker import (
    ClusterRankers,
    FrozenGin,
    Gating,
    KeygraphModel,
    RankerInput,
    joined,
    ranker_vectors,
)
from longtail.search.index import ExactIndex
from longtail.search.linear import LinearConfig
from longtail.types import Batch, TopK

MakeGraphs = Callable[..., KeyGraphs]
SIZES = (3, 0, 1, 5, 4, 2)
CLUSTER_OF = np.array([0, 1, 2, 3, 0, 1, 2, -1], dtype=np.int32)


def trained_network(**how: Any) -> BilateralGin:
    torch.manual_seed(0)
    model = BilateralGin(4, 4, np.random.default_rng(0), **{"width": 5, **how})
    for module in model.modules():
        if isinstance(module, BatchNorm):
            torch.nn.init.normal_(module.weight)
            torch.nn.init.normal_(module.bias)
            module.running_mean = torch.randn(module.num_features)
            module.running_var = torch.rand(module.num_features) + 0.5
        elif isinstance(module, GinLayer):
            module.epsilon.data.fill_(0.2)
    return model.eval()


def read(encoder: FrozenGin, graphs: KeyGraphs) -> Any:
    """What heads are multiplied with."""
    return joined(encoder.represent(Batch(graphs=graphs)))


def gates_of(model: KeygraphModel, batch: Batch) -> Any:
    """(B, K): of every cluster."""
    return 1 / (1 + np.exp(-joined(model.encoder.represent(batch)) @ model.heads.vectors.T))


def batch_of(graphs: KeyGraphs, seed: int = 0) -> Batch:
    words = csr_array(
        random_array((len(graphs), 9), density=0.5, rng=np.random.default_rng(seed), dtype=np.float32)
    ).tolil()
    words[1] = 0
    return Batch(sparse=csr_array(words), graphs=graphs)


@pytest.mark.parametrize("branches", ["both", "conventional", "rebalance"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"concat": False},
        {"layers": 0},
        {"layers": 3, "share": "none"},
        {"share": "all"},
        {"readout": "mean"},
        {"readout": "unit"},
    ],
    ids=lambda how: str(how),
)
def test_the_numpy_twin(make_graphs: MakeGraphs, branches: str, how: dict[str, Any], tmp_path: Path) -> None:
    graphs = make_graphs(SIZES)
    for weighted in (False, True):
        model = trained_network(branches=branches, **how)
        frozen, heads = model.frozen(weighted=weighted), model.frozen_heads()
        with torch.no_grad():
            rows = DeviceGraphs(graphs, weighted=weighted).rows(np.arange(len(graphs)))
            vectors, logits = model.represent(rows, model.names), model(rows)
        found = frozen.represent(Batch(graphs=graphs))
        assert found.keys() == vectors.keys()
        for name, expected in vectors.items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(read(frozen, graphs) @ heads.T, logits, rtol=1e-4, atol=1e-4)
        save_part(frozen, tmp_path / str(weighted))
        np.testing.assert_array_equal(read(load_part(tmp_path / str(weighted)), graphs), read(frozen, graphs))


def test_blocks_of_documents_do_not_matter(make_graphs: MakeGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs, frozen = make_graphs(SIZES), trained_network().frozen()
    whole = read(frozen, graphs)
    monkeypatch.setattr("longtail.recipes.gnnxml.ranker._GRAPHS", 2)
    np.testing.assert_allclose(read(frozen, graphs), whole, atol=1e-5)
    assert read(frozen, graphs.rows(slice(0, 0))).shape == (0, whole.shape[1])


@pytest.mark.claim("F15")
def test_gates_of_wide_networks_do_not_feel_their_batch(make_graphs: MakeGraphs) -> None:
    """Graphs of titles are tiny: in float32, gates of a document alone differ by up to 7e-6 from its gates among
    others.
    """
    width, clusters = 300, 40
    graphs = make_graphs((1, 2, 3, 1, 7, 2) * 8, width)
    network = BilateralGin(width, clusters, np.random.default_rng(0), width=width).eval()
    encoder = network.frozen()
    vectors = read(encoder, graphs)
    # Heads by which scores have a spread of 3, as trained ones have.
    heads = network.frozen_heads() * np.float32(3 / (vectors @ network.frozen_heads().T).std())
    rankers = ClusterRankers(
        clusters,
        np.arange(clusters, dtype=np.int32),
        np.arange(clusters + 1),
        np.zeros(clusters, np.float32),
        None,
        np.zeros((clusters, 2), np.float32),
    )
    model = KeygraphModel(encoder, ExactIndex.build(heads, "dot"), rankers, clusters, "graph")
    whole = model.best_clusters(Batch(graphs=graphs))
    assert (np.diff(whole.scores, axis=1) <= 0).all(), "best first"
    for document in range(len(graphs)):
        alone = model.best_clusters(Batch(graphs=graphs.rows([document])))
        np.testing.assert_array_equal(alone.ids[0], whole.ids[document])
        np.testing.assert_allclose(alone.scores[0], whole.scores[document], rtol=0, atol=3e-7)


def test_documents_without_graphs_are_refused() -> None:
    with pytest.raises(ConfigError, match="reads keyword graphs"):
        trained_network().frozen().represent(Batch(dense=np.zeros((1, 2), np.float32)))


def model_of(graphs: KeyGraphs, reads: Any = "both", beam: int = 2) -> tuple[KeygraphModel, Batch]:
    network, batch = trained_network(), batch_of(graphs)
    frozen = network.frozen()
    vectors = 0.5 * ranker_vectors(frozen.represent(batch))
    targets = np.zeros((len(graphs), len(CLUSTER_OF)), dtype=np.float32)
    for document in range(len(graphs)):
        targets[document, [document % 7, (3 * document + 1) % 7]] = 1
    x = RankerInput(None if reads == "graph" else batch.sparse, None if reads == "tfidf" else vectors)
    nothing = np.zeros((0, 2), np.int64)
    everything = csr_array(np.ones((len(graphs), 4), np.float32))
    rankers = ClusterRankers.fit(
        x,
        csr_array(targets),
        CLUSTER_OF,
        everything,
        nothing,
        LinearConfig(loss="logistic", prune=0),
        np.random.default_rng(0),
    )
    return KeygraphModel(frozen, ExactIndex.build(network.frozen_heads(), "dot"), rankers, beam, reads, 0.5), batch


@pytest.mark.parametrize("reads", ["both", "tfidf", "graph"])
def test_a_score_is_gate_times_probability(make_graphs: MakeGraphs, reads: Any, tmp_path: Path) -> None:
    model, batch = model_of(make_graphs(SIZES), reads)
    gates = gates_of(model, batch)
    assert gates.shape == (len(batch), 4)
    everything = np.tile(np.arange(4, dtype=np.int32), (len(batch), 1))
    vectors = np.float32(0.5) * ranker_vectors(model.encoder.represent(batch))
    x = RankerInput(None if reads == "graph" else batch.sparse, None if reads == "tfidf" else vectors)
    all_labels = TopK.padding(len(batch), len(CLUSTER_OF))
    model.rankers.rank(x, everything, np.ones(everything.shape, np.float32), all_labels)
    labels, probabilities = all_labels.ids, all_labels.scores
    top = model.rank(batch, 5)
    for document in range(len(batch)):
        best = set(np.argsort(-gates[document])[:2].tolist())
        scores = {
            int(label): gates[document, CLUSTER_OF[label]] * probability
            for label, probability in zip(labels[document], probabilities[document], strict=True)
            if label >= 0 and CLUSTER_OF[label] in best
        }
        found = top.ids[document][top.ids[document] >= 0].tolist()
        if document == 1:
            assert found == [], "a document of which nothing is known has no label"
            continue
        assert found == sorted(scores, key=lambda label: (-scores[label], label))[:5]
        np.testing.assert_allclose(top.scores[document][: len(found)], [scores[label] for label in found], rtol=1e-4)
    save_part(model, tmp_path / "model")
    again = load_part(tmp_path / "model").rank(batch, 5)
    np.testing.assert_array_equal(again.ids, top.ids)
    np.testing.assert_array_equal(again.scores, top.scores)


def test_a_wider_beam_finds_more(make_graphs: MakeGraphs) -> None:
    model, batch = model_of(make_graphs(SIZES))
    found = [(replace(model, beam=beam).rank(batch, 8).ids >= 0).sum() for beam in (1, 2, 4, 100)]
    assert found[0] < found[1] < found[2] == found[3]
    assert (replace(model, beam=4).rank(batch, 8).ids != 7).all(), "a label without documents is never found"


def test_gates_are_sigmoids_of_the_joined_vectors(make_graphs: MakeGraphs) -> None:
    model, batch = model_of(make_graphs(SIZES))
    raw = joined(model.encoder.represent(batch)) @ model.heads.vectors.T
    clusters = model.best_clusters(batch)
    assert clusters.ids[1].tolist() == [TopK.PAD, TopK.PAD]
    np.testing.assert_array_equal(clusters.ids[0], np.argsort(-raw[0])[:2])
    for document in (0, *range(2, len(batch))):
        chosen = raw[document, clusters.ids[document]]
        np.testing.assert_allclose(clusters.scores[document], 1 / (1 + np.exp(-chosen)), rtol=1e-5)


# ---- gates that are not plain ----


def test_powers_and_scales_of_gates(make_graphs: MakeGraphs, tmp_path: Path) -> None:
    model, batch = model_of(make_graphs(SIZES), beam=4)
    plain = model.best_clusters(batch)
    for gating in (Gating(0.5), Gating(scale=0.5), Gating(2.0, 3.0), Gating(0.0)):
        changed = replace(model, gating=gating)
        found = changed.best_clusters(batch)
        np.testing.assert_array_equal(found.ids, plain.ids)
        real = plain.ids >= 0
        odds = np.log(plain.scores[real]) - np.log1p(-plain.scores[real])
        expected = (1 / (1 + np.exp(-gating.scale * odds))) ** gating.power
        np.testing.assert_allclose(found.scores[real], expected, rtol=1e-4)
        save_part(changed, tmp_path / str(gating.power + 10 * gating.scale))
        loaded: Any = load_part(tmp_path / str(gating.power + 10 * gating.scale))
        assert loaded.gating == gating
        np.testing.assert_array_equal(loaded.rank(batch, 5).scores, changed.rank(batch, 5).scores)
    same = replace(model, gating=Gating()).rank(batch, 5)
    np.testing.assert_array_equal(same.scores, model.rank(batch, 5).scores)
    explained = replace(model, gating=Gating(0.5)).explain(batch, plain_ids := model.rank(batch, 3).ids)
    assert explained is not None
    ranked = replace(model, gating=Gating(0.5)).rank(batch, 8).looked_up(plain_ids)[0]
    np.testing.assert_allclose(np.where(plain_ids >= 0, explained.scores, 0), ranked, rtol=1e-4, atol=1e-6)


def test_clusters_are_looked_into_until_they_hold_enough_labels(make_graphs: MakeGraphs) -> None:
    model, batch = model_of(make_graphs(SIZES), beam=4)
    sizes = np.diff(model.rankers.starts)
    assert sizes.tolist() == [2, 2, 2, 1]
    whole = model.best_clusters(batch)
    for reach in (1, 2, 3, 5, 100):
        found = replace(model, gating=Gating(reach=reach)).best_clusters(batch)
        for document in (0, *range(2, len(batch))):
            taken, held = [], 0
            for cluster in whole.ids[document].tolist():
                if held < reach:
                    taken.append(cluster)
                    held += int(sizes[cluster])
            assert found.ids[document][found.ids[document] >= 0].tolist() == taken
            assert held >= min(reach, 7)
        assert (found.ids[1] == TopK.PAD).all()


@pytest.mark.parametrize("wrong", [{"power": -1.0}, {"scale": 0.0}, {"reach": -1}, {"power": float("nan")}])
def test_gates_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="gates to the power"):
        Gating(**wrong)
