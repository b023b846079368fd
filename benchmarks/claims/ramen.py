"""Claims of RAMEN, as experiments on planted worlds with a metadata graph.

`LEAN` is the recipe with narrow vectors of words alone and a shortened schedule; test documents have no edges in any
of these worlds. Every variant of a claim has the same base, settings and number of epochs. A margin is how many
points a difference must exceed, or may fall short by; none was chosen by the outcome of a claim.
R17 and R18 compare with graph networks that look at metadata when they predict (`linked_networks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.claims.crafted_worlds import UnseenLabels, augmented_world, two_sets_world
from benchmarks.claims.deepxml import WORDS_ALONE
from benchmarks.claims.eclare import LEAN as ECLARE
from benchmarks.claims.entries import Claim, Control, Difference, Level, Probe, Value, Variant, difference, over_seeds
from benchmarks.claims.linked_networks import gcn_linked, gcn_oracle, missed, sage_linked, sage_oracle, tail_gains_most
from benchmarks.claims.ramen_measures import (
    SEEDS,
    edges_told_apart,
    link_recall,
    paired_difference,
    time_ratio,
    unseen_ranking,
    weight_order,
)
from benchmarks.claims.verdict import Estimate, estimate
from benchmarks.claims.workshop import Workshop
from benchmarks.claims.worlds import Crafted, Folder, Planted

Measured = tuple[Estimate, Mapping[str, Any]]

SCHEDULE = (*WORDS_ALONE, "encoder.width=128", "train.epochs=20")
# The warm-up and the distance of prunings shrink with the schedule.
LEAN = Variant("ramen", (*SCHEDULE, "regularise.warm_up=5", "regularise.every=5"))
ANCE = Variant("ance", SCHEDULE)
TWO_MEMBERS = ANCE.changed("ensemble.learners=2")
WORLD = {
    "documents": 3_000,
    "test_documents": 8_000,
    "labels": 750,
    "topics": 15,
    "text_informativeness": 0.6,
    "token_dropout": 0.6,
    "graph_coverage": 0.8,
    "noise_edges": 0.1,
}
JUNK = {**WORLD, "noise_edges": 1.0}
NOISY = {**WORLD, "noise_edges": 0.3}
DATA, JUNK_DATA, NOISY_DATA = Planted("small", WORLD), Planted("small", JUNK), Planted("small", NOISY)
SPREAD_DATA = Crafted(augmented_world, NOISY)
OTHERS = ("ngame", "dexml", "siamese", "eclare")
REAL_DATA = ("wordnet-related", "debian-related")
USELESS = "what the graph knows: all edges are drawn at random"


def plain(base: str) -> Variant:
    return ECLARE if base == ECLARE.recipe else Variant(base, SCHEDULE)


def on_base(base: str) -> Variant:
    """RAMEN with the settings of `plain`."""
    return LEAN.changed(f"base={base}", *(("eclare.surrogate.width=128",) if base == ECLARE.recipe else ()))


def ance_time(workshop: Workshop) -> Measured:
    return time_ratio(workshop, of=LEAN, to=ANCE, data=DATA)


def two_members_time(workshop: Workshop) -> Measured:
    return time_ratio(workshop, of=TWO_MEMBERS, to=ANCE, data=DATA)


def augmented_against_ramen(workshop: Workshop) -> Measured:
    return paired_difference(workshop, a=(ANCE, SPREAD_DATA), b=(LEAN, NOISY_DATA), metric="P@1")


def base_against_ramen(workshop: Workshop) -> Measured:
    return paired_difference(workshop, a=(ANCE, NOISY_DATA), b=(LEAN, NOISY_DATA), metric="P@1")


def tail_against_linked(workshop: Workshop) -> Measured:
    """What the tail bin contributes to FN@10 of RAMEN minus FN@10 of the linked network, minus what its nearest rival
    among the bins does.
    """
    trained = {
        name: [workshop.trained(variant, DATA, seed) for seed in range(SEEDS)]
        for name, variant in (("ramen", LEAN), ("ance", ANCE))
    }
    tail, other, rival = tail_gains_most(
        [missed(each) for each in trained["ramen"]], [sage_linked(each) for each in trained["ance"]]
    )
    numbers = {
        "tail": [column.value for column in tail],
        "rival": rival,
        "of rival": [column.value for column in other],
    }
    return estimate(tail, other, shared=False, key="tail of FN@10"), numbers


GAIN = Claim(
    id="R6",
    section="RAMEN Table 1",
    sentence="Graphs in training raise P@1 and PSP@5 of ANCE on test documents without edges, and lower P@1 of "
    "other bases by no more than 0.2 point.",
    variants={
        "ance": ANCE,
        "ramen(ance)": LEAN,
        **{name: plain(name) for name in OTHERS},
        **{f"ramen({name})": on_base(name) for name in OTHERS},
    },
    data=DATA,
    all_of=(
        difference("ramen(ance)", "ance", "P@1"),
        difference("ramen(ance)", "ance", "PSP@5"),
        *(difference(f"ramen({name})", name, "P@1", -0.2) for name in OTHERS),
    ),
    controls=(Control(USELESS, difference("ramen(ance)", "ance", "P@1"), data=JUNK_DATA),),
    also=tuple(difference(f"ramen({name})", name, "PSP@5") for name in OTHERS),
    note="The paper has +4.4 points of P@1 for ANCE, +2.9 for NGAME, +0.1 for SiameseXML. It has +1.1 for ECLARE.",
)


# wordnet-related has 80,657 documents: half of the epochs, so that 24 trainings fit into a few minutes of a GPU.
# Bases and RAMEN alike.
SHORTENED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "wordnet-related": {"base": ("train.epochs=15",), "ramen": ("train.epochs=15", "regularise.warm_up=5")},
}


def on_real_data(claim: Claim, name: str) -> Claim:
    """A claim with the recipe's defaults on a real data set; the planted world holds the control, and ECLARE, which
    takes longer to train.
    """

    def defaults(variant: Variant) -> Variant:
        assert isinstance(variant.settings, tuple)
        shorter = SHORTENED.get(name, {}).get("ramen" if variant.recipe == LEAN.recipe else "base", ())
        return Variant(variant.recipe, (*(each for each in variant.settings if each.startswith("base=")), *shorter))

    def here(checks: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(check for check in checks if check.b.variant != ECLARE.recipe)

    variants = {key: defaults(variant) for key, variant in claim.variants.items() if ECLARE.recipe not in key}
    return replace(
        claim,
        id=f"{claim.id}@{name}",
        variants=variants,
        data=Folder(name),
        controls=(),
        all_of=here(claim.all_of),
        also=here(claim.also),
        note=f"Control, and ECLARE as a base: see {claim.id}."
        + (" 15 epochs, with a warm-up of 5, in place of 30 and 10." if name in SHORTENED else ""),
    )


def with_minilm(base: str) -> Claim:
    """The claim about one base over MiniLM, with the settings of the bag encoder but for the encoder and its rate.

    Differs: 30 epochs, as all of our dual encoders, in place of 300; MiniLM (6 layers) in place of DistilBERT.
    """
    name, checkpoint = f"ramen({base})", "features.checkpoint=minilm"
    gains = (difference(name, base, "P@1", 0.0 if base == "ance" else -0.2), difference(name, base, "PSP@5"))
    return Claim(
        id=f"R6@debian-related-minilm-{base}",
        section="RAMEN Table 1",
        sentence="With MiniLM as the encoder, graphs in training "
        f"{'raise P@1 and PSP@5' if base == 'ance' else 'do not lower P@1 by more than 0.2 point'} "
        f"of {base} on test documents without edges.",
        variants={base: Variant(base, (checkpoint,)), name: Variant("ramen", (f"base={base}", checkpoint))},
        data=Folder("debian-related"),
        all_of=gains if base == "ance" else gains[:1],
        also=() if base == "ance" else gains[1:],
        note="Needs a GPU; with --seeds 1 intervals are those of documents alone, and there is no verdict. Differs: "
        "30 epochs in place of 300.",
    )


def noisy(rate: float, *settings: str) -> Variant:
    return LEAN.changed(f"graphs.noise={rate:g}", *settings)


NOISE_RATES = (0.0, 0.3, 0.6)
PRUNINGS: Mapping[str, tuple[str, ...]] = {"pruned": (), "all": ("regularise.prune=none",)}
INITIAL = ("0.1", "0.5", "1.0")
OTHER_BANDITS = ("task", "heldout", "gauss", "ratio", "pairs", "pairs, task", "pairs, heldout")

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="R1t",
        section="RAMEN Table 3",
        sentence="Predicting with RAMEN(ANCE) takes between 0.95 and 1.05 times as long as with ANCE.",
        variants={},
        data=None,
        all_of=(
            Probe("time of RAMEN(ANCE) / ANCE", ance_time, 1.05, "below", over_seeds(1, (LEAN, DATA), (ANCE, DATA))),
            Probe("time of RAMEN(ANCE) / ANCE", ance_time, 0.95),
        ),
        controls=(
            Control(
                "the equality: two models are asked",
                Probe("time of two members / one", two_members_time, 1.05, needs=over_seeds(1, (TWO_MEMBERS, DATA))),
                expect="holds",
            ),
        ),
        note="Five repeats, both in turn.",
    ),
    GAIN,
    *(on_real_data(GAIN, name) for name in REAL_DATA),
    *(with_minilm(base) for base in ("ance", "dexml", "ngame", "siamese")),
    Claim(
        id="R6c",
        section="RAMEN Table 5",
        sentence="A random graph is not shown to raise P@1, and costs at most 1 point where pruning and bandit are "
        "at work.",
        variants={
            "ance": ANCE,
            "ramen": LEAN,
            "unprotected": LEAN.changed("regularise.prune=none", "bandit.enabled=false"),
        },
        data=JUNK_DATA,
        all_of=(difference("ramen", "ance", "P@1", 0.0, "not above"), difference("ramen", "ance", "P@1", -1.0)),
        controls=(Control("the randomness", difference("ramen", "ance", "P@1"), data=DATA, expect="holds"),),
        also=(difference("unprotected", "ance", "P@1"),),
    ),
    Claim(
        id="R7",
        section="RAMEN Table 5 (no pruning)",
        sentence="Where 60% of the edges are moved to random anchors pruning raises P@1; where none are it costs no "
        "more than 0.3 point.",
        variants={
            f"{name} {rate:g}": noisy(rate, *settings)
            for rate in NOISE_RATES
            for name, settings in (("pruned", ()), ("all", ("regularise.prune=none",)))
        },
        data=DATA,
        all_of=(difference("pruned 0.6", "all 0.6", "P@1"), difference("pruned 0", "all 0", "P@1", -0.3)),
        controls=(
            Control(
                "the choice: edges are pruned at a cosine that all of them have",
                difference("none dropped", "all 0.6", "P@1"),
                variants={"none dropped": noisy(0.6, "regularise.threshold=-1")},
            ),
        ),
        also=(difference("pruned 0.3", "all 0.3", "P@1"),),
        note="The paper has -3.9 points of P@1 without pruning.",
    ),
    Claim(
        id="R8",
        section="RAMEN App. (pruning)",
        sentence="Of the edges that pruning keeps more are true than of all, and cosines tell true from injected "
        "edges with an AUC above 70%.",
        variants={"ramen": LEAN},
        data=Planted("small", {**WORLD, "noise_edges": 0.5}),
        all_of=(
            Difference(
                Value("ramen", "precision of kept", edges_told_apart),
                Value("ramen", "precision of all", edges_told_apart),
            ),
            Level(Value("ramen", "AUC", edges_told_apart), 70.0),
        ),
        controls=(
            Control(
                "the encoder: cosines are shuffled among edges",
                Level(Value("ramen", "AUC by chance", edges_told_apart), 70.0),
            ),
        ),
        shown=(),
        note="Edges of training documents, by the encoder at the end.",
    ),
    Claim(
        id="R9",
        section="RAMEN Table 5 (no bandits)",
        sentence="With one set of anchors that informs and one that does not, learnt weights are at most 0.1 point "
        "of P@1 worse than uniform ones, and the "
        "uninformative set ends with the lower weight in at least 80% of trainings.",
        variants={
            "bandit": LEAN,
            "uniform": LEAN.changed("bandit.enabled=false"),
            "task": LEAN.changed("bandit.reward=task"),
            "heldout": LEAN.changed("bandit.reward=heldout"),
            "gauss": LEAN.changed("bandit.estimator=gauss_score"),
            "ratio": LEAN.changed("bandit.estimator=paper_ratio"),
            "pairs": LEAN.changed("bandit.estimator=pairs"),
            "pairs, task": LEAN.changed("bandit.estimator=pairs", "bandit.reward=task"),
            "pairs, heldout": LEAN.changed("bandit.estimator=pairs", "bandit.reward=heldout"),
            "stay at 0.1": LEAN.changed("bandit.enabled=false", "bandit.fixed=0.1"),
        },
        data=Crafted(two_sets_world, WORLD),
        all_of=(difference("bandit", "uniform", "P@1", -0.1), Level(Value("bandit", "junk below", weight_order), 80.0)),
        controls=(
            Control(
                "the difference: both sets have the same edges",
                Level(Value("bandit", "junk below", weight_order), 80.0),
                data=Crafted(two_sets_world, {**WORLD, "junk": False}),
            ),
        ),
        also=(
            *(difference(name, "uniform", "P@1") for name in (*OTHER_BANDITS, "stay at 0.1")),
            *(difference(name, "stay at 0.1", "P@1") for name in ("bandit", *OTHER_BANDITS)),
            *(Value(name, "junk below", weight_order) for name in OTHER_BANDITS),
        ),
        seeds=5,
        note="The paper has 35.2 against 20.9 points of P@1. Uniform weights are 1, learnt ones "
        "begin at 0.1: 'stay at 0.1' tells the size of "
        "weights from what is learnt.",
    ),
    Claim(
        id="R10",
        section="RAMEN Table 5 (graph-init)",
        sentence="Weights that begin at 0.1, 0.5 and 1.0 end within 1 point of P@1 of each other.",
        variants={start: LEAN.changed(f"bandit.initial={start}") for start in INITIAL},
        data=DATA,
        all_of=tuple(difference(a, b, "P@1", 1.0, "below") for a in INITIAL for b in INITIAL if a != b),
        controls=(
            Control(
                "the learning, and with it what holds weights together: they stay at 0.1 or at 20",
                difference("stay at 0.1", "stay at 20", "P@1", 1.0),
                variants={
                    f"stay at {weight:g}": LEAN.changed("bandit.enabled=false", f"bandit.fixed={weight:g}")
                    for weight in (0.1, 20.0)
                },
                expect="holds",
            ),
        ),
        note="The paper has 35.2, 34.5 and 34.8.",
    ),
    Claim(
        id="R12",
        section="RAMEN Table 5 (no document graph, no label graph)",
        sentence="Leaving out the edges of documents, or those of labels, raises P@1 by no more than 0.2 point.",
        variants={
            "both": LEAN,
            "labels alone": LEAN.changed("graphs.documents=false"),
            "documents alone": LEAN.changed("graphs.labels=false"),
        },
        data=DATA,
        all_of=tuple(difference(name, "both", "P@1", 0.2, "below") for name in ("labels alone", "documents alone")),
        controls=(Control(USELESS, difference("labels alone", "both", "P@1", -0.2, "below"), data=JUNK_DATA),),
        note="The paper has -5.5 and -1.1 points.",
    ),
    Claim(
        id="R13",
        section="RAMEN Table 5 (AugGT)",
        sentence="ANCE on labels that were spread along a graph with 30% noise has a lower P@1 than RAMEN(ANCE) "
        "with that graph.",
        variants={},
        data=None,
        all_of=(
            Probe(
                "P@1: ANCE on spread labels - RAMEN",
                augmented_against_ramen,
                0.0,
                "below",
                over_seeds(SEEDS, (ANCE, SPREAD_DATA), (LEAN, NOISY_DATA)),
            ),
        ),
        controls=(
            Control(
                "the spreading",
                Probe("P@1: ANCE - RAMEN", base_against_ramen, 0.0, "below", over_seeds(SEEDS, (ANCE, NOISY_DATA))),
                expect="shrinks",
            ),
        ),
        note="The paper has -19.6 points.",
    ),
    Claim(
        id="R14",
        section="RAMEN Table 7",
        sentence="P@1 does not fall by more than 0.3 point from 20% to 50% of the edges, nor from 50% to all.",
        variants={f"{share:g}": LEAN.changed(f"graphs.share={share:g}") for share in (0.2, 0.5, 1.0)},
        data=DATA,
        all_of=(difference("0.5", "0.2", "P@1", -0.3), difference("1", "0.5", "P@1", -0.3)),
        controls=(Control(USELESS, difference("1", "0.2", "P@1"), data=JUNK_DATA),),
        also=(difference("1", "0.2", "P@1"), difference("1", "0.2", "PSP@1")),
        note="The paper has 33.1, 33.8 and 35.2 of P@1.",
    ),
    Claim(
        id="R15",
        section="RAMEN Table 6",
        sentence="RAMEN's encoder finds more of the anchors of test documents than ANCE's.",
        variants={"ance": ANCE, "ramen": LEAN},
        data=DATA,
        all_of=(difference("ramen", "ance", "links R@10", by=link_recall),),
        controls=(Control(USELESS, difference("ramen", "ance", "links R@10", by=link_recall), data=JUNK_DATA),),
        shown=(),
        also=tuple(Value(name, "links R@100", link_recall) for name in ("ance", "ramen")),
        note="Edges of test documents are read by this measure alone. The paper looks at 100 of two million "
        "anchors, here at 10 of a few hundred.",
    ),
    Claim(
        id="R16",
        section="RAMEN Table 12 (zero shot)",
        sentence="Among labels that training never saw, RAMEN(ANCE) has a higher P@1 than ANCE.",
        variants={"ance": ANCE, "ramen": LEAN},
        data=UnseenLabels(WORLD),
        all_of=(difference("ramen", "ance", "P@1", by=unseen_ranking),),
        controls=(Control(USELESS, difference("ramen", "ance", "P@1", by=unseen_ranking), data=UnseenLabels(JUNK)),),
        shown=(),
        also=tuple(Value(name, metric, unseen_ranking) for name in ("ance", "ramen") for metric in ("P@1", "P@5")),
        note="Strict: neither labels nor edges of unseen labels are in training. The paper has +2.7 points.",
    ),
    Claim(
        id="R17",
        section="RAMEN Table 8",
        sentence="RAMEN misses fewer labels (FN@10) than graph networks whose test documents are linked to their "
        "nearest anchors, most of all rare ones.",
        variants={"ance": ANCE, "ramen": LEAN},
        data=DATA,
        all_of=(
            *(
                Difference(Value("ramen", "FN@10", missed), Value("ance", "FN@10", rival), 0.0, "below")
                for rival in (sage_linked, gcn_linked)
            ),
            Probe(
                "FN@10: the tail's share of the difference - that of the bin next to it in size",
                tail_against_linked,
                0.0,
                "below",
            ),
        ),
        controls=(
            Control(
                "what the linker gets wrong: test documents have their true links",
                Difference(Value("ramen", "FN@10", missed), Value("ance", "FN@10", sage_oracle), 0.0, "below"),
            ),
        ),
        also=tuple(
            Difference(Value("ramen", metric, missed), Value("ance", metric, sage_linked))
            for metric in ("FN@5", "FN@20", "FN@50", "FN@100", "P@1", "PSP@5")
        ),
        note="The networks stand on ANCE's encoder; they take the place of OAK, which is not built. The paper has "
        "-2.7 to -8.4 points for k = 5 to 100.",
    ),
    Claim(
        id="R18",
        section="RAMEN Table 2 (oracle linker)",
        sentence="With the true links of test documents, which a method cannot know, graph networks come out above "
        "RAMEN.",
        variants={"ance": ANCE, "ramen": LEAN},
        data=DATA,
        also=tuple(
            Difference(Value("ance", metric, network), Value("ramen", metric, missed))
            for network in (sage_oracle, gcn_oracle, sage_linked, gcn_linked)
            for metric in ("P@1", "PSP@5", "FN@10")
        ),
        note="Leaks by construction. The paper has 38.9 against 35.2 points of P@1; without the oracle 33.7.",
    ),
)
