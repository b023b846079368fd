"""Graph isomorphism networks in two branches: the formula, invariances, sharing, gradients and the balance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtail.nn.blocks import BatchNorm, GinLayer
from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.network import (
    CONVENTIONAL,
    REBALANCE,
    BilateralGin,
    DeviceGraphs,
    GraphBatch,
    graph_sums,
    neighbour_sums,
)

pytestmark = pytest.mark.usefixtures("one_thread")

MakeGraphs = Callable[..., KeyGraphs]
SIZES = (3, 0, 1, 5)


def batch_of(graphs: KeyGraphs, index: Any = None, **how: Any) -> GraphBatch:
    return DeviceGraphs(graphs, **how).rows(np.arange(len(graphs)) if index is None else np.array(index))


def network(seed: int = 0, **how: Any) -> BilateralGin:
    torch.manual_seed(seed)
    model = BilateralGin(4, 6, np.random.default_rng(seed), **{"width": 5, **how})
    for module in model.modules():
        if isinstance(module, BatchNorm):  # running statistics of a trained network
            module.running_mean = torch.randn_like(module.running_mean) if module.running_mean is not None else None
            module.running_var = torch.rand_like(module.running_var) + 0.5 if module.running_var is not None else None
    return model.eval()


def represent(model: BilateralGin, batch: GraphBatch, name: str = CONVENTIONAL) -> Tensor:
    with torch.no_grad():
        return model.represent(batch, [name])[name]


# ---- tensors ----


def test_rows_on_a_device_are_those_in_numpy(make_graphs: MakeGraphs) -> None:
    graphs, index = make_graphs(SIZES), [3, 0, 1, 3]
    batch, expected = batch_of(graphs, index, weighted=True), graphs.rows(np.array(index))
    np.testing.assert_allclose(batch.vertices, expected.vertices(), atol=1e-5)
    h = torch.randn(expected.n_vertices, 3)
    np.testing.assert_allclose(neighbour_sums(h, batch.edges), expected.adjacency(weighted=True) @ h.numpy(), atol=1e-5)
    plain = batch_of(graphs, index)
    np.testing.assert_allclose(neighbour_sums(h, plain.edges), expected.adjacency() @ h.numpy(), atol=1e-5)
    assert batch.sizes.tolist() == [5, 3, 0, 5]
    sums = graph_sums(h, batch.members)
    np.testing.assert_allclose(sums[1], h[5:8].sum(dim=0), atol=1e-6)
    assert not sums[2].any()


def test_gradients_of_sums(make_graphs: MakeGraphs) -> None:
    batch = batch_of(make_graphs(SIZES), weighted=True)
    h = torch.randn(len(batch.vertices), 2, dtype=torch.float64, requires_grad=True)
    edges, members = (type(b)(b.starts, b.ids, b.weights.double()) for b in (batch.edges, batch.members))
    assert torch.autograd.gradcheck(lambda x: neighbour_sums(x, edges), (h,))
    assert torch.autograd.gradcheck(lambda x: graph_sums(x, members), (h,))


def test_documents_without_edges_and_without_vertices(make_graphs: MakeGraphs) -> None:
    for sizes in ((1, 1), (0, 0), (0,)):
        assert represent(network(), batch_of(make_graphs(sizes))).shape == (len(sizes), 14)


# ---- the formula ----


def plain_forward(model: BilateralGin, graphs: KeyGraphs, name: str) -> Any:
    """h_G by the paper's Eq. 4 and 5, document by document, vertex by vertex."""
    branch: Any = model.branches[name]
    layers: list[Any] = [*model.common, *branch.layers]
    adjacency, features = graphs.adjacency().toarray(), graphs.vertices()
    rows = []
    for document in range(len(graphs)):
        own = slice(graphs.vertex_starts[document], graphs.vertex_starts[document + 1])
        h, a = torch.from_numpy(features[own]), adjacency[own, own]
        read = [h.sum(dim=0)]
        for layer in layers:
            moved = []
            for v in range(len(h)):
                total = (1 + layer.epsilon) * h[v]
                for u in np.flatnonzero(a[v]):
                    total = total + h[u]
                x = layer.first(total)
                x = (x - layer.norm.running_mean) / torch.sqrt(
                    layer.norm.running_var + layer.norm.eps
                ) * layer.norm.weight + layer.norm.bias
                moved.append(torch.relu(layer.second(torch.relu(x))))
            h = torch.stack(moved) if moved else torch.zeros(0, layer.second.out_features)
            read.append(h.sum(dim=0))
        x = torch.cat(read) if model.concat else read[-1]
        rows.append(
            (x - branch.norm.running_mean) / torch.sqrt(branch.norm.running_var + branch.norm.eps) * branch.norm.weight
            + branch.norm.bias
        )
    return torch.stack(rows).detach()


@pytest.mark.parametrize("share", ["none", "all_but_last", "all"])
@pytest.mark.parametrize(("layers", "concat"), [(2, True), (1, False), (0, True), (3, False)])
def test_the_network_is_the_formula(make_graphs: MakeGraphs, share: Any, layers: int, concat: bool) -> None:
    graphs = make_graphs(SIZES)
    model = network(layers=layers, concat=concat, share=share)
    for layer in model.modules():
        if isinstance(layer, GinLayer):
            layer.epsilon.data.fill_(0.3)
    for name in (CONVENTIONAL, REBALANCE):
        torch.testing.assert_close(
            represent(model, batch_of(graphs), name), plain_forward(model, graphs, name), atol=1e-4, rtol=1e-4
        )


def test_mean_read_out_divides_by_the_vertices(make_graphs: MakeGraphs) -> None:
    graphs = make_graphs((4,))
    sums, means = (network(readout=readout, layers=1) for readout in ("sum", "mean"))
    for model in (sums, means):
        branch: Any = model.branches[CONVENTIONAL]
        branch.norm.running_mean.zero_()
    torch.testing.assert_close(
        represent(means, batch_of(graphs)) * 4, represent(sums, batch_of(graphs)), atol=1e-4, rtol=1e-4
    )


# ---- N6 ----


def permuted(graphs: KeyGraphs, order: Any) -> KeyGraphs:
    """One graph with its vertices in another order."""
    adjacency = graphs.adjacency(weighted=True).toarray()[np.ix_(order, order)]
    attached = [graphs.attached[graphs.attach_starts[v] : graphs.attach_starts[v + 1]] for v in order]
    rows = [np.flatnonzero(row) for row in adjacency]

    def starts(parts: list[Any]) -> Any:
        return np.append(0, np.cumsum([len(part) for part in parts]))

    return KeyGraphs(
        vertex_starts=graphs.vertex_starts,
        sentence_starts=graphs.sentence_starts,
        words=graphs.words,
        edge_starts=starts(rows),
        neighbours=np.concatenate(rows).astype(np.int32),
        weights=np.concatenate([adjacency[v][row] for v, row in enumerate(rows)]).astype(np.float32),
        attach_starts=starts(attached),
        attached=np.concatenate(attached),
        sentences=graphs.sentences,
    )


@pytest.mark.claim("N6")
@given(st.integers(2, 9), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_order_of_vertices_does_not_matter(make_graphs: MakeGraphs, size: int, seed: int) -> None:
    graphs = make_graphs((size,), seed=seed)
    order = np.random.default_rng(seed).permutation(size)
    model = network(seed)
    torch.testing.assert_close(
        represent(model, batch_of(permuted(graphs, order))), represent(model, batch_of(graphs)), atol=1e-5, rtol=1e-5
    )


@pytest.mark.claim("N6")
@given(st.lists(st.integers(0, 6), min_size=2, max_size=4), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_sums_of_disjoint_graphs_add_up(make_graphs: MakeGraphs, sizes: list[int], seed: int) -> None:
    """The graph that consists of several is the sum of them, before the last normalisation."""
    apart = make_graphs(sizes, seed=seed)
    offsets = np.repeat(apart.vertex_starts[:-1], np.diff(apart.edge_starts[apart.vertex_starts]))
    sentence_offsets = np.repeat(apart.sentence_starts[:-1], np.diff(apart.attach_starts[apart.vertex_starts]))
    ends, words = np.array([0, sum(sizes)]), np.array([sum(sizes)], np.int32)
    one = KeyGraphs(
        vertex_starts=ends,
        sentence_starts=ends,
        words=words,
        edge_starts=apart.edge_starts,
        neighbours=(apart.neighbours + offsets).astype(np.int32),
        weights=apart.weights,
        attach_starts=apart.attach_starts,
        attached=(apart.attached + sentence_offsets).astype(np.int32),
        sentences=apart.sentences,
    )
    model = network(seed)
    branch: Any = model.branches[CONVENTIONAL]
    branch.norm = torch.nn.Identity()
    torch.testing.assert_close(
        represent(model, batch_of(one))[0], represent(model, batch_of(apart)).sum(dim=0), atol=1e-4, rtol=1e-4
    )


# ---- branches ----


@pytest.mark.parametrize(("share", "common", "own"), [("none", 0, 2), ("all_but_last", 1, 1), ("all", 2, 0)])
def test_what_branches_share(share: Any, common: int, own: int) -> None:
    model = network(share=share)
    branches: dict[str, Any] = dict(model.branches.items())
    first, second = branches[CONVENTIONAL], branches[REBALANCE]
    assert len(model.common) == common
    assert [len(branch.layers) for branch in (first, second)] == [own, own]
    assert (first.norm is second.norm) == (share == "all")
    assert first.head is not second.head


def test_one_branch_alone_scores_by_itself(make_graphs: MakeGraphs) -> None:
    batch = batch_of(make_graphs(SIZES))
    for name in (CONVENTIONAL, REBALANCE):
        model = network(branches=name)
        assert model.names == [name]
        with torch.no_grad():
            vectors = model.represent(batch, [name])
            torch.testing.assert_close(model(batch), model.branches[name](vectors[name]))
            torch.testing.assert_close(model.logits(vectors, 0.1), model(batch))


@pytest.mark.claim("N14")
def test_at_inference_both_branches_count_the_same(make_graphs: MakeGraphs) -> None:
    """Both see the same document, so it does not matter which copy of it goes where."""
    model, graphs = network(), make_graphs(SIZES)
    first, second = batch_of(graphs), batch_of(graphs)
    with torch.no_grad():
        one = model.logits({CONVENTIONAL: represent(model, first), REBALANCE: represent(model, second, REBALANCE)}, 0.5)
        other = model.logits(
            {CONVENTIONAL: represent(model, second), REBALANCE: represent(model, first, REBALANCE)}, 0.5
        )
        assert torch.equal(one, other)
        assert torch.equal(one, model(first))
        halves = [model.branches[name](represent(model, first, name)) for name in (CONVENTIONAL, REBALANCE)]
    torch.testing.assert_close(one, 0.5 * (halves[0] + halves[1]))


def test_normalisation_survives_a_batch_of_one() -> None:
    norm = BatchNorm(3).train()
    x = torch.randn(1, 3)
    before = norm.running_mean.clone() if norm.running_mean is not None else None
    torch.testing.assert_close(norm(x), x, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(norm.running_mean, before)
    assert norm(torch.randn(5, 3)).mean(dim=0).abs().max() < 1e-6
    assert norm(torch.zeros(0, 3)).shape == (0, 3)


def test_eps_is_trained_only_if_asked_for() -> None:
    assert not any("eps" in name for name, p in network().named_parameters() if p.requires_grad)
    assert any("eps" in name for name, p in network(learned_eps=True).named_parameters() if p.requires_grad)
