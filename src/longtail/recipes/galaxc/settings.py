"""Settings of GalaXC: what the paper did, its variants, and every number that can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from longtail.config import section, setting
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.recipes.base import TUNABLE_FEATURES
from longtail.recipes.galaxc.ranker import Averaged
from longtail.search.index import IndexKind
from longtail.training import ADAPTS, KEEPS
from longtail.training.surrogate import SurrogateConfig

AttentionKind: TypeAlias = Literal["label", "global", "none"]

# What the paper does where the defaults differ from it, with the sizes of its data sets of 131,000 and 320,000 labels:
# the presets of these are this and the number of random labels (and of one another rate of attention).
PAPER = (
    "features.subwords=none",
    "features.pairs=false",
    "astec.width=300",
    "astec.walk_length=50",
    "astec.walk_restart=0.2",
    "astec.batch_adapts=false",
    "hops.sampling=fixed",
    "hops.pre_relu=true",
    "initial.unit=false",
    "initial.centred=false",
    "surrogate.start=random",
    "surrogate.bias=false",
    "surrogate.attention_spread=1",
    "surrogate.attention_rate=0.001",
    "surrogate.mask_target_edges=0",
    "surrogate.batch=256",
    "surrogate.batch_adapts=false",
    "surrogate.epochs=30",
    "surrogate.halve_at=6,11,16,21,26,29",
    "shortlist.beta=1",
    "shortlist.space=transformed",
    "shortlist.balanced=false",
    "shortlist.voters=0",
    "hops.given=instead",
    "classify.epochs=0",
)
# Settings of the variants in the paper's Tables 1, 7, 8 and 10, and of those that the text speaks of.
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "NoAtt": ("surrogate.attention=none",),
    "global attention": ("surrogate.attention=global",),
    "GIN": ("hops.encoder=gin",),
    "GraphSAGE": ("hops.encoder=sage",),
    "K=2": ("hops.fanouts=4,3",),
    "K=1": ("hops.fanouts=4",),
    "GraphSAGE links": ("hops.encoder=sage", "surrogate.head=links", "classify.epochs=0"),
    "Aux-Test": ("graph.auxiliary=test",),
    "Aux-Train": ("graph.auxiliary=train",),
    "seen": ("surrogate.mask_target_edges=0",),
    "paper": PAPER,
}


# Random labels of a step, where the settings leave it open.
FEWEST_RANDOM, MOST_RANDOM = 1000, 100_000


@dataclass(frozen=True)
class InitialConfig:
    source: Literal["astec", "bundle", "words"] = setting(
        "astec",
        "astec: train Astec's stage I (section 'astec') in this run; bundle: the encoder of another run; words: a "
        "table of word vectors",
    )
    path: str = setting("", "bundle: a run or a bundle; words: a .npy file with a row per feature", is_path=True)
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
        "given graphs: not used; test: link new documents whose anchors are given; train: more edges between "
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
    pre_relu: bool = setting(False, "a ReLU between convolution and transformation (the paper has one)")
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    links: int = setting(4, "nodes that a new document is linked to", low=1)
    given: Literal["beside", "instead"] = setting(
        "beside",
        "links by known labels or anchors: beside the nearest nodes, counting as much as these, or instead of them "
        "(the paper)",
    )


@dataclass(frozen=True)
class GalaxcSurrogateConfig:
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
        "share of the documents of a step that do not see the edges to their own labels, and are linked as new ones",
        low=0,
        high=1,
    )
    random: int = setting(
        0, f"random labels per step; 0: a tenth of all, at least {FEWEST_RANDOM:,} and at most {MOST_RANDOM:,}", low=0
    )
    epochs: int = setting(10, "passes over the documents (the paper: 30, from classifiers that start at random)", low=0)
    rate: float = setting(0.001, "learning rate of Adam", low=0)
    attention_rate: float = setting(0.01, "that of attention weights", low=0)
    halve_at: tuple[int, ...] = setting((7,), "epochs at which the rates are halved", low=1)
    batch: int = setting(256, f"documents per step; {ADAPTS}", low=1)
    batch_adapts: bool = setting(True, KEEPS)

    def random_count(self, n_labels: int) -> int:
        """Random labels of a step. Paper: Sec. 5 (a tenth of the labels, 30,000 to 100,000). Differs: at least 1,000,
        for small data.
        """
        return min(n_labels, self.random or min(max(n_labels // 10, FEWEST_RANDOM), MOST_RANDOM))


@dataclass(frozen=True)
class GalaxcShortlistConfig:
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
    voters: int = setting(
        100,
        "nearest nodes, by initial vectors, that vote for the labels that they have or are: the shortlist is of both "
        "(Astec's way); 0: none vote (the paper)",
        low=0,
    )
    gamma: float = setting(0.5, "voters: weight of the vote beside the similarity", low=0, high=1)
    reserved: float = setting(0.5, "voters: share of places for labels that only the vote finds", low=0, high=1)
    index: IndexKind = setting("auto", "how vectors are searched; auto: by their number")
    beta: float = setting(
        0.5, "weight of the classifier beside the similarity in the final score (the paper: 1)", low=0, high=1
    )
    temperature: float = setting(1.0, "the similarity is divided by this before its sigmoid", low=1e-3)


@dataclass(frozen=True)
class GalaxcClassifyConfig:
    epochs: int = setting(
        10, "passes over the documents; 0: stage IV is left out (the paper, but for 15 on its largest set)", low=0
    )
    count: int = setting(500, "hard negatives per document", low=1)
    per_document: int = setting(
        20, "of them drawn for each document of a step (the paper: all); the batch shares them", low=1
    )
    rate: float = setting(0.0005, "learning rate of Adam, for classifiers", low=0)
    attention_rate: float = setting(0.0005, "that of attention weights", low=0)
    halve_at: tuple[int, ...] = setting((1, 5, 9, 13), "epochs at which the rates are halved", low=1)
    batch: int = setting(256, f"documents per step; {ADAPTS}", low=1)
    batch_adapts: bool = setting(True, KEEPS)


@dataclass(frozen=True)
class GalaxcConfig:
    features: FeaturesConfig = section(
        FeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    initial: InitialConfig = section(InitialConfig, "where the vectors of documents and labels come from")
    astec: SurrogateConfig = section(SurrogateConfig, "initial.source=astec: stage I of Astec")
    graph: GraphConfig = section(GraphConfig, "the joint graph")
    hops: HopsConfig = section(HopsConfig, "how the graph is looked at")
    surrogate: GalaxcSurrogateConfig = section(GalaxcSurrogateConfig, "stage I")
    shortlist: GalaxcShortlistConfig = section(GalaxcShortlistConfig, "stage II")
    classify: GalaxcClassifyConfig = section(GalaxcClassifyConfig, "stage IV")


def check(c: GalaxcConfig, device: str) -> None:
    """Settings that contradict others, or the device, are refused before any training."""
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
        raise ConfigError(f"hops.mean is about hops.encoder=galaxc, not {c.hops.encoder}", "leave it at its default")
    if c.surrogate.head == "links" and c.classify.epochs:
        raise ConfigError("surrogate.head=links has no classifiers that stage IV could train", "use classify.epochs=0")
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


# What is worth trying (`longtail tune`).
TUNABLE: Mapping[str, tuple[Any, ...]] = {
    **TUNABLE_FEATURES,
    "surrogate.rate": (0.0005, 0.001, 0.002),
    "surrogate.mask_target_edges": (0.0, 0.5, 1.0),
    "hops.dropout": (0.2, 0.5),
    "hops.links": (2, 4, 8),
    "shortlist.beta": (0.25, 0.5, 0.75, 1.0),
}
