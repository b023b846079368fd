"""The native API, under /api/v1. Its description is `openapi.native`."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from longtail.errors import ConfigError
from longtail.serve.corrections import as_row
from longtail.serve.hosted import Given, Hosted, Wanted
from longtail.serve.problems import Problem, as_json, bad, shown, too_large
from longtail.serve.service import Service

LINES = "application/x-ndjson"
_LABELS_AT_ONCE = 500  # of a stream
_CORRECTED = {"text", "right", "wrong", "missing", "version"}
_VERSION = re.compile(r"[0-9a-f]{12}")
_FIELDS = {"texts", "k", "threshold", "precision", "allow", "exclude", "known", "anchors", "explain"}


def answered(value: Any) -> Response:
    return Response(as_json(value), media_type="application/json")


def wants_lines(request: Request) -> bool:
    """Whether the answer is to be a stream of lines of JSON."""
    return LINES in request.headers.get("accept", "")


async def models(service: Service, request: Request) -> Response:
    details = _truth(request.query_params.get("details", "false"), "details")
    found = [hosted.details if details else hosted.summary for hosted in service.models.values()]
    if wants_lines(request):
        return StreamingResponse(_each_line(found), media_type=LINES)
    return answered({"models": found})


async def model(service: Service, request: Request) -> Response:
    found = service.model(request.path_params["name"]).details
    if wants_lines(request):
        return StreamingResponse(_each_line([found]), media_type=LINES)
    return answered(found)


async def labels(service: Service, request: Request) -> Response:
    hosted = service.model(request.path_params["name"])
    query = request.query_params
    text = _short(service, query.get("q", ""), "q")
    details = _truth(query.get("details", "false"), "details")
    as_object = hosted.label_page if details else hosted.label
    if wants_lines(request):
        most = len(hosted)
        limit = min(most, whole_number(query.get("limit", str(most)), "limit", 1, 999_999_999))
        numbers = await asyncio.to_thread(hosted.search.find, text, limit)
        return StreamingResponse(_label_lines(as_object, numbers), media_type=LINES)
    limit = whole_number(query.get("limit", "20"), "limit", 1, 1000)
    found = await asyncio.to_thread(lambda: [as_object(number) for number in hosted.search.find(text, limit)])
    return answered({"labels": found})


async def _each_line(found: Iterable[Any]) -> AsyncIterator[bytes]:
    for one in found:
        yield as_json(one) + b"\n"


async def _label_lines(as_object: Callable[[int], Any], numbers: list[int]) -> AsyncIterator[bytes]:
    """Block by block: others are answered between them, and nothing waits that nobody reads."""

    def lines(some: list[int]) -> bytes:
        return b"".join(as_json(as_object(number)) + b"\n" for number in some)

    for first in range(0, len(numbers), _LABELS_AT_ONCE):
        yield await asyncio.to_thread(lines, numbers[first : first + _LABELS_AT_ONCE])


def _truth(said: str, name: str) -> bool:
    if said not in ("true", "false"):
        raise bad(f"{name} is {shown(said)}, expected true or false")
    return said == "true"


async def label(service: Service, request: Request) -> Response:
    hosted = service.model(request.path_params["name"])
    if "id" not in request.query_params:
        raise bad("which label? Give its id, percent-encoded: label?id=...")
    uid = _short(service, request.query_params["id"], "id")
    return answered(hosted.label_page(hosted.number(uid)))


def _short(service: Service, text: str, what: str) -> str:
    if len(text) > service.limits.query:
        raise bad(f"{what} has {len(text)} characters, at most {service.limits.query} are read")
    return text


async def reload(service: Service, request: Request) -> Response:
    name = service.model(request.path_params["name"]).name
    if not service.has_token:
        raise Problem(
            403, "models are exchanged by request only where the server has a token; start it with --token-file"
        )
    return answered(await service.reload(name))


async def correct(service: Service, request: Request) -> Response:
    """What a person says of the labels of a text is appended to a file, and changes nothing else."""
    hosted = service.model(request.path_params["name"])
    kept = service.corrections
    if kept is None or not hosted.abilities["corrections"]:
        raise Problem(403, "this server keeps no corrections; start it with --corrections FILE")
    kept.check_rate()
    body = await service.json_body(request)
    row = _correction(service, hosted, body)
    request.state.texts = [body["text"]]
    await asyncio.to_thread(kept.append, row)
    return answered({"kept": True})


def _correction(service: Service, hosted: Hosted, body: Any) -> dict[str, Any]:
    """A row of the file, from a request."""
    if not isinstance(body, dict) or "text" not in body:
        raise bad(f"the body is {shown(body)}, expected an object with a text")
    unknown = sorted(body.keys() - _CORRECTED)
    if unknown:
        raise bad(f"unknown field {shown(unknown[0])}; there are: {', '.join(sorted(_CORRECTED))}")
    text = service.check_text(body["text"], "text")
    if not text.strip():
        raise bad("the text is empty, so there is nothing to correct")
    right, wrong, missing = (_ids(body, name, service.limits.corrected) or [] for name in ("right", "wrong", "missing"))
    said = [*right, *wrong, *missing]
    if not said:
        raise bad("no label is said to be right, wrong or missing")
    hosted.chosen(said, "the correction")
    if len(set(said)) < len(said):
        twice = next(uid for number, uid in enumerate(said) if uid in said[:number])
        raise bad(f"the label {shown(twice)} is named twice; a label is right, wrong or missing")
    version = body.get("version")
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        raise bad(f"version is {shown(version)}, expected that of an answer, twelve hexadecimal digits")
    return as_row(
        text,
        [*right, *missing],
        wrong,
        fields=hosted.facts.fields,
        columns=hosted.columns,
        model=hosted.name,
        version=version or hosted.version,
    )


async def predict(service: Service, request: Request) -> Response:
    hosted = service.model(request.path_params["name"])
    lines = wants_lines(request)
    asked = what_is_asked(service, hosted, await service.json_body(request), lines)
    request.state.texts = asked.texts
    if lines:
        parts = service.in_parts(hosted, asked)
        # The first part decides whether there is an answer at all: a stream that has begun cannot say 503.
        first: list[Given] = await anext(parts, [])
        return StreamingResponse(_lines(hosted, first, parts), media_type=LINES)
    parts = service.in_parts(hosted, asked)
    results = ",".join([as_list(hosted, one) async for part in parts for one in part])
    body = f'{{"model":"{hosted.name}","version":"{hosted.version}","results":[{results}]}}'
    return Response(body.encode(), media_type="application/json")


async def _lines(hosted: Hosted, first: list[Given], parts: AsyncIterator[list[Given]]) -> AsyncIterator[bytes]:
    yield b"".join(b'{"results":%b}\n' % as_list(hosted, one).encode() for one in first)
    try:
        async for part in parts:
            yield b"".join(b'{"results":%b}\n' % as_list(hosted, one).encode() for one in part)
    except Problem as problem:  # the head has gone out: the reason is the last line
        yield problem.body() + b"\n"


def as_list(hosted: Hosted, found: Given) -> str:
    """Labels of one text as JSON, put together from pieces that are kept ready."""
    if found.why is None:
        pairs = zip(found.labels, found.scores, strict=True)
        return "[" + ",".join(f"{hosted.head(label)}{score!r}}}" for label, score in pairs) + "]"
    triples = zip(found.labels, found.scores, found.why, strict=True)
    return "[" + ",".join(f'{hosted.head(label)}{score!r},"why":{why}}}' for label, score, why in triples) + "]"


def what_is_asked(service: Service, hosted: Hosted, body: Any, lines: bool) -> Wanted:
    limits = service.limits
    if not isinstance(body, dict):
        raise bad(f"the body is {shown(body)}, expected an object with the field texts")
    unknown = sorted(body.keys() - _FIELDS)
    if unknown:
        raise bad(f"unknown field {shown(unknown[0])}; there are: {', '.join(sorted(_FIELDS))}")
    if "texts" not in body:
        raise bad("the field texts is missing, expected a list of strings")
    texts = service.check_texts(body["texts"], most=limits.stream_texts if lines else limits.texts)
    threshold, precision = (_number(body, name) for name in ("threshold", "precision"))
    try:
        lowest = hosted.lowest_score(threshold, precision)
    except ConfigError as problem:
        raise bad(problem.message) from None
    explain = body.get("explain", False)
    if not isinstance(explain, bool):
        raise bad(f"explain is {shown(explain)}, expected true or false")
    if explain and not hosted.abilities["explain"]:
        raise bad(f"the model '{hosted.name}' cannot say why (recipe '{hosted.facts.recipe}')")
    k = whole_number(body.get("k", 5), "k", 1, limits.k)
    if not lines:
        service.check_labels(len(texts), k)
    if explain and len(texts) * k > limits.explained:
        raise too_large(f"{len(texts)} texts with {k} labels each, at most {limits.explained} labels are explained")
    if explain and sum(map(len, texts)) * k > limits.explained_characters:
        raise too_large(f"explaining {k} labels, {limits.explained_characters // k} characters are read at most")
    allow, exclude = (_ids(body, name, limits.ids) for name in ("allow", "exclude"))
    known, anchors = (_lists(body, name, len(texts), limits.ids) for name in ("known", "anchors"))
    for name, lists in (("known", known), ("anchors", anchors)):
        if lists is not None and not hosted.abilities["known"]:
            raise bad(f"{name}: a model of the recipe '{hosted.facts.recipe}' reads text alone")
    for ids in known or ():
        hosted.chosen(ids, "known")
    return Wanted(
        texts,
        k,
        lowest,
        None if allow is None else hosted.chosen(allow, "allow"),
        frozenset() if exclude is None else hosted.chosen(exclude, "exclude"),
        known,
        anchors,
        explain,
    )


def _number(body: Mapping[str, Any], name: str) -> float | None:
    """A number of a request; None where it is not given."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise bad(f"{name} is {shown(value)}, expected a number")
    return float(value)


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond what a float holds
        return False


def whole_number(value: Any, name: str, low: int, high: int) -> int:
    """From JSON, or from a query where it is a string."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad(f"{name} is {shown(value)}, expected a whole number from {low} to {high}")
    return value


def _ids(body: Mapping[str, Any], name: str, most: int) -> list[str] | None:
    """A list of label ids; None where it is not given."""
    ids = body.get(name)
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(isinstance(uid, str) for uid in ids):
        raise bad(f"{name} is {shown(ids)}, expected a list of label ids")
    if len(ids) > most:
        raise too_large(f"{name} has {len(ids)} entries, at most {most} are taken")
    return ids


def _lists(body: Mapping[str, Any], name: str, texts: int, most: int) -> list[list[str]] | None:
    """A list of ids for each text; None where it is not given, or nothing is known of any text."""
    lists = body.get(name)
    if lists is None or lists == []:
        return None
    if not isinstance(lists, list) or len(lists) != texts:
        raise bad(f"{name} is {shown(lists)}, expected a list of ids for each of the {texts} texts")
    found = [_ids({name: ids}, name, most) for ids in lists]
    if any(ids is None for ids in found):
        raise bad(f"{name} has null for a text, expected a list of ids; [] where nothing is known")
    return [ids for ids in found if ids is not None] if any(found) else None
