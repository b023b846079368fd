"""The settings of features. A recipe has one section of them, e.g. ``--set features.fields=title,content``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longtail.config import setting


@dataclass(frozen=True)
class SparseTextConfig:
    """Which texts are read, and what counts as a feature."""

    fields: tuple[str, ...] = setting(("title",), "text fields of a document that are read")
    weights: tuple[float, ...] = setting((), "what an occurrence in each field counts; empty: 1 each", low=0)
    label_fields: tuple[str, ...] = setting((), "text fields of a label that are read; empty: those of 'fields' that labels have")
    label_weights: tuple[float, ...] = setting((), "what an occurrence in each of label_fields counts; empty: 1 each", low=0)
    words: bool = setting(True, "words are features")
    pairs: bool = setting(True, "pairs of adjacent words are features")
    subwords: Literal["none", "chars", "wordpiece"] = setting("none", "parts of words are features: character n-grams, or pieces learned from the corpus")
    char_sizes: tuple[int, ...] = setting((4,), "lengths of the character n-grams, counting the marks at word edges", low=2, high=32)
    piece_count: int = setting(40_000, "size of the learned vocabulary of pieces", low=100)
    min_count: int = setting(1, "in how many documents and label texts a word must occur", low=1)
    min_count_rest: int = setting(2, "in how many documents and label texts a pair or sub-word must occur", low=1)
    max_features: int = setting(0, "keep only so many features, the most frequent; 0: all", low=0)
    sublinear: bool = setting(True, "a word that occurs tf times counts 1 + ln(tf), not tf")
    idf: bool = setting(True, "rare words weigh more: ln((1 + documents) / (1 + documents with the word)) + 1")
    max_tokens: int = setting(0, "also give so many token numbers per text in reading order, for encoders that read sequences; 0: none", low=0)


@dataclass(frozen=True)
class FeaturesConfig(SparseTextConfig):
    """Where features come from, and how texts are read."""

    source: Literal["auto", "text", "vectors"] = setting("auto", "what becomes features; auto: vectors if the data came with them, else text")
    unit_vectors: bool = setting(True, "given vectors are scaled to unit length")
