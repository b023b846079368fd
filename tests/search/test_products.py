"""Exact search of many queries: BLAS names candidates, and our own products decide. So answers are those of few
queries, to the last bit, on a processor whose BLAS adds up in another order for each place of a block, too.
"""

from __future__ import annotations

import numpy as np
import pytest

from longtail.search.index import FEW_QUERIES, ExactIndex, Heaps, Table, best_of_products
from longtail.types import F32, TopK


def vectors(n: int, width: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)


def by_products(items: F32, queries: F32, k: int, error: float) -> TopK:
    """As `ExactIndex` does, with a BLAS that is wrong by about `error` of each number, differently for each item."""
    wrong = items * (1 + error * vectors(len(items), items.shape[1], seed=9))
    none, answer = np.zeros(0, np.float32), Heaps(len(queries), k)
    table, lasts = Table(items, none, none), np.zeros(len(queries), np.float32)
    best_of_products(table, lambda part: wrong[part].astype(np.float32), queries, (queries, lasts), answer)
    return answer.ranked()


def one_by_one(items: F32, queries: F32, k: int) -> TopK:
    found = [ExactIndex(items, "dot").query(query[None], k) for query in queries]
    return TopK(np.concatenate([each.ids for each in found]), np.concatenate([each.scores for each in found]))


def same(found: TopK, wanted: TopK) -> None:
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.scores, wanted.scores)


@pytest.mark.parametrize("k", [1, 7, 60, 200])
@pytest.mark.parametrize("error", [0.0, 1e-6, 1e-3])
def test_rounding_of_blas_changes_nothing(k: int, error: float) -> None:
    items, queries = vectors(150, 65), vectors(40, 65, seed=1)
    same(by_products(items, queries, k, error), one_by_one(items, queries, k))


@pytest.mark.parametrize("k", [3, 30])
def test_the_first_of_very_many_equal_items_is_found(k: int) -> None:
    """More equal ones than there are candidates: which of them BLAS names is left to chance."""
    items, queries = vectors(3, 16)[[0, 1, *[2] * 90, 1, 0]], vectors(20, 16, seed=1)
    same(by_products(items, queries, k, 1e-6), one_by_one(items, queries, k))


def test_blocks_of_queries_and_items_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.search.index._QUERIES", 7)
    monkeypatch.setattr("longtail.search.index._SIMILARITIES", 7 * 11)
    items, queries = vectors(50, 16), vectors(3 * FEW_QUERIES, 16, seed=1)
    same(ExactIndex(items, "dot").query(queries, 9), one_by_one(items, queries, 9))
