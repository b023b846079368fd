"""Commands that hand a model on: pack, split, vectors, card, push, export."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from longtail.cli.base import (
    DataSource,
    NamedPath,
    Talk,
    argument,
    command,
    data_option,
    json_option,
    model_argument,
    option,
    output_path,
    refuse_overwriting,
    talk,
    write_json_file,
)


@command("pack", "longtail pack runs/first small --dtype int8", "longtail pack runs/first small --data DATA")
@model_argument
@argument("out", "the new folder", type=output_path(), metavar="OUT")
@option(
    "--dtype",
    default="int8",
    type=click.Choice(["float16", "int8", "int4"]),
    help="numbers of the tables (default {default}). int8 has a scale per row; int4: those of words in half as many "
    "bytes, those of labels int8",
)
@option(
    "--features",
    type=int,
    default=0,
    metavar="N",
    help="keep the vectors of N words only, the most useful (default: all)",
)
@option(
    "--index",
    default="auto",
    type=click.Choice(["auto", "exact", "sketch", "leaves", "hnsw"]),
    help="how labels are searched (default: the fastest, measured here)",
)
@data_option
@json_option
def pack(
    model: Path,
    out: Path,
    dtype: Literal["float16", "int8", "int4"],
    features: int,
    index: Literal["auto", "exact", "sketch", "leaves", "hnsw"],
    source: DataSource | None,
    json: Path | None,
) -> None:
    """Write a model with its tables in float16, int8 or int4: fewer bytes, and faster to search.

    OUT is the new bundle. With --data, the loss of accuracy is measured on its test documents.
    """
    from dataclasses import asdict

    from longtail.packing import pack as run_packing
    from longtail.predictor import Predictor

    data = None if source is None else source.read(columns=Predictor.open(model).columns)
    report = run_packing(model, out, dtype, features=features, index=index, data=data)
    print(report.render())
    write_json_file(json, asdict(report))


@command("export", "longtail export runs/towers onnx")
@model_argument
@argument("out", "the new folder", type=output_path(), metavar="OUT")
def export(model: Path, out: Path) -> None:
    """Write the transformer of a model as an ONNX graph with its tokenizer, for other programs."""
    from longtail.packing import export as run_export
    from longtail.predictor import Predictor

    run_export(Predictor.open(model), out)
    print(f"wrote {out}")


@command("split", "longtail split runs/large shards --shards 4")
@model_argument
@argument("out", "the new folder", type=output_path(), metavar="OUT")
@option("--shards", type=int, required=True, metavar="N", help="how many")
def split(model: Path, out: Path, shards: int) -> None:
    """Write a model as N bundles in OUT, each with every N-th label.

    OUT opens as the whole model, with the same answers (longtail predict OUT); each shard opens by itself.
    """
    from longtail.splitting import split as run_splitting

    for folder in run_splitting(model, out, shards):
        print(f"wrote {folder}")


@command("card", "longtail card runs/first > CARD.md")
@model_argument
@option("--out", type=output_path(), metavar="FILE", help="where to write (default: standard output)")
def card(model: Path, out: Path | None) -> None:
    """Write a model card: what the model is, how good it was found to be, and how to ask it."""
    from longtail.hub import card as card_of
    from longtail.persistence import written_aside
    from longtail.predictor import Predictor

    text = card_of(Predictor.open(model).bundle)
    if out is None:
        print(text, end="")
        return
    with written_aside(out) as aside:
        aside.write_text(text, encoding="utf-8")
    print(f"wrote {out}")


@command("push", "longtail push runs/first hf://me/animals")
@model_argument
@argument("address", "hf://organisation/name[@revision]")
@option("--public", is_flag=True, help="a new repository can be seen by everyone (default: private)")
def push(model: Path, address: str, public: bool) -> None:
    """Upload a model with its card to the Hugging Face hub; Predictor.open(ADDRESS) opens it again."""
    from longtail.hub import push as run_push
    from longtail.predictor import Predictor

    settled = Predictor.open(model).settled()  # kept until the end: with it goes the folder of what was changed
    print(f"pushed to {run_push(settled.bundle, address, private=not public)}")


@command(
    "vectors", "longtail vectors runs/first labels.npy", "longtail vectors runs/first shop.parquet --input shop.csv"
)
@model_argument
@argument("out", "OUT.npy (ids beside it) or OUT.parquet", type=output_path(), metavar="OUT")
@option("--input", type=NamedPath(), metavar="FILE", help="the documents of FILE (default: the labels)")
@talk
def vectors(talk: Talk, model: Path, out: Path, input: str | None) -> None:
    """Write the vectors of labels or documents, for vector stores.

    Labels by the largest inner product with a document's vector are the answer of the model.
    """
    from longtail.predictor import Predictor
    from longtail.vectors import export_vectors, ids_file

    if input is not None and out.suffix.lower() == ".npy":
        refuse_overwriting([("the file of ids", ids_file(out))], [("--input", Path(input))])
    opened = Predictor.open(model)
    documents = None
    if input is not None:
        documents = opened.documents(input, on_columns=lambda found: talk.note(found.line()))
    count, width = export_vectors(opened, out, documents)
    print(f"wrote {out}: {count:,} vectors of {width} numbers")


COMMANDS = [pack, split, vectors, card, push, export]
