"""The recipes of the house. Each is one short file; its module is imported only when it is asked for."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.config import from_text, nearest, read_toml, resolve
from longtail.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
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
        "every label against every document, rows of label text, neighbours' text and free vectors",
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
        "longtail.recipes.towers.methods:Ance",
        "dense retrieval: labels by their text, trained on triplets with hard negatives",
    ),
    "ngame": Entry(
        "longtail.recipes.towers.methods:Ngame", "NGAME: batches of similar documents, then a classifier per label"
    ),
    "dexml": Entry(
        "longtail.recipes.towers.methods:Dexml", "DEXML: labels by their text, trained by decoupled softmax"
    ),
    "siamese": Entry("longtail.recipes.towers.methods:Siamese", "SiameseXML: classifiers that start from label texts"),
    "ramen": Entry(
        "longtail.recipes.ramen.recipe:Ramen",
        "RAMEN: graphs train the encoder of one of the four above and cost nothing at prediction",
    ),
}

DEFAULT = "direct"


def recipe_class(name: str) -> type[Recipe]:
    """The class of recipe `name`."""
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe '{name}'", nearest(name, list(RECIPES)))
    entry = RECIPES[name]
    if entry.needs_torch and importlib.util.find_spec("torch") is None:
        raise MissingExtra("torch", "train", f"training the recipe '{name}'")
    module, _, cls = entry.home.partition(":")
    found: type[Recipe] = getattr(importlib.import_module(module), cls)
    return found


def make_recipe(
    name: str,
    *,
    config: Path | None = None,
    assignments: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> Recipe:
    """Recipe `name` with its defaults, changed by a TOML file, then by nested `settings`, then by ``a.b=c``."""
    cls = recipe_class(name)
    resolved = cls.CONFIG()
    if config is not None:
        resolved = resolve(resolved, read_toml(config), str(config))
    if settings:
        resolved = resolve(resolved, settings, "settings")
    return cls(from_text(resolved, assignments))
