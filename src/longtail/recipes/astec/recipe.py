"""Astec: DeepXML's first instance (Paper: Dahiya et al., WSDM 2021). Sizes adapt to small data.

    I    label clusters are the surrogate task; learns word embeddings E: v = ReLU(E x)
    II   label centroids and training documents in v-space give hard negatives, and shortlists at prediction
    III  E is frozen; a residual R starts as the identity: x = v + ReLU(R v), spectrally bounded
    IV   R and one classifier per label are trained on positives, hard negatives and a few random ones
    then score = alpha * sigmoid(w_l . x) + (1 - alpha) * sigmoid(similarity), inside the shortlist

Every ablation of the paper is a setting. XML-CNN and MACH inside the framework are settings too:
`surrogate.encoder=cnn` with `features.max_tokens=32`, and `surrogate.encoder=mlp` with `surrogate.task=random`. Given
vectors (images, say) take the place of text by themselves where the data holds them. ECLARE's GAME can be put on the
two rankers that find clusters of labels first (`game.enabled` with `classify.learner=parabel` or
`shortlist.structures=clusters`).

Differs: E starts from random vectors, not fastText's (none are at hand offline; `surrogate.vectors` takes any table).
Differs: the paper's width is 300; 512 was chosen on validation slices of wordnet-related and debian-related.
Differs: walks of 400 steps with restart 0.8 (ECLARE's) in place of the released code's 50 and 0.2, with which
smoothed clusters hold less co-occurrence than plain ones on two of our three sets (claim A10 has the numbers).
Differs: a training document is not its own neighbour when its negatives are looked up (the released code forgets that).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from longtail.config import section, setting
from longtail.data.npz import read_vectors
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.graph.label_graph import LabelGraphConfig, label_graph
from longtail.graph.ops import ensure_diagonal, scale_rows_to_sum_one
from longtail.graph.walk import random_walk_graph
from longtail.models.clusters import ClusterModel
from longtail.models.encoders import FrozenEncoder, Refinement
from longtail.models.shortlisted import Classifier, Model, Reranked
from longtail.nn.batches import DeviceCsr, Documents, to_numpy
from longtail.nn.blocks import BoundMode, FullyConnected, Residual, frozen_block
from longtail.nn.encoders import BagEncoder, DenseEncoder, Encoder, MlpEncoder, Refined, encode_all
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.rows import OneVsAll, RowTable
from longtail.persistence import State
from longtail.recipes.astec.network import TokenCnn
from longtail.recipes.astec.spectral import spectral_vectors
from longtail.recipes.astec.tree import EncodedTree, Gamed
from longtail.recipes.base import EnsembleConfig, Recipe
from longtail.search.cluster import balanced_clusters, cluster_count, label_centroids, meta_labels, smooth
from longtail.search.cluster_beam import ClusterBeam
from longtail.search.game import GameSettings, cluster_graph
from longtail.search.index import CENTROIDS, DOCUMENTS
from longtail.search.negatives import (
    InBatchNegatives,
    Negatives,
    RandomNegatives,
    ShortlistNegatives,
    WithRandom,
    candidates,
    forbidden_pairs,
)
from longtail.search.shortlist import InstanceVote, LabelIndex, MergedShortlist
from longtail.search.tree import ClusterTree, TreeConfig
from longtail.training.fit import StepDecay, fit_stage
from longtail.training.indices import exact_index_on, index_on
from longtail.training.objectives import AllTargets, Objective, OwnCandidates
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I32, Batch, Csr

# Words kept of a smoothed centroid: clusters are as good as with all of them, and found much faster.
SMOOTHED_WIDTH = 128

BlockKind = Literal["residual", "full", "none"]


@dataclass(frozen=True)
class SurrogateConfig:
    task: Literal["cluster", "label_selection", "random", "unsupervised"] = setting(
        "cluster", "what stage I learns to predict"
    )
    clusters: int = setting(65_536, "clusters at most; fewer where there are fewer than 4 labels for each", low=2)
    correlations: bool = setting(True, "smooth centroids over labels that occur together before clustering")
    walk_length: int = setting(400, "steps of the random walk that finds such labels", low=1)
    walk_restart: float = setting(0.8, "chance of a step to go back to the start", low=0, high=1)
    walk_top: int = setting(10, "labels kept per label", low=1)
    selected: float = setting(0.2, "label_selection: share of labels, the most frequent", low=0, high=1)
    encoder: Literal["auto", "bag", "mlp", "cnn", "dense"] = setting(
        "auto", "auto: bag for text, dense for given vectors"
    )
    vectors: str = setting("", "a .npy file of word vectors (features x width) to start from; empty: random")
    width: int = setting(512, "numbers per document vector", low=2)
    epochs: int = setting(20, "passes over the documents", low=0)
    rate: float = setting(0.005, "learning rate of Adam", low=0)
    halve_at: tuple[int, ...] = setting((14,), "epochs at which the rate is halved", low=1)
    batch: int = setting(255, "documents per step; adapts to small and large data, an epoch has 64 to 512 steps", low=1)
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    block: BlockKind = setting("residual", "what stands between v and the surrogate's heads")
    bound: float = setting(1.0, "bound of the residual's spectral norm", low=0)
    bound_mode: BoundMode = setting("project", "how the bound is kept")


@dataclass(frozen=True)
class ShortlistConfig:
    structures: Literal["both", "labels", "documents", "clusters"] = setting(
        "both",
        "what is searched: label centroids, documents that vote, or both; or the clusters of stage I by its own heads",
    )
    size: int = setting(500, "labels per document", low=1)
    neighbours: int = setting(100, "documents that vote", low=1)
    reserved: float = setting(0.2, "share of places for labels that only the vote finds", low=0, high=1)
    gamma: float = setting(0.075, "weight of the vote beside the similarity to centroids", low=0, high=1)
    index: Literal["auto", "exact", "hnsw"] = setting("auto", "how vectors are searched; auto: by their number")
    head_labels: int = setting(7500, "labels with so many documents get several centroids", low=2)
    head_centres: int = setting(1, "centroids of such a label beside its mean; 1: none", low=1)


@dataclass(frozen=True)
class TransferConfig:
    block: BlockKind = setting("residual", "what stands between v and the classifiers")
    bound: float = setting(1.0, "bound of the residual's spectral norm", low=0)
    bound_mode: BoundMode = setting("project", "how the bound is kept")


@dataclass(frozen=True)
class ClassifyConfig:
    learner: Literal["joint", "slice", "dismec", "parabel", "surrogate"] = setting(
        "joint",
        "joint: classifiers with the residual; on frozen v: slice (hard negatives), dismec (all negatives), parabel "
        "(tree); surrogate: stage I alone",
    )
    negatives: Literal["shortlist", "uniform", "unigram", "inbatch", "full"] = setting(
        "shortlist", "where negatives come from"
    )
    count: int = setting(500, "negatives per document", low=1)
    random: int = setting(50, "more negatives, uniform, drawn anew in every epoch", low=0)
    positives: int = setting(20, "labels of a document per step at most", low=1)
    epochs: int = setting(15, "passes over the documents", low=0)
    rate: float = setting(0.002, "learning rate of Adam", low=0)
    halve_at: tuple[int, ...] = setting((14,), "epochs at which the rate is halved", low=1)
    batch: int = setting(255, "documents per step; adapts to small and large data, an epoch has 64 to 512 steps", low=1)
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    alpha: float = setting(0.5, "weight of the classifier beside the similarity in the final score", low=0, high=1)
    temperature: float = setting(1.0, "the similarity is divided by this before its sigmoid", low=1e-3)


@dataclass(frozen=True)
class RerankerConfig:
    enabled: bool = setting(False, "train a second encoder and classifiers on the first one's mistakes")
    depth: int = setting(200, "labels per document that are re-scored", low=1)
    beta: float = setting(0.6, "weight of the second score", low=0, high=1)
    epochs: int = setting(12, "passes over the documents", low=0)
    rate: float = setting(0.005, "learning rate of Adam", low=0)
    halve_at: tuple[int, ...] = setting((7,), "epochs at which the rate is halved", low=1)


@dataclass(frozen=True)
class AstecConfig:
    features: FeaturesConfig = section(
        FeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    surrogate: SurrogateConfig = section(SurrogateConfig, "stage I")
    shortlist: ShortlistConfig = section(ShortlistConfig, "stage II")
    transfer: TransferConfig = section(TransferConfig, "stage III")
    classify: ClassifyConfig = section(ClassifyConfig, "stage IV")
    reranker: RerankerConfig = section(RerankerConfig, "a second look at the best labels")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")
    tree: TreeConfig = section(TreeConfig, "classify.learner=parabel")
    game: GameSettings = section(
        GameSettings, "ECLARE's GAME, for classify.learner=parabel and shortlist.structures=clusters", enabled=False
    )
    graph: LabelGraphConfig = section(LabelGraphConfig, "the label graph of game.enabled")


@dataclass(frozen=True)
class Surrogate:
    """What stage I leaves behind: the encoder, the vectors v of all training documents, and its task.

    vectors: (N, D). clusters: (L,) the target of every label, -1 where it has none.
    heads: (K, D) and refinement: what predicted the targets; for analyses and `learner=surrogate`.
    """

    KIND = "astec-surrogate"

    encoder: FrozenEncoder
    refinement: Refinement | None
    vectors: F32
    clusters: I32
    heads: F32

    def head_vectors(self) -> F32:
        """(N, D): what the heads read of the training documents."""
        return self.vectors if self.refinement is None else self.refinement.apply(self.vectors)

    def state(self) -> State:
        arrays = {"vectors": self.vectors, "clusters": self.clusters, "heads": self.heads}
        return State(arrays=arrays, parts={"encoder": self.encoder, "refinement": self.refinement})

    @classmethod
    def from_state(cls, state: State) -> Surrogate:
        parts: Any = state.parts
        return cls(parts["encoder"], parts["refinement"], **state.arrays)


@dataclass(frozen=True)
class Shortlists:
    """What stage II leaves behind: the shortlister, and the hard negatives that it found for the training documents."""

    KIND = "astec-shortlists"

    shortlister: Any
    negatives: ShortlistNegatives | None

    def state(self) -> State:
        return State(parts={"shortlister": self.shortlister, "negatives": self.negatives})

    @classmethod
    def from_state(cls, state: State) -> Shortlists:
        parts: Any = state.parts
        return cls(parts["shortlister"], parts["negatives"])


class Astec(Recipe):
    NAME = "astec"
    CONFIG = AstecConfig

    def __init__(self, config: AstecConfig) -> None:
        self.config: AstecConfig = config

    def memory(self, data: TrainingSet) -> int:
        """Tables with their two moments, features, document vectors, negatives, and one block of scores.

        Measured beside a GPU, whose driver takes about 1,200 MiB of the machine's own memory: 9,765 MiB on
        yso-finna-en (8,653 by this), 3,066 on wordnet-related (3,042).
        """
        c, width = self.config, self.config.surrogate.width
        entries = 0 if data.documents.sparse is None else data.documents.sparse.nnz
        vocabulary = data.featurizer.width if data.documents.dense is None else 0
        clusters = cluster_count(data.n_labels, at_most=c.surrogate.clusters)
        tables = 3 * 4 * width * (vocabulary * (2 if c.reranker.enabled else 1) + clusters + data.n_labels)
        per_document = 4 * (3 * width + c.classify.count + (c.reranker.depth if c.reranker.enabled else 0))
        return tables + per_document * data.n_documents + 3 * 8 * entries + 2**28

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run) -> Surrogate:
        """Learn the encoder on an easier task. Paper: Astec Sec. 4, Module I."""
        self.check_clusters()
        c = self.config.surrogate
        clusters, n_clusters = self.surrogate_targets(data, run)
        encoder = new_encoder(data, c, run.rng("encoder")).to(run.device)
        block = new_block(c.block, encoder.width, run.rng("surrogate block"), c.dropout, c.bound, c.bound_mode, run)
        heads = OneVsAll(n_clusters, encoder.width, run.rng("heads")).to(run.device)
        if c.task != "unsupervised":
            # Documents none of whose labels has a target (label selection) teach nothing.
            targets = meta_labels(data.targets[:, clusters >= 0], clusters[clusters >= 0], n_clusters)
            rows = np.flatnonzero(np.diff(targets.indptr) > 0)
            trained = encoder if block is None else Refined(encoder, block)
            objective = AllTargets(
                trained, heads, Documents(data.documents.rows(rows), run.device), DeviceCsr(targets[rows], run.device)
            )
            fit_stage(
                objective, run, "surrogate", epochs=c.epochs, batch=c.batch, schedule=StepDecay(c.rate, c.halve_at)
            )
        vectors = encode_all(encoder, Documents(data.documents, run.device), "search")
        return Surrogate(encoder.frozen(), frozen_block(block), vectors, clusters, to_numpy(heads.weight))

    def check_clusters(self) -> None:
        """Settings about clusters that contradict others are refused before any training."""
        c, by_clusters = self.config, self.config.shortlist.structures == "clusters"
        if by_clusters and c.surrogate.task == "unsupervised":
            raise ConfigError(
                "shortlist.structures=clusters looks labels up by the heads of stage I, which "
                "surrogate.task=unsupervised does not train",
                "use surrogate.task=cluster",
            )
        if c.game.enabled and not by_clusters and c.classify.learner != "parabel":
            raise ConfigError(
                "game.enabled spreads scores of clusters, but no clusters are looked up",
                "use shortlist.structures=clusters, or learner=parabel",
            )

    def surrogate_targets(self, data: TrainingSet, run: Run) -> tuple[I32, int]:
        """Which target every label belongs to (-1: none), and how many there are."""
        c, counts = self.config.surrogate, data.label_counts()
        present = np.flatnonzero(counts > 0)
        n = cluster_count(len(present), at_most=c.clusters)
        clusters = np.full(data.n_labels, -1, dtype=np.int32)
        if c.task == "label_selection":
            chosen = np.lexsort((present, -counts[present]))[: max(1, round(c.selected * len(present)))]
            clusters[present[chosen]] = np.arange(len(chosen))
            return clusters, len(chosen)
        if c.task in ("random", "unsupervised"):
            clusters[present] = run.rng("buckets").integers(n, size=len(present))
            return clusters, n
        centroids = label_centroids(
            data.documents.sparse if data.documents.sparse is not None else data.documents.dense, data.targets
        )
        if c.correlations:
            walked = random_walk_graph(
                data.targets, length=c.walk_length, restart=c.walk_restart, rng=run.rng("walk"), top_k=c.walk_top
            )
            centroids = smooth(centroids, scale_rows_to_sum_one(ensure_diagonal(walked)), keep=SMOOTHED_WIDTH)
        clusters[present] = balanced_clusters(centroids[present], n, run.rng("clusters"))
        return clusters, int(clusters.max()) + 1

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: Surrogate, run: Run) -> Shortlists:
        """Two search structures on frozen v, and from them the hard negatives of every document. Paper: Astec Sec. 4,
        Module II.
        """
        c = self.config.classify
        by_clusters = self.config.shortlist.structures == "clusters"
        shortlister = (
            self.build_beam(data, surrogate, run)
            if by_clusters
            else self.build_shortlister(surrogate.vectors, data.targets, run)
        )
        negatives = None
        if c.negatives == "shortlist" and c.learner in ("joint", "slice"):
            forbidden, vectors = (
                forbidden_pairs(data.targets, data.masked),
                surrogate.head_vectors() if by_clusters else surrogate.vectors,
            )
            negatives = ShortlistNegatives.mine(shortlister, vectors, forbidden, min(c.count, data.n_labels))
        return Shortlists(shortlister, negatives)

    def build_beam(self, data: TrainingSet, surrogate: Surrogate, run: Run) -> ClusterBeam:
        """The clusters of stage I as shortlists of about the size that the settings ask for, with GAME if they say
        so.
        """
        c, heads, clusters = self.config, surrogate.heads, surrogate.clusters
        graph = self.game_graph(data, run)
        between = None if graph is None else cluster_graph(graph, clusters, len(heads), c.game.clusters)
        beam = math.ceil(c.shortlist.size * len(heads) / max(int((clusters >= 0).sum()), 1))
        return ClusterBeam.of(
            heads,
            clusters,
            between,
            beam=beam,
            game_mix=c.game.mix,
            game_transpose=c.game.transpose,
            make_index=exact_index_on(run.device, "dot"),
        )

    def game_graph(self, data: TrainingSet, run: Run) -> Csr | None:
        """The label graph that GAME spreads scores along; the same whenever it is asked for."""
        given = [graph.label_label for graph in data.graphs.values() if graph.label_label is not None]
        return (
            label_graph(data.targets, self.config.graph, run.rng("label graph"), given)
            if self.config.game.enabled
            else None
        )

    def build_shortlister(self, vectors: F32, targets: Csr, run: Run) -> LabelIndex | InstanceVote | MergedShortlist:
        """Label centroids, documents that vote, or both. Exact on a GPU; on a CPU by size."""
        c = self.config.shortlist

        def votes() -> InstanceVote:
            index = index_on(run.device, c.index, DOCUMENTS)
            return InstanceVote.build(vectors, targets, neighbours=c.neighbours, make_index=index)

        if c.structures == "documents":
            return votes()
        labels = LabelIndex.build(
            vectors,
            targets,
            make_index=index_on(run.device, c.index, CENTROIDS),
            head_centres=c.head_centres,
            head_documents=c.head_labels,
            rng=run.rng("head centres"),
        )
        # Slice looks labels up by their centroids alone.
        alone = c.structures == "labels" or self.config.classify.learner == "slice"
        return labels if alone else MergedShortlist(labels, votes(), c.gamma, c.reserved)

    # ---- III ----

    def transfer(self, data: TrainingSet, surrogate: Surrogate, shortlister: Shortlists, run: Run) -> None:
        """E stays as it is and the residual begins as the identity: there is nothing to compute. Paper: Astec Sec. 4,
        Module III.
        """

    # ---- IV ----

    def classify(
        self, data: TrainingSet, surrogate: Surrogate, shortlister: Shortlists, model: None, run: Run
    ) -> EncodedTree | Model | ClusterModel | Reranked:
        """One classifier per label against hard negatives. Paper: Astec Sec. 4, Module IV and the re-ranker."""
        c = self.config
        if c.classify.learner == "parabel":
            tree, graph = (
                ClusterTree.fit(surrogate.vectors, data.targets, c.tree, run.rng("tree")),
                self.game_graph(data, run),
            )
            return EncodedTree(surrogate.encoder, None, tree if graph is None else Gamed.build(tree, graph, c.game))
        if c.classify.learner == "surrogate":
            rows = np.where(surrogate.clusters[:, None] >= 0, surrogate.heads[surrogate.clusters], np.float32(-1e3))
            return self.model(
                data, surrogate, shortlister, surrogate.refinement, Classifier(rows.astype(np.float32)), 1.0, run
            )
        refinement, classifier = self.train_classifier(data, surrogate, shortlister, run)
        base = self.model(data, surrogate, shortlister, refinement, classifier, c.classify.alpha, run)
        return self.rerank(data, base, run) if c.reranker.enabled else base

    def model(
        self,
        data: TrainingSet,
        surrogate: Surrogate,
        shortlists: Shortlists,
        refinement: Refinement | None,
        classifier: Classifier,
        alpha: float,
        run: Run,
    ) -> Model | ClusterModel:
        """The trained parts put to work, by the shortlister that there is."""
        c = self.config
        if isinstance(shortlists.shortlister, ClusterBeam):
            beam, graph = shortlists.shortlister, self.game_graph(data, run)
            return ClusterModel(
                encoder=surrogate.encoder,
                shortlist_map=surrogate.refinement,
                rank_map=refinement,
                beam=beam,
                classifier=classifier,
                label_graph=graph,
                game_mix=c.game.mix,
                game_transpose=c.game.transpose,
            )
        return Model(
            encoder=surrogate.encoder,
            refinement=refinement,
            shortlister=shortlists.shortlister,
            classifier=classifier,
            shortlist_size=c.shortlist.size,
            alpha=alpha,
            temperature=c.classify.temperature,
        )

    def train_classifier(
        self, data: TrainingSet, surrogate: Surrogate, shortlists: Shortlists, run: Run
    ) -> tuple[Refinement | None, Classifier]:
        """Classifier rows and, for the joint learner, the residual, on vectors v that no longer change."""
        c, t = self.config.classify, self.config.transfer
        width = surrogate.vectors.shape[1]
        # v is not negative, so a DenseEncoder without projection is v itself with its dropout.
        encoder: Encoder = DenseEncoder(width, run.rng("no parameters"), dropout=c.dropout)
        block = new_block(
            t.block if c.learner == "joint" else "none", width, run.rng("block"), c.dropout, t.bound, t.bound_mode, run
        )
        trained = encoder if block is None else Refined(encoder, block)
        classifier = OneVsAll(data.n_labels, width, run.rng("classifier")).to(run.device)
        documents = Documents(Batch(dense=surrogate.vectors), run.device)
        objective: Objective
        if c.negatives == "full" or c.learner == "dismec":
            masked = data.masked_matrix()
            hidden = None if masked is None else DeviceCsr(masked, run.device)
            objective = AllTargets(trained, classifier, documents, DeviceCsr(data.targets, run.device), hidden)
        else:
            objective = self.own_candidates(trained, classifier, documents, data, shortlists.negatives)
        fit_stage(objective, run, "classify", epochs=c.epochs, batch=c.batch, schedule=StepDecay(c.rate, c.halve_at))
        return frozen_block(block), classifier.frozen()

    def own_candidates(
        self,
        encoder: Encoder,
        classifier: OneVsAll,
        documents: Documents,
        data: TrainingSet,
        hard: ShortlistNegatives | None,
    ) -> OwnCandidates:
        """The objective over positives, `hard` (or the sampled kind that the settings name) and random negatives."""
        c = self.config.classify
        forbidden, count = forbidden_pairs(data.targets, data.masked), min(c.count, data.n_labels)
        negatives: Negatives
        if hard is not None:
            negatives = WithRandom(hard, RandomNegatives(forbidden, c.random)) if c.random else hard
        elif c.negatives == "inbatch":
            negatives = InBatchNegatives(data.targets, forbidden, count)
        else:
            negatives = (
                RandomNegatives.unigram(data.targets, forbidden, count)
                if c.negatives == "unigram"
                else RandomNegatives(forbidden, count)
            )
        targets = data.targets
        return OwnCandidates(
            encoder,
            RestrictedTrainer(classifier),
            documents,
            lambda rows, rng: candidates(rows, targets, negatives, rng, max_positives=c.positives),
        )

    def rerank(self, data: TrainingSet, base: Model | ClusterModel, run: Run) -> Reranked:
        """A second model with an encoder of its own, on positives and the first one's best labels of training
        documents.
        """
        r, s, t = self.config.reranker, self.config.surrogate, self.config.transfer
        forbidden = forbidden_pairs(data.targets, data.masked)
        mistakes = ShortlistNegatives.from_rankings(
            lambda rows, k: base.rank(data.documents.rows(rows), k), forbidden, min(r.depth, data.n_labels)
        )
        encoder = new_encoder(data, s, run.rng("reranker encoder")).to(run.device)
        block = new_block("residual", encoder.width, run.rng("reranker block"), s.dropout, t.bound, t.bound_mode, run)
        classifier = OneVsAll(data.n_labels, encoder.width, run.rng("reranker classifier")).to(run.device)
        documents = Documents(data.documents, run.device)
        assert block is not None
        objective = self.own_candidates(Refined(encoder, block), classifier, documents, data, mistakes)
        fit_stage(
            objective,
            run,
            "reranker",
            epochs=r.epochs,
            batch=self.config.classify.batch,
            schedule=StepDecay(r.rate, r.halve_at),
        )
        return Reranked(base, encoder.frozen(), frozen_block(block), classifier.frozen(), r.depth, r.beta)


def new_encoder(data: TrainingSet, c: SurrogateConfig, rng: np.random.Generator) -> Encoder:
    """The encoder that the settings ask for, untrained."""
    documents = data.documents
    kind = c.encoder if c.encoder != "auto" else "bag" if documents.sparse is not None else "dense"
    if kind == "dense":
        if documents.dense is None:
            raise ConfigError(
                "surrogate.encoder=dense, but the data has no dense vectors",
                "use surrogate.encoder=bag, or give trn_X.npy",
            )
        if c.vectors:
            raise ConfigError(
                "surrogate.vectors are word vectors, but the data came with vectors in place of words",
                "leave surrogate.vectors empty, or use features.source=text",
            )
        return DenseEncoder(documents.dense.shape[1], rng, project_to=c.width, dropout=c.dropout)
    if documents.sparse is None:
        raise ConfigError(
            f"surrogate.encoder={kind} reads words, but the data came with dense vectors",
            "use surrogate.encoder=dense, or features.source=text",
        )
    if kind == "cnn" and documents.tokens is None:
        raise ConfigError(
            "surrogate.encoder=cnn reads token sequences, which were not made", "add --set features.max_tokens=32"
        )
    table = RowTable(torch.from_numpy(word_vectors(documents.sparse, c, rng)))
    if kind == "mlp":
        return MlpEncoder(table, c.width, rng, dropout=c.dropout)
    if kind == "cnn" and documents.tokens is not None:
        return TokenCnn(table, c.width, rng, length=documents.tokens.shape[1], dropout=c.dropout)
    return BagEncoder(table, dropout=c.dropout)


def word_vectors(documents: Csr, c: SurrogateConfig, rng: np.random.Generator) -> F32:
    """(V, D) vectors to start from: given, learnt without labels, or random with about unit length."""
    if c.vectors:
        given = np.array(read_vectors(Path(c.vectors)))
        if given.shape != (documents.shape[1], c.width):
            expected = (documents.shape[1], c.width)
            raise ConfigError(
                f"surrogate.vectors has shape {given.shape}, expected {expected}",
                "one row per feature, as wide as surrogate.width",
            )
        return given
    if c.task == "unsupervised":
        return spectral_vectors(documents, c.width, rng)
    return rng.standard_normal((documents.shape[1], c.width), dtype=np.float32) / np.float32(np.sqrt(c.width))


def new_block(
    kind: BlockKind, width: int, rng: np.random.Generator, dropout: float, bound: float, mode: BoundMode, run: Run
) -> Residual | FullyConnected | None:
    """What stands between v and a classifier, as the identity at first."""
    if kind == "none":
        return None
    return (
        Residual(width, rng, dropout=dropout, bound=bound, mode=mode)
        if kind == "residual"
        else FullyConnected(width, dropout=dropout)
    ).to(run.device)
