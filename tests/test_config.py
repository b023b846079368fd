"""Settings: what is wrong is said with the nearest right name, and what is printed can be read back."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.config import describe, differences, from_text, read_toml, resolve, section, setting, to_tables
from longtail.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    count: int = setting(3, "how many", low=1, high=10)
    rate: float = setting(0.5, "how fast", low=0.0)
    flag: bool = setting(True, "whether")
    mode: Literal["slow", "fast"] = setting("slow", "which way")
    names: tuple[str, ...] = setting(("title",), "which fields")
    sizes: tuple[int, ...] = setting((4,), "which sizes", low=1)


@dataclass(frozen=True)
class Outer:
    features: Inner = section(Inner, "about features")
    classify: Inner = section(Inner, count=5)


def test_a_section_can_replace_defaults() -> None:
    assert Outer().features.count == 3
    assert Outer().classify.count == 5


@given(
    count=st.integers(1, 10),
    rate=st.floats(0, 1e6, allow_nan=False),
    flag=st.booleans(),
    mode=st.sampled_from(["slow", "fast"]),
    names=st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"])), max_size=3),
)
def test_describe_can_be_read_back(
    count: int, rate: float, flag: bool, mode: Literal["slow", "fast"], names: list[str]
) -> None:
    config = Outer(features=Inner(count, rate, flag, mode, tuple(names), ()))
    assert resolve(Outer(), tomllib.loads(describe(config)), "printed") == config
    assert resolve(Outer(), to_tables(config), "tables") == config


def test_describe_shows_help_bounds_and_choices() -> None:
    text = describe(Outer())
    assert "# how many [1..10]\ncount = 3" in text
    assert "# which way [slow | fast]" in text
    assert "[classify]" in text


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("features.count=7", "count", 7),
        ("features.rate=2", "rate", 2.0),
        ("features.rate=1e-3", "rate", 0.001),
        ("features.flag=no", "flag", False),
        ("features.mode=fast", "mode", "fast"),
        ("features.names=title,content", "names", ("title", "content")),
        ("features.sizes=[3, 4]", "sizes", (3, 4)),
    ],
)
def test_assignments_of_the_command_line(assignment: str, path: str, value: object) -> None:
    assert getattr(from_text(Outer(), [assignment]).features, path) == value


@pytest.mark.parametrize(
    ("assignment", "says", "hint"),
    [
        ("features.cuont=7", "unknown setting 'features.cuont'", "did you mean 'features.count'?"),
        ("count=7", "unknown setting 'count'", "count'?"),
        ("featurs.count=7", "unknown setting", "did you mean 'features.count'?"),
        ("features.count=0", "'features.count' is 0, expected a number >= 1 <= 10", "how many"),
        ("features.count=2.5", "expected a whole number", "how many"),
        ("features.count=many", "'features.count' is 'many'", "how many"),
        ("features.flag=maybe", "expected true or false", "whether"),
        ("features.mode=medium", "one of 'slow', 'fast'", "which way"),
        ("features.rate=nan", "is nan", "how fast"),
        ("features.sizes=3,0", "is 0", "which sizes"),
        ("features.count", "no '='", "--set section.name=value"),
        ("features=3", "is a section", "features.count"),
        ("features.count.more=3", "unknown setting", "did you mean"),
    ],
)
def test_wrong_assignments_say_what_and_what_to_do(assignment: str, says: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_text(Outer(), [assignment])
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_bool_is_not_an_int() -> None:
    with pytest.raises(ConfigError, match="whole number"):
        resolve(Outer(), {"features": {"count": True}}, "F.toml")


def test_files_that_are_not_toml(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[features\n")
    with pytest.raises(ConfigError, match=r"broken\.toml: not valid TOML"):
        read_toml(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(broken)
    with pytest.raises(ConfigError, match="no such file"):
        read_toml(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        read_toml(tmp_path)


def test_differences_are_named() -> None:
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4}) == ["a.c: 2 -> 3", "d: 'absent' -> 4"]
