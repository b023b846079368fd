"""Servers as real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import requests

Json = Any


class Server:
    """``longtail serve`` as a user starts it."""

    def __init__(self, *words: str, log: Path, port: int = 0) -> None:
        self.log_file = log
        command = [sys.executable, "-m", "longtail", "serve", "--port", str(port), *words]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL)
        self.session = requests.Session()

    @cached_property
    def url(self) -> str:
        """Where it is, when it is ready."""
        return self._where()

    def log(self) -> list[Json]:
        """Of a line only half is there while it is written, or where its worker was killed meanwhile."""
        found: list[Json] = []
        for line in self.log_file.read_text().splitlines():
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def _where(self) -> str:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            for line in self.log():
                if line["event"] == "serving":
                    return str(line["url"]).rstrip("/")
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(self.log_file.read_text())

    @property
    def port(self) -> int:
        found = re.search(r":(\d+)$", self.url)
        assert found is not None
        return int(found[1])

    def workers(self) -> list[int]:
        """Process ids of the workers that answer."""
        ready = [line["pid"] for line in self.log() if line["event"] == "worker ready"]
        ended = [line["pid"] for line in self.log() if line["event"] == "worker ended"]
        return [pid for pid in ready if pid not in ended]

    def wait_for(self, what: Callable[[], bool], seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < until, self.log_file.read_text()[-3000:]
            time.sleep(0.05)

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.session.get(self.url + path, timeout=30, **more)

    def post(self, path: str, body: Json = None, **more: Any) -> requests.Response:
        return self.session.post(self.url + path, json=body, timeout=30, **more)

    def predict(self, model: str, texts: list[str], **more: Any) -> requests.Response:
        return self.post(f"/api/v1/models/{model}/predict", {"texts": texts, **more})

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def start(folder: Path, *words: str | Path) -> Server:
    server = begin(folder, *words)
    assert server.url
    return server


def begin(folder: Path, *words: str | Path, port: int = 0) -> Server:
    """The same, without waiting until it is ready: several start side by side."""
    return Server(*map(str, words), log=folder / f"serve-{time.monotonic_ns()}.log", port=port)


def replaced(run: Path, by: Path) -> None:
    """Another bundle takes the place of that of a run, as a user would do it: aside, then by renaming."""
    aside, old = run / "bundle.new", run / "bundle.old"
    shutil.copytree(by / "bundle", aside)
    os.rename(run / "bundle", old)
    os.rename(aside, run / "bundle")
    shutil.rmtree(old)


def copied(run: Path, folder: Path) -> Path:
    """The bundle of a run, in a run of its own that tests may change."""
    folder.mkdir()
    shutil.copytree(run / "bundle", folder / "bundle")
    return folder


class Asking:
    """A client that asks again and again, on threads, until it is stopped; keeps every answer."""

    def __init__(self, server: Server, model: str, texts: list[str], threads: int = 4) -> None:
        self.answers: list[requests.Response] = []
        self.problems: list[Exception] = []
        self._stop = threading.Event()

        def ask() -> None:
            session = requests.Session()
            session.headers.update(server.session.headers)
            while not self._stop.is_set():
                try:
                    body: Any = {"texts": texts, "k": 3}
                    url = f"{server.url}/api/v1/models/{model}/predict"
                    self.answers.append(session.post(url, json=body, timeout=30))
                except requests.RequestException as problem:
                    self.problems.append(problem)
                    session.close()

        self._threads = [threading.Thread(target=ask) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
