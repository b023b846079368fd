"""What the routes of a worker share: the models, where requests wait, limits, counters."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request

from longtail.errors import ConfigError
from longtail.serve.batching import Line
from longtail.serve.corrections import Corrections
from longtail.serve.counters import Counters
from longtail.serve.hosted import Given, Hosted, Wanted
from longtail.serve.limits import Plan
from longtail.serve.problems import Problem, bad, busy, shown, too_large

# Bytes of a body that is not to be read on the event loop.
LONG = 200_000

Reload = Callable[[str], Awaitable[dict[str, Any]]]


class Service:
    """Lives on the event loop of a worker."""

    def __init__(self, plan: Plan, models: Sequence[Hosted], counters: Counters, reload: Reload) -> None:
        self.plan, self.limits, self.counters, self.reload = plan, plan.limits, counters, reload
        self.models = {hosted.name: hosted for hosted in models}
        self.lines = {name: Line(name, plan.limits, counters) for name in self.models}
        self.begun = 0
        self.stopping = False
        self.corrections = Corrections(plan.corrections, plan.limits) if plan.corrections else None
        self._tokens = [bytes.fromhex(digest) for digest in plan.token_digests]
        for hosted in models:
            self.use(hosted)

    def use(self, hosted: Hosted) -> None:
        """Answer with this version from now on. Requests that have begun keep the one they began with."""
        numbers = self.counters.model(hosted.name)
        if self.models[hosted.name] is not hosted:
            numbers.swaps += 1
        self.models[hosted.name] = hosted
        numbers.version = int(hosted.version, 16)

    def model(self, name: str) -> Hosted:
        found = self.models.get(name)
        if found is None:
            raise Problem(404, f"no model {shown(name)}; there are: {', '.join(self.models)}", "Model not found")
        return found

    # ---- who may ----

    @property
    def has_token(self) -> bool:
        return bool(self._tokens)

    def check_token(self, request: Request) -> None:
        """Digests are compared, all of them, in constant time."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).digest()
        matches = [hmac.compare_digest(digest, token) for token in self._tokens]
        if scheme.lower() != "bearer" or not any(matches):
            why = "a bearer token is needed" if not given else "the token is not one of this server"
            raise Problem(401, why, headers={"WWW-Authenticate": "Bearer"})

    # ---- what comes in ----

    async def body(self, request: Request) -> bytes:
        """The whole body, if it is small enough and arrives in time."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise Problem(415, f"a body in the encoding {shown(encoding)}; send it as it is")
        limit = self.limits.body_bytes
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                pieces: list[bytes] = []
                size = 0
                async for piece in request.stream():
                    size += len(piece)
                    if size <= limit:
                        pieces.append(piece)
                    elif size > 4 * limit:
                        break  # read on for a while: who is still sending does not listen
        except TimeoutError:
            closing = {"Connection": "close"}
            detail = f"the body did not arrive within {self.limits.timeout_s:g} seconds"
            raise Problem(408, detail, headers=closing) from None
        if size > limit:
            raise Problem(
                413, f"the body has more than {limit:,} bytes", "Content Too Large", headers={"Connection": "close"}
            )
        return b"".join(pieces)

    async def json_body(self, request: Request) -> Any:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Problem(415, f"the content type is {shown(kind or 'missing')}, expected application/json")
        body = await self.body(request)
        try:
            return await asyncio.to_thread(_parsed, body) if len(body) > LONG else _parsed(body)
        except UnicodeDecodeError as problem:
            raise bad(f"the body is not UTF-8: {problem.reason} at byte {problem.start}") from None
        except RecursionError:
            raise bad("the body is nested too deeply") from None
        except ValueError as problem:
            raise bad(f"the body is not JSON: {shown(str(problem), 120)}") from None

    def check_texts(self, texts: Any, what: str = "texts", most: int | None = None) -> list[str]:
        if not isinstance(texts, list):
            raise bad(f"{what} is {shown(texts)}, expected a list of strings")
        most = self.limits.texts if most is None else most
        if len(texts) > most:
            raise too_large(f"{what} has {len(texts)} entries, at most {most} are taken at once")
        for number, text in enumerate(texts):
            self.check_text(text, f"{what}[{number}]")
        return texts

    def check_text(self, text: Any, what: str) -> str:
        if not isinstance(text, str):
            raise bad(f"{what} is {shown(text)}, expected a string")
        if len(text) > self.limits.characters:
            raise too_large(f"{what} has {len(text)} characters, at most {self.limits.characters} are read")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as problem:
                raise bad(f"{what} is not Unicode text: half a surrogate pair at {problem.start}") from None
        return text

    def check_labels(self, texts: int, k: int) -> None:
        """Of an answer that is not a stream."""
        if texts * k > self.limits.labels:
            raise too_large(
                f"{texts} texts with {k} labels each, at most {self.limits.labels} labels are given at once"
            )

    # ---- what goes out ----

    async def answers(self, hosted: Hosted, asked: Wanted) -> list[Given]:
        """All answers of a request, from one version of the model."""
        return [one async for part in self.in_parts(hosted, asked) for one in part]

    async def in_parts(self, hosted: Hosted, asked: Wanted) -> AsyncIterator[list[Given]]:
        """The same part by part; other requests take their turns between them."""
        step = max(1, min(hosted.texts_at_once(asked, self.limits), self.limits.labels_at_once // max(asked.k, 1)))
        for start in range(0, len(asked.texts), step):
            part = asked if len(asked.texts) <= step else asked.part(start, start + step)
            try:
                yield await self.lines[hosted.name].ask(hosted, part)
            except ConfigError as problem:
                raise bad(f"{problem.message}; {problem.hint}") from problem

    # ---- what is said ----

    def begin(self) -> None:
        """A request has come; too many at once are refused before they are read."""
        if self.begun >= self.limits.requests:
            raise busy(f"{self.begun} requests are being answered already", 1)


def log(event: str, **facts: Any) -> None:
    """A line of JSON on standard error."""
    line = json.dumps({"time": round(time.time(), 3), "event": event, **facts}, ensure_ascii=False, default=str)
    sys.stderr.write(line.encode("utf-8", "replace").decode() + "\n")
    sys.stderr.flush()


def _parsed(body: bytes) -> Any:
    return json.loads(body.decode("utf-8"), parse_constant=_no_number)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")
