"""Rows for labels that training never saw, in closed form: from their texts, from labels near them, from examples.

    row = text + neighbours + examples

text: what rows of trained labels have in common with their texts, a ridge regression of rows on texts that the model
    itself is asked for; it also finds again what training made of texts and a bundle does not keep.
neighbours: what is left of the rows of the labels with the nearest texts, or of those that a person names, shrunk as
    far as that would have helped with trained labels.
examples: a step towards the mean of their documents, as seen from the usual one, in closed form.

In the end a new label is made modest: trained labels have learnt to score high on their own documents and low on all
others; a new one has learnt neither. Its scores are lifted, so that it is found, and made to differ less, so that it
seldom comes first where it should not (`LabelSpace.untaught` and `taught`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from longtail.declared import Shaped
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import F64
from longtail.persistence import DataPart
from longtail.types import F32, I32, I64, Batch, Csr

# Trained labels that are looked at, at most, and documents that new labels are compared on.
_LABELS, _DOCUMENTS = 50_000, 4096
# Neighbours of a label, and how much nearer ones count more.
_NEIGHBOURS, _SHARPNESS = 8, 4
# Ridge of the regression, in labels: what it takes to move a direction of average length.
_RIDGE = 10.0
_BLOCK = 1024
# The log-odds that a label's examples should have in the mean.
_REACHED = -1.0
# Labels of a document that are its best, and trained labels that stand for new ones.
_BEST, _SAMPLE = 10, 256


class Modesty(NamedTuple):
    """How new labels are held back.

    slope: what rows are multiplied with.  share: of documents on which a label is among the best, at most.  together:
    the sum of these shares over all labels of one addition, at most: what many new labels take, others lose.
    """

    slope: float
    share: float
    together: float


@dataclass(frozen=True)
class LabelSpace:
    """Where the labels of a model lie, and how it reads texts and documents.

    rows: (l, D + 1) of labels by number, the last one the bias.  documents: (B, D + 1) of a batch, the last number 1.
    texts: (l, H) of label texts.
    untaught, taught: of new labels without and with examples (`modest`); found by measurement where trained labels
        have rows of their own, None where rows are texts alone.
    """

    rows: Callable[[I64], F32]
    documents: Callable[[Batch], F32]
    texts: Callable[[Batch], F32]
    untaught: Modesty | None = None
    taught: Modesty | None = None


@dataclass(frozen=True)
class AddedLabels(DataPart):
    """A labels that were added to a trained model, behind those that it had.

    rows: (A, D + 1), the last number the bias.  texts: (A, H), as `LabelSpace.texts` gives them; None without texts.
    near: (A,) the number of the trained label that each is nearest to; -1 where none is.
    examples: (E, V) CSR, documents that carry some of them, as the model reads them; None without, or where they are
        not sparse.  targets: (E, A) CSR of ones.  counts: (A,) examples of each.
    """

    KIND = "added-labels"

    rows: Annotated[F32, Shaped("labels", "numbers")]
    near: Annotated[I32, Shaped("labels", numbers_of="_", least=-1)]
    counts: Annotated[I64, Shaped("labels", plain=True)]
    texts: Annotated[F32, Shaped("labels", "width")] | None = None
    examples: Annotated[Csr, Shaped("examples", "features")] | None = None
    targets: Annotated[Csr, Shaped("examples", "labels")] | None = None

    def __post_init__(self) -> None:
        if (self.examples is None) != (self.targets is None):
            raise ValueError("examples of the added labels lack what they carry, or documents")

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def joined(cls, parts: Sequence[AddedLabels]) -> AddedLabels:
        """One after the other."""
        from scipy.sparse import block_diag, csr_array, vstack

        if len(parts) == 1:
            return parts[0]
        some = [part for part in parts if part.examples is not None]
        blocks = [
            csr_array((0, len(part)), dtype=np.float32) if part.targets is None else csr_array(part.targets)
            for part in parts
        ]
        every = all(part.texts is not None for part in parts)
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.near for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.texts for part in parts if part.texts is not None]) if every else None,
            csr_array(vstack([part.examples for part in some], format="csr")) if some else None,
            csr_array(block_diag(blocks, format="csr")) if some else None,
        )


@dataclass(frozen=True)
class Wish:
    """What is known of A new labels.

    texts: A texts as the model reads those of labels; None where they have none.
    near: for each numbers of trained labels that a person named.
    examples: E documents; targets: (E, A) CSR of ones.
    """

    texts: Batch | None
    near: Sequence[I64]
    examples: Batch | None = None
    targets: Csr | None = None

    def is_silent(self, row: int) -> bool:
        """Whether a label has no text that says anything."""
        return self.texts is None or bool(self.texts.is_empty()[row])

    def counts(self) -> I64:
        """(A,) examples of each."""
        if self.targets is None:
            return np.zeros(len(self.near), np.int64)
        return np.bincount(self.targets.indices, minlength=len(self.near)).astype(np.int64)


@dataclass(frozen=True)
class Trained:
    """What is known of trained labels.

    texts: of the labels `numbers`, as the model reads them; None where there are none.  counts: (L,) their documents.
    documents: some that the model knows, for comparison.
    """

    numbers: I64
    texts: Batch | None
    counts: I64
    documents: Batch


def looked_at(count: int) -> I64:
    """The trained labels that new ones are made from."""
    if count <= _LABELS:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.random.default_rng(0x1ABE1).permutation(count)[:_LABELS]).astype(np.int64)


def known_documents(count: int) -> I64:
    """Which of `count` documents new labels are compared on."""
    return np.sort(np.random.default_rng(0xD0C5).permutation(count)[:_DOCUMENTS]).astype(np.int64)


def added_labels(space: LabelSpace, wish: Wish, trained: Trained) -> AddedLabels:
    """The rows of new labels."""
    counts, rows = wish.counts(), space.rows(trained.numbers).astype(np.float64)
    seen = trained.counts[trained.numbers]
    expected = np.maximum(counts, _typical_count(seen))
    texts = None if wish.texts is None else space.texts(wish.texts)
    known = None if trained.texts is None or texts is None else space.texts(trained.texts)
    read = Regression.of(rows, seen, known)
    made, near = read.rows(texts if known is not None else None, expected), np.full(len(counts), -1, dtype=np.int32)
    if known is not None and texts is not None:
        among = Nearest(unit_rows(known), rows - read.rows(known, seen))
        mixed, first = among.mixed(unit_rows(texts))
        made += among.trust() * mixed
        near = trained.numbers[first].astype(np.int32)
    for row, named in enumerate(wish.near):
        if len(named):
            # A person knows better than texts: the middle between what texts say and the labels that were named.
            named_rows = space.rows(named).astype(np.float64).mean(axis=0)
            made[row] = named_rows if wish.is_silent(row) else (made[row] + named_rows) / 2
            near[row] = named[0]
    documents = space.documents(trained.documents).astype(np.float64)
    if wish.examples is not None and wish.targets is not None:
        usual = documents.mean(axis=0)
        made = taught(made, space.documents(wish.examples).astype(np.float64), wish.targets, usual)
    made = modest(made, counts, space, documents, rows)
    sparse = None if wish.examples is None else wish.examples.sparse
    return AddedLabels(
        made.astype(np.float32),
        near,
        counts,
        None if texts is None else np.ascontiguousarray(texts, np.float32),
        sparse,
        None if sparse is None else wish.targets,
    )


def _typical_count(counts: I64) -> int:
    """Documents of the label in the middle, of those that have any."""
    some = counts[counts > 0]
    return int(np.median(some)) if len(some) else 1


@dataclass(frozen=True)
class Regression:
    """Rows as a linear function of texts, the logarithm of how often a label was seen, and a constant.

    weights: (H + 2, D + 1).
    """

    weights: F64

    @classmethod
    def of(cls, rows: F64, counts: I64, texts: F32 | None) -> Regression:
        """By least squares with a ridge on what belongs to texts."""
        x = _columns(texts, counts)
        square = x.T @ x
        width = x.shape[1] - 2
        # Documents know no scale of their own: the ridge is in labels of average length.
        square[np.arange(width), np.arange(width)] += (
            _RIDGE * max(np.trace(square[:width, :width]), 1e-12) / max(width * len(x), 1)
        )
        square[np.arange(width, width + 2), np.arange(width, width + 2)] += 1e-6 * len(x)
        return cls(np.asarray(np.linalg.solve(square, x.T @ rows), dtype=np.float64))

    def rows(self, texts: F32 | None, counts: I64) -> F64:
        """(n, D + 1)"""
        found: F64 = _columns(texts, counts) @ self.weights
        return found


def _columns(texts: F32 | None, counts: I64) -> F64:
    level = np.log1p(counts.astype(np.float64))[:, None]
    given = [] if texts is None else [texts.astype(np.float64)]
    return np.concatenate([*given, level, np.ones_like(level)], axis=1)


@dataclass(frozen=True)
class Nearest:
    """What the labels with the nearest texts have beyond their texts.

    texts: (l, H) of unit length.  left: (l, D + 1), what the regression leaves of their rows.
    """

    texts: F32
    left: F64

    def mixed(self, asked: F32, own: I64 | None = None) -> tuple[F64, I64]:
        """(n, D + 1): the mean of the neighbours, nearer ones counting more; and the nearest of each (n,).

        asked: (n, H) of unit length.  own: (n,) labels that are not neighbours of themselves.
        """
        found, first = np.zeros((len(asked), self.left.shape[1])), np.zeros(len(asked), np.int64)
        most = min(_NEIGHBOURS, len(self.texts) - (own is not None))
        for start in range(0, len(asked) if most > 0 else 0, _BLOCK):
            part = slice(start, start + _BLOCK)
            similarity = asked[part] @ self.texts.T
            if own is not None:
                similarity[np.arange(len(similarity)), own[part]] = -1
            near = np.argpartition(-similarity, most - 1, axis=1)[:, :most]
            weights = np.maximum(np.take_along_axis(similarity, near, axis=1), 0).astype(np.float64) ** _SHARPNESS
            first[part] = np.take_along_axis(near, weights.argmax(axis=1)[:, None], axis=1)[:, 0]
            weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
            found[part] = np.einsum("nm,nmd->nd", weights, self.left[near])
        return found, first

    def trust(self) -> float:
        """What neighbours should count, from 0 to 1: what would have been best for trained labels."""
        chosen = np.sort(np.random.default_rng(0x7A57).permutation(len(self.texts))[:_BLOCK]).astype(np.int64)
        mixed, _ = self.mixed(self.texts[chosen], chosen)
        return float(np.clip((mixed * self.left[chosen]).sum() / max((mixed * mixed).sum(), 1e-12), 0, 1))


def taught(made: F64, examples: F64, targets: Csr, usual: F64) -> F64:
    """Rows that are moved towards the mean of their examples, as seen from the usual document, until the mean score of
    the examples is where that of a label's own documents should be; of few examples not all of the way.

    examples: (E, D + 1).  usual: (D + 1,), the mean of documents that the model knows.
    """
    by_label, out = targets.T.tocsr(), made.copy()
    for label in np.flatnonzero(np.diff(by_label.indptr)):
        own = examples[by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]]
        direction = own.mean(axis=0) - usual
        missing = float(np.maximum(_REACHED - own @ made[label], 0).mean()) * len(own) / (len(own) + 1)
        # Documents as usual as can be keep their scores: what the row gains there, the bias loses.
        step = direction * (missing / max(float(direction @ direction), 1e-12))
        step[-1] = -float(step[:-1] @ usual[:-1])
        out[label] += step
    return out


def modest(made: F64, counts: I64, space: LabelSpace, documents: F64, rows: F64) -> F64:
    """Rows whose scores differ less between documents and are higher in all: what is not sure should not come first,
    but be found.

    documents: (n, D + 1) that the model knows.  rows: (l, D + 1) of trained labels.
    The height of a label is what its scores on a tenth of the documents reach. All new labels with examples have one
    height, and all without: at which rows of trained labels, made as modest, would be among the best `_BEST` labels of
    a given share of the documents, or as often as a trained label is in the mean, if that is more.
    """
    out = made.copy()
    for known, way in ((False, space.untaught), (True, space.taught)):
        chosen = np.flatnonzero((counts > 0) == known)
        if way is None or not len(chosen):
            continue
        wanted = min(way.share, way.together / len(chosen))
        height = _height_for(min(max(wanted, _BEST / len(rows)), 1.0), way.slope, documents, rows)
        for start in range(0, len(chosen), _BLOCK):
            some = chosen[start : start + _BLOCK]
            out[some, :-1] *= way.slope
            out[some, -1] += height - _heights(documents @ out[some].T)
    return out


def _height_for(share: float, slope: float, documents: F64, rows: F64) -> float:
    """At which height rows would be among the best of so many documents."""
    best = min(_BEST, len(rows))
    bars = np.empty(len(documents))
    for start in range(0, len(documents), _BLOCK):
        scores = documents[start : start + _BLOCK] @ rows.T
        bars[start : start + _BLOCK] = np.partition(scores, len(rows) - best, axis=1)[:, len(rows) - best]
    chosen = np.sort(np.random.default_rng(0x1E7E1).permutation(len(rows))[:_SAMPLE])
    scores = documents @ (rows[chosen] * slope).T
    return float(np.quantile(bars[:, None] - (scores - _heights(scores)), share))


def _heights(scores: F64) -> F64:
    """(l,) of scores (documents, l)."""
    found: F64 = np.quantile(scores, 0.9, axis=0)
    return found
