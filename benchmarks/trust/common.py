"""What the cases of `benchmarks.trust` share: a model to be looked at, trained now or before."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import longtail
from longtail.data.dataset import Dataset
from longtail.predictor import Predictor
from longtail.recipes import make_recipe
from longtail.training.progress import PlainDisplay


def training_options(parser: argparse.ArgumentParser) -> None:
    """How a model is trained where none is given."""
    parser.add_argument("--recipe", default="direct")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="a setting of the recipe")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep runs here, and take up those that lie there")


@contextlib.contextmanager
def trained(data: Dataset, options: argparse.Namespace, name: str, **more: Any) -> Iterator[tuple[Predictor, float]]:
    """A model of `data` in the run called `name`, and the seconds its training took; a run that lies in --runs is
    taken up (0 seconds where it is finished). more: arguments of `longtail.train`.
    """
    recipe = make_recipe(options.recipe, assignments=options.set)
    with contextlib.ExitStack() as stack:
        home = options.runs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = time.perf_counter()
        finished = (home / name / "bundle" / "manifest.json").exists()
        model = longtail.train(
            data,
            home / name,
            recipe,
            seed=options.seed,
            device=options.device,
            display=PlainDisplay(seconds=30),
            **more,
        )
        yield model, 0.0 if finished else round(time.perf_counter() - started, 1)
