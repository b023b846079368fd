"""Parts of the server by themselves: batches, search, counters, files of the page, languages, containers."""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import uvicorn
from uvicorn.server import ServerState

from longtail import cli
from longtail.bundle import Bundle, LabelTable
from longtail.cli.base import Command
from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.predictor import Predictor
from longtail.serve import batching, languages, worker
from longtail.serve.batching import Line
from longtail.serve.connection import Connection
from longtail.serve.counters import Counters
from longtail.serve.hosted import Given, Hosted, Wanted, answer_together
from longtail.serve.label_search import LabelSearch
from longtail.serve.limits import Limits, Plan
from longtail.serve.native import as_list
from longtail.serve.opened import OpenedModel
from longtail.serve.page_files import Page, read_files
from longtail.serve.problems import Problem, as_json
from longtail.serve.service import Service
from longtail.types import TopK

ROOT = Path(__file__).parents[2]


@pytest.fixture
def counters(tmp_path: Path) -> Counters:
    path = tmp_path / "counters"
    path.touch()
    return Counters(path, 2, 0, ["predict"], ["m"])


# ---- batches ----


class Slow:
    """Stands for what answers; holds each batch until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Semaphore(0)
        self.batches: list[list[list[str]]] = []
        monkeypatch.setattr(batching, "answer_together", self._answer)
        monkeypatch.setattr(batching, "must_take_turns", lambda: False)

    def _answer(self, hosted: Any, requests: Sequence[Wanted], limits: Limits) -> list[Any]:
        self.batches.append([list(asked.texts) for asked in requests])
        assert self.go.acquire(timeout=10)
        return [
            ConfigError("broken", "") if "broken" in asked.texts else [Given([1], [0.5]) for _ in asked.texts]
            for asked in requests
        ]


def hosted() -> Any:
    return SimpleNamespace(turn=nullcontext)


async def _until(what: Any) -> None:
    until = time.monotonic() + 10
    while not what():
        assert time.monotonic() < until
        await asyncio.sleep(0.001)


def test_what_arrives_together_is_answered_together(monkeypatch: pytest.MonkeyPatch, counters: Counters) -> None:
    slow, old, new = Slow(monkeypatch), hosted(), hosted()

    async def run() -> None:
        line = Line("m", Limits(batch_texts=4), counters)

        def ask(version: Any, *texts: str) -> asyncio.Task[Any]:
            return asyncio.create_task(line.ask(version, Wanted(texts, 5)))

        first = ask(old, "a")
        await _until(lambda: slow.batches)
        others = [
            ask(old, "b"),
            ask(old, "c", "d"),
            ask(old, "e", "f"),
            ask(new, "g"),
            ask(new, "broken"),
            ask(new, "h"),
        ]
        await asyncio.sleep(0.01)
        assert counters.model("m").waiting == 8
        for _ in range(10):
            slow.go.release()
        assert len(await first) == 1
        found = await asyncio.gather(*others, return_exceptions=True)
        assert [len(one) if isinstance(one, list) else type(one) for one in found] == [1, 2, 2, 1, ConfigError, 1]
        # A batch has one version of the model, and not more texts than it may.
        assert slow.batches == [[["a"]], [["b"], ["c", "d"]], [["e", "f"]], [["g"], ["broken"], ["h"]]]
        assert counters.model("m").waiting == 0
        line.stop()

    asyncio.run(run())


def test_requests_of_one_moment_share_the_first_batch(monkeypatch: pytest.MonkeyPatch, counters: Counters) -> None:
    slow, version = Slow(monkeypatch), hosted()
    slow.go.release(5)

    async def run() -> None:
        line = Line("m", Limits(), counters)
        await asyncio.gather(*(line.ask(version, Wanted([text], 5)) for text in "abc"))
        assert slow.batches == [[["a"], ["b"], ["c"]]]

    asyncio.run(run())


def test_too_many_are_refused_and_old_ones_told(monkeypatch: pytest.MonkeyPatch, counters: Counters) -> None:
    slow, version = Slow(monkeypatch), hosted()

    async def run() -> None:
        line = Line("m", Limits(queue_texts=3, timeout_s=0.05), counters)
        first = asyncio.create_task(line.ask(version, Wanted(["a"], 5)))
        await _until(lambda: slow.batches)
        waiting = asyncio.create_task(line.ask(version, Wanted(["b", "c", "d"], 5)))
        await asyncio.sleep(0)
        with pytest.raises(Problem) as refused:
            await line.ask(version, Wanted(["e"], 5))
        assert refused.value.status == 503
        assert int(refused.value.headers["Retry-After"]) >= 1
        assert counters.model("m").shed == 1
        await asyncio.sleep(0.1)
        line.refuse_old()
        with pytest.raises(Problem, match="waited"):
            await waiting
        slow.go.release(5)
        assert await first
        # Its texts are not ranked any more, and do not count as waiting.
        await _until(lambda: counters.model("m").waiting == 0)
        assert await line.ask(version, Wanted(["f"], 5))
        assert slow.batches == [[["a"]], [["f"]]]

    asyncio.run(run())


def test_requests_that_want_different_things(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is answered as if it were alone; those that want the same are ranked once."""
    model = OpenedModel.open("m", tiny_run, Plan(()))
    calls = []
    rank = model.predictor.rank_texts

    def counted(texts: Sequence[str], *a: Any, **m: Any) -> Any:
        calls.append(len(texts))
        return rank(texts, *a, **m)

    monkeypatch.setattr(model.predictor, "rank_texts", counted)
    owl = frozenset({model.numbers["id-owl"]})
    requests = [
        Wanted(["an owl"], 3),
        Wanted(["a pig", "a cat"], 3, threshold=0.3),
        Wanted(["an owl"], 2),
        Wanted(["an owl"], 3, exclude=owl),
        Wanted(["a pig and an owl"], 3, exclude=owl),
        Wanted(["a bee"], 3, known=[["id-bee"]]),
    ]
    found = answer_together(model, requests, Limits())
    assert calls == [3, 1, 2]
    for asked, answer in zip(requests[:-1], found[:-1], strict=True):
        assert answer == model.answer(asked, Limits())
    assert isinstance(found[-1], ConfigError)  # this model cannot use known labels; others were not disturbed


def test_one_broken_request_breaks_no_other(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = OpenedModel.open("m", tiny_run, Plan(()))
    rank = model.predictor.rank_texts

    def fragile(texts: Sequence[str], *a: Any, **m: Any) -> Any:
        if "broken" in texts:
            raise ValueError("broken")
        return rank(texts, *a, **m)

    monkeypatch.setattr(model.predictor, "rank_texts", fragile)
    good, bad, other = answer_together(model, [Wanted([text], 3) for text in ("an owl", "broken", "a pig")], Limits())
    assert isinstance(bad, ValueError)
    assert isinstance(good, list)
    assert isinstance(other, list)
    assert good[0].labels[0] == model.numbers["id-owl"]


class Panic(BaseException):
    """As libraries in Rust raise it."""


def test_a_library_that_gives_up_ends_no_thread(tiny_run: Path, counters: Counters) -> None:
    """Neither where a text does it, nor where it happens between the requests."""
    model = OpenedModel.open("m", tiny_run, Plan(()))
    rank = model.predictor.rank_texts

    def fragile(texts: Sequence[str], *a: Any, **m: Any) -> Any:
        if "panic" in texts:
            raise Panic("no memory")
        return rank(texts, *a, **m)

    def no_turn() -> Any:
        raise Panic("no turn")

    async def run() -> None:
        line = Line("m", Limits(), counters)
        texts = ("an owl", "panic", "a pig")
        asked = [line.ask(model, Wanted([text], 3)) for text in texts]
        good, bad, other = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
        assert isinstance(bad, RuntimeError)
        assert "Panic: no memory" in str(bad)
        assert [type(good), type(other)] == [list, list]
        with pytest.raises(RuntimeError, match="Panic: no turn"):
            await asyncio.wait_for(line.ask(SimpleNamespace(turn=no_turn), Wanted(["a"], 3)), 20)  # type: ignore[arg-type]
        assert await asyncio.wait_for(line.ask(model, Wanted(["an owl"], 3)), 20)
        line.stop()

    model.predictor.rank_texts = fragile  # type: ignore[method-assign]
    asyncio.run(run())


def test_allowed_labels_are_looked_for_deeper_and_deeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact model of many labels: the last of all is found, and no more is ranked than needed."""
    from longtail.warming import write_model

    write_model(tmp_path / "model")
    model = OpenedModel.open("m", tmp_path / "model", Plan(()))
    text = "one two three"
    everything = model.predictor.rank_texts([text], len(model)).ids[0].tolist()
    depths: list[int] = []
    rank = model.predictor.rank_texts

    def noted(texts: Sequence[str], k: int, **m: Any) -> Any:
        depths.append(k)
        return rank(texts, k, **m)

    monkeypatch.setattr(model.predictor, "rank_texts", noted)
    found = model.answer(Wanted([text], 2, allow=frozenset(everything[:3])), Limits())
    assert found[0].labels == everything[:2]
    assert len(depths) == 1
    found = model.answer(Wanted([text], 2, allow=frozenset(everything[-3:])), Limits())
    assert found[0].labels == everything[-3:-1]
    assert depths[-1] == len(model)
    # A bound: what lies deeper is not found.
    found = model.answer(Wanted([text], 2, allow=frozenset(everything[-1:])), Limits(deepest=10))
    assert found[0].labels == []


def test_what_is_ranked_deeply_is_ranked_in_pieces(
    tiny_run: Path, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small request must not hold the model, and the memory, for all the others."""
    model, limits = OpenedModel.open("m", tiny_run, Plan(())), Limits(labels=36)
    ranked: list[tuple[int, int]] = []
    rank = model.predictor.rank_texts

    def noted(texts: Sequence[str], k: int, **m: Any) -> Any:
        ranked.append((len(texts), k))
        return rank(texts, k, **m)

    monkeypatch.setattr(model.predictor, "rank_texts", noted)
    texts = ["an owl", "a pig", "a cat", "a dog"]
    for asked in (Wanted(texts, 1, allow=frozenset([0])), Wanted(texts, 1, exclude=frozenset(range(11)))):
        expected = model.answer(asked, Limits())
        ranked.clear()
        assert model.answer(asked, limits) == expected
        assert ranked == [(3, 12), (1, 12)], "as many texts as give 36 labels of all 12"

    async def parts() -> list[list[Given]]:
        service = Service(Plan((), limits), [model], counters, cast(Any, None))
        found = [part async for part in service.in_parts(model, Wanted(texts, 1, allow=frozenset([0])))]
        service.lines["m"].stop()
        return found

    assert [len(part) for part in asyncio.run(parts())] == [3, 1], "others take turns between them"


# ---- connections ----


async def connected(application: Any) -> socket.socket:
    """The other end of a connection to a server, which holds few bytes that nobody reads."""
    numbers = SimpleNamespace(worker=SimpleNamespace())
    application.service = SimpleNamespace(limits=Limits(timeout_s=0.1), counters=numbers)
    config = uvicorn.Config(application, proxy_headers=False, lifespan="off", ws="none", log_config=None)
    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    await loop.connect_accepted_socket(lambda: Connection(config, ServerState(), {}, loop), ours)
    theirs.setblocking(False)
    return theirs


def test_who_leaves_the_end_of_an_answer_is_not_waited_for() -> None:
    """What is left is less than what makes writing wait, and the connection is to be closed. Who took all may go on."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"60000")]})
        await send({"type": "http.response.body", "body": b"x" * 60_000})

    async def run() -> tuple[int, int]:
        loop, client = asyncio.get_running_loop(), await connected(answer)

        async def taken() -> int:
            came = 0
            while came < 60_000 and (piece := await asyncio.wait_for(loop.sock_recv(client, 65_536), 10)):
                came += len(piece)
            return came

        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\n\r\n")
        first = await taken()
        await asyncio.sleep(0.3)
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(0.3)
        second = await taken()
        client.close()
        return first, second

    first, second = asyncio.run(run())
    assert 0 < second < 60_000 < first


def test_who_has_gone_is_gone_for_the_request_that_is_answered() -> None:
    """Also where another came behind it."""

    async def run() -> None:
        gone = asyncio.Event()

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"to nobody", "more_body": True})
            if (await receive())["type"] == "http.disconnect":
                gone.set()

        client = await connected(answer)
        client.sendall(b"GET / HTTP/1.1\r\n\r\n" * 2)
        client.close()
        await asyncio.wait_for(gone.wait(), 5)

    asyncio.run(run())


def test_a_new_version_is_asked_only_when_no_other_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads in kernels at once would end the process, under one of numba's threading layers."""
    met: list[bool] = []

    class Stub:
        abilities: ClassVar = {"explain": True}

        turn = OpenedModel.turn

        def prepare(self) -> None:
            met.append(True)

        def answer(self, asked: Wanted, limits: Limits) -> list[Given]:
            met.append(batching._ONE_AT_A_TIME.locked())
            return []

    monkeypatch.setattr(batching, "must_take_turns", lambda: True)
    monkeypatch.setattr(OpenedModel, "open", lambda *_: Stub())
    worker.opened("m", "somewhere", Plan(()))
    assert met == [True] * 4
    assert not batching._ONE_AT_A_TIME.locked()


# ---- numbers that JSON has no form for ----


def strictly(text: str | bytes) -> Any:
    """JSON, read as others than Python do."""

    def none(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=none)


def test_labels_without_a_finite_score_are_not_given(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a forged bundle may hold anything."""
    model = OpenedModel.open("m", tiny_run, Plan(()))
    asked = Wanted(["an owl and a pig"], 5)
    (plain,) = model.answer(asked, Limits())
    kind = type(model.predictor.bundle.ranker)
    rank = kind.rank

    def odd(self: Any, batch: Any, k: int) -> TopK:
        top = rank(self, batch, k)
        scores = top.scores.copy()
        scores[:, 0], scores[:, 2] = np.inf, np.nan
        return TopK(top.ids, scores)

    monkeypatch.setattr(kind, "rank", odd)
    (given,) = model.answer(asked, Limits())
    assert given.labels == [plain.labels[n] for n in (1, 3, 4)]
    assert given.scores == [plain.scores[n] for n in (1, 3, 4)]
    assert [one["score"] for one in strictly(as_list(model, given))] == given.scores
    assert len(model.predictor.predict(["an owl and a pig"])[0]) == 3


def test_facts_of_a_model_are_json(tiny_run: Path) -> None:
    settings = {"when": datetime.date(2026, 1, 2), "rate": float("nan"), "large": 1 << 20_000, "name": "\ud800"}
    model = OpenedModel.open("m", tiny_run, Plan(()))
    facts = replace(model.facts, settings=settings, metrics={"P@1": float("-inf")}, calibration=[float("inf")])
    company: Any = SimpleNamespace(
        neighbours_of=lambda _: [(0, float("nan")), (1, 0.5)], examples_of=lambda _: [], texts=None, examples=None
    )
    odd = Hosted.__new__(OpenedModel)
    Hosted.__init__(odd, "m", facts, model.labels, company=company)
    told = strictly(as_json(odd.details))
    assert told["settings"] == {"when": "2026-01-02", "rate": None, "large": None, "name": "\ud800"}
    assert (told["metrics"], told["calibration"]) == ({"P@1": None}, [None])
    assert [one["score"] for one in strictly(as_json(odd.label_page(0)))["neighbours"]] == [0.5]


def test_folders_of_this_machine_are_nothing_for_clients(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"a": {"vectors": "/srv/words.npy", "model": "words.npy", "dims": [1, 2]}, "b": ""}
    monkeypatch.setattr(Bundle, "settings", lambda _: settings)
    told = OpenedModel.open("m", tiny_run, Plan(())).details["settings"]
    assert told == {"a": {**settings["a"], "vectors": "words.npy"}, "b": ""}


# ---- labels ----


def test_label_search_at_size() -> None:
    count = 100_000
    names = [f"label number {number}" for number in range(count)]
    names[70_000] = "Straße über den Fluss"
    names[5] = "line\nbreak"
    labels = LabelTable.of(Items([f"id:{n}" for n in range(count)], {"title": names}), np.arange(count)[::-1].copy())
    search = LabelSearch(labels)
    assert search.find("STRASSE", 5) == [70_000]
    assert search.find("den fluss", 5) == [70_000]
    assert search.find("line break", 5) == [5]
    assert search.find("99999", 5) == [99_999]
    assert search.find("id:77", 3) == [77, 770, 771]
    assert len(search.find("label", 50)) == 50
    assert search.find("", 2) == [0, 1]
    assert search.find("\n", 2) == [0, 1]
    started = time.perf_counter()
    for text in ("fluss", "label", "zzz", "number 5"):
        search.find(text, 20)
    assert time.perf_counter() - started < 2  # some milliseconds each on an idle machine


def test_labels_can_be_looked_up_at_once(tiny_run: Path) -> None:
    model = OpenedModel.open("m", tiny_run, Plan(()))
    assert not {"numbers", "search"} & vars(model).keys()
    model.prepare()
    assert {"numbers", "search"} <= vars(model).keys()


# ---- counters ----


def test_counters_of_workers_add_up_and_survive(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    path.touch()
    first, second = (Counters(path, 2, slot, ["predict"], ["m"]) for slot in range(2))
    for counters, seconds in ((first, 0.003), (second, 0.003), (second, 99.0)):
        counters.route("predict").answered(200, seconds)
        counters.model("m").batch(3, 0.5)
    second.route("predict").answered(418, 0.1)
    first.model("m").waiting = 7
    first.model("m").version = int("ffffffffffff", 16)
    page = second.render().splitlines()
    assert 'longtail_requests_total{route="predict",status="200"} 3' in page
    assert 'longtail_requests_total{route="predict",status="other"} 1' in page
    assert 'longtail_request_seconds_bucket{route="predict",le="0.005"} 2' in page
    assert 'longtail_request_seconds_bucket{route="predict",le="10"} 3' in page
    assert 'longtail_request_seconds_bucket{route="predict",le="+Inf"} 4' in page
    assert 'longtail_batch_texts_bucket{model="m",le="4"} 3' in page
    assert 'longtail_batch_texts_bucket{model="m",le="2"} 0' in page
    assert 'longtail_waiting{model="m"} 7' in page
    assert 'longtail_model_info{model="m",worker="0",version="ffffffffffff"} 1' in page
    again = Counters(path, 2, 0, ["predict"], ["m"])  # the worker was replaced
    assert 'longtail_requests_total{route="predict",status="200"} 3' in again.render().splitlines()
    assert 'longtail_waiting{model="m"} 0' in again.render().splitlines()


# ---- the page ----


def test_files_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "icons").mkdir()
    for name in ("index.html", "app.js", "icons/a.svg", ".hidden"):
        (tmp_path / name).write_text("x" * 1000)
    files = read_files(tmp_path)
    assert {name: file.type for name, file in files.items()} == {
        "app.js": "text/javascript; charset=utf-8",
        "icons/a.svg": "image/svg+xml",
        "index.html": "text/html; charset=utf-8",
    }

    class Request:
        def __init__(self, **headers: str) -> None:
            self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    page = Page(tmp_path)
    plain = page._sent("app.js", Request())  # type: ignore[arg-type]
    assert plain.body == b"x" * 1000
    assert "script-src 'self'" in plain.headers["content-security-policy"]
    packed = page._sent("app.js", Request(accept_encoding="gzip"))  # type: ignore[arg-type]
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < 100
    same = page._sent("app.js", Request(if_none_match=plain.headers["etag"]))  # type: ignore[arg-type]
    assert same.status_code == 304
    with pytest.raises(Problem):
        page._sent("../app.js", Request())  # type: ignore[arg-type]


# ---- languages ----


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The owl is a bird that hunts at night", "en"),
        ("Die Eule ist ein Vogel, der in der Nacht jagt", "de"),
        ("Le hibou est un oiseau qui chasse dans la nuit", "fr"),
        ("Pöllö on lintu, joka metsästää yöllä ja se on hiljainen", "fi"),
        ("Ugglan är en fågel som jagar på natten", "sv"),
        ("El búho es un ave que caza por la noche", "es"),
    ],
)
def test_languages(text: str, language: str) -> None:
    others = [code for code in languages.WORDS if code != language]
    for start in range(0, len(others), 4):
        assert languages.detected(text, [*others[start : start + 4], language])[0][0] == language
    assert languages.detected("", ["en"]) == [(None, 1.0), ("en", 0.0)]


# ---- models for Annif ----


def test_labels_for_annif(tmp_path: Path, tiny_run: Path) -> None:
    file = tmp_path / "vocabulary.tsv"
    file.write_text("<http://x/id-owl>\tthe owl\n<http://x/id-unicorn>\tnot there\n\n")
    plan = Plan((), uri_prefix="http://x/", annif_labels=str(file))
    model = OpenedModel.open("m", tiny_run, plan)
    assert model.annif_allow == frozenset({model.numbers["id-owl"]})
    assert OpenedModel("m", Predictor.open(tiny_run)).annif_allow is None


# ---- names and containers ----


def test_names_of_models(tmp_path: Path) -> None:
    from longtail.cli.serving import models_of

    def names(*runs: str) -> dict[str, str]:
        return {one.name: one.path for one in models_of(runs)}

    assert names("runs/demo", "b=runs/demo") == {"demo": "runs/demo", "b": "runs/demo"}
    assert names("runs/demo/bundle/") == {"demo": "runs/demo/bundle/"}
    assert list(names("runs/a b (c)")) == ["a-b-c"]
    assert names("x/y=z") == {"y-z": "x/y=z"}
    with pytest.raises(ConfigError, match="two models"):
        names("a/demo", "b/demo")
    with pytest.raises(ConfigError, match="no name"):
        names("---")
    assert names("large=http://a:1,http://b:2") == {"large": "http://a:1,http://b:2"}
    with pytest.raises(ConfigError, match="needs a name"):
        names("http://a:1,http://b:2")


def test_the_container_starts_what_exists(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, flags=re.M):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
        allowed = (ROOT / ".dockerignore").read_text().splitlines()
        assert all(f"!{source}" in allowed for source in sources), line
    entry, command = (
        json.loads(re.findall(rf"^{word} (\[.+\])$", text, flags=re.M)[0]) for word in ("ENTRYPOINT", "CMD")
    )
    compose = (ROOT / "compose.yaml").read_text()
    composed = json.loads(re.findall(r"command: (\[.+\])", compose)[0])
    monkeypatch.setattr(Command, "invoke", lambda *_: None)
    for words in (command, composed):
        assert [*entry, *words][:2] == ["longtail", "serve"]
        assert cli.main([*entry[1:], *words]) == 0, capsys.readouterr().err
    assert "USER longtail" in text
    assert "libgomp1" in text  # or two threads of the server must take turns
    port = re.findall(r"EXPOSE (\d+)", text)[0]
    assert f"127.0.0.1:{port}/v2/health/ready" in text
    assert shlex.split(f"127.0.0.1:8000:{port}")[0] in compose
    # A folder that is not there would be made, by root. A run is mounted: its bundle may be exchanged.
    assert "create_host_path: false" in compose
    for page in (text, (ROOT / "docs" / "serving.md").read_text()):
        assert '-v "$PWD/runs/demo:/model:ro"' in page


def test_make_serve_takes_options() -> None:
    line = ["make", "--dry-run", "--silent", "serve", "OPTIONS=--port 8080"]
    said = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[-2:] == ['echo "opening models ..."', ".venv/bin/longtail serve runs/demo --port 8080"]
    for page in ("Makefile", "README.md", "docs/serving.md"):
        assert "OPTIONS='--port 8080'" in (ROOT / page).read_text()
