"""Every encoder: shapes, non-negative vectors, empty documents, one document, no dependence on the batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tests.nn.dense_oracles import tensor_batch
from torch import Tensor

from longtail.nn.batches import Documents, TensorBatch
from longtail.nn.blocks import Residual
from longtail.nn.encoders import BagEncoder, DenseEncoder, Encoder, MlpEncoder, Refined, TokenCnn, encode_all
from longtail.nn.row_tables import RowTable
from longtail.types import Batch

FEATURES, WIDTH = 30, 6


def documents() -> Batch:
    """Ten documents in all three views; number 3 is empty, and signs are mixed."""
    rng = np.random.default_rng(0)
    sparse = rng.standard_normal((10, FEATURES)) * (rng.random((10, FEATURES)) < 0.3)
    tokens = rng.integers(0, FEATURES, (10, 5))
    sparse[3], tokens[3] = 0, -1
    tokens[4, 1:] = -1
    return Batch(
        csr_array(sparse.astype(np.float32)),
        rng.standard_normal((10, WIDTH), dtype=np.float32),
        tokens.astype(np.int32),
    )


def bag() -> Encoder:
    return BagEncoder(RowTable.random(FEATURES, WIDTH, np.random.default_rng(1)))


def mlp() -> Encoder:
    rng = np.random.default_rng(1)
    return MlpEncoder(RowTable.random(FEATURES, 9, rng), WIDTH, rng)


def dense() -> Encoder:
    return DenseEncoder(WIDTH, np.random.default_rng(1))


def projected() -> Encoder:
    return DenseEncoder(WIDTH, np.random.default_rng(1), project_to=4)


def cnn() -> Encoder:
    rng = np.random.default_rng(1)
    return TokenCnn(RowTable.random(FEATURES, 7, rng), WIDTH, rng, length=12, spans=(2, 3), filters=5, chunks=3)


def refined() -> Encoder:
    return Refined(bag(), Residual(WIDTH, np.random.default_rng(1)))


every_encoder = pytest.mark.parametrize("make", [bag, mlp, dense, projected, cnn, refined])


def scores(encoder: Encoder, batch: TensorBatch) -> Tensor:
    encoded = encoder(batch)
    assert encoded.score.shape == encoded.search.shape == (len(encoded.score), encoder.width)
    return encoded.score.detach()


@every_encoder
def test_vectors_are_finite_and_not_negative(make: Callable[[], Encoder]) -> None:
    encoder = make()
    for mode in (True, False):
        vectors = scores(encoder.train(mode), tensor_batch(documents()))
        assert vectors.shape == (10, encoder.width)
        assert torch.isfinite(vectors).all()
        assert (vectors >= 0).all()
        assert (vectors > 0).any()


@every_encoder
def test_a_document_does_not_depend_on_its_batch(make: Callable[[], Encoder]) -> None:
    encoder = make().eval()
    whole = scores(encoder, tensor_batch(documents()))
    for i in range(10):
        alone = scores(encoder, tensor_batch(documents().rows(np.array([i]))))
        torch.testing.assert_close(alone[0], whole[i], rtol=1e-5, atol=1e-6)


@every_encoder
def test_dropout_only_in_training(make: Callable[[], Encoder]) -> None:
    encoder, batch = make(), tensor_batch(documents())
    torch.manual_seed(0)
    assert not torch.equal(scores(encoder.train(), batch), scores(encoder, batch))
    assert torch.equal(scores(encoder.eval(), batch), scores(encoder, batch))


@pytest.mark.parametrize("make", [bag, mlp, projected, cnn, refined])
def test_all_parameters_get_a_gradient(make: Callable[[], Encoder]) -> None:
    encoder = make()
    torch.autograd.backward(encoder(tensor_batch(documents())).score.sum())
    for name, parameter in encoder.named_parameters():
        if name.endswith("table.weight"):
            assert parameter.grad is None
        else:
            assert parameter.grad is not None, name
    for module in encoder.modules():
        if isinstance(module, RowTable):
            assert module.take_gradient() is not None


@every_encoder
def test_encode_all_goes_in_blocks_and_puts_the_mode_back(make: Callable[[], Encoder]) -> None:
    encoder, all_documents = make().train(), Documents(documents())
    vectors = encode_all(encoder, all_documents, "search", block=4)
    assert encoder.training
    np.testing.assert_allclose(
        vectors, encoder.eval()(tensor_batch(documents())).search.detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_bag_encoder_is_relu_of_the_weighted_sum() -> None:
    encoder = bag().eval()
    (table,) = encoder.parameters()
    expected = np.maximum(documents().sparse.toarray() @ table.detach().numpy(), 0)  # type: ignore[union-attr]  # it has a sparse view
    np.testing.assert_allclose(scores(encoder, tensor_batch(documents())).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_document_without_features_is_the_zero_vector() -> None:
    assert not scores(bag().eval(), tensor_batch(documents()))[3].any()


def test_a_batch_of_empty_documents() -> None:
    encoder = refined().train()
    empty = tensor_batch(Batch(csr_array((2, FEATURES), dtype=np.float32)))
    assert not scores(encoder, empty).any()
    torch.autograd.backward(encoder(empty).score.sum())


def test_pretrained_vectors_are_taken_as_they_are() -> None:
    given = torch.rand(FEATURES, WIDTH)
    encoder = BagEncoder(RowTable(given.clone())).eval()
    one_feature = tensor_batch(Batch(csr_array(([1.0], ([0], [7])), shape=(1, FEATURES), dtype=np.float32)))
    assert torch.equal(scores(encoder, one_feature)[0], given[7])


def test_refined_keeps_the_search_view() -> None:
    encoder = refined().eval()
    encoded = encoder(tensor_batch(documents()))
    assert torch.equal(encoded.score, 2 * encoded.search)


def test_cnn_takes_sequences_of_any_length() -> None:
    """Short ones are padded, long ones cut: equal heads give equal vectors."""
    encoder = cnn().eval()
    rng = np.random.default_rng(0)
    long = rng.integers(0, FEATURES, (1, 40)).astype(np.int32)
    results = [
        scores(encoder, tensor_batch(Batch(tokens=tokens)))
        for tokens in (long, long[:, :12], long[:, :1], np.zeros((1, 0), np.int32))
    ]
    assert all(r.shape == (1, WIDTH) for r in results)
    assert torch.equal(results[0], results[1])
    padded = np.full((1, 5), -1, dtype=np.int32)
    padded[0, 0] = long[0, 0]
    assert torch.equal(scores(encoder, tensor_batch(Batch(tokens=padded))), results[2])


def test_cnn_sees_the_order_of_tokens() -> None:
    encoder = cnn().eval()
    forward = np.array([[1, 2, 3, 4]], dtype=np.int32)
    assert not torch.equal(
        scores(encoder, tensor_batch(Batch(tokens=forward))),
        scores(encoder, tensor_batch(Batch(tokens=forward[:, ::-1].copy()))),
    )


def test_cnn_length_is_at_least_the_longest_span() -> None:
    rng = np.random.default_rng(0)
    encoder = TokenCnn(
        RowTable.random(FEATURES, 4, rng), WIDTH, rng, length=1, spans=(2, 9), filters=3, chunks=8
    ).eval()
    assert scores(encoder, tensor_batch(documents())).shape == (10, WIDTH)


def test_layers_draw_only_from_the_given_generator() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    mlp(), cnn(), projected(), refined()
    assert torch.equal(torch.get_rng_state(), before)
