"""A planted world in which labels never occur together: every training document keeps one of its labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from longtail.config import resolve
from longtail.data.dataset import Dataset
from longtail.data.from_texts import binary_csr, with_digest
from longtail.data.synthetic import PRESETS, synthesise
from longtail.types import Csr


def single_label_world(seed: int, **knobs: Any) -> Dataset:
    """The small synthetic world with `knobs`, its training documents cut to one label each; the test side stays as it
    is.
    """
    made = synthesise(resolve(PRESETS["small"], knobs, "planted data"), seed).dataset
    train = replace(made.train, targets=_one_of_each_row(made.train.targets, np.random.default_rng([seed, 0x51])))
    return with_digest(replace(made, train=train))


def _one_of_each_row(targets: Csr, rng: np.random.Generator) -> Csr:
    counts = np.diff(targets.indptr).astype(np.int64)
    rows = np.flatnonzero(counts)
    chosen = targets.indptr[rows] + (rng.random(len(rows)) * counts[rows]).astype(np.int64)
    return binary_csr(rows.astype(np.int64), targets.indices[chosen].astype(np.int64), targets.shape)
