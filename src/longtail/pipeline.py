"""Read this first: how data becomes a model.

    Dataset --prepare--> TrainingSet --surrogate, shortlist, transfer, classify--> Ranker --> bundle

`train_one` is the four modules of DeepXML, in order. Everything else is parts.
"""

from __future__ import annotations

from typing import Any

from longtail.data.dataset import Dataset
from longtail.models.ensemble import Ensemble
from longtail.recipes.base import Recipe
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.run import Run
from longtail.types import Ranker


def prepared(recipe: Recipe, data: Dataset, run: Run) -> TrainingSet:
    """Stage 0: numbers from texts. Test documents stay behind: a `TrainingSet` has no place for them."""
    return run.stage("0_prepare", lambda: prepare(data, recipe.config.features))


def train(recipe: Recipe, data: TrainingSet, run: Run) -> Ranker:
    """One model, or several from scratch with seeds of their own whose scores are averaged (`ensemble.learners`)."""
    run.check_memory(recipe.memory(data), f"training '{recipe.NAME}'")
    learners: int = recipe.config.ensemble.learners if hasattr(recipe.config, "ensemble") else 1
    if learners == 1:
        return train_one(recipe, data, run)
    members = tuple(train_one(recipe, data, run.member(number)) for number in range(learners))
    return run.stage("5_ensemble", lambda: Ensemble(members))


def train_one(recipe: Recipe, data: TrainingSet, run: Run) -> Ranker:
    """The four modules. Each stage is saved when it is done and loaded when the same command is given again."""
    surrogate = run.stage("1_surrogate", lambda: recipe.surrogate(data, run))
    shortlister = run.stage("2_shortlist", lambda: recipe.shortlist(data, surrogate, run))
    model = run.stage("3_transfer", lambda: recipe.transfer(data, surrogate, shortlister, run))
    ranker: Any = run.stage("4_classify", lambda: recipe.classify(data, surrogate, shortlister, model, run))
    assert isinstance(ranker, Ranker), "a recipe's last stage gives a ranker"
    return ranker
