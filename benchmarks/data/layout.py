"""From texts, pairs and graphs to a folder in the layout of public sets with label text (docs/data-formats.md).

Nothing is random: the split and the order of documents follow from SHA-1 of their ids, so whoever builds a set from the
same sources gets the same one.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.persistence import written_aside

TEST_SHARE = 0.25


class Text(NamedTuple):
    """What is written about a document or a label."""

    title: str
    content: str


@dataclass(frozen=True)
class Links:
    """A graph from documents and labels to anchors.

    of: anchors of a document or label.  documents: whether anchors are documents; those of the test side are left out.
    """

    titles: Mapping[str, str]
    of: Mapping[str, Sequence[str]]
    documents: bool = False


@dataclass(frozen=True)
class Source:
    """What a data set is made of. All that is named by an id has the same id as document and as label.

    pairs: labels of a document.  group: documents of one group are on one side of the split; by default each alone.
    test_share: of the groups, about.
    """

    texts: Mapping[str, Text]
    pairs: Mapping[str, Iterable[str]]
    graphs: Mapping[str, Links]
    origin: str
    group: Callable[[str], str] = field(default=lambda uid: uid)
    test_share: float = TEST_SHARE


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def place(key: str) -> float:
    """In [0, 1), the same on every machine."""
    return int(hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:13], 16) / 16.0**13


def write(source: Source, out: Path) -> dict[str, int]:
    """Split, filter and write; gives counts.

    Labels need a training document. Where a training document a has the label b, the test document b is not asked for
    the label a: such a reverse pair goes to the filter file, as does the pair of a document with itself.
    """
    pairs = {uid: ({*labels} & source.texts.keys()) - {uid} for uid, labels in source.pairs.items()}
    pairs = {uid: labels for uid, labels in pairs.items() if labels}
    test_side = {uid for uid in pairs if place("split:" + source.group(uid)) < source.test_share}
    reverse = {
        (uid, label)
        for uid in test_side
        for label in pairs[uid]
        if label in pairs and label not in test_side and uid in pairs[label]
    }
    for uid, label in reverse:
        pairs[uid].discard(label)
    counts = Counter(label for uid, labels in pairs.items() if uid not in test_side for label in labels)
    number = {label: column for column, label in enumerate(sorted(counts))}
    asked = {uid: sorted(number[label] for label in labels if label in number) for uid, labels in pairs.items()}
    order = sorted((uid for uid in asked if asked[uid]), key=lambda uid: (place("order:" + uid), uid))
    sides = {
        "trn": [uid for uid in order if uid not in test_side],
        "tst": [uid for uid in order if uid in test_side],
    }
    labels = list(number)
    out.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(out) as aside:
        aside.mkdir()
        for side, documents in sides.items():
            rows = {uid: row for row, uid in enumerate(documents)}
            _write_lines(aside / f"{side}.json.gz", (_document(source, uid, asked[uid]) for uid in documents))
            hidden = {(rows[uid], number[uid]) for uid in documents if uid in number}
            hidden |= {(rows[uid], number[label]) for uid, label in reverse if uid in rows and label in number}
            lines = (f"{row} {label}\n" for row, label in sorted(hidden))
            (aside / f"filter_labels_{side}.txt").write_text("".join(lines), encoding="ascii")
        _write_lines(aside / "lbl.json.gz", ({"uid": uid, **source.texts[uid]._asdict()} for uid in labels))
        for name, links in source.graphs.items():
            _write_graph(aside / "graphs" / name, name, links, {**sides, "lbl": labels}, test_side)
        (aside / "README.txt").write_text(f"{out.name}\n\n{source.origin}\n", encoding="utf-8")
    return {"training documents": len(sides["trn"]), "test documents": len(sides["tst"]), "labels": len(labels)}


def _document(source: Source, uid: str, asked: Sequence[int]) -> dict[str, Any]:
    return {"uid": uid, **source.texts[uid]._asdict(), "target_ind": asked, "target_rel": [1.0] * len(asked)}


def _write_graph(folder: Path, name: str, links: Links, rows: Mapping[str, Sequence[str]], test_side: set[str]) -> None:
    """rows: ids of training and test documents and of labels. Edges of test documents lie apart: training never reads
    them.
    """
    used = {anchor for side in ("trn", "lbl") for uid in rows[side] for anchor in links.of.get(uid, ())}
    used &= links.titles.keys()
    if links.documents:
        used -= test_side
    number = {anchor: column for column, anchor in enumerate(sorted(used))}
    folder.mkdir(parents=True)
    _write_lines(folder / "anchors.json.gz", ({"uid": uid, "title": links.titles[uid]} for uid in number))
    edges = {}
    for side, file in (("trn", "trn.npz"), ("lbl", "lbl.npz"), ("tst", "oracle_tst.npz")):
        found = [sorted({number[a] for a in links.of.get(uid, ()) if a in number}) for uid in rows[side]]
        ends = np.cumsum([0, *map(len, found)], dtype=np.int64)
        columns = np.array([column for row in found for column in row], dtype=np.int32)
        matrix = sp.csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape=(len(found), len(number)))
        sp.save_npz(folder / file, matrix)
        edges[f"{side}_edges"] = int(matrix.nnz)
    del edges["tst_edges"]
    about = {"name": name, "kind": "anchor", **edges, "test_nodes_removed": True}
    (folder / "meta.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """No time and no name inside, so that equal content gives equal bytes."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as file,
    ):
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
