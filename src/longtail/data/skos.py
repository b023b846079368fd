"""SKOS vocabularies (Turtle, RDF/XML, N-Triples) as label sets: names, alternative names, languages, and how concepts
relate.

A concept becomes a label. Its title is the preferred label in the language asked for; where there is none, that of a
regional form (en-GB for en), then one without a language, then the first by language. Its content is the alternative
and hidden labels of that language (or without one), joined by "; ". Preferred labels in other languages are fields
title_fi, title_sv, ... A concept with no preferred label at all keeps an empty title.

Deprecated concepts (owl:deprecated) are left out and counted. Labels are sorted by id, so numbers are stable.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.sax import SAXParseException

import numpy as np

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.from_texts import binary_csr, with_digest
from longtail.errors import ConfigError, DataError, MissingExtra
from longtail.types import I64, Csr

SUFFIXES = {".ttl": "turtle", ".turtle": "turtle", ".rdf": "xml", ".xml": "xml", ".owl": "xml", ".nt": "nt"}
SKOS = "http://www.w3.org/2004/02/skos/core#"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"

Uid = Literal["uri", "local", "notation"]


class Vocabulary(NamedTuple):
    """Labels of a vocabulary. Its parts are the arguments of `attach_vocabulary`: ``attach_vocabulary(data,
    *read_skos(path))``.

    graphs: "broader" (labels x labels, a row's concept points to its broader ones) and "related" (symmetric), where
        there are edges.
    repairs: what was left out and how often.
    """

    labels: Items
    graphs: Mapping[str, Graph]
    repairs: Mapping[str, int]


def read_skos(path: Path | str, language: str = "en", uid: Uid = "uri") -> Vocabulary:
    """Read a vocabulary file (also ``.gz``). Needs the extra `skos`.

    uid: what identifies a label: the concept's URI, the last step of it ("local": p123 of http://.../yso/p123), or
        its notation.
    """
    path = Path(path)
    triples = _parsed(path)
    concepts = [
        str(subject) for subject in triples.subjects(_uri(RDF_TYPE), _uri(SKOS + "Concept")) if _is_uri(subject)
    ]
    if not concepts:
        raise DataError("the file has no skos:Concept with a URI", "give a SKOS vocabulary", file=path)
    deprecated = {
        str(subject)
        for subject, value in triples.subject_objects(_uri(DEPRECATED))
        if str(value).lower() in ("true", "1")
    }
    kept = [concept for concept in dict.fromkeys(concepts) if concept not in deprecated]
    ids = _ids(triples, kept, uid, path)
    kept.sort(key=ids.__getitem__)
    number = {concept: position for position, concept in enumerate(kept)}
    labels = Items([ids[concept] for concept in kept], _fields(triples, kept, language.lower()))
    repairs = {"deprecated concepts left out": len(set(concepts)) - len(kept)}
    return Vocabulary(labels, _graphs(triples, number), {what: count for what, count in repairs.items() if count})


# ---- reading ----


def _uri(text: str) -> Any:
    import rdflib

    return rdflib.URIRef(text)


def _is_uri(node: Any) -> bool:
    import rdflib

    return isinstance(node, rdflib.URIRef)


def _parsed(path: Path) -> Any:
    """All triples of the file, as an rdflib Graph. Nothing is fetched from the network."""
    kind = SUFFIXES.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if kind is None:
        raise DataError(
            f"'{path.name}' is not a vocabulary that can be read", f"use one of {', '.join(SUFFIXES)}", file=path
        )
    try:
        import rdflib
    except ImportError:
        raise MissingExtra("rdflib", "skos", "reading SKOS vocabularies") from None
    try:
        content = gzip.decompress(path.read_bytes()) if path.name.lower().endswith(".gz") else path.read_bytes()
    except FileNotFoundError:
        raise DataError("no such file", "give the path of a SKOS vocabulary", file=path) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise DataError(
            f"not a whole gzip file ({problem})", "the file is truncated; copy it again", file=path
        ) from None
    except OSError as problem:
        raise DataError(
            f"cannot be read ({problem.strerror})", "give the path of a SKOS vocabulary", file=path
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        if kind != "xml":  # XML names its own encoding
            line = content.count(b"\n", 0, problem.start) + 1
            raise DataError(
                f"not valid UTF-8 (byte {content[problem.start]:#04x})",
                "convert the file to UTF-8",
                file=path,
                line=line,
            ) from None
    try:
        return rdflib.Graph().parse(data=content if kind == "xml" else text, format=kind)
    except SAXParseException as problem:
        raise DataError(
            f"not valid RDF/XML ({problem.getMessage()})",
            "the file is truncated or of another format",
            file=path,
            line=problem.getLineNumber(),
        ) from None
    # rdflib's parsers raise classes of their own, ValueError, and others: whatever it was, the file is at fault
    except Exception as problem:
        raise DataError(
            f"not valid {kind} ({_reason(problem)})",
            "the file is truncated or of another format",
            file=path,
            line=_line(problem),
        ) from None


def _reason(problem: Exception) -> str:
    message = getattr(problem, "_why", None) or str(problem) or type(problem).__name__
    return " ".join(str(message).split())[:120]


def _line(problem: Exception) -> int | None:
    """The line that rdflib's Turtle parser names, from 1."""
    lines = getattr(problem, "lines", None)
    return lines + 1 if isinstance(lines, int) else None


def _ids(triples: Any, concepts: Iterable[str], uid: Uid, path: Path) -> dict[str, str]:
    """The label id of each concept; they must differ."""
    if uid == "uri":
        return {concept: concept for concept in concepts}
    notations: dict[str, str] = {}
    if uid == "notation":
        for subject, value in sorted(triples.subject_objects(_uri(SKOS + "notation")), key=str):
            notations.setdefault(str(subject), str(value).strip())
    ids: dict[str, str] = {}
    owner: dict[str, str] = {}
    for concept in concepts:
        name = notations.get(concept, "") if uid == "notation" else re.split(r"[/#]", concept)[-1]
        if not name:
            raise DataError(f"concept <{concept}> has no {uid} id", "identify labels by their URI", file=path)
        if owner.setdefault(name, concept) != concept:
            raise DataError(
                f"concepts <{owner[name]}> and <{concept}> have the same {uid} id '{name}'",
                "identify labels by their URI",
                file=path,
            )
        ids[concept] = name
    return ids


def _fields(triples: Any, concepts: list[str], language: str) -> dict[str, list[str]]:
    number = {concept: position for position, concept in enumerate(concepts)}
    preferred = _by_language(triples, number, ("prefLabel",))
    others = _by_language(triples, number, ("altLabel", "hiddenLabel"))
    languages = sorted({code for names in preferred for code in names if code and code != language})
    fields = {
        "title": [_title(names, language) for names in preferred],
        "content": ["; ".join([*names.get(language, ()), *names.get("", ())]) for names in others],
    }
    return fields | {
        f"title_{code}": [next(iter(names.get(code, ())), "") for names in preferred] for code in languages
    }


def _by_language(triples: Any, number: Mapping[str, int], properties: Iterable[str]) -> list[dict[str, list[str]]]:
    """Names of every concept by language code ("" for none), sorted, each once."""
    names: list[dict[str, list[str]]] = [{} for _ in number]
    for name in properties:
        found = (
            (str(subject), (literal.language or "").lower(), " ".join(str(literal).split()))
            for subject, literal in triples.subject_objects(_uri(SKOS + name))
            if hasattr(literal, "language")
        )
        for concept, code, text in sorted(found):
            if concept in number and text and text not in names[number[concept]].setdefault(code, []):
                names[number[concept]][code].append(text)
    return names


def _title(names: Mapping[str, list[str]], language: str) -> str:
    regional = [code for code in sorted(names) if code.startswith(language + "-")]
    order = [language, *regional, "", *sorted(names)]
    return next((names[code][0] for code in order if names.get(code)), "")


def _graphs(triples: Any, number: Mapping[str, int]) -> dict[str, Graph]:
    def pairs(name: str) -> list[tuple[int, int]]:
        found = (
            (number.get(str(subject)), number.get(str(value)))
            for subject, value in triples.subject_objects(_uri(SKOS + name))
        )
        return [(a, b) for a, b in found if a is not None and b is not None and a != b]

    related = pairs("related")
    edges = {
        "broader": [*pairs("broader"), *((b, a) for a, b in pairs("narrower"))],
        "related": [*related, *((b, a) for a, b in related)],
    }
    return {name: Graph(name, label_label=_square(found, len(number))) for name, found in edges.items() if found}


def _square(pairs: list[tuple[int, int]], size: int) -> Csr:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return binary_csr(array[:, 0], array[:, 1], (size, size))


# ---- attaching ----


def attach_vocabulary(
    dataset: Dataset,
    vocabulary: Items,
    graphs: Mapping[str, Graph] | None = None,
    repairs: Mapping[str, int] | None = None,
    unknown: Literal["error", "drop", "keep"] = "error",
) -> Dataset:
    """The same documents with the labels of a vocabulary: all its concepts, in its order, with its texts and graphs.

    Labels are matched by id. unknown: what becomes of labels that the vocabulary lacks: an error that names some;
    "drop" takes them out of all documents, counted; "keep" puts them after the vocabulary, with the text they had as
    title. Graphs of the data set follow their labels; a graph of the vocabulary may not have the name of one of them.
    """
    position = {uid: number for number, uid in enumerate(vocabulary.uids)}
    missing = [label for label, uid in enumerate(dataset.labels.uids) if uid not in position]
    if missing and unknown == "error":
        some = ", ".join(
            [*(f"'{dataset.labels.uids[label]}'" for label in missing[:3]), *(["..."] if len(missing) > 3 else [])]
        )
        example = next(iter(vocabulary.uids), "")
        raise DataError(
            f"{len(missing)} of {len(dataset.labels)} labels are not in the vocabulary: {some}; its ids look like "
            f"'{example}'",
            "choose other ids for the vocabulary (uri, local, notation), or drop or keep unknown labels",
        )
    if shared := sorted(set(dataset.graphs) & set(graphs or {})):
        raise ConfigError(
            f"both the data set and the vocabulary have a graph '{shared[0]}'", "rename or remove one of them"
        )
    kept = missing if unknown == "keep" else []
    labels = _extended(vocabulary, dataset.labels, kept)
    position |= {dataset.labels.uids[label]: len(vocabulary) + place for place, label in enumerate(kept)}
    column = np.array([position.get(uid, -1) for uid in dataset.labels.uids], dtype=np.int64)
    train = _relabelled(dataset.train, column, len(labels))
    test = None if dataset.test is None else _relabelled(dataset.test, column, len(labels))
    lost = (
        dataset.train.targets.nnz
        - train.targets.nnz
        + (0 if dataset.test is None or test is None else dataset.test.targets.nnz - test.targets.nnz)
    )
    return with_digest(
        replace(
            dataset,
            labels=labels,
            train=train,
            test=test,
            graphs={
                **{name: _moved(graph, column, len(labels)) for name, graph in dataset.graphs.items()},
                **_widened(graphs or {}, len(labels)),
            },
            repairs={
                **dataset.repairs,
                **(repairs or {}),
                **({"labels of documents that the vocabulary lacks, dropped": int(lost)} if lost else {}),
            },
        )
    )


def _extended(labels: Items, old: Items, kept: list[int]) -> Items:
    fields = {
        name: [*texts, *([old.name(label) for label in kept] if name == "title" else [""] * len(kept))]
        for name, texts in labels.fields.items()
    }
    return Items([*labels.uids, *(old.uids[label] for label in kept)], fields)


def _relabelled(split: Split, column: I64, size: int) -> Split:
    targets = split.targets
    rows = np.repeat(np.arange(targets.shape[0], dtype=np.int64), np.diff(targets.indptr))
    columns = column[targets.indices]

    def moved(pairs: I64) -> I64:
        renumbered = np.stack([pairs[:, 0], column[pairs[:, 1]]], axis=1)
        return renumbered[renumbered[:, 1] >= 0]

    relabelled = binary_csr(rows[columns >= 0], columns[columns >= 0], (targets.shape[0], size))
    return replace(split, targets=relabelled, masked=moved(split.masked), known=moved(split.known))


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
