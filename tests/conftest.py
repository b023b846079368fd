"""Planted data that many tests share: every label has words of its own, so the right answer is known."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from longtail.data.dataset import Dataset
from longtail.types import I64

# As many processes run as there are cores. Threads that wait for work sleep, in place of taking the core of another.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Every file of a run is synced to the disk before it counts: half of the time of many tests is waiting for the disk,
# unless their files lie in memory. A quarter of a gigabyte is there at a time.
MEMORY_DISK, ENOUGH = Path("/dev/shm"), 2 * 2**30
if os.access(MEMORY_DISK, os.W_OK) and shutil.disk_usage(MEMORY_DISK).free >= ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_DISK))

if TYPE_CHECKING:
    from longtail.recipes.gnnxml.keygraph import KeyGraphs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones first: one that begins last keeps a single core busy while the others have nothing to do."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Modules and the thousands of tests stay until the end: nobody need look again and again whether they are
    garbage, which takes a tenth of the time of a compilation.
    """
    gc.collect()
    gc.freeze()


ANIMALS = ("cat", "dog", "bird", "fish", "horse", "bee", "ant", "frog", "goat", "hen", "owl", "pig")


def planted_dataset(n_train: int = 120, n_test: int = 30, seed: int = 0, name: str = "planted") -> Dataset:
    """Documents of one or two labels; a document says each label's own word and some noise. Label ids are not
    numbers.
    """
    rng = np.random.default_rng(seed)

    def documents(count: int, first: int) -> tuple[list[str], list[list[str]]]:
        texts, labels = [], []
        for number in range(first, first + count):
            chosen = sorted({number % len(ANIMALS), int(rng.integers(len(ANIMALS)))})
            noise = " ".join(f"noise{rng.integers(50)}" for _ in range(3))
            texts.append(" ".join(ANIMALS[c] for c in chosen) + " " + noise)
            labels.append([f"id-{ANIMALS[c]}" for c in chosen])
        return texts, labels

    texts, labels = documents(n_train, 0)
    test_texts, test_labels = documents(n_test, 7)
    label_texts = {f"id-{animal}": f"the {animal}" for animal in ANIMALS}
    return Dataset.from_texts(texts, labels, label_texts, test_texts=test_texts, test_labels=test_labels, name=name)


@pytest.fixture(scope="session")
def planted() -> Dataset:
    return planted_dataset()


@pytest.fixture(scope="session")
def planted_folder(tmp_path_factory: pytest.TempPathFactory, planted: Dataset) -> Path:
    from longtail.data.read import write

    folder = tmp_path_factory.mktemp("data") / "planted"
    write(planted, folder, "lf")
    return folder


def with_graphs(data: Dataset) -> Dataset:
    """Two anchor sets: pairs of animals on both sides, and one named like nothing in the data, on the documents' side
    only.
    """
    from dataclasses import replace

    from scipy.sparse import csr_array

    from longtail.data.dataset import Graph, Items
    from longtail.data.from_texts import with_digest

    pair_of = np.arange(len(data.labels)) // 2
    of_labels = csr_array((np.ones(len(pair_of), np.float32), (np.arange(len(pair_of)), pair_of)))
    names = [title.removeprefix("the ") for title in data.labels.fields["title"]]
    titles = [f"{first} {second}" for first, second in zip(names[::2], names[1::2], strict=True)]
    pairs = Graph(
        "pairs",
        Items([f"anchor-pair{n}" for n in range(len(titles))], {"title": titles}),
        csr_array(data.train.targets @ of_labels),
        of_labels,
    )
    noise = csr_array((np.random.default_rng(5).random((len(data.train), 5)) < 0.4).astype(np.float32))
    words = Graph(
        "noise",
        Items([f"anchor-noise{n}" for n in range(5)], {"title": [*(f"noise{n}" for n in range(4)), "zzz"]}),
        noise,
    )
    return with_digest(replace(data, graphs={"pairs": pairs, "noise": words}))


@pytest.fixture(scope="session")
def planted_with_graphs(planted: Dataset) -> Dataset:
    return with_graphs(planted)


@pytest.fixture(scope="session")
def planted_graphs_folder(tmp_path_factory: pytest.TempPathFactory, planted_with_graphs: Dataset) -> Path:
    from longtail.data.read import write

    folder = tmp_path_factory.mktemp("data") / "planted_with_graphs"
    write(planted_with_graphs, folder, "lf")
    return folder


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, planted_folder: Path) -> Path:
    """A finished run of `tiny`. Tests that spoil it copy it first."""
    import longtail

    run = tmp_path_factory.mktemp("runs") / "tiny"
    longtail.train(planted_folder, run, "tiny")
    return run


@pytest.fixture(scope="session")
def direct_run(tmp_path_factory: pytest.TempPathFactory, planted_folder: Path) -> Path:
    """A finished run of `direct`, one epoch. Tests that spoil it copy it first."""
    import longtail

    run = tmp_path_factory.mktemp("runs") / "direct"
    settings = {"train": {"epochs": 1}, "encoder": {"width": 64}}
    longtail.train(planted_folder, run, "direct", settings=settings, device="cpu")
    return run


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Matrices in tests are tiny: a second thread costs more than it brings (on a busy machine tenfold, as idle ones
    spin).
    """
    import numba
    import torch

    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    numba.set_num_threads(before[1])


@pytest.fixture(scope="session")
def make_graphs() -> Callable[..., KeyGraphs]:
    """``make_graphs(sizes, width, seed)``: random graphs of so many vertices, each vertex with a sentence or two of
    its own.
    """
    from longtail.recipes.gnnxml.keygraph import KeyGraphs

    def make(sizes: Sequence[int], width: int = 4, seed: int = 0) -> KeyGraphs:
        rng = np.random.default_rng(seed)
        neighbours, weights, degrees, attached, attachments = [], [], [], [], []
        for size in sizes:
            shared = np.triu(rng.integers(0, 3, (size, size)), 1)
            shared += shared.T
            for v in range(size):
                neighbours.append(np.flatnonzero(shared[v]))
                weights.append(shared[v][neighbours[-1]])
                degrees.append(len(neighbours[-1]))
                attached.append(np.unique([v, rng.integers(size)]))
                attachments.append(len(attached[-1]))

        def starts(counts: Sequence[int]) -> I64:
            return np.append(0, np.cumsum(counts)).astype(np.int64)

        def flat(arrays: Sequence[Any], dtype: Any) -> Any:
            return np.concatenate([np.zeros(0), *arrays]).astype(dtype)

        vectors = rng.standard_normal((sum(sizes), width)).astype(np.float16)
        return KeyGraphs(
            vertex_starts=starts(sizes),
            sentence_starts=starts(sizes),
            words=np.array(sizes, np.int32),
            edge_starts=starts(degrees),
            neighbours=flat(neighbours, np.int32),
            weights=flat(weights, np.float32),
            attach_starts=starts(attachments),
            attached=flat(attached, np.int32),
            sentences=vectors,
        )

    return make
