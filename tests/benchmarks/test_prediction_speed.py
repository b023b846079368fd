"""The plain path of the benchmark is the oracle of the fast one: the same labels, whole or packed, alone or in a
batch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.prediction_speed import BATCH, K, measure, plain_path, synthetic, texts_for

from longtail.predictor import Predictor


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> list[Path]:
    return synthetic(300, 64, tmp_path_factory.mktemp("synthetic"))


@pytest.mark.parametrize("which", [0, 1, 2], ids=["float32", "float16", "int8"])
@pytest.mark.parametrize("documents", [1, 40])
def test_fast_and_plain_paths_agree(bundles: list[Path], which: int, documents: int) -> None:
    model = Predictor.open(bundles[which])
    plain = plain_path(model)
    assert plain is not None
    batch = model.bundle.featurizer.batch_of_texts(texts_for(model, "", documents))
    ours, theirs = model.bundle.ranker.rank(batch, K), plain(batch)
    np.testing.assert_allclose(ours.scores, theirs.scores, atol=1e-5)
    # Scores that differ by rounding only may change places.
    distinct = np.abs(np.diff(theirs.scores, axis=1, append=-1)) > 1e-5
    distinct[:, 1:] &= distinct[:, :-1]
    assert distinct.mean() > 0.9
    np.testing.assert_array_equal(ours.ids[distinct], theirs.ids[distinct])


def test_what_is_measured(bundles: list[Path]) -> None:
    found = measure(bundles[2], "", documents=5, batches=1)
    assert found["labels"] == 300
    assert found["bytes"] < sum(path.stat().st_size for path in bundles[2].rglob("*") if path.is_file())
    for name in ("single", f"batch_of_{BATCH}"):
        assert 0 < found[name]["least_ms"] <= found[name]["p50_ms"] <= found[name]["p99_ms"]
        assert found[name]["times_faster_than_plain"] == pytest.approx(
            found[name]["plain_p50_ms"] / found[name]["p50_ms"]
        )
    assert found["floor"]["bytes_of_rows"] == 300 * 64
    assert found["stages_single_ms"].keys() == {"features", "bag", "residual", "search", "names"}
