"""How much a request may ask for, and how much may wait."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Limits:
    """Everything a worker refuses beyond. Sizes of requests give 413, more than can be answered in time 503."""

    body_bytes: int = 20_000_000
    texts: int = 1_000  # of a request; as a stream of lines `stream_texts`
    stream_texts: int = 100_000
    characters: int = 100_000  # of a text
    query: int = 2_000  # characters of what is searched among labels
    k: int = 1_000
    ids: int = 10_000  # allowed, excluded or known labels of a request
    queue_texts: int = 4_096  # that wait for a model
    requests: int = 256  # that a worker has begun to answer
    timeout_s: float = 30.0  # for a body to arrive, and for a text to wait
    batch_texts: int = 256  # answered at once
    labels: int = 200_000  # of an answer: texts times k; a stream may have more. And ranked at once
    labels_at_once: int = 20_000  # made ready at once, between which others are answered
    explained: int = 1_000  # labels that one request may have explained
    explained_characters: int = 1_000_000  # the same times the characters of their texts
    deepest: int = 200_000  # labels ranked to find enough allowed ones
    corrected: int = 1_000  # labels that one correction may name
    corrections_bytes: int = 100_000_000  # of the file of corrections
    corrections_per_minute: int = 600  # that a worker takes


@dataclass(frozen=True)
class NamedRun:
    """A model that a user asked to be served. path: a run, a bundle, a folder of shards; or addresses of the servers of
    its shards, with commas between them.
    """

    name: str
    path: str


@dataclass(frozen=True)
class Plan:
    """What a worker is told when it starts; survives JSON."""

    models: tuple[NamedRun, ...]
    limits: Limits = field(default_factory=Limits)
    token_digests: tuple[str, ...] = ()  # SHA-256 of the tokens, in hex
    shard_token: str = ""  # sent to the servers of shards
    allow_origin: str = ""
    # Names that the user allows, and from `hosts.names_of` on all by which the server may be asked for; empty: any.
    hosts: tuple[str, ...] = ()
    language: str = "en"
    uri_prefix: str = ""
    annif_labels: str = ""  # a file of the labels that Annif's API may give; empty: all
    corrections: str = ""  # the file that corrections are appended to; empty: none are taken
    log_requests: bool = True
    log_texts: bool = False
    workers: int = 1
    slot: int = 0  # which row of the counters is this worker's
    counters: str = ""  # their file
