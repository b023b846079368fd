"""Which words' vectors `longtail pack --features N` should keep: rules compared on a slice of the embedded sample.

    python -m benchmarks.speed word-influence [--set a.b=c] [--keep 0.47] --out FILE.json

Trains `direct` on 90% of the sample's training documents and packs it by each rule; what is left of the accuracy is
measured on the other 10%. Test documents are not looked at. A rule multiplies the length of a word's vector with idf
and with a power of the share of documents that the word is in: 1 is the mean that it moves a document by, 1/2 the
root of the mean square, 0 leaves the share out.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import longtail
from benchmarks.speed.common import Measured, set_argument
from longtail.data.dataset import Dataset
from longtail.data.read import read, sample_folder
from longtail.evaluation import evaluate
from longtail.features.sparse import SparseText
from longtail.predictor import Predictor
from longtail.recipes import make_recipe
from longtail.search.packed import Packer
from longtail.training.progress import PlainDisplay

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5")


def options(parser: argparse.ArgumentParser) -> None:
    set_argument(parser)
    parser.add_argument(
        "--keep",
        type=float,
        default=0.47,
        help="share of the word vectors that is kept (default 0.47: 40,000 of 85,400)",
    )
    parser.add_argument(
        "--share", type=float, default=0.1, help="share of the training documents that is held out (default 0.1)"
    )
    parser.add_argument("--seed", type=int, default=0)


def measure(options: argparse.Namespace) -> Measured:
    data = read(sample_folder(), test=False).hold_out(options.share, options.seed)
    numbers = compared(data, options.set, options.keep, options.seed)
    return Measured(numbers, config={"share": options.share, "keep": options.keep}, seed=options.seed)


def compared(data: Dataset, settings: list[str], keep: float, seed: int = 0) -> dict[str, dict[str, float]]:
    """rule -> metric -> percent on the held-out documents (the test side of `data`)."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = make_recipe("direct", assignments=settings)
        model = longtail.train(
            data, Path(folder) / "run", recipe, seed=seed, device="cpu", display=PlainDisplay(seconds=30)
        )
        featurizer: Any = model.bundle.featurizer
        assert isinstance(featurizer, SparseText)
        shares = featurizer.document_shares
        assert shares is not None
        kept = round(keep * featurizer.width)
        rules: dict[str, Packer] = {"all vectors": Packer("int8"), "length alone": Packer("int8", kept)}
        for power in POWERS:
            rules[f"length x idf x share^{power:g}"] = Packer("int8", kept, featurizer.idf * shares**power)
        return {name: scored(model, packer, data) for name, packer in rules.items()}


def scored(model: Predictor, packer: Packer, data: Dataset) -> dict[str, float]:
    packed = Predictor(replace(model.bundle, ranker=model.bundle.ranker.packed(packer)))
    result = evaluate(packed, data)
    return {metric: float(result[metric]) for metric in SHOWN}
