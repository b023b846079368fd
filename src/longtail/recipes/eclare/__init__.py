"""ECLARE: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "eclare-surrogate": "longtail.recipes.eclare.stages:EclareSurrogate",
    "eclare-shortlists": "longtail.recipes.eclare.stages:EclareShortlists",
    "eclare-texts": "longtail.recipes.eclare.stages:ConvolvedTexts",
    "label-components": "longtail.recipes.eclare.stages:LabelComponents",
}
