"""From trained torch modules to the parts that predict without torch. The torch forward pass is their oracle in the
tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.models.encoders import (
    EmbeddingMap,
    FrozenBag,
    FrozenCnn,
    FrozenDense,
    FrozenEncoder,
    FrozenMlp,
    FrozenSum,
    FrozenUnit,
    FullMap,
    Refinement,
    ResidualMap,
)
from longtail.models.shortlisted import Classifier
from longtail.nn.blocks import DocumentBlock, EmbeddingBlock, FullyConnected, Residual
from longtail.nn.encoders import BagEncoder, BagSum, DenseEncoder, Encoder, MlpEncoder, UnitEncoder
from longtail.nn.rows import OneVsAll
from longtail.recipes.astec.network import TokenCnn
from longtail.recipes.galaxc.encoders import Averaged, FrozenGraphEncoder, FrozenHops, FrozenMessages
from longtail.recipes.galaxc.network import GraphEncoder, HopEncoder, MessageEncoder
from longtail.recipes.towers.network import Transformer


def frozen_encoder(encoder: Encoder) -> FrozenEncoder:
    """The numpy twin of a trained encoder."""
    if isinstance(encoder, BagEncoder):
        return FrozenBag(array(encoder.table.weight))
    if isinstance(encoder, BagSum):
        return FrozenSum(array(encoder.table.weight))
    if isinstance(encoder, Transformer):
        return encoder.frozen()
    if isinstance(encoder, UnitEncoder):
        return FrozenUnit(frozen_encoder(encoder.encoder), frozen_refinement(encoder.block))
    if isinstance(encoder, MlpEncoder):
        return FrozenMlp(
            array(encoder.table.weight),
            array(encoder.hidden_bias),
            array(encoder.output.weight),
            array(encoder.output.bias),
        )
    if isinstance(encoder, DenseEncoder):
        return (
            FrozenDense()
            if encoder.projection is None
            else FrozenDense(array(encoder.projection.weight), array(encoder.projection.bias))
        )
    if isinstance(encoder, TokenCnn):
        convolutions: list[Any] = list(encoder.convolutions)
        filters, biases = tuple(array(c.weight) for c in convolutions), tuple(array(c.bias) for c in convolutions)
        return FrozenCnn(
            array(encoder.table.weight),
            filters,
            biases,
            array(encoder.output.weight),
            array(encoder.output.bias),
            encoder.length,
            encoder.chunks,
        )
    raise AssertionError(f"no frozen form of {type(encoder).__name__}")


def frozen_refinement(block: nn.Module | None) -> Refinement | None:
    """The numpy twin of a trained block, its spectral bound exact."""
    if block is None:
        return None
    if isinstance(block, Residual):
        assert block.bias is None, "a bias would break the drift bound; prediction does not know one"
        return ResidualMap(array(block.frozen_weight()))
    if isinstance(block, DocumentBlock):
        return EmbeddingMap(array(block.block.frozen_weight()), float(block.block.effective_scale().detach()))
    if isinstance(block, EmbeddingBlock):
        # The scale is part of the matrix: files of models of the same shape then have the same size.
        return EmbeddingMap(array(block.effective_scale() * block.frozen_weight()), relu=False)
    assert isinstance(block, FullyConnected)
    return FullMap(array(block.frozen_weight()))


def frozen_graph_encoder(
    encoder: GraphEncoder, space: Averaged = "transformed", *, balanced: bool = False
) -> FrozenGraphEncoder:
    """The numpy twin of a trained graph encoder. space, balanced: see `FrozenHops`."""
    if isinstance(encoder, HopEncoder):
        transforms: list[Any] = list(encoder.transforms)
        folded = [transform.frozen_affine() for transform in transforms]
        weight, bias = (np.stack([array(pair[side]) for pair in folded]) for side in (0, 1))
        return FrozenHops(array(encoder.epsilon), weight, bias, transforms[0].pre_relu, space, balanced)
    assert isinstance(encoder, MessageEncoder)
    layers: list[Any] = list(encoder.layers)
    return FrozenMessages(tuple(layer.frozen() for layer in layers), encoder.mean)


def frozen_classifier(classifier: OneVsAll) -> Classifier:
    return Classifier(array(classifier.weight), None if classifier.bias is None else array(classifier.bias))


def array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy()).copy()
