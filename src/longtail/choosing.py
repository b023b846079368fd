"""Settings that follow from trying them on a slice of the training documents: what `train --effort` and `tune` share.

A slice is held out, and the settings are trained on a part of the other documents (`Trials`). `choose` goes over the
choices that a recipe names (`Recipe.choices`), one after the other, each beside what was chosen before it: a value is
taken where a metric rises for sure and none falls for sure, by an interval over the held-out documents. So data that
says nothing changes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from longtail.bundle import digest_of
from longtail.config import resolve, to_tables, toml_value
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, LongtailError
from longtail.evaluation import Yardstick, rank_test
from longtail.metrics import paired_bootstrap
from longtail.persistence import read_json, write_json, written_aside
from longtail.predictor import Predictor
from longtail.recipes.base import Recipe
from longtail.training.file_list import remove_run
from longtail.training.progress import SilentDisplay
from longtail.training.run import Run
from longtail.types import TopK

Settings: TypeAlias = Mapping[str, Any]  # path of a setting -> value
Train: TypeAlias = Callable[..., Predictor]
Effort: TypeAlias = Literal["quick", "normal", "thorough"]

# What an effort may take: trainings, the one with the settings as they are among them, and the share of the documents
# that they are trained on. For each `direct` takes that share of its steps (`Recipe.tried_with`): half of the time in
# all, less where several models are trained side by side (on a GPU; trials have one).
TRIALS: Mapping[str, tuple[int, float]] = {"quick": (0, 0.0), "normal": (3, 1 / 6), "thorough": (24, 0.5)}
# Of the documents, held out to judge by; and how many of them there must be.
HELD_OUT, FEWEST = 0.1, 50
# What must not fall, and how sure a change must be.
METRICS = ("P@1", "PSP@5", "R@10")
LEVEL = 0.8


def nested(settings: Settings) -> dict[str, Any]:
    """``{"a.b": c}`` as the tables ``{"a": {"b": c}}``."""
    tables: dict[str, Any] = {}
    for path, value in settings.items():
        *sections, name = path.split(".")
        inner = tables
        for step in sections:
            inner = inner.setdefault(step, {})
        inner[name] = value
    return tables


def value_of(config: Any, path: str) -> Any:
    """What a setting is, as JSON has it."""
    now: Any = to_tables(config)
    for step in path.split("."):
        now = now[step]
    return now


def some_documents(data: Dataset, share: float, seed: int) -> Dataset:
    """The data with a share of its training documents, drawn by chance."""
    n = len(data.train)
    rows = np.random.default_rng([seed, 0x5CA1E]).permutation(n)[: max(1, math.ceil(share * n))]
    return data if share >= 1 else data.with_training_rows(np.sort(rows))


class Trials:
    """Trainings on slices, each in a folder of its own that is removed when it was judged."""

    def __init__(
        self, run: Run, name: str, recipe: Recipe, slices: Mapping[str, Dataset], *, device: str, train: Train
    ) -> None:
        """name: of the folder inside the run where trials are trained."""
        self.run, self.name, self.recipe, self.slices = run, name, recipe, slices
        self.device, self.train = device, train
        self.yardsticks = {name: Yardstick.of(data) for name, data in slices.items()}

    def key(self, changed: Settings, name: str) -> str:
        return digest_of([dict(changed), name])[:16]

    def config(self, changed: Settings) -> Any:
        return resolve(self.recipe.config, nested(changed), "tune")

    def ranked(self, changed: Settings, name: str) -> tuple[TopK, float]:
        """What a model with `changed` settings, trained on slice `name`, says of its held-out documents; and the
        seconds that both took. Killed, the training goes on where it was.
        """
        began, folder = time.monotonic(), self.run.writes(f"{self.name}/{self.key(changed, name)}", holds="run")
        recipe = type(self.recipe)(self.config(changed))
        model = self.train(self.slices[name], folder, recipe, seed=self.run.seed, device=self.device)
        top = rank_test(model, self.yardsticks[name], SilentDisplay())
        remove_run(folder)
        return top, round(time.monotonic() - began, 3)


@dataclass(frozen=True)
class TriedValue:
    """A value that was tried.  gains: metric -> (mean, low, high) against what was chosen before it."""

    setting: str
    value: Any
    gains: Mapping[str, tuple[float, float, float]]
    taken: bool
    note: str = ""

    def __str__(self) -> str:
        gained = ", ".join(
            f"{name} {mean:+.1f} ({low:+.1f} to {high:+.1f})" for name, (mean, low, high) in self.gains.items()
        )
        end = "taken" if self.taken else self.note or "left as it is"
        return f"{self.setting}={toml_value(self.value)}: {gained}{gained and '; '}{end}"


def choose(
    recipe: Recipe,
    data: Dataset,
    run: Run,
    *,
    effort: Effort,
    device: str,
    train: Train,
) -> Recipe:
    """The recipe with what its choices are for `data`.  run: keeps what was tried; the same call again goes on."""
    if effort not in get_args(Effort):
        raise ConfigError(f"effort '{effort}', expected {', '.join(get_args(Effort))}", "use --effort normal")
    most, share = TRIALS[effort]
    choices = recipe.choices(data) if most else {}
    if not choices:
        return recipe
    if len(data.train) * HELD_OUT < FEWEST:
        run.display.say(f"choices: too few documents to tell by ({len(data.train):,}); settings stay as they are")
        return recipe
    held_out = data.hold_out(HELD_OUT, run.seed)
    trials = Trials(
        run,
        "choices/trials",
        type(recipe)(resolve(recipe.config, nested(recipe.tried_with(data, share)), "effort")),
        {effort: some_documents(held_out, share, run.seed)},
        device=device,
        train=train,
    )
    kept = _JudgedTrials(run, trials, effort)
    best, found = kept.measured({}), []
    taken: dict[str, Any] = {}
    for setting, value in ((setting, value) for setting, values in choices.items() for value in values):
        if len(kept.seconds) >= most:
            run.display.say(f"choices: {most} trainings are what --effort {effort} allows")
            break
        if value == value_of(recipe.config, setting) or setting in taken:
            continue
        try:
            tried = kept.measured({**taken, setting: value})
        except LongtailError as problem:
            found.append(TriedValue(setting, value, {}, taken=False, note=problem.message))
            run.display.say(f"choice: {found[-1]}")
            continue
        gains = paired_bootstrap(tried, best, rng=np.random.default_rng(run.seed), level=LEVEL)
        shown = {name: (gains[name].mean, gains[name].low, gains[name].high) for name in METRICS}
        better = any(low > 0 for _, low, _ in shown.values()) and all(high >= 0 for *_, high in shown.values())
        found.append(TriedValue(setting, value, shown, taken=better))
        run.display.say(f"choice: {found[-1]}")
        if better:
            taken[setting], best = value, tried
    write_json(run.writes("choices/choices.json"), [{**vars(choice), "gains": dict(choice.gains)} for choice in found])
    return type(recipe)(resolve(recipe.config, nested(taken), "effort"))


class _JudgedTrials:
    """What trials said, kept in files: none is trained twice."""

    def __init__(self, run: Run, trials: Trials, name: str) -> None:
        self.run, self.trials, self.name = run, trials, name
        self.file = run.writes("choices/seconds.json")
        self.seconds: dict[str, float] = read_json(self.file) if self.file.exists() else {}

    def measured(self, changed: Settings) -> Any:
        key = self.trials.key(changed, self.name)
        path = self.run.writes(f"choices/{key}.npz")
        if key in self.seconds:
            with np.load(path, allow_pickle=False) as arrays:
                top = TopK(arrays["ids"], arrays["scores"])
        else:
            top, took = self.trials.ranked(changed, self.name)
            with written_aside(path) as aside, aside.open("wb") as file:
                np.savez(file, ids=top.ids, scores=top.scores)
            self.seconds[key] = took
            write_json(self.file, self.seconds)
        return self.trials.yardsticks[self.name].measure(top)
