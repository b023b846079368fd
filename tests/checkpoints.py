"""Small checkpoints with random weights, as Hugging Face lays them out, for tests of whatever reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save_file

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_checkpoint(
    folder: Path,
    words: Sequence[str],
    *,
    family: Literal["bert", "distilbert"] = "bert",
    width: int = 16,
    layers: int = 2,
    heads: int = 2,
    dropout: float = 0.0,
    prefix: str = "",
    dtype: Any = np.float32,
    common: float = 1.0,
    seed: int = 0,
) -> Path:
    """A folder of config.json, vocab.txt and model.safetensors. Every array is random, so that a mistaken name or
    shape shows.

    common: how large the numbers are that all texts share (positions, biases). As large as the rest, they put all
    texts into one narrow cone; small, texts differ from the start, as those of a pretrained model do.
    """
    folder.mkdir(parents=True)
    vocabulary = [*SPECIAL, *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    bert = family == "bert"
    sizes: dict[str, Any] = {"vocab_size": len(vocabulary), "max_position_embeddings": 40, "model_type": family}
    if bert:
        sizes |= {
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "hidden_act": "gelu",
        }
        sizes |= {
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout,
            "layer_norm_eps": 1e-12,
            "type_vocab_size": 2,
        }
    else:
        sizes |= {"dim": width, "hidden_dim": 2 * width, "n_layers": layers, "n_heads": heads, "activation": "gelu"}
        sizes |= {"dropout": dropout, "attention_dropout": dropout}
    (folder / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}

    def add(name: str, *shape: int, center: float = 0.0) -> None:
        shared = len(shape) == 1 or "position" in name or "token_type" in name
        arrays[prefix + name] = (center + 0.3 * (common if shared else 1.0) * rng.standard_normal(shape)).astype(dtype)

    def linear(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", rows, columns)
        add(f"{name}.bias", rows)

    def norm(name: str) -> None:
        add(f"{name}.weight", width, center=1.0)
        add(f"{name}.bias", width)

    add("embeddings.word_embeddings.weight", len(vocabulary), width)
    add("embeddings.position_embeddings.weight", 40, width)
    if bert:
        add("embeddings.token_type_embeddings.weight", 2, width)
    norm("embeddings.LayerNorm")
    for layer in range(layers):
        at = f"encoder.layer.{layer}" if bert else f"transformer.layer.{layer}"
        for name in (
            ("self.query", "self.key", "self.value", "output.dense") if bert else ("q_lin", "k_lin", "v_lin", "out_lin")
        ):
            linear(f"{at}.attention.{name}", width, width)
        linear(f"{at}.intermediate.dense" if bert else f"{at}.ffn.lin1", 2 * width, width)
        linear(f"{at}.output.dense" if bert else f"{at}.ffn.lin2", width, 2 * width)
        norm(f"{at}.attention.output.LayerNorm" if bert else f"{at}.sa_layer_norm")
        norm(f"{at}.output.LayerNorm" if bert else f"{at}.output_layer_norm")
    save_file(arrays, folder / "model.safetensors")
    return folder
