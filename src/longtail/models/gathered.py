"""One ranking of what the shards of a model found, each by itself: the same as that of the model that was split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from longtail.models.rankers import averaged, best, sigmoid
from longtail.search.split import ShardLists, merged
from longtail.types import F32, TopK


def ranked(shards: Sequence[ShardLists], k: int, n_labels: int) -> TopK:
    """The `k` best of all `n_labels` labels. shards: in their order, asked for `k` labels or more.

    Lists are put together by the scores of rows, as one index would have found them: what is made of scores may round
    two of them to one number.
    """
    said = shards[0]
    first_k = max(k, said.voted)
    lists = [merged([shard.lists[n] for shard in shards], max(first_k, said.depth)) for n in range(len(said.lists))]
    lists = [TopK(top.ids, np.where(top.ids >= 0, sigmoid(top.scores), -np.inf).astype(np.float32)) for top in lists]
    first = averaged(lists, first_k) if said.depth else lists[0]
    if not said.votes:
        return TopK(first.ids[:, :k], first.scores[:, :k])
    votes = np.zeros(first.ids.shape, np.float32)
    votes[:, : said.voted] = _voted(shards).looked_up(first.ids[:, : said.voted])[0]
    return best(first.ids, with_votes(np.maximum(first.scores, 0), votes, said.weight), min(k, n_labels))


def _voted(shards: Sequence[ShardLists]) -> TopK:
    """All labels that were found, with what they are voted in the place of scores; in no order."""
    count = len(shards)
    ids = [
        np.where(top.ids >= 0, top.ids * count + number, TopK.PAD).astype(np.int32)
        for number, shard in enumerate(shards)
        for top in shard.lists
    ]
    return TopK(np.concatenate(ids, axis=1), np.concatenate([votes for one in shards for votes in one.votes], axis=1))


def with_votes(scores: F32, votes: F32, weight: float) -> F32:
    """What is made of the scores of rows and the votes of documents."""
    counts = np.float32(weight)
    fused: F32 = ((np.sqrt(scores) + counts * votes) / (1 + counts)) ** 2
    return fused
