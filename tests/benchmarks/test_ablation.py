"""Slices of data that choices are made on: a part of the labels is a data set of its own, with nothing shifted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.ablation import of_some_labels, read_variants

from longtail.data.dataset import Dataset
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import ConfigError


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthesise(
        SyntheticConfig(documents=300, test_documents=20, labels=80, topics=5, share_documents_are_labels=0.2), 0
    ).dataset


def pairs(data: Dataset, table: np.ndarray) -> set[tuple[str, str]]:
    return {(data.train.documents.uids[document], data.labels.uids[label]) for document, label in table}


def test_some_labels_keep_their_documents_and_everything_known_of_both(data: Dataset) -> None:
    part = of_some_labels(data, 30)
    kept = set(part.labels.uids)
    assert len(kept) == 30
    assert part.test is None
    whole_pairs = pairs(data, np.stack(data.train.targets.nonzero(), axis=1))
    assert pairs(part, np.stack(part.train.targets.nonzero(), axis=1)) == {
        each for each in whole_pairs if each[1] in kept
    }
    documents = set(part.train.documents.uids)
    assert documents == {document for document, label in whole_pairs if label in kept}
    masked = pairs(part, part.train.masked)
    assert masked == {each for each in pairs(data, data.train.masked) if each[0] in documents and each[1] in kept}
    assert masked, "the planted data has documents that are labels"
    title = dict(zip(data.labels.uids, data.labels.titles(), strict=True))
    assert part.labels.titles() == [title[uid] for uid in part.labels.uids]


def test_graphs_follow(data: Dataset) -> None:
    part = of_some_labels(data, 30, documents=50)
    assert len(part.train) == 50
    whole, graph = data.graphs["anchors"], part.graphs["anchors"]
    for side, items, all_items in (
        ("documents", part.train.documents, data.train.documents),
        ("labels", part.labels, data.labels),
    ):
        rows = [list(all_items.uids).index(uid) for uid in items.uids]
        np.testing.assert_array_equal(getattr(graph, side).toarray(), getattr(whole, side).toarray()[rows])
    assert len(part.hold_out(0.1, 0).train) == 45


def test_variants_of_one_recipe_or_of_several(tmp_path: Path) -> None:
    plain, several = tmp_path / "plain.json", tmp_path / "several.json"
    plain.write_text(json.dumps({"short": ["train.epochs=1"]}))
    several.write_text(json.dumps({"ance": {"short": ["train.epochs=1"]}, "gnnxml": {"no": ["matcher.epochs=0"]}}))
    assert read_variants(plain, None) == {"short": ("direct", ["train.epochs=1"])}
    assert read_variants(plain, "ance") == {"short": ("ance", ["train.epochs=1"])}
    both = {"ance: short": ("ance", ["train.epochs=1"]), "gnnxml: no": ("gnnxml", ["matcher.epochs=0"])}
    assert read_variants(several, None) == both
    assert read_variants(several, "gnnxml") == {"gnnxml: no": both["gnnxml: no"]}
    with pytest.raises(ConfigError, match="no variants of 'galaxc'"):
        read_variants(several, "galaxc")
    plain.write_text(json.dumps({"wrong": ["train.epoch=1"]}))
    with pytest.raises(ConfigError, match="epoch"):
        read_variants(plain, None)


def test_committed_variants_have_settings_that_exist_and_differ() -> None:
    files = sorted((Path(__file__).parents[2] / "benchmarks" / "variants").glob("*.json"))
    assert files
    for file in files:
        variants = read_variants(file, None)
        assert len({(recipe, *settings) for recipe, settings in variants.values()}) == len(variants)
