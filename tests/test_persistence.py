"""Parts survive the disk bit by bit; whatever is wrong on the disk is an error that names the file."""

from __future__ import annotations

import errno
import importlib
import json
import os
import pkgutil
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

import longtail.recipes
from longtail import persistence
from longtail.config import setting
from longtail.errors import BundleError, RunError, UnknownKind
from longtail.persistence import (
    SHARED,
    DataPart,
    Part,
    State,
    StringTable,
    class_of,
    home_of,
    load_part,
    map_arrays,
    read_json,
    save_part,
    saved_again,
    write_arrays,
    written_aside,
)
from longtail.types import F32, I32, Csr


class Everything:
    """A part with values, dense and sparse arrays and nested parts."""

    KIND = "everything"

    def __init__(self, state: State) -> None:
        self.held = state

    def state(self) -> State:
        return self.held

    @classmethod
    def from_state(cls, state: State) -> Everything:
        return cls(state)


def here(kind: str) -> str | None:
    return f"{__name__}:{OWN[kind]}" if kind in OWN else home_of(kind)


OWN = {"everything": "Everything", "sample": "Sample", "shop": "Shop", "counter": "Counter"}


def example() -> Everything:
    arrays: dict[str, Any] = {
        "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
        "u64": np.array([2**63], dtype=np.uint64),
        "empty": np.zeros((0, 4), dtype=np.int64),
        "flags": np.array([True, False]),
        "sparse": csr_array(np.array([[0, 1.5, 0], [0, 0, 0], [2, 0, 3]], dtype=np.float32)),
    }
    return Everything(
        State({"n": 3, "name": "ä"}, arrays, {"words": StringTable.of(["a", "", "ünï"]), "nothing": None})
    )


def test_round_trip_is_bit_equal(tmp_path: Path) -> None:
    save_part(example(), tmp_path / "p")
    loaded = load_part(tmp_path / "p", here).held
    original = example().held
    assert loaded.values == original.values
    assert list(loaded.parts["words"]) == ["a", "", "ünï"]
    assert loaded.parts["nothing"] is None
    for name, array in original.arrays.items():
        found = loaded.arrays[name]
        if name == "sparse":
            np.testing.assert_array_equal(found.toarray(), array.toarray())
            assert found.data.dtype == array.data.dtype
        else:
            np.testing.assert_array_equal(found, array)
            assert found.dtype == array.dtype
            assert found.shape == array.shape


def test_equal_parts_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_part(example(), tmp_path / name)
    for path in (tmp_path / "a").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_loaded_arrays_are_mapped_and_read_only(tmp_path: Path) -> None:
    save_part(example(), tmp_path / "p")
    array = load_part(tmp_path / "p", here).held.arrays["f32"]
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


def test_every_kind_that_is_declared_can_be_imported() -> None:
    declared = dict(SHARED)
    for package in pkgutil.iter_modules(longtail.recipes.__path__, "longtail.recipes."):
        if package.ispkg:
            parts = importlib.import_module(package.name).PARTS
            assert not declared.keys() & parts.keys(), "a kind that two rooms declare"
            assert all(home.startswith(f"{package.name}.") for home in parts.values()), "a part of another room"
            declared |= parts
    for kind, home in declared.items():
        assert kind == class_of(home).KIND
        assert home_of(kind) == home
    assert home_of("os:system") is None


def test_a_kind_that_is_unknown_or_cannot_be_imported_is_named(tmp_path: Path) -> None:
    save_part(StringTable.of(["a"]), tmp_path / "p")
    with pytest.raises(UnknownKind, match="unknown kind 'strings'") as problem:
        load_part(tmp_path / "p", lambda kind: None)
    assert problem.value.kind == "strings"
    with pytest.raises(BundleError, match=r"kind 'strings' is no\.such\.module:Part, which cannot be imported"):
        load_part(tmp_path / "p", lambda kind: "no.such.module:Part")


def test_two_packages_that_declare_one_kind_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def points(group: str) -> list[Any]:
        return [
            SimpleNamespace(name=kind, value=home, dist=SimpleNamespace(name=package))
            for kind, home, package in (
                ("theirs", "a.b:C", "first"),
                ("theirs", "d.e:C", "second"),
                ("alone", "a.b:D", "first"),
                ("alone", "a.b:D", "first, found twice"),
                ("strings", "a.b:E", "first"),
            )
            if group == persistence.PARTS_GROUP
        ]

    monkeypatch.setattr("importlib.metadata.entry_points", points)
    monkeypatch.setattr(persistence, "_parts_of_packages", persistence._parts_of_packages.__wrapped__)
    with pytest.raises(BundleError, match=r"'first' \(a.b:C\) and 'second' \(d.e:C\) both declare .* 'theirs'"):
        home_of("theirs")
    assert home_of("alone") == "a.b:D"
    assert home_of("strings") == SHARED["strings"], "ours come first"


@dataclass(frozen=True)
class Inner:
    weight: F32
    name: str


class Point(NamedTuple):
    place: int
    weight: F32


@dataclass(frozen=True)
class Knobs:
    """Settings."""

    depth: int = setting(3, "how deep", low=1)


@dataclass(frozen=True)
class Sample(DataPart):
    """A field of every form that a part may have."""

    KIND = "sample"

    rows: F32 | StringTable
    graph: Csr
    words: StringTable
    inner: Inner
    knobs: Knobs
    layers: tuple[F32, ...]
    pair: tuple[int, float]
    named: Mapping[str, I32]
    point: Point
    values: NDArray[Any]
    plain: Mapping[str, int]
    share: float
    mode: Literal["a", "b"]
    bias: F32 | None = None
    nested: StringTable | None = None


def sample(**changes: Any) -> Sample:
    graph = csr_array(np.array([[0, 1.5], [2, 0]], dtype=np.float32))
    made = Sample(
        np.ones((2, 3), np.float32),
        graph,
        StringTable.of(["a", "b"]),
        Inner(np.zeros(2, np.float32), "x"),
        Knobs(5),
        (np.zeros(1, np.float32), np.ones((2, 2), np.float32)),
        (1, 2.0),
        {"one": np.arange(3, dtype=np.int32), "a/b: two": np.zeros(0, np.int32)},
        Point(2, np.ones(3, np.float32)),
        np.ones(2, np.float16),
        {"n": 3},
        1.0,
        "b",
    )
    return replace(made, **changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"rows": StringTable.of(["packed"])}, {"bias": np.ones(3, np.float32), "nested": StringTable.of(["z"])}],
    ids=["plain", "a part in place of an array", "what may be None is there"],
)
def test_what_is_saved_follows_from_the_fields(changes: dict[str, Any], tmp_path: Path) -> None:
    part = sample(**changes)
    save_part(part, tmp_path / "p")
    found = load_part(tmp_path / "p", here)
    assert isinstance(found, Sample)
    for one in fields(Sample):
        before, after = getattr(part, one.name), getattr(found, one.name)
        if isinstance(before, StringTable):
            assert list(before) == list(after)
        elif one.name == "graph":
            np.testing.assert_array_equal(before.toarray(), after.toarray())
        elif one.name == "inner":
            np.testing.assert_array_equal(before.weight, after.weight)
            assert before.name == after.name
        elif one.name == "point":
            assert isinstance(after, Point)
            assert after.place == before.place
            np.testing.assert_array_equal(after.weight, before.weight)
        elif one.name in ("layers", "named"):
            assert type(after) is type(before)
            assert len(after) == len(before)
            pairs = zip(before, after, strict=True) if one.name == "layers" else ((before[k], after[k]) for k in before)
            for a, b in pairs:
                np.testing.assert_array_equal(a, b)
        elif isinstance(before, np.ndarray):
            np.testing.assert_array_equal(before, after)
        else:
            assert before == after
            assert type(before) is type(after)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "c"),
        ("share", "1.0"),
        ("share", True),
        ("pair", [1]),
        ("pair", [1.5, 2.0]),
        ("knobs", {"depth": 0}),
        ("knobs", {"width": 1}),
        ("layers", 3),
        ("named", ["one", "three"]),
        ("plain", {"n": "3"}),
    ],
)
def test_what_does_not_fit_the_declared_fields_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    save_part(sample(), tmp_path / "p")
    head = json.loads((tmp_path / "p" / "part.json").read_text())
    head["values"][name] = value
    (tmp_path / "p" / "part.json").write_text(json.dumps(head))
    with pytest.raises(BundleError, match="does not hold what a 'sample' needs"):
        load_part(tmp_path / "p", here)


def test_numbers_of_nothing_ask_for_no_memory(tmp_path: Path) -> None:
    write_arrays(tmp_path / "small", {"a": np.zeros((0, 300), np.float32), "b": np.zeros((1 << 20, 0), np.int8)})
    assert map_arrays(tmp_path / "small")["a"].shape == (0, 300)
    for shape in ((0, 1 << 29), (1 << 12, 0, 1 << 12)):
        write_arrays(tmp_path / "large", {"a": np.zeros(shape, np.int8)})
        with pytest.raises(BundleError, match="'a' has no numbers"):
            map_arrays(tmp_path / "large")


def test_no_room_for_a_map_is_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrays(tmp_path / "file", {"a": np.zeros(3, np.float32)})

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(np, "memmap", no_room)
    with pytest.raises(MemoryError, match="file: Cannot allocate memory"):
        map_arrays(tmp_path / "file")


class Counts(Part, Protocol):
    """Cannot be asked whether something is one."""

    @property
    def size(self) -> int: ...

    def counted(self) -> int: ...


@dataclass(frozen=True)
class Counter(DataPart):
    KIND = "counter"

    size: int

    def counted(self) -> int:
        return self.size


@dataclass(frozen=True)
class Shop(DataPart):
    KIND = "shop"

    till: Counts


def test_a_part_without_the_members_of_a_protocol_is_refused(tmp_path: Path) -> None:
    save_part(Shop(Counter(3)), tmp_path / "p")
    assert load_part(tmp_path / "p", here).till.counted() == 3
    shutil.rmtree(tmp_path / "p" / "till")
    save_part(StringTable.of(["a"]), tmp_path / "p" / "till")
    with pytest.raises(BundleError, match="'till' is a StringTable, expected Counts"):
        load_part(tmp_path / "p", here)


@pytest.mark.parametrize("name", ["rows", "layers.1", "named.one", "inner.weight", "point.weight"])
def test_an_array_of_another_type_is_refused(name: str, tmp_path: Path) -> None:
    save_part(sample(), tmp_path / "p")
    file = tmp_path / "p" / "arrays.safetensors"
    arrays = {key: np.array(array) for key, array in map_arrays(file).items()}
    write_arrays(file, {**arrays, name: arrays[name].astype(np.float64)})
    with pytest.raises(BundleError, match=name):
        load_part(tmp_path / "p", here)


@given(st.lists(st.text(), max_size=20))
@settings(max_examples=60)
def test_string_table_is_a_list_of_strings(strings: list[str]) -> None:
    table = StringTable.of(strings)
    assert list(table) == strings
    assert [table[i] for i in range(len(table))] == strings
    assert table[1:3] == strings[1:3]
    assert StringTable.of(table) is table
    if strings:
        assert table[-1] == strings[-1]
    with pytest.raises(IndexError):
        table[len(strings)]


def spoil_kind(folder: Path) -> None:
    head = json.loads((folder / "part.json").read_text())
    (folder / "part.json").write_text(json.dumps({**head, "kind": "os:system"}))


def spoil_parts(folder: Path) -> None:
    head = json.loads((folder / "part.json").read_text())
    (folder / "part.json").write_text(json.dumps({**head, "parts": ["../p"]}))


def spoil_indices(folder: Path) -> None:
    arrays = {name: np.array(array) for name, array in map_arrays(folder / "arrays.safetensors").items()}
    arrays["sparse.indices"][0] = 99
    write_arrays(folder / "arrays.safetensors", arrays)


def spoil_pointers(folder: Path) -> None:
    arrays = {name: np.array(array) for name, array in map_arrays(folder / "arrays.safetensors").items()}
    arrays["sparse.indptr"][1] = 3
    write_arrays(folder / "arrays.safetensors", arrays)


def spoil_offsets(folder: Path) -> None:
    raw = (folder / "arrays.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + length])
    head["f32"]["data_offsets"][1] += 4
    text = json.dumps(head).encode()
    (folder / "arrays.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "no part.json": (lambda f: (f / "part.json").unlink(), "missing"),
    "no arrays": (lambda f: (f / "arrays.safetensors").unlink(), "missing"),
    "part.json cut": (lambda f: (f / "part.json").write_text('{"format"'), "not valid JSON"),
    "part.json a list": (lambda f: (f / "part.json").write_text("[]"), "not a part"),
    "another format": (
        lambda f: (f / "part.json").write_text('{"format": 99, "kind": "strings"}'),
        "not a part of format",
    ),
    "unknown kind": (spoil_kind, "unknown kind 'os:system'"),
    "nested outside": (spoil_parts, "nested part is named"),
    "arrays cut": (
        lambda f: (f / "arrays.safetensors").write_bytes((f / "arrays.safetensors").read_bytes()[:-8]),
        "says bytes",
    ),
    "arrays garbage": (lambda f: (f / "arrays.safetensors").write_bytes(b"\xff" * 40), "longer than the file"),
    "arrays empty": (lambda f: (f / "arrays.safetensors").write_bytes(b""), "not a safetensors file"),
    "offsets wrong": (spoil_offsets, "says bytes"),
    "column out of range": (spoil_indices, "outside 0..2"),
    "row pointers wrong": (spoil_pointers, "row pointers"),
    "nested part gone": (lambda f: (f / "words" / "part.json").unlink(), "missing"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_part_names_its_file(tmp_path: Path, how: str) -> None:
    save_part(example(), tmp_path / "p")
    spoil, says = SPOILT[how]
    spoil(tmp_path / "p")
    with pytest.raises(BundleError) as caught:
        load_part(tmp_path / "p", here)
    assert says in caught.value.message
    assert str(tmp_path / "p") in caught.value.message
    assert caught.value.hint


def test_written_aside_leaves_nothing_behind_on_failure(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    target.write_text("old")

    def half_a_write() -> None:
        with written_aside(target) as aside:
            aside.write_text("half")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        half_a_write()
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_full_disk_is_an_error_not_a_half_file(tmp_path: Path) -> None:
    target = tmp_path / "result.bin"
    with pytest.raises(RunError, match="no space left"), written_aside(target):
        Path("/dev/full").write_bytes(b"x" * 100)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"), written_aside(tmp_path / "name") as aside:
        (tmp_path / "file" / "below").write_text(str(aside))


def test_a_folder_is_whole_or_absent(tmp_path: Path) -> None:
    def half_a_folder() -> None:
        with written_aside(tmp_path / "new") as aside:
            aside.mkdir()
            (aside / "half").write_text("")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        half_a_folder()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious").write_text("")
    with pytest.raises(RunError, match="cannot be written"), written_aside(tmp_path / "taken") as aside:
        aside.mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "precious"]


def test_read_json_names_a_broken_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(BundleError, match=r"x\.json: not valid JSON"):
        read_json(tmp_path / "x.json")


def test_strings_are_taken_by_their_numbers() -> None:
    words = ["owl", "", "grün", "漢字", "lone \ud800"]
    table = StringTable.of(words)
    assert table.take(np.array([4, 0, 0, 2, 1, 3], np.int32)) == [words[n] for n in (4, 0, 0, 2, 1, 3)]
    assert table.take(np.zeros(0, np.int32)) == []


def test_a_part_that_is_saved_again_shares_its_files(tmp_path: Path) -> None:
    save_part(StringTable.of(["a", "bc"]), tmp_path / "first")
    saved_again(tmp_path / "first", tmp_path / "second")
    again = load_part(tmp_path / "second")
    assert list(again) == ["a", "bc"]
    assert (tmp_path / "second" / "arrays.safetensors").samefile(tmp_path / "first" / "arrays.safetensors")


def test_a_part_is_copied_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    save_part(StringTable.of(["a", "bc"]), tmp_path / "first")
    saved_again(tmp_path / "first", tmp_path / "second")
    assert list(load_part(tmp_path / "second")) == ["a", "bc"]


@pytest.mark.parametrize(("mask", "rights"), [(0o022, 0o644), (0o027, 0o640)])
def test_files_of_a_part_have_the_rights_of_new_files(tmp_path: Path, mask: int, rights: int) -> None:
    """A server runs as another user than whoever trained; what others may read is the user's choice."""
    before = os.umask(mask)
    try:
        save_part(StringTable.of(["a", "b"]), tmp_path / "part")
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "part").rglob("*") if path.is_file()}
    assert set(found.values()) == {rights}, found
    assert "arrays.safetensors" in found
