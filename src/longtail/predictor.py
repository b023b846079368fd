"""Asking a trained model. Needs no torch; arrays are memory-mapped, so opening takes no time and memory is shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longtail.bundle import Bundle, open_bundle
from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.types import TopK


@dataclass(frozen=True)
class Prediction:
    """One label of one document."""

    label: str
    name: str
    score: float


class Predictor:
    """``Predictor.open("RUN").predict(["a small domesticated feline"], k=5)``"""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = True) -> Predictor:
        """Open a run or a bundle. ``verify=False`` skips the checksums (sizes are still compared)."""
        return cls(open_bundle(Path(path), verify=verify))

    def predict(self, texts: Sequence[str] | str, k: int = 5) -> list[list[Prediction]]:
        """The `k` best labels of every text, best first: ids, names and scores."""
        if isinstance(texts, str):
            texts = [texts]
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ConfigError(f"text {number} is {text!r}, expected a string", "give a list of strings")
        if k < 1:
            raise ConfigError(f"k is {k}, expected a whole number >= 1", "ask for at least one label")
        if not texts:
            return []
        return self.named(self.bundle.ranker.rank(self.bundle.featurizer.batch_of_texts(list(texts)), k))

    def rank(self, documents: Items, k: int, *, block: int = 4096, on_block: Callable[[int], None] = lambda done: None) -> TopK:
        """Ranked label numbers of documents with all their fields, in order, none dropped.

        on_block: called with the number of documents done since the last call.
        """
        documents = self._readable(documents)
        width = min(k, len(self.bundle.labels))
        ids = np.full((len(documents), width), TopK.PAD, dtype=np.int32)
        scores = np.full((len(documents), width), -np.inf, dtype=np.float32)
        for start in range(0, len(documents), block):
            rows = np.arange(start, min(start + block, len(documents)), dtype=np.int64)
            top = self.bundle.ranker.rank(self.bundle.featurizer.batch(documents.rows(rows)), width)
            ids[rows, : top.k], scores[rows, : top.k] = top.ids, top.scores
            on_block(len(rows))
        return TopK(ids, scores)

    def _readable(self, documents: Items) -> Items:
        """Documents with every field that the model reads: a field they lack is empty, a plain text is the first field."""
        fields, given = self.bundle.featurizer.fields, dict(documents.fields)
        if list(given) == ["title"] and fields and "title" not in fields:
            given = {fields[0]: given["title"]}
        if not any(name in given for name in fields):
            return documents
        return Items(documents.uids, {name: given.get(name, [""] * len(documents)) for name in fields}, documents.vectors)

    def named(self, top: TopK) -> list[list[Prediction]]:
        """Label numbers as ids and names."""
        labels = self.bundle.labels
        return [
            [Prediction(labels.uids[label], labels.names[label], score) for label, score in zip(ids, scores, strict=True) if label != TopK.PAD]
            for ids, scores in zip(top.ids.tolist(), top.scores.tolist(), strict=True)
        ]
