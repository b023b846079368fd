"""A model that is opened here: a `Predictor` with what requests ask beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longtail.bundle import MANIFEST
from longtail.data.dataset import Items
from longtail.explanation import Explanation
from longtail.predictor import Predictor
from longtail.search.split import ShardLists
from longtail.serve.batching import turn
from longtail.serve.hosted import Facts, Hosted, Wanted, annif_uids
from longtail.serve.limits import Plan
from longtail.serve.problems import as_json
from longtail.types import I32, Context, ContextRanker, TopK


class OpenedModel(Hosted):
    def __init__(
        self, name: str, predictor: Predictor, annif_uids: Sequence[str] | None = None, *, corrections: bool = False
    ) -> None:
        # All is read now: another version may lie in the folder when it is asked for.
        bundle = predictor.bundle
        super().__init__(
            name,
            facts_of(predictor),
            bundle.labels,
            annif_uids,
            company=bundle.company(),
            corrections=corrections,
        )
        self.predictor = predictor

    @classmethod
    def open(cls, name: str, path: str | Path, plan: Plan) -> OpenedModel:
        """The supervisor has compared checksums already; sizes are compared once more."""
        predictor = Predictor.open(path, verify=False)
        return cls(name, predictor, annif_uids(plan), corrections=bool(plan.corrections))

    def ranked(self, texts: Sequence[str], depth: int, context: Context | None) -> TopK:
        return self.predictor.rank_texts(texts, depth, context=context)

    def found(self, texts: Sequence[str], k: int) -> ShardLists:
        return self.predictor.found_in_texts(texts, k)

    def context(self, asked: Wanted) -> Context | None:
        return self.predictor.context(len(asked.texts), asked.known, asked.anchors)

    def lowest_score(self, threshold: float | None, precision: float | None) -> float | None:
        return self.predictor.lowest_score(threshold, precision)

    def turn(self) -> AbstractContextManager[Any]:
        return turn()

    def reasons(self, texts: Sequence[str], ids: I32, context: Context | None) -> list[list[str]]:
        documents = Items([str(number) for number in range(len(texts))], {self.facts.fields[0]: list(texts)})
        why = self.predictor.explain_labels(documents, ids, context=context, examples=self.abilities["examples"])
        return [[_reason(one) for one in reasons] for reasons in why]


def facts_of(predictor: Predictor) -> Facts:
    """Of a model, and of the files beside it."""
    bundle = predictor.bundle
    changed = datetime.fromtimestamp((bundle.folder / MANIFEST).stat().st_mtime, UTC)
    fields = bundle.featurizer.fields
    return Facts(
        sha=bundle.digest,
        recipe=predictor.recipe,
        data=str(bundle.manifest.get("data", {}).get("name", "")),
        settings=_without_folders(bundle.settings()),
        metrics=predictor.metrics,
        calibration=None if predictor.calibration is None else bundle.manifest.get("calibration"),
        fields=fields,
        saved_columns=bundle.manifest.get("columns"),
        changed=changed.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        explains=bool(fields),
        reads_known=isinstance(bundle.ranker, ContextRanker),
        shard=bundle.manifest.get("shard"),
    )


def _without_folders(settings: Any) -> Any:
    """Where files lay that a training read is nothing for clients: of their paths the last names are kept."""
    if isinstance(settings, dict):
        return {name: _without_folders(value) for name, value in settings.items()}
    return Path(settings).name if isinstance(settings, str) and os.path.isabs(settings) else settings


def _reason(why: Explanation) -> str:
    """An explanation beside the label that it is of, as JSON: long ones are not to be written on the event loop."""
    said = {name: value for name, value in why.as_json().items() if name not in ("label", "name", "score")}
    return as_json(said).decode()
