"""A frozen transformer as an ONNX graph, written here byte by byte: neither torch nor the package `onnx` is needed.

The graph has the inputs ``tokens`` (B, T) int64 and ``there`` (B, T) float32, 1 where a token is and 0 at padding,
and the output ``vectors`` (B, D) float32. Matrices in int8 are multiplied as such: a token's numbers are rounded to
int8 with a scale of its own (dynamic quantisation). One scale for all, which is usual, would let the vector of a text
depend on the other texts of its batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.recipes.towers.transformer import SCALE, layers_of, plain
from longtail.types import F32, I32, BoolArray

IR_VERSION = 9
OPSET = 20  # the first with Gelu
_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
_MASKED = -1e9  # far below any score, and finite: not a number times 0 is not a number


def session(weights: Mapping[str, NDArray[Any]], heads: int, epsilon: float) -> Callable[[I32, BoolArray], F32]:
    """The function (token numbers, where they are) -> vectors that onnxruntime makes of the graph."""
    import onnxruntime

    made: Any = onnxruntime.InferenceSession(
        transformer_graph(weights, heads, epsilon), providers=["CPUExecutionProvider"]
    )

    def run(tokens: I32, there: BoolArray) -> F32:
        found: F32 = made.run(["vectors"], {"tokens": tokens.astype(np.int64), "there": there.astype(np.float32)})[0]
        return found

    return run


def transformer_graph(weights: Mapping[str, NDArray[Any]], heads: int, epsilon: float, *, unit: bool = False) -> bytes:
    """The graph of `longtail.recipes.towers.transformer.forward`, a model file. unit: vectors of length 1."""
    g = Graph()
    width = int(weights["words"].shape[1])

    def linear(x: str, name: str) -> str:
        matrix = f"{name}.weight"
        if matrix + SCALE in weights:
            product = _int8_product(g, x, np.ascontiguousarray(weights[matrix].T), weights[matrix + SCALE])
        else:
            product = g("MatMul", x, g.constant(np.ascontiguousarray(plain(weights, matrix).T)))
        return g("Add", product, g.constant(weights[f"{name}.bias"]))

    def norm(x: str, name: str) -> str:
        return g(
            "LayerNormalization",
            x,
            g.constant(weights[f"{name}.weight"]),
            g.constant(weights[f"{name}.bias"]),
            axis=-1,
            epsilon=epsilon,
        )

    length = g("Gather", g("Shape", "tokens"), g.constant(np.int64(1)))
    places = g("Range", g.constant(np.int64(0)), length, g.constant(np.int64(1)))
    x = g(
        "Add",
        g("Gather", g.constant(plain(weights, "words")), "tokens"),
        g("Gather", g.constant(plain(weights, "positions")), places),
    )
    x = norm(x, "norm")
    away = g("Mul", g("Sub", g.constant(np.float32(1)), "there"), g.constant(np.float32(_MASKED)))
    far = g("Unsqueeze", away, g.constant(np.array([1, 2])))
    for layer in range(layers_of(weights)):
        at = f"layers.{layer}"
        parts = g("Reshape", linear(x, f"{at}.inputs"), g.constant(np.array([0, 0, 3, heads, width // heads])))
        apart = g("Transpose", parts, perm=[2, 0, 3, 1, 4])
        q, k, v = (g("Gather", apart, g.constant(np.int64(which)), axis=0) for which in range(3))
        close = g(
            "Mul",
            g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])),
            g.constant(np.float32((width // heads) ** -0.5)),
        )
        mixed = g("MatMul", g("Softmax", g("Add", close, far), axis=-1), v)
        together = g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]), g.constant(np.array([0, 0, width])))
        x = norm(g("Add", x, linear(together, f"{at}.outputs")), f"{at}.between")
        x = norm(g("Add", x, linear(g("Gelu", linear(x, f"{at}.up")), f"{at}.down")), f"{at}.after")
    kept = g("Unsqueeze", "there", g.constant(np.array([2])))
    sums = g("ReduceSum", g("Mul", x, kept), g.constant(np.array([1])), keepdims=0)
    means = g("Div", sums, g("ReduceSum", "there", g.constant(np.array([1])), keepdims=1))
    g("LpNormalization" if unit else "Identity", means, to="vectors", **({"axis": -1, "p": 2} if unit else {}))
    return g.model(
        {"tokens": ("int64", ("texts", "length")), "there": ("float32", ("texts", "length"))},
        {"vectors": ("float32", ("texts", width))},
    )


def _int8_product(g: Graph, x: str, matrix: NDArray[np.int8], scale: F32) -> str:
    """x @ matrix * scale with both sides in int8.  matrix: (K, N); scale: (N,), of its columns."""
    largest = g("ReduceMax", g("Abs", x), g.constant(np.array([-1])), keepdims=1)
    of_token = g("Mul", g("Max", largest, g.constant(np.float32(1e-12))), g.constant(np.float32(1 / 127)))
    # Moved up by 128: kernels multiply unsigned by signed bytes.
    rounded = g(
        "Cast", g("Add", g("Round", g("Div", x, of_token)), g.constant(np.float32(128))), to_type=_TYPES["uint8"]
    )
    product = g(
        "Cast", g("MatMulInteger", rounded, g.constant(matrix), g.constant(np.uint8(128))), to_type=_TYPES["float32"]
    )
    return g("Mul", g("Mul", product, of_token), g.constant(scale))


class Graph:
    """Nodes in order. ``g("Add", a, b)`` adds one and gives the name of what it computes."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def __call__(self, op: str, *inputs: str, to: str = "", to_type: int | None = None, **attributes: Any) -> str:
        output = to or f"v{len(self._nodes)}"
        if to_type is not None:
            attributes["to"] = to_type
        fields = [_text(1, name) for name in inputs] + [_text(2, output), _text(4, op)]
        self._nodes.append(
            b"".join(fields + [_bytes(5, _attribute(name, value)) for name, value in attributes.items()])
        )
        return output

    def constant(self, value: Any) -> str:
        array = np.asarray(value)
        name = f"c{len(self._constants)}"
        dims = b"".join(_number(1, n) for n in array.shape)
        self._constants.append(
            dims + _number(2, _TYPES[array.dtype.name]) + _text(8, name) + _bytes(9, array.tobytes())
        )
        return name

    def model(
        self,
        inputs: Mapping[str, tuple[str, Sequence[int | str]]],
        outputs: Mapping[str, tuple[str, Sequence[int | str]]],
    ) -> bytes:
        fields = (
            [_bytes(1, node) for node in self._nodes]
            + [_text(2, "encoder")]
            + [_bytes(5, constant) for constant in self._constants]
        )
        fields += [
            _bytes(number, _value(name, *kind))
            for number, side in ((11, inputs), (12, outputs))
            for name, kind in side.items()
        ]
        return (
            _number(1, IR_VERSION) + _text(2, "longtail") + _bytes(7, b"".join(fields)) + _bytes(8, _number(2, OPSET))
        )


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
