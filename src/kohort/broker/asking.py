"""One request on its way through the gate: what may be asked about it, and what can be done where something may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.broker import error_answers
from kohort.broker.acls import CLUSTER_NAME, Operation, Resource
from kohort.broker.overhear import edited, serve_the_rest
from kohort.protocol.errors import ErrorCode
from kohort.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.gate import Gate


class Asking:
    """One request on its way through the gate."""

    def __init__(self, gate: Gate, core: Core, call: Call, request: Any, now_ms: int) -> None:
        self.gate = gate
        self.core = core
        self.call = call
        self.request = request
        self.now_ms = now_ms
        self._failed: list[Any] = []
        self._edits: list[Callable[[Any], None]] = []

    def may(self, operation: Operation, resource: Resource, name: str | None = CLUSTER_NAME) -> bool:
        return self.gate.allows(self.call, operation, resource, name or "")

    def topic_name(self, row: error_answers.Identity) -> str | None:
        """None for an id that nobody knows: the handler will say so."""
        if row.get("topic_id", ZERO_UUID) != ZERO_UUID:
            topic = self.core.topics.by_id.get(row["topic_id"])
            return None if topic is None else topic.name
        return str(row["topic"]) if row.get("topic") is not None else None

    # What can be done about it.

    def refuse(self, code: ErrorCode) -> None:
        """The whole request: by the code of the answer, or by that of every row."""
        shape = error_answers.shape(self.call.entry.name, self.call.version)
        if shape.has_code or not shape.levels:
            self.core.reply(self.call, error_answers.whole(shape, self.request, code))
            return
        self.refuse_rows(lambda row: True, code)
        self.serve()

    def refuse_rows(self, means: Callable[[error_answers.Identity], bool], code: ErrorCode) -> None:
        """Take rows out of the request; `serve` answers them beside the rest."""
        shape = error_answers.shape(self.call.entry.name, self.call.version)
        failed = error_answers.split(shape, self.request, len(shape.levels), code, means)
        if failed and self._failed:
            error_answers.join(shape, self._failed, failed)
        else:
            self._failed += failed

    def edit(self, change: Callable[[Any], None]) -> None:
        self._edits.append(change)

    def serve(self) -> None:
        call = self.call
        for change in self._edits:
            call = edited(call, change)
        if not self._failed:
            self.core.serve(call, self.request, self.now_ms)
            return
        if call.entry.name == "Produce" and self.request.acks == 0:
            self.core.disconnect(call.connection, "Produce with acks=0 without the permission for its topics")
            return
        if call.entry.name == "Fetch":
            self.core.fetch_sessions.remove(self.request.session_id)
            self.request.session_id, self.request.session_epoch = 0, -1
        shape = error_answers.shape(call.entry.name, call.version)
        serve_the_rest(self.core, shape, call, self.request, self._failed, len(shape.levels), self.now_ms)


Need = Callable[[Asking], None]
"""Serves a request, or refuses it, or a part of it."""
