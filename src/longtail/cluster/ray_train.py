"""Training under Ray Train: the command of every worker is that of `longtail train`, without ``--cluster``.

Ray starts the workers and connects them; what they do then is what they do under torchrun (`training.processes`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from longtail.cluster.ray_connection import connected
from longtail.errors import RunError
from longtail.training.processes import HINT


def train_on(
    address: str, run: Callable[[Sequence[str]], int], words: Sequence[str], workers: int, *, gpus: bool
) -> None:
    """``run(words)``, which gives an exit code, in `workers` processes of a cluster, in the folder of this one."""
    connected(address, "train --cluster")
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    trainer = TorchTrainer(
        _work,
        train_loop_config={"run": run, "words": list(words), "folder": os.getcwd()},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpus),
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if gpus else "gloo", timeout_s=7 * 24 * 3600),
        run_config=RunConfig(name="longtail"),
    )
    try:
        trainer.fit()
    except Exception as problem:  # of Ray's many, one for every way in which a worker can end
        last = str(problem).strip().splitlines()[-1] if str(problem).strip() else type(problem).__name__
        raise RunError(f"a worker of the cluster ended: {last}", HINT) from problem


def _work(config: dict[str, Any]) -> None:
    """What a worker does."""
    os.chdir(config["folder"])
    code = config["run"](config["words"])
    if code:
        raise RuntimeError(f"longtail train ended with {code}; its error is in the output of the worker")
