"""Classifier rows that are composed: of a label's text, of its neighbours' texts, and of a free vector. Paper: ECLARE
Sec. 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.attention_mix import AttentionMix, MixMode
from longtail.nn.batches import Bags, sent
from longtail.nn.blocks import BoundedMatrix
from longtail.nn.embedding_block import EmbeddingBlock
from longtail.nn.initial import xavier_matrix
from longtail.nn.label_texts import LabelTexts, TrainedTexts
from longtail.nn.products import fastest_products
from longtail.nn.row_table import RowTable
from longtail.types import F32, I32

GraphPart = Literal["gale", "gcn", "lightgcn", "none"]

# Rows composed at a time when all are: a block of activations stays small beside the rows.
_BLOCK = 16_384
# The same in a step on a CPU. Tensors of these (8 MB of 512 numbers) use memory again that was just freed; those of
# all labels come from the system, which clears every page of them, in every step anew.
_STEP_BLOCK = 4096


class LabelTextGraph(nn.Module):
    """w_l = a mix (`AttentionMix`) of components, those that are there of

    text: E_L(E z_l), an `EmbeddingBlock` of the label's text (LTE).
    graph, by `graph`: gale: E_k((G^k E Z)_l), a block for each order k = 1, 2, ... of the texts (GALE);
        gcn: ReLU(Theta (G E Z)_l); lightgcn: the mean of (G^k E Z)_l over k = 0, 1, ..., nothing trained.
    free: a vector of its own per label (refinement), trained by rows.

    texts: where E Z and its convolutions come from; None: labels have no text, and only free vectors are left.
    free: (L, D), what free vectors start from; None: there are none.
    bias: None, or what the bias of every label starts from: rows then have one number more, the weight of a feature
        that is
        always 1 (`inputs` adds it). It is one trained number for all labels, and where there are free vectors one per
        label besides.
    """

    def __init__(
        self,
        texts: LabelTexts | None,
        free: Tensor | None,
        rng: np.random.Generator,
        *,
        text: bool = True,
        graph: GraphPart = "gale",
        mix: MixMode = "attention",
        dropout: float = 0.2,
        clamp_scale: bool = False,
        attention_sigmoid: bool = True,
        bias: float | None = None,
    ) -> None:
        super().__init__()
        orders = 0 if texts is None else texts.orders
        self.names = component_names(orders, text=text, graph=graph, free=free is not None)
        if not self.names:
            raise ValueError("a classifier of no component: labels have no text, and free vectors are off")
        self.labels, self.width, self.device = _place(texts, free)

        def block() -> EmbeddingBlock:
            return EmbeddingBlock(self.width, rng, dropout=dropout, clamp_scale=clamp_scale)

        self.texts = texts if self.names != ("free",) else None
        self.text = block() if "text" in self.names else None
        self.gale = nn.ModuleList([block() for name in self.names if name.startswith("gale")])
        self.gcn = nn.Parameter(xavier_matrix(self.width, self.width, rng)) if "gcn" in self.names else None
        self.bias = None if bias is None else nn.Parameter(torch.full((1,), bias))
        self.free = None if free is None else RowTable(free if bias is None else nn.functional.pad(free, (0, 1)))
        # One component needs no weight.
        self.mix = AttentionMix(
            len(self.names),
            self.width,
            rng,
            mode=mix if len(self.names) > 1 else "sum",
            dropout=dropout,
            sigmoid=attention_sigmoid,
        )
        self.to(self.device)

    def inputs(self, z_BD: Tensor) -> Tensor:
        """Document vectors as rows want them: with a trailing 1 where there is a bias."""
        return z_BD if self.bias is None else torch.cat([z_BD, z_BD.new_ones(len(z_BD), 1)], dim=1)

    def rows(self, labels: I32) -> Tensor:
        """(U, D), (U, D + 1) with `bias`: the composed rows of different `labels`, with gradients to all that is
        trained.
        """
        in_blocks = (
            self.training
            and self.device.type == "cpu"
            and len(labels) > _STEP_BLOCK
            and not isinstance(self.texts, TrainedTexts)
        )
        if not in_blocks:
            return self.composed(labels)[0]
        with ExitStack() as stack:
            for matrix in (module for module in self.modules() if isinstance(module, BoundedMatrix)):
                stack.enter_context(matrix.held())
            return torch.cat(
                [self.composed(labels[start : start + _STEP_BLOCK])[0] for start in range(0, len(labels), _STEP_BLOCK)]
            )

    def all_rows(self) -> Tensor:
        """As `rows`, for all labels."""
        return self.composed(None)[0]

    def composed(self, labels: I32 | None) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Rows, weights of the components (U, J), and the J components (U, D). None: all labels."""
        # Sums stay in float32: only products of the blocks and the attention are in bf16, and only while training.
        in_bf16 = self.training and fastest_products(self.device) == torch.bfloat16
        orders, own = [] if self.texts is None else self.texts.convolved(labels), self._free_rows(labels)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=in_bf16):
            parts = self._components(orders, own)
            rows, weights = self.mix(parts)
        rows = rows.float() if in_bf16 else rows
        if self.bias is not None:
            bias = self.bias.expand(len(rows), 1)
            rows = torch.cat([rows, bias if own is None else bias + own[:, self.width :]], dim=1)
        return rows, weights, parts

    def _free_rows(self, labels: I32 | None) -> Tensor | None:
        """(U, D), (U, D + 1) with `bias`."""
        if self.free is None:
            return None
        ids = np.arange(self.labels, dtype=np.int32) if labels is None else labels
        rows: Tensor = self.free(Bags.of_rows(sent(ids, self.device)))
        return rows

    def _components(self, orders: list[Tensor], own: Tensor | None) -> list[Tensor]:
        parts: list[Tensor] = []
        if self.text is not None:
            parts.append(self.text(orders[0]))
        parts += [block(order) for block, order in zip(self.gale, orders[1:], strict=False)]
        if self.gcn is not None:
            parts.append(torch.relu(nn.functional.linear(orders[1], self.gcn)))
        if "lightgcn" in self.names:
            parts.append(sum(orders[1:], start=orders[0]) / len(orders))
        if own is not None:
            parts.append(own[:, : self.width])
        return parts

    def materialised(self, block: int = _BLOCK) -> F32:
        """(L, D), (L, D + 1) with `bias`: plain rows, without dropout, as prediction needs them. The mode is put back
        afterwards.
        """
        rows = np.empty((self.labels, self.width + (self.bias is not None)), dtype=np.float32)
        for start, composed in self._blocks(block):
            rows[start : start + len(composed[0])] = composed[0].float().cpu().numpy()
        return rows

    def strengths(self, block: int = _BLOCK) -> tuple[F32, F32]:
        """Weight and length of every component of every label: two (L, J) arrays. Paper: ECLARE Fig. 9."""
        weights, lengths = (np.empty((self.labels, len(self.names)), dtype=np.float32) for _ in range(2))
        for start, (_, mixed, parts) in self._blocks(block):
            weights[start : start + len(mixed)] = mixed.float().cpu().numpy()
            lengths[start : start + len(mixed)] = (
                torch.stack([part.float().norm(dim=1) for part in parts], dim=1).cpu().numpy()
            )
        return weights, lengths

    def _blocks(self, block: int) -> Iterator[tuple[int, tuple[Tensor, Tensor, list[Tensor]]]]:
        """What `composed` gives, for one piece of the labels after the other, without dropout and gradients."""
        was_training = self.training
        self.eval()
        try:
            for start in range(0, self.labels, block):
                with torch.no_grad():
                    composed = self.composed(np.arange(start, min(start + block, self.labels), dtype=np.int32))
                yield start, composed
        finally:
            self.train(was_training)


def component_names(orders: int, *, text: bool, graph: GraphPart, free: bool) -> tuple[str, ...]:
    """Components in their order. orders: of the texts that are there (0: no text; 1: no graph)."""
    names = ["text"] if text and orders > 0 else []
    if orders > 1:
        names += (
            [f"gale{order}" for order in range(1, orders)] if graph == "gale" else [graph] if graph != "none" else []
        )
    return (*names, "free") if free else tuple(names)


def _place(texts: LabelTexts | None, free: Tensor | None) -> tuple[int, int, torch.device]:
    """(L, D, device)"""
    if texts is not None:
        return texts.labels, texts.width, texts.device
    assert free is not None
    return int(free.shape[0]), int(free.shape[1]), free.device
