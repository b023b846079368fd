"""The settings of features. A recipe has one section of them, e.g. ``--set features.fields=title,content``.

What reads texts is a method of the settings: a recipe that reads them in another way has a class of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from longtail.config import setting

if TYPE_CHECKING:
    from longtail.data.columns import Columns
    from longtail.data.dataset import Items
    from longtail.features.base import Fitted


@dataclass(frozen=True)
class SparseTextConfig:
    """Which texts are read, and what counts as a feature."""

    fields: tuple[str, ...] = setting(
        (), "text fields of a document that are read; empty: the text columns of a table, of other data the title"
    )
    weights: tuple[float, ...] = setting(
        (),
        "what an occurrence in each field counts; empty: what was said with the text columns of a table, 1 each",
        low=0,
    )
    label_fields: tuple[str, ...] = setting(
        (), "text fields of a label that are read; empty: the title, and those of 'fields' that labels have"
    )
    label_weights: tuple[float, ...] = setting(
        (), "what an occurrence in each of label_fields counts; empty: 1 each", low=0
    )
    other_names: float = setting(
        0.0,
        "what an occurrence counts in the field 'other_names' of a label, which vocabularies fill, where label_fields "
        "is empty; 0: the field is not read",
        low=0,
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
        0,
        "also give so many token numbers per text in reading order, for encoders that read sequences; 0: none",
        low=0,
        high=1 << 16,
    )

    def for_columns(self, columns: Columns | None) -> Self:
        """With the text columns of a table and their weights, where the settings do not say what is read."""
        if columns is None or self.fields:
            return self
        return replace(self, fields=columns.text, weights=self.weights or columns.weights)

    def for_documents(self, documents: Items) -> Self:
        """With what is read of documents that are no table, where the settings do not say it: the title, or every
        field that holds something where no document has a title.
        """
        if self.fields:
            return self
        filled = tuple(name for name, texts in documents.fields.items() if any(texts)) or tuple(documents.fields)
        return replace(self, fields=("title",) if "title" in filled else filled)


@dataclass(frozen=True)
class FeaturesConfig(SparseTextConfig):
    """Where features come from, and how texts are read."""

    source: Literal["auto", "text", "vectors"] = setting(
        "auto", "what becomes features; auto: vectors if the data came with them, else text"
    )
    unit_vectors: bool = setting(True, "given vectors are scaled to unit length")

    # Why documents cannot be given as vectors, where they cannot.
    NEEDS_TEXT: ClassVar[str] = ""

    def reads_anchors(self) -> bool:
        """Whether words of anchors are features."""
        return False

    def sparse_text(self) -> SparseTextConfig:
        """Those of the settings that words, pairs and sub-words have."""
        return SparseTextConfig(**{field.name: getattr(self, field.name) for field in fields(SparseTextConfig)})

    def fit(self, documents: Items, labels: Items | None) -> Fitted:
        """What reads texts as these settings say, fitted on them; with the documents and labels as it reads them."""
        from longtail.features.sparse import SparseText

        return SparseText.fit_batches(documents, labels, self.sparse_text())


@dataclass(frozen=True)
class CheckpointFeaturesConfig(FeaturesConfig):
    """Texts as words, or as a pretrained transformer reads them."""

    checkpoint: str = setting(
        "",
        "a pretrained transformer is the encoder: the folder of a BERT or DistilBERT checkpoint, or 'minilm' (its "
        "package); empty: a bag of words",
        is_path=True,
    )
    length: int = setting(
        32,
        "checkpoint: tokens per text at most (Paper: RAMEN has 32 for titles, 128 for longer texts)",
        low=3,
        high=512,
    )

    anchor_words: bool = setting(
        False,
        "words that only anchors of given graphs have are features, too: each anchor counts as a label text; a "
        "checkpoint knows its pieces anyway",
    )

    def reads_anchors(self) -> bool:
        return self.anchor_words and not self.checkpoint

    def fit(self, documents: Items, labels: Items | None) -> Fitted:
        from longtail.features.pieces import TokenizerPieces

        return (
            TokenizerPieces.fit_batches(documents, labels, self) if self.checkpoint else super().fit(documents, labels)
        )
