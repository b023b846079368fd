"""A model as requests see it, wherever it is: here (`serve.opened`), or in shards behind other servers
(`serve.front`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from longtail.bundle import LabelTable
from longtail.data.columns import Columns
from longtail.errors import ConfigError
from longtail.search.split import ShardLists
from longtail.serve.label_search import LabelSearch
from longtail.serve.limits import Limits, Plan
from longtail.serve.problems import Problem, as_json, bad, shown
from longtail.types import I32, Context, TopK

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
    # Asked by a front, of a shard: what it found, or why the texts have these labels (numbers, for each text).
    found: bool = False
    why: Sequence[Sequence[int]] | None = None

    @property
    def key(self) -> tuple[object, ...] | None:
        """Requests of equal keys can be answered together; None: only alone."""
        alone = self.known or self.anchors or self.explain or self.why is not None
        return None if alone else (self.k, self.allow, self.exclude, self.found)

    def part(self, start: int, end: int) -> Wanted:
        """The same of some of the texts."""
        known = None if self.known is None else self.known[start:end]
        anchors = None if self.anchors is None else self.anchors[start:end]
        why = None if self.why is None else self.why[start:end]
        return replace(self, texts=self.texts[start:end], known=known, anchors=anchors, why=why)


@dataclass(frozen=True)
class Given:
    """Labels of one text, best first. why: for each label, as JSON, where it was asked for. found: the same."""

    labels: list[int]
    scores: list[float]
    why: list[str] | None = None
    found: ShardLists | None = None

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


@dataclass(frozen=True)
class Facts:
    """What a model says of itself. Survives JSON: a front hears it from shards.

    sha: names the version.  data: what it was trained on.  fields, saved_columns: of texts.  changed: when, in UTC.
    shard: number, of, and the digest of the model, where it is a shard of one.
    """

    sha: str
    recipe: str
    data: str
    settings: Mapping[str, Any]
    metrics: Mapping[str, Any]
    calibration: Any
    fields: Sequence[str]
    saved_columns: Any
    changed: str
    explains: bool
    reads_known: bool = False
    shard: Mapping[str, Any] | None = None


class Hosted(ABC):
    """One version of one model. Nothing of it changes: another version is another object."""

    def __init__(
        self,
        name: str,
        facts: Facts,
        labels: LabelTable,
        annif_uids: Sequence[str] | None = None,
        *,
        company: Any = None,
        corrections: bool = False,
    ) -> None:
        """annif_uids: labels that Annif's API may give; others are not in the vocabulary of its clients. company: the
        `longtail.graph.company.Company` of the labels. corrections: whether the server keeps them.
        """
        self.name, self.facts, self.labels = name, facts, labels
        self.company, self.keeps_corrections = company, corrections
        self.sha, self.version = facts.sha, facts.sha[:12]
        self.counts = labels.counts
        self._heads: dict[int, str] = {}
        self.annif_allow: frozenset[int] | None = None
        if annif_uids is not None:
            self.annif_allow = frozenset(self.numbers[uid] for uid in annif_uids if uid in self.numbers)

    # ---- what depends on where the model is ----

    @abstractmethod
    def ranked(self, texts: Sequence[str], depth: int, context: Context | None) -> TopK: ...

    @abstractmethod
    def reasons(self, texts: Sequence[str], ids: I32, context: Context | None) -> list[list[str]]:
        """Why texts have labels with these numbers (B, C; -1: none): for each label of a text JSON."""

    @abstractmethod
    def lowest_score(self, threshold: float | None, precision: float | None) -> float | None:
        """See `longtail.predictor.Predictor.lowest_score`."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[Any]:
        """What an answer must wait for, among the threads of a worker."""

    def context(self, asked: Wanted) -> Context | None:
        """What is known of texts beside themselves."""
        return None

    def found(self, texts: Sequence[str], k: int) -> ShardLists:
        """What a shard finds."""
        raise ConfigError(f"the model '{self.name}' is no shard of another", "ask the server of a shard")

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def columns(self) -> Columns | None:
        """Of the table that it was trained on."""
        return None if self.facts.saved_columns is None else Columns.loaded(self.facts.saved_columns)

    # ---- what it is ----

    @cached_property
    def abilities(self) -> dict[str, bool]:
        company = self.company
        return {
            "explain": self.facts.explains,
            "known": self.facts.reads_known,
            "neighbours": company is not None,
            "examples": company is not None and company.examples is not None,
            "calibrated": self.facts.calibration is not None,
            "corrections": self.keeps_corrections and bool(self.facts.fields),
        }

    @cached_property
    def summary(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "recipe": self.facts.recipe,
            "labels": len(self),
            "version": self.version,
            "data": self.facts.data,
            "abilities": self.abilities,
        }

    @cached_property
    def details(self) -> dict[str, Any]:
        return {
            **self.summary,
            "settings": self.facts.settings,
            "metrics": self.facts.metrics,
            "calibration": self.facts.calibration,
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
        return LabelSearch(self.labels)

    @cached_property
    def numbers(self) -> dict[str, int]:
        uids = self.labels.uids
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
        return self.labels.uids[number]

    def label_name(self, number: int) -> str:
        return self.labels.names[number]

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
                if math.isfinite(score)
            ],
            "examples": [{"id": uid, "text": text} for uid, text in examples],
        }

    # ---- answers ----

    def texts_at_once(self, asked: Wanted, limits: Limits) -> int:
        """How many texts of a request are ranked together. Few where each may need many labels ranked: other requests
        wait meanwhile.
        """
        depth = limits.deepest if asked.allow is not None else asked.k + len(asked.exclude)
        return max(1, min(limits.batch_texts, limits.labels // max(1, min(depth, len(self)))))

    def answer(self, asked: Wanted, limits: Limits) -> list[Given]:
        """Of one request, or of several that were put together. Runs on the model's thread."""
        step = self.texts_at_once(asked, limits)
        starts = range(0, len(asked.texts), step)
        return [one for start in starts for one in self._answer(asked.part(start, start + step), limits)]

    def _answer(self, asked: Wanted, limits: Limits) -> list[Given]:
        if asked.found:
            whole = self.found(asked.texts, asked.k)
            parts = (whole.rows(number, number + 1) for number in range(len(asked.texts)))
            return [Given([n for n in one.lists[0].ids[0].tolist() if n >= 0], [], found=one) for one in parts]
        context = self.context(asked)
        if asked.why is not None:
            return self._explained(asked, [Given(list(numbers), []) for numbers in asked.why], context)
        if asked.allow is not None:
            found = self._allowed(asked, context, limits)
        else:
            depth = min(asked.k + len(asked.exclude), len(self))
            found = _listed(self.ranked(asked.texts, depth, context), asked)
        return self._explained(asked, found, context) if asked.explain else found

    def _explained(self, asked: Wanted, found: list[Given], context: Context | None) -> list[Given]:
        """The same with what spoke for each label."""
        ids = np.full((len(found), max(1, *(len(one.labels) for one in found))), TopK.PAD, dtype=np.int32)
        for row, one in zip(ids, found, strict=True):
            row[: len(one.labels)] = one.labels
        reasons = self.reasons(asked.texts, ids, context)
        return [replace(one, why=why) for one, why in zip(found, reasons, strict=True)]

    def _allowed(self, asked: Wanted, context: Context | None, limits: Limits) -> list[Given]:
        """Ranks deeper until every text has enough of the allowed labels, or all that can be had were seen."""
        assert asked.allow is not None
        enough, bound = min(asked.k, len(asked.allow - asked.exclude)), min(len(self), limits.deepest)
        depth = min(bound, max(4 * asked.k, 256))
        while True:
            top = self.ranked(asked.texts, depth, context)
            found = _listed(top, asked)
            # A list that is padded holds all that the model would ever say.
            whole = top.ids[:, -1] == TopK.PAD if top.k == depth else np.ones(len(found), dtype=np.bool_)
            if depth >= bound or all(
                len(one.labels) >= enough or done for one, done in zip(found, whole.tolist(), strict=True)
            ):
                return found
            depth = min(bound, depth * 4)


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
            answers[numbers[0]] = tried(hosted, first, limits)
            continue
        texts = [text for number in numbers for text in requests[number].texts]
        found = tried(hosted, replace(first, texts=texts, threshold=None), limits)
        start = 0
        for number in numbers:
            asked = requests[number]
            if isinstance(found, Problem):  # it is not about a text
                answers[number] = found
            elif isinstance(found, Exception):  # one by one: the text that breaks it breaks its own request
                answers[number] = tried(hosted, asked, limits)
            else:
                answers[number] = [one.above(asked.threshold) for one in found[start : start + len(asked.texts)]]
                start += len(asked.texts)
    return answers


def tried(hosted: Hosted, asked: Wanted, limits: Limits) -> list[Given] | Exception:
    try:
        return hosted.answer(asked, limits)
    except BaseException as problem:
        return as_error(problem)


def as_error(problem: BaseException) -> Exception:
    """What is no `Exception`, as one. A library in Rust that gives up raises such a thing, and it would end the thread
    or the task that asked it, and with it all that waits there.
    """
    if isinstance(problem, Exception):
        return problem
    error = RuntimeError(f"a library gave up: {type(problem).__name__}: {problem}")
    error.__cause__ = problem
    return error
