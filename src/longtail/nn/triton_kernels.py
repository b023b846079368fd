"""Triton kernels: Adam over rows and over blocks of rows, and the steps of a sweep over all labels (`nn.full`).
Imported only where Triton is there: on a GPU, or in its interpreter (tests).

Products run on tiles of (documents, labels); what the loss needs happens on the tile before it is written, so scores
are never stored: only their slopes, in bf16, and sums.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from longtail.nn.row_tables import AdamFactors

# How products are cut: documents, labels and numbers of a tile. Two tiles at a time fit on a multiprocessor, where one
# takes at most half of its registers and memory: while one computes sigmoids, the other multiplies.
_BM, _BN, _BK, _WARPS, _STAGES, _REGISTERS = 128, 128, 64, 8, 3, 128
_INTERPRETED = bool(triton.knobs.runtime.interpret)
_ADAM_BLOCK, _PAIRS_BLOCK, _MOST_COLUMNS = 2048, 16, 1024
# Sizes that differ from batch to batch: a kernel compiled for one must serve all.
_CHANGING = {"documents", "labels", "count", "start", "size", "key", "rank", "processes"}


class FactorsThere(NamedTuple):
    """`AdamFactors` of which rate and spread are on the GPU, (1,) float32 each: a kernel that is told once has those of
    every step.
    """

    keep_first: float
    add_first: float
    keep_second: float
    add_second: float
    rate: Tensor
    spread: Tensor
    epsilon: float


def kernel(function: Callable[..., Any]) -> Any:
    return triton.jit(function, do_not_specialize=sorted(_CHANGING & set(signature(function).parameters)))


@kernel
def adam_step(
    value: tl.tensor,
    m: tl.tensor,
    v: tl.tensor,
    g: tl.tensor,
    keep_first: tl.tensor,
    add_first: tl.tensor,
    keep_second: tl.tensor,
    add_second: tl.tensor,
    rate: tl.tensor,
    spread: tl.tensor,
    epsilon: tl.tensor,
) -> tl.tensor:
    """(values, first moments, second moments) after a step with the gradient g; `AdamFactors` come in their order."""
    m = keep_first * m + add_first * g
    v = keep_second * v + add_second * g * g
    return value - rate * m / (tl.sqrt(v) * spread + epsilon), m, v


@kernel
def _chances(powers: tl.tensor) -> tl.tensor:
    """sigmoid(score) = p / (1 + p), exact also where it is tiny."""
    inverse_root = tl.rsqrt(1.0 + powers)  # one instruction, where a division is many
    return powers * (inverse_root * inverse_root)


@kernel
def _joint(powers: tl.tensor, BM: tl.constexpr, BN: tl.constexpr) -> tl.tensor:
    """(BM, BN / 2): (1 + a) (1 + b) - 1 of the left and the right half, without losing what is tiny beside 1."""
    a, b = tl.split(tl.permute(tl.reshape(powers, (BM, 2, BN // 2)), (0, 2, 1)))
    return a + b + a * b


@kernel
def _loss_of_powers(powers: tl.tensor, BM: tl.constexpr, BN: tl.constexpr) -> tl.tensor:
    """Sum of log(1 + p). Logarithms are dear, so factors are multiplied first, in eights, which cannot overflow."""
    eights = _joint(_joint(_joint(powers, BM, BN), BM, BN // 2), BM, BN // 4)
    return tl.sum(tl.where(eights < 1e-3, eights - 0.5 * eights * eights, tl.log2(1.0 + eights) * 0.6931471805599453))


@kernel
def _bce(
    scores: tl.tensor,
    m: tl.tensor,
    n: tl.tensor,
    documents: tl.tensor,
    labels: tl.tensor,
    BM: tl.constexpr,
    BN: tl.constexpr,
) -> tl.tensor:
    """(slopes, sum of softplus over real entries) of a tile; scores of other entries are 0.

    One exponential per entry serves both. Scores count up to 10, where the sigmoid is 0.99995, and the loss grows by
    the rest of the score. Branches: what few tiles need would be dear for all.
    """
    loss = 0.0
    if tl.max(scores) > 10.0:
        loss = tl.sum(tl.maximum(scores - 10.0, 0.0))
    powers = tl.exp2(tl.minimum(scores, 10.0, propagate_nan=tl.PropagateNan.ALL) * 1.4426950408889634)
    if (m + BM > documents) | (n + BN > labels):
        real = (m + tl.arange(0, BM) < documents)[:, None] & (n + tl.arange(0, BN) < labels)[None, :]
        loss += _loss_of_powers(tl.where(real, powers, 0.0), BM, BN)
    else:
        loss += _loss_of_powers(powers, BM, BN)
    return _chances(powers), loss


@kernel
def _tile_scores(
    x: tl.tensor,
    rows: tl.tensor,
    m: tl.tensor,
    n: tl.tensor,
    DEPTH: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    WIDE: tl.constexpr,
) -> tl.tensor:
    """(BM, BN) float32 products of documents m.. and labels n...

    WIDE: for the interpreter, which cannot multiply bf16.
    """
    scores = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, DEPTH, BK):
        left, right = x.load([m, k]), rows.load([n, k]).T
        scores = tl.dot(left.to(tl.float32), right.to(tl.float32), scores) if WIDE else tl.dot(left, right, scores)
    return scores


@kernel
def _bce_pass(
    x: tl.tensor,
    rows: tl.tensor,
    slopes: tl.tensor,
    losses: tl.tensor,
    documents: tl.tensor,
    labels: tl.tensor,
    x_count: tl.tensor,
    DEPTH: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """slopes = sigmoid(x rows.T); losses[tile] = sum of softplus over real entries."""
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(x_count, BM)
    m, n = (tile % tiles_m) * BM, (tile // tiles_m) * BN
    scores = _tile_scores(x, rows, m, n, DEPTH, BM, BN, BK, WIDE)
    chances, loss = _bce(scores, m, n, documents, labels, BM, BN)
    tl.store(losses + tile, loss)
    slopes.store([m, n], chances.to(tl.bfloat16))


@kernel
def _softmax_pass(
    x: tl.tensor,
    rows: tl.tensor,
    slopes: tl.tensor,
    shift: tl.tensor,
    scale: tl.tensor,
    documents: tl.tensor,
    x_count: tl.tensor,
    DEPTH: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """slopes = scale * exp(x rows.T - shift) with a scale and a shift per document."""
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(x_count, BM)
    m, n = (tile % tiles_m) * BM, (tile // tiles_m) * BN
    scores = _tile_scores(x, rows, m, n, DEPTH, BM, BN, BK, WIDE)
    document = m + tl.arange(0, BM)
    exists = document < documents
    least = tl.load(shift + document, mask=exists, other=0.0)
    factor = tl.load(scale + document, mask=exists, other=0.0)
    # Positives may lie above the sum over negatives; they are overwritten, but must not overflow before.
    values = factor[:, None] * tl.exp2(tl.minimum(scores - least[:, None], 60.0) * 1.4426950408889634)
    slopes.store([m, n], values.to(tl.bfloat16))


@kernel
def _log_sum_pass(
    x: tl.tensor,
    rows: tl.tensor,
    largest: tl.tensor,
    total: tl.tensor,
    documents: tl.tensor,
    labels: tl.tensor,
    x_count: tl.tensor,
    DEPTH: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """For each tile of labels and each document the largest score and the sum of exp(score - largest).

    largest, total: (tiles of labels, documents).
    """
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(x_count, BM)
    m, n = (tile % tiles_m) * BM, (tile // tiles_m) * BN
    scores = _tile_scores(x, rows, m, n, DEPTH, BM, BN, BK, WIDE)
    document, label = m + tl.arange(0, BM), n + tl.arange(0, BN)
    scores = tl.where((label < labels)[None, :], scores, -1e30)
    top = tl.max(scores, axis=1)
    at = (tile // tiles_m) * documents + document
    tl.store(largest + at, top, mask=document < documents)
    tl.store(
        total + at, tl.sum(tl.exp2((scores - top[:, None]) * 1.4426950408889634), axis=1), mask=document < documents
    )


@kernel
def _pair_scores(
    x: tl.tensor,
    rows: tl.tensor,
    owners: tl.tensor,
    ids: tl.tensor,
    scores: tl.tensor,
    count: tl.tensor,
    DEPTH: tl.constexpr,
    PAIRS: tl.constexpr,
    BK: tl.constexpr,
) -> None:
    """scores[p] = x[owners[p]] . rows[ids[p]]; 0 for ids < 0."""
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    row = tl.load(ids + pair, mask=pair < count, other=-1)
    owner = tl.load(owners + pair, mask=pair < count, other=0)
    along = tl.arange(0, BK)
    total = tl.zeros((PAIRS, BK), dtype=tl.float32)
    for k in range(0, DEPTH, BK):
        inside = (row >= 0)[:, None] & (along < DEPTH - k)[None, :]
        left = tl.load(x + owner[:, None] * DEPTH + k + along[None, :], mask=inside, other=0.0)
        right = tl.load(rows + row[:, None] * DEPTH + k + along[None, :], mask=inside, other=0.0)
        total += left.to(tl.float32) * right.to(tl.float32)
    tl.store(scores + pair, tl.sum(total, axis=1), mask=pair < count)


@kernel
def _put_pairs(
    slopes: tl.tensor,
    owners: tl.tensor,
    ids: tl.tensor,
    values: tl.tensor,
    count: tl.tensor,
    start: tl.tensor,
    labels: tl.tensor,
    stride: tl.tensor,
    PAIRS: tl.constexpr,
) -> None:
    """slopes[owner, id - start] = value for the pairs whose label is in the block."""
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    label = tl.load(ids + pair, mask=pair < count, other=-1) - start
    here = (label >= 0) & (label < labels)
    owner = tl.load(owners + pair, mask=here, other=0)
    tl.store(slopes + owner * stride + label, tl.load(values + pair, mask=here, other=0.0).to(tl.bfloat16), mask=here)


@kernel
def _adam_rows(
    table: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    rows: tl.tensor,
    gradient: tl.tensor,
    keep_first: tl.tensor,
    add_first: tl.tensor,
    keep_second: tl.tensor,
    add_second: tl.tensor,
    rate: tl.tensor,
    spread: tl.tensor,
    epsilon: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One program per entry of `rows`; one that repeats the entry before it has nothing to do."""
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + place)
    if row != tl.load(rows + place - 1, mask=place > 0, other=-1):
        for start in range(0, WIDTH, BLOCK):
            along = start + tl.arange(0, BLOCK)
            inside = along < WIDTH
            at = row * WIDTH + along
            g = tl.load(gradient + place * WIDTH + along, mask=inside, other=0.0)
            m, v = tl.load(first + at, mask=inside, other=0.0), tl.load(second + at, mask=inside, other=0.0)
            value = tl.load(table + at, mask=inside, other=0.0)
            value, m, v = adam_step(
                value, m, v, g, keep_first, add_first, keep_second, add_second, rate, spread, epsilon
            )
            tl.store(first + at, m, mask=inside)
            tl.store(second + at, v, mask=inside)
            tl.store(table + at, value, mask=inside)


@kernel
def _light_rows(
    table: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    rows: tl.tensor,
    gradient: tl.tensor,
    keep_first: tl.tensor,
    add_first: tl.tensor,
    keep_second: tl.tensor,
    add_second: tl.tensor,
    rate: tl.tensor,
    spread: tl.tensor,
    epsilon: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """`_adam_rows` with first moments in bf16 and one second moment a row; BLOCK is at least WIDTH."""
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + place)
    if row != tl.load(rows + place - 1, mask=place > 0, other=-1):
        along = tl.arange(0, BLOCK)
        inside = along < WIDTH
        at = row * WIDTH + along
        g = tl.load(gradient + place * WIDTH + along, mask=inside, other=0.0)
        m = keep_first * tl.load(first + at, mask=inside, other=0.0).to(tl.float32) + add_first * g
        v = keep_second * tl.load(second + row) + add_second * (tl.sum(g * g) / WIDTH)
        value = tl.load(table + at, mask=inside, other=0.0)
        tl.store(first + at, m.to(tl.bfloat16), mask=inside)
        tl.store(second + row, v)
        tl.store(table + at, value - rate * m / (tl.sqrt(v) * spread + epsilon), mask=inside)


@kernel
def _adam_float32(
    rows: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    gradient: tl.tensor,
    size: tl.tensor,
    scale: tl.tensor,
    keep_first: tl.tensor,
    add_first: tl.tensor,
    keep_second: tl.tensor,
    add_second: tl.tensor,
    rate: tl.tensor,
    spread: tl.tensor,
    epsilon: tl.tensor,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    THERE: tl.constexpr,
) -> None:
    """Adam on float32 numbers, rows of WIDTH; those of the gradient are STRIDE apart.  THERE: `FactorsThere`."""
    if THERE:
        rate, spread = tl.load(rate), tl.load(spread)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    g = tl.load(gradient + at // WIDTH * STRIDE + at % WIDTH, mask=inside, other=0.0).to(tl.float32) * scale
    m, v = tl.load(first + at, mask=inside, other=0.0), tl.load(second + at, mask=inside, other=0.0)
    value = tl.load(rows + at, mask=inside, other=0.0)
    value, m, v = adam_step(value, m, v, g, keep_first, add_first, keep_second, add_second, rate, spread, epsilon)
    tl.store(rows + at, value, mask=inside)
    tl.store(first + at, m, mask=inside)
    tl.store(second + at, v, mask=inside)


# ---- what the rest of the house calls ----


def bce_slopes(x: Tensor, rows: Tensor, slopes: Tensor, documents: int, labels: int) -> Tensor:
    """Write the slopes of negatives; the sum of the losses of `documents` and `labels`."""
    losses = torch.empty(_tile_count(x, rows), dtype=torch.float32, device=x.device)
    _bce_pass[(len(losses),)](*_operands(x, rows, slopes), losses, documents, labels, len(x), **_launch(x))
    return losses.sum()


def softmax_slopes(x: Tensor, rows: Tensor, slopes: Tensor, shift: Tensor, scale: Tensor) -> None:
    """Write scale * exp(score - shift)."""
    _softmax_pass[(_tile_count(x, rows),)](*_operands(x, rows, slopes), shift, scale, len(shift), len(x), **_launch(x))


def log_sum_exp(x: Tensor, rows: Tensor, documents: int, labels: int) -> Tensor:
    """(documents,): over the scores of all `labels`."""
    shape = (2, triton.cdiv(len(rows), _BN), documents)
    largest, total = torch.empty(shape, dtype=torch.float32, device=x.device)
    _log_sum_pass[(_tile_count(x, rows),)](*_operands(x, rows), largest, total, documents, labels, len(x), **_launch(x))
    return torch.logsumexp(largest + total.log(), dim=0)


def pair_scores(x: Tensor, rows: Tensor, owners: Tensor, ids: Tensor) -> Tensor:
    """(P,) float32."""
    scores = torch.empty(len(ids), dtype=torch.float32, device=x.device)
    if len(ids):
        _pair_scores[(triton.cdiv(len(ids), _PAIRS_BLOCK),)](
            x, rows, owners, ids, scores, len(ids), DEPTH=x.shape[1], PAIRS=_PAIRS_BLOCK, BK=64
        )
    return scores


def put_pairs(slopes: Tensor, owners: Tensor, ids: Tensor, values: Tensor, start: int, labels: int) -> None:
    """Overwrite the slopes of pairs whose label is among `labels` from `start` on."""
    if len(ids):
        block = 256
        _put_pairs[(triton.cdiv(len(ids), block),)](
            slopes, owners, ids, values, len(ids), start, labels, slopes.stride(0), PAIRS=block
        )


def adam_rows(
    table: Tensor, first: Tensor, second: Tensor, rows: Tensor, gradient_UD: Tensor, factors: AdamFactors
) -> None:
    """One Adam step, in place, on `rows` (U,) int64 of contiguous float32 tables.

    Of equal entries, which must be neighbours, the first counts.
    """
    width = table.shape[1]
    if len(rows):
        _adam_rows[(len(rows),)](
            table,
            first,
            second,
            rows,
            gradient_UD.contiguous(),
            *factors,
            WIDTH=width,
            BLOCK=min(triton.next_power_of_2(width), _MOST_COLUMNS),
            num_warps=4,
        )


def light_rows(
    table: Tensor, first: Tensor, second: Tensor, rows: Tensor, gradient_UD: Tensor, factors: AdamFactors
) -> None:
    """`adam_rows` of `LightRowAdam`: first moments are bf16, second ones (R, 1)."""
    width = table.shape[1]
    if len(rows):
        _light_rows[(len(rows),)](
            table,
            first,
            second,
            rows,
            gradient_UD.contiguous(),
            *factors,
            WIDTH=width,
            BLOCK=triton.next_power_of_2(width),
            num_warps=4,
        )


def adam_float32(
    rows: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    scale: float,
    factors: AdamFactors | FactorsThere,
) -> None:
    """One Adam step, in place, on contiguous float32 tensors of one shape; gradient: at least as wide."""
    grid = (triton.cdiv(rows.numel(), _ADAM_BLOCK),)
    sizes = {"WIDTH": rows.shape[1], "STRIDE": gradient.stride(0), "BLOCK": _ADAM_BLOCK}
    there = isinstance(factors, FactorsThere)
    _adam_float32[grid](rows, first, second, gradient, rows.numel(), scale, *factors, **sizes, THERE=there, num_warps=8)


def _tile_count(x: Tensor, rows: Tensor) -> int:
    return int(triton.cdiv(len(x), _BM) * triton.cdiv(len(rows), _BN))


def _operands(*tensors: Tensor) -> list[Any]:
    """x, rows and perhaps slopes, for the chip's copy engine (TMA) to move tiles of."""
    shapes = ([_BM, _BK], [_BN, _BK], [_BM, _BN])
    return [TensorDescriptor.from_tensor(tensor, shape) for tensor, shape in zip(tensors, shapes, strict=False)]


def _launch(x: Tensor) -> dict[str, Any]:
    shapes = {"DEPTH": x.shape[1], "BM": _BM, "BN": _BN, "BK": _BK, "WIDE": _INTERPRETED}
    return shapes | {"maxnreg": _REGISTERS, "num_warps": _WARPS, "num_stages": _STAGES}
