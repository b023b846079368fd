"""The embedded sample: its builder on a small planted dictionary, the files that ship, and their way out to the
user.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.sparse import load_npz

from longtail.data.read import sample_folder, write_sample
from longtail.errors import DataError, RunError

BUILDER = Path(__file__).parents[2] / "scripts" / "build_sample.py"
FILES = {
    "LICENSE.wordnet",
    "README.txt",
    "trn.json.gz",
    "tst.json.gz",
    "lbl.json.gz",
    "filter_labels_trn.txt",
    "filter_labels_tst.txt",
    *(
        f"graphs/{graph}/{file}"
        for graph in ("category", "lexical")
        for file in ("anchors.json.gz", "trn.npz", "lbl.npz", "meta.json")
    ),
}


def load_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_sample", BUILDER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_sample"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


builder = load_builder()


# ---- a planted dictionary ----


@dataclass(frozen=True)
class Entry:
    """side: on which side of the split its uid shall fall; '' where it is no document and the side does not matter."""

    name: str
    pos: str
    file: int
    side: str
    definition: str
    pointers: list[tuple[str, str]] = field(default_factory=list)
    words: tuple[str, ...] = ()
    frames: tuple[int, ...] = ()
    examples: str = ""


TOPS, ACT, ANIMAL, ARTIFACT, GROUP, PERSON, MOTION = 3, 4, 5, 6, 14, 18, 38
PERTAINYM, ADVERB, ALL_ADJECTIVES = 1, 2, 0

ENTRIES = [
    Entry("thing", "n", TOPS, "", "that which is"),
    Entry("transport", "n", ACT, "", "moving things about"),
    Entry("rider", "n", PERSON, "", "one who rides", [("+", "ride")]),
    Entry(
        "vehicle",
        "n",
        ARTIFACT,
        "trn",
        "a conveyance that carries people",
        [("@", "thing"), ("~", "cycle"), ("!", "wheel")],
    ),
    Entry(
        "cycle",
        "n",
        ARTIFACT,
        "trn",
        "a vehicle on wheels",
        [("@", "vehicle"), (";c", "bicycle"), (";c", "transport")],
        words=("cycle", "wheeled_cycle"),
    ),
    Entry(
        "bicycle",
        "n",
        ARTIFACT,
        "tst",
        "two wheels and pedals",
        [("@", "cycle"), ("+", "ride"), ("%p", "wheel")],
        examples='; "he rode it"; "so did she"',
    ),
    Entry(
        "tricycle",
        "n",
        ARTIFACT,
        "trn",
        "a cycle for children: three wheels",
        [("@", "cycle")],
        examples=': "it never falls"',
    ),
    Entry("wheel", "n", ARTIFACT, "trn", "a ring that turns", [("@", "thing"), ("#p", "bicycle"), ("!", "vehicle")]),
    # the words of a test document under another number
    Entry("twin", "n", ARTIFACT, "trn", "Two  wheels and pedals", [("@", "vehicle"), ("+", "ride")]),
    Entry("rarity", "n", ARTIFACT, "", "seldom seen"),
    Entry("orphan", "n", ARTIFACT, "tst", "its only label has no training document", [("@", "rarity")]),
    Entry("screen", "n", ARTIFACT, "trn", "the front of a set", [("@", "television")]),
    Entry(
        "television", "n", ARTIFACT, "trn", "shows moving pictures", [("@", "thing")], words=("boob_tube", "television")
    ),
    Entry("slur", "n", ARTIFACT, "trn", "an offensive term for a vehicle", [("@", "vehicle")]),
    Entry("coarse", "n", ARTIFACT, "trn", "a thing without a clean word", [("@", "vehicle")], words=("dog_turd",)),
    Entry("named", "n", ARTIFACT, "trn", "one famous vehicle", [("@i", "vehicle")]),
    Entry("taxon", "n", GROUP, "", "animals or plants of a kind", words=("taxonomic_group",)),
    Entry("genus", "n", GROUP, "", "a taxon below the family", [("@", "taxon")]),
    Entry("Felis", "n", ANIMAL, "trn", "type genus of the cats", [("@", "genus")]),
    Entry("feline", "n", ANIMAL, "trn", "lithe and furry"),
    Entry("cat", "n", ANIMAL, "trn", "a feline that lives with people", [("@", "feline"), ("#m", "Felis")]),
    Entry("go", "v", MOTION, "trn", "change place"),
    Entry(
        "ride",
        "v",
        MOTION,
        "trn",
        "be carried",
        [("@", "go"), ("$", "drive"), ("+", "bicycle"), ("+", "rider"), ("+", "twin")],
        frames=(8, 2),
    ),
    Entry("drive", "v", MOTION, "tst", "carry and steer", [("@", "go"), ("$", "ride")], frames=(8,)),
    Entry("trot", "v", MOTION, "trn", "ride at a middle pace", [("@", "ride")]),
    # the only pair of this test document has been given away by its reverse
    Entry("follow", "v", MOTION, "tst", "come behind", [("^", "lead")]),
    Entry("lead", "v", MOTION, "trn", "come before", [("^", "follow")]),
    Entry("guide", "v", MOTION, "trn", "lead with care", [("@", "lead")]),
    Entry("cyclic", "a", PERTAINYM, "", "of a cycle", [("\\", "cycle")], words=("cyclic(a)",)),
    Entry("feral", "s", ALL_ADJECTIVES, "", "wild", [("<", "go")]),
    Entry("swiftly", "r", ADVERB, "", "in little time"),
]

TRAIN = {
    "vehicle": {"thing"},
    "cycle": {"vehicle", "thing"},
    "tricycle": {"cycle", "vehicle"},
    "wheel": {"thing", "bicycle"},
    "screen": {"television", "thing"},
    "television": {"thing"},
    "cat": {"feline"},
    "ride": {"go", "drive"},
    "trot": {"ride", "go"},
    "lead": {"follow"},
    "guide": {"lead"},
}
TEST = {"bicycle": {"cycle", "vehicle"}, "drive": {"go"}}


def falls_on(uid: str) -> str:
    return "tst" if int(hashlib.sha256(uid.encode()).hexdigest()[:12], 16) / 2**48 < 0.2 else "trn"


def number_entries() -> dict[str, str]:
    """name -> offset: increasing, and on the side of the split that the entry asks for."""
    offsets: dict[str, str] = {}
    offset = 1000
    for entry in ENTRIES:
        offset += 1
        while entry.side and falls_on(f"{offset:08d}-{entry.pos}") != entry.side:
            offset += 1
        offsets[entry.name] = f"{offset:08d}"
    return offsets


OFFSETS = number_entries()
POS = {entry.name: entry.pos for entry in ENTRIES}
NAMES = {f"{OFFSETS[name]}-{'a' if pos == 's' else pos}": name for name, pos in POS.items()}
LICENCE = (
    "  1 This software and database is being provided to you  \n  2   \n  3 WordNet 3.0 Copyright 2006 by "
    "Princeton University.  All rights reserved.  \n"
)


def as_line(entry: Entry) -> str:
    words = entry.words or (entry.name,)
    fields = [OFFSETS[entry.name], f"{entry.file:02d}", entry.pos, f"{len(words):02x}"]
    for word in words:
        fields += [word, "0"]
    fields.append(f"{len(entry.pointers):03d}")
    for symbol, target in entry.pointers:
        fields += [symbol, OFFSETS[target], POS[target], "0000"]
    if entry.pos == "v":
        fields.append(f"{len(entry.frames):02d}")
        for frame in entry.frames:
            fields += ["+", f"{frame:02d}", "00"]
    return f"{' '.join(fields)} | {entry.definition}{entry.examples}  \n"


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    folder = tmp_path / "dict"
    folder.mkdir()
    for part, pos in (("noun", "n"), ("verb", "v"), ("adj", "as"), ("adv", "r")):
        (folder / f"data.{part}").write_text(
            LICENCE + "".join(as_line(entry) for entry in ENTRIES if entry.pos in pos), encoding="utf-8"
        )
    return folder


def run_builder(dictionary: Path, out: Path) -> int:
    code = builder.main(["--dict", str(dictionary), "--out", str(out)])
    assert isinstance(code, int)
    return code


@pytest.fixture
def built(dictionary: Path, tmp_path: Path) -> Path:
    out = tmp_path / "built"
    assert run_builder(dictionary, out) == 0
    return out


# ---- reading it back, without the readers of longtail ----


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def targets_by_name(folder: Path, side: str) -> dict[str, set[str]]:
    labels = [NAMES[label["uid"]] for label in rows(folder / "lbl.json.gz")]
    return {
        NAMES[row["uid"]]: {labels[index] for index in row["target_ind"]} for row in rows(folder / f"{side}.json.gz")
    }


def pairs(path: Path) -> list[tuple[int, int]]:
    return [
        (int(row), int(label))
        for row, label in (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    ]


def masked_by_name(folder: Path, side: str) -> set[tuple[str, str]]:
    labels, documents = rows(folder / "lbl.json.gz"), rows(folder / f"{side}.json.gz")
    return {
        (NAMES[documents[row]["uid"]], NAMES[labels[label]["uid"]])
        for row, label in pairs(folder / f"filter_labels_{side}.txt")
    }


def edges_by_name(folder: Path, graph: str, side: str) -> dict[str, set[str]]:
    """Rows with edges only; anchors of the lexical graph by name, others by uid."""
    anchors = [NAMES.get(anchor["uid"], anchor["uid"]) for anchor in rows(folder / f"graphs/{graph}/anchors.json.gz")]
    matrix = load_npz(folder / f"graphs/{graph}/{side}.npz").tocsr()
    items = [NAMES[row["uid"]] for row in rows(folder / f"{side}.json.gz")]
    assert matrix.shape == (len(items), len(anchors))
    found = {name: {anchors[column] for column in matrix[[index]].indices} for index, name in enumerate(items)}
    return {name: edges for name, edges in found.items() if edges}


# ---- the builder ----


def test_two_builds_give_the_same_bytes(dictionary: Path, tmp_path: Path) -> None:
    results = []
    for seed in ("1", "2"):  # the order of sets depends on it; bytes must not
        out = tmp_path / f"out{seed}"
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(BUILDER.parents[1] / "src")}
        subprocess.run(
            [sys.executable, BUILDER, "--dict", dictionary, "--out", out],
            check=True,
            env=environment,
            capture_output=True,
        )
        results.append(files_in(out))
    assert set(results[0]) == FILES
    assert results[0] == results[1]


def test_files_carry_no_clock(built: Path) -> None:
    for path in built.rglob("*.gz"):
        head = path.read_bytes()[:10]
        assert head[4:8] == bytes(4), f"{path} holds a time"
        assert head[3] == 0, f"{path} holds a file name"
    for path in built.rglob("*.npz"):
        assert {entry.date_time for entry in zipfile.ZipFile(path).infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_documents_and_their_labels(built: Path) -> None:
    assert targets_by_name(built, "trn") == TRAIN
    assert targets_by_name(built, "tst") == TEST
    for row in rows(built / "trn.json.gz") + rows(built / "tst.json.gz"):
        assert row["target_ind"] == sorted(row["target_ind"])
        assert row["target_rel"] == [1.0] * len(row["target_ind"])


def test_labels_are_those_of_training_documents(built: Path) -> None:
    labels = rows(built / "lbl.json.gz")
    assert {NAMES[label["uid"]] for label in labels} == set().union(*TRAIN.values())
    assert [label["uid"] for label in labels] == sorted(label["uid"] for label in labels)


def test_rows_are_in_the_order_of_the_hash(built: Path) -> None:
    places = [hashlib.sha256(row["uid"].encode()).hexdigest()[:12] for row in rows(built / "trn.json.gz")]
    assert places == sorted(places)


def test_texts(built: Path) -> None:
    titles = {NAMES[row["uid"]]: row["title"] for row in rows(built / "trn.json.gz") + rows(built / "tst.json.gz")}
    assert titles["bicycle"] == "two wheels and pedals"
    assert titles["tricycle"] == "a cycle for children: three wheels"
    labels = {NAMES[row["uid"]]: row["title"] for row in rows(built / "lbl.json.gz")}
    assert labels["cycle"] == "cycle, wheeled cycle - a vehicle on wheels"
    assert labels["television"] == "television - shows moving pictures"


def test_masks_hold_self_pairs_and_pairs_given_away(built: Path) -> None:
    everything = set().union(*TRAIN.values())
    assert masked_by_name(built, "trn") == {(name, name) for name in TRAIN if name in everything}
    assert masked_by_name(built, "tst") == {("bicycle", "bicycle"), ("drive", "drive"), ("drive", "ride")}


def test_lexical_graph_runs_both_ways_and_knows_no_test_document(built: Path) -> None:
    # ride also points to bicycle, a test document, and to twin, which has its words
    assert edges_by_name(built, "lexical", "trn") == {
        "vehicle": {"wheel"},
        "wheel": {"vehicle"},
        "cycle": {"cyclic"},
        "ride": {"rider"},
    }
    labels = {"vehicle": {"wheel"}, "cycle": {"cyclic"}, "ride": {"rider"}, "go": {"feral"}, "bicycle": {"ride"}}
    assert edges_by_name(built, "lexical", "lbl") == labels
    titles = {NAMES[anchor["uid"]]: anchor["title"] for anchor in rows(built / "graphs/lexical/anchors.json.gz")}
    assert set(titles) == {"wheel", "vehicle", "cyclic", "rider", "ride", "feral"}
    assert titles["cyclic"] == "cyclic - of a cycle"


def test_category_graph_holds_file_domain_and_frames(built: Path) -> None:
    edges = edges_by_name(built, "category", "trn")
    assert set(edges) == set(TRAIN)
    assert edges["cycle"] == {
        "lex::noun.artifact",
        f"domain::{OFFSETS['transport']}-n",
    }  # not its other domain, a test document
    assert edges["ride"] == {"lex::verb.motion", "frame::2", "frame::8"}
    assert edges["cat"] == {"lex::noun.animal"}
    assert edges_by_name(built, "category", "lbl")["thing"] == {"lex::noun.Tops"}


def test_meta_counts_the_edges(built: Path) -> None:
    meta = json.loads((built / "graphs/lexical/meta.json").read_text(encoding="utf-8"))
    assert (meta["name"], meta["anchors"], meta["trn_edges"], meta["lbl_edges"]) == ("lexical", 6, 4, 5)
    assert meta["test_nodes_removed"] is True


def test_licence_is_the_one_of_the_dictionary(built: Path) -> None:
    notice = (
        "This software and database is being provided to you\n\nWordNet 3.0 Copyright 2006 by Princeton "
        "University.  All rights reserved.\n"
    )
    assert (built / "LICENSE.wordnet").read_text(encoding="utf-8") == notice


def test_an_is_a_cycle_does_no_harm(dictionary: Path, tmp_path: Path) -> None:
    noun = dictionary / "data.noun"
    before = "taxonomic_group 0 000 | animals"
    after = f"taxonomic_group 0 001 @ {OFFSETS['genus']} n 0000 | animals"
    text = noun.read_text(encoding="utf-8")
    assert before in text
    noun.write_text(text.replace(before, after), encoding="utf-8")
    assert run_builder(dictionary, tmp_path / "out") == 0
    assert targets_by_name(tmp_path / "out", "trn") == TRAIN


@pytest.mark.parametrize("part", ["noun", "verb", "adj", "adv"])
def test_a_missing_file_says_how_to_get_it(
    dictionary: Path, tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (dictionary / f"data.{part}").unlink()
    assert run_builder(dictionary, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert f"data.{part}: the file is missing" in said
    assert "apt-get install wordnet-base" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "line",
    [
        "00000001 06 n 01 word 0 000 without a gloss",
        "00000001 06 n 02 word 0 | fewer words than it says",
        "00000001 06 n 01 word 0 002 @ 00001001 n 0000 | fewer pointers than it says",
        "00000001 06 n zz word 0 000 | not a number",
        "00000001 77 n 01 word 0 000 | a file that does not exist",
    ],
)
def test_a_broken_line_is_named(
    dictionary: Path, tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dictionary / "data.noun"
    path.write_text(LICENCE + line + "\n", encoding="utf-8")
    assert run_builder(dictionary, tmp_path / "out") == 2
    assert "data.noun, line 4: not a synset" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_bytes_that_are_no_text_are_an_error(
    dictionary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (dictionary / "data.adv").write_bytes(b"\xff\xfe")
    assert run_builder(dictionary, tmp_path / "out") == 2
    assert "data.adv: cannot be read" in capsys.readouterr().err


def test_nothing_is_built_without_the_licence(
    dictionary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dictionary / "data.noun"
    path.write_text(path.read_text(encoding="utf-8").removeprefix(LICENCE), encoding="utf-8")
    assert run_builder(dictionary, tmp_path / "out") == 2
    assert "licence notice" in capsys.readouterr().err


def test_a_dictionary_without_documents_is_an_error(
    dictionary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in dictionary.iterdir():
        path.write_text(LICENCE, encoding="utf-8")
    assert run_builder(dictionary, tmp_path / "out") == 2
    assert "too few entries" in capsys.readouterr().err


# ---- the sample that ships ----


@dataclass(frozen=True)
class Shipped:
    labels: list[dict[str, Any]]
    train: list[dict[str, Any]]
    test: list[dict[str, Any]]

    def named_pairs(self, side: list[dict[str, Any]]) -> set[tuple[str, str]]:
        return {(row["uid"], self.labels[label]["uid"]) for row in side for label in row["target_ind"]}


@pytest.fixture(scope="module")
def shipped() -> Shipped:
    folder = sample_folder()
    return Shipped(*(rows(folder / f"{name}.json.gz") for name in ("lbl", "trn", "tst")))


def test_shipped_files_are_complete_and_small() -> None:
    files = files_in(sample_folder())
    assert set(files) == FILES
    assert sum(map(len, files.values())) <= 2_000_000


def test_shipped_licence_is_the_real_one() -> None:
    notice = (sample_folder() / "LICENSE.wordnet").read_text(encoding="utf-8")
    for words in (
        "Permission to use, copy, modify and distribute",
        "WordNet 3.0 Copyright 2006 by Princeton University",
        'PROVIDED "AS IS"',
        "agrees to preserve same.",
    ):
        assert words in notice


def test_shipped_counts_are_those_of_its_readme(shipped: Shipped) -> None:
    readme = (sample_folder() / "README.txt").read_text(encoding="utf-8")
    said = {
        name: int(number)
        for name, number in re.findall(r"^(training documents|test documents|labels) +(\d+)$", readme, re.M)
    }
    assert said == {
        "training documents": len(shipped.train),
        "test documents": len(shipped.test),
        "labels": len(shipped.labels),
    }
    assert len(shipped.train) > 10_000
    assert len(shipped.test) > 3_000
    assert len(shipped.labels) > 4_000


def test_shipped_documents_have_text_and_labels_in_range(shipped: Shipped) -> None:
    documents = shipped.train + shipped.test
    assert len({row["uid"] for row in documents}) == len(documents)
    assert len({" ".join(row["title"].lower().split()) for row in documents}) == len(documents), (
        "a definition occurs twice"
    )
    for row in documents:
        assert row["title"].strip()
        assert row["target_ind"]
        assert row["target_ind"] == sorted(set(row["target_ind"]))
        assert 0 <= row["target_ind"][0] <= row["target_ind"][-1] < len(shipped.labels)


def test_shipped_labels_have_text_and_a_long_tail(shipped: Shipped) -> None:
    assert len({label["uid"] for label in shipped.labels}) == len(shipped.labels)
    for label in shipped.labels:
        words, dash, definition = label["title"].partition(" - ")
        assert words
        assert dash
        assert definition
    frequency = np.bincount(
        [label for row in shipped.train for label in row["target_ind"]], minlength=len(shipped.labels)
    )
    assert frequency.min() >= 1
    assert frequency.mean() > 2
    assert np.mean(frequency < 5) > 0.5


def test_shipped_masks_and_split_leak_nothing(shipped: Shipped) -> None:
    number = {label["uid"]: index for index, label in enumerate(shipped.labels)}
    for side, documents in (("trn", shipped.train), ("tst", shipped.test)):
        masked = set(pairs(sample_folder() / f"filter_labels_{side}.txt"))
        assert {
            (row, number[document["uid"]]) for row, document in enumerate(documents) if document["uid"] in number
        } <= masked
        assert masked.isdisjoint(
            (row, label) for row, document in enumerate(documents) for label in document["target_ind"]
        )
        assert {falls_on(document["uid"]) for document in documents} == {side}
    reverse = {(label, document) for document, label in shipped.named_pairs(shipped.train)}
    assert reverse.isdisjoint(shipped.named_pairs(shipped.test))


@pytest.mark.parametrize("graph", ["category", "lexical"])
def test_shipped_graphs_fit_and_hold_no_test_document(shipped: Shipped, graph: str) -> None:
    folder = sample_folder() / "graphs" / graph
    anchors = rows(folder / "anchors.json.gz")
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    documents, labels = load_npz(folder / "trn.npz"), load_npz(folder / "lbl.npz")
    assert documents.shape == (len(shipped.train), len(anchors))
    assert labels.shape == (len(shipped.labels), len(anchors))
    assert (documents.nnz, labels.nnz, len(anchors)) == (meta["trn_edges"], meta["lbl_edges"], meta["anchors"])
    for matrix in (documents, labels):
        assert matrix.dtype == np.float32
        assert matrix.nnz
        assert np.all(matrix.data == 1)
    assert all(anchor["title"] for anchor in anchors)
    assert (documents.sum(axis=0) + labels.sum(axis=0)).min() >= 1, "an anchor without an edge"
    unseen = {row["uid"] for row in shipped.test}
    assert unseen.isdisjoint(anchor["uid"].removeprefix("domain::") for anchor in anchors)


def test_shipped_texts_are_decent(shipped: Shipped) -> None:
    anchors = rows(sample_folder() / "graphs/lexical/anchors.json.gz")
    for row in shipped.labels + shipped.train + shipped.test + anchors:
        assert not re.search(r"\b(ethnic slur|offensive|disparaging|obscene|vulgar)\b", row["title"], re.I), row


# ---- the way out ----


@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
def test_write_sample_copies_every_byte(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "deep" / "sample"
    if exists:
        folder.mkdir(parents=True)
    write_sample(folder)
    assert files_in(folder) == files_in(sample_folder())
    assert [path.name for path in folder.parent.iterdir()] == ["sample"]


def test_write_sample_refuses_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(RunError, match="not empty") as caught:
        write_sample(tmp_path)
    assert caught.value.hint
    assert files_in(tmp_path) == {"mine.txt": b"keep"}


@pytest.mark.parametrize("below", ["", "sample"], ids=["the folder", "its parent"])
def test_write_sample_refuses_a_file_in_its_way(tmp_path: Path, below: str) -> None:
    (tmp_path / "mine.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(RunError, match=r"mine\.txt is a file"):
        write_sample(tmp_path / "mine.txt" / below)
    assert files_in(tmp_path) == {"mine.txt": b"keep"}


def test_write_sample_refuses_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="current folder"):
        write_sample(Path())
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0

    def copy_some(source: Path, target: Path) -> None:
        nonlocal copied
        copied += 1
        if copied > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(shutil, "copyfile", copy_some)
    with pytest.raises(RunError, match="no space left"):
        write_sample(tmp_path / "sample")
    assert not list(tmp_path.iterdir())


def test_a_missing_sample_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    with pytest.raises(DataError, match="sample is missing"):
        sample_folder()
