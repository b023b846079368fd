from __future__ import annotations

import threading
from collections.abc import Iterator

import numba
import pytest

from longtail.kernels.threads import on_threads, threads_for


@pytest.mark.parametrize(
    ("items", "each", "expected"), [(0, 32, 1), (63, 32, 1), (64, 32, 2), (10_000, 32, 2), (10_000, 9000, 1)]
)
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


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = numba.get_num_threads()
    if before < 2:
        pytest.skip("one processor")
    numba.set_num_threads(2)
    yield
    numba.set_num_threads(before)


def test_pieces_run_side_by_side_each_on_one_thread(two_threads: None) -> None:
    together = threading.Barrier(2, timeout=20)
    seen: set[int] = set()

    def work(piece: int) -> int:
        if piece < 2:
            together.wait()  # passes only if two pieces are at work at once
            seen.add(threading.get_ident())
        assert numba.get_num_threads() == 1, "kernels within wake no other thread"
        return piece * piece

    assert on_threads(work, range(7)) == [0, 1, 4, 9, 16, 25, 36]
    assert len(seen) == 2
    assert threading.get_ident() in seen, "the calling thread works too"
    assert numba.get_num_threads() == 2


def test_after_an_error_nothing_is_begun(two_threads: None) -> None:
    begun: list[int] = []
    stopped = threading.Event()

    def work(piece: int) -> None:
        begun.append(piece)
        if piece == 0:
            stopped.set()
            raise KeyError("piece 0")
        assert stopped.wait(20)

    with pytest.raises(KeyError, match="piece 0"):
        on_threads(work, range(100))
    assert len(begun) < 100
    assert numba.get_num_threads() == 2


@pytest.mark.parametrize("layer", ["workqueue", "omp"])
def test_threads_are_left_alone_where_they_would_not_help(
    two_threads: None, monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    """Two threads in the layer "workqueue" end the process; a single piece needs no other."""
    monkeypatch.setattr(numba, "threading_layer", lambda: layer)
    here = threading.get_ident()
    threads = on_threads(lambda piece: threading.get_ident(), range(4 if layer == "workqueue" else 1))
    assert set(threads) == {here}
    assert on_threads(abs, []) == []
