"""Milliseconds per document from raw text to named labels, beside the same model in plain numpy and BLAS.

    python -m benchmarks.speed prediction --model RUN [--model RUN ...] --out FILE.json
    python -m benchmarks.speed prediction --synthetic 28881 --out FILE.json

Every model is opened in a process of its own, once for one thread and once for all. Both sides take turns, so that a
busy machine slows both; ratios are of medians. --synthetic makes a model of random rows over the vocabulary of the
embedded sample, whole and packed: its labels mean nothing, its bytes are those of a real one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race.serving import peak_mb
from benchmarks.speed.common import Measured, alone, cores, seconds_of
from longtail.bundle import LabelTable, write_bundle
from longtail.data.dataset import Items
from longtail.data.inputs import read_documents
from longtail.data.read import read, sample_folder
from longtail.features.settings import SparseTextConfig
from longtail.features.sparse import SparseText
from longtail.models.encoders import FrozenBag, ResidualMap
from longtail.models.rankers import IndexedRows, with_one
from longtail.packing import pack
from longtail.predictor import Predictor
from longtail.search.index import ExactIndex
from longtail.search.packed import PackedIndex
from longtail.types import Batch, TopK

K, BATCH = 10, 512
# Jobs of one side before the other takes its turn: what the other left in the caches is gone after the first.
TURN = 20


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", action="append", type=Path, default=[], metavar="RUN", help="a run or bundle")
    parser.add_argument(
        "--synthetic",
        type=int,
        default=0,
        metavar="LABELS",
        help="also a model of so many random rows, whole and packed",
    )
    parser.add_argument("--width", type=int, default=512, help="numbers per row of the synthetic model")
    parser.add_argument("--input", default="", metavar="FILE", help="texts to predict for (default: names of labels)")
    parser.add_argument("--documents", type=int, default=300, help="documents asked one by one")
    parser.add_argument("--batches", type=int, default=5, help=f"batches of {BATCH} documents")


def measure(options: argparse.Namespace) -> Measured:
    if not options.model and not options.synthetic:
        raise SystemExit("error: give --model RUN, or --synthetic LABELS")
    with tempfile.TemporaryDirectory() as folder:
        made = synthetic(options.synthetic, options.width, Path(folder)) if options.synthetic else []
        asked = (options.input, options.documents, options.batches)
        numbers = {
            bundle.name: {f"threads_{n}": alone(measured, str(bundle), *asked, threads=n) for n in sorted({1, cores()})}
            for bundle in [*options.model, *made]
        }
    config = {"k": K, "batch": BATCH}
    config |= {name: getattr(options, name) for name in ("documents", "synthetic", "width")}
    return Measured(numbers, config=config, seed=None)


# ---- one process ----


def measured(bundle: str, source: str, documents: int, batches: int) -> dict[str, Any]:
    started = time.perf_counter()
    model = Predictor.open(bundle)
    opened = time.perf_counter()
    texts = texts_for(model, source, documents + BATCH * batches)
    before_first = time.perf_counter()
    model.predict(texts[0], K)
    first = time.perf_counter()
    model.predict(texts[:BATCH], K)
    memory = peak_mb()  # before the plain path unpacks its tables
    plain = plain_path(model)
    single = take_turns([[text] for text in texts[:documents]], model, plain)
    batch = take_turns([texts[start : start + BATCH] for start in range(documents, len(texts), BATCH)], model, plain)
    return {
        "labels": len(model.bundle.labels),
        "bytes": sum(entry["bytes"] for entry in model.bundle.manifest["files"].values()),
        "open_seconds": opened - started,
        "first_request_seconds": first - before_first,
        "memory_mb": memory,
        "characters_per_text": float(np.mean([len(text) for text in texts])),
        "single": single,
        f"batch_of_{BATCH}": batch,
        "stages_single_ms": stages(model, [[text] for text in texts[:documents]]),
        f"stages_batch_of_{BATCH}_ms": stages(model, [texts[documents : documents + BATCH]] * 3),
        "floor": floor(model),
    }


def texts_for(model: Predictor, source: str, count: int) -> list[str]:
    if source:
        documents = read_documents(source)
        found = [" ".join(parts) for parts in zip(*documents.fields.values(), strict=True)]
    else:
        found = list(model.bundle.labels.names)
    order = np.random.default_rng(0).permutation(len(found))
    return [found[order[n % len(order)]] for n in range(count)]


def take_turns(jobs: Sequence[list[str]], model: Predictor, plain: Callable[[Batch], TopK] | None) -> dict[str, float]:
    """Milliseconds per document, in ours and in the plain path; the plain one from raw text to named labels, too."""

    def plainly(texts: list[str]) -> object:
        assert plain is not None
        return model.named(plain(model.bundle.featurizer.batch_of_texts(texts)))

    ours: list[float] = []
    theirs: list[float] = []
    for start in range(0, len(jobs), TURN):
        ours += [
            1000 * seconds_of(partial(model.predict, texts, K)) / len(texts) for texts in jobs[start : start + TURN]
        ]
        theirs += [
            1000 * seconds_of(partial(plainly, texts)) / len(texts)
            for texts in jobs[start : start + TURN]
            if plain is not None
        ]
    found = {"p50_ms": float(np.median(ours)), "p99_ms": float(np.quantile(ours, 0.99)), "least_ms": min(ours)}
    if theirs:
        found |= {
            "plain_p50_ms": float(np.median(theirs)),
            "times_faster_than_plain": float(np.median(theirs) / np.median(ours)),
        }
    return found


def plain_path(model: Predictor) -> Callable[[Batch], TopK] | None:
    """The ranking of `IndexedRows` as anybody would write it in numpy and SciPy; None for other models, which have no
    such short form.
    """
    ranker = model.bundle.ranker
    if (
        not isinstance(ranker, IndexedRows)
        or not isinstance(ranker.encoder, FrozenBag)
        or not isinstance(ranker.index, ExactIndex | PackedIndex)
    ):
        return None
    table, vectors, refinement = ranker.encoder.table[:], ranker.index.read(), ranker.refinement

    def rank(batch: Batch) -> TopK:
        assert batch.sparse is not None
        encoded = np.maximum(batch.sparse @ table, 0)
        scores = with_one(encoded if refinement is None else refinement.apply(encoded)) @ vectors.T
        best = np.argpartition(scores, -K, axis=1)[:, -K:]
        found = np.take_along_axis(scores, best, axis=1)
        order = np.argsort(-found, axis=1)
        return TopK(
            np.take_along_axis(best, order, axis=1).astype(np.int32),
            1 / (1 + np.exp(-np.take_along_axis(found, order, axis=1))),
        )

    return rank


def stages(model: Predictor, jobs: Sequence[list[str]]) -> dict[str, float]:
    """Median milliseconds per document of each step of an `IndexedRows`; empty for others."""
    ranker, featurizer = model.bundle.ranker, model.bundle.featurizer
    if not isinstance(ranker, IndexedRows) or ranker.refinement is None:
        return {}
    spent: dict[str, list[float]] = {name: [] for name in ("features", "bag", "residual", "search", "names")}
    steps: list[Callable[[Any], Any]] = [
        featurizer.batch_of_texts,
        ranker.encoder.encode,
        ranker.refinement.apply,
        lambda vectors: ranker.index.query(with_one(vectors), K),
        model.named,
    ]
    for texts in jobs:
        value: Any = texts
        for times, step in zip(spent.values(), steps, strict=True):
            started = time.perf_counter()
            value = step(value)
            times.append(1000 * (time.perf_counter() - started) / len(texts))
    return {name: float(np.median(times)) for name, times in spent.items()}


def floor(model: Predictor) -> dict[str, float]:
    """What reading every row once costs at least: their bytes, by the measured speed of reading memory on these
    threads.
    """
    ranker = model.bundle.ranker
    index = getattr(ranker, "index", None)
    rows = (
        index.rows.values
        if isinstance(index, PackedIndex)
        else index.vectors
        if isinstance(index, ExactIndex)
        else None
    )
    if rows is None:
        return {}
    numbers = np.ones(1 << 26, np.float32)  # 256 MB: no cache holds it
    seconds = min(seconds_of(lambda: np.dot(numbers, numbers)) for _ in range(5))
    return {
        "bytes_of_rows": rows.nbytes,
        "gigabytes_per_second": numbers.nbytes / seconds / 1e9,
        "single_ms": 1000 * rows.nbytes * seconds / numbers.nbytes,
    }


# ---- a model of random rows ----


def synthetic(labels: int, width: int, folder: Path) -> list[Path]:
    """Bundles of the same random model: whole, float16 and int8."""
    rng, data = np.random.default_rng(0), read(sample_folder())
    featurizer = SparseText.fit(
        data.train.documents, data.labels, SparseTextConfig(fields=tuple(data.train.documents.fields), subwords="chars")
    )
    table, rows = (
        rng.standard_normal(shape, dtype=np.float32) for shape in ((featurizer.width, width), (labels, width + 1))
    )
    rows /= np.sqrt(np.float32(width))  # scores that the sigmoid can tell apart
    weight = rng.standard_normal((width, width), dtype=np.float32) / np.float32(width)
    names = [data.labels.name(n % len(data.labels)) for n in range(labels)]
    table_of_labels = LabelTable.of(Items([str(n) for n in range(labels)], {"title": names}), np.ones(labels, np.int64))
    ranker = IndexedRows(FrozenBag(table), ResidualMap(weight), ExactIndex(rows, "dot"))
    paths = [folder / f"synthetic-{labels}-{dtype}" for dtype in ("float32", "float16", "int8")]
    write_bundle(
        paths[0], about={"recipe": "direct"}, config="", labels=table_of_labels, featurizer=featurizer, ranker=ranker
    )
    pack(paths[0], paths[1], "float16")
    pack(paths[0], paths[2], "int8")
    return paths
