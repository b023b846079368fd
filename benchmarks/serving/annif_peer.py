"""A real Annif as a client of our server, alone and inside an ensemble, and Annif's own server as a peer.

Annif is trained on the embedded sample with its omikuji backend. Its tokenizer asks for data of nltk that is fetched
from the network; empty tables stand in its place (no abbreviations are known), which changes nothing for definitions
of a few words.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.serving.load import closed_loop, request_bytes, suggest_bytes
from benchmarks.serving.processes import serving
from longtail.data.dataset import Dataset, Split
from longtail.data.read import read, sample_folder
from longtail.predictor import Predictor

PREFIX = "http://example.org/synset/"
MODEL, PEER, OURS, BOTH, SMALL = "model", "peer", "ours", "both", "ours-small"
LIMIT = 10
EVALUATED = 300


def measured(run: Path, environment: Path, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    data = read(sample_folder())
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        annif = Annif(home, environment)
        write_corpora(data, home)
        names = ("--uri-prefix", PREFIX)
        with (
            serving(f"{MODEL}={run}", *names) as ours,
            serving(f"{MODEL}={run}", *names, "--annif-labels", str(home / "small.tsv")) as small,
        ):
            annif.write_projects(ours.port, small.port)
            for vocabulary in ("full", "small"):
                annif.run("load-vocab", "--language", "en", vocabulary, str(home / f"{vocabulary}.tsv"))
            started = time.perf_counter()
            annif.run("train", PEER, str(home / "train.tsv"))
            found: dict[str, Any] = {"annif_trains_s": round(time.perf_counter() - started, 1)}
            found["annif_as_client"] = _said("as client", as_client(annif, run, home, texts))
            with annif.serving() as port:
                found["annif"] = _said("annif", speed(port, PEER, texts, seconds))
            found["longtail"] = _said("longtail", speed(ours.port, MODEL, texts, seconds))
    theirs, own = found["annif"], found["longtail"]
    found["ratio"] = {
        name: round(own[name]["answered_per_s"] / theirs[name]["answered_per_s"], 2)
        for name in ("at_64", "batches_of_32_at_8")
    }
    found["ratio"]["latency_alone"] = round(theirs["alone"]["p50_ms"] / own["alone"]["p50_ms"], 2)
    return found


def _said(name: str, numbers: dict[str, Any]) -> dict[str, Any]:
    print(name, json.dumps(numbers), flush=True)
    return numbers


def write_corpora(data: Dataset, home: Path) -> None:
    """The sample as Annif reads it. small.tsv lacks every tenth label."""
    labels = list(zip(data.labels.uids, data.labels.titles(), strict=True))
    for name, kept in (("full", labels), ("small", [one for n, one in enumerate(labels) if n % 10])):
        lines = (f"<{PREFIX}{uid}>\t{title}\n" for uid, title in kept)
        (home / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    for name, split, most in (("train", data.train, None), ("test", data.need_test(), EVALUATED)):
        (home / f"{name}.tsv").write_text("".join(_lines(data, split, most)), encoding="utf-8")


def _lines(data: Dataset, split: Split, most: int | None) -> Iterator[str]:
    targets = split.targets
    for row, text in enumerate(split.documents.titles()[:most]):
        numbers = targets.indices[targets.indptr[row] : targets.indptr[row + 1]].tolist()
        yield f"{' '.join(text.split())}\t{' '.join(f'<{PREFIX}{data.labels.uids[number]}>' for number in numbers)}\n"


class Annif:
    def __init__(self, home: Path, environment: Path) -> None:
        self.home, self.bin = home, environment.resolve() / "bin"
        self.environment = {
            **os.environ,
            "ANNIF_DATADIR": str(home / "data"),
            "ANNIF_PROJECTS": str(home / "projects.cfg"),
            "NLTK_DATA": str(home / "nltk"),
            "PYTHONPATH": "",
        }
        tables = home / "nltk" / "tokenizers" / "punkt_tab" / "english"
        tables.mkdir(parents=True)
        for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
            (tables / name).touch()

    def write_projects(self, port: int, small_port: int) -> None:
        def endpoint(at: int) -> str:
            return f"http://127.0.0.1:{at}/v1/projects/{MODEL}/suggest"

        projects: Mapping[str, Mapping[str, Any]] = {
            PEER: {"backend": "omikuji", "analyzer": "snowball(english)", "vocab": "full"},
            OURS: {"backend": "http", "endpoint": endpoint(port), "vocab": "full"},
            BOTH: {"backend": "ensemble", "sources": f"{PEER},{OURS}", "vocab": "full"},
            SMALL: {"backend": "http", "endpoint": endpoint(small_port), "vocab": "small"},
        }
        text = "\n".join(
            "\n".join(
                [f"[{name}]", f"name={name}", "language=en", *(f"{key}={value}" for key, value in fields.items()), ""]
            )
            for name, fields in projects.items()
        )
        (self.home / "projects.cfg").write_text(text)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [str(self.bin / "annif"), *words],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.home,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"annif {' '.join(words)}: {done.stderr[-2000:]}")
        self.said = done.stderr
        return done.stdout

    @contextmanager
    def serving(self) -> Iterator[int]:
        """Its application under uvicorn, one process, as ours."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        command = [str(self.bin / "uvicorn"), "annif:create_app", "--factory", "--port", str(port)]
        quiet = ["--log-level", "error", "--no-access-log"]
        # All projects are opened when the server starts.
        environment = {**self.environment, "ANNIF_CONFIG": "annif.default_config.ProductionConfig"}
        process = subprocess.Popen([*command, *quiet], env=environment, cwd=self.home)
        try:
            until = time.monotonic() + 120
            while time.monotonic() < until:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.2)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def as_client(annif: Annif, run: Path, home: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Labels that Annif gets from us are those of `Predictor`; its own measures of three projects."""
    model, equal, close = Predictor.open(run), 0, 0
    some = list(texts[:100])
    files = [home / f"text{number}.txt" for number in range(len(some))]
    for file, text in zip(files, some, strict=True):
        file.write_text(text, encoding="utf-8")
    answers = annif.run("suggest", "--limit", str(LIMIT), OURS, *map(str, files)).split("Suggestions for ")[1:]
    for text, answer in zip(some, answers, strict=True):
        lines = [line.split("\t") for line in answer.splitlines()[1:]]
        got = [(uri.strip("<>").removeprefix(PREFIX), float(score)) for uri, _, score in lines]
        wanted = [(one.label, one.score) for one in model.predict([text], k=LIMIT)[0]]
        equal += {label for label, _ in got} == {label for label, _ in wanted}
        # Annif prints four digits, and leaves out what rounds to nothing.
        close += all(abs(a - b) < 1e-3 for (_, a), (_, b) in zip(got, wanted, strict=True))
    found: dict[str, Any] = {"asked": len(some), "same_labels": equal, "same_scores": close}
    for project in (PEER, OURS, BOTH, SMALL):
        report = annif.run("eval", project, str(home / "test.tsv"))
        metrics = {name: float(value) for name, value in re.findall(r"^(\S.*?):\s+([\d.]+)$", report, flags=re.M)}
        kept = ("F1 score (doc avg)", "F1@5", "NDCG@10", "NDCG", "Precision@1", "Documents evaluated")
        found[project] = {name: metrics[name] for name in kept if name in metrics}
        found[project]["warnings"] = len(re.findall(r"^(?:warning|error)", annif.said, flags=re.M | re.I))
    return found


def speed(port: int, project: str, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    """The same requests to either server: suggest for one text, alone and at 64 clients; batches of 32."""
    one = itertools.cycle([suggest_bytes(project, text, LIMIT) for text in texts])
    batches = itertools.cycle([_batch(project, texts[start : start + 32]) for start in range(0, len(texts) - 32, 32)])
    asyncio.run(closed_loop(port, one, 4, count=200))
    return {
        "alone": asyncio.run(closed_loop(port, one, 1, seconds=seconds)).summary(),
        "at_64": asyncio.run(closed_loop(port, one, 64, seconds=seconds)).summary(),
        "batches_of_32_at_8": asyncio.run(closed_loop(port, batches, 8, seconds=seconds)).summary(),
    }


def _batch(project: str, texts: Sequence[str]) -> bytes:
    body = json.dumps({"documents": [{"text": text} for text in texts]}).encode()
    path = f"/v1/projects/{project}/suggest-batch?limit={LIMIT}"
    return request_bytes("POST", path, body, {"Content-Type": "application/json"})
