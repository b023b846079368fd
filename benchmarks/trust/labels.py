"""Labels that come: how well labels are found that were added to a trained model, beside training with them.

2,000 labels are held out of training, evenly over frequencies (`longtail.data.protocols.zero_shot`), and added to the
model afterwards: by their texts alone, and with up to five documents each (labels with fewer training documents have
fewer). A second model is trained with them. On the test documents:

- R@10 of the held-out labels: of the documents that carry some of them, the share of these that is among the ten best
  of *all* labels, mean over documents;
- P@1 of the others: over the documents that carry none of the held-out labels, where a new label that comes first is
  wrong; and R@10 there, of which new labels take places;
- how long adding takes, and that taking the change back gives the answers of before.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust.common import trained, training_options
from longtail import labels as changes
from longtail.bundle import find_bundle
from longtail.data.dataset import Dataset
from longtail.data.protocols import zero_shot
from longtail.data.read import read
from longtail.metrics import drop_masked_targets
from longtail.predictor import Predictor
from longtail.types import I64, BoolArray, Csr

EXAMPLES = 5


def options(parser: argparse.ArgumentParser) -> None:
    training_options(parser)
    parser.add_argument("--held-out", type=int, default=2000, metavar="N", help="labels, about so many")


def measure(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    whole = read(data)
    cut = zero_shot(whole, options.seed, options.held_out / len(whole.labels))
    found: dict[str, Any] = {"data_hash": whole.digest, "held_out": len(cut.held_out), "test": len(whole.need_test())}
    look = Look(whole, cut.held_out)
    name = f"{data.name}-{options.recipe}"
    with trained(whole, options, f"{name}-all") as (model, seconds):
        found["trained with them"] = {**look.at(model), "seconds": seconds}
    with trained(cut.train, options, f"{name}-without") as (model, seconds):
        found["without them"] = {**look.at(model), "seconds": seconds}
        texts = dict(zip(look.uids(cut.held_out), [whole.labels.name(i) for i in cut.held_out.tolist()], strict=True))
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "model"
            shutil.copytree(find_bundle(model.bundle.folder), copy)
            before = Predictor.open(copy).rank(whole.need_test().documents.rows(np.arange(100)), 10)
            for way, examples in (("texts", {}), ("examples", look.examples(options.seed))):
                started = time.perf_counter()
                changes.add(copy, texts, examples=examples)
                took = round(time.perf_counter() - started, 2)
                found[f"added by {way}"] = {**look.at(Predictor.open(copy)), "seconds": took}
                changes.undo(copy)
            after = Predictor.open(copy).rank(whole.need_test().documents.rows(np.arange(100)), 10)
            same = np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
            found["taken back to the last bit"] = bool(same)
    retrained, plain = found["trained with them"], found["without them"]
    for way in ("texts", "examples"):
        one = found[f"added by {way}"]
        one["share of the R@10 of training"] = round(100 * one["R@10 of them"] / retrained["R@10 of them"], 1)
        one["P@1 of others lost"] = round(plain["P@1 of others"] - one["P@1 of others"], 2)
    return found


class Look:
    """The test documents of a data set, of which some labels were held out."""

    def __init__(self, data: Dataset, held: I64) -> None:
        test = data.need_test()
        self.data, self.documents = data, test.documents
        self.truth: Csr = drop_masked_targets(test.targets, test.masked)
        self.masked = [set[int]() for _ in range(len(test))]
        for document, label in test.masked.tolist():
            self.masked[document].add(label)
        self.is_held: BoolArray = np.zeros(len(data.labels), np.bool_)
        self.is_held[held] = True
        self.held = held

    def uids(self, numbers: I64) -> list[str]:
        return [self.data.labels.uids[number] for number in numbers.tolist()]

    def examples(self, seed: int) -> dict[str, list[str]]:
        """Up to `EXAMPLES` training documents of each held-out label, by chance."""
        targets = drop_masked_targets(self.data.train.targets, self.data.train.masked).T.tocsr()
        rng, documents = np.random.default_rng([seed, 0xE8A]), self.data.train.documents
        return {
            self.data.labels.uids[label]: [
                documents.name(row)
                for row in rng.permutation(targets.indices[targets.indptr[label] : targets.indptr[label + 1]])[
                    :EXAMPLES
                ].tolist()
            ]
            for label in self.held.tolist()
        }

    def at(self, model: Predictor) -> dict[str, float]:
        """What a model finds, in percent."""
        number = {uid: place for place, uid in enumerate(self.data.labels.uids)}
        ours = np.array([*(number[uid] for uid in model.labels), -1])
        ids = ours[model.rank(self.documents, 30).ids]
        recall: list[float] = []
        right: list[bool] = []
        others: list[float] = []
        for document, row in enumerate(ids.tolist()):
            start, end = self.truth.indptr[document], self.truth.indptr[document + 1]
            truth = set(self.truth.indices[start:end].tolist())
            best = [label for label in row if label >= 0 and label not in self.masked[document]][:10]
            held = {label for label in truth if self.is_held[label]}
            if held:
                recall.append(len(held & set(best)) / len(held))
            elif truth:
                right.append(bool(best) and best[0] in truth)
                others.append(len(truth & set(best)) / len(truth))
        return {
            "R@10 of them": round(100 * float(np.mean(recall)), 2),
            "P@1 of others": round(100 * float(np.mean(right)), 2),
            "R@10 of others": round(100 * float(np.mean(others)), 2),
            "documents with them": len(recall),
            "documents without": len(right),
        }
