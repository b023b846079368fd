"""Packing a bundle: float16 or int8 in place of float32, the fastest search over its rows, and what that saves and
costs. Needs no torch. What is packed: `longtail.search.packed.Packer`, and `packed` of each part of a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from longtail.bundle import Bundle, open_bundle, write_bundle
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import ConfigError
from longtail.evaluation import evaluate
from longtail.manifest import MANIFEST, find_bundle
from longtail.models.indexed_rows import IndexedRows
from longtail.persistence import read_json
from longtail.predictor import Predictor
from longtail.search.choice import QUERIES, Choice, SearchKind, choose
from longtail.search.packed import PackedIndex, PackedType, Packer
from longtail.types import F32

METRICS = ("P@1", "PSP@5")


@dataclass(frozen=True)
class PackReport:
    """What packing did.  sizes: part -> bytes before and after.  accuracy: metric -> percent before and after, where
    data was given.

    search: how rows are searched and what else was measured; empty where a model has no rows to search.
    """

    dtype: str
    sizes: Mapping[str, tuple[int, int]]
    accuracy: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)

    def render(self) -> str:
        lines = [f"{'bytes of':<24}{'before':>14}{'after':>14}"]
        lines += [f"{name:<24}{before:>14,}{after:>14,}" for name, (before, after) in self.sizes.items()]
        if self.accuracy:
            lines += ["", f"{'percent':<24}{'before':>14}{'after':>14}{'change':>10}"]
            lines += [
                f"{name:<24}{before:>14.2f}{after:>14.2f}{after - before:>+10.2f}"
                for name, (before, after) in self.accuracy.items()
            ]
        return "\n".join([*lines, *(["", self.search["table"]] if self.search else [])])


def pack(
    model: str | Path,
    out: str | Path,
    dtype: PackedType = "int8",
    *,
    features: int = 0,
    index: SearchKind = "auto",
    data: Dataset | str | Path | None = None,
) -> PackReport:
    """Write the model of a run or bundle to the new bundle `out` with its tables in `dtype`.

    features: keep the vectors of so many words only, the most useful; 0: all.
    index: how the rows of a model that compares all labels are searched; auto: what is fastest here (`search.choice`).
    data: measure the accuracy before and after on its test documents; the index is then chosen by queries of its
    training documents, else by those of label names. Equal models and equal choices give equal bytes.
    """
    model, out = Path(model), Path(out)
    data = data if data is None or isinstance(data, Dataset) else read(Path(data))
    if out.exists():
        raise ConfigError(f"{out}: exists already", "name a folder that does not exist")
    if features < 0:
        raise ConfigError(f"features is {features}, expected a whole number >= 0", "0 keeps the vectors of all words")
    bundle = open_bundle(model)
    ranker = bundle.ranker.packed(Packer(dtype, features, bundle.featurizer.word_influence()))
    ranker, choice = with_index(bundle, ranker, index, data)
    chosen = {} if choice is None else {"search": choice.about()}
    kept = ("recipe", "seed", "data", "columns", "metrics")
    about = {name: value for name, value in bundle.manifest.items() if name in kept}
    write_bundle(
        out,
        about={
            **about,
            "packed": {"dtype": dtype, "features": features, **chosen, "from": bundle.manifest["manifest_sha256"]},
        },
        config=(bundle.folder / "config.toml").read_text(encoding="utf-8"),
        labels=bundle.labels,
        featurizer=bundle.featurizer,
        ranker=ranker,
        held_out=bundle.held_out(),
    )
    before, after = (bytes_by_part(folder) for folder in (bundle.folder, out))
    sizes = {name: (before.get(name, 0), after.get(name, 0)) for name in sorted(before | after)}
    total = {"all": (sum(before.values()), sum(after.values()))}
    accuracy = {} if data is None else change_in_accuracy(bundle, out, data)
    search = (
        {}
        if choice is None
        else {"taken": choice.about(), "tried": [vars(one) for one in choice.tried], "table": choice.render()}
    )
    return PackReport(dtype, {**sizes, **total}, accuracy, search)


def with_index(bundle: Bundle, ranker: Any, kind: SearchKind, data: Dataset | None) -> tuple[Any, Choice | None]:
    """The packed model with the index that its rows are searched by; None where it has no rows that all documents are
    compared with.
    """
    if not isinstance(ranker, IndexedRows) or not isinstance(ranker.index, PackedIndex):
        if kind not in ("auto", "exact"):
            raise ConfigError(
                f"--index {kind}: this model does not compare documents with all labels",
                "leave --index out; models of direct have the choice",
            )
        return ranker, None
    index = ranker.index
    if data is None and not bundle.featurizer.fields and kind != "exact":
        # Trained on given vectors, it cannot read label names, and there is nothing else to ask it.
        if kind != "auto":
            raise ConfigError(
                f"--index {kind}: what it finds is measured with documents, and this model reads no text",
                "give documents with --data",
            )
        return ranker, Choice(
            index, "exact", notes=("search: exact; others are measured with documents: give some with --data",)
        )
    choice = choose(
        index, lambda: word_queries(bundle, ranker) if data is None else document_queries(bundle, ranker, data), kind
    )
    return replace(ranker, index=choice.index), choice


def word_queries(bundle: Bundle, ranker: IndexedRows) -> F32:
    """What label names ask the index, as if they were documents: a bundle holds no others."""
    chosen = np.sort(np.random.default_rng(0x5EA).permutation(len(bundle.labels))[:QUERIES])
    return ranker.queries(bundle.featurizer.batch_of_texts(bundle.labels.names.take(chosen)))


def document_queries(bundle: Bundle, ranker: IndexedRows, data: Dataset) -> F32:
    """What training documents ask the index."""
    chosen = np.sort(np.random.default_rng(0x5EA).permutation(len(data.train))[:QUERIES])
    return ranker.queries(bundle.featurizer.batch(data.train.documents.rows(chosen)))


def bytes_by_part(folder: Path) -> dict[str, int]:
    """Exact bytes of a bundle's files: by part, and for the model by the parts inside."""
    sizes: Counter[str] = Counter()
    for name, entry in read_json(find_bundle(folder) / MANIFEST)["files"].items():
        place = PurePosixPath(name).parts[:-1]
        sizes["/".join(place[:2]) if place[:1] == ("ranker",) else place[0] if place else name] += entry["bytes"]
    sizes[MANIFEST] = (find_bundle(folder) / MANIFEST).stat().st_size
    return dict(sizes)


def change_in_accuracy(bundle: Bundle, packed: Path, data: Dataset) -> dict[str, tuple[float, float]]:
    before, after = evaluate(Predictor(bundle), data), evaluate(Predictor.open(packed), data)
    return {name: (before[name], after[name]) for name in METRICS}
