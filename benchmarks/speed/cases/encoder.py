"""How fast texts go through the encoder while a dual encoder trains, beside the bare encoder on the same batches.

    python -m benchmarks.speed encoder DATA --recipe ramen --set base=ance --device cuda --out FILE.json

Training is whole steps: documents, labels, anchors, losses, Adam. Bare is forward and backward of the same module on
the very batches that these steps sent through it, with nothing around; and the same with Adam. Both in the same
precision (bf16 on a GPU). Steps follow each other without a wait, as they do in training: what the CPU prepares while
a GPU is at work costs nothing. A block of training steps and the same block of the bare encoder take turns; their
ratio is the median over blocks, so that a machine that is shared slows both. What happens between epochs (negatives
and clusters are looked up, edges pruned) is not counted. Texts per second count every text once that is encoded in a
step.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.common import Measured, data_argument, device_argument, set_argument
from longtail.data.read import read
from longtail.nn.batches import TensorBatch
from longtail.nn.encoders import Encoder
from longtail.recipes import make_recipe
from longtail.recipes.towers.network import TwoTowers
from longtail.recipes.towers.recipe import TwoTowersRecipe
from longtail.training import adapted_batch
from longtail.training.objectives import ModelAdam
from longtail.training.prepare import prepare
from longtail.training.progress import SilentDisplay
from longtail.training.run import Run

# Steps before the clock runs: memory is found, kernels are loaded.
WARM_UP = 10
BLOCKS = 3


def options(parser: argparse.ArgumentParser) -> None:
    data_argument(parser)
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--recipe", default="ance")
    set_argument(parser)
    device_argument(parser, "auto")
    parser.add_argument("--steps", type=int, default=20, help="of each block")


def measure(options: argparse.Namespace) -> Measured:
    recipe: Any = make_recipe(options.recipe, assignments=[f"features.checkpoint={options.checkpoint}", *options.set])
    data = read(options.data, test=False)
    ready = prepare(data, recipe.config.features)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), seed=0, device=options.device, display=SilentDisplay())
        base: Any = getattr(recipe, "base", recipe)
        assert isinstance(base, TwoTowersRecipe), "only dual encoders take a checkpoint"
        objective = base.objective(ready, run)
        found = measured(objective, adapted_batch(objective.size, recipe.config.train.batch), options.steps)
    config = {
        "recipe": options.recipe,
        "set": options.set,
        "checkpoint": Path(options.checkpoint).name,
        "device": run.device,
        "steps": options.steps,
        "blocks": BLOCKS,
    }
    return Measured(found, data.digest, config)


def measured(objective: TwoTowers, batch: int, steps: int, rate: float = 1e-5) -> dict[str, Any]:
    """Seconds per step and texts per second: in training, of the bare encoder, and of it with Adam. steps: of each
    block.
    """
    device = objective.documents.device
    objective.begins(0, 1)
    rng = np.random.default_rng(0)
    order = objective.order(rng)
    encoded: list[list[TensorBatch]] = []  # by step
    adam = ModelAdam(objective.encoder)

    def train(step: int) -> None:
        encoded.append([])
        rows = np.take(order, np.arange(step * batch, (step + 1) * batch), mode="wrap")
        objective.step(rows, rng, rate)

    def bare(step: int, with_adam: bool) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            vectors = [objective.encoder(texts).score for texts in encoded[step]]
        torch.autograd.backward([v.float().sum() for v in vectors])
        if with_adam:
            adam.step(rate)
        else:
            objective.encoder.zero_grad(set_to_none=True)

    def seconds_of(block: range) -> tuple[float, float, float]:
        with watched(objective.encoder, lambda texts: encoded[-1].append(texts)):
            in_training = seconds(train, block, device)
        return (
            in_training,
            seconds(lambda step: bare(step, False), block, device),
            seconds(lambda step: bare(step, True), block, device),
        )

    seconds_of(range(WARM_UP))
    blocks = np.array(
        [seconds_of(range(WARM_UP + number * steps, WARM_UP + (number + 1) * steps)) for number in range(BLOCKS)]
    )
    lengths = [length for step in encoded[WARM_UP:] for texts in step for length in texts.need_lengths().tolist()]
    texts = len(lengths) / len(blocks) / steps
    by_name = dict(zip(("training", "bare", "bare_with_adam"), np.median(blocks, axis=0).tolist(), strict=True))
    return {
        "documents_per_step": batch,
        "texts_per_step": texts,
        "calls_per_step": float(np.mean([len(step) for step in encoded[WARM_UP:]])),
        "mean_tokens": float(np.mean(lengths)),
        "seconds_per_step": by_name,
        "texts_per_second": {name: texts / value for name, value in by_name.items()},
        "share_of_bare": float(np.median(blocks[:, 1] / blocks[:, 0])),
        "share_of_bare_with_adam": float(np.median(blocks[:, 2] / blocks[:, 0])),
        "share_of_bare_by_block": (blocks[:, 1] / blocks[:, 0]).tolist(),
    }


@contextmanager
def watched(encoder: Encoder, on_batch: Callable[[TensorBatch], None]) -> Iterator[None]:
    """Call `on_batch` with every batch that goes through."""
    hook = encoder.register_forward_pre_hook(lambda _, inputs: on_batch(inputs[0]))
    try:
        yield
    finally:
        hook.remove()


def seconds(step: Callable[[int], None], block: range, device: torch.device) -> float:
    """Per step, over a block of them."""
    wait(device)
    started = time.perf_counter()
    for number in block:
        step(number)
    wait(device)
    return (time.perf_counter() - started) / len(block)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
