"""`dexml`: a dual encoder trained by decoupled softmax: each label of a document against all negatives, never against
its other labels.

Paper: Gupta et al., ICLR 2024 (DEXML); a base method of RAMEN.

Differs: a step sees all labels of its documents and `train.random` others; the paper encodes all labels in every
step, which is `--set train.random=N` with N at least the number of labels.
"""

from __future__ import annotations

from longtail.recipes.two_towers import Method, TwoTowersRecipe


class Dexml(TwoTowersRecipe):
    NAME = "dexml"
    METHOD = Method("softmax")
