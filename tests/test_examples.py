"""The examples run, and so does what the documents show: files, commands, Python, and the messages of broken files."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from longtail import recipes
from longtail.cli import main
from longtail.config import names
from longtail.data.read import read
from longtail.data.synthetic import SyntheticConfig
from longtail.errors import LongtailError
from longtail.predictor import Predictor

ROOT = Path(__file__).parents[1]
FORMATS = (ROOT / "docs" / "data-formats.md").read_text()
ADD_A_RECIPE = (ROOT / "docs" / "add-a-recipe.md").read_text()
README = (ROOT / "README.md").read_text()


def run_python(*arguments: str, cwd: Path) -> str:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=True).stdout


def blocks(document: str, language: str) -> list[tuple[str, str]]:
    """(rest of the info string, content) of fenced blocks."""
    return re.findall(rf"^```{language}(?: ([\w.]+))?\n(.*?)^```", document, flags=re.S | re.M)


def commands(document: str) -> list[list[str]]:
    lines = [line for _, block in blocks(document, "sh") for line in block.splitlines()]
    found = [re.fullmatch(r"(?:\.venv/bin/)?longtail (.*)", line) for line in lines]
    return [shlex.split(match.group(1)) for match in found if match]


# ---- examples ----


def test_own_csv(tmp_path: Path) -> None:
    assert run_python(str(ROOT / "examples" / "own_csv.py"), cwd=tmp_path).split()[1] == "beekeeping"
    assert (tmp_path / "runs" / "books" / "bundle" / "manifest.json").exists()


def test_the_bundle_of_a_recipe_outside_opens_without_it(planted_folder: Path, tmp_path: Path) -> None:
    """Where its ranker is a part of the house."""
    run_python(str(ROOT / "tests" / "slow_recipe.py"), str(planted_folder), str(tmp_path / "run"), "0", cwd=tmp_path)
    model = Predictor.open(tmp_path / "run")
    assert model.bundle.manifest["recipe"] == "slow"
    assert [found[0].label for found in model.predict(["owl", "hen"])] == ["id-owl", "id-hen"]


# ---- README.md ----


def test_readme_trains_on_a_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shell = [command for command in commands(README) if any("books" in word for word in command)]
    assert [command[0] for command in shell] == ["train", "predict", "evaluate"]
    for command in shell:
        assert main(command) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "beekeeping" in shown
    assert "P@1" in shown
    (python,) = [block for _, block in blocks(README, "python")]
    assert len([line for line in python.splitlines() if line.strip()]) == 3
    assert "beekeeping" in run_python("-c", python, cwd=tmp_path)


# ---- docs/add-a-recipe.md ----


PACKAGE = ROOT / "examples" / "own_recipe"


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_package_in_the_document_is_the_one_that_runs(language: str) -> None:
    shown = [(name, block) for name, block in blocks(ADD_A_RECIPE, language) if name]
    assert shown
    for name, block in shown:
        assert block in (PACKAGE / name).read_text()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package of the page was installed to."""
    folder = tmp_path_factory.mktemp("package")
    assert "pip install examples/own_recipe\n" in ADD_A_RECIPE
    shutil.copytree(PACKAGE, folder / "source")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    run_python("-m", "pip", "install", str(folder / "source"), "--target", str(folder / "target"), *offline, cwd=folder)
    return folder / "target"


def longtail_with(folder: Path | None, command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own that finds packages in `folder`, too."""
    paths = [*([] if folder is None else [str(folder)]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "longtail", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_what_the_recipe_document_shows_works(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = {}
    for command in commands(ADD_A_RECIPE):
        done = longtail_with(installed, command, tmp_path)
        assert done.returncode == 0, done.stderr
        shown[command[0]] = done.stdout
    assert list(shown) == ["recipes", "config", "train", "predict"]
    assert "centroid   Every label is the centroid of its documents, the nearest one wins" in shown["recipes"]
    assert "label_text = 1.0" in shown["config"]
    assert "beekeeping" in shown["predict"]
    again = longtail_with(installed, next(c for c in commands(ADD_A_RECIPE) if c[0] == "train"), tmp_path)
    assert "this run is finished" in again.stdout + again.stderr
    # Where the package is missing, every command that opens the bundle says so, as the page does.
    (expected,) = re.findall(r"^error: .*\nhint: .*\n", ADD_A_RECIPE, flags=re.M)
    run = "runs/centroid"
    for command in (["predict", run, "bees"], ["evaluate", run, "examples/books_test.csv"], ["pack", run, "small"]):
        refused = longtail_with(None, command, tmp_path)
        assert refused.returncode == 2, refused
        assert refused.stderr.endswith(expected), refused.stderr
    unknown = longtail_with(None, ["config", "centroid"], tmp_path)
    assert unknown.returncode == 2
    assert "unknown recipe 'centroid'" in unknown.stderr


def test_the_recipe_of_the_page_works_without_a_package(tmp_path: Path) -> None:
    (tmp_path / "own_recipe").mkdir()
    shutil.copy(PACKAGE / "centroid.py", tmp_path / "own_recipe")
    shutil.copy(ROOT / "examples" / "books.csv", tmp_path)
    (page,) = (block for block in re.findall(r"```console\n(.*?)```", ADD_A_RECIPE, flags=re.S))
    lines = [shlex.split(line.removeprefix("$ ")) for line in page.splitlines()]
    assert lines.pop(0) == ["cd", "examples/own_recipe"]
    shown = [longtail_with(None, line[1:], tmp_path / "own_recipe") for line in lines]
    assert [done.returncode for done in shown] == [0, 0], shown[-1].stderr
    assert "beekeeping" in shown[-1].stdout


def test_help_does_not_import_recipes_of_packages(tmp_path: Path) -> None:
    package(tmp_path, "raise SystemExit('imported')", "broken = 'broken:Broken'")
    assert longtail_with(tmp_path, ["--help"], tmp_path).returncode == 0
    assert longtail_with(tmp_path, ["config", "tiny"], tmp_path).returncode == 0


def package(folder: Path, code: str, *recipes: str) -> None:
    """A package as an installer leaves it."""
    (folder / "broken.py").write_text(code)
    about = folder / "longtail_broken-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: longtail-broken\nVersion: 1\n")
    points = "\n".join(one.replace("'", "") for one in recipes)
    (about / "entry_points.txt").write_text(f"[longtail.recipes]\n{points}\n")


def test_a_broken_package_is_named(tmp_path: Path) -> None:
    package(
        tmp_path, "class Other:\n    NAME = 'other'\n", "broken = broken:Broken", "named = broken:Other", "tiny = x:Y"
    )
    listed = longtail_with(tmp_path, ["recipes"], tmp_path)
    assert listed.returncode == 0, listed.stderr
    who = "of the package 'longtail-broken'"
    assert f"broken     the recipe 'broken' {who} cannot be imported" in listed.stdout
    assert f"named      the recipe 'named' {who} calls itself 'other'" in listed.stdout
    assert f"note: the recipe 'tiny' {who} is not used: longtail has one" in listed.stdout
    for name in ("broken", "named"):
        refused = longtail_with(tmp_path, ["config", name], tmp_path)
        assert refused.returncode == 2
        assert f"error: the recipe '{name}' {who}" in refused.stderr
    assert "neighbours = 50" in longtail_with(tmp_path, ["config", "tiny"], tmp_path).stdout


def test_of_two_packages_with_one_recipe_the_list_names_the_one_that_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def point(package: str, home: str) -> Any:
        return SimpleNamespace(name="twice", value=home, dist=SimpleNamespace(name=package))

    points = [point("first", "a:A"), point("second", "b:B"), point("first, found again", "a:A")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    found, notes = recipes.from_packages.__wrapped__()
    assert found["twice"].value == "a:A"
    assert notes == ("the recipe 'twice' of the package 'second' is not used: the package 'first' has one",)


# ---- docs/data-formats.md ----


def test_what_the_formats_document_shows_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for language in ("csv", "tsv", "txt", "ttl", "jsonl"):
        for name, content in blocks(FORMATS, language):
            (tmp_path / name).write_text(content)
    shell = commands(FORMATS)
    assert len(shell) > 10
    for command in shell:
        short = ["--set", "classify.epochs=1"] if "galaxc" in command else []  # else half a minute is its stage IV
        assert main([*command, *short]) == 0, (command, capsys.readouterr().err)
    (tmp_path / "python.py").write_text("\n".join(block for _, block in blocks(FORMATS, "python")))
    run_python("python.py", cwd=tmp_path)
    # All formats of the page name the same content: what was converted has the digest of its source.
    assert read("lf").digest == read("books.csv", test_file="books_test.csv").digest
    assert read("split").digest == read("arrays").digest == read("features.txt").digest


def test_every_knob_of_the_generator_is_documented() -> None:
    for knob in names(SyntheticConfig()):
        assert f"`{knob}`" in FORMATS, knob


def documented_errors() -> dict[str, str]:
    section = FORMATS[FORMATS.index("| what | error |") :]
    rows = [line.strip("|").split(" | ", 1) for line in section.split("\n\n")[0].splitlines()[2:]]
    return {what.strip(): message.strip().strip("`") for what, message in rows}


def lf(*more: str, train: bytes = b"", filter_pairs: str = "", graph: int = 0) -> None:
    """A folder `d` in the LF layout with two labels and one sound document, and whatever is to be wrong."""
    Path("d").mkdir()
    Path("d/lbl.json").write_text('{"uid": "a", "title": "a"}\n{"uid": "b", "title": "b"}\n')
    lines = ['{"uid": "d0", "title": "bees", "target_ind": [0]}', *more]
    if train:
        Path("d/trn.json.gz").write_bytes(train)
    else:
        Path("d/trn.json").write_text("".join(f"{line}\n" for line in lines))
    Path("d/filter_labels_trn.txt").write_text(filter_pairs)
    if graph:
        Path("d/graphs/g").mkdir(parents=True)
        save_npz("d/graphs/g/lbl_lbl.npz", csr_array(np.eye(graph, dtype=np.float32)))


def csv(content: bytes) -> None:
    Path("d.csv").write_bytes(content)


def sparse(content: str) -> None:
    Path("d.txt").write_text(content)


TAKEN = "output folder exists"

BROKEN: dict[str, Callable[[], None]] = {
    "truncated gzip": lambda: lf(train=gzip.compress(bytes(range(256)), mtime=0)[:100]),
    "not UTF-8": lambda: csv(b"title,labels\nbees \xff,a\n"),
    "UTF-16": lambda: csv("title,labels\nbees,a\n".encode("utf-16")),
    "gzip under another name": lambda: csv(gzip.compress(b"title,labels\nbees,a\n", mtime=0)),
    "not JSON": lambda: lf('{"uid":"q","title":"x","target_ind":[1],'),
    "wrong header count": lambda: sparse("3 5 4\n0,1 0:1.5 2:1\n 1:2\n"),
    "label number out of range": lambda: lf('{"uid": "q", "title": "x", "target_ind": [9]}'),
    "uid twice": lambda: lf('{"uid": "d0", "title": "x", "target_ind": [1]}'),
    "no `target_ind`": lambda: lf('{"uid": "q", "title": "x"}'),
    "NaN": lambda: sparse("3 5 4\n0,1 0:1.5 2:1\n 1:2\n3 4:nan\n"),
    "empty file": lambda: csv(b""),
    "all documents empty": lambda: csv(b"title,labels\n,a\n ,b\n"),
    "filter pair out of range": lambda: lf(filter_pairs="0 99\n"),
    "graph of another shape": lambda: lf(graph=5),
    "ragged CSV": lambda: csv(b"title,labels\nbees,a\nroses,b,c\n"),
    "ambiguous labels": lambda: csv(b'title,labels\nbees,"a,b"\n'),
    "two texts": lambda: csv(b"name,body,tags\nbees,they fly,a\n"),
    "two labels columns": lambda: csv(b"title,tags,topics\nbees,a,b\n"),
    "no labels column": lambda: csv(b"name,stuff\nbees,a\n"),
}


@pytest.mark.parametrize("what", list(BROKEN))
def test_documented_errors_are_real(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    BROKEN[what]()
    broken = next(path for path in (Path("d"), Path("d.csv"), Path("d.txt")) if path.exists())
    with pytest.raises(LongtailError) as problem:
        read(broken)
    assert problem.value.message == documented_errors()[what]
    assert problem.value.hint


def test_an_output_folder_that_exists_is_refused_as_documented(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    csv(b"title,labels\nbees,a\n")
    (tmp_path / "lf").mkdir()
    (tmp_path / "lf" / "mine").write_text("mine")
    assert main(["data", "convert", "d.csv", "lf"]) == 2
    assert f"error: {documented_errors()[TAKEN]}\n" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "lf").iterdir()] == ["mine"]


def test_every_documented_error_has_a_case() -> None:
    assert documented_errors().keys() == {*BROKEN, TAKEN}


def test_documented_repairs_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = FORMATS[FORMATS.index("| what | printed as |") :]
    documented = set(re.findall(r"\| `([^|]+)` \|$", section.split("\n\n")[0], flags=re.M))
    found: set[str] = set()
    lf(
        '{"uid": "e", "title": "", "target_ind": [1]}',
        '{"uid": "p", "title": "x", "pages": 7, "target_ind": [1, 1, 0], "target_rel": [1, 1, 0]}',
        '{"uid": "s", "title": "B", "target_ind": [0]}',
    )
    Path("d/filter_labels_trn.txt").unlink()
    Path("d/tst.json").write_text('{"uid": "t", "title": "unseen", "target_ind": [0]}\n')
    Path("d/graphs/g").mkdir(parents=True)
    Path("d/graphs/g/anchors.json").write_text('{"uid": "t", "title": "an anchor"}\n{"uid": "u", "title": "another"}\n')
    save_npz("d/graphs/g/trn.npz", csr_array(np.ones((4, 2), dtype=np.float32)))
    found |= read("d").repairs.keys()
    Path("t").mkdir()
    Path("t/train.csv").write_text("title,labels\nbees,a|b\nroses,c\n")
    Path("t/test.csv").write_text("title,labels\nwasps,z\n")
    Path("t/labels.csv").write_text("uid,title\na,the a\n")
    found |= read("t").repairs.keys()
    Path("n").mkdir()
    Path("n/trn_X.txt").write_bytes(b"bees \xff\n")
    save_npz("n/trn_Y.npz", csr_array(np.ones((1, 1), dtype=np.float32)))
    found |= read("n").repairs.keys()
    Path("n/Yf.txt").write_text("1 1\n0:1\n")
    found |= read("n").repairs.keys()
    Path("c").mkdir()
    for name, content in (("a.txt", "bees"), ("a.key", "hives\nx\n"), ("b.txt", "no subjects")):
        Path("c", name).write_text(content)
    Path("e").mkdir()
    for name, content in (("a.txt", "bees"), ("a.key", "hives"), ("b.txt", "lost"), ("b.key", "x")):
        Path("e", name).write_text(content)
    Path("v.csv").write_text("uri,label_en\nhttp://e.org/1,hives\nhttp://e.org/2,\n")
    found |= read("c", test_file="e", vocabulary="v.csv", unknown="drop").repairs.keys()
    found |= read("c", vocabulary="v.csv", unknown="keep").repairs.keys()
    assert found == documented


# ---- docs/python.md ----


def test_the_python_page_prints_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs" / "python.md").read_text()
    steps = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", page, flags=re.S | re.M)
    assert len(steps) == len(blocks(page, "python")) > 5
    names: dict[str, object] = {}
    for code, printed in steps:
        exec(code, names)
        assert capsys.readouterr().out == printed, code


# ---- docs/install.md ----


def test_a_language_without_spaces_works_as_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "install.md").read_text()
    ((name, table),) = blocks(page, "csv")
    ((_, printed),) = blocks(page, "text")
    Path(name).write_text(table)
    train, predict = commands(page)
    assert main(train) == 0
    capsys.readouterr()
    assert main(predict) == 0
    assert capsys.readouterr().out == printed
    # As one long word it would not be known.
    assert main([*train[: train.index("--set")], "--out", "runs/words"]) == 0
    capsys.readouterr()
    assert main(["predict", "runs/words", *predict[2:]]) == 0
    assert "banana" not in capsys.readouterr().out


def test_every_extra_is_on_the_page() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not [extra for extra in extras if extra not in ("dev", "bench") and f"`{extra}`" not in page]
