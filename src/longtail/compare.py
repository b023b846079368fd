"""Two models on the same test documents: is a difference more than chance, and in which labels does it lie?"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longtail import metrics
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.evaluation import Yardstick, columns_of_models, held_out_data, predictions
from longtail.predictor import Predictor
from longtail.training.progress import Display, SilentDisplay
from longtail.types import TopK

# Places at which what is missed is counted. Paper: RAMEN Table 8 (DIFF@k).
MISSED_KS = (5, 10, 20, 50, 100)
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100")


@dataclass(frozen=True)
class Sides:
    """What is compared: a run, a bundle, or a prediction file (npz) each."""

    a: Path
    b: Path

    @functools.cached_property
    def opened(self) -> list[Path | Predictor]:
        """Both, prediction files as they are."""
        return [side if side.is_file() else Predictor.open(side) for side in (self.a, self.b)]

    @property
    def models(self) -> list[Predictor]:
        return [side for side in self.opened if isinstance(side, Predictor)]

    def with_test(self, data: Dataset) -> Dataset:
        """`data`, or where it has no test documents, with those that the models held out of training."""
        return held_out_data(self.models[0], data, *self.models[1:]) if data.test is None and self.models else data


def compare(
    a: Path,
    b: Path,
    data: Dataset | str | Path,
    *,
    resamples: int = 1000,
    seed: int = 0,
    display: Display | None = None,
) -> dict[str, Any]:
    """a - b for every metric with a 95% interval (paired bootstrap over documents), in all and by label frequency.

    a, b: a run, a bundle, or a prediction file (npz) each. The same label bins and resamples serve both.
    """
    sides = Sides(a, b)
    data = data if isinstance(data, Dataset) else read(Path(data), columns=columns_of_models(*sides.models))
    return compare_sides(sides, data, resamples=resamples, seed=seed, display=display)


def compare_sides(
    sides: Sides, data: Dataset, *, resamples: int = 1000, seed: int = 0, display: Display | None = None
) -> dict[str, Any]:
    """What `compare` gives."""
    yardstick, display = Yardstick.of(sides.with_test(data)), display or SilentDisplay()
    for remark in data.remarks():
        display.say(remark)
    top_a, top_b = (predictions(side, yardstick, display) for side in sides.opened)
    return {
        **yardstick.about(),
        "a": str(sides.a),
        "b": str(sides.b),
        **differences(yardstick, top_a, top_b, resamples=resamples, seed=seed),
    }


def differences(
    yardstick: Yardstick, top_a: TopK, top_b: TopK, *, resamples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """a - b for every metric, in all (``metrics``), by label frequency (``quantiles``), and of labels that are missed
    (``missed``), with intervals. top_a, top_b: uncut predictions for all test documents.
    """
    measured_a, measured_b = yardstick.measure(top_a), yardstick.measure(top_b)
    found = metrics.paired_bootstrap(measured_a, measured_b, resamples, rng=np.random.default_rng(seed))
    values_a, values_b = measured_a.values(), measured_b.values()
    result: dict[str, Any] = {
        "resamples": resamples,
        "seed": seed,
        "metrics": {name: {"a": values_a[name], "b": values_b[name], **row(d)} for name, d in found.items()},
        "quantiles": {},
    }
    for convention in metrics.CONVENTIONS:
        bins = metrics.bins_for(convention, yardstick.counts)
        in_a, in_b = (
            metrics.measure_bins(yardstick.cut(top), yardstick.truth, yardstick.inverse_propensity, bins, (5,))
            for top in (top_a, top_b)
        )
        parts = metrics.paired_bootstrap(in_a, in_b, resamples, rng=np.random.default_rng(seed))
        result["quantiles"][convention] = {
            metric: [
                {"bin": name, "n_labels": int(n), **row(parts[metrics.in_bin(metric, name)])}
                for name, n in zip(bins.names, bins.n_labels, strict=True)
            ]
            for metric in ("P@5", "PSP@5", "FN@5")
        }
    result["missed"] = missed(yardstick, top_a, top_b, resamples, seed)
    return result


def missed(yardstick: Yardstick, top_a: TopK, top_b: TopK, resamples: int, seed: int) -> dict[str, Any]:
    """FN@k(a) - FN@k(b): labels that a misses and b finds, less the reverse; in all (``complete``) and by bins of
    equal volume, which sum to it.

    Documents without labels are left out, in both. Negative: a misses less.
    """
    bins = metrics.bins_for("equal_volume", yardstick.counts)
    sides = [
        (
            metrics.measure(
                yardstick.cut(top), yardstick.truth, yardstick.inverse_propensity, (1,), MISSED_KS, skip_empty=True
            ),
            metrics.measure_bins(yardstick.cut(top), yardstick.truth, yardstick.inverse_propensity, bins, MISSED_KS),
        )
        for top in (top_a, top_b)
    ]
    whole, parts = (
        metrics.paired_bootstrap(sides[0][at], sides[1][at], resamples, rng=np.random.default_rng(seed))
        for at in range(2)
    )
    return {
        f"FN@{k}": {
            "complete": row(whole[f"FN@{k}"]),
            "bins": [
                {"bin": name, "n_labels": int(n), **row(parts[metrics.in_bin(f"FN@{k}", name)])}
                for name, n in zip(bins.names, bins.n_labels, strict=True)
            ],
        }
        for k in MISSED_KS
    }


def render_missed(result: dict[str, Any]) -> str:
    """For people: a line per bin, a column per k."""
    table = result["missed"]
    first = next(iter(table.values()))["bins"]
    lines = [
        "\nlabels missed, A - B, by bins of equal volume (negative: A misses less; * excludes 0)",
        " " * 26 + "".join(f"{name:>11}" for name in table),
    ]
    for place, entry in enumerate([*first, None]):
        shown = [d["bins"][place] if entry is not None else d["complete"] for d in table.values()]
        name = "complete" if entry is None else f"{entry['bin']} ({entry['n_labels']:,} labels)"
        lines.append(
            f"{name:<26}" + "".join(f"{d['difference']:>+9.3f}{' *' if d['excludes_zero'] else '  '}" for d in shown)
        )
    return "\n".join(lines)


def row(difference: metrics.Difference) -> dict[str, Any]:
    return {
        "difference": difference.mean,
        "low": difference.low,
        "high": difference.high,
        "excludes_zero": difference.excludes_zero,
    }


def render(result: dict[str, Any]) -> str:
    """For people. A star marks an interval that excludes zero."""

    def line(name: str, d: dict[str, Any], values: str = "") -> str:
        return (
            f"{name:<26}{values}{d['difference']:>+9.2f}  [{d['low']:+.2f}, "
            f"{d['high']:+.2f}]{' *' if d['excludes_zero'] else ''}"
        )

    lines = [
        f"A = {result['a']}\nB = {result['b']}",
        f"{'':<26}{'A':>8} {'B':>8} {'A - B':>9}  95% interval of {result['resamples']} resamples; * excludes 0",
    ]
    lines += [line(name, d, f"{d['a']:>8.2f} {d['b']:>8.2f} ") for name in SHOWN for d in (result["metrics"][name],)]
    lines.append("\nwhere it comes from: contribution to PSP@5 by training documents per label")
    lines += [line(f"{d['bin']} ({d['n_labels']:,} labels)", d) for d in result["quantiles"]["by_frequency"]["PSP@5"]]
    return "\n".join(lines)
