"""Memory and time of training on planted data of any size, in memory and from the disk (`train --memory`).

    python -m benchmarks.large_data slope --documents 200000 800000 --out FILE.json
    python -m benchmarks.large_data train --documents 2500000 --memory 1GB --out FILE.json

`slope` trains on two sizes, each in a process of its own, and gives the bytes of memory that one more document takes.
`train` trains once. Data is written to a folder of its own below --folder, and removed at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import typed_command, write_result

WORDS_OF_A_DOCUMENT, LABELS_OF_A_DOCUMENT = 12, 4
_AT_ONCE = 50_000


def write_planted(folder: Path, documents: int, labels: int, words: int, seed: int = 0) -> int:
    """A folder in the LF layout, written piece by piece: labels are named by two words, a document says a word of each
    of its labels and some that are frequent (Zipf). Gives the number of pairs of a document and a label.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    spelled = np.array([_spelled(number) for number in range(words)])
    own = rng.integers(words // 10, words, (labels, 2))
    with (folder / "lbl.jsonl").open("w") as file:
        for number, (first, second) in enumerate(spelled[own]):
            file.write(f'{{"uid": "l{number}", "title": "{first} {second}"}}\n')
    frequent = np.cumsum(1 / np.arange(1, words // 10 + 1))
    frequent /= frequent[-1]
    popular = np.cumsum(1 / np.arange(1, labels + 1) ** 0.6)
    popular /= popular[-1]
    pairs = 0
    with (folder / "trn.jsonl").open("w") as file:
        for start in range(0, documents, _AT_ONCE):
            count = min(_AT_ONCE, documents - start)
            targets = np.searchsorted(popular, rng.random((count, LABELS_OF_A_DOCUMENT)))
            said = own[targets, rng.integers(0, 2, targets.shape)]
            noise = np.searchsorted(frequent, rng.random((count, WORDS_OF_A_DOCUMENT - LABELS_OF_A_DOCUMENT)))
            texts = spelled[np.concatenate([noise, said], axis=1)].tolist()
            for row, (text, numbers) in enumerate(zip(texts, targets.tolist(), strict=True), start):
                chosen = sorted(set(numbers))
                pairs += len(chosen)
                file.write(f'{{"uid": "d{row}", "title": "{" ".join(text)}", "target_ind": {chosen}}}\n')
    return pairs


def _spelled(number: int) -> str:
    """A word that can be read, different for each number."""
    found = ""
    number += 100
    while number:
        number, syllable = divmod(number, 70)
        found += "bdfgklmnprstvz"[syllable // 5] + "aeiou"[syllable % 5]
    return found


def trained(data: Path, run: Path, memory: str, settings: list[str]) -> dict[str, Any]:
    """One training in a process of its own: seconds and the peak of memory, by stage."""
    words = [
        sys.executable,
        "-m",
        "longtail",
        "train",
        str(data),
        "--out",
        str(run),
        "--device",
        "cpu",
        "--no-examples",
    ]
    words += ["--memory", memory] if memory else []
    words += [word for setting in settings for word in ("--set", setting)]
    started = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    stages = {
        event["name"]: {"seconds": event["seconds"], "peak_bytes": event["peak_memory"]}
        for event in events
        if event["event"] == "stage"
    }
    disk = sum(file.stat().st_size for file in (run / "stages" / "0_prepare").rglob("*") if file.is_file())
    return {
        "seconds": round(time.monotonic() - started, 1),
        "stages": stages,
        "peak_bytes": next(event["peak_memory"] for event in reversed(events) if "peak_memory" in event),
        "bytes_of_stage_0_prepare": disk,
        "said": [line for line in done.stderr.splitlines() if line.startswith(("note", "memory"))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("case", choices=["slope", "train"])
    parser.add_argument("--documents", type=int, nargs="+", required=True)
    parser.add_argument("--labels", type=int, default=10_000)
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--memory", default="")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=Path("runs/large_data"))
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    for documents in asked.documents:
        place = asked.folder / f"{documents}"
        shutil.rmtree(place, ignore_errors=True)
        pairs = write_planted(place / "data", documents, asked.labels, asked.words)
        size = (place / "data" / "trn.jsonl").stat().st_size
        found[f"{documents:,} documents"] = {
            "pairs": pairs,
            "bytes_of_texts": size,
            **trained(place / "data", place / "run", asked.memory, asked.settings),
        }
        shutil.rmtree(place)
        print(json.dumps(found, indent=1), flush=True)
    if asked.case == "slope":
        small, large = (found[f"{documents:,} documents"] for documents in asked.documents)
        more = asked.documents[1] - asked.documents[0]
        found["bytes_of_memory_per_document"] = {
            name: round((large["stages"][name]["peak_bytes"] - small["stages"][name]["peak_bytes"]) / more)
            for name in large["stages"]
        } | {"in all": round((large["peak_bytes"] - small["peak_bytes"]) / more)}
    write_result(asked.out, "large_data", found, typed_command("large_data", sys.argv[1:]))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
