"""A request about many groups, put to the coordinator a few groups at a time, and the one answer made of the parts.

The coordinator sees ordinary requests; between two of them others have a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

GROUPS_AT_ONCE = 100
_ROWS = {
    "OffsetFetch": ("groups", "groups"),
    "DescribeGroups": ("groups", "groups"),
    "DeleteGroups": ("groups_names", "results"),
}


class Part:
    """Stands for the call in one part of a request; what it is answered goes to the whole."""

    __slots__ = ("_parts", "_position")

    def __init__(self, parts: Parts, position: int) -> None:
        self._parts = parts
        self._position = position

    def answered(self, response: Any) -> None:
        self._parts.answered(self._position, response)


class Parts:
    """One request in parts, until the last of them is answered."""

    def __init__(self, core: Core, call: Call, message: Any) -> None:
        self._core = core
        self._call = call
        self._asked, self._rows = _ROWS[call.entry.name]
        self._message = message
        self._all = list(dict.fromkeys(getattr(message, self._asked))) if self._rows == "results" else None
        self._answers: list[Any] = []
        self._outstanding = 0

    def ask(self, handle: Callable[[Part, Any], None]) -> Steps:
        """`handle` puts one part to the coordinator, which answers it now or later."""
        asked = self._all if self._all is not None else getattr(self._message, self._asked)
        chunks = [asked[start : start + GROUPS_AT_ONCE] for start in range(0, len(asked), GROUPS_AT_ONCE)]
        self._outstanding = len(chunks)
        self._answers = [None] * len(chunks)
        for position, chunk in enumerate(chunks):
            part = type(self._message)()
            for name in type(self._message).__slots__:
                setattr(part, name, getattr(self._message, name))
            setattr(part, self._asked, chunk)
            handle(Part(self, position), part)
            yield

    def answered(self, position: int, response: Any) -> None:
        self._answers[position] = response
        self._outstanding -= 1
        if self._outstanding:
            return
        whole = self._answers[0]
        setattr(whole, self._rows, [row for answer in self._answers for row in getattr(answer, self._rows)])
        self._core.long_work.encode(self._call, whole)


def is_many(call: Call, message: Any) -> bool:
    names = _ROWS.get(call.entry.name)
    return names is not None and len(getattr(message, names[0]) or ()) > GROUPS_AT_ONCE
