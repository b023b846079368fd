"""A front over servers of shards, and a folder of shards: both answer as the model that was split, to the last bit."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import requests
from tests.serve.servers import Server, begin

import longtail
from longtail.bundle import joined_manifest
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, LongtailError
from longtail.predictor import Predictor
from longtail.search.split import ShardLists
from longtail.serve.front import Front, RemoteShard, Shards, ShardServer, belonging_together
from longtail.serve.hosted import Facts, Wanted, answer_together
from longtail.serve.limits import Limits, NamedRun, Plan
from longtail.serve.problems import Problem
from longtail.serve.supervisor import Supervisor, checked
from longtail.serve.wire import PROTOCOL, found_as_bytes, found_from_bytes
from longtail.splitting import split
from longtail.types import TopK

# Votes are on 4 of 13 labels: which these are no shard knows. Neither 2 nor 3 nor 5 shards have equally many.
LABELS = 13
SETTINGS = {"encoder": {"width": 16}, "train": {"epochs": 2}, "memory": {"depth": 4}}
TOKEN = "a token that only the shards and their front know"


@pytest.fixture(scope="module")
def whole(planted: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    texts, targets, uids = planted.train.documents.fields["title"], planted.train.targets, planted.labels.uids
    labels = [[uids[n] for n in targets[[row]].indices] for row in range(len(texts))]
    more = [*texts, *["zebra stripes"] * 5], [*labels, *[["id-zebra"]] * 5]
    names = {uid: uid.replace("id-", "the ") for uid in [*uids, "id-zebra"]}
    longtail.train(Dataset.from_texts(*more, names), run, settings=SETTINGS, device="cpu")
    return run


@dataclass
class Tower:
    """Shards 1 and 3 of 3 are at one server, shard 2 at another; a third has both of 2, and the folder of five."""

    folder: Path
    one: Server
    two: Server
    both: Server
    front: Server


def begin_two(folder: Path, port: int = 0) -> Server:
    return begin(folder, folder / "three" / "shard-2-of-3", "--token-file", folder / "token", port=port)


@pytest.fixture(scope="module")
def tower(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tower]:
    folder = tmp_path_factory.mktemp("tower")
    for name, shards in (("two", 2), ("three", 3), ("five", 5)):
        split(whole, folder / name, shards)
    token, halves, thirds = folder / "token", folder / "two", folder / "three"
    token.write_text(TOKEN)
    one = begin(folder, thirds / "shard-1-of-3", thirds / "shard-3-of-3", "--token-file", token)
    two = begin_two(folder)
    both = begin(folder, halves / "shard-1-of-2", halves / "shard-2-of-2", folder / "five", "--token-file", token)
    both.session.headers["Authorization"] = f"Bearer {TOKEN}"
    names = f"three={one.url},{two.url}", f"two={both.url}"
    front = begin(folder, *names, "--shard-token-file", token, "--timeout", "5")
    assert front.url
    built = Tower(folder, one, two, both, front)
    yield built
    for server in (built.front, built.one, built.two, built.both):
        assert server.stop() == 0


def labels(answer: requests.Response) -> list[list[tuple[str, float]]]:
    assert answer.status_code == 200, answer.text
    return [[(one["label"], one["score"]) for one in found] for found in answer.json()["results"]]


def test_answers_are_those_of_the_whole(tower: Tower, whole: Path, planted: Dataset) -> None:
    """2 and 3 shards behind a front, 5 uneven ones in one process; also more labels than a shard has."""
    model = Predictor.open(whole)
    texts = [*planted.train.documents.fields["title"][:40], "nothing known", ""]
    for k in (1, 5, 9, 100):
        wanted = [[(one.label, one.score) for one in found] for found in model.predict(texts, k=k)]
        for server, name in ((tower.front, "two"), (tower.front, "three"), (tower.both, "five")):
            assert labels(server.predict(name, texts, k=k)) == wanted, (name, k)
    alone = [[(one.label, one.score) for one in found] for found in model.predict(texts[:1], k=3)]
    assert labels(tower.front.predict("three", texts[:1], k=3)) == alone


def test_it_is_a_server_like_any_other(tower: Tower, whole: Path) -> None:
    front, text = tower.front, "owl pig noise1"
    model = Predictor.open(whole)
    (best,) = model.predict([text], k=LABELS)
    for name, of in (("three", tower.folder / "three"), ("two", tower.folder / "two")):
        about = front.get(f"/api/v1/models/{name}").json()
        assert (about["labels"], about["recipe"]) == (LABELS, "direct")
        assert about["version"] == Predictor.open(of).bundle.digest[:12]  # as the folder of its shards
        assert sum(one["labels"] for one in about["frequencies"]) == LABELS
    allowed = [best[0].label, best[-1].label]
    found = front.predict("three", [text], k=5, allow=allowed)
    assert labels(found) == [[(one.label, one.score) for one in best if one.label in allowed]]
    found = front.predict("three", [text], k=2, exclude=[best[0].label])
    assert labels(found) == [[(one.label, one.score) for one in best[1:3]]]
    assert [one["name"] for one in front.get("/api/v1/models/three/labels?q=owl").json()["labels"]] == ["the owl"]
    assert front.get("/api/v1/models/three/label?id=id-pig").json()["text"] == "the pig"
    given = front.session.post(f"{front.url}/v1/projects/three/suggest", data={"text": text, "limit": 2}, timeout=30)
    assert [one["uri"] for one in given.json()["results"]] == [one.label for one in best[:2]]
    assert front.predict("three", [text], precision=0.9).status_code == 400
    assert front.predict("three", [text], known=[["id-owl"]]).status_code == 400
    assert front.get("/shard/v1").json() == {"protocol": PROTOCOL, "shards": []}
    assert front.post("/shard/v1/three/found", {"texts": [text], "k": 1}).status_code == 404


def test_reasons_come_from_the_shard_of_a_label(tower: Tower, whole: Path) -> None:
    text = "owl pig noise1"
    model = Predictor.open(whole)
    (wanted,) = model.explain([text], k=4)
    found = tower.front.predict("three", [text, "cat"], k=4, explain=True).json()["results"][0]
    assert len({list(model.labels).index(one["label"]) % 3 for one in found}) > 1  # shards
    for one, why in zip(found, wanted, strict=True):
        assert one["label"] == why.label
        assert one["why"]["total"] == pytest.approx(why.total, rel=1e-5)
        shares = [(word["text"], word["share"]) for word in one["why"]["words"]]
        assert shares == [(word.text, pytest.approx(word.share, rel=1e-4, abs=1e-6)) for word in why.words]
        terms = {term["name"]: term["share"] for term in one["why"]["terms"]}
        assert terms == {term.name: pytest.approx(term.share, rel=1e-5) for term in why.terms}
    refused = tower.front.predict("three", [text], k=5, explain=True)  # the fifth is not voted on
    assert refused.status_code == 400
    assert "the 4 best labels of a text alone" in refused.json()["detail"]


def test_a_shard_does_not_find_more_than_it_may_hold(tower: Tower) -> None:
    (shard, *_) = tower.both.get("/shard/v1").json()["shards"]
    found = tower.both.post(f"/shard/v1/{shard['name']}/found", {"texts": ["owl"] * 201, "k": 1000})
    assert found.status_code == 413


def test_shards_ask_for_their_token(tower: Tower) -> None:
    assert requests.get(f"{tower.one.url}/shard/v1", timeout=30).status_code == 401
    command = [sys.executable, "-m", "longtail", "serve", "--port", "0", f"m={tower.one.url}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"{tower.one.url} answered 401" in done.stderr


def test_a_shard_that_is_killed_is_named_until_it_is_back(tower: Tower) -> None:
    port, at = tower.two.port, tower.two.url
    for pid in (tower.two.process.pid, *tower.two.workers()):
        os.kill(pid, signal.SIGKILL)
    tower.two.process.wait(30)
    lost = tower.front.predict("three", ["an owl"], k=3)
    assert lost.status_code == 503
    assert f"the server of shards {at} cannot be reached" in lost.json()["detail"]
    assert int(lost.headers["Retry-After"]) >= 1
    annif = tower.front.session.post(f"{tower.front.url}/v1/projects/three/suggest", data={"text": "owl"}, timeout=30)
    assert annif.status_code == 503
    assert tower.front.predict("two", ["an owl"], k=3).status_code == 200  # another model, with all its shards
    tower.two = begin_two(tower.folder, port)
    assert tower.two.url == at
    assert (
        tower.front.predict("three", ["an owl"], k=3).json()["results"]
        == (tower.front.predict("two", ["an owl"], k=3).json()["results"])
    )


# ---- without processes ----


class OneShard(BaseHTTPRequestHandler):
    """Stands for the server of a shard: says what it is told, or nothing."""

    protocol_version = "HTTP/1.1"
    said: dict[str, Any]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send(self.said[self.path.partition("?")[0].rpartition("/")[2]])

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.said["asked"] += 1
        if self.said["break"]:
            self.said["break"] -= 1
            self.close_connection = True  # and no answer
            return
        if self.said["wait"]:
            threading.Event().wait(self.said["wait"])
        self.send(self.said["found"])

    def send(self, content: Any) -> None:
        status, body = content if isinstance(content, tuple) else (200, content)
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        with suppress(BrokenPipeError, ConnectionResetError):  # who waited too long has gone
            self.end_headers()
            self.wfile.write(body)


FACTS = Facts(
    sha="a" * 64,
    recipe="direct",
    data="planted",
    settings={},
    metrics={},
    calibration=None,
    fields=("title",),
    saved_columns=None,
    changed="2026-11-18T00:00:00.000Z",
    explains=True,
    shard={"number": 1, "of": 1, "model": "m" * 64},
)
LISTS = ShardLists((TopK(np.array([[1, 0]], np.int32), np.array([[2, 1]], np.float32)),))


@contextmanager
def stand_in() -> Iterator[tuple[str, dict[str, Any]]]:
    about = {"name": "s", "labels": 2, **{name: getattr(FACTS, name) for name in FACTS.__dataclass_fields__}}
    said: dict[str, Any] = {
        "v1": {"protocol": PROTOCOL, "shards": [about]},
        "labels": {"version": FACTS.sha, "labels": [["a", "an a", 3], ["b", "a b", 1]]},
        "found": found_as_bytes(FACTS.sha, LISTS),
        "break": 0,
        "wait": 0,
        "asked": 0,
    }
    kind = type("Bound", (OneShard,), {"said": said})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", said
    server.shutdown()
    server.server_close()


def test_what_a_shard_says_is_checked() -> None:
    limits = Limits(timeout_s=0.3)
    with stand_in() as (address, said):
        front = Front.open("m", address, Plan((), limits))
        asked = Wanted(["x"], 2)
        assert front.answer(asked, limits)[0].labels == [1, 0]
        said["break"] = 1  # as a connection that was closed meanwhile: once more is enough
        assert front.answer(asked, limits)[0].labels == [1, 0]
        good, before = said["found"], said["asked"]
        other = TopK(np.array([[2, 0]], np.int32), np.array([[2, 1]], np.float32))
        for found, wrong in (
            (found_as_bytes("b" * 64, LISTS), "shard 1 of 1 at .* has version bbbbbbbbbbbb, and the front knows aaaa"),
            (found_as_bytes(FACTS.sha, replace(LISTS, lists=(other,))), "labels up to 2"),
            (good[:-4], "12 bytes of arrays, expected 16"),
            (b"[]", "is not what a shard finds"),
            ((503, {"detail": "4096 texts wait already"}), 'answered 503: "4096 texts wait already"'),
            ((413, b"<html>"), 'answered 413: "<html>"'),
        ):
            said["found"] = found
            with pytest.raises(Problem, match=wrong) as problem:
                front.answer(asked, limits)
            assert problem.value.status == 503
            assert address in problem.value.detail
        said["found"] = found_as_bytes(
            FACTS.sha, replace(LISTS, lists=(TopK(LISTS.lists[0].ids, np.array([[np.nan, 1]], np.float32)),))
        )
        assert front.answer(asked, limits)[0].labels == [0], "no score that is no number"
        said["found"] = good
        # Several requests that fail together are not asked for one by one.
        said["break"], before = 2, said["asked"]
        answers = answer_together(front, [asked, Wanted(["y"], 2)], limits)
        assert all(isinstance(one, Problem) for one in answers)
        assert said["asked"] == before + 2
        said["wait"] = 2
        with pytest.raises(Problem, match=r"did not answer within 0\.3 seconds"):
            front.answer(asked, limits)
        said["wait"] = 0
        assert front.answer(asked, limits)[0].labels == [1, 0]


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"v1": {"protocol": 99, "shards": []}}, "speaks protocol 99"),
        ({"v1": {"protocol": PROTOCOL, "shards": []}}, "no server has a shard"),
        ({"v1": {"protocol": PROTOCOL, "shards": [{"name": "s"}]}}, "what is not understood"),
        ({"v1": []}, "something else than a server of shards"),
        ({"labels": {"version": FACTS.sha, "labels": []}}, "0 labels of 2"),
        ({"labels": {"version": "c" * 64, "labels": []}}, "has version cccc"),
    ],
)
def test_what_cannot_be_a_shard_is_refused_when_a_front_opens(changed: dict[str, Any], wrong: str) -> None:
    with stand_in() as (address, said):
        said |= changed
        with pytest.raises(LongtailError, match=wrong):
            Front.open("m", address, Plan(()))


def test_addresses_of_nothing() -> None:
    with pytest.raises(LongtailError, match="cannot be reached"):
        Shards.open("http://127.0.0.1:1", Plan(()))
    for address in ("http://", "http://a:b", "http://a?x", "http://a:1,ftp://b"):
        with pytest.raises(ConfigError, match="no address of a server"):
            Shards.open(address, Plan(()))


def shard(number: int, of: int = 2, labels: int = 3, model: str = "m", **facts: Any) -> RemoteShard:
    server = ShardServer(f"http://host-{number}:1", "", 1)
    return RemoteShard(server, "s", number, of, model, labels, replace(FACTS, **facts))


@pytest.mark.parametrize(
    ("shards", "wrong"),
    [
        ([shard(0)], "no server has shard 2 of 2"),
        ([shard(0), shard(0), shard(1)], "shard 1 of 2 at http://host-0:1 is also at"),
        ([shard(0), shard(1, model="n")], "shard 2 of 2 at http://host-1:1 is of another model"),
        ([shard(0), shard(1, of=3)], "is of another model"),
        ([shard(0, labels=1), shard(1)], r"shards of \[1, 3\] labels do not fit"),
        ([shard(0), shard(1, calibration={"part": "x"})], "shard 2 of 2 .* is calibrated by itself"),
    ],
)
def test_shards_that_do_not_belong_together(shards: list[RemoteShard], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        belonging_together(shards)


def test_shards_in_any_order() -> None:
    assert [one.number for one in belonging_together([shard(1, labels=2), shard(0)])] == [0, 1]


def test_what_goes_over_the_line_comes_back_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    top = TopK(rng.integers(-1, 9, (2, 3)).astype(np.int32), rng.standard_normal((2, 3)).astype(np.float32))
    votes = rng.random((2, 3)).astype(np.float32)
    head, again = found_from_bytes(found_as_bytes("v", ShardLists((top, top), (votes, votes), 7, 4, 0.3)))
    assert (head["version"], again.depth, again.voted, again.weight) == ("v", 7, 4, 0.3)
    for found in again.lists:
        np.testing.assert_array_equal(found.ids, top.ids)
        np.testing.assert_array_equal(found.scores, top.scores)
    np.testing.assert_array_equal(again.votes[1], votes)


def test_long_texts_are_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from longtail.serve import front

    monkeypatch.setattr(front, "_CHARACTERS", 5)
    assert list(front._pieces(["aa", "bbb", "c", "dddddddd", "e"])) == [["aa", "bbb"], ["c"], ["dddddddd"], ["e"]]


def test_the_version_of_a_folder_of_shards_is_of_all_of_them(whole: Path, tmp_path: Path) -> None:
    split(whole, tmp_path / "two", 2)
    assert checked(str(tmp_path / "two"), Plan(())) == Predictor.open(tmp_path / "two").bundle.digest
    first, second = ({"manifest_sha256": one, "n_labels": 1, "shard": {}} for one in "ab")
    both, others = joined_manifest([first, second]), joined_manifest([first, {**second, "manifest_sha256": "c"}])
    assert both["manifest_sha256"] != others["manifest_sha256"]
    assert both["n_labels"] == 2
    config = tmp_path / "two" / "shard-2-of-2" / "config.toml"
    config.write_text(config.read_text() + " ")
    with pytest.raises(LongtailError, match=r"shard-2-of-2/config\.toml"):
        checked(str(tmp_path / "two"), Plan(()))


def test_a_front_is_exchanged_when_its_shards_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with stand_in() as (address, said):
        supervisor = Supervisor(Plan((NamedRun("m", address),)), cast(socket.socket, None), watch=True)
        before = supervisor._stamp("m")
        assert before == supervisor._stamp("m") == checked(address, Plan(())) == Front.open("m", address, Plan(())).sha
        said["v1"]["shards"][0]["sha"] = "d" * 64
        assert supervisor._stamp("m") not in (before, None)
    assert supervisor._stamp("m") is None  # it cannot be reached: nothing is exchanged
