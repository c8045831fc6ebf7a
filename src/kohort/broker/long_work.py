"""Requests that take longer than others should wait: read and answered on another thread, handled in slices.

A handler that is a generator has had a slice when it yields; its first slice is taken at once. Of those that need more
the oldest few get a slice each in a turn, until their answers are encoded, which is done elsewhere: what is half done
takes memory. Later requests of a connection wait for its long one. What a connection that is closed wanted to know is
dropped; what it wanted changed is changed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.broker.throttling import throttle
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.wire import DecodeError

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core

logger = logging.getLogger("kohort.broker")

MOST_AT_ONCE = 8
MOST_ANSWER_BYTES = 256 * 1024 * 1024
"""A request can ask for the same again and again: what would be more is not answered."""
MOST_ANSWER_ROWS = 1_000_000
CHANGES = frozenset(
    {
        "AddPartitionsToTxn",
        "AlterClientQuotas",
        "AlterConfigs",
        "AlterPartitionReassignments",
        "AlterUserScramCredentials",
        "CreateAcls",
        "CreatePartitions",
        "CreateTopics",
        "DeleteAcls",
        "DeleteGroups",
        "DeleteRecords",
        "DeleteTopics",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "LeaveGroup",
        "OffsetDelete",
        "Produce",
        "WriteTxnMarkers",
    }
)
Steps = Generator[None, None, Any]
"""A handler in slices; it returns the response, or None where that is given later."""


class LongWork:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.sliced: deque[tuple[Call, Steps]] = deque()
        self.own: deque[Steps] = deque()  # of the broker itself
        self._encoding = 0

    def __bool__(self) -> bool:
        """Whether the next turn can go on with something."""
        return bool(self.own) or (bool(self.sliced) and self._encoding < MOST_AT_ONCE)

    def begin(self, call: Call, steps: Steps, now_ms: int) -> None:
        """Handle the first slice now: for most requests it is the only one."""
        if self._advance(call, steps, first=True):
            call.connection.long_works += 1
            self.sliced.append((call, steps))

    def step(self, now_ms: int) -> None:
        """A slice of each of the oldest, and of one work of the broker's own."""
        if self.own:
            steps = self.own.popleft()
            if next(steps, self) is not self:
                self.own.append(steps)
        unfinished: list[tuple[Call, Steps]] = []
        for _ in range(min(len(self.sliced), MOST_AT_ONCE - self._encoding)):
            call, steps = self.sliced.popleft()
            if call.connection.close_reason is not None and call.entry.name not in CHANGES:
                steps.close()
            elif self._advance(call, steps, first=False):
                unfinished.append((call, steps))
                continue
            call.connection.long_works -= 1
        self.sliced.extendleft(reversed(unfinished))

    def _advance(self, call: Call, steps: Steps, first: bool) -> bool:
        """Whether there is more to do."""
        try:
            next(steps)
            return True
        except StopIteration as end:
            if end.value is not None:
                if first:
                    self._core.reply(call, end.value)
                else:
                    self.encode(call, end.value)
        except Exception as error:
            self.failed(call, error)
        return False

    def failed(self, call: Call, error: Exception) -> None:
        if not isinstance(error, KafkaError):
            logger.exception("%r failed", call)
        self._core.disconnect(call.connection, f"{call.entry.name} v{call.entry.version} failed: {error}")

    def encode(self, call: Call, response: Any) -> None:
        """Answer with what takes long to write."""
        if self._core.quotas.active:
            throttle(self._core, call, response)
        self._encoding += 1
        call.connection.long_works += 1
        self._core.run_elsewhere(Encoding(self, call, response))

    def encoded(self, call: Call, body: bytes, error: BaseException | None) -> None:
        self._encoding -= 1
        call.connection.long_works -= 1
        if error is not None:
            if not isinstance(error, KafkaError):
                logger.error("the answer to %r cannot be encoded: %s", call, error)
            self._core.disconnect(call.connection, f"{call.entry.name} failed: {error}")
        else:
            self._core.reply_encoded(call, body)

    def read(self, call: Call, frame: bytes, pos: int) -> None:
        """Decode a large request elsewhere; the connection's next ones wait for it."""
        call.connection.reading = call
        self._core.run_elsewhere(Reading(self._core, call, frame, pos))


class Reading:
    """A Job: the decoding of one request."""

    uses_processor = True

    def __init__(self, core: Core, call: Call, frame: bytes, pos: int) -> None:
        self._core = core
        self._call = call
        self._frame = frame
        self._pos = pos
        self._request: Any = None

    def run(self) -> None:
        if self._call.connection.close_reason is not None:
            return
        self._request, end = self._call.entry.read(self._frame, self._pos)
        if end > len(self._frame):
            raise DecodeError(f"{end - len(self._frame)} bytes short")

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        connection = self._call.connection
        connection.reading = None
        if connection.close_reason is not None:
            return
        if error is not None:
            self._core.disconnect(connection, f"malformed request: {error}")
        else:
            self._core.admit(self._call, self._request, self._frame, self._pos, now_ms)


def _add(body: bytearray, part: bytes) -> None:
    body += part
    check_answer(len(body))


def check_answer(size: int, rows: int = 0) -> None:
    """KafkaError, which costs the connection, where an answer would take the memory of all."""
    if size > MOST_ANSWER_BYTES or rows > MOST_ANSWER_ROWS:
        what = f"{size} bytes" if size > MOST_ANSWER_BYTES else f"{rows} rows"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"its answer would have {what}, or more")


class Encoding:
    """A Job: the encoding of one large answer."""

    uses_processor = True

    def __init__(self, work: LongWork, call: Call, response: Any) -> None:
        self._work = work
        self._call = call
        self._response = response
        self._body = b""

    def run(self) -> None:
        if self._call.connection.close_reason is None:
            body = bytearray()
            self._call.entry.write(self._response, partial(_add, body))
            self._body = bytes(body)

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        self._work.encoded(self._call, self._body, error)
