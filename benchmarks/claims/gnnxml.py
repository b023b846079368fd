"""Claims of GNN-XML, as experiments on planted worlds of long texts.

`LEAN` is the recipe with narrow vectors; `WORLD` is the synthetic world with bodies of several sentences. Both were
chosen for their time and for P@1 of the whole model on a world of another seed, before any variant was trained.
Variants are the recipe's own (`VARIANTS`). A margin is how many points a difference must exceed, or may fall short
by; none was chosen by the outcome of a claim.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.claims.crafted_worlds import long_text_world
from benchmarks.claims.deepxml import NOTHING_TO_LEARN
from benchmarks.claims.entries import Claim, Control, Difference, Probe, Value, Variant, difference
from benchmarks.claims.keygraph_measures import (
    cluster_quality,
    exhaustive_against_beam,
    frequent_shares,
    prediction_growth,
)
from benchmarks.claims.worlds import Crafted, Folder
from longtail.recipes.gnnxml.settings import VARIANTS

BOTH_FIELDS = "features.fields=title,content"
# A score as in the paper: the gate of the cluster times the probability.
AS_PRINTED = "rankers.cluster_power=1"
# Planted words have no inner structure, so pairs would be noise. Few labels: fewer clusters are looked into than log2
# of them.
SMALL = (
    "features.pairs=false",
    "features.keygraph.width=128",
    "matcher.width=128",
    "matcher.epochs=20",
    "rankers.beam=5",
)
LEAN = Variant("gnnxml", (BOTH_FIELDS, *SMALL, AS_PRINTED))
WORLD = {
    "documents": 4_000,
    "test_documents": 6_000,
    "labels": 1_000,
    "topics": 20,
    "text_informativeness": 0.6,
    "graph_coverage": 0.0,
}
LARGER = {**WORLD, "documents": 12_000, "labels": 6_000, "topics": 60}
LONG = Crafted(long_text_world, WORLD)
INDEPENDENT = Crafted(long_text_world, {**WORLD, "independent_labels": True})
FLAT = Crafted(long_text_world, {**WORLD, "zipf": 0.0})
NOISE = Crafted(long_text_world, {**WORLD, **NOTHING_TO_LEARN})

PARTITIONS = {"graph": LEAN, "k-means": LEAN.changed(*VARIANTS["k-means"]), "random": LEAN.changed(*VARIANTS["random"])}
BRANCHES = {"both": LEAN, "conventional": LEAN.changed("matcher.branches=conventional")}
STEPS = {name: LEAN.changed(*VARIANTS[name]) for name in ("v1", "v2", "v3", "v4")}
FEATURES = {"dense": LEAN, "tf-idf": LEAN.changed(*VARIANTS["tf-idf"])}

REBALANCE = Claim(
    id="N9",
    section="GNN-XML Fig. 3 (v3)",
    sentence="The re-balance branch raises PSP@5 where labels are long-tailed, and costs no more than 0.5 point of "
    "P@1.",
    variants=BRANCHES,
    data=LONG,
    all_of=(difference("both", "conventional", "PSP@5"), difference("both", "conventional", "P@1", -0.5)),
    controls=(
        Control(
            "the tail: all labels are equally frequent", difference("both", "conventional", "PSP@5", 0.5), data=FLAT
        ),
    ),
    shown=("P@1", "P@5", "PSP@1", "PSP@5", "R@100"),
    also=(
        difference("both", "conventional", "PSP@1"),
        difference("both", "conventional", "cluster recall", by=cluster_quality),
    ),
)


def on_real_data(name: str) -> Claim:
    """N9 with the recipe's defaults on a real data set; the planted world holds the control."""
    chosen = {
        "both": Variant("gnnxml", (BOTH_FIELDS,)),
        "conventional": Variant("gnnxml", (BOTH_FIELDS, "matcher.branches=conventional")),
    }
    return replace(REBALANCE, id=f"N9@{name}", variants=chosen, data=Folder(name), controls=(), note="Control: see N9.")


# At prediction each of two branches counts half, so gates are flatter than those of one: is it that?
HALVED = replace(
    REBALANCE,
    id="N9@halved",
    sentence="The re-balance branch raises PSP@5 where labels are long-tailed, also beside one branch whose log-odds "
    "are halved, and costs no more than 0.5 point of P@1.",
    variants={**BRANCHES, "conventional": BRANCHES["conventional"].changed("rankers.logit_scale=0.5")},
)
COUNTS = Claim(
    id="N11",
    section="GNN-XML Fig. 4 (number of clusters)",
    sentence="A 60th of the labels as clusters gives a higher P@5 than a 600th.",
    variants={f"L/{each}": LEAN.changed(f"clusters.count={LARGER['labels'] // each}") for each in (600, 120, 60, 30)},
    data=Crafted(long_text_world, LARGER),
    all_of=(difference("L/60", "L/600", "P@5"),),
    controls=(
        Control(
            "what there is to learn: text is noise, no label is more frequent",
            difference("L/60", "L/600", "P@5"),
            data=Crafted(long_text_world, {**LARGER, **NOTHING_TO_LEARN}),
        ),
    ),
    also=(
        difference("L/60", "L/120", "P@5"),
        difference("L/30", "L/60", "P@5"),
        difference("L/60", "L/600", "PSP@5"),
    ),
)
# As many clusters are looked into as hold a tenth of the labels, however many there are.
REACHED = replace(
    COUNTS,
    id="N11@reach",
    sentence="Where clusters are looked into until they hold a tenth of the labels, a 60th of the labels as clusters "
    "gives a higher P@5 than a 600th.",
    variants={name: each.changed(f"rankers.reach={LARGER['labels'] // 10}") for name, each in COUNTS.variants.items()},
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="N8",
        section="GNN-XML Fig. 4 (label partitioning)",
        sentence="Clusters by the label graph are better than random ones for matcher and ranking, no worse than "
        "k-means within 0.1 point, and lose "
        "less mutual information than k-means.",
        variants=PARTITIONS,
        data=LONG,
        all_of=(
            difference("graph", "random", "P@5"),
            difference("graph", "random", "cluster recall", by=cluster_quality),
            difference("graph", "k-means", "P@5", -0.1),
            difference("graph", "k-means", "cluster recall", -0.1, by=cluster_quality),
            difference("graph", "k-means", "training LMI", 0.0, "below", cluster_quality),
        ),
        controls=(
            Control(
                "the correlation: labels of a document are drawn independently",
                difference("graph", "k-means", "training LMI", 0.0, "below", cluster_quality),
                data=INDEPENDENT,
                expect="shrinks",
            ),
        ),
        also=(
            difference("graph", "k-means", "LMI", by=cluster_quality),
            difference("k-means", "random", "P@5"),
            difference("k-means", "random", "cluster recall", by=cluster_quality),
        ),
        note="Labels drawn independently still occur together by chance, which the graph sees too, so there the "
        "gain need only shrink.",
    ),
    REBALANCE,
    HALVED,
    on_real_data("debian-related"),
    Claim(
        id="N9c",
        section="GNN-XML Fig. 3 (v3)",
        sentence="Where all labels are equally frequent, the re-balance branch moves PSP@5 by less than 0.5 point.",
        variants=BRANCHES,
        data=FLAT,
        all_of=(difference("both", "conventional", "PSP@5", 0.5, "within"),),
        controls=(
            Control(
                "the flatness: labels are long-tailed",
                difference("both", "conventional", "PSP@5"),
                data=LONG,
                expect="holds",
            ),
        ),
        shown=("P@1", "P@5", "PSP@1", "PSP@5", "R@100"),
        note="It is the control of N9; its own control is N9's world.",
    ),
    Claim(
        id="N10",
        section="GNN-XML Fig. 3 (v1 to v4)",
        sentence="One graph network beats the sum of vertices in P@5, and joining its layers costs no more than 0.1 "
        "point.",
        variants=STEPS,
        data=LONG,
        all_of=(difference("v2", "v1", "P@5"), difference("v4", "v3", "P@5", -0.1)),
        controls=(
            Control(
                "what there is to learn: text is noise, no label is more frequent",
                difference("v2", "v1", "P@5"),
                data=NOISE,
            ),
        ),
        also=(
            difference("v3", "v2", "P@5"),
            difference("v3", "v2", "PSP@5"),
            difference("v2", "v1", "cluster recall", by=cluster_quality),
            difference("v4", "v3", "cluster recall", by=cluster_quality),
        ),
    ),
    COUNTS,
    REACHED,
    Claim(
        id="N12",
        section="GNN-XML Fig. 4 (label representations)",
        sentence="Dense label features give clusters that are at least as good as those of TF-IDF features, where "
        "words have synonyms.",
        variants=FEATURES,
        data=Crafted(long_text_world, {**WORLD, "synonyms": 6}),
        all_of=(difference("dense", "tf-idf", "P@5"),),
        controls=(
            Control(
                "the synonyms, and all that words say",
                difference("dense", "tf-idf", "P@5"),
                data=NOISE,
            ),
        ),
        also=(
            difference("dense", "tf-idf", "cluster recall", by=cluster_quality),
            difference("dense", "tf-idf", "training LMI", by=cluster_quality),
        ),
        note="Dense features here are means of SVD vectors of sentences, not BERT's.",
    ),
    Claim(
        id="N15",
        section="GNN-XML Fig. 1",
        sentence="The share of clusters with many documents is higher than that of labels.",
        variants={"gnnxml": LEAN},
        data=LONG,
        all_of=(
            Difference(
                Value("gnnxml", "frequent clusters", frequent_shares),
                Value("gnnxml", "frequent labels", frequent_shares),
            ),
        ),
        controls=(
            Control(
                "the clusters: one for every label",
                Difference(
                    Value("alone", "frequent clusters", frequent_shares),
                    Value("alone", "frequent labels", frequent_shares),
                ),
                variants={
                    "alone": LEAN.changed(*VARIANTS["random"], f"clusters.count={WORLD['labels']}", "matcher.epochs=1")
                },
                # Nothing goes unrecorded: a label without a training document would have no cluster.
                data=Crafted(long_text_world, {**WORLD, "missing_rate": 0.0}),
            ),
        ),
        shown=(),
        also=(
            Value("gnnxml", "frequent clusters", frequent_shares),
            Value("gnnxml", "frequent labels", frequent_shares),
        ),
        note="Many is more than 30 of 4,000 documents; the paper has 100 of 14,146 documents (75.8% of clusters, "
        "1.51% of labels).",
    ),
    Claim(
        id="N16",
        section="GNN-XML Theorem 1",
        sentence="Prediction time grows with the number of labels by an exponent below 1.",
        variants={},
        data=None,
        all_of=(Probe("exponent of prediction time", prediction_growth, 1.0, "below"),),
        controls=(
            Control(
                "the beam: all clusters are looked into",
                Probe("exponent with all clusters - with a beam", exhaustive_against_beam, 0.0),
                expect="holds",
            ),
        ),
        note="256 documents at once, random weights, a 60th of the labels as clusters but 2,048 at most, 15 looked "
        "into.",
    ),
)
