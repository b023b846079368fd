"""RAMEN: graphs change the encoder and nothing else; without weight they change nothing at all."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors import safe_open
from scipy.sparse import csr_array

import longtail
from longtail.cli import main
from longtail.config import from_text, section
from longtail.data.dataset import Dataset, Graph, Items
from longtail.data.from_texts import with_digest
from longtail.data.read import write
from longtail.errors import ConfigError, DataError
from longtail.features.settings import FeaturesConfig
from longtail.graph.ops import unit_rows
from longtail.models.encoders import FrozenBag, FrozenSum, FrozenUnit
from longtail.persistence import load_part
from longtail.predictor import Predictor
from longtail.recipes import RECIPES, Entry, recipe_class
from longtail.recipes.direct.settings import DirectConfig
from longtail.recipes.ramen.graph_loss import edge_cosines
from longtail.recipes.ramen.recipe import Ramen
from longtail.recipes.ramen.settings import RamenConfig
from longtail.recipes.towers import recipe as two_towers
from longtail.recipes.towers.network import kept_apart
from longtail.recipes.towers.recipe import Ance
from longtail.recipes.towers.settings import TowerEncoderConfig
from longtail.training.prepare import prepare
from longtail.training.surrogate import SurrogateConfig
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

OVER_TARGETS = ("eclare", "direct")
EVERY = ("ance", "ngame", "dexml", "siamese", *OVER_TARGETS)
SMALL = (
    "encoder.width=8",
    "train.epochs=3",
    "train.refresh=2",
    "features.subwords=none",
    "classify.epochs=2",
    "classify.count=4",
    "classify.size=5",
    "eclare.surrogate.width=8",
    "eclare.surrogate.epochs=3",
    "eclare.shortlist.epochs=2",
    "eclare.classify.epochs=2",
    "direct.encoder.width=8",
    "direct.train.epochs=3",
)
QUICK = ("regularise.warm_up=1", "regularise.every=1", "bandit.block=5")


def ramen(base: str, *settings: str) -> Ramen:
    return Ramen(from_text(RamenConfig(), (*SMALL, f"base={base}", *settings)))


def plain(base: str, *settings: str) -> Any:
    """The base alone, with the settings that `ramen` gives it."""
    return recipe_class(base)(ramen(base, *settings).config.of_base())


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def events(run: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == name]


def shapes(bundle: Path) -> dict[str, Any]:
    """Every tensor of a bundle with its type and shape, and the kind of every part."""
    found: dict[str, Any] = {}
    for path in bundle.rglob("*.safetensors"):
        with safe_open(path, framework="numpy") as tensors:
            place = path.relative_to(bundle)
            found |= {
                f"{place}:{name}": (tensors.get_slice(name).get_dtype(), tensors.get_slice(name).get_shape())
                for name in tensors.keys()  # noqa: SIM118 (it is no dict)
            }
    for path in bundle.rglob("part.json"):
        found[str(path.relative_to(bundle))] = json.loads(path.read_text())["kind"]
    return found


def outlines(contents: dict[str, bytes]) -> dict[str, bytes | int]:
    """Of JSON its text, but for the digits of trained numbers (a number can have one digit more than another); of
    other files their bytes.
    """
    number = rb"-?\d+\.\d+(e-?\d+)?"
    return {
        name: re.sub(number, b"0.0", content) if name.endswith(".json") else len(content)
        for name, content in contents.items()
    }


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, planted_with_graphs: Dataset) -> dict[str, tuple[Path, Path]]:
    """For every base the run of the base and that of RAMEN on it."""
    home = tmp_path_factory.mktemp("ramen")
    for base in EVERY:
        longtail.train(planted_with_graphs, home / base, plain(base), device="cpu")
        longtail.train(planted_with_graphs, home / f"ramen-{base}", ramen(base, *QUICK), device="cpu")
    return {base: (home / base, home / f"ramen-{base}") for base in EVERY}


@pytest.mark.claim("R1")
@pytest.mark.parametrize("base", EVERY)
def test_prediction_is_the_bases_own(
    base: str, pairs: dict[str, tuple[Path, Path]], planted_with_graphs: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same classes, same names and shapes of tensors, same sizes of files, the same calls of the encoder; and no
    graph.
    """
    of_base, of_ramen = (run / "bundle" for run in pairs[base])
    assert shapes(of_base) == shapes(of_ramen)
    first, second = (files(bundle / "ranker") for bundle in (of_base, of_ramen))
    assert outlines(first) == outlines(second)
    assert first != second, "graphs changed the encoder"
    assert files(of_base / "featurizer") == files(of_ramen / "featurizer")
    anchors = [
        uid for graph in planted_with_graphs.graphs.values() if graph.anchors is not None for uid in graph.anchors.uids
    ]
    assert not [name for name, content in files(of_ramen).items() for uid in anchors if uid.encode() in content]

    calls: list[int] = []
    kind: Any = {"eclare": FrozenSum, "direct": FrozenBag}.get(base, FrozenUnit)
    encode = kind.encode

    def counted(self: Any, batch: Batch) -> Any:
        calls.append(len(batch))
        return encode(self, batch)

    monkeypatch.setattr(kind, "encode", counted)
    counts = []
    for run in pairs[base]:
        calls.clear()
        predictor = Predictor.open(run)
        predictor.rank(planted_with_graphs.need_test().documents, 5)
        counts.append((type(predictor.bundle.ranker), list(calls)))
    assert counts[0] == counts[1]
    assert counts[0][1]


@pytest.mark.claim("R2")
@pytest.mark.parametrize("base", EVERY)
def test_with_all_weights_zero_it_is_the_base_bit_for_bit(
    base: str, pairs: dict[str, tuple[Path, Path]], planted_with_graphs: Dataset, tmp_path: Path
) -> None:
    """Graphs are completed, pruned and drawn from as ever."""
    run = tmp_path / "run"
    longtail.train(
        planted_with_graphs, run, ramen(base, *QUICK, "bandit.enabled=false", "bandit.fixed=0"), device="cpu"
    )
    assert events(run, "prune")
    for stage in ("1_surrogate", "4_classify"):
        assert files(run / "stages" / stage) == files(pairs[base][0] / "stages" / stage)
    assert files(run / "bundle" / "ranker") == files(pairs[base][0] / "bundle" / "ranker")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("base", EVERY)
def test_it_trains_on_a_gpu(
    base: str, pairs: dict[str, tuple[Path, Path]], planted_with_graphs: Dataset, tmp_path: Path
) -> None:
    longtail.train(
        planted_with_graphs,
        tmp_path / "run",
        ramen(base, *QUICK, f"bandit.reward={'task' if base in OVER_TARGETS else 'heldout'}"),
        device="cuda",
    )
    assert shapes(tmp_path / "run" / "bundle") == shapes(pairs[base][0] / "bundle")


def test_trajectories_are_logged(pairs: dict[str, tuple[Path, Path]]) -> None:
    run = pairs["ance"][1]
    names = ["task", "pairs:documents", "pairs:labels", "noise:documents"]
    blocks = events(run, "bandit")
    assert [block["block"] for block in blocks] == list(range(1, len(blocks) + 1))
    assert len(blocks) > 5
    for block in blocks:
        assert list(block["weights"]) == list(block["tried"]) == list(block["losses"]) == names
    assert blocks[0]["weights"] == {"task": 1.0, "pairs:documents": 0.1, "pairs:labels": 0.1, "noise:documents": 0.1}
    assert len({block["weights"]["noise:documents"] for block in blocks}) > 3
    pruned = events(run, "prune")
    assert {(event["graph"], event["side"]) for event in pruned} == {
        ("pairs", "documents"),
        ("pairs", "labels"),
        ("noise", "documents"),
    }
    assert {event["epoch"] for event in pruned} == {1, 2}
    noise = next(event for event in events(run, "graph") if event["name"] == "noise")
    assert (noise["anchors"], noise["known"]) == (5, 4), "an anchor without a known word is left out"


def test_items_come_nearer_to_their_anchors(planted_with_graphs: Dataset, tmp_path: Path) -> None:
    """What the regularisers are for: cosines of edges against those of pairs without an edge, beside the base's."""
    settings = (
        "bandit.enabled=false",
        "graphs.completion=none",
        "regularise.prune=none",
        "graphs.names=pairs",
        "train.rate=0.02",
        "train.epochs=6",
    )
    recipe = ramen("ance", *settings)
    gaps = []
    for name, made in (("base", plain("ance", *settings)), ("ramen", recipe)):
        longtail.train(planted_with_graphs, tmp_path / name, made, device="cpu")
        ready = prepare(planted_with_graphs, recipe.config.features)
        ranker: Any = Predictor.open(tmp_path / name).bundle.ranker
        graph: Any = ready.graphs["pairs"]
        anchors = ranker.encoder.encode(ready.featurizer.batch_of_texts(list(graph.anchors.fields["title"])))
        documents, edges = ranker.encoder.encode(ready.documents), graph.documents
        linked = edge_cosines(edges, documents, anchors).mean()
        gaps.append(linked - (documents @ anchors.T)[edges.toarray() == 0].mean())
    assert gaps[1] > gaps[0] + 0.1


@pytest.mark.parametrize(
    "settings",
    [
        ("graphs.noise=0.5", "graphs.share=0.5"),
        ("graphs.documents=false",),
        ("graphs.labels=false",),
        ("bandit.estimator=gauss_score", "bandit.reward=task"),
        ("bandit.estimator=paper_ratio", "bandit.accumulate=sum", "bandit.baseline=none"),
        ("bandit.estimator=pairs", "bandit.block=0", "bandit.trials=scaled", "bandit.until=0.5"),
        ("graphs.draw=visits", "features.anchor_words=true"),
        ("bandit.reward=heldout", "bandit.fix_task_weight=false"),
    ],
    ids=" ".join,
)
def test_every_setting_trains(settings: tuple[str, ...], planted_with_graphs: Dataset, tmp_path: Path) -> None:
    predictor = longtail.train(planted_with_graphs, tmp_path / "run", ramen("ance", *QUICK, *settings), device="cpu")
    assert (predictor.rank(planted_with_graphs.need_test().documents, 1).ids >= 0).all()


@pytest.mark.parametrize("base", OVER_TARGETS)
def test_token_vectors_come_nearer_to_those_of_anchors(base: str, planted_with_graphs: Dataset, tmp_path: Path) -> None:
    """Labels and their own anchor against labels and the others, by the sums of token vectors that training leaves."""
    found = {}
    for name, weight in (("base", "0"), ("graphs", "2")):
        settings = ("bandit.enabled=false", f"bandit.fixed={weight}", "graphs.names=pairs", "graphs.completion=none")
        model = longtail.train(
            planted_with_graphs,
            tmp_path / name,
            ramen(base, *settings, "eclare.surrogate.epochs=20", "direct.train.epochs=20"),
            device="cpu",
        )
        ranker: Any = model.bundle.ranker
        encoder = ranker.encoder if base == "direct" else load_part(tmp_path / name / "stages" / "1_surrogate").encoder
        graph = planted_with_graphs.graphs["pairs"]
        assert graph.anchors is not None
        texts = model.bundle.featurizer.label_batch(planted_with_graphs.labels)
        labels, anchors = (
            unit_rows(encoder.encode(batch))
            for batch in (texts, model.bundle.featurizer.batch_of_texts(list(graph.anchors.fields["title"])))
        )
        assert graph.labels is not None
        cosines, own = labels @ anchors.T, graph.labels.toarray() > 0
        found[name] = cosines[own].mean() - cosines[~own].mean()
    assert found["graphs"] > found["base"] + 0.05


@pytest.mark.parametrize("base", OVER_TARGETS)
def test_what_a_loss_over_targets_cannot_do_is_refused(base: str) -> None:
    for settings in ("bandit.reward=heldout", "bandit.fix_task_weight=false", "features.checkpoint=minilm"):
        with pytest.raises(ConfigError, match=f"base={base}"):
            ramen(base, settings)
    assert ramen(base, "bandit.enabled=false", "bandit.reward=heldout")


@dataclass(frozen=True)
class OutsiderConfig:
    """A section that is the dual encoders', and one of the same name that is not."""

    features: FeaturesConfig = section(FeaturesConfig, "features")
    encoder: TowerEncoderConfig = section(TowerEncoderConfig, "the encoder")
    train: SurrogateConfig = section(SurrogateConfig, "its own way to train")


class Outsider(Ance):
    NAME = "outsider"
    CONFIG: ClassVar[type[Any]] = OutsiderConfig


@pytest.mark.parametrize("base", ["astec", "tiny", "ramen"])
def test_a_base_without_a_place_for_another_loss_is_refused(base: str) -> None:
    with pytest.raises(ConfigError, match=f"base={base} takes no other loss"):
        ramen(base)


def test_the_recipe_of_a_package_can_be_a_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections that it shares with the dual encoders are those of `ramen`; its own are at their defaults."""
    monkeypatch.setitem(RECIPES, "outsider", Entry(f"{__name__}:Outsider", "a recipe of a package"))
    made: Any = ramen("outsider", "encoder.width=24").base
    assert made.NAME == "outsider"
    assert made.config.encoder.width == made.encoder_width() == 24
    assert made.config.train == SurrogateConfig(), "of another kind than that of `ramen`"


def test_anchors_are_as_wide_as_the_vectors_of_the_base(planted_with_graphs: Dataset) -> None:
    ready = prepare(planted_with_graphs, RamenConfig().features)
    for base, narrow, wide in (
        ("eclare", "eclare.surrogate.width=8", "eclare.surrogate.width=64"),
        ("direct", "direct.encoder.width=8", "direct.encoder.width=64"),
    ):
        beside = []
        for width in (narrow, wide):
            made = ramen(base, width)
            beside.append(made.memory(ready) - made.base.memory(ready))
        anchors = sum(graph.n_anchors for graph in made.graphs(ready))
        assert beside[1] - beside[0] == 4 * (64 - 8) * anchors


def test_direct_is_its_own_recipe_but_that_graphs_are_regularisers_alone() -> None:
    made, own = RamenConfig(base="direct").of_base(), DirectConfig()
    assert replace(made, features=own.features, anchors=own.anchors) == own
    assert not made.anchors.weight


def test_noise_and_shares_and_sides_reach_the_graphs(planted_with_graphs: Dataset) -> None:
    ready = prepare(planted_with_graphs, RamenConfig().features)
    assert [(graph.name, list(graph.sides)) for graph in ramen("ance").graphs(ready)] == [
        ("pairs", ["documents", "labels"]),
        ("noise", ["documents"]),
    ]
    assert [(graph.name, list(graph.sides)) for graph in ramen("ance", "graphs.documents=false").graphs(ready)] == [
        ("pairs", ["labels"])
    ]
    assert [graph.name for graph in ramen("ance", "graphs.names=noise").graphs(ready)] == ["noise"]
    with pytest.raises(ConfigError, match="'nois'"):
        ramen("ance", "graphs.names=nois").graphs(ready)
    with pytest.raises(ConfigError, match="no edges are left"):
        ramen("ance", "graphs.names=noise", "graphs.documents=false").graphs(ready)


def test_documents_are_kept_apart_only_for_a_reward_that_wants_them(
    planted_with_graphs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def spy(documents: int, share: float, rng: Any) -> Any:
        asked.append(share)
        return kept_apart(documents, share, rng)

    monkeypatch.setattr(two_towers, "kept_apart", spy)
    for number, settings in enumerate(
        [(), ("bandit.reward=heldout", "bandit.heldout_share=0.2"), ("bandit.reward=heldout", "bandit.enabled=false")]
    ):
        longtail.train(
            planted_with_graphs, tmp_path / str(number), ramen("ance", "train.epochs=1", *settings), device="cpu"
        )
    assert asked == [0.2]


def test_anchors_that_say_nothing_are_refused_or_left_out(planted_with_graphs: Dataset, tmp_path: Path) -> None:
    graph: Any = planted_with_graphs.graphs["noise"]
    mute = replace(graph, name="mute", anchors=replace(graph.anchors, fields={"title": ["", "zzz", "", "qqq", ""]}))
    data = with_digest(replace(planted_with_graphs, graphs={**planted_with_graphs.graphs, "mute": mute}))
    with pytest.raises(DataError, match="'mute' has 5 anchors, but none"):
        longtail.train(data, tmp_path / "all", ramen("ance"), device="cpu")
    longtail.train(data, tmp_path / "named", ramen("ance", "graphs.names=pairs,noise", "train.epochs=1"), device="cpu")
    assert [event["name"] for event in events(tmp_path / "named", "graph")] == ["pairs", "noise"]


def test_noise_and_shares_change_the_edges_that_are_trained_on(planted_with_graphs: Dataset, tmp_path: Path) -> None:
    def edges(*settings: str) -> dict[str, int]:
        run = tmp_path / "_".join(settings)
        longtail.train(planted_with_graphs, run, ramen("ance", "train.epochs=0", *settings), device="cpu")
        return {event["name"]: event["completed"] for event in events(run, "graph")}

    plain, half, noisy, walked = (
        edges("graphs.completion=none"),
        edges("graphs.completion=none", "graphs.share=0.5"),
        edges("graphs.completion=none", "graphs.noise=0.9"),
        edges("graphs.completion=walk"),
    )
    for name in ("pairs", "noise"):
        assert half[name] == pytest.approx(plain[name] / 2, abs=1)
        assert noisy[name] < plain[name], "some random anchors come twice"
        assert walked[name] > plain[name]


def test_data_without_anchors_is_refused_with_a_hint(
    planted: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match="the data has none") as problem:
        longtail.train(planted, tmp_path / "bare", ramen("dexml"), device="cpu")
    assert "--recipe dexml" in problem.value.hint
    between = Graph("between", label_label=csr_array(np.eye(len(planted.labels), dtype=np.float32)))
    with pytest.raises(DataError, match="only between, without anchors"):
        longtail.train(
            with_digest(replace(planted, graphs={"between": between})), tmp_path / "labels", ramen("ance"), device="cpu"
        )
    write(planted, tmp_path / "data", "lf")
    assert (
        main(["train", str(tmp_path / "data"), "--recipe", "ramen", "--out", str(tmp_path / "run"), "--device", "cpu"])
        == 2
    )
    said = capsys.readouterr().err
    assert "graphs of anchors" in said
    assert "hint:" in said


def test_words_that_only_anchors_have_are_features_where_asked_for(planted_with_graphs: Dataset) -> None:
    graphs = {
        name: replace(graph, anchors=Items(graph.anchors.uids, {"title": ["zyzzyva"] * len(graph.anchors)}))
        for name, graph in planted_with_graphs.graphs.items()
        if graph.anchors is not None
    }
    data = replace(planted_with_graphs, graphs=graphs)
    plain, with_anchors = (
        prepare(data, ramen("ance", f"features.anchor_words={asked}").config.features) for asked in ("false", "true")
    )
    title = ["zyzzyva"]
    assert plain.featurizer.batch_of_texts(title).is_empty().all()
    assert not with_anchors.featurizer.batch_of_texts(title).is_empty().any()
    assert plain.label_texts is not None
    assert with_anchors.label_texts is not None
    assert len(with_anchors.label_texts) == len(plain.label_texts) == plain.n_labels
    assert with_anchors.documents.sparse is not None
    assert plain.documents.sparse is not None
    assert with_anchors.documents.sparse.nnz == plain.documents.sparse.nnz
