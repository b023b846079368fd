"""Try to break longtail for so many minutes, and write down what was tried and what broke.

    python -m benchmarks.faults --minutes 60 --out benchmarks/results/faults.json

Kinds share the minutes: forged parts of bundles (kernels check every index then), fuzzed files and texts, trainings
that are killed, run out of disk or of memory, and the server under all that hurts one. Each goes on until it has tried
as often as it should, or its share of the time is over; what is left goes to the next. Every failure has the seed that
repeats it: ``--kind KIND --seed SEED``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.models import MODELS
from benchmarks.record import ROOT, typed_command, write_result

# kind -> tries that are asked for, and its share of the time.
WANTED: dict[str, tuple[int, float]] = {
    "kill": (1_000, 0.2),
    "texts": (800_000, 0.05),
    "files": (200_000, 0.14),
    "disk": (150, 0.03),
    "memory": (100, 0.03),
    "soak": (200_000, 0.15),
    "forged": (100_000, 0.4),
}
EXCHANGES = 100
# So often a process may end by what it tries before a kind is given up.
_ENDS = 50


def tried(
    kind: str, folder: Path, wanted: int, seconds: float, first: int = 0, models: Sequence[str] = ()
) -> dict[str, Any]:
    """Run a worker until it has tried often enough; one that ends early is a failure, and the next goes on after it."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if kind == "forged":
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder / "checked-kernels")}
    started, count, ended = time.monotonic(), 0, 0
    log, at = folder / f"{kind}.jsonl", folder / f"{kind}.at"
    for path in (log, at):
        path.unlink(missing_ok=True)  # of an earlier run
    while count < wanted and time.monotonic() - started < seconds and ended < _ENDS:
        left = max(seconds - (time.monotonic() - started), 1)
        words = [kind, str(folder), str(first), str(wanted - count), str(left), *models]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.faults.worker", *words],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        seed, so_far = (int(word) for word in at.read_text().split()) if at.exists() else (first, 0)
        count += so_far
        if done.returncode == 0:
            break
        ended += 1
        said = f"the process ended with {done.returncode}: {done.stderr[-1500:].decode(errors='replace')}"
        with log.open("a") as file:
            file.write(json.dumps({"kind": kind, "seed": seed, "said": said}) + "\n")
        first = seed + 1
        os.truncate(at, 0) if at.exists() else None
        at.write_bytes(b"%-20d %-20d" % (first, 0))
    failures = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    failures = [{**one, "said": placeless(one["said"], folder)} for one in failures]
    return {"asked_for": wanted, "tried": count, "seconds": round(time.monotonic() - started, 1), "failures": failures}


def placeless(said: str, folder: Path) -> str:
    """What a failure says, as a record keeps it: without the places of this machine, which tracebacks name."""
    for place in (folder, ROOT):
        said = said.replace(f"{place}/", "")
    return said


def soaked(folder: Path, wanted: int, seconds: float) -> dict[str, Any]:
    from benchmarks.faults.models import made
    from benchmarks.faults.soak import Soak

    models = dict(made(folder / "models", iter(["direct", "packed-int8"])))
    started = time.monotonic()
    found = Soak((models["direct"], models["packed-int8"])).run(wanted, EXCHANGES, seconds)
    failures = [{"kind": "soak", "seed": 0, "said": said} for said in found.pop("problems")]
    seconds_taken = round(time.monotonic() - started, 1)
    return {"asked_for": wanted, "tried": found["requests"], "seconds": seconds_taken, "failures": failures, **found}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kind", choices=WANTED, action="append", help="these kinds alone")
    parser.add_argument("--seed", type=int, help="try this seed of one kind alone, here and now")
    parser.add_argument("--first", type=int, default=0, help="seeds from this one on, to try what was not tried before")
    parser.add_argument("--model", choices=MODELS, action="append", help="forged parts of these models alone")
    parser.add_argument("--folder", type=Path, help="where models and kernels are kept from one run to the next")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.model and arguments.kind != ["forged"]:
        parser.error("--model goes with --kind forged alone")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.seed is not None:
            from benchmarks.faults.worker import KINDS, forged

            here = forged(folder, arguments.model) if arguments.model else KINDS[arguments.kind[0]](folder)
            print(here(arguments.seed))
            return
        numbers = _all(
            arguments.kind or list(WANTED),
            folder,
            60 * arguments.minutes,
            arguments.out,
            arguments.first,
            arguments.model or (),
        )
    failures = sum(len(one["failures"]) for one in numbers.values())
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)


def _all(
    kinds: list[str], folder: Path, seconds: float, out: Path | None, first: int, models: Sequence[str]
) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    left_until, shares = time.monotonic() + seconds, sum(WANTED[kind][1] for kind in kinds)
    for kind in kinds:
        wanted, share = WANTED[kind]
        time_left = left_until - time.monotonic()
        here = time_left * share / shares if share < shares else time_left
        shares -= share
        if kind == "soak":
            numbers[kind] = soaked(folder, wanted, here)
        else:
            numbers[kind] = tried(kind, folder, wanted, here, first, models)
        found = numbers[kind]
        line = f"{kind}: {found['tried']:,} of {found['asked_for']:,}, {len(found['failures'])} failures"
        print(f"{line}, {found['seconds']:.0f} s", flush=True)
        if out is not None:
            write_result(out, "faults", numbers, typed_command("faults", sys.argv[1:]))
    return numbers


if __name__ == "__main__":
    main()
