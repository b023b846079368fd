"""The weights of a pretrained transformer, under the names of `recipes/towers/transformer.py`. Needs no torch.

BERT and DistilBERT are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import BundleError, DataError
from longtail.features.pieces import read_object
from longtail.persistence import map_arrays
from longtail.recipes.towers.transformer import FrozenTransformer
from longtail.types import F32

WEIGHTS = "model.safetensors"
# Where each of our linear maps and norms is found in a layer of theirs; `inputs` is query, key and value, one below
# the other.
_BERT = {
    "outputs": "attention.output.dense",
    "between": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "after": "output.LayerNorm",
}
_DISTILBERT = {
    "outputs": "attention.out_lin",
    "between": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "after": "output_layer_norm",
}


@dataclass(frozen=True)
class Family:
    """How a kind of model names its settings and arrays."""

    layers: str
    heads: str
    dropout: tuple[str, str]  # of vectors, of attention
    activation: str
    prefix: str
    layer: str
    inputs: tuple[str, str, str]
    parts: Mapping[str, str]


FAMILIES = {
    "bert": Family(
        "num_hidden_layers",
        "num_attention_heads",
        ("hidden_dropout_prob", "attention_probs_dropout_prob"),
        "hidden_act",
        "bert.",
        "encoder.layer",
        ("attention.self.query", "attention.self.key", "attention.self.value"),
        _BERT,
    ),
    "distilbert": Family(
        "n_layers",
        "n_heads",
        ("dropout", "attention_dropout"),
        "activation",
        "distilbert.",
        "transformer.layer",
        ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        _DISTILBERT,
    ),
}


@dataclass(frozen=True)
class Checkpoint:
    """A pretrained transformer, and the dropout that it was trained with: of vectors, and of attention."""

    frozen: FrozenTransformer
    dropout: float
    attention_dropout: float


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read config.json and model.safetensors (numbers of 16 or 32 bits); nothing else, above all no pickle."""
    config = read_object(folder / "config.json")
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise DataError(
            f"a model of type {config.get('model_type')!r}",
            f"known: {', '.join(FAMILIES)}",
            file=folder / "config.json",
        )
    if (
        config.get(family.activation, "gelu") != "gelu"
        or config.get("position_embedding_type", "absolute") != "absolute"
    ):
        raise DataError(
            "an activation other than gelu, or relative positions",
            "give a plain BERT or DistilBERT checkpoint",
            file=folder / "config.json",
        )
    arrays = _arrays(folder, family)
    try:
        weights = _renamed(arrays, family, int(config[family.layers]))
        # Of BERT the default; DistilBERT has no setting for it.
        epsilon = float(config.get("layer_norm_eps", 1e-12))
        frozen = FrozenTransformer(weights, int(config[family.heads]), epsilon)
        vectors, attention = (float(config.get(name, 0.1)) for name in family.dropout)
    except (KeyError, TypeError, ValueError) as problem:
        raise DataError(
            f"config.json and the weights do not fit together ({problem})",
            "copy the whole folder of the checkpoint",
            file=folder,
        ) from problem
    return Checkpoint(frozen, vectors, attention)


def _arrays(folder: Path, family: Family) -> dict[str, NDArray[Any]]:
    path = folder / WEIGHTS
    if not path.is_file():
        hint = (
            "save the model anew with save_pretrained (safetensors)"
            if (folder / "pytorch_model.bin").exists()
            else "copy the whole folder of the checkpoint"
        )
        raise DataError("the file is missing; weights in other formats are not read", hint, file=path)
    try:
        arrays = map_arrays(path)
    except BundleError as problem:
        raise DataError(
            problem.message.removeprefix(f"{path}: "), "use float32 or float16, and copy the file anew", file=path
        ) from problem
    return {name.removeprefix(family.prefix): array for name, array in arrays.items()}


def _renamed(arrays: Mapping[str, NDArray[Any]], family: Family, layers: int) -> dict[str, F32]:
    def get(name: str) -> F32:
        # Old checkpoints call the numbers of a norm gamma and beta.
        old = name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
        return np.array(arrays[name if name in arrays else old], dtype=np.float32)

    positions = get("embeddings.position_embeddings.weight")
    if "embeddings.token_type_embeddings.weight" in arrays:
        # Texts are single: they are all of the first type.
        positions += get("embeddings.token_type_embeddings.weight")[0]
    found = {"words": get("embeddings.word_embeddings.weight"), "positions": positions}
    for kind in ("weight", "bias"):
        found[f"norm.{kind}"] = get(f"embeddings.LayerNorm.{kind}")
        for layer in range(layers):
            theirs = f"{family.layer}.{layer}"
            found[f"layers.{layer}.inputs.{kind}"] = np.concatenate(
                [get(f"{theirs}.{name}.{kind}") for name in family.inputs]
            )
            for ours, name in family.parts.items():
                found[f"layers.{layer}.{ours}.{kind}"] = get(f"{theirs}.{name}.{kind}")
    return found
