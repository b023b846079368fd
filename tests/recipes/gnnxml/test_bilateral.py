"""Training of the two-branch matcher: the reversed sampler, the balance, gradients of the mixed loss, stopping and
resuming.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chisquare

from longtail.recipes.gnnxml.keygraph import KeyGraphs
from longtail.recipes.gnnxml.network import (
    BALANCES,
    CONVENTIONAL,
    REBALANCE,
    Bilateral,
    BilateralGin,
    DeviceGraphs,
    ModelRAdam,
    ReversedSampler,
    balance_at,
    positive_weight,
)
from longtail.training.fit import WarmUp, fit

# Label sets {0, 1}, {0, 1}, {0}, {2}, {2, 1}; label 3 has no document.
EXAMPLE = csr_array(np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0]], dtype=np.float32))
CLUSTERS = 5


@pytest.fixture(scope="module", autouse=True)
def quick(one_thread: None) -> None:
    """Tiny matrices: one thread."""


# ---- N1, N5 ----


@pytest.mark.claim("N1")
def test_chances_of_the_reversed_sampler_in_the_example() -> None:
    np.testing.assert_allclose(ReversedSampler(EXAMPLE).chances(), [2 / 7, 2 / 7, 3 / 7, 0], atol=1e-12)


@pytest.mark.claim("N1", "N13")
def test_the_parabola() -> None:
    found = [balance_at("parabolic", epoch, 10) for epoch in range(10)]
    np.testing.assert_allclose(found, [1, 0.99, 0.96, 0.91, 0.84, 0.75, 0.64, 0.51, 0.36, 0.19], atol=1e-12)


def test_other_balances() -> None:
    assert [balance_at("linear", epoch, 4) for epoch in range(4)] == [1, 0.75, 0.5, 0.25]
    assert balance_at("cosine", 1, 3) == pytest.approx(3**0.5 / 2)
    assert {balance_at("constant", epoch, 4) for epoch in range(4)} == {0.5}
    assert balance_at("reversed", 0, 5) == 0
    for kind in BALANCES:
        assert 0 <= balance_at(kind, 3, 7) <= 1


@pytest.mark.claim("N5")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_drawn_labels_follow_their_chances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets = csr_array((rng.random((60, 15)) < rng.uniform(0.03, 0.6, 15)).astype(np.float32))
    sampler, draws = ReversedSampler(targets), 100_000
    counts = np.bincount(sampler.draw_labels(draws, rng), minlength=15)
    possible = sampler.chances() > 0
    assert not counts[~possible].any()
    assert chisquare(counts[possible], draws * sampler.chances()[possible]).pvalue > 0.001


@pytest.mark.claim("N5")
@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_a_drawn_document_carries_the_drawn_label(seed: int) -> None:
    targets = csr_array((np.random.default_rng(seed).random((20, 8)) < 0.2).astype(np.float32))
    targets.data[:] = 1
    if targets.nnz:
        sampler, y = ReversedSampler(targets), targets.toarray()
        labels, documents = (
            sampler.draw_labels(200, np.random.default_rng(seed)),
            sampler.draw(200, np.random.default_rng(seed)),
        )
        assert (y[documents, labels] == 1).all()


def test_documents_of_a_label_are_drawn_alike_and_nobody_of_nothing() -> None:
    one_label = csr_array(np.ones((10, 1), dtype=np.float32))
    counts = np.bincount(ReversedSampler(one_label).draw(20_000, np.random.default_rng(3)), minlength=10)
    assert chisquare(counts).pvalue > 0.001
    with pytest.raises(ValueError, match="no label has a document"):
        ReversedSampler(csr_array((3, 2), dtype=np.float32))


# ---- the objective ----


def objective(
    make_graphs: Callable[..., KeyGraphs], *, validation: int = 8, documents: int = 40, **how: Any
) -> Bilateral:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, documents)
    graphs = make_graphs(sizes, width=6)
    graphs.sentences[:, :CLUSTERS] *= 0.1
    targets = np.zeros((documents, CLUSTERS), dtype=np.float32)
    for document in range(documents):
        cluster = document % CLUSTERS
        targets[document, cluster] = 1
        graphs.sentences[graphs.sentence_starts[document] : graphs.sentence_starts[document + 1], cluster] += 1
    network = {name: how.pop(name) for name in ("branches", "share", "dropout") if name in how}
    model = BilateralGin(6, CLUSTERS, np.random.default_rng(1), width=7, **network)
    train = np.arange(documents - validation)
    matrix = csr_array(targets)
    return Bilateral(
        model,
        DeviceGraphs(graphs),
        matrix,
        train,
        np.arange(documents - validation, documents),
        ReversedSampler(matrix[train]),
        **how,
    )


def trained(made: Bilateral, epochs: int = 12, **more: Any) -> list[float]:
    return fit(
        made,
        epochs=epochs,
        batch_size=8,
        schedule=WarmUp(0.01),
        rng_for=lambda e: np.random.default_rng([9, e]),
        watch=made,
        **more,
    )


@pytest.mark.claim("N13")
@pytest.mark.parametrize(("alpha", "silent", "other"), [(1.0, REBALANCE, CONVENTIONAL), (0.0, CONVENTIONAL, REBALANCE)])
@pytest.mark.parametrize("share", ["none", "all_but_last"])
def test_at_either_end_the_other_branch_learns_nothing(
    make_graphs: Callable[..., KeyGraphs], alpha: float, silent: str, other: str, share: str
) -> None:
    made = objective(make_graphs, share=share)
    made.model.train()
    torch.autograd.backward(made.loss(np.arange(8), np.arange(8, 16), alpha))
    for name, branch in made.model.branches.items():
        gradients = [p.grad for p in branch.parameters() if p.requires_grad]
        total = sum(float(g.abs().sum()) for g in gradients if g is not None)
        assert total == 0.0 if name == silent else total > 0, name
    assert balance_at("parabolic", 0, 30) == 1.0


def test_the_mixed_loss_is_the_formula(make_graphs: Callable[..., KeyGraphs]) -> None:
    made = objective(make_graphs)
    made.model.eval()
    alpha, first, second = 0.3, np.array([0, 3, 9]), np.array([7, 7, 2])
    with torch.no_grad():
        h_c = made.model.represent(made.graphs.rows(first), [CONVENTIONAL])[CONVENTIONAL]
        h_r = made.model.represent(made.graphs.rows(second), [REBALANCE])[REBALANCE]
        mixed = torch.sigmoid(
            alpha * made.model.branches[CONVENTIONAL](h_c) + (1 - alpha) * made.model.branches[REBALANCE](h_r)
        ).double()

        def entropy(documents: Any) -> Any:
            g = torch.zeros(3, CLUSTERS, dtype=torch.float64)
            for place, document in enumerate(documents):
                g[place, document % CLUSTERS] = 1
            return -(made.positive_weight * g * torch.log(mixed) + (1 - g) * torch.log(1 - mixed)).mean()

        expected = alpha * entropy(first) + (1 - alpha) * entropy(second)
        assert float(made.loss(first, second, alpha)) == pytest.approx(float(expected), rel=1e-5)
    assert made.positive_weight == pytest.approx(4.0)


def test_weight_of_positives() -> None:
    assert positive_weight(csr_array(np.eye(4, dtype=np.float32))) == pytest.approx(3)
    assert positive_weight(csr_array(np.eye(100, dtype=np.float32))) == 10
    assert positive_weight(csr_array(np.ones((2, 2), dtype=np.float32))) == 1
    assert positive_weight(csr_array((2, 2), dtype=np.float32)) == 1


@pytest.mark.parametrize("branches", ["both", CONVENTIONAL, REBALANCE])
def test_it_learns(make_graphs: Callable[..., KeyGraphs], branches: str) -> None:
    made = objective(make_graphs, branches=branches, documents=160, validation=20)
    before = made.validation_loss()
    trained(made, 10)
    assert made.validation_loss() < before / 2
    with torch.no_grad():
        found = made.model.eval()(made.graphs.rows(made.validation)).argmax(dim=1).numpy()
    assert (found == made.validation % CLUSTERS).mean() > 0.6


# ---- epochs ----


def test_the_balance_moves_from_epoch_to_epoch(make_graphs: Callable[..., KeyGraphs]) -> None:
    made, seen = objective(make_graphs), []
    made.begins(0, 3)
    step = made.step

    def watched(*arguments: Any) -> Any:
        seen.append(made.alpha)
        return step(*arguments)

    made.step = watched  # type: ignore[method-assign,assignment]
    trained(made, 3)
    assert sorted(set(seen), reverse=True) == [balance_at("parabolic", epoch, 3) for epoch in range(3)]


def test_the_best_epoch_is_taken_but_none_of_the_first(
    make_graphs: Callable[..., KeyGraphs], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = objective(make_graphs, fewest_epochs=3)
    losses = iter([0.5, 0.2, 0.4, 0.3, 0.6])
    weights = []
    ended = made.ended

    def note(epoch: int, epochs: int) -> None:
        ended(epoch, epochs)
        weights.append(next(made.model.parameters()).detach().clone())

    monkeypatch.setattr(made, "validation_loss", lambda: next(losses))
    monkeypatch.setattr(made, "ended", note)
    trained(made, 7)
    assert len(weights) == 7
    made.take_best()
    assert torch.equal(next(made.model.parameters()), weights[3]), "epochs 3 to 7 have losses 0.5, 0.2, 0.4, 0.3, 0.6"


def test_training_stops_when_it_no_longer_helps(
    make_graphs: Callable[..., KeyGraphs], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = objective(make_graphs, patience=2, fewest_epochs=2)
    monkeypatch.setattr(made, "validation_loss", lambda: 1.0)
    assert len(trained(made, 20)) == 4, "the second epoch is the best, two more bring nothing"


def test_without_documents_to_validate_on_the_last_epoch_stays(make_graphs: Callable[..., KeyGraphs]) -> None:
    made = objective(make_graphs, validation=0, patience=1)
    assert len(trained(made, 4)) == 4
    last = [p.detach().clone() for p in made.model.parameters()]
    made.take_best()
    assert all(torch.equal(a, b) for a, b in zip(last, made.model.parameters(), strict=True))


class Memory:
    """Keeps every checkpoint."""

    def __init__(self, saved: tuple[int, dict[str, Any]] | None = None) -> None:
        self.saved = saved
        self.all: dict[Any, Any] = {}

    def due(self, size: int) -> bool:
        return True

    def load(self) -> tuple[int, dict[str, Any]] | None:
        return self.saved

    def save(self, epochs_done: int, arrays: Mapping[str, Any]) -> None:
        self.all[epochs_done] = (epochs_done, {name: array.copy() for name, array in arrays.items()})


@pytest.mark.parametrize("done", [1, 4, 6])
def test_a_resumed_training_gives_the_same_bits(make_graphs: Callable[..., KeyGraphs], done: int) -> None:
    how: dict[str, Any] = {"fewest_epochs": 2, "patience": 3, "dropout": 0.3}
    whole, memory = objective(make_graphs, **how), Memory()
    losses = trained(whole, 6, checkpoint=memory)
    resumed = objective(make_graphs, **how)
    assert trained(resumed, 6, checkpoint=Memory(memory.all[done])) == losses
    for name, value in whole.state().items():
        assert torch.equal(value, resumed.state()[name]), name


def test_a_training_that_had_stopped_stays_stopped(
    make_graphs: Callable[..., KeyGraphs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bilateral, "validation_loss", lambda self: 1.0)
    memory = Memory()
    assert len(trained(objective(make_graphs, patience=1), 9, checkpoint=memory)) == 2
    assert len(trained(objective(make_graphs, patience=1), 9, checkpoint=Memory(memory.all[2]))) == 2


# ---- the optimiser and its rate ----


def test_radam_is_that_of_torch_and_its_state_can_be_put_back() -> None:
    def made(seed: int) -> torch.nn.Linear:
        torch.manual_seed(seed)
        return torch.nn.Linear(3, 2)

    ours, theirs = made(0), made(0)
    mine, other = ModelRAdam(ours), torch.optim.RAdam(theirs.parameters(), lr=0.1)
    for number in range(8):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(number))
        for model in (ours, theirs):
            model(x).pow(2).sum().backward()
        mine.step(0.1)
        other.step()
        other.zero_grad()
    torch.testing.assert_close(ours.weight, theirs.weight)
    assert set(mine.state()) == {
        f"{name}.{moment}" for name in ("weight", "bias") for moment in ("step", "exp_avg", "exp_avg_sq")
    }
    assert float(mine.state()["weight.step"]) == 8


def test_warm_up() -> None:
    schedule = WarmUp(2.0, 0.1, 0.5)
    assert [schedule.rate(epoch, 10) for epoch in (0, 0.5, 1, 5.5, 10)] == pytest.approx([0, 1, 2, 1.5, 1])
    assert WarmUp(2.0, 0.0).rate(0, 10) == 2
    assert WarmUp(2.0, 1.0).rate(5, 10) == 1


def test_the_best_epoch_may_be_that_of_rare_labels(make_graphs: Callable[..., KeyGraphs]) -> None:
    """Worth that the best cluster of a document holds is found, the rest is missed."""
    plain = objective(make_graphs, balance="constant")
    worth = np.zeros((40, CLUSTERS), dtype=np.float32)
    worth[:, 0], worth[:, 1] = 1.0, 3.0
    made = objective(make_graphs, balance="constant", worth=(csr_array(worth), 1))
    made.model.eval()
    with torch.no_grad():
        rows = made.graphs.rows(made.validation)
        best = made.model(rows).argmax(dim=1).numpy()
    expected = 1 - (np.sum(best == 0) + 3 * np.sum(best == 1)) / (4 * len(best))
    assert made.missed_worth(block=3) == pytest.approx(expected, abs=1e-6)
    assert made.model.training
    made.ended(0, 1)
    plain.ended(0, 1)
    assert float(made.progress[0]) == pytest.approx(expected, abs=1e-6)
    assert float(plain.progress[0]) == pytest.approx(plain.validation_loss())
    everything = objective(make_graphs, balance="constant", worth=(csr_array(worth), 99))
    assert everything.missed_worth() == pytest.approx(0, abs=1e-6)
