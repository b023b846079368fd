"""A trained transformer encoder, frozen: from token numbers to the mean of its last layer's vectors. Needs no torch.

    x = norm(words[token] + positions)
    each layer:  x = norm(x + outputs(attention(inputs(x)))),  x = norm(x + down(gelu(up(x))))
    document = mean of x over its tokens

numpy computes it wherever longtail is installed; onnxruntime, where it is installed (extra `text`), computes the same
faster, from a graph that is made here of the same arrays, byte by byte: neither torch nor the package `onnx` is needed,
and no graph and no code is ever read from a file.

The graph has the inputs ``tokens`` (B, T) int64 and ``there`` (B, T) float32, 1 where a token is and 0 at padding,
and the output ``vectors`` (B, D) float32. Matrices in int8 are multiplied as such: a token's numbers are rounded to
int8 with a scale of its own (dynamic quantisation). One scale for all, which is usual, would let the vector of a text
depend on the other texts of its batch.

Pretrained weights are read from BERT's and DistilBERT's own files (`read_checkpoint`).
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from longtail.declared import Between, Shaped
from longtail.errors import BundleError, ConfigError, DataError
from longtail.features.pieces import checkpoint_folder, read_object
from longtail.models.encoders import FrozenEncoder
from longtail.persistence import DataPart, map_arrays
from longtail.search.packed import Packer
from longtail.types import F32, I32, I64, Batch, BoolArray

# Numbers of the widest layer that exist at a time: texts go through together in such amounts, those of like length
# beside each other.
_BLOCK_NUMBERS = 1 << 23
_MOST_TEXTS = 64
SCALE = ":scale"


@dataclass(frozen=True)
class FrozenTransformer(DataPart, FrozenEncoder):
    """weights: see `check_shapes`; matrices in float32, float16, or int8 with a scale per row (``name:scale``)."""

    KIND = "frozen-transformer"

    weights: Mapping[str, Annotated[NDArray[Any], Shaped(plain=True)]]
    heads: Annotated[int, Between(1, 1 << 16)]
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
            texts = {"tokens": ids.astype(np.int64), "there": there.astype(np.float32)}
            return np.asarray(self._session.run(["vectors"], texts)[0])
        return forward(self._plain, self.heads, self.epsilon, ids, there)

    @cached_property
    def _plain(self) -> dict[str, F32]:
        """Every array in float32."""
        return {name: plain(self.weights, name) for name in self.weights if not name.endswith(SCALE)}

    @cached_property
    def _session(self) -> Any:
        """What onnxruntime makes of the arrays; None where it is not installed."""
        if importlib.util.find_spec("onnxruntime") is None:
            return None
        import numba
        import onnxruntime

        kernels: Any = numba.config
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = kernels.NUMBA_NUM_THREADS  # as many as our own kernels may have
        return onnxruntime.InferenceSession(self.onnx(), options, providers=["CPUExecutionProvider"])

    def onnx(self, *, unit: bool = False) -> bytes:
        return transformer_graph(self.weights, self.heads, self.epsilon, unit=unit)

    def packed(self, packer: Packer) -> FrozenTransformer:
        """Matrices in fewer bytes. int8: onnxruntime rounds vectors, too (dynamic quantisation); numpy does not."""
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


def check_shapes(weights: Mapping[str, NDArray[Any]], heads: int) -> None:
    """A ValueError where arrays are missing, foreign or do not fit together."""
    width, hidden = weights["words"].shape[1], len(weights["layers.0.up.weight"])
    linear = {"inputs": (3 * width, width), "outputs": (width, width), "up": (hidden, width), "down": (width, hidden)}
    expected: dict[str, tuple[int, ...]] = {
        "words": (len(weights["words"]), width),
        "positions": (len(weights["positions"]), width),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    for layer in range(layers_of(weights)):
        for name, (rows, columns) in linear.items():
            expected |= {f"layers.{layer}.{name}.weight": (rows, columns), f"layers.{layer}.{name}.bias": (rows,)}
        for name in ("between", "after"):
            expected |= {f"layers.{layer}.{name}.weight": (width,), f"layers.{layer}.{name}.bias": (width,)}
    expected |= {name + SCALE: expected[name][:1] for name in expected if name + SCALE in weights}
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights or name not in expected or weights[name].shape != expected[name]:
            found = weights[name].shape if name in weights else "nothing"
            raise ValueError(
                f"array '{name}' of a transformer has the shape {found}, expected {expected.get(name, 'no such array')}"
            )
    if heads < 1 or width % heads:
        raise ValueError(f"{heads} heads for vectors of {width} numbers")


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
    """(B, D) means over tokens.  ids: (B, T).  there: (B, T), False at padding; every text has a token."""
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


# ---- the same as a graph for onnxruntime ----

IR_VERSION = 9
OPSET = 20  # the first with Gelu
_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
OnnxType: TypeAlias = tuple[str, Sequence[int | str]]  # of a number, and the shape
_MASKED = -1e9  # far below any score, and finite: not a number times 0 is not a number


def transformer_graph(weights: Mapping[str, NDArray[Any]], heads: int, epsilon: float, *, unit: bool = False) -> bytes:
    """The graph of `forward`, a model file. unit: vectors of length 1."""
    g = OnnxGraph()
    width = int(weights["words"].shape[1])

    def linear(x: str, name: str) -> str:
        matrix = f"{name}.weight"
        if matrix + SCALE in weights:
            product = _int8_product(g, x, np.ascontiguousarray(weights[matrix].T), weights[matrix + SCALE])
        else:
            product = g("MatMul", x, np.ascontiguousarray(plain(weights, matrix).T))
        return g("Add", product, weights[f"{name}.bias"])

    def norm(x: str, name: str) -> str:
        of_norm = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return g("LayerNormalization", x, *of_norm, axis=-1, epsilon=epsilon)

    length = g("Gather", g("Shape", "tokens"), np.int64(1))
    places = g("Range", np.int64(0), length, np.int64(1))
    words, positions = plain(weights, "words"), plain(weights, "positions")
    x = norm(g("Add", g("Gather", words, "tokens"), g("Gather", positions, places)), "norm")
    away = g("Mul", g("Sub", np.float32(1), "there"), np.float32(_MASKED))
    far = g("Unsqueeze", away, np.array([1, 2]))
    for layer in range(layers_of(weights)):
        at = f"layers.{layer}"
        parts = g("Reshape", linear(x, f"{at}.inputs"), np.array([0, 0, 3, heads, width // heads]))
        apart = g("Transpose", parts, perm=[2, 0, 3, 1, 4])
        q, k, v = (g("Gather", apart, np.int64(which), axis=0) for which in range(3))
        scale = np.float32((width // heads) ** -0.5)
        close = g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), scale)
        mixed = g("MatMul", g("Softmax", g("Add", close, far), axis=-1), v)
        together = g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]), np.array([0, 0, width]))
        x = norm(g("Add", x, linear(together, f"{at}.outputs")), f"{at}.between")
        x = norm(g("Add", x, linear(g("Gelu", linear(x, f"{at}.up")), f"{at}.down")), f"{at}.after")
    sums = g("ReduceSum", g("Mul", x, g("Unsqueeze", "there", np.array([2]))), np.array([1]), keepdims=0)
    means = g("Div", sums, g("ReduceSum", "there", np.array([1]), keepdims=1))
    g("LpNormalization" if unit else "Identity", means, to="vectors", **({"axis": -1, "p": 2} if unit else {}))
    return g.model(
        {"tokens": ("int64", ("texts", "length")), "there": ("float32", ("texts", "length"))},
        {"vectors": ("float32", ("texts", width))},
    )


def _int8_product(g: OnnxGraph, x: str, matrix: NDArray[np.int8], scale: F32) -> str:
    """x @ matrix * scale with both sides in int8.  matrix: (K, N); scale: (N,), of its columns."""
    largest = g("ReduceMax", g("Abs", x), np.array([-1]), keepdims=1)
    of_token = g("Mul", g("Max", largest, np.float32(1e-12)), np.float32(1 / 127))
    # Moved up by 128: kernels multiply unsigned by signed bytes.
    rounded = g("Cast", g("Add", g("Round", g("Div", x, of_token)), np.float32(128)), to_type=_TYPES["uint8"])
    product = g("Cast", g("MatMulInteger", rounded, matrix, np.uint8(128)), to_type=_TYPES["float32"])
    return g("Mul", g("Mul", product, of_token), scale)


class OnnxGraph:
    """Nodes in order. ``g("Add", a, b)`` adds one and gives the name of its result; what is no name is a constant."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def __call__(self, op: str, *inputs: Any, to: str = "", to_type: int | None = None, **attributes: Any) -> str:
        output = to or f"v{len(self._nodes)}"
        if to_type is not None:
            attributes["to"] = to_type
        names = [one if isinstance(one, str) else self._constant(np.asarray(one)) for one in inputs]
        fields = [*(_text(1, name) for name in names), _text(2, output), _text(4, op)]
        fields += [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        self._nodes.append(b"".join(fields))
        return output

    def _constant(self, array: NDArray[Any]) -> str:
        name = f"c{len(self._constants)}"
        dims, kind = b"".join(_number(1, n) for n in array.shape), _TYPES[array.dtype.name]
        self._constants.append(dims + _number(2, kind) + _text(8, name) + _bytes(9, array.tobytes()))
        return name

    def model(self, inputs: Mapping[str, OnnxType], outputs: Mapping[str, OnnxType]) -> bytes:
        fields = [
            *(_bytes(1, node) for node in self._nodes),
            _text(2, "encoder"),
            *(_bytes(5, constant) for constant in self._constants),
            *(_bytes(11, _value(name, *kind)) for name, kind in inputs.items()),
            *(_bytes(12, _value(name, *kind)) for name, kind in outputs.items()),
        ]
        about = _number(1, IR_VERSION) + _text(2, "longtail")
        return about + _bytes(7, b"".join(fields)) + _bytes(8, _number(2, OPSET))


# ---- the wire format of protocol buffers, as far as it is needed; field numbers are those of onnx.proto ----


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers in two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _attribute(name: str, value: int | float | Sequence[int]) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + b"".join(_number(8, n) for n in value) + _number(20, 7)


def _value(name: str, kind: str, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(_bytes(1, _number(1, n) if isinstance(n, int) else _text(2, n)) for n in shape)
    return _text(1, name) + _bytes(2, _bytes(1, _number(1, _TYPES[kind]) + _bytes(2, dims)))


# ---- pretrained weights, under the names of `check_shapes` ----

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Family:
    """How a kind of model names its settings and arrays."""

    layers: str
    heads: str
    dropout: tuple[str, str]  # of vectors, of attention
    activation: str
    layer: str
    inputs: tuple[str, str, str]  # query, key and value: one below the other they are our `inputs`
    parts: Mapping[str, str]  # where our other linear maps and norms are found in a layer of theirs


FAMILIES = {
    "bert": Family(
        "num_hidden_layers",
        "num_attention_heads",
        ("hidden_dropout_prob", "attention_probs_dropout_prob"),
        "hidden_act",
        "encoder.layer",
        ("attention.self.query", "attention.self.key", "attention.self.value"),
        {
            "outputs": "attention.output.dense",
            "between": "attention.output.LayerNorm",
            "up": "intermediate.dense",
            "down": "output.dense",
            "after": "output.LayerNorm",
        },
    ),
    "distilbert": Family(
        "n_layers",
        "n_heads",
        ("dropout", "attention_dropout"),
        "activation",
        "transformer.layer",
        ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        {
            "outputs": "attention.out_lin",
            "between": "sa_layer_norm",
            "up": "ffn.lin1",
            "down": "ffn.lin2",
            "after": "output_layer_norm",
        },
    ),
}


@dataclass(frozen=True)
class Pretrained:
    """A pretrained transformer, and the dropout that it was trained with: of vectors, and of attention."""

    frozen: FrozenTransformer
    dropout: float
    attention_dropout: float


def transformer_memory(checkpoint: str) -> int:
    """Bytes of a transformer in training; 0 without one. That its file is missing is said when it is read."""
    if not checkpoint:
        return 0
    weights = checkpoint_folder(checkpoint, f"features.checkpoint={checkpoint}") / WEIGHTS
    # In float32, though stored perhaps in float16: as read, trained, frozen, the gradient and two moments.
    return 6 * 2 * weights.stat().st_size if weights.is_file() else 0


def read_checkpoint(folder: Path) -> Pretrained:
    """Read config.json and model.safetensors (numbers of 16 or 32 bits); nothing else, above all no pickle."""
    config = read_object(folder / "config.json")
    kind = str(config.get("model_type"))
    family = FAMILIES.get(kind)
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
    arrays = _arrays(folder, f"{kind}.")
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
    return Pretrained(frozen, vectors, attention)


def _arrays(folder: Path, prefix: str) -> dict[str, NDArray[Any]]:
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
    return {name.removeprefix(prefix): array for name, array in arrays.items()}


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
