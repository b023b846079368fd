"""What the papers claim, in our words. Every claim that is listed here needs a test or an entry.

Type U (unit) and P (property) claims are pytest tests marked ``@pytest.mark.claim("F1")``; B (benchmark) claims are
entries of this package. `tests/benchmarks/test_claims.py` fails when one has neither. A new recipe brings the claims
of its paper. The letter of an id is the paper's: F the framework, metrics and data, A DeepXML and Astec, E ECLARE,
G GalaXC, R RAMEN, N GNN-XML; X is across methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Catalogued:
    """A claim, by its id; type: how it is decided (above)."""

    id: str
    type: Literal["U", "P", "B"]
    sentence: str


FRAMEWORK = (
    Catalogued("F1", "U", "The golden example of the metrics gives its known values."),
    Catalogued(
        "F2",
        "P",
        "At k = 1 P equals nDCG and PSP equals PSnDCG; a perfect ranking scores 1; neither the order of documents "
        "nor monotone score changes matter.",
    ),
    Catalogued("F3", "U", "PSP is a ratio of means, not a mean of ratios."),
    Catalogued("F4", "P", "Propensities follow their closed form, lie between 0 and 1 and grow with label frequency."),
    Catalogued(
        "F5",
        "P",
        "Contributions of label bins sum to P@k and FN@k; each label is in one bin; bins of equal volume hold their "
        "share.",
    ),
    Catalogued("F6", "U", "Every file format survives writing and reading; a broken line is named in the error."),
    Catalogued("F7", "U", "Masked pairs vanish from predictions and truth."),
    Catalogued("F8", "P", "Sampled negatives are valid, unique, within their number, and never positives."),
    Catalogued("F9", "U", "With all labels as negatives, loss and gradient of stage IV are those of dense one-vs-all."),
    Catalogued(
        "F10",
        "U",
        "Classifier rows that no candidate names get no gradient; row-wise Adam is dense Adam on the rows it touches.",
    ),
    Catalogued("F11", "B", "The approximate index finds at least 95% of the true 100 nearest at its defaults."),
    Catalogued("F12", "B", "Time of a shortlist query grows sub-linearly with the number of labels."),
    Catalogued("F13", "U", "A saved model predicts what it predicted before; equal seeds give equal models on a CPU."),
    Catalogued("F14", "P", "Nothing depends on test truth."),
    Catalogued("F15", "P", "The prediction of a document does not depend on its batch."),
    Catalogued("F16", "P", "A label outside the shortlist never outranks one inside."),
    Catalogued("F17", "B", "An ensemble of three is better than its members are on average."),
    Catalogued(
        "F18", "P", "Power iteration bounds the spectral norm, and gradients flow through the normalised matrix."
    ),
)

# Not here: X5 (decided by E7 and R6), X6 (its data cannot be had).
CROSS = (
    Catalogued("X1", "B", "ECLARE and GalaXC beat Astec in PSP@5 where labels have texts and rare ones go unrecorded."),
    Catalogued("X2", "B", "Every method beats the most frequent labels and nearest neighbours."),
    Catalogued("X3", "B", "Every method is within a point of P@1 of its own scores of all labels."),
    Catalogued("X4", "B", "Training times of the methods are reported in their order."),
)

ASTEC = (
    Catalogued(
        "A1",
        "P",
        "Refined features stay within the spectral bound times the length of v (Theorem 1a), on random input and on "
        "every test document.",
    ),
    Catalogued(
        "A2",
        "P",
        "Cosines to centroids before and after refinement bound each other (Theorem 1b) for non-negative v.",
    ),
    Catalogued("A2n", "P", "Without the ReLU on v, Theorem 1b is violated in some cases."),
    Catalogued("A3", "U", "At the start refined features are 2v, so lists by cosine are the same."),
    Catalogued("A4", "P", "Label clusters are balanced, as many as asked for, and hold every label once."),
    Catalogued(
        "A5",
        "P",
        "The objective of a split never falls; clusters of smoothed centroids hold more labels that occur together.",
    ),
    Catalogued("A6", "B", "Hard negatives from the indices beat uniform and unigram ones at equal number."),
    Catalogued("A7", "B", "Both search structures together recall at least what the better one does."),
    Catalogued("A8", "B", "Shortlists by v and by refined features mostly agree."),
    Catalogued(
        "A9",
        "B",
        "Clusters are a better surrogate task than none; label selection and random projection lie between.",
    ),
    Catalogued("A10", "B", "Clustering with label correlations raises recall where labels are missing."),
    Catalogued("A11", "B", "The re-ranker does not hurt and helps somewhere."),
    Catalogued("A12", "B", "The spectral bound costs nothing and alone bounds the drift of features."),
    Catalogued("A13", "B", "Several centroids raise the recall of multi-modal head labels and leave the others alone."),
    Catalogued("A14", "B", "Some weight on the similarity gives a better PSP than the classifier alone."),
    Catalogued("A15", "B", "Prediction time grows sub-linearly with the number of labels."),
    Catalogued("A16", "B", "XML-CNN and MACH inside the framework beat their versions that stop after stage I."),
    Catalogued("A17", "B", "On dense vectors the framework beats nearest neighbours on the vectors as they are."),
    Catalogued("A18", "U", "The cluster surrogate trains every word of labelled documents."),
    Catalogued("A19", "B", "Gains over linear one-vs-all on TF-IDF lie in rare labels."),
)

ECLARE = (
    Catalogued("E1", "P", "Counts of walks converge to their closed form; every walk is as long as asked for."),
    Catalogued("E2", "U", "A head label has an edge to itself alone, and the others are as they would be."),
    Catalogued("E3", "P", "The normalised graph is not negative, has a diagonal, and its largest singular value is 1."),
    Catalogued("E4", "U", "Normalisation favours edges to rare labels."),
    Catalogued(
        "E5", "B", "Graph-augmented clusters lose less mutual information than plain ones, random ones lose most."
    ),
    Catalogued(
        "E5u",
        "U",
        "The loss of mutual information of a toy clustering is 0 where it is right and ln 2 where it crosses.",
    ),
    Catalogued(
        "E6",
        "P",
        "GAME without edges changes nothing; the graph of clusters is M^T G M; the numbering of labels does not "
        "matter.",
    ),
    Catalogued("E7", "B", "GAME raises recall and PSP of a plain linear cluster tree and hardly costs P@1."),
    Catalogued("E7c", "B", "Where labels are independent, GAME gains nothing."),
    Catalogued("E8", "B", "No ablation raises PSP@1; without graph or free vectors it falls."),
    Catalogued("E9", "B", "Negatives by personalised PageRank are far worse than the shortlister's."),
    Catalogued("E10", "B", "Neither GCN nor LightGCN in place of GALE is better, GCN is worse."),
    Catalogued("E11", "B", "A sixteenth of the clusters lowers P@1."),
    Catalogued("E12", "B", "Neighbours of neighbours bring nothing."),
    Catalogued(
        "E13",
        "B",
        "Free vectors that start from neighbours' texts beat random ones and equal those from the own text.",
    ),
    Catalogued("E14", "B", "Free vectors matter more for frequent labels, text and graph for rare ones."),
    Catalogued("E15", "U", "Materialised classifiers score as composed ones do."),
    Catalogued("E16", "B", "Walks cost time linear in labels and no dense graph."),
    Catalogued("E17", "U", "Attention weights sum to one; order k gives k + 2 components."),
    Catalogued("E18", "B", "A rare label without a known word is found through a label it occurs with."),
)

GNNXML = (
    Catalogued("N1", "U", "Label graph, degrees, reversed sampler and balance of a small example come out exactly."),
    Catalogued(
        "N2",
        "P",
        "The Laplacian is symmetric with eigenvalues in 0..2; the filter passes less of higher ones, and changes "
        "nothing at order 0.",
    ),
    Catalogued("N3", "P", "Filtering one factor at a time is multiplying with the power of the matrix."),
    Catalogued("N4", "P", "The sampled filter is unbiased, its error falls with the root of the sample."),
    Catalogued("N5", "P", "Labels are drawn by their chances, and a drawn document carries the drawn label."),
    Catalogued(
        "N6", "P", "A document's vector does not depend on the order of vertices; sums of disjoint graphs add up."
    ),
    Catalogued(
        "N7",
        "U",
        "A sentence without keyword hangs on the empty vertex; an edge weighs the number of shared sentences.",
    ),
    Catalogued(
        "N8",
        "B",
        "Clusters by the label graph beat random ones, are no worse than k-means, and lose less mutual information.",
    ),
    Catalogued("N9", "B", "The re-balance branch raises PSP@5 and hardly costs P@1."),
    Catalogued("N9c", "B", "Where labels are equally frequent, the re-balance branch changes nothing."),
    Catalogued("N10", "B", "A graph network beats the sum of vertices; joining its layers does not hurt."),
    Catalogued("N11", "B", "A 60th of the labels as clusters beats a 600th."),
    Catalogued("N12", "B", "Dense label features cluster at least as well as TF-IDF where words have synonyms."),
    Catalogued("N13", "U", "The balance starts at 1; at either end the silent branch gets no gradient."),
    Catalogued("N14", "U", "At inference both branches count the same, whichever copy of a document they get."),
    Catalogued("N15", "B", "More of the clusters than of the labels have many documents."),
    Catalogued("N16", "B", "Prediction time grows sub-linearly with the number of labels."),
)

GALAXC = (
    Catalogued("G1", "P", "With all neighbours a convolution is a product of matrices."),
    Catalogued("G2", "U", "At the start a transformation doubles the positive part."),
    Catalogued("G3", "U", "Attention is a softmax; equal weights are the mean of hops."),
    Catalogued("G4", "P", "The efficient product equals mixing views per label."),
    Catalogued("G5", "U", "Isolated nodes contribute nothing; too few neighbours come again and again."),
    Catalogued(
        "G6",
        "B",
        "Attention of each label is at least as good as the mean of hops, and better somewhere, where labels differ.",
    ),
    Catalogued("G6c", "B", "Where labels are alike, attention changes nothing."),
    Catalogued("G7", "B", "GraphSAGE's link prediction gets worse with hops, GalaXC does not."),
    Catalogued("G8", "B", "Convolved embeddings recall more labels than initial ones."),
    Catalogued("G9", "B", "Warm start beats cold on the same hidden labels."),
    Catalogued("G10", "B", "Known labels are worth more to GalaXC than to a method of text that is trained on them."),
    Catalogued("G11", "B", "GalaXC's encoder beats GraphSAGE's."),
    Catalogued("G12", "B", "Better initial vectors give a better model."),
    Catalogued(
        "G13",
        "B",
        "Informative metadata links test documents better than nearest nodes do, and does not hurt in training.",
    ),
    Catalogued("G14", "B", "Hard negatives improve on random ones where these are few."),
    Catalogued("G15", "B", "Rare labels attend more to far hops than frequent ones."),
    Catalogued("G16", "U", "Prediction leaves the graph unchanged and documents independent of each other."),
    Catalogued("G17", "B", "What hiding the own labels of documents changes is reported."),
    Catalogued("G18", "B", "Prediction time grows sub-linearly; attention makes training at most a quarter longer."),
    Catalogued("G19", "U", "Stage IV changes neither convolutions nor their statistics."),
)

RAMEN = (
    Catalogued(
        "R1",
        "U",
        "RAMEN(M) predicts with the same parts, shapes, bytes and calls of the encoder as M; no graph is inside.",
    ),
    Catalogued("R1t", "B", "Predicting with RAMEN(M) takes as long as with M."),
    Catalogued("R2", "U", "With all weights of regularisers 0, RAMEN(M) is M bit for bit."),
    Catalogued("R3", "P", "A head on unit vectors is a convolution over their cosines, and the theorem's bound holds."),
    Catalogued(
        "R3v",
        "U",
        "The bound cannot be tight for three or more groups without links: the best errors are those of a simplex.",
    ),
    Catalogued(
        "R4",
        "P",
        "Hinge losses are zero exactly where all margins are kept; gradients are those of finite differences.",
    ),
    Catalogued("R5", "P", "Items without anchors do not contribute; negatives of a batch are never edges."),
    Catalogued("R6", "B", "RAMEN(M) beats M on test documents, which have no edges."),
    Catalogued("R6c", "B", "A random graph brings nothing, and costs little with pruning and bandit."),
    Catalogued("R7", "B", "Pruning helps where edges are noisy, and does not hurt where they are not."),
    Catalogued("R8", "B", "Pruning is selective: cosines tell true edges from injected ones."),
    Catalogued(
        "R9", "B", "Learnt weights are no worse than uniform ones, and put less weight on an uninformative graph."
    ),
    Catalogued("R10", "B", "It does not matter where weights begin."),
    Catalogued("R11", "P", "Two estimators of slopes are unbiased; the printed ratio has no variance."),
    Catalogued("R12", "B", "Dropping the graph of documents or of labels does not help."),
    Catalogued("R13", "B", "Labels that are spread along a noisy graph are worse than RAMEN."),
    Catalogued("R14", "B", "More metadata is not worse."),
    Catalogued("R15", "B", "RAMEN's encoder predicts links better than its base's."),
    Catalogued("R16", "B", "RAMEN finds unseen labels better than its base."),
    Catalogued(
        "R17",
        "B",
        "RAMEN misses fewer labels than graph networks with linked test documents, most of all rare ones.",
    ),
    Catalogued(
        "R18",
        "B",
        "How graph networks compare with RAMEN when they know the true links of test documents is reported.",
    ),
    Catalogued("R19", "U", "No node of a graph is a test document after preparation."),
)

CATALOGUE = {claim.id: claim for claim in (*FRAMEWORK, *CROSS, *ASTEC, *ECLARE, *GNNXML, *GALAXC, *RAMEN)}
