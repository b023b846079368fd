"""How good a model is on the test documents of a data set, and how two models differ. Everything in percent.

Masked pairs vanish from predictions and truth before the cut at k. Propensities come from the training split of the
*data*, so that every model is measured with the same weights; their constants are part of every result.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from longtail import metrics
from longtail.bundle import label_counts
from longtail.data.columns import Columns
from longtail.data.dataset import Dataset
from longtail.data.from_texts import binary_csr
from longtail.data.identity import full_texts, training_digest
from longtail.data.read import read
from longtail.errors import BundleError, ConfigError, DataError
from longtail.predictor import Predictor
from longtail.report import Metrics, table
from longtail.training.progress import Display, SilentDisplay
from longtail.types import I64, Context, ContextRanker, Csr, TopK

KS = (1, 3, 5)
RECALL_KS = (10, 100)
MOST_FOREIGN = 1000
# The graph of the data that says which labels are broader than others; a vocabulary (`--vocabulary`) brings it.
HIERARCHY = "broader"
# Share of test documents that are training documents, word for word, from which a result is doubtful.
MANY_LEARNT = 0.1
HELD_OUT = "documents held out of training"  # what a calibration says that it was learnt from
# Share of pairs of the truth whose label a model does not have, from which it is a warning.
MANY_LACKING = 0.01


@dataclass(frozen=True)
class Yardstick:
    """What predictions on a data set are measured against: truth without masked pairs, and label weights."""

    data: Dataset
    truth: Csr
    masked: I64
    inverse_propensity: Any
    constants: metrics.PropensityConstants
    counts: I64

    @classmethod
    def of(cls, data: Dataset) -> Yardstick:
        test = data.need_test()
        training = metrics.drop_masked_targets(data.train.targets, data.train.masked)
        if len(test.known):
            # Warm start: test documents may be in training, with what is known of them. PSP is to be that of the cold
            # control.
            tested = set(test.documents.uids)
            training = training[np.array([uid not in tested for uid in data.train.documents.uids])]
        constants, counts = metrics.constants_for(data.name), label_counts(training)
        weights = metrics.inverse_propensities(counts, training.shape[0], constants.a, constants.b)
        return cls(
            data, metrics.drop_masked_targets(test.targets, test.masked), test.masked, weights, constants, counts
        )

    @property
    def depth(self) -> int:
        """How many predictions to ask for, so that enough are left when masked ones are gone."""
        per_document = np.bincount(self.masked[:, 0]) if len(self.masked) else np.zeros(1, dtype=np.int64)
        return max(*KS, *RECALL_KS) + int(per_document.max())

    def cut(self, top: TopK) -> TopK:
        return metrics.drop_masked(top, self.masked, max(*KS, *RECALL_KS))

    def masked_pairs(self) -> Csr:
        """(N, L): the pairs that count neither as right nor as wrong."""
        return binary_csr(self.masked[:, 0], self.masked[:, 1], self.truth.shape)

    def measure(self, top: TopK) -> metrics.PerDocument:
        """All metrics of uncut predictions per document, for resampling."""
        return metrics.measure(self.cut(top), self.truth, self.inverse_propensity, KS, RECALL_KS)

    def score(self, top: TopK, threshold: float | None = None) -> dict[str, float]:
        """All metrics of uncut predictions, in percent: means over documents and over labels, and where a threshold
        of the scores is given the F1 of what passes it. Where the data says which labels are broader than others, hP,
        hR and hF as well.
        """
        cut = self.cut(top)
        passed = {} if threshold is None else metrics.f1_at_threshold(cut, self.truth, threshold)
        near = self.measure_hierarchy(top)
        above = {} if near is None else near.values()
        return {**self.measure(top).values(), **metrics.macro_score(cut, self.truth, KS), **above, **passed}

    def measure_hierarchy(self, top: TopK) -> metrics.PerDocument | None:
        """hP, hR and hF of uncut predictions per document; None where the data does not say which labels are
        broader.
        """
        graph = self.data.graphs.get(HIERARCHY)
        if graph is None or graph.label_label is None:
            return None
        return metrics.hierarchical(self.cut(top), self.truth, graph.label_label, KS)

    def calibration(self, top: TopK) -> dict[str, Any]:
        """How far uncut predictions can be read as probabilities: ECE@k, and the bins behind that of the largest k."""
        cut = self.cut(top)
        bins = metrics.reliability(cut, self.truth, KS[-1]).as_json()
        return {**metrics.calibration_errors(cut, self.truth, KS), "reliability": {f"@{KS[-1]}": bins}}

    def about(self) -> dict[str, Any]:
        """What every result names: the data, the number of documents, and the constants of PSP."""
        return {
            "data": self.data.name,
            "data_hash": self.data.digest,
            "n_test": len(self.truth.indptr) - 1,
            "n_labels": int(self.truth.shape[1]),
            "propensity": {"A": self.constants.a, "B": self.constants.b, "family": self.constants.family},
        }


def evaluate(
    model: Predictor | str | Path,
    data: Dataset | str | Path,
    display: Display | None = None,
    *,
    transductive: bool = False,
    threshold: float | None = None,
) -> Metrics:
    """All metrics of `model` on the test documents of `data`: top-level keys ``P@1``, ``PSP@5``, ... in percent, and
    what they belong to.

    threshold: labels with such a score count as predicted, for ``MicroF1`` and ``MacroF1`` (looking at the
    `max(RECALL_KS)` best of each document). None: the one that training chose on documents it held out; where it held
    out none there are no such metrics, as a threshold that is chosen on the test documents would flatter.

    Where labels of test documents are known beforehand (warm start) and the model can use them, it does, and the same
    model without them stands beside it under ``cold``. transductive: test documents may be linked to each other;
    recorded in the result.
    """
    model = model if isinstance(model, Predictor) else Predictor.open(model)
    if not isinstance(data, Dataset | str | Path):
        raise ConfigError(
            f"a {type(data).__name__} to be measured on, expected a Dataset or a path",
            "longtail.read(frame, test_file=test_frame, columns=model.columns) makes one of frames; "
            "longtail.train(..., holdout=0.1) measures on a part of a frame",
        )
    data = data if isinstance(data, Dataset) else read(Path(data), columns=model.columns)
    display = display or SilentDisplay()
    if data.test is None and model.bundle.held_out() is not None:
        data = held_out_data(model, data)
        also = " and probabilities were" if calibrated_on_held_out(model) else " was"
        display.say(f"note: measured on {HELD_OUT}; the threshold of F1{also} chosen on them")
    yardstick = Yardstick.of(data)
    for remark in [*data.remarks(), *_about_vocabulary(model, data)]:
        display.say(remark)
    learnt = learnt_by_heart(data)
    if learnt > MANY_LEARNT * len(data.need_test()):
        display.say(
            f"warning: {learnt:,} of {len(data.need_test()):,} test documents have the text of a training document; "
            "what is measured on them is memory"
        )
    if unlabelled := int((np.diff(yardstick.truth.indptr) == 0).sum()):
        display.say(
            f"note: {unlabelled:,} of {len(data.need_test()):,} test documents have no label that is known here; they "
            "count as misses in every metric"
        )
    start = context_of_test(model, yardstick, transductive=transductive)
    top = rank_test(model, yardstick, display, start)
    about = {name: model.bundle.manifest.get(name) for name in ("recipe", "seed", "longtail", "data")}
    if threshold is None:  # that of a calibrated model is of probabilities
        threshold = model.bundle.manifest.get("calibration", model.metrics).get("threshold")
    result: dict[str, Any] = {
        **yardstick.score(top, threshold),
        "threshold": threshold,
        **yardstick.calibration(top),
        **yardstick.about(),
        "model": about,
        "test_texts_in_training": learnt,
        "quantiles": quantiles(top, yardstick),
        "transductive": transductive,
    }
    if len(data.need_test().known):
        result["start"] = "cold" if start is None else "warm"
        if start is not None:
            without = _ranked(model, yardstick, display, replace(start, labels=None) if transductive else None)
            result["cold"] = yardstick.score(without, threshold)
    return Metrics(result)


def _about_vocabulary(model: Predictor, data: Dataset) -> list[str]:
    """What became of labels that the vocabulary or training lacks."""
    said = [f"note: {count} {what}" for what, count in data.repairs.items() if count]
    known = model.bundle.manifest.get("vocabulary")
    if known and not data.vocabulary:
        said.append(
            f"warning: the model was trained with the vocabulary {known}, the data was read without; labels that only "
            f"test documents have are missing: --vocabulary {known}"
        )
    return said


def learnt_by_heart(data: Dataset) -> int:
    """How many test documents have the text of a training document; 0 for warm start, where they are meant to."""
    test = data.need_test()
    if len(test.known):
        return 0
    training = set(filter(None, full_texts(data.train.documents)))
    return sum(text in training for text in full_texts(test.documents))


def columns_of_models(*models: Predictor) -> Columns | None:
    """The columns that models were trained on, together; None where none was trained on a table."""
    known = [model.columns for model in models if model.columns is not None]
    return functools.reduce(Columns.joined, known) if known else None


def context_of_test(model: Predictor, yardstick: Yardstick, *, transductive: bool = False) -> Context | None:
    """What a model can use of the test documents beside their text: labels that are known beforehand. None if it can
    use nothing.
    """
    test = yardstick.data.need_test()
    if not isinstance(model.bundle.ranker, ContextRanker):
        if transductive:
            model.needs_context("a transductive evaluation")
        return None
    if not len(test.known):
        return Context(together=True) if transductive else None
    numbers = {uid: number for number, uid in enumerate(model.bundle.labels.uids)}
    number_of = np.array([numbers.get(uid, -1) for uid in yardstick.data.labels.uids], dtype=np.int64)
    rows, labels = test.known[:, 0], number_of[test.known[:, 1]]
    return Context(binary_csr(rows[labels >= 0], labels[labels >= 0], (len(test), len(numbers))), together=transductive)


def rank_test(model: Predictor, yardstick: Yardstick, display: Display, context: Context | None = None) -> TopK:
    """Predictions for every test document, in the label numbers of the data set. context: from `context_of_test`.

    Where the truth has labels that the model lacks, `display` says so.
    """
    lacking = labels_it_lacks(model, yardstick)
    if lacking is not None:
        display.say(lacking)
    return _ranked(model, yardstick, display, context)


def labels_it_lacks(model: Predictor, yardstick: Yardstick) -> str | None:
    """For people: how much of the truth has labels that the model does not know, which are misses whatever it does;
    None where it knows all, or none, which `renumbered` refuses.
    """
    known, uids = set(model.bundle.labels.uids), yardstick.data.labels.uids
    unknown = np.array([uid not in known for uid in uids], dtype=bool)
    missing = np.unique(yardstick.truth.indices[unknown[yardstick.truth.indices]])
    if not len(missing) or unknown.all():
        return None
    lost = unknown[yardstick.truth.indices].mean()
    gone = _taken_away(model)
    away = [uids[label] for label in missing.tolist() if uids[label] in gone]
    examples = ", ".join(f"'{uid}'" for uid in (away or [uids[label] for label in missing[:3].tolist()])[:3])
    also = f"; {len(away):,} of them {'was' if len(away) == 1 else 'were'} retired or merged" if away else ""
    level = "warning" if away or lost >= MANY_LACKING else "note"
    many, be = ("1 label", "is") if len(missing) == 1 else (f"{len(missing):,} labels", "are")
    return (
        f"{level}: {many} of the test documents ({100 * lost:.1f}% of the pairs) {be} not in the model, such as "
        f"{examples}{also}; they count as misses in every metric"
    )


def _taken_away(model: Predictor) -> dict[str, str]:
    """What became of labels that were retired or merged after training, by id."""
    from longtail.label_changes import read_changes

    bundle = model.bundle
    gone: dict[str, str] = {}
    for change in read_changes(bundle.folder, bundle.manifest, verify=False) if bundle.changed else ():
        gone |= change.gone
    return gone


def _ranked(model: Predictor, yardstick: Yardstick, display: Display, context: Context | None) -> TopK:
    if model.columns is not None and yardstick.data.columns is not None:
        model.columns.check_fit(yardstick.data.columns)
    documents, known = yardstick.data.need_test().documents, yardstick.data.labels.uids
    # Labels that the data does not know are removed below; ask for more, so that enough are left.
    foreign = len(set(model.bundle.labels.uids) - set(known))
    with display.task("predicting", len(documents)) as task:
        top = model.rank(
            documents, yardstick.depth + min(foreign, MOST_FOREIGN), context=context, on_block=task.advance
        )
    return renumbered(top, model.bundle.labels.uids, known)


def renumbered(top: TopK, from_uids: Any, to_uids: Any) -> TopK:
    """Label numbers of a model as those of a data set, by label id. Labels that the data does not know are removed."""
    if len(from_uids) == len(to_uids) and all(a == b for a, b in zip(from_uids, to_uids, strict=True)):
        return top
    number = {uid: position for position, uid in enumerate(to_uids)}
    table = np.array([number.get(uid, -1) for uid in from_uids] + [-1], dtype=np.int32)
    if np.all(table < 0):
        raise BundleError(
            f"the model knows none of the labels of the data set (it knows e.g. {from_uids[0]!r}, the data has "
            f"{to_uids[0]!r})",
            "evaluate on data with the same label ids as the training data; give --vocabulary if training had one",
        )
    ids = table[top.ids]
    order = np.argsort(ids < 0, axis=1, kind="stable")
    ids = np.take_along_axis(ids, order, axis=1)
    scores = np.where(ids < 0, -np.inf, np.take_along_axis(top.scores, order, axis=1))
    return TopK(ids, scores.astype(np.float32))


def read_predictions(path: Path, data: Dataset) -> TopK:
    """A prediction file (SciPy CSR npz, test documents x labels) as ranked labels. Where it has ids of documents, rows
    are put in the order of the test documents by them.
    """
    from longtail.data.matrices import load_csr, load_ids

    matrix = load_csr(path)
    expected = (len(data.need_test()), len(data.labels))
    if matrix.shape != expected:
        raise DataError(
            f"predictions of shape {matrix.shape}, the data has {expected[0]} test documents and {expected[1]} labels",
            "predict for this data set with --format npz",
            file=path,
        )
    order = _rows_by_id(load_ids(path), list(data.need_test().documents.uids), path)
    matrix = matrix if order is None else matrix[order]
    return metrics.top_k(matrix, max(1, int(np.diff(matrix.indptr).max(initial=0))))


def _rows_by_id(found: list[str] | None, expected: list[str], file: Path) -> I64 | None:
    """For each test document its row among the ids of a prediction file; None where rows are in order, or where one
    side has no ids but row numbers.
    """
    if found is None or found == expected or all(uid == str(row) for row, uid in enumerate(found)):
        return None
    row_of = {uid: row for row, uid in enumerate(found)}
    if len(found) != len(expected) or row_of.keys() != set(expected):
        if all(uid in (f"test-{row}", f"tst-{row}") for row, uid in enumerate(expected)):
            return None
        foreign = next(iter(set(expected).symmetric_difference(found)), None)
        which = "some twice" if foreign is None else f"'{foreign}' is on one side only"
        raise DataError(
            f"the ids of the predictions are not those of the test documents ({which})",
            "predict for the test documents of this data set",
            file=file,
        )
    return np.array([row_of[uid] for uid in expected], dtype=np.int64)


def predictions(source: Path | Predictor, yardstick: Yardstick, display: Display) -> TopK:
    """From a prediction file, or by asking a model."""
    if isinstance(source, Path):
        return read_predictions(source, yardstick.data)
    return rank_test(source, yardstick, display, context_of_test(source, yardstick))


def quantiles(top: TopK, yardstick: Yardstick) -> dict[str, Any]:
    """Where P, PSP and FN @5 come from, for the three conventions of label bins; head first. P and PSP of the bins
    sum to the total.
    """
    cut, found = yardstick.cut(top), {}
    for convention in metrics.CONVENTIONS:
        bins = metrics.bins_for(convention, yardstick.counts)
        shares = metrics.contributions(cut, yardstick.truth, yardstick.inverse_propensity, bins, (5,))
        found[convention] = {
            "bins": list(bins.names),
            "n_labels": bins.n_labels.tolist(),
            "mean_frequency": bins.mean_frequency.tolist(),
            **shares,
        }
    return found


def baselines(data: Dataset, yardstick: Yardstick) -> dict[str, TopK]:
    """The floor that any trained recipe must beat: most frequent labels, and TF-IDF nearest neighbours."""
    from longtail.features.settings import FeaturesConfig
    from longtail.search.nearest import NearestDocuments, VoteConfig
    from longtail.training.prepare import prepare

    frequent = np.lexsort((np.arange(len(yardstick.counts)), -yardstick.counts))[: yardstick.depth].astype(np.int32)
    n = len(yardstick.truth.indptr) - 1
    most_frequent = TopK(np.tile(frequent, (n, 1)), np.tile(-np.arange(len(frequent), dtype=np.float32), (n, 1)))
    training = prepare(data, FeaturesConfig())
    neighbours = NearestDocuments.of(training.documents, training.targets, VoteConfig())
    asked = training.featurizer.batch(data.need_test().documents)
    return {
        "most frequent labels": most_frequent,
        "TF-IDF nearest neighbours": neighbours.rank(asked, yardstick.depth),
    }


# ---- documents that training holds out ----


@dataclass(frozen=True)
class HeldOut:
    """How documents were held out of training: `share` of them, by `seed`, whole groups of them if `group` names a
    column.
    """

    share: float
    seed: int
    group: str | None = None


def held_out_metrics(model: Predictor, data: Dataset, how: HeldOut, display: Display | None = None) -> dict[str, Any]:
    """What a bundle keeps of the measurement at the end of training.  data: its test side is what was held out.

    scores: all metrics, in percent.  baselines: the same of the baselines.  by_frequency: where P, PSP and FN @5 come
    from (`quantiles`).  threshold: the score at which MicroF1 is best on these documents, which is therefore not
    measured on them.  documents: how many were measured; those whose labels training has not seen are not.
    """
    yardstick = Yardstick.of(data)
    top = rank_test(model, yardstick, display or SilentDisplay())
    about = yardstick.about()
    return {
        "share": how.share,
        "seed": how.seed,
        "group": how.group,
        "data_hash": about["data_hash"],
        "documents": about["n_test"],
        "propensity": about["propensity"],
        "scores": _rounded(yardstick.score(top)),
        "by_frequency": _rounded(quantiles(top, yardstick)["by_frequency"]),
        "baselines": {name: _rounded(yardstick.score(base)) for name, base in baselines(data, yardstick).items()},
        "threshold": metrics.best_threshold(yardstick.cut(top), yardstick.truth),
    }


def _rounded(found: Any) -> Any:
    """Numbers with four places, for people who open the manifest."""
    if isinstance(found, Mapping):
        return {name: _rounded(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_rounded(value) for value in found]
    return round(found, 4) if isinstance(found, float) else found


def held_out_data(model: Predictor, data: Dataset, *others: Predictor) -> Dataset:
    """`data` as training saw it: the documents that were held out are its test side, the others its training side.

    What is chosen after training (a threshold, a calibration) is chosen on them. others: models that are measured on
    the same documents, and must not have learnt them, either.
    """
    ids = model.bundle.held_out()
    if ids is None:
        raise BundleError(
            "this model was trained on all documents of its data",
            "train with --holdout 0.1, or give documents that are in no training",
        )
    known = set(ids)
    if any(set(other.bundle.held_out() or ()) != known for other in others):
        raise BundleError(
            "the models did not hold the same documents out of training",
            "train both with the same --holdout, --seed and --group, or give test documents: --test FILE",
        )
    rows = np.array([row for row, uid in enumerate(data.train.documents.uids) if uid in known], dtype=np.int64)
    if len(rows) != len(known) or not model.bundle.was_trained_on(training_digest(data.digest)):
        raise DataError(
            f"'{data.name}' is not the data that the model was trained on: {len(rows)} of the {len(known)} documents "
            "that were held out are there",
            "give the same data as in training",
        )
    return data.with_test_rows(rows)


def calibrated_on_held_out(model: Predictor) -> bool:
    return bool(model.bundle.manifest.get("calibration", {}).get("from") == HELD_OUT)


def render_held_out(found: Mapping[str, Any], recipe: str = "model") -> str:
    """`held_out_metrics` for people: the table beside the baselines, and what labels it comes from."""
    p, parts = found["propensity"], found["by_frequency"]
    by = f" by {found['group']}" if found["group"] else ""
    lines = [
        f"{found['documents']:,} documents held out of training{by} (share {found['share']:g}, seed {found['seed']}); "
        f"in percent; PSP with A={p['A']} B={p['B']} ({p['family']})",
        table({recipe: found["scores"], **found["baselines"]}),
        "",
        "where P@5 and PSP@5 come from, and what is missed, by training documents per label",
        f"{'documents':<12}{'labels':>10}{'P@5':>10}{'PSP@5':>10}{'FN@5':>10}",
    ]
    rows = zip(parts["bins"], parts["n_labels"], parts["P@5"], parts["PSP@5"], parts["FN@5"], strict=True)
    lines += [f"{name:<12}{n:>10,}{a:>10.2f}{b:>10.2f}{c:>10.2f}" for name, n, a, b, c in rows]
    return "\n".join([*lines, "The model was trained without these documents."])
