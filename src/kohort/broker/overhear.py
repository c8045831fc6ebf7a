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


class Overheard(Call):
    """A call whose answer, once there is one, goes through `edit`; what that returns is sent, None is never sent."""

    __slots__ = ("_answer", "_edit")

    def __init__(self, call: Call, edit: Callable[[list[Part]], list[Part] | None]) -> None:
        self._edit = edit
        self._answer: list[Part] | None = None
        super().__init__(call.connection, call.correlation_id, call.client_id, call.version, call.entry)

    @property
    def parts(self) -> list[Part] | None:
        return self._answer

    @parts.setter
    def parts(self, parts: list[Part] | None) -> None:
        self._answer = None if parts is None else self._edit(parts)


def overhear(call: Call, edit: Callable[[list[Part]], list[Part] | None]) -> Overheard:
    """The call in its place among the pending ones, with an ear on its answer."""
    pending, made = call.connection.pending, Overheard(call, edit)
    made.began, made.size = call.began, call.size
    pending[pending.index(call)] = made
    return made


def edited(call: Call, change: Callable[[Any], None]) -> Overheard:
    """The call with a function that changes its decoded answer."""
    kind = getattr(messages, f"{call.entry.name}Response")

    def edit(parts: list[Part]) -> list[Part]:
        if not parts:
            return parts
        response = decode_response(b"".join(parts)[4:], call.version, kind)
        change(response)
        return encode_response(call.correlation_id, call.version, response)

    return overhear(call, edit)


def merged(shape: error_answers.Shape, call: Call, parts: list[Part], failed: list[Any], depth: int) -> list[Part]:
    """An encoded answer with the failed rows in it."""
    kind = getattr(messages, f"{shape.name}Response")
    response = decode_response(b"".join(parts)[4:], call.version, kind)
    error_answers.merge(shape, response, failed, depth)
    return encode_response(call.correlation_id, call.version, response)


def serve_the_rest(
    core: Core, shape: error_answers.Shape, call: Call, request: Any, failed: list[Any], depth: int, now_ms: int
) -> None:
    """Serve a request of which rows were taken out; these join the answer."""
    if shape.name != "Metadata" and not getattr(request, shape.levels[0].asked.name):
        response = getattr(messages, f"{shape.name}Response")()
        error_answers.merge(shape, response, failed, depth)
        core.reply(call, response)
        return
    core.serve(overhear(call, lambda parts: merged(shape, call, parts, failed, depth)), request, now_ms)
