"""A transformer over token numbers as torch runs it: BERT's layers, and the mean over the tokens of a text.

Its numbers are named as those of `longtail.models.transformer.FrozenTransformer`, its twin, which has the formulas. Our
own forward in place of a library's: training then needs no `transformers`, in any version.

Shapes: B texts, T tokens, D numbers per vector, H heads.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu, scaled_dot_product_attention

from longtail.models.transformer import FrozenTransformer, Pretrained
from longtail.nn.batches import TensorBatch, to_device, to_numpy
from longtail.nn.encoders import Encoded, Encoder
from longtail.types import I64

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
