"""Where GNN-XML loses to a tree of linear classifiers (omikuji's Bonsai): parts of one changed for parts of the other.

    python -m benchmarks.gnnxml_parts DATA[@LABELS] --run FOLDER [--out FILE] [--set a.b=c] [--beside NAME]
                                    [--rows NAME ...]

One GNN-XML is trained on a slice (`variants.slices`), in --run, where a second call finds it, and what was ranked. Its
gates and rankers are then fitted anew, each in other ways, on the same rows of the same documents, and all labels of
the held-out documents are scored by gate x probability; documents that no training document is near to are measured by
themselves, too. Where the package `omikuji` is installed, it is trained on the same rows as well.
--beside: which row the others are compared with; GNN-XML and omikuji are always among them.
--set: of the training. What docs/experiments.md says of 2026-11-18 had words with pairs and the gate as printed, which
are not the default any more: --set features.pairs=true --set rankers.cluster_power=1. Rows of words alone say something
beside pairs only.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import longtail
from benchmarks.record import typed_command, write_result
from benchmarks.variants.slices import data_of
from longtail.evaluation import Yardstick
from longtail.kernels.arrays import csr
from longtail.metrics import paired_bootstrap
from longtail.metrics.scores import PerDocument
from longtail.models.rankers import sigmoid
from longtail.persistence import load_part
from longtail.recipes import make_recipe
from longtail.recipes.gnnxml.ranker import (
    Clusters,
    Gating,
    KeygraphModel,
    Matcher,
    cluster_documents,
    joined,
    pairs_by_label,
)
from longtail.search.linear import LinearConfig, LinearRows, fit_linear
from longtail.training.prepare import TrainingSet
from longtail.training.progress import PlainDisplay
from longtail.types import F32, Batch, Csr, TopK

SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10", "R@100")
GNNXML, OMIKUJI = "GNN-XML", "omikuji"
# Documents with a training document at least so similar are near: often of one origin with it.
NEAR = 0.5
LOGISTIC, HINGE = LinearConfig(loss="logistic", cost=100.0), LinearConfig()


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument("--beside", action="append", default=[GNNXML, OMIKUJI])
    options = parser.parse_args(words)
    data = data_of(options.data, test=False)
    recipe = make_recipe("gnnxml", assignments=options.set)
    began_training = time.monotonic()
    model = longtail.train(data, options.run, recipe, device="cpu", display=PlainDisplay(seconds=60), examples=False)
    ranker: Any = model.bundle.ranker
    assert isinstance(ranker, KeygraphModel)
    yardstick = Yardstick.of(data)
    batch = model.bundle.featurizer.batch(data.need_test().documents)
    parts = Parts(options.run, ranker, batch, yardstick.truth, yardstick.depth)
    found, similar = parts.rows(), parts.similarities()
    sides = {"far": similar < NEAR, "near": similar >= NEAR}
    counts = {f"{side} documents": int(of.sum()) for side, of in sides.items()}
    sides = {side: of for side, of in sides.items() if of.any()}  # of no documents nothing can be said
    measured: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name, ranked in found.items():
        if options.rows and name not in options.rows:
            continue
        kept = options.run / "parts" / f"{name}.npz"
        if not kept.exists():
            began = began_training if name == GNNXML else time.monotonic()
            top = ranked()
            if top is None:
                continue
            kept.parent.mkdir(exist_ok=True)
            np.savez(kept, ids=top.ids, scores=top.scores, seconds=round(time.monotonic() - began, 1))
        with np.load(kept) as arrays:
            top = TopK(arrays["ids"], arrays["scores"])
            seconds[name] = float(arrays["seconds"])
        measured[name] = yardstick.measure(top)
        shown = [
            {m: round(value, 2) for m, value in each.values().items() if m in SHOWN}
            for each in (measured[name], *(_of_rows(measured[name], of) for side, of in sides.items() if side == "far"))
        ]
        print(f"{name:<62}", *shown, f"{seconds[name]} s", flush=True)
    beside = [other for other in dict.fromkeys(options.beside) if other in measured]
    rows = {
        name: {"seconds": seconds[name], **compared(name, measured, beside)}
        | {
            side: compared(name, {n: _of_rows(m, of) for n, m in measured.items()}, beside)
            for side, of in sides.items()
        }
        for name in measured
    }
    results = {"near from a cosine of": NEAR, **counts, "rows": rows}
    if options.out:
        write_result(
            options.out,
            "gnnxml_parts",
            {**yardstick.about(), **results},
            typed_command("gnnxml_parts", words),
            data.digest,
            0,
        )
    return 0


def compared(name: str, measured: Mapping[str, PerDocument], beside: Sequence[str]) -> dict[str, Any]:
    one, values = measured[name], measured[name].values()
    return {
        "metrics": {m: round(values[m], 3) for m in SHOWN},
        **{
            f"beside {other}": {
                m: [round(d.mean, 2), round(d.low, 2), round(d.high, 2)]
                for m, d in paired_bootstrap(one, measured[other], rng=np.random.default_rng(0)).items()
                if m in SHOWN
            }
            for other in beside
            if other != name
        },
    }


def _of_rows(measured: PerDocument, rows: Any) -> PerDocument:
    return replace(measured, numerators=measured.numerators[rows], denominators=measured.denominators[rows])


class Parts:
    """The pieces of a trained GNN-XML on held-out documents, and what stands in their place."""

    def __init__(self, run: Path, model: KeygraphModel, batch: Batch, truth: Csr, depth: int) -> None:
        training: Any = load_part(run / "stages" / "0_prepare")
        surrogate: Any = load_part(run / "stages" / "1_surrogate")
        matcher: Any = load_part(run / "stages" / "2_shortlist")
        assert isinstance(training, TrainingSet)
        assert isinstance(surrogate, Clusters)
        assert isinstance(matcher, Matcher)
        self.training, self.surrogate, self.matcher, self.model, self.batch = training, surrogate, matcher, model, batch
        self.truth, self.depth = truth, depth
        self.x: Any = training.documents.sparse
        self.asked: Any = batch.sparse
        self.has_cluster = surrogate.clusters >= 0
        # Masked pairs are neither positives nor negatives.
        self.left_out = pairs_by_label(training.masked, training.targets)

    def similarities(self) -> F32:
        """(B,) cosine to the nearest training document, by TF-IDF."""
        found: F32 = (self.asked @ self.x.T).max(axis=1).toarray().ravel()
        return found

    def rows(self) -> Mapping[str, Callable[[], TopK | None]]:
        every, own, linear = self.model.rankers.n_clusters, self._graph_gates(), self._linear_gates
        rankers = self._rankers(LOGISTIC)
        hinged = self._rankers(HINGE)
        one_vs_all = self._one_vs_all(LOGISTIC)
        one_vs_all_hinged = self._one_vs_all(HINGE)
        words_alone = self._rankers(LOGISTIC, words_alone=True)
        found_by_lines = self._rankers(LOGISTIC, linear)
        return {
            GNNXML: lambda: self.model.rank(self.batch, self.depth),
            OMIKUJI: lambda: self._omikuji(3),
            "omikuji, one tree": lambda: self._omikuji(1),
            "omikuji, words alone": lambda: self._omikuji(3, words_alone=True),
            "GNN-XML, put together again": lambda: self._ranked(own, rankers()),
            "every cluster looked into": lambda: self._ranked(own, rankers(), beam=every),
            "rankers alone, every label": lambda: self._ranked(own, rankers(), beam=every, power=0.0),
            "the true clusters alone": lambda: self._ranked(self._true_gates(), rankers(), beam=every),
            "gates by linear classifiers": lambda: self._ranked(linear(), rankers()),
            "gates by linear classifiers, negatives found by them": lambda: self._ranked(linear(), found_by_lines()),
            "both gates' mean": lambda: self._ranked(np.float32(0.5) * (own + linear()), rankers()),
            "rankers of squared hinges": lambda: self._ranked(own, hinged(), hinge=True),
            "gates by linear classifiers, rankers of squared hinges": lambda: self._ranked(
                linear(), hinged(), hinge=True
            ),
            **{f"rankers of cost {cost:g}": self._of_cost(own, cost) for cost in (1.0, 10.0, 1000.0)},
            **{
                f"rare labels raised by {rarity:g}": self._raised(own, rankers, rarity)
                for rarity in (0.1, 0.2, 0.4, 0.7, 1.0)
            },
            "gates by linear classifiers, rare labels raised by 0.4": lambda: self._raised(linear(), rankers, 0.4)(),
            "rankers of words alone": lambda: self._ranked(own, words_alone()),
            "rankers of words alone, rare labels raised by 0.2": self._raised(own, words_alone, 0.2),
            "rankers of words alone, rare labels raised by 0.4": self._raised(own, words_alone, 0.4),
            "rankers of words alone, gates by linear classifiers": lambda: self._ranked(linear(), words_alone()),
            "rankers' weights kept": lambda: self._ranked(own, self._rankers(replace(LOGISTIC, prune=0.0))()),
            "one against all, logistic": lambda: self._ranked(own, one_vs_all(), beam=every, power=0.0),
            "one against all, squared hinges": lambda: self._ranked(own, one_vs_all_hinged(), beam=every, power=0.0),
            "one against all, logistic, x gates": lambda: self._ranked(own, one_vs_all()),
            "one against all, logistic, x gates, rare labels raised by 0.4": self._raised(own, one_vs_all, 0.4),
        }

    # ---- gates ----

    def _graph_gates(self) -> F32:
        """(B, K) log-odds."""
        read = joined(self.model.encoder.represent(self.batch))
        found: F32 = read @ np.asarray(self.model.heads.vectors).T
        return found

    def _linear_gates(self, documents: Any = None) -> F32:
        """Log-odds of clusters by classifiers of TF-IDF rows, each against all documents."""
        if not hasattr(self, "_gate_rows"):
            targets = self.surrogate.targets(self.training.targets)
            self._gate_rows = _against_all(self.x, targets.T.tocsr(), replace(LOGISTIC, cost=10.0))
        return _scores(self.asked if documents is None else documents, self._gate_rows)

    def _true_gates(self) -> F32:
        """As sure as a gate can be of the clusters of the truth, which nobody knows, and of no others."""
        has = self.surrogate.targets(self.truth).toarray() > 0
        return np.where(has, np.float32(20), np.float32(-20)).astype(np.float32)

    # ---- rankers ----

    def _of_cost(self, gates: F32, cost: float) -> Callable[[], TopK]:
        return lambda: self._ranked(gates, self._rankers(replace(LOGISTIC, cost=cost))())

    def _raised(self, gates: F32, rankers: Callable[[], F32], rarity: float) -> Callable[[], TopK]:
        """As `rankers.rarity` does."""
        counts = np.maximum(self.training.label_counts(), 1)
        rise = (rarity * np.log(counts.max() / counts)).astype(np.float32)
        return lambda: self._ranked(gates, rankers() + rise)

    def _rankers(
        self, config: LinearConfig, gates: Callable[[Any], F32] | None = None, *, words_alone: bool = False
    ) -> Callable[[], F32]:
        """(B, L) scores of classifiers, each against the documents of its cluster and those where it is found."""

        def fitted() -> F32:
            labels = np.flatnonzero(self.has_cluster)
            found = self.matcher.found_clusters()
            if gates is not None:
                found = _best_of(gates(self.x), self.matcher.found.shape[1])
            groups = cluster_documents(self.training.targets, self.surrogate.clusters, found)
            of_labels = self.training.targets.T.tocsr()[labels]
            rng, left_out = np.random.default_rng(0), self.left_out[labels]
            x, asked = self._words_alone() if words_alone else (self.x, self.asked)
            rows = fit_linear(x, of_labels, groups, self.surrogate.clusters[labels], config, rng, left_out=left_out)
            return self._of_all(rows, asked)

        return _once(fitted)

    def _one_vs_all(self, config: LinearConfig) -> Callable[[], F32]:
        def fitted() -> F32:
            labels = np.flatnonzero(self.has_cluster)
            of_labels = self.training.targets.T.tocsr()[labels]
            return self._of_all(_against_all(self.x, of_labels, config, self.left_out[labels]))

        return _once(fitted)

    def _of_all(self, rows: LinearRows, asked: Any = None) -> F32:
        scores = np.full((len(self.batch), len(self.has_cluster)), -np.inf, dtype=np.float32)
        scores[:, self.has_cluster] = _scores(self.asked if asked is None else asked, rows)
        return scores

    # ---- ranking ----

    def _ranked(
        self, gates: F32, scores: F32, *, beam: int = 0, power: float | None = None, hinge: bool = False
    ) -> TopK:
        """gate^power x probability; a label of a cluster that is not among the best has none. Gates are made of their
        log-odds, and clusters looked into, as the model does it, unless `power` and `beam` say otherwise.  hinge:
        scores are those of squared hinges, whose probability is exp(-loss), as in trees of them.
        """
        gating = self.model.gating or Gating()
        looked = np.argsort(-gates, axis=1, kind="stable")[:, : beam or self.model.beam].astype(np.int32)
        if not beam:
            looked = gating.looked_into(looked, np.diff(self.model.rankers.starts))
        seen = np.zeros(gates.shape, dtype=np.bool_)
        documents, places = np.nonzero(looked >= 0)
        seen[documents, looked[documents, places]] = True
        of_label = np.maximum(self.surrogate.clusters, 0)
        with np.errstate(divide="ignore"):
            sure = np.log(sigmoid(np.float32(gating.scale) * gates))[:, of_label]
            by_gate = (gating.power if power is None else power) * sure
            by_ranker = -(np.maximum(1 - scores, 0) ** 2) if hinge else -np.logaddexp(0, -scores)
        total = np.where(seen[:, of_label] & np.isfinite(scores), by_gate + by_ranker, -np.inf)
        return _top(total.astype(np.float32), self.depth)

    # ---- the peer ----

    def _omikuji(self, trees: int, *, words_alone: bool = False) -> TopK | None:
        if importlib.util.find_spec("omikuji") is None:
            return None
        import omikuji  # type: ignore[import-not-found, unused-ignore]

        from benchmarks.race.peer_systems import _pairs, _write_repository_format
        from longtail.metrics import drop_masked_targets

        x, asked = self._words_alone() if words_alone else (self.x, self.asked)
        settings = omikuji.Model.default_hyper_param()
        settings.cluster_k, settings.cluster_balanced, settings.max_depth, settings.min_branch_size = 100, False, 3, 100
        settings.n_trees = trees
        targets = drop_masked_targets(self.training.targets, self.training.masked)
        rows = np.flatnonzero((np.diff(x.indptr) > 0) & (np.diff(targets.indptr) > 0))
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "train.txt"
            _write_repository_format(written, x[rows], targets[rows])
            model = omikuji.Model.train_on_data(str(written), settings, n_threads=2)
        top = TopK.padding(len(self.batch), min(self.depth, len(self.has_cluster)))
        for number in np.flatnonzero(np.diff(asked.indptr)).tolist():
            for place, (label, score) in enumerate(model.predict(_pairs(asked, number), top_k=top.ids.shape[1])):
                top.ids[number, place], top.scores[number, place] = label, score
        return top

    def _words_alone(self) -> tuple[Any, Any]:
        """Training and held-out rows without pairs of words."""
        words: Any = self.training.featurizer
        known = words.text.word_range
        chosen = slice(known.start, known.stop)
        return _unit(self.x[:, chosen]), _unit(self.asked[:, chosen])


def _against_all(x: Csr, of_labels: Csr, config: LinearConfig, left_out: Csr | None = None) -> LinearRows:
    n = int(x.shape[0])
    everyone = csr(np.ones(n, np.float32), np.arange(n), np.array([0, n]), (1, n))
    one = np.zeros(int(of_labels.shape[0]), dtype=np.int64)
    return fit_linear(x, of_labels, everyone, one, config, np.random.default_rng(0), left_out=left_out)


def _scores(documents: Csr, rows: LinearRows) -> F32:
    found: F32 = np.asarray((documents @ rows.weights.T).toarray(), dtype=np.float32) + rows.bias
    return found


def _best_of(gates: F32, count: int) -> Csr:
    """(N, K) CSR of ones: the best clusters of every document."""
    best = np.sort(np.argsort(-gates, axis=1, kind="stable")[:, :count], axis=1)
    n = len(gates)
    return csr(np.ones(best.size, np.float32), best.ravel(), np.arange(n + 1) * best.shape[1], gates.shape)


def _unit(rows: Any) -> Any:
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    out = rows.copy().astype(np.float32)
    out.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(out.indptr)).astype(np.float32)
    return out


def _top(scores: F32, k: int) -> TopK:
    k = min(k, scores.shape[1])
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
    best = np.take_along_axis(scores, ids, axis=1)
    return TopK(np.where(np.isfinite(best), ids, np.int32(TopK.PAD)), best)


def _once(make: Callable[[], F32]) -> Callable[[], F32]:
    kept: list[F32] = []

    def value() -> F32:
        if not kept:
            kept.append(make())
        return kept[0]

    return value


if __name__ == "__main__":
    raise SystemExit(main())
