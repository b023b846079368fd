from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.data.dataset import Items
from longtail.errors import BundleError, ConfigError, DataError
from longtail.features.base import GivenDense, GivenSparse
from longtail.persistence import load_part, save_part

DENSE = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, -2.0, 0.0]], dtype=np.float32)
UNIT = [[0.6, 0.8, 0.0], [0.0, 0.0, 0.0], [0.0, -1.0, 0.0]]


def with_vectors(vectors: Any) -> Items:
    return Items([f"d{n}" for n in range(vectors.shape[0])], {}, vectors)


SPARSE_AND_DENSE = pytest.mark.parametrize(("cls", "form"), [(GivenSparse, csr_array), (GivenDense, np.array)])


def rows_of(part: GivenSparse | GivenDense, source: Items) -> Any:
    batch = part.batch(source)
    return batch.sparse.toarray() if batch.sparse is not None else batch.dense


@SPARSE_AND_DENSE
def test_vectors_become_unit_rows_and_the_given_ones_stay(cls: type[Any], form: Any) -> None:
    vectors = form(DENSE)
    part = cls.fit(with_vectors(vectors), unit=True)
    assert part.width == 3
    rows = rows_of(part, with_vectors(vectors))
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, UNIT, atol=1e-7)
    np.testing.assert_array_equal(vectors.toarray() if cls is GivenSparse else vectors, DENSE)


@SPARSE_AND_DENSE
def test_vectors_can_stay_as_long_as_they_are(cls: type[Any], form: Any) -> None:
    np.testing.assert_array_equal(
        rows_of(cls.fit(with_vectors(form(DENSE)), unit=False), with_vectors(form(DENSE))), DENSE
    )


@SPARSE_AND_DENSE
def test_labels_have_a_batch_if_they_have_vectors(cls: type[Any], form: Any) -> None:
    part = cls.fit(with_vectors(form(DENSE)), unit=True)
    batch = part.label_batch(with_vectors(form(DENSE)))
    np.testing.assert_allclose(batch.dense if cls is GivenDense else batch.sparse.toarray(), UNIT, atol=1e-7)
    assert part.label_batch(Items(["l"], {"title": ["text"]})) is None


@SPARSE_AND_DENSE
def test_saved_and_loaded_it_does_the_same(cls: type[Any], form: Any, tmp_path: Path) -> None:
    for unit in (True, False):
        part = cls.fit(with_vectors(form(DENSE)), unit=unit)
        save_part(part, tmp_path / str(unit))
        again = load_part(tmp_path / str(unit))
        assert type(again) is cls
        assert (again.width, again.unit) == (3, unit)


def test_sparse_rows_are_sorted_and_without_duplicates() -> None:
    vectors = csr_array((np.array([1.0, 2.0, 1.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    rows = GivenSparse.fit(with_vectors(vectors), unit=False).batch(with_vectors(vectors)).sparse
    assert rows is not None
    assert rows.indices.tolist() == [0, 2]
    assert rows.data.tolist() == [2.0, 2.0]
    assert vectors.nnz == 3


@SPARSE_AND_DENSE
def test_other_vectors_are_refused(cls: type[Any], form: Any) -> None:
    part = cls.fit(with_vectors(form(DENSE)), unit=True)
    other = np.array if cls is GivenSparse else csr_array
    with pytest.raises(DataError, match=r"shape \(3, 2\)") as wrong:
        part.batch(with_vectors(form(DENSE[:, :2])))
    assert "3 columns" in wrong.value.hint
    with pytest.raises(DataError, match="dense" if cls is GivenSparse else "sparse"):
        part.batch(with_vectors(other(DENSE)))
    with pytest.raises(DataError, match="documents have no vectors"):
        part.batch(Items(["d"], {"title": ["text"]}))
    with pytest.raises(DataError, match=r"labels have vectors of shape \(3, 2\)"):
        part.label_batch(with_vectors(form(DENSE[:, :2])))


@SPARSE_AND_DENSE
@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_numbers_that_are_none_are_refused_with_their_row(cls: type[Any], form: Any, strange: float) -> None:
    spoiled = DENSE.copy()
    spoiled[2, 1] = strange
    with pytest.raises(DataError, match=r"row 2 \('d2'\)"):
        cls.fit(with_vectors(form(DENSE)), unit=False).batch(with_vectors(form(spoiled)))


@SPARSE_AND_DENSE
def test_text_is_refused_with_a_hint(cls: type[Any], form: Any) -> None:
    with pytest.raises(ConfigError, match="3 columns") as wrong:
        cls.fit(with_vectors(form(DENSE)), unit=True).batch_of_texts(["text"])
    assert "features.source=text" in wrong.value.hint


@SPARSE_AND_DENSE
def test_vectors_without_columns_are_refused(cls: type[Any], form: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no columns"):
        cls.fit(with_vectors(form(DENSE[:, :0])), unit=True)
    with pytest.raises(ConfigError, match="no vectors"):
        cls.fit(Items(["d"]), unit=True)
    save_part(cls.fit(with_vectors(form(DENSE)), unit=True), tmp_path / "part")
    head = (tmp_path / "part" / "part.json").read_text().replace('"width": 3', '"width": 0')
    (tmp_path / "part" / "part.json").write_text(head)
    with pytest.raises(BundleError):
        load_part(tmp_path / "part")


def test_long_vectors_do_not_overflow() -> None:
    vectors = np.full((1, 4), 3e38, dtype=np.float32)
    np.testing.assert_allclose(
        rows_of(GivenDense.fit(with_vectors(vectors), unit=True), with_vectors(vectors)), 0.5, rtol=1e-6
    )
    np.testing.assert_allclose(
        rows_of(GivenSparse.fit(with_vectors(csr_array(vectors)), unit=True), with_vectors(csr_array(vectors))),
        0.5,
        rtol=1e-6,
    )
