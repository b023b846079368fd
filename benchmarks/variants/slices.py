"""The documents that variants are judged on: slices of training data, where choices are made, or test documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.data.synthetic import PRESETS, synthesise

HELD_OUT = 0.1
MOST_DOCUMENTS = 12_000  # of the labels that are drawn


def named(asked: str) -> str:
    """What a set is called: DATA/wordnet-related@5000 is wordnet-related@5000."""
    return Path(asked).name


def data_of(asked: str, *, test: bool) -> Dataset:
    """asked: a data set, the size of planted data (``many-labels``), or either with ``@L`` or ``@L:N``: L of its
    labels, and at most N of their documents.

    test: training and test documents as they come; else a tenth of the training documents is held out, the same for
    all who ask, and test documents are not looked at.
    """
    name, _, part = asked.partition("@")
    whole = synthesise(name, 0).dataset if name in PRESETS else read(name)
    if test:
        assert not part, "a part of the labels has no test documents"
        return whole
    labels, _, documents = part.partition(":")
    some = of_some_labels(whole, int(labels), int(documents or MOST_DOCUMENTS)) if labels else whole
    return some.hold_out(HELD_OUT, 0)


def of_some_labels(data: Dataset, labels: int, documents: int = MOST_DOCUMENTS) -> Dataset:
    """Labels drawn at random, and the training documents that have one of them, or so many of those."""
    rng = np.random.default_rng(7)
    kept = np.sort(rng.choice(len(data.labels), labels, replace=False))
    place = np.full(len(data.labels), -1)
    place[kept] = np.arange(labels)
    targets = data.train.targets.tocsc()[:, kept].tocsr()
    rows = np.flatnonzero(np.diff(targets.indptr) > 0)
    if len(rows) > documents:
        rows = np.sort(rng.choice(rows, documents, replace=False))
    split = data.train.rows(rows)
    masked = split.masked[place[split.masked[:, 1]] >= 0]
    graphs = {
        name: replace(
            graph.document_rows(rows),
            labels=None if graph.labels is None else graph.labels[kept],
            label_label=None if graph.label_label is None else graph.label_label[kept].tocsc()[:, kept].tocsr(),
        )
        for name, graph in data.graphs.items()
    }
    train = replace(split, targets=targets[rows], masked=np.stack([masked[:, 0], place[masked[:, 1]]], axis=1))
    return replace(
        data, name=f"{data.name}[{labels} labels]", labels=data.labels.rows(kept), train=train, graphs=graphs, test=None
    )
