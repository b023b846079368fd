"""The cluster beam against plain sums over all clusters; its labels, its negatives, its saved form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.errors import BundleError, ConfigError, DataError
from longtail.persistence import State, load_part, map_arrays, save_part, write_arrays
from longtail.recipes.eclare.settings import default_beam
from longtail.search.negatives import ShortlistNegatives, forbidden_pairs
from longtail.search.packed import PackedIndex, PackedType, Packer
from longtail.search.shortlist import ClusterBeam
from longtail.types import F32


def numbers(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


def random_beam(
    rng: np.random.Generator, *, graph: bool = True, n_clusters: int = 6, labels: int = 17, **settings: Any
) -> ClusterBeam:
    """Clusters of uneven sizes, some labels without one; the last cluster has no label."""
    clusters = rng.integers(-1, max(n_clusters - 1, 1), labels).astype(np.int32)
    edges = csr_array(
        (
            rng.random((n_clusters, n_clusters)) * (rng.random((n_clusters, n_clusters)) < 0.5) + np.eye(n_clusters)
        ).astype(np.float32)
    )
    return ClusterBeam.of(numbers(rng, n_clusters, 5), clusters, edges if graph else None, **settings)


def naive_select(beam: ClusterBeam, x: F32) -> dict[int, float]:
    """Cluster -> p of one document, as the paper says it."""
    assert isinstance(beam.heads, np.ndarray)
    raw = beam.heads.astype(float) @ x
    best = sorted(range(len(raw)), key=lambda m: (-raw[m], m))[: beam.beam]
    p = np.zeros(len(raw))
    p[best] = 1 / (1 + np.exp(-raw[best]))
    if beam.graph is None:
        return {m: p[m] for m in best}
    edges = beam.graph.toarray().astype(float)
    spread = beam.game_mix * ((edges.T if beam.game_transpose else edges) @ p) + (1 - beam.game_mix) * p
    return {
        m: spread[m] for m in sorted(np.flatnonzero(spread > 0).tolist(), key=lambda m: (-spread[m], m))[: beam.beam]
    }


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([0.5, 1.0]), st.booleans(), st.integers(1, 9))
@settings(deadline=None, max_examples=60)
def test_selects_the_clusters_of_the_formula(seed: int, graph: bool, mix: float, transpose: bool, width: int) -> None:
    rng = np.random.default_rng(seed)
    beam = random_beam(rng, graph=graph, beam=width, game_mix=mix, game_transpose=transpose)
    x = numbers(rng, 8, 5)
    clusters, p = beam.select(x)
    assert clusters.shape == p.shape == (8, min(width, 6))
    assert p.dtype == np.float32
    for row in range(8):
        wanted = naive_select(beam, x[row])
        real = clusters[row] >= 0
        assert clusters[row][real].tolist() == list(wanted)
        np.testing.assert_allclose(p[row][real], list(wanted.values()), rtol=1e-5)
        assert not p[row][~real].any()


def test_a_bias_is_the_last_number_of_a_head() -> None:
    rng = np.random.default_rng(5)
    heads, bias, x, clusters = numbers(rng, 6, 5), numbers(rng, 6), numbers(rng, 8, 5), np.arange(6, dtype=np.int32)
    found = ClusterBeam.of(np.column_stack([heads, bias]), clusters, beam=6).select(x)
    raw = x @ heads.T + bias
    np.testing.assert_array_equal(found[0], np.argsort(-raw, axis=1))
    np.testing.assert_allclose(found[1], 1 / (1 + np.exp(np.sort(-raw, axis=1))), rtol=1e-5)


def test_game_brings_in_a_cluster_that_the_heads_missed() -> None:
    """The beam sees cluster 0 only; nearly all of its labels occur with those of cluster 2."""
    heads = np.array([[5], [1], [-9]], np.float32)
    edges = csr_array(np.array([[1, 0, 0], [0, 1, 0], [2, 0, 1]], np.float32))
    clusters = np.arange(3, dtype=np.int32)
    x = np.ones((1, 1), np.float32)
    assert ClusterBeam.of(heads, clusters, beam=1).select(x)[0].tolist() == [[0]]
    assert ClusterBeam.of(heads, clusters, edges, beam=1).select(x)[0].tolist() == [[2]]
    assert ClusterBeam.of(heads, clusters, edges, beam=1, game_transpose=True).select(x)[0].tolist() == [[0]]


def test_labels_stand_under_their_cluster() -> None:
    beam = ClusterBeam.of(np.zeros((4, 2), np.float32), np.array([2, 0, 2, -1, 0, 2], np.int32), beam=2)
    assert beam.largest_cluster == 3
    assert beam.labels_of(np.array([[2, 0], [1, -1]], np.int32)).tolist() == [[0, 2, 5, 1, 4, -1], [-1] * 6]


@pytest.mark.parametrize("graph", [False, True])
def test_a_shortlist_ranks_labels_by_their_cluster(graph: bool) -> None:
    rng = np.random.default_rng(4)
    beam = random_beam(rng, graph=graph, beam=3)
    x = numbers(rng, 20, 5)
    top = beam.query(x, 30)
    clusters, p = beam.select(x)
    for row in range(20):
        score = {m: value for m, value in zip(clusters[row].tolist(), p[row].tolist(), strict=True) if m >= 0}
        wanted = sorted(((-score[m], label) for label, m in enumerate(beam.clusters.tolist()) if m in score))
        assert top.ids[row][: len(wanted)].tolist() == [label for _, label in wanted]
        np.testing.assert_allclose(top.scores[row][: len(wanted)], [-minus for minus, _ in wanted])
        assert (top.ids[row][len(wanted) :] == -1).all()
    np.testing.assert_array_equal(beam.query(x, 4).ids, top.ids[:, :4])


def test_negatives_are_mined_from_it() -> None:
    rng = np.random.default_rng(5)
    beam, vectors = random_beam(rng, beam=2), numbers(rng, 30, 5)
    positives = csr_array((rng.random((30, 17)) < 0.2).astype(np.float32))
    negatives = ShortlistNegatives.mine(beam, vectors, forbidden_pairs(positives), 8)
    shortlist = beam.query(vectors, 17).ids
    for row in range(30):
        allowed = [label for label in shortlist[row].tolist() if label >= 0 and not positives[row, label]]
        found = negatives.ids[row][negatives.ids[row] >= 0].tolist()
        assert found == allowed[: len(found)]
        assert len(found) == min(8, len(allowed))


def test_saturated_scores_keep_their_order() -> None:
    beam = ClusterBeam.of(np.array([[30], [60], [40]], np.float32), np.arange(3, dtype=np.int32), beam=2)
    assert beam.select(np.ones((1, 1), np.float32))[0].tolist() == [[1, 2]]


@pytest.mark.parametrize("graph", [False, True])
def test_saved_and_loaded_it_answers_bit_for_bit(graph: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    beam, x = random_beam(rng, graph=graph, beam=3, game_mix=0.5, game_transpose=True), numbers(rng, 40, 5)
    save_part(beam, tmp_path / "part")
    loaded = load_part(tmp_path / "part")
    assert (loaded.beam, loaded.game_mix, loaded.game_transpose) == (3, 0.5, True)
    for before, after in zip(beam.select(x), loaded.select(x), strict=True):
        np.testing.assert_array_equal(before, after)


def test_an_altered_file_is_refused(tmp_path: Path) -> None:
    save_part(random_beam(np.random.default_rng(7), beam=2), tmp_path / "part")
    arrays = {name: np.array(array) for name, array in map_arrays(tmp_path / "part" / "arrays.safetensors").items()}
    write_arrays(tmp_path / "part" / "arrays.safetensors", arrays | {"clusters": arrays["clusters"] + 9})
    with pytest.raises(BundleError, match="cluster-beam"):
        load_part(tmp_path / "part")


def test_refuses_what_cannot_be() -> None:
    heads, clusters = np.zeros((2, 3), np.float32), np.array([0, 1], np.int32)
    with pytest.raises(ConfigError, match="beam of 0"):
        ClusterBeam.of(heads, clusters, beam=0)
    for wrong in (np.array([0, 2], np.int32), np.array([0, -2], np.int32)):
        with pytest.raises(ValueError, match="clusters"):
            ClusterBeam.of(heads, wrong, beam=1)
    with pytest.raises(ValueError, match="graph"):
        ClusterBeam.of(heads, clusters, csr_array((3, 3)), beam=1)
    with pytest.raises(DataError, match="not a finite number"):
        ClusterBeam.of(heads * np.nan, clusters, beam=1)


@pytest.mark.parametrize(
    ("n_clusters", "n_labels", "expected"), [(2**15, 131_073, 120), (4096, 28_881, 69), (4, 12, 160), (1, 131_073, 10)]
)
def test_default_beam_gives_about_480_labels(n_clusters: int, n_labels: int, expected: int) -> None:
    assert default_beam(n_clusters, n_labels) == expected


# ---- packed ----


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("width", [5, 64])
def test_packed_heads_select_as_the_numbers_they_hold(dtype: PackedType, bias: bool, queries: int, width: int) -> None:
    """Width 64: through products of bytes, where the machine has them."""
    rng = np.random.default_rng(3)
    heads, clusters, x = (
        numbers(rng, 90, width + bias),
        rng.integers(0, 90, 200).astype(np.int32),
        numbers(rng, queries, width),
    )
    if bias:
        heads[:, -1] *= 10
    graph = csr_array((np.eye(90) + (rng.random((90, 90)) < 0.05)).astype(np.float32))
    beam = ClusterBeam.of(heads, clusters, graph, beam=12, game_mix=0.5, game_transpose=True)
    packed = beam.packed(Packer(dtype), width)
    assert isinstance(packed.index, PackedIndex)
    assert packed.index.rows.values.dtype == dtype
    assert packed.index.rows.shape == (90, width), "the bias is no part of the rows"
    if bias:
        np.testing.assert_array_equal(packed.index.offsets, heads[:, -1])
    plain = ClusterBeam.of(packed.heads, clusters, graph, beam=12, game_mix=0.5, game_transpose=True)
    (found, p), (expected, wanted) = packed.select(x), plain.select(x)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(p, wanted, rtol=1e-5)
    assert np.mean(found == beam.select(x)[0]) > 0.8


def test_packed_heads_are_saved_and_not_packed_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    packed, x = random_beam(rng, beam=3).packed(Packer("int8"), 5), numbers(rng, 4, 5)
    save_part(packed, tmp_path / "beam")
    loaded = load_part(tmp_path / "beam")
    assert isinstance(loaded, ClusterBeam)
    assert isinstance(loaded.index, PackedIndex)
    for found, expected in zip(loaded.select(x), packed.select(x), strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ConfigError, match="packed already"):
        loaded.packed(Packer("int8"), 5)


def test_heads_that_are_something_else_are_refused() -> None:
    beam = random_beam(np.random.default_rng(0), beam=2)
    state = beam.packed(Packer("int8"), 5).state()
    with pytest.raises(ValueError, match="'index' is a ClusterBeam"):
        ClusterBeam.from_state(State(state.values, state.arrays, {"index": beam}))
