"""The recipes of the house, and those of installed packages. A recipe's module is imported only when asked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.config import from_text, nearest, read_toml, resolve
from longtail.errors import ConfigError, LongtailError, MissingExtra

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from longtail.recipes.base import Recipe


@dataclass(frozen=True)
class Entry:
    """A recipe's home, what it is in one line, and whether training it needs torch."""

    home: str
    summary: str
    needs_torch: bool = True


RECIPES: Mapping[str, Entry] = {
    "direct": Entry(
        "longtail.recipes.direct.recipe:Direct",
        "every label against every document, rows of label text and free vectors",
    ),
    "tiny": Entry(
        "longtail.recipes.tiny:Tiny", "TF-IDF nearest documents vote for their labels: the baseline", needs_torch=False
    ),
    "astec": Entry(
        "longtail.recipes.astec.recipe:Astec",
        "DeepXML/Astec: clusters as surrogate, hard negatives, one classifier per label",
    ),
    "eclare": Entry(
        "longtail.recipes.eclare.recipe:Eclare",
        "ECLARE: classifiers composed of label text, neighbours' text in a label graph, and free vectors",
    ),
    "galaxc": Entry(
        "longtail.recipes.galaxc.recipe:Galaxc",
        "GalaXC: a graph of documents and labels, convolved; labels attend to hops; warm start",
    ),
    "gnnxml": Entry(
        "longtail.recipes.gnnxml.recipe:GnnXml",
        "GNN-XML: keyword graphs of long texts, clusters by a label graph, a branch for rare labels",
    ),
    "ance": Entry(
        "longtail.recipes.towers.recipe:Ance",
        "dense retrieval: labels by their text, trained on triplets with hard negatives",
    ),
    "ngame": Entry(
        "longtail.recipes.towers.recipe:Ngame", "NGAME: batches of similar documents, then a classifier per label"
    ),
    "dexml": Entry("longtail.recipes.towers.recipe:Dexml", "DEXML: labels by their text, trained by decoupled softmax"),
    "siamese": Entry("longtail.recipes.towers.recipe:Siamese", "SiameseXML: classifiers that start from label texts"),
    "ramen": Entry(
        "longtail.recipes.ramen.recipe:Ramen",
        "RAMEN: graphs train the encoder of another recipe (`base`) and cost nothing at prediction",
    ),
}

DEFAULT = "direct"

# A package adds a recipe by an entry point of this group: name = "module:Class". Its stage parts and rankers are entry
# points of `longtail.persistence.PARTS_GROUP`.
GROUP = "longtail.recipes"


@cache
def from_packages() -> tuple[Mapping[str, EntryPoint], tuple[str, ...]]:
    """Recipes that installed packages bring, which are not imported here; and what to say of those that are not used.

    A name of ours cannot be taken, and of two packages with one name the first that Python finds counts.
    """
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    notes: list[str] = []
    for point in entry_points(group=GROUP):
        if point.name not in RECIPES and point.name not in found:
            found[point.name] = point
        elif point.name in RECIPES or found[point.name].value != point.value:
            owner = "longtail" if point.name in RECIPES else f"the package '{package_of(found[point.name])}'"
            notes.append(f"the recipe '{point.name}' of the package '{package_of(point)}' is not used: {owner} has one")
    return found, tuple(notes)


def package_of(point: EntryPoint) -> str:
    """The package that an entry point comes from."""
    return point.dist.name if point.dist is not None else point.value


def all_recipes() -> Mapping[str, Entry]:
    """Ours, then those of packages, whose classes are imported to ask for their summaries."""
    return {**RECIPES, **{name: _entry(point) for name, point in from_packages()[0].items()}}


def _entry(point: EntryPoint) -> Entry:
    """What the class says of itself: SUMMARY, or the first line of its docstring; and NEEDS_TORCH."""
    try:
        cls = _imported(point)
    except LongtailError as problem:
        return Entry(point.value, problem.message, needs_torch=False)
    lines = (cls.__doc__ or "").strip().splitlines()
    summary = getattr(cls, "SUMMARY", "") or (lines[0] if lines else "")
    summary = f"{summary} (package {package_of(point)})".strip()
    return Entry(point.value, summary, bool(getattr(cls, "NEEDS_TORCH", False)))


def _imported(point: EntryPoint) -> type[Recipe]:
    who = f"the recipe '{point.name}' of the package '{package_of(point)}'"
    try:
        cls: type[Recipe] = point.load()
    except (ImportError, AttributeError) as problem:
        if isinstance(problem, ModuleNotFoundError) and problem.name == "torch":
            raise MissingExtra("torch", "train", who) from problem
        raise ConfigError(f"{who} cannot be imported ({problem})", "install its package anew") from problem
    if getattr(cls, "NAME", None) != point.name:
        raise ConfigError(f"{who} calls itself '{getattr(cls, 'NAME', '')}'", "NAME and the entry point must agree")
    return cls


def recipe_class(name: str) -> type[Recipe]:
    """The class of recipe `name`, or of "module:Class", which is looked for in the current folder too."""
    if ":" in name:
        return _from_module(name)
    packages = from_packages()[0] if name not in RECIPES else {}
    if name not in RECIPES and name not in packages:
        raise ConfigError(f"unknown recipe '{name}'", nearest(name, [*RECIPES, *packages]))
    entry = RECIPES[name] if name in RECIPES else _entry(packages[name])
    if entry.needs_torch and importlib.util.find_spec("torch") is None:
        raise MissingExtra("torch", "train", f"training the recipe '{name}'")
    if name in packages:
        return _imported(packages[name])
    from longtail.persistence import class_of

    found: type[Recipe] = class_of(entry.home)
    return found


def _from_module(home: str) -> type[Recipe]:
    """A class that the user named. Its kinds of parts (PARTS) are known from now on, in this process."""
    from longtail.persistence import class_of, declare

    hint = "give module:Class of a recipe that Python can import from here (docs/add-a-recipe.md)"
    sys.path.append(str(Path.cwd()))
    try:
        cls: type[Recipe] = class_of(home)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ConfigError(f"the recipe '{home}' cannot be imported ({problem})", hint) from problem
    finally:
        sys.path.remove(str(Path.cwd()))
    missing = [name for name in ("NAME", "CONFIG", "classify") if not hasattr(cls, name)]
    if missing:
        raise ConfigError(f"'{home}' is no recipe: it has no {', '.join(missing)}", hint)
    declare(getattr(cls, "PARTS", {}))
    return cls


def presets(recipe: str) -> Mapping[str, Path]:
    """Settings of papers for their data sets, by the name of the data set."""
    folder = Path(__file__).parents[1] / "presets" / recipe
    return {path.stem: path for path in sorted(folder.glob("*.toml"))} if recipe in RECIPES else {}


def preset(recipe: str, name: str) -> Path:
    """The file of a preset."""
    known = presets(recipe)
    if name not in known:
        what = f"the recipe '{recipe}' has " + (f"no preset '{name}'" if known else "no presets")
        raise ConfigError(what, nearest(name, list(known)) if known else "give a file: --config FILE")
    return known[name]


def make_recipe(
    name: str,
    *,
    config: Path | None = None,
    assignments: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    preset_name: str = "",
) -> Recipe:
    """Recipe `name` with its defaults, changed by a preset, a TOML file, nested `settings`, and ``a.b=c``, in order."""
    cls = recipe_class(name)
    resolved = cls.CONFIG()
    for path in ([preset(name, preset_name)] if preset_name else []) + ([config] if config is not None else []):
        resolved = resolve(resolved, read_toml(path), str(path))
    if settings:
        resolved = resolve(resolved, settings, "settings")
    return cls(from_text(resolved, assignments))
