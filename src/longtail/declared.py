"""What arrays of a part must be, declared beside their types, and the check of it.

    starts: Annotated[I64, Shaped("nodes", points_into="edges")]
    neighbours: Annotated[I32, Shaped("edges", numbers_of="nodes")]
    vectors: Annotated[F32, Shaped("nodes", "width")]
    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    n_labels: Annotated[int, Between(0)]

Kernels trust the numbers that they look things up by, and a file may hold any number. So every array of a saved part
says what it holds, and whoever opens the part (`longtail.persistence`) checks it before anything else sees it.

Sizes are names. A name gets its number where it is first met: a field of the same owner that is a whole number, a
declared size, the length of an axis. Wherever it is met again the number must be the same. ``name+1`` is one more,
``<=name`` at most as many, and ``_`` is any size, told apart from no other; ``numbers_of="_"`` leaves it to an owner
to say of how many (``Sized(n_labels="<=labels")``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np

ANY_SIZE = "_"


class Shaped:
    """An array, dense or CSR, or a table that has a `shape`.

    sizes: the name of each axis; none: any shape, which the owner checks itself.
    numbers_of: entries are numbers of so many things, from `least` on: 0, or -1 where an entry may stand for none.
    points_into: entries are where runs of so many things begin, and where the last ends: they begin with 0, never
        fall, and there is one more of them than `sizes` says.
    once: no number stands there twice.
    plain: entries are whole numbers that nothing is looked up by, or bytes of which any value is good.
    """

    def __init__(
        self,
        *sizes: str,
        numbers_of: str = "",
        least: int = 0,
        points_into: str = "",
        plain: bool = False,
        once: bool = False,
    ) -> None:
        self.sizes, self.numbers_of, self.least = sizes, numbers_of, least
        self.points_into, self.plain, self.once = points_into, plain, once

    def says_what_numbers_are(self) -> bool:
        return bool(self.numbers_of or self.points_into or self.plain)


class Sized:
    """A part inside a part: sizes by the names of its properties; ``len`` is its length. One that is None is unknown
    (an encoder that takes vectors of any width).
    """

    def __init__(self, **sizes: str) -> None:
        self.sizes = sizes


@dataclass(frozen=True)
class Between:
    """A whole number, in bounds that allow nothing absurd: rows and lists are made of this size."""

    low: int
    high: int = 1 << 40


class _Sizes:
    """Names that have a number."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.known = {
            name: value
            for name, value in values.items()
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0
        }

    def meet(self, expression: str, size: int, what: str) -> None:
        """`size` is what `expression` says, now or from now on."""
        at_most, expression = expression.startswith("<="), expression.removeprefix("<=")
        name, _, more = expression.partition("+")
        if name == ANY_SIZE:
            return
        wanted = size - int(more or 0)
        if name not in self.known and not at_most:
            if wanted < 0:
                raise ValueError(f"{what} is {size}, expected {expression}")
            self.known[name] = wanted
        elif wanted > self.of(name, what) or (wanted < self.of(name, what) and not at_most):
            raise ValueError(
                f"{what} is {size}, expected {'at most ' if at_most else ''}{self.known[name] + int(more or 0)} "
                f"({expression})"
            )

    def of(self, name: str, what: str) -> int:
        if name not in self.known:
            raise ValueError(f"{what}: nothing says how many '{name}' there are")
        return self.known[name]


def check_fields(declared: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """A ValueError where a value is not what its field was declared to hold.

    declared: the types of fields, with what they are annotated with.  values: what was read for them.
    """
    sizes = _Sizes(values)
    rules = [
        (rule, f"'{name}'", one)
        for name, value in values.items()
        for found, one in _annotated(declared[name], value)
        for rule in found
    ]
    for rule, what, value in rules:
        if isinstance(rule, Between) and not rule.low <= value <= rule.high:
            raise ValueError(f"{what} is {value}, expected {rule.low} to {rule.high}")
        if isinstance(rule, Shaped):
            _check_shape(rule, value, what, sizes)
    for at_most in (False, True):  # a bound is known when all sizes are
        for rule, what, value in rules:
            if isinstance(rule, Sized):
                _check_sizes(rule, value, what, sizes, at_most)
    for rule, what, value in rules:
        if isinstance(rule, Shaped):
            _check_entries(rule, value, what, sizes)


def _check_shape(rule: Shaped, array: Any, what: str, sizes: _Sizes) -> None:
    if not rule.sizes:
        return
    if len(array.shape) != len(rule.sizes):
        raise ValueError(f"{what} has {len(array.shape)} dimensions, expected {len(rule.sizes)}")
    for axis, (name, size) in enumerate(zip(rule.sizes, array.shape, strict=True)):
        sizes.meet(f"{name}+1" if rule.points_into else name, int(size), f"the size of {what}, axis {axis},")


def _check_sizes(rule: Sized, part: Any, what: str, sizes: _Sizes, at_most: bool) -> None:
    for attribute, expression in rule.sizes.items():
        if expression.startswith("<=") != at_most:
            continue
        size = len(part) if attribute == "len" else getattr(part, attribute, None)
        if size is not None:
            sizes.meet(expression, int(size), f"'{attribute}' of {what}")


def _check_entries(rule: Shaped, array: Any, what: str, sizes: _Sizes) -> None:
    if rule.points_into:
        total = int(array[-1]) if rule.points_into == ANY_SIZE else sizes.of(rule.points_into, what)
        if array[0] != 0 or array[-1] != total or (array[1:] < array[:-1]).any():
            raise ValueError(f"{what} does not point into {total} {rule.points_into}: from 0 on, never falling")
    if rule.numbers_of and array.size:
        low, high = int(array.min()), int(array.max())
        count = high + 1 if rule.numbers_of == ANY_SIZE else sizes.of(rule.numbers_of, what)
        if low < rule.least or high >= count:
            raise ValueError(f"{what} holds {low} to {high}, expected {rule.least} to {count - 1}")
        if rule.once and np.bincount(array.reshape(-1)).max() > 1:
            raise ValueError(f"{what} holds a number twice, expected each once")


def meant(kind: Any) -> Any:
    """The type that an alias stands for: newer numpy declares `NDArray` as one (``type NDArray[T] = ...``)."""
    origin = get_origin(kind)
    if hasattr(origin, "__value__"):
        return meant(origin.__value__[get_args(kind)])
    return meant(kind.__value__) if origin is None and hasattr(kind, "__value__") else kind


def bare(kind: Any) -> Any:
    """A type without what it is annotated with."""
    kind = meant(kind)
    return meant(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def is_csr(kind: Any) -> bool:
    """Whether a type is `longtail.types.Csr`, whatever else it is annotated with."""
    return get_origin(kind) is Annotated and "CSR array" in kind.__metadata__


def _annotated(kind: Any, value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What a value, or each that it holds, was annotated with. None was left out, and says nothing."""
    if value is None:
        return
    kind = meant(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield kind.__metadata__, value
        yield from _annotated(inner[0], value)
    elif origin in (Union, UnionType):
        for one in inner:
            if fits(one, value):
                yield from _annotated(one, value)
    elif origin is tuple:
        for one in value:
            yield from _annotated(inner[0], one)
    elif isinstance(value, Mapping) and len(inner) == 2:
        for one in value.values():
            yield from _annotated(inner[1], one)


def fits(kind: Any, value: Any) -> bool:
    """Whether a value may be of one of several declared types, as far as its rules are concerned."""
    if is_csr(kind):
        return hasattr(value, "indptr")
    is_array = get_origin(bare(kind)) is np.ndarray
    return isinstance(value, np.ndarray) if is_array else not isinstance(value, np.ndarray)


def undeclared(kind: Any, name: str) -> Iterator[str]:
    """What a type should declare and does not, a sentence each: a test asks it of every kind of part."""
    kind = meant(kind)
    rules = kind.__metadata__ if get_origin(kind) is Annotated else ()
    shaped = next((rule for rule in rules if isinstance(rule, Shaped)), None)
    inner = bare(kind)
    is_array = get_origin(inner) is np.ndarray
    if is_array or is_csr(kind):
        if shaped is None:
            yield f"{name} does not say its shape: annotate it with `longtail.declared.Shaped`"
        elif is_array and _may_be_whole(inner) and not shaped.says_what_numbers_are():
            yield f"{name} may hold whole numbers and does not say of what: numbers_of, points_into or plain"
    elif inner is int:
        if not any(isinstance(rule, Between) for rule in rules):
            yield f"{name} is a whole number without bounds: annotate it with `longtail.declared.Between`"
    elif get_origin(inner) is not None and shaped is None:
        for one in get_args(inner):
            if one is not Ellipsis:
                yield from undeclared(one, name)


def _may_be_whole(array: Any) -> bool:
    number = (get_args(get_args(array)[1]) or (Any,))[0]
    number = get_origin(number) or number
    return number is Any or issubclass(number, np.integer)
