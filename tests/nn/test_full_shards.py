"""Labels split over two processes give what one process gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from longtail.nn.batches import Bags, DeviceCsr
from longtail.nn.full import FullRows, LossKind, Shard

DOCUMENTS, LABELS, WIDTH, PROCESSES = 11, 333, 6, 2
LOSSES: tuple[LossKind, ...] = ("bce", "softmax")


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Bags, Bags]:
    rng = np.random.default_rng(0)
    x, rows = (torch.from_numpy(rng.standard_normal((n, WIDTH), dtype=np.float32)) for n in (DOCUMENTS, LABELS))
    chances = rng.random((DOCUMENTS, LABELS))
    chances[0] = 1  # a document without labels
    targets, masked = (
        DeviceCsr(csr_array(m.astype(np.float32))).rows(np.arange(DOCUMENTS))
        for m in (chances < 0.02, (chances > 0.02) & (chances < 0.03))
    )
    return x, rows, torch.from_numpy(rng.random(LABELS, dtype=np.float32)) + 1, targets, masked


def trained(loss: LossKind, shard: Shard | None) -> dict[str, torch.Tensor]:
    x, rows, _, targets, masked = batch()
    if shard is not None:
        rows = rows[shard.first : shard.first + shard.count].clone()
    full = FullRows(rows, loss=loss, mean_over="documents", shard=shard)
    for _ in range(3):
        mean, gradient = full.step(x, targets, 0.05, masked)
    return {"loss": mean, "gradient": gradient, "rows": full.rows}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES
    )
    done = {loss: trained(loss, Shard.even(LABELS, rank, PROCESSES)) for loss in LOSSES}
    torch.distributed.destroy_process_group()
    arrays: dict[str, Any] = {
        f"{loss} {name}": value.numpy() for loss, found in done.items() for name, value in found.items()
    }
    np.savez(f"{folder}/{rank}.npz", **arrays)


def test_two_processes_equal_one(tmp_path: Path) -> None:
    spawn: Any = torch.multiprocessing.__dict__["spawn"]  # torch leaves it untyped
    spawn(work, (str(tmp_path),), nprocs=PROCESSES)
    parts = [np.load(tmp_path / f"{rank}.npz") for rank in range(PROCESSES)]
    for loss in LOSSES:
        alone = trained(loss, None)
        for name, wanted in alone.items():
            pieces = [part[f"{loss} {name}"] for part in parts]
            if name != "rows":
                np.testing.assert_array_equal(pieces[0], pieces[1], err_msg="every process knows the whole")
            got = np.concatenate(pieces) if name == "rows" else pieces[0]
            np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_shards_cover_all_labels_once() -> None:
    shards = [Shard.even(10, rank, 3) for rank in range(3)]
    assert [label for shard in shards for label in range(shard.first, shard.first + shard.count)] == list(range(10))
    with pytest.raises(ValueError, match="4 rows for a shard of 3"):
        FullRows(torch.zeros(4, 2), shard=shards[0])
