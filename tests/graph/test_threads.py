from __future__ import annotations

import numba
import pytest

from longtail.graph.threads import threads_for


@pytest.mark.parametrize(("items", "each", "expected"), [(0, 32, 1), (63, 32, 1), (64, 32, 2), (10_000, 32, 2), (10_000, 9000, 1)])
def test_small_work_gets_few_threads_and_the_number_is_restored(items: int, each: int, expected: int) -> None:
    before = numba.get_num_threads()
    most = min(2, before)
    numba.set_num_threads(most)
    try:
        with threads_for(items, each):
            assert numba.get_num_threads() == min(expected, most)
        assert numba.get_num_threads() == most
        with pytest.raises(KeyError), threads_for(items, each):
            raise KeyError
        assert numba.get_num_threads() == most
    finally:
        numba.set_num_threads(before)
