"""What a step of `direct` costs on G processes: bytes that are sent, bytes of memory, and seconds on GPUs like the one
that was measured.

    python -m benchmarks.scale --out benchmarks/results/scale_model.json

What is sent is counted, and checked against a training of two processes (tests/training/test_processes.py). Seconds
come from two rates of one H200 in `full_engine_h200.json`: of the products of a step, and of the update of rows. Where
rows take two bytes a number (`train.rows=sgd`), products and update are one: the rate is that of whole steps in
`small_rows_h200.json`. Nothing was measured on several GPUs.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import typed_command, write_result

FLOAT = 4
# Bytes of a number of a label's row: itself and two moments, the composed row, and with label text that text, what the
# gain multiplies, and the gradient that is summed up (`recipes.direct.objective`).
ROW_BYTES, TEXT_BYTES = 4 * FLOAT, 3 * FLOAT
# The same where rows have no moments: the row in bf16; with label text that text, and the gradient (`direct.sgd`).
SMALL_ROW_BYTES, SMALL_TEXT_BYTES = 2, 2 * 2
# An update reads and writes a number with its moments, and the gradient goes through memory in bf16.
UPDATE_BYTES = 6 * FLOAT + 2 * 2
MEASURED = Path(__file__).parent / "results" / "full_engine_h200.json"
SMALL = Path(__file__).parent / "results" / "small_rows_h200.json"
SMALL_STEP = "step (4096, 1305265, 300) with text"
REFERENCE = (1024, 1305265, 300)  # documents, labels and width of the step whose rates are taken


@dataclass(frozen=True)
class Training:
    """labels L, width D of vectors, batch B, processes G.  text_words: words that occur in label texts, T; 0: no text.
    mapped: whether label texts pass through a matrix.  text_every: steps between two looks at them.
    small: rows take two bytes a number.
    """

    labels: int
    width: int
    batch: int
    processes: int = 1
    text_words: int = 0
    mapped: bool = False
    text_every: int = 1
    small: bool = False

    def sent(self, batches: list[int]) -> dict[str, int]:
        """Bytes that a process sends in a training with batches of these sizes, by purpose, as `Shard.sent` counts."""
        others = self.processes - 1
        part = [others * -(-documents // self.processes) * FLOAT for documents in batches]
        looks = len(batches) // self.text_every if self.text_words else 0
        matrix = self.width**2
        dense = [matrix + 1] * (len(batches) - looks)
        dense += [matrix + 1 + 1 + (matrix if self.mapped else 0)] * looks
        return {
            "documents": sum(part) * (self.width + 1),
            "gradients": sum(part) * (self.width + 1),
            "encoder": sum(part) * self.width + sum(2 * others * n * FLOAT // self.processes for n in dense),
            "label texts": looks * (2 * others * self.text_words * self.width * FLOAT // self.processes),
        }

    def row_bytes(self) -> int:
        """Memory of the rows of the process that has most of them."""
        of_row, of_text = (SMALL_ROW_BYTES, SMALL_TEXT_BYTES) if self.small else (ROW_BYTES, TEXT_BYTES)
        each = of_row + (of_text if self.text_words else 0)
        return -(-self.labels // self.processes) * (self.width + 1) * each

    def step_seconds(self, rates: dict[str, float]) -> float:
        """Products of documents and rows, three of them, and the update; without the encoder, texts, and sending."""
        rows = self.labels / self.processes * self.width
        if self.small:
            return 6 * self.batch * rows / rates["small_flop_s"]
        return 6 * self.batch * rows / rates["flop_s"] + UPDATE_BYTES * rows / rates["update_bytes_s"]


def rates() -> dict[str, float]:
    steps = json.loads(MEASURED.read_text())["numbers"]["steps"]
    step = steps[f"{REFERENCE} fused"]
    batch, labels, width = REFERENCE
    products = step["without update"]["ms"] / 1000
    update = step["with update"]["ms"] / 1000 - products
    small = json.loads(SMALL.read_text())["numbers"][SMALL_STEP]["tflop_s"]
    return {
        "flop_s": 6 * batch * labels * width / products,
        "update_bytes_s": UPDATE_BYTES * labels * width / update,
        "small_flop_s": small * 1e12,
    }


def predictions(*, small: bool) -> dict[str, Any]:
    found, of_gpu = {}, rates()
    for labels in (10**7, 10**8, 360 * 10**6):
        for gpus in (1, 8, 64):
            case = Training(labels, 256, 4096, gpus, text_words=10**6, mapped=True, text_every=4, small=small)
            seconds = case.step_seconds(of_gpu)
            a_step = sum(case.sent([case.batch] * 4).values()) / 4
            found[f"{labels:,} labels, {gpus} GPUs"] = {
                "rows_gb": round(case.row_bytes() / 1e9, 1),
                "step_ms": round(1000 * seconds, 1),
                "hours_per_100m_documents": round(1e8 / case.batch * seconds / 3600, 1),
                "sent_mb_per_step": round(a_step / 1e6, 1),
                "link_gb_s_at_which_sending_takes_as_long": round(a_step / seconds / 1e9, 1),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    small = Training(131073, 300, 1024)
    measured = json.loads(MEASURED.read_text())["numbers"]["steps"]["(1024, 131073, 300) fused"]["with update"]["ms"]
    numbers = {
        "rates": {name: float(f"{value:.4g}") for name, value in rates().items()},
        "a smaller step, predicted and measured, ms": [round(1000 * small.step_seconds(rates()), 3), measured],
        "predictions": predictions(small=False),
        "predictions, rows of two bytes a number": predictions(small=True),
    }
    write_result(out, "scale_model", numbers, typed_command("scale", []))
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
