"""Bundles with right checksums and wrong numbers: refused when they are opened, or harmless."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.faults.forging import Forger, Saved
from benchmarks.faults.models import MODELS, PACKED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longtail.config import from_text
from longtail.errors import BundleError
from longtail.predictor import Predictor
from longtail.recipes import RECIPES, recipe_class
from longtail.search.hnsw_file import check_hnsw

FORGED = (
    "tiny",
    "direct",
    "direct-hnsw",
    "packed-int4",
    "packed-tree",
    "astec-reranked",
    "astec-tree",
    "eclare",
    "galaxc",
)
MAX = 2**31 - 1
# A model, one of its parts, an array, and what its last entry becomes.
OUTSIDE = [
    ("astec-reranked", "ranker/members.0/base/shortlister/labels", "owners", MAX),
    ("astec-reranked", "ranker/members.0/base/shortlister/instances", "label_ptr", MAX),
    ("astec-reranked", "ranker/members.0/base/shortlister/instances", "labels", MAX),
    ("astec-tree", "ranker/tree/base", "labels", MAX),
    ("astec-tree", "ranker/tree/base", "weights.starts", MAX),
    ("direct-hnsw", "ranker/index", "group_ptr", MAX),
    ("direct-hnsw", "ranker/index", "group_items", MAX),
    ("direct", "ranker", "memory.targets.indices", MAX),
    ("direct", "ranker", "memory.inverse.postings.indptr", MAX),
    ("packed-int4", "ranker/encoder/table", "places", MAX),
    ("packed-tree", "ranker/index", "leaf_ptr", MAX),
    ("packed-tree", "ranker/index", "numbers", -2),
    ("eclare", "ranker/beam", "clusters", MAX),
    ("galaxc", "ranker/space/graph", "neighbours", MAX),
    ("galaxc", "ranker/space/graph", "starts", MAX),
    ("galaxc", "ranker/space/graph", "nodes", -1),
    ("tiny", "featurizer/tokens", "offsets", MAX),
    # Those that nothing but the declaration of the array checks.
    ("astec-reranked", "ranker/members.1/base/shortlister/labels", "owners", MAX),
    ("tiny", "labels/uids", "offsets", MAX),
    ("tiny", "labels/names", "offsets", MAX),
    ("direct", "company/examples", "offsets", MAX),
    ("gnnxml", "featurizer/encoder", "columns", MAX),
    ("gnnxml", "ranker/rankers", "words.words", MAX),
]


def test_every_recipe_and_every_packed_form_is_broken() -> None:
    assert {recipe for recipe, _, _ in MODELS.values()} == RECIPES.keys()
    assert {source for source, _, _ in PACKED.values()} <= MODELS.keys()


@pytest.mark.parametrize(("name", "part", "array", "value"), OUTSIDE, ids=lambda value: str(value))
def test_a_number_outside_is_refused(
    name: str, part: str, array: str, value: int, model: Callable[[str], Path]
) -> None:
    forger = Forger(model(name))
    folder = next((one for one in forger.saved if one == forger.bundle / part), None)
    if folder is None:
        pytest.fail(f"{part} is not among {[str(one.relative_to(forger.bundle)) for one in forger.saved]}")
    wrong = forger.saved[folder].arrays[array].copy()
    wrong[-1] = value
    changed = {folder: Saved(forger.saved[folder].head, {**forger.saved[folder].arrays, array: wrong})}
    with pytest.raises(BundleError):
        forger.open_and_ask(changed)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that are none
@pytest.mark.parametrize("name", FORGED)
def test_forged_parts_do_no_harm(name: str, model: Callable[[str], Path]) -> None:
    forger = Forger(model(name))
    forger.open_and_ask({})

    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**40))
    def attempt(seed: int) -> None:
        assert forger.attempt(seed) == ""

    attempt()


def test_a_table_of_other_features_is_not_packed(model: Callable[[str], Path]) -> None:
    forger = Forger(model("direct"))
    folder = forger.bundle / "ranker" / "encoder"
    saved = forger.saved[folder]
    forger.saved[folder] = Saved(saved.head, {"table": saved.arrays["table"][:-1]})
    with pytest.raises(BundleError, match="do not fit together"):
        forger.open_and_pack()


def test_every_flipped_bit_is_found(model: Callable[[str], Path], tmp_path: Path) -> None:
    import shutil

    copy, chance = tmp_path / "bundle", random.Random(0)
    shutil.copytree(model("direct"), copy)
    for path in sorted(one for one in copy.rglob("*") if one.is_file()):
        whole = path.read_bytes()
        for _ in range(3):
            place = chance.randrange(len(whole))
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :])
            with pytest.raises(BundleError):
                Predictor.open(copy)
        path.write_bytes(whole)
    Predictor.open(copy)


@pytest.fixture(scope="module")
def graph() -> Any:
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexHNSWFlat(4, 3, faiss.METRIC_INNER_PRODUCT)
    index.add(np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32))
    return faiss.serialize_index(index)


def test_graphs_of_faiss_are_checked(graph: Any) -> None:
    """What passes the check can be read and searched; a link to nowhere, or from a level to an item below it, is
    refused.
    """
    import faiss

    check_hnsw(graph, 300)
    queries = np.ones((5, 4), np.float32)

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(st.integers(0, len(graph) // 4 - 1), st.sampled_from([0, 1, 2, 299, 300, 301, MAX, 2**31, 2**32 - 1]))
    def changed(place: int, word: int) -> None:
        forged = graph.copy()
        forged[: len(forged) // 4 * 4].view(np.uint32)[place] = word
        try:
            check_hnsw(forged, 300)
        except ValueError:
            return
        faiss.deserialize_index(forged).search(queries, 10)

    changed()
    for items in (299, 301):
        with pytest.raises(ValueError, match="does not fit"):
            check_hnsw(graph, items)
    for length in (0, 3, 40, 200, len(graph) - 1):
        with pytest.raises(ValueError, match="the saved graph"):
            check_hnsw(graph[:length], 300)


@pytest.mark.parametrize("name", MODELS)
def test_settings_of_small_models_exist(name: str) -> None:
    recipe, given_settings, _ = MODELS[name]
    cls = recipe_class(recipe)
    cls(from_text(cls.CONFIG(), given_settings))


def test_rows_that_fill_up_a_sketch_are_never_found(model: Callable[[str], Path]) -> None:
    """They are there for the machine's sake; one that could be found would be read where no row is."""
    forger = Forger(model("packed-sketch"))
    folder = forger.bundle / "ranker" / "index"
    offsets = forger.saved[folder].arrays["heads.offsets"].copy()
    offsets[-1] = 3
    arrays = {**forger.saved[folder].arrays, "heads.offsets": offsets}
    with pytest.raises(BundleError, match="could be found"):
        forger.open_and_ask({folder: Saved(forger.saved[folder].head, arrays)})
