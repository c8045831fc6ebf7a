"""Faults on request: the next requests of an api, group, client or partition fail, are slow, or are lost.

A rule is a `Fault`; `Faults` keeps the rules and what they hold back. The core asks `catch` about every request while
there is any of either, and serves what is not caught. No sockets, clocks or threads here: a delay waits in broker time.
"""

from __future__ import annotations

import difflib
import itertools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.broker import error_answers
from kohort.broker.connection import Call, Connection, Part
from kohort.protocol import messages, schema
from kohort.protocol.errors import ErrorCode
from kohort.protocol.frames import decode_response, encode_response

if TYPE_CHECKING:
    from kohort.broker.core import Core

ANY_API = "*"
FAIL, DELAY, DROP, DISCONNECT = ACTIONS = ("fail", "delay", "drop", "disconnect")
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
    ) -> None:
        self.id = next(_numbers)
        self.action = _one_of(action, ACTIONS, "action")
        self.api = _one_of(api, (ANY_API, *api_names()), "api")
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
        return self.times is not None and self.hits >= self.times

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
        shown = {"id": self.id, "action": self.action, "api": self.api, "hits": self.hits, "times": self.times}
        if self.action == FAIL:
            shown["code"] = self.code.name
        elif self.action == DELAY:
            shown["seconds"] = self.seconds
        else:
            shown["before"] = self.before
        optional = {"group": self.group, "client": self.client, "topic": self.topic, "partition": self.partition}
        return shown | {name: value for name, value in optional.items() if value is not None}

    def __repr__(self) -> str:
        return f"Fault({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"


class _Overheard(Call):
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

    def __iter__(self):
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
                return self._happen(core, fault, call, request, now_ms)
        return False

    def _happen(self, core: Core, fault: Fault, call: Call, request: Any, now_ms: int) -> bool:
        fault.hits += 1
        if self._on_hit is not None:
            self._on_hit(fault)
        if fault.action == FAIL:
            return self._fail(core, fault, call, request, now_ms)
        if fault.action == DELAY:
            self._hold(call, now_ms + round(fault.seconds * 1000)).calls.append((call, request))
        elif fault.before:
            if fault.action == DROP:
                self._hold(call, None)
            else:
                core.disconnect(call.connection, f"a fault, before {call} took effect")
        elif fault.action == DROP:
            core.serve(_overhear(call, lambda parts: None), request, now_ms)
            self._hold(call, None)
        else:
            core.serve(_overhear(call, lambda parts: _cut(core, call)), request, now_ms)
        return True

    def _hold(self, call: Call, until_ms: int | None) -> _Held:
        held = self._held[call.connection] = _Held(until_ms)
        self._look()
        return held

    def _fail(self, core: Core, fault: Fault, call: Call, request: Any, now_ms: int) -> bool:
        shape = error_answers.shape(call.entry.name, call.version)
        depth = shape.place(fault.code, fault.needed)
        assert depth is not None
        if depth == 0:
            core.reply(call, error_answers.whole(shape, request, fault.code))
            return True
        topic_id = _topic_id(core, fault)
        known = _session_rows(core, shape, request)
        failed = error_answers.split(shape, request, depth, fault.code, lambda row: fault.means(row, topic_id))
        unnamed = [row for row in known if fault.means(row, topic_id)]
        error_answers.add(shape, failed, unnamed, fault.code)
        if shape.name == "Fetch":
            core.fetch_sessions.remove(request.session_id)
            request.session_id, request.session_epoch = 0, -1
        if shape.name != "Metadata" and not getattr(request, shape.levels[0].asked.name):
            response = getattr(messages, f"{shape.name}Response")()
            error_answers.merge(shape, response, failed, depth)
            core.reply(call, response)
            return True
        core.serve(_overhear(call, lambda parts: _merged(shape, call, parts, failed, depth)), request, now_ms)
        return True

    # Time.

    def on_time(self, core: Core, now_ms: int) -> None:
        due = [c for c, held in self._held.items() if held.until_ms is not None and held.until_ms <= now_ms]
        for connection in due:
            held = self._held.pop(connection)
            self._look()
            self._release(core, held, now_ms)

    def _release(self, core: Core, held: _Held, now_ms: int) -> None:
        call, request = held.calls.popleft()
        core.serve(call, request, now_ms)
        for call, request in held.calls:
            if call.connection.close_reason is None and not self.catch(core, call, request, now_ms):
                core.serve(call, request, now_ms)

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


def _overhear(call: Call, edit: Callable[[list[Part]], list[Part] | None]) -> _Overheard:
    """The call in its place among the pending ones, with an ear on its answer."""
    pending, made = call.connection.pending, _Overheard(call, edit)
    pending[pending.index(call)] = made
    return made


def _cut(core: Core, call: Call) -> None:
    core.disconnect(call.connection, f"a fault, after {call} took effect")


def _merged(shape: error_answers.Shape, call: Call, parts: list[Part], failed: list[Any], depth: int) -> list[Part]:
    """An encoded answer with the failed rows in it."""
    kind = getattr(messages, f"{shape.name}Response")
    response = decode_response(b"".join(parts)[4:], call.version, kind)
    error_answers.merge(shape, response, failed, depth)
    return encode_response(call.correlation_id, call.version, response)


def api_names() -> list[str]:
    return [name.removesuffix("Request") for name in schema.message_names() if name.endswith("Request")]


def error_code(given: ErrorCode | str | int | None) -> ErrorCode:
    """An error code by name or number, other than NONE."""
    if isinstance(given, str):
        _one_of(given, [code.name for code in ErrorCode], "error code")
        given = ErrorCode[given]
    elif isinstance(given, int) and given in iter(ErrorCode):
        given = ErrorCode(given)
    else:
        raise ValueError(f"{given!r} is no error code: give its name, e.g. COORDINATOR_NOT_AVAILABLE, or its number")
    if given == ErrorCode.NONE:
        raise ValueError("NONE is not a failure")
    return given


def _one_of(given: str, known: Any, what: str) -> str:
    if given not in known:
        nearest = difflib.get_close_matches(str(given), list(known), n=1, cutoff=0.5)
        raise ValueError(f"{given!r} is no {what}" + (f"; did you mean {nearest[0]}?" if nearest else ""))
    return given
