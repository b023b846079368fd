"""How fast texts go through the encoder while a dual encoder trains, beside the bare encoder on the same batches.

    python -m benchmarks.encoder_speed DATA --checkpoint minilm --recipe ramen --set base=ance --device cuda --json FILE

Training is whole steps: documents, labels, anchors, losses, Adam. Bare is forward and backward of the same module on
the very batches that these steps sent through it, with nothing around; and the same with Adam. Both in the same precision (bf16 on a GPU).
What happens between epochs (negatives and clusters are looked up, edges pruned) is not counted. Texts per second count every text once that
is encoded in a step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import write_result
from longtail import api
from longtail.data.read import read
from longtail.nn.batches import TensorBatch
from longtail.recipes.ramen import Ramen
from longtail.recipes.two_towers import TwoTowersRecipe
from longtail.training.optimisers import ModelAdam
from longtail.training.prepare import prepare
from longtail.training.progress import SilentDisplay
from longtail.training.run import Run
from longtail.training.stage_fit import adapted_batch
from longtail.training.two_towers import TwoTowers

WARM_UP = 3


def measure(objective: TwoTowers, batch: int, steps: int, rate: float = 1e-5) -> dict[str, Any]:
    """Seconds per step (medians) and texts per second: in training, of the bare encoder, and of it with Adam."""
    device = objective.documents.device
    objective.begins(0, 1)
    rng = np.random.default_rng(0)
    order = objective.order(rng)
    sent: list[list[TensorBatch]] = []
    hook = objective.encoder.register_forward_pre_hook(lambda _, inputs: sent[-1].append(inputs[0]))

    def train(step: int) -> None:
        sent.append([])
        rows = np.take(order, np.arange(step * batch, (step + 1) * batch), mode="wrap")
        objective.step(rows, rng, rate)

    in_training = timed(train, steps, device)
    hook.remove()
    adam = ModelAdam(objective.encoder)

    def bare(step: int, with_adam: bool) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            vectors = [objective.encoder(texts).score for texts in sent[step]]
        torch.autograd.backward([v.float().sum() for v in vectors])
        if with_adam:
            adam.step(rate)
        else:
            objective.encoder.zero_grad(set_to_none=True)

    alone = timed(lambda step: bare(step, False), steps, device)
    with_adam = timed(lambda step: bare(step, True), steps, device)
    lengths = [lengths for step in sent[WARM_UP:] for texts in step for lengths in texts.need_lengths().tolist()]
    texts = len(lengths) / steps
    return {
        "documents_per_step": batch,
        "texts_per_step": texts,
        "mean_tokens": float(np.mean(lengths)),
        "seconds_per_step": {"training": in_training, "bare": alone, "bare_with_adam": with_adam},
        "texts_per_second": {"training": texts / in_training, "bare": texts / alone, "bare_with_adam": texts / with_adam},
        "share_of_bare": alone / in_training,
        "share_of_bare_with_adam": with_adam / in_training,
    }


def timed(step: Callable[[int], None], steps: int, device: torch.device) -> float:
    """The median of seconds per step, after some that do not count."""
    seconds = []
    for number in range(WARM_UP + steps):
        wait(device)
        started = time.perf_counter()
        step(number)
        wait(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARM_UP:])


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--recipe", default="ance")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    recipe: Any = api.make_recipe(options.recipe, assignments=[f"features.checkpoint={options.checkpoint}", *options.set])
    data = read(options.data, test=False)
    ready = prepare(data, recipe.config.features)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), seed=0, device=options.device, display=SilentDisplay())
        base: Any = recipe.base if isinstance(recipe, Ramen) else recipe
        assert isinstance(base, TwoTowersRecipe), "only dual encoders take a checkpoint"
        objective = base.objective(ready, run, recipe.regularisers(ready, run) if isinstance(recipe, Ramen) else None)
        found = measure(objective, adapted_batch(objective.size, recipe.config.train.batch), options.steps)
    for name, value in found.items():
        print(f"{name:<26}{value}")
    if options.json:
        config = {"recipe": options.recipe, "set": options.set, "checkpoint": Path(options.checkpoint).name, "device": run.device, "steps": options.steps}
        command = f"python -m benchmarks.encoder_speed {data.name} --recipe {options.recipe} {' '.join(f'--set {each}' for each in options.set)}"
        write_result(options.json, "encoder_speed", found, command, data.digest, 0, config)


if __name__ == "__main__":
    main(sys.argv[1:])
