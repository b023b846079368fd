"""`longtail warm-up`: compile the kernels of prediction, and of training where torch is there, before anyone waits.

It does what a user would do, small: asks a model of the default recipe, plain and packed, and trains one.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longtail.bundle import LabelTable, write_bundle
from longtail.config import describe, to_tables
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import MissingExtra
from longtail.kernels.compiled import compiling
from longtail.models.encoders import FrozenBag, ResidualMap
from longtail.models.rankers import IndexedRows
from longtail.packing import SearchKind, pack
from longtail.predictor import Predictor
from longtail.recipes import DEFAULT, recipe_class
from longtail.recipes.direct.memory import remembering
from longtail.recipes.direct.settings import DirectConfig
from longtail.search.index import ExactIndex
from longtail.search.packed import PackedType
from longtail.training.prepare import prepare
from longtail.training.progress import Display
from longtail.types import F32

WIDTH = 64
# One text alone and so many that they are cut in pieces for threads go different ways.
FEW, MANY = 1, 1500
# Ways to pack that together use every kernel: choosing an index asks the exact one too (a test tries all ways).
PACKED: tuple[tuple[PackedType, SearchKind], ...] = (
    ("float16", "sketch"),
    ("float16", "leaves"),
    ("float16", "hnsw"),
    ("int8", "sketch"),
    ("int4", "exact"),
)


def warm_up(recipes: Sequence[str], display: Display) -> int:
    """Compile; gives how many kernels. recipes: those to be trained as well (needs torch); the default if none."""
    before = compiling.count
    if not recipes and importlib.util.find_spec("torch") is not None:
        recipes = [DEFAULT]
    elif recipes and importlib.util.find_spec("torch") is None:
        raise MissingExtra("torch", "train", f"training '{recipes[0]}'")
    for name in recipes:
        recipe_class(name)  # an unknown one is named before minutes of compiling
    with (
        tempfile.TemporaryDirectory(prefix="longtail-warm-up-") as folder,
        display.task("compiling", 1 + len(PACKED) + len(recipes)) as task,
    ):
        plain = Path(folder) / "plain"
        write_model(plain)
        ask(plain)
        task.advance()
        for dtype, index in PACKED:
            if index != "hnsw" or importlib.util.find_spec("faiss") is not None:
                ask_packed(plain, dtype, index)
            task.advance()
        for name in recipes:
            _train(name, Path(folder) / name)
            task.advance()
    return compiling.count - before


def write_model(folder: Path) -> None:
    """A model like those of the default recipe, with numbers drawn by chance."""
    data = synthesise(SyntheticConfig.preset("tiny"), seed=0).dataset
    config = DirectConfig()  # of the default recipe, whose class needs torch
    ready = prepare(data, config.features)
    words = ready.featurizer.width
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> F32:
        return random.standard_normal(shape, dtype=np.float32)

    labels = len(data.labels)
    ranker = remembering(
        IndexedRows(
            FrozenBag(drawn(words, WIDTH)),
            ResidualMap(drawn(WIDTH, WIDTH)),
            ExactIndex.build(drawn(labels, WIDTH + 1), "dot"),
        ),
        ready,
        config.memory,
    )
    about = {"recipe": DEFAULT, "seed": 0, "data": {"name": data.name, "digest": data.digest}}
    table = LabelTable.of(data.labels, np.ones(labels, dtype=np.int64))
    write_bundle(folder, about=about, config=describe(config), labels=table, featurizer=ready.featurizer, ranker=ranker)


def ask(folder: Path) -> None:
    model = Predictor.open(folder, verify=False)
    for count in (FEW, MANY):
        model.predict(["one two three"] * count)
        model.explain(["one two three"] * count)


def ask_packed(plain: Path, dtype: PackedType, index: SearchKind) -> None:
    packed = plain.with_name(f"{dtype}-{index}")
    pack(plain, packed, dtype, index=index)
    ask(packed)


def _train(recipe: str, out: Path) -> None:
    from longtail import pipeline

    data = synthesise(SyntheticConfig.preset("tiny"), seed=0).dataset
    tables = to_tables(recipe_class(recipe).CONFIG())
    settings = one_epoch(tables)
    pipeline.train(data, out, recipe, device="cpu", settings=settings)
    ask(out)
    if "sampled" in tables.get("train", {}):  # so few labels would all be met
        settings["train"] |= {"sampled": "on", "labels_per_step": len(data.labels) // 2}
        pipeline.train(data, out.with_name(f"{out.name}-sampled"), recipe, device="cpu", settings=settings)


def one_epoch(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that train for one epoch wherever a recipe counts epochs."""
    inner = {name: one_epoch(value) for name, value in tables.items() if isinstance(value, dict)}
    return {name: value for name, value in inner.items() if value} | ({"epochs": 1} if "epochs" in tables else {})
