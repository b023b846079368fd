"""SKOS vocabularies (Turtle, RDF/XML, N-Triples): concepts with their names, and how they relate.

How concepts become labels is said in `vocabularies`. Deprecated concepts (owl:deprecated) are left out and counted.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax import SAXParseException

import numpy as np

from longtail.data.dataset import Graph
from longtail.data.from_texts import binary_csr
from longtail.data.size_limits import ENTITIES, WHOLE, check_growth
from longtail.data.vocabularies import Concepts, Uid, Vocabulary
from longtail.errors import DataError, MissingExtra
from longtail.types import Csr

SUFFIXES = {".ttl": "turtle", ".turtle": "turtle", ".rdf": "xml", ".xml": "xml", ".owl": "xml", ".nt": "nt"}
SKOS = "http://www.w3.org/2004/02/skos/core#"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"


def read_skos(path: Path | str, language: str = "en", uid: Uid = "uri") -> Vocabulary:
    """Read a vocabulary file (also ``.gz``). Needs the extra `skos`. uid: see `vocabularies.read_vocabulary`."""
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
    labels, number = Concepts(
        path,
        kept,
        _by_language(triples, kept, ("prefLabel",)),
        _by_language(triples, kept, ("altLabel", "hiddenLabel")),
        _notations(triples),
    ).as_labels(language, uid)
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
        content = _whole(path)
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
    if kind == "xml":
        _check_entities(content, path)
    try:
        return rdflib.Graph().parse(data=content if kind == "xml" else text, format=kind)
    except SAXParseException as problem:
        raise DataError(
            f"not valid RDF/XML ({problem.getMessage()})",
            "the file is truncated or of another format",
            file=path,
            line=problem.getLineNumber(),
        ) from None
    except MemoryError:
        raise
    # rdflib's parsers raise classes of their own, ValueError, and others: whatever it was, the file is at fault
    except Exception as problem:
        raise DataError(
            f"not valid {kind} ({_reason(problem)})",
            "the file is truncated or of another format",
            file=path,
            line=_line(problem),
        ) from None


_ENTITY = re.compile(rb"<!ENTITY\s+(%?)\s*([^\s%]+)\s+(?:\"([^\"]*)\"|'([^']*)')")


def _whole(path: Path) -> bytes:
    """All bytes of the file, decompressed; never more than the limits allow."""
    most = WHOLE.most()
    with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) if path.name.lower().endswith(".gz") else raw as file:
        pieces: list[bytes] = []
        made = 0
        while piece := file.read(1 << 20):
            pieces.append(piece)
            made += len(piece)
            if file is not raw:
                check_growth(raw.tell(), made, path)
            if made > most:
                WHOLE.check(made, "bytes or more", path)
    return b"".join(pieces)


def _check_entities(content: bytes, path: Path) -> None:
    """Entities of XML stand for text, and for other entities: a few lines can stand for more than any memory."""
    content = content.replace(b"\0", b"")  # of UTF-16
    lengths = {}
    for found in _ENTITY.finditer(content):
        parameter, name, value = found[1], found[2], found[3] if found[3] is not None else found[4]
        if parameter or re.search(rb"&(?!#)", value):
            raise DataError(
                f"the entity '{name.decode(errors='replace')[:40]}' is made of other entities",
                "write them out; an entity may only stand for text",
                file=path,
                line=content.count(b"\n", 0, found.start()) + 1,
            )
        lengths[name] = len(value)
    bytes_in_all = sum(content.count(b"&" + name + b";") * length for name, length in lengths.items())
    ENTITIES.check(bytes_in_all, "bytes by entities", path)


def _reason(problem: Exception) -> str:
    message = getattr(problem, "_why", None) or str(problem) or type(problem).__name__
    return " ".join(str(message).split())[:120]


def _line(problem: Exception) -> int | None:
    """The line that rdflib's Turtle parser names, from 1."""
    lines = getattr(problem, "lines", None)
    return lines + 1 if isinstance(lines, int) else None


def _notations(triples: Any) -> dict[str, str]:
    """The first notation of each concept that has one."""
    notations: dict[str, str] = {}
    for subject, value in sorted(triples.subject_objects(_uri(SKOS + "notation")), key=str):
        notations.setdefault(str(subject), str(value).strip())
    return notations


def _by_language(triples: Any, concepts: Sequence[str], properties: Iterable[str]) -> list[dict[str, list[str]]]:
    """Names of every concept by language code ("" for none), sorted, each once."""
    number = {concept: position for position, concept in enumerate(concepts)}
    names: list[dict[str, list[str]]] = [{} for _ in concepts]
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
