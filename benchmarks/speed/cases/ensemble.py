"""What it costs to ask several models as one: an ensemble beside one of its members, and beside merging with numpy.

    python -m benchmarks.speed ensemble [--labels 750] [--documents 256] [--members 2] --out FILE.json

Models are small and of random numbers, so that merging their lists shows. All take turns; if merging with numpy gives
other lists or scores the command ends with status 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import random_array

from benchmarks.speed.common import Measured, seconds_of
from longtail.models.encoders import FrozenBag
from longtail.models.rankers import Ensemble, IndexedRows, best
from longtail.search.index import ExactIndex
from longtail.types import Batch, Ranker, TopK

SIZES = ("labels", "documents", "members", "width", "words", "k", "repeats")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=int, default=750)
    parser.add_argument("--documents", type=int, default=256)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--words", type=int, default=2_000)
    parser.add_argument("--k", type=int, default=5, help="labels that are asked for; an ensemble asks members for more")
    parser.add_argument("--repeats", type=int, default=30, help="the shortest of so many turns, after one to warm up")


def measure(options: argparse.Namespace) -> Measured:
    rng = np.random.default_rng(0)
    members = tuple(_model(options, rng) for _ in range(options.members))
    words = random_array(
        (options.documents, options.words), density=8 / options.words, dtype=np.float32, format="csr", rng=rng
    )
    batch, ensemble = Batch(sparse=words), Ensemble(members)
    asked = max(ensemble.depth, options.k)
    lists = [member.rank(batch, asked) for member in members]
    given = Ensemble(tuple(Known(top) for top in lists))
    work: dict[str, Callable[[], TopK]] = {
        "one member": lambda: members[0].rank(batch, options.k),
        "one member, as deep": lambda: members[0].rank(batch, asked),
        "ensemble": lambda: ensemble.rank(batch, options.k),
        "merging": lambda: given.rank(batch, options.k),
        "merging with numpy": lambda: merged_by_numpy(lists, options.k),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(options.repeats + 1):
        for name, each in work.items():
            took = seconds_of(each)
            if turn:
                seconds[name].append(took)
    ours, plain = work["ensemble"](), work["merging with numpy"]()
    same = np.array_equal(ours.ids, plain.ids) and np.array_equal(ours.scores, plain.scores)
    shortest = {name: min(times) for name, times in seconds.items()}
    numbers = {
        "milliseconds": {name: round(1e3 * took, 4) for name, took in shortest.items()},
        "times_one_member": {
            "as deep": round(shortest["ensemble"] / shortest["one member, as deep"], 2),
            "asked for k labels": round(shortest["ensemble"] / shortest["one member"], 2),
        },
    }
    return Measured(
        numbers,
        config={name: getattr(options, name) for name in SIZES},
        problem="" if same else "merging with numpy gives something else",
    )


@dataclass(frozen=True)
class Known(Ranker):
    """A member whose answer is there: what an ensemble of such takes is merging alone."""

    KIND = "known"

    top: TopK

    def rank(self, batch: Batch, k: int) -> TopK:
        return self.top


def merged_by_numpy(lists: Sequence[TopK], k: int) -> TopK:
    """What the kernel does, as it was done before: equal labels stand side by side after sorting, and their scores are
    summed at the first of them.
    """
    ids = np.concatenate([top.ids for top in lists], axis=1)
    scores = np.concatenate([np.where(top.ids >= 0, top.scores, 0) for top in lists], axis=1)
    order = np.argsort(ids, axis=1, kind="stable")
    ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    first = np.ones(ids.shape, dtype=bool)
    first[:, 1:] = ids[:, 1:] != ids[:, :-1]
    group = np.cumsum(first, axis=1) - 1
    summed = np.zeros(scores.shape, dtype=np.float32)
    np.add.at(summed, (np.arange(len(ids))[:, None], group), scores.astype(np.float32))
    mean = np.where(first, np.take_along_axis(summed, group, axis=1) / np.float32(len(lists)), -np.inf)
    return best(np.where(first, ids, TopK.PAD), mean, min(k, max(top.k for top in lists)))


def _model(options: argparse.Namespace, rng: np.random.Generator) -> IndexedRows:
    words = rng.standard_normal((options.words, options.width), dtype=np.float32)
    return IndexedRows(
        FrozenBag(words),
        None,
        ExactIndex.build(rng.standard_normal((options.labels, options.width + 1), dtype=np.float32), "dot"),
    )
