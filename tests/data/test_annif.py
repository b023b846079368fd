"""Corpora of Annif: folders of full texts, and short texts as TSV and CSV."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from longtail.data.read import read, recognise
from longtail.errors import ConfigError, DataError

E = "http://example.org/"


def corpus(folder: Path, files: dict[str, str | bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


DOCUMENTS: dict[str, str | bytes] = {
    "doc1.txt": "Keeping bees\nin small  gardens.\n",
    "doc1.tsv": f"<{E}bees>\tbees\n<{E}gardens>\tgardens\n",
    "doc2.txt": b"\xef\xbb\xbfPruning roses\r\n",
    "doc2.tsv": b"\xef\xbb\xbf" + f"<{E}roses>\troses\r\n\r\n<{E}gardens>\r\n".encode(),
    "doc3.txt": "Nobody said what this is about.",
}


def test_a_folder_of_full_texts(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "train", DOCUMENTS)
    test = corpus(tmp_path / "test", {"a.txt": "hives", "a.tsv": f"<{E}bees>\tbees\n", "b.txt": "?", "b.tsv": ""})
    assert recognise(folder) == "annif"
    data = read(folder, test_file=test)
    assert list(data.train.documents.uids) == ["doc1", "doc2"]
    assert data.train.documents.fields["title"] == ["Keeping bees in small gardens.", "Pruning roses"]
    assert list(data.labels.uids) == [E + "bees", E + "gardens", E + "roses"]
    assert data.labels.fields["title"] == ["bees", "gardens", "roses"]
    np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(data.need_test().targets.toarray(), [[1, 0, 0], [0, 0, 0]])
    assert data.repairs == {"texts without a .tsv or .key file of subjects beside them, left out": 1}
    assert read(folder, test=False).digest == data.digest.partition("+")[0]


def test_key_files_hold_names_which_a_vocabulary_turns_into_concepts(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "c", {"d.txt": "hives", "d.key": "bees\r\n\nold roses\r\n"})
    data = read(folder)
    assert list(data.labels.uids) == data.labels.fields["title"] == ["bees", "old roses"]
    (tmp_path / "v.tsv").write_text(f"<{E}1>\tBees\n<{E}2>\tOld roses\n<{E}3>\tsoil\n")
    known = read(folder, vocabulary=tmp_path / "v.tsv")
    assert list(known.labels.uids) == [E + "1", E + "2", E + "3"]
    np.testing.assert_array_equal(known.train.targets.toarray(), [[1, 1, 0]])
    (folder / "d.tsv").write_text(f"<{E}1>\tbees\n")
    assert list(read(folder).labels.uids) == [E + "1"], "where both are there, URIs are preferred to names"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"d.txt": "x", "d.tsv": f"<{E}a>\ta\nbees\n"}, ["d.tsv, line 2", "'bees' is not a URI"]),
        ({"d.txt": "x", "d.tsv": f"<{E}a> a\n"}, ["d.tsv, line 1", "is not a URI"]),
        ({"d.txt": b"\xff", "d.key": "a"}, ["d.txt, line 1", "UTF-8"]),
        ({"d.txt": "", "d.key": "a"}, ["none of the 1 training documents has a text"]),
    ],
)
def test_garbage_names_the_file_and_the_line(tmp_path: Path, files: dict[str, str | bytes], words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        read(corpus(tmp_path / "c", files))
    for word in words:
        assert word in str(caught.value)


def test_other_test_data_and_options_of_tables_are_refused(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "c", DOCUMENTS)
    with pytest.raises(DataError, match=r"nothing.*no text with its subjects"):
        read(folder, test_file=corpus(tmp_path / "nothing", {}))
    with pytest.raises(ConfigError, match=r"'separator' is for tables.*annif"):
        read(folder, separator=";")


# ---- short texts ----


@pytest.mark.parametrize(("left", "right"), [("<", ">"), ("", "")])
def test_short_texts_as_tsv_and_csv(tmp_path: Path, left: str, right: str) -> None:
    a, b = f"{left}{E}a{right}", f"{left}{E}b{right}"
    (tmp_path / "c.tsv").write_text(f"keeping bees\t{a} {b}\npruning\t{b}\n")
    (tmp_path / "c.csv").write_text(f'text,subject_uris\n"keeping bees",{a} {b}\npruning,{b}\n')
    for name in ("c.tsv", "c.csv"):
        data = read(tmp_path / name)
        assert list(data.labels.uids) == [E + "a", E + "b"]
        assert data.train.documents.fields["text"] == ["keeping bees", "pruning"]
        np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 1], [0, 1]])


def test_uris_that_a_separator_divides_are_divided_there(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(f"text,labels\nbees,{E}a|{E}b\n")
    assert list(read(tmp_path / "c.csv").labels.uids) == [E + "a", E + "b"]
