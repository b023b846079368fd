"""A measured system as a process of its own: it opens its model, then answers requests, one JSON line each, and times
itself.

Runs in the environment of the peers as well: standard library and numpy, nothing of longtail.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Served(Protocol):
    """An opened model."""

    def predict(self, texts: list[str], k: int) -> list[list[tuple[str, float]]]:
        """The `k` best labels of every raw text, best first: names and scores."""
        ...


class Ranked(Served, Protocol):
    """An opened model that can also be asked for its rankings as numbers."""

    def rank(self, texts: list[str], k: int) -> tuple[Any, Any]:
        """Arrays (n, k): label numbers, -1 where there are fewer, and scores."""
        ...


def serve(open_model: Callable[[], Served]) -> None:
    """Answer requests on standard input until it ends. Whatever a library prints goes to standard error.

    ``{"do": "open"}``; ``{"do": "singles" or "batch", "texts": [...], "k": 10}``; ``{"do": "rank", "texts": ..., "k":
    ..., "out": FILE}``; ``{"do": "memory"}``
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    model: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "open":
            started = time.perf_counter()
            model = open_model()
            answer = {"seconds": time.perf_counter() - started}
        else:
            answer = _DOINGS[request["do"]](model, request)
        print(json.dumps(answer), file=answers, flush=True)


def _singles(model: Served, request: Any) -> dict[str, Any]:
    """Milliseconds of each text, asked one by one."""
    return {"ms": [_timed(model, [text], request["k"]) for text in request["texts"]]}


def _batch(model: Served, request: Any) -> dict[str, Any]:
    """Milliseconds of all texts together."""
    return {"ms": _timed(model, request["texts"], request["k"])}


def _timed(model: Served, texts: list[str], k: int) -> float:
    started = time.perf_counter()
    model.predict(texts, k)
    return 1000 * (time.perf_counter() - started)


def _rank(model: Ranked, request: Any) -> dict[str, Any]:
    import numpy as np

    ids, scores = model.rank(request["texts"], request["k"])
    np.savez_compressed(request["out"], ids=ids, scores=scores)
    return {}


def _memory(model: Served, request: Any) -> dict[str, Any]:
    return {"peak_mb": peak_mb()}


def peak_mb() -> float:
    """Of this process alone: `getrusage` would tell the peak of the one that started it, if that was larger."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


_DOINGS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "singles": _singles,
    "batch": _batch,
    "rank": _rank,
    "memory": _memory,
}
