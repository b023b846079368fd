"""GalaXC stage by stage: what each leaves behind, what the paper's variants change, and what strange data gets."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import longtail
from longtail import pipeline
from longtail.config import from_text
from longtail.data.dataset import Dataset, Graph, Items
from longtail.errors import BundleError, ConfigError
from longtail.evaluation import evaluate
from longtail.graph.ops import unit_rows
from longtail.models.encoders import FrozenBag, FrozenSum
from longtail.persistence import load_part
from longtail.predictor import Predictor
from longtail.recipes.astec.recipe import Astec
from longtail.recipes.astec.settings import AstecConfig
from longtail.recipes.galaxc import recipe as galaxc
from longtail.recipes.galaxc.network import Network
from longtail.recipes.galaxc.objective import SharedCandidates
from longtail.recipes.galaxc.ranker import FrozenHops, FrozenMessages, GraphShortlists, JointGraphModel
from longtail.recipes.galaxc.recipe import Galaxc
from longtail.recipes.galaxc.settings import VARIANTS, GalaxcConfig, check
from longtail.recipes.galaxc.start import Start
from longtail.search.index import HnswIndex
from longtail.training.fit import fit_stage
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = (
    *("astec.width=16", "astec.epochs=4", "surrogate.epochs=4", "surrogate.halve_at=3", "surrogate.random=6"),
    "classify.epochs=0",  # stages I to III; `HARD` is stage IV
)


def recipe(*settings: str) -> Galaxc:
    return Galaxc(from_text(GalaxcConfig(), (*SMALL, *settings)))


@dataclass(frozen=True)
class Stages:
    """What a training left behind in every stage."""

    recipe: Galaxc
    run: Run
    data: TrainingSet
    start: Start
    network: Network
    shortlists: GraphShortlists
    ranker: JointGraphModel


Train = Callable[..., Stages]


def product(batch: Any, table: Any) -> Any:
    sparse: Any = batch.sparse
    return sparse @ table


@pytest.fixture
def train(tmp_path: Path) -> Train:
    def trained(dataset: Dataset, *settings: str, seed: int = 0) -> Stages:
        made = recipe(*settings)
        with Run.open(tmp_path / "run", {}, seed=seed, device="cpu", restart=True) as run:
            data = pipeline.prepared(made, dataset, run)
            ranker: Any = pipeline.stages(made, data, run)
            stages: list[Any] = [
                load_part(run.folder / "stages" / name) for name in ("1_start", "1_surrogate", "2_shortlist")
            ]
            assert not (run.folder / "stages" / "3_transfer").exists()
            return Stages(made, run, data, stages[0], stages[1], stages[2], ranker)

    return trained


def with_graph(dataset: Dataset) -> Dataset:
    """Every label has an anchor, and so have the documents that have the label; one more anchor is on everything."""
    n, labels = len(dataset.train), len(dataset.labels)
    anchors = Items([*(f"topic-{uid}" for uid in dataset.labels.uids), "all"], {"title": [""] * (labels + 1)})
    documents = csr_array(np.concatenate([dataset.train.targets.toarray(), np.ones((n, 1))], axis=1).astype(np.float32))
    sides = csr_array(np.concatenate([np.eye(labels), np.ones((labels, 1))], axis=1).astype(np.float32))
    square = csr_array(np.roll(np.eye(labels), 1, axis=1).astype(np.float32))
    return replace(
        dataset,
        graphs={"anchors": Graph("anchors", anchors, documents, sides), "labels": Graph("labels", label_label=square)},
    )


# ---- as a whole ----


def test_planted_labels_are_found(planted: Dataset, tmp_path: Path) -> None:
    # Twelve labels make two clusters, from which little can be learnt: here every label is a target of its own.
    first = {"width": 32, "task": "label_selection", "selected": 1.0}
    settings = {"astec": first, "features": {"pairs": False}, "surrogate": {"epochs": 30, "rate": 0.005}}
    model = longtail.train(planted, tmp_path / "run", "galaxc", settings=settings, device="cpu")
    result = evaluate(model, planted)
    assert result["P@1"] > 60, "by chance one in six"
    assert result["PSP@5"] > 70
    assert result["transductive"] is False
    assert model.bundle.manifest["recipe"] == "galaxc"


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_paper_is_a_setting(variant: str, planted: Dataset, train: Train) -> None:
    # Steps of 256 documents would be one per epoch here.
    small = ("astec.width=8", "astec.batch_adapts=true", "surrogate.batch_adapts=true", "surrogate.epochs=2")
    stages = train(with_graph(planted), *VARIANTS[variant], *small)
    batch = stages.data.featurizer.batch(planted.need_test().documents)
    top = stages.ranker.rank(batch, 3)
    assert (top.ids[:, 0] >= 0).all()
    assert len(np.unique(top.ids[:, 0])) > 2
    expected = {"GIN": FrozenMessages, "GraphSAGE": FrozenMessages, "GraphSAGE links": FrozenMessages}.get(
        variant, FrozenHops
    )
    assert isinstance(stages.ranker.hops, expected)
    assert stages.ranker.hops.views == {"K=2": 2, "K=1": 1}.get(variant, 1 if expected is FrozenMessages else 3)
    assert (stages.ranker.alphas is None) == (variant in ("NoAtt", "K=1", "GIN", "GraphSAGE", "GraphSAGE links"))
    assert (stages.start.links is None) == (variant in ("seen", "paper"))


def test_estimated_memory_grows_with_the_data(planted: Dataset) -> None:
    small, large = (
        prepare(data, recipe().config.features)
        for data in (planted, replace(planted, train=planted.train.rows(np.arange(60))))
    )
    assert recipe().memory(small) > recipe().memory(large) > 2**28
    assert recipe("initial.source=words").memory(small) <= recipe().memory(small)


def test_estimated_memory_has_the_labels_that_a_step_shares(planted: Dataset) -> None:
    """Stage I shares random ones, stage IV the hard negatives of all documents of the step."""
    many = replace(prepare(planted, recipe().config.features), targets=csr_array((len(planted.train), 50_000)))
    quick = ("initial.source=words", "initial.path=x.npy", "surrogate.random=100")
    none, few, all_of_them = (
        recipe(*quick, *more).memory(many)
        for more in (
            ("classify.epochs=0",),
            ("classify.epochs=1", "classify.per_document=1"),
            ("classify.epochs=1", "classify.per_document=100"),
        )
    )
    negatives = 4 * recipe().config.classify.count * len(planted.train)
    assert none == few - negatives, "fewer than stage I has"
    assert all_of_them - few > 4 * 4 * 4 * 256 * 20_000


# ---- start ----


def test_documents_that_are_labels_share_a_node(train: Train) -> None:
    texts, names = ["red apple", "green pear", "blue plum", "red apple and pear"], [["b"], ["a"], ["b"], ["a", "b"]]
    data = Dataset.from_texts(texts * 3, names * 3, {"a": "Red  Apple", "b": "something else"})
    masked = np.array([[0, 0], [4, 0], [8, 0], [3, 1]], dtype=np.int64)  # the last pair is masked for another reason
    data = replace(data, train=replace(data.train, masked=masked))
    stages = train(data)
    assert stages.data.same.tolist() == [[0, 0], [4, 0], [8, 0]]
    assert len(stages.start.space.graph) == 12 + 2 - 3
    assert stages.start.space.graph.nodes[[0, 4, 8]].tolist() == [0, 0, 0]
    assert len(train(data, "graph.identity=none").start.space.graph) == 12 + 2


def test_vectors_are_sums_of_word_vectors(planted: Dataset, train: Train) -> None:
    stages = train(planted, "initial.unit=false", "initial.centred=false")
    surrogate = load_part(stages.run.folder / "stages" / "1_astec")
    assert isinstance(surrogate.encoder, FrozenBag)
    assert isinstance(stages.start.space.encoder, FrozenSum)
    space = stages.start.space
    np.testing.assert_allclose(
        space.vectors[space.graph.nodes], product(stages.data.documents, surrogate.encoder.table), rtol=1e-4, atol=1e-5
    )
    assert stages.data.label_texts is not None
    np.testing.assert_allclose(
        space.vectors[:12], product(stages.data.label_texts, surrogate.encoder.table), rtol=1e-4, atol=1e-5
    )
    unit, positive = (
        train(planted, "initial.centred=false", f"initial.rectified={flag}").start.space for flag in ("false", "true")
    )
    np.testing.assert_allclose(np.linalg.norm(unit.vectors, axis=1), 1, rtol=1e-5)
    assert (positive.vectors >= 0).all()
    centred = train(planted).start.space
    moved = unit.vectors - unit.vectors[unit.graph.nodes].mean(axis=0)
    np.testing.assert_allclose(
        centred.vectors, moved / np.linalg.norm(moved, axis=1, keepdims=True), rtol=1e-3, atol=1e-5
    )
    np.testing.assert_array_equal(centred.initial(stages.data.documents), centred.vectors[centred.graph.nodes])
    assert not centred.initial(stages.data.featurizer.batch_of_texts(["qqq"])).any(), (
        "a text without a known word stays a zero vector"
    )
    assert isinstance(positive.encoder, FrozenBag)


def test_stage_one_of_astec_is_astecs(planted: Dataset, train: Train, tmp_path: Path) -> None:
    ours = load_part(train(planted).run.folder / "stages" / "1_astec")
    config = from_text(AstecConfig(), ("surrogate.width=16", "surrogate.epochs=4"))
    with Run.open(tmp_path / "astec", {}, device="cpu") as run:
        data = pipeline.prepared(Astec(config), planted, run)
        theirs: Any = run.stage("1_surrogate", lambda: Astec(config).surrogate(data, run))
    np.testing.assert_array_equal(ours.encoder.table, theirs.encoder.table)


def test_labels_without_text_start_from_their_documents(train: Train) -> None:
    data = Dataset.from_texts(
        [f"word{i % 4} more{i % 3}" for i in range(40)],
        [[f"l{i % 4}"] for i in range(40)],
        {"l0": "word0", "alone": "word1"},
    )
    stages = train(data, "initial.unit=false")
    space, uids = stages.start.space, list(stages.data.labels.uids)
    documents = space.vectors[space.graph.nodes]
    rows = np.flatnonzero(stages.data.targets[:, [uids.index("l2")]].toarray()[:, 0])
    total = documents[rows].sum(axis=0)
    np.testing.assert_allclose(space.vectors[uids.index("l2")], total / np.linalg.norm(total), rtol=1e-4)
    log = [json.loads(line) for line in (stages.run.folder / "metrics.jsonl").read_text().splitlines()]
    assert any("3 of 5 labels have none" in event.get("text", "") for event in log)


def test_a_label_without_documents_is_an_isolated_node_that_can_be_found(train: Train) -> None:
    data = Dataset.from_texts(
        [f"word{i % 4} more{i % 3}" for i in range(40)],
        [[f"l{i % 4}"] for i in range(40)],
        {"alone": "unheard of", "mute": ""},
    )
    stages = train(data)
    uids = list(stages.data.labels.uids)
    assert stages.start.space.graph.degrees[[uids.index("alone"), uids.index("mute")]].tolist() == [0, 0]
    assert not stages.start.space.vectors[uids.index("mute")].any(), (
        "neither text nor documents: a zero vector, near to nothing"
    )
    top = stages.ranker.exhaustive().rank(stages.data.featurizer.batch_of_texts(["unheard of", "word1 more2"]), 6)
    assert np.isfinite(top.scores).all()


def test_head_labels_see_few_documents(planted: Dataset, train: Train) -> None:
    degrees = train(planted, "graph.restrict_threshold=10", "graph.restrict_edges=3").start.space.graph.degrees[:12]
    counts = planted.train.targets.sum(axis=0)
    assert (degrees == np.where(counts > 10, 3, counts)).all()


def test_links_of_training_documents_are_kept_where_edges_are_hidden(planted: Dataset, train: Train) -> None:
    assert train(planted, "surrogate.mask_target_edges=0").start.links is None
    start = train(planted, "surrogate.mask_target_edges=0.5").start
    assert start.links is not None
    assert start.links.shape == (120, 4)
    assert not (start.links == start.space.graph.nodes[:, None]).any()


# ---- where vectors come from ----


def test_vectors_of_another_run(planted: Dataset, train: Train, tmp_path: Path) -> None:
    """Another vocabulary: words that both know have the vectors of the other's stage I, others none."""
    astec = longtail.train(
        planted,
        tmp_path / "astec",
        "astec",
        settings={"surrogate": {"width": 8, "epochs": 1}, "classify": {"epochs": 0}, "reranker": {"epochs": 1}},
        device="cpu",
    )
    other = replace(
        planted.train.documents,
        fields={"title": [f"{text} unheard" for text in planted.train.documents.fields["title"]]},
    )
    stages = train(
        replace(planted, train=replace(planted.train, documents=other)),
        "initial.source=bundle",
        f"initial.path={tmp_path / 'astec'}",
    )
    theirs: Any = astec.bundle
    encoder: Any = stages.start.space.encoder
    featurizer: Any = stages.data.featurizer

    def spelled(made: Any, feature: int) -> tuple[str, str]:
        return made.kind(feature), made.token(feature)

    place = {spelled(theirs.featurizer, feature): feature for feature in range(theirs.featurizer.width)}
    known = [feature for feature in range(featurizer.width) if spelled(featurizer, feature) in place]
    assert 20 < len(known) < featurizer.width
    for feature in known:
        np.testing.assert_array_equal(
            encoder.table[feature], theirs.ranker.base.encoder.table[place[spelled(featurizer, feature)]]
        )
    assert not encoder.table[[feature for feature in range(featurizer.width) if feature not in known]].any()
    again = train(planted, "initial.source=bundle", f"initial.path={stages_bundle(stages, tmp_path)}")
    assert again.ranker.rank(again.data.documents.rows(slice(0, 3)), 2).ids.shape == (3, 2)


def stages_bundle(stages: Stages, tmp_path: Path) -> Path:
    """A run of galaxc itself."""
    longtail.train(
        with_graph(
            replace(Dataset.from_texts(["cat noise1", "dog noise2"] * 20, [["id-cat"], ["id-dog"]] * 20), name="g")
        ),
        tmp_path / "g",
        stages.recipe,
    )
    return tmp_path / "g"


def test_a_table_of_word_vectors(planted: Dataset, train: Train, tmp_path: Path) -> None:
    features = prepare(planted, recipe().config.features).featurizer.width
    table = np.random.default_rng(0).standard_normal((features, 6)).astype(np.float32)
    np.save(tmp_path / "words.npy", table)
    stages = train(planted, "initial.source=words", f"initial.path={tmp_path / 'words.npy'}")
    assert isinstance(stages.start.space.encoder, FrozenSum)
    np.testing.assert_array_equal(stages.start.space.encoder.table, table)
    np.save(tmp_path / "words.npy", table[1:])
    with pytest.raises(ConfigError, match=f"expected {features} rows"):
        train(planted, "initial.source=words", f"initial.path={tmp_path / 'words.npy'}")


def test_what_has_no_vectors_is_refused(planted: Dataset, train: Train, tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="neither a run nor a bundle"):
        train(planted, "initial.source=bundle", f"initial.path={tmp_path}")
    with pytest.raises(ConfigError, match="no encoder"):
        train(planted, "initial.source=bundle", f"initial.path={tiny_run}")


@pytest.mark.parametrize("file", ["ranker/arrays.safetensors", "featurizer/part.json"])
def test_an_altered_bundle_gives_no_vectors(
    file: str, planted: Dataset, train: Train, tiny_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run / "bundle", tmp_path / "other")
    path = tmp_path / "other" / file
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleError, match=f"{re.escape(str(path))}: the content does not match its SHA-256"):
        train(planted, "initial.source=bundle", f"initial.path={tmp_path / 'other'}")


def test_given_vectors(planted: Dataset, train: Train) -> None:
    """Documents as vectors, labels without anything: they start from their documents."""
    noise = np.random.default_rng(0).standard_normal((120, 12)).astype(np.float32)
    vectors = planted.train.targets.toarray() + 0.1 * noise
    data = replace(
        planted,
        labels=Items(planted.labels.uids),
        train=replace(planted.train, documents=Items(planted.train.documents.uids, vectors=vectors)),
    )
    stages = train(data, "surrogate.epochs=10")
    top = stages.ranker.rank(stages.data.documents, 1)
    assert float(np.asarray(planted.train.targets.toarray()[np.arange(120), top.ids[:, 0]]).mean()) > 0.8


# ---- classifiers ----


def test_link_prediction_compares_what_classifiers_read(planted: Dataset, train: Train) -> None:
    """Labels of the head without classifiers are their mean view, though shortlists go by convolved vectors."""
    ranker = train(planted, "surrogate.head=links", "surrogate.epochs=1").ranker
    views = ranker.label_views()
    np.testing.assert_allclose(ranker.classifier.rows[:], unit_rows(views.score.mean(axis=1)), rtol=1e-5, atol=1e-6)
    assert not np.allclose(unit_rows(views.search), unit_rows(views.score.mean(axis=1)), atol=0.01)


def test_classifiers_start_as_the_cosine_to_their_labels(planted: Dataset, train: Train) -> None:
    stages = train(
        planted,
        "surrogate.epochs=0",
        "surrogate.right=3",
        "surrogate.wrong=-2",
        "surrogate.attention=none",
        "shortlist.beta=1",
    )
    rows, bias = stages.ranker.classifier.rows[:], stages.ranker.classifier.bias
    assert bias is not None
    views = stages.ranker.label_views().score.mean(axis=1)
    cosine = (rows * views).sum(axis=1) / np.linalg.norm(rows, axis=1) / np.linalg.norm(views, axis=1)
    assert cosine.min() > 0.8, "other samples of neighbours than in training, the same direction"
    assert np.ptp(bias) == 0
    assert np.ptp(np.linalg.norm(rows, axis=1)) < 1e-4
    everyone = np.tile(np.arange(12, dtype=np.int32), (120, 1))
    scores = stages.ranker.scores(stages.ranker.views(stages.data.documents).score, everyone)
    assert scores[stages.data.targets.toarray() > 0].mean() > scores.mean() + 1, (
        "right labels score higher from the start"
    )
    chance = train(planted, "surrogate.epochs=0", "surrogate.start=random", "surrogate.bias=false").ranker.classifier
    assert chance.bias is None
    assert np.abs(chance.rows[:]).max() <= 0.25


def test_attention_learns(planted: Dataset, train: Train) -> None:
    before, after = (train(planted, f"surrogate.epochs={epochs}").ranker.alphas for epochs in (0, 4))
    assert before is not None
    assert after is not None
    assert (before != after).any()
    np.testing.assert_allclose(after.sum(axis=1), 1, rtol=1e-5)


# ---- II to IV ----

HARD = ("classify.epochs=3", "classify.count=4", "classify.per_document=2")


def test_hard_negatives_are_near_and_never_positives(planted: Dataset, train: Train) -> None:
    for mask in ("0", "0.5"):
        stages = train(planted, *HARD, f"surrogate.mask_target_edges={mask}")
        assert stages.shortlists.negatives is not None
        ids = stages.shortlists.negatives.ids
        assert ids.shape == (120, 4)
        dense = stages.data.targets.toarray()
        assert not any(dense[row, label] for row in range(120) for label in ids[row] if label >= 0)
    assert train(planted).shortlists.negatives is None
    everyone = train(planted, *HARD, "hops.predict=full").shortlists.negatives
    assert everyone is not None, "hard negatives are seen as in training, whatever prediction looks at"
    assert (everyone.ids >= 0).any()


@pytest.mark.claim("G19")
def test_stage_four_leaves_convolutions_and_their_statistics_alone(
    planted: Dataset, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit-equal parameters and batch-norm buffers; classifiers and attention move."""
    fitted: list[Any] = []

    def remember(objective: Any, *more: Any, **settings: Any) -> None:
        fit_stage(objective, *more, **settings)
        if isinstance(objective, SharedCandidates):
            fitted.append({name: value.clone().numpy() for name, value in objective.encoder.state_dict().items()})

    monkeypatch.setattr(galaxc, "fit_stage", remember)
    stages = train(planted, *HARD)
    first, fourth = fitted
    assert len(first) == 1 + 3 * 7
    for name, value in first.items():
        np.testing.assert_array_equal(value, fourth[name], err_msg=name)
        np.testing.assert_array_equal(value, np.asarray(stages.network.tensors[f"encoder.{name}"]).reshape(value.shape))
    without = train(planted)
    assert isinstance(without.ranker.hops, FrozenHops)
    assert isinstance(stages.ranker.hops, FrozenHops)
    np.testing.assert_array_equal(without.ranker.hops.weight, stages.ranker.hops.weight)
    assert (without.ranker.classifier.rows[:] != stages.ranker.classifier.rows[:]).any()
    assert np.any(without.ranker.alphas != stages.ranker.alphas)


def test_the_index_holds_the_mean_views_of_labels(planted: Dataset, train: Train) -> None:
    stages = train(planted)
    views = stages.ranker.label_views().search
    index: Any = stages.ranker.index
    np.testing.assert_allclose(
        index.vectors, views / np.linalg.norm(views, axis=1, keepdims=True), rtol=1e-4, atol=1e-6
    )
    assert isinstance(train(planted, "shortlist.index=hnsw").ranker.index, HnswIndex)
    assert isinstance(train(planted, "shortlist.index=hnsw").ranker.space.linker, HnswIndex)


# ---- given graphs ----


def test_given_graphs_add_edges(planted: Dataset, train: Train) -> None:
    data = with_graph(planted)
    plain, more = train(data).start.space.graph, train(data, "graph.auxiliary=train").start.space.graph
    assert set(plain.matrix().tocoo().coords[0].tolist()) == set(more.matrix().tocoo().coords[0].tolist())
    added = more.degrees - plain.degrees
    assert added.max() <= 8, "four per node and kind of graph"
    assert added.sum() > 300
    label_edges = more.matrix()[:12, :12].toarray() - plain.matrix()[:12, :12].toarray()
    assert (np.roll(np.eye(12), 1, axis=1) * (1 - label_edges) == 0).all(), "the given label graph is in"
    assert len(
        train(data, "graph.auxiliary=train", "graph.auxiliary_graphs=labels").start.space.graph.neighbours
    ) < len(more.neighbours)


def test_new_documents_are_linked_by_anchors(planted: Dataset, tmp_path: Path) -> None:
    settings = {
        "astec": {"width": 16},
        "surrogate": {"epochs": 4},
        "graph": {"auxiliary": "test", "auxiliary_graphs": ["anchors"]},
    }
    model = longtail.train(with_graph(planted), tmp_path / "run", "galaxc", settings=settings, device="cpu")
    ranker: Any = model.bundle.ranker
    assert next(iter(ranker.anchor_uids)) == f"topic-{planted.labels.uids[0]}"
    texts = ["noise1 noise2", "noise1 noise2", "noise1 noise2"]
    found = model.predict(texts, k=12, anchors=[["topic-id-owl"], ["never heard of"], []])
    alone = model.predict("noise1 noise2", k=12)[0]
    owl_found, owl_alone = ({p.label: p.score for p in listed}["id-owl"] for listed in (found[0], alone))
    assert owl_found > owl_alone, "owls are neighbours now"
    for same in found[1:]:  # up to the last bit: products of one row and of three may round differently
        assert [p.label for p in same] == [p.label for p in alone], (
            "an anchor that training did not know links to nothing"
        )
        assert [p.score for p in same] == pytest.approx([p.score for p in alone], rel=1e-5)
    context = model.context(1, anchors=[["topic-id-owl"]])
    assert context is not None
    links = ranker.space.given(1, context)
    owl = list(planted.labels.uids).index("id-owl")
    owls = {
        owl,
        *ranker.space.graph.neighbours[ranker.space.graph.starts[owl] : ranker.space.graph.starts[owl + 1]].tolist(),
    }
    assert set(links[links >= 0].tolist()) <= owls


def test_anchors_of_several_graphs_with_one_id_are_one(planted: Dataset, train: Train) -> None:
    data = with_graph(planted)
    first = data.graphs["anchors"]
    assert first.anchors is not None
    labels = len(data.labels)
    more = Graph(
        "more",
        Items(["all", "new"], {"title": ["", ""]}),
        labels=csr_array(np.array([[0, 1]] * labels, dtype=np.float32)),
    )
    stages = train(replace(data, graphs={"anchors": first, "more": more}), "graph.auxiliary=test")
    anchors = stages.start.space.anchors
    assert anchors is not None
    assert list(anchors.uids) == [*first.anchors.uids, "new"]
    assert anchors.members.shape == (labels + 2, len(stages.start.space.graph))
    assert anchors.members[[-1]].indices.tolist() == list(range(labels))


def test_graphs_that_are_not_there(planted: Dataset, train: Train) -> None:
    with pytest.raises(ConfigError, match="holds no graph") as raised:
        train(planted, "graph.auxiliary=train")
    assert "graph.auxiliary=none" in raised.value.hint
    with pytest.raises(ConfigError, match="'depends'"):
        train(with_graph(planted), "graph.auxiliary=test", "graph.auxiliary_graphs=depends")


# ---- warm start ----


def test_known_labels_help_on_a_saved_bundle(planted: Dataset, tmp_path: Path) -> None:
    longtail.train(
        planted, tmp_path / "run", "galaxc", settings={"astec": {"width": 16}, "surrogate": {"epochs": 4}}, device="cpu"
    )
    model = Predictor.open(tmp_path / "run" / "bundle")
    cold = model.predict(["noise1 noise2 noise3"], k=12)[0]
    warm = model.predict(["noise1 noise2 noise3"], k=12, known_labels=[["id-cat", "id-owl"]])[0]
    assert {p.label for p in cold} == set(planted.labels.uids)
    assert {p.label for p in warm} == set(planted.labels.uids) - {"id-cat", "id-owl"}
    assert {p.label: p.score for p in cold}["id-pig"] != {p.label: p.score for p in warm}["id-pig"]
    with pytest.raises(ConfigError, match="'id-cta' is not a label") as raised:
        model.predict(["x"], known_labels=[["id-cta"]])
    assert "id-cat" in raised.value.hint
    wrongs: list[Any] = [[["id-cat"], []], ["id-cat"], [[3]]]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="known_labels"):
            model.predict(["x"], known_labels=wrong)


def test_models_that_read_text_alone_refuse(tiny_run: Path) -> None:
    model = Predictor.open(tiny_run)
    mores: list[Any] = [{"known_labels": [["id-cat"]]}, {"anchors": [["a"]]}]
    for more in mores:
        with pytest.raises(ConfigError, match="'tiny' reads text alone"):
            model.predict(["a cat"], **more)


# ---- settings that contradict each other ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("surrogate.mask_target_edges=0.5", "hops.sampling=full"), "mask_target_edges"),
        (("hops.encoder=gin", "hops.predict=full"), "samples of neighbours"),
        (("hops.encoder=sage", "hops.mean=true"), "hops.encoder=galaxc"),
        (("surrogate.head=links", "classify.epochs=1"), "stage IV"),
        (("surrogate.bias=false",), "bias"),
        (("surrogate.right=1", "surrogate.wrong=1"), "not below"),
        (("initial.source=bundle",), "initial.path"),
        (("hops.fanouts=[]",), "fanouts"),
    ],
)
def test_contradictions_are_refused_before_any_training(
    settings: tuple[str, ...], message: str, planted: Dataset, train: Train
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(planted, *settings)


def test_all_neighbours_are_for_the_cpu_alone() -> None:
    made = recipe("hops.sampling=full", *VARIANTS["seen"])
    check(made.config, "cpu")
    with pytest.raises(ConfigError, match="not on cuda"):
        check(made.config, "cuda")


def test_all_neighbours_in_training_and_prediction(planted: Dataset, train: Train) -> None:
    stages = train(planted, "hops.sampling=full", "hops.predict=full", *VARIANTS["seen"], "hops.mean=true")
    assert stages.start.space.fanout.full
    assert (stages.ranker.rank(stages.data.documents.rows(slice(0, 5)), 2).ids >= 0).all()
