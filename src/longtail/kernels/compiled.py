"""The one place that knows how we compile kernels with numba.

Modules that hold kernels import numba, which takes a while; they are imported only by the functions that need them, so
that ``import longtail`` stays fast. Machine code is cached on disk (``cache=True``), so only the very first call on a
machine compiles.

Two traps, both met: a ``prange`` index is unsigned (cast it with ``np.int64(i)`` before mixing it with signed numbers),
and ``fastmath`` may reorder sums (leave it off where results must not depend on the machine).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*, parallel: bool = False, fastmath: bool = False, inline: bool = False) -> Callable[[Function], Function]:
    """Compile a function without the Python interpreter (``nopython``), release the GIL and cache the machine code."""

    def wrap(function: Function) -> Function:
        kernel = numba.njit(
            cache=True, nogil=True, parallel=parallel, fastmath=fastmath, inline="always" if inline else "never"
        )(function)
        return cast(Function, kernel)

    return wrap


prange: Any = numba.prange
