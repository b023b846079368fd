"""What is measured of a server under load, from a second process on the same machine."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.serving.load import Seen, closed_loop, open_loop, predict_bytes, request_bytes
from benchmarks.serving.processes import Running, processor_seconds, serving
from longtail.packing import pack
from longtail.predictor import Predictor

K = 10
MODEL = "model"
EMPTY = request_bytes("GET", "/v2/health/live")


def requests_of(texts: Sequence[str], each: int = 1) -> Iterator[bytes]:
    """Requests of so many texts each, over and over."""
    starts = range(0, len(texts) - each + 1, each)
    return itertools.cycle([predict_bytes(MODEL, texts[start : start + each], K) for start in starts])


class Engine:
    """`Predictor` itself, in this process. It takes turns with the server, so that a busy machine slows both."""

    def __init__(self, run: Path, texts: Sequence[str]) -> None:
        self.model, self.texts = Predictor.open(run), list(texts)
        self.model.predict(self.texts[:600], k=K)

    def singles(self, count: int) -> list[float]:
        """Seconds of each of so many texts, one by one."""
        found = []
        for text in self.texts[:count]:
            started = time.perf_counter()
            self.model.predict([text], k=K)
            found.append(time.perf_counter() - started)
        return found

    def texts_per_s(self) -> float:
        """All texts together."""
        started = time.perf_counter()
        self.model.predict(self.texts, k=K)
        return len(self.texts) / (time.perf_counter() - started)


def alone(port: int, engine: Engine, rounds: int = 10, count: int = 200) -> dict[str, Any]:
    """One client, one request after the other: empty ones and predictions, and the engine's own time, in turns."""
    asked = requests_of(engine.texts)
    times: dict[str, list[float]] = {"engine": [], "empty": [], "predict": []}
    for _ in range(rounds):
        times["engine"] += engine.singles(count)
        for name, source in (("empty", itertools.repeat(EMPTY)), ("predict", asked)):
            times[name] += asyncio.run(closed_loop(port, source, 1, count=count)).seconds
    middle = {name: 1000 * statistics.median(found) for name, found in times.items()}
    above = middle["predict"] - middle["empty"] - middle["engine"]
    return {**{f"{name}_p50_ms": round(ms, 3) for name, ms in middle.items()}, "above_both_ms": round(above, 3)}


def together(port: int, engine: Engine, seconds: float, each: int, connections: int = 64) -> dict[str, Any]:
    """So many clients at once, as fast as they can, between two batches of the engine."""
    asyncio.run(closed_loop(port, requests_of(engine.texts, each), connections, seconds=1))
    before = engine.texts_per_s()
    seen = asyncio.run(closed_loop(port, requests_of(engine.texts, each), connections, seconds=seconds))
    own = (before + engine.texts_per_s()) / 2
    found = seen.summary()
    per_s = each * found["answered_per_s"]
    return {
        **found,
        "texts_per_request": each,
        "texts_per_s": round(per_s, 1),
        "engine_texts_per_s": round(own, 1),
        "share_of_engine": round(per_s / own, 3),
    }


def costs(running: Running, requests: Iterator[bytes], seconds: float, connections: int = 64) -> dict[str, Any]:
    """What a request costs the processor, in the workers and in the client, which share the cores, when so many clients
    ask as fast as they can.
    """
    pids = running.workers()
    before, own = sum(map(processor_seconds, pids)), time.process_time()
    found = asyncio.run(closed_loop(running.port, requests, connections, seconds=seconds)).summary()
    each = 1e6 / max(found["requests"], 1)
    return {
        **found,
        "worker_us_per_request": round((sum(map(processor_seconds, pids)) - before) * each, 1),
        "client_us_per_request": round((time.process_time() - own) * each, 1),
    }


def ceiling(running: Running, engine: Engine, seconds: float) -> dict[str, Any]:
    """Why requests of one text are far below the engine: the costs of requests that ask no model, of such that ask for
    one text, and of a text in a large batch.
    """
    asyncio.run(closed_loop(running.port, requests_of(engine.texts), 64, seconds=1))
    own = time.process_time()
    engine.texts_per_s()
    in_batch = 1e6 * (time.process_time() - own) / len(engine.texts)
    return {
        "empty": costs(running, itertools.repeat(EMPTY), seconds),
        "one text": costs(running, requests_of(engine.texts), seconds),
        "engine_us_per_text_in_a_batch": round(in_batch, 1),
    }


def overload(port: int, texts: Sequence[str], seconds: float, per_second: float, each: int) -> dict[str, Any]:
    """Requests at three times the rate that can be answered."""
    seen = asyncio.run(open_loop(port, requests_of(texts, each), 3 * per_second, seconds))
    found = seen.summary()
    return {
        **found,
        "asked_per_s": round(3 * per_second, 1),
        "texts_per_request": each,
        "p99_over_p50": round(found["p99_ms"] / found["p50_ms"], 2),
    }


def memory(running: Running, texts: Sequence[str], requests: int, steps: int = 10) -> dict[str, Any]:
    """Private memory of the workers while so many requests are answered."""
    asked = requests_of(texts)
    asyncio.run(closed_loop(running.port, asked, 64, count=max(requests // 20, 100)))
    found = [round(running.memory_mb(), 1)]
    total = Seen()
    for _ in range(steps):
        seen = asyncio.run(closed_loop(running.port, asked, 64, count=requests // steps))
        total.statuses += seen.statuses
        total.failed += seen.failed
        found.append(round(running.memory_mb(), 1))
    statuses = {str(status): count for status, count in total.statuses.items()}
    return {"requests": requests, "statuses": statuses, "failed": total.failed, "private_mb": found}


def swaps(run: Path, texts: Sequence[str], count: int) -> dict[str, Any]:
    """A model is exchanged so many times while 8 clients ask; every answer must be that of the version it names."""
    with tempfile.TemporaryDirectory() as folder:
        home, other = Path(folder) / MODEL, Path(folder) / "other"
        pack(run, other, "int4", index="exact")
        sources = [Predictor.open(run).bundle.folder, other]
        home.mkdir()
        shutil.copytree(sources[0], home / "bundle")
        asked = [predict_bytes(MODEL, [text], K) for text in texts[:256]]
        expected: dict[str, dict[bytes, list[str]]] = {}
        for source in sources:
            model = Predictor.open(source)
            version = str(model.bundle.manifest["manifest_sha256"])[:12]
            found = (model.predict([text], k=K)[0] for text in texts[:256])
            expected[version] = dict(zip(asked, ([one.label for one in each] for each in found), strict=True))
        wrong, met = 0, set()

        def check(request: bytes, status: int, body: bytes) -> None:
            nonlocal wrong
            if status == 200:
                answer = json.loads(body)
                met.add(answer["version"])
                labels = [one["label"] for one in answer["results"][0]]
                # Batches add up in another order: labels of nearly equal scores may change places.
                wrong += set(labels[:-1]) - set(expected[answer["version"]][request]) != set()

        with serving(f"{MODEL}={home}", "--workers", "2") as running:

            async def exchange() -> Seen:
                stop = asyncio.Event()
                load = asyncio.create_task(closed_loop(running.port, itertools.cycle(asked), 8, stop=stop, check=check))
                for number in range(count):
                    await asyncio.to_thread(replace_bundle, home, sources[(number + 1) % 2])
                    running.process.send_signal(signal.SIGHUP)
                    until = time.monotonic() + 60
                    while len(running.events("model exchanged")) <= number and time.monotonic() < until:
                        await asyncio.sleep(0.02)
                stop.set()
                return await load

            seen = asyncio.run(exchange())
            exchanges = len(running.events("model exchanged"))
        first, second = expected.values()
        return {
            **seen.summary(),
            "exchanges": exchanges,
            "answers_not_of_the_version_they_name": wrong,
            "versions_met": len(met),
            "lists_that_differ_between_versions": sum(set(first[one]) != set(second[one]) for one in asked),
        }


def replace_bundle(home: Path, source: Path) -> None:
    """Aside, then by renaming, as a user would."""
    aside, old = home / "new", home / "old"
    shutil.copytree(source, aside)
    os.rename(home / "bundle", old)
    os.rename(aside, home / "bundle")
    shutil.rmtree(old)


def kills(run: Path, texts: Sequence[str], count: int = 3, connections: int = 16) -> dict[str, Any]:
    """Workers are killed while clients ask. Lost are requests that the dead had begun: at most one per connection."""
    with serving(f"{MODEL}={run}", "--workers", "2") as running:
        until = time.monotonic() + 60
        while len(running.workers()) < 2 and time.monotonic() < until:
            time.sleep(0.1)

        async def kill() -> Seen:
            stop = asyncio.Event()
            load = asyncio.create_task(closed_loop(running.port, requests_of(texts), connections, stop=stop))
            for _ in range(count):
                await asyncio.sleep(2)
                before = running.workers()
                os.kill(before[0], signal.SIGKILL)
                until = time.monotonic() + 60
                while len(set(running.workers()) - set(before)) < 1 and time.monotonic() < until:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            stop.set()
            return await load

        return {**asyncio.run(kill()).summary(), "killed": count, "connections": connections}
