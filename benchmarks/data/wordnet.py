"""``wordnet-related``: words and their definition -> related concepts, from Debian's package ``wordnet-base``.

Labels are is-a ancestors one and two steps up, wholes that it is a part of, the head of a satellite adjective, and what
WordNet calls see also, verb group, attribute, entailment and cause. One direction of a relation alone is used, so that
no pair has its reverse by construction. Graphs: ``lexical`` (derived forms, participles, opposites: none of them a
label) and ``category`` (the file of the lexicographers, domains, frames of verbs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.data.layout import Links, Source, Text, one_line
from benchmarks.data.packages import unpacked

PACKAGE = "wordnet-base"
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
# In the order of their numbers (manual page lexnames).
# fmt: off
LEXICOGRAPHERS = (
    "adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact", "noun.attribute",
    "noun.body", "noun.cognition", "noun.communication", "noun.event", "noun.feeling", "noun.food", "noun.group",
    "noun.location", "noun.motive", "noun.object", "noun.person", "noun.phenomenon", "noun.plant",
    "noun.possession", "noun.process", "noun.quantity", "noun.relation", "noun.shape", "noun.state",
    "noun.substance", "noun.time", "verb.body", "verb.change", "verb.cognition", "verb.communication",
    "verb.competition", "verb.consumption", "verb.contact", "verb.creation", "verb.emotion", "verb.motion",
    "verb.perception", "verb.possession", "verb.social", "verb.stative", "verb.weather", "adj.ppl",
)
# fmt: on
# WordNet's signs of pointers (its manual page wninput).
IS_A = ("@", "@i")
RELATED = ("#m", "#s", "#p", "^", "$", "=", "*", ">")
SIMILAR = "&"
LEXICAL = ("+", "\\", "<", "!")
DOMAINS = (";c", ";r", ";u")
STEPS_UP = 2
ORIGIN = """Words, definitions and relations of WordNet 3.0, from Debian's package wordnet-base.
WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved. Its licence allows to use, copy, modify and
distribute it for any purpose with this notice."""


@dataclass(frozen=True)
class Concept:
    """A synset. satellite: an adjective that is near to a head adjective.  pointers: signs and the ids they lead to."""

    uid: str
    words: tuple[str, ...]
    definition: str
    examples: str
    lexicographer: str
    satellite: bool
    pointers: tuple[tuple[str, str], ...]
    frames: tuple[int, ...]

    @property
    def title(self) -> str:
        return f"{', '.join(self.words)} - {self.definition}"

    def to(self, signs: tuple[str, ...]) -> list[str]:
        return [target for sign, target in self.pointers if sign in signs]


def build() -> Source:
    with unpacked(PACKAGE) as files:
        return source_of(read_folder(files / "usr/share/wordnet"))


def read_folder(folder: Path) -> dict[str, Concept]:
    found: dict[str, Concept] = {}
    for part in PARTS_OF_SPEECH:
        with (folder / f"data.{part}").open(encoding="latin-1") as lines:
            found.update((one.uid, one) for one in concepts(lines))
    return found


def concepts(lines: Iterator[str]) -> Iterator[Concept]:
    """Of a data file; its licence stands in lines that begin with two blanks (manual page wndb)."""
    for line in lines:
        if line.startswith("  "):
            continue
        left, _, gloss = line.partition("|")
        fields = iter(left.split())
        offset, lexicographer, kind = next(fields), int(next(fields)), next(fields)
        # A word, and a number that tells its senses apart.
        words = [(next(fields), next(fields))[0] for _ in range(int(next(fields), 16))]
        pointers = []
        for _ in range(int(next(fields))):
            sign, target, part, _places = next(fields), next(fields), next(fields), next(fields)
            pointers.append((sign, f"{target}-{_part(part)}"))
        frames = []
        if kind == "v":
            for _ in range(int(next(fields))):
                _, frame, _ = next(fields), int(next(fields)), next(fields)
                frames.append(frame)
        parts = [part.strip() for part in re.split(r";\s*(?=\")|(?<=\");\s*", gloss.strip())]
        yield Concept(
            uid=f"{offset}-{_part(kind)}",
            words=tuple(re.sub(r"\((a|p|ip)\)$", "", word).replace("_", " ") for word in words),
            definition=one_line("; ".join(part for part in parts if not part.startswith('"'))),
            examples=one_line(" ".join(part for part in parts if part.startswith('"'))),
            lexicographer=LEXICOGRAPHERS[lexicographer],
            satellite=kind == "s",
            pointers=tuple(pointers),
            frames=tuple(frames),
        )


def _part(sign: str) -> str:
    """Satellite adjectives are numbered with the other adjectives."""
    return sign.replace("s", "a")


def source_of(known: dict[str, Concept]) -> Source:
    pairs = {uid: _labels(one, known) for uid, one in known.items()}
    lexical = {
        uid: [
            other
            for other in sorted({*one.to(LEXICAL)} - {uid})
            if other not in pairs[uid] and uid not in pairs.get(other, ())
        ]
        for uid, one in known.items()
    }
    titles: dict[str, str] = {}
    categories = {}
    for uid, one in known.items():
        own = {f"lex::{one.lexicographer}", *(f"frame::{frame}" for frame in one.frames)}
        titles |= {name: name.replace("::", " ").replace(".", " ") for name in own}
        domains = {f"domain::{target}": "domain " + ", ".join(known[target].words) for target in one.to(DOMAINS)}
        titles |= domains
        categories[uid] = sorted(own | domains.keys())
    return Source(
        texts={uid: Text(one.title, one.examples) for uid, one in known.items()},
        pairs=pairs,
        graphs={
            "category": Links(titles, categories),
            "lexical": Links({uid: one.title for uid, one in known.items()}, lexical, documents=True),
        },
        origin=ORIGIN,
    )


def _labels(one: Concept, known: dict[str, Concept]) -> set[str]:
    found, front = set(one.to(RELATED)), [one.uid]
    for _ in range(STEPS_UP):
        front = [above for uid in front for above in known[uid].to(IS_A)]
        found |= set(front)
    if one.satellite:
        found |= set(one.to((SIMILAR,)))
    return found - {one.uid}
