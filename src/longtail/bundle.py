"""The bundle: a trained model as a folder that can be copied, checked and opened anywhere.

    manifest.json    format version, recipe, data, sizes, and size and SHA-256 of every file
    config.toml      every setting of the training
    labels/          ids, names and training frequencies of the labels
    featurizer/      vocabulary and statistics: the same text gives the same numbers
    ranker/          the model
    holdout/         ids of the documents that were held out of training, where some were
    company/         for people who look at labels: what they are seen with, and examples of training documents; bundles
                     of before have none
    calibration-*/   what makes probabilities of scores, where the model was calibrated; the manifest names the folder

Equal trainings give equal bytes: no times, paths or machine names inside. Parts are opened only after every file was
checked against the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import NoneType
from typing import Annotated, Any

import numpy as np

from longtail import __version__
from longtail.data.columns import Columns
from longtail.data.dataset import Items
from longtail.declared import Shaped, Sized
from longtail.errors import BundleError, UnknownKind
from longtail.features.base import Featurizer
from longtail.persistence import (
    DataPart,
    Part,
    StringTable,
    load_part,
    put_json,
    read_json,
    save_part,
    saved_again,
    written_aside,
)
from longtail.report import named
from longtail.types import I64, Ranker
from longtail.writing import SEAL, is_litter

HOLDOUT, COMPANY, CALIBRATION = "holdout", "company", "calibration"
BUNDLE_FORMAT = 2
MANIFEST = SEAL
SHARD = "shard-"  # how the folders of the shards of a model begin


def shards_in(path: Path) -> list[Path]:
    """The folders of the shards of a model (`longtail.splitting`) that lie in `path`, in their order."""
    if (path / MANIFEST).exists():
        return []
    return sorted(folder for folder in path.glob(f"{SHARD}*") if (folder / MANIFEST).is_file())


def find_bundle(path: Path) -> Path:
    """The bundle at `path`, which may be a bundle or a run that holds one."""
    if not path.exists():
        raise BundleError(
            f"{path}: no such run or bundle", "give the --out folder of 'longtail train', or a bundle folder"
        )
    for candidate in (path, path / "bundle"):
        if (candidate / MANIFEST).is_file():
            return candidate
    if shards_in(path):
        raise BundleError(
            f"{path}: a folder of shards, not a bundle",
            "predict, evaluate and serve take it as it is; else give one shard",
        )
    if (path / "run.json").exists():
        raise BundleError(
            f"{path}: this run is not finished, it has no bundle yet",
            "give its 'longtail train' command again to finish it",
        )
    raise BundleError(
        f"{path}: neither a run nor a bundle (no {MANIFEST})",
        "give the --out folder of 'longtail train', or a bundle folder",
    )


def open_parts(
    path: Path, names: Sequence[str], *, verify: bool = True
) -> tuple[Path, Mapping[str, Any], tuple[Any, ...]]:
    """Parts of the bundle at `path`, which may be a run that holds it, with its folder and its manifest.

    Every file is checked against the manifest; ``verify=False`` checks sizes but not checksums.
    """
    folder = find_bundle(path)
    manifest = read_json(folder / MANIFEST)
    check_manifest(folder, manifest)
    check_files(folder, manifest["files"], verify=verify)
    try:
        return folder, manifest, tuple(_listed_part(folder, manifest, name) for name in names)
    except UnknownKind as problem:
        recipe = manifest.get("recipe")
        raise BundleError(
            f"{folder}: trained by the recipe '{recipe}', whose part '{problem.kind}' is not known here",
            f"install the package that brings the recipe '{recipe}', or upgrade longtail if a newer version made it",
        ) from problem


def _listed_part(folder: Path, manifest: Mapping[str, Any], name: str) -> Any:
    """A part of the bundle, of those files alone that its manifest lists: they were checked."""
    return load_part(folder / name, listed={folder / listed for listed in manifest["files"]})


# What a manifest says, and of which type: whoever asks it relies on that. Of those that a bundle may lack, too.
_SAID: Mapping[str, type] = {
    "n_labels": int,
    "recipe": str,
    "longtail": str,
    "seed": int,
    "data": dict,
    "metrics": dict,
    "columns": dict,
    "vocabulary": str,
    "calibration": dict,
    "packed": dict,
    "shard": dict,
    "label_changes": dict,
}
# The same of what is looked up inside of these.
_SAID_WITHIN: Mapping[tuple[str, str], tuple[type, ...]] = {
    ("data", "digest"): (str,),
    ("metrics", "threshold"): (float, int, NoneType),
    ("calibration", "threshold"): (float, int, NoneType),
}


def check_manifest(folder: Path, manifest: Any) -> None:
    """Of a format that this longtail reads, as it was written, and with what it must say."""
    path = folder / MANIFEST
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise BundleError(f"{path}: not a manifest of longtail", "the file was altered or written by another program")
    if manifest["format"] != BUNDLE_FORMAT:
        newer = isinstance(manifest["format"], int) and manifest["format"] > BUNDLE_FORMAT
        raise BundleError(
            f"{path}: bundle format {manifest['format']}{', of a newer longtail' if newer else ''}; this longtail "
            f"({__version__}) reads format {BUNDLE_FORMAT}",
            "upgrade longtail" if newer else "use the version of longtail that made it, or train again",
        )
    head = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
    if manifest.get("manifest_sha256") != said_digest(path, head) or not isinstance(manifest.get("files"), dict):
        raise BundleError(
            f"{path}: the manifest does not match its own checksum",
            "the file was altered or is incomplete; copy the bundle anew",
        )
    wrong = next(_never_said(manifest), None)
    if wrong is not None:
        raise BundleError(
            f"{path}: '{wrong[0]}' is {named(str(wrong[1]))}, which no bundle says",
            "the file was altered; do not use the bundle",
        )


def _never_said(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values that are wrong; each is looked at only where those before it are right."""
    for name, kind in _SAID.items():
        if name in manifest and type(manifest[name]) is not kind:
            yield name, manifest[name]
    if manifest.get("n_labels", 0) < 1:
        yield "n_labels", manifest.get("n_labels")
    for (name, inner), kinds in _SAID_WITHIN.items():
        if inner in manifest.get(name, {}) and not isinstance(manifest[name][inner], kinds):
            yield f"{name}.{inner}", manifest[name][inner]
    if "columns" in manifest and not _are_columns(manifest["columns"]):
        yield "columns", manifest["columns"]


def _are_columns(saved: Mapping[str, Any]) -> bool:
    try:
        found = Columns.loaded(saved)
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return False
    names = (found.labels, found.id, found.separator)
    return (
        isinstance(saved["text"], list)
        and len(found.text) == len(found.weights)
        and all(isinstance(name, str) for name in found.text)
        and all(name is None or isinstance(name, str) for name in names)
    )


def check_files(folder: Path, files: Mapping[str, Any], *, verify: bool) -> None:
    """Nothing missing, truncated, altered or foreign; no file outside the folder, no links. What systems leave in any
    folder (`is_litter`) is passed over.
    """
    present = {path.relative_to(folder).as_posix() for path in _plain_files(folder) if not is_litter(path.name)}
    for name, entry in files.items():
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts:
            raise BundleError(
                f"{folder / MANIFEST}: lists the file {name!r} outside the bundle",
                "the bundle was altered; do not use it",
            )
        if not isinstance(entry, Mapping) or not {"bytes", "sha256"} <= entry.keys():
            raise BundleError(
                f"{folder / MANIFEST}: says neither size nor checksum of {name!r}",
                "the bundle was altered; copy it anew",
            )
        if name not in present:
            raise BundleError(f"{folder / name}: the file is missing", "the bundle is incomplete; copy it anew")
        size = (folder / name).stat().st_size
        if size != entry["bytes"]:
            raise BundleError(
                f"{folder / name}: {size} bytes, the manifest says {entry['bytes']}",
                "the file was truncated or altered; copy the bundle anew",
            )
        if verify and sha256(folder / name) != entry["sha256"]:
            raise BundleError(
                f"{folder / name}: the content does not match its SHA-256 in the manifest",
                "the file was altered; copy the bundle anew",
            )
    foreign = sorted(name for name in present - files.keys() - {MANIFEST} if not is_left_behind(name))
    if foreign:
        raise BundleError(
            f"{folder / foreign[0]}: a file that the manifest does not know",
            "remove it if you put it there; otherwise copy the bundle anew",
        )


def _plain_files(folder: Path) -> Iterator[Path]:
    """All files of a folder and of those in it; an error where there is anything but plain files, or where it cannot be
    seen what there is.
    """
    folders = [folder]
    while folders:
        try:
            entries = [
                (Path(entry.path), entry.stat(follow_symlinks=False).st_mode) for entry in os.scandir(folders[-1])
            ]
        except OSError as problem:
            raise BundleError(
                f"{folders[-1]}: cannot be looked through ({problem.strerror})",
                "bundles hold folders and files that may be read; copy the bundle anew",
            ) from problem
        folders.pop()
        for path, mode in entries:
            if stat.S_ISDIR(mode):
                folders.append(path)
            elif stat.S_ISREG(mode):
                yield path
            else:
                what = "link" if stat.S_ISLNK(mode) else "pipe or a device"
                raise BundleError(
                    f"{path}: a {what} inside a bundle", "bundles hold plain files only; copy the bundle anew"
                )


_CALIBRATION_FILE = re.compile(rf"{CALIBRATION}-[0-9a-f]{{12}}/")


def is_left_behind(name: str) -> bool:
    """Whether a file of a bundle that its manifest does not list is of a calibration: whoever put it there, or took it
    out, was killed. Nothing reads it.
    """
    return _CALIBRATION_FILE.match(name) is not None


def sha256(path: Path) -> str:
    """Of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_digest(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder and their names; of a run or a bundle that of its manifest."""
    if path.is_file():
        return sha256(path)
    manifest = next((place / MANIFEST for place in (path, path / "bundle") if (place / MANIFEST).is_file()), None)
    if manifest is not None:
        return sha256(manifest)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not is_litter(file.name))
    return digest_of({file.relative_to(path).as_posix(): sha256(file) for file in files})


def entry_of(file: Path) -> dict[str, Any]:
    """Size and SHA-256, as lists of files have them."""
    return {"bytes": file.stat().st_size, "sha256": sha256(file)}


def contents(folder: Path, below: Path | None = None) -> dict[str, Any]:
    """`entry_of` every file of a folder, by its path in the folder, or in the one that is named with `below`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(below or folder).as_posix(): entry_of(path) for path in files}


def digest_of(value: Any) -> str:
    """SHA-256 of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def said_digest(path: Path, said: Any) -> str:
    """`digest_of` what the file at `path` says, which may come from a stranger."""
    try:
        return digest_of(said)
    except (UnicodeEncodeError, RecursionError) as problem:
        raise BundleError(
            f"{path}: holds what no text is made of ({problem})", "the file was altered; copy the bundle anew"
        ) from problem


# That one label can have; who says more has forged it.
_MOST_DOCUMENTS = 1 << 40
# Half of a surrogate pair, as a `StringTable` holds it: JSON can name such, and UTF-8 has no bytes for it.
_HALF = re.compile(rb"\xed[\xa0-\xbf]")


@dataclass(frozen=True)
class LabelTable(DataPart):
    """Ids, names and training frequencies of the labels, in the order of their numbers."""

    KIND = "label-table"

    uids: Annotated[StringTable, Sized(len="labels")]
    names: Annotated[StringTable, Sized(len="labels")]
    counts: Annotated[I64, Shaped("labels", plain=True)]

    def __post_init__(self) -> None:
        for table in (self.uids, self.names):
            if _HALF.search(table.blob.data):
                raise ValueError("a label has half a character, which no file can be written with")
        if len(self.counts) and not 0 <= self.counts.min() <= self.counts.max() <= _MOST_DOCUMENTS:
            raise ValueError(f"labels of {self.counts.min()} to {self.counts.max()} documents")

    @classmethod
    def of(cls, labels: Items, counts: I64) -> LabelTable:
        return cls(StringTable.of(labels.uids), StringTable.of(labels.names()), counts)

    @classmethod
    def interleaved(cls, parts: Sequence[LabelTable]) -> LabelTable:
        """Label n is label n // parts of part n % parts."""
        sizes = [len(part) for part in parts]
        numbers = [np.arange(size) * len(parts) + number for number, size in enumerate(sizes)]
        order = np.argsort(np.concatenate(numbers))
        uids, names = ([text for part in parts for text in getattr(part, name)] for name in ("uids", "names"))
        return cls(
            StringTable.of([uids[n] for n in order]),
            StringTable.of([names[n] for n in order]),
            np.concatenate([part.counts for part in parts])[order],
        )

    def __len__(self) -> int:
        return len(self.uids)


@dataclass(frozen=True)
class Bundle:
    """An opened bundle. Arrays are memory-mapped.

    own_labels: whether labels are those of training.
    shown, changed: where labels were changed since (`longtail.label_changes`): for each label its number among those of
        training and those added behind them, and the digest of the last change.
    """

    folder: Path
    manifest: Mapping[str, Any]
    labels: LabelTable
    featurizer: Featurizer
    ranker: Ranker
    own_labels: bool = True
    shown: I64 | None = None
    changed: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 that names the model as it is, with the changes of its labels."""
        whole = str(self.manifest["manifest_sha256"])
        return digest_of([whole, self.changed]) if self.changed else whole

    def __repr__(self) -> str:
        folder = str(self.folder) if len(str(self.folder)) <= 80 else f"...{str(self.folder)[-77:]}"
        return f"Bundle({named(str(self.manifest.get('recipe')))}, {len(self.labels):,} labels, {folder})"

    def config(self) -> str:
        """Every setting of the training, as TOML."""
        file = self.folder / "config.toml"
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as problem:
            raise BundleError(f"{file}: is no text ({problem})", "the bundle was altered; copy it anew") from problem

    def settings(self) -> dict[str, Any]:
        """The same as values."""
        try:
            return tomllib.loads(self.config())
        except (ValueError, RecursionError) as problem:
            raise BundleError(
                f"{self.folder / 'config.toml'}: is no TOML ({problem})", "the bundle was altered; copy it anew"
            ) from problem

    def was_trained_on(self, digest: str) -> bool:
        """Whether the training documents are those of the data set with this `training_digest`."""
        return bool(self.manifest.get("data", {}).get("digest") == digest)

    def held_out(self) -> StringTable | None:
        """Ids of the documents that were held out of training; None where none were."""
        found = self._part(HOLDOUT)
        if not isinstance(found, StringTable | None):
            raise BundleError(f"{self.folder / HOLDOUT}: no ids of documents", "the bundle was altered; copy it anew")
        return found

    def calibration(self) -> Any:
        """The `longtail.models.calibration.Calibration` that makes probabilities of scores; None where the model is not
        calibrated, or other labels took the place of those that it was calibrated with.
        """
        about = self.manifest.get(CALIBRATION)
        if about is None or not self.own_labels:
            return None
        name = str(about.get("part"))
        found = self._part(name) if name.startswith(f"{CALIBRATION}-") else None
        if not hasattr(found, "calibrated"):
            raise BundleError(f"{self.folder}: '{name}' is no calibration", "the bundle was altered; copy it anew")
        return found

    def company(self) -> Any:
        """The `longtail.graph.company.Company` of the labels; None where the bundle has none, or other labels took the
        place of those of training.
        """
        found = self._part(COMPANY) if self.own_labels else None
        if found is not None and self.shown is not None and hasattr(found, "of_labels"):
            found = found.of_labels(self.shown)
        if found is not None and (not hasattr(found, "neighbours_of") or len(found) != len(self.labels)):
            raise BundleError(
                f"{self.folder / COMPANY}: not the company of these labels", "the bundle was altered; copy it anew"
            )
        return found

    def _part(self, name: str) -> Any:
        """A part that a bundle may have; None where it has none."""
        there = f"{name}/part.json" in self.manifest["files"]
        return _listed_part(self.folder, self.manifest, name) if there else None


def write_bundle(
    folder: Path,
    *,
    about: Mapping[str, Any],
    config: str,
    labels: LabelTable,
    featurizer: Part,
    ranker: Part | Path,
    held_out: StringTable | None = None,
    company: Part | None = None,
    calibration: Part | None = None,
) -> None:
    """Write a bundle, which must not exist yet, aside and put it in place in one step.

    about: recipe, seed, data, and metrics on held-out documents.  ranker: a path where it is saved already, e.g. as
    the last stage of a run.  held_out: ids of these documents.  company: a `longtail.graph.company.Company`.
    calibration: what `about` tells of under this name.
    """
    with written_aside(folder) as aside:
        aside.mkdir()
        (aside / "config.toml").write_text(config, encoding="utf-8")
        save_part(labels, aside / "labels")
        save_part(featurizer, aside / "featurizer")
        if isinstance(ranker, Path):
            saved_again(ranker, aside / "ranker")
        else:
            save_part(ranker, aside / "ranker")
        if held_out is not None:
            save_part(held_out, aside / HOLDOUT)
        if company is not None:
            save_part(company, aside / COMPANY)
        if calibration is not None:
            save_part(calibration, aside / str(about[CALIBRATION]["part"]))
        head = {"format": BUNDLE_FORMAT, "longtail": __version__, "n_labels": len(labels), **about}
        _write_manifest(aside / MANIFEST, head, contents(aside))


def _write_manifest(place: Path, head: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    whole = {**head, "files": dict(files)}
    put_json(place, {**whole, "manifest_sha256": digest_of(whole)})


def set_calibration(path: Path, calibration: Part | None, about: Mapping[str, Any] | None = None) -> None:
    """Put a calibration into the bundle at `path` (a bundle, or a run that holds one), in the place of one that is
    there; None takes it out.  about: what the manifest tells of it.

    The new manifest takes the place of the old one in a single step: before it the model is as it was, after it the
    part lies in its folder, whose name follows from its content. A part that was put there when the process was killed
    is passed over. All other files are as they were.
    """
    folder = find_bundle(path)
    manifest = read_json(folder / MANIFEST)
    check_manifest(folder, manifest)
    before = str(manifest.get(CALIBRATION, {}).get("part", ""))
    head = {name: value for name, value in manifest.items() if name not in ("files", "manifest_sha256", CALIBRATION)}
    files = {name: entry for name, entry in manifest["files"].items() if PurePosixPath(name).parts[0] != before}
    name = ""
    if calibration is not None:
        name = f"{CALIBRATION}-{_digest_of_part(calibration)[:12]}"
        if not (folder / name).exists():
            with written_aside(folder / name, sealed=folder) as aside:
                save_part(calibration, aside)
        head[CALIBRATION] = {"part": name, **(about or {})}
        files |= contents(folder / name, folder)
    with written_aside(folder / MANIFEST, sealed=folder) as aside:
        _write_manifest(aside, head, files)
    if before and before != name:
        shutil.rmtree(folder / before, ignore_errors=True)


def _digest_of_part(part: Part) -> str:
    """Of the files that it is saved as: equal parts are saved as equal bytes."""
    with tempfile.TemporaryDirectory(prefix="longtail-") as folder:
        save_part(part, Path(folder) / "part")
        return digest_of(contents(Path(folder)))


def open_bundle(path: Path, *, verify: bool = True) -> Bundle:
    """Open a run's bundle, or a folder of shards. Every file is checked against the manifest; ``verify=False`` checks
    sizes but not checksums.
    """
    shards = shards_in(path)
    if shards:
        return _joined(path, [open_bundle(shard, verify=verify) for shard in shards])
    folder, manifest, parts = open_parts(path, ("labels", "featurizer", "ranker"), verify=verify)
    return fitting(folder, manifest, *parts)


def fitting(folder: Path, manifest: Mapping[str, Any], labels: Any, featurizer: Any, ranker: Any) -> Bundle:
    """Parts as a bundle; an error where they are not of the right kinds, or speak of other labels."""
    if (
        not isinstance(labels, LabelTable)
        or not isinstance(ranker, Ranker)
        or not hasattr(featurizer, "batch_of_texts")
        or len(labels) != manifest.get("n_labels")
        or getattr(ranker, "n_labels", len(labels)) not in (len(labels), None)
    ):
        raise BundleError(
            f"{folder}: the parts of the bundle are not labels, a featurizer and a ranker that fit together",
            "the bundle was altered; train again or copy it anew",
        )
    return Bundle(folder, manifest, labels, featurizer, ranker)


def _joined(path: Path, shards: Sequence[Bundle]) -> Bundle:
    """The model whose shards these are."""
    said = [shard.manifest.get("shard", {}) for shard in shards]
    count = len(shards)
    wanted = [{**said[0], "number": number, "of": count} for number in range(1, count + 1)]
    if said != wanted:
        problem = next(
            f"{shard.folder.name} says {found}"
            for shard, found, right in zip(shards, said, wanted, strict=True)
            if found != right
        )
        raise BundleError(
            f"{path}: not all shards of one model ({count} folders; {problem})",
            "put all shards that one 'longtail split' wrote into one folder, and nothing else",
        )
    sizes = [len(shard.labels) for shard in shards]
    if sizes != [len(range(number, sum(sizes), count)) for number in range(count)]:
        raise BundleError(f"{path}: shards of {sizes} labels do not fit together", "split the model again")
    labels, first = LabelTable.interleaved([shard.labels for shard in shards]), shards[0]
    manifest = joined_manifest([shard.manifest for shard in shards])
    try:
        ranker = first.ranker.joined([shard.ranker for shard in shards])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        raise BundleError(
            f"{path}: models of shards that do not fit together ({problem})", "split the model again"
        ) from problem
    return Bundle(first.folder, manifest, labels, first.featurizer, ranker)


def joined_manifest(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the model whose shards have these; its digest is of all of them."""
    about = {name: value for name, value in manifests[0].items() if name != "shard"}
    digest = digest_of([manifest["manifest_sha256"] for manifest in manifests])
    return {**about, "n_labels": sum(manifest["n_labels"] for manifest in manifests), "manifest_sha256": digest}


def bytes_by_part(path: Path) -> dict[str, int]:
    """Exact bytes of the files of the bundle at `path`: by part, and for the model by the parts inside."""
    manifest, sizes = find_bundle(path) / MANIFEST, Counter[str]()
    for name, entry in read_json(manifest)["files"].items():
        place = PurePosixPath(name).parts[:-1]
        sizes["/".join(place[:2]) if place[:1] == ("ranker",) else place[0] if place else name] += entry["bytes"]
    return {**sizes, MANIFEST: manifest.stat().st_size}


def label_counts(targets: Any) -> I64:
    """(L,) documents per label of a targets matrix."""
    return np.bincount(targets.indices, minlength=targets.shape[1]).astype(np.int64)
