"""The oracle: what `SparseText` should do, as plain Python that takes its time."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence

from longtail.data.dataset import Items
from longtail.features.settings import SparseTextConfig

Feature = tuple[str, str]  # kind, spelling
INVISIBLE = {0xAD, *range(0x200C, 0x2010), 0x2060, *range(0xFE00, 0xFE10), 0xFEFF, *range(0xE0100, 0xE01F0)}
UNSPACED = ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA")


def items(*texts: str, field: str = "title") -> Items:
    return Items([str(i) for i in range(len(texts))], {field: list(texts)})


def is_unspaced(character: str) -> bool:
    return is_word(character) and (unicodedata.name(character, "").startswith(UNSPACED) or character in "々〆〇")


def is_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM" and ord(character) < 0x40000


def words(text: str) -> list[str]:
    text = "".join(c for c in text if ord(c) not in INVISIBLE)
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    spaced = "".join(f" {c} " if is_unspaced(c) else c if is_word(c) else " " for c in text)
    return spaced.split()


def features(text: str, config: SparseTextConfig) -> list[Feature]:
    found: list[Feature] = []
    read = words(text)
    if config.words:
        found += [("word", word) for word in read]
    if config.pairs:
        found += [("pair", f"{a} {b}") for a, b in zip(read, read[1:], strict=False)]
    if config.subwords == "chars":
        for word in read:
            marked = f"<{word}>"
            if not config.words and len(marked) < min(config.char_sizes):
                found.append(("chars", marked))
            for size in set(config.char_sizes):
                found += [("chars", marked[i : i + size]) for i in range(len(marked) - size + 1)]
    return found


def counts(texts: Sequence[str], weights: Sequence[float], config: SparseTextConfig) -> Counter[Feature]:
    total: Counter[Feature] = Counter()
    for text, weight in zip(texts, weights, strict=True):
        for feature in features(text, config):
            total[feature] += weight  # type: ignore[assignment]  # Counter adds floats as well as ints
    return total


def tf_idf(documents: Items, labels: Items | None, config: SparseTextConfig) -> tuple[list[dict[Feature, float]], list[dict[Feature, float]]]:
    """Rows of documents and of labels, feature by feature."""

    def bags(source: Items | None) -> list[Counter[Feature]]:
        if source is None:
            return []
        weights = config.weights or (1.0,) * len(config.fields)
        return [counts([source.fields[name][i] for name in config.fields], weights, config) for i in range(len(source))]

    document_bags, label_bags = bags(documents), bags(labels)
    in_documents = Counter(feature for bag in document_bags for feature in bag)
    in_all = in_documents + Counter(feature for bag in label_bags for feature in bag)
    kept = {f: n for f, n in in_all.items() if n >= (config.min_count if f[0] == "word" else config.min_count_rest)}
    if config.max_features:
        kept = dict(sorted(kept.items(), key=lambda entry: (-entry[1], entry[0][1].encode()))[: config.max_features])

    def row(bag: Counter[Feature]) -> dict[Feature, float]:
        values = {}
        for feature, tf in bag.items():
            if feature in kept:
                idf = math.log((1 + len(document_bags)) / (1 + in_documents[feature])) + 1 if config.idf else 1.0
                values[feature] = (1 + math.log(tf) if config.sublinear and tf > 1 else tf) * idf
        length = math.sqrt(sum(v * v for v in values.values()))
        return {feature: value / length for feature, value in values.items()}

    return [row(bag) for bag in document_bags], [row(bag) for bag in label_bags]
