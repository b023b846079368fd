"""What all data sets that are folders share, whatever holds their documents: pairs to mask, graphs, raw texts and
repairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from longtail.data.dataset import Dataset, Graph, Items, Split, no_pairs
from longtail.data.graph_files import drop_test_anchors, find_one, have_anchors, read_graphs, write_graphs
from longtail.data.identity import digest, numbers_by_title, pairs_by_title
from longtail.data.lines import byte_blocks, line_blocks, open_text_lines, read_raw_texts, write_lines
from longtail.data.size_limits import PROMISED
from longtail.errors import ConfigError, DataError
from longtail.types import F32, I64, Csr

TRAIN, TEST, LABELS = "trn", "tst", "lbl"

# Spellings of the files that list pairs to mask, wherever they lie; the first is the one that is written.
_FILTER_FILES = {
    TRAIN: ("filter_labels_trn.txt", "filter_labels_train.txt", "trn_filter_labels.txt", "train_filter_labels.txt"),
    TEST: ("filter_labels_tst.txt", "filter_labels_test.txt", "tst_filter_labels.txt", "test_filter_labels.txt"),
}
_KNOWN_FILE = "known_labels_tst.txt"
# Releases of the Extreme Classification Repository give either name to either content: names of labels, one per line,
# or sparse features of labels under a header of two counts.
LABEL_FILES = tuple(name + gz for name in ("Yf.txt", "lbl_X_Xf.txt") for gz in ("", ".gz"))
_LABEL_TEXTS = tuple(name + gz for name in ("Y.txt", "lbl.txt", "lbl_X.txt") for gz in ("", ".gz"))


def assemble(
    folder: Path,
    labels: Items,
    train: Split,
    test: Split | None,
    unseen: Items | None,
    repairs: Counter[str],
    used: Collection[str] = (),
) -> Dataset:
    """Adds masked pairs and graphs to what a format holds, and mends: see `Dataset.repairs`.

    test: the test side, if it was asked for. unseen: the test documents where anchors must be checked against them.
    used: names of files of label texts or features that were read; others that lie there are named as a repair.
    Test documents are never dropped. Training documents with neither text nor vector are, with their rows everywhere.
    """
    for name in (*_LABEL_TEXTS, *LABEL_FILES):
        if (folder / name).is_file() and name not in used:
            repairs[f"file of label texts or features that is not read, {name}"] += 1
    graphs = {}
    for name, graph in read_graphs(folder, len(train), len(labels), repairs).items():
        graphs[name], dropped = (graph, 0) if unseen is None else drop_test_anchors(graph, unseen)
        repairs["anchors of graphs that are test documents, dropped"] += dropped
    train = replace(train, masked=_masked(folder, TRAIN, train, labels, repairs))
    if test is not None:
        test = with_known(folder, replace(test, masked=_masked(folder, TEST, test, labels, repairs)))
    return finished(folder.resolve().name, labels, train, test, graphs, repairs)


def finished(
    name: str, labels: Items, train: Split, test: Split | None, graphs: dict[str, Graph], repairs: Counter[str]
) -> Dataset:
    """The last repair, and the digest."""
    train, graphs = _without_empty_documents(name, train, graphs, repairs)
    dataset = Dataset(name, labels, train, test, graphs, dict(+repairs))
    return replace(dataset, digest=digest(dataset))


def _without_empty_documents(
    name: str, train: Split, graphs: dict[str, Graph], repairs: Counter[str]
) -> tuple[Split, dict[str, Graph]]:
    fields, vectors = train.documents.fields, train.documents.vectors
    if isinstance(vectors, np.ndarray) or any(all(map(str.strip, texts)) for texts in fields.values()):
        return train, graphs
    filled = np.zeros(len(train), dtype=bool) if vectors is None else np.diff(vectors.indptr) > 0
    for texts in fields.values():
        filled |= np.fromiter(map(bool, map(str.strip, texts)), dtype=bool, count=len(texts))
    if not filled.any():
        raise DataError(
            f"'{name}': none of the {len(train)} training documents has a text or a vector",
            "training needs one or the other",
        )
    kept = np.flatnonzero(filled)
    repairs["training documents without text or vector, dropped"] += len(train) - len(kept)
    if len(kept) == len(train):
        return train, graphs
    return train.rows(kept), {name: graph.document_rows(kept) for name, graph in graphs.items()}


# ---- pairs that count neither as right nor as wrong ----


def filter_pairs(folder: Path, side: str, split: Split) -> I64 | None:
    """The pairs of the filter file of "trn" or "tst", whatever its spelling; None where there is none."""
    path = filter_file(folder, side)
    return None if path is None else read_pairs(path, *split.targets.shape)


def filter_file(folder: Path, side: str) -> Path | None:
    """Where the pairs to mask of "trn" or "tst" are listed, whatever its spelling."""
    return find_one(folder, *_FILTER_FILES[side])


def _masked(folder: Path, side: str, split: Split, labels: Items, repairs: Counter[str]) -> I64:
    """The pairs of the filter file; where there is none, documents and labels of the same title that are not targets.

    A document that is itself a label finds that label first, and that says nothing. But where the truth names the
    pair (a book on bees titled "Bees"), it is a right answer like any other.
    """
    given = filter_pairs(folder, side, split)
    return masked_by_title(side, split, numbers_by_title(labels), repairs) if given is None else given


def masked_by_title(side: str, split: Split, numbers: Mapping[str, list[int]], repairs: Counter[str]) -> I64:
    """numbers: of labels, by their titles."""
    pairs = pairs_by_title(split.documents, numbers)
    if len(pairs):
        pairs = pairs[np.asarray(split.targets[pairs[:, 0], pairs[:, 1]]).ravel() == 0]
    repairs[f"pairs masked because document and label have the same title (there is no {_FILTER_FILES[side][0]})"] += (
        len(pairs)
    )
    return pairs


def with_known(folder: Path, test: Split) -> Split:
    """With the pairs of test documents that are known beforehand, where a file lists them; they are masked too."""
    path = folder / _KNOWN_FILE
    if not path.is_file():
        return test
    known = read_pairs(path, *test.targets.shape)
    return replace(test, known=known, masked=np.unique(np.concatenate([test.masked, known]), axis=0))


def read_pairs(path: Path, documents: int, labels: int) -> I64:
    """(P, 2) sorted ``document label`` pairs, one per line, from 0. The file may be empty; blank lines are skipped."""
    pieces = [_pairs_of_lines(path, first, lines, documents, labels) for first, lines in line_blocks(path)]
    return np.unique(np.concatenate([no_pairs(), *pieces]), axis=0)


def _pairs_of_lines(path: Path, first: int, block: Sequence[str], documents: int, labels: int) -> I64:
    """first: number of the first line."""
    lines = [line.split() for line in block]
    try:
        if not set(map(len, lines)) <= {0, 2}:
            raise ValueError
        pairs = np.fromiter(map(int, chain.from_iterable(lines)), dtype=np.int64).reshape(-1, 2)
    except (ValueError, OverflowError):
        line = next(line for line, words in enumerate(lines, first) if words and not _is_pair(words))
        raise DataError(
            f"{' '.join(lines[line - first])!r} is not a pair",
            "write 'document label', two numbers, on each line",
            file=path,
            line=line,
        ) from None
    outside = (pairs < 0) | (pairs >= np.array([documents, labels]))
    if outside.any():
        row, column = np.argwhere(outside)[0]
        line = [line for line, words in enumerate(lines, first) if words][row]
        what, count = (("document", documents), ("label", labels))[column]
        raise DataError(
            f"{what} {pairs[row, column]} is outside 0..{count - 1}",
            "the file belongs to other data, or counts from 1",
            file=path,
            line=line,
        )
    return pairs


def _is_pair(words: Sequence[str]) -> bool:
    try:
        return len(words) == 2 and all(abs(int(word)) < 2**63 for word in words)
    except ValueError:
        return False


# ---- folders of matrices ----


@dataclass(frozen=True)
class Side:
    """Training or test documents as a folder of matrices holds them. vectors: (N, D), or None where there are raw
    texts.
    """

    targets: Csr
    vectors: Csr | F32 | None


def assemble_matrices(
    folder: Path,
    side: Callable[[str], Side | None],
    label_vectors: Csr | F32 | None,
    repairs: Counter[str],
    *,
    test: bool,
    feature_file: Path | None = None,
) -> Dataset:
    """A data set from matrices and raw texts. side: reads "trn" or "tst"; None where there is no test side.
    feature_file: one of `LABEL_FILES` that the label vectors come from.
    """
    train = side(TRAIN)
    assert train is not None, "a folder was recognised by its training side"
    held = side(TEST) if test or have_anchors(folder) else None
    _check_alike(folder, train, held, label_vectors)
    labels = raw_items(folder, LABELS, train.targets.shape[1], label_vectors, repairs)
    tested = None if held is None else _split(folder, TEST, held, repairs)
    unseen = None if tested is None else tested.documents
    used = [path.name for path in (feature_file, find_one(folder, *_text_files(folder, LABELS))) if path is not None]
    return assemble(
        folder, labels, _split(folder, TRAIN, train, repairs), tested if test else None, unseen, repairs, used
    )


def _split(folder: Path, side: str, matrices: Side, repairs: Counter[str]) -> Split:
    if matrices.vectors is not None and matrices.vectors.shape[0] != matrices.targets.shape[0]:
        counts = (
            f"{matrices.vectors.shape[0]} documents of '{side}' have features, {matrices.targets.shape[0]} have labels"
        )
        raise DataError(counts, "both files must list the same documents in the same order", file=folder)
    documents = raw_items(folder, side, matrices.targets.shape[0], matrices.vectors, repairs)
    if documents.vectors is None and not documents.fields:
        raise DataError(
            f"documents of '{side}' have neither vectors nor texts",
            f"add features, or {_text_files(folder, side)[0]} with a text per line",
            file=folder,
        )
    return Split(documents, matrices.targets)


def _check_alike(folder: Path, train: Side, test: Side | None, label_vectors: Csr | F32 | None) -> None:
    other = "both sides must use the same numbering; the files belong to different data sets"
    if test is not None and test.targets.shape[1] != train.targets.shape[1]:
        raise DataError(
            f"training counts {train.targets.shape[1]} labels, test {test.targets.shape[1]}", other, file=folder
        )
    if label_vectors is not None and label_vectors.shape[0] != train.targets.shape[1]:
        raise DataError(
            f"training counts {train.targets.shape[1]} labels, and {label_vectors.shape[0]} have features",
            other,
            file=folder,
        )
    for name, vectors in (("test documents", None if test is None else test.vectors), ("labels", label_vectors)):
        if vectors is not None and train.vectors is not None and vectors.shape[1] != train.vectors.shape[1]:
            raise DataError(
                f"training documents have {train.vectors.shape[1]} features, {name} {vectors.shape[1]}",
                other,
                file=folder,
            )
    if test is not None and type(test.vectors) is not type(train.vectors):
        raise DataError(
            "training and test documents have features of different kinds",
            "give both as sparse, both as dense, or both as text",
            file=folder,
        )


# ---- items whose texts and ids are plain lines ----


def raw_items(folder: Path, side: str, count: int, vectors: Csr | F32 | None, repairs: Counter[str]) -> Items:
    """`count` documents (side "trn", "tst") or labels ("lbl"): texts and ids from their files, where there are any."""
    texts = find_one(folder, *_text_files(folder, side))
    fields = {} if texts is None else {"title": _exactly(texts, count, _mended(texts, repairs))}
    ids = folder / _uid_file(side)
    uids = (
        _unique(ids, _exactly(ids, count, list(open_text_lines(ids)))) if ids.is_file() else default_uids(side, count)
    )
    return Items(uids, fields, vectors)


def write_raw_items(folder: Path, side: str, items: Items) -> None:
    """Texts and ids of items as plain lines; ids only if they are not the numbers that `raw_items` would give."""
    filled = [name for name, texts in items.fields.items() if any(texts)]
    if len(filled) > 1:
        raise ConfigError(
            f"this format holds one text per item, and {', '.join(filled)} are given",
            "write lf, jsonl or parquet instead",
        )
    for name in filled:
        _write_plain(folder / _text_files(folder, side)[0], items.fields[name], name)
    if list(items.uids) != default_uids(side, len(items)):
        _write_plain(folder / _uid_file(side), items.uids, "uid")


def write_shared(folder: Path, dataset: Dataset) -> None:
    """Masked and known pairs, and graphs. Filter files are written even if empty: without one a reader would make
    pairs.
    """
    for side, split in ((TRAIN, dataset.train), (TEST, dataset.test)):
        if split is not None:
            _write_pairs(folder / _FILTER_FILES[side][0], split.masked)
            if len(split.known):
                _write_pairs(folder / _KNOWN_FILE, split.known)
    write_graphs(folder, dataset.graphs)


def _write_pairs(path: Path, pairs: I64) -> None:
    write_lines(path, [f"{document} {label}" for document, label in pairs.tolist()])


def _text_files(folder: Path, side: str) -> tuple[str, ...]:
    """Names that a file of texts may have; the first is the one that is written."""
    if side != LABELS:
        return f"{side}_X.txt", f"{side}_X.txt.gz"
    named = (name for name in LABEL_FILES if (folder / name).is_file() and not has_features(folder / name))
    return (*_LABEL_TEXTS, *named)


def has_features(path: Path) -> bool:
    """Whether one of `LABEL_FILES` begins with two counts: features, not texts."""
    words = next(byte_blocks(path), (1, b""))[1].partition(b"\n")[0].split()
    return len(words) == 2 and all(word.isdigit() for word in words)


def _uid_file(side: str) -> str:
    return f"{side}_uid.txt"


def default_uids(side: str, count: int) -> list[str]:
    PROMISED.check(count, f"{'labels' if side == LABELS else 'documents'} by the header or the shape of the matrix")
    return [str(number) if side == LABELS else f"{side}-{number}" for number in range(count)]


def _mended(path: Path, repairs: Counter[str]) -> list[str]:
    texts, mended = read_raw_texts(path)
    repairs[f"texts of {path.name} with bytes that are not UTF-8, replaced"] += mended
    return texts


def _exactly(path: Path, count: int, lines: list[str]) -> list[str]:
    if len(lines) < count or any(lines[count:]):
        raise DataError(
            f"has {len(lines)} lines, expected {count}",
            "write one line per item, in the order of the other files",
            file=path,
        )
    return lines[:count]


def _unique(path: Path, uids: list[str]) -> list[str]:
    first: dict[str, int] = {}
    for line, uid in enumerate(uids, 1):
        if not uid or first.setdefault(uid, line) != line:
            wrong = f"uid '{uid}' stands on line {first[uid]} already" if uid else "the uid is empty"
            raise DataError(wrong, "give every line a uid of its own", file=path, line=line)
    return uids


def _write_plain(path: Path, texts: Sequence[str], name: str) -> None:
    for number, text in enumerate(texts):
        if "\n" in text or text.endswith("\r"):
            raise ConfigError(
                f"the {name} of item {number} has a line break, which {path.name} cannot hold",
                "write lf, jsonl or parquet instead",
            )
    write_lines(path, texts)
