"""DeepXML/Astec: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "astec-shortlists": "longtail.recipes.astec.ranker:AstecShortlists",
    "encoded-tree": "longtail.recipes.astec.ranker:EncodedTree",
    "spread-tree": "longtail.recipes.astec.ranker:SpreadTree",
}
