"""GalaXC at work, without torch: link -> convolve -> shortlist -> score. And looks inside a trained model: which hops
labels attend to, what embeddings recall, sizes of parts.

What is said of a document depends on nothing but the document and its own context, unless documents are ranked together
(`Context.together`). Paper: GalaXC Sec. 4 (shortlisting and prediction).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from longtail import metrics
from longtail.declared import Between, Shaped, Sized
from longtail.errors import ConfigError
from longtail.explanation import Cause, Reasons
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import F64, Pieces, frozen, pieces, steady_product
from longtail.kernels.threads import threads_for
from longtail.metrics.label_groups import Bins, equal_count
from longtail.models.analysis import Look
from longtail.models.encoders import FrozenEncoder, FrozenGinLayer
from longtail.models.rankers import Classifier, best, sigmoid
from longtail.persistence import DataPart, Part
from longtail.picture import Picture
from longtail.recipes.galaxc.graph import GraphSpace, HiddenEdges, Paths, convolutions
from longtail.search.index import ExactIndex, Index, check_width
from longtail.search.negatives import ShortlistNegatives
from longtail.search.packed import Packer, stored
from longtail.search.shortlist import merged, voted
from longtail.types import F32, I32, I64, Batch, BoolArray, Context, ContextRanker, Csr, TopK

Averaged: TypeAlias = Literal["transformed", "convolved"]

# ---- graph encoders: what the networks of `network.py` become ----


class Views(NamedTuple):
    """search: (B, D), what a shortlist looks up.  score: (B, K, D), what classifiers read."""

    search: F32
    score: F32


class FrozenGraphEncoder(Part, Protocol):
    """Nodes, or documents linked to nodes, in; K views of each out. Samples are named by `seed`."""

    @property
    def views(self) -> int:
        """K"""
        ...

    def of_nodes(self, paths: Paths, nodes: I32, seed: int) -> Views: ...

    def of_linked(self, paths: Paths, vectors: F32, links: I32, seed: int, hidden: HiddenEdges | None = None) -> Views:
        """vectors: (B, D).  links: (B, m), -1 where there are fewer.  hidden: what paths do not take."""
        ...

    def pulled(self, sums: F32, directions: F32) -> tuple[F32, F32] | None:
        """Directions handed back through the encoder (`FrozenHops.pulled`); None where views are no sums of paths."""
        ...

    @property
    def spaces(self) -> tuple[Averaged, ...]:
        """Which vectors of a node it can show."""
        ...

    def showing(self, space: Averaged) -> FrozenGraphEncoder:
        """An encoder whose views are these vectors."""
        ...


@dataclass(frozen=True)
class FrozenHops(DataPart):
    """v^k = h + ReLU(R_k h + b_k), h = ReLU(a^k), with batch norm folded into R and b.

    epsilons: (K,).  weight: (K, D, D).  bias: (K, D).
    space: what is averaged over hops for the search: v^k (the paper), or a^k (the released code).
    balanced: every hop is scaled to unit length before; sums over wide neighbourhoods are longer and would drown the
        others.
    """

    KIND = "frozen-hops"

    epsilons: Annotated[F32, Shaped("hops")]
    weight: Annotated[F32, Shaped("hops", "width", "width")]
    bias: Annotated[F32, Shaped("hops", "width")]
    pre_relu: bool = True
    space: Averaged = "transformed"
    balanced: bool = False

    @property
    def views(self) -> int:
        return len(self.epsilons)

    @property
    def hops(self) -> int:
        return len(self.epsilons)

    @property
    def width(self) -> int:
        return int(self.bias.shape[1])

    def of_nodes(self, paths: Paths, nodes: I32, seed: int) -> Views:
        return self._views(paths.of_nodes(nodes, seed))

    def of_linked(self, paths: Paths, vectors: F32, links: I32, seed: int, hidden: HiddenEdges | None = None) -> Views:
        return self._views(paths.of_linked(vectors, links, seed, hidden))

    def _views(self, sums: F32) -> Views:
        convolved = self.convolved(sums)
        score = self.transformed(convolved)
        averaged = score if self.space == "transformed" else convolved
        if self.balanced:
            averaged = unit_rows(averaged.reshape(-1, averaged.shape[2])).reshape(averaged.shape)
        return Views(averaged.mean(axis=1), score)

    def pulled(self, sums: F32, directions: F32) -> tuple[F32, F32]:
        """(B, C, 2^K, D) directions whose products with sums along paths (B, 2^K, D) are those of the views with
        `directions` (B, C, K, D), but for a constant (B, C). What ReLU lets through is taken as it is here.
        """
        convolved = self.convolved(sums)
        opened = np.maximum(convolved, 0) if self.pre_relu else convolved
        kinds = sums.shape[1]
        # What each kind of path counts in each view.
        counts = np.stack(list(convolutions(np.eye(kinds, dtype=np.float32)[None], self.epsilons)), axis=1)[0]
        back = np.zeros((*directions.shape[:2], kinds, directions.shape[3]), dtype=np.float32)
        constant = np.zeros(directions.shape[:2], dtype=np.float32)
        for hop in range(self.views):
            mapped = steady_product(opened[:, hop], self._weight[hop]) + self.bias[hop]
            passed = directions[:, :, hop] * (mapped > 0)[:, None]
            constant += passed @ self.bias[hop]
            direction = directions[:, :, hop] + passed @ self.weight[hop]
            if self.pre_relu:
                direction = direction * (convolved[:, hop] > 0)[:, None]
            back += counts[hop][:, None] * direction[:, :, None]
        return back, constant

    @property
    def spaces(self) -> tuple[Averaged, ...]:
        return "convolved", "transformed"

    def showing(self, space: Averaged) -> FrozenHops:
        if space == "transformed":
            return replace(self, balanced=False, space="transformed")
        # Transformations that add nothing leave the convolved vectors.
        return FrozenHops(self.epsilons, np.zeros_like(self.weight), np.zeros_like(self.bias), pre_relu=False)

    def convolved(self, sums: F32) -> F32:
        """(B, K, D): a^1, ..., a^K from sums along paths (B, 2^K, D)."""
        return np.stack(list(convolutions(sums, self.epsilons)), axis=1)

    def transformed(self, convolved: F32) -> F32:
        """(B, K, D): v^1, ..., v^K."""
        out = np.maximum(convolved, 0) if self.pre_relu else convolved.copy()
        for hop in range(self.views):
            out[:, hop] += np.maximum(steady_product(out[:, hop], self._weight[hop]) + self.bias[hop], 0)
        return out

    @cached_property
    def _weight(self) -> F64:
        return self.weight.astype(np.float64)


@dataclass(frozen=True)
class FrozenSageLayer:
    """h = ReLU(W [own; message] + b).  weight: (D, 2 D).  bias: (D,).  signed: without the ReLU."""

    weight: Annotated[F32, Shaped("width", "_")]
    bias: Annotated[F32, Shaped("width")]
    signed: bool = False

    @property
    def width(self) -> int:
        return len(self.bias)

    def apply(self, own: F32, message: F32) -> F32:
        mixed: F32 = steady_product(np.concatenate([own, message], axis=-1), self._weight) + self.bias
        return mixed if self.signed else np.maximum(mixed, 0)

    @cached_property
    def _weight(self) -> F64:
        return self.weight.astype(np.float64)


@dataclass(frozen=True)
class FrozenMessages(DataPart):
    """GraphSAGE or GIN: a layer per hop, the last hop alone is the one view.

    mean: messages are means of neighbours (GraphSAGE), else sums (GIN).
    """

    KIND = "frozen-messages"
    SAMPLES: ClassVar[bool] = True  # it reads samples of neighbours: all of them have no shape

    layers: tuple[FrozenSageLayer | FrozenGinLayer, ...]
    mean: bool

    @property
    def views(self) -> int:
        return 1

    @property
    def hops(self) -> int:
        return len(self.layers)

    @property
    def width(self) -> int:
        return self.layers[-1].width

    @property
    def spaces(self) -> tuple[Averaged, ...]:
        return ("transformed",)

    def showing(self, space: Averaged) -> FrozenMessages:
        if space not in self.spaces:
            raise ConfigError(
                "only the encoder 'galaxc' has convolved embeddings", "use hops.encoder=galaxc, or space=transformed"
            )
        return self

    def pulled(self, sums: F32, directions: F32) -> None:
        """Its layers are no sums of paths."""

    def of_nodes(self, paths: Paths, nodes: I32, seed: int) -> Views:
        last = self._levels(paths, paths.samples(nodes, len(self.layers), seed))[-1]
        return Views(last, last[:, None])

    def of_linked(self, paths: Paths, vectors: F32, links: I32, seed: int, hidden: HiddenEdges | None = None) -> Views:
        real = links >= 0
        owners = np.repeat(np.arange(len(links)), real.sum(axis=1))
        samples = paths.samples(
            links[real], len(self.layers) - 1, seed, None if hidden is None else hidden.rows(owners)
        )
        weights = paths.fanout.link_weights(real.sum(axis=1), mean=self.mean)
        h: F32 = vectors
        for hop, (layer, theirs) in enumerate(zip(self.layers, self._levels(paths, samples), strict=True)):
            received: F32 = np.zeros(h.shape, dtype=np.float32)
            np.add.at(received, owners, theirs)
            h = layer.apply(h, received * weights[:, hop, None])
        return Views(h, h[:, None])

    def _levels(self, paths: Paths, samples: I32) -> list[F32]:
        """h^0, h^1, ... of the nodes that samples are around."""
        real = samples >= 0
        values: F32 = np.where(real[..., None], paths.vectors[samples], np.float32(0))
        found = [root_of(values)]
        for layer in self.layers[: samples.ndim - 1]:
            there = real[..., 1:, None]
            message: F32 = (values[..., 1:, :] * there).sum(axis=-2)
            if self.mean:
                message = message / np.maximum(there.sum(axis=-2), 1).astype(np.float32)
            values = layer.apply(values[..., 0, :], message)
            real = real[..., 0]
            found.append(root_of(values))
        return found


def root_of(values: Any) -> Any:
    """(B, D) of (B, ..., D), an array or a tensor: the first of samples is the node itself."""
    while values.ndim > 2:
        values = values[:, 0]
    return values


# ---- the model ----

# Documents handled at once: bounds the path sums (documents x 2^K x D) and the scores of shortlists.
_BLOCK = 1024
# Names the samples of prediction. Any number will do, as long as it is always the same.
_SEED = 0x6A1A


@dataclass(frozen=True)
class JointGraphModel(DataPart, ContextRanker):
    """score_l = beta sigmoid(sum over views k of alpha_lk (w_l . x^k)) + (1 - beta) sigmoid(cosine / temperature) for
    the labels whose mean view is nearest to that of the document, by that cosine; a label outside this shortlist is
    never predicted.

    index: over the (L, D) mean views of labels.  alphas: (L, K), or None where a label reads the mean view.
    node_labels: (n, L) CSR, the labels that each node has or is, or None. With it the `voters` nearest nodes vote for
        labels, and shortlists are of both: the cosine is then (1 - gamma) cosine + gamma vote, and the share `reserved`
        of the places is for labels that only the vote finds.
    """

    KIND = "joint-graph-model"

    space: Annotated[GraphSpace, Sized(n_labels="labels", n_nodes="nodes", width="width", hops="hops")]
    hops: Annotated[FrozenGraphEncoder, Sized(width="width", views="views", hops="hops")]
    index: Annotated[Index, Sized(len="labels", width="width")]
    classifier: Annotated[Classifier, Sized(len="labels", width="width")]
    alphas: Annotated[F32, Shaped("labels", "views")] | None
    shortlist_size: Annotated[int, Between(1)]
    beta: float = 1.0
    temperature: float = 1.0
    node_labels: Annotated[Csr, Shaped("nodes", "labels")] | None = None
    voters: Annotated[int, Between(1, 1 << 20)] = 100
    gamma: Annotated[float, Between(0, 1)] = 0.075
    reserved: Annotated[float, Between(0, 1)] = 0.2

    def __post_init__(self) -> None:
        if self.space.fanout.full and getattr(self.hops, "SAMPLES", False):
            raise ValueError("the encoder reads samples of neighbours, and all of them are to be read")

    @property
    def anchor_uids(self) -> Sequence[str]:
        return () if self.space.anchors is None else self.space.anchors.uids

    @property
    def n_labels(self) -> int:
        return len(self.classifier.rows)

    # ---- what else it can do ----

    def document_encoder(self) -> FrozenEncoder:
        return self.space.encoder

    def packed(self, packer: Packer) -> JointGraphModel:
        return replace(
            self,
            space=replace(self.space, encoder=self.space.encoder.packed(packer)),
            index=self.index.packed(packer),
            classifier=self.classifier.packed(packer),
        )

    def diagnose(self, look: Look) -> dict[str, Any]:
        return {"graph": inside_graph(self, look)}

    def pictures(self, look: Look) -> list[Picture]:
        """Which hops labels attend to. Paper: GalaXC Fig. 6."""
        bins, attended = attention_by_frequency(self, look.counts)
        hops = attended.shape[1]
        return [
            Picture(
                "Attention by hop",
                "How much each label takes from the document itself and from its neighbours in the graph: attention "
                "times the length of what is attended to, as a mean of labels of like frequency.",
                "bars",
                list(bins.names),
                {f"view {hop + 1} of {hops}": attended[:, hop].tolist() for hop in range(hops)},
                x_label="labels by frequency, in bins of as many labels",
                y_label="attention x length",
            )
        ]

    # ---- ranking ----

    def rank(self, batch: Batch, k: int) -> TopK:
        return self.rank_in_context(batch, k, Context())

    def rank_in_context(self, batch: Batch, k: int, context: Context) -> TopK:
        k = min(k, self.n_labels)
        top = TopK.padding(len(batch), k)
        together = None
        if context.together and len(batch):
            together = self.space.with_documents(self.space.initial(batch), context)
        for start in range(0, len(batch), _BLOCK):
            part = slice(start, min(start + _BLOCK, len(batch)))
            documents, own = batch.rows(part), context.rows(part)
            if together is None:
                views = self.views(documents, own)
            else:
                nodes = np.arange(part.start, part.stop, dtype=np.int32) + np.int32(len(self.space.graph))
                views = self.hops.of_nodes(together, nodes, _SEED)
            found = self._ranked(views, documents, own, k)
            top.ids[part], top.scores[part] = found.ids, found.scores
        return top

    def _shortlisted(self, views: Views, documents: Batch, context: Context) -> tuple[TopK, BoolArray]:
        """The nearest labels by cosine, and which of them are scored."""
        known = np.zeros(len(documents), dtype=np.int64) if context.labels is None else np.diff(context.labels.indptr)
        size = min(self.shortlist_size + int(known.max(initial=0)), self.n_labels)
        found = self.index.query(views.search, size)
        if self._node_labels is not None:
            near = self.space.nearest(self.space.initial(documents), count=self.voters)
            votes = voted(near, self._node_labels, size, voters=self.voters)
            found = merged(found, votes, size, weight=self.gamma, reserved=self.reserved)
        # Of a document without a known word nothing can be said, unless some of its labels are known. Known ones take
        # no place.
        kept = ~(documents.is_empty() & (known == 0))[:, None] & (
            np.arange(found.k) < (self.shortlist_size + known)[:, None]
        )
        if context.labels is not None:
            kept &= ~listed(found.ids, context.labels)
        return found, kept

    @cached_property
    def _node_labels(self) -> Pieces | None:
        return None if self.node_labels is None else pieces(self.node_labels)

    def _ranked(self, views: Views, documents: Batch, context: Context, k: int) -> TopK:
        found, kept = self._shortlisted(views, documents, context)
        ids = np.where(kept, found.ids, np.int32(TopK.PAD))
        # What is missing to 1, in double precision: float32 would make ties of all log-odds above 17, and 1 less
        # something in double precision of all above 37.
        classified = sigmoid(-self.scores(views.score, ids).astype(np.float64))
        near = sigmoid(-found.scores.astype(np.float64) / self.temperature)
        missing = self.beta * classified + (1 - self.beta) * near
        return best(ids, 1 - missing, k, by=-missing)

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """What the document's own words and each of its neighbours add, and what each hop does."""
        known = context or Context()
        vectors = self.space.initial(batch)
        links = self.space.linked(vectors, known)
        sums = self.space.paths.of_linked(vectors, links, _SEED)
        rows, bias = self.classifier.of(ids)
        counts = attention_to(self, np.maximum(ids, 0))
        directions = counts[..., None] * rows[:, :, None]
        pulled = self.hops.pulled(sums, directions)
        if pulled is None:
            return None
        back, constant = pulled
        found = self.space.shares(batch, back[:, :, 0])
        if found is None:
            return None
        shares, centre = found
        views = self.hops.of_linked(self.space.paths, vectors, links, _SEED)
        by_hop = np.einsum("bckd,bkd->bck", directions, views.score)
        near, listed = self._ranked_near(views, batch, known, ids)
        totals = (by_hop.sum(axis=2) + bias).astype(np.float32)
        scores = self.beta * sigmoid(totals.astype(np.float64)) + near
        return Reasons(
            scores=np.where(listed, scores, 0).astype(np.float32),
            totals=totals,
            shares=shares,
            bias=constant + centre + bias,
            formula=f"score = {self.beta:g} sigmoid(total) + nearness; total = bias of the label + all hops",
            found=listed,
            terms={
                "nearness": near,
                "bias of the label": bias,
                **{f"hop {hop + 1}": by_hop[:, :, hop] for hop in range(by_hop.shape[2])},
            },
            others=self._neighbour_causes(links, back, ids),
        )

    def _ranked_near(self, views: Views, batch: Batch, context: Context, ids: I32) -> tuple[F32, BoolArray]:
        """(B, C): the shortlist's part of the score, and whether the label is on it."""
        found, kept = self._shortlisted(views, batch, context)
        cosines, listed = TopK(np.where(kept, found.ids, np.int32(TopK.PAD)), found.scores).looked_up(ids)
        near = (1 - self.beta) * sigmoid(cosines.astype(np.float64) / self.temperature)
        return np.where(listed, near, 0).astype(np.float32), listed

    def _neighbour_causes(self, links: I32, back: F32, ids: I32) -> dict[tuple[int, int], list[Cause]]:
        """What each neighbour adds, with all that is reached through it."""
        causes: dict[tuple[int, int], list[Cause]] = {}
        for document, row in enumerate(links):
            nodes = row[row >= 0]
            if not len(nodes):
                continue
            # As if it were the only link, which then has the weight of all.
            alone = self.space.paths.of_linked(np.zeros((len(nodes), back.shape[3]), np.float32), nodes[:, None], _SEED)
            weights = self.space.paths.fanout.link_weights(np.array([1, len(nodes)]))
            for hop in range(weights.shape[1]):
                alone[:, 1 << hop : 2 << hop] *= weights[1, hop] / weights[0, hop]
            added = np.einsum("ncd,pcd->pn", alone, back[document])
            for place, label in enumerate(ids[document].tolist()):
                if label >= 0:
                    causes[document, place] = [
                        self._neighbour(int(node), label, float(share))
                        for node, share in zip(nodes, added[place], strict=True)
                    ]
        return causes

    def _neighbour(self, node: int, label: int, share: float) -> Cause:
        graph = self.space.graph
        if node < graph.n_labels:
            return Cause("label", node, "", share)
        row = next(iter(np.flatnonzero(graph.nodes == node).tolist()), -1)
        carries = label in graph.neighbours[graph.starts[node] : graph.starts[node + 1]]
        return Cause("document", row, f"training document {row}{', which has the label' if carries else ''}", share)

    def scores(self, views: F32, ids: I32) -> F32:
        """(B, C): documents (B, K, D) against labels of their own; 0 at padding."""
        if self.alphas is None:
            return self.classifier.scores(views.mean(axis=1), ids)
        from longtail.recipes.galaxc.kernels import score_views

        check_width(views[:, 0], self.classifier.width)
        found = np.empty(ids.shape, dtype=np.float32)
        with threads_for(len(ids), each=4):
            values, scales, _ = stored(self.classifier.rows)
            score_views(
                np.ascontiguousarray(views), values, scales, frozen(self.alphas), np.ascontiguousarray(ids), found
            )
        bias = self.classifier.bias
        return found if bias is None else found + np.where(ids >= 0, bias[ids], np.float32(0))

    def exhaustive(self) -> JointGraphModel:
        """The same model without shortlists: every label is scored, to tell what the shortlist loses."""
        return replace(self, shortlist_size=self.n_labels)

    # ---- views ----

    def views(self, batch: Batch, context: Context | None = None) -> Views:
        """What the shortlist and the classifiers read of documents."""
        vectors = self.space.initial(batch)
        return self.hops.of_linked(self.space.paths, vectors, self.space.linked(vectors, context or Context()), _SEED)

    def label_views(self) -> Views:
        """What the index and the analyses see of all labels: from the training graph alone."""
        return node_views(self.hops, self.space.paths, np.arange(self.n_labels, dtype=np.int32))

    def training_views(self, rows: Any = slice(None)) -> Views:
        """Views of training documents at `rows`, by their own edges."""
        return node_views(self.hops, self.space.paths, self.space.graph.nodes[rows])

    def embeddings(self, batch: Batch | None, space: Literal["raw", "convolved", "transformed"], hop: int = 0) -> F32:
        """(B, D) of documents, (L, D) of labels for None. hop: 1..K, or 0 for the mean of all."""
        if space == "raw":
            return self.space.vectors[: self.n_labels] if batch is None else self.space.initial(batch)
        plain = replace(self, hops=self.hops.showing(space))
        views = plain.label_views() if batch is None else plain.views(batch)
        return views.search if hop == 0 else views.score[:, hop - 1]


def node_views(hops: FrozenGraphEncoder, paths: Paths, nodes: I32) -> Views:
    """Views of nodes by their own edges, block by block, with the samples of prediction."""
    width = paths.vectors.shape[1]
    search, score = np.empty((len(nodes), width), np.float32), np.empty((len(nodes), hops.views, width), np.float32)
    for start in range(0, len(nodes), _BLOCK):
        part = slice(start, start + _BLOCK)
        search[part], score[part] = hops.of_nodes(paths, nodes[part], _SEED)
    return Views(search, score)


def listed(ids: I32, rows: Csr) -> BoolArray:
    """(B, C): whether row b of a CSR array holds the label ids[b, c]."""
    width, documents = np.int64(rows.shape[1]), np.arange(len(ids), dtype=np.int64)
    codes = np.repeat(documents, np.diff(rows.indptr)) * width + rows.indices
    found: BoolArray = (ids >= 0) & np.isin(documents[:, None] * width + ids, codes)
    return found


@dataclass(frozen=True)
class GraphShortlists(DataPart):
    """What stage II leaves behind: the encoder without torch, the index over the mean views of labels, and hard
    negatives of training documents, if stage IV wants them.
    """

    KIND = "galaxc-shortlists"

    hops: FrozenGraphEncoder
    index: Index
    negatives: ShortlistNegatives | None


# ---- looks inside ----

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


def hop_norms(model: JointGraphModel) -> F64:
    """(K,): the mean length of each view of training documents (some of them, spread evenly)."""
    n = len(model.space.graph.nodes)
    rows = np.linspace(0, n - 1, min(_SAMPLE, n)).astype(np.int64)
    return np.linalg.norm(model.training_views(rows).score.astype(np.float64), axis=2).mean(axis=0)


def attention_to(model: JointGraphModel, labels: I32) -> F32:
    """(..., K): what each view counts for `labels` (...)."""
    if model.alphas is None:
        return np.full((*labels.shape, model.hops.views), 1 / model.hops.views, dtype=np.float32)
    return np.asarray(model.alphas[labels])


def attention(model: JointGraphModel) -> F64:
    """(L, K): what each view counts for each label; rows sum to one."""
    if model.alphas is None:
        return np.full((model.n_labels, model.hops.views), 1 / model.hops.views)
    return model.alphas.astype(np.float64)


def attention_by_frequency(
    model: JointGraphModel, counts: I64, binned: Callable[[I64], Bins] = equal_count
) -> tuple[Bins, F64]:
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
    if "convolved" in model.hops.spaces:
        kinds.append(("convolved, mean of hops", "convolved", 0))
        kinds += [
            (f"{space}, hop {hop}", space, hop) for space in model.hops.spaces for hop in range(1, model.hops.views + 1)
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
