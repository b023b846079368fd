"""One door to all vocabularies; and `read` with one: its labels are there before labels of test are filtered."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from longtail.data.dataset import Dataset
from longtail.data.read import read, write
from longtail.data.vocabularies import Unknown, attach_vocabulary, read_vocabulary
from longtail.errors import ConfigError, DataError

E = "http://example.org/"
TSV = f"<{E}bees>\tbees\n<{E}roses>\troses\tR1\n<{E}soil>\tsoil\n"
CSV = f"uri,label_en,label_fi,notation\n{E}bees,bees,mehiläiset,B\n<{E}roses>,roses,ruusut,R\n{E}soil,,maaperä,S\n"
TURTLE = (
    "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    f'<{E}bees> a skos:Concept ; skos:prefLabel "bees"@en ; skos:broader <{E}soil> .\n'
    f'<{E}roses> a skos:Concept ; skos:prefLabel "roses"@en .\n<{E}soil> a skos:Concept ; skos:prefLabel "soil"@en .\n'
)
CORPUS = f"keeping bees\t<{E}bees>\npruning\t<{E}bees> <{E}other>\n"
TEST = f"old roses\t<{E}roses> <{E}nowhere>\nlost\t<{E}nowhere>\nhives\t<{E}bees> <{E}other>\n"


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, content in {"voc.tsv": TSV, "voc.csv": CSV, "voc.ttl": TURTLE, "c.tsv": CORPUS, "t.tsv": TEST}.items():
        put(tmp_path / name, content)
    return tmp_path


# ---- reading ----


@pytest.mark.parametrize("name", ["voc.tsv", "voc.csv", "voc.ttl"])
def test_all_formats_go_through_one_door(files: Path, name: str) -> None:
    labels = read_vocabulary(files / name).labels
    assert list(labels.uids) == [E + "bees", E + "roses", E + "soil"]
    assert labels.fields["title"][:2] == ["bees", "roses"]
    assert labels.fields["other_names"] == ["", "", ""]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_byte_order_marks_line_ends_and_gzip(tmp_path: Path, mark: bytes, end: str, packed: bool) -> None:
    for name, content in (("voc.tsv", TSV + "\n\n"), ("voc.csv", CSV)):
        raw = mark + content.replace("\n", end).encode()
        path = put(tmp_path / (name + ".gz" * packed), gzip.compress(raw) if packed else raw)
        labels = read_vocabulary(path, "en").labels
        assert list(labels.uids) == [E + "bees", E + "roses", E + "soil"]
        assert labels.fields["title"][:2] == ["bees", "roses"]


def test_a_concept_without_any_name_is_deprecated(tmp_path: Path) -> None:
    vocabulary = read_vocabulary(put(tmp_path / "voc.csv", CSV + f"{E}old,,,O\n"))
    assert list(vocabulary.labels.uids) == [E + "bees", E + "roses", E + "soil"]
    assert vocabulary.repairs == {"deprecated concepts left out": 1}


def test_languages_and_ids_of_a_csv(files: Path) -> None:
    labels = read_vocabulary(files / "voc.csv", "fi", uid="notation").labels
    assert list(labels.uids) == ["B", "R", "S"]
    assert labels.fields["title"] == ["mehiläiset", "ruusut", "maaperä"]
    assert labels.fields["title_en"] == ["bees", "roses", ""]
    with pytest.raises(DataError, match=r"voc\.csv: no concept has a name in the language 'de'.* fi \(3\), en \(2\)"):
        read_vocabulary(files / "voc.csv", "de")
    assert read_vocabulary(files / "voc.tsv", "de", uid="local").labels.uids == ["bees", "roses", "soil"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("voc.tsv", TSV + f"<{E}x> x\n", ["line 4", "a tab and a name"]),
        ("voc.tsv", TSV + f"<{E}x>\t \n", ["line 4", "a tab and a name"]),
        ("voc.tsv", "uri\tlabel\n", ["line 1", "'uri' is not a URI"]),
        ("voc.tsv", TSV + f"<{E}a b>\tx\n", ["line 4", "is not a URI"]),
        ("voc.tsv", TSV + f"<{E}bees>\tmehiläiset\n", ["line 4", "stands on line 1", "label_fi"]),
        ("voc.tsv", "", ["no concepts"]),
        ("voc.tsv", TSV.encode() + b"<x>\t\xff\n", ["line 4", "UTF-8"]),
        ("voc.csv", "", ["the file is empty"]),
        ("voc.csv", "uri,label_en\n", ["no concepts"]),
        ("voc.csv", "uid,title\na,b\n", ["line 1", "uid, title", "--label-texts"]),
        ("voc.csv", CSV + "roses,roses,,\n", ["line 5", "'roses' is not a URI"]),
        ("voc.csv", CSV + "x,y\n", ["line 5", "2 columns"]),
        ("voc.csv", CSV + f"{E}bees,bees,,\n", ["line 5", "stands on line 2"]),
        ("voc.txt", "", ["voc.txt", ".ttl", ".tsv"]),
        ("voc.ttl", "", ["no skos:Concept"]),
    ],
)
def test_garbage_names_the_file_and_the_line(tmp_path: Path, name: str, content: str | bytes, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        read_vocabulary(put(tmp_path / name, content))
    for word in [name, *words]:
        assert word in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("no.tsv", "no.csv", "no.ttl"):
        with pytest.raises(DataError, match=name):
            read_vocabulary(tmp_path / name)


# ---- attaching ----


@pytest.mark.parametrize("name", ["voc.tsv", "voc.csv", "voc.ttl"])
def test_labels_that_only_test_and_vocabulary_know_stay_in_the_truth(files: Path, name: str) -> None:
    data = read(files / "c.tsv", test_file=files / "t.tsv", vocabulary=files / name, unknown="drop")
    assert list(data.labels.uids) == [E + "bees", E + "roses", E + "soil"]
    test = data.need_test()
    assert test.documents.fields["text"] == ["old roses", "hives"]
    np.testing.assert_array_equal(test.targets.toarray(), [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 0, 0], [1, 0, 0]])
    assert data.repairs == {
        "test documents that lose all their labels, left out": 1,
        f"labels of documents that the vocabulary lacks, dropped, such as '{E}other', '{E}nowhere'": 4,
    }
    assert set(data.graphs) == ({"broader"} if name == "voc.ttl" else set())


def test_unknown_labels_are_an_error_by_default_also_those_of_test_alone(files: Path) -> None:
    with pytest.raises(DataError, match=rf"2 of 4 labels are not .*: '{E}other', '{E}nowhere'; .*{E}bees"):
        read(files / "c.tsv", test_file=files / "t.tsv", vocabulary=files / "voc.tsv")
    with pytest.raises(DataError, match="1 of 2 labels"):
        read(files / "c.tsv", vocabulary=files / "voc.tsv")


def test_kept_labels_are_those_of_training(files: Path) -> None:
    data = read(files / "c.tsv", test_file=files / "t.tsv", vocabulary=files / "voc.tsv", unknown="keep")
    assert list(data.labels.uids)[3:] == [E + "other"]
    np.testing.assert_array_equal(data.need_test().targets.toarray(), [[0, 1, 0, 0], [1, 0, 0, 1]])
    assert data.repairs["test documents that lose all their labels, left out"] == 1
    assert data.repairs[f"labels that the vocabulary lacks, kept, such as '{E}other'"] == 1
    assert data.repairs[f"labels of documents that the vocabulary lacks, dropped, such as '{E}nowhere'"] == 2


def test_training_and_evaluation_have_the_same_labels(files: Path) -> None:
    alone = read(files / "c.tsv", test=False, vocabulary=files / "voc.tsv", unknown="drop")
    both = read(files / "c.tsv", test_file=files / "t.tsv", vocabulary=files / "voc.tsv", unknown="drop")
    assert alone.test is None
    assert alone.digest == both.digest.partition("+")[0]


def test_documents_without_labels_from_the_start_stay(files: Path) -> None:
    put(files / "c.csv", f"text,labels\nkeeping bees,{E}bees\n")
    put(files / "t.csv", f"text,labels\nnone,\nlost,{E}nowhere\nhives,{E}bees\n")
    data = read(files / "c.csv", test_file=files / "t.csv", vocabulary=files / "voc.tsv", unknown="drop")
    assert data.need_test().documents.fields["text"] == ["none", "hives"]


def test_folders_whose_labels_have_numbers_take_a_vocabulary(files: Path) -> None:
    data = Dataset.from_texts(
        ["keeping bees", "pruning"],
        [[E + "bees"], [E + "other"]],
        test_texts=["hives", "lost"],
        test_labels=[[E + "bees"], [E + "other"]],
    )
    write(data, files / "lf", "lf")
    found = read(files / "lf", vocabulary=files / "voc.csv", language="fi", unknown="drop")
    assert found.labels.fields["title"] == ["mehiläiset", "ruusut", "maaperä"]
    assert found.need_test().documents.fields["title"] == ["hives"]
    assert found.repairs["test documents that lose all their labels, left out"] == 1


def test_where_nothing_fits_dropping_everything_is_an_error(files: Path) -> None:
    put(files / "c.csv", "text,labels\nx,a\n")
    with pytest.raises(DataError, match=f"1 of 1 labels.*'a'.*{E}bees"):
        read(files / "c.csv", vocabulary=files / "voc.tsv", unknown="drop")
    lost = put(files / "u.tsv", f"x\t<{E}z>\n")
    with pytest.raises(DataError, match="no test document"):
        read(files / "c.tsv", test_file=lost, vocabulary=files / "voc.tsv", unknown="drop")


def test_labels_may_be_names_or_other_ids(files: Path) -> None:
    put(files / "c.csv", "text,labels\nhives,Bees\ngarden,soil|roses\n")
    data = read(files / "c.csv", vocabulary=files / "voc.tsv")
    np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 0, 0], [0, 1, 1]])
    assert data.repairs == {"labels found in the vocabulary by name, not by id": 3}
    local = read(files / "c.csv", vocabulary=files / "voc.tsv", vocabulary_ids="local")
    assert local.repairs == {"labels found in the vocabulary by name, not by id": 1}
    twice = put(files / "twice.tsv", TSV + f"<{E}hive>\tbees\n")
    with pytest.raises(DataError, match=r"1 of 3 labels.*'Bees'"):
        read(files / "c.csv", vocabulary=twice)


def test_a_policy_that_does_not_exist(files: Path) -> None:
    policy: Unknown = "ignore"  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"(?s)'ignore'.*error, drop, keep"):
        attach_vocabulary(read(files / "c.tsv"), read_vocabulary(files / "voc.tsv"), policy)
