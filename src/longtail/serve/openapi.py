"""Descriptions of the two APIs, as OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longtail import __version__
from longtail.serve.limits import Limits

Json = dict[str, Any]
_PROBLEMS = {
    400: "something is wrong with the request; detail says what",
    401: "a bearer token is needed",
    403: "not allowed",
    404: "no such model or label",
    408: "the body did not arrive in time",
    409: "the model stays as it was",
    413: "too large",
    415: "another content type is expected",
    507: "the file of corrections takes no more",
    503: "too many requests; the header Retry-After says when to come again",
}
PROBLEM: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}
_LINES = "application/x-ndjson"
_ASK_FOR_LINES = f"With 'Accept: {_LINES}' a line per"
_STRING: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer", "minimum": 0}
_SCORE: Json = {"type": "number"}


def _list(of: Json, most: int | None = None) -> Json:
    return {"type": "array", "items": of, **({} if most is None else {"maxItems": most})}


def _maybe(schema: Json) -> Json:
    """The same, or null."""
    return {**schema, "type": [schema["type"], "null"]}


def _object(required: Sequence[str] = (), /, **properties: Json) -> Json:
    found: Json = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    return found


def _one(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(
    summary: str,
    answer: Json | None,
    problems: Sequence[int],
    parameters: Sequence[Json] = (),
    body: Json | None = None,
    kinds: Sequence[str] = ("application/json",),
    good: int = 200,
    takes: str = "application/json",
) -> Json:
    answers: Json = {str(good): {"description": "done"}}
    if answer is not None:
        answers[str(good)]["content"] = {kind: {"schema": answer} for kind in kinds}
    problem = {"application/problem+json": {"schema": _one("Problem")}}
    for status in sorted({*problems, 401, 503}):
        answers[str(status)] = {"description": _PROBLEMS[status], "content": problem}
    found: Json = {"summary": summary, "responses": answers}
    if parameters:
        found["parameters"] = list(parameters)
    if body is not None:
        found["requestBody"] = {"required": True, "content": {takes: {"schema": body}}}
    return found


def _streamed(operation: Json) -> Json:
    """The same, also as lines of JSON."""
    operation["responses"]["200"]["content"][_LINES] = {"schema": _STRING}
    return operation


def _in(place: str, name: str, schema: Json, about: str, *, required: bool = False) -> Json:
    return {"in": place, "name": name, "schema": schema, "description": about, "required": required or place == "path"}


def _described(paths: Json, schemas: Json, info: Json, token: bool, version: str) -> Json:
    found: Json = {
        "openapi": version,
        "info": info,
        "paths": paths,
        "components": {"schemas": {**schemas, "Problem": PROBLEM}},
    }
    if token:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


def native(limits: Limits, token: bool, models: Sequence[str], example: str) -> Json:
    """example: id of a label."""
    name = _in("path", "name", {"type": "string", "enum": list(models)}, "a model")
    text: Json = {"type": "string", "maxLength": limits.characters}
    ids = _list(_STRING, limits.ids)
    lists = _maybe(_list(ids, limits.texts))
    truth: Json = {"type": "boolean"}
    label = {"label": {**_STRING, "description": "its id"}, "name": _STRING, "documents": _WHOLE}
    abilities = dict.fromkeys(("explain", "known", "neighbours", "examples", "calibrated", "corrections"), truth)
    summary = {
        "name": _STRING,
        "recipe": _STRING,
        "labels": _WHOLE,
        "version": {**_STRING, "description": "of the model: the first digits of its manifest's SHA-256"},
        "data": _STRING,
        "abilities": _object([*abilities], **abilities),
    }
    bins = _object(["from", "to", "labels"], **{"from": _WHOLE, "to": _WHOLE, "labels": _WHOLE})
    found = {**label, "rare": truth, "score": _SCORE, "why": {"description": "what spoke for the label, if asked"}}
    schemas = {
        "Model": _object([*summary], **summary),
        "ModelDetails": _object(
            [*summary, "settings", "metrics", "calibration", "frequencies"],
            **summary,
            settings={"type": "object"},
            metrics={"type": "object"},
            calibration={**_maybe({"type": "object"}), "description": "how probabilities were made of scores"},
            frequencies=_list(bins),
        ),
        "Prediction": _object(["label", "name", "documents", "rare", "score"], **found),
        "Wanted": _object(
            ["texts"],
            texts=_list(text, limits.texts),
            k={"type": "integer", "minimum": 1, "maximum": limits.k, "default": 5},
            threshold={**_maybe(_SCORE), "description": "leave out labels with a score below"},
            precision={
                **_maybe({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
                "description": "leave out so many labels that of those left such a share is right; where the model is "
                "calibrated, and without threshold",
            },
            allow={**_maybe(ids), "description": "only these labels"},
            exclude={**_maybe(ids), "description": "none of these labels"},
            known={**lists, "description": "labels that each text is known to have; where the model can use them"},
            anchors={**lists, "description": "nodes of given graphs that each text is linked to"},
            explain={**truth, "default": False},
        )
        | {"additionalProperties": False},
        "Answer": _object(
            ["model", "version", "results"],
            model=_STRING,
            version=_STRING,
            results=_list(_list(_one("Prediction"))),
        ),
        "Label": _object([*label], **label),
        "LabelPage": _object(
            [*label, "text", "rare", "neighbours", "examples"],
            **label,
            text=_STRING,
            rare=truth,
            neighbours=_list(_object(["label", "name", "score"], label=_STRING, name=_STRING, score=_SCORE)),
            examples=_list(_object(["id", "text"], id=_STRING, text=_STRING)),
        ),
        "Exchanged": _object(
            ["model", "version", "previous", "workers"],
            model=_STRING,
            version=_STRING,
            previous=_STRING,
            workers=_WHOLE,
        ),
    }
    some = {**_maybe(_list(_STRING, limits.corrected)), "uniqueItems": True}
    schemas["Correction"] = _object(
        ["text"],
        text={**text, "minLength": 1},
        right={**some, "description": "labels of the answer that fit"},
        wrong={**some, "description": "labels of the answer that do not"},
        missing={**some, "description": "labels that fit and were not in the answer"},
        version={
            **_maybe(_STRING),
            "pattern": "^[0-9a-f]{12}$",
            "description": "of the model, as the answer named it; by default that of now",
        },
    ) | {"additionalProperties": False, "examples": [{"text": "a text", "right": [example]}]}
    models_listed = _object(
        ["models"], models={"type": "array", "items": {"anyOf": [_one("ModelDetails"), _one("Model")]}}
    )
    predict = _operation(
        "The best labels of texts. With 'Accept: application/x-ndjson' a line per text, as they are found, for up to "
        f"{limits.stream_texts} texts.",
        _one("Answer"),
        [400, 404, 408, 413, 415],
        [name],
        _one("Wanted"),
    )
    predict["responses"]["200"]["content"][_LINES] = {"schema": _STRING}
    query = {"type": "string", "maxLength": limits.query}
    searched = [
        name,
        _in("query", "q", query, "a piece of a name or an id; empty: the most frequent"),
        _in(
            "query",
            "limit",
            {"type": "integer", "minimum": 1, "maximum": 1000},
            "at most so many; 20 by default. A stream has no limit unless one is given",
        ),
        _in("query", "details", {**truth, "default": False}, "all that is known of each label, as a LabelPage"),
    ]
    found_labels = {"type": "array", "items": {"anyOf": [_one("LabelPage"), _one("Label")]}}
    listed = _in("query", "details", {**truth, "default": False}, "with settings and metrics, as ModelDetails")
    paths = {
        "/api/v1/models": {
            "get": _streamed(_operation(f"The models. {_ASK_FOR_LINES} model.", models_listed, [400], [listed]))
        },
        "/api/v1/models/{name}": {
            "get": _streamed(
                _operation("A model: settings, metrics, how frequent labels are", _one("ModelDetails"), [404], [name])
            )
        },
        "/api/v1/models/{name}/predict": {"post": predict},
        "/api/v1/models/{name}/labels": {
            "get": _streamed(
                _operation(
                    f"Labels by a piece of their name or id. {_ASK_FOR_LINES} label, for as many as there are.",
                    _object(["labels"], labels=found_labels),
                    [400, 404],
                    searched,
                )
            )
        },
        "/api/v1/models/{name}/label": {
            "get": _operation(
                "A label: text, frequency, neighbours, documents that carry it",
                _one("LabelPage"),
                [400, 404],
                [name, {**_in("query", "id", query, "its id", required=True), "example": example}],
            )
        },
        "/api/v1/models/{name}/reload": {
            "post": _operation(
                "Take up what lies in the model's folder now; needs a server with a token",
                _one("Exchanged"),
                [403, 404, 409],
                [name],
            )
        },
    }
    paths["/api/v1/models/{name}/corrections"] = {
        "post": _operation(
            "Say which labels of a text are right, wrong or missing: a line is appended to the server's file of "
            "corrections, if it keeps one, and the model stays as it is",
            _object(["kept"], kept=truth),
            [400, 403, 404, 408, 413, 415, 507],
            [name],
            _one("Correction"),
        )
    }
    return _described(paths, schemas, {"title": "longtail", "version": __version__}, token, "3.1.0")


def annif(limits: Limits, token: bool, models: Sequence[str], language: str, codes: Sequence[str]) -> Json:
    """What Annif 1.4.3 describes, as far as it is here."""
    project = _in("path", "project_id", {"type": "string", "enum": list(models)}, "a model")
    text: Json = {"type": "string", "maxLength": limits.characters}
    limit: Json = {"type": "integer", "minimum": 0, "maximum": 999_999_999, "default": 10}
    threshold: Json = {"type": "number", "minimum": 0, "maximum": 1, "default": 0}
    own_language: Json = {"type": "string", "enum": [language]}
    maybe = {**_STRING, "nullable": True}
    vocabulary = {
        "vocab_id": _STRING,
        "languages": _list(_STRING),
        "size": {**_WHOLE, "nullable": True},
        "loaded": {"type": "boolean"},
    }
    strings: Json = {"type": "object", "additionalProperties": _STRING}
    schemas = {
        "Vocabulary": _object(["vocab_id"], **vocabulary),
        "Project": _object(
            ["project_id", "name", "language", "backend"],
            project_id=_STRING,
            name=_STRING,
            language=_STRING,
            backend=_object(["backend_id"], backend_id=_STRING),
            vocab={**_object(["vocab_id"], **vocabulary), "nullable": True},
            vocab_language=maybe,
            is_trained={"type": "boolean", "nullable": True},
            modification_time={"type": "string", "format": "date-time", "nullable": True},
        ),
        "SuggestionResult": _object(
            ["uri", "label", "score"],
            uri=_STRING,
            label=_STRING,
            score={"type": "number", "minimum": 0, "maximum": 1},
            notation=maybe,
        ),
        "Document": _object(["text"], text=text, document_id=maybe, metadata={**strings, "nullable": True}),
    }
    results = _object(["results"], results=_list(_one("SuggestionResult")))
    batch_results = _list(
        _object(["results"], results=_list(_one("SuggestionResult")), document_id=maybe),
    )
    form = _object(["text"], text=text, limit=limit, threshold=threshold, language=own_language)
    options = [
        _in("query", "limit", limit, "at most so many labels"),
        _in("query", "threshold", threshold, "leave out labels with a score below"),
        _in("query", "language", own_language, "of the labels"),
    ]
    detected = _object(["results"], results=_list(_object(["score"], language=maybe, score={"type": "number"})))
    told = _object(["title", "version"], title=_STRING, version=_STRING)
    asked = _object(
        ["text", "languages"],
        text=text,
        languages={**_list({"type": "string", "enum": list(codes)}, 5), "minItems": 1},
    )
    under = "/v1/projects/{project_id}"
    paths = {
        "/v1/": {"get": _operation("What this is", told, [])},
        "/v1/vocabs": {"get": _operation("Vocabularies", _object(["vocabs"], vocabs=_list(_one("Vocabulary"))), [])},
        "/v1/projects": {"get": _operation("Projects", _object(["projects"], projects=_list(_one("Project"))), [])},
        under: {"get": _operation("A project", _one("Project"), [404], [project])},
        f"{under}/suggest": {
            "post": _operation(
                "Labels of a text",
                results,
                [400, 404, 408, 413, 415],
                [project],
                form,
                takes="application/x-www-form-urlencoded",
            )
        },
        f"{under}/suggest-batch": {
            "post": _operation(
                "Labels of up to 32 texts",
                batch_results,
                [400, 404, 408, 413, 415],
                [project, *options],
                _object(["documents"], documents=_list(_one("Document"), 32)),
            )
        },
        f"{under}/learn": {
            "post": _operation(
                "Never allowed here", None, [400, 403, 404, 408, 413, 415], [project], _list(_one("Document")), good=204
            )
        },
        "/v1/detect-language": {
            "post": _operation("The language of a text", detected, [400, 408, 413, 415], (), asked),
        },
    }
    return _described(paths, schemas, {"title": "Annif REST API", "version": "1.4.3"}, token, "3.0.1")
