"""Read this first: how data becomes a model, on one page.

    files --read--> Dataset --prepare--> TrainingSet --the recipe's stages--> Ranker --bundle--> Predictor

`train` is the path; `stages` is the four modules of DeepXML, in order. Everything else is parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail import __version__
from longtail.bundle import LabelTable, write_bundle
from longtail.config import describe, to_tables
from longtail.data.dataset import Dataset
from longtail.data.identity import training_digest
from longtail.data.read import read
from longtail.errors import ConfigError
from longtail.manifest import MANIFEST
from longtail.models.ensemble import Ensemble
from longtail.persistence import written_aside
from longtail.predictor import Predictor
from longtail.recipes import DEFAULT, make_recipe
from longtail.recipes.base import Recipe
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.progress import Display, SilentDisplay
from longtail.training.run import Run
from longtail.types import Ranker


def train(
    data: Dataset | str | Path,
    out: str | Path,
    recipe: str | Recipe = DEFAULT,
    *,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    restart: bool = False,
    display: Display | None = None,
) -> Predictor:
    """Train on the training split of `data` into the run folder `out` and open the result.

    The same call again resumes what was interrupted, or opens what is finished.
    settings: nested values as in TOML, e.g. ``{"train": {"epochs": 10}}``.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device '{device}', expected auto, cpu or cuda", "use --device auto")
    made, display = _recipe(recipe, settings), display or SilentDisplay()
    dataset = data if isinstance(data, Dataset) else read(Path(data), test=False)
    about = {
        "recipe": made.NAME,
        "seed": seed,
        "data": {"name": dataset.name, "digest": training_digest(dataset.digest)},
    }
    identity = {**about, "longtail": __version__, "config": to_tables(made.config)}
    with Run.open(Path(out), identity, seed=seed, device=device, restart=restart, display=display) as run:
        bundle = run.folder / "bundle"
        if (bundle / MANIFEST).exists():
            display.say(f"{run.folder}: this run is finished; --restart begins anew")
            return Predictor.open(bundle)
        with written_aside(run.folder / "config.toml") as aside:
            aside.write_text(describe(made.config), encoding="utf-8")
        _say_counts(dataset.repairs, display)
        training_set = prepared(made, dataset, run)
        _say_counts(training_set.dropped, display)
        ranker = learners(made, training_set, run)
        write_bundle(
            bundle,
            about=about,
            config=describe(made.config),
            labels=LabelTable.of(training_set.labels, training_set.label_counts()),
            featurizer=training_set.featurizer,
            ranker=run.folder_of(ranker),
        )
        run.log("finished")
    # Checksums of files that were written a moment ago.
    return Predictor.open(bundle, verify=False)


def prepared(recipe: Recipe, data: Dataset, run: Run) -> TrainingSet:
    """Stage 0: numbers from texts. Test documents stay behind: a `TrainingSet` has no place for them."""
    return run.stage("0_prepare", lambda: prepare(data, recipe.config.features))


def learners(recipe: Recipe, data: TrainingSet, run: Run) -> Ranker:
    """One model, or several from scratch with seeds of their own whose scores are averaged (`ensemble.learners`)."""
    run.check_memory(recipe.memory(data), f"training '{recipe.NAME}'")
    count: int = recipe.config.ensemble.learners if hasattr(recipe.config, "ensemble") else 1
    if count == 1:
        return stages(recipe, data, run)
    members = tuple(stages(recipe, data, run.member(number)) for number in range(count))
    return run.stage("5_ensemble", lambda: Ensemble(members))


def stages(recipe: Recipe, data: TrainingSet, run: Run) -> Ranker:
    """The four modules; a recipe has those that it defines, the others are passed over.

    Each is saved when it is done, and loaded when the same command is given again.
    """
    has = recipe.defined_stages(data)
    surrogate = shortlister = model = None
    if "surrogate" in has:
        surrogate = run.stage("1_surrogate", lambda: recipe.surrogate(data, run))
    if "shortlist" in has:
        shortlister = run.stage("2_shortlist", lambda: recipe.shortlist(data, surrogate, run))
    if "transfer" in has:
        model = run.stage("3_transfer", lambda: recipe.transfer(data, surrogate, shortlister, run))
    ranker: Any = run.stage("4_classify", lambda: recipe.classify(data, surrogate, shortlister, model, run))
    if not isinstance(ranker, Ranker):
        raise ConfigError(
            f"the last stage of the recipe '{recipe.NAME}' gave a {type(ranker).__name__}, which is no ranker",
            "derive its class from longtail.types.Ranker",
        )
    return ranker


def _recipe(recipe: str | Recipe, settings: Mapping[str, Any] | None) -> Recipe:
    if isinstance(recipe, str):
        return make_recipe(recipe, settings=settings)
    if settings:
        raise ConfigError(
            "settings were given beside a recipe that is already made",
            "give the settings to the recipe's config, or name the recipe",
        )
    return recipe


def _say_counts(counts: Mapping[str, int], display: Display) -> None:
    for what, count in counts.items():
        if count:
            display.say(f"note: {count} {what}")
