"""One process that tries, seed by seed, and writes down what it found: it may be ended by what it tries.

    python -m benchmarks.faults.worker KIND FOLDER FIRST COUNT SECONDS [MODEL ...]

FOLDER/KIND.jsonl gets a line for each failure; FOLDER/KIND.at holds the seed that is being tried, and how many tries
and faults there were.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

Attempt = Callable[[int], tuple[int, str]]
TEXTS_AT_ONCE = 250


def forged(folder: Path, names: Sequence[str] = ()) -> Attempt:
    """One forged part, of a model that the seed chooses. names: of these models alone."""
    from benchmarks.faults.forging import Forger
    from benchmarks.faults.models import made

    forgers = [Forger(bundle) for _, bundle in made(folder / "models", iter(names) if names else None)]
    for forger in forgers:
        forger.open_and_ask({})
    return lambda seed: (1, _said(forgers[seed % len(forgers)], seed))


def _said(forger: object, seed: int) -> str:
    found: str = forger.attempt(seed)  # type: ignore[attr-defined]
    return f"{forger.bundle.parent.name}: {found}" if found else ""  # type: ignore[attr-defined]


def files(folder: Path) -> Attempt:
    """One fuzzed file."""
    from benchmarks.faults.inputs import Readers

    readers = Readers(folder / "files")
    return lambda seed: (1, readers.attempt(seed))


def texts(folder: Path) -> Attempt:
    """Fuzzed texts, asked in batches of every kind of model; what comes back must be labels and finite scores."""
    import numpy as np

    from benchmarks.faults.inputs import texts as made_texts
    from benchmarks.faults.models import made
    from longtail.predictor import Predictor

    names = ("tiny", "direct", "packed-int4", "packed-sketch", "astec", "eclare", "galaxc", "gnnxml", "ngame")
    models = [Predictor.open(bundle) for _, bundle in made(folder / "models", iter(names))]

    def attempt(seed: int) -> tuple[int, str]:
        asked = made_texts(seed, TEXTS_AT_ONCE)
        try:
            found = models[seed % len(models)].predict(asked, k=3)
        except Exception as problem:
            return len(asked), f"{names[seed % len(models)]}: {type(problem).__name__} {problem}"
        wrong = len(found) != len(asked) or any(not np.isfinite(one.score) for each in found for one in each)
        return len(asked), f"{names[seed % len(models)]}: answers are missing, or no numbers" if wrong else ""

    return attempt


def broken(kind: str) -> Callable[[Path], Attempt]:
    """Trainings that end early."""

    def start(folder: Path) -> Attempt:
        import torch

        from benchmarks.faults.kills import Trainings

        torch.set_num_threads(1)
        others = ("direct", "astec", "eclare", "galaxc", "gnnxml", "ance", "ngame", "dexml", "siamese", "ramen")
        # The smallest takes a tenth of the time of others: it is met half of the time.
        names = [name for other in others for name in ("tiny", other)]
        ready: dict[str, Trainings] = {}

        def attempt(seed: int) -> tuple[int, str]:
            name = names[seed % len(names)]
            if name not in ready:
                ready[name] = Trainings(name, folder / kind)
            count, said = ready[name].attempt(kind, seed)
            return count, f"{name}: {said}" if said else ""

        return attempt

    return start


def full_everywhere(folder: Path) -> Attempt:
    """A full disk at every operation of the smallest training; one try is all of them."""
    from benchmarks.faults.kills import Trainings

    return lambda _: Trainings("tiny", folder / "full").full_everywhere()


KINDS: dict[str, Callable[[Path], Attempt]] = {
    "full": full_everywhere,
    "forged": forged,
    "files": files,
    "texts": texts,
    "kill": broken("kill"),
    "disk": broken("disk"),
    "memory": broken("memory"),
}


def seeds(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def main(kind: str, folder: Path, first: int, count: int, seconds: float, models: Sequence[str]) -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    at, log = folder / f"{kind}.at", (folder / f"{kind}.jsonl").open("a")
    attempt = forged(folder, models) if models else KINDS[kind](folder)
    tried, until = 0, time.monotonic() + seconds
    with at.open("r+b" if at.exists() else "w+b", buffering=0) as place:
        for seed in islice(seeds(first), 1 << 40):
            os.pwrite(place.fileno(), b"%-20d %-20d" % (seed, tried), 0)
            found, said = attempt(seed)
            tried += found
            if said:
                log.write(json.dumps({"kind": kind, "seed": seed, "said": said[:2000]}) + "\n")
                log.flush()
            if tried >= count or time.monotonic() > until:
                os.pwrite(place.fileno(), b"%-20d %-20d" % (seed + 1, tried), 0)
                return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), sys.argv[6:])
