"""Dual encoders (ANCE, NGAME, DEXML, SiameseXML): see `recipe.py`.

PARTS: what only this room saves (see `longtail.persistence`).
"""

PARTS: dict[str, str] = {
    "two-towers": "longtail.recipes.towers.network:Towers",
}
