"""Three calls: `train`, `evaluate` and `pack`. The command line and Python are thin skins over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.evaluation import evaluate as _evaluate
from longtail.packing import PackReport
from longtail.packing import pack as _pack
from longtail.pipeline import train as train
from longtail.predictor import Predictor
from longtail.recipes import make_recipe as make_recipe
from longtail.search.choice import SearchKind
from longtail.search.packed import PackedType
from longtail.training.progress import Display


def evaluate(
    model: Predictor | str | Path,
    data: Dataset | str | Path,
    display: Display | None = None,
    *,
    transductive: bool = False,
) -> dict[str, Any]:
    """All metrics of a model on the test documents of `data`, in percent, with what they belong to. transductive: see
    `longtail.evaluation`.
    """
    opened = model if isinstance(model, Predictor) else Predictor.open(model)
    return _evaluate(
        opened, data if isinstance(data, Dataset) else read(Path(data)), display, transductive=transductive
    )


def pack(
    model: str | Path,
    out: str | Path,
    dtype: PackedType = "int8",
    *,
    features: int = 0,
    index: SearchKind = "auto",
    data: Dataset | str | Path | None = None,
) -> PackReport:
    """Write the model of a run or bundle to a smaller bundle `out`; see `longtail.packing.pack`."""
    dataset = data if data is None or isinstance(data, Dataset) else read(Path(data))
    return _pack(Path(model), Path(out), dtype, features=features, index=index, data=dataset)
