"""Labels that come and go: added, renamed, merged and retired in a trained model, without training it again.

    longtail.labels.add("RUN", {"4711": "wireless headphones"}, examples={"4711": ["over-ear, with bluetooth"]})
    longtail.labels.retire("RUN", ["0815"])
    longtail.labels.log("RUN")
    longtail.labels.undo("RUN")

Each call is one change, a small patch beside the bundle (`longtail.label_changes`); whoever opens the model from then
on has it. Renaming, merging and retiring serve every recipe. Adding needs a model whose labels have rows that texts can
be turned into: `direct`, `eclare`, the towers (`ance`, `ngame`, `dexml`, `siamese`) and `ramen` over one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longtail.bundle import Bundle, open_bundle
from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.features.base import Featurizer
from longtail.label_changes import (
    ChangedLabels,
    ChangeKind,
    LabelChange,
    changing,
    read_changes,
    take_back,
    write_change,
)
from longtail.models.new_labels import AddedLabels, Trained, Wish, added_labels, known_documents, looked_at
from longtail.predictor import Predictor
from longtail.types import I64, Batch, Csr


def add(
    model: str | Path,
    labels: Mapping[str, str],
    *,
    near: Mapping[str, Sequence[str]] | None = None,
    examples: Mapping[str, Sequence[str]] | None = None,
) -> LabelChange:
    """Add labels to the model of a run or bundle.

    labels: a text for each new id; "" where it has none.  near: ids of labels that a new one is like.  examples: texts
    of documents that carry a new label.
    A label without a text needs one of the two.
    """
    given = examples or {}
    _check_keys(near or {}, labels, "near")
    _check_keys(given, labels, "examples")
    documents, targets = with_texts(list(labels), given, Items([], {}), [])
    return add_with_documents(model, labels, near or {}, documents, targets)


def add_with_documents(
    model: str | Path,
    labels: Mapping[str, str],
    near: Mapping[str, Sequence[str]],
    documents: Items,
    targets: Csr,
) -> LabelChange:
    """`add` with documents of all their fields. targets: (documents, labels) CSR of ones: which carry which."""
    if not labels:
        raise ConfigError("no labels to add", "give at least one id with its text")
    bundle = open_bundle(Path(model))
    with changing(bundle) as folder:
        before = read_changes(bundle.folder, bundle.manifest)
        now = ChangedLabels.after(bundle, before)
        now.check_new(list(labels))
        part = _made(now, labels, near, documents, targets)
        said = [
            {"id": uid, "text": text, "examples": int(count), "near": now.uids[place] if place >= 0 else ""}
            for (uid, text), count, place in zip(labels.items(), part.counts, part.near.tolist(), strict=True)
        ]
        return write_change(bundle, folder, before, "add", {"labels": said}, part)


def rename(model: str | Path, id: str, text: str) -> LabelChange:
    """Give a label another name. What the model finds stays as it is: the row is not made anew."""
    return _changed(model, "rename", {"id": id, "text": text})


def merge(model: str | Path, ids: Sequence[str], into: str) -> LabelChange:
    """Labels become one, with the id and the name of `into`; its score is the highest of theirs."""
    return _changed(model, "merge", {"ids": _listed(ids), "into": into})


def retire(model: str | Path, ids: Sequence[str]) -> LabelChange:
    """Labels are no longer shown; others take their places in the answers."""
    return _changed(model, "retire", {"ids": _listed(ids)})


def log(model: str | Path) -> list[LabelChange]:
    """The changes of a model's labels, the first first."""
    bundle = open_bundle(Path(model), verify=False)
    return read_changes(bundle.folder, bundle.manifest)


def undo(model: str | Path) -> LabelChange:
    """Take the last change back; gives what it was. The model answers as before it, to the last bit."""
    bundle = open_bundle(Path(model), verify=False)
    with changing(bundle) as folder:
        found = read_changes(bundle.folder, bundle.manifest, verify=False)
        if not found:
            raise ConfigError(f"{folder}: no change to take back", "'longtail labels log RUN' lists them")
        take_back(found[-1])
        return found[-1]


def _changed(model: str | Path, kind: ChangeKind, said: dict[str, Any]) -> LabelChange:
    bundle = open_bundle(Path(model))
    with changing(bundle) as folder:
        before = read_changes(bundle.folder, bundle.manifest)
        now = ChangedLabels.after(bundle, before)
        # What cannot be done is said before anything is written.
        if kind == "rename":
            now.rename(said["id"], said["text"])
        elif kind == "merge":
            now.merge(said["ids"], said["into"])
        else:
            now.retire(said["ids"])
        return write_change(bundle, folder, before, kind, said)


def _listed(ids: Sequence[str]) -> list[str]:
    if isinstance(ids, str) or not ids:
        raise ConfigError(f"ids is {ids!r}, expected a list of ids", "give at least one, e.g. ['4711']")
    return list(dict.fromkeys(ids))


def _check_keys(given: Mapping[str, Any], labels: Mapping[str, str], what: str) -> None:
    for uid, value in given.items():
        if uid not in labels:
            raise ConfigError(f"{what} of {uid!r}, which is none of the new labels", "name new labels only")
        if isinstance(value, str):
            raise ConfigError(f"{what} of {uid!r} is {value!r}, expected a list", f"give [{value!r}]")


# ---- from what a person knows of a label to its row ----


def _made(
    now: ChangedLabels, labels: Mapping[str, str], near: Mapping[str, Sequence[str]], documents: Items, targets: Csr
) -> AddedLabels:
    bundle, ranker, reads = now.plain, now.ranker(), now.plain.featurizer
    space = ranker.label_space()
    recipe = bundle.manifest.get("recipe")
    if space is None or not reads.fields:
        why = "reads given vectors, no texts" if space is not None else "knows only the labels of its training"
        raise ConfigError(
            f"a model of the recipe '{recipe}' {why}: labels cannot be added to it",
            "train again with the new labels; direct, eclare, ance, ngame, dexml, siamese, and ramen over one of them "
            "take new ones",
        )
    texts = None if not any(labels.values()) else label_batch(reads, list(labels.values()))
    named = [np.array([now.number(uid) for uid in near.get(one, ())], dtype=np.int64) for one in labels]
    examples = Predictor(bundle).batch(documents) if len(documents) else None
    _check_known(labels, texts, named, examples, targets)
    trained = len(bundle.labels)
    numbers = looked_at(trained)
    known = label_batch(reads, bundle.labels.names.take(numbers))
    wish = Wish(texts, named, examples, targets if examples is not None else None)
    part = added_labels(
        space, wish, Trained(numbers, known, np.asarray(bundle.labels.counts), _known_batch(bundle, reads))
    )
    # A label that is near an added one is near what that one is near.
    behind = np.concatenate([one.near for one in now.added]) if now.added else np.zeros(0, np.int32)
    places = [int(behind[place - trained]) if place >= trained else place for place in part.near.tolist()]
    return AddedLabels(part.rows, np.array(places, np.int32), part.counts, part.texts, part.examples, part.targets)


def _check_known(
    labels: Mapping[str, str], texts: Batch | None, named: Sequence[I64], examples: Batch | None, targets: Csr
) -> None:
    """Each new label needs something that the model can read."""
    silent = np.ones(len(labels), np.bool_) if texts is None else texts.is_empty()
    count = np.zeros(len(labels), np.int64)
    if examples is not None:
        rows = targets.tocoo()
        count = np.bincount(rows.col[~examples.is_empty()[rows.row]], minlength=len(labels))
    for row, uid in enumerate(labels):
        if silent[row] and not len(named[row]) and not count[row]:
            said = f"has a text of which the model knows no word ({labels[uid]!r})" if labels[uid] else "has no text"
            raise ConfigError(
                f"the new label {uid!r} {said}", "give it another text, examples, or labels that it is near"
            )


def label_batch(reads: Featurizer, texts: Sequence[str]) -> Batch | None:
    """Texts as the model reads those of labels."""
    fields = getattr(getattr(reads, "config", None), "label_fields", ()) or ("title",)
    given = {name: list(texts) if place == 0 else [""] * len(texts) for place, name in enumerate(fields)}
    return reads.label_batch(Items([str(number) for number in range(len(texts))], given))


def _known_batch(bundle: Bundle, reads: Featurizer) -> Batch:
    """Documents that the model knows: examples of training documents where it keeps some, else names of labels."""
    company = bundle.company()
    kept = None if company is None else company.examples
    known = bundle.labels.names if kept is None or not len(kept) else kept
    return reads.batch_of_texts(known.take(known_documents(len(known))))


def with_texts(
    uids: Sequence[str], texts: Mapping[str, Sequence[str]], documents: Items, carried: Sequence[Sequence[int]]
) -> tuple[Items, Csr]:
    """Documents of whatever fields, and behind them plain texts by label; with (documents, labels) CSR of ones.

    carried: for each of `documents` the places of its labels in `uids`.
    """
    from scipy.sparse import csr_array

    plain = [(text, [place]) for place, uid in enumerate(uids) for text in texts.get(uid, ())]
    fields = dict(documents.fields) or {"title": []}
    first = next(iter(fields))
    grown = {name: [*given, *((text if name == first else "") for text, _ in plain)] for name, given in fields.items()}
    labels = [*carried, *(owners for _, owners in plain)]
    rows = np.repeat(np.arange(len(labels)), [len(one) for one in labels])
    columns = np.array([place for one in labels for place in one], dtype=np.int64)
    targets = csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(labels), len(uids)))
    return Items([str(number) for number in range(len(labels))], grown), targets
