"""One training step of `direct`: what documents are trained towards, the rows of labels, and the step against them all.

Documents are trained towards likely labels that they lack, too, and towards anchors of graphs. Anchors are labels for
the time of a training. This is RAMEN's idea for trainings that score every label in every step: documents that are
linked to the same anchors get similar vectors, and nothing of it is left at prediction, because the rows of anchors are
left out of the model. Differs from RAMEN: no triplets, no bandit, no completion, no pruning: an anchor is scored
against all documents as a label is, and one that explains nothing learns a row that disturbs nobody else's.

Rows are the sum of text and a trusted free vector. Text is a label's own (`TextRows`). The sum is made in torch, which
is the oracle and runs on a GPU, and by kernels of one pass each where a CPU multiplies bf16 (`kernels`): there the
products are so fast that passes over the rows take most of a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from longtail.graph.anchor_graph import Side, anchor_graphs
from longtail.graph.ops import scale_rows_to_sum_one
from longtail.nn.batches import COLUMN_MULTIPLE, DeviceCsr, Documents, TensorBatch, fastest_products, to_device
from longtail.nn.encoders import Encoder, GivenView
from longtail.nn.full import BlockLearner, FixedTable, Float32Table, Pairs, ReadTable, Sweep, by_gradient
from longtail.nn.row_tables import AdamFactors, Convolution, RowAdam, RowTable
from longtail.nn.shards import Shard
from longtail.recipes.direct.settings import AnchorsConfig
from longtail.recipes.direct.several import share_gradients, with_dropout_of_part
from longtail.training.objectives import ExtraLoss, ModelAdam, batch_vectors, extra_total, prefixed, trained_state
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import I32, I64, Csr

# ---- what documents are trained towards ----


def smoothed_targets(targets: Csr, graph: Csr, most: float) -> Csr:
    """(N, L): 1 where a label is given; elsewhere up to `most`, by how close it is to the given ones in the label
    graph.

    A label that gets all the weight of one given label's row of the graph (l1, itself included) would have `most`.
    """
    near = (targets @ scale_rows_to_sum_one(graph)).tocsr()
    near.data = np.minimum(near.data * np.float32(most), np.float32(most))
    soft = (targets + near).tocsr()
    soft.data = np.where(soft.data >= 1, np.float32(1), soft.data).astype(np.float32)
    soft.sort_indices()
    return soft


@dataclass(frozen=True)
class AnchorColumns:
    """M anchors of all graphs of a data set, side by side.

    texts: (M, V) CSR, their titles in the vocabulary of the documents.  documents: (N, M) CSR of ones, links.
    own_documents: (N, M) CSR of ones, pairs where both are the same thing: neither linked nor unlike.
    tokens: (M, T), the titles as a transformer reads them; None where none does.
    """

    texts: Csr
    documents: Csr
    own_documents: Csr
    tokens: I32 | None = None

    @property
    def count(self) -> int:
        return int(self.texts.shape[0])


def anchor_columns(data: TrainingSet, config: AnchorsConfig) -> AnchorColumns | None:
    """None where the settings do not ask for anchors, or where none has enough links and a known word."""
    from scipy.sparse import csr_array, hstack, vstack

    if not config.weight or data.documents.sparse is None:
        return None
    texts, documents, tokens = [], [], []
    for graph in anchor_graphs(data.graphs):
        anchors = data.graphs[graph.name].anchors
        assert anchors is not None, "anchor_graphs gives graphs with anchors only"
        read = data.featurizer.batch_of_texts(anchors.titles())
        words: Csr = read.sparse
        items: dict[Side, int] = {"documents": data.n_documents, "labels": data.n_labels}
        links = [
            graph.sides.get(side, csr_array((rows, len(anchors)), dtype=np.float32)) for side, rows in items.items()
        ]
        degree = sum(np.bincount(side.indices, minlength=len(anchors)) for side in links)
        kept = np.flatnonzero((degree >= config.fewest) & (np.diff(words.indptr) > 0))
        texts.append(words[kept])
        documents.append(links[0][:, kept])
        tokens += [] if read.tokens is None else [read.tokens[kept]]
    if not sum(part.shape[0] for part in texts):
        return None
    of_anchors = vstack(texts, format="csr")
    same = same_texts(data.documents.sparse, of_anchors)
    whole = np.concatenate(tokens) if tokens else None
    return AnchorColumns(of_anchors, hstack(documents, format="csr"), same, whole)


def anchor_weights(labels: int, anchors: AnchorColumns | None, weight: float, device: str) -> Tensor | None:
    """(L + M,): what a positive of each label counts, anchors behind; None: all the same."""
    if anchors is None:
        return None
    return torch.cat([torch.ones(labels), torch.full((anchors.count,), weight)]).to(device)


def same_texts(left: Csr, right: Csr) -> Csr:
    """(rows of left, rows of right) CSR of ones where both have the same features, and any; how often is not asked."""
    from scipy.sparse import csr_array

    by_features: dict[bytes, list[int]] = {}
    for row in range(right.shape[0]):
        by_features.setdefault(_features(right, row), []).append(row)
    by_features.pop(b"", None)
    pairs = [(row, twin) for row in range(left.shape[0]) for twin in by_features.get(_features(left, row), ())]
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return csr_array((np.ones(len(pairs), np.float32), (rows, columns)), shape=(left.shape[0], right.shape[0]))


def _features(matrix: Csr, row: int) -> bytes:
    return bytes(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].astype(np.int64).tobytes())


def marked_targets(
    targets: Csr, masked: Csr | None, device: torch.device | str, shard: Shard | None = None
) -> DeviceCsr:
    """(N, L): the target of every pair that is not a plain negative; where one is hidden, minus how much of it is (see
    `Pairs.marked`): -1 if it is neither right nor wrong.

    targets, masked: (N, L) CSR, the latter from 0 to 1; a pair that is in both is masked.
    shard: which labels are wanted; None: all.
    """
    if masked is not None:
        targets = targets - targets.multiply(masked != 0) - masked
        targets.eliminate_zeros()
    if shard is not None and shard.processes > 1:
        targets = targets.tocsc()[:, shard.rank :: shard.processes]
    return DeviceCsr(targets.tocsr(), device)


def pairs_as_matrix(pairs: I64, shape: tuple[int, int]) -> Csr:
    """(N, L) CSR of ones at `pairs`, (P, 2); one that is named twice counts once."""
    from scipy.sparse import csr_array

    matrix = csr_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


# ---- the rows of labels ----


@dataclass(frozen=True)
class TextEntries:
    """Z, (l, V), of the labels of this process, as all models read it that are trained side by side.

    tokens: those that occur in texts, ascending.  entries: Z of these columns alone.  sums: products with it.
    """

    tokens: Tensor
    entries: Csr
    sums: Convolution

    @staticmethod
    def of(texts: Csr, device: torch.device | str, shard: Shard) -> TextEntries:
        """texts: of the labels of all processes."""
        used, compact = used_columns(texts)
        entries = shard.own(compact)
        return TextEntries(to_device(used, device), entries, Convolution(entries, device))


class ComposedTexts(nn.Module):
    """What T = g (Z E + U P) M is made of, for all labels: a trained gain g and a trained matrix M.

    table: token vectors E, (V, D), shared with the encoder of documents.  texts: Z, (L, V) CSR, or what another model
        has made of it.
    view: P, shared as well, with the texts' own sums of given vectors, U (L, H); None without one.
    mapped: whether there is an M, which is at first the identity.
    compute: type of the products with M; they are as large as those of a step.
    shard: which labels the rows are for; texts and U are of all. None: of all.
    Only tokens that occur in texts are read, and only their gradients exist: `tokens`, ascending.
    """

    def __init__(
        self,
        table: RowTable,
        texts: Csr | TextEntries,
        *,
        mapped: bool = False,
        compute: torch.dtype = torch.float32,
        view: tuple[GivenView, Tensor] | None = None,
        shard: Shard | None = None,
    ) -> None:
        super().__init__()
        self.table, self.compute = table, compute
        device, self.width = table.weight.device, int(table.weight.shape[1])
        self.shard = shard or Shard(texts.entries.shape[0] if isinstance(texts, TextEntries) else texts.shape[0])
        self.read = texts if isinstance(texts, TextEntries) else TextEntries.of(texts, device, self.shard)
        self.tokens, self.sums = self.read.tokens, self.read.sums
        self.view: GivenView | None = None if view is None else view[0]
        self.given = torch.empty(0, 0) if view is None else self.shard.own(view[1])
        self.gain = nn.Parameter(torch.ones(1, device=device))
        self.map = nn.Parameter(torch.eye(self.width, device=device)) if mapped else None


class TextRows(ComposedTexts):
    """T for all labels at once.  Arguments: those of `ComposedTexts`."""

    def __init__(self, table: RowTable, texts: Csr | TextEntries, **more: Any) -> None:
        super().__init__(table, texts, **more)
        # What the gain multiplies, of the last `forward`; a buffer, so that a resumed training has it.
        self.plain: Tensor
        self.register_buffer("plain", torch.zeros(self.shard.count, self.width, device=table.weight.device))

    @torch.no_grad()
    def forward(self) -> Tensor:
        """(L, D), without gradients: `gradient` gives them."""
        self.plain.copy_(self.sums_of_vectors())
        return self.finished()

    @torch.no_grad()
    def finished(self) -> Tensor:
        """(L, D), from the sums of vectors in `plain`, which get those of a view."""
        if self.view is not None:
            self.plain += self._product(self.given, self.view.map)
        scaled = self.gain[0] * self.plain
        return scaled if self.map is None else self._product(scaled, self.map)

    @torch.no_grad()
    def gradient(self, gradient_LD: Tensor) -> Tensor:
        """(tokens, D): the gradient to the vectors of `tokens`, of a gradient to the last `forward`.

        Those of the gain and of M are left at them. T is linear in the vectors, so nothing has to be computed again.
        """
        return self.sums.back(self.gradient_to_sums(gradient_LD))

    @torch.no_grad()
    def gradient_to_sums(self, gradient_LD: Tensor) -> Tensor:
        if self.map is not None:
            self.map.grad = self._product((self.gain[0] * self.plain).T, gradient_LD)
            gradient_LD = self._product(gradient_LD, self.map.T)
        self.gain.grad = (gradient_LD * self.plain).sum()[None]
        gradient_LD = self.gain[0] * gradient_LD
        if self.view is not None:
            of_map = self._product(self.given.T, gradient_LD)
            self.view.map.grad = of_map if self.view.map.grad is None else self.view.map.grad + of_map
        return gradient_LD

    def sums_of_vectors(self) -> Tensor:
        """(L, D): Z E."""
        return self.sums(self.table.weight.index_select(0, self.tokens))

    def teach(self, gradient_LD: Tensor, adam: RowAdam, rate: float) -> None:
        """Token vectors learn from a gradient to the last `forward`; those of the others are left at them."""
        adam.update_rows(self.tokens, self.shard.summed(self.gradient(gradient_LD), "label texts"), rate)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        return (left.to(self.compute) @ right.to(self.compute)).float()


def used_columns(matrix: Csr) -> tuple[I64, Csr]:
    """The columns with any entry, ascending, and the matrix of these alone."""
    used = np.flatnonzero(np.bincount(matrix.indices, minlength=matrix.shape[1]))
    places = np.zeros(matrix.shape[1], np.int32)
    places[used] = np.arange(len(used), dtype=np.int32)
    compact = type(matrix)((matrix.data, places[matrix.indices], matrix.indptr), shape=(matrix.shape[0], len(used)))
    return used, compact


# Rows of a block are a whole multiple of these (see `batches.padded`).
_ROW_MULTIPLE = 8


class ComposedRows:
    """Row of label l: (text_l + trust_l * free_l, bias_l).  free: (L, D + 1), the last column the bias.  trust: (L, 1).

    text: (L, D), or None where labels have no text; who changes it owns it.
    text_gradient: the gradient to texts, summed up until it is taken.
    """

    def __init__(self, free: Tensor, trust: Tensor, *, text: bool) -> None:
        self.free, self.trust = self.table_of(free), trust
        self.labels, self.width = len(free), free.shape[1] - 1
        self.text = torch.zeros(self.labels, self.width, device=free.device) if text else None
        self.text_gradient = torch.zeros(self.labels, self.width, device=free.device) if text else None
        self._rows = torch.empty_like(free)

    def table_of(self, free: Tensor) -> Float32Table:
        return Float32Table(free)

    def rows(self) -> Tensor:
        """(L, D + 1) float32. Changed by the next call."""
        torch.mul(self.free.rows[:, : self.width], self.trust, out=self._rows[:, : self.width])
        if self.text is not None:
            self._rows[:, : self.width] += self.text
        self._rows[:, self.width] = self.free.rows[:, self.width]
        return self._rows

    def table(self) -> ReadTable:
        """The rows as a sweep reads them. Changed by the next call."""
        return FixedTable(self.rows())

    def learn(self, start: int, labels: int, gradient: Tensor, scale: float, factors: AdamFactors) -> None:
        """From the gradient of the rows from `start` on: free vectors now, texts by what is summed up."""
        block = slice(start, start + labels)
        own = gradient[:labels, : self.width + 1].float().mul_(scale)
        if self.text_gradient is not None:
            self.text_gradient[block] += own[:, : self.width]
        own[:, : self.width] *= self.trust[block]
        self.free.update(start, labels, own, 1.0, factors)


class ComposedRowsOnCpu(ComposedRows):
    """For products in bf16 on a CPU; the same numbers."""

    def __init__(self, free: Tensor, trust: Tensor, *, text: bool) -> None:
        super().__init__(free, trust, text=text)
        shape = (self.labels + -self.labels % _ROW_MULTIPLE, self.width + 1 + -(self.width + 1) % COLUMN_MULTIPLE)
        self._padded = torch.zeros(shape, dtype=torch.bfloat16)

    def table(self) -> ReadTable:
        from longtail.recipes.direct.kernels import composed_bits

        composed_bits(
            bits(self._padded), self.free.rows.numpy(), self.trust.numpy(), array_or_none(self.text, self.width)
        )
        return PaddedTable(self._padded, self.labels)

    def learn(self, start: int, labels: int, gradient: Tensor, scale: float, factors: AdamFactors) -> None:
        from longtail.recipes.direct.kernels import learn_composed

        block = slice(start, start + labels)
        free = self.free
        text_gradient = array_or_none(self.text_gradient, self.width)
        learn_composed(
            free.rows[block].numpy(),
            free.first[block].numpy(),
            free.second[block].numpy(),
            bits(gradient),
            np.float32(scale),
            self.trust[block].numpy(),
            text_gradient[block],
            factors.array(np.float32),
        )


class PaddedTable:
    """bf16 rows that are stored as products read them: zeros around them."""

    def __init__(self, padded: Tensor, labels: int) -> None:
        self._padded, self.labels = padded, labels

    def block(self, start: int, count: int, compute: torch.dtype) -> Tensor:
        assert compute == torch.bfloat16, "rows are kept in one type"
        return self._padded[start : start + count + -count % _ROW_MULTIPLE]

    def picked(self, ids: Tensor, compute: torch.dtype) -> Tensor:
        assert compute == torch.bfloat16, "rows are kept in one type"
        return self._padded[ids]


def composed_rows(free: Tensor, trust: Tensor, *, text: bool, compute: torch.dtype) -> ComposedRows:
    """The fastest that gives these numbers here."""
    by_kernel = free.device.type == "cpu" and compute == torch.bfloat16
    return (ComposedRowsOnCpu if by_kernel else ComposedRows)(free, trust, text=text)


def bits(tensor: Tensor) -> np.ndarray:
    """bf16 numbers as their 16 bits, the same memory."""
    return tensor.view(torch.uint16).numpy()


def array_or_none(tensor: Tensor | None, width: int) -> np.ndarray:
    """An array without rows stands for None: kernels know no None."""
    return np.empty((0, width), np.float32) if tensor is None else tensor.numpy()


# ---- where training begins ----


def first_bias(targets: Csr) -> Tensor:
    """The logit of the average label, so that training does not begin with pushing all scores down."""
    return bias_of(targets.sum(), targets.shape)


def bias_of(total: Any, shape: tuple[int, int]) -> Tensor:
    """total: the sum of targets, float32.  shape: theirs."""
    documents, labels = shape
    share = min(max(total / (documents * labels), 1e-9), 0.5)
    return torch.tensor(np.log(share / (1 - share)), dtype=torch.float32)


def random_rows(labels: int, width: int, run: Run, *keys: int) -> Tensor:
    """Where rows are free vectors alone they must differ at first: at zero no gradient reaches the encoder."""
    rng = run.rng("rows", *keys)
    return torch.from_numpy(rng.standard_normal((labels, width), dtype=np.float32)) * (0.1 / width**0.5)


# ---- the step ----

BETAS, EPSILON = (0.9, 0.999), 1e-8


class AllLabels:
    """Row of label l: text_l + trust_l * free_l, and a bias; every step scores a batch against all of them.

    texts: the part of rows that words make; None where labels have no text.
    trust: (L, 1), how much of its free vector a label uses: of a label of few documents little is known beyond its
        text.
    targets: see `marked_targets`.  weights: (L,) factor of positives, or None for 1.
    text_every: steps between two looks at the texts. In between, rows use what the last look gave, and the gradient
        to texts is summed up; on a CPU a look costs more than a step.
    long_steps: M and gains take as long steps as words of label texts do, so that `text_every` does not change how far
        they go.
    compute: type of the products with all labels; by default what is fastest here.  extra: a loss to be added.
    shard: which labels this process has the rows of; None: all.  trust, weights, start: of all labels;  targets,
        texts: of those of this process.
    light_words: words have moments of fewer bytes (`LightRowAdam`).
    """

    def __init__(
        self,
        encoder: Encoder,
        texts: TextRows | None,
        trust: Tensor,
        bias: Tensor,
        documents: Documents,
        targets: DeviceCsr,
        *,
        weights: Tensor | None = None,
        start: Tensor | None = None,
        text_every: int = 1,
        token_dropout: float = 0.0,
        compute: torch.dtype | None = None,
        extra: ExtraLoss | None = None,
        shard: Shard | None = None,
        light_words: bool = False,
        long_steps: bool = False,
    ) -> None:
        self.shard, self.extra = shard or Shard(len(trust)), extra
        assert extra is None or self.shard.processes == 1, "an extra loss sees whole batches"
        self.weights, trust = None if weights is None else self.shard.own(weights), self.shard.own(trust)
        self.dropouts = with_dropout_of_part(encoder, self.shard) if self.shard.processes > 1 else []
        device = documents.device
        self.encoder, self.texts, self.documents, self.targets = encoder, texts, documents, targets
        self.text_every, self.token_dropout = text_every, token_dropout
        fast = compute or fastest_products(device)
        self.sweep = Sweep(device, loss="bce", mean_over="documents", compute=fast, shard=self.shard)
        self.model = nn.ModuleDict(
            {"encoder": encoder} if texts is None else {"encoder": encoder, "texts": texts}
        ).train()
        # Adam's steps do not grow with the gradient, so what is taught less often must take longer steps: words, of
        # which each look teaches others. The gain and M, which every look teaches, are better off without.
        self.text_rate = text_every**0.5
        self.adam = ModelAdam(self.model, {"texts.": self.text_rate} if long_steps else None, light=light_words)
        self._count = torch.zeros((), dtype=torch.int64)
        self.make_rows(None if start is None else self.shard.own(start), bias, trust)

    @property
    def size(self) -> int:
        return len(self.documents)

    def order(self, rng: np.random.Generator) -> Any:
        return self.documents.order(rng)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        batch = thinned(self.documents.rows(rows), self.token_dropout)
        z_BD = self.vectors(batch, len(rows))
        if int(self._count) % self.text_every == 0:
            self._look_at_texts()
        self.counted()
        loss, gradient_BD = self.scored(z_BD, rows, rng, rate)
        gradients = [(z_BD, gradient_BD)]
        if self.extra is not None:
            total = extra_total(self.extra, self.encoder, rows, z_BD, loss)
            gradients += [(total, torch.ones_like(total))] if total.requires_grad else []
        torch.autograd.backward([tensor for tensor, _ in gradients], [gradient for _, gradient in gradients])
        self._learn_texts(rate)
        share_gradients(self.adam, self.shard, batch.sparse, len(rows), loss)
        self.adam.step(rate)
        if self.extra is not None:
            self.extra.after_step()
        return loss

    def counted(self) -> int:
        """Which step begins now: the number of those before it, and 1."""
        self._count += 1
        return int(self._count)

    def of_texts(self) -> tuple[bool, bool]:
        """Whether the next step looks at the texts, and whether it teaches them."""
        count, there = int(self._count), self.texts is not None
        return there and count % self.text_every == 0, there and (count + 1) % self.text_every == 0

    def make_rows(self, start: Tensor | None, bias: Tensor, trust: Tensor) -> None:
        """Of the labels of this process, (l, D) or None, one or (l,), and (l, 1)."""
        width = self.encoder.width
        free = torch.zeros(len(trust), width + 1, device=self.documents.device)
        if start is not None:
            free[:, :width] = start
        free[:, width] = bias
        self.rows = self.new_rows(free, trust, text=self.texts is not None)

    def new_rows(self, free: Tensor, trust: Tensor, *, text: bool) -> ComposedRows:
        return composed_rows(free, trust, text=text, compute=self.sweep.compute)

    def scored(self, z_BD: Tensor, rows: I64, rng: np.random.Generator, rate: float) -> tuple[Tensor, Tensor]:
        """(loss, its gradient to z) of the documents at `rows` against their labels. Rows of labels learn.

        z, and its gradient: of the documents of this process.  The loss is that of its labels.
        """
        x = torch.cat([z_BD.detach(), z_BD.new_ones(len(z_BD), 1)], dim=1)
        pairs = Pairs.marked(self.targets.rows(rows), self.weights)
        loss, gradient_BD = self.sweep(x, self._table(), pairs, self._learner(rate), batch=len(rows))
        return loss, gradient_BD[:, : z_BD.shape[1]]

    def final_rows(self) -> Tensor | None:
        """(L, D + 1): what documents are compared with, with the texts as they are now; the last column is the bias.

        Of several processes the first has them all, the others None.
        """
        self._look_at_texts()
        return self.shard.whole(self.rows.rows())

    def _look_at_texts(self) -> None:
        if self.texts is not None and self.rows.text is not None:
            self.rows.text.copy_(self.texts())

    def vectors(self, batch: TensorBatch, documents: int) -> Tensor:
        """(b, D), of the documents of this process, of a batch of so many."""
        for dropout in self.dropouts:
            dropout.documents = documents
        return batch_vectors(self.encoder, self.shard.part_of(batch, documents), self.documents.device)

    def _table(self) -> ReadTable:
        return self.rows.table()

    def _learner(self, rate: float) -> BlockLearner:
        """Takes the gradient of a block of rows while it is still near the processor."""
        factors = self.factors(rate)

        def receive(start: int, labels: int, gradient: Tensor, scale: float) -> None:
            self.rows.learn(start, labels, gradient, scale, factors)

        return by_gradient(receive)

    def factors(self, rate: float) -> AdamFactors:
        """Of the update of free vectors."""
        return AdamFactors.of(int(self._count), rate, BETAS, EPSILON)

    def _learn_texts(self, rate: float) -> None:
        summed = self.rows.text_gradient
        if self.texts is None or summed is None or int(self._count) % self.text_every:
            return
        self.texts.teach(summed, self.adam.rows_of(self.texts.table), rate * self.text_rate)
        summed.zero_()

    def state(self) -> dict[str, Tensor]:
        state = trained_state(self.model) | prefixed("adam", self.adam.state()) | {"count": self._count}
        state |= self.state_of_rows()
        return state if self.extra is None else state | prefixed("extra", self.extra.state())

    def state_of_rows(self) -> dict[str, Tensor]:
        state = prefixed("free", self.rows.free.state())
        if self.rows.text is not None and self.rows.text_gradient is not None:
            state |= {"text": self.rows.text, "text_gradient": self.rows.text_gradient}
        return state

    def split_state(self) -> frozenset[str]:
        return frozenset({"texts.plain", *self.state_of_rows()})


def thinned(batch: TensorBatch, share: float) -> TensorBatch:
    """The batch without a random `share` of its features, the others weighing more."""
    if not share or batch.sparse is None:
        return batch
    weights = nn.functional.dropout(batch.sparse.weights, share)
    return replace(batch, sparse=replace(batch.sparse, weights=weights))


# ---- the learning rate ----


@dataclass(frozen=True)
class OneCycle:
    """Up from `peak / start_divisor` during the first `warm_up` share, then down to nothing, along cosines."""

    peak: float
    warm_up: float = 0.25
    start_divisor: float = 25.0

    def rate(self, epoch: float, epochs: int) -> float:
        progress = epoch / epochs
        start = self.peak / self.start_divisor
        if progress < self.warm_up:
            return self.peak + (start - self.peak) * _half_cosine(progress / self.warm_up)
        return self.peak * _half_cosine((progress - self.warm_up) / (1 - self.warm_up))


def _half_cosine(progress: float) -> float:
    """From 1 at 0 to 0 at 1."""
    return (1 + math.cos(math.pi * progress)) / 2
