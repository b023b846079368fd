"""The manifest of a bundle, and how its parts are opened: only after every file was checked against it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from longtail import __version__
from longtail.errors import BundleError, UnknownKind
from longtail.persistence import load_part, read_json

BUNDLE_FORMAT = 2
MANIFEST = "manifest.json"


def find_bundle(path: Path) -> Path:
    """The bundle at `path`, which may be a bundle or a run that holds one."""
    if not path.exists():
        raise BundleError(
            f"{path}: no such run or bundle", "give the --out folder of 'longtail train', or a bundle folder"
        )
    for candidate in (path, path / "bundle"):
        if (candidate / MANIFEST).is_file():
            return candidate
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
        return folder, manifest, tuple(load_part(folder / name) for name in names)
    except UnknownKind as problem:
        recipe = manifest.get("recipe")
        raise BundleError(
            f"{folder}: trained by the recipe '{recipe}', whose part '{problem.kind}' is not known here",
            f"install the package that brings the recipe '{recipe}', or upgrade longtail if a newer version made it",
        ) from problem


def check_manifest(folder: Path, manifest: Any) -> None:
    """Of a format that this longtail reads, and as it was written."""
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
    if manifest.get("manifest_sha256") != digest_of(head) or not isinstance(manifest.get("files"), dict):
        raise BundleError(
            f"{path}: the manifest does not match its own checksum",
            "the file was altered or is incomplete; copy the bundle anew",
        )


def check_files(folder: Path, files: Mapping[str, Any], *, verify: bool) -> None:
    """Nothing missing, truncated, altered or foreign; no file outside the folder, no links."""
    present: set[str] = set()
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise BundleError(f"{path}: a link inside a bundle", "bundles hold plain files only; copy the bundle anew")
        if path.is_file():
            present.add(path.relative_to(folder).as_posix())
    for name, entry in files.items():
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts:
            raise BundleError(
                f"{folder / MANIFEST}: lists the file {name!r} outside the bundle",
                "the bundle was altered; do not use it",
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
    foreign = sorted(present - files.keys() - {MANIFEST})
    if foreign:
        raise BundleError(
            f"{folder / foreign[0]}: a file that the manifest does not know",
            "remove it if you put it there; otherwise copy the bundle anew",
        )


def sha256(path: Path) -> str:
    """Of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """SHA-256 of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
