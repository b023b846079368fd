from __future__ import annotations

import dataclasses
import itertools
import json
import math
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data.columns import Columns
from longtail.data.dataset import Items
from longtail.errors import BundleError, ConfigError, DataError
from longtail.features import kernels as sparse_kernels
from longtail.features import reading
from longtail.features.reading import SEPARATOR, SINGLE, class_runs, class_table, normalise
from longtail.features.settings import SparseTextConfig
from longtail.features.sparse import SparseText
from longtail.persistence import StringTable, load_part, save_part

Feature = tuple[str, str]  # kind, spelling
Row = dict[Feature, float]
CLASSES = class_table(*class_runs())


def items(*texts: str, **fields: list[str]) -> Items:
    columns = fields or {"title": list(texts)}
    return Items([str(i) for i in range(len(next(iter(columns.values()))))], columns)


# ---- the oracle: the same in plain Python ----


def naive_words(text: str) -> list[str]:
    classes = [(character, CLASSES[ord(character)]) for character in normalise(text)]
    return "".join(f" {c} " if kind == SINGLE else " " if kind == SEPARATOR else c for c, kind in classes).split(" ")


def naive_features(text: str, config: SparseTextConfig) -> list[Feature]:
    words = [word for word in naive_words(text) if word]
    found: list[Feature] = [("word", word) for word in words] if config.words else []
    if config.pairs:
        found += [("pair", f"{a} {b}") for a, b in itertools.pairwise(words)]
    for marked in (f"<{word}>" for word in words if config.subwords == "chars"):
        if not config.words and len(marked) < min(config.char_sizes):
            found.append(("chars", marked))
        for size in set(config.char_sizes):
            found += [("chars", marked[i : i + size]) for i in range(len(marked) - size + 1)]
    return found


def naive_bags(source: Items | None, config: SparseTextConfig) -> list[dict[Feature, float]]:
    bags = []
    for i in range(len(source) if source is not None else 0):
        bag: dict[Feature, float] = {}
        for name, weight in zip(config.fields, config.weights or [1.0] * len(config.fields), strict=True):
            assert source is not None
            for feature in naive_features(source.fields[name][i], config):
                bag[feature] = bag.get(feature, 0.0) + weight
        bags.append(bag)
    return bags


def naive_tf_idf(documents: Items, labels: Items | None, config: SparseTextConfig) -> tuple[list[Row], list[Row]]:
    document_bags, label_bags = naive_bags(documents, config), naive_bags(labels, config)
    in_documents = Counter(feature for bag in document_bags for feature in bag)
    in_all = in_documents + Counter(feature for bag in label_bags for feature in bag)
    kept = {f for f, n in in_all.items() if n >= (config.min_count if f[0] == "word" else config.min_count_rest)}

    def row(bag: dict[Feature, float]) -> Row:
        values = {}
        for feature in bag.keys() & kept:
            tf = bag[feature]
            idf = math.log((1 + len(documents)) / (1 + in_documents[feature])) + 1 if config.idf else 1.0
            idf *= in_all[feature] / (in_all[feature] + config.damping)
            values[feature] = (1 + math.log(tf) if config.sublinear and tf > 1 else tf) * idf
        length = math.sqrt(sum(v * v for v in values.values()))
        return {feature: value / length for feature, value in values.items()}

    return [row(bag) for bag in document_bags], [row(bag) for bag in label_bags]


def as_rows(part: SparseText, matrix: Any) -> list[Row]:
    """Rows by spelling, after checking that the matrix is what it should be."""
    assert matrix.dtype == np.float32
    assert matrix.shape[1] == part.width
    rows: list[Row] = []
    for start, end in zip(matrix.indptr, matrix.indptr[1:], strict=False):
        columns = matrix.indices[start:end].tolist()
        assert columns == sorted(set(columns))
        rows.append(
            {(part.kind(c), part.token(c)): float(v) for c, v in zip(columns, matrix.data[start:end], strict=True)}
        )
    return rows


def assert_close(rows: list[Row], expected: list[Row]) -> None:
    assert [set(row) for row in rows] == [set(row) for row in expected]
    for row, right in zip(rows, expected, strict=True):
        for feature, value in right.items():
            assert row[feature] == pytest.approx(value, rel=1e-5)


def assert_same(a: Any, b: Any) -> None:
    """Equal bit by bit."""
    assert a.shape == b.shape
    for piece in ("indptr", "indices", "data"):
        assert getattr(a, piece).tobytes() == getattr(b, piece).tobytes()


CHARACTERS = "aAbBzZ09 _-.,'äÄßéŒİΣσςдЖאبक्षि日本語かナ한ｗ½²ﬁJ\u030c\u00ad\u200d\u200b\x00\ud800😀\U00020000"
TEXTS = st.lists(st.one_of(st.text(CHARACTERS, max_size=25), st.text(max_size=10)), min_size=1, max_size=8)
CONFIGS = st.builds(
    SparseTextConfig,
    words=st.booleans(),
    pairs=st.booleans(),
    subwords=st.sampled_from(["chars", "none"]),
    char_sizes=st.sampled_from([(4,), (2, 3), (5, 3)]),
    min_count=st.integers(1, 2),
    min_count_rest=st.integers(1, 3),
    sublinear=st.booleans(),
    idf=st.booleans(),
    damping=st.sampled_from([0.0, 3.0]),
).filter(lambda c: c.words or c.pairs or c.subwords == "chars")


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS, CONFIGS, st.booleans())
def test_features_are_those_of_a_naive_count(
    texts: list[str], more: list[str], config: SparseTextConfig, with_labels: bool
) -> None:
    documents, labels = items(*texts), items(*more) if with_labels else None
    config = config.for_documents(documents)
    expected, expected_labels = naive_tf_idf(documents, labels, config)
    if not any(expected + expected_labels):
        with pytest.raises(DataError, match="no feature is left"):
            SparseText.fit(documents, labels, config)
        return
    part, rows, label_rows = SparseText.fit_transform(documents, labels, config)
    assert_close(as_rows(part, rows), expected)
    assert part.width == len({feature for row in expected + expected_labels for feature in row})
    if labels is not None:
        assert_close(as_rows(part, label_rows), expected_labels)
    assert_same(rows, SparseText.fit(documents, labels, config).transform(documents))
    assert_same(rows, part.transform_texts(texts))
    for shares in (part.document_shares, SparseText.from_state(part.state()).document_shares):
        assert shares is not None
        assert np.allclose(
            shares,
            [
                (1 + sum((part.kind(c), part.token(c)) in row for row in expected)) / (1 + len(texts))
                for c in range(part.width)
            ],
        )


def test_a_damped_vocabulary_that_was_saved_without_shares_says_that_it_does_not_know() -> None:
    part = SparseText.fit(items("owl", "owl eats"), None, SparseTextConfig(damping=3.0, min_count=1))
    state = part.state()
    kept = {name: array for name, array in state.arrays.items() if name != "shares"}
    assert SparseText.from_state(replace(state, arrays=kept)).document_shares is None


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.sampled_from([(1.0, 1.0), (2.0, 0.25), (0.5, 0.5)]), st.booleans())
def test_fields_are_weighed_and_never_joined(texts: list[str], weights: tuple[float, float], sublinear: bool) -> None:
    documents = items(title=[f"start {text}" for text in texts], content=list(reversed(texts)))
    config = SparseTextConfig(fields=("title", "content"), weights=weights, min_count_rest=1, sublinear=sublinear)
    part, rows, _ = SparseText.fit_transform(documents, None, config)
    assert_close(as_rows(part, rows), naive_tf_idf(documents, None, config)[0])


SENTENCES = ["the cat sat on the mat", "The CAT and a dog, a dog!", "one-two three", "", "dog dog dog", "mat: cat/dog"]


def test_words_and_pairs_equal_those_of_scikit_learn() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    theirs = text.TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"[^\W_]+", sublinear_tf=True, dtype=np.float64)
    expected = theirs.fit_transform(SENTENCES).toarray()
    part, rows, _ = SparseText.fit_transform(items(*SENTENCES), None, SparseTextConfig(min_count_rest=1))
    order = [theirs.vocabulary_[part.token(i)] for i in range(part.width)]
    assert sorted(order) == list(range(expected.shape[1]))
    np.testing.assert_allclose(rows.toarray(), expected[:, order], atol=1e-6)


def test_character_grams_equal_those_of_scikit_learn() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    theirs = text.TfidfVectorizer(analyzer="char_wb", ngram_range=(4, 5), dtype=np.float64)
    plain = ["the cat sat on the mat", "a dogmatic cat", "concatenate"]
    expected = theirs.fit_transform(plain).toarray()
    config = SparseTextConfig(
        words=False, pairs=False, subwords="chars", char_sizes=(4, 5), min_count_rest=1, sublinear=False
    )
    part, rows, _ = SparseText.fit_transform(items(*plain), None, config)
    order = [theirs.vocabulary_[part.token(i).replace("<", " ").replace(">", " ")] for i in range(part.width)]
    assert sorted(order) == list(range(expected.shape[1]))
    np.testing.assert_allclose(rows.toarray(), expected[:, order], atol=1e-6)


# ---- texts of the world ----


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World_wide 2nd!", ["hello", "world", "wide", "2nd"]),
        ("don't", ["don", "t"]),
        ("日本語のカナ and 漢字", ["日", "本", "語", "の", "カ", "ナ", "and", "漢", "字"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("עברית العربية Ελληνικά", ["עברית", "العربية", "ελληνικά"]),
        ("ŒUVRE naïve e\u0301te\u0301", ["œuvre", "naïve", "été"]),
        ("nul\x00inside", ["nul", "inside"]),
        ("lone\ud800surrogate", ["lone", "surrogate"]),
        ("smile😀face", ["smile", "face"]),
        ("𠀀𠀁", ["𠀀", "𠀁"]),
        ("𝔘𝔫𝔦𝔠𝔬𝔡𝔢", ["unicode"]),
        ("line\nbreak\ttab\u00a0space", ["line", "break", "tab", "space"]),
        ("", []),
        (" \x00 ...", []),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    part, rows, _ = SparseText.fit_transform(items(text, "other"), None, SparseTextConfig(pairs=False))
    tokens = part.token_ids(part.document_columns(items(text)), max_length=12)[0]
    assert [part.token(part.token_range[i]) for i in tokens if i >= 0] == words
    assert {token for _, token in as_rows(part, rows)[0]} == set(words)


def test_a_pair_is_spelled_with_one_space_whatever_stands_between() -> None:
    part = SparseText.fit(items("one -- two, 日本 x"), None, SparseTextConfig(words=False, min_count_rest=1))
    assert {part.token(i) for i in range(part.width)} == {"one two", "two 日", "日 本", "本 x"}


def test_a_very_long_text_counts_right() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{n}" for n in rng.integers(0, 90_000, 200_000)]
    config = SparseTextConfig(pairs=False, idf=False, sublinear=False)
    part, rows, _ = SparseText.fit_transform(items(" ".join(words), "short w1"), None, config)
    counts = Counter(words)
    length = math.sqrt(sum(n * n for n in counts.values()))
    assert part.width == len(counts) + 1
    assert_close(as_rows(part, rows)[:1], [{("word", word): n / length for word, n in counts.items()}])


def test_one_word_a_hundred_thousand_times_is_one_feature() -> None:
    part, rows, _ = SparseText.fit_transform(items("a " * 100_000), None, SparseTextConfig())
    assert [(part.token(i), part.kind(i)) for i in range(part.width)] == [("a", "word")]
    assert rows.toarray().tolist() == [[1.0]]


# ---- what is learned from what ----


def test_unseen_words_are_dropped_and_a_row_may_be_empty() -> None:
    part = SparseText.fit(items("known words"), None, SparseTextConfig())
    rows = as_rows(part, part.transform(items("unknown", "known stranger", "")))
    assert rows == [{}, {("word", "known"): 1.0}, {}]


def test_texts_may_lie_in_a_table_of_strings() -> None:
    texts = ["one two", "zwei drei ß", "", "日本"]
    part, rows, _ = SparseText.fit_transform(Items(texts, {"title": StringTable.of(texts)}), None, SparseTextConfig())
    assert_same(rows, part.transform(items(*texts)))


def test_no_items_give_no_rows() -> None:
    part = SparseText.fit(items("known words"), None, SparseTextConfig())
    assert part.transform(items(title=[])).shape == (0, 2)
    assert part.transform_texts([]).shape == (0, 2)
    assert part.token_ids(part.document_columns(items(title=[])), 3).shape == (0, 3)


def test_documents_and_labels_share_a_vocabulary_and_idf_counts_documents_only() -> None:
    documents, labels = items("red apple", "green apple"), items("apple fruit", "red fruit", "fruit")
    part, rows, label_rows = SparseText.fit_transform(documents, labels, SparseTextConfig(pairs=False, min_count=2))
    assert {part.token(i) for i in range(part.width)} == {
        "red",
        "apple",
        "fruit",
    }  # green: once; red: once here, once there
    idf = {part.token(i): float(part.idf[i]) for i in range(part.width)}
    assert idf == pytest.approx({"apple": 1.0, "red": math.log(3 / 2) + 1, "fruit": math.log(3) + 1})
    assert as_rows(part, label_rows)[2] == {("word", "fruit"): 1.0}
    assert_same(label_rows, part.transform(labels, side="labels"))
    assert_same(rows, part.transform(documents))


def test_other_names_of_labels_are_read_where_they_count() -> None:
    documents, labels = items("apple"), items(title=["apple", "pear"], other_names=["", "fruit; apple"])
    plain = SparseTextConfig(pairs=False, idf=False, sublinear=False)

    def of_the_second(**change: Any) -> dict[tuple[str, str], float]:
        part, _, rows = SparseText.fit_transform(documents, labels, replace(plain, **change))
        assert_same(rows, part.transform(labels, side="labels"))
        return as_rows(part, rows)[1]

    assert of_the_second() == {("word", "pear"): 1.0}
    size = math.sqrt(1 + 2 * 0.5**2)
    assert of_the_second(other_names=0.5) == pytest.approx(
        {("word", "pear"): 1 / size, ("word", "fruit"): 0.5 / size, ("word", "apple"): 0.5 / size}
    )
    assert of_the_second(other_names=0.5, label_fields=("title",)) == {("word", "pear"): 1.0}
    without = SparseText.fit_transform(documents, items("apple", "pear"), replace(plain, other_names=0.5))
    assert without[2] is not None


def test_what_is_transformed_leaves_no_trace() -> None:
    """Test documents cannot enter vocabulary or statistics: `fit` never sees them, and `transform` changes nothing."""
    part = SparseText.fit(items("one two", "two three"), None, SparseTextConfig())
    before = {name: array.tobytes() for name, array in part.state().arrays.items()}
    part.transform(items("four five", "two two two"))
    part.token_ids(part.document_columns(items("four five")), 4)
    assert {name: array.tobytes() for name, array in part.state().arrays.items()} == before
    assert "four" not in list(part.tokens)


def test_the_most_frequent_features_stay_and_ties_go_by_spelling() -> None:
    documents = items("b a é", "b a z", "b c d")
    part = SparseText.fit(documents, None, SparseTextConfig(pairs=False, max_features=4))
    assert sorted(part.tokens) == ["a", "b", "c", "d"]
    assert SparseText.fit(documents, None, SparseTextConfig(pairs=False, max_features=99)).width == 6
    assert sorted(SparseText.fit(documents, items("é"), SparseTextConfig(pairs=False, max_features=3)).tokens) == [
        "a",
        "b",
        "é",
    ]


def test_label_fields_follow_the_documents_unless_named() -> None:
    documents = items(title=["a"], content=["b"])
    config = SparseTextConfig(fields=("title", "content"), weights=(1.0, 3.0), pairs=False, idf=False, sublinear=False)
    part = SparseText.fit(documents, None, config)
    labels = items(content=["a b"], other=["a"])
    assert as_rows(part, part.transform(labels, "labels")) == [
        pytest.approx({("word", "a"): math.sqrt(0.5), ("word", "b"): math.sqrt(0.5)})
    ]
    both = items(title=["a"], content=["b"])
    assert as_rows(part, part.transform(both, "labels")) == [
        pytest.approx({("word", "a"): 1 / math.sqrt(10), ("word", "b"): 3 / math.sqrt(10)})
    ]
    named = SparseText.fit(documents, labels, dataclasses.replace(config, label_fields=("other",)))
    assert as_rows(named, named.transform(labels, "labels")) == [{("word", "a"): 1.0}]


def test_labels_without_text_have_no_batch() -> None:
    part = SparseText.fit(items("a"), Items(["l1"]), SparseTextConfig())
    assert part.label_batch(Items(["l1"])) is None
    batch = part.label_batch(items("a"))
    assert batch is not None
    assert batch.sparse is not None
    assert batch.sparse.toarray().tolist() == [[1.0]]


# ---- token numbers ----


def test_token_numbers_are_in_reading_order_padded_and_cut() -> None:
    documents = items(title=["b a, b", "", "c unknown? a"], content=["c", "a", ""])
    part = SparseText.fit(
        items(title=["a b c"], content=[""]),
        None,
        SparseTextConfig(fields=("title", "content"), min_count_rest=1, subwords="chars"),
    )
    numbers = part.token_ids(part.document_columns(documents), max_length=3)
    assert numbers.dtype == np.int32
    spelled = [[part.token(part.token_range[n]) if n >= 0 else "-" for n in row] for row in numbers]
    assert spelled == [["b", "a", "b"], ["a", "-", "-"], ["c", "a", "-"]]
    assert (
        part.token_ids(part.document_columns(documents), max_length=5)[0, 3]
        == part.token_ids(part.document_columns(documents), max_length=5)[2, 0]
    )


def test_a_batch_holds_tokens_only_if_asked() -> None:
    assert SparseText.fit(items("a b"), None, SparseTextConfig()).batch(items("a")).tokens is None
    part, documents, labels = SparseText.fit_batches(items("a b", "b"), items("b b b"), SparseTextConfig(max_tokens=2))
    assert labels is not None
    for batch, source in ((documents, part.batch(items("a b", "b"))), (labels, part.label_batch(items("b b b")))):
        assert source is not None
        assert_same(batch.sparse, source.sparse)
        assert batch.tokens is not None
        assert source.tokens is not None
        assert batch.tokens.tolist() == source.tokens.tolist()
    tokens = part.batch_of_texts(["b"]).tokens
    assert tokens is not None
    assert tokens.tolist() == [[part.token_ids(part.document_columns(items("b")), 1)[0, 0], -1]]


def test_token_numbers_without_words_are_refused() -> None:
    part = SparseText.fit(items("a b"), None, SparseTextConfig(words=False, min_count_rest=1))
    with pytest.raises(ConfigError, match="token numbers"):
        part.token_ids(part.document_columns(items("a")), 3)


# ---- the same everywhere ----


CORPUS = [
    f"{'Ünïcode' if n % 7 == 0 else 'plain'} title number {n} about topic {n % 13} and {n * 7919 % 101}"
    for n in range(300)
]
ALL_KINDS = SparseTextConfig(subwords="chars", char_sizes=(3, 4))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[SparseText, Any, Path]:
    part, rows, _ = SparseText.fit_transform(items(*CORPUS), items("topic 5"), ALL_KINDS)
    save_part(part, tmp_path / "part")
    return part, rows, tmp_path / "part"


def test_a_saved_vocabulary_gives_the_same_rows(saved: tuple[SparseText, Any, Path], tmp_path: Path) -> None:
    part, rows, folder = saved
    again = load_part(folder)
    assert_same(again.transform(items(*CORPUS)), rows)
    assert again.config == part.config
    assert list(again.tokens) == list(part.tokens)
    save_part(again, tmp_path / "again")
    for file in folder.rglob("*.*"):
        assert (tmp_path / "again" / file.relative_to(folder)).read_bytes() == file.read_bytes()


def test_threads_and_blocks_do_not_change_a_bit(
    monkeypatch: pytest.MonkeyPatch, saved: tuple[SparseText, Any, Path]
) -> None:
    part, rows, _ = saved
    for threads, block in ((1, 1 << 19), (1, 40), (4, 40), (3, 4000)):
        monkeypatch.setattr(numba, "get_num_threads", lambda threads=threads: threads)
        monkeypatch.setattr(reading, "BLOCK_CHARACTERS", block)
        other, other_rows, _ = SparseText.fit_transform(items(*CORPUS), items("topic 5"), ALL_KINDS)
        assert_same(other_rows, rows)
        assert_same(other.transform(items(*CORPUS)), rows)
        assert other.tokens.blob.tobytes() == part.tokens.blob.tobytes()
        assert other.idf.tobytes() == part.idf.tobytes()
        assert (
            other.token_ids(other.document_columns(items(*CORPUS)), 6).tobytes()
            == part.token_ids(part.document_columns(items(*CORPUS)), 6).tobytes()
        )


def test_an_error_on_another_thread_arrives_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba, "get_num_threads", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        list(reading.in_order(lambda n: 1 // n, [1, 2, 0, 3]))


def test_many_threads_may_ask_at_once(saved: tuple[SparseText, Any, Path]) -> None:
    part, rows, _ = saved
    with ThreadPoolExecutor(4) as pool:
        for matrix in pool.map(lambda _: part.transform_texts(CORPUS), range(20)):
            assert_same(matrix, rows)


def test_results_come_in_order_from_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba, "get_num_threads", lambda: 4)
    assert list(reading.in_order(lambda n: n * n, range(50))) == [n * n for n in range(50)]


def test_kernels_are_compiled_once_for_fitted_and_loaded(saved: tuple[SparseText, Any, Path]) -> None:
    """A second signature (say, writable arrays beside read-only ones) would double the wait on a new machine."""
    part, _, folder = saved
    for used in (part, load_part(folder)):
        used.transform_texts(["one text"])
        used.transform(items(*CORPUS))
        used.token_ids(used.document_columns(items("one text")), 3)
    for name in ("bags", "weigh", "token_numbers", "count_keys", "spell"):
        assert len(getattr(sparse_kernels, name).signatures) == 1, name


def test_opening_needs_neither_numba_nor_torch(saved: tuple[SparseText, Any, Path]) -> None:
    code = (
        "import sys; from pathlib import Path; from longtail.persistence import load_part; part = "
        "load_part(Path(sys.argv[1]));"
        "assert part.width; assert not {'numba', 'torch', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(saved[2])], check=True)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fields": ("titel",)}, "no field 'titel'.*they have: title"),
        ({"words": False, "pairs": False}, "all switched off"),
        ({"subwords": "chars", "char_sizes": ()}, "char_sizes"),
        ({"weights": (1.0, 2.0)}, "2 numbers for 1 fields"),
        ({"weights": (0.0,)}, "above 0"),
        ({"weights": (math.inf,)}, "above 0"),
        ({"weights": (math.nan,)}, "above 0"),
        ({"label_weights": (1.0,)}, "label_weights has 1 numbers for 0 fields"),
        ({"label_fields": ("name",)}, "labels have no field 'name'.*they have: title"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SparseText.fit(items("a"), items("a"), SparseTextConfig(**change))


def test_documents_without_any_field_are_refused() -> None:
    with pytest.raises(ConfigError, match="fields is empty"):
        SparseText.fit(Items(["d"]), None, SparseTextConfig())


def test_what_is_read_where_the_settings_do_not_say_it() -> None:
    auto = SparseTextConfig()
    assert auto.for_documents(items(title=["a"], content=["b"])).fields == ("title",)
    assert auto.for_documents(items(headline=["a"], story=["b"])).fields == ("headline", "story")
    assert auto.for_documents(items(title=["", ""], text=["", "b"], empty=["", ""])).fields == ("text",)
    assert auto.for_documents(items(title=[""], text=[""])).fields == ("title",)
    assert SparseText.fit(items(headline=["a"], story=["b"]), None, auto).fields == ("headline", "story")
    columns = Columns(("headline", "story"), (2.0, 1.0), "labels")
    chosen = auto.for_columns(columns)
    assert (chosen.fields, chosen.weights) == (("headline", "story"), (2.0, 1.0))
    assert auto.for_columns(None) == auto
    named = SparseTextConfig(fields=("story",))
    assert named.for_columns(columns) == named == named.for_documents(items(title=["a"]))
    assert SparseTextConfig(weights=(1.0, 5.0)).for_columns(columns).weights == (1.0, 5.0)


def test_the_title_of_a_label_is_read_whatever_the_text_of_documents_is_called() -> None:
    config = SparseTextConfig(fields=("product_name",), weights=(2.0,), pairs=False, idf=False)
    part = SparseText.fit(items(product_name=["a b"]), items(title=["a"]), config)
    assert as_rows(part, part.transform(items(title=["a"]), "labels")) == [{("word", "a"): 1.0}]
    both = items(product_name=["b"], title=["a"])
    assert as_rows(part, part.transform(both, "labels"))[0].keys() == {("word", "a"), ("word", "b")}


def test_labels_that_share_no_field_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"none of the fields title.*they have: name"):
        SparseText.fit(items("a"), items(name=["a"]), SparseTextConfig())


@pytest.mark.parametrize("subwords", ["none", "chars", "wordpiece"])
def test_texts_without_any_feature_are_refused(subwords: Any) -> None:
    with pytest.raises(DataError, match="no feature is left of 2 documents"):
        SparseText.fit(items("", "..."), None, SparseTextConfig(subwords=subwords))


def spoil(folder: Path, name: str, change: Any) -> None:
    from longtail.persistence import map_arrays, write_arrays

    arrays = {key: np.array(value) for key, value in map_arrays(folder / "arrays.safetensors").items()}
    arrays[name] = change(arrays[name])
    write_arrays(folder / "arrays.safetensors", arrays)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("keys", lambda keys: keys[::-1].copy()),
        ("keys", lambda keys: keys.astype(np.int64)),
        ("keys", lambda keys: keys[:, None]),
        ("idf", lambda idf: idf[:-1]),
        ("class_starts", lambda starts: starts + 1),
        ("classes", lambda classes: classes + 7),
    ],
)
def test_an_altered_vocabulary_is_refused(saved: tuple[SparseText, Any, Path], name: str, change: Any) -> None:
    spoil(saved[2], name, change)
    with pytest.raises(BundleError):
        load_part(saved[2])


@pytest.mark.parametrize("config", [{"unknown": 1}, {"fields": []}, {"min_count": 0}, 3])
def test_altered_settings_are_refused(saved: tuple[SparseText, Any, Path], config: Any) -> None:
    head = json.loads((saved[2] / "part.json").read_text())
    head["values"]["config"] = config
    (saved[2] / "part.json").write_text(json.dumps(head))
    with pytest.raises(BundleError):
        load_part(saved[2])


def test_a_part_in_the_place_of_tokens_is_refused(saved: tuple[SparseText, Any, Path]) -> None:
    (saved[2] / "tokens" / "part.json").write_text('{"format": 2, "kind": "none"}')
    with pytest.raises(BundleError, match="'tokens' is a NoneType, expected StringTable"):
        load_part(saved[2])


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(reading.blocks([["a", "b"], ["c"]]))


def test_blocks_keep_every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK_CHARACTERS", 500)
    texts = [f"text {n}" for n in range(1000)]
    found = list(reading.blocks([texts]))
    assert len(found) > 3
    assert [text for block in found for text in block] == texts


# ---- documents that come in parts ----


def test_parts_give_the_vocabulary_of_the_whole() -> None:
    words = [f"w{n * n % 37} w{n % 11} common" for n in range(200)]
    config = SparseTextConfig(fields=("title",), subwords="chars", damping=2.0, min_count_rest=2)
    whole = SparseText.fit(items(*words), items("w3 label", "w4"), config)
    parts = [items(*words[start : start + 37]) for start in range(0, 200, 37)]
    found, counted = SparseText.fit_parts(parts, lambda: items("w3 label", "w4"), config, room=1 << 20)
    assert found.tokens[:] == whole.tokens[:]
    assert np.array_equal(found.keys, whole.keys)
    assert np.array_equal(found.idf, whole.idf)
    rows = whole.transform(items(*words))
    assert counted == (200, rows.nnz, 0)


def test_the_first_part_says_what_is_read_and_others_may_lack_it() -> None:
    parts = [items(title=["a b"], content=["c"]), items(content=["d"])]
    found, _ = SparseText.fit_parts(parts, lambda: Items([]), SparseTextConfig(), room=100)
    assert found.fields == ("title",)
    assert set(found.tokens[:]) == {"a", "b"}
    with pytest.raises(ConfigError, match="no field 'summary'"):
        SparseText.fit_parts(parts, lambda: Items([]), SparseTextConfig(fields=("summary",)), room=100)


def test_the_rarest_features_are_forgotten_where_there_is_no_room() -> None:
    rng = np.random.default_rng(0)
    rare = [f"rare{n}" for n in range(3000)]
    texts = [" ".join(["often", *(["half"] if n % 2 else []), rare[n]]) for n in range(3000)]
    config = SparseTextConfig(fields=("title",), pairs=False)
    order = rng.permutation(3000)
    parts = [items(*(texts[n] for n in order[start : start + 50])) for start in range(0, 3000, 50)]
    found, counted = SparseText.fit_parts(parts, lambda: Items([]), config, room=200)
    assert 0 < counted.forgotten < 30
    assert found.width <= 200
    assert {"often", "half"} <= set(found.tokens[:])
    documents = {token: 3001 / math.exp(float(idf) - 1) - 1 for token, idf in zip(found.tokens, found.idf, strict=True)}
    assert documents["often"] == pytest.approx(3000, abs=counted.forgotten + 0.1)
    assert documents["half"] == pytest.approx(1500, abs=counted.forgotten + 0.1)
    assert [found.tokens[n] for n in found.transform(items("half often")).indices] == [
        token for token in found.tokens if token in ("often", "half")
    ]
