"""GNN-XML: `recipe.py` tells it. PARTS: what only this room saves (see `longtail.persistence`)."""

PARTS: dict[str, str] = {
    "gnnxml-clusters": "longtail.recipes.gnnxml.stages:Clusters",
    "gnnxml-matcher": "longtail.recipes.gnnxml.stages:Matcher",
    "graph-text": "longtail.recipes.gnnxml.features:GraphText",
    "keygraphs": "longtail.recipes.gnnxml.keygraph:KeyGraphs",
    "spectral-sentences": "longtail.recipes.gnnxml.sentences:SpectralSentences",
    "static-sentences": "longtail.recipes.gnnxml.sentences:StaticSentences",
    "named-sentences": "longtail.recipes.gnnxml.sentences:NamedSentences",
    "frozen-gin": "longtail.recipes.gnnxml.ranker:FrozenGin",
    "keygraph-model": "longtail.recipes.gnnxml.ranker:KeygraphModel",
    "cluster-rankers": "longtail.recipes.gnnxml.label_classifiers:ClusterRankers",
    "frequency-curves": "longtail.recipes.gnnxml.label_clusters:FrequencyCurves",
}
