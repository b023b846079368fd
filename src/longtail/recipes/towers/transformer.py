"""A trained transformer encoder, frozen: from token numbers to the mean of its last layer's vectors. Needs no torch.

numpy computes it wherever longtail is installed; onnxruntime, where it is installed (extra `text`), computes the same
faster, from a graph that `recipes/towers/onnx_graph.py` makes of these arrays. A bundle holds arrays only: no
graph and no code is ever read from a file.

    x = norm(words[token] + positions)
    each layer:  x = norm(x + outputs(attention(inputs(x)))),  x = norm(x + down(gelu(up(x))))
    document = mean of x over its tokens
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ConfigError
from longtail.models.encoders import FrozenEncoder
from longtail.persistence import DataPart
from longtail.search.packed import Packer
from longtail.types import F32, I32, I64, Batch, BoolArray

# Numbers of the widest layer that exist at a time: texts go through together in such amounts, those of like length
# beside each other.
_BLOCK_NUMBERS = 1 << 23
_MOST_TEXTS = 64
SCALE = ":scale"


@dataclass(frozen=True)
class FrozenTransformer(DataPart, FrozenEncoder):
    """weights: see `expected_shapes`; matrices in float32, in float16, or in int8 with one scale per row
    (``name:scale``).
    """

    KIND = "frozen-transformer"

    weights: Mapping[str, NDArray[Any]]
    heads: int
    epsilon: float

    def __post_init__(self) -> None:
        check_shapes(self.weights, self.heads)

    @property
    def width(self) -> int:
        return int(self.weights["words"].shape[1])

    @property
    def layers(self) -> int:
        return layers_of(self.weights)

    def encode(self, batch: Batch) -> F32:
        """(B, D). A text without tokens stays zero."""
        tokens = self._checked(batch.tokens)
        found = np.zeros((len(tokens), self.width), dtype=np.float32)
        hidden = int(self.weights["layers.0.up.weight"].shape[0])
        for rows, length in blocks_of_length(np.count_nonzero(tokens >= 0, axis=1), hidden):
            ids = tokens[rows, :length]
            found[rows] = self._forward(np.maximum(ids, 0), ids >= 0)
        return found

    def _checked(self, tokens: I32 | None) -> I32:
        if (
            tokens is None
            or tokens.shape[1] > len(self.weights["positions"])
            or tokens.max(initial=-1) >= len(self.weights["words"])
        ):
            raise ConfigError(
                "this model reads token numbers of its own tokenizer", "let the bundle's featurizer make the batch"
            )
        return tokens

    def _forward(self, ids: I32, there: BoolArray) -> F32:
        if self._session is not None:
            return self._session(ids, there)
        return forward(self._plain, self.heads, self.epsilon, ids, there)

    @cached_property
    def _plain(self) -> dict[str, F32]:
        """Every array in float32."""
        return {name: plain(self.weights, name) for name in self.weights if not name.endswith(SCALE)}

    @cached_property
    def _session(self) -> Any:
        """The function that onnxruntime makes of the arrays; None where it is not installed."""
        if importlib.util.find_spec("onnxruntime") is None:
            return None
        from longtail.recipes.towers.onnx_graph import session

        return session(self.weights, self.heads, self.epsilon)

    def onnx(self, *, unit: bool = False) -> bytes:
        from longtail.recipes.towers.onnx_graph import transformer_graph

        return transformer_graph(self.weights, self.heads, self.epsilon, unit=unit)

    def packed(self, packer: Packer) -> FrozenTransformer:
        """Matrices in fewer bytes. int8: onnxruntime rounds vectors on the way, too (dynamic quantisation); numpy does
        not.
        """
        found: dict[str, NDArray[Any]] = {}
        for name, array in self.weights.items():
            if array.dtype != np.float32:
                raise ConfigError("the model is packed already", "pack the run or bundle that it was made from")
            if array.ndim < 2:
                found[name] = array
            elif packer.label_dtype == "float16":
                found[name] = array.astype(np.float16)
            else:
                scale = np.maximum(np.abs(array).max(axis=1), 1e-12).astype(np.float32) / np.float32(127)
                found[name] = np.rint(array / scale[:, None]).astype(np.int8)
                found[name + SCALE] = scale
        return FrozenTransformer(found, self.heads, self.epsilon)


def plain(weights: Mapping[str, NDArray[Any]], name: str) -> F32:
    """One array in float32, whatever it is stored in."""
    array = weights[name]
    if name + SCALE in weights:
        return np.asarray(array, np.float32) * weights[name + SCALE][:, None]
    return np.asarray(array, np.float32)


def layers_of(weights: Mapping[str, NDArray[Any]]) -> int:
    return len({name.split(".")[1] for name in weights if name.startswith("layers.")})


def expected_shapes(
    vocabulary: int, positions: int, width: int, hidden: int, layers: int
) -> dict[str, tuple[int, ...]]:
    """The name and shape of every array of a transformer."""
    shapes: dict[str, tuple[int, ...]] = {
        "words": (vocabulary, width),
        "positions": (positions, width),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    linear = {"inputs": (3 * width, width), "outputs": (width, width), "up": (hidden, width), "down": (width, hidden)}
    for layer in range(layers):
        for name, (rows, columns) in linear.items():
            shapes |= {f"layers.{layer}.{name}.weight": (rows, columns), f"layers.{layer}.{name}.bias": (rows,)}
        for name in ("between", "after"):
            shapes |= {f"layers.{layer}.{name}.weight": (width,), f"layers.{layer}.{name}.bias": (width,)}
    return shapes


def check_shapes(weights: Mapping[str, NDArray[Any]], heads: int) -> None:
    """A ValueError where arrays are missing, foreign or do not fit together."""
    words, positions, up = weights["words"], weights["positions"], weights["layers.0.up.weight"]
    expected = expected_shapes(len(words), len(positions), words.shape[1], len(up), layers_of(weights))
    expected |= {name + SCALE: expected[name][:1] for name in expected if name + SCALE in weights}
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights or name not in expected or weights[name].shape != expected[name]:
            found = weights[name].shape if name in weights else "nothing"
            raise ValueError(
                f"array '{name}' of a transformer has the shape {found}, expected {expected.get(name, 'no such array')}"
            )
    if heads < 1 or words.shape[1] % heads:
        raise ValueError(f"{heads} heads for vectors of {words.shape[1]} numbers")


def blocks_of_length(lengths: I64, hidden: int) -> Iterator[tuple[I64, int]]:
    """Rows of texts of like length, with the longest of each; texts without tokens are in none."""
    order = np.argsort(lengths, kind="stable")
    order = order[np.searchsorted(lengths[order], 1) :]
    start = 0
    while start < len(order):
        # The longest of a block is its last: count with the longest that may be in it.
        longest = int(lengths[order[min(start + _MOST_TEXTS, len(order)) - 1]])
        stop = start + max(min(_MOST_TEXTS, _BLOCK_NUMBERS // (hidden * longest)), 1)
        rows = order[start:stop]
        yield rows, int(lengths[rows[-1]])
        start = stop


def forward(weights: Mapping[str, F32], heads: int, epsilon: float, ids: I32, there: BoolArray) -> F32:
    """(B, D) means over tokens.  ids: (B, T) token numbers.  there: (B, T), False at padding; every text has a
    token.
    """
    from scipy.special import erf

    count, length = ids.shape
    width = weights["words"].shape[1]
    far = np.where(there, np.float32(0), np.float32(-np.inf))[:, None, None, :]

    def linear(x: F32, name: str) -> F32:
        y: F32 = x @ weights[f"{name}.weight"].T
        y += weights[f"{name}.bias"]
        return y

    def norm(x: F32, name: str) -> F32:
        x -= x.mean(axis=-1, keepdims=True)
        x /= np.sqrt(np.einsum("...d,...d->...", x, x)[..., None] / width + epsilon)
        x *= weights[f"{name}.weight"]
        x += weights[f"{name}.bias"]
        return x

    x = norm(weights["words"][ids] + weights["positions"][:length], "norm").reshape(count * length, width)
    for layer in range(layers_of(weights)):
        at = f"layers.{layer}"
        q, k, v = linear(x, f"{at}.inputs").reshape(count, length, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        scores: F32 = q @ k.swapaxes(2, 3) * np.float32((width // heads) ** -0.5) + far
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(count * length, width)
        x = norm(x + linear(mixed, f"{at}.outputs"), f"{at}.between")
        hidden = linear(x, f"{at}.up")
        hidden *= np.float32(0.5) * (1 + erf(hidden * np.float32(0.5**0.5)))
        x = norm(x + linear(hidden, f"{at}.down"), f"{at}.after")
    kept = there.astype(np.float32)
    pooled: F32 = np.einsum("btd,bt->bd", x.reshape(count, length, width), kept)
    return pooled / kept.sum(axis=1, keepdims=True)
