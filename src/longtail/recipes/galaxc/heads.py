"""What turns views of documents into scores of labels: classifiers with attention, or the likeness of embeddings.

All documents of a step meet the same labels, so a head gives both sides of one product. Shapes: B documents, U labels,
K views of D numbers, and E numbers that both sides have: K D (D where views are averaged), one more with a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from longtail.graph.ops import unit_rows
from longtail.models.shortlisted import Classifier
from longtail.nn.batches import Bags, to_numpy, to_tensor
from longtail.nn.blocks import uniform
from longtail.nn.row_tables import RowTable
from longtail.recipes.galaxc.network import GraphEncoder, HopEncoder, Neighbourhoods, Roots, gin_encoder, sage_encoder
from longtail.recipes.galaxc.settings import AttentionKind, HopsConfig
from longtail.types import F32, I64


class SharedHead(nn.Module):
    """K views of documents, and numbers of labels, as two sides of one product. Attention weights are its `logits`."""

    labels: int

    def inputs(self, x_BKD: Tensor) -> Tensor:
        """(B, E)"""
        raise NotImplementedError

    def rows(self, labels_U: Tensor, seed: int) -> Tensor:
        """(U, E) of different labels, (U,) int32. seed: names samples, for heads that look at neighbourhoods."""
        raise NotImplementedError

    def frozen(self, label_views: Callable[[], F32]) -> tuple[Classifier, F32 | None]:
        """Classifiers, and (L, K) what each view counts for each label (None: all alike), for prediction.

        label_views: gives (L, K, D), the views of all labels, for heads without a classifier per label.
        """
        raise NotImplementedError


class LabelAttention(SharedHead):
    """s_l = w_l . sum_k alpha_lk x^k + b_l with alpha_l = softmax(e_l).

    label: e of its own per label; global: one for all; none: alpha = 1 / K.
    As one product: documents are [x^1; ...; x^K] and label l is [alpha_l1 w_l; ...; alpha_lK w_l] (`inputs`, `rows`).
    w (and b) start in +-1/sqrt(D), e from N(0, spread^2); the paper's spread is 1.
    Paper: GalaXC Sec. 4 (label-wise attention) and 4.1 (initialisation).
    """

    def __init__(
        self,
        labels: int,
        views: int,
        width: int,
        rng: np.random.Generator,
        *,
        attention: AttentionKind = "label",
        spread: float = 1.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.labels, self.views, self.width, self.has_bias = labels, views, width, bias
        self.attention: AttentionKind = attention if views > 1 else "none"
        self.weights = RowTable(uniform((labels, width + bias), width**-0.5, rng))
        if self.attention == "label":
            self.logits: nn.Module = RowTable(
                torch.from_numpy(rng.standard_normal((labels, views), dtype=np.float32)).mul_(spread)
            )
        elif self.attention == "global":
            self.logits = _Shared(torch.from_numpy(rng.standard_normal(views, dtype=np.float32)).mul_(spread))
        else:
            self.logits = nn.Identity()

    def inputs(self, x_BKD: Tensor) -> Tensor:
        """(B, E): documents as `rows` want them."""
        z = x_BKD.mean(dim=1) if self.attention == "none" else x_BKD.flatten(1)
        return torch.cat([z, z.new_ones(len(z), 1)], dim=1) if self.has_bias else z

    def rows(self, labels_U: Tensor, seed: int = 0) -> Tensor:
        """(U, E): the classifiers of different labels, (U,) int32. seed: not used."""
        bags = Bags.of_rows(labels_U)
        weights: Tensor = self.weights(bags)
        rows = weights[:, : self.width]
        if self.attention != "none":
            logits = self.logits(bags)
            rows = (torch.softmax(logits, dim=1)[:, :, None] * rows[:, None]).flatten(1)
        return torch.cat([rows, weights[:, self.width :]], dim=1) if self.has_bias else rows

    @torch.no_grad()
    def read(self, blocks: Iterable[Tensor], labels: I64) -> tuple[Tensor, Tensor]:
        """(B, D): what a label, one per document, reads of a document's views; and these labels as a tensor.

        blocks: the views (b, K, D) of documents, block after block.
        """
        alphas, labels_B = self.alphas(), to_tensor(labels, self.weights.weight.device)
        x_BD, done = alphas.new_empty(len(labels), self.width), 0
        for x_bKD in blocks:
            part = slice(done, done + len(x_bKD))
            x_BD[part] = (alphas[labels_B[part]][:, :, None] * x_bKD.float()).sum(dim=1)
            done = part.stop
        return x_BD, labels_B

    @torch.no_grad()
    def start_from(
        self, rows_LD: Tensor, right: tuple[Tensor, Tensor], wrong: tuple[Tensor, Tensor], scores: tuple[float, float]
    ) -> None:
        """Let classifiers start as a cosine to what they are made for: w_l = g unit(rows_l), and one bias for all.

        right, wrong: documents (B, D) with a label (B,) each that they have, and any label; from `read`.
        scores: what the mean scores of both shall be; g and the bias follow.
        """
        assert self.has_bias, "a cosine is rarely negative: without a bias every label would seem right"
        unit = nn.functional.normalize(rows_LD, dim=1)
        means = [(unit[labels] * x).sum(dim=1).mean() for x, labels in (right, wrong)]
        # Where right labels are no nearer than any others there is nothing to start from but their direction.
        g = (scores[0] - scores[1]) / (means[0] - means[1]).clamp(min=1e-3)
        self.weights.weight[:, : self.width] = g * unit
        self.weights.weight[:, self.width] = scores[0] - g * means[0]

    @torch.no_grad()
    def alphas(self) -> Tensor:
        """(L, K): what each view counts for each label; rows sum to one."""
        if self.attention == "none":
            return self.weights.weight.new_full((self.labels, self.views), 1 / self.views)
        logits = self.logits.weight
        assert isinstance(logits, Tensor)
        return torch.softmax(logits, dim=-1).expand(self.labels, -1)

    def frozen(self, label_views: Callable[[], F32]) -> tuple[Classifier, F32 | None]:
        weights = to_numpy(self.weights.weight)
        bias = np.ascontiguousarray(weights[:, self.width]) if self.has_bias else None
        classifier = Classifier(np.ascontiguousarray(weights[:, : self.width]), bias)
        return classifier, None if self.attention == "none" else to_numpy(self.alphas())


class _Shared(nn.Module):
    """One row for every label that is asked for."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(values)

    def forward(self, bags: Bags) -> Tensor:
        return self.weight.expand(len(bags), -1)


class LinkHead(SharedHead):
    """score = scale * cosine + shift, both trained, between the embeddings that one encoder gives of documents and
    labels: what classifiers are compared with. There is no parameter per label.

    Paper: GalaXC Sec. 3 (link prediction, Table 1).
    """

    def __init__(self, encoder: GraphEncoder, around: Neighbourhoods, labels: int) -> None:
        super().__init__()
        self.encoder, self.around, self.labels = encoder, around, labels
        self.scale, self.shift = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-5.0))

    def inputs(self, x_BKD: Tensor) -> Tensor:
        """(B, D + 1)"""
        unit = nn.functional.normalize(x_BKD.mean(dim=1), dim=1)
        return torch.cat([unit * self.scale, unit.new_ones(len(unit), 1)], dim=1)

    def rows(self, labels_U: Tensor, seed: int) -> Tensor:
        """(U, D + 1): label l is node l."""
        z_UKD: Tensor = self.encoder(self.around, Roots(labels_U.cpu().numpy().astype(np.int32), seed))
        unit = nn.functional.normalize(z_UKD.float().mean(dim=1), dim=1)
        return torch.cat([unit, self.shift.expand(len(unit), 1)], dim=1)

    def frozen(self, label_views: Callable[[], F32]) -> tuple[Classifier, F32 | None]:
        # What the head was trained on is the mean of what classifiers read, whatever the shortlist is looked up by.
        return Classifier(unit_rows(label_views().mean(axis=1))), None


class Modules(NamedTuple):
    """What is trained, and the neighbourhoods that it reads."""

    encoder: GraphEncoder
    head: SharedHead
    around: Neighbourhoods


def new_encoder(c: HopsConfig, width: int, rng: np.random.Generator, *, signed: bool) -> GraphEncoder:
    """The encoder that the settings name, untrained. signed: see `sage_encoder`."""
    hops = len(c.fanouts)
    if c.encoder == "galaxc":
        return HopEncoder(hops, width, rng, dropout=c.dropout, pre_relu=c.pre_relu)
    if c.encoder == "gin":
        return gin_encoder(hops, width, rng, dropout=c.dropout)
    return sage_encoder(hops, width, rng, dropout=c.dropout, signed=signed)
