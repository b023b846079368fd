"""The one place that knows how we compile kernels with numba, and where machine code is kept.

Modules that hold kernels import numba, which takes a while; they are imported only by the functions that need them, so
that ``import longtail`` stays fast. Machine code is cached on disk (``cache=True``), so only the very first call on a
machine compiles; who waits for it is told so, and ``longtail warm-up`` does it ahead.

Two traps, both met: a ``prange`` index is unsigned (cast it with ``np.int64(i)`` before mixing it with signed numbers),
and ``fastmath`` may reorder sums (leave it off where results must not depend on the machine).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.caching
import numba.core.event

from longtail import __version__
from longtail.kernels.forked import survive_forks

Function = TypeVar("Function", bound=Callable[..., Any])
# numba has no types for these.
SETTINGS: Any = numba.config
PLACES: Any = numba.core.caching.UserProvidedCacheLocator
EVENTS: Any = numba.core.event
FUNCTION_CACHE: Any = numba.core.caching.FunctionCache
CACHE_FILES: Any = numba.core.caching.IndexDataCacheFile
PACKAGE = Path(__file__).resolve().parents[1]
logger = logging.getLogger("longtail")


# ---- where machine code is kept ----


def cache_folder(beside: Path, choices: Iterator[Path]) -> Path | None:
    """Where to keep machine code: None beside the sources, as numba does by itself; else the first of `choices` that
    is ours alone and can be written (what lies there is run, so nobody else may have put it there).
    """
    if _writable(beside):
        return None
    for folder in choices:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = folder.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and _writable(folder):
                return folder
    return Path()


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _choices() -> Iterator[Path]:
    with contextlib.suppress(RuntimeError):  # no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail" / "kernels"
    yield Path(tempfile.gettempdir()) / f"longtail-kernels-{os.getuid()}"


def _settle() -> bool:
    """Tell numba where to keep machine code; gives whether it can be kept at all."""
    if SETTINGS.CACHE_DIR:  # the user's own choice
        return True
    folder = cache_folder(PACKAGE / "kernels" / "__pycache__", _choices())
    if folder is None:
        return True
    if folder == Path():
        logger.warning("note: no folder can be written, so kernels are compiled anew in every process")
        return False
    SETTINGS.CACHE_DIR = str(folder)
    if not any(folder.iterdir()):
        logger.warning("note: the installation cannot be written; compiled kernels are kept in %s", folder)
        _seed(folder)
    return True


def _seed(folder: Path) -> None:
    """Copy machine code that was compiled beside the sources (``longtail warm-up`` while an image was built)."""
    for file in PACKAGE.rglob("__pycache__/*.nb[ic]"):
        place = folder / PLACES.get_suitable_cache_subpath(str(file.parents[1] / "any.py"))
        place.mkdir(exist_ok=True)
        shutil.copy(file, place)


# ---- what is kept is used only where it fits ----


def _sources() -> str:
    """A digest of this version and of all files that hold kernels."""
    digest = hashlib.sha256(__version__.encode())
    for file in sorted([*PACKAGE.rglob("kernels.py"), *PACKAGE.rglob("kernels/*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


SOURCES = _sources()


class _CacheFiles(CACHE_FILES):  # type: ignore[misc]
    """The files of one kernel. Signatures in them name classes, and numba unpickles them before it looks at their age:
    where that fails (a class was moved, a file was cut off) there is nothing to be had from them.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            return super()._load_index()
        except Exception:
            return {}


class _KernelCache(FUNCTION_CACHE):  # type: ignore[misc]
    """numba's cache of a function, which forgets what no longer fits.

    numba itself looks at the function's own file only; machine code also holds the kernels that it calls, which may
    stand elsewhere.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), SOURCES
        self._cache_file = _CacheFiles(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except Exception:  # broken, so compiled anew and written again
            return None


# ---- compiling ----


class _Compiling(numba.core.event.Listener):
    """Says once in a process that it waits for the compiler, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def on_start(self, event: Any) -> None:
        if not self.count:
            logger.warning("compiling once for this machine (seconds; 'longtail warm-up' does it ahead) ...")
        self.count += 1

    def on_end(self, event: Any) -> None: ...


KEPT = _settle()
survive_forks()
compiling = _Compiling()
EVENTS.register("numba:compile", compiling)


def compiled(*, parallel: bool = False, fastmath: bool = False, inline: bool = False) -> Callable[[Function], Function]:
    """Compile a function without the Python interpreter (``nopython``), release the GIL and cache the machine code."""

    def wrap(function: Function) -> Function:
        kernel: Any = numba.njit(
            nogil=True, parallel=parallel, fastmath=fastmath, inline="always" if inline else "never"
        )(function)
        if KEPT:
            kernel._cache = _KernelCache(function)
        return cast(Function, kernel)

    return wrap


prange: Any = numba.prange
