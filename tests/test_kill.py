"""Kill a training at any moment, start it again, and get the same bundle, bit by bit."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longtail.recipes import RECIPES

# The run folder is what is killed, and every recipe has the same: the longest and the default more often.
KILLS, KILLS_OF_OTHERS = 4, 2
OFTEN = ("slow", "direct")
SLOW = Path(__file__).with_name("slow_recipe.py")

# Settings that make a recipe small enough to be trained several times in a test. A new recipe must be listed here.
SMALL: dict[str, list[str]] = {
    "tiny": [],
    "direct": [
        "encoder.width=16",
        "train.epochs=12",
        "train.text_every=3",
        "train.smoothing=0.3",
        "ensemble.learners=2",
    ],
    "astec": [
        "surrogate.width=16",
        "surrogate.epochs=6",
        "classify.epochs=6",
        "reranker.enabled=true",
        "reranker.epochs=4",
        "ensemble.learners=2",
    ],
    "galaxc": [
        "astec.width=16",
        "astec.epochs=6",
        "surrogate.epochs=6",
        "surrogate.random=6",
        "surrogate.mask_target_edges=0.5",
        "classify.epochs=4",
    ],
    "gnnxml": [
        "matcher.width=16",
        "matcher.epochs=10",
        "matcher.validation=0.2",
        "matcher.fewest=0.3",
        "clusters.count=4",
        "ensemble.learners=2",
    ],
    "eclare": [
        "surrogate.width=16",
        "surrogate.epochs=6",
        "shortlist.epochs=4",
        "classify.epochs=6",
        "graph.head_documents=1000",
        "ensemble.learners=2",
    ],
    "ance": ["encoder.width=16", "train.epochs=8", "train.refresh=3", "train.mined=4"],
    "ngame": ["encoder.width=16", "train.epochs=8", "train.refresh=3", "classify.epochs=4", "classify.count=4"],
    "dexml": ["encoder.width=16", "train.epochs=8", "ensemble.learners=2"],
    "siamese": ["encoder.width=16", "train.epochs=8", "classify.epochs=4", "classify.count=4"],
    "ramen": [
        "encoder.width=16",
        "train.epochs=12",
        "train.refresh=5",
        "regularise.warm_up=2",
        "regularise.every=3",
        "bandit.block=7",
        "base=ngame",
    ],
}
# Further ways to train a recipe: which, and the settings beside those above.
WAYS: dict[str, tuple[str, list[str]]] = {
    "direct, sampled": ("direct", ["train.sampled=on", "train.labels_per_step=20"]),
}
# Recipes that are trained on data with graphs.
WITH_GRAPHS = {"ramen"}


def command(recipe: str, data: Path, run: Path) -> list[str]:
    if recipe == "slow":
        return [sys.executable, str(SLOW), str(data), str(run), "0.05"]
    recipe, more = WAYS.get(recipe, (recipe, []))
    settings = [part for assignment in [*SMALL[recipe], *more] for part in ("--set", assignment)]
    return [
        sys.executable,
        "-m",
        "longtail",
        "train",
        str(data),
        "--recipe",
        recipe,
        "--out",
        str(run),
        "--device",
        "cpu",
        *settings,
    ]


def content(bundle: Path) -> dict[str, bytes]:
    return {str(path.relative_to(bundle)): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}


def test_every_recipe_joins_this_test() -> None:
    assert SMALL.keys() == RECIPES.keys()


@pytest.mark.parametrize("recipe", ["slow", *RECIPES, *WAYS])
def test_killed_at_random_moments_and_resumed(
    recipe: str, planted_folder: Path, planted_graphs_folder: Path, tmp_path: Path
) -> None:
    data, started = planted_graphs_folder if recipe in WITH_GRAPHS else planted_folder, time.monotonic()
    subprocess.run(command(recipe, data, tmp_path / "whole"), check=True, capture_output=True)
    duration = time.monotonic() - started
    moments, kills = random.Random(recipe), 0
    while kills < (KILLS if recipe in OFTEN else KILLS_OF_OTHERS):
        process = subprocess.Popen(
            command(recipe, data, tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            process.wait(timeout=duration * moments.uniform(0.2, 0.9))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.stderr is not None
        assert process.returncode == 0, process.stderr.read().decode()
        # It was faster than the first one (which may have compiled kernels): begin again with less patience.
        shutil.rmtree(tmp_path / "killed")
        duration *= 0.7
    subprocess.run(command(recipe, data, tmp_path / "killed"), check=True, capture_output=True)
    assert content(tmp_path / "killed" / "bundle") == content(tmp_path / "whole" / "bundle")
    assert not list((tmp_path / "killed").rglob("*.tmp"))
