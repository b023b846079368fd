from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.faults.models import made


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The bundle of a small model of `benchmarks.faults.models`, trained once."""
    folder = tmp_path_factory.mktemp("models")
    return lambda name: dict(made(folder, iter([name])))[name]
