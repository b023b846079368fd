"""One encoder for documents and labels, and how it is trained so that a document is near its labels.

Transformer  over token numbers: BERT's layers, and the mean over the tokens of a text. Its numbers are named as those
             of `FrozenTransformer`, its twin, which has the formulas. Our own forward in place of a library's:
             training then needs no `transformers`, in any version.
TwoTowers    a batch of documents is trained against the labels that were chosen for its documents, and others on
             purpose (`label_pool`).

Shapes: B texts, T tokens, D numbers per vector, H heads; U labels of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu, scaled_dot_product_attention

from longtail.declared import Shaped, Sized
from longtail.errors import ConfigError, DataError
from longtail.features.pieces import checkpoint_folder
from longtail.graph.anchor_graph import drawn, linked
from longtail.models.encoders import FrozenEncoder
from longtail.nn.batches import Bags, Documents, TensorBatch, to_device, to_numpy
from longtail.nn.blocks import EmbeddingBlock
from longtail.nn.encoders import BagSum, Encoded, Encoder, UnitEncoder, encode_all
from longtail.nn.full import full_loss
from longtail.nn.row_tables import RowTable
from longtail.persistence import DataPart
from longtail.recipes.towers.settings import TwoTowersConfig
from longtail.recipes.towers.transformer import WEIGHTS, FrozenTransformer, Pretrained, read_checkpoint
from longtail.search.cluster import even_clusters
from longtail.search.index import IndexBuilder
from longtail.search.negatives import ShortlistNegatives
from longtail.search.shortlist import LabelIndex
from longtail.training.indices import exact_index_on
from longtail.training.objectives import (
    ExtraLoss,
    ModelAdam,
    TextsOfStep,
    prefixed,
    trained_state,
    triplet_loss,
    vectors_together,
)
from longtail.training.prepare import TrainingSet
from longtail.training.run import Run
from longtail.types import F32, I64, Batch, BoolArray, Csr

# Texts of like length go through together. More groups pad less, but each is a pass of its own: with fewer tokens a
# GPU waits for its launches.
_STEP = 8
_FEWEST_TOKENS = {"cpu": 1024, "cuda": 8192}
# Texts per pass and tokens per text are multiples of these. No two steps have as many texts: a GPU would look for
# kernels and memory in each.
_MULTIPLES = {"cpu": (1, 1), "cuda": (64, 8)}
# Beyond so many there is nothing to gain, and memory to lose.
_MOST_TOKENS = 1 << 16


class Layer(nn.Module):
    def __init__(
        self, width: int, hidden: int, heads: int, epsilon: float, dropout: float, attention_dropout: float
    ) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, attention_dropout
        self.inputs, self.outputs = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.between, self.after = nn.LayerNorm(width, epsilon), nn.LayerNorm(width, epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, mask_B11T: Tensor) -> Tensor:
        count, length, width = x_BTD.shape
        q, k, v = self.inputs(x_BTD).view(count, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(
            q, k, v, attn_mask=mask_B11T, dropout_p=self.attention_dropout if self.training else 0.0
        )
        mixed_BTD = mixed.transpose(1, 2).reshape(count, length, width)
        x_BTD = self.between(x_BTD + self.dropout(self.outputs(mixed_BTD)))
        found: Tensor = self.after(x_BTD + self.dropout(self.down(gelu(self.up(x_BTD)))))
        return found


class Transformer(Encoder):
    """Vectors of either sign. A text without tokens stays zero. Starts from a pretrained checkpoint."""

    together = True

    def __init__(self, start: Pretrained) -> None:
        super().__init__()
        frozen = start.frozen
        self.width, self.heads, self.epsilon = frozen.width, frozen.heads, frozen.epsilon
        shapes = {name: tuple(array.shape) for name, array in frozen.weights.items()}
        self.words, self.positions = (nn.Parameter(torch.empty(shapes[name])) for name in ("words", "positions"))
        self.norm, self.dropout = nn.LayerNorm(self.width, self.epsilon), nn.Dropout(start.dropout)
        hidden = shapes["layers.0.up.weight"][0]
        self.layers = nn.ModuleList(
            Layer(self.width, hidden, self.heads, self.epsilon, start.dropout, start.attention_dropout)
            for _ in range(frozen.layers)
        )
        self.load_state_dict(
            {name: torch.from_numpy(np.array(array, np.float32)) for name, array in frozen.weights.items()}
        )

    def frozen(self) -> FrozenTransformer:
        weights = {name: to_numpy(tensor) for name, tensor in self.state_dict().items()}
        return FrozenTransformer(weights, self.heads, self.epsilon)

    def forward(self, batch: TensorBatch) -> Encoded:
        tokens_BT, lengths = batch.need_tokens(), batch.need_lengths()
        device = tokens_BT.device
        groups = groups_by_length(lengths, _FEWEST_TOKENS[device.type])
        found = [tokens_BT.new_zeros((0, self.width), dtype=torch.float32)]
        with attention_kernels(device):
            for rows in groups:
                padded, width = even_sizes(rows, int(lengths[rows].max()), device)
                found.append(self._means(tokens_BT[to_device(padded, device), :width])[: len(rows)])
        places = np.concatenate([np.zeros(0, np.int64), *groups])
        x_BD = torch.zeros((len(lengths), self.width), device=device).index_copy(
            0, to_device(places, device), torch.cat(found)
        )
        return Encoded(x_BD, x_BD)

    def _means(self, tokens_BT: Tensor) -> Tensor:
        there_BT = tokens_BT >= 0
        x_BTD = nn.functional.embedding(tokens_BT.clamp(min=0), self.words) + self.positions[: tokens_BT.shape[1]]
        x_BTD = self.dropout(self.norm(x_BTD))
        mask_B11T = attention_mask(there_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD, mask_B11T)
        # A sum, not a product of matrices: autocast would round that to bf16.
        kept_BT = there_BT.float()
        means: Tensor = (x_BTD.float() * kept_BT[:, :, None]).sum(dim=1) / kept_BT.sum(dim=1, keepdim=True)
        return means


def attention_mask(there_BT: Tensor) -> Tensor:
    """(B, 1, 1, T), what is added to scores: 0 or -inf, in the type of the products, made once for all layers."""
    kind = there_BT.device.type
    mask_BT = torch.where(there_BT, 0.0, -torch.inf).to(
        torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    )
    return mask_BT[:, None, None, :]


def attention_kernels(device: torch.device) -> AbstractContextManager[None]:
    """On a GPU: not those of cuDNN, which torch prefers on Hopper: they plan long for each new number of texts."""
    if device.type == "cpu":
        return nullcontext()
    kernels: AbstractContextManager[None] = sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    )
    return kernels


def even_sizes(rows: I64, longest: int, device: torch.device) -> tuple[I64, int]:
    """Rows, the last repeated (a real text: nothing is NaN), and tokens per text, up to a multiple of `_MULTIPLES`."""
    texts, tokens = _MULTIPLES[device.type]
    return np.pad(rows, (0, -len(rows) % texts), mode="edge"), -(-longest // tokens) * tokens


def groups_by_length(lengths: I64, fewest: int) -> list[I64]:
    """Rows of texts of like length, each group of `fewest` tokens or more if there are so many; empty texts in none."""
    rounded = -(-lengths // _STEP)
    order = np.argsort(rounded, kind="stable")
    order = order[np.searchsorted(rounded[order], 1) :]
    tokens, sizes = np.append(0, np.cumsum(lengths[order])), rounded[order]
    groups: list[I64] = []
    start = 0
    while start < len(order):
        # As many as make `fewest` tokens, then on to the end of those of the same rounded length.
        enough = min(int(np.searchsorted(tokens, tokens[start] + fewest)), len(order))
        stop = int(np.searchsorted(sizes, sizes[enough - 1], side="right"))
        stop = len(order) if tokens[-1] - tokens[stop] < fewest else stop
        rows = order[start:stop]
        groups += np.array_split(rows, -(-len(rows) * int(lengths[rows].max()) // _MOST_TOKENS))
        start = stop
    return groups


def new_encoder(data: TrainingSet, config: TwoTowersConfig, run: Run) -> UnitEncoder:
    """The same numbers for documents, labels and anchors."""
    c, checkpoint = config.encoder, config.features.checkpoint
    if checkpoint:
        return UnitEncoder(Transformer(read_checkpoint(folder_of(checkpoint))))
    table = RowTable.random(data.featurizer.width, c.width, run.rng("encoder"))
    return UnitEncoder(BagSum(table), EmbeddingBlock(c.width, run.rng("block"), dropout=c.dropout))


def folder_of(checkpoint: str) -> Path:
    return checkpoint_folder(checkpoint, f"features.checkpoint={checkpoint}")


def transformer_memory(checkpoint: str) -> int:
    """Bytes of a transformer in training; 0 without one. That its file is missing is said when it is read."""
    if not checkpoint:
        return 0
    weights = folder_of(checkpoint) / WEIGHTS
    # In float32, though stored perhaps in float16: as read, trained, frozen, the gradient and two moments.
    return 6 * 2 * weights.stat().st_size if weights.is_file() else 0


# ---- training ----


def label_texts(data: TrainingSet) -> Batch:
    """The texts that the second tower reads."""
    if data.documents.sparse is None and data.documents.tokens is None:
        raise ConfigError(
            "this recipe reads words, but the data came with dense vectors",
            "use features.source=text, or the recipe astec",
        )
    if data.label_texts is None or data.label_texts.is_empty().all():
        raise DataError(
            "this recipe finds labels by their text, but no label has one",
            "add a title to the labels, or use the recipe astec",
        )
    return data.label_texts


@dataclass(frozen=True)
class LabelPool:
    """U different labels, ascending, for B documents.

    labels: (U,).  positive: (B,) place of the label that was chosen for a document, -1 where it has none.
    right: (B, U) labels of the document.  negative: (B, U) what may be called wrong: neither right nor masked.
    """

    labels: I64
    positive: I64
    right: BoolArray
    negative: BoolArray

    @property
    def chosen(self) -> I64:
        """Places of the labels that were chosen for some document, ascending."""
        return np.unique(self.positive[self.positive >= 0])


def label_pool(
    rows: I64, targets: Csr, forbidden: Csr, rng: np.random.Generator, others: I64 | None = None
) -> LabelPool:
    """For each document one of its labels, l(i) ~ Unif(P_i), and `others` beside them (numbers of labels, -1 for none).

    targets: (N, L) CSR.  forbidden: (N, L), what must not be a negative (`forbidden_pairs`). Paper: RAMEN Sec. 3,
        mini-batches.
    """
    chosen = drawn(targets, rows, rng)
    labels = np.unique(chosen if others is None else np.concatenate([chosen, others]))
    labels = labels[labels >= 0]
    right = linked(targets, rows, labels)
    positive = np.where(chosen >= 0, np.searchsorted(labels, chosen), -1)
    return LabelPool(labels, positive, right, ~linked(forbidden, rows, labels))


PairLoss: TypeAlias = Literal["triplet", "softmax", "logistic"]

# Documents whose loss is asked for at once when a block of steps ends.
_HELDOUT_DOCUMENTS = 1024


@dataclass(frozen=True)
class PairTask:
    """What documents are trained towards, and how.

    targets: (N, L) CSR.  forbidden: (N, L), what must not be a negative.
    loss: triplet: hinge of `margin` over the `hardest` negatives; softmax: each label of a document against all of
        its negatives (decoupled softmax), logistic: binary cross-entropy; both of cosine / temperature.
    random: labels beside those of the batch, drawn anew in each step; as many as there are labels: all.
    mined: hard negatives per document that are looked up in all labels every few epochs, one of them per document and
        step; 0: none.
    """

    targets: Csr
    forbidden: Csr
    loss: PairLoss
    margin: float
    hardest: int
    temperature: float
    random: int = 0
    mined: int = 0


class TwoTowers:
    """The objective. As a `Watch` of itself it looks up hard negatives and clusters documents every `refresh` epochs.

    cluster: documents of a batch come from clusters of about this size, which doubles every `doubled` epochs; 0: from
        anywhere.
    heldout: (N,) documents that are not trained on, or None.  rng_for: (name, number) -> generator, e.g. `Run.rng`.
    extra: a loss to be added.
    """

    def __init__(
        self,
        encoder: Encoder,
        documents: Documents,
        labels: Documents,
        task: PairTask,
        *,
        rng_for: Callable[[str, int], np.random.Generator],
        extra: ExtraLoss | None = None,
        heldout: BoolArray | None = None,
        refresh: int = 5,
        cluster: int = 0,
        doubled: int = 25,
    ) -> None:
        self.encoder, self.documents, self.labels = encoder.train(), documents, labels
        self.task, self.extra = task, extra
        self.refresh, self.cluster, self.doubled, self._rng_for = refresh, cluster, doubled, rng_for
        held = np.zeros(len(documents), dtype=np.bool_) if heldout is None else heldout
        self._trained, self._heldout = np.flatnonzero(~held), np.flatnonzero(held)[:_HELDOUT_DOCUMENTS]
        self.adam = ModelAdam(encoder)
        # What a refresh gives; saved, because a resumed training begins between two of them.
        self._mined = torch.full((len(documents), task.mined), -1, dtype=torch.int32)
        self._cluster_of = torch.zeros(self.size, dtype=torch.int32)

    @property
    def size(self) -> int:
        return len(self._trained)

    # ---- between epochs ----

    def begins(self, epoch: int, epochs: int) -> bool:
        if epoch % self.refresh == 0 and (self.task.mined or self.cluster):
            self._refresh(epoch)
        return self.extra is None or self.extra.begins(epoch, epochs)

    def ended(self, epoch: int, epochs: int) -> None:
        if self.extra is not None:
            self.extra.ended(epoch, epochs)

    def _refresh(self, epoch: int) -> None:
        vectors = encode_all(self.encoder, self.documents, "search")
        if self.cluster:
            count = max(self.size // (self.cluster * 2 ** (epoch // self.doubled)), 1)
            self._cluster_of.copy_(
                torch.from_numpy(
                    even_clusters(vectors[self._trained], count, self._rng_for("clusters of documents", epoch))
                )
            )
        if self.task.mined:
            index = label_index(
                encode_all(self.encoder, self.labels, "search"), exact_index_on(self.documents.device.type)
            )
            self._mined.copy_(
                torch.from_numpy(ShortlistNegatives.mine(index, vectors, self.task.forbidden, self.task.mined).ids)
            )

    def order(self, rng: np.random.Generator) -> I64:
        """Documents in the order of an epoch: at random, but those of a cluster one after the other."""
        clusters = self._cluster_of.numpy()
        place = rng.permutation(int(clusters.max(initial=0)) + 1)[clusters]
        return np.lexsort((rng.random(self.size), place)).astype(np.int64)

    # ---- in a step ----

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        total = self._objective(self._trained[rows], rng)
        torch.autograd.backward(total)
        self.adam.step(rate)
        if self.extra is not None:
            self.extra.after_step(self.heldout_loss)
        return total.detach()

    def _objective(self, rows: I64, rng: np.random.Generator) -> Tensor:
        """The loss of the task, with what is added to it."""
        pool = self._pool(rows, rng)
        texts = [TextsOfStep(self.documents, rows), TextsOfStep(self.labels, pool.labels)]
        if self.extra is None:
            x_BD, z_UD = vectors_together(self.encoder, texts)
            return pair_loss(x_BD, z_UD, pool, self.task)
        chosen = pool.chosen
        step = self.extra.step(rows, pool.labels[chosen])
        x_BD, z_UD, *of_texts = vectors_together(self.encoder, [*texts, *step.texts])
        of_labels = z_UD.index_select(0, to_device(chosen, z_UD.device))
        return step.total(pair_loss(x_BD, z_UD, pool, self.task), x_BD, of_labels, of_texts)

    def _pool(self, rows: I64, rng: np.random.Generator) -> LabelPool:
        return label_pool(rows, self.task.targets, self.task.forbidden, rng, self._others(rows, rng))

    def _others(self, rows: I64, rng: np.random.Generator) -> I64 | None:
        """Labels beside those that were chosen for the documents of a step."""
        found: list[I64] = []
        if self.task.loss == "softmax":
            # Every label of a document has a share in this loss.
            found.append(self.task.targets[rows].indices.astype(np.int64))
        if self.task.random >= len(self.labels):
            return np.arange(len(self.labels), dtype=np.int64)
        if self.task.random:
            found.append(rng.integers(len(self.labels), size=self.task.random))
        if self.task.mined:
            found.append(self._mined.numpy()[rows, rng.integers(self.task.mined, size=len(rows))].astype(np.int64))
        return np.concatenate(found) if found else None

    @torch.no_grad()
    def heldout_loss(self) -> float:
        """The loss of the task on documents kept apart, always against the same labels."""
        self.encoder.eval()
        try:
            pool = self._pool(self._heldout, self._rng_for("labels of documents kept apart", 0))
            x_BD, z_UD = vectors_together(
                self.encoder, [TextsOfStep(self.documents, self._heldout), TextsOfStep(self.labels, pool.labels)]
            )
            return float(pair_loss(x_BD, z_UD, pool, self.task))
        finally:
            self.encoder.train()

    def state(self) -> dict[str, Tensor]:
        state = (
            trained_state(self.encoder)
            | prefixed("adam", self.adam.state())
            | {"mined": self._mined, "cluster_of": self._cluster_of}
        )
        return state if self.extra is None else state | prefixed("extra", self.extra.state())


def pair_loss(x_BD: Tensor, z_UD: Tensor, pool: LabelPool, task: PairTask) -> Tensor:
    """The loss of unit vectors. Pairs that are masked, or right and not chosen, are no negatives."""
    device = x_BD.device
    if task.loss == "triplet":
        place, negative = to_device(pool.positive, device), to_device(pool.negative, device)
        return triplet_loss(x_BD @ z_UD.T, place, negative, margin=task.margin, hardest=task.hardest)
    right, masked = _bags(pool.right, device), _bags(~pool.right & ~pool.negative, device)
    scaled = x_BD / task.temperature
    if task.loss == "softmax":
        return full_loss(scaled, z_UD, right, masked=masked, loss="softmax")
    # With one right label in U a chance of one half for each would be far off: the logit begins at -log U.
    ones = scaled.new_ones(len(scaled), 1)
    offset = z_UD.new_full((len(z_UD), 1), -float(np.log(max(len(z_UD), 1))))
    return full_loss(
        torch.cat([scaled, ones], dim=1), torch.cat([z_UD, offset], dim=1), right, masked=masked, loss="bce"
    )


def _bags(pairs_BU: BoolArray, device: torch.device) -> Bags:
    owners, places = np.nonzero(pairs_BU)
    starts = np.append(0, np.cumsum(np.bincount(owners, minlength=len(pairs_BU)))).astype(np.int64)
    return Bags(
        to_device(starts, device), to_device(places.astype(np.int32), device), torch.ones(len(places), device=device)
    )


def label_index(vectors: F32, make_index: IndexBuilder) -> LabelIndex:
    """Labels by the cosine of their vectors; one without text, whose vector is zero, is never found."""
    named = np.flatnonzero(np.any(vectors != 0, axis=1)).astype(np.int32)
    return LabelIndex(make_index(vectors[named]), named)


def kept_apart(documents: int, share: float, rng: np.random.Generator) -> BoolArray:
    """(N,) a random share of the documents, at least one."""
    held = np.zeros(documents, dtype=np.bool_)
    held[rng.permutation(documents)[: max(round(share * documents), 1)]] = True
    return held


@dataclass(frozen=True)
class Towers(DataPart):
    """Stage I: the encoder, and the unit vectors of documents (N, D) and labels (L, D)."""

    KIND = "two-towers"

    encoder: Annotated[FrozenEncoder, Sized(width="width")]
    documents: Annotated[F32, Shaped("documents", "width")]
    labels: Annotated[F32, Shaped("labels", "width")]
