"""Rows of two bytes a number: rounding by chance, their update, texts made of words, and trainings with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch import Tensor

from longtail.errors import ConfigError
from longtail.nn.batches import DeviceCsr, Documents
from longtail.nn.encoders import BagEncoder, GivenView
from longtail.nn.full import Pairs, Sweep
from longtail.nn.row_tables import AdamFactors, LightRowAdam, RowAdam, RowTable
from longtail.nn.shards import Shard
from longtail.recipes import make_recipe
from longtail.recipes.direct.objective import TextRows, marked_targets
from longtail.recipes.direct.settings import (
    MANY_IN_ROWS,
    MANY_IN_WORDS,
    DirectConfig,
    TrainConfig,
    bytes_of_model,
    kind_of_rows,
    labels_per_step,
    words_are_light,
)
from longtail.recipes.direct.sgd import SgdLabels, SgdTable, TokenTexts, by_chance, key_of, random_bits
from longtail.recipes.direct.view import StaticView
from longtail.training.fit import copy_into, to_array
from longtail.types import Batch

pytestmark = pytest.mark.usefixtures("one_thread")

DOCUMENTS, WORDS, LABELS, WIDTH = 8, 12, 6, 4


def sparse(rows: int, columns: int, seed: int, density: float = 0.4) -> csr_array:
    return csr_array(random_array((rows, columns), density=density, rng=np.random.default_rng(seed), dtype=np.float32))


# ---- rounding by chance ----


def test_rounding_gives_a_neighbour_and_the_right_mean() -> None:
    values = torch.tensor([1.0 + 2**-9, -1.0 - 3 * 2**-10, 3e-12, -250.3, 0.0, 1.5])
    count = 20_000
    bits = random_bits(torch.arange(count), torch.arange(len(values)), key_of(7, 0))
    rounded = by_chance(values.expand(count, -1).contiguous(), bits).double()
    exact = values.double()
    ulp = exact.abs() * 2**-7
    assert bool(((rounded - exact).abs() <= ulp).all())
    assert len(set(rounded[:, 0].tolist())) == 2
    # Four standard errors of a mean of numbers at most one step apart.
    assert bool(((rounded.mean(0) - exact).abs() <= 2 * ulp / count**0.5 + 1e-30).all())
    torch.testing.assert_close(rounded[:, 4:], exact[4:].expand(count, -1), rtol=0, atol=0)


def test_bits_differ_by_label_column_and_step() -> None:
    def drawn(step: int, use: int = 0) -> Tensor:
        return random_bits(torch.arange(300), torch.arange(200), key_of(step, use))

    first = drawn(1)
    assert int(first.min()) >= 0
    assert int(first.max()) < 2**32
    assert len(set(first.reshape(-1).tolist())) > 0.99 * first.numel()
    for half in (first & 0xFFFF, first >> 16):
        assert float(half.double().mean()) == pytest.approx(2**15, rel=0.01)
    assert all(float((first == other).double().mean()) < 1e-3 for other in (drawn(2), drawn(1, 1)))


# ---- rows ----


def table_of(labels: int = 300, width: int = 20, shard: Shard | None = None, *, text: bool = True) -> SgdTable:
    shard, rng = shard or Shard(labels), np.random.default_rng(0)
    trust, shares, rows = (
        shard.own(torch.from_numpy(rng.random(shape, dtype=np.float32)))
        for shape in ((labels, 1), (labels,), (labels, width + 1))
    )
    table = SgdTable(width, trust, shares * 0.1, shard, text=text)
    table.rows.copy_(rows - 0.5)
    return table


def batch_of(labels: int, width: int, documents: int = 32) -> tuple[Tensor, Tensor]:
    """Slopes (documents, labels) and vectors with a trailing 1, padded as a sweep does it."""
    rng = np.random.default_rng(1)
    slopes = torch.from_numpy(rng.random((documents, labels + -labels % 8), dtype=np.float32)) * 0.01
    x = torch.zeros(documents, width + 1 + -(width + 1) % 16)
    x[:, :width] = torch.from_numpy(rng.standard_normal((documents, width), dtype=np.float32))
    x[:, width] = 1
    return slopes.bfloat16().float(), x.bfloat16().float()


def test_rows_and_sums_follow_the_formula() -> None:
    table = table_of()
    slopes, x = batch_of(300, 20)
    before, gradient = table.rows.float(), (slopes.T @ x)[:300, :21]
    pull = 0.5 / x.square().sum(1).mean() / (1 + 32 * table.shares)
    reach = torch.cat([(pull * table.trust)[:, None].expand(-1, 20), pull[:, None]], dim=1)
    wanted = before - reach * gradient
    table.learner(1, 0.5)(0, 300, slopes, x, 1 / 32)
    got = table.rows.float()
    assert bool(((got - wanted).abs() <= wanted.abs() * 2**-7 + 1e-12).all())
    assert float((got - wanted).mean().abs()) < 1e-5, "not to one side"
    assert float((wanted.bfloat16().float() - got).abs().max()) > 0, "not to the nearest"
    assert table.sums is not None
    torch.testing.assert_close(table.sums[:, :20].float(), gradient[:, :20] / 32, rtol=2**-7, atol=1e-9)


def test_blocks_and_processes_do_not_matter() -> None:
    slopes, x = batch_of(300, 20)
    alone, cut = table_of(), table_of()
    alone.learner(3, 0.5)(0, 300, slopes, x, 1 / 32)
    learn = cut.learner(3, 0.5)
    learn(0, 128, slopes[:, :128], x, 1 / 32)
    learn(128, 172, slopes[:, 128:], x, 1 / 32)
    assert torch.equal(alone.rows, cut.rows)
    for rank in range(3):
        shard = Shard(300, rank, 3)
        part = table_of(shard=shard)
        own = torch.zeros(len(slopes), shard.count + -shard.count % 8)
        own[:, : shard.count] = slopes[:, rank:300:3]
        part.learner(3, 0.5)(0, shard.count, own, x, 1 / 32)
        part.move(0, torch.ones(shard.count, 20), 3)
        assert torch.equal(part.trust, alone.trust[rank::3])
        if rank == 0:
            alone.move(0, torch.ones(300, 20), 3)
        assert torch.equal(part.rows, alone.rows[rank::3])


def test_rows_move_with_their_texts() -> None:
    table = table_of()
    assert table.texts is not None
    before, new = table.rows.float(), torch.from_numpy(np.random.default_rng(2).standard_normal((300, 8))).float()
    table.move(4, new, 1)
    moved = table.rows.float() - before
    torch.testing.assert_close(moved[:, 4:12], new, rtol=2**-6, atol=2**-7)
    assert not moved[:, :4].any()
    assert not moved[:, 12:].any()
    here = table.rows.clone()
    table.move(4, new, 2)
    assert torch.equal(table.rows, here), "a text that is what it was moves nothing"


# ---- texts ----


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("with_view", [False, True])
def test_texts_by_words_are_those_of_text_rows(mapped: bool, with_view: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients, in several pieces of columns and of words."""
    monkeypatch.setattr("longtail.recipes.direct.sgd._NUMBERS", 1)
    monkeypatch.setattr("longtail.recipes.direct.sgd._FEWEST_COLUMNS", 3)
    monkeypatch.setattr("longtail.recipes.direct.sgd._WORDS", 5)
    found = []
    for kind in (TextRows, TokenTexts):
        rng = np.random.default_rng(0)
        table = RowTable.random(WORDS, WIDTH, rng)
        view: Any = None
        if with_view:
            source = StaticView(WORDS, rng.standard_normal((5, 7), dtype=np.float32))
            sums = torch.from_numpy(rng.standard_normal((LABELS, 7), dtype=np.float32))
            view = GivenView(source, WIDTH, rng), sums
        texts: Any = kind(table, sparse(LABELS, WORDS, 1), mapped=mapped, view=view)
        with torch.no_grad():
            texts.gain.fill_(0.7)
            if mapped:
                texts.map.add_(torch.from_numpy(rng.standard_normal((WIDTH, WIDTH), dtype=np.float32)))
        gradient = torch.from_numpy(rng.standard_normal((LABELS, WIDTH), dtype=np.float32))
        rows = texts()
        texts.teach(gradient, RowAdam(table.weight), 0.01)
        left = [parameter.grad for parameter in texts.parameters() if parameter is not table.weight]
        found.append([rows, table.weight.detach(), *left])
    for mine, wanted in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)


def test_light_moments_are_one_number_a_row_and_two_bytes_a_number() -> None:
    """The first step is that of Adam with the mean of squares in the place of each; a row that is not named stays."""
    start, gradient = torch.randn(5, 8), torch.randn(2, 8)
    table, rows = start.clone(), torch.tensor([1, 3])
    adam = LightRowAdam(table)
    adam.update_rows(rows, gradient, 0.1)
    torch.testing.assert_close(
        table[rows], start[rows] - 0.1 * gradient / gradient.square().mean(1, keepdim=True).sqrt()
    )
    assert torch.equal(table[[0, 2, 4]], start[[0, 2, 4]])
    assert adam.first.dtype == torch.bfloat16
    assert adam.second.shape == (5, 1)
    moved = (table - start)[rows]
    adam.change_rows(rows, torch.zeros(2, 8), AdamFactors.of(2, 0.1, (0.9, 0.999), 1e-8))
    again = (table - start)[rows] - moved
    assert bool((again * moved > 0).all()), "it goes on where it went"


# ---- steps ----


def objective(*, text: bool = True, text_every: int = 1, light: bool = False) -> SgdLabels:
    encoder = BagEncoder(RowTable.random(WORDS, WIDTH, np.random.default_rng(3)), dropout=0.0)
    targets = sparse(DOCUMENTS, LABELS, 4)
    targets.data[:] = 1
    return SgdLabels(
        encoder,
        TokenTexts(encoder.table, sparse(LABELS, WORDS, 1)) if text else None,
        torch.full((LABELS, 1), 0.5),
        torch.tensor(-1.0),
        Documents(Batch(sparse=sparse(DOCUMENTS, WORDS, 6, 0.6))),
        marked_targets(targets, None, "cpu"),
        start=torch.randn(LABELS, WIDTH, generator=torch.Generator().manual_seed(5)),
        text_every=text_every,
        compute=torch.float32,
        shares=torch.full((LABELS,), 0.4),
        pace=20.0,
        light_words=light,
    )


@pytest.mark.parametrize("text", [False, True])
def test_training_lowers_the_loss(text: bool) -> None:
    model = objective(text=text, text_every=2, light=text)
    losses = [float(model.step(np.arange(DOCUMENTS), np.random.default_rng(0), 0.02)) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_state_holds_all_that_steps_change() -> None:
    """After copying the state into a new objective, both go on alike, to the last bit."""
    rows = np.arange(DOCUMENTS)
    first, second = (objective(text_every=3, light=True) for _ in range(2))
    for _ in range(4):
        first.step(rows, np.random.default_rng(0), 0.01)
    for name, value in first.state().items():
        copy_into(second.state()[name], to_array(value))  # as a checkpoint does it
    for _ in range(4):
        losses = [model.step(rows, np.random.default_rng(0), 0.01) for model in (first, second)]
        assert torch.equal(*losses)
    assert torch.equal(first.table.rows, second.table.rows)
    assert first.split_state() <= {*first.state(), "texts.plain"}
    kept = {name: value.dtype for name, value in first.state().items() if name in first.split_state()}
    assert set(kept) == {"rows", "text", "text_gradient"}
    assert set(kept.values()) == {torch.bfloat16}


# ---- several processes ----


def swept(labels: int, shard: Shard) -> SgdTable:
    """Rows after three sweeps over given documents."""
    width, documents = 15, 32  # with the bias whole vectors of the processor
    table = table_of(labels, width, shard)
    rng = np.random.default_rng(2)
    x = torch.from_numpy(rng.standard_normal((documents, width + 1), dtype=np.float32))
    chances = rng.random((documents, labels))
    targets = csr_array((chances < 0.05).astype(np.float32)[:, shard.rank :: shard.processes])
    pairs = Pairs.marked(DeviceCsr(targets).rows(np.arange(documents)), None)
    sweep = Sweep(x.device, mean_over="documents", compute=torch.float32, shard=shard)
    for step in (1, 2, 3):
        sweep(x[shard.part(documents)], table, pairs, table.learner(step, 0.5), batch=documents)
    return table


def work(rank: int, folder: str, processes: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes
    )
    shard = Shard(333, rank, processes)
    table = swept(333, shard)
    whole = shard.whole(table.rows)
    torch.distributed.destroy_process_group()
    if whole is not None:
        np.save(f"{folder}/rows.npy", to_array(whole))


def test_rows_of_two_processes_are_those_of_one_to_the_last_bit(tmp_path: Path) -> None:
    spawn: Any = torch.multiprocessing.__dict__["spawn"]  # torch leaves it untyped
    spawn(work, (str(tmp_path), 2), nprocs=2)
    alone = swept(333, Shard(333)).rows
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), to_array(alone))


# ---- which rows a training has ----


def config_of(**of_train: Any) -> DirectConfig:
    return make_recipe("direct", settings={"train": of_train}).config


def rows_by_sgd(config: DirectConfig, labels: int, device: str) -> bool:
    return kind_of_rows(config, labels, device) == "sgd"


def test_small_rows_are_for_many_numbers_on_a_gpu() -> None:
    for chosen, many, small in (
        (rows_by_sgd, MANY_IN_ROWS // 512, config_of(rows="sgd")),
        (words_are_light, MANY_IN_WORDS // 512, config_of(words="light")),
    ):
        auto = config_of()
        assert chosen(auto, many, "cuda")
        assert not chosen(auto, many - 1, "cuda")
        assert not chosen(auto, many, "cpu")
        assert chosen(small, 10, "cpu")
    assert not rows_by_sgd(config_of(rows="adam"), MANY_IN_ROWS, "cuda")
    assert not words_are_light(config_of(words="adam"), MANY_IN_WORDS, "cuda")


def test_memory_counts_the_bytes_of_rows_and_words() -> None:
    def of(**of_train: Any) -> int:
        return bytes_of_model(config_of(**of_train), words=1000, rows=1000, device="cpu")

    assert of() - of(rows="sgd") == 1000 * (33 * 512 + 4 - (10 * 512 + 16))
    assert of() - of(words="light") == 1000 * 4 * 512


def test_sampled_labels_and_small_rows_exclude_each_other() -> None:
    shard = Shard(100_000)
    assert labels_per_step(TrainConfig(rows="sgd"), "cpu", shard, extra=False) == 0
    for asked in (TrainConfig(rows="sgd", sampled="on"), TrainConfig(words="light", sampled="on")):
        with pytest.raises(ConfigError, match=r"train\.sampled=on, but train\.(rows=sgd|words=light)"):
            labels_per_step(asked, "cpu", shard, extra=False)
