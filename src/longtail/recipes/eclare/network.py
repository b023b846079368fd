"""Classifiers that are composed of a label's text, its neighbours' texts and a free vector. Paper: ECLARE Sec. 3.3.

DocumentBlock       documents through the block that label texts go through
AttentionMix        several vectors per label become one
LabelTexts          texts of labels as vectors, as they are and summed over neighbours: G^k E Z for k = 0, 1, ...
LabelTextGraph      the classifiers
CandidateLoss       the loss of composed rows over each document's own candidates
ComposedCandidates  how they are trained on positives and shortlisted negatives
Composer            makes them as settings and data ask: of clusters in I and II, of labels in IV
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.errors import ConfigError
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import csr
from longtail.models.encoders import EmbeddingMap
from longtail.nn.batches import Bags, DeviceCsr, Documents, fastest_products, to_device, to_numpy, to_tensor
from longtail.nn.blocks import Block, BoundedMatrix, ByteDropout, EmbeddingBlock, uniform, xavier_matrix
from longtail.nn.encoders import Encoder
from longtail.nn.restricted import CandidateRows, CompiledPass, loss_and_gradients, products_type, real_ids
from longtail.nn.row_tables import Convolution, LabelRows, RowTable, bag_sums, with_gradients
from longtail.nn.shards import Shard
from longtail.recipes.eclare.settings import CPU_BATCH, CompositionConfig, EclareStages, GraphPart, MixMode
from longtail.recipes.eclare.stages import has_edges
from longtail.search.cluster import meta_labels
from longtail.search.packed import Rows
from longtail.search.shortlist import cluster_graph
from longtail.training.objectives import ModelAdam, prefixed, trained_state, training_vectors
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I32, I64, Candidates, Csr, TopK

if TYPE_CHECKING:
    from longtail.nn.kernels import RowGroups


class DocumentBlock(Block):
    """x = dropout(ReLU(E(a))): the document side of an `EmbeddingBlock`. Paper: ECLARE Sec. 3.1."""

    def __init__(
        self, width: int, rng: np.random.Generator, *, dropout: float = 0.2, clamp_scale: bool = False
    ) -> None:
        super().__init__()
        self.block = EmbeddingBlock(width, rng, dropout=dropout, clamp_scale=clamp_scale)
        self.dropout = ByteDropout(dropout)

    def forward(self, a_BD: Tensor) -> Tensor:
        x_BD: Tensor = self.dropout(torch.relu(self.block(a_BD)))
        return x_BD

    def frozen(self) -> EmbeddingMap:
        return EmbeddingMap(to_numpy(self.block.frozen_weight()), float(self.block.effective_scale().detach()))


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
    """L labels, vectors of width D, and as many orders as the powers of the graph to give (0: the text itself)."""

    labels: int
    width: int
    orders: int
    device: torch.device

    def all_orders(self) -> list[Tensor]:
        """For each order a (L, D) tensor."""
        raise NotImplementedError

    def convolved(self, labels: I32 | None) -> list[Tensor]:
        """For each order a (U, D) tensor: the rows of `labels`, in that order, or of all labels."""
        orders = self.all_orders()
        if labels is None:
            return orders
        at = to_device(labels, self.device)
        return [order.index_select(0, at) for order in orders]


class FrozenTexts(LabelTexts):
    """Token vectors no longer change: every order was computed before, rows are only looked up."""

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

    def all_orders(self) -> list[Tensor]:
        return self._orders


class TrainedTexts(LabelTexts):
    """Token vectors are trained: sums over all labels are computed in every step, and gradients reach the table.

    texts: (L, V).  graph: (L, L), needed for orders beyond the first.
    """

    def __init__(self, table: RowTable, texts: Csr, graph: Csr | None, orders: int) -> None:
        super().__init__()
        self.table, self.orders, self.device = table, orders, table.weight.device
        self.labels, self.width = int(texts.shape[0]), int(table.weight.shape[1])
        # Over the tokens that occur in texts, so that gradients are sums of few rows, not of all entries.
        tokens, places = np.unique(texts.indices, return_inverse=True)
        self._tokens = Bags.of_rows(to_device(tokens.astype(np.int32), self.device))
        self._sums = Convolution(
            csr(texts.data, places.astype(np.int32), texts.indptr, (self.labels, len(tokens))), self.device
        )
        self._neighbours = Convolution(graph, self.device) if graph is not None and orders > 1 else None

    def all_orders(self) -> list[Tensor]:
        found = [self._sums(self.table(self._tokens))]
        for _ in range(1, self.orders):
            assert self._neighbours is not None, "texts of neighbours need a graph"
            found.append(self._neighbours(found[-1]))
        return found


# Rows composed at a time when all are: a block of activations stays small beside the rows.
_BLOCK = 16_384
# The same in a step on a CPU. Tensors of these (8 MB of 512 numbers) use memory again that was just freed; those of
# all labels come from the system, which clears every page of them, in every step anew.
_STEP_BLOCK = 4096


class LabelTextGraph(LabelRows):
    """w_l = a mix (`AttentionMix`) of components, those that are there of

    text: E_L(E z_l), an `EmbeddingBlock` of the label's text (LTE).
    graph, by `config.graph`: gale: E_k((G^k E Z)_l), a block for each order k = 1, 2, ... of the texts (GALE);
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
        config: CompositionConfig | None = None,
        *,
        dropout: float = 0.2,
        bias: float | None = None,
    ) -> None:
        super().__init__()
        c, orders = config or CompositionConfig(), 0 if texts is None else texts.orders
        self.names = component_names(orders, text=c.text, graph=c.graph, free=free is not None)
        if not self.names:
            raise ValueError("a classifier of no component: labels have no text, and free vectors are off")
        self.labels, self.width, self.device = _place(texts, free)

        def block() -> EmbeddingBlock:
            return EmbeddingBlock(self.width, rng, dropout=dropout, clamp_scale=c.clamp_scale)

        self.texts = texts if self.names != ("free",) else None
        self.text = block() if "text" in self.names else None
        self.gale = nn.ModuleList([block() for name in self.names if name.startswith("gale")])
        self.gcn = nn.Parameter(xavier_matrix(self.width, self.width, rng)) if "gcn" in self.names else None
        self.has_bias = bias is not None
        self.bias = None if bias is None else nn.Parameter(torch.full((1,), bias))
        self.free = None if free is None else RowTable(free if bias is None else nn.functional.pad(free, (0, 1)))
        # One component needs no weight.
        mode: MixMode = c.mix if len(self.names) > 1 else "sum"
        self.mix = AttentionMix(
            len(self.names), self.width, rng, mode=mode, dropout=dropout, sigmoid=c.attention_sigmoid
        )
        self.to(self.device)

    def rows(self, labels: I32) -> Tensor:
        """(U, D), (U, D + 1) with `bias`: composed rows of different `labels`, with gradients to what is trained."""
        if not (self.training and self.device.type == "cpu" and len(labels) > _STEP_BLOCK):
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
        """(L, D), (L, D + 1) with `bias`: plain rows, without dropout, as prediction needs them."""
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


@dataclass(frozen=True)
class NamedLabels:
    """The candidates of a batch by the labels that they name.

    groups: entries of the flat (B, C) candidates grouped by label; its `rows` are the labels, (U,) int32, ascending.
    shape: (B, C).  targets: (B, C).  entries: that are no padding, those of labels of other processes among them.
    """

    groups: RowGroups
    shape: tuple[int, int]
    targets: F32
    entries: int

    @property
    def labels(self) -> I32:
        return self.groups.rows

    def places(self) -> I32:
        """(B, C): which of `labels` a candidate is, -1 at padding."""
        places = np.full(self.shape, TopK.PAD, dtype=np.int32)
        places.reshape(-1)[self.groups.entries] = np.repeat(
            np.arange(len(self.labels), dtype=np.int32), np.diff(self.groups.starts)
        )
        return places


class CandidateLoss:
    """Binary cross-entropy over candidates for rows that are the result of a computation: gradients flow into them.

        named = loss.named(candidates)
        value = loss(z_BD, rows_of(named.labels), named)

    compute: as for `RestrictedTrainer`. reference: torch's way on a CPU too (the oracle).
    """

    def __init__(
        self,
        labels: int,
        *,
        compute: torch.dtype | None = None,
        reference: bool = False,
        shard: Shard | None = None,
    ) -> None:
        self.compute, self.reference, self.shard = compute, reference, shard or Shard(labels)
        self._slots: NDArray[np.int32] = np.zeros(self.shard.count, dtype=np.int32)
        self._pass = CompiledPass()

    def named(self, candidates: Candidates) -> NamedLabels:
        from longtail.nn.kernels import grouped_by_row

        own = self.shard.places(real_ids(candidates))
        groups = grouped_by_row(own.ravel(), self._slots)
        entries = int(np.count_nonzero(candidates.mask))
        return NamedLabels(groups, (own.shape[0], own.shape[1]), candidates.targets, entries)

    def __call__(self, z_BD: Tensor, rows_UD: Tensor, named: NamedLabels) -> Tensor:
        """The mean over real entries, of which there must be one. rows_UD: a row for each of `named.labels`."""
        return with_gradients(lambda: self.loss_and_gradients(z_BD, rows_UD, named), z_BD, rows_UD)

    def loss_and_gradients(self, z_BD: Tensor, rows_UD: Tensor, named: NamedLabels) -> tuple[Tensor, Tensor, Tensor]:
        """The loss with its gradients to documents (B, D) and rows (U, D); zero where no label is one of ours."""
        if not len(named.labels):
            return z_BD.new_zeros(()), torch.zeros_like(z_BD), torch.zeros_like(rows_UD)
        if z_BD.device.type == "cpu" and not self.reference:
            gradients = torch.empty_like(rows_UD)
            table, named_rows = rows_UD.detach().contiguous().numpy(), np.arange(len(rows_UD), dtype=np.int32)
            rows = CandidateRows(table, None, None, None, gradients.numpy(), named_rows)
            return (*self._pass(z_BD.detach(), rows, named.groups, named.targets, named.entries), gradients)
        places = to_device(named.places(), z_BD.device).long()
        share = 1 / max(named.entries, 1)
        compute = self.compute or products_type(z_BD)
        return loss_and_gradients(
            z_BD.detach(), rows_UD.detach(), places.clamp(min=0), places >= 0, named.targets, share, compute
        )


class ComposedCandidates:
    """Binary cross-entropy over the candidates of each document, for composed classifier rows.

    Each label that the batch names is composed once, however many documents name it.
    candidates: as for `training.objectives.OwnCandidates`.  factors: of rates, as for `AllTargets`.

    shard: which labels the classifier has, where they are split over processes. Each of these encodes the whole batch,
    alike, and composes its own labels; what labels have in common learns from the gradients of all. Dropout of labels
    has a stream of its own for each process then, so it is another than with one.
    """

    def __init__(
        self,
        encoder: Encoder,
        classifier: LabelTextGraph,
        documents: Documents,
        candidates: Callable[[I64, np.random.Generator], Candidates],
        shard: Shard | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self.encoder, self.classifier, self.documents, self.candidates = encoder, classifier, documents, candidates
        self.shard = shard or Shard(classifier.labels)
        self.model = nn.ModuleDict({"encoder": encoder, "classifier": classifier}).train()
        self.adam = ModelAdam(self.model, factors)
        self.loss = CandidateLoss(self.shard.labels, shard=self.shard)

    @property
    def size(self) -> int:
        return len(self.documents)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        named = self.loss.named(self.candidates(rows, rng))
        if not named.entries:
            return torch.zeros((), device=self.documents.device)
        x_BD = self.classifier.inputs(training_vectors(self.encoder, self.documents, rows))
        with self._dropout_of_labels():
            rows_UD = self.classifier.rows(named.labels)  # none, where no candidate is a label of this process
        loss, of_documents, of_rows = self.loss.loss_and_gradients(x_BD, rows_UD, named)
        self.shard.summed_together([of_documents, loss], "documents")
        wanted = [(one, gradient) for one, gradient in ((x_BD, of_documents), (rows_UD, of_rows)) if one.requires_grad]
        torch.autograd.backward([one for one, _ in wanted], [gradient for _, gradient in wanted])
        in_common = (p.grad for name, p in self.adam.dense.items() if name.startswith("classifier."))
        self.shard.summed_together([gradient for gradient in in_common if gradient is not None], "classifier")
        self.adam.step(rate)
        return loss

    @contextmanager
    def _dropout_of_labels(self) -> Iterator[None]:
        """Processes compose different numbers of labels; what they draw for documents must stay the same."""
        if self.shard.processes == 1:
            yield
            return
        seed, device = int(torch.randint(2**62, ())), self.documents.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed + self.shard.rank)
            yield

    def state(self) -> dict[str, Tensor]:
        return trained_state(self.model) | prefixed("adam", self.adam.state())

    def split_state(self) -> frozenset[str]:
        own = "classifier.free"
        return frozenset({f"{own}.weight", f"adam.{own}.first", f"adam.{own}.second"})


# Numbers that the gradients of a composed row need for each of its own, by measurement.
_NUMBERS_PER_COMPOSED = 64


def words_of(data: TrainingSet) -> Csr:
    if data.documents.sparse is None:
        raise ConfigError(
            "eclare reads words, but the data came with dense vectors", "use recipe astec, or features.source=text"
        )
    return data.documents.sparse


def has_text(data: TrainingSet) -> bool:
    return data.label_texts is not None and data.label_texts.sparse is not None and data.label_texts.sparse.nnz > 0


def label_words(data: TrainingSet) -> Csr:
    assert data.label_texts is not None
    return data.label_texts.sparse


@dataclass(frozen=True)
class Composer:
    """Makes the networks of a training. graph: (L, L), of labels."""

    config: EclareStages
    data: TrainingSet
    graph: Csr
    run: Run

    def rate_factors(self) -> dict[str, float]:
        """Of what is not trained at the common rate."""
        return {"classifier.mix.": self.config.composition.mix_rate}

    @property
    def orders(self) -> int:
        """How many powers of the graph, the zeroth among them, are applied to label texts; 0 without text."""
        c = self.config
        if not has_text(self.data):
            return 0
        convolves = has_edges(self.graph) and (c.composition.graph != "none" or c.transfer.start == "graph")
        return 1 + (c.composition.order if convolves else 0)

    def reads_text(self, orders: int) -> bool:
        """Whether some component of a classifier comes from texts."""
        c = self.config.composition
        return bool(component_names(orders, text=c.text, graph=c.graph, free=False))

    def document_block(self, name: str) -> DocumentBlock:
        """name: of the random numbers, as everywhere here."""
        c = self.config
        return DocumentBlock(
            c.surrogate.width, self.run.rng(name), dropout=c.training.dropout, clamp_scale=c.composition.clamp_scale
        ).to(self.run.device)

    # ---- clusters ----

    def first_heads(self, table: RowTable, clusters: I32) -> LabelTextGraph:
        """Classifiers of clusters whose texts train the token vectors `table`; free vectors only where no text is."""
        share = self.cluster_share(clusters)
        if not self.reads_text(self.orders):
            return self.classifiers(None, self.free_start([], self.n_clusters, "heads start"), "heads", share)
        texts = TrainedTexts(table, *self.cluster_texts(clusters), self.orders)
        return self.classifiers(texts, None, "heads", share)

    def second_heads(self, table: Rows, clusters: I32) -> LabelTextGraph:
        """Classifiers of clusters from token vectors that stay as they are, with free vectors."""
        texts = self.frozen_texts(table, *self.cluster_texts(clusters)) if self.orders else None
        free = self.free_vectors(texts, self.n_clusters, "heads start of II")
        return self.classifiers(texts, free, "heads of II", self.cluster_share(clusters))

    @property
    def n_clusters(self) -> int:
        return self.config.n_clusters(self.data.n_labels)

    def cluster_texts(self, clusters: I32) -> tuple[Csr, Csr]:
        """(K, V) the texts of clusters, sums of their labels' as unit rows, and (K, K) the graph of clusters."""
        n, n_labels = self.n_clusters, self.data.n_labels
        members = csr(np.ones(n_labels, np.float32), clusters, np.arange(n_labels + 1), (n_labels, n))
        texts = unit_rows((members.T.tocsr() @ label_words(self.data)).tocsr())
        return texts, cluster_graph(self.graph, clusters, n, "both")

    def cluster_share(self, clusters: I32) -> float:
        """The share of (document, cluster) pairs that are true."""
        pairs = meta_labels(self.data.targets, clusters, self.n_clusters).nnz
        return float(pairs / (self.n_clusters * self.data.n_documents))

    # ---- labels ----

    def label_texts(self, table: Rows) -> FrozenTexts:
        """Label texts and their convolutions by token vectors that stay as they are."""
        return self.frozen_texts(table, label_words(self.data), self.graph)

    def label_classifiers(self, texts: FrozenTexts | None, negatives: int, shard: Shard) -> LabelTextGraph:
        """negatives: per document, beside which its labels stand.  shard, texts: the labels of this process."""
        per_document = self.data.targets.nnz / self.data.n_documents
        free = self.free_vectors(texts, self.data.n_labels, "free vectors", shard)
        return self.classifiers(texts, free, "classifier", per_document / (per_document + negatives))

    # ---- both ----

    def frozen_texts(self, table: Rows, texts: Csr, graph: Csr) -> FrozenTexts:
        return FrozenTexts.of(to_tensor(table[:], self.run.device), texts, graph, self.orders)

    def free_vectors(
        self, texts: FrozenTexts | None, rows: int, name: str, shard: Shard | None = None
    ) -> Tensor | None:
        """What free vectors start from, None if there are none. Where no component reads text they are all there is."""
        orders = [] if texts is None else texts.all_orders()
        if not self.config.composition.free and self.reads_text(len(orders)):
            return None
        return self.free_start(orders, rows, name, shard)

    def free_start(self, orders: Sequence[Tensor], rows: int, name: str, shard: Shard | None = None) -> Tensor:
        """(rows, D), those of `shard`. Without a graph a label's neighbours are itself; without text it is chance."""
        start, width = self.config.transfer.start, self.config.surrogate.width
        if start == "random" or not orders:
            drawn = uniform((rows, width), np.sqrt(6 / (rows + width)), self.run.rng(name))
            return (drawn if shard is None else shard.own(drawn).contiguous()).to(self.run.device)
        return orders[0 if start == "text" else min(1, len(orders) - 1)].clone()

    def classifiers(self, texts: LabelTexts | None, free: Tensor | None, name: str, share: float) -> LabelTextGraph:
        """share: of scores that are of true pairs, whose log-odds biases start from."""
        c = self.config.composition
        bias = math.log(share / max(1 - share, share)) if c.bias else None
        return LabelTextGraph(texts, free, self.run.rng(name), c, dropout=self.config.training.dropout, bias=bias)


def peak_memory(data: TrainingSet, config: EclareStages) -> int:
    """Bytes of stage I or stage IV, whichever are more, beside convolved texts, document vectors and negatives.

    I: tables with their two moments, the words of label texts as they are looked at (values, gradients, steps),
        features.
    IV: the rows that a step composes, with all that their gradients need.
    """
    c, width, clusters = config, config.surrogate.width, config.n_clusters(data.n_labels)
    shortlist = -(-data.n_labels // clusters) * c.beam_size(data.n_labels)
    words, entries = np.zeros(0, np.int32), data.documents.sparse.nnz if data.documents.sparse is not None else 0
    if has_text(data):
        words, entries = np.unique(label_words(data).indices), entries + label_words(data).nnz
    tables = 3 * 4 * width * (data.featurizer.width + len(words) + clusters + data.n_labels)
    texts = 4 * width * (1 + c.composition.order) * data.n_labels
    per_document = 4 * (2 * width + (c.classify.count or shortlist))
    composed = min(data.n_labels, CPU_BATCH * (shortlist + c.classify.positives))
    both = texts + per_document * data.n_documents + 2**28
    return both + max(tables + 3 * 8 * entries, _NUMBERS_PER_COMPOSED * 4 * width * composed)
