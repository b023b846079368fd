"""``python -m benchmarks.claims run [IDS ...]``, ``list``, ``table`` and ``merge FOLDERS ...``; from the repository
root.

run A6 A8 --device cpu --workers 4 --threads 1    four processes train, each with one thread; this one judges (see
`workers`)
train A6 A8 --device cpu                          one such worker by itself: what `run` with the same --cache finds
                                                  finished it does not train
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import ledger, page, results, runner, workers
from benchmarks.claims.entries import Claim
from benchmarks.claims.papers import PAPERS, chosen_claims
from benchmarks.claims.workshop import OutOfTime, Workshop
from longtail.errors import ConfigError, LongtailError
from longtail.persistence import write_json, written_aside

RESULTS = Path("benchmarks/results/claims")
CACHE = Path("runs/claims")

COMPLETE, MISSING, WRONG = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return int(options.action(options, list(sys.argv[1:] if arguments is None else arguments)))
    except LongtailError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return WRONG


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m benchmarks.claims", description="Decide the claims of the papers by experiment."
    )
    commands = top.add_subparsers(required=True)

    run = commands.add_parser(
        "run", help="train what is needed and write verdicts; the same command goes on where it was interrupted"
    )
    trainings_options(run)
    run.add_argument(
        "--out",
        type=Path,
        default=RESULTS,
        help="folder of the verdicts, one JSON file per paper (default: %(default)s)",
    )
    run.add_argument(
        "--workers", type=int, default=1, help="processes that train at the same time (default: %(default)s, this one)"
    )
    run.add_argument(
        "--threads",
        type=int,
        help="of each worker (default: 1); one worker with threads of its own is a process of its own",
    )
    run.set_defaults(action=run_claims)

    train = commands.add_parser(
        "train", help="train what the claims need and judge nothing; several such processes can share a cache"
    )
    trainings_options(train)
    train.set_defaults(action=train_claims)

    listing = commands.add_parser("list", help="the claims that have an entry")
    listing.add_argument("--paper", choices=list(PAPERS))
    listing.set_defaults(action=list_claims)

    table = commands.add_parser(
        "table", help="the ledger as Markdown: each claim, what the paper prints, what was measured, verdicts, reasons"
    )
    table.add_argument("--results", type=Path, default=RESULTS, help="folder of the verdicts (default: %(default)s)")
    table.add_argument("--out", type=Path, metavar="FILE.md", help="write them as a page")
    table.add_argument("--json", type=Path, metavar="FILE.json", help="write what `longtail claims` prints")
    table.set_defaults(action=print_table)

    merge = commands.add_parser("merge", help="put the verdicts of runs with folders of their own into one folder")
    merge.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="what was --out of a run")
    merge.add_argument("--out", type=Path, default=RESULTS, help="folder of the verdicts (default: %(default)s)")
    merge.set_defaults(action=merge_verdicts)
    return top


def trainings_options(command: argparse.ArgumentParser) -> None:
    """Options that say what is trained, and where; `worker_options` hands them on."""
    command.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="claims, e.g. A6 (all of it), A6@ (on planted data) or A6@debian-related; all by default",
    )
    command.add_argument("--paper", choices=list(PAPERS), help="only claims of this paper")
    command.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    command.add_argument(
        "--max-minutes", type=float, help="begin no training after so many minutes; 0 judges only what is trained"
    )
    command.add_argument("--data", type=Path, help="folder that holds the real data sets")
    command.add_argument("--cache", type=Path, default=CACHE, help="folder of the trainings (default: %(default)s)")
    command.add_argument("--seeds", type=int, help="other than what the claims say; fewer than 3 never give a verdict")
    command.add_argument(
        "--first-seed", type=int, default=0, help="to repeat a claim with fresh seeds (default: %(default)s)"
    )


def worker_options(options: argparse.Namespace) -> dict[str, object]:
    names = ("paper", "device", "max_minutes", "data", "cache", "seeds", "first_seed")
    return {f"--{name.replace('_', '-')}": getattr(options, name) for name in names}


def pairs(options: argparse.Namespace) -> list[tuple[str, Claim]]:
    """(paper, claim)"""
    return [(paper, claim) for paper, claims in chosen_claims(options.ids, options.paper).items() for claim in claims]


def workshop_of(options: argparse.Namespace) -> Workshop:
    deadline = None if options.max_minutes is None else time.monotonic() + 60 * options.max_minutes
    return Workshop(options.cache, device=options.device, data=options.data, deadline=deadline, say=say)


def run_claims(options: argparse.Namespace, arguments: list[str]) -> int:
    count = workers_of(options)
    workshop = workshop_of(options)
    where = results.provenance(recorded_command(arguments), workshop.device)
    missing: list[str] = []
    chosen = pairs(options)
    with workers.at_work(count, options.threads or 1, worker_options(options), options.ids) as crew:
        for paper, claim in workers.in_order(chosen) if count else chosen:
            say(f"{claim.id}: {claim.sentence}")
            seeds = runner.seeds_of(claim, options.seeds, options.first_seed)
            try:
                crew.wait_for(claim, workshop, seeds)
                record = runner.decide(claim, workshop, options.seeds, options.first_seed)
            except OutOfTime as stop:
                missing.append(f"{claim.id}: out of time before {stop}; {remaining(claim, workshop, seeds)}")
            except LongtailError as problem:
                missing.append(f"{claim.id}: {problem.message}")
            else:
                results.update(options.out / f"{paper}.json", paper, [{**record, **where}])
                say(results.summary(record))
    say(
        f"{workshop.trainings_made} trainings made{' beside those of workers' if count else ''}; verdicts in "
        f"{options.out}"
    )
    for line in missing:
        say(f"missing: {line}")
    return MISSING if missing else COMPLETE


def workers_of(options: argparse.Namespace) -> int:
    """How many processes to start: none where one does everything. Its threads cannot be chosen any more; those of a
    process to come can.
    """
    if options.workers < 1 or (options.threads is not None and options.threads < 1):
        raise ConfigError(
            f"--workers {options.workers} --threads {options.threads}: expected 1 or more",
            "leave them out for one process",
        )
    return 0 if options.workers == 1 and options.threads is None else int(options.workers)


def train_claims(options: argparse.Namespace, arguments: list[str]) -> int:
    workshop = workshop_of(options)
    failed = workers.train_all(
        [claim for _, claim in workers.in_order(pairs(options))], workshop, options.seeds, options.first_seed
    )
    return MISSING if failed or workshop.is_over else COMPLETE


def recorded_command(arguments: Sequence[str]) -> str:
    """The command without what changes no verdict: the folders it used, whose paths are those of one machine, and its
    limit of time. The folder of real data sets is called DATA.
    """
    kept = list(arguments)
    without = ("--cache", "--out", "--max-minutes")
    for option in without:
        while option in kept:
            place = kept.index(option)
            del kept[place : place + 2]
    if "--data" in kept:
        kept[kept.index("--data") + 1] = "DATA"
    kept = [argument for argument in kept if not argument.startswith(tuple(f"{option}=" for option in without))]
    return shlex.join(["python", "-m", "benchmarks.claims", *kept])


def remaining(claim: Claim, workshop: Workshop, seeds: range) -> str:
    needed = {
        workshop.folder(t.variant, t.data, t.seed): workshop.is_trained(t.variant, t.data, t.seed)
        for t in runner.trainings(claim, seeds)
    }
    return f"{sum(not done for done in needed.values())} of {len(needed)} trainings to do"


def list_claims(options: argparse.Namespace, arguments: list[str]) -> int:
    for paper, claims in chosen_claims([], options.paper).items():
        for claim in claims:
            data = claim.data.describe() if claim.data is not None else "no data"
            say(
                f"{paper:<10} {claim.id:<22} {len(claim.variants)} variants x {claim.seeds} seeds, {data}: "
                f"{claim.sentence}"
            )
    return COMPLETE


def print_table(options: argparse.Namespace, arguments: list[str]) -> int:
    if options.out is None and options.json is None:
        say(page.page(options.results))
        return COMPLETE
    if options.out is not None:
        with written_aside(options.out) as aside:
            aside.write_text(page.page(options.results), encoding="utf-8")
    if options.json is not None:
        write_json(options.json, {"titles": ledger.TITLES, "claims": ledger.entries(options.results)})
    written = " and ".join(str(path) for path in (options.out, options.json) if path is not None)
    say(f"verdicts of {options.results} are now in {written}")
    return COMPLETE


def merge_verdicts(options: argparse.Namespace, arguments: list[str]) -> int:
    say(f"verdicts of {', '.join(results.merge(options.folders, options.out))} are now in {options.out}")
    return COMPLETE


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
