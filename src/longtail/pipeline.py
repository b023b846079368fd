"""Read this first: how data becomes a model, on one page.

    files --read--> Dataset --prepare--> TrainingSet --the recipe's stages--> Ranker --bundle--> Predictor

`train` is the path; `stages` is the four modules of DeepXML, in order. Everything else is parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail import __version__
from longtail.bundle import MANIFEST, Bundle, LabelTable, content_digest, digest_of, open_bundle, write_bundle
from longtail.choosing import Effort, choose
from longtail.config import describe, paths_in, to_tables
from longtail.data.dataset import Dataset, Items
from longtail.data.identity import training_digest
from longtail.data.large import LargeData, large_data
from longtail.data.read import read
from longtail.errors import ConfigError, RunError
from longtail.evaluation import HeldOut, held_out_metrics
from longtail.graph.company import Company
from longtail.persistence import StringTable, written_aside
from longtail.predictor import Predictor, TemporaryFolder
from longtail.recipes import DEFAULT, make_recipe
from longtail.recipes.base import Recipe
from longtail.training.parent import ParentModel
from longtail.training.prepare import TrainingSet, prepare
from longtail.training.prepare_large import opened, pack, sampled_texts
from longtail.training.processes import Processes, launched
from longtail.training.progress import Display, SilentDisplay, display_of_library
from longtail.training.run import Run, peak_memory_so_far
from longtail.types import I64, Batch, Frame, Ranker
from longtail.writing import is_litter


def train(
    data: Dataset | LargeData | str | Path | Frame,
    out: str | Path | None = None,
    recipe: str | Recipe = DEFAULT,
    *,
    text: str | Sequence[str] | Mapping[str, float] | None = None,
    labels: str | Frame | None = None,
    id: str | None = None,
    separator: str | None = None,
    label_texts: Mapping[str, str] | str | Path | Frame | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    restart: bool = False,
    display: Display | None = None,
    progress: bool | None = None,
    start: str | Path | None = None,
    holdout: float = 0.0,
    group: str | None = None,
    examples: bool = True,
    effort: Effort = "quick",
    memory: int | None = None,
) -> Predictor:
    """Train on the training split of `data` into the run folder `out` and open the result.

    The same call again resumes what was interrupted, or opens what is finished.
    data: a `Dataset`, files, or what Python holds: a frame of pandas, polars or Arrow, a list of dicts, or texts alone
        (a series, an array, a list).
    out: None is a temporary folder, which is removed when the model that is given back is no longer used, at the
        latest when Python ends; `Predictor.save` keeps the model.
    text, labels, id, separator: columns of a table (`longtail.data.find_columns.Asked`); None is found out. text: a
        name or several, or a dict of names and what an occurrence counts, ``{"title": 2, "content": 1}``. labels: a
        column, or the labels themselves: a list or a string for every text. label_texts: a file, a frame, or a dict
        of a text per label.
    settings: nested values as in TOML, e.g. ``{"train": {"epochs": 10}}``.
    start: a run or bundle to go on from: its labels keep their rows, its words their vectors, new ones join them, and
        the documents that it was trained on are rehearsed where the run still has them (`longtail.training.parent`).
        It takes a fraction of the time. For `direct`; others refuse.
    holdout: share of the training documents that are kept apart, chosen by the seed. The model is trained without them
        and measured on them: `Predictor.metrics`. group: all documents of one group are on one side; a column of a
        table, or a text field.
    examples: keep up to three training documents per label in the model, cut to 200 characters, for people who look at
        it; False leaves all texts of documents out (words that `direct` remembers: setting `memory.weight`).
    effort: how long to look for settings of the recipe first, on a slice of the documents (`choosing.TRIALS`); what was
        chosen is in RUN/config.toml, why in RUN/choices.
    memory: bytes that documents may take. Data of files for which that is too little is read in parts and trained on
        from the disk (`longtail.data.large`, docs/scale.md); vectors of words and labels come on top. None: all
        documents are in memory.
    progress: whether it is shown; by default where standard error is a terminal, or in a notebook. display: how.

    Where a launcher (torchrun) started several processes, they train one model together (docs/scale.md).
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device '{device}', expected auto, cpu or cuda", "use --device auto")
    if seed < 0:
        raise ConfigError(f"seed {seed}, expected a whole number >= 0", "any other seed is another model")
    made, display = recipe_of(recipe, settings), display or display_of_library(progress)
    made.check_kinds()
    check_processes(made, launched()[1], effort)
    if group is not None and not holdout:
        raise ConfigError(f"group '{group}' without holdout", "say how much to hold out: --holdout 0.1")
    parent = None if start is None else parent_of(made, start)
    asked = {"text": text, "labels": labels, "id": id, "separator": separator, "label_texts": label_texts}
    read_so = {name: value for name, value in asked.items() if value is not None}
    dataset = _dataset(data, read_so, group, memory)
    if isinstance(dataset, LargeData):
        check_large(made, holdout=holdout, effort=effort, start=start)
    home = TemporaryFolder() if out is None else None
    out = home.path / "run" if home is not None else Path(out or "")
    for remark in dataset.remarks():
        display.say(remark)
    held = None
    if holdout and isinstance(dataset, Dataset):
        held = _held_out(dataset, HeldOut(holdout, seed, group), parent)
    about = _about(made, dataset, seed, parent)
    identity = {**about, **_what_else_counts(made, dataset, held, examples=examples, effort=effort)}
    processes = Processes.joined(device)
    display = display if processes.first else SilentDisplay()
    with Run.open(
        out, identity, seed=seed, device=device, restart=restart, display=display, processes=processes
    ) as run:
        bundle = run.folder / "bundle"
        if processes.agreed((bundle / MANIFEST).exists()):
            display.say(f"{run.folder}: this run is finished; --restart begins anew")
            return Predictor.open(bundle)
        if processes.first and bundle.is_dir() and not all(is_litter(path.name) for path in bundle.iterdir()):
            raise RunError(
                f"{bundle / MANIFEST}: the file is missing",
                "put it back; or move the folder of the bundle away, and give the same command again",
            )
        if isinstance(dataset, Dataset):
            _say_counts(dataset.repairs, display)
            if held is not None:
                count = f"{len(held.ids):,} of {len(dataset.train):,} documents"
                display.say(f"{count} held out; the model is trained without them")
                dataset = dataset.with_test_rows(held.rows)
            made = choose(made, dataset, run, effort=effort, device=device, train=train)
        made.parent, made.device = parent, run.device
        if processes.first:
            with written_aside(run.folder / "config.toml") as aside:
                aside.write_text(describe(made.config), encoding="utf-8")
        if isinstance(dataset, LargeData):
            training_set, texts = prepared_large(made, dataset, run)
        else:
            training_set, texts = prepared(made, dataset, run), dataset.train.documents
            if dataset.columns is None and not made.config.features.fields:
                _say_unread(texts, training_set.featurizer.fields, display)
        _say_counts(training_set.dropped, display)
        ranker = learners(made, training_set, run)
        labels = LabelTable.of(training_set.labels, training_set.label_counts())
        if held is not None and processes.first and isinstance(dataset, Dataset):
            model = Predictor(Bundle(run.folder, about, labels, training_set.featurizer, ranker))
            about["metrics"] = held_out_metrics(model, dataset, held.how, display)
        if processes.first:
            write_bundle(
                run.writes("bundle", holds="bundle"),
                about=about,
                config=describe(made.config),
                labels=labels,
                featurizer=training_set.featurizer,
                ranker=run.folder_of(ranker),
                held_out=None if held is None else held.ids,
                company=_company(training_set, texts if examples and parent is None else None),
            )
        run.log("finished", peak_memory=peak_memory_so_far())
        processes.wait()
    # Checksums of files that were written a moment ago.
    return Predictor(open_bundle(bundle, verify=False), home)


def parent_of(recipe: Recipe, path: str | Path) -> ParentModel:
    """The model to go on from, which must be one of the recipe's."""
    if not recipe.CONTINUES:
        raise ConfigError(
            f"the recipe '{recipe.NAME}' cannot go on from a model", "train it anew, or use --recipe direct"
        )
    opened = Predictor.open(path).bundle
    if opened.manifest.get("recipe") != recipe.NAME:
        raise ConfigError(
            f"{path}: a model of the recipe '{opened.manifest.get('recipe')}', to go on with '{recipe.NAME}'",
            "go on from a model of the same recipe",
        )
    if recipe.config.ensemble.learners > 1:
        raise ConfigError("ensemble.learners with a model to go on from", "go on with one model")
    return ParentModel.of(opened)


def label_words(data: TrainingSet) -> Batch | None:
    """Texts of labels as features; where they came without, their ids are what people read."""
    if data.label_texts is not None or not data.featurizer.fields:
        return data.label_texts
    return data.featurizer.batch_of_texts(list(data.labels.uids))


def prepared(recipe: Recipe, data: Dataset, run: Run) -> TrainingSet:
    """Stage 0: numbers from texts. Test documents stay behind: a `TrainingSet` has no place for them."""
    if (parent := recipe.parent) is not None:
        return run.stage("0_prepare", lambda: parent.training_set(data, recipe.config.features))
    return run.stage("0_prepare", lambda: prepare(data, recipe.config.features))


def prepared_large(recipe: Recipe, data: LargeData, run: Run) -> tuple[TrainingSet, Items]:
    """Stage 0 of data that is read in parts: all documents on the disk, and a sample of them with their texts."""

    def check(features: int, labels: int) -> None:
        # A vector of each with the two moments of Adam and a gradient: less than training will take.
        needed = 16 * recipe.encoder_width() * (features + labels)
        run.check_memory(needed, f"vectors of {features:,} features and {labels:,} labels")

    def write(aside: Path) -> None:
        reads = pack(data, recipe.config.features, aside, check, run.note)
        _say_counts(data.repairs, run.display)
        if data.columns is None and not recipe.config.features.fields:
            _say_unread(next(data.parts()).documents, reads, run.display)

    folder = run.stage_of_files("0_prepare", write)
    return opened(folder), sampled_texts(folder)


def check_large(recipe: Recipe, *, holdout: float, effort: Effort, start: str | Path | None) -> None:
    """Refuse what needs all documents in memory."""
    wrong = {
        f"the recipe '{recipe.NAME}' needs all documents in memory": not recipe.TRAINS_FROM_DISK,
        "documents are held out of data that is in memory (--holdout)": bool(holdout),
        f"settings are tried on data that is in memory (--effort {effort})": effort != "quick",
        "a model goes on with data that is in memory (--from)": start is not None,
    }
    for reason, holds in wrong.items():
        if holds:
            raise ConfigError(
                f"the data is larger than --memory, so it is read in parts; {reason}",
                "give more memory; or leave that out, and use the recipe direct",
            )


def learners(recipe: Recipe, data: TrainingSet, run: Run) -> Ranker:
    """One model, or several with seeds of their own whose scores are averaged (`ensemble.learners`), each from scratch
    or all from one stage I (`ensemble.shared`).
    """
    run.check_memory(recipe.memory(data), f"training '{recipe.NAME}'")
    count: int = recipe.config.ensemble.learners if hasattr(recipe.config, "ensemble") else 1
    if count == 1:
        return stages(recipe, data, run)
    first: Any = None
    if recipe.config.ensemble.shared:
        if "surrogate" not in recipe.defined_stages(data):
            raise ConfigError(f"ensemble.shared: '{recipe.NAME}' has no stage I to share", "use ensemble.shared=false")
        first = run.stage("1_surrogate", lambda: recipe.surrogate(data, run))
    members = tuple(stages(recipe, data, run.member(number), first) for number in range(count))
    ranker: Any = run.stage("5_ensemble", lambda: recipe.joined(members, data))
    return as_ranker(ranker, recipe)


def stages(recipe: Recipe, data: TrainingSet, run: Run, surrogate: Any = None) -> Ranker:
    """The four modules; a recipe has those that it defines, the others are passed over.

    Each is saved when it is done, and loaded when the same command is given again.
    surrogate: of stage I, where it was trained before.
    """
    has = recipe.defined_stages(data)
    shortlister = model = None
    if "surrogate" in has and surrogate is None:
        surrogate = run.stage("1_surrogate", lambda: recipe.surrogate(data, run))
    if "shortlist" in has:
        shortlister = run.stage("2_shortlist", lambda: recipe.shortlist(data, surrogate, run))
    if "transfer" in has:
        model = run.stage("3_transfer", lambda: recipe.transfer(data, surrogate, shortlister, run))
    ranker: Any = run.stage(
        "4_classify", lambda: recipe.classify(data, surrogate, shortlister, model, run), together=True
    )
    return as_ranker(ranker, recipe)


def as_ranker(made: Any, recipe: Recipe) -> Ranker:
    if not isinstance(made, Ranker):
        raise ConfigError(
            f"the last stage of the recipe '{recipe.NAME}' gave a {type(made).__name__}, which is no ranker",
            "derive its class from longtail.types.Ranker",
        )
    return made


def check_processes(recipe: Recipe, count: int, effort: Effort = "quick") -> None:
    """Refuse several processes for a recipe that trains in one, and for trials, which do."""
    if count > 1 and effort != "quick":
        raise ConfigError(
            f"effort '{effort}', and {count} processes were asked for: settings are tried in one process",
            "choose them first (longtail tune, or --effort with one process), then train with --config",
        )
    if count > 1 and not recipe.SPLITS_LABELS:
        raise ConfigError(
            f"the recipe '{recipe.NAME}' trains in one process, and {count} were asked for",
            "start one, or use direct, astec or eclare, which split labels over several",
        )
    if count > 1 and (what := recipe.needs_one_process()):
        raise ConfigError(
            f"'{recipe.NAME}' with {what} trains in one process, and {count} were asked for",
            "start one, or leave the setting as it is by default",
        )


def _dataset(
    data: Dataset | LargeData | str | Path | Frame, columns: Mapping[str, Any], group: str | None, memory: int | None
) -> Dataset | LargeData:
    """What `train` was given, read."""
    if memory is not None and isinstance(data, str | Path):
        data = large_data(Path(data), memory, **columns, group=group) or data
    if isinstance(data, LargeData):
        return data
    if not isinstance(data, Dataset):
        return read(data, test=False, **{**columns, **({"group": group} if group else {})})
    if columns:
        raise ConfigError(
            f"'{min(columns)}' is for tables, and the data is a Dataset already", "give it where the data is read"
        )
    return data


@dataclass(frozen=True)
class _HeldDocuments:
    """Documents that the model is trained without, and measured on."""

    rows: I64
    ids: StringTable
    how: HeldOut


def _held_out(data: Dataset, how: HeldOut, parent: ParentModel | None) -> _HeldDocuments:
    """None of them is one that the model to go on from was trained on."""
    rows = data.held_out_rows(how.share, how.seed, how.group)
    if parent is not None:
        rows = rows[parent.unknown(data.train.documents.rows(rows))]
        if not len(rows):
            raise ConfigError(
                f"the model to go on from was trained on all documents that --holdout {how.share:g} would keep apart",
                "hold documents out where there are new ones, or leave --holdout out",
            )
    return _HeldDocuments(rows, StringTable.of([data.train.documents.uids[row] for row in rows.tolist()]), how)


def _about(recipe: Recipe, data: Dataset | LargeData, seed: int, parent: ParentModel | None) -> dict[str, Any]:
    """What a bundle tells of its training."""
    about: dict[str, Any] = {
        "recipe": recipe.NAME,
        "seed": seed,
        "data": {"name": data.name, "digest": training_digest(data.digest)},
    }
    if data.columns is not None:
        about["columns"] = data.columns.saved()
    if data.vocabulary:
        about["vocabulary"] = data.vocabulary
    if parent is not None:
        about["from"] = parent.bundle.digest
    return about


def _what_else_counts(
    recipe: Recipe, data: Dataset | LargeData, held: _HeldDocuments | None, *, examples: bool, effort: Effort
) -> dict[str, Any]:
    """Whatever else determines the result: a run goes on only where all of it is the same."""
    found: dict[str, Any] = {"longtail": __version__, "config": to_tables(recipe.config)}
    if read_by_settings := paths_in(recipe.config):
        found["content"] = {name: content_digest(path) for name, path in read_by_settings.items()}
    if not examples:
        found["examples"] = False
    if isinstance(data, LargeData):
        found["memory"] = data.memory
    if effort != "quick":
        found["effort"] = effort
    if held is not None:
        said = {"share": held.how.share, "group": held.how.group, "documents": digest_of(list(held.ids))}
        found["holdout"] = said
    return found


def _company(data: TrainingSet, texts: Items | None) -> Company:
    """What labels are seen with. texts: training documents of which examples are kept, if any are."""
    rows = data.rows if data.everything is None else None
    return Company.of(data.targets, data.labels, texts, rows, (data.documents, label_words(data)))


def recipe_of(recipe: str | Recipe, settings: Mapping[str, Any] | None) -> Recipe:
    """A recipe by its name with `settings` that differ from the defaults, or one that is made already."""
    if isinstance(recipe, str):
        return make_recipe(recipe, settings=settings)
    if settings:
        raise ConfigError(
            "settings were given beside a recipe that is already made",
            "give the settings to the recipe's config, or name the recipe",
        )
    return recipe


def _say_unread(documents: Items, read: Sequence[str], display: Display) -> None:
    """Of data that is no table the title alone is read, unless the settings name more."""
    unread = [name for name, texts in documents.fields.items() if name not in read and any(texts)]
    if read and unread:
        both = ",".join([*read, *unread])
        display.say(f"note: {', '.join(read)} is read, not {', '.join(unread)}; --set features.fields={both} reads all")


def _say_counts(counts: Mapping[str, int], display: Display) -> None:
    for what, count in counts.items():
        if count:
            display.say(f"note: {count} {what}")
