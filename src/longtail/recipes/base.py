"""What every recipe is: a config, and one method per module of DeepXML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from longtail.config import setting
from longtail.persistence import Part
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run


@dataclass(frozen=True)
class EnsembleConfig:
    learners: int = setting(
        1, "models trained from scratch with other clusters, their scores averaged (Astec-3: 3)", low=1, high=100
    )


class Recipe(Protocol):
    """One method of the literature, as four stages over shared parts (Paper: DeepXML Sec. 3).

    Each stage returns a part (saved and loaded by the run) or None where the method has nothing to do there.
    `classify` returns the finished `Ranker`, which must predict without torch.
    """

    NAME: ClassVar[str]
    CONFIG: ClassVar[type[Any]]  # a frozen dataclass of sections, one of them `features`
    config: Any
    # (encoder, data, run) -> ExtraLoss: what another recipe adds to the loss that trains the encoder of this one.
    extra_loss: Any = None

    def __init__(self, config: Any) -> None: ...

    def memory(self, data: TrainingSet) -> int:
        """Bytes that training will take at its peak, estimated before it starts."""
        ...

    def surrogate(self, data: TrainingSet, run: Run) -> Part | None:
        """Module I: an intermediate representation of documents, learnt on an easier task."""
        ...

    def shortlist(self, data: TrainingSet, surrogate: Any, run: Run) -> Part | None:
        """Module II: a search structure over labels, for hard negatives now and for prediction later."""
        ...

    def transfer(self, data: TrainingSet, surrogate: Any, shortlister: Any, run: Run) -> Part | None:
        """Module III: the representation that the classifiers start from."""
        ...

    def classify(self, data: TrainingSet, surrogate: Any, shortlister: Any, model: Any, run: Run) -> Part:
        """Module IV: one classifier per label, trained against hard negatives; gives the finished ranker."""
        ...
