"""All documents of a step against the same labels: what a head must offer, and the loss. Shapes: E numbers that both
sides have.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.nn.batches import Bags, sent
from longtail.nn.full.loss import full_loss
from longtail.search.shared_labels import SharedLabels


class SharedHead(nn.Module):
    """Turns K views of documents and label numbers into two sides of one product. Attention weights, if any, are
    called `logits`.
    """

    labels: int

    def inputs(self, x_BKD: Tensor) -> Tensor:
        """(B, E)"""
        raise NotImplementedError

    def rows(self, labels_U: Tensor, seed: int) -> Tensor:
        """(U, E) of different labels, (U,) int32. seed: names the samples, for heads that look at the neighbourhoods
        of labels.
        """
        raise NotImplementedError


def shared_bce(z_BE: Tensor, rows_UE: Tensor, shared: SharedLabels, *, compute: torch.dtype | None = None) -> Tensor:
    """Mean binary cross-entropy over all B x U pairs but the ignored ones. compute: type of the products; that of `z`
    by default.
    """
    device = z_BE.device
    starts, places = sent(shared.starts, device), sent(shared.places, device)
    targets = Bags(starts, places, torch.ones(len(places), device=device))
    loss = full_loss(z_BE, rows_UE, targets, loss="bce", mean_over="entries", compute=compute or z_BE.dtype)
    if not len(shared.ignored):
        return loss
    pairs = sent(shared.ignored, device)
    # Ignored pairs are no targets, so each went in as a negative: taken out again, and the mean made one over the rest.
    scores = (z_BE[pairs[:, 0]] * rows_UE[pairs[:, 1]]).sum(dim=1)
    entries = len(z_BE) * len(rows_UE)
    return (loss * entries - nn.functional.softplus(scores).sum()) / max(entries - len(pairs), 1)
