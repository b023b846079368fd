"""The settings of RAMEN: those of the base methods, and its own.

The dual encoders' are at the top, as they share one set of them; every other base has a section of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cache, partial
from typing import Any, Literal

from longtail.config import section, setting
from longtail.features.settings import CheckpointFeaturesConfig
from longtail.recipes import recipe_class
from longtail.recipes.base import TUNABLE_FEATURES, EnsembleConfig
from longtail.recipes.ramen.graph_loss import BanditConfig, RegulariserConfig

# One of the dual encoders, whose settings are those of all.
_DUAL_ENCODER = "ance"
# What every recipe has: all bases share these.
_COMMON = ("features", "ensemble")


@dataclass(frozen=True)
class GraphsConfig:
    names: tuple[str, ...] = setting((), "graphs to use, by name; none named: all that have anchors")
    documents: bool = setting(True, "use edges of documents")
    labels: bool = setting(True, "use edges of labels")
    completion: Literal["walk", "none"] = setting("walk", "walk: items are linked to anchors near their own, too")
    length: int = setting(400, "steps of the walk from each anchor", low=1)
    restart: float = setting(0.8, "chance of a step to go back to the start", low=0, high=1)
    top: int = setting(10, "anchors kept per walk", low=1)
    draw: Literal["uniform", "visits"] = setting(
        "uniform",
        "which of its anchors an item is pulled to in a step: any of them, or by visits of the walk, where given ones "
        "have at least half of the chance",
    )
    noise: float = setting(0.0, "for experiments: share of edges that lead to a random anchor instead", low=0, high=1)
    share: float = setting(1.0, "for experiments: share of edges used", low=0, high=1)


def section_of(base: str, name: str, **defaults: Any) -> Any:
    """The section `name` of a base; `defaults` replace those of the base."""
    return replace(getattr(recipe_class(base).CONFIG(), name), **defaults)


# Graphs are regularisers here, so `direct` does not make labels of anchors as well, unless asked to.
_CHANGED = {
    "direct": {
        "anchors": section(
            partial(section_of, "direct", "anchors"),
            "anchors as labels while it trains, beside the regularisers",
            weight=0.0,
        )
    }
}


@cache
def _stages_class(base: str) -> type[Any]:
    own = [each for each in fields(recipe_class(base).CONFIG) if each.name not in _COMMON]
    sections = {each.name: section(partial(section_of, base, each.name), each.metadata["help"]) for each in own}
    sections |= _CHANGED.get(base, {})
    return make_dataclass(f"{base.capitalize()}Stages", [(name, Any, s) for name, s in sections.items()], frozen=True)


def stages_of(base: str) -> Any:
    """All settings of a base but those that every recipe has."""
    return _stages_class(base)()


@dataclass(frozen=True)
class RamenConfig:
    base: str = setting(
        "ance",
        "the method whose encoder is trained with graphs: ance, ngame, dexml, siamese, eclare, direct, or a recipe of "
        "a package that takes another loss",
    )
    features: CheckpointFeaturesConfig = section(
        CheckpointFeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    encoder: Any = section(
        partial(section_of, _DUAL_ENCODER, "encoder"),
        "the base method's, as all up to predict; not read by base=eclare and base=direct",
    )
    train: Any = section(partial(section_of, _DUAL_ENCODER, "train"), "stage I")
    classify: Any = section(partial(section_of, _DUAL_ENCODER, "classify"), "stage IV of ngame and siamese")
    predict: Any = section(partial(section_of, _DUAL_ENCODER, "predict"), "how it predicts")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")
    graphs: GraphsConfig = section(GraphsConfig, "which edges are used")
    regularise: RegulariserConfig = section(RegulariserConfig, "what edges ask of the encoder")
    bandit: BanditConfig = section(BanditConfig, "what each graph weighs")
    eclare: Any = section(partial(stages_of, "eclare"), "base=eclare: its settings")
    direct: Any = section(partial(stages_of, "direct"), "base=direct: its settings")

    def of_base(self) -> Any:
        """The settings of the base as the base has them; sections that only it has are at their defaults."""
        own, made = getattr(self, self.base, self), recipe_class(self.base).CONFIG()
        for name in (each.name for each in fields(made)):
            found = getattr(self if name in _COMMON else own, name, None)
            if name in _COMMON or type(found) is type(getattr(made, name)):
                made = replace(made, **{name: found})
        return made


# What is worth trying (`longtail tune`), with the base `ance` and the other dual encoders.
TUNABLE: Mapping[str, tuple[Any, ...]] = {
    **TUNABLE_FEATURES,
    "encoder.width": (128, 256, 512),
    "train.rate": (0.001, 0.002, 0.005),
    "regularise.margin": (0.1, 0.3, 0.5),
    "regularise.threshold": (0.0, 0.2, 0.4),
}
