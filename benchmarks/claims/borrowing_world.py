"""A planted world with rare labels that only their company explains: no document has a word of their text.

A planted label is recorded in a few training documents of meaningless words, beside another label (its partner). Test
documents about the partner are about the planted label too, in the partner's words. Who does not look at which labels
occur together has no way from these words to the planted label.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.claims.graph_measures import PLANTED
from longtail.config import resolve
from longtail.data.dataset import Dataset, Items, Split
from longtail.data.from_texts import binary_csr, with_digest
from longtail.data.synthetic import PRESETS, synthesise
from longtail.types import I64, Csr

PARTNER_DOCUMENTS = (5, 20)  # of a partner in training: enough to learn it, too few to be a head of the label graph
WORDS, DIFFERENT_WORDS = 6, 300  # of a document of meaningless words, and of all of them


def borrowing_world(
    seed: int, *, planted: int = 60, documents_each: int = 2, together: bool = True, **knobs: Any
) -> Dataset:
    """The small synthetic world with `knobs` and with planted labels. together: their training documents carry the
    partner as well.
    """
    made = synthesise(resolve(PRESETS["small"], knobs, "planted data"), seed)
    rng, n_labels = np.random.default_rng([seed, 0xB0]), len(made.dataset.labels)
    partners = _partners(made.dataset.train.targets, planted, rng)
    labels = np.arange(n_labels, n_labels + planted)
    train = _with_documents(
        made.dataset.train,
        np.repeat(labels, documents_each),
        np.repeat(partners, documents_each) if together else None,
        rng,
    )
    test = replace(made.dataset.need_test(), targets=_with_planted(made.complete_test, partners, labels))
    return with_digest(replace(made.dataset, labels=_with_labels(made.dataset.labels, planted), train=train, test=test))


def _partners(targets: Csr, count: int, rng: np.random.Generator) -> I64:
    frequency = np.bincount(targets.indices, minlength=targets.shape[1])
    return rng.choice(
        np.flatnonzero((frequency >= PARTNER_DOCUMENTS[0]) & (frequency <= PARTNER_DOCUMENTS[1])), count, replace=False
    )


def _with_labels(labels: Items, planted: int) -> Items:
    titles = [*labels.fields["title"], *(f"only{number}x only{number}y" for number in range(planted))]
    return Items([*labels.uids, *(f"{PLANTED}{number}" for number in range(planted))], {"title": titles})


def _with_documents(split: Split, labels: I64, partners: I64 | None, rng: np.random.Generator) -> Split:
    """One more document of meaningless words for each of `labels`, with the partner as second label if there are
    partners.
    """
    old = split.targets.tocoo()
    rows = len(split) + np.arange(len(labels))
    texts = [
        " ".join(f"idle{word}" for word in words)
        for words in rng.integers(DIFFERENT_WORDS, size=(len(labels), WORDS)).tolist()
    ]
    pairs = [(old.coords[0], old.coords[1]), (rows, labels), *([] if partners is None else [(rows, partners)])]
    documents, columns = (np.concatenate([pair[side] for pair in pairs]).astype(np.int64) for side in (0, 1))
    items = Items(
        [*split.documents.uids, *(f"idle{row}" for row in rows)], {"title": [*split.documents.fields["title"], *texts]}
    )
    return replace(split, documents=items, targets=binary_csr(documents, columns, (len(items), int(labels.max()) + 1)))


def _with_planted(truth: Csr, partners: I64, labels: I64) -> Csr:
    """The truth, and planted labels wherever their partners are."""
    planted_of = np.full(truth.shape[1], -1, dtype=np.int64)
    planted_of[partners] = labels
    old = truth.tocoo()
    documents, columns = old.coords[0].astype(np.int64), old.coords[1].astype(np.int64)
    is_partner = planted_of[columns] >= 0
    shape = (int(truth.shape[0]), int(labels.max()) + 1)
    return binary_csr(
        np.concatenate([documents, documents[is_partner]]),
        np.concatenate([columns, planted_of[columns[is_partner]]]),
        shape,
    )
