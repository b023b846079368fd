"""The server under load, beside a real Annif, and against descriptions of its APIs.

    python -m benchmarks.serving load RUN --out benchmarks/results/serving.json
    python -m benchmarks.serving ceiling RUN --out benchmarks/results/serving_ceiling.json
    python -m benchmarks.serving annif RUN --annif .venv-annif --out benchmarks/results/serving_annif.json
    python -m benchmarks.serving schemas RUN --schemathesis .venv-schemathesis

RUN is a model of the embedded sample, e.g. runs/demo. Everything is measured on loopback; clients and servers share the
cores of the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import typed_command, write_result
from longtail.data.read import read, sample_folder
from longtail.packing import pack


def load(arguments: argparse.Namespace, texts: Sequence[str]) -> dict[str, Any]:
    from benchmarks.serving import measures
    from benchmarks.serving.processes import serving

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "packed"
        pack(arguments.run, packed)
        for name, run in (("as_trained", arguments.run), ("packed", packed)):
            own = found[name] = {}
            engine = measures.Engine(run, texts)
            with serving(f"{measures.MODEL}={run}") as running:
                port = running.port
                own["alone"] = _said("alone", measures.alone(port, engine))
                for each in (1, 8, 32):
                    seen = measures.together(port, engine, arguments.seconds, each)
                    own[f"at_64_with_{each}"] = _said(f"at 64 with {each}", seen)
                rate = own["at_64_with_32"]["answered_per_s"]
                own["overload"] = _said("overload", measures.overload(port, texts, arguments.seconds, rate, 32))
                own["memory"] = _said("memory", measures.memory(running, texts, arguments.requests))
    found["exchanges"] = _said("exchanges", measures.swaps(arguments.run, texts, arguments.swaps))
    found["kills"] = _said("kills", measures.kills(arguments.run, texts))
    return found


def ceiling(arguments: argparse.Namespace, texts: Sequence[str]) -> dict[str, Any]:
    from benchmarks.serving import measures
    from benchmarks.serving.processes import serving

    with serving(f"{measures.MODEL}={arguments.run}") as running:
        return _said("ceiling", measures.ceiling(running, measures.Engine(arguments.run, texts), arguments.seconds))


def annif(arguments: argparse.Namespace, texts: Sequence[str]) -> dict[str, Any]:
    from benchmarks.serving.annif_peer import measured

    return measured(arguments.run, arguments.annif, texts, arguments.seconds)


def schemas(arguments: argparse.Namespace, texts: Sequence[str]) -> dict[str, Any]:
    from benchmarks.serving.schemas import checked

    return checked(arguments.run, arguments.schemathesis, arguments.examples)


def _said(name: str, numbers: dict[str, Any]) -> dict[str, Any]:
    print(name, numbers, flush=True)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, work in (("load", load), ("ceiling", ceiling), ("annif", annif), ("schemas", schemas)):
        command = commands.add_parser(name)
        command.set_defaults(work=work, name=name)
        command.add_argument("run", type=Path)
        command.add_argument("--out", type=Path)
        command.add_argument("--seconds", type=float, default=10.0, help="of each measurement under load")
        if name == "load":
            command.add_argument("--requests", type=int, default=200_000, help="while memory is watched")
            command.add_argument("--swaps", type=int, default=100)
        if name == "annif":
            command.add_argument("--annif", type=Path, default=Path(".venv-annif"), help="environment with Annif")
        if name == "schemas":
            command.add_argument("--schemathesis", type=Path, default=Path(".venv-schemathesis"), help="environment")
            command.add_argument("--examples", type=int, default=50, help="of each operation and phase")
    arguments = parser.parse_args()
    data = read(sample_folder())
    before = os.getloadavg()[0]
    numbers = arguments.work(arguments, data.need_test().documents.titles())
    # What else ran: at the start all of it is others' work.
    numbers["load_average"] = {"at_the_start": round(before, 1), "at_the_end": round(os.getloadavg()[0], 1)}
    if arguments.out is not None:
        typed = typed_command("serving", sys.argv[1:])
        write_result(arguments.out, f"serving_{arguments.name}", numbers, typed, data.digest)


if __name__ == "__main__":
    main()
