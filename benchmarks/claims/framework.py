"""Claims about the framework itself: search, its growth, and ensembles."""

from __future__ import annotations

from benchmarks.claims import timing
from benchmarks.claims.deepxml import LEAN, SEARCH_ONLY, WORLD
from benchmarks.claims.entries import Claim, Control, Difference, Level, Probe, Value
from benchmarks.claims.model_measures import index_recall, members
from benchmarks.claims.worlds import Planted

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="F11",
        section="DeepXML App. A.4",
        sentence="HNSW at its defaults finds at least 95% of the true 100 nearest label centroids.",
        variants={"astec": SEARCH_ONLY},
        data=Planted("small", WORLD),
        all_of=(Level(Value("astec", "recall of HNSW", index_recall), 95.0),),
        controls=(
            Control("links of the graph", Level(Value("astec", "recall of a crippled graph", index_recall), 95.0)),
        ),
        shown=(),
    ),
    Claim(
        id="F12",
        section="DeepXML Sec. 4 (prediction)",
        sentence="The time of a shortlist query grows with the number of labels by an exponent below 0.5.",
        variants={},
        data=None,
        all_of=(Probe("exponent of HNSW query time", timing.hnsw_query, 0.5, "below"),),
        controls=(
            Control(
                "the graph: every label is looked at",
                Probe("exponent of exact query time", timing.exact_query, 0.8),
                expect="holds",
            ),
        ),
        note="256 queries at once for the 10 nearest, planted vectors of 128 numbers; no seeds: the interval is "
        "that of the fit through five sizes.",
    ),
    Claim(
        id="F17",
        section="DeepXML Sec. 5 (Astec-3)",
        sentence="An ensemble of three has a higher P@5 than its members on average.",
        variants={"ensemble": LEAN.changed("ensemble.learners=3")},
        data=Planted("small", WORLD),
        all_of=(Difference(Value("ensemble", "P@5", members), Value("ensemble", "members P@5", members)),),
        controls=(
            Control(
                "the difference between members: one of them thrice",
                Difference(Value("ensemble", "repeated P@5", members), Value("ensemble", "first P@5", members)),
            ),
        ),
        also=(Difference(Value("ensemble", "PSP@5", members), Value("ensemble", "members PSP@5", members)),),
    ),
)
