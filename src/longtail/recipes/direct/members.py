"""The models that were made one, as they were before: what `train --from` goes on with.

One model that was projected from several has nothing to spare: dropout hurts it, and a few steps make it one model like
any other, without what several had learnt together. So a run keeps them, beside the bundle, in two bytes a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from longtail.bundle import Bundle
from longtail.declared import Shaped
from longtail.models.renumbered import RenumberedLabels
from longtail.nn.batches import to_numpy
from longtail.nn.blocks import Residual
from longtail.nn.encoders import BagSum
from longtail.nn.shards import Shard
from longtail.persistence import DataPart, load_part
from longtail.recipes.direct.network import Learner
from longtail.recipes.direct.settings import DirectConfig, models_together
from longtail.training.parent import ParentModel
from longtail.training.prepare import TrainingSet
from longtail.training.processes import launched
from longtail.training.run import Run
from longtail.types import F32

STAGE = "4_members"
F16 = NDArray[np.float16]


@dataclass(frozen=True)
class Members(DataPart):
    """G models.  words: (G, V, D).  residuals: (G, D, D), or (G, 0, 0) without.  rows: (G, L, D).  biases: (G, L)."""

    KIND = "members-made-one"

    words: Annotated[F16, Shaped("members", "words", "width")]
    residuals: Annotated[F32, Shaped("members", "inner", "inner")]
    rows: Annotated[F16, Shaped("members", "labels", "width")]
    biases: Annotated[F32, Shaped("members", "labels")]

    def __len__(self) -> int:
        return len(self.words)

    @staticmethod
    def of(learners: Sequence[Learner], labels: int) -> Members:
        """labels: of all rows, anchors behind them, those that are kept."""
        rows = [to_numpy(found[:labels]) for one in learners if (found := one.objective.final_rows()) is not None]
        words = [to_numpy(one.encoder.table.weight) for one in learners if isinstance(one.encoder, BagSum)]
        blocks = [to_numpy(one.block.frozen_weight()) for one in learners if isinstance(one.block, Residual)]
        return Members(
            np.stack([part.astype(np.float16) for part in words]),
            np.stack(blocks) if blocks else np.zeros((len(rows), 0, 0), dtype=np.float32),
            np.stack([part[:, :-1].astype(np.float16) for part in rows]),
            np.stack([part[:, -1] for part in rows]),
        )

    def model(self, number: int) -> tuple[F32, F32 | None, F32]:
        """(V, D) words, (D, D) or None, and (L, D + 1) rows of one of them."""
        rows = np.concatenate([self.rows[number], self.biases[number][:, None]], axis=1, dtype=np.float32)
        residual = self.residuals[number]
        return self.words[number].astype(np.float32), residual if residual.size else None, rows


def keep_members(learners: Sequence[Learner], labels: int, run: Run) -> None:
    """As a stage of the run, where there are several that can go on (without a view)."""
    if len(learners) > 1 and all(isinstance(one.encoder, BagSum) and one.encoder.view is None for one in learners):
        run.stage(STAGE, lambda: Members.of(learners, labels))


def members_of(bundle: Bundle) -> Members | None:
    """Those of the run that made a bundle; None where it lies alone, or was one model from the beginning."""
    folder = bundle.folder.parent / "stages" / STAGE
    found = load_part(folder) if bundle.folder.name == "bundle" and folder.is_dir() else None
    return found if isinstance(found, Members) else None


def members_to_go_on(start: ParentModel) -> Members | None:
    """The models that a model to go on from was made of, where labels are as they were."""
    return None if isinstance(start.bundle.ranker, RenumberedLabels) else members_of(start.bundle)


def models_to_train(
    config: DirectConfig, data: TrainingSet, device: str, start: ParentModel | None, *, extra: bool
) -> int:
    """How many models a training has: those that it goes on with, else as many as `models_together` says."""
    if start is None:
        return models_together(config, data, device, Shard(data.n_labels, processes=launched()[1]), extra=extra)
    members = members_to_go_on(start)
    return 1 if members is None else len(members)
