"""Answers that are changed on their way out, and requests of which a part is refused and the rest is served."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.broker import error_answers
from kohort.broker.connection import Call, Part
from kohort.protocol import messages
from kohort.protocol.frames import decode_response, encode_response

if TYPE_CHECKING:
    from kohort.broker.core import Core


EDITED_AT_ONCE_BYTES = 16 * 1024
Edit = Callable[[list[Part]], list[Part] | None]
"""What it returns is sent in place of an answer; None: nothing is ever sent."""


class Overheard(Call):
    """A call whose answer, once there is one, goes through `edit`, and then to whoever listens to the call already."""

    __slots__ = ("_call", "_edit")

    def __init__(self, call: Call, edit: Edit) -> None:
        self._call = call
        self._edit = edit
        super().__init__(call.connection, call.correlation_id, call.client_id, call.version, call.entry)

    @property
    def parts(self) -> list[Part] | None:
        return self._call.parts

    @parts.setter
    def parts(self, parts: list[Part] | None) -> None:
        if parts is not None and (changed := self._edit(parts)) is not None:
            self._call.parts = changed


def overhear(call: Call, edit: Edit) -> Overheard:
    """The call in its place among the pending ones, with an ear on its answer."""
    pending, made = call.connection.pending, Overheard(call, edit)
    made.began, made.size = call.began, call.size
    pending[pending.index(call)] = made
    return made


def overhear_apart(core: Core, call: Call, edit: Callable[[list[Part]], list[Part]]) -> Overheard:
    """The same with a pure function, which is called on another thread where the answer is large."""

    def begin(parts: list[Part]) -> list[Part] | None:
        if sum(map(len, parts)) <= EDITED_AT_ONCE_BYTES:
            return edit(parts)
        core.run_elsewhere(Editing(core, call, edit, parts))
        return None

    return overhear(call, begin)


class Editing:
    """A Job: the change of one large answer."""

    uses_processor = True

    def __init__(self, core: Core, call: Call, edit: Callable[[list[Part]], list[Part]], parts: list[Part]) -> None:
        self._core = core
        self._call = call
        self._edit = edit
        self._parts = parts
        call.connection.long_works += 1

    def run(self) -> None:
        if self._call.connection.close_reason is None:
            self._parts = self._edit(self._parts)

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        connection = self._call.connection
        connection.long_works -= 1
        if connection.close_reason is not None:
            return
        if error is not None:
            self._core.disconnect(connection, f"the answer to {self._call.entry.name} cannot be changed: {error}")
        else:
            self._call.parts = self._parts
            self._core.answered(connection)


def changed_apart(core: Core, call: Call, change: Callable[[Any], None]) -> Overheard:
    """The call with a function that changes its decoded answer."""
    kind = getattr(messages, f"{call.entry.name}Response")

    def edit(parts: list[Part]) -> list[Part]:
        if not parts:
            return parts
        response = decode_response(b"".join(parts)[4:], call.version, kind)
        change(response)
        return encode_response(call.correlation_id, call.version, response)

    return overhear_apart(core, call, edit)


def merged(shape: error_answers.Shape, call: Call, parts: list[Part], failed: list[Any], depth: int) -> list[Part]:
    """An encoded answer with the failed rows in it."""
    kind = getattr(messages, f"{shape.name}Response")
    response = decode_response(b"".join(parts)[4:], call.version, kind)
    error_answers.merge(shape, response, failed, depth)
    return encode_response(call.correlation_id, call.version, response)


def merged_apart(core: Core, shape: error_answers.Shape, call: Call, failed: list[Any]) -> Overheard:
    """The call with the failed rows, down to the last level, in its answer."""
    return overhear_apart(core, call, lambda parts: merged(shape, call, parts, failed, len(shape.levels)))


def refused_alone(shape: error_answers.Shape, request: Any, failed: list[Any], depth: int) -> Any:
    """The answer where nothing is left of a request but its failed rows; None where there is something to serve."""
    if shape.name == "Metadata" or getattr(request, shape.levels[0].asked.name):
        return None
    response = getattr(messages, f"{shape.name}Response")()
    error_answers.merge(shape, response, failed, depth)
    return response
