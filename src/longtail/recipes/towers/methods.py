"""The four methods of dual encoders: each is a `Method` of `TwoTowersRecipe`, and a base method of RAMEN."""

from __future__ import annotations

from longtail.recipes.towers.recipe import Method, TwoTowersRecipe


class Ance(TwoTowersRecipe):
    """Dense retrieval, trained on triplets with hard negatives that the encoder itself finds among all labels.

    Paper: Xiong et al., ICLR 2021 (ANCE). The label vectors are the model: a label that was never seen in training is
    found by its text.

    Differs: negatives are looked up again every few epochs, not by a second process while training goes on; those of
    the batch and some random labels count as well (batches adapt to small data, and small ones hold few negatives).
    """

    NAME = "ance"
    METHOD = Method("triplet", mined=True)


class Ngame(TwoTowersRecipe):
    """Batches of similar documents, so that their labels are hard negatives of each other; then a classifier per label.

    Paper: Dahiya et al., WSDM 2023 (NGAME), as RAMEN's appendix has it: documents are clustered by their vectors every
    5 epochs, a batch is several clusters, clusters double every 25 epochs.

    Differs: classifiers are trained on vectors that no longer change, with all positives of a document up to 20 and
        150 negatives (the paper: 2 and 12).
    Differs: some random labels join the negatives of a batch, as in `ance`.
    """

    NAME = "ngame"
    METHOD = Method("triplet", clustered=True, classifiers=True)


class Dexml(TwoTowersRecipe):
    """Trained by decoupled softmax: each label of a document against all negatives, never against its other labels.

    Paper: Gupta et al., ICLR 2024 (DEXML).

    Differs: a step sees all labels of its documents and `train.random` others; the paper encodes all labels in every
    step, which is `--set train.random=N` with N at least the number of labels.
    """

    NAME = "dexml"
    METHOD = Method("softmax")


class Siamese(TwoTowersRecipe):
    """Trained by log-loss on pairs, then classifiers that start from the vectors of their labels' texts.

    Paper: Dahiya et al., ICML 2021 (SiameseXML), in the spirit of its three modules.

    Differs: the loss is binary cross-entropy of cosine / temperature - log(labels of the step) over the labels of the
    batch and some random ones, in place of the paper's likelihood; classifiers are trained on vectors that no longer
    change.
    """

    NAME = "siamese"
    METHOD = Method("logistic", classifiers=True)
