"""GalaXC: documents and labels as one graph (Paper: Saini, Jain et al., WWW 2021). Sizes adapt to small data.

    start  initial vectors of all documents and labels by the word vectors of Astec's stage I; a graph joins documents
           to their labels
    I      convolutions over one, two and three hops give each document several views; each label weighs them in its
           own way (attention) and has a classifier; both are learnt with the labels of the batch and random ones as
           negatives
    II     the mean view of every label is indexed; labels near to a training document are its hard negatives
    III    convolutions and their transformations are frozen
    IV     classifiers and attention are trained on, against hard negatives (`classify.epochs`)
    then   a new document is linked to the four nearest nodes, and to the labels that are known of it; its mean view
           and the votes of its nearest nodes give the shortlist, its views and each label's attention the score

Every ablation of the paper is a setting: see `VARIANTS` in `settings.py`. What the data lacks is replaced, and the run
says so: a label without text starts from the mean of its documents.

Differs, each by a setting (`PAPER` undoes them; `docs/experiments.md` has what was measured):
- classifiers start as the cosine to their labels' own views, with a bias, and attention with all views alike; the
  paper starts both at random, which rare labels hardly recover from (`surrogate.start`, `attention_spread`). So 10
  epochs in place of 30.
- the similarity that the shortlist was found by has a say in the score, as in Astec (`shortlist.beta`).
- it is that of convolved vectors, each hop of unit length (`shortlist.space`, `shortlist.balanced`); the paper
  averages transformed views.
- the nearest nodes vote for the labels that they have or are, as in Astec (`shortlist.voters`); no ReLU before the
  transformation (`hops.pre_relu`); stage IV on data of any size (`classify.epochs`). Each gained on slices.
- initial vectors are centred and of unit length (`initial`): sums of sub-word vectors share a large common part.
- half of the documents of a step do not see the edges to their own labels (`surrogate.mask_target_edges`), as new ones.
- known labels (warm start) and nodes of the same metadata link a new document beside its nearest nodes, not instead
  of these (`hops.given`).
- width 512, as Astec's, in place of 300; words with pairs and sub-words; documents per step adapt to the data.
- a step of stage IV takes 20 of the 500 hard negatives of each document (`classify.per_document`), not all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from longtail.models.encoders import FrozenEncoder, FrozenSum
from longtail.recipes.base import Recipe
from longtail.recipes.galaxc import start as initial
from longtail.recipes.galaxc.graph import HiddenEdges, Paths, labels_of_nodes
from longtail.recipes.galaxc.network import LabelAttention, LinkHead, Modules, Neighbourhoods, Network, new_encoder
from longtail.recipes.galaxc.objective import (
    BatchLabels,
    GraphDocuments,
    MoreLabels,
    SharedCandidates,
    hard_labels,
    random_labels,
    start_classifiers,
)
from longtail.recipes.galaxc.ranker import FrozenGraphEncoder, GraphShortlists, JointGraphModel, node_views
from longtail.recipes.galaxc.settings import TUNABLE, GalaxcClassifyConfig, GalaxcConfig, GalaxcSurrogateConfig, check
from longtail.recipes.galaxc.start import Start
from longtail.search.index import CENTROIDS, Index
from longtail.search.negatives import ShortlistNegatives, forbidden_pairs
from longtail.training.fit import StepDecay, fit_stage
from longtail.training.indices import index_on
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.training.surrogate import fit_surrogate, surrogate_memory
from longtail.types import TopK


class Galaxc(Recipe):
    NAME = "galaxc"
    CONFIG = GalaxcConfig
    TUNABLE = TUNABLE

    def __init__(self, config: GalaxcConfig) -> None:
        self.config: GalaxcConfig = config

    def memory(self, data: TrainingSet) -> int:
        """Astec's stage I, or vectors of nodes twice, classifiers with their moments, and the scores of a step."""
        c = self.config
        nodes = data.n_documents + data.n_labels
        hard = min(c.classify.batch * c.classify.per_document, data.n_labels) if c.classify.epochs else 0
        shared = max(c.surrogate.random_count(data.n_labels) + 4 * c.surrogate.batch, hard)
        classifiers = 3 * 4 * c.astec.width * (data.n_labels + len(c.hops.fanouts) * shared)
        negatives = 4 * c.classify.count * data.n_documents if c.classify.epochs else 0
        own = 2 * 4 * c.astec.width * nodes + classifiers + 4 * 4 * 4 * c.surrogate.batch * shared + negatives
        astec = surrogate_memory(data, c.astec) if c.initial.source == "astec" else 0
        return max(own + 2**28, astec)

    # ---- start. Paper: Sec. 3 (the joint graph) and 4.1 (initial embeddings) ----

    def start_encoder(self, data: TrainingSet, run: Run) -> FrozenEncoder:
        """What turns texts into initial vectors. Astec's word vectors are summed without its ReLU."""
        c = self.config.initial
        if c.source == "astec":
            encoder = run.stage("1_astec", lambda: fit_surrogate(data, self.config.astec, run)).encoder
        elif c.source == "bundle":
            encoder = initial.encoder_of_bundle(Path(c.path), data.featurizer)
        else:
            encoder = FrozenSum(initial.word_table(Path(c.path), data.featurizer.width))
        return encoder.rectified(c.rectified)

    def start(self, data: TrainingSet, run: Run) -> Start:
        """The graph and its vectors; made once and kept as a stage of its own."""

        def make() -> Start:
            check(self.config, run.device)
            return initial.make_start(self.config, data, self.start_encoder(data, run), run)

        return run.stage("1_start", make)

    # ---- I. Paper: Sec. 4 (the architecture) and 4.1, Module I ----

    def surrogate(self, data: TrainingSet, run: Run) -> Network:
        """Convolutions, attention and classifiers together, with random negatives."""
        start = self.start(data, run)
        modules = self.new_modules(data, start, run)
        if self.config.surrogate.start == "labels":
            start_classifiers(data, start, modules, self.config.surrogate, run)
        more = random_labels(data.n_labels, self.config.surrogate.random_count(data.n_labels))
        self.fit("graph", data, start, modules, more, run)
        return Network.of(modules)

    def new_modules(self, data: TrainingSet, start: Start, run: Run) -> Modules:
        """Views of K hops, and what scores labels by them: attention and a classifier per label, or nothing per label
        (Sec. 3, link prediction).
        """
        h, s, space = self.config.hops, self.config.surrogate, start.space
        around = Neighbourhoods(space.graph, space.vectors, initial.fanout(h, full=h.sampling == "full"), run.device)
        encoder = new_encoder(h, around.width, run.rng("hops"), signed=s.head == "links").to(run.device)
        if s.head == "links":
            return Modules(encoder, LinkHead(encoder, around, data.n_labels).to(run.device), around)
        head = LabelAttention(
            data.n_labels,
            encoder.views,
            around.width,
            run.rng("label classifiers"),
            attention=s.attention,
            spread=s.attention_spread,
            bias=s.bias,
        )
        return Modules(encoder, head.to(run.device), around)

    def fit(self, name: str, data: TrainingSet, start: Start, modules: Modules, more: MoreLabels, run: Run) -> None:
        """Train against the labels of the batch and `more`, by the settings of stage I or of stage IV."""
        s, h = self.config.surrogate, self.config.hops
        c: GalaxcSurrogateConfig | GalaxcClassifyConfig = s if name == "graph" else self.config.classify
        nodes, fixed = start.space.graph.nodes, h.sampling == "fixed"
        documents = GraphDocuments(
            modules.around, nodes, start.links, data.targets, hide=s.mask_target_edges, fixed=fixed
        )
        factor = c.attention_rate / c.rate if c.rate else 1.0
        labels = BatchLabels(data.targets, data.masked, more)
        objective = SharedCandidates(modules.encoder, modules.head, documents, labels, attention_factor=factor)
        schedule = StepDecay(c.rate, c.halve_at)
        fit_stage(objective, run, name, epochs=c.epochs, batch=c.batch, schedule=schedule, adapts=c.batch_adapts)

    # ---- II. Paper: Sec. 4.1, Module II ----

    def shortlist(self, data: TrainingSet, surrogate: Network, run: Run) -> GraphShortlists:
        """Index the mean views of labels, and look hard negatives up."""
        c, start = self.config, self.start(data, run)
        modules = self.new_modules(data, start, run)
        surrogate.restore(modules)
        hops = modules.encoder.frozen(c.shortlist.space, balanced=c.shortlist.balanced)
        labels = node_views(hops, start.space.paths, np.arange(data.n_labels, dtype=np.int32)).search
        index = index_on(run.device, c.shortlist.index, CENTROIDS)(labels)
        negatives = self.hard_negatives(data, start, hops, index) if c.classify.epochs else None
        return GraphShortlists(hops, index, negatives)

    def hard_negatives(
        self, data: TrainingSet, start: Start, hops: FrozenGraphEncoder, index: Index
    ) -> ShortlistNegatives:
        """Labels near to each training document, seen as it was in training: by its own edges, or as a new document."""
        space, h = start.space, self.config.hops
        paths = Paths(space.graph, space.vectors, initial.fanout(h, full=h.sampling == "full"))
        targets = HiddenEdges.of_targets(data.targets, space.graph.nodes)

        def rank(rows: Any, k: int) -> TopK:
            nodes = space.graph.nodes[rows]
            if start.links is None:
                return index.query(node_views(hops, paths, nodes).search, k)
            views = hops.of_linked(
                paths, space.vectors[nodes], start.links[rows], seed=0, hidden=targets.rows(np.asarray(rows))
            )
            return index.query(views.search, k)

        forbidden = forbidden_pairs(data.targets, data.masked)
        return ShortlistNegatives.from_rankings(rank, forbidden, min(self.config.classify.count, data.n_labels))

    # ---- III and IV. Paper: Sec. 4.1, Modules III and IV ----

    # III has nothing to compute: parameters stay as they are, and those of the convolutions will not change any more.

    def classify(
        self, data: TrainingSet, surrogate: Network, shortlister: GraphShortlists, model: None, run: Run
    ) -> JointGraphModel:
        """Classifiers and attention against hard negatives, where the settings want that."""
        start, s = self.start(data, run), self.config.shortlist
        modules = self.new_modules(data, start, run)
        surrogate.restore(modules)
        if shortlister.negatives is not None:
            modules.encoder.freeze()
            more = hard_labels(shortlister.negatives, self.config.classify.per_document)
            self.fit("classify", data, start, modules, more, run)
        labels = np.arange(data.n_labels, dtype=np.int32)
        classifier, alphas = modules.head.frozen(lambda: node_views(shortlister.hops, start.space.paths, labels).score)
        graph = start.space.graph
        return JointGraphModel(
            start.space,
            shortlister.hops,
            shortlister.index,
            classifier,
            alphas,
            shortlist_size=s.size,
            beta=s.beta,
            temperature=s.temperature,
            node_labels=labels_of_nodes(data.targets, graph.nodes, len(graph)) if s.voters else None,
            voters=s.voters or 1,
            gamma=s.gamma,
            reserved=s.reserved,
        )
