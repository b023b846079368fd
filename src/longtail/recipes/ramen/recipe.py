"""RAMEN: given graphs train the encoder of a base method and are gone at prediction (Paper: RAMEN; `docs/papers.md`
has its theorem and limits).

    longtail train DATA --recipe ramen --set base=ance --out RUN

Anchors (hyperlinked pages, categories, ...) are texts. While the base method trains its encoder, documents and labels
are pulled to their anchors by regularisers, whose weights a bandit sets (`graph_loss.py`). Everything
after that is the base's, and so is the trained model: same parts, same shapes, no graph.

    before   edges to anchors that are test documents are gone since reading; walks complete the graphs
    warm-up  10 epochs with all edges; then edges between unlike ends are pruned every 5 epochs
    then     the base method's remaining stages, unchanged

A base is any recipe that takes an `extra_loss` where it trains its encoder. Where the encoder's vectors have no unit
length, they are scaled to it for the regularisers alone:

- `direct`: documents, label texts and anchors go through its words and residual; its own way with graphs, anchors as
  labels, is then off (`direct.anchors.weight`).
- ECLARE: its first stage learns token vectors and the document block by predicting clusters; documents, labels and
  anchors go through these. Its vectors have no negative numbers, so pruning at cosine 0 drops nothing.

Differs: see the base for the encoder. The paper trains up to 300 epochs; here as long as the base does.
Differs: words that only anchors have are not features (`features.anchor_words` makes them so, for the base, too):
    vocabulary and idf are those of the base. An anchor without a known word is left out.
"""

from __future__ import annotations

from typing import Any

from longtail.errors import ConfigError, DataError
from longtail.graph.anchor_graph import AnchorGraph, anchor_graphs
from longtail.nn.batches import Documents
from longtail.nn.encoders import Encoder
from longtail.recipes import recipe_class
from longtail.recipes.base import Recipe
from longtail.recipes.ramen.graph_loss import (
    AnchorSet,
    GraphLoss,
    Regularisers,
    WeightBandit,
    given_shares,
    term_names,
)
from longtail.recipes.ramen.settings import TUNABLE, RamenConfig
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Batch


class Ramen(Recipe):
    """The base method, but that its encoder is trained with a loss on graphs beside its own."""

    NAME = "ramen"
    CONFIG = RamenConfig
    TUNABLE = TUNABLE

    def __init__(self, config: RamenConfig) -> None:
        self.config: RamenConfig = config
        cls = recipe_class(config.base)
        if cls.encoder_width is Recipe.encoder_width:
            raise ConfigError(
                f"base={config.base} takes no other loss beside its own",
                "use a recipe that does, e.g. base=ance, base=eclare or base=direct",
            )
        self.base: Recipe = cls(config.of_base())
        self.base.extra_loss = self.graph_loss
        bandit = config.bandit
        if config.features.checkpoint and not self.base.READS_CHECKPOINTS:
            raise ConfigError(
                f"base={config.base} reads words, not a checkpoint",
                "leave features.checkpoint empty, or use another base",
            )
        asks = bandit.enabled and (bandit.reward == "heldout" or not bandit.fix_task_weight)
        if asks and not self.base.KEEPS_DOCUMENTS_APART:
            raise ConfigError(
                f"base={config.base} keeps no documents apart, and its loss has the weight 1",
                "use another bandit.reward, and fix_task_weight",
            )

    def memory(self, data: TrainingSet) -> int:
        """The base's, completed graphs, and the anchors with their vectors."""
        graphs = self.graphs(data)
        edges = sum(3 * 12 * graph.most * sum(side.shape[0] for side in graph.sides.values()) for graph in graphs)
        anchors = sum(graph.n_anchors for graph in graphs) * (4 * self.base.encoder_width() + 2**10)
        return self.base.memory(data) + edges + anchors

    def defined_stages(self, data: TrainingSet) -> frozenset[str]:
        return self.base.defined_stages(data)

    def surrogate(self, data: TrainingSet, run: Run) -> Any:
        return self.base.surrogate(data, run)

    def shortlist(self, data: TrainingSet, surrogate: Any, run: Run) -> Any:
        return self.base.shortlist(data, surrogate, run)

    def transfer(self, data: TrainingSet, surrogate: Any, shortlister: Any, run: Run) -> Any:
        return self.base.transfer(data, surrogate, shortlister, run)

    def classify(self, data: TrainingSet, surrogate: Any, shortlister: Any, model: Any, run: Run) -> Any:
        return self.base.classify(data, surrogate, shortlister, model, run)

    def graph_loss(self, encoder: Encoder, data: TrainingSet, run: Run) -> GraphLoss:
        """What the base trains its encoder with, beside its own loss. Paper: RAMEN Sec. 3."""
        if data.label_texts is None:
            raise DataError(
                "graphs train the encoder with label texts, but no label has one",
                "add a title to the labels, or train the base method alone",
            )
        return GraphLoss(
            self.regularisers(data, run),
            encoder,
            data.documents,
            data.label_texts,
            data.targets,
            rng_for=run.rng,
            device=run.device,
        )

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
        given = ready
        if c.completion == "walk":
            ready = ready.completed(
                length=c.length,
                restart=c.restart,
                top=c.top,
                rng=run.rng("completion", number),
                by_visits=c.draw == "visits",
            )
        run.log(
            "graph",
            name=graph.name,
            anchors=graph.n_anchors,
            edges=graph.edges,
            known=int(known.sum()),
            completed=ready.edges,
            drawn_as_given=given_shares(given, ready),
        )
        return AnchorSet(ready, Documents(texts, run.device))

    def anchor_texts(self, graph: AnchorGraph, data: TrainingSet) -> Batch:
        """The anchors' titles as numbers, as documents are read."""
        anchors = data.graphs[graph.name].anchors
        assert anchors is not None, "anchor_graphs gives graphs with anchors only"
        return data.featurizer.batch_of_texts(anchors.titles())
