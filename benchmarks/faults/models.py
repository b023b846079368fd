"""Small models of every recipe, in many forms, to be broken: they train in seconds and hold every kind of part."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import longtail
from longtail.config import from_text
from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.from_texts import with_digest
from longtail.recipes import recipe_class
from longtail.search.packed import PackedType

WORDS = ("cat", "dog", "bird", "fish", "horse", "bee", "ant", "frog", "goat", "hen", "owl", "pig")

_ASTEC = (
    *("surrogate.width=8", "surrogate.epochs=2", "shortlist.size=5", "shortlist.neighbours=4", "classify.epochs=2"),
    *("classify.count=4", "classify.random=2", "reranker.epochs=2", "reranker.depth=3", "tree.leaf_size=4"),
    "reranker.enabled=false",
)
_ECLARE = (
    *("surrogate.width=8", "surrogate.epochs=2", "shortlist.epochs=2", "shortlist.beam=1", "classify.epochs=2"),
    *("graph.head_documents=1000", "surrogate.labels_per_cluster=4"),
)
_GALAXC = (
    *("astec.width=8", "astec.epochs=2", "surrogate.epochs=2", "surrogate.halve_at=1", "surrogate.random=4"),
    *("shortlist.voters=5", "classify.epochs=2", "classify.count=4"),
)
_GNNXML = (
    *("features.keygraph.width=8", "matcher.width=6", "matcher.epochs=2", "clusters.count=4", "rankers.beam=2"),
    "rankers.mistakes=1",
)
_TOWERS = ("encoder.width=8", "train.epochs=3", "train.refresh=1", "train.mined=3", "classify.epochs=2")
_GAME = ("game.enabled=true", "graph.head_documents=1000")
_DIRECT = ("encoder.width=64", "train.epochs=2")

# name -> recipe, settings, and how documents come: text, graphs (text with graphs), dense or sparse vectors.
MODELS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "tiny": ("tiny", (), "text"),
    "tiny-dense": ("tiny", (), "dense"),
    "direct": ("direct", _DIRECT, "text"),
    "direct-hnsw": ("direct", (*_DIRECT, "predict.index=hnsw"), "text"),
    "direct-dense": ("direct", _DIRECT, "dense"),
    "astec": ("astec", _ASTEC, "text"),
    "astec-reranked": ("astec", (*_ASTEC, "reranker.enabled=true", "ensemble.learners=2"), "text"),
    "astec-tree": ("astec", (*_ASTEC, "classify.learner=parabel", *_GAME), "text"),
    "astec-tree-dense": ("astec", (*_ASTEC, "classify.learner=parabel"), "dense"),
    "astec-clusters": ("astec", (*_ASTEC, "shortlist.structures=clusters", *_GAME), "text"),
    "astec-cnn": ("astec", (*_ASTEC, "surrogate.encoder=cnn", "features.max_tokens=6"), "text"),
    "astec-mlp": ("astec", (*_ASTEC, "surrogate.encoder=mlp"), "text"),
    "astec-hnsw": ("astec", (*_ASTEC, "shortlist.index=hnsw"), "text"),
    "astec-centres": ("astec", (*_ASTEC, "shortlist.head_labels=5", "shortlist.head_centres=3"), "sparse"),
    "eclare": ("eclare", _ECLARE, "text"),
    "galaxc": ("galaxc", _GALAXC, "graphs"),
    "galaxc-sage": ("galaxc", (*_GALAXC, "hops.encoder=sage", "hops.fanouts=3,2"), "text"),
    "galaxc-gin": ("galaxc", (*_GALAXC, "hops.encoder=gin"), "text"),
    "galaxc-votes": (
        "galaxc",
        (*_GALAXC, "shortlist.voters=6", "shortlist.gamma=0.5", "shortlist.reserved=0.5"),
        "text",
    ),
    "galaxc-whole": ("galaxc", (*_GALAXC, "hops.predict=full", "initial.centred=false"), "text"),
    "gnnxml": ("gnnxml", (*_GNNXML, "rankers.reads=both"), "text"),
    "gnnxml-graph": ("gnnxml", (*_GNNXML, "rankers.reads=graph"), "text"),
    "ance": ("ance", _TOWERS, "text"),
    "ngame": ("ngame", _TOWERS, "text"),
    "dexml": ("dexml", _TOWERS, "text"),
    "siamese": ("siamese", _TOWERS, "text"),
    "ramen": ("ramen", (*_TOWERS, "bandit.block=3"), "graphs"),
}
# name -> the model that it is packed from, and how.
PACKED: Mapping[str, tuple[str, PackedType, str]] = {
    "packed-float16": ("direct", "float16", "exact"),
    "packed-int8": ("direct", "int8", "exact"),
    "packed-int4": ("direct", "int4", "exact"),
    "packed-sketch": ("direct", "int8", "sketch"),
    "packed-tree": ("direct", "int8", "tree"),
    "packed-clusters": ("eclare", "int8", "exact"),
    "packed-astec": ("astec", "int8", "exact"),
}


def dataset(documents: str = "text", n: int = 120) -> Dataset:
    """Documents of one or two labels that say each label's word and some noise."""
    chance = random.Random(0)
    texts, labels = [], []
    for number in range(n):
        chosen = sorted({number % len(WORDS), chance.randrange(len(WORDS))})
        noise = [f"noise{chance.randrange(50)}" for _ in range(3)]
        texts.append(" ".join([*(WORDS[one] for one in chosen), *noise]))
        labels.append([f"id-{WORDS[one]}" for one in chosen])
    titles = {f"id-{word}": f"the {word}" for word in WORDS}
    data = Dataset.from_texts(texts, labels, titles, test_texts=texts[:20], test_labels=labels[:20], name="planted")
    if documents == "graphs":
        return _with_graph(data)
    return data if documents == "text" else _with_vectors(data, documents)


def _with_graph(data: Dataset) -> Dataset:
    pairs = np.arange(len(data.labels)) // 2
    of_labels = csr_array((np.ones(len(pairs), np.float32), (np.arange(len(pairs)), pairs)))
    anchors = Items([f"pair{n}" for n in range(6)], {"title": [f"{WORDS[2 * n]} {WORDS[2 * n + 1]}" for n in range(6)]})
    graph = Graph("pairs", anchors, csr_array(data.train.targets @ of_labels), of_labels)
    return with_digest(replace(data, graphs={"pairs": graph}))


def _with_vectors(data: Dataset, kind: str) -> Dataset:
    def side(split: Split, seed: int) -> Split:
        vectors = np.random.default_rng(seed).standard_normal((len(split), len(data.labels) + 3)).astype(np.float32)
        vectors[:, 3:] = np.abs(vectors[:, 3:]) * 0.2 + split.targets.toarray()
        given: Any = csr_array(vectors) if kind == "sparse" else vectors
        return replace(split, documents=Items(split.documents.uids, vectors=given))

    return with_digest(replace(data, train=side(data.train, 1), test=side(data.need_test(), 2)))


def made(folder: Path, names: Iterator[str] | None = None) -> Iterator[tuple[str, Path]]:
    """Bundles by name, trained where they are not there yet."""
    for name in names or iter([*MODELS, *PACKED]):
        bundle = folder / name / "bundle"
        if not bundle.exists():
            _make(name, folder)
        yield name, bundle


def _make(name: str, folder: Path) -> None:
    if name in PACKED:
        source, dtype, index = PACKED[name]
        dict(made(folder, iter([source])))
        if index == "exact":
            few = 30 if dtype == "int4" else 0  # of words: the others are places without a row
            longtail.pack(folder / source, folder / name / "bundle", dtype, features=few, index="exact")
        else:
            _with_sketch(folder / source / "bundle", folder / name / "bundle", dtype, leaves=4 * (index == "tree"))
        return
    train_small(name, folder / name)


def train_small(name: str, run: Path) -> None:
    recipe, settings, documents = MODELS[name]
    cls = recipe_class(recipe)
    longtail.train(dataset(documents), run, cls(from_text(cls.CONFIG(), settings)), device="cpu")


def _with_sketch(source: Path, target: Path, dtype: PackedType, leaves: int) -> None:
    """So few labels that no search over sketches would be chosen: it is put there by hand."""
    from longtail.predictor import Predictor
    from longtail.search.packed import Packer
    from longtail.search.sketch import SketchIndex

    model = Predictor.open(source)
    ranker: Any = model.bundle.ranker.packed(Packer(dtype))
    index = SketchIndex.build(ranker.index, leaves=leaves, rng=np.random.default_rng(0))
    sketched: Any = replace(ranker, index=index)
    Predictor(replace(model.bundle, ranker=sketched)).save(target)
