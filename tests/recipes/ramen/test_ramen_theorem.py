"""RAMEN's theorem: an encoder whose cosines are the graph can stand in for a graph convolution; and why that says
little of sparse graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import longtail
from longtail.config import from_text
from longtail.data.dataset import Dataset
from longtail.recipes.towers.recipe import Ance
from longtail.recipes.towers.settings import TwoTowersConfig
from longtail.training.prepare import prepare

# Coordinate-wise functions with their Lipschitz constants.
ACTIVATIONS: tuple[tuple[Any, float], ...] = (
    (lambda x: np.maximum(x, 0), 1.0),
    (np.tanh, 1.0),
    (lambda x: 2 * np.abs(x), 2.0),
)


def head(x: Any, f: Any, w: Any, phi: Any) -> Any:
    """H: each row from its own F(x) alone, by T = W^T sum_j x_j F_j^T / 2 and c = W^T sum_j x_j / 2."""
    t, c = w.T @ x.T @ f / 2, w.T @ x.sum(axis=0) / 2
    return phi(f @ t.T + c)


def sides_of_bound(a: Any, x: Any, f: Any, w: Any, phi: Any, lipschitz: float) -> tuple[float, float]:
    a_hat = (1 + f @ f.T) / 2
    left = np.linalg.norm(phi(a @ x @ w) - head(x, f, w, phi)) / np.sqrt(len(x))
    right = lipschitz * np.linalg.norm(x, axis=1).max() * np.linalg.norm(w, 2) * np.linalg.norm(a - a_hat)
    return float(left), float(right)


@pytest.mark.claim("R3")
def test_the_head_is_the_convolution_over_cosines_and_the_bound_holds() -> None:
    rng, looseness = np.random.default_rng(0), []
    for draw in range(300):
        n, d, p = rng.integers(2, 30), rng.integers(1, 8), rng.integers(1, 8)
        phi, lipschitz = ACTIVATIONS[draw % 3]
        f = rng.standard_normal((n, p))
        f /= np.linalg.norm(f, axis=1, keepdims=True)
        x, w = rng.standard_normal((n, d)), rng.standard_normal((d, d))
        a = rng.random((n, n)) * (rng.random((n, n)) < rng.random())
        np.testing.assert_allclose(head(x, f, w, phi), phi((1 + f @ f.T) / 2 @ x @ w), rtol=0, atol=1e-8 * n)
        left, right = sides_of_bound(a, x, f, w, phi, lipschitz)
        assert left <= right
        looseness.append(left / right)
    assert np.median(looseness) < 0.2, "the bound is loose"


@pytest.mark.claim("R3")
@pytest.mark.usefixtures("one_thread")
def test_the_bound_holds_for_a_trained_encoder(planted_with_graphs: Dataset, tmp_path: Any) -> None:
    recipe = Ance(from_text(TwoTowersConfig(), ("encoder.width=8", "train.epochs=2", "features.subwords=none")))
    ranker: Any = longtail.train(planted_with_graphs, tmp_path / "run", recipe, device="cpu").bundle.ranker
    ready = prepare(planted_with_graphs, recipe.config.features)
    graph: Any = ready.graphs["pairs"]
    f, edges = ranker.encoder.encode(ready.documents).astype(np.float64), graph.documents.toarray()
    a = ((edges @ edges.T) > 0).astype(np.float64)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((len(f), 5)), rng.standard_normal((5, 5))
    left, right = sides_of_bound(a, x, f, w, np.tanh, 1.0)
    assert left <= right


def simplex(m: int) -> Any:
    """m unit vectors, as far from each other as can be: cosines of -1 / (m - 1)."""
    centred = np.eye(m) - 1 / m
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


@pytest.mark.claim("R3v")
@pytest.mark.parametrize(("blocks", "error"), [(2, 0.0), (3, 0.35355), (5, 0.75), (20, 2.06), (100, 4.92)])
def test_more_than_two_groups_without_links_cannot_be_told_by_cosines(blocks: int, error: float) -> None:
    """The best relative error of equal blocks: every pair of groups wants a cosine of -1, which only two can have."""
    a = np.kron(np.eye(blocks), np.ones((3, 3)))
    f = np.repeat(simplex(blocks), 3, axis=0)
    found = np.linalg.norm(a - (1 + f @ f.T) / 2) / np.linalg.norm(a)
    assert found == pytest.approx(error, abs=1e-4 if blocks <= 5 else 5e-3)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = rng.standard_normal((blocks, blocks))
        other /= np.linalg.norm(other, axis=1, keepdims=True)
        other = np.repeat(other, 3, axis=0)
        assert np.linalg.norm(a - (1 + other @ other.T) / 2) / np.linalg.norm(a) >= found - 1e-9
