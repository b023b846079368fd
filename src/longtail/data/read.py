"""Reading a data set whatever its format, and writing one. Start here; each format has a file of its own.

| format | looks like | file |
|---|---|---|
| lf | folder with ``trn.json.gz``, ``lbl.json.gz`` | `lf` |
| split | folder with ``trn_X_Y.txt`` | `sparse_text` |
| sparse | folder with ``trn.txt``, or a ``.txt`` file with an ``N D L`` header | `sparse_text` |
| npz | folder with ``trn_Y.npz`` | `npz` |
| fasttext | a ``.txt`` or ``.ft`` file that begins with ``__label__`` | `fasttext` |
| jsonl, csv, tsv, parquet | a table, or a folder with ``train.*`` | `tables` |
| annif | folder with ``name.txt`` and ``name.tsv`` or ``name.key`` | `annif` |
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from longtail.data.columns import Columns
from longtail.data.dataset import Dataset
from longtail.data.graph_files import find_json
from longtail.data.identity import training_digest
from longtail.data.lf import read_lf, write_lf
from longtail.data.lines import open_text_lines
from longtail.data.matrix_folders import (
    FILES,
    read_npz,
    read_sparse,
    read_split_form,
    write_npz,
    write_sparse,
    write_split_form,
)
from longtail.data.vocabularies import Uid, Unknown, Vocabulary, attach_vocabulary, read_vocabulary
from longtail.errors import ConfigError, DataError, RunError
from longtail.persistence import no_room_is_an_error, written_aside
from longtail.types import Frame
from longtail.writing import remove_dead

READERS: dict[str, Callable[..., Dataset]] = {
    "lf": read_lf,
    "split": read_split_form,
    "sparse": read_sparse,
    "npz": read_npz,
}
WRITERS: dict[str, Callable[[Dataset, Path], None]] = {
    "lf": write_lf,
    "split": write_split_form,
    "sparse": write_sparse,
    "npz": write_npz,
}
WITH_LABEL_IDS = ("table", "fasttext", "annif")  # formats whose labels are ids, not numbers
TABLES = ("jsonl", "csv", "tsv", "parquet")

_KNOWN = (
    "a folder with trn.json.gz and lbl.json.gz, with trn_X_Y.txt, with trn.txt or with trn_Y.npz; "
    "a sparse text file; a fastText file; a table (.jsonl, .csv, .tsv, .parquet) with a text and a labels column; or "
    "a folder of full texts (name.txt and name.tsv)"
)


def read(
    path: Path | str | Frame,
    *,
    test: bool = True,
    columns: Columns | None = None,
    vocabulary: Path | str | None = None,
    language: str = "en",
    unknown: Unknown = "error",
    vocabulary_ids: Uid = "uri",
    test_file: Path | str | Frame | None = None,
    text: str | Sequence[str] | Mapping[str, float] | None = None,
    labels: str | Frame | None = None,
    id: str | None = None,
    uid: str | None = None,
    separator: str | None = None,
    group: str | None = None,
    label_texts: Path | str | Mapping[str, str] | Frame | None = None,
) -> Dataset:
    """Read the data set at `path`; its format is recognised from what lies there. Or a frame, a series or a list that
    is in memory already (`frames.read_frame`).

    test: without it the test side is left out of the result.
    columns: what a model was trained on (`Predictor.columns`); a table is read in the same way.
    vocabulary: a file (`vocabularies.read_vocabulary`) whose concepts are the labels, also those without a document,
        with names in `language` and ids that are `vocabulary_ids`. unknown: what becomes of labels that it lacks,
        "error", "drop" or "keep" (`vocabularies.attach_vocabulary`).
    test_file: test documents, for formats with label ids (tables, fastText, Annif's folders); of a frame a frame.
    text, labels, id (or uid), separator: columns of a table (`find_columns.Asked`). group, label_texts: as in
        `tables.read_table`. Of a frame, labels and label_texts may be what Python holds (`frames.read_frame`).
    """
    said: dict[str, Any] = {
        "test_file": test_file,
        "text": text,
        "labels": labels,
        "id": uid if id is None else id,
        "separator": separator,
        "group": group,
        "label_texts": label_texts,
    }
    text_options = {name: value for name, value in said.items() if value is not None}
    kind = recognise(Path(path)) if isinstance(path, str | Path) else "frame"
    known = None if vocabulary is None else read_vocabulary(vocabulary, language, vocabulary_ids)
    if isinstance(path, str | Path):
        made = _read_known(Path(path), kind, test, columns, known, unknown, text_options)
    else:
        from longtail.data.frames import read_frame

        made = _sides(read_frame(path, columns=columns, vocabulary=known, unknown=unknown, **text_options), test)
    return made if vocabulary is None else replace(made, vocabulary=Path(vocabulary).name)


def _read_known(
    path: Path,
    kind: str,
    test: bool,
    columns: Columns | None,
    known: Vocabulary | None,
    unknown: Unknown,
    text_options: dict[str, Any],
) -> Dataset:
    if kind == "table":
        return _sides(_read_table(path, columns, known, unknown, text_options), test)
    text_options.pop("group", None)  # of other formats a text field may be the group (`Split.group_of_each`)
    if wrong := set(text_options) - ({"test_file"} if kind in WITH_LABEL_IDS else set()):
        raise ConfigError(f"'{min(wrong)}' is for tables, and {path} is data in the format '{kind}'", "leave it out")
    if kind not in WITH_LABEL_IDS:
        return attach_vocabulary(READERS[kind](path, test=test), known, unknown)
    return _sides(_reader(kind)(path, test=text_options.get("test_file"), vocabulary=known, unknown=unknown), test)


def _reader(kind: str) -> Callable[..., Dataset]:
    """Of one of `WITH_LABEL_IDS` that is no table."""
    if kind == "annif":
        from longtail.data.annif import read_corpus

        return read_corpus
    from longtail.data.fasttext import read_fasttext

    return read_fasttext


def _sides(dataset: Dataset, test: bool) -> Dataset:
    return dataset if test else replace(dataset, test=None, digest=training_digest(dataset.digest))


def recognise(path: Path) -> str:
    """The format of what lies at `path`: a key of `READERS`, ``fasttext``, ``annif`` or ``table``."""
    from longtail.data.annif import is_corpus
    from longtail.data.fasttext import is_fasttext
    from longtail.data.table_files import is_a_pipe
    from longtail.data.tables import is_table

    if not path.exists():
        raise DataError("no such file or folder", "check the path", file=path)
    if path.is_dir():
        if find_json(path, "trn") or find_json(path, "lbl"):
            return "lf"
        if _has(path, "trn_X_Y.txt", "trn_X_Y.txt.gz", "trn_X_Xf.txt", "trn_X_Xf.txt.gz"):
            return "split"
        if _has(path, "trn_Y.npz", "trn_X.npz", "trn_X.npy"):
            return "npz"
        if _has(path, *FILES["trn"]):
            return "sparse"
    elif not path.is_file():
        raise is_a_pipe(path)
    elif path.name.lower().removesuffix(".gz").endswith(".txt"):
        words = next(open_text_lines(path), "").split()
        if len(words) == 3 and all(word.isdigit() for word in words):
            return "sparse"
    if is_fasttext(path):
        return "fasttext"
    if is_table(path):
        return "table"
    if is_corpus(path):
        return "annif"
    raise DataError(f"the format is not recognised; {_seen(path)}", f"give {_KNOWN}", file=path)


def _has(folder: Path, *names: str) -> bool:
    return any((folder / name).is_file() for name in names)


def _seen(path: Path) -> str:
    if path.is_file():
        return f"it is a file of {path.stat().st_size} bytes"
    names = sorted(entry.name for entry in path.iterdir())
    return (
        f"the folder holds {', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
        if names
        else "the folder is empty"
    )


def _read_table(
    path: Path, columns: Columns | None, vocabulary: Vocabulary | None, unknown: Unknown, options: dict[str, Any]
) -> Dataset:
    from longtail.data.find_columns import Asked
    from longtail.data.tables import read_table

    others = {name: options.pop(name, None) for name in ("label_texts", "group")}
    test_file = options.pop("test_file", None)
    asked = Asked(**options, remembered=columns)
    return read_table(path, asked, test=test_file, vocabulary=vocabulary, unknown=unknown, **others)


def write(dataset: Dataset, path: Path | str, format: str) -> None:
    """Write `dataset` as a new folder. What a format cannot hold is an error, not a loss."""
    if format in WRITERS:
        WRITERS[format](dataset, Path(path))
    elif format in TABLES:
        from longtail.data.tables import write_table

        write_table(dataset, Path(path), format)
    else:
        raise ConfigError(f"unknown format '{format}'", f"use one of {', '.join((*WRITERS, *TABLES))}")


# ---- the embedded sample: a reverse dictionary out of WordNet (`scripts/build_sample.py`) ----


def sample_folder() -> Path:
    """Where the sample lies inside the installed package: a data set in the raw LF layout, read-only by custom."""
    folder = Path(str(resources.files("longtail.data"))) / "sample"
    if not (folder / "trn.json.gz").is_file():
        raise DataError(
            "the embedded sample is missing",
            "install longtail again, unzipped; in a checkout: scripts/build_sample.py makes it",
            file=folder,
        )
    return folder


def write_sample(folder: Path) -> None:
    """Copy the sample to `folder`, which must not exist or be empty. It appears complete or not at all."""
    with no_room_is_an_error(folder):
        target = folder.resolve()
    _refuse_unless_free(folder, target)
    source = sample_folder()
    with no_room_is_an_error(folder), written_aside(target) as aside:
        # Not copytree: it hides the reason of a failure (a full disk), and copies the rights of a read-only
        # installation.
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            copy = aside / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _refuse_unless_free(folder: Path, target: Path) -> None:
    new = "name a folder that does not exist yet"
    with no_room_is_an_error(folder):
        # The finished folder takes the place of an empty one, which a shell that stands in it would not notice.
        if target == Path.cwd():
            raise RunError(f"{folder}: is the current folder", f"{new}, for example {folder / 'sample'}")
        if target.is_dir() and any(target.iterdir()):
            remove_dead(target.parent, target.name)  # of who was killed just when the folder was there
            raise RunError(f"{folder}: the folder exists and is not empty", new)
        obstacle = next((path for path in (target, *target.parents) if path.exists() and not path.is_dir()), None)
        if obstacle is not None:
            raise RunError(f"{folder}: {obstacle} is a file, a folder was expected", new)
