"""A training step over a joint graph: the loss against a plain loop, what is updated, and at which rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from longtail.recipes.galaxc.graph import Fanout, JointGraph, document_nodes, joint_graph
from longtail.recipes.galaxc.network import (
    HopEncoder,
    LabelAttention,
    LinkHead,
    Neighbourhoods,
    Roots,
    SharedHead,
    sage_encoder,
)
from longtail.recipes.galaxc.objective import (
    BatchLabels,
    GraphDocuments,
    SharedCandidates,
    SharedLabels,
    random_labels,
    shared_bce,
)
from longtail.training.fit import StepDecay, copy_into, fit, to_array

pytestmark = pytest.mark.usefixtures("one_thread")

N, L, D = 30, 8, 6
NOBODY = np.zeros((0, 2), np.int64)


def world() -> tuple[JointGraph, Any, Any]:
    """Documents of one or two labels, and vectors from which the labels can be read."""
    rng = np.random.default_rng(0)
    y = np.zeros((N, L), np.float32)
    y[np.arange(N), np.arange(N) % L] = 1
    y[np.arange(N), rng.integers(0, L, N)] = 1
    targets = csr_array(y)
    graph = joint_graph(targets, document_nodes(N, L, NOBODY), rng)
    labels = rng.standard_normal((L, D)).astype(np.float32)
    return graph, np.concatenate([labels, y @ labels + 0.1 * rng.standard_normal((N, D))]).astype(np.float32), targets


def tables(made: SharedCandidates) -> list[Tensor]:
    """Classifiers, attention weights and eps."""
    assert isinstance(made.head, LabelAttention)
    assert isinstance(made.encoder, HopEncoder)
    logits = made.head.logits.weight
    assert isinstance(logits, Tensor)
    return [made.head.weights.weight, logits, made.encoder.epsilon]


def objective(
    seed: int = 0, *, random: int = L, links: Any = None, hide: float = 0.0, factor: float = 1.0, dropout: float = 0.0
) -> SharedCandidates:
    graph, vectors, targets = world()
    rng = np.random.default_rng(seed)
    around = Neighbourhoods(graph, vectors, Fanout((3, 2)))
    documents = GraphDocuments(around, graph.nodes, links, targets, hide=hide)
    head = LabelAttention(L, 2, D, rng)
    return SharedCandidates(
        HopEncoder(2, D, rng, dropout=dropout),
        head,
        documents,
        BatchLabels(targets, NOBODY, random_labels(L, random)),
        attention_factor=factor,
    )


# ---- loss ----


def test_the_loss_is_a_mean_over_all_pairs_that_count() -> None:
    torch.manual_seed(0)
    z, rows = torch.randn(3, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    shared = SharedLabels(
        np.arange(4, dtype=np.int32),
        np.array([0, 2, 2, 3]),
        np.array([0, 3, 1], np.int32),
        np.array([[0, 1], [1, 1], [2, 3]]),
    )
    targets, counts = torch.zeros(3, 4), torch.ones(3, 4, dtype=torch.bool)
    targets[0, 0] = targets[0, 3] = targets[2, 1] = 1
    counts[0, 1] = counts[1, 1] = counts[2, 3] = False
    loss = shared_bce(z, rows, shared)
    expected = torch.nn.functional.binary_cross_entropy_with_logits((z @ rows.T)[counts], targets[counts])
    torch.testing.assert_close(loss, expected)
    for found, wanted in zip(
        torch.autograd.grad(loss, (z, rows)), torch.autograd.grad(expected, (z, rows)), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_training_lowers_the_loss_and_finds_the_labels() -> None:
    made = objective()
    losses = fit(
        made, epochs=60, batch_size=8, schedule=StepDecay(0.02), rng_for=lambda epoch: np.random.default_rng(epoch)
    )
    assert losses[-1] < 0.3 * losses[0]
    made.model.eval()
    with torch.no_grad():
        x = made.encoder(made.documents.around, Roots(made.documents.nodes, 0))
        scores = made.head.inputs(x) @ made.head.rows(torch.arange(L, dtype=torch.int32), 0).T
    _, _, targets = world()
    assert float(np.asarray(targets.toarray()[np.arange(N), scores.argmax(dim=1)]).mean()) > 0.9


def test_labels_that_a_step_does_not_name_stay_as_they_are() -> None:
    made = objective(random=0)
    before = [to_array(table) for table in tables(made)]
    rows = np.array([0, 8])
    _, _, targets = world()
    named = np.unique(targets[rows].indices)
    made.step(rows, np.random.default_rng(0), 0.1)
    for table, old in zip(tables(made)[:2], before[:2], strict=True):
        changed = np.any(table.detach().numpy() != old, axis=1)
        np.testing.assert_array_equal(np.flatnonzero(changed), named)


def test_attention_has_a_rate_of_its_own() -> None:
    """Adam's first step moves every touched number by its rate."""
    made = objective(factor=50.0)
    before = [to_array(table) for table in tables(made)]
    made.step(np.arange(8), np.random.default_rng(0), 0.001)
    for tensor, old, rate in zip(tables(made), before, (0.001, 0.05, 0.001), strict=True):
        np.testing.assert_allclose(np.abs(tensor.detach().numpy() - old).max(), rate, rtol=1e-2)


# ---- hidden edges ----


def test_a_share_of_the_documents_is_hidden() -> None:
    graph, vectors, targets = world()
    links = np.zeros((N, 2), np.int32)
    documents = GraphDocuments(Neighbourhoods(graph, vectors, Fanout((2,))), graph.nodes, links, targets, hide=0.25)
    rng = np.random.default_rng(0)
    hidden = [documents.roots(np.arange(N), rng).hidden for _ in range(100)]
    assert np.mean([h for h in hidden if h is not None]) == pytest.approx(0.25, abs=0.03)
    assert len({tuple(h.tolist()) for h in hidden if h is not None}) > 50, "others in every step"
    with pytest.raises(ValueError, match="links"):
        GraphDocuments(documents.around, graph.nodes, hide=0.5)


def test_hidden_documents_cannot_copy_their_labels() -> None:
    """All are linked to nothing: with their own edges the labels are in the sums, without them they are not."""
    graph, vectors, targets = world()
    around = Neighbourhoods(graph, vectors, Fanout((3, 2)))
    open_, hidden = (
        GraphDocuments(around, graph.nodes, np.full((N, 1), -1, np.int32), targets, hide=share).roots(
            np.arange(N), np.random.default_rng(0)
        )
        for share in (0.0, 1.0)
    )
    assert around.sums(open_)[:, 1:].abs().sum() > 0
    assert around.sums(hidden)[:, 1:].abs().sum() == 0


def test_only_the_edges_to_its_own_labels_are_hidden_from_a_document() -> None:
    """Document 0 is label 0 and has label 1; documents 1 and 2 have label 0. Its node is the label's: it still leads to
    the documents of that label, and they to it.
    """
    targets = csr_array(np.array([[0, 1, 0], [1, 0, 0], [1, 0, 1]], np.float32))
    nodes = document_nodes(3, 3, np.array([[0, 0]]))
    graph = joint_graph(targets, nodes, np.random.default_rng(0))
    around = Neighbourhoods(graph, np.eye(len(graph), dtype=np.float32), Fanout((8, 8)))
    # Linked to its own node (a new document with that text finds the label, too), and to its label.
    links = np.array([[0, 1]] * 3, np.int32)
    documents = GraphDocuments(around, nodes, links, targets, hide=1.0)
    by_neighbours = around.sums(documents.roots(np.array([0]), np.random.default_rng(0)))[0, 3]
    first, second = nodes[1:].tolist()
    assert by_neighbours[1] == 0, "from its node to its label"
    assert by_neighbours[0] == 0, "from its label to its node"
    assert by_neighbours[first] > 0
    assert by_neighbours[second] > 0, "documents of the label that it is"
    linked_to_one = np.full((3, 1), first, np.int32)
    other = GraphDocuments(around, nodes, linked_to_one, targets, hide=1.0)
    back = around.sums(other.roots(np.array([0]), np.random.default_rng(0)))[0, 3]
    assert back[0] > 0, "a document of the label still leads to the label"


def test_samples_are_fixed_where_the_settings_say_so() -> None:
    graph, vectors, _ = world()
    around, rng = Neighbourhoods(graph, vectors, Fanout((2,))), np.random.default_rng(0)
    assert len({GraphDocuments(around, graph.nodes, fixed=True).roots(np.arange(3), rng).seed for _ in range(5)}) == 1
    assert len({GraphDocuments(around, graph.nodes).roots(np.arange(3), rng).seed for _ in range(5)}) == 5


# ---- going on ----


def test_the_state_is_all_there_is() -> None:
    """Two epochs, then two more from the saved state, are four epochs, bit by bit."""
    links = np.tile(np.arange(4, dtype=np.int32), (N, 1))

    def rng_for(epoch: int) -> np.random.Generator:
        return np.random.default_rng([5, epoch])

    def new() -> SharedCandidates:
        return objective(links=links, hide=0.5, factor=10.0, dropout=0.5, random=3)

    whole, half, rest = new(), new(), new()
    for epochs, made in ((4, whole), (2, half)):
        fit(made, epochs=epochs, batch_size=7, schedule=StepDecay(0.01), rng_for=rng_for)
    saved = {name: to_array(value) for name, value in half.state().items()}
    for name, value in rest.state().items():
        copy_into(value, saved[name])
    fit(rest, epochs=2, batch_size=7, schedule=StepDecay(0.01), rng_for=lambda epoch: rng_for(epoch + 2))
    for name, value in whole.state().items():
        np.testing.assert_array_equal(to_array(value), to_array(rest.state()[name]), err_msg=name)


# ---- link prediction ----


def test_links_are_predicted_by_the_cosine_of_embeddings() -> None:
    graph, vectors, targets = world()
    around, rng = Neighbourhoods(graph, vectors, Fanout((3, 2))), np.random.default_rng(0)
    encoder = sage_encoder(2, D, rng, dropout=0.0, signed=True)
    head: SharedHead = LinkHead(encoder, around, L)
    made = SharedCandidates(
        encoder, head, GraphDocuments(around, graph.nodes), BatchLabels(targets, NOBODY, random_labels(L, L))
    )
    losses = fit(
        made, epochs=40, batch_size=10, schedule=StepDecay(0.01), rng_for=lambda epoch: np.random.default_rng(epoch)
    )
    assert losses[-1] < 0.7 * losses[0]
    made.model.eval()
    with torch.no_grad():
        x = encoder(around, Roots(graph.nodes, 0))
        z = encoder(around, Roots(np.arange(L, dtype=np.int32), 0))
        scores = head.inputs(x) @ head.rows(torch.arange(L, dtype=torch.int32), 0).T
        cosines = torch.nn.functional.cosine_similarity(x, z[:, 0][None], dim=2)
    assert isinstance(head, LinkHead)
    torch.testing.assert_close(scores, head.scale * cosines + head.shift, rtol=1e-4, atol=1e-4)
