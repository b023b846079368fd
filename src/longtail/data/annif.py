"""Files of Annif, a tool for subject indexing: vocabularies as TSV and CSV, and corpora of full texts.

A corpus is a folder with a text per document, ``name.txt``, and beside it its subjects: ``name.tsv`` with ``<uri>``, a
tab and a name per line, or else ``name.key`` with a name per line. Corpora of short texts are tables (`tables`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from longtail.data.dataset import Dataset, Items
from longtail.data.from_texts import Labelled, assembled, numbered, shown
from longtail.data.lines import filled_lines, open_text_lines
from longtail.data.table_files import open_table
from longtail.data.vocabularies import Concepts, Uid, Unknown, Vocabulary, attach_vocabulary
from longtail.errors import DataError

_URI = re.compile(r"<([^<>\s]+)>|([A-Za-z][A-Za-z0-9+.-]*:[^<>\s]+)")


def _uri(cell: str, path: Path, line: int) -> str:
    found = _URI.fullmatch(cell.strip())
    if found is None:
        raise DataError(f"{shown(cell)} is not a URI", "write it as <http://example.org/subject>", file=path, line=line)
    return found[1] or found[2]


# ---- vocabularies ----


class _Listed:
    """Concepts as they are met, each once."""

    def __init__(self, path: Path, hint: str) -> None:
        self.path, self.hint = path, hint
        self.lines: dict[str, int] = {}
        self.names: list[dict[str, list[str]]] = []
        self.notations: dict[str, str] = {}

    def add(self, line: int, uri: str, names: dict[str, str], notation: str) -> None:
        uri = _uri(uri, self.path, line)
        if self.lines.setdefault(uri, line) != line:
            raise DataError(f"<{uri}> stands on line {self.lines[uri]} already", self.hint, file=self.path, line=line)
        self.names.append({code: [" ".join(name.split())] for code, name in names.items() if name.strip()})
        if notation.strip():
            self.notations[uri] = notation.strip()

    def vocabulary(self, language: str, uid: Uid) -> Vocabulary:
        """What has no name in any language is deprecated, as Annif has it: left out and counted."""
        named = [(uri, names) for uri, names in zip(self.lines, self.names, strict=True) if names]
        if not named:
            raise DataError("the file has no concepts", "write a line per concept", file=self.path)
        uris, names = [uri for uri, _ in named], [names for _, names in named]
        labels, _ = Concepts(self.path, uris, names, [{} for _ in names], self.notations).as_labels(language, uid)
        left_out = len(self.lines) - len(named)
        return Vocabulary(labels, {}, {"deprecated concepts left out": left_out} if left_out else {})


def read_concept_tsv(path: Path, language: str, uid: Uid) -> Vocabulary:
    """``<uri>``, a tab and a name per line; a third column is the notation. No header, and no language is said."""
    rows = _Listed(path, "give each concept one line; names in several languages are for CSV (uri,label_en,label_fi)")
    for number, line in filled_lines(path):
        cells = line.split("\t")
        if len(cells) not in (2, 3) or not cells[1].strip():
            raise DataError(
                f"{shown(line)} is not a URI, a tab and a name",
                "write <http://example.org/bees>, a tab, and bees; no header. A table with a header is for "
                "--label-texts",
                file=path,
                line=number,
            )
        rows.add(number, cells[0], {"": cells[1]}, cells[2] if len(cells) == 3 else "")
    return rows.vocabulary(language, uid)


def read_concept_csv(path: Path, language: str, uid: Uid) -> Vocabulary:
    """Columns ``uri``, ``label_en``, ``label_fi``, ... (or ``label``, of no language), and where given
    ``notation``.
    """
    table = open_table(path)
    columns = {name.strip().lower(): name for name in table.columns()}
    languages = {
        name.removeprefix("label").removeprefix("_").replace("_", "-"): column
        for name, column in columns.items()
        if name == "label" or name.startswith("label_")
    }
    if "uri" not in columns or not languages:
        raise DataError(
            f"the columns are {', '.join(columns.values())}",
            "a vocabulary has the columns uri, label_en, label_fi, ... and where given notation; a table of other "
            "columns is for --label-texts",
            file=path,
            line=1,
        )
    wanted = [columns["uri"], *languages.values(), *([columns["notation"]] if "notation" in columns else [])]
    rows = _Listed(path, "give each concept one row")
    for line, (uri, *cells) in table.rows(wanted):
        rows.add(line, uri, dict(zip(languages, cells, strict=False)), cells[-1] if "notation" in columns else "")
    return rows.vocabulary(language, uid)


# ---- corpora of full texts ----


def is_corpus(folder: Path) -> bool:
    """Whether the folder holds a text with its subjects beside it."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return any(
        name.endswith(".txt") and not names.isdisjoint(_subject_files(name.removesuffix(".txt"))) for name in names
    )


def read_corpus(
    folder: Path,
    *,
    test: Path | str | None = None,
    vocabulary: Vocabulary | None = None,
    unknown: Unknown = "error",
) -> Dataset:
    """Documents of a folder, their ids the names of their files; test: another such folder.

    Labels are URIs, or names where ``.key`` files name them; their texts are the names beside the URIs.
    Repairs, counted: texts without subjects beside them are left out; see `numbered` and `assembled`.
    """
    train, names, repairs = _documents(folder)
    tested = None
    if test is not None:
        tested, _, more = _documents(Path(test))
        repairs += more
    parts = numbered(train, tested, Items(sorted(names), {"title": [names[uid] for uid in sorted(names)]}))
    data = assembled(folder.resolve().name, replace(parts, repairs=parts.repairs + repairs))
    return attach_vocabulary(data, vocabulary, unknown, None if tested is None else tested.labels)


def _subject_files(stem: str) -> tuple[str, str]:
    return f"{stem}.tsv", f"{stem}.key"


def _documents(folder: Path) -> tuple[Labelled, dict[str, str], Counter[str]]:
    """Documents with their labels; the name of each label; and what was left out."""
    if not is_corpus(folder):
        raise DataError(
            "the folder holds no text with its subjects beside it",
            "a corpus of full texts is a folder of name.txt and name.tsv (or name.key)",
            file=folder,
        )
    names: dict[str, str] = {}
    texts: dict[str, str] = {}
    labels: list[list[str]] = []
    repairs = Counter[str]()
    for path in sorted(folder.glob("*.txt")):
        subjects = next((folder / name for name in _subject_files(path.stem) if (folder / name).is_file()), None)
        if subjects is None:
            repairs["texts without a .tsv or .key file of subjects beside them, left out"] += 1
            continue
        found = _subjects(subjects)
        texts[path.stem] = " ".join(" ".join(open_text_lines(path)).split())
        labels.append([uid for uid, _ in found])
        for uid, name in found:
            names[uid] = names.get(uid) or name
    return Labelled(Items(list(texts), {"title": list(texts.values())}), labels), names, repairs


def _subjects(path: Path) -> list[tuple[str, str]]:
    """(id, name) of each subject of a document."""
    if path.suffix == ".key":
        return [(line.strip(), line.strip()) for _, line in filled_lines(path)]
    rows = [(number, *line.partition("\t")) for number, line in filled_lines(path)]
    return [(_uri(uri, path, number), " ".join(name.split())) for number, uri, _, name in rows]
