"""How sure is it: calibration error of the labels shown.

A model is trained with a part of its training documents held out. On the test documents: ECE@1, ECE@3 and ECE@5 of its
scores (`longtail.metrics.reliability`), the labels of the first k places of all documents.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.trust.common import trained, training_options
from longtail.data.read import read
from longtail.evaluation import Yardstick, rank_test
from longtail.training.progress import SilentDisplay


def options(parser: argparse.ArgumentParser) -> None:
    training_options(parser)
    parser.add_argument("--holdout", type=float, default=0.05, help="share of the documents that training leaves out")


def measure(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    whole = read(data)
    with trained(whole, options, f"{data.name}-{options.recipe}", holdout=options.holdout) as (model, seconds):
        yardstick = Yardstick.of(whole)
        top = rank_test(model, yardstick, SilentDisplay())
        before = yardstick.calibration(top)
    return {
        **yardstick.about(),
        "seconds of training": seconds,
        "before": {name: round(value, 3) for name, value in before.items() if name.startswith("ECE")},
    }
