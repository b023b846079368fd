"""The settings of `direct`, and what follows from the data where they leave it open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from longtail.config import section, setting
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.graph.label_graph import LabelGraphConfig
from longtail.recipes.base import TUNABLE_FEATURES, EnsembleConfig
from longtail.search.index import IndexKind
from longtail.training import ADAPTS

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset, Items
    from longtail.features.base import Fitted
    from longtail.nn.shards import Shard
    from longtail.training.prepare import TrainingSet

# Epochs by the number of documents: more of them need fewer looks at each.
EPOCHS_SCALE, FEWEST_EPOCHS, MOST_EPOCHS = 7000, 8, 60
# And the rate: many documents drown the noise of large steps, few are learnt by heart. A short training must take
# longer steps.
RATE, RATE_DOCUMENTS, LOWEST_RATE, HIGHEST_RATE = 0.001, 100_000, 0.0005, 0.0025
LEAST_WAY, HIGHEST_SHORT_RATE = 2.0, 0.004
# From so many pairs of a document and a label on, the matrix M and a v with either sign are learnt well enough to pay.
MANY_PAIRS = 32_768
# Steps between two looks at all label texts: a look costs more than a step.
TEXT_EVERY = {"cpu": 8, "cuda": 4}
# Labels that a document meets in a step where they are sampled, at least; with no more labels than that all are met.
LABELS_PER_STEP = 4096
# Models that are trained side by side where a GPU does it, and how many documents there must be for each number of
# their vectors: the directions that are kept follow from documents.
TOGETHER, DOCUMENTS_PER_NUMBER = 3, 32
# Numbers in the tables of words and labels of one model, up to which it is done unasked: three of them take three times
# the memory, and larger ones were not measured.
NUMBERS_TOGETHER = 2**28
# Numbers in the rows of labels, and in the vectors of words, from which on they are kept in fewer bytes unasked: words
# lose a little more by it than rows.
MANY_IN_ROWS, MANY_IN_WORDS = 2**28, 2**30
# How far a document moves its own score towards its target where rows have no moments, at the highest rate.
ROW_RATE = 1.0

# A word of so few documents tells them from others, however few there are in all.
FEWEST_COMMON = 50

WhereManyPairs = Literal["auto", "on", "off"]
RowsKind = Literal["adam", "factored", "sgd"]


@dataclass(frozen=True)
class DirectFeaturesConfig(FeaturesConfig):
    """Texts as words, pairs and characters, and what pretrained vectors say of them."""

    view: Literal["none", "static", "transformer"] = setting(
        "none",
        "pretrained vectors beside those that are learnt: static, of pieces of words; transformer, of whole texts, "
        "which costs much time at prediction (features.view_model)",
    )
    view_model: str = setting(
        "",
        "where the vectors of the view come from: static: the folder of a WordLlama model, empty: its package; "
        "transformer: the folder of a BERT or DistilBERT checkpoint, empty or 'minilm': that of the package",
        is_path=True,
    )
    view_length: int = setting(64, "transformer: tokens per text at most", low=3, high=512)

    def fit(self, documents: Items, labels: Items | None) -> Fitted:
        from longtail.features.sparse import SparseText

        if self.view == "none":
            return super().fit(documents, labels)
        if self.view == "transformer":
            from longtail.features.with_tokens import TextWithTokens
            from longtail.recipes.direct.view import view_folder

            folder = view_folder(self.view_model)
            return TextWithTokens.fit_texts(documents, labels, self.sparse_text(), folder, self.view_length)
        if self.subwords == "wordpiece":
            raise ConfigError(
                "features.view=static brings pieces of words of its own, and features.subwords is 'wordpiece'",
                "use features.subwords=chars or none beside a view",
            )
        from longtail.recipes.direct.view import StaticVectors

        pieces = StaticVectors.read(self.view_model).pieces
        return SparseText.fit_batches(documents, labels, self.sparse_text(), pieces)


@dataclass(frozen=True)
class EncoderConfig:
    width: int = setting(512, "numbers per document vector", low=2)
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    token_dropout: float = setting(0.0, "share of a document's features dropped in a step", low=0, high=0.99)
    signed: WhereManyPairs = setting(
        "auto",
        "v has no ReLU: documents and label texts are sums of the same vectors; auto: with "
        f"{MANY_PAIRS:,} or more pairs of a document and a label",
    )
    residual: bool = setting(True, "a residual between v and the classifiers")


@dataclass(frozen=True)
class LabelsConfig:
    text: bool = setting(True, "label text is part of a label's classifier")
    map: WhereManyPairs = setting(
        "auto",
        "label texts pass through a matrix that is learnt, so that a text need not mean the same in a label as in a "
        "document; auto: as encoder.signed",
    )
    free: bool = setting(True, "a free vector per label is part of its classifier")
    trust: float = setting(
        1.0, "documents at which a label uses half of its free vector; 0: all of it from the first on", low=0
    )
    graph: LabelGraphConfig = section(LabelGraphConfig, "which labels are neighbours, for train.smoothing alone")


@dataclass(frozen=True)
class AnchorsConfig:
    weight: float = setting(
        0.3, "how much a link to an anchor counts beside a label of a document; 0: graphs are not used", low=0
    )
    fewest: int = setting(2, "links that an anchor must have to be used", low=1)


@dataclass(frozen=True)
class TrainConfig:
    epochs: int = setting(
        0,
        f"passes over the examples; 0: {EPOCHS_SCALE} / sqrt(examples), at least {FEWEST_EPOCHS} and at most "
        f"{MOST_EPOCHS}",
        low=0,
    )
    batch: int = setting(512, f"documents per step; {ADAPTS}", low=1)
    rate: float = setting(
        0.0,
        f"highest learning rate of Adam; 0: {RATE} sqrt(examples / {RATE_DOCUMENTS:,}), from {LOWEST_RATE} to "
        f"{HIGHEST_RATE}, and at least {LEAST_WAY:g} / steps ({HIGHEST_SHORT_RATE} at most)",
        low=0,
    )
    warm_up: float = setting(0.25, "share of the training in which the rate rises", low=0, high=1)
    text_every: int = setting(
        0,
        f"steps between two looks at the label texts; 0: {TEXT_EVERY['cuda']} on a GPU, {TEXT_EVERY['cpu']} on a CPU",
        low=0,
    )
    text_steps: Literal["words", "all"] = setting(
        "words",
        "what takes longer steps (the root of text_every times) as it is taught so rarely: words of label texts; or M "
        "and gains, too, so that a CPU and a GPU take them as far",
    )
    self_pairs: float = setting(
        0.1,
        "what a masked pair counts as a negative where the document is the label; 0: nothing, 1: as any other",
        low=0,
        high=1,
    )
    sampled: Literal["auto", "on", "off"] = setting(
        "auto",
        "a step scores documents against a sample of the labels, unbiased; off: against all of them; auto: on a CPU "
        f"with more than {LABELS_PER_STEP:,} labels and anchors",
    )
    labels_per_step: int = setting(
        0,
        "labels that a document is scored against in a step where they are sampled, in the mean; 0: a quarter of "
        f"them, at least {LABELS_PER_STEP:,}",
        low=0,
    )
    together: int = setting(
        0,
        "models that are trained side by side, with random numbers of their own, and then made one of the size of one; "
        f"0: {TOGETHER} on a GPU where they can be made one (encoder.signed), there are {DOCUMENTS_PER_NUMBER} "
        f"documents for each number of their vectors and at most {NUMBERS_TOGETHER:,} numbers in a model, else 1",
        low=0,
        high=16,
    )
    rows: Literal["auto", "adam", "factored", "sgd"] = setting(
        "auto",
        "rows of labels are float32 numbers with Adam's moments; factored: with second moments for labels and columns "
        "alone; or sgd: 2 bytes a number, rounded by chance, and no moments; auto: sgd on a GPU from "
        f"{MANY_IN_ROWS:,} numbers in them on, else adam",
    )
    row_rate: float = setting(
        ROW_RATE,
        "train.rows=sgd: how far a document moves its own score towards its target in a step, at the highest rate; "
        "factored: what the learning rate is multiplied with",
        low=0,
    )
    words: Literal["auto", "adam", "light"] = setting(
        "auto",
        "vectors of words have Adam's two moments for each number, or light: 2 bytes for each in place of 8; auto: "
        f"light on a GPU from {MANY_IN_WORDS:,} numbers in them on",
    )
    recorded: Literal["auto", "off"] = setting(
        "auto",
        "auto: steps are recorded on a GPU and played again, unless something is in the way, which metrics.jsonl names;"
        " off: each is told anew",
    )
    smoothing: float = setting(
        0.3, "target of labels that are neighbours (labels.graph) of a document's labels; 0: none", low=0, high=1
    )


@dataclass(frozen=True)
class MemoryConfig:
    weight: float = setting(
        0.6, "what a vote of the nearest training documents counts beside a label's own score; 0: none are asked", low=0
    )
    neighbours: int = setting(20, "training documents that vote", low=1, high=1000)
    depth: int = setting(30, "labels of a document, the best by their own score, that are voted on", low=1, high=1000)
    rarity: float = setting(
        0.25,
        "votes for a label of n documents count (n + 1) to the power of minus this; less raises P@1, more rare labels",
        low=0,
        high=1,
    )
    most: float = setting(
        0.03,
        f"words that more than this share of the documents have do not count ({FEWEST_COMMON} documents may always)",
        low=0,
        high=1,
    )


@dataclass(frozen=True)
class PredictConfig:
    index: IndexKind = setting("auto", "how labels are searched: exact, hnsw, or by their number")


@dataclass(frozen=True)
class DirectConfig:
    features: DirectFeaturesConfig = section(
        DirectFeaturesConfig,
        "which texts are read, and how they become numbers",
        subwords="chars",
        damping=3.0,
        other_names=0.5,
    )
    encoder: EncoderConfig = section(EncoderConfig, "from a text to a vector")
    labels: LabelsConfig = section(LabelsConfig, "what a label's classifier is made of")
    anchors: AnchorsConfig = section(AnchorsConfig, "graphs of documents and labels with anchors, in training only")
    train: TrainConfig = section(TrainConfig, "how it is trained")
    memory: MemoryConfig = section(MemoryConfig, "training documents that a prediction remembers")
    predict: PredictConfig = section(PredictConfig, "how it predicts")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")


def default_epochs(documents: int) -> int:
    return int(np.clip(round(EPOCHS_SCALE / np.sqrt(documents)), FEWEST_EPOCHS, MOST_EPOCHS))


def default_rate(documents: int, steps: int) -> float:
    by_documents = float(np.clip(RATE * np.sqrt(documents / RATE_DOCUMENTS), LOWEST_RATE, HIGHEST_RATE))
    return max(by_documents, min(LEAST_WAY / steps, HIGHEST_SHORT_RATE))


def labels_per_step(config: TrainConfig, device: str, shard: Shard, *, extra: bool) -> int:
    """How many labels a document is scored against in a step; 0: all of them, and nothing by chance.

    shard: of how many labels, anchors included; several processes score all of them.  extra: whether another recipe
    adds a loss (RAMEN).
    """
    if config.sampled == "on" and shard.processes > 1:
        raise ConfigError(
            f"train.sampled=on, but {shard.processes} processes train together, and each scores all of its labels",
            "leave it at auto, or train with one process",
        )
    if config.sampled == "on" and device != "cpu":
        raise ConfigError(
            "train.sampled=on, but training runs on a GPU, where all labels are cheaper than a choice of them",
            "leave it at auto, or train with --device cpu",
        )
    asked = {f"train.rows={kind}": config.rows == kind for kind in ("factored", "sgd")}
    asked["train.words=light"] = config.words == "light"
    all_at_once = [setting for setting, is_asked in asked.items() if is_asked]
    if config.sampled == "on" and all_at_once:
        raise ConfigError(
            f"train.sampled=on, but {all_at_once[0]} is for steps that score all labels", "leave one of them at auto"
        )
    pays = device == "cpu" and shard.labels > LABELS_PER_STEP and not extra and shard.processes == 1 and not all_at_once
    if config.sampled == "off" or (config.sampled == "auto" and not pays):
        return 0
    return config.labels_per_step or max(LABELS_PER_STEP, shard.labels // 4)


def kind_of_rows(config: DirectConfig, labels: int, device: str) -> RowsKind:
    """How rows of so many labels are kept."""
    if config.train.rows != "auto":
        return config.train.rows
    return "sgd" if device == "cuda" and labels * config.encoder.width >= MANY_IN_ROWS else "adam"


def words_are_light(config: DirectConfig, words: int, device: str) -> bool:
    """Whether the moments of so many words take fewer bytes."""
    many = device == "cuda" and words * config.encoder.width >= MANY_IN_WORDS
    return config.train.words == "light" or (config.train.words == "auto" and many)


def small_parts(
    config: DirectConfig, data: TrainingSet, device: str, shard: Shard, pace: float, *, extra: bool
) -> dict[str, Any]:
    """What `Shared` says of how much of the labels a step sees, and in how many bytes rows and words are kept."""
    few = labels_per_step(config.train, device, shard, extra=extra)
    rows = "adam" if few else kind_of_rows(config, shard.labels, device)
    light = not few and words_are_light(config, data.featurizer.width, device)
    row_pace = config.train.row_rate * (pace if rows == "sgd" else 1.0)
    return {"labels_per_step": few, "rows": rows, "row_pace": row_pace, "light_words": light}


def bytes_of_model(config: DirectConfig, words: int, rows: int, device: str) -> int:
    """Of one model while it is trained: tables with two moments, the vectors of label texts' words as they are looked
    at, composed rows with their gradients (and bytes, where labels are sampled), or what they are where they are small.
    """
    width = config.encoder.width
    # Without moments: row, text and its gradient in bf16, and the finished row. Light: a bf16 gradient of words.
    of_row = {"adam": 33 * width + 4, "factored": 25 * width + 12, "sgd": 10 * width + 16}[
        kind_of_rows(config, rows, device)
    ]
    of_word = (12 if words_are_light(config, words, device) else 16) * width
    return of_word * words + of_row * rows


def models_together(config: DirectConfig, data: TrainingSet, device: str, shard: Shard, *, extra: bool) -> int:
    """How many models are trained side by side.  extra: whether another recipe adds a loss (RAMEN)."""
    asked = config.train.together
    sums = data.documents.sparse is not None and is_on(config.encoder.signed, data.all_pairs)
    can = sums and not extra and shard.processes == 1
    if not asked:
        enough = data.n_documents >= DOCUMENTS_PER_NUMBER * TOGETHER * config.encoder.width
        small = (data.featurizer.width + data.n_labels) * config.encoder.width <= NUMBERS_TOGETHER
        return TOGETHER if can and enough and small and device == "cuda" else 1
    if asked == 1 or can:
        return asked
    raise ConfigError(
        f"train.together={asked}, but models are made one where documents are sums of word vectors with either sign "
        f"({MANY_PAIRS:,} pairs of a document and a label, or encoder.signed=on), in one process, without a loss of "
        "another recipe",
        f"average them (ensemble.learners={asked}), or train one",
    )


def is_on(choice: WhereManyPairs, pairs: int) -> bool:
    """Whether to use a part that has much to learn: as asked for, else where there are enough pairs to learn from."""
    return choice == "on" or (choice == "auto" and pairs >= MANY_PAIRS)


# What is worth trying (`longtail tune`).
TUNABLE: Mapping[str, tuple[Any, ...]] = {
    **TUNABLE_FEATURES,
    "features.damping": (0.0, 3.0),
    "encoder.width": (256, 512, 1024),
    "encoder.dropout": (0.2, 0.5, 0.7),
    "labels.trust": (0.0, 1.0, 3.0),
    "train.epochs": (0, 10, 20, 40),
    "train.rate": (0.0, 0.0005, 0.001, 0.002, 0.004),
    "train.smoothing": (0.0, 0.1, 0.3),
    "train.self_pairs": (0.0, 0.1, 1.0),
    "memory.weight": (0.0, 0.3, 0.6),
    "memory.rarity": (0.0, 0.1, 0.25),
}


def choices(config: DirectConfig, data: Dataset) -> Mapping[str, tuple[Any, ...]]:
    """What `train --effort` tries for `data`: discrete choices that some data wants and other data does not."""
    found: dict[str, tuple[Any, ...]] = {}
    # A transformer costs so much time at prediction that nobody should get or lose one unasked.
    view = config.features.view != "transformer" and data.train.documents.vectors is None
    if view and (config.features.view_model or find_spec("wordllama") is not None):
        found["features.view"] = ("static", "none")
    if len(data.train.masked):
        found["train.self_pairs"] = (1.0, 0.0)
    found |= {"train.smoothing": (0.0, 0.3), "memory.weight": (0.0, 0.3), "memory.rarity": (0.0, 0.1)}
    if any(data.labels.fields.values()):
        found |= {"labels.map": ("on", "off"), "encoder.signed": ("on", "off")}
    return found | {"features.char_sizes": ([3, 4, 5], [4])}
