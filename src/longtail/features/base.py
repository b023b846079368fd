"""What every kind of features can do, and how the data chooses one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.features.given import GivenDense, GivenSparse, is_sparse
from longtail.features.settings import FeaturesConfig
from longtail.persistence import Part
from longtail.types import F32, Batch


@runtime_checkable
class Featurizer(Part, Protocol):
    """Turns documents and labels into numbers, always the same for the same text. Fitted on training data, saved with
    the model.

    width: number of features, the columns of a batch.
    """

    @property
    def width(self) -> int: ...

    @property
    def fields(self) -> tuple[str, ...]:
        """Text fields of a document that are read; none where vectors are."""
        ...

    def batch(self, items: Items) -> Batch:
        """Documents as numbers."""

    def label_batch(self, labels: Items) -> Batch | None:
        """Labels as numbers of the same kind; None where labels have nothing to read."""

    def batch_of_texts(self, texts: Sequence[str]) -> Batch:
        """Plain texts as documents; a ConfigError where the model was trained on given vectors."""

    def word_influence(self) -> F32 | None:
        """(V,) how much each word matters to documents, to a scale; None where it is not known."""


# A featurizer, and documents and labels as it reads them.
Fitted: TypeAlias = tuple[Featurizer, Batch, Batch | None]


def make_featurizer(documents: Items, labels: Items | None, config: FeaturesConfig) -> Fitted:
    """A featurizer fitted on training documents (and label texts), with the batches of both."""
    if not _reads_vectors(documents, labels, config):
        return config.fit(documents, labels)
    if config.NEEDS_TEXT:
        raise ConfigError(config.NEEDS_TEXT, "use features.source=text, or another recipe")
    given = (GivenSparse if is_sparse(documents.vectors) else GivenDense).fit(documents, config.unit_vectors)
    _check_label_vectors(labels, given)
    return given, given.batch(documents), None if labels is None else given.label_batch(labels)


def _reads_vectors(documents: Items, labels: Items | None, config: FeaturesConfig) -> bool:
    """The decision, with every mixture that cannot work refused."""
    if config.source == "vectors" and documents.vectors is None:
        raise ConfigError(
            "features.source is 'vectors', but documents came without",
            "set features.source=text, or add vectors to the data",
        )
    if config.source != "text" and documents.vectors is not None:
        return True
    if not documents.fields:
        raise ConfigError(
            "documents have no text"
            + (" (features.source is 'text')" if config.source == "text" else " and no vectors"),
            "set features.source=vectors, or add text to the data"
            if documents.vectors is not None
            else "add a text field or vectors to the data",
        )
    if labels is not None and labels.vectors is not None and not labels.fields:
        raise ConfigError(
            "documents are read as text, but labels came as vectors without text",
            "give both as vectors, or add label texts",
        )
    return False


def _check_label_vectors(labels: Items | None, given: GivenSparse | GivenDense) -> None:
    if labels is None or labels.vectors is None:
        return
    form = "sparse" if is_sparse(labels.vectors) else "dense"
    if form != given.FORM or labels.vectors.shape[1] != given.width:
        raise ConfigError(
            f"documents have {given.FORM} vectors of {given.width} columns, labels {form} ones of "
            f"{labels.vectors.shape[1]}",
            "give both the same kind of vectors, or leave those of labels out",
        )
