"""The rules that keep the house easy to live in (docs/architecture.md), computed from the source."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import longtail
import longtail.metrics

ROOT = Path(longtail.__file__).parent
REPOSITORY = Path(__file__).parents[1]

MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


@cache
def tree_of(module: str) -> ast.Module:
    """Read once: whoever follows names from module to module asks thousands of times."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imported(name: str) -> Iterator[str]:
    """Modules of the house that a module imports, at its top or inside a function; not for types alone."""
    tree = tree_of(name)
    for_types = {id(inner) for node in ast.walk(tree) if is_type_checking(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


IMPORTS = {name: {other for other in imported(name) if other != name} for name in MODULES}


USING: dict[str, set[str]] = {name: set() for name in MODULES}
for one, others in IMPORTS.items():
    for other in others:
        USING[other].add(one)


def family(name: str) -> str | None:
    """The recipe family that a module belongs to: the folder, or the single file, under recipes/."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["longtail", "recipes"] and len(parts) > 2 and parts[2] != "base" else None


def is_program(name: str) -> bool:
    """Modules that users start from, and those that are started as processes. The rooms below and the nouns at the top
    are not.
    """
    text = MODULES[name].read_text(encoding="utf-8")
    if '__name__ == "__main__"' in text:
        return True
    if name.startswith("longtail.cli.") and "\nCOMMANDS = [" in text:  # imported by its name, when it is asked for
        return True
    return name.count(".") < 2 and name not in NOUNS and MODULES[name].name != "__init__.py"


NOUNS = {
    f"longtail.{name}"
    for name in ("errors", "config", "declared", "types", "explanation", "writing", "persistence", "bundle")
}


def users(name: str) -> set[str]:
    """Families and "programs" that reach a module by imports, through shared modules but not through each other."""
    found: set[str] = set()
    seen, ahead = {name}, [name]
    while ahead:
        for user in USING[ahead.pop()]:
            if family(user) is not None:
                found.add(str(family(user)))
            elif is_program(user):
                found.add("programs")
            elif user[1] == IMPORT:
                found |= users(user[0])
            elif user not in seen:
                seen.add(user)
                ahead.append(user)
    return found


SHARED = [
    name
    for name, path in MODULES.items()
    if family(name) is None
    and name.count(".") >= 2
    and path.name != "__init__.py"
    and name != "longtail.recipes.base"
    and not is_program(name)
]


@pytest.mark.parametrize("name", SHARED)
def test_a_part_is_what_two_families_share(name: str) -> None:
    found = users(name)
    assert found, f"{name} is used by nobody: it is dead, or belongs to the tests"
    assert len(found) > 1 or found == {"programs"}, (
        f"{name} is used by the recipe family '{found.pop()}' alone: it belongs to that folder under recipes/"
    )


@pytest.mark.parametrize("name", [name for name in MODULES if family(name) is not None])
def test_recipes_do_not_import_recipes(name: str) -> None:
    for other in IMPORTS[name]:
        assert family(other) in (None, family(name)), f"{name} imports {other}: make what they share a part"


def test_the_rule_finds_what_is_in_the_wrong_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two tests above can fail: a part that one family alone used would be found."""
    alone = "longtail.recipes.galaxc.network"
    assert {family(user) for user in USING[alone]} == {"galaxc"}
    assert users("longtail.types") > {"galaxc", "programs"}
    monkeypatch.setitem(USING, "longtail.search.index", {alone})
    assert users("longtail.search.index") == {"galaxc"}


# ---- the same for what modules define ----

Name = tuple[str, str]  # a module, and a class or function at its top
ALL = "*"  # in the place of a name: a module that is handed on as a whole
IMPORT = "import"  # in the place of a name: what a module does when it is imported


@cache
def home_of(module: str, name: str) -> Name:
    """Where a name that is imported from a module is defined: rooms hand on what their files define."""
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and node.module in MODULES and node.module != module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return home_of(str(node.module), alias.name)
    return module, name


def named(module: str) -> dict[Name, set[Name]]:
    """What each class, function and constant at the top of a module refers to, in its own module and in others."""
    tree = tree_of(module)
    known: dict[str, Name] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                home = (inner, ALL) if inner in MODULES else home_of(str(node.module), alias.name)
                known[alias.asname or alias.name] = home
    tops = [(name, node) for node in tree.body for name in names_of(node)]
    known |= {name: (module, name) for name, _ in tops}
    found: dict[Name, set[Name]] = {}
    for name, node in tops:
        found.setdefault((module, name), set()).update(set(referred(node, known)) - {(module, name)})
    return found


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        return [IMPORT]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def referred(node: ast.AST, known: dict[str, Name]) -> Iterator[Name]:
    """An attribute of a module is that name of it; a module by itself is all of it."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module, name = known.get(node.value.id, ("", ""))
        if name == ALL:
            yield home_of(module, node.attr)
            return
    if isinstance(node, ast.Name) and node.id in known:
        yield known[node.id]
    for child in ast.iter_child_nodes(node):
        yield from referred(child, known)


# Offered to users, whether the house needs them or not: metrics, and a look into a label graph (docs/label-graph.md).
OFFERED = {home_of("longtail.metrics", name) for name in longtail.metrics.__all__}
OFFERED.add(("longtail.graph.label_graph", "walk_trace"))

NAMED = {name: others for module in MODULES for name, others in named(module).items()}
NAMED_BY: dict[Name, set[Name]] = {}
for each, mentioned in NAMED.items():
    for mention in mentioned:
        NAMED_BY.setdefault(mention, set()).add(each)


def users_of_name(name: Name) -> set[str]:
    """Families and "programs" that reach a name; names that are offered are used."""
    found: set[str] = set()
    seen, ahead = {name}, [name]
    while ahead:
        at = ahead.pop()
        found |= {"programs"} if at in OFFERED else set()
        for user in NAMED_BY.get(at, set()) | NAMED_BY.get((at[0], ALL), set()):
            if family(user[0]) is not None:
                found.add(str(family(user[0])))
            elif is_program(user[0]) or user[0].startswith("longtail.cli"):
                found.add("programs")
            elif user[1] == IMPORT:
                found |= users(user[0])
            elif user not in seen:
                seen.add(user)
                ahead.append(user)
    return found


def lone_names() -> dict[str, set[str]]:
    """Public classes and functions of shared modules that one family alone uses, or nobody."""
    found = {}
    for module in SHARED:
        for node in tree_of(module).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith(
                "_"
            ):
                users = users_of_name((module, node.name))
                if len(users) < 2 and users != {"programs"}:
                    found[f"{module}.{node.name}"] = users
    return found


def test_classes_and_functions_of_parts_are_what_two_families_share() -> None:
    found = lone_names()
    assert not found, f"used by one recipe family alone, which they belong to, or by nobody: {found}"


def test_the_rule_finds_names_in_the_wrong_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert users_of_name(("longtail.search.index", "ExactIndex")) > {"galaxc", "programs"}
    monkeypatch.setitem(NAMED_BY, ("longtail.search.cluster", "smooth"), {("longtail.recipes.galaxc.graph", "Paths")})
    assert lone_names() == {"longtail.search.cluster.smooth": {"galaxc"}}


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name for module in MODULES for node in ast.walk(tree_of(module)) if isinstance(node, ast.ClassDef)
    )
    assert not [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("name", MODULES)
def test_no_constructor_is_called_with_ten_arguments_by_place(name: str) -> None:
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Call) and len(node.args) >= 10:
            called = ast.unparse(node.func).rpartition(".")[2]
            assert not called[:1].isupper(), f"line {node.lineno}: name the arguments of {called}"


@pytest.mark.parametrize("path", sorted(ROOT.glob("recipes/*/recipe.py")), ids=lambda path: path.parent.name)
def test_a_paper_is_a_short_story(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 220, f"{path.relative_to(ROOT)} has {lines} lines: move parts of it to files beside it"


# Names that mean the same in every room that has them.
SAME_MEANING = {
    *("__init__", "recipe", "settings", "network", "ranker", "kernels", "objective"),
    "base",  # what every featurizer, every recipe, every command is
    *("encoders", "transformer"),  # the same thing in torch (nn) and for prediction (models)
}


def test_no_file_name_has_two_meanings() -> None:
    """A file of search/kernels/ is the compiled half of the file of search/ that has its name."""
    halves = {path for path in ROOT.glob("search/kernels/*.py") if (ROOT / "search" / path.name).exists()}
    names = Counter(path.stem for path in MODULES.values() if path not in halves)
    assert {name for name, count in names.items() if count > 1} == SAME_MEANING


def tracked(*patterns: str) -> list[Path]:
    done = subprocess.run(["git", "ls-files", *patterns], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return [REPOSITORY / name for name in done.stdout.splitlines() if (REPOSITORY / name).is_file()]


# What only the authors' machines have: documents beside the repository, numbers of issues, absolute paths.
PRIVATE = re.compile(
    r"\.\./shared|\bspec \d|\bspec [A-Z]-|\bA-0\d\.\d|\bissue #?\d|(?<!\w)/work/|(?<!\w)/root/|/home/\w"
)


def test_nothing_refers_to_what_a_clone_does_not_have() -> None:
    files = tracked("*.py", "*.md", "*.toml", "*.json", "*.txt", "Makefile", ".ci/run")
    if not files:
        pytest.skip("not a checkout of git")
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:120]}"
        for path in files
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert not found, "\n".join(found[:40])


def test_the_way_of_a_prediction() -> None:
    """docs/architecture.md draws it, from the command to the kernels: the functions are where it says."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"```\npredict:\n(.*?)```", page, re.DOTALL)
    assert block is not None
    for line in block[1].strip().splitlines():
        path, names, about = re.split(r"  +", line, maxsplit=2)
        tree = tree_of("longtail." + path.removesuffix(".py").replace("/", "."))
        defined = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for name in names.split():
            assert name in defined, f"{path} has no function {name}"
            is_kernel = any("compiled" in ast.unparse(one) for one in defined[name].decorator_list)
            assert is_kernel == about.startswith("KERNEL"), f"{name} of {path} is {'a' if is_kernel else 'no'} kernel"


def test_the_walk_of_a_newcomer() -> None:
    """docs/architecture.md draws it: at most 20 files to a prediction, each reached from one before it."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"```\nwalk:\n(.*?)```", page, re.DOTALL)
    assert block is not None
    walk = [line.split("  ")[0].strip() for line in block[1].strip().splitlines()]
    assert walk[0] == "cli/training.py"
    assert {"pipeline.py", "recipes/direct/recipe.py", "bundle.py", "predictor.py"} <= set(walk)
    assert len(walk) <= 20
    names = ["longtail." + path.removesuffix(".py").replace("/", ".") for path in walk]
    for number, name in enumerate(names[1:], 1):
        assert name in MODULES, f"{walk[number]} does not exist"
        before = set().union(*(IMPORTS[earlier] for earlier in names[:number]))
        nearby = before.union(*(IMPORTS[one] for one in before if family(one) is None))
        # A recipe is found by its name (recipes/__init__.py), not imported.
        assert name in nearby or name == "longtail.recipes.direct.recipe", f"nothing before {walk[number]} leads there"
