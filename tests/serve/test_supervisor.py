"""The supervisor with workers that are not processes."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from longtail.serve import supervisor as module
from longtail.serve import worker as opening
from longtail.serve.limits import NamedRun, Plan
from longtail.serve.service import Service
from longtail.serve.supervisor import Supervisor, Worker
from longtail.serve.worker import Control, Server

OLD, NEW = "a" * 64, "b" * 64


class Stub:
    """Does what it is told, or ends when it is told to open."""

    def __init__(self, slot: int, *, dies: bool = False, version: str = OLD) -> None:
        self.slot, self.dies, self.is_ready, self.since = slot, dies, True, 0.0
        self.models = {"m": version}
        self.line, self.other_end = socket.socketpair()
        self.writer: asyncio.StreamWriter | None = None
        self.process = self
        self.pid, self.code = 1, None
        self.told: list[str] = []
        self.when_told: Callable[[str], None] = lambda _: None

    def poll(self) -> None:
        return None

    def wait(self) -> int:
        return -6

    def say(self, **order: Any) -> None:
        self.told.append(order["do"])
        self.when_told(order["do"])
        if self.dies:
            self.other_end.close()
        elif "number" in order:
            self.other_end.sendall(json.dumps({"number": order["number"], "done": True}).encode() + b"\n")


def exchanged(
    monkeypatch: pytest.MonkeyPatch, stubs: list[Stub], *, late: Stub | None = None, tried: str = ""
) -> dict[str, Any]:
    """What an exchange tells. late: a worker that becomes ready while others open. tried: what the trial says."""
    monkeypatch.setattr(module, "checked", lambda *_: NEW)
    monkeypatch.setattr(Supervisor, "_tried", lambda *_: tried)

    async def run() -> dict[str, Any]:
        plan = Plan((NamedRun("m", "somewhere"),), workers=len(stubs) + (late is not None))
        supervisor = Supervisor(plan, cast(socket.socket, None))
        supervisor.current = {"m": OLD}
        every = [*stubs, *([late] if late else [])]
        tasks = [asyncio.create_task(supervisor._attend(cast(Worker, stub))) for stub in every]
        supervisor.workers = {stub.slot: cast(Worker, stub) for stub in stubs}
        if late is not None:
            newcomer = late

            def ready(order: str) -> None:
                if order == "open":
                    supervisor.workers[newcomer.slot] = cast(Worker, newcomer)
                    supervisor._heard(cast(Worker, newcomer), {"ready": {"m": OLD}})

            stubs[0].when_told = ready
        supervisor.stopping.set()  # nobody is started anew
        told = await asyncio.wait_for(supervisor.exchange("m"), 10)
        told["current"] = supervisor.current["m"]
        for stub in every:
            stub.other_end.close()
        await asyncio.gather(*tasks)
        return told

    return asyncio.run(run())


def test_a_worker_that_ends_while_opening_stops_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = Stub(0), Stub(1, dies=True)
    told = exchanged(monkeypatch, [good, bad])
    assert told == {"error": "the worker ended while opening", "current": OLD}
    assert good.told == ["open", "drop"]


def test_no_worker_opens_what_could_not_be_opened_before(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Stub(0)
    assert exchanged(monkeypatch, [worker], tried="it ended") == {"error": "it ended", "current": OLD}
    assert worker.told == []


def test_a_worker_that_becomes_ready_meanwhile_takes_the_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    first, late = Stub(0), Stub(1)
    told = exchanged(monkeypatch, [first], late=late)
    assert told["current"] == NEW
    assert first.told == late.told == ["open", "use"]
    assert late.models == {"m": NEW}


def test_what_nobody_thought_of_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also before the models were opened for the first time."""

    def broken(*_: object) -> str:
        raise UnicodeDecodeError("utf-8", b"\xff" * 100_000, 0, 1, "invalid start byte")

    monkeypatch.setattr(module, "checked", broken)

    async def run() -> None:
        supervisor = Supervisor(Plan((NamedRun("m", "somewhere"),)), cast(socket.socket, None))
        await supervisor.exchange_all()  # SIGHUP may come at any time
        assert "first time" in (await supervisor.exchange("m"))["error"]
        supervisor.current = {"m": OLD}
        told = (await supervisor.exchange("m"))["error"]
        assert "invalid start byte" in told
        assert len(told) < 3000, "workers read a line of so many bytes"
        assert supervisor.current == {"m": OLD}

    asyncio.run(run())
    assert "invalid start byte" in capsys.readouterr().err


def test_watching_survives_what_nobody_thought_of(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter([ValueError("first"), ValueError("second"), NEW, NEW])

    def checked(*_: object) -> str:
        found = next(versions)
        if isinstance(found, Exception):
            raise found
        return str(found)

    stamps = iter(range(100))
    sleep = asyncio.sleep
    monkeypatch.setattr(module, "checked", checked)
    monkeypatch.setattr(Supervisor, "_stamp", lambda *_: next(stamps))
    monkeypatch.setattr(Supervisor, "_tried", lambda *_: "")
    monkeypatch.setattr(asyncio, "sleep", lambda _: sleep(0.001))

    async def run() -> None:
        supervisor = Supervisor(Plan((NamedRun("m", "somewhere"),)), cast(socket.socket, None))
        supervisor.current = {"m": OLD}
        watching = asyncio.create_task(supervisor._watch())
        async with asyncio.timeout(10):
            while supervisor.current["m"] != NEW and not watching.done():
                await sleep(0.001)
        watching.cancel()
        assert supervisor.current == {"m": NEW}

    asyncio.run(run())


def test_a_worker_that_says_what_is_no_line_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in (b"x" * 100_000 + b"\n", b"no JSON\n"):
        worker = Stub(0)

        async def attend(worker: Stub = worker) -> None:
            supervisor = Supervisor(Plan((NamedRun("m", "somewhere"),)), cast(socket.socket, None))
            supervisor.stopping.set()
            await asyncio.wait_for(supervisor._attend(cast(Worker, worker)), 10)

        threading.Thread(target=worker.other_end.sendall, args=[said], daemon=True).start()
        asyncio.run(attend())


def test_a_worker_tells_what_goes_wrong_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is no `Exception`, as libraries in Rust raise it: the others wait for it."""

    def broken(*_: object) -> None:
        raise BaseException("x" * 1_000_000)

    said: list[dict[str, Any]] = []
    monkeypatch.setattr(opening, "opened_version", broken)
    control = Control(Plan(()))
    monkeypatch.setattr(control, "say", lambda **facts: said.append(facts))
    asyncio.run(control._open("m", "somewhere", NEW, 7))
    assert said[0]["number"] == 7
    assert len(said[0]["error"]) < 3000


@pytest.mark.parametrize("problem", [ConnectionResetError(), ValueError("chunk is longer than limit")])
def test_a_worker_ends_when_its_line_is_cut(problem: Exception) -> None:
    class Cut:
        async def readline(self) -> bytes:
            raise problem

    class Paper:
        def write(self, _: bytes) -> None:
            pass

    control = Control(Plan(()))
    control.service = cast(Service, SimpleNamespace(models={}, stopping=False))
    server = SimpleNamespace(should_exit=False)
    asyncio.run(control.listen(cast(Server, server), cast(Any, Cut()), cast(Any, Paper())))
    assert server.should_exit
    assert control.service.stopping
