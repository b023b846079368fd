"""Trained models at work: those that several recipes end in. Each is a `Ranker` and a part; none needs torch.

`Model` goes the way of DeepXML, encode -> shortlist -> score -> fuse; `IndexedRows` compares a document with all
labels; `ClusterModel` finds clusters first; `Ensemble` is several models that answer together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from longtail.declared import Between, Shaped, Sized
from longtail.explanation import Cause, Reasons
from longtail.kernels.threads import threads_for
from longtail.models.analysis import Look, cluster_pictures, list_overlap, shortlist_picture, shortlist_recall
from longtail.models.encoders import FrozenEncoder, Refinement, pulled, refined
from longtail.models.new_labels import AddedLabels, LabelSpace, Modesty
from longtail.persistence import DataPart
from longtail.picture import Picture
from longtail.search.index import Index, IndexKind, build_index, check_width
from longtail.search.joined import JoinedIndex
from longtail.search.packed import PackedIndex, PackedRows, Packer, Rows, stacked_rows, stored
from longtail.search.shortlist import ClusterBeam, Game, LabelIndex, per_label, rank_labels
from longtail.search.split import ShardLists, SplitIndex
from longtail.types import F32, I32, I64, Batch, Context, Csr, Ranker, Shortlister, TopK


@dataclass(frozen=True)
class Classifier:
    """A linear classifier per label, materialised: score = rows[l] . x + bias[l].

    rows: (L, D), all stored; bias: (L,) or None.
    """

    rows: Annotated[Rows, Shaped("labels", "width")]
    bias: Annotated[F32, Shaped("labels")] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rows, PackedRows) and (self.rows.places is not None or self.rows.values.dtype == np.uint8):
            raise ValueError("rows of classifiers must all be stored, and not in 4 bits: both are for words alone")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """Numbers of a vector that is scored."""
        return int(self.rows.shape[1])

    def scores(self, vectors: F32, ids: I32) -> F32:
        """(B, C): each document against its own labels; 0 at padding."""
        from longtail.search.kernels.packed import score_candidates

        check_width(vectors, self.width)
        found = np.empty(ids.shape, dtype=np.float32)
        with threads_for(len(ids), each=4):
            values, scales, _ = stored(self.rows)
            score_candidates(
                np.ascontiguousarray(vectors, dtype=np.float32), values, scales, np.ascontiguousarray(ids), found
            )
        return found if self.bias is None else found + np.where(ids >= 0, self.bias[ids], np.float32(0))

    def of(self, ids: I32) -> tuple[F32, F32]:
        """Rows (B, C, D) and biases (B, C) of labels (B, C); 0 at padding."""
        real, known = ids >= 0, np.maximum(ids, 0)
        rows = np.where(real[..., None], self.rows[known.ravel()].reshape(*ids.shape, -1), np.float32(0))
        return rows, np.zeros(ids.shape, np.float32) if self.bias is None else np.where(real, self.bias[known], 0)

    def packed(self, packer: Packer) -> Classifier:
        return replace(self, rows=packer.rows(self.rows))

    def read(self, numbers: I64) -> F32:
        """(l, D + 1): the rows of labels with their biases behind."""
        bias = np.zeros(len(numbers), np.float32) if self.bias is None else self.bias[numbers]
        return np.concatenate([self.rows[numbers], bias[:, None]], axis=1)

    def with_added(self, rows: F32) -> Classifier:
        """More labels behind: (A, D + 1)."""
        bias = np.zeros(len(self.rows), np.float32) if self.bias is None else self.bias
        return Classifier(stacked_rows(self.rows, rows[:, :-1]), np.concatenate([bias, rows[:, -1]]))


@dataclass(frozen=True, kw_only=True)
class Model(DataPart, Ranker):
    """score_l = alpha * sigmoid(classifier) + (1 - alpha) * sigmoid(similarity / temperature), for labels of the
    shortlist; a label outside it is never predicted.

    Paper: DeepXML Sec. 3 (prediction).
    """

    KIND = "model"

    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    refinement: Annotated[Refinement, Sized(width="width")] | None
    shortlister: Annotated[Shortlister, Sized(n_labels="<=labels")]
    classifier: Annotated[Classifier, Sized(len="labels", width="width")]
    shortlist_size: Annotated[int, Between(1)]
    alpha: float
    temperature: float = 1.0

    @property
    def n_labels(self) -> int:
        return len(self.classifier)

    def rank(self, batch: Batch, k: int) -> TopK:
        search = self.encoder.encode(batch)
        shortlist = self.shortlist(search)
        score = refined(search, self.refinement)
        fused = self.alpha * sigmoid(self.classifier.scores(score, shortlist.ids)) + (1 - self.alpha) * sigmoid(
            shortlist.scores / self.temperature
        )
        # Of a document without a known word nothing can be said; any order would be made up.
        ids = np.where(batch.is_empty()[:, None], TopK.PAD, shortlist.ids)
        return best(ids, fused, min(k, len(self.classifier.rows)))

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """The words of the classifier's log-odds; the shortlist's part of the score as a whole."""
        v = self.encoder.encode(batch)
        reasons = linear_reasons(batch, self.encoder, self.refinement, self.classifier, v, ids)
        if reasons is None:
            return None
        similarity, found = self.shortlist(v).looked_up(ids)
        found &= ~batch.is_empty()[:, None]
        near = np.float32(1 - self.alpha) * sigmoid(similarity / self.temperature)
        return replace(
            reasons,
            scores=np.where(found, self.alpha * reasons.scores + near, 0).astype(np.float32),
            formula=f"score = {self.alpha:g} sigmoid(total) + nearness",
            found=found,
            terms={"nearness": np.where(found, near, 0)},
        )

    def shortlist(self, vectors: F32) -> TopK:
        """The labels that are scored, for what the encoder made of documents."""
        return self.shortlister.query(vectors, min(self.shortlist_size, len(self.classifier.rows)))

    def packed(self, packer: Packer) -> Model:
        return replace(
            self,
            encoder=self.encoder.packed(packer),
            shortlister=self.shortlister.packed(packer, self.classifier.rows.shape[1]),
            classifier=self.classifier.packed(packer),
        )

    def diagnose(self, look: Look) -> dict[str, Any]:
        """The recall of shortlists, and how far x is from v: by its length, and by the labels near both."""
        found, v = self.encoder.diagnose(look), self.encoder.encode(look.batch)
        found["shortlist_recall"] = shortlist_recall(self.shortlist(v), self.shortlist_size, look)
        if self.refinement is None:
            return found
        overlap = self.list_overlap(v)
        if overlap is not None:
            found["overlap_of_top_100_lists_by_v_and_by_x"] = overlap
        moved = np.linalg.norm(self.refinement.apply(v) - v, axis=1) / np.maximum(np.linalg.norm(v, axis=1), 1e-12)
        found["largest_drift_of_x_from_v"] = round(float(moved.max(initial=0)), 6)
        return found

    def pictures(self, look: Look) -> list[Picture]:
        """How much of the truth shortlists hold."""
        found = self.shortlist(self.encoder.encode(look.batch))
        return [shortlist_picture(shortlist_recall(found, self.shortlist_size, look))]

    def list_overlap(self, v: F32, k: int = 100) -> float | None:
        """See `analysis.list_overlap`; None where x is v, or where the shortlist keeps no vectors of documents."""
        voting = self.shortlister.voting_documents()
        if self.refinement is None or voting is None:
            return None
        documents, targets = voting
        x = self.refinement.apply(documents), self.refinement.apply(v)
        return list_overlap((documents, v), x, targets, k)

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def label_space(self) -> LabelSpace | None:
        """Where labels are looked for by what the encoder makes of their texts (towers)."""
        if not self.encoder.UNIT or not isinstance(self.shortlister, LabelIndex):
            return None
        return LabelSpace(
            self.classifier.read,
            lambda batch: with_one(refined(self.encoder.encode(batch), self.refinement)),
            self.encoder.encode,
        )

    def with_added(self, added: AddedLabels) -> Model:
        """A label without a text is never on a shortlist."""
        assert isinstance(self.shortlister, LabelIndex), "`label_space` says so"
        width = 0 if added.texts is None else added.texts.shape[1]
        texts = np.zeros((len(added), max(width, 1)), np.float32) if added.texts is None else added.texts
        return replace(
            self,
            shortlister=self.shortlister.with_added(texts, len(self.classifier.rows)),
            classifier=self.classifier.with_added(added.rows),
        )

    def onnx(self) -> bytes | None:
        return self.encoder.onnx()


# How a score follows from log-odds where nothing else enters.
LINEAR = "score = sigmoid(total)"


def linear_reasons(
    batch: Batch,
    encoder: FrozenEncoder,
    refinement: Refinement | None,
    classifier: Classifier,
    vectors: F32,
    ids: I32,
) -> Reasons | None:
    """Why a linear classifier over what an encoder gives (`vectors`) has its log-odds; None where the encoder cannot
    tell its features apart.
    """
    rows, bias = classifier.of(ids)
    found = encoder.shares(batch, pulled(vectors, refinement, rows))
    if found is None:
        return None
    shares, constant = found
    totals = np.einsum("bcd,bd->bc", rows, refined(vectors, refinement)) + bias
    return Reasons(
        scores=sigmoid(totals),
        totals=totals,
        shares=shares,
        bias=constant + bias,
        formula=LINEAR,
        found=ids >= 0,
    )


def sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def best(ids: I32, scores: Any, k: int, by: Any = None) -> TopK:
    """The `k` best of each row's labels by (-score, label); padding last, and added where there are fewer than k.

    by: what they are ranked by in place of the scores, higher first: something finer, which scores round to ties.
    """
    ids, scores = np.asarray(ids), np.where(ids >= 0, scores, -np.inf).astype(np.float32)
    order = np.lexsort((ids, -(scores if by is None else np.where(ids >= 0, by, -np.inf))), axis=1)[:, :k]
    ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    missing = k - ids.shape[1]
    if missing > 0:
        ids = np.pad(ids, ((0, 0), (0, missing)), constant_values=TopK.PAD)
        scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
    return TopK(np.where(np.isneginf(scores), TopK.PAD, ids).astype(np.int32), scores)


# How new labels among learnt rows are held back, without and with examples. Chosen on slices of wordnet-related and
# debian-related (docs/experiments.md).
UNTAUGHT, TAUGHT = Modesty(0.4, share=0.045, together=8), Modesty(0.5, share=0.0075, together=3)


@dataclass(frozen=True)
class IndexedRows(DataPart, Ranker):
    """score_l = sigmoid(w_l . x + b_l), of the labels that the index finds; an exact index finds the best of all.

    index: over (L, D + 1) rows, the last number of each being b_l, by their dot product.
    """

    KIND = "indexed-rows"

    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    refinement: Annotated[Refinement, Sized(width="width")] | None
    index: Annotated[Index, Sized(len="labels", width="width+1")]

    @classmethod
    def by_cosine(cls, encoder: FrozenEncoder, labels: F32, temperature: float, kind: IndexKind) -> IndexedRows:
        """score = sigmoid(cosine / temperature).  labels: (L, D), of unit length; one without a vector comes last."""
        scale = np.float32(1 / temperature)
        nameless = ~np.any(labels != 0, axis=1, keepdims=True)
        rows = np.concatenate([labels * scale, np.where(nameless, -scale - 1, 0)], axis=1).astype(np.float32)
        return cls(encoder, None, build_index(rows, kind, similarity="dot"))

    @property
    def n_labels(self) -> int:
        return len(self.index)

    def rank(self, batch: Batch, k: int) -> TopK:
        found = self.index.query(self.queries(batch), min(k, len(self.index)))
        empty, scores = batch.is_empty(), sigmoid(found.scores)
        if not empty.any() and (found.ids[:, -1:] >= 0).all():
            return TopK(found.ids, scores)
        # Of a document without a known word nothing can be said; any order would be made up.
        ids = np.where(empty[:, None], TopK.PAD, found.ids).astype(np.int32)
        return TopK(ids, np.where(ids >= 0, scores, -np.inf).astype(np.float32))

    def queries(self, batch: Batch) -> F32:
        """(B, D + 1): what documents ask the index."""
        return with_one(refined(self.encoder.encode(batch), self.refinement))

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """Every number of the score belongs to a feature, or is the label's bias."""
        reasons = linear_reasons(
            batch, self.encoder, self.refinement, self._rows_of(ids), self.encoder.encode(batch), place_of(ids)
        )
        if reasons is None:
            return None
        found = (ids >= 0) & ~batch.is_empty()[:, None]
        return replace(reasons, scores=np.where(found, reasons.scores, 0), found=found)

    def scores_of(self, batch: Batch, ids: I32, n_labels: int, context: Context | None = None) -> F32:
        """Also of labels that the index would not find."""
        rows, bias = self._rows_of(ids).of(place_of(ids))
        x = refined(self.encoder.encode(batch), self.refinement)
        found = (ids >= 0) & ~batch.is_empty()[:, None]
        return np.where(found, sigmoid(np.einsum("bcd,bd->bc", rows, x) + bias), 0).astype(np.float32)

    def _rows_of(self, ids: I32) -> Classifier:
        """The rows of labels (B, C) alone, one after the other."""
        rows = self.index.read(np.maximum(ids, 0).ravel().astype(np.int64))
        return Classifier(rows[:, :-1], rows[:, -1])

    def row_by_row(self) -> bool:
        refines = self.refinement is None or self.refinement.row_by_row()
        return self.encoder.row_by_row() and refines and self.index.row_by_row()

    def packed(self, packer: Packer) -> IndexedRows:
        return replace(self, encoder=self.encoder.packed(packer), index=self.index.packed(packer, last_whole=True))

    def shards(self, count: int) -> Sequence[Ranker]:
        return [replace(self, index=index) for index in self.index.shards(count)]

    def joined(self, parts: Sequence[Ranker]) -> Ranker:
        return replace(self, index=SplitIndex(tuple(part.index for part in parts if isinstance(part, IndexedRows))))

    def found(self, batch: Batch, k: int) -> ShardLists:
        top = self.index.query(self.queries(batch), min(k, len(self.index)))
        ids = np.where(batch.is_empty()[:, None], TopK.PAD, top.ids).astype(np.int32)
        return ShardLists((TopK(ids, np.where(ids >= 0, top.scores, -np.inf).astype(np.float32)),))

    def packed_rows(self) -> PackedIndex | None:
        return self.index.packed_rows()

    def diagnose(self, look: Look) -> dict[str, Any]:
        return self.encoder.diagnose(look)

    def label_encoder(self) -> FrozenEncoder | None:
        return self.encoder if self.encoder.UNIT else None

    def label_space(self) -> LabelSpace | None:
        """Where the encoder makes unit vectors (towers), rows are texts alone."""
        if self.encoder.UNIT:
            return LabelSpace(self.index.read, self.queries, self.encoder.encode)
        return LabelSpace(self.index.read, self.queries, self.encoder.encode, untaught=UNTAUGHT, taught=TAUGHT)

    def with_added(self, added: AddedLabels) -> IndexedRows:
        return replace(self, index=JoinedIndex.of(self.index, added.rows))

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def label_vectors(self, part: slice = slice(None)) -> F32:
        return self.index.read(part)

    def document_vectors(self, batch: Batch) -> F32:
        return self.queries(batch)

    def onnx(self) -> bytes | None:
        return self.encoder.onnx()


def place_of(ids: I32) -> I32:
    """(B, C): the numbers of entries, one after the other; -1 where `ids` is padding."""
    return np.where(ids >= 0, np.arange(ids.size, dtype=np.int32).reshape(ids.shape), np.int32(TopK.PAD))


def with_one(vectors: F32) -> F32:
    """(B, D + 1): a last number that is always 1, which the bias of a row is multiplied with."""
    return np.concatenate([vectors, np.ones((len(vectors), 1), dtype=np.float32)], axis=1)


# Documents ranked at once: bounds the table of label scores (documents x labels of the beam).
_BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class ClusterModel(DataPart, Ranker):
    """score_l = r_l p_m^c for the labels l of the selected clusters m, with r = G sigmoid(w_l . x) (GAME); other labels
    are never predicted.

    shortlist_map and rank_map: from the encoder's vectors to what the clusters' and the labels' classifiers read.
    label_graph: (L, L) CSR, or None for no GAME among labels.
    cluster_power: c, what the score of a label's cluster counts beside its own; 0: nothing.

    Paper: ECLARE Sec. 3.5, with c = 1.
    """

    KIND = "cluster-model"

    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    shortlist_map: Annotated[Refinement, Sized(width="width")] | None
    rank_map: Annotated[Refinement, Sized(width="width")] | None
    beam: Annotated[ClusterBeam, Sized(n_labels="labels")]
    classifier: Annotated[Classifier, Sized(len="labels", width="width")]
    label_graph: Annotated[Csr, Shaped("labels", "labels")] | None = None
    game_mix: float = 1.0
    game_transpose: bool = False
    cluster_power: float = 1.0
    _game: Game | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        game = None if self.label_graph is None else Game(self.label_graph, self.game_mix, self.game_transpose)
        object.__setattr__(self, "_game", game)

    @property
    def n_labels(self) -> int:
        return len(self.classifier)

    @property
    def shortlist_size(self) -> int:
        """Labels that a document is compared with, at most."""
        return self.beam.beam * self.beam.largest_cluster

    def rank(self, batch: Batch, k: int) -> TopK:
        k = min(k, len(self.classifier.rows))
        top = TopK.padding(len(batch), k)
        for start in range(0, len(batch), _BLOCK):
            part = slice(start, start + _BLOCK)
            self._rank(batch.rows(part), TopK(top.ids[part], top.scores[part]))
        return top

    def _rank(self, batch: Batch, top: TopK) -> None:
        labels, r, gates = self._looked_at(batch, self.encoder.encode(batch))
        spread = r if self._game is None else self._game.within(labels, r)
        rank_labels(labels, spread * gates, top)

    def _looked_at(self, batch: Batch, vectors: F32) -> tuple[I32, F32, F32]:
        """The labels of the best clusters (B, n), what their own classifiers say, and what their clusters count."""
        clusters, p = self.beam.select(refined(vectors, self.shortlist_map))
        labels = self.beam.labels_of(clusters)
        # Of a document without a known word nothing can be said; any order would be made up.
        labels[batch.is_empty()] = TopK.PAD
        raw = self.classifier.scores(refined(vectors, self.rank_map), labels)
        r = np.where(labels >= 0, sigmoid(raw), np.float32(0))
        return labels, r, per_label(p**self.cluster_power, labels)

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """The words of the label's own classifier; what it gets from other labels along the graph; its cluster."""
        vectors = self.encoder.encode(batch)
        reasons = linear_reasons(batch, self.encoder, self.rank_map, self.classifier, vectors, ids)
        if reasons is None:
            return None
        labels, r, gates = self._looked_at(batch, vectors)
        gate, found = TopK(labels, gates).looked_up(ids)
        own, received = np.where(found, reasons.scores, 0), np.zeros(ids.shape, dtype=np.float32)
        links: dict[tuple[int, int], list[Cause]] = {}
        if self._game is not None:
            rows, places = np.nonzero(found)
            pairs, givers, amounts = self._game.given_to(rows, ids[found], labels, r)
            others = givers != ids[found][pairs]
            own[found] = np.bincount(pairs[~others], amounts[~others], minlength=len(rows))
            received[found] = np.bincount(pairs[others], amounts[others], minlength=len(rows))
            causes = neighbour_causes(pairs[others], givers[others], amounts[others], len(rows))
            links = dict(zip(zip(rows.tolist(), places.tolist(), strict=True), causes, strict=True))
        return replace(
            reasons,
            scores=(gate * (own + received)).astype(np.float32),
            formula="score = cluster x (own + labels); own is a part of sigmoid(total)"
            if self._game is not None
            else "score = cluster x own; own = sigmoid(total)",
            found=found,
            terms={"cluster": gate, "own": own},
            links=links,
            note="what the text, the neighbours and the free vector of a label have in its classifier is not kept in "
            "the model",
        )

    def row_by_row(self) -> bool:
        maps = (step for step in (self.shortlist_map, self.rank_map) if step is not None)
        return self.encoder.row_by_row() and all(step.row_by_row() for step in maps) and self.beam.index.row_by_row()

    def packed(self, packer: Packer) -> ClusterModel:
        return replace(
            self,
            encoder=self.encoder.packed(packer),
            beam=self.beam.packed(packer, self.classifier.rows.shape[1]),
            classifier=self.classifier.packed(packer),
        )

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def label_space(self) -> LabelSpace | None:
        return LabelSpace(
            self.classifier.read,
            lambda batch: with_one(refined(self.encoder.encode(batch), self.rank_map)),
            self.encoder.encode,
        )

    def with_added(self, added: AddedLabels) -> ClusterModel:
        """A new label joins the cluster of the label that it is nearest to, and is linked to it as that one is to
        itself.
        """
        near = np.maximum(added.near, 0)
        clusters = np.where(added.near >= 0, self.beam.clusters[near], np.int32(TopK.PAD)).astype(np.int32)
        graph = None if self.label_graph is None else grown_graph(self.label_graph, added.near)
        return replace(
            self,
            beam=self.beam.with_added(clusters),
            classifier=self.classifier.with_added(added.rows),
            label_graph=graph,
        )

    def diagnose(self, look: Look) -> dict[str, Any]:
        """The recall of the labels of the best clusters."""
        found, vectors = self.encoder.diagnose(look), self.encoder.encode(look.batch)
        size = min(self.shortlist_size, len(self.classifier.rows))
        shortlist = self.beam.query(refined(vectors, self.shortlist_map), size)
        return {**found, "shortlist_recall": shortlist_recall(shortlist, self.shortlist_size, look)}

    def pictures(self, look: Look) -> list[Picture]:
        """How much of the truth the best clusters hold, and how good clusters are."""
        recall = self.diagnose(look)["shortlist_recall"]
        return [shortlist_picture(recall), *cluster_pictures(self.beam.clusters, look)]


def grown_graph(graph: Csr, near: I32) -> Csr:
    """(L + A, L + A): a graph of labels with new nodes, which are linked to themselves as the label near them is."""
    from scipy.sparse import block_diag, csr_array

    own = np.asarray(graph.diagonal(), dtype=np.float32)
    usual = np.float32(np.median(own[own > 0])) if (own > 0).any() else np.float32(1)
    given = np.where(near >= 0, own[np.maximum(near, 0)], np.float32(0))
    loops = np.where(given > 0, given, usual).astype(np.float32)
    numbers = np.arange(len(near))
    return csr_array(block_diag([graph, csr_array((loops, (numbers, numbers)))], format="csr"), dtype=np.float32)


# Labels that a label gets most from are named one by one; the others together.
_NAMED = 5


def neighbour_causes(pairs: I64, labels: I32, amounts: F32, count: int) -> list[list[Cause]]:
    """For each of `count` pairs of a document and a label what other labels give. pairs: increasing."""
    order = np.lexsort((labels, -amounts, pairs))
    numbers, shares = labels[order].tolist(), amounts[order].tolist()
    ends = np.searchsorted(pairs, np.arange(count + 1)).tolist()
    found: list[list[Cause]] = []
    for start, end in pairwise(ends):
        named = min(end, start + _NAMED)
        causes = [Cause("label", numbers[at], "", shares[at]) for at in range(start, named)]
        if end > named:
            causes.append(Cause("labels", -1, "other labels", sum(shares[named:end])))
        found.append(causes)
    return found


@dataclass(frozen=True)
class Ensemble(DataPart, Ranker):
    """Mean of the members' scores over the union of their labels; a label that a member did not find counts 0 there."""

    KIND = "ensemble"

    members: tuple[Annotated[Ranker, Sized(n_labels="labels")], ...]
    depth: Annotated[int, Between(1)] = 100

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("an ensemble without members")

    @property
    def n_labels(self) -> Any:
        return getattr(self.members[0], "n_labels", None)

    def rank(self, batch: Batch, k: int) -> TopK:
        return averaged([member.rank(batch, max(self.depth, k)) for member in self.members], k)

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """The mean of what the members say."""
        said: list[Reasons | None] = [member.explain(batch, ids) for member in self.members]
        reasons = [one for one in said if one is not None]
        if len(reasons) < len(said):
            return None
        count = np.float32(len(said))
        parts = [member.rank(batch, self.depth).looked_up(ids) for member in self.members]
        return Reasons(
            scores=_mean([score for score, _ in parts]),
            totals=_mean([one.totals for one in reasons]),
            shares=_mean([one.shares for one in reasons]),
            bias=_mean([one.bias for one in reasons]),
            formula=f"score = {' + '.join(f'model {n}' for n in range(1, len(said) + 1))}; total is the mean of theirs",
            found=np.logical_or.reduce([found for _, found in parts]),
            terms={f"model {n}": score / count for n, (score, _) in enumerate(parts, 1)},
            others=_merged([one.others for one in reasons]),
            note=reasons[0].note,
        )

    def scores_of(self, batch: Batch, ids: I32, n_labels: int, context: Context | None = None) -> F32:
        return self.rank(batch, max(self.depth, ids.shape[1])).looked_up(ids)[0]

    def row_by_row(self) -> bool:
        return all(member.row_by_row() for member in self.members)

    def shards(self, count: int) -> Sequence[Ranker]:
        each = [member.shards(count) for member in self.members]
        return [replace(self, members=tuple(parts[n] for parts in each)) for n in range(count)]

    def joined(self, parts: Sequence[Ranker]) -> Ranker:
        of_parts = zip(*(part.members for part in parts if isinstance(part, Ensemble)), strict=True)
        return replace(self, members=tuple(members[0].joined(members) for members in of_parts))

    def found(self, batch: Batch, k: int) -> ShardLists:
        each = [member.found(batch, max(self.depth, k)) for member in self.members]
        return ShardLists(tuple(top for one in each for top in one.lists), depth=self.depth)

    def packed(self, packer: Packer) -> Ensemble:
        return replace(self, members=tuple(member.packed(packer) for member in self.members))

    def document_encoder(self) -> Any:
        """Of the first member."""
        return self.members[0].document_encoder()

    def diagnose(self, look: Look) -> dict[str, Any]:
        """Of the first member; the others were made in the same way."""
        return self.members[0].diagnose(look)

    def pictures(self, look: Look) -> list[Picture]:
        """Of the first member."""
        return self.members[0].pictures(look)


def averaged(found: Sequence[TopK], k: int) -> TopK:
    """The `k` best by the mean of the scores in several lists; a label that is not in one counts 0 there."""
    from longtail.search.kernels.shortlist import mean_of_lists

    ids = np.concatenate([top.ids for top in found], axis=1)
    scores = np.concatenate([top.scores for top in found], axis=1, dtype=np.float32)
    mean = TopK.padding(len(ids), min(k, max(top.k for top in found)))
    with threads_for(len(ids)):
        mean_of_lists(ids, scores, len(found), mean.ids, mean.scores)
    return mean


def _mean(arrays: Sequence[F32]) -> F32:
    mean: F32 = np.mean(arrays, axis=0, dtype=np.float32)
    return mean


def _merged(
    causes: Sequence[Mapping[tuple[int, int], Sequence[Cause]]],
) -> dict[tuple[int, int], Sequence[Cause]]:
    """Those of several models, each of which counts as much as the others."""
    return {
        key: [
            cause._replace(share=cause.share / len(causes), name=f"{cause.name} (model {n})")
            for n, one in enumerate(causes, 1)
            for cause in one.get(key, ())
        ]
        for key in dict.fromkeys(key for one in causes for key in one)
    }
