"""What a trained model ranks where nothing is left out beforehand: its own scores of all labels, without a
shortlist.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.claims.measures import Columns, Trained, changed, columns_of
from longtail.errors import ConfigError
from longtail.evaluation import rank_test
from longtail.models.rankers import ClusterModel, Ensemble, IndexedRows, Model
from longtail.predictor import Predictor
from longtail.recipes.astec.ranker import Reranked
from longtail.recipes.galaxc.ranker import JointGraphModel
from longtail.recipes.gnnxml.ranker import KeygraphModel
from longtail.search.index import ExactIndex
from longtail.search.shortlist import ClusterBeam
from longtail.training.progress import SilentDisplay


def all_labels(trained: Trained) -> Columns:
    """Every metric, with all labels scored."""
    return _ranked(trained, exhaustive(trained.predictor.bundle.ranker))


def one_label(trained: Trained) -> Columns:
    """Every metric, with one label in each shortlist."""
    return _ranked(trained, changed(trained.predictor.bundle.ranker, {"shortlist_size": 1}))


def _ranked(trained: Trained, ranker: Any) -> Columns:
    yardstick, model = trained.world.yardstick, Predictor(replace(trained.predictor.bundle, ranker=ranker))
    return columns_of(yardstick.measure(rank_test(model, yardstick, SilentDisplay())))


def exhaustive(ranker: Any) -> Any:
    """The same model with every label in its shortlist, or with every cluster looked into."""
    match ranker:
        case Model():
            return replace(ranker, shortlist_size=len(ranker.classifier.rows))
        case ClusterModel():
            return replace(ranker, beam=every_cluster(ranker.beam))
        case JointGraphModel():
            return ranker.exhaustive()
        case KeygraphModel():
            return replace(ranker, beam=ranker.rankers.n_clusters)
        case IndexedRows() if isinstance(ranker.index, ExactIndex):
            return ranker
        case Reranked():
            return replace(ranker, base=exhaustive(ranker.base), depth=len(ranker.classifier.rows))
        case Ensemble():
            return replace(ranker, members=tuple(exhaustive(member) for member in ranker.members))
        case _:
            raise ConfigError(
                f"a {type(ranker).__name__} cannot be asked for all labels",
                "measure a model of a recipe that shortlists labels",
            )


def every_cluster(beam: ClusterBeam) -> ClusterBeam:
    return replace(beam, beam=beam.n_clusters)
