"""One command for what lets people trust a model: how sure it is, labels that come and go, its report.

    python -m benchmarks.trust list                                cases, one line each
    python -m benchmarks.trust CASE DATA... --out FILE.json        measure one of them on data sets and record it
    python -m benchmarks.trust CASE --help                         what it measures, and its options

DATA is a folder that `longtail train` reads. The record is written anew after each data set, so that what was found is
kept when a later one fails. Without --out the numbers are only printed.

A case is a file beside this one and an entry of `CASES`: its docstring says what is measured, `options(parser)` adds
its own arguments, and `measure(data, options)` gives what it found on one data set, as JSON.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import typed_command, write_result

# The name of a case and its file.
CASES = {"calibration": "calibration", "from": "going_on", "labels": "labels", "report": "report"}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["list"]:
        print("\n".join(f"{name:<16}{summary(name)}" for name in CASES))
        return 0
    if words in ([], ["-h"], ["--help"]):
        print(__doc__)
        return 0
    if words[0] not in CASES:
        print(f"error: there is no case {words[0]!r}; cases: {', '.join(CASES)}", file=sys.stderr)
        return 2
    return run(words[0], words[1:])


def run(name: str, words: Sequence[str]) -> int:
    """Measure one case on every data set, print its numbers, and record them where --out says so."""
    case: Any = importlib.import_module(f"benchmarks.trust.{CASES[name]}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.trust {name}",
        description=case.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA", help="a data set")
    case.options(parser)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the result here")
    options = parser.parse_args(words)
    results: dict[str, Any] = {}
    for data in options.data:
        results[data.name] = case.measure(data, options)
        print(json.dumps({data.name: results[data.name]}, indent=1), flush=True)
        if options.out:
            hashes = ", ".join(f"{name}: {found['data_hash']}" for name, found in results.items())
            command = typed_command(f"trust {name}", words)
            write_result(options.out, f"trust_{name}", results, command, hashes, getattr(options, "seed", None))
    return 0


def summary(name: str) -> str:
    """The first sentence of a case's docstring, read without importing what the case needs."""
    file = Path(__file__).with_name(f"{CASES[name]}.py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    raise SystemExit(main())
