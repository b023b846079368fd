"""Documents on the disk: what was written is read, in a shuffled order of blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from longtail.data import mapped
from longtail.data.mapped import BLOCKS_OF_WINDOW, MASKED, SAME, TARGET, BlockOrder, DocumentsOnDisk, DocumentsWriter
from longtail.errors import RunError


def matrices(rows: int, seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    features = random_array((rows, 40), density=0.2, format="csr", rng=rng, dtype=np.float32)
    targets = random_array((rows, 9), density=0.4, format="csr", rng=rng)
    targets.data = rng.choice([TARGET, MASKED, SAME], len(targets.data)).astype(np.int8)
    for matrix in (features, targets):
        matrix.sort_indices()
    return features, targets


@pytest.fixture
def written(tmp_path: Path) -> tuple[Any, ...]:
    parts = [matrices(rows, rows) for rows in (5, 0, 12, 1)]
    with DocumentsWriter(tmp_path / "documents", 9) as writer:
        for part in parts:
            writer.add(*part)
        writer.finish(40, 6)
    dense = [np.concatenate([part[side].toarray() for part in parts]) for side in (0, 1)]
    return tmp_path / "documents", *dense


def test_what_was_written_is_read(written: tuple[Any, ...]) -> None:
    folder, features, targets = written
    documents = DocumentsOnDisk(folder)
    index = np.array([17, 0, 4, 4, 9])
    assert len(documents) == 18
    assert np.array_equal(dense(documents, index), features[index])
    plain, masked, same = documents.labels_of(index)
    assert np.array_equal(plain.toarray(), targets[index] == TARGET)
    assert np.array_equal(masked, np.argwhere(targets[index] < 0))
    assert np.array_equal(same, np.argwhere(targets[index] == SAME))
    assert np.array_equal(documents.counts, (targets == TARGET).sum(axis=0))
    assert documents.pairs == (targets == TARGET).sum()
    documents.let_go()
    assert np.array_equal(dense(documents, index), features[index])


def dense(documents: DocumentsOnDisk, index: np.ndarray) -> np.ndarray:
    starts, numbers, values = documents.pieces("features", index)
    return csr_array((values, numbers, starts), shape=(len(index), 40)).toarray()


@pytest.mark.parametrize("batch", [1, 4, 6, 7])
def test_windows_hold_what_is_drawn(written: tuple[Any, ...], batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch of an epoch is read from the map, those over two windows included."""
    folder, features, targets = written
    documents = DocumentsOnDisk(folder)
    for seed in range(3):
        order = documents.order(np.random.default_rng(seed))
        assert isinstance(order, BlockOrder)
        for start in range(0, 18, batch):
            index = order[start : start + batch]
            with monkeypatch.context() as patch:
                patch.setattr(mapped.RowsOnDisk, "pieces", None)
                assert np.array_equal(dense(documents, index), features[index])
                assert np.array_equal(documents.labels_of(index)[0].toarray(), targets[index] == TARGET)
            assert len(documents._windows) <= 2
    documents.let_go()
    assert not documents._windows


@pytest.mark.parametrize("file", ["features.starts", "features.values", "targets.numbers", "labels.counts"])
def test_files_that_do_not_fit_are_refused(written: tuple[Any, ...], file: str) -> None:
    path = written[0] / file
    path.write_bytes(path.read_bytes()[:-8])
    if file == "labels.counts":
        path.unlink()
    with pytest.raises(RunError, match="documents"):
        DocumentsOnDisk(written[0])


@given(documents=st.integers(1, 300), window=st.integers(1, 320), batch=st.integers(1, 50), seed=st.integers(0, 9))
def test_every_document_comes_once(documents: int, window: int, batch: int, seed: int) -> None:
    begun: list[int] = []
    order = BlockOrder(documents, window, np.random.default_rng(seed), lambda blocks, size: begun.append(1))
    drawn = [order[start : start + batch] for start in range(0, documents, batch)]
    assert [len(rows) for rows in drawn[:-1]] == [batch] * (len(drawn) - 1)
    assert np.array_equal(np.sort(np.concatenate(drawn)), np.arange(documents))
    assert len(begun) == len(order.windows)


def test_a_window_is_some_blocks_shuffled() -> None:
    window = 10 * BLOCKS_OF_WINDOW
    order = BlockOrder(10_240, window, np.random.default_rng(0))
    drawn = order[0:10_240].reshape(-1, window)
    assert order.block == 10
    for rows in drawn:
        assert len(np.unique(rows // 10)) == BLOCKS_OF_WINDOW
        assert (np.diff(rows) != 1).mean() > 0.9
    assert len(np.unique(drawn[0] // 1000)) > 3, "blocks are from anywhere"
    other = BlockOrder(10_240, window, np.random.default_rng(1))
    assert not np.array_equal(other[0:100], order[0:100])


def test_all_documents_in_one_window_are_shuffled_as_in_memory(written: tuple[Any, ...]) -> None:
    documents = DocumentsOnDisk(written[0])
    assert isinstance(documents.order(np.random.default_rng(3)), BlockOrder)
    documents.window = len(documents)
    rows = documents.order(np.random.default_rng(3))
    assert np.array_equal(rows[0 : len(documents)], np.random.default_rng(3).permutation(len(documents)))
