"""Where Astec looks labels up, and where its negatives come from. Paper: Astec Sec. 4, Module II."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from longtail.graph.label_graph import label_graph
from longtail.persistence import DataPart
from longtail.recipes.astec.settings import AstecConfig, ClassifyConfig
from longtail.search.index import CENTROIDS, DOCUMENTS, HnswSettings, IndexBuilder, build_index
from longtail.search.negatives import InBatchNegatives, Negatives, RandomNegatives, ShortlistNegatives
from longtail.search.shortlist import ClusterBeam, InstanceVote, LabelIndex, MergedShortlist
from longtail.training.indices import GpuExactIndex, cluster_beam
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.training.surrogate import Surrogate
from longtail.types import F32, Csr


@dataclass(frozen=True)
class Shortlists(DataPart):
    """What stage II leaves behind: the shortlister, and the hard negatives that it found for the training documents."""

    KIND = "astec-shortlists"

    shortlister: Any
    negatives: ShortlistNegatives | None


def nearest_labels(
    vectors: F32, targets: Csr, config: AstecConfig, run: Run
) -> LabelIndex | InstanceVote | MergedShortlist:
    """Label centroids, documents that vote, or both.  vectors: (N, D), v of the documents. Exact on a GPU; on a CPU by
    size.
    """
    c = config.shortlist
    on_gpu = run.device == "cuda" and c.index != "hnsw"

    def index(settings: HnswSettings) -> IndexBuilder:
        return lambda items: GpuExactIndex.build(items) if on_gpu else build_index(items, c.index, hnsw=settings)

    def votes() -> InstanceVote:
        return InstanceVote.build(vectors, targets, neighbours=c.neighbours, make_index=index(DOCUMENTS))

    if c.structures == "documents":
        return votes()
    labels = LabelIndex.build(
        vectors,
        targets,
        make_index=index(CENTROIDS),
        head_centres=c.head_centres,
        head_documents=c.head_labels,
        rng=run.rng("head centres"),
    )
    # Slice looks labels up by their centroids alone.
    alone = c.structures == "labels" or config.classify.learner == "slice"
    return labels if alone else MergedShortlist(labels, votes(), c.gamma, c.reserved)


def best_clusters(surrogate: Surrogate, graph: Csr | None, config: AstecConfig, run: Run) -> ClusterBeam:
    """The clusters of stage I as shortlists of about the size that the settings ask for. graph: of labels, for GAME."""
    heads, clusters = surrogate.heads, surrogate.clusters
    beam = math.ceil(config.shortlist.size * len(heads) / max(int((clusters >= 0).sum()), 1))
    return cluster_beam(heads, clusters, graph, config.game, beam=beam, device=run.device)


def game_graph(data: TrainingSet, config: AstecConfig, run: Run) -> Csr | None:
    """The label graph that GAME spreads scores along, the same whenever it is asked for; None where GAME is off."""
    if not config.game.enabled:
        return None
    return label_graph(data.targets, config.graph, run.rng("label graph"), data.label_graphs())


def sampled_negatives(targets: Csr, forbidden: Csr, config: ClassifyConfig) -> Negatives:
    """Negatives that no search finds. Paper: Astec Sec. 5 (ablations of the sampler)."""
    count = min(config.count, int(targets.shape[1]))
    if config.negatives == "inbatch":
        return InBatchNegatives(targets, forbidden, count)
    if config.negatives == "unigram":
        return RandomNegatives.unigram(targets, forbidden, count)
    return RandomNegatives(forbidden, count)
