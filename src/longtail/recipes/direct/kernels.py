"""Rows that are the sum of text and a trusted free vector, on a CPU: made, and taught, in one pass over memory each;
training against sampled labels; and votes of training documents at prediction.

bf16 numbers are handed over as their 16 bits; a float32 with the same upper half is the same number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled, prange
from longtail.nn.kernels import adam_row
from longtail.search.kernels.nearest import Lists, Pointers, nearest_rows
from longtail.types import F32, I32, I64

# Rows that a thread takes at a time, with one scratch row.
_CHUNK = 64


@compiled(inline=True)
def _bits(value: Any) -> Any:
    """float32 -> the nearest bf16, ties to even, as torch rounds."""
    bits = np.float32(value).view(np.uint32)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@compiled(inline=True)
def _number(bits: Any) -> Any:
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@compiled(parallel=True)
def composed_bits(
    out: NDArray[np.uint16], free: NDArray[np.float32], trust: NDArray[np.float32], text: NDArray[np.float32]
) -> None:
    """out[:, :D + 1] = (trust * free + text, bias) as bf16.

    free: (L, D + 1).  trust: (L, 1).  text: (L, D), or (0, D) for none.
    """
    width = free.shape[1] - 1
    for index in prange(free.shape[0]):
        n = np.int64(index)
        for d in range(width):
            value = free[n, d] * trust[n, 0]
            out[n, d] = _bits(value + text[n, d]) if text.shape[0] else _bits(value)
        out[n, width] = _bits(free[n, width])


@compiled(parallel=True)
def learn_composed(
    free: NDArray[np.float32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    gradient: NDArray[np.uint16],
    scale: np.float32,
    trust: NDArray[np.float32],
    text_gradient: NDArray[np.float32],
    factors: NDArray[np.float32],
) -> None:
    """Adam on free vectors, and the gradient of texts summed up.

    gradient: bf16 of the shape of `free` or larger, to be multiplied by `scale`.
    """
    width = free.shape[1] - 1
    for chunk in prange((free.shape[0] + _CHUNK - 1) // _CHUNK):
        start = np.int64(chunk) * _CHUNK
        own = np.empty(width + 1, dtype=np.float32)
        for n in range(start, min(start + _CHUNK, free.shape[0])):
            for d in range(width):
                value = _number(gradient[n, d]) * scale
                if text_gradient.shape[0]:
                    text_gradient[n, d] += value
                own[d] = value * trust[n, 0]
            own[width] = _number(gradient[n, width]) * scale
            adam_row(free[n], first[n], second[n], own, factors)


@compiled(parallel=True)
def votes_for(
    queries: Lists,
    postings: Lists,
    rows: Lists,
    heaviest: F32,
    targets: Pointers,
    rarity: F32,
    neighbours: int,
    ids: I32,
    found: F32,
    n_workers: int,
) -> None:
    """Nearest documents vote for labels with the square of their similarity; `found` (B, k) gets the share that each
    of the labels `ids` has of the whole vote, by its rarity.

    queries: (B, V or more) as (starts, columns, values), columns ascending; those beyond the V words of `postings` are
    not looked at. Others as in `search.kernels.nearest.rank_sparse`.
    """
    query_start, query_columns, query_values = queries
    target_start, target_labels = targets
    n_rows, n_words = len(target_start) - 1, len(heaviest)
    for worker in prange(n_workers):
        similarity = np.zeros(n_rows, dtype=np.float32)
        touched = np.empty(n_rows, dtype=np.int32)
        weight_of = np.zeros(n_words, dtype=np.float32)
        votes = np.zeros(len(rarity), dtype=np.float32)
        keys = np.empty(neighbours, dtype=np.float32)
        documents = np.empty(neighbours, dtype=np.int32)
        room = (similarity, touched, weight_of, keys, documents)
        for query in range(np.int64(worker), len(ids), n_workers):
            first, last = query_start[query], query_start[query + 1]
            while last > first and query_columns[last - 1] >= n_words:
                last -= 1
            near = nearest_rows(
                query_columns[first:last], query_values[first:last], postings, rows, heaviest, True, room, neighbours
            )
            total = np.float32(0.0)
            for position in range(near):
                weight = keys[position] * keys[position]
                total += weight
                row = documents[position]
                for at in range(target_start[row], target_start[row + 1]):
                    votes[target_labels[at]] += weight
            if total > 0.0:
                for place in range(ids.shape[1]):
                    label = ids[query, place]
                    if label >= 0:
                        found[query, place] = rarity[label] * votes[label] / total
            for position in range(near):
                row = documents[position]
                for at in range(target_start[row], target_start[row + 1]):
                    votes[target_labels[at]] = 0.0


# ---- sampled labels: rows as bytes, few slopes, and only what they touch ----

# Products that are compared with their thresholds at once: most pieces of this length have none that passes.
_PIECE = 32
_LARGEST_CODE = np.float32(127)


@compiled(inline=True)
def _code_row(row: Any, codes: Any) -> Any:
    """row ~ codes * (what is given back).  codes: int8, overwritten."""
    largest = np.float32(0)
    for d in range(row.size):
        largest = max(largest, abs(row[d]))
    scale = largest / _LARGEST_CODE
    factor = _LARGEST_CODE / largest if largest > 0 else np.float32(0)
    for d in range(row.size):
        codes[d] = np.int8(np.rint(row[d] * factor))
    return scale


@compiled(parallel=True)
def code_documents(x: NDArray[np.float32], codes: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
    for index in prange(x.shape[0]):
        b = np.int64(index)
        scales[b] = _code_row(x[b], codes[b])


@compiled(parallel=True)
def code_rows(
    labels: I64,
    free: NDArray[np.float32],
    trust: NDArray[np.float32],
    text: NDArray[np.float32],
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
) -> None:
    """The rows of `labels`, trust * free + text, as bytes.  free: (L, D + 1).  text: (L, D), or (0, D) for none."""
    width = codes.shape[1]
    for chunk in prange((labels.size + _CHUNK - 1) // _CHUNK):
        start = np.int64(chunk) * _CHUNK
        row = np.empty(width, dtype=np.float32)
        for place in range(start, min(start + _CHUNK, labels.shape[0])):
            n = labels[place]
            for d in range(width):
                row[d] = free[n, d] * trust[n, 0]
            if text.shape[0]:
                for d in range(width):
                    row[d] += text[n, d]
            scales[n] = _code_row(row, codes[n])


# `fastmath` only here: it lets the sums run in vector lanes (their order is fixed for a machine).
@compiled(parallel=True, fastmath=True)
def pair_scores(
    x: NDArray[np.float32],
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    free: NDArray[np.float32],
    owners: I64,
    ids: I64,
    scores: NDArray[np.float32],
) -> None:
    """scores[p] = x[owners[p]] . row of label ids[p], with its bias."""
    width = codes.shape[1]
    for index in prange(ids.size):
        p = np.int64(index)
        document, row = x[owners[p]], codes[ids[p]]
        total = np.float32(0)
        for d in range(width):
            total += document[d] * np.float32(row[d])
        scores[p] = total * scales[ids[p]] + free[ids[p], width]


@compiled(parallel=True)
def keep_negatives(
    products: NDArray[np.int32],
    document_scales: NDArray[np.float32],
    labels: I64,
    row_scales: NDArray[np.float32],
    offsets: NDArray[np.float32],
    log_weights: NDArray[np.float32],
    thresholds: NDArray[np.float32],
    shifts: I64,
    least: np.float32,
    pair_starts: I64,
    pair_ids: I64,
    ids: NDArray[np.int32],
    slopes: NDArray[np.float32],
    counts: I64,
    losses: NDArray[np.float64],
) -> None:
    """Which of a tile's products count, and with which slope; added to the lists of their documents.

    products: (n, M) of documents and `labels` as bytes.  offsets: bias + log weight.  A score s of weight c is kept
    with the chance q = min(1, c exp(s) / least), and then counts c / q times: unbiased, whatever `least` is.
    thresholds: log(least * u) of uniform u; document b reads them from shifts[b] on.
    pair_starts, pair_ids: what is known of documents; such pairs are left out.
    ids, slopes: (n, at least M); the first `counts` of each row are taken.  losses: (n,) added to.
    """
    whole = labels.size - labels.size % _PIECE
    for index in prange(products.shape[0]):
        b = np.int64(index)
        scale, passed, count, loss = document_scales[b], thresholds[shifts[b] :], counts[b], 0.0
        for start in range(0, labels.size, _PIECE):
            found: Any = start >= whole
            if not found:
                # Slices, whose places count from 0: else numba asks of each place whether it counts from behind.
                some, scales, lifts = products[b, start:], row_scales[start:], offsets[start:]
                needed, hits = passed[start:], np.int32(0)
                for j in range(_PIECE):
                    hits += np.int32(np.float32(some[j]) * (scale * scales[j]) + lifts[j] > needed[j])
                found = hits > 0
            if found:
                for j in range(start, min(start + _PIECE, labels.size)):
                    weighted = np.float32(products[b, j]) * (scale * row_scales[j]) + offsets[j]
                    if weighted > passed[j]:
                        known = False
                        for p in range(pair_starts[b], pair_starts[b + 1]):
                            known = known or pair_ids[p] == labels[j]
                        if not known:
                            score = np.float64(weighted - log_weights[j])
                            # exp of a number <= 0 cannot overflow; both the loss and the sigmoid follow from it
                            small = np.exp(-abs(score))
                            chance = (1.0 if score >= 0 else small) / (1.0 + small)
                            share = np.exp(np.float64(log_weights[j])) / min(1.0, np.exp(np.float64(weighted)) / least)
                            ids[b, count] = labels[j]
                            slopes[b, count] = np.float32(share * chance)
                            loss += share * (max(score, 0.0) + np.log1p(small))
                            count += 1
        counts[b] = count
        losses[b] += loss


@compiled(parallel=True)
def join_lists(
    ids: NDArray[np.int32],
    slopes: NDArray[np.float32],
    counts: I64,
    pair_starts: I64,
    pair_ids: I64,
    pair_slopes: NDArray[np.float32],
    starts: I64,
    all_ids: NDArray[np.int32],
    all_slopes: NDArray[np.float32],
    owners: I64,
) -> None:
    """The kept negatives of each document, then its pairs, one document behind the other.  starts: of each."""
    for index in prange(counts.size):
        b = np.int64(index)
        at = starts[b]
        for k in range(counts[b]):
            all_ids[at], all_slopes[at], owners[at] = ids[b, k], slopes[b, k], b
            at += 1
        for p in range(pair_starts[b], pair_starts[b + 1]):
            all_ids[at], all_slopes[at], owners[at] = pair_ids[p], pair_slopes[p], b
            at += 1


@compiled(parallel=True)
def gradient_to_documents(
    starts: I64,
    ids: NDArray[np.int32],
    slopes: NDArray[np.float32],
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    scale: np.float32,
    gradient: NDArray[np.float32],
) -> None:
    """gradient[b] = scale * sum of slope * row over the entries of document b."""
    for index in prange(gradient.shape[0]):
        b = np.int64(index)
        total = gradient[b]
        total[:] = 0
        for entry in range(starts[b], starts[b + 1]):
            row, factor = codes[ids[entry]], slopes[entry] * scales[ids[entry]] * scale
            for d in range(total.size):
                total[d] += factor * np.float32(row[d])


@compiled(parallel=True)
def learn_coded(
    rows: I32,
    starts: I64,
    entries: I32,
    edges: I64,
    owners: I64,
    slopes: NDArray[np.float32],
    x: NDArray[np.float32],
    scale: np.float32,
    free: NDArray[np.float32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    trust: NDArray[np.float32],
    text: NDArray[np.float32],
    text_gradient: NDArray[np.float32],
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    factors: NDArray[np.float32],
) -> None:
    """Adam on the free vectors of labels that have entries, the gradient of their texts summed up, and their bytes.

    rows, starts, entries, edges: entries by label (`longtail.nn.kernels.RowGroups`).  scale: of all slopes.
    """
    width = codes.shape[1]
    for chunk in prange(edges.size - 1):
        k = np.int64(chunk)
        own = np.empty(width + 1, dtype=np.float32)
        row = np.empty(width, dtype=np.float32)
        for u in range(edges[k], edges[k + 1]):
            n = np.int64(rows[u])
            own[:] = 0
            for position in range(starts[u], starts[u + 1]):
                entry = entries[position]
                slope, document = slopes[entry] * scale, x[owners[entry]]
                for d in range(width):
                    own[d] += slope * document[d]
                own[width] += slope
            if text_gradient.shape[0]:
                for d in range(width):
                    text_gradient[n, d] += own[d]
            for d in range(width):
                own[d] *= trust[n, 0]
            adam_row(free[n], first[n], second[n], own, factors)
            for d in range(width):
                row[d] = free[n, d] * trust[n, 0]
            if text.shape[0]:
                for d in range(width):
                    row[d] += text[n, d]
            scales[n] = _code_row(row, codes[n])


@compiled(parallel=True)
def learn_tokens(
    table: NDArray[np.float32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    tokens: I64,
    starts: I64,
    edges: I64,
    owners: NDArray[np.int32],
    weights: NDArray[np.float32],
    gradient: NDArray[np.uint16],
    factors: NDArray[np.float32],
) -> None:
    """Adam on `tokens`, whose gradient is the sum of weight * gradient of the texts that they occur in (`owners`).

    gradient: (L, D) bf16, which a cache holds twice as much of as of float32.
    """
    width = table.shape[1]
    for chunk in prange(edges.size - 1):
        k = np.int64(chunk)
        total = np.empty(width, dtype=np.float32)
        for u in range(edges[k], edges[k + 1]):
            total[:] = 0
            for at in range(starts[u], starts[u + 1]):
                weight, source = weights[at], gradient[owners[at]]
                for d in range(width):
                    total[d] += weight * _number(source[d])
            adam_row(table[tokens[u]], first[tokens[u]], second[tokens[u]], total, factors)
