"""The keyword graph of one text, in words: what tests look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longtail.recipes.gnnxml.keygraph import GraphBuilder, KeyGraphConfig, assembled, plain_reader


class KeyGraph(NamedTuple):
    """One document's graph, to look at.

    vertices: keywords, "" for the empty one.  edges: (u, v) with u < v.  weights: of edges.
    sentence_index: the sentences of each vertex, as numbers into `sentences`.
    """

    vertices: list[str]
    edges: list[tuple[int, int]]
    weights: list[int]
    sentence_index: list[list[int]]
    sentences: list[str]


def keygraph(text: str, config: KeyGraphConfig | None = None, common: Sequence[str] = ()) -> KeyGraph:
    """The keyword graph of one text. common: words that are no keywords, beside the stop words."""
    builder = GraphBuilder(config or KeyGraphConfig(), common, plain_reader())
    made = builder.block([text], 1)
    graphs = assembled([(made.pieces, np.zeros((len(made.sentences), 1), np.float32))], 1)
    edges = [
        (u, int(v), int(w))
        for u, (begin, end) in enumerate(zip(graphs.edge_starts[:-1], graphs.edge_starts[1:], strict=True))
        for v, w in zip(graphs.neighbours[begin:end], graphs.weights[begin:end], strict=True)
        if u < v
    ]
    return KeyGraph(
        made.names,
        [(u, v) for u, v, _ in edges],
        [w for _, _, w in edges],
        [part.tolist() for part in np.split(graphs.attached, graphs.attach_starts[1:-1])] if graphs.n_vertices else [],
        made.sentences,
    )
