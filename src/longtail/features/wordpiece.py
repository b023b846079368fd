"""A sub-word vocabulary learned from the words of a corpus, offline.

`tokenizers` learns it; cutting words into pieces is a kernel of ours (`sparse_kernels`), so prediction does not need
the library, and a test holds both to the same pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from longtail.features import sparse_kernels as kernels
from longtail.features.reading import code_points
from longtail.features.tables import U64
from longtail.types import I64

INSIDE = "##"
_LEAST_COUNT = 2


def train_pieces(words: Sequence[str], counts: I64, size: int) -> list[str]:
    """About `size` pieces, sorted; those that continue a word begin with ``##``. The same words and counts give the
    same pieces.

    The library's trainer alone does not: it numbers the characters that continue words in the order of a randomly
    seeded hash map, and these numbers break ties between merges. Handing it those characters, sorted, as given tokens
    fixes their numbers (checked: any order of words and any number of threads, equal pieces).
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    characters_inside = sorted({character for word in words for character in word[1:]})
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_LEAST_COUNT,
        continuing_subword_prefix=INSIDE,
        special_tokens=[INSIDE + character for character in characters_inside],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeated(words, counts), trainer)
    return sorted(tokenizer.get_vocab())


def _repeated(words: Sequence[str], counts: I64) -> Iterator[str]:
    """Each word as often as it counts: the trainer only takes text."""
    for word, count in zip(words, counts.tolist(), strict=True):
        yield f"{word} " * count


def piece_keys(pieces: Sequence[str]) -> U64:
    """The feature keys of pieces, in their order."""
    inside = np.array([piece.startswith(INSIDE) for piece in pieces], dtype=np.bool_)
    return kernels.keys_of_pieces(*code_points([piece.removeprefix(INSIDE) for piece in pieces]), inside)
