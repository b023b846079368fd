"""Models beside each other by what `benchmarks.sets --predictions` kept of them: differences with intervals over test
documents.

``python -m benchmarks.differences DATA NAME=FILE NAME=FILE ... [--out FILE]``: every other model is compared with the
last one named.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.record import typed_command, write_result
from longtail import metrics
from longtail.data.read import read
from longtail.evaluation import Yardstick
from longtail.types import TopK

SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    data = read(options.data)
    yardstick = Yardstick.of(data)
    measured = {
        name: yardstick.measure(kept(Path(path))) for name, path in (model.split("=", 1) for model in options.models)
    }
    *others, last = measured
    differences = {
        f"{name} - {last}": {
            metric: vars(found)
            for metric, found in metrics.paired_bootstrap(
                measured[name], measured[last], rng=np.random.default_rng(0)
            ).items()
            if metric in SHOWN
        }
        for name in others
    }
    scores = {
        name: {metric: value for metric, value in found.values().items() if metric in SHOWN}
        for name, found in measured.items()
    }
    print(json.dumps({"models": scores, "differences": differences}, indent=1))
    if options.out:
        command = typed_command("differences", sys.argv[1:] if arguments is None else arguments)
        write_result(
            options.out,
            "differences",
            {**yardstick.about(), "models": scores, "differences": differences},
            command,
            data.digest,
        )


def kept(path: Path) -> TopK:
    """Ranked labels of every test document."""
    with np.load(path, allow_pickle=False) as found:
        return TopK(found["ids"], found["scores"])


if __name__ == "__main__":
    main()
