"""ECLARE: label text and label correlations for rare labels (Paper: Mittal, Sachdeva et al., WWW 2021). Sizes adapt to
small data.

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

Every ablation of the paper is a setting. What the data lacks is left out, and the run says so: without label text
classifiers are free vectors alone, and there is no III; where no two labels occur together (and no graph is given)
GALE and GAME fall away.

Differs: 512 numbers, of words, pairs and n-grams; paper: 300 below 400K labels, else 512, of pieces of words (presets).
Differs: rates are 0.002 in all stages; the paper's 0.01, 0.008 and 0.008 (`presets/eclare`) learn documents by heart.
Differs: on a CPU an epoch has 64 steps, of 8,192 documents at most, and rates grow with the root of that; paper: 255.
Differs: clusters are more than half as many as labels, up to 131,072; the paper has a quarter on 131K. By slices.
Differs: a shortlist holds about 480 labels, as the paper's for 1.3M labels and as Astec's; the paper has 120 for 131K.
Differs: classifiers have a bias (so does the released code, in II and IV), which starts at the log-odds of a label.
Differs: scores are spread along the graph by half (`game.mix`, the released code's way); the paper's 1 is a setting.
Differs: a cluster's score counts by its root (`classify.cluster_power`); the paper's 1 is a setting.
Differs: the shortlister keeps the document block it was trained with; ranking has one of its own (the paper is silent).
Differs: in II attention starts anew, as it has one component more than in I.
Differs: texts of clusters are unit vectors, and edges between clusters, for these, sums scaled like G.
"""

from __future__ import annotations

import math

import numpy as np
from torch import nn

from longtail.models.encoders import FrozenSum
from longtail.models.rankers import Classifier, ClusterModel
from longtail.nn.batches import DeviceCsr, Documents, to_numpy, to_tensor
from longtail.nn.blocks import frozen_block, uniform
from longtail.nn.encoders import BagSum, GivenVectors, Refined, encode_all
from longtail.nn.row_tables import RowTable
from longtail.recipes.base import Recipe
from longtail.recipes.eclare.network import ComposedCandidates, Composer, FrozenTexts, has_text, peak_memory, words_of
from longtail.recipes.eclare.settings import BATCH, CPU_BATCH, TUNABLE, EclareConfig
from longtail.recipes.eclare.stages import (
    ConvolvedTexts,
    EclareShortlists,
    EclareSurrogate,
    LabelComponents,
    best_clusters,
    build_graph,
    clustered,
    hard_negatives,
    negative_count,
    step_negatives,
    uses_game,
)
from longtail.search.cluster import meta_labels
from longtail.search.negatives import (
    candidates,
)
from longtail.training import adapted_batch
from longtail.training.fit import StepDecay, fit_stage, restore_tensors, saved_tensors
from longtail.training.objectives import AllTargets, TrainingObjective, Watch
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Batch

# What stage II does not go on with: free vectors of clusters that it will not have, and attention over components that
# it has more of.
_ANEW = ("heads.texts.", "heads.free.", "heads.mix.")


class Eclare(Recipe):
    NAME = "eclare"
    CONFIG = EclareConfig
    TUNABLE = TUNABLE
    SPLITS_LABELS = True
    config: EclareConfig

    def needs_one_process(self) -> str:
        return "classify.negatives=full" if self.config.classify.negatives == "full" else ""

    def defined_stages(self, data: TrainingSet) -> frozenset[str]:
        """Where label texts are lacking or of no use, there is no Module III."""
        found = super().defined_stages(data)
        return found if has_text(data) and self.config.uses_text() else found - {"transfer"}

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run) -> EclareSurrogate:
        """Learn token vectors by predicting clusters of labels from text alone. Paper: ECLARE Sec. 3.6, Module I."""
        c, words = self.config.surrogate, words_of(data)
        graph = build_graph(data, self.config, run)
        if not has_text(data):
            run.note("label text: there is none; classifiers are made of free vectors alone")
        clusters = clustered(words, data, graph, self.config, run.rng("clusters"))
        table = RowTable(uniform((words.shape[1], c.width), np.sqrt(6 / c.width), run.rng("encoder"))).to(run.device)
        composer, encoder = Composer(self.config, data, graph, run), BagSum(table)
        block, heads = composer.document_block("document block"), composer.first_heads(table, clusters)
        refined, documents = Refined(encoder, block), Documents(data.documents, run.device)
        extra = None if self.extra_loss is None else self.extra_loss(refined, data, run)
        targets = DeviceCsr(meta_labels(data.targets, clusters, heads.labels), run.device)
        objective = AllTargets(refined, heads, documents, targets, extra=extra, factors=composer.rate_factors())
        self.fit(objective, run, "surrogate", c.epochs, c.rate, watch=extra)
        return EclareSurrogate(
            encoder=FrozenSum(to_numpy(table.weight)),
            vectors=encode_all(encoder, documents, "search"),
            clusters=clusters,
            graph=graph,
            network=saved_tensors(nn.ModuleDict({"block": block, "heads": heads}), without=_ANEW),
        )

    def fit(
        self, objective: TrainingObjective, run: Run, name: str, epochs: int, rate: float, watch: Watch | None = None
    ) -> None:
        t = self.config.training
        batch = t.batch or (CPU_BATCH if run.device == "cpu" and t.batch_adapts else BATCH)
        if not t.batch and t.batch_adapts:
            rate *= math.sqrt(adapted_batch(objective.size, batch) / adapted_batch(objective.size, BATCH))
        schedule = StepDecay.every(rate, t.halve_after, epochs)
        fit_stage(
            objective, run, name, epochs=epochs, batch=batch, schedule=schedule, adapts=t.batch_adapts, watch=watch
        )

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: EclareSurrogate, run: Run) -> EclareShortlists:
        """Cluster again, train classifiers of clusters on, look negatives up. Paper: ECLARE Sec. 3.6, Module II."""
        c, graph = self.config.shortlist, surrogate.graph
        clusters = clustered(surrogate.vectors, data, graph, self.config, run.rng("clusters of II"))
        composer = Composer(self.config, data, graph, run)
        heads = composer.second_heads(surrogate.encoder.table, clusters)
        block = composer.document_block("document block of II")
        restore_tensors(nn.ModuleDict({"block": block, "heads": heads}), surrogate.network)
        encoder = Refined(GivenVectors(surrogate.vectors.shape[1]), block)
        documents = Documents(Batch(dense=surrogate.vectors), run.device)
        targets = DeviceCsr(meta_labels(data.targets, clusters, heads.labels), run.device)
        objective = AllTargets(encoder, heads, documents, targets, factors=composer.rate_factors())
        self.fit(objective, run, "shortlist", c.epochs, c.rate)
        beam = best_clusters(heads.materialised(), clusters, graph, self.config, run)
        negatives = hard_negatives(data, beam, encode_all(encoder, documents, "score"), graph, self.config.classify)
        refinement = frozen_block(block)
        assert refinement is not None
        return EclareShortlists(beam=beam, document_map=refinement, negatives=negatives)

    # ---- III ----

    def transfer(
        self, data: TrainingSet, surrogate: EclareSurrogate, shortlister: EclareShortlists, run: Run
    ) -> ConvolvedTexts:
        """Label texts and their convolutions by the now frozen token vectors. Paper: ECLARE Sec. 3.6, Module III."""
        texts = Composer(self.config, data, surrogate.graph, run).label_texts(surrogate.encoder.table)
        return ConvolvedTexts(tuple(to_numpy(order) for order in texts.all_orders()))

    # ---- IV ----

    def classify(
        self,
        data: TrainingSet,
        surrogate: EclareSurrogate,
        shortlister: EclareShortlists,
        model: ConvolvedTexts | None,
        run: Run,
    ) -> ClusterModel | None:
        """One composed classifier per label; of several processes the first has them. Paper: ECLARE Sec. 3.6, Module
        IV, and 3.5 (prediction).
        """
        c, graph, width = self.config, surrogate.graph, surrogate.vectors.shape[1]
        composer, against_all = Composer(c, data, graph, run), c.classify.negatives == "full"
        shard, orders = run.shard(data.n_labels), () if model is None else model.orders
        texts = FrozenTexts([to_tensor(shard.own(order), run.device) for order in orders]) if orders else None
        negatives = data.n_labels if against_all else negative_count(shortlister.beam, c.classify)
        classifier = composer.label_classifiers(texts, negatives, shard)
        block = composer.document_block("ranking block")
        encoder = Refined(GivenVectors(width), block)
        documents = Documents(Batch(dense=surrogate.vectors), run.device)
        objective: TrainingObjective
        if against_all:
            masked = data.masked_matrix()
            hidden = None if masked is None else DeviceCsr(masked, run.device)
            targets = DeviceCsr(data.targets, run.device)
            objective = AllTargets(encoder, classifier, documents, targets, hidden, factors=composer.rate_factors())
        else:
            drawn, positives = step_negatives(data, shortlister, c.classify), c.classify.positives
            objective = ComposedCandidates(
                encoder,
                classifier,
                documents,
                lambda rows, rng: candidates(rows, data.targets, drawn, rng, max_positives=positives),
                shard,
                composer.rate_factors(),
            )
        self.fit(objective, run, "classify", c.classify.epochs, c.classify.rate)
        own = (*classifier.strengths(), classifier.materialised())
        weights, lengths, rows = (shard.whole_array(of_labels) for of_labels in own)
        if weights is None or lengths is None or rows is None:
            return None
        run.leave("label_components", LabelComponents(classifier.names, weights, lengths, data.label_counts()))
        return ClusterModel(
            encoder=surrogate.encoder,
            shortlist_map=shortlister.document_map,
            rank_map=frozen_block(block),
            beam=shortlister.beam,
            classifier=Classifier(rows[:, :width].copy(), rows[:, width].copy() if c.composition.bias else None),
            label_graph=graph if uses_game(c, graph) else None,
            game_mix=c.game.mix,
            game_transpose=c.game.transpose,
            cluster_power=c.classify.cluster_power,
        )

    def encoder_width(self) -> int:
        return self.config.surrogate.width

    def memory(self, data: TrainingSet) -> int:
        return peak_memory(data, self.config)
