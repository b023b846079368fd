"""Rows with factored second moments: their update beside loops, blocks and processes, and trainings with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, random_array
from torch import Tensor

from longtail.errors import ConfigError
from longtail.nn.batches import Documents
from longtail.nn.encoders import BagEncoder
from longtail.nn.row_tables import AdamFactors, RowTable
from longtail.nn.shards import Shard
from longtail.recipes import make_recipe
from longtail.recipes.direct.factored import FactoredLabels, FactoredTable
from longtail.recipes.direct.objective import TextRows, marked_targets
from longtail.recipes.direct.settings import (
    MANY_IN_ROWS,
    TrainConfig,
    bytes_of_model,
    kind_of_rows,
    labels_per_step,
)
from longtail.training.fit import StepDecay, copy_into, fit, to_array
from longtail.training.run import StageCheckpoint
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

DOCUMENTS, WORDS, LABELS, WIDTH = 8, 12, 6, 4
RATE, KEEP, EPSILON = 0.01, 0.999, 1e-8


def gradients(steps: int, labels: int, width: int = WIDTH) -> list[NDArray[np.float32]]:
    """Of columns and rows of different sizes; a row that is only sometimes taught, a column that begins late."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.standard_normal((labels, 1)) + rng.standard_normal(width + 1))
    found = [(rng.standard_normal((labels, width + 1)) * sizes * 1e-4).astype(np.float32) for _ in range(steps)]
    for step, gradient in enumerate(found):
        gradient[0] *= step % 3 == 1
        gradient[:, 1] *= step > 1
    return found


def by_loops(steps: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Rows that began at zero."""
    labels, width = steps[0].shape[0], steps[0].shape[1] - 1
    rows, second, bias = np.zeros((labels, width + 1)), np.zeros(labels), np.zeros(labels)
    columns = np.zeros(width)
    for count, gradient in enumerate(steps, 1):
        mean, unbiased = columns.mean(), 1 - KEEP**count
        for label in range(labels):
            own = gradient[label].astype(np.float64)
            second[label] = KEEP * second[label] + (1 - KEEP) * np.mean(own[:width] ** 2)
            bias[label] = KEEP * bias[label] + (1 - KEEP) * own[width] ** 2
            change = own.copy()
            for column in range(width):
                share = max(columns[column] / mean, 0.01) if mean else 1.0
                change[column] /= np.sqrt(second[label] / unbiased * share) + EPSILON
            change[width] /= np.sqrt(bias[label] / unbiased) + EPSILON
            rows[label] -= RATE * change / max(1.0, np.sqrt(np.mean(change**2)))
        for column in range(width):
            columns[column] = KEEP * columns[column] + (1 - KEEP) * sum(gradient[:, column].astype(np.float64) ** 2)
    return rows


def taught(steps: list[NDArray[np.float32]], shard: Shard, edges: list[tuple[int, int]]) -> FactoredTable:
    """edges: first label and number of labels of each block, in the order in which they come."""
    own = [shard.own(torch.from_numpy(gradient)) for gradient in steps]
    table = FactoredTable(torch.zeros_like(own[0]))
    for count, gradient in enumerate(own, 1):
        factors = AdamFactors.of(count, RATE, (0.0, KEEP), EPSILON)
        for start, size in edges:
            table.update(start, size, 4 * gradient[start : start + size], 0.25, factors)
        table.end_step(shard)
    return table


def test_rows_follow_the_formula_in_any_order_of_blocks() -> None:
    steps = gradients(6, LABELS)
    wanted = by_loops(steps)
    whole, cut = (taught(steps, Shard(LABELS), edges) for edges in ([(0, 6)], [(4, 2), (0, 3), (3, 1)]))
    np.testing.assert_allclose(whole.rows.numpy(), wanted, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(cut.columns, whole.columns, rtol=1e-14, atol=0)
    torch.testing.assert_close(cut.rows, whole.rows, rtol=1e-6, atol=1e-9)


def test_a_label_that_was_rarely_seen_is_not_thrown_far() -> None:
    """One gradient after a thousand steps without any: the row moves as far as those that every step teaches."""
    silent, gradient = np.full((2, 2, WIDTH + 1), 1e-5, np.float32)
    silent[0] = 0
    rows = [taught(steps, Shard(2), [(0, 2)]).rows for steps in ([silent] * 1000, [*[silent] * 999, gradient])]
    moved = (rows[1] - rows[0])[0]
    torch.testing.assert_close(moved.square().mean().sqrt(), torch.tensor(RATE), rtol=1e-3, atol=0)


# ---- steps ----


def sparse(rows: int, columns: int, seed: int, density: float = 0.4) -> csr_array:
    return csr_array(random_array((rows, columns), density=density, rng=np.random.default_rng(seed), dtype=np.float32))


def objective(*, text: bool = True, text_every: int = 1, light: bool = False) -> FactoredLabels:
    encoder = BagEncoder(RowTable.random(WORDS, WIDTH, np.random.default_rng(3)), dropout=0.0)
    targets = sparse(DOCUMENTS, LABELS, 4)
    targets.data[:] = 1
    return FactoredLabels(
        encoder,
        TextRows(encoder.table, sparse(LABELS, WORDS, 1)) if text else None,
        torch.full((LABELS, 1), 0.5),
        torch.tensor(-1.0),
        Documents(Batch(sparse=sparse(DOCUMENTS, WORDS, 6, 0.6))),
        marked_targets(targets, None, "cpu"),
        start=torch.randn(LABELS, WIDTH, generator=torch.Generator().manual_seed(5)),
        text_every=text_every,
        compute=torch.float32,
        pace=1.0,
        light_words=light,
    )


@pytest.mark.parametrize("text", [False, True])
def test_training_lowers_the_loss(text: bool) -> None:
    model = objective(text=text, text_every=2, light=text)
    losses = [float(model.step(np.arange(DOCUMENTS), np.random.default_rng(0), 0.02)) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_state_holds_all_that_steps_change() -> None:
    """After copying the state into a new objective, both go on alike, to the last bit."""
    rows = np.arange(DOCUMENTS)
    first, second = (objective(text_every=3, light=True) for _ in range(2))
    for _ in range(4):
        first.step(rows, np.random.default_rng(0), 0.01)
    for name, value in first.state().items():
        copy_into(second.state()[name], to_array(value))  # as a checkpoint does it
    for _ in range(4):
        losses = [model.step(rows, np.random.default_rng(0), 0.01) for model in (first, second)]
        assert torch.equal(*losses)
    assert torch.equal(first.rows.free.rows, second.rows.free.rows)
    of_labels = {name: value.shape for name, value in first.state().items() if name in first.split_state()}
    assert of_labels["free.second"] == (LABELS, 2)
    assert all(shape[0] == LABELS for shape in of_labels.values())
    assert "columns" not in first.split_state(), "those of all labels, the same for every process"


def test_a_training_that_was_killed_goes_on_to_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StageCheckpoint, "due", lambda *_: True)

    def fitted(checkpoint: StageCheckpoint | None, killed_after: int = 9) -> FactoredLabels:
        model = objective(text_every=3)

        def look(done: int, *_: Any) -> None:
            if done > 2 * killed_after:
                raise KeyboardInterrupt

        fit(
            model,
            epochs=5,
            batch_size=4,
            schedule=StepDecay(0.02),
            rng_for=lambda epoch: np.random.default_rng([7, epoch]),
            checkpoint=checkpoint,
            on_batch=look,
        )
        return model

    with pytest.raises(KeyboardInterrupt):
        fitted(StageCheckpoint(tmp_path / "training"), killed_after=2)
    found, wanted = fitted(StageCheckpoint(tmp_path / "training")), fitted(None)
    assert torch.equal(found.rows.free.rows, wanted.rows.free.rows)
    assert torch.equal(found.rows.free.columns, wanted.rows.free.columns)


# ---- several processes ----


def work(rank: int, folder: str, processes: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes
    )
    shard = Shard(33, rank, processes)
    table = taught(gradients(4, 33, 15), shard, [(0, shard.count)])
    whole: Tensor | None = shard.whole(table.rows)
    torch.distributed.destroy_process_group()
    assert shard.sent["squares of columns"] == 4 * 15 * 8
    np.save(f"{folder}/columns{rank}.npy", to_array(table.columns))
    if whole is not None:
        np.save(f"{folder}/rows.npy", to_array(whole))


def test_rows_of_two_processes_are_those_of_one(tmp_path: Path) -> None:
    spawn: Any = torch.multiprocessing.__dict__["spawn"]  # torch leaves it untyped
    spawn(work, (str(tmp_path), 2), nprocs=2)
    alone = taught(gradients(4, 33, 15), Shard(33), [(0, 33)])
    np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), alone.rows.numpy(), rtol=1e-6, atol=1e-9)
    first, second = (np.load(tmp_path / f"columns{rank}.npy") for rank in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, alone.columns.numpy(), rtol=1e-14)


# ---- which rows a training has ----


def test_factored_rows_are_for_who_asks() -> None:
    config = make_recipe("direct", settings={"train": {"rows": "factored"}}).config
    assert kind_of_rows(config, MANY_IN_ROWS, "cuda") == "factored"
    plain = make_recipe("direct").config
    more = bytes_of_model(plain, 0, 1000, "cpu") - bytes_of_model(config, 0, 1000, "cpu")
    assert more == 1000 * (8 * 512 - 8), "no moments, but two numbers for each label"
    shard = Shard(100_000)
    assert labels_per_step(TrainConfig(rows="factored"), "cpu", shard, extra=False) == 0
    with pytest.raises(ConfigError, match=r"train\.sampled=on, but train\.rows=factored"):
        labels_per_step(TrainConfig(rows="factored", sampled="on"), "cpu", shard, extra=False)
