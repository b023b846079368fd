"""RAMEN: given graphs train the encoder of a base method and are gone at prediction (Paper: RAMEN; `docs/papers.md`
has its theorem and limits).

    longtail train DATA --recipe ramen --set base=ance --out RUN

Anchors (hyperlinked pages, categories, ...) are texts. While the base method trains its encoder, documents and labels
are pulled to their anchors by regularisers (`recipes/ramen/regularisers.py`), whose weights a bandit sets
(`recipes/ramen/bandit.py`). Everything after that is the base's, and so is the trained model: same parts, same
shapes, no graph.

    before   edges to anchors that are test documents are gone since reading; walks complete the graphs
    warm-up  10 epochs with all edges; then edges between unlike ends are pruned every 5 epochs
    then     the base method's remaining stages, unchanged

`direct` as the base: documents, label texts and anchors go through its encoder (words and residual), scaled to unit
length for the regularisers alone; its own way with graphs, anchors as labels, is then off (`direct.anchors.weight`).

ECLARE as the base: its first stage learns token vectors and the document block by predicting clusters; documents,
labels and anchors go through that encoder, scaled to unit length for the regularisers alone (spec 04, A-04.12). Its
vectors have no negative numbers, so pruning at cosine 0 drops nothing.

Differs: see the base (`recipes/towers/recipe.py`) for the encoder. The paper trains up to 300 epochs; here as long as
    the base does.
Differs: words that only anchors have are not features: vocabulary and idf are those of the base. An anchor without a
    known word is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

from longtail.config import section, setting
from longtail.errors import ConfigError, DataError
from longtail.features.settings import CheckpointFeaturesConfig
from longtail.graph.anchor_graph import AnchorGraph, anchor_graphs
from longtail.nn.batches import Documents
from longtail.recipes.base import EnsembleConfig, Recipe
from longtail.recipes.direct.anchors import AnchorsConfig
from longtail.recipes.direct.recipe import (
    Direct,
    DirectConfig,
    EncoderConfig,
    LabelsConfig,
    PredictConfig,
    TrainConfig,
)
from longtail.recipes.eclare.recipe import Eclare
from longtail.recipes.eclare.settings import EclareConfig, EclareStages
from longtail.recipes.ramen.bandit import BanditConfig, WeightBandit
from longtail.recipes.ramen.regularisers import AnchorSet, RegulariserConfig, Regularisers, graph_terms, term_names
from longtail.recipes.towers.methods import Ance, Dexml, Ngame, Siamese
from longtail.recipes.towers.recipe import (
    TowerClassifyConfig,
    TowerEncoderConfig,
    TowerPredictConfig,
    TowerTrainConfig,
    TwoTowersConfig,
    TwoTowersRecipe,
)
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Batch

# Dual encoders; `base_of` knows the others.
BASES: Mapping[str, type[TwoTowersRecipe]] = {cls.NAME: cls for cls in (Ance, Ngame, Dexml, Siamese)}


@dataclass(frozen=True)
class GraphsConfig:
    names: tuple[str, ...] = setting((), "graphs to use, by name; none named: all that have anchors")
    documents: bool = setting(True, "use edges of documents")
    labels: bool = setting(True, "use edges of labels")
    completion: Literal["walk", "none"] = setting("walk", "walk: items are linked to anchors near their own, too")
    length: int = setting(400, "steps of the walk from each anchor", low=1)
    restart: float = setting(0.8, "chance of a step to go back to the start", low=0, high=1)
    top: int = setting(10, "anchors kept per walk", low=1)
    noise: float = setting(0.0, "for experiments: share of edges that lead to a random anchor instead", low=0, high=1)
    share: float = setting(1.0, "for experiments: share of edges used", low=0, high=1)


@dataclass(frozen=True)
class DirectStages:
    """Settings of `direct`. Graphs are regularisers here, so anchors are not labels as well unless asked for."""

    encoder: EncoderConfig = section(EncoderConfig, "from a text to a vector")
    labels: LabelsConfig = section(LabelsConfig, "what a label's classifier is made of")
    anchors: AnchorsConfig = section(
        AnchorsConfig, "anchors as labels while it trains, beside the regularisers", weight=0.0
    )
    train: TrainConfig = section(TrainConfig, "how it is trained")
    predict: PredictConfig = section(PredictConfig, "how it predicts")


@dataclass(frozen=True)
class RamenConfig:
    base: Literal["ance", "ngame", "dexml", "siamese", "eclare", "direct"] = setting(
        "ance", "the method whose encoder is trained with graphs"
    )
    features: CheckpointFeaturesConfig = section(
        CheckpointFeaturesConfig, "which texts are read, and how they become numbers", subwords="chars"
    )
    encoder: TowerEncoderConfig = section(
        TowerEncoderConfig, "the base method's, as all up to predict; not read by base=eclare and base=direct"
    )
    train: TowerTrainConfig = section(TowerTrainConfig, "stage I")
    classify: TowerClassifyConfig = section(TowerClassifyConfig, "stage IV of ngame and siamese")
    predict: TowerPredictConfig = section(TowerPredictConfig, "how it predicts")
    ensemble: EnsembleConfig = section(EnsembleConfig, "several models as one")
    graphs: GraphsConfig = section(GraphsConfig, "which edges are used")
    regularise: RegulariserConfig = section(RegulariserConfig, "what edges ask of the encoder")
    bandit: BanditConfig = section(BanditConfig, "what each graph weighs")
    eclare: EclareStages = section(EclareStages, "base=eclare: its settings")
    direct: DirectStages = section(DirectStages, "base=direct: its settings")

    def of_base(self) -> TwoTowersConfig:
        return TwoTowersConfig(self.features, self.encoder, self.train, self.classify, self.predict, self.ensemble)

    def of_eclare(self) -> EclareConfig:
        stages = {field.name: getattr(self.eclare, field.name) for field in fields(EclareStages)}
        return EclareConfig(**stages, features=self.features, ensemble=self.ensemble)

    def of_direct(self) -> DirectConfig:
        stages = {field.name: getattr(self.direct, field.name) for field in fields(DirectStages)}
        return DirectConfig(**stages, features=self.features, ensemble=self.ensemble)


def base_of(config: RamenConfig) -> TwoTowersRecipe | Eclare | Direct:
    if config.base == Eclare.NAME:
        return Eclare(config.of_eclare())
    return Direct(config.of_direct()) if config.base == Direct.NAME else BASES[config.base](config.of_base())


class Ramen(Recipe):
    """The base method, but that the stage which trains its encoder is given regularisers."""

    NAME = "ramen"
    CONFIG = RamenConfig

    def __init__(self, config: RamenConfig) -> None:
        self.config: RamenConfig = config
        self.base: TwoTowersRecipe | Eclare | Direct = base_of(config)
        if not isinstance(self.base, TwoTowersRecipe):
            self._check_other_base()

    def _check_other_base(self) -> None:
        """What ECLARE and `direct` cannot do, whose loss is over targets."""
        c = self.config
        if c.features.checkpoint:
            raise ConfigError(
                f"base={c.base} reads words, not a checkpoint", "leave features.checkpoint empty, or use another base"
            )
        if c.bandit.enabled and (c.bandit.reward == "heldout" or not c.bandit.fix_task_weight):
            raise ConfigError(
                f"base={c.base} keeps no documents apart, and its loss has the weight 1",
                "use another bandit.reward, and fix_task_weight",
            )
        if c.base == Direct.NAME and c.direct.labels.documents:
            raise ConfigError(
                "base=direct with label texts as documents: these have no edges", "leave direct.labels.documents false"
            )

    def memory(self, data: TrainingSet) -> int:
        """The base's, completed graphs, and the anchors with their vectors."""
        graphs = self.graphs(data)
        edges = sum(3 * 12 * graph.most * sum(side.shape[0] for side in graph.sides.values()) for graph in graphs)
        return (
            self.base.memory(data)
            + edges
            + sum(graph.n_anchors * (4 * self.config.encoder.width + 2**10) for graph in graphs)
        )

    def surrogate(self, data: TrainingSet, run: Run) -> Any:
        """The base's first stage with graphs. Paper: RAMEN Sec. 3. `direct` trains its encoder in the last stage."""
        if isinstance(self.base, Direct):
            return self.base.surrogate(data, run)
        if isinstance(self.base, Eclare):
            self.base.extra_loss = partial(graph_terms, self.regularisers(data, run))
            return self.base.surrogate(data, run)
        bandit = self.config.bandit
        heldout = bandit.heldout_share if bandit.enabled and bandit.reward == "heldout" else 0.0
        return self.base.towers(data, run, self.regularisers(data, run), heldout)

    def shortlist(self, data: TrainingSet, surrogate: Any, run: Run) -> Any:
        return self.base.shortlist(data, surrogate, run)

    def transfer(self, data: TrainingSet, surrogate: Any, shortlister: Any, run: Run) -> Any:
        return self.base.transfer(data, surrogate, shortlister, run)

    def classify(self, data: TrainingSet, surrogate: Any, shortlister: Any, model: Any, run: Run) -> Any:
        if isinstance(self.base, Direct):
            return self.base.classify(data, surrogate, shortlister, model, run, self.regularisers(data, run))
        return self.base.classify(data, surrogate, shortlister, model, run)

    # ---- graphs ----

    def graphs(self, data: TrainingSet) -> list[AnchorGraph]:
        """The given graphs that the settings ask for, as they came. Refused: data without one, unknown names, all
        sides switched off.
        """
        c, given = self.config.graphs, anchor_graphs(data.graphs)
        if not given:
            has = f"only {', '.join(data.graphs)}, without anchors" if data.graphs else "none"
            raise DataError(
                f"the recipe 'ramen' trains with graphs of anchors, but the data has {has}",
                "add graphs/NAME/ with anchors.json.gz, trn.npz and lbl.npz (docs/data-formats.md), or train the "
                f"base: --recipe {self.config.base}",
            )
        names = [graph.name for graph in given]
        for name in (name for name in c.names if name not in names):
            raise ConfigError(
                f"graphs.names has '{name}', which is no graph of anchors of this data", f"known: {', '.join(names)}"
            )
        chosen = [graph for graph in given if not c.names or graph.name in c.names]
        if not c.documents:
            chosen = [graph.without("documents") for graph in chosen]
        if not c.labels:
            chosen = [graph.without("labels") for graph in chosen]
        chosen = [graph for graph in chosen if graph.sides]
        if not chosen:
            raise ConfigError(
                "no edges are left by graphs.names, graphs.documents and graphs.labels", "leave one side of one graph"
            )
        return chosen

    def regularisers(self, data: TrainingSet, run: Run) -> Regularisers:
        sets = [self.anchor_set(graph, number, data, run) for number, graph in enumerate(self.graphs(data))]
        bandit = WeightBandit(
            term_names([anchors.graph for anchors in sets]), self.config.bandit, lambda block: run.rng("bandit", block)
        )
        return Regularisers(
            sets, self.config.regularise, bandit, rng_for=run.rng, log=run.log, say=run.display.say, device=run.device
        )

    def anchor_set(self, graph: AnchorGraph, number: int, data: TrainingSet, run: Run) -> AnchorSet:
        """The graph without anchors that say nothing, spoilt as the settings ask, completed; with the anchors'
        texts.
        """
        c, texts = self.config.graphs, self.anchor_texts(graph, data)
        known = ~texts.is_empty()
        ready = graph.among(known)
        if not ready.edges:
            raise DataError(
                f"the graph '{graph.name}' has {graph.n_anchors} anchors, but none with an edge has a title with a "
                "word of the documents",
                "give its anchors titles, or name the graphs to use in graphs.names",
            )
        if c.share < 1:
            ready = ready.subsampled(c.share, run.rng("share of edges", number))
        if c.noise:
            # Edges that were moved to an anchor that says nothing are lost.
            ready = ready.noisy(c.noise, run.rng("noise", number))[0].among(known)
        if c.completion == "walk":
            ready = ready.completed(length=c.length, restart=c.restart, top=c.top, rng=run.rng("completion", number))
        run.log(
            "graph",
            name=graph.name,
            anchors=graph.n_anchors,
            edges=graph.edges,
            known=int(known.sum()),
            completed=ready.edges,
        )
        return AnchorSet(ready, Documents(texts, run.device))

    def anchor_texts(self, graph: AnchorGraph, data: TrainingSet) -> Batch:
        """The anchors' titles as numbers, as documents are read."""
        anchors = data.graphs[graph.name].anchors
        assert anchors is not None, "anchor_graphs gives graphs with anchors only"
        return data.featurizer.batch_of_texts(anchors.titles())
