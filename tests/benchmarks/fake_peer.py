"""A peer for tests of the race: every document gets the most frequent labels; it counts how often it was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


class Popular:
    NEEDS = ("numpy",)

    def train(self, texts: list[str], targets: Any, folder: Path, threads: int) -> None:
        assert len(texts) == targets.shape[0]
        counts = np.asarray(targets.sum(axis=0)).ravel()
        (folder / "model.json").write_text(json.dumps(counts.tolist()))
        print("noise on standard output")

    def open(self, folder: Path, threads: int) -> None:
        self.counts = np.array(json.loads((folder / "model.json").read_text()))

    def rank(self, texts: list[str], k: int) -> list[list[tuple[int, float]]]:
        print("more noise")
        return self._most_frequent(len(texts), k)

    def fit(self, rows: Any, targets: Any, folder: Path, threads: int) -> None:
        assert rows.shape[0] == targets.shape[0]
        self.train([""] * rows.shape[0], targets, folder, threads)

    def load(self, folder: Path, threads: int) -> None:
        self.open(folder, threads)

    def rank_rows(self, rows: Any, k: int, beam: int | None = None) -> list[list[tuple[int, float]]]:
        assert beam == max(10, k)
        return self._most_frequent(rows.shape[0], k)

    def _most_frequent(self, documents: int, k: int) -> list[list[tuple[int, float]]]:
        order = np.argsort(-self.counts, kind="stable")[:k]
        return [[(int(label), float(self.counts[label])) for label in order] for _ in range(documents)]


class Broken(Popular):
    def train(self, texts: list[str], targets: Any, folder: Path, threads: int) -> None:
        raise RuntimeError("this peer always fails")
