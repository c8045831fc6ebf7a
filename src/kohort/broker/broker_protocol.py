"""One connection of the broker as asyncio sees it: bytes in, frames to the core, answers out.

When a connection has had its share is said here; which one comes next is the server's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kohort.broker.connection import MAX_TOKEN_BYTES, Connection
from kohort.broker.core import READ_AT_ONCE_BYTES

if TYPE_CHECKING:
    from kohort.broker.listeners import Listener
    from kohort.broker.server import Server

_SIZE = struct.Struct(">i")
_JOIN_BELOW = 65536
_LARGE_BYTES = 1024 * 1024
_FRAMES_PER_TURN = 512
_MAX_PENDING = 1000
_WRITE_BUFFER_HIGH = 4 * 1024 * 1024


class BrokerProtocol(asyncio.Protocol):
    """One connection: bytes in, frames to the core; answers out; no reading while the peer does not read."""

    __slots__ = ("_chunks", "_core", "_have", "_need", "_server", "_transport", "_writable", "connection", "listener")

    def __init__(self, server: Server, listener: Listener) -> None:
        self._server = server
        self.listener = listener
        self._core = server.core
        self._transport: Any = None
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 4
        self._writable = True
        self.connection: Connection | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        host = peer[0] if peer else "?"
        self.connection = Connection(host, self)
        self.connection.last_active_ms = self._server.clock.now_ms()
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH)
        self._server.admit(self.connection, self.listener, transport.get_extra_info("peercert"))
        self._server.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.connection is not None:
            self._core.connection_lost(self.connection)
            self._server.disconnected(self)
        self._chunks.clear()

    # In.

    def data_received(self, data: bytes) -> None:
        held_back = self._server.held_back
        if held_back and self in held_back:  # a transport with a buffer of its own
            held_back[self] += data
            return
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            if self._need > _LARGE_BYTES:
                self._split(*self._large_frame())
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        self._split(data)

    def _large_frame(self) -> tuple[bytes, bytes]:
        """What follows the frame that is complete now, and the frame, copied once: a hundred megabytes take a while."""
        chunks, self._chunks = self._chunks, []
        size_of_last = len(chunks[-1]) - (self._have - self._need)
        rest = chunks[-1][size_of_last:]
        chunks[-1] = chunks[-1][:size_of_last]
        chunks[0] = chunks[0][4:]
        return rest, b"".join(chunks)

    def _split(self, data: bytes, first: bytes | None = None) -> None:
        """The requests that have come; the `first` is a frame on its own."""
        connection, core = self.connection, self._core
        assert connection is not None
        receive, unpack, limit = core.receive, _SIZE.unpack_from, self._server.max_frame_bytes
        if connection.guard is not None and not connection.guard.is_known:
            limit = min(limit, MAX_TOKEN_BYTES)  # strangers take no memory
        now_ms = self._server.clock.now_ms()
        if core.meter is not None:
            core.meter.arrive()
        began = perf_counter()
        budget = 0 if self._server.turn_is_over(began) else self._budget()
        slice_end = 0.0
        pos, end = 0, len(data)
        self._need = 4
        if first is not None:
            if budget <= 0:
                self._hold_back(_SIZE.pack(len(first)) + first + data)
                self._server.end_turn()
                return
            receive(connection, first, now_ms)
            budget = 0 if connection.is_occupied else budget - 1
        while end - pos >= 4 and connection.close_reason is None:
            (size,) = unpack(data, pos)
            if not 0 <= size <= limit:
                core.disconnect(connection, f"a request of {size} bytes; socket.request.max.bytes is {limit}")
                break
            stop = pos + 4 + size
            if stop > end:
                self._need = 4 + size
                break
            if budget <= 0:
                self._hold_back(data[pos:])
                connection.cost_s += perf_counter() - began
                self._server.end_turn()
                return
            large = size > READ_AT_ONCE_BYTES
            receive(connection, memoryview(data)[pos + 4 : stop] if large else data[pos + 4 : stop], now_ms)
            pos = stop
            budget -= 1
            if pos < end:
                now = perf_counter()
                slice_end = slice_end or self._server.slice_end(now)
                if now >= slice_end or connection.is_occupied:
                    budget = 0
        if core.quotas.active:
            self._server.charge(connection, perf_counter() - began)
        if pos < end and connection.close_reason is None:
            self._chunks.append(data[pos:] if pos else data)
            self._have = end - pos
        connection.cost_s += perf_counter() - began
        self._server.end_turn()

    def _budget(self) -> int:
        """How many requests may be taken in now: none of a peer that does not read its answers or is over its quota."""
        connection = self.connection
        assert connection is not None
        if not self._writable or connection.is_occupied or self._server.is_muted(connection):
            return 0
        return min(_FRAMES_PER_TURN, _MAX_PENDING - len(connection.pending))

    def _hold_back(self, rest: bytes) -> None:
        """Take no more until the answers so far are on their way."""
        self._transport.pause_reading()
        self._server.held_back[self] = rest

    def proceed(self, rest: bytes) -> None:
        """Go on with what was held back, if the peer now reads its answers and its last request has been read."""
        if self.connection is None or self.connection.closed or self._transport.is_closing():
            return
        if self._budget() <= 0:
            self._server.held_back[self] = rest
            return
        self._transport.resume_reading()
        self._split(rest)

    # Out.

    def send(self) -> None:
        connection, transport = self.connection, self._transport
        parts = connection.take_output()  # type: ignore[union-attr]
        if len(parts) == 1:
            transport.write(parts[0])
        elif parts:
            if sum(map(len, parts)) < _JOIN_BELOW:
                transport.write(b"".join(parts))
            else:
                transport.writelines(parts)
        if connection.close_reason is not None:  # type: ignore[union-attr]
            transport.close()

    def pause_writing(self) -> None:
        self._writable = False
        if self not in self._server.held_back:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        if self not in self._server.held_back:
            self._transport.resume_reading()
        else:
            self._server.end_turn()

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()


class BufferedBrokerProtocol(BrokerProtocol, asyncio.BufferedProtocol):
    """The same for plain asyncio, whose loop is quicker when it reads into a buffer of ours."""

    def __init__(self, server: Server, listener: Listener) -> None:
        super().__init__(server, listener)
        self._buffer = bytearray(256 * 1024)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(memoryview(self._buffer)[:nbytes]))
