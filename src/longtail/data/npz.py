"""Folders of NumPy and SciPy files:

    trn_X.npz or trn_X.npy     training documents x features, sparse or dense
    trn_Y.npz                  training documents x labels
    tst_X.*, tst_Y.npz         the same for test documents
    lbl_X.npz or lbl_X.npy     labels x features

and as lines: texts ``trn_X.txt``, ``tst_X.txt``, ``Y.txt`` (or ``lbl.txt``), which may replace features; ids that are
not the line numbers (``trn_uid.txt``, ``tst_uid.txt``, ``lbl_uid.txt``); filter files; and graphs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from longtail.data.dataset import Dataset, Items
from longtail.data.folders import LABELS, TEST, TRAIN, Side, assemble_matrices, write_raw_items, write_shared
from longtail.data.graph_files import find_one
from longtail.data.lines import new_folder
from longtail.data.matrices import as_targets, load_csr, load_dense, save_csr
from longtail.errors import DataError
from longtail.types import F32, Csr


def read_npz(folder: Path | str, *, test: bool = True) -> Dataset:
    """Read a folder with ``trn_Y.npz``."""
    folder, repairs = Path(folder), Counter[str]()

    def side(name: str) -> Side | None:
        found = folder / f"{name}_Y.npz"
        if not found.is_file():
            if name == TEST:
                return None
            raise DataError(
                "trn_Y.npz is missing",
                "a folder of npz files holds trn_Y.npz and trn_X.npz (or trn_X.npy, trn_X.txt)",
                file=folder,
            )
        targets = as_targets(load_csr(found, of="documents x labels", sum_duplicates=False), repairs)
        return Side(targets, _vectors(folder, name))

    return assemble_matrices(folder, side, _vectors(folder, LABELS), repairs, test=test)


def _vectors(folder: Path, side: str) -> Csr | F32 | None:
    found = find_one(folder, f"{side}_X.npz", f"{side}_X.npy")
    return None if found is None else read_vectors(found)


def read_vectors(path: Path) -> Csr | F32:
    """(n, D) float32, dense from ``.npy`` or sparse from ``.npz``."""
    return load_dense(path) if path.suffix == ".npy" else load_csr(path)


def write_npz(dataset: Dataset, folder: Path | str) -> None:
    """Write a new folder that `read_npz` reads back as the same data set. Equal data gives equal bytes."""
    with new_folder(Path(folder)) as aside:
        _write_items(aside, LABELS, dataset.labels)
        for side, split in ((TRAIN, dataset.train), (TEST, dataset.test)):
            if split is not None:
                _write_items(aside, side, split.documents)
                save_csr(aside / f"{side}_Y.npz", split.targets)
        write_shared(aside, dataset)


def _write_items(folder: Path, side: str, items: Items) -> None:
    write_raw_items(folder, side, items)
    if isinstance(items.vectors, np.ndarray):
        np.save(folder / f"{side}_X.npy", items.vectors, allow_pickle=False)
    elif items.vectors is not None:
        save_csr(folder / f"{side}_X.npz", items.vectors)
