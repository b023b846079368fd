"""Memory and time of training on planted data of any size, in memory and from the disk (`train --memory`).

    python -m benchmarks.large_data slope --documents 200000 800000 --out FILE.json
    python -m benchmarks.large_data train --documents 2500000 --memory 1GB --limit 2000000000 --out FILE.json

`slope` trains on two sizes, each in a process of its own, and gives the bytes of memory that one more document takes.
`train` trains once. With --limit a training is killed when it is seen with more in memory. Data is written to a folder
of its own below --folder, and removed at the end.
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

_AT_ONCE, _LOOK_EVERY = 50_000, 0.2  # documents, seconds


def write_planted(
    folder: Path, documents: int, labels: int, words: int, of_each: tuple[int, int], seed: int = 0
) -> int:
    """A folder in the LF layout, written piece by piece: labels are named by two words, a document says a word of each
    of its labels and some that are frequent (Zipf). Gives the number of different pairs of a document and a label.

    of_each: words and labels of a document; a label that is drawn twice counts once.
    """
    said_words, wanted = of_each
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
            targets = np.searchsorted(popular, rng.random((count, wanted)))
            said = own[targets, rng.integers(0, 2, targets.shape)]
            noise = np.searchsorted(frequent, rng.random((count, said_words - wanted)))
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


def trained(data: Path, run: Path, memory: str, limit: int, settings: list[str]) -> dict[str, Any]:
    """One training in a process of its own: seconds and the peak of memory, by stage.

    limit: bytes of memory at which it is killed; 0: none.
    """
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
    notes = run.with_name("said.txt")
    with notes.open("w") as file:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=file)
        most = _watched(process, limit)
    said = notes.read_text()
    if process.returncode:
        raise SystemExit(f"{said[-3000:]}\nexit code {process.returncode}, {most:,} bytes seen in memory")
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
        "bytes_seen_in_memory": most,
        "bytes_of_stage_0_prepare": disk,
        "said": [line for line in said.splitlines() if line.startswith(("note", "memory"))],
    }


def _watched(process: subprocess.Popen[bytes], limit: int) -> int:
    """Waits for the end, and gives the most bytes that were in memory whenever it looked, pages of mapped files
    included; kills the process where they are more than `limit`.
    """
    status, most = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None:
        found = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
        most = max([most, *(1024 * int(kilobytes) for kilobytes in found)])
        if limit and most > limit:
            process.kill()
        time.sleep(_LOOK_EVERY)
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("case", choices=["slope", "train"])
    parser.add_argument("--documents", type=int, nargs="+", required=True)
    parser.add_argument("--labels", type=int, default=10_000)
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--words-of-a-document", type=int, default=12)
    parser.add_argument("--labels-of-a-document", type=int, default=4)
    parser.add_argument("--memory", default="")
    parser.add_argument("--limit", type=int, default=0, help="bytes of memory at which a training is killed; 0: none")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=Path("runs/large_data"))
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    for documents in asked.documents:
        place = asked.folder / f"{documents}"
        shutil.rmtree(place, ignore_errors=True)
        began = time.monotonic()
        of_each = (asked.words_of_a_document, asked.labels_of_a_document)
        pairs = write_planted(place / "data", documents, asked.labels, asked.words, of_each)
        print(f"planted in {time.monotonic() - began:.0f} s", flush=True)
        size = (place / "data" / "trn.jsonl").stat().st_size
        found[f"{documents:,} documents"] = {
            "pairs": pairs,
            "bytes_of_texts": size,
            **trained(place / "data", place / "run", asked.memory, asked.limit, asked.settings),
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
