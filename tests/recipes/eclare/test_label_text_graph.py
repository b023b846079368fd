"""Composed classifier rows: by a naive loop over labels, frozen and trained token vectors, any subset, all variants."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from longtail.nn.blocks import EmbeddingBlock
from longtail.nn.row_tables import Convolution, RowTable
from longtail.recipes.eclare.network import FrozenTexts, LabelTextGraph, LabelTexts, TrainedTexts, component_names
from longtail.recipes.eclare.settings import CompositionConfig, GraphPart
from longtail.training.objectives import ModelAdam
from longtail.types import I32

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS, WORDS, WIDTH = 11, 17, 6


def sparse(shape: tuple[int, int], density: float, rng: np.random.Generator) -> csr_array:
    return csr_array((rng.random(shape) * (rng.random(shape) < density)).astype(np.float32))


class World:
    """Token vectors, label texts (one of them empty) and a graph that is not symmetric."""

    def __init__(self, seed: int = 0, labels: int = LABELS) -> None:
        rng = np.random.default_rng(seed)
        self.table = torch.from_numpy(rng.standard_normal((WORDS, WIDTH), dtype=np.float32))
        texts = sparse((labels, WORDS), 0.3, rng).toarray()
        texts[0] = 0
        self.texts = csr_array(texts)
        self.graph = sparse((labels, labels), 0.2, rng)
        self.free = torch.from_numpy(rng.standard_normal((labels, WIDTH), dtype=np.float32))

    def frozen(self, orders: int) -> FrozenTexts:
        return FrozenTexts.of(self.table, self.texts, self.graph, orders)

    def trained(self, orders: int) -> TrainedTexts:
        return TrainedTexts(RowTable(self.table.clone()), self.texts, self.graph, orders)

    def convolved(self, order: int) -> NDArray[Any]:
        """G^order E Z by dense products in double precision."""
        found = self.texts.toarray().astype(float) @ self.table.double().numpy()
        for _ in range(order):
            found = self.graph.toarray().astype(float) @ found
        return found


def shaken(classifier: LabelTextGraph, seed: int = 5) -> LabelTextGraph:
    """Every trained number moved away from its start, free vectors and token vectors excepted; dropout off."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in classifier.named_parameters():
            if not name.startswith(("free", "texts")):
                parameter.add_(torch.from_numpy(rng.standard_normal(tuple(parameter.shape)).astype(np.float32)) * 0.5)
    return classifier.eval()


def by_block(block: Any, a: NDArray[Any]) -> NDArray[Any]:
    assert isinstance(block, EmbeddingBlock)
    result: NDArray[Any] = a + float(block.scale.detach()) * np.maximum(a, 0) @ block.frozen_weight().double().numpy().T
    return result


def naive(classifier: LabelTextGraph, world: World, orders: int) -> list[NDArray[Any]]:
    """The components, written down from the paper."""
    parts: list[NDArray[Any]] = []
    if classifier.text is not None:
        parts.append(by_block(classifier.text, world.convolved(0)))
    for order, block in enumerate(classifier.gale, start=1):
        parts.append(by_block(block, world.convolved(order)))
    if classifier.gcn is not None:
        parts.append(np.maximum(world.convolved(1) @ classifier.gcn.detach().double().numpy().T, 0))
    if "lightgcn" in classifier.names:
        parts.append(np.mean([world.convolved(order) for order in range(orders)], axis=0))
    if classifier.free is not None:
        parts.append(world.free.double().numpy())
    return parts


CASES: list[tuple[int, dict[str, Any], tuple[str, ...]]] = [
    (2, {}, ("text", "gale1", "free")),
    (3, {}, ("text", "gale1", "gale2", "free")),
    (1, {}, ("text", "free")),
    (2, {"text": False}, ("gale1", "free")),
    (2, {"graph": "none"}, ("text", "free")),
    (2, {"graph": "gcn"}, ("text", "gcn", "free")),
    (3, {"graph": "lightgcn", "text": False}, ("lightgcn", "free")),
    (2, {"free": False}, ("text", "gale1")),
    (2, {"free": False, "graph": "lightgcn", "text": False}, ("lightgcn",)),
    (2, {"graph": "none", "text": False}, ("free",)),
    (2, {"mix": "sum"}, ("text", "gale1", "free")),
    (2, {"mix": "mean", "free": False}, ("text", "gale1")),
    (2, {"mix": "shared"}, ("text", "gale1", "free")),
]


def made(world: World, texts: LabelTexts, options: dict[str, Any]) -> LabelTextGraph:
    options = dict(options)
    free = world.free.clone() if options.pop("free", True) else None
    dropout = options.pop("dropout", 0.2)
    return LabelTextGraph(texts, free, np.random.default_rng(2), CompositionConfig(**options), dropout=dropout)


@pytest.mark.parametrize("train_texts", [False, True])
@pytest.mark.parametrize(("orders", "options", "names"), CASES)
def test_components_and_rows_by_the_formulas(
    orders: int, options: dict[str, Any], names: tuple[str, ...], train_texts: bool
) -> None:
    world = World()
    classifier = shaken(made(world, world.trained(orders) if train_texts else world.frozen(orders), options))
    assert classifier.names == names
    rows, weights, parts = classifier.composed(None)
    expected = naive(classifier, world, orders)
    assert len(parts) == len(expected) == len(names)
    for part, wanted in zip(parts, expected, strict=True):
        np.testing.assert_allclose(part.detach().numpy(), wanted, rtol=1e-4, atol=1e-4)
    mixed = sum(weights[:, place, None].detach().numpy() * wanted for place, wanted in enumerate(expected))
    np.testing.assert_allclose(rows.detach().numpy(), mixed, rtol=1e-4, atol=1e-4)


@pytest.mark.claim("E17")
@pytest.mark.parametrize("k", [1, 2])
def test_order_k_gives_k_plus_two_components_of_the_right_shapes(k: int) -> None:
    world = World()
    classifier = made(world, world.frozen(1 + k), {}).eval()
    rows, weights, parts = classifier.composed(np.array([3, 1, 7], dtype=np.int32))
    assert len(classifier.names) == len(parts) == k + 2
    assert rows.shape == (3, WIDTH)
    assert [tuple(part.shape) for part in parts] == [(3, WIDTH)] * (k + 2)
    assert weights.shape == (3, k + 2)
    torch.testing.assert_close(weights.sum(1), torch.ones(3))
    assert classifier.mix.transform.weight.shape == (WIDTH, WIDTH)
    assert classifier.mix.attend.weight.shape == (k + 2, (k + 2) * WIDTH)


@pytest.mark.claim("E15")
@pytest.mark.parametrize("train_texts", [False, True])
@pytest.mark.parametrize("block", [1, 4, 100])
def test_materialised_rows_give_the_scores_of_composed_ones(train_texts: bool, block: int) -> None:
    world = World()
    classifier = shaken(made(world, world.trained(2) if train_texts else world.frozen(2), {}))
    z = torch.from_numpy(np.random.default_rng(1).random((9, WIDTH), dtype=np.float32))
    composed = z @ classifier.all_rows().detach().T
    classifier.train()
    rows = classifier.materialised(block)
    assert classifier.training, "the mode is put back"
    assert rows.dtype == np.float32
    np.testing.assert_allclose(z.numpy() @ rows.T, composed.numpy(), rtol=0, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    labels=st.integers(2, 12),
    orders=st.integers(1, 3),
    train_texts=st.booleans(),
    data=st.data(),
)
def test_rows_of_some_labels_are_those_of_all(
    seed: int, labels: int, orders: int, train_texts: bool, data: st.DataObject
) -> None:
    world = World(seed, labels)
    classifier = made(world, world.trained(orders) if train_texts else world.frozen(orders), {}).eval()
    chosen = np.array(data.draw(st.lists(st.integers(0, labels - 1), unique=True, max_size=labels)), dtype=np.int32)
    np.testing.assert_allclose(
        classifier.rows(chosen).detach().numpy(), classifier.all_rows().detach().numpy()[chosen], rtol=1e-4, atol=1e-5
    )


def dense_gradient(table: RowTable) -> Tensor:
    """What backward passes left, as a tensor of the table's size."""
    pending = table.take_gradient()
    assert pending is not None
    bags, gradient = pending
    total = torch.zeros_like(table.weight)
    total.index_add_(0, bags.ids.long(), gradient[bags.owners] * bags.weights[:, None])
    return total


@pytest.mark.parametrize("orders", [1, 2, 3])
@pytest.mark.parametrize("some", [True, False])
def test_gradients_reach_token_vectors_and_free_vectors(orders: int, some: bool) -> None:
    """Against torch's own gradients of the same formula with dense matrices."""
    world = World()
    texts = world.trained(orders)
    classifier = made(world, texts, {"mix": "mean"})
    classifier.eval()  # no dropout
    labels = np.array([2, 5, 9], dtype=np.int32) if some else np.arange(LABELS, dtype=np.int32)
    probe = torch.from_numpy(np.random.default_rng(3).standard_normal((len(labels), WIDTH), dtype=np.float32))
    torch.autograd.backward((classifier.composed(labels if some else None)[0] * probe).sum())

    table, free = world.table.clone().requires_grad_(), world.free.clone().requires_grad_()
    convolved = [torch.from_numpy(world.texts.toarray()) @ table]
    for _ in range(1, orders):
        convolved.append(torch.from_numpy(world.graph.toarray()) @ convolved[-1])
    rows = (sum(a + a.clamp(min=0) for a in convolved) + free) / (orders + 1)  # blocks at their start
    assert isinstance(rows, Tensor)
    expected = torch.autograd.grad((rows[torch.from_numpy(labels).long()] * probe).sum(), (table, free))
    torch.testing.assert_close(dense_gradient(texts.table), expected[0], rtol=1e-4, atol=1e-5)
    assert classifier.free is not None
    torch.testing.assert_close(dense_gradient(classifier.free), expected[1], rtol=1e-4, atol=1e-5)


def test_a_step_moves_the_free_vectors_of_named_labels_alone() -> None:
    world = World()
    classifier = made(world, world.frozen(2), {})
    assert classifier.free is not None
    before, adam = classifier.free.weight.detach().clone(), ModelAdam(classifier)
    torch.autograd.backward(classifier.rows(np.array([1, 4], dtype=np.int32)).pow(2).sum())
    adam.step(0.1)
    moved = (classifier.free.weight.detach() != before).any(1)
    assert moved.nonzero().flatten().tolist() == [1, 4]


def test_frozen_texts_are_in_no_checkpoint() -> None:
    world = World()
    names = {name for name, _ in made(world, world.frozen(2), {}).named_parameters()} | set(
        made(world, world.frozen(2), {}).state_dict()
    )
    assert not any(name.startswith("texts") for name in names)


def test_strengths_are_weights_and_lengths_of_components() -> None:
    world = World()
    classifier = shaken(made(world, world.frozen(2), {}))
    weights, lengths = classifier.strengths(block=4)
    _, expected, parts = classifier.composed(None)
    np.testing.assert_allclose(weights, expected.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(
        lengths, np.stack([part.detach().norm(dim=1).numpy() for part in parts], axis=1), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("some", [True, False])
def test_a_bias_is_one_number_more_per_row(free: bool, some: bool) -> None:
    world = World()
    plain, biased = (
        LabelTextGraph(world.frozen(2), world.free.clone() if free else None, np.random.default_rng(2), bias=b).eval()
        for b in (None, -3.0)
    )
    labels = np.array([4, 1], dtype=np.int32) if some else None
    rows = biased.composed(labels)[0]
    torch.testing.assert_close(rows[:, :WIDTH], plain.composed(labels)[0])
    assert (rows[:, WIDTH] == -3).all(), "labels' own biases start at nothing"
    z = torch.rand(3, WIDTH)
    torch.testing.assert_close(biased.inputs(z) @ rows.T, z @ rows[:, :WIDTH].T - 3)
    assert torch.equal(plain.inputs(z), z)
    assert biased.materialised().shape == (LABELS, WIDTH + 1)

    adam = ModelAdam(biased.train())
    torch.autograd.backward(biased.composed(labels)[0][:, WIDTH].sum())
    adam.step(0.1)
    found = biased.eval().all_rows()[:, WIDTH].detach() + 3
    if free and some:
        assert found[4] == found[1] < found[0] < 0, "one number for all, and one of its own for each that was named"
    else:
        assert found[0] < 0
        assert (found == found[0]).all()


def test_dropout_acts_in_training_only() -> None:
    world = World()
    classifier = made(world, world.frozen(2), {"dropout": 0.5})
    torch.manual_seed(0)
    assert not torch.equal(classifier.all_rows(), classifier.all_rows())
    classifier.eval()
    assert torch.equal(classifier.all_rows(), classifier.all_rows())


def test_without_text_only_free_vectors_are_left() -> None:
    world = World()
    classifier = LabelTextGraph(None, world.free.clone(), np.random.default_rng(0))
    assert classifier.names == ("free",)
    assert torch.equal(classifier.eval().all_rows(), world.free)
    assert [name for name, _ in classifier.named_parameters()] == ["free.weight"]


def test_nothing_to_compose_of_is_refused() -> None:
    world = World()
    with pytest.raises(ValueError, match="no component"):
        LabelTextGraph(world.frozen(1), None, np.random.default_rng(0), CompositionConfig(text=False))


@pytest.mark.parametrize(
    ("orders", "text", "graph", "free", "names"),
    [
        (0, True, "gale", True, ("free",)),
        (0, True, "gale", False, ()),
        (1, True, "gcn", True, ("text", "free")),
        (1, False, "lightgcn", False, ()),
        (3, False, "gcn", False, ("gcn",)),
        (3, True, "none", False, ("text",)),
    ],
)
def test_names_follow_from_what_there_is(
    orders: int, text: bool, graph: GraphPart, free: bool, names: tuple[str, ...]
) -> None:
    assert component_names(orders, text=text, graph=graph, free=free) == names


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 9), columns=st.integers(1, 9))
def test_convolution_is_a_product_with_gradients(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    graph = sparse((rows, columns), 0.4, rng)
    values = torch.from_numpy(rng.standard_normal((columns, 4), dtype=np.float32)).requires_grad_()
    probe = torch.from_numpy(rng.standard_normal((rows, 4), dtype=np.float32))
    product = Convolution(graph, "cpu")(values)
    np.testing.assert_allclose(
        product.detach().numpy(), graph.toarray() @ values.detach().numpy(), rtol=1e-4, atol=1e-5
    )
    (gradient,) = torch.autograd.grad((product * probe).sum(), values)
    np.testing.assert_allclose(gradient.numpy(), graph.toarray().T @ probe.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_training_multiplies_as_the_processor_likes_and_what_is_kept_is_exact(
    monkeypatch: pytest.MonkeyPatch, kind: torch.dtype
) -> None:
    """Rows that prediction reads are float32 products everywhere; in training bf16 rounds them, within its eight
    bits.
    """
    world = World()
    classifier = shaken(LabelTextGraph(world.frozen(2), world.free, np.random.default_rng(0), dropout=0.0))

    def rows(products: torch.dtype, *, training: bool) -> Tensor:
        monkeypatch.setattr("longtail.recipes.eclare.network.fastest_products", lambda _: products)
        # A copy: a step of training moves what is known of spectral norms.
        return copy.deepcopy(classifier).train(training).all_rows()

    assert torch.equal(rows(kind, training=False), rows(torch.float32, training=False))
    trained, full = rows(kind, training=True), rows(torch.float32, training=True)
    assert trained.dtype == torch.float32
    assert torch.allclose(trained, full, rtol=0.05, atol=0.05)
    assert torch.equal(trained, full) == (kind == torch.float32)


def test_rows_of_a_step_on_a_cpu_are_composed_in_blocks_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients, and what is known of spectral norms: one step of the power iteration however many
    blocks.
    """
    monkeypatch.setattr("longtail.recipes.eclare.network.fastest_products", lambda _: torch.float32)
    world = World(labels=23)
    start = shaken(
        LabelTextGraph(world.frozen(2), world.free, np.random.default_rng(0), dropout=0.0, bias=-1.0)
    ).train()
    labels = np.delete(np.arange(23, dtype=np.int32), [4, 9])

    def stepped(block: int) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor], Tensor]:
        monkeypatch.setattr("longtail.recipes.eclare.network._STEP_BLOCK", block)
        classifier = copy.deepcopy(start)
        rows = classifier.rows(labels)
        torch.autograd.backward((rows * torch.linspace(0.1, 2.0, rows.numel()).view(rows.shape)).sum())
        assert classifier.free is not None
        found = classifier.free.take_gradient()
        assert found is not None
        order = found[0].ids.argsort()  # a backward pass comes to the blocks in any order
        np.testing.assert_array_equal(found[0].ids[order].numpy(), labels)
        gradients = {
            name: parameter.grad for name, parameter in classifier.named_parameters() if parameter.grad is not None
        }
        return rows.detach(), gradients, dict(classifier.named_buffers()), found[1][order]

    whole, pieces = stepped(4096), stepped(8)
    torch.testing.assert_close(pieces[0], whole[0])
    assert pieces[1].keys() == whole[1].keys()
    assert any(name.startswith("mix.") for name in whole[1])
    for of_whole, of_pieces in zip(whole[1:3], pieces[1:3], strict=True):
        for name, value in of_whole.items():
            torch.testing.assert_close(of_pieces[name], value)
    torch.testing.assert_close(pieces[3], whole[3])


def test_blocks_are_for_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.recipes.eclare.network._STEP_BLOCK", 4)
    world = World()
    sizes: list[int] = []
    classifier = LabelTextGraph(world.frozen(2), world.free, np.random.default_rng(0))
    composed = classifier.composed

    def watched(labels: I32) -> Any:
        sizes.append(len(labels))
        return composed(labels)

    monkeypatch.setattr(classifier, "composed", watched)
    classifier.train().rows(np.arange(10, dtype=np.int32))
    classifier.eval().rows(np.arange(10, dtype=np.int32))
    assert sizes == [4, 4, 2, 10]
