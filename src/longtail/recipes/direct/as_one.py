"""Several models of `direct` as one: trained side by side, and projected to a model of the size of one.

The mean of the log-odds of G models, each of which has v_g = E_g x, z_g = v_g + ReLU(R_g v_g) and rows W_g, is again
such a model, G times as wide: v = (v_1 .. v_G), z = (z_1 .. z_G), rows (W_1 .. W_G) / G. What the models have learnt of
the data they have in common; by what they differ is mostly chance. So few directions of the wide model matter, and two
singular value decompositions, each weighed by what documents of training have and by what rows make of it, find them:

    v' = A v        from which v is best put back, for the log-odds
    x  = T v' + S ReLU(H v'),   rows  W'
                    the log-odds of rank D nearest to those of the wide model; of the G D hidden numbers D are
                    kept, those that together tell most, and T and S are fitted to them

Rare labels would lose by that, as they count little in any mean over documents: their rows are put right for their own
documents (`corrected`). The result has one table of words, rows of one width and three D x D matrices in place of one.
Models whose bag has a ReLU (few pairs of a document and a label) have no such form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from longtail.models.encoders import FrozenEncoder, FrozenSum, Refinement
from longtail.nn.batches import Documents, to_numpy
from longtail.nn.blocks import Residual, frozen_block
from longtail.nn.encoders import BagSum
from longtail.recipes.direct.network import Learner
from longtail.recipes.direct.objective import AllLabels
from longtail.recipes.direct.ranker import HiddenMap
from longtail.training.objectives import TrainingObjective, prefixed
from longtail.types import F32, I64, Csr

_BLOCK = 4096
# Directions whose share of the variance is below this are not told from rounding.
_LEAST_VARIANCE = 1e-7
# Documents of a label that its row is put right for, at most, and how far it need not: 0 is all the way.
_OWN_DOCUMENTS, _YIELDING = 16, 0.03


class SideBySide:
    """Objectives over the same documents, in steps of the same batches."""

    def __init__(self, objectives: Sequence[AllLabels]) -> None:
        self.objectives = tuple(objectives)

    @property
    def size(self) -> int:
        return self.objectives[0].size

    def order(self, rng: np.random.Generator) -> Any:
        return self.objectives[0].order(rng)

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        return torch.stack([objective.step(rows, rng, rate) for objective in self.objectives]).mean()

    def state(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for number, objective in enumerate(self.objectives):
            found |= prefixed(f"model{number}", objective.state())
        return found


def side_by_side(objectives: Sequence[AllLabels]) -> TrainingObjective:
    return objectives[0] if len(objectives) == 1 else SideBySide(objectives)


def as_one(
    learners: Sequence[Learner], documents: Documents, targets: Csr, rng: np.random.Generator
) -> tuple[FrozenEncoder, Refinement | None, F32] | None:
    """Encoder, refinement and the rows (L, D + 1) of one model, from those that were trained; of several processes the
    first has them, the others None.

    targets: (N, L), the labels of the documents.
    """
    found = [learner.objective.final_rows() for learner in learners]
    rows = [part[: targets.shape[1]] for part in found if part is not None]
    if not rows:
        return None
    if len(learners) == 1:
        return learners[0].encoder.frozen(), frozen_block(learners[0].block), to_numpy(rows[0])
    wide = WideModel.of(learners, [part.float() for part in rows])
    return projected(wide, documents, targets, wide.width // len(learners), rng)


def label_weights(targets: Csr) -> F32:
    """(N,): what documents count so that all labels together count the same: those of rare labels more.

    By documents alone a label of few of them would be a direction that hardly matters.
    """
    counts = np.bincount(targets.indices, minlength=targets.shape[1])
    weights: F32 = np.asarray(targets @ (1 / np.maximum(counts, 1)), dtype=np.float32)
    return weights


@dataclass(frozen=True)
class WideModel:
    """G models side by side.  encoders: G.  residuals: G matrices (D, D), or none at all.  rows: (L, G D), the mean
    of whose products is the model's; bias: (L,).
    """

    encoders: tuple[BagSum, ...]
    residuals: tuple[Tensor, ...]
    rows: Tensor
    bias: Tensor

    @staticmethod
    def of(learners: Sequence[Learner], rows: Sequence[Tensor]) -> WideModel:
        encoders = [learner.encoder.eval() for learner in learners]
        blocks = [learner.block for learner in learners if isinstance(learner.block, Residual)]
        return WideModel(
            tuple(encoder for encoder in encoders if isinstance(encoder, BagSum)),
            tuple(block.frozen_weight().detach() for block in blocks),
            torch.cat([part[:, :-1] for part in rows], dim=1) / len(rows),
            torch.stack([part[:, -1] for part in rows]).mean(dim=0),
        )

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def bags(self, documents: Documents, start: int) -> Tensor:
        """(B, G D): v of the documents of a block from `start` on."""
        batch = documents.rows(np.arange(start, min(start + _BLOCK, len(documents))))
        return torch.cat([encoder(batch).score.float() for encoder in self.encoders], dim=1)

    def through_residuals(self, matrix: Tensor) -> Tensor:
        """(G D, n): the block-diagonal matrix of all residuals times (G D, n)."""
        parts = matrix.chunk(len(self.residuals))
        return torch.cat([weight @ part for weight, part in zip(self.residuals, parts, strict=True)])

    def encoder(self, onto: Tensor) -> FrozenEncoder:
        """What gives documents their v times (G D, n): all that is known of words, and of a view, times it."""
        parts, view = onto.chunk(len(self.encoders)), self.encoders[0].view

        def summed(matrices: Iterable[Tensor]) -> F32:
            return to_numpy(
                reduce(torch.add, (matrix.detach() @ part for matrix, part in zip(matrices, parts, strict=True)))
            )

        table = summed(encoder.table.weight for encoder in self.encoders)
        if view is None:
            return FrozenSum(table)
        maps = summed(encoder.view.map for encoder in self.encoders if encoder.view is not None)
        return view.source.frozen(table, maps, rectified=False)


@torch.no_grad()
def projected(
    wide: WideModel,
    documents: Documents,
    targets: Csr,
    width: int,
    rng: np.random.Generator,
    hidden: int | None = None,
) -> tuple[FrozenEncoder, Refinement | None, F32]:
    """The model of `width` nearest to `wide` on `documents`, whose labels are `targets`, (N, L).

    hidden: of its numbers behind a ReLU; None: `width`.
    """
    weights = torch.from_numpy(label_weights(targets)).to(wide.rows.device)
    second, open_share = _of_bags(wide, documents, weights)
    gram = wide.rows.T @ wide.rows
    # How log-odds follow v where ReLU lets through what it does in the mean.
    straight = torch.eye(wide.width, device=gram.device)
    if wide.residuals:
        straight += open_share[:, None] * wide.through_residuals(straight)
    onto, back = nearest_of_rank(second, straight.T @ gram @ straight, width)
    if not wide.residuals:
        turn = _rotation(width, rng, gram.device)
        onto, back = onto @ turn, back @ turn
        small = SmallModel(onto, None, None, None, wide.rows @ back)
        return wide.encoder(onto), None, _with_bias(corrected(wide, small, documents, targets), wide.bias)
    # Numbers of a row that are about equally large lose least when they become bytes.
    turn = _rotation(width, rng, gram.device)
    onto, back = onto @ turn, back @ turn
    into = wide.through_residuals(back)
    seen = _of_hidden(wide, documents, weights, onto, into)
    whole = torch.cat([back, torch.eye(wide.width, device=gram.device)], dim=1)
    onto_z, back_z = nearest_of_rank(whole @ seen @ whole.T, gram, width)
    turn = _rotation(width, rng, gram.device)
    onto_z, back_z = onto_z @ turn, back_z @ turn
    rows = wide.rows @ back_z
    wanted = onto_z.T @ whole
    kept = most_telling(seen, width, _root(rows.T @ rows) @ wanted[:, width:], hidden or width)
    chosen = torch.cat([torch.arange(width, device=kept.device), width + kept])
    fitted = _least_squares(seen[chosen][:, chosen], seen[chosen] @ wanted.T).T.float()
    small = SmallModel(onto, fitted[:, :width], into[kept], fitted[:, width:], rows)
    refinement = HiddenMap(*map(to_numpy, (fitted[:, :width], into[kept], fitted[:, width:])))
    return wide.encoder(onto), refinement, _with_bias(corrected(wide, small, documents, targets), wide.bias)


@dataclass(frozen=True)
class SmallModel:
    """What `projected` makes.  onto: (G D, D).  straight, into, out: of a `HiddenMap`, or None.  rows: (L, D)."""

    onto: Tensor
    straight: Tensor | None
    into: Tensor | None
    out: Tensor | None
    rows: Tensor

    def vectors(self, bags: Tensor) -> Tensor:
        """(B, D): x of documents by their (B, G D) bags."""
        low = bags @ self.onto
        if self.straight is None or self.into is None or self.out is None:
            return low
        return low @ self.straight.T + torch.relu(low @ self.into.T) @ self.out.T


def corrected(wide: WideModel, small: SmallModel, documents: Documents, targets: Csr) -> Tensor:
    """(L, D): rows that give documents of a label nearly the log-odds of `wide`, and others what they had.

    What is lost by a projection is little in the mean of all documents, and much for the few of a rare label. Its row
    is moved by the least, in the mean of squares over all documents, that puts (nearly) back what its own lost.
    """
    pairs = own_pairs(targets)
    x = small.rows.new_empty(len(documents), small.rows.shape[1])
    lost = small.rows.new_empty(len(pairs))
    owners, labels = (torch.from_numpy(pairs[:, at].copy()).to(x.device) for at in (0, 1))
    for start in range(0, len(documents), _BLOCK):
        bags = wide.bags(documents, start)
        stop = start + len(bags)
        x[start:stop] = small.vectors(bags)
        first, last = np.searchsorted(pairs[:, 0], [start, stop]).tolist()
        z = bags if not wide.residuals else bags + torch.relu(wide.through_residuals(bags.T).T)
        for at in range(first, last, _BLOCK):
            part = slice(at, min(at + _BLOCK, last))
            whole = (z[owners[part] - start] * wide.rows[labels[part]]).sum(1)
            lost[part] = whole - (x[owners[part]] * small.rows[labels[part]]).sum(1)
    second = (x.T @ x / len(x)).double()
    ridge = second.diagonal().mean() * 1e-4
    inverse = torch.linalg.inv(second + ridge * torch.eye(len(second), device=x.device)).float()
    # The pairs of a label one after the other, in as many places as the label with the most has.
    order = torch.argsort(labels, stable=True)
    counts = torch.bincount(labels, minlength=len(small.rows))
    ends = counts.cumsum(0)
    rows = small.rows.clone()
    for start in range(0, len(rows), _BLOCK // 4):
        own = slice(start, start + _BLOCK // 4)
        place = torch.arange(_OWN_DOCUMENTS, device=x.device)
        there = place < counts[own, None]
        entries = order[((ends - counts)[own, None] + place).clamp(max=len(order) - 1)]
        q = x[owners[entries]] * there[..., None]
        moved = q @ inverse
        inner = moved @ q.transpose(1, 2)
        inner.diagonal(dim1=1, dim2=2).add_(torch.where(there, _YIELDING * x.shape[1], 1.0))
        shares = torch.linalg.solve(inner, (lost[entries] * there)[..., None])
        rows[own] += (moved * shares).sum(1)
    return rows


def own_pairs(targets: Csr) -> I64:
    """(P, 2) documents with one of their labels, by document; of a label with more documents some, evenly spread."""
    by_label = targets.tocsc()
    counts = np.diff(by_label.indptr)
    number = np.arange(targets.nnz) - np.repeat(by_label.indptr[:-1], counts)
    of = np.repeat(np.maximum(counts, 1), counts)
    kept = number * _OWN_DOCUMENTS // of != (number - 1) * _OWN_DOCUMENTS // of
    labels = np.repeat(np.arange(len(counts)), counts)
    pairs = np.stack([by_label.indices[kept], labels[kept]], axis=1).astype(np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def nearest_of_rank(second: Tensor, gram: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """(n, rank) each: u = z onto and z ~ u back^T such that rows times z loses least in the mean of squares.

    second: (n, n), the mean of z z^T.  gram: (n, n), rows^T rows.
    """
    variances, directions = torch.linalg.eigh(second.double())
    kept = variances > variances[-1] * _LEAST_VARIANCE
    roots, directions = variances[kept].sqrt(), directions[:, kept]
    root = directions * roots
    strengths, best = torch.linalg.eigh(root.T @ gram.double() @ root)
    # What is strong is shared evenly between the two sides.
    sharing = strengths[-rank:].clamp(min=0).sqrt().sqrt().clamp(min=1e-12)
    best = best[:, -rank:]
    onto, back = (directions / roots) @ best * sharing, root @ best / sharing
    missing = rank - best.shape[1]
    return nn.functional.pad(onto.float(), (0, missing)), nn.functional.pad(back.float(), (0, missing))


def most_telling(second: Tensor, first: int, weights: Tensor, count: int) -> Tensor:
    """`count` of the inputs from `first` on, ascending, without the first ones: one after the other, each time the one
    with which the others and it come nearest to what all of them give.

    second: (n, n), the mean of s s^T over documents.  weights: (K, n - first), what is to be given: weights times s.
    """
    known, own = second[:first, :first].double(), second[first:, first:].double()
    shared = second[:first, first:].double()
    # What is left of inputs when those are subtracted that are kept already.
    left = own - shared.T @ _least_squares(known, shared)
    least, given = own.diagonal() * 1e-6, weights.double() @ left
    kept: list[Tensor] = []
    for _ in range(min(count, len(own))):
        alone = left.diagonal()
        gains = torch.where(alone > least, given.square().sum(0) / alone.clamp(min=1e-30), -1.0)
        at = gains.argmax()
        if kept:
            gains[torch.stack(kept)] = -2.0
            at = gains.argmax()
        kept.append(at)
        direction, scale = left[at] / alone[at].clamp(min=1e-30).sqrt(), alone[at].clamp(min=1e-30).sqrt()
        given.addr_(given[:, at] / scale, direction, alpha=-1)
        left.addr_(direction, direction, alpha=-1)
    return torch.stack(kept).sort().values


def _root(gram: Tensor) -> Tensor:
    """(n, n): R with R^T R = gram."""
    values, directions = torch.linalg.eigh(gram.double())
    return (values.clamp(min=0).sqrt()[:, None] * directions.T).float()


def _of_bags(wide: WideModel, documents: Documents, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of v v^T over the documents, and (G D,) how often ReLU lets each number of the residuals through."""
    second, opened = wide.rows.new_zeros(wide.width, wide.width), wide.rows.new_zeros(wide.width)
    for start in range(0, len(documents), _BLOCK):
        v, own = wide.bags(documents, start), weights[start : start + _BLOCK]
        second += (v * own[:, None]).T @ v
        if wide.residuals:
            opened += (wide.through_residuals(v.T) > 0).float() @ own
    return second / weights.sum(), opened / weights.sum()


def _of_hidden(wide: WideModel, documents: Documents, weights: Tensor, onto: Tensor, into: Tensor) -> Tensor:
    """The mean of s s^T over the documents, s = (v', ReLU(H v'))."""
    size = onto.shape[1] + len(into)
    second = wide.rows.new_zeros(size, size)
    for start in range(0, len(documents), _BLOCK):
        low = wide.bags(documents, start) @ onto
        s = torch.cat([low, torch.relu(low @ into.T)], dim=1)
        second += (s * weights[start : start + _BLOCK, None]).T @ s
    return second / weights.sum()


def _least_squares(second: Tensor, products: Tensor) -> Tensor:
    """(m, n): what gives the targets from the inputs.  second: (m, m) of the inputs; products: (m, n) with targets."""
    second = second.double()
    ridge = second.diagonal().mean() * 1e-7 + 1e-30
    return torch.linalg.solve(second + ridge * torch.eye(len(second), device=second.device), products.double())


def _rotation(width: int, rng: np.random.Generator, device: torch.device) -> Tensor:
    """(width, width): a turn by chance."""
    drawn = torch.from_numpy(rng.standard_normal((width, width), dtype=np.float32)).to(device)
    return torch.linalg.qr(drawn)[0]


def _with_bias(rows: Tensor, bias: Tensor) -> F32:
    return to_numpy(torch.cat([rows, bias[:, None]], dim=1))
