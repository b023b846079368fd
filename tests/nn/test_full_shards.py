"""Labels split over processes give what one process gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from longtail.nn.batches import Bags, DeviceCsr, Documents
from longtail.nn.blocks import Residual
from longtail.nn.encoders import DenseEncoder, GivenVectors, Refined
from longtail.nn.full import FullRows, LossKind
from longtail.nn.restricted import RestrictedTrainer
from longtail.nn.row_tables import OneVsAll, RowAdam
from longtail.nn.shards import Shard
from longtail.recipes.eclare import network
from longtail.recipes.eclare.network import ComposedCandidates, DocumentBlock, FrozenTexts, LabelTextGraph
from longtail.training.fit import StepDecay, fit
from longtail.training.objectives import OwnCandidates
from longtail.training.run import StageCheckpoint
from longtail.types import I64, Batch, Candidates

# Whole vectors of the processor: torch takes another sigmoid for what is left over, whose last bit may differ.
DOCUMENTS, WIDTH, STEPS, PROCESSES = 32, 16, 3, 3
# Uneven shares, fewer labels than processes (so that one has none), and one label.
LABELS = (333, 2, 1)
LOSSES: tuple[LossKind, ...] = ("bce", "softmax")


def batch(labels: int, shard: Shard, documents: int = DOCUMENTS) -> tuple[torch.Tensor, torch.Tensor, Bags, Bags]:
    """Documents and rows of a process; pairs of the whole batch with its labels."""
    rng = np.random.default_rng(0)
    x, rows = (torch.from_numpy(rng.standard_normal((n, WIDTH), dtype=np.float32)) for n in (documents, labels))
    chances = rng.random((documents, labels))
    chances[0] = 1  # a document without labels
    targets, masked = (
        DeviceCsr(csr_array(m.astype(np.float32)[:, shard.rank :: shard.processes])).rows(np.arange(documents))
        for m in (chances < 0.02, (chances > 0.02) & (chances < 0.03))
    )
    return x[shard.part(documents)], shard.own(rows).clone(), targets, masked


def trained(loss: LossKind, labels: int, shard: Shard, documents: int = DOCUMENTS) -> dict[str, torch.Tensor]:
    x, rows, targets, masked = batch(labels, shard, documents)
    full = FullRows(rows, loss=loss, mean_over="documents", shard=shard)
    for _ in range(STEPS):
        mean, gradient = full.step(x, targets, 0.05, masked)
    return {"loss": mean, "gradient": gradient, "rows": full.rows}


# ---- candidates of each document ----


def drawn(rows: I64, labels: int, rng: np.random.Generator) -> Candidates:
    """Some labels for each document, none for the first of all; some of them right."""
    ids = rng.integers(-1, labels, (len(rows), 6)).astype(np.int32)
    ids[rows == 0] = -1
    for row in ids:
        _, first = np.unique(row, return_index=True)
        row[np.setdiff1d(np.arange(6), first)] = -1
    return Candidates(ids, ((ids >= 0) & (ids % 3 == 0)).astype(np.float32), ids >= 0)


def on_candidates(labels: int, shard: Shard, *, reference: bool = False) -> dict[str, Any]:
    """Rows that learn from given documents."""
    rng = np.random.default_rng(1)
    classifier = OneVsAll(labels, WIDTH, np.random.default_rng(2), bias=True, shard=shard)
    adam = RowAdam(classifier.rows, reference=reference)
    trainer = RestrictedTrainer(classifier, adam=adam, shard=shard)
    for step in range(STEPS):
        z = torch.from_numpy(rng.standard_normal((DOCUMENTS, WIDTH), dtype=np.float32))
        loss, gradient = trainer.step(z, drawn(np.arange(DOCUMENTS), 1 if step == 1 else labels, rng), 0.05)
    whole = classifier.whole()
    rows = {} if whole is None else {"rows": whole.rows, "bias": whole.bias}
    return {"loss": loss.numpy(), "gradient": gradient.numpy(), "steps": adam.count.numpy(), **rows}


def documents_of_stage() -> Documents:
    vectors = np.abs(np.random.default_rng(3).standard_normal((DOCUMENTS, WIDTH))).astype(np.float32)
    return Documents(Batch(dense=vectors))


def free_rows(labels: int, shard: Shard) -> OwnCandidates:
    """As stage IV of Astec: an encoder that learns, with dropout."""
    rng = np.random.default_rng(4)
    encoder = Refined(DenseEncoder(WIDTH, rng, dropout=0.3), Residual(WIDTH, rng, dropout=0.3))
    trainer = RestrictedTrainer(OneVsAll(labels, WIDTH, rng, shard=shard), shard=shard)
    return OwnCandidates(encoder, trainer, documents_of_stage(), lambda rows, rng: drawn(rows, labels, rng))


def composed_rows(labels: int, shard: Shard) -> ComposedCandidates:
    """As stage IV of ECLARE, without dropout: that of labels is another for each process."""
    rng = np.random.default_rng(5)
    texts = [torch.from_numpy(rng.standard_normal((labels, WIDTH), dtype=np.float32)) for _ in range(2)]
    own = FrozenTexts([shard.own(one).contiguous() for one in texts])
    classifier = LabelTextGraph(own, own.all_orders()[1].clone(), rng, dropout=0.0, bias=-1.0)
    encoder = Refined(GivenVectors(WIDTH), DocumentBlock(WIDTH, rng, dropout=0.0))
    found = documents_of_stage()
    return ComposedCandidates(encoder, classifier, found, lambda rows, rng: drawn(rows, labels, rng), shard)


class Kept(StageCheckpoint):
    """In memory."""

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        self.saved = saved

    def due(self, size: int) -> bool:
        return True

    def load(self) -> tuple[int, dict[str, Any]] | None:
        return None if self.saved is None else (len(self.saved["fit.history"]), self.saved)

    def save(self, epoch: int, arrays: Mapping[str, Any]) -> None:
        self.saved = {name: np.array(value) for name, value in arrays.items()}


def trained_stage(objective: OwnCandidates | ComposedCandidates, epochs: int, kept: Kept) -> dict[str, Any]:
    """Its whole state, as a checkpoint has it, at the first process. Products are in float32, whatever is fastest."""
    with patch.object(network, "fastest_products", lambda _: torch.float32):
        fit(
            objective,
            epochs=epochs,
            batch_size=10,
            schedule=StepDecay(0.02),
            rng_for=lambda epoch: np.random.default_rng([6, epoch]),
            checkpoint=kept,
        )
    return kept.saved or {}


STAGES: dict[str, Callable[[int, Shard], OwnCandidates | ComposedCandidates]] = {
    "free": free_rows,
    "composed": composed_rows,
}


def work_on_candidates(rank: int, processes: int) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for labels in LABELS:
        shard = Shard(labels, rank, processes)
        for way in ("kernel", "torch"):
            done = on_candidates(labels, shard, reference=way == "torch")
            arrays |= {f"{labels} {way} {name}": value for name, value in done.items()}
        arrays[f"{labels} candidates sent"] = shard.sent["documents"]
        for name, make in STAGES.items():
            stage = trained_stage(make(labels, Shard(labels, rank, processes)), 2, Kept())
            arrays |= {f"{labels} {name} {key}": value for key, value in stage.items()}
    return arrays


@pytest.mark.parametrize("labels", LABELS)
def test_rows_on_candidates(several: list[Any], labels: int) -> None:
    for way in ("kernel", "torch"):
        alone = on_candidates(labels, Shard(labels), reference=way == "torch")
        parts = [
            {name: part[f"{labels} {way} {name}"] for name in alone if f"{labels} {way} {name}" in part}
            for part in several
        ]
        assert ["rows" in part for part in parts] == [True, False, False], "the first process alone has all rows"
        for name in ("rows", "bias"):
            if way == "kernel":  # given documents: not a bit differs
                np.testing.assert_array_equal(parts[0][name], alone[name])
            else:
                np.testing.assert_allclose(parts[0][name], alone[name], rtol=1e-4, atol=1e-5)
        for part in parts:
            assert part["steps"] == STEPS, "rows that nobody named count steps as well"
            np.testing.assert_array_equal(part["loss"], parts[0]["loss"])
            np.testing.assert_array_equal(part["gradient"], parts[0]["gradient"])
        np.testing.assert_allclose(parts[0]["loss"], alone["loss"], rtol=1e-5)
        np.testing.assert_allclose(parts[0]["gradient"], alone["gradient"], rtol=1e-4, atol=1e-6)
    # Twice (by kernel and by torch) the gradients of a batch and the loss, summed over all.
    one = 2 * (PROCESSES - 1) * 4 * (DOCUMENTS * (WIDTH + 1) + 1) // PROCESSES
    assert [int(part[f"{labels} candidates sent"]) for part in several] == [2 * STEPS * one] * PROCESSES


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("name", STAGES)
def test_stages_on_candidates(several: list[Any], name: str, labels: int) -> None:
    """To rounding, also with an encoder that learns and its dropout. One process can go on with what three began."""
    make, prefix = STAGES[name], f"{labels} {name} "
    alone = trained_stage(make(labels, Shard(labels)), 2, Kept())
    together = {key.removeprefix(prefix): value for key, value in several[0].items() if key.startswith(prefix)}
    assert not any(key.startswith(prefix) for key in several[1]), "the first process alone saves"
    assert together.keys() == alone.keys()
    for key, value in together.items():
        assert_near(value, alone[key], key)
    on = trained_stage(make(labels, Shard(labels)), 3, Kept(together))
    wanted = trained_stage(make(labels, Shard(labels)), 3, Kept())
    for key, value in on.items():
        assert_near(value, wanted[key], key)


def assert_near(found: Any, wanted: Any, name: str) -> None:
    """To rounding, which Adam makes more of where a gradient is nearly zero: a step is 0.02 long, whatever it was."""
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-3, err_msg=name)
    assert np.abs(found - wanted).mean() < 2e-5 * max(1.0, np.abs(wanted).mean()), name


def test_rows_of_candidates_must_be_those_of_the_shard() -> None:
    with pytest.raises(ValueError, match="9 rows for a shard of 3"):
        RestrictedTrainer(OneVsAll(9, 2, np.random.default_rng(0)), shard=Shard(9, 1, 3))


# ---- all labels ----


def work(rank: int, folder: str, processes: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes
    )
    arrays: dict[str, Any] = {}
    for labels in LABELS:
        for loss in LOSSES:
            shard = Shard(labels, rank, processes)
            done = trained(loss, labels, shard)
            whole = shard.whole(done["rows"])
            assert (whole is None) == (rank > 0), "the first process alone has all rows"
            if whole is not None:
                arrays[f"{labels} {loss} whole"] = whole.numpy()
            arrays |= {f"{labels} {loss} {name}": value.numpy() for name, value in done.items()}
            if loss == "bce":
                arrays[f"{labels} sent"] = [shard.sent["documents"], shard.sent["gradients"]]
    # A batch with fewer documents than processes: one of them has none to encode.
    arrays["few"] = trained("bce", 333, Shard(333, rank, processes), documents=1)["rows"].numpy()
    arrays |= work_on_candidates(rank, processes)
    torch.distributed.destroy_process_group()
    np.savez(f"{folder}/{rank}.npz", **arrays)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of several processes has computed. Two of them train whole models in
    tests/training/test_processes.py.
    """
    folder = tmp_path_factory.mktemp("several")
    spawn: Any = torch.multiprocessing.__dict__["spawn"]  # torch leaves it untyped
    spawn(work, (str(folder), PROCESSES), nprocs=PROCESSES)
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(PROCESSES)]


@pytest.fixture(autouse=True)
def as_in_the_processes() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_several_processes_equal_one(several: list[Any]) -> None:
    for labels in LABELS:
        for loss in LOSSES:
            compare(labels, loss, several)
        # Each process sends what it has to every other, padded to equal parts: B / G vectors there, and back.
        one_way = STEPS * (PROCESSES - 1) * -(-DOCUMENTS // PROCESSES) * WIDTH * 4
        assert all(part[f"{labels} sent"].tolist() == [one_way, one_way] for part in several)
    few = trained("bce", 333, Shard(333), documents=1)["rows"].numpy()
    for rank, part in enumerate(several):
        np.testing.assert_allclose(part["few"], few[rank::PROCESSES], rtol=1e-5, atol=1e-6)


def compare(labels: int, loss: LossKind, parts: list[Any]) -> None:
    alone = {name: value.numpy() for name, value in trained(loss, labels, Shard(labels)).items()}
    pieces = {name: [part[f"{labels} {loss} {name}"] for part in parts] for name in alone}
    whole = parts[0][f"{labels} {loss} whole"]
    for rank, rows in enumerate(pieces["rows"]):
        np.testing.assert_array_equal(rows, whole[rank :: len(parts)])
    if loss == "bce" and labels == max(LABELS):
        # A row learns from the documents and from itself alone, and the documents are given: not a bit differs.
        # (Products with a single row are no matrix products for BLAS: there the last bit may.)
        np.testing.assert_array_equal(whole, alone["rows"])
    else:
        np.testing.assert_allclose(whole, alone["rows"], rtol=1e-4, atol=1e-4)
    for other in pieces["loss"]:
        np.testing.assert_array_equal(other, pieces["loss"][0], err_msg="every process knows the loss of all labels")
    np.testing.assert_allclose(pieces["loss"][0], alone["loss"], rtol=1e-5)
    # A gradient to a document is a sum over processes: equal to rounding.
    np.testing.assert_allclose(np.concatenate(pieces["gradient"]), alone["gradient"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 5, 10])
def test_every_label_and_every_document_is_somewhere_once(count: int, processes: int) -> None:
    shards = [Shard(count, rank, processes) for rank in range(processes)]
    labels = np.arange(count)
    assert sorted(label for shard in shards for label in shard.own(labels)) == list(range(count))
    assert [len(shard.own(labels)) for shard in shards] == [shard.count for shard in shards]
    parts = [shard.part(count) for shard in shards]
    assert [document for part in parts for document in range(count)[part]] == list(range(count))
    assert max(part.stop - part.start for part in parts) == -(-count // processes)


def test_rows_must_be_those_of_the_shard() -> None:
    with pytest.raises(ValueError, match="4 rows for a shard of 3"):
        FullRows(torch.zeros(4, 2), shard=Shard(9, 1, 3))
