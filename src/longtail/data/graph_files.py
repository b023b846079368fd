"""Metadata graphs beside a data set: ``graphs/<name>/`` with

    anchors.json[.gz]   uid and title per line
    trn.npz             training documents x anchors
    lbl.npz             labels x anchors
    lbl_lbl.npz         labels x labels
    meta.json           remarks; read by nobody here, but it must be JSON

``oracle_tst.npz`` holds edges of test documents. No reader of data sets opens it; `read_oracle` does, for analyses
only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.dataset import Graph, Items
from longtail.data.identity import normalised
from longtail.data.lines import read_items, write_lines
from longtail.data.matrices import Shape, check_not_negative, load_csr, save_csr
from longtail.errors import ConfigError, DataError
from longtail.persistence import read_json, write_json
from longtail.types import I64, Csr

JSON_SUFFIXES = (".json.gz", ".json", ".jsonl.gz", ".jsonl")

_LAYOUT = "a graph is a folder with anchors.json.gz and trn.npz and/or lbl.npz, or with lbl_lbl.npz"


def find_one(folder: Path, *names: str) -> Path | None:
    """The one file of these names that exists; two of them are an error."""
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        raise DataError(
            f"{' and '.join(path.name for path in found)} hold the same thing", "keep one of them", file=folder
        )
    return found[0] if found else None


def find_json(folder: Path, stem: str) -> Path | None:
    return find_one(folder, *(stem + suffix for suffix in JSON_SUFFIXES))


# ---- reading ----


def graph_folders(folder: Path) -> list[Path]:
    home = folder / "graphs"
    return (
        sorted(path for path in home.iterdir() if path.is_dir() and not path.name.startswith("."))
        if home.is_dir()
        else []
    )


def have_anchors(folder: Path) -> bool:
    """Whether test documents must be known, so that anchors which are test documents can be dropped."""
    return any(find_json(path, "anchors") for path in graph_folders(folder))


def read_graphs(folder: Path, documents: int, labels: int, repairs: Counter[str]) -> dict[str, Graph]:
    """All graphs of a data set with so many training documents and labels, by name."""
    return {path.name: _read_graph(path, documents, labels, repairs) for path in graph_folders(folder)}


def _read_graph(folder: Path, documents: int, labels: int, repairs: Counter[str]) -> Graph:
    meta = folder / "meta.json"
    if meta.exists():
        read_json(meta, DataError)
    found = find_json(folder, "anchors")
    if found is None and ((folder / "trn.npz").exists() or (folder / "lbl.npz").exists()):
        raise DataError("anchors.json.gz is missing", _LAYOUT, file=folder)
    anchors = None if found is None else read_items(found, repairs)
    sizes = 0 if anchors is None else len(anchors)
    graph = Graph(
        folder.name,
        anchors,
        documents=_side(folder / "trn.npz", (documents, sizes), "training documents x anchors"),
        labels=_side(folder / "lbl.npz", (labels, sizes), "labels x anchors"),
        label_label=_side(folder / "lbl_lbl.npz", (labels, labels), "labels x labels"),
    )
    if graph.documents is None and graph.labels is None and graph.label_label is None:
        raise DataError("the graph has no edges: no trn.npz, lbl.npz or lbl_lbl.npz", _LAYOUT, file=folder)
    return graph


def _side(path: Path, shape: Shape, of: str) -> Csr | None:
    if not path.exists():
        return None
    matrix = load_csr(path, shape, of)
    check_not_negative(path, matrix)
    return matrix


def read_oracle(folder: Path | str, graph: str) -> Csr:
    """(N', M) edges of test documents: what a perfect linker would know. For analyses that say so; never for training.

    Columns are those of the graph as `read` gives it: anchors that are test documents are gone.
    """
    folder, repairs = Path(folder), Counter[str]()
    home = folder / "graphs" / graph
    anchors_file, test_file = find_json(home, "anchors"), find_json(folder, "tst")
    if anchors_file is None or test_file is None:
        raise DataError(
            "an oracle needs the graph's anchors.json.gz and the data set's tst.json.gz",
            "use it on a data set in the LF layout",
            file=home,
        )
    anchors, test = read_items(anchors_file, repairs), read_items(test_file, repairs, ("target_ind", "target_rel"))
    oracle = _side(home / "oracle_tst.npz", (len(test), len(anchors)), "test documents x anchors")
    if oracle is None:
        raise DataError("oracle_tst.npz is missing", "this graph has no edges of test documents", file=home)
    return oracle[:, _kept_anchors(anchors, test)]


# ---- test documents never enter a graph ----


def drop_test_anchors(graph: Graph, test: Items) -> tuple[Graph, int]:
    """Without the anchors that are test documents, and their edges; and how many there were.

    An anchor is a test document if its uid is the uid of one, or its normalised title the title of one: both in full.
    So a category that is named after a document (uid ``domain::04123-n``, title ``domain dressage``) stays: it stands
    for a topic, and carries no edge of the document. An empty title equals nothing.
    """
    if graph.anchors is None:
        return graph, 0
    kept = _kept_anchors(graph.anchors, test)
    dropped = len(graph.anchors) - len(kept)
    if not dropped:
        return graph, 0

    def columns(side: Csr | None) -> Csr | None:
        return None if side is None else side[:, kept]

    return replace(
        graph, anchors=graph.anchors.rows(kept), documents=columns(graph.documents), labels=columns(graph.labels)
    ), dropped


def _kept_anchors(anchors: Items, test: Items) -> I64:
    uids, titles = set(test.uids), set(map(normalised, test.titles()))
    titles.discard("")
    names = anchors.titles()
    kept = [
        number
        for number, (uid, name) in enumerate(zip(anchors.uids, names, strict=True))
        if uid not in uids and normalised(name) not in titles
    ]
    return np.array(kept, dtype=np.int64)


# ---- writing ----


def write_graphs(folder: Path, graphs: Mapping[str, Graph]) -> None:
    for name in sorted(graphs):
        if Path(name).name != name or name.startswith("."):
            raise ConfigError(f"'{name}' cannot be the name of a folder", "give the graph another name")
        _write_graph(folder / "graphs" / name, graphs[name])


def _write_graph(folder: Path, graph: Graph) -> None:
    folder.mkdir(parents=True)
    sides = {"trn": graph.documents, "lbl": graph.labels, "lbl_lbl": graph.label_label}
    meta: dict[str, Any] = {
        "name": graph.name,
        "directed": False,
        "completion": "none",
        "test_nodes_removed": True,
        "counts": {},
    }
    anchors = graph.anchors
    if (
        anchors is None
        and (side := next((side for side in (graph.documents, graph.labels) if side is not None), None)) is not None
    ):
        anchors = Items([str(number) for number in range(side.shape[1])], {"title": [""] * side.shape[1]})
    if anchors is not None:
        write_lines(folder / "anchors.json.gz", item_lines(anchors))
        meta["counts"]["anchors"] = len(anchors)
    for side, matrix in sides.items():
        if matrix is not None:
            save_csr(folder / f"{side}.npz", matrix)
            meta["counts"][f"{side}_edges"] = int(matrix.nnz)
    write_json(folder / "meta.json", meta)


def item_lines(items: Items) -> Iterator[str]:
    """A JSON object per item, with its uid and text fields."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    names = ("uid", *items.fields)
    for texts in zip(items.uids, *items.fields.values(), strict=True):
        yield encode(dict(zip(names, texts, strict=True)))
