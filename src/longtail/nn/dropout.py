"""Dropout for matrices as large as all labels: on a CPU torch draws a random number per entry, on one thread."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_LEVELS = 256


class ByteDropout(nn.Dropout):
    """As `nn.Dropout`, but on a CPU a random byte decides about an entry, and eight of them are drawn at once.

    The share that is dropped is then the nearest multiple of 1/256 to `p` (0.2: 51/256); what stays is scaled by what
    is really kept, so means are right. Draws come from torch's generator, the same for any number of threads
    (`benchmarks.composed_step` measures what it saves).
    """

    def forward(self, x: Tensor) -> Tensor:
        dropped = min(round(_LEVELS * self.p), _LEVELS - 1)
        if x.device.type != "cpu" or not self.training or not dropped:
            return super().forward(x)
        kept = (random_bytes(x.numel()) >= dropped).view(x.shape)
        return torch.where(kept, x, 0).mul_(_LEVELS / (_LEVELS - dropped))


def random_bytes(count: int) -> Tensor:
    """(count,) uint8."""
    return torch.empty(-(-count // 8), dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)[:count]
