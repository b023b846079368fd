"""Graph encoders: formulas of the papers by hand, and their numpy twins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from longtail.nn.blocks import BatchNorm
from longtail.persistence import load_part, save_part
from longtail.recipes.galaxc.graph import Fanout, HiddenEdges, JointGraph
from longtail.recipes.galaxc.network import (
    GraphEncoder,
    HopEncoder,
    HopTransform,
    MessageEncoder,
    Neighbourhoods,
    Roots,
    gin_encoder,
    sage_encoder,
)
from longtail.recipes.galaxc.ranker import FrozenGraphEncoder, FrozenHops, FrozenMessages
from longtail.types import F32

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH = 5


def world(n: int = 20, seed: int = 0) -> tuple[JointGraph, F32]:
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(np.setdiff1d(np.arange(n), [node]))[: rng.integers(0, 6)] for node in range(n)]
    starts = np.cumsum([0, *map(len, lists)])
    return JointGraph(starts, np.concatenate(lists).astype(np.int32), np.zeros(0, np.int32), n), rng.standard_normal(
        (n, WIDTH)
    ).astype(np.float32)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# ---- HopTransform ----


@pytest.mark.claim("G2")
def test_at_the_start_a_transformation_doubles_the_positive_part() -> None:
    """h + ReLU(BN(I h)) with BN's mean 0 and variance 1 is 2 ReLU(a), up to BN's epsilon."""
    a = torch.randn(100, 16, generator=torch.Generator().manual_seed(0))
    out = HopTransform(16).eval()(a)
    torch.testing.assert_close(out, 2 * torch.relu(a), rtol=1e-4, atol=1e-4)


def test_a_transformation_is_its_formula() -> None:
    transform: Any = HopTransform(4, dropout=0.0).eval()
    with torch.no_grad():
        transform.linear.weight.copy_(torch.randn(4, 4))
        transform.linear.bias.copy_(torch.randn(4))
        transform.norm.running_mean.copy_(torch.randn(4))
        transform.norm.running_var.copy_(torch.rand(4) + 0.5)
        transform.norm.weight.copy_(torch.randn(4))
        transform.norm.bias.copy_(torch.randn(4))
    a = torch.randn(9, 4)
    h, n = torch.relu(a), transform.norm
    inner = (h @ transform.linear.weight.T + transform.linear.bias - n.running_mean) / (
        n.running_var + n.eps
    ).sqrt() * n.weight + n.bias
    torch.testing.assert_close(transform(a), h + torch.relu(inner))
    weight, bias = transform.frozen_affine()
    torch.testing.assert_close(h + torch.relu(h @ weight.T + bias), h + torch.relu(inner), rtol=1e-4, atol=1e-5)
    plain = HopTransform(4, pre_relu=False).eval()
    torch.testing.assert_close(plain(a), a + torch.relu(a), rtol=1e-4, atol=1e-4)


def test_dropout_acts_after_every_relu() -> None:
    torch.manual_seed(0)
    transform = HopTransform(64, dropout=0.5).train()
    out = transform(torch.ones(200, 64))
    # Dropped in both places an entry is 0; dropped in the first alone it is what batch norm makes of 0, at most.
    assert 0.1 < float((out == 0).float().mean()) < 0.6
    assert float((HopTransform(64, dropout=0.0).train()(torch.ones(200, 64)) == 0).float().mean()) == 0


def test_a_batch_of_one_uses_what_was_learnt_of_others() -> None:
    norm: Any = BatchNorm(3).train()
    norm(torch.randn(50, 3))
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    x = torch.randn(1, 3)
    torch.testing.assert_close(norm(x), (x - mean) / (var + norm.eps).sqrt())
    assert torch.equal(norm.running_mean, mean)
    assert norm(torch.randn(2, 4, 3)).shape == (2, 4, 3)


# ---- HopEncoder ----


def test_convolutions_by_hand_and_their_gradients() -> None:
    encoder = HopEncoder(3, WIDTH, rng())
    assert ((encoder.epsilon >= 0) & (encoder.epsilon < 1)).all()
    sums = torch.randn(4, 8, WIDTH)
    a = encoder.convolved(sums)
    e = encoder.epsilon.detach()
    torch.testing.assert_close(a[:, 0].detach(), (1 + e[0]) * sums[:, 0] + sums[:, 1])
    by_hand = (1 + e[1]) * ((1 + e[0]) * sums[:, 0] + sums[:, 1]) + (1 + e[0]) * sums[:, 2] + sums[:, 3]
    torch.testing.assert_close(a[:, 1].detach(), by_hand)
    torch.autograd.backward(a.sum())
    assert encoder.epsilon.grad is not None
    assert encoder.epsilon.grad.abs().min() > 0


def test_every_hop_has_parameters_of_its_own() -> None:
    encoder = HopEncoder(3, WIDTH, rng())
    assert len({id(p) for p in encoder.parameters()}) == 1 + 3 * 4
    graph, vectors = world()
    views = encoder.eval()(Neighbourhoods(graph, vectors, Fanout((4, 3, 2))), Roots(np.arange(20, dtype=np.int32), 1))
    assert views.shape == (20, 3, WIDTH)


# ---- GIN and GraphSAGE ----


def test_sage_by_hand_with_all_neighbours() -> None:
    graph, vectors = world()
    encoder = sage_encoder(2, WIDTH, rng(), dropout=0.0).eval()
    found = encoder(
        Neighbourhoods(graph, vectors, Fanout((20, 20), pad=False)), Roots(np.arange(20, dtype=np.int32), 5)
    )
    adjacency = graph.matrix().toarray()
    shares = adjacency / np.maximum(adjacency.sum(axis=1, keepdims=True), 1)
    h = vectors
    for layer in encoder.layers:
        weight, bias = (p.detach().numpy() for p in layer.parameters())
        h = np.maximum(np.concatenate([h, shares @ h], axis=1) @ weight.T + bias, 0)
    np.testing.assert_allclose(found[:, 0].detach().numpy(), h, rtol=1e-4, atol=1e-5)


def test_gin_by_hand_with_all_neighbours() -> None:
    graph, vectors = world()
    encoder = gin_encoder(2, WIDTH, rng(), dropout=0.0).eval()
    found = encoder(
        Neighbourhoods(graph, vectors, Fanout((20, 20), pad=False)), Roots(np.arange(20, dtype=np.int32), 5)
    )
    h = torch.from_numpy(vectors)
    adjacency = torch.from_numpy(graph.matrix().toarray())
    layers: Any = encoder.layers
    for layer in layers:
        hidden = torch.relu(layer.norm(layer.first((1 + layer.epsilon) * h + adjacency @ h)))
        h = torch.relu(layer.second(hidden))
    torch.testing.assert_close(found[:, 0], h, rtol=1e-4, atol=1e-4)


# ---- twins ----


def trained(encoder: GraphEncoder, around: Neighbourhoods) -> GraphEncoder:
    """Parameters and running statistics moved away from where they started."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    encoder.train()
    for seed in range(3):
        encoder(around, Roots(np.arange(20, dtype=np.int32), seed))
    return encoder.eval()


ENCODERS: dict[str, Callable[[], GraphEncoder]] = {
    "galaxc": lambda: HopEncoder(3, WIDTH, rng()),
    "no pre-relu": lambda: HopEncoder(3, WIDTH, rng(), pre_relu=False),
    "sage": lambda: sage_encoder(3, WIDTH, rng()),
    "signed sage": lambda: sage_encoder(3, WIDTH, rng(), signed=True),
    "gin": lambda: gin_encoder(3, WIDTH, rng()),
}


@pytest.mark.parametrize("pad", [True, False])
@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_prediction_is_the_forward_pass(make: Callable[[], GraphEncoder], pad: bool, tmp_path: Path) -> None:
    graph, vectors = world()
    around = Neighbourhoods(graph, vectors, Fanout((4, 3, 2), pad))
    encoder = trained(make(), around)
    frozen: FrozenGraphEncoder = encoder.frozen()
    save_part(frozen, tmp_path / "frozen")
    frozen = load_part(tmp_path / "frozen")
    nodes, links = np.arange(20, dtype=np.int32), np.random.default_rng(1).integers(-1, 20, (20, 4)).astype(np.int32)
    own = frozen.of_nodes(around.paths, nodes, 42)
    hidden = HiddenEdges(nodes.astype(np.int64), np.arange(21) * 2, np.tile(np.array([1, 7], np.int32), 20))
    linked = frozen.of_linked(around.paths, vectors, links, 42, hidden)
    with torch.no_grad():
        np.testing.assert_allclose(own.score, encoder(around, Roots(nodes, 42)).numpy(), rtol=1e-4, atol=1e-4)
        roots = Roots(nodes, 42, links, unseen=hidden)
        np.testing.assert_allclose(linked.score, encoder(around, roots).numpy(), rtol=1e-4, atol=1e-4)
    assert own.score.shape == (20, frozen.views, WIDTH)
    assert frozen.views == encoder.views
    np.testing.assert_allclose(own.search, own.score.mean(axis=1), rtol=1e-5)


def test_what_is_searched() -> None:
    graph, vectors = world()
    around = Neighbourhoods(graph, vectors, Fanout((4, 3, 2)))
    encoder = trained(HopEncoder(3, WIDTH, rng()), around)
    nodes = np.arange(20, dtype=np.int32)
    views = encoder.frozen().of_nodes(around.paths, nodes, 0)
    hops = encoder.frozen("convolved")
    assert isinstance(hops, FrozenHops)
    convolved = hops.convolved(around.paths.of_nodes(nodes, 0))
    np.testing.assert_allclose(
        hops.of_nodes(around.paths, nodes, 0).search, convolved.mean(axis=1), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(hops.of_nodes(around.paths, nodes, 0).score, views.score)
    np.testing.assert_allclose(hops.showing("convolved").of_nodes(around.paths, nodes, 0).score, convolved, rtol=1e-6)
    balanced = encoder.frozen(balanced=True).of_nodes(around.paths, nodes, 0).search
    unit = views.score / np.maximum(np.linalg.norm(views.score, axis=2, keepdims=True), 1e-12)
    np.testing.assert_allclose(balanced, unit.mean(axis=1), rtol=1e-4, atol=1e-6)


# ---- freezing ----


def test_a_frozen_encoder_keeps_statistics_and_its_dropout() -> None:
    graph, vectors = world()
    around = Neighbourhoods(graph, vectors, Fanout((4, 3, 2)))
    encoder = HopEncoder(3, WIDTH, rng(), dropout=0.5).train()
    encoder(around, Roots(np.arange(20, dtype=np.int32), 0))
    encoder.freeze()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()
    torch.manual_seed(0)
    first, second = (encoder(around, Roots(np.arange(20, dtype=np.int32), 0)) for _ in range(2))
    assert not torch.equal(first, second), "dropout stays"
    assert not first.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert not any(module.training for module in encoder.modules() if isinstance(module, nn.BatchNorm1d))


def test_kinds_of_twins() -> None:
    assert isinstance(sage_encoder(1, 3, rng()).frozen(), FrozenMessages)
    assert isinstance(sage_encoder(1, 3, rng()), MessageEncoder)
