"""Claims across methods, as experiments on one planted world that all of them read the titles of.

Methods are as they are shipped, but for sizes that suit a small world. X5 (GAME and RAMEN on foreign methods) is E7,
E7@astec-clusters and R6.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.claims import deepxml, eclare, galaxc, gnnxml
from benchmarks.claims.all_labels import all_labels, one_label
from benchmarks.claims.deepxml import NOTHING_TO_LEARN, WORDS_ALONE
from benchmarks.claims.entries import Claim, Control, Difference, Value, Variant, difference
from benchmarks.claims.measures import Columns, Trained, columns_of
from benchmarks.claims.worlds import Folder, Planted
from longtail.evaluation import baselines

WORLD = eclare.WORLD
METHODS = {
    "astec": Variant("astec", (*deepxml.SMALL, "surrogate.width=128")),
    "eclare": eclare.LEAN,
    "galaxc": Variant("galaxc", galaxc.SMALL),
    "gnnxml": Variant("gnnxml", gnnxml.SMALL),
    "direct": Variant("direct", WORDS_ALONE),
}
NOTHING = Planted("small", {**WORLD, **NOTHING_TO_LEARN})
POPULAR, NEAREST = "most frequent labels", "TF-IDF nearest neighbours"


def baseline_ranking(trained: Trained) -> Columns:
    """Every metric of the rankings that need no training, on the data of a trained variant, e.g. ``most frequent
    labels P@1``.
    """
    yardstick = trained.world.yardstick
    tops = baselines(trained.world.dataset, yardstick)
    return {
        f"{name} {metric}": column
        for name, top in tops.items()
        for metric, column in columns_of(yardstick.measure(top)).items()
    }


def above(method: str, baseline: str) -> Difference:
    return Difference(Value(method, "P@1"), Value("astec", f"{baseline} P@1", baseline_ranking))


def on_real_data(claim: Claim, name: str) -> Claim:
    """With the defaults of the recipes; the planted world holds the control."""
    return replace(
        claim,
        id=f"{claim.id}@{name}",
        variants={key: Variant(key) for key in claim.variants},
        data=Folder(name),
        controls=(),
        note="Control: X1.",
    )


LABEL_TEXT = Claim(
    id="X1",
    section="ECLARE Table 2, GalaXC Table 5",
    sentence="Where labels have texts and rare ones go unrecorded, ECLARE and GalaXC beat Astec in PSP@5.",
    variants={name: METHODS[name] for name in ("astec", "eclare", "galaxc")},
    data=Planted("small", WORLD),
    all_of=tuple(difference(name, "astec", "PSP@5") for name in ("eclare", "galaxc")),
    controls=tuple(
        Control(
            "what there is to learn: text is noise, no label is more frequent",
            difference(name, "astec", "PSP@5"),
            data=NOTHING,
        )
        for name in ("eclare", "galaxc")
    ),
    also=tuple(difference(name, "astec", metric) for name in ("eclare", "galaxc") for metric in ("P@1", "PSP@1")),
    note="The papers have 44.1 and 44.0 against 39.5 on 131K labels.",
)

CLAIMS: tuple[Claim, ...] = (
    LABEL_TEXT,
    *(on_real_data(LABEL_TEXT, name) for name in ("wordnet-related", "debian-related", "yso-finna-en")),
    Claim(
        id="X2",
        section="all papers",
        sentence="Every method beats the most frequent labels and nearest neighbours on TF-IDF in P@1.",
        variants=METHODS,
        data=Planted("small", WORLD),
        all_of=tuple(above(method, baseline) for method in METHODS for baseline in (POPULAR, NEAREST)),
        controls=(
            Control(
                "what there is to learn: text is noise, no label is more frequent",
                above("astec", NEAREST),
                data=NOTHING,
            ),
        ),
        note="Titles alone, for which GNN-XML is not made.",
    ),
    Claim(
        id="X3",
        section="all papers",
        sentence="A shortlist costs no method more than one point of P@1 beside scoring all its labels.",
        variants=METHODS,
        data=Planted("small", WORLD),
        all_of=tuple(Difference(Value(method, "P@1"), Value(method, "P@1", all_labels), -1.0) for method in METHODS),
        controls=(
            Control(
                "the shortlist: one label is left of it",
                Difference(Value("astec", "P@5", one_label), Value("astec", "P@5", all_labels), -1.0),
            ),
        ),
        also=tuple(Difference(Value(method, "P@5"), Value(method, "P@5", all_labels)) for method in METHODS),
        note="The default recipe compares every label, so its difference is 0 by construction. ECLARE: every "
        "cluster is looked into.",
    ),
    Claim(
        id="X4",
        section="all papers",
        sentence="How long each method trains, in seconds per stage; hardware decides, so it is reported and not "
        "judged.",
        variants=METHODS,
        data=Planted("small", WORLD),
        note="See `trainings` of the record; in the order of their sums.",
    ),
)
