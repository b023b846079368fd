"""The Triton kernel of row-wise Adam against torch: on a GPU, or where Triton is installed without one, in its
interpreter.

TRITON_INTERPRET=1 pytest tests/nn/test_row_triton.py
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from longtail.nn.row_tables import RowAdam

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined
pytest.importorskip("triton", reason="Triton is not installed")
row_triton: Any = pytest.importorskip("longtail.nn.triton_kernels")

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if ON_GPU else "cpu"


@pytest.mark.parametrize("width", [1, 37, 300, 1500])
def test_rows_are_updated_as_by_torch_and_repetitions_count_for_nothing(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    start = torch.randn(50, width, generator=generator).to(DEVICE)
    ours, theirs = RowAdam(start.clone(), reference=True), RowAdam(start.clone(), reference=True)
    ours.by_triton = True
    for rows in ([3, 4, 40, 49], [0, 4, 7, 7, 7], [12], []):
        gradient = torch.randn(len(rows), width, generator=generator).to(DEVICE)
        for adam in (ours, theirs):
            adam.update_rows(torch.tensor(rows, dtype=torch.int64, device=DEVICE), gradient, 0.01)
    for name, value in {"table": ours.table, **ours.state()}.items():
        torch.testing.assert_close(value, {"table": theirs.table, **theirs.state()}[name], rtol=1e-5, atol=1e-6)
    assert torch.equal(ours.table[20], start[20])
    assert not torch.equal(ours.table[7], start[7])


def test_on_a_gpu_it_is_the_default() -> None:
    assert RowAdam(torch.zeros(2, 2, device=DEVICE)).by_triton == ON_GPU
    assert not RowAdam(torch.zeros(2, 2, device=DEVICE), reference=True).by_triton
