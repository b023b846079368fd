"""Commands that measure a model: evaluate, compare, report, labels weak; what was measured of the papers: claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from longtail.cli.base import (
    FINITE,
    SEED,
    DataSource,
    Talk,
    argument,
    command,
    data_source,
    header,
    json_option,
    model_argument,
    open_model,
    option,
    output_path,
    path,
    talk,
    write_json_file,
)

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset
    from longtail.predictor import Predictor

# More would take hours and say the same.
resamples_option = option(
    "--resamples", type=click.IntRange(1, 1_000_000), default=1000, help="of the bootstrap (default {default})"
)


@command(
    "evaluate", "longtail evaluate runs/first DATA --baselines", "longtail evaluate runs/first DATA --json numbers.json"
)
@model_argument
@data_source
@option(
    "--recipe",
    metavar="MODULE:CLASS",
    help="the recipe that made RUN, where it is no installed package: its code is imported",
)
@json_option
@option(
    "--diagnose", "look", is_flag=True, help="also look inside: bytes by part, seconds by stage, recall of shortlists"
)
@option("--baselines", is_flag=True, help="set most frequent labels and TF-IDF nearest neighbours beside it")
@option(
    "--transductive",
    is_flag=True,
    help="let test documents be linked to each other (recipe galaxc); the result says so",
)
@option(
    "--labels-by-text",
    is_flag=True,
    help="rank the labels of DATA, also unseen ones, by their texts (recipes ance, dexml, ramen)",
)
@option(
    "--unlisted",
    type=int,
    default=0,
    metavar="N",
    help="show N predictions that the truth lacks but graphs reach (reads oracle edges)",
)
@option(
    "--threshold",
    type=FINITE,
    metavar="T",
    help="MicroF1 and MacroF1 of labels with a score of at least T (default: what train --holdout chose)",
)
@talk
def evaluate(
    talk: Talk,
    model: Path,
    recipe: str | None,
    source: DataSource,
    json: Path | None,
    look: bool,
    baselines: bool,
    transductive: bool,
    labels_by_text: bool,
    unlisted: int,
    threshold: float | None,
) -> None:
    """Measure a model on the test documents of DATA (masked pairs removed)."""
    from longtail import evaluation
    from longtail.report import table

    opened = open_model(model, recipe)
    data = source.read(columns=opened.columns)
    if labels_by_text:
        opened = opened.with_labels(data.labels)
    result = evaluation.evaluate(opened, data, talk.display(), transductive=transductive, threshold=threshold)
    recipe = result["model"]["recipe"]
    columns: dict[str, Any] = (
        {f"{recipe}, warm": result, f"{recipe}, cold": result["cold"]} if "cold" in result else {recipe: result}
    )
    if baselines:
        yardstick = evaluation.Yardstick.of(data)
        columns |= {name: yardstick.score(top) for name, top in evaluation.baselines(data, yardstick).items()}
        result["baselines"] = {name: scores for name, scores in columns.items() if scores is not result}
    print(header(result) + "\n" + table(columns))
    if look:
        result["diagnosis"] = _diagnosed(opened, data)
    if unlisted:
        result["unlisted"] = _unlisted(source.path, opened, data, unlisted)
    write_json_file(json, result)


def _diagnosed(model: Predictor, data: Dataset) -> Any:
    from longtail.diagnosis import diagnose
    from longtail.evaluation import Yardstick

    found = diagnose(model, Yardstick.of(data))
    print(json.dumps(found, indent=1))
    return found


def _unlisted(folder: Path, model: Predictor, data: Dataset, shown: int) -> dict[str, float]:
    """Prints examples; gives the shares."""
    from longtail import diagnosis
    from longtail.data.graph_files import read_oracle
    from longtail.errors import DataError
    from longtail.evaluation import Yardstick

    if not data.graphs:
        raise DataError(
            f"'{data.name}' has no graphs",
            "--unlisted looks for labels that a document's anchors reach; use data with graphs",
        )
    oracles = {
        name: read_oracle(folder, name)
        for name, graph in data.graphs.items()
        if graph.anchors is not None and graph.labels is not None
    }
    yardstick = Yardstick.of(data)
    shares, pairs = diagnosis.unlisted(model, yardstick, oracles)
    print("\nlabels that the truth lacks but graphs reach (edges of test documents are read for this analysis alone)")
    for name, share in shares.items():
        print(f"{name:<44}{share:>7.2f}%")
    print(diagnosis.show_unlisted(pairs, yardstick, oracles, shown))
    return shares


@command("compare", "longtail compare runs/a runs/b DATA --examples 5")
@argument("a", "a run, a bundle, or predictions as npz", type=path(), metavar="RUN_A")
@argument("b", "another", type=path(), metavar="RUN_B")
@data_source
@option(
    "--examples",
    type=int,
    default=0,
    metavar="N",
    help="show the five best labels of both for N documents on which they differ",
)
@option("--missed", is_flag=True, help="show which labels one misses and the other finds (FN@k), by label frequency")
@resamples_option
@option("--seed", type=SEED, default=0, help="of the bootstrap")
@json_option
@talk
def compare(
    talk: Talk,
    a: Path,
    b: Path,
    source: DataSource,
    examples: int,
    missed: bool,
    resamples: int,
    seed: int,
    json: Path | None,
) -> None:
    """Differences between two models with intervals (paired bootstrap), also by label frequency.

    RUN_A and RUN_B are runs, bundles, or predictions as npz. Where DATA has no test documents, two models are compared
    on those that both held out of training.
    """
    from longtail import compare as comparison
    from longtail.evaluation import columns_of_models

    sides = comparison.Sides(a, b)
    data = source.read(columns=columns_of_models(*sides.models))
    result = comparison.compare_sides(sides, data, resamples=resamples, seed=seed, display=talk.display())
    print(header(result) + "\n" + comparison.render(result))
    if missed:
        print(comparison.render_missed(result))
    if examples:
        from longtail.diagnosis import side_by_side
        from longtail.predictor import Predictor

        test = sides.with_test(data).need_test()
        one, other = (side if isinstance(side, Predictor) else Predictor.open(side) for side in sides.opened)
        print(side_by_side(one, other, test.documents, test.targets, data.labels, examples))
    write_json_file(json, result)


@command(
    "weak", "longtail labels weak runs/first DATA", "longtail labels weak runs/first DATA --limit 0 --format jsonl"
)
@model_argument
@data_source
@option("-k", type=int, default=5, help="labels per document that are looked at (default {default})")
@option(
    "--support", type=int, default=1, metavar="N", help="only labels with N or more test documents (default {default})"
)
@option("--limit", type=int, default=20, metavar="N", help="show so many, the worst first; 0: all (default {default})")
@option("--format", default="text", type=click.Choice(["text", "jsonl"]), help="of the answer (default {default})")
@talk
def weak(talk: Talk, model: Path, source: DataSource, k: int, support: int, limit: int, format: str) -> None:
    """List the labels that a model misses most often, and what it says instead."""
    from longtail import failures

    opened = open_model(model)
    data = source.read(columns=opened.columns)
    for line in data.remarks():
        talk.note(line)
    rows = failures.weak_labels(opened, data, k, support=support, limit=limit, display=talk.display())
    print(
        failures.render(rows, k) if format == "text" else failures.to_jsonl(rows), end="\n" if format == "text" else ""
    )


@command(
    "report",
    "longtail report runs/first DATA --output report.html",
    "longtail report runs/b DATA --output report.html --against runs/a --card CARD.md",
)
@model_argument
@data_source
@option("--output", type=output_path(), metavar="FILE", required=True, help="where to write the report, one HTML file")
@option("--against", type=path(), metavar="RUN2", help="a second model to set beside it, with differences")
@option(
    "--card",
    type=output_path(),
    metavar="FILE",
    help="also write a model card in Markdown, with the numbers of the report",
)
@option(
    "--documents",
    type=int,
    default=10_000,
    metavar="N",
    help="look at a sample of N test documents where there are more; 0: all (default {default})",
)
@option("--no-texts", is_flag=True, help="leave all texts of documents out, and name documents by their ids")
@resamples_option
@option("--seed", type=SEED, default=0, help="of the sample and the bootstrap")
@talk
def report(
    talk: Talk,
    model: Path,
    source: DataSource,
    output: Path,
    against: Path | None,
    card: Path | None,
    documents: int,
    no_texts: bool,
    resamples: int,
    seed: int,
) -> None:
    """Write a report of a model on the test documents of DATA, or on those that training held out.

    One HTML file that needs no network: the data, metrics with intervals, rare labels, curves, training, size, weak
    labels, examples with explanations, and suspected errors of the truth.
    """
    from longtail.evaluation import columns_of_models
    from longtail.model_report.document import write_report
    from longtail.model_report.plots import check_installed

    check_installed()
    opened, other = open_model(model), None if against is None else open_model(against)
    write_report(
        opened,
        source.read(columns=columns_of_models(*filter(None, (opened, other)))),
        output,
        against=other,
        card_file=card,
        documents=documents,
        texts=not no_texts,
        resamples=resamples,
        seed=seed,
        display=talk.display(),
    )
    print(f"wrote {output}: {output.stat().st_size:,} bytes")
    if card is not None:
        print(f"wrote {card}")


@command("claims", "longtail claims", "longtail claims ramen", "longtail claims E5 R6")
@argument("which", "papers (astec, eclare, galaxc, gnnxml, ramen) or claims; all in a line each by default", nargs=-1)
def claims(which: tuple[str, ...]) -> None:
    """Show which claims of the papers held, by experiment.

    Each claim in a sentence, with what the paper prints, what was measured here, the verdict, and why it failed, where
    an experiment says so. The experiments themselves are in the repository (benchmarks/claims).
    """
    from longtail.ledger import told

    print(told(which))


COMMANDS = [evaluate, compare, report, claims]
