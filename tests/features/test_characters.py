from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.features.reading import CODE_POINTS, SINGLE, WORD, class_runs, class_table, normalise

UNSPACED = ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA")


def is_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM" and ord(character) < 0x40000


def is_unspaced(character: str) -> bool:
    return is_word(character) and (unicodedata.name(character, "").startswith(UNSPACED) or character in "々〆〇")


def test_every_assigned_character_has_the_class_of_its_category_and_name() -> None:
    table = class_table(*class_runs())
    assert table.shape == (CODE_POINTS,)
    for code in range(CODE_POINTS):
        character = chr(code)
        if unicodedata.category(character) in ("Cn", "Co", "Cs"):
            assert table[code] == 0
        elif (
            unicodedata.category(character)[0] != "M"
        ):  # marks of kana compose; alone they are rare and either way right
            assert (table[code] > 0) == is_word(character), hex(code)
            if code < 0x3000 or unicodedata.name(character, "").startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL")):
                assert (table[code] == SINGLE) == is_unspaced(character), (hex(code), unicodedata.name(character, ""))


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("ÄÖÜ ẞ", "äöü ß"),
        ("ＦＵＬＬ　ｗｉｄｔｈ", "full width"),
        ("ﬁne ½ ²", "fine 1⁄2 2"),
        ("J\u030c and \u01f0", "\u01f0 and \u01f0"),  # this accent has a code point of its own in lower case only
        ("co\u00adoperate zero\u200dwidth", "cooperate zerowidth"),
        ("ΟΔΟΣ", "οδος"),
        ("㎒ Å", "mhz å"),
    ],
)
def test_spellings_that_mean_the_same_become_the_same(text: str, clean: str) -> None:
    assert normalise(text) == clean


@settings(max_examples=200)
@given(st.text())
def test_a_clean_text_stays_as_it_is(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize("starts", [[], [1, 5], [0, 5, 5], [0, CODE_POINTS], [0, -1]])
def test_runs_that_do_not_cover_all_characters_are_refused(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="runs"):
        class_table(np.array(starts, dtype=np.int32), np.full(len(starts), WORD, dtype=np.uint8))


def test_unknown_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="runs"):
        class_table(np.array([0], dtype=np.int32), np.array([3], dtype=np.uint8))
