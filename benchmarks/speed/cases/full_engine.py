"""The all-negatives engine (`longtail.nn.full`): errors of every kernel, and steps against the machine's two floors.

    python -m benchmarks.speed full-engine [--quick] [--device cuda] --out FILE.json

On a GPU: every kernel against dense float64 on random shapes; products and the update alone; whole steps, with
and without the update, at the shapes of LF-AmazonTitles-131K and -1.3M; peak memory of 1.3M x 512 and 10M x 256. On a
CPU: whole steps at small shapes, against its own gradients with torch's fused Adam.

Floors of a step, from ceilings measured in the same run (a large copy, a large bf16 product): its three products, and
the bytes of the update (12 per number in and out, and a bf16 gradient).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.speed.common import Measured
from benchmarks.speed.engine_oracle import Stopwatch, ceilings, checked, random_bags
from longtail.nn.batches import Bags, has_triton, padded
from longtail.nn.full import (
    BLOCK_SCORES,
    Float32Table,
    FullRows,
    Pairs,
    Variant,
    add_product,
    by_gradient,
    default_variant,
    full_loss,
)
from longtail.nn.row_tables import AdamFactors

RATE = 1e-3
QUICK_SECONDS = 0.2  # of each timing on a CPU, with --quick
# Documents of the two synthetic sets whose epochs count.
# Per number: three float32 in and out, and a bf16 gradient.
_UPDATE_BYTES = 26
EPOCH = {131_073: 294_805, 1_305_265: 2_248_619}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="shorter timings; on a CPU also smaller shapes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])


def measure(options: argparse.Namespace) -> Measured:
    return Measured(on_gpu(options.quick) if options.device == "cuda" else on_cpu(options.quick), seed=None)


def batch_of(documents: int, labels: int, width: int, per_document: int, device: str) -> tuple[Tensor, Bags]:
    generator = torch.Generator(device).manual_seed(1)
    x = torch.randn((documents, width), generator=generator, device=device) / width**0.5
    return x, random_bags(documents, labels, per_document, device)


def rows_of(labels: int, width: int, device: str) -> Tensor:
    return torch.randn((labels, width), generator=torch.Generator(device).manual_seed(2), device=device).mul_(0.05)


def step_numbers(
    ms: float, documents: int, labels: int, width: int, limits: dict[str, float], *, update: bool
) -> dict[str, Any]:
    """Times and rates of a step, and how many times each floor it takes."""
    flops, moved = 6 * documents * labels * width, _UPDATE_BYTES * labels * width if update else 0
    numbers = {
        "ms": ms,
        "tflop_s": flops / ms / 1e9,
        "over_products_floor": ms / (flops / limits["product_tflop_s"] / 1e9),
        "over_both_floors": ms / (flops / limits["product_tflop_s"] / 1e9 + moved / limits["copy_gb_s"] / 1e6),
    }
    if labels in EPOCH:
        numbers["epoch_s"] = ms * EPOCH[labels] / documents / 1e3
    return {name: round(value, 3) for name, value in numbers.items()}


def gpu_tiles(watch: Stopwatch, documents: int, labels: int, width: int) -> dict[str, Any]:
    """The first product with its sigmoid: the kernel for both, cuBLAS alone, and what would follow it."""
    from longtail.nn import triton_kernels as kernels

    x, rows = (
        padded(t, torch.bfloat16, 128)
        for t in (batch_of(documents, labels, width, 1, "cuda")[0], rows_of(labels, width, "cuda"))
    )
    slopes = torch.empty((len(x), len(rows)), dtype=torch.bfloat16, device="cuda")
    found: dict[str, Any] = {}
    wanted = (x.float() @ rows[:512].float().T).sigmoid()
    slopes.fill_(torch.nan)
    ms = watch.try_ms(partial(kernels.bce_slopes, x, rows, slopes, documents, labels))
    found["fused"] = {
        "ms": ms,
        "error": float((slopes[:, :512] - wanted).norm() / wanted.norm()),
        "all written": bool(slopes.isfinite().all()),
    }
    found["product alone"] = watch.try_ms(lambda: torch.mm(x, rows.T, out=slopes))
    found["torch after it"] = watch.try_ms(
        lambda: (torch.nn.functional.softplus(slopes).sum(dtype=torch.float32), slopes.sigmoid_())
    )
    if documents == 1024:  # compiling takes long: once
        compiled: Any = torch.compile(sigmoid_and_loss)
        found["torch.compile after it"] = watch.try_ms(lambda: compiled(slopes))
    found["softmax fused"] = watch.try_ms(
        lambda: kernels.softmax_slopes(x, rows, slopes, x[:documents, 0].float(), x[:documents, 1].float())
    )
    found["log-sum-exp fused"] = watch.try_ms(lambda: kernels.log_sum_exp(x, rows, documents, labels))
    return found


def sigmoid_and_loss(scores: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sigmoid(scores), torch.nn.functional.softplus(scores.float()).sum()


def gpu_products(watch: Stopwatch, documents: int, labels: int) -> dict[str, Any]:
    """The two products of the gradient by cuBLAS, for several paddings of D = 300."""
    found: dict[str, Any] = {}
    slopes = torch.rand((documents, labels), device="cuda").bfloat16()
    for width in (304, 320, 384, 512):
        x, rows = (torch.randn((n, width), device="cuda").bfloat16() for n in (documents, labels))
        gradient = torch.zeros((documents, width), device="cuda")
        found[f"rows D={width}"] = watch.try_ms(partial(torch.mm, slopes.T, x))
        found[f"scores D={width}"] = watch.try_ms(partial(torch.mm, x, rows.T))
        found[f"documents D={width}"] = watch.try_ms(partial(add_product, gradient, slopes, rows))
    return found


def gpu_update(watch: Stopwatch, labels: int, width: int, limits: dict[str, float]) -> dict[str, Any]:
    """The update alone, against its bytes."""
    table = Float32Table(rows_of(labels, width, "cuda"), kernels=True)
    gradient = torch.randn(table.rows.shape, device="cuda").bfloat16()
    factors = AdamFactors.of(1, RATE, (0.9, 0.999), 1e-8)
    ms = watch.try_ms(lambda: table.update(0, labels, gradient, 1.0, factors))
    if isinstance(ms, str):
        return {"error": ms}
    speed = _UPDATE_BYTES * labels * width / ms / 1e6
    return {"ms": ms, "gb_s": round(speed), "of_copy": round(speed / limits["copy_gb_s"], 3)}


def whole_step(
    watch: Stopwatch, shape: tuple[int, int, int], variant: Variant, limits: dict[str, float], **options: Any
) -> dict[str, Any]:
    """A step with and without the update of the rows, and the memory it takes."""
    documents, labels, width = shape
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    x, bags = batch_of(documents, labels, width, 22 if labels > 10**6 else 5, "cuda")
    full = FullRows(rows_of(labels, width, "cuda"), variant=variant, mean_over="documents", **options)
    found: dict[str, Any] = {}
    ms = watch.try_ms(lambda: full.step(x, bags, RATE))
    found["with update"] = ms if isinstance(ms, str) else step_numbers(ms, *shape, limits, update=True)
    pairs = Pairs.of(bags, None, None, torch.float32)
    ms = watch.try_ms(lambda: full.sweep(x, full.table, pairs, by_gradient(lambda *_: None)))
    found["without update"] = ms if isinstance(ms, str) else step_numbers(ms, *shape, limits, update=False)
    found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return found


def gpu_memory(labels: int, width: int) -> dict[str, Any]:
    """One step of the largest shapes."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    x, bags = batch_of(1024, labels, width, 22, "cuda")
    full = FullRows(rows_of(labels, width, "cuda"), mean_over="documents")
    before = full.table.block(labels - 8, 8, torch.float32).clone()
    start = time.perf_counter()
    loss = float(full.step(x, bags, RATE)[0])
    seconds = time.perf_counter() - start
    moved = float((full.table.block(labels - 8, 8, torch.float32) - before).abs().max())
    return {
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
        "loss": loss,
        "moved": moved,
        "s": round(seconds, 2),
    }


def on_gpu(quick: bool) -> dict[str, Any]:
    watch = Stopwatch("cuda", seconds=0.1 if quick else 0.25)
    limits = ceilings(watch)
    print(limits, flush=True)
    triton = has_triton()
    variants: list[Variant] = ["torch", "triton"] if triton else ["torch"]
    found: dict[str, Any] = {"ceilings": limits, "relative errors": checked("cuda", variants)}
    print_table("relative errors (loss, x, rows)", found["relative errors"])
    defaults = dict(BLOCK_SCORES)
    for documents, labels in ((1024, 131_072), (4096, 65_536)):
        if triton:
            found[f"tiles {documents} x {labels} x 300"] = gpu_tiles(watch, documents, labels, 300)
            print_table(
                f"first product and sigmoid, {documents} x {labels} x 300, ms",
                found[f"tiles {documents} x {labels} x 300"],
            )
        found[f"products {documents} x {labels}"] = gpu_products(watch, documents, labels)
        print_table(f"products, {documents} x {labels}, ms", found[f"products {documents} x {labels}"])
    if triton:
        found["update 131073 x 300"] = gpu_update(watch, 131_073, 300, limits)
        found["update 655360 x 300"] = gpu_update(watch, 655_360, 300, limits)
    steps: dict[str, Any] = {}
    for shape in ((1024, 131_073, 300), (1024, 131_073, 512), (4096, 1_305_265, 300)):
        for variant in variants:
            steps[f"{shape} {variant}"] = whole_step(watch, shape, variant, limits)
    best = default_variant(torch.device("cuda"), torch.bfloat16)
    for scores in (1 << 25, 1 << 26, 1 << 27, 1 << 29):
        BLOCK_SCORES["cuda"] = scores
        for shape in ((1024, 131_073, 300), (4096, 1_305_265, 300)):
            steps[f"{shape} {best} blocks of 2^{scores.bit_length() - 1}"] = whole_step(watch, shape, best, limits)
    BLOCK_SCORES.update(defaults)
    for documents in (1024, 2048, 8192):
        steps[f"({documents}, 1305265, 300) {best}"] = whole_step(watch, (documents, 1_305_265, 300), best, limits)
    steps[f"(1024, 131073, 300) {best} softmax"] = whole_step(watch, (1024, 131_073, 300), best, limits, loss="softmax")
    found["steps"] = steps
    print_table(
        "steps: ms with update, without, times both floors, seconds per epoch, peak GB",
        {name: short(step) for name, step in steps.items()},
    )
    found["memory 1305265 x 512"] = gpu_memory(1_305_265, 512)
    found["memory 10000000 x 256"] = gpu_memory(10_000_000, 256)
    print({name: value for name, value in found.items() if name.startswith(("memory", "update"))})
    return found


def short(step: dict[str, Any]) -> str:
    """A step in one line."""
    full, bare = step.get("with update"), step.get("without update")
    if not isinstance(full, dict):
        return str(full)
    without = bare["ms"] if isinstance(bare, dict) else bare
    return f"{full['ms']:9.3f} {without} {full['over_both_floors']:6.2f} {full.get('epoch_s')} {step.get('peak_gb')}"


def on_cpu(quick: bool) -> dict[str, Any]:
    """Against gradients of the same engine and torch's fused Adam over the same rows."""
    watch = Stopwatch("cpu", seconds=QUICK_SECONDS if quick else 4.0)
    found: dict[str, Any] = {"threads": torch.get_num_threads(), "relative errors": checked("cpu", ["torch"])}
    print_table("relative errors (loss, x, rows)", found["relative errors"])
    for shape in ((64, 2_000, 64),) if quick else ((256, 30_000, 300), (256, 131_073, 300)):
        found[str(shape)] = cpu_steps(watch, shape)
        print_table(f"steps {shape}, ms", found[str(shape)])
    return found


def cpu_steps(watch: Stopwatch, shape: tuple[int, int, int]) -> dict[str, Any]:
    x, bags = batch_of(*shape, 5, "cpu")
    engines = {
        name: FullRows(rows_of(*shape[1:], "cpu"), compute=compute)
        for name, compute in (("products in float32", torch.float32), ("products in bfloat16", torch.bfloat16))
    }
    found = {"gradients, then torch's Adam": watch.try_ms(usual_step(rows_of(*shape[1:], "cpu"), x, bags))}
    return found | {name: watch.try_ms(partial(engine.step, x, bags, RATE)) for name, engine in engines.items()}


def usual_step(rows: Tensor, x: Tensor, bags: Bags) -> Callable[[], None]:
    rows = rows.requires_grad_()
    adam = torch.optim.Adam([rows], lr=RATE, fused=True)

    def step() -> None:
        torch.autograd.backward(full_loss(x.detach().requires_grad_(), rows, bags, loss="bce"))
        adam.step()
        adam.zero_grad(set_to_none=True)

    return step


def print_table(title: str, values: dict[str, Any]) -> None:
    print(f"-- {title}")
    for name, value in values.items():
        print(f"   {name:60} {value}", flush=True)
