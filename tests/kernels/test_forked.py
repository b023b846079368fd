"""Models go on in processes that were forked off after a prediction, as servers that load first and then fork do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Predicts, forks, and predicts in the children: by a pool, by bare forks, by threads of a child, and in a grandchild.
PROGRAM = """
import multiprocessing, os, sys, threading
from longtail.predictor import Predictor

def answers():
    return model.predict(texts, k=3)

def same(_):
    return answers() == expected

def in_child(work):
    child = os.fork()
    if not child:
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def on_threads():
    found = []
    threads = [threading.Thread(target=lambda: found.append(same(0))) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return found == [True] * 4

model = Predictor.open(sys.argv[1])
texts = ["the cat", "a dog and a horse", "noise"] * 60
expected = answers()
assert in_child(lambda: same(0)) == 0
assert in_child(on_threads) == 0
assert in_child(lambda: in_child(lambda: same(0)) == 0) == 0
with multiprocessing.get_context("fork").Pool(3) as pool:
    assert pool.map_async(same, range(6)).get(timeout=60) == [True] * 6
assert answers() == expected
print("all answered")
"""


@pytest.mark.parametrize("run", ["tiny_run", "direct_run"])
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_children_answer_as_their_parent_does(run: str, layer: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(run)
    environment = {"NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": layer}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "all answered"
