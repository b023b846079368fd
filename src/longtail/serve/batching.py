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
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from longtail.serve.counters import Counters
from longtail.serve.hosted import Given, Hosted, Wanted, answer_together, as_error
from longtail.serve.limits import Limits
from longtail.serve.problems import busy

# Two threads must not call kernels at once under one of numba's threading layers.
_ONE_AT_A_TIME = threading.Lock()


class _Ticket:
    __slots__ = ("asked", "future", "hosted", "since")

    def __init__(self, hosted: Hosted, asked: Wanted, future: asyncio.Future[list[Given]]) -> None:
        self.hosted, self.asked, self.future, self.since = hosted, asked, future, time.monotonic()


class Line:
    """Where requests to a model wait. Wanted on the event loop; `_work` runs on the model's thread and takes what waits
    by itself: it need not wait for a loop that is busy writing answers.
    """

    def __init__(self, name: str, limits: Limits, counters: Counters) -> None:
        self.name, self.limits, self.counters = name, limits, counters
        self.pace = 0.001  # seconds for a text, lately
        self._lock = threading.Lock()  # for the next three
        self._waiting: deque[_Ticket] = deque()
        self._texts = 0  # that wait
        self._idle = True
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name=f"longtail-{name}", daemon=True)
        self._thread.start()

    async def ask(self, hosted: Hosted, asked: Wanted) -> list[Given]:
        """The answers to a request of at most `Limits.batch_texts` texts."""
        ticket = _Ticket(hosted, asked, self._loop.create_future())
        with self._lock:
            texts = self._texts
            taken = not self._waiting or texts + len(asked.texts) <= self.limits.queue_texts
            if taken:
                self._waiting.append(ticket)
                self._texts += len(asked.texts)
            called, self._idle = self._idle, False
        if called:
            # Requests whose bytes are here already come along: they are read in one round of the loop and get here in
            # the next. Alone, that takes microseconds.
            self._loop.call_soon(self._call_soon)
        numbers = self.counters.model(self.name)
        if not taken:
            numbers.shed += 1
            raise busy(f"{texts} texts wait already for the model '{self.name}'", texts * self.pace)
        numbers.waiting = self._texts
        return await ticket.future

    def _call_soon(self) -> None:
        self._loop.call_soon(self._calls.put, True)

    def refuse_old(self) -> None:
        """Requests that waited too long are told so."""
        now = time.monotonic()
        with self._lock:
            old = [ticket for ticket in self._waiting if now - ticket.since > self.limits.timeout_s]
        for ticket in old:
            if not ticket.future.done():
                ticket.future.set_exception(busy(f"waited {self.limits.timeout_s:g} seconds for its turn", 1))

    def _work(self) -> None:
        while self._calls.get():
            while tickets := self._next():
                started = time.perf_counter()
                answers: list[list[Given] | Exception]
                try:
                    with tickets[0].hosted.turn():
                        answers = answer_together(tickets[0].hosted, [ticket.asked for ticket in tickets], self.limits)
                except BaseException as problem:  # the thread goes on, whatever happens
                    answers = [as_error(problem)] * len(tickets)
                seconds = time.perf_counter() - started
                try:
                    self._loop.call_soon_threadsafe(self._done, tickets, answers, seconds)
                except RuntimeError:  # the loop has ended
                    return
                del tickets, answers  # an old version is not held until the next request

    def _next(self) -> list[_Ticket]:
        """Requests to the same version of the model, as many as fit into a batch; none: the thread rests."""
        taken: list[_Ticket] = []
        size = 0
        with self._lock:
            while self._waiting:
                ticket = self._waiting[0]
                if taken and (
                    ticket.hosted is not taken[0].hosted or size + len(ticket.asked.texts) > self.limits.batch_texts
                ):
                    break
                self._waiting.popleft()
                self._texts -= len(ticket.asked.texts)
                if not ticket.future.done():
                    taken.append(ticket)
                    size += len(ticket.asked.texts)
            self._idle = not taken
            # Also where all that waited had given up: nothing is done then.
            self.counters.model(self.name).waiting = self._texts
        return taken

    def _done(self, tickets: list[_Ticket], answers: list[Any], seconds: float) -> None:
        size = sum(len(ticket.asked.texts) for ticket in tickets)
        self.pace += 0.1 * (seconds / max(size, 1) - self.pace)
        numbers = self.counters.model(self.name)
        numbers.batch(size, seconds)
        numbers.waiting = self._texts
        for ticket, answer in zip(tickets, answers, strict=True):
            if ticket.future.done():
                continue
            if isinstance(answer, Exception):
                ticket.future.set_exception(answer)
            else:
                numbers.abstained += sum(not one.labels for one in answer)
                ticket.future.set_result(answer)

    def stop(self) -> None:
        self._calls.put(False)


def turn() -> AbstractContextManager[Any]:
    """Around whatever calls kernels, on any thread of a worker."""
    return _ONE_AT_A_TIME if must_take_turns() else nullcontext()


def must_take_turns() -> bool:
    """Whether numba's threads are of the kind that ends the process when two threads call kernels at once."""
    import numba

    layers: Any = numba
    try:
        return bool(layers.threading_layer() == "workqueue")
    except ValueError:  # no kernel with threads was called yet; the next one might be the first
        return True
