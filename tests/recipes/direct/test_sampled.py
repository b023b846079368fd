"""Training against sampled labels: unbiased, the same every time, and without chance the step against all labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch import Tensor, nn

from longtail.data.synthetic import synthesise
from longtail.errors import ConfigError
from longtail.nn.batches import Documents
from longtail.nn.blocks import ByteDropout
from longtail.nn.encoders import BagEncoder
from longtail.nn.row_tables import RowAdam, RowTable
from longtail.nn.shards import Shard
from longtail.recipes.direct import sampled
from longtail.recipes.direct import settings as settings_of_direct
from longtail.recipes.direct.objective import AllLabels, TextRows, marked_targets
from longtail.recipes.direct.sampled import (
    SampledLabels,
    TextParts,
    TextRowsOnCpu,
    byte_products,
    inclusion,
    with_fast_dropout,
)
from longtail.recipes.direct.settings import TrainConfig
from longtail.training.fit import WarmUp, copy_into, fit
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

DOCUMENTS, WORDS, LABELS, WIDTH, TRUST = 6, 20, 90, 8, 0.5
ROWS = np.arange(DOCUMENTS)


def sparse(rows: int, columns: int, seed: int, density: float = 0.3) -> csr_array:
    return csr_array(random_array((rows, columns), density=density, rng=np.random.default_rng(seed), dtype=np.float32))


def targets_and_masked() -> tuple[csr_array, csr_array]:
    targets, masked = sparse(DOCUMENTS, LABELS, 4, 0.05), sparse(DOCUMENTS, LABELS, 8, 0.05)
    targets.data[:] = masked.data[:] = 1
    return targets, masked


def parts() -> tuple[Any, ...]:
    encoder = BagEncoder(RowTable.random(WORDS, WIDTH, np.random.default_rng(3)), dropout=0.0)
    targets, masked = targets_and_masked()
    documents = Documents(Batch(sparse=sparse(DOCUMENTS, WORDS, 6, 0.6)))
    trust, bias = torch.full((LABELS, 1), TRUST), torch.tensor(-2.0)
    return encoder, trust, bias, documents, marked_targets(targets, masked, "cpu")


def start() -> Tensor:
    return torch.randn(LABELS, WIDTH, generator=torch.Generator().manual_seed(5))


def objective(labels_per_step: int = 30, *, text_every: int = 1000, mapped: bool = False) -> SampledLabels:
    encoder, trust, bias, documents, marked = parts()
    texts = TextParts(encoder.table, sparse(LABELS, WORDS, 1), mapped=mapped)
    return SampledLabels(
        encoder,
        texts,
        trust,
        bias,
        documents,
        marked,
        start=start(),
        text_every=text_every,
        labels_per_step=labels_per_step,
    )


def dense(model: SampledLabels, x: Tensor) -> tuple[float, Tensor, Tensor]:
    """(loss, gradient to x, gradient to rows) over all labels, by autograd, with rows as their bytes say."""
    rows = (model.rows.codes * model.rows.scales[:, None]).requires_grad_()
    x = x.clone().requires_grad_()
    targets, masked = (torch.from_numpy(matrix.toarray()) for matrix in targets_and_masked())
    scores = x @ rows.T + model.rows.free.rows[:, WIDTH]
    losses = nn.functional.binary_cross_entropy_with_logits(scores, targets * (1 - masked), reduction="none")
    loss = (losses * (1 - masked)).sum() / DOCUMENTS
    torch.autograd.backward(loss)
    assert x.grad is not None
    assert rows.grad is not None
    return float(loss.detach()), x.grad, rows.grad


def vectors() -> Tensor:
    return torch.randn(DOCUMENTS, WIDTH, generator=torch.Generator().manual_seed(7))


def drawn(model: SampledLabels, x: Tensor, draws: int) -> tuple[np.ndarray, Tensor, Tensor]:
    """(losses, gradients to x, gradients to rows) of so many draws; nothing is learnt."""
    losses, of_documents, of_rows = [], [], []
    assert model.rows.text_gradient is not None
    for draw in range(draws):
        model._count.fill_(1)
        model.rows.text_gradient.zero_()
        loss, gradient = model.scored(x, ROWS, np.random.default_rng(draw), 0.0)
        losses.append(float(loss))
        of_documents.append(gradient)
        of_rows.append(model.rows.text_gradient.clone())
    return np.array(losses), torch.stack(of_documents), torch.stack(of_rows)


def test_without_chance_it_is_the_gradient_over_all_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "LEAST_SLOPE", 1e-30)
    model = objective(LABELS)
    losses, of_documents, of_rows = drawn(model, vectors(), 1)
    loss, to_documents, to_rows = dense(model, vectors())
    np.testing.assert_allclose(losses[0], loss, rtol=0.02)
    torch.testing.assert_close(of_documents[0], to_documents, rtol=0.05, atol=0.01)
    torch.testing.assert_close(of_rows[0], to_rows, rtol=0.05, atol=0.005)


@pytest.mark.parametrize(("labels_per_step", "least"), [(LABELS, 0.3), (30, 1e-30), (30, 0.3)])
def test_the_mean_over_draws_is_the_gradient_over_all_labels(
    labels_per_step: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "LEAST_SLOPE", least)
    monkeypatch.setattr(sampled, "GROUP", 3)
    model, draws = objective(labels_per_step), 2000
    found = drawn(model, vectors(), draws)
    for values, wanted in zip(found, dense(model, vectors()), strict=True):
        numbers, truth = np.asarray(values, np.float64), np.asarray(wanted, np.float64)
        error = numbers.std(axis=0) / draws**0.5
        assert error.max() > 0
        # Four standard errors, and what bytes round.
        assert (np.abs(numbers.mean(axis=0) - truth) < 4 * error + 0.01 * np.abs(truth).max()).all()


def test_what_is_known_of_a_document_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all slopes as large as can be, a masked pair would show in the row of a label that has nothing else."""
    monkeypatch.setattr(sampled, "LEAST_SLOPE", 1e-30)
    model, x = objective(LABELS), vectors()
    _, masked = targets_and_masked()
    document, label = (int(each[0]) for each in masked.nonzero())
    x[np.setdiff1d(ROWS, document)] = 0
    model.rows.free.rows[:, WIDTH] = -50
    model.rows.free.rows[label, WIDTH] = 50
    _, _, of_rows = drawn(model, x, 1)
    assert not of_rows[0, label].any()


def test_a_step_learns_as_the_step_against_all_labels_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without chance: free vectors and token vectors after two looks at the texts."""
    monkeypatch.setattr(sampled, "LEAST_SLOPE", 1e-30)
    encoder, trust, bias, documents, marked = parts()
    texts = TextRows(encoder.table, sparse(LABELS, WORDS, 1))
    plain = AllLabels(
        encoder, texts, trust, bias, documents, marked, start=start(), text_every=2, compute=torch.float32
    )
    monkeypatch.setattr(sampled, "TEXT_PARTS", 1)
    quick = objective(LABELS, text_every=2)
    before = plain.rows.free.rows.clone()
    for _ in range(4):
        for model in (plain, quick):
            model.step(ROWS, np.random.default_rng(0), 0.01)
    moved = plain.rows.free.rows - before
    assert float((quick.rows.free.rows - plain.rows.free.rows).abs().mean()) < 0.1 * float(moved.abs().mean())
    tokens = [model.adam.tables["encoder.table"].weight.detach() for model in (plain, quick)]
    first = RowTable.random(WORDS, WIDTH, np.random.default_rng(3)).weight.detach()
    assert float((tokens[1] - tokens[0]).abs().mean()) < 0.2 * float((tokens[0] - first).abs().mean())


def test_training_lowers_the_loss() -> None:
    model = objective(text_every=2, mapped=True)
    losses = [float(model.step(ROWS, np.random.default_rng(step), 0.02)) for step in range(80)]
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


def test_bytes_of_rows_are_those_of_the_rows() -> None:
    model = objective(text_every=2)
    for step in range(5):
        model.step(ROWS, np.random.default_rng(step), 0.02)
    rows = model.rows.rows()[:, :WIDTH]
    codes, scales = model.rows.codes, model.rows.scales
    assert (codes.abs().amax(1) == 127).all()
    assert ((codes * scales[:, None] - rows).abs() <= 0.501 * scales[:, None]).all()


def test_final_rows_have_all_texts_as_they_are_now() -> None:
    model = objective(text_every=2, mapped=True)
    for step in range(5):
        model.step(ROWS, np.random.default_rng(step), 0.05)
    plain = TextRows(model.adam.tables["encoder.table"], sparse(LABELS, WORDS, 1), mapped=True)
    assert model.parts is not None
    gain, matrix = model.parts.part(0).gain, model.parts.part(0).map
    assert matrix is not None
    assert not torch.equal(matrix, torch.eye(WIDTH))
    plain.gain, plain.map = gain, matrix
    wanted = plain() + TRUST * model.rows.free.rows[:, :WIDTH]
    torch.testing.assert_close(model.final_rows()[:, :WIDTH], wanted)


def test_parts_take_turns_and_each_is_taught_what_was_summed_up_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "TEXT_PARTS", 3)
    model = objective(text_every=2)
    looked: list[int] = []
    taught: list[tuple[int, bool, float]] = []
    assert model.parts is not None

    def watch(number: int, part: TextRowsOnCpu) -> None:
        forward, teach = part.forward, part.teach

        def looks() -> Tensor:
            looked.append(number)
            return forward()

        def teaches(gradient: Tensor, adam: RowAdam, rate: float) -> None:
            taught.append((number, bool(gradient.any()), rate))
            teach(gradient, adam, rate)

        monkeypatch.setattr(part, "forward", looks)
        monkeypatch.setattr(part, "teach", teaches)

    for number in range(3):
        watch(number, model.parts.part(number))
    for step in range(7):
        model.step(ROWS, np.random.default_rng(step), 0.01)
    assert looked == [0, 1, 2, 1, 2, 0]
    assert taught == [(1, True, 0.01 * 2**0.5), (2, True, 0.01 * 2**0.5), (0, True, 0.01 * 2**0.5)]
    assert model.rows.text_gradient is not None
    assert model.rows.text_gradient[1::3].any()


@pytest.mark.parametrize("mapped", [False, True])
def test_a_training_that_goes_on_from_its_state_gives_the_same_bits(mapped: bool) -> None:
    def trained(epochs: range, model: SampledLabels) -> SampledLabels:
        for epoch in epochs:
            rng = np.random.default_rng(epoch)
            for _ in range(3):
                model.step(rng.permutation(DOCUMENTS)[:4], rng, 0.02)
        return model

    whole = trained(range(4), objective(mapped=mapped, text_every=5))
    half = trained(range(2), objective(mapped=mapped, text_every=5))
    resumed = objective(mapped=mapped, text_every=5)
    for name, value in resumed.state().items():
        copy_into(value, half.state()[name].numpy())
    trained(range(2, 4), resumed)
    for name, value in whole.state().items():
        assert torch.equal(value, resumed.state()[name]), name
    assert torch.equal(whole.final_rows(), resumed.final_rows())


def test_fit_gives_the_same_losses_twice_and_others_with_another_seed() -> None:
    def losses(seed: int) -> list[float]:
        return fit(
            objective(),
            epochs=2,
            batch_size=4,
            schedule=WarmUp(0.01),
            rng_for=lambda epoch: np.random.default_rng([seed, epoch]),
        )

    assert losses(0) == losses(0) != losses(1)


def test_inclusion_grows_with_documents_and_sums_to_what_is_asked_for() -> None:
    counts = np.array([0, 0, 3, 8, 1000, 5])
    chances = inclusion(counts, 3)
    assert chances.sum() == pytest.approx(3, rel=1e-5)
    assert chances[4] == 1
    assert chances[3] / chances[0] == pytest.approx(3, rel=1e-5)
    assert (np.argsort(chances, kind="stable") == np.argsort(counts, kind="stable")).all()
    assert (inclusion(counts, 6) == 1).all()
    assert (inclusion(counts, 100) == 1).all()


def test_bytes_multiply_alike_with_and_without_instructions_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    left, right = (torch.randint(-127, 128, (n, 1040), generator=g, dtype=torch.int8) for n in (5, 7))
    wanted = left.long() @ right.long().T
    assert torch.equal(byte_products(left, right).long(), wanted)
    monkeypatch.setattr(sampled, "bytes_are_fast", lambda: False)
    assert torch.equal(byte_products(left, right).long(), wanted)


def test_texts_on_a_cpu_are_those_of_any_machine() -> None:
    tables = [RowTable.random(WORDS, WIDTH, np.random.default_rng(3)) for _ in range(2)]
    texts = sparse(LABELS, WORDS, 1, 0.2)
    plain, quick = TextRows(tables[0], texts), TextRowsOnCpu(tables[1], texts)
    assert torch.equal(plain(), quick())
    gradient = torch.randn(LABELS, WIDTH, generator=torch.Generator().manual_seed(1)).bfloat16().float()
    before = tables[0].weight.detach().clone()
    for rows, table in zip((plain, quick), tables, strict=True):
        adam = RowAdam(table.weight)
        for _ in range(2):
            rows.teach(gradient, adam, 0.01)
    assert not torch.equal(tables[0].weight, before)
    torch.testing.assert_close(tables[1].weight, tables[0].weight, rtol=0, atol=1e-5)
    assert plain.gain.grad is not None
    assert quick.gain.grad is not None
    assert torch.equal(plain.gain.grad, quick.gain.grad)


def test_dropout_inside_becomes_that_of_bytes() -> None:
    model = nn.Sequential(nn.Dropout(0.25), nn.ModuleDict({"inner": nn.Dropout(0.5)}))
    with_fast_dropout(model)
    found = [part for part in model.modules() if isinstance(part, nn.Dropout)]
    assert [type(part) for part in found] == [ByteDropout, ByteDropout]
    assert [part.p for part in found] == [0.25, 0.5]


@pytest.mark.parametrize(
    ("settings", "labels_per_step", "wanted"),
    [
        ({}, 4096, None),
        ({}, 20, "a quarter"),
        ({}, 130, 130),
        ({"sampled": "off"}, 20, None),
        ({"sampled": "on"}, 4096, 4096),
        ({"sampled": "on", "labels_per_step": 7}, 4096, 7),
    ],
)
def test_when_labels_are_sampled(
    settings: dict[str, Any], labels_per_step: int, wanted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default where there are more labels than a step should meet at least; few labels are all met."""
    from longtail import pipeline

    monkeypatch.setattr(settings_of_direct, "LABELS_PER_STEP", labels_per_step)
    met: list[int] = []
    real = SampledLabels.__init__

    def spied(self: Any, *arguments: Any, **options: Any) -> None:
        met.append(options["labels_per_step"])
        real(self, *arguments, **options)

    monkeypatch.setattr(SampledLabels, "__init__", spied)
    data = synthesise("tiny", 0).dataset
    tables = {"train": {"epochs": 1, **settings}, "encoder": {"width": 8}, "anchors": {"weight": 0.0}}
    model = pipeline.train(data, tmp_path / "run", "direct", settings=tables, device="cpu")
    wanted = len(data.labels) // 4 if wanted == "a quarter" else wanted
    assert met == ([] if wanted is None else [wanted])
    (found,) = model.predict([data.train.documents.fields["title"][0]], k=3)
    assert len(found) == 3
    assert all(0 < one.score <= 1 for one in found)


def test_a_gpu_is_not_asked_to_sample() -> None:
    with pytest.raises(ConfigError, match=r"train\.sampled=on, but training runs on a GPU"):
        settings_of_direct.labels_per_step(TrainConfig(sampled="on"), "cuda", Shard(100), extra=False)
    with pytest.raises(ConfigError, match="2 processes train together"):
        settings_of_direct.labels_per_step(TrainConfig(sampled="on"), "cpu", Shard(100, 0, 2), extra=False)
    assert settings_of_direct.labels_per_step(TrainConfig(), "cpu", Shard(10**6, 0, 2), extra=False) == 0
