"""The frozen graph network and the model around it: the numpy twin, the product score, GAME on top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, eye_array, random_array

from longtail.errors import ConfigError
from longtail.nn.blocks import BatchNorm, GinLayer
from longtail.persistence import load_part, save_part
from longtail.recipes.astec.ranker import FindsClusters, SpreadTree
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.label_classifiers import ClusterRankers, RankerInput
from longtail.recipes.gnnxml.network import BilateralGin, DeviceGraphs
from longtail.recipes.gnnxml.ranker import KeygraphModel, joined, ranker_vectors
from longtail.search.index import ExactIndex
from longtail.search.linear import LinearConfig
from longtail.search.shortlist import GameSettings
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


def batch_of(graphs: KeyGraphs, seed: int = 0) -> Batch:
    words = csr_array(
        random_array((len(graphs), 9), density=0.5, rng=np.random.default_rng(seed), dtype=np.float32)
    ).tolil()
    words[1] = 0
    return Batch(sparse=csr_array(words), graphs=graphs)


@pytest.mark.parametrize("branches", ["both", "conventional", "rebalance"])
@pytest.mark.parametrize(
    "how",
    [{}, {"concat": False}, {"layers": 0}, {"layers": 3, "share": "none"}, {"share": "all"}, {"readout": "mean"}],
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
        np.testing.assert_allclose(frozen.encode(Batch(graphs=graphs)) @ heads.T, logits, rtol=1e-4, atol=1e-4)
        save_part(frozen, tmp_path / str(weighted))
        np.testing.assert_array_equal(
            load_part(tmp_path / str(weighted)).encode(Batch(graphs=graphs)), frozen.encode(Batch(graphs=graphs))
        )


def test_blocks_of_documents_do_not_matter(make_graphs: MakeGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs, frozen = make_graphs(SIZES), trained_network().frozen()
    whole = frozen.encode(Batch(graphs=graphs))
    monkeypatch.setattr("longtail.recipes.gnnxml.ranker._GRAPHS", 2)
    np.testing.assert_allclose(frozen.encode(Batch(graphs=graphs)), whole, atol=1e-5)
    assert frozen.encode(Batch(graphs=graphs.rows(slice(0, 0)))).shape == (0, whole.shape[1])


@pytest.mark.claim("F15")
def test_gates_of_wide_networks_do_not_feel_their_batch(make_graphs: MakeGraphs) -> None:
    """Graphs of titles are tiny: in float32, gates of a document alone differ by up to 7e-6 from its gates among
    others.
    """
    width, clusters = 300, 40
    graphs = make_graphs((1, 2, 3, 1, 7, 2) * 8, width)
    network = BilateralGin(width, clusters, np.random.default_rng(0), width=width).eval()
    encoder = network.frozen()
    read = encoder.encode(Batch(graphs=graphs))
    # Heads by which scores have a spread of 3, as trained ones have.
    heads = network.frozen_heads() * np.float32(3 / (read @ network.frozen_heads().T).std())
    rankers = ClusterRankers(
        clusters,
        np.arange(clusters, dtype=np.int32),
        np.arange(clusters + 1),
        np.zeros(clusters, np.float32),
        None,
        np.zeros((clusters, 2), np.float32),
    )
    model = KeygraphModel(encoder, ExactIndex.build(heads, "dot"), rankers, clusters, "graph")
    whole = model.leaf_scores(Batch(graphs=graphs))
    assert (np.diff(whole.scores, axis=1) <= 0).all(), "best first"
    for document in range(len(graphs)):
        alone = model.leaf_scores(Batch(graphs=graphs.rows([document])))
        np.testing.assert_array_equal(alone.ids[0], whole.ids[document])
        np.testing.assert_allclose(alone.scores[0], whole.scores[document], rtol=0, atol=3e-7)


def test_documents_without_graphs_are_refused() -> None:
    with pytest.raises(ConfigError, match="reads keyword graphs"):
        trained_network().frozen().encode(Batch(dense=np.zeros((1, 2), np.float32)))


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
    gates = model.match(batch)
    assert gates.shape == (len(batch), 4)
    everything = np.tile(np.arange(4, dtype=np.int32), (len(batch), 1))
    labels, probabilities = model.label_scores(batch, everything)
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


def test_game_can_be_put_on_top(make_graphs: MakeGraphs) -> None:
    model, batch = model_of(make_graphs(SIZES))
    assert isinstance(model, FindsClusters)
    unchanged = SpreadTree.build(model, csr_array(eye_array(8, dtype=np.float32)), GameSettings(clusters="both"))
    a, b = unchanged.rank(batch, 4), model.rank(batch, 4)
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_allclose(np.where(a.ids >= 0, a.scores, 0), np.where(b.ids >= 0, b.scores, 0), rtol=1e-5)


def test_gates_are_sigmoids_of_the_joined_vectors(make_graphs: MakeGraphs) -> None:
    model, batch = model_of(make_graphs(SIZES))
    raw = joined(model.encoder.represent(batch)) @ model.heads.vectors.T
    np.testing.assert_allclose(model.match(batch), 1 / (1 + np.exp(-raw)), rtol=1e-5)
    clusters = model.leaf_scores(batch)
    assert clusters.ids[1].tolist() == [TopK.PAD, TopK.PAD]
    np.testing.assert_array_equal(clusters.ids[0], np.argsort(-raw[0])[:2])
