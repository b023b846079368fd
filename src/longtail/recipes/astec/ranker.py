"""Where Astec looks labels up, and where its negatives come from (Paper: Astec Sec. 4, Module II); the trees that can
take the place of its classifiers; and the re-ranker. Predicts without torch.

nearest_labels  label centroids, documents that vote (`InstanceVote`), or both (`MergedShortlist`)
best_clusters   the clusters of stage I, found by its own heads
EncodedTree     a cluster tree on top of a frozen encoder (Paper: Astec Sec. 5, Parabel on the features of stage I)
SpreadTree      GAME put on a tree that was trained without it (Paper: ECLARE Sec. 4, GAME on Parabel and AttentionXML)
Reranked        a second model on the first one's best labels
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import numpy as np

from longtail.declared import Between, Shaped, Sized
from longtail.errors import ConfigError
from longtail.explanation import Reasons
from longtail.kernels.arrays import Pieces, frozen, new_seed, pieces
from longtail.kernels.threads import threads_for
from longtail.models.analysis import Look
from longtail.models.encoders import FrozenEncoder, Refinement, refined
from longtail.models.rankers import Classifier, best, linear_reasons, sigmoid
from longtail.persistence import DataPart, Part, State, csr_from_pieces
from longtail.picture import Picture
from longtail.recipes.astec.tree import ClusterTree
from longtail.search.index import CENTROIDS, DOCUMENTS, Index, IndexBuilder, build_index
from longtail.search.negatives import (
    DOCUMENTS_PER_THREAD,
    Negatives,
    RandomNegatives,
    ShortlistNegatives,
    check_count,
    forbidden_pairs,
)
from longtail.search.packed import Packer
from longtail.search.shortlist import (
    ClusterBeam,
    Game,
    GameSettings,
    LabelIndex,
    cluster_graph,
    merged,
    per_label,
    rank_labels,
    voted,
)
from longtail.types import F32, I32, I64, Batch, Context, Csr, Ranker, Shortlister, TopK

if TYPE_CHECKING:
    from longtail.recipes.astec.settings import AstecClassifyConfig, AstecConfig
    from longtail.training.prepare import TrainingSet
    from longtail.training.run import Run
    from longtail.training.surrogate import Surrogate


@dataclass(frozen=True)
class AstecShortlists(DataPart):
    """What stage II leaves behind: the shortlister, and the hard negatives that it found for the training documents."""

    KIND = "astec-shortlists"

    shortlister: Any
    negatives: ShortlistNegatives | None


def nearest_labels(
    vectors: F32, targets: Csr, config: AstecConfig, run: Run
) -> LabelIndex | InstanceVote | MergedShortlist:
    """Label centroids, documents that vote, or both; exact on a GPU, on a CPU by size.  vectors: (N, D), v."""
    from longtail.training.indices import index_on  # needs torch

    c = config.shortlist

    def votes() -> InstanceVote:
        make_index = index_on(run.device, c.index, DOCUMENTS)
        return InstanceVote.build(vectors, targets, neighbours=c.neighbours, make_index=make_index)

    if c.structures == "documents":
        return votes()
    labels = LabelIndex.build(
        vectors,
        targets,
        make_index=index_on(run.device, c.index, CENTROIDS),
        head_centres=c.head_centres,
        head_documents=c.head_labels,
        rng=run.rng("head centres"),
    )
    # Slice looks labels up by their centroids alone.
    alone = c.structures == "labels" or config.classify.learner == "slice"
    return labels if alone else MergedShortlist(labels, votes(), c.gamma, c.reserved)


def best_clusters(surrogate: Surrogate, graph: Csr | None, config: AstecConfig, run: Run) -> ClusterBeam:
    """The clusters of stage I as shortlists of about the size that the settings ask for. graph: of labels, for GAME."""
    from longtail.training.indices import cluster_beam  # needs torch

    heads, clusters = surrogate.heads, surrogate.clusters
    beam = math.ceil(config.shortlist.size * len(heads) / max(int((clusters >= 0).sum()), 1))
    return cluster_beam(heads, clusters, graph, config.game, beam=beam, device=run.device)


def game_graph(data: TrainingSet, config: AstecConfig, run: Run) -> Csr | None:
    """The label graph that GAME spreads scores along, the same whenever it is asked for; None where GAME is off."""
    if not config.game.enabled:
        return None
    return data.label_graph(config.graph, run.rng("label graph"))


def sampled_negatives(targets: Csr, forbidden: Csr, config: AstecClassifyConfig) -> Negatives:
    """Negatives that no search finds. Paper: Astec Sec. 5 (ablations of the sampler)."""
    count = min(config.count, int(targets.shape[1]))
    if config.negatives == "inbatch":
        return InBatchNegatives(targets, forbidden, count)
    if config.negatives == "unigram":
        return RandomNegatives.unigram(targets, forbidden, count)
    return RandomNegatives(forbidden, count)


def step_negatives(data: TrainingSet, hard: ShortlistNegatives | None, config: AstecClassifyConfig) -> Negatives:
    """Of a step: hard ones and a few random ones; where there are no hard ones, of the kind that the settings name."""
    forbidden = forbidden_pairs(data.targets, data.masked)
    return (
        sampled_negatives(data.targets, forbidden, config)
        if hard is None
        else hard.with_random(forbidden, config.random)
    )


# Documents that may vote on a document, by int32.
_MOST_NEIGHBOURS = (1 << 31) - 2

_document_index: IndexBuilder = partial(build_index, hnsw=DOCUMENTS)


@dataclass(frozen=True)
class InstanceVote(Shortlister):
    """Labels of the most similar training documents: each neighbour gives its cosine to its labels; the largest sum
    counts 1.

    Paper: Astec Sec. 4, Module II (ANNS^x). Differs: a neighbour with a negative cosine has no vote (Astec's vectors
    have none), and a training document does not vote for itself (`exclude`), which the released code allows.

    index: of the N training documents.  targets: (N, L) CSR, their labels; its values are not read, nor saved.
    """

    KIND = "instance-vote"

    index: Annotated[Index, Sized(len="documents")]
    targets: Annotated[Csr, Shaped("documents", "labels")]
    neighbours: Annotated[int, Between(1)]

    def __post_init__(self) -> None:
        if len(self.index) != self.targets.shape[0]:
            raise ValueError(f"{len(self.index)} documents in the index, {self.targets.shape[0]} with labels")
        if self.neighbours < 1:
            raise ConfigError(f"{self.neighbours} neighbours shall vote", "use at least 1")

    @property
    def n_labels(self) -> int:
        return int(self.targets.shape[1])

    @cached_property
    def _labels(self) -> Pieces:
        return pieces(self.targets)

    @classmethod
    def build(
        cls, vectors: F32, y: Csr, *, neighbours: int = 100, make_index: IndexBuilder = _document_index
    ) -> InstanceVote:
        """vectors: (N, D) of the training documents; y: (N, L) their labels."""
        return cls(make_index(vectors), y, neighbours)

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK:
        asked = min(self.neighbours + (exclude is not None), len(self.index))
        nearest = self.index.query(vectors, asked)
        return voted(nearest, self._labels, k, voters=self.neighbours, exclude=exclude)

    def packed(self, packer: Packer, width: int) -> InstanceVote:
        return InstanceVote(self.index.packed(packer), self.targets, self.neighbours)

    def voting_documents(self) -> tuple[F32, Csr] | None:
        vectors = self.index.plain_vectors()
        return None if vectors is None else (vectors, self.targets)

    def state(self) -> State:
        values = {"neighbours": self.neighbours, "n_labels": int(self.targets.shape[1])}
        return State(values, {"label_ptr": self._labels.indptr, "labels": self._labels.indices}, {"index": self.index})

    @classmethod
    def from_state(cls, state: State) -> InstanceVote:
        labels, indptr = state.arrays["labels"], state.arrays["label_ptr"]
        y = csr_from_pieces(
            np.ones(len(labels), np.float32), labels, indptr, (len(indptr) - 1, int(state.values["n_labels"]))
        )
        index = state.parts["index"]
        if not isinstance(index, Index):
            raise ValueError("a shortlister needs an index")
        neighbours = state.values["neighbours"]
        if type(neighbours) is not int or not 0 < neighbours <= _MOST_NEIGHBOURS:
            raise ValueError(f"{neighbours!r} neighbours vote")
        return cls(index, y, neighbours)


@dataclass(frozen=True)
class MergedShortlist(DataPart, Shortlister):
    """Both: s = (1 - gamma) cos + gamma vote. A label that only one of them finds takes 0 from the other. Paper:
    Astec Sec. 4, Module II.

    Differs: as gamma is small, labels found by votes alone stand at the end and would all be cut where centroids
    alone give k labels. So up to `reserved` of the k places are kept for the best of them (the released code gets the
    same effect by asking the centroids for 300 of 500 labels).
    """

    KIND = "merged-shortlist"

    labels: LabelIndex
    instances: InstanceVote
    gamma: float = 0.075
    reserved: float = 0.2

    def __post_init__(self) -> None:
        for name, value in (("gamma", self.gamma), ("reserved", self.reserved)):
            if not 0 <= value <= 1:
                raise ConfigError(
                    f"{name} is {value}, expected 0 to 1",
                    "gamma weighs the votes, reserved is the share of places for labels found by votes only",
                )

    @property
    def n_labels(self) -> int:
        return max(self.labels.n_labels, self.instances.n_labels)

    def query(self, vectors: F32, k: int, exclude: I64 | None = None) -> TopK:
        near, votes = self.labels.query(vectors, k), self.instances.query(vectors, k, exclude)
        return merged(near, votes, k, weight=self.gamma, reserved=self.reserved)

    def packed(self, packer: Packer, width: int) -> MergedShortlist:
        labels, instances = self.labels.packed(packer, width), self.instances.packed(packer, width)
        return MergedShortlist(labels, instances, self.gamma, self.reserved)

    def voting_documents(self) -> tuple[F32, Csr] | None:
        return self.instances.voting_documents()


class InBatchNegatives:
    """Labels of the other documents of the batch, at most `count` (a random choice where there are more)."""

    def __init__(self, y: Csr, forbidden: Csr, count: int) -> None:
        check_count(count)
        self.count, self._y, self._forbidden = count, y, pieces(forbidden)

    def draw(self, rows: I64, rng: np.random.Generator) -> I32:
        from longtail.search.kernels.negatives import sample_pool

        pool = np.unique(self._y[rows].indices).astype(np.int32)
        out, nothing = np.empty((len(rows), self.count), np.int32), np.empty((len(rows), 0), np.int32)
        indptr, labels, _ = self._forbidden
        with threads_for(len(rows), DOCUMENTS_PER_THREAD):
            sample_pool(pool, frozen(np.zeros(0, np.float32)), rows, new_seed(rng), indptr, labels, nothing, out)
        return out


# ---- trees in the place of classifiers ----

# Documents ranked at once: bounds the table of label scores.
_BLOCK = 1024


@runtime_checkable
class FindsClusters(Part, Protocol):
    """A ranker that finds leaves (clusters) of labels first and scores the labels inside them, like `ClusterTree`."""

    @property
    def n_labels(self) -> int: ...

    @property
    def n_leaves(self) -> int: ...

    @property
    def clusters(self) -> I32:
        """(L,) the leaf of every label, -1 for none."""
        ...

    def leaf_scores(self, batch: Batch) -> TopK:
        """(B, m): the best leaves and their probabilities."""
        ...

    def label_scores(self, batch: Batch, leaves: I32) -> tuple[I32, F32]:
        """(B, m * size): all labels of given leaves (B, m), leaf after leaf, and their probabilities given the leaf;
        -1 and 0 as padding.
        """
        ...


@dataclass(frozen=True)
class SpreadTree(DataPart, Ranker):
    """A tree whose scores are spread along the label graph (GAME): p = G_M p~ among the base's leaves, then
    s = G (r p) among the labels in the best of them, with the base's r given the leaf.

    As many leaves are looked into as the base finds. leaf_graph: (n, n) CSR; label_graph: (L, L) CSR.

    Differs: ECLARE multiplies by p after spreading r; here r is a probability within a leaf only, so r p is spread.
    """

    KIND = "spread-tree"

    base: Annotated[FindsClusters, Sized(n_labels="labels", n_leaves="leaves")]
    leaf_graph: Annotated[Csr, Shaped("leaves", "leaves")]
    label_graph: Annotated[Csr, Shaped("labels", "labels")]
    mix: float = 1.0
    transpose: bool = False
    _leaves: Game = field(init=False, repr=False, compare=False)
    _labels: Game = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base = self.base
        for name, graph, size in (
            ("leaves", self.leaf_graph, base.n_leaves),
            ("labels", self.label_graph, base.n_labels),
        ):
            if graph.shape != (size, size):
                raise ValueError(f"a graph of shape {graph.shape} over {size} {name}")
            object.__setattr__(self, f"_{name}", Game(graph, self.mix, self.transpose))

    @classmethod
    def build(cls, base: FindsClusters, graph: Csr, settings: GameSettings) -> SpreadTree:
        """graph: (L, L), see `longtail.graph.label_graph`."""
        leaf_graph = cluster_graph(graph, base.clusters, base.n_leaves, settings.clusters)
        return cls(base, leaf_graph, graph, settings.mix, settings.transpose)

    @property
    def n_labels(self) -> int:
        return self.base.n_labels

    @property
    def clusters(self) -> I32:
        """(L,) the base's leaf of every label, -1 for none."""
        return self.base.clusters

    def leaf_scores(self, batch: Batch) -> TopK:
        """The best leaves after GAME."""
        found = self.base.leaf_scores(batch)
        return self._leaves.spread(found.ids, np.where(found.ids >= 0, found.scores, np.float32(0)), found.k)

    def rank(self, batch: Batch, k: int) -> TopK:
        top = TopK.padding(len(batch), min(k, self.n_labels))
        for start in range(0, len(batch), _BLOCK):
            part = slice(start, start + _BLOCK)
            leaves = self.leaf_scores(batch.rows(part))
            labels, r = self.base.label_scores(batch.rows(part), leaves.ids)
            p = per_label(np.where(leaves.ids >= 0, leaves.scores, np.float32(0)), labels)
            rank_labels(labels, self._labels.within(labels, r * p), TopK(top.ids[part], top.scores[part]))
        return top


@dataclass(frozen=True)
class EncodedTree(DataPart, Ranker):
    """encode -> rank with a tree that was fitted on such vectors. A `Ranker` and a part."""

    KIND = "encoded-tree"

    encoder: FrozenEncoder
    tree: ClusterTree | SpreadTree

    @property
    def n_labels(self) -> int:
        return self.tree.n_labels

    def rank(self, batch: Batch, k: int) -> TopK:
        return self.tree.rank(Batch(dense=self.encode(batch)), k)

    def encode(self, batch: Batch) -> F32:
        """(B, D): what the tree reads."""
        return self.encoder.encode(batch)

    def document_encoder(self) -> FrozenEncoder:
        return self.encoder

    def packed(self, packer: Packer) -> EncodedTree:
        return replace(self, encoder=self.encoder.packed(packer))


# ---- the re-ranker ----


@dataclass(frozen=True)
class Reranked(DataPart, Ranker):
    """A second model with an encoder of its own re-scores the first one's best labels (Paper: Astec Sec. 4, re-ranker).

    score = beta * sigmoid(second) + (1 - beta) * first, within the first `depth` labels of the base; labels after
    these keep (1 - beta) * first, which leaves them behind.
    """

    KIND = "reranked"

    base: Annotated[Ranker, Sized(n_labels="<=labels")]
    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    refinement: Annotated[Refinement, Sized(width="width")] | None
    classifier: Annotated[Classifier, Sized(len="labels", width="width")]
    depth: Annotated[int, Between(1)]
    beta: float

    @property
    def n_labels(self) -> int:
        return len(self.classifier)

    def rank(self, batch: Batch, k: int) -> TopK:
        first = self.base.rank(batch, max(self.depth, k))
        vectors = refined(self.encoder.encode(batch), self.refinement)
        # Labels beyond the depth, there only if more are asked for, get no second score: what is best must not depend
        # on k.
        seen = np.where(np.arange(first.k) < self.depth, first.ids, TopK.PAD).astype(np.int32)
        second = np.where(seen >= 0, sigmoid(self.classifier.scores(vectors, seen)), np.float32(0))
        return best(
            first.ids,
            self.beta * second + (1 - self.beta) * np.where(first.ids >= 0, first.scores, 0),
            min(k, len(self.classifier.rows)),
        )

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """The log-odds of both models, weighed as their scores are."""
        base: Reasons | None = self.base.explain(batch, ids)
        vectors = self.encoder.encode(batch)
        own = linear_reasons(batch, self.encoder, self.refinement, self.classifier, vectors, ids)
        if base is None or own is None:
            return None
        _, listed = self.base.rank(batch, self.depth).looked_up(ids)
        # What each of the two counts.
        first: F32 = np.full(ids.shape, 1 - self.beta, dtype=np.float32)
        second: F32 = np.where(listed, np.float32(self.beta), np.float32(0))
        first_part, second_part = first * base.scores, second * own.scores
        x: Csr = batch.sparse
        owners = np.repeat(np.arange(len(batch)), np.diff(x.indptr))
        return replace(
            base,
            scores=first_part + second_part,
            totals=first * base.totals + second * own.totals,
            shares=first[owners] * base.shares + second[owners] * own.shares,
            bias=first * base.bias + second * own.bias,
            formula=f"score = first model + second model; total = {1 - self.beta:g} x the first one's log-odds + "
            f"{self.beta:g} x the second one's",
            terms={"first model": first_part, "second model": second_part},
        )

    def document_encoder(self) -> FrozenEncoder | None:
        """That of stage I, as without a re-ranker: what other methods start from."""
        found: FrozenEncoder | None = self.base.document_encoder()
        return found

    def packed(self, packer: Packer) -> Reranked:
        return replace(
            self,
            base=self.base.packed(packer),
            encoder=self.encoder.packed(packer),
            classifier=self.classifier.packed(packer),
        )

    def diagnose(self, look: Look) -> dict[str, Any]:
        return self.base.diagnose(look)

    def pictures(self, look: Look) -> list[Picture]:
        return self.base.pictures(look)
