"""Settings of Astec. Every ablation of the paper is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from longtail.config import section, setting
from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.features.settings import FeaturesConfig
from longtail.graph.label_graph import LabelGraphConfig
from longtail.nn.blocks import BoundMode
from longtail.recipes.astec.tree import TreeConfig
from longtail.recipes.base import TUNABLE_FEATURES, EnsembleConfig
from longtail.search.shortlist import GameSettings
from longtail.training import ADAPTS, KEEPS
from longtail.training.surrogate import BlockKind, SurrogateConfig

if TYPE_CHECKING:
    from longtail.features.base import Fitted


@dataclass(frozen=True)
class AstecFeaturesConfig(FeaturesConfig):
    """Texts as words, and beside that as a pretrained transformer reads them."""

    checkpoint: str = setting(
        "",
        "a pretrained transformer is the encoder of stage I: the folder of a BERT or DistilBERT checkpoint, or "
        "'minilm' (its package); empty: a bag of words",
        is_path=True,
    )
    length: int = setting(32, "checkpoint: tokens per text at most", low=3, high=512)

    def fit(self, documents: Items, labels: Items | None) -> Fitted:
        if not self.checkpoint:
            return super().fit(documents, labels)
        from longtail.features.pieces import checkpoint_folder
        from longtail.features.with_tokens import TextWithTokens

        folder = checkpoint_folder(self.checkpoint, f"features.checkpoint={self.checkpoint}")
        return TextWithTokens.fit_texts(documents, labels, self.sparse_text(), folder, self.length)


@dataclass(frozen=True)
class AstecShortlistConfig:
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
class AstecTransferConfig:
    block: BlockKind = setting("residual", "what stands between v and the classifiers")
    bound: float = setting(1.0, "bound of the residual's spectral norm", low=0)
    bound_mode: BoundMode = setting("project", "how the bound is kept")


@dataclass(frozen=True)
class AstecClassifyConfig:
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
    batch: int = setting(255, f"documents per step, of the re-ranker too; {ADAPTS}", low=1)
    batch_adapts: bool = setting(True, KEEPS)
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    alpha: float = setting(0.5, "weight of the classifier beside the similarity in the final score", low=0, high=1)
    temperature: float = setting(1.0, "the similarity is divided by this before its sigmoid", low=1e-3)


@dataclass(frozen=True)
class RerankerConfig:
    enabled: bool = setting(True, "train a second encoder and classifiers on the first one's mistakes")
    depth: int = setting(200, "labels per document that are re-scored", low=1)
    beta: float = setting(0.6, "weight of the second score", low=0, high=1)
    epochs: int = setting(12, "passes over the documents", low=0)
    rate: float = setting(0.005, "learning rate of Adam", low=0)
    halve_at: tuple[int, ...] = setting((7,), "epochs at which the rate is halved", low=1)


@dataclass(frozen=True)
class AstecConfig:
    features: AstecFeaturesConfig = section(
        AstecFeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    surrogate: SurrogateConfig = section(SurrogateConfig, "stage I")
    shortlist: AstecShortlistConfig = section(AstecShortlistConfig, "stage II")
    transfer: AstecTransferConfig = section(AstecTransferConfig, "stage III")
    classify: AstecClassifyConfig = section(AstecClassifyConfig, "stage IV")
    reranker: RerankerConfig = section(RerankerConfig, "a second look at the best labels")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")
    tree: TreeConfig = section(TreeConfig, "classify.learner=parabel")
    game: GameSettings = section(
        GameSettings, "ECLARE's GAME, for classify.learner=parabel and shortlist.structures=clusters", enabled=False
    )
    graph: LabelGraphConfig = section(LabelGraphConfig, "the label graph of game.enabled")

    def needs_one_process(self) -> str:
        """What several processes cannot do together; "" where nothing is."""
        c = self.classify
        if c.learner not in ("joint", "slice"):
            return f"classify.learner={c.learner}"
        return "classify.negatives=full" if c.negatives == "full" else ""

    def check_clusters(self) -> None:
        """Refuse settings about clusters that contradict others."""
        by_clusters = self.shortlist.structures == "clusters"
        if by_clusters and self.surrogate.task == "unsupervised":
            raise ConfigError(
                "shortlist.structures=clusters looks labels up by the heads of stage I, which "
                "surrogate.task=unsupervised does not train",
                "use surrogate.task=cluster",
            )
        if self.game.enabled and not by_clusters and self.classify.learner != "parabel":
            raise ConfigError(
                "game.enabled spreads scores of clusters, but no clusters are looked up",
                "use shortlist.structures=clusters, or learner=parabel",
            )


# What is worth trying (`longtail tune`).
TUNABLE: Mapping[str, tuple[Any, ...]] = {
    **TUNABLE_FEATURES,
    "surrogate.width": (256, 512, 1024),
    "surrogate.rate": (0.002, 0.005, 0.01),
    "classify.rate": (0.001, 0.002, 0.004),
    "classify.dropout": (0.2, 0.5, 0.7),
    "classify.alpha": (0.3, 0.5, 0.7, 0.9),
}
