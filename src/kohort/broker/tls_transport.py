"""TLS between a socket and a BrokerProtocol, by OpenSSL over memory. Of asyncio, and of nothing else of the broker.

The loops have TLS of their own, but drop what OpenSSL still has to say when a handshake fails: a client whose
certificate is refused would never learn why, and neither would the log.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any

READ_BYTES = 256 * 1024
HANDSHAKE_S = 30.0
MOST_HANDSHAKES = 1000
Buffer = bytes | bytearray | memoryview


class Handshakes:
    """Those that are under way: no connections yet, and not many."""

    def __init__(self, refused: Callable[[str, str], None]) -> None:
        """`refused` is told the address of a peer and why there is no connection with it."""
        self.refused = refused
        self.under_way: set[TlsProtocol] = set()

    def abort(self) -> None:
        for one in list(self.under_way):
            one.abort()


class TlsTransport:
    """What a protocol sees: plain bytes. As much of an asyncio transport as the broker uses."""

    def __init__(self, protocol: TlsProtocol, raw: Any, tls: ssl.SSLObject) -> None:
        self._protocol = protocol
        self._raw = raw
        self._tls = tls
        self.pause_reading = raw.pause_reading
        self.resume_reading = raw.resume_reading
        self.set_write_buffer_limits = raw.set_write_buffer_limits
        self.is_closing = raw.is_closing
        self.abort = raw.abort

    def get_extra_info(self, name: str) -> Any:
        return self._tls.getpeercert() if name == "peercert" else self._raw.get_extra_info(name)

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, parts: Iterable[Buffer]) -> None:
        if self._raw.is_closing():
            return
        write = self._tls.write
        try:
            for part in parts:
                left = memoryview(part).cast("B")
                while left:
                    left = left[write(left) :]
        except ssl.SSLError:
            self._raw.abort()
            return
        self._protocol.flush()

    def close(self) -> None:
        self._protocol.say_goodbye()
        self._raw.close()


class TlsProtocol(asyncio.Protocol):
    """One connection that begins with a handshake; `make` gives the protocol that is told of it when that is done."""

    def __init__(self, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol], handshakes: Handshakes) -> None:
        self._make = make
        self._handshakes = handshakes
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._inner: asyncio.Protocol | None = None
        self._raw: Any = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._raw = transport
        self._handshakes.under_way.add(self)
        if len(self._handshakes.under_way) > MOST_HANDSHAKES:
            self._refuse(f"more than {MOST_HANDSHAKES} TLS handshakes are under way")
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_S, self._refuse, f"no TLS handshake within {HANDSHAKE_S:g} s")

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._inner is None and not self._shake_hands():
            return
        self._read()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    # The handshake.

    def _shake_hands(self) -> bool:
        """Whether it is done."""
        if self._raw.is_closing():
            return False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.flush()
            return False
        except ssl.SSLError as error:
            self._refuse(f"TLS handshake failed: {getattr(error, 'verify_message', '') or error.reason or error}")
            return False
        self._stop_waiting()
        self.flush()
        self._inner = self._make()
        self._inner.connection_made(TlsTransport(self, self._raw, self._tls))  # type: ignore[arg-type]
        return True

    def _refuse(self, reason: str) -> None:
        self._stop_waiting()
        peer = self._raw.get_extra_info("peername")
        self._handshakes.refused(peer[0] if peer else "?", reason)
        self.flush()  # the alert: that is how the peer learns of it
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def _stop_waiting(self) -> None:
        self._handshakes.under_way.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Afterwards.

    def _read(self) -> None:
        assert self._inner is not None
        chunks: list[bytes] = []
        over = False
        try:
            while chunk := self._tls.read(READ_BYTES):
                chunks.append(chunk)
            over = True  # the peer has said goodbye
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            over = True
        self.flush()
        if chunks:
            self._inner.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if over:
            self._raw.close()

    def flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def say_goodbye(self) -> None:
        if self._inner is None or self._raw.is_closing():
            return
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # it waits for the peer's, which nobody needs
        self.flush()
