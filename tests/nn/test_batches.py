"""Documents as tensors: rows in the order asked for, empty ones included."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from tests.nn.dense_oracles import tensor_batch

from longtail.nn.batches import Bags, DeviceCsr, Documents, to_tensor
from longtail.types import Batch, Csr


def sparse_rows() -> Csr:
    rows = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [5, 0, 0, 0], [0, 0, 3, 4]], dtype=np.float32)
    return csr_array(rows)


def dense_of(bags: Bags, columns: int) -> np.ndarray:
    rows = np.zeros((len(bags), columns), dtype=np.float32)
    for b in range(len(bags)):
        for entry in range(int(bags.starts[b]), int(bags.starts[b + 1])):
            rows[b, int(bags.ids[entry])] += float(bags.weights[entry])
    return rows


def test_rows_of_a_csr_come_in_the_order_asked_for() -> None:
    csr = DeviceCsr(sparse_rows())
    index = np.array([3, 1, 0, 3])
    bags = csr.rows(index)
    assert np.array_equal(dense_of(bags, csr.columns), sparse_rows().toarray()[index])
    assert bags.ids.dtype == torch.int32
    assert bags.owners.tolist() == [0, 0, 2, 2, 3, 3]


def test_no_rows() -> None:
    bags = DeviceCsr(sparse_rows()).rows(np.zeros(0, dtype=np.int64))
    assert len(bags) == 0
    assert len(bags.ids) == 0


def test_joined_bags() -> None:
    csr = DeviceCsr(sparse_rows())
    joined = Bags.joined([csr.rows(np.array([0, 1])), csr.rows(np.array([2])), csr.rows(np.array([3]))])
    assert np.array_equal(dense_of(joined, 4), sparse_rows().toarray())


def test_every_view_of_a_batch_moves() -> None:
    batch = Batch(sparse_rows(), np.arange(8, dtype=np.float32).reshape(4, 2), np.array([[1, -1]] * 4, dtype=np.int32))
    index = np.array([2, 0])
    rows = Documents(batch).rows(index)
    assert np.array_equal(dense_of(rows.need_sparse(), 4), sparse_rows().toarray()[index])
    assert rows.need_dense().tolist() == [[4, 5], [0, 1]]
    assert rows.need_tokens().tolist() == [[1, -1], [1, -1]]


def test_a_batch_without_a_view_has_none() -> None:
    whole = tensor_batch(Batch(dense=np.ones((1, 2), dtype=np.float32)))
    assert whole.sparse is None
    assert whole.tokens is None
    assert whole.need_dense().shape == (1, 2)


def test_a_read_only_array_is_copied_not_shared() -> None:
    array = np.ones(3)
    array.flags.writeable = False
    to_tensor(array, "cpu").zero_()
    assert array.tolist() == [1, 1, 1]


def test_a_gpu_finds_the_same_entries_by_itself() -> None:
    csr = DeviceCsr(sparse_rows())
    for index in (np.array([3, 1, 0, 3]), np.array([1]), np.zeros(0, dtype=np.int64)):
        wanted = csr.rows(index)
        found = csr.rows_there(wanted.starts.numpy(), csr.starts[index])
        assert torch.equal(found.starts, wanted.starts)
        assert torch.equal(found.ids, wanted.ids)
        assert torch.equal(found.weights, wanted.weights)
