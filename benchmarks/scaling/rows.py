"""Planted classifier rows and documents of any number, for measurements of search: nothing but the seed decides them.

Labels are the leaves of a taxonomy, whose branches are chosen by a power law. A row is made of what its topics have in common, level by
level, and of what is its own, in few main directions, as rows of a trained `direct` model are. More labels make a deeper
taxonomy, in which the last topics are narrower. A document lies near one to three labels of a topic, and has no negative numbers.
The constants were set so that, at the size of the embedded sample's model (7,683 labels, 256 numbers), sketches and trees find about
as much as they do on its rows (``python -m benchmarks.scaling --like BUNDLE`` shows both). How rows of ten million labels would lie is
not known: that they lie as the taxonomy says is an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from longtail.search.packed import PackedIndex, PackedRows, PackedType
from longtail.types import F32, I64

# Branches of a topic, the power law of their sizes, and labels of the narrowest topics on average.
BRANCHES, POWER, LABELS_PER_TOPIC = 10, 0.7, 8
# Which share of what is left of a row's squares each level of topics takes, and the narrowest; how fast the main directions fade;
# noise of documents.
SHARE, LAST_SHARE, FADING, NOISE = 0.12, 0.5, 20.0, 0.9
LENGTH, BIAS = 4.9, -8.3
BLOCK = 1 << 17


def planted_rows(labels: int, width: int, seed: int = 0) -> Iterator[F32]:
    """Blocks of (.., width + 1) float32: rows with their bias. Labels of a topic stand side by side."""
    rng = np.random.default_rng([seed, labels, width])
    rotation = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
    directions = (1 / (1 + np.arange(width) / FADING)).astype(np.float32)
    within = np.sqrt(directions) * np.linalg.norm(directions) / np.linalg.norm(np.sqrt(directions))  # flatter, of the same length
    depth = max(1, round(math.log(max(labels / LABELS_PER_TOPIC, BRANCHES), BRANCHES)))
    paths = topics_of(labels, depth, rng)
    topics = [rng.standard_normal((BRANCHES ** (level + 1), width), dtype=np.float32) * directions for level in range(depth)]
    for start in range(0, labels, BLOCK):
        count, left = min(BLOCK, labels - start), 1.0
        mixed = np.zeros((count, width), np.float32)
        for share, of_level, vectors in zip([SHARE] * (depth - 1) + [LAST_SHARE], paths, topics, strict=True):
            mixed += np.float32((left * share) ** 0.5) * vectors[of_level[start : start + count]]
            left *= 1 - share
        mixed += np.float32(left**0.5) * rng.standard_normal((count, width), dtype=np.float32) * within
        mixed *= (LENGTH * rng.normal(1, 0.12, (count, 1)) / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32)
        yield np.concatenate([mixed @ rotation, rng.normal(BIAS, 0.03, (count, 1))], axis=1).astype(np.float32)


def topics_of(labels: int, depth: int, rng: np.random.Generator) -> list[I64]:
    """For every level the topic of each label, (labels,) int64: sorted by the narrowest topic."""
    chances = (1 + np.arange(BRANCHES)) ** -POWER
    narrowest = np.zeros(labels, np.int64)
    for _ in range(depth):
        narrowest = BRANCHES * narrowest + rng.choice(BRANCHES, size=labels, p=chances / chances.sum())
    narrowest.sort()
    return [narrowest // BRANCHES ** (depth - 1 - level) for level in range(depth)]


def planted_index(labels: int, width: int, dtype: PackedType = "int8", seed: int = 0) -> PackedIndex:
    """The rows packed, block by block: ten million of them never stand in memory whole."""
    blocks = [(PackedRows.of(block[:, :-1], dtype), block[:, -1]) for block in planted_rows(labels, width, seed)]
    values = np.concatenate([rows.values for rows, _ in blocks])
    scales = None if blocks[0][0].scales is None else np.concatenate([rows.scales for rows, _ in blocks if rows.scales is not None])
    return PackedIndex(PackedRows(values, scales), np.concatenate([offsets for _, offsets in blocks]), "dot")


def planted_documents(index: PackedIndex, documents: int, seed: int = 0) -> F32:
    """(documents, width + 1) float32, without negative numbers, the last one 1: each near one to three neighbouring labels."""
    rng = np.random.default_rng([seed, 0xD0C])
    width = index.rows.shape[1]
    found = np.empty((documents, width + 1), np.float32)
    for number in range(documents):
        near = rng.integers(len(index)) + rng.integers(3 * LABELS_PER_TOPIC, size=rng.integers(1, 4))
        mean = index.rows[np.minimum(near, len(index) - 1)].mean(axis=0)
        found[number, :-1] = np.maximum(mean / np.linalg.norm(mean) + NOISE * rng.standard_normal(width) / np.sqrt(width), 0)
    found[:, :-1] *= LENGTH / np.linalg.norm(found[:, :-1], axis=1, keepdims=True)
    found[:, -1] = 1
    return found
