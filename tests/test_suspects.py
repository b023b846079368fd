"""Wrong and missing labels that were planted are found, where the right answer is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

import longtail
from longtail.data.dataset import Dataset
from longtail.data.from_texts import binary_csr
from longtail.evaluation import Yardstick, rank_test
from longtail.predictor import Predictor
from longtail.suspects import Suspects, suspects
from longtail.training.progress import SilentDisplay
from longtail.types import I64

WORDS = 80
Pairs: TypeAlias = set[tuple[int, str]]
Noisy: TypeAlias = tuple[Predictor, Dataset, Pairs, Pairs]


def noisy(share: float, seed: int = 0) -> tuple[Dataset, Pairs, Pairs]:
    """Documents say words of their labels, which are more and less frequent; of all pairs, in training and in test,
    `share` have another label, and as many again are lost. Gives the wrong and the lost ones of test.
    """
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, WORDS + 1) ** 0.7
    chances /= chances.sum()

    def documents(count: int) -> tuple[list[str], list[list[str]], Pairs, Pairs]:
        texts, labels, wrong, lost = [], [], set(), set()
        for row in range(count):
            right = rng.choice(WORDS, size=int(rng.integers(2, 4)), replace=False, p=chances)
            said = [f"word{one} topic{one}" if rng.random() < 0.8 else f"topic{one}" for one in right]
            texts.append(" ".join([*said, *(f"noise{rng.integers(300)}" for _ in range(4))]))
            given: set[int] = set()
            for one in right.tolist():
                what = rng.random()
                if what < share:
                    one = int(rng.choice(WORDS, p=chances))
                    if one not in right and one not in given:
                        wrong.add((row, f"L{one}"))
                elif what < 2 * share and given:
                    lost.add((row, f"L{one}"))
                    continue
                given.add(one)
            labels.append([f"L{one}" for one in sorted(given)])
        return texts, labels, wrong, lost

    texts, labels, *_ = documents(1500)
    test_texts, test_labels, wrong, lost = documents(500)
    names = {f"L{number}": f"label {number}" for number in range(WORDS)}
    data = Dataset.from_texts(texts, labels, names, test_texts=test_texts, test_labels=test_labels)
    return data, wrong, lost


def look(model: Predictor, data: Dataset) -> Suspects:
    yardstick = Yardstick.of(data)
    return suspects(model, yardstick, rank_test(model, yardstick, SilentDisplay()))


@pytest.fixture(scope="module")
def planted_errors(tmp_path_factory: pytest.TempPathFactory) -> Noisy:
    data, wrong, lost = noisy(0.05)
    return longtail.train(data, tmp_path_factory.mktemp("noisy") / "run", "tiny"), data, wrong, lost


def share_in_first_tenth(rows: I64, labels: I64, data: Dataset, planted: set[tuple[int, str]]) -> float:
    first = {(int(row), data.labels.uids[int(label)]) for row, label in zip(rows, labels, strict=True)}
    return len(planted & first) / len(planted)


def test_seventy_percent_of_planted_wrong_labels_are_in_the_first_tenth(
    planted_errors: Noisy,
) -> None:
    model, data, wrong, _ = planted_errors
    given = look(model, data).given
    assert len(given) == data.need_test().targets.nnz
    assert len(wrong) > 40
    tenth = len(given) // 10
    assert share_in_first_tenth(given.rows[:tenth], given.labels[:tenth], data, wrong) >= 0.7
    # The measure means something: by chance a tenth of them would be there, and the end of the list has hardly any.
    assert share_in_first_tenth(given.rows[-tenth:], given.labels[-tenth:], data, wrong) < 0.05


def test_lost_labels_are_in_the_first_tenth_of_missing_ones(
    planted_errors: Noisy,
) -> None:
    model, data, _, lost = planted_errors
    missing = look(model, data).missing
    tenth = len(missing) // 10
    assert len(lost) > 20
    assert share_in_first_tenth(missing.rows[:tenth], missing.labels[:tenth], data, lost) >= 0.7


def test_lists_are_sorted_and_hold_each_pair_once(planted_errors: Noisy) -> None:
    model, data, *_ = planted_errors
    truth = data.need_test().targets.toarray() > 0
    found = look(model, data)
    for pairs, given in ((found.given, True), (found.missing, False)):
        assert np.all(np.diff(pairs.doubts) <= 0)
        assert (truth[pairs.rows, pairs.labels] == given).all()
        assert len({*zip(pairs.rows.tolist(), pairs.labels.tolist(), strict=True)}) == len(pairs)


def test_masked_pairs_and_unknown_labels_are_not_looked_at(
    planted_errors: Noisy,
) -> None:
    model, data, *_ = planted_errors
    test = data.need_test()
    masked = np.stack([np.zeros(1), test.targets.indices[:1]], axis=1).astype(np.int64)
    pair = (0, int(masked[0, 1]))
    seen = look(model, replace(data, test=replace(test, masked=masked)))
    for pairs in (seen.given, seen.missing):
        assert pair not in set(zip(pairs.rows.tolist(), pairs.labels.tolist(), strict=True))


def test_scores_are_those_of_the_model_also_far_down(planted_folder: Path, direct_run: Path, planted: Dataset) -> None:
    """`direct` scores every label: lists that are cut at one place give the same doubts as whole ones."""
    model, yardstick = Predictor.open(direct_run), Yardstick.of(planted)
    whole = rank_test(model, yardstick, SilentDisplay())
    short = replace(whole, ids=whole.ids[:, :1], scores=whole.scores[:, :1])
    a, b = (suspects(model, yardstick, top).given for top in (whole, short))
    scores = {(row, label): score for row, label, score in zip(a.rows, a.labels, a.scores, strict=True)}
    assert len(scores) == len(b)
    for row, label, score in zip(b.rows, b.labels, b.scores, strict=True):
        assert score == pytest.approx(scores[row, label], abs=1e-5)


def test_a_document_of_which_the_model_says_nothing_is_left_out(
    planted_errors: Noisy,
) -> None:
    model, data, *_ = planted_errors
    test = data.need_test()
    texts = {name: ["???", *values[1:]] for name, values in test.documents.fields.items()}
    silent = replace(data, test=replace(test, documents=replace(test.documents, fields=texts)))
    found = look(model, silent)
    assert 0 not in found.given.rows
    assert 0 not in found.missing.rows
    assert binary_csr(found.given.rows, found.given.labels, test.targets.shape).nnz == len(found.given)


def test_a_calibrated_model_has_the_same_suspects(tmp_path: Path) -> None:
    """Probabilities far down are all alike: what is compared are the model's own scores."""
    from longtail.calibrating import calibrate

    data, *_ = noisy(0.05)
    longtail.train(data, tmp_path / "run", "tiny", holdout=0.3)
    before = look(Predictor.open(tmp_path / "run"), data)
    calibrate(tmp_path / "run", data)
    model = Predictor.open(tmp_path / "run")
    assert model.calibration is not None
    after = look(model, data)
    for a, b in ((before.given, after.given), (before.missing, after.missing)):
        assert a.rows.tolist() == b.rows.tolist()
        assert a.scores.tolist() == b.scores.tolist()
