"""Builds the embedded sample: a reverse dictionary (definition -> related concepts) out of WordNet.

    apt-get install wordnet-base
    python scripts/build_sample.py --dict /usr/share/wordnet --out src/longtail/data/sample

Reads the four ``data.*`` files of WordNet 3.0 and nothing else: no network, no clock, no random numbers. A second run
writes the same bytes (given the same zlib). The path of the data, top to bottom: dictionary -> usable synsets ->
documents and labels -> graphs -> files.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import re
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longtail.errors import DataError, LongtailError
from longtail.persistence import written_aside

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
GET_WORDNET = (
    "on Debian or Ubuntu: apt-get install wordnet-base, then --dict /usr/share/wordnet; elsewhere: unpack WordNet "
    "3.0 and name its folder 'dict'. "
    "This script downloads nothing"
)

# What the two digits after the offset stand for (lexnames(5WN)).
LEXICOGRAPHER_FILES = (
    "adj.all",
    "adj.pert",
    "adv.all",
    "noun.Tops",
    "noun.act",
    "noun.animal",
    "noun.artifact",
    "noun.attribute",
    "noun.body",
    "noun.cognition",
    "noun.communication",
    "noun.event",
    "noun.feeling",
    "noun.food",
    "noun.group",
    "noun.location",
    "noun.motive",
    "noun.object",
    "noun.person",
    "noun.phenomenon",
    "noun.plant",
    "noun.possession",
    "noun.process",
    "noun.quantity",
    "noun.relation",
    "noun.shape",
    "noun.state",
    "noun.substance",
    "noun.time",
    "verb.body",
    "verb.change",
    "verb.cognition",
    "verb.communication",
    "verb.competition",
    "verb.consumption",
    "verb.contact",
    "verb.creation",
    "verb.emotion",
    "verb.motion",
    "verb.perception",
    "verb.possession",
    "verb.social",
    "verb.stative",
    "verb.weather",
    "adj.ppl",
)

# Things one can see, touch and eat, and what one does with them: whole sub-trees, so that labels keep their documents.
DOCUMENT_FILES = frozenset(
    {
        "noun.animal",
        "noun.artifact",
        "noun.body",
        "noun.food",
        "noun.object",
        "noun.phenomenon",
        "verb.consumption",
        "verb.contact",
        "verb.motion",
        "verb.weather",
    }
)
TEST_SHARE = 0.2

# Pointer symbols (wninput(5WN)). Only one direction of the asymmetric relations: never hyponym or meronym, which
# would give the answer away.
IS_A = frozenset({"@", "@i"})
INSTANCE_OF = "@i"
OTHER_RELATIONS = {
    "#p": "part of",
    "#m": "member of",
    "#s": "substance of",
    "^": "see also",
    "$": "verb group",
    "=": "attribute",
    "*": "entailment",
    ">": "cause",
}
LEXICAL = frozenset({"+", "!", "\\", "<"})  # derivationally related, antonym, pertainym, participle
DOMAINS = frozenset({";c", ";r", ";u"})  # topic, region, usage

# Latin families and genera: thousands of entries that say nothing but "type genus of the family ...".
TAXON = "taxonomic_group"
# A newcomer's first contact should not be a slur. Entries are dropped by what their gloss says about them, single
# words by themselves.
OFFENSIVE_GLOSS = re.compile(
    r"\b(offensive|slurs?|disparag\w*|derogat\w*|pejorative|obscen\w*|vulgar\w*|insult\w*|contempt\w*|abusive"
    r"|sex|sexual\w*|genital\w*|penis|vagina\w*|prostitut\w*|rape)\b",
    re.I,
)
OFFENSIVE_WORD = re.compile(
    r"(?:^|_)(arse|bollock|boob|bugger|crap|crapper|fuck|shit|slut|titty|turd|wank|whore)(?:_|$)", re.I
)


# ---- the dictionary ----


@dataclass(frozen=True)
class Synset:
    """One entry: words of one meaning. uid: offset-pos, satellite adjectives as 'a'. pointers: (symbol, uid)."""

    uid: str
    file: str
    words: tuple[str, ...]
    gloss: str
    pointers: tuple[tuple[str, str], ...]
    frames: tuple[int, ...]

    @property
    def definition(self) -> str:
        """The gloss without its example sentences."""
        return re.split(r'\s*[;:,]\s*"', self.gloss, maxsplit=1)[0].strip()

    @property
    def clean_words(self) -> tuple[str, ...]:
        return tuple(word.replace("_", " ") for word in self.words if not OFFENSIVE_WORD.search(word))

    @property
    def text(self) -> str:
        return f"{', '.join(self.clean_words)} - {self.definition}"

    def targets(self, symbols: Iterable[str]) -> list[str]:
        return [uid for symbol, uid in self.pointers if symbol in symbols]


Dictionary = Mapping[str, Synset]


def uid_of(offset: str, pos: str) -> str:
    return f"{offset}-{'a' if pos == 's' else pos}"


def parse_synset(line: str) -> Synset:
    """One line of a data file (wndb(5WN)): offset file pos w_cnt word lex_id ... p_cnt pointer ... [f_cnt frame ...]
    | gloss.
    """
    head, separator, gloss = line.partition(" | ")
    if not separator:
        raise ValueError("no ' | ' before the gloss")
    tokens = iter(head.split())
    offset, file, pos = next(tokens), int(next(tokens)), next(tokens)
    words = [(next(tokens), next(tokens))[0] for _ in range(int(next(tokens), 16))]
    pointers = []
    for _ in range(int(next(tokens))):
        symbol, target, target_pos, _source_and_target_word = next(tokens), next(tokens), next(tokens), next(tokens)
        pointers.append((symbol, uid_of(target, target_pos)))
    frames = []
    if pos == "v":
        for _ in range(int(next(tokens))):
            _plus, frame, _word = next(tokens), next(tokens), next(tokens)
            frames.append(int(frame))
    # An adjective may carry its position in brackets: 'galore(ip)'.
    words = [re.sub(r"\((a|p|ip)\)$", "", word) for word in words]
    return Synset(
        uid_of(offset, pos), LEXICOGRAPHER_FILES[file], tuple(words), gloss.strip(), tuple(pointers), tuple(frames)
    )


def read_data_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError("the file is missing", GET_WORDNET, file=path) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"cannot be read ({problem})", GET_WORDNET, file=path) from problem


def read_dictionary(folder: Path) -> dict[str, Synset]:
    dictionary: dict[str, Synset] = {}
    for part in PARTS_OF_SPEECH:
        path = folder / f"data.{part}"
        for number, line in enumerate(read_data_file(path).splitlines(), start=1):
            if not line or line.startswith("  "):  # the licence, in front of the first synset
                continue
            try:
                synset = parse_synset(line)
            # StopIteration: the line ends before its counts are used up
            except (ValueError, IndexError, StopIteration) as problem:
                raise DataError(
                    f"not a synset ({problem!r})", "expected a data file of WordNet 3.0", file=path, line=number
                ) from problem
            dictionary[synset.uid] = synset
    return dictionary


def read_licence(folder: Path) -> str:
    """The notice that stands, with numbered lines, on top of every data file. Nothing is built without it."""
    path = folder / "data.noun"
    lines = [
        match.group(1).rstrip()
        for line in read_data_file(path).splitlines()
        if (match := re.match(r" {2}\d+ (.*)$", line))
    ]
    notice = "\n".join(lines).strip() + "\n"
    if "Copyright" not in notice:
        raise DataError(
            "the licence notice on top of the file is missing",
            "use the file as WordNet ships it: the sample must carry the notice",
            file=path,
        )
    return notice


# ---- what is used of it ----


def parents(synset: Synset, dictionary: Dictionary) -> list[Synset]:
    return [dictionary[uid] for uid in synset.targets(IS_A) if uid in dictionary]


def taxa(dictionary: Dictionary) -> set[str]:
    """All that is a kind of taxonomic group. Walks down with a memory, since some releases of WordNet hold an is-a
    cycle.
    """
    children: dict[str, list[str]] = defaultdict(list)
    for synset in dictionary.values():
        for parent in parents(synset, dictionary):
            children[parent.uid].append(synset.uid)
    ahead = [uid for uid, synset in dictionary.items() if TAXON in synset.words]
    found: set[str] = set()
    while ahead:
        uid = ahead.pop()
        if uid not in found:
            found.add(uid)
            ahead += children[uid]
    return found


def usable(dictionary: Dictionary) -> dict[str, Synset]:
    """Without taxa, named persons, places and things, and offensive entries."""
    latin = taxa(dictionary)
    return {
        uid: synset
        for uid, synset in dictionary.items()
        if uid not in latin
        and synset.clean_words
        and not synset.targets({INSTANCE_OF})
        and not OFFENSIVE_GLOSS.search(synset.gloss)
    }


def normalised(text: str) -> str:
    return " ".join(text.lower().split())


def choose_documents(synsets: Dictionary) -> list[Synset]:
    """By file; of entries with the same definition the first, so that no test text is a training text."""
    by_definition: dict[str, Synset] = {}
    for uid in sorted(synsets):
        if synsets[uid].file in DOCUMENT_FILES:
            by_definition.setdefault(normalised(synsets[uid].definition), synsets[uid])
    return sorted(by_definition.values(), key=lambda synset: place(synset.uid))


def place(uid: str) -> float:
    """A number in [0, 1) that depends on the uid alone: it decides the side of the split and the order of rows."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:6], "big") / 2**48


def related(synset: Synset, dictionary: Dictionary, synsets: Dictionary) -> set[str]:
    """The labels of a document: is-a ancestors at distance 1 and 2, wholes it belongs to, and the looser relations."""
    near = parents(synset, dictionary)
    far = [ancestor for parent in near for ancestor in parents(parent, dictionary)]
    found = {ancestor.uid for ancestor in near + far} | set(synset.targets(OTHER_RELATIONS))
    return {uid for uid in found if uid in synsets and uid != synset.uid}


# ---- the sample ----


@dataclass(frozen=True)
class Side:
    """Documents of one split; targets and masked hold label numbers."""

    documents: list[Synset]
    targets: list[list[int]]
    masked: list[tuple[int, int]]


@dataclass(frozen=True)
class AnchorGraph:
    """anchors: (uid, title). documents, labels: one list of anchor numbers per training document and per label."""

    name: str
    what: str
    anchors: list[tuple[str, str]]
    documents: list[list[int]]
    labels: list[list[int]]


@dataclass(frozen=True)
class Sample:
    labels: list[Synset]
    train: Side
    test: Side
    graphs: list[AnchorGraph]


def build(dictionary: Dictionary) -> Sample:
    synsets = usable(dictionary)
    documents = choose_documents(synsets)
    truth = {document.uid: related(document, dictionary, synsets) for document in documents}
    train = [document for document in documents if place(document.uid) >= TEST_SHARE and truth[document.uid]]
    labels = sorted({uid for document in train for uid in truth[document.uid]})
    number = {uid: index for index, uid in enumerate(labels)}
    # A test pair whose reverse is a training pair has been given away: it counts neither as right nor as wrong.
    reverse = {(label, document.uid) for document in train for label in truth[document.uid]}

    def side(chosen: Sequence[Synset], given_away: set[tuple[str, str]]) -> Side:
        kept: list[Synset] = []
        targets: list[list[int]] = []
        masked: list[tuple[int, int]] = []
        for document in chosen:
            known = {uid for uid in truth[document.uid] if uid in number}
            hidden = {uid for uid in known if (document.uid, uid) in given_away}
            if known == hidden:  # nothing left to find
                continue
            itself = {document.uid} & number.keys()
            masked += [(len(kept), number[uid]) for uid in sorted(itself | hidden)]
            targets.append(sorted(number[uid] for uid in known - hidden))
            kept.append(document)
        return Side(kept, targets, masked)

    test = side([document for document in documents if place(document.uid) < TEST_SHARE], reverse)
    label_synsets = [dictionary[uid] for uid in labels]
    return Sample(label_synsets, side(train, set()), test, build_graphs(synsets, train, test.documents, label_synsets))


def build_graphs(
    synsets: Dictionary, train: Sequence[Synset], test: Sequence[Synset], labels: Sequence[Synset]
) -> list[AnchorGraph]:
    # By definition, not by uid: an entry with the words of a test document would be the test document under another
    # number.
    unseen = {normalised(document.definition) for document in test}
    allowed = {uid for uid, synset in synsets.items() if normalised(synset.definition) not in unseen}
    links: dict[str, set[str]] = defaultdict(set)
    for synset in synsets.values():
        for uid in synset.targets(LEXICAL):
            links[synset.uid].add(uid)
            links[uid].add(synset.uid)

    def lexical(synset: Synset) -> dict[str, str]:
        return {uid: synsets[uid].text for uid in (links[synset.uid] & allowed) - {synset.uid}}

    def category(synset: Synset) -> dict[str, str]:
        anchors = {f"lex::{synset.file}": synset.file.replace(".", " ")}
        anchors |= {
            f"domain::{uid}": "domain " + ", ".join(synsets[uid].clean_words)
            for uid in synset.targets(DOMAINS)
            if uid in allowed
        }
        return anchors | {f"frame::{frame}": f"verb frame {frame}" for frame in synset.frames}

    return [
        anchor_graph("category", "lexicographer file, topic/region/usage domain, verb frames", category, train, labels),
        anchor_graph(
            "lexical",
            "derivationally related, pertainym, participle and antonym links, both ways",
            lexical,
            train,
            labels,
        ),
    ]


def anchor_graph(
    name: str,
    what: str,
    anchors_of: Callable[[Synset], Mapping[str, str]],
    train: Sequence[Synset],
    labels: Sequence[Synset],
) -> AnchorGraph:
    document_anchors, label_anchors = (
        [anchors_of(synset) for synset in train],
        [anchors_of(synset) for synset in labels],
    )
    titles: dict[str, str] = {}
    for anchors in (*document_anchors, *label_anchors):
        titles |= anchors
    number = {uid: index for index, uid in enumerate(sorted(titles))}

    def rows(chosen: Sequence[Mapping[str, str]]) -> list[list[int]]:
        return [sorted(number[uid] for uid in anchors) for anchors in chosen]

    return AnchorGraph(name, what, [(uid, titles[uid]) for uid in number], rows(document_anchors), rows(label_anchors))


# ---- files: equal content gives equal bytes ----


def json_lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    """Gzipped, without time and file name."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return buffer.getvalue()


def csr_npz(rows: Sequence[Sequence[int]], columns: int) -> bytes:
    """What `scipy.sparse.load_npz` reads: a (len(rows), columns) CSR matrix of float32 ones, every zip entry of the
    same date.
    """
    indices = np.array([column for row in rows for column in row], dtype=np.int32)
    arrays = {
        "indices": indices,
        "indptr": np.cumsum([0, *map(len, rows)], dtype=np.int32),
        "format": np.array(b"csr"),
        "shape": np.array([len(rows), columns], dtype=np.int64),
        "data": np.ones(len(indices), dtype=np.float32),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # else the bytes tell the operating system
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            archive.writestr(entry, content.getvalue(), compresslevel=9)
    return buffer.getvalue()


def side_files(name: str, side: Side) -> dict[str, bytes]:
    rows = (
        {"uid": document.uid, "title": document.definition, "target_ind": targets, "target_rel": [1.0] * len(targets)}
        for document, targets in zip(side.documents, side.targets, strict=True)
    )
    return {
        f"{name}.json.gz": json_lines(rows),
        f"filter_labels_{name}.txt": "".join(f"{row} {label}\n" for row, label in side.masked).encode(),
    }


def graph_files(graph: AnchorGraph) -> dict[str, bytes]:
    meta = {
        "name": graph.name,
        "kind": "anchor",
        "source": f"WordNet 3.0: {graph.what}",
        "directed": False,
        "completion": "none",
        "test_nodes_removed": True,
        "anchors": len(graph.anchors),
        "trn_edges": sum(map(len, graph.documents)),
        "lbl_edges": sum(map(len, graph.labels)),
    }
    return {
        f"graphs/{graph.name}/anchors.json.gz": json_lines(
            {"uid": uid, "title": title} for uid, title in graph.anchors
        ),
        f"graphs/{graph.name}/trn.npz": csr_npz(graph.documents, len(graph.anchors)),
        f"graphs/{graph.name}/lbl.npz": csr_npz(graph.labels, len(graph.anchors)),
        f"graphs/{graph.name}/meta.json": (json.dumps(meta, indent=1) + "\n").encode(),
    }


def statistics(sample: Sample) -> dict[str, str]:
    points = Counter(label for targets in sample.train.targets for label in targets)
    frequency = np.array([points[label] for label in range(len(sample.labels))])
    documents = {document.uid for document in sample.train.documents + sample.test.documents}
    numbers = {
        "training documents": f"{len(sample.train.documents)}",
        "test documents": f"{len(sample.test.documents)}",
        "labels": f"{len(sample.labels)}",
        "labels per training document": f"{frequency.sum() / len(sample.train.documents):.2f}",
        "labels per test document": f"{np.mean([len(targets) for targets in sample.test.targets]):.2f}",
        "training documents per label": f"{frequency.mean():.2f} (median {np.median(frequency):g}, most "
        f"{frequency.max()})",
        "labels with 1 training document": f"{np.mean(frequency == 1):.1%}",
        "labels with fewer than 5": f"{np.mean(frequency < 5):.1%}",
        "labels that are also documents": f"{sum(label.uid in documents for label in sample.labels)}",
        "masked pairs": f"{len(sample.train.masked)} in training, {len(sample.test.masked)} in test",
    }
    for graph in sample.graphs:
        covered = np.mean([bool(row) for row in graph.documents])
        edges = (
            f"{sum(map(len, graph.documents))} document edges ({covered:.0%} of documents covered), "
            f"{sum(map(len, graph.labels))} label edges"
        )
        numbers[f"graph '{graph.name}'"] = f"{len(graph.anchors)} anchors, {edges}"
    return numbers


README = """\
A reverse dictionary: definition -> related concepts
====================================================

The embedded sample of longtail: real data, small enough to train on while you wait. Type a definition, get the concepts it is related to.

Document   an entry (synset) of WordNet about things one can see, touch and eat, and what one does with them; title: its definition, without its words.
Labels     entries that it is related to: what it is a kind of (one and two steps up), the wholes it is a part, member or substance of; see also,
           verb group, attribute, entailment, cause. Label text: 'word, word - definition'. uid: offset-part of speech in WordNet 3.0.
Graphs     'lexical' ({lexical}) and
           'category' ({category}).
Split      by hash of the uid, rows in the order of that hash. No definition is on both sides. No test document has a row in a graph or is an
           anchor; a label that is also a test document keeps its links as a label.
Masked     filter_labels_*.txt: 'document label' pairs that count neither as right nor as wrong: the label is the document itself, or the
           reverse of a test pair is a training pair.
Left out   Latin families and genera, named persons, places and things, and entries whose gloss calls them offensive (a simple rule: some may remain).

Numbers
-------
{numbers}

Origin and licence
------------------
An excerpt, with changes, of WordNet 3.0, Copyright 2006 by Princeton University; the licence is in LICENSE.wordnet and covers these files.
Made by scripts/build_sample.py from the files of Debian's package wordnet-base, SHA-256:
{digests}
"""


def readme(sample: Sample, digests: Mapping[str, str]) -> str:
    numbers = "\n".join(f"{name:<34} {value}" for name, value in statistics(sample).items())
    return README.format(
        numbers=numbers,
        digests="\n".join(f"{name:<10} {digest}" for name, digest in digests.items()),
        **{graph.name: graph.what for graph in sample.graphs},
    )


def sample_files(folder: Path) -> tuple[Sample, dict[str, bytes]]:
    """The sample of the dictionary in `folder`, and its files: path -> content."""
    licence = read_licence(folder)
    sample = build(read_dictionary(folder))
    if not sample.train.documents or not sample.test.documents:
        raise DataError("the dictionary holds too few entries for a training and a test side", GET_WORDNET, file=folder)
    digests = {
        f"data.{part}": hashlib.sha256((folder / f"data.{part}").read_bytes()).hexdigest() for part in PARTS_OF_SPEECH
    }
    files = {
        "LICENSE.wordnet": licence.encode(),
        "README.txt": readme(sample, digests).encode(),
        "lbl.json.gz": json_lines({"uid": label.uid, "title": label.text} for label in sample.labels),
        **side_files("trn", sample.train),
        **side_files("tst", sample.test),
    }
    for graph in sample.graphs:
        files |= graph_files(graph)
    return sample, files


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the embedded sample out of WordNet 3.0.", epilog=GET_WORDNET)
    parser.add_argument(
        "--dict",
        type=Path,
        required=True,
        help="folder that holds data.noun, data.verb, data.adj, data.adv",
        metavar="DIR",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder to write; files of the same name are replaced", metavar="DIR"
    )
    options = parser.parse_args(arguments)
    try:
        # All of it is made before the first byte is written: an error leaves the folder as it was.
        sample, files = sample_files(options.dict)
        for name, content in files.items():
            with written_aside(options.out / name) as aside:
                aside.write_bytes(content)
    except LongtailError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return 2
    for name, value in statistics(sample).items():
        print(f"{name:<34} {value}")
    print(f"{'bytes':<34} {sum(map(len, files.values()))} in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
