"""A training step of GalaXC: embed the documents of a batch, score them against labels that all of them share.

These labels are the batch's own and some more. Each document's positives are those that it has; the others are its
negatives (labels of other documents of the batch, random ones, or hard ones of any document of the batch). Masked pairs
count neither way. Paper: GalaXC Sec. 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from longtail.errors import ConfigError
from longtail.kernels.arrays import pieces, taken_runs
from longtail.nn.batches import Bags, fastest_products, to_device
from longtail.nn.full import full_loss
from longtail.recipes.galaxc.graph import HiddenEdges
from longtail.recipes.galaxc.network import (
    GraphEncoder,
    LabelAttention,
    Modules,
    Neighbourhoods,
    Roots,
    SharedHead,
    encoded_blocks,
)
from longtail.recipes.galaxc.settings import GalaxcSurrogateConfig
from longtail.recipes.galaxc.start import Start
from longtail.search.negatives import ShortlistNegatives
from longtail.training.objectives import ModelAdam, prefixed, trained_state
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import I32, I64, Csr

# ---- labels of a step ----

# What else is drawn for documents at some rows: label numbers, in any order, repetitions and padding (-1) allowed.
MoreLabels: TypeAlias = Callable[[I64, np.random.Generator], I32]


@dataclass(frozen=True)
class SharedLabels:
    """labels: (U,) int32, ascending.  starts: (B + 1,), places: (P,) int32: which of `labels` each document has.

    ignored: (I, 2) int64 (document of the batch, place among `labels`) pairs that count neither way.
    """

    labels: I32
    starts: I64
    places: I32
    ignored: I64


class BatchLabels:
    """Puts the labels of a step together.

    y: (N, L) CSR of positives.  masked: (P, 2) pairs of a document and a label that may be neither.
    """

    def __init__(self, y: Csr, masked: I64, more: MoreLabels) -> None:
        self.n_labels, self.more = int(y.shape[1]), more
        self._starts, self._labels, _ = pieces(y)
        order = np.lexsort((masked[:, 1], masked[:, 0]))
        self._masked_labels = masked[order, 1]
        self._masked_starts = np.searchsorted(masked[order, 0], np.arange(int(y.shape[0]) + 1)).astype(np.int64)
        self._place = np.full(self.n_labels, -1, dtype=np.int32)

    def draw(self, rows: I64, rng: np.random.Generator) -> SharedLabels:
        starts, at = taken_runs(self._starts, rows)
        own = self._labels[at]
        more = self.more(rows, rng)
        labels = np.unique(np.concatenate([own, more[more >= 0]])).astype(np.int32)
        self._place[labels] = np.arange(len(labels), dtype=np.int32)
        places = self._place[own]
        ends, at = taken_runs(self._masked_starts, rows)
        owners, hidden_places = np.repeat(np.arange(len(rows)), np.diff(ends)), self._place[self._masked_labels[at]]
        ignored = np.stack([owners, hidden_places.astype(np.int64)], axis=1)[hidden_places >= 0]
        self._place[labels] = -1
        return SharedLabels(labels, starts, places, ignored)


def random_labels(n_labels: int, count: int) -> MoreLabels:
    """`count` different labels, drawn anew in every step; all of them where there are no more."""
    if count < 0:
        raise ConfigError(f"{count} random labels asked for", "use 0 or more")
    if count >= n_labels:
        return lambda rows, rng: np.arange(n_labels, dtype=np.int32)
    return lambda rows, rng: rng.choice(n_labels, count, replace=False, shuffle=False).astype(np.int32)


def hard_labels(negatives: ShortlistNegatives, per_document: int) -> MoreLabels:
    """Of each document's hard negatives a random choice of `per_document`; all documents of the batch share them."""
    width = int(negatives.ids.shape[1])
    if per_document >= width:
        return lambda rows, rng: np.asarray(negatives.ids[rows]).ravel()

    def drawn(rows: I64, rng: np.random.Generator) -> I32:
        columns = rng.integers(width, size=(len(rows), per_document))
        return np.asarray(negatives.ids[rows[:, None], columns]).ravel()

    return drawn


# ---- documents of a step ----


class GraphDocuments:
    """The training documents in the graph.

    nodes: (N,) the node of each.  links: (N, m) what a document is linked to when its labels are hidden, or None.
    targets: (N, L) CSR, with `links`: the labels of each, whose edges are what is hidden.
    hide: share of the documents of a step whose labels are hidden: they are embedded as a new document would be,
        linked to the nearest nodes, and no path takes an edge between them and their labels; all other edges of the
        graph are seen. At prediction a document's labels are not there to be looked at. Paper: GalaXC hides none.
    fixed: the same neighbours are sampled in every step.
    """

    def __init__(
        self,
        around: Neighbourhoods,
        nodes: I32,
        links: I32 | None = None,
        targets: Csr | None = None,
        *,
        hide: float = 0.0,
        fixed: bool = False,
    ) -> None:
        if hide > 0 and (links is None or targets is None):
            raise ValueError("documents whose labels are hidden need links, and their labels")
        self.around, self.nodes, self.links, self.hide, self.fixed = around, nodes, links, hide, fixed
        self.unseen = None if targets is None else HiddenEdges.of_targets(targets, nodes)

    def roots(self, rows: I64, rng: np.random.Generator) -> Roots:
        seed = 0 if self.fixed else int(rng.integers(2**63))
        if self.links is None or self.unseen is None or self.hide == 0:
            return Roots(self.nodes[rows], seed)
        hidden = rng.random(len(rows)) < self.hide
        return Roots(self.nodes[rows], seed, self.links[rows], hidden, self.unseen.rows(rows))


# ---- the step ----


def shared_bce(z_BE: Tensor, rows_UE: Tensor, shared: SharedLabels, *, compute: torch.dtype | None = None) -> Tensor:
    """Mean binary cross-entropy over all B x U pairs but the ignored ones.

    compute: type of the products; that of `z` by default.
    """
    device = z_BE.device
    starts, places = to_device(shared.starts, device), to_device(shared.places, device)
    targets = Bags(starts, places, torch.ones(len(places), device=device))
    loss = full_loss(z_BE, rows_UE, targets, loss="bce", mean_over="entries", compute=compute or z_BE.dtype)
    if not len(shared.ignored):
        return loss
    pairs = to_device(shared.ignored, device)
    # Ignored pairs are no targets, so each went in as a negative: taken out again, and the mean made one over the rest.
    scores = (z_BE[pairs[:, 0]] * rows_UE[pairs[:, 1]]).sum(dim=1)
    entries = len(z_BE) * len(rows_UE)
    return (loss * entries - nn.functional.softplus(scores).sum()) / max(entries - len(pairs), 1)


class SharedCandidates:
    """Mean binary cross-entropy over all pairs of the batch's documents and the labels that they share.

    attention_factor: the rate of attention weights (the head's `logits`) as a multiple of that of everything else.
    """

    def __init__(
        self,
        encoder: GraphEncoder,
        head: SharedHead,
        documents: GraphDocuments,
        labels: BatchLabels,
        *,
        attention_factor: float = 1.0,
    ) -> None:
        self.encoder, self.head, self.documents, self.labels = encoder, head, documents, labels
        self.model = nn.ModuleDict({"encoder": encoder, "head": head}).train()
        self.compute = fastest_products(documents.around.device)
        self.adam = ModelAdam(self.model, {"head.logits": attention_factor})

    @property
    def size(self) -> int:
        return len(self.documents.nodes)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        device = self.documents.around.device
        shared, roots = self.labels.draw(rows, rng), self.documents.roots(rows, rng)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            x_BKD = self.encoder(self.documents.around, roots)
        rows_UE = self.head.rows(to_device(shared.labels, device), roots.seed)
        loss = shared_bce(self.head.inputs(x_BKD.float()), rows_UE, shared, compute=self.compute)
        torch.autograd.backward(loss)
        self.adam.step(rate)
        return loss.detach()

    def state(self) -> dict[str, Tensor]:
        return trained_state(self.model) | prefixed("adam", self.adam.state())


# ---- where classifiers start ----

# Training documents that the scale and the bias of classifiers are read off at the start.
_START_DOCUMENTS = 4096


def start_classifiers(data: TrainingSet, start: Start, modules: Modules, c: GalaxcSurrogateConfig, run: Run) -> None:
    """Classifiers as the cosine between a document's views and the labels'. Documents are seen as new ones are."""
    encoder, head, around = modules
    if not isinstance(head, LabelAttention):
        return
    rng = run.rng("documents that classifiers start with")
    rows = np.sort(rng.permutation(data.n_documents)[:_START_DOCUMENTS])
    right = data.targets.indices[data.targets.indptr[rows]].astype(np.int64)
    wrong = rng.integers(data.n_labels, size=len(rows))
    nodes, space = start.space.graph.nodes[rows], start.space
    # With all neighbours nothing can be hidden.
    documents = Roots(nodes, 0)
    if not around.fanout.full:
        unseen = HiddenEdges.of_targets(data.targets, space.graph.nodes).rows(rows)
        near = space.as_new(nodes, unseen) if start.links is None else start.links[rows]
        documents = Roots(nodes, 0, near, unseen=unseen)
    everyone = np.arange(data.n_labels, dtype=np.int32)
    rows_LD, _ = head.read(encoded_blocks(encoder, around, Roots(everyone, 0)), everyone.astype(np.int64))
    pairs = [head.read(encoded_blocks(encoder, around, documents), labels) for labels in (right, wrong)]
    head.start_from(rows_LD, pairs[0], pairs[1], (c.right, c.wrong))
