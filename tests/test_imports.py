"""The rooms of the house: a file imports only from rooms above its own, and prediction needs no torch."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import longtail

ROOT = Path(longtail.__file__).parent

# From top to bottom; a room may import rooms above it and itself (docs/architecture.md).
ROOMS = [
    *(
        "errors",
        "config",
        "report",
        "declared",
        "picture",
        "types",
        "explanation",
        "kernels",
        "writing",
        "persistence",
        "metrics",
        "data",
        "features",
        "bundle",
        "graph",
        "search",
        "models",
    ),
    *("nn", "training", "recipes", "label_changes", "hub", "explaining", "predictor"),
    *("evaluation", "calibrating", "choosing", "pipeline", "tuning", "sklearn"),
    *(
        "labels",
        "compare",
        "diagnosis",
        "failures",
        "suspects",
        "model_report",
        "packing",
        "splitting",
        "vectors",
        "demo",
        "warming",
        "ledger",
        "cluster",
        "serve",
        "cli",
    ),
]

# Modules of packages that only extras bring.
EXTRAS = {
    *("torch", "faiss", "tokenizers", "rich", "onnxruntime", "transformers", "huggingface_hub", "optuna"),
    *("pyarrow", "rdflib", "sklearn", "pandas", "polars"),
    *("matplotlib", "starlette", "uvicorn", "httptools", "uvloop", "ray"),
}

TORCH_ROOMS = {"nn", "training", "recipes"}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "longtail" else [node.module]
            )
    return names


FILES = sorted(
    path for path in ROOT.rglob("*.py") if path.name not in ("__main__.py",) and path != ROOT / "__init__.py"
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_upwards(path: Path) -> None:
    here = room_of(path)
    assert here in ROOMS, f"{path} is in a room that docs/architecture.md does not know"
    for name in imported(ast.parse(path.read_text())):
        package, _, rest = name.partition(".")
        if package == "longtail" and rest and rest != "__version__":
            room = rest.split(".")[0]
            assert ROOMS.index(room) <= ROOMS.index(here), f"{here} imports {room}, which stands below it"
        if package == "torch":
            assert here in TORCH_ROOMS, f"{here} must work without torch"
        assert package not in ("pickle", "marshal", "shelve", "dill", "joblib"), "no pickle anywhere"


def test_only_those_who_choose_a_recipe_know_recipes() -> None:
    """What a model can do is a method of the model: the programs that ask one need to know no paper."""
    below = {room for room in ROOMS if ROOMS.index(room) > ROOMS.index("recipes")} - {
        "choosing",
        "pipeline",
        "tuning",
        "sklearn",
        "demo",
        "warming",
        "cli",
    }
    for path in FILES:
        if room_of(path) in below:
            names = imported(ast.parse(path.read_text()))
            assert not [name for name in names if name.startswith("longtail.recipes")], path


def test_importing_is_light() -> None:
    code = (
        "import sys, longtail; assert not {'torch', 'numba', 'scipy', 'numpy', 'rich'} & set(sys.modules), "
        "sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


WITHOUT_EXTRAS = """
import sys
from pathlib import Path

class Refuse:
    asked = []
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            self.asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import longtail.predictor
for run in sys.argv[3:]:
    model = longtail.predictor.Predictor.open(run)
    assert model.predict(["an owl"], k=1)[0][0].label.startswith("id-")
    assert len(model.predict(["an owl", "a pig"] * 400, k=3)) == 800
from longtail import warming
plain = Path(sys.argv[2])
warming.write_model(plain)
warming.ask(plain)
warming.ask_packed(plain, "int8", "sketch")
assert not Refuse.asked, Refuse.asked
"""


def test_predicting_and_warming_up_ask_for_nothing_that_the_base_install_lacks(
    tiny_run: Path, direct_run: Path, tmp_path: Path
) -> None:
    """As in an environment that has the base install only: what an extra brings is not even looked for."""
    packed = tmp_path / "packed"
    longtail.pack(direct_run, packed)
    folders = tmp_path / "warm", tiny_run, direct_run, packed
    line = [sys.executable, "-c", WITHOUT_EXTRAS, ",".join(EXTRAS), *map(str, folders)]
    subprocess.run(line, check=True)


def test_the_base_install_lacks_what_extras_bring() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert not EXTRAS & {re.split("[>=]", line)[0].removesuffix("-cpu") for line in project["dependencies"]}


def test_public_names_exist() -> None:
    for name in (
        "Dataset",
        "Predictor",
        "TopK",
        "LongtailError",
        "RECIPES",
        "train",
        "evaluate",
        "pack",
        "read",
        "tune",
        "weak_labels",
    ):
        assert getattr(longtail, name) is not None
        assert name in dir(longtail)
    # A module of the same name would take the place of a function once it is imported.
    assert callable(longtail.train)
    assert callable(longtail.evaluate)
    assert callable(longtail.read)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = longtail.nonsense


def test_idle_threads_do_not_spin_unless_the_user_says_so() -> None:
    code = "import os, longtail; print(os.environ['OMP_WAIT_POLICY'])"
    for given, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | (
            {"OMP_WAIT_POLICY": given} if given else {}
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == expected


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by their names: of two alike in different folders it collects one, and only where both are
    collected.
    """
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
