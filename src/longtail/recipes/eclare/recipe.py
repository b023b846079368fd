"""ECLARE: label text and label correlations for rare labels (Paper: Mittal, Sachdeva et al., WWW 2021). Sizes adapt
to small data.

    graph random walks through documents say which labels belong together (G); frequent labels stay alone
    I     labels are clustered by centroids that G completes; token vectors E and the document block are learnt by
          predicting clusters, whose classifiers are composed of the clusters' text and their neighbours' text alone
    II    E is frozen; labels are clustered again in its space; cluster classifiers get free vectors too and are
          trained on; the best clusters, after their scores were spread along G (GAME), give shortlists and hard
          negatives
    III   a new document block starts as the identity; each label's free vector starts as the text of its neighbours
    IV    a label's classifier is composed of its text (LTE), its neighbours' text (GALE) and its free vector, mixed
          by attention, and trained on positives and hard negatives
    then  score = (sigmoid(w_l . x), spread along G) x root of the score of the label's cluster, inside the best
          clusters

Every ablation of the paper's Table 5 is a setting: see `VARIANTS`. What the data lacks is left out, and the run says
so: without label text classifiers are free vectors alone; where no two labels occur together (and no graph is given)
GALE and GAME fall away.

Differs: the paper's width is 300 below 400K labels and 512 above; here 512, as for Astec.
Differs: rates are 0.002 in all stages. The paper's 0.01, 0.008 and 0.008 learn documents by heart: on a slice of
wordnet-related P@1 / PSP@5 / R@100 were 48.6 / 45.6 / 66.7 with them and 53.1 / 50.8 / 73.7 with 0.002
(`configs/eclare` has the paper's).
Differs: on a CPU an epoch has 64 steps, of 8,192 documents at most, and rates grow with the root of that
    (`training.batch`); the paper's steps have
255. On slices (`eclare_ablation.json`) P@1 / PSP@5 were 52.2 / 50.3 in place of 52.9 / 51.9 on wordnet-related, 36.9
     / 36.1 in place of
36.1 / 35.7 on yso-finna-en.
Differs: a shortlist holds about 480 labels, as many as the paper's for 1.3M labels and as Astec's; the paper has 120
    for 131K.
Differs: classifiers have a bias (so does the released code, in II and IV), which starts at the log-odds of a label.
Token vectors are shared by documents and labels: without a bias, training first pushes all scores down by pushing
both apart, and documents die in the ReLU: after 20 epochs of stage I on a slice of debian-related the loss was still
three times that of a constant guess (0.016).
Differs: scores are spread along the graph by half (`game.mix`, the released code's way), and a cluster's score counts
by its root (`classify.cluster_power`); the paper's 1 and 1 gave 36.2 in place of 39.0 of R@10 and 16.5 of 18.0 of
PSP@5 on that slice.
Differs: the shortlister keeps the document block it was trained with; ranking has one of its own (the paper is silent).
Differs: in II attention starts anew, as it has one component more than in I.
Differs: texts of clusters are unit vectors, and edges between clusters, where texts are convolved with them, sums
scaled like G (the released code's way): with the paper's means neighbours would count less the more labels a cluster
has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.config import section, setting
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.graph.label_graph import LabelGraphConfig, head_labels, label_graph
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import csr
from longtail.models.clusters import ClusterModel
from longtail.models.encoders import FrozenSum, Refinement
from longtail.models.shortlisted import Classifier
from longtail.nn.batches import DeviceCsr, Documents, to_tensor
from longtail.nn.blocks import DocumentBlock
from longtail.nn.encoders import BagSum, Encoder, GivenVectors, Refined, encode_all
from longtail.nn.initial import uniform
from longtail.nn.rows import RowTable
from longtail.persistence import State
from longtail.recipes.base import EnsembleConfig, Recipe
from longtail.recipes.eclare.clusters import augmented_clusters
from longtail.recipes.eclare.components import LabelComponents
from longtail.recipes.eclare.network import (
    FrozenTexts,
    GraphPart,
    LabelTextGraph,
    LabelTexts,
    MixMode,
    TrainedTexts,
    component_names,
)
from longtail.recipes.eclare.pagerank import PersonalisedPageRank
from longtail.recipes.ramen.regularisers import GraphTerms, Regularisers, graph_terms
from longtail.search.cluster import cluster_count, meta_labels
from longtail.search.cluster_beam import ClusterBeam, default_beam
from longtail.search.game import GameSettings, cluster_graph
from longtail.search.index import ExactIndex
from longtail.search.negatives import (
    Negatives,
    RandomNegatives,
    ShortlistNegatives,
    WithRandom,
    candidates,
    forbidden_pairs,
)
from longtail.search.packed import unpacked
from longtail.training.fit import StepDecay, Watch, adapted_batch, copy_into, fit_stage, to_array
from longtail.training.freeze import array, frozen_refinement
from longtail.training.indices import GpuExactIndex
from longtail.training.objectives import AllTargets, ComposedCandidates, Objective, trained_state
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I32, I64, Batch, Candidates, Csr

# Documents per step, before they adapt to the data. A step composes the rows of nearly all labels whatever its
# documents are, which on a CPU is most of its time (`benchmarks.speed composed-step`): there steps are as large as
# they may be.
_BATCH, _CPU_BATCH = 255, 8192
_NUMBERS_PER_COMPOSED = 64

# Settings of the variants in the paper's Table 5, of ECLARE-NoGALE, of DECAF (WSDM 2021), ECLARE's forerunner without
# a graph, and of the paper's formulas to the letter.
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "literal": ("composition.bias=false", "game.mix=1.0", "classify.cluster_power=1.0"),
    "GCN": ("composition.graph=gcn",),
    "LightGCN": ("composition.graph=lightgcn", "composition.text=false"),
    "Cooc": ("graph.source=cooc",),
    "PN": ("graph.norm=perron",),
    "PPR": ("classify.negatives=ppr",),
    "NoGraph": ("surrogate.augmented=false", "game.enabled=false", "transfer.start=text"),
    "NoLTE": ("composition.text=false",),
    "NoRefine": ("composition.free=false",),
    "SUM": ("composition.mix=sum",),
    "k=2": ("composition.order=2",),
    "8K": ("surrogate.clusters=8192",),
    "init=text": ("transfer.start=text",),
    "NoGALE": ("composition.graph=none",),
    "DECAF": (
        "composition.graph=none",
        "composition.mix=shared",
        "surrogate.augmented=false",
        "game.enabled=false",
        "transfer.start=text",
    ),
}


@dataclass(frozen=True)
class CompositionConfig:
    text: bool = setting(True, "a component from the label's own text (LTE)")
    graph: GraphPart = setting(
        "gale",
        "a component from the texts of its neighbours: GALE, a plain graph convolution, a linear one (lightgcn), or "
        "none",
    )
    order: int = setting(1, "how far neighbours are followed; a component for each step of GALE", low=1, high=8)
    free: bool = setting(True, "a component of numbers of the label's own (refinement vector)")
    mix: MixMode = setting(
        "attention", "how components become one row: attention per label, weights shared by all labels, sum or mean"
    )
    bias: bool = setting(
        True,
        "a bias per classifier, which starts at the log-odds of a label (the released code; the paper's formulas "
        "have none)",
    )
    attention_sigmoid: bool = setting(True, "a sigmoid inside the attention (the paper; its released code has none)")
    clamp_scale: bool = setting(False, "keep the trained scale of every embedding block within -1..1")


@dataclass(frozen=True)
class TrainingConfig:
    batch: int = setting(
        0,
        "documents per step; adapts to small and large data, an epoch has 64 to 512 steps; 0: 255, on a CPU 8,192 "
        "with rates that grow with its root",
        low=0,
    )
    dropout: float = setting(0.2, "share of numbers dropped after each ReLU", low=0, high=0.99)
    halve_after: float = setting(
        0.5, "share of a stage's epochs after which its rate is halved, again and again", low=0.01, high=1
    )


@dataclass(frozen=True)
class SurrogateConfig:
    clusters: int = setting(131_072, "clusters at most; fewer where there are fewer than 4 labels for each", low=2)
    augmented: bool = setting(
        True, "complete the centroids of labels along the label graph before clustering, in stages I and II"
    )
    width: int = setting(512, "numbers per document vector", low=2)
    epochs: int = setting(20, "passes over the documents", low=0)
    rate: float = setting(0.002, "learning rate of Adam", low=0)


@dataclass(frozen=True)
class ShortlistConfig:
    beam: int = setting(0, "clusters per document; 0: as many as hold about 480 labels, at least 10", low=0)
    epochs: int = setting(10, "passes over the documents", low=0)
    rate: float = setting(0.002, "learning rate of Adam", low=0)


@dataclass(frozen=True)
class TransferConfig:
    start: Literal["graph", "text", "random"] = setting(
        "graph", "what free vectors start from: neighbours' texts (the paper), the own text (DECAF), or chance"
    )


@dataclass(frozen=True)
class ClassifyConfig:
    negatives: Literal["shortlist", "ppr", "uniform", "full"] = setting(
        "shortlist",
        "where negatives come from: labels of the best clusters, personalised PageRank on the label graph, any "
        "labels, or all of them",
    )
    count: int = setting(0, "negatives per document; 0: as many as a shortlist holds", low=0)
    random: int = setting(0, "more negatives, uniform, drawn anew in every epoch", low=0)
    positives: int = setting(100, "labels of a document per step at most", low=1)
    cluster_power: float = setting(
        0.5,
        "what the score of its cluster counts in a label's final score: 1 as much (the paper), 0 nothing",
        low=0,
        high=1,
    )
    epochs: int = setting(10, "passes over the documents", low=0)
    rate: float = setting(0.002, "learning rate of Adam", low=0)


@dataclass(frozen=True)
class EclareStages:
    """All settings but those that every recipe has."""

    graph: LabelGraphConfig = section(LabelGraphConfig, "which labels belong together")
    composition: CompositionConfig = section(CompositionConfig, "what classifiers of clusters and labels are made of")
    surrogate: SurrogateConfig = section(SurrogateConfig, "stage I")
    shortlist: ShortlistConfig = section(ShortlistConfig, "stage II")
    transfer: TransferConfig = section(TransferConfig, "stage III")
    classify: ClassifyConfig = section(ClassifyConfig, "stage IV")
    game: GameSettings = section(GameSettings, "scores spread along the label graph", mix=0.5)
    training: TrainingConfig = section(TrainingConfig, "what stages I, II and IV have in common")


@dataclass(frozen=True)
class EclareConfig(EclareStages):
    features: FeaturesConfig = section(
        FeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")


@dataclass(frozen=True)
class Surrogate:
    """What stage I leaves behind.

    encoder: a = E x.  vectors: (N, D), a of all training documents.  clusters: (L,) the cluster of every label.
    graph: (L, L) CSR, the label graph; one entry per row, on the diagonal, where there is none.
    network: trained tensors of the document block and of the clusters' classifiers, by name; stage II goes on from
        them.
    """

    KIND = "eclare-surrogate"

    encoder: FrozenSum
    vectors: F32
    clusters: I32
    graph: Csr
    network: Mapping[str, NDArray[Any]]

    def state(self) -> State:
        arrays: dict[str, Any] = {"vectors": self.vectors, "clusters": self.clusters, "graph": self.graph}
        return State(
            arrays=arrays | {f"network:{name}": value for name, value in self.network.items()},
            parts={"encoder": self.encoder},
        )

    @classmethod
    def from_state(cls, state: State) -> Surrogate:
        parts: Any = state.parts
        network = {
            name.removeprefix("network:"): value for name, value in state.arrays.items() if name.startswith("network:")
        }
        return cls(parts["encoder"], state.arrays["vectors"], state.arrays["clusters"], state.arrays["graph"], network)


@dataclass(frozen=True)
class Shortlists:
    """What stage II leaves behind: the clusters with their classifiers, the document block they read, and hard
    negatives.
    """

    KIND = "eclare-shortlists"

    beam: ClusterBeam
    document_map: Refinement
    negatives: ShortlistNegatives | None

    def state(self) -> State:
        return State(parts={"beam": self.beam, "document_map": self.document_map, "negatives": self.negatives})

    @classmethod
    def from_state(cls, state: State) -> Shortlists:
        parts: Any = state.parts
        return cls(**parts)


@dataclass(frozen=True)
class ConvolvedTexts:
    """What stage III leaves behind: G^k E Z for k = 0, 1, ..., each (L, D). None of them where labels have no text."""

    KIND = "eclare-texts"

    orders: tuple[F32, ...]

    def state(self) -> State:
        return State(
            {"orders": len(self.orders)}, {f"order{number}": order for number, order in enumerate(self.orders)}
        )

    @classmethod
    def from_state(cls, state: State) -> ConvolvedTexts:
        return cls(tuple(state.arrays[f"order{number}"] for number in range(state.values["orders"])))


class Eclare(Recipe):
    NAME = "eclare"
    CONFIG = EclareConfig

    def __init__(self, config: EclareConfig) -> None:
        self.config: EclareConfig = config

    def memory(self, data: TrainingSet) -> int:
        """What stage I or stage IV takes, whichever is more, beside convolved texts, document vectors and negatives.

        I: tables with their two moments, the words of label texts as they are looked at (values, gradients, steps),
            features.
        IV: the rows that a step composes, with all that their gradients need: 64 numbers for each of theirs, by
            measurement.
        Measured on a CPU: 4,199 MiB on wordnet-related (4,464 by this), 2,834 on debian-related (2,484), 9,712 on
            yso-finna-en (8,174).
        """
        c, width = self.config, self.config.surrogate.width
        clusters = self.n_clusters(data)
        shortlist = -(-data.n_labels // clusters) * self.beam_size(data)
        words, entries = np.zeros(0, np.int32), data.documents.sparse.nnz if data.documents.sparse is not None else 0
        if has_text(data):
            words, entries = np.unique(label_words(data).indices), entries + label_words(data).nnz
        tables = 3 * 4 * width * (data.featurizer.width + len(words) + clusters + data.n_labels)
        texts = 4 * width * (1 + c.composition.order) * data.n_labels
        per_document = 4 * (2 * width + (c.classify.count or shortlist))
        composed = min(data.n_labels, _CPU_BATCH * (shortlist + c.classify.positives))
        both = texts + per_document * data.n_documents + 2**28
        return both + max(tables + 3 * 8 * entries, _NUMBERS_PER_COMPOSED * 4 * width * composed)

    def n_clusters(self, data: TrainingSet) -> int:
        return cluster_count(data.n_labels, at_most=self.config.surrogate.clusters)

    def beam_size(self, data: TrainingSet) -> int:
        clusters = self.n_clusters(data)
        return min(clusters, self.config.shortlist.beam or default_beam(clusters, data.n_labels))

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run, regularisers: Regularisers | None = None) -> Surrogate:
        """Learn token vectors by predicting clusters of labels from text alone. Paper: ECLARE Sec. 3.6, Module I.

        regularisers: graphs that help to learn them (Paper: RAMEN).
        """
        c, words = self.config.surrogate, words_of(data)
        graph = self.build_graph(data, run)
        clusters = self.clustered(words, data, graph, run.rng("clusters"))
        table = RowTable(uniform((words.shape[1], c.width), np.sqrt(6 / c.width), run.rng("encoder"))).to(run.device)
        block, orders = self.document_block(run, "document block"), self.orders(data, graph)
        texts = (
            TrainedTexts(table, *self.cluster_texts(data, graph, clusters), orders) if self.reads_text(orders) else None
        )
        free = None if texts is not None else self.free_start([], self.n_clusters(data), run, "heads start")
        heads = self.composed(texts, free, run.rng("heads"), self.cluster_share(data, clusters))
        encoder = BagSum(table)
        refined = Refined(encoder, block)
        terms = None if regularisers is None else graph_terms(regularisers, refined, data, run)
        self.train_heads(
            refined, heads, data.documents, data.targets, clusters, run, "surrogate", c.epochs, c.rate, terms
        )
        vectors = encode_all(encoder, Documents(data.documents, run.device), "search")
        # Free vectors belong to clusters that stage II will not have, and attention to components that it has more of.
        network = {**saved("block", block), **saved("heads", heads, without=("texts.", "free.", "mix."))}
        return Surrogate(FrozenSum(array(table.weight)), vectors, clusters, graph, network)

    def build_graph(self, data: TrainingSet, run: Run) -> Csr:
        """(L, L): the label graph that settings and data give, the identity where nothing needs one. Paper: ECLARE
        Sec. 3.2.
        """
        c, config = self.config, self.config.graph
        given = [graph.label_label for graph in data.graphs.values() if graph.label_label is not None]
        if "given" in config.source and not given:
            tell(
                run,
                f"label graph: the data holds none (graph.source={config.source}); walks through documents take its "
                "place",
            )
            config = replace(config, source="walk")
        if (
            c.composition.graph == "none"
            and not c.surrogate.augmented
            and not c.game.enabled
            and c.transfer.start != "graph"
            and c.classify.negatives != "ppr"
        ):
            config = replace(config, source="none")
        graph = label_graph(data.targets, config, run.rng("graph"), given)
        if config.source != "none" and not has_edges(graph):
            tell(run, "label graph: no two labels belong together; clusters, classifiers and scores do without it")
        if not has_text(data):
            tell(run, "label text: there is none; classifiers are made of free vectors alone")
        return graph

    def clustered(self, documents: Csr | F32, data: TrainingSet, graph: Csr, rng: np.random.Generator) -> I32:
        """(L,): the cluster of every label. Paper: ECLARE Sec. 3.6 (graph augmented label centroids)."""
        heads = head_labels(data.targets, self.config.graph.head_documents)
        if not self.config.surrogate.augmented:
            graph, heads = identity(data.n_labels), np.zeros_like(heads)
        return augmented_clusters(documents, data.targets, graph, heads, self.n_clusters(data), rng)

    def orders(self, data: TrainingSet, graph: Csr) -> int:
        """How many powers of the graph, the zeroth among them, are applied to label texts; 0 without text."""
        c = self.config
        if not has_text(data):
            return 0
        convolves = has_edges(graph) and (c.composition.graph != "none" or c.transfer.start == "graph")
        return 1 + (c.composition.order if convolves else 0)

    def reads_text(self, orders: int) -> bool:
        """Whether some component of a classifier comes from texts."""
        c = self.config.composition
        return bool(component_names(orders, text=c.text, graph=c.graph, free=False))

    def cluster_texts(self, data: TrainingSet, graph: Csr, clusters: I32) -> tuple[Csr, Csr]:
        """(K, V) the texts of clusters, sums of their labels' as unit rows, and (K, K) the graph of clusters."""
        n, n_labels = self.n_clusters(data), data.n_labels
        members = csr(np.ones(n_labels, np.float32), clusters, np.arange(n_labels + 1), (n_labels, n))
        return unit_rows((members.T.tocsr() @ label_words(data)).tocsr()), cluster_graph(graph, clusters, n, "both")

    def cluster_share(self, data: TrainingSet, clusters: I32) -> float:
        """The share of (document, cluster) pairs that are true."""
        n = self.n_clusters(data)
        return float(meta_labels(data.targets, clusters, n).nnz / (n * data.n_documents))

    def composed(
        self, texts: LabelTexts | None, free: Tensor | None, rng: np.random.Generator, share: float
    ) -> LabelTextGraph:
        """share: of scores that are of true pairs."""
        c = self.config.composition
        return LabelTextGraph(
            texts,
            free,
            rng,
            text=c.text,
            graph=c.graph,
            mix=c.mix,
            dropout=self.config.training.dropout,
            clamp_scale=c.clamp_scale,
            attention_sigmoid=c.attention_sigmoid,
            bias=math.log(share / max(1 - share, share)) if c.bias else None,
        )

    def document_block(self, run: Run, name: str) -> DocumentBlock:
        c = self.config
        return DocumentBlock(
            c.surrogate.width, run.rng(name), dropout=c.training.dropout, clamp_scale=c.composition.clamp_scale
        ).to(run.device)

    def free_start(self, orders: Sequence[Tensor], rows: int, run: Run, name: str) -> Tensor:
        """(rows, D): what free vectors start from. Without a graph a label's neighbours are itself; without text it
        is chance.
        """
        start, width = self.config.transfer.start, self.config.surrogate.width
        if start == "random" or not orders:
            return uniform((rows, width), np.sqrt(6 / (rows + width)), run.rng(name)).to(run.device)
        return orders[0 if start == "text" else min(1, len(orders) - 1)].clone()

    def train_heads(
        self,
        encoder: Encoder,
        heads: LabelTextGraph,
        documents: Batch,
        targets: Csr,
        clusters: I32,
        run: Run,
        name: str,
        epochs: int,
        rate: float,
        terms: GraphTerms | None = None,
    ) -> None:
        """Binary cross-entropy over all clusters; terms: graphs beside it."""
        of_clusters = DeviceCsr(meta_labels(targets, clusters, heads.labels), run.device)
        sent = Documents(documents, run.device) if terms is None else terms.documents
        self.fit(AllTargets(encoder, heads, sent, of_clusters, beside=terms), run, name, epochs, rate, terms)

    def fit(
        self, objective: Objective, run: Run, name: str, epochs: int, rate: float, watch: Watch | None = None
    ) -> None:
        t = self.config.training
        batch = t.batch or (_CPU_BATCH if run.device == "cpu" else _BATCH)
        if not t.batch:
            rate *= math.sqrt(adapted_batch(objective.size, batch) / adapted_batch(objective.size, _BATCH))
        fit_stage(
            objective,
            run,
            name,
            epochs=epochs,
            batch=batch,
            schedule=StepDecay.every(rate, t.halve_after, epochs),
            watch=watch,
        )

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: Surrogate, run: Run) -> Shortlists:
        """Cluster again, train the clusters' classifiers with free vectors, and look negatives up. Paper: ECLARE Sec.
        3.6, Module II.
        """
        c, graph, documents = self.config.shortlist, surrogate.graph, Batch(dense=surrogate.vectors)
        clusters = self.clustered(surrogate.vectors, data, graph, run.rng("clusters of II"))
        orders = self.orders(data, graph)
        texts = (
            FrozenTexts.of(
                to_tensor(unpacked(surrogate.encoder.table), run.device),
                *self.cluster_texts(data, graph, clusters),
                orders,
            )
            if orders
            else None
        )
        heads = self.composed(
            texts,
            self.free_vectors(texts, self.n_clusters(data), run, "heads start of II"),
            run.rng("heads of II"),
            self.cluster_share(data, clusters),
        )
        block = self.document_block(run, "document block of II")
        restore("block", block, surrogate.network)
        restore("heads", heads, surrogate.network)
        encoder = Refined(GivenVectors(surrogate.vectors.shape[1]), block)
        self.train_heads(encoder, heads, documents, data.targets, clusters, run, "shortlist", c.epochs, c.rate)
        beam = self.build_beam(data, heads.materialised(), clusters, graph, run)
        negatives = self.mine(data, beam, encode_all(encoder, Documents(documents, run.device), "score"), graph)
        refinement = frozen_refinement(block)
        assert refinement is not None
        return Shortlists(beam, refinement, negatives)

    def free_vectors(self, texts: FrozenTexts | None, rows: int, run: Run, name: str) -> Tensor | None:
        """What free vectors start from, None if there are none. Where no component reads text they are all there is."""
        orders = [] if texts is None else texts.convolved(None)
        if not self.config.composition.free and self.reads_text(len(orders)):
            return None
        return self.free_start(orders, rows, run, name)

    def build_beam(self, data: TrainingSet, heads: F32, clusters: I32, graph: Csr, run: Run) -> ClusterBeam:
        """The shortlister: the best clusters after GAME. On a GPU they are searched there while training."""
        g = self.config.game
        between = cluster_graph(graph, clusters, len(heads), g.clusters) if self.uses_game(graph) else None
        index: type[ExactIndex] = GpuExactIndex if run.device == "cuda" else ExactIndex
        return ClusterBeam(
            heads,
            clusters,
            between,
            beam=self.beam_size(data),
            game_mix=g.mix,
            game_transpose=g.transpose,
            make_index=partial(index.build, similarity="dot"),
        )

    def uses_game(self, graph: Csr) -> bool:
        return self.config.game.enabled and has_edges(graph)

    def mine(self, data: TrainingSet, beam: ClusterBeam, vectors: F32, graph: Csr) -> ShortlistNegatives | None:
        """The hard negatives of every document, where the settings want any."""
        c, forbidden, count = (
            self.config.classify,
            forbidden_pairs(data.targets, data.masked),
            self.negative_count(beam),
        )
        if c.negatives == "shortlist":
            return ShortlistNegatives.mine(beam, vectors, forbidden, count)
        if c.negatives == "ppr":
            return ShortlistNegatives.from_rankings(PersonalisedPageRank(data.targets, graph).rank, forbidden, count)
        return None

    def negative_count(self, beam: ClusterBeam) -> int:
        return min(self.config.classify.count or beam.beam * beam.largest_cluster, len(beam.clusters))

    # ---- III ----

    def transfer(
        self, data: TrainingSet, surrogate: Surrogate, shortlister: Shortlists, run: Run
    ) -> ConvolvedTexts | None:
        """Label texts and their convolutions by the now frozen token vectors. Paper: ECLARE Sec. 3.6, Module III."""
        orders = self.orders(data, surrogate.graph)
        if not orders:
            return None
        texts = FrozenTexts.of(
            to_tensor(unpacked(surrogate.encoder.table), run.device), label_words(data), surrogate.graph, orders
        )
        return ConvolvedTexts(tuple(array(order) for order in texts.convolved(None)))

    # ---- IV ----

    def classify(
        self, data: TrainingSet, surrogate: Surrogate, shortlister: Shortlists, model: ConvolvedTexts | None, run: Run
    ) -> ClusterModel:
        """One composed classifier per label, against hard negatives. Paper: ECLARE Sec. 3.6, Module IV, and 3.5
        (prediction).
        """
        c = self.config
        texts = None if model is None else FrozenTexts([to_tensor(order, run.device) for order in model.orders])
        negatives = data.n_labels if c.classify.negatives == "full" else self.negative_count(shortlister.beam)
        share = data.targets.nnz / data.n_documents / (data.targets.nnz / data.n_documents + negatives)
        classifier = self.composed(
            texts, self.free_vectors(texts, data.n_labels, run, "free vectors"), run.rng("classifier"), share
        )
        block = self.document_block(run, "ranking block")
        encoder = Refined(GivenVectors(surrogate.vectors.shape[1]), block)
        documents = Documents(Batch(dense=surrogate.vectors), run.device)
        objective: Objective
        if c.classify.negatives == "full":
            masked = data.masked_matrix()
            objective = AllTargets(
                encoder,
                classifier,
                documents,
                DeviceCsr(data.targets, run.device),
                None if masked is None else DeviceCsr(masked, run.device),
            )
        else:
            objective = ComposedCandidates(encoder, classifier, documents, self.candidates(data, shortlister))
        self.fit(objective, run, "classify", c.classify.epochs, c.classify.rate)
        weights, lengths = classifier.strengths()
        run.leave("label_components", LabelComponents(classifier.names, weights, lengths, data.label_counts()))
        rows, width = classifier.materialised(), surrogate.vectors.shape[1]
        return ClusterModel(
            surrogate.encoder,
            shortlister.document_map,
            frozen_refinement(block),
            shortlister.beam,
            Classifier(rows[:, :width].copy(), rows[:, width].copy() if c.composition.bias else None),
            surrogate.graph if self.uses_game(surrogate.graph) else None,
            c.game.mix,
            c.game.transpose,
            c.classify.cluster_power,
        )

    def candidates(self, data: TrainingSet, shortlists: Shortlists) -> Callable[[I64, np.random.Generator], Candidates]:
        """The labels of a step: positives, hard negatives (or as many uniform ones) and random extras."""
        c, forbidden, targets = self.config.classify, forbidden_pairs(data.targets, data.masked), data.targets
        hard = shortlists.negatives
        negatives: Negatives = (
            RandomNegatives(forbidden, self.negative_count(shortlists.beam)) if hard is None else hard
        )
        if hard is not None and c.random:
            negatives = WithRandom(hard, RandomNegatives(forbidden, c.random))
        return lambda rows, rng: candidates(rows, targets, negatives, rng, max_positives=c.positives)


def words_of(data: TrainingSet) -> Csr:
    if data.documents.sparse is None:
        raise ConfigError(
            "eclare reads words, but the data came with dense vectors", "use recipe astec, or features.source=text"
        )
    return data.documents.sparse


def has_text(data: TrainingSet) -> bool:
    return data.label_texts is not None and data.label_texts.sparse is not None and data.label_texts.sparse.nnz > 0


def label_words(data: TrainingSet) -> Csr:
    assert data.label_texts is not None
    return data.label_texts.sparse


def has_edges(graph: Csr) -> bool:
    """Whether some label has a neighbour other than itself."""
    return bool(graph.nnz > np.count_nonzero(graph.diagonal()))


def identity(n: int) -> Csr:
    return csr(np.ones(n, np.float32), np.arange(n, dtype=np.int32), np.arange(n + 1), (n, n))


def tell(run: Run, sentence: str) -> None:
    run.display.say(sentence)
    run.log("note", text=sentence)


def saved(prefix: str, module: nn.Module, without: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """The trained tensors of a module under names that `restore` knows."""
    return {
        f"{prefix}.{name}": to_array(value)
        for name, value in trained_state(module).items()
        if not name.startswith(without)
    }


def restore(prefix: str, module: nn.Module, network: Mapping[str, NDArray[Any]]) -> None:
    """Put saved tensors back into a module like the one they came from; what was not saved stays as it is."""
    for name, value in trained_state(module).items():
        if f"{prefix}.{name}" in network:
            copy_into(value, network[f"{prefix}.{name}"])
