"""Several models as one: what the projection must give back, training side by side, and its borders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array

import longtail
from longtail.config import from_text
from longtail.data.dataset import Dataset
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.errors import BundleError, ConfigError
from longtail.evaluation import evaluate
from longtail.models.encoders import ResidualMap, refined
from longtail.models.rankers import IndexedRows
from longtail.nn.batches import Documents
from longtail.nn.encoders import BagSum
from longtail.nn.row_tables import RowTable
from longtail.packing import pack
from longtail.persistence import load_part, save_part
from longtail.predictor import Predictor
from longtail.recipes.direct.as_one import WideModel, label_weights, nearest_of_rank, own_pairs, projected
from longtail.recipes.direct.memory import RememberingEnsemble
from longtail.recipes.direct.ranker import HiddenMap
from longtail.recipes.direct.recipe import Direct
from longtail.recipes.direct.settings import DirectConfig
from longtail.types import F32, Batch, Csr

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS, WIDTH, LABELS = 40, 6, 30
SMALL = ("encoder.width=32", "train.epochs=8", "train.rate=0.02", "features.subwords=none", "features.pairs=false")


def texts(count: int = 200) -> Csr:
    drawn = csr_array(random_array((count, WORDS), density=0.2, rng=np.random.default_rng(5), dtype=np.float32))
    drawn.sort_indices()
    return drawn


def wide_model(models: int, *, alike: bool = False, residual: bool = True) -> WideModel:
    """alike: all models are one, each turned by a matrix of its own on the way from words to rows."""
    draw = torch.Generator().manual_seed(3)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    table, rows, residual_of = numbers(WORDS, WIDTH), numbers(LABELS, WIDTH), numbers(WIDTH, WIDTH)
    tables = [table if alike else numbers(WORDS, WIDTH) for _ in range(models)]
    return WideModel(
        tuple(BagSum(RowTable(vectors), dropout=0.5).eval() for vectors in tables),
        tuple(residual_of if alike else numbers(WIDTH, WIDTH) for _ in range(models)) if residual else (),
        torch.cat([rows if alike else numbers(LABELS, WIDTH) for _ in range(models)], dim=1) / models,
        numbers(LABELS),
    )


def log_odds(wide: WideModel, x: Csr) -> F32:
    """Of the mean of all models, by plain algebra."""
    total = np.tile(wide.bias.numpy(), (x.shape[0], 1)).astype(np.float64)
    for at, encoder in enumerate(wide.encoders):
        v = x.toarray() @ encoder.table.weight.detach().numpy()
        if wide.residuals:
            v = v + np.maximum(v @ wide.residuals[at].numpy().T, 0)
        total += v @ wide.rows.numpy()[:, at * WIDTH : (at + 1) * WIDTH].T
    return total.astype(np.float32)


def in_turn(x: Csr) -> Csr:
    """Targets: labels in turn, so that all documents count about the same."""
    columns = np.arange(x.shape[0]) % LABELS
    return csr_array((np.ones(x.shape[0], np.float32), (np.arange(x.shape[0]), columns)), shape=(x.shape[0], LABELS))


def of_projected(wide: WideModel, x: Csr, width: int, hidden: int | None = None) -> F32:
    documents = Documents(Batch(sparse=x))
    encoder, refinement, rows = projected(wide, documents, in_turn(x), width, np.random.default_rng(0), hidden)
    z = refined(encoder.encode(Batch(sparse=x)), refinement)
    assert z.shape[1] == width == rows.shape[1] - 1
    return (z @ rows[:, :-1].T + rows[:, -1]).astype(np.float32)


@pytest.mark.parametrize("residual", [True, False])
def test_all_directions_give_the_mean_of_the_models(residual: bool) -> None:
    wide, x = wide_model(3, residual=residual), texts()
    wanted = log_odds(wide, x)
    got = of_projected(wide, x, 3 * WIDTH)
    np.testing.assert_allclose(got, wanted, atol=2e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("residual", [True, False])
def test_models_that_are_one_need_the_width_of_one(residual: bool) -> None:
    wide, x = wide_model(3, alike=True, residual=residual), texts()
    wanted = log_odds(wide, x)
    np.testing.assert_allclose(of_projected(wide, x, WIDTH), wanted, atol=2e-3 * np.abs(wanted).max())


def test_more_directions_and_more_hidden_numbers_lose_less() -> None:
    wide, x = wide_model(3), texts()
    wanted = log_odds(wide, x)

    def lost(width: int, hidden: int) -> float:
        return float(np.mean((of_projected(wide, x, width, hidden) - wanted) ** 2) / wanted.var())

    by_width, by_hidden = [lost(width, 18) for width in (3, 9, 18)], [lost(18, hidden) for hidden in (1, 9, 18)]
    assert by_width == sorted(by_width, reverse=True)
    assert by_hidden == sorted(by_hidden, reverse=True)
    assert by_width[-1] < 1e-5 < by_hidden[0] < 0.5


def test_nearest_of_rank_is_the_decomposition_of_what_documents_get() -> None:
    """By the singular values of Z W^T: no matrix of this rank is nearer (Eckart and Young)."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((300, 10)) @ rng.standard_normal((10, 10))
    rows = rng.standard_normal((40, 10)) * np.geomspace(1, 0.01, 10)
    onto, back = nearest_of_rank(torch.from_numpy(z.T @ z / 300), torch.from_numpy(rows.T @ rows), 4)
    left = np.linalg.svd(z @ rows.T)[1][4:]
    lost = z @ rows.T - z @ onto.numpy() @ (rows @ back.numpy()).T
    assert np.linalg.norm(lost) == pytest.approx(np.linalg.norm(left), rel=1e-3)


def test_of_documents_that_never_vary_in_a_direction_nothing_is_made_up() -> None:
    z = np.random.default_rng(1).standard_normal((50, 3)) @ np.eye(3, 8)
    onto, back = nearest_of_rank(torch.from_numpy(z.T @ z / 50), torch.eye(8), 6)
    assert onto.shape == back.shape == (8, 6)
    assert torch.isfinite(onto).all()
    np.testing.assert_allclose(z @ onto.numpy() @ back.numpy().T, z, atol=1e-4)


def test_documents_of_rare_labels_count_more() -> None:
    targets = csr_array(np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0]], dtype=np.float32))
    np.testing.assert_allclose(label_weights(targets), [1 / 3, 1 / 3, 4 / 3], rtol=1e-6)


def test_rows_are_put_right_for_the_documents_of_their_labels() -> None:
    """And for others they stay what they were, but for little."""
    wide, x = wide_model(3), texts(400)
    own = np.arange(LABELS) * 13
    targets = csr_array((np.ones(LABELS, np.float32), (own, np.arange(LABELS))), shape=(400, LABELS))
    wanted = log_odds(wide, x)

    def lost(targets: Csr) -> tuple[float, float]:
        """Mean of squares, of labels' own documents and of all."""
        encoder, refinement, rows = projected(wide, Documents(Batch(sparse=x)), targets, 4, np.random.default_rng(0))
        z = refined(encoder.encode(Batch(sparse=x)), refinement)
        squares = (z @ rows[:, :-1].T + rows[:, -1] - wanted) ** 2
        return float(squares[own, np.arange(LABELS)].mean()), float(squares.mean())

    # The same weights of documents in both: labels of the second are others.
    shifted = csr_array((targets.data, (own, np.roll(np.arange(LABELS), 1))), shape=(400, LABELS))
    (own_before, _), (own_after, all_after) = lost(shifted), lost(targets)
    assert own_after < 0.2 * own_before
    assert all_after < 1.6 * lost(shifted)[1]


def test_own_pairs_are_all_of_few_and_some_of_many() -> None:
    targets = csr_array(np.array([[1, 1], [0, 1]] + [[0, 1]] * 62, dtype=np.float32))
    pairs = own_pairs(targets)
    assert pairs[pairs[:, 1] == 0].tolist() == [[0, 0]]
    spread = pairs[pairs[:, 1] == 1][:, 0]
    assert len(spread) == 16
    assert np.diff(spread).max() == np.diff(spread).min() == 4
    assert (np.diff(pairs[:, 0]) >= 0).all()


# ---- the map between words and rows ----


def hidden_map() -> HiddenMap:
    rng = np.random.default_rng(2)
    return HiddenMap(*(rng.standard_normal(shape).astype(np.float32) for shape in ((4, 4), (7, 4), (4, 7))))


def test_hidden_map_is_its_formula_and_pulls_directions_back(tmp_path: Path) -> None:
    part, v = hidden_map(), np.random.default_rng(3).standard_normal((20, 4)).astype(np.float32)
    wanted = v @ part.straight.T + np.maximum(v @ part.into.T, 0) @ part.out.T
    np.testing.assert_allclose(part.apply(v), wanted, rtol=1e-5, atol=1e-5)
    directions = np.random.default_rng(4).standard_normal((20, 3, 4)).astype(np.float32)
    pulled = np.einsum("bcd,bd->bc", part.pulled(v, directions), v)
    np.testing.assert_allclose(pulled, np.einsum("bcd,bd->bc", directions, wanted), rtol=1e-4, atol=1e-4)
    save_part(part, tmp_path / "part")
    loaded = load_part(tmp_path / "part")
    assert isinstance(loaded, HiddenMap)
    np.testing.assert_array_equal(loaded.apply(v), part.apply(v))


def test_matrices_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    part = hidden_map()
    broken = (
        replace(part, straight=part.straight[:3]),
        replace(part, into=part.into[:, :2]),
        replace(part, out=part.out[:, :3]),
    )
    for number, one in enumerate(broken):
        save_part(one, tmp_path / str(number))
        with pytest.raises(BundleError):
            load_part(tmp_path / str(number))


# ---- trainings ----


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthesise(SyntheticConfig(documents=400, test_documents=200, labels=60, topics=6), 0).dataset


def trained(data: Dataset, folder: Path, *settings: str) -> Predictor:
    recipe = Direct(from_text(DirectConfig(), (*SMALL, "encoder.signed=on", *settings)))
    return longtail.train(data, folder, recipe, device="cpu")


def test_three_models_as_one_keep_most_of_what_averaging_gains(data: Dataset, tmp_path: Path) -> None:
    plain = ("memory.weight=0",)
    one = trained(data, tmp_path / "one", *plain)
    several = trained(data, tmp_path / "several", *plain, "train.together=3")
    ranker = several.bundle.ranker
    assert isinstance(ranker, IndexedRows)
    assert isinstance(ranker.refinement, HiddenMap)
    single = one.bundle.ranker
    assert isinstance(single, IndexedRows)
    assert isinstance(single.refinement, ResidualMap)
    assert ranker.index.read(slice(None)).shape == single.index.read(slice(None)).shape
    assert evaluate(several, data)["nDCG@5"] > evaluate(one, data)["nDCG@5"] - 0.5
    opened = Predictor.open(tmp_path / "several")
    question = [data.need_test().documents.fields["title"][0]]
    assert opened.predict(question, k=3) == several.predict(question, k=3)
    pack(tmp_path / "several", tmp_path / "packed", dtype="int8")
    assert (
        Predictor.open(tmp_path / "packed").predict(question, k=1)[0][0].label == opened.predict(question)[0][0].label
    )
    why = opened.explain(question, k=1)
    assert why, "reasons go through the hidden numbers"


def test_the_first_of_several_is_the_model_that_would_be_trained_alone(data: Dataset, tmp_path: Path) -> None:
    """Random numbers of the others have names of their own."""
    from longtail.recipes.direct.network import new_encoder
    from longtail.training.prepare import prepare
    from longtail.training.run import Run

    recipe = Direct(from_text(DirectConfig(), (*SMALL, "encoder.signed=on")))
    ready = prepare(data, recipe.config.features)
    with Run.open(tmp_path / "run", {}, device="cpu") as run:
        tables = [
            encoder.table.weight
            for encoder in (new_encoder(recipe.config.encoder, ready, run, None, *keys) for keys in ((), (1,), (2,)))
            if isinstance(encoder, BagSum)
        ]
    assert len(tables) == 3
    assert not torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[1], tables[2])


def test_models_that_cannot_be_made_one_are_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.together=2.*either sign") as refused:
        trained(data, tmp_path / "run", "train.together=2", "encoder.signed=auto")
    assert "ensemble.learners=2" in str(refused.value.hint)


def test_members_of_an_ensemble_share_one_memory(data: Dataset, tmp_path: Path) -> None:
    model = trained(data, tmp_path / "run", "ensemble.learners=2", "train.epochs=2")
    ranker = model.bundle.ranker
    assert isinstance(ranker, RememberingEnsemble)
    assert not [member for member in ranker.members if hasattr(member, "memory")]
    question = data.need_test().documents.fields["title"][:20]
    answers = model.predict(question, k=5)
    assert Predictor.open(tmp_path / "run").predict(question, k=5) == answers
    batch = model.bundle.featurizer.batch_of_texts(question)
    alone, weight = ranker.without_memory(batch, 30), ranker.memory.config.weight
    votes = ranker.memory.votes(batch, alone.ids)
    wanted = np.sort(((np.sqrt(alone.scores) + weight * votes) / (1 + weight)) ** 2, axis=1)[:, ::-1][:, :5]
    np.testing.assert_allclose(ranker.rank(batch, 5).scores, wanted, rtol=1e-5)
    ids = ranker.rank(batch, 5).ids
    np.testing.assert_allclose(ranker.scores_of(batch, ids, 60), ranker.rank(batch, 5).scores, rtol=1e-5)
    parts = ranker.shards(2)
    assert [part.memory.n_labels for part in parts if isinstance(part, RememberingEnsemble)] == [30, 30]
    whole = parts[0].joined(parts).rank(batch, 5)
    np.testing.assert_array_equal(whole.ids, ids)
    np.testing.assert_allclose(whole.scores, ranker.rank(batch, 5).scores, rtol=1e-5)
    reasons = ranker.explain(batch, ids)
    assert reasons is not None
    np.testing.assert_allclose(reasons.scores, ranker.rank(batch, 5).scores, rtol=1e-5)


def test_by_default_a_gpu_trains_three_where_there_are_documents_enough(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longtail.nn.shards import Shard
    from longtail.recipes.direct import settings
    from longtail.recipes.direct.settings import models_together
    from longtail.training.prepare import prepare

    def count(*changes: str, device: str = "cuda", shard: Shard | None = None, extra: bool = False) -> int:
        config = from_text(DirectConfig(), ("encoder.signed=on", *changes))
        return models_together(config, ready, device, shard or Shard(60), extra=extra)

    ready = prepare(data, DirectConfig().features)
    assert count("encoder.width=4") == 3, "400 documents for 12 numbers"
    assert count("encoder.width=5") == 1, "too few"
    assert count("encoder.width=4", device="cpu") == 1, "it would take three times as long"
    numbers = 4 * (ready.featurizer.width + ready.n_labels)
    for limit, expected in ((numbers, 3), (numbers - 1, 1)):
        monkeypatch.setattr(settings, "NUMBERS_TOGETHER", limit)
        assert count("encoder.width=4") == expected, "so large that three would not fit"
    assert count("encoder.width=4", extra=True) == count("encoder.width=4", "encoder.signed=off") == 1
    assert count("encoder.width=5", "train.together=4", device="cpu") == 4, "as asked"


def test_the_estimate_of_memory_counts_the_models_that_will_be_trained(data: Dataset) -> None:
    from longtail.recipes.direct.recipe import Direct
    from longtail.training.prepare import prepare

    def needed(*changes: str, device: str = "cuda") -> int:
        recipe = Direct(from_text(DirectConfig(), ("encoder.signed=on", "encoder.width=4", *changes)))
        recipe.device = device
        return recipe.memory(ready)

    ready = prepare(data, DirectConfig().features)
    one, two, three = (needed(f"train.together={count}") for count in (1, 2, 3))
    assert two - one == three - two > 0
    assert needed() == three, "by default a GPU trains three"
    assert needed(device="cpu") == one
    assert needed("encoder.signed=off") == needed("encoder.signed=off", "train.together=1")


def test_a_recipe_is_told_where_it_is_trained_before_it_is_asked_for_memory(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longtail.recipes.direct.recipe import Direct

    class Asked(Exception):
        pass

    def memory(self: Direct, data: object) -> int:
        raise Asked(self.device)

    monkeypatch.setattr(Direct, "memory", memory)
    with pytest.raises(Asked, match="cpu"):
        longtail.train(data, tmp_path / "run", "direct", device="cpu")
