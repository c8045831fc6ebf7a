"""What clients have sent: a request as a test sees it, what can be done with it, and the log of the last ones.

The log keeps frames and decodes them when they are asked for, so that keeping it costs a broker next to nothing. No
clock, no sockets here; what is done with a request is in `faults.py`.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.given import api_name, error_code
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.table import Entry

MAX_REQUESTS = 10_000
MAX_BYTES = 32 * 1024 * 1024


class Action(StrEnum):
    """What can be done with a request other than to serve it as it is."""

    FAIL = "fail"
    ANSWER = "answer"
    EDIT = "edit"
    SERVE = "serve"
    DELAY = "delay"
    DROP = "drop"
    DISCONNECT = "disconnect"
    ASK = "ask"
    """A function decides."""


class Verdict(NamedTuple):
    """What is to be done with a request; made by the methods of ClientRequest and by the rules of `faults.py`."""

    action: Action
    code: ErrorCode = ErrorCode.NONE
    seconds: float = 0.0
    before: bool = True
    response: Any = None
    edit: Callable[[Any], Any] | None = None


@dataclass(slots=True, frozen=True)
class ClientRequest:
    """A request of a client: which api and version, of whom, when in broker time, and its fields.

    The fields have Kafka's names in snake case and can be read from here: `request.group_id`, `request.topics[0].name`.
    To change one, write to `request.body`.
    """

    at_ms: int
    api: str
    version: int
    client: str | None
    host: str
    body: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.body, name)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; bytes in base64."""
        shown = {"at_ms": self.at_ms, "api": self.api, "version": self.version, "client": self.client}
        return shown | {"host": self.host, "body": plain(self.body)}

    # What a function given to `broker.fault` can return; None leaves the request to other rules and the broker.

    def fail(self, code: ErrorCode | str | int) -> Verdict:
        """Answer with an error code; the request has no effect."""
        return Verdict(Action.FAIL, code=error_code(code))

    def answer(self, response: Any = None, **fields: Any) -> Verdict:
        """Answer with this response, or with one of these fields; the request has no effect."""
        kind = getattr(messages, f"{self.api}Response")
        if response is None:
            response = kind(**fields)
        if not isinstance(response, kind):
            raise TypeError(f"{self.api} is answered with {self.api}Response, not with {type(response).__name__}")
        return Verdict(Action.ANSWER, response=response)

    def edit_answer(self, function: Callable[[Any], Any]) -> Verdict:
        """Serve it, then let the function change the response in place, or return another one."""
        return Verdict(Action.EDIT, edit=function)

    def serve(self) -> Verdict:
        """Serve it as it now is: for a function that has changed `request.body`."""
        return Verdict(Action.SERVE)

    def delay(self, seconds: float) -> Verdict:
        """Serve it, and what is behind it on its connection, later in broker time."""
        if seconds < 0:
            raise ValueError("seconds cannot be negative")
        return Verdict(Action.DELAY, seconds=seconds)

    def drop(self, *, before: bool = True) -> Verdict:
        """Never answer; with before=False the request takes effect all the same."""
        return Verdict(Action.DROP, before=before)

    def disconnect(self, *, before: bool = True) -> Verdict:
        """Close the connection instead of answering; with before=False after the request took effect."""
        return Verdict(Action.DISCONNECT, before=before)


class _Kept(NamedTuple):
    at_ms: int
    client: str | None
    host: str
    entry: Entry
    frame: bytes
    start: int


class RequestLog:
    """The last requests, at most so many and of so many bytes together, oldest first."""

    def __init__(self, max_requests: int = MAX_REQUESTS, max_bytes: int = MAX_BYTES) -> None:
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self.forgotten = 0
        """How many were let go because there came too many."""

    def add(self, call: Call, frame: bytes, start: int, now_ms: int) -> None:
        """A request has arrived; its body begins at `start` of the frame."""
        self._kept.append(_Kept(now_ms, call.client_id, call.connection.host, call.entry, frame, start))
        self._bytes += len(frame)
        while len(self._kept) > self._max_requests or self._bytes > self._max_bytes:
            self._bytes -= len(self._kept.popleft().frame)
            self.forgotten += 1

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = self.forgotten = 0

    def select(self, api: str | None = None, client: str | None = None) -> Iterator[ClientRequest]:
        if api is not None:
            api_name(api)
        for kept in self._kept:
            if api in (None, kept.entry.name) and client in (None, kept.client):
                body, _ = kept.entry.read(kept.frame, kept.start)
                name, version = kept.entry.name, kept.entry.version
                yield ClientRequest(kept.at_ms, name, version, kept.client, kept.host, body)


def plain(value: Any) -> Any:
    """A message, or a part of one, as plain JSON values; bytes are in base64."""
    if isinstance(value, messages.Struct):
        return {name: plain(getattr(value, name)) for name in type(value).__slots__}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value
