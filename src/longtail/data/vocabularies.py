"""Vocabularies: labels that are known beforehand, with their names. Reading one, and giving its labels to documents.

| format | looks like | file |
|---|---|---|
| SKOS | ``.ttl``, ``.rdf``, ``.xml``, ``.owl``, ``.nt`` | `skos` (extra `skos`) |
| Annif TSV | ``<uri>``, a tab and a name per line (and a tab and a notation), no header | `annif` |
| Annif CSV | columns ``uri``, ``label_en``, ``label_fi``, ..., ``notation`` | `annif` |

A concept becomes a label. Its title is the preferred name in the language asked for; where there is none, that of a
regional form (en-GB for en), then one without a language, then the first by language. Its field other_names holds the
alternative and hidden names of that language (or without one), joined by "; ". Preferred names in other languages are
fields title_fi, title_sv, ... A concept with no preferred name at all keeps an empty title. Labels are sorted by id, so
numbers are stable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.from_texts import UNKNOWN_TO_TRAINING, binary_csr, targets_of, with_digest
from longtail.data.identity import normalised
from longtail.errors import ConfigError, DataError
from longtail.types import I64, BoolArray, Csr

Uid = Literal["uri", "local", "notation"]
Unknown = Literal["error", "drop", "keep"]


class Vocabulary(NamedTuple):
    """Labels of a vocabulary.

    graphs: "broader" (labels x labels, a row's concept points to its broader ones) and "related" (symmetric), where
        there are edges.
    repairs: what was left out and how often.
    """

    labels: Items
    graphs: Mapping[str, Graph]
    repairs: Mapping[str, int]


def read_vocabulary(path: Path | str, language: str = "en", uid: Uid = "uri") -> Vocabulary:
    """Read a vocabulary; its format is recognised by the name of the file (also ``.gz``).

    language: of the names; one that no name is in is an error, unless the file does not say languages at all.
    uid: what identifies a label: the concept's URI, the last step of it ("local": p123 of http://.../yso/p123), or
        its notation.
    """
    from longtail.data.annif import read_concept_csv, read_concept_tsv
    from longtail.data.skos import SUFFIXES, read_skos

    path = Path(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix in SUFFIXES:
        return read_skos(path, language, uid)
    if suffix not in (".tsv", ".csv"):
        raise DataError(
            f"'{path.name}' is not a vocabulary that can be read",
            f"use SKOS ({', '.join(SUFFIXES)}), or Annif's .tsv or .csv",
            file=path,
        )
    return (read_concept_tsv if suffix == ".tsv" else read_concept_csv)(path, language, uid)


@dataclass(frozen=True)
class Concepts:
    """What a file says of its concepts, before they are labels.

    preferred, others: names of each concept by language, in lower case ("" where none is said).
    notations: by URI, of those that have one.
    """

    path: Path
    uris: Sequence[str]
    preferred: Sequence[Mapping[str, Sequence[str]]]
    others: Sequence[Mapping[str, Sequence[str]]]
    notations: Mapping[str, str]

    def as_labels(self, language: str, uid: Uid) -> tuple[Items, dict[str, int]]:
        """Labels sorted by id, and the number of each URI among them."""
        language = language.lower()
        self._check_language(language)
        ids = self._ids(uid)
        order = sorted(range(len(ids)), key=ids.__getitem__)
        preferred, others = [self.preferred[i] for i in order], [self.others[i] for i in order]
        fields = {
            "title": [_title(names, language) for names in preferred],
            "other_names": ["; ".join([*names.get(language, ()), *names.get("", ())]) for names in others],
        }
        for code in sorted({code for names in preferred for code in names if code and code != language}):
            fields[f"title_{code}"] = [next(iter(names.get(code, ())), "") for names in preferred]
        return Items([ids[i] for i in order], fields), {self.uris[i]: number for number, i in enumerate(order)}

    def _check_language(self, language: str) -> None:
        counts = Counter(code for names in self.preferred for code in names)
        tagged = sorted(filter(None, counts), key=lambda code: (-counts[code], code))
        if tagged and not any(code == language or code.startswith(f"{language}-") for code in tagged):
            found = [f"{code} ({counts[code]})" for code in tagged]
            found += [f"none said ({counts['']})"] if counts[""] else []
            raise DataError(
                f"no concept has a name in the language '{language}'; the languages are {', '.join(found)}",
                f"name one of them: --language {tagged[0]}",
                file=self.path,
            )

    def _ids(self, uid: Uid) -> list[str]:
        """The label id of each concept; they must differ."""
        ids, owner = [], dict[str, str]()
        for uri in self.uris:
            name = {
                "uri": uri,
                "local": re.split(r"[/#]", uri)[-1],
                "notation": self.notations.get(uri, ""),
            }[uid]
            if not name:
                raise DataError(f"concept <{uri}> has no {uid} id", "identify labels by their URI", file=self.path)
            if owner.setdefault(name, uri) != uri:
                raise DataError(
                    f"concepts <{owner[name]}> and <{uri}> have the same {uid} id '{name}'",
                    "identify labels by their URI",
                    file=self.path,
                )
            ids.append(name)
        return ids


def _title(names: Mapping[str, Sequence[str]], language: str) -> str:
    regional = [code for code in sorted(names) if code.startswith(language + "-")]
    order = [language, *regional, "", *sorted(names)]
    return next((names[code][0] for code in order if names.get(code)), "")


# ---- attaching ----


def attach_vocabulary(
    dataset: Dataset,
    vocabulary: Vocabulary | None,
    unknown: Unknown = "error",
    test_labels: Sequence[Sequence[str]] | None = None,
) -> Dataset:
    """The same documents with the labels of a vocabulary: all its concepts, in its order, with its texts and graphs.
    Without a vocabulary, the data set as it is.

    Labels are matched by id, else by name: an id that is the title of one concept alone, case aside, is that concept.
    unknown: what becomes of labels that the vocabulary lacks: an error that names some; "drop" takes them out of all
    documents, counted; "keep" puts those of training after the vocabulary, with the text they had as title.
    test_labels: label ids of the test documents as they stood in the file, where the reader has dropped those that
    training does not know: the vocabulary may know them. A test document that loses all its labels is left out and
    counted: no answer to it would be right. Graphs of the data set follow their labels; a graph of the vocabulary may
    not have the name of one of them.
    """
    if vocabulary is None:
        return dataset
    if unknown not in get_args(Unknown):
        raise ConfigError(f"unknown labels: '{unknown}'", f"use one of {', '.join(get_args(Unknown))}")
    if shared := sorted(set(dataset.graphs) & set(vocabulary.graphs)):
        raise ConfigError(
            f"both the data set and the vocabulary have a graph '{shared[0]}'", "rename or remove one of them"
        )
    own = list(dataset.labels.uids)
    test_only = sorted({uid for uids in test_labels or () for uid in uids}.difference(own))
    place, by_name = _places([*own, *test_only], vocabulary.labels)
    missing = [uid for uid in (*own, *test_only) if uid not in place]
    if missing and (unknown == "error" or (unknown == "drop" and not any(uid in place for uid in own))):
        raise DataError(
            f"{len(missing)} of {len(own) + len(test_only)} labels are not in the vocabulary: {_some(missing)}; its "
            f"ids look like '{next(iter(vocabulary.labels.uids), '')}'",
            "choose other ids for the vocabulary (--vocabulary-ids uri, local or notation), or drop or keep unknown "
            "labels (--unknown drop, --unknown keep)",
        )
    kept = [label for label, uid in enumerate(own) if uid not in place] if unknown == "keep" else []
    place |= {own[label]: len(vocabulary.labels) + number for number, label in enumerate(kept)}
    labels = _extended(vocabulary.labels, dataset.labels, kept)
    column = np.array([place.get(uid, -1) for uid in own], dtype=np.int64)
    train, lost = _relabelled(dataset.train, column, len(labels))
    repairs = Counter(dict(dataset.repairs)) + Counter(dict(vocabulary.repairs))
    test = None
    if dataset.test is not None:
        test, lost_in_test = _relabelled(dataset.test, column, len(labels))
        had = np.diff(dataset.test.targets.indptr) > 0
        if test_labels is not None:
            del repairs[UNKNOWN_TO_TRAINING]
            targets, lost_in_test, _ = targets_of(test_labels, place, len(labels))
            test, had = replace(test, targets=targets), np.array([len(uids) > 0 for uids in test_labels])
        test, left_out = _with_labels(test, had)
        repairs["test documents that lose all their labels, left out"] = left_out
        lost += lost_in_test
    dropped = [uid for uid in missing if uid not in place]
    repairs[f"labels of documents that the vocabulary lacks, dropped, such as {_some(dropped)}"] = lost
    repairs[f"labels that the vocabulary lacks, kept, such as {_some([own[label] for label in kept])}"] = len(kept)
    repairs["labels found in the vocabulary by name, not by id"] = by_name
    graphs = {name: _moved(graph, column, len(labels)) for name, graph in dataset.graphs.items()}
    return with_digest(
        replace(
            dataset,
            labels=labels,
            train=train,
            test=test,
            graphs={**graphs, **_widened(vocabulary.graphs, len(labels))},
            repairs=dict(+repairs),
        )
    )


def _places(uids: Sequence[str], labels: Items) -> tuple[dict[str, int], int]:
    """The number in the vocabulary of those ids that it knows, and how many of them it knows by name alone."""
    by_id = {uid: number for number, uid in enumerate(labels.uids)}
    names = list(map(normalised, labels.titles()))
    count = Counter(names)
    by_name = {name: number for number, name in enumerate(names) if name and count[name] == 1}
    place = {uid: by_id[uid] for uid in uids if uid in by_id}
    named = {uid: by_name[normalised(uid)] for uid in uids if uid not in place and normalised(uid) in by_name}
    return place | named, len(named)


def _some(uids: Sequence[str]) -> str:
    return ", ".join([*(f"'{uid}'" for uid in uids[:3]), *(["..."] if len(uids) > 3 else [])])


def _with_labels(test: Split, had: BoolArray) -> tuple[Split, int]:
    """Without the documents that had labels and have none left; and how many they were."""
    gone = had & (np.diff(test.targets.indptr) == 0)
    if not gone.any():
        return test, 0
    if gone.all():
        raise DataError(
            "no test document has a label that the vocabulary or training knows",
            "check that test documents and vocabulary use the same ids",
        )
    return test.rows(np.flatnonzero(~gone)), int(gone.sum())


def _extended(labels: Items, old: Items, kept: list[int]) -> Items:
    fields = {
        name: [*texts, *([old.name(label) for label in kept] if name == "title" else [""] * len(kept))]
        for name, texts in labels.fields.items()
    }
    return Items([*labels.uids, *(old.uids[label] for label in kept)], fields)


def _relabelled(split: Split, column: I64, size: int) -> tuple[Split, int]:
    """The split with its labels at their new numbers; and how many of its pairs are lost."""
    targets = split.targets
    rows = np.repeat(np.arange(targets.shape[0], dtype=np.int64), np.diff(targets.indptr))
    columns = column[targets.indices]

    def moved(pairs: I64) -> I64:
        renumbered = np.stack([pairs[:, 0], column[pairs[:, 1]]], axis=1)
        return renumbered[renumbered[:, 1] >= 0]

    relabelled = binary_csr(rows[columns >= 0], columns[columns >= 0], (targets.shape[0], size))
    moved_split = replace(split, targets=relabelled, masked=moved(split.masked), known=moved(split.known))
    return moved_split, int((columns < 0).sum())


def _moved(graph: Graph, column: I64, size: int) -> Graph:
    """Label rows (and columns) of a graph at their new numbers; those of dropped labels vanish."""
    from scipy.sparse import coo_array, csr_array

    def moved(matrix: Csr | None, both: bool) -> Csr | None:
        if matrix is None:
            return None
        entries = matrix.tocoo()
        row, col = column[entries.row], column[entries.col] if both else entries.col
        keep = (row >= 0) & (col >= 0)
        shape = (size, size if both else matrix.shape[1])
        return csr_array(coo_array((entries.data[keep], (row[keep], col[keep])), shape=shape))

    return replace(graph, labels=moved(graph.labels, both=False), label_label=moved(graph.label_label, both=True))


def _widened(graphs: Mapping[str, Graph], size: int) -> dict[str, Graph]:
    """Graphs of the vocabulary with empty rows and columns for labels kept after it."""
    old = {
        name: np.arange(graph.label_label.shape[0], dtype=np.int64)
        for name, graph in graphs.items()
        if graph.label_label is not None
    }
    return {name: _moved(graphs[name], numbers, size) for name, numbers in old.items()}
