"""GNN-XML: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "gnnxml-clusters": "longtail.recipes.gnnxml.ranker:Clusters",
    "gnnxml-matcher": "longtail.recipes.gnnxml.ranker:Matcher",
    "graph-text": "longtail.recipes.gnnxml.features:GraphText",
    "keygraphs": "longtail.recipes.gnnxml.keygraph:KeyGraphs",
    "spectral-sentences": "longtail.recipes.gnnxml.features:SpectralSentences",
    "static-sentences": "longtail.recipes.gnnxml.features:StaticSentences",
    "named-sentences": "longtail.recipes.gnnxml.features:NamedSentences",
    "frozen-gin": "longtail.recipes.gnnxml.ranker:FrozenGin",
    "keygraph-model": "longtail.recipes.gnnxml.ranker:KeygraphModel",
    "cluster-rankers": "longtail.recipes.gnnxml.ranker:ClusterRankers",
    "frequency-curves": "longtail.recipes.gnnxml.label_clusters:FrequencyCurves",
}
