"""Files as fastText reads them: a document per line, its labels the words that begin with ``__label__``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from longtail.data.dataset import Dataset, Items
from longtail.data.from_texts import Labelled, assembled, numbered
from longtail.data.lines import filled_lines, open_text_lines
from longtail.data.vocabularies import Unknown, Vocabulary, attach_vocabulary
from longtail.errors import DataError

PREFIX = "__label__"
SUFFIXES = (".txt", ".ft", ".train", ".valid", ".test")


def is_fasttext(path: Path) -> bool:
    """Whether a file with such a name begins with a label."""
    return (
        path.is_file()
        and path.name.lower().removesuffix(".gz").endswith(SUFFIXES)
        and next(open_text_lines(path), "").lstrip().startswith(PREFIX)
    )


def read_fasttext(
    path: Path,
    *,
    test: Path | str | None = None,
    vocabulary: Vocabulary | None = None,
    unknown: Unknown = "error",
) -> Dataset:
    """Documents of a file, called train-0, train-1, ...; test: another such file. Blank lines are skipped."""
    train, tested = _documents(path, "train"), None if test is None else _documents(Path(test), "test")
    data = assembled(Path(path.name.removesuffix(".gz")).stem, numbered(train, tested))
    return attach_vocabulary(data, vocabulary, unknown, None if tested is None else tested.labels)


def _documents(path: Path, prefix: str) -> Labelled:
    texts: list[str] = []
    labels: list[list[str]] = []
    for text, own in texts_and_labels(path):
        texts.append(text)
        labels.append(own)
    if not any(labels):
        raise no_label(path)
    return Labelled(Items([f"{prefix}-{row}" for row in range(len(texts))], {"title": texts}), labels)


def texts_and_labels(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Of every document, in the order of the file."""
    for number, line in filled_lines(path):
        words = line.split()
        own = [word.removeprefix(PREFIX) for word in words if word.startswith(PREFIX)]
        if not all(own):
            raise DataError(
                f"a label has no name: '{PREFIX}'", f"write {PREFIX}name, without a space", file=path, line=number
            )
        yield " ".join(word for word in words if not word.startswith(PREFIX)), own


def no_label(path: Path) -> DataError:
    return DataError(
        f"no line has a label that begins with {PREFIX}",
        f"write the labels of a document before its text: {PREFIX}bees {PREFIX}gardens keeping bees",
        file=path,
    )
