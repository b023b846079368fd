"""One command for all measurements of speed and size.

    python -m benchmarks.speed list                                     the cases, one line each
    python -m benchmarks.speed CASE [DATA] [options] --out FILE.json    measure one of them and record it
    python -m benchmarks.speed CASE --help                              what it measures, and its options

DATA is a folder that `longtail train` reads. Without --out the numbers are only printed. What a case is compared with
(its oracle) runs in the same process and takes turns with it, so ratios mean something on a busy machine, too; times
in milliseconds mean something on a quiet one alone.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import typed_command, write_result
from benchmarks.speed import cases
from benchmarks.speed.common import CALL, Measured
from longtail.persistence import written_aside

NAMES = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(cases.__path__))


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [CALL]:
        module, function, values = words[1:]
        print(json.dumps(getattr(importlib.import_module(module), function)(*json.loads(values))))
        return 0
    if words == ["list"]:
        print("\n".join(f"{name:<16}{summary(name)}" for name in NAMES))
        return 0
    if words in ([], ["-h"], ["--help"]):
        print(__doc__)
        return 0
    if words[0] not in NAMES:
        print(f"error: there is no case {words[0]!r}; cases: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    return run(words[0], words[1:])


def run(name: str, words: Sequence[str]) -> int:
    """Measure one case, print its numbers, and record them where --out says so."""
    case: Any = importlib.import_module(f"{cases.__name__}.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.speed {name}",
        description=case.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    case.options(parser)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the result here")
    options = parser.parse_args(words)
    found: Measured = case.measure(options)
    print(json.dumps(found.numbers, indent=1))
    if options.out:
        write_result(
            options.out,
            name,
            found.numbers,
            typed_command(f"speed {name}", words),
            found.data_hash,
            found.seed,
            found.config,
        )
        if found.plot:
            with written_aside(options.out.with_suffix(".svg")) as aside:
                aside.write_text(found.plot, encoding="utf-8")
    if found.problem:
        print(f"error: {found.problem}", file=sys.stderr)
    return 1 if found.problem else 0


def summary(name: str) -> str:
    """The first sentence of a case's docstring, read without importing what the case needs."""
    file = Path(cases.__path__[0]) / f"{name.replace('-', '_')}.py"
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    raise SystemExit(main())
