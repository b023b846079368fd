"""GalaXC: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "galaxc-start": "longtail.recipes.galaxc.start:Start",
    "galaxc-network": "longtail.recipes.galaxc.network:Network",
    "galaxc-shortlists": "longtail.recipes.galaxc.ranker:GraphShortlists",
    "joint-graph": "longtail.recipes.galaxc.graph:JointGraph",
    "graph-anchors": "longtail.recipes.galaxc.graph:Anchors",
    "graph-space": "longtail.recipes.galaxc.graph:GraphSpace",
    "joint-graph-model": "longtail.recipes.galaxc.ranker:JointGraphModel",
    "frozen-hops": "longtail.recipes.galaxc.ranker:FrozenHops",
    "frozen-messages": "longtail.recipes.galaxc.ranker:FrozenMessages",
}
