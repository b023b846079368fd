"""A recipe (Astec by default) with its defaults on whole data sets, trained on train and measured on test.

``python -m benchmarks.sets FOLDER... --out FILE [--device auto] [--seed 0] [--set a.b=c] [--recipe astec]
[--predictions DIR] [--runs DIR]``

FOLDER: a data set, or ``shape-131k`` for planted data of the shape of LF-AmazonTitles-131K (294,805 documents,
131,073 labels). Absolute times mean something on the GPU only. --predictions: keep what was predicted for test
documents, as FOLDER's name.npz, so that `benchmarks.peers` can compare a model of the GPU machine with systems that
run on this one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import longtail
from benchmarks.record import GpuWatch, typed_command, write_result
from longtail.config import to_tables
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.evaluation import Yardstick, baselines, rank_test
from longtail.models.transformer import FrozenTransformer, Pretrained
from longtail.nn.batches import Documents
from longtail.nn.encoders import encode_all
from longtail.nn.transformer import Transformer
from longtail.recipes import make_recipe
from longtail.search.index import ExactIndex
from longtail.training.indices import GpuExactIndex
from longtail.training.progress import PlainDisplay
from longtail.types import F32, Batch, TopK

SHAPE_131K = SyntheticConfig(
    documents=294_805, test_documents=10_000, labels=131_073, topics=1000, graph_coverage=0.0, missing_rate=0.2
)
# A vocabulary of words, as the published set has (40,000), and the paper's width.
WORDS = ["features.subwords=none", "features.pairs=false"]
SETTINGS_131K = {
    "astec": [*WORDS, "surrogate.width=300"],
    "galaxc": [*WORDS, "astec.width=300"],
    "direct": [*WORDS, "encoder.width=300", "train.epochs=30", "train.batch=1024"],
}

KEPT_LABELS = 10  # of every test document: all that is compared, in a file that can travel (yso-finna-en: 7 MB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--recipe", default="astec")
    parser.add_argument("--predictions", type=Path)
    parser.add_argument(
        "--runs",
        type=Path,
        help="keep the run here: what was interrupted goes on ('training' is then the time of the last piece)",
    )
    parser.add_argument("--no-baselines", action="store_true", help="measure the recipe alone")
    parser.add_argument(
        "--gpu-search",
        action="store_true",
        help="test documents are searched on the GPU; 'predicting' is then not the time of a user",
    )
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.data:
        started = time.monotonic()
        data = synthesise(SHAPE_131K, 0).dataset if name == "shape-131k" else read(name)
        reading = round(time.monotonic() - started, 1)
        assignments = [*(SETTINGS_131K.get(options.recipe, WORDS) if name == "shape-131k" else []), *options.set]
        results[Path(name).name], top = measured(
            data, assignments, options, compare=name != "shape-131k" and not options.no_baselines
        )
        results[Path(name).name]["seconds"]["reading or making the data"] = reading
        if options.predictions:
            options.predictions.mkdir(parents=True, exist_ok=True)
            kept = slice(0, KEPT_LABELS)
            np.savez_compressed(
                options.predictions / f"{Path(name).name}.npz", ids=top.ids[:, kept], scores=top.scores[:, kept]
            )
        print(json.dumps(results[Path(name).name]), flush=True)
        if options.out:
            command = typed_command("sets", sys.argv[1:])
            write_result(options.out, f"{options.recipe}_sets", results, command, seed=options.seed)


def measured(
    data: Dataset, assignments: list[str], options: argparse.Namespace, *, compare: bool
) -> tuple[dict[str, Any], TopK]:
    name, device, seed = options.recipe, options.device, options.seed
    recipe = make_recipe(name, assignments=assignments)
    with tempfile.TemporaryDirectory() if options.runs is None else contextlib.nullcontext(options.runs) as folder:
        run = Path(folder) / f"{name}-{data.name}-{seed}"
        started = time.monotonic()
        with GpuWatch() as watch:
            model = longtail.train(data, run, recipe, device=device, seed=seed, display=PlainDisplay(seconds=30))
            seconds = time.monotonic() - started
        events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        size = sum(path.stat().st_size for path in (run / "bundle").rglob("*") if path.is_file())
        yardstick = Yardstick.of(data)
        if options.gpu_search:
            search_on_gpu(model.bundle.ranker)
        started = time.monotonic()
        top = rank_test(model, yardstick, PlainDisplay(seconds=60))
        predicting = time.monotonic() - started
    columns = {f"{name} (single model)": yardstick.score(top)}
    top = yardstick.cut(top)  # what is kept of it are answers, without masked pairs
    if compare:
        columns |= {name: yardstick.score(found) for name, found in baselines(data, yardstick).items()}
    numbers = {
        **yardstick.about(),
        "metrics": {
            name: {metric: round(value, 3) for metric, value in scores.items()} for name, scores in columns.items()
        },
        "seconds": {
            "training": round(seconds, 1),
            "stages": {e["name"]: e["seconds"] for e in events if e["event"] == "stage"},
            "predicting": round(predicting, 1),
        },
        "bundle_bytes": size,
        "peak_memory_mb by stage": {e["name"]: e["peak_memory"] // 2**20 for e in events if e["event"] == "stage"},
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "estimated_memory_mb": next(e["needed"] for e in events if e["event"] == "memory") // 2**20,
        "device": device,
        "gpu": watch.report(),
        "config": to_tables(recipe.config),
    }
    return numbers, top


def search_on_gpu(part: Any) -> None:
    """Every exact index and every transformer inside a model become such on the GPU: the same answers, sooner."""
    for name, value in list(vars(part).items()):
        if isinstance(value, ExactIndex):
            object.__setattr__(part, name, GpuExactIndex(value.vectors, value.similarity))
        elif isinstance(value, FrozenTransformer):
            object.__setattr__(part, name, TransformerOnGpu(value))
        elif hasattr(value, "state"):
            search_on_gpu(value)


class TransformerOnGpu:
    """Encodes as the frozen one does."""

    def __init__(self, frozen: FrozenTransformer) -> None:
        self.width, self.model = frozen.width, Transformer(Pretrained(frozen, 0.0, 0.0)).to("cuda")

    def encode(self, batch: Batch) -> F32:
        return encode_all(self.model, Documents(batch, "cuda"), "search")


if __name__ == "__main__":
    main()
