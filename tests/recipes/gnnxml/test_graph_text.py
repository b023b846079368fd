"""The featurizer of keyword graphs: both views, label vectors, the folder that keeps graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.data.dataset import Items
from longtail.errors import ConfigError, DataError
from longtail.features.base import Featurizer, make_featurizer
from longtail.persistence import load_part, save_part
from longtail.recipes.gnnxml.features import GraphFeaturesConfig, GraphText
from longtail.recipes.gnnxml.keygraph import KeyGraphConfig, KeyGraphs
from longtail.types import Batch

TITLES = ["cats and mice", "dogs", "", "a bird that sings"]
BODIES = ["Cats chase mice. Mice hide.", "Dogs bark. Dogs bite.", "", ""]
DOCUMENTS = Items(["a", "b", "c", "d"], {"title": TITLES, "content": BODIES})
LABELS = Items(["x", "y"], {"title": ["cats", "dogs bark"]})
CONFIG = GraphFeaturesConfig(fields=("title", "content"), source="text", keygraph=KeyGraphConfig(width=4))


def made(config: GraphFeaturesConfig = CONFIG, documents: Items = DOCUMENTS) -> tuple[GraphText, Batch, Batch]:
    part, batch, labels = make_featurizer(documents, LABELS, config)
    assert isinstance(part, GraphText)
    assert labels is not None
    return part, batch, labels


def graphs(batch: Batch) -> KeyGraphs:
    assert isinstance(batch.graphs, KeyGraphs)
    return batch.graphs


def same(a: Batch, b: Batch) -> None:
    different: Any = a.sparse != b.sparse
    assert different.nnz == 0
    for name, array in graphs(a).state().arrays.items():
        np.testing.assert_array_equal(array, graphs(b).state().arrays[name], err_msg=name)


def test_both_views_and_what_fit_gives_is_what_batch_gives(tmp_path: Path) -> None:
    part, batch, labels = made()
    assert isinstance(part, Featurizer)
    assert part.fields == ("title", "content")
    assert batch.sparse is not None
    assert part.width == batch.sparse.shape[1]
    same(part.batch(DOCUMENTS), batch)
    save_part(part, tmp_path / "part")
    same(load_part(tmp_path / "part").batch(DOCUMENTS), batch)
    assert np.diff(graphs(batch).sentence_starts).tolist() == [3, 3, 0, 1], "a title is a sentence of its own"
    assert batch.is_empty().tolist() == [False, False, True, False]
    assert labels.dense is not None
    assert labels.dense.shape == (2, 4)
    assert part.label_batch(Items(["x"])) is None
    one_text = part.batch_of_texts(["Cats. Mice."])
    assert np.diff(graphs(one_text).sentence_starts).tolist() == [2]


def test_words_of_very_many_documents_are_no_keywords() -> None:
    documents = Items(
        [str(n) for n in range(60)], {"title": [f"package number word{n}" for n in range(60)], "content": [""] * 60}
    )
    assert list(made(CONFIG, documents)[0].common) == ["number", "package"]
    assert not len(made(CONFIG, documents.rows(np.arange(49)))[0].common), "of few documents nothing is common"


def test_graphs_are_written_once_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIG, keygraph=replace(CONFIG.keygraph, cache=str(tmp_path / "cache")))
    _, first, _ = made(config)
    same(first, made()[1])
    places = list((tmp_path / "cache").iterdir())
    assert len(places) == 1
    monkeypatch.setattr(GraphText, "_made", lambda *_: pytest.fail("made again"))
    same(made(config)[1], first)
    monkeypatch.undo()
    made(replace(config, keygraph=replace(config.keygraph, keywords=3)))
    made(config, replace(DOCUMENTS, fields={"title": [*TITLES[:3], "another bird"], "content": BODIES}))
    assert len(list((tmp_path / "cache").iterdir())) == 3, "other settings and other texts have a place of their own"


@pytest.mark.parametrize("spoil", ["truncate", "missing", "json"])
def test_spoilt_graphs_on_disk_are_named(spoil: str, tmp_path: Path) -> None:
    config = replace(CONFIG, keygraph=replace(CONFIG.keygraph, cache=str(tmp_path)))
    made(config)
    place = next(tmp_path.iterdir())
    if spoil == "truncate":
        (place / "neighbours.bin").write_bytes((place / "neighbours.bin").read_bytes()[:-4])
    elif spoil == "missing":
        (place / "vectors.bin").unlink()
    else:
        (place / "about.json").write_text("{}")
    with pytest.raises(DataError, match=place.name):
        made(config)


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        yield from ()
        raise RuntimeError("cut off")

    monkeypatch.setattr(GraphText, "_made", broken)
    with pytest.raises(RuntimeError):
        made(replace(CONFIG, keygraph=replace(CONFIG.keygraph, cache=str(tmp_path))))
    assert not list(tmp_path.iterdir())


def test_vectors_in_place_of_texts_are_refused() -> None:
    vectors = Items(["a", "b"], vectors=np.eye(2, dtype=np.float32))
    with pytest.raises(ConfigError, match="keyword graphs are made of text"):
        make_featurizer(vectors, None, GraphFeaturesConfig())
    with pytest.raises(ConfigError, match="no text"):
        make_featurizer(vectors, None, GraphFeaturesConfig(source="text"))
