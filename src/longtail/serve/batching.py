"""Requests that arrive together are answered together.

A model has a thread. A request that finds it idle is answered at once, with those that arrived at the same moment;
those that arrive while it works wait, and are taken together when it is done: under load batches grow by themselves,
alone nobody waits. How long one may wait is bounded: by the number of texts that wait (beyond it requests are refused),
by the size of a batch, and by a time.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from contextlib import nullcontext
from typing import Any

from longtail.serve.counters import Counters
from longtail.serve.hosted import Asked, Found, Hosted, answer_together
from longtail.serve.limits import Limits
from longtail.serve.problems import busy

# Two threads must not call kernels at once under one of numba's threading layers.
_ONE_AT_A_TIME = threading.Lock()


class _Ticket:
    __slots__ = ("asked", "future", "hosted", "since")

    def __init__(self, hosted: Hosted, asked: Asked, future: asyncio.Future[list[Found]]) -> None:
        self.hosted, self.asked, self.future, self.since = hosted, asked, future, time.monotonic()


class Line:
    """Where requests to a model wait. Used on the event loop; only `_work` runs on the thread."""

    def __init__(self, name: str, limits: Limits, counters: Counters) -> None:
        self.name, self.limits, self.counters = name, limits, counters
        self.waiting: deque[_Ticket] = deque()
        self.texts = 0  # that wait
        self.busy = False
        self.pace = 0.001  # seconds for a text, lately
        self._orders: queue.SimpleQueue[tuple[Hosted, list[_Ticket]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name=f"longtail-{name}", daemon=True)
        self._thread.start()

    async def ask(self, hosted: Hosted, asked: Asked) -> list[Found]:
        """The answers to a request of at most `Limits.batch_texts` texts."""
        if self.waiting and self.texts + len(asked.texts) > self.limits.queue_texts:
            self.counters.model(self.name).shed += 1
            raise busy(f"{self.texts} texts wait already for the model '{self.name}'", self.texts * self.pace)
        ticket = _Ticket(hosted, asked, self._loop.create_future())
        self.waiting.append(ticket)
        self._count(len(asked.texts))
        if not self.busy:
            self.busy = True
            # Requests whose bytes are here already come along: they are read in one round of the loop and get here in
            # the next. Alone, that takes microseconds.
            self._loop.call_soon(self._loop.call_soon, self._next)
        return await ticket.future

    def _count(self, change: int) -> None:
        self.texts += change
        self.counters.model(self.name).waiting = self.texts

    def _next(self) -> None:
        """Give the thread what waits: requests to the same version of the model, as many as fit into a batch."""
        taken: list[_Ticket] = []
        size = 0
        while self.waiting:
            ticket = self.waiting[0]
            if taken and (
                ticket.hosted is not taken[0].hosted or size + len(ticket.asked.texts) > self.limits.batch_texts
            ):
                break
            self.waiting.popleft()
            self._count(-len(ticket.asked.texts))
            if not ticket.future.done():
                taken.append(ticket)
                size += len(ticket.asked.texts)
        self.busy = bool(taken)
        if taken:
            self._orders.put((taken[0].hosted, taken))

    def refuse_old(self) -> None:
        """Requests that waited too long are told so."""
        now = time.monotonic()
        for ticket in self.waiting:
            if now - ticket.since > self.limits.timeout_s and not ticket.future.done():
                ticket.future.set_exception(busy(f"waited {self.limits.timeout_s:g} seconds for its turn", 1))

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            hosted, tickets = order
            started = time.perf_counter()
            with _ONE_AT_A_TIME if must_take_turns() else nullcontext():
                answers = answer_together(hosted, [ticket.asked for ticket in tickets], self.limits)
            seconds = time.perf_counter() - started
            del hosted, order  # an old version is not held until the next request
            try:
                self._loop.call_soon_threadsafe(self._done, tickets, answers, seconds)
            except RuntimeError:  # the loop has ended
                return
            del tickets, answers

    def _done(self, tickets: list[_Ticket], answers: list[Any], seconds: float) -> None:
        size = sum(len(ticket.asked.texts) for ticket in tickets)
        self.pace += 0.1 * (seconds / max(size, 1) - self.pace)
        counters = self.counters.model(self.name)
        counters.batch(size, seconds)
        for ticket, answer in zip(tickets, answers, strict=True):
            if ticket.future.done():
                continue
            if isinstance(answer, Exception):
                ticket.future.set_exception(answer)
            else:
                counters.abstained += sum(not one.labels for one in answer)
                ticket.future.set_result(answer)
        self._next()

    def stop(self) -> None:
        self._orders.put(None)


def must_take_turns() -> bool:
    """Whether numba's threads are of the kind that ends the process when two threads call kernels at once."""
    import numba

    layers: Any = numba
    try:
        return bool(layers.threading_layer() == "workqueue")
    except ValueError:  # no kernel with threads was called yet; the next one might be the first
        return True
