"""DeepXML/Astec: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "astec-surrogate": "longtail.recipes.astec.recipe:Surrogate",
    "astec-shortlists": "longtail.recipes.astec.recipe:Shortlists",
    "encoded-tree": "longtail.recipes.astec.tree:EncodedTree",
    "gamed": "longtail.recipes.astec.tree:Gamed",
}
