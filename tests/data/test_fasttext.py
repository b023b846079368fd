"""Files of fastText: labels are the words with the prefix."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from longtail.data.read import read, recognise
from longtail.errors import ConfigError, DataError

LINES = "__label__bees __label__wild-flowers keeping bees\n\n__label__bees a hive __label__honey here\r\nno label\n"


@pytest.mark.parametrize("name", ["d.txt", "d.ft", "d.ft.gz", "d.train"])
def test_lines_become_documents(tmp_path: Path, name: str) -> None:
    raw = b"\xef\xbb\xbf" + LINES.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    assert recognise(tmp_path / name) == "fasttext"
    data = read(tmp_path / name)
    assert data.name == "d"
    assert list(data.labels.uids) == ["bees", "honey", "wild-flowers"]
    assert data.train.documents.fields["title"] == ["keeping bees", "a hive here", "no label"]
    np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 0, 1], [1, 1, 0], [0, 0, 0]])


def test_test_documents_and_vocabularies(tmp_path: Path) -> None:
    (tmp_path / "d.ft").write_text("__label__bees keeping bees\n")
    (tmp_path / "t.ft").write_text("__label__bees hives\n__label__roses pruning\n")
    data = read(tmp_path / "d.ft", test_file=tmp_path / "t.ft")
    np.testing.assert_array_equal(data.need_test().targets.toarray(), [[1], [0]])
    assert data.repairs == {"labels of test documents that training does not know, dropped from the truth": 1}
    (tmp_path / "v.tsv").write_text("<http://e.org/1>\tbees\n<http://e.org/2>\troses\n")
    known = read(tmp_path / "d.ft", test_file=tmp_path / "t.ft", vocabulary=tmp_path / "v.tsv")
    np.testing.assert_array_equal(known.need_test().targets.toarray(), [[1, 0], [0, 1]])
    with pytest.raises(ConfigError, match="'text' is for tables"):
        read(tmp_path / "d.ft", text="title")


def test_garbage_names_the_file_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "d.ft").write_text("__label__a b\n__label__ c\n")
    with pytest.raises(DataError, match=r"d\.ft, line 2: a label has no name"):
        read(tmp_path / "d.ft")
    (tmp_path / "d.ft").write_text("__label__a b\n")
    (tmp_path / "t.ft").write_text("plain text\n")
    with pytest.raises(DataError, match=r"t\.ft: no line has a label"):
        read(tmp_path / "d.ft", test_file=tmp_path / "t.ft")
    with pytest.raises(DataError, match="not recognised"):
        read(tmp_path / "t.ft")
    (tmp_path / "e.ft").write_text("")
    with pytest.raises(DataError, match="not recognised"):
        read(tmp_path / "e.ft")
