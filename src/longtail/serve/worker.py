"""A process that answers. Started by the supervisor: ``python -m longtail.serve.worker CONTROL LISTENER`` (two open
file descriptors); what to do comes over the first, a line of JSON each.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from longtail.errors import LongtailError
from longtail.report import cut
from longtail.serve.application import Application, counters_of
from longtail.serve.connection import Connection
from longtail.serve.front import Front, addresses
from longtail.serve.hosted import Hosted, Wanted, tried
from longtail.serve.limits import Limits, NamedRun, Plan
from longtail.serve.opened import OpenedModel
from longtail.serve.problems import Problem, sentence
from longtail.serve.service import Service, log

# How long a worker waits for others to take a connection before it does.
_POLITE_S = 0.003
# Threads give way to each other after so long: by default they do after 5 ms, longer than a request takes.
_SWITCH_S = 0.0005
_KEEP_ALIVE_S = 75  # longer than proxies keep their connections, so that it is not us who close them first
_SHUTDOWN_S = 30


def plan_of(line: str) -> Plan:
    """What `dataclasses.asdict` made of a plan, as JSON."""
    fields = json.loads(line)
    models = tuple(NamedRun(**one) for one in fields.pop("models"))
    digests, hosts = tuple(fields.pop("token_digests")), tuple(fields.pop("hosts"))
    return Plan(models, Limits(**fields.pop("limits")), digests, hosts=hosts, **fields)


def opened(name: str, path: str, plan: Plan) -> Hosted:
    """A model, asked once: what is compiled or read late is then in place."""
    hosted: Hosted = Front.open(name, path, plan) if addresses(path) else OpenedModel.open(name, path, plan)
    hosted.prepare()
    questions = [Wanted(["a b c"], 5), Wanted(["a b c"] * plan.limits.batch_texts, 5)]
    if hosted.abilities["explain"]:
        questions.append(Wanted(["a b c"], 5, explain=True))
    for asked in questions:
        with hosted.turn():  # the version before may be answering
            found = tried(hosted, asked, plan.limits)
        if isinstance(found, Problem):
            raise LongtailError(found.detail) from found
        if isinstance(found, Exception):
            raise found
    return hosted


def opened_version(name: str, path: str, sha: str, plan: Plan) -> Hosted:
    """The same, of the version that is meant."""
    hosted = opened(name, path, plan)
    if hosted.sha != sha:
        raise LongtailError(f"{path} changed again while it was opened")
    return hosted


class Control:
    """The line to the supervisor."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.service: Service | None = None
        self.aside: dict[str, Hosted] = {}
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._writer: asyncio.StreamWriter | None = None

    def say(self, **facts: Any) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(facts).encode() + b"\n")

    async def listen(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        assert self.service is not None
        self.say(ready={name: hosted.sha for name, hosted in self.service.models.items()})
        # The supervisor was killed; or what it said is no line of JSON, or too long a one.
        with contextlib.suppress(ConnectionError, ValueError):
            await self._obey(reader, self.service)
        # Also where the line broke: a worker that cannot hear "stop" would never end.
        self.service.stopping = True
        server.should_exit = True

    async def _obey(self, reader: asyncio.StreamReader, service: Service) -> None:
        while line := await reader.readline():
            order = json.loads(line)
            match order["do"]:
                case "open":
                    asyncio.get_running_loop().create_task(self._open(**order))
                case "use":
                    if (hosted := self.aside.pop(order["model"], None)) is not None:
                        service.use(hosted)
                    self.say(number=order["number"], done=True)
                case "drop":
                    self.aside.pop(order["model"], None)
                case "told":
                    if (future := self._asked.pop(order["asked"], None)) is not None and not future.done():
                        future.set_result(order)
                case "stop":
                    return

    async def _open(self, model: str, path: str, sha: str, number: int, **_: Any) -> None:
        try:
            self.aside[model] = await asyncio.to_thread(opened_version, model, path, sha, self.plan)
            self.say(number=number, done=True)
        except BaseException as problem:  # libraries in Rust raise what is no Exception; the others wait for this one
            self.say(number=number, error=sentence(problem))

    async def reload(self, model: str) -> dict[str, Any]:
        """A request asks for another version; all workers take it up."""
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self.say(reload=model, asked=number)
        told = await future
        if told.get("error"):
            # The reason names files of this machine.
            raise Problem(409, "the model stays as it was; the log of the server says why", "Model not exchanged")
        return {"model": model, "version": told["version"], "previous": told["previous"], "workers": told["workers"]}


class Server(uvicorn.Server):
    """uvicorn's, with the supervisor in place of the terminal."""

    def __init__(self, config: uvicorn.Config, control: Control, line: socket.socket) -> None:
        super().__init__(config)
        self.control, self.line = control, line
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # connections are taken by ourselves
        reader, writer = await asyncio.open_unix_connection(sock=self.line)
        self._tasks = [
            asyncio.create_task(self.control.listen(self, reader, writer)),
            asyncio.create_task(self._look_after()),
            *(asyncio.create_task(self._accept(listener)) for listener in sockets or ()),
        ]

    async def _accept(self, listener: socket.socket) -> None:
        """Take connections. All workers are woken by a new one, and the same would often be the first: who has more
        connections than another waits a moment.
        """
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        assert self.control.service is not None
        counters, alone = self.control.service.counters, self.control.plan.workers == 1
        while True:
            if not alone:
                await _readable(loop, listener)
                if len(self.server_state.connections) > counters.fewest_connections():
                    await asyncio.sleep(_POLITE_S)
            try:
                accepted, _ = await loop.sock_accept(listener) if alone else listener.accept()
                accepted.setblocking(False)
                await loop.connect_accepted_socket(self._connection, accepted)
            except BlockingIOError:  # another worker was faster
                continue
            except OSError as problem:  # the client has gone already, or there are too many open files
                log("connection not accepted", error=str(problem))
                await asyncio.sleep(0.1)

    def _connection(self) -> asyncio.Protocol:
        return Connection(self.config, self.server_state, self.lifespan.state, asyncio.get_running_loop())

    async def _look_after(self) -> None:
        service = self.control.service
        while service is not None:
            await asyncio.sleep(0.5)
            for line in service.lines.values():
                line.refuse_old()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.control.service is not None:
            self.control.service.stopping = True
        for task in self._tasks[2:]:
            task.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The supervisor says when to stop; a terminal's Ctrl-C reaches it as well."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self.handle_exit)
        yield


async def _readable(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    """Until a connection waits."""
    waits = asyncio.Event()
    loop.add_reader(listener, waits.set)
    try:
        await waits.wait()
    finally:
        loop.remove_reader(listener)


async def answer(control: Control, line: socket.socket, listener: socket.socket, models: list[Hosted]) -> None:
    plan = control.plan
    counters = counters_of(plan.counters, plan.workers, plan.slot, [hosted.name for hosted in models])
    counters.worker.started += 1
    service = control.service = Service(plan, models, counters, control.reload)
    config = uvicorn.Config(
        Application(service),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        proxy_headers=False,
    )
    await Server(config, control, line).serve([listener])


def main() -> None:
    line, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_S)
    plan = plan_of(_first_line(line))
    try:
        models = [opened(model.name, model.path, plan) for model in plan.models]
    except BaseException as problem:
        if not isinstance(problem, LongtailError):
            log("error", error=repr(problem), trace=traceback.format_exception(problem))
        failed = {"failed": sentence(problem), "hint": cut(getattr(problem, "hint", ""))}
        line.sendall(json.dumps(failed).encode() + b"\n")
        sys.exit(3)
    control = Control(plan)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(answer(control, line, listener, models))
    # Threads that still rank for requests that are gone need not be waited for.
    sys.stderr.flush()
    os._exit(0)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: it sends the head and the body of an answer together, and is faster in all."""
    try:
        import uvloop
    except ImportError:  # it exists for Linux and macOS
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _first_line(line: socket.socket) -> str:
    found = bytearray()
    while not found.endswith(b"\n"):
        piece = line.recv(1)
        if not piece:
            sys.exit(3)
        found += piece
    return found.decode()


if __name__ == "__main__":
    main()
