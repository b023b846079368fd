"""`direct`: every label against every document, no clusters, no shortlist, no negatives to choose. The default recipe.

    v = E x                   weighted sum of the vectors of a document's words, word pairs and character 4-grams;
                              those that occur in few texts weigh less, as they are learnt by heart
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

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from longtail.features.sparse import SparseText
from longtail.graph.label_graph import label_graph
from longtail.models.rankers import IndexedRows
from longtail.nn.batches import Documents, fastest_products, to_numpy, to_tensor
from longtail.nn.blocks import Residual, frozen_block
from longtail.nn.encoders import BagEncoder, BagSum, DenseEncoder, Encoder, GivenView, Refined
from longtail.nn.row_tables import RowTable
from longtail.recipes.base import Recipe
from longtail.recipes.direct.memory import remembering
from longtail.recipes.direct.objective import (
    AllLabels,
    AnchorColumns,
    OneCycle,
    TextRows,
    anchor_columns,
    anchor_weights,
    first_bias,
    marked_targets,
    pairs_as_matrix,
    random_rows,
    smoothed_targets,
)
from longtail.recipes.direct.sampled import SampledLabels, TextParts
from longtail.recipes.direct.settings import (
    TEXT_EVERY,
    TUNABLE,
    DirectConfig,
    default_epochs,
    default_rate,
    is_on,
    labels_per_step,
)
from longtail.recipes.direct.view import StaticVectors, View
from longtail.search.index import build_index
from longtail.training import adapted_batch
from longtail.training.fit import fit_stage
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Csr


class Direct(Recipe):
    """One stage of the four: encoder and classifiers are learnt together, and all labels are negatives."""

    NAME = "direct"
    CONFIG = DirectConfig
    TUNABLE = TUNABLE
    SPLITS_LABELS = True
    config: DirectConfig

    def encoder_width(self) -> int:
        return self.config.encoder.width

    def memory(self, data: TrainingSet) -> int:
        """Tables with two moments, the vectors of label texts' words as they are looked at, composed rows with their
        gradients, the features, and one block of scores.
        """
        width = self.config.encoder.width
        words = data.featurizer.width if data.documents.dense is None else 0
        given = (data.documents, data.label_texts)
        entries = sum(batch.sparse.nnz for batch in given if batch is not None and batch.sparse is not None)
        graphs = data.graphs.values() if self.config.anchors.weight else ()
        anchors = sum(len(graph.anchors) for graph in graphs if graph.anchors is not None)
        return 4 * width * (4 * words + 8 * (data.n_labels + anchors)) + 3 * 8 * entries + 2**29

    def classify(
        self, data: TrainingSet, surrogate: None, shortlister: None, model: None, run: Run
    ) -> IndexedRows | None:
        """Module IV: encoder and classifiers together, against all labels; of several processes the first has them."""
        c, anchors, view = self.config, anchor_columns(data, self.config.anchors), self.view(data)
        targets, masked = self.targets(data, self.label_graph(data, run), anchors)
        encoder = self.new_encoder(data, run, view).to(run.device)
        block = (
            Residual(encoder.width, run.rng("residual"), dropout=c.encoder.dropout, mode="off").to(run.device)
            if c.encoder.residual
            else None
        )
        shard = run.shard(targets.shape[1])
        few = labels_per_step(c.train, run.device, shard, extra=self.extra_loss is not None)
        texts = self.texts(data, anchors, encoder, view, kind=TextParts if few else partial(TextRows, shard=shard))
        refined = encoder if block is None else Refined(encoder, block)
        extra = None if self.extra_loss is None else self.extra_loss(refined, data, run)
        kind: Callable[..., AllLabels] = partial(SampledLabels, labels_per_step=few) if few else AllLabels
        objective = kind(
            refined,
            texts,
            self.trust(data, anchors).to(run.device),
            first_bias(targets).to(run.device),
            Documents(data.documents if view is None else view.batch(data.documents.sparse), run.device),
            marked_targets(targets, masked, run.device, shard),
            weights=anchor_weights(data.n_labels, anchors, c.anchors.weight, run.device),
            start=None if texts is not None else random_rows(targets.shape[1], encoder.width, run).to(run.device),
            text_every=c.train.text_every or TEXT_EVERY[run.device],
            token_dropout=c.encoder.token_dropout,
            extra=extra,
            shard=shard,
        )
        epochs = c.train.epochs or default_epochs(data.n_documents)
        steps = epochs * -(-data.n_documents // adapted_batch(data.n_documents, c.train.batch))
        rate = c.train.rate or default_rate(data.n_documents, steps)
        schedule = OneCycle(rate, c.train.warm_up)
        fit_stage(objective, run, "training", epochs=epochs, batch=c.train.batch, schedule=schedule, watch=extra)
        rows = objective.final_rows()
        if rows is None:
            return None
        index = build_index(to_numpy(rows[: data.n_labels]), c.predict.index, similarity="dot")
        return remembering(IndexedRows(encoder.frozen(), frozen_block(block), index), data, c.memory)

    def label_graph(self, data: TrainingSet, run: Run) -> Csr | None:
        """Which labels belong together; None where nothing asks (walks take time), or no label has a neighbour."""
        if not self.config.train.smoothing:
            return None
        graph = label_graph(data.targets, self.config.labels.graph, run.rng("label graph"), data.label_graphs())
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

    def view(self, data: TrainingSet) -> View | None:
        """Vectors that are given beside those that are learnt; None without."""
        if not isinstance(data.featurizer, SparseText) or not data.featurizer.view_range:
            return None
        return View(data.featurizer.view_range.start, StaticVectors.read(self.config.features.view_model).table)

    def new_encoder(self, data: TrainingSet, run: Run, view: View | None = None) -> Encoder:
        c = self.config.encoder
        if data.documents.dense is not None:
            return DenseEncoder(
                data.documents.dense.shape[1], run.rng("encoder"), project_to=c.width, dropout=c.dropout
            )
        words = data.featurizer.width if view is None else view.first
        table = RowTable.random(words, c.width, run.rng("encoder"), run.device)
        given = None
        if view is not None:
            given = GivenView(torch.from_numpy(view.vectors).to(run.device), c.width, run.rng("view"))
        signed = is_on(c.signed, data.targets.nnz)
        return (BagSum if signed else BagEncoder)(table, dropout=c.dropout, view=given)

    def texts(
        self,
        data: TrainingSet,
        anchors: AnchorColumns | None,
        encoder: Encoder,
        view: View | None = None,
        kind: Callable[..., TextRows | TextParts] = TextRows,
    ) -> TextRows | TextParts | None:
        """The part of rows that words make; None where labels have no text, or documents no words."""
        from scipy.sparse import vstack

        c, texts = self.config.labels, None if data.label_texts is None else data.label_texts.sparse
        if not c.text or texts is None or not isinstance(encoder, BagEncoder | BagSum):
            return None
        if anchors is not None:
            texts = vstack([texts, anchors.texts], format="csr")
        device, given = encoder.table.weight.device, None
        if view is not None and encoder.view is not None:
            texts, sums = view.split(texts)
            given = encoder.view, to_tensor(sums, device)
        mapped = is_on(c.map, data.targets.nnz)
        return kind(encoder.table, texts, mapped=mapped, compute=fastest_products(device), view=given)

    def trust(self, data: TrainingSet, anchors: AnchorColumns | None = None) -> Tensor:
        """(L, 1): the share of its free vector that a label uses; anchors behind."""
        c = self.config.labels
        counts = data.label_counts()
        if anchors is not None:
            counts = np.concatenate([counts, np.bincount(anchors.documents.indices, minlength=anchors.count)])
        # Where there is no text, the free vector is all there is.
        alone = not c.text or data.label_texts is None
        whole = alone or not c.trust
        share = np.ones(len(counts), np.float32) if whole else (counts / (counts + c.trust)).astype(np.float32)
        return torch.from_numpy(share * np.float32(c.free or alone))[:, None]
