"""Words point at the characters that they came from, and features at their words."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data.dataset import Items
from longtail.features.pieces import TokenizerPieces
from longtail.features.places import Places, spans, word_reader
from longtail.features.reading import _INVISIBLE, normalise, origins
from longtail.features.settings import SparseTextConfig
from longtail.features.sparse import SparseText
from longtail.types import Csr

READER = word_reader()


def words_of(text: str) -> list[str]:
    """The words of a text as it is written."""
    places = spans([text], 1, READER).places
    return [text[start:end] for start, end in zip(places.begins.tolist(), places.ends.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the cat, the CAT", ["the", "cat", "the", "CAT"]),
        ("", []),
        ("  ... ", []),
        ("Ärger im Café", ["Ärger", "im", "Café"]),
        (
            unicodedata.normalize("NFD", "Ärger im Café"),
            [unicodedata.normalize("NFD", w) for w in ("Ärger", "im", "Café")],
        ),
        ("ﬁne ﬂour", ["ﬁne", "ﬂour"]),  # one character becomes two
        ("İstanbul x", ["İstanbul", "x"]),  # longer in lower case
        ("ΟΔΟΣ ΟΔΟΣ", ["ΟΔΟΣ", "ΟΔΟΣ"]),  # a final sigma depends on what follows
        ("so\u00adft cat", ["so\u00adft", "cat"]),  # invisible
        ("\u00adcat", ["cat"]),
        ("ＦＵＬＬ width", ["ＦＵＬＬ", "width"]),
        ("猫と犬", ["猫", "と", "犬"]),
        ("ｶﾞｷﾞ x", ["ｶﾞ", "ｷﾞ", "x"]),  # half-width: two characters become one
        ("\u1100\u1161\u11a8 x", ["\u1100\u1161\u11a8", "x"]),  # three parts of one syllable
        ("a\0b", ["a", "b"]),
        ("a \ud800 b", ["a", "b"]),
        ("½ cup", ["½", "½", "cup"]),  # becomes 1⁄2: two words that share their characters
        ("😀cat😀 dog", ["cat", "dog"]),
    ],
)
def test_words_as_they_are_written(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=12))
def test_every_character_of_the_normalised_text_comes_from_somewhere(text: str) -> None:
    starts, ends = origins(text)
    known = normalise(text)
    assert len(starts) == len(ends) == len(known)
    assert (starts < ends).all()
    assert (np.diff(starts) >= 0).all()
    assert not len(ends) or int(ends[-1]) <= len(text)
    # Where the origin says, the same characters are made.
    for start, end in {(int(s), int(e)) for s, e in zip(starts, ends, strict=True)}:
        made = normalise(text[start:end]).replace("ς", "σ")
        here = "".join(c for c, s in zip(known, starts, strict=True) if s == start).replace("ς", "σ")
        assert made == here


def test_composed_across_an_invisible_character() -> None:
    text = "e\u00ad\u0301t\u00e9"
    assert _INVISIBLE.search(text)
    starts, ends = origins(text)
    assert [text[s:e] for s, e in zip(starts, ends, strict=True)] == ["e\u00ad\u0301", "t", "\u00e9"]


def fitted(**more: object) -> tuple[SparseText, Items]:
    items = Items(
        ["a", "b", "c"],
        {
            "title": ["The cat sat", "CAT cat dog", "unseen"],
            "body": ["a cat sat there", "", "Dög ångström cat"],
        },
    )
    config = SparseTextConfig(fields=("title", "body"), min_count_rest=1, **more)  # type: ignore[arg-type]
    return SparseText.fit(items, None, config), items


@pytest.mark.parametrize("subwords", ["none", "chars", "wordpiece"])
@pytest.mark.parametrize("weights", [(), (2.0, 0.5)])
def test_every_feature_belongs_to_its_words(subwords: str, weights: tuple[float, ...]) -> None:
    text, items = fitted(subwords=subwords, weights=weights, piece_count=100)
    batch = text.batch(items)
    x: Csr = batch.sparse
    places = text.places(items, batch)
    assert places.belongs is not None
    assert places.feature is not None
    np.testing.assert_allclose(np.asarray(places.belongs.sum(axis=0)).ravel(), 1, rtol=1e-6)
    rows = places.belongs.tocoo()
    fields = ("title", "body")
    owner = np.repeat(np.arange(3), np.diff(x.indptr))
    word_owner = np.repeat(np.arange(3), np.diff(places.starts))
    for word, entry in zip(*rows.coords, strict=True):
        document = int(word_owner[word])
        assert document == owner[entry]
        written = items.fields[fields[places.fields[word]]][document][places.begins[word] : places.ends[word]]
        spelled, kind = places.feature(int(x.indices[entry]))
        bare = spelled.strip("<>").removeprefix("##")
        assert normalise(written) in spelled.split() if kind in ("word", "pair") else bare in normalise(written)


def test_places_share_a_feature_by_what_their_field_counts() -> None:
    text, items = fitted(pairs=False, weights=(3.0, 1.0))
    places = text.places(items, text.batch(items))
    assert places.belongs is not None
    assert places.feature is not None
    first = slice(int(places.starts[0]), int(places.starts[1]))
    x: Csr = text.batch(items).sparse
    shares = {
        (int(places.fields[word]), places.feature(int(x.indices[entry]))[0]): value
        for word, entry, value in zip(*places.belongs.tocoo().coords, places.belongs.tocoo().data, strict=True)
        if first.start <= word < first.stop
    }
    assert shares[0, "cat"] == pytest.approx(0.75)
    assert shares[1, "cat"] == pytest.approx(0.25)
    assert shares[1, "there"] == 1


def test_half_a_pair_belongs_to_each_word() -> None:
    text, items = fitted(words=False)
    places: Places = text.places(items, text.batch(items))
    assert places.belongs is not None
    words = places.belongs[int(places.starts[1]) : int(places.starts[2])].sum(axis=1)  # CAT cat dog
    np.testing.assert_allclose(words, [0.5, 1.0, 0.5])


def test_a_tokenizer_of_others_has_words_but_no_features() -> None:
    from longtail.features.settings import CheckpointFeaturesConfig

    part = TokenizerPieces(CheckpointFeaturesConfig(fields=("title", "body")), "{}")
    _, items = fitted()
    places = part.places(items, None)  # type: ignore[arg-type]
    assert places.belongs is None
    assert np.diff(places.starts).tolist() == [7, 3, 4]
