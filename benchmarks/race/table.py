"""The result of a race as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.race.training_record import trained_in_words

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100")


def markdown(result: Mapping[str, Any]) -> str:
    """Two tables, accuracy and cost, of a result that `benchmarks.race` wrote."""
    numbers, machine, config = result["numbers"], result["machine"], result["config"]
    contestants: Mapping[str, Mapping[str, Any]] = numbers["contestants"]
    first = next((name for name, one in contestants.items() if not _differences(one)), "")
    head = [
        f"# Race on {numbers['data']}",
        "",
        f"{numbers['n_test']:,} test documents, {numbers['n_labels']:,} labels; fields "
        f"{', '.join(config['fields'])}; {numbers['date']}, "
        f"commit {result['commit'][:12]}; {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB. "
        f"Command: `{result['command']}`.",
        *([f"{numbers['note']}"] if numbers["note"] else []),
    ]
    return (
        "\n".join([*head, "", *accuracy_table(contestants, first), "", *cost_table(contestants, machine["cores"])])
        + "\n"
    )


def accuracy_table(contestants: Mapping[str, Mapping[str, Any]], first: str) -> list[str]:
    lines = [
        f"Percent; in brackets the difference from {first} with its 95% interval (paired bootstrap over documents), "
        "in bold where it excludes 0.",
        "",
        *_head(["", *SHOWN]),
    ]
    for name, one in ordered(contestants):
        cells = []
        for metric in SHOWN:
            cell, difference = f"{one['metrics'][metric]['mean']:.2f}", _differences(one).get(metric)
            if difference:
                bracket = f"({difference['mean']:+.2f}: {difference['low']:+.2f} to {difference['high']:+.2f})"
                cell += " " + (f"**{bracket}**" if difference["excludes_zero"] else bracket)
            cells.append(cell)
        lines.append(_line([name, *cells]))
    return lines


def cost_table(contestants: Mapping[str, Mapping[str, Any]], cores: int) -> list[str]:
    threads = sorted({1, cores})
    plural = {n: "1 thread" if n == 1 else f"{n} threads" for n in threads}
    columns = ["", "training s", "training peak MB", "model MB"]
    columns += [f"{what}, {plural[n]}" for n in threads for what in ("ms alone p50", "p99", "ms in batches")]
    columns += ["peak MB", "open s", "first answer s"]
    lines = [
        "Predictions from raw text to 10 named labels, alternating. Opening includes imports.",
        *not_trained_here(contestants),
        "",
        *_head(columns),
    ]
    for name, one in ordered(contestants):
        each = [one[f"threads_{n}"] for n in threads]
        training = [_number(one.get(key), 0) for key in ("training_seconds", "training_peak_mb")]
        cells = [*(training if here(one) else [f"({cell})" for cell in training]), f"{one['bytes'] / 1e6:.1f}"]
        cells += [f"{part[key]:.3f}" for part in each for key in ("single_p50_ms", "single_p99_ms", "batch_ms")]
        cells += [
            f"{each[0]['peak_mb']:.0f}",
            f"{each[0]['open_seconds']:.2f}",
            f"{each[0]['first_answer_seconds']:.2f}",
        ]
        lines.append(_line([name, *cells]))
    return lines


def not_trained_here(contestants: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each model whose training is no measurement of this race."""
    return [
        f"{name}: trained {trained_in_words(dict(one))}; its training was not measured here (in brackets: what its "
        "own diary says)."
        for name, one in ordered(contestants)
        if not here(one)
    ]


def here(one: Mapping[str, Any]) -> bool:
    """Results of earlier races do not say it, and had trained all that they raced with on the same machine."""
    return bool(one.get("trained_here", True))


def ordered(contestants: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Best P@1 first (JSON keeps names sorted, which says nothing)."""
    return sorted(contestants.items(), key=lambda item: -item[1]["metrics"]["P@1"]["mean"])


def _differences(one: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((value for name, value in one.items() if name.startswith("minus ")), {})


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _head(cells: list[str]) -> list[str]:
    return [_line(cells), "|" + "---|" * len(cells)]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
