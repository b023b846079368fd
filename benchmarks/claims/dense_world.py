"""A planted world of dense vectors, as an image encoder might give them: what tells labels apart is a small part of
the variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.data.dataset import Dataset, Items, Split
from longtail.data.from_texts import with_digest
from longtail.data.synthetic import Synthetic, SyntheticConfig, synthesise
from longtail.types import F32, Csr

WIDTH = 512
LATENT = 64  # numbers that describe a label
NUISANCE = 64  # directions that have nothing to do with labels


def dense_world(
    seed: int, *, informativeness: float = 1.0, nuisance: float = 2.0, noise: float = 0.3, **knobs: Any
) -> Dataset:
    """Documents of the synthetic world of `knobs` as (n, 512) vectors in place of texts.

    A document's vector is a fixed random map of the sum of its labels' latent vectors (times `informativeness`) and
    of nuisance variables (times `nuisance`), squashed, with noise on top. Nearest neighbours are led astray by the
    nuisance; a learned projection can leave it out. With informativeness 0 the vectors know nothing of the labels.
    """
    made: Synthetic = synthesise(SyntheticConfig(**knobs), seed)
    rng = np.random.default_rng([seed, 0xDE5E])
    latent = rng.standard_normal((len(made.dataset.labels), LATENT), dtype=np.float32)
    mixing = rng.standard_normal((LATENT + NUISANCE, WIDTH), dtype=np.float32) / np.float32(np.sqrt(LATENT + NUISANCE))

    def vectors(truth: Csr) -> F32:
        meaning = informativeness * _means(truth, latent)
        chance = nuisance * rng.standard_normal((truth.shape[0], NUISANCE), dtype=np.float32)
        seen = np.tanh(np.hstack([meaning, chance]).astype(np.float32) @ mixing)
        return (seen + noise * rng.standard_normal(seen.shape, dtype=np.float32)).astype(np.float32)

    data = made.dataset
    test = data.need_test()
    sides = [
        _with_vectors(split, vectors(truth))
        for split, truth in ((data.train, made.complete_train), (test, made.complete_test))
    ]
    return with_digest(Dataset("synthetic", Items(data.labels.uids), sides[0], sides[1]))


def _means(truth: Csr, latent: F32) -> F32:
    """(n, LATENT): the mean latent vector of each document's labels."""
    counts = np.maximum(np.diff(truth.indptr), 1).astype(np.float32)
    sums: F32 = np.asarray(truth @ latent, dtype=np.float32)
    return sums / counts[:, None]


def _with_vectors(split: Split, vectors: F32) -> Split:
    # No document is a label here: vectors of labels do not exist, so nothing is masked.
    return Split(Items(split.documents.uids, vectors=vectors), split.targets)
