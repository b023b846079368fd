"""The command line: a thin skin over `pipeline`, `evaluation` and `packing`, and the contract for scripts.

Exit codes: 0 success; 2 a user's error (``error:`` and ``hint:`` on standard error, no traceback); 130 interrupted;
1 a bug of ours. ``--debug`` shows the traceback of any of them. Results go to standard output, everything else to
standard error. Imports stand inside the commands, so that ``longtail --version`` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from longtail import __version__
from longtail.errors import ConfigError, LongtailError

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset
    from longtail.predictor import Predictor
    from longtail.training.progress import Display


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        options = parser().parse_args([a for a in arguments if a != "--debug"])
        options.run(options)
        sys.stdout.flush()
        return 0
    except LongtailError as problem:
        if debug:
            traceback.print_exc()
        print(f"error: {problem.message}", file=sys.stderr)
        if problem.hint:
            print(f"hint: {problem.hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone. Give Python something to flush into, or it complains on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        print(
            "error: out of memory\nhint: use smaller settings or fewer documents, or a machine with more memory",
            file=sys.stderr,
        )
        return 2
    except OSError as problem:
        if debug:
            traceback.print_exc()
        print(
            f"error: {problem.filename or 'a file'}: {problem.strerror or problem}\nhint: check the path, its "
            "rights and the space on the disk",
            file=sys.stderr,
        )
        return 2
    except Exception as problem:
        if debug:
            traceback.print_exc()
        print(
            f"error: internal error: {type(problem).__name__}: {problem}\nhint: this is a bug of longtail; --debug "
            "shows where, please report it",
            file=sys.stderr,
        )
        return 1


class Parser(argparse.ArgumentParser):
    """argparse, but a wrong call reads like every other error of ours."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, f"see '{self.prog} --help'")


def parser() -> Parser:
    top = Parser(
        prog="longtail", description="Tags a short text with the most relevant of thousands to millions of labels."
    )
    top.add_argument("--version", action="version", version=f"longtail {__version__}")
    top.add_argument("--debug", action="store_true", help="show tracebacks (anywhere on the line)")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Any, help: str, into: Any = commands) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = into.add_parser(name, help=help, description=help)
        made.set_defaults(run=run)
        return made

    c = command("train", train, "train a model on the training split of DATA; the same command again resumes")
    add_data(c)
    c.add_argument("--recipe", default="", metavar="NAME", help="which method ('longtail recipes' lists them)")
    c.add_argument("--out", required=True, type=Path, metavar="RUN", help="run folder; RUN/bundle will be the model")
    c.add_argument("--config", type=Path, metavar="F.toml", help="settings that differ from the defaults")
    c.add_argument("--set", action="append", default=[], metavar="a.b=c", help="one setting; may be repeated")
    c.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--restart", action="store_true", help="throw away what lies in RUN and begin anew")

    c = command("evaluate", evaluate, "measure a model on the test documents of DATA (masked pairs removed)")
    c.add_argument("model", type=Path, metavar="RUN", help="a run or a bundle")
    add_data(c)
    c.add_argument("--json", type=Path, metavar="FILE", help="write all numbers, in percent")
    c.add_argument(
        "--diagnose",
        action="store_true",
        help="also look inside: bytes by part, seconds by stage, recall of shortlists",
    )
    c.add_argument(
        "--baselines", action="store_true", help="set most frequent labels and TF-IDF nearest neighbours beside it"
    )
    c.add_argument(
        "--transductive",
        action="store_true",
        help="let test documents be linked to each other (recipe galaxc); the result says so",
    )
    c.add_argument(
        "--labels-by-text",
        action="store_true",
        help="rank the labels of DATA, also unseen ones, by their texts (recipes ance, dexml, ramen)",
    )
    c.add_argument(
        "--unlisted",
        type=int,
        default=0,
        metavar="N",
        help="show N predictions that the truth lacks but graphs reach (reads oracle edges)",
    )

    c = command("predict", predict, "the best labels of texts; masks nothing")
    c.add_argument("model", type=Path, metavar="RUN", help="a run or a bundle")
    c.add_argument("texts", nargs="*", metavar="TEXT")
    c.add_argument(
        "--input",
        metavar="FILE",
        help="one text per line, JSON lines (also a data set's tst.json.gz), a table, or - for standard input",
    )
    c.add_argument("--text", default="", metavar="COLUMN", help="text column(s) of a table")
    c.add_argument("-k", type=int, default=5, help="labels per text (default 5)")
    known = c.add_argument_group("what is known beside the text (models that look at a graph: recipe galaxc)")
    known.add_argument(
        "--known", action="append", metavar="LABEL", help="id of a label that TEXT is known to have; may be repeated"
    )
    known.add_argument(
        "--known-field", metavar="NAME", help="field or column of FILE that lists the labels known of each document"
    )
    known.add_argument(
        "--anchor",
        action="append",
        metavar="ID",
        help="id of a node of a given graph that TEXT is linked to; may be repeated",
    )
    known.add_argument("--anchor-field", metavar="NAME", help="field or column of FILE that lists such nodes")
    c.add_argument("--format", default="text", choices=("text", "jsonl", "npz"))
    c.add_argument("--output", type=Path, metavar="FILE", help="where to write (default: standard output)")

    c = command(
        "pack", pack, "write a model with its tables in float16 or int8: a quarter of the bytes, and faster to search"
    )
    c.add_argument("model", type=Path, metavar="RUN", help="a run or a bundle")
    c.add_argument("out", type=Path, metavar="OUT", help="the new bundle")
    help_dtype = (
        "numbers of the tables (default int8, with a scale per row; int4: those of words in half as many "
        "bytes, those of labels int8)"
    )
    c.add_argument("--dtype", default="int8", choices=("float16", "int8", "int4"), help=help_dtype)
    c.add_argument(
        "--features",
        type=int,
        default=0,
        metavar="N",
        help="keep the vectors of N words only, the most useful (default: all)",
    )
    c.add_argument(
        "--index",
        default="auto",
        choices=("auto", "exact", "sketch", "leaves", "hnsw"),
        help="how labels are searched (default: the fastest, measured here)",
    )
    add_data(c, "--data")
    c.add_argument("--json", type=Path, metavar="FILE")

    c = command(
        "export", export, "write the transformer of a model as an ONNX graph with its tokenizer, for other programs"
    )
    c.add_argument("model", type=Path, metavar="RUN", help="a run or a bundle")
    c.add_argument("out", type=Path, metavar="OUT", help="the new folder")

    c = command(
        "compare", compare, "differences between two models with intervals (paired bootstrap), also by label frequency"
    )
    c.add_argument("a", type=Path, metavar="RUN_A", help="a run, a bundle, or predictions as npz")
    c.add_argument("b", type=Path, metavar="RUN_B")
    add_data(c)
    c.add_argument(
        "--examples",
        type=int,
        default=0,
        metavar="N",
        help="show the five best labels of both for N documents on which they differ",
    )
    c.add_argument(
        "--missed",
        action="store_true",
        help="show which labels one misses and the other finds (FN@k), by label frequency",
    )
    c.add_argument("--resamples", type=int, default=1000)
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--json", type=Path, metavar="FILE")

    command("recipes", recipes, "list the recipes")
    c = command("config", config, "every setting of a recipe with its help and default, as TOML")
    c.add_argument("recipe", metavar="RECIPE")
    c = command("demo", demo, "train on the embedded sample, show numbers beside baselines, and answer five questions")
    c.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="RUN")
    c.add_argument(
        "--restart", action="store_true", help="throw away what lies in RUN and begin anew, e.g. after an update"
    )

    data = commands.add_parser("data", help="look at, check and convert data").add_subparsers(
        metavar="WHAT", required=True
    )
    c = command("sample", data_sample, "write the embedded sample (a reverse dictionary from WordNet) to DIR", data)
    c.add_argument("out", type=Path, metavar="DIR")
    c = command("stats", data_stats, "counts, tail shares, duplicates, leaks, graph coverage", data)
    add_data(c)
    c.add_argument("--json", type=Path, metavar="FILE")
    c = command("check", data_check, "what is wrong or suspicious; exit 2 if something is wrong", data)
    add_data(c)
    c = command("convert", data_convert, "read DATA in any format and write it in another", data)
    add_data(c)
    c.add_argument("out", type=Path, metavar="OUT")
    c.add_argument("--format", default="lf", choices=("lf", "sparse", "split", "npz", "jsonl", "csv", "tsv", "parquet"))
    c.add_argument(
        "--vocabulary",
        type=Path,
        metavar="SKOS",
        help="a SKOS vocabulary (Turtle, RDF/XML, N-Triples) that gives label texts and label graphs",
    )
    c.add_argument("--language", default="en", help="language of the vocabulary's names (default en)")
    c = command(
        "warm-start",
        data_warm_start,
        "cut DATA for warm start: OUT/warm and OUT/cold, in which half of the labels of test documents are known",
        data,
    )
    add_data(c)
    c.add_argument("out", type=Path, metavar="OUT")
    c.add_argument("--seed", type=int, default=0, help="chooses which half")
    c = command(
        "zero-shot",
        data_zero_shot,
        "cut DATA for zero shot: OUT/train without some labels, OUT/unseen and OUT/generalised to find them in",
        data,
    )
    add_data(c)
    c.add_argument("out", type=Path, metavar="OUT")
    c.add_argument("--share", type=float, default=0.15, help="of the labels to hold out (default 0.15)")
    c.add_argument(
        "--transductive-labels",
        action="store_true",
        help="leave held-out labels and their edges in training's graphs; report it separately",
    )
    c.add_argument("--seed", type=int, default=0, help="chooses which labels")
    c = command("synthetic", data_synthetic, "write planted data with a known answer", data)
    c.add_argument("out", type=Path, metavar="DIR")
    c.add_argument("--size", default="tiny", choices=("tiny", "small", "medium"))
    c.add_argument(
        "--set", action="append", default=[], metavar="knob=value", help="one knob of the generator; may be repeated"
    )
    c.add_argument("--seed", type=int, default=0)
    return top


def add_data(c: argparse.ArgumentParser, name: str = "data") -> None:
    c.add_argument(name, type=Path, metavar="DATA", help="a data folder or file (docs/data-formats.md)")
    table = c.add_argument_group("tables (CSV, TSV, JSON lines, Parquet)")
    table.add_argument("--text", metavar="NAMES", help="text column(s), e.g. title,content")
    table.add_argument("--labels", metavar="NAME", help="labels column")
    table.add_argument("--uid", metavar="NAME", help="id column")
    table.add_argument(
        "--separator", metavar="S", help="what separates labels inside a cell; '' for one label per cell"
    )
    table.add_argument("--test", type=Path, metavar="FILE", help="test documents")
    table.add_argument("--label-texts", type=Path, metavar="FILE", help="a table of label ids and their texts")


# ---- commands ----


def display() -> Display:
    from longtail.training.progress import display_for

    return display_for(sys.stderr)


def read_data(options: argparse.Namespace, *, test: bool = True) -> Dataset:
    from longtail.data.read import read

    given = {name: getattr(options, name) for name in ("text", "labels", "uid", "separator", "label_texts")} | {
        "test_file": options.test
    }
    return read(options.data, test=test, **{name: value for name, value in given.items() if value is not None})


def train(options: argparse.Namespace) -> None:
    from longtail import pipeline
    from longtail.recipes import DEFAULT, make_recipe

    recipe = make_recipe(options.recipe or DEFAULT, config=options.config, assignments=options.set)
    data = read_data(options, test=False)
    pipeline.train(
        data, options.out, recipe, seed=options.seed, device=options.device, restart=options.restart, display=display()
    )
    print(f'bundle: {options.out / "bundle"}\nask it: longtail predict {options.out} "a text"')
    if options.data.is_dir():
        print(f"measure it: longtail evaluate {options.out} {options.data}")


def evaluate(options: argparse.Namespace) -> None:
    from longtail.evaluation import Yardstick, baselines, table
    from longtail.evaluation import evaluate as run_evaluation
    from longtail.predictor import Predictor

    model, data, show = Predictor.open(options.model), read_data(options), display()
    if options.labels_by_text:
        model = model.with_labels(data.labels)
    result = run_evaluation(model, data, show, transductive=options.transductive)
    recipe = result["model"]["recipe"]
    columns: dict[str, Any] = (
        {f"{recipe}, warm": result, f"{recipe}, cold": result["cold"]} if "cold" in result else {recipe: result}
    )
    if options.baselines:
        yardstick = Yardstick.of(data)
        columns |= {name: yardstick.score(top) for name, top in baselines(data, yardstick).items()}
        result["baselines"] = {name: scores for name, scores in columns.items() if scores is not result}
    print(header(result) + "\n" + table(columns))
    if options.diagnose:
        from longtail.diagnosis import diagnose

        result["diagnosis"] = diagnose(model, Yardstick.of(data))
        print(json.dumps(result["diagnosis"], indent=1))
    if options.unlisted:
        result["unlisted"] = show_unlisted(options, model, data)
    if options.json:
        write_json_file(options.json, result)


def show_unlisted(options: argparse.Namespace, model: Predictor, data: Dataset) -> dict[str, float]:
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
        name: read_oracle(options.data, name)
        for name, graph in data.graphs.items()
        if graph.anchors is not None and graph.labels is not None
    }
    yardstick = Yardstick.of(data)
    shares, pairs = diagnosis.unlisted(model, yardstick, oracles)
    print("\nlabels that the truth lacks but graphs reach (edges of test documents are read for this analysis alone)")
    for name, share in shares.items():
        print(f"{name:<44}{share:>7.2f}%")
    print(diagnosis.show_unlisted(pairs, yardstick, oracles, options.unlisted))
    return shares


def header(result: dict[str, Any]) -> str:
    p = result["propensity"]
    linked = "; test documents linked to each other (transductive)" if result.get("transductive") else ""
    return (
        f"{result['data']}: {result['n_test']:,} test documents, {result['n_labels']:,} labels; in percent; "
        f"PSP with A={p['A']} B={p['B']} ({p['family']}){linked}"
    )


def predict(options: argparse.Namespace) -> None:
    from longtail.data.dataset import Items
    from longtail.data.inputs import read_documents
    from longtail.predictor import Predictor

    if bool(options.texts) == bool(options.input):
        raise ConfigError(
            "give either texts or --input FILE", 'longtail predict RUN "a text", or longtail predict RUN --input FILE'
        )
    if options.k < 1:
        raise ConfigError(f"-k {options.k}, expected a whole number >= 1", "ask for at least one label")
    if options.format == "npz" and options.output is None:
        raise ConfigError("--format npz needs --output FILE", "npz is a binary format; it cannot go to the terminal")
    model = Predictor.open(options.model)
    documents = (
        read_documents(options.input, options.text)
        if options.input
        else Items([str(n) for n in range(len(options.texts))], {"title": options.texts})
    )
    context = model.context(len(documents), known_of(options, "known"), known_of(options, "anchor"))
    show = display()
    if len(documents) > 1000:
        with show.task("predicting", len(documents)) as task:
            top = model.rank(documents, options.k, context=context, on_block=task.advance)
    else:
        top = model.rank(documents, options.k, context=context)
    if options.format == "npz":
        from longtail.data.matrices import save_csr
        from longtail.metrics import to_csr

        save_csr(options.output, to_csr(top, len(model.bundle.labels)))
        return
    write = write_text if options.format == "text" else write_jsonl
    if options.output is None:
        write(sys.stdout, documents, model, top)
        return
    from longtail.persistence import written_aside

    with written_aside(options.output) as aside, aside.open("w", encoding="utf-8") as file:
        write(file, documents, model, top)


def known_of(options: argparse.Namespace, name: str) -> list[list[str]] | None:
    """What --known and --known-field (or those of anchors) say of the documents; None if they are not given."""
    ids, field = getattr(options, name), getattr(options, f"{name}_field")
    if ids and (options.input or len(options.texts) != 1):
        raise ConfigError(f"--{name} belongs to one text", f"give one text, or --input FILE with --{name}-field NAME")
    if field and not options.input:
        raise ConfigError(
            f"--{name}-field names a field of --input FILE, which is not given",
            f"use --{name} ID with a text on the command line",
        )
    if field:
        from longtail.data.tables import read_lists

        return read_lists(options.input, field, f"--{name}-field")
    return [ids] if ids else None


def write_text(file: IO[str], documents: Any, model: Predictor, top: Any) -> None:
    for row, found in enumerate(model.named(top)):
        print(documents.name(row), file=file)
        for p in found:
            print(f"  {p.score:8.4f}  {p.label}  {p.name}", file=file)
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


def pack(options: argparse.Namespace) -> None:
    from dataclasses import asdict

    from longtail.packing import pack as run_packing

    data = read_data(options) if options.data else None
    report = run_packing(
        options.model, options.out, options.dtype, features=options.features, index=options.index, data=data
    )
    print(report.render())
    if options.json:
        write_json_file(options.json, asdict(report))


def export(options: argparse.Namespace) -> None:
    from longtail.packing import export as run_export
    from longtail.predictor import Predictor

    run_export(Predictor.open(options.model), options.out)
    print(f"wrote {options.out}")


def compare(options: argparse.Namespace) -> None:
    from longtail.compare import compare as run_comparison
    from longtail.compare import render, render_missed

    if options.resamples < 1:
        raise ConfigError(f"--resamples {options.resamples}, expected a whole number >= 1", "1000 is usual")
    data = read_data(options)
    result = run_comparison(
        options.a, options.b, data, resamples=options.resamples, seed=options.seed, display=display()
    )
    print(header(result) + "\n" + render(result))
    if options.missed:
        print(render_missed(result))
    if options.examples:
        from longtail.diagnosis import side_by_side
        from longtail.predictor import Predictor

        a, b, test = Predictor.open(options.a), Predictor.open(options.b), data.need_test()
        print(side_by_side(a, b, test.documents, test.targets, data.labels, options.examples))
    if options.json:
        write_json_file(options.json, result)


def recipes(_: argparse.Namespace) -> None:
    from longtail.recipes import DEFAULT, all_recipes, from_packages

    for name, entry in all_recipes().items():
        print(f"{name:<10} {entry.summary}{' (default)' if name == DEFAULT else ''}")
    for note in from_packages()[1]:
        print(f"note: {note}")


def config(options: argparse.Namespace) -> None:
    from longtail.config import describe
    from longtail.recipes import recipe_class

    print(describe(recipe_class(options.recipe).CONFIG()), end="")


def demo(options: argparse.Namespace) -> None:
    from longtail.demo import run_demo

    run_demo(options.out, display(), restart=options.restart)


# ---- data ----


def data_sample(options: argparse.Namespace) -> None:
    from longtail.data.read import write_sample

    write_sample(options.out)
    print(f"wrote {options.out}\ntrain on it: longtail train {options.out} --out runs/first")


def data_stats(options: argparse.Namespace) -> None:
    from longtail.data.inspect import render, statistics

    found = statistics(read_data(options))
    print(render(found))
    if options.json:
        write_json_file(options.json, found)


def data_check(options: argparse.Namespace) -> None:
    from longtail.data.inspect import check
    from longtail.errors import DataError

    data = read_data(options)
    findings = check(data)
    for what, count in data.repairs.items():
        print(f"repaired  {count} {what}")
    for finding in findings:
        print(f"{finding.level:<9} {finding.message}{finding.hint and '  -> ' + finding.hint}")
    errors = [f for f in findings if f.level == "error"]
    if errors:
        raise DataError(f"{len(errors)} errors, the first: {errors[0].message}", errors[0].hint, file=options.data)
    print(f"{data.name}: {len(data.train):,} training documents, {len(data.labels):,} labels: usable")


def data_convert(options: argparse.Namespace) -> None:
    from longtail.data.read import write

    data = read_data(options)
    if options.vocabulary:
        from longtail.data.skos import attach_vocabulary, read_skos

        data = attach_vocabulary(data, *read_skos(options.vocabulary, options.language))
    write(data, options.out, options.format)
    for what, count in data.repairs.items():
        print(f"note: {count} {what}", file=sys.stderr)
    print(f"wrote {options.out}")


def data_warm_start(options: argparse.Namespace) -> None:
    from longtail.data.lines import new_folder
    from longtail.data.protocols import warm_start
    from longtail.data.read import write

    made = warm_start(read_data(options), options.seed)
    with new_folder(options.out) as aside:
        for name, dataset in (("warm", made.warm), ("cold", made.cold)):
            write(dataset, aside / name, "lf" if dataset.train.documents.vectors is None else "npz")
    print(
        f"wrote {options.out}: {len(made.cold.need_test()):,} test documents with two or more labels, half of them "
        "known"
    )
    print(f"train and evaluate on {options.out}/warm; the control trains on {options.out}/cold (docs/data-formats.md)")


def data_zero_shot(options: argparse.Namespace) -> None:
    from longtail.data.lines import new_folder
    from longtail.data.protocols import zero_shot
    from longtail.data.read import write

    made = zero_shot(read_data(options), options.seed, options.share, transductive_labels=options.transductive_labels)
    with new_folder(options.out) as aside:
        for name, dataset in (("train", made.train), ("unseen", made.unseen), ("generalised", made.generalised)):
            write(dataset, aside / name, "lf" if dataset.train.documents.vectors is None else "npz")
    print(
        f"wrote {options.out}: {len(made.held_out):,} labels held out, {len(made.unseen.need_test()):,} test "
        "documents have one of them"
    )
    print(
        f"train on {options.out}/train; longtail evaluate RUN {options.out}/unseen --labels-by-text ranks held-out "
        "labels alone, generalised all labels"
    )


def data_synthetic(options: argparse.Namespace) -> None:
    from longtail.config import from_text
    from longtail.data.read import write
    from longtail.data.synthetic import SyntheticConfig, synthesise

    write(
        synthesise(from_text(SyntheticConfig.preset(options.size), options.set), options.seed).dataset,
        options.out,
        "lf",
    )
    print(f"wrote {options.out}")


def write_json_file(path: Path, value: Any) -> None:
    from longtail.persistence import write_json

    write_json(path, value)
