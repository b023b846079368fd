"""Looking inside a trained `JointGraphModel`: which hops labels attend to, what embeddings recall, sizes of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail import metrics
from longtail.metrics.label_groups import Bins, equal_count
from longtail.models.analysis import Look
from longtail.persistence import Part
from longtail.recipes.galaxc.encoders import FrozenHops
from longtail.recipes.galaxc.ranker import JointGraphModel
from longtail.search.index import ExactIndex
from longtail.types import I64, Batch, Csr, TopK

Floats = NDArray[np.float64]

# Training documents whose views are measured.
_SAMPLE = 2000


def inside_graph(model: JointGraphModel, look: Look) -> dict[str, Any]:
    """What parts weigh, which hops labels attend to, what embeddings recall and what shortlists cost; recall and P in
    percent. Paper: GalaXC Table 4, Fig. 6.
    """
    bins, attended = attention_by_frequency(model, look.counts)
    evenly = np.ones(model.n_labels)
    return {
        "bytes": bytes_of_parts(model),
        "nodes": len(model.space.graph),
        "edges": len(model.space.graph.neighbours),
        "isolated_nodes": int((model.space.graph.degrees == 0).sum()),
        "attention_times_length_by_hop": dict(zip(bins.names, np.nan_to_num(attended).round(4).tolist(), strict=True)),
        "R@100_of_embeddings": {
            name: round(value, 3) for name, value in embedding_recall(model, look.batch, look.truth).items()
        },
        "P@1": {
            name: round(metrics.measure(ranker.rank(look.batch, 1), look.truth, evenly, (1,), ()).values()["P@1"], 3)
            for name, ranker in (("with shortlists", model), ("all labels scored", model.exhaustive()))
        },
    }


def hop_norms(model: JointGraphModel) -> Floats:
    """(K,): the mean length of each view of training documents (some of them, spread evenly)."""
    n = len(model.space.graph.nodes)
    rows = np.linspace(0, n - 1, min(_SAMPLE, n)).astype(np.int64)
    return np.linalg.norm(model.training_views(rows).score.astype(np.float64), axis=2).mean(axis=0)


def attention(model: JointGraphModel) -> Floats:
    """(L, K): what each view counts for each label; rows sum to one."""
    if model.alphas is None:
        return np.full((model.n_labels, model.hops.views), 1 / model.hops.views)
    return model.alphas.astype(np.float64)


def attention_by_frequency(
    model: JointGraphModel, counts: I64, binned: Callable[[I64], Bins] = equal_count
) -> tuple[Bins, Floats]:
    """Bins of labels by frequency, head first, and (Q, K) the mean attention to each hop times its mean length; nan
    where a bin is empty.

    counts: (L,) training documents per label. Paper: GalaXC Fig. 6 (which shows rare labels first). Lengths matter:
    sums over wide neighbourhoods are longer, so little attention to them may still be much.
    """
    bins, weights = binned(counts), attention(model)
    sums = np.stack(
        [np.bincount(bins.bin_of_label, weights=column, minlength=len(bins)) for column in weights.T], axis=1
    )
    sizes = bins.n_labels[:, None].astype(np.float64)
    return bins, np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0) * hop_norms(model)


def embedding_recall(model: JointGraphModel, batch: Batch, truth: Csr, k: int = 100) -> dict[str, float]:
    """Share of documents' labels among the `k` whose embeddings are nearest, in percent, for each kind of embedding.

    truth: (B, L) CSR in the label numbers of the model; documents without labels are left out. Paper: GalaXC Table 4.
    """
    evenly = np.ones(truth.shape[1])
    return {
        name: metrics.measure(ranked, truth, evenly, (1,), (k,), skip_empty=True).values()[f"R@{k}"]
        for name, ranked in _rankings(model, batch, k)
    }


def _rankings(model: JointGraphModel, batch: Batch, k: int) -> Iterator[tuple[str, TopK]]:
    kinds: list[tuple[str, Any, int]] = [("initial", "raw", 0), ("transformed, mean of hops", "transformed", 0)]
    if isinstance(model.hops, FrozenHops):
        kinds.append(("convolved, mean of hops", "convolved", 0))
        kinds += [
            (f"{space}, hop {hop}", space, hop)
            for space in ("convolved", "transformed")
            for hop in range(1, model.hops.views + 1)
        ]
    for name, space, hop in kinds:
        labels = ExactIndex.build(model.embeddings(None, space, hop))
        yield name, labels.query(model.embeddings(batch, space, hop), min(k, model.n_labels))


def bytes_of_parts(model: JointGraphModel) -> dict[str, int]:
    """What prediction needs, by part: vectors of nodes too. Paper: GalaXC Sec. 5."""
    space = model.space
    parts = {
        "classifiers": _bytes(model, "classifier."),
        "attention": 0 if model.alphas is None else model.alphas.nbytes,
        "network": _bytes(model.hops),
        "initial encoder": _bytes(space.encoder),
        "vectors of nodes": space.vectors.nbytes,
        "edges": _bytes(space.graph),
        "index of nodes": 0 if space.linker is None else _bytes(space.linker),
        "index of labels": _bytes(model.index),
    }
    return {**parts, "all": sum(parts.values())}


def _bytes(part: Part, within: str = "") -> int:
    """Of what a part saves; within: of the fields whose names begin like this."""
    state = part.state()
    arrays = sum(array.nbytes for name, array in state.arrays.items() if name.startswith(within))
    nested = ((name, inner) for name, inner in state.parts.items() if name.startswith(within))
    return arrays + sum(_bytes(inner) for _, inner in nested if inner is not None)
