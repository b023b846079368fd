"""The papers' tables again, for whoever has the public benchmark files: their presets, our numbers beside theirs.

    python -m benchmarks.reproduce LF-AmazonTitles-131K DIR [--out FILE] [--only RECIPE ...] [--runs DIR]
                                   [--checkpoint DIR] [--device auto] [--seed 0] [--set RECIPE:a.b=c] [--transductive]

DIR: a folder in the LF layout (docs/data-formats.md): trn.json.gz, tst.json.gz, lbl.json.gz, filter_labels_test.txt as
they are published, and for RAMEN graphs/. PSP has the constants of the data set that is named, whatever DIR is called.
A recipe whose paper prints nothing for the data set is left out and named; so is RAMEN where its encoder, a folder of
DistilBERT, is not at hand (--checkpoint). With --runs what was interrupted goes on.

Every test document is measured by itself. GalaXC's paper links test documents to each other; --transductive measures
its model in that way, too (every document is compared with every other: slow on the largest set).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import longtail
from benchmarks.record import typed_command, write_result
from longtail import metrics
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.evaluation import Yardstick, context_of_test, rank_test
from longtail.predictor import Predictor
from longtail.recipes import make_recipe, presets
from longtail.training.progress import Display, PlainDisplay
from longtail.types import Context, ContextRanker

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


@dataclass(frozen=True)
class Printed:
    """What a paper prints, in percent; None where it prints nothing. table: where."""

    table: str
    p1: float | None = None
    p3: float | None = None
    p5: float | None = None
    psp1: float | None = None
    psp3: float | None = None
    psp5: float | None = None

    def of(self, metric: str) -> float | None:
        found: float | None = getattr(self, metric.lower().replace("@", ""))
        return found


RECIPES = ("astec", "eclare", "galaxc", "ramen")
GALAXC, RAMEN, ECLARE = "GalaXC Table 5", "RAMEN Table 1", "ECLARE Table 2"
# Astec's own paper has other data sets; its numbers for these stand in the later papers.
PAPERS: Mapping[str, Mapping[str, Printed]] = {
    "LF-AmazonTitles-131K": {
        "astec": Printed(GALAXC, 37.12, 25.2, 18.24, 29.22, 34.64, 39.49),
        "eclare": Printed(ECLARE, p1=40.46, p5=19.63, psp1=33.18, psp5=44.1),
        "galaxc": Printed(GALAXC, 39.17, 26.85, 19.49, 32.50, 38.79, 43.95),
    },
    "LF-WikiSeeAlsoTitles-320K": {
        "astec": Printed(GALAXC, 22.72, 15.12, 11.43, 13.69, 15.81, 17.5),
        "eclare": Printed(ECLARE, p1=28.82, p5=14.65, psp1=21.36, psp5=25.46),
        "galaxc": Printed(GALAXC, 27.87, 18.75, 14.30, 19.77, 22.25, 24.47),
        "ramen": Printed(RAMEN, 35.2, 24.0, 18.4, 29.0, 31.8, 34.5),
    },
    "LF-WikiTitles-500K": {
        "astec": Printed(ECLARE, p1=44.4, p5=17.49, psp1=18.31, psp5=18.56),
        "eclare": Printed(ECLARE, p1=44.36, p5=16.91, psp1=21.58, psp5=19.84),
        "ramen": Printed(RAMEN, 46.1, 25.4, 17.4, 30.5, 26.9, 25.7),
    },
    "LF-AmazonTitles-1.3M": {
        "astec": Printed(GALAXC, 48.82, 42.62, 38.44, 21.47, 25.41, 27.86),
        "eclare": Printed(ECLARE, p1=49.46, p5=39.62, psp1=22.94, psp5=30.29),
        "galaxc": Printed(GALAXC, 49.81, 44.23, 40.12, 25.22, 29.12, 31.44),
        "ramen": Printed(RAMEN, 48.7, 42.9, 38.4, 37.0, 40.0, 41.2),
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(PAPERS), help="the published data set")
    parser.add_argument("data", type=Path, metavar="DIR", help="its folder")
    parser.add_argument("--out", type=Path, metavar="FILE", help="all numbers, as JSON")
    parser.add_argument("--only", nargs="+", metavar="RECIPE", help="these recipes")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep the runs here: what was interrupted goes on")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="a folder of DistilBERT, for RAMEN")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--transductive", action="store_true", help="GalaXC also with test documents linked to each other"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="RECIPE:a.b=c", help="change a preset; the result says so"
    )
    options = parser.parse_args(words)
    papers = PAPERS[options.name]
    unknown = sorted({*(options.only or ()), *(one.partition(":")[0] for one in options.set)} - papers.keys())
    if unknown:
        parser.error(f"no numbers for {unknown[0]!r} on {options.name}; there are some for {', '.join(papers)}")
    data = replace(read(options.data), name=options.name)
    if data.test is None:
        parser.error(f"{options.data}: no test documents (tst.json.gz)")
    found: dict[str, Any] = {}
    constants = metrics.constants_for(options.name)
    print(f"{options.name} from {options.data}; PSP with A={constants.a} B={constants.b}", flush=True)
    for recipe in options.only or RECIPES:
        reason = left_out(recipe, options.name, options.checkpoint)
        found[recipe] = {"left out": reason} if reason else measured(data, recipe, options)
        print(rows_of(recipe, papers.get(recipe), found[recipe]), flush=True)
        if options.out:
            numbers = {"data": Yardstick.of(data).about(), "recipes": found, "changed": options.set}
            command = typed_command("reproduce", words)
            write_result(options.out, f"reproduce_{options.name}", numbers, command, data.digest, options.seed)
    return 0


def left_out(recipe: str, name: str, checkpoint: Path | None) -> str:
    """Why a recipe cannot be trained here; empty where it can."""
    if recipe not in PAPERS[name]:
        return f"its paper prints nothing for {name}"
    if name not in presets(recipe):
        return f"no preset of {recipe} for {name}"
    if recipe == "ramen" and checkpoint is None:
        return "its encoder is DistilBERT: --checkpoint names its folder"
    return ""


def measured(data: Dataset, recipe: str, options: argparse.Namespace) -> dict[str, Any]:
    changes = [change for of, _, change in (one.partition(":") for one in options.set) if of == recipe]
    if recipe == "ramen":
        changes = [f"features.checkpoint={options.checkpoint}", *changes]
    made = make_recipe(recipe, preset_name=options.name, assignments=changes)
    kept = contextlib.nullcontext(options.runs) if options.runs else tempfile.TemporaryDirectory()
    with kept as folder:
        started = time.monotonic()
        run = Path(folder) / f"{recipe}-{options.name}-{options.seed}"
        display = PlainDisplay(seconds=60)
        model = longtail.train(data, run, made, device=options.device, seed=options.seed, display=display)
        seconds = round(time.monotonic() - started, 1)
        yardstick = Yardstick.of(data)
        found: dict[str, Any] = {"metrics": scored(model, yardstick, display), "seconds": seconds}
        if options.transductive and isinstance(model.bundle.ranker, ContextRanker):
            linked = context_of_test(model, yardstick, transductive=True)
            found["test documents linked"] = scored(model, yardstick, display, linked)
    return found


def scored(
    model: Predictor, yardstick: Yardstick, display: Display, context: Context | None = None
) -> dict[str, float]:
    scores = yardstick.score(rank_test(model, yardstick, display, context))
    return {name: round(value, 2) for name, value in scores.items()}


def rows_of(recipe: str, printed: Printed | None, found: Mapping[str, Any]) -> str:
    """Lines: which metrics, the paper's, ours. One alone, where there is nothing to compare with."""
    if printed is None:
        return f"{recipe}: left out: {found['left out']}"

    def row(who: str, values: Sequence[float | None]) -> str:
        return f"{who:<34}" + "".join(f"{'-' if value is None else f'{value:.2f}':>8}" for value in values)

    lines = [f"{'':<34}" + "".join(f"{metric:>8}" for metric in SHOWN)]
    lines.append(row(f"{recipe}, {printed.table}", [printed.of(metric) for metric in SHOWN]))
    if "left out" in found:
        lines.append(f"{recipe}, here: left out: {found['left out']}")
    else:
        lines.append(row(f"{recipe}, here (single model)", [found["metrics"][metric] for metric in SHOWN]))
        if linked := found.get("test documents linked"):
            lines.append(row(f"{recipe}, test documents linked", [linked[metric] for metric in SHOWN]))
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
