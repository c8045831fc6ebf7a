"""Connections of a simulated broker to others of its cluster: the simulated network in the place of sockets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.broker.peers import Link as Peer
    from kohort.broker.peers import Peers
    from kohort.sim.cluster_node import SimNode
    from kohort.sim.network import Link, Network

SIZE = 4  # of the number before each frame


class PeerLinks:
    """Of one life of a broker."""

    def __init__(self, node: SimNode, network: Network, peers: Peers) -> None:
        self._node = node
        self._network = network
        self._peers = peers
        self._open: dict[PeerLink, None] = {}

    def serve(self) -> None:
        """What the turn wants sent, connected, closed."""
        for peer in self._peers.take():
            shell: PeerLink | None = peer.shell
            if shell is None:
                if not peer.closed:
                    shell = peer.shell = PeerLink(self._node, self._peers, peer)
                    self._open[shell] = None
                    shell.connect(self._network)
            elif peer.closed:
                self._open.pop(shell, None)
                shell.close()
            else:
                shell.send()

    def vanish(self) -> None:
        """The process is gone, the system closes its connections."""
        for shell in self._open:
            shell.close()


class PeerLink:
    def __init__(self, node: SimNode, peers: Peers, peer: Peer) -> None:
        self._node = node
        self._peers = peers
        self._peer = peer
        self._link: Link | None = None
        self._closed = False

    def connect(self, network: Network) -> None:
        network.connect(self._node.name, self._opened, self._lost, self._received, self._lost, self._peer.host)

    def _opened(self, link: Link) -> None:
        if self._closed:
            link.close_by_client()
            return
        self._link = link
        self.send()

    def send(self) -> None:
        if self._link is not None:
            for frame in _frames(self._peer.take_output()):
                self._link.to_broker(frame)

    def _received(self, data: bytes) -> None:
        if not self._closed and not self._node.holds_back(self._received, data):
            self._peers.received(self._peer, data, self._node.now_ms)
            self._node.end_turn_soon()

    def _lost(self, reason: str) -> None:
        if not self._closed and not self._node.holds_back(self._lost, reason):
            self._peers.lost(self._peer, self._node.now_ms)
            self._node.end_turn_soon()

    def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._link.close_by_client()


def _frames(data: bytes) -> Iterator[bytes]:
    """One by one, as the simulated network carries them."""
    while data:
        end = SIZE + int.from_bytes(data[:SIZE])
        yield data[:end]
        data = data[end:]
