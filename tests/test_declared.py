"""What arrays of parts are declared to hold is checked when a part is opened, and every part declares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, get_args

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail import persistence
from longtail.declared import Between, Shaped, Sized, bare, check_fields, undeclared
from longtail.persistence import DataPart, class_of, declared_types
from longtail.types import F32, I32, I64, Csr


@dataclass(frozen=True)
class Inner:
    width: int | None = 2

    def __len__(self) -> int:
        return 3


@dataclass(frozen=True)
class Graph(DataPart):
    KIND = "graph of this test"

    starts: Annotated[I64, Shaped("nodes", points_into="edges")]
    neighbours: Annotated[I32, Shaped("edges", numbers_of="nodes")]
    owners: Annotated[I32, Shaped("nodes", numbers_of="_", least=-1)]
    vectors: Annotated[F32, Shaped("nodes", "width")] | None = None
    beside: Annotated[Csr, Shaped("nodes", "_")] | None = None
    inner: Annotated[Inner, Sized(len="nodes", width="width+1")] | None = None
    fewer: Annotated[Inner, Sized(len="<=edges")] | None = None
    many: tuple[Annotated[F32, Shaped("_", "width")], ...] = ()
    depth: Annotated[int, Between(1, 9)] = 1
    order: Annotated[I32, Shaped("_", numbers_of="nodes", once=True)] | None = None


GOOD: dict[str, Any] = {
    "starts": np.array([0, 2, 2, 4]),
    "neighbours": np.array([1, 2, 0, 0], np.int32),
    "owners": np.array([-1, 5, 0], np.int32),
    "vectors": np.zeros((3, 1), np.float32),
    "beside": csr_array(np.ones((3, 7), np.float32)),
    "inner": Inner(),
    "fewer": Inner(),
    "many": (np.zeros((4, 1), np.float32), np.zeros((0, 1), np.float32)),
    "depth": 9,
    "order": np.array([2, 0, 1], np.int32),
}
BAD: dict[str, Any] = {
    "starts": [np.array([0, 3, 2, 4]), np.array([1, 2, 2, 4]), np.array([0, 2, 2, 5]), np.array([0, 4])],
    "neighbours": [np.array([1, 2, 0, 3], np.int32), np.array([1, 2, 0, -1], np.int32), np.array([[1, 2, 0, 0]])],
    "owners": [np.array([-2, 5, 0], np.int32), np.array([0, 0], np.int32)],
    "order": [np.array([0, 0], np.int32), np.array([0, 2, 2], np.int32)],
    "vectors": [np.zeros((2, 1), np.float32), np.zeros(3, np.float32), np.zeros((3, 2), np.float32)],
    "beside": [csr_array(np.ones((2, 7), np.float32))],
    "inner": [Inner(3)],
    "many": [(np.zeros((4, 2), np.float32),)],
    "depth": [0, 10],
}


def test_what_fits_passes() -> None:
    check_fields(declared_types(Graph), GOOD)
    check_fields(declared_types(Graph), {**GOOD, "vectors": None, "beside": None, "inner": None, "many": ()})
    check_fields(declared_types(Graph), {**GOOD, "inner": Inner(None)})


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, many in BAD.items() for number in range(len(many))]
)
def test_what_does_not_fit_is_refused(name: str, number: int) -> None:
    with pytest.raises(ValueError, match=r"expected|point into"):
        check_fields(declared_types(Graph), {**GOOD, name: BAD[name][number]})


def test_at_most_so_many() -> None:
    short = {**GOOD, "starts": np.array([0, 1, 1, 2]), "neighbours": np.array([1, 2], np.int32)}
    with pytest.raises(ValueError, match="at most 2"):
        check_fields(declared_types(Graph), short)
    with pytest.raises(ValueError, match="nothing says how many"):
        check_fields({"one": Annotated[I32, Shaped("_", numbers_of="elsewhere")]}, {"one": np.zeros(1, np.int32)})


def everything_missing(cls: type[Any], seen: set[type[Any]]) -> Iterator[str]:
    """What the fields of a class, and of what they hold, do not declare."""
    if cls in seen:
        return
    seen.add(cls)
    names = persistence._field_names(cls) if is_dataclass(cls) or hasattr(cls, "_fields") else list(cls.__annotations__)
    for name in names:
        kind = declared_types(cls)[name]
        yield from undeclared(kind, f"{cls.__module__}.{cls.__name__}.{name}")
        ahead = [kind]
        while ahead:
            inner = bare(ahead.pop())
            ahead += [one for one in get_args(inner) if one is not Ellipsis]
            if persistence._has_fields(inner) and not persistence._are_settings(inner):
                yield from everything_missing(inner, seen)


KINDS = {**persistence.SHARED, **persistence._recipe_parts()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_declares_what_its_arrays_hold(kind: str) -> None:
    cls = class_of(KINDS[kind])
    assert not list(everything_missing(cls, set()))
    if not issubclass(cls, DataPart):  # reads its state by itself: through the same check
        assert kind in {"strings", "hnsw-index", "instance-vote"}, "derive from DataPart, or check what is read"


def test_what_is_not_declared_is_found() -> None:
    kinds = {"bare_array": F32, "of_what": Annotated[I32, Shaped("n")], "sparse": Csr | None, "listed": tuple[I64, ...]}
    kinds |= {"size": int}
    assert all(len(list(undeclared(kind, name))) == 1 for name, kind in kinds.items())
    good = [Annotated[I32, Shaped("n", plain=True)], Annotated[F32, Shaped("n")], Annotated[int, Between(0)], str]
    assert not [said for kind in good for said in undeclared(kind, "it")]
