"""GalaXC: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "galaxc-start": "longtail.recipes.galaxc.stages:Start",
    "galaxc-network": "longtail.recipes.galaxc.stages:Network",
    "galaxc-shortlists": "longtail.recipes.galaxc.stages:Shortlists",
    "joint-graph": "longtail.recipes.galaxc.graph:JointGraph",
    "graph-anchors": "longtail.recipes.galaxc.linking:Anchors",
    "graph-space": "longtail.recipes.galaxc.linking:GraphSpace",
    "joint-graph-model": "longtail.recipes.galaxc.ranker:JointGraphModel",
    "frozen-hops": "longtail.recipes.galaxc.encoders:FrozenHops",
    "frozen-messages": "longtail.recipes.galaxc.encoders:FrozenMessages",
}
