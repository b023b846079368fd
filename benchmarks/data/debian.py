"""``debian-related``: a package's synopsis -> packages that it recommends, suggests or enhances, from Debian's lists.

All packages of one source are on one side of the split. Graphs: ``depends`` (what a package needs) and ``category``
(its section and its tags). The lists of a release change with its point releases, about every two months: those of
12.15 give the set that results speak of, others one with other documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.data.layout import Links, Source, Text, one_line
from benchmarks.data.packages import lists_at, read_list, release_date, stanzas, unpacked

TAGS_PACKAGE = "debtags"
LABELS = ("Recommends", "Suggests", "Enhances")
NEEDS = ("Depends", "Pre-Depends")
ORIGIN = """Names, descriptions and relations of packages of Debian 12 (bookworm), main, amd64: lists of version
{version}, {date}. Names of tags from Debian's package debtags. The Debian project distributes these lists with its
archive."""


@dataclass(frozen=True)
class Package:
    """relations: names of packages by the field that names them; every alternative counts."""

    name: str
    synopsis: str
    description: str
    source: str
    section: str
    tags: tuple[str, ...]
    relations: Mapping[str, tuple[str, ...]]

    @property
    def title(self) -> str:
        return f"{self.name} - {self.synopsis}"

    @property
    def kept_tags(self) -> list[str]:
        """Without ``special::*``, which speak of the tagging, not of the package."""
        return [tag for tag in self.tags if not tag.startswith("special::")]

    @property
    def group(self) -> str:
        """Packages of one source are told in nearly the same words: they are on one side of a split."""
        return f"src:{self.source}"

    def to(self, fields: tuple[str, ...]) -> set[str]:
        return {name for field in fields for name in self.relations[field]}


def build(lists: Path | None = None) -> Source:
    """lists: a folder of apt's lists with English descriptions; by default they are fetched."""
    with unpacked(TAGS_PACKAGE) as files, lists_at(lists) as folder:
        names = tag_names((files / "usr/share/debtags/vocabulary").read_text(encoding="utf-8"))
        version, date = release_date(folder)
        return source_of(read_packages(folder), names, ORIGIN.format(version=version, date=date))


def read_packages(lists: Path) -> dict[str, Package]:
    return packages(read_list(lists, "main_binary-amd64_Packages"), read_list(lists, "main_i18n_Translation-en"))


def packages(listed: str, translated: str) -> dict[str, Package]:
    """listed: the list ``Packages``.  translated: the list ``Translation-en``, which has the descriptions."""
    descriptions = {
        one.get("Description-md5"): one["Description-en"] for one in stanzas(translated) if "Description-en" in one
    }
    found: dict[str, Package] = {}
    for one in stanzas(listed):
        name = one["Package"]
        if name in found:  # an older version beside it
            continue
        _, _, body = descriptions.get(one.get("Description-md5"), "").partition("\n")
        found[name] = Package(
            name=name,
            synopsis=one_line(one.get("Description", "").split("\n")[0]),
            description=one_line(" ".join("" if line.strip() == "." else line for line in body.split("\n"))),
            source=one.get("Source", name).split(" ")[0],
            section=one.get("Section", "").split("/")[-1],
            tags=tuple(sorted({*tags(one.get("Tag", ""))})),
            relations={field: tuple(named(one.get(field, ""))) for field in LABELS + NEEDS},
        )
    return found


def named(field: str) -> Iterator[str]:
    """``a (>= 1) | b [amd64], c:any`` names a, b and c."""
    for one in re.split(r"[,|]", field):
        name = re.sub(r"[\(\[<].*", "", one.strip().replace("\n", " ")).strip().split(":")[0].strip()
        if name:
            yield name


def tags(field: str) -> Iterator[str]:
    """``a::{b,c}, d::e`` is a::b, a::c and d::e."""
    for facet, several, single in re.findall(r"([^\s,{}]+::)(?:\{([^}]*)\}|([^\s,{}]+))", one_line(field)):
        yield from (facet + name.strip() for name in several.split(",") if name.strip())
        if single:
            yield facet + single


def tag_names(vocabulary: str) -> dict[str, str]:
    """Short descriptions of facets (``role``) and of tags (``role::program``)."""
    return {
        one.get("Tag") or one.get("Facet", ""): one_line(one.get("Description", "").split("\n")[0])
        for one in stanzas(vocabulary)
    }


def source_of(known: Mapping[str, Package], names: Mapping[str, str], origin: str) -> Source:
    categories = {name: _categories(one) for name, one in known.items()}
    titles = {tag: _category_title(tag, names) for own in categories.values() for tag in own}
    return Source(
        texts={name: Text(one.title, one.description) for name, one in known.items()},
        pairs={name: one.to(LABELS) for name, one in known.items()},
        graphs={
            "category": Links(titles, categories),
            "depends": Links(
                {name: one.title for name, one in known.items()},
                {name: sorted((one.to(NEEDS) & known.keys()) - {name}) for name, one in known.items()},
                documents=True,
            ),
        },
        origin=origin,
        group=lambda name: known[name].group,
    )


def _categories(one: Package) -> list[str]:
    own = [f"section::{one.section}"] if one.section else []
    return own + one.kept_tags


def _category_title(tag: str, names: Mapping[str, str]) -> str:
    facet, _, name = tag.partition("::")
    if facet == "section":
        return f"section {name}"
    return f"{names.get(facet, facet)}: {names.get(tag, name)}"
