"""The native API against a real process: answers are those of `Predictor`, and what is wrong is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.serve.servers import Server, start

from longtail import Dataset, Predictor
from longtail.calibrating import calibrate, undo

TEXTS = ["an owl and a pig", "the frog noise3", "zzz", "", "cat dog bee ant"]


@pytest.fixture(scope="module")
def tiny(tiny_run: Path) -> Predictor:
    return Predictor.open(tiny_run)


@pytest.fixture(scope="module")
def direct(direct_run: Path) -> Predictor:
    return Predictor.open(direct_run)


def pairs(results: list[Any]) -> list[tuple[str, float]]:
    return [(one["label"], one["score"]) for one in results]


@pytest.mark.parametrize("k", [1, 3, 100])
def test_answers_are_those_of_the_predictor(server: Server, tiny: Predictor, k: int) -> None:
    answer = server.predict("tiny", TEXTS, k=k).json()
    expected = tiny.predict(TEXTS, k=k)
    assert [pairs(found) for found in answer["results"]] == [[(p.label, p.score) for p in one] for one in expected]
    assert [[one["name"] for one in found] for found in answer["results"]] == [
        [p.name for p in one] for one in expected
    ]
    assert answer["model"] == "tiny"
    assert tiny.bundle.manifest["manifest_sha256"].startswith(answer["version"])
    first = answer["results"][0][0]
    assert first["documents"] == tiny.bundle.labels.counts[list(tiny.labels).index(first["label"])]
    assert first["rare"] is False


def test_a_threshold_leaves_labels_out(server: Server, tiny: Predictor) -> None:
    (everything,) = server.predict("tiny", TEXTS[:1], k=12).json()["results"]
    lowest = everything[1]["score"]
    (found,) = server.predict("tiny", TEXTS[:1], k=12, threshold=lowest).json()["results"]
    assert pairs(found) == pairs(everything[:2])
    assert server.predict("tiny", TEXTS[:1], threshold=2).json()["results"] == [[]]


def test_excluded_and_allowed_labels_are_exact(server: Server, direct: Predictor) -> None:
    text = "an owl and a pig"
    everything = [(p.label, p.score) for p in direct.predict([text], k=12)[0]]
    out = [everything[0][0], everything[2][0]]
    (found,) = server.predict("direct", [text], k=5, exclude=out).json()["results"]
    assert [label for label, _ in pairs(found)] == [label for label, _ in everything if label not in out][:5]
    allowed = [label for label, _ in everything[-3:]]
    (found,) = server.predict("direct", [text], k=2, allow=allowed).json()["results"]
    assert [label for label, _ in pairs(found)] == allowed[:2]
    (found,) = server.predict("direct", [text], k=5, allow=allowed, exclude=allowed[:1]).json()["results"]
    assert [label for label, _ in pairs(found)] == allowed[1:]
    assert server.predict("direct", [text], allow=[]).json()["results"] == [[]]


def test_why(server: Server, direct: Predictor) -> None:
    (found,) = server.predict("direct", ["owl pig noise3"], k=2, explain=True).json()["results"]
    expected = direct.explain(["owl pig noise3"], k=2, examples=True)[0]
    assert [one["label"] for one in found] == [one.label for one in expected]
    for name in ("words", "examples", "formula", "bias"):
        assert [one["why"][name] for one in found] == [one.as_json()[name] for one in expected]
    assert found[0]["why"]["examples"]
    (beside,) = server.predict("direct", ["owl pig noise3", "zzz"], k=2, explain=True).json()["results"][1:]
    assert beside == direct.predict(["zzz"])[0]


def test_answers_have_a_size(server: Server) -> None:
    """Also where each number by itself is allowed: what is formatted would hold up everybody else."""
    for much in (
        {"texts": ["owl"] * 900, "k": 1000},
        {"texts": ["owl"] * 300, "k": 5, "explain": True},
        {"texts": ["owl " * 20_000], "k": 100, "explain": True},
    ):
        answer = server.post("/api/v1/models/tiny/predict", much)
        assert answer.status_code == 413, answer.text[:200]
    assert server.predict("tiny", ["owl " * 2_500], k=5, explain=True).status_code == 200
    long = server.predict("tiny", ["owl pig"] * 800, k=12).json()["results"]
    assert len(long) == 800
    assert all(one == long[0] for one in long)


def test_known_labels_where_the_model_can_use_them(tmp_path: Path, context_run: Path, server: Server) -> None:
    model = Predictor.open(context_run)
    running = start(tmp_path, context_run)
    try:
        (about,) = running.get("/api/v1/models").json()["models"]
        assert about["abilities"]["known"]
        texts, known = ["cat noise1", "dog noise2"], [["id-cat"], []]
        answer = running.predict("galaxc", texts, k=4, known=known).json()
        expected = model.predict(texts, k=4, known_labels=known)
        assert [pairs(found) for found in answer["results"]] == [[(p.label, p.score) for p in one] for one in expected]
        assert running.predict("galaxc", texts, known=[["id-cat"], ["nonsense"]]).status_code == 400
    finally:
        running.stop()
    refused = server.predict("tiny", ["cat"], known=[["id-cat"]])
    assert refused.status_code == 400
    assert "reads text alone" in refused.json()["detail"]


def test_lines_for_large_batches(server: Server, tiny: Predictor) -> None:
    texts = [f"cat dog noise{number % 50}" for number in range(1500)]
    url, accept = "/api/v1/models/tiny/predict", {"Accept": "application/x-ndjson"}
    assert server.post(url, {"texts": texts}).status_code == 413
    answer = server.post(url, {"texts": texts, "k": 2}, headers=accept, stream=True)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.iter_lines()]
    expected = tiny.predict(texts, k=2)
    assert [pairs(line["results"]) for line in lines] == [[(p.label, p.score) for p in one] for one in expected]


def test_models(server: Server, tiny: Predictor) -> None:
    listed = server.get("/api/v1/models").json()["models"]
    assert [one["name"] for one in listed] == ["tiny", "direct"]
    one = server.get("/api/v1/models/tiny").json()
    assert {name: one[name] for name in listed[0]} == listed[0]
    assert one["recipe"] == "tiny"
    assert one["labels"] == len(tiny.labels) == sum(part["labels"] for part in one["frequencies"])
    assert one["settings"]["classify"]["neighbours"] == 50
    assert one["abilities"] == {
        "explain": True,
        "known": False,
        "neighbours": True,
        "examples": True,
        "calibrated": False,
        "corrections": False,
    }


LINES = {"Accept": "application/x-ndjson"}


def streamed(server: Server, path: str) -> list[Any]:
    answer = server.get(path, headers=LINES, stream=True)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.iter_lines()]


def test_models_and_labels_are_streamed(server: Server, tiny: Predictor) -> None:
    listed = server.get("/api/v1/models").json()["models"]
    assert streamed(server, "/api/v1/models") == listed
    whole = [server.get(f"/api/v1/models/{one['name']}").json() for one in listed]
    assert streamed(server, "/api/v1/models?details=true") == whole
    assert server.get("/api/v1/models?details=true").json()["models"] == whole
    assert streamed(server, "/api/v1/models/tiny") == whole[:1]

    under = "/api/v1/models/tiny/labels"
    every = streamed(server, under)
    assert sorted(one["label"] for one in every) == sorted(tiny.labels)
    assert every == server.get(f"{under}?limit=1000").json()["labels"]
    assert streamed(server, f"{under}?limit=2") == every[:2]
    assert [one["label"] for one in streamed(server, f"{under}?q=owl")] == ["id-owl"]
    pages = streamed(server, f"{under}?details=true")
    assert pages == [server.get(f"/api/v1/models/tiny/label?id={one['label']}").json() for one in every]
    assert server.get(f"{under}?details=true&limit=3").json()["labels"] == pages[:3]
    for wrong in ("details=1", "details=", "limit=0", "limit=x"):
        assert server.get(f"{under}?{wrong}", headers=LINES).status_code == 400, wrong
    assert server.get("/api/v1/models?details=yes").status_code == 400


def test_a_stream_of_more_labels_than_are_looked_at_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    from longtail.bundle import LabelTable
    from longtail.data.dataset import Items
    from longtail.serve import label_search

    monkeypatch.setattr(label_search, "_MOST", 10)
    labels = Items([f"id {n}" for n in range(100)], {"title": [f"a word {n}" for n in range(100)]})
    search = label_search.LabelSearch(LabelTable.of(labels, np.zeros(100, dtype=np.int64)))
    assert sorted(search.find("word", 100)) == list(range(100))
    assert len(search.find("ord", 60)) == 60
    assert len(search.find("word", 5)) == 5


def test_labels_are_found_by_name_and_id(server: Server) -> None:
    def found(text: str, limit: int = 20) -> list[str]:
        answer = server.get("/api/v1/models/tiny/labels", params={"q": text, "limit": limit}).json()
        return [one["label"] for one in answer["labels"]]

    assert found("OWL") == ["id-owl"]
    assert set(found("id-b")) == {"id-bird", "id-bee"}
    assert set(found("the", 3)) <= {f"id-{name}" for name in ("cat", "owl", "pig", "hen", "frog", "goat")}
    assert len(found("", 5)) == 5
    assert found("nothing like it") == []
    # Words that begin so come before those that only hold it.
    assert found("og") == ["id-frog", "id-dog"]
    assert found("o")[0] == "id-owl"


def test_a_label_in_full(server: Server, planted_folder: Path, tiny: Predictor) -> None:
    one = server.get("/api/v1/models/tiny/label", params={"id": "id-owl"}).json()
    assert one["name"] == one["text"] == "the owl"
    company = tiny.bundle.company()
    number = list(tiny.labels).index("id-owl")
    assert [near["label"] for near in one["neighbours"]] == [tiny.labels[n] for n, _ in company.neighbours_of(number)]
    assert len(one["examples"]) == 3
    assert all("owl" in example["text"] for example in one["examples"])
    missing = server.get("/api/v1/models/tiny/label", params={"id": "id-dragon"})
    assert missing.status_code == 404
    assert "id-dragon" in missing.json()["detail"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([], "the body is a list of length 0, expected an object"),
        ({"texts": {"a": 1, "b": 2}}, "texts is an object of length 2"),
        ({}, "texts is missing"),
        ({"texts": "owl"}, "expected a list"),
        ({"texts": [1]}, "texts[0] is 1"),
        ({"texts": ["owl"], "k": 0}, "k is 0"),
        ({"texts": ["owl"], "k": True}, "k is True"),
        ({"texts": ["owl"], "k": 2.5}, "k is 2.5"),
        ({"texts": ["owl"], "threshold": "high"}, "threshold"),
        ({"texts": ["owl"], "threshold": 10**400}, "threshold"),
        ({"texts": ["owl"], "allow": "id-owl"}, "allow"),
        ({"texts": ["owl"], "allow": ["id-dragon"]}, "id-dragon"),
        ({"texts": ["owl"], "exclude": [1]}, "exclude"),
        ({"texts": ["owl"], "known": [[], []]}, "known"),
        ({"texts": ["owl"], "explain": "yes"}, "explain"),
        ({"texts": ["owl"], "top": 3}, "unknown field"),
        ({"texts": ["\ud800"]}, "not Unicode"),
    ],
)
def test_what_is_wrong_is_said(server: Server, body: Any, reason: str) -> None:
    answer = server.post("/api/v1/models/tiny/predict", body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == 400
    assert reason in problem["detail"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"texts": ["owl"]', "application/json", 400),
        (b"\xff\xfe\x00", "application/json", 400),
        (b'{"texts": ["owl"], "threshold": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        # A thread has more room than the event loop: what was read there cannot be walked through here.
        (b" " * 210_000 + b"[" * 980 + b"]" * 980, "application/json", 400),
        (b" " * 210_000 + b'{"texts":' + b"[" * 970 + b"]" * 970 + b"}", "application/json", 400),
        (b'{"texts": [' + b"9" * 5000 + b"]}", "application/json", 400),
        (b"text=owl", "application/x-www-form-urlencoded", 415),
        (b"", "application/json", 400),
    ],
)
def test_bodies_that_are_no_request(server: Server, body: bytes, kind: str, status: int) -> None:
    answer = server.session.post(
        f"{server.url}/api/v1/models/tiny/predict", data=body, headers={"Content-Type": kind}, timeout=30
    )
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_paths_that_lead_nowhere(server: Server) -> None:
    for path, status in {
        "/api/v1/models/nothing": 404,
        "/api/v1/models/..%2f..%2fetc%2fpasswd": 404,
        "/page/../native.py": 404,
        "/page/%2e%2e/native.py": 404,
        "/page//etc/passwd": 404,
        "/api/v1/models/tiny/predict": 405,
        "/%00": 404,
    }.items():
        answer = server.get(path)
        assert (path, answer.status_code) == (path, status)
        assert answer.json()["status"] == status
    assert server.get("/api/v1/models/tiny/predict").headers["allow"] == "POST"


def test_a_calibrated_model_says_so_and_takes_a_precision(
    server: Server, tiny_run: Path, planted: Dataset, tmp_path: Path
) -> None:
    refused = server.predict("tiny", TEXTS, precision=0.8)
    assert refused.status_code == 400
    assert "not calibrated" in refused.json()["detail"]
    run = shutil.copytree(tiny_run, tmp_path / "run")
    calibrate(run, planted, on_test=True)
    model = Predictor.open(run)
    running = start(tmp_path, f"sure={run}", "--watch")
    try:
        about = running.get("/api/v1/models/sure").json()
        assert about["abilities"]["calibrated"] is True
        assert about["calibration"]["method"] == model.bundle.manifest["calibration"]["method"]
        answer = running.predict("sure", TEXTS, k=12, precision=0.8).json()
        expected = model.predict(TEXTS, k=12, precision=0.8)
        assert [pairs(found) for found in answer["results"]] == [[(p.label, p.score) for p in one] for one in expected]
        for wrong in (
            {"precision": 2},
            {"precision": "much"},
            {"precision": True},
            {"precision": 0.8, "threshold": 0.1},
        ):
            assert running.predict("sure", TEXTS, **wrong).status_code == 400
        annif = running.post("/v1/projects/sure/suggest", data={"text": TEXTS[0]}).json()["results"]
        assert [one["score"] for one in annif] == [p.score for p in model.predict(TEXTS[:1], k=10)[0]]
        undo(run)
        expected = Predictor.open(run).predict(TEXTS[:1])
        running.wait_for(lambda: running.get("/api/v1/models/sure").json()["abilities"]["calibrated"] is False)
        answer = running.predict("sure", TEXTS[:1]).json()
        assert [pairs(found) for found in answer["results"]] == [[(p.label, p.score) for p in one] for one in expected]
    finally:
        running.stop()
