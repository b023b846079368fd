"""How many threads a small piece of work deserves."""

from __future__ import annotations

from typing import Any


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

    Waking a thread costs tens of microseconds, and milliseconds on a busy machine (torch keeps its own threads waiting in a
    loop): more than a single query or a small batch takes in all. Results never depend on the number of threads.
    """
    return _Threads(max(1, items // each))
