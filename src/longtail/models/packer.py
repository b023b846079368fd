"""A trained model with its tables of vectors packed: the same parts, fewer bytes. Needs no torch.

Tables of words, classifiers of labels and of clusters, and vectors of exact indices are packed; what is small beside
them, and the links of an HNSW graph, stays as it is. The last number of the rows of `IndexedRows` is a bias and is
kept whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from longtail.errors import ConfigError
from longtail.models.clusters import ClusterModel
from longtail.models.encoders import FrozenBag, FrozenCnn, FrozenMlp, FrozenSum, FrozenUnit
from longtail.models.rows import IndexedRows
from longtail.models.shortlisted import Classifier, Ensemble, Model, Reranked
from longtail.models.transformer import FrozenTransformer
from longtail.recipes.astec.ranker import EncodedTree
from longtail.recipes.galaxc.ranker import JointGraphModel
from longtail.search.cluster_beam import ClusterBeam
from longtail.search.index import ExactIndex
from longtail.search.packed import PackedIndex, PackedRows, PackedType, Rows
from longtail.search.shortlist import InstanceVote, LabelIndex, MergedShortlist
from longtail.types import F32, BoolArray


@dataclass(frozen=True)
class Packer:
    """dtype: of the packed numbers; int4 is for vectors of words, of which a document has many, and those of labels
    are then int8.

    features: how many word vectors are kept, the most useful; 0: all that are not zero.

    influence: (V,) how much a word's vector matters beside its length, to any scale. None: all alike.
    """

    dtype: PackedType
    features: int = 0
    influence: F32 | None = None

    @property
    def label_dtype(self) -> PackedType:
        return "int8" if self.dtype == "int4" else self.dtype

    def ranker(self, model: Any) -> Any:
        """The model, packed; refuses one that has no tables of vectors."""
        match model:
            case IndexedRows():
                return replace(
                    model, encoder=self.encoder(model.encoder), index=self.index(model.index, last_whole=True)
                )
            case Model():
                shortlister = self.shortlister(model.shortlister, model.classifier.rows.shape[1])
                return replace(
                    model,
                    encoder=self.encoder(model.encoder),
                    shortlister=shortlister,
                    classifier=self.classifier(model.classifier),
                )
            case Reranked():
                base, encoder = self.ranker(model.base), self.encoder(model.encoder)
                return replace(model, base=base, encoder=encoder, classifier=self.classifier(model.classifier))
            case Ensemble():
                return replace(model, members=tuple(self.ranker(member) for member in model.members))
            case ClusterModel():
                beam = model.beam.packed(self.label_dtype, width=model.classifier.rows.shape[1])
                return replace(
                    model, encoder=self.encoder(model.encoder), beam=beam, classifier=self.classifier(model.classifier)
                )
            case EncodedTree():
                return replace(model, encoder=self.encoder(model.encoder))
            case JointGraphModel():
                space = replace(model.space, encoder=self.encoder(model.space.encoder))
                return replace(
                    model, space=space, index=self.index(model.index), classifier=self.classifier(model.classifier)
                )
            case _:
                raise ConfigError(
                    f"a model of the kind '{model.KIND}' has no tables of vectors that could be packed",
                    "use it as it is; models of direct, astec, eclare and galaxc can be packed",
                )

    def encoder(self, encoder: Any) -> Any:
        """Encoders of given vectors have no table and stay as they are."""
        if isinstance(encoder, FrozenBag | FrozenSum | FrozenMlp | FrozenCnn):
            return replace(encoder, table=self.rows(encoder.table, self.dtype, self.worth_keeping))
        if isinstance(encoder, FrozenUnit):
            return replace(encoder, encoder=self.encoder(encoder.encoder))
        if isinstance(encoder, FrozenTransformer):
            return encoder.packed(self.label_dtype)
        return encoder

    def classifier(self, classifier: Classifier) -> Classifier:
        return replace(classifier, rows=self.rows(classifier.rows, self.label_dtype))

    def shortlister(self, shortlister: Any, width: int) -> Any:
        """width: numbers of the vectors that it is asked with."""
        match shortlister:
            case ClusterBeam():
                return shortlister.packed(self.label_dtype, width=width)
            case LabelIndex():
                return LabelIndex(self.index(shortlister.index), shortlister.owners)
            case InstanceVote():
                return InstanceVote(self.index(shortlister.index), shortlister.targets, shortlister.neighbours)
            case MergedShortlist():
                labels, instances = (
                    self.shortlister(shortlister.labels, width),
                    self.shortlister(shortlister.instances, width),
                )
                return MergedShortlist(labels, instances, shortlister.gamma, shortlister.reserved)
            case _:
                return shortlister

    def index(self, index: Any, *, last_whole: bool = False) -> Any:
        return (
            PackedIndex.of(index, self.label_dtype, last_whole=last_whole) if isinstance(index, ExactIndex) else index
        )

    def rows(self, rows: Rows, dtype: PackedType, keep: Any = None) -> PackedRows:
        if isinstance(rows, PackedRows):
            raise ConfigError("the model is packed already", "pack the run or bundle that it was made from")
        return PackedRows.of(rows, dtype, None if keep is None else keep(rows))

    def worth_keeping(self, table: F32) -> BoolArray:
        """(V,) which vectors of words are kept: none that is zero; the `features` that move documents most."""
        length = np.sqrt(np.einsum("vd,vd->v", table, table, dtype=np.float32))
        keep: BoolArray = length > 0
        if self.features and self.features < np.count_nonzero(keep):
            weight = length if self.influence is None else length * self.influence
            keep = np.zeros_like(keep)
            keep[np.argsort(-weight, kind="stable")[: self.features]] = True
        return keep
