from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from longtail.data.dataset import Items
from longtail.features.settings import SparseTextConfig
from longtail.features.sparse import SparseText
from longtail.features.vocabulary import INSIDE, train_pieces
from longtail.persistence import load_part, save_part

SYLLABLES = ("ka", "lo", "mi", "tér", "un", "pre", "ing", "sel", "ta", "ve", "日", "x")


def planted_texts(n: int, seed: int) -> list[str]:
    """Words put together from syllables, as WordPiece expects them to be."""
    rng = random.Random(seed)
    return [
        " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 8)))
        for _ in range(n)
    ]


TEXTS = planted_texts(300, seed=1)
PIECES = SparseTextConfig(words=False, pairs=False, subwords="wordpiece", piece_count=120, min_count_rest=1)


def items(texts: list[str]) -> Items:
    return Items([str(n) for n in range(len(texts))], {"title": texts})


def word_counts() -> Counter[str]:
    return Counter(word for text in TEXTS for word in text.replace("日", " ").split())


def test_the_same_words_give_the_same_pieces_in_any_order() -> None:
    """Many words occur equally often: without fixed numbers of inner characters, chance decides which are merged
    first.
    """
    rng = random.Random(3)
    words = sorted({"".join(rng.choices("abcdefghij", k=rng.randint(2, 6))) for _ in range(400)})
    learned = set()
    for seed in range(8):
        random.Random(seed).shuffle(words)
        learned.add(tuple(train_pieces(words, np.full(len(words), 2), 100)))
    assert len(learned) == 1


def test_what_occurs_once_is_no_piece() -> None:
    merged = [
        piece for piece in train_pieces(["abc", "xyz"], np.array([2, 1]), 100) if len(piece.removeprefix(INSIDE)) > 1
    ]
    assert "abc" in merged
    assert not {"x", "y", "z"} & set("".join(merged))


def test_pieces_have_the_size_asked_for_and_cover_every_character() -> None:
    counts = word_counts()
    pieces = train_pieces(list(counts), np.array(list(counts.values())), 90)
    assert len(pieces) == 90
    assert {word[0] for word in counts} <= set(pieces)
    assert {INSIDE + character for word in counts for character in word[1:]} <= set(pieces)


def test_words_are_cut_as_the_library_cuts_them() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    part = SparseText.fit(items(TEXTS), None, PIECES)
    theirs = Tokenizer(
        models.WordPiece(
            {piece: n for n, piece in enumerate([*part.pieces, "[UNK]"])},
            unk_token="[UNK]",
            max_input_chars_per_word=100,
        )
    )
    theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fresh = [*planted_texts(200, seed=2), "unknöwn", "ka" * 50, "ka" * 51, "kaq", ""]
    numbers = part.token_ids(part.document_columns(items(fresh)), max_length=200)
    for text, row in zip(fresh, numbers, strict=True):
        ours = [part.token(part.token_range[n]) for n in row if n >= 0]
        expected = [token for token in theirs.encode(text.replace("日", " 日 ")).tokens if token != "[UNK]"]
        assert ours == expected, text


def test_pieces_are_weighed_like_other_features() -> None:
    part, rows, labels = SparseText.fit_transform(items(TEXTS), items(["kalo mi"]), PIECES)
    assert {part.kind(n) for n in range(part.width)} == {"piece"}
    assert labels is not None
    numbers = part.token_ids(part.document_columns(items(TEXTS)), max_length=200)
    for n, row in enumerate(numbers):
        counts = np.bincount(row[row >= 0], minlength=part.width)
        values = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * part.idf
        np.testing.assert_allclose(rows[[n]].toarray()[0], values / np.linalg.norm(values), rtol=1e-5)


def test_words_and_pieces_lie_side_by_side() -> None:
    part = SparseText.fit(items(TEXTS), None, SparseTextConfig(subwords="wordpiece", piece_count=120))
    kinds = [part.kind(n) for n in range(part.width)]
    assert kinds == sorted(kinds, key=["word", "pair", "chars", "piece"].index)
    assert set(kinds) == {"word", "pair", "piece"}
    assert {part.kind(n) for n in part.token_range} == {"piece"}
    assert len(part.token_range) == kinds.count("piece")


@pytest.mark.parametrize("config", [PIECES, SparseTextConfig(subwords="wordpiece", piece_count=100)])
def test_saved_pieces_give_the_same_rows(tmp_path: Path, config: SparseTextConfig) -> None:
    part, rows, _ = SparseText.fit_transform(items(TEXTS), None, config)
    save_part(part, tmp_path / "part")
    again = load_part(tmp_path / "part")
    assert list(again.pieces) == list(part.pieces)
    for matrix in (again.transform(items(TEXTS)), SparseText.fit(items(TEXTS), None, config).transform(items(TEXTS))):
        assert matrix.indices.tobytes() == rows.indices.tobytes()
        assert matrix.data.tobytes() == rows.data.tobytes()
