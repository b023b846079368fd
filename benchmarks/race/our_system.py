"""Our side of the race as processes of their own.

python -m benchmarks.race.our_system train DATA FOLDER RECIPE [SETTING ...]
python -m benchmarks.race.our_system serve RUN_OR_BUNDLE
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.race.serving import serve


class Opened:
    """A bundle: what `serving.serve` asks."""

    def __init__(self, folder: Path) -> None:
        from longtail.predictor import Predictor

        self.model = Predictor.open(folder)

    def predict(self, texts: list[str], k: int) -> list[list[tuple[str, float]]]:
        return [[(p.name, p.score) for p in row] for row in self.model.predict(texts, k)]


def train(data: str, folder: Path, recipe: str, settings: list[str]) -> None:
    import longtail
    from longtail.recipes import make_recipe
    from longtail.training.progress import PlainDisplay

    longtail.train(
        data, folder, make_recipe(recipe, assignments=settings), device="cpu", display=PlainDisplay(seconds=30)
    )


def main(arguments: list[str]) -> None:
    if arguments[0] == "train":
        train(arguments[1], Path(arguments[2]), arguments[3], arguments[4:])
    else:
        serve(lambda: Opened(Path(arguments[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
