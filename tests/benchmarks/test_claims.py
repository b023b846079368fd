"""Every claim is decided somewhere, and the machinery that decides is right: verdicts on planted numbers, caching,
resuming.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.claims import ledger, page, papers, results, runner, verdict, workshop
from benchmarks.claims.__main__ import COMPLETE, MISSING, WRONG, main, recorded_command
from benchmarks.claims.catalogue import CATALOGUE
from benchmarks.claims.entries import Claim, Control, Level, Probe, Sweep, Value, Variant, difference, values_of
from benchmarks.claims.measures import Columns, Trained, changed
from benchmarks.claims.verdict import Column, Estimate, best_elsewhere, combine, estimate, judge, power, slope
from benchmarks.claims.workshop import OutOfTime, Workshop, recipe_of
from benchmarks.claims.worlds import Crafted, DataSpec, Folder, Planted
from tests.benchmarks.small_claims import BLIND, READS, SEES, SILENT, SMALL_WORLD, WORLD, as_a_paper

import longtail
from longtail import pipeline
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, DataError
from longtail.recipes import RECIPES

TESTS = Path(__file__).parents[1]
ENTRIES = [claim for paper in papers.PAPERS for claim in papers.claims_of(paper)]


# ---- every claim is decided somewhere ----


def claims_marked_in(source: str) -> set[str]:
    """Claim ids of `pytest.mark.claim` on tests, test classes or the whole module."""

    def ids(node: ast.expr) -> set[str]:
        marks = [
            call
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.claim"
        ]
        return {
            argument.value
            for call in marks
            for argument in call.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        }

    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.startswith(("test_", "Test")):
            found |= set().union(*map(ids, node.decorator_list))
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            found |= ids(node.value)
    return found


MARKED = {
    name
    for path in TESTS.rglob("test_*.py")
    if path != Path(__file__) and "mark.claim" in (source := path.read_text())
    for name in claims_marked_in(source)
}


def test_marks_are_found_where_pytest_sees_them() -> None:
    source = """
pytestmark = [pytest.mark.claim("Z1")]
@pytest.mark.claim("Z2")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.claim("Z3"))])
def test_a(x): pass
@pytest.mark.claim("Z4", "Z5")
class TestB: pass
@pytest.mark.claim("Z6")
def helper(): pass
other = pytest.mark.claim("Z7")
"""
    assert claims_marked_in(source) == {"Z1", "Z2", "Z3", "Z4", "Z5"}


@pytest.mark.parametrize("claim", CATALOGUE.values(), ids=CATALOGUE)
def test_every_claim_has_a_test_or_an_entry(claim: Any) -> None:
    if claim.type == "B":
        assert claim.id in {entry.catalogued for entry in ENTRIES}, (
            f"{claim.id} needs an entry in benchmarks/claims: {claim.sentence}"
        )
    else:
        assert claim.id in MARKED, f"{claim.id} needs a test marked @pytest.mark.claim({claim.id!r}): {claim.sentence}"


def test_no_test_decides_a_claim_that_does_not_exist() -> None:
    letters = {name[0] for name in CATALOGUE}
    assert not {name for name in MARKED if name[0] in letters} - CATALOGUE.keys()


# ---- entries can be run ----


def test_entries_are_of_catalogued_benchmarks_and_unique() -> None:
    assert all(CATALOGUE[entry.catalogued].type == "B" for entry in ENTRIES)
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)


def data_of(entry: Claim) -> list[DataSpec]:
    return [data for data in (entry.data, *(control.data for control in entry.controls)) if data is not None]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_entries_are_whole(entry: Claim) -> None:
    assert entry.seeds >= verdict.FEWEST_SEEDS
    assert entry.controls or not (entry.all_of or entry.any_of) or "@" in entry.id, "a claim needs a control"
    for check in (*entry.all_of, *entry.any_of):
        assert {value.variant for value in values_of(check)} <= entry.variants.keys()
    for control in entry.controls:
        assert {value.variant for value in values_of(control.check)} <= entry.variants.keys() | control.variants.keys()
    for data in data_of(entry):
        if isinstance(data, Planted):
            assert data.config().documents >= data.config().labels


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_settings_of_entries_exist(entry: Claim) -> None:
    variants = [
        *entry.variants.values(),
        *(variant for control in entry.controls for variant in control.variants.values()),
    ]
    assert {variant.recipe for variant in variants} <= RECIPES.keys()
    for variant in variants:
        recipe_of(variant)


# ---- statistics ----


def column(values: Any) -> Column:
    return Column(np.asarray(values, dtype=np.float64), np.ones(len(values)))


def guesses(share: float, n: int, seed: int) -> Column:
    """A model that is right on `share` of n documents, at random."""
    return column(np.random.default_rng(seed).random(n) < share)


def test_planted_better_worse_and_equal_models_are_told_apart() -> None:
    better, worse = [guesses(0.7, 2000, s) for s in range(3)], [guesses(0.5, 2000, s + 10) for s in range(3)]
    up, down = (estimate(a, b, shared=False, key="x") for a, b in ((better, worse), (worse, better)))
    assert judge(up, "above", 0.0) == "pass"
    assert judge(down, "above", 0.0) == "fail"
    assert judge(down, "below", 0.0) == "pass"
    assert judge(up, "above", 30.0) == "fail"
    assert judge(up, "above", up.value) == "inconclusive"
    assert up.value == pytest.approx(np.mean([a.value - b.value for a, b in zip(better, worse, strict=True)]))
    assert up.per_seed == pytest.approx([a.value - b.value for a, b in zip(better, worse, strict=True)])
    assert up.low < up.value < up.high


def test_equal_predictions_differ_by_exactly_nothing() -> None:
    same = [guesses(0.5, 300, s) for s in range(3)]
    found = estimate(same, same, shared=False, key="x")
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)
    assert judge(found, "within", 0.1) == "pass"


def test_pairing_uses_the_same_documents_for_both_sides() -> None:
    # b is a with 1% of documents spoiled: unpaired, the interval would be many points wide
    a = guesses(0.5, 2000, 0)
    b = column(np.where(np.arange(2000) % 100 == 0, 0, a.numerator))
    paired, alone = estimate([a] * 3, [b] * 3, shared=True, key="x"), estimate([a] * 3, None, shared=True, key="x")
    assert paired.high - paired.low < 0.4 * (alone.high - alone.low)


def test_ratios_of_sums_are_resampled_as_such() -> None:
    rng = np.random.default_rng(0)
    weights = rng.uniform(1, 100, 400)
    hits = weights * (rng.random(400) < 0.3)
    found = estimate([Column(hits, weights)] * 3, None, shared=True, key="x")
    assert found.low < 30 < found.high
    assert found.value == pytest.approx(100 * hits.sum() / weights.sum())


def test_disagreeing_seeds_widen_the_interval() -> None:
    def with_effects(effects: Sequence[float]) -> Estimate:
        return estimate(
            [guesses(0.5 + effect, 5_000, s) for s, effect in enumerate(effects)],
            [guesses(0.5, 5_000, 99)] * 3,
            shared=False,
            key="x",
        )

    steady, shaky = with_effects([0.03, 0.03, 0.03]), with_effects([0.10, -0.04, 0.03])
    assert judge(steady, "above", 0.0) == "pass"
    assert judge(shaky, "above", 0.0) == "inconclusive"
    assert shaky.seed_variance > 10 > steady.seed_variance


def test_shared_documents_are_drawn_alike_for_all_seeds() -> None:
    # The same documents three times are no more evidence than once.
    a, b = guesses(0.6, 500, 1), guesses(0.5, 500, 2)
    shared, own = (estimate([a] * 3, [b] * 3, shared=kind, key="x") for kind in (True, False))
    assert shared.document_variance == pytest.approx(3 * own.document_variance, rel=0.3)
    with pytest.raises(ValueError, match="different numbers"):
        estimate([a, guesses(0.6, 400, 1)], None, shared=True, key="x")


@pytest.mark.parametrize("seed_spread", [0.0, 0.05])
def test_intervals_cover_the_truth_as_often_as_they_say(seed_spread: float) -> None:
    covered = 0
    for trial in range(120):
        rng = np.random.default_rng([trial, 1])
        shares = 0.5 + 0.1 + seed_spread * rng.standard_normal(3)
        sides = [[column(rng.random(250) < share) for share in side] for side in (shares, [0.5] * 3)]
        found = estimate(sides[0], sides[1], shared=False, key=str(trial), resamples=200)
        covered += found.low <= 10 <= found.high
    assert 0.86 <= covered / 120 <= 1.0


def test_intervals_are_repeatable_and_depend_on_the_key() -> None:
    sides = [guesses(0.6, 200, s) for s in range(3)], [guesses(0.5, 200, s + 5) for s in range(3)]
    first, again, other = (estimate(*sides, shared=False, key=key) for key in ("x", "x", "y"))
    assert first == again
    assert first.low != other.low


@pytest.mark.parametrize(
    ("rule", "low", "high", "outcome"),
    [
        ("above", 0.1, 1, "pass"),
        ("above", 0.0, 1, "inconclusive"),
        ("above", -1, 0.0, "fail"),
        ("below", -1, -0.1, "pass"),
        ("below", 0.0, 1, "fail"),
        ("below", -1, 0.0, "inconclusive"),
        ("not above", -1, 1, "pass"),
        ("not above", 0.0, 1, "pass"),
        ("not above", 0.1, 1, "fail"),
    ],
)
def test_an_interval_is_judged_by_its_ends(rule: verdict.Rule, low: float, high: float, outcome: str) -> None:
    assert judge(Estimate(0.0, low, high), rule, 0.0) == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(-0.4, 0.4, "pass"), (-0.6, 0.4, "inconclusive"), (0.5, 0.9, "fail"), (-0.9, -0.5, "fail")],
)
def test_within_means_both_ends_inside(low: float, high: float, outcome: str) -> None:
    assert judge(Estimate(0.0, low, high), "within", 0.5) == outcome


@pytest.mark.parametrize(
    ("all_of", "any_of", "outcome"),
    [
        (["pass", "pass"], [], "pass"),
        (["pass", "fail"], [], "fail"),
        (["pass", "inconclusive"], [], "inconclusive"),
        (["pass"], ["fail", "pass"], "pass"),
        (["pass"], ["fail", "fail"], "fail"),
        (["pass"], ["fail", "inconclusive"], "inconclusive"),
        ([], ["pass"], "pass"),
        (["fail"], ["pass"], "fail"),
    ],
)
def test_outcomes_combine(all_of: list[verdict.Outcome], any_of: list[verdict.Outcome], outcome: str) -> None:
    assert combine(all_of, any_of) == outcome


def test_the_power_calculation_foretells_when_an_effect_is_seen() -> None:
    small = estimate(
        [guesses(0.53, 400, s) for s in range(3)], [guesses(0.5, 400, s + 10) for s in range(3)], shared=False, key="x"
    )
    small = replace(small, value=3.0, seed_variance=0.0)
    needed = power(small, "above", 0.0)
    assert needed.documents is not None
    assert needed.seeds is not None
    # 400 documents of variance p(1-p) on each of two sides, three seeds: the textbook formula for two proportions
    assert needed.documents == pytest.approx(2.8016**2 * 2 * 0.25 / 0.03**2 / 3, rel=0.15)
    assert needed.seeds == np.ceil(needed.documents * 3 / 400)
    passed = 0
    for trial in range(40):
        rng = np.random.default_rng([trial, 2])
        sides = [[column(rng.random(needed.documents) < share) for _ in range(3)] for share in (0.53, 0.5)]
        passed += (
            judge(estimate(sides[0], sides[1], shared=False, key=str(trial), resamples=200), "above", 0.0) == "pass"
        )
    assert 0.6 <= passed / 40 <= 0.95


def test_power_knows_what_cannot_help() -> None:
    noisy_seeds = Estimate(1.0, -1, 3, (1.0, 1.0, 1.0), document_variance=0.01, seed_variance=9.0, documents=100)
    assert power(noisy_seeds, "above", 0.0).documents is None
    assert power(noisy_seeds, "above", 0.0).seeds == np.ceil((9.0 + 0.03) * 2.8016**2)
    few_documents = Estimate(
        1.0, -1, 3, (1.0, 1.0, 1.0), document_variance=1.0, seed_variance=0.0, documents=100, shared=True
    )
    assert power(few_documents, "above", 0.0).seeds is None
    assert power(few_documents, "above", 1.0).documents is None, "nothing decides what lies exactly on the bound"
    far, near = (power(few_documents, "above", bound).documents for bound in (-1.0, 0.0))
    assert far is not None
    assert near is not None
    assert near == pytest.approx(4 * far, rel=0.01)
    assert power(replace(few_documents, value=-0.3), "within", 0.5).detectable == pytest.approx(2.8016)


def test_the_best_of_many_is_not_flattered() -> None:
    gains = []
    for trial in range(60):
        noise = [guesses(0.5, 200, 1000 * trial + c) for c in range(10)]
        chosen, taken = best_elsewhere(noise)
        gains.append(chosen.value - 50)
        assert all(0 <= place < 10 for place in taken)
    assert abs(np.mean(gains)) < 1.5
    best, taken = best_elsewhere([guesses(0.3, 400, 1), guesses(0.9, 400, 2), guesses(0.5, 400, 3)])
    assert taken == (1, 1)
    assert best.value == guesses(0.9, 400, 2).value


def test_the_slope_of_a_power_law() -> None:
    sizes = np.array([1e3, 4e3, 1.6e4, 6.4e4])
    exact = slope(np.log(sizes), np.log(3e-6 * sizes**0.4))
    assert exact.value == pytest.approx(0.4)
    assert exact.high - exact.low < 1e-6
    bent = slope(np.log(sizes), np.log(1 + sizes / 1e4))
    assert bent.high - bent.low > 0.3, "times that do not follow a power law must not give a narrow interval"


# ---- from a claim to a verdict ----


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trainings that tests of this file share: they only add to them."""
    return tmp_path_factory.mktemp("claims")


@pytest.fixture
def shop(cache: Path) -> Workshop:
    return Workshop(cache, device="cpu")


def test_a_true_claim_passes_with_everything_recorded(shop: Workshop) -> None:
    record = json.loads(json.dumps(runner.decide(READS, shop)))
    assert (record["verdict"], record["reason"]) == ("pass", "all checks pass")
    check, control = record["all_of"][0], record["controls"][0]
    assert check["check"] == "P@1: sees - blind"
    assert check["low"] > 0
    assert check["value"] == pytest.approx(
        record["numbers"]["sees"]["P@1"]["mean"] - record["numbers"]["blind"]["P@1"]["mean"]
    )
    assert len(check["per_seed"]) == 3
    assert (control["state"], control["removed"]) == ("ok", "text")
    assert control["high"] < check["value"]
    assert record["config"]["changes"] == {"blind": ["features.max_features: 0 -> 1"]}
    assert record["seeds"] == [0, 1, 2]
    assert [len(data["digests"]) for data in record["data"]] == [3, 3]
    assert len(record["trainings"]["sees"]["seconds"]) == 3
    assert {**record, **results.provenance("command", "cpu")}.keys() == results.KEYS


def test_the_second_time_nothing_is_trained(cache: Path, shop: Workshop) -> None:
    first = runner.decide(READS, shop)
    again = Workshop(cache, device="cpu")
    assert runner.decide(READS, again) == first
    assert again.trainings_made == 0


def test_a_false_claim_fails_and_an_open_one_says_what_it_needs(shop: Workshop) -> None:
    backwards = replace(READS, all_of=(difference("blind", "sees", "P@1"),), controls=())
    assert runner.decide(backwards, shop)["verdict"] == "fail"
    open_question = replace(
        READS,
        all_of=(difference("sees", "blind", "P@1", runner.decide(READS, shop)["all_of"][0]["value"] - 0.5),),
        controls=(),
    )
    record = runner.decide(open_question, shop)
    assert record["verdict"] == "inconclusive"
    assert record["all_of"][0]["power"]["documents"] > 200


def test_an_effect_that_remains_without_its_mechanism_fails(shop: Workshop) -> None:
    record = runner.decide(replace(READS, controls=(Control("nothing", difference("sees", "blind", "P@1")),)), shop)
    assert (record["verdict"], record["controls"][0]["state"]) == ("fail", "failed")
    assert "mechanism" in record["reason"]


def test_a_contrast_must_hold(shop: Workshop) -> None:
    contrast = Control("words", Level(Value("blind", "P@1"), 30.0, "below"), expect="holds")
    assert runner.decide(replace(READS, controls=(contrast,)), shop)["verdict"] == "pass"
    contrast = replace(contrast, check=Level(Value("blind", "P@1"), 30.0))
    assert runner.decide(replace(READS, controls=(contrast,)), shop)["verdict"] == "fail"


def test_a_control_too_weak_to_exclude_the_effect_is_undecided() -> None:
    effect = runner.Checked(READS.all_of[0], Estimate(2.0, 1.0, 3.0), "pass", {})
    wide, narrow = (
        runner.Checked(READS.all_of[0], Estimate(0.5, -reach, reach), "inconclusive", {}) for reach in (4.0, 1.0)
    )
    control = READS.controls[0]
    assert runner.judged_control(replace(control, check=READS.all_of[0]), wide, [effect])[0] == "undecided"
    assert runner.judged_control(replace(control, check=READS.all_of[0]), narrow, [effect])[0] == "ok"


def test_a_control_is_compared_with_the_check_of_its_name() -> None:
    def found(metric: str, value: float, reach: float) -> runner.Checked:
        return runner.Checked(
            difference("sees", "blind", metric), Estimate(value, value - reach, value + reach), "pass", {}
        )

    strong, weak, rest = found("P@1", 5.0, 0.5), found("P@5", 1.0, 0.5), found("P@1", 0.5, 1.0)
    control = Control("text", difference("sees", "blind", "P@1"))
    rest = replace(rest, outcome="inconclusive")
    assert runner.judged_control(control, rest, [strong, weak])[0] == "ok", (
        "the weak effect, which the interval holds, is of another metric"
    )
    assert runner.judged_control(control, rest, [weak])[0] == "undecided", (
        "where no check has the name, any of its kind counts"
    )


def test_an_effect_that_must_shrink_is_compared_with_the_claims_own() -> None:
    def state(value: float, reach: float) -> str:
        effect, rest = (
            runner.Checked(READS.all_of[0], Estimate(at, at - wide, at + wide), "pass", {})
            for at, wide in ((2.0, 0.3), (value, reach))
        )
        return runner.judged_control(replace(READS.controls[0], expect="shrinks"), rest, [effect])[0]

    assert [state(1.0, 0.4), state(1.0, 1.2), state(3.0, 0.4)] == ["ok", "undecided", "failed"]
    difference = Estimate(5.0, 4.0, 6.0).minus(Estimate(1.0, 0.0, 2.0))
    assert difference.value == 4.0
    assert difference.low == pytest.approx(4 - 2**0.5)


def test_two_seeds_never_give_a_verdict(shop: Workshop) -> None:
    record = runner.decide(READS, shop, seeds=2)
    assert (record["verdict"], record["reason"]) == ("inconclusive", "2 seeds, a verdict needs 3")


def test_a_claim_can_be_repeated_with_fresh_seeds(shop: Workshop) -> None:
    before = shop.trainings_made
    record = runner.decide(replace(READS, controls=()), shop, first_seed=3)
    assert (record["seeds"], record["verdict"]) == ([3, 4, 5], "pass")
    assert shop.trainings_made - before == 6, "2 variants, 3 seeds that no test had before"


def test_levels_sweeps_probes_and_reports(shop: Workshop) -> None:
    neighbours = {f"n{n}": Variant("tiny", (f"classify.neighbours={n}",)) for n in (1, 5, 20)}
    claim = replace(
        READS,
        variants={**READS.variants, **neighbours},
        all_of=(
            Level(Value("sees", "P@1"), 5.0),
            Sweep(tuple(Value(name, "P@5") for name in neighbours), Value("blind", "P@5")),
            Probe("a constant", constant, 1.0, "below"),
        ),
        controls=(),
    )
    record = runner.decide(claim, shop)
    level, sweep, probe = record["all_of"]
    assert record["verdict"] == "pass"
    assert level["value"] == pytest.approx(record["numbers"]["sees"]["P@1"]["mean"])
    assert sweep["curve"].keys() == {"n1", "n5", "n20", "blind"}
    assert len(sweep["taken"]) == 3
    assert (probe["value"], probe["found"]) == (0.5, "this")
    reported = runner.decide(
        replace(claim, all_of=(), also=(Value("sees", "R@10"), difference("sees", "blind", "R@10"))), shop
    )
    assert reported["verdict"] == "reported"
    assert reported["also"][1]["value"] > 0


def constant(_: Workshop) -> tuple[Estimate, dict[str, Any]]:
    return Estimate(0.5, 0.4, 0.6), {"found": "this"}


def test_a_probe_is_measured_once(tmp_path: Path) -> None:
    calls = []

    def counted(_: Workshop) -> tuple[Estimate, dict[str, Any]]:
        calls.append(1)
        return Estimate(0.5, 0.4, 0.6, (0.5, 0.5)), {"found": [1, 2]}

    probe = Probe("counted", counted, 1.0)
    first = Workshop(tmp_path, device="cpu").probed(probe)
    assert (
        Workshop(tmp_path, device="cpu").probed(probe)
        == first
        == (Estimate(0.5, 0.4, 0.6, (0.5, 0.5)), {"found": [1, 2]})
    )
    assert len(calls) == 1


def test_measures_of_ones_own(shop: Workshop) -> None:
    def first_label(trained: Trained) -> Columns:
        top = trained.predictions()
        assert len(trained.training.rows) == trained.training.n_documents
        return {"is even": Column((top.ids[:, 0] % 2 == 0).astype(np.float64), np.ones(len(top)))}

    record = runner.decide(
        replace(READS, all_of=(Level(Value("sees", "is even", first_label), 0.0),), controls=()), shop
    )
    assert 10 < record["all_of"][0]["value"] < 90
    with pytest.raises(ConfigError, match="does not measure 'is odd'"):
        runner.decide(replace(READS, all_of=(Level(Value("sees", "is odd", first_label), 0.0),), controls=()), shop)


# ---- trainings ----


def test_a_training_is_named_by_all_that_determines_it(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shop.folder(SEES, WORLD, 0)
    assert shop.folder(Variant("tiny", {"classify": {"neighbours": 50}}), WORLD, 0) == folder, (
        "a default said aloud is the same training"
    )
    assert shop.folder(replace(SEES, at_prediction={"alpha": 0.3}), WORLD, 0) == folder
    assert shop.folder(SEES, replace(WORLD, truth="observed"), 0) == folder
    others = [shop.folder(BLIND, WORLD, 0), shop.folder(SEES, SILENT, 0), shop.folder(SEES, WORLD, 1)]
    monkeypatch.setattr(shop, "device", "cuda")
    others.append(shop.folder(SEES, WORLD, 0))
    monkeypatch.setattr(shop, "device", "cpu")
    monkeypatch.setattr(workshop, "source_hash", lambda: "other")
    others.append(shop.folder(SEES, WORLD, 0))
    assert len({folder, *others}) == 6


def test_the_sources_are_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "part.py").write_text("x = 1\n")
    monkeypatch.setattr(longtail, "__file__", str(tmp_path / "__init__.py"))
    seen = [workshop.source_hash.__wrapped__()]
    for change in (
        lambda: (tmp_path / "part.py").write_text("x = 2\n"),
        lambda: (tmp_path / "part.py").rename(tmp_path / "piece.py"),
    ):
        change()
        seen.append(workshop.source_hash.__wrapped__())
    assert len(set(seen)) == 3


def test_an_interrupted_training_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop(tmp_path, device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr("longtail.pipeline.learners", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            shop.trained(SEES, WORLD, 0)
    assert not shop.is_trained(SEES, WORLD, 0)
    shop.trained(SEES, WORLD, 0)
    assert shop.is_trained(SEES, WORLD, 0)
    events = [
        json.loads(line) for line in (shop.folder(SEES, WORLD, 0) / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [event["name"] for event in events if event["event"] == "stage"].count("0_prepare") == 1
    assert shop.seconds(SEES, WORLD, 0).keys() >= {"0_prepare", "4_classify"}


def test_an_interrupted_claim_keeps_the_trainings_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def two_then_stop(*arguments: Any, **options: Any) -> Any:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(train(*arguments, **options))

    train = pipeline.train
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "train", two_then_stop)
        with pytest.raises(KeyboardInterrupt):
            runner.decide(READS, Workshop(tmp_path, device="cpu"))
    again = Workshop(tmp_path, device="cpu")
    runner.decide(READS, again)
    assert again.trainings_made == 12 - 2, "2 variants, 2 worlds, 3 seeds"


def test_after_the_deadline_nothing_is_begun(tmp_path: Path, cache: Path, shop: Workshop) -> None:
    with pytest.raises(OutOfTime, match="training 'sees' with seed 0"):
        runner.decide(READS, Workshop(tmp_path, device="cpu", deadline=0.0))
    assert not list(tmp_path.iterdir())
    runner.decide(READS, shop)
    assert runner.decide(READS, Workshop(cache, device="cpu", deadline=0.0))["verdict"] == "pass", (
        "what is trained is judged"
    )


def test_predictions_are_kept(shop: Workshop) -> None:
    trained = shop.trained(SEES, WORLD, 0)
    top = trained.predictions()
    (kept,) = trained.run.parent.glob("predictions-*.npz")
    with np.load(kept, allow_pickle=False) as saved:
        np.testing.assert_array_equal(saved["ids"], top.ids)
    trained.__dict__["predictor"] = None
    np.testing.assert_array_equal(trained.predictions().ids, top.ids)


def test_only_what_a_model_has_can_be_changed_at_prediction(shop: Workshop) -> None:
    from longtail.models.rankers import Classifier, Ensemble, Model
    from longtail.recipes.astec.ranker import Reranked

    rows = Classifier(np.zeros((3, 2), dtype=np.float32))
    nothing: Any = None
    model = Model(encoder=nothing, refinement=None, shortlister=nothing, classifier=rows, shortlist_size=3, alpha=0.5)
    assert changed(model, {"alpha": 0.2}).alpha == 0.2
    assert changed(model, {}) is model
    assert changed(Reranked(model, nothing, None, rows, 3, 0.5), {"alpha": 0.2}).base.alpha == 0.2
    assert changed(Reranked(model, nothing, None, rows, 3, 0.5), {"beta": 0.0}).beta == 0.0
    assert [member.alpha for member in changed(Ensemble((model, model), 3), {"alpha": 0.2}).members] == [0.2, 0.2]
    with pytest.raises(ConfigError, match="no alpha to change"):
        shop.trained(replace(SEES, at_prediction={"alpha": 0.2}), WORLD, 0).predictions()


# ---- data ----


def test_planted_truth_is_observed_or_complete() -> None:
    observed, complete = (
        Planted("tiny", SMALL_WORLD, truth=truth).world(0, None) for truth in ("observed", "complete")
    )
    assert complete.yardstick.truth.nnz > observed.yardstick.truth.nnz
    assert complete.planted is not None
    assert complete.yardstick.truth.nnz == complete.planted.complete_test.nnz
    assert observed.dataset.digest == complete.dataset.digest
    with pytest.raises(ConfigError, match="unknown preset"):
        Planted("huge").config()
    with pytest.raises(ConfigError, match="missing_rate"):
        Planted("tiny", {"mising_rate": 0.1}).config()


def test_seeds_have_planted_worlds_of_their_own_and_share_real_ones(shop: Workshop, planted_folder: Path) -> None:
    assert shop.world(WORLD, 0).dataset.digest != shop.world(WORLD, 1).dataset.digest
    real = Workshop(shop.cache_folder, device="cpu", data=planted_folder.parent)
    assert real.world(Folder(planted_folder.name), 0) is real.world(Folder(planted_folder.name), 1)
    assert real.folder(SEES, Folder(planted_folder.name), 0) != real.folder(SEES, Folder(planted_folder.name), 1)
    record = runner.decide(replace(READS, data=Folder(planted_folder.name), controls=()), real)
    assert record["verdict"] == "pass"
    assert len(record["data"][0]["digests"]) == 1


def test_a_crafted_world_is_named_by_its_maker(shop: Workshop, planted: Dataset) -> None:
    def made(seed: int, flavour: str = "plain") -> Dataset:
        return planted

    plain, spicy = Crafted(made), Crafted(made, {"flavour": "spicy"})
    assert plain.world(0, None).dataset is planted
    assert shop.folder(SEES, plain, 0) != shop.folder(SEES, spicy, 0)
    assert "flavour=spicy" in spicy.describe()


# ---- the command ----


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> str:
    """A paper with two claims: one on planted, one on real data."""
    claims = (
        READS,
        replace(READS, id="F17@planted", data=Folder("planted"), controls=()),
        replace(READS, id="F11", all_of=()),
    )
    monkeypatch.setattr(papers, "PAPERS", as_a_paper(*claims))
    for module in (results, page, ledger):
        monkeypatch.setattr(module, "PAPERS", papers.PAPERS)
    return "test"


def test_run_writes_one_file_per_paper_and_updates_it(
    paper: str,
    cache: Path,
    tmp_path: Path,
    planted_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    common = ["--cache", str(cache), "--device", "cpu", "--out", str(tmp_path)]
    monkeypatch.setenv("LONGTAIL_COMMIT", "abc")
    assert main(["run", "F11", *common]) == COMPLETE
    assert main(["run", "F17", *common]) == MISSING
    printed = capsys.readouterr().out
    assert "F17: PASS" in printed
    assert "missing: F17@planted: the data set 'planted' is needed" in printed
    assert main(["run", "F17@planted", "--data", str(planted_folder.parent), *common]) == COMPLETE
    assert [path.name for path in tmp_path.iterdir()] == ["test.json"]
    records = results.read(tmp_path / "test.json")
    assert [record["id"] for record in records] == ["F17", "F17@planted", "F11"], "in the order of the entries"
    assert all(record.keys() == results.KEYS for record in records)
    assert records[0]["command"] == "python -m benchmarks.claims run F17 --device cpu", "no folders of this machine"
    assert all(len(str(value).partition(".")[2]) <= results.DECIMALS for value in records[0]["all_of"][0]["per_seed"])
    before = records[2]
    assert main(["run", "F17", "--seeds", "2", *common]) == MISSING
    records = results.read(tmp_path / "test.json")
    assert (records[0]["verdict"], records[2]) == ("inconclusive", before)
    capsys.readouterr()
    assert main(["table", "--results", str(tmp_path)]) == COMPLETE
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("| paper | pass | fail | inconclusive | reported | not run | claims | stale |")
    assert lines[start + 2 : start + 4] == [
        "| test | 1 | 0 | 1 | 1 | 0 | 3 | 0 |",
        "| all | 1 | 0 | 1 | 1 | 0 | 3 | 0 |",
    ]
    table = [line for line in lines if line.startswith(("| F", "| claim"))]
    assert [(line.split(":")[0], line.split(" | ")[3]) for line in table[1:]] == [
        ("| F17", "inconclusive"),
        ("| F17@planted", "pass"),
        ("| F11", "reported"),
    ]
    assert len({line.count("|") for line in table}) == 1


def test_a_recorded_command_names_no_folder() -> None:
    assert (
        recorded_command(
            ["run", "A6", "--out", "/a", "--seeds", "5", "--cache=/b", "--cache", "c", "--max-minutes", "3"]
        )
        == "python -m benchmarks.claims run A6 --seeds 5"
    )
    assert recorded_command(["run", "A6@", "--data", "/c"]) == "python -m benchmarks.claims run A6@ --data DATA"


def test_verdicts_of_several_folders_are_merged(
    paper: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["--cache", str(cache), "--device", "cpu"]
    monkeypatch.setenv("LONGTAIL_COMMIT", "abc")
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    main(["run", "F11", *common, "--out", str(first)])
    main(["run", "F17", *common, "--out", str(second)])
    main(["run", "F11", *common, "--out", str(whole)])
    before = results.read(whole / "test.json")
    monkeypatch.setenv("LONGTAIL_COMMIT", "later")
    main(["run", "F11", *common, "--out", str(first)])
    assert main(["merge", str(second), str(first), str(first), "--out", str(whole)]) == COMPLETE, (
        "the same record twice is no conflict"
    )
    records = results.read(whole / "test.json")
    assert [record["id"] for record in records] == ["F17", "F11"], "in the order of the entries"
    assert records == [*results.read(second / "test.json"), *results.read(first / "test.json")]
    assert (before[0]["commit"], records[1]["commit"]) == ("abc", "later")


def test_what_cannot_be_merged_changes_nothing(
    paper: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGTAIL_COMMIT", "abc")
    first, other, out = (tmp_path / name for name in ("first", "other", "out"))
    main(["run", "F11", "--cache", str(cache), "--device", "cpu", "--out", str(first)])
    record = results.read(first / "test.json")[0]

    def other_holds(changes: dict[str, Any], without: str = "") -> None:
        changed_record = {key: value for key, value in {**record, **changes}.items() if key != without}
        (other / "test.json").write_text(
            json.dumps({"format": results.FORMAT, "paper": "test", "verdicts": [changed_record]})
        )

    other.mkdir()
    for content, message in (
        ({"commit": "later"}, "another verdict of F11"),
        ({"uncommitted_changes": True}, "of code that no commit holds"),
        ({"surprise": 1}, "lacks entries, or has others"),
    ):
        other_holds(content)
        with pytest.raises(DataError, match=message):
            results.merge([first, other], out)
    other_holds({}, without="seeds")
    with pytest.raises(DataError, match="lacks entries"):
        results.merge([other], out)
    with pytest.raises(DataError, match="holds no verdicts"):
        results.merge([first, tmp_path / "nowhere"], out)
    assert not out.exists()


def test_out_of_time_says_what_is_missing(paper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--cache",
        str(tmp_path / "cache"),
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "out"),
        "--max-minutes",
        "0",
    ]
    assert main(["run", "F17", *options]) == MISSING
    printed = capsys.readouterr().out
    assert "missing: F17: out of time before training 'sees' with seed 0" in printed
    assert "; 12 of 12 trainings to do" in printed
    assert not (tmp_path / "out").exists()


def test_claims_are_named_with_or_without_their_data(paper: str) -> None:
    assert {
        name: [claim.id for claim in papers.chosen_claims([name], None)["test"]]
        for name in ("F17", "F17@", "F17@planted")
    } == {
        "F17": ["F17", "F17@planted"],
        "F17@": ["F17"],
        "F17@planted": ["F17@planted"],
    }


def test_list_and_mistakes(paper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == COMPLETE
    assert capsys.readouterr().out.count("\n") == 3
    assert main(["run", "F18", "--device", "cpu"]) == WRONG
    assert "no claim 'F18' has an entry" in capsys.readouterr().err
    (tmp_path / "test.json").write_text("[]")
    assert main(["table", "--results", str(tmp_path)]) == WRONG
    assert "not verdicts of format" in capsys.readouterr().err
    with pytest.raises(DataError):
        results.update(tmp_path / "test.json", "test", [])
    with pytest.raises(ConfigError, match="did you mean 'test'"):
        papers.claims_of("tests")


def test_negatives_are_compared_over_as_many_labels_as_they_were_trained_against() -> None:
    for claim in ("A6", "A6@debian-related"):
        (entry,) = (one for one in ENTRIES if one.id == claim)
        for variant in entry.variants.values():
            config = recipe_of(variant).config
            assert config.shortlist.size == config.classify.count == 100
