"""A model as it is served: a `Predictor` with what requests ask beside it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from longtail.bundle import MANIFEST
from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.explanation import Explanation
from longtail.predictor import Predictor
from longtail.serve.label_search import LabelSearch
from longtail.serve.limits import Limits, Plan
from longtail.serve.problems import Problem, as_json, bad, shown
from longtail.types import Context, ContextRanker, TopK

# Labels of so few training documents are marked as rare.
RARE = 5
# Pieces of answers that are kept ready, at most.
_KEPT = 1 << 17


@dataclass(frozen=True)
class Wanted:
    """What is wanted of some texts. known, anchors: ids for each text. allow, exclude: label numbers."""

    texts: Sequence[str]
    k: int
    threshold: float | None = None
    allow: frozenset[int] | None = None
    exclude: frozenset[int] = frozenset()
    known: Sequence[Sequence[str]] | None = None
    anchors: Sequence[Sequence[str]] | None = None
    explain: bool = False

    @property
    def key(self) -> tuple[object, ...] | None:
        """Requests of equal keys can be answered together; None: only alone."""
        return None if self.known or self.anchors or self.explain else (self.k, self.allow, self.exclude)

    def part(self, start: int, end: int) -> Wanted:
        """The same of some of the texts."""
        known = None if self.known is None else self.known[start:end]
        anchors = None if self.anchors is None else self.anchors[start:end]
        return replace(self, texts=self.texts[start:end], known=known, anchors=anchors)


@dataclass(frozen=True)
class Given:
    """Labels of one text, best first. why: for each label, as JSON, where it was asked for."""

    labels: list[int]
    scores: list[float]
    why: list[str] | None = None

    def above(self, threshold: float | None) -> Given:
        """Without labels that score less."""
        if threshold is None:
            return self
        kept = sum(score >= float(np.float32(threshold)) for score in self.scores)
        return Given(self.labels[:kept], self.scores[:kept])


def annif_uids(plan: Plan) -> list[str] | None:
    """Ids of the file that lists them: one in a line, or a vocabulary of Annif's (TSV), whose first column has URIs."""
    if not plan.annif_labels:
        return None
    try:
        lines = Path(plan.annif_labels).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{plan.annif_labels}: cannot be read ({problem})", "give a file of label ids") from problem
    found = (line.split("\t")[0].strip().removeprefix("<").removesuffix(">") for line in lines)
    return [uid.removeprefix(plan.uri_prefix) for uid in found if uid]


class Hosted:
    """One version of one model. Nothing of it changes: another version is another object."""

    def __init__(
        self, name: str, predictor: Predictor, annif_uids: Sequence[str] | None = None, *, corrections: bool = False
    ) -> None:
        """annif_uids: labels that Annif's API may give; others are not in the vocabulary of its clients. corrections:
        whether the server keeps them.
        """
        self.name, self.predictor, self.keeps_corrections = name, predictor, corrections
        self.sha = predictor.bundle.digest
        self.version = self.sha[:12]
        self.counts = predictor.bundle.labels.counts
        self.changed = datetime.fromtimestamp((predictor.bundle.folder / MANIFEST).stat().st_mtime, UTC)
        self._heads: dict[int, str] = {}
        # Read now: another version may lie in the folder when it is asked for.
        self.company = predictor.bundle.company()
        self._settings = tomllib.loads((predictor.bundle.folder / "config.toml").read_text(encoding="utf-8"))
        self.annif_allow: frozenset[int] | None = None
        if annif_uids is not None:
            self.annif_allow = frozenset(self.numbers[uid] for uid in annif_uids if uid in self.numbers)

    @classmethod
    def open(cls, name: str, path: str | Path, plan: Plan) -> Hosted:
        """The supervisor has compared checksums already; sizes are compared once more."""
        predictor = Predictor.open(path, verify=False)
        return cls(name, predictor, annif_uids(plan), corrections=bool(plan.corrections))

    def __len__(self) -> int:
        return len(self.counts)

    # ---- what it is ----

    @cached_property
    def abilities(self) -> dict[str, bool]:
        company = self.company
        return {
            "explain": bool(self.predictor.bundle.featurizer.fields),
            "known": isinstance(self.predictor.bundle.ranker, ContextRanker),
            "neighbours": company is not None,
            "examples": company is not None and company.examples is not None,
            "calibrated": self.predictor.calibration is not None,
            "corrections": self.keeps_corrections and bool(self.predictor.bundle.featurizer.fields),
        }

    @cached_property
    def summary(self) -> dict[str, Any]:
        manifest = self.predictor.bundle.manifest
        return {
            "name": self.name,
            "recipe": self.predictor.recipe,
            "labels": len(self),
            "version": self.version,
            "data": str(manifest.get("data", {}).get("name", "")),
            "abilities": self.abilities,
        }

    @cached_property
    def details(self) -> dict[str, Any]:
        metrics = json.loads(json.dumps(self.predictor.metrics, default=str))
        return {
            **self.summary,
            "settings": self._settings,
            "metrics": metrics,
            "calibration": self.predictor.bundle.manifest.get("calibration"),
            "frequencies": self.frequencies(),
        }

    def frequencies(self) -> list[dict[str, int]]:
        """How many labels have how many training documents: none, 1, 2, 3 to 4, 5 to 8, ..."""
        counts = np.asarray(self.counts)
        bounds, largest = [(0, 0), (1, 1)], int(counts.max(initial=0))
        while bounds[-1][1] < largest:
            bounds.append((bounds[-1][1] + 1, 2 * bounds[-1][1]))
        found = [(low, high, int(((counts >= low) & (counts <= high)).sum())) for low, high in bounds]
        return [{"from": low, "to": high, "labels": labels} for low, high, labels in found]

    # ---- labels ----

    def prepare(self) -> None:
        """Build what labels are looked up in before a request has to wait for it."""
        for name in ("numbers", "search"):
            getattr(self, name)

    @cached_property
    def search(self) -> LabelSearch:
        return LabelSearch(self.predictor.bundle.labels)

    @cached_property
    def numbers(self) -> dict[str, int]:
        uids = self.predictor.bundle.labels.uids
        return dict(zip(uids, range(len(uids)), strict=True))

    def number(self, uid: str) -> int:
        found = self.numbers.get(uid)
        if found is None:
            raise Problem(404, f"the model '{self.name}' has no label {shown(uid)}", "Label not found")
        return found

    def chosen(self, uids: Sequence[str], what: str) -> frozenset[int]:
        """Ids of a request as numbers."""
        unknown = [uid for uid in uids if uid not in self.numbers]
        if unknown:
            raise bad(f"{what}: the model '{self.name}' has no label {shown(unknown[0])}")
        return frozenset(self.numbers[uid] for uid in uids)

    def uid(self, number: int) -> str:
        return self.predictor.bundle.labels.uids[number]

    def label_name(self, number: int) -> str:
        return self.predictor.bundle.labels.names[number]

    def label(self, number: int) -> dict[str, Any]:
        return {"label": self.uid(number), "name": self.label_name(number), "documents": int(self.counts[number])}

    def head(self, number: int) -> str:
        """A label in an answer, as JSON up to its score; kept, as making it takes longer than sending it."""
        found = self._heads.get(number)
        if found is None:
            fields = as_json({**self.label(number), "rare": bool(self.counts[number] <= RARE)}).decode()
            found = fields[:-1] + ',"score":'
            if len(self._heads) < _KEPT:
                self._heads[number] = found
        return found

    def label_page(self, number: int) -> dict[str, Any]:
        """All that is known of a label."""
        company = self.company
        neighbours = [] if company is None else company.neighbours_of(number)
        examples = [] if company is None else company.examples_of(number)
        text = "" if company is None or company.texts is None else company.texts[number]
        return {
            **self.label(number),
            "text": text or self.label_name(number),
            "rare": bool(self.counts[number] <= RARE),
            "neighbours": [
                {"label": self.uid(other), "name": self.label_name(other), "score": round(score, 6)}
                for other, score in neighbours
            ],
            "examples": [{"id": uid, "text": text} for uid, text in examples],
        }

    # ---- answers ----

    def answer(self, asked: Wanted, limits: Limits) -> list[Given]:
        """Of one request. Runs on the model's thread."""
        context = self.predictor.context(len(asked.texts), asked.known, asked.anchors)
        if asked.allow is not None:
            found = self._allowed(asked, context, limits)
        else:
            depth = min(asked.k + len(asked.exclude), len(self))
            found = _listed(self.predictor.rank_texts(asked.texts, depth, context=context), asked)
        return self._explained(asked, found, context) if asked.explain else found

    def _explained(self, asked: Wanted, found: list[Given], context: Context | None) -> list[Given]:
        """The same with what spoke for each label."""
        ids = np.full((len(found), max(1, *(len(one.labels) for one in found))), TopK.PAD, dtype=np.int32)
        for row, one in zip(ids, found, strict=True):
            row[: len(one.labels)] = one.labels
        field = self.predictor.bundle.featurizer.fields[0]
        documents = Items([str(number) for number in range(len(found))], {field: list(asked.texts)})
        why = self.predictor.explain_labels(documents, ids, context=context, examples=self.abilities["examples"])
        return [
            replace(one, why=[_reason(reason) for reason in reasons]) for one, reasons in zip(found, why, strict=True)
        ]

    def _allowed(self, asked: Wanted, context: Context | None, limits: Limits) -> list[Given]:
        """Ranks deeper until every text has enough of the allowed labels, or all that can be had were seen."""
        assert asked.allow is not None
        enough, bound = min(asked.k, len(asked.allow - asked.exclude)), min(len(self), limits.deepest)
        depth = min(bound, max(4 * asked.k, 256))
        while True:
            top = self.predictor.rank_texts(asked.texts, depth, context=context)
            found = _listed(top, asked)
            # A list that is padded holds all that the model would ever say.
            whole = top.ids[:, -1] == TopK.PAD if top.k == depth else np.ones(len(found), dtype=np.bool_)
            if depth >= bound or all(
                len(one.labels) >= enough or done for one, done in zip(found, whole.tolist(), strict=True)
            ):
                return found
            depth = min(bound, depth * 4)


def _reason(why: Explanation) -> str:
    """An explanation beside the label that it is of, as JSON: long ones are not to be written on the event loop."""
    said = {name: value for name, value in why.as_json().items() if name not in ("label", "name", "score")}
    return as_json(said).decode()


def _listed(top: TopK, asked: Wanted) -> list[Given]:
    """The first `k` labels of each text that the request wants and that score enough."""
    every = asked.allow is None and not asked.exclude
    lowest = -np.inf if asked.threshold is None else float(np.float32(asked.threshold))
    answers: list[Given] = []
    for row, row_scores in zip(top.ids.tolist(), top.scores.tolist(), strict=True):
        labels: list[int] = []
        scores: list[float] = []
        for label, score in zip(row, row_scores, strict=True):
            if label == TopK.PAD or score < lowest or len(labels) == asked.k:
                break
            if every or ((asked.allow is None or label in asked.allow) and label not in asked.exclude):
                labels.append(label)
                scores.append(score)
        answers.append(Given(labels, scores))
    return answers


def answer_together(hosted: Hosted, requests: Sequence[Wanted], limits: Limits) -> list[list[Given] | Exception]:
    """Answers of several requests. Those that want the same of their texts are ranked as one batch; what is wrong with
    one concerns no other.
    """
    answers: list[list[Given] | Exception] = [[] for _ in requests]
    together: dict[object, list[int]] = {}
    for number, asked in enumerate(requests):
        key = asked.key
        together.setdefault(("alone", number) if key is None else key, []).append(number)
    for numbers in together.values():
        first = requests[numbers[0]]
        if len(numbers) == 1:
            answers[numbers[0]] = _tried(hosted, first, limits)
            continue
        texts = [text for number in numbers for text in requests[number].texts]
        found = _tried(hosted, replace(first, texts=texts, threshold=None), limits)
        start = 0
        for number in numbers:
            asked = requests[number]
            if isinstance(found, Exception):  # one by one: the text that breaks it breaks its own request
                answers[number] = _tried(hosted, asked, limits)
            else:
                answers[number] = [one.above(asked.threshold) for one in found[start : start + len(asked.texts)]]
                start += len(asked.texts)
    return answers


def _tried(hosted: Hosted, asked: Wanted, limits: Limits) -> list[Given] | Exception:
    try:
        return hosted.answer(asked, limits)
    except Exception as problem:
        return problem
