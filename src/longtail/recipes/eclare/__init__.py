"""ECLARE: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "eclare-surrogate": "longtail.recipes.eclare.recipe:Surrogate",
    "eclare-shortlists": "longtail.recipes.eclare.recipe:Shortlists",
    "eclare-texts": "longtail.recipes.eclare.recipe:ConvolvedTexts",
    "label-components": "longtail.recipes.eclare.components:LabelComponents",
}
