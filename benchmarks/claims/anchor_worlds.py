"""Planted worlds for RAMEN: with a second set of anchors that says nothing, with labels spread along a graph, and
with labels that training never sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.claims.worlds import World
from longtail.config import resolve
from longtail.data.dataset import Dataset, Graph
from longtail.data.from_texts import binary_csr, with_digest
from longtail.data.protocols import zero_shot
from longtail.data.synthetic import PRESETS, Synthetic, synthesise
from longtail.evaluation import Yardstick
from longtail.types import Csr

SECOND = "second"


def two_sets_world(seed: int, *, junk: bool = True, **knobs: Any) -> Dataset:
    """The small synthetic world with a second set of anchors (`SECOND`): the first one's edges. junk: of other items,
    drawn at random.
    """
    made, rng = _made(seed, knobs), np.random.default_rng([seed, 0x2A])
    first = made.dataset.graphs["anchors"]

    def of_others(edges: Csr | None) -> Csr | None:
        return edges[rng.permutation(edges.shape[0])] if junk and edges is not None else edges

    second = replace(first, name=SECOND, documents=of_others(first.documents), labels=of_others(first.labels))
    return with_digest(replace(made.dataset, graphs={**made.dataset.graphs, SECOND: second}))


def augmented_world(seed: int, **knobs: Any) -> Dataset:
    """The small synthetic world where a training document also has every label it shares an anchor with. Paper: RAMEN
    Table 5 (AugGT).
    """
    made = _made(seed, knobs).dataset
    graph: Graph = made.graphs["anchors"]
    assert graph.documents is not None
    assert graph.labels is not None
    reached = (made.train.targets + graph.documents @ graph.labels.T).tocoo()
    targets = binary_csr(reached.row.astype(np.int64), reached.col.astype(np.int64), made.train.targets.shape)
    return with_digest(replace(made, train=replace(made.train, targets=targets)))


@dataclass(frozen=True)
class UnseenLabels:
    """Training on a part of the labels of a synthetic world, measured on the others alone (spec 06 section 8,
    strict).
    """

    shared: ClassVar[bool] = False

    knobs: Mapping[str, Any] = field(default_factory=dict)

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        return {"unseen labels": dict(self.knobs), "seed": seed}

    def world(self, seed: int, folder: Path | None) -> World:
        cut = zero_shot(_made(seed, self.knobs).dataset, seed)
        return World(cut.train, Yardstick.of(cut.unseen))

    def describe(self) -> str:
        return f"planted small ({', '.join(f'{name}={value}' for name, value in self.knobs.items())}), unseen labels"


def _made(seed: int, knobs: Mapping[str, Any]) -> Synthetic:
    return synthesise(resolve(PRESETS["small"], knobs, "planted data"), seed)
