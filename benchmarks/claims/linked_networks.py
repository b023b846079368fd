"""Graph networks that look at metadata when they predict, too: what RAMEN is compared with. Both stand on the vectors
of a trained base encoder.

    a = (x + sum of the vectors of its anchors) / (1 + anchors)         gcn    h = unit(a + ReLU(a W))         one
    layer of a GCN m = mean of the vectors of its anchors                              sage   h = unit(x U + m V)
    GraphSAGE with means

Documents and labels go through the same layer; scores are cosines. Labels have the anchors they have. A test document
has none: it is linked to the anchors whose vectors are nearest to its own (`linked`), to none (`unlinked`), or to its
true ones (`oracle`). The last leaks by
construction: it is an analysis, never a method.

Paper: RAMEN Sec. 4 (OAK; Table 2, oracle linker; Table 8, what is missed). Differs: OAK itself (Mohan et al., ICML
2024) is not built. It trains encoder, linker and attention over metadata together; here the encoder is trained first
and stays as it is, and one layer is trained by decoupled softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.claims.measures import Columns, Trained, columns_of
from longtail import metrics
from longtail.errors import ConfigError
from longtail.graph.anchor_graph import anchor_graphs
from longtail.graph.ops import scale_rows_to_sum_one
from longtail.recipes.towers.network import PairTask, label_pool, pair_loss
from longtail.search.index import ExactIndex
from longtail.search.negatives import forbidden_pairs
from longtail.types import F32, Csr, TopK

Kind: TypeAlias = Literal["gcn", "sage"]
Links: TypeAlias = Literal["linked", "unlinked", "oracle"]

MISSED_KS = (5, 10, 20, 50, 100)
EPOCHS, BATCH, RATE, TEMPERATURE = 15, 256, 1e-3, 0.1
# Labels of a step beside those of its documents.
MOST_LABELS = 2000


@dataclass(frozen=True)
class Sides:
    """Unit vectors, and rows of anchors: (n, D) items, (M, D) anchors, (n, M) CSR edges."""

    items: F32
    anchors: F32
    edges: Csr

    def inputs(self, kind: Kind) -> F32:
        """What the layer reads: (n, D) for gcn, (n, 2D) for sage."""
        if kind == "sage":
            means = scale_rows_to_sum_one(self.edges) @ self.anchors
            return np.concatenate([self.items, np.asarray(means, np.float32)], axis=1)
        degrees = np.diff(self.edges.indptr)[:, None]
        return ((self.items + self.edges @ self.anchors) / (1 + degrees)).astype(np.float32)


class LinkedLayer(nn.Module):
    """Starts as the mean (gcn) or as the item alone (sage)."""

    def __init__(self, kind: Kind, width: int) -> None:
        super().__init__()
        self.kind = kind
        start = torch.zeros(width, width) if kind == "gcn" else torch.cat([torch.eye(width), torch.zeros(width, width)])
        self.weight = nn.Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        h = x + torch.relu(x @ self.weight) if self.kind == "gcn" else x @ self.weight
        return nn.functional.normalize(h, dim=1)

    @torch.no_grad()
    def vectors(self, inputs: F32) -> F32:
        found: F32 = self(torch.from_numpy(inputs)).numpy()
        return found


def trained_layer(kind: Kind, documents: F32, labels: F32, targets: Csr, masked: Any, seed: int) -> LinkedLayer:
    """documents: (N, .) and labels: (L, .) inputs of the layer."""
    rng = np.random.default_rng([seed, 0x6C4])
    layer = LinkedLayer(kind, documents.shape[1] // (2 if kind == "sage" else 1))
    with torch.no_grad():
        # With a weight of zero a ReLU of gcn would never wake.
        layer.weight.add_(0.01 * torch.from_numpy(rng.standard_normal(layer.weight.shape).astype(np.float32)))
    task = PairTask(targets, forbidden_pairs(targets, masked), "softmax", 0.0, 0, TEMPERATURE)
    adam = torch.optim.Adam(layer.parameters(), lr=RATE)
    x, z = torch.from_numpy(documents), torch.from_numpy(labels)
    for _ in range(EPOCHS):
        for rows in np.array_split(rng.permutation(len(x)), max(len(x) // BATCH, 1)):
            others = rng.choice(len(z), min(MOST_LABELS, len(z)), replace=False)
            pool = label_pool(rows, targets, task.forbidden, rng, np.concatenate([others, targets[rows].indices]))
            loss = pair_loss(layer(x[rows]), layer(z[pool.labels]), pool, task)
            adam.zero_grad()
            torch.autograd.backward(loss)
            adam.step()
    return layer


def nearest_links(documents: F32, anchors: F32, count: int) -> Csr:
    """(n, M) CSR: each document linked to its `count` nearest anchors."""
    from scipy.sparse import csr_array

    found = ExactIndex.build(anchors).query(documents, min(count, len(anchors))).ids
    indptr = np.arange(len(found) + 1) * found.shape[1]
    return csr_array((np.ones(found.size, np.float32), found.ravel(), indptr), shape=(len(found), len(anchors)))


def ranked(trained: Trained, kind: Kind, links: Links) -> TopK:
    """Test documents of a world with a graph, ranked by a layer that is trained on its training documents."""
    data, bundle = trained.training, trained.predictor.bundle
    ranker: Any = bundle.ranker
    graph = next((graph for graph in anchor_graphs(data.graphs) if set(graph.sides) == {"documents", "labels"}), None)
    anchors = None if graph is None else data.graphs[graph.name].anchors
    if graph is None or anchors is None or data.label_texts is None:
        raise ConfigError(
            "a linked network needs a graph with edges of documents and of labels",
            "measure this on planted data with a graph",
        )
    of_anchors: F32 = ranker.encoder.encode(bundle.featurizer.batch_of_texts(list(anchors.fields["title"])))
    documents = Sides(ranker.encoder.encode(data.documents), of_anchors, graph.sides["documents"])
    labels = Sides(ranker.encoder.encode(data.label_texts), of_anchors, graph.sides["labels"])
    layer = trained_layer(kind, documents.inputs(kind), labels.inputs(kind), data.targets, data.masked, trained.seed)
    of_test: F32 = ranker.encoder.encode(bundle.featurizer.batch(trained.world.dataset.need_test().documents))
    degrees = np.diff(documents.edges.indptr)
    usual = max(round(float(degrees[degrees > 0].mean())), 1)
    test = Sides(of_test, of_anchors, _test_links(trained, links, of_test, of_anchors, usual))
    index = ExactIndex.build(layer.vectors(labels.inputs(kind)))
    return index.query(layer.vectors(test.inputs(kind)), min(trained.world.yardstick.depth, len(labels.items)))


def _test_links(trained: Trained, links: Links, documents: F32, anchors: F32, usual: int) -> Csr:
    from scipy.sparse import csr_array

    if links == "linked":
        return nearest_links(documents, anchors, usual)
    if links == "unlinked":
        return csr_array((len(documents), len(anchors)), dtype=np.float32)
    planted = trained.world.planted
    if planted is None or planted.oracle_test is None:
        raise ConfigError(
            "edges of test documents are known of planted graphs only", "measure this on planted data with a graph"
        )
    return csr_array(planted.oracle_test, dtype=np.float32)


def missed_columns(trained: Trained, top: TopK) -> Columns:
    """Every metric of `ranking`, ``FN@k`` for more k, and what bins of equal volume contribute to it: ``FN@10 [5]``
    is the tail's.
    """
    yardstick = trained.world.yardstick
    found = dict(columns_of(yardstick.measure(top)))
    bins = metrics.bins_for("equal_volume", yardstick.counts)
    found |= columns_of(
        metrics.measure_bins(yardstick.cut(top), yardstick.truth, yardstick.inverse_propensity, bins, MISSED_KS)
    )
    whole = metrics.measure(
        yardstick.cut(top), yardstick.truth, yardstick.inverse_propensity, (1,), MISSED_KS, skip_empty=True
    )
    return found | {name: column for name, column in columns_of(whole).items() if name.startswith("FN@")}


def missed(trained: Trained) -> Columns:
    """`missed_columns` of the trained model itself."""
    return missed_columns(trained, trained.predictions())


def _network(kind: Kind, links: Links, trained: Trained) -> Columns:
    return missed_columns(trained, ranked(trained, kind, links))


def _named(kind: Kind, links: Links) -> Any:
    measure: Any = partial(_network, kind, links)
    measure.__name__ = f"{kind}_{links}"
    return measure


gcn_linked, gcn_unlinked, gcn_oracle = (_named("gcn", links) for links in ("linked", "unlinked", "oracle"))
sage_linked, sage_oracle = (_named("sage", links) for links in ("linked", "oracle"))


def tail_gains_most(
    ours: Sequence[Columns], theirs: Sequence[Columns], k: int = 10
) -> tuple[list[Any], list[Any], str]:
    """Per seed: how much the tail bin adds to FN@k(ours) - FN@k(theirs), and the same of that other bin which comes
    nearest to it in the mean.
    """
    from benchmarks.claims.verdict import Column

    names = [name for name in ours[0] if name.startswith(f"FN@{k} [")]

    def changes(name: str) -> list[Any]:
        return [
            Column(a[name].numerator - b[name].numerator, a[name].denominator)
            for a, b in zip(ours, theirs, strict=True)
        ]

    by_bin = {name: changes(name) for name in names}
    rival = min(names[:-1], key=lambda name: float(np.mean([column.value for column in by_bin[name]])))
    return by_bin[names[-1]], by_bin[rival], rival
