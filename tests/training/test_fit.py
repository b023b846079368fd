"""The training loop: it learns what was planted, resumes bit by bit, and says when a training diverges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import numba
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from longtail.errors import ConfigError
from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.blocks import Residual
from longtail.nn.encoders import BagEncoder, BagSum, Encoder, Refined
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import OneVsAll, RowTable
from longtail.recipes.direct.objective import OneCycle
from longtail.recipes.eclare.network import ComposedCandidates, DocumentBlock, FrozenTexts, LabelTextGraph, TrainedTexts
from longtail.training.fit import Schedule, StepDecay, copy_into, fit, to_array
from longtail.training.objectives import AllTargets, OwnCandidates, TrainingObjective
from longtail.training.run import StageCheckpoint
from longtail.types import I64, Batch, Candidates, Csr

ALL_THREADS, ALL_NUMBA_THREADS = torch.get_num_threads(), numba.get_num_threads()
DOCUMENTS, FEATURES, LABELS, WIDTH = 60, 24, 12, 16


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The data are tiny: a second thread costs more than it brings, above all on a busy machine."""
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(ALL_THREADS)
    numba.set_num_threads(ALL_NUMBA_THREADS)


def planted() -> tuple[Csr, Csr]:
    """Document i has label i % LABELS, and its features are the label's two words and a random one."""
    rng = np.random.default_rng(0)
    labels = np.arange(DOCUMENTS) % LABELS
    words = np.stack([labels, labels + LABELS, rng.integers(0, FEATURES, DOCUMENTS)], axis=1)
    features = np.zeros((DOCUMENTS, FEATURES), dtype=np.float32)
    np.put_along_axis(features, words, 0.6, axis=1)
    return csr_array(features), csr_array(np.eye(LABELS, dtype=np.float32)[labels])


def encoder(*, frozen: bool = False) -> Encoder:
    rng = np.random.default_rng(1)
    table = RowTable.random(FEATURES, WIDTH, rng)
    table.weight.requires_grad_(not frozen)
    return Refined(BagEncoder(table, dropout=0.1), Residual(WIDTH, rng, dropout=0.1))


def all_targets() -> AllTargets:
    features, targets = planted()
    return AllTargets(
        encoder(),
        OneVsAll(LABELS, WIDTH, np.random.default_rng(2), bias=True),
        Documents(Batch(features)),
        DeviceCsr(targets),
    )


def positives_and_random(rows: I64, rng: np.random.Generator) -> Candidates:
    ids = np.concatenate([(rows % LABELS)[:, None], rng.integers(0, LABELS, (len(rows), 4))], axis=1).astype(np.int32)
    ids[:, 1:][ids[:, 1:] == ids[:, :1]] = -1
    targets = np.zeros(ids.shape, dtype=np.float32)
    targets[:, 0] = 1
    return Candidates(ids, targets, ids >= 0)


def own_candidates() -> OwnCandidates:
    trainer = RestrictedTrainer(OneVsAll(LABELS, WIDTH, np.random.default_rng(2)))
    return OwnCandidates(encoder(frozen=True), trainer, Documents(Batch(planted()[0])), positives_and_random)


def composed(kind: type[AllTargets] | type[ComposedCandidates]) -> AllTargets | ComposedCandidates:
    """Label texts are the labels' words, and every label's neighbour is the next one. All targets train token
    vectors, candidates do not.
    """
    rng = np.random.default_rng(1)
    features, targets = planted()
    texts = csr_array(np.hstack([np.eye(LABELS, dtype=np.float32)] * 2))
    graph = csr_array((0.7 * np.eye(LABELS) + 0.3 * np.roll(np.eye(LABELS), 1, axis=1)).astype(np.float32))
    table = RowTable.random(FEATURES, WIDTH, rng)
    network, documents = Refined(BagSum(table), DocumentBlock(WIDTH, rng, dropout=0.1)), Documents(Batch(features))
    if kind is AllTargets:
        return AllTargets(
            network, LabelTextGraph(TrainedTexts(table, texts, graph, 2), None, rng), documents, DeviceCsr(targets)
        )
    table.weight.requires_grad_(False)
    frozen = FrozenTexts.of(table.weight, texts, graph, 2)
    classifier = LabelTextGraph(frozen, frozen.convolved(None)[1].clone(), rng)
    return ComposedCandidates(network, classifier, documents, positives_and_random)


def composed_targets() -> AllTargets | ComposedCandidates:
    return composed(AllTargets)


def composed_candidates() -> AllTargets | ComposedCandidates:
    return composed(ComposedCandidates)


every_objective = pytest.mark.parametrize("make", [all_targets, own_candidates, composed_targets, composed_candidates])


def rng_for(epoch: int) -> np.random.Generator:
    return np.random.default_rng([7, epoch])


class Memory(StageCheckpoint):
    """A checkpoint that keeps bytes, and can refuse to go on after some epochs (a kill)."""

    def __init__(self, killed_after: int | None = None) -> None:
        self.killed_after = killed_after
        self.saved: tuple[int, dict[str, NDArray[Any]]] | None = None

    def due(self, size: int) -> bool:
        return True

    def load(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        return self.saved

    def save(self, epochs_done: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.saved = (epochs_done, {name: array.copy() for name, array in arrays.items()})
        if epochs_done == self.killed_after:
            raise KeyboardInterrupt


def trained(
    objective: TrainingObjective, *, epochs: int = 6, checkpoint: Memory | None = None, schedule: Schedule | None = None
) -> list[float]:
    return fit(
        objective,
        epochs=epochs,
        batch_size=16,
        schedule=schedule or StepDecay(0.02, at=(4,)),
        rng_for=rng_for,
        checkpoint=checkpoint,
    )


def assert_same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@every_objective
def test_learns_what_was_planted(make: Callable[[], AllTargets | OwnCandidates | ComposedCandidates]) -> None:
    objective = make()
    history = trained(objective, epochs=60, schedule=OneCycle(0.05))
    assert len(history) == 60
    assert history[-1] < 0.3 * history[0]
    classifier = objective.trainer.classifier if isinstance(objective, OwnCandidates) else objective.classifier
    vectors = objective.encoder.eval()(objective.documents.rows(np.arange(DOCUMENTS))).score
    right = (classifier.eval().inputs(vectors) @ classifier.all_rows().T).argmax(1).numpy() == np.arange(
        DOCUMENTS
    ) % LABELS
    assert right.mean() > 0.9


@every_objective
def test_same_seed_and_threads_same_bits(make: Callable[[], TrainingObjective]) -> None:
    torch.set_num_threads(ALL_THREADS)
    numba.set_num_threads(ALL_NUMBA_THREADS)
    first, second = make(), make()
    assert trained(first) == trained(second)
    assert_same_bits(first.state(), second.state())


@every_objective
def test_another_seed_other_bits(make: Callable[[], TrainingObjective]) -> None:
    first, second = make(), make()
    trained(first)
    fit(
        second,
        epochs=6,
        batch_size=16,
        schedule=StepDecay(0.02, at=(4,)),
        rng_for=lambda epoch: np.random.default_rng([8, epoch]),
    )
    assert any(not torch.equal(first.state()[name], second.state()[name]) for name in first.state())


@every_objective
@pytest.mark.parametrize("killed_after", [1, 4])
def test_resuming_gives_the_same_bits(make: Callable[[], TrainingObjective], killed_after: int) -> None:
    straight = make()
    history = trained(straight)
    checkpoint = Memory(killed_after)
    with pytest.raises(KeyboardInterrupt):
        trained(make(), checkpoint=checkpoint)
    resumed = make()
    assert trained(resumed, checkpoint=checkpoint) == history
    assert_same_bits(resumed.state(), straight.state())


def test_a_finished_training_is_only_loaded() -> None:
    checkpoint, calls = Memory(), 0
    trained(all_targets(), checkpoint=checkpoint)

    def count(done: int, total: int, loss: float) -> None:
        nonlocal calls
        calls += 1

    again = all_targets()
    history = fit(
        again, epochs=6, batch_size=16, schedule=StepDecay(0.02), rng_for=rng_for, checkpoint=checkpoint, on_batch=count
    )
    assert len(history) == 6
    assert calls == 0


def test_frozen_parameters_are_neither_saved_nor_changed() -> None:
    assert not any("table" in name for name in composed_candidates().state())
    objective = own_candidates()
    names = objective.state().keys()
    assert not any("table" in name for name in names)
    assert {"encoder.block.weight", "encoder.block.spectral.left", "classifier.rows", "classifier.adam.first"} <= names
    (table,) = (module for module in objective.encoder.modules() if isinstance(module, RowTable))
    before = table.weight.clone()
    trained(objective)
    assert torch.equal(table.weight, before)


def test_every_part_of_the_model_is_trained() -> None:
    for objective in (all_targets(), own_candidates(), composed_targets(), composed_candidates()):
        before = {name: value.clone() for name, value in objective.state().items()}
        trained(objective)
        assert [name for name, value in objective.state().items() if torch.equal(value, before[name])] == []


class Planned:
    """An objective that reports given losses and remembers what it was asked."""

    def __init__(self, losses: list[float], size: int = 10) -> None:
        self.losses, self.size = losses, size
        self.rows: list[list[int]] = []
        self.rates: list[float] = []

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        self.rows.append(rows.tolist())
        self.rates.append(rate)
        return torch.tensor(self.losses[len(self.rows) - 1])

    def state(self) -> dict[str, Tensor]:
        return {"steps": torch.tensor(len(self.rows))}


def test_every_document_once_per_epoch_in_random_order() -> None:
    objective = Planned([1.0] * 6)
    fit(objective, epochs=2, batch_size=4, schedule=StepDecay(1.0), rng_for=rng_for)
    assert [len(rows) for rows in objective.rows] == [4, 4, 2, 4, 4, 2]
    epochs = [list(chain(*objective.rows[i : i + 3])) for i in (0, 3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(10))
    assert epochs[0] != epochs[1]
    assert epochs[0] != list(range(10))


def test_an_objective_may_say_in_which_order_documents_come() -> None:
    class Backwards(Planned):
        def order(self, rng: np.random.Generator) -> I64:
            return np.arange(self.size)[::-1].astype(np.int64)

    objective = Backwards([1.0] * 3)
    fit(objective, epochs=1, batch_size=4, schedule=StepDecay(1.0), rng_for=rng_for)
    assert list(chain(*objective.rows)) == list(range(10))[::-1]


def test_history_is_the_mean_over_documents_and_progress_is_told() -> None:
    told: list[tuple[int, int, float]] = []
    objective = Planned([1.0, 2.0, 6.0])
    history = fit(
        objective,
        epochs=1,
        batch_size=4,
        schedule=StepDecay(1.0),
        rng_for=rng_for,
        on_batch=lambda *seen: told.append(seen),
    )
    assert history == [pytest.approx((4 * 1 + 4 * 2 + 2 * 6) / 10)]
    assert told == [(1, 3, 1.0), (2, 3, 2.0), (3, 3, 6.0)]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_divergence_names_the_epoch_and_keeps_the_last_good_one(bad: float) -> None:
    checkpoint = Memory()
    objective = Planned([1.0, 1.0, 1.0, bad])
    with pytest.raises(ConfigError, match="epoch 2 of 5") as problem:
        fit(objective, epochs=5, batch_size=4, schedule=StepDecay(0.5), rng_for=rng_for, checkpoint=checkpoint)
    assert "lower learning rate" in problem.value.hint
    assert "0.5" in problem.value.message
    assert checkpoint.saved is not None
    assert checkpoint.saved[0] == 1
    assert len(objective.rows) == 4


def test_a_rate_that_is_far_too_high_is_noticed() -> None:
    with pytest.raises(ConfigError, match="diverged"):
        trained(all_targets(), epochs=50, schedule=StepDecay(1e30))


def test_step_decay_halves_at_the_start_of_an_epoch() -> None:
    schedule = StepDecay(0.8, at=(2, 4))
    assert [schedule.rate(e, 6) for e in (0, 1.99, 2, 3.5, 4, 5.9)] == [0.8, 0.8, 0.4, 0.4, 0.2, 0.2]


@pytest.mark.parametrize(
    ("share", "epochs", "at"),
    [(0.5, 10, (5,)), (0.5, 1, ()), (0.5, 3, (2,)), (0.25, 8, (2, 4, 6)), (1.0, 9, ()), (0.4, 10, (4, 8))],
)
def test_decay_after_every_share_of_the_epochs(share: float, epochs: int, at: tuple[int, ...]) -> None:
    assert StepDecay.every(0.8, share, epochs) == StepDecay(0.8, at)


def test_a_step_without_candidates_changes_nothing() -> None:
    objective = composed_candidates()
    assert isinstance(objective, ComposedCandidates)
    nothing = np.full((2, 3), -1, dtype=np.int32)
    objective.candidates = lambda rows, rng: Candidates(nothing, np.zeros((2, 3), dtype=np.float32), nothing >= 0)
    before = {name: value.clone() for name, value in objective.state().items()}
    assert float(objective.step(np.arange(2), np.random.default_rng(0), 0.1)) == 0
    assert_same_bits(objective.state(), before)


def test_one_cycle_rises_to_the_peak_and_falls_to_nothing() -> None:
    schedule = OneCycle(1.0, warm_up=0.25, start_divisor=25)
    rates = [schedule.rate(e / 10, 10) for e in range(101)]
    assert rates[0] == pytest.approx(1 / 25)
    assert rates[25] == pytest.approx(1)
    assert rates[100] == pytest.approx(0)
    assert np.all(np.diff(rates[:26]) > 0)
    assert np.all(np.diff(rates[25:]) < 0)


def test_the_schedule_is_followed_inside_epochs() -> None:
    objective = Planned([1.0] * 6)
    schedule = OneCycle(1.0)
    fit(objective, epochs=2, batch_size=4, schedule=schedule, rng_for=rng_for)
    assert objective.rates == [schedule.rate(e, 2) for e in (0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_arrays_keep_the_bits(dtype: torch.dtype) -> None:
    tensor = torch.tensor([1.5, -2.25, 3.0]).to(dtype)
    array = to_array(tensor)
    array.flags.writeable = False
    target = torch.zeros_like(tensor)
    copy_into(target, array)
    assert torch.equal(target, tensor)


def test_masked_pairs_are_neither_right_nor_wrong() -> None:
    """Label 3 is masked in every document: its row stays as it was, unless pairs without a target count as
    negatives.
    """
    features, targets = planted()
    targets = targets.tolil()
    targets[:, 3] = 0
    masked = np.zeros(targets.shape, dtype=np.float32)
    masked[:, 3] = 1
    for hidden, stays in ((DeviceCsr(csr_array(masked)), True), (None, False)):
        objective = AllTargets(
            encoder(),
            OneVsAll(LABELS, WIDTH, np.random.default_rng(2)),
            Documents(Batch(features)),
            DeviceCsr(csr_array(targets)),
            hidden,
        )
        before = objective.classifier.all_rows().detach().clone()
        trained(objective)
        changed = (objective.classifier.all_rows().detach() != before).any(dim=1)
        assert bool(changed[3]) is not stays
        assert bool(changed[[0, 1, 2, 4]].all())


def test_shapes_that_do_not_fit_are_refused() -> None:
    features, targets = planted()
    with pytest.raises(ValueError, match="12"):
        AllTargets(
            encoder(),
            OneVsAll(LABELS + 1, WIDTH, np.random.default_rng(2)),
            Documents(Batch(features)),
            DeviceCsr(targets),
        )


@pytest.mark.parametrize("make", [all_targets, composed_targets])
def test_products_with_all_targets_are_of_the_type_that_is_fastest_here(
    make: Callable[[], AllTargets], monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses(kind: torch.dtype) -> list[float]:
        monkeypatch.setattr("longtail.training.objectives.fastest_products", lambda _: kind)
        monkeypatch.setattr("longtail.recipes.eclare.network.fastest_products", lambda _: torch.float32)
        torch.manual_seed(0)
        objective = make()
        assert objective.compute == kind
        return [float(objective.step(np.arange(32), np.random.default_rng(0), 0.01)) for _ in range(3)]

    exact, rounded = losses(torch.float32), losses(torch.bfloat16)
    assert exact != rounded
    assert exact == pytest.approx(rounded, rel=0.02)
