"""From a model's reasons to explanations with words: `Predictor.explain`.

A model is asked for its `Reasons` first. One that has none is watched instead: each word is left out in turn, and all
variants of a text are scored together (occlusion).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, repeat
from typing import NamedTuple

import numpy as np

from longtail.bundle import Bundle
from longtail.data.dataset import Items
from longtail.explanation import Cause, Example, Explanation, FeatureShare, OtherShare, Reasons, WordShare
from longtail.features.places import Places
from longtail.graph.company import Company
from longtail.kernels.arrays import F64, Pieces, pieces
from longtail.types import F32, I32, I64, Batch, Context

# Words of a document that are left out in turn, at most: each is a prediction.
MOST_WORDS = 64
# Scores that variants may have in memory at a time.
_SCORES = 1 << 24
OUTSIDE = "the model did not look at this label: it is outside the shortlist, and never predicted for this text"


@dataclass(frozen=True)
class Question:
    """Documents with every field that the model reads, as it reads them, and the labels (B, C; -1: none) in question.

    features: whether the features behind each word are wanted.
    """

    documents: Items
    batch: Batch
    labels: I32
    context: Context | None = None
    features: bool = False


def with_examples(
    bundle: Bundle, company: Company, asked: Question, answers: list[list[Explanation]]
) -> list[list[Explanation]]:
    """The same with training documents that carry each label, of those that the model keeps."""
    kept = {int(label): company.examples_of(int(label)) for label in np.unique(asked.labels[asked.labels >= 0])}
    known = {text: number for number, text in enumerate(sorted({text for found in kept.values() for _, text in found}))}
    if not known:
        return answers
    of_documents, of_examples = asked.batch.sparse, bundle.featurizer.batch_of_texts(list(known)).sparse
    near = np.zeros((len(answers), len(known))) if of_examples is None else (of_documents @ of_examples.T).toarray()
    found: list[list[Explanation]] = []
    for row, (labels, answer) in enumerate(zip(asked.labels, answers, strict=True)):
        lists = [
            sorted(kept[label], key=partial(_distance, near[row], known)) for label in labels[labels >= 0].tolist()
        ]
        found.append(
            [
                replace(why, examples=tuple(Example(*one) for one in some))
                for why, some in zip(answer, lists, strict=True)
            ]
        )
    return found


def _distance(near: F64, known: Mapping[str, int], example: tuple[str, str]) -> float:
    return -float(near[known[example[1]]])


def explanations(bundle: Bundle, asked: Question) -> list[list[Explanation]]:
    """For every document those of its labels, in their order."""
    places = bundle.featurizer.places(asked.documents, asked.batch)
    reasons: Reasons | None = bundle.ranker.explain(asked.batch, asked.labels, asked.context)
    if reasons is None or places.belongs is None:
        return _Occlusion(bundle, asked, places).explanations()
    return _Exact(bundle, asked, places, reasons).explanations()


class _Written(NamedTuple):
    """Words of a document as they are written, column by column: text, field, start and end."""

    texts: list[str]
    fields: list[str]
    starts: list[int]
    ends: list[int]


def _word_shares(
    written: _Written, shares: Iterable[float], behind: Iterable[tuple[FeatureShare, ...]]
) -> tuple[WordShare, ...]:
    # Made by `tuple` itself, in a tenth of the time.
    found: Iterable[WordShare] = map(tuple.__new__, repeat(WordShare), zip(*written, shares, behind, strict=False))
    return tuple(found)


class _Answer:
    """What both methods have in common: words as they are written, and names of labels."""

    def __init__(self, bundle: Bundle, asked: Question, places: Places) -> None:
        self.bundle, self.asked, self.places = bundle, asked, places
        self.texts = [asked.documents.fields[name] for name in bundle.featurizer.fields]
        real = asked.labels >= 0
        uids, names = (table.take(asked.labels[real]) for table in (bundle.labels.uids, bundle.labels.names))
        named = zip(np.nonzero(real)[1].tolist(), uids, names, strict=True)
        # Of every document: place, id and name of each of its labels.
        self.labels = [list(islice(named, count)) for count in real.sum(axis=1).tolist()]

    def words(self, document: int) -> slice:
        return slice(int(self.places.starts[document]), int(self.places.starts[document + 1]))

    def written(self, document: int, words: slice) -> _Written:
        names = self.bundle.featurizer.fields
        fields, starts, ends = (
            column[words].tolist() for column in (self.places.fields, self.places.begins, self.places.ends)
        )
        texts = [self.texts[field][document][start:end] for field, start, end in zip(fields, starts, ends, strict=True)]
        return _Written(texts, [names[field] for field in fields], starts, ends)


class _Exact(_Answer):
    def __init__(self, bundle: Bundle, asked: Question, places: Places, reasons: Reasons) -> None:
        super().__init__(bundle, asked, places)
        self.reasons = reasons
        assert places.belongs is not None, "asked only where features stand in words"
        self.of_words: F32 = places.belongs @ reasons.shares  # (W, C)

    def explanations(self) -> list[list[Explanation]]:
        r = self.reasons
        scores, bias, totals, found = r.scores.tolist(), r.bias.tolist(), r.totals.tolist(), r.found.tolist()
        answers: list[list[Explanation]] = []
        for document, labels in enumerate(self.labels):
            own = self.words(document)
            written, shares = self.written(document, own), self.of_words[own].T.tolist()
            answers.append(
                [
                    Explanation(
                        label=uid,
                        name=name,
                        score=scores[document][place],
                        method="exact",
                        words=_word_shares(written, shares[place], self._behind(own, place)),
                        bias=bias[document][place],
                        total=totals[document][place],
                        formula=r.formula,
                        others=self._named(r.others.get((document, place), ())),
                        terms=self._terms(document, place),
                        note=r.note if found[document][place] else OUTSIDE,
                    )
                    for place, uid, name in labels
                ]
            )
        return answers

    def _behind(self, words: slice, place: int) -> Iterable[tuple[FeatureShare, ...]]:
        """The features of words, those that count most first."""
        if not self.asked.features:
            return repeat(())
        starts, entries, parts = self._belongs
        columns, spelled = pieces(self.asked.batch.sparse).indices, self.places.feature
        assert spelled is not None, "features in words have a spelling"
        behind: list[tuple[FeatureShare, ...]] = []
        for word in range(words.start, words.stop):
            found = [
                FeatureShare(
                    *spelled(int(columns[entries[at]])), float(parts[at] * self.reasons.shares[entries[at], place])
                )
                for at in range(int(starts[word]), int(starts[word + 1]))
            ]
            behind.append(tuple(sorted(found, key=lambda one: (-abs(one.share), one.text))))
        return behind

    @cached_property
    def _belongs(self) -> Pieces:
        """A feature that is in a word several times once."""
        return pieces(self.places.belongs)

    def _terms(self, document: int, place: int) -> tuple[OtherShare, ...]:
        terms = self.reasons.terms
        named = tuple(OtherShare("term", "", name, float(terms[name][document, place])) for name in terms)
        return named + self._named(self.reasons.links.get((document, place), ()))

    def _named(self, causes: Sequence[Cause]) -> tuple[OtherShare, ...]:
        labels = self.bundle.labels
        return tuple(
            OtherShare(cause.kind, labels.uids[cause.number], labels.names[cause.number] + cause.name, cause.share)
            if cause.kind == "label"
            else OtherShare(cause.kind, "", cause.name, cause.share)
            for cause in causes
        )


class _Occlusion(_Answer):
    def explanations(self) -> list[list[Explanation]]:
        counts = np.minimum(np.diff(self.places.starts), MOST_WORDS)
        whole = self._scores(self.asked.documents, np.arange(len(counts), dtype=np.int64))
        owners = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        words = np.concatenate(
            [
                np.zeros(0, np.int64),
                *(start + np.arange(n) for start, n in zip(self.places.starts[:-1], counts, strict=True)),
            ]
        ).astype(np.int64)
        # All variants of all texts, as many at a time as memory allows.
        most = max(1, _SCORES // max(len(self.bundle.labels), 1))
        fallen = np.zeros((len(words), self.asked.labels.shape[1]), dtype=np.float32)
        for start in range(0, len(words), most):
            part = slice(start, start + most)
            variants = self._without(owners[part], words[part])
            np.subtract(whole[owners[part]], self._scores(variants, owners[part]), out=fallen[part])
        ends = np.cumsum(counts)
        return [
            self._of(document, fallen[ends[document] - counts[document] : ends[document]], whole[document])
            for document in range(len(counts))
        ]

    def _of(self, document: int, fallen: F32, whole: F32) -> list[Explanation]:
        own, tried = self.words(document), len(fallen)
        count = own.stop - own.start
        note = "" if count == tried else f"only the first {tried} of {count} words were left out in turn"
        written = self.written(document, slice(own.start, own.start + tried))
        return [
            Explanation(
                label=uid,
                name=name,
                score=float(whole[place]),
                method="occlusion",
                words=_word_shares(written, fallen[:, place].tolist(), repeat(())),
                bias=0.0,
                total=float(whole[place]),
                formula="share = score - score without the word",
                predictions=tried,
                note=note if whole[place] > 0 else OUTSIDE,
            )
            for place, uid, name in self.labels[document]
        ]

    def _without(self, owners: I64, words: I64) -> Items:
        """Documents `owners`, each without one of its words: a space stands in its place."""
        variants: dict[str, list[str]] = {name: [] for name in self.bundle.featurizer.fields}
        places = self.places
        for document, word in zip(owners.tolist(), words.tolist(), strict=True):
            field, start, end = int(places.fields[word]), int(places.begins[word]), int(places.ends[word])
            for number, (texts, made) in enumerate(zip(self.texts, variants.values(), strict=True)):
                text = texts[document]
                made.append(f"{text[:start]} {text[end:]}" if number == field else text)
        return Items([str(n) for n in range(len(owners))], variants)

    def _scores(self, documents: Items, owners: I64) -> F32:
        batch = self.bundle.featurizer.batch(documents)
        context = None if self.asked.context is None else self.asked.context.rows(owners)
        labels, ranker = self.asked.labels[owners], self.bundle.ranker
        scores: F32 = ranker.scores_of(batch, labels, len(self.bundle.labels), context)
        return scores
