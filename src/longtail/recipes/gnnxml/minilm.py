"""all-MiniLM-L6-v2 as an encoder of sentences: frozen, 384 numbers, the mean over tokens. Needs `transformers`, also
to predict.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from longtail.errors import MissingExtra
from longtail.features.pieces import checkpoint_folder
from longtail.types import F32

_MOST_TOKENS = 256
_BATCH = 128


def load(folder: str) -> Callable[[Sequence[str]], F32]:
    """The function from texts to (n, 384) vectors. folder: of a model that `transformers` reads; empty: that of the
    package.
    """
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtra("transformers", "minilm", "features.keygraph.encoder=minilm")
    place = checkpoint_folder(folder or "minilm", "features.keygraph.encoder=minilm")
    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(place), local_files_only=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModel.from_pretrained(str(place), local_files_only=True).eval().to(device)
    return lambda texts: _encode(texts, tokenizer, model, device)


@torch.inference_mode()
def _encode(texts: Sequence[str], tokenizer: Any, model: Any, device: str) -> F32:
    """Means over the tokens of each text; texts of like length go together, so little is padded."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors = np.zeros((len(texts), int(model.config.hidden_size)), dtype=np.float32)
    for start in range(0, len(order), _BATCH):
        rows = order[start : start + _BATCH]
        # A lone surrogate is no UTF-8, which is what the tokenizer reads.
        readable = [texts[row].encode("utf-8", "replace").decode() for row in rows]
        tokens = tokenizer(readable, padding=True, truncation=True, max_length=_MOST_TOKENS, return_tensors="pt").to(
            device
        )
        mask = tokens["attention_mask"][:, :, None].float()
        found = (model(**tokens).last_hidden_state.float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        vectors[rows] = found.cpu().numpy()
    return vectors
