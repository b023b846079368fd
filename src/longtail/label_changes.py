"""Labels that came, went or changed their names after a model was trained: small patches beside its bundle.

    RUN/bundle/                   the model as it was trained; never touched
    RUN/bundle.labels/0001-add/   one change: change.json says what it is, with checksums; rows lie beside it
    RUN/bundle.labels/0002-retire/

A bundle that lies elsewhere has its changes beside it, too, in a folder with ``.labels`` behind its name. Each change
names the bundle and the change that it follows by their digests, so that none is applied to a model that it was not
made for. It appears by one rename, and the last one is taken back by one rename. A copied bundle opens without them;
`Predictor.save` writes a bundle that has them inside.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from longtail import __version__
from longtail.bundle import CALIBRATION, Bundle, LabelTable, check_files, contents, digest_of, entry_of, said_digest
from longtail.config import nearest
from longtail.errors import BundleError, ConfigError, RunTaken
from longtail.models.new_labels import AddedLabels
from longtail.models.renumbered import renumbered
from longtail.persistence import (
    Part,
    StringTable,
    load_part,
    no_room_is_an_error,
    read_json,
    save_part,
    write_json,
    written_aside,
)
from longtail.types import Ranker
from longtail.writing import held_lock, make_folder, remove_at_once, remove_dead

ChangeKind: TypeAlias = Literal["add", "rename", "merge", "retire"]
CHANGE, ADDED, FORMAT = "change.json", "added", 1
_UNFIT = (KeyError, IndexError, TypeError, ValueError, AttributeError)
_NAME = re.compile(r"(\d{4,})-([a-z]+)")


@dataclass(frozen=True)
class LabelChange:
    """One change of the labels of a model.

    number: from 1.  said: what was asked for: ``labels`` (id, text, examples, what is near) of an addition, ``id`` and
    ``text`` of a rename, ``ids`` and ``into`` of a merge, ``ids`` of a retirement.  time: when, UTC.
    """

    number: int
    kind: ChangeKind
    said: Mapping[str, Any]
    time: str
    sha: str
    folder: Path

    def line(self) -> str:
        """For people."""
        said = self.said
        if self.kind == "add":
            each = [f"{one['id']} ({one['text'] or 'no text'})" for one in said["labels"]]
            what = ", ".join(each[:3]) + (f" and {len(each) - 3:,} more" if len(each) > 3 else "")
        elif self.kind == "rename":
            what = f"{said['id']}: {said['text']}"
        elif self.kind == "merge":
            what = f"{_some(said['ids'])} into {said['into']}"
        else:
            what = _some(said["ids"])
        return f"{self.number:>4}  {self.time}  {self.kind:<7} {what}"

    @property
    def gone(self) -> dict[str, str]:
        """What became of the labels that it took away, by id, for people."""
        if self.kind == "merge":
            return dict.fromkeys(self.said["ids"], f"merged into {self.said['into']!r} (change {self.number})")
        return dict.fromkeys(self.said["ids"], f"retired (change {self.number})") if self.kind == "retire" else {}


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5:,} more" if len(ids) > 5 else "")


def changes_folder(bundle: Path) -> Path:
    """Where the changes of the bundle in this folder lie, whether there are any or not."""
    whole = bundle.resolve()
    return whole.with_name(f"{whole.name}.labels")


def trained_digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 that names what was trained: a calibration since changes neither labels nor rows."""
    files = {name: entry["sha256"] for name, entry in manifest["files"].items() if not name.startswith(CALIBRATION)}
    return digest_of(files)


# ---- reading ----


def read_changes(bundle: Path, manifest: Mapping[str, Any], *, verify: bool = True) -> list[LabelChange]:
    """All changes of the bundle in a folder, the first first; none where there is no folder of them."""
    folder, of = changes_folder(bundle), trained_digest(manifest)
    if not _has_changes(folder):
        return []
    if folder.is_symlink():
        raise BundleError(
            f"{folder}: a link beside a bundle", "changes of labels are plain files; copy the folder anew"
        )
    found: list[LabelChange] = []
    for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
        found.append(_read(path, of, found[-1] if found else None, verify))
    return found


def _has_changes(folder: Path) -> bool:
    """Whether any change lies there: else a folder of this name is of somebody else."""
    return folder.is_dir() and any(_NAME.fullmatch(path.name) for path in folder.iterdir())


def _read(path: Path, of: str, before: LabelChange | None, verify: bool) -> LabelChange:
    named, number = _NAME.fullmatch(path.name), (before.number if before else 0) + 1
    altered = "'longtail labels undo' takes changes back; remove what you put there yourself, or copy the folder anew"
    if named is None or path.is_symlink() or not path.is_dir() or named[2] not in get_args(ChangeKind):
        raise BundleError(f"{path}: not a change of labels", altered)
    if int(named[1]) != number:
        raise BundleError(f"{path}: change {number} is missing before it", altered)
    head = read_json(path / CHANGE)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise BundleError(
            f"{path / CHANGE}: not a change of format {FORMAT}", "upgrade longtail if a newer one made it"
        )
    said = {name: value for name, value in head.items() if name != "sha256"}
    if head.get("sha256") != said_digest(path / CHANGE, said) or not isinstance(head.get("files"), dict):
        raise BundleError(f"{path / CHANGE}: does not match its own checksum", altered)
    if head.get("of") != of:
        raise BundleError(
            f"{path}: a change of another model (SHA-256 {str(head.get('of'))[:8]}..., this one has {of[:8]}...)",
            f"the model was exchanged since; remove {path.parent} and make the change again",
        )
    follows = (before.sha if before else "", number, named[2])
    if tuple(head.get(name) for name in ("after", "number", "kind")) != follows:
        raise BundleError(f"{path}: does not follow the change before it", altered)
    if not _is_said(named[2], head.get("said")) or not isinstance(head.get("time"), str):
        raise BundleError(f"{path / CHANGE}: does not say what was changed, and when", altered)
    check_files(path, {**head["files"], CHANGE: entry_of(path / CHANGE)}, verify=verify)
    kind: Any = named[2]
    return LabelChange(number, kind, head["said"], head["time"], head["sha256"], path)


def _is_said(kind: str, said: Any) -> bool:
    """Whether this is what a change of its kind says (`LabelChange`)."""
    try:
        texts: list[Any] = {
            "add": lambda: [one[name] for one in said["labels"] for name in ("id", "text")],
            "rename": lambda: [said["id"], said["text"]],
            "merge": lambda: [*said["ids"], said["into"]],
            "retire": lambda: [*said["ids"]],
        }[kind]()
        lists = [said[name] for name in ("ids", "labels") if name in said]
    except (LookupError, TypeError):
        return False
    return all(isinstance(one, list) for one in lists) and all(isinstance(text, str) for text in texts)


# ---- what the labels are after them ----


class ChangedLabels:
    """The labels of a model while changes are applied: those of training, and those that were added behind them.

    uids, names, counts: of all of them, also those that are no longer shown.  groups: (labels,) for each the one that
    it became, itself mostly; -1: retired.  numbers: of those that are shown, by id.  gone: what became of others.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.plain = bundle
        self.uids, self.names = list(bundle.labels.uids), list(bundle.labels.names)
        self.counts = [int(count) for count in bundle.labels.counts]
        self.groups = list(range(len(self.uids)))
        self.numbers = dict(zip(self.uids, self.groups, strict=True))
        self.added: list[AddedLabels] = []
        self.gone: dict[str, str] = {}
        self.last = ""

    @classmethod
    def after(cls, bundle: Bundle, changes: Sequence[LabelChange]) -> ChangedLabels:
        labels = cls(bundle)
        for change in changes:
            try:
                labels.apply(change)
            except (*_UNFIT, ConfigError) as problem:
                raise BundleError(
                    f"{change.folder}: does not fit the labels before it ({problem})", "the folder was altered"
                ) from problem
        return labels

    def apply(self, change: LabelChange) -> None:
        said = change.said
        if change.kind == "add":
            part = load_part(change.folder / ADDED)
            if not isinstance(part, AddedLabels) or len(part) != len(said["labels"]):
                raise ValueError(f"{len(said['labels'])} labels with rows of others")
            self.add([one["id"] for one in said["labels"]], [one["text"] for one in said["labels"]], part)
        elif change.kind == "rename":
            self.rename(said["id"], said["text"])
        elif change.kind == "merge":
            self.merge(said["ids"], said["into"])
        else:
            self.retire(said["ids"])
        self.gone |= change.gone
        self.last = change.sha

    def number(self, uid: str) -> int:
        found = self.numbers.get(uid)
        if found is None:
            if uid in self.gone:
                raise ConfigError(
                    f"{uid!r} is not a label of this model any more: it was {self.gone[uid]}",
                    "'longtail labels log' lists all changes, 'longtail labels undo' takes the last one back",
                )
            raise ConfigError(f"{uid!r} is not a label of this model", nearest(str(uid), list(self.numbers)))
        return found

    def check_new(self, uids: Sequence[str]) -> None:
        seen: set[str] = set()
        for uid in uids:
            if not uid or uid != uid.strip() or "\n" in uid:
                raise ConfigError(f"the id {uid!r} of a new label", "give an id without spaces around it")
            if uid in self.numbers or uid in seen:
                raise ConfigError(
                    f"there is a label {uid!r} already", "choose another id; 'longtail labels rename' changes its text"
                )
            seen.add(uid)

    def add(self, uids: Sequence[str], texts: Sequence[str], part: AddedLabels) -> None:
        self.check_new(uids)
        for uid, text, count in zip(uids, texts, part.counts.tolist(), strict=True):
            self.numbers[uid] = len(self.uids)
            self.groups.append(len(self.uids))
            self.uids.append(uid)
            self.names.append(text or uid)
            self.counts.append(count)
        self.added.append(part)

    def rename(self, uid: str, text: str) -> None:
        if not text.strip():
            raise ConfigError(f"an empty text for the label {uid!r}", "give the new text")
        self.names[self.number(uid)] = text

    def retire(self, uids: Sequence[str]) -> None:
        gone = {self.number(uid) for uid in uids}
        if len(gone) == len(self.numbers):
            raise ConfigError("no label would be left", "retire fewer labels")
        self.groups = [-1 if group in gone else group for group in self.groups]
        for uid in set(uids):
            del self.numbers[uid]

    def merge(self, uids: Sequence[str], into: str) -> None:
        target, gone = self.number(into), {self.number(uid) for uid in uids}
        if target in gone or not gone:
            raise ConfigError(f"{into!r} is to be merged into itself", "name other labels than --into")
        self.groups = [target if group in gone else group for group in self.groups]
        self.counts[target] += sum(self.counts[number] for number in gone)
        for uid in set(uids):
            del self.numbers[uid]

    def ranker(self) -> Ranker:
        """Over all labels, whether they are shown or not."""
        if not self.added:
            return self.plain.ranker
        try:
            grown: Ranker = self.plain.ranker.with_added(AddedLabels.joined(self.added))
        except (*_UNFIT, ConfigError) as problem:
            raise BundleError(
                f"{changes_folder(self.plain.folder)}: rows of other labels than this model can have ({problem})",
                "the folder was altered",
            ) from problem
        return grown

    def bundle(self) -> Bundle:
        """The model with the labels as they are now."""
        ranker, shown = renumbered(self.ranker(), np.array(self.groups, dtype=np.int64))
        some = shown.tolist()
        try:
            table = LabelTable(
                StringTable.of([self.uids[number] for number in some]),
                StringTable.of([self.names[number] for number in some]),
                np.array([self.counts[number] for number in some], dtype=np.int64),
            )
        except (ValueError, OverflowError) as problem:
            raise BundleError(f"{changes_folder(self.plain.folder)}: {problem}", "the folder was altered") from problem
        about = {"trained": len(self.plain.labels), "last": self.last}
        return replace(
            self.plain,
            labels=table,
            ranker=ranker,
            manifest={**self.plain.manifest, "n_labels": len(table), "label_changes": about},
            shown=shown,
            changed=self.last,
        )


def with_changes(bundle: Bundle, *, verify: bool = True) -> Bundle:
    """The bundle with the labels as the changes beside it make them; itself where there are none."""
    changes = read_changes(bundle.folder, bundle.manifest, verify=verify)
    return ChangedLabels.after(bundle, changes).bundle() if changes else bundle


def digest_with_changes(bundle: Path, manifest: Mapping[str, Any]) -> str:
    """What `Bundle.digest` will be of the bundle in a folder; every file of its changes is checked."""
    changes, whole = read_changes(bundle, manifest), str(manifest["manifest_sha256"])
    return digest_of([whole, changes[-1].sha]) if changes else whole


# ---- writing ----


@contextlib.contextmanager
def changing(bundle: Bundle) -> Iterator[Path]:
    """The folder of changes, for one process at a time; what a killed one had left half-written is removed."""
    folder = changes_folder(bundle.folder)
    with no_room_is_an_error(folder):
        if folder.is_dir() and not _has_changes(folder):
            foreign = next((path for path in sorted(folder.iterdir()) if not path.name.startswith(".")), None)
            if foreign is not None:
                raise ConfigError(f"{foreign}: not a change of labels", f"move {folder} away, or the model")
        make_folder(folder)
    lock = held_lock(folder / ".lock", RunTaken(f"{folder}: another process is changing labels here", "wait for it"))
    try:
        remove_dead(folder)
        yield folder
    finally:
        os.close(lock)


def write_change(
    bundle: Bundle, folder: Path, before: Sequence[LabelChange], kind: ChangeKind, said: Any, part: Part | None = None
) -> LabelChange:
    """Write one change behind those of `before`, aside, and put it in place by one rename. Only within `changing`."""
    number, time = len(before) + 1, datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    path = folder / f"{number:04}-{kind}"
    with written_aside(path) as aside:
        aside.mkdir()
        if part is not None:
            save_part(part, aside / ADDED)
        head = {
            "format": FORMAT,
            "longtail": __version__,
            "number": number,
            "kind": kind,
            "of": trained_digest(bundle.manifest),
            "after": before[-1].sha if before else "",
            "time": time,
            "said": said,
            "files": contents(aside),
        }
        write_json(aside / CHANGE, {**head, "sha256": digest_of(head)})
    return LabelChange(number, kind, said, time, digest_of(head), path)


def take_back(change: LabelChange) -> None:
    """Remove the last change: it is gone by one rename. Only within `changing`."""
    remove_at_once(change.folder)
