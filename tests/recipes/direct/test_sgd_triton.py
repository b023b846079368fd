"""Kernels of rows of two bytes a number against torch: on a GPU, or where Triton is installed without one, in its
interpreter.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import Tensor

from longtail.nn.row_tables import AdamFactors, LightRowAdam
from longtail.nn.shards import Shard
from longtail.recipes.direct.sgd import SgdTable

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined
pytest.importorskip("triton", reason="Triton is not installed")

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if ON_GPU else "cpu"


def random(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    numbers = np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)
    return torch.from_numpy(numbers).to(DEVICE)


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("shape", [(200, 130, 20), (300, 260, 300), (150, 140, 512), (130, 128, 60)])
def test_rows_learn_as_by_torch(shape: tuple[int, int, int], text: bool) -> None:
    """But for sums in another order, which may round to the other side now and then."""
    labels, documents, width = shape
    shard = Shard(3 * labels, 1, 3)
    trust, shares = random((labels, 1)).abs(), random((labels,)).abs() * 0.01
    tables = [SgdTable(width, trust, shares, shard, text=text) for _ in range(2)]
    start = random((labels, width + 1)) / 10
    x = torch.zeros(documents + -documents % 128, width + 1 + -(width + 1) % 16, device=DEVICE)
    x[:documents, :width] = random((documents, width)) / width**0.5
    x[:documents, width] = 1
    slopes = random((len(x), labels + -labels % 8)).sigmoid() / 10
    for table, kernels in zip(tables, (True, False), strict=True):
        table.kernels = kernels
        table.rows.copy_(start)
        learn = table.learner(2, 0.7)
        for first, count in ((0, 128), (128, labels - 128)):
            part = slopes[:, first : first + count + -count % 8].bfloat16().contiguous()
            # The oracle's sums in float32, as the kernel's.
            given = (part, x.bfloat16()) if kernels else (part.float(), x.bfloat16().float())
            learn(first, count, *given, 1 / documents)
        if text:
            table.move(4, random((labels, 8)), 3)
    for name, wanted in tables[1].state().items():
        got = tables[0].state()[name]
        differ = (got != wanted).float().mean()
        assert float(differ) < 0.01, name
        torch.testing.assert_close(got.float(), wanted.float(), rtol=2**-6, atol=1e-6)
    assert not tables[0].state()["rows"][:, width + 1 :].any(), "what is beside rows stays zero"


def test_light_moments_are_those_of_torch() -> None:
    tables = [random((40, 30)).clone() for _ in range(2)]
    adams = [LightRowAdam(table, reference=reference) for table, reference in zip(tables, (False, True), strict=True)]
    adams[0].by_triton = True
    for step in (1, 2, 3):
        rows = torch.tensor([1, 5, 17, 39, 39], device=DEVICE)
        factors = AdamFactors.of(step, 0.01, (0.9, 0.999), 1e-8)
        for adam in adams:
            adam.change_rows(rows, random((5, 30), step), factors)
    torch.testing.assert_close(adams[0].second, adams[1].second)
    # The interpreter cuts to bf16 where a GPU rounds.
    torch.testing.assert_close(adams[0].first, adams[1].first, rtol=0.01, atol=1e-3 if ON_GPU else 4e-3)
    torch.testing.assert_close(tables[0], tables[1], rtol=1e-3, atol=1e-4 if ON_GPU else 1e-3)
