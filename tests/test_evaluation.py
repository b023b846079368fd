"""Measuring a model: against masked truth, in the label numbers of the data, with weights from its training split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from longtail import metrics
from longtail.data.dataset import Dataset, Items, Split
from longtail.data.matrices import save_csr
from longtail.errors import BundleError, DataError
from longtail.evaluation import (
    Yardstick,
    baselines,
    evaluate,
    labels_it_lacks,
    predictions,
    quantiles,
    rank_test,
    read_predictions,
    renumbered,
)
from longtail.predictor import Predictor
from longtail.report import table
from longtail.training.progress import SilentDisplay
from longtail.types import TopK

QUIET = SilentDisplay()


def top(ids: list[list[int]]) -> TopK:
    array = np.array(ids, dtype=np.int32)
    scores = np.where(array >= 0, -np.arange(array.shape[1]), -np.inf)
    return TopK(array, scores.astype(np.float32))


def random_top(n: int, labels: int, k: int, seed: int = 0) -> TopK:
    rng = np.random.default_rng(seed)
    return top([rng.permutation(labels)[:k].tolist() for _ in range(n)])


# ---- labels by id ----


def test_the_same_labels_keep_their_numbers() -> None:
    given = top([[1, 0]])
    assert renumbered(given, ["a", "b"], ("a", "b")) is given


def test_labels_are_matched_by_id() -> None:
    found = renumbered(top([[0, 1, 2], [2, 0, -1]]), ["a", "b", "c"], ["c", "x", "a", "b"])
    assert found.ids.tolist() == [[2, 3, 0], [0, 2, -1]]
    assert found.scores.tolist() == [[0, -1, -2], [0, -1, -np.inf]]
    assert found.ids.dtype == np.int32
    assert found.scores.dtype == np.float32


def test_labels_that_the_data_does_not_know_make_room_for_the_next() -> None:
    found = renumbered(top([[0, 1, 2, 3], [3, 2, 1, -1]]), ["gone", "b", "lost", "d"], ["d", "b"])
    assert found.ids.tolist() == [[1, 0, -1, -1], [0, 1, -1, -1]]
    assert found.scores.tolist() == [[-1, -3, -np.inf, -np.inf], [0, -2, -np.inf, -np.inf]]


def test_a_model_of_other_labels_is_refused() -> None:
    with pytest.raises(BundleError, match=r"none of the labels .* e\.g\. 'a', the data has 'x'") as caught:
        renumbered(top([[0]]), ["a"], ["x", "y"])
    assert "same label ids" in caught.value.hint


def test_the_order_of_labels_in_the_data_does_not_matter(tiny_run: Path, planted: Dataset) -> None:
    order = np.random.default_rng(0).permutation(len(planted.labels))
    shuffled = replace(
        planted,
        labels=planted.labels.rows(order),
        train=replace(planted.train, targets=planted.train.targets[:, order]),
        test=replace(planted.need_test(), targets=planted.need_test().targets[:, order]),
    )
    before, after = (evaluate(Predictor.open(tiny_run), data) for data in (planted, shuffled))
    assert before["P@1"] == 100, "or a wrong match would not show"
    for name in ("P@1", "P@5", "nDCG@5", "PSP@5", "R@100"):
        assert after[name] == pytest.approx(before[name])


# ---- masked pairs ----


def with_masked(data: Dataset, masked: Any) -> Dataset:
    return replace(data, test=replace(data.need_test(), masked=np.array(masked, dtype=np.int64).reshape(-1, 2)))


def test_enough_is_asked_for_when_masked_pairs_are_gone(planted: Dataset) -> None:
    assert Yardstick.of(planted).depth == 100
    assert Yardstick.of(with_masked(planted, [[3, 0], [3, 1], [5, 2], [3, 4]])).depth == 103


def test_a_model_is_asked_as_deep_as_that(planted: Dataset) -> None:
    asked: list[int] = []

    def rank(documents: Items, k: int, on_block: Any, context: Any) -> TopK:
        assert context is None
        asked.append(k)
        return random_top(len(documents), 12, min(k, 12))

    model: Any = SimpleNamespace(
        rank=rank, columns=None, bundle=SimpleNamespace(labels=SimpleNamespace(uids=planted.labels.uids))
    )
    yardstick = Yardstick.of(with_masked(planted, [[3, 0], [3, 1]]))
    assert rank_test(model, yardstick, QUIET).ids.shape == (30, 12)
    assert asked == [102]


def test_masked_pairs_count_neither_as_right_nor_as_wrong() -> None:
    documents = Items(["d0", "d1"], {"title": ["x", "y"]})
    truth = csr_array(np.array([[1, 1, 0, 0], [0, 0, 1, 0]], dtype=np.float32))
    data = Dataset(
        "two", Items(list("abcd")), Split(documents, truth), Split(documents, truth, np.array([[0, 1], [1, 3]]))
    )
    # Document 0: its masked true label is first. Document 1: a masked wrong label is first.
    scores = Yardstick.of(data).score(top([[1, 0, 2, 3], [3, 2, 0, 1]]))
    assert scores["P@1"] == 100
    assert scores["P@3"] == pytest.approx(100 / 3)
    assert scores["R@10"] == 100
    assert (
        Yardstick.of(replace(data, test=Split(documents, truth))).score(top([[1, 0, 2, 3], [3, 2, 0, 1]]))["P@1"] == 50
    )


def test_propensities_come_from_the_training_split_without_masked_pairs(planted: Dataset) -> None:
    pairs = np.argwhere(planted.train.targets.toarray())[:25]
    yardstick = Yardstick.of(replace(planted, train=replace(planted.train, masked=pairs)))
    counts = planted.train.targets.toarray().sum(axis=0) - np.bincount(pairs[:, 1], minlength=12)
    np.testing.assert_array_equal(yardstick.counts, counts)
    np.testing.assert_allclose(yardstick.inverse_propensity, metrics.inverse_propensities(counts, 120, 0.55, 1.5))
    assert yardstick.about()["propensity"] == {"A": 0.55, "B": 1.5, "family": "default"}
    assert Yardstick.of(replace(planted, name="LF-AmazonTitles-131K")).about()["propensity"]["A"] == 0.6


def test_data_without_test_documents_is_refused(planted: Dataset) -> None:
    with pytest.raises(DataError, match="no test documents"):
        Yardstick.of(replace(planted, test=None))


# ---- the whole ----


def test_a_result_says_what_it_belongs_to(tiny_run: Path, planted: Dataset) -> None:
    result = evaluate(Predictor.open(tiny_run), planted)
    assert {f"{metric}@{k}" for metric in ("P", "nDCG", "PSP", "PSnDCG", "R", "FN") for k in (1, 3, 5)} <= result.keys()
    assert (result["data"], result["data_hash"], result["n_test"], result["n_labels"]) == (
        "planted",
        planted.digest,
        30,
        12,
    )
    assert result["model"]["recipe"] == "tiny"
    assert result["model"]["data"]["digest"] == planted.digest.partition("+")[0]
    by_hand = metrics.score(
        Predictor.open(tiny_run).rank(planted.need_test().documents, 100),
        planted.need_test().targets,
        Yardstick.of(planted).inverse_propensity,
    )
    assert {name: result[name] for name in by_hand} == by_hand


@pytest.mark.parametrize("masked", [[], [[0, 1], [0, 2], [4, 4]]])
def test_contributions_of_label_bins_sum_to_the_whole(masked: Any, planted: Dataset) -> None:
    data = with_masked(planted, masked)
    yardstick, guesses = Yardstick.of(data), random_top(30, 12, 12)
    whole, found = yardstick.score(guesses), quantiles(guesses, yardstick)
    assert found.keys() == metrics.CONVENTIONS.keys()
    for convention, parts in found.items():
        assert sum(parts["n_labels"]) == 12
        assert len(parts["bins"]) == len(parts["n_labels"]) == len(parts["mean_frequency"])
        for metric in ("P@5", "PSP@5", "FN@5"):
            assert sum(parts[metric]) == pytest.approx(whole[metric]), (convention, metric)
    assert 0 < whole["P@5"] < 50


def test_baselines_are_the_most_frequent_labels_and_the_nearest_documents(planted: Dataset, tiny_run: Path) -> None:
    yardstick = Yardstick.of(planted)
    found = baselines(planted, yardstick)
    frequent = found["most frequent labels"]
    assert frequent.ids.shape == (30, 12)
    counts = yardstick.counts[frequent.ids]
    assert (np.diff(counts, axis=1) <= 0).all()
    assert (np.diff(frequent.scores, axis=1) < 0).all()
    nearest, of_the_recipe = (
        found["TF-IDF nearest neighbours"],
        Predictor.open(tiny_run).rank(planted.need_test().documents, 12),
    )
    np.testing.assert_array_equal(nearest.ids, of_the_recipe.ids)


def test_a_table_has_a_row_per_metric_and_a_column_per_model(planted: Dataset) -> None:
    yardstick = Yardstick.of(planted)
    scores = yardstick.score(random_top(30, 12, 12))
    lines = table({"ours": scores, "a name longer than numbers": dict.fromkeys(scores, 0.0)}).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "P@1",
        "P@3",
        "P@5",
        "nDCG@1",
        "nDCG@3",
        "nDCG@5",
        "PSP@1",
        "PSP@3",
        "PSP@5",
        "F1@1",
        "F1@3",
        "F1@5",
        "R@10",
        "R@100",
        "MacroF1@5",
        "Coverage@5",
    ]
    assert lines[3].split() == ["P@5", f"{scores['P@5']:.2f}", "0.00"]
    assert len({len(line) for line in lines}) == 1


def test_f1_at_a_threshold_is_measured_where_one_is_given(tiny_run: Path, planted: Dataset) -> None:
    model = Predictor.open(tiny_run)
    without = evaluate(model, planted)
    assert without["threshold"] is None
    assert "MicroF1" not in without
    assert {"F1@5", "MacroF1@5", "MacroP@1", "MacroR@3", "Coverage@1"} <= without.keys()
    low, high = (evaluate(model, planted, threshold=t) for t in (0.2, 1e9))
    assert low["threshold"] == 0.2
    assert low["MicroF1"] > 50
    assert high["MicroF1"] == high["MacroF1"] == 0
    lines = table({"ours": low, "a baseline": without}).splitlines()
    assert lines[-2].split() == ["MicroF1", f"{low['MicroF1']:.2f}"]
    assert len({len(line) for line in lines}) == 1


# ---- prediction files ----


def test_a_prediction_file_is_read_as_ranked_labels(planted: Dataset, tmp_path: Path) -> None:
    guesses = random_top(30, 12, 4)
    save_npz(tmp_path / "p.npz", metrics.to_csr(guesses, 12))
    found = read_predictions(tmp_path / "p.npz", planted)
    np.testing.assert_array_equal(found.ids, guesses.ids)
    np.testing.assert_array_equal(predictions(tmp_path / "p.npz", Yardstick.of(planted), QUIET).ids, guesses.ids)


def test_rows_of_a_prediction_file_are_found_by_their_ids(planted: Dataset, tmp_path: Path) -> None:
    guesses, uids = random_top(30, 12, 4), [f"d{row}" for row in range(30)]
    matrix, test = metrics.to_csr(guesses, 12), planted.need_test()
    given = replace(planted, test=replace(test, documents=replace(test.documents, uids=uids)))

    def put(matrix: csr_array, ids: list[str] | list[bytes]) -> Path:
        save_csr(tmp_path / "p.npz", matrix, ids=np.array(ids))
        return tmp_path / "p.npz"

    for file in (put(matrix, uids), put(matrix[::-1], [uid.encode() for uid in uids[::-1]])):
        np.testing.assert_array_equal(read_predictions(file, given).ids, guesses.ids)
    numbers = [str(row) for row in range(30)]
    np.testing.assert_array_equal(read_predictions(put(matrix, numbers), given).ids, guesses.ids)
    assert list(test.documents.uids)[:2] == ["test-0", "test-1"]  # the data have no ids
    np.testing.assert_array_equal(read_predictions(put(matrix, uids), planted).ids, guesses.ids)
    for foreign in (["r0", *uids[1:]], [uids[1], *uids[1:]], uids[:-1]):
        with pytest.raises(DataError, match="ids of the predictions are not those of the test documents"):
            read_predictions(put(matrix, foreign), given)
    with pytest.raises(DataError, match="ids of its rows cannot be read"):
        read_predictions(put(matrix, [b"\xff"] * 30), given)


def test_a_prediction_file_may_be_empty(planted: Dataset, tmp_path: Path) -> None:
    save_npz(tmp_path / "p.npz", csr_array((30, 12), dtype=np.float32))
    assert Yardstick.of(planted).score(read_predictions(tmp_path / "p.npz", planted))["P@1"] == 0


@pytest.mark.parametrize("shape", [(29, 12), (30, 13), (12, 30)])
def test_a_prediction_file_of_another_shape_is_refused(
    shape: tuple[int, int], planted: Dataset, tmp_path: Path
) -> None:
    save_npz(tmp_path / "p.npz", csr_array(np.ones(shape, dtype=np.float32)))
    with pytest.raises(DataError, match=r"p\.npz.*the data has 30 test documents and 12 labels") as caught:
        read_predictions(tmp_path / "p.npz", planted)
    assert str(shape) in caught.value.message
    assert caught.value.file == tmp_path / "p.npz"


def test_a_model_is_asked_where_a_run_is_given(tiny_run: Path, planted: Dataset) -> None:
    found = predictions(Predictor.open(tiny_run), Yardstick.of(planted), QUIET)
    np.testing.assert_array_equal(found.ids, Predictor.open(tiny_run).rank(planted.need_test().documents, 12).ids)


def test_labels_of_the_truth_that_the_model_lacks_are_counted(
    tiny_run: Path, planted: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, yardstick = Predictor.open(tiny_run), Yardstick.of(planted)
    assert labels_it_lacks(model, yardstick) is None
    uids = [uid.upper() if n < 2 else uid for n, uid in enumerate(planted.labels.uids)]
    said = labels_it_lacks(model, Yardstick.of(replace(planted, labels=replace(planted.labels, uids=uids))))
    share = 100 * (yardstick.truth.indices < 2).mean()
    assert said == (
        f"warning: 2 labels of the test documents ({share:.1f}% of the pairs) are not in the model, such as "
        f"'{uids[0]}', '{uids[1]}'; they count as misses in every metric"
    )
    monkeypatch.setattr("longtail.evaluation.MANY_LACKING", 0.9)
    few = labels_it_lacks(model, Yardstick.of(replace(planted, labels=replace(planted.labels, uids=uids))))
    assert few == said.replace("warning", "note")


def test_a_test_side_that_training_has_seen_is_doubted(tiny_run: Path, planted: Dataset) -> None:
    said: list[str] = []

    class Heard(SilentDisplay):
        def say(self, line: str) -> None:
            said.append(line)

    result = evaluate(tiny_run, planted, Heard())
    assert result["test_texts_in_training"] <= 0.1 * len(planted.need_test())
    assert not [line for line in said if "memory" in line]
    result = evaluate(tiny_run, replace(planted, test=planted.train), Heard())
    assert result["test_texts_in_training"] == len(planted.train)
    assert [line for line in said if line.startswith(f"warning: {len(planted.train)} of {len(planted.train)} test")]
