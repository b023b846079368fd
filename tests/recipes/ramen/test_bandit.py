"""The bandit: what its estimators are worth, and that it finds and keeps what it should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from longtail.recipes.ramen.graph_loss import BanditConfig, WeightBandit, slopes, trial_steps

DRAWS, DEVIATION = 1_000_000, 0.1


def estimates(estimator: Any, floor: float = 0.0, offset: float = 1.0, slope: float = 2.0) -> Any:
    """Of the slope of a linear objective at its value `offset`."""
    z = trial_steps(DRAWS, estimator, DEVIATION, np.random.default_rng(0), floor=floor)
    return slopes(offset + slope * z, z, estimator, DEVIATION)


@pytest.mark.claim("R11")
def test_two_estimators_are_unbiased_and_the_printed_ratio_has_no_variance() -> None:
    sign, score, ratio = (estimates(name) for name in ("sign", "gauss_score", "paper_ratio"))
    assert abs(sign.mean() - 2) < 0.1
    assert abs(score.mean() - 2) < 0.1
    assert ratio.std() > 100 * sign.std()
    assert sign.std() == pytest.approx(1 / DEVIATION, rel=0.01)


@pytest.mark.claim("R11")
def test_the_ratios_spread_grows_without_end_and_the_others_does_not() -> None:
    """The sample's standard deviation of 1 / z grows like the root of the sample."""
    halves = {
        name: [estimates(name)[:size].std() for size in (1_000, DRAWS)]
        for name in ("sign", "gauss_score", "paper_ratio")
    }
    assert halves["paper_ratio"][1] > 5 * halves["paper_ratio"][0]
    for name in ("sign", "gauss_score"):
        assert halves[name][1] == pytest.approx(halves[name][0], rel=0.2)


def test_a_floor_bounds_the_ratio_and_a_baseline_takes_away_most_of_the_noise() -> None:
    assert estimates("paper_ratio", floor=0.02).std() < 50
    z = trial_steps(1000, "paper_ratio", DEVIATION, np.random.default_rng(0))
    assert np.abs(z).min() >= 0.02
    assert {-1.0, 1.0} == set(np.sign(z))
    assert estimates("sign", offset=0.0).std() < 1e-9
    assert estimates("gauss_score", offset=0.0).std() == pytest.approx(2 * 2**0.5, rel=0.02)


def bandit(names: tuple[str, ...] = ("good", "junk"), **settings: Any) -> WeightBandit:
    return WeightBandit(names, BanditConfig(**settings), lambda block: np.random.default_rng([7, block]))


@pytest.mark.parametrize("estimator", ["sign", "gauss_score", "paper_ratio", "pairs"])
def test_the_weight_of_a_graph_that_stays_hard_falls_fastest(estimator: Any) -> None:
    """P = w_good * 0.05 + w_junk * 0.4: the slope of each weight is its own loss."""
    found = bandit(estimator=estimator, initial=1.0)
    for _ in range(150):
        found.learn(float(found.tried() @ [1.0, 0.05, 0.4]))
    task, good, junk = found.weights
    assert task == 1
    assert good - junk > 0.2


def test_pairs_step_forth_and_back_and_are_not_misled_by_a_loss_that_falls() -> None:
    """The task's loss falls from 3 to 0 meanwhile: ten times what the weights can do."""

    def weights(estimator: Any) -> Any:
        found, before = bandit(estimator=estimator, initial=1.0), np.zeros(3)
        for block in range(200):
            if estimator == "pairs" and block % 2:
                np.testing.assert_array_equal(found.steps(), -before)
            before = found.steps()
            found.learn(3 * (1 - block / 200) + float(found.tried() @ [0.0, 0.05, 0.4]))
        return found.weights[1:]

    paired, expected = weights("pairs"), np.array([1 - 0.01 * 100 * 0.05, 1 - 0.01 * 100 * 0.4])
    np.testing.assert_allclose(paired, expected, atol=0.15)
    assert np.abs(weights("sign") - 1 + 0.01 * 200 * np.array([0.05, 0.4])).max() > 0.15


def test_a_weight_that_lowers_the_reward_rises_and_bounds_are_kept() -> None:
    found = bandit(rate=0.05)
    for _ in range(300):
        found.learn(float(1 - 0.3 * found.tried()[1] + 0.3 * found.tried()[2]))
    np.testing.assert_allclose(found.weights, [1, 2.0, 1e-3])


def test_the_task_moves_only_if_asked_to() -> None:
    found = bandit(fix_task_weight=False)
    for _ in range(50):
        found.learn(float(found.tried().sum()))
    assert found.weights[0] < 0.9


def test_without_a_bandit_weights_stay_and_nothing_is_tried() -> None:
    found = bandit(enabled=False, fixed=0.5)
    for _ in range(3):
        np.testing.assert_array_equal(found.tried(), [1, 0.5, 0.5])
        found.learn(3.0)
    assert found.blocks == 3


def test_tried_weights_are_never_negative_and_steps_are_the_same_when_asked_again() -> None:
    found = bandit(initial=0.05)
    trials = []
    for _ in range(20):
        np.testing.assert_array_equal(found.steps(), found.steps())
        assert found.tried().min() >= 0
        trials.append(found.steps()[1:])
        found.learn(1.0)
    assert np.unique(np.concatenate(trials)).tolist() == [-0.1, 0.1]
    assert len(np.unique(np.stack(trials), axis=0)) == 4, "weights are perturbed independently of each other"


@pytest.mark.parametrize("estimator", ["sign", "pairs"])
def test_it_goes_on_from_its_arrays(estimator: Any) -> None:
    whole, first, second = (bandit(estimator=estimator) for _ in range(3))
    rewards = np.random.default_rng(0).random(20)
    for reward in rewards:
        whole.learn(reward)
    for reward in rewards[:11]:
        first.learn(reward)
    for name, array in first.arrays.items():
        second.arrays[name][...] = array
    for reward in rewards[11:]:
        second.learn(reward)
    np.testing.assert_array_equal(whole.weights, second.weights)
    assert not np.array_equal(whole.weights, first.weights)


def test_the_first_block_teaches_nothing_beside_a_running_mean() -> None:
    with_mean, without = bandit(), bandit(baseline="none")
    with_mean.learn(5.0)
    without.learn(5.0)
    np.testing.assert_array_equal(with_mean.weights, [1, 0.1, 0.1])
    assert (without.weights[1:] != 0.1).all()
    with_mean.learn(5.0)
    np.testing.assert_allclose(with_mean.weights, [1, 0.1, 0.1], atol=1e-12)


def test_scaled_trials_keep_a_weight_at_its_floor_small() -> None:
    """Added to it and cut at 0, a trial applies half of its step on average."""
    for trials, mean in (("added", 0.05), ("scaled", 0.001)):
        found = bandit(initial=1e-3, trials=trials)
        tried = []
        for _ in range(400):
            tried.append(found.tried()[1:])
            found.learn(1.0)
        np.testing.assert_array_equal(found.weights[1:], 1e-3)
        assert np.mean(tried) == pytest.approx(mean, rel=0.15)
        assert np.min(tried) >= 0


@pytest.mark.parametrize("estimator", ["sign", "gauss_score", "pairs"])
def test_scaled_trials_learn_and_keep_bounds(estimator: Any) -> None:
    found = bandit(rate=0.2, trials="scaled", estimator=estimator, initial=0.3)
    for _ in range(600):
        found.learn(float(1 - 0.3 * found.tried()[1] + 0.3 * found.tried()[2]))
    assert found.weights[0] == 1
    assert found.weights[1] > 0.6
    assert found.weights[2] < 0.2
    assert found.weights[1:].min() >= 1e-3
    assert found.weights.max() <= 2


def test_after_so_many_epochs_nothing_is_tried_any_more() -> None:
    found = bandit(until=0.5)
    for epoch in range(4):
        found.begin_epoch(epoch, 4)
        tries = bool((found.steps() != 0).any())
        assert tries == (epoch < 2)
        before = found.weights.copy()
        for reward in (3.0, 1.0):
            found.learn(reward)
        assert bool((found.weights != before).any()) == tries
    np.testing.assert_array_equal(found.tried(), found.weights)
