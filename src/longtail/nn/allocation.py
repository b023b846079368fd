"""Memory of large tensors on a CPU."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _MOST = -1, -3, 1 << 30


def keep_large_blocks() -> None:
    """Tell the C library to keep blocks of up to 1 GiB for the next tensor when they are freed, in place of giving them back to the system.

    A step over all labels makes and frees dozens of tensors of tens of megabytes; asking for each anew means that every page is cleared by the
    system when it is touched first: a quarter of the time of a step (`benchmarks.composed_step`). For the whole process, which keeps 1 GiB at
    most that nobody uses; only where it is the C library of GNU, elsewhere nothing happens.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MOST)
        mallopt(_M_TRIM_THRESHOLD, _MOST)
