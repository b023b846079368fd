"""Two models on the same documents: the difference, its interval, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from longtail.compare import compare, render
from longtail.data.dataset import Dataset


def guess(path: Path, data: Dataset, right: float, seed: int) -> Path:
    """A prediction file that puts a true label first in a share of the documents, then the others in random order."""
    rng = np.random.default_rng(seed)
    truth = data.need_test().targets.toarray()
    scores = rng.random(truth.shape).astype(np.float32)
    chosen = rng.random(len(truth)) < right
    scores[chosen, truth[chosen].argmax(axis=1)] = 2
    save_npz(path, csr_array(scores))
    return path


@pytest.fixture
def good(planted: Dataset, tmp_path: Path) -> Path:
    return guess(tmp_path / "good.npz", planted, 0.95, 0)


@pytest.fixture
def poor(planted: Dataset, tmp_path: Path) -> Path:
    return guess(tmp_path / "poor.npz", planted, 0.2, 1)


def test_a_planted_difference_is_found_and_its_sign_is_that_of_a(good: Path, poor: Path, planted: Dataset) -> None:
    result = compare(good, poor, planted, resamples=300)
    there, back = result["metrics"], compare(poor, good, planted, resamples=300)["metrics"]
    found = there["P@1"]
    assert found["difference"] == pytest.approx(found["a"] - found["b"])
    assert found["difference"] > 30
    assert found["excludes_zero"]
    assert 0 < found["low"] < found["difference"] < found["high"]
    for name, value in there.items():
        assert back[name]["difference"] == pytest.approx(-value["difference"])
        assert back[name]["low"] == pytest.approx(-value["high"], abs=1e-6)
    assert (result["a"], result["b"], result["n_test"], result["data_hash"]) == (
        str(good),
        str(poor),
        30,
        planted.digest,
    )


def test_a_model_does_not_differ_from_itself(good: Path, planted: Dataset) -> None:
    result = compare(good, good, planted, resamples=50)
    assert all(
        d["difference"] == d["low"] == d["high"] == 0 and not d["excludes_zero"] for d in result["metrics"].values()
    )


def test_differences_by_label_frequency_sum_to_the_whole(good: Path, poor: Path, planted: Dataset) -> None:
    result = compare(good, poor, planted, resamples=50)
    assert result["quantiles"].keys() == {"equal_count", "equal_volume", "by_frequency"}
    for parts in result["quantiles"].values():
        for metric in ("P@5", "PSP@5", "FN@5"):
            assert sum(part["n_labels"] for part in parts[metric]) == 12
            assert sum(part["difference"] for part in parts[metric]) == pytest.approx(
                result["metrics"][metric]["difference"]
            )
            assert all(part["low"] <= part["high"] for part in parts[metric])


def test_the_seed_decides_the_resamples(good: Path, poor: Path, planted: Dataset) -> None:
    def interval(seed: int) -> Any:
        return compare(good, poor, planted, resamples=50, seed=seed)["metrics"]["PSP@5"]

    assert interval(0) == interval(0)
    assert interval(0)["low"] != interval(1)["low"]
    assert interval(0)["difference"] == interval(1)["difference"]


def test_a_run_can_be_compared_with_a_file(tiny_run: Path, poor: Path, planted: Dataset) -> None:
    assert compare(tiny_run, poor, planted, resamples=50)["metrics"]["P@1"]["a"] == 100


def test_a_star_marks_what_is_more_than_chance(good: Path, poor: Path, planted: Dataset) -> None:
    result = compare(good, poor, planted, resamples=300)
    lines = render(result).splitlines()
    assert lines[:2] == [f"A = {good}", f"B = {poor}"]
    for name in ("P@1", "PSP@5", "R@100"):
        (line,) = (line for line in lines if line.split()[:1] == [name])
        d = result["metrics"][name]
        assert line.endswith("*") == d["excludes_zero"]
        assert f"{d['difference']:+.2f}" in line
    assert not result["metrics"]["R@100"]["excludes_zero"], "all 12 labels are among the first 100"
    assert sum("labels)" in line for line in lines) == len(result["quantiles"]["by_frequency"]["PSP@5"])
