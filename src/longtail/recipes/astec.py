"""Astec: DeepXML's first instance (Paper: Dahiya et al., WSDM 2021). Sizes adapt to small data.

    I    label clusters are the surrogate task; learns word embeddings E: v = ReLU(E x)
    II   label centroids and training documents in v-space give hard negatives, and shortlists at prediction
    III  E is frozen; a residual R starts as the identity: x = v + ReLU(R v), spectrally bounded
    IV   R and one classifier per label are trained on positives, hard negatives and a few random ones
    then score = alpha * sigmoid(w_l . x) + (1 - alpha) * sigmoid(similarity), inside the shortlist

Every ablation of the paper is a setting. XML-CNN and MACH inside the framework are settings too: `surrogate.encoder=cnn`
with `features.max_tokens=32`, and `surrogate.encoder=mlp` with `surrogate.task=random`. Given vectors take the place of
text with `surrogate.encoder=dense` (chosen by itself when the data holds vectors).

Differs: E starts from random vectors, not fastText's (none are at hand offline; `surrogate.vectors` takes any table).
Differs: a training document is not its own neighbour when its negatives are looked up (the released code forgets that).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from longtail.config import section, setting
from longtail.data.npz import read_vectors
from longtail.engine.encoded_tree import EncodedTree
from longtail.engine.encoders import FrozenEncoder, Refinement
from longtail.engine.model import Classifier, Model, Reranked
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.graph.ops import ensure_diagonal, scale_rows_to_sum_one
from longtail.graph.walk import random_walk_graph
from longtail.nn.bag_encoder import BagEncoder, MlpEncoder
from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.blocks import BoundMode, FullyConnected, Residual
from longtail.nn.classifiers import OneVsAll
from longtail.nn.dense_encoder import DenseEncoder
from longtail.nn.encoded import Encoder, Refined, encode_all
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_table import RowTable
from longtail.nn.token_cnn import TokenCnn
from longtail.persistence import State
from longtail.recipes.base import Recipe
from longtail.search.cluster import balanced_clusters, cluster_count, label_centroids, meta_labels, smooth
from longtail.search.spectral import spectral_vectors
from longtail.search.tree import ClusterTree, TreeConfig
from longtail.training.fit import fit
from longtail.training.freeze import array, frozen_classifier, frozen_encoder, frozen_refinement
from longtail.training.objectives import AllTargets, Objective, OwnCandidates
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.training.schedules import StepDecay
from longtail.types import F32, I32, I64, Batch, Candidates, Csr

BlockKind = Literal["residual", "full", "none"]


@dataclass(frozen=True)
class SurrogateConfig:
    task: Literal["cluster", "label_selection", "random", "unsupervised"] = setting("cluster", "what stage I learns to predict")
    clusters: int = setting(65_536, "clusters at most; fewer where there are fewer than 4 labels for each", low=2)
    correlations: bool = setting(True, "smooth centroids over labels that occur together before clustering")
    walk_length: int = setting(50, "steps of the random walk that finds such labels", low=1)
    walk_restart: float = setting(0.2, "chance of a step to go back to the start", low=0, high=1)
    walk_top: int = setting(10, "labels kept per label", low=1)
    selected: float = setting(0.2, "label_selection: share of labels, the most frequent", low=0, high=1)
    encoder: Literal["auto", "bag", "mlp", "cnn", "dense"] = setting("auto", "auto: bag for text, dense for given vectors")
    vectors: str = setting("", "a .npy file of word vectors (features x width) to start from; empty: random")
    width: int = setting(300, "numbers per document vector", low=2)
    epochs: int = setting(20, "passes over the documents", low=0)
    rate: float = setting(0.005, "learning rate of Adam", low=0)
    halve_at: tuple[int, ...] = setting((14,), "epochs at which the rate is halved", low=1)
    batch: int = setting(255, "documents per step", low=1)
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    block: BlockKind = setting("residual", "what stands between v and the surrogate's heads")
    bound: float = setting(1.0, "bound of the residual's spectral norm", low=0)
    bound_mode: BoundMode = setting("project", "how the bound is kept")


@dataclass(frozen=True)
class ShortlistConfig:
    structures: Literal["both", "labels", "documents"] = setting("both", "what is searched: label centroids, documents that vote, or both")
    size: int = setting(500, "labels per document", low=1)
    neighbours: int = setting(100, "documents that vote", low=1)
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
        "joint", "joint: classifiers and residual together; on frozen v: slice (hard negatives), dismec (all negatives), parabel (tree); surrogate: stage I alone"
    )
    negatives: Literal["shortlist", "uniform", "unigram", "inbatch", "full"] = setting("shortlist", "where negatives come from")
    count: int = setting(500, "negatives per document", low=1)
    random: int = setting(50, "more negatives, uniform, drawn anew in every epoch", low=0)
    positives: int = setting(20, "labels of a document per step at most", low=1)
    epochs: int = setting(15, "passes over the documents", low=0)
    rate: float = setting(0.002, "learning rate of Adam", low=0)
    halve_at: tuple[int, ...] = setting((14,), "epochs at which the rate is halved", low=1)
    batch: int = setting(255, "documents per step", low=1)
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
class EnsembleConfig:
    learners: int = setting(1, "models trained from scratch with other clusters, their scores averaged (Astec-3: 3)", low=1, high=100)


@dataclass(frozen=True)
class AstecConfig:
    features: FeaturesConfig = section(FeaturesConfig, "which texts are read, and how they become numbers", subwords="chars")
    surrogate: SurrogateConfig = section(SurrogateConfig, "stage I")
    shortlist: ShortlistConfig = section(ShortlistConfig, "stage II")
    transfer: TransferConfig = section(TransferConfig, "stage III")
    classify: ClassifyConfig = section(ClassifyConfig, "stage IV")
    reranker: RerankerConfig = section(RerankerConfig, "a second look at the best labels")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")


@dataclass(frozen=True)
class Surrogate:
    """What stage I leaves behind: the encoder, the vectors v of all training documents, and its task.

    vectors: (N, D). clusters: (L,) target of every label, -1 where it has none. heads: (K, D), for analyses and `learner=surrogate`.
    """

    KIND = "astec-surrogate"

    encoder: FrozenEncoder
    vectors: F32
    clusters: I32
    heads: F32

    def state(self) -> State:
        return State(arrays={"vectors": self.vectors, "clusters": self.clusters, "heads": self.heads}, parts={"encoder": self.encoder})

    @classmethod
    def from_state(cls, state: State) -> Surrogate:
        encoder: Any = state.parts["encoder"]
        return cls(encoder, **state.arrays)


@dataclass(frozen=True)
class Shortlists:
    """What stage II leaves behind. negatives: (N, up to classify.count) label numbers, padded with -1."""

    KIND = "astec-shortlists"

    shortlister: Any
    negatives: I32

    def state(self) -> State:
        return State(arrays={"negatives": self.negatives}, parts={"shortlister": self.shortlister})

    @classmethod
    def from_state(cls, state: State) -> Shortlists:
        return cls(state.parts["shortlister"], state.arrays["negatives"])


class Astec(Recipe):
    NAME = "astec"
    CONFIG = AstecConfig

    def __init__(self, config: AstecConfig) -> None:
        self.config: AstecConfig = config

    def memory(self, data: TrainingSet) -> int:
        """Tables with their two moments, document vectors, negatives, and one block of scores."""
        c, width = self.config, self.config.surrogate.width
        vocabulary = data.featurizer.width if data.documents.dense is None else 0
        clusters = cluster_count(data.n_labels, at_most=c.surrogate.clusters)
        tables = 3 * 4 * width * (vocabulary * (2 if c.reranker.enabled else 1) + clusters + data.n_labels)
        per_document = 4 * (2 * width + c.classify.count + (c.reranker.depth if c.reranker.enabled else 0))
        return tables + per_document * data.n_documents + 2**28

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run) -> Surrogate:
        """Learn E on an easier task. Paper: Astec Sec. 4.1."""

        c = self.config.surrogate
        encoder = new_encoder(data, self.config, run, "surrogate")
        clusters, n_clusters = self.surrogate_targets(data, run)
        targets = meta_labels(data.targets[:, clusters >= 0], clusters[clusters >= 0], n_clusters)
        # Documents whose labels all have no target (label selection) are not trained on.
        rows = np.flatnonzero(np.diff(targets.indptr) > 0)
        heads = OneVsAll(n_clusters, encoder.width, run.rng("heads")).to(run.device)
        documents = Documents(data.documents, run.device)
        if c.task != "unsupervised":
            block = new_block(c.block, encoder.width, run.rng("surrogate block"), c.dropout, c.bound, c.bound_mode)
            trained = Refined(encoder, block).to(run.device) if block is not None else encoder.to(run.device)
            objective = AllTargets(trained, heads, Documents(data.documents.rows(rows), run.device), DeviceCsr(targets[rows], run.device))
            fit_logged(objective, run, "surrogate", c.epochs, c.batch, c.rate, c.halve_at)
        return Surrogate(frozen_encoder(encoder), encode_all(encoder.to(run.device), documents, "search"), clusters, array(heads.weight))

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
        rows = data.documents.sparse if data.documents.sparse is not None else data.documents.dense
        centroids = label_centroids(rows, data.targets)
        if c.correlations:
            centroids = smooth(centroids, label_correlations(data.targets, c, run))
        clusters[present] = balanced_clusters(centroids[present], n, run.rng("clusters"))
        return clusters, int(clusters.max()) + 1

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: Surrogate, run: Run) -> Shortlists:
        """Two search structures on frozen v, and from them the hard negatives of every document. Paper: Astec Sec. 4.2."""
        c = self.config
        labels_alone = c.shortlist.structures == "labels" or c.classify.learner == "slice"
        shortlister = build_shortlister(surrogate.vectors, data.targets, c.shortlist, labels_alone, run)
        negatives = np.zeros((data.n_documents, 0), dtype=np.int32)
        if c.classify.negatives == "shortlist" and c.classify.learner in ("joint", "slice"):
            negatives = hard_negatives(shortlister, surrogate.vectors, data, c.classify.count, run)
        return Shortlists(shortlister, negatives)

    # ---- III ----

    def transfer(self, data: TrainingSet, surrogate: Surrogate, shortlister: Shortlists, run: Run) -> None:
        """E stays as it is and the residual begins as the identity, so there is nothing to compute. Paper: Astec Sec. 4.3."""

    # ---- IV ----

    def classify(self, data: TrainingSet, surrogate: Surrogate, shortlister: Shortlists, model: None, run: Run) -> Any:
        """One classifier per label against hard negatives. Paper: Astec Sec. 4.4; the re-ranker: Sec. 4.5."""
        c = self.config
        if c.classify.learner == "parabel":
            return ClusterTree.fit(surrogate, data, c, run)
        block, classifier = self.train_classifier(data, surrogate, shortlister, run)
        base = Model(surrogate.encoder, block, shortlister.shortlister, classifier, c.shortlist.size, c.classify.alpha, c.classify.temperature)
        return self.rerank(data, base, run) if c.reranker.enabled else base

    def train_classifier(self, data: TrainingSet, surrogate: Surrogate, shortlists: Shortlists, run: Run) -> tuple[Refinement | None, Classifier]:
        """Classifier rows and, for the joint learner, the residual; on vectors v that no longer change."""

        c, t = self.config.classify, self.config.transfer
        width = surrogate.vectors.shape[1]
        # v is not negative, so a plain DenseEncoder is v itself with its dropout.
        encoder: Encoder = DenseEncoder(width, run.rng("unused"), dropout=c.dropout)
        block = new_block(t.block if c.learner == "joint" else "none", width, run.rng("block"), c.dropout, t.bound, t.bound_mode)
        trained = (encoder if block is None else Refined(encoder, block)).to(run.device)
        classifier = OneVsAll(data.n_labels, width, run.rng("classifier")).to(run.device)
        documents = Documents(Batch(dense=surrogate.vectors), run.device)
        objective: Objective
        if c.negatives == "full" or c.learner == "dismec":
            objective = AllTargets(trained, classifier, documents, DeviceCsr(data.targets, run.device))
        else:
            objective = OwnCandidates(trained, RestrictedTrainer(classifier), documents, candidate_source(data, shortlists.negatives, c))
        fit_logged(objective, run, "classify", c.epochs, c.batch, c.rate, c.halve_at)
        return frozen_refinement(block), frozen_classifier(classifier)

    def rerank(self, data: TrainingSet, base: Model, run: Run) -> Reranked:
        """A second model with an encoder of its own, on positives and the first one's best labels of training documents."""

        c, r, t = self.config.classify, self.config.reranker, self.config.transfer
        mistakes = ranked_negatives(base, data, r.depth, run)
        encoder = new_encoder(data, self.config, run, "reranker")
        block = new_block("residual", encoder.width, run.rng("reranker block"), c.dropout, t.bound, t.bound_mode)
        assert block is not None
        classifier = OneVsAll(data.n_labels, encoder.width, run.rng("reranker classifier")).to(run.device)
        objective = OwnCandidates(
            Refined(encoder, block).to(run.device), RestrictedTrainer(classifier), Documents(data.documents, run.device), candidate_source(data, mistakes, c)
        )
        fit_logged(objective, run, "reranker", r.epochs, c.batch, r.rate, r.halve_at)
        return Reranked(base, frozen_encoder(encoder), frozen_refinement(block), frozen_classifier(classifier), r.depth, r.beta)


# ---- what the stages are made of ----


def new_encoder(data: TrainingSet, config: AstecConfig, run: Run, name: str) -> Encoder:
    """The encoder that the settings ask for, untrained."""

    c, documents, rng = config.surrogate, data.documents, run.rng(f"{name} encoder")
    kind = c.encoder if c.encoder != "auto" else "bag" if documents.sparse is not None else "dense"
    if kind == "dense":
        if documents.dense is None:
            raise ConfigError("surrogate.encoder=dense, but the data has no vectors", "use surrogate.encoder=bag, or give trn_X.npy")
        return DenseEncoder(documents.dense.shape[1], rng, project_to=c.width, dropout=c.dropout)
    if documents.sparse is None:
        raise ConfigError(f"surrogate.encoder={kind} reads texts, but the data came with dense vectors", "use surrogate.encoder=dense, or features.source=text")
    table = RowTable(torch.from_numpy(word_vectors(documents.sparse, c, rng)))
    if kind == "mlp":
        return MlpEncoder(table, c.width, rng, dropout=c.dropout)
    if kind == "cnn":
        if documents.tokens is None:
            raise ConfigError("surrogate.encoder=cnn reads token sequences, which were not made", "add --set features.max_tokens=32")
        return TokenCnn(table, c.width, rng, length=documents.tokens.shape[1], dropout=c.dropout)
    return BagEncoder(table, dropout=c.dropout)


def word_vectors(documents: Csr, c: SurrogateConfig, rng: np.random.Generator) -> F32:
    """(V, D) vectors to start from: given, learnt without labels, or random with about unit length."""
    if c.vectors:
        given = read_vectors(Path(c.vectors))
        if given.shape != (documents.shape[1], c.width):
            raise ConfigError(f"surrogate.vectors has shape {given.shape}, expected {(documents.shape[1], c.width)}", "one row per feature, as wide as surrogate.width")
        return given
    if c.task == "unsupervised":
        return spectral_vectors(documents, c.width, rng)
    return rng.standard_normal((documents.shape[1], c.width), dtype=np.float32) / np.float32(np.sqrt(c.width))


def new_block(kind: BlockKind, width: int, rng: np.random.Generator, dropout: float, bound: float, mode: BoundMode) -> Residual | FullyConnected | None:

    if kind == "none":
        return None
    return Residual(width, rng, dropout=dropout, bound=bound, mode=mode) if kind == "residual" else FullyConnected(width, dropout=dropout)


def fit_logged(objective: Objective, run: Run, name: str, epochs: int, batch: int, rate: float, halve_at: tuple[int, ...]) -> None:
    """Train with the run's generators, checkpoints, progress and log."""

    steps = epochs * -(-objective.size // batch)
    with run.task(name, steps) as task:
        shown = 0

        def on_batch(done: int, _: int, loss: float) -> None:
            nonlocal shown
            task.advance(done - shown, f"loss {loss:.4f}")
            shown = done

        history = fit(
            objective,
            epochs=epochs,
            batch_size=batch,
            schedule=StepDecay(rate, halve_at),
            rng_for=lambda epoch: run.rng(name, epoch),
            checkpoint=run.checkpoint(name),
            on_batch=on_batch,
        )
    run.log("fit", name=name, losses=history)


def label_correlations(targets: Csr, c: SurrogateConfig, run: Run) -> Csr:
    """(L, L): labels that a random walk from a label meets. Paper: Astec Sec. 4.1; constants of the released code."""
    walked = random_walk_graph(targets, length=c.walk_length, restart=c.walk_restart, rng=run.rng("walk"), top_k=c.walk_top)
    return scale_rows_to_sum_one(ensure_diagonal(walked))


def build_shortlister(vectors: F32, targets: Csr, c: ShortlistConfig, labels_alone: bool, run: Run) -> LabelIndex | InstanceVote | MergedShortlist:
    """Label centroids, documents that vote, or both, over frozen v. Exact on a GPU; on a CPU by size."""

    def index(settings: HnswSettings) -> IndexBuilder:
        if run.device == "cuda" and c.index != "hnsw":
            return GpuExactIndex.build
        return partial(build_index, kind=c.index, hnsw=settings)

    if c.structures == "documents" and not labels_alone:
        return InstanceVote.build(vectors, targets, neighbours=c.neighbours, make_index=index(DOCUMENTS))
    labels = LabelIndex.build(
        vectors, targets, make_index=index(CENTROIDS), head_centres=c.head_centres, head_documents=c.head_labels, rng=run.rng("head centres")
    )
    if labels_alone:
        return labels
    return MergedShortlist(labels, InstanceVote.build(vectors, targets, neighbours=c.neighbours, make_index=index(DOCUMENTS)), c.gamma)
