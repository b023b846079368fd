"""Choosing settings of a recipe by trying them: on slices of the training documents, within a budget of time.

    STUDY/run.json      what is being chosen; the same call again goes on, another one is refused
    STUDY/trials.json   what was tried, in order
    STUDY/results.json  every training that was judged, with its seconds: none is done twice
    STUDY/trials/       the training at work, which goes on where it was killed

Two slices are held out, one inside the other. Settings are chosen on the inner one. The first trial is the settings as
they are, so what is chosen is never worse there. Each trial is first trained on a quarter of the documents, and stopped
if it is worse than half of those that went on. The best of many is partly the luckiest, so it is compared with the
settings as they were once more, on the outer slice, which no choice has seen; both numbers are reported.

The first trials change some of the settings by chance; what to try then is asked of optuna (TPE), which is told
everything so far. Both draw by (seed, number of the trial): a study that was killed goes on as if it had not been.
"""

from __future__ import annotations

import importlib.util
import math
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longtail import __version__
from longtail.bundle import content_digest, digest_of
from longtail.choosing import Settings, Trials, nested, some_documents, value_of
from longtail.config import describe, nearest, paths_in, resolve, to_tables, toml_value
from longtail.data.dataset import Dataset
from longtail.data.identity import training_digest
from longtail.data.read import read
from longtail.errors import ConfigError, LongtailError, MissingExtra
from longtail.evaluation import Yardstick
from longtail.persistence import read_json, write_json
from longtail.pipeline import recipe_of, train
from longtail.recipes import DEFAULT
from longtail.recipes.base import Recipe
from longtail.training.progress import Display, SilentDisplay
from longtail.training.run import Run
from longtail.types import TopK

# Shares of the documents that a trial is trained on, one after the other.
RUNGS = (0.25, 1.0)
# What the outer slice is called among the slices.
CHECK = "check"
# Trials that are drawn by chance, near the settings as they are, before earlier ones say where to look.
BY_CHANCE = 6


@dataclass(frozen=True)
class Trial:
    """Settings that were tried.

    changed: those that differ from what the search began with. values: the metric after each rung that was trained.
    seconds: of all of it. note: why it failed, where it did.
    """

    changed: Settings
    values: tuple[float, ...]
    seconds: float
    note: str = ""

    @property
    def finished(self) -> bool:
        return len(self.values) == len(RUNGS)


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    config: the best settings, all of them. check: the metric of the settings as they were and of the best ones on
    documents that no choice has seen; None where nothing better was found, or it was interrupted. ended: why.
    """

    recipe: str
    metric: str
    config: Any
    best: Trial
    trials: tuple[Trial, ...]
    check: tuple[float, float] | None
    seconds: float
    ended: str

    @property
    def first(self) -> Trial:
        """The settings as they were."""
        return self.trials[0]

    def toml(self) -> str:
        """For ``longtail train --config``: every setting, and where they come from."""
        lines = [f"# recipe: {self.recipe}", *(f"# {line}" for line in self._summary())]
        return "\n".join(lines) + "\n\n" + describe(self.config, help=False)

    def render(self) -> str:
        """A table for people, a row per trial."""
        head = f"{'trial':>5}{'a quarter':>11}{'all':>9}{'seconds':>9}  settings (of '{self.recipe}', {self.metric})"
        lines = [head]
        for number, trial in enumerate(self.trials):
            values = [f"{value:.2f}" for value in trial.values] + [""] * len(RUNGS)
            what = ", ".join(f"{path}={toml_value(value)}" for path, value in trial.changed.items()) or "as they were"
            note = trial.note or ("" if trial.finished else "stopped early")
            mark = "*" if trial is self.best else " "
            lines.append(
                f"{number:>4}{mark}{values[0]:>11}{values[1]:>9}{trial.seconds:>9.1f}  {what}{note and f' ({note})'}"
            )
        return "\n".join([*lines, *self._summary()])

    def _summary(self) -> list[str]:
        stopped = sum(not trial.finished and not trial.note for trial in self.trials)
        lines = [
            f"{len(self.trials)} trials, {stopped} stopped early, {self.seconds:.0f} s; {self.ended}",
            f"chosen on one slice: {self.metric} {self.best.values[-1]:.2f}, before {self.first.values[-1]:.2f}",
        ]
        if self.check is not None:
            before, after = self.check
            held = "" if after > before else ": it does not hold up, the settings as they were are as good"
            lines.append(f"on a second slice that no choice has seen: {after:.2f}, before {before:.2f}{held}")
        elif self.best is self.first:
            lines.append("nothing was better than the settings as they were")
        else:
            lines.append("not checked on a second slice: the best of several is partly the luckiest")
        return lines


def tune(
    data: Dataset | str | Path,
    study: str | Path,
    recipe: str | Recipe = DEFAULT,
    *,
    settings: Mapping[str, Any] | None = None,
    budget_s: float = 600.0,
    trials: int = 0,
    metric: str = "PSP@5",
    share: float = 0.1,
    group: str | None = None,
    space: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    device: str = "auto",
    restart: bool = False,
    display: Display | None = None,
) -> Tuned:
    """Search for better settings of `recipe` for `data`, in the folder `study`.

    The same call again goes on, with the budget anew. Interrupted (Ctrl-C), it gives the best so far.
    budget_s: seconds. A trial that would not fit is not begun; the first, the settings as they are, always is.
    trials: at most so many, with those of earlier calls; 0: as many as fit into the budget.
    metric: what is to be as large as possible, e.g. ``PSP@5`` or ``P@1``. share, group: as `pipeline.train` holds out.
    space: settings and values to try; None: what the recipe says (`Recipe.TUNABLE`).
    """
    if not budget_s > 0:
        raise ConfigError(f"a budget of {budget_s} seconds", "give the search some time, e.g. --budget 10m")
    if trials < 0:
        raise ConfigError(f"at most {trials} trials, expected 0 or more", "0: as many as fit into the budget")
    if importlib.util.find_spec("optuna") is None:
        raise MissingExtra("optuna", "tune", "searching for settings")
    made, display = recipe_of(recipe, settings), display or SilentDisplay()
    grouped: dict[str, Any] = {"group": group} if group else {}
    dataset = data if isinstance(data, Dataset) else read(Path(data), test=False, **grouped)
    choices = choices_of(made, space)
    outer = dataset.hold_out(share, seed + 1, group)
    inner = outer.hold_out(share, seed, group)
    _check_metric(metric, inner)
    identity = {
        "tune": {name: list(values) for name, values in choices.items()},
        "metric": metric,
        "holdout": {"share": share, "group": group, "documents": digest_of(list(inner.train.documents.uids))},
        "recipe": made.NAME,
        "config": to_tables(made.config),
        "content": {name: content_digest(path) for name, path in paths_in(made.config).items()},
        "seed": seed,
        "data": training_digest(dataset.digest),
        "longtail": __version__,
    }
    with Run.open(Path(study), identity, seed=seed, device=device, restart=restart, display=display) as run:
        slices = {_rung(rung): some_documents(inner, rung, seed) for rung in RUNGS} | {CHECK: outer}
        return _Search(run, made, choices, slices, metric, device).run_for(budget_s, trials or math.inf)


def seconds_of(text: str) -> float:
    """``90``, ``90s``, ``10m``, ``1.5h`` as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise ConfigError(f"a budget of '{text}', expected a time", "write 90s, 10m or 1.5h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def choices_of(recipe: Recipe, space: Mapping[str, Sequence[Any]] | None = None) -> dict[str, tuple[Any, ...]]:
    """What is tried of each setting: its value now first, then the others. Each is checked as if a user had set it."""
    choices: dict[str, tuple[Any, ...]] = {}
    for path, values in (recipe.TUNABLE if space is None else space).items():
        for value in values:
            resolve(recipe.config, nested({path: value}), "tune")
        now = value_of(recipe.config, path)
        # As JSON has them: lists, not tuples.
        plain = [list(value) if isinstance(value, tuple) else value for value in values]
        choices[path] = (now, *(value for value in plain if value != now))
    if not choices:
        raise ConfigError(f"the recipe '{recipe.NAME}' says nothing that could be tried", "give a space of settings")
    return choices


def _check_metric(metric: str, data: Dataset) -> None:
    known = list(Yardstick.of(data).score(TopK.padding(len(data.need_test()), 1)))
    if metric not in known or metric.startswith("FN@"):  # what is missed should not be large
        raise ConfigError(f"unknown metric '{metric}'", nearest(metric, [n for n in known if not n.startswith("FN@")]))


def _rung(share: float) -> str:
    return f"{share:g} of the documents"


class _Search:
    """The loop. Everything that it learns is written down before it goes on."""

    def __init__(
        self,
        run: Run,
        recipe: Recipe,
        choices: Mapping[str, tuple[Any, ...]],
        slices: Mapping[str, Dataset],
        metric: str,
        device: str,
    ) -> None:
        self.run, self.recipe, self.choices, self.metric = run, recipe, choices, metric
        self.tried = Trials(run, "trials", recipe, slices, device=device, train=train)
        self.results: dict[str, Any] = self._read("results.json", {})
        self.trials = [
            Trial(found["changed"], tuple(found["values"]), found["seconds"], found["note"])
            for found in self._read("trials.json", [])
        ]
        self.began = time.monotonic()

    def run_for(self, budget: float, most: float) -> Tuned:
        check, ended = None, "all was tried"
        try:
            while (changed := self._next()) is not None:
                if self.trials and self._spent() + self._expected() > budget:
                    ended = "no time for another"
                    break
                if len(self.trials) >= most:
                    ended = "as many as asked for"
                    break
                self._add(self._tried(changed))
            if self._best() is not self.trials[0]:
                check = self._judge({}, CHECK)[0], self._judge(self._best().changed, CHECK)[0]
        except KeyboardInterrupt:
            if not self.trials:
                raise
            ended = "interrupted"
        best = self._best()
        return Tuned(
            recipe=self.recipe.NAME,
            metric=self.metric,
            config=self.tried.config(best.changed),
            best=best,
            trials=tuple(self.trials),
            check=check,
            seconds=sum(trial.seconds for trial in self.trials),
            ended=ended,
        )

    def _spent(self) -> float:
        return time.monotonic() - self.began

    def _expected(self) -> float:
        """Seconds of one more trial, and of the check at the end."""
        of_rungs = [self._mean_seconds(_rung(rung)) for rung in RUNGS]
        return sum(of_rungs) + 2 * of_rungs[-1]

    def _mean_seconds(self, slice_name: str) -> float:
        return statistics.fmean(one["seconds"] for one in self.results.values() if one["slice"] == slice_name)

    def _best(self) -> Trial:
        """Of equals the first."""
        return max((trial for trial in self.trials if trial.finished), key=lambda trial: trial.values[-1])

    def _tried(self, changed: Settings) -> Trial:
        values: list[float] = []
        seconds = 0.0
        for at, rung in enumerate(RUNGS):
            try:
                value, took = self._judge(changed, _rung(rung))
            except LongtailError as problem:
                if not changed:
                    raise
                return Trial(changed, tuple(values), seconds, problem.message)
            values, seconds = [*values, value], seconds + took
            others = [trial.values[at] for trial in self.trials if trial.finished]
            if others and value < statistics.median(others):
                break
        return Trial(changed, tuple(values), seconds)

    def _judge(self, changed: Settings, slice_name: str) -> tuple[float, float]:
        """The metric after training on a slice, and the seconds that it took; from the file where it is known."""
        key = self.tried.key(changed, slice_name)
        if key not in self.results:
            top, took = self.tried.ranked(changed, slice_name)
            value = self.tried.yardsticks[slice_name].score(top)[self.metric]
            self.results[key] = {"slice": slice_name, "value": value, "seconds": took}
            write_json(self.run.writes("results.json"), self.results)
        return self.results[key]["value"], self.results[key]["seconds"]

    def _add(self, trial: Trial) -> None:
        self.trials.append(trial)
        written = [{**vars(trial), "changed": dict(trial.changed)} for trial in self.trials]
        write_json(self.run.writes("trials.json"), written)
        shown = ", ".join(f"{path}={value}" for path, value in trial.changed.items()) or "the settings as they are"
        value = f"{self.metric} {trial.values[-1]:.2f}" if trial.values else trial.note
        self.run.display.say(
            f"trial {len(self.trials) - 1}: {value}{'' if trial.finished else ' (stopped)'}  {shown}; "
            f"best {self._best().values[-1]:.2f}"
        )

    def _read(self, name: str, empty: Any) -> Any:
        path = self.run.folder / name
        return read_json(path) if path.exists() else empty

    # ---- what to try next ----

    def _next(self) -> Settings | None:
        """Settings that were not tried yet, what differs from the settings as they are; None where all were."""
        if not self.trials:
            return {}
        tried = {self._places(trial.changed) for trial in self.trials}
        if len(tried) == math.prod(map(len, self.choices.values())):
            return None
        rng = self.run.rng("trial", len(self.trials))
        asked = self._drawn(rng) if len(self.trials) <= BY_CHANCE else self._asked()
        while asked in tried:
            asked = self._drawn(rng)
        return {
            path: values[place]
            for (path, values), place in zip(self.choices.items(), asked, strict=True)
            if values[place] != values[0]
        }

    def _places(self, changed: Settings) -> tuple[int, ...]:
        """Which of its choices each setting has; the first is the value that it had."""
        return tuple(values.index(changed[path]) if path in changed else 0 for path, values in self.choices.items())

    def _drawn(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Half of the settings as they are, the others by chance: where all change at once, most trials are bad."""
        return tuple(int(rng.integers(len(values)) * rng.integers(2)) for values in self.choices.values())

    def _asked(self) -> tuple[int, ...]:
        """What optuna would try, from all trials so far. Choices are numbers to it: lists are no values there."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        kinds: dict[str, optuna.distributions.BaseDistribution] = {
            path: optuna.distributions.CategoricalDistribution(range(len(values)))
            for path, values in self.choices.items()
        }
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=BY_CHANCE, seed=self.run.seed_for("trial", len(self.trials)) % 2**32
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        states = optuna.trial.TrialState
        for trial in self.trials:
            study.add_trial(
                optuna.trial.create_trial(
                    state=states.FAIL if trial.note else states.COMPLETE if trial.finished else states.PRUNED,
                    value=trial.values[-1] if trial.finished else None,
                    params=dict(zip(kinds, self._places(trial.changed), strict=True)),
                    distributions=kinds,
                    intermediate_values=dict(enumerate(trial.values)),
                )
            )
        asked = study.ask(kinds).params
        return tuple(int(asked[path]) for path in kinds)
