"""One training step against all labels, for rows that are the sum of text and a free vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.batches import DeviceCsr, Documents, TensorBatch, fastest_products
from longtail.nn.encoders import Encoded, Encoder
from longtail.nn.full import Pairs, Receiver, Sweep
from longtail.nn.row_tables import AdamFactors
from longtail.recipes.direct.label_rows import TextRows, composed_rows
from longtail.training.objectives import ExtraLoss, ModelAdam, extra_total, prefixed, trained_state
from longtail.types import I64, Csr

BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Truth:
    """What documents are trained towards; see `of`.

    pairs: (N, L) CSR rows, the target of every pair that is not a plain negative; MASKED if it is neither right nor
        wrong.
    weights: (L,) factor of positives, or None for 1.
    """

    MASKED: ClassVar[float] = -1.0

    pairs: DeviceCsr
    weights: Tensor | None = None

    @staticmethod
    def of(targets: Csr, masked: Csr | None, device: torch.device | str, *, weights: Tensor | None = None) -> Truth:
        """targets, masked: (N, L) CSR; a pair that is in both is masked."""
        if masked is not None:
            hidden = (masked != 0).astype(np.float32)
            targets = targets - targets.multiply(hidden) + Truth.MASKED * hidden
            targets.eliminate_zeros()
        return Truth(DeviceCsr(targets.tocsr(), device), weights)


class AllLabels:
    """Row of label l: text_l + trust_l * free_l, and a bias; every step scores a batch against all of them.

    texts: the part of rows that words make; None where labels have no text.
    trust: (L, 1), how much of its free vector a label uses: of a label of few documents little is known beyond its
        text.
    text_every: steps between two looks at the texts. In between, rows use what the last look gave, and the gradient
        to texts is summed up; on a CPU a look costs more than a step.
    compute: type of the products with all labels; by default what is fastest here.  extra: a loss to be added.
    """

    def __init__(
        self,
        encoder: Encoder,
        texts: TextRows | None,
        trust: Tensor,
        bias: Tensor,
        documents: Documents,
        truth: Truth,
        *,
        start: Tensor | None = None,
        text_every: int = 1,
        token_dropout: float = 0.0,
        compute: torch.dtype | None = None,
        extra: ExtraLoss | None = None,
    ) -> None:
        self.extra = extra
        labels, width, device = len(trust), encoder.width, documents.device
        self.encoder, self.texts, self.documents, self.truth = encoder, texts, documents, truth
        self.text_every, self.token_dropout = text_every, token_dropout
        self.sweep = Sweep(device, loss="bce", mean_over="documents", compute=compute or fastest_products(device))
        self.model = nn.ModuleDict(
            {"encoder": encoder} if texts is None else {"encoder": encoder, "texts": texts}
        ).train()
        self.adam = ModelAdam(self.model)
        free = torch.zeros(labels, width + 1, device=device)
        if start is not None:
            free[:, :width] = start
        free[:, width] = bias
        self.rows = composed_rows(free, trust, text=texts is not None, compute=self.sweep.compute)
        self._count = torch.zeros((), dtype=torch.int64)

    @property
    def size(self) -> int:
        return len(self.documents)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        z_BD = self._vectors(rows)
        if int(self._count) % self.text_every == 0:
            self._look_at_texts()
        self._count += 1
        x = torch.cat([z_BD.detach(), z_BD.new_ones(len(z_BD), 1)], dim=1)
        pairs = Pairs.marked(self.truth.pairs.rows(rows), self.truth.weights)
        loss, gradient_BD = self.sweep(x, self.rows.table(), pairs, self._learner(rate))
        gradients = [(z_BD, gradient_BD[:, : z_BD.shape[1]])]
        if self.extra is not None:
            total = extra_total(self.extra, self.encoder, rows, z_BD, loss)
            gradients += [(total, torch.ones_like(total))] if total.requires_grad else []
        torch.autograd.backward([tensor for tensor, _ in gradients], [gradient for _, gradient in gradients])
        self._learn_texts(rate)
        self.adam.step(rate)
        if self.extra is not None:
            self.extra.after_step()
        return loss

    def final_rows(self) -> Tensor:
        """(L, D + 1): what documents are compared with, with the texts as they are now; the last column is the bias."""
        self._look_at_texts()
        return self.rows.rows()

    def _look_at_texts(self) -> None:
        if self.texts is not None and self.rows.text is not None:
            self.rows.text.copy_(self.texts())

    def _vectors(self, rows: I64) -> Tensor:
        batch = self.documents.rows(rows)
        with torch.autocast(
            self.documents.device.type, dtype=torch.bfloat16, enabled=self.documents.device.type == "cuda"
        ):
            encoded: Encoded = self.encoder(thinned(batch, self.token_dropout))
        return encoded.score.float()

    def _learner(self, rate: float) -> Receiver:
        """Takes the gradient of a block of rows while it is still near the processor."""
        factors = AdamFactors.of(int(self._count), rate, BETAS, EPSILON)

        def receive(start: int, labels: int, gradient: Tensor, scale: float) -> None:
            self.rows.learn(start, labels, gradient, scale, factors)

        return receive

    def _learn_texts(self, rate: float) -> None:
        summed = self.rows.text_gradient
        if self.texts is None or summed is None or int(self._count) % self.text_every:
            return
        of_tokens = self.texts.gradient(summed)
        # Adam's steps do not grow with the gradient, so fewer of them must be longer.
        self.adam.rows_of(self.texts.table).update_rows(self.texts.tokens, of_tokens, rate * self.text_every**0.5)
        summed.zero_()

    def state(self) -> dict[str, Tensor]:
        state = (
            trained_state(self.model)
            | prefixed("adam", self.adam.state())
            | prefixed("free", self.rows.free.state())
            | {"count": self._count}
        )
        if self.rows.text is not None and self.rows.text_gradient is not None:
            state |= {"text": self.rows.text, "text_gradient": self.rows.text_gradient}
        return state if self.extra is None else state | prefixed("extra", self.extra.state())


def thinned(batch: TensorBatch, share: float) -> TensorBatch:
    """The batch without a random `share` of its features, the others weighing more."""
    if not share or batch.sparse is None:
        return batch
    weights = nn.functional.dropout(batch.sparse.weights, share)
    return replace(batch, sparse=replace(batch.sparse, weights=weights))
