"""Texts read twice: as words, pairs and sub-words, and as the tokens of a pretrained transformer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from longtail.data.dataset import Items
from longtail.features.pieces import TokenizerPieces, read_object, read_tokenizer
from longtail.features.settings import CheckpointFeaturesConfig, SparseTextConfig
from longtail.features.sparse import Columns, SparseText
from longtail.types import I32, Batch


@dataclass(frozen=True, kw_only=True)
class TextWithTokens(SparseText):
    """Words, pairs and sub-words as features, and the tokens that a transformer reads: ``Batch.tokens``.

    reader: the checkpoint's tokenizer.
    """

    KIND = "text-with-tokens"

    reader: TokenizerPieces

    @classmethod
    def fit_texts(
        cls, documents: Items, labels: Items | None, config: SparseTextConfig, folder: Path, length: int
    ) -> tuple[TextWithTokens, Batch, Batch | None]:
        """folder: of the checkpoint, of which the tokenizer alone is read.  length: tokens per text at most."""
        words, of_documents, of_labels = SparseText.fit_batches(documents, labels, config)
        most = read_object(folder / "config.json").get("max_position_embeddings")
        length = min(length, most) if isinstance(most, int) else length
        reader = TokenizerPieces(CheckpointFeaturesConfig(fields=words.fields, length=length), read_tokenizer(folder))
        text = cls(**{field.name: getattr(words, field.name) for field in fields(words)}, reader=reader)
        with_tokens = Batch(sparse=of_documents.sparse, tokens=reader.numbers(text.document_columns(documents)))
        if labels is None or of_labels is None:
            return text, with_tokens, None
        return text, with_tokens, Batch(sparse=of_labels.sparse, tokens=reader.numbers(text.label_columns(labels)))

    @property
    def can_be_extended(self) -> bool:
        return False

    def _tokens_view(self, columns: Columns) -> I32:
        return self.reader.numbers(columns)
