"""A training step of ECLARE's stage IV on a CPU, with and without what makes it cheaper: products in bf16, dropout by
bytes, more documents per step.

    python -m benchmarks.speed composed-step [--labels 24764] [--width 512] [--shortlist 480] --out FILE.json

Random texts, documents and shortlists of the given size: time does not depend on what they say. All ways take turns,
so that a busy machine slows all. The floor of the products is recorded beside them: five of D x D per composed row,
forwards and twice backwards.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from benchmarks.speed.common import Measured, seconds_of
from longtail.nn import blocks
from longtail.nn.batches import Documents, fastest_products
from longtail.nn.encoders import GivenVectors, Refined
from longtail.recipes.eclare.network import ComposedCandidates, DocumentBlock, FrozenTexts, LabelTextGraph
from longtail.types import I64, Batch, Candidates, TopK

DOCUMENTS = (255, 1024, 8192)
TURNS = 3


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=int, default=24_764)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--shortlist", type=int, default=480)


def measure(options: argparse.Namespace) -> Measured:
    return Measured(measured(options.labels, options.width, options.shortlist))


def measured(labels: int, width: int, shortlist: int) -> dict[str, Any]:
    step = Steps(labels, width, shortlist)
    ways: dict[str, Callable[[], Any]] = {
        "as it is": nullcontext,
        "products in float32": in_float32,
        "torch's dropout": torch_dropout,
    }
    seconds: dict[str, list[float]] = {}
    for _ in range(TURNS):
        for documents in DOCUMENTS:
            for way, change in ways.items():
                if way == "as it is" or documents == max(DOCUMENTS):
                    with change():
                        seconds.setdefault(f"{documents} documents, {way}", []).append(step(documents))
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    usual = middle[f"{max(DOCUMENTS)} documents, as it is"]
    return {
        "labels": labels,
        "width": width,
        "shortlist": shortlist,
        "products": str(fastest_products(torch.device("cpu"))),
        "threads": torch.get_num_threads(),
        "gflop of products per composed row set": round(labels * width * width * 2 * 5 * 3 / 1e9, 1),
        "time of a step over that of the largest as it is": {
            name: round(value / usual, 3) for name, value in middle.items()
        },
        "time per document over that of the largest as it is": {
            f"{documents} documents": round(
                middle[f"{documents} documents, as it is"] / documents * max(DOCUMENTS) / usual, 2
            )
            for documents in DOCUMENTS
        },
    }


class Steps:
    """One training step after the other over random documents."""

    def __init__(self, labels: int, width: int, shortlist: int) -> None:
        rng = np.random.default_rng(0)
        texts = FrozenTexts(
            [torch.from_numpy(rng.standard_normal((labels, width), dtype=np.float32)) for _ in range(2)]
        )
        classifier = LabelTextGraph(texts, torch.zeros(labels, width), rng, bias=-5.0)
        vectors = rng.standard_normal((max(DOCUMENTS), width), dtype=np.float32)
        encoder = Refined(GivenVectors(width), DocumentBlock(width, rng))
        self.labels, self.shortlist, self.rng = labels, shortlist, rng
        self.objective = ComposedCandidates(encoder, classifier, Documents(Batch(dense=vectors)), self.candidates)
        self(DOCUMENTS[0])  # compiles

    def candidates(self, rows: I64, rng: np.random.Generator) -> Candidates:
        ids = np.sort(rng.integers(0, self.labels, (len(rows), self.shortlist), dtype=np.int32), axis=1)
        mask = np.ones_like(ids, dtype=bool)
        mask[:, 1:] = ids[:, 1:] != ids[:, :-1]
        targets = np.zeros(ids.shape, np.float32)
        targets[:, :3] = 1
        return Candidates(np.where(mask, ids, TopK.PAD), targets * mask, mask)

    def __call__(self, documents: int) -> float:
        return seconds_of(lambda: self.objective.step(np.arange(documents), self.rng, 0.001))


@contextmanager
def in_float32() -> Iterator[None]:
    with mock.patch("longtail.recipes.eclare.network.fastest_products", return_value=torch.float32):
        yield


@contextmanager
def torch_dropout() -> Iterator[None]:
    with mock.patch.object(blocks.ByteDropout, "forward", nn.Dropout.forward):
        yield
