"""One request on its way through the gate: what may be asked about it, and what is decided where something may not.

Deciding reads and changes nothing but the request, so that it can be done on another thread; `act` does what was
decided, by the owner of the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.broker import error_answers
from kohort.broker.acls import CLUSTER_NAME, Operation, Resource
from kohort.broker.overhear import changed_apart, merged_apart, refused_alone
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
        self.may_everything = gate.may_everything(call)
        self._failed: list[Any] = []
        self._edits: list[Callable[[Any], None]] = []
        self._is_decided = False
        self._answer: Any = None
        self._closes: str | None = None
        self._ends_session = False

    def may(self, operation: Operation, resource: Resource, name: str | None = CLUSTER_NAME) -> bool:
        return self.gate.allows(self.call, operation, resource, name or "")

    def topic_name(self, row: error_answers.Identity) -> str | None:
        """None for an id that nobody knows: the handler will say so."""
        if row.get("topic_id", ZERO_UUID) != ZERO_UUID:
            topic = self.core.topics.by_id.get(row["topic_id"])
            return None if topic is None else topic.name
        return str(row["topic"]) if row.get("topic") is not None else None

    # What can be decided.

    def serve(self) -> None:
        """What is left of it, with the answer changed where that was asked for."""
        self._is_decided = True

    def answer(self, response: Any) -> None:
        self._is_decided, self._answer = True, response

    def close(self, reason: str) -> None:
        self._is_decided, self._closes = True, reason

    def refuse(self, code: ErrorCode) -> None:
        """The whole request: by the code of the answer, or by that of every row."""
        shape = error_answers.shape(self.call.entry.name, self.call.version)
        if shape.has_code or not shape.levels:
            self.answer(error_answers.whole(shape, self.request, code))
            return
        self.refuse_rows(lambda row: True, code)
        self.serve()

    def refuse_rows(self, means: Callable[[error_answers.Identity], bool], code: ErrorCode) -> None:
        """Take rows out of the request; they are answered beside the rest."""
        if self.may_everything:
            return
        shape = error_answers.shape(self.call.entry.name, self.call.version)
        failed = error_answers.split(shape, self.request, len(shape.levels), code, means)
        if failed and self._failed:
            error_answers.join(shape, self._failed, failed)
        else:
            self._failed += failed

    def edit(self, change: Callable[[Any], None]) -> None:
        """Have the answer changed on its way out."""
        self._edits.append(change)

    def hide(self, change: Callable[[Any], None]) -> None:
        """The same, for those who may not see everything."""
        if not self.may_everything:
            self._edits.append(change)

    def end_session(self) -> None:
        """Of a fetch: what comes next is asked for in full."""
        self._ends_session = True

    # What is done about it.

    def act(self) -> None:
        core, call = self.core, self.call
        if not self._is_decided:
            core.disconnect(call.connection, f"{call.entry.name} met a gate that did not decide")
            return
        if self._ends_session:
            core.fetch_sessions.remove(self.request.session_id)
        if self._closes is not None:
            core.disconnect(call.connection, self._closes)
        elif self._answer is not None:
            core.reply(call, self._answer)
        else:
            self._serve()

    def _serve(self) -> None:
        core, call = self.core, self.call
        for change in self._edits:
            call = changed_apart(core, call, change)
        if not self._failed:
            core.serve(call, self.request, self.now_ms)
            return
        if call.entry.name == "Produce" and self.request.acks == 0:
            core.disconnect(call.connection, "Produce with acks=0 without the permission for its topics")
            return
        if call.entry.name == "Fetch":
            core.fetch_sessions.remove(self.request.session_id)
            self.request.session_id, self.request.session_epoch = 0, -1
        shape = error_answers.shape(call.entry.name, call.version)
        alone = refused_alone(shape, self.request, self._failed, len(shape.levels))
        if alone is not None:
            core.reply(call, alone)
        else:
            core.serve(merged_apart(core, shape, call, self._failed), self.request, self.now_ms)


class Deciding:
    """A Job: the decision about a request of many rows. What came behind it on its connection waits."""

    uses_processor = True

    def __init__(self, asking: Asking, decide: Callable[[Asking], None]) -> None:
        self._asking = asking
        self._decide = decide
        asking.call.connection.long_works += 1

    def run(self) -> None:
        if self._asking.call.connection.close_reason is None:
            self._decide(self._asking)

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        asking, connection = self._asking, self._asking.call.connection
        connection.long_works -= 1
        if connection.close_reason is not None:
            return
        if error is not None:
            asking.core.disconnect(connection, f"{asking.call.entry.name} could not be decided on: {error}")
        else:
            asking.now_ms = now_ms
            asking.act()


Need = Callable[[Asking], None]
"""Decides whether a request is served, or refused, or a part of it."""
