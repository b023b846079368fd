"""What classifiers are made of, by label frequency."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from longtail.metrics.label_groups import by_frequency
from longtail.persistence import load_part, save_part
from longtail.recipes.eclare.stages import LabelComponents


def made() -> LabelComponents:
    weights = np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    lengths = np.array([[4, 8], [2, 2], [3, 9], [5, 7]], dtype=np.float32)
    return LabelComponents(("text", "free"), weights, lengths, np.array([1, 50, 2, 1]))


def test_dominance_is_the_mean_of_weight_times_length_head_first() -> None:
    bins, found = made().dominance(lambda counts: by_frequency(counts, (0, 1, 2, 10, 100)))
    assert bins.names == ("100+", "10-99", "2-9", "1", "0")
    # label 1 has 50 documents, label 2 two, labels 0 and 3 one
    expected = np.array([[np.nan, np.nan], [1, 1], [3, 0], [(1 + 0) / 2, (6 + 7) / 2], [np.nan, np.nan]])
    np.testing.assert_allclose(found, expected)


def test_bins_of_equal_size_by_default() -> None:
    bins, found = made().dominance()
    assert bins.convention == "equal_count"
    assert found.shape == (5, 2)
    np.testing.assert_allclose(found[0], np.array([1.0, 1.0]))


def test_survives_saving(tmp_path: Path) -> None:
    save_part(made(), tmp_path / "part")
    again = load_part(tmp_path / "part")
    assert again.names == ("text", "free")
    for name in ("weights", "lengths", "counts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made(), name))
