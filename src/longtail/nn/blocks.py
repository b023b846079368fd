"""Blocks that turn vectors into vectors of the same width, and what they become for prediction.

Residuals with a bounded matrix (Astec), ECLARE's embedding block, and layers of graph isomorphism networks (Xu et al.,
ICLR 2019) with the batch normalisation of graph encoders. Before them: initial values of layers, and dropout for
matrices as large as all labels (on a CPU torch draws a random number per entry, on one thread).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from longtail.models.encoders import EmbeddingMap, FrozenGinLayer, FullMap, Refinement, ResidualMap
from longtail.nn.batches import to_numpy

# ---- initial values, from an explicit generator; layers are made on "meta" first, so that torch draws nothing ----


def uniform(shape: tuple[int, ...], limit: float, rng: np.random.Generator) -> Tensor:
    """float32 in (-limit, limit)."""
    return torch.from_numpy((rng.random(shape, dtype=np.float32) * 2 - 1) * np.float32(limit))


def xavier_matrix(outputs: int, inputs: int, rng: np.random.Generator) -> Tensor:
    """(outputs, inputs), Xavier-uniform."""
    return uniform((outputs, inputs), math.sqrt(6 / (inputs + outputs)), rng)


def xavier_linear(inputs: int, outputs: int, rng: np.random.Generator) -> nn.Linear:
    """Weights Xavier-uniform, biases zero."""
    layer = nn.Linear(inputs, outputs, device="meta")
    layer.weight = nn.Parameter(xavier_matrix(outputs, inputs, rng))
    layer.bias = nn.Parameter(torch.zeros(outputs))
    return layer


def xavier_convolution(inputs: int, outputs: int, span: int, rng: np.random.Generator) -> nn.Conv1d:
    """Weights Xavier-uniform over the `span` positions that a filter sees, biases zero."""
    layer = nn.Conv1d(inputs, outputs, span, device="meta")
    layer.weight = nn.Parameter(uniform((outputs, inputs, span), math.sqrt(6 / (span * (inputs + outputs))), rng))
    layer.bias = nn.Parameter(torch.zeros(outputs))
    return layer


# ---- blocks ----

_LEVELS = 256


class ByteDropout(nn.Dropout):
    """As `nn.Dropout`, but on a CPU a random byte decides about an entry, and eight of them are drawn at once.

    The share that is dropped is then the nearest multiple of 1/256 to `p` (0.2: 51/256); what stays is scaled by what
    is really kept, so means are right. Draws come from torch's generator, the same for any number of threads
    (`benchmarks.speed composed-step` measures what it saves).
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


class Block(nn.Module):
    """Vectors (B, D) in, vectors (B, D) out."""

    def frozen(self) -> Refinement:
        """Its twin that predicts without torch, its spectral bound exact."""
        raise NotImplementedError(f"no frozen form of {type(self).__name__}")


def frozen_block(block: Block | None) -> Refinement | None:
    """No block is no refinement."""
    return None if block is None else block.frozen()


BoundMode = Literal["project", "normalise", "off"]

# Power iterations at the start: a single one from a random vector finds far less than the whole norm.
WARM_UP = 20


class SpectralBound(nn.Module):
    """Scales a square matrix so that its largest singular value s stays at or below `bound`.

    project: R * min(1, bound / s).  normalise: R * bound / s, always at the bound.  off: R as it is.

    In training s is estimated by one power iteration per call on a vector that persists; gradients flow through R / s
    with the singular vectors held constant. `exact` uses the true norm: what is frozen for prediction keeps the bound
    for sure.
    Paper: Astec Sec. 4 (spectral regularisation). Differs: "project" is the default, because the paper's constraint
    is an upper bound, while normalising would also blow up a small R.
    """

    left: Tensor

    def __init__(
        self, weight: Tensor, rng: np.random.Generator, *, bound: float = 1.0, mode: BoundMode = "project"
    ) -> None:
        super().__init__()
        self.bound, self.mode = bound, mode
        start = torch.from_numpy(rng.standard_normal(len(weight))).to(weight)
        self.register_buffer("left", start / start.norm())
        for _ in range(WARM_UP):
            self.iterate(weight)

    @torch.no_grad()
    def iterate(self, weight: Tensor) -> Tensor:
        """One power iteration; keeps the left singular vector, returns the right one."""
        right = nn.functional.normalize(weight.T @ self.left, dim=0)
        self.left.copy_(nn.functional.normalize(weight @ right, dim=0))
        return right

    def forward(self, weight: Tensor) -> Tensor:
        """The bounded matrix for a training step."""
        if self.mode == "off":
            return weight
        with torch.autocast(weight.device.type, enabled=False):
            right = self.iterate(weight)
            # A copy: the next call changes `left` in place, and the backward pass of this one must not see that.
            return self._scaled(weight, self.left.clone() @ (weight @ right))

    @torch.no_grad()
    def exact(self, weight: Tensor) -> Tensor:
        """The bounded matrix by its true norm."""
        if self.mode == "off":
            return weight.detach().clone()
        return self._scaled(weight.double(), torch.linalg.matrix_norm(weight.double(), ord=2)).to(weight.dtype)

    def _scaled(self, weight: Tensor, norm: Tensor) -> Tensor:
        factor = self.bound / norm.clamp(min=torch.finfo(norm.dtype).tiny)
        return weight * (factor.clamp(max=1) if self.mode == "project" else factor)


class BoundedMatrix(nn.Module):
    """A trained matrix under a `SpectralBound`: estimated in a training step, exact out of training."""

    def __init__(
        self, weight: Tensor, rng: np.random.Generator, *, bound: float = 1.0, mode: BoundMode = "project"
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.spectral = SpectralBound(self.weight.detach(), rng, bound=bound, mode=mode)
        self._frozen: tuple[Tensor, Tensor] | None = None
        self._held: Tensor | None = None

    def bounded(self) -> Tensor:
        """The matrix as a forward pass uses it."""
        if self._held is not None:
            return self._held
        return self.spectral(self.weight) if self.training else self.frozen_weight()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, all forward passes use one matrix: pieces of a batch are then one step of the power iteration."""
        self._held = self.bounded()
        try:
            yield
        finally:
            self._held = None

    def frozen_weight(self) -> Tensor:
        """The bounded matrix for prediction, its norm exact. Computed once per value of the parameter."""
        # Compared by value: torch's version counter does not notice a step of a fused optimiser.
        if (
            self._frozen is None
            or self._frozen[0].device != self.weight.device
            or not torch.equal(self._frozen[0], self.weight)
        ):
            self._frozen = (self.weight.detach().clone(), self.spectral.exact(self.weight))
        return self._frozen[1]


class Residual(BoundedMatrix, Block):
    """x = v + dropout(ReLU(R v)): R starts as the identity and is spectrally bounded, so x stays near v.

    Without dropout ||x - v|| <= bound * ||v||; a bias would break that, hence there is none.
    Paper: Astec Sec. 4, Theorem 1. Out of training the exact bound is used.
    """

    def __init__(
        self,
        width: int,
        rng: np.random.Generator,
        *,
        dropout: float = 0.5,
        bound: float = 1.0,
        mode: BoundMode = "project",
    ) -> None:
        super().__init__(torch.eye(width), rng, bound=bound, mode=mode)
        self.dropout = nn.Dropout(dropout)

    def forward(self, v_BD: Tensor) -> Tensor:
        return v_BD + self.dropout(torch.relu(nn.functional.linear(v_BD, self.bounded())))

    def frozen(self) -> ResidualMap:
        return ResidualMap(to_numpy(self.frozen_weight()))


class FullyConnected(Block):
    """x = dropout(ReLU(A v)), A = I at the start: the residual block without its residual, for ablations."""

    def __init__(self, width: int, *, dropout: float = 0.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, v_BD: Tensor) -> Tensor:
        return self.dropout(torch.relu(nn.functional.linear(v_BD, self.weight)))

    def frozen(self) -> FullMap:
        return FullMap(to_numpy(self.weight))


class EmbeddingBlock(BoundedMatrix, Block):
    """E(a) = a + s R dropout(ReLU(a)): R has spectral norm 1, the scale s is trained. At the start R = I and s = 1.

    A zero vector stays zero. As s is free, the norm of the added part is bounded by |s| ||a||, not by ||a||;
    `clamp_scale` keeps s within -1..1. Paper: ECLARE Sec. 3.1, Fig. 2 (s is its lambda).
    """

    def __init__(
        self, width: int, rng: np.random.Generator, *, dropout: float = 0.2, clamp_scale: bool = False
    ) -> None:
        super().__init__(torch.eye(width), rng, mode="normalise")
        self.scale = nn.Parameter(torch.ones(1))
        self.clamp_scale = clamp_scale
        self.dropout = ByteDropout(dropout)

    def effective_scale(self) -> Tensor:
        return self.scale.clamp(-1, 1) if self.clamp_scale else self.scale

    def forward(self, a_BD: Tensor) -> Tensor:
        return a_BD + self.effective_scale() * nn.functional.linear(self.dropout(torch.relu(a_BD)), self.bounded())

    def frozen(self) -> EmbeddingMap:
        # The scale is part of the matrix: files of models of the same shape then have the same size.
        return EmbeddingMap(to_numpy(self.effective_scale() * self.frozen_weight()), relu=False)


class BatchNorm(nn.BatchNorm1d):
    """Over all axes but the last. A batch of one has no spread of its own: there the running statistics are used."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if self.training and len(flat) < 2:
            return nn.functional.batch_norm(
                flat, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            ).view(x.shape)
        return super().forward(flat).view(x.shape)

    def folded(self) -> tuple[Tensor, Tensor]:
        """(D,) scale and shift that it is out of training."""
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight / (self.running_var + self.eps).sqrt()
        return scale, self.bias - self.running_mean * scale


class GinLayer(nn.Module):
    """h = dropout(ReLU(B dropout(ReLU(BN(A a + c))) + d)) with a = (1 + epsilon) own + sum of neighbours.

    epsilon: one number, what it starts from.  learned: whether it is trained.
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        rng: np.random.Generator,
        *,
        epsilon: Tensor,
        learned: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(epsilon, requires_grad=learned)
        self.first = xavier_linear(inputs, width, rng)
        self.norm = BatchNorm(width)
        self.second = xavier_linear(width, width, rng)
        self.dropout = nn.Dropout(dropout)

    def forward(self, own: Tensor, neighbours: Tensor) -> Tensor:
        """own: (..., inputs) vectors of nodes.  neighbours: the sum of their neighbours'.  Gives (..., width)."""
        hidden = self.dropout(torch.relu(self.norm(self.first((1 + self.epsilon) * own + neighbours))))
        return self.dropout(torch.relu(self.second(hidden)))

    def frozen(self) -> FrozenGinLayer:
        """Its twin that predicts without torch."""
        scale, shift = self.norm.folded()
        return FrozenGinLayer(
            float(self.epsilon.detach()),
            to_numpy(scale[:, None] * self.first.weight),
            to_numpy(scale * self.first.bias + shift),
            to_numpy(self.second.weight),
            to_numpy(self.second.bias),
        )
