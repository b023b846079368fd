"""One model of `direct` as torch trains it: its encoder, the text of its labels, and how both enter a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from longtail.nn.batches import DeviceCsr, Documents, fastest_products, to_tensor
from longtail.nn.blocks import Block, Residual
from longtail.nn.encoders import BagEncoder, BagSum, DenseEncoder, Encoder, GivenView, Refined
from longtail.nn.row_tables import RowTable
from longtail.nn.shards import Shard
from longtail.recipes.base import ExtraLossFactory
from longtail.recipes.direct.factored import FactoredLabels
from longtail.recipes.direct.objective import AllLabels, AnchorColumns, TextEntries, TextRows, random_rows
from longtail.recipes.direct.sampled import SampledLabels, TextParts
from longtail.recipes.direct.settings import TEXT_EVERY, DirectConfig, EncoderConfig, LabelsConfig, RowsKind, is_on
from longtail.recipes.direct.sgd import SgdLabels, TokenTexts
from longtail.recipes.direct.view import View
from longtail.training.objectives import ExtraLoss
from longtail.training.parent import ParentModel
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import Batch, Csr

# The part of rows that words make, as each kind of step reads it.
AnyTexts: TypeAlias = TextRows | TextParts | TokenTexts


@dataclass(frozen=True)
class Shared:
    """What models that are trained side by side have in common, on the device where they are trained.

    documents, targets: see `AllLabels`.  anchors, view: None without.  trust: (L, 1).  bias: where biases begin.
    weights: (L,) or None.  shard: which labels this process has.  labels_per_step: 0 for all of them.
    rows: how rows are kept.  row_pace: see `SgdLabels` and `FactoredLabels`.  light_words: see `AllLabels`.
    """

    data: TrainingSet
    anchors: AnchorColumns | None
    view: View | None
    documents: Documents
    targets: DeviceCsr
    trust: Tensor
    bias: Tensor
    weights: Tensor | None
    shard: Shard
    labels_per_step: int
    rows: RowsKind = "adam"
    row_pace: float = 1.0
    light_words: bool = False

    @cached_property
    def label_texts(self) -> tuple[Csr | TextEntries | None, Tensor | None]:
        """Words of the texts of labels, in the form that all models have in common, and (L, H) of a view."""
        found, device = label_texts(self.data, self.anchors, self.view), self.trust.device
        if found is None or found.sparse is None:
            return None, None
        given = None if found.dense is None else to_tensor(found.dense, device)
        return found.sparse if self.labels_per_step else TextEntries.of(found.sparse, device, self.shard), given


@dataclass(frozen=True)
class Learner:
    """One model under training.  extra: the loss that another recipe adds."""

    encoder: Encoder
    block: Block | None
    objective: AllLabels
    extra: ExtraLoss | None


def new_learner(
    config: DirectConfig, shared: Shared, run: Run, number: int, extra_loss: ExtraLossFactory | None
) -> Learner:
    """Model `number` of those that are trained side by side, each with random numbers of its own."""
    keys = (number,) if number else ()
    encoder = new_encoder(config.encoder, shared.data, run, shared.view, *keys).to(run.device)
    block = None
    if config.encoder.residual:
        rng = run.rng("residual", *keys)
        block = Residual(encoder.width, rng, dropout=config.encoder.dropout, mode="off").to(run.device)
    texts = label_text_rows(config, shared, encoder)
    start = None if texts is not None else random_rows(len(shared.trust), encoder.width, run, *keys).to(run.device)
    extra = None if extra_loss is None else extra_loss(with_block(encoder, block), shared.data, run)
    return learner_of(config, shared, run, (encoder, block, texts), start, shared.bias, extra)


def label_shares(shared: Shared) -> Tensor:
    """(L,): of the documents that have each label; anchors behind."""
    counts = shared.data.label_counts()
    if shared.anchors is not None:
        of_anchors = np.bincount(shared.anchors.documents.indices, minlength=shared.anchors.count)
        counts = np.concatenate([counts, of_anchors])
    return to_tensor((counts / shared.data.all_documents).astype(np.float32), shared.trust.device)


def free_shares(
    config: LabelsConfig, data: TrainingSet, anchors: AnchorColumns | None, parent: ParentModel | None
) -> Tensor:
    """(L, 1): the share of its free vector that a label uses; anchors behind."""
    counts = data.label_counts()
    if parent is not None:
        # A label that is not seen again has learnt from the documents of before.
        before = parent.bundle.labels.counts
        counts[: len(before)] = np.maximum(counts[: len(before)], before)
    if anchors is not None:
        counts = np.concatenate([counts, np.bincount(anchors.documents.indices, minlength=anchors.count)])
    # Where there is no text, the free vector is all there is.
    alone = not config.text or data.label_texts is None
    whole = alone or not config.trust
    share = np.ones(len(counts), np.float32) if whole else (counts / (counts + config.trust)).astype(np.float32)
    return torch.from_numpy(share * np.float32(config.free or alone))[:, None]


def with_block(encoder: Encoder, block: Block | None) -> Encoder:
    return encoder if block is None else Refined(encoder, block)


def label_text_rows(config: DirectConfig, shared: Shared, encoder: Encoder) -> AnyTexts | None:
    reading: Callable[..., AnyTexts] = partial(TokenTexts if shared.rows == "sgd" else TextRows, shard=shared.shard)
    if shared.labels_per_step:
        reading = TextParts
    texts, given = shared.label_texts
    return text_rows(config.labels, shared.data, texts, encoder, given, reading)


def learner_of(
    config: DirectConfig,
    shared: Shared,
    run: Run,
    network: tuple[Encoder, Block | None, AnyTexts | None],
    start: Tensor | None,
    bias: Tensor,
    extra: ExtraLoss | None = None,
) -> Learner:
    """start: (L, D) where free vectors begin; None: at zero.  bias: where biases begin, one for all or one for each."""
    encoder, block, texts = network
    light = shared.light_words
    kind: Callable[..., AllLabels] = partial(AllLabels, light_words=light)
    if shared.labels_per_step:
        kind = partial(SampledLabels, labels_per_step=shared.labels_per_step)
    elif shared.rows == "sgd":
        kind = partial(SgdLabels, shares=label_shares(shared), pace=shared.row_pace, light_words=light)
    elif shared.rows == "factored":
        kind = partial(FactoredLabels, pace=shared.row_pace, light_words=light)
    objective = kind(
        with_block(encoder, block),
        texts,
        shared.trust,
        bias,
        shared.documents,
        shared.targets,
        weights=shared.weights,
        start=start,
        text_every=config.train.text_every or TEXT_EVERY[run.device],
        long_steps=config.train.text_steps == "all",
        token_dropout=config.encoder.token_dropout,
        extra=extra,
        shard=shared.shard,
    )
    return Learner(encoder, block, objective, extra)


def new_encoder(config: EncoderConfig, data: TrainingSet, run: Run, view: View | None = None, *keys: int) -> Encoder:
    """keys: name the random numbers that it begins with."""
    if data.documents.dense is not None:
        inputs = data.documents.dense.shape[1]
        return DenseEncoder(inputs, run.rng("encoder", *keys), project_to=config.width, dropout=config.dropout)
    words = data.featurizer.width if view is None else view.first
    table = RowTable.random(words, config.width, run.rng("encoder", *keys), run.device)
    given = None
    if view is not None:
        given = GivenView(view, config.width, run.rng("view", *keys))
    signed = is_on(config.signed, data.all_pairs)
    return (BagSum if signed else BagEncoder)(table, dropout=config.dropout, view=given)


def label_texts(data: TrainingSet, anchors: AnchorColumns | None, view: View | None) -> Batch | None:
    """What labels are called, anchors behind: words, and what a view has of them; None where there are no words."""
    from scipy.sparse import vstack

    texts = None if data.label_texts is None else data.label_texts.sparse
    if texts is None:
        return None
    if anchors is not None:
        texts = vstack([texts, anchors.texts], format="csr")
    return Batch(sparse=texts) if view is None else view.of_labels(texts)


def text_rows(
    config: LabelsConfig,
    data: TrainingSet,
    texts: Csr | TextEntries | None,
    encoder: Encoder,
    given: Tensor | None = None,
    kind: Callable[..., AnyTexts] = TextRows,
) -> AnyTexts | None:
    """The part of rows that words make; None where labels have no text, or documents no words.

    texts: their words.  given: (L, H), what a view has of them.
    """
    if not config.text or texts is None or not isinstance(encoder, BagEncoder | BagSum):
        return None
    view = None if encoder.view is None or given is None else (encoder.view, given)
    mapped, device = is_on(config.map, data.all_pairs), encoder.table.weight.device
    return kind(encoder.table, texts, mapped=mapped, compute=fastest_products(device), view=view)
