"""What every trained model promises, whatever recipe and settings made it. A new ranker joins by one line in
`VARIANTS`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.claims.all_labels import exhaustive
from scipy.sparse import csr_array
from tests.checkpoints import write_checkpoint
from tests.conftest import ANIMALS

import longtail
from longtail import labels as changes
from longtail.calibrating import calibrate
from longtail.config import from_text
from longtail.data.dataset import Dataset, Items, Split
from longtail.data.from_texts import with_digest
from longtail.errors import ConfigError
from longtail.explanation import Explanation
from longtail.features.base import is_sparse
from longtail.kernels.arrays import pieces
from longtail.models.rankers import ClusterModel, Ensemble, IndexedRows, Model
from longtail.persistence import State, load_part, save_part
from longtail.predictor import Predictor
from longtail.recipes import RECIPES, recipe_class
from longtail.recipes.astec.ranker import EncodedTree, Reranked
from longtail.recipes.base import Recipe
from longtail.recipes.direct.memory import RememberingRows
from longtail.recipes.galaxc.ranker import JointGraphModel
from longtail.recipes.galaxc.settings import PAPER
from longtail.recipes.gnnxml.ranker import KeygraphModel
from longtail.search.index import ExactIndex
from longtail.search.nearest import NearestDocuments
from longtail.search.packed import PackedIndex, PackedRows, PackedType
from longtail.search.shortlist import ClusterBeam, merged, voted
from longtail.types import Batch, Ranker, TopK

# Shortlists of 5 of the 12 labels, and a re-ranker that looks at 3 of them: every cut is met.
SMALL = (
    "surrogate.width=8",
    "surrogate.epochs=2",
    "shortlist.size=5",
    "shortlist.neighbours=4",
    "classify.epochs=2",
    "classify.count=4",
    "classify.random=2",
    "reranker.enabled=false",
    "reranker.epochs=2",
    "reranker.depth=3",
    "tree.leaf_size=4",
    "tree.beam=1",
)


@dataclass(frozen=True)
class Variant:
    """A recipe with settings as ``a.b=c``, and how documents come: as text, also with graphs, or as dense or sparse
    vectors.

    CHECKPOINT in settings is the folder of a small pretrained transformer.
    """

    recipe: str
    settings: tuple[str, ...]
    documents: str = "text"

    def make(self) -> Recipe:
        cls = recipe_class(self.recipe)
        return cls(from_text(cls.CONFIG(), self.settings))


# Every label of the planted data would be a head, and GAME would do nothing.
GAME = ("game.enabled=true", "graph.head_documents=1000")


def astec(*settings: str, documents: str = "text") -> Variant:
    return Variant("astec", (*SMALL, *settings), documents)


def eclare(*settings: str, documents: str = "text") -> Variant:
    """One of the two clusters of 6 labels is the shortlist."""
    small = (
        "surrogate.width=8",
        "surrogate.epochs=2",
        "surrogate.labels_per_cluster=4",
        "shortlist.epochs=2",
        "shortlist.beam=1",
        "classify.epochs=2",
        "graph.head_documents=1000",
    )
    return Variant("eclare", (*small, *settings), documents)


def galaxc(*settings: str, documents: str = "text") -> Variant:
    small = (
        "astec.width=8",
        "astec.epochs=2",
        "surrogate.epochs=2",
        "surrogate.halve_at=1",
        "surrogate.random=4",
        "shortlist.size=5",
        "shortlist.voters=5",
        "classify.epochs=2",
        "classify.count=4",
        "classify.per_document=2",
    )
    return Variant("galaxc", (*small, *settings), documents)


def gnnxml(*settings: str) -> Variant:
    """Two of the four clusters of 12 labels are the shortlist."""
    small = (
        "features.keygraph.width=8",
        "matcher.width=6",
        "matcher.epochs=2",
        "clusters.count=4",
        "rankers.beam=2",
        "rankers.mistakes=1",
    )
    return Variant("gnnxml", (*small, *settings))


def towers(recipe: str, *settings: str) -> Variant:
    small = (
        "encoder.width=8",
        "train.epochs=3",
        "train.refresh=1",
        "train.mined=3",
        "classify.epochs=2",
        "classify.size=5",
        "classify.count=4",
    )
    return Variant(recipe, (*small, *settings), "graphs" if recipe == "ramen" else "text")


VARIANTS = {
    "tiny": Variant("tiny", ("classify.neighbours=3",)),
    "tiny-dense": Variant("tiny", ("classify.neighbours=3",), "dense"),
    "direct": Variant("direct", ("encoder.width=8", "train.epochs=2")),
    "direct-hnsw": Variant("direct", ("encoder.width=8", "train.epochs=2", "predict.index=hnsw")),
    "direct-dense": Variant("direct", ("encoder.width=8", "train.epochs=2"), "dense"),
    "astec": astec(),
    "reranked": astec("reranker.enabled=true"),
    "ensemble": astec("ensemble.learners=2"),
    "ensemble-reranked": astec("ensemble.learners=2", "reranker.enabled=true"),
    "slice": astec("classify.learner=slice"),
    "dismec": astec("classify.learner=dismec"),
    "parabel": astec("classify.learner=parabel"),
    "parabel-game": astec("classify.learner=parabel", *GAME),
    "surrogate": astec("classify.learner=surrogate"),
    "clusters": astec("shortlist.structures=clusters"),
    "clusters-game": astec("shortlist.structures=clusters", "reranker.enabled=true", *GAME),
    "mlp": astec("surrogate.encoder=mlp"),
    # Trained for longer: after two epochs its shortlists hang by a thread, and rounding of any kind changes a third
    # of them.
    "cnn": astec("surrogate.encoder=cnn", "features.max_tokens=6", "surrogate.epochs=10", "classify.epochs=6"),
    "dense": astec(documents="dense"),
    "sparse-vectors": astec(documents="sparse"),
    "hnsw": astec("shortlist.index=hnsw"),
    "labels": astec("shortlist.structures=labels"),
    "several-centres": astec("shortlist.head_labels=5", "shortlist.head_centres=3"),
    "documents": astec("shortlist.structures=documents"),
    "uniform": astec("classify.negatives=uniform"),
    "unigram": astec("classify.negatives=unigram"),
    "inbatch": astec("classify.negatives=inbatch"),
    "full": astec("classify.negatives=full"),
    "label_selection": astec("surrogate.task=label_selection"),
    "random": astec("surrogate.task=random"),
    "unsupervised": astec("surrogate.task=unsupervised"),
    "eclare": eclare(),
    "eclare-mixed": eclare("game.mix=0.5", "game.transpose=true", "game.clusters=both"),
    "eclare-ensemble": eclare("ensemble.learners=2"),
    "eclare-sparse-vectors": eclare(documents="sparse"),
    "decaf": eclare(
        "composition.graph=none",
        "composition.mix=shared",
        "surrogate.augmented=false",
        "game.enabled=false",
        "transfer.start=text",
    ),
    "plain-blocks": astec("surrogate.block=full", "transfer.block=none"),
    "galaxc": galaxc(),
    "galaxc-no-votes": galaxc("shortlist.voters=0", "classify.epochs=0"),
    "galaxc-paper": galaxc(
        *(s for s in PAPER if not any(size in s for size in ("surrogate.epochs", "halve", "width", "batch")))
    ),
    "galaxc-votes": galaxc("shortlist.gamma=0.3", "shortlist.reserved=0.2", "graph.identity=train+test"),
    "galaxc-no-attention": galaxc(
        "surrogate.attention=none", "hops.mean=true", "hops.pad=false", "shortlist.balanced=false"
    ),
    "galaxc-global": galaxc("surrogate.attention=global", "shortlist.space=transformed", "hops.sampling=fixed"),
    "galaxc-all-neighbours": galaxc("hops.sampling=full", "hops.predict=full", "surrogate.mask_target_edges=0"),
    "galaxc-gin": galaxc("hops.encoder=gin"),
    "galaxc-sage": galaxc("hops.encoder=sage", "hops.fanouts=3,2"),
    "galaxc-links": galaxc("hops.encoder=sage", "surrogate.head=links", "classify.epochs=0"),
    "galaxc-hnsw": galaxc("shortlist.index=hnsw"),
    "galaxc-dense": galaxc(documents="dense"),
    "gnnxml": gnnxml("rankers.reads=both"),
    "gnnxml-ensemble": gnnxml("ensemble.learners=2"),
    "gnnxml-conventional": gnnxml(
        "matcher.branches=conventional", "matcher.concat=false", "rankers.reads=graph", "clusters.partition=random"
    ),
    "ance": towers("ance"),
    "ance-hnsw": towers("ance", "predict.index=hnsw"),
    "ngame": towers("ngame"),
    "ngame-random-start": towers("ngame", "classify.start=false", "classify.random=0"),
    "dexml": towers("dexml", "train.random=0"),
    "siamese": towers("siamese"),
    "siamese-ensemble": towers("siamese", "ensemble.learners=2"),
    "ramen": towers("ramen", "regularise.warm_up=1", "regularise.every=1", "bandit.block=3"),
    "ramen-ngame": towers("ramen", "base=ngame", "regularise.prune=inbatch", "graphs.completion=none"),
    "ramen-dexml": towers("ramen", "base=dexml", "bandit.reward=heldout", "bandit.block=3"),
    "ramen-siamese": towers("ramen", "base=siamese", "bandit.enabled=false"),
    "ramen-eclare": towers(
        "ramen",
        "base=eclare",
        "eclare.surrogate.width=8",
        "eclare.surrogate.epochs=2",
        "eclare.shortlist.beam=1",
        "bandit.block=3",
    ),
    "ance-transformer": towers("ance", "features.checkpoint=CHECKPOINT", "features.length=8", "encoder.rate=0.01"),
    "ramen-transformer": towers(
        "ramen", "base=ngame", "features.checkpoint=CHECKPOINT", "features.length=8", "encoder.rate=0.01"
    ),
}


class Keeping:
    """A recipe that also keeps what its last stage made, as it was before it was saved."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.made: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recipe, name)

    def classify(self, *arguments: Any) -> Any:
        self.made.append(self.recipe.classify(*arguments))
        return self.made[-1]


@dataclass(frozen=True)
class Trained:
    """A finished run, the model before it was saved, and documents to ask about."""

    variant: Variant
    data: Dataset
    run: Path
    unsaved: Ranker
    queries: Items

    @cached_property
    def bundle(self) -> Any:
        return Predictor.open(self.run).bundle

    @cached_property
    def batch(self) -> Batch:
        batch: Batch = self.bundle.featurizer.batch(self.queries)
        return batch

    @property
    def n_labels(self) -> int:
        return len(self.data.labels)

    def rank(self, k: int, rows: Any = slice(None)) -> TopK:
        top: TopK = self.bundle.ranker.rank(self.batch.rows(rows), k)
        return top


def with_vectors(data: Dataset, kind: str) -> Dataset:
    """The same documents as vectors: what they are about, and noise."""

    def side(split: Split, seed: int) -> Split:
        vectors = np.random.default_rng(seed).standard_normal((len(split), len(data.labels) + 3)).astype(np.float32)
        vectors[:, 3:] = np.abs(vectors[:, 3:]) * 0.2 + split.targets.toarray()
        return replace(
            split, documents=Items(split.documents.uids, vectors=csr_array(vectors) if kind == "sparse" else vectors)
        )

    return with_digest(replace(data, train=side(data.train, 1), test=side(data.need_test(), 2)))


def with_stranger(documents: Items) -> Items:
    """The documents, and one more of which no word is known (or whose vector is zero)."""
    rows = documents.rows(np.append(np.arange(len(documents)), 0))
    if rows.vectors is None:
        return replace(rows, fields={name: [*texts[:-1], "qqqq zzzz"] for name, texts in rows.fields.items()})
    given: Any = rows.vectors
    vectors = given.toarray() if is_sparse(given) else given.copy()
    vectors[-1] = 0
    return replace(rows, vectors=csr_array(vectors) if is_sparse(given) else vectors)


def train(variant: Variant, data: Dataset, run: Path, seed: int = 0) -> Ranker:
    """Train into `run`; the model as it was before it was saved."""
    recipe: Any = Keeping(variant.make())
    longtail.train(data, run, recipe, seed=seed, device="cpu")
    return recipe.made[0] if len(recipe.made) == 1 else Ensemble(tuple(recipe.made))


@pytest.fixture(scope="module")
def workshop(
    tmp_path_factory: pytest.TempPathFactory, planted: Dataset, planted_with_graphs: Dataset, one_thread: None
) -> Callable[[str], Trained]:
    """Trains each variant once."""
    finished: dict[str, Trained] = {}
    words = [*ANIMALS, "the", "noise", *(f"##{n}" for n in range(50))]
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "small", words, layers=1, dropout=0.1)

    def trained(name: str) -> Trained:
        if name not in finished:
            run = tmp_path_factory.mktemp("rankers") / name
            settings = tuple(each.replace("CHECKPOINT", str(checkpoint)) for each in VARIANTS[name].settings)
            variant = replace(VARIANTS[name], settings=settings)
            plain = {"text": planted, "graphs": planted_with_graphs}
            data = plain.get(variant.documents) or with_vectors(planted, variant.documents)
            finished[name] = Trained(
                variant, data, run, train(variant, data, run), with_stranger(data.need_test().documents)
            )
        return finished[name]

    return trained


@pytest.fixture(scope="module", params=VARIANTS)
def model(request: pytest.FixtureRequest, workshop: Callable[[str], Trained]) -> Trained:
    return workshop(request.param)


def equal(a: TopK, b: TopK) -> None:
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_array_equal(a.scores, b.scores)


def artefacts(run: Path) -> dict[str, bytes]:
    """Every file that a run leaves behind, except its diary (times) and its lock."""
    return {
        str(p.relative_to(run)): p.read_bytes()
        for p in run.rglob("*")
        if p.is_file() and p.name not in ("metrics.jsonl", ".lock")
    }


def test_every_recipe_joins_this_test() -> None:
    assert {variant.recipe for variant in VARIANTS.values()} == RECIPES.keys()


def test_a_model_is_asked_for_the_encoder_that_makes_vectors(model: Trained) -> None:
    encoder = model.bundle.ranker.document_encoder()
    if model.variant.recipe in ("tiny", "gnnxml"):
        assert encoder is None, "vectors of documents are not their own, or those of keyword graphs"
        return
    vectors = encoder.encode(model.batch)
    assert vectors.dtype == np.float32
    assert vectors.ndim == 2
    assert len(vectors) == len(model.batch)


# ---- lists ----


@pytest.mark.parametrize("k", [1, 4, 12, 40])
def test_lists_are_well_formed(model: Trained, k: int) -> None:
    top = model.rank(k)
    assert isinstance(model.bundle.ranker, Ranker)
    assert top.ids.shape == (len(model.queries), min(k, model.n_labels))
    assert top.ids.dtype == np.int32
    assert top.scores.dtype == np.float32
    for ids, scores in zip(top.ids, top.scores, strict=True):
        found = ids[ids != TopK.PAD]
        assert len(np.unique(found)) == len(found)
        assert ((found >= 0) & (found < model.n_labels)).all()
        assert (ids[: len(found)] == found).all(), "padding comes last"
        assert np.isfinite(scores[: len(found)]).all()
        assert np.isneginf(scores[len(found) :]).all()
        pairs = list(zip(-scores[: len(found)], found, strict=True))
        assert pairs == sorted(pairs), "best first, ties by label number"


def test_documents_get_labels_and_not_all_the_same(model: Trained) -> None:
    top = model.rank(3)
    assert (top.ids[:-1, 0] >= 0).all()
    assert len(np.unique(top.ids[:-1, 0])) > 2


def test_asking_for_more_does_not_change_the_best(model: Trained) -> None:
    whole = model.rank(model.n_labels)
    for k in (1, 2, 4):
        equal(model.rank(k), TopK(whole.ids[:, :k], whole.scores[:, :k]))


def test_no_document_is_no_error(model: Trained) -> None:
    assert model.rank(3, slice(0, 0)).ids.shape == (0, 3)


# ---- F13, F14 ----


@pytest.mark.claim("F13")
def test_a_saved_model_predicts_bit_for_bit_what_it_predicted_before(model: Trained, tmp_path: Path) -> None:
    before = model.unsaved.rank(model.batch, model.n_labels)
    equal(model.rank(model.n_labels), before)
    save_part(model.bundle.ranker, tmp_path / "again")
    equal(load_part(tmp_path / "again").rank(model.batch, model.n_labels), before)


@pytest.mark.claim("F13", "F14")
def test_equal_seeds_give_equal_files_whatever_the_test_truth(model: Trained, tmp_path: Path) -> None:
    """Every stage and the bundle, byte by byte."""
    test = model.data.need_test()
    shuffled = test.targets[np.random.default_rng(3).permutation(len(test))]
    assert (shuffled != test.targets).nnz
    data = with_digest(replace(model.data, test=replace(test, targets=shuffled)))
    assert data.digest != model.data.digest
    train(model.variant, data, tmp_path / "again")
    first, again = artefacts(model.run), artefacts(tmp_path / "again")
    assert first.keys() == again.keys()
    assert [name for name in first if first[name] != again[name]] == []
    equal(Predictor.open(tmp_path / "again").rank(model.queries, 5), Predictor.open(model.run).rank(model.queries, 5))


def test_another_seed_gives_another_model(workshop: Callable[[str], Trained], tmp_path: Path) -> None:
    model = workshop("astec")
    train(model.variant, model.data, tmp_path / "other", seed=1)
    first, other = artefacts(model.run), artefacts(tmp_path / "other")
    changed = {name.rpartition("/")[0] for name in first if first[name] != other.get(name)}
    assert {"stages/1_surrogate", "stages/4_classify", "bundle/ranker"} <= changed
    assert "stages/0_prepare" not in changed


def test_members_of_an_ensemble_differ(workshop: Callable[[str], Trained]) -> None:
    first, second = workshop("ensemble").bundle.ranker.members
    assert not np.array_equal(first.encoder.table, second.encoder.table)
    assert not np.array_equal(first.classifier.rows, second.classifier.rows)


# ---- F15 ----


@pytest.mark.claim("F15")
def test_a_document_does_not_depend_on_its_batch(model: Trained) -> None:
    k, n = model.n_labels, len(model.queries)
    whole = model.rank(k)
    order = np.random.default_rng(0).permutation(n)
    pieces = [(rows, model.rank(k, rows)) for rows in (*np.arange(n)[:, None], order, order[: n // 3])]
    for rows, top in pieces:
        for row, ids, scores in zip(rows, top.ids, top.scores, strict=True):
            expected = dict(zip(whole.ids[row].tolist(), whole.scores[row].tolist(), strict=True))
            assert set(ids.tolist()) == expected.keys()
            np.testing.assert_allclose(scores, [expected[label] for label in ids.tolist()], rtol=0, atol=1e-6)


# ---- F16 ----


def shortlisted(ranker: Any, batch: Batch) -> list[set[int]]:
    """The labels that a model may predict for each document, by looking at its parts."""
    if isinstance(ranker, Ensemble):
        return [
            set().union(*sets) for sets in zip(*(shortlisted(member, batch) for member in ranker.members), strict=True)
        ]
    if isinstance(ranker, Reranked):
        return shortlisted(ranker.base, batch)
    if isinstance(ranker, EncodedTree):
        vectors = ranker.encode(batch)
        leaves, leaf_of = ranker.tree.leaf_scores(Batch(dense=vectors)).ids, ranker.tree.clusters
        return [set(np.flatnonzero(np.isin(leaf_of, row[row >= 0])).tolist()) for row in leaves]
    if isinstance(ranker, NearestDocuments):
        return neighbours_labels(ranker, batch)
    if isinstance(ranker, ClusterModel):
        vectors = ranker.encoder.encode(batch)
        clusters, _ = ranker.beam.select(
            vectors if ranker.shortlist_map is None else ranker.shortlist_map.apply(vectors)
        )
        return [set(np.flatnonzero(np.isin(ranker.beam.clusters, row[row >= 0])).tolist()) for row in clusters]
    if isinstance(ranker, KeygraphModel):
        return [
            set(np.flatnonzero(np.isin(ranker.rankers.clusters, row[row >= 0])).tolist())
            for row in ranker.best_clusters(batch).ids
        ]
    if isinstance(ranker, IndexedRows):  # all labels are looked at
        return [set(range(len(ranker.index))) for _ in range(len(batch))]
    if isinstance(ranker, JointGraphModel):
        size = ranker.shortlist_size
        nearest = ranker.index.query(ranker.views(batch).search, size)
        if ranker.node_labels is not None:
            near = ranker.space.nearest(ranker.space.initial(batch), count=ranker.voters)
            votes = voted(near, pieces(ranker.node_labels), size, voters=ranker.voters)
            nearest = merged(nearest, votes, size, weight=ranker.gamma, reserved=ranker.reserved)
        return [set(row[row >= 0].tolist()) for row in nearest.ids]
    assert isinstance(ranker, Model)
    found = ranker.shortlister.query(ranker.encoder.encode(batch), ranker.shortlist_size)
    return [set(row[row >= 0].tolist()) for row in found.ids]


def neighbours_labels(ranker: NearestDocuments, batch: Batch) -> list[set[int]]:
    """Labels of the nearest documents (of all that are as near as the last), by plain products."""
    x: Any = batch.dense if batch.sparse is None else batch.sparse.toarray()
    similarity = (ranker.documents @ x.T).T
    last = -np.partition(-similarity, ranker.config.neighbours - 1, axis=1)[:, ranker.config.neighbours - 1]
    near = (similarity > 1e-9) & (similarity >= last[:, None] - 1e-6)
    return [set(ranker.targets[np.flatnonzero(row)].indices.tolist()) for row in near]


@pytest.mark.claim("F16")
def test_a_label_outside_the_shortlist_is_never_predicted(model: Trained) -> None:
    ranker, top = model.bundle.ranker, model.rank(model.n_labels)
    allowed = shortlisted(ranker, model.batch)
    looks_at_all = isinstance(ranker, IndexedRows)
    assert looks_at_all or min(map(len, allowed)) < model.n_labels, (
        "shortlists are smaller than the set of labels, or this test says nothing"
    )
    for ids, labels, empty in zip(top.ids, allowed, model.batch.is_empty(), strict=True):
        found = set(ids[ids >= 0].tolist())
        assert found <= labels
        if empty and not isinstance(ranker, EncodedTree):
            assert not found, "nothing can be said of a document without a known word"
        elif not isinstance(ranker, NearestDocuments):
            assert found == labels, "every label of the shortlist comes before any other"


@pytest.mark.parametrize("name", ["astec", "eclare", "galaxc", "gnnxml", "ensemble-reranked", "direct"])
def test_without_its_shortlist_a_model_scores_all_labels(workshop: Callable[[str], Trained], name: str) -> None:
    """What claim X3 compares with; labels inside the shortlist keep their scores."""
    model = workshop(name)
    whole = exhaustive(model.bundle.ranker).rank(model.batch, model.n_labels)
    known = ~model.batch.is_empty()
    assert (whole.ids[known] >= 0).all(axis=1).mean() > 0.9
    assert np.mean(whole.scores[:, 0] >= model.rank(1).scores[:, 0] - 1e-6) > 0.9


# ---- packed ----

# Kinds of models that are no tables of vectors.
UNPACKABLE = (NearestDocuments, KeygraphModel)


TAKING = {"direct", "eclare", "ance", "ngame", "dexml", "siamese", "ramen"}


@pytest.fixture
def copied(model: Trained, tmp_path: Path) -> Path:
    """The bundle in a folder of its own: other tests see no change of its labels."""
    shutil.copytree(model.run / "bundle", tmp_path / "model")
    return tmp_path / "model"


def test_labels_are_retired_merged_and_renamed_in_every_model(model: Trained, copied: Path) -> None:
    before, most = Predictor.open(copied), model.n_labels
    whole = before.bundle.ranker.rank(model.batch, most)
    uids = list(before.labels)
    gone, source, target = uids[0], uids[1], uids[2]
    changes.retire(copied, [gone])
    changes.merge(copied, [source], into=target)
    changes.rename(copied, target, "another name")
    after = Predictor.open(copied)
    assert list(after.labels) == [target, *uids[3:]]
    assert after.label_names[0] == "another name"
    number = {uid: place for place, uid in enumerate(after.labels)} | {source: 0}
    expected: list[dict[int, float]] = []
    for ids, scores in zip(whole.ids.tolist(), whole.scores.tolist(), strict=True):
        found: dict[int, float] = {}
        for label, score in zip(ids, scores, strict=True):
            if label >= 0 and uids[label] != gone:
                place = number[uids[label]]
                found[place] = max(score, found.get(place, -np.inf))
        expected.append(found)
    shown = after.bundle.ranker.rank(model.batch, most)
    assert shown.k == most - 2
    for ids, scores, wanted in zip(shown.ids.tolist(), shown.scores.tolist(), expected, strict=True):
        assert {label: score for label, score in zip(ids, scores, strict=True) if label >= 0} == wanted
        assert scores == sorted(scores, reverse=True)
    few = after.bundle.ranker.rank(model.batch, 2)
    np.testing.assert_array_equal(few.ids, shown.ids[:, :2])
    for _ in range(3):
        changes.undo(copied)
    equal(Predictor.open(copied).bundle.ranker.rank(model.batch, most), whole)
    assert [one.number for one in changes.log(copied)] == []


def test_labels_are_added_or_the_model_says_that_it_cannot(model: Trained, copied: Path) -> None:
    before = Predictor.open(copied)
    whole = before.bundle.ranker.rank(model.batch, model.n_labels)
    takes = before.bundle.ranker.label_space() is not None and bool(before.bundle.featurizer.fields)
    ensemble = "ensemble.learners=2" in model.variant.settings
    own = set(model.variant.settings)
    # Astec with the ranker of ECLARE; behind a re-ranker labels have no rows.
    clusters = "shortlist.structures=clusters" in own and "reranker.enabled=true" not in own
    can = (model.variant.recipe in TAKING or clusters) and model.variant.documents in ("text", "graphs")
    assert takes == (can and not ensemble)
    name = before.label_names[0]
    if not takes:
        with pytest.raises(ConfigError, match="cannot be added"):
            changes.add(copied, {"new": name})
        assert not changes.log(copied)
        return
    text = model.data.train.documents.titles()[0]
    changes.add(
        copied, {"new": name, "taught": ""}, examples={"taught": [text, text]}, near={"taught": [before.labels[1]]}
    )
    after = Predictor.open(copied)
    assert list(after.labels) == [*before.labels, "new", "taught"]
    found = after.bundle.ranker.rank(model.batch, len(after.labels))
    assert (found.ids == model.n_labels).any(), "the text of a trained label finds the new one, too"
    # What was there keeps its order; votes of training documents count less where others vote, too.
    row = found.ids[0][(found.ids[0] >= 0) & (found.ids[0] < model.n_labels)]
    assert len(row) == (whole.ids[0] >= 0).sum() or len(row) >= model.n_labels - 2
    again = Predictor.open(copied)
    equal(again.bundle.ranker.rank(model.batch, 5), after.bundle.ranker.rank(model.batch, 5))
    changes.retire(copied, ["new"])
    assert list(Predictor.open(copied).labels) == [*before.labels, "taught"]
    settled = Predictor.open(copied)
    settled.save(copied.parent / "settled")
    equal(
        Predictor.open(copied.parent / "settled").bundle.ranker.rank(model.batch, 5),
        settled.bundle.ranker.rank(model.batch, 5),
    )
    changes.undo(copied)
    changes.undo(copied)
    equal(Predictor.open(copied).bundle.ranker.rank(model.batch, model.n_labels), whole)


def packable(ranker: Any) -> bool:
    return (
        all(packable(member) for member in ranker.members)
        if isinstance(ranker, Ensemble)
        else not isinstance(ranker, UNPACKABLE)
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 5e-4), ("int8", 1e-2)])
def test_a_packed_model_says_nearly_the_same(
    model: Trained, tmp_path: Path, dtype: PackedType, tolerance: float
) -> None:
    out = tmp_path / "packed"
    if not packable(model.bundle.ranker):
        with pytest.raises(ConfigError, match="no tables of vectors"):
            longtail.pack(model.run, out, dtype)
        assert not out.exists()
        return
    longtail.pack(model.run, out, dtype)
    packed, whole = Predictor.open(out).rank(model.queries, model.n_labels), model.rank(model.n_labels)
    np.testing.assert_array_equal(packed.ids[-1] < 0, whole.ids[-1] < 0, err_msg="of the document without a known word")
    # Shortlists of barely trained models hang by a thread, and with a neighbour its vote goes: most labels stay, with
    # their scores.
    differences: list[float] = []
    for ids, scores, expected_ids, expected in zip(
        packed.ids[:-1], packed.scores[:-1], whole.ids[:-1], whole.scores[:-1], strict=True
    ):
        given = dict(zip(ids.tolist(), scores.tolist(), strict=True))
        differences += [
            abs(given.get(label, np.inf) - score)
            for label, score in zip(expected_ids.tolist(), expected.tolist(), strict=True)
            if label >= 0
        ]
    assert np.quantile(differences, 0.7) <= tolerance


def in_floats(part: Any) -> Any:
    """The same model with packed tables written out as float32."""
    if isinstance(part, PackedIndex):
        return ExactIndex(part.read(), part.similarity)
    if isinstance(part, ClusterBeam):
        assert isinstance(part.index, PackedIndex), "classifiers of clusters are packed too"
        mix, transpose = part.game_mix, part.game_transpose
        return ClusterBeam.of(
            part.heads, part.clusters, part.graph, beam=part.beam, game_mix=mix, game_transpose=transpose
        )
    if part is None or not hasattr(part, "state"):
        return part
    state = part.state()
    tables = {name: nested[:] for name, nested in state.parts.items() if isinstance(nested, PackedRows)}
    parts = {name: in_floats(nested) for name, nested in state.parts.items() if name not in tables}
    return type(part).from_state(State(state.values, {**state.arrays, **tables}, parts))


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
@pytest.mark.parametrize("name", ["direct", "astec", "eclare", "galaxc", "ensemble-reranked"])
def test_packed_tables_are_scored_as_the_numbers_they_hold(
    workshop: Callable[[str], Trained], tmp_path: Path, name: str, dtype: PackedType
) -> None:
    model = workshop(name)
    longtail.pack(model.run, tmp_path / "packed", dtype)
    packed = Predictor.open(tmp_path / "packed").bundle.ranker
    found, expected = packed.rank(model.batch, model.n_labels), in_floats(packed).rank(model.batch, model.n_labels)
    for ids, scores, expected_ids, expected_scores in zip(
        found.ids, found.scores, expected.ids, expected.scores, strict=True
    ):
        given = dict(zip(ids.tolist(), scores.tolist(), strict=True))
        assert given.keys() == set(expected_ids.tolist())
        np.testing.assert_allclose(
            [given[label] for label in expected_ids.tolist()], expected_scores, rtol=0, atol=1e-5
        )


# ---- why this label ----

# Models whose words are left out one by one: what they read of words does not add up.
OCCLUDED = {"parabel", "parabel-game", "cnn", "galaxc-gin", "galaxc-sage", "galaxc-links", "gnnxml-conventional"} | {
    "ance-transformer",
    "ramen-transformer",
}


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def score_by_formula(ranker: Any, why: Explanation) -> float:
    """The score, made of the total and the terms as `why.formula` says."""
    terms = {term.name: term.share for term in why.terms if term.kind == "term"}
    links = sum(term.share for term in why.terms if term.kind in ("label", "labels"))
    if isinstance(ranker, RememberingRows):
        voted = sigmoid(why.total) ** 0.5 + terms["votes of similar documents"]
        return (voted / (1 + ranker.memory.config.weight)) ** 2
    if isinstance(ranker, IndexedRows):
        return sigmoid(why.total)
    if isinstance(ranker, Model):
        return ranker.alpha * sigmoid(why.total) + terms["nearness"]
    if isinstance(ranker, JointGraphModel):
        hops = sum(share for name, share in terms.items() if name != "nearness")
        assert hops == pytest.approx(why.total, abs=1e-3)
        return ranker.beta * sigmoid(why.total) + terms["nearness"]
    if isinstance(ranker, ClusterModel):
        return terms["cluster"] * (terms["own"] + links)
    if isinstance(ranker, KeygraphModel):
        return terms["cluster"] * sigmoid(why.total)
    if isinstance(ranker, NearestDocuments):
        return why.total
    assert isinstance(ranker, Reranked | Ensemble)
    return sum(terms.values())


def adds_up(ranker: Any, why: Explanation) -> None:
    added = why.bias + sum(word.share for word in why.words) + sum(other.share for other in why.others)
    scale = 1 + abs(why.bias) + sum(abs(word.share) for word in why.words)
    assert added == pytest.approx(why.total, abs=1e-5 * scale)
    assert score_by_formula(ranker, why) == pytest.approx(why.score, abs=1e-5)


def test_words_add_up_to_the_score_or_are_left_out_one_by_one(model: Trained, request: pytest.FixtureRequest) -> None:
    """Every recipe explains itself, or says why it cannot."""
    predictor = Predictor.open(model.run)
    if model.variant.documents in ("dense", "sparse"):
        with pytest.raises(ConfigError, match=r"given vectors of \d+ columns"):
            predictor.explain_labels(model.queries, model.rank(3).ids)
        return
    top = model.rank(3)
    answers = predictor.explain_labels(model.queries, top.ids)
    assert len(answers[-1]) == (top.ids[-1] >= 0).sum(), "of a stranger as much as of others: of each of its labels"
    name = request.node.callspec.params["model"]
    for row, answer in enumerate(answers[:-1]):
        assert [why.label for why in answer] == [model.data.labels.uids[n] for n in top.ids[row] if n >= 0]
        for why, score in zip(answer, top.scores[row], strict=False):
            assert why.score == pytest.approx(float(score), abs=1e-5)
            assert why.words
            assert all(word.text == model.queries.fields[word.field][row][word.start : word.end] for word in why.words)
            assert why.method == ("occlusion" if name in OCCLUDED else "exact")
            if why.method == "exact":
                assert why.predictions == 0
                adds_up(model.bundle.ranker, why)
            else:
                assert why.predictions == len(why.words)
    shares = [word.share for answer in answers for why in answer for word in why.words]
    assert any(share != 0 for share in shares)


@pytest.mark.parametrize("name", ["parabel", "ance-transformer", "galaxc-gin"])
def test_occlusion_is_brute_force(workshop: Callable[[str], Trained], name: str) -> None:
    model = workshop(name)
    predictor = Predictor.open(model.run)
    text = model.queries.fields["title"][0]
    (answer,) = predictor.explain([text], k=2)
    for why in answer:
        for word in why.words:
            without = predictor.predict([text[: word.start] + " " + text[word.end :]], k=model.n_labels)[0]
            scores = {found.label: found.score for found in without}
            assert word.share == pytest.approx(why.score - scores.get(why.label, 0), abs=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
@pytest.mark.parametrize("name", ["direct", "astec", "eclare", "galaxc", "ensemble-reranked"])
def test_words_of_a_packed_model_add_up(
    workshop: Callable[[str], Trained], tmp_path: Path, name: str, dtype: PackedType
) -> None:
    model = workshop(name)
    longtail.pack(model.run, tmp_path / "packed", dtype)
    packed = Predictor.open(tmp_path / "packed")
    top = packed.rank(model.queries, 3)
    for answer, scores in zip(packed.explain_labels(model.queries, top.ids), top.scores, strict=True):
        for why, score in zip(answer, scores, strict=False):
            assert why.method == "exact"
            assert why.score == pytest.approx(float(score), abs=1e-5)
            adds_up(packed.bundle.ranker, why)


@pytest.mark.parametrize("name", ["direct", "astec", "eclare", "galaxc", "gnnxml", "tiny"])
def test_a_label_that_was_not_given_is_explained_as_well(workshop: Callable[[str], Trained], name: str) -> None:
    model = workshop(name)
    predictor = Predictor.open(model.run)
    text = model.queries.fields["title"][0]
    scores = {found.label: found.score for found in predictor.predict([text], k=model.n_labels)[0]}
    (answer,) = predictor.explain([text], labels=model.data.labels.uids)
    assert [why.label for why in answer] == list(model.data.labels.uids)
    assert name in ("direct",) or len(scores) < model.n_labels
    for why in answer:
        assert why.score == pytest.approx(scores.get(why.label, 0), abs=1e-5)
        assert ("outside the shortlist" in why.note) == (why.label not in scores)


# ---- no torch ----

PREDICT = """
import json, sys
sys.modules["torch"] = None  # importing it fails
import numpy as np
from longtail.data.dataset import Items
from longtail.predictor import Predictor
texts = json.loads(sys.argv[1])
for folder in sys.argv[2:]:
    top = Predictor.open(folder).rank(Items([str(n) for n in range(len(texts))], {"title": texts}), 5)
    print(json.dumps([top.ids.tolist(), top.scores.view(np.int32).tolist()]))
"""


def test_opening_and_predicting_needs_no_torch(workshop: Callable[[str], Trained]) -> None:
    names = (
        "ensemble-reranked",
        "parabel-game",
        "clusters-game",
        "mlp",
        "cnn",
        "plain-blocks",
        "eclare",
        "gnnxml",
        "ramen",
        "ngame",
        "ance-transformer",
    )
    models = [workshop(name) for name in names]
    texts = list(models[0].queries.fields["title"])
    command = [sys.executable, "-c", PREDICT, json.dumps(texts), *(str(model.run) for model in models)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line, model in zip(done.stdout.splitlines(), models, strict=True):
        ids, bits = json.loads(line)
        equal(TopK(np.array(ids, np.int32), np.array(bits, np.int32).view(np.float32)), model.rank(5))


# One of every recipe, and of other ways in which scores are made.
CALIBRATED = [
    *{variant.recipe: name for name, variant in reversed(VARIANTS.items())}.values(),
    "ensemble",
    "tiny-dense",
]


@pytest.mark.parametrize("name", CALIBRATED)
def test_calibration_makes_probabilities_and_keeps_the_ranking(
    name: str, workshop: Callable[[str], Trained], tmp_path: Path
) -> None:
    model = workshop(name)
    copy = shutil.copytree(model.run / "bundle", tmp_path / "bundle")
    calibrate(copy, model.data, on_test=True)
    calibrated = Predictor.open(copy)
    before = Predictor.open(model.run).rank(model.queries, model.n_labels)
    after = calibrated.rank(model.queries, model.n_labels)
    real = before.ids != TopK.PAD
    assert (after.ids == before.ids).all()
    assert ((after.scores > 0) & (after.scores < 1))[real].all()
    falls, fell = (top.scores[:, 1:] < top.scores[:, :-1] for top in (after, before))
    assert (falls >= fell).all()
    assert (after.scores[:, 1:] <= after.scores[:, :-1]).all()
    np.testing.assert_array_equal(calibrated.rank(model.queries, 2).scores, after.scores[:, :2])
    assert calibrated.bundle.manifest["calibration"]["documents"] == len(model.data.need_test())


def test_labels_that_were_not_calibrated_with_have_scores(workshop: Callable[[str], Trained], tmp_path: Path) -> None:
    """Other labels in the place of those of training: nothing is known of how often they are right."""
    model = workshop("ance")
    copy = shutil.copytree(model.run / "bundle", tmp_path / "bundle")
    calibrate(copy, model.data, on_test=True)
    before, after = (Predictor.open(path).with_labels(model.data.labels) for path in (model.run, copy))
    assert after.calibration is None
    np.testing.assert_array_equal(after.rank(model.queries, 3).scores, before.rank(model.queries, 3).scores)
    after.save(tmp_path / "saved")
    assert Predictor.open(tmp_path / "saved").calibration is None
