"""`make demo`: what a newcomer sees first. Trains on the embedded sample, compares with baselines, answers five
questions.
"""

from __future__ import annotations

import time
from pathlib import Path

from longtail import pipeline
from longtail.data.read import read, sample_folder
from longtail.evaluation import Yardstick, baselines, rank_test
from longtail.recipes import DEFAULT, make_recipe
from longtail.report import table
from longtail.training.progress import Display

QUESTIONS = (
    "a vehicle with two wheels that you pedal",
    "a sweet cake baked with flour, sugar and eggs",
    "heavy rain with thunder and lightning",
    "a large bird of prey that hunts at night",
    "an instrument with strings that is played with a bow",
)

# Shorter than the defaults: a newcomer waits a minute, not two.
SETTINGS = ["train.epochs=20"]


def run_demo(out: Path, display: Display, *, restart: bool = False) -> None:
    """Everything on the CPU; the numbers are measured here and now."""
    started = time.monotonic()
    data = read(sample_folder())
    sizes = (
        f"{len(data.train):,} definitions to learn from, {len(data.need_test()):,} to be tested on, "
        f"{len(data.labels):,} concepts"
    )
    print(f"A reverse dictionary from WordNet: {sizes}.")
    model = pipeline.train(
        data, out, make_recipe(DEFAULT, assignments=SETTINGS), device="cpu", restart=restart, display=display
    )
    yardstick = Yardstick.of(data)
    columns = {DEFAULT: yardstick.score(rank_test(model, yardstick, display))}
    columns |= {name: yardstick.score(top) for name, top in baselines(data, yardstick).items()}
    constants = yardstick.constants
    print(
        f"\nOn the {len(data.need_test()):,} test definitions, in percent (PSP with A={constants.a} "
        f"B={constants.b}, {constants.family}):\n{table(columns)}\n"
    )
    for question, answers in zip(QUESTIONS, model.predict(QUESTIONS), strict=True):
        print(question)
        for answer in answers:
            print(f"  {answer.score:6.3f}  {answer.name}")
    print(f"\n{time.monotonic() - started:.0f} seconds. The model is {out / 'bundle'}. Ask it more:")
    print(f'  .venv/bin/longtail predict {out} "a building where books are kept"')
    print("  make serve    # a page for the model in runs/demo, at http://127.0.0.1:8000/")
