"""`fit` inside a stage: with the run's generators, checkpoints, progress display and log."""

from __future__ import annotations

from longtail.training.fit import fit
from longtail.training.objectives import Objective
from longtail.training.run import Run
from longtail.training.schedules import Schedule

STEPS, SMALLEST_BATCH = 64, 8


def fit_stage(objective: Objective, run: Run, name: str, *, epochs: int, batch: int, schedule: Schedule) -> None:
    """Train for `epochs`; a killed run goes on after its last whole epoch, with the same result.

    batch: documents per step at most; small data takes smaller steps, so that an epoch still has `STEPS` of them.
    """
    batch = min(batch, max(SMALLEST_BATCH, objective.size // STEPS))
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
            checkpoint=run.checkpoint(name),
            on_batch=on_batch,
        )
    run.log("fit", name=name, losses=losses)
