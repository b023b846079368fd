"""What a recorded step reads: batches with room for more entries, their words grouped, words of label texts in pieces.

Against the same without room; and a whole step, not recorded, in Triton's interpreter against a plain one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch import Tensor

from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.blocks import Residual
from longtail.nn.encoders import BagEncoder, BagSum, Refined
from longtail.nn.full import Sweep
from longtail.nn.row_tables import LightRowAdam, RowAdam, RowTable, summed_by_row
from longtail.recipes.direct import recorded
from longtail.recipes.direct.as_one import side_by_side
from longtail.recipes.direct.objective import AllLabels, ComposedRows, TextRows, marked_targets
from longtail.recipes.direct.recorded import RecordedSteps, why_not
from longtail.recipes.direct.recorded_inputs import _NONE, FixedInputs, TextPlan, grouped, room_for, taken
from longtail.types import Batch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined

pytestmark = pytest.mark.usefixtures("one_thread")


def sparse(rows: int, columns: int, seed: int, density: float = 0.2) -> csr_array:
    found = csr_array(random_array((rows, columns), density=density, rng=np.random.default_rng(seed), dtype=np.float32))
    found.sort_indices()
    return found


def bounds_of(matrix: DeviceCsr, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    starts, begin = matrix.bounds(rows)
    return torch.from_numpy(starts.astype(np.int32)), torch.from_numpy(begin.astype(np.int32))


@pytest.mark.parametrize("rows", [[3, 1, 7], [0], [9, 2, 4, 5], [6, 6]])
def test_a_batch_with_room_has_the_same_entries(rows: list[int]) -> None:
    matrix = sparse(10, 30, 0)
    matrix.data[matrix.indptr[2] : matrix.indptr[3]] = 0
    matrix.eliminate_zeros()
    there, index = DeviceCsr(matrix), np.array(rows)
    plain, entries = there.rows(index), int(np.diff(matrix.indptr)[rows].sum())
    roomy = taken(there, *bounds_of(there, index), entries + 40, _NONE)
    assert len(roomy.ids) == entries + 40
    assert roomy.starts.tolist() == plain.starts.tolist()
    assert torch.equal(roomy.ids[:entries], plain.ids)
    assert torch.equal(roomy.weights[:entries], plain.weights)
    assert torch.equal(roomy.owners[:entries], plain.owners)
    assert (roomy.ids[entries:] == _NONE).all()
    assert not roomy.weights[entries:].any()
    assert (roomy.owners < len(rows)).all()


@pytest.mark.parametrize("room", [0, 1, 50])
def test_words_are_grouped_as_by_the_oracle(room: int) -> None:
    there, index = DeviceCsr(sparse(12, 25, 1)), np.array([3, 11, 0, 8])
    plain = there.rows(index)
    roomy = taken(there, *bounds_of(there, index), len(plain.ids) + room, _NONE)
    gradient = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    rows, sums = summed_by_row(plain, gradient)
    words = grouped(roomy)
    assert words.order is not None
    number = len(torch.unique(rows))
    assert words.rows[:number].tolist() == rows[:number].tolist()
    assert (words.rows[number:] == _NONE).all()
    weights = roomy.weights[words.order]
    for slot in range(number):
        part = slice(int(words.starts[slot]), int(words.starts[slot + 1]))
        torch.testing.assert_close(weights[part] @ gradient[words.ids[part].long()], sums[slot])


def test_there_is_room_for_any_likely_batch_and_for_no_more_than_can_be() -> None:
    matrix = sparse(4000, 60, 2)
    there, rng = DeviceCsr(matrix), np.random.default_rng(0)
    room, lengths = room_for(there, 64), np.diff(matrix.indptr)
    assert room % 128 == 0
    assert all(lengths[rng.permutation(4000)[:64]].sum() <= room for _ in range(500))
    assert room < 1.5 * 64 * lengths.mean()
    assert room_for(there, 4000) < matrix.nnz + 128
    assert room_for(DeviceCsr(csr_array((5, 3), dtype=np.float32)), 2) == 128


@pytest.mark.parametrize("common", [0, 400])
def test_words_of_texts_forth_and_back(common: int) -> None:
    """common: labels that share a word."""
    texts = sparse(500, 40, 3, 0.05).tolil()
    texts[:common, 7] = 0.5
    texts = csr_array(texts.tocsr())
    table = RowTable.random(50, 4, np.random.default_rng(0))
    plan = TextPlan.of(TextRows(table, texts))
    assert (plan.long is not None) == bool(common)
    starts, ids, weights = plan.forth
    found = csr_array((weights.numpy(), ids.numpy(), starts.numpy()), shape=texts.shape)
    assert abs(found - texts).max() < 1e-7
    back = np.zeros(texts.shape[::-1], np.float32)
    for slot, row in enumerate(plan.short.rows.tolist()):
        part = slice(int(plan.short.starts[slot]), int(plan.short.starts[slot + 1]))
        assert plan.short.weights is not None
        np.add.at(back[row], plan.short.ids[part].numpy(), plan.short.weights[part].numpy())
    if plan.long is not None and plan.pieces is not None:
        assert int(plan.pieces[0].diff().max()) <= 64
        for slot, row in enumerate(plan.long.rows.tolist()):
            for piece in plan.long.ids[int(plan.long.starts[slot]) : int(plan.long.starts[slot + 1])].tolist():
                part = slice(int(plan.pieces[0][piece]), int(plan.pieces[0][piece + 1]))
                np.add.at(back[row], plan.pieces[1][part].numpy(), plan.pieces[2][part].numpy())
    np.testing.assert_allclose(back, texts.T.toarray(), atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [20, 64])
def test_words_learn_from_a_gradient_of_either_type(kind: torch.dtype, width: int) -> None:
    """Long and short words, against the same sums as a product of matrices and Adam by torch."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from longtail.nn.triton_kernels import FactorsThere

    texts = sparse(200, 40, 3, 0.05).tolil()
    texts[:150, 7] = 0.5
    texts, device = csr_array(texts.tocsr()), "cuda" if torch.cuda.is_available() else "cpu"
    rng, wanted = np.random.default_rng(0), RowTable.random(50, width, np.random.default_rng(1), device)
    found = RowTable(wanted.weight.detach().clone())
    plan = TextPlan.of(TextRows(found, texts))
    assert plan.long is not None
    ours, theirs = RowAdam(found.weight.detach()), RowAdam(wanted.weight.detach(), reference=True)
    for _ in range(3):
        gradient = torch.from_numpy(rng.standard_normal((200, width), dtype=np.float32)).to(device).to(kind)
        same = ours.factors(0.01)
        rate, spread = (torch.tensor([number], device=device) for number in (same.rate, same.spread))
        plan.teach(ours, gradient, FactorsThere(*same[:4], rate, spread, same.epsilon))
        sums = torch.from_numpy(texts.T.toarray()).to(device) @ gradient.float()
        used = torch.from_numpy(np.unique(texts.indices)).long().to(device)
        theirs.update_rows(used, sums[used], 0.01)
    torch.testing.assert_close(ours.table, theirs.table, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.second, theirs.second, atol=1e-6, rtol=1e-4)


# ---- whole steps ----

DOCUMENTS, WORDS, LABELS, WIDTH = 20, 24, 11, 8


def model(*, seed: int = 0, signed: bool = True, text: bool = True, weights: bool = False, **more: Any) -> AllLabels:
    """One that computes as a GPU does, where it is."""
    rng, device = np.random.default_rng(seed), "cuda" if torch.cuda.is_available() else "cpu"
    table = RowTable(torch.from_numpy(rng.standard_normal((WORDS, WIDTH), dtype=np.float32)).to(device))
    bag = (BagSum if signed else BagEncoder)(table, dropout=0.0)
    encoder = Refined(bag, Residual(WIDTH, rng, dropout=0.0, mode="off")).to(device)
    texts = TextRows(table, sparse(LABELS, WORDS, 1), mapped=signed, compute=torch.bfloat16) if text else None
    truth = sparse(DOCUMENTS, LABELS, 4)
    truth.data[:] = np.where(truth.data > 0.5, 1, truth.data)
    masked = sparse(DOCUMENTS, LABELS, 5, 0.1)
    start = torch.from_numpy(rng.standard_normal((LABELS, WIDTH), dtype=np.float32)).to(device)
    found = AllLabels(
        encoder,
        texts,
        torch.linspace(0.2, 1, LABELS)[:, None].to(device),
        torch.tensor(-1.0, device=device),
        Documents(Batch(sparse=sparse(DOCUMENTS, WORDS, 6, 0.3)), device),
        marked_targets(truth, masked, device),
        weights=torch.linspace(0.3, 1, LABELS).to(device) if weights else None,
        start=start,
        text_every=3,
        compute=torch.bfloat16,
        **more,
    )
    found.rows = ComposedRows(found.rows.free.rows, found.rows.trust, text=text)
    return found


def changed(models: list[AllLabels], lengths: list[int], *, fixed: bool) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and state after steps of so many documents."""
    torch.manual_seed(0)
    objective: Any = side_by_side(models)
    if fixed:
        for each in models:
            each.sweep = Sweep(each.documents.device, mean_over="documents", compute=torch.bfloat16, variant="triton")
        objective = RecordedSteps(objective, models, lambda *_, **__: None)
    rng, losses = np.random.default_rng(0), []
    for number, length in enumerate(lengths):
        rows = np.random.default_rng(number).permutation(DOCUMENTS)[:length]
        losses.append(float(objective.step(rows, rng, 0.01 / (number + 1))))
    return losses, objective.state()


KINDS: dict[str, dict[str, Any]] = {
    "signed": {"weights": True},
    "rectified": {"signed": False},
    "without texts": {"text": False},
    "long steps": {"long_steps": True},
}


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "count"), [*((kind, 1) for kind in KINDS), ("signed", 2)])
def test_steps_in_fixed_shapes_are_plain_steps(kind: str, count: int) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    lengths = [8, 8, 8, 4, 8]
    (plain, wanted), (got, found) = (
        changed([model(seed=seed, **KINDS[kind]) for seed in range(count)], lengths, fixed=fixed)
        for fixed in (False, True)
    )
    np.testing.assert_allclose(got, plain, rtol=0.01)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        # bf16 products round differently; where a gradient is nearly nothing, Adam makes that a whole step.
        close = (found[name].float() - value.float()).abs() <= 0.02 * value.float().abs().max() + 1e-6
        assert close.float().mean() > 0.97, name


class Derived(AllLabels):
    """Steps of another kind."""


# What is in the way -> a word of what is said about it.
OBSTACLES: dict[str, tuple[Callable[[AllLabels], Any], str]] = {
    "another kind": (lambda one: setattr(one, "__class__", Derived), "train.rows"),
    "a loss": (lambda one: setattr(one, "extra", object()), "adds a loss"),
    "processes": (lambda one: setattr(one, "shard", SimpleNamespace(processes=2)), "several processes"),
    "documents": (lambda one: setattr(one, "documents", object()), "on the disk"),
    "targets": (lambda one: setattr(one, "targets", object()), "on the disk"),
    "float32": (lambda one: setattr(one.sweep, "variant", "torch"), "bf16"),
    "light moments": (lambda one: one.adam.by_row.update(light=LightRowAdam(torch.zeros(4, 8))), "light"),
}


def recordable() -> AllLabels:
    """One that a GPU could record, on any machine."""
    one = model()
    one.sweep.variant = "triton"
    return one


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_cannot_be_recorded_is_said(obstacle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "has_triton", lambda: True)
    one, (put, said) = recordable(), OBSTACLES[obstacle]
    assert why_not([one]) == ""
    put(one)
    assert said in why_not([one])


def test_without_triton_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "has_triton", lambda: False)
    assert "Triton" in why_not([recordable()])


def test_a_batch_of_more_entries_than_there_is_room_for_is_not_sent() -> None:
    inputs = FixedInputs(model(), 4, 2)
    assert inputs.positions(np.arange(4)) is not None
    inputs.rooms[0] = 1
    assert inputs.positions(np.arange(4)) is None
