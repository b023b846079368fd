"""Clients that others wrote: annif-client, huggingface_hub, and what probes of the Open Inference Protocol ask."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from annif_client import AnnifClient
from huggingface_hub import InferenceClient
from tests.serve.servers import Server, start

from longtail import Predictor
from longtail.serve import annif_api
from longtail.serve.hosted import Given
from longtail.serve.limits import Plan


@pytest.fixture(scope="module")
def direct(direct_run: Path) -> Predictor:
    return Predictor.open(direct_run)


@pytest.fixture
def annif(server: Server) -> AnnifClient:
    return AnnifClient(api_base=f"{server.url}/v1/")


def test_annif_client_sees_projects(annif: AnnifClient, direct: Predictor) -> None:
    assert annif.api_info == {"title": "Annif REST API", "version": "1.4.3"}
    assert [project["project_id"] for project in annif.projects] == ["tiny", "direct"]
    project = annif.get_project("direct")
    assert project["is_trained"] is True
    assert project["vocab"]["size"] == len(direct.labels)
    with pytest.raises(ValueError, match="Project 'nothing' not found"):
        annif.get_project("nothing")


def test_annif_client_is_given_labels(annif: AnnifClient, direct: Predictor) -> None:
    expected = direct.predict(["an owl and a pig"], k=4)[0]
    found = annif.suggest("direct", "an owl and a pig", limit=4)
    assert [(one["uri"], one["label"], one["score"]) for one in found] == [tuple(one) for one in expected]
    assert all(0 < one["score"] <= 1 for one in found)
    lowest = found[1]["score"] - 1e-6
    assert annif.suggest("direct", "an owl and a pig", limit=4, threshold=lowest) == found[:2]
    assert len(annif.suggest("direct", "owl")) == 10
    assert annif.suggest("direct", "owl", limit=0) == []


def test_annif_client_sends_batches(annif: AnnifClient, direct: Predictor) -> None:
    documents = [{"text": "owl", "document_id": "a"}, {"text": "pig noise1"}]
    found = annif.suggest_batch("direct", documents, limit=2)
    expected = direct.predict(["owl", "pig noise1"], k=2)
    assert [[one["uri"] for one in each["results"]] for each in found] == [[p.label for p in one] for one in expected]
    assert [each["document_id"] for each in found] == ["a", None]
    with pytest.raises(requests.HTTPError, match="400"):
        annif.suggest_batch("direct", [{"text": "owl"}] * 33)


def test_annif_client_may_not_teach(annif: AnnifClient) -> None:
    with pytest.raises(requests.HTTPError, match="403"):
        annif.learn("direct", [{"text": "owl", "subjects": [{"uri": "id-owl", "label": "the owl"}]}])


def test_annif_client_asks_for_languages(annif: AnnifClient) -> None:
    found = annif.detect_language("this is the language that most of the web is in", ["fi", "en"])
    assert [one["language"] for one in found["results"]] == ["en", "fi", None]
    unknown = annif.detect_language("zzz qqq", ["fi", "en"])["results"][0]
    assert unknown == {"language": None, "score": 1.0}
    with pytest.raises(requests.HTTPError, match="400"):
        annif.detect_language("text", ["xx"])


def test_annif_answers_as_annif_does(server: Server) -> None:
    for path in ("/v1", "/v1/"):
        assert server.get(path).json()["title"] == "Annif REST API"
    assert server.get("/v1/vocabs").json()["vocabs"][0]["vocab_id"] == "tiny"
    missing = server.get("/v1/projects/nothing")
    assert missing.json() == {
        "type": "about:blank",
        "title": "Project not found",
        "status": 404,
        "detail": "Project 'nothing' not found",
    }

    def suggest(**form: str) -> requests.Response:
        return server.session.post(f"{server.url}/v1/projects/tiny/suggest", data=form, timeout=30)

    assert suggest(text="owl", project="other", metadata_title="x").status_code == 200
    assert suggest(text="owl", language="fi").json()["detail"] == 'language "fi" not supported by vocabulary'
    for form in ({"limit": "3"}, {"text": "owl", "limit": "-1"}, {"text": "owl", "threshold": "2"}):
        assert suggest(**form).status_code == 400


def test_scores_above_one_are_scaled_for_annif(server: Server, tiny_run: Path) -> None:
    """Annif would cut them off, and the order would be lost."""
    text = "owl owl pig cat"
    plain = Predictor.open(tiny_run).predict([text], k=5)[0]
    found = AnnifClient(api_base=f"{server.url}/v1/").suggest("tiny", text, limit=5)
    largest = max(1.0, plain[0].score)
    assert [one["score"] for one in found] == pytest.approx([one.score / largest for one in plain])


def test_long_forms(server: Server) -> None:
    def suggest(form: str) -> requests.Response:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return server.session.post(f"{server.url}/v1/projects/tiny/suggest", data=form, headers=kind, timeout=30)

    # As long as a form can be by its text alone: 100,000 characters, each of four bytes.
    long = suggest("text=owl+" + "%F0%9F%A6%89" * 99_996)
    assert long.status_code == 200
    assert long.json()["results"] == suggest("text=owl").json()["results"]
    refused = suggest("x=" + "a" * 1_220_000)
    assert refused.status_code == 413
    assert "the form has 1220002 bytes" in refused.json()["detail"]


def test_thresholds_of_annif_are_of_scaled_scores() -> None:
    service: Any = SimpleNamespace(plan=Plan(()))
    hosted: Any = SimpleNamespace(uid=str, label_name=str)
    found = annif_api._results(service, hosted, Given([1, 2, 3, 4], [4.0, 2.0, 1.0, -1.0]), 0.5)
    assert [(one["uri"], one["score"]) for one in found] == [("1", 1.0), ("2", 0.5)]
    assert len(annif_api._results(service, hosted, Given([1, 2, 3, 4], [4.0, 2.0, 1.0, -1.0]), 0.0)) == 3


def test_thresholds_of_annif(server: Server) -> None:
    annif = AnnifClient(api_base=f"{server.url}/v1/")
    text = "owl owl pig cat"
    every = annif.suggest("direct", text, limit=5)
    middle = every[2]["score"]
    assert every[0]["score"] > middle
    expected = [one for one in every if one["score"] >= middle - 1e-6]
    assert annif.suggest("direct", text, limit=5, threshold=middle - 1e-6) == expected


def test_labels_are_uris_again_and_only_allowed_ones_are_given(tmp_path: Path, tiny_run: Path) -> None:
    allowed = tmp_path / "allowed.txt"
    allowed.write_text("id-owl\nid-pig\n")
    words = ("--uri-prefix", "http://example.org/", "--annif-labels", allowed, "--language", "fi")
    running = start(tmp_path, f"tiny={tiny_run}", *words)
    try:
        annif = AnnifClient(api_base=f"{running.url}/v1/")
        found = annif.suggest("tiny", "cat owl pig")
        assert {one["uri"] for one in found} == {"http://example.org/id-owl", "http://example.org/id-pig"}
        assert annif.get_project("tiny")["language"] == "fi"
        assert len(running.predict("tiny", ["cat owl pig"]).json()["results"][0]) == 5
    finally:
        running.stop()


def test_hugging_face_client(server: Server, direct: Predictor) -> None:
    client = InferenceClient(model=f"{server.url}/hf/models/direct")
    found = client.text_classification("an owl and a pig", top_k=3)
    expected = direct.predict(["an owl and a pig"], k=3)[0]
    assert [(one.label, one.score) for one in found] == [(one.label, one.score) for one in expected]
    listed = server.post("/hf/models/direct", {"inputs": ["owl", "pig"], "parameters": {"top_k": 1}}).json()
    assert [[one["label"] for one in each] for each in listed] == [
        [one.label for one in each] for each in direct.predict(["owl", "pig"], k=1)
    ]
    for wrong in (
        {},
        {"inputs": 3},
        {"inputs": "owl", "parameters": {"top_k": 0}},
        {"inputs": "owl", "parameters": []},
    ):
        assert server.post("/hf/models/direct", wrong).status_code == 400
    softmax = {"inputs": "owl", "parameters": {"function_to_apply": "softmax"}}
    assert server.post("/hf/models/direct", softmax).status_code == 400
    many = {"inputs": ["owl"] * 600, "parameters": {"top_k": 400}}
    assert server.post("/hf/models/direct", many).status_code == 413
    many["parameters"] = {"top_k": 1}
    assert server.post("/hf/models/direct", many).json() == listed[:1] * 600
    assert server.post("/hf/models/direct", {"inputs": []}).json() == []


def test_open_inference_protocol(server: Server) -> None:
    assert server.get("/v2").json()["name"] == "longtail"
    assert server.get("/v2/health/live").json() == {"live": True}
    assert server.get("/v2/health/ready").json() == {"ready": True}
    assert server.get("/v2/models/tiny").json()["name"] == "tiny"
    assert server.get("/v2/models/tiny/ready").json() == {"name": "tiny", "ready": True}
    assert server.get("/v2/models/nothing").status_code == 404
