"""The sockets of `peers.py`: connections of this broker to others of its cluster. No decision is taken here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kohort.broker.peers import Link, Peers

if TYPE_CHECKING:
    from kohort.broker.server import Server

CONNECT_TIMEOUT_S = 5.0


class PeerSockets:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._open: set[PeerProtocol] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    def serve(self, peers: Peers) -> None:
        """What the turn wants sent, connected, closed."""
        for link in peers.take():
            protocol: PeerProtocol | None = link.shell
            if protocol is None:
                if not link.closed:
                    protocol = link.shell = PeerProtocol(self._server, self, peers, link)
                    task = asyncio.ensure_future(self._connect(protocol))
                    self._connecting.add(task)
                    task.add_done_callback(self._connecting.discard)
            elif link.closed:
                protocol.close()
            else:
                protocol.send()

    async def _connect(self, protocol: PeerProtocol) -> None:
        link = protocol.link
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(lambda: protocol, link.host, link.port)
        except (OSError, TimeoutError):
            protocol.connection_lost(None)

    def opened(self, protocol: PeerProtocol) -> None:
        self._open.add(protocol)

    def closed(self, protocol: PeerProtocol) -> None:
        self._open.discard(protocol)

    def abort(self) -> None:
        """Nobody hears from this broker any more."""
        for task in list(self._connecting):
            task.cancel()
        for protocol in list(self._open):
            protocol.close()


class PeerProtocol(asyncio.Protocol):
    def __init__(self, server: Server, sockets: PeerSockets, peers: Peers, link: Link) -> None:
        self.link = link
        self._server = server
        self._sockets = sockets
        self._peers = peers
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._sockets.opened(self)
        if self.link.closed:
            transport.abort()
        else:
            self.send()

    def send(self) -> None:
        if self._transport is not None and (data := self.link.take_output()):
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._peers.received(self.link, data, self._server.clock.now_ms())
        self._server.end_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.closed(self)
        self._peers.lost(self.link, self._server.clock.now_ms())
        self._server.end_turn()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
