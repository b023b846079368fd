"""How the rows of a trained model lie, and the numbers with which planted rows (for the case `scaling`) lie alike.

    python -m benchmarks.speed shape [DATA] --model RUN [--width 128] --out FILE.json

RUN: a run or bundle of `direct` that compares all labels exactly. Its rows and what documents ask (test titles of
DATA, else label names) are looked at in their main directions, as many as --width; `planted_rows.Likeness` is then
chosen so that planted rows of the same number have the same shape: how much their first directions hold, how near the
neighbours of a row are, and how far the best labels of a document stand out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.speed.common import Measured, data_argument
from benchmarks.speed.planted_rows import YSO, Likeness, planted_documents, planted_index
from longtail.data.read import read
from longtail.models.rankers import IndexedRows
from longtail.packing import word_queries
from longtail.predictor import Predictor
from longtail.search.index import ExactIndex
from longtail.search.sketch import two_level_clusters
from longtail.types import F32

# Rows and documents that are looked at; neighbours and labels in whose places they are compared.
LOOKED_AT, PLACES = 400, (1, 10, 100, 1000)
# What a likeness may be: steps that are tried one after the other until none is better.
STEPS = {"fading": (0.7, 1.4), "share": (0.8, 1.25), "last_share": (0.85, 1.15), "noise": (0.85, 1.15)}
DIRECTIONS = (0.125, 0.25, 0.5)


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser, "whose test documents ask (default: label names)", optional=True)
    parser.add_argument("--model", type=Path, required=True, metavar="RUN", help="a run or bundle of direct")
    parser.add_argument("--width", type=int, default=128, help="main directions (default 128)")


def measure(options: argparse.Namespace) -> Measured:
    rows, queries = trained(options.model, options.data)
    own_sizes = sizes_of(rows)
    rows, queries = in_main_directions(rows, queries, min(options.width, rows.shape[1] - 1))
    width = rows.shape[1] - 1
    target = shape_of(rows, queries)
    like, error = fitted(target, len(rows), width, replace(YSO, **{**own_sizes, "common": sizes_of(rows)["common"]}))
    return Measured(
        {
            "labels": len(rows),
            "width": width,
            "likeness": asdict(like),
            "distance": error,
            "trained": target,
            "planted": planted_shape(len(rows), width, like),
        }
    )


def shape_of(rows: F32, queries: F32) -> dict[str, float]:
    """rows: (L, D + 1), the last number a bias.  queries: (Q, D + 1).  All numbers are free of scale.

    directions: share of the squares, mean taken off, in so large a share of the main directions.  cosine: of a row
    with the one in that place among its neighbours.  best: by how many standard deviations the label in that place
    stands above the mean score of a document.  in leaves: `in_leaves`.
    """
    weights = rows[:, :-1]
    squares = np.linalg.eigvalsh(np.cov(weights[:: max(1, len(weights) // 8000)], rowvar=False))[::-1]
    found = {
        f"directions {part:g}": float(squares[: int(part * len(squares))].sum() / squares.sum()) for part in DIRECTIONS
    }
    units = weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-9)
    chosen = np.random.default_rng(0).choice(len(rows), min(LOOKED_AT, len(rows)), replace=False)
    places = [place for place in PLACES if place < len(rows)]
    # The nearest is the row itself.
    cosines = in_places(units[chosen] @ units.T, [place + 1 for place in places])
    scores = queries[:LOOKED_AT] @ rows.T
    above = (in_places(scores, places) - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)
    for n, place in enumerate(places):
        found |= {f"cosine {place}": float(cosines[:, n].mean()), f"best {place}": float(above[:, n].mean())}
    return {**found, "in leaves": in_leaves(weights, rows[:, -1], queries[:LOOKED_AT], scores)}


def in_places(values: F32, places: list[int]) -> F32:
    """(n, places): the highest, the 10th highest, ... of each row."""
    return -np.partition(-values, [place - 1 for place in places], axis=1)[:, [place - 1 for place in places]]


def in_leaves(weights: F32, biases: F32, queries: F32, scores: F32) -> float:
    """Which share of the 100 best labels lies in the fifth of all leaves, 64 rows each, whose centres are best: what
    a tree finds.
    """
    owners = two_level_clusters(np.ascontiguousarray(weights), max(2, len(weights) // 64), np.random.default_rng(0))
    sizes = np.bincount(owners)
    centres = (
        np.stack([np.bincount(owners, column, len(sizes)) for column in (*weights.T, biases)], axis=1) / sizes[:, None]
    )
    reach = queries @ centres.T.astype(np.float32)
    order = np.argsort(-reach, axis=1)
    wanted = (np.cumsum(sizes[order], axis=1) <= len(weights) / 5) | (np.arange(len(sizes)) == 0)
    looked_into = np.zeros(reach.shape, bool)
    np.put_along_axis(looked_into, order, wanted, axis=1)
    best = np.argpartition(-scores, min(100, scores.shape[1] - 1), axis=1)[:, :100]
    return float(np.take_along_axis(looked_into, owners[best], axis=1).mean())


def in_main_directions(rows: F32, queries: F32, width: int) -> tuple[F32, F32]:
    """The same, turned into the `width` directions in which rows differ most and the mean: what a narrower model
    would have to do with.
    """
    weights = rows[:, :-1]
    mean = weights.mean(axis=0)
    directions = np.linalg.eigh(np.cov(weights, rowvar=False))[1][:, ::-1][:, : width - 1]
    basis, _ = np.linalg.qr(np.concatenate([mean[:, None], directions], axis=1))

    def turned(vectors: F32) -> F32:
        return np.concatenate([vectors[:, :-1] @ basis, vectors[:, -1:]], axis=1).astype(np.float32)

    return turned(rows), turned(queries)


def sizes_of(rows: F32) -> dict[str, float]:
    """What can be read off: lengths, biases, and how much of their length rows have in common."""
    lengths, biases = np.linalg.norm(rows[:, :-1], axis=1), rows[:, -1]
    return {
        "length": float(lengths.mean()),
        "length_spread": float(lengths.std() / lengths.mean()),
        "bias": float(biases.mean()),
        "bias_spread": float(abs(biases.std() / biases.mean())),
        "common": float(np.linalg.norm(rows[:, :-1].mean(axis=0)) / lengths.mean()),
    }


def planted_shape(labels: int, width: int, like: Likeness) -> dict[str, float]:
    index = planted_index(labels, width, like=like)
    return shape_of(index.read(), planted_documents(index, LOOKED_AT, like=like))


def distance(one: dict[str, float], other: dict[str, float]) -> float:
    """Of two shapes: root of the mean square of differences; scores, which are some units apart, count a tenth, what
    leaves hold three times.
    """
    weights = {name: 0.1 if name.startswith("best") else 3.0 if name == "in leaves" else 1.0 for name in one}
    return float(np.sqrt(np.mean([((one[name] - other[name]) * weights[name]) ** 2 for name in one])))


def neighbours(like: Likeness) -> Iterator[Likeness]:
    for name, factors in STEPS.items():
        for factor in factors:
            yield replace(
                like,
                **{name: min(getattr(like, name) * factor, 0.95) if "share" in name else getattr(like, name) * factor},
            )


def fitted(
    target: dict[str, float], labels: int, width: int, start: Likeness, rounds: int = 12
) -> tuple[Likeness, float]:
    """The likeness whose planted rows come nearest to the target, by steps of one number at a time."""
    best, nearest = start, distance(target, planted_shape(labels, width, start))
    for _ in range(rounds):
        tried = [(distance(target, planted_shape(labels, width, like)), like) for like in neighbours(best)]
        value, like = min(tried, key=lambda pair: pair[0])
        if value >= nearest:
            break
        best, nearest = like, value
    return best, nearest


def trained(path: Path, data: Path | None) -> tuple[F32, F32]:
    """Rows of a bundle, and what documents ask."""
    model = Predictor.open(path)
    ranker = model.bundle.ranker
    if not isinstance(ranker, IndexedRows) or not isinstance(ranker.index, ExactIndex):
        raise SystemExit(f"error: {path}: not a model of direct that is searched exactly, as training leaves it")
    if data is None:
        return ranker.index.vectors, word_queries(model.bundle, ranker)
    documents = read(data).need_test().documents
    chosen = np.sort(np.random.default_rng(0).permutation(len(documents))[:LOOKED_AT])
    return ranker.index.vectors, ranker.queries(model.bundle.featurizer.batch(documents.rows(chosen)))
