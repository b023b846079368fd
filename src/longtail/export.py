"""A trained encoder for other programs: an ONNX graph with its tokenizer. Needs neither torch nor onnx."""

from __future__ import annotations

from pathlib import Path

from longtail.errors import ConfigError
from longtail.persistence import written_aside
from longtail.predictor import Predictor

GRAPH, TOKENIZER = "encoder.onnx", "tokenizer.json"


def export(model: Predictor, out: Path) -> None:
    """Write the transformer of a model to the new folder `out`.

    encoder.onnx: inputs ``tokens`` (texts, length) int64 and ``there`` (texts, length) float32, 1 at tokens and 0 at
    padding; output ``vectors`` (texts, D) of unit length.  tokenizer.json: what gives the token numbers (`tokenizers`
    reads it).
    """
    graph, tokenizer = model.bundle.ranker.onnx(), getattr(model.bundle.featurizer, "tokenizer", None)
    if graph is None or tokenizer is None:
        recipe = model.bundle.manifest.get("recipe")
        raise ConfigError(
            f"this model of the recipe '{recipe}' has no transformer to export",
            "train with --set features.checkpoint=FOLDER",
        )
    if out.exists():
        raise ConfigError(f"{out}: exists already", "name a folder that does not exist")
    with written_aside(out) as aside:
        aside.mkdir()
        (aside / GRAPH).write_bytes(graph)
        (aside / TOKENIZER).write_text(tokenizer, encoding="utf-8")
