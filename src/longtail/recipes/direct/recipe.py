"""`direct`: every label against every document, no clusters, no shortlist, no negatives to choose. The default recipe.

    v = E x                   weighted sum of the vectors of a document's words, word pairs and character 4-grams;
                              those that occur in few texts weigh less, as they are learnt by heart (and, with
                              `features.view`, a pretrained vector of the text through a matrix)
    z = v + ReLU(R v)         a residual
    w_l = g (E Z)_l M + n_l / (n_l + trust) f_l
                              the label's text in the same vectors, turned by a matrix M, and a free vector f_l that
                              counts the more, the more documents n_l the label has (few pairs of a document and a
                              label: no M, and v = ReLU(E x), which have less to learn)
    loss                      binary cross-entropy over all labels: on a GPU cheaper than looking for hard negatives; on
                              a CPU over samples of them that have the same expectation (`sampled`)
    p_l = sigmoid(w_l z + b_l), and training documents with words in common vote on the best of them (`memory`)

While it trains, anchors of the data's graphs are labels as well; none of them is left at prediction. What the data
lacks is left out: without label text rows are free vectors. Labels that are probably missing are softer targets, by a
label graph (`train.smoothing`).

The idea of composed rows is ECLARE's; that all negatives are affordable is a matter of the hardware. The choices were
made on validation slices: `direct_ablation.json` and `direct_memory_slices.json` in `benchmarks/results`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from longtail.data.dataset import Dataset
from longtail.models.rankers import Ensemble, IndexedRows
from longtail.nn.batches import DeviceCsr, Documents
from longtail.recipes.base import Recipe
from longtail.recipes.direct.as_one import as_one
from longtail.recipes.direct.continuing import EPOCHS_SHARE, FEWEST_EPOCHS, continued_learners, rate_share
from longtail.recipes.direct.from_disk import DiskDocuments, DiskTargets
from longtail.recipes.direct.members import keep_members, models_to_train
from longtail.recipes.direct.memory import remembering, size_of_memory, together
from longtail.recipes.direct.network import Shared, free_shares, new_learner
from longtail.recipes.direct.objective import (
    AnchorColumns,
    OneCycle,
    anchor_columns,
    anchor_weights,
    first_bias,
    marked_targets,
    pairs_as_matrix,
    smoothed_targets,
)
from longtail.recipes.direct.recorded import steps_of
from longtail.recipes.direct.settings import (
    TUNABLE,
    DirectConfig,
    bytes_of_model,
    choices,
    default_epochs,
    default_rate,
    small_parts,
)
from longtail.recipes.direct.text_vectors import reads_tokens, size_of_view, text_vectors
from longtail.recipes.direct.view import TextVectors, view_of
from longtail.search.index import build_index
from longtail.training import adapted_batch
from longtail.training.fit import fit_stage
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Csr, Ranker


class Direct(Recipe):
    """One stage of the four: encoder and classifiers are learnt together, and all labels are negatives. With a
    transformer as a view a stage before it gives texts their vectors.
    """

    NAME = "direct"
    CONFIG = DirectConfig
    TUNABLE = TUNABLE
    SPLITS_LABELS = True
    TRAINS_FROM_DISK = True
    CONTINUES = True
    config: DirectConfig

    def encoder_width(self) -> int:
        return self.config.encoder.width

    def choices(self, data: Dataset) -> Mapping[str, tuple[Any, ...]]:
        return choices(self.config, data)

    def tried_with(self, data: Dataset, share: float) -> Mapping[str, Any]:
        """One model, and as many steps as its share of the documents: few of them would have smaller steps and more
        epochs, and take longer than their share of the time.
        """
        c, whole = self.config.train, len(data.train)
        steps, fewer = (-(-count // adapted_batch(count, c.batch)) for count in (whole, max(1, round(share * whole))))
        epochs = (c.epochs or default_epochs(whole)) * share * steps / fewer
        return {"train.together": 1, "train.epochs": max(1, round(epochs))}

    def memory(self, data: TrainingSet) -> int:
        """Of each model tables with two moments, the vectors of label texts' words as they are looked at, composed rows
        with their gradients (and bytes, where labels are sampled), or what they are where they are small; the features,
        one block of scores, and what is remembered of documents.
        """
        c = self.config
        words = data.featurizer.width if data.documents.dense is None else 0
        given = (data.documents, data.label_texts)
        entries = sum(batch.sparse.nnz for batch in given if batch is not None and batch.sparse is not None)
        graphs = data.graphs.values() if c.anchors.weight else ()
        anchors = sum(len(graph.anchors) for graph in graphs if graph.anchors is not None)
        rows, view = data.n_labels + anchors, size_of_view(data, c.features, anchors)
        count = models_to_train(c, data, self.device, self.parent, extra=self.extra_loss is not None)
        models = count * bytes_of_model(c, words, rows, self.device)
        return models + 3 * 8 * entries + view + size_of_memory(data, c.memory) + 2**29

    def defined_stages(self, data: TrainingSet) -> frozenset[str]:
        return super().defined_stages(data) if reads_tokens(data) else frozenset()

    def surrogate(self, data: TrainingSet, run: Run) -> TextVectors:
        """Module I, of a view alone: what a frozen transformer makes of every text."""
        return text_vectors(data, anchor_columns(data, self.config.anchors), self.config.features, run)

    def classify(
        self, data: TrainingSet, surrogate: TextVectors | None, shortlister: None, model: None, run: Run
    ) -> IndexedRows | None:
        """Module IV: encoder and classifiers together, against all labels; of several processes the first has them."""
        c, documents = self.config, data.all_documents
        epochs, pace = c.train.epochs or default_epochs(documents), 1.0
        if self.parent is not None:
            epochs, pace = c.train.epochs or max(FEWEST_EPOCHS, round(EPOCHS_SHARE * epochs)), rate_share(self.parent)
        steps = epochs * -(-documents // adapted_batch(documents, c.train.batch))
        schedule = OneCycle(c.train.rate or pace * default_rate(documents, round(steps / pace)), c.train.warm_up)
        shared = self.shared(data, run, surrogate, pace / schedule.peak)
        if self.parent is not None:
            learners = continued_learners(c, shared, run, self.parent)
        else:
            count = models_to_train(c, data, run.device, None, extra=self.extra_loss is not None)
            learners = [new_learner(c, shared, run, number, self.extra_loss) for number in range(count)]
        objective = steps_of([learner.objective for learner in learners], c.train.recorded, run)
        watch = learners[0].extra
        fit_stage(objective, run, "training", epochs=epochs, batch=c.train.batch, schedule=schedule, watch=watch)
        seen = shared.documents
        if data.everything is not None:
            data.everything.let_go()
            seen = Documents(data.documents, run.device)
        keep_members(learners, data.n_labels, run)
        found = as_one(learners, seen, data.targets, run.rng("as one"))
        if found is None:
            return None
        encoder, refinement, rows = found
        ranker = IndexedRows(encoder, refinement, build_index(rows, c.predict.index, similarity="dot"))
        # Members of an ensemble share what is remembered (`joined`).
        return ranker if c.ensemble.learners > 1 else remembering(ranker, data, c.memory)

    def joined(self, members: Sequence[Ranker], data: TrainingSet) -> Ensemble:
        """Several models whose scores are averaged, with one memory for all."""
        return together(members, data, self.config.memory)

    def shared(self, data: TrainingSet, run: Run, vectors: TextVectors | None = None, pace: float = 1.0) -> Shared:
        """What a training begins with, and models that are trained side by side have in common.

        pace: times a learning rate it is the share of `train.row_rate` that counts.
        """
        c, anchors = self.config, anchor_columns(data, self.config.anchors)
        view = view_of(data.featurizer, c.features, vectors)
        graph, shard = self.label_graph(data, run), run.shard(data.n_labels + (anchors.count if anchors else 0))
        documents: Documents
        targets: DeviceCsr
        if data.everything is not None:
            documents = DiskDocuments(data.everything, run.device)
            targets = on_disk = DiskTargets(data, lambda part: self.targets(part, graph), run.device, shard)
            bias = on_disk.first_bias
        else:
            batch = data.documents if view is None else view.of_documents(data.documents.sparse)
            plain, masked = self.targets(data, graph, anchors)
            documents, targets = Documents(batch, run.device), marked_targets(plain, masked, run.device, shard)
            bias = first_bias(plain)
        return Shared(
            data=data,
            anchors=anchors,
            view=view,
            documents=documents,
            targets=targets,
            trust=free_shares(c.labels, data, anchors, self.parent).to(run.device),
            bias=bias.to(run.device),
            weights=anchor_weights(data.n_labels, anchors, c.anchors.weight, run.device),
            shard=shard,
            **small_parts(c, data, run.device, shard, pace, extra=self.extra_loss is not None),
        )

    def label_graph(self, data: TrainingSet, run: Run) -> Csr | None:
        """Which labels belong together; None where nothing asks (walks take time), or no label has a neighbour."""
        if not self.config.train.smoothing:
            return None
        graph = data.label_graph(self.config.labels.graph, run.rng("label graph"))
        return graph if graph.nnz > data.n_labels else None

    def targets(
        self, data: TrainingSet, graph: Csr | None = None, anchors: AnchorColumns | None = None
    ) -> tuple[Csr, Csr]:
        """(N, L) targets and masked pairs; anchors are labels behind the others."""
        from scipy.sparse import csr_array, hstack

        targets, masked = data.targets, data.masked_matrix()
        if masked is None:
            masked = csr_array(targets.shape, dtype=np.float32)
        elif self.config.train.self_pairs:
            masked = masked - self.config.train.self_pairs * pairs_as_matrix(data.same, targets.shape)
            masked.eliminate_zeros()
        if graph is not None:
            targets = smoothed_targets(targets, graph, self.config.train.smoothing)
        if anchors is not None:
            targets = hstack([targets, anchors.documents], format="csr")
            masked = hstack([masked, anchors.own_documents], format="csr")
        return targets, masked
