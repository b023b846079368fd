"""The hinge loss of triplets (item, its positive, a negative) with negatives from the same batch.

Shapes: B items, U others that the batch has brought together.
"""

from __future__ import annotations

import torch
from torch import Tensor


def triplet_loss(
    similarity_BU: Tensor, positive_B: Tensor, negative_BU: Tensor, *, margin: float, hardest: int = 0
) -> Tensor:
    """Mean over items with a positive of the mean over their violating triplets of [s_n - s_p + margin]_+; 0 without
    violations.

    positive_B: int64, the place of each item's positive, -1 where it has none: such an item takes no part, and is not
        counted.
    negative_BU: bool, what may serve as a negative. hardest: of these only so many, the most similar; 0: all.

    Paper: RAMEN Sec. 3 (gamma = 0.3). Differs: means in place of sums (the coefficient in front is illegible), so
    that weights of graphs of different density are comparable; an item with many violations does not count more than
    one with few.
    """
    has_positive = positive_B >= 0
    s_positive = similarity_BU.gather(1, positive_B.clamp(min=0)[:, None])
    excess = torch.where(negative_BU & has_positive[:, None], similarity_BU - s_positive + margin, 0)
    if 0 < hardest < excess.shape[1]:
        excess = excess.topk(hardest, dim=1).values
    violations = excess.clamp(min=0)
    by_item = violations.sum(dim=1) / (violations.detach() > 0).sum(dim=1).clamp(min=1)
    return by_item.sum() / has_positive.sum().clamp(min=1)
