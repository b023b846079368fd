"""The encoder of a model that was trained before, for another model to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from longtail.errors import BundleError, ConfigError
from longtail.features.base import Featurizer
from longtail.features.sparse import SparseText
from longtail.models.encoders import FrozenBag, FrozenDense, FrozenEncoder, FrozenSum
from longtail.persistence import load_part


def encoder_of_bundle(path: Path, featurizer: Featurizer) -> FrozenEncoder:
    """The encoder of a run or bundle, for features of `featurizer`.

    Word vectors go by the spelling of words: a word that the other model did not know has none (zeros). Other
    encoders need the same features.
    """
    folder = next((folder for folder in (path, path / "bundle") if (folder / "ranker").is_dir()), None)
    if folder is None:
        raise BundleError(
            f"{path}: neither a finished run nor a bundle",
            "give the --out folder of 'longtail train', or a bundle folder",
        )
    encoder = _encoder_in(load_part(folder / "ranker"))
    if encoder is None:
        raise ConfigError(
            f"{folder}: the model has no encoder that gives vectors", "use a run of astec, eclare or galaxc"
        )
    theirs = load_part(folder / "featurizer")
    if (
        isinstance(encoder, FrozenBag | FrozenSum)
        and isinstance(theirs, SparseText)
        and isinstance(featurizer, SparseText)
    ):
        return type(encoder)(_by_spelling(encoder.table, theirs, featurizer))
    if isinstance(encoder, FrozenDense) and theirs.KIND == featurizer.KIND and theirs.width == featurizer.width:
        return encoder
    raise ConfigError(
        f"{folder}: a '{encoder.KIND}' encoder over '{theirs.KIND}' features cannot read the '{featurizer.KIND}' "
        "features of this data",
        "use a run of astec or eclare that was trained on text",
    )


def _encoder_in(ranker: Any) -> Any:
    """The encoder inside a ranker, under a re-ranker, of the first member of an ensemble, or of a graph's space."""
    for name in ("encoder", "base", "space", "members"):
        inner = getattr(ranker, name, None)
        if name == "encoder" and inner is not None:
            return inner
        if inner is not None:
            return _encoder_in(inner[0] if isinstance(inner, tuple) else inner)
    return None


def _by_spelling(table: Any, theirs: SparseText, ours: SparseText) -> Any:
    """(V, D): the rows of `table` in the order of our features, zeros where they have none."""
    known, wanted = theirs.keys, ours.keys
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found = known[place] == wanted
    rows = np.zeros((len(wanted), table.shape[1]), dtype=np.float32)
    rows[found] = table[place[found]]
    return rows
