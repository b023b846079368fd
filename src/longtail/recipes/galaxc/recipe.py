"""GalaXC: documents and labels as one graph (Paper: Saini, Jain et al., WWW 2021). Sizes adapt to small data.

    start  initial vectors of all documents and labels by the word vectors of Astec's stage I; a graph joins documents
           to their labels
    I      convolutions over one, two and three hops give each document several views; each label weighs them in its
           own way (attention) and has a classifier; both are learnt with the labels of the batch and random ones as
           negatives
    II     the mean view of every label is indexed; labels near to a training document are its hard negatives
    III    convolutions and their transformations are frozen
    IV     classifiers and attention are trained on, against hard negatives (`classify.epochs`; none by default, as in
           the paper)
    then   a new document is linked to the four nearest nodes, and to the labels that are known of it; its mean view
           gives the shortlist, its views and each label's attention the score

Every ablation of the paper is a setting: see `VARIANTS`. What the data lacks is replaced, and the run says so: a
label without text starts from the mean of its documents.

Differs, each by a setting (`PAPER` undoes them; `docs/papers.md` says how sure we are of them):
- classifiers start as the cosine to their labels' own views, with a bias, and attention with all views alike; the
  paper starts both at random, which rare labels hardly recover from (`surrogate.start`, `attention_spread`). So 10
  epochs in place of 30.
- the similarity that the shortlist was found by has a say in the score, as in Astec (`shortlist.beta`).
- it is that of convolved vectors, each hop of unit length (`shortlist.space`, `shortlist.balanced`); the paper
  averages transformed views.
- initial vectors are centred and of unit length (`initial`): sums of sub-word vectors share a large common part.
- half of the documents of a step do not see their own labels (`surrogate.mask_target_edges`), as new documents will
  not.
- known labels (warm start) and nodes of the same metadata link a new document beside its nearest nodes, not instead
  of these (`hops.given`).
- width 512, as Astec's, in place of 300.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from longtail.config import section, setting
from longtail.data.npz import read_vectors
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.graph.ops import unit_rows
from longtail.models.encoders import FrozenBag, FrozenEncoder, FrozenSum
from longtail.models.shortlisted import Classifier
from longtail.nn.batches import to_numpy
from longtail.persistence import State, StringTable
from longtail.recipes.base import Recipe
from longtail.recipes.galaxc.encoders import Averaged, FrozenGraphEncoder
from longtail.recipes.galaxc.foreign import encoder_of_bundle
from longtail.recipes.galaxc.graph import (
    AnchorLinks,
    Fanout,
    Paths,
    document_nodes,
    joint_graph,
    nearest_documents,
    strongest,
)
from longtail.recipes.galaxc.heads import AttentionKind, LabelAttention, LinkHead, SharedHead
from longtail.recipes.galaxc.network import (
    GraphEncoder,
    HopEncoder,
    Neighbourhoods,
    Roots,
    encoded_blocks,
    gin_encoder,
    sage_encoder,
)
from longtail.recipes.galaxc.objective import GraphDocuments, SharedCandidates
from longtail.recipes.galaxc.ranker import JointGraphModel, node_views
from longtail.recipes.galaxc.shared_labels import BatchLabels, hard_labels, random_labels
from longtail.recipes.galaxc.space import Anchors, GraphSpace, Shape
from longtail.search.cluster import label_centroids
from longtail.search.index import CENTROIDS, DOCUMENTS, HnswSettings, Index, IndexKind
from longtail.search.negatives import ShortlistNegatives, forbidden_pairs
from longtail.training.fit import StepDecay, copy_into, fit_stage, to_array
from longtail.training.indices import index_on
from longtail.training.objectives import trained_state
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.training.surrogate import SurrogateConfig as AstecSurrogateConfig
from longtail.training.surrogate import fit_surrogate, surrogate_memory
from longtail.types import F32, I32, Csr, TopK

# What the paper does where the defaults differ from it; `configs/galaxc` has its sizes too.
PAPER = (
    "initial.unit=false",
    "initial.centred=false",
    "surrogate.start=random",
    "surrogate.bias=false",
    "surrogate.attention_spread=1",
    "surrogate.attention_rate=0.001",
    "surrogate.mask_target_edges=0",
    "surrogate.epochs=30",
    "surrogate.halve_at=6,11,16,21,26,29",
    "shortlist.beta=1",
    "shortlist.space=transformed",
    "shortlist.balanced=false",
    "hops.given=instead",
)
# Settings of the variants in the paper's Tables 1, 7, 8 and 10, and of those that the text speaks of.
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "NoAtt": ("surrogate.attention=none",),
    "global attention": ("surrogate.attention=global",),
    "GIN": ("hops.encoder=gin",),
    "GraphSAGE": ("hops.encoder=sage",),
    "K=2": ("hops.fanouts=4,3",),
    "K=1": ("hops.fanouts=4",),
    "GraphSAGE links": ("hops.encoder=sage", "surrogate.head=links"),
    "Aux-Test": ("graph.auxiliary=test",),
    "Aux-Train": ("graph.auxiliary=train",),
    "seen": ("surrogate.mask_target_edges=0",),
    "paper": PAPER,
}


# Training documents that the scale and the bias of classifiers are read off at the start.
START_DOCUMENTS = 4096


@dataclass(frozen=True)
class InitialConfig:
    source: Literal["astec", "bundle", "words"] = setting(
        "astec",
        "astec: train Astec's stage I (section 'astec') in this run; bundle: the encoder of another run; words: a "
        "table of word vectors",
    )
    path: str = setting("", "bundle: a run or a bundle; words: a .npy file with a row per feature")
    unit: bool = setting(True, "scale initial vectors to unit length")
    centred: bool = setting(True, "subtract what all documents have in common, their mean, from initial vectors")
    rectified: bool = setting(False, "keep only the positive part of initial vectors, as Astec does")


@dataclass(frozen=True)
class GraphConfig:
    identity: Literal["none", "train", "train+test"] = setting(
        "train",
        "which documents that are labels share a node with them: none, those of training, or new ones too (they "
        "then see that label's neighbours)",
    )
    restrict_threshold: int = setting(
        0,
        "labels of more documents than this see only the nearest; 0: no limit (the paper: 20, on its largest set)",
        low=0,
    )
    restrict_edges: int = setting(5, "how many of them", low=1)
    auxiliary: Literal["none", "test", "train"] = setting(
        "none",
        "given graphs: not used; test: link new documents whose anchors are told; train: more edges between "
        "training nodes too",
    )
    auxiliary_graphs: tuple[str, ...] = setting((), "names of the given graphs that are used; empty: all")
    auxiliary_edges: int = setting(4, "edges per node and given graph", low=1)


@dataclass(frozen=True)
class HopsConfig:
    encoder: Literal["galaxc", "gin", "sage"] = setting(
        "galaxc", "galaxc: linear convolutions, all hops are views; gin, sage: non-linear, the last hop alone"
    )
    fanouts: tuple[int, ...] = setting(
        (4, 3, 2), "neighbours per hop, that of the first hop first; as many hops as numbers", low=1, high=1000
    )
    sampling: Literal["random", "fixed", "full"] = setting(
        "random", "neighbours in training: drawn anew in every step, always the same, or all of them"
    )
    predict: Literal["fixed", "full"] = setting(
        "fixed", "neighbours at prediction: a sample that is always the same, or all of them"
    )
    pad: bool = setting(True, "a node with fewer neighbours gives them again and again")
    mean: bool = setting(False, "average neighbours in place of summing them")
    pre_relu: bool = setting(True, "a ReLU between convolution and transformation")
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    links: int = setting(4, "nodes that a new document is linked to", low=1)
    given: Literal["beside", "instead"] = setting(
        "beside",
        "links by known labels or anchors: beside the nearest nodes, counting as much as these, or instead of them "
        "(the paper)",
    )


@dataclass(frozen=True)
class SurrogateConfig:
    head: Literal["one-vs-all", "links"] = setting(
        "one-vs-all", "one-vs-all: a classifier per label; links: cosine of embeddings, nothing per label"
    )
    attention: AttentionKind = setting(
        "label", "weights of the views: each label its own, one set for all, or none (their mean)"
    )
    attention_spread: float = setting(
        0.0, "how far apart attention weights start; 0: all views alike (the paper: 1)", low=0
    )
    start: Literal["labels", "random"] = setting(
        "labels", "what classifiers start from: the views of their labels, or chance (the paper)"
    )
    right: float = setting(3.0, "start=labels: the mean score of right labels at the start")
    wrong: float = setting(-1.0, "start=labels: that of labels drawn at random; must be lower")
    bias: bool = setting(True, "a bias per classifier (the paper has none); start=labels needs one")
    mask_target_edges: float = setting(
        0.5,
        "share of the documents of a step whose own labels are hidden, and which are linked as new ones are",
        low=0,
        high=1,
    )
    random: int = setting(0, "random labels per step; 0: a tenth of all, at least 1,000 and at most 100,000", low=0)
    epochs: int = setting(10, "passes over the documents (the paper: 30, from classifiers that start at random)", low=0)
    rate: float = setting(0.001, "learning rate of Adam", low=0)
    attention_rate: float = setting(0.01, "that of attention weights", low=0)
    halve_at: tuple[int, ...] = setting((7,), "epochs at which the rates are halved", low=1)
    batch: int = setting(256, "documents per step; adapts to small and large data, an epoch has 64 to 512 steps", low=1)


@dataclass(frozen=True)
class ShortlistConfig:
    size: int = setting(500, "labels per document", low=1)
    space: Averaged = setting(
        "convolved",
        "hops.encoder=galaxc: what is averaged over hops for the search: transformed views (the paper) or convolved "
        "vectors (its released code)",
    )
    balanced: bool = setting(
        True,
        "hops.encoder=galaxc: scale every hop to unit length before the mean; sums over wide neighbourhoods are longer",
    )
    index: IndexKind = setting("auto", "how vectors are searched; auto: by their number")
    beta: float = setting(
        0.5, "weight of the classifier beside the similarity in the final score (the paper: 1)", low=0, high=1
    )
    temperature: float = setting(1.0, "the similarity is divided by this before its sigmoid", low=1e-3)


@dataclass(frozen=True)
class ClassifyConfig:
    epochs: int = setting(
        0, "passes over the documents; 0: stage IV is left out (the paper: 15 on its largest set)", low=0
    )
    count: int = setting(500, "hard negatives per document", low=1)
    per_document: int = setting(20, "of them drawn for each document of a step; the batch shares them", low=1)
    rate: float = setting(0.0005, "learning rate of Adam, for classifiers", low=0)
    attention_rate: float = setting(0.0005, "that of attention weights", low=0)
    halve_at: tuple[int, ...] = setting((1, 5, 9, 13), "epochs at which the rates are halved", low=1)
    batch: int = setting(256, "documents per step; adapts as in stage I", low=1)


@dataclass(frozen=True)
class GalaxcConfig:
    features: FeaturesConfig = section(
        FeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    initial: InitialConfig = section(InitialConfig, "where the vectors of documents and labels come from")
    astec: AstecSurrogateConfig = section(AstecSurrogateConfig, "initial.source=astec: stage I of Astec")
    graph: GraphConfig = section(GraphConfig, "the joint graph")
    hops: HopsConfig = section(HopsConfig, "how the graph is looked at")
    surrogate: SurrogateConfig = section(SurrogateConfig, "stage I")
    shortlist: ShortlistConfig = section(ShortlistConfig, "stage II")
    classify: ClassifyConfig = section(ClassifyConfig, "stage IV")


@dataclass(frozen=True)
class Start:
    """What training starts from: the graph with its vectors, and (N, m) what training documents are linked to while
    their labels are hidden.
    """

    KIND = "galaxc-start"

    space: GraphSpace
    links: I32 | None

    def state(self) -> State:
        return State(arrays={} if self.links is None else {"links": self.links}, parts={"space": self.space})

    @classmethod
    def from_state(cls, state: State) -> Start:
        parts: Any = state.parts
        return cls(parts["space"], state.arrays.get("links"))


@dataclass(frozen=True)
class Network:
    """What stage I leaves behind: trained tensors of encoder and head, by name."""

    KIND = "galaxc-network"

    tensors: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, encoder: GraphEncoder, head: SharedHead) -> Network:
        return cls({name: to_array(value) for name, value in trained_state(_both(encoder, head)).items()})

    def restore(self, encoder: GraphEncoder, head: SharedHead) -> None:
        for name, value in trained_state(_both(encoder, head)).items():
            # Saving makes an array of one number of a number.
            copy_into(value, self.tensors[name].reshape(value.shape))

    def state(self) -> State:
        return State(arrays=self.tensors)

    @classmethod
    def from_state(cls, state: State) -> Network:
        return cls(state.arrays)


@dataclass(frozen=True)
class Shortlists:
    """What stage II leaves behind: the encoder without torch, the index over the mean views of labels, and hard
    negatives where stage IV wants any.
    """

    KIND = "galaxc-shortlists"

    hops: FrozenGraphEncoder
    index: Index
    negatives: ShortlistNegatives | None

    def state(self) -> State:
        return State(parts={"hops": self.hops, "index": self.index, "negatives": self.negatives})

    @classmethod
    def from_state(cls, state: State) -> Shortlists:
        parts: Any = state.parts
        return cls(**parts)


class Galaxc(Recipe):
    NAME = "galaxc"
    CONFIG = GalaxcConfig

    def __init__(self, config: GalaxcConfig) -> None:
        self.config: GalaxcConfig = config

    def memory(self, data: TrainingSet) -> int:
        """Astec's stage I, or vectors of nodes twice, classifiers with their moments, and the scores of a step."""
        c = self.config
        nodes = data.n_documents + data.n_labels
        shared = self.random_count(data) + 4 * c.surrogate.batch
        classifiers = 3 * 4 * c.astec.width * (data.n_labels + len(c.hops.fanouts) * shared)
        negatives = 4 * c.classify.count * data.n_documents if c.classify.epochs else 0
        own = 2 * 4 * c.astec.width * nodes + classifiers + 4 * 4 * 4 * c.surrogate.batch * shared + negatives
        astec = surrogate_memory(data, c.astec) if c.initial.source == "astec" else 0
        return max(own + 2**28, astec)

    def random_count(self, data: TrainingSet) -> int:
        """Random labels of a step. Paper: GalaXC Sec. 5 (a tenth of the labels, 30,000 to 100,000). Differs: at least
        1,000, for small data.
        """
        return min(data.n_labels, self.config.surrogate.random or min(max(data.n_labels // 10, 1000), 100_000))

    # ---- start ----

    def start(self, data: TrainingSet, run: Run) -> Start:
        """The graph and its vectors; made once and kept as a stage of its own."""
        return run.stage("1_start", lambda: self.make_start(data, run))

    def make_start(self, data: TrainingSet, run: Run) -> Start:
        """Initial vectors and the joint graph. Paper: GalaXC Sec. 3 and 4.1 (initial embeddings)."""
        c = self.config
        self.check(run.device)
        encoder = self.initial_encoder(data, run)
        nodes = document_nodes(
            data.n_documents, data.n_labels, data.same if c.graph.identity != "none" else data.same[:0]
        )
        encoded = encoder.encode(data.documents)
        shape = self.shape(encoded)
        vectors = self.node_vectors(data, encoder, shape, shape.apply(encoded), nodes, run)
        anchors = self.anchors(data, nodes, len(vectors))
        limited = None
        if c.graph.restrict_threshold:
            limited = nearest_documents(
                data.targets, nodes, vectors, threshold=c.graph.restrict_threshold, keep=c.graph.restrict_edges
            )
        graph = joint_graph(
            data.targets,
            nodes,
            run.rng("joint graph"),
            extra=self.auxiliary_edges(data, anchors, len(vectors), run),
            limited=limited,
        )
        linker = self.build_index(vectors, DOCUMENTS, run)
        fanout = self.fanout(full=c.hops.predict == "full")
        space = GraphSpace(
            encoder,
            graph,
            vectors,
            linker,
            fanout,
            c.hops.links,
            shape,
            c.graph.identity == "train+test",
            anchors,
            c.hops.given == "beside",
        )
        return Start(
            space,
            space.nearest(vectors[nodes], exclude=nodes.astype(np.int64)).ids
            if c.surrogate.mask_target_edges > 0
            else None,
        )

    def check(self, device: str) -> None:
        """Settings that contradict others, or the device, are refused before any training."""
        c = self.config
        if c.hops.sampling == "full" and device != "cpu":
            raise ConfigError(
                f"hops.sampling=full sums all neighbours on a CPU only, not on {device}",
                "use --device cpu, or hops.sampling=random",
            )
        if c.surrogate.mask_target_edges > 0 and c.hops.sampling == "full":
            raise ConfigError(
                "surrogate.mask_target_edges hides edges from samples, but hops.sampling=full takes all of them",
                "use hops.sampling=random",
            )
        if c.hops.encoder != "galaxc" and "full" in (c.hops.sampling, c.hops.predict):
            raise ConfigError(
                f"hops.encoder={c.hops.encoder} reads samples of neighbours, not all of them",
                "use hops.sampling=random and hops.predict=fixed",
            )
        if c.hops.encoder != "galaxc" and c.hops.mean:
            raise ConfigError(
                f"hops.mean is about hops.encoder=galaxc, not {c.hops.encoder}", "leave it at its default"
            )
        if c.surrogate.head == "links" and c.classify.epochs:
            raise ConfigError(
                "surrogate.head=links has no classifiers that stage IV could train", "use classify.epochs=0"
            )
        if c.surrogate.start == "labels" and c.surrogate.wrong >= c.surrogate.right:
            raise ConfigError(
                f"surrogate.wrong={c.surrogate.wrong:g} is not below surrogate.right={c.surrogate.right:g}",
                "right labels must score higher",
            )
        if c.surrogate.start == "labels" and not c.surrogate.bias:
            raise ConfigError(
                "surrogate.start=labels needs a bias per classifier",
                "use surrogate.bias=true, or surrogate.start=random as in the paper",
            )
        if c.initial.source != "astec" and not c.initial.path:
            raise ConfigError(
                f"initial.source={c.initial.source} needs initial.path",
                "give a run or bundle, or a .npy file of word vectors",
            )
        if not c.hops.fanouts:
            raise ConfigError("hops.fanouts is empty", "give a number of neighbours per hop, e.g. 4,3,2")

    def initial_encoder(self, data: TrainingSet, run: Run) -> FrozenEncoder:
        """What turns texts into initial vectors. Astec's word vectors are summed without its ReLU."""
        c = self.config.initial
        if c.source == "astec":
            encoder = run.stage("1_astec", lambda: fit_surrogate(data, self.config.astec, run)).encoder
        elif c.source == "bundle":
            encoder = encoder_of_bundle(Path(c.path), data.featurizer)
        else:
            encoder = FrozenSum(word_table(Path(c.path), data.featurizer.width))
        if isinstance(encoder, FrozenBag) and not c.rectified:
            return FrozenSum(encoder.table)
        return FrozenBag(encoder.table) if isinstance(encoder, FrozenSum) and c.rectified else encoder

    def shape(self, encoded: F32) -> Shape:
        """encoded: (N, D), of the training documents."""
        c = self.config.initial
        shape = Shape(c.unit)
        return Shape(c.unit, shape.apply(encoded).mean(axis=0)) if c.centred else shape

    def node_vectors(
        self, data: TrainingSet, encoder: FrozenEncoder, shape: Shape, documents: F32, nodes: I32, run: Run
    ) -> F32:
        """(n, D): label text and document text as vectors; documents: (N, D), theirs. A label without text stands for
        the mean of its documents.
        """
        vectors = np.zeros((max(int(nodes.max(initial=-1)) + 1, data.n_labels), documents.shape[1]), dtype=np.float32)
        vectors[nodes] = documents
        said = np.zeros(data.n_labels, dtype=bool)
        if data.label_texts is not None:
            said = ~data.label_texts.is_empty()
            vectors[: data.n_labels][said] = shape.apply(encoder.encode(data.label_texts))[said]
        silent = np.setdiff1d(np.flatnonzero(~said), nodes)
        if len(silent):
            tell(
                run,
                f"label text: {len(silent)} of {data.n_labels} labels have none; they start from the mean of their "
                "documents",
            )
            vectors[silent] = label_centroids(documents, data.targets)[silent]
        return vectors

    def anchors(self, data: TrainingSet, nodes: I32, n: int) -> Anchors | None:
        """Anchors of the given graphs with the nodes that have them. Anchors of several graphs with the same id are
        one.
        """
        if self.config.graph.auxiliary == "none":
            return None
        from scipy.sparse import csr_array

        number_of: dict[str, int] = {}
        rows, columns = [], []
        for graph in self.given_graphs(data).values():
            if graph.anchors is None:
                continue
            numbers = np.array(
                [number_of.setdefault(uid, len(number_of)) for uid in graph.anchors.uids], dtype=np.int64
            )
            for side, node_of_row in ((graph.documents, nodes), (graph.labels, np.arange(data.n_labels))):
                if side is not None:
                    coo = side.tocoo()
                    rows.append(numbers[coo.coords[1]])
                    columns.append(node_of_row[coo.coords[0]])
        if not rows:
            return None
        at = (np.concatenate(rows), np.concatenate(columns))
        members = csr_array((np.ones(len(at[0]), np.float32), at), shape=(len(number_of), n))
        members.sum_duplicates()
        return Anchors(StringTable.of(list(number_of)), members)

    def given_graphs(self, data: TrainingSet) -> dict[str, Any]:
        wanted = self.config.graph.auxiliary_graphs or tuple(data.graphs)
        missing = [name for name in wanted if name not in data.graphs]
        if missing or not wanted:
            raise ConfigError(
                f"graph.auxiliary={self.config.graph.auxiliary}, but the data holds no graph"
                + (f" '{missing[0]}'" if missing else ""),
                f"the data has: {', '.join(data.graphs) or 'none'}; use graph.auxiliary=none to do without",
            )
        return {name: data.graphs[name] for name in wanted}

    def auxiliary_edges(self, data: TrainingSet, anchors: Anchors | None, n: int, run: Run) -> list[Csr]:
        """More edges between nodes: those that share an anchor, and labels that a given graph joins. Paper: GalaXC
        Sec. 5.1 (Aux-Train).
        """
        c = self.config.graph
        if c.auxiliary != "train":
            return []
        given = [
            strongest(graph.label_label, c.auxiliary_edges, n)
            for graph in self.given_graphs(data).values()
            if graph.label_label is not None
        ]
        return (
            given
            if anchors is None
            else [*given, AnchorLinks(anchors.members).edges(c.auxiliary_edges, run.rng("auxiliary edges"))]
        )

    def fanout(self, *, full: bool) -> Fanout:
        c = self.config.hops
        return Fanout(c.fanouts, c.pad, c.mean, full)

    def build_index(self, vectors: F32, settings: HnswSettings, run: Run) -> Index:
        return index_on(run.device, self.config.shortlist.index, settings)(vectors)

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run) -> Network:
        """Convolutions, attention and classifiers together, with random negatives. Paper: GalaXC Sec. 4.1, Module I."""
        c = self.config.surrogate
        start = self.start(data, run)
        encoder, head, around = self.new_network(data, start, run)
        self.start_classifiers(data, start, encoder, head, around, run)
        labels = BatchLabels(data.targets, data.masked, random_labels(data.n_labels, self.random_count(data)))
        objective = SharedCandidates(
            encoder, head, self.documents(around, start), labels, attention_factor=ratio(c.attention_rate, c.rate)
        )
        fit_stage(objective, run, "graph", epochs=c.epochs, batch=c.batch, schedule=StepDecay(c.rate, c.halve_at))
        return Network.of(encoder, head)

    def new_network(self, data: TrainingSet, start: Start, run: Run) -> tuple[GraphEncoder, SharedHead, Neighbourhoods]:
        c, vectors = self.config, start.space.vectors
        hops, width, device = len(c.hops.fanouts), int(vectors.shape[1]), run.device
        around = Neighbourhoods(start.space.graph, vectors, self.fanout(full=c.hops.sampling == "full"), device)
        encoder: GraphEncoder
        if c.hops.encoder == "galaxc":
            encoder = HopEncoder(hops, width, run.rng("hops"), dropout=c.hops.dropout, pre_relu=c.hops.pre_relu)
        elif c.hops.encoder == "gin":
            encoder = gin_encoder(hops, width, run.rng("hops"), dropout=c.hops.dropout)
        else:
            encoder = sage_encoder(
                hops, width, run.rng("hops"), dropout=c.hops.dropout, signed=c.surrogate.head == "links"
            )
        encoder = encoder.to(device)
        if c.surrogate.head == "links":
            return encoder, LinkHead(encoder, around, data.n_labels).to(device), around
        s = c.surrogate
        rng = run.rng("label classifiers")
        head = LabelAttention(
            data.n_labels, encoder.views, width, rng, attention=s.attention, spread=s.attention_spread, bias=s.bias
        ).to(device)
        return encoder, head, around

    def start_classifiers(
        self, data: TrainingSet, start: Start, encoder: GraphEncoder, head: SharedHead, around: Neighbourhoods, run: Run
    ) -> None:
        """Classifiers as the cosine between a document's views and the labels'. Documents are seen as new ones are."""
        c = self.config.surrogate
        if c.start == "random" or not isinstance(head, LabelAttention):
            return
        rng = run.rng("documents that classifiers start with")
        rows = np.sort(rng.permutation(data.n_documents)[:START_DOCUMENTS])
        right, wrong = (
            data.targets.indices[data.targets.indptr[rows]].astype(np.int64),
            rng.integers(data.n_labels, size=len(rows)),
        )
        nodes = start.space.graph.nodes[rows]
        links = (
            start.links[rows]
            if start.links is not None
            else start.space.nearest(start.space.vectors[nodes], exclude=nodes.astype(np.int64)).ids
        )
        everyone = np.arange(data.n_labels, dtype=np.int32)
        # With all neighbours nothing can be hidden.
        documents = Roots(nodes, 0) if around.fanout.full else Roots(nodes, 0, links)
        rows_LD, _ = head.read(encoded_blocks(encoder, around, Roots(everyone, 0)), everyone.astype(np.int64))
        pairs = [head.read(encoded_blocks(encoder, around, documents), labels) for labels in (right, wrong)]
        head.start_from(rows_LD, pairs[0], pairs[1], (c.right, c.wrong))

    def documents(self, around: Neighbourhoods, start: Start) -> GraphDocuments:
        c = self.config
        return GraphDocuments(
            around,
            start.space.graph.nodes,
            start.links,
            hide=c.surrogate.mask_target_edges,
            fixed=c.hops.sampling == "fixed",
        )

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: Network, run: Run) -> Shortlists:
        """Index the mean views of labels, and look hard negatives up. Paper: GalaXC Sec. 4.1, Module II."""
        c, start = self.config, self.start(data, run)
        encoder, head, _ = self.new_network(data, start, run)
        surrogate.restore(encoder, head)
        hops = encoder.frozen(c.shortlist.space, balanced=c.shortlist.balanced)
        labels = node_views(hops, start.space.paths, np.arange(data.n_labels, dtype=np.int32)).search
        index = self.build_index(labels, CENTROIDS, run)
        negatives = self.mine(data, start, hops, index) if c.classify.epochs else None
        return Shortlists(hops, index, negatives)

    def mine(self, data: TrainingSet, start: Start, hops: FrozenGraphEncoder, index: Index) -> ShortlistNegatives:
        """Labels near to each training document, seen as it was in training: by its own edges, or as a new document."""
        space = start.space
        paths = Paths(space.graph, space.vectors, self.fanout(full=self.config.hops.sampling == "full"))

        def rank(rows: Any, k: int) -> TopK:
            nodes = space.graph.nodes[rows]
            if start.links is None:
                return index.query(node_views(hops, paths, nodes).search, k)
            views = hops.of_linked(
                paths, space.vectors[nodes], start.links[rows], seed=0, exclude=nodes.astype(np.int64)
            )
            return index.query(views.search, k)

        return ShortlistNegatives.from_rankings(
            rank, forbidden_pairs(data.targets, data.masked), min(self.config.classify.count, data.n_labels)
        )

    # ---- III ----

    def transfer(self, data: TrainingSet, surrogate: Network, shortlister: Shortlists, run: Run) -> None:
        """All parameters stay as they are, and those of the convolutions will not change any more: there is nothing
        to compute.
        """

    # ---- IV ----

    def classify(
        self, data: TrainingSet, surrogate: Network, shortlister: Shortlists, model: None, run: Run
    ) -> JointGraphModel:
        """Classifiers and attention against hard negatives, where the settings want that. Paper: GalaXC Sec. 4.1,
        Modules III and IV.
        """
        c, start = self.config.classify, self.start(data, run)
        encoder, head, around = self.new_network(data, start, run)
        surrogate.restore(encoder, head)
        if shortlister.negatives is not None:
            encoder.freeze()
            labels = BatchLabels(data.targets, data.masked, hard_labels(shortlister.negatives, c.per_document))
            objective = SharedCandidates(
                encoder, head, self.documents(around, start), labels, attention_factor=ratio(c.attention_rate, c.rate)
            )
            fit_stage(
                objective, run, "classify", epochs=c.epochs, batch=c.batch, schedule=StepDecay(c.rate, c.halve_at)
            )
        classifier, alphas = self.frozen_head(head, start, shortlister)
        s = self.config.shortlist
        return JointGraphModel(
            start.space, shortlister.hops, shortlister.index, classifier, alphas, s.size, s.beta, s.temperature
        )

    def frozen_head(self, head: SharedHead, start: Start, shortlists: Shortlists) -> tuple[Classifier, F32 | None]:
        if isinstance(head, LinkHead):
            # What the head was trained on is the mean of what classifiers read, whatever the shortlist is looked up by.
            labels = node_views(shortlists.hops, start.space.paths, np.arange(head.labels, dtype=np.int32)).score.mean(
                axis=1
            )
            return Classifier(unit_rows(labels)), None
        assert isinstance(head, LabelAttention)
        weights = to_numpy(head.weights.weight)
        bias = np.ascontiguousarray(weights[:, head.width]) if head.has_bias else None
        return Classifier(
            np.ascontiguousarray(weights[:, : head.width]), bias
        ), None if head.attention == "none" else to_numpy(head.alphas())


def word_table(path: Path, features: int) -> F32:
    given: F32 = np.array(read_vectors(path), dtype=np.float32)
    if given.ndim != 2 or given.shape[0] != features:
        raise ConfigError(
            f"initial.path has shape {given.shape}, expected {features} rows",
            "give one row per feature, in the order of the vocabulary",
        )
    return given


def ratio(rate: float, to: float) -> float:
    return rate / to if to else 1.0


def _both(encoder: GraphEncoder, head: SharedHead) -> nn.Module:
    return nn.ModuleDict({"encoder": encoder, "head": head})


def tell(run: Run, sentence: str) -> None:
    run.display.say(sentence)
    run.log("note", text=sentence)
