"""How a model was trained, for one that was not trained in the race. Bundles know no times: the record lies beside
them.

    python -m benchmarks.race.training_record RUN FOLDER

writes FOLDER/training.json: commit, machine, seconds and peak of memory of the training in RUN (call it where RUN was
trained). FOLDER/bundle is the model, packed or copied; FOLDER can then travel, and the race takes it as ``--models
NAME=FOLDER``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.record import code, machine
from longtail.errors import LongtailError, RunError
from longtail.persistence import read_json, write_json

RECORD = "training.json"
DIARY = "metrics.jsonl"


def training_record(folder: Path) -> dict[str, Any]:
    """Seconds and peak of memory of a training, and what a record says of its machine; nothing where only a bundle is
    left.
    """
    if (folder / RECORD).exists():
        return dict(read_json(folder / RECORD))
    return diary_record(folder) if (folder / DIARY).exists() else {}


def diary_record(run: Path) -> dict[str, Any]:
    """From the diary that a run keeps."""
    events = [json.loads(line) for line in (run / DIARY).read_text(encoding="utf-8").splitlines()]
    # A stage inside another names it: its time is in that of the outer one.
    stages = [event for event in events if event["event"] == "stage" and not event["stage"]]
    return {
        "training_seconds": sum(event["seconds"] for event in stages),
        "training_peak_mb": max((event["peak_memory"] for event in stages), default=0) / 2**20,
    }


def write_record(run: Path, folder: Path) -> None:
    """To be called on the machine, and from the commit, that trained `run`."""
    if not (run / DIARY).exists():
        raise RunError(f"{run}: no run of longtail (no {DIARY})", "give the --out folder of 'longtail train'")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, {**diary_record(run), "trained_on": {**code(), "machine": machine()}})


def trained_in_words(record: dict[str, Any]) -> str:
    """Where and when, as far as it is known."""
    where = record.get("trained_on")
    if not where:
        return "on a machine and commit that were not written down"
    described = where["machine"]["gpu"] or f"{where['machine']['cores']} cores of {where['machine']['cpu']}"
    return f"on {described}, commit {where['commit'][:12]}"


if __name__ == "__main__":
    try:
        write_record(Path(sys.argv[1]), Path(sys.argv[2]))
    except LongtailError as problem:
        raise SystemExit(str(problem)) from None
