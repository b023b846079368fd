"""`ance`: dense retrieval, trained on triplets with hard negatives that the encoder itself finds among all labels.

Paper: Xiong et al., ICLR 2021 (ANCE); a base method of RAMEN. The label vectors are the model: a label that was never
seen in training is found by its text.

Differs: negatives are looked up again every few epochs, not by a second process while training goes on; those of the
batch and some random labels count as well (batches adapt to small data, and small ones hold few negatives).
"""

from __future__ import annotations

from longtail.recipes.two_towers import Method, TwoTowersRecipe


class Ance(TwoTowersRecipe):
    NAME = "ance"
    METHOD = Method("triplet", mined=True)
