"""Composed classifier rows on a GPU: equal to the CPU within the precision of bf16, and able to train."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.encoders import BagSum, Refined, encode_all
from longtail.nn.row_tables import RowTable
from longtail.recipes.direct.objective import OneCycle
from longtail.recipes.eclare.network import (
    CandidateLoss,
    ComposedCandidates,
    DocumentBlock,
    FrozenTexts,
    LabelTextGraph,
    LabelTexts,
    TrainedTexts,
)
from longtail.training.fit import fit
from longtail.training.objectives import AllTargets
from longtail.types import I64, Batch, Candidates

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LABELS, WIDTH = 40, 32


def candidates_of(rows: I64, rng: np.random.Generator) -> Candidates:
    ids = np.concatenate([(rows % LABELS)[:, None], rng.integers(0, LABELS, (len(rows), 9))], axis=1).astype(np.int32)
    ids[:, 1:][ids[:, 1:] == ids[:, :1]] = -1
    targets = np.zeros(ids.shape, dtype=np.float32)
    targets[:, 0] = 1
    return Candidates(ids, targets, ids >= 0)


def label_texts() -> csr_array:
    """A label's text is two words of its own."""
    return csr_array(np.hstack([np.eye(LABELS, dtype=np.float32)] * 2))


def graph() -> csr_array:
    return csr_array((0.7 * np.eye(LABELS) + 0.3 * np.roll(np.eye(LABELS), 1, axis=1)).astype(np.float32))


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("some", [False, True])
def test_rows_equal_the_cpu(trained: bool, some: bool) -> None:
    found = []
    for device in ("cpu", "cuda"):
        rng = np.random.default_rng(0)
        table = RowTable.random(2 * LABELS, WIDTH, rng).to(device)
        texts: LabelTexts = (
            TrainedTexts(table, label_texts(), graph(), 3)
            if trained
            else FrozenTexts.of(table.weight.detach(), label_texts(), graph(), 3)
        )
        free = torch.from_numpy(rng.standard_normal((LABELS, WIDTH), dtype=np.float32)).to(device)
        classifier = LabelTextGraph(texts, free, rng, bias=-2.0).eval()
        rows = classifier.composed(np.array([7, 3, 30], dtype=np.int32) if some else None)[0]
        assert rows.device.type == device
        assert rows.dtype == torch.float32
        found.append(rows.detach().cpu())
    torch.testing.assert_close(found[1], found[0], rtol=0.03, atol=0.03)


def test_loss_over_candidates_equals_the_cpu() -> None:
    rng = np.random.default_rng(0)
    candidates = candidates_of(np.arange(64), rng)
    z, table = (torch.from_numpy(rng.standard_normal((count, 48), dtype=np.float32)) for count in (64, LABELS))
    results = []
    for device, kind in (("cpu", None), ("cuda", torch.float32), ("cuda", torch.bfloat16)):
        loss = CandidateLoss(LABELS, compute=kind)
        named = loss.named(candidates)
        results.append(
            [
                t.cpu()
                for t in loss.loss_and_gradients(
                    z.to(device), table[torch.from_numpy(named.labels).long()].to(device), named
                )
            ]
        )
    for got, tolerance in zip(results[1:], (1e-5, 0.02), strict=True):
        for a, b in zip(got, results[0], strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max()))


@pytest.mark.parametrize("over_all", [False, True])
def test_trains(over_all: bool) -> None:
    n = 400
    labels = np.arange(n) % LABELS
    features = csr_array(
        (np.ones(2 * n, np.float32), np.stack([labels, labels + LABELS], 1).ravel(), np.arange(0, 2 * n + 1, 2)),
        shape=(n, 2 * LABELS),
    )
    documents, rng = Documents(Batch(features), "cuda"), np.random.default_rng(0)
    table = RowTable.random(2 * LABELS, WIDTH, rng).cuda()
    encoder = Refined(BagSum(table), DocumentBlock(WIDTH, rng, dropout=0.1)).cuda()
    objective: AllTargets | ComposedCandidates
    if over_all:
        classifier = LabelTextGraph(TrainedTexts(table, label_texts(), graph(), 2), None, rng, bias=-3.0)
        objective = AllTargets(
            encoder, classifier, documents, DeviceCsr(csr_array(np.eye(LABELS, dtype=np.float32)[labels]), "cuda")
        )
    else:
        table.weight.requires_grad_(False)
        texts = FrozenTexts.of(table.weight, label_texts(), graph(), 2)
        classifier = LabelTextGraph(texts, texts.convolved(None)[1].clone(), rng, bias=-2.0)
        objective = ComposedCandidates(encoder, classifier, documents, candidates_of)
    history = fit(
        objective, epochs=40, batch_size=64, schedule=OneCycle(0.05), rng_for=lambda epoch: np.random.default_rng(epoch)
    )
    assert history[-1] < 0.3 * history[0]
    rows = classifier.materialised()
    scores = encode_all(encoder, documents, "score") @ rows[:, :WIDTH].T + rows[:, WIDTH]
    assert (scores.argmax(1) == labels).mean() > 0.95
