"""A training step of one-vs-all rows on own candidates: our fused step against torch's gather, bmm and SparseAdam.

    python -m benchmarks.speed stage4-step [--device cpu] [--labels 131073] [--rounds 6] --out FILE.json

Both get the same documents and candidates, alternate within one run, and start from the same rows; the median of the
ratios of neighbouring steps counts. Two kinds of candidates: uniform (every label alike, the most rows to touch) and
skewed (labels drawn by a power law, as hard negatives are). `floor_ms` is the time the machine needs to move each
touched row and its two moments once in and once out, by a bandwidth measured here.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.speed.common import Measured, device_argument, seconds_of
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import OneVsAll
from longtail.types import Candidates

RATE = 1e-3
SIZES = {"documents": 256, "candidates": 500, "width": 300, "labels": 131_073, "rounds": 6}


def options(parser: argparse.ArgumentParser) -> None:
    device_argument(parser)
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0)


def measure(options: argparse.Namespace) -> Measured:
    numbers = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch_threads": torch.get_num_threads(),
        "numba_threads": numba.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 1),  # above the number of cores, compare ratios, not times
        "bandwidth_gb_s": round(bandwidth(options.device) / 1e9, 1),
        "uniform": measured(options, skew=0.0),
        "skewed": measured(options, skew=1.0),
    }
    return Measured(numbers, config={name: getattr(options, name) for name in SIZES}, seed=options.seed)


def drawn_candidates(
    documents: int, per_document: int, labels: int, skew: float, rng: np.random.Generator
) -> Candidates:
    """Different labels per document, label l with weight (l + 1)^-skew before a shuffle; the first three are
    positives.
    """
    names = rng.permutation(labels)
    logits = -skew * np.log(np.arange(1, labels + 1))
    ids = np.empty((documents, per_document), dtype=np.int32)
    for row in ids:
        # The largest of log-weights plus Gumbel noise are a weighted draw without replacement.
        row[:] = names[np.argpartition(-(logits + rng.gumbel(size=labels)), per_document)[:per_document]]
    targets = np.zeros(ids.shape, dtype=np.float32)
    targets[:, :3] = 1
    return Candidates(ids, targets, np.ones(ids.shape, dtype=bool))


class TorchStep:
    """The usual way: rows gathered per document with a sparse gradient, batched products, SparseAdam."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = nn.Parameter(rows.clone())
        self.adam: Any = torch.optim.SparseAdam([self.rows], lr=RATE)  # Any: torch leaves its methods untyped

    def __call__(self, z_BD: Tensor, candidates: Candidates) -> float:
        z_BD = z_BD.clone().requires_grad_()
        ids, targets = (
            torch.from_numpy(a).to(z_BD.device) for a in (candidates.ids.astype(np.int64), candidates.targets)
        )
        gathered = nn.functional.embedding(ids, self.rows, sparse=True)
        scores = torch.bmm(gathered, z_BD[:, :, None])[:, :, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(scores, targets)
        torch.autograd.backward(loss)
        self.adam.step()
        self.adam.zero_grad()
        return float(loss.detach())


class OurStep:
    def __init__(self, classifier: OneVsAll) -> None:
        self.trainer = RestrictedTrainer(classifier)

    def __call__(self, z_BD: Tensor, candidates: Candidates) -> float:
        return float(self.trainer.step(z_BD, candidates, RATE)[0])


def measured(options: argparse.Namespace, skew: float) -> dict[str, Any]:
    rng = np.random.default_rng(options.seed)
    classifier = OneVsAll(options.labels, options.width, rng).to(options.device)
    usual, ours = TorchStep(classifier.rows.detach()), OurStep(classifier)
    z_BD = torch.from_numpy(rng.standard_normal((options.documents, options.width), dtype=np.float32)).to(
        options.device
    )
    steps = [drawn_candidates(options.documents, options.candidates, options.labels, skew, rng) for _ in range(4)]
    losses = [(usual(z_BD, c), ours(z_BD, c)) for c in steps[:2]]  # compiles, and shows that both do the same
    # Both return the loss as a number, so a GPU has finished by then.
    times = np.array(
        [[seconds_of(partial(step, z_BD, c)) for step in (usual, ours)] for _ in range(options.rounds) for c in steps]
    )
    touched = float(np.mean([len(np.unique(c.ids)) for c in steps]))
    moved = touched * options.width * 4 * 6
    return {
        "torch_ms": round(float(np.median(times[:, 0])) * 1e3, 2),
        "ours_ms": round(float(np.median(times[:, 1])) * 1e3, 2),
        "ours_over_torch": round(float(np.median(times[:, 1] / times[:, 0])), 4),
        "ours_fastest_ms": round(float(times[:, 1].min()) * 1e3, 2),
        "rows_touched": round(touched),
        "megabytes_to_move": round(moved / 1e6, 1),
        "floor_ms": round(moved / bandwidth(options.device) * 1e3, 2),
        "loss_difference": max(abs(a - b) for a, b in losses),
    }


def bandwidth(device: str) -> float:
    """Bytes per second of reading and writing a block that fits no cache, in torch, the best of five."""
    block = torch.zeros(100_000_000, device=device)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        block.mul_(1.5)
        float(block[0])  # waits for a GPU
        best = min(best, time.perf_counter() - start)
    return 2 * block.numel() * 4 / best
