"""DeepXML/Astec: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "astec-shortlists": "longtail.recipes.astec.ranker:AstecShortlists",
    "cluster-tree": "longtail.recipes.astec.tree:ClusterTree",
    "encoded-tree": "longtail.recipes.astec.ranker:EncodedTree",
    "instance-vote": "longtail.recipes.astec.ranker:InstanceVote",
    "merged-shortlist": "longtail.recipes.astec.ranker:MergedShortlist",
    "reranked": "longtail.recipes.astec.ranker:Reranked",
    "spread-tree": "longtail.recipes.astec.ranker:SpreadTree",
}
