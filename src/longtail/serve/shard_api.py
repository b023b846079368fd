"""What a front asks the servers of shards, under /shard/v1. Clients ask the front."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from longtail.search.split import ShardLists
from longtail.serve.hosted import Hosted, Wanted
from longtail.serve.native import answered, whole_number
from longtail.serve.problems import Problem, as_json, bad, shown
from longtail.serve.service import Service
from longtail.serve.wire import BYTES, PROTOCOL, found_as_bytes

# Labels told at once.
LABELS = 20_000


def _shard(service: Service, request: Request) -> Hosted:
    hosted = service.model(request.path_params["name"])
    if hosted.facts.shard is None:
        raise Problem(404, f"the model '{hosted.name}' is no shard; longtail split makes shards", "Not a shard")
    return hosted


def _about(hosted: Hosted) -> dict[str, Any]:
    return {"name": hosted.name, "labels": len(hosted), **asdict(hosted.facts)}


async def shards(service: Service, request: Request) -> Response:
    """Every shard of this server."""
    found = [_about(hosted) for hosted in service.models.values() if hosted.facts.shard is not None]
    return answered({"protocol": PROTOCOL, "shards": found})


async def labels(service: Service, request: Request) -> Response:
    """Ids, names and frequencies of labels, from a number on."""
    hosted = _shard(service, request)
    first = whole_number(request.query_params.get("from", "0"), "from", 0, len(hosted))
    numbers = range(first, min(first + LABELS, len(hosted)))

    def told() -> bytes:
        table = [[hosted.uid(n), hosted.label_name(n), int(hosted.counts[n])] for n in numbers]
        return as_json({"version": hosted.sha, "labels": table})

    return Response(await asyncio.to_thread(told), media_type="application/json")


async def found(service: Service, request: Request) -> Response:
    """``{"texts": [...], "k": 5}`` -> what this shard has of the 5 best labels of the whole."""
    hosted = _shard(service, request)
    body = _object(await service.json_body(request))
    texts = request.state.texts = service.check_texts(body.get("texts"))
    k = whole_number(body.get("k"), "k", 1, service.limits.deepest)
    service.check_labels(len(texts), k)
    given = await service.answers(hosted, Wanted(texts, k, found=True))
    parts = [one.found for one in given if one.found is not None]
    if not parts:
        raise bad("no texts")
    return Response(await asyncio.to_thread(_packed, hosted.sha, parts), media_type=BYTES)


def _packed(version: str, parts: list[ShardLists]) -> bytes:
    return found_as_bytes(version, ShardLists.stacked(parts))


async def reasons(service: Service, request: Request) -> Response:
    """``{"texts": [...], "labels": [[3], ...]}`` -> why each text has each of its labels, which are numbers here."""
    hosted = _shard(service, request)
    body = _object(await service.json_body(request))
    texts = request.state.texts = service.check_texts(body.get("texts"))
    wanted = body.get("labels")
    if not isinstance(wanted, list) or len(wanted) != len(texts):
        raise bad(f"labels is {shown(wanted)}, expected a list for each of the {len(texts)} texts")
    for numbers in wanted:
        if not isinstance(numbers, list) or len(numbers) > service.limits.explained:
            raise bad(f"labels has {shown(numbers)} for a text, expected a list of numbers")
        for number in numbers:
            whole_number(number, "a label", 0, len(hosted) - 1)
    k = max((len(numbers) for numbers in wanted), default=0)
    given = await service.answers(hosted, Wanted(texts, max(k, 1), why=wanted))
    said = ",".join("[" + ",".join(one.why or ()) + "]" for one in given)
    return Response(f'{{"version":"{hosted.sha}","reasons":[{said}]}}'.encode(), media_type="application/json")


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise bad(f"the body is {shown(body)}, expected an object")
    return body
