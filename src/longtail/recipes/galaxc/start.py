"""What GalaXC starts from: the joint graph with the initial vectors of documents and labels. Paper: GalaXC Sec. 4.1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from longtail.bundle import open_parts
from longtail.data.dataset import Graph
from longtail.data.matrices import read_vectors
from longtail.declared import Shaped
from longtail.errors import ConfigError
from longtail.features.base import Featurizer
from longtail.models.encoders import FrozenEncoder
from longtail.persistence import DataPart, StringTable
from longtail.recipes.galaxc.graph import (
    Anchors,
    Fanout,
    GraphSpace,
    HiddenEdges,
    Shape,
    document_nodes,
    joint_graph,
    nearest_documents,
    strongest,
)
from longtail.recipes.galaxc.settings import GalaxcConfig, GraphConfig, HopsConfig, InitialConfig
from longtail.search.cluster import label_centroids
from longtail.search.index import DOCUMENTS
from longtail.training.indices import index_on
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I32, Csr

# ---- the whole ----


@dataclass(frozen=True)
class Start(DataPart):
    """What training starts from: the graph with its vectors, and (N, m) what training documents are linked to while
    their labels are hidden.
    """

    KIND = "galaxc-start"

    space: GraphSpace
    links: Annotated[I32, Shaped("_", "_", plain=True)] | None


def make_start(c: GalaxcConfig, data: TrainingSet, encoder: FrozenEncoder, run: Run) -> Start:
    """Initial vectors and the joint graph. encoder: of texts. Paper: GalaXC Sec. 3 and 4.1 (initial embeddings)."""
    nodes = document_nodes(data.n_documents, data.n_labels, data.same if c.graph.identity != "none" else data.same[:0])
    encoded = encoder.encode(data.documents)
    shape = shape_of(encoded, c.initial)
    vectors = node_vectors(data, encoder, shape, shape.apply(encoded), nodes, run)
    anchors = anchors_of(data, c.graph, nodes, len(vectors))
    limited, most = None, c.graph.restrict_threshold
    if most:
        limited = nearest_documents(data.targets, nodes, vectors, threshold=most, keep=c.graph.restrict_edges)
    rng = run.rng("joint graph")
    edges = auxiliary_edges(data, c.graph, anchors, len(vectors), run)
    linker = index_on(run.device, c.shortlist.index, DOCUMENTS)(vectors)
    space = GraphSpace(
        encoder=encoder,
        graph=joint_graph(data.targets, nodes, rng, extra=edges, limited=limited),
        vectors=vectors,
        linker=linker,
        fanout=fanout(c.hops, full=c.hops.predict == "full"),
        links=c.hops.links,
        shape=shape,
        test_identity=c.graph.identity == "train+test",
        anchors=anchors,
        beside=c.hops.given == "beside",
    )
    if not c.surrogate.mask_target_edges:
        return Start(space, None)
    return Start(space, space.as_new(nodes, HiddenEdges.of_targets(data.targets, nodes), linker))


def fanout(c: HopsConfig, *, full: bool) -> Fanout:
    return Fanout(c.fanouts, c.pad, c.mean, full)


def word_table(path: Path, features: int) -> F32:
    given: F32 = np.array(read_vectors(path), dtype=np.float32)
    if given.ndim != 2 or given.shape[0] != features:
        raise ConfigError(
            f"initial.path has shape {given.shape}, expected {features} rows",
            "give one row per feature, in the order of the vocabulary",
        )
    return given


def encoder_of_bundle(path: Path, featurizer: Featurizer) -> FrozenEncoder:
    """The encoder of a run or bundle, for features of `featurizer`.

    Word vectors go by the spelling of words: a word that the other model did not know has none (zeros). Other
    encoders need the same features.
    """
    folder, _, (theirs, ranker) = open_parts(path, ("featurizer", "ranker"))
    encoder = ranker.document_encoder()
    if encoder is None:
        raise ConfigError(
            f"{folder}: the model has no encoder that gives vectors", "use a run of astec, eclare or galaxc"
        )
    ours = encoder.for_features(theirs, featurizer)
    if ours is None:
        raise ConfigError(
            f"{folder}: a '{encoder.KIND}' encoder over '{theirs.KIND}' features cannot read the '{featurizer.KIND}' "
            "features of this data",
            "use a run of astec or eclare that was trained on text",
        )
    return ours


# ---- vectors of nodes ----


def shape_of(encoded: F32, config: InitialConfig) -> Shape:
    """encoded: (N, D), of the training documents."""
    shape = Shape(config.unit)
    return Shape(config.unit, shape.apply(encoded).mean(axis=0)) if config.centred else shape


def node_vectors(data: TrainingSet, encoder: FrozenEncoder, shape: Shape, documents: F32, nodes: I32, run: Run) -> F32:
    """(n, D): label text and document text as vectors. A label without text stands for the mean of its documents.

    documents: (N, D), their vectors.  nodes: (N,), theirs.
    """
    vectors = np.zeros((max(int(nodes.max(initial=-1)) + 1, data.n_labels), documents.shape[1]), dtype=np.float32)
    vectors[nodes] = documents
    has_text = np.zeros(data.n_labels, dtype=bool)
    if data.label_texts is not None:
        has_text = ~data.label_texts.is_empty()
        vectors[: data.n_labels][has_text] = shape.apply(encoder.encode(data.label_texts))[has_text]
    silent = np.setdiff1d(np.flatnonzero(~has_text), nodes)
    if len(silent):
        problem = f"label text: {len(silent)} of {data.n_labels} labels have none"
        run.display.say(sentence := f"{problem}; they start from the mean of their documents")
        run.log("note", text=sentence)
        vectors[silent] = label_centroids(documents, data.targets)[silent]
    return vectors


# ---- metadata (Sec. 5.1) ----


def given_graphs(data: TrainingSet, config: GraphConfig) -> dict[str, Graph]:
    """The graphs that the settings name, or all; none is an error."""
    names = config.auxiliary_graphs or tuple(data.graphs)
    missing = [name for name in names if name not in data.graphs]
    if missing or not names:
        raise ConfigError(
            f"graph.auxiliary={config.auxiliary}, but the data holds no graph"
            + (f" '{missing[0]}'" if missing else ""),
            f"the data has: {', '.join(data.graphs) or 'none'}; use graph.auxiliary=none to do without",
        )
    return {name: data.graphs[name] for name in names}


def anchors_of(data: TrainingSet, config: GraphConfig, nodes: I32, n: int) -> Anchors | None:
    """Anchors of the given graphs with the nodes that have them. Anchors of several graphs with the same id are one."""
    if config.auxiliary == "none":
        return None
    from scipy.sparse import csr_array

    number_of: dict[str, int] = {}
    rows, columns = [], []
    for graph in given_graphs(data, config).values():
        if graph.anchors is None:
            continue
        numbers = np.array([number_of.setdefault(uid, len(number_of)) for uid in graph.anchors.uids], dtype=np.int64)
        for side, node_of_row in ((graph.documents, nodes), (graph.labels, np.arange(data.n_labels))):
            if side is not None:
                coo = side.tocoo()
                rows.append(numbers[coo.coords[1]])
                columns.append(node_of_row[coo.coords[0]])
    if not rows:
        return None
    at = (np.concatenate(rows), np.concatenate(columns))
    members = csr_array((np.ones(len(at[0]), np.float32), at), shape=(len(number_of), n))
    members.sum_duplicates()
    return Anchors(StringTable.of(list(number_of)), members)


def auxiliary_edges(data: TrainingSet, config: GraphConfig, anchors: Anchors | None, n: int, run: Run) -> list[Csr]:
    """More edges between nodes: labels that a given graph joins, and nodes that share an anchor (Aux-Train)."""
    if config.auxiliary != "train":
        return []
    edges = [
        strongest(graph.label_label, config.auxiliary_edges, n)
        for graph in given_graphs(data, config).values()
        if graph.label_label is not None
    ]
    if anchors is not None:
        edges.append(anchors.edges(config.auxiliary_edges, run.rng("auxiliary edges")))
    return edges
