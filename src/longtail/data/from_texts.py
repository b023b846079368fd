"""A `Dataset` from Python lists, and the step that every format with string labels shares: giving labels their numbers.

Label order, so that numbers are stable: labels that come with a text (or a labels file) first, in the order given;
then the other labels of the training documents, sorted by id. Without any label text it is simply the sorted ids of
training.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.identity import digest
from longtail.errors import DataError
from longtail.types import I64, Csr

UNKNOWN_TO_TRAINING = "labels of test documents that training does not know, dropped from the truth"


@dataclass(frozen=True)
class Labelled:
    """Documents with the ids of their labels, before labels have numbers; groups: see `Split`."""

    documents: Items
    labels: Sequence[Sequence[str]]
    groups: Sequence[str] | None = None


@dataclass(frozen=True)
class Numbered:
    """Labels with numbers, and documents with targets in these numbers. repairs: what was mended."""

    labels: Items
    train: Split
    test: Split | None
    repairs: Counter[str]


def numbered(train: Labelled, test: Labelled | None = None, known: Items | None = None) -> Numbered:
    """Give labels their numbers.

    known: labels with their text, which come first and in this order; they need not occur in any document.
    Repairs, counted: a label twice in one document is merged; labels of test documents that are neither in `known`
    nor in training are dropped from the truth; labels of training that `known` lacks are added without text.
    """
    labels, added = label_space(train.labels, known)
    number = {uid: position for position, uid in enumerate(labels.uids)}
    targets, _, repeated = targets_of(train.labels, number)
    split, unknown = None, 0
    if test is not None:
        truth, unknown, again = targets_of(test.labels, number)
        split, repeated = Split(test.documents, truth), repeated + again
    repairs = {
        "labels of training documents without an entry among the label texts, added without text": added,
        "labels given twice to one document, merged": repeated,
        UNKNOWN_TO_TRAINING: unknown,
    }
    return Numbered(labels, Split(train.documents, targets, groups=train.groups), split, Counter(repairs))


def assembled(name: str, parts: Numbered, graphs: Mapping[str, Graph] | None = None) -> Dataset:
    """A data set with the repairs that all formats share: anchors that are test documents and training documents
    without text go.
    """
    from longtail.data.folders import finished
    from longtail.data.graph_files import drop_test_anchors

    clean: dict[str, Graph] = {}
    for key, graph in (graphs or {}).items():
        clean[key], dropped = (graph, 0) if parts.test is None else drop_test_anchors(graph, parts.test.documents)
        parts.repairs["anchors of graphs that are test documents, dropped"] += dropped
    return finished(name, parts.labels, parts.train, parts.test, clean, parts.repairs)


def with_digest(dataset: Dataset) -> Dataset:
    return replace(dataset, digest=digest(dataset))


def label_space(labels: Sequence[Sequence[str]], known: Items | None) -> tuple[Items, int]:
    """All labels in their order, and how many had to be added to `known`."""
    used = {uid for uids in labels for uid in uids}
    if known is None:
        uids = sorted(used)
        # In a list or table the id of a label is usually its name, so it serves as text where no other text is given.
        return Items(uids, {"title": uids}), 0
    added = sorted(used.difference(known.uids))
    if not added:
        return known, 0
    return Items(
        [*known.uids, *added], {name: [*texts, *[""] * len(added)] for name, texts in known.fields.items()}
    ), len(added)


def targets_of(
    labels: Sequence[Sequence[str]], number: Mapping[str, int], size: int | None = None
) -> tuple[Csr, int, int]:
    """(N, L) CSR float32 of ones from label ids; how many (document, label) pairs are unknown to `number`; how many
    are repeated. size: L, where it is not that of `number`.
    """
    lengths = np.fromiter((len(uids) for uids in labels), dtype=np.int64, count=len(labels))
    columns = np.fromiter(
        (number.get(uid, -1) for uids in labels for uid in uids), dtype=np.int64, count=int(lengths.sum())
    )
    rows = np.repeat(np.arange(len(labels), dtype=np.int64), lengths)
    known = columns >= 0
    targets = binary_csr(rows[known], columns[known], (len(labels), len(number) if size is None else size))
    return targets, int((~known).sum()), int(known.sum()) - int(targets.nnz)


def binary_csr(rows: I64, columns: I64, shape: tuple[int, int]) -> Csr:
    """CSR float32 of ones at the given places: rows sorted, no duplicates."""
    from scipy.sparse import csr_array

    width = max(shape[1], 1)
    places = np.sort(
        rows * width + columns, kind="stable"
    )  # mostly sorted already, which this kind is fast on; np.unique hashes
    if len(places):
        places = places[np.concatenate([[True], places[1:] != places[:-1]])]
    indptr = np.zeros(shape[0] + 1, dtype=np.int32 if len(places) < 2**31 else np.int64)
    np.cumsum(np.bincount(places // width, minlength=shape[0]), out=indptr[1:])
    return csr_array(
        (np.ones(len(places), dtype=np.float32), (places % width).astype(indptr.dtype), indptr), shape=shape
    )


def shown(value: Any) -> str:
    """A value for an error message, cut if it is long."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} of very many levels"
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_whole(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON escapes can hold half of a character."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def mended(text: str) -> str:
    """With U+FFFD in place of every half of a character."""
    return text if is_whole(text) else re.sub("[\ud800-\udfff]", "\ufffd", text)


# ---- Python lists ----


def from_texts(
    texts: Sequence[str] | Sequence[Mapping[str, str]],
    labels: Sequence[Sequence[str]],
    label_texts: Mapping[str, str] | None = None,
    graphs: Mapping[str, Any] | None = None,
    *,
    test_texts: Sequence[str] | Sequence[Mapping[str, str]] | None = None,
    test_labels: Sequence[Sequence[str]] | None = None,
    name: str = "texts",
) -> Dataset:
    """Documents and their label ids as lists. Everything is checked here, and errors name the index and the value.

    texts: a string per document, or a dict of text fields (``{"title": ..., "content": ...}``).
    labels: a list of label ids (strings) per document; it may be empty.
    label_texts: a text for each label id, also for labels without documents. Without it the id itself is the text.
    graphs: by name a `Graph`, or a pair (documents x anchors, labels x anchors) of sparse arrays of which one may be
        None,
        or one sparse labels x labels array. Rows of labels follow `Dataset.labels.uids` (see the top of this file).
    Repairs, counted: see `numbered` and `assembled`.
    """
    known = None if label_texts is None else _labels_with_text(label_texts)
    train = _labelled(texts, labels, "texts", "labels", "train")
    test = None
    if test_texts is not None or test_labels is not None:
        if test_texts is None or test_labels is None:
            missing, given = ("test_texts", "test_labels") if test_texts is None else ("test_labels", "test_texts")
            raise DataError(f"{given} is given without {missing}", "give both, one entry per test document")
        test = _labelled(test_texts, test_labels, "test_texts", "test_labels", "test")
    parts = numbered(train, test, known)
    return assembled(name, parts, {key: _graph(key, given, parts) for key, given in (graphs or {}).items()})


def _labelled(texts: Any, labels: Any, texts_name: str, labels_name: str, prefix: str) -> Labelled:
    for value, name in ((texts, texts_name), (labels, labels_name)):
        if isinstance(value, str | bytes | Mapping | Set) or not hasattr(value, "__len__"):
            raise DataError(
                f"{name} is a {type(value).__name__}, expected a list",
                f"give {name} as a list with one entry per document",
            )
    texts, labels = list(texts), list(labels)  # a series of pandas counts its rows from anywhere
    if len(texts) != len(labels):
        raise DataError(
            f"{len(texts)} {texts_name} and {len(labels)} {labels_name}",
            "give one list of labels per text; an empty list where there is none",
        )
    if not len(texts):
        raise DataError(f"{texts_name} is empty", "give at least one document")
    for index, uids in enumerate(labels):
        _check_label_list(uids, f"{labels_name}[{index}]")
    return Labelled(Items([f"{prefix}-{index}" for index in range(len(texts))], _fields(texts, texts_name)), labels)


def _check_label_list(uids: Any, place: str) -> None:
    if isinstance(uids, str | bytes | Mapping) or not hasattr(uids, "__len__"):
        raise DataError(
            f"{place} is {shown(uids)}, expected a list of label ids",
            "write a list per document, also for a single label: ['physics']",
        )
    for uid in uids:
        if not isinstance(uid, str) or not uid.strip() or not is_whole(uid):
            raise DataError(
                f"{place} holds {shown(uid)}, expected a label id (a string that is not blank)",
                "turn label ids into strings: str(id)",
            )


def _fields(texts: Any, place: str) -> dict[str, list[str]]:
    """One list per text field; plain strings are titles. The first document says which of the two all are."""
    form: type = str if isinstance(texts[0], str) else Mapping
    for index, text in enumerate(texts):
        if not isinstance(text, form):
            expected = (
                "a string or a dict of text fields"
                if index == 0
                else "a string, as the first"
                if form is str
                else "a dict of text fields, as the first"
            )
            raise DataError(
                f"{place}[{index}] is {shown(text)}, expected {expected}",
                'give strings, or {"title": "...", "content": "..."} everywhere',
            )
    fields = {"title": list(texts)} if form is str else _fields_of_dicts(texts, place)
    for values in fields.values():
        for index, value in enumerate(values):
            if not is_whole(value):
                raise DataError(
                    f"{place}[{index}] holds half a character: {shown(value)}",
                    "the text was cut in the middle of a character",
                )
    return fields


def _fields_of_dicts(texts: Any, place: str) -> dict[str, list[str]]:
    names: dict[str, None] = {}
    for index, text in enumerate(texts):
        for field, value in text.items():
            if not isinstance(field, str) or not isinstance(value, str):
                raise DataError(
                    f"{place}[{index}] has {shown(field)}: {shown(value)}, expected strings",
                    "leave out a field that is empty",
                )
        names.update(dict.fromkeys(text))
    return {field: [text.get(field, "") for text in texts] for field in names}


def _labels_with_text(label_texts: Any) -> Items:
    if not isinstance(label_texts, Mapping):
        raise DataError(
            f"label_texts is a {type(label_texts).__name__}, expected a dict", 'give {"label id": "its text", ...}'
        )
    for uid, text in label_texts.items():
        if not isinstance(uid, str) or not uid.strip() or not isinstance(text, str) or not is_whole(uid + text):
            raise DataError(
                f"label_texts has {shown(uid)}: {shown(text)}, expected strings",
                "make ids and texts strings; '' where there is no text",
            )
    return Items(list(label_texts), {"title": list(label_texts.values())})


def _graph(name: str, given: Any, parts: Numbered) -> Graph:
    """A graph in one of the accepted forms, checked against the data set."""
    from scipy.sparse import issparse

    if issparse(given):
        graph = Graph(name, label_label=given)
    elif isinstance(given, Graph):
        graph = given
    elif (
        isinstance(given, tuple)
        and len(given) == 2
        and all(side is None or issparse(side) for side in given)
        and any(side is not None for side in given)
    ):
        graph = Graph(name, documents=given[0], labels=given[1])
    else:
        forms = (
            "a Graph, a pair (documents x anchors, labels x anchors) of sparse arrays, or a sparse labels x "
            "labels array"
        )
        raise DataError(
            f"graph '{name}' is {shown(given)}, expected {forms}",
            "scipy.sparse.csr_array turns a dense array into a sparse one",
        )
    n, size = len(parts.train), len(parts.labels)
    sides = {
        "documents": _side(graph.documents, name, "documents", n, "training documents"),
        "labels": _side(graph.labels, name, "labels", size, "labels"),
        "label_label": _side(graph.label_label, name, "label_label", size, "labels"),
    }
    columns = {side: matrix.shape[1] for side, matrix in sides.items() if matrix is not None}
    if columns.get("label_label", size) != size:
        raise DataError(
            f"graph '{name}' has {columns['label_label']} columns in label_label for {size} labels",
            "a labels x labels array must be square",
        )
    anchors = {
        *(columns[side] for side in ("documents", "labels") if side in columns),
        *([] if graph.anchors is None else [len(graph.anchors)]),
    }
    if len(anchors) > 1:
        raise DataError(
            f"graph '{name}' has sides with {sorted(anchors)} anchors",
            "both sides and the list of anchors need the same anchors, in the same order",
        )
    return replace(graph, name=name, **sides)


def _side(matrix: Any, name: str, side: str, rows: int, what: str) -> Csr | None:
    from scipy.sparse import csr_array

    if matrix is None:
        return None
    if matrix.shape[0] != rows:
        raise DataError(
            f"graph '{name}' has {matrix.shape[0]} rows in {side} for {rows} {what}",
            "one row per item, in the order of the texts, or of Dataset.labels.uids for labels",
        )
    canonical = csr_array(matrix, dtype=np.float32, copy=True)
    canonical.sum_duplicates()
    if not np.isfinite(canonical.data).all():
        raise DataError(
            f"graph '{name}' has a weight in {side} that is not a number", "remove NaN and infinite weights"
        )
    return canonical
