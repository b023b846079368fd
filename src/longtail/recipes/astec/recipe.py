"""Astec: DeepXML's first instance (Paper: Dahiya et al., WSDM 2021). Sizes adapt to small data.

    I    label clusters are the surrogate task; learns word embeddings E: v = ReLU(E x)
    II   label centroids and training documents in v-space give hard negatives, and shortlists at prediction
    III  E is frozen; a residual R starts as the identity: x = v + ReLU(R v), spectrally bounded
    IV   R and one classifier per label are trained on positives, hard negatives and a few random ones
    then score = alpha * sigmoid(w_l . x) + (1 - alpha) * sigmoid(similarity), inside the shortlist; a second model, the
         re-ranker, is trained on the first one's mistakes and scores its best labels again (`reranker.enabled`)

Every ablation of the paper is a setting. XML-CNN and MACH inside the framework are settings too:
`surrogate.encoder=cnn` with `features.max_tokens=32`, `surrogate.encoder=mlp` with `surrogate.task=random`; so is a
transformer, `features.checkpoint`. Given vectors (images, say) take the place of text where the data holds them.
ECLARE's GAME can be put on the two rankers that find clusters of labels first (`game.enabled` with
`classify.learner=parabel` or `shortlist.structures=clusters`).

Differs: E starts from random vectors, not fastText's (none are at hand offline; `surrogate.vectors` takes any table).
Differs: words come with pairs and character n-grams, documents per step adapt to the data; presets have the paper's.
Differs: the paper's width is 300; 512 was chosen on validation slices of wordnet-related and debian-related.
Differs: walks of 400 steps with restart 0.8, ECLARE's, in place of the released code's 50 and 0.2.
Differs: a training document is not its own neighbour when its negatives are looked up (the released code forgets that).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from longtail.models.encoders import Refinement
from longtail.models.rankers import Classifier, ClusterModel, Model
from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.blocks import frozen_block
from longtail.nn.encoders import DenseEncoder, Encoder, Refined
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import OneVsAll
from longtail.recipes.astec.ranker import (
    AstecShortlists,
    EncodedTree,
    Reranked,
    SpreadTree,
    best_clusters,
    game_graph,
    nearest_labels,
    step_negatives,
)
from longtail.recipes.astec.settings import TUNABLE, AstecConfig
from longtail.recipes.astec.tree import ClusterTree
from longtail.recipes.base import Recipe
from longtail.search.negatives import Negatives, ShortlistNegatives, candidates, forbidden_pairs
from longtail.search.shortlist import Labels
from longtail.training.fit import StepDecay, fit_stage
from longtail.training.objectives import AllTargets, OwnCandidates, TrainingObjective
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.training.surrogate import Surrogate, fit_surrogate, new_block, new_encoder, surrogate_memory, token_rows
from longtail.types import Batch


class Astec(Recipe):
    NAME = "astec"
    CONFIG = AstecConfig
    TUNABLE = TUNABLE
    SPLITS_LABELS = True
    config: AstecConfig

    def needs_one_process(self) -> str:
        return self.config.needs_one_process()

    def defined_stages(self, data: TrainingSet) -> frozenset[str]:
        """A tree of classifiers finds labels by itself: no Module II."""
        found = super().defined_stages(data)
        return found - {"shortlist"} if self.config.classify.learner == "parabel" else found

    # ---- I ----

    def surrogate(self, data: TrainingSet, run: Run) -> Surrogate:
        """Learn the encoder on an easier task. Paper: Astec Sec. 4, Module I."""
        self.config.check_clusters()
        return fit_surrogate(data, self.config.surrogate, run, self.config.features.checkpoint)

    # ---- II ----

    def shortlist(self, data: TrainingSet, surrogate: Surrogate, run: Run) -> AstecShortlists:
        """Search structures on frozen v, and the hard negatives of every document. Paper: Astec Sec. 4, Module II."""
        c, by_clusters = self.config.classify, self.config.shortlist.structures == "clusters"
        shortlister: Labels
        if by_clusters:
            shortlister = best_clusters(surrogate, game_graph(data, self.config, run), self.config, run)
        else:
            shortlister = nearest_labels(surrogate.vectors, data.targets, self.config, run)
        if c.negatives != "shortlist" or c.learner not in ("joint", "slice"):
            return AstecShortlists(shortlister, negatives=None)
        vectors = surrogate.head_vectors() if by_clusters else surrogate.vectors
        forbidden, count = forbidden_pairs(data.targets, data.masked), min(c.count, data.n_labels)
        return AstecShortlists(shortlister, ShortlistNegatives.mine(shortlister, vectors, forbidden, count))

    # ---- III: nothing to compute. E stays, the residual begins as the identity. Paper: Astec Sec. 4, Module III ----

    # ---- IV ----

    def classify(
        self, data: TrainingSet, surrogate: Surrogate, shortlister: AstecShortlists, model: None, run: Run
    ) -> EncodedTree | Model | ClusterModel | Reranked | None:
        """One classifier per label against hard negatives. Paper: Astec Sec. 4, Module IV and the re-ranker."""
        c = self.config
        if c.classify.learner == "parabel":
            return self.parabel(data, surrogate, run)
        if c.classify.learner == "surrogate":
            # A label scores what its cluster does; one without a cluster next to nothing.
            rows = np.where(surrogate.clusters[:, None] >= 0, surrogate.heads[surrogate.clusters], np.float32(-1e3))
            refinement, classifier, alpha = surrogate.refinement, Classifier(rows.astype(np.float32)), 1.0
        else:
            trained = self.train_classifier(data, surrogate, shortlister, run)
            if trained is None:  # the first of several processes has them, and trains the re-ranker
                return None
            (refinement, classifier), alpha = trained, c.classify.alpha
        base: Model | ClusterModel
        if c.shortlist.structures == "clusters":
            base = ClusterModel(
                encoder=surrogate.encoder,
                shortlist_map=surrogate.refinement,
                rank_map=refinement,
                beam=shortlister.shortlister,
                classifier=classifier,
                label_graph=game_graph(data, c, run),
                game_mix=c.game.mix,
                game_transpose=c.game.transpose,
            )
        else:
            base = Model(
                encoder=surrogate.encoder,
                refinement=refinement,
                shortlister=shortlister.shortlister,
                classifier=classifier,
                shortlist_size=c.shortlist.size,
                alpha=alpha,
                temperature=c.classify.temperature,
            )
        return self.rerank(data, base, run) if c.reranker.enabled and c.classify.learner != "surrogate" else base

    def parabel(self, data: TrainingSet, surrogate: Surrogate, run: Run) -> EncodedTree:
        """A tree of linear classifiers on frozen v. Paper: Astec Sec. 5."""
        tree = ClusterTree.fit(surrogate.vectors, data.targets, self.config.tree, run.rng("tree"))
        graph = game_graph(data, self.config, run)
        spread = tree if graph is None else SpreadTree.build(tree, graph, self.config.game)
        return EncodedTree(surrogate.encoder, spread)

    def train_classifier(
        self, data: TrainingSet, surrogate: Surrogate, shortlists: AstecShortlists, run: Run
    ) -> tuple[Refinement | None, Classifier] | None:
        """Classifier rows and, for the joint learner, the residual, on vectors v that no longer change."""
        c, t, width = self.config.classify, self.config.transfer, surrogate.vectors.shape[1]
        # v is not negative, so a DenseEncoder without projection is v itself with its dropout.
        encoder: Encoder = DenseEncoder(width, run.rng("no parameters"), dropout=c.dropout)
        t = t if c.learner == "joint" else replace(t, block="none")
        block = new_block(t, width, run.rng("block"), c.dropout, run)
        trained = encoder if block is None else Refined(encoder, block)
        rng, shard = run.rng("classifier"), run.shard(data.n_labels)
        classifier = OneVsAll(data.n_labels, width, rng, shard=shard).to(run.device)
        documents = Documents(Batch(dense=surrogate.vectors), run.device)
        objective: TrainingObjective
        if c.negatives == "full" or c.learner == "dismec":
            masked = data.masked_matrix()
            hidden = None if masked is None else DeviceCsr(masked, run.device)
            objective = AllTargets(trained, classifier, documents, DeviceCsr(data.targets, run.device), hidden)
        else:
            negatives = step_negatives(data, shortlists.negatives, c)
            objective = self.own_candidates(trained, classifier, documents, data, negatives)
        self.fit(objective, run, "classify", c.epochs, StepDecay(c.rate, c.halve_at))
        whole = classifier.whole()
        return None if whole is None else (frozen_block(block), whole)

    def fit(self, objective: TrainingObjective, run: Run, name: str, epochs: int, schedule: StepDecay) -> None:
        c = self.config.classify
        fit_stage(objective, run, name, epochs=epochs, batch=c.batch, schedule=schedule, adapts=c.batch_adapts)

    def own_candidates(
        self, encoder: Encoder, classifier: OneVsAll, documents: Documents, data: TrainingSet, negatives: Negatives
    ) -> OwnCandidates:
        """The objective over the labels of each document and its `negatives`."""
        trainer, most = RestrictedTrainer(classifier, shard=classifier.shard), self.config.classify.positives
        return OwnCandidates(
            encoder,
            trainer,
            documents,
            lambda rows, rng: candidates(rows, data.targets, negatives, rng, max_positives=most),
        )

    def rerank(self, data: TrainingSet, base: Model | ClusterModel, run: Run) -> Reranked:
        """A second model with an encoder of its own, on positives and the first one's best labels, as it is asked."""
        r, s = self.config.reranker, self.config.surrogate.of_words()
        mistakes = ShortlistNegatives.from_rankings(
            lambda rows, k: base.rank(data.documents.rows(rows), k),
            forbidden_pairs(data.targets, data.masked),
            min(r.depth, data.n_labels),
        )
        encoder = new_encoder(data, s, run.rng("reranker encoder")).to(run.device)
        residual = replace(self.config.transfer, block="residual")
        block = new_block(residual, encoder.width, run.rng("reranker block"), s.dropout, run)
        assert block is not None
        classifier = OneVsAll(data.n_labels, encoder.width, run.rng("reranker classifier")).to(run.device)
        documents = Documents(data.documents, run.device)
        objective = self.own_candidates(Refined(encoder, block), classifier, documents, data, mistakes)
        self.fit(objective, run, "reranker", r.epochs, StepDecay(r.rate, r.halve_at))
        return Reranked(
            base=base,
            encoder=encoder.frozen(),
            refinement=frozen_block(block),
            classifier=classifier.frozen(),
            depth=r.depth,
            beta=r.beta,
        )

    def memory(self, data: TrainingSet) -> int:
        """Stage I's, classifiers with their two moments, negatives, and the tables of the re-ranker."""
        c = self.config
        again = c.reranker.enabled
        tables = 3 * 4 * c.surrogate.width * (data.n_labels + (token_rows(data) if again else 0))
        per_document = 4 * (c.classify.count + (c.reranker.depth if again else 0))
        return surrogate_memory(data, c.surrogate, c.features.checkpoint) + tables + per_document * data.n_documents
