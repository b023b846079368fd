"""Keyword graphs: sentences, TextRank, vertices and edges, against plain Python and on texts that are no prose."""

from __future__ import annotations

import math
import random
import string
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recipes.gnnxml.one_graph import KeyGraph, keygraph

from longtail.errors import ConfigError
from longtail.features import reading
from longtail.persistence import State, load_part, save_part
from longtail.recipes.gnnxml.keygraph import (
    STOP_WORDS,
    GraphBuilder,
    KeyGraphConfig,
    KeyGraphs,
    assembled,
    capitals,
    plain_reader,
    register_recogniser,
)

SENTENCES = KeyGraphConfig(unit="sentence")


def graphs_of(texts: list[str], config: KeyGraphConfig = SENTENCES, width: int = 3) -> KeyGraphs:
    """Graphs whose sentence vectors are random but the same for the same sentence."""

    def vectors(sentences: list[str]) -> Any:
        return np.array(
            [np.random.default_rng([ord(c) for c in s]).standard_normal(width) for s in sentences], np.float32
        ).reshape(len(sentences), width)

    builder = GraphBuilder(config, (), plain_reader())
    return assembled(((made.pieces, vectors(made.sentences)) for made in builder.blocks([texts])), width)


# ---- small texts, by hand ----


@pytest.mark.claim("N7")
def test_three_sentences() -> None:
    """A sentence without a keyword hangs on the empty vertex; an edge weighs the number of shared sentences."""
    text = "Cats chase mice. Mice fear cats! And so it was."
    graph = keygraph(text, replace(SENTENCES, share=0.5))
    assert graph.sentences == ["cats chase mice", "mice fear cats", "and so it was"]
    assert set(graph.vertices[:-1]) == {"cats", "mice"}
    assert graph.vertices[-1] == ""
    assert graph.edges == [(0, 1)]
    assert graph.weights == [2]
    assert graph.sentence_index == [[0, 1], [0, 1], [2]]


def test_every_sentence_has_a_keyword_then_no_empty_vertex() -> None:
    assert "" not in keygraph("Cats chase mice. Mice fear cats.", replace(SENTENCES, share=1.0)).vertices


# ---- sentences ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two. three four", ["one two", "three four"]),
        ("version 3.18 of it", ["version 3.18 of it"]),
        ("see e.g. the manual. then act", ["see e.g. the manual", "then act"]),
        ("it is 3. then 4", ["it is 3", "then 4"]),
        ("by Dr. Who and Mrs. Peel", ["by dr. who and mrs. peel"]),
        ("really?! yes", ["really", "yes"]),
        ("a http://host/x?query=1 address", ["a http://host/x?query=1 address"]),
        ('he said "stop." then left', ['he said "stop', "then left"]),
        ("first line\nsame sentence\n\nnew paragraph", ["first line\nsame sentence", "new paragraph"]),
        ("tools: * first one * second one", ["tools", "first one", "second one"]),
        ("2*3 and a*b", ["2*3 and a*b"]),
        ("猫很好。狗也好！是吗?是的", ["猫很好", "狗也好", "是吗", "是的"]),
        ("बिल्ली सोती है। कुत्ता जागता है।", ["बिल्ली सोती है", "कुत्ता जागता है"]),
        ("ما هذا؟ هذا قط", ["ما هذا", "هذا قط"]),
        ("Кошка спит. Собака лает.", ["кошка спит", "собака лает"]),
        ("wait... what", ["wait", "what"]),
        ("...", []),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert keygraph(text, SENTENCES).sentences == expected


def test_a_field_ends_a_sentence() -> None:
    builder = GraphBuilder(SENTENCES, (), plain_reader())
    made = builder.block(["a title", "a body. more", "", "only a body"], 2)
    assert made.sentences == ["a title", "a body", "more", "only a body"]
    assert made.pieces.sentences.tolist() == [3, 1]
    assert made.pieces.words.tolist() == [5, 3]


def test_short_texts_have_windows_in_place_of_sentences() -> None:
    text = "scalable library for eigenvalue problem computations"
    assert keygraph(text).sentences == [
        "scalable library for eigenvalue problem",
        "library for eigenvalue problem computations",
    ]
    assert keygraph(text, SENTENCES).sentences == [text]
    assert keygraph("two words").sentences == ["two words"]
    assert keygraph("Two. Sentences.").sentences == ["two", "sentences"]
    assert keygraph("Two. Sentences.", KeyGraphConfig(unit="window")).sentences == ["two. sentences"]


@given(st.integers(1, 3000), st.integers(1, 12), st.integers(2, 40))
@settings(max_examples=60, deadline=None)
def test_windows_cover_every_word_and_are_few(words: int, window: int, most: int) -> None:
    text = " ".join(f"w{n}" for n in range(words))
    found = [
        sentence.split()
        for sentence in keygraph(text, KeyGraphConfig(unit="window", window=window, most_windows=most)).sentences
    ]
    assert len(found) <= most
    assert {word for sentence in found for word in sentence} == set(text.split())
    assert found[0][0] == "w0"
    assert all(len(sentence) >= min(window, words) for sentence in found[:-1])
    if words - window < most - 1:
        assert len(found) == max(1, words - window + 1), "one window per step of one word"


# ---- TextRank, in plain Python ----


def text_rank(sentences: list[list[str]], span: int) -> dict[str, float]:
    edges: dict[str, Counter[str]] = {word: Counter() for sentence in sentences for word in sentence}
    for sentence in sentences:
        for i, a in enumerate(sentence):
            for b in sentence[i + 1 : i + span]:
                if a != b:
                    edges[a][b] += 1
                    edges[b][a] += 1
    scores = dict.fromkeys(edges, 1.0)
    for _ in range(30):
        moved = {
            word: 0.15
            + 0.85 * sum(times * scores[other] / sum(edges[other].values()) for other, times in edges[word].items())
            for word in edges
        }
        done = max((abs(moved[word] - scores[word]) for word in edges), default=0) < 1e-4
        scores = moved
        if done:
            break
    return scores


def expected_graph(
    sentences: list[list[str]], keywords: list[str]
) -> tuple[dict[tuple[str, str], int], dict[str, list[int]]]:
    attached = {word: [n for n, sentence in enumerate(sentences) if word in sentence] for word in keywords}
    attached[""] = [n for n, sentence in enumerate(sentences) if not set(sentence) & set(keywords)]
    shared = {(a, b): len(set(attached[a]) & set(attached[b])) for a in keywords for b in keywords if a < b}
    return {pair: count for pair, count in shared.items() if count}, attached


WORDS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "the", "of", "7", "x")
words_of_a_text = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), max_size=7)


@given(words_of_a_text, st.integers(2, 5), st.sampled_from([1 / 3, 0.5, 1.0]), st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_graph_is_that_of_plain_python(sentences: list[list[str]], span: int, share: float, most: int) -> None:
    text = ". ".join(" ".join(sentence) + " end" for sentence in sentences)
    said = [[*sentence, "end"] for sentence in sentences]
    graph = keygraph(text, KeyGraphConfig(unit="sentence", span=span, share=share, keywords=most))
    content = [[word for word in sentence if word not in (*STOP_WORDS, "7", "x")] for sentence in said]
    scores = text_rank(content, span)
    count = min(most, math.ceil(len(scores) * share - 1e-9))
    keywords = [vertex for vertex in graph.vertices if vertex]
    assert len(keywords) == count
    # Equal scores differ by rounding, so the chosen are the best up to that.
    ranked = sorted(scores.values(), reverse=True)
    assert sorted((scores[word] for word in keywords), reverse=True) == pytest.approx(ranked[:count], abs=1e-9)
    edges, attached = expected_graph(said, keywords)
    names = graph.vertices
    found = {
        tuple(sorted((names[u], names[v]))): weight for (u, v), weight in zip(graph.edges, graph.weights, strict=True)
    }
    assert found == edges
    assert dict(zip(names, graph.sentence_index, strict=True)) == {
        name: index for name, index in attached.items() if index
    }


def test_a_frequent_companion_is_a_keyword_and_stop_words_are_none() -> None:
    graph = keygraph(
        "The hub meets red. The hub meets blue. The hub meets green. The hub was alone.", replace(SENTENCES, keywords=1)
    )
    assert graph.vertices[0] in ("hub", "meets")
    assert not set(graph.vertices) & set(STOP_WORDS)


def test_common_words_of_a_corpus_are_no_keywords() -> None:
    text = "paketti sisältää kirjaston. paketti sisältää ohjelman."
    assert "paketti" in keygraph(text, replace(SENTENCES, share=1.0)).vertices
    assert "paketti" not in keygraph(text, replace(SENTENCES, share=1.0), common=["paketti"]).vertices


# ---- texts that are no prose ----

STRANGE = {
    "empty": "",
    "blank": " \n\t ",
    "one word": "cat",
    "one letter": "x",
    "a number": "42",
    "stop words": "to be or not to be",
    "marks": "?!... -- *",
    "chinese": "我们喜欢猫",
    "thai": "แมวนอนหลับ",
    "arabic": "القطط تنام",
    "emoji": "🐈 🐕 🐈",
    "nul": "a\0cat\0sat",
    "surrogate": "cat \ud800 dog",
    "combining": "e\u0301tude ﬁn ＣＡＴ",
    "one long word": "x" * 50_000,
    "no sentences": " ".join(f"w{n % 700}" for n in range(10_000)),
    "many sentences": ". ".join(f"word{n % 97} next{n % 89} last{n}" for n in range(3_500)),
    "one word again": "cat " * 10_000,
    "points": "a. " * 5_000,
}


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("unit", ["auto", "sentence", "window"])
def test_strange_texts_have_sound_graphs(text: str, unit: Any) -> None:
    graph = keygraph(text, KeyGraphConfig(unit=unit))
    check_sound(graph)
    assert len(graph.vertices) <= 65
    assert len(graphs_of([text], KeyGraphConfig(unit=unit))) == 1, "graphs are checked where they are made"


def check_sound(graph: KeyGraph) -> None:
    assert len(graph.vertices) == len(graph.sentence_index) == len(set(graph.vertices))
    assert {sentence for index in graph.sentence_index for sentence in index} == set(range(len(graph.sentences))), (
        "every sentence is attached"
    )
    assert all(index for index in graph.sentence_index), "every vertex has a sentence"
    for (u, v), weight in zip(graph.edges, graph.weights, strict=True):
        assert weight == len(set(graph.sentence_index[u]) & set(graph.sentence_index[v])) > 0
        assert "" not in (graph.vertices[u], graph.vertices[v]), "the empty vertex stands alone"


def test_number_of_threads_and_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    texts = [
        ". ".join(" ".join("".join(rng.choices(string.ascii_lowercase[:5], k=3)) for _ in range(6)) for _ in range(3))
        for _ in range(300)
    ]
    whole = graphs_of(texts)
    monkeypatch.setattr(reading, "BLOCK_CHARACTERS", 500)
    equal(graphs_of(texts), whole)


# ---- named entities ----


def test_capitalised_runs_inside_sentences_are_entities() -> None:
    text = "We met John Smith and the United Nations in Paris. The talks failed. John left!"
    assert [text[a:b] for a, b in capitals(text)] == ["John Smith", "United Nations", "Paris"]


def test_entities_are_keywords_and_span_words() -> None:
    text = "We met John Smith in Paris. The talks of John Smith failed. Nobody else came."
    graph = keygraph(text, replace(SENTENCES, ner="capitals", keywords=1))
    assert {"john smith", "paris"} <= set(graph.vertices)
    assert graph.sentence_index[graph.vertices.index("john smith")] == [0, 1]
    assert graph.sentence_index[graph.vertices.index("paris")] == [0]
    check_sound(graph)


def test_an_entity_that_is_a_keyword_already_is_one_vertex() -> None:
    graph = keygraph("They saw Paris. Others left Paris.", replace(SENTENCES, ner="capitals", share=1.0))
    assert graph.vertices.count("paris") == 1


def test_a_recogniser_of_ones_own() -> None:
    register_recogniser("colours", lambda text: [(text.index("red"), text.index("red") + 3)] if "red" in text else [])
    assert (
        "red"
        in keygraph(
            "the red of the sea and of the sky and of the fire", KeyGraphConfig(ner="colours", keywords=1)
        ).vertices
    )
    with pytest.raises(ConfigError, match="is 'tints', which is not known here"):
        keygraph("red", KeyGraphConfig(ner="tints"))


# ---- many graphs ----

TEXTS = [
    "Cats chase mice. Mice fear cats. So it was.",
    "",
    "one",
    "Dogs bark. Dogs bite. Dogs sleep, cats sleep.",
    "to be or not",
]


def equal(a: KeyGraphs, b: KeyGraphs) -> None:
    for name, array in a.state().arrays.items():
        np.testing.assert_array_equal(array, b.state().arrays[name], err_msg=name)


@pytest.mark.parametrize("index", [[0], [3, 0], [1], [1, 1, 4, 3], [], slice(1, 4), slice(None)])
def test_rows_are_graphs_of_those_documents(index: Any) -> None:
    chosen = np.arange(len(TEXTS))[index]
    equal(
        graphs_of(TEXTS).rows(np.array(index, np.int64) if isinstance(index, list) else index),
        graphs_of([TEXTS[i] for i in chosen]),
    )


def test_features_of_vertices_and_documents() -> None:
    graphs = graphs_of(TEXTS)
    sentences = graphs.sentences.astype(np.float32)
    features, means = graphs.vertices(), graphs.mean_sentences(block=2)
    for document in range(len(TEXTS)):
        own = sentences[graphs.sentence_starts[document] : graphs.sentence_starts[document + 1]]
        np.testing.assert_allclose(means[document], own.mean(axis=0) if len(own) else np.zeros(3), atol=1e-6)
        for vertex in range(graphs.vertex_starts[document], graphs.vertex_starts[document + 1]):
            attached = graphs.attached[graphs.attach_starts[vertex] : graphs.attach_starts[vertex + 1]]
            np.testing.assert_allclose(features[vertex], own[attached].sum(axis=0), atol=1e-6)
    assert graphs.is_empty().tolist() == [False, True, False, False, False]


def test_adjacency_is_symmetric_and_stays_within_documents() -> None:
    graphs = graphs_of(TEXTS)
    weighted, plain = graphs.adjacency(weighted=True).toarray(), graphs.adjacency().toarray()
    np.testing.assert_array_equal(weighted, weighted.T)
    np.testing.assert_array_equal(plain, weighted > 0)
    assert weighted.max() == 2
    owner = np.repeat(np.arange(len(graphs)), np.diff(graphs.vertex_starts))
    rows, columns = np.nonzero(plain)
    np.testing.assert_array_equal(owner[rows], owner[columns])


def test_saved_and_loaded(tmp_path: Any) -> None:
    graphs = graphs_of(TEXTS)
    save_part(graphs, tmp_path / "graphs")
    equal(load_part(tmp_path / "graphs"), graphs)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("neighbours", lambda a: a + 100),
        ("attached", lambda a: a - 5),
        ("weights", lambda a: a[:-1]),
        ("vertex_starts", lambda a: a[::-1]),
        ("edge_starts", lambda a: a[:-1]),
        ("sentence_starts", lambda a: np.append(a, a[-1])),
        ("attach_starts", lambda a: np.append(a[:-1], a[-1] + 1)),
    ],
)
def test_altered_graphs_are_refused(name: str, spoil: Any) -> None:
    arrays = dict(graphs_of(TEXTS).state().arrays)
    with pytest.raises(ValueError):
        KeyGraphs.from_state(State(arrays={**arrays, name: spoil(arrays[name])}))
