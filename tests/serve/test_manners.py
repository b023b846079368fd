"""How the server behaves: tokens, limits, exchanged models, dead workers, the end."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from benchmarks.serving.load import closed_loop, predict_bytes
from tests.serve.servers import Asking, Server, copied, replaced, start
from tests.test_bundle import in_part

from longtail import Predictor, cli, labels
from longtail.serve.hosts import allowed, names_of
from longtail.serve.limits import Plan

TOKEN = "0123456789abcdef-test"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path, direct_run: Path) -> Iterator[Server]:
    """Two workers with a token, and a model that tests may exchange."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens.txt"
    tokens.write_text(f"{TOKEN}\n{'x' * 32}\n", encoding="utf-8-sig")  # as some editors write it, with a mark before
    run = copied(tiny_run, folder / "model")
    running = start(folder, run, "--token-file", tokens, "--workers", "2")
    running.wait_for(lambda: len(running.workers()) == 2)
    running.session.headers["Authorization"] = f"Bearer {TOKEN}"
    yield running
    assert running.stop() == 0


def folder_of(server: Server) -> Path:
    return server.log_file.parent / "model"


def versions(*runs: Path) -> list[str]:
    return [Predictor.open(run).bundle.manifest["manifest_sha256"][:12] for run in runs]


# ---- who may ask ----


def test_a_token_is_asked_for(guarded: Server) -> None:
    assert guarded.predict("model", ["owl"]).status_code == 200
    for path in ("/api/v1/models", "/v1/projects", "/metrics", "/v2/models/model"):
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            answer = requests.get(guarded.url + path, headers=header, timeout=30)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert guarded.get(path).status_code == 200
    for path in ("/v2/health/live", "/v2/health/ready", "/api/v1/openapi.json"):
        assert requests.get(guarded.url + path, timeout=30).status_code == 200


def asked_as(server: Server, *hosts: str | None) -> list[int]:
    """Statuses of requests with these headers Host."""
    statuses = []
    for host in hosts:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.putrequest("GET", "/api/v1/models", skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        statuses.append(connection.getresponse().status)
        connection.close()
    return statuses


def test_a_page_of_another_name_cannot_ask_this_machine(server: Server, guarded: Server) -> None:
    """A name that was made to lead here is still another name. A token, which such a page has not, is enough."""
    ours = ("localhost", "LocalHost:8000", f"127.0.0.1:{server.port}", "[::1]:80", "[::1]", None, "")
    assert asked_as(server, *ours) == [200] * 7
    others = (
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "localhost@evil.example",
        "127.0.0.2",
        "[::2]",
        ":",
    )
    assert asked_as(server, *others) == [421] * 7
    answer = server.post("/api/v1/models/tiny/corrections", {}, headers={"Host": "evil.example"})
    assert answer.status_code == 421
    assert "--allow-host" in answer.json()["detail"]
    assert guarded.get("/api/v1/models", headers={"Host": "evil.example"}).status_code == 200
    # Nor may it read, in its own name, what a server answers that asks for nothing else.
    preflights = [one.session.options(f"{one.url}/v1/projects/tiny/suggest", timeout=30) for one in (server, guarded)]
    allowed = [one.headers.get("Access-Control-Allow-Origin") for one in (*preflights, server.get("/v1/projects"))]
    assert ([one.status_code for one in preflights], allowed) == ([405, 204], [None, "*", None])


def test_names_that_are_allowed(strict: Server) -> None:
    assert asked_as(strict, "tags.example.org:443", "localhost", "other", "others") == [200, 200, 200, 421]


def test_which_names_a_server_has() -> None:
    def names(address: str, host: str, **more: Any) -> tuple[str, ...]:
        listener: Any = SimpleNamespace(getsockname=lambda: (address, 8000))
        return names_of(Plan((), **more), host, listener)

    local = ("localhost", "127.0.0.1", "::1")
    assert names("127.0.0.1", "localhost") == local
    assert names("127.0.1.1", "MyHost", hosts=("a",)) == (*local, "127.0.1.1", "myhost", "a")
    assert names("127.0.0.1", "localhost", token_digests=("00",)) == ()
    assert names("0.0.0.0", "0.0.0.0") == ()
    assert names("0.0.0.0", "0.0.0.0", hosts=("a",)) == (*local, "0.0.0.0", "a")
    assert [allowed(host) for host in ("A.b", "fe80::1", "[fe80::1]")] == ["a.b", "fe80::1", "fe80::1"]


def test_without_a_token_models_are_not_exchanged_by_request(server: Server) -> None:
    answer = server.post("/api/v1/models/tiny/reload")
    assert answer.status_code == 403
    assert "--token-file" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing-here"], "no such run or bundle"),
        ([], "no model to serve"),
        (["RUN", "a=RUN", "a=RUN"], "two models are called 'a'"),
        (["RUN", "--token-file", "EMPTY"], "no token"),
        (["RUN", "--host", "256.0.0.1"], "cannot be listened at"),
        (["RUN", "--annif-labels", "missing.txt"], "missing.txt"),
        (["FORGED"], "the part does not hold what a 'nearest-documents' needs"),
    ],
)
def test_what_cannot_be_served_ends_with_2(tmp_path: Path, tiny_run: Path, words: list[str], said: str) -> None:
    """Also where all that is wrong would be a line that nobody reads to its end."""
    empty, forged = tmp_path / "empty.txt", copied(tiny_run, tmp_path / "forged")
    empty.touch()
    in_part("ranker", values={"config": {}, "inverse.non_negative": "x" * 100_000})(forged / "bundle")
    names = {"RUN": tiny_run, "EMPTY": empty, "FORGED": forged}
    line = [str(names.get(word.removeprefix("a="), word)) for word in words]
    line = [f"a={new}" if old.startswith("a=") else new for old, new in zip(words, line, strict=True)]
    command = [sys.executable, "-m", "longtail", "serve", "--port", "0", *line]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "a..b"], "cannot be listened at"),
        (["--host", "a" * 300], "cannot be listened at"),
        (["--allow-host", "http://a"], "expected a name"),
        (["--timeout", "nan"], "--timeout nan"),
        (["--timeout", "inf"], "--timeout inf"),
        (["--token-file", "LATIN"], "no text in UTF-8"),
        (["--token-file", "UMLAUTS"], "token 1 is not of 16 or more characters of ASCII"),
    ],
)
def test_options_that_cannot_be(
    tmp_path: Path, tiny_run: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "LATIN").write_bytes(b"\xfc" * 20)
    (tmp_path / "UMLAUTS").write_text("\xfc" * 20, encoding="utf-8")
    line = [str(tmp_path / word) if word in ("LATIN", "UMLAUTS") else word for word in words]
    assert cli.main(["serve", str(tiny_run), "--port", "0", *line]) == 2
    assert said in capsys.readouterr().err


def test_the_extra_is_named_where_it_is_missing(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ImportError('not here')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "longtail", "serve", str(tiny_run)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install 'longtail[serve]'" in done.stderr


# ---- limits ----


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path) -> Iterator[Server]:
    """Small limits."""
    limits = [
        "--max-body",
        "5000",
        "--max-texts",
        "4",
        "--max-characters",
        "100",
        "--max-requests",
        "3",
        "--timeout",
        "1",
        "--allow-host",
        "Tags.example.org",
        "--allow-host",
        "other",
    ]
    running = start(tmp_path_factory.mktemp("strict"), f"tiny={tiny_run}", *limits, "--log-texts")
    yield running
    assert running.stop() == 0


def test_sizes(strict: Server) -> None:
    assert strict.predict("tiny", ["owl"] * 4).status_code == 200
    for texts in (["owl"] * 5, ["o" * 101], ["x" * 90] * 4 + ["y" * 5000]):
        answer = strict.predict("tiny", texts)
        assert answer.status_code == 413, answer.text
        assert answer.json()["detail"]
    long = strict.session.post(f"{strict.url}/v1/projects/tiny/suggest", data={"text": "x" * 200}, timeout=30)
    assert long.status_code == 413
    assert strict.predict("tiny", ["owl"]).status_code == 200

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    kind = {"Content-Type": "application/json"}
    streamed = requests.post(f"{strict.url}/api/v1/models/tiny/predict", data=chunks(), headers=kind, timeout=30)
    assert streamed.status_code == 413
    packed = gzip.compress(b'{"texts": ["owl"]}')
    answer = strict.session.post(
        f"{strict.url}/api/v1/models/tiny/predict",
        data=packed,
        headers={**kind, "Content-Encoding": "gzip"},
        timeout=30,
    )
    assert answer.status_code == 415


def test_a_body_that_does_not_come_is_not_waited_for(strict: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", strict.port, timeout=10)
    connection.putrequest("POST", "/api/v1/models/tiny/predict")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b'{"texts"')
    started = time.monotonic()
    answer = connection.getresponse()
    assert answer.status == 408
    assert 0.5 < time.monotonic() - started < 5


def test_too_many_at_once_are_told_to_come_back(strict: Server) -> None:
    refused: list[bytes] = []

    def look(request: bytes, status: int, body: bytes) -> None:
        if status != 200:
            refused.append(body)

    requests_ = itertools.repeat(predict_bytes("tiny", ["owl pig cat noise1 noise2"] * 4))
    seen = asyncio.run(closed_loop(strict.port, requests_, 40, count=400, check=look))
    assert set(seen.statuses) == {200, 503}
    assert seen.failed == 0
    assert all(json.loads(body)["status"] == 503 for body in refused)
    assert strict.predict("tiny", ["owl"]).status_code == 200


def test_retry_after(strict: Server) -> None:
    """A request that holds its place while others come."""
    held = [socket.create_connection(("127.0.0.1", strict.port)) for _ in range(3)]
    head = b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for one in held:
        one.sendall(head + b"Content-Length: 9\r\n\r\n")
    time.sleep(0.3)
    answer = strict.predict("tiny", ["owl"])
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert strict.get("/v2/health/live").status_code == 200
    for one in held:
        one.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"DELETE /api/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /page/../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /page/%2e%2e%2f%2e%2e%2fnative.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /api/v1/models/tiny/labels?q=%ff&limit=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
)
def test_garbage_is_refused(server: Server, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(garbage)
        answer = raw.recv(65536)
    status = int(answer[9:12]) if answer else 0
    assert answer == b"" or status in (200, 400, 404, 405), answer
    assert b"root:" not in answer
    assert b"Traceback" not in answer
    assert server.get("/v2/health/live").status_code == 200
    assert not [line for line in server.log() if line["event"] == "error"]


def whole_answer(raw: socket.socket) -> bytes:
    """Head and body, which may come apart: what is left would be taken for the next answer."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += raw.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
    while len(body) < int(length):
        body += raw.recv(65536)
    return head + b"\r\n\r\n" + body


def test_a_header_without_an_end_is_refused(server: Server) -> None:
    """Also on a connection that has had an answer; a body counts for itself."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        body = json.dumps({"texts": ["owl" * 30_000]}).encode()
        raw.sendall(
            b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        raw.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert whole_answer(raw).startswith(b"HTTP/1.1 200")
        raw.sendall(b"GET /api/v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 60_000)
        time.sleep(0.2)
        raw.settimeout(0.2)
        with pytest.raises(TimeoutError):
            raw.recv(65536)
        raw.settimeout(5)
        raw.sendall(b"y" * 6_000)
        assert raw.recv(65536).startswith(b"HTTP/1.1 400")


def is_open(raw: socket.socket, seconds: float) -> bool:
    """Whether a connection is still open after so many seconds in which nothing comes."""
    raw.settimeout(seconds)
    try:
        return raw.recv(65536) != b""
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False


LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n"


def test_who_begins_nothing_is_not_waited_for(strict: Server) -> None:
    """What begins no request, and what is only a piece of a body that nobody read, ends the time of idle ones."""
    with contextlib.ExitStack() as stack:
        waiting = []
        for rest in (b"", b"\r\n", b"\r\n\r", b"G", b"{"):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", strict.port), timeout=5))
            raw.sendall(LIVE + (b"Content-Length: 9\r\n\r\n" if rest == b"{" else b"\r\n"))
            assert whole_answer(raw).startswith(b"HTTP/1.1 200")
            raw.sendall(rest)
            waiting.append(raw)
        assert all(is_open(raw, 0.05) for raw in waiting)
        time.sleep(2)
        assert [is_open(raw, 0.05) for raw in waiting] == [True, False, False, False, False]


def test_who_sends_requests_without_end_is_stopped(server: Server) -> None:
    """Requests may be sent ahead, so many; more of them would be kept until all are answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall((LIVE + b"\r\n") * 101)
        answers = b""
        while answers.count(b'{"live":true}') < 101:
            answers += raw.recv(65_536)
        raw.sendall((LIVE + b"\r\n") * 1000)
        with contextlib.suppress(ConnectionResetError):
            while piece := raw.recv(65_536):
                answers += piece
    assert answers.count(b"HTTP/1.1 200") <= 2 * 101


def test_headers_behind_a_body_have_an_end(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(
            b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        raw.sendall(b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: " + b"y" * 60_000)
        for _ in range(2):
            time.sleep(0.1)
            raw.sendall(b"y" * 60_000)
        assert raw.recv(65536).startswith(b"HTTP/1.1 400")


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_a_request_that_could_be_upgraded_keeps_its_body(server: Server, apart: bool, chunked: bool) -> None:
    """As ``curl --http2`` and Java send it. The body is no request of its own, and nothing is read after it."""
    body = b'{"texts": ["an owl"], "k": 1}'
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    head = b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += UPGRADE + length + b"\r\n\r\n"
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        for piece in [head, sent[:7], sent[7:] + LIVE + b"\r\n"] if apart else [head + sent + LIVE + b"\r\n"]:
            raw.sendall(piece)
            time.sleep(0.1)
        answer = b"".join(iter(partial(raw.recv, 65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b'"label":"id-owl"' in answer


def test_who_has_said_all_is_answered(server: Server) -> None:
    """Clients that close their half of the connection after a request, or after several."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        body = b'{"texts": ["an owl"]}'
        raw.sendall(LIVE + b"\r\n")
        raw.sendall(
            b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        raw.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        raw.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(partial(raw.recv, 65536), b""))
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b'"label":"id-owl"' in answer
    begun = b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    for half in (LIVE + b"X: ", begun + b"{"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
            raw.sendall(half)
            time.sleep(0.1)
            raw.shutdown(socket.SHUT_WR)
            assert raw.recv(100) == b""


def test_who_does_not_read_keeps_a_place_only_for_a_while(tmp_path: Path, tiny_run: Path) -> None:
    running = start(tmp_path, f"tiny={tiny_run}", "--timeout", "2", "--max-requests", "1")
    try:
        body = json.dumps({"texts": ["cat dog"] * 100_000, "k": 10}).encode()
        with socket.create_connection(("127.0.0.1", running.port), timeout=20) as raw:
            raw.sendall(
                b"POST /api/v1/models/tiny/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            )
            raw.sendall(b"Accept: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert raw.recv(1000).startswith(b"HTTP/1.1 200")
            # The stream has begun and is not over: it counts.
            assert running.predict("tiny", ["owl"]).status_code == 503
            running.wait_for(lambda: running.predict("tiny", ["owl"]).status_code == 200, 15)
            last = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := raw.recv(1 << 20):
                    last = piece
            assert not last.endswith(b"0\r\n\r\n")  # the end of a whole stream
    finally:
        running.stop()


# ---- logs and numbers ----


def _has_route(server: Server, route: str) -> bool:
    return any(line.get("route") == route for line in server.log())


def test_texts_are_logged_only_if_asked(server: Server, strict: Server) -> None:
    for one in (server, strict):
        one.predict("tiny", ["a secret owl"])
        one.get("/api/v1/models/tiny/labels", params={"q": "secret"})
        one.wait_for(partial(_has_route, one, "labels"), 10)
    assert "secret" not in server.log_file.read_text()
    lines = [line for line in strict.log() if line.get("texts") == ["a secret owl"]]
    assert lines[0]["route"] == "predict"
    assert lines[0]["status"] == 200


def test_numbers_for_prometheus(guarded: Server) -> None:
    def number(name: str, page: str) -> float:
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))

    before = guarded.get("/metrics").text
    for _ in range(6):  # on connections of their own: by either worker
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{guarded.url}/api/v1/models/model/predict"
        assert requests.post(url, json={"texts": ["owl", "zzz"]}, headers=headers, timeout=30).ok
    guarded.predict("model", [1])  # type: ignore[list-item]
    after = guarded.get("/metrics").text

    def more(name: str) -> float:
        return number(name, after) - number(name, before)

    assert more('longtail_requests_total{route="predict",status="200"}') == 6
    assert more('longtail_requests_total{route="predict",status="400"}') == 1
    assert more('longtail_request_seconds_count{route="predict"}') == 7
    assert more('longtail_request_seconds_bucket{route="predict",le="+Inf"}') == 7
    assert more('longtail_texts_total{model="model"}') == 12
    assert more('longtail_abstained_total{model="model"}') == 6  # nothing is known of zzz
    assert more('longtail_batch_texts_sum{model="model"}') == 12
    assert number('longtail_waiting{model="model"}', after) == 0
    assert number("longtail_model_info", after) == 2
    (about,) = guarded.get("/api/v1/models").json()["models"]
    assert f'version="{about["version"]}"' in after


# ---- another version ----


def _exchanges(server: Server) -> int:
    return len([line for line in server.log() if line["event"] == "model exchanged"])


def _exchanged_since(server: Server, before: int) -> bool:
    return _exchanges(server) > before


def answers_of(run: Path, texts: list[str]) -> list[list[str]]:
    return [[one.label for one in found] for found in Predictor.open(run).predict(texts, k=3)]


def test_models_are_exchanged_while_they_are_asked(guarded: Server, tiny_run: Path, direct_run: Path) -> None:
    """No request fails, and no answer mixes two versions: labels are those of the version it names."""
    run, texts = folder_of(guarded), ["an owl and a pig", "cat noise1", "the bee noise4 noise5"]
    old, new = versions(tiny_run, direct_run)
    expected = {old: answers_of(tiny_run, texts), new: answers_of(direct_run, texts)}
    assert expected[old] != expected[new]
    asking = Asking(guarded, "model", texts)
    try:
        for number in range(6):
            replaced(run, tiny_run if number % 2 else direct_run)
            if number < 3:
                answer = guarded.post("/api/v1/models/model/reload")
                assert answer.status_code == 200, answer.text
                assert answer.json()["version"] == (old if number % 2 else new)
                assert answer.json()["workers"] == 2
            else:
                seen = _exchanges(guarded)
                guarded.process.send_signal(signal.SIGHUP)
                guarded.wait_for(partial(_exchanged_since, guarded, seen))
    finally:
        asking.stop()
    assert not asking.problems
    assert len(asking.answers) > 20
    assert {answer.status_code for answer in asking.answers} == {200}
    met = set()
    for answer in asking.answers:
        found = answer.json()
        labels = [[one["label"] for one in each] for each in found["results"]]
        assert labels == expected[found["version"]]
        met.add(found["version"])
    assert met == {old, new}


def test_a_broken_bundle_is_not_taken_up(guarded: Server, tiny_run: Path, direct_run: Path, tmp_path: Path) -> None:
    run = folder_of(guarded)
    (before,) = guarded.get("/api/v1/models").json()["models"]
    broken = copied(direct_run, tmp_path / "broken")
    part = broken / "bundle" / "ranker" / "part.json"
    part.write_text(part.read_text().replace("{", "[", 1))
    replaced(run, broken)
    answer = guarded.post("/api/v1/models/model/reload")
    assert answer.status_code == 409
    assert answer.json()["title"] == "Model not exchanged"
    assert "stays as it was" in answer.json()["detail"]
    assert str(run) not in answer.text, "who asks learns nothing of this machine; its log says why"
    assert str(part.relative_to(broken)) in guarded.log_file.read_text()
    assert guarded.get("/api/v1/models").json()["models"] == [before]
    assert guarded.predict("model", ["owl"]).status_code == 200
    replaced(run, tiny_run)
    assert guarded.post("/api/v1/models/model/reload").status_code == 200


# For every process of a server: who opens a model beside which a file "deadly" lies is killed, as by a system that is
# short of memory. The main process only compares checksums.
DEADLY = """
import os, signal, sys
from pathlib import Path

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, Path)) and str(arguments[0]).endswith("part.json"):
        deadly = any((folder / "deadly").exists() for folder in Path(arguments[0]).parents[:4])
        if deadly and "longtail.serve.supervisor" not in sys.modules:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
"""


def test_a_bundle_that_kills_its_opener_kills_no_worker(
    tmp_path: Path, tiny_run: Path, direct_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(DEADLY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "hooks"), os.environ.get("PYTHONPATH", "")]))
    run = copied(tiny_run, tmp_path / "model")
    running = start(tmp_path, run)
    try:
        old, new = versions(tiny_run, direct_run)
        workers = running.workers()
        replaced(run, direct_run)
        (run / "deadly").touch()
        asking = Asking(running, "model", ["owl"], threads=2)
        try:
            running.process.send_signal(signal.SIGHUP)
            running.wait_for(lambda: any(line["event"] == "model not exchanged" for line in running.log()), 60)
        finally:
            asking.stop()
        assert "ended with code -9" in next(
            line["error"] for line in running.log() if line["event"] == "model not exchanged"
        )
        assert not asking.problems
        assert {answer.status_code for answer in asking.answers} == {200}
        assert running.predict("model", ["owl"]).json()["version"] == old
        assert running.workers() == workers
        (run / "deadly").unlink()
        running.process.send_signal(signal.SIGHUP)
        running.wait_for(lambda: running.predict("model", ["owl"]).json()["version"] == new, 60)
        assert running.workers() == workers
    finally:
        running.stop()


def test_watching(tmp_path: Path, tiny_run: Path, direct_run: Path) -> None:
    run = copied(tiny_run, tmp_path / "model")
    running = start(tmp_path, run, "--watch")
    try:
        old, new = versions(tiny_run, direct_run)
        assert running.predict("model", ["owl"]).json()["version"] == old
        replaced(run, direct_run)
        running.wait_for(lambda: running.predict("model", ["owl"]).json()["version"] == new, 30)
        # Labels that come and go are another version of the model, too.
        before = running.predict("model", ["owl"], k=3).json()["results"]
        labels.add(run, {"night-bird": "owl night bird of prey"}, examples={"night-bird": ["owl"] * 3})
        running.wait_for(lambda: running.predict("model", ["owl"]).json()["version"] != new, 30)
        changed = running.predict("model", ["owl"], k=3).json()
        assert "night-bird" in [answer["label"] for answer in changed["results"][0]]
        labels.undo(run)
        running.wait_for(lambda: running.predict("model", ["owl"]).json()["version"] == new, 30)
        assert running.predict("model", ["owl"], k=3).json()["results"] == before
    finally:
        running.stop()


# ---- ends ----


def test_a_killed_worker_is_replaced(guarded: Server) -> None:
    """Others go on answering; what it was answering is lost, no more."""
    asking = Asking(guarded, "model", ["owl"], threads=4)
    try:
        first = guarded.workers()
        os.kill(first[0], signal.SIGKILL)
        guarded.wait_for(lambda: len(set(guarded.workers()) - set(first)) == 1)
        seen = len(asking.answers)
        guarded.wait_for(lambda: len(asking.answers) > seen + 20)
    finally:
        asking.stop()
    assert len(asking.problems) <= 4  # a request of each client at most
    assert {answer.status_code for answer in asking.answers} == {200}
    assert "longtail_worker_starts_total" in guarded.get("/metrics").text


def test_what_was_accepted_is_finished(tmp_path: Path, tiny_run: Path) -> None:
    running = start(tmp_path, f"tiny={tiny_run}")
    texts = [f"cat dog noise{number % 50}" for number in range(20_000)]
    body = json.dumps({"texts": texts}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
    connection.request("POST", "/api/v1/models/tiny/predict", body, headers)
    answer = connection.getresponse()
    first = answer.readline()
    running.process.send_signal(signal.SIGTERM)
    lines = [first, *answer.read().splitlines()]
    assert len(lines) == len(texts)
    assert running.process.wait(30) == 0
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{running.url}/v2/health/live", timeout=5)


def test_workers_do_not_outlive_the_supervisor(tmp_path: Path, tiny_run: Path) -> None:
    running = start(tmp_path, f"tiny={tiny_run}")
    (worker,) = running.workers()
    running.process.kill()
    running.process.wait()
    until = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        assert time.monotonic() < until
        time.sleep(0.1)
