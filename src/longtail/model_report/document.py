"""The report as a file: one HTML page that needs nothing else, and beside it a model card if one is asked for."""

from __future__ import annotations

import importlib.resources
import time
from pathlib import Path

from longtail import __version__
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.errors import ConfigError
from longtail.evaluation import columns_of_models
from longtail.hub import card
from longtail.model_report.findings import DOCUMENTS, Findings, find
from longtail.model_report.markup import Markup, tag
from longtail.model_report.plots import check_installed
from longtail.model_report.sections import name_of, sections, summary
from longtail.predictor import Predictor
from longtail.training.progress import Display, SilentDisplay
from longtail.writing import written_aside

# Nothing is fetched and nothing is run, whatever labels and texts hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(
    source: Predictor | str | Path,
    data: Dataset | str | Path,
    output: str | Path,
    *,
    against: Predictor | str | Path | None = None,
    card_file: str | Path | None = None,
    documents: int = DOCUMENTS,
    texts: bool = True,
    resamples: int = 1000,
    seed: int = 0,
    display: Display | None = None,
) -> Path:
    """Write a report of a model (or a run or bundle) on the test documents of `data`, or on those that training held
    out where there are none; gives its path. Needs the extra `report`.

    against: a second model to set beside it.  card_file: where to write a model card with the numbers of the report.
    documents: at most so many test documents are looked at, drawn by `seed`; 0: all.
    texts: whether texts of documents may be in the report.  resamples: of the bootstrap.
    """
    started, output, display = time.monotonic(), Path(output), display or SilentDisplay()
    if documents < 0 or resamples < 1:
        raise ConfigError(
            f"documents {documents}, resamples {resamples}: out of bounds",
            "documents is 0 (all) or more, resamples 1 or more",
        )
    for path in (output, *([] if card_file is None else [Path(card_file)])):
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise ConfigError(f"{path}: not a file in a folder that exists", "name a file, e.g. report.html")
    check_installed()
    model = source if isinstance(source, Predictor) else Predictor.open(source)
    other = against if against is None or isinstance(against, Predictor) else Predictor.open(against)
    if not isinstance(data, Dataset):
        data = read(Path(data), columns=columns_of_models(*filter(None, (model, other))))
    for remark in data.remarks():
        display.say(remark)
    names = _names(model, other)
    found = find(model, data, other, names=names, documents=documents, resamples=resamples, seed=seed, display=display)
    display.say("report: writing")
    text = page(found, texts=texts, started=started)
    with written_aside(output) as aside:
        aside.write_text(text, encoding="utf-8")
    if card_file is not None:
        measured = {name: one.mean for name, one in found.side.intervals.items()}
        documents_seen = len(found.yardstick.truth.indptr) - 1
        about = found.yardstick.about()
        with written_aside(Path(card_file)) as aside:
            aside.write_text(
                card(
                    model.bundle,
                    measured={
                        "documents": documents_seen,
                        "propensity": about["propensity"],
                        "scores": {**measured, **found.side.macro},
                        "intervals": {name: (one.low, one.high) for name, one in found.side.intervals.items()},
                        "data": found.data.name,
                    },
                ),
                encoding="utf-8",
            )
    return output


def _names(*models: Predictor | None) -> tuple[str, str]:
    """What two models are called: by their folders, or A and B where those have one name."""
    first, second = ("" if model is None else _folder(model) for model in models)
    return (first, second) if first != second else ("A", "B")


def _folder(model: Predictor) -> str:
    folder = model.bundle.folder
    return name_of((folder.parent if folder.name == "bundle" else folder).name, 30)


def page(found: Findings, *, texts: bool, started: float) -> str:
    """The whole page."""
    style = importlib.resources.files("longtail.model_report").joinpath("style.css").read_text(encoding="utf-8")
    title = f"{found.side.model.recipe} on {name_of(found.data.name)}"
    chosen = sections(texts=texts)
    contents = tag(
        "nav", tag("ol", *(tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in chosen)), aria_label="Contents"
    )
    body = [
        tag("section", tag("h2", name, id=f"{key}-title"), make(found), id=key, aria_labelledby=f"{key}-title")
        for key, name, make in chosen
    ]
    beside = "" if found.other is None else f", beside {found.other.name}"
    made = f"Made by longtail {__version__} in {time.monotonic() - started:.0f} s. This file needs no network."
    head = (
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            *head,
            tag("title", f"Report: {title}"),
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            tag(
                "header",
                tag("h1", title),
                tag("p", f"Report of the model {found.side.name}{beside}.", class_="lead"),
                summary(found),
                contents,
            ),
            tag("main", *body),
            tag("footer", Markup(made)),
            "</body>",
            "</html>\n",
        ]
    )
