"""What is wrong with a request, as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from longtail.report import cut
from longtail.writing import json_writer

_written = json_writer(",", ":")


class Problem(Exception):
    """Ends a request with an answer that says why."""

    def __init__(
        self, status: int, detail: str, title: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})
        self.title = title or HTTPStatus(status).phrase

    def body(self) -> bytes:
        return as_json({"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail})


def bad(detail: str) -> Problem:
    return Problem(400, detail)


def too_large(detail: str) -> Problem:
    return Problem(413, detail, "Content Too Large")


def busy(detail: str, seconds: float) -> Problem:
    """Not now: come back in so many seconds."""
    return Problem(503, detail, headers={"Retry-After": str(max(1, round(seconds + 0.5)))})


def as_json(value: Any) -> bytes:
    """Strings of a model may hold what is no Unicode text; these alone are written as escapes."""
    text = _written(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def sentence(problem: BaseException) -> str:
    """What went wrong, for the log and for other processes. Cut: these read lines of bounded length."""
    return cut(getattr(problem, "message", None) or repr(problem))


def shown(value: Any, length: int = 60) -> str:
    """A value of a request inside a sentence: short. Of lists and objects only the length is told: deep ones cannot
    be walked through.
    """
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of length {len(value)}"
    text = repr(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=True)
    return text if len(text) <= length else f"{text[:length]}..."
