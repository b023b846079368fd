"""Batch prediction under Ray Data: Parquet in, Parquet out, every document once, with its id.

A bundle is opened once in each worker, and mapped, so that workers of one machine share its pages. Ray gives the batch
of a worker that dies to another one. Rows come back in any order: the id says which is which.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.errors import DataError
from longtail.persistence import written_aside
from longtail.writing import refuse_taken

if TYPE_CHECKING:
    import pyarrow

ID, LABELS, SCORES = "id", "labels", "scores"
BATCH = 4096  # documents that a worker is given at a time


class PredictBatches:
    """A worker: Arrow tables in, Arrow tables of ids, labels and scores out."""

    def __init__(
        self, bundle: str, k: int, threshold: float | None, text: Sequence[str], id: str, threads: int | None = None
    ) -> None:
        from longtail.predictor import Predictor

        if threads:
            import numba

            numba.set_num_threads(threads)
        self.model = Predictor.open(bundle, verify=False)
        self.k, self.threshold, self.text, self.id = k, threshold, tuple(text), id

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        import pyarrow as pa

        from longtail.data.dataset import Items

        ids = table.column(self.id)
        fields = {name: ["" if one is None else str(one) for one in table[name].to_pylist()] for name in self.text}
        documents = Items([str(one) for one in ids.to_pylist()], fields)
        found = self.model.named(self.model.rank(documents, self.k, threshold=self.threshold))
        return pa.table(
            {
                ID: ids,
                LABELS: pa.array([[one[0] for one in row] for row in found], pa.list_(pa.string())),
                SCORES: pa.array([[one[2] for one in row] for row in found], pa.list_(pa.float32())),
            }
        )


def predict(
    dataset: Any,
    bundle: str | Path,
    *,
    k: int = 5,
    threshold: float | None = None,
    text: str | Sequence[str] | None = None,
    id: str | None = None,
    workers: int = 0,
    batch: int = 0,
) -> Any:
    """A `ray.data.Dataset` with the columns id, labels and scores, for one with a column of ids and columns of text.

    bundle: a run or a bundle on a disk that all workers see.  text, id: columns; None: those of training, else `text`
    or `title`, and `id`.  workers: how many open the model; 0: one for each CPU of the cluster but one.
    batch: documents that one is given at a time; 0: 4,096.
    """
    import ray
    from ray.data import ActorPoolStrategy

    from longtail.predictor import Predictor

    model = Predictor.open(bundle)
    names = list(dataset.schema().names)
    asked = [text] if isinstance(text, str) else text
    columns = model.columns
    found = [name for name in ("text", "title") if name in names] if columns is None else columns.text
    wanted = list(asked or found)
    key = id or (columns.id if columns is not None and columns.id else ID)
    missing = [name for name in [*wanted, key] if name not in names]
    if missing or not wanted:
        raise DataError(
            f"no column '{missing[0] if missing else 'text'}' among {', '.join(names)}",
            "name the columns: --text COLUMN and --id COLUMN; rows come back in any order, so each needs an id",
        )
    cpus = float(ray.cluster_resources().get("CPU", 1))
    count = workers or max(1, int(cpus) - 1)
    return dataset.map_batches(
        PredictBatches,
        fn_constructor_kwargs={
            "bundle": str(Path(bundle).absolute()),
            "k": k,
            "threshold": threshold,
            "text": wanted,
            "id": key,
            "threads": 1,
        },
        compute=ActorPoolStrategy(size=count),
        batch_size=batch or BATCH,
        batch_format="pyarrow",
        # One is left for reading and writing: where workers hold all, Ray waits for ever.
        num_cpus=min(1.0, max(cpus - 1, 0.5) / count),
    )


def predict_files(
    address: str, bundle: Path, source: str, out: Path, *, k: int, threshold: float | None, text: str, id: str | None
) -> int:
    """Answer the Parquet file or folder `source` on the cluster into the folder `out`; how many documents.

    The folder appears when all of them are answered, each once, or not at all.
    """
    from longtail.cluster.ray_connection import connected

    refuse_taken(out, "name a folder that does not exist; answers are written into it")
    if not Path(source).exists():
        raise DataError("no such file or folder", "give a Parquet file, or a folder of them", file=source)
    ray = connected(address, "predict --cluster")
    dataset = ray.data.read_parquet(str(Path(source).absolute()))
    found = predict(dataset, bundle, k=k, threshold=threshold, text=text.split(",") if text else None, id=id)
    with written_aside(out.absolute()) as aside:
        found.write_parquet(str(aside))
        asked, written = int(dataset.count()), _ids_in(aside)
        if len(written) != asked or len(set(written)) != asked:
            raise DataError(
                f"{asked:,} documents, {len(written):,} answers, {len(set(written)):,} different ids",
                "give every document an id of its own",
                file=source,
            )
    return asked


def _ids_in(folder: Path) -> list[Any]:
    """All ids of the Parquet files in a folder."""
    from pyarrow import parquet

    tables = (parquet.read_table(file, columns=[ID]) for file in sorted(folder.glob("*.parquet")))
    return [one for table in tables for one in table[ID].to_pylist()]
