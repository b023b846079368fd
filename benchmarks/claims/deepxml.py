"""Claims of DeepXML and Astec, as experiments on planted worlds.

`LEAN` and `WORLD` were chosen so that a training takes seconds on a GPU and some tens of seconds on one core, and P@1
is that of a model that has learnt (on a world of another seed than those of the claims). No variant or margin was
chosen by the outcome of a claim. Two controls, of A10 and A13, were replaced when a first trial showed that they
leave the mechanism in place; their notes say what it gave.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.claims.crafted_worlds import dense_world, single_label_world
from benchmarks.claims.entries import Claim, Control, Difference, Level, Probe, Sweep, Value, Variant, difference
from benchmarks.claims.measures import by_frequency
from benchmarks.claims.model_measures import (
    drift,
    head_recall,
    linear_one_vs_all,
    list_overlap,
    shortlist_recall,
    structure_recall,
)
from benchmarks.claims.timing import exact_against_hnsw, hnsw_prediction
from benchmarks.claims.worlds import Crafted, Folder, Planted

# Planted words have no inner structure, so sub-words and pairs would be noise.
WORDS_ALONE = ("features.pairs=false", "features.subwords=none")
# Claims are about stages I to IV; what the re-ranker adds to them is A11.
FIRST_MODEL = "reranker.enabled=false"
# Sizes and rates for a small world.
SMALL = (
    *WORDS_ALONE,
    "surrogate.width=192",
    "surrogate.batch=64",
    "surrogate.epochs=15",
    "surrogate.rate=0.01",
    "surrogate.halve_at=10",
    "shortlist.size=200",
    "shortlist.neighbours=50",
    "classify.count=100",
    "classify.random=10",
    "classify.batch=64",
    "classify.epochs=10",
    "classify.rate=0.005",
    "classify.halve_at=8",
)
LEAN = Variant("astec", (*SMALL, FIRST_MODEL))
# Words of labels are often missing or replaced: nearest neighbours on TF-IDF find 65% of first places, so there is
# room on both sides.
WORLD = {
    "documents": 12_000,
    "test_documents": 6_000,
    "labels": 3_000,
    "topics": 60,
    "text_informativeness": 0.6,
    "token_dropout": 0.6,
    "graph_coverage": 0.0,
}
# For the token CNN, which is slow on a CPU.
HALF = {**WORLD, "documents": 6_000, "labels": 1_500, "topics": 30}
# Words are noise, all labels are equally frequent, and no document is a label: such a one has that label's text, and
# whoever finds the label finds what is recorded together with it.
NOTHING_TO_LEARN = {"text_informativeness": 0.0, "zipf": 0.0, "share_documents_are_labels": 0.0}

# So small that no label has more than 32 documents: below that a label stays within its family, unless it is a
# multi-modal head.
HEAD_WORLD = {**WORLD, "documents": 1_600, "test_documents": 1_600, "labels": 400, "topics": 20, "missing_rate": 0.0}

# Stage IV does not touch what is searched.
SEARCH_ONLY = LEAN.changed("classify.epochs=0", "classify.negatives=uniform")
LABELS_ALONE = SEARCH_ONLY.changed("shortlist.structures=labels", "shortlist.head_labels=20")

ALPHAS = (0.1, 0.25, 0.5, 0.75, 0.9)
STAGE_ONE_ONLY = "classify.learner=surrogate"

# At equal number of negatives and epochs; nothing but their source differs, so no extra random ones. Shortlists are as
# long as a document has negatives: hard ones teach nothing about labels beyond them.
HUNDRED = ("classify.count=100", "classify.random=0", "shortlist.size=100")
NEGATIVES = {name: LEAN.changed(f"classify.negatives={name}", *HUNDRED) for name in ("shortlist", "uniform", "unigram")}
REAL_NEGATIVES = {
    name: Variant("astec", (f"classify.negatives={name}", *HUNDRED, FIRST_MODEL))
    for name in ("shortlist", "uniform", "unigram")
}
BEATS_OTHER_NEGATIVES = tuple(
    difference("shortlist", other, metric) for other in ("uniform", "unigram") for metric in ("P@1", "P@5")
)

HARD_NEGATIVES = Claim(
    id="A6",
    section="DeepXML Table 6 (d)",
    sentence="With 100 negatives per document, those from the two indices beat uniform and unigram ones in P@1 and "
    "P@5.",
    variants=NEGATIVES,
    data=Planted("small", WORLD, truth="complete"),
    all_of=BEATS_OTHER_NEGATIVES,
    controls=(
        Control(
            "the choice: there are no more labels than negatives",
            difference("shortlist", "uniform", "P@1", 0.5),
            data=Planted(
                "tiny",
                {
                    "documents": 4_000,
                    "test_documents": 6_000,
                    "labels": 100,
                    "topics": 10,
                    "graph_coverage": 0.0,
                    "share_documents_are_labels": 0.0,
                },
                truth="complete",
            ),
        ),
    ),
    note="The paper has 13 to 18 points on 500,000 labels.",
)


def on_real_data(name: str) -> Claim:
    """A6 at the recipe's sizes on a real data set, before any re-ranker; the planted world holds the control."""
    return replace(
        HARD_NEGATIVES,
        id=f"A6@{name}",
        variants=REAL_NEGATIVES,
        data=Folder(name),
        controls=(),
        note="Control: see A6.",
    )


CLAIMS: tuple[Claim, ...] = (
    HARD_NEGATIVES,
    # The paper's claim is also tested on one real set; on wordnet-related its nine trainings would take a quarter of
    # an hour of a GPU.
    on_real_data("debian-related"),
    Claim(
        id="A7",
        section="DeepXML Sec. 4 (Module II)",
        sentence="Label centroids and voting documents together recall at least what the better of them does, "
        "within 0.1 point.",
        variants={"astec": SEARCH_ONLY},
        data=Planted("small", WORLD, truth="complete"),
        all_of=tuple(
            Difference(
                Value("astec", "recall by both", structure_recall),
                Value("astec", f"recall by {alone}", structure_recall),
                -0.1,
            )
            for alone in ("labels", "documents")
        ),
        controls=(
            Control(
                "the votes of documents",
                Difference(
                    Value("astec", "recall by idle votes", structure_recall),
                    Value("astec", "recall by labels", structure_recall),
                    0.1,
                ),
            ),
        ),
        shown=(),
    ),
    Claim(
        id="A8",
        section="DeepXML Sec. 4 (Module II)",
        sentence="The 100 nearest labels by v and by refined features agree in at least 70%.",
        variants={"astec": LEAN},
        data=Planted("small", WORLD),
        all_of=(Level(Value("astec", "overlap", list_overlap), 70.0),),
        controls=(
            Control(
                "the document: the lists are of two different ones",
                Level(Value("astec", "overlap of unrelated", list_overlap), 70.0),
            ),
        ),
        note="The paper has more than 87%.",
    ),
    Claim(
        id="A9",
        section="DeepXML Table 6 (b)",
        sentence="Clusters as surrogate task beat features without supervision in P@1.",
        variants={
            task: LEAN.changed(f"surrogate.task={task}")
            for task in ("cluster", "label_selection", "random", "unsupervised")
        },
        data=Planted("small", WORLD, truth="complete"),
        all_of=(difference("cluster", "unsupervised", "P@1"),),
        controls=(
            Control(
                "what there is to learn: text is noise, no label is more frequent",
                difference("cluster", "unsupervised", "P@1", 0.2),
                data=Planted("small", {**WORLD, **NOTHING_TO_LEARN}, truth="complete"),
            ),
        ),
        also=(
            difference("cluster", "label_selection", "P@1"),
            difference("cluster", "random", "P@1"),
            difference("label_selection", "unsupervised", "P@1"),
            difference("random", "unsupervised", "P@1"),
        ),
    ),
    Claim(
        id="A10",
        section="DeepXML App. A.2",
        sentence="Clustering with label correlations raises the recall of shortlists where labels are missing.",
        variants={
            "with": SEARCH_ONLY.changed("surrogate.correlations=true"),
            "without": SEARCH_ONLY.changed("surrogate.correlations=false"),
        },
        data=Planted("small", {**WORLD, "missing_rate": 0.5}, truth="complete"),
        all_of=(difference("with", "without", "recall@20", by=shortlist_recall),),
        controls=(
            Control(
                "the correlation: no two labels are recorded together",
                difference("with", "without", "recall@20", by=shortlist_recall),
                data=Crafted(single_label_world, {**WORLD, "missing_rate": 0.5}),
            ),
            Control(
                "their meaning: labels of a document are drawn independently",
                difference("with", "without", "recall@20", by=shortlist_recall),
                data=Planted("small", {**WORLD, "missing_rate": 0.5, "independent_labels": True}, truth="complete"),
                expect="shrinks",
            ),
        ),
        shown=(),
        also=tuple(difference("with", "without", f"recall@{k}", by=shortlist_recall) for k in (30, 100)),
        note="The paper has 2 points. Labels drawn independently still occur together by chance, and smoothing over "
        "them helps too, so there the gain "
        "need only shrink. (It was first asked to vanish there, and did not: 0.8 beside 1.9 points.)",
    ),
    Claim(
        id="A11",
        section="DeepXML Sec. 4 (re-ranking)",
        sentence="The re-ranker costs no more than 0.2 point of P@1 and PSP@5 and gains in one of them.",
        variants={
            "reranked": LEAN.changed(
                "reranker.enabled=true", "reranker.depth=100", "reranker.epochs=12", "reranker.rate=0.005"
            ),
            "base": LEAN,
        },
        data=Planted("small", WORLD),
        all_of=tuple(difference("reranked", "base", metric, -0.2) for metric in ("P@1", "PSP@5")),
        any_of=tuple(difference("reranked", "base", metric) for metric in ("P@1", "PSP@5")),
        controls=(
            Control(
                "its say: beta = 0",
                difference("mute", "base", "PSP@5"),
                variants={
                    "mute": LEAN.changed(
                        "reranker.enabled=true",
                        "reranker.depth=100",
                        "reranker.epochs=12",
                        "reranker.rate=0.005",
                        beta=0.0,
                    )
                },
            ),
        ),
    ),
    Claim(
        id="A12",
        section="DeepXML Sec. 4 and Theorem 1",
        sentence="The spectral bound costs no more than 0.2 point of P@1, and keeps every document's drift within "
        "the bound.",
        variants={
            "bounded": LEAN,
            "unbounded": LEAN.changed("transfer.bound_mode=off", "surrogate.bound_mode=off"),
            "full": LEAN.changed("transfer.block=full", "surrogate.block=full"),
        },
        data=Planted("small", WORLD, truth="complete"),
        all_of=(
            difference("bounded", "unbounded", "P@1", -0.2),
            Level(Value("bounded", "beyond the bound", drift), 0.001, "below"),
        ),
        controls=(
            Control(
                "the bound: drift beyond it occurs",
                Level(Value("unbounded", "beyond the bound", drift), 0.0),
                expect="holds",
            ),
            Control(
                "its effect: a bound of 1000 never binds",
                difference("loose", "unbounded", "P@1"),
                variants={"loose": LEAN.changed("transfer.bound=1000", "surrogate.bound=1000")},
            ),
        ),
        also=(
            difference("bounded", "full", "P@1"),
            Value("bounded", "drift", drift),
            Value("unbounded", "drift", drift),
        ),
    ),
    Claim(
        id="A13",
        section="DeepXML App. A.4",
        sentence="Several centroids raise the recall of multi-modal head labels and leave other labels alone.",
        variants={
            "several": LABELS_ALONE.changed("shortlist.head_centres=5"),
            "one": LABELS_ALONE.changed("shortlist.head_centres=1"),
        },
        data=Planted("small", {**HEAD_WORLD, "multimodal_heads": 4}, truth="complete"),
        all_of=(
            difference("several", "one", "recall@20 of heads", by=head_recall),
            difference("several", "one", "recall@20 of others", 0.5, "within", by=head_recall),
        ),
        controls=(
            Control(
                "the modes: a head label is of one family",
                difference("several", "one", "recall@20 of heads", 0.5, by=head_recall),
                data=Planted("small", {**HEAD_WORLD, "multimodal_heads": 0}, truth="complete"),
            ),
        ),
        shown=(),
        also=(Value("one", "recall@20 of heads", head_recall), Value("several", "recall@20 of heads", head_recall)),
        seeds=8,
        note="The paper measures recall@300 among 500,000 labels, here it is 20 among 400. In the larger world "
        "every frequent label is spread over many "
        "families, whether declared multi-modal or not, and gains alike (2.7 and 2.3 points in a first trial), so "
        "that world has no control.",
    ),
    Claim(
        id="A14",
        section="DeepXML Sec. 4 (prediction)",
        sentence="Some weight on the similarity gives a better PSP@5 than the classifier alone.",
        variants={
            "alpha 1": LEAN.changed(alpha=1.0),
            **{f"alpha {alpha}": LEAN.changed(alpha=alpha) for alpha in ALPHAS},
        },
        data=Planted("small", WORLD),
        all_of=(Sweep(tuple(Value(f"alpha {alpha}", "PSP@5") for alpha in ALPHAS), Value("alpha 1", "PSP@5")),),
        controls=(
            Control(
                "what the similarity says: a huge temperature makes it the same for all labels",
                Sweep(tuple(Value(f"flat {alpha}", "PSP@5") for alpha in ALPHAS), Value("flat 1", "PSP@5")),
                variants={f"flat {alpha:g}": LEAN.changed(alpha=alpha, temperature=1e9) for alpha in (*ALPHAS, 1.0)},
            ),
        ),
        note="The weight changes predictions only; all values share a training.",
    ),
    Claim(
        id="A15",
        section="DeepXML Sec. 4 (prediction)",
        sentence="The time of a whole prediction grows with the number of labels by an exponent below 0.6.",
        variants={},
        data=None,
        all_of=(Probe("exponent of prediction time", hnsw_prediction, 0.6, "below"),),
        controls=(
            Control(
                "the graphs: every label and document is looked at",
                Probe("exponent with exact search - with graphs", exact_against_hnsw, 0.0),
                expect="holds",
            ),
        ),
        note="256 documents at once, planted vectors of 128 numbers, as many training documents as labels.",
    ),
    Claim(
        id="A16",
        section="DeepXML Table 4",
        sentence="XML-CNN and MACH inside the framework beat their versions that stop after stage I, in P@1.",
        variants={
            f"{name}{suffix}": LEAN.changed(*how, *more)
            for name, how in (
                ("XML-CNN", ("surrogate.encoder=cnn", "features.max_tokens=16")),
                ("MACH", ("surrogate.encoder=mlp", "surrogate.task=random")),
            )
            for suffix, more in (("", ()), (", stage I only", (STAGE_ONE_ONLY,)))
        },
        data=Planted("small", HALF, truth="complete"),
        all_of=tuple(difference(name, f"{name}, stage I only", "P@1") for name in ("XML-CNN", "MACH")),
        controls=(
            Control(
                "what there is to learn: text is noise, no label is more frequent",
                difference("MACH", "MACH, stage I only", "P@1", 0.2),
                data=Planted("small", {**HALF, **NOTHING_TO_LEARN}, truth="complete"),
            ),
        ),
    ),
    Claim(
        id="A17",
        section="DeepXML Table 9",
        sentence="On given dense vectors the framework beats nearest neighbours on the vectors as they are, in P@1.",
        variants={"astec": LEAN.changed("surrogate.encoder=dense"), "neighbours": Variant("tiny")},
        data=Crafted(
            dense_world,
            {"documents": 8_000, "test_documents": 4_000, "labels": 1_000, "topics": 40, "graph_coverage": 0.0},
        ),
        all_of=(difference("astec", "neighbours", "P@1"),),
        controls=(
            Control(
                "what vectors know of labels",
                difference("astec", "neighbours", "P@1", 0.5),
                data=Crafted(
                    dense_world,
                    {
                        "documents": 8_000,
                        "test_documents": 4_000,
                        "labels": 1_000,
                        "topics": 40,
                        "graph_coverage": 0.0,
                        "informativeness": 0.0,
                        "zipf": 0.0,
                    },
                ),
            ),
        ),
    ),
    Claim(
        id="A19",
        section="DeepXML Fig. 3",
        sentence="Where gains over linear one-vs-all on TF-IDF lie, by label frequency.",
        variants={"astec": LEAN},
        data=Planted("small", WORLD),
        also=(
            *(
                Difference(Value("astec", metric), Value("astec", metric, linear_one_vs_all))
                for metric in ("P@1", "PSP@5")
            ),
            *(
                Difference(
                    Value("astec", f"PSP@5 [{documents}]", by_frequency),
                    Value("astec", f"PSP@5 [{documents}]", linear_one_vs_all),
                )
                for documents in ("100+", "10-99", "5-9", "2-4", "1", "0")
            ),
        ),
        note="One-vs-all: L2-regularised squared hinge on all documents, C = 1.",
    ),
)
