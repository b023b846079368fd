"""How many threads a small piece of work deserves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def threads_for(items: int, each: int = 32) -> Iterator[None]:
    """Within: kernels use no more threads than give each one `each` items.

    Waking a thread costs tens of microseconds, and milliseconds on a busy machine (torch keeps its own threads waiting in a
    loop): more than a single query or a small batch takes in all. Results never depend on the number of threads.
    """
    from numba import get_num_threads, set_num_threads

    before = get_num_threads()
    wanted = max(1, min(before, items // each))
    if wanted == before:
        yield
        return
    set_num_threads(wanted)
    try:
        yield
    finally:
        set_num_threads(before)
