"""A model split by label into shards, each a bundle of its own: for label rows that one disk or memory does not hold.

Shard i of n has labels i - 1, i - 1 + n, i - 1 + 2 n, ... A folder of all shards opens as the whole model
(`longtail.bundle.open_bundle`), whose answers are those of the bundle that was split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from longtail.bundle import SHARD, LabelTable, open_bundle, write_bundle
from longtail.errors import ConfigError
from longtail.label_changes import with_changes
from longtail.persistence import StringTable, written_aside
from longtail.writing import refuse_taken


def split(model: Path, out: Path, shards: int) -> list[Path]:
    """Write the shards of a run's or a bundle's model into the folder `out`, which must not exist."""
    refuse_taken(out)
    trained = open_bundle(model)
    bundle = with_changes(trained)
    if not 1 <= shards <= len(bundle.labels):
        raise ConfigError(
            f"--shards {shards} of a model of {len(bundle.labels):,} labels",
            "give a number from 1 to that of the labels",
        )
    if bundle.ranker is not trained.ranker:
        raise ConfigError(
            f"{model}: labels were added, merged or retired since training, and such a model cannot be split",
            f"take these changes back first: longtail labels undo {model}",
        )
    if bundle.calibration() is not None:
        raise ConfigError(
            f"{model}: a calibrated model, whose probabilities are of all labels together",
            f"take its calibration back first: longtail calibrate {model} --undo",
        )
    config = bundle.config()
    about = {
        name: value
        for name, value in bundle.manifest.items()
        if name not in ("format", "longtail", "n_labels", "files", "manifest_sha256", "metrics")
    }
    width = len(str(shards))
    names = [f"{SHARD}{number:0{width}}-of-{shards}" for number in range(1, shards + 1)]
    with written_aside(out) as aside:
        aside.mkdir()
        for number, (name, ranker) in enumerate(zip(names, bundle.ranker.shards(shards), strict=True)):
            numbers = np.arange(number, len(bundle.labels), shards)
            part: Any = ranker  # rankers are parts as well
            write_bundle(
                aside / name,
                about={
                    **about,
                    "shard": {"number": number + 1, "of": shards, "model": bundle.manifest["manifest_sha256"]},
                },
                config=config,
                labels=LabelTable(
                    StringTable.of(bundle.labels.uids.take(numbers)),
                    StringTable.of(bundle.labels.names.take(numbers)),
                    np.ascontiguousarray(bundle.labels.counts[numbers]),
                ),
                featurizer=bundle.featurizer,
                ranker=part,
            )
    return [out / name for name in names]
