"""What `evaluate --diagnose` and `compare --examples` say about a model is true."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail import Predictor
from longtail.cli import main
from longtail.data.dataset import Dataset
from longtail.diagnosis import diagnose, training_log
from longtail.evaluation import Yardstick, evaluate
from longtail.models.analysis import nearest_labels
from longtail.models.encoders import ResidualMap
from longtail.models.rankers import ClusterModel, Model
from longtail.recipes.galaxc.ranker import JointGraphModel, attention_by_frequency

SMALL = {"surrogate": {"width": 16, "epochs": 2}, "classify": {"epochs": 2}, "reranker": {"enabled": True, "epochs": 1}}


@pytest.fixture(scope="module")
def astec_run(tmp_path_factory: pytest.TempPathFactory, planted_folder: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "astec"
    longtail.train(planted_folder, run, "astec", settings=SMALL, device="cpu")
    return run


def test_sizes_times_and_shortlists(astec_run: Path, planted: Dataset) -> None:
    model = Predictor.open(astec_run)
    found = diagnose(model, Yardstick.of(planted))
    on_disk = sum(
        path.stat().st_size
        for path in (astec_run / "bundle").rglob("*")
        if path.is_file() and path.name != "manifest.json"
    )
    assert found["bytes"]["all"] == on_disk
    assert found["bytes"]["all"] == sum(size for part, size in found["bytes"].items() if part != "all")
    assert list(found["seconds_by_stage"]) == ["0_prepare", "1_surrogate", "2_shortlist", "4_classify"]
    # All 12 labels fit into a shortlist of 500, so nothing is missed at that depth.
    assert found["shortlist_recall"]["R@500"] == 100.0
    assert found["shortlist_recall"]["R@10"] <= 100.0
    assert found["largest_drift_of_x_from_v"] <= 1 + 1e-5
    assert 0 < found["overlap_of_top_100_lists_by_v_and_by_x"] <= 100


def test_a_refinement_that_only_scales_keeps_the_lists(astec_run: Path, planted: Dataset) -> None:
    model = Predictor.open(astec_run)
    reranked: Any = model.bundle.ranker
    inner = reranked.base
    assert isinstance(inner, Model)
    vectors = inner.encoder.encode(model.bundle.featurizer.batch(planted.need_test().documents))
    same = replace(inner, refinement=ResidualMap(np.eye(16, dtype=np.float32)))
    turned = replace(inner, refinement=ResidualMap(-np.ones((16, 16), dtype=np.float32)))
    assert same.list_overlap(vectors, k=3) == 100.0
    # -1 everywhere is cut by the ReLU: x = v again.
    assert turned.list_overlap(vectors, k=3) == 100.0
    mixed = replace(inner, refinement=ResidualMap(np.roll(np.eye(16, dtype=np.float32), 5, axis=0) * 50))
    other = mixed.list_overlap(vectors, k=3)
    assert other is not None
    assert other < 100.0
    assert replace(inner, refinement=None).list_overlap(vectors, k=3) is None


def test_shortlists_of_clusters_have_a_recall_too(planted_folder: Path, planted: Dataset, tmp_path: Path) -> None:
    """Clusters of 6 of the 12 labels, one of them looked into: R@6 is the share of labels in it, and no list is
    longer.
    """
    settings = {**SMALL, "shortlist": {"structures": "clusters", "size": 6}}
    model, yardstick = (
        longtail.train(planted_folder, tmp_path / "run", "astec", settings=settings, device="cpu"),
        Yardstick.of(planted),
    )
    found = diagnose(model, yardstick)
    reranked: Any = model.bundle.ranker
    inner = reranked.base
    assert isinstance(inner, ClusterModel)
    assert inner.shortlist_size == 6
    assert inner.shortlist_map is not None
    vectors = inner.encoder.encode(model.bundle.featurizer.batch(planted.need_test().documents))
    chosen = inner.beam.select(inner.shortlist_map.apply(vectors))[0][:, 0]
    inside = inner.beam.clusters[None, :] == chosen[:, None]
    truth = yardstick.truth.toarray() > 0
    assert found["shortlist_recall"] == {
        "R@10": pytest.approx(100 * np.mean((truth & inside).sum(axis=1) / truth.sum(axis=1)), abs=1e-3)
    }
    assert "largest_drift_of_x_from_v" not in found


def test_nearest_labels_are_those_of_the_nearest_centroid() -> None:
    from scipy.sparse import csr_array

    documents = np.eye(3, dtype=np.float32)
    top = nearest_labels(documents, csr_array(np.eye(3, dtype=np.float32)), documents, 1)
    assert top.ids[:, 0].tolist() == [0, 1, 2]


def test_a_bundle_alone_and_a_model_without_shortlist(tiny_run: Path, planted: Dataset, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tiny_run / "bundle", tmp_path / "alone" / "bundle")
    found = diagnose(Predictor.open(tmp_path / "alone" / "bundle"), Yardstick.of(planted))
    assert found["seconds_by_stage"] == {}
    assert "shortlist_recall" not in found


def test_a_log_is_read_as_far_as_it_was_written(tiny_run: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tiny_run, tmp_path / "run")
    log = tmp_path / "run" / "metrics.jsonl"
    whole = training_log(Predictor.open(tmp_path / "run"))
    assert [event["event"] for event in whole][-1] == "finished"
    log.write_text(log.read_text() + '{"event": "stage", "na\n[1]\n')
    inner = tmp_path / "run" / "members" / "0" / "metrics.jsonl"
    inner.parent.mkdir(parents=True)
    inner.write_text('{"event": "fit", "name": "training", "losses": [1.0]}\n')
    found = training_log(Predictor.open(tmp_path / "run"))
    assert found[:-1] == whole
    assert found[-1]["member"] == 1


def test_the_command_line_shows_both(
    astec_run: Path, tiny_run: Path, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = tmp_path / "n.json"
    assert main(["evaluate", str(astec_run), str(planted_folder), "--diagnose", "--json", str(numbers)]) == 0
    assert json.loads(numbers.read_text())["diagnosis"]["shortlist_recall"]["R@500"] == 100.0
    capsys.readouterr()
    assert (
        main(["compare", str(astec_run), str(tiny_run), str(planted_folder), "--resamples", "10", "--examples", "2"])
        == 0
    )
    shown = capsys.readouterr().out
    assert "* the " in shown
    assert (
        main(["compare", str(tiny_run), str(tiny_run), str(planted_folder), "--resamples", "10", "--examples", "2"])
        == 0
    )
    assert "* the " not in capsys.readouterr().out


def test_inside_a_graph(planted_folder: Path, planted: Dataset, tmp_path: Path) -> None:
    """What the paper of GalaXC looks at: hops by label frequency, recall of embeddings, and what shortlists cost."""
    settings = {"astec": {"width": 16, "epochs": 2}, "surrogate": {"epochs": 2}, "shortlist": {"size": 2}}
    model = longtail.train(planted_folder, tmp_path / "galaxc", "galaxc", settings=settings, device="cpu")
    found = diagnose(model, Yardstick.of(planted))["graph"]
    ranker = model.bundle.ranker
    assert isinstance(ranker, JointGraphModel)
    assert found["nodes"] == 120 + 12
    assert found["edges"] == 2 * planted.train.targets.nnz
    assert found["isolated_nodes"] == 0
    assert list(found["attention_times_length_by_hop"]) == list(
        attention_by_frequency(ranker, model.bundle.labels.counts)[0].names
    )
    assert all(len(row) == 3 for row in found["attention_times_length_by_hop"].values())
    assert found["R@100_of_embeddings"]["initial"] == 100.0, "there are 12 labels"
    assert found["P@1"]["with shortlists"] == pytest.approx(evaluate(model, planted)["P@1"], abs=1e-2)
    assert main(["evaluate", str(tmp_path / "galaxc"), str(planted_folder), "--diagnose"]) == 0
