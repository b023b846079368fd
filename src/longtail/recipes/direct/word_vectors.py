"""Pretrained vectors of words, as word2vec, fastText and GloVe write them: one word and its numbers per line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from longtail.data.lines import line_blocks
from longtail.errors import DataError
from longtail.graph.ops import unit_rows
from longtail.types import F32, I64


def read_word_vectors(path: Path, rows: Mapping[str, int]) -> tuple[I64, F32]:
    """The vectors of those words that `rows` numbers: (n,) their numbers, ascending, and (n, dim) float32.

    The file may begin with a line "count dim", and be compressed (``*.gz``). It is read in blocks; only vectors that
    are wanted are kept, and only their numbers are looked at. A word must be spelt as in `rows`; of a word that
    occurs twice the first vector counts. Vectors of zeros are left out.
    """
    found: dict[int, F32] = {}
    words, dim, promised = 0, 0, None
    for first, lines in line_blocks(path):
        for number, raw in enumerate(lines, first):
            line = raw.rstrip(" \r")
            if number == 1 and (header := _header(line)) is not None:
                promised, dim = header
                if dim < 1:
                    raise DataError(
                        f"the first line promises vectors of {dim} numbers",
                        "expected 'count dim', e.g. '2000 300'",
                        file=path,
                        line=1,
                    )
                continue
            dim = dim or line.count(" ")
            if line.count(" ") != dim or not dim:
                raise DataError(
                    f"{line.count(' ')} numbers after the word '{line.partition(' ')[0][:40]}', expected "
                    f"{dim or 'at least 1'}",
                    "each line is a word and its numbers, separated by single spaces (word2vec's or fastText's text "
                    "format)",
                    file=path,
                    line=number,
                )
            words += 1
            word, _, numbers = line.partition(" ")
            row = rows.get(word)
            if row is not None and row not in found:
                found[row] = _vector(numbers, path, number)
    if promised is not None and words != promised:
        raise DataError(
            f"{words} words, but the first line promises {promised}",
            "copy or download the file again, or mend its first line",
            file=path,
        )
    kept = np.array(sorted(row for row, vector in found.items() if vector.any()), dtype=np.int64)
    if not len(kept):
        raise DataError(
            f"none of its {words} words is one of the {len(rows)} of the vocabulary",
            "give vectors of words in the language of the data, spelt in lower case",
            file=path,
        )
    return kept, np.stack([found[row] for row in kept.tolist()])


def _header(line: str) -> tuple[int, int] | None:
    """(count, dim) if a first line says so."""
    parts = line.split(" ")
    return (
        (int(parts[0]), int(parts[1]))
        if len(parts) == 2 and all(part.isascii() and part.isdigit() for part in parts)
        else None
    )


def _vector(numbers: str, path: Path, line: int) -> F32:
    values = []
    for text in numbers.split(" "):
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        # A float32 has no more than this.
        if not abs(value) < 3e38:
            raise DataError(
                f"'{text[:40]}' is no number that can be used",
                "expected finite numbers after the word",
                file=path,
                line=line,
            )
        values.append(value)
    return np.array(values, dtype=np.float32)


def at_width(vectors: F32, width: int, rng: np.random.Generator) -> F32:
    """(n, D) vectors as (n, width), of unit length: by a random map with orthonormal rows, which keeps all cosines,
    or if width < D by a random projection.
    """
    basis, _ = np.linalg.qr(rng.standard_normal((max(vectors.shape[1], width), min(vectors.shape[1], width))))
    mapped: F32 = unit_rows(vectors @ (basis.T if width >= vectors.shape[1] else basis).astype(np.float32))
    return mapped
