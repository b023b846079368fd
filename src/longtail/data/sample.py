"""The embedded sample: a reverse dictionary out of WordNet (`sample/README.txt`), built by
`scripts/build_sample.py`.
"""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

from longtail.errors import DataError, RunError
from longtail.persistence import no_room_is_an_error, written_aside


def sample_folder() -> Path:
    """Where the sample lies inside the installed package: a data set in the raw LF layout, read-only by custom."""
    folder = Path(str(resources.files("longtail.data"))) / "sample"
    if not (folder / "trn.json.gz").is_file():
        raise DataError(
            "the embedded sample is missing",
            "install longtail again, unzipped; in a checkout: scripts/build_sample.py makes it",
            file=folder,
        )
    return folder


def write_sample(folder: Path) -> None:
    """Copy the sample to `folder`, which must not exist or be empty. It appears complete or not at all."""
    target = folder.resolve()
    _refuse_unless_free(folder, target)
    source = sample_folder()
    with no_room_is_an_error(folder), written_aside(target) as aside:
        # Not copytree: it hides the reason of a failure (a full disk), and copies the rights of a read-only
        # installation.
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            copy = aside / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _refuse_unless_free(folder: Path, target: Path) -> None:
    new = "name a folder that does not exist yet"
    with no_room_is_an_error(folder):
        # The finished folder takes the place of an empty one, which a shell that stands in it would not notice.
        if target == Path.cwd():
            raise RunError(f"{folder}: is the current folder", f"{new}, for example {folder / 'sample'}")
        if target.is_dir() and any(target.iterdir()):
            raise RunError(f"{folder}: the folder exists and is not empty", new)
        obstacle = next((path for path in (target, *target.parents) if path.exists() and not path.is_dir()), None)
        if obstacle is not None:
            raise RunError(f"{folder}: {obstacle} is a file, a folder was expected", new)
