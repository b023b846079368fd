"""Data sets from files of Debian's packages: small ones in the same formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.data import __main__ as command
from benchmarks.data import debian, layout, packages, wordnet

from longtail.data.read import read

NOUNS = """  1 a line of the licence
00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | that which is
00000002 05 n 02 animal 0 animate_being 0 003 @ 00000001 n 0000 + 00000006 a 0101 ! 00000005 n 0101 | a living thing; \
"an animal ran by"; "another"
00000003 05 n 01 dog 0 003 @ 00000002 n 0000 #m 00000004 n 0000 ;c 00000004 n 0000 | it barks
00000004 14 n 01 pack 0 002 @ 00000001 n 0000 %m 00000003 n 0000 | many dogs
00000005 20 n 01 plant 0 001 @ 00000001 n 0000 | it grows
""".replace("\\\n", "")
VERBS = """00000003 38 v 01 run 0 001 @ 00000004 v 0000 02 + 02 00 + 22 00 | move fast
00000004 38 v 01 move 0 000 01 + 01 00 | go
"""
ADJECTIVES = "00000006 00 a 01 live 0 000 | living\n00000007 00 s 01 lively(p) 0 001 & 00000006 a 0000 | full of life\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part, lines in {"noun": NOUNS, "verb": VERBS, "adj": ADJECTIVES, "adv": ""}.items():
        (tmp_path / f"data.{part}").write_text(lines, encoding="latin-1")
    return tmp_path


def test_concepts_are_read_with_their_parts(folder: Path) -> None:
    known = wordnet.read_folder(folder)
    animal = known["00000002-n"]
    assert (animal.title, animal.examples) == ("animal, animate being - a living thing", '"an animal ran by" "another"')
    assert known["00000003-v"].frames == (2, 22)
    assert known["00000007-a"].words == ("lively",)
    assert known["00000007-a"].satellite


def test_labels_are_ancestors_of_two_steps_wholes_and_heads(folder: Path) -> None:
    source = wordnet.source_of(wordnet.read_folder(folder))
    assert source.pairs["00000003-n"] == {"00000002-n", "00000001-n", "00000004-n"}
    assert source.pairs["00000001-n"] == set(), "not what lies below"
    assert source.pairs["00000007-a"] == {"00000006-a"}
    lexical, category = source.graphs["lexical"], source.graphs["category"]
    assert lexical.of["00000002-n"] == ["00000005-n", "00000006-a"]
    assert category.of["00000003-n"] == ["domain::00000004-n", "lex::noun.animal"]
    assert category.titles["domain::00000004-n"] == "domain pack"
    assert category.titles["lex::noun.animal"] == "lex noun animal"


PACKAGES = """Package: editor
Source: tools (1.2)
Section: main/editors
Description: writes  text
Description-md5: 01
Recommends: spell (>= 2) | dictionary [amd64], missing
Suggests: manual:any
Depends: libc, editor
Tag: role::program, works-with::{text,
 mail}, special::auto

Package: spell
Description: finds faults
Enhances: editor
Section: text

Package: editor
Description: an older one

Package: dictionary
Description: many words

Package: manual
Description: how to write

Package: libc
Description: what all need
"""
TRANSLATION = "Package: editor\nDescription-md5: 01\nDescription-en: writes text\n It writes.\n .\n And reads.\n"
TAGS = "Facet: role\nDescription: Role\n\nTag: role::program\nDescription: A program\n long\n\n"


def test_packages_are_read_with_alternatives_and_tags() -> None:
    known = debian.packages(PACKAGES, TRANSLATION)
    assert known["editor"].synopsis == "writes text"
    assert known["editor"].description == "It writes. And reads."
    source = debian.source_of(known, debian.tag_names(TAGS), "")
    assert source.pairs["editor"] == {"spell", "dictionary", "missing", "manual"}
    assert source.graphs["depends"].of["editor"] == ["libc"]
    category = source.graphs["category"]
    assert category.of["editor"] == ["section::editors", "role::program", "works-with::mail", "works-with::text"]
    assert category.titles["role::program"] == "Role: A program"
    assert category.titles["works-with::text"] == "works-with: text"
    assert source.group("editor") == "src:tools"


def test_tags_are_labels_and_packages_of_a_source_stay_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Thirty sources of two packages each, and a tag that packages of test sources alone have."""
    sources = [f"source{number}" for number in range(30)]
    test = {source for source in sources if layout.place(f"split:src:{source}") < 0.2}
    assert 0 < len(test) < 30
    listed = [PACKAGES.strip()]
    for source in sources:
        extra = ", only::test" if source in test else ""
        fields = f"Description: part of {source}\nTag: role::program, uitoolkit::{{gtk,\n qt}}, special::auto{extra}\n"
        listed += [f"Package: {source}-{part}\nSource: {source} (1.0)\n{fields}" for part in "ab"]
    lists = {"main_binary-amd64_Packages": "\n\n".join(listed), "main_i18n_Translation-en": TRANSLATION}
    monkeypatch.setattr(debian, "read_list", lambda folder, kind: lists[kind])
    (tmp_path / "lists").mkdir()
    for out in ("one", "two"):
        assert command.main(["debian-tags", str(tmp_path / out), "--lists", str(tmp_path / "lists")]) == 0
    assert "another set than results were measured on" in capsys.readouterr().out
    found = read(tmp_path / "one")
    assert found.digest == read(tmp_path / "two").digest
    assert found.test is not None
    known = ["role::program", "uitoolkit::gtk", "uitoolkit::qt", "works-with::mail", "works-with::text"]
    assert list(found.labels.uids) == known, "neither special nor without training documents"
    assert list(found.labels.fields["title"]) == known
    training, testing = list(found.train.documents.uids), list(found.test.documents.uids)
    assert sorted(testing) == sorted(f"{source}-{part}" for source in test for part in "ab")
    assert len(training) == 2 * (30 - len(test)) + 1, "of the others only editor has tags"
    row = training.index("editor")
    assert found.train.documents.fields["title"][row] == "writes text"
    assert found.train.documents.fields["content"][row] == "It writes. And reads."
    assert found.test.targets.sum(axis=1).tolist() == [3.0] * len(testing)


def test_what_is_written_is_read_back_and_hides_what_gives_the_answer_away(tmp_path: Path) -> None:
    """a and b name each other; whichever is in training, the other is not asked for it."""
    documents = [f"d{number}" for number in range(40)]
    test = {uid for uid in documents if layout.place("split:" + uid) < layout.TEST_SHARE}
    (a, c, *_), (b, *_) = sorted(set(documents) - test), sorted(test)
    pairs: dict[str, set[str]] = {uid: {"shared", uid} for uid in documents}
    pairs[a].add(b)
    pairs[c].add(a)
    pairs[b] |= {a, "only in test"}
    names = [*documents, "shared", "only in test"]
    texts = {uid: layout.Text(f"title of {uid}", "") for uid in names}
    graph = layout.Links({uid: uid for uid in documents}, {uid: [a, b, "unknown"] for uid in documents}, documents=True)
    source = layout.Source(texts, pairs, {"seen": graph}, "made up")
    counts = layout.write(source, tmp_path / "one")
    found = read(tmp_path / "one")
    assert found.test is not None
    assert counts == {"training documents": 40 - len(test), "test documents": len(test), "labels": 3}
    assert sorted(found.labels.uids) == sorted([a, b, "shared"]), "a label needs a training document, and is not itself"
    row, label = list(found.test.documents.uids).index(b), list(found.labels.uids).index
    assert found.test.masked is not None
    assert found.test.masked.tolist() == [[row, label(a)], [row, label(b)]], "the reverse pair, and the document itself"
    assert found.test.targets.sum(axis=1).tolist() == [1.0] * len(test)
    anchors = found.graphs["seen"].anchors
    assert anchors is not None
    assert list(anchors.uids) == [a], "no test documents among anchors"
    again = layout.write(source, tmp_path / "two")
    assert again == counts
    same = [(tmp_path / side / "trn.json.gz").read_bytes() for side in ("one", "two")]
    assert same[0] == same[1]


def test_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(packages.CannotBuild, match="apt-get is missing; run this on Debian 12"):
        command.main(["wordnet-related", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(SystemExit):
        command.main(["wordnet-related", str(tmp_path / "out")])
    assert "exists already" in capsys.readouterr().err
    with pytest.raises(packages.CannotBuild, match="no list that ends in _debian_dists_bookworm_main"):
        packages.read_list(tmp_path, "main_binary-amd64_Packages")


def test_a_set_of_other_sources_is_said_to_be_another(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = layout.Source(
        {uid: layout.Text(uid, "") for uid in "abcdefgh"}, {uid: ["a", "b"] for uid in "abcdefgh"}, {}, "made up"
    )
    monkeypatch.setattr(wordnet, "build", lambda: source)
    assert command.main(["wordnet-related", str(tmp_path / "out")]) == 0
    assert "another set than results were measured on" in capsys.readouterr().out
    monkeypatch.setitem(command.MEASURED, "wordnet-related", read(tmp_path / "out").digest)
    assert command.main(["wordnet-related", str(tmp_path / "again")]) == 0
    assert "\nthe set that results were measured on" in capsys.readouterr().out
