"""The transformer view of `direct`: every text of a training goes through the transformer once, before it begins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from longtail.features.with_tokens import TextWithTokens
from longtail.models.encoders import FrozenUnit
from longtail.models.transformer import Pretrained, read_checkpoint
from longtail.nn.batches import Documents
from longtail.nn.encoders import UnitEncoder, encode_all
from longtail.nn.transformer import Transformer
from longtail.recipes.direct.objective import AnchorColumns
from longtail.recipes.direct.settings import DirectFeaturesConfig
from longtail.recipes.direct.view import TextVectors, view_folder
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I32, Batch

# Texts that are encoded between two reports of progress.
_BLOCK = 1024


def text_vectors(
    data: TrainingSet, anchors: AnchorColumns | None, features: DirectFeaturesConfig, run: Run
) -> TextVectors:
    """Vectors of documents, label texts and anchors."""
    start = read_checkpoint(view_folder(features.view_model))
    of_labels = [] if data.label_texts is None else [tokens_of(data.label_texts)]
    if of_labels and anchors is not None:
        assert anchors.tokens is not None, "anchors are read as documents are"
        of_labels.append(anchors.tokens)
    documents = tokens_of(data.documents)
    labels = np.concatenate([documents[:0], *of_labels])
    encode = encoder_on(run.device, start)
    with run.task("texts through the transformer", len(documents) + len(labels)) as task:

        def encoded(tokens: I32) -> NDArray[np.float16]:
            found = np.empty((len(tokens), start.frozen.width), dtype=np.float16)
            for at in range(0, len(tokens), _BLOCK):
                part = slice(at, at + _BLOCK)
                found[part] = encode(Batch(tokens=tokens[part]))
                task.advance(len(tokens[part]))
            return found

        return TextVectors(encoded(documents), encoded(labels))


def reads_tokens(data: TrainingSet) -> bool:
    """Whether texts were read as tokens, too, for the transformer."""
    return isinstance(data.featurizer, TextWithTokens)


def tokens_of(texts: Batch) -> I32:
    assert texts.tokens is not None, "`TextWithTokens` gives them"
    return texts.tokens


def encoder_on(device: str, start: Pretrained) -> Callable[[Batch], F32]:
    """Unit vectors of texts. On a CPU by what predicts later."""
    if device == "cpu":
        return FrozenUnit(start.frozen).encode
    model = UnitEncoder(Transformer(start)).to(device)
    return lambda batch: encode_all(model, Documents(batch, device), "search")


def size_of_view(data: TrainingSet, features: DirectFeaturesConfig, anchors: int) -> int:
    """Bytes of the transformer and of the vectors of all texts, as they are kept and as they are trained with; 0
    without one.
    """
    if not reads_tokens(data):
        return 0
    frozen = read_checkpoint(view_folder(features.view_model)).frozen
    texts = data.n_documents + data.n_labels + anchors
    weights = sum(array.nbytes for array in frozen.weights.values())
    return 2 * weights + (2 + 4) * frozen.width * texts
