"""Variants of recipes: each is a valid change, one command trains and measures them, and differences are of the seeds
that both have; slices are data sets of their own, with nothing shifted.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.variants.__main__ import SHOWN, compared, main, read_variants
from benchmarks.variants.choices import ASKED
from benchmarks.variants.slices import data_of, of_some_labels
from tests.recipes.gnnxml.test_keygraph_model import SIZES, MakeGraphs, model_of

from longtail.data.dataset import Dataset
from longtail.data.read import write
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import ConfigError
from longtail.recipes import make_recipe
from longtail.recipes.gnnxml.ranker import Gating

pytestmark = pytest.mark.usefixtures("one_thread")

FILES = sorted((Path(__file__).parents[2] / "benchmarks" / "variants").glob("*.json"))

# ---- which variants there are ----


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_variants_have_settings_that_exist_and_differ(file: Path) -> None:
    for recipe, own in read_variants(file.stem).items():
        configs = [make_recipe(recipe, assignments=settings).config for settings in own.values()]
        assert all(one != other for at, one in enumerate(configs) for other in configs[:at]), recipe


def test_some_recipes_and_some_variants() -> None:
    whole = read_variants("papers")
    assert list(read_variants("papers", ["galaxc"])) == ["galaxc"]
    some = read_variants("papers", only=["eight links"])
    assert list(some["galaxc"]) == ["defaults", "eight links"]
    assert list(some["astec"]) == [next(iter(whole["astec"]))]


def test_what_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (["papers", "DATA", "--recipe", "tiny"], "no variants of 'tiny'"),
        (["papers", "DATA", "--only", "nothing"], "no variant 'nothing'"),
        (["newspapers", "DATA"], "one of direct, graphs, methods, papers, rows"),
    ):
        assert main(words) == 2
        assert why in capsys.readouterr().err
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"direct": {"wrong": ["train.epoch=1"]}}))
    with pytest.raises(ConfigError, match="epoch"):
        read_variants(str(wrong))


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["papers", "--recipe", "galaxc", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(read_variants("papers")["galaxc"])


# ---- one command ----

WORLD = SyntheticConfig(
    documents=400, test_documents=20, labels=60, topics=6, graph_coverage=0.0, share_documents_are_labels=0.1
)
SMALL = {
    "galaxc": ("astec.width=8", "astec.epochs=1", "surrogate.epochs=1", "shortlist.size=10"),
    "eclare": ("surrogate.width=8", "surrogate.epochs=1", "shortlist.epochs=1", "classify.epochs=1"),
    "gnnxml": ("features.keygraph.width=8", "matcher.width=8", "matcher.epochs=1", "rankers.beam=2"),
}


@pytest.mark.parametrize("recipe", SMALL)
def test_one_command_measures_a_model_and_what_it_is_asked(recipe: str, tmp_path: Path) -> None:
    write(synthesise(WORLD).dataset, tmp_path / "planted", "lf")
    file, out = tmp_path / "small.json", tmp_path / "found.json"
    file.write_text(json.dumps({recipe: {"small": list(SMALL[recipe])}}))
    words = [str(file), str(tmp_path / "planted"), "--device", "cpu", "--kept", str(tmp_path / "kept")]
    assert main([*words, "--out", str(out)]) == 0
    numbers = json.loads(out.read_text())["numbers"]
    found = numbers["planted"]["variants"]
    assert numbers["judged on"] == "slice"
    assert numbers["planted"]["n_test"] <= 40, "a tenth of the training documents, not the test documents"
    model = found[f"{recipe}: small"]["mean"]
    assert 0 < model["R@100"] <= 100
    assert {f"{recipe}: small, {name}" for name in ASKED[recipe]} <= set(found)
    if recipe == "galaxc":
        assert f"{recipe}: small, documents that are labels" in found
        every = found[f"{recipe}: small, every label scored"]
        assert every["mean"]["R@100"] > model["R@100"], "shortlists of 10 lose some of 60 labels"
        assert every["beside galaxc: small"]["R@100"][0] > 0
    elif recipe == "eclare":
        assert found["eclare: small, cluster_power 0.5"]["mean"] == model, "the default"
    else:
        assert found["gnnxml: small, gates to the power of 0.5"]["mean"] == model, "the default"
        every = found["gnnxml: small, 300 labels"]["mean"]
        assert every == found["gnnxml: small, 2700 labels"]["mean"], "all 60 labels are looked at"
        assert every["R@100"] > model["R@100"], "two clusters lose some"
    kept = sorted((tmp_path / "kept").iterdir())
    before = [path.stat().st_mtime_ns for path in kept]
    assert main(words) == 0
    assert [path.stat().st_mtime_ns for path in kept] == before, "what is there is not trained again"


def test_what_is_not_asked_of_gates_stays_as_it_was_trained(make_graphs: MakeGraphs) -> None:
    """A number of labels changes how far one looks, and nothing else; a power the power alone."""
    model, _ = model_of(make_graphs(SIZES))
    trained = replace(model, gating=Gating(power=0.25, scale=0.5, reach=2))
    asked = {name: change(trained) for name, change in ASKED["gnnxml"].items()}
    assert asked["300 labels"].gating == Gating(power=0.25, scale=0.5, reach=300)
    assert asked["gates to the power of 0.125"].gating == Gating(power=0.125, scale=0.5, reach=2)
    assert asked["900 labels, gates to the power of 1"].gating == Gating(power=1.0, scale=0.5, reach=900)
    plain = {name: change(model) for name, change in ASKED["gnnxml"].items()}
    assert plain["300 labels"].gating == Gating(reach=300)
    assert plain["300 labels"].beam == model.rankers.n_clusters, "then the beam cuts nothing off"


def test_what_cannot_be_had_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(synthesise(WORLD).dataset, tmp_path / "planted", "lf")
    file = tmp_path / "many.json"
    file.write_text(json.dumps({"eclare": {"many": ["surrogate.clusters=4096"]}}))
    assert main([str(file), str(tmp_path / "planted"), "--device", "cpu"]) == 0
    assert "left out: 4096 clusters" in capfd.readouterr().out


def test_what_there_is_no_time_for_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", str(tmp_path / "planted"), "--seconds", "0"]) == 0
    assert capsys.readouterr().out.count("no time") == len(read_variants("methods"))
    assert main(["direct", "data", "--seconds", "0", "--only", "one model", "--first-seed", "2", "--seeds", "2"]) == 0
    assert [line[-15:] for line in capsys.readouterr().out.splitlines()] == ["seed 2: no time", "seed 3: no time"]


# ---- differences ----


def keep(folder: Path, variant: str, seed: int, right: int) -> None:
    """A model that is right for the first so many of 100 documents, by every metric."""
    numerators = np.zeros((100, len(SHOWN)))
    numerators[:right] = 1
    np.savez(
        folder / f"planted+direct+{variant}+{seed}.npz",
        about=json.dumps({"n_test": 100}),
        numerators=numerators,
        denominators=np.ones((100, 1)),
        divisor=np.zeros(len(SHOWN), np.int64),
    )


def test_variants_are_compared_by_the_seeds_that_both_have(tmp_path: Path) -> None:
    keep(tmp_path, "base", 0, 40)
    keep(tmp_path, "base", 1, 50)
    keep(tmp_path, "base, no memory", 0, 45)
    keep(tmp_path, "smoothing off", 0, 30)
    keep(tmp_path, "smoothing off", 2, 90)
    keep(tmp_path, "smoothing off, no memory", 0, 35)
    variants: dict[str, dict[str, list[str]]] = {"direct": {"base": [], "smoothing off": []}}
    found = compared("planted", tmp_path, variants)
    assert found["n_test"] == 100
    assert found["variants"]["direct: base"]["mean"]["P@1"] == pytest.approx(45)
    other = found["variants"]["direct: smoothing off"]
    assert other["mean"]["P@1"] == pytest.approx(60)
    assert other["beside direct: base"]["seeds"] == [0]
    mean, low, high = other["beside direct: base"]["P@1"]
    assert mean == pytest.approx(-10)
    assert low < mean < high < 0
    asked = found["variants"]["direct: smoothing off, no memory"]
    assert asked["beside direct: base, no memory"]["P@1"][0] == pytest.approx(-10), "asked in the same way"
    assert asked["beside direct: smoothing off"]["P@1"][0] == pytest.approx(5), "the same training"
    assert not [name for name in found["variants"]["direct: base"] if name.startswith("beside")]
    both_ways = compared("planted", tmp_path, variants, ["direct: smoothing off"])["variants"]
    assert both_ways["direct: base"]["beside direct: smoothing off"]["P@1"][0] == pytest.approx(10)


# ---- slices ----


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


def test_data_by_name(data: Dataset, tmp_path: Path) -> None:
    write(data, tmp_path / "planted", "lf")
    some = data_of(f"{tmp_path}/planted@30:50", test=False)
    assert len(some.labels) == 30
    assert len(some.train) == 45
    assert len(data_of(f"{tmp_path}/planted", test=True).train) == 300
