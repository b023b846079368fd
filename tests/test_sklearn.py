"""`LongtailClassifier` is an estimator: it passes the checks of scikit-learn that can apply to texts."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

from longtail.data.dataset import Dataset
from longtail.errors import DataError, RunError
from longtail.predictor import Predictor
from longtail.sklearn import LongtailClassifier

ANIMALS = np.array(["bird", "cat", "dog", "fish"])
TEXTS = [f"{ANIMALS[n % 4]} {ANIMALS[n * 3 % 4]} noise{n % 7}" for n in range(40)]
LISTS = [sorted({str(ANIMALS[n % 4]), str(ANIMALS[n * 3 % 4])}) for n in range(40)]
FIRST = [str(ANIMALS[n % 4]) for n in range(40)]
MATRIX = MultiLabelBinarizer().fit_transform(LISTS)
ASKED = ["bird", "cat noise3 fish", ""]


def tiny(**parameters: Any) -> LongtailClassifier:
    return LongtailClassifier("tiny", **parameters)


# ---- the checks of scikit-learn ----


class OnNumbers(LongtailClassifier):
    """The checks ask with matrices of numbers, so the estimator under test reads numbers as words."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = False, False, True
        return tags

    def fit(self, X: Any, y: Any) -> LongtailClassifier:
        return super().fit(self._words(X, reset=True), y)

    def _ranked(self, X: Any, k: int) -> Any:
        return super()._ranked(self._words(X), k)

    def _words(self, X: Any, reset: bool = False) -> list[str]:
        numbers = np.rint(10 * validate_data(self, X, reset=reset)).astype(int)
        return [" ".join(f"c{column}v{number + 1000}" for column, number in enumerate(row)) for row in numbers.tolist()]


SPARSE = "scores are a sparse matrix: a dense one of documents x labels is never made"
FAILS = {
    "check_classifier_multioutput": SPARSE,
    "check_classifiers_multilabel_output_format_predict_proba": SPARSE,
    "check_classifiers_multilabel_representation_invariance": "lists are lists of labels, not rows of a matrix",
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [OnNumbers("tiny")], expected_failed_checks=lambda estimator: FAILS
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


# ---- forms of y ----


def test_a_label_per_text() -> None:
    for y in (FIRST, np.array(FIRST), pd.Series(FIRST), pl.Series(FIRST)):
        fitted = tiny().fit(TEXTS, y)
        assert fitted.classes_.tolist() == ANIMALS.tolist()
        assert fitted.predict(["bird", "dog"]).tolist() == ["bird", "dog"]
        assert fitted.score(TEXTS, y) > 0.9
    assert tiny().fit(TEXTS, FIRST).predict([""]).tolist()[0] in ANIMALS
    numbers = tiny().fit(TEXTS, np.arange(40) % 4)
    assert numbers.predict(TEXTS[:2]).dtype == numbers.classes_.dtype == np.int64


def test_lists_of_labels() -> None:
    for y in (LISTS, [set(labels) for labels in LISTS], pd.Series(LISTS), pl.Series(LISTS)):
        fitted = tiny().fit(TEXTS, y)
        assert fitted.classes_.tolist() == ANIMALS.tolist()
        assert fitted.predict(ASKED) == [["bird"], fitted.predict(ASKED[1:2])[0], []]
        assert fitted.score(TEXTS, y) == 1
    with pytest.warns(UserWarning, match=r"1 of 1 texts have no label with a score of 1.1 \(threshold\) or more"):
        assert tiny(threshold=1.1).fit(TEXTS, LISTS).predict(["bird"]) == [[]]


def test_a_matrix_gives_a_matrix_of_its_kind() -> None:
    dense = tiny().fit(TEXTS, MATRIX)
    assert dense.classes_.tolist() == [0, 1, 2, 3]
    assert dense.predict(ASKED).tolist()[0] == [1, 0, 0, 0]
    assert isinstance(dense.predict(ASKED), np.ndarray)
    for kind in (csr_array, csr_matrix):
        sparse = tiny().fit(TEXTS, kind(MATRIX)).predict(ASKED)
        assert issparse(sparse)
        assert sparse.toarray().tolist() == dense.predict(ASKED).tolist()
    named = tiny().fit(TEXTS, pd.DataFrame(MATRIX, columns=ANIMALS))
    assert named.classes_.tolist() == ANIMALS.tolist()
    assert named.predict_top_k(["bird"], 1)[0].tolist() == [["bird"]]
    with pytest.raises(DataError, match="expected 0 and 1"):
        tiny().fit(TEXTS, MATRIX * 2)


def test_scores_are_sparse_and_those_of_the_model() -> None:
    fitted = tiny().fit(TEXTS, LISTS)
    scores, (labels, best) = fitted.predict_proba(TEXTS), fitted.predict_top_k(TEXTS, 2)
    assert scores.shape == (40, 4)
    assert scores.has_sorted_indices
    for row, answer in enumerate(fitted.model_.predict(TEXTS, k=2)):
        assert labels[row, : len(answer)].tolist() == [one.label for one in answer]
        assert best[row, : len(answer)].tolist() == [one.score for one in answer]
        for one in answer:
            assert scores[row, fitted.classes_.tolist().index(one.label)] == np.float32(one.score)
    assert tiny(candidates=1).fit(TEXTS, LISTS).predict_proba(TEXTS).nnz == 40
    nothing = fitted.predict_top_k([""], 3)
    assert nothing[0].tolist() == [[None] * 3]
    assert np.isneginf(nothing[1]).all()


def test_frames_and_label_texts() -> None:
    frame = pd.DataFrame({"headline": TEXTS, "number": range(40)})
    fitted = tiny(text="headline", label_texts={"bird": "a feathered animal"}).fit(frame, LISTS)
    assert fitted.predict(frame.head(1)) == tiny().fit(TEXTS, LISTS).predict(TEXTS[:1])
    assert fitted.model_.predict(["bird"], k=1)[0][0].name == "a feathered animal"


# ---- an estimator among others ----


def test_cross_validation() -> None:
    assert is_classifier(tiny())
    for y, folds in ((FIRST, 3), (MATRIX, 3), (LISTS, KFold(3))):
        assert cross_val_score(tiny(), TEXTS, y, cv=folds).min() > 0.5
    assert cross_val_score(tiny(), TEXTS, MATRIX, cv=3, scoring="f1_micro").min() > 0.5


def test_a_search_over_a_setting() -> None:
    pipeline = make_pipeline(FunctionTransformer(lambda texts: [text.upper() for text in texts]), tiny())
    setting = "longtailclassifier__settings__classify__neighbours"
    search = GridSearchCV(pipeline, {setting: [1, 30], "longtailclassifier__threshold": [2.0, 0.3]}, cv=2)
    search.set_params(scoring="f1_micro").fit(TEXTS, MATRIX)
    assert search.best_params_["longtailclassifier__threshold"] == 0.3
    chosen = search.best_estimator_[-1]
    assert chosen.settings == {"classify": {"neighbours": search.best_params_[setting]}}
    assert chosen.model_.bundle.ranker.config.neighbours == search.best_params_[setting]


def test_parameters() -> None:
    settings = {"classify": {"neighbours": 7, "power": 2.0}}
    estimator = tiny(settings=settings)
    copied = clone(estimator).set_params(settings__classify__neighbours=3, threshold=0.2)
    assert copied.get_params()["settings"] == {"classify": {"neighbours": 3, "power": 2.0}}
    assert copied.threshold == 0.2
    assert estimator.settings is settings
    assert settings["classify"]["neighbours"] == 7
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        estimator.set_params(nonsense=1)
    assert repr(tiny(threshold=0.2)) == "LongtailClassifier(recipe='tiny', threshold=0.2)"


def test_before_fit_nothing_is_answered() -> None:
    for ask in (tiny().predict, tiny().predict_proba, tiny().predict_top_k):
        with pytest.raises(NotFittedError):
            ask(TEXTS)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        tiny().fit(TEXTS, LISTS[:-1])
    with pytest.raises(DataError, match=r"y\[1\] is 'cat', others are lists"):
        tiny().fit(["a", "b"], [["cat"], "cat"])


def test_a_pickle_holds_the_model(tmp_path: Path) -> None:
    fitted = tiny(out=tmp_path / "run").fit(TEXTS, LISTS)
    saved = pickle.dumps(fitted)
    assert b"Predictor" not in saved
    fitted.model_.bundle.folder.rename(tmp_path / "elsewhere")
    again = pickle.loads(saved)  # noqa: S301
    assert again.predict(TEXTS) == fitted.predict(TEXTS)
    assert isinstance(again.model_, Predictor)
    assert pickle.loads(pickle.dumps(again)).predict(ASKED) == fitted.predict(ASKED)  # noqa: S301
    assert pickle.loads(pickle.dumps(tiny())).get_params() == tiny().get_params()  # noqa: S301


def test_a_folder_is_used_again(tmp_path: Path) -> None:
    estimator = tiny(out=tmp_path / "run")
    assert estimator.fit(TEXTS, LISTS).fit(TEXTS[:20], FIRST[:20]).predict(["bird"]).tolist() == ["bird"]
    assert len(Predictor.open(tmp_path / "run").labels) == 4
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(RunError, match="not a run of longtail"):
        tiny(out=tmp_path / "mine").fit(TEXTS, LISTS)


def test_seeds() -> None:
    def seed(random_state: Any) -> Any:
        return tiny(random_state=random_state).fit(TEXTS, LISTS).model_.bundle.manifest["seed"]

    assert seed(7) == 7
    assert seed(np.random.RandomState(3)) == seed(np.random.RandomState(3))
    assert seed(None) != seed(None)


def test_a_network_is_trained_as_well(planted: Dataset, one_thread: None) -> None:
    texts = list(planted.train.documents.fields["title"])
    fitted = LongtailClassifier(settings={"train": {"epochs": 1}}, device="cpu").fit(texts, planted.train.targets)
    assert fitted.predict_proba(texts[:3]).shape == (3, 12)
    assert fitted.model_.recipe == "direct"


def test_without_scikit_learn_the_extra_is_named() -> None:
    code = "import sys; sys.modules['sklearn.base'] = None; import longtail.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "longtail.sklearn needs the package 'scikit-learn'" in done.stderr
    assert "pip install 'longtail[sklearn]'" in done.stderr
