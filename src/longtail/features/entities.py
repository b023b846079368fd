"""Named entities of a text, by a recogniser that the settings name. None is needed: TextRank finds keywords alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from longtail.errors import ConfigError

Recogniser: TypeAlias = Callable[[str], Iterable[tuple[int, int]]]
"""A text in, (first character, character after the last) of every entity out."""

_WORDS = re.compile(r"\w[\w-]*")
_SENTENCE_ENDS = frozenset(".!?\n")
# Of one document: names in lists must not crowd out everything else.
_MOST_ENTITIES = 64


def capitals(text: str) -> list[tuple[int, int]]:
    """Runs of capitalised words inside sentences: crude, but offline and for every language that capitalises names."""
    spans: list[tuple[int, int]] = []
    before = 0
    for match in _WORDS.finditer(text):
        gap = text[before : match.start()]
        if match.group()[0].isupper() and before and not _SENTENCE_ENDS & set(gap):
            joined = bool(spans) and spans[-1][1] == before and gap == " "
            spans[-1:] = [(spans[-1][0], match.end())] if joined else [*spans[-1:], match.span()]
        before = match.end()
    return spans


_RECOGNISERS: dict[str, Recogniser] = {"capitals": capitals}


def register_recogniser(name: str, recognise: Recogniser) -> None:
    """Make ``features.keygraph.ner=name`` known, e.g. a wrapper around spaCy.

    A model that was trained with it predicts only where it is registered too.
    """
    _RECOGNISERS[name] = recognise


def entities(name: str, texts: Sequence[str]) -> list[str]:
    """The entities of one document's fields, as they are spelled, at most 64."""
    if name not in _RECOGNISERS:
        raise ConfigError(
            f"features.keygraph.ner is '{name}', which is not known here (known: {', '.join(_RECOGNISERS)})",
            "register it with longtail.features.entities.register_recogniser before training and before predicting",
        )
    found = [text[begin:end] for text in texts for begin, end in _RECOGNISERS[name](text)]
    return found[:_MOST_ENTITIES]
