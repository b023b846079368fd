"""Why this label: what `Predictor.explain` and `longtail predict --explain` say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail import explaining
from longtail.cli import main
from longtail.data.dataset import Dataset, Items
from longtail.errors import ConfigError
from longtail.explanation import Explanation, FeatureShare, OtherShare, WordShare
from longtail.models.encoders import EmbeddingMap, FrozenBag, FrozenMlp, FrozenSum, FrozenUnit, FullMap, ResidualMap
from longtail.models.rankers import IndexedRows
from longtail.predictor import Predictor
from longtail.search.index import build_index
from longtail.search.packed import PackedRows
from longtail.search.shortlist import Game
from longtail.types import Batch, Csr

RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def chars_run(tmp_path_factory: pytest.TempPathFactory, planted_folder: Path) -> Path:
    """`direct` with parts of words as features, over two fields."""
    run = tmp_path_factory.mktemp("runs") / "chars"
    settings = {
        "train": {"epochs": 3},
        "encoder": {"width": 32},
        "features": {"subwords": "chars", "min_count_rest": 1},
        "memory": {"weight": 0.0},  # the score is that of the words alone
    }
    longtail.train(planted_folder, run, "direct", settings=settings, device="cpu")
    return run


def added(why: Explanation) -> float:
    return why.bias + sum(word.share for word in why.words) + sum(other.share for other in why.others)


# ---- numbers ----


def random_batch(documents: int = 5, width: int = 30) -> Batch:
    from scipy.sparse import csr_array

    dense = RNG.random((documents, width)) * (RNG.random((documents, width)) < 0.3)
    dense[-1] = 0
    return Batch(sparse=csr_array(dense.astype(np.float32)))


def table(width: int = 30, numbers: int = 8) -> np.ndarray:
    return RNG.standard_normal((width, numbers)).astype(np.float32)


def square(numbers: int = 8) -> np.ndarray:
    return RNG.standard_normal((numbers, numbers)).astype(np.float32)


ENCODERS: dict[str, Callable[[], Any]] = {
    "sum": lambda: FrozenSum(table()),
    "bag": lambda: FrozenBag(table()),
    "int8": lambda: FrozenBag(PackedRows.of(table(), "int8", RNG.random(30) < 0.8)),
    "int4": lambda: FrozenSum(PackedRows.of(table(), "int4")),
    "float16": lambda: FrozenSum(PackedRows.of(table(), "float16")),
    "mlp": lambda: FrozenMlp(table(), table(1)[0], square(), table(1)[0]),
    "unit": lambda: FrozenUnit(FrozenSum(table()), EmbeddingMap(square(), 0.5, False)),
}
MAPS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "residual": lambda: ResidualMap(square()),
    "full": lambda: FullMap(square()),
    "embedding": lambda: EmbeddingMap(square(), 0.7),
    "embedding-signed": lambda: EmbeddingMap(square(), 0.7, False),
}


@pytest.mark.parametrize("refinement", MAPS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_number_of_the_log_odds_belongs_to_a_feature(encoder: str, refinement: str) -> None:
    rows = table(6, 9)
    ranker = IndexedRows(ENCODERS[encoder](), MAPS[refinement](), build_index(rows, "exact", similarity="dot"))
    batch = random_batch()
    x: Csr = batch.sparse
    ids = np.tile(np.arange(6, dtype=np.int32), (5, 1))
    ids[0, 2] = -1
    reasons = ranker.explain(batch, ids)
    assert reasons is not None
    sums = np.add.reduceat(np.vstack([reasons.shares, np.zeros((1, 6))]), x.indptr[:-1])
    sums[np.diff(x.indptr) == 0] = 0
    expected = ranker.queries(batch) @ rows.T
    expected[0, 2] = 0
    np.testing.assert_allclose(sums + reasons.bias, expected, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(reasons.totals, expected, atol=1e-4, rtol=1e-4)
    assert not reasons.found[0, 2]
    assert not reasons.found[-1].any(), "of a document without a known word nothing can be said"
    np.testing.assert_allclose(ranker.scores_of(batch, ids, 6), reasons.scores, atol=1e-6)
    assert (reasons.scores[~reasons.found] == 0).all()


def test_a_label_gets_what_its_neighbours_give() -> None:
    from scipy.sparse import csr_array

    graph = csr_array(RNG.random((6, 6)) * (RNG.random((6, 6)) < 0.6)).astype(np.float32)
    ids = np.array([[4, 0, -1, 2], [1, -1, 5, 3]], np.int32)
    scores = np.array([[0.5, 0.2, 0.0, 0.9], [0.3, 0.0, 0.8, 0.1]], np.float32)
    rows, places = np.nonzero(ids >= 0)
    for game in (Game(graph), Game(graph, 0.3), Game(graph, 0.5, transpose=True)):
        pairs, givers, amounts = game.given_to(rows, ids[rows, places], ids, scores)
        np.testing.assert_allclose(
            np.bincount(pairs, amounts, minlength=len(rows)), game.within(ids, scores)[rows, places], atol=1e-6
        )
        matrix = graph.toarray().T if game.transpose else graph.toarray()
        for pair, giver, amount in zip(pairs, givers, amounts, strict=True):
            row, node = rows[pair], ids[rows[pair], places[pair]]
            own = scores[row][ids[row] == giver].sum()
            kept = (1 - game.mix) * own if giver == node else 0
            assert giver == node or amount == pytest.approx(game.mix * matrix[node, giver] * own + kept, abs=1e-6)


# ---- texts ----


def test_words_of_random_texts_add_up(chars_run: Path, planted: Dataset) -> None:
    model = Predictor.open(chars_run)
    known = sorted({word for title in planted.train.documents.titles() for word in title.split()})
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice([*known, "Ünknown", "CAT", "ﬁne"], rng.integers(1, 12))) for _ in range(60)]
    answers = model.explain(texts, k=4)
    predicted = model.predict(texts, k=4)
    for text, answer, found in zip(texts, answers, predicted, strict=True):
        assert [(why.label, why.name) for why in answer] == [(one.label, one.name) for one in found]
        for why, one in zip(answer, found, strict=True):
            assert why.score == pytest.approx(one.score, abs=1e-5)
            assert added(why) == pytest.approx(why.total, abs=1e-3)
            assert 1 / (1 + np.exp(-why.total)) == pytest.approx(why.score, abs=1e-5)
            assert [text[word.start : word.end] for word in why.words] == text.split()
            assert [word.text for word in why.words] == text.split()
    # An unknown word has no share of its own.
    shares = {word.text: word.share for why in model.explain(["cat qqqq"])[0] for word in why.words}
    assert shares["qqqq"] == 0
    assert shares["cat"] != 0


def test_features_are_behind_words_on_request(chars_run: Path) -> None:
    model = Predictor.open(chars_run)
    (plain,), (whole,) = model.explain("the cat", k=2), model.explain("the cat", k=2, features=True)
    assert all(not word.features for why in plain for word in why.words)
    for why in whole:
        for word in why.words:
            assert sum(one.share for one in word.features) == pytest.approx(word.share, abs=1e-5)
            strengths = [abs(one.share) for one in word.features]
            assert strengths == sorted(strengths, reverse=True)
        cat = {one.text: one.kind for one in why.words[1].features}
        assert cat["cat"] == "word"
        assert cat["<cat"] == "chars"
        assert cat["the cat"] == "pair"


def test_several_fields_keep_their_own_positions(tmp_path: Path, planted: Dataset) -> None:
    rows = [
        f"{title},{'' if n % 2 else 'about the ' + title},{label}"
        for n, (title, label) in enumerate(
            (title, title.split()[0]) for title in planted.train.documents.titles() if "," not in title
        )
    ]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["title,body,labels", *rows]) + "\n")
    model = longtail.train(
        data,
        tmp_path / "run",
        "direct",
        text="title:2,body",
        labels="labels",
        settings={"train": {"epochs": 1}, "encoder": {"width": 16}},
        device="cpu",
    )
    document = {"title": "Cat", "body": "the old cat and THE cat"}
    ((why,),) = model.explain([document], k=1)
    assert [(word.field, word.text) for word in why.words] == [
        ("title", "Cat"),
        *(("body", word) for word in ("the", "old", "cat", "and", "THE", "cat")),
    ]
    assert all(document[word.field][word.start : word.end] == word.text for word in why.words)
    assert added(why) == pytest.approx(why.total, abs=1e-4)
    # The same word counts twice as much where its field does.
    ((whole,),) = model.explain([document], k=1, features=True)
    shares = [one.share for word in whole.words for one in word.features if one.text == "cat"]
    assert len(shares) == 3
    assert shares[0] == pytest.approx(2 * shares[1])
    assert shares[1] == pytest.approx(shares[2])


def test_plain_texts_and_labels_that_are_asked_for(direct_run: Path) -> None:
    model = Predictor.open(direct_run)
    assert model.explain([]) == []
    assert model.explain("an owl", k=1)[0][0].label == model.predict("an owl", k=1)[0][0].label
    first, second = model.explain(["an owl", "a cat"], labels=["id-dog", "id-cat"])
    assert [why.label for why in first] == [why.label for why in second] == ["id-dog", "id-cat"]
    scores = {one.label: one.score for one in model.predict(["a cat"], k=100)[0]}
    assert [why.score for why in second] == [
        pytest.approx(scores["id-dog"], abs=1e-5),
        pytest.approx(scores["id-cat"], abs=1e-5),
    ]
    assert model.explain(["an owl"], threshold=2.0) == [[]]
    for arguments, message in (
        ({"k": 0}, "k is 0"),
        ({"labels": "id-dog"}, "expected a list of ids"),
        ({"labels": ["id-dgo"]}, "'id-dgo' is not a label"),
        ({"known_labels": [["id-dog"]]}, "reads text alone"),
    ):
        with pytest.raises(ConfigError, match=message):
            model.explain(["an owl"], **arguments)
    with pytest.raises(ConfigError, match="text 1 is 3"):
        model.explain(["an owl", 3])


def test_occlusion_has_a_limit_and_says_so(direct_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Predictor.open(direct_run)
    monkeypatch.setattr(IndexedRows, "explain", lambda *arguments: None)
    monkeypatch.setattr(explaining, "MOST_WORDS", 3)
    monkeypatch.setattr(explaining, "_SCORES", 24)  # two variants at a time
    texts = ["the cat and the dog", "an owl", ""]
    first, second, third = model.explain(texts, k=2)
    assert third == []
    assert [word.text for word in first[0].words] == ["the", "cat", "and"]
    assert first[0].predictions == 3
    assert first[0].note == "only the first 3 of 5 words were left out in turn"
    assert second[0].predictions == 2
    assert second[0].note == ""
    for text, answer in ((texts[0], first), (texts[1], second)):
        for why in answer:
            assert why.method == "occlusion"
            assert why.total == why.score
            for word in why.words:
                without = model.predict([text[: word.start] + text[word.end :]], k=100)[0]
                scores = {one.label: one.score for one in without}
                assert word.share == pytest.approx(why.score - scores.get(why.label, 0), abs=1e-6)


# ---- JSON and text ----


def test_an_explanation_is_plain_json() -> None:
    word = WordShare("Cat", "title", 0, 3, 1.5, (FeatureShare("cat", "word", 1.5),))
    other = OtherShare("label", "id", "name", 0.25)
    why = Explanation("l", "n", 0.5, "exact", (word,), -1.0, 0.75, "score = sigmoid(total)", (other,))
    plain = why.as_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["words"] == [
        {
            "text": "Cat",
            "field": "title",
            "start": 0,
            "end": 3,
            "share": 1.5,
            "features": [{"text": "cat", "kind": "word", "share": 1.5}],
        }
    ]
    assert plain["others"] == [{"kind": "label", "id": "id", "name": "name", "share": 0.25}]
    assert set(plain) == set(Explanation.__dataclass_fields__)


def test_the_command_line_shows_words_under_each_label(direct_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(direct_run), "an owl and a cat", "-k", "2", "--explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    (whys,) = Predictor.open(direct_run).explain(["an owl and a cat"], k=2)
    for line, why in zip(lines[2::4], whys, strict=True):
        shown = dict(re.findall(r"(\w+) ([+-]\d+\.\d+)", line))
        for word in why.words[1:2]:
            assert float(shown[word.text]) == pytest.approx(word.share, abs=5e-4)
        assert float(shown["bias"]) == pytest.approx(why.bias, abs=5e-4)
        assert line.endswith(f"(exact, total {why.total:+.3f})")
    for line, why in zip(lines[3::4], whys, strict=True):
        assert line.strip() == f"{why.formula}: {why.terms[0].name} {why.terms[0].share:+.3f}"
    for line, why in zip(
        lines[4::4], Predictor.open(direct_run).explain("an owl and a cat", 2, examples=True)[0], strict=True
    ):
        assert line.strip() == f"seen in: {why.examples[0].text}; {why.examples[1].text}"
    assert main(["predict", str(direct_run), "an owl and a cat", "-k", "1", "--explain-features"]) == 0
    assert "owl [word]" in capsys.readouterr().out


def test_json_lines_have_a_key_why_per_label(direct_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (whys,) = Predictor.open(direct_run).explain(["an owl"], k=2, examples=True)
    assert main(["predict", str(direct_run), "an owl", "-k", "2", "--explain", "--format", "jsonl"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["why"] == [why.as_json() for why in whys]
    assert row["labels"] == [why["label"] for why in row["why"]]
    assert main(["predict", str(direct_run), "an owl", "-k", "2", "--explain", "--format", "jsonl", "--long"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["why"] for row in rows] == [why.as_json() for why in whys]
    assert [row["label"] for row in rows] == [why.label for why in whys]


@pytest.mark.parametrize("format", ["csv", "tsv", "npz"])
def test_tables_have_no_place_for_reasons(
    direct_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    out = tmp_path / f"out.{format}"
    assert main(["predict", str(direct_run), "an owl", "--explain", "--output", str(out)]) == 2
    shown = capsys.readouterr().err
    assert f"{format} has no place for explanations" in shown
    assert "write text or jsonl" in shown
    assert not out.exists()


def test_neighbours_are_named(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(tiny_run), "an owl", "-k", "1", "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "training document" in shown
    assert "score = total" in shown


def test_explaining_needs_no_torch(direct_run: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from longtail.predictor import Predictor\n"
        f"print(Predictor.open({str(direct_run)!r}).explain(['an owl'], k=1)[0][0].method)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "exact", done.stderr


def test_numbers_of_labels_are_explained_for_documents_with_fields(direct_run: Path) -> None:
    model = Predictor.open(direct_run)
    documents = Items(["a", "b"], {"title": ["an owl", "a cat"]})
    ids = np.array([[3, -1], [1, 2]], np.int32)
    first, second = model.explain_labels(documents, ids, block=1)
    assert [why.label for why in first] == [model.labels[3]]
    assert [why.label for why in second] == [model.labels[1], model.labels[2]]


def test_training_documents_that_carry_the_label_nearest_first(direct_run: Path, planted: Dataset) -> None:
    model = Predictor.open(direct_run)
    company = model.bundle.company()
    targets, uids = planted.train.targets, planted.train.documents.uids
    owl = model.labels.index("id-owl")
    texts = [text for _, text in company.examples_of(owl)]
    assert len(set(texts)) > 1
    for wanted in texts:
        ((why,),) = model.explain([wanted], labels=["id-owl"], examples=True)
        assert why.examples[0].text == wanted
        assert sorted(one.text for one in why.examples) == sorted(texts)
        assert all(targets[[list(uids).index(one.id)], owl].sum() for one in why.examples)
    assert model.explain(["an owl"])[0][0].examples == ()
    assert model.explain(["qqqq"], examples=True) == [[]]


def test_a_model_that_keeps_no_examples_names_none(direct_run: Path, tmp_path: Path) -> None:
    model = Predictor.open(direct_run)
    model._company = None  # as of a bundle without the part
    assert model.explain(["an owl"], examples=True) == model.explain(["an owl"])
