"""Models on the Hugging Face hub: fetched by their address, pushed with a card that says what they are.

A repository there looks like a run: ``bundle/`` is the model with its checksums, ``README.md`` the card. What is
fetched lies in a folder of longtail's own as plain files, and is opened through the same checks as any bundle.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.bundle import MANIFEST, Bundle
from longtail.errors import BundleError, ConfigError, MissingExtra, RunError
from longtail.persistence import no_room_is_an_error, read_json
from longtail.report import first_line

SCHEME = "hf://"
_NAME = r"[\w.-]{1,96}"
_ADDRESS = re.compile(rf"hf://({_NAME}/{_NAME})(?:@([\w./-]{{1,96}}))?")
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100")


def parsed(address: str) -> tuple[str, str | None]:
    """Repository and revision (None: the newest) of ``hf://org/name[@revision]``."""
    found = _ADDRESS.fullmatch(address)
    if found is None or ".." in address:
        raise ConfigError(
            f"'{address}' is no address of a model", "write hf://organisation/name or hf://.../name@revision"
        )
    return found[1], found[2]


def fetch(address: str) -> Path:
    """The folder that a model of the hub was fetched into; what is there already is not fetched again."""
    repository, revision = parsed(address)
    hub = _library("opening a model of the hub")
    folder = cache_folder() / f"{repository.replace('/', '--')}@{(revision or 'main').replace('/', '--')}"
    wanted = ["bundle/*", "README.md"]
    try:
        with no_room_is_an_error(folder):
            hub.snapshot_download(repository, revision=revision, local_dir=folder, allow_patterns=wanted)
    except (RunError, MemoryError):
        raise
    except Exception as problem:  # of the network, the hub or its library: many classes, all of them reasons to stop
        raise BundleError(
            f"{address}: cannot be fetched ({_said(problem)})",
            "check the address, the network, and 'hf auth login' for private models",
        ) from problem
    _remove_old(folder / "bundle")
    return folder


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {first_line(problem)[:200]}"


def _remove_old(bundle: Path) -> None:
    """Remove files of the version that was fetched before: the library leaves those that the new one does not have."""
    try:
        listed = {MANIFEST, *read_json(bundle / MANIFEST)["files"]}
    except (BundleError, KeyError, TypeError):
        return  # opening it says what is wrong
    for path in list(bundle.rglob("*")):
        if path.is_file() and path.relative_to(bundle).as_posix() not in listed:
            path.unlink()


def cache_folder() -> Path:
    """Where fetched models lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail" / "hub"


def push(bundle: Bundle, address: str, *, private: bool = True) -> str:
    """Upload a bundle with its card; gives its web address. Who may do so: ``hf auth login``."""
    repository, revision = parsed(address)
    hub = _library("pushing a model to the hub")
    with tempfile.TemporaryDirectory(prefix="longtail-card-") as folder:
        readme = Path(folder) / "README.md"
        readme.write_text(card(bundle, address), encoding="utf-8")
        try:
            api = hub.HfApi(library_name="longtail")
            made = api.create_repo(repository, private=private, exist_ok=True)
            # Files of a model that was pushed before are deleted: a bundle with files that it does not list is refused.
            api.upload_folder(
                repo_id=repository,
                folder_path=bundle.folder,
                path_in_repo="bundle",
                revision=revision,
                delete_patterns="*",
            )
            api.upload_file(repo_id=repository, path_or_fileobj=readme, path_in_repo="README.md", revision=revision)
        except Exception as problem:  # as above
            raise BundleError(
                f"{address}: cannot be pushed ({_said(problem)})",
                "log in with 'hf auth login', and check that you may write there",
            ) from problem
    return str(made)


def _library(purpose: str) -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise MissingExtra("huggingface_hub", "hub", purpose) from None
    return huggingface_hub


# ---- the card ----


def card(bundle: Bundle, address: str = "", measured: Mapping[str, Any] | None = None) -> str:
    """A model card in Markdown: what the model is, on what it was trained, how good it is, and how to ask it.

    measured: numbers of other documents than those that training held out, e.g. of a report: as in
    `longtail.evaluation.held_out_metrics`, with ``data`` (its name) and ``intervals`` (metric -> low and high).
    """
    manifest = bundle.manifest
    data = manifest.get("data") or {}
    name = address.removeprefix(SCHEME) or f"{manifest.get('recipe')} on {data.get('name')}"
    rows = [
        ("recipe", manifest.get("recipe")),
        ("labels", f"{len(bundle.labels):,}"),
        ("training data", f"{data.get('name')} (SHA-256 {str(data.get('digest'))[:16]}...)"),
        ("seed", manifest.get("seed")),
        ("longtail", manifest.get("longtail")),
        *([("packed", manifest["packed"].get("dtype"))] if "packed" in manifest else []),
        ("bytes", f"{sum(file['bytes'] for file in manifest['files'].values()):,}"),
    ]
    try:
        how_good = _measured(measured or manifest.get("metrics") or {})
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise BundleError(
            f"{bundle.folder / MANIFEST}: 'metrics' are not what is measured of a model ({problem!r})",
            "the file was altered; do not use the bundle",
        ) from problem
    return "\n".join(
        [
            "---\nlibrary_name: longtail\npipeline_tag: text-classification\ntags:\n- extreme-classification\n"
            "- multi-label\n---",
            f"# {name}\n",
            "Tags a short text with the most relevant of its labels. Made by longtail.\n",
            *_table(("", ""), rows),
            *how_good,
            "\n## Ask it\n",
            f'```python\nfrom longtail import Predictor\n\nmodel = Predictor.open("{address or "RUN"}")\n'
            'model.predict(["a text"], k=5)\n```\n',
            "## Limits\n",
            f"- It knows the {len(bundle.labels):,} labels of its training and no others.",
            "- Scores are probabilities (`longtail calibrate`), as far as the calibration error above says so."
            if "calibration" in manifest
            else "- Scores are the model's own and rank labels; they are no probabilities.",
            f"- {_rare(bundle)}\n",
            f"## Settings\n\n```toml\n{bundle.config().strip()}\n```",
            "",
        ]
    )


def _table(head: tuple[str, str], rows: list[tuple[str, Any]]) -> list[str]:
    return [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def _measured(metrics: Mapping[str, Any]) -> list[str]:
    """Numbers that were measured when the model was made, and on what."""
    if not metrics:
        return ["\nNothing was measured when it was made (`longtail train --holdout 0.1` would have)."]
    p, scores = metrics["propensity"], metrics["scores"]
    where = (
        f"test documents of {metrics['data']}" if "data" in metrics else "documents that were kept apart from training"
    )
    about = f"On {metrics['documents']:,} {where}, in percent"
    psp = f"; PSP with A={p['A']}, B={p['B']}"
    ranges = metrics.get("intervals") or {}
    shown = [
        (name, f"{scores[name]:.2f}" + (f" ({ranges[name][0]:.2f} to {ranges[name][1]:.2f})" if name in ranges else ""))
        for name in (*SHOWN, "ECE@5")
        if name in scores
    ]
    psp += "; in brackets the 95% interval" if ranges else ""
    return ["\n## How good it is\n", f"{about}{psp}. Single model.\n", *_table(("metric", "value"), shown)]


def _rare(bundle: Bundle) -> str:
    counts = bundle.labels.counts
    few = int((counts < 5).sum())
    return f"{few:,} of its labels ({few / max(len(counts), 1):.0%}) had fewer than five documents in training."
