"""How much a file may ask of the machine that reads it. A few bytes of a file can stand for very many in memory.

Each limit is far above what data needs, and an environment variable raises it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from longtail.errors import ConfigError, DataError


@dataclass(frozen=True)
class Limit:
    """variable: the environment variable that takes the place of `default`."""

    variable: str
    default: int

    def most(self) -> int:
        said = os.environ.get(self.variable, "")
        if not said:
            return self.default
        if not said.isascii() or not said.isdigit() or len(said) > 18:
            raise ConfigError(
                f"the environment variable {self.variable} is {said[:40]!r}, expected a whole number",
                f"unset it for the default, {self.default}",
            )
        return int(said)

    def check(self, found: int, what: str, file: Path | str | None = None, line: int | None = None) -> None:
        """what: of which there are `found`, for the error."""
        if found > self.most():
            raise DataError(
                f"{found:,} {what}, and {self.most():,} are the limit",
                f"if the file is right, set the environment variable {self.variable} to more than that",
                file=file,
                line=line,
            )


# Labels, documents or anchors that a header or a shape speaks of; each gets an id, whether it occurs or not.
PROMISED = Limit("LONGTAIL_MOST_ITEMS", 50_000_000)
# Columns of a table, or different fields of JSON lines.
COLUMNS = Limit("LONGTAIL_MOST_COLUMNS", 2_000)
# Bytes of one line.
LINE = Limit("LONGTAIL_LONGEST_LINE", 1 << 28)
# Times that a compressed file may grow; small files may grow more.
GROWTH = Limit("LONGTAIL_MOST_GROWTH", 200)
SMALL = 1 << 26
# Bytes of a vocabulary of SKOS, which is read as a whole, and that entities of XML may stand for.
WHOLE = Limit("LONGTAIL_LARGEST_VOCABULARY", 1 << 32)
ENTITIES = Limit("LONGTAIL_MOST_ENTITIES", 1 << 26)


def check_growth(read: int, made: int, file: Path | str) -> None:
    """read: compressed bytes so far.  made: bytes that they gave."""
    if made > SMALL:
        GROWTH.check(made // max(read, 1), "times as many bytes as the compressed file has", file)
