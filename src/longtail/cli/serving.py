"""The command that serves models: serve."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from longtail.cli.base import AnyText, Function, Talk, argument, command, option, output_path, path, talk
from longtail.errors import ConfigError, MissingExtra
from longtail.serve.limits import NAME, Limits, NamedRun, Plan

PLAN = Plan(())  # its defaults are those of the command
LIMITS = "Limits"
ACCESS = "Who may ask"
ANNIF = "Annif's API"


def _limit(name: str, field: str, about: str) -> Callable[[Function], Function]:
    """An option that sets a field of `Limits`."""
    default = getattr(PLAN.limits, field)
    kind = click.IntRange(1) if isinstance(default, int) else click.FloatRange(0.1)
    return option(name, field, default=default, type=kind, section=LIMITS, help=f"{about} (default {{default}})")


@command(
    "serve",
    "longtail serve runs/demo",
    "longtail serve runs/demo birds=runs/birds --port 8080 --workers 2",
    "longtail serve runs/demo --host 0.0.0.0 --token-file token.txt --watch",
    "longtail serve large=http://one:8000,http://two:8000",
)
@argument(
    "runs",
    "runs, bundles or folders of shards; NAME=RUN gives one a name (default: that of its folder); "
    "NAME=http://ONE:PORT,http://TWO:PORT is the model whose shards these servers have",
    type=AnyText(),
    nargs=-1,
    metavar="RUN...",
)
@option(
    "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default {default}, for this machine alone)"
)
@option(
    "--port",
    default=8000,
    type=click.IntRange(0, 65535),
    help="where to listen; 0: any that is free (default {default})",
)
@option("--workers", default=PLAN.workers, type=click.IntRange(1, 64), help="processes that answer (default {default})")
@option("--watch", is_flag=True, help="take up a new version of a model when its folder changes")
@option("--token-file", type=path(), metavar="FILE", section=ACCESS, help="a bearer token per line; requests need one")
@option(
    "--shard-token-file",
    type=path(),
    metavar="FILE",
    section=ACCESS,
    help="the token that the servers of shards ask for",
)
@option("--allow-origin", default="", metavar="URL", section=ACCESS, help="pages of this origin may read answers")
@option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    section=ACCESS,
    help="requests may ask for this name (their header Host), as those through a proxy do; may be repeated. Others but "
    "localhost, 127.0.0.1 and --host are then refused, as they are on this machine without --token-file anyway",
)
@option(
    "--corrections",
    type=output_path(),
    metavar="FILE",
    help="append what people say is right, wrong or missing to this .jsonl, for training (default: not asked for)",
)
@option("--log-texts", is_flag=True, help="write the texts of requests into the log (default: only how many)")
@_limit("--max-body", "body_bytes", "bytes of a request")
@_limit("--max-texts", "texts", "texts of a request")
@_limit("--max-characters", "characters", "characters of a text")
@_limit("--queue", "queue_texts", "texts that may wait for a model")
@_limit("--max-requests", "requests", "requests of a worker at once")
@_limit("--timeout", "timeout_s", "seconds to wait for a body or a turn")
@option("--language", default=PLAN.language, metavar="CODE", section=ANNIF, help="of the projects (default {default})")
@option("--uri-prefix", default="", metavar="URI", section=ANNIF, help="put before label ids, which then are URIs")
@option(
    "--annif-labels",
    type=path(),
    metavar="FILE",
    section=ANNIF,
    help="give only these labels: ids, one in a line, or Annif's vocabulary as TSV",
)
@talk
def serve(
    talk: Talk,
    /,
    runs: tuple[str, ...],
    host: str,
    port: int,
    workers: int,
    watch: bool,
    token_file: Path | None,
    shard_token_file: Path | None,
    allow_origin: str,
    allow_host: tuple[str, ...],
    corrections: Path | None,
    log_texts: bool,
    language: str,
    uri_prefix: str,
    annif_labels: Path | None,
    **limits: Any,
) -> None:
    """Answer over HTTP: a page, a JSON API, and the API of Annif."""
    if not runs:
        raise ConfigError("no model to serve", "name a run: longtail serve runs/demo")
    for package in ("starlette", "uvicorn"):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtra(package, "serve", "serving") from None
    from longtail.serve.corrections import check_file
    from longtail.serve.hosts import allowed
    from longtail.serve.supervisor import serve as run

    if corrections is not None:
        check_file(corrections)
    if not math.isfinite(limits["timeout_s"]):
        raise ConfigError(f"--timeout {limits['timeout_s']}, expected a number of seconds", "e.g. --timeout 30")
    plan = Plan(
        models_of(runs),
        Limits(**limits),
        tuple(hashlib.sha256(token.encode()).hexdigest() for token in tokens_of(token_file)),
        shard_token=next(iter(tokens_of(shard_token_file)), ""),
        allow_origin=allow_origin,
        hosts=tuple(map(allowed, allow_host)),
        language=language,
        uri_prefix=uri_prefix,
        annif_labels="" if annif_labels is None else str(annif_labels),
        corrections="" if corrections is None else str(corrections.absolute()),
        log_requests=not talk.quiet,
        log_texts=log_texts,
        workers=workers,
    )
    if host not in ("127.0.0.1", "::1", "localhost") and not plan.token_digests:
        talk.note(f"warning: anyone who reaches {host} may ask; --token-file asks for a token")
    run(plan, host, port, watch=watch)


def models_of(runs: tuple[str, ...]) -> tuple[NamedRun, ...]:
    """Names and folders. A model of the hub is fetched."""
    found: dict[str, str] = {}
    for run in runs:
        name, is_named, place = run.partition("=")
        if not is_named or not NAME.fullmatch(name):
            name, place = "", run
        if place.startswith("hf://"):
            from longtail.hub import fetch

            name, place = name or place.rstrip("/").split("/")[-1].partition("@")[0], str(fetch(place))
        if place.startswith(("http://", "https://")) and not name:
            raise ConfigError(f"{run}: a model in shards needs a name", f"name it: large={run}")
        folder = Path(place)
        named = folder.absolute().parent.name if folder.name == "bundle" else folder.absolute().name
        name = name or re.sub(r"[^A-Za-z0-9._-]+", "-", named).strip("-._")
        if not NAME.fullmatch(name):
            raise ConfigError(f"{run}: its folder gives no name for a model", "name it: NAME=RUN")
        if name in found:
            raise ConfigError(f"two models are called '{name}': {found[name]} and {place}", "name one: NAME=RUN")
        found[name] = place
    return tuple(NamedRun(name, place) for name, place in found.items())


def tokens_of(file: Path | None) -> list[str]:
    """One in a line. Of those that requests must have, workers see digests alone."""
    if file is None:
        return []
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()  # some editors begin a file with a mark
    except UnicodeDecodeError as problem:
        raise ConfigError(f"{file}: is no text in UTF-8 ({problem})", "make a token: openssl rand -hex 32") from problem
    tokens = [line.strip() for line in lines if line.strip()]
    bad = [number for number, token in enumerate(tokens, 1) if len(token) < 16 or not token.isascii()]
    if not tokens or bad:
        wrong = f"token {bad[0]} is not of 16 or more characters of ASCII" if bad else "no token"
        raise ConfigError(f"{file}: {wrong}", "make one: openssl rand -hex 32")
    return tokens


COMMANDS = [serve]
