"""`direct`, the default: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {"remembering-rows": "longtail.recipes.direct.memory:RememberingRows"}
