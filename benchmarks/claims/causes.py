"""Why claims fail: variants and worlds beside those of the claim, in which a supposed cause is there or is not.

    python -m benchmarks.claims.causes X2 N12 --out FILE [--device cpu] [--cache runs/claims] [--data DIR] [--seeds 3]

Nothing is judged here: the file has every metric of every variant, and differences with 95% intervals (`verdict`). What
they say stands in docs/experiments.md, and in `background` where it explains a failure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.claims import cross, deepxml, eclare, galaxc, gnnxml
from benchmarks.claims.crafted_worlds import long_text_world
from benchmarks.claims.entries import Difference, Level, Value, Variant, difference
from benchmarks.claims.galaxc_measures import anchored_ranking, far_attention, model_of
from benchmarks.claims.graph_measures import game_forms
from benchmarks.claims.keygraph_measures import _model, cluster_quality
from benchmarks.claims.measures import Columns, Trained, by_frequency, columns_of
from benchmarks.claims.model_measures import batch_to_rank
from benchmarks.claims.runner import Experiment
from benchmarks.claims.verdict import Column
from benchmarks.claims.workshop import Workshop, describe
from benchmarks.claims.worlds import Crafted, DataSpec, Folder, Planted, World
from benchmarks.record import typed_command, write_result
from benchmarks.variants.slices import data_of
from longtail import metrics
from longtail.graph.ops import unit_rows
from longtail.persistence import load_part
from longtail.recipes.galaxc.ranker import attention, hop_norms
from longtail.recipes.gnnxml.ranker import Gating
from longtail.recipes.gnnxml.settings import VARIANTS
from longtail.search.nearest import NearestDocuments, VoteConfig
from longtail.types import Batch

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
    if isinstance(asked, Value) or asked.a.metric == asked.b.metric:
        return asked.name
    return " - ".join(f"{value.metric}({value.source})" for value in (asked.a, asked.b))


def _estimated(experiment: Experiment, asked: Difference | Value) -> dict[str, Any]:
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


def by_own_vectors(trained: Trained) -> Columns:
    """Every metric of the nearest training documents' vote, as of the baseline, but near by what Astec's encoder makes
    of them.
    """
    model: Any = trained.predictor.bundle.ranker
    while hasattr(model, "base"):
        model = model.base
    sides = trained.training.documents, batch_to_rank(trained)
    known, asked = (Batch(dense=unit_rows(model.encoder.encode(side))) for side in sides)
    voted = NearestDocuments.of(known, trained.training.targets, VoteConfig()).rank(
        asked, trained.world.yardstick.depth
    )
    return columns_of(trained.world.yardstick.measure(voted))


_ASTEC, _GNNXML, _NEAREST = cross.METHODS["astec"], cross.METHODS["gnnxml"], f"{cross.NEAREST} P@1"
_BELOW = {
    "astec": _ASTEC,
    "astec, 512 numbers": _ASTEC.changed("surrogate.width=512"),
    "astec, re-ranker": _ASTEC.changed("reranker.enabled=true"),
    "gnnxml": _GNNXML,
    "gnnxml, every cluster": _GNNXML.changed(beam=10_000),
    "galaxc": cross.METHODS["galaxc"],
    "galaxc, 512 numbers": cross.METHODS["galaxc"].changed("astec.width=512"),
    "galaxc, votes, no ReLU, stage IV": Variant("galaxc", galaxc.SMALL),
}
BELOW_NEIGHBOURS = Look(
    worlds={"as in the claim": Planted("small", cross.WORLD)},
    variants=_BELOW,
    also=(
        *(Difference(Value(name, "P@1"), Value("astec", _NEAREST, cross.baseline_ranking)) for name in _BELOW),
        *(
            Difference(Value(name, "P@1", by_own_vectors), Value("astec", _NEAREST, cross.baseline_ranking))
            for name in ("astec", "astec, 512 numbers")
        ),
    ),
)

# ---- N12: clusters by TF-IDF ----


def reached(trained: Trained) -> Columns:
    """looked at: labels in the clusters that are looked into, percent of all. largest: labels of the largest cluster,
    percent of all that have one.
    """
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


def half_as_sure(trained: Trained) -> Columns:
    """Every metric, with the log-odds of clusters halved."""
    model = _model(trained)
    model = replace(model, gating=replace(model.gating or Gating(), scale=0.5))
    yardstick = trained.world.yardstick
    return columns_of(yardstick.measure(model.rank(batch_to_rank(trained), yardstick.depth)))


_V2 = gnnxml.STEPS["v2"]
STEPS = Look(
    worlds={"as in the claim": gnnxml.LONG},
    variants={
        "v1": gnnxml.STEPS["v1"],
        "v2": _V2,
        "v2, all layers joined": gnnxml.LEAN.changed("matcher.branches=conventional"),
        "v2, one layer": _V2.changed("matcher.layers=1"),
    },
    compared=(("v2", "v1"), ("v2, all layers joined", "v1"), ("v2, one layer", "v1")),
    also=(
        *(
            Difference(Value(name, "cluster recall", cluster_quality), Value("v1", "cluster recall", cluster_quality))
            for name in ("v2", "v2, all layers joined", "v2, one layer")
        ),
        *(
            Difference(Value(name, metric, half_as_sure), Value("v1", metric))
            for name in ("v1", "v2", "v2, all layers joined", "v2, one layer")
            for metric in ("P@1", "P@5", "PSP@5")
        ),
    ),
)

MORE_STEPS = replace(
    STEPS,
    worlds={"four times the documents": Crafted(long_text_world, {**gnnxml.WORLD, "documents": 16_000})},
)
REAL_STEPS = replace(
    STEPS,
    worlds={"debian-related@2000": Slice("debian-related@2000")},
    variants={name: Variant("gnnxml", (gnnxml.BOTH_FIELDS, *VARIANTS[name])) for name in ("v1", "v2", "v3", "v4")},
    compared=(("v2", "v1"), ("v3", "v2"), ("v4", "v3")),
    also=(),
)

# ---- A6 on debian-related: hard negatives ----

_HARD = (("shortlist", "uniform"), ("shortlist", "unigram"))
NEGATIVES = Look(
    worlds={
        f"planted, {missing:g} of the pairs missing": Planted(
            "small", {**deepxml.WORLD, "missing_rate": missing}, truth="complete"
        )
        for missing in (0.0, 0.3, 0.6)
    },
    variants=deepxml.NEGATIVES,
    compared=_HARD,
)
FEW_DOCUMENTS = Look(
    worlds={
        "planted, four times the labels": Planted(
            "small", {**deepxml.WORLD, "labels": 12_000, "topics": 240}, truth="complete"
        )
    },
    variants={name: deepxml.NEGATIVES[name] for name in ("shortlist", "uniform")},
    compared=_HARD[:1],
)
REAL_NEGATIVES = Look(
    worlds={"debian-related@3000": Slice("debian-related@3000")},
    variants={
        **deepxml.REAL_NEGATIVES,
        "shortlist and 100 uniform ones": deepxml.REAL_NEGATIVES["shortlist"].changed("classify.random=100"),
    },
    compared=(*_HARD, ("shortlist and 100 uniform ones", "uniform")),
)

WEIGHED_NEGATIVES = Look(
    worlds={"debian-related": Folder("debian-related")},
    variants={
        f"{name}, classifiers count {alpha:g}": deepxml.REAL_NEGATIVES[name].changed(alpha=alpha)
        for name in ("shortlist", "uniform")
        for alpha in (0.0, 0.25, 0.5, 1.0)
    },
    compared=(
        *(
            (f"shortlist, classifiers count {alpha:g}", f"uniform, classifiers count {alpha:g}")
            for alpha in (0.25, 0.5, 1.0)
        ),
        *((f"{name}, classifiers count 1", f"{name}, classifiers count 0") for name in ("shortlist", "uniform")),
    ),
    also=tuple(
        Difference(
            Value(f"shortlist, classifiers count {alpha:g}", f"{metric}@5 [{documents}]", by_frequency),
            Value(f"uniform, classifiers count {alpha:g}", f"{metric}@5 [{documents}]", by_frequency),
        )
        for alpha in (0.5, 1.0)
        for metric in ("P", "PSP")
        for documents in ("1", "2-4", "5-9", "10-99", "100+")
    ),
)

# ---- G13: metadata in training ----


def anchored(a: str, b: str, metric: str) -> Difference:
    return difference(a, b, metric, by=anchored_ranking)


AUXILIARY = Look(
    worlds={"as in the claim": Planted("small", galaxc.LINKED, truth="complete")},
    variants={
        "aux test": galaxc.LEAN.changed("graph.auxiliary=test"),
        **{
            f"aux train, {edges} edges": galaxc.LEAN.changed("graph.auxiliary=train", f"graph.auxiliary_edges={edges}")
            for edges in (1, 2, 4, 8)
        },
    },
    also=tuple(
        anchored(f"aux train, {edges} edges", "aux test", metric)
        for edges in (1, 2, 4, 8)
        for metric in ("P@1", "PSP@5", "R@100")
    ),
)

# ---- G15: attention to far hops ----


def far_shares(trained: Trained) -> Columns:
    """far: the share of hops 2 and 3 in attention x length, percent, for the rarest and the most frequent fifth of
    labels, and at equal attention, where training begins. moved: how far attention went from there, summed over hops.
    """
    model = model_of(trained)
    weights, lengths = attention(model), hop_norms(model)
    bins = metrics.equal_count(trained.predictor.bundle.labels.counts, 5).bin_of_label
    product = weights * lengths
    far = 1 - product[:, 0] / product.sum(axis=1)
    moved = np.abs(weights - 1 / weights.shape[1]).sum(axis=1)
    one = np.ones(1)
    return {
        "far, equal attention": Column(np.array([1 - lengths[0] / lengths.sum()]), one),
        **{f"far, {name}": Column(np.array([far[bins == at].mean()]), one) for name, at in _FIFTHS},
        **{f"moved, {name}": Column(np.array([moved[bins == at].mean()]), one) for name, at in _FIFTHS},
    }


_FIFTHS = (("most frequent", 0), ("rarest", 4))
ATTENTION = Look(
    worlds={
        "as in the claim": Planted("small", galaxc.WORLD),
        "half of the labels without text": Planted("small", galaxc.MIXED),
        "no label with text": Planted("small", {**galaxc.WORLD, "label_text": 0.0}),
    },
    variants={"galaxc": galaxc.LEAN.changed("surrogate.attention_rate=0.05")},
    also=(
        Value("galaxc", "tail - head", far_attention),
        *(
            Value("galaxc", name, far_shares)
            for name in ("far, equal attention", *(f"{what}, {of}" for what in ("far", "moved") for of, _ in _FIFTHS))
        ),
    ),
)

# ---- E13: what free vectors start from ----

STARTS = Look(
    worlds={
        f"{share:.0%} of the labels have text": Planted("small", {**eclare.WORLD, "label_text": share})
        for share in (1.0, 0.5)
    },
    variants={start: eclare.LEAN.changed(f"transfer.start={start}") for start in ("graph", "text", "random")},
    compared=(("graph", "text"), ("graph", "random")),
)

# ---- E10: a plain graph convolution in place of GALE ----


def mean_weights(trained: Trained) -> Columns:
    """Mean weight of each component of a classifier, in percent."""
    part: Any = load_part(trained.run / "analysis" / "label_components")
    return {
        name: Column(np.array([share]), np.ones(1))
        for name, share in zip(part.names, part.weights.mean(0), strict=True)
    }


_NEIGHBOURS = {"GALE": "gale", "GCN": "gcn", "none": "none"}
CONVOLUTIONS = Look(
    worlds={"as in the claim": Planted("small", eclare.WORLD)},
    variants={
        f"{name}{mark}": eclare.LEAN.changed(f"composition.graph={kind}", *settings)
        for mark, settings in (("", ()), (", no sigmoid", ("composition.attention_sigmoid=false",)))
        for name, kind in _NEIGHBOURS.items()
    },
    compared=tuple(
        (f"{name}{mark}", f"{other}{mark}")
        for mark in ("", ", no sigmoid")
        for name, other in (("GCN", "GALE"), ("GCN", "none"), ("GALE", "none"))
    ),
    also=tuple(
        Value(f"{name}{mark}", component, mean_weights)
        for mark in ("", ", no sigmoid")
        for name, component in (("GALE", "gale1"), ("GCN", "gcn"), ("GALE", "text"), ("GCN", "text"))
    ),
)

# ---- E7: GAME on a tree ----

LEAVES = Look(
    worlds={"as in the claim": Planted("small", eclare.WORLD)},
    variants={f"leaves of {size}": eclare.TREE.changed(f"tree.leaf_size={size}") for size in (3, 6, 12, 24)},
    also=tuple(
        Difference(
            Value(f"leaves of {size}", f"{metric} {form}", game_forms),
            Value(f"leaves of {size}", f"{metric} plain", game_forms),
        )
        for size in (3, 6, 12, 24)
        for form in ("GAME", "mixed GAME")
        for metric in ("PSP@5", "shortlist recall", "P@1")
    ),
)

LOOKS: Mapping[str, Look] = {
    "X2": NEIGHBOURS,
    "X2 parts": BELOW_NEIGHBOURS,
    "N12": TFIDF_CLUSTERS,
    "N10": STEPS,
    "N10 documents": MORE_STEPS,
    "N10 debian-related": REAL_STEPS,
    "A6": NEGATIVES,
    "A6 documents": FEW_DOCUMENTS,
    "A6@debian-related": REAL_NEGATIVES,
    "A6@debian-related by weight": WEIGHED_NEGATIVES,
    "G13": AUXILIARY,
    "G15": ATTENTION,
    "E10": CONVOLUTIONS,
    "E13": STARTS,
    "E7": LEAVES,
}


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
