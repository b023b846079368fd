"""Frozen encoders and refinements against plain loops; what does not fit a model is refused. (Against torch:
tests/nn/test_frozen.py.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.errors import ConfigError
from longtail.models.encoders import (
    FrozenBag,
    FrozenCnn,
    FrozenDense,
    FrozenEncoder,
    FrozenMlp,
    FullMap,
    Refinement,
    ResidualMap,
)
from longtail.persistence import load_part, save_part
from longtail.types import F32, Batch

WORDS, INPUTS, WIDTH, LENGTH = 20, 5, 4, 9


def numbers(seed: int, *shape: int) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def documents() -> Batch:
    """Twelve documents in all three views. Number 2 is empty, number 3 has one word; others are shorter and longer
    than the CNN reads.
    """
    rng = np.random.default_rng(0)
    sparse = numbers(1, 12, WORDS) * (rng.random((12, WORDS)) < 0.3)
    tokens = rng.integers(0, WORDS, (12, LENGTH + 4))
    tokens[np.arange(LENGTH + 4) >= rng.integers(1, LENGTH + 5, (12, 1))] = -1
    sparse[2], tokens[2] = 0, -1
    sparse[3, 1:], tokens[3, 1:] = 0, -1
    return Batch(csr_array(sparse.astype(np.float32)), numbers(2, 12, INPUTS), tokens.astype(np.int32))


BAG = FrozenBag(numbers(10, WORDS, WIDTH))
MLP = FrozenMlp(numbers(11, WORDS, 6), numbers(12, 6), numbers(13, WIDTH, 6), numbers(14, WIDTH))
DENSE = FrozenDense(numbers(15, WIDTH, INPUTS), numbers(16, WIDTH))
PLAIN = FrozenDense()
CNN = FrozenCnn(
    numbers(17, WORDS, 3),
    (numbers(18, 4, 3, 2), numbers(19, 4, 3, 5)),
    (numbers(20, 4), numbers(21, 4)),
    numbers(22, WIDTH, 2 * 4 * 3),
    numbers(23, WIDTH),
    LENGTH,
    3,
)
ENCODERS: dict[str, FrozenEncoder] = {"bag": BAG, "mlp": MLP, "dense": DENSE, "plain": PLAIN, "cnn": CNN}


def relu(values: Any) -> Any:
    return np.where(np.asarray(values) > 0, values, 0)


def bag_by_hand(row: int, table: F32) -> Any:
    x = documents().sparse
    assert x is not None
    return sum(
        (x.toarray()[row, word] * table[word].astype(np.float64) for word in range(WORDS)), np.zeros(table.shape[1])
    )


def cnn_by_hand(row: int) -> Any:
    """One window, one filter, one piece of the map at a time."""
    tokens = documents().tokens
    assert tokens is not None
    vectors = np.zeros((LENGTH, 3))
    for place, token in enumerate(tokens[row, :LENGTH]):
        if token >= 0:
            vectors[place] = CNN.table[token]
    pooled = []
    for filters, bias in zip(CNN.filters, CNN.filter_biases, strict=True):
        span = filters.shape[2]
        for f in range(len(filters)):
            maps = [
                max(0.0, float(bias[f] + sum(filters[f, :, s] @ vectors[place + s] for s in range(span))))
                for place in range(LENGTH - span + 1)
            ]
            # Pieces may overlap, as those of torch's adaptive pooling.
            pieces = [(math.floor(c * len(maps) / 3), math.ceil((c + 1) * len(maps) / 3)) for c in range(3)]
            pooled += [max(maps[low:high]) for low, high in pieces]
    return relu(CNN.weight.astype(np.float64) @ pooled + CNN.bias)


def dense_row(row: int) -> F32:
    dense = documents().dense
    assert dense is not None
    return dense[row]


BY_HAND: dict[str, Callable[[int], Any]] = {
    "bag": lambda row: relu(bag_by_hand(row, BAG.table[:])),
    "mlp": lambda row: relu(
        MLP.weight.astype(np.float64) @ relu(bag_by_hand(row, MLP.table[:]) + MLP.hidden_bias) + MLP.bias
    ),
    "dense": lambda row: relu(numbers(15, WIDTH, INPUTS).astype(np.float64) @ dense_row(row) + numbers(16, WIDTH)),
    "plain": lambda row: relu(dense_row(row)),
    "cnn": cnn_by_hand,
}
every_encoder = pytest.mark.parametrize("kind", ENCODERS)


@every_encoder
def test_encoders_do_what_their_formula_says(kind: str) -> None:
    vectors = ENCODERS[kind].encode(documents())
    assert vectors.dtype == np.float32
    assert (vectors >= 0).all()
    np.testing.assert_allclose(vectors, [BY_HAND[kind](row) for row in range(12)], rtol=1e-5, atol=1e-5)


@every_encoder
def test_a_document_does_not_depend_on_its_batch(kind: str) -> None:
    whole = ENCODERS[kind].encode(documents())
    for row in range(12):
        np.testing.assert_allclose(
            ENCODERS[kind].encode(documents().rows(slice(row, row + 1)))[0], whole[row], rtol=1e-6, atol=1e-6
        )


@every_encoder
def test_no_documents(kind: str) -> None:
    vectors = ENCODERS[kind].encode(documents().rows(slice(0, 0)))
    assert vectors.shape == (0, INPUTS if kind == "plain" else WIDTH)


@every_encoder
def test_saved_and_loaded_they_encode_bit_for_bit(kind: str, tmp_path: Path) -> None:
    save_part(ENCODERS[kind], tmp_path / "part")
    np.testing.assert_array_equal(load_part(tmp_path / "part").encode(documents()), ENCODERS[kind].encode(documents()))


def test_a_document_without_words_is_the_zero_vector_of_a_bag() -> None:
    assert not BAG.encode(documents())[2].any()
    np.testing.assert_allclose(
        MLP.encode(documents())[2], relu(MLP.weight @ relu(MLP.hidden_bias) + MLP.bias), rtol=1e-5, atol=1e-6
    )


def test_cnn_cuts_and_pads_sequences_to_its_length() -> None:
    tokens = documents().tokens
    assert tokens is not None
    whole = CNN.encode(Batch(tokens=tokens))
    np.testing.assert_array_equal(CNN.encode(Batch(tokens=tokens[:, :LENGTH])), whole)
    short = np.where(np.arange(tokens.shape[1]) < 3, tokens, -1)
    np.testing.assert_array_equal(
        CNN.encode(Batch(tokens=tokens[:, :3])), CNN.encode(Batch(tokens=short.astype(np.int32)))
    )
    assert CNN.encode(Batch(tokens=np.zeros((2, 0), np.int32))).shape == (2, WIDTH)


def test_cnn_blocks_do_not_matter() -> None:
    np.testing.assert_allclose(CNN.encode(documents(), block=5), CNN.encode(documents()), rtol=1e-6, atol=1e-6)


WRONG: dict[str, tuple[FrozenEncoder, Batch]] = {
    "a bag without words": (BAG, Batch(dense=numbers(0, 2, WORDS))),
    "a bag of another vocabulary": (BAG, Batch(sparse=csr_array((2, WORDS + 1), dtype=np.float32))),
    "a network without words": (MLP, Batch(tokens=np.zeros((2, 3), np.int32))),
    "a network of another vocabulary": (MLP, Batch(sparse=csr_array((2, WORDS - 1), dtype=np.float32))),
    "vectors of another width": (DENSE, Batch(dense=numbers(0, 2, INPUTS + 1))),
    "no vectors": (DENSE, Batch(sparse=csr_array((2, INPUTS), dtype=np.float32))),
    "no vectors to pass through": (PLAIN, Batch(sparse=csr_array((2, INPUTS), dtype=np.float32))),
    "no tokens": (CNN, Batch(sparse=csr_array((2, WORDS), dtype=np.float32))),
}


@pytest.mark.parametrize("case", WRONG)
def test_features_of_another_kind_are_refused(case: str) -> None:
    encoder, batch = WRONG[case]
    with pytest.raises(ConfigError, match="this model reads") as caught:
        encoder.encode(batch)
    assert caught.value.hint


# ---- refinements ----


@pytest.mark.parametrize("kind", [ResidualMap, FullMap])
def test_refinements_do_what_their_formula_says(kind: Callable[[F32], Refinement], tmp_path: Path) -> None:
    weight, vectors = numbers(3, WIDTH, WIDTH), np.abs(numbers(4, 7, WIDTH))
    refinement = kind(weight)
    found = refinement.apply(vectors)
    for row in range(7):
        turned = [max(0.0, float(weight[out] @ vectors[row])) for out in range(WIDTH)]
        expected = vectors[row] + turned if kind is ResidualMap else np.array(turned)
        np.testing.assert_allclose(found[row], expected, rtol=1e-5, atol=1e-6)
    save_part(refinement, tmp_path / "part")
    np.testing.assert_array_equal(load_part(tmp_path / "part").apply(vectors), found)
