"""`LongtailClassifier`: longtail as an estimator of scikit-learn, for pipelines, cross-validation and grid searches.

    from longtail.sklearn import LongtailClassifier

    classifier = LongtailClassifier("tiny").fit(texts, [["physics"], ["art", "history"], ...])
    classifier.predict(["a text"])          # [["art"]]
    classifier.predict_top_k(["a text"])    # the best labels with their scores, whatever they are

Needs scikit-learn (``pip install 'longtail[sklearn]'``).
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.frames import columns_of, documents_of, is_frame, read_frame, values_of
from longtail.data.from_texts import binary_csr, shown
from longtail.errors import DataError, MissingExtra
from longtail.pipeline import train
from longtail.predictor import Predictor
from longtail.recipes import DEFAULT
from longtail.types import F32, I32, Csr, TopK

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
except ModuleNotFoundError as problem:
    raise MissingExtra("scikit-learn", "sklearn", "longtail.sklearn") from problem


class LongtailClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Tags texts with labels.

    ``fit(X, y)`` takes as X texts (a list, a Series, an array), dicts of text fields, or a frame with text columns;
    as y one of

    - a label per text: ``predict`` gives an array of labels;
    - a list (or set) of labels per text: ``predict`` gives lists;
    - an indicator matrix, dense, sparse or a frame whose columns are the labels: ``predict`` gives a matrix of this
      kind, sparse where it was sparse.

    Parameters
    ----------
    recipe: name of a method (``longtail recipes`` lists them).
    settings: nested values as in TOML, e.g. ``{"train": {"epochs": 10}}``. A search names one of them as
        ``settings__train__epochs``.
    text: text columns, where X is a frame; or a dict of columns and weights.
    label_texts: a text per label; without it a label that is a string is its own text.
    threshold: score from which on ``predict`` gives a label to a text, where texts may have several. Scores of recipes
        differ (``direct`` seldom gives 0.5 to what no similar training text has): choose it on texts apart.
    candidates: so many of the best labels of a text get a score in ``predict_proba``; all others count as 0.
    random_state: seed.  device: auto, cpu or cuda.  verbose: whether progress is shown.
    out: the run folder, which ``fit`` empties if it is one of an earlier fit. None: a temporary folder that lives as
        long as the fitted estimator. Leave it so in searches and ensembles: each fit needs a folder of its own.

    Attributes
    ----------
    classes_: (L,) the labels.  model_: the trained `longtail.Predictor`, whose ``save`` keeps it as a bundle.

    ``score`` is the share of texts whose best label is right: accuracy, or P@1 where texts have several. scikit-learn
    refuses lists of labels where it splits data by itself: give ``cv=KFold(5)`` in place of ``cv=5``, or an indicator
    matrix.

    A pickle of a fitted estimator holds the files of its bundle as bytes, and no code of the model. As with every
    pickle, open only what you trust; ``model_.save(folder)`` is the way to keep or share a model.
    """

    def __init__(
        self,
        recipe: str = DEFAULT,
        *,
        settings: Mapping[str, Any] | None = None,
        text: str | Sequence[str] | Mapping[str, float] | None = None,
        label_texts: Mapping[Any, str] | None = None,
        threshold: float = 0.5,
        candidates: int = 100,
        random_state: Any = 0,
        device: str = "auto",
        verbose: bool = False,
        out: str | Path | None = None,
    ) -> None:
        self.recipe = recipe
        self.settings = settings
        self.text = text
        self.label_texts = label_texts
        self.threshold = threshold
        self.candidates = candidates
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.out = out

    def set_params(self, **params: Any) -> LongtailClassifier:
        """As every estimator; ``settings__train__epochs=5`` sets one of the settings and keeps the others."""
        inner = {name: params.pop(name) for name in list(params) if name.startswith("settings__")}
        super().set_params(**params)
        if inner:
            self.settings = _merged(self.settings, inner)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags

    # ---- training ----

    def fit(self, X: Any, y: Any) -> LongtailClassifier:
        """Train on texts `X` with labels `y`."""
        targets = _targets(y)
        check_consistent_length(X, targets)
        uids = [str(label) for label in targets.classes]
        data = read_frame(
            X,
            text=self.text,
            labels=[[uids[number] for number in row] for row in targets.rows()],
            label_texts={uid: self._text_of(label) for uid, label in zip(uids, targets.classes, strict=True)},
            name="fit",
        )
        self.model_ = train(
            data,
            self.out,
            self.recipe,
            settings=self.settings,
            seed=_seed(self.random_state),
            device=self.device,
            restart=self.out is not None,
            progress=bool(self.verbose),
        )
        self.classes_, self._given_as = targets.classes, targets.form
        return self

    def _text_of(self, label: Any) -> str:
        own = label if isinstance(label, str) else ""
        return own if self.label_texts is None else self.label_texts.get(label, own)

    # ---- answers ----

    def predict(self, X: Any) -> Any:
        """The labels of every text, in the form of the y that was fitted (see the class)."""
        if self._checked()._given_as == "one":
            best = self._ranked(X, 1).ids[:, 0]
            # Of a text without a known word nothing can be said: the most frequent label.
            return self.classes_[np.where(best == TopK.PAD, np.argmax(self.model_.bundle.labels.counts), best)]
        top = self._ranked(X, self.candidates)
        chosen = (top.ids != TopK.PAD) & (top.scores >= self.threshold)
        self._warn_of_few(top, chosen)
        if self._given_as == "lists":
            return [self.classes_[ids[take]].tolist() for ids, take in zip(top.ids, chosen, strict=True)]
        matrix = _matrix(top, chosen, len(self.classes_)).astype(np.int64)
        return matrix if self._given_as == "sparse" else matrix.toarray()

    def _warn_of_few(self, top: TopK, chosen: NDArray[np.bool_]) -> None:
        """Scores of recipes differ, so that a threshold may be out of reach; nothing else would say so."""
        answered = (top.ids != TopK.PAD).any(axis=1)
        bare = int((answered & ~chosen.any(axis=1)).sum())
        if 2 * bare > len(answered):
            best = np.median(top.scores[answered, 0])
            warnings.warn(
                f"{bare} of {len(answered)} texts have no label with a score of {self.threshold:g} (threshold) or "
                f"more; their best ones have {best:.2f} in the middle. Set a lower threshold, or ask predict_top_k.",
                stacklevel=3,
            )

    def predict_proba(self, X: Any) -> Csr:
        """(texts, labels) CSR: the scores, between 0 and 1, of the `candidates` best labels of every text.

        Each label has a probability of its own; they do not sum to 1.
        """
        top = self._checked()._ranked(X, self.candidates)
        return _matrix(top, top.ids != TopK.PAD, len(self.classes_), top.scores)

    def predict_top_k(self, X: Any, k: int = 5) -> tuple[NDArray[Any], F32]:
        """The `k` best labels of every text, best first, and their scores: two arrays, a row per text.

        Where fewer labels were found, None and -inf fill the row.
        """
        top = self._checked()._ranked(X, k)
        labels = self.classes_.astype(object)[top.ids]
        labels[top.ids == TopK.PAD] = None
        return labels, top.scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of texts whose best label is one of theirs."""
        best, targets = self._checked()._ranked(X, 1).ids[:, 0], _targets(y)
        labels = [None if number == TopK.PAD else self.classes_[number] for number in best.tolist()]
        check_consistent_length(labels, targets)
        right = [
            label in {targets.classes[number] for number in row}
            for label, row in zip(labels, targets.rows(), strict=True)
        ]
        return float(np.average(right, weights=sample_weight))

    def _checked(self) -> LongtailClassifier:
        check_is_fitted(self, "model_")
        return self

    def _ranked(self, X: Any, k: int) -> TopK:
        # Labels have the numbers of `classes_`: they were all given with a text, in this order.
        return self.model_.rank(documents_of(X, self.text, self.model_.columns), k)

    # ---- pickles ----

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        model: Predictor | None = state.pop("model_", None)
        return state if model is None else {**state, "_bundle": model.files()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        files = state.pop("_bundle", None)
        super().__setstate__(state)
        if files is not None:
            self.model_ = Predictor.from_files(files)


# ---- targets ----


@dataclass(frozen=True)
class _GivenLabels:
    """Labels of texts as numbers.  form: one, lists, dense or sparse.  numbers: all rows' one after another."""

    form: str
    classes: NDArray[Any]
    numbers: Sequence[int]
    starts: Sequence[int]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def rows(self) -> list[Sequence[int]]:
        return [self.numbers[start:end] for start, end in itertools.pairwise(self.starts)]


def _targets(y: Any) -> _GivenLabels:
    from scipy.sparse import issparse

    if y is None:
        raise ValueError("LongtailClassifier requires y to be passed, but the target y is None")
    if issparse(y):
        return _of_matrix(y, np.arange(y.shape[1]), "sparse")
    if not hasattr(y, "__len__"):
        y = np.asarray(y)
    if is_frame(y):
        columns = columns_of(y)
        return _of_matrix(np.column_stack(list(columns.values())), np.array(list(columns), dtype=object), "dense")
    if getattr(y, "ndim", 1) == 2 and y.shape[1] > 1:
        return _of_matrix(np.asarray(y), np.arange(y.shape[1]), "dense")
    cells = values_of(column_or_1d(y, warn=True) if getattr(y, "ndim", 1) == 2 else y)
    lists = [isinstance(cell, list) for cell in cells]
    if any(lists) and not all(lists):
        row = lists.index(False)
        raise DataError(f"y[{row}] is {shown(cells[row])}, others are lists of labels", "give a list for every text")
    if any(lists):
        classes = sorted({label for labels in cells for label in labels})
        number = {label: position for position, label in enumerate(classes)}
        numbers = [number[label] for labels in cells for label in labels]
        return _GivenLabels("lists", _array(classes), numbers, [0, *itertools.accumulate(map(len, cells))])
    check_classification_targets(_array(cells))
    found, positions = np.unique(_array(cells), return_inverse=True)
    return _GivenLabels("one", found, positions.tolist(), range(len(cells) + 1))


def _of_matrix(matrix: Any, classes: NDArray[Any], form: str) -> _GivenLabels:
    from scipy.sparse import csr_array

    found = csr_array(matrix)
    found.sum_duplicates()
    found.eliminate_zeros()
    if np.any(found.data != 1):
        value = found.data[found.data != 1][0]
        raise DataError(f"y is a matrix that holds {value!r}, expected 0 and 1", "give 1 where a text has a label")
    return _GivenLabels(form, classes, found.indices.tolist(), found.indptr.tolist())


def _array(labels: Sequence[Any]) -> NDArray[Any]:
    """(n,) labels; strings are not padded to the longest of them."""
    return np.array(labels, dtype=object if any(isinstance(label, str) for label in labels) else None)


def _matrix(top: TopK, chosen: NDArray[np.bool_], width: int, scores: F32 | None = None) -> Csr:
    """(B, width) CSR of the chosen entries: their scores, or ones."""
    rows, places = np.nonzero(chosen)
    labels: I32 = top.ids[rows, places]
    matrix = binary_csr(rows, labels.astype(np.int64), (len(top), width))
    if scores is not None:
        matrix.data[:] = scores[rows, places][np.lexsort((labels, rows))]
    return matrix


# ---- parameters ----


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _merged(settings: Mapping[str, Any] | None, inner: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with those that ``settings__a__b`` names in place of what they were."""
    merged = copy.deepcopy(dict(settings or {}))
    for name, value in inner.items():
        *tables, last = name.split("__")[1:]
        table = merged
        for key in tables:
            table = table.setdefault(key, {})
        table[last] = value
    return merged
