"""From a request to an answer: which route, who may, how much, what is counted and said."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router

from longtail.serve import annif_api, conventions, hosts, languages, native, openapi, shard_api
from longtail.serve.counters import Counters
from longtail.serve.page_files import Page
from longtail.serve.problems import Problem
from longtail.serve.service import Service, log

Handler: TypeAlias = Callable[[Service, Request], Awaitable[Response]]
Message: TypeAlias = MutableMapping[str, Any]

ANNIF = "/v1"
OPEN = frozenset({"page", "live", "ready", "openapi", "annif openapi"})  # need no token
NOWHERE = "nowhere"  # what is counted where no route fits
METRICS = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(service: Service, request: Request) -> Response:
    return Response(service.counters.render().encode(), headers={"Content-Type": METRICS})


async def native_description(service: Service, request: Request) -> Response:
    models = list(service.models)
    example = service.models[models[0]].uid(0)
    return native.answered(openapi.native(service.limits, service.has_token, models, example))


async def annif_description(service: Service, request: Request) -> Response:
    models, language = list(service.models), service.plan.language
    return native.answered(openapi.annif(service.limits, service.has_token, models, language, sorted(languages.WORDS)))


# name, path, method, handler
ROUTES: tuple[tuple[str, str, str, Handler], ...] = (
    ("models", "/api/v1/models", "GET", native.models),
    ("model", "/api/v1/models/{name}", "GET", native.model),
    ("predict", "/api/v1/models/{name}/predict", "POST", native.predict),
    ("labels", "/api/v1/models/{name}/labels", "GET", native.labels),
    ("label", "/api/v1/models/{name}/label", "GET", native.label),
    ("reload", "/api/v1/models/{name}/reload", "POST", native.reload),
    ("corrections", "/api/v1/models/{name}/corrections", "POST", native.correct),
    ("openapi", "/api/v1/openapi.json", "GET", native_description),
    ("annif about", "/v1", "GET", annif_api.about),
    ("annif about", "/v1/", "GET", annif_api.about),
    ("annif openapi", "/v1/openapi.json", "GET", annif_description),
    ("annif vocabs", "/v1/vocabs", "GET", annif_api.vocabs),
    ("annif projects", "/v1/projects", "GET", annif_api.projects),
    ("annif project", "/v1/projects/{name}", "GET", annif_api.project),
    ("annif suggest", "/v1/projects/{name}/suggest", "POST", annif_api.suggest),
    ("annif batch", "/v1/projects/{name}/suggest-batch", "POST", annif_api.suggest_batch),
    ("annif learn", "/v1/projects/{name}/learn", "POST", annif_api.learn),
    ("annif language", "/v1/detect-language", "POST", annif_api.detect_language),
    ("classify", "/hf/models/{name}", "POST", conventions.classify),
    ("server", "/v2", "GET", conventions.server),
    ("live", "/v2/health/live", "GET", conventions.live),
    ("ready", "/v2/health/ready", "GET", conventions.ready),
    ("v2 model", "/v2/models/{name}", "GET", conventions.model),
    ("v2 model ready", "/v2/models/{name}/ready", "GET", conventions.model_ready),
    ("shards", "/shard/v1", "GET", shard_api.shards),
    ("shard labels", "/shard/v1/{name}/labels", "GET", shard_api.labels),
    ("shard found", "/shard/v1/{name}/found", "POST", shard_api.found),
    ("shard reasons", "/shard/v1/{name}/reasons", "POST", shard_api.reasons),
    ("metrics", "/metrics", "GET", metrics),
)
ROUTE_NAMES = (*dict.fromkeys(name for name, *_ in ROUTES), "page", NOWHERE)
SAFE = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


def counters_of(path: str, slots: int, slot: int, models: list[str]) -> Counters:
    return Counters(path, slots, slot, ROUTE_NAMES, models)


class Application:
    """The ASGI application of a worker."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.hosts = frozenset(service.plan.hosts)
        page = Page()
        pages: list[tuple[str, str, str, Handler]] = [
            ("page", "/", "GET", page.index),
            ("page", "/page/{path:path}", "GET", page.file),
        ]
        # The ways that are gone most often stand first.
        routes = sorted(ROUTES, key=lambda route: route[0] not in ("predict", "annif suggest"))
        self.router = Router(
            [self._route(*route) for route in (*routes, *pages)], redirect_slashes=False, default=self._nowhere
        )

    def _route(self, name: str, path: str, method: str, handler: Handler) -> Route:
        needs_token = self.service.has_token and name not in OPEN

        async def endpoint(request: Request) -> Response:
            request.scope["longtail.route"] = name
            if needs_token:
                self.service.check_token(request)
            if name not in ("live", "ready", "metrics"):  # these answer also when all is full
                self.service.begin()
            # Until all of the answer is sent: a stream goes on after the handler.
            request.scope["longtail.begun"] = True
            self.service.begun += 1
            return await handler(self.service, request)

        return Route(path, endpoint, methods=[method])

    async def _nowhere(self, scope: Any, receive: Any, send: Any) -> None:
        raise Problem(404, "nothing is here; /api/v1/openapi.json tells what is")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        scope["app"] = self  # a method that a route does not have is then an exception
        scope["state"] = {}
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *SAFE, *self._origin(scope)]
            await send(message)

        try:
            if self.hosts:
                hosts.check(self.hosts, scope["headers"])
            if scope["method"] == "OPTIONS" and self._origin(scope):
                response: Response = Response(status_code=204, headers=_PREFLIGHT)
                await response(scope, receive, answer)
            else:
                await self.router(scope, receive, answer)
        except ClientDisconnect:
            status = 499
        except Exception as problem:
            if status:  # the head has gone out
                raise
            await _told(problem)(scope, receive, answer)
        finally:
            self.service.begun -= scope.get("longtail.begun", False)
            self._note(scope, status or 499, time.perf_counter() - started)

    def _origin(self, scope: Any) -> list[tuple[bytes, bytes]]:
        """Headers that say which pages of other origins may read an answer: those that the user names
        (``--allow-origin``). Annif lets all pages read its answers; so does this server, for Annif's API, but not where
        it answers only to some names of itself (`hosts`).
        """
        path, allowed = scope["path"], self.service.plan.allow_origin
        if not self.hosts and (path == ANNIF or path.startswith(f"{ANNIF}/")):
            return [(b"access-control-allow-origin", b"*")]
        return [(b"access-control-allow-origin", allowed.encode()), (b"vary", b"Origin")] if allowed else []

    def _note(self, scope: Any, status: int, seconds: float) -> None:
        route = scope.get("longtail.route", NOWHERE)
        counters = self.service.counters
        counters.route(route).answered(status, seconds)
        counters.worker.begun = self.service.begun
        plan = self.service.plan
        if plan.log_requests:
            # Paths and queries may hold what people typed: the route and the model say enough.
            texts = scope["state"].get("texts")
            facts: dict[str, Any] = {"method": scope["method"], "route": route, "status": status}
            name = scope.get("path_params", {}).get("name")
            if name in self.service.models:
                facts["model"] = name
            if texts is not None:
                facts["texts"] = list(texts) if plan.log_texts else len(texts)
            log("request", **facts, ms=round(1000 * seconds, 3), client=(scope.get("client") or ("",))[0])


_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept",
    "Access-Control-Max-Age": "86400",
}


def _told(problem: Exception) -> Response:
    """Whatever went wrong, as an answer; what is our fault is logged with its place, and not shown."""
    if isinstance(problem, HTTPException):
        problem = Problem(problem.status_code, str(problem.detail), headers=dict(problem.headers or {}))
    if not isinstance(problem, Problem):
        log("error", error=repr(problem), trace=traceback.format_exception(problem))
        problem = Problem(500, "an error of the server; its log has the details")
    return Response(
        problem.body(), problem.status, headers={**problem.headers, "Content-Type": "application/problem+json"}
    )
