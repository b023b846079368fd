"""Train on a CSV of your own and ask the model: ``python examples/own_csv.py [FILE.csv [RUN]]``."""

from __future__ import annotations

import sys
from pathlib import Path

import longtail

given = sys.argv[1:]
table = given[0] if given else Path(__file__).with_name("books.csv")

model = longtail.train(table, given[1] if len(given) > 1 else "runs/books")
for found in model.predict(["a hive of honey bees behind the roses"], k=3)[0]:
    print(f"{found.score:.3f}  {found.label}")
