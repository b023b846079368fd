"""A kill at every file operation of a small training of every recipe: what it leaves is opened and gone on with, to the
same result, bit by bit. How all of it is tried in seconds: `benchmarks.faults.pictures`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.faults.models import dataset
from benchmarks.faults.pictures import Film, Screen, explored

import longtail
from longtail.config import from_text
from longtail.errors import RunError
from longtail.persistence import put_json, written_aside
from longtail.recipes import RECIPES, recipe_class
from longtail.training.run import Run, StageCheckpoint


def _steps(*sections: str) -> Iterator[str]:
    """Two steps per epoch."""
    for section in sections:
        yield from (f"{section}.batch=20", f"{section}.batch_adapts=false")


_TOWERS = ("encoder.width=8", "train.epochs=3", "train.refresh=2", "train.mined=3")
# How each recipe is trained: its smallest training that has every kind of stage and some epochs in each, with what an
# epoch leaves to the next. A new recipe must be listed here.
SMALLEST: Mapping[str, tuple[str, ...]] = {
    "tiny": (),
    "direct": (*("encoder.width=16", "train.epochs=3", "train.text_every=2", "train.smoothing=0.3"),),
    "astec": (
        *("surrogate.width=8", "surrogate.epochs=2", "shortlist.size=5", "shortlist.neighbours=4", "classify.epochs=2"),
        *("classify.count=4", "classify.random=2", "reranker.enabled=true", "reranker.epochs=2", "reranker.depth=3"),
        *_steps("surrogate", "classify"),
    ),
    "eclare": (
        *("surrogate.width=8", "surrogate.epochs=2", "shortlist.epochs=2", "shortlist.beam=1", "classify.epochs=2"),
        *("graph.head_documents=1000", *_steps("training")),
    ),
    "galaxc": (
        *("astec.width=8", "astec.epochs=2", "surrogate.epochs=2", "surrogate.halve_at=1", "surrogate.random=4"),
        *("surrogate.mask_target_edges=0.5", "classify.epochs=2", *_steps("astec", "surrogate", "classify")),
    ),
    "gnnxml": (
        *("features.keygraph.width=8", "matcher.width=6", "matcher.epochs=4", "matcher.validation=0.2"),
        *("matcher.fewest=0.3", "clusters.count=4", "rankers.beam=2", "rankers.mistakes=1"),
    ),
    "ance": _TOWERS,
    "ngame": (*_TOWERS, "classify.epochs=2", "classify.count=4"),
    "dexml": _TOWERS,
    "siamese": (*_TOWERS, "classify.epochs=2", "classify.count=4"),
    "ramen": (*_TOWERS, "regularise.warm_up=1", "regularise.every=2", "bandit.block=3", "base=ngame"),
}
# Further ways to train a recipe: which, and the settings beside those above.
WAYS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "direct, sampled": ("direct", ("train.sampled=on", "train.labels_per_step=8")),
    "direct, an ensemble": ("direct", ("train.epochs=2", "ensemble.learners=2")),
}
WITHOUT_EPOCHS = {"tiny"}


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder in memory, where there is one: thousands of files come and go."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """Else only those are that took long enough."""
    monkeypatch.setattr(StageCheckpoint, "due", lambda self, size: True)


def training(name: str) -> Callable[[Path], object]:
    recipe, more = WAYS.get(name, (name, ()))
    data, cls = dataset("graphs" if recipe == "ramen" else "text", 40), recipe_class(recipe)
    settings = (*SMALLEST[recipe], *more)
    return lambda run: longtail.train(data, run, cls(from_text(cls.CONFIG(), settings)), device="cpu")


def test_every_recipe_joins_this_test() -> None:
    assert SMALLEST.keys() == RECIPES.keys()


@pytest.mark.parametrize("name", [*RECIPES, *WAYS])
def test_killed_at_any_operation_and_resumed(name: str, home: Path) -> None:
    found = explored(training(name), home / "trainings")
    assert not found.problems, "\n".join(found.problems[:20])
    # All of it was seen: a hook that tells of nothing would find nothing.
    assert found.operations > 100
    assert found.pictures > 1.5 * found.operations, "files are pictured half written, too"
    assert found.stages >= 2
    met = {"nothing yet", "a bundle written aside", "a bundle", *(f"{n} stages" for n in range(found.stages + 1))}
    assert met <= found.moments
    assert any(moment.startswith("a checkpoint of") for moment in found.moments) or name in WITHOUT_EPOCHS
    assert found.cases > len(met)


def test_a_restart_killed_at_any_operation_can_be_given_again(home: Path) -> None:
    run, train = home / "run", training("tiny")
    train(run)
    film = Film(run)
    with film.rolling():
        longtail.train(dataset("text", 40), run, "tiny", device="cpu", restart=True)
    identity, screen = json.loads((run / "run.json").read_text()), Screen(home / "tried")
    assert film.unseen == []
    assert any(when.startswith("os.remove bundle/manifest.json") for when in film.pictures.values())
    for picture, when in film.pictures.items():
        screen.show(picture)
        try:
            Run.open(screen.folder, identity, seed=identity["seed"], device="cpu", restart=True).close()
        except RunError as problem:
            pytest.fail(f"{when}: {problem}")


# ---- a test of the test: planted faults are found ----


@contextmanager
def in_place(path: Path) -> Iterator[Path]:
    """What writes without standing aside does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    yield path


def test_stages_written_in_place_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.training.run.written_aside", in_place)
    (problem,) = explored(training("tiny"), home / "trainings", enough=1).problems
    assert "stages/0_prepare" in problem
    assert "cannot be resumed" in problem


def test_values_of_a_run_written_in_place_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.training.run.write_json", put_json)
    (problem,) = explored(training("tiny"), home / "trainings", enough=1).problems
    assert "run.json" in problem
    assert "cannot be opened" in problem


def test_checkpoints_written_in_place_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def aside_but_for_checkpoints(path: Path) -> Any:
        return in_place(path) if path.name == "epoch.safetensors" else written_aside(path)

    monkeypatch.setattr("longtail.training.run.written_aside", aside_but_for_checkpoints)
    (problem,) = explored(training("dexml"), home / "trainings", enough=1).problems
    assert "epoch.safetensors" in problem
    assert "cannot be resumed" in problem


def test_randomness_by_turns_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that depend on how many were drawn before, not on their names: a resumed training draws others."""

    def seed_for(run: Run, name: str, *keys: int) -> int:
        drawn.setdefault(run, []).append(name)
        return len(drawn[run])

    drawn: dict[Run, list[str]] = {}
    monkeypatch.setattr(Run, "seed_for", seed_for)
    (problem,) = explored(training("dexml"), home / "trainings", enough=1).problems
    assert "resumed to something else" in problem


def test_what_the_hook_does_not_tell_of_is_noticed(tmp_path: Path) -> None:
    film = Film(tmp_path / "run")
    with film.rolling():
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "file").write_text("seen")
        subprocess.run(["touch", str(tmp_path / "run" / "hidden")], check=True)
    assert film.operations == 2
    assert len(film.unseen) == 1
    assert "hidden" in film.unseen[0]


def test_every_state_of_a_file_is_pictured(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    film = Film(folder)
    with film.rolling():
        folder.mkdir()
        (folder / "a").write_bytes(b"12345678")
        with (folder / "a").open("ab") as file:
            file.write(b"abcdefgh")
        (folder / "a").rename(folder / "b")
        (folder / "inner").mkdir()
        (folder / "inner" / "c").write_bytes(b"")
        shutil.rmtree(folder)
    assert film.unseen == []
    states = [dict(picture) for picture in film.pictures]
    assert {state.get("a") for state in states} >= {
        *(None, b"", b"1", b"1234", b"12345678", b"12345678a", b"12345678abcd", b"12345678abcdefgh"),
    }
    names = [sorted(state) for state in states]
    for expected in ([], [""], ["", "b", "inner"], ["", "b", "inner", "inner/c"]):
        assert expected in names
    assert ["", "inner"] in names or ["", "b"] in names, "a folder that is removed is pictured in between"
