"""What the case `full-engine` measures with: a stopwatch, the machine's ceilings, random batches, and dense losses in
float64. Tests of the engine use the latter, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from longtail.nn.batches import Bags, DeviceCsr
from longtail.nn.full import LossKind, Variant, full_gradients

# Documents, labels and width of the batches that are checked against float64.
SHAPES = ((300, 5_000, 100), (700, 20_011, 300), (129, 4_097, 512))


class Stopwatch:
    """Median times in milliseconds; each measurement takes about `seconds` (on a GPU with events, after a warm-up)."""

    def __init__(self, device: str, seconds: float) -> None:
        self.device, self.seconds = device, seconds

    def ms(self, work: Callable[[], Any]) -> float:
        for _ in range(2):
            work()
        self._wait()
        start = time.perf_counter()
        work()
        self._wait()
        repeats = int(np.clip(self.seconds / max(time.perf_counter() - start, 1e-6), 3, 50))
        return round(float(np.median([self._once(work) for _ in range(repeats)])), 4)

    def try_ms(self, work: Callable[[], Any]) -> float | str:
        """The same, or what went wrong where a variant does not run here."""
        try:
            return self.ms(work)
        except Exception as error:  # compilers and drivers raise anything
            return f"{type(error).__name__}: {error}"[:300]

    def _once(self, work: Callable[[], Any]) -> float:
        if self.device == "cpu":
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) * 1e3
        event: Any = torch.cuda.Event  # Any: torch leaves it untyped
        begin, end = (event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def ceilings(watch: Stopwatch) -> dict[str, float]:
    """Bytes read and written per second of a large copy; operations per second of a large bf16 product."""
    source = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / watch.ms(lambda: target.copy_(source)) / 1e6
    a, b = (torch.randn((8192, 8192), device="cuda").bfloat16() for _ in range(2))
    return {"copy_gb_s": round(copy), "product_tflop_s": round(2 * 8192**3 / watch.ms(lambda: a @ b) / 1e9)}


def random_bags(documents: int, labels: int, per_document: int, device: str, seed: int = 0) -> Bags:
    """`per_document` different labels for each document."""
    rng = np.random.default_rng(seed)
    # One label from each of equal stretches, so that they differ.
    stretch = labels // per_document
    ids = np.arange(per_document) * stretch + rng.integers(0, stretch, (documents, per_document))
    starts = np.arange(0, documents * per_document + 1, per_document)
    return DeviceCsr(
        csr_array((np.ones(ids.size, np.float32), ids.ravel(), starts), shape=(documents, labels)), device
    ).rows(np.arange(documents))


def dense_loss(x: Tensor, rows: Tensor, targets: Tensor, masked: Tensor, weights: Tensor, loss: LossKind) -> Tensor:
    """Mean over all entries, every formula as it is written in papers."""
    scores = x @ rows.T
    if loss == "bce":
        positive, negative = (torch.logaddexp(sign * scores, torch.zeros_like(scores)) for sign in (-1, 1))
        return torch.where(masked, 0, targets * weights * positive + (1 - targets) * negative).mean()
    others = torch.logsumexp(torch.where((targets > 0) | masked, -torch.inf, scores), dim=1, keepdim=True)
    return (targets * weights * (torch.logaddexp(scores, others) - scores)).mean()


def checked(device: str, variants: Sequence[Variant]) -> dict[str, Any]:
    """‖got − wanted‖ / ‖wanted‖ of loss and gradients against float64: torch in float32, and every variant in bf16."""
    found: dict[str, Any] = {}
    losses: tuple[LossKind, ...] = ("bce", "softmax")
    ways: list[tuple[Variant, torch.dtype]] = [
        ("torch", torch.float32),
        *((variant, torch.bfloat16) for variant in variants),
    ]
    for shape in SHAPES:
        for loss in losses:
            problem = Problem(*shape, loss, device)
            for variant, compute in ways:
                found[f"{shape} {loss} {variant} {str(compute).removeprefix('torch.')}"] = problem.errors(
                    variant, compute
                )
    return found


class Problem:
    """A random batch with masked pairs and weights of labels, and its exact loss and gradients."""

    def __init__(self, documents: int, labels: int, width: int, loss: LossKind, device: str) -> None:
        rng = np.random.default_rng(documents)
        # Exact in bf16, so that what is measured is the arithmetic.
        self.x, self.rows = (
            torch.from_numpy(rng.standard_normal((n, width)) / width**0.25).to(device).bfloat16().double()
            for n in (documents, labels)
        )
        positive = rng.random((documents, labels)) < 4 / labels
        hidden = (rng.random((documents, labels)) < 2 / labels) & ~positive
        self.weights = torch.from_numpy(1 + 3 * rng.random(labels)).to(device)
        self.targets, self.masked = (
            DeviceCsr(csr_array(a.astype(np.float32)), device).rows(np.arange(documents)) for a in (positive, hidden)
        )
        self.loss: LossKind = loss
        x, rows = self.x.clone().requires_grad_(), self.rows.clone().requires_grad_()
        dense = dense_loss(
            x,
            rows,
            torch.from_numpy(positive.astype(float)).to(device),
            torch.from_numpy(hidden).to(device),
            self.weights,
            loss,
        )
        self.wanted = dense.detach(), *torch.autograd.grad(dense, (x, rows))

    def errors(self, variant: Variant, compute: torch.dtype) -> list[str] | str:
        options: dict[str, Any] = {
            "loss": self.loss,
            "compute": compute,
            "variant": variant,
            "weights": self.weights.float(),
            "masked": self.masked,
        }
        try:
            got = full_gradients(self.x.float(), self.rows.float(), self.targets, **options)
        except Exception as error:  # recorded; the others are tried
            return f"{type(error).__name__}: {error}"[:300]
        return [f"{float((g - w).norm() / w.norm()):.1e}" for g, w in zip(got, self.wanted, strict=True)]
