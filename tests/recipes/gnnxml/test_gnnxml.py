"""GNN-XML end to end on planted long texts: it learns, every ablation runs, strange texts do no harm, a resumed run
is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail.data.dataset import Dataset, Items, Split
from longtail.errors import ConfigError
from longtail.metrics import drop_masked_targets
from longtail.persistence import load_part
from longtail.predictor import Predictor
from longtail.recipes import make_recipe
from longtail.recipes.gnnxml.label_clusters import FrequencyCurves
from longtail.recipes.gnnxml.ranker import Clusters, KeygraphModel, Matcher
from longtail.recipes.gnnxml.recipe import GnnXml
from longtail.recipes.gnnxml.settings import VARIANTS, GnnXmlConfig, RankerConfig
from longtail.training.prepare import prepare
from longtail.training.run import Run

TOPICS, EACH = 6, 3
SMALL = (
    "features.fields=title,content",
    "features.keygraph.width=16",
    "matcher.width=12",
    "matcher.epochs=5",
    "matcher.batch=16",
    "clusters.count=6",
    "rankers.beam=3",
    "rankers.mistakes=2",
)


def long_texts(documents: int = 180, test: int = 60, seed: int = 0) -> Dataset:
    """18 labels in 6 topics. A document has one or two labels of a topic: a sentence for each, of its own and of
    topical words, and a vague title.
    """
    rng = np.random.default_rng(seed)

    def side(count: int) -> tuple[list[dict[str, str]], list[list[str]]]:
        texts, labels = [], []
        for number in range(count):
            topic = number % TOPICS
            chosen = rng.choice(EACH, int(rng.integers(1, 3)), replace=False)
            noise = rng.integers(40, size=(len(chosen), 2))
            about = f"word meets topic{topic} and topic{topic}x"
            sentences = [
                f"The own{topic}{label} {about} noise{a}. It is so noise{b}."
                for label, (a, b) in zip(chosen, noise, strict=True)
            ]
            texts.append({"title": f"document about something{number % 5}", "content": " ".join(sentences)})
            labels.append([f"L{topic}{label}" for label in chosen])
        return texts, labels

    texts, labels = side(documents)
    test_texts, test_labels = side(test)
    names = {f"L{topic}{label}": f"own{topic}{label}" for topic in range(TOPICS) for label in range(EACH)}
    return Dataset.from_texts(texts, labels, names, test_texts=test_texts, test_labels=test_labels, name="long")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return long_texts()


@pytest.fixture(scope="module")
def trained(data: Dataset, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Callable[..., Predictor]:
    """Trains each set of settings once."""
    made: dict[tuple[str, ...], Predictor] = {}

    def train(*settings: str) -> Predictor:
        if settings not in made:
            recipe = make_recipe("gnnxml", assignments=[*SMALL, *settings])
            made[settings] = longtail.train(data, tmp_path_factory.mktemp("gnnxml") / "run", recipe, device="cpu")
        return made[settings]

    return train


def run_of(model: Predictor) -> Path:
    return model.bundle.folder.parent


def test_it_learns_from_the_content(trained: Callable[..., Predictor], data: Dataset) -> None:
    assert longtail.evaluate(trained("matcher.epochs=10"), data)["P@1"] > 90
    assert longtail.evaluate(trained("features.fields=title"), data)["P@1"] < 30, "titles say nothing here"


def test_clusters_are_the_topics(trained: Callable[..., Predictor], data: Dataset) -> None:
    ranker = trained().bundle.ranker
    assert isinstance(ranker, KeygraphModel)
    topic = np.array([int(uid[1]) for uid in data.labels.uids])
    assert len({(a, b) for a, b in zip(topic, ranker.rankers.clusters.tolist(), strict=True)}) == TOPICS, (
        "one cluster per topic, one topic per cluster"
    )


ABLATIONS = {
    **VARIANTS,
    "rebalance alone": ("matcher.branches=rebalance",),
    "separate": ("matcher.share=none", "matcher.learned_eps=true", "matcher.weighted=true"),
    "all shared": ("matcher.share=all", "matcher.readout=mean", "matcher.weigh_positives=false"),
    "linear balance": ("matcher.balance=linear", "matcher.reverse_by=cluster"),
    "constant balance": ("matcher.balance=constant",),
    "by label text": ("clusters.features=label_text", "clusters.order=1"),
    "by both": ("clusters.features=both", "clusters.partition=even"),
    "sampled": ("clusters.sample=50", "clusters.order=2"),
    "directed": ("clusters.directed=true",),
    "rankers on words and graphs": ("rankers.reads=both", "rankers.mistakes=0"),
    "rankers on graphs": ("rankers.reads=graph", "rankers.graph_weight=3"),
    "soft gates": ("rankers.cluster_power=0.5", "rankers.logit_scale=0.5", "rankers.reach=9", "rankers.rarity=0.1"),
    "unit read-out by rare labels": ("matcher.readout=unit", "matcher.best_by=rare", "matcher.validation=0.3"),
    "windows": ("features.keygraph.unit=window", "features.keygraph.ner=capitals"),
    "validation": ("matcher.validation=0.3",),  # with less, so few documents would be held out that none are
    "no epochs": ("matcher.epochs=0",),
}


@pytest.mark.parametrize("settings", ABLATIONS.values(), ids=ABLATIONS)
def test_every_ablation_runs_and_knows_more_than_chance(
    trained: Callable[..., Predictor], data: Dataset, settings: tuple[str, ...]
) -> None:
    found = longtail.evaluate(trained(*settings), data)["P@1"]
    assert found > (8 if "matcher.epochs=0" in settings else 35)


def test_variants_change_what_they_say(trained: Callable[..., Predictor]) -> None:
    rankers: dict[str, Any] = {name: trained(*VARIANTS[name]).bundle.ranker for name in ("v1", "v2", "v3", "v4")}
    encoders = {name: ranker.encoder for name, ranker in rankers.items()}
    assert [len(encoder.branches) for encoder in encoders.values()] == [1, 1, 2, 2]
    assert [encoder.concat for encoder in encoders.values()] == [True, False, False, True]
    assert not encoders["v1"].common
    assert not encoders["v1"].branches["conventional"].layers
    widths = [len(next(iter(encoder.branches.values())).scale) for encoder in encoders.values()]
    assert widths == [16, 12, 12, 16 + 2 * 12]


# ---- strange texts ----

STRANGE = [
    "",
    " ",
    "stranger",
    "own00",
    "!?",
    "我们喜欢猫。狗也很好",
    "own00 " * 10_000,
    " ".join(f"w{n}" for n in range(10_000)),
    "a\0b \ud800 own11",
]


def test_strange_texts_are_predicted(trained: Callable[..., Predictor]) -> None:
    found = trained("matcher.epochs=10").predict(STRANGE, k=3)
    assert [len(labels) for labels in found[:3]] == [0, 0, 0], "nothing is known of them, so nothing is said"
    assert found[3][0].label == "L00"
    assert found[8][0].label == "L11"
    for labels in found:
        assert all(0 <= p.score <= 1 for p in labels)


def test_strange_texts_are_trained_on(tmp_path: Path) -> None:
    texts = [
        {"title": text, "content": f"own{n % 4} sentence. Another own{n % 4}."}
        for n, text in enumerate(STRANGE[:-1] * 4)
    ]
    labels = [[f"L{n % 4}"] for n in range(len(texts))]
    model = longtail.train(
        Dataset.from_texts(texts, labels, name="strange"),
        tmp_path / "run",
        make_recipe("gnnxml", assignments=[*SMALL[:-3]]),
        device="cpu",
    )
    assert model.predict("own2 sentence")[0][0].label == "L2"


def test_one_label_and_one_document(tmp_path: Path) -> None:
    model = longtail.train(
        Dataset.from_texts(["a cat sat"], [["x"]], name="one"),
        tmp_path / "run",
        "gnnxml",
        settings={"matcher": {"epochs": 2}},
        device="cpu",
    )
    assert [p.label for p in model.predict("the cat")[0]] == ["x"]


def test_data_of_vectors_is_refused(tmp_path: Path) -> None:
    vectors = Items(["a", "b"], vectors=np.eye(2, dtype=np.float32))
    made = Dataset.from_texts(["x", "y"], [["1"], ["2"]])
    with pytest.raises(ConfigError, match="no text"):
        longtail.train(replace(made, train=Split(vectors, made.train.targets)), tmp_path / "run", "gnnxml")


def test_label_text_is_asked_for_only_where_there_is_some(data: Dataset, tmp_path: Path) -> None:
    nameless = replace(data, labels=Items(data.labels.uids))
    with pytest.raises(ConfigError, match="labels have no text"):
        longtail.train(
            nameless,
            tmp_path / "run",
            make_recipe("gnnxml", assignments=[*SMALL, "clusters.features=label_text"]),
            device="cpu",
        )


# ---- the stages ----


def test_what_the_stages_leave(trained: Callable[..., Predictor], data: Dataset) -> None:
    run = run_of(trained())
    matcher, prepared = load_part(run / "stages" / "2_shortlist"), load_part(run / "stages" / "0_prepare")
    assert isinstance(matcher, Matcher)
    assert matcher.found.shape == (prepared.n_documents, 2)
    np.testing.assert_array_equal(matcher.found_clusters().sum(axis=1), 2)
    curves = load_part(run / "analysis" / "frequencies")
    assert isinstance(curves, FrequencyCurves)
    assert curves.labels.sum() == drop_masked_targets(data.train.targets, data.train.masked).nnz
    assert curves.words.tolist() == np.asarray(prepared.documents.graphs.words).tolist()
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = next(event for event in events if event["event"] == "clusters")
    assert (told["count"], told["frequent_labels"]) == (6, curves.frequent_shares()[0])


def test_documents_are_held_out_only_where_there_are_enough(data: Dataset, tmp_path: Path) -> None:
    recipe = GnnXml(GnnXmlConfig())
    with Run.open(tmp_path / "run", {}) as run:
        train, validation = recipe.held_out(1000, run)
        assert (len(train), len(validation)) == (950, 50)
        assert len(np.union1d(train, validation)) == 1000
        assert [len(rows) for rows in recipe.held_out(399, run)] == [399, 0]


def test_the_beam_adapts(data: Dataset) -> None:
    prepared = prepare(data, GnnXmlConfig().features)
    assert GnnXml(GnnXmlConfig()).beam(prepared, 6) == 5, "log2 of 18 labels"
    assert GnnXml(GnnXmlConfig()).beam(prepared, 3) == 3
    by_labels = GnnXml(GnnXmlConfig(rankers=RankerConfig(reach=7)))
    assert by_labels.beam(prepared, 6) == 6, "which of them are looked into depends on the document"
    clusters = Clusters(np.arange(len(data.labels), dtype=np.int32) % 6)
    assert by_labels.worth(prepared, clusters)[1] == 3, "three clusters of three labels"
    assert GnnXml(GnnXmlConfig()).memory(prepared) > 2**28


def test_graphs_may_be_kept_in_a_folder(data: Dataset, trained: Callable[..., Predictor], tmp_path: Path) -> None:
    recipe = make_recipe("gnnxml", assignments=[*SMALL, f"features.keygraph.cache={tmp_path / 'cache'}"])
    model = longtail.train(data, tmp_path / "run", recipe, device="cpu")
    test = data.need_test().documents
    np.testing.assert_array_equal(model.rank(test, 5).scores, trained().rank(test, 5).scores)


def test_the_number_of_threads_does_not_matter(data: Dataset, trained: Callable[..., Predictor]) -> None:
    import numba

    launched: Any = numba.config
    test, before = data.need_test().documents, numba.get_num_threads()
    alone = trained().rank(test, 5)
    try:
        numba.set_num_threads(min(2, launched.NUMBA_NUM_THREADS))
        both = trained().rank(test, 5)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(both.ids, alone.ids)
    np.testing.assert_array_equal(both.scores, alone.scores)
