"""How long and how much a connection may send before its request has begun, and how slowly it may read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_BYTES = 65_536
HEADER_S = 20.0
READ_BYTES = 65_536  # that who is behind must take within --timeout seconds


class Connection(HttpToolsProtocol):
    """uvicorn's, which would wait for ever for the end of a head, and keep all of it."""

    _patience: asyncio.TimerHandle | None = None
    _slow: asyncio.TimerHandle | None = None
    _sent = 0
    # The parser tells of a header when all of it is there; what it keeps until then is counted here.
    _in_head = True
    _received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._note()
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._received += len(data)
        super().data_received(data)
        if self._in_head and self._received > HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(f"a head of more than {HEADER_BYTES} bytes")

    def _wait(self) -> None:
        self._enough()
        self._patience = self.loop.call_later(HEADER_S, self.transport.abort)

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
        self._enough()
        self._in_head, self._received = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def _watch_reader(self) -> None:
        """Who does not read holds an answer in memory, and the place of another request."""
        application: Any = self.app
        left = self.transport.get_write_buffer_size()
        self._slow = self.loop.call_later(application.service.limits.timeout_s, self._look_at_reader, left)

    def _look_at_reader(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < READ_BYTES:
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

    def connection_lost(self, exc: Exception | None) -> None:
        self._enough()
        self._reads()
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

    def _unsupported_upgrade_warning(self) -> None:
        """A request that could go on as something else goes on as it is; nobody needs to hear of it."""
