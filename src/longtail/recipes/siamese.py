"""`siamese`: a dual encoder trained by log-loss on pairs, then classifiers that start from the vectors of their
labels' texts.

Paper: Dahiya et al., ICML 2021 (SiameseXML), in the spirit of its three modules; a base method of RAMEN.

Differs: the loss is binary cross-entropy of cosine / temperature - log(labels of the step) over the labels of the
batch and some random ones, in place of the paper's likelihood; classifiers are trained on vectors that no longer
change.
"""

from __future__ import annotations

from longtail.recipes.two_towers import Method, TwoTowersRecipe


class Siamese(TwoTowersRecipe):
    NAME = "siamese"
    METHOD = Method("logistic", classifiers=True)
