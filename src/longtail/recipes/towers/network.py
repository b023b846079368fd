"""One encoder for documents and labels, and how it is trained so that a document is near its labels.

A batch of documents is trained against the labels that were chosen for its documents, and others on purpose
(`label_pool`).

Shapes: B texts, D numbers per vector; U labels of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from longtail.declared import Shaped, Sized
from longtail.errors import ConfigError, DataError
from longtail.features.pieces import checkpoint_folder
from longtail.graph.anchor_graph import drawn, linked
from longtail.models.encoders import FrozenEncoder
from longtail.models.transformer import read_checkpoint
from longtail.nn.batches import Bags, Documents, to_device
from longtail.nn.blocks import EmbeddingBlock
from longtail.nn.encoders import BagSum, Encoder, UnitEncoder, encode_all
from longtail.nn.full import full_loss
from longtail.nn.row_tables import RowTable
from longtail.nn.transformer import Transformer
from longtail.persistence import DataPart
from longtail.recipes.towers.settings import TowerTrainConfig, TwoTowersConfig
from longtail.search.cluster import even_clusters
from longtail.search.index import IndexBuilder
from longtail.search.negatives import ShortlistNegatives, forbidden_pairs
from longtail.search.shortlist import LabelIndex
from longtail.training.indices import exact_index_on
from longtail.training.objectives import (
    ExtraLoss,
    ModelAdam,
    TextsOfStep,
    prefixed,
    trained_state,
    triplet_loss,
    vectors_together,
)
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I64, Batch, BoolArray, Csr


def new_encoder(data: TrainingSet, config: TwoTowersConfig, run: Run) -> UnitEncoder:
    """The same numbers for documents, labels and anchors."""
    c, checkpoint = config.encoder, config.features.checkpoint
    if checkpoint:
        return UnitEncoder(Transformer(read_checkpoint(folder_of(checkpoint))))
    table = RowTable.random(data.featurizer.width, c.width, run.rng("encoder"))
    return UnitEncoder(BagSum(table), EmbeddingBlock(c.width, run.rng("block"), dropout=c.dropout))


def folder_of(checkpoint: str) -> Path:
    return checkpoint_folder(checkpoint, f"features.checkpoint={checkpoint}")


# ---- training ----


def label_texts(data: TrainingSet) -> Batch:
    """The texts that the second tower reads."""
    if data.documents.sparse is None and data.documents.tokens is None:
        raise ConfigError(
            "this recipe reads words, but the data came with dense vectors",
            "use features.source=text, or the recipe astec",
        )
    if data.label_texts is None or data.label_texts.is_empty().all():
        raise DataError(
            "this recipe finds labels by their text, but no label has one",
            "add a title to the labels, or use the recipe astec",
        )
    return data.label_texts


@dataclass(frozen=True)
class LabelPool:
    """U different labels, ascending, for B documents.

    labels: (U,).  positive: (B,) place of the label that was chosen for a document, -1 where it has none.
    right: (B, U) labels of the document.  negative: (B, U) what may be called wrong: neither right nor masked.
    """

    labels: I64
    positive: I64
    right: BoolArray
    negative: BoolArray

    @property
    def chosen(self) -> I64:
        """Places of the labels that were chosen for some document, ascending."""
        return np.unique(self.positive[self.positive >= 0])


def label_pool(
    rows: I64, targets: Csr, forbidden: Csr, rng: np.random.Generator, others: I64 | None = None
) -> LabelPool:
    """For each document one of its labels, l(i) ~ Unif(P_i), and `others` beside them (numbers of labels, -1 for none).

    targets: (N, L) CSR.  forbidden: (N, L), what must not be a negative (`forbidden_pairs`). Paper: RAMEN Sec. 3,
        mini-batches.
    """
    chosen = drawn(targets, rows, rng)
    labels = np.unique(chosen if others is None else np.concatenate([chosen, others]))
    labels = labels[labels >= 0]
    right = linked(targets, rows, labels)
    positive = np.where(chosen >= 0, np.searchsorted(labels, chosen), -1)
    return LabelPool(labels, positive, right, ~linked(forbidden, rows, labels))


PairLoss: TypeAlias = Literal["triplet", "softmax", "logistic"]

# Documents whose loss is asked for at once when a block of steps ends.
_HELDOUT_DOCUMENTS = 1024


@dataclass(frozen=True)
class PairTask:
    """What documents are trained towards, and how.

    targets: (N, L) CSR.  forbidden: (N, L), what must not be a negative.
    loss: triplet: hinge of `margin` over the `hardest` negatives; softmax: each label of a document against all of
        its negatives (decoupled softmax), logistic: binary cross-entropy; both of cosine / temperature.
    random: labels beside those of the batch, drawn anew in each step; as many as there are labels: all.
    mined: hard negatives per document that are looked up in all labels every few epochs, one of them per document and
        step; 0: none.
    """

    targets: Csr
    forbidden: Csr
    loss: PairLoss
    margin: float
    hardest: int
    temperature: float
    random: int = 0
    mined: int = 0

    @classmethod
    def of(cls, data: TrainingSet, settings: TowerTrainConfig, loss: PairLoss, *, mined: bool) -> PairTask:
        """As the settings say, with no more labels than there are."""
        return cls(
            data.targets,
            forbidden_pairs(data.targets, data.masked),
            loss=loss,
            margin=settings.margin,
            hardest=settings.hardest,
            temperature=settings.temperature,
            random=min(settings.random, data.n_labels),
            mined=min(settings.mined, data.n_labels) if mined else 0,
        )


class TwoTowers:
    """The objective. As a `Watch` of itself it looks up hard negatives and clusters documents every `refresh` epochs.

    cluster: documents of a batch come from clusters of about this size, which doubles every `doubled` epochs; 0: from
        anywhere.
    heldout: (N,) documents that are not trained on, or None.  rng_for: (name, number) -> generator, e.g. `Run.rng`.
    extra: a loss to be added.
    """

    def __init__(
        self,
        encoder: Encoder,
        documents: Documents,
        labels: Documents,
        task: PairTask,
        *,
        rng_for: Callable[[str, int], np.random.Generator],
        extra: ExtraLoss | None = None,
        heldout: BoolArray | None = None,
        refresh: int = 5,
        cluster: int = 0,
        doubled: int = 25,
    ) -> None:
        self.encoder, self.documents, self.labels = encoder.train(), documents, labels
        self.task, self.extra = task, extra
        self.refresh, self.cluster, self.doubled, self._rng_for = refresh, cluster, doubled, rng_for
        held = np.zeros(len(documents), dtype=np.bool_) if heldout is None else heldout
        self._trained, self._heldout = np.flatnonzero(~held), np.flatnonzero(held)[:_HELDOUT_DOCUMENTS]
        self.adam = ModelAdam(encoder)
        # What a refresh gives; saved, because a resumed training begins between two of them.
        self._mined = torch.full((len(documents), task.mined), -1, dtype=torch.int32)
        self._cluster_of = torch.zeros(self.size, dtype=torch.int32)

    @property
    def size(self) -> int:
        return len(self._trained)

    # ---- between epochs ----

    def begins(self, epoch: int, epochs: int) -> bool:
        if epoch % self.refresh == 0 and (self.task.mined or self.cluster):
            self._refresh(epoch)
        return self.extra is None or self.extra.begins(epoch, epochs)

    def ended(self, epoch: int, epochs: int) -> None:
        if self.extra is not None:
            self.extra.ended(epoch, epochs)

    def _refresh(self, epoch: int) -> None:
        vectors = encode_all(self.encoder, self.documents, "search")
        if self.cluster:
            count = max(self.size // (self.cluster * 2 ** (epoch // self.doubled)), 1)
            self._cluster_of.copy_(
                torch.from_numpy(
                    even_clusters(vectors[self._trained], count, self._rng_for("clusters of documents", epoch))
                )
            )
        if self.task.mined:
            index = label_index(
                encode_all(self.encoder, self.labels, "search"), exact_index_on(self.documents.device.type)
            )
            self._mined.copy_(
                torch.from_numpy(ShortlistNegatives.mine(index, vectors, self.task.forbidden, self.task.mined).ids)
            )

    def order(self, rng: np.random.Generator) -> I64:
        """Documents in the order of an epoch: at random, but those of a cluster one after the other."""
        clusters = self._cluster_of.numpy()
        place = rng.permutation(int(clusters.max(initial=0)) + 1)[clusters]
        return np.lexsort((rng.random(self.size), place)).astype(np.int64)

    # ---- in a step ----

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        total = self._objective(self._trained[rows], rng)
        torch.autograd.backward(total)
        self.adam.step(rate)
        if self.extra is not None:
            self.extra.after_step(self.heldout_loss)
        return total.detach()

    def _objective(self, rows: I64, rng: np.random.Generator) -> Tensor:
        """The loss of the task, with what is added to it."""
        pool = self._pool(rows, rng)
        texts = [TextsOfStep(self.documents, rows), TextsOfStep(self.labels, pool.labels)]
        if self.extra is None:
            x_BD, z_UD = vectors_together(self.encoder, texts)
            return pair_loss(x_BD, z_UD, pool, self.task)
        chosen = pool.chosen
        step = self.extra.step(rows, pool.labels[chosen])
        x_BD, z_UD, *of_texts = vectors_together(self.encoder, [*texts, *step.texts])
        of_labels = z_UD.index_select(0, to_device(chosen, z_UD.device))
        return step.total(pair_loss(x_BD, z_UD, pool, self.task), x_BD, of_labels, of_texts)

    def _pool(self, rows: I64, rng: np.random.Generator) -> LabelPool:
        return label_pool(rows, self.task.targets, self.task.forbidden, rng, self._others(rows, rng))

    def _others(self, rows: I64, rng: np.random.Generator) -> I64 | None:
        """Labels beside those that were chosen for the documents of a step."""
        found: list[I64] = []
        if self.task.loss == "softmax":
            # Every label of a document has a share in this loss.
            found.append(self.task.targets[rows].indices.astype(np.int64))
        if self.task.random >= len(self.labels):
            return np.arange(len(self.labels), dtype=np.int64)
        if self.task.random:
            found.append(rng.integers(len(self.labels), size=self.task.random))
        if self.task.mined:
            found.append(self._mined.numpy()[rows, rng.integers(self.task.mined, size=len(rows))].astype(np.int64))
        return np.concatenate(found) if found else None

    @torch.no_grad()
    def heldout_loss(self) -> float:
        """The loss of the task on documents kept apart, always against the same labels."""
        self.encoder.eval()
        try:
            pool = self._pool(self._heldout, self._rng_for("labels of documents kept apart", 0))
            x_BD, z_UD = vectors_together(
                self.encoder, [TextsOfStep(self.documents, self._heldout), TextsOfStep(self.labels, pool.labels)]
            )
            return float(pair_loss(x_BD, z_UD, pool, self.task))
        finally:
            self.encoder.train()

    def state(self) -> dict[str, Tensor]:
        state = (
            trained_state(self.encoder)
            | prefixed("adam", self.adam.state())
            | {"mined": self._mined, "cluster_of": self._cluster_of}
        )
        return state if self.extra is None else state | prefixed("extra", self.extra.state())


def pair_loss(x_BD: Tensor, z_UD: Tensor, pool: LabelPool, task: PairTask) -> Tensor:
    """The loss of unit vectors. Pairs that are masked, or right and not chosen, are no negatives."""
    device = x_BD.device
    if task.loss == "triplet":
        place, negative = to_device(pool.positive, device), to_device(pool.negative, device)
        return triplet_loss(x_BD @ z_UD.T, place, negative, margin=task.margin, hardest=task.hardest)
    right, masked = _bags(pool.right, device), _bags(~pool.right & ~pool.negative, device)
    scaled = x_BD / task.temperature
    if task.loss == "softmax":
        return full_loss(scaled, z_UD, right, masked=masked, loss="softmax")
    # With one right label in U a chance of one half for each would be far off: the logit begins at -log U.
    ones = scaled.new_ones(len(scaled), 1)
    offset = z_UD.new_full((len(z_UD), 1), -float(np.log(max(len(z_UD), 1))))
    return full_loss(
        torch.cat([scaled, ones], dim=1), torch.cat([z_UD, offset], dim=1), right, masked=masked, loss="bce"
    )


def _bags(pairs_BU: BoolArray, device: torch.device) -> Bags:
    owners, places = np.nonzero(pairs_BU)
    starts = np.append(0, np.cumsum(np.bincount(owners, minlength=len(pairs_BU)))).astype(np.int64)
    return Bags(
        to_device(starts, device), to_device(places.astype(np.int32), device), torch.ones(len(places), device=device)
    )


def label_index(vectors: F32, make_index: IndexBuilder) -> LabelIndex:
    """Labels by the cosine of their vectors; one without text, whose vector is zero, is never found."""
    named = np.flatnonzero(np.any(vectors != 0, axis=1)).astype(np.int32)
    return LabelIndex(make_index(vectors[named]), named)


def kept_apart(documents: int, share: float, rng: np.random.Generator) -> BoolArray:
    """(N,) a random share of the documents, at least one."""
    held = np.zeros(documents, dtype=np.bool_)
    held[rng.permutation(documents)[: max(round(share * documents), 1)]] = True
    return held


@dataclass(frozen=True)
class Towers(DataPart):
    """Stage I: the encoder, and the unit vectors of documents (N, D) and labels (L, D)."""

    KIND = "two-towers"

    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    documents: Annotated[F32, Shaped("documents", "width")]
    labels: Annotated[F32, Shaped("labels", "width")]
