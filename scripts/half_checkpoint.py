"""Write a pretrained checkpoint anew with half the bytes: float16 weights, config.json and the tokenizer's files, and
nothing else.

    python scripts/half_checkpoint.py minilm OUT        (or the folder of a checkpoint)

For machines that cannot reach a hub: OUT is what ``--set features.checkpoint=OUT`` takes. MiniLM has 45 MB.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np

from longtail.errors import LongtailError
from longtail.features.pieces import checkpoint_folder
from longtail.models.transformer import WEIGHTS, read_checkpoint
from longtail.persistence import map_arrays, write_arrays, written_aside


def halve(name: str, out: Path) -> None:
    """The checkpoint `name` (a folder, or a packaged one) as float16 in the new folder `out`."""
    folder = checkpoint_folder(name, "halving a checkpoint")
    read_checkpoint(folder)  # refuses what could not be used later
    halves = {
        key: array.astype(np.float16) if array.dtype == np.float32 else array
        for key, array in map_arrays(folder / WEIGHTS).items()
    }
    with written_aside(out) as aside:
        aside.mkdir()
        write_arrays(aside / WEIGHTS, halves)
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
            if (folder / file).is_file():
                shutil.copyfile(folder / file, aside / file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    try:
        halve(options.checkpoint, options.out)
    except LongtailError as problem:
        sys.exit(f"error: {problem.message}\nhint: {problem.hint}")
    print(f"wrote {options.out}")
