"""Predicting with a transformer, without torch: speed of numpy and onnxruntime, distance to torch, what int8 costs.

    python -m benchmarks.speed transformer DATA --checkpoint minilm --documents 500 --out FILE.json

Nothing is trained: test documents are ranked against label texts by the cosine of the checkpoint's vectors (the first
so many documents, and the labels they have with as many others, drawn at random). Accuracy is that of this ranking,
with vectors of each kind. Times: the median of five; the record has the machine's load. Needs the extra `text` and
torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.common import Measured, data_argument, median_seconds
from longtail import metrics
from longtail.data.read import read
from longtail.errors import MissingExtra
from longtail.evaluation import Yardstick
from longtail.features.pieces import TokenizerPieces, checkpoint_folder, read_tokenizer
from longtail.features.settings import CheckpointFeaturesConfig
from longtail.models.transformer import FrozenTransformer, Pretrained, read_checkpoint
from longtail.nn.batches import Documents
from longtail.nn.encoders import encode_all
from longtail.nn.transformer import Transformer
from longtail.recipes.gnnxml.features import unit
from longtail.search.index import ExactIndex
from longtail.search.packed import Packer
from longtail.search.shortlist import LabelIndex
from longtail.types import F32, Batch

SHOWN = ("P@1", "P@5", "PSP@5", "R@10")
REPEATS = 5
SPEED_TEXTS = 64

Encode = Callable[[Batch], F32]


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser)
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--documents", type=int, default=500)


def measure(options: argparse.Namespace) -> Measured:
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingExtra("onnxruntime", "text", "this benchmark")
    folder, data = checkpoint_folder(options.checkpoint, "this benchmark"), read(options.data)
    checkpoint = read_checkpoint(folder)
    pieces = TokenizerPieces(CheckpointFeaturesConfig(checkpoint=options.checkpoint), read_tokenizer(folder))
    yardstick, test = Yardstick.of(data), data.need_test()
    rows = np.arange(min(options.documents, len(test)))
    wanted = np.unique(yardstick.truth[rows].indices)
    others = np.random.default_rng(0).choice(len(data.labels), min(len(wanted), len(data.labels)), replace=False)
    owners = np.union1d(wanted, others).astype(np.int32)
    of_labels = pieces.label_batch(data.labels.rows(owners.astype(np.int64)))
    assert of_labels is not None, "labels of the data have texts"
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
    config = {
        "load_average": round(os.getloadavg()[0], 1),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "checkpoint": Path(options.checkpoint).name,
        "documents": len(rows),
        "labels": len(owners),
        "repeats": REPEATS,
        "texts": SPEED_TEXTS,
    }
    return Measured(compared(encoders, pieces.batch(test.documents.rows(rows)), of_labels, score), data.digest, config)


def by_torch(checkpoint: Pretrained) -> Encode:
    encoder = Transformer(checkpoint)
    return lambda batch: encode_all(encoder, Documents(batch), "search")


def by_numpy(frozen: FrozenTransformer) -> Encode:
    alone = FrozenTransformer(frozen.weights, frozen.heads, frozen.epsilon)
    alone.__dict__["_session"] = None
    return alone.encode


def compared(
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
            "milliseconds_for_one": 1000 * median_seconds(partial(encode, one), REPEATS),
            "texts_per_second": len(some) / median_seconds(partial(encode, some), REPEATS),
        }
    return found
