"""Large blocks stay with the process: counted by the pages that the system had to clear."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from longtail.nn.allocation import keep_large_blocks

PROGRAM = """
import resource, sys
import torch
from longtail.nn.allocation import keep_large_blocks
if sys.argv[1] == "keep":
    keep_large_blocks()
def touch():
    held = [torch.ones(megabytes * 2**18) for megabytes in (10, 50, 50, 64)]
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def cleared(way: str) -> int:
    found = subprocess.run([sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return int(found.stdout)


@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_freed_blocks_serve_the_next_tensor() -> None:
    assert cleared("keep") < 0.5 * cleared("as it is")


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: object) -> None:
        raise AssertionError("no library is asked")

    monkeypatch.setattr("longtail.nn.allocation.sys.platform", "darwin")
    monkeypatch.setattr("longtail.nn.allocation.ctypes.CDLL", refuse)
    keep_large_blocks()
