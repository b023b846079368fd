"""How long and how much a connection may send before its request has begun, and how slowly it may read."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_BYTES = 65_536
HEADER_S = 20.0  # or --timeout, where that is less
READ_BYTES = 65_536  # of an answer that waits, which a client must read within --timeout seconds
AHEAD = 100  # requests that may be sent before the first of them is answered


class Connection(HttpToolsProtocol):
    """uvicorn's connection with bounds, and without what it gets wrong:

    - It would wait for ever for the end of a head, and keep all of it: `HEADER_S` and `HEADER_BYTES` bound both.
    - It would keep an answer for ever that its client does not read: see `READ_BYTES`.
    - It would read requests without end before it has answered the first: at most `AHEAD` are read.
    - It would drop the body of a request that could go on as another protocol (``Upgrade``), or take it for the next
      request: see `_parse`.
    - It would not answer a client that has closed its half of the connection: see `eof_received`.
    """

    _head_timer: asyncio.TimerHandle | None = None  # ends the connection if a request does not come in time
    _reader_timer: asyncio.TimerHandle | None = None  # ends it if an answer is not read in time
    _head_bytes = 0  # that the parser told of, of the head that is coming
    _untold_bytes = 0  # that the parser keeps: it tells of a header (also of one behind a body) when all of it is there
    _in_head = True  # between requests, or in the head of one
    _is_last = False  # no request is read after the one that is all here
    _at_work: Any = None  # the request that is being answered; `cycle` is the last that came

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._tell_count()
        self._time_head()

    def data_received(self, data: bytes) -> None:
        if self._is_last:
            return
        self._untold_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if not self._is_last:
                self.logger.warning("what came is no HTTP request")
                self.send_400_response("Invalid HTTP request received.")
        if self.transport.is_closing():
            return
        if self._untold_bytes > HEADER_BYTES:
            self.send_400_response(f"a head of more than {HEADER_BYTES} bytes")
        elif not self._is_answering() and self._head_timer is None:
            # uvicorn stops its timer of idle connections when bytes come. These begin no request (empty lines), or are
            # of a body whose request was answered without it.
            self._time_head()

    def _parse(self, data: bytes) -> None:
        """A request that could go on as another protocol goes on as it is. The parser passes over its body: another one
        reads it, behind a head that tells its length and nothing else.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as passed_over:
            lengths = [pair for pair in self.headers if pair[0] in (b"content-length", b"transfer-encoding")]
            head = b"".join(b"%b: %b\r\n" % pair for pair in [*lengths, (b"connection", b"close")])
            self.parser = httptools.HttpRequestParser(_Body(self))
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n" + data[passed_over.args[0] :])

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client will send nothing more. Whether the connection stays open: if a whole request is here, until it is
        answered.
        """
        if not (self._is_answering() and self._in_head):
            return False
        self.cycle.keep_alive = False
        return True

    def _time_head(self) -> None:
        self._stop_timing_head()
        seconds = min(HEADER_S, self._timeout_s()) if self._in_head else self._timeout_s()
        self._head_timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timing_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._time_head()

    def on_url(self, url: bytes) -> None:
        self._add_to_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._add_to_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= AHEAD:
            raise ValueError(f"more than {AHEAD} requests ahead")  # the parser passes it on, and the answer is 400
        self._stop_timing_head()
        self._in_head, self._untold_bytes = False, 0
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._untold_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():  # its body comes from the next parser
            return
        self._in_head = True
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_reader()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._time_reader()  # also the last of an answer is taken in time, or a connection would never be closed

    def _time_reader(self) -> None:
        """Who does not read holds an answer in memory, and the place of another request."""
        self._stop_timing_reader()
        if left := self.transport.get_write_buffer_size():
            self._reader_timer = self.loop.call_later(self._timeout_s(), self._look_at_reader, left)

    def _timeout_s(self) -> float:
        application: Any = self.app
        return float(application.service.limits.timeout_s)

    def _look_at_reader(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left and before - left < READ_BYTES:
            self.transport.abort()
        else:
            self._time_reader()

    def _stop_timing_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def resume_writing(self) -> None:
        self._stop_timing_reader()
        super().resume_writing()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._at_work = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing_head()
        self._stop_timing_reader()
        if self._at_work is not None:
            self._at_work.disconnected = True  # else it would write to nobody, which is an error with a trace
            self._at_work.message_event.set()
        super().connection_lost(exc)
        self._tell_count()

    def _tell_count(self) -> None:
        """Workers look at each other's connections when they take new ones."""
        application: Any = self.app
        application.service.counters.worker.connections = len(self.connections)

    def _add_to_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEADER_BYTES:
            # The parser passes it on, and the answer is 400.
            raise ValueError(f"a head of more than {HEADER_BYTES} bytes")


class _Body:
    """What a connection hears of the body of a request whose head it knows."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.on_body = connection, connection.on_body

    def on_message_complete(self) -> None:
        self.connection._is_last = True
        self.connection.on_message_complete()
