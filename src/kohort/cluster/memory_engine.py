"""A store in memory, for brokers in one process and for simulations, with faults."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import NoReturn

from kohort.cluster.engine import Engine, EngineError, Exists, Missing


class Mishap(Enum):
    """What can happen to one request."""

    NONE = "none"
    REFUSED = "refused"
    """It has no effect, and nobody says so."""
    LOST_ANSWER = "lost answer"
    """It takes effect, and nobody says so."""
    RETRIED = "retried"
    """It takes effect, the answer is lost, and the store's library asks again."""
    LATE = "late"
    """It takes effect some time later, when whoever asked has given up waiting; only for what changes something."""


Chance = Callable[[str, str], Mishap]
"""(verb, name) -> what happens to that request."""


class MemoryStore:
    """The objects, shared by the engines of all brokers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.sorted_names: list[str] = []
        self.listeners: list[Callable[[str], None]] = []
        self.late: list[Callable[[], None]] = []
        """What was asked, and has not taken effect yet."""

    def arrive(self, index: int) -> None:
        """A late request takes effect; nobody hears how it ends."""
        with suppress(Exists):
            self.late.pop(index)()

    def engine(self, chance: Chance | None = None) -> MemoryEngine:
        return MemoryEngine(self, chance)


class MemoryEngine(Engine):
    """One broker's way to the store. `cut_off` is a network that is gone."""

    name = "memory"
    poll_ms = 100

    def __init__(self, store: MemoryStore, chance: Chance | None = None) -> None:
        self.store = store
        self.chance = chance
        self.cut_off = False
        self.created: Callable[[str], None] | None = None
        store.listeners.append(self._told)

    def _told(self, name: str) -> None:
        if self.created is not None and not self.cut_off:
            self.created(name)

    def create(self, name: str, data: bytes) -> None:
        mishap = self._begin("create", name)
        if mishap is Mishap.LATE:
            self._late(partial(self._create, name, data))
        self._create(name, data)
        if mishap is Mishap.RETRIED:
            raise Exists(name)
        self._end(mishap)

    def _create(self, name: str, data: bytes) -> None:
        with self.store.lock:
            if name in self.store.objects:
                raise Exists(name)
            self.store.objects[name] = bytes(data)
            insort(self.store.sorted_names, name)
        for listener in list(self.store.listeners):
            listener(name)

    def get(self, name: str) -> bytes:
        mishap = self._begin("get", name)
        with self.store.lock:
            data = self.store.objects.get(name)
        self._end(mishap)
        if data is None:
            raise Missing(name)
        return data

    def list(self, prefix: str) -> list[str]:
        mishap = self._begin("list", prefix)
        with self.store.lock:
            names = self.store.sorted_names
            found = names[bisect_left(names, prefix) : bisect_left(names, prefix + "\uffff")]
        self._end(mishap)
        return found

    def delete(self, name: str) -> None:
        mishap = self._begin("delete", name)
        if mishap is Mishap.LATE:
            self._late(partial(self._delete, name))
        self._delete(name)
        self._end(mishap)

    def _delete(self, name: str) -> None:
        with self.store.lock:
            if self.store.objects.pop(name, None) is not None:
                del self.store.sorted_names[bisect_left(self.store.sorted_names, name)]

    def _late(self, what: Callable[[], None]) -> NoReturn:
        self.store.late.append(what)
        raise EngineError("the store takes too long")

    def _begin(self, verb: str, name: str) -> Mishap:
        mishap = self.chance(verb, name) if self.chance is not None else Mishap.NONE
        if self.cut_off or mishap is Mishap.REFUSED:
            raise EngineError(f"{verb} {name}: the store is out of reach")
        return mishap

    def _end(self, mishap: Mishap) -> None:
        if self.cut_off or mishap is Mishap.LOST_ANSWER:
            raise EngineError("the answer of the store is lost")

    def close(self) -> None:
        self.created = None
        if self._told in self.store.listeners:
            self.store.listeners.remove(self._told)
