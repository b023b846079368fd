"""Which labels stand in for each other: a sparse label x label graph from the training labels, or given by the user.

Rare labels borrow from their neighbours in this graph: text (GALE), cluster centroids, and scores (GAME). A label
that very many documents carry is a *head*: a neighbour of everything, which would drown the rest. Walks do not pass
through heads, and a head keeps an edge to itself only. Paper: ECLARE Sec. 3.2; `docs/label-graph.md` goes through an
example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from longtail.config import setting
from longtail.errors import ConfigError, DataError
from longtail.graph.ops import (
    ensure_diagonal,
    expected_walk_graph,
    prune_rows,
    random_walk,
    random_walk_graph,
    scale_both_sides,
    scale_rows_to_sum_one,
    unit_rows,
)
from longtail.kernels.arrays import canonical, csr
from longtail.types import I32, BoolArray, Csr

Norm: TypeAlias = Literal["both", "perron", "rows"]

# Heads by default: labels of more documents than this, or than this share of all documents where that is fewer.
_HEAD_DOCUMENTS, _HEAD_SHARE = 500, 0.01
# Labels whose co-occurrences are counted at once, before they are cut to the largest.
_COOC_BLOCK = 20_000
# Edges whose texts are compared at once.
_TEXT_BLOCK = 100_000
# Chance of the Perron walk to jump anywhere, which makes its stationary distribution unique.
_TELEPORT = 1e-3
_PERRON_ROUNDS, _PERRON_CHANGE = 10_000, 1e-9


@dataclass(frozen=True)
class LabelGraphConfig:
    """Where the label graph comes from, and how it is cut and scaled."""

    source: Literal["walk", "cooc", "given", "walk+given", "exact", "none"] = setting(
        "walk",
        "walk: random walks through documents; cooc: co-occurrence; given: label-label graphs of the data; "
        "walk+given: both; "
        "exact: what walks count on average, for few labels; none: every label alone",
    )
    length: int = setting(400, "steps of the walk from each label", low=1)
    restart: float = setting(0.8, "chance of a step to go back to the start", low=0, high=1)
    top_k: int = setting(10, "labels kept per label and source, itself among them; 0: all", low=0)
    head_documents: int = setting(
        0,
        f"labels of more documents than this stay alone in the graph; 0: {_HEAD_DOCUMENTS}, or {_HEAD_SHARE:.0%} of "
        "all documents where that is fewer",
        low=0,
    )
    text_cosine: float = setting(
        0.0,
        "edges between labels whose texts have a lower cosine than this are left out (the released code prunes so); 0: "
        "none are",
        low=0,
        high=1,
    )
    norm: Norm = setting(
        "both",
        "both: by the roots of row and column sums; rows: rows sum to one; perron: by the stationary distribution",
    )


def head_labels(targets: Csr, documents: int = 0) -> BoolArray:
    """(L,) bool: labels of more than `documents` documents; 0: see `LabelGraphConfig`. targets: (N, L) CSR.

    Paper: ECLARE Sec. 3.2 (500). Differs: that many may be most of a small data set, where no label would be a head.
    """
    threshold = documents or min(_HEAD_DOCUMENTS, _HEAD_SHARE * int(targets.shape[0]))
    return np.bincount(targets.indices, minlength=targets.shape[1]) > threshold


def label_graph(
    targets: Csr,
    config: LabelGraphConfig,
    rng: np.random.Generator,
    given: Sequence[Csr] = (),
    texts: Csr | None = None,
) -> Csr:
    """The label graph: (L, L) CSR float32, not negative, its diagonal above zero, columns sorted.

    texts: (L, V) CSR, of labels, for `config.text_cosine`.

    targets: (N, L) CSR of training labels. given: (L, L) graphs of the user, read where the source says so. A head
    has G_hh = 1 and no other entry in its row and column. Counts of a walk are used as they are, with a diagonal of
    at least 1. Given graphs come in any unit and often without a diagonal: each of them, and the walk beside them, is
    scaled to rows that sum to one; then they are added and the diagonal is raised to at least 1, so that a label
    counts as much as one list of its neighbours.

    Paper: ECLARE Sec. 3.2. Differs, as the released code: only the `top_k` most visited labels of a row are kept, and
    the diagonal is forced (the paper relies on restarts, which make an empty diagonal unlikely, not impossible).
    """
    heads = head_labels(targets, config.head_documents)
    found = _sources(targets, heads, config, rng, given)
    if "given" in config.source:
        weights = _sum([scale_rows_to_sum_one(graph.astype(np.float64)) for graph in found])
    else:
        weights = found[0].astype(np.float64)
    if config.text_cosine and texts is not None:
        weights = near_in_text(weights, texts, config.text_cosine)
    return normalised(ensure_diagonal(weights), config.norm).astype(np.float32)


def near_in_text(graph: Csr, texts: Csr, least: float) -> Csr:
    """The graph without edges between labels whose texts have a cosine below `least`. Of a label without text nothing
    is known: its edges stay, and so does the diagonal.

    texts: (L, V) CSR. Paper: none; ECLARE's released code prunes edges by the distance of texts.
    """
    graph, unit = canonical(graph), unit_rows(texts.astype(np.float64))
    rows, ends = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr)), graph.indices
    silent = np.diff(unit.indptr) == 0
    kept = silent[rows] | silent[ends] | (rows == ends)
    for start in range(0, len(rows), _TEXT_BLOCK):
        part = slice(start, start + _TEXT_BLOCK)
        cosines = np.asarray(unit[rows[part]].multiply(unit[ends[part]]).sum(axis=1)).ravel()
        kept[part] |= cosines >= least
    return _where(graph, kept)


def normalised(graph: Csr, norm: Norm) -> Csr:
    """A non-negative graph scaled so that spreading along it neither blows up nor lets frequent labels win.

    both: A^-1/2 G B^-1/2 with the row and column sums A and B. Its largest singular value is 1, and an edge to a
    label that is rarely visited weighs more than one to a label that everybody visits. rows: each row sums to one.
    perron: `perron_scaled`.
    """
    return {"both": scale_both_sides, "rows": scale_rows_to_sum_one, "perron": perron_scaled}[norm](graph)


def perron_scaled(graph: Csr) -> Csr:
    """(F^1/2 P F^-1/2 + F^-1/2 P^T F^1/2) / 2, symmetric: P is the graph with rows that sum to one, F its stationary
    distribution.

    graph: square, no row empty. Paper: ECLARE Sec. 4 (ECLARE-PN), after Chung 2005.
    """
    from scipy.sparse import diags_array

    steps = scale_rows_to_sum_one(graph)
    root = np.sqrt(_stationary(steps))
    half = (diags_array(root) @ steps @ diags_array(1 / root)).tocsr()
    both = ((half + half.T) / 2).tocsr().astype(graph.dtype)
    both.sort_indices()
    return both


def walk_trace(
    targets: Csr, label: int, length: int, restart: float, rng: np.random.Generator, *, head_documents: int = 0
) -> I32:
    """The walk from one label as (length, 2) int32 of (document, label) steps, heads left out; empty for a head.
    Paper: ECLARE Fig. 4.
    """
    return random_walk(
        _without_heads(targets, head_labels(targets, head_documents)), label, length=length, restart=restart, rng=rng
    )


def _sources(
    targets: Csr, heads: BoolArray, config: LabelGraphConfig, rng: np.random.Generator, given: Sequence[Csr]
) -> list[Csr]:
    """The graphs that the settings name, cut to `top_k`, without edges from or to heads."""
    found: list[Csr] = []
    if config.source in ("walk", "walk+given"):
        tail = _without_heads(targets, heads)
        found.append(
            random_walk_graph(tail, length=config.length, restart=config.restart, rng=rng, top_k=config.top_k or None)
        )
    elif config.source == "exact":
        found.append(
            _cut(
                expected_walk_graph(_without_heads(targets, heads), length=config.length, restart=config.restart),
                config.top_k,
            )
        )
    elif config.source == "cooc":
        found.append(_cooccurrences(_without_heads(targets, heads), config.top_k))
    elif config.source == "none":
        n_labels = len(heads)
        found.append(
            csr(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(n_labels + 1, np.int64), (n_labels, n_labels))
        )
    if "given" in config.source:
        if not given:
            raise ConfigError(
                f"the label graph shall be '{config.source}', but the data holds no label-label graph",
                "use source=walk, or add graphs/<name>/lbl_lbl.npz",
            )
        found += [_cut(_without_head_edges(graph, heads), config.top_k) for graph in given]
    return found


def _without_heads(targets: Csr, heads: BoolArray) -> Csr:
    targets = canonical(targets)
    return _where(targets, ~heads[targets.indices])


def _without_head_edges(graph: Csr, heads: BoolArray) -> Csr:
    n_labels = len(heads)
    if graph.shape != (n_labels, n_labels):
        raise DataError(
            f"a label graph has shape {graph.shape}, expected {(n_labels, n_labels)}",
            "give one row and one column per label",
        )
    graph = canonical(graph)
    if not np.isfinite(graph.data).all() or (graph.data < 0).any():
        raise DataError("a label graph holds weights that are negative or not finite", "weights must be 0 or more")
    rows = np.repeat(np.arange(n_labels), np.diff(graph.indptr))
    return _where(graph, ~(heads[rows] | heads[graph.indices]))


def _where(matrix: Csr, kept: BoolArray) -> Csr:
    """A canonical matrix with only those of its entries that are `kept`."""
    before = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    return csr(matrix.data[kept], matrix.indices[kept], before[matrix.indptr], matrix.shape)


def _cut(graph: Csr, top_k: int, first_row: int = 0) -> Csr:
    return prune_rows(graph, top_k, keep_diagonal=True, first_row=first_row) if top_k else graph


def _cooccurrences(targets: Csr, top_k: int) -> Csr:
    """Documents that each two labels share, (L, L); block by block of labels, as the whole may be too big before it
    is cut.
    """
    from scipy.sparse import vstack

    by_label = targets.T.tocsr()
    firsts = range(0, max(by_label.shape[0], 1), _COOC_BLOCK)
    return vstack(
        [_cut((by_label[first : first + _COOC_BLOCK] @ targets).tocsr(), top_k, first) for first in firsts],
        format="csr",
    )


def _sum(graphs: Sequence[Csr]) -> Csr:
    total = graphs[0]
    for graph in graphs[1:]:
        total = (total + graph).tocsr()
    return total


def _stationary(steps: Csr) -> NDArray[np.float64]:
    """(L,) where a walk along `steps` (rows sum to one) that sometimes jumps anywhere is found in the long run, by
    power iteration.
    """
    n_labels = int(steps.shape[0])
    back, place = steps.T.tocsr().astype(np.float64), np.full(n_labels, 1 / n_labels)
    for _ in range(_PERRON_ROUNDS):
        moved = (1 - _TELEPORT) * (back @ place) + _TELEPORT / n_labels
        change = float(np.abs(moved - place).sum())
        place = moved
        if change < _PERRON_CHANGE:
            break
    return place
