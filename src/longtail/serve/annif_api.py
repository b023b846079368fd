"""Annif's API, under /v1: every model is a project with a vocabulary of the same name.

Answers are those of Annif 1.4 to the letter, so that its clients, and Annif itself as a client (``backend=http``), need
no change.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from longtail.serve import languages
from longtail.serve.hosted import Given, Hosted, Wanted
from longtail.serve.native import answered
from longtail.serve.problems import Problem, bad, shown, too_large
from longtail.serve.service import LONG, Service

DOCUMENTS = 32  # of a batch, as in Annif
_OTHER_FIELDS = 10_000  # bytes of a form beside the text
VERSION = "1.4.3"  # of the API that this is


async def about(service: Service, request: Request) -> Response:
    return answered({"title": "Annif REST API", "version": VERSION})


def _vocabulary(service: Service, hosted: Hosted) -> dict[str, Any]:
    return {"vocab_id": hosted.name, "languages": [service.plan.language], "size": len(hosted), "loaded": True}


def _project(service: Service, hosted: Hosted) -> dict[str, Any]:
    language = service.plan.language
    return {
        "project_id": hosted.name,
        "name": f"{hosted.name} ({hosted.facts.recipe})",
        "language": language,
        "backend": {"backend_id": "longtail"},
        "vocab": _vocabulary(service, hosted),
        "vocab_language": language,
        "is_trained": True,
        "modification_time": hosted.facts.changed,
    }


async def vocabs(service: Service, request: Request) -> Response:
    return answered({"vocabs": [_vocabulary(service, hosted) for hosted in service.models.values()]})


async def projects(service: Service, request: Request) -> Response:
    return answered({"projects": [_project(service, hosted) for hosted in service.models.values()]})


async def project(service: Service, request: Request) -> Response:
    return answered(_project(service, _hosted(service, request)))


def _hosted(service: Service, request: Request) -> Hosted:
    name = request.path_params["name"]
    if name not in service.models:
        raise Problem(404, f"Project '{name}' not found", "Project not found")
    return service.models[name]


async def suggest(service: Service, request: Request) -> Response:
    hosted = _hosted(service, request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Problem(
            415, f"the content type is {shown(kind or 'missing')}, expected application/x-www-form-urlencoded"
        )
    body = await service.body(request)
    # A character is at most four bytes, and each of them three in a form.
    longest = 12 * service.limits.characters + _OTHER_FIELDS
    if len(body) > longest:
        raise too_large(f"the form has {len(body)} bytes, at most {longest} are read")
    try:
        form = await asyncio.to_thread(_form, body) if len(body) > LONG else _form(body)
    except ValueError:
        raise bad("the body is not form-encoded UTF-8") from None
    if "text" not in form:
        raise bad("the field text is missing")
    text = service.check_text(form["text"], "text")
    asked, lowest = _asked(service, hosted, [text], form)
    request.state.texts = asked.texts
    found = await _found(service, hosted, asked)
    return answered({"results": _results(service, hosted, found[0], lowest)})


def _form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=1000))


async def suggest_batch(service: Service, request: Request) -> Response:
    hosted = _hosted(service, request)
    body = await service.json_body(request)
    documents = body.get("documents") if isinstance(body, dict) else None
    if not isinstance(documents, list):
        raise bad(f"the body is {shown(body)}, expected an object with a list called documents")
    if len(documents) > DOCUMENTS:
        raise bad(f"too many items - 'documents': {len(documents)}, at most {DOCUMENTS}")
    texts, ids = [], []
    for number, document in enumerate(documents):
        if not isinstance(document, dict) or "text" not in document:
            raise bad(f"documents[{number}] is {shown(document)}, expected an object with a text")
        texts.append(service.check_text(document["text"], f"documents[{number}].text"))
        uid = document.get("document_id")
        if uid is not None and not isinstance(uid, str):
            raise bad(f"documents[{number}].document_id is {shown(uid)}, expected a string")
        metadata = document.get("metadata")
        if metadata is not None and not (
            isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
        ):
            raise bad(f"documents[{number}].metadata is {shown(metadata)}, expected an object of strings")
        ids.append(uid)
    asked, lowest = _asked(service, hosted, texts, dict(request.query_params))
    request.state.texts = asked.texts
    found = await _found(service, hosted, asked)
    return answered(
        [
            {"results": _results(service, hosted, one, lowest), "document_id": uid}
            for one, uid in zip(found, ids, strict=True)
        ]
    )


def _asked(service: Service, hosted: Hosted, texts: list[str], given: dict[str, str]) -> tuple[Wanted, float]:
    """limit, threshold and language, which come as strings. Unknown fields are passed over, as by Annif. The threshold
    goes beside: it is compared with scores as Annif's clients see them.
    """
    limit, threshold = given.get("limit", "10"), given.get("threshold", "0")
    if not (limit.isascii() and limit.isdigit()) or len(limit) > 9:
        raise bad(f"limit is {shown(limit)}, expected a whole number >= 0")
    try:
        lowest = float(threshold)
    except ValueError:
        lowest = math.nan
    if not 0 <= lowest <= 1:
        raise bad(f"threshold is {shown(threshold)}, expected a number from 0 to 1")
    language = given.get("language", "")
    if language and language != service.plan.language:
        raise bad(f'language "{shown(language)[1:-1]}" not supported by vocabulary')
    return Wanted(texts, min(int(limit), service.limits.k), allow=hosted.annif_allow), lowest


async def _found(service: Service, hosted: Hosted, asked: Wanted) -> list[Given]:
    """A limit of 0 asks for empty lists."""
    return await service.answers(hosted, asked) if asked.k else [Given([], []) for _ in asked.texts]


def _results(service: Service, hosted: Hosted, found: Given, lowest: float) -> list[dict[str, Any]]:
    """Annif's scores are in (0, 1]: clients drop others. Scores of a list whose best is above 1 are divided by it; what
    is not above 0 is nothing.
    """
    largest = max(1.0, found.scores[0]) if found.scores else 1.0
    scaled = Given(found.labels, [score / largest for score in found.scores]).above(lowest)
    return [
        {
            "uri": service.plan.uri_prefix + hosted.uid(label),
            "label": hosted.label_name(label),
            "score": score,
            "notation": None,
        }
        for label, score in zip(scaled.labels, scaled.scores, strict=True)
        if score > 0
    ]


async def learn(service: Service, request: Request) -> Response:
    hosted = _hosted(service, request)
    if not isinstance(await service.json_body(request), list):
        raise bad("expected a list of documents")
    raise Problem(
        403,
        f"Learning not enabled for project '{hosted.name}': train a new model and exchange it",
        "Learning not allowed",
    )


async def detect_language(service: Service, request: Request) -> Response:
    body = await service.json_body(request)
    if not isinstance(body, dict) or not isinstance(body.get("text"), str):
        raise bad(f"the body is {shown(body)}, expected an object with a text and languages")
    codes = body.get("languages")
    if not isinstance(codes, list) or not 1 <= len(codes) <= 5 or not all(isinstance(code, str) for code in codes):
        raise bad(f"languages is {shown(codes)}, expected one to five codes of languages")
    unknown = [code for code in codes if code not in languages.WORDS]
    if unknown:
        known = ", ".join(sorted(languages.WORDS))
        raise bad(f"unsupported candidate languages: {shown(unknown[0])}; there are: {known}")
    scores = languages.detected(service.check_text(body["text"], "text"), codes)
    return answered({"results": [{"language": code, "score": score} for code, score in scores]})
