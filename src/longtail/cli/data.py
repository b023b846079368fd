"""Commands for data: sample, stats, check, convert, warm-start, zero-shot, identity, synthetic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longtail.cli.base import (
    FINITE,
    SEED,
    DataSource,
    Group,
    Talk,
    argument,
    command,
    data_source,
    json_option,
    option,
    output_path,
    talk,
    write_json_file,
)

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset


@command("sample", "longtail data sample words")
@argument("out", "the new folder", type=output_path(), metavar="DIR")
def sample(out: Path) -> None:
    """Write the embedded sample (a reverse dictionary from WordNet) to DIR."""
    from longtail.data.read import write_sample

    write_sample(out)
    print(f"wrote {out}\ntrain on it: longtail train {out} --out runs/first")


@command("stats")
@data_source
@json_option
def stats(source: DataSource, json: Path | None) -> None:
    """Counts, tail shares, duplicates, leaks, graph coverage."""
    from longtail.data.inspect import render, statistics

    found = statistics(source.read())
    print(render(found))
    write_json_file(json, found)


@command("check")
@data_source
def check(source: DataSource) -> None:
    """What is wrong or suspicious; exit 2 if something is wrong."""
    from longtail.data import inspect
    from longtail.errors import DataError

    data = source.read()
    for line in data.remarks():
        print(line)
    findings = inspect.check(data)
    for what, count in data.repairs.items():
        print(f"repaired  {count} {what}")
    for finding in findings:
        print(f"{finding.level:<9} {finding.message}{finding.hint and '  -> ' + finding.hint}")
    errors = [f for f in findings if f.level == "error"]
    if errors:
        raise DataError(f"{len(errors)} errors, the first: {errors[0].message}", errors[0].hint, file=source.path)
    print(f"{data.name}: {len(data.train):,} training documents, {len(data.labels):,} labels: usable")


@command("convert", "longtail data convert shop.csv shop --text title --labels tags --format lf")
@data_source
@argument("out", "the new folder", type=output_path(), metavar="OUT")
@option(
    "--format",
    default="lf",
    type=click.Choice(["lf", "sparse", "split", "npz", "jsonl", "csv", "tsv", "parquet"]),
    help="what is written (default {default})",
)
@talk
def convert(talk: Talk, source: DataSource, out: Path, format: str) -> None:
    """Read DATA in any format and write it in another."""
    from longtail.data.read import write

    data = source.read()
    for line in data.remarks():
        talk.note(line)
    write(data, out, format)
    for what, count in data.repairs.items():
        talk.note(f"note: {count} {what}")
    print(f"wrote {out}")


@command("warm-start")
@data_source
@argument("out", "the new folder", type=output_path(), metavar="OUT")
@option("--seed", type=SEED, default=0, help="chooses which half")
def warm_start(source: DataSource, out: Path, seed: int) -> None:
    """Cut DATA for warm start: OUT/warm and OUT/cold, in which half of the labels of test documents are known."""
    from longtail.data import protocols

    made = protocols.warm_start(source.read(), seed)
    _write_all(out, {"warm": made.warm, "cold": made.cold})
    print(f"wrote {out}: {len(made.cold.need_test()):,} test documents with two or more labels, half of them known")
    print(f"train and evaluate on {out}/warm; the control trains on {out}/cold (docs/data-formats.md)")


@command("zero-shot")
@data_source
@argument("out", "the new folder", type=output_path(), metavar="OUT")
@option("--share", type=FINITE, default=0.15, help="of the labels to hold out (default {default})")
@option(
    "--transductive-labels",
    is_flag=True,
    help="leave held-out labels and their edges in training's graphs; report it separately",
)
@option("--seed", type=SEED, default=0, help="chooses which labels")
def zero_shot(source: DataSource, out: Path, share: float, transductive_labels: bool, seed: int) -> None:
    """Cut DATA for zero shot: OUT/train without some labels, OUT/unseen and OUT/generalised to find them in."""
    from longtail.data import protocols

    made = protocols.zero_shot(source.read(), seed, share, transductive_labels=transductive_labels)
    _write_all(out, {"train": made.train, "unseen": made.unseen, "generalised": made.generalised})
    print(
        f"wrote {out}: {len(made.held_out):,} labels held out, {len(made.unseen.need_test()):,} test documents "
        "have one of them"
    )
    print(
        f"train on {out}/train; longtail evaluate RUN {out}/unseen --labels-by-text ranks held-out labels alone, "
        "generalised all labels"
    )


@command("identity")
@data_source
@argument("out", "the new folder", type=output_path(), metavar="OUT")
def identity(source: DataSource, out: Path) -> None:
    """Cut the test documents of DATA by whether they are labels themselves: OUT/labels and OUT/others."""
    from longtail.data import protocols
    from longtail.errors import DataError

    data = source.read()
    made = protocols.identity(data)
    if made.labels is None:
        raise DataError(
            f"no test document of '{data.name}' has the title of a label",
            "this protocol is for data whose documents are labels, too; use other data",
        )
    kinds = {"labels": made.labels} if made.others is None else {"labels": made.labels, "others": made.others}
    _write_all(out, kinds)
    counts = ", ".join(f"{len(cut.need_test()):,} test documents in {out}/{name}" for name, cut in kinds.items())
    print(f"wrote {out}: {counts}")
    print("the training side is the same: train on either, and evaluate on both (docs/data-formats.md)")


def _write_all(out: Path, cuts: Mapping[str, Dataset]) -> None:
    """Each into a folder of its own: text in the layout lf, vectors as npz."""
    from longtail.data.lines import new_folder
    from longtail.data.read import write

    with new_folder(out) as aside:
        for name, dataset in cuts.items():
            write(dataset, aside / name, "lf" if dataset.train.documents.vectors is None else "npz")


@command("synthetic", "longtail data synthetic planted --size small")
@argument("out", "the new folder", type=output_path(), metavar="DIR")
@option(
    "--size",
    default="tiny",
    type=click.Choice(["tiny", "small", "medium", "many-labels", "shape-131k", "shape-1.3m"]),
    help="how much (default {default}); shapes have the numbers of LF-AmazonTitles-131K and -1.3M",
)
@option("--set", "assignments", multiple=True, metavar="knob=value", help="one knob of the generator; may be repeated")
@option("--seed", type=SEED, default=0, help="another seed is other data")
def synthetic(out: Path, size: str, assignments: tuple[str, ...], seed: int) -> None:
    """Write planted data with a known answer."""
    from longtail.config import from_text
    from longtail.data.read import write
    from longtail.data.synthetic import SyntheticConfig, synthesise

    write(synthesise(from_text(SyntheticConfig.preset(size), assignments), seed).dataset, out, "lf")
    print(f"wrote {out}")


data = Group(
    name="data",
    help="Look at, check and convert data.",
    sections={"Commands": [sample, stats, check, convert, synthetic], "Protocols": [warm_start, zero_shot, identity]},
)

COMMANDS = [data]
