"""What `direct` remembers: training documents with words in common vote for their labels.

Rows are learnt for documents like many others; a document that is nearly one of training is better answered by that
one. So the best labels by their own score p are ranked once more, with the share u of the vote that the nearest
training documents give each:

    score = ((sqrt(p) + w u (n + 1)^-r) / (1 + w))^2,    n the documents of the label

Votes alone prefer frequent labels; r gives rare ones their share back. The score rises with p, and it is p as before
where w is 0. Documents are compared by their words alone, without the most frequent ones: a small index that is read
in microseconds (`search.kernels.nearest`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from longtail.declared import Shaped, Sized
from longtail.explanation import Reasons
from longtail.features.sparse import SparseText
from longtail.graph.ops import unit_rows
from longtail.kernels.arrays import frozen, pieces
from longtail.kernels.threads import threads_for
from longtail.metrics.label_groups import by_frequency
from longtail.models.analysis import Look, spread
from longtail.models.gathered import with_votes
from longtail.models.new_labels import AddedLabels
from longtail.models.rankers import LINEAR, Ensemble, IndexedRows, best
from longtail.picture import Picture
from longtail.recipes.direct.settings import FEWEST_COMMON, MemoryConfig
from longtail.search.joined import JoinedIndex
from longtail.search.nearest import Inverted, lists
from longtail.search.split import ShardLists, SplitIndex
from longtail.training.prepare import TrainingSet
from longtail.types import F32, I32, Batch, Context, Csr, Ranker, TopK

# Documents, and their first labels, that `RememberingRows.pictures` looks at.
_LOOKED_AT, _PLACES = 500, 5


@dataclass(frozen=True)
class Memory:
    """N training documents by their words, and their labels.

    documents: (N, W) CSR, rows of unit length; the W words are the first features.  targets: (N, L) CSR.
    inverse: `documents` by word.  rarity: (L,) what a vote for each label counts.
    """

    documents: Annotated[Csr, Shaped("documents", "words")]
    targets: Annotated[Csr, Shaped("documents", "labels")]
    inverse: Inverted
    rarity: Annotated[F32, Shaped("labels")]
    config: MemoryConfig

    def __post_init__(self) -> None:
        (documents, words), labels = self.documents.shape, len(self.rarity)
        # Kernels trust all of this.
        fits = self.targets.shape == (documents, labels) and self.rarity.shape == (labels,)
        if not fits or not self.inverse.fits(self.documents) or not self.inverse.non_negative:
            raise ValueError(f"{documents} documents of {words} words, with labels or lists of others")

    @property
    def n_labels(self) -> int:
        return len(self.rarity)

    def shards(self, count: int) -> list[Memory]:
        """The same documents with labels n, n + count, ... each."""
        by_label = equal_numbers(self.targets).tocsc()
        return [
            replace(
                self,
                targets=small_numbers(by_label[:, n::count].tocsr()),
                rarity=np.ascontiguousarray(self.rarity[n::count]),
            )
            for n in range(count)
        ]

    @staticmethod
    def joined(parts: Sequence[Memory]) -> Memory:
        """The memory of which `parts` are the `shards`."""
        from scipy.sparse import hstack

        labels = np.concatenate([np.arange(len(part.rarity)) * len(parts) + n for n, part in enumerate(parts)])
        places = np.argsort(labels)
        targets = hstack([equal_numbers(part.targets) for part in parts], format="csc")[:, places].tocsr()
        targets.sort_indices()
        rarity = np.concatenate([part.rarity for part in parts])[places]
        return replace(parts[0], targets=small_numbers(targets), rarity=rarity)

    def votes(self, batch: Batch, ids: I32) -> F32:
        """(B, k): the share of the vote that each document's labels `ids` have, by their rarity; 0 at padding."""
        from numba import get_num_threads

        from longtail.recipes.direct.kernels import votes_for

        found = np.zeros(ids.shape, dtype=np.float32)
        with threads_for(len(batch), each=4):
            votes_for(
                pieces(batch.sparse),
                lists(self.inverse.postings),
                lists(self.documents),
                frozen(self.inverse.heaviest),
                lists(self.targets)[:2],
                frozen(self.rarity),
                min(self.config.neighbours, self.targets.shape[0]),
                np.ascontiguousarray(ids),
                found,
                get_num_threads(),
            )
        return found

    def with_added(self, added: AddedLabels) -> Memory:
        """More labels, and the documents that carry them, which vote from now on."""
        from scipy.sparse import csr_array, vstack

        (documents, words), labels = self.documents.shape, len(added)
        rarity = np.concatenate([self.rarity, (added.counts + 1.0) ** -self.config.rarity]).astype(np.float32)
        targets = csr_array(self.targets, copy=False)
        targets = csr_array((targets.data, targets.indices, targets.indptr), shape=(documents, len(rarity)))
        if added.examples is None or added.targets is None:
            return replace(self, targets=small_numbers(targets), rarity=rarity)
        known = csr_array(added.examples[:, :words], dtype=np.float32, copy=True)
        # Words that no document here has are the most frequent ones: they were left out.
        known.data[np.diff(self.inverse.postings.indptr)[known.indices] == 0] = 0
        known.eliminate_zeros()
        grown = small_numbers(csr_array(vstack([self.documents, unit_rows(known)], format="csr")))
        theirs = csr_array(added.targets, dtype=targets.dtype)
        moved = csr_array(
            (theirs.data, theirs.indices + (len(rarity) - labels), theirs.indptr), shape=(theirs.shape[0], len(rarity))
        )
        inverse = Inverted.of(grown)
        return replace(
            self,
            documents=grown,
            targets=small_numbers(csr_array(vstack([targets, moved], format="csr"))),
            inverse=replace(inverse, postings=small_numbers(inverse.postings)),
            rarity=rarity,
        )


class Remembering(Ranker):
    """A ranker whose best labels are ranked once more by a `Memory`; the others follow as they were.

    Comes before the ranker among the bases of a class.
    """

    memory: Memory

    @abstractmethod
    def without_memory(self, batch: Batch, k: int) -> TopK:
        """`rank` of the ranker itself."""

    def rank(self, batch: Batch, k: int) -> TopK:
        # As many labels whatever is asked for: what is best must not depend on k.
        depth = self.memory.config.depth
        first = self.without_memory(batch, max(k, depth))
        votes = np.zeros(first.ids.shape, np.float32)
        votes[:, :depth] = self.memory.votes(batch, first.ids[:, :depth])
        return best(first.ids, self.fused(np.maximum(first.scores, 0), votes), min(k, len(self.memory.rarity)))

    def fused(self, scores: F32, votes: F32) -> F32:
        """What is made of scores of rows and votes."""
        return with_votes(scores, votes, self.memory.config.weight)

    def found(self, batch: Batch, k: int) -> ShardLists:
        """Of every label that may be among the first of the whole what it is voted, too."""
        depth = self.memory.config.depth
        found: ShardLists = super().found(batch, max(k, depth))
        votes = tuple(self.memory.votes(batch, top.ids) for top in found.lists)
        return replace(found, votes=votes, voted=depth, weight=self.memory.config.weight)

    def votes_of(self, batch: Batch, ids: I32) -> F32:
        """(B, C): votes for the labels `ids`; 0 for those that are not voted on."""
        _, listed = self.without_memory(batch, self.memory.config.depth).looked_up(ids)
        return np.where(listed, self.memory.votes(batch, ids), np.float32(0))

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Reasons | None:
        """As without a memory; votes are a term beside the total."""
        reasons = super().explain(batch, ids, context)
        if reasons is None:
            return None
        votes, weight = self.votes_of(batch, ids), self.memory.config.weight
        own = "sigmoid(total)" if reasons.formula == LINEAR else "own"
        return replace(
            reasons,
            scores=np.where(reasons.found, self.fused(reasons.scores, votes), 0),
            formula=f"score = ((sqrt({own}) + votes of similar documents) / {1 + weight:g})^2"
            + ("" if own != "own" else f"; own: {reasons.formula}"),
            terms={**reasons.terms, "votes of similar documents": np.float32(weight) * votes},
        )

    def pictures(self, look: Look) -> list[Picture]:
        """What scores of labels are made of: rows, which were learnt, and votes of documents, by label frequency."""
        batch = look.batch.rows(spread(len(look.batch), _LOOKED_AT))
        ids = self.rank(batch, _PLACES).ids
        # The first places were among those that are voted on.
        learnt = np.sqrt(np.maximum(self.without_memory(batch, self.memory.config.depth).looked_up(ids)[0], 0))
        votes = np.float32(self.memory.config.weight) * self.votes_of(batch, ids)
        real = (ids >= 0) & (learnt + votes > 0)
        bins = by_frequency(look.counts)
        group = bins.bin_of_label[ids[real]]
        share = (votes / np.maximum(learnt + votes, np.float32(1e-12)))[real]
        there = np.bincount(group, minlength=len(bins))
        voted = 100 * np.bincount(group, share, minlength=len(bins)) / np.maximum(there, 1)
        names = [name for name, count in zip(bins.names, there, strict=True) if count]
        part = voted[there > 0]
        return [
            Picture(
                "What scores are made of",
                f"Of the first {_PLACES} labels of {len(batch):,} documents: the part of what was learnt from words, "
                "and the part of training documents with words in common that vote for their labels.",
                "stacked",
                names,
                {"learnt from words": (100 - part).tolist(), "votes of similar documents": part.tolist()},
                x_label="training documents of the label",
                y_label="percent",
            )
        ]

    def scores_of(self, batch: Batch, ids: I32, n_labels: int, context: Context | None = None) -> F32:
        scores = super().scores_of(batch, ids, n_labels, context)
        found = (ids >= 0) & ~batch.is_empty()[:, None]
        return np.where(found, self.fused(scores, self.votes_of(batch, ids)), np.float32(0))


@dataclass(frozen=True)
class RememberingRows(Remembering, IndexedRows):
    KIND = "remembering-rows"

    memory: Annotated[Memory, Sized(n_labels="labels")]

    def __post_init__(self) -> None:
        if len(self.index) != len(self.memory.rarity):
            raise ValueError(f"rows of {len(self.index)} labels, and votes for {len(self.memory.rarity)}")

    def without_memory(self, batch: Batch, k: int) -> TopK:
        return IndexedRows.rank(self, batch, k)

    def shards(self, count: int) -> Sequence[Ranker]:
        both = zip(self.index.shards(count), self.memory.shards(count), strict=True)
        return [replace(self, index=index, memory=memory) for index, memory in both]

    def joined(self, parts: Sequence[Ranker]) -> Ranker:
        """Votes are on the best labels of all shards, not on those of each."""
        ours = [part for part in parts if isinstance(part, RememberingRows)]
        index = SplitIndex(tuple(part.index for part in ours))
        return replace(self, index=index, memory=Memory.joined([part.memory for part in ours]))

    def with_added(self, added: AddedLabels) -> RememberingRows:
        return replace(self, index=JoinedIndex.of(self.index, added.rows), memory=self.memory.with_added(added))


@dataclass(frozen=True, kw_only=True)
class RememberingEnsemble(Remembering, Ensemble):
    """Several models with one memory: what training documents say is the same for all."""

    KIND = "remembering-ensemble"

    memory: Annotated[Memory, Sized(n_labels="labels")]

    def without_memory(self, batch: Batch, k: int) -> TopK:
        return Ensemble.rank(self, batch, k)

    def shards(self, count: int) -> Sequence[Ranker]:
        split = zip(Ensemble.shards(self, count), self.memory.shards(count), strict=True)
        return [replace(part, memory=memory) for part, memory in split if isinstance(part, RememberingEnsemble)]

    def joined(self, parts: Sequence[Ranker]) -> Ranker:
        whole = Ensemble.joined(self, parts)
        memory = Memory.joined([part.memory for part in parts if isinstance(part, RememberingEnsemble)])
        return replace(whole, memory=memory) if isinstance(whole, RememberingEnsemble) else whole

    def scores_of(self, batch: Batch, ids: I32, n_labels: int, context: Context | None = None) -> F32:
        # An ensemble looks scores up in its ranking, which has the votes already.
        return Ensemble.scores_of(self, batch, ids, n_labels, context)


def remembered(data: TrainingSet, config: MemoryConfig) -> Memory | None:
    """None where the settings ask for none, or documents have no words."""
    from scipy.sparse import csr_array

    x, reads = data.documents.sparse, data.featurizer
    if not config.weight or x is None or not isinstance(reads, SparseText) or not reads.word_range:
        return None
    words = csr_array(x[:, : reads.word_range.stop], copy=True)
    most = max(config.most * data.n_documents, FEWEST_COMMON)
    common = np.bincount(words.indices, minlength=words.shape[1]) > most
    words.data[common[words.indices]] = 0
    words.eliminate_zeros()
    words = small_numbers(unit_rows(words))
    inverse = Inverted.of(words)
    rarity = (data.sampled_counts() + 1.0) ** -config.rarity
    return Memory(
        words,
        small_numbers(csr_array(data.targets)),
        replace(inverse, postings=small_numbers(inverse.postings)),
        rarity.astype(np.float32),
        config,
    )


def small_numbers(matrix: Csr) -> Csr:
    """The same with numbers as kernels read them: a prediction must not copy the whole index first."""
    matrix.indptr = matrix.indptr.astype(np.int64, copy=False)
    matrix.indices = matrix.indices.astype(np.int32, copy=False)
    matrix.data = matrix.data.astype(np.float32, copy=False)
    return matrix


def equal_numbers(matrix: Csr) -> Csr:
    """The same with all its numbers of one type, as SciPy wants them."""
    indices, starts = (np.asarray(numbers, np.int64) for numbers in (matrix.indices, matrix.indptr))
    return type(matrix)((np.asarray(matrix.data), indices, starts), shape=matrix.shape)


def remembering(model: IndexedRows, data: TrainingSet, config: MemoryConfig) -> IndexedRows:
    """The model with what it remembers of its training documents; itself where that is nothing."""
    memory = remembered(data, config)
    return model if memory is None else RememberingRows(model.encoder, model.refinement, model.index, memory)


def together(members: Sequence[Ranker], data: TrainingSet, config: MemoryConfig) -> Ensemble:
    """Models that remember nothing by themselves, with one memory for all."""
    memory = remembered(data, config)
    return Ensemble(tuple(members)) if memory is None else RememberingEnsemble(members=tuple(members), memory=memory)


def size_of_memory(data: TrainingSet, config: MemoryConfig) -> int:
    """Bytes of what `remembered` gives, while it is made and saved: words and their inverse lists, and targets."""
    x, reads = data.documents.sparse, data.featurizer
    if not config.weight or x is None or not isinstance(reads, SparseText):
        return 0
    words = int(np.count_nonzero(x.indices < reads.word_range.stop))
    return 3 * 8 * words + 8 * data.targets.nnz
