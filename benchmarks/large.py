"""A training of `direct` with very many labels, from planted texts to a bundle that answers: seconds, memory, bytes.

    python -m benchmarks.large --labels 10000000 --documents 1000000 --width 256 --out FILE.json
    python -m benchmarks.large --labels 10000000 --documents 1000000 --width 256 --epoch-only --out FILE.json
    python -m benchmarks.large --synthetic --labels 1000000 --documents 1000000 --width 512 --pack int4 --out FILE.json

Planted: a label's text is three words, each of which some two dozen labels have; a document is about one label and has
its words, and two others. Words alone are features. Most labels have no document: what they are, their text must say.
--synthetic: `longtail data synthetic` with its own words, pairs and character 4-grams as features; its documents have
1.8 labels, and every label has a document.

No memory of documents and no smoothing (walks over a graph of labels); rows are searched exactly. Answers are asked for
by a process of its own, without a GPU. --epoch-only: ends with the last step; seconds of the training beside what its
products, reads and writes take at the least, at the rates of products and copies that are measured first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import benchmarks.large as here  # under the name by which another process finds it
import longtail
from benchmarks.record import typed_command, write_result
from benchmarks.speed.cases.small_rows import floors
from benchmarks.speed.common import TaskWatch, alone
from benchmarks.speed.engine_oracle import Stopwatch, ceilings
from longtail.data.dataset import Dataset, Items, Split
from longtail.data.from_texts import binary_csr, with_digest
from longtail.data.synthetic import SyntheticConfig, synthesise
from longtail.packing import pack
from longtail.predictor import Predictor
from longtail.recipes import make_recipe
from longtail.training import adapted_batch
from longtail.training.progress import SilentDisplay, Task
from longtail.types import I64

WORDS_OF_LABEL, OTHER_WORDS, LABELS_OF_WORD, LETTERS = 3, 2, 24, 7
TESTED, ALONE = 1000, 20
SETTINGS = ("train.smoothing=0", "memory.weight=0", "predict.index=exact", "anchors.weight=0", "train.together=1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, required=True)
    parser.add_argument("--documents", type=int, required=True)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--pack", default="", help="also pack the bundle: int8 or int4")
    parser.add_argument("--epoch-only", action="store_true", help="no bundle: end with the last step; needs a GPU")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c")
    parser.add_argument("--folder", type=Path, help="where the run goes; else a temporary folder")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        numbers = measured(options, options.folder or Path(folder))
    print(json.dumps(numbers, indent=1))
    if options.out:
        write_result(options.out, "large", numbers, typed_command("large", sys.argv[1:]), seed=0)


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    clock, seconds = time.perf_counter, {}
    began = clock()
    if options.synthetic:
        config = SyntheticConfig(
            documents=options.documents,
            labels=options.labels,
            test_documents=TESTED,
            topics=max(20, options.labels // 500),
            missing_rate=0.0,
            graph_coverage=0.0,
            share_documents_are_labels=0.0,
        )
        data = synthesise(config).dataset
    else:
        data = planted(options.labels, options.documents)
    seconds["planting"] = clock() - began
    print(f"planted in {seconds['planting']:.1f} s", flush=True)
    words = () if options.synthetic else ("features.pairs=false", "features.subwords=none")
    chosen = [*SETTINGS, *words, f"encoder.width={options.width}", f"train.epochs={options.epochs}", *options.set]
    if options.epoch_only:
        return seconds_of_steps(data, folder, chosen, options) | {"seconds_of_planting": round(seconds["planting"], 1)}
    watch, began = TaskWatch(memory=True), clock()
    model = longtail.train(
        data, folder / "run", make_recipe("direct", assignments=chosen), device=options.device, display=watch
    )
    seconds["from texts to a bundle"] = clock() - began
    seconds |= {f"training ({title})": each for title, each in watch.seconds.items()}
    events = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = sum(watch.steps.values())
    bundle = folder / "run" / "bundle"
    numbers: dict[str, Any] = {
        "labels": options.labels,
        "documents": options.documents,
        "features": int(model.bundle.featurizer.width),
        "settings": chosen,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "steps": steps,
        "ms_of_a_step": round(1000 * sum(watch.seconds.values()) / max(steps, 1), 2),
        "stages": [event for event in events if event["event"] in ("stage", "memory", "fit")],
        "peak_main_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 1),
        "bundle_gb": round(size_of(bundle) / 1e9, 2),
        **of_gpu(),
    }
    print(json.dumps(numbers["seconds"]), flush=True)
    test = data.test
    assert test is not None
    asked = {
        "texts": list(test.documents.fields["title"]),
        "wanted": [part.tolist() for part in np.split(test.targets.indices, test.targets.indptr[1:-1])],
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    del model
    answers = here.answers
    numbers["answers"] = alone(answers, str(bundle), str(folder / "asked.json"), CUDA_VISIBLE_DEVICES="")
    print(json.dumps(numbers["answers"]), flush=True)
    if options.pack:
        began = clock()
        pack(bundle, folder / "packed", options.pack, index="exact")
        numbers["packed"] = {
            "dtype": options.pack,
            "gb": round(size_of(folder / "packed") / 1e9, 3),
            "seconds": round(clock() - began, 1),
            "answers": alone(answers, str(folder / "packed"), str(folder / "asked.json"), CUDA_VISIBLE_DEVICES=""),
        }
        print(json.dumps(numbers["packed"]), flush=True)
    return numbers


# ---- the steps alone ----


class StepsAreDone(Exception):
    pass


class UntilLastStep(SilentDisplay):
    """Ends a training with its last step, and has the seconds of all of them, from the first look at a loss on.

    A GPU is asked for a loss now and then (`fit`), and at the end: until then it is at work.
    """

    def __init__(self) -> None:
        self.began, self.total = 0.0, 0
        self.looks: list[tuple[int, float]] = []

    @contextlib.contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        self.began, self.total = time.perf_counter(), total
        yield self

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.looks.append(((self.looks[-1][0] if self.looks else 0) + steps, time.perf_counter() - self.began))
        if self.looks[-1][0] == self.total:
            raise StepsAreDone


def seconds_of_steps(data: Dataset, folder: Path, settings: list[str], options: argparse.Namespace) -> dict[str, Any]:
    limits = ceilings(Stopwatch("cuda", seconds=0.4))
    watch, began = UntilLastStep(), time.perf_counter()
    with contextlib.suppress(StepsAreDone):
        recipe = make_recipe("direct", assignments=settings)
        longtail.train(data, folder / "run", recipe, device=options.device, display=watch)
    batch = adapted_batch(options.documents, recipe.config.train.batch)
    products, traffic = floors((batch, options.labels, options.width), limits, text=True)
    steps, whole = watch.looks[-1]
    (first, warm), count = watch.looks[0], options.documents / batch
    each = (whole - warm) / max(steps - first, 1)
    return {
        "labels": options.labels,
        "documents": options.documents,
        "settings": settings,
        "ceilings": limits,
        "documents_of_a_step": batch,
        "steps": steps,
        "seconds_before_the_first_step": round(watch.began - began, 1),
        "seconds_of_steps": round(whole, 2),
        "ms_of_a_step_after_the_first_look": round(1000 * each, 2),
        "seconds_of_an_epoch_at_that_pace": round(each * count, 2),
        "floors_ms_of_a_step": {"products": round(products, 2), "traffic": round(traffic, 2)},
        "floors_seconds_of_an_epoch": round((products + traffic) * count / 1000, 2),
        "looks": [(done, round(at, 2)) for done, at in watch.looks],
        **of_gpu(),
    }


def of_gpu() -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        return {}
    return {
        "peak_gpu_memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
        "peak_gpu_memory_reserved_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
    }


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def answers(bundle: str, asked: str) -> dict[str, Any]:
    """P@1, R@10, and milliseconds, of a process of its own."""
    given = json.loads(Path(asked).read_text())
    began = time.perf_counter()
    model = Predictor.open(Path(bundle))
    opened = time.perf_counter() - began
    model.predict(given["texts"][:1], 10)
    times = []
    for text in given["texts"][:ALONE]:
        began = time.perf_counter()
        model.predict([text], 10)
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    batch = Items([str(row) for row in range(len(given["texts"]))], {"title": given["texts"]})
    found = model.rank(batch, 10).ids
    together = time.perf_counter() - began
    hits = [np.isin(row, wanted) for row, wanted in zip(found, given["wanted"], strict=True)]
    return {
        "documents": len(found),
        "P@1": round(100 * float(np.mean([hit[0] for hit in hits])), 2),
        "R@10": round(
            100 * float(np.mean([hit.sum() / len(w) for hit, w in zip(hits, given["wanted"], strict=True)])), 2
        ),
        "open_seconds": round(opened, 2),
        "one_document_ms": round(1000 * float(np.median(times)), 1),
        "of_a_batch_ms": round(1000 * together / len(found), 2),
        "peak_main_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 1),
    }


# ---- planted texts ----


def planted(labels: int, documents: int, seed: int = 0) -> Dataset:
    """See the head of this file; `TESTED` further documents are the test."""
    rng = np.random.default_rng(seed)
    words = max(100, WORDS_OF_LABEL * labels // LABELS_OF_WORD)
    spelled = spellings(words)
    own = rng.integers(0, words, (labels, WORDS_OF_LABEL))
    # Some labels have many documents, most none.
    about = np.minimum((labels * rng.random(documents + TESTED) ** 3).astype(np.int64), labels - 1)
    about = rng.permutation(labels)[about]
    of_documents = np.concatenate([own[about], rng.integers(0, words, (len(about), OTHER_WORDS))], axis=1)
    of_documents = rng.permuted(of_documents, axis=1)
    titles = texts(spelled, of_documents)
    splits = [
        Split(
            Items([f"d{row}" for row in range(part.start, part.stop)], {"title": titles[part]}),
            binary_csr(np.arange(part.stop - part.start), about[part], (part.stop - part.start, labels)),
        )
        for part in (slice(0, documents), slice(documents, documents + TESTED))
    ]
    named = Items(list(map(str, range(labels))), {"title": texts(spelled, own)})
    return with_digest(Dataset("planted", named, splits[0], splits[1]))


def spellings(words: int) -> NDArray[np.uint8]:
    """(words, LETTERS + 1): different words of LETTERS letters, and a space."""
    codes, found = np.arange(words, dtype=np.int64) * 48271 % 26**LETTERS, np.empty((words, LETTERS + 1), np.uint8)
    for place in range(LETTERS):
        found[:, place] = ord("a") + codes // 26**place % 26
    found[:, LETTERS] = ord(" ")
    return found


def texts(spelled: NDArray[np.uint8], words: I64) -> list[str]:
    """One for each row of word numbers."""
    length = words.shape[1] * (LETTERS + 1)
    whole = spelled[words.reshape(-1)].tobytes().decode("ascii")
    return [whole[start : start + length - 1] for start in range(0, len(whole), length)]


if __name__ == "__main__":
    main()
