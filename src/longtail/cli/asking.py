"""Commands that ask a model: predict."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from longtail.cli.base import Talk, argument, command, model_argument, open_model, option, path, talk
from longtail.errors import ConfigError

if TYPE_CHECKING:
    from longtail.predictor import Predictor

KNOWN = "What is known beside the text (models that look at a graph: recipe galaxc)"


@command(
    "predict",
    'longtail predict runs/first "a small domesticated feline" -k 3',
    "longtail predict runs/first --input queries.txt --format jsonl --output answers.jsonl",
)
@model_argument
@argument("texts", "texts to tag", nargs=-1, metavar="[TEXT]...")
@option(
    "--input",
    metavar="FILE",
    help="one text per line, JSON lines (also a data set's tst.json.gz), a table, or - for standard input",
)
@option(
    "--recipe",
    metavar="MODULE:CLASS",
    help="the recipe that made RUN, where it is no installed package: its code is imported",
)
@option("--text", default="", metavar="COLUMN", help="text column(s) of a table (default: those of training)")
@option("--id", metavar="COLUMN", help="id column of a table (default: that of training)")
@option("-k", type=int, default=5, help="labels per text (default 5)")
@option("--format", default="text", type=click.Choice(["text", "jsonl", "npz"]), help="of the answers (default text)")
@option("--output", type=path(), metavar="FILE", help="where to write (default: standard output)")
@option(
    "--known",
    multiple=True,
    metavar="LABEL",
    section=KNOWN,
    help="id of a label that TEXT is known to have; may be repeated",
)
@option(
    "--known-field",
    metavar="NAME",
    section=KNOWN,
    help="field or column of FILE that lists the labels known of each document",
)
@option(
    "--anchor",
    multiple=True,
    metavar="ID",
    section=KNOWN,
    help="id of a node of a given graph that TEXT is linked to; may be repeated",
)
@option("--anchor-field", metavar="NAME", section=KNOWN, help="field or column of FILE that lists such nodes")
@talk
def predict(
    talk: Talk,
    model: Path,
    texts: tuple[str, ...],
    input: str | None,
    recipe: str | None,
    text: str,
    id: str | None,
    k: int,
    format: str,
    output: Path | None,
    known: tuple[str, ...],
    known_field: str | None,
    anchor: tuple[str, ...],
    anchor_field: str | None,
) -> None:
    """The best labels of texts; masks nothing."""
    from longtail.data.dataset import Items

    if bool(texts) == bool(input):
        raise ConfigError(
            "give either texts or --input FILE", 'longtail predict RUN "a text", or longtail predict RUN --input FILE'
        )
    if k < 1:
        raise ConfigError(f"-k {k}, expected a whole number >= 1", "ask for at least one label")
    if format == "npz" and output is None:
        raise ConfigError("--format npz needs --output FILE", "npz is a binary format; it cannot go to the terminal")
    opened = open_model(model, recipe)
    documents = (
        opened.documents(input, text=text or None, id=id, on_columns=lambda found: talk.note(found.line()))
        if input
        else Items([str(n) for n in range(len(texts))], {"title": list(texts)})
    )
    context = opened.context(
        len(documents),
        _known("known", known, known_field, texts, input),
        _known("anchor", anchor, anchor_field, texts, input),
    )
    if len(documents) > 1000:
        with talk.display().task("predicting", len(documents)) as task:
            top = opened.rank(documents, k, context=context, on_block=task.advance)
    else:
        top = opened.rank(documents, k, context=context)
    if format == "npz":
        from longtail.data.matrices import save_csr
        from longtail.metrics import to_csr

        assert output is not None
        save_csr(output, to_csr(top, len(opened.bundle.labels)))
        return
    write = write_text if format == "text" else write_jsonl
    if output is None:
        write(sys.stdout, documents, opened, top)
        return
    from longtail.persistence import written_aside

    with written_aside(output) as aside, aside.open("w", encoding="utf-8") as file:
        write(file, documents, opened, top)


def _known(
    name: str, ids: tuple[str, ...], field: str | None, texts: tuple[str, ...], input: str | None
) -> list[list[str]] | None:
    """What --known and --known-field (or those of anchors) say of the documents; None if they are not given."""
    if ids and (input or len(texts) != 1):
        raise ConfigError(f"--{name} belongs to one text", f"give one text, or --input FILE with --{name}-field NAME")
    if not field:
        return [list(ids)] if ids else None
    if not input:
        raise ConfigError(
            f"--{name}-field names a field of --input FILE, which is not given",
            f"use --{name} ID with a text on the command line",
        )
    from longtail.data.tables import read_lists

    return read_lists(input, field, f"--{name}-field")


def write_text(file: IO[str], documents: Any, model: Predictor, top: Any) -> None:
    from longtail.data.inputs import heading

    for row, found in enumerate(model.named(top)):
        print(heading(documents, row), file=file)
        for p in found:
            print(f"  {p.score:8.4f}  {p.label}{'' if p.name == p.label else '  ' + p.name}", file=file)
        if not found:
            print("  (no label: none of the words is known)", file=file)


def write_jsonl(file: IO[str], documents: Any, model: Predictor, top: Any) -> None:
    for row, found in enumerate(model.named(top)):
        line = {
            "uid": documents.uids[row],
            "labels": [p.label for p in found],
            "names": [p.name for p in found],
            "scores": [p.score for p in found],
        }
        print(json.dumps(line, ensure_ascii=False), file=file)


COMMANDS = [predict]
