"""Dual encoders: what they learn, the parts that tell them apart, and what lacking data gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import longtail
from longtail.config import from_text
from longtail.data.dataset import Dataset, Items
from longtail.data.from_texts import with_digest
from longtail.errors import ConfigError, DataError
from longtail.evaluation import evaluate
from longtail.models.rankers import IndexedRows, Model
from longtail.nn.batches import Documents
from longtail.nn.blocks import EmbeddingBlock
from longtail.nn.encoders import encode_all
from longtail.persistence import load_part
from longtail.recipes import recipe_class
from longtail.recipes.towers.network import (
    LabelPool,
    PairTask,
    Towers,
    TwoTowers,
    label_index,
    label_pool,
    new_encoder,
    pair_loss,
)
from longtail.recipes.towers.recipe import TwoTowersRecipe
from longtail.recipes.towers.settings import TwoTowersConfig
from longtail.search.negatives import forbidden_pairs
from longtail.training.indices import exact_index_on
from longtail.training.prepare import TrainingSet, prepare
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = (
    "encoder.width=16",
    "train.epochs=6",
    "train.rate=0.02",
    "features.subwords=none",
    "features.pairs=false",
    "classify.epochs=5",
)
BASES = ("ance", "ngame", "dexml", "siamese")


def recipe(name: str, *settings: str) -> TwoTowersRecipe:
    cls: Any = recipe_class(name)
    made: TwoTowersRecipe = cls(from_text(TwoTowersConfig(), (*SMALL, *settings)))
    return made


@pytest.mark.parametrize("name", BASES)
def test_it_learns_what_is_planted(name: str, planted: Dataset, tmp_path: Path) -> None:
    predictor = longtail.train(planted, tmp_path / "run", recipe(name), device="cpu")
    found = evaluate(predictor, planted)
    assert found["P@1"] > 90
    assert found["R@10"] > 90
    assert isinstance(predictor.bundle.ranker, Model if name in ("ngame", "siamese") else IndexedRows)


def test_the_frozen_encoder_is_the_trained_one_and_its_vectors_have_unit_length(planted: Dataset) -> None:
    from longtail.training.run import Run

    ready = prepare(planted, recipe("ance").config.features)
    run = Run(Path("nowhere"), seed=3, device="cpu", display=None)  # type: ignore[arg-type]  # nothing is shown here
    encoder = new_encoder(ready, recipe("ance").config, run)
    assert isinstance(encoder.block, EmbeddingBlock)
    with torch.no_grad():
        encoder.block.weight.add_(0.1 * torch.randn(encoder.block.weight.shape))
        encoder.block.scale.fill_(0.7)
    vectors = encode_all(encoder, Documents(ready.documents), "search")
    np.testing.assert_allclose(encoder.frozen().encode(ready.documents), vectors, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (vectors < -0.05).any(), "vectors have either sign, or pruning by cosine means nothing"
    nothing = Batch(sparse=csr_array((2, ready.featurizer.width), dtype=np.float32))
    assert not encoder.frozen().encode(nothing).any()


def test_labels_without_text_come_last() -> None:
    towers = Towers(None, np.zeros((1, 2), np.float32), np.array([[1, 0], [0, 0], [-1, 0]], np.float32))  # type: ignore[arg-type]  # no encoder needed
    found: Any = recipe("ance").classify(None, towers, None, None, None)  # type: ignore[arg-type]  # needs no data
    top = found.index.query(np.array([[1, 0, 1]], np.float32), 3)
    assert top.ids.tolist() == [[0, 2, 1]]
    assert label_index(towers.labels, exact_index_on("cpu")).query(np.array([[1, 0]], np.float32), 3).ids.tolist() == [
        [0, 2, -1]
    ]


def test_the_pool_of_a_batch() -> None:
    """Document 0 has labels 1 and 3 and label 4 is masked for it; document 1 has none; document 2 has label 0."""
    targets = csr_array(np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], np.float32))
    forbidden = forbidden_pairs(targets, np.array([[0, 4]]))
    seen = set()
    for seed in range(20):
        pool = label_pool(np.arange(3), targets, forbidden, np.random.default_rng(seed), np.array([4, 2, -1, 0]))
        chosen = int(pool.labels[pool.positive[0]])
        seen.add(chosen)
        assert pool.labels.tolist() == sorted({0, 2, 4, chosen})
        assert pool.positive[1] == -1
        np.testing.assert_array_equal(pool.right, targets.toarray()[:, pool.labels] > 0)
        np.testing.assert_array_equal(pool.negative, forbidden.toarray()[:, pool.labels] == 0)
        assert pool.labels[pool.chosen].tolist() == [0, chosen]
    assert seen == {1, 3}


def objective(data: TrainingSet, cluster: int = 0, mined: int = 0, **settings: Any) -> TwoTowers:
    from longtail.training.run import Run

    run = Run(Path("nowhere"), seed=3, device="cpu", display=None)  # type: ignore[arg-type]  # nothing is shown here
    task = PairTask(
        data.targets,
        forbidden_pairs(data.targets, data.masked),
        settings.pop("loss", "triplet"),
        0.3,
        0,
        0.05,
        settings.pop("random", 0),
        mined,
    )
    assert data.label_texts is not None
    encoder = new_encoder(data, recipe("ance").config, run)
    return TwoTowers(
        encoder,
        Documents(data.documents),
        Documents(data.label_texts),
        task,
        rng_for=run.rng,
        cluster=cluster,
        **settings,
    )


@pytest.fixture(scope="module")
def ready(planted: Dataset) -> TrainingSet:
    return prepare(planted, recipe("ance").config.features)


def test_clustered_batches_hold_documents_that_are_alike(ready: TrainingSet) -> None:
    found = objective(ready, cluster=10, doubled=4)
    found.begins(0, 8)
    order = found.order(np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(order), np.arange(ready.n_documents))
    vectors = encode_all(found.encoder, found.documents, "search")

    def likeness(order: Any) -> float:
        return float(
            np.mean(
                [
                    (vectors[order[at : at + 10]] @ vectors[order[at : at + 10]].T).mean()
                    for at in range(0, len(order), 10)
                ]
            )
        )

    assert likeness(order) > likeness(np.random.default_rng(0).permutation(ready.n_documents)) + 0.1
    assert not np.array_equal(order, found.order(np.random.default_rng(1)))
    before = int(found.state()["cluster_of"].max())
    found.begins(5, 8)
    assert (before + 1, int(found.state()["cluster_of"].max()) + 1) == (12, 6), (
        "clusters are twice as large after `doubled` epochs"
    )


def test_mined_negatives_are_the_nearest_wrong_labels(ready: TrainingSet) -> None:
    found = objective(ready, mined=2)
    found.begins(0, 5)
    mined = found.state()["mined"].numpy()
    assert ready.label_texts is not None
    scores = encode_all(found.encoder, found.documents, "search") @ encode_all(found.encoder, found.labels, "search").T
    scores[ready.targets.toarray() > 0] = -np.inf
    np.testing.assert_array_equal(mined, np.argsort(-scores, axis=1, kind="stable")[:, :2])
    before = mined.copy()
    with torch.no_grad():
        next(iter(found.encoder.parameters())).mul_(-1)
    found.begins(1, 5)
    np.testing.assert_array_equal(found.state()["mined"].numpy(), before)
    found.begins(5, 5)
    assert (found.state()["mined"].numpy() != before).any()


def test_the_labels_beside_those_of_the_batch(ready: TrainingSet) -> None:
    rows, n = np.arange(5), ready.n_labels

    def others(**settings: Any) -> Any:
        found = objective(ready, **settings)
        found.begins(0, 1)
        return found, found._others(rows, np.random.default_rng(0))

    assert others()[1] is None
    assert len(others(random=4)[1]) == 4
    np.testing.assert_array_equal(others(random=n)[1], np.arange(n))
    np.testing.assert_array_equal(others(loss="softmax")[1], ready.targets[rows].indices)
    found, mined = others(mined=2)
    assert len(mined) == len(rows)
    assert all(label in found.state()["mined"].numpy()[row] for row, label in zip(rows, mined, strict=True))


@pytest.mark.parametrize("loss", ["triplet", "softmax", "logistic"])
def test_masked_labels_are_neither_right_nor_wrong(loss: Any) -> None:
    """Label 2 is masked for document 0 and a negative of document 1."""
    targets = csr_array(np.array([[1, 0, 0], [0, 1, 0]], np.float32))
    task = PairTask(targets, forbidden_pairs(targets, np.array([[0, 2]])), loss, 1.5, 0, 0.5)
    pool = label_pool(np.arange(2), targets, task.forbidden, np.random.default_rng(0), np.array([2]))
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.3], [0.2, 1.0]]), dim=1).requires_grad_()
    z = torch.nn.functional.normalize(torch.tensor([[1.0, 0.1], [0.3, 1.0], [0.7, 0.7]]), dim=1)
    slopes = []
    for row in range(2):
        alone = LabelPool(pool.labels, pool.positive[[row]], pool.right[[row]], pool.negative[[row]])
        leaf = z.clone().requires_grad_()
        torch.autograd.backward(pair_loss(x[[row]], leaf, alone, task))
        assert leaf.grad is not None
        slopes.append(float(leaf.grad[2].abs().sum()))
    assert slopes[0] == 0
    assert slopes[1] > 0


@pytest.mark.parametrize("start", [True, False])
def test_classifiers_start_from_label_texts(start: bool, planted: Dataset, tmp_path: Path) -> None:
    settings = ("train.epochs=1", "classify.epochs=0", "classify.count=5", f"classify.start={str(start).lower()}")
    ranker: Any = longtail.train(planted, tmp_path / "run", recipe("siamese", *settings), device="cpu").bundle.ranker
    towers: Any = load_part(tmp_path / "run" / "stages" / "1_surrogate")
    np.testing.assert_allclose(ranker.classifier.bias, -np.log(5), rtol=1e-6)
    assert np.allclose(ranker.classifier.rows, towers.labels / TwoTowersConfig().train.temperature) == start


@pytest.mark.parametrize("loss", ["triplet", "softmax", "logistic"])
def test_a_step_goes_down(loss: str, ready: TrainingSet) -> None:
    found = objective(ready, loss=loss, random=100)
    rows = np.arange(ready.n_documents)
    losses = [float(found.step(rows, np.random.default_rng(0), 0.01)) for _ in range(15)]
    assert losses[-1] < 0.8 * losses[0]


def test_documents_kept_apart_are_not_trained_on(ready: TrainingSet, monkeypatch: pytest.MonkeyPatch) -> None:
    held = np.arange(ready.n_documents) % 4 == 0
    found = objective(ready, heldout=held)
    assert found.size == int((~held).sum())
    seen: list[int] = []
    inner = found._pool

    def spy(rows: Any, rng: Any) -> Any:
        seen.extend(rows.tolist())
        return inner(rows, rng)

    monkeypatch.setattr(found, "_pool", spy)  # to see what is trained on
    found.step(np.arange(found.size), np.random.default_rng(0), 0.01)
    assert set(seen) == set(np.flatnonzero(~held).tolist())
    seen.clear()
    first = found.heldout_loss()
    assert set(seen) == set(np.flatnonzero(held).tolist())
    assert found.heldout_loss() == first
    assert found.encoder.training


@pytest.mark.parametrize("name", BASES)
def test_data_that_lacks_what_is_read_is_refused(name: str, planted: Dataset, tmp_path: Path) -> None:
    bare = with_digest(replace(planted, labels=replace(planted.labels, fields={})))
    with pytest.raises(DataError, match="finds labels by their text"):
        longtail.train(bare, tmp_path / "bare", recipe(name), device="cpu")
    vectors = np.ones((len(planted.train), 3), np.float32)
    dense = with_digest(
        replace(
            planted,
            train=replace(planted.train, documents=Items(planted.train.documents.uids, vectors=vectors)),
            test=None,
        )
    )
    with pytest.raises(ConfigError, match="reads words"):
        longtail.train(dense, tmp_path / "dense", recipe(name), device="cpu")
