"""Ways to cut a data set for questions that a plain test split does not answer: warm start, zero shot, and test
documents that are labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from longtail.data.dataset import Dataset, Graph, Items, Split
from longtail.data.from_texts import binary_csr, with_digest
from longtail.data.identity import full_texts, self_pairs
from longtail.data.matrices import stacked
from longtail.errors import ConfigError, DataError
from longtail.metrics import drop_masked_targets
from longtail.types import I64, Csr

_STRATA = 10  # groups of similar frequency that held-out labels are drawn from


# ---- warm start ----


@dataclass(frozen=True)
class WarmStart:
    """Two data sets with the same test side: documents with two or more labels, half of which are hidden and to be
    found.

    warm: the test documents with their revealed labels are part of training. cold: training as it was, the control.
    Revealed pairs are masked in both test sides, and known there (`Split.known`). In training only `warm` has them.
    Propensities are those of `cold` in both, so that PSP is comparable.
    """

    warm: Dataset
    cold: Dataset


def warm_start(dataset: Dataset, seed: int) -> WarmStart:
    """Reveal half of the labels of test documents (rounded down), chosen by seed.

    Paper: GalaXC Sec. 5 (warm start). Differs: the released code reveals the first labels by number.
    In training graphs the added documents have no edges.
    """
    test = dataset.need_test()
    truth = drop_masked_targets(test.targets, test.masked)
    rows = np.flatnonzero(np.diff(truth.indptr) >= 2).astype(np.int64)
    if not len(rows):
        raise DataError(
            f"no test document of '{dataset.name}' has two or more labels",
            "warm start reveals half of a document's labels; use other data",
        )
    kept = replace(test, targets=truth).rows(rows)
    revealed = _half(kept.targets, np.random.default_rng([seed, 0x3A21]))
    hidden = _difference(kept.targets, revealed)
    masked = np.concatenate([kept.masked, _pairs(revealed)])
    held = Split(kept.documents, hidden, masked[np.lexsort((masked[:, 1], masked[:, 0]))], _pairs(revealed))
    cold = replace(dataset, name=f"{dataset.name}[cold start, seed {seed}]", test=held)
    added = Split(kept.documents, revealed, kept.masked)
    graphs = {name: _with_empty_rows(graph, len(rows)) for name, graph in dataset.graphs.items()}
    warm = replace(
        cold, name=f"{dataset.name}[warm start, seed {seed}]", train=_stacked(dataset.train, added), graphs=graphs
    )
    return WarmStart(with_digest(warm), with_digest(cold))


def _half(targets: Csr, rng: np.random.Generator) -> Csr:
    """For each row a random half of its entries, rounded down."""
    rows = np.repeat(np.arange(targets.shape[0], dtype=np.int64), np.diff(targets.indptr))
    order = np.lexsort((rng.random(len(rows)), rows))
    place = np.arange(len(rows)) - targets.indptr[rows]
    chosen = order[place < (np.diff(targets.indptr) // 2)[rows]]
    return binary_csr(rows[chosen], targets.indices[chosen].astype(np.int64), targets.shape)


def _pairs(targets: Csr) -> I64:
    rows = np.repeat(np.arange(targets.shape[0], dtype=np.int64), np.diff(targets.indptr))
    return np.stack([rows, targets.indices.astype(np.int64)], axis=1)


def _difference(targets: Csr, removed: Csr) -> Csr:
    return drop_masked_targets(targets, _pairs(removed))


def _stacked(first: Split, second: Split) -> Split:
    from scipy.sparse import csr_array, vstack

    offset = np.array([len(first), 0], dtype=np.int64)
    documents = Items(
        [*first.documents.uids, *second.documents.uids],
        {
            name: [*texts, *second.documents.fields.get(name, [""] * len(second))]
            for name, texts in first.documents.fields.items()
        },
        _stacked_vectors(first.documents, second.documents),
    )
    return Split(
        documents,
        csr_array(vstack([first.targets, second.targets], format="csr")),
        np.concatenate([first.masked, second.masked + offset]),
    )


def _stacked_vectors(first: Items, second: Items) -> object:
    return None if first.vectors is None or second.vectors is None else stacked([first.vectors, second.vectors])


def _with_empty_rows(graph: Graph, n: int) -> Graph:
    if graph.documents is None:
        return graph
    return replace(
        graph, documents=_reshaped(graph.documents, (graph.documents.shape[0] + n, graph.documents.shape[1]))
    )


def _reshaped(matrix: Csr, shape: tuple[int, int]) -> Csr:
    grown = matrix.copy()
    grown.resize(shape)
    return grown


# ---- zero shot ----


@dataclass(frozen=True)
class ZeroShot:
    """Some labels are unknown in training and to be found by their text alone.

    train: what training may see. Its labels are the seen ones (all of them when transductive), and it has no test side.
    unseen: held-out labels only; its test side ranks among them.  generalised: all labels, as in the original data
    set. Both test sides hold the test documents with at least one held-out label; their training sides are for
    counting only.
    held_out: numbers of the held-out labels in the original data set, sorted.
    """

    train: Dataset
    unseen: Dataset
    generalised: Dataset
    held_out: I64


def zero_shot(dataset: Dataset, seed: int, share: float = 0.15, *, transductive_labels: bool = False) -> ZeroShot:
    """Hold out a share of the labels that have text, evenly over frequencies, and take them out of training.

    Paper: RAMEN gives no construction; this one is ours. Training documents left without a label are dropped.
    Edges of held-out labels are removed from training, or kept with `transductive_labels` (report that separately).
    """
    test = dataset.need_test()
    if not 0 < share < 1:
        raise ConfigError(
            f"a share of {share:g} of the labels to hold out", "use a share between 0 and 1, such as 0.15"
        )
    held = _held_out(dataset, share, np.random.default_rng([seed, 0x0507]))
    is_held = np.zeros(len(dataset.labels), dtype=bool)
    is_held[held] = True
    everything = np.arange(len(dataset.labels), dtype=np.int64)
    seen = everything[~is_held]

    cleaned = _without_labels(dataset.train, is_held)
    rows = np.flatnonzero(np.diff(cleaned.targets.indptr) > 0).astype(np.int64)
    tested = np.flatnonzero(np.diff(drop_masked_targets(test.targets, test.masked)[:, held].indptr) > 0).astype(
        np.int64
    )
    if not len(rows) or not len(tested):
        raise DataError(
            f"holding out {len(held)} labels leaves {len(rows)} training documents and {len(tested)} test documents "
            "with a held-out label",
            "use another share or more data",
        )
    name = f"{dataset.name}[zero shot {share:g}, seed {seed}]"
    graphs = {key: graph.document_rows(rows) for key, graph in dataset.graphs.items()}
    if not transductive_labels:
        graphs = {key: _without_edges(graph, is_held) for key, graph in graphs.items()}
    whole = replace(dataset, name=name, train=cleaned.rows(rows), test=test.rows(tested), graphs=graphs)
    train = replace(_of_labels(whole, everything if transductive_labels else seen), test=None)
    return ZeroShot(with_digest(train), with_digest(_of_labels(whole, held)), with_digest(whole), held)


def _held_out(dataset: Dataset, share: float, rng: np.random.Generator) -> I64:
    """Labels with text, the same share of every stratum of frequency."""
    frequency = np.bincount(
        drop_masked_targets(dataset.train.targets, dataset.train.masked).indices, minlength=len(dataset.labels)
    )
    with_text = np.flatnonzero([bool(text) for text in full_texts(dataset.labels)])
    by_frequency = with_text[np.argsort(frequency[with_text], kind="stable")]
    strata = np.array_split(by_frequency, _STRATA)
    chosen = [rng.choice(stratum, round(share * len(stratum)), replace=False) for stratum in strata if len(stratum)]
    held = np.sort(np.concatenate(chosen)).astype(np.int64) if chosen else np.zeros(0, dtype=np.int64)
    if not len(held):
        raise DataError(
            f"'{dataset.name}' has {len(with_text)} labels with text, too few to hold out {share:g} of them",
            "zero shot needs label texts",
        )
    return held


def _without_labels(split: Split, removed: NDArray[np.bool_]) -> Split:
    pairs = _pairs(split.targets)
    kept = pairs[~removed[pairs[:, 1]]]
    return replace(split, targets=binary_csr(kept[:, 0], kept[:, 1], split.targets.shape))


def _without_edges(graph: Graph, removed: NDArray[np.bool_]) -> Graph:
    """The graph with all edges of some labels gone; its shape stays."""
    from scipy.sparse import csr_array, diags_array

    keep = csr_array(diags_array((~removed).astype(np.float32)))

    def emptied(matrix: Csr | None, both: bool) -> Csr | None:
        if matrix is None:
            return None
        left = csr_array(keep @ matrix @ keep if both else keep @ matrix)
        left.eliminate_zeros()
        left.sort_indices()
        return left

    return replace(graph, labels=emptied(graph.labels, both=False), label_label=emptied(graph.label_label, both=True))


def _of_labels(dataset: Dataset, labels: I64) -> Dataset:
    """The same documents with some of the labels only, renumbered in their order."""
    number = np.full(len(dataset.labels), -1, dtype=np.int64)
    number[labels] = np.arange(len(labels))

    def narrowed(split: Split) -> Split:
        def moved(pairs: I64) -> I64:
            renumbered = np.stack([pairs[:, 0], number[pairs[:, 1]]], axis=1)
            return renumbered[renumbered[:, 1] >= 0]

        return Split(split.documents, split.targets[:, labels], moved(split.masked), moved(split.known))

    def of_labels(graph: Graph) -> Graph:
        sides = None if graph.labels is None else graph.labels[labels]
        square = None if graph.label_label is None else graph.label_label[labels][:, labels]
        return replace(graph, labels=sides, label_label=square)

    return replace(
        dataset,
        labels=dataset.labels.rows(labels),
        train=narrowed(dataset.train),
        test=None if dataset.test is None else narrowed(dataset.test),
        graphs={name: of_labels(graph) for name, graph in dataset.graphs.items()},
    )


# ---- documents that are labels ----


@dataclass(frozen=True)
class Identity:
    """The same data set twice, with different test documents: those that are a label themselves, and the others. None
    where there are none of a kind.

    Of the first a model may know what the label's place in a graph tells (GalaXC, `graph.identity=train+test`: such a
    document is the label's node), of the others it has the text alone. One mean over both hides that.
    """

    labels: Dataset | None
    others: Dataset | None


def identity(dataset: Dataset) -> Identity:
    """Cut the test documents by whether they have the title of a label.

    Paper: GalaXC Sec. 3 (documents that are labels are one node) is about training documents; the released code does
    the same to test documents.
    """
    test = dataset.need_test()
    is_label = np.zeros(len(test), dtype=bool)
    is_label[self_pairs(test.documents, dataset.labels)[:, 0]] = True

    def only(rows: I64, what: str) -> Dataset | None:
        return (
            with_digest(replace(dataset, name=f"{dataset.name}[{what}]", test=test.rows(rows))) if len(rows) else None
        )

    return Identity(
        only(np.flatnonzero(is_label).astype(np.int64), "documents that are labels"),
        only(np.flatnonzero(~is_label).astype(np.int64), "documents that are no labels"),
    )
