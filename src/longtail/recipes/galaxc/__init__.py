"""GalaXC: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "galaxc-start": "longtail.recipes.galaxc.recipe:Start",
    "galaxc-network": "longtail.recipes.galaxc.recipe:Network",
    "galaxc-shortlists": "longtail.recipes.galaxc.recipe:Shortlists",
    "joint-graph": "longtail.recipes.galaxc.graph:JointGraph",
    "graph-anchors": "longtail.recipes.galaxc.space:Anchors",
    "graph-space": "longtail.recipes.galaxc.space:GraphSpace",
    "joint-graph-model": "longtail.recipes.galaxc.ranker:JointGraphModel",
    "frozen-hops": "longtail.recipes.galaxc.encoders:FrozenHops",
    "frozen-messages": "longtail.recipes.galaxc.encoders:FrozenMessages",
}
