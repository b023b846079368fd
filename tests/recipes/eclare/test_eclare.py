"""ECLARE stage by stage: what each leaves behind, every variant of the paper as settings, and what lacking or strange
data gets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.claims.eclare import VARIANTS
from scipy.sparse import csr_array

import longtail
from longtail import pipeline
from longtail.config import from_text
from longtail.data.dataset import Dataset, Graph, Items
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import ConfigError
from longtail.evaluation import Yardstick, baselines, evaluate
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.models.rankers import ClusterModel
from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.encoders import BagSum, Refined
from longtail.nn.row_tables import RowTable
from longtail.persistence import load_part
from longtail.recipes import make_recipe
from longtail.recipes.eclare import recipe as eclare
from longtail.recipes.eclare.network import ComposedCandidates, Composer, DocumentBlock, FrozenTexts, LabelTextGraph
from longtail.recipes.eclare.recipe import Eclare
from longtail.recipes.eclare.settings import EclareConfig
from longtail.recipes.eclare.stages import (
    ConvolvedTexts,
    EclareShortlists,
    EclareSurrogate,
    LabelComponents,
    build_graph,
    clustered,
    has_edges,
)
from longtail.search.cluster import meta_labels
from longtail.search.negatives import candidates
from longtail.training.fit import restore_tensors, saved_tensors
from longtail.training.objectives import AllTargets
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.progress import SilentDisplay
from longtail.training.run import Run
from longtail.types import F32, Candidates

pytestmark = pytest.mark.usefixtures("one_thread")

# One percent of 120 documents is one: without a number of their own all labels would be heads, alone in the graph.
SMALL = (
    "surrogate.width=8",
    "surrogate.epochs=2",
    "surrogate.labels_per_cluster=4",  # of so few labels each would be a cluster
    "shortlist.epochs=2",
    "shortlist.beam=2",
    "classify.epochs=2",
    "graph.head_documents=1000",
)


def recipe(*settings: str) -> Eclare:
    return Eclare(from_text(EclareConfig(), (*SMALL, *settings)))


@dataclass(frozen=True)
class Stages:
    """What a training left behind in every stage."""

    recipe: Eclare
    run: Run
    data: TrainingSet
    surrogate: EclareSurrogate
    shortlists: EclareShortlists
    texts: ConvolvedTexts | None
    ranker: ClusterModel

    @property
    def components(self) -> LabelComponents:
        found: LabelComponents = load_part(self.run.folder / "analysis" / "label_components")
        return found

    @property
    def notes(self) -> list[str]:
        events = [json.loads(line) for line in (self.run.folder / "metrics.jsonl").read_text().splitlines()]
        return [event["text"] for event in events if event["event"] == "note"]


Train = Callable[..., Stages]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    def trained(dataset: Dataset, *settings: str, seed: int = 0) -> Stages:
        made = recipe(*settings)
        with Run.open(tmp_path / "run", {}, seed=seed, device="cpu", restart=True) as run:
            data = pipeline.prepared(made, dataset, run)
            ranker: Any = pipeline.stages(made, data, run)
            surrogate, shortlists = (load_part(run.folder / "stages" / name) for name in ("1_surrogate", "2_shortlist"))
            transfer = run.folder / "stages" / "3_transfer"
            texts = load_part(transfer) if transfer.exists() else None
            return Stages(made, run, data, surrogate, shortlists, texts, ranker)

    return trained


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path, seed=0, device="cpu", display=SilentDisplay())


def prepared(dataset: Dataset, *settings: str) -> TrainingSet:
    return prepare(dataset, recipe(*settings).config.features)


def without_text(dataset: Dataset) -> Dataset:
    return replace(dataset, labels=Items(dataset.labels.uids))


def one_label_each(dataset: Dataset) -> Dataset:
    """Documents with their first label alone: no two labels occur together."""
    targets = dataset.train.targets
    first = csr_array(
        (np.ones(targets.shape[0], np.float32), targets.indices[targets.indptr[:-1]], np.arange(targets.shape[0] + 1)),
        shape=targets.shape,
    )
    return replace(dataset, train=replace(dataset.train, targets=first))


def with_label_graph(dataset: Dataset, graph: Any) -> Dataset:
    return replace(dataset, graphs={"given": Graph("given", label_label=csr_array(graph, dtype=np.float32))})


# ---- the graph, and I ----


def test_the_graph_follows_the_settings(planted: Dataset, train: Train) -> None:
    stages = train(
        planted, "graph.source=cooc", "graph.top_k=3", "surrogate.epochs=0", "shortlist.epochs=0", "classify.epochs=0"
    )
    config = LabelGraphConfig(source="cooc", top_k=3, head_documents=1000)
    expected = label_graph(stages.data.targets, config, np.random.default_rng(0))
    assert (abs(stages.surrogate.graph - expected) > 1e-6).nnz == 0
    assert has_edges(stages.surrogate.graph)


def test_a_given_graph_is_read(planted: Dataset, run: Run) -> None:
    edges = np.zeros((12, 12))
    edges[0, 5] = 1
    data = prepared(with_label_graph(planted, edges), "graph.source=given")
    graph = build_graph(data, recipe("graph.source=given").config, run).toarray()
    assert graph[0, 5] > 0
    assert np.count_nonzero(graph - np.diag(np.diag(graph))) == 1


@pytest.mark.parametrize("source", ["given", "walk+given"])
def test_where_no_graph_is_given_walks_take_its_place_and_the_run_says_so(
    source: str, planted: Dataset, run: Run
) -> None:
    found = build_graph(prepared(planted), recipe(f"graph.source={source}").config, run)
    walked = build_graph(prepared(planted), recipe().config, run)
    assert (found != walked).nnz == 0
    assert "holds none" in (run.folder / "metrics.jsonl").read_text()


def test_a_graph_that_nothing_uses_is_not_built(planted: Dataset, run: Run) -> None:
    assert not has_edges(build_graph(prepared(planted), recipe(*VARIANTS["DECAF"]).config, run))


def test_stage_one_has_no_free_vectors_and_trains_every_word_of_documents_and_labels(
    planted: Dataset, train: Train
) -> None:
    stages = train(planted, "shortlist.epochs=0", "classify.epochs=0")
    start = train(planted, "surrogate.epochs=0", "shortlist.epochs=0", "classify.epochs=0").surrogate.encoder.table
    documents: Any = stages.data.documents
    labels: Any = stages.data.label_texts
    used = np.concatenate([documents.sparse.indices, labels.sparse.indices])
    occurs = np.bincount(used, minlength=stages.data.featurizer.width) > 0
    np.testing.assert_array_equal(np.any(stages.surrogate.encoder.table != start, axis=1), occurs)
    assert not any("free" in name for name in stages.surrogate.network)
    assert {
        "block.block.weight",
        "heads.text.weight",
        "heads.gale.0.weight",
        "heads.bias",
    } <= stages.surrogate.network.keys()


def test_stage_one_leaves_sums_of_either_sign(planted: Dataset, train: Train) -> None:
    found = train(planted).surrogate
    assert (found.vectors < 0).any()
    assert set(found.clusters.tolist()) == {0, 1}, "12 labels in clusters of 4 to 8"


def test_stage_one_learns_its_targets(planted: Dataset, train: Train) -> None:
    """A document's own clusters score above the others, which a head or a target in the wrong place would undo."""
    stages = train(planted, "surrogate.width=32", "surrogate.epochs=12", "shortlist.epochs=3", "classify.epochs=0")
    beam = stages.shortlists.beam
    assert isinstance(beam.heads, np.ndarray)
    scores = stages.shortlists.document_map.apply(stages.surrogate.vectors) @ beam.heads[:, :-1].T + beam.heads[:, -1]
    own = np.zeros(scores.shape, dtype=bool)
    for document, label in zip(*stages.data.targets.nonzero(), strict=True):
        own[document, beam.clusters[label]] = True
    assert ((scores > 0) == own).mean() > 0.95


# ---- II ----


def test_stage_two_goes_on_from_stage_one(planted: Dataset, train: Train) -> None:
    stages = train(planted, "shortlist.epochs=0", "classify.epochs=0", "surrogate.rate=0.05")
    weight = stages.surrogate.network["block.block.weight"]
    assert not np.array_equal(weight, np.eye(8))
    found: Any = stages.shortlists.document_map
    np.testing.assert_allclose(found.weight, weight / np.linalg.norm(weight, 2), rtol=1e-4, atol=1e-5)
    assert found.lam == pytest.approx(float(stages.surrogate.network["block.block.scale"][0]))


def test_blocks_of_classifiers_are_restored_and_attention_starts_anew() -> None:
    rng = np.random.default_rng(0)
    orders = [torch.from_numpy(rng.standard_normal((5, 4), dtype=np.float32)) for _ in range(2)]
    before = LabelTextGraph(FrozenTexts(orders), None, rng, bias=-3.0)
    with torch.no_grad():
        for parameter in before.parameters():
            parameter.add_(0.5)
    after = LabelTextGraph(FrozenTexts(orders), orders[1].clone(), rng, bias=0.0)
    fresh = after.mix.attend.weight.detach().clone()
    restore_tensors(after, saved_tensors(before, without=("texts.", "free.", "mix.")))
    assert before.text is not None
    assert after.text is not None
    assert torch.equal(after.text.weight, before.text.weight)
    assert torch.equal(after.gale[0].weight, before.gale[0].weight)  # type: ignore[arg-type]  # an EmbeddingBlock
    assert after.bias is not None
    assert float(after.bias.detach()) == -2.5
    assert torch.equal(after.mix.attend.weight, fresh)


def test_a_block_is_restored_whole() -> None:
    rng = np.random.default_rng(0)
    blocks = [DocumentBlock(4, rng) for _ in range(2)]
    with torch.no_grad():
        blocks[0].block.weight.add_(1)
        blocks[0].block.scale.fill_(3)
    restore_tensors(blocks[1], saved_tensors(blocks[0]))
    for a, b in zip(blocks[0].state_dict().values(), blocks[1].state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_negatives_are_the_labels_of_the_best_clusters_that_are_neither_true_nor_masked(train: Train) -> None:
    world = synthesise(SyntheticConfig(documents=200, test_documents=10, labels=60, topics=6)).dataset
    stages = train(world, "classify.epochs=0", "shortlist.beam=3")
    targets, hidden = stages.data.targets.toarray(), {tuple(pair) for pair in stages.data.masked.tolist()}
    assert hidden
    assert stages.shortlists.negatives is not None
    clusters, _ = stages.shortlists.beam.select(stages.shortlists.document_map.apply(stages.surrogate.vectors))
    for row, ids in enumerate(stages.shortlists.negatives.ids):
        labels = np.flatnonzero(np.isin(stages.shortlists.beam.clusters, clusters[row]))
        allowed = {label for label in labels.tolist() if not targets[row, label] and (row, label) not in hidden}
        assert set(ids[ids >= 0].tolist()) == allowed


def test_the_beam_follows_the_settings(planted: Dataset, train: Train) -> None:
    settings = (
        "game.mix=0.5",
        "game.transpose=true",
        "game.clusters=both",
        "shortlist.beam=1",
        "surrogate.epochs=0",
        "shortlist.epochs=0",
        "classify.epochs=0",
    )
    stages = train(planted, *settings)
    beam, ranker = stages.shortlists.beam, stages.ranker
    assert (beam.beam, beam.game_mix, beam.game_transpose) == (1, 0.5, True)
    assert (ranker.game_mix, ranker.game_transpose) == (0.5, True)
    assert beam.graph is not None
    np.testing.assert_allclose(np.sort(np.linalg.svd(beam.graph.toarray(), compute_uv=False))[-1], 1, rtol=1e-5)
    assert ranker.label_graph is not None


def test_sizes_adapt_to_the_data(planted: Dataset) -> None:
    data = prepared(planted)
    assert recipe().config.n_clusters(data.n_labels) == 2
    assert recipe("shortlist.beam=0").config.beam_size(data.n_labels) == 2, "not more than there are clusters"
    many = prepared(Dataset.from_texts([f"word{i}" for i in range(4000)], [[f"l{i % 2000}"] for i in range(4000)]))
    assert recipe().config.n_clusters(many.n_labels) == 256
    assert EclareConfig().n_clusters(many.n_labels) == 1024, "by default the largest power of two"
    assert recipe("surrogate.clusters=64").config.n_clusters(many.n_labels) == 64
    assert recipe("shortlist.beam=0").config.beam_size(many.n_labels) == 62, (
        "2,000 labels in 256 clusters: 480 labels need 62"
    )


# ---- III and IV ----


@pytest.mark.parametrize(
    ("documents", "device", "settings", "batch", "factor"),
    [
        (80_657, "cuda", [], 255, 1.0),
        (80_657, "cpu", [], 8192, (1260 / 255) ** 0.5),  # `fit_stage` makes it 64 steps of 1,260 documents
        (505_919, "cpu", [], 8192, (7904 / 988) ** 0.5),  # of 7,904 in place of 988
        (10_000_000, "cpu", [], 8192, (19531 / 1020) ** 0.5),
        (80_657, "cpu", ["training.batch=100"], 100, 1.0),
        (12_394, "cpu", [], 8192, 1.0),  # `fit_stage` makes either batch one of 193 documents
    ],
)
def test_a_cpu_takes_larger_batches_with_higher_rates(
    documents: int, device: str, settings: list[str], batch: int, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(eclare, "fit_stage", lambda objective, run, name, **options: asked.update(options))
    recipe: Any = make_recipe("eclare", assignments=settings)
    recipe.fit(SimpleNamespace(size=documents), SimpleNamespace(device=device), "classify", 10, 0.002)
    assert asked["batch"] == batch
    assert asked["schedule"].peak == pytest.approx(0.002 * factor)


def test_stage_three_convolves_label_texts(planted: Dataset, train: Train) -> None:
    stages = train(planted, "composition.order=2", "classify.epochs=0")
    assert stages.texts is not None
    texts: Any = stages.data.label_texts
    expected = texts.sparse @ stages.surrogate.encoder.table
    for order in stages.texts.orders:
        np.testing.assert_allclose(order, expected, rtol=1e-4, atol=1e-5)
        expected = stages.surrogate.graph @ expected
    assert len(stages.texts.orders) == 3


@pytest.mark.parametrize(("start", "order"), [("graph", 1), ("text", 0)])
def test_free_vectors_start_from_text(start: str, order: int, planted: Dataset, train: Train) -> None:
    stages = train(
        planted, "classify.epochs=0", f"transfer.start={start}", "composition.text=false", "composition.graph=none"
    )
    assert stages.components.names == ("free",)
    assert stages.texts is not None
    np.testing.assert_allclose(stages.ranker.classifier.rows[:], stages.texts.orders[order], rtol=1e-5, atol=1e-6)


def test_free_vectors_can_start_at_random(planted: Dataset, train: Train) -> None:
    settings = ("classify.epochs=0", "transfer.start=random", "composition.text=false", "composition.graph=none")
    rows = train(planted, *settings).ranker.classifier.rows[:]
    assert np.abs(rows).max() <= np.sqrt(6 / (12 + 8))
    assert not np.array_equal(rows, train(planted, *settings, seed=1).ranker.classifier.rows[:])


def test_ranking_has_a_document_block_of_its_own_that_starts_as_the_identity(planted: Dataset, train: Train) -> None:
    stages = train(planted, "classify.epochs=0")
    ranking: Any = stages.ranker.rank_map
    short: Any = stages.ranker.shortlist_map
    np.testing.assert_allclose(ranking.weight, np.eye(8))
    assert ranking.lam == 1
    assert not np.allclose(short.weight, np.eye(8))


def test_token_vectors_and_the_shortlister_stay_as_they_are_in_stage_four(planted: Dataset, train: Train) -> None:
    stages = train(planted)
    model: Any = stages.ranker
    np.testing.assert_array_equal(model.encoder.table, stages.surrogate.encoder.table)
    np.testing.assert_array_equal(model.beam.heads, stages.shortlists.beam.heads)
    short: Any = stages.shortlists.document_map
    np.testing.assert_array_equal(model.shortlist_map.weight, short.weight)


def test_components_are_kept_for_analyses_and_not_in_the_bundle(planted: Dataset, tmp_path: Path) -> None:
    longtail.train(planted, tmp_path / "run", recipe(), device="cpu")
    found: LabelComponents = load_part(tmp_path / "run" / "analysis" / "label_components")
    assert found.names == ("text", "gale1", "free")
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, rtol=1e-5)
    assert found.counts.sum() > 0
    bins, strength = found.dominance()
    assert strength.shape == (len(bins), 3)
    assert (strength > 0).all()
    assert not list((tmp_path / "run" / "bundle").rglob("*components*"))


def test_epochs_are_counted_per_stage_and_rates_are_halved_half_way(
    planted: Dataset, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    step = ComposedCandidates.step

    def watched(self: Any, rows: Any, rng: Any, rate: float) -> Any:
        rates.append(rate)
        return step(self, rows, rng, rate)

    monkeypatch.setattr(ComposedCandidates, "step", watched)
    stages = train(planted, "surrogate.epochs=3", "shortlist.epochs=1", "classify.epochs=4", "classify.rate=0.008")
    events = [json.loads(line) for line in (stages.run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = {event["name"]: event["losses"] for event in events if event["event"] == "fit"}
    assert {name: len(values) for name, values in losses.items()} == {"surrogate": 3, "shortlist": 1, "classify": 4}
    half = len(rates) // 2
    assert rates == [0.008] * half + [0.004] * half


class Seen:
    """Watches the candidates of every training step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[Any, Candidates]] = []

        def watched(rows: Any, *arguments: Any, **options: Any) -> Candidates:
            found = candidates(rows, *arguments, **options)
            self.steps.append((rows, found))
            return found

        monkeypatch.setattr(eclare, "candidates", watched)

    def pairs(self, positive: bool) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        for rows, step in self.steps:
            at = np.nonzero(step.mask & (step.targets == positive))
            found |= set(zip(rows[at[0]].tolist(), step.ids[at].tolist(), strict=True))
        return found


@pytest.mark.parametrize("negatives", ["shortlist", "ppr", "uniform"])
def test_no_step_trains_a_true_or_masked_pair_as_a_negative(
    negatives: str, planted: Dataset, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    dataset = replace(
        planted, train=replace(planted.train, masked=np.array([[row, (row + 3) % 12] for row in range(120)]))
    )
    stages = train(dataset, f"classify.negatives={negatives}", "surrogate.epochs=0", "shortlist.epochs=0")
    true = set(zip(*(numbers.tolist() for numbers in stages.data.targets.nonzero()), strict=True))
    hidden = {tuple(pair) for pair in stages.data.masked.tolist()}
    wrong = seen.pairs(positive=False)
    assert seen.pairs(positive=True) == true
    assert wrong
    assert not wrong & (true | hidden)


def test_the_number_of_negatives_is_a_setting(planted: Dataset, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    train(
        planted,
        "classify.count=3",
        "classify.random=2",
        "classify.positives=1",
        "classify.epochs=1",
        "surrogate.epochs=0",
        "shortlist.epochs=0",
    )
    for _, step in seen.steps:
        assert (step.targets.sum(axis=1) == 1).all()
        assert (step.mask.sum(axis=1) == 1 + 3 + 2).all()


def test_full_negatives_train_all_rows(planted: Dataset, train: Train) -> None:
    stages = train(planted, "classify.negatives=full", "shortlist.beam=1", "surrogate.epochs=0", "shortlist.epochs=0")
    assert stages.shortlists.negatives is None
    untrained = train(
        planted,
        "classify.negatives=full",
        "shortlist.beam=1",
        "surrogate.epochs=0",
        "shortlist.epochs=0",
        "classify.epochs=0",
    )
    assert np.any(stages.ranker.classifier.rows != untrained.ranker.classifier.rows, axis=1).all()


# ---- variants ----

COMPONENTS = {
    "GCN": ("text", "gcn", "free"),
    "LightGCN": ("lightgcn", "free"),
    "NoLTE": ("gale1", "free"),
    "NoRefine": ("text", "gale1"),
    "k=2": ("text", "gale1", "gale2", "free"),
    "NoGALE": ("text", "free"),
    "DECAF": ("text", "free"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_of_the_paper_is_a_setting(name: str, planted: Dataset, train: Train) -> None:
    assert recipe(*VARIANTS[name]).config != recipe().config
    # The planted data have fewer labels than that variant has clusters.
    stages = train(planted, *VARIANTS[name] if name != "8K" else ["surrogate.clusters=2"])
    assert stages.components.names == COMPONENTS.get(name, ("text", "gale1", "free"))
    plain = name in ("NoGraph", "DECAF")
    assert (stages.ranker.label_graph is None) == (stages.shortlists.beam.graph is None) == plain
    top = stages.ranker.rank(stages.data.documents, 3)
    assert np.isfinite(top.scores[top.ids >= 0]).all()
    weights = stages.components.weights
    if name == "SUM":
        assert (weights == 1).all()
    elif name == "DECAF":
        assert (weights == weights[0]).all()
    else:
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)


def test_without_the_graph_in_clustering_clusters_differ(run: Run) -> None:
    world = prepared(synthesise(SyntheticConfig(documents=200, test_documents=10, labels=60, topics=6)).dataset)
    graph = build_graph(world, recipe().config, run)
    found = [
        clustered(world.documents.sparse, world, graph, recipe(f"surrogate.augmented={on}").config, run.rng("clusters"))
        for on in ("true", "false")
    ]
    assert not np.array_equal(np.equal.outer(found[0], found[0]), np.equal.outer(found[1], found[1]))


# ---- what the data lacks ----

LACKING: dict[str, tuple[Callable[[Dataset], Dataset], tuple[str, ...], tuple[str, ...]]] = {
    "nothing": (lambda data: data, ("text", "gale1", "free"), ()),
    "label text": (without_text, ("free",), ("label text: there is none",)),
    "a graph": (one_label_each, ("text", "free"), ("label graph: no two labels",)),
    "both": (
        lambda data: without_text(one_label_each(data)),
        ("free",),
        ("label graph: no two labels", "label text: there is none"),
    ),
}


@pytest.mark.parametrize("free", ["true", "false"])
@pytest.mark.parametrize("case", LACKING)
def test_what_the_data_lacks_is_left_out_and_said(case: str, free: str, planted: Dataset, train: Train) -> None:
    spoil, names, notes = LACKING[case]
    stages = train(spoil(planted), f"composition.free={free}")
    wanted = tuple(name for name in names if name != "free" or free == "true") or ("free",)
    assert stages.components.names == wanted
    assert len(stages.notes) == len(notes)
    assert all(note.startswith(expected) for note, expected in zip(stages.notes, notes, strict=True))
    has_graph = case in ("nothing", "label text")
    assert (stages.ranker.label_graph is not None) == has_graph
    assert (stages.shortlists.beam.graph is not None) == has_graph


def test_a_label_without_text_or_documents_can_be_there(train: Train) -> None:
    texts = [f"word{i % 4} also{i}" for i in range(40)]
    dataset = Dataset.from_texts(
        texts, [[f"l{i % 4}"] for i in range(40)], {"l0": "word0", "absent": "word1 thing", "silent": ""}
    )
    stages = train(dataset)
    assert stages.data.n_labels == 6
    top = stages.ranker.rank(stages.data.documents, 6)
    assert np.isfinite(top.scores[top.ids >= 0]).all()


def test_dense_vectors_are_refused(planted: Dataset, train: Train) -> None:
    vectors: F32 = np.ones((120, 5), dtype=np.float32)
    dataset = replace(
        planted, train=replace(planted.train, documents=Items(planted.train.documents.uids, vectors=vectors))
    )
    with pytest.raises(ConfigError, match="reads words") as caught:
        train(dataset)
    assert "astec" in caught.value.hint


STRANGE: dict[str, tuple[list[str], list[list[str]]]] = {
    "fewer labels than a cluster holds": (
        [f"word{i % 3} also{i}" for i in range(30)],
        [[f"l{i % 3}"] for i in range(30)],
    ),
    "a label with every document": (
        [f"word{i % 5} also{i}" for i in range(40)],
        [["all", f"l{i % 5}"] for i in range(40)],
    ),
    "every label with every document": ([f"word{i % 5} also{i}" for i in range(20)], [["a", "b"]] * 20),
    "one label only": ([f"word{i}" for i in range(9)], [["only"]] * 9),
    "one document only": (["word"], [["only"]]),
    "nothing but duplicates": (["same text"] * 20, [[f"l{i % 5}"] for i in range(20)]),
    "a document with every label": (
        ["word"] * 3 + ["other"] * 10,
        [[f"l{i}" for i in range(10)]] * 3 + [[f"l{i}"] for i in range(10)],
    ),
}


@pytest.mark.parametrize("case", STRANGE)
def test_strange_data_trains(case: str, train: Train) -> None:
    texts, labels = STRANGE[case]
    stages = train(Dataset.from_texts(texts, labels))
    top = stages.ranker.rank(stages.data.featurizer.batch_of_texts([*texts[:3], "qqqq zzzz", ""]), 3)
    found = top.ids >= 0
    assert found[: len(texts[:3]), 0].all(), "a known document gets labels"
    assert not found[-2:].any(), "nothing is known of the others"
    assert np.isfinite(top.scores[found]).all()


@pytest.mark.parametrize("negatives", ["ppr", "uniform", "full"])
@pytest.mark.parametrize("case", ["one label only", "every label with every document"])
def test_where_there_are_no_negatives_training_goes_on(case: str, negatives: str, train: Train) -> None:
    stages = train(Dataset.from_texts(*STRANGE[case]), f"classify.negatives={negatives}")
    assert np.isfinite(stages.ranker.rank(stages.data.documents, 1).scores).all()


# ---- what it is good for ----

GOOD: dict[str, tuple[str, ...]] = {
    "whole": (),
    "all negatives": ("classify.negatives=full",),
    "ensemble": ("ensemble.learners=2",),
    "trees that share stage I": ("ensemble.learners=2", "ensemble.shared=true"),
    "graph pruned by text": ("graph.text_cosine=0.3",),
    "DECAF": VARIANTS["DECAF"],
}


@pytest.mark.parametrize("case", GOOD)
def test_it_finds_planted_labels(case: str, planted: Dataset, tmp_path: Path) -> None:
    made = recipe(
        "surrogate.width=64",
        "surrogate.epochs=6",
        "surrogate.rate=0.003",
        "shortlist.epochs=4",
        "classify.epochs=12",
        *GOOD[case],
    )
    found = evaluate(longtail.train(planted, tmp_path / "run", made, device="cpu"), planted)
    assert found["P@1"] > 80
    assert found["R@10"] > 95


def test_it_learns_a_world_of_rare_labels_and_uses_their_text(tmp_path: Path) -> None:
    """Most labels have few documents: text and free vectors together are far above the most frequent labels and above
    free vectors alone.
    """
    world = synthesise(SyntheticConfig(documents=400, test_documents=200, labels=100, topics=8, zipf=0.8)).dataset
    small = (
        "surrogate.width=48",
        "surrogate.epochs=4",
        "surrogate.rate=0.003",
        "shortlist.epochs=2",
        "shortlist.beam=8",
        "classify.epochs=4",
    )
    found = {}
    for name, data in (("text", world), ("no text", without_text(world))):
        found[name] = evaluate(
            longtail.train(data, tmp_path / name, Eclare(from_text(EclareConfig(), small)), device="cpu"), world
        )
    yardstick = Yardstick.of(world)
    frequent = yardstick.score(baselines(world, yardstick)["most frequent labels"])
    assert found["text"]["P@1"] > frequent["P@1"] + 30
    assert found["text"]["PSP@5"] > frequent["PSP@5"] + 30
    assert found["text"]["PSP@5"] > found["no text"]["PSP@5"]


# ---- memory ----


def test_the_memory_estimate_grows_with_all_that_grows(planted: Dataset) -> None:
    data = prepared(planted)
    base = recipe().memory(data)
    assert base >= 3 * 4 * 8 * (data.featurizer.width + data.n_labels), (
        "word vectors and classifiers with two moments each"
    )
    assert all(
        recipe(setting).memory(data) > base
        for setting in ("surrogate.width=16", "classify.count=1000", "composition.order=3")
    )


def test_twice_the_clusters() -> None:
    assert [recipe(f"surrogate.labels_per_cluster={n}").config.n_clusters(4096) for n in (8, 4, 2, 1)] == [
        512,
        1024,
        2048,
        4096,
    ]
    assert recipe("surrogate.labels_per_cluster=2", "surrogate.clusters=64").config.n_clusters(4096) == 64


def test_trees_that_share_stage_one(planted: Dataset, tmp_path: Path) -> None:
    """One stage I; each model has its own clusters, from its own seed, and all have the same token vectors."""
    made = recipe("ensemble.learners=2", "ensemble.shared=true", "surrogate.epochs=1", "classify.epochs=0")
    model: Any = longtail.train(planted, tmp_path / "run", made, device="cpu").bundle.ranker
    assert (tmp_path / "run" / "stages" / "1_surrogate").exists()
    assert not list((tmp_path / "run" / "members").glob("*/stages/1_surrogate"))
    first, second = model.members
    np.testing.assert_array_equal(first.encoder.table, second.encoder.table)
    assert not np.array_equal(first.beam.clusters, second.beam.clusters)


def test_a_recipe_without_stage_one_has_nothing_to_share(planted: Dataset, tmp_path: Path) -> None:
    made = make_recipe("direct", assignments=["ensemble.learners=2", "ensemble.shared=true", "train.epochs=1"])
    with pytest.raises(ConfigError, match="no stage I"):
        longtail.train(planted, tmp_path / "run", made, device="cpu")


def test_attention_has_a_rate_of_its_own(planted: Dataset, run: Run) -> None:
    """Adam's first step moves every number by its rate: that of the mix by a tenth of the others'."""
    made = recipe("composition.mix_rate=0.1")
    data = prepare(planted, made.config.features)
    graph = build_graph(data, made.config, run)
    composer = Composer(made.config, data, graph, run)
    clusters = np.arange(data.n_labels, dtype=np.int32) % made.config.n_clusters(data.n_labels)
    table = RowTable(torch.randn(data.featurizer.width, 8))
    heads = composer.first_heads(table, clusters)
    targets = DeviceCsr(meta_labels(data.targets, clusters, heads.labels), "cpu")
    encoder = Refined(BagSum(table), composer.document_block("block"))
    objective = AllTargets(encoder, heads, Documents(data.documents, "cpu"), targets, factors=composer.rate_factors())
    before = {name: value.clone() for name, value in heads.named_parameters()}
    objective.step(np.arange(64), np.random.default_rng(0), 0.01)
    moved = {name: float((value - before[name]).abs().max().detach()) for name, value in heads.named_parameters()}
    mixed = {name: value for name, value in moved.items() if name.startswith("mix.")}
    assert len(mixed) == 2
    assert all(value == pytest.approx(0.001, rel=0.05) for value in mixed.values())
    assert moved["bias"] == pytest.approx(0.01, rel=0.05)
