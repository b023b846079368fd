"""Trains variants of recipes side by side, measures them on slices or on test documents, and compares them.

    python -m benchmarks.variants VARIANTS.json DATA... [--out FILE] [--on slice] [--seeds 1] [--first-seed 0]
                                  [--workers 1] [--seconds 36000] [--device auto] [--recipe R] [--only NAME ...]
                                  [--beside NAME ...] [--set a.b=c] [--kept FOLDER] [--list]

VARIANTS.json: ``{"recipe": {"variant": ["section.setting=value", ...], ...}, ...}``, as beside this file; a name alone
(``papers``) means one of those. The first variant of a recipe is what its others are compared with; --beside names
further ones. DATA: see `slices.data_of`.

--on: where choices are made, held-out training documents (slice), or what is reported (test). --seeds: how many, from
--first-seed on. --workers: processes that train at the same time, each with one thread. One GPU serves a dozen; nothing
is then said of times but that they were no longer. --seconds: what is not done by then is left out. --kept: results of
single trainings stay there, and what is there is not trained again. --set: a setting of all variants.

A model is also asked in other ways (`choices`), and each is a variant of its own, behind the trained one's name.
Differences are means over the seeds that both have, with a 95% interval of a paired bootstrap over documents.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import typed_command, write_result
from benchmarks.variants.slices import HELD_OUT, named
from longtail.errors import ConfigError, LongtailError

HERE, CHILD = Path(__file__).parent, "--child"
SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10", "R@100")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """One training. folder: where its results go, a file for each way in which the model is asked."""

    data: str
    recipe: str
    variant: str
    settings: list[str]
    seed: int
    device: str
    test: bool
    folder: str

    def __str__(self) -> str:
        return f"{named(self.data)} {self.recipe}: {self.variant}, seed {self.seed}"

    def file(self, asked: str = "") -> Path:
        variant = f"{self.variant}, {asked}" if asked else self.variant
        words = (named(self.data), self.recipe, variant, str(self.seed))
        return Path(self.folder) / ("+".join(word.replace("/", "|") for word in words) + ".npz")


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [CHILD]:
        train_and_measure(Job(**json.loads(words[1])))
        return 0
    options = parsed(words)
    try:
        variants = read_variants(options.variants, options.recipe, options.only)
    except ConfigError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    if options.list:
        for recipe, own in variants.items():
            print("\n".join(f"{recipe}: {name}: {' '.join(settings) or '-'}" for name, settings in own.items()))
        return 0
    deadline = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() if options.kept is None else nullcontext(str(options.kept)) as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        todo = list(jobs(variants, options, folder))
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(lambda job: in_process(job, deadline, options.workers), todo))
        found = {named(data): compared(named(data), Path(folder), variants, options.beside) for data in options.data}
    for name, about in found.items():
        for variant, one in about["variants"].items():
            print(f"{name:<24} {variant:<70} {one['mean']}")
    if options.out:
        numbers = {"judged on": options.on, "held_out": HELD_OUT, "settings": variants, **found}
        write_result(options.out, "variants", numbers, typed_command("variants", words))
    return 0


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.variants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("variants")
    parser.add_argument("data", nargs="*")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--on", choices=("slice", "test"), default="slice")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=36_000.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--recipe", action="append", help="of these recipes alone")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these variants, and the first of each recipe")
    parser.add_argument("--beside", nargs="+", default=[], metavar="NAME", help="'recipe: variant', to compare with")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c")
    parser.add_argument("--kept", type=Path, metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="print the variants")
    options = parser.parse_args(words)
    if not options.data and not options.list:
        parser.error("no data")
    return options


Variants = Mapping[str, Mapping[str, list[str]]]


def read_variants(asked: str, recipes: Sequence[str] | None = None, only: Sequence[str] | None = None) -> Variants:
    """Recipe -> variant -> settings. What does not exist is refused before anything is trained."""
    from longtail.recipes import make_recipe

    file = Path(asked) if Path(asked).suffix else HERE / f"{asked}.json"
    if not file.exists():
        raise ConfigError(f"no file {file}", "one of " + ", ".join(sorted(each.stem for each in HERE.glob("*.json"))))
    content: Variants = json.loads(file.read_text(encoding="utf-8"))
    for recipe in recipes or ():
        if recipe not in content:
            raise ConfigError(f"{file} has no variants of '{recipe}'", f"it has those of {', '.join(content)}")
    chosen = {recipe: dict(own) for recipe, own in content.items() if recipe in (recipes or content)}
    for name in only or ():
        if not any(name in own for own in chosen.values()):
            raise ConfigError(f"no variant '{name}'", "--list prints those there are")
    if only:
        chosen = {
            recipe: {name: own[name] for place, name in enumerate(own) if place == 0 or name in only}
            for recipe, own in chosen.items()
        }
    for recipe, own in chosen.items():
        for settings in own.values():
            make_recipe(recipe, assignments=settings)
    return chosen


def jobs(variants: Variants, options: argparse.Namespace, folder: str) -> Iterator[Job]:
    for data in options.data:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for recipe, own in variants.items():
                for name, settings in own.items():
                    every = [*options.set, *settings]
                    yield Job(data, recipe, name, every, seed, options.device, options.on == "test", folder)


def in_process(job: Job, deadline: float, workers: int) -> None:
    left = deadline - time.monotonic()
    if job.file().exists():
        return
    if left <= 0:
        print(f"{job}: no time", flush=True)
        return
    command = [sys.executable, "-m", "benchmarks.variants", CHILD, json.dumps(asdict(job))]
    threads = dict.fromkeys(THREADS, "1") if workers > 1 else {}
    try:
        done = subprocess.run(
            command, timeout=left, check=False, capture_output=True, text=True, env={**os.environ, **threads}
        )
    except subprocess.TimeoutExpired:
        print(f"{job}: no time", flush=True)
        return
    print(f"{job}: {done.stdout.strip() or done.stderr.strip()[-1500:]}", flush=True)


def train_and_measure(job: Job) -> None:
    """Metrics of the model and of what it becomes by other choices at prediction; or why there is none."""
    import longtail
    from benchmarks.sets import search_on_gpu
    from benchmarks.variants.choices import asked_in_other_ways, parts_of_documents
    from benchmarks.variants.slices import data_of
    from longtail.evaluation import Yardstick, rank_test
    from longtail.predictor import Predictor
    from longtail.recipes import make_recipe
    from longtail.training.progress import SilentDisplay

    began = time.monotonic()
    data = data_of(job.data, test=job.test)
    with tempfile.TemporaryDirectory() as folder:
        recipe = make_recipe(job.recipe, assignments=job.settings)
        try:
            model = longtail.train(
                data,
                Path(folder) / "run",
                recipe,
                seed=job.seed,
                device=job.device,
                display=SilentDisplay(),
                examples=False,
            )
        except LongtailError as problem:
            print(f"left out: {problem}")
            return
        seconds = round(time.monotonic() - began, 1)
        ranker: Any = model.bundle.ranker
        if job.device != "cpu" and _has_gpu():
            search_on_gpu(ranker)

        def keep(asked: str, model: Predictor, data: Any) -> dict[str, float]:
            yardstick = Yardstick.of(data)
            measured = yardstick.measure(rank_test(model, yardstick, SilentDisplay()))
            kept = [measured.names.index(metric) for metric in SHOWN]
            about = {**yardstick.about(), "seconds": seconds}
            aside = Path(job.folder) / f".{os.getpid()}.npz"
            np.savez_compressed(
                aside,
                about=json.dumps(about),
                numerators=measured.numerators[:, kept],
                denominators=measured.denominators,
                divisor=measured.divisor[kept],
            )
            aside.rename(job.file(asked))
            return measured.values()

        for name, other in asked_in_other_ways(job.recipe, ranker):
            keep(name, Predictor(replace(model.bundle, ranker=other)), data)
        for name, part in parts_of_documents(job.recipe, data):
            keep(f"documents that {name}", model, part)
        values = keep("", model, data)
    print({metric: round(values[metric], 2) for metric in SHOWN}, f"{seconds} s")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def compared(data: str, folder: Path, variants: Variants, beside: Sequence[str] = ()) -> dict[str, Any]:
    """Values by seed, and differences, of all that lies in `folder` for the set `data`. A variant is compared with the
    first one of its recipe, asked in the same way, with itself as it is asked at first, and with `beside`.
    """
    from longtail.metrics import paired_bootstrap

    found: dict[str, dict[int, Any]] = {}
    about: dict[str, dict[str, Any]] = {}
    others: dict[str, list[str]] = {}
    for path in sorted(folder.glob(f"{data}+*.npz")):
        _, recipe, variant, seed = path.stem.replace("|", "/").split("+")
        name = f"{recipe}: {variant}"
        with np.load(path) as arrays:
            about[name] = json.loads(str(arrays["about"]))
            found.setdefault(name, {})[int(seed)] = per_document(arrays)
        trained = max((each for each in variants.get(recipe, ()) if same_training(variant, each)), key=len, default="")
        first = next(iter(variants.get(recipe, {variant: []})))
        others[name] = list(
            dict.fromkeys([f"{recipe}: {first}{variant[len(trained) :]}", f"{recipe}: {trained}", *beside])
        )
    results: dict[str, Any] = {}
    for variant, seeds in found.items():
        by_seed = {seed: rounded(one.values()) for seed, one in seeds.items()}
        mean = {m: round(float(np.mean([values[m] for values in by_seed.values()])), 3) for m in SHOWN}
        results[variant] = {"by seed": by_seed, "mean": mean, "seconds": about[variant].pop("seconds", None)}
        for other in others[variant]:
            both = sorted(set(seeds) & set(found.get(other, {})))
            if variant == other or not both:
                continue
            here, there = (mean_over([models[seed] for seed in both]) for models in (seeds, found[other]))
            if here.numerators.shape != there.numerators.shape:
                continue  # of other documents
            differences = paired_bootstrap(here, there, rng=np.random.default_rng(0))
            results[variant][f"beside {other}"] = {
                "seeds": both,
                **{m: [round(d.mean, 2), round(d.low, 2), round(d.high, 2)] for m, d in differences.items()},
            }
    whole = max(about.values(), key=lambda each: int(each.get("n_test", 0)), default={})
    return {**whole, "variants": results}


def same_training(asked: str, trained: str) -> bool:
    return asked == trained or asked.startswith(f"{trained}, ")


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {metric: round(value, 3) for metric, value in values.items()}


def per_document(arrays: Any) -> Any:
    from longtail.metrics.scores import PerDocument

    return PerDocument(SHOWN, arrays["numerators"], arrays["denominators"], arrays["divisor"])


def mean_over(models: Sequence[Any]) -> Any:
    """Of several models on the same documents: what each document gets in the mean."""
    return replace(models[0], numerators=np.mean([model.numerators for model in models], axis=0))


if __name__ == "__main__":
    raise SystemExit(main())
