"""Many linear classifiers at once: against scikit-learn, the conditions of an optimum, answers known by hand, and
borders.
"""

from __future__ import annotations

from typing import Any, Literal

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from longtail.search.linear import LinearConfig, fit_linear
from longtail.types import Csr

Loss = Literal["squared_hinge", "logistic"]
LOSSES: tuple[Loss, ...] = ("squared_hinge", "logistic")
# Problems in an order that is not that of their groups.
GROUP_OF = np.array([2, 0, 1, 0, 2])


def exact(loss: Loss, cost: float = 1.0, bias: float = 1.0, rounds: int = 100_000) -> LinearConfig:
    return LinearConfig(loss=loss, cost=cost, bias=bias, tolerance=1e-6, rounds=rounds, prune=0.0)


def planted(seed: int, n: int = 120, width: int = 15) -> tuple[Csr, Csr, Csr]:
    """Documents, positives of five problems and the three groups they are in; positives follow a noisy linear rule."""
    rng = np.random.default_rng(seed)
    x = csr_array(random_array((n, width), density=0.3, rng=rng, dtype=np.float32))
    groups = rng.random((3, n)) < 0.5
    rule = x @ rng.standard_normal((width, len(GROUP_OF))) + 0.3 * rng.standard_normal((n, len(GROUP_OF)))
    return x, pattern((rule.T > 0.2) & groups[GROUP_OF]), pattern(groups)


def pattern(members: Any) -> Csr:
    return csr_array(np.asarray(members, dtype=np.float32))


def dense(weights: Any) -> Any:
    return weights if isinstance(weights, np.ndarray) else weights.toarray()


def objective(x: Any, truth: Any, weights: Any, intercept: float, loss: Loss, cost: float) -> float:
    """What both we and LIBLINEAR minimise, with a constant feature of value 1 (its weight is regularised too)."""
    margins = np.where(truth, 1, -1) * (x @ weights + intercept)
    losses = np.maximum(0, 1 - margins) ** 2 if loss == "squared_hinge" else np.logaddexp(0, -margins)
    return float(0.5 * (weights @ weights + intercept**2) + cost * losses.sum())


def oracle(loss: Loss, cost: float, bias: float) -> Any:
    if loss == "squared_hinge":
        return LinearSVC(C=cost, fit_intercept=bias > 0, tol=1e-8, max_iter=1_000_000)
    return LogisticRegression(C=cost, fit_intercept=bias > 0, solver="liblinear", tol=1e-10, max_iter=100_000)


@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_agrees_with_scikit_learn(loss: Loss, cost: float, as_dense: bool) -> None:
    x, positives, groups = planted(1)
    found = fit_linear(
        x.toarray() if as_dense else x, positives, groups, GROUP_OF, exact(loss, cost), np.random.default_rng(0)
    )
    assert isinstance(found.weights, np.ndarray) == as_dense
    for problem, group in enumerate(GROUP_OF):
        rows = groups.toarray()[group] > 0
        documents, truth = x.toarray()[rows], positives.toarray()[problem][rows] > 0
        other = oracle(loss, cost, 1.0).fit(documents, truth)
        ours = objective(documents, truth, dense(found.weights)[problem], found.bias[problem], loss, cost)
        theirs = objective(documents, truth, other.coef_[0], other.intercept_[0], loss, cost)
        assert ours == pytest.approx(theirs, rel=1e-3)
        np.testing.assert_allclose(dense(found.weights)[problem], other.coef_[0], atol=2e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_without_bias_agrees_with_scikit_learn(loss: Loss) -> None:
    x, positives, groups = planted(2)
    found = fit_linear(x, positives, groups, GROUP_OF, exact(loss, bias=0.0), np.random.default_rng(0))
    assert not found.bias.any()
    rows = groups.toarray()[2] > 0
    other = oracle(loss, 1.0, 0.0).fit(x.toarray()[rows], positives.toarray()[0][rows] > 0)
    np.testing.assert_allclose(dense(found.weights)[0], other.coef_[0], atol=2e-3)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(LOSSES),
    cost=st.sampled_from([0.01, 0.5, 5.0]),
    bias=st.sampled_from([0.0, 0.5, 2.0]),
)
def test_weights_are_those_of_an_optimum(seed: int, loss: Loss, cost: float, bias: float) -> None:
    """The gradient vanishes: w = cost * sum of -loss'(margin) * sign * x, also where documents repeat, are empty, or
    agree.
    """
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    x = (rng.integers(-1, 3, (n, width)) * (rng.random((n, width)) < 0.6)).astype(np.float32)
    truth = rng.random(n) < rng.choice([0.0, 0.5, 1.0])
    found = fit_linear(
        csr_array(x), pattern(truth[None]), pattern(np.ones((1, n))), np.zeros(1), exact(loss, cost, bias), rng
    )
    weights, signs = dense(found.weights)[0], np.where(truth, 1.0, -1.0)
    margins = signs * (x @ weights + found.bias[0])
    pull = 2 * np.maximum(0, 1 - margins) if loss == "squared_hinge" else 1 / (1 + np.exp(margins))
    np.testing.assert_allclose(weights, cost * (pull * signs) @ x, atol=1e-3 * (1 + cost))
    assert found.bias[0] == pytest.approx(bias**2 * cost * (pull * signs).sum(), abs=1e-3 * (1 + cost) * (1 + bias**2))


def test_one_document_by_hand() -> None:
    x, one = csr_array(np.ones((1, 1), np.float32)), pattern([[1]])
    hinge = fit_linear(x, one, one, np.zeros(1), exact("squared_hinge", bias=0.0), np.random.default_rng(0))
    assert dense(hinge.weights)[0, 0] == pytest.approx(2 / 3, abs=1e-5)
    logistic = fit_linear(x, one, one, np.zeros(1), exact("logistic", bias=0.0), np.random.default_rng(0))
    w = float(dense(logistic.weights)[0, 0])
    assert w == pytest.approx(1 / (1 + np.exp(w)), abs=1e-5)


@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_result_does_not_depend_on_threads(loss: Loss, as_dense: bool) -> None:
    x, positives, groups = planted(3)
    documents = x.toarray() if as_dense else x
    config = LinearConfig(loss=loss, rounds=3, prune=0.0)
    threads = numba.get_num_threads()
    many = fit_linear(documents, positives, groups, GROUP_OF, config, np.random.default_rng(5))
    try:
        numba.set_num_threads(1)
        alone = fit_linear(documents, positives, groups, GROUP_OF, config, np.random.default_rng(5))
    finally:
        numba.set_num_threads(threads)
    for field in ("bias", "rounds"):
        np.testing.assert_array_equal(getattr(alone, field), getattr(many, field))
    np.testing.assert_array_equal(dense(alone.weights), dense(many.weights))


@pytest.mark.parametrize("as_dense", [False, True])
def test_result_does_not_depend_on_how_work_is_cut(as_dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Wide enough that the weights of one job outgrow the room that they start with.
    x, positives, groups = planted(9, width=500)
    documents = x.toarray() if as_dense else x
    config = LinearConfig(prune=0.0)
    many = fit_linear(documents, positives, groups, GROUP_OF, config, np.random.default_rng(5))
    monkeypatch.setattr("longtail.search.linear._JOBS", 1)
    one = fit_linear(documents, positives, groups, GROUP_OF, config, np.random.default_rng(5))
    np.testing.assert_array_equal(dense(one.weights), dense(many.weights))
    np.testing.assert_array_equal(one.bias, many.bias)


def test_the_seed_orders_the_documents() -> None:
    x, positives, groups = planted(4)
    config = LinearConfig(rounds=1, prune=0.0)
    one, same, other = (
        fit_linear(x, positives, groups, GROUP_OF, config, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(dense(one.weights), dense(same.weights))
    assert np.any(dense(one.weights) != dense(other.weights))
    assert one.rounds.tolist() == [1] * 5


def test_shrinking_does_not_hide_violators() -> None:
    """Easy documents are left out for a while; at the end no document may pull harder than the tolerance allows."""
    rng = np.random.default_rng(11)
    x = rng.standard_normal((2000, 5)).astype(np.float32)
    truth = x[:, 0] > 1.5 + 0.3 * rng.standard_normal(2000)
    found = fit_linear(x, pattern(truth[None]), pattern(np.ones((1, 2000))), np.zeros(1), exact("squared_hinge"), rng)
    signs = np.where(truth, 1.0, -1.0)
    pull = 2 * np.maximum(0, 1 - signs * (x @ found.weights[0] + found.bias[0])) * signs
    np.testing.assert_allclose(found.weights[0], pull @ x, atol=1e-2)
    assert found.rounds[0] < 100_000


def test_small_weights_are_pruned() -> None:
    x, positives, groups = planted(5)
    whole = fit_linear(x, positives, groups, GROUP_OF, LinearConfig(prune=0.0), np.random.default_rng(0))
    pruned = fit_linear(x, positives, groups, GROUP_OF, LinearConfig(prune=0.3), np.random.default_rng(0))
    full = dense(whole.weights)
    np.testing.assert_array_equal(dense(pruned.weights), np.where(np.abs(full) > 0.3, full, 0))
    assert 0 < pruned.weights.nnz < whole.weights.nnz
    np.testing.assert_array_equal(pruned.bias, whole.bias)


@pytest.mark.parametrize("loss", LOSSES)
def test_features_of_a_single_document_get_what_they_would_get_among_others(loss: Loss) -> None:
    """Sparse rows are solved without the features that one document of a group alone has; dense rows are solved with
    all of them.
    """
    x, positives, groups = planted(12, width=400)
    few = csr_array(x.toarray() * (np.random.default_rng(0).random(x.shape) < 0.05))  # one or two documents each
    singles = [(few.toarray()[rows > 0] != 0).sum(axis=0) == 1 for rows in groups.toarray()]
    assert min(map(np.sum, singles)) > 50
    sparse = fit_linear(few, positives, groups, GROUP_OF, exact(loss), np.random.default_rng(0))
    whole = fit_linear(few.toarray(), positives, groups, GROUP_OF, exact(loss), np.random.default_rng(0))
    np.testing.assert_allclose(dense(sparse.weights), whole.weights, atol=1e-5)
    assert all(
        np.abs(dense(sparse.weights)[problem, singles[group]]).max() > 0.01 for problem, group in enumerate(GROUP_OF)
    )


@pytest.mark.parametrize("as_dense", [False, True])
def test_problems_that_are_solved_side_by_side_do_not_see_each_other(
    as_dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of one group than are solved at once, of different difficulty: each as if it were alone."""
    monkeypatch.setattr("longtail.search.linear._JOBS", 1)  # else each of these few is a job of its own
    rng = np.random.default_rng(13)
    x = rng.standard_normal((60, 6)).astype(np.float32)
    positives = pattern(rng.random((37, 60)) < np.linspace(0.0, 0.5, 37)[:, None])
    documents, one_group = x if as_dense else csr_array(x), pattern(np.ones((1, 60)))
    together = fit_linear(documents, positives, one_group, np.zeros(37), exact("logistic"), np.random.default_rng(0))
    assert len(set(together.rounds.tolist())) > 3, "those that are solved stop, the others go on"
    for problem in range(37):
        alone = fit_linear(
            documents, positives[[problem]], one_group, np.zeros(1), exact("logistic"), np.random.default_rng(0)
        )
        np.testing.assert_allclose(dense(together.weights)[problem], dense(alone.weights)[0], atol=1e-5)
        assert together.bias[problem] == pytest.approx(alone.bias[0], abs=1e-5)
    # The first of those that are solved together orders the documents. It stops where it would stop alone, though
    # others need longer.
    rough = LinearConfig(loss="logistic", tolerance=0.3, prune=0.0)
    together, alone = (
        fit_linear(documents, some, one_group, np.zeros(some.shape[0]), rough, np.random.default_rng(0))
        for some in (positives, positives[[0]])
    )
    assert together.rounds[0] == alone.rounds[0] < together.rounds[:16].max()
    np.testing.assert_allclose(dense(together.weights)[0], dense(alone.weights)[0], rtol=1e-5)


@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_groups_of_nothing_and_of_one_kind(loss: Loss, as_dense: bool) -> None:
    x: Any = np.array([[1, 0], [0, 1], [0, 0]], dtype=np.float32)
    groups = pattern([[0, 0, 0], [1, 1, 1], [0, 0, 1]])
    positives = pattern([[0, 0, 0], [1, 1, 1], [0, 0, 0], [0, 0, 1]])
    found = fit_linear(
        x if as_dense else csr_array(x),
        positives,
        groups,
        np.array([0, 1, 1, 2]),
        exact(loss),
        np.random.default_rng(0),
    )
    weights = dense(found.weights)
    # No documents, no opinion; always positive; never positive; a document without features speaks through the bias.
    np.testing.assert_array_equal(np.sign(weights), [[0, 0], [1, 1], [-1, -1], [0, 0]])
    np.testing.assert_array_equal(np.sign(found.bias), [0, 1, -1, 1])


def test_no_problems() -> None:
    nothing = csr_array((0, 3), dtype=np.float32)
    for x in (csr_array((3, 4), dtype=np.float32), np.zeros((3, 4), np.float32)):
        found = fit_linear(x, nothing, nothing, np.zeros(0), LinearConfig(), np.random.default_rng(0))
        assert found.weights.shape == (0, 4)
        assert found.bias.shape == (0,)


def test_unsorted_rows_are_read_as_they_are_meant() -> None:
    x, positives, groups = planted(7)
    mixed = x.copy()
    for row in range(x.shape[0]):
        span = slice(mixed.indptr[row], mixed.indptr[row + 1])
        mixed.indices[span], mixed.data[span] = mixed.indices[span][::-1].copy(), mixed.data[span][::-1].copy()
    mixed.has_sorted_indices = mixed.has_canonical_format = False
    one, other = (
        fit_linear(documents, positives, groups, GROUP_OF, LinearConfig(), np.random.default_rng(0))
        for documents in (x, mixed)
    )
    np.testing.assert_array_equal(dense(one.weights), dense(other.weights))


@pytest.mark.parametrize("as_dense", [False, True])
def test_wrong_problems_are_refused(as_dense: bool) -> None:
    x, positives, groups = planted(8)
    documents = x.toarray() if as_dense else x
    outside = positives.toarray()
    outside[0] = 1
    with pytest.raises(ValueError, match="not in its group"):
        fit_linear(documents, pattern(outside), groups, GROUP_OF, LinearConfig(), np.random.default_rng(0))
    with pytest.raises(ValueError, match="do not fit"):
        fit_linear(documents, positives, groups, GROUP_OF[:2], LinearConfig(), np.random.default_rng(0))
    with pytest.raises(ValueError, match="do not fit"):
        fit_linear(documents[:5], positives, groups, GROUP_OF, LinearConfig(), np.random.default_rng(0))


@pytest.mark.parametrize("loss", LOSSES)
def test_dense_columns_beside_sparse_ones_are_more_columns(loss: Loss) -> None:
    """And documents that a problem leaves out are as if they were not in its group."""
    x, positives, groups = planted(11)
    rng = np.random.default_rng(12)
    tail = rng.standard_normal((x.shape[0], 4)).astype(np.float32)
    left_out = pattern((rng.random(positives.shape) < 0.2) & (positives.toarray() == 0))
    joined = csr_array(np.concatenate([x.toarray(), tail], axis=1))
    own_groups = groups[GROUP_OF].toarray() * (left_out.toarray() == 0)
    expected = fit_linear(joined, positives, pattern(own_groups), np.arange(len(GROUP_OF)), exact(loss), rng)
    found = fit_linear(x, positives, groups, GROUP_OF, exact(loss), rng, tail=tail, left_out=left_out)
    assert found.tail is not None
    np.testing.assert_allclose(
        np.concatenate([found.weights.toarray(), found.tail], axis=1), dense(expected.weights), atol=2e-3
    )
    np.testing.assert_allclose(found.bias, expected.bias, atol=2e-3)
    with pytest.raises(ValueError, match="must be sparse"):
        fit_linear(joined.toarray(), positives, groups, GROUP_OF, exact(loss), rng, tail=tail)
    with pytest.raises(ValueError, match="left out have shape"):
        fit_linear(x, positives, groups, GROUP_OF, exact(loss), rng, left_out=groups)
