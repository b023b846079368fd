"""`fit` inside a stage: with the run's generators, checkpoints, progress display and log."""

from __future__ import annotations

from longtail.training.fit import Watch, fit
from longtail.training.objectives import Objective
from longtail.training.run import Run
from longtail.training.schedules import Schedule

# Steps per epoch: with fewer, small data learns too little; more are a waste of time on large data.
FEWEST_STEPS, MOST_STEPS = 64, 512


def adapted_batch(documents: int, asked: int) -> int:
    """`asked`, made smaller (down to 8) or larger (up to four times) so that an epoch has 64 to 512 steps."""
    return max(min(asked, max(8, documents // FEWEST_STEPS)), min(4 * asked, documents // MOST_STEPS))


def fit_stage(
    objective: Objective,
    run: Run,
    name: str,
    *,
    epochs: int,
    batch: int,
    schedule: Schedule,
    watch: Watch | None = None,
) -> None:
    """Train for `epochs`; a killed run goes on after its last whole epoch, with the same result.

    batch: documents per step for data of middle size; see `adapted_batch`. watch: see `fit`.
    """
    batch = adapted_batch(objective.size, batch)
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
            watch=watch,
        )
    run.log("fit", name=name, losses=losses)
