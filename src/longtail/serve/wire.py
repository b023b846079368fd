"""What servers of shards and a front send each other: what a shard found, as a line of JSON and arrays behind it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from longtail.search.split import ShardLists
from longtail.types import TopK

# Told by every shard: a front talks to those that speak as it does.
PROTOCOL = 1
BYTES = "application/octet-stream"


def found_as_bytes(version: str, found: ShardLists) -> bytes:
    documents, k = found.lists[0].ids.shape
    head = {
        "version": version,
        "lists": len(found.lists),
        "documents": documents,
        "k": k,
        "has_votes": bool(found.votes),
        "depth": found.depth,
        "voted": found.voted,
        "weight": found.weight,
    }
    arrays = [np.ascontiguousarray(top.ids, "<i4") for top in found.lists]
    numbers = [*(top.scores for top in found.lists), *found.votes]
    floats = [np.ascontiguousarray(one, "<f4") for one in numbers]
    return json.dumps(head).encode() + b"\n" + b"".join(array.tobytes() for array in (*arrays, *floats))


def found_from_bytes(body: bytes) -> tuple[dict[str, Any], ShardLists]:
    """The head, which names the version, and what was found; ValueError or KeyError where it is something else."""
    line, _, rest = body.partition(b"\n")
    head = json.loads(line)
    shape = head["documents"], head["k"]
    kinds = ["<i4"] * head["lists"] + ["<f4"] * (head["lists"] * (2 if head["has_votes"] else 1))
    size = 4 * shape[0] * shape[1]
    if len(rest) != size * len(kinds):
        raise ValueError(f"{len(rest)} bytes of arrays, expected {size * len(kinds)}")
    arrays = [
        np.frombuffer(rest, kind, shape[0] * shape[1], size * number).reshape(shape)
        for number, kind in enumerate(kinds)
    ]
    count = head["lists"]
    lists = tuple(TopK(ids, scores) for ids, scores in zip(arrays[:count], arrays[count : 2 * count], strict=True))
    return head, ShardLists(lists, tuple(arrays[2 * count :]), head["depth"], head["voted"], head["weight"])
