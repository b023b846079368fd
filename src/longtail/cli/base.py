"""What the commands share: help in sections with examples, how much is said, and where data comes from."""

from __future__ import annotations

import functools
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

from longtail.errors import ConfigError

if TYPE_CHECKING:
    from longtail.data.columns import Columns
    from longtail.data.dataset import Dataset
    from longtail.data.large import LargeData
    from longtail.predictor import Predictor
    from longtail.training.progress import Display

Function = TypeVar("Function", bound=Callable[..., Any])
COMPLETE = "_LONGTAIL_COMPLETE"  # what a shell sets when the Tab key is pressed
EVERYWHERE = "On every command"
HELP_NAMES = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass
class Talk:
    """How much is said on standard error. resumes: whether an interrupted command, given again, goes on.

    words: the whole command, without the name of the program.
    """

    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    resumes: bool = False
    words: Sequence[str] = ()

    def display(self) -> Display:
        from longtail.training.progress import WarningDisplay, display_for

        return WarningDisplay(sys.stderr) if self.quiet else display_for(sys.stderr)

    def note(self, line: str) -> None:
        """Warnings are said even when nothing else is."""
        if not self.quiet or line.startswith("warning"):
            print(line, file=sys.stderr)

    def hear(self, name: str) -> None:
        """One of the three was given, before or after the command's name."""
        import logging

        setattr(self, name, True)
        if name == "verbose":
            logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s", force=True)
        if name == "quiet":
            logging.getLogger("longtail").setLevel(logging.ERROR)


def _talk_options() -> list[click.Parameter]:
    def heard(context: click.Context, option: click.Parameter, value: bool) -> None:
        if value and option.name:
            context.ensure_object(Talk).hear(option.name)

    said = {
        ("-q", "--quiet"): "say nothing but results, warnings and errors",
        ("-v", "--verbose"): "say more: what is logged in a run",
        ("--debug",): "show tracebacks",
    }
    return [
        SectionOption(names, is_flag=True, expose_value=False, callback=heard, help=about, section=EVERYWHERE)
        for names, about in said.items()
    ]


class SectionOption(click.Option):
    """An option with the heading of help that it stands under."""

    def __init__(self, *arguments: Any, section: str = "Options", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.section = section


def _first_to_last(title: str) -> int:
    return {"Arguments": 0, "Options": 1, EVERYWHERE: 3}.get(title, 2)


class DescribedArgument(click.Argument):
    """An argument that help explains."""

    section = "Arguments"

    def __init__(self, *arguments: Any, help: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.about = help

    def get_help_record(self, context: click.Context) -> tuple[str, str]:
        return self.human_readable_name, self.about


class _Helpful(click.Command):
    """Options in help stand under the headings they name; examples come last."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.examples = examples
        self.params += _talk_options()

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(context):
            shown = option.get_help_record(context)
            if shown is not None:
                sections.setdefault(getattr(option, "section", EVERYWHERE), []).append(shown)
        for title in sorted(sections, key=_first_to_last):
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"  {line}\n")


class Command(_Helpful):
    """One thing to do. What is given is looked at as a whole before anything is done."""

    def invoke(self, context: click.Context) -> Any:
        given = [(parameter, value) for parameter in self.params for value in _each(context, parameter)]
        for parameter, value in given:
            if isinstance(value, str) and not isinstance(parameter.type, click.Path | AnyText):
                _refuse_halves(parameter, value)
        paths = [(one, value) for one, value in given if isinstance(one.type, NamedPath) and value != "-"]
        refuse_overwriting(
            [(_called(one), value) for one, value in paths if isinstance(one.type, OutputPath)],
            [(_called(one), Path(value)) for one, value in paths if not isinstance(one.type, OutputPath)],
        )
        return super().invoke(context)


def _each(context: click.Context, parameter: click.Parameter) -> Sequence[Any]:
    value = context.params.get(parameter.name or "")
    return value if isinstance(value, tuple) else [] if value is None else [value]


def _called(parameter: click.Parameter) -> str:
    return parameter.human_readable_name if isinstance(parameter, click.Argument) else max(parameter.opts, key=len)


def _refuse_halves(parameter: click.Parameter, value: str) -> None:
    """Bytes of the command line that are not UTF-8 come as halves of characters, which nothing can be written with."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{_called(parameter)} {value!a}: bytes that are no UTF-8", "give text in UTF-8") from None


def refuse_overwriting(written: Sequence[tuple[str, Path]], read: Sequence[tuple[str, Path]]) -> None:
    """Nothing is written over what is read, over or into something else that is written, or over a file of a run or a
    bundle. Each with what it is called on the command line.
    """
    from longtail.writing import refuse_sealed

    before = list(read)
    for name, path in written:
        refuse_sealed(path)
        if other := next((other for other, one in before if _are_one(path, one)), None):
            raise ConfigError(f"{path} is both {other} and {name}", "name another file to write to")
        if path.is_file():
            _refuse_listed(path)
        before.append((name, path))
    for name, path in written:
        if other := next((other for other, one in written if _lies_in(path, one)), None):
            raise ConfigError(f"{path}: {name} lies in {other}", "name a place outside of it")


def _lies_in(path: Path, other: Path) -> bool:
    return Path(os.path.realpath(other)) in Path(os.path.realpath(path)).parents


def _are_one(path: Path, other: Path) -> bool:
    try:
        if path.exists() and other.exists():
            return path.samefile(other) and (path.is_file() or path.is_dir())  # a device may be both
    except OSError:
        return False
    return os.path.realpath(path) == os.path.realpath(other)


def _refuse_listed(path: Path) -> None:
    from longtail.training.file_list import FileList, is_listed

    real = Path(os.path.realpath(path))
    for folder in filter(is_listed, real.parents):
        if FileList(folder).names(real):
            raise ConfigError(f"{path}: is a file of the run {folder}", "name another file to write to")


class Group(_Helpful, click.Group):
    """Commands under headings."""

    def __init__(self, *arguments: Any, sections: Mapping[str, Sequence[click.Command]], **more: Any) -> None:
        super().__init__(*arguments, context_settings=HELP_NAMES, no_args_is_help=False, **more)
        self.sections = sections
        for command in (command for commands in sections.values() for command in commands):
            self.add_command(command)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in self.sections.items():
            with formatter.section(title):
                rows = [(c.name or "", c.get_short_help_str(200).removesuffix(".")) for c in commands]
                formatter.write_dl(rows)
        super().format_options(context, formatter)


class Program(Group):
    """All commands, under headings; the modules that hold them are imported one by one until one has what was asked
    for, and all of them for help.
    """

    def __init__(self, *arguments: Any, modules: Mapping[str, Sequence[str]], asked_most: str, **more: Any) -> None:
        """modules: below `longtail.cli`, by heading; each has a list `COMMANDS`. asked_most: looked into first."""
        super().__init__(*arguments, sections={title: [] for title in modules}, **more)
        self.modules = modules
        self._in_turn = sorted((name for names in modules.values() for name in names), key=asked_most.__ne__)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        while name not in self.commands and self._in_turn:
            for command in commands_of(self._in_turn.pop(0)):
                self.add_command(command)
        return super().get_command(context, name)

    def list_commands(self, context: click.Context) -> list[str]:
        self.get_command(context, "")
        return super().list_commands(context)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        self.sections = {
            title: [command for name in names for command in commands_of(name)] for title, names in self.modules.items()
        }
        super().format_options(context, formatter)


def commands_of(module: str) -> Sequence[click.Command]:
    """Of a module below `longtail.cli`."""
    found: Sequence[click.Command] = import_module(f"longtail.cli.{module}").COMMANDS
    return found


def command(name: str, *examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a command of a function; its docstring is the help."""
    return click.command(name, cls=Command, examples=examples, context_settings=HELP_NAMES)


def option(*names: str, help: str, section: str = "Options", **more: Any) -> Callable[[Function], Function]:
    """help: ``{default}`` in it stands for the default, which is then written once."""
    text = help.replace("{default}", str(more.get("default")))
    return click.option(*names, cls=SectionOption, section=section, help=text, **more)


def argument(name: str, help: str, **more: Any) -> Callable[[Function], Function]:
    return click.argument(name, cls=DescribedArgument, help=help, **more)


class NamedPath(click.Path):
    """A path that is not empty: an empty one is a variable that a script did not set, not the current folder."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty name, expected a path", parameter, context)
        return super().convert(value, parameter, context)


class OutputPath(NamedPath):
    """Where a command writes. See `refuse_overwriting`."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "-":  # else a file of this name, where standard output was meant
            self.fail(
                "'-', expected a path; standard output is /dev/stdout, a file of that name ./-", parameter, context
            )
        return super().convert(value, parameter, context)


class AnyText(click.types.StringParamType):
    """Text that may hold bytes which are no UTF-8: the command mends it, or it names a file."""


def path() -> click.Path:
    """A path; what is wrong with it is said by whoever opens it, with a hint."""
    return NamedPath(path_type=Path)


def output_path() -> click.Path:
    """A path of something that the command makes."""
    return OutputPath(path_type=Path)


class FiniteNumber(click.types.FloatParamType):
    """A number that is neither infinite nor nothing."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        number = super().convert(value, parameter, context)
        if not math.isfinite(number):
            self.fail(f"{value}, expected a finite number", parameter, context)
        return number


class ByteCount(click.types.StringParamType):
    """A number of bytes: 500MB, 4GB, 1.5e9."""

    name = "size"
    _UNITS: ClassVar[Mapping[str, float]] = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?b)?\s*", str(value), re.IGNORECASE)
        try:
            count = int(float(found[1]) * self._UNITS[(found[2] or "").upper()]) if found else 0
        except (ValueError, OverflowError):
            count = 0
        if count < 1:
            self.fail(f"{value!r}, expected a size such as 500MB or 4GB", parameter, context)
        return count


BYTES = ByteCount()
SEED = click.IntRange(min=0)
FINITE = FiniteNumber()


def model_argument(function: Function) -> Function:
    return argument("model", "a run or a bundle", type=path(), metavar="RUN")(function)


def open_model(folder: Path, recipe: str | None = None) -> Predictor:
    """recipe: "module:Class" of one that no installed package brings; a bundle never names code to be run."""
    from longtail.predictor import Predictor
    from longtail.recipes import recipe_class

    if recipe:
        recipe_class(recipe)
    return Predictor.open(folder)


json_option = option("--json", type=output_path(), metavar="FILE", help="also write all numbers, in percent, to FILE")
talk = click.make_pass_decorator(Talk, ensure=True)


# ---- data ----

VOCABULARY = "Vocabulary"
TABLES = "Tables (CSV, TSV, JSON lines, Parquet)"
_DATA_OPTIONS = [
    option("--text", metavar="NAMES", section=TABLES, help="text column(s), e.g. title:2,content (:2 is a weight)"),
    option("--labels", metavar="NAME", section=TABLES, help="labels column"),
    option("--id", "--uid", "id", metavar="NAME", section=TABLES, help="id column"),
    option(
        "--separator",
        metavar="S",
        section=TABLES,
        help="what separates labels inside a cell; '' for one label per cell",
    ),
    option("--test", "test_file", type=path(), metavar="FILE", section=TABLES, help="test documents"),
    option("--label-texts", type=path(), metavar="FILE", section=TABLES, help="a table of label ids and their texts"),
    option(
        "--vocabulary",
        type=path(),
        metavar="FILE",
        section=VOCABULARY,
        help="SKOS (Turtle, RDF/XML, N-Triples) or Annif's TSV or CSV: all its concepts are labels, with its names",
    ),
    option("--language", metavar="CODE", section=VOCABULARY, help="of the vocabulary's names (default en)"),
    option(
        "--unknown",
        type=click.Choice(["error", "drop", "keep"]),
        section=VOCABULARY,
        help="what becomes of labels that the vocabulary lacks (default error)",
    ),
    option(
        "--vocabulary-ids",
        type=click.Choice(["uri", "local", "notation"]),
        section=VOCABULARY,
        help="what labels are called by (default uri)",
    ),
]
_TABLE_NAMES = ("text", "labels", "id", "separator", "test_file", "label_texts")
_DATA_NAMES = (*_TABLE_NAMES, "vocabulary", "language", "unknown", "vocabulary_ids")


@dataclass(frozen=True)
class DataSource:
    """Where a data set is read from, and how."""

    path: Path
    options: Mapping[str, Any]

    def read(self, *, test: bool = True, columns: Columns | None = None, group: str | None = None) -> Dataset:
        """columns: what the model was trained on that is asked. What is doubtful is said on standard error."""
        from longtail.data.read import read

        return read(self.path, test=test, columns=columns, **self._given(group))

    def in_parts(self, memory: int, group: str | None = None) -> LargeData | None:
        """To be read in parts, where `memory` bytes are too few for all documents; else None."""
        from longtail.data.large import large_data

        return large_data(self.path, memory, **self._given(group))

    def _given(self, group: str | None) -> dict[str, Any]:
        alone = sorted({"language", "unknown", "vocabulary_ids"} & self.options.keys())
        if alone and "vocabulary" not in self.options:
            option = f"--{alone[0].replace('_', '-')}"
            raise ConfigError(f"{option} without --vocabulary", "name the vocabulary: --vocabulary FILE")
        return {**self.options, **({} if group is None else {"group": group})}


def data_source(function: Function) -> Function:
    """Gives a command the argument DATA with the options of tables; the function gets a `DataSource` as `source`."""
    return argument("data", "a data folder or file (docs/data-formats.md)", type=path(), metavar="DATA")(
        _with_source(function)
    )


def optional_data_source(function: Function) -> Function:
    """The same where DATA may be left out; `source` is then None."""
    about = "a data folder or file (docs/data-formats.md)"
    return argument("data", about, type=path(), metavar="[DATA]", required=False)(_with_source(function))


def data_option(function: Function) -> Function:
    """The same as an option; `source` is None where it is not given."""
    return option("--data", type=path(), metavar="DATA", help="a data folder or file")(_with_source(function))


def _with_source(function: Any) -> Any:
    @functools.wraps(function)
    def wrapped(*arguments: Any, data: Path | None, **more: Any) -> Any:
        given = {name: more.pop(name) for name in _DATA_NAMES}
        named = {name: value for name, value in given.items() if value is not None}
        return function(*arguments, source=None if data is None else DataSource(data, named), **more)

    for add in reversed(_DATA_OPTIONS):
        wrapped = add(wrapped)
    return wrapped


def write_json_file(path: Path | None, value: Any) -> None:
    """Where a file was asked for."""
    if path is not None:
        from longtail.persistence import write_json

        write_json(path, value)


def header(result: Mapping[str, Any]) -> str:
    """What a table of metrics belongs to."""
    p = result["propensity"]
    linked = "; test documents linked to each other (transductive)" if result.get("transductive") else ""
    threshold = result.get("threshold")
    over = "" if threshold is None else f"; MicroF1 and MacroF1 of labels that score at least {threshold:.4g}"
    return (
        f"{result['data']}: {result['n_test']:,} test documents, {result['n_labels']:,} labels; in percent; "
        f"PSP with A={p['A']} B={p['B']} ({p['family']}){over}{linked}"
    )
