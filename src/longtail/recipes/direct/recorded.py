"""Steps of `direct` that a GPU is told once, and then plays by itself (CUDA graphs).

A step of one model is well over a hundred kernels, which a processor takes longer to tell than a GPU to compute. What
is told once must be the same in every step but for the numbers in memory. So batches have room for more entries than
most of them have (`recorded_inputs`), what is left over counts for nothing, and learning rates lie on the GPU. Each
step one small array is sent there: where the rows of its documents and targets begin, and the rates. There are up to
three kinds of steps for each length of a batch: those that look at label texts, those that teach them, and others. The
first step of a kind is told as any other, the second is recorded, and then all models learn by one call.

The numbers are those of plain steps (`AllLabels.step`, the oracle) up to rounding; `recorded_triton` has the kernels.
What cannot be recorded (`why_not`) takes plain steps, and so does a batch with more entries than there is room for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from longtail.nn.batches import Bags, DeviceCsr, Documents, TensorBatch, has_triton
from longtail.nn.full import Pairs, by_gradient
from longtail.nn.row_tables import AdamFactors, RowAdam
from longtail.recipes.direct.as_one import side_by_side
from longtail.recipes.direct.objective import BETAS, EPSILON, AllLabels, PaddedTable, TextRows, thinned
from longtail.recipes.direct.recorded_inputs import FixedInputs, RoomyBags, TextPlan
from longtail.report import first_line
from longtail.training.objectives import TrainingObjective
from longtail.training.run import Run
from longtail.types import I64

if TYPE_CHECKING:
    from longtail.nn.triton_kernels import FactorsThere


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
        "rows do not have Adam's moments (train.rows)": any(type(each) is not AllLabels for each in objectives),
        "another recipe adds a loss": one.extra is not None,
        "several processes train together": one.shard.processes > 1,
        "documents are on the disk": type(one.documents) is not Documents or type(one.targets) is not DeviceCsr,
        "products are not in bf16": one.sweep.variant != "triton",
        "moments of words are light (train.words)": any(type(a) is not RowAdam for a in one.adam.by_row.values()),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


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
            gradient = one.texts.gradient_to_sums(rows.text_gradient)
            if one.texts.map is not None:
                # No more exact than the product that it comes from, and read once for each word of each label.
                gradient = gradient.to(one.texts.compute)
            self.plan.teach(adam, gradient, factors["texts"])
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
        own: Callable[..., torch.cuda.Stream] = torch.cuda.Stream
        self._streams = [own(self.device) if on_gpu and self.branches else None for _ in objectives]
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
            self.refused = first_line(error) or type(error).__name__
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
