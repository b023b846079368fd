"""The one training loop, learning rates over its course, and the loop inside a stage of a run (`fit_stage`).

Everything random in epoch e (order of documents, sampled labels, dropout) comes from ``rng_for(e)``, so a training that
goes on from a checkpoint after epoch e - 1 gives the same bits as one that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.errors import ConfigError, RunError
from longtail.nn.shards import Shard
from longtail.training import adapted_batch
from longtail.training.objectives import TrainingObjective, Watch, trained_state
from longtail.training.run import Run, StageCheckpoint
from longtail.types import I64


class Schedule(Protocol):
    def rate(self, epoch: float, epochs: int) -> float:
        """The learning rate at `epoch` (a fraction inside an epoch: 2.5 is half way through the third) of `epochs`."""
        ...


@dataclass(frozen=True)
class StepDecay:
    """A constant rate, multiplied by `factor` at the start of each epoch (counted from 0) named in `at`."""

    peak: float
    at: tuple[int, ...] = ()
    factor: float = 0.5

    @classmethod
    def every(cls, peak: float, share: float, epochs: int, factor: float = 0.5) -> StepDecay:
        """A decay after each `share` of the epochs. Paper: ECLARE Sec. 4 (halved after half of the epochs)."""
        steps = (math.ceil(number * share * epochs) for number in range(1, math.ceil(1 / share)))
        return cls(peak, tuple(step for step in steps if step < epochs), factor)

    def rate(self, epoch: float, epochs: int) -> float:
        return self.peak * self.factor ** sum(epoch >= step for step in self.at)


@dataclass(frozen=True)
class WarmUp:
    """Up to `peak` in a straight line during the first `share` of the training, then down to `end` x `peak` in another.

    Paper: GNN-XML Sec. 4.2 (a warm-up proportion of 0.1).
    """

    peak: float
    share: float = 0.1
    end: float = 1.0

    def rate(self, epoch: float, epochs: int) -> float:
        progress = epoch / epochs
        if progress < self.share:
            return self.peak * progress / self.share
        return self.peak * (1 - (1 - self.end) * (progress - self.share) / max(1 - self.share, 1e-12))


# Asking a GPU for the loss waits for it; asking rarely keeps it busy.
_BATCHES_BETWEEN_LOOKS = {"cpu": 1, "cuda": 50}


class Order(Protocol):
    """Numbers of documents, given out by slices that follow each other: an array, or what makes them when asked."""

    def __getitem__(self, part: slice, /) -> I64: ...


@runtime_checkable
class OwnOrder(Protocol):
    """An objective that says in which order documents come, where that is not simply at random."""

    def order(self, rng: np.random.Generator) -> Order:
        """Every document once."""
        ...


@runtime_checkable
class SplitObjective(Protocol):
    """An objective whose labels may be split over processes. What is saved is whole, however many there are."""

    shard: Shard

    def split_state(self) -> frozenset[str]:
        """Names of the tensors in its state that have a row for each label of this process alone."""
        ...


def fit(
    objective: TrainingObjective,
    *,
    epochs: int,
    batch_size: int,
    schedule: Schedule,
    rng_for: Callable[[int], np.random.Generator],
    checkpoint: StageCheckpoint | None = None,
    on_batch: Callable[[int, int, float], None] | None = None,
    watch: Watch | None = None,
) -> list[float]:
    """Train for `epochs` passes over the documents in random order (or an `OwnOrder`); the mean loss of every epoch.

    watch: may change the objective between epochs and end the training early.
    on_batch: called with (batches done, batches in all, loss of the last one), after every batch on a CPU, now and
        then on a GPU.

    A loss that is not a number ends the training with a `ConfigError`; the checkpoint of the last good epoch stays.
    Of several processes (`SplitObjective`) the first saves; all must be given the same checkpoint.
    """
    shard = _shard_of(objective)
    history = _resumed(objective, checkpoint)
    batches = math.ceil(objective.size / batch_size)
    for epoch in range(len(history), epochs):
        if watch is not None and not watch.begins(epoch, epochs):
            break
        rng = rng_for(epoch)
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        order: Order = objective.order(rng) if isinstance(objective, OwnOrder) else rng.permutation(objective.size)
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
        if checkpoint is not None and shard.agreed(checkpoint.due(sum(value.nbytes for value in state.values()))):
            _save(checkpoint, objective, history)
    return history


def _save(checkpoint: StageCheckpoint, objective: TrainingObjective, history: list[float]) -> None:
    shard, split = _shard_of(objective), _split(objective)
    whole = {name: shard.whole(value) if name in split else value for name, value in objective.state().items()}
    if shard.first:
        arrays = {name: as_array(value) for name, value in whole.items() if value is not None}
        checkpoint.save(len(history), arrays | {"fit.history": np.array(history)})


def _shard_of(objective: TrainingObjective) -> Shard:
    return objective.shard if isinstance(objective, SplitObjective) else Shard(0)


def _split(objective: TrainingObjective) -> frozenset[str]:
    return objective.split_state() if isinstance(objective, SplitObjective) else frozenset()


def _resumed(objective: TrainingObjective, checkpoint: StageCheckpoint | None) -> list[float]:
    """Put the state of the last finished epoch back; the losses of the epochs done."""
    saved = None if checkpoint is None else checkpoint.load()
    shard = _shard_of(objective)
    said = shard.said_by_all(0 if saved is None else saved[0])
    other = next((rank for rank, epoch in enumerate(said) if epoch != said[0]), None)
    if other is not None:
        raise RunError(
            f"process 0 has a checkpoint of epoch {said[0]}, process {other} one of epoch {said[other]}",
            "all processes must see the same run folder: give --out on a disk that they share",
        )
    if saved is None:
        return []
    epochs_done, arrays = saved
    split = _split(objective)
    for name, value in objective.state().items():
        copy_into(value, shard.own(arrays[name]) if name in split else arrays[name])
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


def saved_tensors(module: nn.Module, without: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Copies of the trained tensors of a module by name, but for names that begin with one of `without`."""
    return {name: to_array(value) for name, value in trained_state(module).items() if not name.startswith(without)}


def restore_tensors(module: nn.Module, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Put saved tensors back into a module like the one they came from; what was not saved stays as it is."""
    for name, value in trained_state(module).items():
        if name in tensors:
            # Saving makes an array of one number of a number.
            copy_into(value, tensors[name].reshape(value.shape))


def fit_stage(
    objective: TrainingObjective,
    run: Run,
    name: str,
    *,
    epochs: int,
    batch: int,
    schedule: Schedule,
    adapts: bool = True,
    watch: Watch | None = None,
) -> None:
    """Train for `epochs`; a killed run goes on after its last whole epoch, with the same result.

    batch: documents per step for data of middle size; see `adapted_batch`. adapts: without it, for data of any size.
    watch: see `fit`.
    """
    batch = adapted_batch(objective.size, batch) if adapts else batch
    checkpoint = run.checkpoint(name)
    if (saved := checkpoint.load()) is not None:
        run.display.say(f"{name}: going on after epoch {saved[0]} of {epochs}")
    with run.task(name, epochs * -(-objective.size // batch)) as task:
        shown = 0

        def on_batch(done: int, _: int, loss: float) -> None:
            nonlocal shown
            task.advance(done - shown, f"loss {loss:.4f}")
            shown = done

        losses = fit(
            objective,
            epochs=epochs,
            batch_size=batch,
            schedule=schedule,
            rng_for=lambda epoch: run.rng(name, epoch),
            checkpoint=checkpoint,
            on_batch=on_batch,
            watch=watch,
        )
    sent = dict(_shard_of(objective).sent)
    run.log("fit", name=name, losses=losses, **({"sent": sent} if sent else {}))
