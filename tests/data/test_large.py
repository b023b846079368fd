"""Data that is read in parts is the data that is read as a whole."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import vstack

from longtail.data import large
from longtail.data.dataset import Dataset, Split
from longtail.data.large import LargeData, LargeFolder, LargeTable, LargeText, large_data
from longtail.data.read import read, write
from longtail.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "FEWEST_CHARACTERS", 700)
    monkeypatch.setattr(large, "MOST_CHARACTERS", 700)


def check_same(data: LargeData, whole: Dataset) -> None:
    repairs = Counter[str]()
    parts = list(data.parts(repairs))
    assert len(parts) > 3
    assert data.name == whole.name
    assert list(data.labels.uids) == list(whole.labels.uids)
    assert {name: list(own) for name, own in data.labels.fields.items()} == whole.labels.fields
    assert [uid for part in parts for uid in part.documents.uids] == list(whole.train.documents.uids)
    for name, texts in whole.train.documents.fields.items():
        assert [text for part in parts for text in part.documents.fields[name]] == list(texts)
    assert (vstack([part.targets for part in parts]) != whole.train.targets).nnz == 0
    assert np.array_equal(masked(parts), whole.train.masked)
    assert dict(+(repairs + data.repairs)) == whole.repairs


def masked(parts: list[Split]) -> np.ndarray:
    before = np.cumsum([0, *map(len, parts)])
    return np.concatenate([part.masked + np.array([first, 0]) for part, first in zip(parts, before, strict=False)])


@pytest.mark.parametrize("listed", [False, True])
def test_lf_folders(planted: Dataset, tmp_path: Path, listed: bool) -> None:
    folder = tmp_path / "data"
    write(planted, folder, "lf")
    if listed:
        (folder / "filter_labels_trn.txt").write_text("3 1\n90 4\n90 2\n")
    else:
        (folder / "filter_labels_trn.txt").unlink()
        lines = [
            f'{{"uid": "more{n}", "title": "The {name}", "target_ind": [0]}}' for n, name in enumerate(["Cat", "owl"])
        ]
        lines += ['{"uid": "empty", "title": " ", "target_ind": [2, 2]}']
        _append(folder / "trn.json.gz", lines)
    check_same(LargeFolder(folder, 1), read(folder, test=False))


def _append(file: Path, lines: list[str]) -> None:
    import gzip

    with gzip.open(file, "at") as opened:
        opened.write("".join(line + "\n" for line in lines))


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv"])
def test_tables(planted: Dataset, tmp_path: Path, format: str) -> None:
    write(planted, tmp_path / "data", format)
    data, whole = LargeTable(tmp_path / "data", 1), read(tmp_path / "data", test=False)
    check_same(data, whole)
    assert data.columns == whole.columns
    assert data.remarks() == whole.remarks()


def test_a_table_without_ids_and_label_texts(tmp_path: Path) -> None:
    rows = [f"{'many words ' * 5}{n},topic{n % 5};topic{n % 3}" for n in range(99)]
    (tmp_path / "data.csv").write_text("text,labels\n" + "\n".join(rows) + "\n")
    data, whole = LargeTable(tmp_path / "data.csv", 1), read(tmp_path / "data.csv", test=False)
    check_same(data, whole)
    assert data.columns is not None
    assert data.columns.separator == ";"


def test_how_labels_are_split_is_seen_in_all_parts(tmp_path: Path) -> None:
    rows = [f"{'many words ' * 5}{n},topic{n % 5}" for n in range(99)]
    table = tmp_path / "data.csv"
    table.write_text("text,labels\n" + "\n".join([*rows, "last,a;b", "of all,c|d"]) + "\n")
    with pytest.raises(DataError, match="holds both"):
        LargeTable(table, 1)


def test_fasttext(tmp_path: Path) -> None:
    lines = [f"__label__topic{n % 7} some words {n} __label__all" + " more words" * 5 for n in range(99)]
    (tmp_path / "data.txt").write_text("\n".join([*lines, "", "__label__all __label__all", "no label"]) + "\n")
    check_same(LargeText(tmp_path / "data.txt", 1), read(tmp_path / "data.txt", test=False))


def test_errors_name_the_line_in_the_file(planted_folder: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"uid": f"d{n}", "title": "bees " * 20, "target_ind": [0]}) for n in range(60)]
    for wrong, message in (
        ({"uid": "", "title": "a", "target_ind": [0]}, "uid is ''"),
        ({"uid": "x", "title": "a", "target_ind": [99]}, "label 99 is outside"),
        ({"uid": "x", "title": 7, "target_ind": [0]}, "title is 7|'title' is not a text"),
        ({"uid": "x", "title": "a"}, "there is no target_ind"),
    ):
        (tmp_path / "trn.json").write_text("\n".join([*lines, json.dumps(wrong), *lines[:3]]))
        (tmp_path / "lbl.json").write_text('{"uid": "a", "title": "bees"}\n')
        with pytest.raises(DataError, match=message) as problem:
            list(LargeFolder(tmp_path, 1).parts())
        assert problem.value.line == 61


def test_listed_pairs_of_documents_that_are_not_there(planted_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "trn.json").write_text('{"uid": "x", "title": "a", "target_ind": [0]}\n')
    (tmp_path / "lbl.json").write_text('{"uid": "a", "title": "bees"}\n')
    (tmp_path / "filter_labels_trn.txt").write_text("7 0\n")
    with pytest.raises(DataError, match=r"document 7 is outside 0\.\.0"):
        list(LargeFolder(tmp_path, 1).parts())


def test_labels_twice(tmp_path: Path) -> None:
    (tmp_path / "trn.json").write_text('{"uid": "x", "title": "a", "target_ind": [0]}\n')
    label = '{"uid": "a", "title": "' + "bees " * 200 + '"}\n'
    (tmp_path / "lbl.json").write_text(label + label)
    with pytest.raises(DataError, match="uid 'a' stands on two lines"):
        _ = LargeFolder(tmp_path, 1).labels


def test_what_fits_is_not_read_in_parts(planted_folder: Path, tmp_path: Path) -> None:
    assert large_data(planted_folder, 1 << 30) is None
    assert isinstance(large_data(planted_folder, 1000), LargeFolder)
    (tmp_path / "data.csv").write_text("text,labels\nsome words,a\n")
    assert large_data(tmp_path / "data.csv", 1 << 20) is None
    assert isinstance(large_data(tmp_path / "data.csv", 100, text="text"), LargeTable)


def test_what_cannot_be_read_in_parts(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1 1 1\n0 0:1\n")
    with pytest.raises(ConfigError, match="'sparse' cannot be read in parts"):
        large_data(tmp_path / "data.txt", 10)
    (tmp_path / "data.csv").write_text("text,labels\nsome words,a\n")
    with pytest.raises(ConfigError, match="--group cannot be read in parts"):
        large_data(tmp_path / "data.csv", 10, group="labels")
    with pytest.raises(ConfigError, match="label texts that are no file"):
        large_data(tmp_path / "data.csv", 10, label_texts={"a": "bees"})


def test_the_digest_follows_the_files(planted: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write(planted, folder, "lf")
    before = LargeFolder(folder, 1).digest
    assert LargeFolder(folder, 1 << 20).digest == before
    (folder / "filter_labels_trn.txt").write_text("0 0\n")
    assert LargeFolder(folder, 1).digest != before
