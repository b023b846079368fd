"""The bundle: a trained model as a folder that can be copied, checked and opened anywhere.

    manifest.json    format version, recipe, data, sizes, and size and SHA-256 of every file
    config.toml      every setting of the training
    labels/          ids, names and training frequencies of the labels
    featurizer/      vocabulary and statistics: the same text gives the same numbers
    ranker/          the model
    holdout/         ids of the documents that were held out of training, where some were

Equal trainings give equal bytes: no times, paths or machine names inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longtail import __version__
from longtail.data.dataset import Items
from longtail.errors import BundleError
from longtail.features.base import Featurizer
from longtail.manifest import BUNDLE_FORMAT, MANIFEST, digest_of, open_parts, sha256
from longtail.persistence import (
    DataPart,
    Part,
    StringTable,
    load_part,
    save_part,
    saved_again,
    write_json,
    written_aside,
)
from longtail.report import named
from longtail.types import I64, Ranker

HOLDOUT = "holdout"


@dataclass(frozen=True)
class LabelTable(DataPart):
    """Ids, names and training frequencies of the labels, in the order of their numbers."""

    KIND = "label-table"

    uids: StringTable
    names: StringTable
    counts: I64

    def __post_init__(self) -> None:
        if not len(self.uids) == len(self.names) == len(self.counts):
            raise ValueError("ids, names and counts of the labels do not fit together")

    @classmethod
    def of(cls, labels: Items, counts: I64) -> LabelTable:
        return cls(StringTable.of(labels.uids), StringTable.of([labels.name(i) for i in range(len(labels))]), counts)

    def __len__(self) -> int:
        return len(self.uids)


@dataclass(frozen=True)
class Bundle:
    """An opened bundle. Arrays are memory-mapped."""

    folder: Path
    manifest: Mapping[str, Any]
    labels: LabelTable
    featurizer: Featurizer
    ranker: Ranker

    def __repr__(self) -> str:
        folder = str(self.folder) if len(str(self.folder)) <= 80 else f"...{str(self.folder)[-77:]}"
        return f"Bundle({named(str(self.manifest.get('recipe')))}, {len(self.labels):,} labels, {folder})"

    def held_out(self) -> StringTable | None:
        """Ids of the documents that were held out of training; None where none were."""
        folder = self.folder / HOLDOUT
        found: StringTable | None = load_part(folder) if folder.is_dir() else None
        return found


def write_bundle(
    folder: Path,
    *,
    about: Mapping[str, Any],
    config: str,
    labels: LabelTable,
    featurizer: Part,
    ranker: Part | Path,
    held_out: StringTable | None = None,
) -> None:
    """Write a bundle, which must not exist yet, aside and put it in place in one step.

    about: recipe, seed, data, and metrics on held-out documents.  ranker: a path where it is saved already, e.g. as
    the last stage of a run.  held_out: ids of these documents.
    """
    with written_aside(folder) as aside:
        aside.mkdir()
        (aside / "config.toml").write_text(config, encoding="utf-8")
        save_part(labels, aside / "labels")
        save_part(featurizer, aside / "featurizer")
        if isinstance(ranker, Path):
            saved_again(ranker, aside / "ranker")
        else:
            save_part(ranker, aside / "ranker")
        if held_out is not None:
            save_part(held_out, aside / HOLDOUT)
        paths = sorted(path for path in aside.rglob("*") if path.is_file())
        files = {
            path.relative_to(aside).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths
        }
        head = {"format": BUNDLE_FORMAT, "longtail": __version__, "n_labels": len(labels), **about, "files": files}
        write_json(aside / MANIFEST, {**head, "manifest_sha256": digest_of(head)})


def open_bundle(path: Path, *, verify: bool = True) -> Bundle:
    """Open a run's bundle. Every file is checked against the manifest; ``verify=False`` checks sizes but not
    checksums.
    """
    folder, manifest, parts = open_parts(path, ("labels", "featurizer", "ranker"), verify=verify)
    labels, featurizer, ranker = parts
    if (
        not isinstance(labels, LabelTable)
        or not isinstance(ranker, Ranker)
        or not hasattr(featurizer, "batch_of_texts")
        or len(labels) != manifest["n_labels"]
    ):
        raise BundleError(
            f"{folder}: the parts of the bundle are not labels, a featurizer and a ranker that fit together",
            "the bundle was altered; train again or copy it anew",
        )
    return Bundle(folder, manifest, labels, featurizer, ranker)


def label_counts(targets: Any) -> I64:
    """(L,) documents per label of a targets matrix."""
    return np.bincount(targets.indices, minlength=targets.shape[1]).astype(np.int64)
