"""The default recipe: what its rows are made of, and what lacking or strange data gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail.config import from_text
from longtail.data.dataset import Dataset
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.evaluation import evaluate
from longtail.nn.encoders import BagSum
from longtail.recipes.direct import settings as direct
from longtail.recipes.direct.network import free_shares, new_encoder, text_rows
from longtail.recipes.direct.objective import TextRows, anchor_columns, anchor_weights, first_bias
from longtail.recipes.direct.recipe import Direct
from longtail.recipes.direct.settings import AnchorsConfig, DirectConfig, default_epochs, default_rate
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")

# Without what helps rare labels in other ways.
PLAIN = ("memory.weight=0", "train.smoothing=0", "anchors.weight=1")
SMALL = ("encoder.width=64", "train.epochs=10", "train.rate=0.02", "features.subwords=none", "features.pairs=false")


def recipe(*settings: str) -> Direct:
    return Direct(from_text(DirectConfig(), (*SMALL, *settings)))


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthesise(SyntheticConfig(documents=400, test_documents=200, labels=60, topics=6), 0).dataset


def trained(data: Dataset, folder: Path, *settings: str) -> Any:
    return evaluate(longtail.train(data, folder, recipe(*settings), device="cpu"), data)


def test_it_learns_and_label_text_helps_rare_labels(data: Dataset, tmp_path: Path) -> None:
    whole = trained(data, tmp_path / "whole", *PLAIN)
    alone = trained(data, tmp_path / "alone", *PLAIN, "labels.text=false")
    assert whole["P@1"] > 48
    assert whole["P@1"] > alone["P@1"] + 3
    assert whole["PSP@5"] > alone["PSP@5"]


@pytest.mark.parametrize(
    "settings",
    [
        ("labels.free=false",),
        ("encoder.signed=on",),
        ("encoder.residual=false",),
        ("train.smoothing=0.2", "encoder.token_dropout=0.2"),
        ("predict.index=hnsw",),
        ("ensemble.learners=2",),
        ("anchors.weight=0.5",),
        ("anchors.weight=0.5", "labels.text=false"),
        ("anchors.weight=0.5", "train.smoothing=0.1"),
        ("anchors.weight=0",),
        ("train.self_pairs=1", "memory.weight=0"),
        ("labels.map=on", "features.damping=0"),
        ("labels.map=on", "encoder.signed=on"),
        ("train.rows=sgd", "train.words=light", "labels.map=on", "encoder.signed=on", "train.together=2"),
        ("train.rows=sgd", "labels.text=false", "anchors.weight=0.5"),
        ("train.rows=factored", "labels.map=on", "encoder.signed=on"),
    ],
    ids=" ".join,
)
def test_every_setting_trains(settings: tuple[str, ...], data: Dataset, tmp_path: Path) -> None:
    assert trained(data, tmp_path / "run", *settings)["P@1"] > 40


def test_what_needs_many_pairs_is_learnt_from_many(
    data: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The matrix for label texts, and vectors with either sign: by default with enough pairs of a document and a
    label, else where asked for.
    """
    ready = prepare(data, recipe().config.features)

    def made(*settings: str) -> tuple[bool, bool]:
        with Run.open(tmp_path / f"run{len(list(tmp_path.iterdir()))}", {}, device="cpu") as run:
            chosen = recipe(*settings)
            encoder = new_encoder(chosen.config.encoder, ready, run)
            assert ready.label_texts is not None
            texts = text_rows(chosen.config.labels, ready, ready.label_texts.sparse, encoder)
        assert isinstance(texts, TextRows)
        return isinstance(encoder, BagSum), texts.map is not None

    assert ready.targets.nnz < direct.MANY_PAIRS
    assert made() == (False, False)
    assert made("encoder.signed=on") == (True, False)
    assert made("labels.map=on") == (False, True)
    monkeypatch.setattr(direct, "MANY_PAIRS", ready.targets.nnz)
    assert made() == (True, True)
    assert made("encoder.signed=off") == (False, True)
    assert made("labels.map=off") == (True, False)
    monkeypatch.setattr(direct, "MANY_PAIRS", ready.targets.nnz + 1)
    assert made() == (False, False)


def test_data_without_label_text(data: Dataset, tmp_path: Path) -> None:
    bare = replace(data, labels=replace(data.labels, fields={}))
    assert trained(bare, tmp_path / "run")["P@1"] > 20


def test_other_names_that_a_vocabulary_gives_are_part_of_label_text(data: Dataset) -> None:
    names = {**data.labels.fields, "other_names": ["zebra"] * len(data.labels)}
    vocabulary = replace(data, labels=replace(data.labels, fields=names))

    def words(given: Dataset, config: DirectConfig) -> int:
        texts = prepare(given, config.features).label_texts
        assert texts is not None
        assert texts.sparse is not None
        return int(texts.sparse.nnz)

    default, title_alone = recipe().config, recipe("features.other_names=0").config
    assert words(vocabulary, default) == words(data, default) + len(data.labels)
    assert words(vocabulary, title_alone) == words(data, default)


def test_concepts_without_documents_are_found_by_their_text(tmp_path: Path) -> None:
    (tmp_path / "v.tsv").write_text("<http://e.org/1>\tbees\n<http://e.org/2>\troses\n<http://e.org/3>\tmoon rocks\n")
    rows = ["__label__bees bees and honey", "__label__roses roses and rain", "__label__roses rocks with roses"] * 20
    (tmp_path / "d.ft").write_text("\n".join(rows))
    (tmp_path / "t.ft").write_text("__label__bees honey bees\n__label__http://e.org/3 moon rocks\n__label__other x\n")

    def corpus(test_file: Path | None) -> Dataset:
        return longtail.read(tmp_path / "d.ft", test_file=test_file, vocabulary=tmp_path / "v.tsv", unknown="drop")

    model = longtail.train(corpus(None), tmp_path / "run", recipe(), device="cpu")
    found = model.predict(["a moon rock, moon rocks"], k=3)[0]
    assert {label.label for label in found} == {f"http://e.org/{number}" for number in (1, 2, 3)}
    result = evaluate(model, corpus(tmp_path / "t.ft"))
    assert result["n_test"] == 2, "the document of an unknown label alone is no miss"
    assert result["R@10"] == 100


def test_masked_pairs_reach_the_objective(data: Dataset) -> None:
    ready = prepare(data, recipe().config.features)
    assert len(ready.masked), "the planted data has documents that are labels"
    masked = recipe().targets(ready)[1]
    np.testing.assert_array_equal(
        np.stack(masked[: ready.n_documents].nonzero(), axis=1),
        ready.masked[np.lexsort((ready.masked[:, 1], ready.masked[:, 0]))],
    )


def test_trust_grows_with_the_documents_of_a_label(data: Dataset) -> None:
    ready = prepare(data, recipe().config.features)

    def shares(setting: str, data: TrainingSet = ready) -> Any:
        return free_shares(recipe(setting).config.labels, data, None, None)[:, 0].numpy()

    counts = ready.label_counts()
    np.testing.assert_allclose(shares("labels.trust=3"), counts / (counts + 3), rtol=1e-6)
    assert np.all(shares("labels.trust=0") == 1)
    assert np.all(shares("labels.free=false") == 0)
    # without text there is nothing else to trust
    assert np.all(shares("labels.free=false", replace(ready, label_texts=None)) == 1)


def test_anchors_are_labels_in_training_and_gone_at_prediction(data: Dataset, tmp_path: Path) -> None:
    ready = prepare(data, recipe().config.features)
    anchors = anchor_columns(ready, AnchorsConfig(weight=0.5))
    assert anchors is not None
    plain, with_anchors = recipe().targets(ready), recipe().targets(ready, None, anchors)
    labels, documents = ready.n_labels, ready.n_documents
    assert with_anchors[0].shape == with_anchors[1].shape == (documents, labels + anchors.count)
    assert (with_anchors[0][:, :labels] != plain[0]).nnz == (with_anchors[1][:, :labels] != plain[1]).nnz == 0
    assert (with_anchors[0][:, labels:] != anchors.documents).nnz == 0
    twins = replace(anchors, own_documents=anchors.documents)
    hidden = recipe().targets(ready, None, twins)[1]
    assert (hidden[:, labels:] != anchors.documents).nnz == 0
    trust = free_shares(recipe("labels.trust=2").config.labels, ready, anchors, None)[labels:, 0].numpy()
    degree = np.asarray(anchors.documents.sum(axis=0)).ravel()
    np.testing.assert_allclose(trust, degree / (degree + 2), rtol=1e-6)
    weights = anchor_weights(labels, anchors, 0.5, "cpu")
    assert anchor_weights(labels, None, 0.5, "cpu") is None
    assert weights is not None
    np.testing.assert_array_equal(weights.numpy(), [1.0] * labels + [0.5] * anchors.count)
    ranker: Any = longtail.train(data, tmp_path / "run", recipe("anchors.weight=0.5"), device="cpu").bundle.ranker
    assert ranker.index.vectors.shape[0] == labels


def test_no_graph_where_labels_never_occur_together(data: Dataset, tmp_path: Path) -> None:
    ready = prepare(data, recipe().config.features)
    single = ready.targets.copy()
    first = single.indptr[:-1]
    lonely = type(single)(
        (np.ones(len(first), np.float32), single.indices[first], np.arange(len(first) + 1)), shape=single.shape
    )
    with Run.open(tmp_path / "run", {}, seed=0, device="cpu") as run:
        no_heads = "labels.graph.head_documents=1000"
        near = recipe("train.smoothing=0.1", no_heads)
        assert near.label_graph(replace(ready, targets=lonely), run) is None
        assert near.label_graph(ready, run) is not None
        assert near.label_graph(replace(ready, label_texts=None), run) is not None
        assert recipe("train.smoothing=0", no_heads).label_graph(ready, run) is None, "nothing asks for it"


def test_epochs_follow_from_the_number_of_documents() -> None:
    assert [default_epochs(n) for n in (10, 12_394, 80_657, 505_916, 10**8)] == [60, 60, 25, 10, 8]
    assert [round(default_rate(n, 10**6), 4) for n in (10, 25_000, 100_000, 400_000, 10**8)] == [
        0.0005,
        0.0005,
        0.001,
        0.002,
        0.0025,
    ]
    assert [default_rate(25_000, steps) for steps in (10, 1000, 10_000)] == [0.004, 0.002, 0.0005], (
        "a short training takes longer steps"
    )


def test_first_bias_is_the_logit_of_the_average_label(data: Dataset) -> None:
    targets = prepare(data, recipe().config.features).targets
    share = targets.nnz / (targets.shape[0] * targets.shape[1])
    assert 1 / (1 + np.exp(-float(first_bias(targets)))) == pytest.approx(share, rel=1e-5)
