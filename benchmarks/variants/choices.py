"""Choices that are made at prediction alone: what a cluster's score counts, how many labels are looked at, whether
there is a shortlist or a memory. They are measured on every model that is trained, without another training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from longtail.data.dataset import Dataset
from longtail.data.protocols import identity
from longtail.models.rankers import ClusterModel, IndexedRows
from longtail.recipes.direct.memory import RememberingRows
from longtail.recipes.galaxc.ranker import JointGraphModel
from longtail.recipes.gnnxml.ranker import Gating, KeygraphModel

POWERS = (0.0, 0.125, 0.25, 0.375, 0.5, 1.0)


def asked_in_other_ways(recipe: str, ranker: Any) -> Iterator[tuple[str, Any]]:
    """What the choice is called, and the ranker with it; nothing where the ranker has no such choice."""
    for name, changed in ASKED.get(recipe, {}).items():
        other = changed(ranker)
        if other is not None:
            yield name, other


def parts_of_documents(recipe: str, data: Dataset) -> Iterator[tuple[str, Dataset]]:
    """For GalaXC test documents that are labels themselves, and the others, each as data of its own."""
    if recipe == "galaxc":
        kinds = identity(data)
        for name, part in (("are labels", kinds.labels), ("are no labels", kinds.others)):
            if part is not None:
                yield name, part


def _cluster_power(power: float) -> Callable[[Any], Any]:
    return lambda ranker: replace(ranker, cluster_power=power) if isinstance(ranker, ClusterModel) else None


def _exhaustive(ranker: Any) -> Any:
    return ranker.exhaustive() if isinstance(ranker, JointGraphModel) else None


def _gates(power: float | None = None, reach: int | None = None) -> Callable[[Any], Any]:
    """What is not named stays as it was trained. A number of labels decides how many clusters are looked into: then the
    beam cuts nothing off.
    """

    def changed(ranker: Any) -> Any:
        if not isinstance(ranker, KeygraphModel):
            return None
        own = ranker.gating or Gating()
        gating = replace(own, power=own.power if power is None else power, reach=own.reach if reach is None else reach)
        return replace(ranker, beam=ranker.rankers.n_clusters if reach else ranker.beam, gating=gating)

    return changed


def _without_memory(ranker: Any) -> Any:
    is_ours = isinstance(ranker, RememberingRows)
    return IndexedRows(ranker.encoder, ranker.refinement, ranker.index) if is_ours else None


ASKED: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "eclare": {f"cluster_power {power:g}": _cluster_power(power) for power in POWERS},
    "galaxc": {"every label scored": _exhaustive},
    "gnnxml": {
        **{f"gates to the power of {power:g}": _gates(power) for power in POWERS},
        **{f"{reach} labels": _gates(reach=reach) for reach in (300, 900, 2700)},
        "900 labels, gates to the power of 1": _gates(1.0, reach=900),
    },
    "direct": {"no memory": _without_memory},
}
