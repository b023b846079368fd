"""Worlds and measures of GNN-XML's claims: planted texts are what they say, numbers are those of plain counting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.claims.crafted_worlds import IDLE_SENTENCES, long_text_world
from benchmarks.claims.keygraph_measures import _graphs, _network, _rankers, cluster_quality, frequent_shares
from benchmarks.claims.measures import Trained
from benchmarks.claims.worlds import World
from tests.recipes.gnnxml.one_graph import keygraph

import longtail
from longtail.persistence import load_part
from longtail.recipes import make_recipe
from longtail.recipes.gnnxml.keygraph import KeyGraphConfig
from longtail.recipes.gnnxml.label_clusters import FrequencyCurves
from longtail.recipes.gnnxml.ranker import joined
from longtail.types import Batch

SMALL: dict[str, Any] = {"documents": 150, "test_documents": 80, "labels": 60, "topics": 5, "graph_coverage": 0.0}


def test_a_body_has_sentences_of_each_label() -> None:
    data = long_text_world(0, sentences=3, **SMALL)
    again = long_text_world(0, sentences=3, **SMALL)
    assert data.digest == again.digest
    assert data.digest != long_text_world(1, sentences=3, **SMALL).digest
    assert set(data.train.documents.fields) == {"title", "content"}
    words = {label: set(title.split()) for label, title in enumerate(data.labels.fields["title"])}
    body = data.train.documents.fields["content"][0]
    sentences = [set(sentence.split()) for sentence in keygraph(body, KeyGraphConfig(unit="sentence")).sentences]
    labels = data.train.targets.indices[: data.train.targets.indptr[1]].tolist()
    assert len(sentences) >= 3 * len(labels) + IDLE_SENTENCES
    for label in labels:
        assert sum(bool(sentence & words[label]) for sentence in sentences) >= 3
    assert not len(data.train.masked)


def test_synonyms_are_other_spellings_and_noise_says_nothing() -> None:
    plain, many = (long_text_world(0, synonyms=n, **SMALL) for n in (1, 4))
    assert plain.labels.fields == many.labels.fields
    own = set(" ".join(plain.labels.fields["title"]).split())
    said = [
        set(" ".join(data.train.documents.fields["content"]).lower().replace(".", "").split()) for data in (plain, many)
    ]
    assert len(own & said[0]) > len(own) / 2
    variants = {word for word in said[1] if word[:-1] in own and word[-1] in "abcd"}
    assert len(variants) > 2 * len(own & said[0])
    silent = long_text_world(0, text_informativeness=0.0, token_dropout=0.0, **SMALL)
    assert not own & set(" ".join(silent.train.documents.fields["content"]).lower().replace(".", "").split())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Trained:
    data = long_text_world(0, **SMALL)
    folder = tmp_path_factory.mktemp("claims")
    recipe = make_recipe(
        "gnnxml",
        assignments=[
            "features.fields=title,content",
            "features.keygraph.width=8",
            "matcher.width=8",
            "matcher.epochs=1",
            "clusters.count=6",
            "rankers.beam=2",
        ],
    )
    longtail.train(data, folder / "run", recipe, device="cpu")
    return Trained(folder, World.of(data), 0, {})


def test_cluster_recall_by_counting(trained: Trained) -> None:
    model: Any = trained.predictor.bundle.ranker
    batch = trained.predictor.bundle.featurizer.batch(trained.world.dataset.need_test().documents)
    looked, truth = model.best_clusters(batch).ids, trained.world.yardstick.truth
    shares = []
    for document in range(truth.shape[0]):
        labels = truth.indices[truth.indptr[document] : truth.indptr[document + 1]]
        if len(labels):
            shares.append(np.mean([model.rankers.clusters[label] in looked[document] for label in labels]))
    found = cluster_quality(trained)
    assert found["cluster recall"].value == pytest.approx(100 * np.mean(shares))
    assert 0 < found["training LMI"].value < 100
    assert 0 < found["LMI"].value < 100


def test_frequent_shares_are_those_of_the_curves(trained: Trained) -> None:
    curves = load_part(trained.run / "analysis" / "frequencies")
    assert isinstance(curves, FrequencyCurves)
    found = frequent_shares(trained)
    assert (found["frequent labels"].value, found["frequent clusters"].value) == pytest.approx(
        curves.frequent_shares(30)
    )
    assert found["frequent clusters"].value > found["frequent labels"].value


def test_models_of_the_probe_are_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graphs = _graphs(rng)
    assert joined(_network(rng).represent(Batch(graphs=graphs))).shape == (len(graphs), 257)
    rankers = _rankers(600, 10, rng)
    assert np.bincount(rankers.clusters).tolist() == [60] * 10
