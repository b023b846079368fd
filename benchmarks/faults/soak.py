"""The server for a long time, with everything at once that clients and operators do to one.

Three times the load that it answers; clients that send a byte a second, that close their half of a connection, that
send too much, or what is no HTTP; models that are exchanged; workers that are killed. Memory and open files of its
processes are watched.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.faults.models import dataset
from benchmarks.serving.load import Seen, closed_loop, open_loop, predict_bytes, request_bytes
from benchmarks.serving.measures import replace_bundle
from benchmarks.serving.processes import Running, private_mb, serving

MODEL = "model"
# Answers that a server under such load may give: to good requests, and to bad ones.
GOOD_STATUSES = {200, 429, 503}
BAD_STATUSES = {400, 404, 405, 408, 411, 413, 414, 415, 422, 429, 431, 501, 503, 505}
STRANGE = (
    b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /api/v1/models/model/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /api/v1/models/model/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n{}",
    b"POST /api/v1/models/model/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    b"\r\n" * 1000,
    b"\x00" * 1000,
)


def _bodies(chance: random.Random) -> bytes:
    """A request whose body is wrong in some way."""
    good = json.dumps({"texts": ["a cat"], "k": 3}).encode()
    body = chance.choice(
        (
            b"",
            b"{",
            b"[" * 5000,
            b'{"texts": 5}',
            b'{"texts": ["a"], "k": -1}',
            b'{"texts": ["a"], "k": 1e999}',
            b'{"texts": [null]}',
            b'{"texts": ["\\ud800"]}',
            b'{"texts": ["' + b"a" * 100_000 + b'"]}',
            b'{"texts": [' + b'"a",' * 20_000 + b'"a"]}',
            b"\xff\xfe" + good,
            good[: chance.randrange(len(good))],
        )
    )
    return request_bytes("POST", f"/api/v1/models/{MODEL}/predict", body or b" ", {"Content-Type": "application/json"})


class Soak:
    def __init__(self, models: tuple[Path, Path], seed: int = 0) -> None:
        self.sources, self.chance = models, random.Random(seed)
        texts = dataset().train.documents.fields["title"]
        self.asked = [predict_bytes(MODEL, [text], 5) for text in texts]
        self.strange, self.problems = Counter[str](), list[str]()

    async def nasty(self, port: int, over: asyncio.Event) -> None:
        """Clients that behave badly, one after another."""
        while not over.is_set():
            way = self.chance.choice(("slow", "half", "gone", "strange", "body", "large"))
            self.strange[way] += 1
            try:
                reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 20)
                await asyncio.wait_for(self._behave(way, reader, writer), 40)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(0.01)

    async def _behave(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = self.chance.choice(self.asked)
        if way == "slow":
            for byte in request[:15]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)
            writer.transport.abort()
            return
        if way == "gone":
            writer.write(request)
            await writer.drain()
            writer.transport.abort()
            return
        if way == "half":
            writer.write(request)
            writer.write_eof()
        elif way == "strange":
            writer.write(self.chance.choice(STRANGE))
        elif way == "body":
            writer.write(_bodies(self.chance))
        else:
            writer.write(
                request_bytes(
                    "POST", f"/api/v1/models/{MODEL}/predict", b" " * 30_000_000, {"Content-Type": "application/json"}
                )
            )
        head = await reader.read(200)
        if head.startswith(b"HTTP/1."):
            status = int(head[9:12])
            if status not in (GOOD_STATUSES if way == "half" else BAD_STATUSES | GOOD_STATUSES):
                self.problems.append(f"{way}: status {status}")
        writer.transport.abort()

    async def exchange(self, running: Running, home: Path, count: int, until: float) -> int:
        """So many exchanges of the model, and every tenth time a worker dies."""
        every = max((until - time.monotonic()) / (count + 1), 0.05)
        for number in range(count):
            started = time.monotonic()
            await asyncio.to_thread(replace_bundle, home, self.sources[(number + 1) % 2])
            running.process.send_signal(signal.SIGHUP)
            while len(running.events("model exchanged")) <= number and time.monotonic() < started + 60:
                await asyncio.sleep(0.05)
            if number % 10 == 9:
                os.kill(self.chance.choice(running.workers()), signal.SIGKILL)
            await asyncio.sleep(max(0.0, every - (time.monotonic() - started)))
            if time.monotonic() > until + 120:
                break
        return len(running.events("model exchanged"))

    async def watch(self, running: Running, over: asyncio.Event, found: list[dict[str, float]]) -> None:
        while not over.is_set():
            workers = running.workers()
            try:
                handles = max(len(os.listdir(f"/proc/{pid}/fd")) for pid in [running.process.pid, *workers])
                memory = max(map(private_mb, workers))
                found.append(
                    {"workers": len(workers), "handles": handles, "private_mb_of_the_largest": round(memory, 1)}
                )
            except (OSError, ValueError):  # one of them has just ended
                pass
            await asyncio.sleep(2)

    def run(self, requests: int, exchanges: int, seconds: float) -> dict[str, Any]:
        """As many requests as asked for, or as fit into the time."""
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / MODEL
            home.mkdir()
            shutil.copytree(self.sources[0], home / "bundle")
            with serving(f"{MODEL}={home}", "--workers", "2") as running:
                measured = asyncio.run(closed_loop(running.port, itertools.cycle(self.asked), 32, seconds=5))
                rate = len(measured.seconds) / max(measured.wall, 1e-9)
                return self._soaked(running, home, rate, requests, exchanges, seconds)

    def _soaked(
        self, running: Running, home: Path, rate: float, requests: int, exchanges: int, seconds: float
    ) -> dict[str, Any]:
        watched: list[dict[str, float]] = []

        async def all_at_once() -> tuple[Seen, int]:
            over, until = asyncio.Event(), time.monotonic() + seconds
            others = [asyncio.create_task(self.nasty(running.port, over)) for _ in range(6)]
            others.append(asyncio.create_task(self.watch(running, over, watched)))
            # About as long as the requests take where clients and server share the processors.
            expected = min(seconds, requests / max(rate, 1))
            changes = asyncio.create_task(self.exchange(running, home, exchanges, time.monotonic() + expected))
            total = Seen()
            while time.monotonic() < until and sum(total.statuses.values()) + total.failed < requests:
                seen = await open_loop(running.port, itertools.cycle(self.asked), 3 * rate, 10, most=500)
                total.statuses += seen.statuses
                total.failed += seen.failed
                total.seconds += seen.seconds
                total.wall += seen.wall
            exchanged = await changes
            over.set()
            await asyncio.gather(*others)
            return total, exchanged

        seen, exchanged = asyncio.run(all_at_once())
        after = asyncio.run(closed_loop(running.port, itertools.cycle(self.asked), 8, count=500))
        self._judge(seen, after, watched, running)
        deaths = len(running.events("worker ended"))
        return {
            **seen.summary(),
            "asked_per_s": round(3 * rate, 1),
            "exchanges": exchanged,
            "worker_kills": exchanges // 10,
            "workers_ended": deaths,
            "strange_clients": dict(self.strange),
            "watched": watched[:: max(1, len(watched) // 40)],
            "answers_afterwards": after.summary(),
            "problems": self.problems,
        }

    def _judge(self, seen: Seen, after: Seen, watched: list[dict[str, float]], running: Running) -> None:
        wrong = {status: count for status, count in seen.statuses.items() if status not in GOOD_STATUSES}
        if wrong:
            self.problems.append(f"statuses {wrong}")
        if set(after.statuses) != {200} or after.failed:
            self.problems.append(f"afterwards: {dict(after.statuses)}, {after.failed} failed")
        if running.process.poll() is not None:
            self.problems.append("the server ended")
        if len(watched) > 20:
            early, late = watched[5:15], watched[-10:]
            for name, most in (("handles", 1.5), ("private_mb_of_the_largest", 1.3)):
                before, now = (min(one[name] for one in part) for part in (early, late))
                if now > most * before + 20:
                    self.problems.append(f"{name} grew from {before} to {now}")
