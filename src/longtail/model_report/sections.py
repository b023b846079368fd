"""The sections of a report, from what was found to HTML. A section that a model does not serve says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from longtail import metrics
from longtail.bundle import bytes_by_part
from longtail.compare import SHOWN as COMPARED
from longtail.compare import differences
from longtail.data.inputs import heading
from longtail.data.inspect import render
from longtail.evaluation import HIERARCHY, KS, calibrated_on_held_out
from longtail.explanation import Explanation, WordShare
from longtail.failures import WeakLabel
from longtail.metrics.bootstrap import Interval
from longtail.model_report.findings import SHOWN, Findings, MeasuredModel, ShownDocument
from longtail.model_report.markup import BREAK, Markup, facts, folded, joined, note, table, tag
from longtail.model_report.plots import figure
from longtail.picture import Picture
from longtail.suspects import SuspectPairs
from longtail.training.run import readable_bytes

# Characters of a text that are shown; a word of an explanation behind them is not.
MOST_TEXT = 400
MOST_NAME = 120
LISTED = 25
FAMILIES = {
    "P": "precision: how many of the first k labels are right",
    "nDCG": "the same, where earlier places count more",
    "PSP": "precision that counts rare labels more (propensity-scored)",
    "PSnDCG": "the same, where earlier places count more",
    "R": "recall: how many of the right labels are among the first k",
    "F1": "precision and recall in one",
    "Hits": "documents with at least one right label",
    "hP": "hierarchical precision: broader labels of the truth count as partly right",
    "hR": "hierarchical recall",
    "hF": "both in one",
}
IN_TABLE = ("P", "nDCG", "PSP", "PSnDCG", "R", "F1", "Hits", "hP", "hR", "hF")


def name_of(text: str, most: int = MOST_NAME) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}\u2026"


def plots(pictures: Sequence[Picture], prefix: str) -> Markup:
    return tag("div", *(figure(one, f"{prefix}-{n}") for n, one in enumerate(pictures, 1)), class_="plots")


def with_interval(found: Interval) -> Markup:
    return joined([f"{found.mean:.1f} ", tag("span", f"{found.low:.1f}\u2013{found.high:.1f}", class_="range")])


# ---- what it is ----


def summary(found: Findings) -> Markup:
    """The numbers to begin with."""
    side, manifest = found.side, found.side.model.bundle.manifest
    seconds = sum(event["seconds"] for event in found.log if event["event"] == "stage" and "member" not in event)
    size = sum(file["bytes"] for file in manifest["files"].values())
    error = side.macro[f"ECE@{SHOWN}"]

    def measured(name: str, about: str) -> tuple[str, str, str]:
        one = side.intervals[name]
        return name, f"{one.mean:.1f}%", f"{about}; {one.low:.1f} to {one.high:.1f}"

    cards = [
        measured("P@1", "first label right"),
        measured(f"PSP@{SHOWN}", "rare labels count more"),
        measured("R@100", "right labels in the first 100"),
        (f"ECE@{SHOWN}", f"{error:.1f}", "points between score and truth"),
        ("labels", f"{len(side.model.labels):,}", "that the model knows"),
        ("documents", f"{len(found.yardstick.truth.indptr) - 1:,}", "looked at here"),
        ("size", readable_bytes(size), "of the model file"),
        *([("training", _duration(seconds), "all stages")] if seconds else []),
    ]
    return tag("dl", *(tag("div", tag("dt", a), tag("dd", b, tag("small", c))) for a, b, c in cards), class_="cards")


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def the_model(found: Findings) -> Markup:
    bundle = found.side.model.bundle
    manifest, data = bundle.manifest, bundle.manifest.get("data") or {}
    few = int((bundle.labels.counts < 5).sum())
    rows: list[tuple[str, Any]] = [
        ("recipe", manifest.get("recipe")),
        ("trained on", name_of(str(data.get("name")))),
        ("labels", f"{len(bundle.labels):,}"),
        ("labels with fewer than five training documents", f"{few:,} ({few / max(len(bundle.labels), 1):.0%})"),
        ("seed", manifest.get("seed")),
        ("longtail", manifest.get("longtail")),
    ]
    if "packed" in manifest:
        rows.append(("packed", manifest["packed"].get("dtype")))
    probabilities = "calibration" in manifest
    rows.append(("scores are", "probabilities (calibrated)" if probabilities else "the model's own, not calibrated"))
    settings = tag("pre", bundle.config().strip())
    return joined([facts(rows, "The model"), folded("every setting of its training", settings)])


def the_data(found: Findings) -> Markup:
    counts = found.statistics
    rows = []
    for name, what in (
        ("documents", "documents"),
        ("pairs", "pairs of a document and a label"),
        ("labels_per_document_mean", "labels per document, mean"),
        ("words_per_document_mean", "words per document, mean"),
        ("documents_without_labels", "documents without labels"),
        ("repeated_texts", "texts that occurred before"),
        ("texts_also_in_train", "texts that training has, too"),
    ):
        sides = [counts.get(side, {}).get(name) for side in ("train", "test")]
        if any(one is not None for one in sides):
            rows.append((what, *("" if one is None else _number(one) for one in sides)))
    frequency = np.sort(found.yardstick.counts)[::-1]
    there = frequency[frequency > 0]
    places = np.unique(np.geomspace(1, max(len(there), 1), 120).astype(np.int64))
    curve = Picture(
        "The long tail",
        "Training documents of each label, from the most frequent to the rarest: few labels have many documents, most "
        "have few.",
        "lines",
        places.astype(float).tolist(),
        {"labels": there[places - 1].astype(float).tolist() if len(there) else [0.0] * len(places)},
        x_label="label, by frequency",
        y_label="training documents",
        log_x=True,
        log_y=bool(len(there)),
    )
    bins = metrics.by_frequency(found.yardstick.counts)
    sizes = Picture(
        "Labels by training documents",
        "How many labels have so many training documents.",
        "bars",
        list(bins.names),
        {"labels": bins.n_labels.astype(float).tolist()},
        x_label="training documents",
        y_label="labels",
    )
    remarks = [tag("li", f"{one.level}: {one.message}") for one in found.remarks]
    return joined(
        [
            table(("", "training", "test"), rows, numbers=2, caption=f"The data: {name_of(found.data.name)}"),
            plots([curve, sizes], "data"),
            tag("h3", "Worth knowing") if remarks else "",
            tag("ul", *remarks) if remarks else "",
            folded("all counts", tag("pre", render(counts))),
        ]
    )


def _number(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


# ---- how good it is ----


def the_metrics(found: Findings) -> Markup:
    side, constants = found.side, found.yardstick.constants
    about = tag(
        "p",
        f"In percent, on {_documents(found)}. Behind each number stands the interval that holds 95% of "
        f"{found.resamples:,} resamples of the documents: a new draw of test documents would change it so much. "
        f"PSP is weighed with {constants}.",
    )
    parts: list[Any] = [about, _family_table(side)]
    means = [(name, f"{side.macro[name]:.1f}") for name in side.macro if name.endswith(f"@{SHOWN}")]
    parts.append(
        folded(
            f"means over labels, and how far scores are from probabilities, in the first {SHOWN} places",
            table(("metric", "percent"), means, numbers=1, caption="Macro metrics, coverage and calibration error"),
        )
    )
    if HIERARCHY not in found.data.graphs:
        parts.append(
            note("No hierarchical metrics: the data does not say which labels are broader (--vocabulary SKOS does).")
        )
    if found.other is not None:
        parts += [tag("h3", f"Beside {found.other.name}"), _beside(found, found.other)]
    return joined(parts)


def _documents(found: Findings) -> str:
    n = len(found.yardstick.truth.indptr) - 1
    kind = "documents that training held out" if found.held_out else "test documents"
    return f"all {n:,} {kind}" if n == found.tested else f"a sample of {n:,} of the {found.tested:,} {kind}"


def _family_table(side: MeasuredModel) -> Markup:
    rows = []
    for family in IN_TABLE:
        cells = [side.intervals.get(f"{family}@{k}") for k in (*KS, 10, 100)]
        if any(cell is not None for cell in cells):
            name = joined([tag("strong", family), BREAK, tag("small", FAMILIES[family])])
            rows.append((name, *("" if cell is None else with_interval(cell) for cell in cells)))
    return table(("metric", *(f"@{k}" for k in (*KS, 10, 100))), rows, numbers=len(KS) + 2, caption="Metrics at k")


def _beside(found: Findings, other: MeasuredModel) -> Markup:
    apart = differences(found.yardstick, found.side.ranked, other.ranked, resamples=found.resamples, seed=found.seed)
    rows: list[tuple[Any, ...]] = [
        (name, f"{one['a']:.1f}", f"{one['b']:.1f}", difference(one))
        for name in COMPARED
        for one in (apart["metrics"][name],)
    ]
    near = [name for name in found.side.intervals if name.startswith("h")]
    rows += [
        (name, with_interval(found.side.intervals[name]), with_interval(other.intervals[name]), "") for name in near
    ]
    parts = [
        (f"{one['bin']} ({one['n_labels']:,} labels)", difference(one))
        for one in apart["quantiles"]["by_frequency"][f"PSP@{SHOWN}"]
    ]
    return joined(
        [
            tag(
                "p",
                f"Both models were asked for the same documents. The difference is {found.side.name} less "
                f"{other.name}, with its 95% interval (paired bootstrap); coloured where the interval excludes 0.",
            ),
            table(("metric", found.side.name, other.name, "difference"), rows, numbers=3, caption="Both models"),
            table(
                ("training documents per label", f"difference of PSP@{SHOWN}"),
                parts,
                numbers=1,
                caption=f"Which labels the difference of PSP@{SHOWN} comes from",
            ),
        ]
    )


def difference(one: Mapping[str, Any]) -> Markup:
    kind = ("better" if one["difference"] > 0 else "worse") if one["excludes_zero"] else None
    return joined(
        [
            tag("span", f"{one['difference']:+.2f}", class_=kind),
            " ",
            tag("span", f"{one['low']:+.2f} to {one['high']:+.2f}", class_="range"),
        ]
    )


def by_frequency(found: Findings) -> Markup:
    """Gains by label quantile."""
    sides = [found.side, *([] if found.other is None else [found.other])]
    parts: list[Any] = [
        tag(
            "p",
            f"Where P@{SHOWN} and PSP@{SHOWN} come from: each group of labels adds its part, and the parts add up to "
            "the whole. Frequent labels carry P; what rare labels give is seen in PSP.",
        )
    ]
    pictures, tables = [], []
    for convention, title in (
        ("by_frequency", "by training documents per label"),
        ("equal_volume", "by fifths of all training pairs, from frequent to rare"),
    ):
        bins = metrics.bins_for(convention, found.yardstick.counts)
        for metric in ("P", "PSP"):
            series = {
                side.name if len(sides) > 1 else f"{metric}@{SHOWN}": [
                    side.by_bin[convention][metric, one].mean for one in bins.names
                ]
                for side in sides
            }
            pictures.append(
                Picture(
                    f"{metric}@{SHOWN} {title}",
                    "What labels of each group give to the whole.",
                    "bars",
                    list(bins.names),
                    series,
                    x_label="labels",
                    y_label="points",
                )
            )
        rows = [
            (
                one,
                f"{int(bins.n_labels[at]):,}",
                *(with_interval(found.side.by_bin[convention][metric, one]) for metric in ("P", "PSP", "FN")),
            )
            for at, one in enumerate(bins.names)
        ]
        head = ("labels", "number", f"P@{SHOWN}", f"PSP@{SHOWN}", f"missed (FN@{SHOWN})")
        tables.append(table(head, rows, numbers=4, caption=f"Parts {title}, with intervals"))
    return joined([*parts, plots(pictures, "bins"), *tables])


def curves(found: Findings) -> Markup:
    sides = [found.side, *([] if found.other is None else [found.other])]
    calibrated = "calibration" in found.side.model.bundle.manifest
    pictures = []
    grid = np.linspace(0, 100, 101)
    lines = {}
    for side in sides:
        curve = metrics.precision_recall(side.top, found.yardstick.truth)
        order = np.argsort(curve.recall, kind="stable")
        inside = (grid >= curve.recall.min(initial=np.inf)) & (grid <= curve.recall.max(initial=-np.inf))
        values = np.full(len(grid), np.nan)
        if inside.any():
            values[inside] = np.interp(grid[inside], curve.recall[order], curve.precision[order])
        lines[side.name] = values.tolist()
    pictures.append(
        Picture(
            "Precision and recall",
            "From a strict threshold (left) to a loose one (right): how many of the labels that pass it are right, and "
            "how many of the right labels pass it.",
            "lines",
            grid.tolist(),
            lines,
            x_label="recall, percent",
            y_label="precision, percent",
        )
    )
    for side in sides:
        bins = metrics.reliability(side.top, found.yardstick.truth, SHOWN)
        said = (100 * bins.confidence).tolist()
        pictures.append(
            Picture(
                "Can scores be read as probabilities?" + ("" if len(sides) == 1 else f" {side.name}"),
                f"Of the first {SHOWN} labels of every document with a score of 0.8, are 80% right? On the dashed line "
                "they are; below it the model is too sure of itself, above it too modest. The error (ECE) is "
                f"{bins.error():.1f} points.",
                "lines",
                said,
                {"labels that are shown": (100 * bins.right).tolist(), "as sure as right": said},
                x_label="score, percent",
                y_label="right, percent",
                reference="as sure as right",
            )
        )
    words = (
        "Scores of this model were calibrated: they are probabilities as far as the second plot says so."
        if calibrated
        else "Scores of this model are its own: they rank labels, and are probabilities only as far as the second plot "
        "says so. longtail calibrate makes probabilities of them."
    )
    if found.held_out and calibrated_on_held_out(found.side.model):
        words += " It flatters: these are the documents that probabilities were learnt from."
    return joined([tag("p", words), plots(pictures, "curves")])


# ---- how it was made ----


def training(found: Findings) -> Markup:
    if not found.log:
        return note(
            "This model is a bundle alone: times, memory and losses are in the log of its run (metrics.jsonl), which "
            "is not beside it."
        )
    stages = [event for event in found.log if event["event"] == "stage"]
    rows = [
        (
            event["name"] + (f" of model {event['member']}" if "member" in event else ""),
            f"{event['seconds']:,.1f}",
            readable_bytes(event["peak_memory"]) if event.get("peak_memory") else "",
        )
        for event in stages
    ]
    pictures = [*_losses(found.log), *_bandit(found.log)]
    said = [event["text"] for event in found.log if event["event"] == "note"]
    return joined(
        [
            table(
                ("stage", "seconds", "most memory so far"),
                rows,
                numbers=2,
                caption="Time and memory per stage; memory is the most that the process held until its end",
            ),
            plots(pictures, "training")
            if pictures
            else note("This recipe logs no losses: nothing is fitted in steps."),
            tag("ul", *(tag("li", one) for one in said)) if said else "",
        ]
    )


def _losses(log: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """The loss of each fit over its epochs. Models of an ensemble are lines of one plot."""
    by_name: dict[tuple[str, str], dict[str, list[float]]] = {}
    for event in log:
        if event["event"] == "fit" and event.get("losses"):
            lines = by_name.setdefault((event["stage"], event["name"]), {})
            # A run that was continued logs what it did; the last word counts.
            lines[f"model {event['member']}" if "member" in event else "loss"] = [float(x) for x in event["losses"]]
    found = []
    for (stage, name), lines in by_name.items():
        longest = max(map(len, lines.values()))
        found.append(
            Picture(
                f"Loss: {name}" + (f" ({stage})" if stage else ""),
                "Mean loss of each epoch. A curve that still falls at its end could have been trained for longer.",
                "lines",
                [float(n) for n in range(1, longest + 1)],
                {key: [*values, *[float("nan")] * (longest - len(values))] for key, values in lines.items()},
                x_label="epoch",
                y_label="loss",
            )
        )
    return found


def _bandit(log: Sequence[Mapping[str, Any]], most: int = 200) -> list[Picture]:
    """How the weights of graphs went while RAMEN trained."""
    events = [event for event in log if event["event"] == "bandit"]
    if not events:
        return []
    events = [events[at] for at in np.unique(np.linspace(0, len(events) - 1, min(most, len(events))).astype(int))]
    blocks = [float(event["block"]) for event in events]
    names = list(events[-1]["weights"])
    return [
        Picture(
            f"Bandit: {what}",
            about,
            "lines",
            blocks,
            {name: [float(event[what].get(name, float("nan"))) for event in events] for name in names},
            x_label="block of steps",
            y_label=what,
        )
        for what, about in (
            ("weights", "How much the loss of each graph counted, as the bandit chose it while it trained."),
            ("losses", "The mean loss of each graph in each block."),
        )
    ]


def size(found: Findings) -> Markup:
    sizes = sorted(bytes_by_part(found.side.model.bundle.folder).items(), key=lambda item: -item[1])
    whole = sum(count for _, count in sizes)
    rows = [(name, readable_bytes(count), f"{count / max(whole, 1):.1%}") for name, count in sizes]
    first = sizes[:8]
    picture = Picture(
        "Size by part",
        "What the model file is made of, in MB. longtail pack makes it smaller.",
        "bars",
        [name.removeprefix("ranker/") for name, _ in first],
        {"MB": [count / 1e6 for _, count in first]},
        y_label="MB",
    )
    return joined(
        [
            plots([picture], "size"),
            table(("part", "bytes", "share"), rows, numbers=2, caption="All parts of the bundle"),
        ]
    )


def inside(found: Findings) -> Markup:
    recipe = found.side.model.recipe
    rows: list[tuple[str, str]] = []
    _flat(
        {name: value for name, value in found.diagnosis.items() if name not in ("bytes", "seconds_by_stage")}, "", rows
    )
    if not found.pictures and not rows:
        return note(
            f"The recipe {recipe} has no plots of its own: it has no shortlist, no clusters, no graph at prediction."
        )
    parts: list[Any] = [
        tag("p", "Plots that the paper behind this recipe shows, for this model; and what the model tells of itself.")
    ]
    if found.pictures:
        parts.append(plots(found.pictures, "inside"))
    if rows:
        parts.append(table(("", ""), rows, numbers=1, caption="What the model tells of itself"))
    return joined(parts)


def _flat(found: Mapping[str, Any], before: str, rows: list[tuple[str, str]]) -> None:
    for name, value in found.items():
        title = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            _flat(value, f"{title}: ", rows)
        elif isinstance(value, list):
            rows.append((title, ", ".join(map(_flat_value, value))))
        else:
            rows.append((title, _flat_value(value)))


def _flat_value(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


# ---- where it is weak ----


def weak(found: Findings) -> Markup:
    lists = found.weak
    parts: list[Any] = [
        tag(
            "p",
            f"In the first {SHOWN} places of {_documents(found)}. Of {lists.labels:,} labels that these documents "
            f"have, {lists.never:,} are never found; {lists.wrong:,} labels are predicted and never right.",
        )
    ]
    for title, about, rows, instead in (
        ("Missed most often", "Labels with the most documents that miss them.", lists.missed, "said instead"),
        (
            "Never found",
            f"Labels of at least {lists.support} of these documents that none of them got.",
            lists.never_found,
            "said instead",
        ),
        (
            "Always wrong",
            f"Labels that were predicted {lists.support} times or more, and never rightly.",
            lists.always_wrong,
            "what these documents have",
        ),
    ):
        parts += [tag("h3", title), tag("p", about if rows else f"{about} There is none.")]
        if rows:
            parts.append(_weak_table(rows, instead, title))
    return joined(parts)


def _weak_table(rows: Sequence[WeakLabel], instead: str, caption: str) -> Markup:
    cells = [
        (
            name_of(row.name, 80),
            ", ".join(f"{name_of(other.name, 40)} ({other.documents:,})" for other in row.instead),
            f"{row.missed:,}",
            f"{row.test:,}",
            f"{row.predicted:,}",
            f"{row.train:,}",
            f"{row.recall:.0f}%",
        )
        for row in rows
    ]
    head = ("label", f"confused with: {instead}", "missed", "documents", "predicted", "in training", "found")
    return table(head, cells, numbers=5, caption=caption)


def examples(found: Findings, *, texts: bool) -> Markup:
    parts: list[Any] = [
        tag(
            "p",
            "The words that spoke for a label are green, those against it red, the stronger the more they counted. ",
            tag("span", "right", class_="right"),
            ", ",
            tag("span", "wrong", class_="wrong"),
            ", ",
            tag("span", "a label that was not found", class_="absent"),
            ".",
        )
    ]
    if not texts:
        parts = [note("Texts were left out of this report (--no-texts): documents are named by their ids.")]
    for title, about, rows in (
        ("Best", "All labels found, and nothing before them; rare labels first.", found.best),
        (
            "Worst",
            "The surest of those with nothing right in the first places. Some are errors of the truth.",
            found.worst,
        ),
    ):
        parts += [tag("h3", title), tag("p", about if rows else f"{about} There is none.")]
        parts += [_example(one, found, texts=texts) for one in rows]
    return joined(parts)


def _example(one: ShownDocument, found: Findings, *, texts: bool) -> Markup:
    documents = found.data.need_test().documents
    title = tag("p", document_name(found, one.row, texts=texts))
    items = [
        tag(
            "li",
            tag("span", name_of(why.name, 80), class_="right" if right else "wrong"),
            " ",
            tag("span", f"{why.score:.3f}", class_="score"),
            *([BREAK, _marked(why, documents, one.row)] if texts and why.words else []),
        )
        for why, right in zip(one.why, one.right, strict=True)
    ]
    items += [tag("li", tag("span", name_of(name, 80), class_="absent")) for name in one.missed[:5]]
    notes = sorted({why.note for why in one.why if why.note})
    return tag("div", title, tag("ul", *items), *(note(text) for text in notes), class_="example")


def _marked(why: Explanation, documents: Any, row: int) -> Markup:
    """The text with its words marked by their shares, field after field, as far as it is shown."""
    strongest = max((abs(word.share) for word in why.words), default=0.0)
    by_field: dict[str, list[WordShare]] = {}
    for word in why.words:
        by_field.setdefault(word.field, []).append(word)
    parts: list[Any] = []
    room = MOST_TEXT
    for name, words in by_field.items():
        text, at = str(documents.fields.get(name, [""] * len(documents))[row])[:room], 0
        for word in words:
            if word.end > len(text) or word.start < at:
                continue
            parts += [text[at : word.start], _mark(text[word.start : word.end], word.share, strongest)]
            at = word.end
        parts += [text[at:], "\u2026 " if len(text) >= room else " "]
        room -= len(text)
        if room <= 0:
            break
    return tag("small", *parts)


def _mark(text: str, share: float, strongest: float) -> Any:
    weight = round(55 * abs(share) / strongest) if strongest else 0
    if weight < 4:
        return text
    return tag("mark", text, class_="up" if share > 0 else "down", style=f"--w:{weight}%", title=f"{share:+.3f}")


def document_name(found: Findings, row: int, *, texts: bool) -> str:
    documents = found.data.need_test().documents
    return name_of(heading(documents, row), MOST_TEXT) if texts else str(documents.uids[row])


def suspected(found: Findings, *, texts: bool) -> Markup:
    parts: list[Any] = [
        tag(
            "p",
            "Where the model is sure and the truth says otherwise. Each list is sorted by doubt, in "
            "log-odds: how far the score of a given label lies below what is usual for it, and how high and how far in "
            "front a missing one stands. It is a list to look through by hand, from the top; "
            "being on it proves nothing.",
        )
    ]
    for title, about, pairs in (
        (
            "Given, and probably wrong",
            "Labels that a document has, and that the model sees nothing of in it.",
            found.suspects.given,
        ),
        (
            "Missing, and probably right",
            f"Labels among the first {SHOWN} that a document lacks, and that the model is sure of.",
            found.suspects.missing,
        ),
    ):
        parts += [
            tag("h3", title),
            tag("p", f"{about} {len(pairs):,} pairs were looked at; the first {LISTED} follow."),
        ]
        parts.append(_suspect_table(found, pairs, title, texts=texts))
    return joined(parts)


def _suspect_table(found: Findings, pairs: SuspectPairs, caption: str, *, texts: bool) -> Markup:
    truth, labels = found.yardstick.truth, found.data.labels
    top = found.side.top
    rows = []
    for at in range(min(LISTED, len(pairs))):
        row, label = int(pairs.rows[at]), int(pairs.labels[at])
        given = truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist()
        others = [name_of(labels.name(one), 40) for one in given if one != label][:4]
        said = [name_of(labels.name(int(one)), 40) for one in top.ids[row, :3] if one >= 0]
        rows.append(
            (
                name_of(labels.name(label), 80),
                name_of(document_name(found, row, texts=texts), 160),
                ", ".join(others),
                ", ".join(said),
                _score(float(pairs.scores[at])),
                f"{float(pairs.doubts[at]):.1f}",
            )
        )
    head = ("label", "document", "its other labels", "the model says", "score", "doubt")
    return table(head, rows, numbers=2, caption=caption)


def _score(score: float) -> str:
    return f"{score:.4f}" if score >= 0.0001 or score <= 0 else "< 0.0001"


def how_made(found: Findings) -> Markup:
    rows = [(what, f"{seconds:.1f} s") for what, seconds in found.seconds.items()]
    return joined(
        [
            tag(
                "p",
                f"Predictions, metrics, weak labels and suspected errors are of {_documents(found)}; looks inside the "
                f"model of at most 2,000 of them. Explanations are of {len(found.best) + len(found.worst)} documents.",
            ),
            folded("how long each part took", facts(rows, "Time of this report")),
        ]
    )


Section = tuple[str, str, Callable[[Findings], Any]]


def sections(*, texts: bool) -> list[Section]:
    """Name in the page, title, and what makes it; in order."""
    return [
        ("model", "What the model is", the_model),
        ("data", "What the data are", the_data),
        ("metrics", "How good it is", the_metrics),
        ("frequency", "Frequent and rare labels", by_frequency),
        ("curves", "Thresholds and probabilities", curves),
        ("training", "How it was trained", training),
        ("size", "What it weighs", size),
        ("inside", "Inside the model", inside),
        ("weak", "Where it is weak", weak),
        ("examples", "Best and worst examples", lambda found: examples(found, texts=texts)),
        ("suspects", "Suspected errors of the truth", lambda found: suspected(found, texts=texts)),
        ("made", "How this report was made", how_made),
    ]
