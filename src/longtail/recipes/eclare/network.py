"""Classifiers that are composed of a label's text, its neighbours' texts and a free vector. Paper: ECLARE Sec. 3.3.

AttentionMix        several vectors per label become one
LabelTexts          texts of labels as vectors, as they are and summed over neighbours: G^k E Z for k = 0, 1, ...
LabelTextGraph      the classifiers
ComposedCandidates  how they are trained on positives and shortlisted negatives
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor, nn

from longtail.kernels.arrays import csr
from longtail.nn.batches import Bags, DeviceCsr, Documents, fastest_products, to_device
from longtail.nn.blocks import BoundedMatrix, ByteDropout, EmbeddingBlock, xavier_matrix
from longtail.nn.encoders import Encoder
from longtail.nn.restricted import CandidateLoss
from longtail.nn.row_tables import Convolution, LabelRows, RowTable, bag_sums
from longtail.recipes.eclare.settings import GraphPart, MixMode
from longtail.training.objectives import ModelAdam, prefixed, trained_state, training_vectors
from longtail.types import F32, I32, I64, Candidates, Csr


class AttentionMix(nn.Module):
    """w = sum_j alpha_j z_j over J components, with weights alpha by `mode`:

    attention: alpha = softmax(A [t(z_1); ...; t(z_J)]) per label, t(z) = sigmoid(T dropout(ReLU(z))); T and A have
        spectral norm 1. Paper: ECLARE Sec. 3.3.  `sigmoid=False` leaves it out of t, as the released code does.
    shared: alpha_j = sigmoid of one number per component for all labels (DECAF's way).
    sum, mean: alpha_j = 1 or 1 / J; nothing is trained.
    """

    def __init__(
        self,
        components: int,
        width: int,
        rng: np.random.Generator,
        *,
        mode: MixMode = "attention",
        dropout: float = 0.2,
        sigmoid: bool = True,
    ) -> None:
        super().__init__()
        self.components, self.width, self.mode, self.sigmoid = components, width, mode, sigmoid
        self.dropout = ByteDropout(dropout)
        if mode == "attention":
            self.transform = BoundedMatrix(xavier_matrix(width, width, rng), rng, mode="normalise")
            self.attend = BoundedMatrix(xavier_matrix(components, components * width, rng), rng, mode="normalise")
        elif mode == "shared":
            self.logits = nn.Parameter(torch.zeros(components))

    def forward(self, parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """parts: J tensors (U, D). Gives the mixed rows (U, D) and the weights (U, J)."""
        weights_UJ = self.weights(parts)
        mixed = weights_UJ[:, :1] * parts[0]
        for place in range(1, self.components):
            mixed = mixed + weights_UJ[:, place : place + 1] * parts[place]
        return mixed, weights_UJ

    def weights(self, parts: Sequence[Tensor]) -> Tensor:
        """(U, J)"""
        if len(parts) != self.components:
            raise ValueError(f"{len(parts)} components for a mix of {self.components}")
        if self.mode == "attention":
            return torch.softmax(self._logits(parts), dim=1)
        if self.mode == "shared":
            return self.logits.sigmoid().expand(len(parts[0]), -1)
        return parts[0].new_full((len(parts[0]), self.components), 1.0 if self.mode == "sum" else 1 / self.components)

    def _logits(self, parts: Sequence[Tensor]) -> Tensor:
        transform, attend = self.transform.bounded(), self.attend.bounded()
        logits: Tensor | None = None
        # One product per component, summed: the same as one product over their concatenation, without the copy.
        for part, columns in zip(parts, attend.chunk(self.components, dim=1), strict=True):
            turned = nn.functional.linear(self.dropout(torch.relu(part)), transform)
            seen = nn.functional.linear(turned.sigmoid() if self.sigmoid else turned, columns)
            logits = seen if logits is None else logits + seen
        assert logits is not None
        return logits


class LabelTexts(nn.Module):
    """L labels, vectors of width D, and as many orders as there are powers of the graph (0: the text itself) to give.

    looked_up: rows are ready, so that asking for a few at a time costs no more than asking for all.
    """

    labels: int
    width: int
    orders: int
    device: torch.device
    looked_up = False

    def convolved(self, labels: I32 | None) -> list[Tensor]:
        """For each order a (U, D) tensor: the rows of `labels`, in that order, or of all labels."""
        raise NotImplementedError


class FrozenTexts(LabelTexts):
    """Token vectors no longer change: every order was computed before, rows are only looked up."""

    looked_up = True

    def __init__(self, orders: Sequence[Tensor]) -> None:
        super().__init__()
        # Not buffers: what never changes need not be in a checkpoint.
        self._orders = [order.detach() for order in orders]
        self.labels, self.width = (int(n) for n in self._orders[0].shape)
        self.orders, self.device = len(self._orders), self._orders[0].device

    @classmethod
    def of(cls, table: Tensor, texts: Csr, graph: Csr | None, orders: int) -> FrozenTexts:
        """table: (V, D) token vectors E; texts: (L, V) rows Z; graph: (L, L), needed for orders beyond the first."""
        device = table.device
        found = [bag_sums(table, DeviceCsr(texts, device).rows(np.arange(texts.shape[0])))]
        for _ in range(1, orders):
            assert graph is not None, "texts of neighbours need a graph"
            found.append(Convolution(graph, device)(found[-1]))
        return cls(found)

    def convolved(self, labels: I32 | None) -> list[Tensor]:
        if labels is None:
            return self._orders
        at = to_device(labels, self.device)
        return [order.index_select(0, at) for order in self._orders]


class TrainedTexts(LabelTexts):
    """Token vectors are trained: sums are computed in every step, and gradients reach the table.

    texts: (L, V).  graph: (L, L), needed for orders beyond the first.
    """

    def __init__(self, table: RowTable, texts: Csr, graph: Csr | None, orders: int) -> None:
        super().__init__()
        self.table, self.orders, self.device = table, orders, table.weight.device
        self.labels, self.width = int(texts.shape[0]), int(table.weight.shape[1])
        self._texts, self._graph = DeviceCsr(texts, self.device), graph
        # For all labels at once: texts over the tokens that occur in them, so that gradients are sums of few rows,
        # not of all entries.
        tokens, places = np.unique(texts.indices, return_inverse=True)
        self._tokens = Bags.of_rows(to_device(tokens.astype(np.int32), self.device))
        self._sums = Convolution(
            csr(texts.data, places.astype(np.int32), texts.indptr, (self.labels, len(tokens))), self.device
        )
        self._neighbours = Convolution(graph, self.device) if graph is not None and orders > 1 else None

    def convolved(self, labels: I32 | None) -> list[Tensor]:
        if labels is not None:
            return self._of_some(labels.astype(np.int64))
        found = [self._sums(self.table(self._tokens))]
        for _ in range(1, self.orders):
            assert self._neighbours is not None
            found.append(self._neighbours(found[-1]))
        return found

    def _of_some(self, labels: I64) -> list[Tensor]:
        """Only the texts within reach of `labels` are summed."""
        graph = self._graph
        reach = [np.unique(labels)]  # reach[n]: what n steps in the graph lead to, ascending
        for _ in range(1, self.orders):
            assert graph is not None
            reach.append(np.union1d(reach[-1], graph[reach[-1]].indices))
        values: Tensor = self.table(self._texts.rows(reach[-1]))
        found = [self._chosen(values, reach[-1], labels)]
        for inner, outer in zip(reach[-2::-1], reach[:0:-1], strict=True):
            assert graph is not None
            values = Convolution(graph[inner][:, outer].tocsr(), self.device)(values)
            found.append(self._chosen(values, inner, labels))
        return found

    def _chosen(self, values: Tensor, names: I64, labels: I64) -> Tensor:
        """The rows of `labels` out of `values`, whose rows are those of `names`."""
        if np.array_equal(names, labels):
            return values
        # A product with a 0/1 matrix: its gradient is a sum over bags, the same bits for any number of threads.
        count = len(labels)
        return Convolution(
            csr(np.ones(count, np.float32), np.searchsorted(names, labels), np.arange(count + 1), (count, len(names))),
            self.device,
        )(values)


# Rows composed at a time when all are: a block of activations stays small beside the rows.
_BLOCK = 16_384
# The same in a step on a CPU. Tensors of these (8 MB of 512 numbers) use memory again that was just freed; those of
# all labels come from the system, which clears every page of them, in every step anew.
_STEP_BLOCK = 4096


class LabelTextGraph(LabelRows):
    """w_l = a mix (`AttentionMix`) of components, those that are there of

    text: E_L(E z_l), an `EmbeddingBlock` of the label's text (LTE).
    graph, by `graph`: gale: E_k((G^k E Z)_l), a block for each order k = 1, 2, ... of the texts (GALE);
        gcn: ReLU(Theta (G E Z)_l); lightgcn: the mean of (G^k E Z)_l over k = 0, 1, ..., nothing trained.
    free: a vector of its own per label (refinement), trained by rows.

    texts: where E Z and its convolutions come from; None: labels have no text, and only free vectors are left.
    free: (L, D), what free vectors start from; None: there are none.
    bias: None, or what the bias of every label starts from: rows then have one number more, the weight of a feature
        that is always 1 (`inputs` adds it). It is one trained number for all labels, and where there are free vectors
        one per label besides.
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
        self.has_bias = bias is not None
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

    def rows(self, labels: I32) -> Tensor:
        """(U, D), (U, D + 1) with `bias`: the composed rows of different `labels`, with gradients to all that is
        trained.
        """
        ready = self.texts is None or self.texts.looked_up
        if not (self.training and self.device.type == "cpu" and len(labels) > _STEP_BLOCK and ready):
            return self.composed(labels)[0]
        with ExitStack() as stack:
            for matrix in (module for module in self.modules() if isinstance(module, BoundedMatrix)):
                stack.enter_context(matrix.held())
            return torch.cat(
                [self.composed(labels[start : start + _STEP_BLOCK])[0] for start in range(0, len(labels), _STEP_BLOCK)]
            )

    def all_rows(self) -> Tensor:
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
        rows: Tensor = self.free(Bags.of_rows(to_device(ids, self.device)))
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


class ComposedCandidates:
    """Binary cross-entropy over the candidates of each document, for composed classifier rows.

    Each label that the batch names is composed once, however many documents name it.
    candidates: as for `training.objectives.OwnCandidates`.
    """

    def __init__(
        self,
        encoder: Encoder,
        classifier: LabelTextGraph,
        documents: Documents,
        candidates: Callable[[I64, np.random.Generator], Candidates],
    ) -> None:
        self.encoder, self.classifier, self.documents, self.candidates = encoder, classifier, documents, candidates
        self.model = nn.ModuleDict({"encoder": encoder, "classifier": classifier}).train()
        self.adam = ModelAdam(self.model)
        self.loss = CandidateLoss(classifier.labels)

    @property
    def size(self) -> int:
        return len(self.documents)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        named = self.loss.named(self.candidates(rows, rng))
        if not len(named.labels):
            return torch.zeros((), device=self.documents.device)
        x_BD = self.classifier.inputs(training_vectors(self.encoder, self.documents, rows))
        loss = self.loss(x_BD, self.classifier.rows(named.labels), named)
        torch.autograd.backward(loss)
        self.adam.step(rate)
        return loss.detach()

    def state(self) -> dict[str, Tensor]:
        return trained_state(self.model) | prefixed("adam", self.adam.state())
