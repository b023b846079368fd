"""Cases of `benchmarks.speed` run on little data, in this process."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.speed.__main__ import main

Measure = Callable[..., dict[str, Any]]


def here(work: Callable[..., Any], *arguments: Any, threads: int | None = None, **variables: str) -> Any:
    """In the place of `alone`: no new process, but arguments and result travel as JSON, too."""
    return json.loads(json.dumps(work(*json.loads(json.dumps(arguments)))))


@pytest.fixture
def record_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Measure:
    """Runs a case by its command and returns what it recorded, which names no place of this machine."""

    def record(case: str, *words: object, status: int = 0) -> dict[str, Any]:
        module = importlib.import_module(f"benchmarks.speed.cases.{case.replace('-', '_')}")
        if hasattr(module, "alone"):
            monkeypatch.setattr(module, "alone", here)
        out = tmp_path / f"{case}.json"
        assert main([case, *map(str, words), "--out", str(out)]) == status
        text = out.read_text(encoding="utf-8")
        assert str(tmp_path.parent) not in text
        found: dict[str, Any] = json.loads(text)
        assert found["name"] == case
        assert found["command"].startswith(f"python -m benchmarks.speed {case}")
        return found

    return record
