"""How many threads a small piece of work deserves, and pieces of work that each keep to one thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class _Threads:
    """A context; no generator, as a single query enters half a dozen of them."""

    __slots__ = ("before", "wanted")

    def __init__(self, wanted: int) -> None:
        self.wanted, self.before = wanted, 0

    def __enter__(self) -> None:
        import numba

        config: Any = numba.config
        if config.NUMBA_NUM_THREADS == 1:
            return
        before = numba.get_num_threads()
        if self.wanted < before:
            numba.set_num_threads(self.wanted)
            self.before = before

    def __exit__(self, *_: object) -> None:
        if self.before:
            import numba

            numba.set_num_threads(self.before)


def threads_for(items: int, each: int = 32) -> _Threads:
    """Within: kernels use no more threads than give each one `each` items.

    Waking a thread costs tens of microseconds, and milliseconds on a busy machine (torch keeps its own threads
    waiting in a loop): more than a single query or a small batch takes in all. Results never depend on the number of
    threads.
    """
    return _Threads(max(1, items // each))


def on_threads(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """`work` on each piece, on as many threads as numba may use here; results in the order of pieces.

    Each piece keeps to one thread: kernels within it wake no others. Work should spend its time in kernels, which
    release the interpreter's lock. The calling thread takes its share: on a busy machine new threads wait for a
    processor. After an error no piece is begun any more.
    """
    import numba

    layers: Any = numba
    threads = min(len(pieces), numba.get_num_threads())
    # The one layer of numba's that ends the process when two threads call kernels at once.
    if threads < 2 or layers.threading_layer() == "workqueue":
        return list(map(work, pieces))
    waiting, results = deque(enumerate(pieces)), {}

    def take_turns() -> None:
        with _Threads(1):
            while True:
                try:
                    number, piece = waiting.popleft()
                except IndexError:
                    return
                try:
                    results[number] = work(piece)
                except BaseException:
                    waiting.clear()
                    raise

    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(take_turns) for _ in range(threads - 1)]
        take_turns()
        for other in others:
            other.result()
    return [results[number] for number in range(len(pieces))]
