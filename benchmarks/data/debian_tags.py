"""``debian-tags``: a package's synopsis -> its debtags (``role::program``), from Debian's lists.

A label's title is its tag. A fifth of the sources are test: all packages of one source are on one side of the split.
There are no graphs. The lists change as those of ``debian-related`` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.data.debian import Package, read_packages
from benchmarks.data.layout import Source, Text
from benchmarks.data.packages import lists_at, release_date

TEST_SHARE = 0.2
ORIGIN = """Names, descriptions and tags of packages of Debian 12 (bookworm), main, amd64: lists of version {version},
{date}. The Debian project distributes these lists with its archive."""


def build(lists: Path | None = None) -> Source:
    """lists: a folder of apt's lists with English descriptions; by default they are fetched."""
    with lists_at(lists) as folder:
        version, date = release_date(folder)
        return source_of(read_packages(folder), ORIGIN.format(version=version, date=date))


def source_of(known: Mapping[str, Package], origin: str) -> Source:
    """No name of a package has colons, so none is a tag's."""
    pairs = {name: one.kept_tags for name, one in known.items()}
    documents = {name: Text(one.synopsis, one.description) for name, one in known.items()}
    return Source(
        texts=documents | {tag: Text(tag, "") for tags in pairs.values() for tag in tags},
        pairs=pairs,
        graphs={},
        origin=origin,
        group=lambda name: known[name].group,
        test_share=TEST_SHARE,
    )
