"""A server that stands in for ours in tests of the page: it answers at once, late, never, or with hostile names, as it
is told. Its API has the shapes of ours, and it sends the page itself.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import longtail

PAGE = Path(longtail.__file__).parent / "serve" / "page"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# As strict as it can be: what the page does must work under it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)

# name, training documents
WORDS = (
    ("bicycle, bike, wheel, cycle - a wheeled vehicle that has two wheels and is moved by foot pedals", 12),
    ("vehicle - a conveyance that transports people or objects", 240),
    ("wheel - a simple machine consisting of a circular frame with spokes", 31),
    ("cake - baked goods made from a mixture of flour, sugar, eggs and fat", 44),
    ("pastry - any of various baked foods made of dough or batter", 9),
    ("owl, hooter - nocturnal bird of prey with a large head that hunts at night", 3),
    ("bird - warm-blooded animal with feathers and wings", 118),
    ("storm - a violent weather condition with wind, rain, thunder and lightning", 17),
    ("violin, fiddle - an instrument with four strings that is played with a bow", 2),
    ("library - a building where books are kept", 5),
)
HOSTILE = (
    "<script>document.title = 'taken'</script>",
    "<img src=x onerror=\"document.title='taken'\"> - <b>bold</b>",
    "שלום עולם - ברכה של שלום",
    "a | b, \"quoted\" & 'more'",
    "plain",
)
BINS = [(0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 128), (129, 256)]
ALL = {"explain": True, "known": True, "neighbours": True, "examples": True, "calibrated": False, "corrections": False}


@dataclass
class Model:
    """Labels are ranked by the share of the words of a text that their names hold. The word "not" speaks against all,
    and known labels speak for all.
    """

    name: str
    names: tuple[str, ...]
    counts: tuple[int, ...]
    data: str = "sample"
    abilities: dict[str, bool] = field(default_factory=lambda: dict(ALL))
    metrics: dict[str, Any] = field(default_factory=dict)
    version: str = "0123456789ab"
    scale: float = 1.0  # of scores

    def labels(self) -> list[dict[str, Any]]:
        pairs = zip(self.names, self.counts, strict=True)
        return [{"label": f"L{n}", "name": name, "documents": count} for n, (name, count) in enumerate(pairs)]

    def summary(self) -> dict[str, Any]:
        about = {"name": self.name, "recipe": "direct", "labels": len(self.names), "version": self.version}
        return {**about, "data": self.data, "abilities": self.abilities}

    def details(self) -> dict[str, Any]:
        bins = [
            {"from": low, "to": high, "labels": sum(low <= count <= high for count in self.counts)}
            for low, high in BINS
        ]
        settings = {"features": {"words": True, "char_sizes": [4]}, "train": {"epochs": 15}}
        return {**self.summary(), "settings": settings, "metrics": self.metrics, "frequencies": bins}

    def predict(self, asked: dict[str, Any]) -> dict[str, Any]:
        results = []
        for n, text in enumerate(asked["texts"]):
            known = asked.get("known", [[]] * (n + 1))[n]
            out = {*asked.get("exclude", ()), *known}
            found = [self.scored(one, text, asked) for one in self.labels() if one["label"] not in out]
            found = [one for one in found if one["score"] >= max(asked.get("threshold", 0.0), 0.01)]
            results.append(sorted(found, key=lambda one: -one["score"])[: asked.get("k", 5)])
        return {"model": self.name, "version": self.version, "results": results}

    def scored(self, label: dict[str, Any], text: str, asked: dict[str, Any]) -> dict[str, Any]:
        inside = set(re.findall(r"\w+", label["name"].lower()))
        share_of = dict.fromkeys(inside, 1.0) | {"not": -0.5}
        words = [(match, share_of.get(match.group().lower(), 0.0)) for match in re.finditer(r"\w+", text)]
        score = sum(share for _, share in words) / max(1, len(words))
        if self.data != "sample":  # hostile names are always found
            score = max(score, 0.9 - 0.1 * int(label["label"][1:]))
        answer = {**label, "rare": label["documents"] <= 5, "score": round(self.scale * score, 4)}
        if asked.get("explain"):
            answer["why"] = {
                "words": [
                    {"text": word.group(), "field": "title", "start": word.start(), "end": word.end(), "share": share}
                    for word, share in words
                ],
                "others": [
                    {"kind": "label", "id": one["label"], "name": one["name"], "share": 1.0}
                    for one in self.labels()
                    if one["label"] in asked.get("known", [[]])[0]
                ],
                "method": "exact",
            }
        return answer

    def label(self, uid: str) -> dict[str, Any]:
        every = self.labels()
        at = next(n for n, one in enumerate(every) if one["label"] == uid)
        near = [every[(at + step) % len(every)] for step in range(1, len(every))]
        found = [
            {"label": one["label"], "name": one["name"], "score": round(0.9 - 0.1 * n, 2)} for n, one in enumerate(near)
        ]  # all others, those that follow it first
        examples = [{"id": f"d{at}", "text": f"a text of training about {self.names[at]}"}]
        return {**every[at], "text": self.names[at], "neighbours": found, "examples": examples}


def models() -> dict[str, Model]:
    measured = {
        "documents": 2000,
        "scores": {"FN@5": 34.7, "P@1": 62.85, "P@5": 30.1, "PSP@5": 68.33, "R@100": 94.42},
        "baselines": {"most frequent labels": {"P@1": 2.09, "P@5": 1.71, "PSP@5": 1.5, "R@100": 26.81}},
        "by_frequency": {"bins": ["100+", "1"], "n_labels": [2, 8], "P@5": [5.11, 0.72], "PSP@5": [5.27, 3.99]},
    }
    words, counts = tuple(name for name, _ in WORDS), tuple(count for _, count in WORDS)
    dictionary = Model("dictionary", words, counts, metrics=measured)
    bare = dict.fromkeys(ALL, False)
    hostile = Model("hostile", HOSTILE, (1, 20, 3, 40, 5), data="<i>shop</i>", abilities=bare)
    return {model.name: model for model in (dictionary, hostile)}


class StandIn:
    """`with StandIn() as server:` is at `server.address`. What it is told holds for requests that come after."""

    def __init__(self) -> None:
        self.port = 0
        self.reset()

    def reset(self) -> None:
        self.models = models()
        self.delay = 0.0  # seconds before an answer to `predict`
        self.delays: dict[str, float] = {}  # the same for some texts
        self.busy = 0  # requests that are answered with 503
        self.retry_after = "1"
        self.token = ""
        self.refused = ""  # a text with this inside is answered with 422
        self.version = ""  # that answers tell, if not that of the model
        self.asked: list[dict[str, Any]] = []  # bodies that came
        self.corrected: list[dict[str, Any]] = []  # the same of corrections
        self.full = ""  # why corrections are not kept
        self.full_status = 507
        self.got: list[str] = []  # addresses that were asked for

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> StandIn:
        """On the port of before, if it was stopped."""
        stand_in = self

        class Bound(Handler):
            told = stand_in

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Bound)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self) -> StandIn:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Handler(BaseHTTPRequestHandler):
    told: StandIn

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        self.told.got.append(path)
        if path.startswith("/api/v1/"):
            self.api(path.removeprefix("/api/v1/").split("/"), {k: v[0] for k, v in parse_qs(url.query).items()})
            return
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        file = PAGE / name
        if "/" in name or not file.is_file():
            self.problem(404, "no such page")
        else:
            self.send(200, file.read_bytes(), KINDS[file.suffix])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = self.told
        if self.path.endswith("/corrections"):
            self.correct(body)
            return
        told.asked.append(body)
        if told.busy > 0:
            told.busy -= 1
            self.problem(503, "too many requests wait", {"Retry-After": told.retry_after})
            return
        time.sleep(max([told.delays.get(text, told.delay) for text in body["texts"]]))
        if told.refused and any(told.refused in text for text in body["texts"]):
            self.problem(422, "a text is refused")
            return
        name = unquote(urlsplit(self.path).path).split("/")[4]
        self.api(["models", name, "predict"], body)

    def correct(self, body: dict[str, Any]) -> None:
        if self.told.full:
            self.problem(self.told.full_status, self.told.full)
        else:
            self.told.corrected.append(body)
            self.json({"kept": True})

    def api(self, path: list[str], said: dict[str, Any]) -> None:
        told = self.told
        if told.token and self.headers["Authorization"] != f"Bearer {told.token}":
            self.problem(401, "a token is needed")
            return
        if path == ["models"]:
            self.json({"models": [model.summary() for model in told.models.values()]})
            return
        model = told.models.get(path[1])
        if model is None:
            self.problem(404, f"no model {path[1]}")
        elif path[2:] == []:
            self.json(model.details())
        elif path[2] == "predict":
            answer = model.predict(said)
            self.json({**answer, "version": told.version or answer["version"]})
        elif path[2] == "labels":
            wanted = said.get("q", "").lower()
            self.json({"labels": [one for one in model.labels() if wanted in one["name"].lower()]})
        else:
            self.json(model.label(said["id"]))

    def json(self, answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(status, json.dumps(answer).encode(), "application/json", headers)

    def problem(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        self.json({"title": "A problem", "status": status, "detail": detail}, status, headers)

    def send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the page asked for something else meanwhile


if __name__ == "__main__":
    print(StandIn().start().address)
    threading.Event().wait()
