"""Routes that other clients know: text classification as Hugging Face has it, and the health routes of the Open
Inference Protocol v2.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from longtail import __version__
from longtail.serve.hosted import Given, Hosted, Wanted
from longtail.serve.native import answered, whole_number
from longtail.serve.problems import Problem, as_json, bad, shown
from longtail.serve.service import Service

_FUNCTIONS = (None, "sigmoid", "none")


async def classify(service: Service, request: Request) -> Response:
    """``{"inputs": text or texts, "parameters": {"top_k": 5}}`` -> a list of labels and scores for each text.

    One text is answered by a list of one list, as the Inference API does and its clients expect.
    """
    hosted = service.model(request.path_params["name"])
    body = await service.json_body(request)
    if not isinstance(body, dict) or "inputs" not in body:
        raise bad(f"the body is {shown(body)}, expected an object with the field inputs")
    inputs, parameters = body["inputs"], body.get("parameters")
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, dict):
        raise bad(f"parameters is {shown(parameters)}, expected an object")
    if parameters.get("function_to_apply") not in _FUNCTIONS:
        raise bad(
            f"function_to_apply is {shown(parameters['function_to_apply'])}, but scores are as the model gives them, "
            "expected sigmoid or none"
        )
    top_k = parameters.get("top_k")
    k = whole_number(5 if top_k is None else top_k, "top_k", 1, service.limits.k)
    texts = [service.check_text(inputs, "inputs")] if isinstance(inputs, str) else service.check_texts(inputs, "inputs")
    service.check_labels(len(texts), k)
    request.state.texts = texts
    # Written part by part: others are answered between them.
    parts = service.in_parts(hosted, Wanted(texts, k))
    lists = [as_json(_classified(hosted, one)) async for part in parts for one in part]
    return Response(b"[" + b",".join(lists) + b"]", media_type="application/json")


def _classified(hosted: Hosted, found: Given) -> list[dict[str, Any]]:
    pairs = zip(found.labels, found.scores, strict=True)
    return [{"label": hosted.uid(label), "score": score, "name": hosted.label_name(label)} for label, score in pairs]


async def server(service: Service, request: Request) -> Response:
    return answered({"name": "longtail", "version": __version__, "extensions": []})


async def live(service: Service, request: Request) -> Response:
    return answered({"live": True})


async def ready(service: Service, request: Request) -> Response:
    if service.stopping:
        raise Problem(503, "the server is shutting down", headers={"Retry-After": "1"})
    return answered({"ready": True})


async def model(service: Service, request: Request) -> Response:
    hosted = service.model(request.path_params["name"])
    text = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    lists = [
        {"name": "labels", "datatype": "BYTES", "shape": [-1, -1]},
        {"name": "scores", "datatype": "FP32", "shape": [-1, -1]},
    ]
    return answered(
        {
            "name": hosted.name,
            "versions": [hosted.version],
            "platform": "longtail",
            "inputs": text,
            "outputs": lists,
        }
    )


async def model_ready(service: Service, request: Request) -> Response:
    hosted = service.model(request.path_params["name"])
    return answered({"name": hosted.name, "ready": True})
