"""Planted data with a known answer, for tests and offline acceptance.

The world: topics hold *families* of related labels. A label has a few words of its own. A document is about one to
three labels, mostly of one family; its text mixes their words (half of them dropped), words of their topics and
noise. What is recorded is less than the truth: rare labels are missed more often. Anchors of a metadata graph hang on
topics and families.

Every ingredient draws from a generator of its own (seed and ingredient), so turning one knob leaves the rest of the
world as it was: with and without noisy edges, documents and texts are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.config import resolve, setting, to_tables
from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.from_texts import binary_csr, with_digest
from longtail.errors import ConfigError
from longtail.metrics import PropensityConstants, constants_for, inverse_propensities
from longtail.types import I64, Csr

FAMILY_SIZE = 8  # labels of one family, where documents have few labels
HOME_MENTIONS = 4 * FAMILY_SIZE  # of a label in documents of its own family; further ones turn up anywhere
STRAY = 0.1  # share of label mentions that move to another family of their topic
TOPIC_SUPPORT = 60  # words that a topic can use
TOPIC_CONCENTRATION = 0.5  # of the Dirichlet over these words: a few words make most of a topic
OWN_WORDS = (3, 6)  # words of a label's own, at least and at most
MODES = 5  # topics of a multimodal head label
FEW_LABELS = 3  # of one document at most, where documents have two labels or fewer on average
WORST_MISSING = 0.95  # no label is missed more often than this
ANCHORS_PER_GROUP = 2  # anchors of every topic and of every family
TOPIC_EDGES = 0.3  # share of edges that lead to anchors of the topic, the others to those of the family


@dataclass(frozen=True)
class SyntheticConfig:
    """Size and knobs. Each knob has a value at which its mechanism is absent: the negative control."""

    documents: int = setting(2_000, "training documents", low=50)
    test_documents: int = setting(500, "test documents", low=1)
    labels: int = setting(500, "labels", low=10)
    labels_per_document: float = setting(1.8, "true labels of a training document on average", low=1.1, high=100)
    topics: int = setting(20, "topics, each with its own word distribution", low=1)
    zipf: float = setting(
        1.0, "exponent of label frequency by rank; 0 makes all labels equally frequent", low=0, high=3
    )
    text_informativeness: float = setting(
        1.0,
        "share of the words of labels and topics that are not replaced by noise; 0 makes text useless",
        low=0,
        high=1,
    )
    token_dropout: float = setting(
        0.5, "chance that a word of a label is left out of a document of that label", low=0, high=1
    )
    missing_rate: float = setting(
        0.3,
        "share of true test pairs that are not recorded, mostly of rare labels; training loses fewer; 0 records all",
        low=0,
        high=0.9,
    )
    label_text: float = setting(1.0, "share of labels that have a text", low=0, high=1)
    graph_coverage: float = setting(
        0.8, "share of training documents and labels with edges to anchors; 0 leaves out the graph", low=0, high=1
    )
    noise_edges: float = setting(
        0.1, "share of edges that lead to a random anchor; 1 makes the graph useless", low=0, high=1
    )
    share_documents_are_labels: float = setting(
        0.05, "share of documents that are a label themselves: same text, pair masked", low=0, high=1
    )
    independent_labels: bool = setting(False, "draw the labels of a document independently: no correlation (control)")
    multimodal_heads: int = setting(0, f"most frequent labels that are each a union of {MODES} topics", low=0)

    @property
    def most_labels(self) -> int:
        """Of one document."""
        return FEW_LABELS if self.labels_per_document <= 2 else math.ceil(2 * self.labels_per_document)

    @property
    def family_size(self) -> int:
        """A family has labels enough for a document of its own."""
        return FAMILY_SIZE if self.most_labels == FEW_LABELS else 2 * self.most_labels

    @classmethod
    def preset(cls, name: str) -> SyntheticConfig:
        """One of the sizes in `PRESETS`."""
        if name not in PRESETS:
            raise ConfigError(f"unknown size '{name}'", f"known: {', '.join(PRESETS)}")
        return PRESETS[name]


# Planted data in the shape of a public benchmark: its numbers of documents and labels, and of labels per document.
_SHAPE = SyntheticConfig(missing_rate=0.0, graph_coverage=0.0, share_documents_are_labels=0.0)
PRESETS: Mapping[str, SyntheticConfig] = {
    "tiny": SyntheticConfig(),
    "small": SyntheticConfig(documents=20_000, test_documents=5_000, labels=5_000, topics=100),
    "medium": SyntheticConfig(documents=200_000, test_documents=20_000, labels=50_000, topics=500),
    # Documents of about 20 labels each, of whose words few are left: what graphs and label text are worth there.
    "many-labels": SyntheticConfig(
        documents=20_000,
        test_documents=5_000,
        labels=5_000,
        labels_per_document=20,
        topics=100,
        token_dropout=0.9,
        missing_rate=0.0,
    ),
    "shape-131k": replace(
        _SHAPE,
        documents=294_805,
        test_documents=134_835,
        labels=131_073,
        labels_per_document=2.29,
        topics=1_000,
    ),
    "shape-1.3m": replace(
        _SHAPE,
        documents=2_248_619,
        test_documents=970_237,
        labels=1_305_265,
        labels_per_document=22.2,
        topics=2_000,
        token_dropout=0.9,
    ),
}


@dataclass(frozen=True)
class Synthetic:
    """The data set as a user would get it, and what only the maker knows.

    complete_train, complete_test: (N, L) and (N', L) CSR, the truth before labels went missing.
    propensity: (L,) chance that a true pair was recorded in the test split (training documents keep at least one
        label).
    injected_documents, injected_labels: (N, M) and (L, M) CSR, the edges that are noise. None without a graph.
    oracle_test: (N', M) CSR, edges of test documents, for oracle-linker analyses only. None without a graph.
    multimodal: numbers of the labels that are unions of topics.
    """

    dataset: Dataset
    complete_train: Csr
    complete_test: Csr
    propensity: NDArray[np.float64]
    injected_documents: Csr | None = None
    injected_labels: Csr | None = None
    oracle_test: Csr | None = None
    multimodal: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def synthesise(config: SyntheticConfig | str = "tiny", seed: int = 0) -> Synthetic:
    """Make the world that `config` (or the preset of that name) describes. The same seed gives the same world."""
    config = _checked(config)
    world = _world(config, seed)
    train = _mentions(world, world.frequency, config.documents, config, _rng(seed, "train labels"))
    share = config.test_documents / config.documents
    test_rng = _rng(seed, "test labels")
    expected = max(config.test_documents, round(world.frequency.sum() * share))
    test = _mentions(
        world,
        test_rng.multinomial(expected, world.frequency / world.frequency.sum()),
        config.test_documents,
        config,
        test_rng,
    )
    complete = [
        binary_csr(side.document, world.label_of[side.sense], (side.documents, config.labels)) for side in (train, test)
    ]
    selves = _selves(world, (train, test), complete, config, _rng(seed, "documents that are labels"))
    propensity = _propensity(complete[0], config)
    observed = [
        _observed(truth, propensity, _rng(seed, f"missing in {name}"), name == "train")
        for name, truth in zip(("train", "test"), complete, strict=True)
    ]
    texts = [
        _texts(world, side, own, config, _rng(seed, f"{name} texts"))
        for name, side, own in zip(("train", "test"), (train, test), selves, strict=True)
    ]
    labels = _labels(world, selves, texts, config, _rng(seed, "label texts"))
    splits = [
        Split(Items([f"{prefix}{row}" for row in range(side.documents)], {"title": titles}), targets, own)
        for prefix, side, titles, targets, own in zip("dt", (train, test), texts, observed, selves, strict=True)
    ]
    graph = _graph(world, train, test, config, seed) if config.graph_coverage > 0 else None
    dataset = Dataset("synthetic", labels, splits[0], splits[1], {} if graph is None else {"anchors": graph.graph})
    return Synthetic(
        with_digest(dataset),
        complete_train=complete[0],
        complete_test=complete[1],
        propensity=propensity,
        injected_documents=None if graph is None else graph.injected_documents,
        injected_labels=None if graph is None else graph.injected_labels,
        oracle_test=None if graph is None else graph.oracle_test,
        multimodal=world.heads,
    )


def _checked(config: SyntheticConfig | str) -> SyntheticConfig:
    if isinstance(config, str):
        return SyntheticConfig.preset(config)
    config = resolve(SyntheticConfig(), to_tables(config), "synthetic data")
    if config.labels > config.documents:
        raise ConfigError(
            f"{config.labels} labels for {config.documents} documents",
            "use at most as many labels as documents: each label needs one",
        )
    if config.topics > config.labels:
        raise ConfigError(f"{config.topics} topics for {config.labels} labels", "use at most as many topics as labels")
    if config.multimodal_heads and (config.topics < MODES or config.multimodal_heads > config.labels // 10):
        raise ConfigError(
            f"{config.multimodal_heads} multimodal heads with {config.topics} topics and {config.labels} labels",
            f"use at least {MODES} topics, and at most a tenth of the labels as heads",
        )
    selves = round(config.share_documents_are_labels * config.documents) + round(
        config.share_documents_are_labels * config.test_documents
    )
    if selves > config.labels:
        share = f"share_documents_are_labels={config.share_documents_are_labels:g}"
        raise ConfigError(
            f"{share} needs {selves} labels, there are {config.labels}", "lower the share, or make more labels"
        )
    return config


def _rng(seed: int, ingredient: str) -> np.random.Generator:
    return np.random.default_rng([seed, *ingredient.encode()])


# ---- topics, families, labels and their words ----


@dataclass(frozen=True)
class _World:
    """What holds for all documents. A *sense* is a label within a topic: one per label, `MODES` for a multimodal head.

    Words are numbers: first the topic words, then the labels' own words, then noise; `words` spells them.
    """

    topics: int
    families: int
    label_of: I64  # (S,) label of each sense
    family_of: I64  # (S,)
    topic_of_family: I64  # (F,)
    frequency: I64  # (S,) true number of training documents
    own: I64  # (W,) own words of all senses, sense after sense
    own_start: I64  # (S + 1,)
    support: I64  # (T, TOPIC_SUPPORT) word numbers
    cumulative: NDArray[np.float64]  # (T, TOPIC_SUPPORT) distribution function over the support
    noise_start: int
    words: Sequence[str]
    heads: I64

    @property
    def topic_of(self) -> I64:
        return self.topic_of_family[self.family_of]


def _world(config: SyntheticConfig, seed: int) -> _World:
    rng = _rng(seed, "world")
    frequency = _frequencies(config)[rng.permutation(config.labels)]
    heads = np.sort(np.argsort(-frequency, kind="stable")[: config.multimodal_heads]).astype(np.int64)
    modes = np.ones(config.labels, dtype=np.int64)
    modes[heads] = MODES
    label_of = np.repeat(np.arange(config.labels, dtype=np.int64), modes)
    mode = np.arange(len(label_of)) - np.repeat(np.cumsum(modes) - modes, modes)
    # The documents of a head are shared out evenly among its senses.
    per_sense = (frequency[label_of] + modes[label_of] - 1 - mode) // modes[label_of]

    families = max(config.topics, -(-config.labels // config.family_size))
    topic_of_family = np.arange(families, dtype=np.int64) % config.topics
    family_of = rng.permutation(np.arange(len(label_of), dtype=np.int64) % families)
    for head in heads:
        # Different topics for the senses of a head: that is what makes it multimodal.
        topics = rng.choice(config.topics, MODES, replace=False)
        family_of[label_of == head] = topics + config.topics * rng.integers(0, families // config.topics, MODES)

    n_topic_words, n_own_words = 15 * config.topics + TOPIC_SUPPORT, 2 * config.labels
    support = np.stack([rng.choice(n_topic_words, TOPIC_SUPPORT, replace=False) for _ in range(config.topics)]).astype(
        np.int64
    )
    cumulative = np.cumsum(rng.dirichlet(np.full(TOPIC_SUPPORT, TOPIC_CONCENTRATION), config.topics), axis=1)
    n_own = rng.integers(OWN_WORDS[0], OWN_WORDS[1] + 1, len(label_of))
    own_start = np.concatenate([[0], np.cumsum(n_own)]).astype(np.int64)
    own = n_topic_words + _distinct_runs(n_own_words, n_own, rng)
    noise_start = n_topic_words + n_own_words
    return _World(
        topics=config.topics,
        families=families,
        label_of=label_of,
        family_of=family_of,
        topic_of_family=topic_of_family,
        frequency=per_sense,
        own=own,
        own_start=own_start,
        support=support,
        cumulative=cumulative,
        noise_start=noise_start,
        words=_spelled(noise_start + n_topic_words, rng),
        heads=heads,
    )


def _frequencies(config: SyntheticConfig) -> I64:
    """(L,) true documents per label by rank: c / rank^s, rounded and clipped to [1, N/50], with c such that documents
    have so many labels on average as they are to have.
    """
    highest = max(1, config.documents // 50)
    shape = np.arange(1, config.labels + 1, dtype=np.float64) ** -config.zipf

    def counts(scale: float) -> I64:
        return np.clip(np.rint(scale * shape), 1, highest).astype(np.int64)

    # Fewer labels than a document may have leave room for documents that are cut short because a label would repeat.
    wanted, low, high = config.labels_per_document * config.documents, 0.0, highest / shape[-1]
    if config.most_labels > FEW_LABELS and highest * config.labels < wanted:
        raise ConfigError(
            f"{config.labels_per_document:g} labels per document, but {config.labels} labels with at most {highest} "
            f"documents each give {highest * config.labels / config.documents:.3g} for {config.documents} documents",
            "use more labels (a label has at most a fiftieth of the documents), or fewer per document",
        )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if counts(middle).sum() < wanted else (low, middle)
    return counts(high)


def _distinct_runs(n: int, lengths: NDArray[Any], rng: np.random.Generator) -> I64:
    """Runs of the given lengths out of range(n), distinct within each run: consecutive pieces of shuffled decks.

    A piece never crosses from one deck to the next, so its entries differ.
    """
    assert lengths.max() <= n
    room = n - n % lengths.max()
    decks = -(-int(lengths.max()) * len(lengths) // room)
    deck = np.concatenate([rng.permutation(n)[:room] for _ in range(decks)])
    starts = np.arange(len(lengths), dtype=np.int64) * lengths.max()
    offsets = np.arange(lengths.sum(), dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return deck[np.repeat(starts, lengths) + offsets].astype(np.int64)


def _spelled(n: int, rng: np.random.Generator) -> list[str]:
    """`n` different made-up words of a few syllables."""
    syllables = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeiou"]
    length = 3
    while len(syllables) ** length < 2 * n:
        length += 1
    codes = rng.choice(len(syllables) ** length, n, replace=False).tolist()
    return [
        "".join(syllables[(code // len(syllables) ** place) % len(syllables)] for place in range(length))
        for code in codes
    ]


# ---- which document is about which labels ----


@dataclass(frozen=True)
class _Mentions:
    """Every (document, sense) pair, grouped by document."""

    documents: int
    document: I64
    sense: I64

    @property
    def runs(self) -> _Runs:
        return _Runs.of(np.bincount(self.document, minlength=self.documents), self.sense)


@dataclass(frozen=True)
class _Runs:
    """The senses of items that lie one item after the other: item i has ``sense[start[i] : start[i] + count[i]]``."""

    start: I64
    count: I64
    sense: I64

    @classmethod
    def of(cls, count: I64, sense: I64) -> _Runs:
        return cls(np.cumsum(count) - count, count, sense)

    def any_sense(self, items: I64, rng: np.random.Generator) -> I64:
        """For each of `items` one of its senses, drawn at random."""
        return self.sense[self.start[items] + (rng.random(len(items)) * self.count[items]).astype(np.int64)]


def _mentions(
    world: _World, frequency: I64, documents: int, config: SyntheticConfig, rng: np.random.Generator
) -> _Mentions:
    """Deal the mentions of all senses out to exactly `documents` documents of different labels each, a few at most.

    Mentions are sorted by family, shuffled within, and cut into documents, so labels of a family go together and every
    label keeps exactly its frequency.
    """
    sense = np.repeat(np.arange(len(frequency), dtype=np.int64), frequency)
    if config.independent_labels:
        sense = rng.permutation(sense)
    else:
        order = rng.random(len(sense))
        families = _families_of_mentions(world, sense, frequency, config, rng)
        if config.most_labels > FEW_LABELS:
            # Of documents with many labels few would be left whole if a label came twice soon: they are spread evenly.
            home = _home_mentions(frequency, config)
            order = (_earlier(frequency) % home + order) / np.minimum(frequency, home)[sense]
        sense = sense[np.lexsort((order, families))]
    starts = _cut(world.label_of[sense], documents, config.most_labels, rng)
    row = np.cumsum(np.bincount(starts, minlength=len(sense))) - 1
    document = rng.permutation(documents)[row]
    grouped = np.argsort(document, kind="stable")
    return _Mentions(documents, document[grouped].astype(np.int64), sense[grouped])


def _home_mentions(frequency: I64, config: SyntheticConfig) -> int:
    """So few, where documents have many labels, that one label is not met twice in most documents of its family."""
    few = config.most_labels == FEW_LABELS
    return HOME_MENTIONS if few else math.ceil(2 * int(frequency.sum()) / config.labels)


def _earlier(frequency: I64) -> I64:
    """Of mentions that lie sense after sense: how many of the same sense come before each."""
    return np.arange(frequency.sum(), dtype=np.int64) - np.repeat(np.cumsum(frequency) - frequency, frequency)


def _families_of_mentions(
    world: _World, sense: I64, frequency: I64, config: SyntheticConfig, rng: np.random.Generator
) -> I64:
    """The family in whose documents each mention turns up: mostly that of its label.

    Some mentions stray to another family of the topic. A frequent label is general: what exceeds its family's share
    turns up anywhere, or, for a sense of a multimodal head, anywhere in its topic.
    """
    family = world.family_of[sense]
    excess = _earlier(frequency) >= _home_mentions(frequency, config)
    multimodal = np.isin(world.label_of[sense], world.heads)
    stray = np.flatnonzero((rng.random(len(sense)) < STRAY) | (excess & multimodal))
    topic = world.topic_of_family[family[stray]]
    # Families of a topic are numbered topic, topic + T, topic + 2T, ...
    family[stray] = topic + world.topics * rng.integers(0, (world.families - 1 - topic) // world.topics + 1)
    general = np.flatnonzero(excess & ~multimodal)
    family[general] = rng.integers(0, world.families, len(general))
    return rng.permutation(world.families)[family]


def _cut(labels: I64, documents: int, most: int, rng: np.random.Generator) -> I64:
    """Where each of `documents` documents begins in the row of `labels`."""
    n = len(labels)
    for fewest in range(1, most + 1):
        starts = _starts(labels.tolist(), rng.integers(fewest, most + 1, n).tolist())
        if len(starts) <= documents <= n:
            inside = np.setdiff1d(np.arange(n, dtype=np.int64), starts)
            return np.sort(
                np.concatenate(
                    [np.array(starts, dtype=np.int64), rng.choice(inside, documents - len(starts), replace=False)]
                )
            )
    raise ConfigError(
        f"{n} mentions of labels cannot be dealt out to {documents} documents of 1 to {most} different labels",
        "use more labels (a label has at most a fiftieth of the documents), or another zipf exponent",
    )


def _starts(labels: list[int], sizes: list[int]) -> list[int]:
    """Where documents begin: after `sizes` labels, or sooner when a label would repeat."""
    starts: list[int] = []
    seen: set[int] = set()
    for position, label in enumerate(labels):
        if not seen or len(seen) == sizes[len(starts) - 1] or label in seen:
            seen = set()
            starts.append(position)
        seen.add(label)
    return starts


def _selves(
    world: _World,
    sides: Sequence[_Mentions],
    complete: Sequence[Csr],
    config: SyntheticConfig,
    rng: np.random.Generator,
) -> list[I64]:
    """For each side (P, 2) (document, label) pairs: documents that are a label, of the family they are about and not
    one of their own labels.
    """
    members: list[set[int]] = [set() for _ in range(world.families)]
    for label, family in zip(world.label_of.tolist(), world.family_of.tolist(), strict=True):
        members[family].add(label)
    taken: set[int] = set()
    anywhere = iter(rng.permutation(config.labels).tolist())
    pairs: list[I64] = []
    for side, truth in zip(sides, complete, strict=True):
        documents = np.sort(
            rng.choice(side.documents, round(config.share_documents_are_labels * side.documents), replace=False)
        )
        families = world.family_of[side.sense[side.runs.start[documents]]]
        found: list[tuple[int, int]] = []
        for document, family in zip(documents.tolist(), families.tolist(), strict=True):
            own = set(truth.indices[truth.indptr[document] : truth.indptr[document + 1]].tolist())
            related = sorted(members[family] - own - taken)
            label = (
                related[0]
                if related
                else next((label for label in anywhere if label not in own and label not in taken), None)
            )
            if label is not None:
                taken.add(label)
                found.append((document, label))
        pairs.append(np.array(found, dtype=np.int64).reshape(-1, 2))
    return pairs


# ---- what is recorded ----


def _propensity(complete: Csr, config: SyntheticConfig) -> NDArray[np.float64]:
    """(L,) chance that a true pair is recorded: the propensity model of Jain et al. (KDD 2016), stretched to lose
    `missing_rate` of all pairs.
    """
    frequency = np.diff(complete.tocsc().indptr)
    constants: PropensityConstants = constants_for("synthetic")
    loss = 1 - 1 / inverse_propensities(frequency, config.documents, constants.a, constants.b)
    low, high = 0.0, WORST_MISSING / loss.min()
    for _ in range(60):
        middle = (low + high) / 2
        missing = np.minimum(middle * loss, WORST_MISSING) @ frequency / frequency.sum()
        low, high = (middle, high) if missing < config.missing_rate else (low, middle)
    return 1 - np.minimum(high * loss, WORST_MISSING) if config.missing_rate else np.ones(len(loss))


def _observed(complete: Csr, propensity: NDArray[np.float64], rng: np.random.Generator, keep_one: bool) -> Csr:
    """The pairs that were recorded. keep_one: every document keeps its most frequent label, as no one collects
    documents without any.
    """
    rows = np.repeat(np.arange(complete.shape[0], dtype=np.int64), np.diff(complete.indptr))
    chance = propensity[complete.indices]
    recorded = rng.random(len(rows)) < chance
    if keep_one:
        recorded[np.lexsort((-chance, rows))[complete.indptr[:-1]]] = True
    return binary_csr(rows[recorded], complete.indices[recorded].astype(np.int64), complete.shape)


# ---- texts ----


def _texts(world: _World, side: _Mentions, selves: I64, config: SyntheticConfig, rng: np.random.Generator) -> list[str]:
    """A text per document: words of its labels (some dropped), of their topics, and noise, in random order."""
    runs, everyone = side.runs, np.arange(side.documents, dtype=np.int64)
    own_document, own = _own_words(world, side.document, side.sense)
    is_kept = rng.random(len(own)) >= config.token_dropout
    topic_document = np.repeat(everyone, 1 + rng.poisson(2, side.documents))
    topical = _topic_words(world, world.topic_of[runs.any_sense(topic_document, rng)], rng)
    noise_document = np.repeat(everyone, rng.poisson(2, side.documents))
    self_document, self_words = _own_words(world, selves[:, 0], np.searchsorted(world.label_of, selves[:, 1]))

    document = np.concatenate([own_document, topic_document, noise_document, self_document])
    words = np.concatenate([own, topical, np.full(len(noise_document), -1), self_words])
    kept = np.concatenate([is_kept, np.ones(len(words) - len(own), dtype=bool)])
    # Drawn for all words, also those dropped, so that one knob does not shift the dice of another.
    uninformative = (rng.random(len(words)) >= config.text_informativeness) | (words < 0)
    words = np.where(uninformative, _noise_words(world, len(words), rng), words)
    order = np.lexsort((rng.random(len(words)), document))
    order = order[kept[order]]
    spelled = [world.words[word] for word in words[order].tolist()]
    ends = np.cumsum(np.bincount(document[order], minlength=side.documents)).tolist()
    return [" ".join(spelled[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _own_words(world: _World, owner: I64, sense: I64) -> tuple[I64, I64]:
    """The own words of each sense, with the owner repeated for each word."""
    count = np.diff(world.own_start)[sense]
    offsets = np.arange(count.sum(), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(owner, count), world.own[np.repeat(world.own_start[sense], count) + offsets]


def _topic_words(world: _World, topic: I64, rng: np.random.Generator) -> I64:
    """One word of each topic, by its distribution: inverse distribution functions of all topics laid end to end."""
    flat = (world.cumulative / world.cumulative[:, -1:] + np.arange(world.topics)[:, None]).ravel()
    place = np.searchsorted(flat, topic + rng.random(len(topic)), side="right")
    return world.support.ravel()[np.minimum(place, (topic + 1) * TOPIC_SUPPORT - 1)]


def _noise_words(world: _World, n: int, rng: np.random.Generator) -> I64:
    size = len(world.words) - world.noise_start
    return world.noise_start + (size * rng.random(n) ** 2).astype(np.int64)


def _labels(
    world: _World,
    selves: Sequence[I64],
    texts: Sequence[Sequence[str]],
    config: SyntheticConfig,
    rng: np.random.Generator,
) -> Items:
    """Labels named by their own words; one that is a document has that document's text."""
    owner, words = _own_words(world, world.label_of, np.arange(len(world.label_of), dtype=np.int64))
    titles: list[list[str]] = [[] for _ in range(config.labels)]
    for label, word in zip(owner.tolist(), words.tolist(), strict=True):
        titles[label].append(world.words[word])
    named = [" ".join(title) for title in titles]
    for pairs, documents in zip(selves, texts, strict=True):
        for document, label in pairs.tolist():
            named[label] = documents[document]
    for label in rng.permutation(config.labels)[round(config.label_text * config.labels) :].tolist():
        named[label] = ""
    return Items([f"l{label}" for label in range(config.labels)], {"title": named})


# ---- the metadata graph ----


@dataclass(frozen=True)
class _PlantedGraph:
    graph: Graph
    injected_documents: Csr
    injected_labels: Csr
    oracle_test: Csr


def _graph(world: _World, train: _Mentions, test: _Mentions, config: SyntheticConfig, seed: int) -> _PlantedGraph:
    labels = _Runs.of(
        np.bincount(world.label_of, minlength=config.labels), np.arange(len(world.label_of), dtype=np.int64)
    )
    documents, injected_documents = _edges(world, train.runs, config, seed, "train")
    label_edges, injected_labels = _edges(world, labels, config, seed, "labels")
    oracle, _ = _edges(world, test.runs, config, seed, "test")
    return _PlantedGraph(
        Graph("anchors", _anchors(world), documents, label_edges), injected_documents, injected_labels, oracle
    )


def _edges(world: _World, runs: _Runs, config: SyntheticConfig, seed: int, what: str) -> tuple[Csr, Csr]:
    """(n, M) edges to one to three anchors of an item's families and topics, and those of them that are noise."""
    n, m = len(runs.start), ANCHORS_PER_GROUP * (world.topics + world.families)
    rng = _rng(seed, f"{what} edges")
    covered = np.zeros(n, dtype=bool)
    covered[rng.permutation(n)[: round(config.graph_coverage * n)]] = True
    item = np.repeat(np.arange(n, dtype=np.int64), rng.integers(1, 4, n))
    family = world.family_of[runs.any_sense(item, rng)]
    group = np.where(rng.random(len(item)) < TOPIC_EDGES, world.topic_of_family[family], world.topics + family)
    anchor = group * ANCHORS_PER_GROUP + rng.integers(0, ANCHORS_PER_GROUP, len(item))
    item, anchor = np.divmod(np.unique(item * m + anchor), m)
    noise_rng = _rng(seed, f"{what} noise edges")
    is_noise = noise_rng.random(len(item)) < config.noise_edges
    random_anchor = noise_rng.integers(0, m, len(item))
    true = covered[item] & ~is_noise
    injected = covered[item] & is_noise & ~np.isin(item * m + random_anchor, item[true] * m + anchor[true])
    edges = binary_csr(item[true | injected], np.where(is_noise, random_anchor, anchor)[true | injected], (n, m))
    return edges, binary_csr(item[injected], random_anchor[injected], (n, m))


def _anchors(world: _World) -> Items:
    """Topics are named by their likeliest words, families by words of a label. The first word keeps them apart from
    all documents.
    """
    weight = np.diff(world.cumulative, axis=1, prepend=0)
    likeliest = np.take_along_axis(
        world.support, np.argsort(-weight, axis=1, kind="stable")[:, : 2 * ANCHORS_PER_GROUP], axis=1
    )
    by_family = np.argsort(world.family_of, kind="stable")
    member = by_family[
        np.minimum(np.searchsorted(world.family_of[by_family], np.arange(world.families)), len(by_family) - 1)
    ]
    names = {
        "topic": likeliest.reshape(-1, 2),
        "family": world.own[world.own_start[member][:, None] + np.arange(ANCHORS_PER_GROUP)].reshape(-1, 1),
    }
    titles = [
        " ".join([kind, *(world.words[word] for word in words)])
        for kind, rows in names.items()
        for words in rows.tolist()
    ]
    return Items([f"a{number}" for number in range(len(titles))], {"title": titles})
