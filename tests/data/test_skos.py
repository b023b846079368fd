"""SKOS vocabularies: what becomes of names, languages, relations and deprecated concepts; and attaching one to
documents.
"""

from __future__ import annotations

import builtins
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset, Graph
from longtail.data.skos import read_skos
from longtail.data.vocabularies import Vocabulary, attach_vocabulary
from longtail.errors import ConfigError, DataError, MissingExtra

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix x: <http://example.org/voc/> .
x:p2 a skos:Concept ; skos:prefLabel "cats"@en , "kissat"@fi ; skos:altLabel "felines"@en , "house cats"@en , "mirri"@fi ; skos:hiddenLabel "kats"@en ;
  skos:broader x:p1 ; skos:related x:p3 ; skos:notation "C" .
x:p1 a skos:Concept ; skos:prefLabel "animals"@en , "eläimet"@fi ; skos:narrower x:p3 ; skos:notation "A" .
x:p3 a skos:Concept ; skos:prefLabel "dogs"@en-GB , "Hunde"@de ; skos:related x:p3 ; skos:altLabel "hounds" ; skos:notation "D" ; skos:broader x:gone .
x:p4 a skos:Concept ; skos:prefLabel "vain suomeksi"@fi , "bara svenska"@sv ; skos:notation "F" .
x:p5 a skos:Concept ; skos:notation "Z" .
x:gone a skos:Concept ; owl:deprecated true ; skos:prefLabel "old"@en ; skos:related x:p1 .
x:scheme a skos:ConceptScheme ; skos:prefLabel "not a label"@en .
"""
BASE = "http://example.org/voc/"


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    return read_skos(put(tmp_path / "voc.ttl", TURTLE))


def square(graph: Graph) -> Any:
    assert graph.label_label is not None
    return graph.label_label.toarray()


def test_names_languages_and_deprecated_concepts(vocabulary: Vocabulary) -> None:
    assert list(vocabulary.labels.uids) == [BASE + name for name in ("p1", "p2", "p3", "p4", "p5")]
    assert vocabulary.labels.fields == {
        "title": ["animals", "cats", "dogs", "vain suomeksi", ""],
        "other_names": ["", "felines; house cats; kats", "hounds", "", ""],
        "title_de": ["", "", "Hunde", "", ""],
        "title_en-gb": ["", "", "dogs", "", ""],
        "title_fi": ["eläimet", "kissat", "", "vain suomeksi", ""],
        "title_sv": ["", "", "", "bara svenska", ""],
    }
    assert vocabulary.repairs == {"deprecated concepts left out": 1}


def test_relations(vocabulary: Vocabulary) -> None:
    broader, related = np.zeros((5, 5)), np.zeros((5, 5))
    broader[1, 0] = broader[2, 0] = 1  # cats -> animals, and dogs by the inverse of narrower
    related[1, 2] = related[2, 1] = 1
    assert set(vocabulary.graphs) == {"broader", "related"}
    np.testing.assert_array_equal(square(vocabulary.graphs["broader"]), broader)
    np.testing.assert_array_equal(square(vocabulary.graphs["related"]), related)


def test_another_language(tmp_path: Path) -> None:
    labels = read_skos(put(tmp_path / "voc.ttl", TURTLE), language="FI").labels
    assert labels.fields["title"] == ["eläimet", "kissat", "Hunde", "vain suomeksi", ""]
    assert labels.fields["other_names"][1] == "mirri"
    assert labels.fields["title_en"][0] == "animals"
    assert "title_fi" not in labels.fields


def test_a_language_that_is_not_there_is_an_error_that_lists_those_that_are(tmp_path: Path) -> None:
    path = put(tmp_path / "voc.ttl", TURTLE)
    with pytest.raises(DataError, match=r"'es'; the languages are fi \(3\), en \(2\), de \(1\), en-gb \(1\), sv \(1\)"):
        read_skos(path, language="es")
    untagged = put(tmp_path / "plain.ttl", TURTLE.replace("@en-GB", "").replace('"@', '" , "x"@'))
    with pytest.raises(DataError, match=r"none said \(4\)"):
        read_skos(untagged, language="es")


def test_where_no_language_is_said_none_is_asked_for(tmp_path: Path) -> None:
    prefix = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    path = put(tmp_path / "plain.ttl", prefix + '<http://a/x> a skos:Concept ; skos:prefLabel "bees" .')
    assert read_skos(path, language="de").labels.fields["title"] == ["bees"]


def test_ids(tmp_path: Path) -> None:
    path = put(tmp_path / "voc.ttl", TURTLE)
    assert list(read_skos(path, uid="local").labels.uids) == ["p1", "p2", "p3", "p4", "p5"]
    notations = read_skos(path, uid="notation")
    assert list(notations.labels.uids) == ["A", "C", "D", "F", "Z"]
    assert notations.labels.fields["title"][2] == "dogs"
    assert square(notations.graphs["broader"])[1, 0] == 1


@pytest.mark.parametrize(("name", "format"), [("voc.rdf", "xml"), ("voc.nt", "nt"), ("voc.ttl.gz", "turtle")])
def test_formats_agree(tmp_path: Path, vocabulary: Vocabulary, name: str, format: str) -> None:
    import rdflib

    content = rdflib.Graph().parse(data=TURTLE, format="turtle").serialize(format=format, encoding="utf-8")
    same = read_skos(put(tmp_path / name, gzip.compress(content, mtime=0) if name.endswith("gz") else content))
    assert same.labels == vocabulary.labels
    np.testing.assert_array_equal(square(same.graphs["broader"]), square(vocabulary.graphs["broader"]))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("voc.ttl", "", ["no skos:Concept"]),
        (
            "voc.ttl",
            TURTLE + "x:p9 a skos:Concept ;;; nonsense",
            [f"line {TURTLE.count(chr(10)) + 1}", "not valid turtle"],
        ),
        ("voc.ttl", TURTLE.encode() + b'x:p9 skos:prefLabel "\xff" .', [f"line {TURTLE.count(chr(10)) + 1}", "UTF-8"]),
        (
            "voc.rdf",
            '<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n<open',
            ["line 3", "RDF/XML"],
        ),
        ("voc.nt", "<http://x/a> nonsense .\n", ["not valid nt"]),
        ("voc.ttl.gz", gzip.compress(TURTLE.encode(), mtime=0)[:-20], ["gzip"]),
        ("voc.ttl.gz", TURTLE, ["gzip"]),
        ("voc.docx", "", ["voc.docx", ".ttl"]),
    ],
)
def test_garbage_names_the_file_and_the_line(tmp_path: Path, name: str, content: str | bytes, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        read_skos(put(tmp_path / name, content))
    for word in [name, *words]:
        assert word in str(caught.value)
    assert caught.value.hint


def test_too_little_memory_is_not_said_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rdflib

    def too_large(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(rdflib.Graph, "parse", too_large)
    with pytest.raises(MemoryError):
        read_skos(put(tmp_path / "voc.ttl", TURTLE))


def test_files_that_are_not_there_and_ids_that_are_not_unique(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_skos(tmp_path / "nowhere.ttl")
    (tmp_path / "folder.ttl").mkdir()
    with pytest.raises(DataError, match=r"folder\.ttl"):
        read_skos(tmp_path / "folder.ttl")
    prefix = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    twice = put(tmp_path / "twice.ttl", prefix + "<http://a/x> a skos:Concept . <http://b/x> a skos:Concept .")
    with pytest.raises(DataError, match=r"a/x.*b/x.*'x'"):
        read_skos(twice, uid="local")
    with pytest.raises(DataError, match="no notation"):
        read_skos(twice, uid="notation")


def test_without_rdflib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("rdflib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"longtail\[skos\]"):
        read_skos(put(tmp_path / "voc.ttl", TURTLE))


# ---- attaching ----


@pytest.fixture
def documents() -> Dataset:
    """Labels p3 and p1 of the vocabulary, and one that it lacks, with graphs on both sides."""
    labels_side = csr_array(np.array([[1, 0], [0, 2], [3, 0]], dtype=np.float32))
    label_label = csr_array(np.array([[0, 5, 0], [0, 0, 6], [0, 0, 0]], dtype=np.float32))
    return Dataset.from_texts(
        ["a dog", "an animal", "a thing"],
        [["p3"], ["p1", "p3"], ["zzz"]],
        {"p3": "dog", "p1": "animal", "zzz": "thing"},
        {"anchors": (csr_array((3, 2)), labels_side), "near": label_label},
        test_texts=["things and dogs"],
        test_labels=[["zzz", "p3"]],
    )


def local(tmp_path: Path) -> Vocabulary:
    return read_skos(put(tmp_path / "voc.ttl", TURTLE), uid="local")


def test_unknown_labels_are_an_error_that_shows_both_kinds_of_id(
    tmp_path: Path, documents: Dataset, vocabulary: Vocabulary
) -> None:
    with pytest.raises(DataError, match=r"1 of 3 labels.*'zzz'.*'p1'"):
        attach_vocabulary(documents, local(tmp_path))
    with pytest.raises(DataError, match=r"3 of 3 labels.*'p3', 'p1', 'zzz'.*example\.org"):
        attach_vocabulary(documents, vocabulary)


def test_drop(tmp_path: Path, documents: Dataset) -> None:
    data = attach_vocabulary(documents, local(tmp_path), unknown="drop")
    assert list(data.labels.uids) == ["p1", "p2", "p3", "p4", "p5"]
    assert data.labels.fields["title"][2] == "dogs"
    np.testing.assert_array_equal(data.train.targets.toarray(), [[0, 0, 1, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(data.need_test().targets.toarray(), [[0, 0, 1, 0, 0]])
    assert data.repairs["labels of documents that the vocabulary lacks, dropped, such as 'zzz'"] == 2
    assert data.repairs["deprecated concepts left out"] == 1
    anchors: Any = data.graphs["anchors"].labels
    np.testing.assert_array_equal(anchors.toarray(), [[0, 2], [0, 0], [1, 0], [0, 0], [0, 0]])
    near = np.zeros((5, 5))
    near[2, 0] = 5
    np.testing.assert_array_equal(square(data.graphs["near"]), near)
    assert square(data.graphs["broader"]).shape == (5, 5)
    assert data.digest


def test_keep(tmp_path: Path, documents: Dataset) -> None:
    data = attach_vocabulary(documents, local(tmp_path), unknown="keep")
    assert list(data.labels.uids)[5:] == ["zzz"]
    assert data.labels.name(5) == "thing"
    assert data.repairs["labels that the vocabulary lacks, kept, such as 'zzz'"] == 1
    np.testing.assert_array_equal(data.train.targets.toarray()[2], [0, 0, 0, 0, 0, 1])
    assert square(data.graphs["broader"]).shape == (6, 6)
    assert square(data.graphs["near"])[0, 5] == 6


def test_masked_pairs_follow_their_labels(tmp_path: Path, documents: Dataset) -> None:
    from dataclasses import replace

    masked = replace(documents, train=replace(documents.train, masked=np.array([[0, 1], [1, 2]], dtype=np.int64)))
    data = attach_vocabulary(masked, local(tmp_path), unknown="drop")
    np.testing.assert_array_equal(data.train.masked, [[0, 0]])


def test_graph_names_may_not_clash(tmp_path: Path) -> None:
    data = Dataset.from_texts(["x"], [["p1"]], graphs={"broader": csr_array((1, 1))})
    with pytest.raises(ConfigError, match="broader"):
        attach_vocabulary(data, local(tmp_path))
