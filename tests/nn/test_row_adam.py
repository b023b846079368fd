"""Row-wise Adam and the row table: equal to dense Adam where it should be, and no touch of other rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtail.nn.batches import Bags
from longtail.nn.kernels import CHUNKS, grouped_by_row
from longtail.nn.row_tables import RowAdam, RowTable, summed_by_row


def random_bags(count: int, rows: int, rng: np.random.Generator, longest: int = 6) -> Bags:
    lengths = rng.integers(0, longest + 1, count)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return Bags(
        torch.from_numpy(starts),
        torch.from_numpy(rng.integers(0, rows, starts[-1]).astype(np.int32)),
        torch.from_numpy(rng.random(starts[-1], dtype=np.float32)),
    )


def as_matrix(bags: Bags, rows: int) -> Tensor:
    """(B, R): the weight of every row in every bag, by a plain loop."""
    matrix = torch.zeros(len(bags), rows)
    for b in range(len(bags)):
        for entry in range(int(bags.starts[b]), int(bags.starts[b + 1])):
            matrix[b, int(bags.ids[entry])] += bags.weights[entry]
    return matrix


@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.integers(-1, 9), max_size=60))
def test_grouping_is_a_stable_sort_and_cleans_up(ids: list[int]) -> None:
    flat = np.array(ids, dtype=np.int32)
    slots = np.zeros(10, dtype=np.int32)
    groups = grouped_by_row(flat, slots)
    kept = [e for e in range(len(flat)) if flat[e] >= 0]
    assert groups.entries.tolist() == sorted(kept, key=lambda e: int(flat[e]))
    assert groups.rows.tolist() == sorted({int(flat[e]) for e in kept})
    assert [flat[e] for e in groups.entries] == np.repeat(groups.rows, np.diff(groups.starts)).tolist()
    assert not slots.any()
    assert len(groups.edges) == CHUNKS + 1
    assert groups.edges[0] == 0
    assert groups.edges[-1] == len(groups.rows)
    assert np.all(np.diff(groups.edges) >= 0)


@pytest.mark.claim("F10")
@pytest.mark.parametrize("reference", [False, True])
def test_first_step_equals_dense_adam_on_touched_rows_and_leaves_the_rest(reference: bool) -> None:
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.standard_normal((20, 7)))
    bags = random_bags(9, 12, rng)
    gradient_BD = torch.from_numpy(rng.standard_normal((9, 7)))
    dense = torch.nn.Parameter(start.clone())
    dense.grad = as_matrix(bags, 20).double().T @ gradient_BD
    torch.optim.Adam([dense], lr=0.01).step()

    adam = RowAdam(start.clone(), reference=reference)
    adam.step(bags, gradient_BD, 0.01)
    touched = torch.unique(bags.ids).long()
    assert 0 < len(touched) < 20
    torch.testing.assert_close(adam.table[touched], dense.detach()[touched], rtol=0, atol=1e-7)
    others = torch.ones(20, dtype=torch.bool)
    others[touched] = False
    assert torch.equal(adam.table[others], start[others])
    assert not adam.first[others].any()
    assert not adam.second[others].any()


@pytest.mark.parametrize("reference", [False, True])
def test_bias_correction_counts_all_steps(reference: bool) -> None:
    """A row that is first touched in step 5 is corrected as of step 5, by the formula."""
    adam = RowAdam(torch.zeros(2, 1, dtype=torch.float64), reference=reference)
    one = torch.ones(1, dtype=torch.float64)
    for step in range(5):
        adam.step(
            Bags(torch.tensor([0, 1]), torch.tensor([1 if step == 4 else 0], dtype=torch.int32), one),
            torch.tensor([[3.0]], dtype=torch.float64),
            0.1,
        )
    first, second = 0.1 * 3 / (1 - 0.9**5), 0.001 * 9 / (1 - 0.999**5)
    assert float(adam.table[1, 0]) == pytest.approx(-0.1 * first / (second**0.5 + 1e-8), abs=1e-12)
    assert int(adam.count) == 5


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), documents=st.integers(1, 8), rows=st.integers(1, 30), width=st.integers(1, 40))
def test_kernel_equals_reference(seed: int, documents: int, rows: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    start = torch.from_numpy(rng.standard_normal((rows, width), dtype=np.float32))
    fast, reference = RowAdam(start.clone()), RowAdam(start.clone(), reference=True)
    for _ in range(3):
        bags = random_bags(documents, rows, rng)
        gradient = torch.from_numpy(rng.standard_normal((documents, width), dtype=np.float32))
        fast.step(bags, gradient, 0.01)
        reference.step(bags, gradient, 0.01)
    for name, value in fast.state().items():
        torch.testing.assert_close(value, reference.state()[name], rtol=1e-5, atol=1e-5)
    # A gradient near 0 may differ in its last bits, and Adam divides by its size: compare rows by what rate * steps
    # allows.
    torch.testing.assert_close(fast.table, reference.table, rtol=1e-5, atol=1e-4)


def test_no_entries_change_no_row() -> None:
    for reference in (False, True):
        adam = RowAdam(torch.ones(3, 2), reference=reference)
        adam.step(
            Bags(torch.zeros(3, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), torch.zeros(0)),
            torch.ones(2, 2),
            0.1,
        )
        assert torch.equal(adam.table, torch.ones(3, 2))


def test_table_reads_weighted_sums() -> None:
    rng = np.random.default_rng(0)
    table = RowTable.random(12, 5, rng)
    bags = random_bags(7, 12, rng)
    torch.testing.assert_close(table(bags), as_matrix(bags, 12) @ table.weight)


def test_random_table_has_rows_of_about_unit_length() -> None:
    lengths = RowTable.random(2000, 64, np.random.default_rng(0)).weight.detach().norm(dim=1)
    assert float(lengths.mean()) == pytest.approx(1, abs=0.01)


def test_backward_leaves_the_bags_and_their_gradients() -> None:
    rng = np.random.default_rng(0)
    table = RowTable.random(12, 5, rng)
    first, second = random_bags(4, 12, rng), random_bags(3, 12, rng)
    probe_1, probe_2 = torch.rand(4, 5), torch.rand(3, 5)
    torch.autograd.backward((table(first) * probe_1).sum() + (table(second) * probe_2).sum())
    pending = table.take_gradient()
    assert pending is not None
    bags, gradient = pending
    torch.testing.assert_close(
        as_matrix(bags, 12).T @ gradient, as_matrix(first, 12).T @ probe_1 + as_matrix(second, 12).T @ probe_2
    )
    assert table.weight.grad is None
    assert table.take_gradient() is None


def test_a_frozen_table_leaves_no_gradient() -> None:
    rng = np.random.default_rng(0)
    table = RowTable.random(12, 5, rng)
    table.weight.requires_grad_(False)
    scale = torch.ones(5, requires_grad=True)
    torch.autograd.backward((table(random_bags(4, 12, rng)) * scale).sum())
    assert table.take_gradient() is None


@pytest.mark.parametrize("reference", [False, True])
def test_different_rows_of_their_own_step_like_bags_of_one(reference: bool) -> None:
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.standard_normal((20, 7), dtype=np.float32))
    rows = torch.tensor([11, 3, 17], dtype=torch.int32)
    gradient = torch.from_numpy(rng.standard_normal((3, 7), dtype=np.float32))
    alone, bagged = (RowAdam(start.clone(), reference=reference) for _ in range(2))
    bags = Bags.of_rows(rows)
    assert bags.one_each
    table = RowTable(start.clone())
    assert torch.equal(table(bags), start[rows.long()])
    for _ in range(2):
        alone.step(bags, gradient, 0.1)
        bagged.step(Bags(bags.starts, bags.ids, bags.weights), gradient, 0.1)
    torch.testing.assert_close(alone.table, bagged.table)
    assert not torch.equal(alone.table[3], start[3])
    assert not Bags.joined([bags, Bags.of_rows(rows)]).one_each


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 30), width=st.integers(1, 40))
def test_the_kernel_for_given_rows_equals_the_reference(seed: int, rows: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    start = torch.from_numpy(rng.standard_normal((rows, width), dtype=np.float32))
    fast, reference = RowAdam(start.clone()), RowAdam(start.clone(), reference=True)
    for _ in range(3):
        chosen = torch.from_numpy(np.flatnonzero(rng.random(rows) < 0.5))
        gradient = torch.from_numpy(rng.standard_normal((len(chosen), width), dtype=np.float32))
        fast.update_rows(chosen, gradient, 0.01)
        reference.update_rows(chosen, gradient, 0.01)
    for name, value in {"table": fast.table, **fast.state()}.items():
        torch.testing.assert_close(value, {"table": reference.table, **reference.state()}[name], rtol=1e-5, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), documents=st.integers(1, 8), rows=st.integers(1, 30))
def test_gradients_are_summed_by_row_in_slots_that_repeat_the_last_one(seed: int, documents: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    bags = random_bags(documents, rows, rng)
    if not len(bags.ids):
        return
    gradient = torch.from_numpy(rng.standard_normal((documents, 3), dtype=np.float32))
    named, sums = summed_by_row(bags, gradient)
    different = sorted(set(bags.ids.tolist()))
    assert named.tolist() == different + [different[-1]] * (len(bags.ids) - len(different))
    torch.testing.assert_close(sums[: len(different)], (as_matrix(bags, rows).T @ gradient)[named[: len(different)]])
    assert not sums[len(different) :].any()


def test_repetitions_of_the_last_row_count_for_nothing() -> None:
    start, gradient = torch.ones(5, 2), torch.tensor([[1.0, -2.0], [3.0, 0.5], [0.0, 0.0], [9.0, 9.0]])
    repeated, plain = RowAdam(start.clone(), reference=True), RowAdam(start.clone(), reference=True)
    for _ in range(2):
        repeated.update_rows(torch.tensor([1, 4, 4, 4]), gradient, 0.1)
        plain.update_rows(torch.tensor([1, 4]), gradient[:2], 0.1)
    assert torch.equal(repeated.table, plain.table)
    assert torch.equal(repeated.second, plain.second)
    assert not torch.equal(plain.table[4], start[4])


def test_named_rows() -> None:
    ids = torch.tensor([[7, 2, 7], [5, 2, 2]])
    named, place = RowAdam(torch.zeros(9, 1), reference=True).named_rows(ids)
    assert named.tolist() == [2, 5, 7]
    assert named[place].tolist() == ids.tolist()
