"""Commands that look at a model label by label, and change its labels: labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from longtail.cli.base import Group, Talk, argument, command, model_argument, option, path, talk
from longtail.cli.measuring import weak
from longtail.errors import ConfigError, DataError

if TYPE_CHECKING:
    from longtail.data.dataset import Items
    from longtail.label_changes import LabelChange


@command(
    "add",
    'longtail labels add runs/shop --id 4711 --text "wireless headphones" --near 4700',
    'longtail labels add runs/shop --id 4711 --text "wireless headphones" --examples headphones.txt',
    "longtail labels add runs/shop --file new.csv --examples documents.csv",
)
@model_argument
@option("--id", metavar="ID", help="of the new label")
@option("--text", default="", metavar="TEXT", help="what it is called")
@option("--near", multiple=True, metavar="LABEL", help="id of a label that it is like; may be repeated")
@option(
    "--file",
    type=path(),
    metavar="FILE",
    help="many labels at once: a table (CSV, TSV, JSON lines, Parquet) with id and text; also examples (texts; lists, "
    "or separated by '|') and near (ids, likewise), where there are some",
)
@option(
    "--examples",
    type=path(),
    metavar="FILE",
    help="documents that carry the new label, as 'longtail predict --input' reads them; with --file: data with labels, "
    "as 'longtail train' reads it",
)
@talk
def add(
    talk: Talk,
    model: Path,
    id: str | None,
    text: str,
    near: tuple[str, ...],
    file: Path | None,
    examples: Path | None,
) -> None:
    """Add labels to a trained model, without training it again.

    A label gets its row from its text, from labels near it, and from examples.
    """
    from longtail.data.dataset import Items
    from longtail.data.label_tables import NewLabels, read_new_labels
    from longtail.data.table_files import open_table
    from longtail.labels import add_with_documents, with_texts
    from longtail.predictor import Predictor

    if (id is None) == (file is None):
        raise ConfigError("give either --id ID with --text TEXT, or --file FILE", "see 'longtail labels add --help'")
    if file is not None and (text or near):
        raise ConfigError("--text and --near belong to --id", f"give them as columns of {file}")
    documents, carried = Items([], {}), None
    if file is None:
        assert id is not None
        new = NewLabels({id: text}, {id: near}, {})
        if examples is not None:
            documents = Predictor.open(model).documents(str(examples), on_columns=lambda one: talk.note(one.line()))
            carried = [[0]] * len(documents)
    else:
        new = read_new_labels(open_table(file))
        if examples is not None:
            documents, carried = labelled_documents(Predictor.open(model), examples, list(new.texts), talk)
    documents, targets = with_texts(list(new.texts), new.examples, documents, carried or [])
    change = add_with_documents(model, new.texts, new.near, documents, targets)
    for one in change.said["labels"][:10]:
        count = one["examples"]
        facts = [f"near {one['near']}"] if one["near"] else []
        facts += [f"{count} example{'s' if count > 1 else ''}"] if count else []
        print(f"{one['id']}  {one['text']}" + (f"  ({', '.join(facts)})" if facts else ""))
    _done(change, f"{len(new.texts):,} label{'s' if len(new.texts) > 1 else ''} added", model)


@command("rename", 'longtail labels rename runs/shop --id 4711 --text "bluetooth headphones"')
@model_argument
@option("--id", required=True, metavar="ID", help="of the label")
@option("--text", required=True, metavar="TEXT", help="its new name")
def rename(model: Path, id: str, text: str) -> None:
    """Give a label another name; its id and what the model finds stay as they are."""
    from longtail.labels import rename as run_rename

    _done(run_rename(model, id, text), "renamed", model)


@command("merge", "longtail labels merge runs/shop 4711 4712 --into 4700")
@model_argument
@argument("ids", "labels that become one with another", nargs=-1, required=True, metavar="LABEL...")
@option("--into", required=True, metavar="LABEL", help="the label that they become")
def merge(model: Path, ids: tuple[str, ...], into: str) -> None:
    """Make one label of several: documents of any of them get the one that is left."""
    from longtail.labels import merge as run_merge

    _done(run_merge(model, ids, into), "merged", model)


@command("retire", "longtail labels retire runs/shop 0815 0816")
@model_argument
@argument("ids", "labels that are no longer given", nargs=-1, required=True, metavar="LABEL...")
def retire(model: Path, ids: tuple[str, ...]) -> None:
    """Switch labels off; others take their places in the answers."""
    from longtail.labels import retire as run_retire

    _done(run_retire(model, ids), "retired", model)


@command("log", "longtail labels log runs/shop")
@model_argument
@option("--format", default="text", type=click.Choice(["text", "jsonl"]), help="of the answer (default {default})")
def log(model: Path, format: str) -> None:
    """List what was changed, the first change first."""
    from longtail.labels import log as run_log

    for one in run_log(model):
        if format == "text":
            print(one.line())
        else:
            said = {"number": one.number, "time": one.time, "kind": one.kind, **one.said}
            print(json.dumps(said, ensure_ascii=False))


@command("undo", "longtail labels undo runs/shop")
@model_argument
def undo(model: Path) -> None:
    """Take the last change back; the model then answers as before it, to the last bit."""
    from longtail.labels import undo as run_undo

    print(f"taken back: {run_undo(model).line().strip()}")


def _done(change: LabelChange, what: str, model: Path) -> None:
    print(f"{what} (change {change.number}); longtail labels undo {model} takes it back")


def labelled_documents(model: Any, file: Path, uids: Sequence[str], talk: Talk) -> tuple[Items, list[list[int]]]:
    """The documents of a data set that carry some of the new labels, and which."""
    import numpy as np

    from longtail.data.read import read

    data = read(file, test=False, columns=model.columns)
    for line in data.remarks():
        talk.note(line)
    places = {uid: place for place, uid in enumerate(uids)}
    of_label = [places.get(uid, -1) for uid in data.labels.uids]
    carried = [
        [of_label[label] for label in data.train.targets.indices[start:end] if of_label[label] >= 0]
        for start, end in zip(data.train.targets.indptr[:-1], data.train.targets.indptr[1:], strict=True)
    ]
    rows = [row for row, labels in enumerate(carried) if labels]
    if not rows:
        raise DataError("no document carries one of the new labels", "use the ids of --file in it", file=file)
    return data.train.documents.rows(np.array(rows, dtype=np.int64)), [carried[row] for row in rows]


labels = Group(
    name="labels",
    help="Look at a model label by label; add, rename, merge and retire labels without training.",
    sections={"Look": [weak], "Change": [add, rename, merge, retire, log, undo]},
)

COMMANDS = [labels]
