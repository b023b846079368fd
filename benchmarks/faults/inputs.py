"""Files and texts that nobody would write, made by rules: readers must read them or say what is wrong with them.

A file begins as a good one of its format and is changed a few times: bytes, lines and cells are cut, doubled, swapped
or replaced by what has hurt programs before. Reading may succeed or raise a `LongtailError`; nothing else.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from longtail.data.inputs import read_documents
from longtail.data.read import read
from longtail.data.vocabularies import read_vocabulary
from longtail.errors import LongtailError

CSV = b'text,labels,id\n"a cat, here",cats|pets,1\na dog,dogs|pets,2\n"two ""quoted"" words",cats,3\nfish,fish,4\n'
JSONL = (
    b'{"text": "a cat", "labels": ["cats", "pets"], "id": 1}\n{"text": "a dog", "labels": ["dogs"]}\n'
    b'{"text": "", "labels": []}\n{"text": "\\u00e4 \\ud83d\\ude00", "labels": ["cats"]}\n'
)
SPARSE = b"3 5 4\n0,2 0:1.5 3:0.25\n1 1:1 2:2e-3\n3,0 4:1\n"
FASTTEXT = b"__label__cats __label__pets a cat\n__label__dogs a dog\n__label__fish fish in water\n"
ANNIF = b"a cat sat\t<http://a/cats> <http://a/pets>\na dog\t<http://a/dogs>\n"
TURTLE = (
    b"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n<http://a/cats> a skos:Concept ; "
    b'skos:prefLabel "cats"@en ; skos:altLabel "felines"@en ; skos:broader <http://a/pets> .\n'
    b'<http://a/pets> a skos:Concept ; skos:prefLabel "pets"@en .\n'
)
RDF = (
    b'<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    b'xmlns:skos="http://www.w3.org/2004/02/skos/core#">\n<skos:Concept rdf:about="http://a/cats">'
    b'<skos:prefLabel xml:lang="en">cats</skos:prefLabel></skos:Concept>\n</rdf:RDF>\n'
)
LABELS = b"<http://a/cats>\tcats\n<http://a/dogs>\tdogs\n"
TOKENS = (
    *(b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80", b"\r", b"\r\n", b"\n", b"\n\n", b"\t"),
    *(b'"', b'""', b"'", b",", b";", b"|", b":", b"{", b"}", b"[", b"]", b"[[[[[[[[", b"<", b">", b"&amp;", b"&x;"),
    *(b"-1", b"0", b"1e999", b"nan", b"inf", b"-0", b"2147483648", b"99999999999999999999", b"9" * 400, b"0x1", b"1_0"),
    *(b"null", b"true", b"NaN", b'"\\ud800"', b'"\\u0000"', b"\xe2\x80\xa8", b"\x85", b"\x1a", b"__label__", b"text,"),
    *(b"labels", b"#", b"<!DOCTYPE a>", b"]]>", b"@prefix", b"=cmd()", b" ", b"  ", b"a" * 5000, b"\xf0\x9f\x98\x80"),
)


def _data(path: Path) -> None:
    read(path)


def _documents(path: Path) -> None:
    read_documents(str(path))


def _vocabulary(path: Path) -> None:
    read_vocabulary(path)


FORMATS: Mapping[str, tuple[bytes, Callable[[Path], Any]]] = {
    "data.csv": (CSV, _data),
    "data.tsv": (CSV.replace(b",", b"\t"), _data),
    "data.jsonl": (JSONL, _data),
    "data.txt": (SPARSE, _data),
    "fast.txt": (FASTTEXT, _data),
    "annif.tsv": (ANNIF, _data),
    "asked.csv": (CSV, _documents),
    "asked.jsonl": (JSONL, _documents),
    "asked.txt": (b"a cat\na dog\n\n\xc3\xa4 fish\n", _documents),
    "data.csv.gz": (CSV, _data),
    "asked.jsonl.gz": (JSONL, _documents),
    "subjects.tsv": (LABELS, _vocabulary),
    "subjects.csv": (b"uri,label_en\nhttp://a/cats,cats\nhttp://a/dogs,dogs\n", _vocabulary),
    "skos.ttl": (TURTLE, _vocabulary),
    "skos.rdf": (RDF, _vocabulary),
}
# Formats that take ten times as long as others: met less often.
SLOW = {"skos.ttl", "skos.rdf"}


def changed(content: bytes, chance: random.Random) -> bytes:
    """One to four changes."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        place = chance.randrange(len(content) + 1)
        end = min(len(content), place + chance.choice((0, 1, 1, 2, 8, 40)))
        way = chance.randrange(8)
        if way == 0:
            content = content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]
        elif way == 1:
            content = content[:place] + content[end:]
        elif way == 2:
            content = content[:place] + content[place:end] * chance.choice((2, 3, 50)) + content[end:]
        elif way == 3:
            content = content[:place]
        elif way == 4:
            lines = content.split(b"\n")
            chance.shuffle(lines)
            content = b"\n".join(lines)
        else:
            content = content[:place] + chance.choice(TOKENS) + content[end:]
    return content


class Readers:
    """Files of all formats, in one folder that should lie in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def attempt(self, seed: int) -> str:
        """ "" where nothing is wrong; else what is."""
        name, content = self.made(seed)
        path = self.folder / name
        path.write_bytes(content)
        try:
            FORMATS[name][1](path)
        except LongtailError:
            pass
        except Exception as problem:
            return f"{name}: {type(problem).__name__} {problem}: {content[:300]!r}"
        return ""

    def made(self, seed: int) -> tuple[str, bytes]:
        chance = random.Random(seed)
        name = chance.choice(sorted(FORMATS))
        if name in SLOW and chance.random() < 0.9:
            name = "data.csv"
        content = FORMATS[name][0]
        if not name.endswith(".gz"):
            return name, changed(content, chance)
        if chance.random() < 0.5:
            return name, gzip.compress(changed(content, chance), 1, mtime=0)
        return name, changed(gzip.compress(content, 1, mtime=0), chance)


ALPHABETS = (
    "catdogbird ",
    "\x00\t\n\r\x85\u2028",
    "\ud800\udfff",
    "\u0301\u0489\u200d",
    "漢字かな한글",
    "😀👩‍👧",
    "ﬁßİςΣ",
    '"<>&{}[]\\',
)


def texts(seed: int, count: int) -> list[str]:
    """Texts of one to a few hundred characters, of alphabets that have hurt programs before; some very long."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        letters = "".join(chance.sample(ALPHABETS, chance.choice((1, 1, 2, 3)))) + "cat dog "
        length = chance.choice((0, 1, 3, 10, 10, 30, 30, 100, 300))
        found.append("".join(chance.choices(letters, k=length)))
    if not seed % 50:
        found[0] = "cat " * 50_000
    return found
