"""From texts to code points, in blocks, on all cores, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

import numpy as np

from longtail.features.characters import normalise
from longtail.features.tables import U32
from longtail.types import I64

# Small enough for the caches, large enough that the interpreter's share per block vanishes.
BLOCK_CHARACTERS = 1 << 19

Job = TypeVar("Job")
Result = TypeVar("Result")


def blocks(columns: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Documents in runs of about `BLOCK_CHARACTERS`; the texts of a document, one per column, lie side by side."""
    documents = zip(*columns, strict=True)
    block: list[str] = []
    size = 0
    # A few documents at a time: counting characters one by one would cost more than reading them.
    while chunk := list(chain.from_iterable(islice(documents, 64))):
        block += chunk
        size += sum(map(len, chunk))
        if size >= BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def encode(texts: Sequence[str]) -> tuple[U32, I64]:
    """`code_points` of the normalised texts."""
    # `normalise` does the same with ASCII; not calling it half a million times saves a tenth of the time.
    return code_points([text.lower() if text.isascii() else normalise(text) for text in texts])


def code_points(texts: Sequence[str]) -> tuple[U32, I64]:
    """Code points of texts with a NUL around each, and the positions of these NULs (one more than texts).

    A NUL within a text becomes a space, which separates words as well; a lone surrogate stays what it is, a separator.
    """
    joined = "\0".join(["", *texts, ""])
    if joined.count("\0") != len(texts) + 1:
        joined = "\0".join(["", *(text.replace("\0", " ") for text in texts), ""])
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return points, np.flatnonzero(points == 0)


def in_order(work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """`work` on each job, on as many threads as numba may use; results in the order of jobs, few jobs in flight.

    `work` should spend its time in kernels, which release the interpreter's lock. A single job runs right here.
    """
    import numba

    jobs = iter(jobs)
    first = list(islice(jobs, 2))
    threads = numba.get_num_threads()
    if len(first) < 2 or threads == 1:
        yield from map(work, first)
        yield from map(work, jobs)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque(pool.submit(work, job) for job in first)
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
