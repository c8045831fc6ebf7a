"""One ZooKeeper server's copy of the tree, and the one-shot watches that clients have set on it. No time, no wire."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class NoNode(Exception):
    """The znode is not there."""


class NodeExists(Exception):
    """The znode is there already."""


class Znode(NamedTuple):
    """`session_id` is that of the owner of an ephemeral znode, 0 for a persistent one."""

    data: str
    session_id: int


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a transaction: the znode's new content, or None where it is deleted."""

    path: str
    znode: Znode | None


@dataclass(frozen=True, slots=True)
class Fired:
    """A watch that is used up: who hears of it, and of what."""

    client: Hashable
    path: str
    children: bool


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


@dataclass(slots=True)
class Tree:
    """Parents need not exist; they are there when they have children."""

    nodes: dict[str, Znode] = field(default_factory=dict)
    _children: dict[str, set[str]] = field(default_factory=dict)
    _data_watches: dict[str, dict[Hashable, None]] = field(default_factory=dict)
    _child_watches: dict[str, dict[Hashable, None]] = field(default_factory=dict)

    def get(self, path: str) -> str:
        if path not in self.nodes:
            raise NoNode(path)
        return self.nodes[path].data

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def watch(self, client: Hashable, path: str, *, children: bool) -> None:
        watches = self._child_watches if children else self._data_watches
        watches.setdefault(path, {})[client] = None

    def forget(self, client: Hashable) -> None:
        """The client's session is over, and its watches with it."""
        for watches in (self._data_watches, self._child_watches):
            for watchers in watches.values():
                watchers.pop(client, None)

    def ephemerals(self, session_id: int) -> list[str]:
        return [path for path, znode in self.nodes.items() if znode.session_id == session_id]

    def apply(self, changes: Iterable[Change]) -> list[Fired]:
        """Make the changes; each watcher hears once of each path, however many of its children came or went."""
        fired: dict[Fired, None] = {}
        for change in changes:
            path, parent = change.path, parent_of(change.path)
            created = path not in self.nodes
            if change.znode is not None:
                self.nodes[path] = change.znode
                self._children.setdefault(parent, set()).add(path.rpartition("/")[2])
            elif not created:
                del self.nodes[path]
                self._children[parent].discard(path.rpartition("/")[2])
            fired.update((Fired(client, path, False), None) for client in self._data_watches.pop(path, ()))
            if created or change.znode is None:
                fired.update((Fired(client, parent, True), None) for client in self._child_watches.pop(parent, ()))
        return list(fired)
