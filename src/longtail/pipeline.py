"""Read this first: how data becomes a model.

    Dataset --prepare--> TrainingSet --surrogate, shortlist, transfer, classify--> Ranker --> bundle

`train` is the four modules of DeepXML, in order. Everything else is parts.
"""

from __future__ import annotations

from longtail.data.dataset import Dataset
from longtail.recipes.base import Recipe
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.run import Run
from longtail.types import Ranker


def prepared(recipe: Recipe, data: Dataset, run: Run) -> TrainingSet:
    """Stage 0: numbers from texts. Test documents stay behind: a `TrainingSet` has no place for them."""
    return run.stage("0_prepare", lambda: prepare(data, recipe.config.features))


def train(recipe: Recipe, data: TrainingSet, run: Run) -> Ranker:
    """Each stage is saved when it is done and loaded when the same command is given again."""
    run.check_memory(recipe.memory(data), f"training '{recipe.NAME}'")
    surrogate = run.stage("1_surrogate", lambda: recipe.surrogate(data, run))
    shortlister = run.stage("2_shortlist", lambda: recipe.shortlist(data, surrogate, run))
    model = run.stage("3_transfer", lambda: recipe.transfer(data, surrogate, shortlister, run))
    ranker: Ranker = run.stage("4_classify", lambda: recipe.classify(data, surrogate, shortlister, model, run))
    return ranker
