"""What choices are worth: variants of recipes, trained side by side and compared (``python -m benchmarks.variants``).

`__main__` trains and compares; `slices` has the documents it is judged on; `choices` what a finished model is asked in
other ways, without another training. The JSON files are the variants: papers.json (ECLARE, GalaXC, Astec), graphs.json
(RAMEN, GNN-XML), direct.json (its parts), rows.json (how it keeps rows of labels), methods.json (recipes beside each
other, as they come).
"""
