"""A client that asks as fast as it can, or so many times a second: raw HTTP/1.1 over asyncio, little else.

Standard library alone, so that it also runs where the server is another one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode


def request_bytes(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{k}: {v}" for k, v in (headers or {}).items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def predict_bytes(model: str, texts: Sequence[str], k: int = 10) -> bytes:
    body = json.dumps({"texts": list(texts), "k": k}).encode()
    return request_bytes("POST", f"/api/v1/models/{model}/predict", body, {"Content-Type": "application/json"})


def suggest_bytes(project: str, text: str, k: int = 10) -> bytes:
    body = urlencode({"text": text, "limit": k}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    return request_bytes("POST", f"/v1/projects/{project}/suggest", body, form)


@dataclass
class Seen:
    """What came back. failed: requests without a whole answer."""

    seconds: list[float] = field(default_factory=list)  # of those answered by 200
    statuses: Counter[int] = field(default_factory=Counter)
    failed: int = 0
    wall: float = 0.0

    def summary(self) -> dict[str, Any]:
        times = sorted(self.seconds)
        at = {
            f"p{p:g}_ms": round(1000 * times[min(len(times) - 1, int(len(times) * p / 100))], 3) for p in (50, 90, 99)
        }
        return {
            "requests": sum(self.statuses.values()) + self.failed,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "failed": self.failed,
            "answered_per_s": round(len(times) / max(self.wall, 1e-9), 1),
            **(at if times else {}),
        }


class Connection(asyncio.Protocol):
    """One request at a time; `done(status, body)` is called with each answer, None where the connection broke."""

    def __init__(self, done: Callable[[Connection, int | None, bytes], None]) -> None:
        self.done, self.buffer, self.busy, self.sent, self.request = done, b"", False, 0.0, b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, request: bytes) -> None:
        assert self.transport is not None
        self.busy, self.sent, self.request = True, time.perf_counter(), request
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = self.buffer[:head].lower()
        place = lower.find(b"content-length:")
        if place < 0:
            raise ValueError(f"an answer without a length: {self.buffer[:200]!r}")
        end = lower.find(b"\r\n", place)
        length = int(lower[place + 15 : end if end >= 0 else None])
        if len(self.buffer) < head + 4 + length:
            return
        status, body = int(self.buffer[9:12]), self.buffer[head + 4 : head + 4 + length]
        self.buffer = self.buffer[head + 4 + length :]
        self.busy = False
        if b"connection: close" in lower and self.transport is not None:
            self.transport.close()
            self.transport = None
        self.done(self, status, body)

    def connection_lost(self, problem: Exception | None) -> None:
        self.transport = None
        if self.busy:
            self.busy = False
            self.done(self, None, b"")


Check = Callable[[bytes, int, bytes], None]


async def closed_loop(
    port: int,
    requests: Iterator[bytes],
    connections: int,
    *,
    seconds: float = 1e9,
    count: int = 1 << 60,
    stop: asyncio.Event | None = None,
    check: Check | None = None,
) -> Seen:
    """So many connections, each asks again as soon as it is answered; for so long, so often, or until told to stop.

    check: called with every request, its status and its answer.
    """
    loop = asyncio.get_running_loop()
    seen, left, open_ones = Seen(), count, connections
    finished: asyncio.Future[None] = loop.create_future()
    started = time.perf_counter()
    reopening: set[asyncio.Task[None]] = set()

    def next_one(connection: Connection) -> None:
        nonlocal left, open_ones
        if left <= 0 or time.perf_counter() - started > seconds or (stop is not None and stop.is_set()):
            open_ones -= 1
            if connection.transport is not None:
                connection.transport.close()
            if not open_ones and not finished.done():
                finished.set_result(None)
            return
        left -= 1
        if connection.transport is None:
            task = loop.create_task(reopen())
            reopening.add(task)
            task.add_done_callback(reopening.discard)
            left += 1
        else:
            connection.send(next(requests))

    def done(connection: Connection, status: int | None, body: bytes) -> None:
        if status is None:
            seen.failed += 1
        else:
            seen.statuses[status] += 1
            if status == 200:
                seen.seconds.append(time.perf_counter() - connection.sent)
            if check is not None:
                check(connection.request, status, body)
        next_one(connection)

    async def reopen() -> None:
        while True:
            try:
                _, connection = await loop.create_connection(lambda: Connection(done), "127.0.0.1", port)
                next_one(connection)
                return
            except OSError:
                await asyncio.sleep(0.05)

    for _ in range(connections):
        await reopen()
    await finished
    seen.wall = time.perf_counter() - started
    return seen


async def open_loop(port: int, requests: Iterator[bytes], per_second: float, seconds: float, most: int = 1000) -> Seen:
    """Requests at a steady rate, whether or not earlier ones were answered; at most `most` connections."""
    loop = asyncio.get_running_loop()
    seen = Seen()
    idle: list[Connection] = []
    count = 0

    def done(connection: Connection, status: int | None, body: bytes) -> None:
        if status is None:
            seen.failed += 1
            return
        seen.statuses[status] += 1
        if status == 200:
            seen.seconds.append(time.perf_counter() - connection.sent)
        if connection.transport is not None:
            idle.append(connection)

    started = time.perf_counter()
    sent = 0
    while (now := time.perf_counter() - started) < seconds:
        while sent < now * per_second:
            if idle:
                idle.pop().send(next(requests))
            elif count < most:
                count += 1
                _, connection = await loop.create_connection(lambda: Connection(done), "127.0.0.1", port)
                connection.send(next(requests))
            else:
                break
            sent += 1
        await asyncio.sleep(0.001)
    seen.wall = time.perf_counter() - started
    await asyncio.sleep(2)
    for connection in idle:
        if connection.transport is not None:
            connection.transport.close()
    return seen
