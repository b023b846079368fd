"""How a claim is written down: variants, data, checks and controls, as plain values. The work is in `runner`.

    Claim(
        id="A6", section="Table 5", sentence="Hard negatives beat uniform ones.",
        variants={"hard": Variant("astec"), "uniform": Variant("astec", ("classify.negatives=uniform",))},
        data=Planted("small"),
        all_of=(difference("hard", "uniform", "P@1"),),
        controls=(Control("all labels are negatives", difference("hard", "uniform", "P@1"), data=Planted("tiny",
        {"labels": 100})),),
    )

Kinds of checks: `Difference` of two values, `Level` of one value, `Sweep` (the best of several values), `Probe` (a
number measured by a function of its own). A claim without checks is reported, not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from benchmarks.claims.measures import MeasureFunction, ranking
from benchmarks.claims.verdict import Estimate, Rule
from benchmarks.claims.worlds import DataSpec

if TYPE_CHECKING:
    from benchmarks.claims.workshop import Workshop

Settings: TypeAlias = Mapping[str, Any] | tuple[str, ...]  # nested as in TOML, or "a.b=c" assignments


@dataclass(frozen=True)
class Variant:
    """A recipe and the settings that differ from its defaults.

    at_prediction: fields of the trained model that are replaced before it ranks, e.g. ``{"alpha": 0.3}``: no training
        of its own.
    """

    recipe: str
    settings: Settings = ()
    at_prediction: Mapping[str, Any] = field(default_factory=dict)

    def changed(self, *assignments: str, **at_prediction: Any) -> Variant:
        """The same with more ``a.b=c`` assignments, or other values at prediction."""
        assert isinstance(self.settings, tuple), "settings given as nested tables are not extended by assignments"
        return Variant(self.recipe, (*self.settings, *assignments), {**self.at_prediction, **at_prediction})


@dataclass(frozen=True)
class Value:
    """What is measured: a metric of a variant. `by`: the function that gives it, per test document; the metric tables
    by default.
    """

    variant: str
    metric: str
    by: MeasureFunction = ranking

    @property
    def source(self) -> str:
        return self.variant if self.by is ranking else f"{self.variant} by {self.by.__name__}"

    @property
    def name(self) -> str:
        return f"{self.metric}({self.variant})"


@dataclass(frozen=True)
class Difference:
    """a - b, in points, against a margin."""

    a: Value
    b: Value
    margin: float = 0.0
    rule: Rule = "above"

    @property
    def name(self) -> str:
        if self.a.metric != self.b.metric:
            return f"{self.a.name} - {self.b.name}"
        first, second = (self.a.variant, self.b.variant) if self.a.by is self.b.by else (self.a.source, self.b.source)
        return f"{self.a.metric}: {first} - {second}"

    @property
    def bound(self) -> float:
        return self.margin


@dataclass(frozen=True)
class Level:
    """A metric of one variant against a bound."""

    of: Value
    bound: float
    rule: Rule = "above"

    @property
    def name(self) -> str:
        return self.of.name


@dataclass(frozen=True)
class Sweep:
    """The best of `candidates` minus `reference`. The best is chosen and measured on different documents
    (`best_elsewhere`).
    """

    candidates: tuple[Value, ...]
    reference: Value
    margin: float = 0.0
    rule: Rule = "above"

    @property
    def name(self) -> str:
        return (
            f"{self.reference.metric}: best of {', '.join(value.variant for value in self.candidates)} - "
            f"{self.reference.variant}"
        )

    @property
    def bound(self) -> float:
        return self.margin


@dataclass(frozen=True)
class Probe:
    """A number that a function measures, against a bound. What else it found is recorded too.

    needs: (variant, data, seed) of the trainings that the function asks for, where it does: workers make them
        beforehand.
    """

    name: str
    measure: Callable[[Workshop], tuple[Estimate, Mapping[str, Any]]]
    bound: float
    rule: Rule = "above"
    needs: tuple[tuple[Variant, DataSpec, int], ...] = ()


Check: TypeAlias = Difference | Level | Sweep | Probe


@dataclass(frozen=True)
class Control:
    """The experiment with the mechanism removed.

    removed: what was taken away, in words. expect: the effect `vanishes` (the check must not pass), `shrinks` (where
    only part of the mechanism can be taken away: it must be smaller than the claim's), or the check `holds` (a
    contrast that must show).
    data, variants: where they differ from the claim's.
    """

    removed: str
    check: Check
    data: DataSpec | None = None
    variants: Mapping[str, Variant] = field(default_factory=dict)
    expect: Literal["vanishes", "shrinks", "holds"] = "vanishes"


@dataclass(frozen=True)
class Claim:
    """A claim of type B (`catalogue`) as an experiment.

    id: as in the catalogue, with ``@data`` behind it where it is repeated on real data. section: of the paper.
    all_of: every check must pass. any_of: at least one. shown: metrics that are recorded for every variant.
    also: values that are recorded and not judged.
    """

    id: str
    section: str
    sentence: str
    variants: Mapping[str, Variant]
    data: DataSpec | None
    all_of: tuple[Check, ...] = ()
    any_of: tuple[Check, ...] = ()
    controls: tuple[Control, ...] = ()
    shown: tuple[str, ...] = ("P@1", "P@5", "PSP@5", "R@100")
    also: tuple[Value | Difference, ...] = ()
    seeds: int = 3
    note: str = ""

    @property
    def catalogued(self) -> str:
        return self.id.partition("@")[0]


def difference(
    a: str, b: str, metric: str, margin: float = 0.0, rule: Rule = "above", by: MeasureFunction = ranking
) -> Difference:
    """metric(a) - metric(b), two variants measured alike."""
    return Difference(Value(a, metric, by), Value(b, metric, by), margin, rule)


def over_seeds(seeds: int, *trained: tuple[Variant, DataSpec]) -> tuple[tuple[Variant, DataSpec, int], ...]:
    """What a probe `needs`: each variant on its data, seed after seed from 0."""
    return tuple((variant, data, seed) for seed in range(seeds) for variant, data in trained)


def values_of(check: Check) -> tuple[Value, ...]:
    """What must be measured for a check."""
    if isinstance(check, Difference):
        return check.a, check.b
    if isinstance(check, Level):
        return (check.of,)
    if isinstance(check, Sweep):
        return *check.candidates, check.reference
    return ()
