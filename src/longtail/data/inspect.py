"""Looking at a data set before training on it: counts (`statistics`), and what is wrong or worth knowing (`check`).

Everything is linear in documents, labels and edges, so half a million documents take seconds. Shares are between 0
and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.from_texts import UNKNOWN_TO_TRAINING
from longtail.data.graph_files import drop_test_anchors
from longtail.data.identity import check_reciprocal, full_texts, repeated, self_pairs
from longtail.metrics import drop_masked_targets
from longtail.types import Csr

Level = Literal["error", "warning", "note"]
# Share of documents with a label of their own, of so many or more, from which labels look like ids.
_LIKE_IDS, _ENOUGH = 0.9, 10
# Share of the pairs of test documents and labels that may be dropped before numbers on the rest need a warning.
_MANY_DROPPED = 0.05


@dataclass(frozen=True)
class Finding:
    """One remark of `check`. error: training or evaluation would be wrong; warning: look at it; note: good to know."""

    level: Level
    code: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.message} [{self.code}]" + (f"\n  hint: {self.hint}" if self.hint else "")


# ---- counts ----


def statistics(dataset: Dataset) -> dict[str, Any]:
    """Counts of a data set as nested plain values (JSON). Masked pairs are counted as such and nowhere else."""
    train_texts = full_texts(dataset.train.documents)
    known = set(filter(None, train_texts))
    sections: dict[str, Any] = {
        "name": dataset.name,
        "digest": dataset.digest,
        "train": _split(dataset.train, train_texts, dataset.labels),
    }
    if dataset.test is not None:
        test_texts = full_texts(dataset.test.documents)
        sections["test"] = {
            **_split(dataset.test, test_texts, dataset.labels),
            "texts_also_in_train": sum(text in known for text in test_texts),
        }
    sections["labels"] = _labels(dataset)
    reciprocal = check_reciprocal(dataset)
    sections["reciprocal_pairs"] = {
        "test_pairs_reversed_in_train": len(reciprocal.test),
        "train_pairs_reversed_in_train": reciprocal.within_train,
    }
    sections["graphs"] = {name: _graph(graph, dataset) for name, graph in dataset.graphs.items()}
    sections["repairs"] = dict(dataset.repairs)
    return sections


def _split(split: Split, texts: list[str], labels: Items) -> dict[str, Any]:
    truth = drop_masked_targets(split.targets, split.masked)
    per_document = np.diff(truth.indptr)
    n = max(len(split), 1)
    are_labels = len(np.unique(self_pairs(split.documents, labels)[:, 0]))
    counts: dict[str, Any] = {
        "documents": len(split),
        "pairs": int(truth.nnz),
        "labels_per_document_mean": float(per_document.mean()) if len(split) else 0.0,
        "labels_per_document_max": int(per_document.max(initial=0)),
        "documents_without_labels": int((per_document == 0).sum()),
        "share_without_labels": float((per_document == 0).sum() / n),
        "filter_pairs": len(split.masked),
        "documents_that_are_labels": are_labels,
        "share_that_are_labels": are_labels / n,
    }
    if split.documents.fields:
        counts |= {
            "fields": {name: sum(map(bool, map(str.strip, values))) for name, values in split.documents.fields.items()},
            "documents_without_text": texts.count(""),
            "words_per_document_mean": sum(text.count(" ") + 1 for text in texts if text) / n,
            "repeated_texts": repeated(texts),
        }
    if split.documents.vectors is not None:
        counts["vectors"] = _vectors(split.documents.vectors)
    return counts


def _labels(dataset: Dataset) -> dict[str, Any]:
    recorded = drop_masked_targets(dataset.train.targets, dataset.train.masked)
    frequency = np.bincount(recorded.indices, minlength=len(dataset.labels))
    size = max(len(dataset.labels), 1)
    counts: dict[str, Any] = {
        "labels": len(dataset.labels),
        "documents_per_label_mean": float(frequency.sum() / size),
        "documents_per_label_median": float(np.median(frequency)) if len(frequency) else 0.0,
        "documents_per_label_max": int(frequency.max(initial=0)),
        "share_with_0_documents": float((frequency == 0).sum() / size),
        "share_with_1_document": float((frequency == 1).sum() / size),
        "share_with_under_5_documents": float((frequency < 5).sum() / size),
        "share_with_under_10_documents": float((frequency < 10).sum() / size),
    }
    texts = full_texts(dataset.labels)
    counts["labels_without_text"] = texts.count("")
    counts["share_without_text"] = texts.count("") / size
    counts["repeated_texts"] = repeated(texts)
    if dataset.labels.vectors is not None:
        counts["vectors"] = _vectors(dataset.labels.vectors)
    return counts


def _vectors(vectors: Any) -> dict[str, Any]:
    """Sparse or dense features: their width and what should not be in them."""
    sparse = hasattr(vectors, "indptr")
    values = vectors.data if sparse else np.asarray(vectors)
    empty = np.diff(vectors.indptr) == 0 if sparse else ~np.any(values, axis=1)
    return {
        "dimensions": int(vectors.shape[1]),
        "kind": "sparse" if sparse else "dense",
        "nan": int(np.isnan(values).sum()),
        "infinite": int(np.isinf(values).sum()),
        "negative": int((values < 0).sum()),
        "empty_rows": int(empty.sum()),
    }


def _graph(graph: Graph, dataset: Dataset) -> dict[str, Any]:
    sides: dict[str, Csr] = {
        side: matrix for side in ("documents", "labels", "label_label") if (matrix := getattr(graph, side)) is not None
    }
    counts: dict[str, Any] = {}
    if graph.label_label is None:
        counts["anchors"] = int(next(iter(sides.values())).shape[1]) if sides else 0
    for side, matrix in sides.items():
        degrees, columns = np.diff(matrix.indptr), np.bincount(matrix.indices, minlength=matrix.shape[1])
        counts[side] = {
            "edges": int(matrix.nnz),
            "isolated": int((degrees == 0).sum()),
            "covered_share": float((degrees > 0).mean()) if len(degrees) else 0.0,
            "largest_degree": int(degrees.max(initial=0)),
            "largest_column_degree": int(columns.max(initial=0)),
            "weights_not_finite": int((~np.isfinite(matrix.data)).sum()),
        }
    if graph.anchors is not None and dataset.test is not None:
        counts["test_nodes"] = drop_test_anchors(graph, dataset.test.documents)[1]
    return counts


# ---- remarks ----


def check(dataset: Dataset, counts: Mapping[str, Any] | None = None) -> list[Finding]:
    """What is wrong with a data set or worth knowing, worst first. counts: its `statistics`, if they are at hand."""
    broken = [
        *_check_masked(dataset.train, "train"),
        *([] if dataset.test is None else _check_masked(dataset.test, "test")),
    ]
    if broken:
        return broken  # nothing can be counted before this is mended
    counts = statistics(dataset) if counts is None else counts
    findings = [*_check_labels(dataset, counts), *_check_split(dataset.train, counts["train"], "train")]
    if dataset.test is None:
        findings.append(
            Finding(
                "note",
                "no-test",
                "there are no test documents",
                "evaluation needs some; training can hold out a share of its own",
            )
        )
    else:
        findings += _check_split(dataset.test, counts["test"], "test")
        findings += [*_check_dropped(counts), *_check_leaks(counts)]
    for name, graph in counts["graphs"].items():
        findings += _check_graph(dataset, name, graph)
    return sorted(findings, key=lambda finding: ("error", "warning", "note").index(finding.level))


def _check_labels(dataset: Dataset, counts: Mapping[str, Any]) -> list[Finding]:
    labels, found = counts["labels"], []
    if not labels["labels"]:
        found.append(Finding("error", "no-labels", "the data set has no labels", "check the labels column or file"))
    found += _check_uids(dataset.labels, "labels")
    found += _check_vectors(labels.get("vectors"), "labels")
    if labels["share_with_0_documents"] > 0:
        number = round(labels["share_with_0_documents"] * labels["labels"])
        found.append(
            Finding(
                "note",
                "labels-without-documents",
                f"{number} labels have no training document",
                "only recipes that compare texts find them, such as ance and dexml",
            )
        )
    if labels["labels_without_text"]:
        message = f"{labels['labels_without_text']} of {labels['labels']} labels have no text"
        found.append(
            Finding(
                "note",
                "labels-without-text",
                message,
                "recipes that read label text know these labels by their documents only",
            )
        )
    if labels["repeated_texts"]:
        first, second = _same_text(dataset.labels)
        message = (
            f"{labels['repeated_texts']} labels have the same text as another label, such as '{first}' and '{second}'"
        )
        found.append(Finding("note", "labels-same-text", message, "if they mean the same, merge them"))
    train = counts["train"]
    labelled = train["documents"] - train["documents_without_labels"]
    alone = labels["share_with_1_document"] * labels["labels"]
    if labelled >= _ENOUGH and train["pairs"] == labelled and alone >= _LIKE_IDS * labelled:
        found.append(
            Finding(
                "warning",
                "labels-like-ids",
                f"{round(alone)} of {labelled} training documents have one label each, which no other document has",
                "are the labels ids or titles? Labels are learnt from documents that share them",
            )
        )
    return found


def _same_text(labels: Items) -> tuple[str, str]:
    """The first two labels that have the same text."""
    seen: dict[str, int] = {}
    texts = full_texts(labels)
    second = next(n for n, text in enumerate(texts) if text and seen.setdefault(text, n) != n)
    return labels.uids[seen[texts[second]]], labels.uids[second]


def _check_split(split: Split, counts: Mapping[str, Any], side: str) -> list[Finding]:
    found = [
        *_check_uids(split.documents, f"{side} documents"),
        *_check_targets(split, side),
        *_check_vectors(counts.get("vectors"), f"{side} documents"),
    ]
    if not counts["documents"]:
        found.append(Finding("error", f"{side}-empty", f"there are no {side} documents", "check the files"))
        return found
    lost = "they are left out of training" if side == "train" else "they count as misses in every metric"
    if counts["documents_without_labels"]:
        level: Level = "error" if side == "train" and not counts["pairs"] else "warning"
        message = f"{counts['documents_without_labels']} of {counts['documents']} {side} documents have no label"
        found.append(Finding(level, f"{side}-without-labels", message, lost))
    if counts.get("documents_without_text") and split.documents.vectors is None:
        level = "error" if counts["documents_without_text"] == counts["documents"] else "warning"
        message = f"{counts['documents_without_text']} of {counts['documents']} {side} documents have no text"
        found.append(
            Finding(
                level,
                f"{side}-without-text",
                message,
                "they are left out of training" if side == "train" else "nothing can be predicted for them",
            )
        )
    if counts.get("repeated_texts"):
        message = f"{counts['repeated_texts']} {side} documents repeat the text of an earlier one"
        found.append(
            Finding("note", f"{side}-repeated-texts", message, "if they are the same record, merge their labels")
        )
    if counts["documents_that_are_labels"] and not counts["filter_pairs"]:
        message = (
            f"{counts['documents_that_are_labels']} {side} documents have the title of a label, and no pair is masked"
        )
        found.append(
            Finding(
                "note",
                f"{side}-documents-are-labels",
                message,
                "if a document must not be given itself as label, add a filter file",
            )
        )
    return found


def _check_uids(items: Items, what: str) -> list[Finding]:
    extra = len(items) - len(set(items.uids))
    return (
        [
            Finding(
                "error",
                "duplicate-ids",
                f"{extra} of {len(items)} {what} have an id that occurred before",
                "ids must be unique",
            )
        ]
        if extra
        else []
    )


def _check_masked(split: Split, side: str) -> list[Finding]:
    n, size = split.targets.shape
    masked = split.masked
    outside = (masked < 0).any(axis=1) | (masked[:, 0] >= n) | (masked[:, 1] >= size)
    if not outside.any():
        return []
    message = (
        f"{int(outside.sum())} masked {side} pairs are out of range, e.g. "
        f"{tuple(masked[outside][0].tolist())} of {n} documents and {size} labels"
    )
    return [Finding("error", "masked-out-of-range", message, "document and label numbers start at 0")]


def _check_targets(split: Split, side: str) -> list[Finding]:
    """What readers guarantee and a data set made by hand may break: binary, sorted, unique."""
    targets, found = split.targets, []
    n, size = targets.shape
    if targets.nnz and not (targets.data == 1).all():
        found.append(
            Finding(
                "error",
                "targets-not-binary",
                f"the {side} targets have values other than 1",
                "a label is there or not; drop weights",
            )
        )
    rows = np.repeat(np.arange(n, dtype=np.int64), np.diff(targets.indptr))
    if not (np.diff(rows * max(size, 1) + targets.indices) > 0).all():
        found.append(
            Finding(
                "error",
                "targets-unsorted",
                f"the {side} targets are not sorted or have duplicates",
                "call sum_duplicates() on them",
            )
        )
    return found


def _check_vectors(vectors: Mapping[str, Any] | None, what: str) -> list[Finding]:
    if vectors is None:
        return []
    found = []
    if vectors["nan"] or vectors["infinite"]:
        message = f"the vectors of {what} hold {vectors['nan']} NaN and {vectors['infinite']} infinite values"
        found.append(Finding("error", "vectors-not-finite", message, "compute them again, or remove these items"))
    if vectors["negative"] and vectors["kind"] == "sparse":
        message = f"the sparse features of {what} hold {vectors['negative']} negative values"
        found.append(
            Finding("warning", "vectors-negative", message, "TF-IDF is never negative; check how they were made")
        )
    if vectors["empty_rows"]:
        found.append(
            Finding(
                "warning",
                "vectors-empty",
                f"{vectors['empty_rows']} {what} have vectors without any value",
                "nothing can be learned from them",
            )
        )
    return found


def _check_dropped(counts: Mapping[str, Any]) -> list[Finding]:
    """A truth that has lost much is easier than the real one, and nothing else shows how much it was."""
    dropped = counts["repairs"].get(UNKNOWN_TO_TRAINING, 0)
    share = dropped / max(1, dropped + counts["test"]["pairs"])
    if share < _MANY_DROPPED:
        return []
    message = f"{100 * share:.1f}% of all labels of test documents are unknown to training, and were dropped"
    hint = "no model can give them: metrics are over the rest, and of the whole truth less is found"
    return [Finding("warning", "test-labels-unknown", message, hint)]


def _check_leaks(counts: Mapping[str, Any]) -> list[Finding]:
    found = []
    if counts["test"].get("texts_also_in_train"):
        message = (
            f"{counts['test']['texts_also_in_train']} of {counts['test']['documents']} test documents have "
            "the text of a training document"
        )
        found.append(
            Finding(
                "warning",
                "test-texts-in-train",
                message,
                "results on them measure memory; report the number, or split again",
            )
        )
    if leaked := counts["reciprocal_pairs"]["test_pairs_reversed_in_train"]:
        message = f"{leaked} test pairs a -> b are in training as b -> a and not masked"
        found.append(
            Finding("warning", "reciprocal-pairs", message, "a model can copy them; list them in filter_labels_tst.txt")
        )
    return found


def _check_graph(dataset: Dataset, name: str, counts: Mapping[str, Any]) -> list[Finding]:
    graph, found = dataset.graphs[name], []
    expected = {"documents": len(dataset.train), "labels": len(dataset.labels), "label_label": len(dataset.labels)}
    for side, rows in expected.items():
        matrix = getattr(graph, side)
        if matrix is None:
            continue
        if matrix.shape[0] != rows:
            found.append(
                Finding(
                    "error",
                    "graph-shape",
                    f"graph '{name}' has {matrix.shape[0]} rows in {side}, expected {rows}",
                    "one row per item, in order",
                )
            )
        if counts[side]["weights_not_finite"]:
            message = (
                f"graph '{name}' has {counts[side]['weights_not_finite']} weights in {side} that are NaN or infinite"
            )
            found.append(Finding("error", "graph-not-finite", message, "remove these edges"))
        if not counts[side]["edges"]:
            found.append(Finding("warning", "graph-empty", f"graph '{name}' has no edges in {side}", "leave it out"))
    if counts.get("test_nodes"):
        message = f"graph '{name}' has {counts['test_nodes']} anchors with the id or title of a test document"
        found.append(
            Finding("error", "graph-test-nodes", message, "remove these anchors and their edges; reading a folder does")
        )
    return found


# ---- for people ----


def render(counts: Mapping[str, Any]) -> str:
    """`statistics` as aligned lines, shares in percent."""
    lines: list[tuple[str, str]] = []
    _flatten(counts, "", lines)
    width = max((len(name) for name, value in lines if value), default=0)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in lines)


def _flatten(counts: Mapping[str, Any], indent: str, lines: list[tuple[str, str]]) -> None:
    for key, value in counts.items():
        name = indent + key.replace("_", " ")
        if isinstance(value, Mapping):
            if value:
                lines.append((name, ""))
                _flatten(value, indent + "  ", lines)
        else:
            lines.append((name, _shown(key, value)))


def _shown(key: str, value: Any) -> str:
    if "share" in key and isinstance(value, float):
        return f"{100 * value:.1f}%"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
