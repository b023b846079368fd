"""`direct`, the default: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "remembering-rows": "longtail.recipes.direct.memory:RememberingRows",
    "remembering-ensemble": "longtail.recipes.direct.memory:RememberingEnsemble",
    "text-vectors": "longtail.recipes.direct.view:TextVectors",
    "bag-with-view": "longtail.recipes.direct.ranker:BagWithView",
    "members-made-one": "longtail.recipes.direct.members:Members",
    "hidden-map": "longtail.recipes.direct.ranker:HiddenMap",
}
