"""Servers that several tests ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.servers import Server, start


@pytest.fixture(scope="session")
def context_run(tmp_path_factory: pytest.TempPathFactory, planted_graphs_folder: Path) -> Path:
    """A model that can use known labels."""
    import longtail

    run = tmp_path_factory.mktemp("runs") / "galaxc"
    small = {"astec": {"width": 16, "epochs": 2}, "surrogate": {"epochs": 2, "random": 2}, "classify": {"epochs": 2}}
    longtail.train(planted_graphs_folder, run, "galaxc", settings=small, device="cpu")
    return run


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path, direct_run: Path) -> Iterator[Server]:
    """Two models, no token, one worker; tests leave it as it is."""
    running = start(tmp_path_factory.mktemp("serve"), f"tiny={tiny_run}", f"direct={direct_run}")
    yield running
    assert running.stop() == 0
