"""Steps of `direct` that a GPU is told once, and then plays by itself (CUDA graphs).

A step of one model is well over a hundred kernels, which a processor takes longer to tell than a GPU to compute. What
is told once must be the same in every step but for the numbers in memory. So batches have room for more entries than
most of them have (`room_for`), what is left over counts for nothing, and learning rates lie on the GPU. Each step one
small array is sent there: where the rows of its documents and targets begin, and the rates. There are up to three kinds
of steps for each length of a batch: those that look at label texts, those that teach them, and others. The first step
of a kind is told as any other, the second is recorded, and then all models learn by one call.

The numbers are those of plain steps (`AllLabels.step`, the oracle) up to rounding; `recorded_triton` has the kernels.
What cannot be recorded (`why_not`) takes plain steps, and so does a batch with more entries than there is room for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from longtail.nn.batches import Bags, DeviceCsr, Documents, TensorBatch, has_triton, to_tensor
from longtail.nn.full import Pairs, by_gradient
from longtail.nn.row_tables import AdamFactors, RowAdam
from longtail.recipes.direct.as_one import side_by_side
from longtail.recipes.direct.objective import BETAS, EPSILON, AllLabels, PaddedTable, TextRows, thinned
from longtail.training.objectives import TrainingObjective
from longtail.training.run import Run
from longtail.types import I64, Csr

if TYPE_CHECKING:
    from longtail.nn.triton_kernels import FactorsThere

# Names no row of any table.
_NONE = 2**31 - 1
# Of how many standard deviations more entries than the average a batch has room for.
_SPREADS = 6.0
# A word of more label texts than this is summed up in pieces: one bag of thousands would hold up all others.
_LONG, _PIECE = 128, 64


def steps_of(objectives: Sequence[AllLabels], choice: Literal["auto", "off"], run: Run) -> TrainingObjective:
    """All models, in steps of the same batches: recorded where that is possible, and metrics.jsonl says why not."""
    plain = side_by_side(objectives)
    if run.device != "cuda":
        return plain
    why = "train.recorded=off" if choice == "off" else why_not(objectives)
    run.log("steps", recorded=not why, **({"why": why} if why else {}))
    return plain if why else RecordedSteps(plain, objectives, run.log)


def why_not(objectives: Sequence[AllLabels]) -> str:
    """What is in the way of recording; empty: nothing."""
    one = objectives[0]
    reasons = {
        "Triton is not installed": not has_triton(),
        "rows have no moments (train.rows=sgd)": any(type(each) is not AllLabels for each in objectives),
        "another recipe adds a loss": one.extra is not None,
        "several processes train together": one.shard.processes > 1,
        "documents are on the disk": type(one.documents) is not Documents or type(one.targets) is not DeviceCsr,
        "products are not in bf16": one.sweep.variant != "triton",
        "moments of words are light (train.words)": any(type(a) is not RowAdam for a in one.adam.by_row.values()),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


# ---- what a step reads, in fixed shapes ----


@dataclass(frozen=True)
class Sources:
    """Rows of a table that learn, and from which rows of a gradient: sums over bags.

    rows: (U,), `_NONE` where there is none.  starts: (U + 1,).  ids: (P,) rows of the gradient.
    weights: (P,); None where they are those of a batch.  order: (P,) then, the entries of the batch in this order.
    """

    rows: Tensor
    starts: Tensor
    ids: Tensor
    weights: Tensor | None = None
    order: Tensor | None = None

    def learn(self, adam: RowAdam, gradient: Tensor, factors: FactorsThere, weights: Tensor | None = None) -> None:
        """weights: of the batch, entry by entry."""
        from longtail.recipes.direct import recorded_triton

        own = self.weights if weights is None else weights[self.order]
        assert own is not None, "entries have weights"
        bags = (self.starts, self.ids, own)
        recorded_triton.learn_rows(adam.table, adam.first, adam.second, self.rows, bags, gradient, factors)


@dataclass(frozen=True, kw_only=True)
class RoomyBags(Bags):
    """Bags with room for more entries than they have; those count for nothing.

    owned: (P,) the bag of every entry, some bag where there is none.  words: which words the entries are, grouped.
    """

    owned: Tensor
    words: Sources | None = None

    @cached_property
    def owners(self) -> Tensor:
        return self.owned

    def sums(self, table: Tensor) -> Tensor:
        from longtail.recipes.direct import recorded_triton

        return recorded_triton.bag_sums(table, self.starts, self.ids, self.weights)


def room_for(matrix: DeviceCsr, batch: int) -> int:
    """Entries of a batch of so many rows, at most, but for one batch in many millions."""
    lengths = np.diff(matrix.starts)
    likely = batch * lengths.mean() + _SPREADS * lengths.std() * batch**0.5
    room = min(int(likely), int(np.sort(lengths)[-batch:].sum()))
    return room + -room % 128 or 128


def taken(matrix: DeviceCsr, starts: Tensor, begin: Tensor, room: int, nothing: int) -> RoomyBags:
    """The rows of a batch, (B,), as `DeviceCsr.bounds` says where they are.  nothing: the id where no entry is."""
    place = torch.arange(room, dtype=starts.dtype, device=starts.device)
    owners = torch.searchsorted(starts, place, right=True) - 1
    real = owners < len(begin)
    owners = owners.clamp(max=len(begin) - 1)
    at = torch.where(real, place + (begin - starts[:-1])[owners], 0)
    ids = torch.where(real, matrix.ids[at], nothing)
    return RoomyBags(starts, ids, torch.where(real, matrix.weights[at], 0.0), owned=owners)


def grouped(bags: RoomyBags) -> Sources:
    """The words of a batch, ascending, each with its documents; entries with `_NONE` are none."""
    count = len(bags.ids)
    found, order = bags.ids.sort(stable=True)
    first = torch.ones_like(found, dtype=torch.bool)
    first[1:] = found[1:] != found[:-1]
    slot = torch.where(first, first.cumsum(0) - 1, count + 1)
    places = torch.arange(count, dtype=torch.int32, device=found.device)
    starts = torch.full((count + 2,), count, dtype=torch.int32, device=found.device).scatter_(0, slot, places)[:-1]
    rows = torch.where(starts[:-1] < count, found[starts[:-1].clamp(max=count - 1)], _NONE)
    return Sources(rows, starts, bags.owned[order].int(), order=order)


@dataclass(frozen=True)
class TextPlan:
    """Sums over the words of label texts, and the way back.

    forth: (starts, ids, weights) of every label.  short: words that few labels have.  pieces, long: words that many
    have: bags of at most `_PIECE` labels each, and which of them belong to a word; None: there are no such words.
    """

    forth: tuple[Tensor, Tensor, Tensor]
    short: Sources
    pieces: tuple[Tensor, Tensor, Tensor] | None
    long: Sources | None

    @staticmethod
    def of(texts: TextRows) -> TextPlan:
        device, tokens = texts.tokens.device, texts.tokens.cpu().numpy()

        def there(*arrays: Any) -> tuple[Tensor, ...]:
            """Row numbers and positions in 32 bits."""
            kinds = (np.float32 if array.dtype.kind == "f" else np.int32 for array in arrays)
            return tuple(to_tensor(array.astype(kind), device) for array, kind in zip(arrays, kinds, strict=True))

        entries: Csr = texts.read.entries
        forth = there(entries.indptr, tokens[entries.indices], entries.data)
        back = entries.T.tocsr()
        counts = np.diff(back.indptr)
        # Those with most to do first.
        order = np.argsort(-counts, kind="stable")
        many, few = order[counts[order] > _LONG], order[counts[order] <= _LONG]
        part = back[few]
        short = Sources(*there(tokens[few], part.indptr, part.indices, part.data))
        if not len(many):
            return TextPlan((forth[0], forth[1], forth[2]), short, None, None)
        part = back[many]
        numbers = -(-np.diff(part.indptr) // _PIECE)
        ends = np.cumsum(numbers)
        within = np.arange(ends[-1]) - np.repeat(ends - numbers, numbers)
        starts = np.append(np.repeat(part.indptr[:-1], numbers) + _PIECE * within, part.nnz)
        pieces = there(starts, part.indices, part.data)
        whole = there(tokens[many], np.append(0, ends), np.arange(ends[-1]), np.ones(ends[-1], np.float32))
        return TextPlan((forth[0], forth[1], forth[2]), short, (pieces[0], pieces[1], pieces[2]), Sources(*whole))

    def look(self, texts: TextRows) -> None:
        """`TextRows.plain` becomes the sums of the words' vectors."""
        from longtail.recipes.direct import recorded_triton

        recorded_triton.bag_sums(texts.table.weight.detach(), *self.forth, out=texts.plain)

    def teach(self, adam: RowAdam, gradient: Tensor, factors: FactorsThere) -> None:
        """Words learn from a gradient to their sums."""
        from longtail.recipes.direct import recorded_triton

        if self.pieces is not None and self.long is not None:
            self.long.learn(adam, recorded_triton.bag_sums(gradient, *self.pieces), factors)
        self.short.learn(adam, gradient, factors)


# ---- one model ----


class FixedStep:
    """A step of one model in fixed shapes, with the rates that lie on its device.

    `factors` counts a step and says what Adam needs in it; the call does the rest, and may be recorded.
    """

    def __init__(self, one: AllLabels, plan: TextPlan | None) -> None:
        self.one, self.plan = one, plan
        rows = one.rows.free.rows
        shape = (len(rows) + -len(rows) % 8, rows.shape[1] + -rows.shape[1] % 16)
        self.composed = torch.zeros(shape, dtype=torch.bfloat16, device=rows.device)
        self.dense_steps: dict[str, int] | None = None

    def taught(self, *, teaches: bool) -> list[str]:
        """What learns in a step: rows of labels, words from the texts of labels, dense parameters, tables of words."""
        adam, texts = self.one.adam, ["texts"] if teaches else []
        # The gain and M learn with the texts.
        dense = [f"dense.{name}" for name in adam.dense if teaches or not name.startswith("texts.")]
        return ["rows", *texts, *dense, *(f"table.{name}" for name in adam.by_row)]

    def factors(self, rate: float, *, teaches: bool) -> list[AdamFactors]:
        """Of what is `taught`, in this order. Counts the step."""
        one, adam = self.one, self.one.adam
        if self.dense_steps is None:
            self.dense_steps = {name: int(adam.dense_state(name)["step"]) for name in adam.dense}
        found = []
        for taught in self.taught(teaches=teaches):
            kind, _, name = taught.partition(".")
            if kind == "rows":
                found.append(AdamFactors.of(one.counted(), rate, BETAS, EPSILON))
            elif kind == "texts":
                assert one.texts is not None, "texts are taught"
                found.append(adam.rows_of(one.texts.table).factors(rate * one.text_rate))
            elif kind == "dense":
                self.dense_steps[name] += 1
                found.append(AdamFactors.of(self.dense_steps[name], rate * adam.factor(name), BETAS, EPSILON))
            else:
                found.append(adam.by_row[name].factors(rate * adam.factor(name)))
        return found

    def __call__(
        self, batch: TensorBatch, targets: Bags, factors: Mapping[str, FactorsThere], *, looks: bool, teaches: bool
    ) -> Tensor:
        """The loss."""
        from longtail.recipes.direct import recorded_triton

        one, rows = self.one, self.one.rows
        documents = len(targets)
        self.forget()
        batch = thinned(batch, one.token_dropout)
        z_BD = one.vectors(batch, documents)
        if looks and self.plan is not None and one.texts is not None and rows.text is not None:
            self.plan.look(one.texts)
            rows.text.copy_(one.texts.finished())
        recorded_triton.compose(rows.free.rows, rows.trust, rows.text, self.composed)

        def receive(start: int, labels: int, gradient: Tensor, scale: float) -> None:
            block = slice(start, start + labels)
            tables = (rows.free.rows[block], rows.free.first[block], rows.free.second[block])
            of_text = None if rows.text_gradient is None else rows.text_gradient[block]
            recorded_triton.learn_composed(tables, gradient, scale, rows.trust[block], of_text, factors["rows"])

        x = torch.cat([z_BD.detach(), z_BD.new_ones(documents, 1)], dim=1)
        table, pairs = PaddedTable(self.composed, rows.labels), Pairs.marked(targets, one.weights)
        loss, gradient_BD = one.sweep(x, table, pairs, by_gradient(receive), batch=documents)
        torch.autograd.backward([z_BD], [gradient_BD[:, : z_BD.shape[1]]])
        if teaches and self.plan is not None and one.texts is not None and rows.text_gradient is not None:
            adam = one.adam.rows_of(one.texts.table)
            self.plan.teach(adam, one.texts.gradient_to_sums(rows.text_gradient), factors["texts"])
            rows.text_gradient.zero_()
        self._learn(factors)
        return loss

    @torch.no_grad()
    def _learn(self, factors: Mapping[str, FactorsThere]) -> None:
        """`ModelAdam.step`."""
        from longtail.nn.triton_kernels import adam_float32

        adam, counts = self.one.adam, []
        for name, p in adam.dense.items():
            if f"dense.{name}" in factors:
                assert p.grad is not None, f"{name} learns in every step of this kind"
                state = adam.dense_state(name)
                flat = [each.detach().view(1, -1) for each in (p, state["exp_avg"], state["exp_avg_sq"])]
                adam_float32(flat[0], flat[1], flat[2], p.grad.reshape(1, -1), 1.0, factors[f"dense.{name}"])
                counts.append(state["step"])
        if counts:
            torch._foreach_add_(counts, 1)
        for name, table in adam.tables.items():
            pending = table.take_gradient()
            assert pending is not None, "a batch reads its words"
            bags, gradient = pending
            assert isinstance(bags, RoomyBags), "made by `taken`"
            assert bags.words is not None, "made by `grouped`"
            bags.words.learn(adam.by_row[name], gradient.float(), factors[f"table.{name}"], bags.weights)
        self.forget()

    def forget(self) -> None:
        """What a backward pass left."""
        for p in self.one.adam.dense.values():
            p.grad = None
        for table in self.one.adam.tables.values():
            table.take_gradient()


# ---- all models ----


@dataclass(frozen=True)
class Kind:
    """What must be the same for two steps to be one recording."""

    documents: int
    looks: bool
    teaches: bool


class FixedInputs:
    """What is sent to the GPU in each step of a batch of so many documents: one array of 32-bit numbers.

    Four places for the rate and the spread of each `AdamFactors` (groups of 16 bytes); of the documents' words and of
    their targets where they start and begin (`DeviceCsr.bounds`); and the documents' own numbers.
    """

    def __init__(self, one: AllLabels, documents: int, factors: int) -> None:
        self.matrices = [matrix for matrix in (one.documents.sparse, one.targets) if matrix is not None]
        self.rooms = [room_for(matrix, documents) for matrix in self.matrices]
        self.dense, self.documents = one.documents.dense, documents
        self.sizes = [4 * factors, *[documents + 1, documents] * len(self.matrices), documents]
        self.there = torch.zeros(sum(self.sizes), dtype=torch.int32, device=one.documents.device)

    def positions(self, rows: I64) -> list[I64] | None:
        """To be sent; None if the batch has more entries than there is room for, or none at all."""
        pieces = []
        for matrix, room in zip(self.matrices, self.rooms, strict=True):
            starts, begin = matrix.bounds(rows)
            if not 0 < starts[-1] <= room:
                return None
            pieces += [starts, begin]
        return [*pieces, rows]

    def send(self, positions: Sequence[I64], factors: Sequence[AdamFactors]) -> None:
        numbers = np.zeros((len(factors), 4), np.float32)
        numbers[:, :2] = [(each.rate, each.spread) for each in factors]
        array = np.concatenate([numbers.reshape(-1).view(np.int32), *(piece.astype(np.int32) for piece in positions)])
        host = torch.from_numpy(array)
        self.there.copy_(host.pin_memory() if self.there.is_cuda else host, non_blocking=True)

    def batch(self) -> tuple[TensorBatch, Bags, list[FactorsThere]]:
        """The documents, their targets, and Adam's factors, made of what was sent."""
        from longtail.nn.triton_kernels import FactorsThere

        numbers, *pieces, rows = self.there.split(self.sizes)
        # A word that is none, and a label: kernels leave both alone.
        nothing = [_NONE] * (len(self.matrices) - 1) + [-1]
        *words, targets = [
            taken(matrix, pieces[2 * at], pieces[2 * at + 1], self.rooms[at], nothing[at])
            for at, matrix in enumerate(self.matrices)
        ]
        sparse = replace(words[0], words=grouped(words[0])) if words else None
        dense = None if self.dense is None else self.dense[rows]
        same = AdamFactors.of(1, 0.0, BETAS, EPSILON)
        factors = [
            FactorsThere(*same[:4], each[0:1], each[1:2], EPSILON) for each in numbers.view(torch.float32).view(-1, 4)
        ]
        return TensorBatch(sparse, dense), targets, factors


class RecordedSteps:
    """Steps of models over the same batches, recorded.  plain: the same in plain steps.  log: into metrics.jsonl.

    A recording is of the tensors that it was made with: whoever sets a state copies into them, as `fit` does.
    """

    # Whether models learn beside each other on the GPU, or one after the other.
    branches: ClassVar[bool] = True

    def __init__(self, plain: TrainingObjective, objectives: Sequence[AllLabels], log: Callable[..., None]) -> None:
        self.plain, self.objectives, self._log = plain, tuple(objectives), log
        texts = [one.texts for one in objectives if isinstance(one.texts, TextRows)]
        plan = TextPlan.of(texts[0]) if texts else None
        self.models = [FixedStep(one, plan) for one in objectives]
        self.device, self.refused = objectives[0].documents.device, ""
        self._inputs: dict[Kind, FixedInputs] = {}
        self._recordings: dict[Kind, tuple[Any, Tensor]] = {}
        self._kept: list[Tensor] = []
        on_gpu = self.device.type == "cuda"
        self._streams = [torch.cuda.Stream(self.device) if on_gpu and self.branches else None for _ in objectives]
        self._pool = torch.cuda.graph_pool_handle() if on_gpu else None

    @property
    def size(self) -> int:
        return self.plain.size

    def order(self, rng: np.random.Generator) -> Any:
        return self.objectives[0].order(rng)

    def state(self) -> dict[str, Tensor]:
        return self.plain.state()

    def step(self, rows: I64, rng: np.random.Generator, rate: float) -> Tensor:
        looks, teaches = self.objectives[0].of_texts()
        kind = Kind(len(rows), looks, teaches)
        if kind not in self._inputs:
            count = sum(len(model.taught(teaches=teaches)) for model in self.models)
            self._inputs[kind] = FixedInputs(self.objectives[0], kind.documents, count)
        elif kind not in self._recordings and not self.refused and self.device.type == "cuda":
            self._record(kind)
        inputs = self._inputs[kind]
        positions = None if self.refused else inputs.positions(rows)
        if positions is None:
            for model in self.models:
                model.dense_steps = None
            return self.plain.step(rows, rng, rate)
        inputs.send(positions, [each for model in self.models for each in model.factors(rate, teaches=teaches)])
        if kind not in self._recordings:
            return self._learn(kind)
        graph, loss = self._recordings[kind]
        graph.replay()
        return loss.clone()

    def _record(self, kind: Kind) -> None:
        """Nothing is computed by that."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                loss = self._learn(kind)
        except RuntimeError as error:
            self.refused = str(error).splitlines()[0]
            self._log("steps", recorded=False, why=self.refused)
            for model in self.models:
                model.forget()
        else:
            # Memory that the recording uses, and which others would give away.
            self._kept += [one.sweep.scratch for one in self.objectives]
            self._recordings[kind] = (graph, loss)

    def _learn(self, kind: Kind) -> Tensor:
        """A step of what was sent; the mean loss."""
        batch, targets, factors = self._inputs[kind].batch()
        common = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        given, losses = iter(factors), []
        for model, stream in zip(self.models, self._streams, strict=True):
            own = {name: next(given) for name in model.taught(teaches=kind.teaches)}
            if stream is not None and common is not None:
                stream.wait_stream(common)
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                losses.append(model(batch, targets, own, looks=kind.looks, teaches=kind.teaches))
        for stream in self._streams:
            if stream is not None and common is not None:
                common.wait_stream(stream)
        return torch.stack(losses).mean()
