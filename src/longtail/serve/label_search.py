"""Labels by a piece of their name or id."""

from __future__ import annotations

from itertools import chain

import numpy as np

from longtail.bundle import LabelTable
from longtail.types import I64

# Labels looked at, of those that are found one way, before the most frequent are taken.
_MOST = 2_000
_BETWEEN = "\n"


class LabelSearch:
    """Names and ids of all labels in one string each, as people compare them: case does not count.

    A look through one of 100,000 labels takes a few milliseconds, and there is nothing to be kept up to date.
    """

    def __init__(self, labels: LabelTable) -> None:
        self.counts: I64 = np.asarray(labels.counts)
        self.texts = [_Joined(labels.names), _Joined(labels.uids)]

    def find(self, text: str, limit: int) -> list[int]:
        """Numbers of labels: first those that begin so, then those with a word that does, then all others; frequent
        ones first. An empty text finds the most frequent labels.
        """
        wanted = _folded(text).strip()
        if not wanted:
            return np.lexsort((np.arange(len(self.counts)), -self.counts))[:limit].tolist()
        found: dict[int, None] = {}
        for before in (_BETWEEN, " ", ""):
            every = chain.from_iterable(text.find(before + wanted, max(limit, _MOST)) for text in self.texts)
            numbers = np.unique(list(every))
            numbers = numbers.astype(np.int64)
            ordered = numbers[np.lexsort((numbers, -self.counts[numbers]))]
            found.update(dict.fromkeys(ordered.tolist()))
            if len(found) >= limit:
                break
        return list(found)[:limit]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()) if _BETWEEN in text else text.casefold()


class _Joined:
    def __init__(self, strings: object) -> None:
        folded = [_folded(text) for text in strings]  # type: ignore[attr-defined]
        self.text = _BETWEEN + _BETWEEN.join(folded) + _BETWEEN
        ends = np.zeros(len(folded) + 1, dtype=np.int64)
        np.cumsum([len(one) + 1 for one in folded], out=ends[1:])
        self.starts = ends[:-1]  # of the break before each

    def find(self, wanted: str, most: int) -> list[int]:
        """Numbers of the first strings that hold it."""
        found: list[int] = []
        place = self.text.find(wanted)
        while place >= 0 and len(found) < most:
            number = int(np.searchsorted(self.starts, place, side="right")) - 1
            found.append(number)
            # On to the next string: one is found once.
            after = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.text) - 1
            place = self.text.find(wanted, max(int(after), place + 1))
        return found
