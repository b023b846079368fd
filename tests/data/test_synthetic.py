"""The planted world: every knob does what it says, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from longtail.data.identity import self_pairs
from longtail.data.inspect import check
from longtail.data.synthetic import ANCHORS_PER_GROUP, MODES, PRESETS, Synthetic, SyntheticConfig, synthesise
from longtail.errors import ConfigError
from longtail.types import I64, Csr

TINY = SyntheticConfig()


@cache
def world(seed: int = 0, **knobs: Any) -> Synthetic:
    return synthesise(replace(TINY, **knobs), seed)


def frequency(targets: Csr) -> I64:
    return np.bincount(targets.indices, minlength=targets.shape[1])


def words(texts: Sequence[str]) -> list[set[str]]:
    return [set(text.split()) for text in texts]


def own_words_said(made: Synthetic) -> float:
    """Share of the words of a document's true labels that its text says."""
    labels = words(made.dataset.labels.fields["title"])
    said = [
        len(labels[label] & text) / len(labels[label])
        for row, text in enumerate(words(made.dataset.train.documents.fields["title"]))
        for label in made.complete_train[[row]].indices
    ]
    return float(np.mean(said))


# ---- sizes, seeds, shapes ----


def test_sizes_and_shapes() -> None:
    made = world()
    data = made.dataset
    assert (len(data.train), len(data.need_test()), len(data.labels)) == (2_000, 500, 500)
    assert made.complete_train.shape == data.train.targets.shape
    assert made.complete_test.shape == data.need_test().targets.shape
    assert set(np.unique(np.diff(made.complete_train.indptr))) == {1, 2, 3}
    assert set(np.unique(np.diff(made.complete_test.indptr))) == {1, 2, 3}
    assert data.digest
    assert not [finding for finding in check(data) if finding.level == "error"]
    assert PRESETS["small"].documents == 20_000
    assert (PRESETS["medium"].documents, PRESETS["medium"].labels) == (200_000, 50_000)


@pytest.mark.parametrize("share", [1 / 300, 1 / 150])
@pytest.mark.parametrize(("name", "labels_per_document"), [("shape-131k", 2.29), ("shape-1.3m", 22.2)])
def test_shapes_have_the_labels_per_document_of_the_benchmark(
    name: str, labels_per_document: float, share: float
) -> None:
    shape = PRESETS[name]
    assert shape.labels_per_document == labels_per_document
    share *= 1 if name == "shape-1.3m" else 4
    small = replace(
        shape,
        documents=round(shape.documents * share),
        test_documents=round(shape.test_documents * share),
        labels=round(shape.labels * share),
        topics=20,
    )
    data = synthesise(small).dataset
    for split in (data.train, data.need_test()):
        assert split.targets.nnz / len(split) == pytest.approx(labels_per_document, rel=0.01)
    assert data.train.targets.nnz / len(data.labels) == pytest.approx(
        labels_per_document * shape.documents / shape.labels, rel=0.01
    )
    assert np.diff(data.train.targets.indptr).max() <= small.most_labels


def test_documents_of_many_labels() -> None:
    many = PRESETS["many-labels"]
    assert many.documents * many.labels_per_document <= many.labels * (many.documents // 50)
    small = replace(many, documents=3_000, test_documents=200, labels=3_000, topics=20)
    data = synthesise(small).dataset
    for split in (data.train, data.need_test()):
        assert split.targets.nnz / len(split) == pytest.approx(20, rel=0.01)
        words = [len(title.split()) for title in split.documents.titles()]
        assert np.median(words) < 40, "short texts"


def test_the_seed_decides_everything() -> None:
    first, again, other = synthesise("tiny", 3), synthesise("tiny", 3), synthesise("tiny", 4)
    assert first.dataset.digest == again.dataset.digest
    np.testing.assert_array_equal(first.complete_train.indices, again.complete_train.indices)
    assert first.dataset.digest != other.dataset.digest
    assert first.dataset.train.documents.fields != other.dataset.train.documents.fields


def test_a_knob_leaves_the_rest_of_the_world_alone() -> None:
    base = world()
    for changed in (world(noise_edges=0.9), world(missing_rate=0.0), world(label_text=0.0), world(graph_coverage=0.2)):
        assert changed.dataset.train.documents.fields == base.dataset.train.documents.fields
        np.testing.assert_array_equal(changed.complete_test.indices, base.complete_test.indices)
    np.testing.assert_array_equal(
        world(text_informativeness=0.3).dataset.train.targets.indices, base.dataset.train.targets.indices
    )


# ---- frequency ----


def test_true_frequency_is_zipf_and_clipped() -> None:
    made = synthesise(
        replace(TINY, documents=20_000, labels=5_000, topics=100, test_documents=100, graph_coverage=0), 0
    )
    counts = np.sort(frequency(made.complete_train))[::-1]
    assert counts[0] == 20_000 // 50
    assert counts[-1] >= 1
    ranks = np.arange(1, 5_001)
    middle = slice(30, 1_000)  # neither clipped above nor rounded to one
    slope = np.polyfit(np.log(ranks[middle]), np.log(counts[middle]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.05)


def test_exponent_zero_makes_labels_equally_frequent() -> None:
    counts = frequency(world(zipf=0.0).complete_train)
    assert counts.max() - counts.min() <= 1


# ---- what is recorded ----


def test_without_missing_labels_all_is_recorded() -> None:
    made = world(missing_rate=0.0)
    np.testing.assert_array_equal(made.dataset.train.targets.toarray(), made.complete_train.toarray())
    np.testing.assert_array_equal(made.dataset.need_test().targets.toarray(), made.complete_test.toarray())
    assert (made.propensity == 1).all()


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_the_missing_rate_is_met_and_rises_as_frequency_falls(rate: float) -> None:
    made = synthesise(replace(TINY, missing_rate=rate, test_documents=5_000), 1)
    observed = made.dataset.need_test().targets
    assert 1 - observed.nnz / made.complete_test.nnz == pytest.approx(rate, abs=0.02)
    trained = frequency(made.complete_train)
    assert (np.diff(made.propensity[np.argsort(trained, kind="stable")]) >= -1e-12).all()
    seen, true = frequency(observed), frequency(made.complete_test)
    bins = [trained <= 3, (trained > 3) & (trained <= 15), trained > 15]
    missing = [1 - seen[part].sum() / true[part].sum() for part in bins]
    assert missing[0] > missing[1] > missing[2]
    expected = [1 - (made.propensity * true)[part].sum() / true[part].sum() for part in bins]
    np.testing.assert_allclose(missing, expected, atol=0.03)


def test_recorded_pairs_are_true_and_every_training_document_keeps_one() -> None:
    made = world(missing_rate=0.9)
    observed = made.dataset.train.targets
    assert (made.complete_train - observed).min() >= 0
    assert (np.diff(observed.indptr) >= 1).all()
    assert (np.diff(made.dataset.need_test().targets.indptr) == 0).any()


# ---- texts ----


@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.8])
def test_token_dropout_is_the_share_of_label_words_left_out(dropout: float) -> None:
    assert own_words_said(world(token_dropout=dropout, share_documents_are_labels=0.0)) == pytest.approx(
        1 - dropout, abs=0.04
    )


def test_informativeness_is_the_share_of_words_that_tell() -> None:
    def said(informativeness: float) -> float:
        return own_words_said(
            world(token_dropout=0.0, text_informativeness=informativeness, share_documents_are_labels=0.0)
        )

    assert said(1.0) == 1
    assert said(0.5) == pytest.approx(0.5, abs=0.03)
    assert said(0.0) == 0


def test_documents_of_a_topic_share_words() -> None:
    """Topic words help: documents of one label are alike beyond the words of the label."""
    made = world(token_dropout=1.0, share_documents_are_labels=0.0)
    texts = words(made.dataset.train.documents.fields["title"])
    columns = made.complete_train.tocsc()
    rng = np.random.default_rng(0)
    alike, apart = [], []
    for label in np.argsort(-frequency(made.complete_train))[100:400]:
        members = columns.indices[columns.indptr[label] : columns.indptr[label + 1]]
        if len(members) > 1:
            alike.append(len(texts[members[0]] & texts[members[1]]))
            apart.append(len(texts[members[0]] & texts[int(rng.integers(2_000))]))
    assert np.mean(alike) > 2 * np.mean(apart)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_label_text_is_the_share_of_labels_with_text(share: float) -> None:
    titles = world(label_text=share, share_documents_are_labels=0.0).dataset.labels.fields["title"]
    assert sum(map(bool, titles)) == 500 * share
    assert all(3 <= len(title.split()) <= 6 for title in titles if title)


# ---- documents that are labels ----


def test_documents_that_are_labels_have_their_text_and_are_masked() -> None:
    data = world(share_documents_are_labels=0.1).dataset
    test = data.need_test()
    assert len(data.train.masked) == 200
    assert len(test.masked) == 50
    for split in (data.train, test):
        np.testing.assert_array_equal(self_pairs(split.documents, data.labels), split.masked)
        assert all(split.targets[document, label] == 0 for document, label in split.masked.tolist())
    labels = np.concatenate([data.train.masked[:, 1], test.masked[:, 1]])
    assert len(set(labels.tolist())) == 250
    assert len(world(share_documents_are_labels=0.0).dataset.train.masked) == 0


# ---- correlation ----


@pytest.mark.parametrize(("independent", "low", "high"), [(False, 0.6, 1.0), (True, 0.0, 0.05)])
def test_labels_of_a_document_are_of_one_family_unless_independent(independent: bool, low: float, high: float) -> None:
    """Without noise the anchors of a label tell its family: those after the anchors of the topics, two for each
    family.
    """
    made = world(noise_edges=0.0, graph_coverage=1.0, independent_labels=independent)
    edges: Any = made.dataset.graphs["anchors"].labels
    known = edges[:, ANCHORS_PER_GROUP * TINY.topics :].tocoo()
    family = np.full(500, -1)
    family[known.row] = known.col // ANCHORS_PER_GROUP
    met = (made.complete_train.T @ made.complete_train).tocoo()
    told = (met.row != met.col) & (family[met.row] >= 0) & (family[met.col] >= 0)
    same = met.data[told & (family[met.row] == family[met.col])].sum() / met.data[told].sum()
    assert low < same < high


def test_multimodal_heads_are_the_most_frequent_labels_and_spread_over_topics() -> None:
    made = world(multimodal_heads=3, token_dropout=0.0, share_documents_are_labels=0.0)
    counts = frequency(made.complete_train)
    assert len(made.multimodal) == 3
    assert counts[made.multimodal].min() >= np.sort(counts)[-3]
    titles = words(made.dataset.labels.fields["title"])
    texts = words(made.dataset.train.documents.fields["title"])
    columns = made.complete_train.tocsc()
    for head in made.multimodal:
        assert len(titles[head]) > 6
        said = [
            len(titles[head] & texts[row]) / len(titles[head])
            for row in columns.indices[columns.indptr[head] : columns.indptr[head + 1]]
        ]
        assert np.mean(said) == pytest.approx(1 / MODES, abs=0.1)  # each document knows one sense of the label
    assert len(world().multimodal) == 0


# ---- graph ----


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_noise_edges_are_known_and_their_share_is_met(noise: float) -> None:
    made = world(noise_edges=noise, graph_coverage=1.0)
    graph = made.dataset.graphs["anchors"]
    for edges, injected in ((graph.documents, made.injected_documents), (graph.labels, made.injected_labels)):
        assert edges is not None
        assert injected is not None
        assert injected.nnz / edges.nnz == pytest.approx(noise, abs=0.06)
        if injected.nnz:
            assert (edges - injected).min() >= 0


def test_true_edges_link_documents_to_the_anchors_of_their_labels_and_noise_does_not() -> None:
    def agreement(noise: float, shift: int = 0) -> float:
        """Share of (document, true label) pairs with an anchor in common; with a shift, of pairs that are not true."""
        made = world(noise_edges=noise, graph_coverage=1.0)
        documents: Any = made.dataset.graphs["anchors"].documents
        labels: Any = made.dataset.graphs["anchors"].labels
        shared = (documents @ labels[np.roll(np.arange(500), shift)].T).multiply(made.complete_train)
        return float((shared > 0).sum() / made.complete_train.nnz)

    assert agreement(0.0) > 0.4
    assert agreement(0.0, shift=1) < 0.1
    assert agreement(1.0) < 0.1


@pytest.mark.parametrize("coverage", [0.25, 1.0])
def test_coverage_is_the_share_of_items_with_edges(coverage: float) -> None:
    made = world(graph_coverage=coverage, noise_edges=0.0)
    graph = made.dataset.graphs["anchors"]
    assert graph.documents is not None
    assert graph.labels is not None
    assert (np.diff(graph.documents.indptr) > 0).mean() == coverage
    assert (np.diff(graph.labels.indptr) > 0).mean() == coverage


def test_test_documents_are_absent_from_the_graph() -> None:
    made = world()
    graph, test = made.dataset.graphs["anchors"], made.dataset.need_test().documents
    assert graph.documents is not None
    assert graph.documents.shape[0] == len(made.dataset.train)
    assert graph.anchors is not None
    assert not set(graph.anchors.uids) & set(test.uids)
    assert not set(graph.anchors.fields["title"]) & set(test.fields["title"])
    assert made.oracle_test is not None
    assert made.oracle_test.shape == (500, graph.documents.shape[1])
    assert made.oracle_test.nnz


def test_no_coverage_means_no_graph() -> None:
    made = world(graph_coverage=0.0)
    assert not made.dataset.graphs
    assert made.injected_documents is None
    assert made.oracle_test is None


# ---- settings that make no world ----


@pytest.mark.parametrize(
    ("config", "words_of_error"),
    [
        ("huge", "huge"),
        (replace(TINY, missing_rate=1.5), "missing_rate"),
        (replace(TINY, noise_edges=-0.1), "noise_edges"),
        (replace(TINY, labels=3_000), "3000 labels"),
        (replace(TINY, labels_per_document=22.2), "at most 40"),
        (replace(TINY, topics=600), "600 topics"),
        (replace(TINY, share_documents_are_labels=0.5), "1250 labels"),
        (replace(TINY, multimodal_heads=51), "51 multimodal heads"),
        (replace(TINY, multimodal_heads=2, topics=4), "4 topics"),
        (replace(TINY, labels=20, topics=2, share_documents_are_labels=0.0), "2000 documents"),
    ],
)
def test_settings_that_make_no_world(config: SyntheticConfig | str, words_of_error: str) -> None:
    with pytest.raises(ConfigError, match=words_of_error) as caught:
        synthesise(config)
    assert caught.value.hint
