"""A training step over a joint graph: embed the documents of a batch, score them against the labels that they share."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import to_device
from longtail.nn.precision import fastest_products
from longtail.recipes.galaxc.heads import SharedHead, shared_bce
from longtail.recipes.galaxc.network import GraphEncoder, Neighbourhoods, Roots
from longtail.recipes.galaxc.shared_labels import BatchLabels
from longtail.training.objectives import prefixed, trained_state
from longtail.training.optimisers import ModelAdam
from longtail.types import I32, I64


class GraphDocuments:
    """The training documents in the graph.

    nodes: (N,) the node of each.  links: (N, m) what a document is linked to when its own edges are hidden, or None.
    hide: share of the documents of a step whose own edges are hidden: they are embedded as a new document would be,
    linked to the nearest nodes, and no path comes back to them. At prediction a document's labels are not there to be
    looked at.
    Paper: GalaXC hides none (spec A-03.2).  fixed: the same neighbours are sampled in every step.
    """

    def __init__(
        self, around: Neighbourhoods, nodes: I32, links: I32 | None = None, *, hide: float = 0.0, fixed: bool = False
    ) -> None:
        if hide > 0 and links is None:
            raise ValueError("documents whose edges are hidden need links")
        self.around, self.nodes, self.links, self.hide, self.fixed = around, nodes, links, hide, fixed

    def __len__(self) -> int:
        return len(self.nodes)

    def roots(self, rows: I64, rng: np.random.Generator) -> Roots:
        seed = 0 if self.fixed else int(rng.integers(2**63))
        if self.links is None or self.hide == 0:
            return Roots(self.nodes[rows], seed)
        return Roots(self.nodes[rows], seed, self.links[rows], rng.random(len(rows)) < self.hide)


class SharedCandidates:
    """Binary cross-entropy over all pairs of the batch's documents and the labels that they share, the mean over what
    counts.

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
        return len(self.documents)

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
