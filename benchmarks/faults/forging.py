"""Bundles whose files were forged, with checksums that are right: one change to one part each, in memory.

A forged part may be refused (a `LongtailError`), or answer whatever it likes. It must not end the process, raise
anything else, or make a kernel read outside an array (which a process with NUMBA_BOUNDSCHECK=1 turns into an
IndexError).
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from longtail import persistence
from longtail.bundle import MANIFEST, fitting
from longtail.data.dataset import Items
from longtail.errors import ConfigError, LongtailError
from longtail.search.packed import Packer

PARTS = ("labels", "featurizer", "ranker", "company")
TEXTS = ("the cat and the noise1 dog", "", "horse noise3 bee qqq", "frog")
WHOLE = (0, 1, 2, -1, -2, 7, 255, 2**15, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
REAL = (0.0, -0.0, 1.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"), 1e308)
STRANGE: tuple[Any, ...] = (None, True, "", "none", "../x", "\ud800", [], [1, 2], {}, {"a": 1}, 1.5, float("nan"))
DTYPES = ("<i1", "<u1", "<i4", "<i8", "<u8", "<f2", "<f4", "<f8", "?")


@dataclass
class Saved:
    """One part as its files say: what part.json holds, and its arrays."""

    head: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class Forger:
    """A bundle in memory, of which one thing at a time can be changed."""

    def __init__(self, bundle: Path) -> None:
        self.bundle = bundle
        self.manifest = persistence.read_json(bundle / MANIFEST)
        self.saved: dict[Path, Saved] = {}
        for path in sorted(bundle.rglob("part.json")):
            if path.relative_to(bundle).parts[0] in PARTS:
                head = persistence.read_json(path)
                file = path.parent / "arrays.safetensors"
                arrays = persistence.map_arrays(file) if head.get("arrays") else {}
                self.saved[path.parent] = Saved(head, {name: np.array(array) for name, array in arrays.items()})
        self.folders = [folder for folder, saved in self.saved.items() if saved.head["kind"] != "none"]
        # Parts never change, so those without a forged one inside are opened once; so is what the featurizer reads.
        self.opened: dict[Path, Any] = {}
        self.batches: dict[int, Any] = {}

    def forged(self, seed: int) -> tuple[str, dict[Path, Saved]]:
        """One change, by its seed: what it is, and the part that has it."""
        chance = random.Random(seed)
        folder = chance.choice(self.folders)
        saved = Saved(copy.deepcopy(self.saved[folder].head), dict(self.saved[folder].arrays))
        if saved.arrays and chance.random() < 0.75:
            name = chance.choice(sorted(saved.arrays))
            said = f"array '{name}': {_change_array(saved.arrays, name, chance)}"
        else:
            said = _change_head(saved.head, chance, [other.name for other in self.folders])
        return f"{folder.relative_to(self.bundle)}: {said}", {folder: saved}

    def open_and_ask(self, changed: Mapping[Path, Saved]) -> None:
        """What a user does with a bundle: open it, rank documents, ask why, look at labels, pack it."""
        with self._in_memory(changed):
            labels, featurizer, ranker = (persistence.load_part(self.bundle / name) for name in PARTS[:3])
            opened = fitting(self.bundle, self.manifest, labels, featurizer, ranker)
            company = persistence.load_part(self.bundle / PARTS[3]) if (self.bundle / PARTS[3]).is_dir() else None
        if company is not None and not hasattr(company, "neighbours_of"):
            company = None
        if company is not None and len(company) != len(opened.labels):
            company = None
        batch = self._batch(featurizer)
        top = ranker.rank(batch, 3)
        known = top.ids[top.ids >= 0]
        labels.uids.take(known)
        labels.names.take(known)
        ranker.explain(batch, top.ids)
        if company is not None:
            for label in known[:2].tolist():
                company.neighbours_of(label)
                company.examples_of(label)

        with contextlib.suppress(ConfigError):  # not every form is packed
            self._pack(featurizer, ranker)

    def open_and_pack(self) -> None:
        with self._in_memory({}):
            featurizer, ranker = (persistence.load_part(self.bundle / name) for name in PARTS[1:3])
        self._pack(featurizer, ranker)

    def _pack(self, featurizer: Any, ranker: Any) -> None:
        ranker.packed(Packer("int8", features=10, influence=featurizer.word_influence())).rank(
            self._batch(featurizer), 3
        )

    @contextmanager
    def _in_memory(self, changed: Mapping[Path, Saved]) -> Iterator[None]:
        parts = {**self.saved, **changed}

        def read(path: Path, *more: Any) -> Any:
            return parts[path.parent].head if path.parent in parts else original(path, *more)

        def mapped(path: Path) -> dict[str, NDArray[Any]]:
            return {name: _read_only(array) for name, array in parts[path.parent].arrays.items()}

        def loaded(folder: Path, *more: Any) -> Any:
            if any(one.is_relative_to(folder) for one in changed):
                return load(folder, *more)
            if folder not in self.opened:
                self.opened[folder] = load(folder, *more)
            return self.opened[folder]

        original, load = persistence.read_json, persistence.load_part
        with (
            patch.object(persistence, "read_json", read),
            patch.object(persistence, "map_arrays", mapped),
            patch.object(persistence, "load_part", loaded),
        ):
            yield

    def _batch(self, featurizer: Any) -> Any:
        if self.opened.get(self.bundle / "featurizer") is not featurizer:
            return _read(featurizer)
        if not self.batches:
            self.batches[0] = _read(featurizer)
        return self.batches[0]

    def attempt(self, seed: int) -> str:
        """ "" where nothing is wrong; else what is."""
        said, changed = self.forged(seed)
        try:
            self.open_and_ask(changed)
        except LongtailError:
            return ""
        except MemoryError as problem:
            return f"{said}: MemoryError {problem}"
        except Exception as problem:
            return f"{said}: {type(problem).__name__} {problem}"
        return ""


def _read(featurizer: Any) -> Any:
    """A few documents, as the featurizer reads them."""
    if getattr(featurizer, "FORM", "text") == "text":
        return featurizer.batch_of_texts(list(TEXTS))
    given: Any = np.ones((len(TEXTS), min(featurizer.width, 1 << 16)), np.float32)
    if featurizer.FORM == "sparse":
        from scipy.sparse import csr_array

        given = csr_array(given)
    return featurizer.batch(Items([str(n) for n in range(len(TEXTS))], vectors=given))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view.reshape(array.shape)


def _change_array(arrays: dict[str, NDArray[Any]], name: str, chance: random.Random) -> str:
    """What was done to one array of a part."""
    array = arrays[name].copy()
    way = chance.choice(("entry", "entry", "entry", "entry", "entries", "rows", "shape", "type", "gone", "swapped"))
    if way == "entry" and array.size:
        place, value = chance.randrange(array.size), _value(array.dtype, chance, array.size)
        array.reshape(-1)[place] = value
        way = f"entry {place} is {value}"
    elif way == "entries" and array.size:
        for place in chance.sample(range(array.size), min(array.size, 20)):
            array.reshape(-1)[place] = _value(array.dtype, chance, array.size)
    elif way == "rows":
        more = chance.choice((-1, 1, 3, -len(array) if array.ndim else 0))
        rows = (
            np.concatenate([array, array[:1].repeat(3, axis=0)])[: max(len(array) + more, 0)] if array.ndim else array
        )
        array, way = rows, f"{more} rows"
    elif way == "shape":
        array = chance.choice((array.reshape(-1), array[None], array.T, array.reshape(*array.shape, 1)))
        way = f"shape {array.shape}"
    elif way == "type":
        with np.errstate(all="ignore"):
            array = array.astype(chance.choice(DTYPES))
        way = f"type {array.dtype}"
    elif way == "gone":
        del arrays[name]
        return way
    elif way == "swapped":
        other = chance.choice(sorted(arrays))
        arrays[name], arrays[other] = arrays[other], arrays[name]
        return f"swapped with '{other}'"
    arrays[name] = array
    return way


def _value(dtype: Any, chance: random.Random, size: int) -> Any:
    if dtype == np.bool_:
        return chance.random() < 0.5
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        value = chance.choice((*WHOLE, size, size - 1, size + 1, chance.getrandbits(16)))
        return min(max(value, limits.min), limits.max)
    with np.errstate(all="ignore"):
        return np.array(chance.choice((*REAL, chance.gauss(0, 10)))).astype(dtype)


def _change_head(head: dict[str, Any], chance: random.Random, names: list[str]) -> str:
    """What was done to part.json."""
    way = chance.choice(("values", "values", "values", "sparse", "parts", "top"))
    if way == "values" and head.get("values"):
        return f"values: {_change_within(head['values'], chance)}"
    if way == "sparse" and head.get("sparse"):
        name = chance.choice(sorted(head["sparse"]))
        shape = head["sparse"][name]
        axis = chance.randrange(len(shape))
        shape[axis] = chance.choice((*WHOLE, shape[axis] + 1, shape[axis] - 1))
        return f"sparse '{name}' has the shape {shape}"
    if way == "parts" and head.get("parts"):
        place = chance.randrange(len(head["parts"]))
        if chance.random() < 0.5:
            return f"without the part '{head['parts'].pop(place)}'"
        head["parts"][place] = chance.choice([*names, "..", "", 3])
        return f"parts {head['parts']}"
    name = chance.choice(sorted(head))
    head[name] = chance.choice((*STRANGE, *WHOLE[:4]))
    return f"{name} is {head[name]!r}"


def _change_within(values: Any, chance: random.Random) -> str:
    """One value, at any depth."""
    names: list[Any] = sorted(values) if isinstance(values, dict) else list(range(len(values)))
    name = chance.choice(names)
    one = values[name]
    if isinstance(one, dict | list) and one and chance.random() < 0.8:
        return f"{name}.{_change_within(one, chance)}"
    if isinstance(one, bool):
        values[name] = not one
    elif isinstance(one, int):
        values[name] = chance.choice((*WHOLE, one + 1, one - 1))
    elif isinstance(one, float):
        values[name] = chance.choice(REAL)
    else:
        values[name] = chance.choice(STRANGE)
    if chance.random() < 0.2:
        values[name] = chance.choice(STRANGE)
    return f"{name} is {values[name]!r}"
