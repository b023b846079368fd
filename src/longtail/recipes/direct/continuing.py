"""`direct` goes on from a trained model: its words, its rows and what lies between begin where that one ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from longtail.errors import ConfigError
from longtail.features.sparse import SparseText
from longtail.models.encoders import FrozenBag, FrozenSum, Refinement, ResidualMap
from longtail.models.new_labels import Regression
from longtail.models.rankers import IndexedRows
from longtail.models.renumbered import RenumberedLabels
from longtail.nn.batches import to_numpy
from longtail.nn.blocks import Block, Residual
from longtail.nn.encoders import BagEncoder, BagSum
from longtail.nn.row_tables import RowTable
from longtail.recipes.direct.members import members_to_go_on
from longtail.recipes.direct.network import Learner, Shared, label_text_rows, learner_of
from longtail.recipes.direct.ranker import HiddenMap
from longtail.recipes.direct.sampled import TextParts
from longtail.recipes.direct.settings import DirectConfig
from longtail.search.packed import PackedRows
from longtail.training.parent import ParentModel
from longtail.training.run import Run
from longtail.types import F32, Csr

# What a training that goes on has of the epochs and of the rate of one from the beginning.
EPOCHS_SHARE, FEWEST_EPOCHS, RATE_SHARE = 0.2, 2, 0.5
# And one that was projected from several and goes on alone, which dropout and long steps would spoil.
PROJECTED_RATE_SHARE, PROJECTED_DROPOUT = 0.1, 0.1
# How long vectors of new words are, beside those of before.
_NEW_WORDS = 0.1


class HiddenBlock(Block):
    """x = T v + S dropout(ReLU(H v)): the torch twin of `HiddenMap`, of which it begins."""

    def __init__(self, of: HiddenMap, dropout: float) -> None:
        super().__init__()
        self.straight, self.into, self.out = (
            nn.Parameter(torch.from_numpy(np.array(matrix))) for matrix in (of.straight, of.into, of.out)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, v_BD: Tensor) -> Tensor:
        hidden = self.dropout(torch.relu(nn.functional.linear(v_BD, self.into)))
        return nn.functional.linear(v_BD, self.straight) + nn.functional.linear(hidden, self.out)

    def frozen(self) -> HiddenMap:
        return HiddenMap(*map(to_numpy, (self.straight, self.into, self.out)))


def trained_rows(start: ParentModel) -> IndexedRows:
    """The model inside, whatever was hidden or joined since."""
    ranker = start.bundle.ranker
    inner = ranker.base if isinstance(ranker, RenumberedLabels) else ranker
    encoder = inner.encoder if isinstance(inner, IndexedRows) else None
    if not isinstance(inner, IndexedRows) or not isinstance(encoder, FrozenSum | FrozenBag):
        raise ConfigError(
            f"{start.bundle.folder}: a model of the recipe '{start.bundle.manifest.get('recipe')}' with these settings "
            "cannot be gone on from",
            "go on from one model of 'direct' that reads words (not an ensemble)",
        )
    if isinstance(encoder.table, PackedRows):
        raise ConfigError(
            f"{start.bundle.folder}: a packed model cannot be gone on from", "give the run it was made of"
        )
    return inner


@dataclass(frozen=True)
class Begin:
    """Where one model begins.  words: (V, D) of the words of before.  rows: (L, D + 1) of the labels of before.
    rectified: whether documents are bags with a ReLU.
    """

    words: F32
    rectified: bool
    refinement: Refinement | None
    rows: F32


def begins(start: ParentModel) -> Iterator[Begin]:
    """The model, or those that it was made of, where its run has them and labels are as they were."""
    model, members = trained_rows(start), members_to_go_on(start)
    if members is None:
        assert isinstance(model.encoder, FrozenSum | FrozenBag), "`trained_rows` checks it"
        rectified = not isinstance(model.encoder, FrozenSum)
        yield Begin(np.asarray(model.encoder.table[:]), rectified, model.refinement, start.rows())
        return
    for number in range(len(members)):
        words, residual, rows = members.model(number)
        yield Begin(words, False, None if residual is None else ResidualMap(residual), rows)


def continued_learners(config: DirectConfig, shared: Shared, run: Run, start: ParentModel) -> list[Learner]:
    """Models that begin where others ended."""
    if config.features.view != "none":
        raise ConfigError(
            f"features.view={config.features.view} with a model to go on from: it has learnt without one",
            "go on without a view, or train anew",
        )
    return [
        _continued(config, shared, run, start, begin, (number,) if number else ())
        for number, begin in enumerate(begins(start))
    ]


def rate_share(start: ParentModel) -> float:
    projected = any(isinstance(begin.refinement, HiddenMap) for begin in islice(begins(start), 1))
    return PROJECTED_RATE_SHARE if projected else RATE_SHARE


def _continued(
    config: DirectConfig, shared: Shared, run: Run, start: ParentModel, begin: Begin, keys: tuple[int, ...]
) -> Learner:
    """keys: name its random numbers."""
    device, rows = run.device, begin.rows
    if isinstance(begin.refinement, HiddenMap):
        dropout = min(config.encoder.dropout, PROJECTED_DROPOUT)
        config = replace(config, encoder=replace(config.encoder, dropout=dropout))
    encoder = _encoder(config, shared, run, start, begin, keys)
    texts = label_text_rows(config, shared, encoder)
    biases = np.full(len(shared.trust), np.median(rows[:, -1]), dtype=np.float32)
    biases[: len(rows)] = rows[:, -1]
    free = np.zeros((len(shared.trust), encoder.width), dtype=np.float32)
    left = np.array(rows[:, :-1], dtype=np.float32)
    if texts is not None and shared.data.label_texts is not None:
        words: Csr = shared.data.label_texts.sparse
        sums = np.asarray(words @ to_numpy(encoder.table.weight), dtype=np.float32)
        first = texts.part(0) if isinstance(texts, TextParts) else texts
        known = sums[: len(rows)]
        with torch.no_grad():
            if first.map is not None:
                # Counts are no part of a row here: what the regression gives to texts alone is the matrix.
                found = Regression.of(left.astype(np.float64), np.zeros(len(rows), np.int64), known).weights
                matrix = found[: encoder.width].astype(np.float32)
                first.map.copy_(torch.from_numpy(matrix).to(first.map.device))
                left -= known @ matrix
            else:
                gain = float((known * left).sum() / max(float((known * known).sum()), 1e-12))
                first.gain.fill_(gain)
                left -= gain * known
    trust = to_numpy(shared.trust)[: len(rows)]
    free[: len(rows)] = left / np.maximum(trust, 1e-3)
    network = encoder, _block(config, begin.refinement, run), texts
    begin_at = torch.from_numpy(free).to(device), torch.from_numpy(biases).to(device)
    return learner_of(config, shared, run, network, *begin_at)


def _encoder(
    config: DirectConfig, shared: Shared, run: Run, start: ParentModel, begin: Begin, keys: tuple[int, ...]
) -> BagSum | BagEncoder:
    """Words of before with their vectors; new ones short, as nothing is known of them."""
    reads, theirs = shared.data.featurizer, start.featurizer
    assert isinstance(reads, SparseText), "`ParentModel` checks it"
    table = begin.words
    vectors, new = reads.rows_by_spelling(table, theirs), ~np.isin(reads.keys, theirs.keys)
    fresh = run.rng("encoder", *keys).standard_normal((int(new.sum()), table.shape[1]), dtype=np.float32)
    vectors[new] = fresh * (_NEW_WORDS * _usual_length(table) / table.shape[1] ** 0.5)
    kind = BagEncoder if begin.rectified else BagSum
    return kind(RowTable(torch.from_numpy(vectors)), dropout=config.encoder.dropout).to(run.device)


def _usual_length(table: F32) -> float:
    return float(np.sqrt(np.mean(np.einsum("ij,ij->i", table, table))))


def _block(config: DirectConfig, refinement: Refinement | None, run: Run) -> Block | None:
    dropout = config.encoder.dropout
    if refinement is None:
        return None
    if isinstance(refinement, HiddenMap):
        return HiddenBlock(refinement, dropout).to(run.device)
    assert isinstance(refinement, ResidualMap), "direct has no other"
    block = Residual(refinement.weight.shape[0], run.rng("residual"), dropout=dropout, mode="off")
    with torch.no_grad():
        block.weight.copy_(torch.from_numpy(np.array(refinement.weight)))
    return block.to(run.device)
