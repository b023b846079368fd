"""From scores to probabilities: whatever the maps are, the ranking stays, also for those who sort by probability."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import BundleError, ConfigError
from longtail.models.calibration import LEAST, MOST, STEPS, Calibration, ScoreMap, decreasing
from longtail.persistence import load_part, save_part
from longtail.types import TopK

NEVER = np.full(STEPS + 1, np.inf, dtype=np.float32)


def score_map(*pairs: tuple[float, float]) -> ScoreMap:
    return ScoreMap(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))


def starts(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


LOW = score_map((0.0, 0.01), (1.0, 0.2))
HIGH = score_map((0.2, 0.3), (0.4, 0.9))
ONE = Calibration(starts(0), starts(0), (HIGH,), None, NEVER)
# Places 1 and 2 to 3 and on; labels of less than 10 training documents, and of more.
FOUR = Calibration(starts(0, 1), starts(0, 10), (HIGH, LOW, LOW, HIGH), score_map((0.0, 0.001), (1.0, 0.999)), NEVER)
COUNTS = np.array([3, 50, 0, 10, 9])


def test_a_worked_example_of_one_map() -> None:
    top = TopK(np.array([[2, 0, -1]], np.int32), np.array([[0.3, 0.1, -np.inf]], np.float32))
    found = ONE.calibrated(top, ONE.label_groups(COUNTS))
    np.testing.assert_allclose(found.scores[0, :2], [0.6, 0.3])
    assert found.scores[0, 2] == -np.inf
    assert found.ids is top.ids


def test_groups_are_by_place_and_by_training_documents() -> None:
    assert FOUR.label_groups(COUNTS).tolist() == [0, 1, 0, 1, 0]
    top = TopK(
        np.array([[1, 3, 4], [0, 2, -1]], np.int32), np.array([[0.9, 0.3, 0.3], [0.3, 0.2, -np.inf]], np.float32)
    )
    assert FOUR.groups(top, FOUR.label_groups(COUNTS))[:, :2].tolist() == [[1, 3], [0, 2]]
    found = FOUR.by_group(top, FOUR.label_groups(COUNTS))
    one_by_one = [[0.181, 0.6, 0.067], [0.6, 0.048]]
    np.testing.assert_allclose(found[0], one_by_one[0], rtol=1e-6)
    np.testing.assert_allclose(found[1, :2], one_by_one[1], rtol=1e-6)


def test_a_label_gets_at_most_the_probability_of_the_one_above() -> None:
    top = TopK(np.array([[1, 3]], np.int32), np.array([[0.9, 0.4]], np.float32))
    first, second = FOUR.calibrated(top, FOUR.label_groups(COUNTS)).scores[0].tolist()
    assert first == pytest.approx(FOUR.overall(LOW(0.9)) if FOUR.overall else 0)  # type: ignore[arg-type]
    assert second < first  # its own map says 0.9
    assert second == np.nextafter(np.float32(first), np.float32(0))


lists = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.3, 0.7, 5.0, -2.0]), min_size=5, max_size=5).map(
        lambda scores: sorted(scores, reverse=True)
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(lists, st.sampled_from([ONE, FOUR]))
def test_whoever_sorts_by_probability_gets_the_ranking(rows: list[list[float]], how: Calibration) -> None:
    scores = np.array(rows, dtype=np.float32)
    ids = np.stack([np.random.default_rng(n).permutation(5) for n in range(len(rows))]).astype(np.int32)
    for row in range(len(rows)):  # ties of a ranking are ordered by label number
        ids[row] = ids[row][np.lexsort((ids[row], -scores[row]))]
        for value in np.unique(scores[row]):
            ids[row][scores[row] == value] = np.sort(ids[row][scores[row] == value])
    found = how.calibrated(TopK(ids, scores), how.label_groups(COUNTS))
    assert (found.ids == ids).all()
    assert ((found.scores > 0) & (found.scores < 1)).all()
    by_probability = np.stack([row[np.lexsort((row, -p))] for row, p in zip(ids, found.scores, strict=True)])
    assert (by_probability == ids).all()
    assert (np.diff(found.scores) <= 0).all()
    assert ((np.diff(found.scores) < 0) >= (np.diff(scores) < 0)).all()


@settings(deadline=None)
@given(lists, st.sampled_from([ONE, FOUR]), st.integers(1, 5))
def test_what_is_said_of_a_place_does_not_depend_on_those_below(
    rows: list[list[float]], how: Calibration, k: int
) -> None:
    ids, scores = np.tile(np.arange(5, dtype=np.int32), (len(rows), 1)), np.array(rows, dtype=np.float32)
    groups = how.label_groups(COUNTS)
    whole = how.calibrated(TopK(ids, scores), groups).scores
    np.testing.assert_array_equal(how.calibrated(TopK(ids[:, :k], scores[:, :k]), groups).scores, whole[:, :k])


def test_long_lists_stay_above_zero() -> None:
    scores = np.linspace(-1, -2, 100_000, dtype=np.float32)[None]
    found = decreasing(np.zeros(scores.shape), scores)
    assert found.min() > LEAST / 2
    assert ((np.diff(found) < 0) == (np.diff(scores) < 0)).all()
    assert decreasing(np.ones((1, 1)), scores[:, :1])[0, 0] < 1


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    for name, one in (("one", ONE), ("four", FOUR)):
        save_part(one, tmp_path / name)
        again = load_part(tmp_path / name)
        top = TopK(np.array([[1, 3, 0]], np.int32), np.array([[0.9, 0.4, 0.3]], np.float32))
        np.testing.assert_array_equal(
            again.calibrated(top, again.label_groups(COUNTS)).scores,
            one.calibrated(top, one.label_groups(COUNTS)).scores,
        )


def test_what_cannot_be_a_calibration_is_refused(tmp_path: Path) -> None:
    for wrong in (
        lambda: score_map((0.5, 0.1), (0.2, 0.3)),
        lambda: score_map((0.1, 0.5), (0.2, 0.3)),
        lambda: score_map((0.1, 0.5), (0.2, 1.0)),
        lambda: score_map((float("nan"), 0.5)),
        lambda: score_map(),
        lambda: replace(FOUR, overall=None),
        lambda: replace(ONE, overall=HIGH),
        lambda: replace(FOUR, maps=FOUR.maps[:3]),
        lambda: replace(FOUR, fewest=starts(1, 10)),
        lambda: replace(ONE, thresholds=NEVER[:-1]),
        lambda: replace(ONE, thresholds=-np.arange(STEPS + 1, dtype=np.float32)),
    ):
        with pytest.raises(ValueError, match=r"map|group|threshold"):
            wrong()
    save_part(ONE, tmp_path / "part")
    text = (tmp_path / "part" / "part.json").read_text()
    (tmp_path / "part" / "part.json").write_text(text.replace('"maps": 1', '"maps": 2'))
    with pytest.raises(BundleError):
        load_part(tmp_path / "part")


def test_a_precision_has_a_threshold_or_says_what_was_reached() -> None:
    reached = np.where(np.arange(STEPS + 1) <= 930, np.linspace(0, 1, STEPS + 1), np.inf).astype(np.float32)
    how = replace(ONE, thresholds=reached)
    assert how.threshold_for(0.9) == pytest.approx(0.9)
    assert how.threshold_for(0.8995) == pytest.approx(0.9)  # never less than was asked for
    with pytest.raises(ConfigError, match=r"precision of 0\.95 .* the highest that was reached is 0\.93"):
        how.threshold_for(0.95)
    with pytest.raises(ConfigError, match="too few"):
        ONE.threshold_for(0.5)
    for wrong in (0, 1, -1, 90, float("nan"), True, "0.9"):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            how.threshold_for(wrong)  # type: ignore[arg-type]


def test_no_label_is_certain() -> None:
    assert 0 < np.float32(LEAST) < np.float32(MOST) < 1
