"""A planted world of long texts: a title as in the synthetic world, and a body of several sentences, each about one
label.

A sentence has words of its label, words of the title and idle words. With `synonyms` every word of a label is spelled
in several ways, any of which a document may use: documents of a label then share few words, and only words that keep
company tell they mean the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from longtail.config import resolve
from longtail.data.dataset import Dataset, Items, Split
from longtail.data.from_texts import with_digest
from longtail.data.synthetic import PRESETS, SyntheticConfig, synthesise
from longtail.types import Csr

OWN, TITLE, IDLE = 3, 2, 3  # words of a sentence: of its label, of the title, and idle ones
IDLE_SENTENCES = 2  # of a document: about nothing
IDLE_WORDS = 2_000  # different ones; low numbers are frequent


def long_text_world(seed: int, *, synonyms: int = 1, sentences: int = 2, **knobs: Any) -> Dataset:
    """The small synthetic world with `knobs`, its documents with a body of `sentences` sentences per label. No
    document is a label.
    """
    config = resolve(PRESETS["small"], {**knobs, "share_documents_are_labels": 0.0, "label_text": 1.0}, "planted data")
    made, rng = synthesise(config, seed), np.random.default_rng([seed, 0x107])
    own = [title.split() for title in made.dataset.labels.fields["title"]]

    def with_body(split: Split, truth: Csr) -> Split:
        titles = list(split.documents.fields["title"])
        labels = np.split(truth.indices, truth.indptr[1:-1])
        bodies = [
            _body([own[label] for label in of], title.split(), synonyms, sentences, config, rng)
            for of, title in zip(labels, titles, strict=True)
        ]
        return replace(split, documents=Items(split.documents.uids, {"title": titles, "content": bodies}))

    train, test = (
        with_body(made.dataset.train, made.complete_train),
        with_body(made.dataset.need_test(), made.complete_test),
    )
    return with_digest(replace(made.dataset, train=train, test=test, graphs={}))


def _body(
    labels: list[list[str]],
    title: list[str],
    synonyms: int,
    sentences: int,
    config: SyntheticConfig,
    rng: np.random.Generator,
) -> str:
    said = [
        _sentence(words, title, synonyms, config.text_informativeness, rng)
        for words in labels
        for _ in range(sentences)
    ]
    said += [_idle(OWN + TITLE + IDLE, rng) for _ in range(IDLE_SENTENCES)]
    return " ".join(" ".join(said[place]).capitalize() + "." for place in rng.permutation(len(said)).tolist())


def _sentence(
    own: list[str], title: list[str], synonyms: int, informativeness: float, rng: np.random.Generator
) -> list[str]:
    about = [
        f"{own[rng.integers(len(own))]}{'abcdefghij'[rng.integers(synonyms)] if synonyms > 1 else ''}"
        for _ in range(OWN)
    ]
    words = [word if rng.random() < informativeness else _idle(1, rng)[0] for word in about]
    words += [title[rng.integers(len(title))] for _ in range(TITLE if title else 0)] + _idle(IDLE, rng)
    return [words[place] for place in rng.permutation(len(words)).tolist()]


def _idle(count: int, rng: np.random.Generator) -> list[str]:
    return [f"idle{number}" for number in (IDLE_WORDS * rng.random(count) ** 2).astype(int).tolist()]
