"""How long and how much a connection may send before its request has begun, and how slowly it may read."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_BYTES = 65_536
HEADER_S = 20.0  # or --timeout, where that is less
READ_BYTES = 65_536  # that who is behind must take within --timeout seconds
AHEAD = 100  # requests that may be sent before the first of them is answered


class Connection(HttpToolsProtocol):
    """uvicorn's, which would wait for ever for the end of a head, and keep all of it; which would drop the body of a
    request that could go on as another protocol, or take it for the next request; which would not answer who has said
    that nothing more will come; and which would read ever more requests of who sends them without end.
    """

    _patience: asyncio.TimerHandle | None = None
    _slow: asyncio.TimerHandle | None = None
    _sent = 0
    _is_last = False  # no request is read after the one that is all here
    _answered: Any = None  # the request that is; `cycle` is the last that came
    _in_head = True
    # The parser tells of a header (also of one behind a body) when all of it is there; what it keeps until then is
    # counted here.
    _received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._note()
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._is_last:
            return
        self._received += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if not self._is_last:
                self.logger.warning("what came is no HTTP request")
                self.send_400_response("Invalid HTTP request received.")
        if self.transport.is_closing():
            return
        if self._received > HEADER_BYTES:
            self.send_400_response(f"a head of more than {HEADER_BYTES} bytes")
        elif not self._is_answering() and self._patience is None:
            # Bytes end the time that an idle connection has. These begin no request (empty lines), or are of a body
            # whose request was answered without it.
            self._wait()

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
        """Whether the connection stays, although nothing more will come: until all is answered that is here."""
        if not (self._is_answering() and self._in_head):
            return False
        self.cycle.keep_alive = False
        return True

    def _wait(self) -> None:
        self._enough()
        seconds = min(HEADER_S, self._timeout_s()) if self._in_head else self._timeout_s()
        self._patience = self.loop.call_later(seconds, self.transport.abort)

    def _enough(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._sent = 0
        self._wait()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= AHEAD:
            raise ValueError(f"more than {AHEAD} requests ahead")  # the parser passes it on, and the answer is 400
        self._enough()
        self._in_head, self._received = False, 0
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._received = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():  # its body comes from the next parser
            return
        self._in_head = True
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_reader()  # also the last of an answer is taken in time, or a connection would never be closed

    def _watch_reader(self) -> None:
        """Who does not read holds an answer in memory, and the place of another request."""
        self._reads()
        if left := self.transport.get_write_buffer_size():
            self._slow = self.loop.call_later(self._timeout_s(), self._look_at_reader, left)

    def _timeout_s(self) -> float:
        application: Any = self.app
        return float(application.service.limits.timeout_s)

    def _look_at_reader(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left and before - left < READ_BYTES:
            self.transport.abort()
        else:
            self._watch_reader()

    def _reads(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def resume_writing(self) -> None:
        self._reads()
        super().resume_writing()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enough()
        self._reads()
        if self._answered is not None:
            self._answered.disconnected = True  # else it would write to nobody, which is an error with a trace
            self._answered.message_event.set()
        super().connection_lost(exc)
        self._note()

    def _note(self) -> None:
        """Workers look at each other's connections when they take new ones."""
        application: Any = self.app
        application.service.counters.worker.connections = len(self.connections)

    def _count(self, size: int) -> None:
        self._sent += size
        if self._sent > HEADER_BYTES:
            # The parser passes it on, and the answer is 400.
            raise ValueError(f"a head of more than {HEADER_BYTES} bytes")


class _Body:
    """What a connection hears of the body of a request whose head it knows."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.on_body = connection, connection.on_body

    def on_message_complete(self) -> None:
        self.connection._is_last = True
        self.connection.on_message_complete()
