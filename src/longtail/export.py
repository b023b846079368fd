"""A trained encoder for other programs: an ONNX graph with its tokenizer. Needs neither torch nor onnx."""

from __future__ import annotations

from pathlib import Path

from longtail.errors import ConfigError
from longtail.features.pieces import Pieces
from longtail.models.encoders import FrozenUnit
from longtail.models.onnx_graph import transformer_graph
from longtail.models.transformer import FrozenTransformer
from longtail.persistence import written_aside
from longtail.predictor import Predictor

GRAPH, TOKENIZER = "encoder.onnx", "tokenizer.json"


def export(model: Predictor, out: Path) -> None:
    """Write the transformer of a model to the new folder `out`.

    encoder.onnx: inputs ``tokens`` (texts, length) int64 and ``there`` (texts, length) float32, 1 at tokens and 0 at
    padding; output ``vectors`` (texts, D) of unit length.  tokenizer.json: what gives the token numbers (`tokenizers`
    reads it).
    """
    encoder, featurizer = getattr(model.bundle.ranker, "encoder", None), model.bundle.featurizer
    if (
        not isinstance(encoder, FrozenUnit)
        or not isinstance(encoder.encoder, FrozenTransformer)
        or not isinstance(featurizer, Pieces)
    ):
        recipe = model.bundle.manifest.get("recipe")
        raise ConfigError(
            f"this model of the recipe '{recipe}' has no transformer to export",
            "train with --set features.checkpoint=FOLDER",
        )
    if out.exists():
        raise ConfigError(f"{out}: exists already", "name a folder that does not exist")
    inner = encoder.encoder
    with written_aside(out) as aside:
        aside.mkdir()
        (aside / GRAPH).write_bytes(transformer_graph(inner.weights, inner.heads, inner.epsilon, unit=True))
        (aside / TOKENIZER).write_text(featurizer.tokenizer, encoding="utf-8")
