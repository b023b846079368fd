"""Batches of documents on the disk are those of documents in memory."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.data.large import LargeFolder
from longtail.data.read import read, write
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.nn.batches import Documents
from longtail.nn.shards import Shard
from longtail.recipes.direct.from_disk import DiskDocuments, DiskTargets
from longtail.recipes.direct.objective import first_bias, marked_targets
from longtail.recipes.direct.recipe import Direct
from longtail.recipes.direct.settings import DirectConfig
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.prepare_large import opened, pack


@pytest.fixture
def both(planted_folder: Path, tmp_path: Path) -> tuple[TrainingSet, TrainingSet]:
    """In memory, and on the disk; some documents are labels."""
    folder = tmp_path / "data"
    write(read(planted_folder), folder, "lf")
    (folder / "filter_labels_trn.txt").unlink(missing_ok=True)
    more = [{"uid": f"m{n}", "title": f"The {name}", "target_ind": [n]} for n, name in enumerate(("owl", "pig", "bee"))]
    with gzip.open(folder / "trn.json.gz", "at") as file:
        file.write("".join(json.dumps(record) + "\n" for record in more))
    features = DirectConfig().features
    data = prepare(read(folder, test=False), features)
    assert len(data.same) == 3
    pack(LargeFolder(folder, 1 << 30), features, tmp_path / "stage", lambda *sizes: None, lambda sentence: None)
    return data, opened(tmp_path / "stage")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("processes", [1, 2])
def test_targets(both: tuple[TrainingSet, TrainingSet], processes: int, rank: int) -> None:
    data, disk = both
    recipe = Direct(DirectConfig())
    graph = label_graph(data.targets, LabelGraphConfig(head_documents=1000), np.random.default_rng(0))
    shard = Shard(data.n_labels, rank % processes, processes)
    plain, masked = recipe.targets(data, graph)
    wanted = marked_targets(plain, masked, "cpu", shard)
    found = DiskTargets(disk, lambda part: recipe.targets(part, graph), "cpu", shard)
    rows = np.random.default_rng(1).permutation(data.n_documents)[:50]
    rows[:3] = data.n_documents - np.arange(1, 4)
    ours, theirs = found.rows(rows), wanted.rows(rows)
    assert (ours.weights < 0).any()
    assert ((ours.weights > 0) & (ours.weights < 1)).any(), "the label graph softens some"
    for name in ("starts", "ids", "weights"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert np.array_equal(found.positive_sums(), wanted.positive_sums())
    assert torch.equal(found.first_bias, first_bias(plain))
    assert (len(found), found.columns) == (len(wanted), wanted.columns)


def test_documents(both: tuple[TrainingSet, TrainingSet]) -> None:
    data, disk = both
    assert disk.everything is not None
    wanted, found = Documents(data.documents), DiskDocuments(disk.everything, "cpu")
    rows = np.array([7, 0, 7, 100])
    ours, theirs = found.rows(rows).need_sparse(), wanted.rows(rows).need_sparse()
    for name in ("starts", "ids", "weights"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    order = np.asarray(found.order(np.random.default_rng(2)))
    assert np.array_equal(order, wanted.order(np.random.default_rng(2)))
