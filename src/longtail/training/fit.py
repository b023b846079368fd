"""The one training loop.

Everything random in epoch e (order of documents, sampled labels, dropout) comes from ``rng_for(e)``, so a training that
goes on from a checkpoint after epoch e - 1 gives the same bits as one that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.errors import ConfigError
from longtail.training.objectives import Objective
from longtail.training.schedules import Schedule
from longtail.types import I64

# Asking a GPU for the loss waits for it; asking rarely keeps it busy.
_BATCHES_BETWEEN_LOOKS = {"cpu": 1, "cuda": 50}


class Checkpoint(Protocol):
    """Keeps the last finished epoch."""

    def due(self, size: int) -> bool:
        """Whether a save of so many bytes is worth its time now."""
        ...

    def load(self) -> tuple[int, dict[str, NDArray[Any]]] | None: ...

    def save(self, epochs_done: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Arrays may share memory with the model, which training goes on to change: what is kept must be written or
        copied.
        """
        ...


class Watch(Protocol):
    """Looks on from epoch to epoch. What it remembers must be in the objective's state, so that a resumed training
    goes on alike.
    """

    def begins(self, epoch: int, epochs: int) -> bool:
        """Told before each epoch (from 0); False ends the training here."""
        ...

    def ended(self, epoch: int, epochs: int) -> None:
        """Told after each epoch, before it is saved."""
        ...


@runtime_checkable
class OwnOrder(Protocol):
    """An objective that says in which order documents come, where that is not simply at random."""

    def order(self, rng: np.random.Generator) -> I64:
        """(N,) int64, every document once."""
        ...


def fit(
    objective: Objective,
    *,
    epochs: int,
    batch_size: int,
    schedule: Schedule,
    rng_for: Callable[[int], np.random.Generator],
    checkpoint: Checkpoint | None = None,
    on_batch: Callable[[int, int, float], None] | None = None,
    watch: Watch | None = None,
) -> list[float]:
    """Train for `epochs` passes over the documents in random order (or an `OwnOrder`); the mean loss of every epoch.

    watch: may change the objective between epochs and end the training early.
    on_batch: told (batches done, batches in all, loss of the last one): after every batch on a CPU, now and then on a
    GPU. A loss that is not a number ends the training with a `ConfigError`; the checkpoint of the last good epoch
    stays.
    """
    history = _resumed(objective, checkpoint)
    batches = math.ceil(objective.size / batch_size)
    for epoch in range(len(history), epochs):
        if watch is not None and not watch.begins(epoch, epochs):
            break
        rng = rng_for(epoch)
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        order = objective.order(rng) if isinstance(objective, OwnOrder) else rng.permutation(objective.size)
        total: Tensor | float = 0.0
        for batch in range(batches):
            rows = order[batch * batch_size : (batch + 1) * batch_size]
            rate = schedule.rate(epoch + batch / batches, epochs)
            loss = objective.step(rows, rng, rate)
            total = total + loss.double() * len(rows)
            if (batch + 1) % _BATCHES_BETWEEN_LOOKS[loss.device.type] == 0 or batch + 1 == batches:
                _check(float(total), epoch, epochs, rate)
                if on_batch is not None:
                    on_batch(epoch * batches + batch + 1, epochs * batches, float(loss))
        history.append(float(total) / max(objective.size, 1))
        if watch is not None:
            watch.ended(epoch, epochs)
        state = objective.state()
        if checkpoint is not None and checkpoint.due(sum(value.nbytes for value in state.values())):
            arrays = {name: as_array(value) for name, value in state.items()}
            checkpoint.save(epoch + 1, arrays | {"fit.history": np.array(history)})
    return history


def _resumed(objective: Objective, checkpoint: Checkpoint | None) -> list[float]:
    """Put the state of the last finished epoch back; the losses of the epochs done."""
    saved = None if checkpoint is None else checkpoint.load()
    if saved is None:
        return []
    epochs_done, arrays = saved
    for name, value in objective.state().items():
        copy_into(value, arrays[name])
    history: list[float] = arrays["fit.history"].tolist()
    assert len(history) == epochs_done, "a checkpoint holds one loss per finished epoch"
    return history


def _check(total: float, epoch: int, epochs: int, rate: float) -> None:
    if not math.isfinite(total):
        raise ConfigError(
            f"training diverged: the loss is {total} in epoch {epoch + 1} of {epochs} (learning rate {rate:g})",
            "use a lower learning rate; if that does not help, look for vectors with huge or missing values in the "
            "data",
        )


def to_array(tensor: Tensor) -> NDArray[Any]:
    """A copy as numpy; bf16, which numpy does not know, as uint16 of the same bits."""
    return as_array(tensor.detach().to("cpu", copy=True))


def as_array(tensor: Tensor) -> NDArray[Any]:
    """`to_array` without a copy where the tensor is in the memory of the CPU."""
    here = tensor.detach().cpu()
    return (here.view(torch.uint16) if here.dtype == torch.bfloat16 else here).numpy()


@torch.no_grad()
def copy_into(tensor: Tensor, array: NDArray[Any]) -> None:
    """The inverse of `to_array`, in place."""
    values = torch.from_numpy(array.copy())
    tensor.copy_(values.view(torch.bfloat16) if tensor.dtype == torch.bfloat16 else values)
