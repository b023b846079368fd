"""From a claim to a verdict: train the variants over the seeds, measure, judge the checks, then the controls."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks.claims.entries import Check, Claim, Control, Difference, Level, Probe, Sweep, Value, Variant, values_of
from benchmarks.claims.measures import Columns, MeasureFunction, ranking
from benchmarks.claims.verdict import (
    FEWEST_SEEDS,
    Column,
    Estimate,
    Outcome,
    best_elsewhere,
    combine,
    estimate,
    judge,
    power,
)
from benchmarks.claims.workshop import Workshop, describe, recipe_of
from benchmarks.claims.worlds import DataSpec
from longtail.config import differences, to_tables
from longtail.errors import ConfigError

Verdict = Literal["pass", "fail", "inconclusive", "reported"]
ControlState = Literal["ok", "failed", "undecided"]
_WHERE_IT_MUST_HOLD: Mapping[Outcome, ControlState] = {"pass": "ok", "fail": "failed", "inconclusive": "undecided"}


@dataclass(frozen=True)
class Training:
    """One training that a claim needs, by its name in the claim."""

    name: str
    variant: Variant
    data: DataSpec
    seed: int


@dataclass(frozen=True)
class Checked:
    """A check with what was measured for it. `numbers`: what else is worth recording."""

    check: Check
    estimate: Estimate
    outcome: Outcome
    numbers: Mapping[str, Any]

    def record(self) -> dict[str, Any]:
        found = self.estimate
        kept: dict[str, Any] = {
            "check": self.check.name,
            "kind": type(self.check).__name__.lower(),
            "rule": f"{self.check.rule} {self.check.bound:g}",
            "outcome": self.outcome,
            "value": found.value,
            "low": found.low,
            "high": found.high,
        }
        if found.seeds:
            spread = {
                "per_seed": list(found.per_seed),
                "documents": found.documents,
                "document_sd": found.document_variance**0.5,
                "seed_sd": found.seed_variance**0.5,
            }
            kept |= spread
            if self.outcome == "inconclusive":
                kept["power"] = asdict(power(found, self.check.rule, self.check.bound))
        return {**kept, **self.numbers}


class Experiment:
    """Variants on one data description over the seeds: columns of measured values, each measured once."""

    def __init__(
        self, variants: Mapping[str, Variant], data: DataSpec | None, seeds: range, workshop: Workshop
    ) -> None:
        self.variants, self.data, self.seeds, self.workshop = variants, data, seeds, workshop
        self._measured: dict[tuple[str, MeasureFunction], list[Columns]] = {}

    def variant(self, name: str) -> Variant:
        if name not in self.variants:
            raise ConfigError(
                f"a check asks for the variant '{name}'", f"known in this claim: {', '.join(self.variants)}"
            )
        return self.variants[name]

    def columns(self, value: Value) -> list[Column]:
        """One column per seed."""
        place = (value.variant, value.by)
        if place not in self._measured:
            trained = (
                self.workshop.trained(self.variant(value.variant), self._need_data(), seed) for seed in self.seeds
            )
            self._measured[place] = [value.by(each) for each in trained]
        found = self._measured[place]
        if value.metric not in found[0]:
            raise ConfigError(
                f"'{value.by.__name__}' does not measure '{value.metric}'", f"it measures {', '.join(found[0])}"
            )
        return [columns[value.metric] for columns in found]

    def checked(self, check: Check, key: str) -> Checked:
        found, numbers = self.estimated(check, key)
        return Checked(check, found, judge(found, check.rule, check.bound), numbers)

    def estimated(self, check: Check, key: str) -> tuple[Estimate, Mapping[str, Any]]:
        if isinstance(check, Probe):
            return self.workshop.probed(check)
        shared = self._need_data().shared
        if isinstance(check, Level):
            return estimate(self.columns(check.of), None, shared=shared, key=key), {}
        if isinstance(check, Difference):
            return estimate(self.columns(check.a), self.columns(check.b), shared=shared, key=key), {}
        return self._swept(check, shared, key)

    def _swept(self, sweep: Sweep, shared: bool, key: str) -> tuple[Estimate, Mapping[str, Any]]:
        by_candidate = [self.columns(value) for value in sweep.candidates]
        chosen = [best_elsewhere([columns[place] for columns in by_candidate]) for place in range(len(self.seeds))]
        found = estimate([column for column, _ in chosen], self.columns(sweep.reference), shared=shared, key=key)
        curve = {
            value.variant: statistics.fmean(column.value for column in self.columns(value))
            for value in (*sweep.candidates, sweep.reference)
        }
        taken = [[sweep.candidates[place].variant for place in pair] for _, pair in chosen]
        return found, {"curve": curve, "taken": taken}

    def table(self, metrics: Sequence[str]) -> dict[str, Any]:
        """Every metric of every variant: mean, standard deviation over seeds, and each seed."""
        return {
            name: {metric: spread([column.value for column in self.columns(Value(name, metric))]) for metric in metrics}
            for name in self.variants
        }

    def _need_data(self) -> DataSpec:
        if self.data is None:
            raise ConfigError("a claim that trains variants has no data", "give its entry `data`")
        return self.data


def decide(claim: Claim, workshop: Workshop, seeds: int | None = None, first_seed: int = 0) -> dict[str, Any]:
    """Run a claim and give its record. Raises `OutOfTime` when a training is missing and the time is over."""
    chosen = seeds_of(claim, seeds, first_seed)
    main = Experiment(claim.variants, claim.data, chosen, workshop)
    contrasts = [
        Experiment({**claim.variants, **c.variants}, c.data or claim.data, chosen, workshop) for c in claim.controls
    ]
    for training in trainings(claim, chosen):
        workshop.trained(training.variant, training.data, training.seed, training.name)

    all_of = [main.checked(check, f"{claim.id} all {n}") for n, check in enumerate(claim.all_of)]
    any_of = [main.checked(check, f"{claim.id} any {n}") for n, check in enumerate(claim.any_of)]
    controls = [
        judged_control(c, contrast.checked(c.check, f"{claim.id} control {n}"), [*all_of, *any_of])
        for n, (c, contrast) in enumerate(zip(claim.controls, contrasts, strict=True))
    ]
    verdict, reason = concluded(claim, all_of, any_of, [state for state, _ in controls], len(chosen))
    return {
        "id": claim.id,
        "section": claim.section,
        "sentence": claim.sentence,
        "verdict": verdict,
        "reason": reason,
        "note": claim.note,
        "all_of": [checked.record() for checked in all_of],
        "any_of": [checked.record() for checked in any_of],
        "controls": [record for _, record in controls],
        "also": [_also(main, value, f"{claim.id} also {n}") for n, value in enumerate(claim.also)],
        "numbers": main.table(claim.shown) if claim.variants else {},
        "seeds": list(chosen) if claim.variants else [],
        "data": _data_record(main, *contrasts),
        "config": config_record(claim.variants),
        "trainings": {name: _seconds_record(main, variant) for name, variant in claim.variants.items()},
    }


def seeds_of(claim: Claim, count: int | None = None, first: int = 0) -> range:
    """The seeds of a claim: as many as it says, or `count` of them. Other than from 0 on where a claim that failed is
    repeated.
    """
    return range(first, first + (count or claim.seeds))


def trainings(claim: Claim, seeds: range) -> list[Training]:
    """All trainings that a claim needs, seed after seed, with repetitions where variants share one."""
    needed = [
        Training(name, variant, claim.data, seed)
        for seed in seeds
        for name, variant in claim.variants.items()
        if claim.data is not None
    ]
    for control in claim.controls:
        variants, data = {**claim.variants, **control.variants}, control.data or claim.data
        names = dict.fromkeys(value.variant for value in values_of(control.check))
        needed += [
            Training(f"{name}, control", variants[name], data, seed)
            for seed in seeds
            for name in names
            if data is not None
        ]
    return needed


def trainings_and_those_of_probes(claim: Claim, seeds: range) -> list[Training]:
    """All that can be trained before the claim is judged."""
    return [
        *trainings(claim, seeds),
        *(Training(f"for {probe.name}", *needed) for probe in _probes(claim) for needed in probe.needs),
    ]


def has_probes(claim: Claim) -> bool:
    return bool(_probes(claim))


def is_ranked(claim: Claim) -> bool:
    """Whether its models' rankings of all test documents are looked at."""
    asked = [value for check in _checks(claim) for value in values_of(check)]
    return bool(claim.shown) or any(value.by is ranking for value in asked)


def _checks(claim: Claim) -> list[Check]:
    return [*claim.all_of, *claim.any_of, *(control.check for control in claim.controls)]


def _probes(claim: Claim) -> list[Probe]:
    return [check for check in _checks(claim) if isinstance(check, Probe)]


def concluded(
    claim: Claim, all_of: Sequence[Checked], any_of: Sequence[Checked], controls: Sequence[ControlState], seeds: int
) -> tuple[Verdict, str]:
    """The verdict and, in words, why."""
    if not all_of and not any_of:
        return "reported", "numbers only"
    outcome = combine([checked.outcome for checked in all_of], [checked.outcome for checked in any_of])
    if claim.variants and seeds < FEWEST_SEEDS:
        return "inconclusive", f"{seeds} seeds, a verdict needs {FEWEST_SEEDS}"
    if outcome == "pass" and "failed" in controls:
        return "fail", "the checks pass, but so they do where the mechanism is removed"
    if outcome == "pass" and "undecided" in controls:
        return "inconclusive", "the checks pass, but a control is undecided"
    missed = [
        f"{checked.check.name} ({checked.outcome})" for checked in (*all_of, *any_of) if checked.outcome != "pass"
    ]
    return outcome, "all checks pass" if outcome == "pass" and not missed else "; ".join(missed)


def judged_control(
    control: Control, checked: Checked, effects: Sequence[Checked]
) -> tuple[ControlState, dict[str, Any]]:
    """Whether a control came out as it must, beside the claim's own `effects`: of the same name, or else of the same
    kind.
    """
    same = [effect.estimate for effect in effects if effect.check.name == control.check.name]
    like = same or [effect.estimate for effect in effects if type(effect.check) is type(control.check)]
    if control.expect == "holds":
        state = _WHERE_IT_MUST_HOLD[checked.outcome]
    elif control.expect == "shrinks":
        state = _WHERE_IT_MUST_HOLD[judge(like[0].minus(checked.estimate), control.check.rule, 0.0)]
    else:
        state = _vanished(control, checked, like)
    return state, {"removed": control.removed, "expect": control.expect, "state": state, **checked.record()}


def _vanished(control: Control, checked: Checked, effects: Sequence[Estimate]) -> ControlState:
    """A vanished effect is one that is not shown; but where its interval is so wide that it holds
    the very effect of the claim, the control shows nothing either way and is undecided."""
    if checked.outcome == "pass":
        return "failed"
    shown = [effect for effect in effects if judge(effect, control.check.rule, control.check.bound) == "pass"]
    return (
        "undecided" if any(checked.estimate.low <= effect.value <= checked.estimate.high for effect in shown) else "ok"
    )


def spread(values: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "sd": statistics.stdev(values) if len(values) > 1 else None,
        "per_seed": list(values),
    }


def config_record(variants: Mapping[str, Variant]) -> dict[str, Any]:
    """The resolved settings of the first variant, and for the others what differs from them."""
    if not variants:
        return {}
    tables = {
        name: {"recipe": variant.recipe, **to_tables(recipe_of(variant).config)} for name, variant in variants.items()
    }
    first = next(iter(tables))
    changes = {
        name: [*differences(tables[first], table), *_at_prediction(variants[name])]
        for name, table in tables.items()
        if name != first
    }
    return {
        "base": first,
        "settings": tables[first],
        "at_prediction": _at_prediction(variants[first]),
        "changes": changes,
    }


def _at_prediction(variant: Variant) -> list[str]:
    return [f"at prediction: {name} = {value}" for name, value in variant.at_prediction.items()]


def _also(experiment: Experiment, value: Value | Difference, key: str) -> dict[str, Any]:
    check = value if isinstance(value, Difference) else Level(value, 0.0)
    found, _ = experiment.estimated(check, key)
    return {
        "value_of": value.name,
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "per_seed": list(found.per_seed),
    }


def _data_record(*experiments: Experiment) -> list[dict[str, Any]]:
    records: dict[str, dict[str, Any]] = {}
    for experiment in experiments:
        data = experiment.data
        if data is not None:
            digests = [experiment.workshop.world(data, seed).dataset.digest for seed in experiment.seeds]
            records[data.describe()] = {"data": data.describe(), "digests": list(dict.fromkeys(digests))}
    return list(records.values())


def _seconds_record(experiment: Experiment, variant: Variant) -> dict[str, Any]:
    assert experiment.data is not None
    by_seed = [experiment.workshop.seconds(variant, experiment.data, seed) for seed in experiment.seeds]
    stages = {stage: statistics.fmean(seconds.get(stage, 0.0) for seconds in by_seed) for stage in by_seed[0]}
    return {
        "variant": describe(variant),
        "seconds": [sum(seconds.values()) for seconds in by_seed],
        "stage_seconds": stages,
    }
