"""Why claims fail: variants and worlds beside those of the claim, in which a supposed cause is there or is not.

    python -m benchmarks.claims.causes X2 N12 --out FILE [--device cpu] [--cache runs/claims] [--data DIR] [--seeds 3]

Nothing is judged here: the file has every metric of every variant, and differences with 95% intervals (`verdict`). What
they say stands in docs/experiments.md, and in `background` where it explains a failure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.claims import cross, gnnxml
from benchmarks.claims.crafted_worlds import long_text_world
from benchmarks.claims.entries import Difference, Value, Variant, difference
from benchmarks.claims.keygraph_measures import cluster_quality
from benchmarks.claims.measures import Columns, Trained
from benchmarks.claims.runner import Experiment
from benchmarks.claims.verdict import Column
from benchmarks.claims.workshop import Workshop, describe
from benchmarks.claims.worlds import Crafted, DataSpec, Planted, World
from benchmarks.record import typed_command, write_result
from benchmarks.variants.slices import data_of

SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "R@100")


@dataclass(frozen=True)
class Slice:
    """A tenth of the training documents of a real set held out (`slices.data_of`): ``debian-related@2000``."""

    shared: ClassVar[bool] = True

    asked: str

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        return {"slice": self.asked, "digest": self.world(seed, folder).dataset.digest}

    def world(self, seed: int, folder: Path | None) -> World:
        return World.of(data_of(str((folder or Path()) / self.asked), test=False))

    def describe(self) -> str:
        return f"slice of {self.asked}"


@dataclass(frozen=True)
class Look:
    """Variants on worlds. compared: pairs of variants; in every metric of `shown`, and what `also` names beside it."""

    worlds: Mapping[str, DataSpec]
    variants: Mapping[str, Variant]
    compared: Sequence[tuple[str, str]] = ()
    also: Sequence[Difference | Value] = ()
    shown: Sequence[str] = SHOWN
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)  # world -> the variants trained there; else all

    def found(self, workshop: Workshop, seeds: int) -> dict[str, Any]:
        return {name: self._in_world(name, data, workshop, seeds) for name, data in self.worlds.items()}

    def _in_world(self, name: str, data: DataSpec, workshop: Workshop, seeds: int) -> dict[str, Any]:
        variants = {each: v for each, v in self.variants.items() if each in self.only.get(name, self.variants)}
        experiment = Experiment(variants, data, range(seeds), workshop)
        pairs = [difference(a, b, metric) for a, b in self.compared for metric in self.shown]
        known = [each for each in (*pairs, *self.also) if all(v.variant in variants for v in _values(each))]
        return {
            "data": data.describe(),
            "settings": {each: describe(variant) for each, variant in variants.items()},
            "metrics": experiment.table(self.shown),
            "differences": {_name(each): _estimated(experiment, each) for each in known},
        }


def _values(asked: Difference | Value) -> tuple[Value, ...]:
    return (asked.a, asked.b) if isinstance(asked, Difference) else (asked,)


def _name(asked: Difference | Value) -> str:
    return asked.name


def _estimated(experiment: Experiment, asked: Difference | Value) -> dict[str, Any]:
    from benchmarks.claims.entries import Level

    check = asked if isinstance(asked, Difference) else Level(asked, 0.0)
    found, _ = experiment.estimated(check, f"cause {_name(asked)}")
    kept = {"value": found.value, "low": found.low, "high": found.high}
    return {
        **{name: round(value, 3) for name, value in kept.items()},
        "per seed": [round(v, 3) for v in found.per_seed],
    }


# ---- X2: nearest neighbours ----

# A twentieth of the documents are labels themselves: no more of them than labels.
_FEW = {**cross.WORLD, "test_documents": 3_000}
NEIGHBOURS = Look(
    worlds={
        f"{documents} documents": Planted("small", {**_FEW, "documents": documents})
        for documents in (3_000, 6_000, 12_000)
    },
    variants=cross.METHODS,
    also=tuple(cross.above(method, cross.NEAREST) for method in cross.METHODS),
)

# ---- N12: clusters by TF-IDF ----


def reached(trained: Trained) -> Columns:
    """looked at: labels in the clusters that are looked into, percent of all. largest: labels of the largest cluster,
    percent of all that have one.
    """
    from benchmarks.claims.keygraph_measures import _model
    from benchmarks.claims.model_measures import batch_to_rank

    model = _model(trained)
    rankers = model.rankers
    sizes = np.bincount(rankers.clusters[rankers.clusters >= 0], minlength=rankers.n_clusters)
    looked = model.best_clusters(batch_to_rank(trained)).ids
    held = np.where(looked >= 0, sizes[np.maximum(looked, 0)], 0).sum(axis=1)
    one = np.ones(len(held))
    return {
        "looked at": Column(held / len(rankers.clusters), one),
        "largest": Column(np.full(len(held), sizes.max() / sizes.sum()), one),
    }


SYNONYMS = Crafted(long_text_world, {**gnnxml.WORLD, "synonyms": 6})
_EVEN = ("clusters.partition=even",)
TFIDF_CLUSTERS = Look(
    worlds={"synonyms": SYNONYMS},
    variants={
        **gnnxml.FEATURES,
        "dense, as many labels looked at": gnnxml.LEAN.changed("rankers.reach=800"),
        "dense, even": gnnxml.FEATURES["dense"].changed(*_EVEN),
        "tf-idf, even": gnnxml.FEATURES["tf-idf"].changed(*_EVEN),
    },
    compared=(
        ("dense", "tf-idf"),
        ("dense, as many labels looked at", "tf-idf"),
        ("dense, even", "tf-idf, even"),
    ),
    also=tuple(
        Value(name, metric, by)
        for name in ("dense", "tf-idf", "dense, as many labels looked at", "dense, even", "tf-idf, even")
        for metric, by in (("looked at", reached), ("largest", reached), ("cluster recall", cluster_quality))
    ),
)

# ---- N10: one graph network beside the sum of vertices ----

_V2 = gnnxml.STEPS["v2"]
STEPS = Look(
    worlds={
        "as in the claim": gnnxml.LONG,
        "four times the documents": Crafted(long_text_world, {**gnnxml.WORLD, "documents": 16_000}),
    },
    variants={
        "v1": gnnxml.STEPS["v1"],
        "v2": _V2,
        "v2, all layers joined": gnnxml.LEAN.changed("matcher.branches=conventional"),
        "v2, one layer": _V2.changed("matcher.layers=1"),
    },
    compared=(("v2", "v1"), ("v2, all layers joined", "v1"), ("v2, one layer", "v1")),
    also=tuple(
        Difference(Value(name, "cluster recall", cluster_quality), Value("v1", "cluster recall", cluster_quality))
        for name in ("v2", "v2, all layers joined", "v2, one layer")
    ),
)

LOOKS: Mapping[str, Look] = {"X2": NEIGHBOURS, "N12": TFIDF_CLUSTERS, "N10": STEPS}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.claims.causes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("claims", nargs="+", choices=list(LOOKS))
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cache", type=Path, default=Path("runs/claims"))
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(words)
    workshop = Workshop(
        options.cache, device=options.device, data=options.data, say=lambda text: print(text, flush=True)
    )
    found = {claim: LOOKS[claim].found(workshop, options.seeds) for claim in options.claims}
    write_result(options.out, "causes", {"seeds": options.seeds, **found}, typed_command("claims.causes", words))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
