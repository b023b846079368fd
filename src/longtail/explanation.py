"""Why a label: what a model answers when it is asked for its reasons.

`Explanation` and what it holds are for people, pages and JSON. `Reasons` is what a ranker gives for a batch, in
numbers of features and labels; `longtail.explaining` makes the one from the other.

A share is what something adds. Where the method is ``exact``, shares of words, shares of others and the bias add up to
`Explanation.total`, and `formula` says how the score follows from it. Where it is ``occlusion``, the share of a word is
how much the score falls when the word is left out; such shares need not add up to anything.

An exact share is exact at this document: where the model is not linear, what it switches on and off (ReLU), what it
scales by (lengths of vectors) and which neighbours it finds is taken as it is for this document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from longtail.types import F32, BoolArray

Method: TypeAlias = Literal["exact", "occlusion"]


@dataclass(frozen=True, slots=True)
class FeatureShare:
    """A feature behind a word, as the model's vocabulary spells it.

    kind: word, pair, chars (characters inside a word) or piece.  share: its part of the share of the word.
    """

    text: str
    kind: str
    share: float


class WordShare(NamedTuple):
    """A word where it stands in the document. (A named tuple: there are dozens of each text, and making them is what
    explaining a batch spends its time on.)

    text: as it is written there: ``texts[field][start:end]``. start and end count characters as Python does (code
    points; JavaScript counts UTF-16 units).  field: the text field of the document.
    features: where they were asked for.
    """

    text: str
    field: str
    start: int
    end: int
    share: float
    features: tuple[FeatureShare, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherShare:
    """What counted that is no word.

    kind: ``label``, ``document`` (of training), ``anchor``, or else what `name` says in words.
    id: of the label; empty where there is none.
    """

    kind: str
    id: str
    name: str
    share: float


@dataclass(frozen=True, slots=True)
class Example:
    """A training document that carries the label: its id and its text, which may be cut."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one label was given to one document.

    words: in reading order, those with a share of 0 too.  others: what else is in the total, e.g. neighbours in a
    graph.
    bias: what the label has without any word.  total: what all these add up to; of occlusion the score.
    formula: how the score is made, e.g. ``score = sigmoid(total)``; other names in it are those of `terms`.
    predictions: extra ones that were made for this document (occlusion).
    examples: documents of training that carry the label, those most like this document first; where they were asked
        for, and the model keeps some.
    note: what a reader should know, e.g. what the model file does not keep.
    """

    label: str
    name: str
    score: float
    method: Method
    words: tuple[WordShare, ...]
    bias: float
    total: float
    formula: str
    others: tuple[OtherShare, ...] = ()
    terms: tuple[OtherShare, ...] = ()
    predictions: int = 0
    examples: tuple[Example, ...] = ()
    note: str = ""

    def by_share(self) -> list[WordShare]:
        """The words, those that count most first, whatever their sign."""
        return sorted(self.words, key=lambda word: -abs(word.share))

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers; every key is always there but `features`, which are those that were
        asked for.
        """
        return {
            "label": self.label,
            "name": self.name,
            "score": self.score,
            "method": self.method,
            "words": [_word_as_json(word) for word in self.words],
            "bias": self.bias,
            "total": self.total,
            "formula": self.formula,
            "others": [_other_as_json(other) for other in self.others],
            "terms": [_other_as_json(term) for term in self.terms],
            "predictions": self.predictions,
            "examples": [{"id": one.id, "text": one.text} for one in self.examples],
            "note": self.note,
        }


def _word_as_json(word: WordShare) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "text": word.text,
        "field": word.field,
        "start": word.start,
        "end": word.end,
        "share": word.share,
    }
    if word.features:
        plain["features"] = [{"text": one.text, "kind": one.kind, "share": one.share} for one in word.features]
    return plain


def _other_as_json(other: OtherShare) -> dict[str, Any]:
    return {"kind": other.kind, "id": other.id, "name": other.name, "share": other.share}


# ---- what a ranker gives ----


class Cause(NamedTuple):
    """What counted for a label that is no word.  number: of the label or the document, where the kind is
    ``label`` or ``document``; else -1.
    """

    kind: str
    number: int
    name: str
    share: float


@dataclass(frozen=True)
class Reasons:
    """Why B documents have C labels each, at this document (see above).

    scores: (B, C) what the model gives; 0 for a label that it does not find.
    totals: (B, C) computed as the model does, not by adding up.
    shares: (E, C) what each of the E entries of the documents' sparse rows adds to the totals of its document.
    bias: (B, C) what is there without any word.
    found: (B, C) whether the label was looked at; the formula holds for those alone.
    terms: by name, (B, C) each.
    others, links: causes by (document, place of the label): of the total, and of the score beside `terms`.
    """

    scores: F32
    totals: F32
    shares: F32
    bias: F32
    formula: str
    found: BoolArray
    terms: Mapping[str, F32] = field(default_factory=dict)
    others: Mapping[tuple[int, int], Sequence[Cause]] = field(default_factory=dict)
    links: Mapping[tuple[int, int], Sequence[Cause]] = field(default_factory=dict)
    note: str = ""
