"""What is frozen for prediction computes what torch computes: the torch forward pass is the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from tests.nn.dense_oracles import tensor_batch

from longtail.nn.blocks import Block, FullyConnected, Residual, frozen_block
from longtail.nn.encoders import BagEncoder, BagSum, DenseEncoder, Encoder, MlpEncoder, TokenCnn
from longtail.nn.row_tables import OneVsAll, RowTable
from longtail.recipes.eclare.network import DocumentBlock
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = ("bag", "sum", "mlp", "dense", "projected", "cnn", "narrow cnn")


@torch.no_grad()
def shaken(module: torch.nn.Module, rng: np.random.Generator) -> Any:
    """Every parameter random, biases too (they start as zero, which would hide their absence); dropout off."""
    for parameter in module.parameters():
        parameter.copy_(
            torch.from_numpy(rng.standard_normal(tuple(parameter.shape)).astype(np.float32))
            / parameter.shape[-1] ** 0.5
        )
    return module.eval()


def random_encoder(kind: str, words: int, width: int, rng: np.random.Generator) -> Encoder:
    def table(columns: int) -> RowTable:
        return RowTable.random(words, columns, rng)

    made: dict[str, Any] = {
        "bag": lambda: BagEncoder(table(width)),
        "sum": lambda: BagSum(table(width)),
        "mlp": lambda: MlpEncoder(table(width + 2), width, rng),
        "dense": lambda: DenseEncoder(7, rng),
        "projected": lambda: DenseEncoder(7, rng, project_to=width),
        "cnn": lambda: TokenCnn(table(width), width, rng, length=10, filters=3),
        # fewer places than chunks, and a length that the longest span decides
        "narrow cnn": lambda: TokenCnn(table(2), width, rng, length=1, spans=(2, 9), filters=4, chunks=6),
    }
    encoder: Encoder = shaken(made[kind](), rng)
    return encoder


def random_documents(count: int, words: int, rng: np.random.Generator) -> Batch:
    """Of any length from none at all to longer than a CNN reads; values of both signs."""
    sparse = rng.standard_normal((count, words)) * (rng.random((count, words)) < rng.random((count, 1)))
    tokens = rng.integers(0, words, (count, 14))
    tokens[np.arange(14) >= rng.integers(0, 15, (count, 1))] = -1
    sparse[0], tokens[0] = 0, -1
    return Batch(
        csr_array(sparse.astype(np.float32)),
        rng.standard_normal((count, 7)).astype(np.float32),
        tokens.astype(np.int32),
    )


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1000), words=st.integers(1, 40), width=st.integers(1, 12), count=st.integers(1, 20))
@settings(deadline=None, max_examples=25)
def test_frozen_encoders_equal_torch(kind: str, seed: int, words: int, width: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    encoder, batch = random_encoder(kind, words, width, rng), random_documents(count, words, rng)
    expected = encoder(tensor_batch(batch)).search.detach().numpy()
    np.testing.assert_allclose(encoder.frozen().encode(batch), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bound", [0.3, 1.0])
@pytest.mark.parametrize("mode", ["project", "normalise", "off"])
def test_frozen_residuals_equal_torch_and_keep_the_bound(mode: Any, bound: float) -> None:
    rng = np.random.default_rng(0)
    block = Residual(9, rng, bound=bound, mode=mode)
    shaken(block, rng)
    v = np.abs(rng.standard_normal((20, 9))).astype(np.float32)
    frozen: Any = block.frozen()
    np.testing.assert_allclose(frozen.apply(v), block(torch.from_numpy(v)).detach().numpy(), rtol=1e-5, atol=1e-5)
    norm = np.linalg.norm(frozen.weight.astype(np.float64), ord=2)
    if mode == "off":
        assert norm > bound, "or this test says nothing"
    else:
        assert norm <= bound * (1 + 1e-6)


def test_frozen_full_maps_equal_torch() -> None:
    rng = np.random.default_rng(1)
    block = shaken(FullyConnected(6), rng)
    v = np.abs(rng.standard_normal((20, 6))).astype(np.float32)
    frozen: Any = block.frozen()
    np.testing.assert_allclose(frozen.apply(v), block(torch.from_numpy(v)).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_no_block_is_no_refinement() -> None:
    assert frozen_block(None) is None


@pytest.mark.parametrize("bias", [False, True])
def test_frozen_classifiers_equal_torch(bias: bool) -> None:
    rng = np.random.default_rng(2)
    classifier: OneVsAll = shaken(OneVsAll(15, 6, rng, bias=bias), rng)
    z, ids = rng.standard_normal((8, 6)).astype(np.float32), rng.integers(0, 15, (8, 5)).astype(np.int32)
    expected = classifier.scores(torch.from_numpy(z), torch.from_numpy(ids)).detach().numpy()
    np.testing.assert_allclose(classifier.frozen().scores(z, ids), expected, rtol=1e-5, atol=1e-5)


def test_what_is_frozen_does_not_change_when_training_goes_on() -> None:
    rng = np.random.default_rng(3)
    encoder, classifier, batch = random_encoder("mlp", 10, 4, rng), OneVsAll(5, 4, rng), random_documents(6, 10, rng)
    frozen, rows = encoder.frozen(), classifier.frozen().rows[:]
    vectors_before, rows_before = frozen.encode(batch), rows.copy()
    shaken(encoder, rng), shaken(classifier, rng)
    np.testing.assert_array_equal(frozen.encode(batch), vectors_before)
    np.testing.assert_array_equal(rows, rows_before)


@pytest.mark.parametrize("clamp", [False, True])
def test_frozen_document_blocks_equal_torch(clamp: bool) -> None:
    rng = np.random.default_rng(0)
    block: DocumentBlock = shaken(DocumentBlock(9, rng, clamp_scale=clamp), rng)
    with torch.no_grad():
        block.block.scale.fill_(-1.7)
    a = rng.standard_normal((20, 9)).astype(np.float32)
    found: Any = block.frozen()
    assert found.lam == pytest.approx(-1.0 if clamp else -1.7)
    np.testing.assert_allclose(found.apply(a), block(torch.from_numpy(a)).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_an_encoder_or_block_without_a_frozen_form_is_a_bug() -> None:
    with pytest.raises(NotImplementedError, match="no frozen form of Encoder"):
        Encoder().frozen()
    with pytest.raises(NotImplementedError, match="no frozen form of Block"):
        Block().frozen()
