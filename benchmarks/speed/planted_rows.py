"""Planted classifier rows and documents of any number, for measurements of search: nothing but the seed decides them.

Labels are the leaves of a taxonomy, whose branches are chosen by a power law. A row is made of what all rows have in
common, of what its topics have in common, level by level, and of what is its own, in main directions that fade, as
rows of a trained `direct` model are. More labels make a deeper taxonomy, in which the last topics are narrower. A
document lies near one to three labels of a topic.

The constants are those of a model of yso-finna-en, in its 128 main directions (case `shape` derives them from a bundle,
and says how near planted rows come to trained ones). How rows of ten million labels would lie is not known: that they
lie as the taxonomy says is an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from longtail.search.packed import PackedIndex, PackedRows, PackedType
from longtail.types import F32, I64

# Branches of a topic, the power law of their sizes, and labels of the narrowest topics on average.
BRANCHES, POWER, LABELS_PER_TOPIC = 10, 0.7, 8
BLOCK = 1 << 17


@dataclass(frozen=True)
class Likeness:
    """What rows and documents are like.

    share: of what is left of a row's squares at each level of topics, that they take; last_share: the narrowest.
    fading: after how many main directions they are half as long.  common: of a row's length that all rows have in
        common.
    noise: of documents, in lengths of what they are near.  length, bias: of rows, on average; spreads: shares of these.
    """

    share: float
    last_share: float
    fading: float
    common: float
    noise: float
    length: float
    length_spread: float
    bias: float
    bias_spread: float


# Case `shape` on a `direct` run of yso-finna-en (benchmarks/results/scaling_shape.json).
YSO = Likeness(
    share=0.188,
    last_share=0.261,
    fading=411.6,
    common=0.584,
    noise=1.338,
    length=5.864,
    length_spread=0.141,
    bias=-9.309,
    bias_spread=0.0105,
)


def planted_rows(labels: int, width: int, seed: int = 0, like: Likeness = YSO) -> Iterator[F32]:
    """Blocks of (.., width + 1) float32: rows with their bias. Labels of a topic stand side by side."""
    rng = np.random.default_rng([seed, labels, width])
    rotation, directions = main_directions(rng, width, like)
    within = np.sqrt(directions) / np.linalg.norm(np.sqrt(directions))  # flatter, of the same length
    depth = max(1, round(math.log(max(labels / LABELS_PER_TOPIC, BRANCHES), BRANCHES)))
    paths = topics_of(labels, depth, rng)
    topics = [
        rng.standard_normal((BRANCHES ** (level + 1), width), dtype=np.float32) * directions for level in range(depth)
    ]
    common = rng.standard_normal(width) * within
    common *= like.common / np.linalg.norm(common)
    for start in range(0, labels, BLOCK):
        count, left = min(BLOCK, labels - start), 1 - like.common**2
        mixed = np.tile(common.astype(np.float32), (count, 1))
        for share, of_level, vectors in zip([like.share] * (depth - 1) + [like.last_share], paths, topics, strict=True):
            mixed += np.float32((left * share) ** 0.5) * vectors[of_level[start : start + count]]
            left *= 1 - share
        mixed += np.float32(left**0.5) * rng.standard_normal((count, width), dtype=np.float32) * within
        mixed *= (
            like.length * rng.normal(1, like.length_spread, (count, 1)) / np.linalg.norm(mixed, axis=1, keepdims=True)
        ).astype(np.float32)
        yield np.concatenate(
            [mixed @ rotation, like.bias * rng.normal(1, like.bias_spread, (count, 1))], axis=1
        ).astype(np.float32)


def main_directions(rng: np.random.Generator, width: int, like: Likeness) -> tuple[F32, F32]:
    """A rotation (width, width), and how much rows differ in each of its directions (width,), of unit length."""
    rotation = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
    directions = (1 / (1 + np.arange(width) / like.fading)).astype(np.float32)
    return rotation, directions / np.linalg.norm(directions)


def topics_of(labels: int, depth: int, rng: np.random.Generator) -> list[I64]:
    """For every level the topic of each label, (labels,) int64: sorted by the narrowest topic."""
    chances = (1 + np.arange(BRANCHES)) ** -POWER
    narrowest = np.zeros(labels, np.int64)
    for _ in range(depth):
        narrowest = BRANCHES * narrowest + rng.choice(BRANCHES, size=labels, p=chances / chances.sum())
    narrowest.sort()
    return [narrowest // BRANCHES ** (depth - 1 - level) for level in range(depth)]


def planted_index(
    labels: int, width: int, dtype: PackedType = "int8", seed: int = 0, like: Likeness = YSO
) -> PackedIndex:
    """The rows packed, block by block: ten million of them never stand in memory whole."""
    blocks = [(PackedRows.of(block[:, :-1], dtype), block[:, -1]) for block in planted_rows(labels, width, seed, like)]
    values = np.concatenate([rows.values for rows, _ in blocks])
    scales = (
        None
        if blocks[0][0].scales is None
        else np.concatenate([rows.scales for rows, _ in blocks if rows.scales is not None])
    )
    return PackedIndex(PackedRows(values, scales), np.concatenate([offsets for _, offsets in blocks]), "dot")


def planted_documents(index: PackedIndex, documents: int, seed: int = 0, like: Likeness = YSO) -> F32:
    """(documents, width + 1) float32, the last number 1: each near one to three neighbouring labels, and off them
    mostly in the main directions of rows.
    """
    rng = np.random.default_rng([seed, 0xD0C])
    width = index.rows.shape[1]
    rotation, directions = main_directions(np.random.default_rng([seed, len(index), width]), width, like)
    off = directions**2 / np.linalg.norm(directions**2)
    found = np.ones((documents, width + 1), np.float32)
    for number in range(documents):
        near = rng.integers(len(index)) + rng.integers(3 * LABELS_PER_TOPIC, size=rng.integers(1, 4))
        mean = index.rows[np.minimum(near, len(index) - 1)].mean(axis=0)
        found[number, :-1] = mean / np.linalg.norm(mean) + (like.noise * rng.standard_normal(width) * off) @ rotation
    found[:, :-1] *= like.length / np.linalg.norm(found[:, :-1], axis=1, keepdims=True)
    return found
