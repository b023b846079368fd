"""The default recipe: what its rows are made of, and what lacking or strange data gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import eye_array

from longtail import api
from longtail.config import from_text
from longtail.data.dataset import Dataset, no_pairs
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import ConfigError
from longtail.evaluation import evaluate
from longtail.nn.encoders import BagSum
from longtail.recipes.direct import recipe as direct
from longtail.recipes.direct.anchors import AnchorsConfig, anchor_columns
from longtail.recipes.direct.recipe import (
    Direct,
    DirectConfig,
    default_epochs,
    default_rate,
    first_bias,
    propensity_weights,
    related_labels,
)
from longtail.training.prepare import prepare
from longtail.training.run import Run
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ("encoder.width=64", "train.epochs=10", "train.rate=0.02", "features.subwords=none", "features.pairs=false")


def recipe(*settings: str) -> Direct:
    return Direct(from_text(DirectConfig(), (*SMALL, *settings)))


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthesise(SyntheticConfig(documents=400, test_documents=200, labels=60, topics=6), 0).dataset


def trained(data: Dataset, folder: Path, *settings: str) -> Any:
    return evaluate(api.train(data, folder, recipe(*settings), device="cpu"), data)


def test_it_learns_and_label_text_helps_rare_labels(data: Dataset, tmp_path: Path) -> None:
    whole = trained(data, tmp_path / "whole")
    alone = trained(data, tmp_path / "alone", "labels.text=false")
    assert whole["P@1"] > 48
    assert whole["P@1"] > alone["P@1"] + 3
    assert whole["PSP@5"] > alone["PSP@5"]


@pytest.mark.parametrize(
    "settings",
    [
        ("labels.free=false",),
        ("labels.neighbours=true",),
        ("labels.documents=true",),
        ("encoder.signed=on",),
        ("train.softmax=true",),
        ("encoder.residual=false",),
        ("train.propensity=true", "train.smoothing=0.2", "encoder.token_dropout=0.2"),
        ("predict.index=hnsw",),
        ("ensemble.learners=2",),
        ("anchors.weight=0.5",),
        ("anchors.weight=0.5", "labels.text=false"),
        ("anchors.weight=0.5", "labels.neighbours=true", "labels.documents=true"),
        ("train.completion=0.3", "train.averaging=0.3"),
        ("train.completion=0.2", "train.smoothing=0.1", "train.softmax=true", "labels.documents=true"),
        ("anchors.weight=0",),
        ("labels.map=on", "features.damping=0"),
        ("labels.map=on", "encoder.signed=on", "labels.neighbours=true"),
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
            encoder = chosen.new_encoder(ready, run)
            texts = chosen.texts(ready, None, None, encoder)
        assert texts is not None
        return isinstance(encoder, BagSum), texts.map is not None

    assert ready.targets.nnz < direct._MANY_PAIRS
    assert made() == (False, False)
    assert made("encoder.signed=on") == (True, False)
    assert made("labels.map=on") == (False, True)
    monkeypatch.setattr(direct, "_MANY_PAIRS", ready.targets.nnz)
    assert made() == (True, True)
    assert made("encoder.signed=off") == (False, True)
    assert made("labels.map=off") == (True, False)
    monkeypatch.setattr(direct, "_MANY_PAIRS", ready.targets.nnz + 1)
    assert made() == (False, False)


def test_data_without_label_text(data: Dataset, tmp_path: Path) -> None:
    bare = replace(data, labels=replace(data.labels, fields={}))
    assert trained(bare, tmp_path / "run")["P@1"] > 20


def test_label_texts_become_documents_of_their_own_label(data: Dataset) -> None:
    ready = prepare(data, recipe().config.features)
    documents, targets, masked = recipe("labels.documents=true").examples(ready)
    assert ready.label_texts is not None
    assert ready.label_texts.sparse is not None
    with_text = np.flatnonzero(np.diff(ready.label_texts.sparse.indptr) > 0)
    assert len(documents) == targets.shape[0] == ready.n_documents + len(with_text)
    np.testing.assert_array_equal(targets[ready.n_documents :].indices, with_text)
    assert masked.shape == targets.shape
    assert len(recipe().examples(ready)[0]) == ready.n_documents


def test_related_labels_are_neither_right_nor_wrong_for_a_label_text(data: Dataset) -> None:
    """Document 0 is label 2 and has label 1; labels 0 and 1 are neighbours."""
    from scipy.sparse import csr_array

    ready = prepare(data, recipe().config.features)
    targets = csr_array(np.array([[0, 1, 0, 0]], np.float32))
    small = replace(ready, targets=targets, masked=np.array([[0, 2]]))
    graph = csr_array(np.array([[2, 1, 0, 0], [3, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32))
    found = related_labels(small, graph).toarray()
    np.testing.assert_array_equal(found, [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    assert related_labels(replace(small, masked=no_pairs()), None).nnz == 0


def test_masked_pairs_reach_the_objective(data: Dataset) -> None:
    ready = prepare(data, recipe().config.features)
    assert len(ready.masked), "the planted data has documents that are labels"
    masked = recipe().examples(ready)[2]
    np.testing.assert_array_equal(
        np.stack(masked[: ready.n_documents].nonzero(), axis=1),
        ready.masked[np.lexsort((ready.masked[:, 1], ready.masked[:, 0]))],
    )


def test_completion_adds_targets_but_none_to_masked_pairs(data: Dataset) -> None:
    ready = prepare(data, recipe().config.features)
    # Every pair that document 5 would get is masked, as the reverse of a known pair is.
    free = recipe("train.completion=0.4").examples(ready)[1][[5]]
    extra = free.indices[free.data < 1]
    assert len(extra)
    masked = replace(ready, masked=np.concatenate([ready.masked, np.stack([np.full(len(extra), 5), extra], axis=1)]))
    _, targets, hidden = recipe("train.completion=0.4").examples(masked)
    assert targets.multiply(hidden).nnz == 0
    assert (targets[[5]] != ready.targets[[5]]).nnz == 0
    assert targets.nnz > ready.targets.nnz
    assert targets.max() == 1
    given = ready.targets.astype(bool)
    assert (targets.multiply(given) != ready.targets).nnz == 0
    assert (targets - targets.multiply(given)).max() <= 0.4 + 1e-6
    # With both, a label has the higher target.
    graph = eye_array(ready.n_labels, dtype=np.float32, format="csr") + ready.targets.T @ ready.targets
    smoothed = recipe("train.smoothing=0.1").examples(masked, graph)[1]
    both = recipe("train.smoothing=0.1", "train.completion=0.4").examples(masked, graph)[1]
    np.testing.assert_array_equal(both.toarray(), np.maximum(smoothed.toarray(), targets.toarray()))
    more = recipe("train.completion=0.4", "train.completion_neighbours=50").examples(masked)[1]
    assert (more != targets).nnz > 0


def test_completion_and_vectors_need_words(data: Dataset, tmp_path: Path) -> None:
    ready = prepare(data, recipe().config.features)
    dense = replace(ready, documents=Batch(dense=np.ones((ready.n_documents, 3), np.float32)))
    with pytest.raises(ConfigError, match=r"train\.completion"):
        recipe("train.completion=0.4").examples(dense)
    no_words = prepare(data, recipe("features.words=false", "features.pairs=true").config.features)
    with Run.open(tmp_path / "run", {}, seed=0, device="cpu") as run:
        for other in (dense, no_words):
            with pytest.raises(ConfigError, match=r"encoder\.vectors"):
                recipe("encoder.vectors=words.vec").new_encoder(other, run)


@pytest.mark.parametrize("dim", [5, 16, 40])
def test_known_words_begin_with_their_vectors_and_others_as_before(dim: int, data: Dataset, tmp_path: Path) -> None:
    ready = prepare(data, recipe("features.pairs=true").config.features)
    features: Any = ready.featurizer
    known = list(features.word_range)[::3]
    vectors = np.random.default_rng(0).standard_normal((len(known), dim)).astype(np.float32) * 7
    lines = [
        f"{features.token(row)} {' '.join(f'{x:.6g}' for x in vector)}"
        for row, vector in zip(known, vectors, strict=True)
    ]
    (tmp_path / "words.vec").write_text(f"{len(lines)} {dim}\n" + "\n".join(reversed(lines)) + "\n")
    with Run.open(tmp_path / "run", {}, seed=0, device="cpu") as run:
        plain: Any = recipe().new_encoder(ready, run)
        begun: Any = recipe(f"encoder.vectors={tmp_path / 'words.vec'}").new_encoder(ready, run)
        others = np.setdiff1d(np.arange(features.width), known)
        table = begun.table.weight.detach().numpy()
        np.testing.assert_array_equal(table[others], plain.table.weight.detach().numpy()[others])
        np.testing.assert_allclose(np.linalg.norm(table[known], axis=1), 1, rtol=1e-5)
        cosines = vectors @ vectors.T / np.outer(*[np.linalg.norm(vectors, axis=1)] * 2)
        if dim <= 16:
            np.testing.assert_allclose(table[known] @ table[known].T, cosines, atol=1e-4)
        else:
            assert np.corrcoef((table[known] @ table[known].T).ravel(), cosines.ravel())[0, 1] > 0.5
        assert run.folder.joinpath("metrics.jsonl").read_text().count(f'"found": {len(known)}') == 1


def test_vectors_train(data: Dataset, tmp_path: Path) -> None:
    words: Any = prepare(data, recipe().config.features).featurizer
    vectors = np.random.default_rng(0).standard_normal((words.width, 16)).tolist()
    (tmp_path / "words.vec").write_text(
        "\n".join(" ".join([words.token(row), *map(str, vectors[row])]) for row in words.word_range)
    )
    assert trained(data, tmp_path / "run", f"encoder.vectors={tmp_path / 'words.vec'}")["P@1"] > 20


def test_an_average_takes_memory(data: Dataset) -> None:
    ready = prepare(data, recipe().config.features)
    more = recipe("train.averaging=0.2", "anchors.weight=0").memory(ready) - recipe("anchors.weight=0").memory(ready)
    assert more == 4 * 64 * (ready.featurizer.width + ready.n_labels)


def test_trust_grows_with_the_documents_of_a_label(data: Dataset) -> None:
    ready = prepare(data, recipe().config.features)
    counts, trust = ready.label_counts(), recipe("labels.trust=3").trust(ready)[:, 0].numpy()
    np.testing.assert_allclose(trust, counts / (counts + 3), rtol=1e-6)
    assert np.all(recipe("labels.trust=0").trust(ready).numpy() == 1)
    assert np.all(recipe("labels.free=false").trust(ready).numpy() == 0)
    # without text there is nothing else to trust
    assert np.all(recipe("labels.free=false").trust(replace(ready, label_texts=None)).numpy() == 1)


def test_anchors_are_labels_in_training_and_gone_at_prediction(data: Dataset, tmp_path: Path) -> None:
    ready = prepare(data, recipe().config.features)
    anchors = anchor_columns(ready, AnchorsConfig(weight=0.5))
    assert anchors is not None
    documented = recipe("labels.documents=true")
    plain, with_anchors = documented.examples(ready), documented.examples(ready, None, anchors)
    labels, documents = ready.n_labels, ready.n_documents
    assert len(with_anchors[0]) == len(plain[0])
    assert with_anchors[1].shape == with_anchors[2].shape == (len(plain[0]), labels + anchors.count)
    assert (with_anchors[1][:, :labels] != plain[1]).nnz == (with_anchors[2][:, :labels] != plain[2]).nnz == 0
    assert (with_anchors[1][:documents, labels:] != anchors.documents).nnz == 0
    assert with_anchors[1][documents:, labels:].sum() == anchors.labels.sum() > 0
    twins = replace(anchors, own_documents=anchors.documents, own_labels=anchors.labels)
    hidden = documented.examples(ready, None, twins)[2]
    assert (hidden[:documents, labels:] != anchors.documents).nnz == 0
    assert hidden[documents:, labels:].sum() == anchors.labels.sum()
    trust = recipe("labels.trust=2").trust(ready, anchors)[labels:, 0].numpy()
    degree = np.asarray(anchors.documents.sum(axis=0)).ravel()
    np.testing.assert_allclose(trust, degree / (degree + 2), rtol=1e-6)
    with Run.open(tmp_path / "weights", {}, seed=0, device="cpu") as run:
        weights = recipe("anchors.weight=0.5").weights(ready, anchors, run)
        assert recipe().weights(ready, None, run) is None
        propensity = recipe("anchors.weight=0.5", "train.propensity=true").weights(ready, anchors, run)
    assert weights is not None
    np.testing.assert_array_equal(weights.numpy(), [1.0] * labels + [0.5] * anchors.count)
    assert propensity is not None
    np.testing.assert_allclose(propensity.numpy(), [*propensity_weights(ready), *[0.5] * anchors.count], rtol=1e-6)
    ranker: Any = api.train(data, tmp_path / "run", recipe("anchors.weight=0.5"), device="cpu").bundle.ranker
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
        near = recipe("labels.neighbours=true", no_heads)
        assert near.label_graph(replace(ready, targets=lonely), run) is None
        assert near.label_graph(ready, run) is not None
        assert near.label_graph(replace(ready, label_texts=None), run) is None
        assert recipe("labels.documents=true", no_heads).label_graph(ready, run) is not None
        assert recipe("train.smoothing=0.1", no_heads).label_graph(replace(ready, label_texts=None), run) is not None
        assert recipe(no_heads).label_graph(ready, run) is None, "nothing asks for it"


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
