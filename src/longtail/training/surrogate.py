"""Module I of DeepXML: token vectors, learnt by predicting clusters of labels.

Astec begins with it, and GalaXC takes its start vectors from it. Paper: DeepXML Sec. 3.1, Astec Sec. 4 and App. A.3
(other tasks than clusters).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Protocol

import numpy as np
import torch

from longtail.config import setting
from longtail.data.matrices import read_vectors
from longtail.declared import Shaped
from longtail.errors import ConfigError
from longtail.features.pieces import checkpoint_folder
from longtail.graph.ops import ensure_diagonal, random_walk_graph, scale_rows_to_sum_one
from longtail.kernels.arrays import right_singular_vectors
from longtail.models.encoders import FrozenEncoder, Refinement
from longtail.models.transformer import read_checkpoint, transformer_memory
from longtail.nn.batches import DeviceCsr, Documents, to_numpy
from longtail.nn.blocks import BoundMode, FullyConnected, Residual, frozen_block
from longtail.nn.encoders import (
    BagEncoder,
    DenseEncoder,
    Encoder,
    MlpEncoder,
    RectifiedEncoder,
    Refined,
    TokenCnn,
    encode_all,
)
from longtail.nn.row_tables import OneVsAll, RowTable
from longtail.nn.transformer import Transformer
from longtail.persistence import DataPart
from longtail.search.cluster import (
    ASTEC_CLUSTERS,
    LABELS_PER_CLUSTER,
    balanced_clusters,
    cluster_count,
    label_centroids,
    meta_labels,
    smooth,
)
from longtail.training import ADAPTS, KEEPS
from longtail.training.fit import StepDecay, fit_stage
from longtail.training.objectives import AllTargets
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I32, I64, Csr

# Words kept of a smoothed centroid: clusters are as good as with all of them, and found much faster.
SMOOTHED_WIDTH = 128

BlockKind = Literal["residual", "full", "none"]


@dataclass(frozen=True)
class SurrogateConfig:
    task: Literal["cluster", "label_selection", "random", "unsupervised"] = setting(
        "cluster", "what stage I learns to predict"
    )
    clusters: int = setting(
        0,
        "clusters of labels, a power of two; 0: as many as leave at least "
        f"{LABELS_PER_CLUSTER} labels to each, at most {ASTEC_CLUSTERS}",
        low=0,
    )
    correlations: bool = setting(True, "smooth centroids over labels that occur together before clustering")
    walk_length: int = setting(400, "steps of the random walk that finds such labels", low=1)
    walk_restart: float = setting(0.8, "chance of a step to go back to the start", low=0, high=1)
    walk_top: int = setting(10, "labels kept per label", low=1)
    selected: float = setting(0.2, "label_selection: share of labels, the most frequent", low=0, high=1)
    encoder: Literal["auto", "bag", "mlp", "cnn", "transformer", "dense"] = setting(
        "auto", "auto: bag for text, or the transformer that features.checkpoint names; dense for given vectors"
    )
    encoder_rate: float = setting(0.0002, "encoder=transformer: its learning rate; that of all else is `rate`", low=0)
    vectors: str = setting(
        "", "a .npy file of word vectors (features x width) to start from; empty: random", is_path=True
    )
    width: int = setting(512, "numbers per document vector", low=2)
    epochs: int = setting(20, "passes over the documents", low=0)
    rate: float = setting(0.005, "learning rate of Adam", low=0)
    halve_at: tuple[int, ...] = setting((14,), "epochs at which the rate is halved", low=1)
    batch: int = setting(255, f"documents per step; {ADAPTS}", low=1)
    batch_adapts: bool = setting(True, KEEPS)
    dropout: float = setting(0.5, "share of numbers dropped after each ReLU", low=0, high=0.99)
    block: BlockKind = setting("residual", "what stands between v and the surrogate's heads")
    bound: float = setting(1.0, "bound of the residual's spectral norm", low=0)
    bound_mode: BoundMode = setting("project", "how the bound is kept")

    def of_words(self) -> SurrogateConfig:
        """The same with a bag of words in place of a transformer, which a second model would pay for once more."""
        return replace(self, encoder="auto") if self.encoder == "transformer" else self


@dataclass(frozen=True)
class Surrogate(DataPart):
    """What stage I leaves behind: the encoder, the vectors v of all training documents, and its task.

    vectors: (N, D). clusters: (L,) the target of every label, -1 where it has none.
    heads: (K, D) and refinement: what predicted the targets.
    """

    KIND = "surrogate"

    encoder: FrozenEncoder
    refinement: Refinement | None
    vectors: Annotated[F32, Shaped("documents", "width")]
    clusters: Annotated[I32, Shaped("labels", numbers_of="clusters", least=-1)]
    heads: Annotated[F32, Shaped("clusters", "_")]

    def head_vectors(self) -> F32:
        """(N, D): what the heads read of the training documents."""
        return self.vectors if self.refinement is None else self.refinement.apply(self.vectors)


def surrogate_memory(data: TrainingSet, config: SurrogateConfig, checkpoint: str = "") -> int:
    """Bytes: token vectors and heads with their two moments, features, and document vectors; a transformer's weights.

    checkpoint: as in `fit_surrogate`.
    """
    entries = 0 if data.documents.sparse is None else data.documents.sparse.nnz
    clusters = config.clusters or cluster_count(data.n_labels)
    tables = 3 * 4 * config.width * (token_rows(data) + clusters)
    documents = 3 * 4 * config.width * data.n_documents + 3 * 8 * entries
    return tables + documents + transformer_memory(checkpoint) + 2**28


def token_rows(data: TrainingSet) -> int:
    """Rows of a table of token vectors; none where documents came as vectors."""
    return data.featurizer.width if data.documents.dense is None else 0


def fit_surrogate(data: TrainingSet, config: SurrogateConfig, run: Run, checkpoint: str = "") -> Surrogate:
    """Learn v = ReLU(E x) by predicting targets that are easier than labels, over all of them in every step.

    checkpoint: of the transformer that may be the encoder in place of E.
    """
    c = config
    encoder = new_encoder(data, c, run.rng("encoder"), checkpoint).to(run.device)
    clusters, n_clusters = surrogate_targets(data, c, run)
    block = new_block(c, encoder.width, run.rng("surrogate block"), c.dropout, run)
    heads = OneVsAll(n_clusters, encoder.width, run.rng("heads")).to(run.device)
    if c.task != "unsupervised":
        # Documents none of whose labels has a target (label selection) teach nothing.
        targets = meta_labels(data.targets[:, clusters >= 0], clusters[clusters >= 0], n_clusters)
        rows = np.flatnonzero(np.diff(targets.indptr) > 0)
        trained = encoder if block is None else Refined(encoder, block)
        objective = AllTargets(
            trained,
            heads,
            Documents(data.documents.rows(rows), run.device),
            DeviceCsr(targets[rows], run.device),
            factors=rate_factors(encoder, c, refined=block is not None),
        )
        schedule = StepDecay(c.rate, c.halve_at)
        fit_stage(objective, run, "surrogate", epochs=c.epochs, batch=c.batch, schedule=schedule, adapts=c.batch_adapts)
    return Surrogate(
        encoder=encoder.frozen(),
        refinement=frozen_block(block),
        vectors=encode_all(encoder, Documents(data.documents, run.device), "search"),
        clusters=clusters,
        heads=to_numpy(heads.weight),
    )


# ---- the task ----


def surrogate_targets(data: TrainingSet, config: SurrogateConfig, run: Run) -> tuple[I32, int]:
    """Which target every label belongs to (-1: none), and how many there are."""
    counts = data.label_counts()
    present = np.flatnonzero(counts > 0)
    clusters = np.full(data.n_labels, -1, dtype=np.int32)
    if config.task == "label_selection":
        chosen = np.lexsort((present, -counts[present]))[: max(1, round(config.selected * len(present)))]
        clusters[present[chosen]] = np.arange(len(chosen))
        return clusters, len(chosen)
    n_clusters = cluster_count(len(present), config.clusters)
    if config.task in ("random", "unsupervised"):
        clusters[present] = run.rng("buckets").integers(n_clusters, size=len(present))
        return clusters, n_clusters
    clusters[present] = label_clusters(data, present, n_clusters, config, run)
    return clusters, int(clusters.max()) + 1


def label_clusters(data: TrainingSet, present: I64, n_clusters: int, config: SurrogateConfig, run: Run) -> I32:
    """Balanced clusters of the labels `present`, by centroids that labels which occur with them smooth."""
    documents = data.documents.sparse if data.documents.sparse is not None else data.documents.dense
    centroids = label_centroids(documents, data.targets)
    if config.correlations:
        walked = random_walk_graph(
            data.targets,
            length=config.walk_length,
            restart=config.walk_restart,
            rng=run.rng("walk"),
            top_k=config.walk_top,
        )
        centroids = smooth(centroids, scale_rows_to_sum_one(ensure_diagonal(walked)), keep=SMOOTHED_WIDTH)
    return balanced_clusters(centroids[present], n_clusters, run.rng("clusters"))


# ---- the network ----


def rate_factors(encoder: Encoder, config: SurrogateConfig, *, refined: bool) -> dict[str, float]:
    """Of what is not trained at the common rate: a transformer."""
    if not isinstance(encoder, RectifiedEncoder):
        return {}
    return {"encoder.encoder." if refined else "encoder.": config.encoder_rate / config.rate if config.rate else 1.0}


def new_encoder(data: TrainingSet, config: SurrogateConfig, rng: np.random.Generator, checkpoint: str = "") -> Encoder:
    """The encoder that the settings ask for, untrained; a transformer as its checkpoint has it."""
    c, documents = config, data.documents
    words = "transformer" if checkpoint else "bag"
    kind = c.encoder if c.encoder != "auto" else words if documents.sparse is not None else "dense"
    if kind == "transformer":
        if not checkpoint or documents.tokens is None:
            raise ConfigError(
                "surrogate.encoder=transformer, but no checkpoint was read",
                "give text, and --set features.checkpoint=FOLDER of a BERT or DistilBERT",
            )
        folder = checkpoint_folder(checkpoint, f"features.checkpoint={checkpoint}")
        return RectifiedEncoder(Transformer(read_checkpoint(folder)), dropout=c.dropout)
    if kind == "dense":
        if documents.dense is None:
            raise ConfigError(
                "surrogate.encoder=dense, but the data has no dense vectors",
                "use surrogate.encoder=bag, or give trn_X.npy",
            )
        if c.vectors:
            raise ConfigError(
                "surrogate.vectors are word vectors, but the data came with vectors in place of words",
                "leave surrogate.vectors empty, or use features.source=text",
            )
        return DenseEncoder(documents.dense.shape[1], rng, project_to=c.width, dropout=c.dropout)
    if documents.sparse is None:
        raise ConfigError(
            f"surrogate.encoder={kind} reads words, but the data came with dense vectors",
            "use surrogate.encoder=dense, or features.source=text",
        )
    if kind == "cnn" and documents.tokens is None:
        raise ConfigError(
            "surrogate.encoder=cnn reads token sequences, which were not made", "add --set features.max_tokens=32"
        )
    table = RowTable(torch.from_numpy(word_vectors(documents.sparse, c, rng)))
    if kind == "mlp":
        return MlpEncoder(table, c.width, rng, dropout=c.dropout)
    if kind == "cnn" and documents.tokens is not None:
        return TokenCnn(table, c.width, rng, length=documents.tokens.shape[1], dropout=c.dropout)
    return BagEncoder(table, dropout=c.dropout)


def word_vectors(documents: Csr, config: SurrogateConfig, rng: np.random.Generator) -> F32:
    """(V, D) vectors to start from: given, learnt without labels, or random with about unit length."""
    expected = (documents.shape[1], config.width)
    if config.vectors:
        given = np.array(read_vectors(Path(config.vectors)))
        if given.shape != expected:
            raise ConfigError(
                f"surrogate.vectors has shape {given.shape}, expected {expected}",
                "one row per feature, as wide as surrogate.width",
            )
        return given
    if config.task == "unsupervised":
        return spectral_vectors(documents, config.width, rng)
    return rng.standard_normal(expected, dtype=np.float32) / np.float32(np.sqrt(config.width))


def spectral_vectors(documents: Csr, width: int, rng: np.random.Generator, rounds: int = 4) -> F32:
    """(V, width) float32: right singular vectors of (N, V) CSR, by randomised subspace iteration; unit mean square
    length.

    The second half of the numbers mirrors the first: after a ReLU a sum of vectors keeps both signs.
    """
    n, vocabulary = documents.shape
    rank = max(1, min(width // 2, n, vocabulary))
    half = right_singular_vectors(documents, rank, rng, rounds)
    vectors = np.zeros((vocabulary, width), dtype=np.float32)
    vectors[:, :rank], vectors[:, rank : 2 * rank] = half, -half[:, : max(0, width - rank)]
    return vectors * np.float32(np.sqrt(vocabulary / max(float((vectors**2).sum()), 1e-12)))


class BlockSettings(Protocol):
    @property
    def block(self) -> BlockKind: ...

    @property
    def bound(self) -> float: ...

    @property
    def bound_mode(self) -> BoundMode: ...


def new_block(
    settings: BlockSettings, width: int, rng: np.random.Generator, dropout: float, run: Run
) -> Residual | FullyConnected | None:
    """What stands between v and a classifier, as the identity at first."""
    if settings.block == "none":
        return None
    if settings.block == "full":
        return FullyConnected(width, dropout=dropout).to(run.device)
    block = Residual(width, rng, dropout=dropout, bound=settings.bound, mode=settings.bound_mode)
    return block.to(run.device)
