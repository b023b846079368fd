"""Worlds that claims make for themselves, each of which has or lacks the one thing that a claim is about.

single_label_world  labels never occur together
long_text_world     documents have bodies of several sentences, each about one label
dense_world         documents are vectors in which labels are a small part of the variance
borrowing_world     rare labels that only their company explains
warm_world          half of the labels of test documents are known (`cold_world`: the same, but not known)
two_sets_world      a second set of anchors, which may say nothing
augmented_world     labels spread along a graph
`WarmStartFolder` and `UnseenLabels` are protocols over a real and over a synthetic data set. All planted ones are the
small synthetic world, changed; the seed decides everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from benchmarks.claims.worlds import Folder, World
from longtail.config import resolve
from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.from_texts import binary_csr, with_digest
from longtail.data.protocols import WarmStart, warm_start, zero_shot
from longtail.data.synthetic import PRESETS, Synthetic, SyntheticConfig, synthesise
from longtail.evaluation import Yardstick
from longtail.types import F32, I64, Csr


def small_config(knobs: Mapping[str, Any]) -> SyntheticConfig:
    return resolve(PRESETS["small"], knobs, "planted data")


def small_world(seed: int, knobs: Mapping[str, Any]) -> Synthetic:
    return synthesise(small_config(knobs), seed)


# ---- labels that never occur together ----


def single_label_world(seed: int, **knobs: Any) -> Dataset:
    """The small synthetic world with `knobs`, its training documents cut to one label each; the test side stays as it
    is.
    """
    made = small_world(seed, knobs).dataset
    train = replace(made.train, targets=_one_of_each_row(made.train.targets, np.random.default_rng([seed, 0x51])))
    return with_digest(replace(made, train=train))


def _one_of_each_row(targets: Csr, rng: np.random.Generator) -> Csr:
    counts = np.diff(targets.indptr).astype(np.int64)
    rows = np.flatnonzero(counts)
    chosen = targets.indptr[rows] + (rng.random(len(rows)) * counts[rows]).astype(np.int64)
    return binary_csr(rows.astype(np.int64), targets.indices[chosen].astype(np.int64), targets.shape)


# ---- long texts ----

OWN, TITLE, IDLE = 3, 2, 3  # words of a sentence: of its label, of the title, and idle ones
IDLE_SENTENCES = 2  # of a document: about nothing
IDLE_WORDS = 2_000  # different ones; low numbers are frequent


def long_text_world(seed: int, *, synonyms: int = 1, sentences: int = 2, **knobs: Any) -> Dataset:
    """The small synthetic world with `knobs`, its documents with a body of `sentences` sentences per label. No
    document is a label.

    A sentence has words of its label, words of the title and idle words. With `synonyms` every word of a label is
    spelled in several ways, any of which a document may use: documents of a label then share few words, and only words
    that keep company show that they mean the same.
    """
    config = small_config({**knobs, "share_documents_are_labels": 0.0, "label_text": 1.0})
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
    written = [
        _sentence(words, title, synonyms, config.text_informativeness, rng)
        for words in labels
        for _ in range(sentences)
    ]
    written += [_idle_words(OWN + TITLE + IDLE, rng) for _ in range(IDLE_SENTENCES)]
    return " ".join(" ".join(written[place]).capitalize() + "." for place in rng.permutation(len(written)).tolist())


def _sentence(
    own: list[str], title: list[str], synonyms: int, informativeness: float, rng: np.random.Generator
) -> list[str]:
    about = [
        f"{own[rng.integers(len(own))]}{'abcdefghij'[rng.integers(synonyms)] if synonyms > 1 else ''}"
        for _ in range(OWN)
    ]
    words = [word if rng.random() < informativeness else _idle_words(1, rng)[0] for word in about]
    words += [title[rng.integers(len(title))] for _ in range(TITLE if title else 0)] + _idle_words(IDLE, rng)
    return [words[place] for place in rng.permutation(len(words)).tolist()]


def _idle_words(count: int, rng: np.random.Generator) -> list[str]:
    return [f"idle{number}" for number in (IDLE_WORDS * rng.random(count) ** 2).astype(int).tolist()]


# ---- dense vectors ----

DENSE_WIDTH = 512
LATENT = 64  # numbers that describe a label
NUISANCE = 64  # directions that have nothing to do with labels


def dense_world(
    seed: int, *, informativeness: float = 1.0, nuisance: float = 2.0, noise: float = 0.3, **knobs: Any
) -> Dataset:
    """Documents of the synthetic world of `knobs` as (n, 512) vectors in place of texts, as an image encoder might
    give them.

    A document's vector is a fixed random map of the sum of its labels' latent vectors (times `informativeness`) and
    of nuisance variables (times `nuisance`), squashed, with noise on top. Nearest neighbours are led astray by the
    nuisance; a learned projection can leave it out. With informativeness 0 the vectors know nothing of the labels.
    """
    made: Synthetic = synthesise(SyntheticConfig(**knobs), seed)
    rng = np.random.default_rng([seed, 0xDE5E])
    latent = rng.standard_normal((len(made.dataset.labels), LATENT), dtype=np.float32)
    mixing = rng.standard_normal((LATENT + NUISANCE, DENSE_WIDTH), dtype=np.float32) / np.float32(
        np.sqrt(LATENT + NUISANCE)
    )

    def vectors(truth: Csr) -> F32:
        meaning = informativeness * _mean_latent(truth, latent)
        chance = nuisance * rng.standard_normal((truth.shape[0], NUISANCE), dtype=np.float32)
        seen = np.tanh(np.hstack([meaning, chance]).astype(np.float32) @ mixing)
        return (seen + noise * rng.standard_normal(seen.shape, dtype=np.float32)).astype(np.float32)

    data = made.dataset
    test = data.need_test()
    sides = [
        _with_vectors(split, vectors(truth))
        for split, truth in ((data.train, made.complete_train), (test, made.complete_test))
    ]
    return with_digest(Dataset("synthetic", Items(data.labels.uids), sides[0], sides[1]))


def _mean_latent(truth: Csr, latent: F32) -> F32:
    """(n, LATENT): the mean latent vector of each document's labels."""
    counts = np.maximum(np.diff(truth.indptr), 1).astype(np.float32)
    sums: F32 = np.asarray(truth @ latent, dtype=np.float32)
    return sums / counts[:, None]


def _with_vectors(split: Split, vectors: F32) -> Split:
    # No document is a label here: vectors of labels do not exist, so nothing is masked.
    return Split(Items(split.documents.uids, vectors=vectors), split.targets)


# ---- labels that only their company explains ----

PLANTED = "planted"  # how ids of planted labels begin
PARTNER_DOCUMENTS = (5, 20)  # of a partner in training: enough to learn it, too few to be a head of the label graph
MEANINGLESS_WORDS, DIFFERENT_WORDS = 6, 300  # of a document of meaningless words, and of all of them


def borrowing_world(
    seed: int, *, planted: int = 60, documents_each: int = 2, together: bool = True, **knobs: Any
) -> Dataset:
    """The small synthetic world with `knobs` and with planted labels that no document has a word of.

    A planted label is recorded in a few training documents of meaningless words, beside another label, its partner (if
    `together`). Test documents about the partner are about the planted label too, in the partner's words. Who does not
    look at which labels occur together has no way from these words to the planted label.
    """
    made = small_world(seed, knobs)
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
        for words in rng.integers(DIFFERENT_WORDS, size=(len(labels), MEANINGLESS_WORDS)).tolist()
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


# ---- warm start ----


def warm_world(seed: int, **knobs: Any) -> Dataset:
    """Half of the labels of test documents are known: they are in training, and given before prediction."""
    return _warm_start(seed, knobs).warm


def cold_world(seed: int, **knobs: Any) -> Dataset:
    """The same test documents and hidden labels; training as it was."""
    return _warm_start(seed, knobs).cold


def _warm_start(seed: int, knobs: dict[str, Any]) -> WarmStart:
    return warm_start(small_world(seed, knobs).dataset, seed)


@dataclass(frozen=True)
class WarmStartFolder:
    """One arm of warm start on a real data set. What is revealed does not depend on the seed of a training, so all
    seeds see the same documents and hidden labels.
    """

    shared: ClassVar[bool] = True

    name: str
    arm: Literal["warm", "cold"]

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        return {**Folder(self.name).identity(seed, folder), "arm": self.arm}

    def world(self, seed: int, folder: Path | None) -> World:
        return World.of(getattr(warm_start(Folder(self.name).world(seed, folder).dataset, 0), self.arm))

    def describe(self) -> str:
        return f"{self.name}, {self.arm} start"


# ---- anchors ----

SECOND = "second"


def two_sets_world(seed: int, *, junk: bool = True, **knobs: Any) -> Dataset:
    """The small synthetic world with a second set of anchors (`SECOND`): the first one's edges. junk: of other items,
    drawn at random.
    """
    made, rng = small_world(seed, knobs), np.random.default_rng([seed, 0x2A])
    first = made.dataset.graphs["anchors"]

    def of_others(edges: Csr | None) -> Csr | None:
        return edges[rng.permutation(edges.shape[0])] if junk and edges is not None else edges

    second = replace(first, name=SECOND, documents=of_others(first.documents), labels=of_others(first.labels))
    return with_digest(replace(made.dataset, graphs={**made.dataset.graphs, SECOND: second}))


def augmented_world(seed: int, **knobs: Any) -> Dataset:
    """The small synthetic world where a training document also has every label it shares an anchor with. Paper: RAMEN
    Table 5 (AugGT).
    """
    made = small_world(seed, knobs).dataset
    graph: Graph = made.graphs["anchors"]
    assert graph.documents is not None
    assert graph.labels is not None
    reached = (made.train.targets + graph.documents @ graph.labels.T).tocoo()
    targets = binary_csr(reached.row.astype(np.int64), reached.col.astype(np.int64), made.train.targets.shape)
    return with_digest(replace(made, train=replace(made.train, targets=targets)))


@dataclass(frozen=True)
class UnseenLabels:
    """Training on a part of the labels of a synthetic world, measured on the others alone (zero shot:
    edges of the others are not known in training, either).
    """

    shared: ClassVar[bool] = False

    knobs: Mapping[str, Any] = field(default_factory=dict)

    def identity(self, seed: int, folder: Path | None) -> dict[str, Any]:
        return {"unseen labels": dict(self.knobs), "seed": seed}

    def world(self, seed: int, folder: Path | None) -> World:
        cut = zero_shot(small_world(seed, self.knobs).dataset, seed)
        return World(cut.train, Yardstick.of(cut.unseen))

    def describe(self) -> str:
        return f"planted small ({', '.join(f'{name}={value}' for name, value in self.knobs.items())}), unseen labels"
