"""What the stages of GalaXC leave behind for one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import nn

from longtail.persistence import DataPart
from longtail.recipes.galaxc.encoders import FrozenGraphEncoder
from longtail.recipes.galaxc.heads import SharedHead
from longtail.recipes.galaxc.linking import GraphSpace
from longtail.recipes.galaxc.network import GraphEncoder
from longtail.search.index import Index
from longtail.search.negatives import ShortlistNegatives
from longtail.training.fit import copy_into, to_array
from longtail.training.objectives import trained_state
from longtail.types import I32


@dataclass(frozen=True)
class Start(DataPart):
    """What training starts from: the graph with its vectors, and (N, m) what training documents are linked to while
    their labels are hidden.
    """

    KIND = "galaxc-start"

    space: GraphSpace
    links: I32 | None


@dataclass(frozen=True)
class Network(DataPart):
    """What stage I leaves behind: trained tensors of encoder and head, by name."""

    KIND = "galaxc-network"

    tensors: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, encoder: GraphEncoder, head: SharedHead) -> Network:
        return cls({name: to_array(value) for name, value in trained_state(_both(encoder, head)).items()})

    def restore(self, encoder: GraphEncoder, head: SharedHead) -> None:
        for name, value in trained_state(_both(encoder, head)).items():
            # Saving makes an array of one number of a number.
            copy_into(value, self.tensors[name].reshape(value.shape))


def _both(encoder: GraphEncoder, head: SharedHead) -> nn.Module:
    return nn.ModuleDict({"encoder": encoder, "head": head})


@dataclass(frozen=True)
class Shortlists(DataPart):
    """What stage II leaves behind: the encoder without torch, the index over the mean views of labels, and hard
    negatives of training documents, if stage IV wants them.
    """

    KIND = "galaxc-shortlists"

    hops: FrozenGraphEncoder
    index: Index
    negatives: ShortlistNegatives | None
