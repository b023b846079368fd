"""Labels as nodes of the graph: a document has a label if their embeddings are alike. What GalaXC's classifiers are
compared with.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from longtail.nn.hop_encoder import GraphEncoder
from longtail.nn.neighbourhoods import Neighbourhoods, Roots
from longtail.nn.shared_loss import SharedHead


class LinkHead(SharedHead):
    """score = scale * cosine + shift, both trained, between the embeddings that one encoder gives of documents and
    labels.

    Paper: GalaXC Sec. 3 (link prediction, Table 1). There is no parameter per label.
    """

    def __init__(self, encoder: GraphEncoder, around: Neighbourhoods, labels: int) -> None:
        super().__init__()
        self.encoder, self.around, self.labels = encoder, around, labels
        self.scale, self.shift = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-5.0))

    def inputs(self, x_BKD: Tensor) -> Tensor:
        """(B, D + 1)"""
        unit = nn.functional.normalize(x_BKD.mean(dim=1), dim=1)
        return torch.cat([unit * self.scale, unit.new_ones(len(unit), 1)], dim=1)

    def rows(self, labels_U: Tensor, seed: int) -> Tensor:
        """(U, D + 1): label l is node l."""
        z_UKD: Tensor = self.encoder(self.around, Roots(labels_U.cpu().numpy().astype(np.int32), seed))
        unit = nn.functional.normalize(z_UKD.float().mean(dim=1), dim=1)
        return torch.cat([unit, self.shift.expand(len(unit), 1)], dim=1)
