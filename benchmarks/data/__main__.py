"""The data sets of the results, for anyone: built from public packages of Debian 12.

    python -m benchmarks.data wordnet-related OUT
    python -m benchmarks.data debian-related OUT [--lists FOLDER]
    python -m benchmarks.data debian-tags OUT [--lists FOLDER]

Needs apt's tools and a network that reaches Debian's packages; it installs nothing. Prints the digest of the set, and
whether it is the one that results in docs/ were measured on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.data import debian, debian_tags, layout, wordnet
from longtail.data.read import read

# Digests of the sets that results speak of. Results on debian-related name 5f719578...: a copy in which the description
# of one label (debian-faq, a field that no default reads) has another address.
MEASURED = {
    "wordnet-related": (
        "ee9c64e94b59901782b1e645ecac61c1dff4613182401fdd0611daa77a38ea83"
        "+543a27aee80d468c6e664ebc7ba787fbd2fc547cd5836475272769ed6b01f40a"
    ),
    "debian-related": (
        "ddab195392f4206954416f45e750c0639f82e7e13787e95a13d2f1b065091827"
        "+2a4db8bd3c2a4461869d3cf10db4930a6febe0e01e9ecc80252e97441108b761"
    ),
    "debian-tags": (
        "78a089722bec71fd1baffea1552e6fe084d4dd7d8736a3559339f493230617df"
        "+69af8de568394b0b078ad9b9e19ea7585299493004f8689e9712822895674570"
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(MEASURED))
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder, which must not exist yet")
    parser.add_argument("--lists", type=Path, help="a folder of apt's lists at hand (debian-related, debian-tags)")
    options = parser.parse_args(arguments)
    if options.out.exists():
        parser.error(f"{options.out}: exists already; name a new folder")
    counts = layout.write(_source(options.name, options.lists), options.out)
    print(f"wrote {options.out}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    digest = read(options.out).digest
    same = digest == MEASURED[options.name]
    print(f"digest {digest}")
    print(
        "the set that results were measured on"
        if same
        else "another set than results were measured on: the sources have changed since (README.txt has their date)"
    )
    return 0


def _source(name: str, lists: Path | None) -> layout.Source:
    if name == "wordnet-related":
        return wordnet.build()
    return debian.build(lists) if name == "debian-related" else debian_tags.build(lists)


if __name__ == "__main__":
    raise SystemExit(main())
