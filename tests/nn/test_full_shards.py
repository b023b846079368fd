"""Labels split over processes give what one process gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from longtail.nn.batches import Bags, DeviceCsr
from longtail.nn.full import FullRows, LossKind
from longtail.nn.shards import Shard

# Whole vectors of the processor: torch takes another sigmoid for what is left over, whose last bit may differ.
DOCUMENTS, WIDTH, STEPS = 32, 16, 3
# Uneven shares, fewer labels than processes (so that one has none), and one label.
LABELS = (333, 2, 1)
LOSSES: tuple[LossKind, ...] = ("bce", "softmax")


def batch(labels: int, shard: Shard, documents: int = DOCUMENTS) -> tuple[torch.Tensor, torch.Tensor, Bags, Bags]:
    """Documents and rows of a process; pairs of the whole batch with its labels."""
    rng = np.random.default_rng(0)
    x, rows = (torch.from_numpy(rng.standard_normal((n, WIDTH), dtype=np.float32)) for n in (documents, labels))
    chances = rng.random((documents, labels))
    chances[0] = 1  # a document without labels
    targets, masked = (
        DeviceCsr(csr_array(m.astype(np.float32)[:, shard.rank :: shard.processes])).rows(np.arange(documents))
        for m in (chances < 0.02, (chances > 0.02) & (chances < 0.03))
    )
    return x[shard.part(documents)], shard.own(rows).clone(), targets, masked


def trained(loss: LossKind, labels: int, shard: Shard, documents: int = DOCUMENTS) -> dict[str, torch.Tensor]:
    x, rows, targets, masked = batch(labels, shard, documents)
    full = FullRows(rows, loss=loss, mean_over="documents", shard=shard)
    for _ in range(STEPS):
        mean, gradient = full.step(x, targets, 0.05, masked)
    return {"loss": mean, "gradient": gradient, "rows": full.rows}


def work(rank: int, folder: str, processes: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes
    )
    arrays: dict[str, Any] = {}
    for labels in LABELS:
        for loss in LOSSES:
            shard = Shard(labels, rank, processes)
            done = trained(loss, labels, shard)
            whole = shard.whole(done["rows"])
            assert (whole is None) == (rank > 0), "the first process alone has all rows"
            if whole is not None:
                arrays[f"{labels} {loss} whole"] = whole.numpy()
            arrays |= {f"{labels} {loss} {name}": value.numpy() for name, value in done.items()}
            if loss == "bce":
                arrays[f"{labels} sent"] = [shard.sent["documents"], shard.sent["gradients"]]
    # A batch with fewer documents than processes: one of them has none to encode.
    arrays["few"] = trained("bce", 333, Shard(333, rank, processes), documents=1)["rows"].numpy()
    torch.distributed.destroy_process_group()
    np.savez(f"{folder}/{rank}.npz", **arrays)


def test_several_processes_equal_one(tmp_path: Path) -> None:
    """Two of them train whole models in tests/training/test_processes.py."""
    processes = 3
    spawn: Any = torch.multiprocessing.__dict__["spawn"]  # torch leaves it untyped
    spawn(work, (str(tmp_path), processes), nprocs=processes)
    parts = [np.load(tmp_path / f"{rank}.npz") for rank in range(processes)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for labels in LABELS:
            for loss in LOSSES:
                compare(labels, loss, parts)
            # Each process sends what it has to every other, padded to equal parts: B / G vectors there, and back.
            one_way = STEPS * (processes - 1) * -(-DOCUMENTS // processes) * WIDTH * 4
            assert all(part[f"{labels} sent"].tolist() == [one_way, one_way] for part in parts)
        few = trained("bce", 333, Shard(333), documents=1)["rows"].numpy()
        for rank, part in enumerate(parts):
            np.testing.assert_allclose(part["few"], few[rank::processes], rtol=1e-5, atol=1e-6)
    finally:
        torch.set_num_threads(threads)


def compare(labels: int, loss: LossKind, parts: list[Any]) -> None:
    alone = {name: value.numpy() for name, value in trained(loss, labels, Shard(labels)).items()}
    pieces = {name: [part[f"{labels} {loss} {name}"] for part in parts] for name in alone}
    whole = parts[0][f"{labels} {loss} whole"]
    for rank, rows in enumerate(pieces["rows"]):
        np.testing.assert_array_equal(rows, whole[rank :: len(parts)])
    if loss == "bce" and labels == max(LABELS):
        # A row learns from the documents and from itself alone, and the documents are given: not a bit differs.
        # (Products with a single row are no matrix products for BLAS: there the last bit may.)
        np.testing.assert_array_equal(whole, alone["rows"])
    else:
        np.testing.assert_allclose(whole, alone["rows"], rtol=1e-4, atol=1e-4)
    for other in pieces["loss"]:
        np.testing.assert_array_equal(other, pieces["loss"][0], err_msg="every process knows the loss of all labels")
    np.testing.assert_allclose(pieces["loss"][0], alone["loss"], rtol=1e-5)
    # A gradient to a document is a sum over processes: equal to rounding.
    np.testing.assert_allclose(np.concatenate(pieces["gradient"]), alone["gradient"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 5, 10])
def test_every_label_and_every_document_is_somewhere_once(count: int, processes: int) -> None:
    shards = [Shard(count, rank, processes) for rank in range(processes)]
    labels = np.arange(count)
    assert sorted(label for shard in shards for label in shard.own(labels)) == list(range(count))
    assert [len(shard.own(labels)) for shard in shards] == [shard.count for shard in shards]
    parts = [shard.part(count) for shard in shards]
    assert [document for part in parts for document in range(count)[part]] == list(range(count))
    assert max(part.stop - part.start for part in parts) == -(-count // processes)


def test_rows_must_be_those_of_the_shard() -> None:
    with pytest.raises(ValueError, match="4 rows for a shard of 3"):
        FullRows(torch.zeros(4, 2), shard=Shard(9, 1, 3))
