"""Asking a trained model. Needs no torch; arrays are memory-mapped, so opening takes no time and memory is shared."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice, repeat
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from longtail.bundle import CALIBRATION, Bundle, LabelTable, open_bundle, write_bundle
from longtail.config import nearest
from longtail.data.columns import Columns
from longtail.data.dataset import Items
from longtail.errors import ConfigError
from longtail.kernels.threads import on_threads
from longtail.models.calibration import Calibration
from longtail.models.rankers import IndexedRows
from longtail.persistence import StringTable
from longtail.report import Metrics, facts_as_html
from longtail.search.split import ShardLists
from longtail.types import F32, I32, I64, Batch, Context, ContextRanker, Csr, Frame, FrameKind, TopK
from longtail.writing import refuse_taken

if TYPE_CHECKING:
    from longtail.data.inputs import InputBlock
    from longtail.data.tables import IdLists
    from longtail.explanation import Explanation

Answer = TypeVar("Answer")
# Documents of a piece. Fewer than `MOST` cost more each, as they share less of what is in the caches: 5% with half as
# many, 16% with a quarter. At least `FEWEST`, so that a piece takes far longer than waking a thread, and so many that
# products go the way of `search.packed.ours_for_many`.
MOST, FEWEST = 512, 64
CALIBRATED = "the probability that is shown is calibrated from this score"
# Up to so many labels, each that was found is kept as a string: making it anew takes ten times as long. More would
# take too much memory.
_KEPT = 1 << 17
# Scores of all labels that are in memory at a time, where a model must be asked for all of them.
_SCORES = 1 << 24


class Prediction(NamedTuple):
    """One label of one document."""

    label: str
    name: str
    score: float


class TemporaryFolder:
    """A folder that is removed when nothing holds this object any more, at the latest when Python ends.

    It lies where the system keeps temporary files (the environment variable TMPDIR says where).
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="longtail-"))
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a process that was forked off uses the folder of another
        shutil.rmtree(folder, ignore_errors=True)


class Predictor:
    """``Predictor.open("RUN").predict(["a small domesticated feline"], k=5)``"""

    def __init__(self, bundle: Bundle, home: TemporaryFolder | None = None) -> None:
        """home: where the bundle lies, if that is to go with the model."""
        self.bundle = bundle
        self._home = home
        self.calibration: Calibration | None = bundle.calibration()
        self._uids, self._names = _strings(bundle.labels.uids), _strings(bundle.labels.names)

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = True) -> Predictor:
        """Open a run or a bundle, or ``hf://organisation/name[@revision]``, which is fetched first, with the labels as
        they were changed since (`longtail.labels`).

        ``verify=False`` skips the checksums (sizes are still compared).
        """
        if str(path).startswith("hf:/"):  # a Path keeps one slash of two
            from longtail.hub import fetch

            path = fetch("hf://" + str(path).removeprefix("hf:").lstrip("/"))
        from longtail.label_changes import with_changes

        return cls(with_changes(open_bundle(Path(path), verify=verify), verify=verify))

    @property
    def labels(self) -> Sequence[str]:
        """The ids of all labels."""
        return self.bundle.labels.uids

    @property
    def label_names(self) -> Sequence[str]:
        """What all labels are called, in the same order; the id where a label has no name."""
        return self.bundle.labels.names

    @property
    def recipe(self) -> str:
        """The method that trained the model."""
        return str(self.bundle.manifest.get("recipe", ""))

    @property
    def metrics(self) -> Metrics:
        """What was measured at the end of training on the documents that were held out (``train(holdout=0.1)``):
        ``metrics["scores"]["P@1"]`` and what they belong to (`longtail.evaluation.held_out_metrics`). Empty where none
        were. Of a packed model: those of the model before.
        """
        return Metrics(self.bundle.manifest.get("metrics", {}))

    def __repr__(self) -> str:
        return repr(self.bundle).replace("Bundle", "Predictor", 1)

    def _repr_html_(self) -> str:
        data = self.bundle.manifest.get("data", {})
        facts = {"recipe": self.recipe, "labels": f"{len(self.labels):,}", "trained on": str(data.get("name", ""))}
        return facts_as_html("Predictor", {**facts, "folder": str(self.bundle.folder)}) + (
            self.metrics._repr_html_() if self.metrics else ""
        )

    def save(self, path: str | Path) -> None:
        """Write the model as a bundle to `path`, which must not exist. It appears complete or not at all."""
        path = Path(path)
        refuse_taken(path)
        ranker: Any = self.bundle.ranker  # a part as well
        written = ("format", "longtail", "n_labels", "files", "manifest_sha256")
        write_bundle(
            path,
            about={name: value for name, value in self.bundle.manifest.items() if name not in written},
            config=self.bundle.config(),
            labels=self.bundle.labels,
            featurizer=self.bundle.featurizer,
            ranker=ranker,
            held_out=self.bundle.held_out(),
            company=self.bundle.company(),
            calibration=self.calibration,
        )

    def settled(self) -> Predictor:
        """The same model in a bundle that is all of it: itself, or, where labels were changed beside its bundle, a copy
        with the changes inside, in a temporary folder that goes with it.
        """
        if not self.bundle.changed:
            return self
        home = TemporaryFolder()
        self.save(home.path / "bundle")
        return Predictor(open_bundle(home.path / "bundle", verify=False), home)

    def files(self) -> dict[str, bytes]:
        """The files of the bundle, by their paths in it: what another process needs to have the same model."""
        home = TemporaryFolder()
        self.save(home.path / "bundle")
        found = sorted(path for path in home.path.rglob("*") if path.is_file())
        return {path.relative_to(home.path / "bundle").as_posix(): path.read_bytes() for path in found}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Predictor:
        """The model whose `files` these are, in a temporary folder that goes with it."""
        home = TemporaryFolder()
        for name, content in files.items():
            path = (home.path / name).resolve()
            if not path.is_relative_to(home.path.resolve()):
                raise ConfigError(f"the file {name!r} lies outside the bundle", "do not use these files")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return cls(open_bundle(home.path), home)

    @property
    def columns(self) -> Columns | None:
        """The columns of the table that it was trained on; None where it was no table."""
        saved = self.bundle.manifest.get("columns")
        return None if saved is None else Columns.loaded(saved)

    def documents(
        self,
        source: str,
        *,
        text: str | Sequence[str] | None = None,
        id: str | None = None,
        on_columns: Callable[[Columns], None] = lambda columns: None,
    ) -> Items:
        """The documents of a file, or of standard input (``-``), in the columns of training; see
        `longtail.data.inputs`.
        """
        from longtail.data.inputs import read_documents

        fields = self.bundle.featurizer.fields
        return read_documents(source, text, id=id, columns=self.columns, fields=fields, on_columns=on_columns)

    def document_blocks(
        self,
        source: str,
        *,
        text: str | Sequence[str] | None = None,
        id: str | None = None,
        lists: Sequence[IdLists] = (),
        carry: bool = False,
        on_columns: Callable[[Columns], None] = lambda columns: None,
        repairs: Counter[str] | None = None,
    ) -> Iterator[InputBlock]:
        """The same block by block, for more than memory holds; see `longtail.data.inputs.documents_in_blocks`."""
        from longtail.data.inputs import documents_in_blocks

        return documents_in_blocks(
            source,
            text,
            id=id,
            columns=self.columns,
            fields=self.bundle.featurizer.fields,
            lists=lists,
            carry=carry,
            on_columns=on_columns,
            repairs=repairs,
        )

    def with_labels(self, labels: Items) -> Predictor:
        """The same encoder over exactly these labels, which are found by their texts: also ones that training never
        saw.

        For models that compare texts with label texts (recipes ance and dexml, and ramen over them); others have
        learnt each label by itself, and refuse. How often labels were seen is kept.
        """
        encoder, texts = self.bundle.ranker.label_encoder(), self.bundle.featurizer.label_batch(labels)
        if encoder is None:
            recipe = self.bundle.manifest.get("recipe")
            raise ConfigError(
                f"a model of the recipe '{recipe}' knows only the labels of its training",
                "train ance or dexml, or ramen over one of them",
            )
        if texts is None:
            raise ConfigError("labels are to be found by their texts, but have none", "give labels with a title")
        temperature = float(self.bundle.settings()["predict"]["temperature"])
        over = IndexedRows.by_cosine(encoder, encoder.encode(texts), temperature, "auto")
        counts = dict(zip(self.bundle.labels.uids, self.bundle.labels.counts.tolist(), strict=True))
        table = LabelTable.of(labels, np.array([counts.get(uid, 0) for uid in labels.uids], dtype=np.int64))
        # Probabilities were learnt with the labels of training.
        about = {name: value for name, value in self.bundle.manifest.items() if name != CALIBRATION}
        return Predictor(replace(self.bundle, manifest=about, labels=table, ranker=over, own_labels=False), self._home)

    @overload
    def predict(
        self,
        texts: Frame,
        k: int = 5,
        *,
        text: str | Sequence[str] | Mapping[str, float] | None = None,
        as_frame: Literal[False] = False,
        known_labels: Sequence[Sequence[str]] | None = None,
        anchors: Sequence[Sequence[str]] | None = None,
        threshold: float | None = None,
        precision: float | None = None,
    ) -> list[list[Prediction]]: ...
    @overload
    def predict(
        self,
        texts: Frame,
        k: int = 5,
        *,
        text: str | Sequence[str] | Mapping[str, float] | None = None,
        as_frame: Literal[True] | FrameKind,
        known_labels: Sequence[Sequence[str]] | None = None,
        anchors: Sequence[Sequence[str]] | None = None,
        threshold: float | None = None,
        precision: float | None = None,
    ) -> Frame: ...
    def predict(
        self,
        texts: Frame,
        k: int = 5,
        *,
        text: str | Sequence[str] | Mapping[str, float] | None = None,
        as_frame: bool | FrameKind = False,
        known_labels: Sequence[Sequence[str]] | None = None,
        anchors: Sequence[Sequence[str]] | None = None,
        threshold: float | None = None,
        precision: float | None = None,
    ) -> list[list[Prediction]] | Frame:
        """The `k` best labels of every text, best first: ids, names and scores.

        texts: a text or a list of them; a series, an array, a list of dicts of text fields; or a frame of pandas,
            polars or Arrow.
        text: the text columns of a frame; by default those of training, else they are found by their names.
        as_frame: give back a frame with a row per label: ``label``, ``name``, ``score`` and ``rank``, from 1. True:
            of the library that `texts` came from, pandas for a list; or name one: pandas, polars, arrow. A frame of
            pandas has the index of `texts`, others have the number of the text, from 0, in ``row``. Where the model
            was trained with a column of ids that `texts` has, too, they are in ``id``.
        known_labels: for every text ids of labels that it is known to have (warm start); they help to find others,
            and are not given back. anchors: for every text ids of nodes of given graphs that it is linked to. Only
            models that look at a graph can use either (recipe galaxc); others refuse.
        threshold: leave out labels with a score below; a text may have none left. precision: leave out so many that of
            those that are left over many texts such a share is right, e.g. 0.9; for models that were calibrated.
        """
        k = _whole_number(k)
        threshold = self.lowest_score(threshold, precision)
        texts = _in_a_row(texts)
        if isinstance(texts, list | tuple) and not any(isinstance(one, Mapping) for one in texts[:1]):
            context = self.context(len(texts), known_labels, anchors)
            answers = self._of_texts(texts, k, context, threshold) if texts else []
        else:
            from longtail.data.frames import documents_of

            documents = documents_of(texts, text, self.columns)
            context = self.context(len(documents), known_labels, anchors)
            answers = self.named(self.rank(documents, k, context=context, threshold=threshold))
        if as_frame is False:
            return answers
        from longtail.data.frames import ids_of, long_frame

        each = [len(answer) for answer in answers]
        found = list(chain.from_iterable(answers))
        ids = ids_of(texts, self.columns)
        columns: dict[str, list[Any]] = {} if ids is None else {"id": list(chain.from_iterable(map(repeat, ids, each)))}
        columns |= {name: [getattr(one, name) for one in found] for name in Prediction._fields}
        columns["rank"] = [place for count in each for place in range(1, count + 1)]
        return long_frame(as_frame, texts, np.repeat(np.arange(len(each)), each), columns)

    def _of_texts(
        self, texts: Sequence[str], k: int, context: Context | None, threshold: float | None
    ) -> list[list[Prediction]]:
        _check_texts(texts)

        def answered(part: slice) -> list[list[Prediction]]:
            batch = self.bundle.featurizer.batch_of_texts(list(texts[part]))
            return self.named(self._ranked(batch, k, context, threshold))

        return list(chain.from_iterable(self._in_pieces(answered, len(texts), context)))

    def explain(
        self,
        texts: Frame,
        k: int = 5,
        labels: Sequence[str] | None = None,
        *,
        text: str | Sequence[str] | Mapping[str, float] | None = None,
        known_labels: Sequence[Sequence[str]] | None = None,
        anchors: Sequence[Sequence[str]] | None = None,
        threshold: float | None = None,
        precision: float | None = None,
        features: bool = False,
        examples: bool = False,
    ) -> list[list[Explanation]]:
        """Why every text has its `k` best labels, best first: the words that made the model choose each, with their
        shares; or why it has, or has not, the labels whose ids are `labels`.

        features: also say which features (words, pairs, parts of words) are behind each word.
        examples: also name training documents that carry the label, of the few that the model keeps of each.
        The other arguments are those of `predict`. How words get their shares: `longtail.explanation`.
        """
        k = _whole_number(k)
        threshold = self.lowest_score(threshold, precision)
        if isinstance(labels, str):
            raise ConfigError(f"labels is {labels!r}, expected a list of ids", f"give [{labels!r}]")
        texts = _in_a_row(texts)
        if isinstance(texts, list | tuple) and not any(isinstance(one, Mapping) for one in texts[:1]):
            _check_texts(texts)
            fields = self.bundle.featurizer.fields
            documents = Items([str(n) for n in range(len(texts))], {fields[0] if fields else "text": texts})
        else:
            from longtail.data.frames import documents_of

            documents = documents_of(texts, text, self.columns)
        context = self.context(len(documents), known_labels, anchors)
        if labels is not None:
            numbers = [self._label_numbers[label] for label in labels]
            ids = np.tile(np.array(numbers, dtype=np.int32), (len(documents), 1))
        else:
            ids = self.rank(documents, k, context=context, threshold=threshold).ids
        return self.explain_labels(documents, ids, context=context, features=features, examples=examples)

    def explain_labels(
        self,
        documents: Items,
        ids: I32,
        *,
        context: Context | None = None,
        features: bool = False,
        examples: bool = False,
        block: int = 512,
    ) -> list[list[Explanation]]:
        """Why documents have labels with these numbers (B, C; -1: none), e.g. those of `rank`.

        An explanation is of the score that the model gives, also where it was calibrated: `Explanation.score` and its
        formula are then not yet the probability that `predict` gives, and the formula says so.
        """
        from longtail.explaining import Question, explanations, with_examples

        documents = self._readable(documents)
        found: list[list[Explanation]] = []
        for start in range(0, len(documents), block):
            rows = np.arange(start, min(start + block, len(documents)), dtype=np.int64)
            some = documents.rows(rows)
            known = None if context is None else context.rows(rows)
            batch = self.bundle.featurizer.batch(some)
            asked = Question(some, batch, ids[rows], known, features)
            answers = explanations(self.bundle, asked)
            company = self._company if examples else None
            found += answers if company is None else with_examples(self.bundle, company, asked, answers)
        if self.calibration is not None:
            found = [[replace(why, formula=f"{why.formula}; {CALIBRATED}") for why in answer] for answer in found]
        return found

    def scores_of(
        self,
        documents: Items,
        ids: I32,
        *,
        context: Context | None = None,
        on_block: Callable[[int], None] = lambda done: None,
    ) -> F32:
        """(B, C): what documents score for labels with these numbers (B, C; -1: none), also far down in their lists; 0
        where the model does not look at a label. The model's own scores, also where it was calibrated.
        """
        documents, size = self._readable(documents), len(self.labels)
        scores = np.zeros(ids.shape, dtype=np.float32)
        block = max(1, min(MOST, _SCORES // max(size, 1)))
        for start in range(0, len(documents), block):
            rows = np.arange(start, min(start + block, len(documents)), dtype=np.int64)
            batch = self.bundle.featurizer.batch(documents.rows(rows))
            known = None if context is None else context.rows(rows)
            scores[rows] = self.bundle.ranker.scores_of(batch, ids[rows], size, known)
            on_block(len(rows))
        return scores

    def uncalibrated(self) -> Predictor:
        """The same model with its own scores."""
        own = Predictor(self.bundle, self._home)
        own.calibration = None
        return own

    @cached_property
    def _company(self) -> Any:
        return self.bundle.company()

    def context(
        self,
        documents: int,
        known_labels: Sequence[Sequence[str]] | None = None,
        anchors: Sequence[Sequence[str]] | None = None,
        *,
        together: bool = False,
    ) -> Context | None:
        """Ids as numbers of this model; None where nothing is known of any document.

        A known label must be one of the model's. An anchor that training did not know links to nothing, and is passed
        over.
        """
        if known_labels is None and anchors is None and not together:
            return None
        self.needs_context(
            "known labels"
            if known_labels is not None
            else "anchors"
            if anchors is not None
            else "ranking documents together"
        )
        labels = None if known_labels is None else _matrix(known_labels, documents, self._label_numbers, "known_labels")
        nodes = None if anchors is None else _matrix(anchors, documents, self._anchor_numbers, "anchors")
        return Context(labels, nodes, together)

    @cached_property
    def _groups_of_labels(self) -> I64:
        """(L,) by which labels are calibrated."""
        assert self.calibration is not None, "asked only where there is one"
        return self.calibration.label_groups(self.bundle.labels.counts)

    # Kept: documents come in many blocks.
    @cached_property
    def _label_numbers(self) -> _Labels:
        return _Labels(self.bundle.labels.uids)

    @cached_property
    def _anchor_numbers(self) -> _Known:
        return _Known(self.needs_context("anchors").anchor_uids)

    def needs_context(self, what: str) -> ContextRanker:
        """The ranker, if it can use what is known of documents beside their text."""
        ranker = self.bundle.ranker
        if not isinstance(ranker, ContextRanker):
            recipe = self.bundle.manifest.get("recipe")
            raise ConfigError(
                f"{what}: a model of the recipe '{recipe}' reads text alone",
                "train with --recipe galaxc, or do without",
            )
        return ranker

    def _in_pieces(self, work: Callable[[slice], Answer], documents: int, context: Context | None) -> list[Answer]:
        """`work` on all documents: on pieces of them, on all threads, where that changes no answer."""
        if context is not None or not self.bundle.ranker.row_by_row():
            return [work(slice(0, documents))]
        import numba

        return on_threads(work, even_pieces(documents, numba.get_num_threads()))

    def _ranked(self, batch: Batch, k: int, context: Context | None, threshold: float | None) -> TopK:
        if context is None:
            top = self.bundle.ranker.rank(batch, k)
        else:
            top = self.needs_context("a context").rank_in_context(batch, k, context)
        if self.calibration is not None:
            top = self.calibration.calibrated(top, self._groups_of_labels)
        top = with_finite_scores(top)
        return top if threshold is None else top.above(threshold)

    def lowest_score(self, threshold: float | None = None, precision: float | None = None) -> float | None:
        """The score that labels must have for a threshold, or for a precision; None where neither is asked for.

        The threshold of a precision was found when the model was calibrated: labels that have at least this probability
        were right so often, over all documents that it was calibrated on. Whoever asks for a precision gets empty lists
        for texts of which nothing can be said that surely.
        """
        if isinstance(threshold, str) or threshold != threshold:
            raise ConfigError(f"the threshold {threshold!r}, expected a number", "give the lowest score of a label")
        if precision is None:
            return threshold
        if threshold is not None:
            raise ConfigError("both a threshold and a precision are asked for", "give one of them")
        if self.calibration is None:
            raise ConfigError(
                f"a precision of {precision} is asked for, and this model is not calibrated: its scores are no "
                "probabilities",
                "longtail calibrate RUN DATA makes them so; a --threshold can be given without",
            )
        return self.calibration.threshold_for(precision)

    def rank(
        self,
        documents: Items,
        k: int,
        *,
        context: Context | None = None,
        threshold: float | None = None,
        block: int = 4096,
        on_block: Callable[[int], None] = lambda done: None,
    ) -> TopK:
        """Ranked label numbers of documents with all their fields, in order, none dropped.

        context: what is known of them beside their text.  threshold: labels that score less are left out.
        on_block: called with the number of documents done since the last call.
        """
        documents = self._readable(documents)
        if context is not None and context.together:
            block = max(len(documents), 1)
        width = min(k, len(self.bundle.labels))
        ids = np.full((len(documents), width), TopK.PAD, dtype=np.int32)
        scores = np.full((len(documents), width), -np.inf, dtype=np.float32)
        for start in range(0, len(documents), block):
            rows = np.arange(start, min(start + block, len(documents)), dtype=np.int64)
            known = None if context is None else context.rows(rows)

            def ranked(part: slice, rows: I64 = rows, known: Context | None = known) -> None:
                top = self._ranked(self.bundle.featurizer.batch(documents.rows(rows[part])), width, known, threshold)
                ids[rows[part], : top.k], scores[rows[part], : top.k] = top.ids, top.scores

            self._in_pieces(ranked, len(rows), known)
            on_block(len(rows))
        return TopK(ids, scores)

    def rank_texts(self, texts: Sequence[str], k: int, *, context: Context | None = None) -> TopK:
        """Ranked label numbers of plain texts; the same answers as those of `predict`, without names."""

        def ranked(part: slice) -> TopK:
            return self._ranked(self.bundle.featurizer.batch_of_texts(list(texts[part])), k, context, None)

        pieces = self._in_pieces(ranked, len(texts), context)
        if len(pieces) == 1:
            return pieces[0]
        return TopK(np.concatenate([top.ids for top in pieces]), np.concatenate([top.scores for top in pieces]))

    def found_in_texts(self, texts: Sequence[str], k: int) -> ShardLists:
        """What this model, a shard of another (`longtail.splitting`), finds of the `k` best labels of the whole."""

        def found(part: slice) -> ShardLists:
            said: ShardLists = self.bundle.ranker.found(self.bundle.featurizer.batch_of_texts(list(texts[part])), k)
            return said

        return ShardLists.stacked(self._in_pieces(found, len(texts), None))

    def batch(self, documents: Items) -> Batch:
        """Documents as the model reads them."""
        return self.bundle.featurizer.batch(self._readable(documents))

    def _readable(self, documents: Items) -> Items:
        """Documents with every field that the model reads: a field they lack is empty, a plain text is the first
        field. A model that was trained on no table has no names of its own: the only text is what it reads.
        """
        fields, given = self.bundle.featurizer.fields, dict(documents.fields)
        if fields and not given and documents.vectors is not None:
            raise ConfigError(
                f"the documents are vectors, and the model reads texts ({', '.join(fields)})",
                "give texts, JSON lines or a table",
            )
        plain = len(given) == 1 and (self.columns is None or not {"title", "text"}.isdisjoint(given))
        if plain and fields and given.keys().isdisjoint(fields):
            given = {fields[0]: next(iter(given.values()))}
        if not any(name in given for name in fields):
            return documents
        return Items(
            documents.uids, {name: given.get(name, [""] * len(documents)) for name in fields}, documents.vectors
        )

    def named(self, top: TopK) -> list[list[Prediction]]:
        """Label numbers as ids and names."""
        real = top.ids != TopK.PAD
        found = top.ids[real]
        # Made by `tuple` itself: ten of them per document take a third of the time that way.
        fields = zip(self._uids.take(found), self._names.take(found), top.scores[real].tolist(), strict=True)
        every: Iterator[Prediction] = map(tuple.__new__, repeat(Prediction), fields)
        return [list(islice(every, count)) for count in real.sum(axis=1).tolist()]


def with_finite_scores(top: TopK) -> TopK:
    """Without labels whose scores are NaN or infinite: such have no place in any order, and JSON cannot hold them. A
    model whose tables hold NaN or infinite numbers gives some.
    """
    found = top.ids != TopK.PAD
    real = found & np.isfinite(top.scores)
    if np.array_equal(real, found):
        return top
    order = np.argsort(~real, axis=1, kind="stable")  # padding comes last
    ids = np.where(real, top.ids, np.int32(TopK.PAD))
    scores = np.where(real, top.scores, np.float32(-np.inf))
    return TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))


def _whole_number(k: Any) -> int:
    """How many labels are asked for; also a number of numpy's."""
    try:
        found = 0 if isinstance(k, bool) else index(k)
    except TypeError:
        found = 0
    if found < 1:
        raise ConfigError(f"k is {k!r}, expected a whole number >= 1", "ask for at least one label")
    return found


def _in_a_row(texts: Any) -> Any:
    """One text as a list of one, and as a list what can only be gone through: generators, sets, keys of a dict."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, Mapping) and any(isinstance(column, str) for column in texts.values()):
        raise ConfigError("a dict of texts, expected columns or a list", "give a list with a dict per document")
    if isinstance(texts, np.ndarray) and texts.ndim == 0:
        return [texts.item()]
    return list(texts) if isinstance(texts, Iterator | Set | ValuesView) else texts


def _check_texts(texts: Sequence[Any]) -> None:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(f"text {number} is {text!r}, expected a string", "give a list of strings")


def even_pieces(documents: int, threads: int) -> list[slice]:
    """Pieces of even size, as many for each thread; fewer than `threads` where documents are few."""
    together = max(1, min(threads, documents // FEWEST))
    pieces = together * max(1, -(-documents // (MOST * together)))
    return [slice(n * documents // pieces, (n + 1) * documents // pieces) for n in range(pieces)]


class _Kept:
    """Strings of a table that were asked for are kept."""

    def __init__(self, table: StringTable) -> None:
        self.table, self.known = table, np.full(len(table), None, dtype=object)

    def take(self, numbers: NDArray[np.integer[Any]]) -> list[str]:
        found: list[str] = self.known[numbers].tolist()
        if None in found:
            new = np.unique(numbers[[string is None for string in found]])
            self.known[new] = self.table.take(new)
            found = self.known[numbers].tolist()
        return found


def _strings(table: StringTable) -> _Kept | StringTable:
    return _Kept(table) if len(table) <= _KEPT else table


class _Known(dict[str, int]):
    """Ids as numbers; -1 for an id that is not there."""

    def __init__(self, uids: Sequence[str]) -> None:
        super().__init__(zip(uids, range(len(uids)), strict=True))

    def __missing__(self, uid: str) -> int:
        return -1


class _Labels(_Known):
    """Ids of labels as numbers; an unknown one is an error."""

    def __missing__(self, uid: str) -> int:
        raise ConfigError(f"{uid!r} is not a label of this model", nearest(str(uid), list(self)))


def _matrix(lists: Sequence[Sequence[str]], documents: int, numbers: _Known, what: str) -> Csr:
    """(B, n) CSR of ones: lists of ids as numbers."""
    from scipy.sparse import csr_array

    if isinstance(lists, str) or len(lists) != documents:
        raise ConfigError(
            f"{what} has {len(lists)} entries for {documents} documents",
            "give a list of ids for every document, [] where there are none",
        )
    found: list[list[int]] = []
    for number, ids in enumerate(lists):
        if isinstance(ids, str) or not all(isinstance(uid, str) for uid in ids):
            raise ConfigError(
                f"{what} of document {number} is {ids!r}, expected a list of ids", 'e.g. [["id-1", "id-2"], []]'
            )
        found.append(sorted({numbers[uid] for uid in ids} - {-1}))
    ends = np.cumsum([0, *map(len, found)])
    columns = np.array([column for row in found for column in row], dtype=np.int64)
    return csr_array((np.ones(len(columns), np.float32), columns, ends), shape=(documents, len(numbers)))
