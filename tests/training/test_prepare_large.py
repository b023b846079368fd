"""Training from the disk: the model of memory where all fits, bounded memory where not, and bad days."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail.data import large
from longtail.data.dataset import Dataset
from longtail.data.large import LargeFolder
from longtail.data.mapped import DocumentsWriter
from longtail.errors import ConfigError, RunError
from longtail.persistence import load_part
from longtail.recipes.direct.memory import RememberingRows
from longtail.training.prepare_large import Sample, opened

SETTINGS: dict[str, Any] = {"encoder": {"width": 16}, "train": {"epochs": 3, "text_every": 3}}
SAMPLED = {"encoder": {"width": 16}, "train": {"epochs": 3, "sampled": "on", "labels_per_step": 5}}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setattr(large, "FEWEST_CHARACTERS", 2000)
    monkeypatch.setattr(large, "MOST_CHARACTERS", 2000)


def content(bundle: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(bundle)): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    del files["manifest.json"]  # it has the digest of the data, of its files or of what they say
    return files


@pytest.mark.parametrize("settings", [SETTINGS, SAMPLED], ids=["all labels", "sampled"])
def test_where_all_fits_the_model_is_that_of_memory(
    planted_folder: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    longtail.train(planted_folder, tmp_path / "memory", settings=settings, device="cpu")
    longtail.train(LargeFolder(planted_folder, 1 << 30), tmp_path / "disk", settings=settings, device="cpu")
    assert opened(tmp_path / "disk" / "stages" / "0_prepare").everything is not None
    assert content(tmp_path / "disk" / "bundle") == content(tmp_path / "memory" / "bundle")


def test_windows_and_a_sample(planted: Dataset, planted_folder: Path, tmp_path: Path) -> None:
    """Documents are drawn window by window, and what has to be in memory is made of some of them."""
    settings = {**SETTINGS, "train": {"epochs": 30}, "memory": {"weight": 0.3}}
    model = longtail.train(planted_folder, tmp_path / "run", settings=settings, device="cpu", memory=60_000)
    data = opened(tmp_path / "run" / "stages" / "0_prepare")
    assert data.everything is not None
    assert data.everything.window < len(data.everything) == 120
    assert 10 < data.n_documents < 60
    assert np.array_equal(data.label_counts(), planted.train.targets.sum(axis=0))
    assert np.array_equal(data.label_counts(), model.bundle.labels.counts)
    ranker = model.bundle.ranker
    assert isinstance(ranker, RememberingRows)
    assert ranker.memory.documents.shape[0] == data.n_documents
    test = planted.need_test()
    best = [found[0].label for found in model.predict(list(test.documents.fields["title"]), k=1)]
    right = [uid in {planted.labels.uids[n] for n in test.targets[[row]].indices} for row, uid in enumerate(best)]
    assert np.mean(right) > 0.9
    company = model.bundle.company()
    assert company is not None
    assert company.examples_of(0)


def test_a_sample_is_evenly_spread() -> None:
    rows = np.arange(1000)
    for size in (1, 7, 500, 999, 1000):
        chosen = np.flatnonzero(Sample(1000, size).has(rows))
        assert len(chosen) == size
        assert size == 1 or np.diff(chosen).max() <= -(-1000 // size)


def test_more_documents_take_no_more_memory(tmp_path: Path) -> None:
    """In one process: a few documents from the disk, so that all is loaded; then many; then these in memory."""
    done = subprocess.run([sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    few, many, memory, allowed = json.loads(done.stdout.splitlines()[-1])
    assert many - few < 1.2 * allowed
    assert memory - few > 5 * allowed, "the data is several times larger than what was allowed"


MEASURED = """
import json, sys
from pathlib import Path
import numpy as np, torch, numba
import longtail
from longtail.data.large import LargeFolder
from longtail.training.run import peak_memory_so_far

torch.set_num_threads(1); numba.set_num_threads(1)
rng, place, allowed = np.random.default_rng(0), Path(sys.argv[1]), 16_000_000
words = np.array([f"word{n}" for n in range(2000)])

def write(name, documents):
    (place / name).mkdir()
    (place / name / "lbl.json").write_text("".join(f'{{"uid": "{n}", "title": "word{n}"}}\\n' for n in range(50)))
    with (place / name / "trn.json").open("w") as file:
        for row in range(documents):
            own = rng.integers(0, 2000, 150)
            record = {"uid": f"d{row}", "title": " ".join(words[own]), "target_ind": [int(own[0] % 50)]}
            file.write(json.dumps(record) + "\\n")
    return place / name

features = {"pairs": False, "subwords": "none"}
settings = {"features": features, "encoder": {"width": 8}, "train": {"epochs": 1}, "memory": {"most": 1.0}}
peaks = []
for name, documents in (("few", 300), ("many", 15000)):
    longtail.train(LargeFolder(write(name, documents), allowed), place / f"run-{name}", settings=settings, device="cpu")
    peaks.append(peak_memory_so_far())
longtail.train(place / "many", place / "run-memory", settings=settings, device="cpu")
print(json.dumps([*peaks, peak_memory_so_far(), allowed]))
"""


def test_killed_while_documents_are_packed(planted_folder: Path, tmp_path: Path) -> None:
    data = LargeFolder(planted_folder, 100_000)
    longtail.train(data, tmp_path / "whole", settings=SETTINGS, device="cpu")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(planted_folder), str(tmp_path / "killed"), json.dumps(SETTINGS)], check=False
    )
    assert done.returncode == -9
    assert not (tmp_path / "killed" / "stages" / "0_prepare").exists()
    assert list((tmp_path / "killed" / "stages").rglob("features.numbers")), "it was killed in the middle"
    longtail.train(LargeFolder(planted_folder, 100_000), tmp_path / "killed", settings=SETTINGS, device="cpu")
    assert content(tmp_path / "killed" / "bundle") == content(tmp_path / "whole" / "bundle")
    assert not list((tmp_path / "killed").rglob("*.tmp"))


KILLED = """
import json, os, signal, sys
from pathlib import Path
import longtail
from longtail.data import large
from longtail.data.mapped import DocumentsWriter

large.FEWEST_CHARACTERS = large.MOST_CHARACTERS = 2000
add, calls = DocumentsWriter.add, []

def add_or_die(self, *parts):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    add(self, *parts)

DocumentsWriter.add = add_or_die
data, settings = large.LargeFolder(Path(sys.argv[1]), 100_000), json.loads(sys.argv[3])
longtail.train(data, sys.argv[2], settings=settings, device="cpu")
"""


def test_a_full_disk_while_documents_are_packed(
    planted_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(DocumentsWriter, "add", full)
        with pytest.raises(RunError, match="no space left on the disk"):
            longtail.train(LargeFolder(planted_folder, 100_000), tmp_path / "run", settings=SETTINGS, device="cpu")
    assert not list((tmp_path / "run" / "stages").iterdir())
    longtail.train(LargeFolder(planted_folder, 100_000), tmp_path / "run", settings=SETTINGS, device="cpu")


def test_a_run_from_the_disk_is_resumed_and_checked(planted_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    longtail.train(planted_folder, run, settings=SETTINGS, device="cpu", memory=100_000)
    with pytest.raises(RunError, match="memory"):
        longtail.train(planted_folder, run, settings=SETTINGS, device="cpu", memory=90_000)
    shutil.rmtree(run / "bundle")
    numbers = run / "stages" / "0_prepare" / "everything" / "features.numbers"
    changed = bytearray(numbers.read_bytes())
    changed[0] ^= 1
    numbers.write_bytes(changed)
    with pytest.raises(RunError, match=r"features\.numbers"):
        longtail.train(planted_folder, run, settings=SETTINGS, device="cpu", memory=100_000)
    assert load_part(run / "stages" / "0_prepare").everything is None, "what --from rehearses is the sample"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"recipe": "tiny"}, "recipe 'tiny' needs all documents"),
        ({"holdout": 0.1}, "--holdout"),
        ({"effort": "normal"}, "--effort normal"),
        ({"settings": {"features": {"subwords": "wordpiece"}}}, "wordpiece"),
        ({"settings": {"features": {"view": "static"}}}, "features.view"),
        ({"settings": {"features": {"source": "vectors"}}}, "'vectors'"),
        ({"settings": {"features": {"fields": ["content"]}}}, "no field 'content'"),
    ],
)
def test_what_needs_all_documents_is_refused(
    planted_folder: Path, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        longtail.train(planted_folder, tmp_path / "run", device="cpu", memory=100_000, **options)
    assert not (tmp_path / "run" / "stages" / "0_prepare").exists()
