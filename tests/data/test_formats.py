"""Every format gives back what was written into it, and writes equal bytes for equal data."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.folders import default_uids
from longtail.data.identity import digest, training_digest
from longtail.data.read import read, recognise, write
from longtail.errors import ConfigError, RunError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=12)
VALUE = st.floats(-(2.0**127), 2.0**127, width=32) | st.sampled_from([1e-45, 1.5, -0.0, 0.1, 1e20])


@st.composite
def matrices(
    draw: st.DrawFn, rows: int, columns: int, values: st.SearchStrategy[float] = VALUE, filled: bool = False
) -> Any:
    """CSR float32 with up to four entries per row (at least one if `filled`), some of them explicit zeros."""
    entries = [
        draw(st.dictionaries(st.integers(0, columns - 1), values, min_size=int(filled), max_size=min(4, columns)))
        for _ in range(rows)
    ]
    ends = np.cumsum([0] + [len(row) for row in entries])
    indices = [column for row in entries for column in sorted(row)]
    data = [row[column] for row in entries for column in sorted(row)]
    return csr_array((np.array(data, dtype=np.float32), np.array(indices, dtype=np.int64), ends), shape=(rows, columns))


@st.composite
def pairs(draw: st.DrawFn, documents: int, labels: int) -> Any:
    chosen = draw(st.sets(st.tuples(st.integers(0, documents - 1), st.integers(0, labels - 1)), max_size=4))
    return np.array(sorted(chosen), dtype=np.int64).reshape(-1, 2)


@st.composite
def items(
    draw: st.DrawFn,
    side: str,
    count: int,
    text: st.SearchStrategy[str],
    fields: tuple[str, ...],
    named: bool,
    filled: bool = False,
) -> Items:
    """`count` items; `filled` ones have a title. Without `named` their ids are the default ones."""
    uids = (
        draw(st.lists(text.filter(bool), min_size=count, max_size=count, unique=True))
        if named
        else default_uids(side, count)
    )
    texts = {name: draw(st.lists(text, min_size=count, max_size=count)) for name in fields}
    if filled:
        texts["title"] = [f"x{title}" for title in texts["title"]]
    return Items(uids, texts)


@st.composite
def text_datasets(draw: st.DrawFn) -> Dataset:
    """Texts in two fields, ids, masked pairs, and graphs of both kinds."""
    n, held, size, anchors = (draw(st.integers(1, 4)) for _ in range(4))
    fields = ("title", "content")
    ones = st.just(1.0)
    weights = st.floats(0, 2.0**99, width=32)
    labels = draw(items("lbl", size, TEXT, fields, named=True))
    train = Split(
        draw(items("trn", n, TEXT, fields, named=True, filled=True)),
        draw(matrices(n, size, ones)),
        draw(pairs(n, size)),
    )
    test = Split(
        draw(items("tst", held, TEXT, fields, named=True)), draw(matrices(held, size, ones)), draw(pairs(held, size))
    )
    # Anchors must not be test documents, so their ids and titles are longer than any of theirs.
    points = Items(
        [f"anchor number {i}" for i in range(anchors)], {"title": [f"title of anchor {i}" for i in range(anchors)]}
    )
    graphs = {
        "linked": Graph("linked", points, draw(matrices(n, anchors, weights)), draw(matrices(size, anchors, weights))),
        "labels": Graph("labels", label_label=draw(matrices(size, size, weights))),
    }
    return Dataset("data", labels, train, draw(st.sampled_from([test, None])), graphs)


@st.composite
def vector_datasets(draw: st.DrawFn, dense: bool = False) -> Dataset:
    """Vectors of documents and labels, with or without raw texts and ids."""
    n, held, size, width = (draw(st.integers(1, 4)) for _ in range(4))
    named, texts = draw(st.booleans()), draw(st.booleans())

    def described(side: str, count: int, filled: bool = False) -> Items:
        base = draw(items(side, count, LINE, ("title",) if texts else (), named))
        vectors = draw(matrices(count, width, filled=filled))
        kept = {name: list(column) for name, column in base.fields.items() if any(column)}
        return Items(base.uids, kept, vectors.toarray() if dense else vectors)

    def split(side: str, count: int, filled: bool) -> Split:
        return Split(
            described(side, count, filled), draw(matrices(count, size, st.just(1.0))), draw(pairs(count, size))
        )

    return Dataset(
        "data", described("lbl", size), split("trn", n, True), draw(st.sampled_from([None, split("tst", held, False)]))
    )


def check_round_trip(dataset: Dataset, format: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        first, second = Path(home) / "first" / "data", Path(home) / "second"
        write(dataset, first, format)
        assert recognise(first) == format
        back = read(first)
        check_same(back, dataset)
        assert back.digest == digest(dataset)
        assert back.repairs == {}
        write(back, second, format)
        assert bytes_of(second) == bytes_of(first)
        without = read(first, test=False)
        assert without.test is None
        assert without.digest == training_digest(back.digest)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_same(one: Dataset, other: Dataset) -> None:
    assert one.name == other.name
    check_same_items(one.labels, other.labels)
    for side, wanted in ((one.train, other.train), (one.test, other.test)):
        assert (side is None) == (wanted is None)
        if side is not None and wanted is not None:
            check_same_items(side.documents, wanted.documents)
            check_same_matrix(side.targets, wanted.targets)
            assert side.masked.tolist() == wanted.masked.tolist()
    assert set(one.graphs) == set(other.graphs)
    for name, graph in one.graphs.items():
        assert graph.name == name
        assert (graph.anchors is None) == (other.graphs[name].anchors is None)
        if graph.anchors is not None:
            check_same_items(graph.anchors, other.graphs[name].anchors)
        for side_name in ("documents", "labels", "label_label"):
            check_same_matrix(getattr(graph, side_name), getattr(other.graphs[name], side_name))


def check_same_items(one: Items, other: Items | None) -> None:
    assert other is not None
    assert list(one.uids) == list(other.uids)
    assert {name: list(texts) for name, texts in one.fields.items()} == {
        name: list(texts) for name, texts in other.fields.items()
    }
    check_same_matrix(one.vectors, other.vectors)


def check_same_matrix(one: Any, other: Any) -> None:
    assert (one is None) == (other is None)
    if one is not None:
        assert one.shape == other.shape
        assert one.dtype == np.float32
        assert isinstance(one, np.ndarray) == isinstance(other, np.ndarray)
        assert isinstance(one, np.ndarray) or one.indices.dtype == one.indptr.dtype == np.int32
        for piece in ("indptr", "indices", "data") if not isinstance(one, np.ndarray) else ("T",):
            assert getattr(one, piece).tolist() == getattr(other, piece).tolist()


@pytest.mark.claim("F6")
@settings(max_examples=25, deadline=None)
@given(text_datasets())
def test_lf_gives_back_what_was_written(dataset: Dataset) -> None:
    check_round_trip(dataset, "lf")


@pytest.mark.claim("F6")
@settings(max_examples=25, deadline=None)
@given(vector_datasets())
def test_sparse_text_gives_back_what_was_written(dataset: Dataset) -> None:
    check_round_trip(dataset, "sparse")


@pytest.mark.claim("F6")
@settings(max_examples=25, deadline=None)
@given(vector_datasets())
def test_the_split_form_gives_back_what_was_written(dataset: Dataset) -> None:
    check_round_trip(dataset, "split")


@pytest.mark.claim("F6")
@settings(max_examples=25, deadline=None)
@given(vector_datasets() | vector_datasets(dense=True))
def test_npz_gives_back_what_was_written(dataset: Dataset) -> None:
    check_round_trip(dataset, "npz")


def small(**changes: Any) -> Dataset:
    """Two documents, one without labels; one label without text."""
    labels = Items(["l0", "l1"], {"title": ["cat", ""]})
    train = Split(Items(["a", "b"], {"title": ["one", "two"]}), csr_array(np.array([[1, 1], [0, 0]], dtype=np.float32)))
    return Dataset(**{"name": "data", "labels": labels, "train": train, **changes})


@pytest.mark.claim("F6")
@pytest.mark.parametrize("format", ["split", "npz"])
def test_texts_alone_fit_into_formats_of_matrices(tmp_path: Path, format: str) -> None:
    graph = Graph("g", Items(["p"], {"title": ["point"]}), csr_array(np.array([[2.0], [0.0]], dtype=np.float32)))
    dataset = small(graphs={"g": graph})
    write(dataset, tmp_path / "data", format)
    check_same(read(tmp_path / "data"), dataset)


@pytest.mark.parametrize("format", ["lf", "sparse", "split", "npz", "jsonl", "csv"])
def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path, format: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "diary.txt").write_text("dear diary")
    with pytest.raises(RunError, match="not empty"):
        write(small(), tmp_path / "data", format)
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "diary.txt"]
    with pytest.raises(RunError, match=r"diary\.txt is a file"):
        write(small(), tmp_path / "data" / "diary.txt" / "inside", format)


@pytest.mark.parametrize("format", ["lf", "npz", "jsonl"])
def test_an_empty_folder_is_filled(tmp_path: Path, format: str) -> None:
    (tmp_path / "data").mkdir()
    write(small(), tmp_path / "data", format)
    assert list(read(tmp_path / "data").train.documents.uids) == ["a", "b"]


VECTORS = Items(["trn-0", "trn-1"], vectors=csr_array(np.eye(2, dtype=np.float32)))
DENSE = Items(["trn-0", "trn-1"], vectors=np.eye(2, dtype=np.float32))
BROKEN = Items(["a", "b"], {"title": ["one", "two\nlines"]})
TWO_FIELDS = Items(["a", "b"], {"title": ["one", "two"], "content": ["", "more"]})


@pytest.mark.parametrize(
    ("format", "documents", "message"),
    [
        ("lf", VECTORS, "vectors"),
        ("lf", Items(["a", "b"], {"target_ind": ["one", "two"]}), "'target_ind'"),
        ("sparse", BROKEN, "only texts"),
        ("sparse", DENSE, "dense"),
        ("split", DENSE, "dense"),
        ("split", BROKEN, "item 1 has a line break"),
        ("npz", TWO_FIELDS, "title, content"),
        ("npz", Items(["a\nb", "b"], {"title": ["one", "two"]}), "uid of item 0"),
        ("jsonl", VECTORS, "vectors"),
        ("xml", VECTORS, "unknown format 'xml'"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_and_nothing_is_left(
    tmp_path: Path, format: str, documents: Items, message: str
) -> None:
    dataset = small(train=Split(documents, csr_array(np.eye(2, dtype=np.float32))))
    with pytest.raises(ConfigError, match=message) as caught:
        write(dataset, tmp_path / "data", format)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_graph_name_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'\.\./g' cannot be the name of a folder"):
        write(
            small(graphs={"../g": Graph("../g", label_label=csr_array(np.eye(2, dtype=np.float32)))}),
            tmp_path / "data",
            "lf",
        )
    assert list(tmp_path.iterdir()) == []


def test_a_graph_without_anchors_gets_numbered_ones(tmp_path: Path) -> None:
    write(
        small(graphs={"g": Graph("g", documents=csr_array(np.ones((2, 3), dtype=np.float32)))}), tmp_path / "data", "lf"
    )
    anchors = read(tmp_path / "data").graphs["g"].anchors
    assert anchors is not None
    assert list(anchors.uids) == ["0", "1", "2"]


@pytest.mark.parametrize("format", ["lf", "split", "sparse", "npz", "jsonl", "csv"])
@pytest.mark.parametrize("spelling", ["filter_labels_{long}", "{short}_filter_labels", "{long}_filter_labels"])
def test_every_folder_knows_every_spelling_of_filter_files(tmp_path: Path, format: str, spelling: str) -> None:
    masked = np.array([[0, 1]], dtype=np.int64)
    plain = small()
    documents = plain.train.documents
    if format == "sparse":
        documents = Items(default_uids("trn", 2), vectors=csr_array(np.eye(2, dtype=np.float32)))
        plain = replace(plain, labels=Items(default_uids("lbl", 2)))
    write(replace(plain, train=Split(documents, plain.train.targets, masked)), tmp_path / "d", format)
    for short, long in (("trn", "train"), ("tst", "test")):
        given = tmp_path / "d" / f"filter_labels_{short}.txt"
        if given.exists():
            given.rename(tmp_path / "d" / f"{spelling.format(short=short, long=long)}.txt")
    np.testing.assert_array_equal(read(tmp_path / "d").train.masked, masked)
