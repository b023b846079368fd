"""What every recipe is: a config, and one method per module of DeepXML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, get_args, get_type_hints

from longtail.config import setting
from longtail.errors import ConfigError
from longtail.persistence import DataPart, Part, class_of, home_of
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Ranker

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset
    from longtail.nn.encoders import Encoder
    from longtail.training.objectives import ExtraLoss
    from longtail.training.parent import ParentModel

# Makes a loss that an encoder is trained with beside its own, for the encoder, the data and the run.
ExtraLossFactory: TypeAlias = "Callable[[Encoder, TrainingSet, Run], ExtraLoss]"


@dataclass(frozen=True)
class EnsembleConfig:
    """Several models as one."""

    learners: int = setting(
        1, "models trained from scratch with seeds of their own, their scores averaged (Astec-3: 3)", low=1, high=100
    )
    shared: bool = setting(
        False, "stage I is trained once, and models differ from stage II on (ECLARE's released configurations)"
    )


def _parts_in(declared: Any) -> list[type[DataPart]]:
    """The classes of parts in a declared type."""
    found = [one for inner in get_args(declared) for one in _parts_in(inner)]
    is_part = isinstance(declared, type) and issubclass(declared, DataPart) and hasattr(declared, "KIND")
    return [declared, *found] if is_part else found


# What is worth trying of the features, whatever reads them.
TUNABLE_FEATURES: Mapping[str, tuple[Any, ...]] = {
    "features.pairs": (True, False),
    "features.subwords": ("none", "chars"),
    "features.min_count_rest": (1, 2, 5),
}


class Recipe(Protocol):
    """One method of the literature, as four stages over shared parts (Paper: DeepXML Sec. 3).

    A recipe defines the stages that it has; `classify` is always one of them and returns the finished `Ranker`, which
    must predict without torch. What a stage returns is a part (saved and loaded by the run), or None.

    A recipe that trains an encoder of texts may let another loss join its own, and so be a base of `ramen`: the stage
    that trains the encoder calls `extra_loss`, if it was set, and gives what this makes to its objective; and it
    defines `encoder_width`.
    """

    NAME: ClassVar[str]
    # Of a recipe that a package brings: one line for `longtail recipes` (empty: the first of its docstring), and
    # whether training needs torch. For recipes of the house `longtail.recipes.RECIPES` says both.
    SUMMARY: ClassVar[str] = ""
    NEEDS_TORCH: ClassVar[bool] = False
    # Of a recipe that is named as "module:Class": kinds of its parts, each with its own "module:Class".
    PARTS: ClassVar[Mapping[str, str]] = {}
    CONFIG: ClassVar[type[Any]]  # a frozen dataclass of sections, one of them `features`
    # What `longtail tune` tries: a setting, and values that are worth it. Few: each one more takes trials.
    TUNABLE: ClassVar[Mapping[str, tuple[Any, ...]]] = TUNABLE_FEATURES
    # Several processes can train it together, each with a part of the labels: `classify` runs on all of them.
    SPLITS_LABELS: ClassVar[bool] = False
    # It can train on documents that are on the disk (`TrainingSet.everything`).
    TRAINS_FROM_DISK: ClassVar[bool] = False
    # For bases: the loss can be weighed, and asked for on documents that are kept apart from training.
    KEEPS_DOCUMENTS_APART: ClassVar[bool] = False
    # For bases: the encoder can be a pretrained transformer (`features.checkpoint`).
    READS_CHECKPOINTS: ClassVar[bool] = False
    config: Any
    extra_loss: ExtraLossFactory | None = None
    # Whether training can go on from a model of the same recipe, and the one it goes on from (`train --from`).
    CONTINUES: ClassVar[bool] = False
    parent: ParentModel | None = None
    # Where it will be trained, "cpu" or "cuda", which whoever trains it says before.
    device: str = ""

    def __init__(self, config: Any) -> None:
        self.config = config

    def memory(self, data: TrainingSet) -> int:
        """Bytes that training will take at its peak, estimated before it starts."""
        ...

    def needs_one_process(self) -> str:
        """Of a recipe that `SPLITS_LABELS`: what of its settings several processes cannot do; "" where nothing is."""
        return ""

    def encoder_width(self) -> int:
        """For bases, which alone define this: numbers of the vectors that `extra_loss` sees."""
        return 0

    def surrogate(self, data: TrainingSet, run: Run) -> Any:
        """Module I: an intermediate representation of documents, learnt on an easier task."""
        return None

    def shortlist(self, data: TrainingSet, surrogate: Any, run: Run) -> Any:
        """Module II: a search structure over labels, for hard negatives now and for prediction later."""
        return None

    def transfer(self, data: TrainingSet, surrogate: Any, shortlister: Any, run: Run) -> Any:
        """Module III: the representation that the classifiers start from."""
        return None

    def classify(self, data: TrainingSet, surrogate: Any, shortlister: Any, model: Any, run: Run) -> Part | None:
        """Module IV: one classifier per label, trained against hard negatives; gives the finished ranker.

        Of several processes the first gives it, the others None.
        """
        ...

    def joined(self, members: Sequence[Ranker], data: TrainingSet) -> Part:
        """Several trained models that answer together (`ensemble.learners`)."""
        from longtail.models.rankers import Ensemble

        return Ensemble(tuple(members))

    def tried_with(self, data: Dataset, share: float) -> Mapping[str, Any]:
        """Settings that trials of `train --effort` are trained with, so that they take less time.  data: all of it.
        share: of its documents that a trial has.
        """
        return {}

    def choices(self, data: Dataset) -> Mapping[str, tuple[Any, ...]]:
        """What `train --effort` tries for `data`: settings and values, those first that are worth most."""
        return {}

    def check_kinds(self) -> None:
        """Before training: every part that a stage says it gives can be opened again by its kind."""
        for stage in ("surrogate", "shortlist", "transfer", "classify"):
            try:
                declared = get_type_hints(getattr(self, stage)).get("return")
            except NameError:  # a type that is imported for type checkers alone
                continue
            for cls in _parts_in(declared):
                home = home_of(cls.KIND)
                if home is None or class_of(home) is not cls:
                    known = "which nobody declares" if home is None else f"which is {home}"
                    raise ConfigError(
                        f"stage '{stage}' of the recipe '{self.NAME}' gives a {cls.__name__} of the kind '{cls.KIND}', "
                        f"{known}: it could not be opened again",
                        "declare it as an entry point of the group longtail.parts, or in PARTS of the recipe's class",
                    )

    def defined_stages(self, data: TrainingSet) -> frozenset[str]:
        """Which of the first three modules this recipe has, with these settings and for this data; a module that would
        have nothing to do is not among them.
        """
        names = ("surrogate", "shortlist", "transfer")
        return frozenset(name for name in names if getattr(type(self), name) is not getattr(Recipe, name))
