"""Faults on request: the next requests of an api, group, client or partition fail, are slow, or are lost.

A rule is a `Fault`; `Faults` keeps the rules and what they hold back. The core asks `catch` about every request while
there is any of either, and serves what is not caught. No sockets, clocks or threads here: a delay waits in broker time.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kohort.broker import error_answers
from kohort.broker.client_requests import Action, ClientRequest, Verdict
from kohort.broker.connection import Call, Connection, Part
from kohort.broker.given import api_name, error_code, one_of
from kohort.broker.overhear import merged, overhear, refused_alone
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.protocol.frames import decode_response, encode_response

if TYPE_CHECKING:
    from kohort.broker.core import Core

logger = logging.getLogger("kohort.faults")

ANY_API = "*"
FAIL, DELAY, DROP, DISCONNECT = ACTIONS = (Action.FAIL, Action.DELAY, Action.DROP, Action.DISCONNECT)

Function = Callable[[ClientRequest], Verdict | None]
_numbers = itertools.count(1)


class Fault:
    """One rule: whom it meets, what happens to them, how often, and how often it has happened."""

    def __init__(
        self,
        action: str,
        api: str = ANY_API,
        *,
        code: ErrorCode | str | int | None = None,
        seconds: float = 0,
        before: bool = True,
        times: int | None = 1,
        after: int = 0,
        group: str | None = None,
        client: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        function: Function | None = None,
    ) -> None:
        self.id = next(_numbers)
        self.action = Action.ASK if function is not None else Action(one_of(action, ACTIONS, "action"))
        self.api = api_name(api, ANY_API)
        self.function = function
        self.error: Exception | None = None
        """What the function raised, if it did; the rule has ended then."""
        self.code = error_code(code) if action == FAIL else ErrorCode.NONE
        self.seconds = seconds
        self.before = before
        self.times = times
        self.after = after
        self.group = group
        self.client = client
        self.topic = topic
        self.partition = partition
        self.hits = 0
        self._check()

    def _check(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is {self.times}: how often it happens, at least 1; None is for ever")
        if self.seconds < 0 or self.after < 0:
            raise ValueError("seconds and after cannot be negative")
        if self.partition is not None and self.topic is None:
            raise ValueError(f"partition {self.partition} of which topic? Give topic too")

    @property
    def spent(self) -> bool:
        return self.error is not None or (self.times is not None and self.hits >= self.times)

    @property
    def needed(self) -> set[str]:
        """What a row must tell for this rule to judge it."""
        named = {"group": self.group, "topic": self.topic, "partition": self.partition}
        return {name for name, value in named.items() if value is not None}

    def means(self, identity: error_answers.Identity, topic_id: bytes | None) -> bool:
        if self.group is not None and identity.get("group") != self.group:
            return False
        if self.partition is not None and identity.get("partition") != self.partition:
            return False
        if self.topic is None or identity.get("topic") == self.topic:
            return True
        return topic_id is not None and identity.get("topic_id") == topic_id

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, what is not set left out."""
        shown: dict[str, Any] = {"id": self.id, "action": self.action.value, "api": self.api}
        shown |= {"hits": self.hits, "times": self.times}
        if self.action is Action.ASK:
            shown["function"] = getattr(self.function, "__qualname__", repr(self.function))
        elif self.action == FAIL:
            shown["code"] = self.code.name
        elif self.action == DELAY:
            shown["seconds"] = self.seconds
        else:
            shown["before"] = self.before
        optional = {"group": self.group, "client": self.client, "topic": self.topic, "partition": self.partition}
        return shown | {name: value for name, value in optional.items() if value is not None}

    def __repr__(self) -> str:
        return f"Fault({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"


class _Held:
    """The requests of one connection that wait, the first for its time (None: for ever), the others for the first."""

    __slots__ = ("calls", "until_ms")

    def __init__(self, until_ms: int | None) -> None:
        self.until_ms = until_ms
        self.calls: deque[tuple[Call, Any]] = deque()


class Faults:
    def __init__(self, on_hit: Callable[[Fault], None] | None = None) -> None:
        self.active = False
        """Whether requests must be shown to `catch`."""
        self._rules: list[Fault] = []
        self._held: dict[Connection, _Held] = {}
        self._on_hit = on_hit

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._rules)

    def add(self, fault: Fault) -> Fault:
        self._rules.append(fault)
        self._look()
        return fault

    def remove(self, fault: Fault) -> None:
        """Requests it holds back stay held back."""
        if fault in self._rules:
            self._rules.remove(fault)
        self._look()

    def clear(self, core: Core | None, now_ms: int) -> None:
        """No rules any more: delayed requests are served now, connections that wait for ever are closed."""
        self._rules.clear()
        held, self._held = self._held, {}
        self._look()
        if core is not None:
            for connection, waiting in held.items():
                if waiting.until_ms is None:
                    core.disconnect(connection, "a fault dropped a request of it, and was cleared")
                else:
                    self._release(core, waiting, now_ms)

    def started(self) -> None:
        """A core begins: the connections of the last one are gone."""
        self._held.clear()
        self._look()

    def forget(self, connection: Connection) -> None:
        self._held.pop(connection, None)
        self._look()

    def _look(self) -> None:
        self.active = bool(self._rules or self._held)

    # Requests.

    def catch(self, core: Core, call: Call, request: Any, now_ms: int) -> bool:
        """Whether the request is dealt with here; it is the last of its connection's pending ones otherwise."""
        held = self._held.get(call.connection)
        if held is not None:
            held.calls.append((call, request))
            return True
        for fault in self._rules:
            if not fault.spent and _meets(core, fault, call, request):
                if fault.after:
                    fault.after -= 1
                    continue
                verdict = self._verdict(fault, call, request, now_ms)
                if verdict is not None:
                    self._happen(core, fault, verdict, call, request, now_ms)
                    return True
        return False

    def _verdict(self, fault: Fault, call: Call, request: Any, now_ms: int) -> Verdict | None:
        if fault.function is None:
            return Verdict(fault.action, fault.code, fault.seconds, fault.before)
        entry = call.entry
        seen = ClientRequest(now_ms, entry.name, entry.version, call.client_id, call.connection.host, request)
        try:
            verdict = fault.function(seen)
            if verdict is None:
                return None
            if not isinstance(verdict, Verdict):
                raise TypeError(f"it returned {verdict!r}: a fault returns request.fail(...), .delay(...), ... or None")
            _check_place(fault, verdict, call)
        except Exception as error:
            self._went_wrong(fault, error)
            return None
        return verdict

    def _went_wrong(self, fault: Fault, error: Exception) -> None:
        logger.exception("the function of %s failed, so it has ended", fault, exc_info=error)
        fault.error = error
        if self._on_hit is not None:
            self._on_hit(fault)

    def _happen(self, core: Core, fault: Fault, verdict: Verdict, call: Call, request: Any, now_ms: int) -> None:
        fault.hits += 1
        if self._on_hit is not None:
            self._on_hit(fault)
        match verdict.action:
            case Action.FAIL:
                self._fail(core, fault, verdict.code, call, request, now_ms)
            case Action.ANSWER:
                core.reply(call, verdict.response)
            case Action.SERVE:
                core.let_in(call, request, now_ms)
            case Action.EDIT:
                core.let_in(overhear(call, lambda parts: self._edited(fault, verdict, call, parts)), request, now_ms)
            case Action.DELAY:
                self._hold(call, now_ms + round(verdict.seconds * 1000)).calls.append((call, request))
            case Action.DROP:
                if not verdict.before:
                    core.let_in(overhear(call, lambda parts: None), request, now_ms)
                self._hold(call, None)
            case Action.DISCONNECT if verdict.before:
                core.disconnect(call.connection, f"a fault, before {call} took effect")
            case _:
                core.let_in(overhear(call, lambda parts: _cut(core, call)), request, now_ms)

    def _edited(self, fault: Fault, verdict: Verdict, call: Call, parts: list[Part]) -> list[Part]:
        """An encoded answer after the function of a verdict has changed it."""
        if not parts:
            return parts
        kind = getattr(messages, f"{call.entry.name}Response")
        assert verdict.edit is not None
        try:
            response = decode_response(b"".join(parts)[4:], call.version, kind)
            changed = verdict.edit(response)
            return encode_response(call.correlation_id, call.version, response if changed is None else changed)
        except Exception as error:
            self._went_wrong(fault, error)
            return parts

    def _hold(self, call: Call, until_ms: int | None) -> _Held:
        held = self._held[call.connection] = _Held(until_ms)
        self._look()
        return held

    def _fail(self, core: Core, fault: Fault, code: ErrorCode, call: Call, request: Any, now_ms: int) -> None:
        shape = error_answers.shape(call.entry.name, call.version)
        depth = shape.place(code, fault.needed)
        assert depth is not None
        if depth == 0:
            core.reply(call, error_answers.whole(shape, request, code))
            return
        topic_id = _topic_id(core, fault)
        known = _session_rows(core, shape, request)
        failed = error_answers.split(shape, request, depth, code, lambda row: fault.means(row, topic_id))
        unnamed = [row for row in known if fault.means(row, topic_id)]
        error_answers.add(shape, failed, unnamed, code)
        if shape.name == "Fetch":
            core.fetch_sessions.remove(request.session_id)
            request.session_id, request.session_epoch = 0, -1
        alone = refused_alone(shape, request, failed, depth)
        if alone is not None:
            core.reply(call, alone)
        else:
            heard = overhear(call, lambda parts: merged(shape, call, parts, failed, depth))
            core.let_in(heard, request, now_ms)

    # Time.

    def on_time(self, core: Core, now_ms: int) -> None:
        due = [c for c, held in self._held.items() if held.until_ms is not None and held.until_ms <= now_ms]
        for connection in due:
            held = self._held.pop(connection)
            self._look()
            self._release(core, held, now_ms)

    def _release(self, core: Core, held: _Held, now_ms: int) -> None:
        call, request = held.calls.popleft()
        core.let_in(call, request, now_ms)
        for call, request in held.calls:
            if call.connection.close_reason is None and not self.catch(core, call, request, now_ms):
                core.let_in(call, request, now_ms)

    def next_deadline(self) -> int | None:
        return min((held.until_ms for held in self._held.values() if held.until_ms is not None), default=None)


def _meets(core: Core, fault: Fault, call: Call, request: Any) -> bool:
    if fault.api not in (ANY_API, call.entry.name) or fault.client not in (None, call.client_id):
        return False
    if fault.action != FAIL and not fault.needed:
        return True
    shape = error_answers.shape(call.entry.name, call.version)
    depths = range(len(shape.levels) + 1)
    if fault.action == FAIL:
        place = shape.place(fault.code, fault.needed)
        depths = range(0) if place is None else range(place, place + 1)
    topic_id = _topic_id(core, fault)
    named = (row for depth in depths for row in shape.nodes(request, depth))
    return any(fault.means(row, topic_id) for row in itertools.chain(named, _session_rows(core, shape, request)))


def _check_place(fault: Fault, verdict: Verdict, call: Call) -> None:
    if verdict.action == FAIL:
        shape = error_answers.shape(call.entry.name, call.version)
        if shape.place(verdict.code, fault.needed) is None:
            raise ValueError(f"an answer to {call.entry.name} v{call.version} has no place for {verdict.code.name}")


def _topic_id(core: Core, fault: Fault) -> bytes | None:
    topic = core.topics.by_name.get(fault.topic) if fault.topic is not None else None
    return None if topic is None else topic.topic_id


def _session_rows(core: Core, shape: error_answers.Shape, request: Any) -> list[error_answers.Identity]:
    """What an incremental fetch asks for without naming it."""
    session = core.fetch_sessions.get(request.session_id) if shape.name == "Fetch" else None
    if session is None or request.session_epoch <= 0:
        return []
    named = "topic_id" if session.uses_topic_ids else "topic"
    return [{named: topic, "partition": index} for topic, index in session.partitions]


def _cut(core: Core, call: Call) -> None:
    core.disconnect(call.connection, f"a fault, after {call} took effect")
