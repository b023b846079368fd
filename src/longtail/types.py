"""The shapes that travel between rooms. No torch here: prediction must not need it.

Words: *document*, *label*, *shortlist* (ranked labels, a `TopK`), *candidates* (labels of one training step).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from longtail.declared import Shaped
from longtail.errors import ConfigError
from longtail.picture import Picture

# scipy has no type stubs that stay out of the way, so a CSR array is `Any` to mypy; the name says what it is.
Csr: TypeAlias = Annotated[Any, "CSR array"]
F32: TypeAlias = NDArray[np.float32]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
# Frames of pandas, polars and Arrow, series, arrays, lists of texts or dicts (`longtail.data.frames`). Any of these
# libraries may be missing, so mypy cannot know their types.
Frame: TypeAlias = Annotated[Any, "a frame, a series, an array, or a list of texts or dicts"]
FrameKind: TypeAlias = Literal["pandas", "polars", "arrow"]


class DocumentGraphs(Protocol):
    """A small graph per document, e.g. `longtail.recipes.gnnxml.keygraph.KeyGraphs`."""

    def __len__(self) -> int: ...

    def rows(self, index: Any) -> DocumentGraphs:
        """The documents at `index` (a slice or an integer array), in that order."""
        ...

    def is_empty(self) -> BoolArray:
        """(B,) whether a document's graph says nothing."""
        ...


@dataclass(frozen=True)
class Batch:
    """Documents as numbers. At least one view is present; an encoder reads the one it was built for.

    sparse: (B, V) CSR float32, TF-IDF rows of unit length.
    dense: (B, D) float32, any vectors.
    tokens: (B, T) int32, token numbers in reading order, padded with -1.
    graphs: B keyword graphs.
    """

    sparse: Annotated[Csr, Shaped("documents", "_")] | None = None
    dense: Annotated[F32, Shaped("documents", "_")] | None = None
    tokens: Annotated[I32, Shaped("documents", "_", plain=True)] | None = None
    graphs: DocumentGraphs | None = None

    def __post_init__(self) -> None:
        if self.sparse is None and self.dense is None and self.tokens is None and self.graphs is None:
            raise ValueError("a Batch needs at least one of sparse, dense, tokens, graphs")

    def __len__(self) -> int:
        for view in (self.sparse, self.dense, self.tokens):
            if view is not None:
                return int(view.shape[0])
        assert self.graphs is not None, "__post_init__ checks this"
        return len(self.graphs)

    def __repr__(self) -> str:
        views = {"sparse": self.sparse, "dense": self.dense, "tokens": self.tokens}
        shapes = [f", {name} {view.shape[1]:,} wide" for name, view in views.items() if view is not None]
        return f"Batch({len(self):,} documents{''.join(shapes)}{'' if self.graphs is None else ', graphs'})"

    def is_empty(self) -> NDArray[np.bool_]:
        """(B,) whether a document holds nothing that the features know."""
        empty = np.ones(len(self), dtype=np.bool_)
        if self.sparse is not None:
            empty &= np.diff(self.sparse.indptr) == 0
        if self.dense is not None:
            empty &= ~np.any(self.dense != 0, axis=1)
        if self.tokens is not None:
            empty &= ~np.any(self.tokens >= 0, axis=1)
        if self.graphs is not None:
            empty &= self.graphs.is_empty()
        return empty

    def rows(self, index: Any) -> Batch:
        """The documents at `index` (a slice or an integer array), in that order."""

        def take(view: Any) -> Any:
            return None if view is None else view[index]

        return Batch(
            take(self.sparse),
            take(self.dense),
            take(self.tokens),
            None if self.graphs is None else self.graphs.rows(index),
        )


@dataclass(frozen=True)
class TopK:
    """Ranked labels per document: the one result type of shortlisters, rankers and evaluation.

    ids: (B, k) int32, best first, padded with `PAD` where fewer than k labels were found.
    scores: (B, k) float32, decreasing; -inf at padding. Ties are ordered by label number.
    """

    ids: I32
    scores: F32

    PAD = -1

    def __post_init__(self) -> None:
        if self.ids.shape != self.scores.shape or self.ids.ndim != 2:
            raise ValueError(f"TopK needs two (B, k) arrays, got {self.ids.shape} and {self.scores.shape}")

    @classmethod
    def padding(cls, documents: int, k: int) -> TopK:
        """Lists that hold nothing yet, for kernels to fill."""
        return cls(np.full((documents, k), cls.PAD, dtype=np.int32), np.full((documents, k), -np.inf, dtype=np.float32))

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    @property
    def k(self) -> int:
        return int(self.ids.shape[1])

    def above(self, threshold: float) -> TopK:
        """Without labels that score less."""
        kept = self.scores >= np.float32(threshold)
        return TopK(np.where(kept, self.ids, np.int32(self.PAD)), np.where(kept, self.scores, np.float32(-np.inf)))

    def looked_up(self, ids: I32) -> tuple[F32, BoolArray]:
        """(B, C): the scores of labels `ids` (B, C), and whether they are listed; 0 where they are not."""
        scores, found = np.zeros(ids.shape, dtype=np.float32), np.zeros(ids.shape, dtype=np.bool_)
        for place in range(ids.shape[1]):
            same = (self.ids == ids[:, place, None]) & (self.ids != self.PAD)
            rows = np.flatnonzero(same.any(axis=1))
            found[rows, place] = True
            scores[rows, place] = self.scores[rows, same[rows].argmax(axis=1)]
        return scores, found

    def __repr__(self) -> str:
        best = zip(self.ids[:1].ravel()[:3].tolist(), self.scores[:1].ravel()[:3].tolist(), strict=True)
        first = ", ".join(f"{label} ({score:.3g})" for label, score in best if label != self.PAD)
        return f"TopK({len(self):,} documents, k={self.k}{first and f'; first: {first}'})"


@dataclass(frozen=True)
class Candidates:
    """The labels that one training step scores, per document: its positives first, then negatives.

    ids: (B, S) int32, unique within a row, padded with `TopK.PAD` (-1: replace it before a gather).
    targets: (B, S) float32, 1 for a positive, 0 for a negative and at padding.
    mask: (B, S) bool, True where an entry is real.
    """

    ids: I32
    targets: F32
    mask: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not (self.ids.shape == self.targets.shape == self.mask.shape) or self.ids.ndim != 2:
            raise ValueError(
                f"Candidates need three (B, S) arrays, got {self.ids.shape}, {self.targets.shape} and {self.mask.shape}"
            )

    def __len__(self) -> int:
        return int(self.ids.shape[0])


@runtime_checkable
class Shortlister(Protocol):
    """Finds a few hundred promising labels for a document vector. A shortlister derives from this class."""

    def query(self, vectors: NDArray[Any], k: int) -> TopK: ...

    def packed(self, packer: Any, width: int) -> Any:
        """The same with its tables in fewer bytes; itself where it has none.

        packer: a `longtail.search.packed.Packer`.  width: numbers of the vectors that it is asked with.
        """
        return self

    def voting_documents(self) -> tuple[F32, Csr] | None:
        """Vectors (N, D) and labels (N, L) of the training documents that vote for their labels; None where none do,
        or where their vectors are not kept as they are.
        """
        return None


@runtime_checkable
class Ranker(Protocol):
    """A trained model, ready to predict: documents in, ranked labels out. Saved and loaded as a part; needs no torch.

    A ranker derives from this class and has `rank`. What else one may be able to do has the answer of one that cannot.
    """

    KIND: str

    def rank(self, batch: Batch, k: int) -> TopK: ...

    def row_by_row(self) -> bool:
        """Whether no step has threads of its own, and what is said of a document does not depend on those beside it,
        to the last bit (in a batch of `predictor.FEWEST` or more).

        Such a model answers a batch piece by piece on several threads. So it is where all steps are our kernels: bags
        of words, and rows in bytes. BLAS adds up in another order where there are fewer rows, and BLAS and faiss have
        threads of their own, which would stand in the way of ours.
        """
        return False

    def packed(self, packer: Any) -> Any:
        """The same model with its tables of vectors in fewer bytes. packer: a `longtail.search.packed.Packer`."""
        raise ConfigError(
            f"a model of the kind '{self.KIND}' has no tables of vectors that could be packed",
            "use it as it is; models of direct, astec, eclare and galaxc can be packed",
        )

    def shards(self, count: int) -> Sequence[Ranker]:
        """Models of labels n, n + count, n + 2 count, ... each, which `joined` makes one of again."""
        raise ConfigError(
            f"a model of the kind '{self.KIND}' finds labels through each other and cannot be split",
            "models of the recipe direct can be split",
        )

    def joined(self, parts: Sequence[Ranker]) -> Ranker:
        """The whole of which `parts` are the `shards`, this being the first of them."""
        raise ConfigError(f"a model of the kind '{self.KIND}' is no part of another", "give each by itself")

    def found(self, batch: Batch, k: int) -> Any:
        """A `longtail.search.split.ShardLists`: with those of the other `shards` the `k` best labels follow."""
        raise ConfigError(
            f"a model of the kind '{self.KIND}' is no shard of another, or its labels were changed since",
            "serve shards as 'longtail split' wrote them",
        )

    def packed_rows(self) -> Any:
        """The index over packed rows that it compares every document with; None where it has none. A ranker that has
        one keeps it as its field `index`, and `queries` gives what a batch asks it.
        """
        return None

    def diagnose(self, look: Any) -> dict[str, Any]:
        """What can be told of the inside of the model, by name. look: a `longtail.models.analysis.Look`."""
        return {}

    def pictures(self, look: Any) -> list[Picture]:
        """Plots of the inside of the model, as its paper shows them. look: as in `diagnose`."""
        return []

    def explain(self, batch: Batch, ids: I32, context: Context | None = None) -> Any:
        """Why documents have labels `ids` (B, C; -1: none), a `longtail.explanation.Reasons`: what each feature adds,
        and whatever else this model uses. None where features do not add up: words can then be left out one by one.
        """
        return None

    def scores_of(self, batch: Batch, ids: I32, n_labels: int, context: Context | None = None) -> F32:
        """(B, C): the scores of labels `ids` (B, C); 0 for those that are not found."""
        asked: Any = self
        top: TopK = self.rank(batch, n_labels) if context is None else asked.rank_in_context(batch, n_labels, context)
        return top.looked_up(ids)[0]

    def label_encoder(self) -> Any:
        """The encoder of documents that reads label texts as well, so that labels can be found which training never
        saw; None where each label was learnt by itself.
        """
        return None

    def label_space(self) -> Any:
        """Where new labels find a place without training, a `longtail.models.new_labels.LabelSpace`; None where the
        model cannot take any.
        """
        return None

    def with_added(self, added: Any) -> Any:
        """The same model with more labels behind its own, `longtail.models.new_labels.AddedLabels`; asked only where
        there is a `label_space`.
        """
        raise ConfigError(
            f"a model of the kind '{self.KIND}' knows only the labels of its training",
            "train again with the new labels, or train direct, eclare or one of the towers, which take new ones",
        )

    def document_encoder(self) -> Any:
        """The encoder that makes vectors of documents, a `longtail.models.encoders.FrozenEncoder`; None where there is
        none.
        """
        return None

    def label_vectors(self, part: slice = slice(None)) -> F32 | None:
        """(l, D): vectors of the labels of `part`, whose product with `document_vectors` ranks as the model does, but
        for votes of training documents that it may remember; None where no such vectors are.
        """
        return None

    def document_vectors(self, batch: Batch) -> F32 | None:
        """(B, D): vectors of documents, in the space of `label_vectors` where there are such; None where documents have
        none.
        """
        encoder = self.document_encoder()
        return None if encoder is None else encoder.encode(batch)

    def onnx(self) -> bytes | None:
        """The encoder as an ONNX graph (see `longtail.packing`); None where it is no transformer."""
        return None


@dataclass(frozen=True)
class Context:
    """What is known of B documents beside what they say.

    labels: (B, L) CSR, labels that a document is known to have (warm start); they are not predicted again. A row may
        be empty.
    anchors: (B, M) CSR, nodes of given graphs that a document is linked to.
    together: documents may be linked to each other (transductive): what is said of one then depends on the others.
    """

    labels: Csr | None = None
    anchors: Csr | None = None
    together: bool = False

    def rows(self, index: Any) -> Context:
        return Context(
            None if self.labels is None else self.labels[index],
            None if self.anchors is None else self.anchors[index],
            self.together,
        )


@runtime_checkable
class ContextRanker(Ranker, Protocol):
    """A ranker that can use a `Context`.

    anchor_uids: ids of the anchors that `Context.anchors` numbers; empty where the model knows none.
    """

    @property
    def anchor_uids(self) -> Sequence[str]: ...

    def rank_in_context(self, batch: Batch, k: int, context: Context) -> TopK: ...
