"""Saving and loading parts: a folder of JSON and safetensors per part. No pickle, no code from a file.

A *part* is plain values, arrays (dense or CSR) and nested parts. Most parts are frozen dataclasses (`DataPart`): what
is saved follows from their fields. On disk:

    part.json              kind, format version, plain values, shapes of CSR arrays, names of nested parts
    arrays.safetensors     every array, memory-mapped on load (a CSR array is stored as indptr, indices, data)
    <name>/                a nested part

A kind is a short name of a class. Only kinds that the house, its recipes or an installed package declare are loaded
(`home_of`), and a class is imported only when its kind is met, so that a model which needs no torch imports none.

Files are written aside and renamed (`longtail.writing`), and equal parts give equal bytes: nothing here writes times or
machine names.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import json
import math
import os
import re
import shutil
import stat
import struct
from collections import abc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Protocol, Self, Union, get_args, get_origin, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

from longtail.config import resolve, to_tables
from longtail.declared import Shaped, bare, check_fields, is_csr, meant
from longtail.errors import BundleError, ConfigError, LongtailError, UnknownKind
from longtail.report import named
from longtail.types import Csr

# Also to be had from here, as whoever saves parts needs them.
from longtail.writing import no_room_is_an_error as no_room_is_an_error
from longtail.writing import written_aside as written_aside

PART_FORMAT = 2

# Parts that recipes share: kind -> "module:Class". Those of one recipe stand in its folder, as PARTS.
SHARED: Mapping[str, str] = {
    "strings": "longtail.persistence:StringTable",
    "sparse-text": "longtail.features.sparse:SparseText",
    "text-with-tokens": "longtail.features.with_tokens:TextWithTokens",
    "given-sparse": "longtail.features.base:GivenSparse",
    "given-dense": "longtail.features.base:GivenDense",
    "pieces": "longtail.features.pieces:TokenizerPieces",
    "training-set": "longtail.training.prepare:TrainingSet",
    "surrogate": "longtail.training.surrogate:Surrogate",
    "label-table": "longtail.bundle:LabelTable",
    "company": "longtail.graph.company:Company",
    "frozen-bag": "longtail.models.encoders:FrozenBag",
    "frozen-dense": "longtail.models.encoders:FrozenDense",
    "frozen-mlp": "longtail.models.encoders:FrozenMlp",
    "frozen-cnn": "longtail.models.encoders:FrozenCnn",
    "frozen-sum": "longtail.models.encoders:FrozenSum",
    "frozen-rectified": "longtail.models.encoders:FrozenRectified",
    "frozen-unit": "longtail.models.encoders:FrozenUnit",
    "frozen-transformer": "longtail.models.transformer:FrozenTransformer",
    "residual-map": "longtail.models.encoders:ResidualMap",
    "full-map": "longtail.models.encoders:FullMap",
    "embedding-map": "longtail.models.encoders:EmbeddingMap",
    "model": "longtail.models.rankers:Model",
    "ensemble": "longtail.models.rankers:Ensemble",
    "indexed-rows": "longtail.models.rankers:IndexedRows",
    "cluster-model": "longtail.models.rankers:ClusterModel",
    "calibration": "longtail.models.calibration:Calibration",
    "added-labels": "longtail.models.new_labels:AddedLabels",
    "renumbered-labels": "longtail.models.renumbered:RenumberedLabels",
    "renumbered-labels-in-context": "longtail.models.renumbered:RenumberedInContext",
    "nearest-documents": "longtail.search.nearest:NearestDocuments",
    "exact-index": "longtail.search.index:ExactIndex",
    "hnsw-index": "longtail.search.index:HnswIndex",
    "joined-index": "longtail.search.joined:JoinedIndex",
    "packed-rows": "longtail.search.packed:PackedRows",
    "packed-index": "longtail.search.packed:PackedIndex",
    "split-index": "longtail.search.split:SplitIndex",
    "sketch-index": "longtail.search.sketch:SketchIndex",
    "label-index": "longtail.search.shortlist:LabelIndex",
    "shortlist-negatives": "longtail.search.negatives:ShortlistNegatives",
    "cluster-beam": "longtail.search.shortlist:ClusterBeam",
}

# Packages may bring parts of their own: an entry point of this group, kind = "module:Class".
PARTS_GROUP = "longtail.parts"


def home_of(kind: str) -> str | None:
    """Where the class of a kind lives, as "module:Class"; None for a kind that nobody declares. Ours come first."""
    ours = SHARED.get(kind) or _recipe_parts().get(kind) or _DECLARED_KINDS.get(kind)
    declared = {} if ours else _parts_of_packages().get(kind, {})
    if len(declared) > 1:
        who = " and ".join(f"'{package}' ({home})" for home, package in declared.items())
        raise BundleError(
            f"the packages {who} both declare parts of the kind '{kind}'",
            "uninstall all of them but the one that the model was trained with",
        )
    return ours or next(iter(declared), None)


_DECLARED_KINDS: dict[str, str] = {}


def declare(kinds: Mapping[str, str]) -> None:
    """Kinds of parts, each with its "module:Class", that this process knows from now on."""
    _DECLARED_KINDS.update(kinds)


@cache
def _recipe_parts() -> Mapping[str, str]:
    """Kinds of every folder of recipes. They are found, not listed: this room knows no paper."""
    import pkgutil

    recipes = importlib.import_module("longtail.recipes")
    packages = [found.name for found in pkgutil.iter_modules(recipes.__path__) if found.ispkg]
    tables = (importlib.import_module(f"longtail.recipes.{name}").PARTS for name in packages)
    return {kind: home for table in tables for kind, home in table.items()}


@cache
def _parts_of_packages() -> Mapping[str, Mapping[str, str]]:
    """kind -> "module:Class" -> the package that declares it."""
    from importlib.metadata import entry_points  # takes longer to import than a small model to open

    found: dict[str, dict[str, str]] = {}
    for point in entry_points(group=PARTS_GROUP):
        found.setdefault(point.name, {})[point.value] = point.dist.name if point.dist is not None else point.value
    return found


def class_of(home: str) -> Any:
    """The class at "module:Class"."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class State:
    """What a part is made of. `values` must survive JSON; `arrays` holds numpy arrays and CSR arrays; `parts` nests."""

    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Part | None] = field(default_factory=dict)


class Part(Protocol):
    """Can be saved and loaded. ``type(part).from_state(part.state())`` is equal to ``part`` in all that matters."""

    KIND: str

    def state(self) -> State: ...

    @classmethod
    def from_state(cls, state: State) -> Self: ...


class DataPart:
    """A part that is a frozen dataclass: its fields are what is saved.

    A field is an array (dense or CSR), a part, a plain value, settings, None, another dataclass or named tuple, or a
    tuple or a mapping of one of these. Loading follows the declared types of the fields, and refuses what does not
    fit them, or what they are annotated with (`longtail.declared`): shapes that belong together, numbers that something
    is looked up by. What else must hold is checked in `__post_init__`.
    """

    KIND: str

    def state(self) -> State:
        state = State({}, {}, {})
        _keep_fields(self, "", state)
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        return cls(**_read_fields(cls, "", state))


def _field_names(cls: Any) -> list[str]:
    """Of a dataclass or a named tuple."""
    return [one.name for one in fields(cls) if one.init] if is_dataclass(cls) else list(cls._fields)


def _keep_fields(owner: Any, prefix: str, state: Any) -> None:
    for name in _field_names(owner):
        _keep(f"{prefix}{name}", getattr(owner, name), state)


def _keep(name: str, value: Any, state: Any) -> None:
    """Put the value of a field where it belongs; None leaves no trace."""
    if value is None:
        return
    if isinstance(value, np.ndarray) or hasattr(value, "indptr"):
        state.arrays[name] = value
    elif hasattr(value, "KIND"):
        state.parts[name] = value
    elif _are_settings(type(value)):
        state.values[name] = to_tables(value)
    elif _has_fields(type(value)):
        _keep_fields(value, f"{name}.", state)
    elif isinstance(value, Mapping) and not all(_is_plain(one) for one in value.values()):
        state.values[name] = list(value)
        for number, (key, one) in enumerate(value.items()):
            _keep(f"{name}.{_place(number, key)}", one, state)
    elif isinstance(value, tuple) and not all(_is_plain(one) for one in value):
        state.values[name] = len(value)
        for number, one in enumerate(value):
            _keep(f"{name}.{number}", one, state)
    else:
        state.values[name] = dict(value) if isinstance(value, Mapping) else value


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _has_fields(cls: Any) -> bool:
    """A dataclass or a named tuple, which is not a part of its own."""
    return isinstance(cls, type) and (is_dataclass(cls) or hasattr(cls, "_fields")) and not hasattr(cls, "KIND")


def _are_settings(cls: Any) -> bool:
    return isinstance(cls, type) and is_dataclass(cls) and any("help" in one.metadata for one in fields(cls))


def _place(number: int, key: str) -> str:
    """Where an entry of a mapping is saved: under its key, or its number where the key is no name for a folder."""
    return key if re.fullmatch(r"[\w.]{1,100}", key, re.ASCII) else f"#{number}"


_DECLARED: dict[type[Any], dict[str, Any]] = {}


def declared_types(cls: type[Any]) -> dict[str, Any]:
    """The types of a class's fields. Asked once per class: resolving them takes longer than opening a small part."""
    if cls not in _DECLARED:
        _DECLARED[cls] = {name: meant(kind) for name, kind in get_type_hints(cls, include_extras=True).items()}
    return _DECLARED[cls]


def _read_fields(cls: type[Any], prefix: str, state: State) -> dict[str, Any]:
    """Values for the constructor, checked; a field that was None is left to its declared type."""
    declared = declared_types(cls)
    values = {name: _read(declared[name], f"{prefix}{name}", state) for name in _field_names(cls)}
    check_fields(declared, values)
    return values


def read_arrays(cls: type[Any], state: State) -> dict[str, Any]:
    """The annotated arrays of a class that reads its state by itself, checked."""
    declared = {name: kind for name, kind in declared_types(cls).items() if get_origin(bare(kind)) is np.ndarray}
    values = {name: _read(kind, name, state) for name, kind in declared.items()}
    check_fields(declared, values)
    return values


def _read(kind: Any, name: str, state: State) -> Any:
    """The value of the field `name`, which was declared as `kind`."""
    sparse, kind = is_csr(kind), bare(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _read_one_of(inner, name, state)
    if origin is np.ndarray:
        return _fitting_array(state.arrays[name], inner, name)
    if sparse:
        if not hasattr(state.arrays[name], "indptr"):
            raise ValueError(f"'{name}' is a dense array, expected a sparse one")
        return state.arrays[name]
    if kind is Any:
        return next((store[name] for store in (state.arrays, state.parts, state.values) if name in store), None)
    if origin is tuple:
        return _read_tuple(inner, name, state)
    if origin in (dict, abc.Mapping):
        keys = state.values[name]
        if isinstance(keys, Mapping):
            return {key: _fitting_value(value, inner[1], name) for key, value in keys.items()}
        return {key: _read(inner[1], f"{name}.{_place(number, key)}", state) for number, key in enumerate(keys)}
    if origin is Literal or kind in (bool, int, float, str):
        return _fitting_value(state.values[name], kind, name)
    if _are_settings(kind):
        return _saved_settings(kind, state.values[name])
    if _has_fields(kind):
        return kind(**_read_fields(kind, f"{name}.", state))
    part = state.parts[name]
    if not _is_instance(part, kind):
        raise ValueError(f"'{name}' is a {type(part).__name__}, expected {getattr(kind, '__name__', kind)}")
    return part


def _read_one_of(kinds: tuple[Any, ...], name: str, state: State) -> Any:
    """The first of several declared types that what was saved fits."""
    stores: tuple[Mapping[str, Any], ...] = (state.arrays, state.parts, state.values)
    if type(None) in kinds and not any(name == key or key.startswith(f"{name}.") for store in stores for key in store):
        return None
    problems: list[str] = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _read(kind, name, state)
            except (KeyError, TypeError, ValueError) as problem:
                problems.append(str(problem))
    raise ValueError(f"'{name}' is none of what it may be ({'; '.join(problems)})")


# Entries of a tuple that are saved as plain values, at most.
_PLAIN_ENTRIES = 1 << 16


def _read_tuple(kinds: tuple[Any, ...], name: str, state: State) -> tuple[Any, ...]:
    saved = state.values[name]
    count = saved if isinstance(saved, int) else len(saved)
    if not 0 <= count <= max(len(store) for store in (state.arrays, state.parts, state.values)) + _PLAIN_ENTRIES:
        raise ValueError(f"'{name}' says that it has {count} entries")
    each = (kinds[0],) * count if kinds[-1] is Ellipsis else kinds
    if len(each) != count:
        raise ValueError(f"'{name}' has {count} entries, expected {len(each)}")
    if isinstance(saved, int):
        return tuple(_read(kind, f"{name}.{number}", state) for number, kind in enumerate(each))
    return tuple(_fitting_value(value, kind, name) for value, kind in zip(saved, each, strict=True))


def _fitting_array(array: Any, inner: tuple[Any, ...], name: str) -> Any:
    """inner: what `NDArray` was declared with."""
    number = get_args(inner[1])[0] if get_args(inner[1]) else Any
    number = get_origin(number) or number
    fits = isinstance(array, np.ndarray) and (number is Any or np.issubdtype(array.dtype, number))
    if not fits:
        raise ValueError(f"'{name}' is {getattr(array, 'dtype', type(array))}, expected {number}")
    return array


def _fitting_value(value: Any, kind: Any, name: str) -> Any:
    kind = bare(kind)
    if get_origin(kind) is Literal:
        fits = value in get_args(kind)
    elif kind is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if fits else value
    else:
        fits = kind is Any or type(value) is kind
    if not fits:
        raise ValueError(f"'{name}' is {value!r}, expected {kind}")
    return value


def _saved_settings(kind: type[Any], tables: Any) -> Any:
    try:
        return resolve(kind(), tables, "saved settings")
    except ConfigError as problem:
        raise ValueError(problem.message) from problem


def _is_instance(part: Any, kind: Any) -> bool:
    if part is None:
        return False
    try:
        return isinstance(part, kind)
    except TypeError:  # a protocol that cannot be asked: a part that has all its members
        return all(hasattr(part, name) for name in ("KIND", *_members(get_origin(kind) or kind)))


def _members(protocol: Any) -> set[str]:
    owners = [one for one in protocol.__mro__ if getattr(one, "_is_protocol", False) and one is not Protocol]
    names = (name for one in owners for name in (*vars(one), *getattr(one, "__annotations__", ())))
    return {name for name in names if not name.startswith("_")}


class StringTable(Sequence[str]):
    """Many strings as one block of UTF-8: opens in no time however long it is, and decodes only what is asked for."""

    KIND = "strings"

    blob: Annotated[NDArray[np.uint8], Shaped("bytes", plain=True)]
    offsets: Annotated[NDArray[np.int64], Shaped("strings", points_into="bytes")]

    def __init__(self, blob: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.blob, self.offsets = blob, offsets

    @classmethod
    def of(cls, strings: Sequence[str]) -> StringTable:
        if isinstance(strings, StringTable):
            return strings
        encoded = [s.encode("utf-8", "surrogatepass") for s in strings]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        more = f", ... {len(self) - 3:,} more" if len(self) > 3 else ""
        return f"StringTable({', '.join(map(named, self[:3]))}{more})"

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"string {index} of {len(self)}")
        return _decoded(self.blob[self.offsets[index] : self.offsets[index + 1]].data)

    def take(self, numbers: NDArray[np.integer[Any]]) -> list[str]:
        """The strings of the given numbers, none below zero; several times faster than asking for each."""
        raw = self.blob.data
        starts, ends = self.offsets[numbers].tolist(), self.offsets[numbers + 1].tolist()
        return [_decoded(raw[start:end]) for start, end in zip(starts, ends, strict=True)]

    def __iter__(self) -> Iterator[str]:
        # One decode per string, over one copy of the block: much faster than indexing each.
        raw, offsets = self.blob.tobytes(), self.offsets.tolist()
        for start, end in itertools.pairwise(offsets):
            yield _decoded(raw[start:end])

    def state(self) -> State:
        return State(arrays={"blob": self.blob, "offsets": self.offsets})

    @classmethod
    def from_state(cls, state: State) -> StringTable:
        return cls(**read_arrays(cls, state))


def _decoded(raw: Any) -> str:
    """Bytes of a string; those of a forged file that are no UTF-8 are replaced."""
    try:
        return str(raw, "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return str(raw, "utf-8", "replace")


def save_part(part: Part | None, folder: Path) -> None:
    """Write a part to `folder`, which must not exist. Not atomic by itself: use `written_aside`."""
    folder.mkdir(parents=True)
    if part is None:
        put_json(folder / "part.json", {"format": PART_FORMAT, "kind": "none"})
        return
    state = part.state()
    dense: dict[str, NDArray[Any]] = {}
    sparse: dict[str, list[int]] = {}
    for name, array in state.arrays.items():
        if hasattr(array, "indptr"):
            sparse[name] = [int(n) for n in array.shape]
            for piece in ("indptr", "indices", "data"):
                dense[f"{name}.{piece}"] = np.ascontiguousarray(getattr(array, piece))
        else:
            dense[name] = np.ascontiguousarray(array)
    if dense:
        write_arrays(folder / "arrays.safetensors", dense)
    for name, nested in state.parts.items():
        save_part(nested, folder / name)
    put_json(
        folder / "part.json",
        {
            "format": PART_FORMAT,
            "kind": part.KIND,
            "values": dict(state.values),
            "sparse": sparse,
            "arrays": bool(dense),
            "parts": sorted(state.parts),
        },
    )


def saved_again(source: Path, folder: Path) -> None:
    """Give `folder` what `save_part` wrote to `source`, without writing it twice where the file system has hard links.

    Nothing of a part is ever changed in place, so the two can share their files.
    """
    folder.mkdir(parents=True)  # by hand: ``shutil.copytree`` hides a full disk in an error of its own
    for path in sorted(source.iterdir()):
        if path.is_dir():
            saved_again(path, folder / path.name)
        else:
            _link_or_copy(path, folder / path.name)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def load_part(
    folder: Path, home_of: Callable[[str], str | None] = home_of, listed: Collection[Path] | None = None
) -> Any:
    """Load what `save_part` wrote; arrays are memory-mapped and read-only.

    listed: the only files that may be opened, for parts that may come from a stranger; None: all.
    """
    head = read_json(_allowed(folder / "part.json", listed))
    kind = head.get("kind") if isinstance(head, dict) else None
    if not isinstance(kind, str) or head.get("format") != PART_FORMAT:
        raise BundleError(
            f"{folder / 'part.json'}: not a part of format {PART_FORMAT}",
            "upgrade longtail if a newer version made it; an older one must open it itself, or train again",
        )
    if kind == "none":
        return None
    home = home_of(kind)
    if home is None:
        raise UnknownKind(
            f"{folder / 'part.json'}: unknown kind '{kind}'",
            "install the package that it belongs to, or upgrade longtail if a newer version made it",
            kind,
        )
    try:
        cls = class_of(home)
    except ImportError as problem:
        raise BundleError(
            f"{folder / 'part.json'}: kind '{kind}' is {home}, which cannot be imported ({problem})",
            "install the package that it belongs to, with all that it needs",
        ) from problem
    try:
        file = folder / "arrays.safetensors"
        arrays: dict[str, Any] = dict(map_arrays(_allowed(file, listed))) if head["arrays"] else {}
        for name, shape in head["sparse"].items():
            data, indices, indptr = (arrays.pop(f"{name}.{piece}") for piece in ("data", "indices", "indptr"))
            arrays[name] = csr_from_pieces(data, indices, indptr, (int(shape[0]), int(shape[1])))
        inside = head["parts"]
        for number, name in enumerate(inside):
            if (
                not isinstance(name, str)
                or Path(name).name != name
                or name in ("", "..", ".")
                or name in inside[:number]  # a name given twice, at every depth, would be opened without end
            ):
                raise BundleError(
                    f"{folder / 'part.json'}: a nested part is named {name!r}", "the bundle was altered; do not use it"
                )
        parts = {name: load_part(folder / name, home_of, listed) for name in inside}
        return cls.from_state(State(head["values"], arrays, parts))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as problem:
        raise BundleError(
            f"{folder}: the part does not hold what a '{kind}' needs ({problem!r})",
            "the folder was altered or is incomplete",
        ) from problem


def _allowed(path: Path, listed: Collection[Path] | None) -> Path:
    """The path of a file that may be opened: not a link, nor a pipe, which would be waited for."""
    try:
        plain = stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return path  # whoever opens it says so
    if not plain or not (listed is None or path in listed):
        raise BundleError(
            f"{path}: not a plain file that the manifest lists" if plain else f"{path}: not a plain file",
            "the bundle was altered; copy it anew",
        )
    return path


# Kernels number columns by int32.
_MOST_COLUMNS = (1 << 31) - 1


def csr_from_pieces(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]) -> Csr:
    """A CSR array over the given memory, without copies, but with every index checked: kernels trust them."""
    from scipy.sparse import csr_array

    rows, columns = shape
    whole = (np.dtype(np.int32), np.dtype(np.int64))
    if not data.ndim == indices.ndim == indptr.ndim == 1 or indices.dtype not in whole or indptr.dtype not in whole:
        raise ValueError("a sparse array is made of three lists, two of them of whole numbers")
    if not 0 <= columns <= _MOST_COLUMNS:
        raise ValueError(f"a sparse array of {columns} columns, expected at most {_MOST_COLUMNS}")
    if (
        rows < 0
        or len(indptr) != rows + 1
        or indptr[0] != 0
        or len(data) != len(indices)
        or indptr[-1] != len(indices)
        or np.any(np.diff(indptr) < 0)
    ):
        raise ValueError("row pointers of a sparse array do not fit")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= columns):
        raise ValueError(f"column numbers of a sparse array are outside 0..{columns - 1}")
    matrix = csr_array(shape, dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


# ---- arrays ----

_DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    from safetensors.numpy import save_file

    with no_room_is_an_error(path):
        # The library's files are for their owner alone, so that a server of another user could not open a model. They
        # get the rights that a new file has here.
        path.touch()
        rights = path.stat().st_mode
        save_file(dict(arrays), path)
        path.chmod(rights)


# Of an array without numbers, the product of all sizes but those that are 0: a few bytes of a file must not ask for
# vectors of gigabytes.
_LARGEST_EMPTY = 1 << 20


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of a safetensors file as a read-only memory map. (The library's own numpy reader copies.)"""
    foreign = "the file was truncated, altered or written by another program"
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > size - 8:
                raise BundleError(f"{path}: the header of {length} bytes is longer than the file of {size}", foreign)
            head = json.loads(file.read(length))
        whole: NDArray[np.uint8] = (
            np.memmap(path, dtype=np.uint8, mode="r", offset=8 + length) if size > 8 + length else np.zeros(0, np.uint8)
        )
        arrays: dict[str, NDArray[Any]] = {}
        for name, entry in head.items():
            if name == "__metadata__":
                continue
            dtype, shape, (start, end) = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
            count = int(np.prod(shape, dtype=np.int64))
            if 0 in shape and math.prod(size or 1 for size in shape) > _LARGEST_EMPTY:
                raise BundleError(f"{path}: array '{name}' has no numbers, and the shape {shape}", foreign)
            if (
                not 0 <= start <= end <= len(whole)
                or end - start != count * dtype.itemsize
                or any(n < 0 for n in shape)
            ):
                raise BundleError(
                    f"{path}: array '{name}' says bytes {start}..{end} of {len(whole)} for shape {shape} of {dtype}",
                    foreign,
                )
            piece = np.asarray(whole[start:end])
            # A header of odd length (another writer) leaves data unaligned: copy it, kernels assume alignment.
            arrays[name] = (
                (piece if piece.ctypes.data % dtype.itemsize == 0 else piece.copy()).view(dtype).reshape(shape)
            )
        return arrays
    except FileNotFoundError:
        raise BundleError(
            f"{path}: the file is missing", "the folder is incomplete; train again or copy it anew"
        ) from None
    except OSError as problem:
        if problem.errno == errno.ENOMEM:  # a map needs room, too, where the system limits it
            raise MemoryError(f"{path}: {problem.strerror}") from problem
        raise
    except (struct.error, KeyError, TypeError, ValueError, AttributeError) as problem:
        raise BundleError(f"{path}: not a safetensors file ({problem})", foreign) from problem


# ---- JSON ----


def write_json(path: Path, value: Any) -> None:
    with written_aside(path) as aside:
        put_json(aside, value)


def put_json(path: Path, value: Any) -> None:
    """The same, not atomic by itself: for files of a folder that is written aside as a whole."""
    path.write_text(
        json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8"
    )


def _no_number(name: str) -> None:
    """NaN and Infinity, which Python reads though JSON has neither, and `put_json` does not write."""
    raise ValueError(f"{name} is no number of JSON")


def read_json(path: Path, error: type[LongtailError] = BundleError) -> Any:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise error(f"{path}: not a plain file", "the folder was altered; copy it anew")
        return json.loads(path.read_bytes(), parse_constant=_no_number)
    except FileNotFoundError:
        raise error(f"{path}: the file is missing", "the folder is incomplete; make it anew or copy it again") from None
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: not valid JSON ({problem})", "the file was truncated or altered") from problem
