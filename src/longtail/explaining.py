"""From a model's reasons to explanations with words: `Predictor.explain`.

A model is asked for its `Reasons` first. One that has none is watched instead: each word is left out in turn, and all
variants of a text are scored together (occlusion).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from longtail.bundle import Bundle
from longtail.data.dataset import Items
from longtail.explanation import Cause, Explanation, FeatureShare, OtherShare, Reasons, WordShare
from longtail.features.places import Places
from longtail.kernels.arrays import pieces
from longtail.types import F32, I32, Batch, Context

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


def explanations(bundle: Bundle, asked: Question) -> list[list[Explanation]]:
    """For every document those of its labels, in their order."""
    places = bundle.featurizer.places(asked.documents, asked.batch)
    reasons: Reasons | None = bundle.ranker.explain(asked.batch, asked.labels, asked.context)
    if reasons is None or places.belongs is None:
        return _Occlusion(bundle, asked, places).explanations()
    return _Exact(bundle, asked, places, reasons).explanations()


class _Answer:
    """What both methods have in common: words as they are written, and names of labels."""

    def __init__(self, bundle: Bundle, asked: Question, places: Places) -> None:
        self.bundle, self.asked, self.places = bundle, asked, places
        fields = bundle.featurizer.fields
        self.texts = [asked.documents.fields[name] for name in fields]
        number, begins, ends = places.fields.tolist(), places.begins.tolist(), places.ends.tolist()
        starts = places.starts.tolist()
        # Text, field, start and end of every word: the same for all labels.
        self.written = [
            (self.texts[number[w]][document][begins[w] : ends[w]], fields[number[w]], begins[w], ends[w])
            for document in range(len(starts) - 1)
            for w in range(starts[document], starts[document + 1])
        ]

    def words(self, document: int) -> slice:
        return slice(int(self.places.starts[document]), int(self.places.starts[document + 1]))

    def labels(self, document: int) -> Iterator[tuple[int, int, str, str]]:
        """Place, number, id and name of each label of a document."""
        for place, label in enumerate(self.asked.labels[document].tolist()):
            if label >= 0:
                yield place, label, self.bundle.labels.uids[label], self.bundle.labels.names[label]


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
        for document in range(len(self.asked.labels)):
            own = self.words(document)
            written, shares = self.written[own], self.of_words[own].T.tolist()
            answers.append(
                [
                    Explanation(
                        label=uid,
                        name=name,
                        score=scores[document][place],
                        method="exact",
                        words=tuple(
                            WordShare(*word, share, behind)
                            for word, share, behind in zip(
                                written, shares[place], self._behind(own, place), strict=True
                            )
                        ),
                        bias=bias[document][place],
                        total=totals[document][place],
                        formula=r.formula,
                        others=self._named(r.others.get((document, place), ())),
                        terms=self._terms(document, place),
                        note=r.note if found[document][place] else OUTSIDE,
                    )
                    for place, _, uid, name in self.labels(document)
                ]
            )
        return answers

    def _behind(self, words: slice, place: int) -> Sequence[tuple[FeatureShare, ...]]:
        """The features of words, those that count most first."""
        if not self.asked.features:
            return [()] * (words.stop - words.start)
        starts, entries, parts = pieces(self.places.belongs)
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
        whole = self._scores(self.asked.documents, np.arange(len(counts)))
        owners = np.repeat(np.arange(len(counts)), counts)
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
            fallen[part] = whole[owners[part]] - self._scores(variants, owners[part])
        ends = np.cumsum(counts)
        return [
            self._of(document, fallen[ends[document] - counts[document] : ends[document]], whole[document])
            for document in range(len(counts))
        ]

    def _of(self, document: int, fallen: F32, whole: F32) -> list[Explanation]:
        own, tried = self.words(document), len(fallen)
        count = own.stop - own.start
        note = "" if count == tried else f"only the first {tried} of {count} words were left out in turn"
        return [
            Explanation(
                label=uid,
                name=name,
                score=float(whole[place]),
                method="occlusion",
                words=tuple(
                    WordShare(*word, share)
                    for word, share in zip(self.written[own][:tried], fallen[:, place].tolist(), strict=True)
                ),
                bias=0.0,
                total=float(whole[place]),
                formula="share = score - score without the word",
                predictions=tried,
                note=note if whole[place] > 0 else OUTSIDE,
            )
            for place, _, uid, name in self.labels(document)
        ]

    def _without(self, owners: I32, words: I32) -> Items:
        """Documents `owners`, each without one of its words: a space stands in its place."""
        fields = self.bundle.featurizer.fields
        variants: dict[str, list[str]] = {name: [] for name in fields}
        for document, word in zip(owners.tolist(), words.tolist(), strict=True):
            _, field, start, end = self.written[word]
            for name, texts in zip(fields, self.texts, strict=True):
                text = texts[document]
                variants[name].append(f"{text[:start]} {text[end:]}" if name == field else text)
        return Items([str(n) for n in range(len(owners))], variants)

    def _scores(self, documents: Items, owners: I32) -> F32:
        batch = self.bundle.featurizer.batch(documents)
        context = None if self.asked.context is None else self.asked.context.rows(owners)
        labels, ranker = self.asked.labels[owners], self.bundle.ranker
        scores: F32 = ranker.scores_of(batch, labels, len(self.bundle.labels), context)
        return scores
