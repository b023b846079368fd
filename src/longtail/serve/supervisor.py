"""The process that a user starts. It opens the socket and starts workers, which answer; it opens no model itself.

Workers are new processes, not forks: threads of numba do not survive a fork. All accept from one socket and map the
same files, so a model is in memory once. A worker that dies is replaced; connections that wait are not lost.

A model is exchanged in three steps: a process of its own tries whether the new version can be opened (`serve.trial`);
every worker opens it beside the old one; when all have, all are told to use it. Where one cannot, the old version stays
with all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from longtail.bundle import MANIFEST, find_bundle, joined_manifest, open_parts, shards_in
from longtail.errors import ConfigError, LongtailError
from longtail.label_changes import changes_folder, digest_with_changes
from longtail.serve.front import Shards, addresses
from longtail.serve.hosts import names_of
from longtail.serve.limits import Plan
from longtail.serve.problems import sentence
from longtail.serve.service import log

_PATIENCE_S = 600  # for a worker to open a model
_SOON_S = 5.0  # a worker that dies sooner is started again only after a while
_STOP_S = 35
_ENDED = "the worker ended while opening"


def checked(path: str, plan: Plan) -> str:
    """SHA-256 that names a model, its changed labels included, whose every file was compared with its manifest. Of a
    model in shards behind other servers: what these say.
    """
    if addresses(path):
        return Shards.open(path, plan).sha
    shards = [open_parts(shard, ())[:2] for shard in shards_in(Path(path))]
    if shards:
        return digest_with_changes(shards[0][0], joined_manifest([manifest for _, manifest in shards]))
    folder, manifest, _ = open_parts(Path(path), ())
    return digest_with_changes(folder, manifest)


def bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except (OSError, UnicodeError) as problem:  # the second: what can be no name, "a..b" say
        why = getattr(problem, "strerror", None) or problem
        raise ConfigError(
            f"{host}:{port} cannot be listened at ({why})", "choose another --host or --port"
        ) from problem
    return listener


class Worker:
    """A worker as the supervisor sees it."""

    def __init__(self, slot: int, plan: Plan, listener: socket.socket) -> None:
        self.slot, self.since, self.is_ready = slot, time.monotonic(), False
        self.models: dict[str, str] = {}  # name -> SHA-256 of the manifest
        ours, theirs = socket.socketpair()
        self.line = ours
        environment = _environment(plan)
        command = [sys.executable, "-m", "longtail.serve.worker", str(theirs.fileno()), str(listener.fileno())]
        self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(), listener.fileno()), env=environment)
        theirs.close()
        ours.sendall(json.dumps(asdict(replace(plan, slot=slot))).encode() + b"\n")
        self.writer: asyncio.StreamWriter | None = None

    def say(self, **order: Any) -> None:
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(json.dumps(order).encode() + b"\n")


def _environment(plan: Plan) -> dict[str, str]:
    """Of a worker, and of a trial."""
    environment = dict(os.environ)
    # Threads of BLAS wait for work in a loop, on the cores that the requests need: batches of requests are answered
    # two to three times as fast with one.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    if plan.workers > 1:
        threads = str(max(1, (os.cpu_count() or 1) // plan.workers))
        for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
            environment.setdefault(name, threads)
    return environment


class Supervisor:
    def __init__(self, plan: Plan, listener: socket.socket, *, watch: bool = False) -> None:
        self.plan, self.listener, self.watch = plan, listener, watch
        self.paths = {model.name: model.path for model in plan.models}
        self.current: dict[str, str] = {}
        self.workers: dict[int, Worker] = {}
        self.stopping = asyncio.Event()
        self.failure: LongtailError | None = None
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[str | None]] = {}
        self._exchange = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._first_ready = asyncio.Event()
        self._trial: subprocess.Popen[str] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._do(self.exchange_all()))
        for name, path in self.paths.items():
            self.current[name] = await asyncio.to_thread(checked, path, self.plan)
        self._start(0)
        # The first compiles what is not compiled yet; others find it done.
        await self._first_of(self._first_ready.wait(), self.stopping.wait())
        if not self.stopping.is_set():
            for slot in range(1, self.plan.workers):
                self._start(slot)
            self._tell_where()
            if self.watch:
                self._do(self._watch())
        await self.stopping.wait()
        await self._stop()
        if self.failure is not None:
            raise self.failure

    async def _first_of(self, *waits: Any) -> None:
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    def _do(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell_where(self) -> None:
        host, port = self.listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        log(
            "serving",
            url=f"http://{host}:{port}/",
            models=list(self.paths),
            workers=self.plan.workers,
            token=bool(self.plan.token_digests),
            pid=os.getpid(),
        )

    # ---- workers ----

    def _start(self, slot: int) -> None:
        worker = self.workers[slot] = Worker(slot, self.plan, self.listener)
        self._do(self._attend(worker))

    async def _attend(self, worker: Worker) -> None:
        """Listen to a worker as long as it lives."""
        reader, worker.writer = await asyncio.open_unix_connection(sock=worker.line)
        with contextlib.suppress(ConnectionError, ValueError):  # the second: what is no line of JSON, or too long a one
            while line := await reader.readline():
                self._heard(worker, json.loads(line))
        worker.writer.close()  # it ends then
        code = await asyncio.to_thread(worker.process.wait)
        for number, future in list(self._waiting.items()):
            if number % self.plan.workers == worker.slot and not future.done():
                future.set_result(_ENDED)
        if self.stopping.is_set():
            return
        log("worker ended", worker=worker.slot, pid=worker.process.pid, code=code)
        if not self._first_ready.is_set() and self.failure is None:
            self.failure = LongtailError(f"the server could not start (its worker ended with code {code})", "see above")
        if self.failure is not None:
            self.stopping.set()
            return
        if time.monotonic() - worker.since < _SOON_S:
            await self._first_of(asyncio.sleep(_SOON_S), self.stopping.wait())
        if not self.stopping.is_set():
            self._start(worker.slot)

    def _heard(self, worker: Worker, said: dict[str, Any]) -> None:
        if "ready" in said:
            worker.is_ready, worker.models = True, said["ready"]
            log("worker ready", worker=worker.slot, pid=worker.process.pid)
            self._first_ready.set()
            other = [name for name, sha in worker.models.items() if sha != self.current[name]]
            if other:  # the files are newer than what the others have
                self._do(self.exchange_all(other))
        elif "failed" in said:
            log("worker failed", worker=worker.slot, error=said["failed"])
            if not self._first_ready.is_set():
                self.failure = LongtailError(said["failed"], said["hint"])
        elif "reload" in said:
            self._do(self._reload(worker, said["reload"], said["asked"]))
        elif (future := self._waiting.pop(said["number"], None)) is not None and not future.done():
            future.set_result(said.get("error"))

    async def _stop(self) -> None:
        """What was accepted is finished, for a while."""
        self.listener.close()
        if self._trial is not None and self._trial.poll() is None:
            os.killpg(self._trial.pid, signal.SIGKILL)
            self._trial.wait()
        for worker in self.workers.values():
            worker.say(do="stop")
            if worker.process.poll() is None and not worker.is_ready:
                worker.process.terminate()
        ends = [asyncio.to_thread(worker.process.wait) for worker in self.workers.values()]
        try:
            await asyncio.wait_for(asyncio.gather(*ends), _STOP_S)
        except TimeoutError:
            for worker in self.workers.values():
                worker.process.kill()
        for task in list(self._tasks):
            task.cancel()

    # ---- another version of a model ----

    async def _reload(self, worker: Worker, name: str, asked: int) -> None:
        told = await self.exchange(name)
        worker.say(do="told", asked=asked, **told)

    async def exchange_all(self, names: list[str] | None = None) -> None:
        for name in names or list(self.paths):
            await self.exchange(name)

    async def exchange(self, name: str) -> dict[str, Any]:
        """All workers use what lies in the model's folder now, or none does."""
        async with self._exchange:
            if name not in self.current:
                return {"error": "the model is being opened for the first time"}
            try:
                told = await self._exchanged(name, self.current[name])
            except Exception as problem:  # whatever is in those files: who waits is told, and watching goes on
                told = {"error": sentence(problem)}
            if "error" in told:
                log("model not exchanged", model=name, error=told["error"])
            return told

    async def _exchanged(self, name: str, previous: str) -> dict[str, Any]:
        sha = await asyncio.to_thread(checked, self.paths[name], self.plan)
        if wrong := await asyncio.to_thread(self._tried, name, sha):
            return {"error": wrong}
        ready = [worker for worker in self.workers.values() if worker.is_ready]
        if wrong := await self._open(ready, name, sha):
            return {"error": wrong}
        self.current[name] = sha
        await self._use(ready, name, sha)
        await self._catch_up(name, sha)
        log("model exchanged", model=name, version=sha[:12], previous=previous[:12])
        return {"version": sha[:12], "previous": previous[:12], "workers": len(ready)}

    def _tried(self, name: str, sha: str) -> str:
        """What goes wrong when a version is opened; "" where nothing does."""
        order = {"name": name, "path": self.paths[name], "sha": sha, "plan": json.dumps(asdict(self.plan))}
        for _ in range(2):  # the process may have ended a moment ago, as nobody had asked for long
            trial = self._trials()
            assert trial.stdin is not None
            assert trial.stdout is not None
            with contextlib.suppress(OSError):
                trial.stdin.write(json.dumps(order) + "\n")
                trial.stdin.flush()
                if said := trial.stdout.readline():
                    return str(json.loads(said)["error"])
            trial.wait()
            if self.stopping.is_set():
                break
        return "it could not be tried: the process that does so ended"

    def _trials(self) -> subprocess.Popen[str]:
        """The process that makes trials (`serve.trial`)."""
        if self._trial is None or self._trial.poll() is not None:
            command = [sys.executable, "-m", "longtail.serve.trial"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            # A group of its own: all of it is ended with the server.
            self._trial = subprocess.Popen(command, env=_environment(self.plan), start_new_session=True, **pipes)
        return self._trial

    async def _catch_up(self, name: str, sha: str) -> None:
        """Workers that became ready during an exchange may have opened the version before."""
        while late := [one for one in self.workers.values() if one.is_ready and one.models[name] != sha]:
            if wrong := await self._open(late, name, sha):
                log("a worker stays with another version", model=name, error=wrong)
                return
            await self._use(late, name, sha)

    async def _open(self, workers: list[Worker], name: str, sha: str) -> str:
        """Workers open a version beside the one that they have, all of them or none; what went wrong, "" where nothing
        did.
        """
        errors = await self._each(workers, do="open", model=name, path=self.paths[name], sha=sha)
        if not errors:
            return ""
        for worker in workers:
            worker.say(do="drop", model=name)
        return errors[0]

    async def _use(self, workers: list[Worker], name: str, sha: str) -> None:
        """Workers answer with the version that they opened. One that ends instead has a successor, which opens it."""
        await self._each(workers, do="use", model=name)
        for worker in workers:
            worker.models[name] = sha

    async def _each(self, workers: list[Worker], **order: Any) -> list[str]:
        """Every worker does as it is told; gives what went wrong."""
        waits = []
        for worker in workers:
            # The number tells whose it is, for the case that it dies.
            number = next(self._numbers) * self.plan.workers + worker.slot
            self._waiting[number] = asyncio.get_running_loop().create_future()
            waits.append(self._waiting[number])
            worker.say(**order, number=number)
            if worker.process.poll() is not None:
                self._waiting.pop(number).set_result(_ENDED)
        try:
            found = await asyncio.wait_for(asyncio.gather(*waits), _PATIENCE_S)
        except TimeoutError:
            return ["a worker did not answer in time"]
        return [error for error in found if error]

    async def _watch(self) -> None:
        """Exchange a model when its manifest becomes another file, or its labels are changed. What cannot be opened yet
        is tried again.
        """
        seen = {name: await asyncio.to_thread(self._stamp, name) for name in self.paths}
        complained: dict[str, object] = {}
        while True:
            await asyncio.sleep(1)
            for name in self.paths:
                stamp = await asyncio.to_thread(self._stamp, name)
                if stamp is None or stamp == seen[name]:
                    continue
                told = await self.exchange(name) if complained.get(name) != stamp else {"error": "as before"}
                if "error" not in told:
                    seen[name] = stamp
                    complained.pop(name, None)
                else:
                    # Files may still be on their way: look again, but do not repeat the complaint.
                    complained[name] = stamp
                    with contextlib.suppress(Exception):
                        await asyncio.to_thread(checked, self.paths[name], self.plan)
                        complained.pop(name, None)

    def _stamp(self, name: str) -> object:
        """What becomes another value when the model does; None while it cannot be told."""
        path = self.paths[name]
        try:
            if addresses(path):
                return Shards.open(path, self.plan).sha
            return [_stamp_of(folder) for folder in shards_in(Path(path)) or [find_bundle(Path(path))]]
        except (LongtailError, OSError):
            return None


def _stamp_of(folder: Path) -> object:
    found, changes = (folder / MANIFEST).stat(), changes_folder(folder)
    there = sorted(changes.glob("[0-9]*")) if changes.is_dir() else []
    last = there[-1].stat().st_ino if there else 0
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, len(there), last


def serve(plan: Plan, host: str, port: int, *, watch: bool = False) -> None:
    """Serve until SIGINT or SIGTERM."""
    listener = bound(host, port)
    with tempfile.TemporaryDirectory(prefix="longtail-serve-") as folder:
        counters = Path(folder) / "counters"
        counters.touch(mode=0o600)

        async def run() -> None:
            ready = replace(plan, counters=str(counters), hosts=names_of(plan, host, listener))
            await Supervisor(ready, listener, watch=watch).run()

        asyncio.run(run())
