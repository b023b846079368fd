"""The transformer: checkpoints as Hugging Face has them, one text at a time by hand (the oracle), numpy, torch and
onnxruntime.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tests.checkpoints import write_checkpoint
from tests.nn.dense_oracles import tensor_batch

from longtail.errors import ConfigError, DataError
from longtail.models.encoders import FrozenUnit
from longtail.models.transformer import FrozenTransformer, Pretrained, blocks_of_length, read_checkpoint
from longtail.nn.batches import Documents
from longtail.nn.encoders import UnitEncoder, encode_all
from longtail.nn.transformer import Transformer, groups_by_length
from longtail.persistence import load_part, save_part
from longtail.search.packed import Packer
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = [f"w{number}" for number in range(30)]


@pytest.fixture(scope="module", params=["bert", "distilbert"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / request.param, WORDS, family=request.param, heads=4)


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Pretrained:
    return read_checkpoint(folder)


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrozenTransformer, "_session", None)


def batch(lengths: list[int], seed: int = 0) -> Batch:
    tokens = np.full((len(lengths), 33), -1, np.int32)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = np.random.default_rng([seed, length]).integers(0, len(WORDS) + 4, length)
    return Batch(tokens=tokens)


def by_hand(folder: Path, tokens: list[int]) -> Any:
    """One text, token by token, from the arrays under their names on disk; float64."""
    arrays = {name: array.astype(np.float64) for name, array in load_file(folder / "model.safetensors").items()}
    config = json.loads((folder / "config.json").read_text())
    bert = config["model_type"] == "bert"
    heads, layers = (
        (config["num_attention_heads"], config["num_hidden_layers"])
        if bert
        else (config["n_heads"], config["n_layers"])
    )

    def linear(x: Any, name: str) -> Any:
        return arrays[f"{name}.weight"] @ x + arrays[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        return (x - x.mean()) / math.sqrt(x.var() + 1e-12) * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]

    xs = [
        arrays["embeddings.word_embeddings.weight"][t] + arrays["embeddings.position_embeddings.weight"][p]
        for p, t in enumerate(tokens)
    ]
    if bert:
        xs = [x + arrays["embeddings.token_type_embeddings.weight"][0] for x in xs]
    xs = [norm(x, "embeddings.LayerNorm") for x in xs]
    names = ("self.query", "self.key", "self.value", "output.dense") if bert else ("q_lin", "k_lin", "v_lin", "out_lin")
    for layer in range(layers):
        at = f"encoder.layer.{layer}" if bert else f"transformer.layer.{layer}"
        q, k, v = ([linear(x, f"{at}.attention.{name}").reshape(heads, -1) for x in xs] for name in names[:3])
        ys = []
        for i in range(len(xs)):
            mixed = []
            for head in range(heads):
                scores = np.array([q[i][head] @ k[j][head] / math.sqrt(len(k[j][head])) for j in range(len(xs))])
                chances = np.exp(scores) / np.exp(scores).sum()
                mixed.append(sum(chance * v[j][head] for j, chance in enumerate(chances)))
            y = norm(
                xs[i] + linear(np.concatenate(mixed), f"{at}.attention.{names[3]}"),
                f"{at}.attention.output.LayerNorm" if bert else f"{at}.sa_layer_norm",
            )
            h = linear(y, f"{at}.intermediate.dense" if bert else f"{at}.ffn.lin1")
            h = h * 0.5 * (1 + np.array([math.erf(number / math.sqrt(2)) for number in h]))
            ys.append(
                norm(
                    y + linear(h, f"{at}.output.dense" if bert else f"{at}.ffn.lin2"),
                    f"{at}.output.LayerNorm" if bert else f"{at}.output_layer_norm",
                )
            )
        xs = ys
    return np.mean(xs, axis=0)


@pytest.mark.usefixtures("by_numpy")
def test_numpy_torch_and_a_computation_by_hand_agree(folder: Path, checkpoint: Pretrained) -> None:
    texts = batch([3, 0, 12, 33, 1])
    assert texts.tokens is not None
    expected = np.array(
        [by_hand(folder, row[row >= 0].tolist()) if (row >= 0).any() else np.zeros(16) for row in texts.tokens]
    )
    np.testing.assert_allclose(checkpoint.frozen.encode(texts), expected, atol=2e-5)
    np.testing.assert_allclose(encode_all(Transformer(checkpoint), Documents(texts), "search"), expected, atol=2e-5)


def test_onnxruntime_gives_the_same(checkpoint: Pretrained, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    texts = batch([3, 0, 12, 33, 1, 12])
    found = checkpoint.frozen.encode(texts)
    assert checkpoint.frozen._session is not None
    monkeypatch.setattr(FrozenTransformer, "_session", None)
    fresh = FrozenTransformer(checkpoint.frozen.weights, checkpoint.frozen.heads, checkpoint.frozen.epsilon)
    np.testing.assert_allclose(found, fresh.encode(texts), atol=1e-5)


def test_the_graph_is_what_onnx_calls_valid(checkpoint: Pretrained) -> None:
    onnx = pytest.importorskip("onnx")
    for frozen in (checkpoint.frozen, checkpoint.frozen.packed(Packer("int8"))):
        model = onnx.load_from_string(frozen.onnx(unit=True))
        onnx.checker.check_model(model, full_check=True)
        assert [node.name for node in model.graph.input] == ["tokens", "there"]


def test_int8_in_onnxruntime_does_not_depend_on_the_batch(checkpoint: Pretrained) -> None:
    pytest.importorskip("onnxruntime")
    packed, texts = checkpoint.frozen.packed(Packer("int8")), batch([12, 12, 12, 5])
    together = packed.encode(texts)
    alone = np.concatenate([packed.encode(texts.rows(slice(row, row + 1))) for row in range(4)])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    exact = checkpoint.frozen.encode(texts)
    assert np.abs(together - exact).max() > 1e-4, "vectors are rounded on the way"
    assert np.abs(together - exact).max() < 0.15 * np.abs(exact).max()


@pytest.mark.usefixtures("by_numpy")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 0.01), ("int8", 0.1)])
def test_packed_weights_are_nearly_the_same_and_smaller(
    dtype: Any, tolerance: float, checkpoint: Pretrained, tmp_path: Path
) -> None:
    packed, texts = checkpoint.frozen.packed(Packer(dtype)), batch([3, 0, 12, 33, 1])
    exact = checkpoint.frozen.encode(texts)
    assert np.abs(packed.encode(texts) - exact).max() < tolerance * np.abs(exact).max()
    assert sum(a.nbytes for a in packed.weights.values()) < 0.7 * sum(
        a.nbytes for a in checkpoint.frozen.weights.values()
    )
    save_part(packed, tmp_path / "part")
    np.testing.assert_array_equal(load_part(tmp_path / "part").encode(texts), packed.encode(texts))
    with pytest.raises(ConfigError, match="packed already"):
        packed.packed(Packer(dtype))


def test_saved_weights_that_do_not_fit_are_refused(checkpoint: Pretrained, tmp_path: Path) -> None:
    weights = checkpoint.frozen.weights
    for name, array in (
        ("words", np.zeros((9, 8), np.float32)),
        ("layers.1.up.bias", np.zeros(3, np.float32)),
        ("layers.0.foreign", np.zeros(1, np.float32)),
    ):
        with pytest.raises(ValueError, match="of a transformer has the shape"):
            FrozenTransformer({**weights, name: array}, 4, 1e-12)
    with pytest.raises(ValueError, match="3 heads"):
        FrozenTransformer(weights, 3, 1e-12)


def test_tokens_of_another_tokenizer_are_refused(checkpoint: Pretrained) -> None:
    for tokens in (None, np.full((1, 3), 99, np.int32), np.zeros((1, 41), np.int32)):
        with pytest.raises(ConfigError, match="its own tokenizer"):
            checkpoint.frozen.encode(Batch(dense=np.zeros((1, 2), np.float32), tokens=tokens))


def test_training_changes_all_of_it_and_freezing_keeps_it(checkpoint: Pretrained) -> None:
    encoder = UnitEncoder(Transformer(checkpoint)).train()
    torch.autograd.backward(encoder(tensor_batch(batch([5, 9, 0, 20]))).score[:, 0].sum())
    silent = [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert not [name for name in silent if "inputs.bias" not in name], (
        "every array has a gradient (of the keys' bias none can be seen)"
    )
    with torch.no_grad():
        for p in encoder.parameters():
            p.add_(0.01)
    frozen = encoder.frozen()
    assert isinstance(frozen, FrozenUnit)
    texts = batch([5, 9, 0, 20])
    np.testing.assert_allclose(frozen.encode(texts), encode_all(encoder, Documents(texts), "search"), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(frozen.encode(texts), axis=1), [1, 1, 0, 1], atol=1e-5)


def test_dropout_is_the_checkpoints_and_only_in_training(tmp_path: Path) -> None:
    encoder = Transformer(read_checkpoint(write_checkpoint(tmp_path / "c", WORDS, dropout=0.3)))
    texts = tensor_batch(batch([5, 9]))
    assert not torch.equal(encoder.train()(texts).score, encoder(texts).score)
    assert torch.equal(encoder.eval()(texts).score, encoder(texts).score)


def test_groups_hold_every_text_with_tokens_once_and_pad_little() -> None:
    lengths = np.random.default_rng(0).integers(0, 65, 1000)
    groups = groups_by_length(lengths, 4000)
    assert 3 < len(groups) < 9
    np.testing.assert_array_equal(np.sort(np.concatenate(groups)), np.flatnonzero(lengths))
    assert all(lengths[rows].sum() >= 4000 for rows in groups)
    padded = sum(len(rows) * lengths[rows].max() for rows in groups)
    assert padded < 0.75 * np.count_nonzero(lengths) * lengths.max()
    many = groups_by_length(np.full(5000, 30), 4000)
    np.testing.assert_array_equal(np.concatenate(many), np.arange(5000))
    assert all(len(rows) * 30 <= 2**16 for rows in many), "memory is bounded"
    assert groups_by_length(np.zeros(3, np.int64), 10) == []
    assert [rows.tolist() for rows in groups_by_length(np.array([3, 0, 30]), 100)] == [[0, 2]]
    assert [rows.tolist() for rows in groups_by_length(np.array([30, 3, 2, 31]), 5)] == [[1, 2], [0, 3]]


def test_blocks_hold_every_text_with_tokens_once() -> None:
    lengths = np.random.default_rng(0).integers(0, 65, 300)
    blocks = list(blocks_of_length(lengths, hidden=2**14))
    np.testing.assert_array_equal(np.sort(np.concatenate([rows for rows, _ in blocks])), np.flatnonzero(lengths))
    assert all(lengths[rows].max() == longest and len(rows) * longest * 2**14 <= 2**23 for rows, longest in blocks)


def test_checkpoints_in_half_precision_and_with_a_prefix(tmp_path: Path) -> None:
    plain, half = (
        read_checkpoint(write_checkpoint(tmp_path / name, WORDS, prefix=prefix, dtype=dtype)).frozen.weights
        for name, prefix, dtype in (("a", "", np.float32), ("b", "bert.", np.float16))
    )
    for name, array in plain.items():
        np.testing.assert_allclose(half[name], array, atol=3e-3)
        assert half[name].dtype == np.float32


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").write_text("{"), "config.json: not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "not a JSON object"),
        (lambda f: (f / "config.json").write_text('{"model_type": "t5"}'), "a model of type 't5'"),
        (lambda f: (f / "config.json").unlink(), "config.json: the file is missing"),
        (lambda f: (f / "model.safetensors").write_bytes(b"junk"), "model.safetensors"),
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "model.safetensors: the file is missing"),
        (lambda f: save_file({"a": np.zeros(1)}, f / "model.safetensors"), "do not fit together"),
        (lambda f: change(f, num_attention_heads=5), "5 heads"),
        (lambda f: change(f, num_hidden_layers=3), "do not fit together"),
        (lambda f: change(f, hidden_act="relu"), "other than gelu"),
    ],
)
def test_broken_checkpoints_are_named(spoil: Any, message: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", WORDS)
    spoil(folder)
    with pytest.raises(DataError, match=message):
        read_checkpoint(folder)


def change(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def test_transformers_gives_the_same(folder: Path, checkpoint: Pretrained, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    texts = batch([12, 5, 33])
    assert texts.tokens is not None
    model = transformers.AutoModel.from_pretrained(str(copy), local_files_only=True).eval()
    tokens = torch.from_numpy(texts.tokens)
    mask = (tokens >= 0).long()
    with torch.no_grad():
        last = model(input_ids=tokens.clamp(min=0).long(), attention_mask=mask).last_hidden_state
    expected = (last * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    np.testing.assert_allclose(checkpoint.frozen.encode(texts), expected.numpy(), atol=1e-5)
