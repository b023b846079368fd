"""Recorded steps on a GPU: the losses and states of plain steps, up to rounding; going on from a saved state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch import Tensor

from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.blocks import Residual
from longtail.nn.encoders import BagEncoder, BagSum, DenseEncoder, Encoder, Refined
from longtail.nn.row_tables import RowTable
from longtail.recipes.direct.as_one import side_by_side
from longtail.recipes.direct.objective import AllLabels, OneCycle, TextRows, marked_targets
from longtail.recipes.direct.recorded import RecordedSteps, why_not
from longtail.training.fit import copy_into, fit, to_array
from longtail.types import Batch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

DOCUMENTS, WORDS, LABELS, BATCH = 700, 900, 333, 64


def sparse(rows: int, columns: int, seed: int, density: float) -> csr_array:
    found = csr_array(random_array((rows, columns), density=density, rng=np.random.default_rng(seed), dtype=np.float32))
    found.sort_indices()
    return found


FEATURES, TRUTH, MASKED = (
    sparse(DOCUMENTS, WORDS, 0, 0.02),
    sparse(DOCUMENTS, LABELS, 1, 0.01),
    sparse(700, 333, 2, 0.002),
)
TEXTS = csr_array(sparse(LABELS, WORDS, 3, 0.01) + csr_array(([0.3] * 200, (range(200), [5] * 200)), shape=(333, 900)))
VECTORS = np.random.default_rng(4).standard_normal((DOCUMENTS, 40), dtype=np.float32)


def model(
    seed: int = 0,
    *,
    width: int = 64,
    signed: bool = True,
    text: bool = True,
    dense: bool = False,
    dropout: float = 0.0,
    **more: Any,
) -> AllLabels:
    rng = np.random.default_rng(seed)
    encoder: Encoder
    texts = None
    if dense:
        documents = Documents(Batch(dense=VECTORS), "cuda")
        encoder = DenseEncoder(VECTORS.shape[1], rng, project_to=width, dropout=dropout).cuda()
    else:
        documents = Documents(Batch(sparse=FEATURES), "cuda")
        table = RowTable.random(WORDS, width, rng, "cuda")
        encoder = (BagSum if signed else BagEncoder)(table, dropout=dropout)
        if text:
            texts = TextRows(table, TEXTS, mapped=signed, compute=torch.bfloat16)
    encoder = Refined(encoder, Residual(width, rng, dropout=dropout, mode="off").cuda())
    start = torch.from_numpy(rng.standard_normal((LABELS, width), dtype=np.float32)).cuda() * 0.1
    return AllLabels(
        encoder,
        texts,
        torch.linspace(0.2, 1, LABELS, device="cuda")[:, None],
        torch.tensor(-4.0, device="cuda"),
        documents,
        marked_targets(TRUTH, MASKED, "cuda"),
        weights=torch.linspace(0.3, 1, LABELS, device="cuda"),
        start=start,
        text_every=4,
        **more,
    )


def recorded(models: Sequence[AllLabels]) -> RecordedSteps:
    assert not why_not(models)
    return RecordedSteps(side_by_side(models), models, lambda *_, **__: None)


def steps(objective: Any, numbers: Sequence[int], size: int = BATCH) -> list[float]:
    """Losses of the steps with these numbers; every seventh is of a short batch."""
    rng, losses = np.random.default_rng(0), []
    for number in numbers:
        torch.manual_seed(number)
        rows = np.random.default_rng(number).permutation(DOCUMENTS)[: size - 11 if number % 7 == 6 else size]
        losses.append(float(objective.step(rows, rng, 0.003 / (1 + number / 10))))
    return losses


def assert_close(found: dict[str, Tensor], wanted: dict[str, Tensor], share: float = 0.98) -> None:
    """Within rounding; where a gradient is nearly nothing, rounding makes Adam go a whole step the other way."""
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        got, value = found[name].float(), value.float()
        close = (got - value).abs() <= 0.02 * value.abs().max() + 1e-6
        assert close.float().mean() >= share, (name, float(close.float().mean()), float((got - value).abs().max()))


KINDS: dict[str, dict[str, Any]] = {
    "signed": {},
    "signed, 300 wide": {"width": 300},
    "signed, 512 wide": {"width": 512},
    "rectified": {"signed": False},
    "without texts": {"text": False},
    "long steps": {"long_steps": True},
    "dense vectors": {"dense": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3])
def test_recorded_steps_are_plain_steps(kind: str, count: int) -> None:
    plain, played = ([model(seed, **KINDS[kind]) for seed in range(count)] for _ in range(2))
    objective = recorded(played)
    wanted = steps(side_by_side(plain), range(36))
    got = steps(objective, range(36))
    assert not objective.refused
    assert objective._recordings
    np.testing.assert_allclose(got, wanted, rtol=0.01)
    assert_close(objective.state(), side_by_side(plain).state())


@pytest.mark.parametrize("branches", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_dropout_is_that_of_plain_steps(count: int, branches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers are drawn, in the same order."""
    monkeypatch.setattr(RecordedSteps, "branches", branches)
    plain, played = ([model(seed, dropout=0.5) for seed in range(count)] for _ in range(2))
    objective = recorded(played)
    np.testing.assert_allclose(steps(objective, range(24)), steps(side_by_side(plain), range(24)), rtol=0.01)
    assert objective._recordings
    assert_close(objective.state(), side_by_side(plain).state())


def test_words_of_a_document_are_dropped() -> None:
    objective = recorded([model(token_dropout=0.3)])
    losses = steps(objective, range(60))
    assert objective._recordings
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


def test_a_batch_without_room_takes_a_plain_step() -> None:
    plain, played = model(), model()
    objective = recorded([played])
    steps(objective, range(9))
    for inputs in objective._inputs.values():
        inputs.rooms[0] = 1
    steps(objective, range(9, 12))
    for inputs in objective._inputs.values():
        inputs.rooms[0] = 128 * 16
    steps(objective, range(12, 20))
    steps(plain, range(20))
    assert_close(objective.state(), plain.state())


def test_what_goes_on_from_a_saved_state_ends_alike() -> None:
    whole = recorded([model(seed, dropout=0.5) for seed in range(3)])
    steps(whole, range(18))
    saved = {name: to_array(value) for name, value in whole.state().items()}
    after = recorded([model(10 + seed, dropout=0.5) for seed in range(3)])
    for name, value in after.state().items():
        copy_into(value, saved[name])
    np.testing.assert_allclose(steps(after, range(18, 40)), steps(whole, range(18, 40)), rtol=1e-4)
    assert_close(after.state(), whole.state(), 0.9999)


def test_the_same_steps_give_the_same_numbers() -> None:
    found = []
    for _ in range(2):
        objective = recorded([model(dropout=0.5)])
        found.append((steps(objective, range(20)), {name: to_array(v) for name, v in objective.state().items()}))
    assert found[0][0] == found[1][0]
    assert all(np.array_equal(value, found[1][1][name]) for name, value in found[0][1].items())


def test_it_trains() -> None:
    labels = np.arange(DOCUMENTS) % 40
    features = csr_array((np.ones(DOCUMENTS, np.float32), (np.arange(DOCUMENTS), labels)), shape=(DOCUMENTS, 60))
    truth = csr_array((np.ones(DOCUMENTS, np.float32), (np.arange(DOCUMENTS), labels)), shape=(DOCUMENTS, 40))
    table = RowTable.random(60, 32, np.random.default_rng(0), "cuda")
    one = AllLabels(
        BagSum(table),
        TextRows(table, csr_array(np.eye(40, 60, dtype=np.float32)), mapped=True, compute=torch.bfloat16),
        torch.ones(40, 1, device="cuda"),
        torch.tensor(-3.0, device="cuda"),
        Documents(Batch(features), "cuda"),
        DeviceCsr(truth, "cuda"),
        text_every=4,
    )
    history = fit(
        recorded([one]), epochs=20, batch_size=64, schedule=OneCycle(0.02), rng_for=lambda e: np.random.default_rng(e)
    )
    assert history[-1] < 0.2 * history[0]
