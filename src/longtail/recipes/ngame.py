"""`ngame`: batches of similar documents, so that their labels are hard negatives of each other; then a classifier per
label.

Paper: Dahiya et al., WSDM 2023 (NGAME), as RAMEN's appendix has it: documents are clustered by their vectors every 5
epochs, a batch is several clusters, clusters double every 25 epochs.

Differs: classifiers are trained on vectors that no longer change, with all positives of a document up to 20 and 150
    negatives (the paper: 2 and 12).
Differs: some random labels join the negatives of a batch, as in `ance`.
"""

from __future__ import annotations

from longtail.recipes.two_towers import Method, TwoTowersRecipe


class Ngame(TwoTowersRecipe):
    NAME = "ngame"
    METHOD = Method("triplet", clustered=True, classifiers=True)
