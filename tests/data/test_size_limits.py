"""Small files that stand for very much are refused before they take the memory, with the limit and how to raise it."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from longtail.data import size_limits as limits
from longtail.data.inputs import read_documents
from longtail.data.lines import line_blocks
from longtail.data.matrices import read_vectors
from longtail.data.read import read
from longtail.data.vocabularies import read_vocabulary
from longtail.errors import ConfigError, DataError

LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
RDF = (
    '<?xml version="1.0"?><!DOCTYPE rdf:RDF [<!ENTITY a0 "ha">{more}]><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/'
    '22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#"><skos:Concept rdf:about="http://a/b">'
    "<skos:prefLabel>{text}</skos:prefLabel></skos:Concept></rdf:RDF>"
)


def sparse(path: Path) -> None:
    (path / "data.txt").write_text("2 3 200000000\n0 0:1\n1 1:1\n")
    read(path / "data.txt")


def npz(path: Path) -> None:
    from scipy.sparse import csr_array, save_npz

    save_npz(path / "trn_Y.npz", csr_array((np.ones(1), (np.zeros(1, int), np.zeros(1, int))), shape=(2, 200_000_000)))
    save_npz(path / "trn_X.npz", csr_array(np.eye(2)))
    read(path)


def _repeated(path: Path) -> Path:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    text = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(30_000, np.int32)), arrow.array(["honey " * 3000]))
    parquet.write_table(arrow.table({"title": text, "labels": ["bees"] * 30_000}), path, compression="zstd")
    return path


def parquet_data(path: Path) -> None:
    read(_repeated(path / "a.parquet"))


def parquet_documents(path: Path) -> None:
    read_documents(str(_repeated(path / "a.parquet")))


def parquet_columns(path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({f"c{n}": ["a"] for n in range(3000)}), path / "a.parquet")
    read(path / "a.parquet")


def zeros(path: Path) -> None:
    from scipy.sparse import csr_array, save_npz

    ones = csr_array((np.ones(30_000_000, np.float32), np.zeros(30_000_000, np.int32), [0, 30_000_000]), shape=(1, 1))
    save_npz(path / "a.npz", ones)
    read_vectors(path / "a.npz")


def columns(path: Path) -> None:
    names = [f"c{n}" for n in range(30_000)]
    (path / "data.csv").write_text(",".join(["text", "labels", *names]) + "\n" + "a,b" + ",x" * 30_000 + "\n")
    read(path / "data.csv")


def fields(path: Path) -> None:
    with gzip.open(path / "lbl.json.gz", "wt") as file:
        file.writelines(json.dumps({"uid": str(n), "title": "a", f"f{n}": "x"}) + "\n" for n in range(3000))
    with gzip.open(path / "trn.json.gz", "wt") as file:
        file.write(json.dumps({"uid": "1", "title": "a", "target_ind": [0]}) + "\n")
    read(path)


def one_line(path: Path) -> None:
    with gzip.open(path / "a.txt.gz", "wb", 1) as file:
        for _ in range(400):
            file.write(b"a" * (1 << 20))
    read_documents(str(path / "a.txt.gz"))


def newlines(path: Path) -> None:
    with gzip.open(path / "a.txt.gz", "wb", 9) as file:
        for _ in range(400):
            file.write(b"\n" * (1 << 20))
    for _ in line_blocks(path / "a.txt.gz"):
        pass


def laughs(path: Path) -> None:
    (path / "a.rdf").write_text(RDF.format(more=LAUGHS, text="&a9;"))
    read_vocabulary(path / "a.rdf")


def long_entity(path: Path) -> None:
    (path / "a.rdf").write_text(RDF.format(more=f'<!ENTITY b "{"b" * 100_000}">', text="&b;" * 10_000))
    read_vocabulary(path / "a.rdf")


def in_utf16(path: Path) -> None:
    (path / "a.rdf").write_bytes(
        RDF.format(more=LAUGHS, text="&a9;").replace("?>", ' encoding="UTF-16"?>', 1).encode("utf-16")
    )
    read_vocabulary(path / "a.rdf")


def packed_vocabulary(path: Path) -> None:
    with gzip.open(path / "a.ttl.gz", "wb", 9) as file:
        for _ in range(400):
            file.write(b" " * (1 << 20))
    read_vocabulary(path / "a.ttl.gz")


BOMBS: dict[str, tuple[Callable[[Path], None], str]] = {
    "sparse": (sparse, "LONGTAIL_MOST_ITEMS"),
    "npz": (npz, "LONGTAIL_MOST_ITEMS"),
    "parquet_data": (parquet_data, "LONGTAIL_MOST_GROWTH"),
    "parquet_documents": (parquet_documents, "LONGTAIL_MOST_GROWTH"),
    "parquet_columns": (parquet_columns, "LONGTAIL_MOST_COLUMNS"),
    "zeros": (zeros, "LONGTAIL_MOST_GROWTH"),
    "columns": (columns, "LONGTAIL_MOST_COLUMNS"),
    "fields": (fields, "LONGTAIL_MOST_COLUMNS"),
    "one_line": (one_line, "LONGTAIL_"),
    "newlines": (newlines, "LONGTAIL_MOST_GROWTH"),
    "laughs": (laughs, "write them out"),
    "in_utf16": (in_utf16, "write them out"),
    "long_entity": (long_entity, "LONGTAIL_MOST_ENTITIES"),
    "packed_vocabulary": (packed_vocabulary, "LONGTAIL_MOST_GROWTH"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_small_files_that_stand_for_much_are_refused(bomb: str, tmp_path: Path) -> None:
    make, hint = BOMBS[bomb]
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(DataError) as problem:
        make(tmp_path)
    assert hint in problem.value.hint
    assert time.process_time() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 900_000, "kilobytes"


def test_a_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ",".join(f"c{n}" for n in range(2500))
    (tmp_path / "a.csv").write_text(f"text,labels,{names}\na,b{',x' * 2500}\n")
    with pytest.raises(DataError, match="2,502 columns, and 2,000 are the limit"):
        read(tmp_path / "a.csv", text="text", labels="labels")
    monkeypatch.setenv("LONGTAIL_MOST_COLUMNS", "3000")
    assert len(read(tmp_path / "a.csv", text="text", labels="labels").labels) == 1
    monkeypatch.setenv("LONGTAIL_MOST_COLUMNS", "many")
    with pytest.raises(ConfigError, match="LONGTAIL_MOST_COLUMNS is 'many'"):
        read(tmp_path / "a.csv", text="text", labels="labels")


def test_what_is_usual_passes(tmp_path: Path) -> None:
    (tmp_path / "a.rdf").write_text(RDF.format(more='<!ENTITY skos "http://a/">', text="&a0; &amp; &#228;"))
    assert list(read_vocabulary(tmp_path / "a.rdf").labels.fields["title"]) == ["ha & ä"]
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(b"the same line again\n" * 500_000)  # compresses 200 times and more, but is small
    assert sum(len(lines) for _, lines in line_blocks(tmp_path / "a.txt.gz")) == 500_000


def test_reading_stays_in_its_memory(tmp_path: Path) -> None:
    """With less memory than the file would take it is refused all the same."""
    with gzip.open(tmp_path / "a.csv.gz", "wb", 9) as file:
        file.write(b"text,labels\n")
        for _ in range(1000):
            file.write(b"," * (1 << 20))
    program = (
        "import resource, sys; from longtail.data.read import read; from longtail.errors import DataError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "try: read(sys.argv[1])\n"
        "except DataError as problem: print(problem.hint)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.csv.gz")], capture_output=True, text=True, check=False
    )
    assert "LONGTAIL_" in done.stdout, done.stderr[-800:]


def test_limits_are_named_in_the_documents() -> None:
    page = Path("docs/data-formats.md").read_text()
    for limit in (limits.PROMISED, limits.COLUMNS, limits.LINE, limits.GROWTH, limits.WHOLE, limits.ENTITIES):
        assert limit.variable in page
