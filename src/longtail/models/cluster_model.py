"""A model that finds clusters first: encode -> best clusters -> scores of their labels -> GAME -> product."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from longtail.models.analysis import Look, shortlist_recall
from longtail.models.encoders import FrozenEncoder, Refinement, refined
from longtail.models.shortlisted import Classifier, sigmoid
from longtail.persistence import DataPart
from longtail.search.cluster_beam import ClusterBeam
from longtail.search.game import Game, per_label, rank_labels
from longtail.search.packed import Packer
from longtail.types import Batch, Csr, Ranker, TopK

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

    encoder: FrozenEncoder
    shortlist_map: Refinement | None
    rank_map: Refinement | None
    beam: ClusterBeam
    classifier: Classifier
    label_graph: Csr | None = None
    game_mix: float = 1.0
    game_transpose: bool = False
    cluster_power: float = 1.0
    _game: Game | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        game = None if self.label_graph is None else Game(self.label_graph, self.game_mix, self.game_transpose)
        object.__setattr__(self, "_game", game)

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
        vectors = self.encoder.encode(batch)
        clusters, p = self.beam.select(refined(vectors, self.shortlist_map))
        labels = self.beam.labels_of(clusters)
        # Of a document without a known word nothing can be said; any order would be made up.
        labels[batch.is_empty()] = TopK.PAD
        raw = self.classifier.scores(refined(vectors, self.rank_map), labels)
        r = np.where(labels >= 0, sigmoid(raw), np.float32(0))
        spread = r if self._game is None else self._game.within(labels, r)
        rank_labels(labels, spread * per_label(p**self.cluster_power, labels), top)

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

    def diagnose(self, look: Look) -> dict[str, Any]:
        """The recall of the labels of the best clusters."""
        found, vectors = self.encoder.diagnose(look), self.encoder.encode(look.batch)
        size = min(self.shortlist_size, len(self.classifier.rows))
        shortlist = self.beam.query(refined(vectors, self.shortlist_map), size)
        return {**found, "shortlist_recall": shortlist_recall(shortlist, self.shortlist_size, look)}
