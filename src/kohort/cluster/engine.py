"""What a cluster needs of a store: four verbs on named, immutable objects. The engines are in files of their own.

`create` is the one that decides: of all who create a name, one succeeds. Every object carries a nonce, so that whoever
does not know how its `create` ended can look whose object it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class EngineError(Exception):
    """The store did not say how it ended: out of reach, slow, full, refused. What was asked may have happened."""


class Exists(Exception):
    """There is an object of that name."""


class Missing(Exception):
    """There is no object of that name."""


class Engine(ABC):
    """All methods block, may be called on any thread, and raise EngineError where the store gives no answer in time."""

    name: str
    """How people call the store."""
    poll_ms = 250
    """How often to look for news."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> None:
        """A new object, whole and durable; Exists where there is one."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The whole object; Missing where there is none."""

    def get_range(self, name: str, position: int, size: int) -> bytes:
        """A part of an object, shorter where the object ends before; Missing where there is none."""
        return self.get(name)[position : position + size]

    @abstractmethod
    def list(self, prefix: str) -> list[str]:
        """The names below a prefix that ends in a slash, sorted."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """The object is gone, also where it was before."""

    def delete_all(self, names: Sequence[str]) -> None:
        """The same for many."""
        for name in names:
            self.delete(name)

    def together(self, questions: Sequence[Callable[[], T]]) -> Sequence[T]:
        """The answers to all of these, in order: side by side where the store takes its time. None of them asks several
        in its turn, and each may be asked again. An error is raised when what is under way has ended."""
        return [question() for question in questions]

    def creating(self) -> Creating | None:
        """A way to create without a thread that waits, where the engine has one."""
        return None

    def close(self) -> None:  # noqa: B027
        """Let go of connections, where there are any."""


class Creating(ABC):
    """Objects that are created while nobody waits. For one thread, which reads `ended` when `fd` can be read."""

    fd: int

    @abstractmethod
    def begin(self, key: object, name: str, data: bytes) -> bool:
        """Whether it is under way; else `create` has to be called."""

    @abstractmethod
    def ended(self) -> list[tuple[Any, Exception | None]]:
        """The keys of what has ended, and what `create` would have raised."""

    @abstractmethod
    def close(self) -> None:
        """What is under way goes on, and is not heard of."""


def claim(engine: Engine, name: str, data: bytes) -> bytes | None:
    """Create the object; None where it is there as given, now or since an earlier try; else the bytes of the other.

    A store that has applied a request and failed to say so is asked again, by its own library or by us, and then says
    that the object exists: only its bytes tell whose it is.
    """
    try:
        engine.create(name, data)
    except Exists:
        try:
            found = engine.get(name)
        except Missing:
            raise EngineError(f"{name} in {engine.name} exists, but cannot be read") from None
        return None if found == data else found
    return None
