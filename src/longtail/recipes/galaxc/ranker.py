"""A model that looks at a document's neighbourhood in a joint graph: link -> convolve -> shortlist -> score.

What is said of a document depends on nothing but the document and its own context, unless documents are ranked together
(`Context.together`). Paper: GalaXC Sec. 4 (shortlisting and prediction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from longtail.errors import ConfigError
from longtail.kernels.threads import threads_for
from longtail.models.analysis import Look
from longtail.models.rankers import Classifier, best, sigmoid
from longtail.persistence import DataPart
from longtail.recipes.galaxc.encoders import FrozenGraphEncoder, FrozenHops, Views
from longtail.recipes.galaxc.graph import Paths
from longtail.recipes.galaxc.linking import GraphSpace
from longtail.search.index import Index
from longtail.search.packed import Packer, stored
from longtail.types import F32, I32, Batch, BoolArray, Context, ContextRanker, Csr, TopK

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
    """

    KIND = "joint-graph-model"

    space: GraphSpace
    hops: FrozenGraphEncoder
    index: Index
    classifier: Classifier
    alphas: F32 | None
    shortlist_size: int
    beta: float = 1.0
    temperature: float = 1.0

    @property
    def anchor_uids(self) -> Sequence[str]:
        return () if self.space.anchors is None else self.space.anchors.uids

    @property
    def n_labels(self) -> int:
        return len(self.classifier.rows)

    # ---- what else it can do ----

    def packed(self, packer: Packer) -> JointGraphModel:
        return replace(
            self,
            space=replace(self.space, encoder=self.space.encoder.packed(packer)),
            index=self.index.packed(packer),
            classifier=self.classifier.packed(packer),
        )

    def diagnose(self, look: Look) -> dict[str, Any]:
        from longtail.recipes.galaxc.analysis import inside_graph

        return {"graph": inside_graph(self, look)}

    # ---- ranking ----

    def rank(self, batch: Batch, k: int) -> TopK:
        return self.rank_in_context(batch, k, Context())

    def rank_in_context(self, batch: Batch, k: int, context: Context) -> TopK:
        k = min(k, self.n_labels)
        top = TopK.padding(len(batch), k)
        together = (
            self.space.with_documents(self.space.initial(batch), context) if context.together and len(batch) else None
        )
        for start in range(0, len(batch), _BLOCK):
            part = slice(start, min(start + _BLOCK, len(batch)))
            documents, own = batch.rows(part), context.rows(part)
            views = (
                self.views(documents, own)
                if together is None
                else self._views_together(together, start, len(documents))
            )
            found = self._ranked(views, documents, own, k)
            top.ids[part], top.scores[part] = found.ids, found.scores
        return top

    def _ranked(self, views: Views, documents: Batch, context: Context, k: int) -> TopK:
        known = np.zeros(len(documents), dtype=np.int64) if context.labels is None else np.diff(context.labels.indptr)
        found = self.index.query(views.search, min(self.shortlist_size + int(known.max(initial=0)), self.n_labels))
        # Of a document without a known word nothing can be said, unless some of its labels are known. Known ones take
        # no place.
        kept = ~(documents.is_empty() & (known == 0))[:, None] & (
            np.arange(found.k) < (self.shortlist_size + known)[:, None]
        )
        if context.labels is not None:
            kept &= ~listed(found.ids, context.labels)
        ids = np.where(kept, found.ids, np.int32(TopK.PAD))
        # In double precision: float32 would make ties of all scores above 17.
        scores = sigmoid(self.scores(views.score, ids).astype(np.float64))
        return best(
            ids, self.beta * scores + (1 - self.beta) * sigmoid(found.scores.astype(np.float64) / self.temperature), k
        )

    def scores(self, views: F32, ids: I32) -> F32:
        """(B, C): documents (B, K, D) against labels of their own; 0 at padding."""
        if self.alphas is None:
            return self.classifier.scores(views.mean(axis=1), ids)
        from longtail.recipes.galaxc.kernels import score_views

        found = np.empty(ids.shape, dtype=np.float32)
        with threads_for(len(ids), each=4):
            values, scales, _ = stored(self.classifier.rows)
            score_views(np.ascontiguousarray(views), values, scales, self.alphas, np.ascontiguousarray(ids), found)
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

    def _views_together(self, paths: Paths, first: int, documents: int) -> Views:
        return self.hops.of_nodes(
            paths, np.arange(first, first + documents, dtype=np.int32) + np.int32(len(self.space.graph)), _SEED
        )

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
        if not isinstance(self.hops, FrozenHops):
            if space == "convolved":
                raise ConfigError(
                    "only the encoder 'galaxc' has convolved embeddings",
                    "use hops.encoder=galaxc, or space=transformed",
                )
            return (self.label_views() if batch is None else self.views(batch)).search
        # Without its transformations the encoder gives what was convolved.
        hops = (
            replace(self.hops, balanced=False, space="transformed")
            if space == "transformed"
            else self.hops.untransformed()
        )
        plain = replace(self, hops=hops)
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
