"""Predicting with a transformer and without torch: how fast numpy and onnxruntime are, how far they are from torch,
and what int8 costs.

    python -m benchmarks.transformer_prediction DATA --checkpoint minilm --documents 500 --json FILE

Nothing is trained: test documents are ranked against label texts by the cosine of the checkpoint's vectors (the first
so many documents, and the labels they have with as many others, drawn at random). Accuracy is that of this ranking,
with vectors of each kind. Times: the median of five; the record has the machine's load. Needs the extra `text` and
torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_result
from longtail.data.read import read
from longtail.errors import MissingExtra
from longtail.evaluation import Yardstick
from longtail.features.pieces import Pieces, checkpoint_folder, read_tokenizer
from longtail.features.settings import CheckpointFeaturesConfig
from longtail.models.checkpoint import Checkpoint, read_checkpoint
from longtail.models.transformer import FrozenTransformer
from longtail.recipes.gnnxml.sentences import unit
from longtail.search.index import ExactIndex
from longtail.search.packed import Packer
from longtail.search.shortlist import LabelIndex
from longtail.types import F32, Batch

SHOWN = ("P@1", "P@5", "PSP@5", "R@10")
REPEATS = 5
SPEED_TEXTS = 64

Encode = Callable[[Batch], F32]


def by_torch(checkpoint: Checkpoint) -> Encode:
    from longtail.nn.batches import Documents
    from longtail.nn.encoders import encode_all
    from longtail.recipes.towers.network import Transformer

    encoder = Transformer(checkpoint)
    return lambda batch: encode_all(encoder, Documents(batch), "search")


def by_numpy(frozen: FrozenTransformer) -> Encode:
    alone = FrozenTransformer(frozen.weights, frozen.heads, frozen.epsilon)
    alone.__dict__["_session"] = None
    return alone.encode


def measure(
    encoders: dict[str, Encode], documents: Batch, labels: Batch, score: Callable[[F32, F32], dict[str, float]]
) -> dict[str, Any]:
    """For each encoder: accuracy, largest difference of a number from the first encoder's, seconds of one text and
    texts per second.
    """
    exact: F32 | None = None
    found: dict[str, Any] = {}
    for name, encode in encoders.items():
        of_documents, of_labels = unit(encode(documents)), unit(encode(labels))
        exact = of_documents if exact is None else exact
        some, one = documents.rows(slice(0, SPEED_TEXTS)), documents.rows(slice(0, 1))
        found[name] = {
            **score(of_documents, of_labels),
            "largest_difference": float(np.abs(of_documents - exact).max()),
            "smallest_cosine": float(np.einsum("nd,nd->n", of_documents, exact).min()),
            "milliseconds_for_one": 1000 * timed(encode, one),
            "texts_per_second": len(some) / timed(encode, some),
        }
    return found


def timed(encode: Encode, batch: Batch) -> float:
    seconds = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        encode(batch)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingExtra("onnxruntime", "text", "this benchmark")
    folder, data = checkpoint_folder(options.checkpoint, "this benchmark"), read(options.data)
    checkpoint, pieces = (
        read_checkpoint(folder),
        Pieces(CheckpointFeaturesConfig(checkpoint=options.checkpoint), read_tokenizer(folder)),
    )
    yardstick, test = Yardstick.of(data), data.need_test()
    rows = np.arange(min(options.documents, len(test)))
    wanted = np.unique(yardstick.truth[rows].indices)
    others = np.random.default_rng(0).choice(len(data.labels), min(len(wanted), len(data.labels)), replace=False)
    owners = np.union1d(wanted, others).astype(np.int32)
    of_labels = pieces.label_batch(data.labels.rows(owners.astype(np.int64)))
    assert of_labels is not None, "labels of the data have texts"
    from longtail import metrics

    masked = yardstick.masked[np.isin(yardstick.masked[:, 0], rows)]

    def score(documents: F32, labels: F32) -> dict[str, float]:
        top = LabelIndex(ExactIndex.build(labels), owners).query(documents, min(yardstick.depth, len(owners)))
        found = metrics.measure(
            metrics.drop_masked(top, masked, 100), yardstick.truth[rows], yardstick.inverse_propensity, (1, 3, 5), (10,)
        ).values()
        return {name: found[name] for name in SHOWN}

    frozen = checkpoint.frozen
    encoders = {
        "torch": by_torch(checkpoint),
        "numpy": by_numpy(frozen),
        "onnxruntime": frozen.encode,
        "onnxruntime int8": frozen.packed(Packer("int8")).encode,
    }
    found = measure(encoders, pieces.batch(test.documents.rows(rows)), of_labels, score)
    for name, numbers in found.items():
        print(f"{name:<18}" + "  ".join(f"{key} {value:.4g}" for key, value in numbers.items()))
    if options.json:
        config: dict[str, Any] = {
            "load_average": round(os.getloadavg()[0], 1),
            "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        }
        config |= {
            "checkpoint": Path(options.checkpoint).name,
            "documents": len(rows),
            "labels": len(owners),
            "repeats": REPEATS,
            "texts": SPEED_TEXTS,
        }
        command = f"python -m benchmarks.transformer_prediction {data.name} --documents {len(rows)}"
        write_result(options.json, "transformer_prediction", found, command, data.digest, 0, config)


if __name__ == "__main__":
    main(sys.argv[1:])
