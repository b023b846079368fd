"""A model split by label: its shards together answer as it does, to the last bit."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail
from longtail import labels
from longtail.bundle import digest_of, open_bundle
from longtail.cli import main
from longtail.data.dataset import Dataset
from longtail.errors import BundleError, ConfigError
from longtail.models.encoders import FrozenDense
from longtail.models.gathered import ranked
from longtail.models.rankers import Ensemble, IndexedRows
from longtail.predictor import Predictor
from longtail.recipes.direct.memory import RememberingRows
from longtail.search.index import ExactIndex
from longtail.search.packed import PackedIndex
from longtail.search.split import ShardLists, SplitIndex
from longtail.splitting import split
from longtail.types import Batch, Ranker, TopK

SETTINGS = {"encoder": {"width": 16}, "train": {"epochs": 3}, "memory": {"depth": 7}}


@pytest.fixture(scope="module")
def run(planted: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("split") / "run"
    longtail.train(planted, folder, settings=SETTINGS, device="cpu")
    return folder


@pytest.mark.parametrize("dtype", [None, "int8", "float16"])
@pytest.mark.parametrize("shards", [1, 3])
def test_shards_answer_as_the_whole(
    run: Path, planted: Dataset, tmp_path: Path, shards: int, dtype: Literal["int8", "float16"] | None
) -> None:
    model = run
    if dtype is not None:
        longtail.pack(run, tmp_path / "packed", dtype, index="exact")
        model = tmp_path / "packed"
    folders = split(model, tmp_path / "shards", shards)
    assert len(folders) == shards
    whole, joined = Predictor.open(model), Predictor.open(tmp_path / "shards")
    assert list(joined.labels) == list(whole.labels)
    assert list(joined.label_names) == list(whole.label_names)
    np.testing.assert_array_equal(joined.bundle.labels.counts, whole.bundle.labels.counts)
    documents = planted.test.documents if planted.test is not None else planted.train.documents
    for k in (1, 5, 200):  # 200: more than there are
        wanted, found = whole.rank(documents, k), joined.rank(documents, k)
        np.testing.assert_array_equal(found.ids, wanted.ids)
        np.testing.assert_array_equal(found.scores, wanted.scores)
    np.testing.assert_array_equal(
        joined.bundle.ranker.label_vectors(),
        whole.bundle.ranker.label_vectors(),
    )


def test_a_model_whose_labels_were_changed(run: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(run / "bundle", model)
    labels.rename(model, "id-owl", "the wise owl")
    for change in ("retire", "add"):
        labels.retire(model, ["id-hen"]) if change == "retire" else labels.add(model, {"x": "hen"})
        with pytest.raises(ConfigError, match="labels were added, merged or retired since training") as caught:
            split(model, tmp_path / "shards", 2)
        assert f"longtail labels undo {model}" in caught.value.hint
        labels.undo(model)
    split(model, tmp_path / "shards", 2)
    assert "the wise owl" in Predictor.open(tmp_path / "shards").label_names


def test_a_shard_by_itself_knows_its_own_labels(run: Path, tmp_path: Path) -> None:
    second = split(run, tmp_path / "shards", 3)[1]
    assert second.name == "shard-2-of-3"
    alone, whole = Predictor.open(second), Predictor.open(run)
    assert list(alone.labels) == list(whole.labels)[1::3]
    text = whole.label_names[4]
    (found,) = alone.predict([text], k=len(alone.labels))
    assert {one.label for one in found} <= set(alone.labels)
    assert alone.metrics is None or not alone.metrics


def test_an_ensemble_is_split(planted: Dataset, tmp_path: Path) -> None:
    small = {**SETTINGS, "train": {"epochs": 1}, "ensemble": {"learners": 2}}
    longtail.train(planted, tmp_path / "run", settings=small, device="cpu")
    split(tmp_path / "run", tmp_path / "shards", 2)
    wanted, found = (Predictor.open(tmp_path / name).rank(planted.train.documents, 5) for name in ("run", "shards"))
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    whole = Predictor.open(tmp_path / "run")
    assert_as_the_whole(whole.bundle.ranker, whole.batch(planted.train.documents), 5, 3)


def test_on_the_command_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", str(run), str(tmp_path / "shards"), "--shards", "2"]) == 0
    assert "shard-2-of-2" in capsys.readouterr().out
    assert main(["predict", str(tmp_path / "shards"), "a cat", "--format", "jsonl"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["predict", str(run), "a cat", "--format", "jsonl"]) == 0
    assert found == json.loads(capsys.readouterr().out)


def test_what_cannot_be_put_together_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--shards 1000 of a model"):
        split(run, tmp_path / "shards", 1000)
    split(run, tmp_path / "shards", 3)
    with pytest.raises(ConfigError, match="exists already"):
        split(run, tmp_path / "shards", 3)
    shutil.copytree(tmp_path / "shards", tmp_path / "two")
    shutil.rmtree(tmp_path / "two" / "shard-2-of-3")
    with pytest.raises(BundleError, match=r"not all shards of one model \(2 folders"):
        Predictor.open(tmp_path / "two")
    with pytest.raises(BundleError, match="a folder of shards, not a bundle"):
        longtail.bundle.find_bundle(tmp_path / "shards")


def test_forged_shards_are_refused(run: Path, tmp_path: Path) -> None:
    split(run, tmp_path / "shards", 2)
    first, second = (tmp_path / "shards" / f"shard-{number}-of-2" for number in (1, 2))
    for forged in ({"shard": [1]}, {"shard": "abc"}, {"n_labels": None}):
        manifest = json.loads((first / "manifest.json").read_text())
        head = {name: value for name, value in (manifest | forged).items() if value is not None}
        head.pop("manifest_sha256")
        (first / "manifest.json").write_text(json.dumps({**head, "manifest_sha256": digest_of(head)}))
        with pytest.raises(BundleError, match=f"'{next(iter(forged))}' is"):
            Predictor.open(tmp_path / "shards")
        (first / "manifest.json").write_text(json.dumps(manifest))
    opened = [open_bundle(folder) for folder in (first, second)]
    ranker: Any = opened[1].ranker
    fewer = ranker.memory.documents[:-1]
    memory = replace(
        ranker.memory, documents=fewer, targets=ranker.memory.targets[:-1], inverse=ranker.memory.inverse.of(fewer)
    )
    other = replace(opened[1], ranker=replace(ranker, memory=memory))
    with pytest.raises(BundleError, match="do not fit together"):
        longtail.bundle._joined(tmp_path / "shards", [opened[0], other])


def test_models_that_cannot_be_split_say_so(run: Path, planted: Dataset, tmp_path: Path) -> None:
    longtail.train(planted, tmp_path / "run", "tiny")
    with pytest.raises(ConfigError, match="cannot be split"):
        split(tmp_path / "run", tmp_path / "shards", 2)
    assert not (tmp_path / "shards").exists()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_merging_is_exact_with_ties(items: int, parts: int, k: int, seed: int) -> None:
    """Whole numbers: many scores are equal, and the lower number wins as it does in one index."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-1, 2, (items, 3)).astype(np.float32)
    queries = rng.integers(-1, 2, (12, 3)).astype(np.float32)
    for whole in (
        ExactIndex(vectors, "dot"),
        PackedIndex.of(ExactIndex(vectors, "dot"), "int8", last_whole=True),
    ):
        index = SplitIndex(whole.shards(min(parts, items)))
        assert len(index) == items
        wanted, found = whole.query(queries, k), index.query(queries, k)
        np.testing.assert_array_equal(found.ids, wanted.ids)
        np.testing.assert_array_equal(found.scores, wanted.scores)
        np.testing.assert_array_equal(index.read(), whole.read())
        np.testing.assert_array_equal(index.read(np.array([items - 1, 0])), whole.read(np.array([items - 1, 0])))


def test_parts_of_other_indices_are_refused() -> None:
    three, one = (ExactIndex(np.zeros((n, 2), np.float32), "dot") for n in (3, 1))
    with pytest.raises(ValueError, match=r"parts of \[1, 3\] items"):
        SplitIndex((one, three))


# ---- shards that are asked by themselves ----


def by_shards(ranker: Ranker, batch: Batch, shards: int, k: int) -> TopK:
    """As over a line: each shard alone, document by document."""
    found = [part.found(batch, k) for part in ranker.shards(shards)]
    again = [ShardLists.stacked([one.rows(n, n + 1) for n in range(len(batch))]) for one in found]
    return ranked(again, k, int(getattr(ranker, "n_labels", 0)))


def assert_as_the_whole(ranker: Ranker, batch: Batch, shards: int, k: int) -> None:
    wanted, found = ranker.rank(batch, k), by_shards(ranker, batch, shards, k)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.scores, wanted.scores)


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_what_shards_find_makes_the_ranking_of_the_whole(run: Path, planted: Dataset, shards: int) -> None:
    """Votes are on the best of all labels, which no shard knows; 5 shards of 12 labels are uneven."""
    whole = Predictor.open(run)
    assert isinstance(whole.bundle.ranker, RememberingRows)
    batch = whole.bundle.featurizer.batch_of_texts([*planted.train.documents.fields["title"], "nothing known"])
    for k in (1, 3, 9, 200):
        assert_as_the_whole(whole.bundle.ranker, batch, shards, k)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_gathering_is_exact_where_scores_round_to_one(labels: int, parts: int, k: int, models: int, seed: int) -> None:
    """Rows far apart whose sigmoids are equal stay in the order of rows; of several models each counts as it would."""
    rng = np.random.default_rng(seed)
    batch = Batch(dense=rng.integers(0, 3, (9, 2)).astype(np.float32))
    rows = [rng.integers(-30, 31, (labels, 3)).astype(np.float32) for _ in range(models)]
    members = tuple(IndexedRows(FrozenDense(), None, ExactIndex(one, "dot")) for one in rows)
    whole = members[0] if models == 1 else Ensemble(members, depth=4)
    assert_as_the_whole(whole, batch, min(parts, labels), k)


def test_models_that_were_never_split_are_no_shards(tiny_run: Path) -> None:
    tiny = Predictor.open(tiny_run).bundle
    with pytest.raises(ConfigError, match="is no shard of another"):
        tiny.ranker.found(tiny.featurizer.batch_of_texts(["a cat"]), 3)


def test_lists_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="lists and votes of the shapes"):
        ShardLists((TopK.padding(2, 3),), (np.zeros((2, 2), np.float32),))
    with pytest.raises(ValueError, match="lists and votes of the shapes"):
        ShardLists((TopK.padding(2, 3), TopK.padding(2, 3)), (np.zeros((2, 3), np.float32),))
