"""Settings: frozen dataclasses hold name, type, default, bounds and help; TOML and ``--set`` change numbers, never
structure.

    @dataclass(frozen=True)
    class Vote:
        neighbours: int = setting(20, "training documents that vote", low=1)

A recipe's config is a dataclass whose fields are such sections. A default lives in the dataclass and nowhere else.
Allowed types: bool, int, float, str, Literal[...] of strings, tuple[str|int|float, ...].
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from longtail.errors import ConfigError

Config = TypeVar("Config")


def setting(
    default: Any, help: str, *, low: float | None = None, high: float | None = None, is_path: bool = False
) -> Any:
    """One setting: its default, what it means, and the bounds of a number (both inclusive). is_path: it names a file or
    a folder that is read, whose content is part of what is asked for.
    """
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high, "is_path": is_path})


def section(cls: Callable[..., Any], help: str = "", **defaults: Any) -> Any:
    """A nested dataclass of settings (or what makes one); `defaults` replace those of `cls` for this place."""
    return dataclasses.field(default_factory=lambda: cls(**defaults), metadata={"help": help})


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def resolve(base: Config, tables: Mapping[str, Any], source: str) -> Config:
    """`base` with the values of nested `tables` (parsed TOML) put in; ``{"a.b": c}`` is ``{"a": {"b": c}}``. Unknown
    names and wrong values raise.
    """
    try:
        return _replace(base, _nested(tables), "", source)
    except RecursionError:
        raise ConfigError(f"{source}: tables inside tables without end", "settings are section.name = value") from None


def _nested(tables: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tables.items():
        first, dot, rest = name.partition(".")
        inner = _nested({rest: value} if dot else value) if dot or isinstance(value, Mapping) else value
        both = isinstance(inner, dict) and isinstance(found.get(first), dict)
        found[first] = {**found[first], **inner} if both else inner
    return found


def _replace(base: Any, tables: Mapping[str, Any], prefix: str, source: str) -> Any:
    hints = get_type_hints(type(base))
    fields = {f.name: f for f in dataclasses.fields(base)}
    changes: dict[str, Any] = {}
    for name, value in tables.items():
        path = f"{prefix}{name}"
        if name not in fields:
            raise ConfigError(f"{source}: unknown setting '{path}'", nearest(path, names(base, prefix)))
        current = getattr(base, name)
        if is_section(type(current)):
            if not isinstance(value, Mapping):
                raise ConfigError(
                    f"{source}: '{path}' is a section, not a value ({value!r})",
                    f"set one of {', '.join(names(current, path + '.'))}",
                )
            changes[name] = _replace(current, value, f"{path}.", source)
        else:
            changes[name] = _checked(path, value, hints[name], fields[name].metadata, source)
    return dataclasses.replace(base, **changes)


def _checked(path: str, value: Any, kind: Any, meta: Mapping[str, Any], source: str) -> Any:
    def wrong(expected: str) -> ConfigError:
        return ConfigError(
            f"{source}: '{path}' is {value!r}, expected {expected}", meta.get("help", "") and f"{path}: {meta['help']}"
        )

    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise wrong("one of " + ", ".join(repr(c) for c in get_args(kind)))
        return value
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        if not isinstance(value, list | tuple):
            raise wrong(f"a list of {inner.__name__}")
        return tuple(_checked(path, item, inner, meta, source) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= sys.float_info.max else math.inf
    if type(value) is not kind:
        raise wrong({bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[kind])
    if kind in (int, float):
        low, high = meta.get("low"), meta.get("high")
        finite = abs(value) < 2**63 if kind is int else math.isfinite(value)
        if not finite or (low is not None and value < low) or (high is not None and value > high):
            raise wrong(
                f"a number {'' if low is None else f'>= {low:g} '}{'' if high is None else f'<= {high:g}'}".strip()
            )
    return value


def from_text(base: Config, assignments: Iterable[str]) -> Config:
    """`base` with ``a.b=c`` of the command line put in, in order. The type of a setting reads the text."""
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: no '='", "write --set section.name=value")
        steps = path.strip().split(".")
        owner: Any = base
        for step in steps[:-1]:
            owner = getattr(owner, step, None) if is_section(type(owner)) else None
        hints = get_type_hints(type(owner)) if is_section(type(owner)) else {}
        if steps[-1] not in hints:
            raise ConfigError(
                f"--set {assignment}: unknown setting '{path.strip()}'", nearest(path.strip(), names(base))
            )
        tables: Any = _parse(text.strip(), hints[steps[-1]])
        for step in reversed(steps):
            tables = {step: tables}
        base = resolve(base, tables, f"--set {assignment}")
    return base


_BOOLEANS = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)


def _parse(text: str, kind: Any) -> Any:
    """Text of the command line as the type wants it; what cannot be read stays text and is refused by `_checked`."""
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return [_parse(item.strip(), inner) for item in text.strip("[]").split(",") if item.strip()]
    if kind is bool:
        return _BOOLEANS.get(text.lower(), text)
    if kind in (int, float):
        for read in (int, float):
            try:
                return read(text)
            except ValueError:
                continue
        return text
    return text.strip("\"'")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file", "give the path of a TOML file; 'longtail config RECIPE' prints one to start from"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder", "give the path of a TOML file") from None
    except (ValueError, RecursionError) as problem:  # also whole numbers of thousands of digits
        raise ConfigError(
            f"{path}: not valid TOML: {problem}", "'longtail config RECIPE' prints a valid file to start from"
        ) from None


def names(config: Any, prefix: str = "") -> list[str]:
    """Every setting as ``section.name``."""
    found: list[str] = []
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        found += names(value, f"{prefix}{f.name}.") if is_section(type(value)) else [f"{prefix}{f.name}"]
    return found


def paths_in(config: Any, prefix: str = "") -> dict[str, Path]:
    """Files and folders that settings name, by ``section.name``; those that are not there are left out."""
    found: dict[str, Path] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if is_section(type(value)):
            found |= paths_in(value, f"{prefix}{f.name}.")
        elif f.metadata.get("is_path") and value and Path(value).exists():
            found[f"{prefix}{f.name}"] = Path(value)
    return found


def nearest(name: str, known: list[str]) -> str:
    """A hint: the known name that looks most like `name` (by its full path, else by its last step)."""
    by_tail = {k.rpartition(".")[2]: k for k in known}
    close = difflib.get_close_matches(name, known, 1, 0.5) or [
        by_tail[t] for t in difflib.get_close_matches(name.rpartition(".")[2], by_tail, 1, 0.5)
    ]
    more = f" and {len(known) - _LISTED:,} more" if len(known) > _LISTED else ""
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known[:_LISTED])}{more}"


_LISTED = 100  # names that a hint lists


def to_tables(config: Any) -> dict[str, Any]:
    """Nested plain values, as JSON and TOML hold them."""
    tables: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        tables[f.name] = (
            to_tables(value) if is_section(type(value)) else list(value) if isinstance(value, tuple) else value
        )
    return tables


def describe(config: Any, *, help: bool = True) -> str:
    """The config as TOML, settings under their help; ``resolve(default, tomllib.loads(describe(c)))`` gives ``c``."""
    lines: list[str] = []
    _describe(config, "", lines, help)
    return "\n".join(lines).strip() + "\n"


def _describe(config: Any, path: str, lines: list[str], help: bool) -> None:
    hints = get_type_hints(type(config))
    nested = []
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if is_section(type(value)):
            nested.append((f, value))
            continue
        if help:
            low, high = f.metadata.get("low"), f.metadata.get("high")
            bounds = (
                f" [{'' if low is None else f'{low:g}'}..{'' if high is None else f'{high:g}'}]"
                if low is not None or high is not None
                else ""
            )
            choices = f" [{' | '.join(get_args(hints[f.name]))}]" if get_origin(hints[f.name]) is Literal else ""
            lines.append(f"# {f.metadata.get('help', '')}{bounds}{choices}")
        lines.append(f"{f.name} = {toml_value(value)}")
    for f, value in nested:
        full = f"{path}.{f.name}" if path else f.name
        lines += ["", f"[{full}]"]
        if help and f.metadata.get("help"):
            lines.append(f"# {f.metadata['help']}")
        _describe(value, full, lines, help)


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(value) if not value.is_integer() or abs(value) >= 1e16 else f"{value:.1f}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def differences(old: Any, new: Any) -> list[str]:
    """``name: old -> new`` for every setting that differs between two nested tables."""

    def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in tables.items():
            found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        return found

    a, b = flat(old), flat(new)
    return [
        f"{name}: {a.get(name, 'absent')!r} -> {b.get(name, 'absent')!r}"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]
