"""Answers in every format: the columns of the documents are carried, and files appear complete or not at all."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from longtail.data.columns import JSON, URIS
from longtail.data.dataset import Items
from longtail.data.inputs import InputBlock, documents_in_blocks
from longtail.data.outputs import Answering, answers_to, format_for
from longtail.errors import ConfigError, DataError
from longtail.types import TopK

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


class Fake:
    """A model that finds the first label of every document, then the second; nothing for every third document."""

    def __init__(self, labels: Sequence[str] = ("a", "b"), names: Sequence[str] | None = None) -> None:
        self.labels, self.label_names = list(labels), list(labels if names is None else names)

    def named(self, top: TopK) -> list[list[tuple[str, str, float]]]:
        return [
            [
                (self.labels[n], self.label_names[n], score)
                for n, score in zip(row, scores, strict=True)
                if n != TopK.PAD
            ]
            for row, scores in zip(top.ids.tolist(), top.scores.tolist(), strict=True)
        ]

    def top(self, block: InputBlock) -> TopK:
        rows = np.arange(block.first, block.first + len(block.documents))
        found = TopK.padding(len(rows), 2)
        some = rows % 3 != 2
        found.ids[some], found.scores[some] = [0, 1], [0.5, 0.25]
        return found


def written(blocks: Iterable[InputBlock], output: Path, model: Any = None, **more: Any) -> Path:
    model = model or Fake()
    with answers_to(output, format_for(output), Answering(model, **more)) as answers:
        for block in blocks:
            answers.write(block, model.top(block))
    return output


def blocks_of(path: Path, **more: Any) -> list[InputBlock]:
    return list(documents_in_blocks(str(path), carry=True, size=2, **more))


def rows_of(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))


AWKWARD = ['say "owl", twice', "two\nlines", "carriage\rreturn", "\u00e9\u4e2d\U0001f989", "", " spaces "]


def test_what_people_read_has_a_line_for_each_label(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('title\n"an owl\nat night"\n')
    model = Fake(["a\nb", "c"], ["a\nb", "c\rd"])
    found = written(blocks_of(tmp_path / "in.csv"), tmp_path / "out.txt", model).read_text()
    assert found == "an owl at night\n    0.5000  a b\n    0.2500  c  c d\n"


def test_csv_comes_back_with_all_its_columns(tmp_path: Path) -> None:
    given = [["id", "title", "unread"], *([f"{n}", text, text[::-1]] for n, text in enumerate(AWKWARD))]
    with (tmp_path / "in.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\r\n").writerows(given)
    found = rows_of(written(blocks_of(tmp_path / "in.csv"), tmp_path / "out.csv"))
    assert [row[:3] for row in found] == given
    assert found[0][3:] == ["labels", "scores"]
    assert [row[3:] for row in found[1:]] == [["a|b", "0.5|0.25"], ["a|b", "0.5|0.25"], ["", ""]] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_parquet_keeps_types(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "title": ["owl", None, "cat", "dog", "x"],
            "price": pyarrow.array([1, 2, None, 4, 5], pyarrow.int16()),
            "day": [datetime.date(2026, 1, n) for n in range(1, 6)],
            "parts": [["a"], [], None, ["b", "c"], []],
        }
    )
    parquet.write_table(table, tmp_path / "in.parquet")
    found = parquet.read_table(written(blocks_of(tmp_path / "in.parquet"), tmp_path / "out.parquet"))
    assert found.select(table.column_names).equals(table)
    assert found.column_names == [*table.column_names, "labels", "scores"]
    assert found["labels"].to_pylist() == [["a", "b"], ["a", "b"], [], ["a", "b"], ["a", "b"]]
    assert found.schema.field("scores").type == pyarrow.list_(pyarrow.float32())
    as_text = rows_of(written(blocks_of(tmp_path / "in.parquet"), tmp_path / "out.csv"))
    assert as_text[1] == ["owl", "1", "2026-01-01", '["a"]', "a|b", "0.5|0.25"]
    assert as_text[3][:4] == ["cat", "", "2026-01-03", ""]


def test_json_lines_become_columns(tmp_path: Path) -> None:
    lines = [{"title": "x", "n": 1, "tags": ["p"]}, "y", {"title": "z", "new": True}, {"title": "w", "n": None}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told: list[str] = []
    found = parquet.read_table(
        written(blocks_of(tmp_path / "in.jsonl", fields=["title"]), tmp_path / "out.parquet", note=told.append)
    )
    assert found.drop_columns(["labels", "scores"]).to_pylist() == [
        {"title": "x", "n": 1, "tags": ["p"]},
        {"title": "y", "n": None, "tags": None},
        {"title": "z", "n": None, "tags": None},
        {"title": "w", "n": None, "tags": None},
    ]
    assert told == ["warning: the fields new were not in the first documents, and are left out"]
    (tmp_path / "in.jsonl").write_text('{"title": "x", "n": 1}\n' * 2 + '{"title": "x", "n": "one"}\n')
    with pytest.raises(DataError, match="the field 'n' holds values that are no int64"):
        written(blocks_of(tmp_path / "in.jsonl", fields=["title"]), tmp_path / "other.parquet")
    assert not (tmp_path / "other.parquet").exists()


def test_what_parquet_has_no_type_for_is_json(tmp_path: Path) -> None:
    """Objects without fields, alone or in others."""
    lines = [{"title": "x", "a": {}, "b": [{}], "c": {"d": {}}, "e": {"f": 1}}]
    lines += [{"title": "y"}, {"title": "z", "a": {"n": 1}}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = parquet.read_table(written(blocks_of(tmp_path / "in.jsonl", fields=["title"]), tmp_path / "out.parquet"))
    assert found.drop_columns(["labels", "scores"]).to_pylist() == [
        {"title": "x", "a": "{}", "b": "[{}]", "c": '{"d": {}}', "e": {"f": 1}},
        {"title": "y", "a": None, "b": None, "c": None, "e": None},
        {"title": "z", "a": '{"n": 1}', "b": None, "c": None, "e": None},
    ]


def test_columns_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("title,labels\nowl,truth\n")
    told: list[str] = []
    found = rows_of(written(blocks_of(tmp_path / "in.csv"), tmp_path / "out.csv", note=told.append))
    assert found == [["title", "labels", "predicted_labels", "predicted_scores"], ["owl", "truth", "a|b", "0.5|0.25"]]
    assert "predicted_labels" in told[0]


@pytest.mark.parametrize(
    ("labels", "separator", "cells"),
    [
        (["a", "b"], ";", ["a;b", "0.5;0.25"]),
        (["a", "b"], JSON, ['["a", "b"]', "[0.5, 0.25]"]),
        (["u:a", "u:b"], URIS, ["<u:a> <u:b>", "0.5 0.25"]),
        (["a|x", "b"], "", ['["a|x", "b"]', "0.5|0.25"]),
        (["a", "b"], "\t", ["a|b", "0.5|0.25"]),
    ],
)
def test_labels_are_joined_as_in_training(tmp_path: Path, labels: list[str], separator: str, cells: list[str]) -> None:
    one = [InputBlock(Items(["0"], {"title": ["x"]}), carried={"text": ["x"]})]
    found = rows_of(written(one, tmp_path / "out.csv", Fake(labels), separator=separator))
    assert found == [["text", "labels", "scores"], ["x", *cells]]
    tabs = written(one, tmp_path / "out.tsv", Fake(labels), separator=separator)
    assert tabs.read_text() == "text\tlabels\tscores\n" + "\t".join(["x", *cells]) + "\n"


def test_names_stand_where_they_say_more_than_ids(tmp_path: Path) -> None:
    one = [InputBlock(Items(["0"], {"title": ["x"]}), carried={"text": ["x"]})]
    found = rows_of(written(one, tmp_path / "out.csv", Fake(["1", "2"], ["one", "two"])))
    assert found == [["text", "labels", "names", "scores"], ["x", "1|2", "one|two", "0.5|0.25"]]


def test_a_row_per_label(tmp_path: Path) -> None:
    blocks = [InputBlock(Items(["x", "y"], {"title": ["", ""]})), InputBlock(Items(["z", "w"], {"title": ["", ""]}), 2)]
    expected = [
        (uid, rank, label, label, score) for uid in "xyw" for rank, label, score in ((1, "a", 0.5), (2, "b", 0.25))
    ]
    names = ["id", "rank", "label", "name", "score"]
    found = rows_of(written(blocks, tmp_path / "out.csv", long=True))
    assert found == [names, *([str(cell) for cell in row] for row in expected)]
    table = parquet.read_table(written(blocks, tmp_path / "out.parquet", long=True))
    assert [tuple(row.values()) for row in table.to_pylist()] == expected
    lines = written(blocks, tmp_path / "out.jsonl", long=True).read_text().splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == expected
    with pytest.raises(ConfigError, match="text has no form with a row per label"):
        written(blocks, tmp_path / "out.txt", long=True)


def test_npz_is_written_under_the_name_it_was_given(tmp_path: Path) -> None:
    blocks = [InputBlock(Items(["x"] * 2)), InputBlock(Items(["x"] * 2), 2)]
    model = Fake()
    with answers_to(tmp_path / "plain", "npz", Answering(model)) as answers:
        for block in blocks:
            answers.write(block, model.top(block))
        assert not (tmp_path / "plain").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]
    np.testing.assert_array_equal(
        sparse.load_npz(tmp_path / "plain").toarray(), [[0.5, 0.25], [0.5, 0.25], [0, 0], [0.5, 0.25]]
    )


@pytest.mark.parametrize("name", ["out.txt", "out.jsonl.gz", "out.csv", "out.tsv.gz", "out.parquet", "out.npz"])
def test_an_error_leaves_nothing(tmp_path: Path, name: str) -> None:
    output = tmp_path / name
    output.write_text("old")

    def blocks() -> Iterator[InputBlock]:
        yield InputBlock(Items(["0"], {"title": ["x"]}), carried={"text": ["x"]})
        raise DataError("wrong")

    with pytest.raises(DataError, match="wrong"):
        written(blocks(), output)
    assert output.read_text() == "old"
    assert list(tmp_path.iterdir()) == [output]


def test_text_formats_are_compressed_where_the_name_says_so(tmp_path: Path) -> None:
    one = [InputBlock(Items(["0"], {"title": ["x"]}), carried={"text": ["x"]})]
    assert gzip.decompress(written(one, tmp_path / "o.csv.gz").read_bytes()) == b"text,labels,scores\nx,a|b,0.5|0.25\n"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_no_documents_give_an_empty_table(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "in.csv").write_text("id,title\n")
    (tmp_path / "in.txt").write_text("")
    parquet.write_table(
        pyarrow.table({"id": pyarrow.array([], pyarrow.int32()), "title": [""][:0]}), tmp_path / "in.parquet"
    )
    for name, columns in (("in.csv", ["id", "title"]), ("in.txt", ["text"]), ("in.parquet", ["id", "title"])):
        blocks = blocks_of(tmp_path / name, **({} if name == "in.txt" else {"text": "title"}))
        output = written(blocks, tmp_path / f"out.{suffix}")
        if suffix == "parquet":
            table = parquet.read_table(output)
            assert (table.column_names, len(table)) == ([*columns, "labels", "scores"], 0)
            assert name != "in.parquet" or table.schema.field("id").type == pyarrow.int32()
        else:
            assert output.read_text().replace("\t", ",") == ",".join([*columns, "labels", "scores"]) + "\n"
    np.testing.assert_array_equal(
        sparse.load_npz(written(blocks_of(tmp_path / "in.txt"), tmp_path / "out.npz")).shape, (0, 2)
    )


def test_what_tsv_cannot_hold_is_an_error(tmp_path: Path) -> None:
    one = [InputBlock(Items(["0"], {"title": ["x\ty"]}), carried={"text": ["x\ty"]})]
    with pytest.raises(DataError, match="which TSV cannot hold"):
        written(one, tmp_path / "out.tsv")
