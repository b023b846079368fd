"""Commands that make a model: train, calibrate, tune, demo; and around it: recipes, config, completion, warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from longtail.cli.base import (
    BYTES,
    COMPLETE,
    FINITE,
    SEED,
    DataSource,
    Talk,
    argument,
    command,
    data_source,
    json_option,
    model_argument,
    open_model,
    option,
    optional_data_source,
    output_path,
    path,
    refuse_overwriting,
    talk,
    write_json_file,
)
from longtail.errors import ConfigError

if TYPE_CHECKING:
    from longtail.choosing import Effort


def recipe_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """For the Tab key."""
    from click.shell_completion import CompletionItem

    from longtail.recipes import all_recipes

    named = ((name, entry) for name, entry in all_recipes().items() if name.startswith(incomplete))
    return [CompletionItem(name, help=entry.summary) for name, entry in named]


@command(
    "train",
    "longtail train DATA --out runs/first",
    "longtail train shop.csv --text title:2,description --labels tags --out runs/shop",
    "longtail train DATA --recipe astec --set train.epochs=10 --out runs/astec",
)
@data_source
@option("--out", required=True, type=output_path(), metavar="RUN", help="run folder; RUN/bundle will be the model")
@option(
    "--recipe",
    shell_complete=recipe_names,
    default="",
    metavar="NAME",
    help="which method ('longtail recipes' lists them), or module:Class",
)
@option("--preset", default="", metavar="NAME", help="settings of the recipe's paper for the data set NAME")
@option("--config", type=path(), metavar="F.toml", help="settings that differ from the defaults")
@option("--set", "assignments", multiple=True, metavar="a.b=c", help="one setting; may be repeated")
@option("--device", default="auto", type=click.Choice(["auto", "cpu", "cuda"]), help="where it is trained")
@option(
    "--devices",
    type=click.IntRange(min=1),
    default=1,
    metavar="G",
    help="processes that train together, each on a GPU or some cores of its own, with a part of the labels (recipe "
    "direct); over several machines: torchrun -m longtail train ...",
)
@option(
    "--cluster",
    metavar="ADDRESS",
    help="run these processes on a Ray cluster ('local': one of this machine); DATA and RUN lie where all of them see "
    "them",
)
@option(
    "--memory",
    type=BYTES,
    metavar="SIZE",
    help="what documents may take, e.g. 4GB: data for which that is too little is read in parts, packed to RUN and "
    "trained on from there (direct); vectors of words and labels come on top",
)
@option("--seed", type=SEED, default=0, help="another seed is another model")
@option(
    "--from",
    "start",
    type=path(),
    metavar="RUN",
    help="go on from this model: its labels and words keep what they learnt, those of DATA join them (direct)",
)
@option("--restart", is_flag=True, help="throw away what lies in RUN and begin anew")
@option(
    "--holdout",
    type=FINITE,
    default=0.0,
    metavar="SHARE",
    help="train without such a share of the documents, e.g. 0.1, and measure on them at the end",
)
@option("--group", metavar="COLUMN", help="documents with one value of COLUMN are held out together")
@option(
    "--effort",
    type=click.Choice(["quick", "normal", "thorough"]),
    default="quick",
    help="how long to look for settings first, on a slice of the documents: quick trains with those given, normal "
    "tries two changes, thorough up to 23; what was chosen is said, and is in RUN/config.toml",
)
@option(
    "--no-examples",
    is_flag=True,
    help="keep no texts of training documents in the model (else up to three per label, cut to 200 characters); "
    "words that direct remembers of them: --set memory.weight=0",
)
@talk
def train(
    talk: Talk,
    source: DataSource,
    out: Path,
    recipe: str,
    preset: str,
    config: Path | None,
    assignments: tuple[str, ...],
    device: str,
    devices: int,
    cluster: str | None,
    memory: int | None,
    seed: int,
    start: Path | None,
    restart: bool,
    holdout: float,
    group: str | None,
    effort: Effort,
    no_examples: bool,
) -> None:
    """Train a model on the training split of DATA; the same command again resumes."""
    from longtail import pipeline
    from longtail.evaluation import render_held_out
    from longtail.recipes import DEFAULT, make_recipe
    from longtail.training.launch import launch
    from longtail.training.processes import launched

    talk.resumes = True
    made = make_recipe(recipe or DEFAULT, preset_name=preset, config=config, assignments=assignments)
    rank, processes = launched()
    if cluster is not None and processes == 1:
        from longtail.cli import main
        from longtail.cluster.ray_train import train_on

        pipeline.check_processes(made, devices)
        train_on(cluster, main, _without(talk.words, "--cluster"), devices, gpus=device == "cuda")
        print(f"bundle: {out / 'bundle'}")
        return
    if devices > 1 and processes == 1:
        pipeline.check_processes(made, devices, effort)
        raise click.exceptions.Exit(launch(talk.words, devices))
    columns = None if start is None else open_model(start).columns
    large = None if memory is None else source.in_parts(memory, group)
    model = pipeline.train(
        large or source.read(test=False, columns=columns, group=group),
        out,
        made,
        start=start,
        holdout=holdout,
        group=group,
        seed=seed,
        device=device,
        restart=restart,
        display=talk.display(),
        examples=not no_examples,
        effort=effort,
    )
    if rank:
        return
    if model.metrics:
        print(render_held_out(model.metrics, made.NAME))
    print(f"bundle: {out / 'bundle'}")
    if model.bundle.featurizer.fields:
        print(f'ask it: longtail predict {out} "a text"')
    else:
        print(f"ask it: longtail predict {out} --input vectors.npz")
    if source.path.is_dir() and any(file.name.startswith(("tst", "test")) for file in source.path.iterdir()):
        print(f"measure it: longtail evaluate {out} {source.path}")


def _without(words: Sequence[str], option: str) -> list[str]:
    """A command without an option and its value."""
    given = list(words)
    if option in given:
        place = given.index(option)
        del given[place : place + 2]
    return [word for word in given if not word.startswith(f"{option}=")]


@command(
    "tune",
    "longtail tune DATA --budget 10m --out best.toml",
    "longtail train DATA --config best.toml --out runs/tuned",
)
@data_source
@option("--budget", default="10m", metavar="TIME", help="how long to search, e.g. 90s, 10m, 2h (default {default})")
@option(
    "--study",
    type=path(),
    default=Path("runs/tune"),
    metavar="DIR",
    help="where trials are kept; the same command goes on (default {default})",
)
@option("--out", type=output_path(), metavar="F.toml", help="also write the best settings, for train --config")
@option(
    "--recipe",
    shell_complete=recipe_names,
    default="",
    metavar="NAME",
    help="which method ('longtail recipes' lists them)",
)
@option("--config", type=path(), metavar="F.toml", help="settings to start from")
@option("--set", "assignments", multiple=True, metavar="a.b=c", help="one setting to start from; may be repeated")
@option("--metric", default="PSP@5", help="what is to be as large as possible (default {default})")
@option(
    "--share",
    type=FINITE,
    default=0.1,
    help="of the training documents that settings are judged on (default {default})",
)
@option("--group", metavar="COLUMN", help="documents with one value of COLUMN are held out together")
@option("--trials", type=int, default=0, metavar="N", help="at most so many (default: as many as fit into the budget)")
@option("--device", default="auto", type=click.Choice(["auto", "cpu", "cuda"]), help="where it is trained")
@option("--seed", type=SEED, default=0, help="chooses the slices and the trials")
@option("--restart", is_flag=True, help="forget earlier trials")
@talk
def tune(
    talk: Talk,
    source: DataSource,
    budget: str,
    study: Path,
    out: Path | None,
    recipe: str,
    config: Path | None,
    assignments: tuple[str, ...],
    metric: str,
    share: float,
    group: str | None,
    trials: int,
    device: str,
    seed: int,
    restart: bool,
) -> None:
    """Search settings of a recipe on a slice of the training documents; bad ones are stopped early.

    The first trial is the settings as they are, and the best is judged once more on a slice that no choice has seen.
    """
    from longtail import tuning
    from longtail.persistence import written_aside
    from longtail.recipes import DEFAULT, make_recipe

    talk.resumes = True
    data = source.read(test=False, group=group)
    for line in data.remarks():
        talk.note(line)
    found = tuning.tune(
        data,
        study,
        make_recipe(recipe or DEFAULT, config=config, assignments=assignments),
        budget_s=tuning.seconds_of(budget),
        trials=trials,
        metric=metric,
        share=share,
        group=group,
        seed=seed,
        device=device,
        restart=restart,
        display=talk.display(),
    )
    print(f"{found.render()}\n\n{found.toml()}")
    if out is not None:
        refuse_overwriting([("--out", out)], [])  # again: the study may just have made such a file
        with written_aside(out) as aside:
            aside.write_text(found.toml(), encoding="utf-8")
        print(f"wrote {out}")


@command("demo", "longtail demo", "longtail demo --out runs/demo --restart")
@option("--out", type=output_path(), default=Path("runs/demo"), metavar="RUN", help="run folder (default {default})")
@option("--restart", is_flag=True, help="throw away what lies in RUN and begin anew, e.g. after an update")
@talk
def demo(talk: Talk, out: Path, restart: bool) -> None:
    """Train on the embedded sample, show numbers beside baselines, and answer five questions."""
    from longtail.demo import run_demo

    talk.resumes = True
    run_demo(out, talk.display(), restart=restart)


@command("recipes")
def recipes() -> None:
    """List the recipes."""
    from longtail.recipes import DEFAULT, all_recipes, from_packages

    for name, entry in all_recipes().items():
        print(f"{name:<10} {entry.summary}{' (default)' if name == DEFAULT else ''}")
    for note in from_packages()[1]:
        print(f"note: {note}")


@command("config", "longtail config astec > astec.toml", "longtail config astec --preset LF-AmazonTitles-131K")
@argument("recipe", "one that 'longtail recipes' lists", shell_complete=recipe_names, metavar="RECIPE")
@option("--preset", default="", metavar="NAME", help="with the settings of its paper for the data set NAME")
@option("--presets", "listed", is_flag=True, help="only list the presets")
def config(recipe: str, preset: str, listed: bool) -> None:
    """Every setting of a recipe with its help and default, as TOML."""
    from longtail.config import describe
    from longtail.recipes import make_recipe, presets, recipe_class

    if listed:
        recipe_class(recipe)
        print("\n".join(presets(recipe)))
    else:
        print(describe(make_recipe(recipe, preset_name=preset).config), end="")


@command(
    "completion",
    'eval "$(longtail completion bash)"',
    "longtail completion fish > ~/.config/fish/completions/longtail.fish",
)
@argument("shell", "bash, zsh or fish", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes the Tab key complete commands and options in a shell."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    print(made(context.find_root().command, {}, "longtail", COMPLETE).source())


@command("warm-up", "longtail warm-up", "longtail warm-up --recipe astec")
@option(
    "--recipe",
    "recipes",
    multiple=True,
    shell_complete=recipe_names,
    metavar="NAME",
    help="also train so (default: the default recipe, where torch is installed); may be repeated",
)
@talk
def warm_up(talk: Talk, recipes: tuple[str, ...]) -> None:
    """Compile ahead what would be compiled when it is first used.

    For images of containers and for servers: the first prediction then answers at once.
    """
    from longtail.warming import warm_up as run_warm_up

    count = run_warm_up(recipes, talk.display())
    print(f"compiled {count} kernels; they are kept for this machine")


@command(
    "calibrate",
    "longtail train DATA --holdout 0.05 --out runs/first",
    "longtail calibrate runs/first DATA",
    "longtail calibrate runs/first DATA --on others.csv",
    "longtail calibrate runs/first --undo",
)
@model_argument
@optional_data_source
@option("--on", type=path(), metavar="FILE", help="calibrate on the documents of FILE (default: what --holdout kept)")
@option(
    "--method",
    default="auto",
    type=click.Choice(["auto", "isotonic", "temperature"]),
    help="how scores become probabilities (default {default}: what is likelier)",
)
@option(
    "--missing",
    default="none",
    type=click.Choice(["none", "propensity"]),
    help="labels that the truth may lack: none (a probability is that of being listed), or weighed by propensity "
    "(default {default})",
)
@option("--undo", is_flag=True, help="give scores as before")
@json_option
@talk
def calibrate(
    talk: Talk,
    model: Path,
    source: DataSource | None,
    on: Path | None,
    method: Literal["auto", "isotonic", "temperature"],
    missing: Literal["none", "propensity"],
    undo: bool,
    json: Path | None,
) -> None:
    """Make a model give probabilities, on documents of DATA that training did not see; the ranking stays.

    DATA is what RUN was trained on.
    """
    from longtail import calibrating

    if undo:
        there = calibrating.undo(model)
        print(f"{model}: " + ("gives scores as before" if there else "is not calibrated"))
        return
    if source is None:
        raise ConfigError("which DATA was the model trained on?", "longtail calibrate RUN DATA, or RUN --undo")
    columns = open_model(model).columns
    if on is None:
        data = source.read(test=False, columns=columns)
    else:
        data = calibrating.read_on(source.path, on, columns=columns, **source.options)
    for remark in data.remarks():
        talk.note(remark)
    found = calibrating.calibrate(
        model, data, on_test=on is not None, method=method, missing=missing, display=talk.display()
    )
    print(calibrating.render(found))
    write_json_file(json, found)


COMMANDS = [train, calibrate, tune, demo, recipes, config, warm_up, completion]
