"""The same parts on a GPU: equal to the CPU within the precision of bf16, and able to train and to resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from longtail.nn.batches import Bags, DeviceCsr, Documents
from longtail.nn.blocks import Residual
from longtail.nn.encoders import BagEncoder, Refined, encode_all
from longtail.nn.full import full_loss
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import OneVsAll, RowAdam, RowTable
from longtail.recipes.direct.objective import OneCycle
from longtail.training.fit import copy_into, fit, to_array
from longtail.training.objectives import AllTargets, OwnCandidates
from longtail.types import I64, Batch, Candidates

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LABELS = 40


def candidates_of(rows: I64, rng: np.random.Generator) -> Candidates:
    ids = np.concatenate([(rows % LABELS)[:, None], rng.integers(0, LABELS, (len(rows), 9))], axis=1).astype(np.int32)
    ids[:, 1:][ids[:, 1:] == ids[:, :1]] = -1
    targets = np.zeros(ids.shape, dtype=np.float32)
    targets[:, 0] = 1
    return Candidates(ids, targets, ids >= 0)


def test_restricted_step_equals_the_cpu() -> None:
    rng = np.random.default_rng(0)
    candidates = candidates_of(np.arange(64), rng)
    z = torch.from_numpy(rng.standard_normal((64, 48), dtype=np.float32))
    on_cpu = RestrictedTrainer(OneVsAll(LABELS, 48, np.random.default_rng(1)))
    on_gpu = {
        kind: RestrictedTrainer(OneVsAll(LABELS, 48, np.random.default_rng(1)).cuda(), compute=kind)
        for kind in (torch.float32, torch.bfloat16)
    }
    loss, gradient = on_cpu.step(z, candidates, 0.01)
    for kind, trainer in on_gpu.items():
        tolerance = 1e-5 if kind == torch.float32 else 0.02
        loss_2, gradient_2 = trainer.step(z.cuda(), candidates, 0.01)
        assert float(loss_2) == pytest.approx(float(loss), rel=tolerance)
        torch.testing.assert_close(
            gradient_2.cpu(), gradient, rtol=tolerance, atol=tolerance * float(gradient.abs().max())
        )
        first = on_cpu.adam.first
        torch.testing.assert_close(
            trainer.adam.first.cpu(), first, rtol=tolerance, atol=tolerance * float(first.abs().max())
        )
    assert RestrictedTrainer(OneVsAll(2, 2, rng).cuda()).compute == torch.bfloat16


def test_row_adam_equals_the_cpu() -> None:
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.standard_normal((30, 8), dtype=np.float32))
    on_cpu, on_gpu = RowAdam(start.clone()), RowAdam(start.cuda())
    for _ in range(3):
        ids, weights = rng.integers(0, 30, 20).astype(np.int32), rng.random(20, dtype=np.float32)
        gradient = torch.from_numpy(rng.standard_normal((5, 8), dtype=np.float32))
        bags = Bags(torch.arange(0, 21, 4), torch.from_numpy(ids), torch.from_numpy(weights))
        on_cpu.step(bags, gradient, 0.01)
        on_gpu.step(Bags(bags.starts.cuda(), bags.ids.cuda(), bags.weights.cuda()), gradient.cuda(), 0.01)
    torch.testing.assert_close(on_gpu.table.cpu(), on_cpu.table, rtol=1e-4, atol=1e-4)


def test_full_loss_equals_the_cpu() -> None:
    rng = np.random.default_rng(0)
    z, rows = (torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)) for shape in ((32, 16), (300, 16)))
    targets = csr_array((rng.random((32, 300)) < 0.02).astype(np.float32))
    index, gradients = np.arange(32), {}
    for device, kind in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        leaves = [t.detach().to(device).requires_grad_() for t in (z, rows)]
        loss = full_loss(
            leaves[0], leaves[1], DeviceCsr(targets, device).rows(index), loss="bce", mean_over="entries", compute=kind
        )
        gradients[device] = [loss.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(loss, leaves))]
    for wanted, got in zip(*gradients.values(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max()))


@pytest.mark.parametrize("own", [False, True])
def test_trains_and_resumes(own: bool) -> None:
    n = 400
    labels = np.arange(n) % LABELS
    features = csr_array(
        (np.ones(2 * n, np.float32), np.stack([labels, labels + LABELS], 1).ravel(), np.arange(0, 2 * n + 1, 2)),
        shape=(n, 2 * LABELS),
    )
    documents = Documents(Batch(features), "cuda")

    def objective() -> AllTargets | OwnCandidates:
        rng = np.random.default_rng(0)
        table = RowTable.random(2 * LABELS, 32, rng)
        table.weight.requires_grad_(not own)
        encoder = Refined(BagEncoder(table, dropout=0.1), Residual(32, rng, dropout=0.1)).cuda()
        classifier = OneVsAll(LABELS, 32, rng).cuda()
        if own:
            return OwnCandidates(encoder, RestrictedTrainer(classifier), documents, candidates_of)
        return AllTargets(
            encoder, classifier, documents, DeviceCsr(csr_array(np.eye(LABELS, dtype=np.float32)[labels]), "cuda")
        )

    trained = objective()
    history = fit(
        trained, epochs=40, batch_size=64, schedule=OneCycle(0.05), rng_for=lambda epoch: np.random.default_rng(epoch)
    )
    assert history[-1] < 0.3 * history[0]
    vectors = encode_all(trained.encoder, documents, "score")
    classifier = trained.trainer.classifier if isinstance(trained, OwnCandidates) else trained.classifier
    right = (vectors @ classifier.all_rows().detach().cpu().numpy().T).argmax(1) == labels
    assert right.mean() > 0.95
    other = objective()
    for name, value in trained.state().items():
        copy_into(other.state()[name], to_array(value))
    for name, value in trained.state().items():
        assert torch.equal(value, other.state()[name]), name
