"""Commands that ask a model: predict."""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longtail.cli.base import (
    FINITE,
    AnyText,
    NamedPath,
    Talk,
    argument,
    command,
    model_argument,
    open_model,
    option,
    output_path,
    talk,
)
from longtail.errors import ConfigError

if TYPE_CHECKING:
    from longtail.data.inputs import InputBlock
    from longtail.data.tables import IdLists
    from longtail.training.progress import Count

KNOWN = "What is known beside the text (models that look at a graph: recipe galaxc)"

LONG = 1000  # documents whose progress is shown


@command(
    "predict",
    'longtail predict runs/first "a small domesticated feline" -k 3',
    "longtail predict runs/first --input queries.csv --output answers.csv",
    'longtail predict runs/first "a small domesticated feline" --explain',
    "cat queries.txt | longtail predict runs/first --threshold 0.3 | less",
)
@model_argument
@argument("texts", "texts to tag", type=AnyText(), nargs=-1, metavar="[TEXT]...")
@option(
    "--input",
    type=NamedPath(),
    metavar="FILE",
    help="one text per line, JSON lines (also a data set's tst.json.gz), a table, or - for standard input, which is "
    "read where neither texts nor --input are given; answers come as lines do",
)
@option(
    "--recipe",
    metavar="MODULE:CLASS",
    help="the recipe that made RUN, where it is no installed package: its code is imported",
)
@option("--text", default="", metavar="COLUMN", help="text column(s) of a table (default: those of training)")
@option("--id", metavar="COLUMN", help="id column of a table (default: that of training)")
@option("-k", type=int, default=5, help="labels per text, at most (default {default})")
@option("--threshold", type=FINITE, metavar="T", help="leave out labels with a score below T")
@option(
    "--precision",
    type=float,
    metavar="P",
    help="show so few labels that over many texts a share P of them is right, e.g. 0.9; a text may have none "
    "(models that 'longtail calibrate' was run on)",
)
@option(
    "--format",
    type=click.Choice(["text", "jsonl", "csv", "tsv", "parquet", "npz"]),
    help="of the answers (default: as the name of --output ends, else text). csv, tsv and parquet have all columns of "
    "the input before labels and scores; npz is held in memory until all is answered",
)
@option("--long", is_flag=True, help="jsonl and tables: a row per label, with id, rank, label, name and score")
@option(
    "--explain",
    is_flag=True,
    help="under each label the words that made the model choose it, with their shares (text; jsonl: the key 'why')",
)
@option("--explain-features", is_flag=True, help="the same, with the pairs and parts of words behind each word")
@option("--output", type=output_path(), metavar="FILE", help="where to write (default: standard output)")
@option(
    "--cluster",
    metavar="ADDRESS",
    help="answer a Parquet file or a folder of them (--input) on a Ray cluster ('local': one of this machine); "
    "--output is a folder of Parquet: id, labels, scores, in any order",
)
@option(
    "--shard",
    metavar="I/N",
    help="answer every N-th document only, from the I-th on: N such commands, on any machines, answer each once",
)
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
    threshold: float | None,
    precision: float | None,
    format: str | None,
    long: bool,
    explain: bool,
    explain_features: bool,
    output: Path | None,
    cluster: str | None,
    shard: str | None,
    known: tuple[str, ...],
    known_field: str | None,
    anchor: tuple[str, ...],
    anchor_field: str | None,
) -> None:
    """The best labels of texts; masks nothing."""
    from longtail.data.outputs import WITH_COLUMNS, Answering, answers_to, format_for

    source = input or ("-" if not texts and sys.stdin is not None and not sys.stdin.isatty() else None)
    if bool(texts) == bool(source):
        raise ConfigError(
            "give either texts or --input FILE", 'longtail predict RUN "a text", or longtail predict RUN --input FILE'
        )
    if k < 1:
        raise ConfigError(f"-k {k}, expected a whole number >= 1", "ask for at least one label")
    part = _part_of(shard)
    if cluster is not None:
        from longtail.cluster.ray_data import predict_files

        others = (precision, format, long, shard, explain, explain_features, recipe)
        if source in (None, "-") or output is None or any((*others, known, known_field, anchor, anchor_field)):
            raise ConfigError(
                "--cluster takes --input FILE and --output FOLDER, and of the other options -k, --threshold, --text "
                "and --id alone",
                "longtail predict RUN --cluster auto --input FOLDER --output ANSWERS",
            )
        count = predict_files(cluster, model, str(source), output, k=k, threshold=threshold, text=text, id=id)
        print(f"wrote {count:,} answers to {output}")
        return
    written_as = format or format_for(output)
    known_labels = _known_ids("known", known, known_field, texts, source)
    anchors = _known_ids("anchor", anchor, anchor_field, texts, source)
    opened = open_model(model, recipe)
    threshold = opened.lowest_score(threshold, precision)
    separator = None if opened.columns is None else opened.columns.separator
    lists = [one.field for one in (known_labels, anchors) if one.field is not None]
    for one in lists:
        if opened.columns is not None and one.column == opened.columns.labels:
            one.separator = separator
    repairs: Counter[str] = Counter()
    blocks: Iterable[InputBlock]
    if source:
        blocks = opened.document_blocks(
            source,
            text=text or None,
            id=id,
            lists=lists,
            carry=written_as in WITH_COLUMNS and not long,
            on_columns=lambda found: talk.note(found.line()),
            repairs=repairs,
        )
    else:
        blocks = [_typed(texts, repairs)]
    explained = explain or explain_features
    asked = Answering(opened, separator, threshold, long, talk.note, explained, precision)
    with answers_to(output, written_as, asked) as answers, _Progress(talk, output) as progress:
        for block in blocks:
            if part is not None:
                block = block.every(*part)
            documents = block.documents
            context = opened.context(len(documents), known_labels.of(block), anchors.of(block))
            progress.begin(len(documents))
            top, why = opened.rank(documents, k, context=context, threshold=threshold), None
            if explained:
                why = opened.explain_labels(
                    documents, top.ids, context=context, features=explain_features, examples=True
                )
            answers.write(block, top, why)
            progress.advance(len(documents), block.share)
    for what, count in repairs.items():
        talk.note(f"warning: {count} {what}")


def _part_of(shard: str | None) -> tuple[int, int] | None:
    """(number of the first document, step) of a shard as it is written, "1/4" being the first of four."""
    if shard is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", shard)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(f"--shard {shard}, expected I/N with I from 1 to N", "the first of four is --shard 1/4")
    return int(found[1]) - 1, int(found[2])


def _typed(texts: Sequence[str], repairs: Counter[str]) -> InputBlock:
    """Texts of the command line; bytes that are no text in this locale come as halves of characters."""
    from longtail.data.dataset import Items
    from longtail.data.from_texts import is_whole, mended
    from longtail.data.inputs import TEXT, InputBlock
    from longtail.data.lines import NOT_UNICODE

    if broken := sum(not is_whole(text) for text in texts):
        repairs[NOT_UNICODE] += broken
        texts = [mended(text) for text in texts]
    return InputBlock(Items([str(n) for n in range(len(texts))], {"title": texts}), carried={TEXT: texts})


class _Progress(contextlib.ExitStack):
    """How far the work is, where it is long and the answers do not show it themselves."""

    def __init__(self, talk: Talk, output: Path | None) -> None:
        super().__init__()
        self.talk, self.shown = talk, output is not None or not sys.stdout.isatty()
        self.documents = 0
        self.count: Count | None = None

    def begin(self, documents: int) -> None:
        """So many are about to be answered."""
        self.documents += documents
        if self.shown and self.count is None and self.documents > LONG:
            self.count = self.enter_context(self.talk.display().count("predicting"))
            self.count.advance(self.documents - documents)

    def advance(self, documents: int, share: float | None) -> None:
        if self.count is not None:
            self.count.advance(documents, share)


@dataclass(frozen=True)
class _KnownIds:
    """Ids that are known beside the text: of the one text of the command line, or in a field of the input."""

    ids: tuple[str, ...]
    field: IdLists | None

    def of(self, block: InputBlock) -> list[list[str]] | None:
        """For each document; None where nothing was said to be known."""
        if self.ids:
            return [list(self.ids)]
        return None if self.field is None else block.lists[self.field.column]


def _known_ids(
    name: str, ids: tuple[str, ...], field: str | None, texts: tuple[str, ...], input: str | None
) -> _KnownIds:
    """What the options --NAME and --NAME-field say."""
    from longtail.data.tables import IdLists

    if ids and (input or len(texts) != 1):
        raise ConfigError(f"--{name} belongs to one text", f"give one text, or --input FILE with --{name}-field NAME")
    if field and not input:
        raise ConfigError(
            f"--{name}-field names a field of --input FILE, which is not given",
            f"use --{name} ID with a text on the command line",
        )
    return _KnownIds(ids, IdLists(field, f"--{name}-field") if field else None)


COMMANDS = [predict]
