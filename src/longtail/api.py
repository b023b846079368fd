"""Three calls: `train`, `evaluate` and `pack`. The command line and Python are thin skins over them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail import __version__, pipeline
from longtail.bundle import LabelTable, write_bundle
from longtail.config import describe, from_text, read_toml, resolve, to_tables
from longtail.data.dataset import Dataset
from longtail.data.identity import training_digest
from longtail.data.read import read
from longtail.errors import ConfigError
from longtail.evaluation import evaluate as _evaluate
from longtail.manifest import MANIFEST
from longtail.packing import PackReport
from longtail.packing import pack as _pack
from longtail.persistence import written_aside
from longtail.predictor import Predictor
from longtail.recipes import DEFAULT, recipe_class
from longtail.recipes.base import Recipe
from longtail.search.choice import SearchKind
from longtail.search.packed import PackedType
from longtail.training.progress import Display, SilentDisplay
from longtail.training.run import Run


def make_recipe(
    name: str,
    *,
    config: Path | None = None,
    assignments: list[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Recipe:
    """Recipe `name` with its defaults, changed by a TOML file, then by nested `settings`, then by ``a.b=c``
    assignments.
    """
    cls = recipe_class(name)
    resolved = cls.CONFIG()
    if config is not None:
        resolved = resolve(resolved, read_toml(config), str(config))
    if settings:
        resolved = resolve(resolved, settings, "settings")
    return cls(from_text(resolved, assignments or []))


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
    settings: nested values as in TOML, e.g. ``{"classify": {"neighbours": 10}}``.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device '{device}', expected auto, cpu or cuda", "use --device auto")
    if settings and not isinstance(recipe, str):
        raise ConfigError(
            "settings were given beside a recipe that is already made",
            "give the settings to the recipe's config, or name the recipe",
        )
    made = make_recipe(recipe, settings=settings) if isinstance(recipe, str) else recipe
    display = display or SilentDisplay()
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
        for what, count in dataset.repairs.items():
            display.say(f"note: {count} {what}")
        prepared = pipeline.prepared(made, dataset, run)
        for what, count in prepared.dropped.items():
            if count:
                display.say(f"note: {count} {what}")
        pipeline.train(made, prepared, run)
        labels = LabelTable.of(prepared.labels, prepared.label_counts())
        write_bundle(
            bundle,
            about=about,
            config=describe(made.config),
            labels=labels,
            featurizer=prepared.featurizer,
            ranker=run.last_stage,
        )
        run.log("finished")
    # Checksums of files that were written a moment ago.
    return Predictor.open(bundle, verify=False)


def evaluate(
    model: Predictor | str | Path,
    data: Dataset | str | Path,
    display: Display | None = None,
    *,
    transductive: bool = False,
) -> dict[str, Any]:
    """All metrics of a model on the test documents of `data`, in percent, with what they belong to. transductive: see
    `longtail.evaluation`.
    """
    opened = model if isinstance(model, Predictor) else Predictor.open(model)
    return _evaluate(
        opened, data if isinstance(data, Dataset) else read(Path(data)), display, transductive=transductive
    )


def pack(
    model: str | Path,
    out: str | Path,
    dtype: PackedType = "int8",
    *,
    features: int = 0,
    index: SearchKind = "auto",
    data: Dataset | str | Path | None = None,
) -> PackReport:
    """Write the model of a run or bundle to a smaller bundle `out`; see `longtail.packing.pack`."""
    dataset = data if data is None or isinstance(data, Dataset) else read(Path(data))
    return _pack(Path(model), Path(out), dtype, features=features, index=index, data=dataset)
