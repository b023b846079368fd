"""From the code points of documents to their keyword graphs, and scores of the labels of a document's clusters.

Graphs are made one document after the other, without the interpreter's lock. A block of documents is one piece of work
(`longtail.features.reading.in_order` gives every thread its own), so results do not depend on the number of threads.
Words are known by their 64-bit keys (`longtail.features.kernels`), inside a document by small numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.features.kernels import find, read_keys
from longtail.features.reading import SINGLE, U8, U32, U64, WORD, Reader
from longtail.kernels.basics import offer, settle
from longtail.kernels.compiled import compiled, prange
from longtail.kernels.products import dot
from longtail.recipes.gnnxml.keygraph import SENTENCES, WINDOWS, Blocks, Phrases, Rules
from longtail.search.kernels.classifiers import child_scores
from longtail.types import F32, I32, I64

F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Ends of sentences in scripts that put no space after them: Arabic question mark and full stop, Armenian, danda,
# Ethiopic, ideographic.
_FULL_STOPS = (0x061F, 0x06D4, 0x0589, 0x0964, 0x0965, 0x1362, 0x3002)
_POINT, _EXCLAMATION, _QUESTION, _NEWLINE = 0x2E, 0x21, 0x3F, 0x0A
_BULLETS = (0x2A, 0x2022, 0x2023, 0x25E6, 0x2043)


# ---- words and sentences ----


@compiled()
def keys_of_words(text: U32, edges: I64, reader: Reader) -> tuple[U64, I64]:
    """Keys of the words of each text, in order, and where each text's begin and the last's end."""
    keys, origins, starts = (
        np.empty(len(text), np.uint64),
        np.empty(len(text), np.int64),
        np.zeros(len(edges), np.int64),
    )
    for number in range(len(edges) - 1):
        starts[number + 1] = read_keys(
            text, edges[number] + 1, edges[number + 1], reader, keys, origins, starts[number]
        )
    return keys[: starts[-1]].copy(), starts


@compiled()
def _begin_of(origin: Any) -> Any:
    return origin >> 32


@compiled()
def _end_of(origin: Any) -> Any:
    return (origin >> 32) + ((origin & 0xFFFFFFFF) >> 2)


@compiled()
def _is_space(character: Any) -> Any:
    return (
        character == 0x20
        or (0x09 <= character <= 0x0D)
        or character == 0xA0
        or (0x2000 <= character <= 0x200A)
        or character == 0x3000
    )


@compiled()
def _ends_sentence(text: U32, begin: int, end: int, classes: U8, after_abbreviation: bool) -> bool:
    """Whether what stands between two words, text[begin:end], ends a sentence."""
    lines, pointed = 0, False
    for i in range(begin, end):
        character = text[i]
        if character == _NEWLINE:
            lines += 1
            if lines == 2:
                return True
        for stop in _FULL_STOPS:
            if character == stop:
                return True
        # "is it?yes" and addresses are no ends; ideographs need no space.
        if character in (_EXCLAMATION, _QUESTION) and (i + 1 < end or classes[text[end]] == SINGLE):
            return True
        if character == _POINT and not after_abbreviation:
            pointed = True
        if pointed and _is_space(character):
            return True
        for bullet in _BULLETS:
            if (
                character == bullet
                and (i == begin or _is_space(text[i - 1]))
                and i + 1 < end
                and _is_space(text[i + 1])
            ):
                return True
    return False


@compiled()
def _is_abbreviation(text: U32, origin: np.int64, key: np.uint64, classes: U8, rules: Rules) -> bool:
    first = text[_begin_of(origin)]
    if _end_of(origin) - _begin_of(origin) == 1 and classes[first] == WORD:
        return not 48 <= first <= 57
    return find(rules.abbreviations, key) >= 0


@compiled()
def _read_document(
    text: U32,
    edges: I64,
    document: int,
    fields: int,
    reader: Reader,
    rules: Rules,
    keys: U64,
    origins: I64,
    sentence: I32,
) -> tuple[int, int]:
    """Words of a document in reading order with the number of their sentence; (words, sentences). A field ends a
    sentence.
    """
    n, sentences = 0, 0
    for field in range(document * fields, (document + 1) * fields):
        before = n
        n = read_keys(text, edges[field] + 1, edges[field + 1], reader, keys, origins, n)
        for i in range(before, n):
            if i > before:
                gap_begin, gap_end = _end_of(origins[i - 1]), _begin_of(origins[i])
                short = _is_abbreviation(text, origins[i - 1], keys[i - 1], reader.classes, rules)
                sentences += _ends_sentence(text, gap_begin, gap_end, reader.classes, short)
            sentence[i] = sentences
        sentences += n > before
    return n, sentences


@compiled()
def _number_words(keys: U64, n: int, word: I32, first: I32) -> int:
    """word[i] = the number of word i within the document, by first occurrence; first[w] = where word w occurs first.
    How many there are.
    """
    bits = 2
    while (1 << bits) < 2 * n:
        bits += 1
    slots, mask, count = np.full(1 << bits, -1, np.int32), np.uint64((1 << bits) - 1), 0
    for i in range(n):
        slot = keys[i] & mask
        while slots[slot] >= 0 and keys[first[slots[slot]]] != keys[i]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = count
            first[count] = i
            count += 1
        word[i] = slots[slot]
    return count


@compiled()
def _says_something(text: U32, origin: np.int64, key: np.uint64, classes: U8, rules: Rules) -> bool:
    """Whether a word is a content word: no stop word, no number, and longer than a letter (ideographs are words of
    one).
    """
    begin, end = _begin_of(origin), _end_of(origin)
    if end - begin == 1 and classes[text[begin]] == WORD:
        return False
    digits = True
    for i in range(begin, end):
        digits &= 48 <= text[i] <= 57
    return not digits and find(rules.stop, key) < 0


# ---- TextRank ----


@compiled()
def _co_occurrences(word: I32, sentence: I32, content: Bools, n: int, span: int, words: int) -> tuple[I64, I32]:
    """Neighbours of each word: content words at most `span` - 1 places away among those of a sentence, as often as it
    happens.
    """
    kept, kept_sentence = np.empty(n, np.int32), np.empty(n, np.int32)
    count = 0
    for i in range(n):
        if content[word[i]]:
            kept[count], kept_sentence[count] = word[i], sentence[i]
            count += 1
    starts = np.zeros(words + 2, np.int64)
    for fill in range(2):
        if fill == 1:
            for w in range(words):
                starts[w + 2] += starts[w + 1]
            neighbours = np.empty(starts[words + 1], np.int32)
        for i in range(count):
            for j in range(i + 1, min(i + span, count)):
                if kept_sentence[j] != kept_sentence[i]:
                    break
                if kept[i] != kept[j]:
                    if fill == 0:
                        starts[kept[i] + 2] += 1
                        starts[kept[j] + 2] += 1
                    else:
                        neighbours[starts[kept[i] + 1]] = kept[j]
                        neighbours[starts[kept[j] + 1]] = kept[i]
                        starts[kept[i] + 1] += 1
                        starts[kept[j] + 1] += 1
    return starts[: words + 1], neighbours


@compiled()
def text_rank(starts: I64, neighbours: I32, damping: float, rounds: int, tolerance: float) -> F64:
    """(W,) score_w = 1 - d + d * sum over neighbours u of score_u / degree_u, from all ones, until no score moves by
    `tolerance`.
    """
    words = len(starts) - 1
    scores, moved = np.ones(words), np.ones(words)
    for _ in range(rounds):
        change = 0.0
        for w in range(words):
            total = 0.0
            for at in range(starts[w], starts[w + 1]):
                other = neighbours[at]
                total += scores[other] / (starts[other + 1] - starts[other])
            moved[w] = 1.0 - damping + damping * total
            change = max(change, abs(moved[w] - scores[w]))
        scores, moved = moved, scores
        if change < tolerance:
            break
    return scores


@compiled()
def _choose(scores: F64, content: Bools, words: int, rules: Rules, vertex_of: I32) -> int:
    """vertex_of[w] = the rank of a content word that becomes a keyword, else -1; how many do. Ties go to the word
    that occurs first.
    """
    candidates = np.empty(words, np.int64)
    count = 0
    for w in range(words):
        vertex_of[w] = -1
        if content[w]:
            candidates[count] = w
            count += 1
    wanted = min(math.ceil(count * rules.share - 1e-9), rules.most)
    order = np.argsort(-scores[candidates[:count]], kind="mergesort")
    for rank in range(wanted):
        vertex_of[candidates[order[rank]]] = rank
    return wanted


# ---- entities ----


@compiled()
def _matches(keys: U64, at: int, end: int, phrase: U64) -> bool:
    if at + len(phrase) > end:
        return False
    same = 0
    while same < len(phrase) and keys[at + same] == phrase[same]:
        same += 1
    return same == len(phrase)


@compiled()
def _add_entities(
    keys: U64,
    n: int,
    word: I32,
    sentence: I32,
    phrases: Phrases,
    document: int,
    vertex_of: I32,
    vertices: int,
    longer: I64,
    longer_first: I64,
) -> tuple[int, int]:
    """Vertices for named entities: single words as keywords, longer ones that occur in `longer`, `longer_first`;
    (vertices, longer ones).
    """
    found = 0
    for number in range(phrases.document_starts[document], phrases.document_starts[document + 1]):
        phrase = phrases.keys[phrases.key_starts[number] : phrases.key_starts[number + 1]]
        for at in range(n if len(phrase) else 0):
            if _matches(keys, at, n, phrase) and sentence[at] == sentence[at + len(phrase) - 1]:
                if len(phrase) == 1:
                    if vertex_of[word[at]] < 0:
                        vertex_of[word[at]] = vertices
                        vertices += 1
                else:
                    longer[found], longer_first[found] = number, at
                    found += 1
                break
    return vertices, found


# ---- units, attachments, edges ----


@compiled()
def _units(sentence: I32, n: int, sentences: int, rules: Rules) -> I64:
    """(U, 2): first word and the one after the last of every sentence, or of every window that stands for one."""
    if n == 0:
        return np.zeros((0, 2), np.int64)
    if rules.unit == SENTENCES or (rules.unit != WINDOWS and sentences > 1):
        units = np.zeros((sentences, 2), np.int64)
        units[0, 0] = 0
        for i in range(1, n):
            if sentence[i] != sentence[i - 1]:
                units[sentence[i - 1], 1] = i
                units[sentence[i], 0] = i
        units[sentence[n - 1], 1] = n
        return units
    # Few windows also of a very long text: then they are longer, and each word is in two of them.
    step = max(1, -(-(n - rules.window) // max(rules.most_windows - 1, 1)))
    width = rules.window if step == 1 else max(rules.window, 2 * step)
    count = 1 + max(0, -(-(n - width) // step))
    units = np.zeros((count, 2), np.int64)
    for u in range(count):
        units[u, 0], units[u, 1] = u * step, min(u * step + width, n)
    return units


@compiled()
def _grown(array: Any, needed: int) -> Any:
    """The array, or a copy with at least twice the room."""
    if needed <= len(array):
        return array
    grown = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@compiled()
def _attach(
    keys: U64, word: I32, units: I64, vertex_of: I32, phrases: Phrases, longer: I64, vertices: int
) -> tuple[int, I32, I32, I32]:
    """Which vertices each unit holds: (vertices with the empty one if it is needed, starts of each unit's vertices,
    these, shared (v, v)).
    """
    single, empty = vertices - len(longer), False
    seen, found, filled = np.full(vertices + 1, -1, np.int32), np.empty(64, np.int32), 0
    starts, shared = np.zeros(len(units) + 1, np.int32), np.zeros((vertices, vertices), np.int32)
    for u in range(len(units)):
        before = filled
        found = _grown(found, filled + vertices + 1)
        for i in range(units[u, 0], units[u, 1]):
            vertex = vertex_of[word[i]]
            if vertex >= 0 and seen[vertex] != u:
                seen[vertex] = u
                found[filled] = vertex
                filled += 1
        for number in range(len(longer)):
            phrase = phrases.keys[phrases.key_starts[longer[number]] : phrases.key_starts[longer[number] + 1]]
            for i in range(units[u, 0], units[u, 1]):
                if _matches(keys, i, units[u, 1], phrase):
                    found[filled] = single + number
                    filled += 1
                    break
        for a in range(before, filled):
            for b in range(before, filled):
                shared[found[a], found[b]] += 1
        if filled == before:
            empty = True
            found[filled] = vertices
            filled += 1
        starts[u + 1] = filled
    return vertices + int(empty), starts, found[:filled], shared


@compiled()
def _write_names(
    origins: I64,
    first: I32,
    words: int,
    vertex_of: I32,
    phrases: Phrases,
    longer: I64,
    longer_first: I64,
    singles: int,
    names: I64,
) -> None:
    """Where each vertex of a document is spelled; the empty vertex stays (0, 0)."""
    names[:] = 0
    for w in range(words):
        if vertex_of[w] >= 0:
            names[vertex_of[w], 0], names[vertex_of[w], 1] = _begin_of(origins[first[w]]), _end_of(origins[first[w]])
    for number in range(len(longer)):
        length = phrases.key_starts[longer[number] + 1] - phrases.key_starts[longer[number]]
        names[singles + number, 0] = _begin_of(origins[longer_first[number]])
        names[singles + number, 1] = _end_of(origins[longer_first[number] + length - 1])


@compiled()
def _write_edges(shared: I32, degrees: I32, neighbours: I32, weights: F32, at: int) -> tuple[I32, F32, int]:
    """Edges of a document from position `at` on, by vertex and neighbour; the arrays, grown if need be, and the
    position after.
    """
    neighbours, weights = _grown(neighbours, at + shared.size), _grown(weights, at + shared.size)
    degrees[:] = 0
    for a in range(len(shared)):
        for b in range(len(shared)):
            if a != b and shared[a, b] > 0:
                neighbours[at], weights[at] = b, shared[a, b]
                degrees[a] += 1
                at += 1
    return neighbours, weights, at


@compiled()
def _write_attachments(unit_starts: I32, members: I32, counts: I32, attached: I32, at: int) -> tuple[I32, int]:
    """The units of each vertex from position `at` on; the array, grown if need be, and the position after."""
    attached = _grown(attached, at + len(members))
    counts[:] = 0
    for member in members:
        counts[member] += 1
    places = at + np.cumsum(counts) - counts
    for u in range(len(unit_starts) - 1):
        for place in range(unit_starts[u], unit_starts[u + 1]):
            attached[places[members[place]]] = u
            places[members[place]] += 1
    return attached, at + len(members)


@compiled()
def keygraphs(text: U32, edges: I64, fields: int, reader: Reader, phrases: Phrases, rules: Rules) -> Blocks:
    """The graphs of a block of documents. text, edges: see `longtail.features.kernels.bags`."""
    documents, longest = (len(edges) - 1) // fields, 0
    for document in range(documents):
        longest = max(longest, edges[(document + 1) * fields] - edges[document * fields])
    keys, origins, content = np.empty(longest, np.uint64), np.empty(longest, np.int64), np.empty(longest, np.bool_)
    of_words, counts = np.empty((4, longest), np.int32), np.zeros((3, documents), np.int32)
    sentence, word, first, vertex_of = of_words[0], of_words[1], of_words[2], of_words[3]
    n_vertices, n_units, n_words = counts[0], counts[1], counts[2]
    degrees, attachments = np.empty(1024, np.int32), np.empty(1024, np.int32)
    names, vertex_end = np.empty((1024, 2), np.int64), 0
    neighbours, weights, edge_end = np.empty(4096, np.int32), np.empty(4096, np.float32), 0
    attached, attached_end, spans, span_end = np.empty(4096, np.int32), 0, np.empty((1024, 2), np.int64), 0
    for document in range(documents):
        n, sentences = _read_document(text, edges, document, fields, reader, rules, keys, origins, sentence)
        words = _number_words(keys, n, word, first)
        for w in range(words):
            content[w] = _says_something(text, origins[first[w]], keys[first[w]], reader.classes, rules)
        starts, others = _co_occurrences(word, sentence, content, n, rules.span, words)
        ranked = _choose(
            text_rank(starts, others, rules.damping, rules.rounds, rules.tolerance), content, words, rules, vertex_of
        )
        entities = phrases.document_starts[document + 1] - phrases.document_starts[document]
        longer, longer_first = np.empty(entities, np.int64), np.empty(entities, np.int64)
        singles, n_longer = _add_entities(
            keys, n, word, sentence, phrases, document, vertex_of, ranked, longer, longer_first
        )
        longer = longer[:n_longer]
        units = _units(sentence, n, sentences, rules)
        total, unit_starts, members, shared = _attach(keys, word, units, vertex_of, phrases, longer, singles + n_longer)

        here, vertex_end = vertex_end, vertex_end + total
        names, degrees = _grown(names, vertex_end), _grown(degrees, vertex_end)
        attachments = _grown(attachments, vertex_end)
        _write_names(origins, first, words, vertex_of, phrases, longer, longer_first, singles, names[here:vertex_end])
        neighbours, weights, edge_end = _write_edges(shared, degrees[here:vertex_end], neighbours, weights, edge_end)
        attached, attached_end = _write_attachments(
            unit_starts, members, attachments[here:vertex_end], attached, attached_end
        )
        spans = _grown(spans, span_end + len(units))
        for u in range(len(units)):
            spans[span_end + u, 0] = _begin_of(origins[units[u, 0]])
            spans[span_end + u, 1] = _end_of(origins[units[u, 1] - 1])
        span_end += len(units)
        n_vertices[document], n_units[document], n_words[document] = total, len(units), n
    return Blocks(
        vertices=n_vertices,
        sentences=n_units,
        words=n_words,
        edges=degrees[:vertex_end].copy(),
        neighbours=neighbours[:edge_end].copy(),
        weights=weights[:edge_end].copy(),
        attachments=attachments[:vertex_end].copy(),
        attached=attached[:attached_end].copy(),
        names=names[:vertex_end].copy(),
        spans=spans[:span_end].copy(),
    )


# ---- labels of a document's clusters ----
#
# Documents are words (`indptr`, `indices`, `data` with `words`, see `SparseWeights`), dense vectors (with `rows`), or
# both; what there is not is None, and numba leaves out what depends on it. Clusters are of very different size, so no
# table of all labels is made to rank them.


@compiled()
def _member_scores(
    indptr: Any,
    indices: Any,
    data: Any,
    words: Any,
    vectors: Any,
    rows: Any,
    starts: I64,
    bias: F32,
    document: Any,
    cluster: Any,
    scores: F64,
) -> int:
    """Write the scores of a cluster's labels; returns how many there are."""
    first = starts[cluster]
    count = starts[cluster + 1] - first
    if words is not None:
        child_scores(indptr, indices, data, document, None, words, cluster, scores)
    else:
        for member in range(count):
            scores[member] = bias[first + member]
    if rows is not None:
        for member in range(count):
            scores[member] += dot(rows, first + member, vectors, document)
    return count


@compiled()
def _sigmoid(score: float) -> float:
    if score >= 0.0:
        return 1.0 / (1.0 + math.exp(-score))
    return math.exp(score) / (1.0 + math.exp(score))


@compiled(parallel=True)
def rank_members(
    indptr: Any,
    indices: Any,
    data: Any,
    words: Any,
    vectors: Any,
    rows: Any,
    starts: I64,
    bias: F32,
    labels: I32,
    clusters: I32,
    gates: F32,
    ids: I32,
    best: F32,
) -> None:
    """The best labels by gate x probability; (B, k) results are padding on entry. clusters, gates: (B, m), -1 for
    none.
    """
    largest = 0
    for number in range(len(starts) - 1):
        largest = max(largest, starts[number + 1] - starts[number])
    for unsigned in prange(len(clusters)):
        document: Any = np.int64(unsigned)
        scores = np.empty(largest)
        size = 0
        for place in range(clusters.shape[1]):
            cluster = np.int64(clusters[document, place])
            if cluster >= 0:
                for member in range(
                    _member_scores(indptr, indices, data, words, vectors, rows, starts, bias, document, cluster, scores)
                ):
                    score: Any = np.float32(gates[document, place] * _sigmoid(scores[member]))
                    size = offer(ids[document], best[document], size, labels[starts[cluster] + member], score)
        settle(ids[document], best[document], size)
