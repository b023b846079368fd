"""What `direct` remembers: votes against a naive loop, the fused score by its formula, and its borders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import longtail
from longtail.config import from_text
from longtail.data.dataset import Dataset
from longtail.models.rankers import IndexedRows
from longtail.packing import pack
from longtail.persistence import load_part, save_part
from longtail.predictor import Predictor
from longtail.recipes.direct import kernels
from longtail.recipes.direct.memory import Memory, RememberingRows, remembered
from longtail.recipes.direct.recipe import Direct
from longtail.recipes.direct.settings import FEWEST_COMMON, DirectConfig, MemoryConfig
from longtail.search.nearest import Inverted, lists
from longtail.training.prepare import prepare
from longtail.types import F32, Batch, Csr

pytestmark = pytest.mark.usefixtures("one_thread")


def memory(config: MemoryConfig) -> Memory:
    """50 documents of 30 words and 12 labels; few different values, so that ties are common."""
    rng = np.random.default_rng(3)
    documents = csr_array(random_array((50, 30), density=0.15, rng=rng, dtype=np.float32))
    documents.data = np.ceil(documents.data * 3).astype(np.float32) / 4
    targets = csr_array(random_array((50, 12), density=0.2, rng=rng, dtype=np.float32))
    targets.data[:] = 1
    counts = np.bincount(targets.indices, minlength=12)
    rarity = ((counts + 1.0) ** -config.rarity).astype(np.float32)
    return Memory(documents, targets, Inverted.of(documents), rarity, config)


def naive_votes(memory: Memory, queries: Csr) -> F32:
    """(B, L), by dense algebra."""
    words = memory.documents.shape[1]
    found = []
    for query in queries.toarray()[:, :words]:
        similarity = memory.documents.toarray() @ query
        near = sorted(range(len(similarity)), key=lambda row: (-similarity[row], row))[: memory.config.neighbours]
        weights = {row: similarity[row] ** 2 for row in near if similarity[row] > 0}
        votes = sum((weight * memory.targets.toarray()[row] for row, weight in weights.items()), np.zeros(12))
        found.append(memory.rarity * votes / max(sum(weights.values()), 1e-30))
    return np.array(found, dtype=np.float32)


@pytest.mark.parametrize("neighbours", [1, 5, 1000])
def test_votes_are_those_of_a_plain_loop(neighbours: int) -> None:
    kept = memory(MemoryConfig(neighbours=neighbours))
    rng = np.random.default_rng(4)
    # Wider than the memory: pairs and characters stand behind the words, and are not looked at.
    queries = csr_array(random_array((40, 45), density=0.2, rng=rng, dtype=np.float32))
    queries.sort_indices()
    ids = np.stack([rng.permutation(12)[:7] for _ in range(40)]).astype(np.int32)
    ids[::3, -1] = -1
    got = kept.votes(Batch(sparse=queries), ids)
    wanted = np.take_along_axis(naive_votes(kept, queries), np.maximum(ids, 0), axis=1) * (ids >= 0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert got.any()


def trained(data: Dataset, folder: Path, *settings: str) -> Predictor:
    small = ("encoder.width=16", "train.epochs=3", "features.subwords=none", *settings)
    return longtail.train(data, folder, Direct(from_text(DirectConfig(), small)), device="cpu")


@pytest.fixture(scope="module")
def model(planted: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return trained(planted, tmp_path_factory.mktemp("memory") / "run", "memory.depth=5")


def test_scores_are_the_formula(model: Predictor, planted: Dataset) -> None:
    ranker: Any = model.bundle.ranker
    assert isinstance(ranker, RememberingRows)
    batch = model.batch(planted.need_test().documents)
    plain = IndexedRows(ranker.encoder, ranker.refinement, ranker.index).rank(batch, 12)
    votes = ranker.memory.votes(batch, plain.ids)
    votes[:, 5:] = 0
    fused = ((np.sqrt(plain.scores) + 0.6 * votes) / 1.6) ** 2
    top = ranker.rank(batch, 12)
    for row in range(len(batch)):
        wanted = sorted(zip(-fused[row], plain.ids[row], strict=True))
        assert top.ids[row].tolist() == [int(label) for _, label in wanted]
        np.testing.assert_allclose(top.scores[row], [-score for score, _ in wanted], rtol=1e-5)
    assert (top.ids[:, 0] != plain.ids[:, 0]).any(), "votes change nothing"


def test_what_is_best_does_not_depend_on_how_many_are_asked_for(model: Predictor, planted: Dataset) -> None:
    batch = model.batch(planted.need_test().documents)
    whole = model.bundle.ranker.rank(batch, 12)
    for k in (1, 3, 8):
        some = model.bundle.ranker.rank(batch, k)
        np.testing.assert_array_equal(some.ids, whole.ids[:, :k])
        np.testing.assert_array_equal(some.scores, whole.scores[:, :k])


def test_its_reasons_and_scores_of_single_labels_are_those_of_its_ranking(model: Predictor, planted: Dataset) -> None:
    ranker: Any = model.bundle.ranker
    batch = model.batch(planted.need_test().documents)
    top = ranker.rank(batch, 12)
    np.testing.assert_allclose(ranker.scores_of(batch, top.ids, 12), top.scores, rtol=1e-4, atol=1e-6)
    reasons = ranker.explain(batch, top.ids)
    np.testing.assert_allclose(reasons.scores, top.scores, rtol=1e-4, atol=1e-6)
    (votes,) = reasons.terms.values()
    assert votes.any()
    by_formula = ((np.sqrt(1 / (1 + np.exp(-reasons.totals))) + votes) / 1.6) ** 2
    np.testing.assert_allclose(by_formula, top.scores, rtol=1e-4, atol=1e-6)


def test_a_document_of_training_is_remembered(planted: Dataset, tmp_path: Path) -> None:
    """By a model that has hardly learnt anything."""
    text = planted.train.documents.fields["title"][0]
    known = {planted.labels.uids[label] for label in planted.train.rows(np.array([0])).targets.indices}
    settings = ("train.epochs=1", "train.rate=0.000001", "memory.neighbours=1", "memory.weight=100")
    remembers = trained(planted, tmp_path / "run", *settings)
    assert {found.label for found in remembers.predict([text], k=len(known))[0]} == known


def test_of_a_text_without_known_words_nothing_is_said(model: Predictor) -> None:
    assert model.predict(["zzzz qqqq"], k=3) == [[]]


def test_what_was_made_and_what_was_opened_share_one_machine_code(model: Predictor, planted: Dataset) -> None:
    """One kind of arrays is read-only; to compile for each mix of both would take many seconds more."""
    vote: Any = kernels.votes_for
    kept, opened = memory(MemoryConfig()), cast(Any, model.bundle.ranker).memory
    kept.votes(Batch(sparse=kept.documents), np.zeros((50, 1), np.int32))
    compiled = len(vote.signatures)
    batch = model.batch(planted.need_test().documents)
    opened.votes(batch, np.zeros((len(batch), 1), np.int32))
    assert len(vote.signatures) == compiled


def test_it_is_saved_packed_and_switched_off(model: Predictor, planted: Dataset, tmp_path: Path) -> None:
    batch = model.batch(planted.need_test().documents)
    ranker: Any = model.bundle.ranker
    save_part(ranker, tmp_path / "part")
    again = load_part(tmp_path / "part").rank(batch, 5)
    np.testing.assert_array_equal(again.ids, ranker.rank(batch, 5).ids)
    pack(model.bundle.folder, tmp_path / "packed")
    packed: Any = Predictor.open(tmp_path / "packed").bundle.ranker
    assert isinstance(packed, RememberingRows)
    # A label at the edge of what is voted on may fall on either side of it.
    apart = np.abs(packed.rank(batch, 5).scores - ranker.rank(batch, 5).scores)
    assert np.mean(apart < 0.003) > 0.95
    assert type(trained(planted, tmp_path / "off", "memory.weight=0").bundle.ranker) is IndexedRows


def test_frequent_words_do_not_count() -> None:
    texts = [f"often word{number // 2}" for number in range(FEWEST_COMMON + 10)]
    data = Dataset.from_texts(texts, [[f"label{number // 2}"] for number in range(len(texts))])
    kept = remembered(prepare(data, DirectConfig().features), MemoryConfig(most=0.0))
    everything = remembered(prepare(data, DirectConfig().features), MemoryConfig(most=1.0))
    assert kept is not None
    assert everything is not None
    assert set(np.diff(kept.documents.indptr)) == {1}
    assert set(np.diff(everything.documents.indptr)) == {2}
    np.testing.assert_allclose(kept.documents.data, 1, rtol=1e-6)


def test_shapes_that_do_not_fit_are_refused() -> None:
    kept = memory(MemoryConfig())
    with pytest.raises(ValueError, match="of others"):
        replace(kept, targets=kept.targets[:-1])
    for broken in (
        replace(kept.inverse, heaviest=kept.inverse.heaviest[:5]),
        replace(kept.inverse, postings=kept.inverse.postings[:-1]),
        replace(kept.inverse, non_negative=False),
    ):
        with pytest.raises(ValueError, match="of others"):
            replace(kept, inverse=broken)


def test_votes_for_other_labels_than_those_of_the_rows_are_refused(model: Predictor) -> None:
    ranker: Any = model.bundle.ranker
    fewer = replace(ranker.memory, targets=ranker.memory.targets[:, :-1], rarity=ranker.memory.rarity[:-1])
    with pytest.raises(ValueError, match="rows of 12 labels, and votes for 11"):
        replace(ranker, memory=fewer)


def test_a_prediction_copies_nothing_of_the_memory(model: Predictor) -> None:
    opened: Any = Predictor.open(model.bundle.folder).bundle.ranker
    for matrix in (opened.memory.documents, opened.memory.targets, opened.memory.inverse.postings):
        for ours, theirs in zip(lists(matrix), (matrix.indptr, matrix.indices, matrix.data), strict=True):
            assert np.shares_memory(ours, theirs)
