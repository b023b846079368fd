"""Rows of two bytes a number (`longtail.recipes.direct.sgd`): the kernel against torch, and steps against their floors.

    python -m benchmarks.speed small-rows [--quick] --out FILE.json

On a GPU alone. Whole steps (scores, slopes, gradient to documents, update of rows) at the shapes of
LF-AmazonTitles-131K and -1.3M and at 10M x 256, with and without what label text needs; each part; other cuts
of the product.
"one" times a step as Python starts it, while the GPU has nothing else to do; "ten in a row" as a training does; "as a
graph" the same kernels recorded once (CUDA graph), without the time of Python.

Floors, from ceilings measured in the same run (a large copy, a large bf16 product): the three products, and the traffic
of slopes (written once, read twice) and rows (read twice for products, read and written by the update; sums, too).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from benchmarks.speed.cases.full_engine import EPOCH, batch_of, rows_of
from benchmarks.speed.common import Measured
from benchmarks.speed.engine_oracle import Stopwatch, ceilings
from longtail.nn.batches import padded
from longtail.nn.full import Pairs, Sweep, add_product
from longtail.nn.shards import Shard
from longtail.recipes.direct.sgd import SgdTable

Shape: TypeAlias = tuple[int, int, int]  # documents, labels, width of vectors
SHAPES: tuple[Shape, ...] = (
    (1024, 131_073, 300),
    (1024, 1_305_265, 300),
    (4096, 1_305_265, 300),
    (2048, 1_000_000, 512),
)
LARGEST: Shape = (2048, 10_000_000, 256)
CUTS: tuple[dict[str, int], ...] = (
    {},
    {"registers": 128, "stages": 3},
    {"columns": 256},
    {"columns": 64, "warps": 4},
    {"documents": 32},
    {"documents": 128, "stages": 2},
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="shorter timings, and the smallest shape alone")


def measure(options: argparse.Namespace) -> Measured:
    watch = Stopwatch("cuda", seconds=0.1 if options.quick else 0.4)
    limits = ceilings(watch)
    found: dict[str, Any] = {"ceilings": limits}

    def add(name: str, work: Callable[[], Any]) -> None:
        torch.cuda.empty_cache()
        try:
            found[name] = work()
        except Exception as error:  # compilers and drivers raise anything
            found[name] = f"{type(error).__name__}: {error}"[:500]
        print(name, found[name], flush=True)

    for shape in ((300, 5_000, 100), (700, 20_011, 300), (129, 4_097, 512)):
        add(f"differences {shape}", partial(differences, shape))
    shapes = SHAPES[:1] if options.quick else SHAPES
    for shape, cut, text in itertools.product(shapes[1:2], CUTS, (False, True)):
        name = f"update {shape}{' with text' * text} {cut}"
        add(name, partial(update_ms, watch, shape, cut, text))
    for shape in shapes:
        add(f"parts {shape}", partial(parts, watch, shape))
        for text in (False, True):
            add(f"step {shape}{' with text' * text}", partial(step, watch, shape, limits, text))
    if not options.quick:
        add(f"step {LARGEST} with text", partial(step, watch, LARGEST, limits, True))
    return Measured(found, seed=None)


def table_of(labels: int, width: int, *, text: bool) -> SgdTable:
    ones = torch.ones(labels, device="cuda")
    table = SgdTable(width, ones[:, None], ones / labels, Shard(labels), text=text)
    for start in range(0, labels, 1 << 20):
        part = table.rows[start : start + (1 << 20)]
        part.copy_(rows_of(len(part), width + 1, "cuda"))
    return table


def block_of(documents: int, labels: int, width: int) -> tuple[Tensor, Tensor]:
    """Slopes and documents of a block."""
    slopes = torch.rand((documents + -documents % 128, labels + -labels % 8), device="cuda").bfloat16()
    return slopes, padded(batch_of(documents, labels, width + 1, 1, "cuda")[0], torch.bfloat16, 128)


def differences(shape: Shape) -> dict[str, Any]:
    """Shares of numbers that kernel and torch rounded to different sides, and the largest distance in steps of bf16."""
    documents, labels, width = shape
    tables = [table_of(labels, width, text=True) for _ in range(2)]
    slopes, x = block_of(documents, labels, width)
    slopes = slopes / 100
    found: dict[str, Any] = {}
    for table, kernels in zip(tables, (True, False), strict=True):
        table.kernels = kernels
        given = (slopes, x) if kernels else (slopes.float(), x.float())
        table.learner(1, 0.5)(0, labels, *given, 1 / documents)
        table.move(0, rows_of(labels, width, "cuda"), 1)
    for name, wanted in tables[1].state().items():
        got = tables[0].state()[name]
        far = (got.view(torch.int16).int() - wanted.view(torch.int16).int()).abs()
        found[name] = {"differ": float((far > 0).float().mean()), "steps apart": int(far.max())}
    return found


def update_ms(watch: Stopwatch, shape: Shape, cut: dict[str, int], text: bool) -> Any:
    """Of a block of labels, recorded."""
    from longtail.recipes.direct import sgd_triton

    documents, labels, width = shape
    labels = min(labels, (1 << 28) // documents)
    slopes, x = block_of(documents, labels, width)
    table = table_of(labels, width, text=text)
    before = dict(sgd_triton.TILE)
    sgd_triton.TILE.update(cut)
    try:
        learn = table.learner(1, 0.0)
        found = {"ms": watch.ms(recorded(lambda: learn(0, labels, slopes, x, 1 / documents)))}
        found["tflop_s"] = round(2 * documents * labels * (width + 1) / found["ms"] / 1e9, 1)
        return found
    finally:
        sgd_triton.TILE.update(before)


def parts(watch: Stopwatch, shape: Shape) -> dict[str, Any]:
    """Milliseconds of each part of a block of labels, recorded; the last is what a step without fusion writes."""
    from longtail.nn import triton_kernels

    documents, labels, width = shape
    labels = min(labels, (1 << 28) // documents)
    slopes, x = block_of(documents, labels, width)
    table = table_of(labels, width, text=True)
    rows, gradient = table.block(0, labels, torch.bfloat16), torch.zeros(x.shape, device="cuda")
    learn = table.learner(1, 0.0)
    work: dict[str, Callable[[], Any]] = {
        "scores and slopes": lambda: triton_kernels.bce_slopes(x, rows, slopes, documents, labels),
        "gradient to documents": lambda: add_product(gradient, slopes, rows),
        "gradient to rows, update, sums": lambda: learn(0, labels, slopes, x, 1 / documents),
        "gradient to rows alone (cuBLAS)": lambda: slopes.T @ x,
    }
    return {"labels": labels} | {name: watch.try_ms(recorded(each)) for name, each in work.items()}


def step(watch: Stopwatch, shape: Shape, limits: dict[str, float], text: bool) -> dict[str, Any]:
    documents, labels, width = shape
    torch.cuda.reset_peak_memory_stats()
    x, bags = batch_of(documents, labels, width + 1, 22 if labels > 10**6 else 5, "cuda")
    table, sweep = table_of(labels, width, text=text), Sweep(torch.device("cuda"), mean_over="documents")
    pairs = Pairs.of(bags, None, None, torch.float32)

    def once() -> Any:
        return sweep(x, table, pairs, table.learner(1, 1e-3))

    ms = {"one": watch.ms(once), "ten in a row": watch.ms(lambda: [once() for _ in range(10)]) / 10}
    try:
        ms["as a graph"] = watch.ms(recorded(once))
    except Exception as error:
        print("no graph:", error, flush=True)
    numbers = labels * (width + 1)
    products, traffic = floors(shape, limits, text=text)
    found: dict[str, Any] = {"ms": ms, "floors_ms": {"products": round(products, 3), "traffic": round(traffic, 3)}}
    best = min(ms.values())
    found["tflop_s"] = round(6 * documents * numbers / best / 1e9, 1)
    if labels in EPOCH:
        found["epoch_s"] = {name: round(each * EPOCH[labels] / documents / 1e3, 2) for name, each in ms.items()}
        found["floors_epoch_s"] = round((products + traffic) * EPOCH[labels] / documents / 1e3, 2)
    found["bytes_of_rows_gb"] = round(sum(value.nbytes for value in table.state().values()) / 1e9, 2)
    found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return found


def floors(shape: Shape, limits: dict[str, float], *, text: bool) -> tuple[float, float]:
    """Milliseconds that the products of a step and its reads and writes take at the least.  limits: see `ceilings`."""
    documents, labels, width = shape
    numbers = labels * (width + 1)
    products = 6 * documents * numbers / limits["product_tflop_s"] / 1e9
    return products, (6 * documents * labels + (2 * 4 + 4 * text) * numbers) / limits["copy_gb_s"] / 1e6


def recorded(work: Callable[[], Any]) -> Callable[[], None]:
    """The kernels of `work`, to be started again at once."""
    stream: Any = torch.cuda.Stream  # Any: torch leaves it untyped
    side = stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return lambda: graph.replay()
