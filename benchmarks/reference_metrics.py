"""The definitions as plain loops over plain numbers, one document at a time.

Slow, and shares nothing with the fast path: tests and benchmarks hold that against this.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from statistics import fmean


def naive_score(
    rankings: Sequence[Sequence[int]],
    truths: Sequence[set[int]],
    inverse_propensity: Sequence[float],
    ks: Sequence[int] = (1, 3, 5),
    recall_ks: Sequence[int] = (10, 100),
    skip_empty: bool = False,
) -> dict[str, float]:
    """What `score` returns, in percent. rankings: best label first, no padding, any length."""
    pairs = [(ranking, truth) for ranking, truth in zip(rankings, truths, strict=True) if truth or not skip_empty]
    table: dict[str, float] = {}
    for k in sorted({*ks, *recall_ks}):
        recalls = [
            sum(label in truth for label in ranking[:k]) / len(truth) if truth else 0.0 for ranking, truth in pairs
        ]
        table[f"R@{k}"] = fmean(recalls)
        table[f"FN@{k}"] = fmean(1 - recall for recall in recalls)
    for k in ks:
        documents = [_document(ranking, truth, inverse_propensity, k) for ranking, truth in pairs]
        mean = {name: fmean(document[name] for document in documents) for name in documents[0]}
        for metric in ("P", "nDCG", "Hits", "F1"):
            table[f"{metric}@{k}"] = mean[metric]
        for metric in ("PSP", "PSnDCG", "PSR"):
            table[f"{metric}@{k}"] = mean[metric] / mean[f"best {metric}"]
    return {name: 100 * value for name, value in table.items()}


def _document(ranking: Sequence[int], truth: set[int], inverse_propensity: Sequence[float], k: int) -> dict[str, float]:
    right = [label in truth for label in ranking[:k]]
    gain = [inverse_propensity[label] if label in truth else 0.0 for label in ranking[:k]]
    best = sorted((inverse_propensity[label] for label in truth), reverse=True)[:k]
    ideal = _discounted([1.0] * min(k, len(truth))) or 1.0
    precision, recall = sum(right) / k, sum(right) / max(len(truth), 1)
    return {
        "P": precision,
        "F1": 2 * precision * recall / (precision + recall) if any(right) else 0.0,
        "nDCG": _discounted(right) / ideal,
        "Hits": float(any(right)),
        "PSP": sum(gain) / k,
        "best PSP": sum(best) / k,
        "PSnDCG": _discounted(gain) / ideal,
        "best PSnDCG": _discounted(best) / ideal,
        "PSR": sum(gain) / max(len(truth), 1),
        "best PSR": sum(best) / max(len(truth), 1),
    }


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / log2(place + 2) for place, gain in enumerate(gains))
