"""Files of word vectors: what is read, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from longtail.errors import DataError
from longtail.recipes.direct.word_vectors import read_word_vectors

ROWS = {"apple": 3, "pear": 0, "plum": 7}


def written(folder: Path, text: str | bytes, name: str = "words.vec") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("header", ["", "4 2\n"], ids=["without", "with"])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"], ids=["plain", "space", "windows"])
def test_wanted_words_are_found(header: str, end: str, tmp_path: Path) -> None:
    lines = ["apple 1 -2.5", "the 9 9", "pear 1e-2 0", "apple 5 5"]
    rows, vectors = read_word_vectors(written(tmp_path, header + "".join(line + end for line in lines)), ROWS)
    np.testing.assert_array_equal(rows, [0, 3])
    np.testing.assert_array_equal(vectors, np.array([[0.01, 0], [1, -2.5]], np.float32))
    assert vectors.dtype == np.float32


def test_compressed_files_and_odd_words(tmp_path: Path) -> None:
    text = "a\u00a0b 1 2\n\u2028 1 2\nplum 3 4"  # a no-break space and a line separator are no ends
    rows, vectors = read_word_vectors(written(tmp_path, gzip.compress(text.encode()), "words.vec.gz"), ROWS)
    assert (rows.tolist(), vectors.tolist()) == ([7], [[3, 4]])


def test_numbers_of_other_words_are_not_looked_at_and_zeros_are_left_out(tmp_path: Path) -> None:
    rows, _ = read_word_vectors(written(tmp_path, "the x y\napple 0 0\nplum 0 1\n"), ROWS)
    assert rows.tolist() == [7]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("2 3\napple 1 2 3\npear 1 2\n", 3, "2 numbers after the word 'pear', expected 3"),
        ("apple 1 2 3\nthe 1 2 3 4\n", 2, "4 numbers after the word 'the', expected 3"),
        ("apple 1 2\n\npear 1 2\n", 2, "0 numbers after the word '', expected 2"),
        ("apple\n", 1, "expected at least 1"),
        ("apple 1 two\n", 1, "'two' is no number"),
        ("apple 1  2\n", 1, "'' is no number"),
        ("the 1 2\napple nan 2\n", 2, "'nan' is no number"),
        ("apple 1 -inf\n", 1, "'-inf' is no number"),
        ("apple 1 1e39\n", 1, "'1e39' is no number"),
        ("5 0\napple\n", 1, "vectors of 0 numbers"),
        (b"apple 1 2\n\xff 1 2\n", 2, "not valid UTF-8"),
        ("3 2\napple 1 2\npear 1 2\n", None, "2 words, but the first line promises 3"),
        ("Apple 1 2\nthe 1 2\n", None, "none of its 2 words is one of the 3"),
        ("apple 0 0\n", None, "none of its 1 words"),
        ("", None, "none of its 0 words"),
    ],
)
def test_bad_files_are_named(text: str | bytes, line: int | None, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_word_vectors(path, ROWS)
    assert says in caught.value.message
    assert (caught.value.file, caught.value.line) == (path, line)
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["missing", "folder", "no gzip"])
def test_what_cannot_be_opened_is_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path if kind == "folder" else tmp_path / "words.vec.gz"
    if kind == "no gzip":
        path.write_bytes(b"apple 1 2\n")
    with pytest.raises(DataError) as caught:
        read_word_vectors(path, ROWS)
    assert caught.value.file == path
