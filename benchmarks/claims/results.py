"""The committed verdicts: one JSON file per paper, a record per claim; a later run replaces the records of the claims
it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.claims.papers import PAPERS, claims_of
from benchmarks.record import code, machine
from longtail.errors import DataError
from longtail.persistence import read_json, write_json

FORMAT = 1
DECIMALS = 4
# What every record has, whatever the claim; tests hold records to it.
KEYS = frozenset(
    {
        "id",
        "section",
        "sentence",
        "verdict",
        "reason",
        "note",
        "all_of",
        "any_of",
        "controls",
        "also",
        "numbers",
        "seeds",
        "data",
        "config",
        "trainings",
        "command",
        "commit",
        "date",
        "uncommitted_changes",
        "machine",
        "device",
    }
)


def provenance(command: str, device: str) -> dict[str, Any]:
    """What a record says about where it was made."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"command": command, "device": device, "machine": {**machine(), **_gpu(device)}, "date": now, **code()}


def update(path: Path, paper: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Put `records` into the file of the paper, in the order of its entries; records of other claims stay as they
    are.
    """
    found = {record["id"]: record for record in read(path)} if path.exists() else {}
    found |= {record["id"]: _rounded(record) for record in records}
    order = {claim.id: place for place, claim in enumerate(claims_of(paper))}
    kept = sorted(found.values(), key=lambda record: (order.get(record["id"], len(order)), record["id"]))
    write_json(path, {"format": FORMAT, "paper": paper, "verdicts": kept})


def read(path: Path) -> list[dict[str, Any]]:
    content = read_json(path, DataError)
    if (
        not isinstance(content, dict)
        or content.get("format") != FORMAT
        or not isinstance(content.get("verdicts"), list)
    ):
        raise DataError(
            f"not verdicts of format {FORMAT}",
            "the file was written by another program or version; move it away and run the claims again",
            file=path,
        )
    verdicts: list[dict[str, Any]] = content["verdicts"]
    return verdicts


def merge(folders: Sequence[Path], out: Path) -> list[str]:
    """Put the verdicts of `folders` (of runs beside each other, each with some of the claims) into `out`; gives the
    ids of their claims.

    As in a run, they replace what `out` holds of these claims. Nothing is written unless all records are whole and of
    committed code, and no claim comes twice with different records: which of two verdicts counts is not for a program
    to say.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for folder in folders:
        paths = {paper: folder / f"{paper}.json" for paper in PAPERS if (folder / f"{paper}.json").exists()}
        if not paths:
            raise DataError("the folder holds no verdicts", "give what was --out of a run", file=folder)
        for paper, path in paths.items():
            for record in read(path):
                _refuse_unless_whole(record, path)
                if found.setdefault(paper, {}).setdefault(record["id"], record) != record:
                    raise DataError(
                        f"another verdict of {record['id']} than in a folder before it",
                        "leave out one of the two folders",
                        file=path,
                    )
    for paper, records in found.items():
        update(out / f"{paper}.json", paper, records.values())
    return [claim for records in found.values() for claim in records]


def _refuse_unless_whole(record: Any, path: Path) -> None:
    if not isinstance(record, dict) or record.keys() != KEYS:
        raise DataError(
            "a record lacks entries, or has others than a verdict", "run the claim again with this version", file=path
        )
    if record["uncommitted_changes"]:
        raise DataError(
            f"the verdict of {record['id']} is of code that no commit holds",
            "commit, and run the claim again",
            file=path,
        )


def verdicts(folder: Path, paper: str) -> list[dict[str, Any]]:
    """The records of a paper; none where it has no file."""
    path = folder / f"{paper}.json"
    return read(path) if path.exists() else []


def summary(record: Mapping[str, Any]) -> str:
    """A record in a few lines, for the terminal."""
    lines = [f"{record['id']}: {record['verdict'].upper()} ({record['reason']})"]
    checks = (*record["all_of"], *record["any_of"])
    lines += [
        f"    {check['check']} = {interval(check)}, asked for {check['rule']}: {check['outcome']}{needs(check)}"
        for check in checks
    ]
    lines += [f"    without ({c['removed']}): {c['check']} = {interval(c)}: {c['state']}" for c in record["controls"]]
    lines += [f"    {value['value_of']} = {interval(value)}" for value in record["also"]]
    return "\n".join(lines)


def interval(check: Mapping[str, Any]) -> str:
    """A value with its ends."""
    return f"{check['value']:.2f} [{check['low']:.2f}, {check['high']:.2f}]"


def needs(check: Mapping[str, Any]) -> str:
    """What an undecided check would need, in words."""
    if "power" not in check:
        return ""
    ways = [f"{check['power'][what]:,} {what}" for what in ("seeds", "documents") if check["power"][what] is not None]
    return f" (would need {' or '.join(ways)})" if ways else " (no number of seeds or documents would decide it)"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def _gpu(device: str) -> dict[str, Any]:
    if device != "cuda":
        return {}
    import torch

    return {"gpu": torch.cuda.get_device_name()}
