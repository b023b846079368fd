"""What ECLARE, GalaXC and Astec lose or gain by each of their choices, on validation slices: the variants that the
papers, their released code and an audit of both name. Test documents are never looked at.

    python -m benchmarks.paper_variants RECIPE DATA... [--out FILE] [--device auto] [--seeds 1] [--only NAME ...]
                                        [--labels N] [--max-minutes 600] [--list]

RECIPE: eclare, galaxc or astec; the first of `TRAINED[RECIPE]` is what the others are compared with. DATA: a data set,
or the size of planted data (``many-labels``). A tenth of the training documents is held out, the same for all.
--labels: data made small, as in `benchmarks.ablation`.

Some choices are made at prediction alone (`ASKED`): what a cluster's score counts, how long a shortlist is, whether
there is one. They are measured on every model that is trained, without another training. A variant that a data set
cannot have (a number of clusters above that of labels, a graph that is not there) is recorded with the reason.

For GalaXC the slice is also cut by whether documents are labels themselves (`longtail.data.protocols.identity`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import longtail
from benchmarks.ablation import HELD_OUT, SHOWN, of_some_labels
from benchmarks.record import typed_command, write_result
from longtail.data.dataset import Dataset
from longtail.data.protocols import identity
from longtail.data.read import read
from longtail.data.synthetic import PRESETS, synthesise
from longtail.errors import LongtailError
from longtail.evaluation import Yardstick, rank_test
from longtail.models.rankers import ClusterModel
from longtail.predictor import Predictor
from longtail.recipes import make_recipe
from longtail.recipes.galaxc.ranker import JointGraphModel
from longtail.recipes.galaxc.settings import PAPER
from longtail.search.cluster import LABELS_PER_CLUSTER
from longtail.training.progress import SilentDisplay

TRAINED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "eclare": {
        "defaults": (),
        "no sigmoid in the attention": ("composition.attention_sigmoid=false",),
        "a tenth of the rate for the mix": ("composition.mix_rate=0.1",),
        "no sigmoid, a tenth of the rate": ("composition.attention_sigmoid=false", "composition.mix_rate=0.1"),
        "the mean in place of attention": ("composition.mix=mean",),
        "twice the clusters": (f"surrogate.labels_per_cluster={LABELS_PER_CLUSTER // 2}",),
        "four times the clusters": (f"surrogate.labels_per_cluster={LABELS_PER_CLUSTER // 4}",),
        "edges between clusters scaled on both sides": ("game.clusters=both",),
        "scores spread in full, as in the paper": ("game.mix=1",),
        "no GAME": ("game.enabled=false",),
        "edges pruned by text, 0.1": ("graph.text_cosine=0.1",),
        "edges pruned by text, 0.3": ("graph.text_cosine=0.3",),
        "free vectors start from the own text": ("transfer.start=text",),
        "three trees that share stage I": ("ensemble.learners=3", "ensemble.shared=true"),
        "three models": ("ensemble.learners=3",),
    },
    "galaxc": {
        "defaults": (),
        "own labels seen": ("surrogate.mask_target_edges=0",),
        "own labels always hidden": ("surrogate.mask_target_edges=1",),
        "no ReLU before the transformation": ("hops.pre_relu=false",),
        "the shortlist with votes": ("shortlist.voters=100",),
        "votes count as much": ("shortlist.voters=100", "shortlist.gamma=0.5", "shortlist.reserved=0.5"),
        "eight links": ("hops.links=8",),
        "no node is shared": ("graph.identity=none",),
        "new documents that are labels share their node": ("graph.identity=train+test",),
        "stage IV": ("classify.epochs=10",),
        "30 epochs": ("surrogate.epochs=30", "surrogate.halve_at=20"),
        "the paper": PAPER,
    },
    "astec": {
        "defaults": (),
        "with the re-ranker": ("reranker.enabled=true",),
        "batch of 255": ("surrogate.batch_adapts=false", "classify.batch_adapts=false"),
        "100 negatives, shortlists of 100": ("classify.count=100", "shortlist.size=100"),
        "MiniLM as the encoder of stage I": ("features.checkpoint=minilm",),
        "three models": ("ensemble.learners=3",),
        "three models that share stage I": ("ensemble.learners=3", "ensemble.shared=true"),
    },
}


def with_powers(power: float) -> Callable[[Any], Any]:
    return lambda ranker: replace(ranker, cluster_power=power) if isinstance(ranker, ClusterModel) else None


def exhaustive(ranker: Any) -> Any:
    return ranker.exhaustive() if isinstance(ranker, JointGraphModel) else None


# What a finished ranker becomes, or None where the choice is not its own.
ASKED: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "eclare": {f"cluster_power {power:g}": with_powers(power) for power in (0.0, 0.125, 0.25, 0.375, 0.5, 1.0)},
    "galaxc": {"every label scored": exhaustive},
    "astec": {},
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=list(TRAINED))
    parser.add_argument("data", nargs="*")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these variants, and what they are compared with")
    parser.add_argument("--labels", type=int, help="only so many, drawn at random, and documents that have one of them")
    parser.add_argument("--max-minutes", type=float, default=600.0, help="begin no training after so many")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="change a setting of all variants")
    parser.add_argument("--list", action="store_true", help="print the variants")
    options = parser.parse_args(words)
    variants = TRAINED[options.recipe]
    unknown = sorted(set(options.only or ()) - variants.keys())
    if unknown:
        parser.error(f"no variant {unknown[0]!r}; there are: {', '.join(variants)}")
    if options.list:
        print("\n".join(f"{name}: {' '.join(settings) or '-'}" for name, settings in variants.items()))
        return 0
    if not options.data:
        parser.error("no data")
    if options.only:
        variants = {name: settings for name, settings in variants.items() if name in ("defaults", *options.only)}
    deadline = time.monotonic() + 60 * options.max_minutes
    results: dict[str, Any] = {}
    for name in options.data:
        data = held_out(name, options.labels)
        found: dict[str, list[dict[str, Any]]] = {}
        results[Path(name).name] = {**Yardstick.of(data).about(), "variants": found}
        for variant, settings in variants.items():
            for seed in range(options.seeds):
                if time.monotonic() > deadline:
                    print(f"out of time before {Path(name).name} {variant}", flush=True)
                    continue
                found.setdefault(variant, []).append(
                    measured(data, options.recipe, [*options.set, *settings], options.device, seed)
                )
                print(f"{Path(name).name:<16} {variant:<48} {json.dumps(found[variant][-1])}", flush=True)
                if options.out:
                    numbers = {"recipe": options.recipe, "held_out": HELD_OUT, "settings": variants, **results}
                    write_result(options.out, "paper_variants", numbers, typed_command("paper_variants", words))
    return 0


def held_out(name: str, labels: int | None) -> Dataset:
    whole = synthesise(name, 0).dataset if name in PRESETS else read(name)
    return (whole if labels is None else of_some_labels(whole, labels)).hold_out(HELD_OUT, 0)


def measured(data: Dataset, recipe: str, settings: Sequence[str], device: str, seed: int) -> dict[str, Any]:
    """Metrics of the model, of what it becomes by other choices at prediction, and seconds; or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        try:
            made = make_recipe(recipe, assignments=list(settings))
            model = longtail.train(data, Path(folder) / "run", made, device=device, seed=seed)
        except LongtailError as problem:
            return {"left out": str(problem)}
        found: dict[str, Any] = {"seconds": round(time.monotonic() - started, 1), **scores(model, data)}
        if recipe == "galaxc":
            kinds = identity(data)
            parts = {"are labels": kinds.labels, "are no labels": kinds.others}
            found["documents"] = {what: scores(model, part) for what, part in parts.items() if part is not None}
        other = {name: changed(model.bundle.ranker) for name, changed in ASKED[recipe].items()}
        found["asked"] = {
            name: scores(Predictor(replace(model.bundle, ranker=ranker)), data)
            for name, ranker in other.items()
            if ranker is not None
        }
    return found


def scores(model: Predictor, data: Dataset) -> dict[str, float]:
    yardstick = Yardstick.of(data)
    values = yardstick.score(rank_test(model, yardstick, SilentDisplay()))
    return {metric: round(values[metric], 2) for metric in SHOWN}


if __name__ == "__main__":
    raise SystemExit(main())
