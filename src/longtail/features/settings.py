"""The settings of features. A recipe has one section of them, e.g. ``--set features.fields=title,content``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longtail.config import section, setting


@dataclass(frozen=True)
class SparseTextConfig:
    """Which texts are read, and what counts as a feature."""

    fields: tuple[str, ...] = setting(("title",), "text fields of a document that are read")
    weights: tuple[float, ...] = setting((), "what an occurrence in each field counts; empty: 1 each", low=0)
    label_fields: tuple[str, ...] = setting(
        (), "text fields of a label that are read; empty: those of 'fields' that labels have"
    )
    label_weights: tuple[float, ...] = setting(
        (), "what an occurrence in each of label_fields counts; empty: 1 each", low=0
    )
    words: bool = setting(True, "words are features")
    pairs: bool = setting(True, "pairs of adjacent words are features")
    subwords: Literal["none", "chars", "wordpiece"] = setting(
        "none", "parts of words are features: character n-grams, or pieces learned from the corpus"
    )
    char_sizes: tuple[int, ...] = setting(
        (4,), "lengths of the character n-grams, counting the marks at word edges", low=2, high=32
    )
    piece_count: int = setting(40_000, "size of the learned vocabulary of pieces", low=100)
    min_count: int = setting(1, "in how many documents and label texts a word must occur", low=1)
    min_count_rest: int = setting(2, "in how many documents and label texts a pair or sub-word must occur", low=1)
    max_features: int = setting(0, "keep only so many features, the most frequent; 0: all", low=0)
    sublinear: bool = setting(True, "a word that occurs tf times counts 1 + ln(tf), not tf")
    idf: bool = setting(True, "rare words weigh more: ln((1 + documents) / (1 + documents with the word)) + 1")
    damping: float = setting(
        0.0, "rare features weigh less: times n / (n + this), n the documents and label texts they are in", low=0
    )
    max_tokens: int = setting(
        0, "also give so many token numbers per text in reading order, for encoders that read sequences; 0: none", low=0
    )


@dataclass(frozen=True)
class FeaturesConfig(SparseTextConfig):
    """Where features come from, and how texts are read."""

    source: Literal["auto", "text", "vectors"] = setting(
        "auto", "what becomes features; auto: vectors if the data came with them, else text"
    )
    unit_vectors: bool = setting(True, "given vectors are scaled to unit length")


@dataclass(frozen=True)
class CheckpointFeaturesConfig(FeaturesConfig):
    """Texts as words, or as a pretrained transformer reads them."""

    checkpoint: str = setting(
        "",
        "a pretrained transformer is the encoder: the folder of a BERT or DistilBERT checkpoint, or 'minilm' (its "
        "package); empty: a bag of words",
    )
    length: int = setting(
        32,
        "checkpoint: tokens per text at most (Paper: RAMEN has 32 for titles, 128 for longer texts)",
        low=3,
        high=512,
    )


@dataclass(frozen=True)
class KeyGraphConfig:
    """How a document becomes a graph of its keywords. Paper: GNN-XML Sec. 3.1."""

    unit: Literal["auto", "sentence", "window"] = setting(
        "auto", "what keywords share: sentences, or windows of words; auto: windows in texts of one sentence"
    )
    window: int = setting(5, "words of a window", low=1)
    most_windows: int = setting(256, "windows per text at most; those of long texts are wider", low=2)
    span: int = setting(
        4, "TextRank: words occur together if they are less than so many content words apart", low=2, high=100
    )
    keywords: int = setting(64, "keywords per document at most", low=1, high=1000)
    share: float = setting(
        0.3333333333333333, "keywords are at most this share of a document's different content words", low=0.0, high=1.0
    )
    common: float = setting(
        0.2,
        "a word in more than this share of the training documents (and in 50 at least) is no keyword",
        low=0.0,
        high=1.0,
    )
    ner: str = setting(
        "", "a recogniser of named entities, which are keywords too: 'capitals', or one registered by name; empty: none"
    )
    encoder: str = setting(
        "svd", "vectors of sentences: svd (learnt from the documents), wordllama, minilm, or one registered by name"
    )
    model: str = setting("", "folder of the encoder's model; empty: that of its installed package")
    width: int = setting(256, "svd: numbers per sentence vector", low=2)
    cache: str = setting(
        "", "a folder where graphs of training documents are written as they are made, and found again; empty: none"
    )


@dataclass(frozen=True)
class GraphFeaturesConfig(FeaturesConfig):
    """Texts as words and as keyword graphs."""

    keygraph: KeyGraphConfig = section(KeyGraphConfig, "keyword graphs")
