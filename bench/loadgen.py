"""Load on raw sockets: keeps a number of requests in flight on every connection and counts what comes back.

Cheaper than the broker it loads: frames are encoded once, answers are counted by their size, one thread serves all.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_socket import KafkaSocket, request_frame, response_class
from kohort.protocol.frames import decode_response
from process import cpu_seconds

RECEIVE_BYTES = 1 << 20


@dataclass(frozen=True)
class Load:
    """What a measurement saw, its warm-up left out."""

    requests: int
    seconds: float
    cpu_seconds: float
    received_bytes: int

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us_per_request(self) -> float:
        return 1e6 * self.cpu_seconds / max(self.requests, 1)


class Lane:
    """One connection that sends the same request over and over; every answer has the size of the first."""

    def __init__(self, connection: KafkaSocket, request: Any, version: int, check: Callable[[Any], None]) -> None:
        self.connection = connection
        self.frame = request_frame(request, version, client_id=connection.client_id)
        self.answer = (response_class(request), version)
        self.check = check
        self.answer_bytes = self.ask_once()
        self.unread_bytes = 0
        self.in_flight = 0
        self.answered = 0

    def ask_once(self) -> int:
        """One request on its own, its answer checked: before the load, and after it."""
        self.connection.socket.sendall(self.frame)
        frame = self.connection.receive_frame()
        cls, version = self.answer
        self.check(decode_response(frame, version, cls))
        return 4 + len(frame)

    def send(self, count: int) -> None:
        self.connection.socket.sendall(self.frame * count)
        self.in_flight += count

    def receive(self, buffer: memoryview) -> tuple[int, int]:
        """Bytes read, and answers completed by them."""
        try:
            size = self.connection.socket.recv_into(buffer)
        except TimeoutError:
            state = (
                f"{self.in_flight} requests in flight, {self.unread_bytes} of {self.answer_bytes} bytes of an answer"
            )
            raise TimeoutError(f"the broker stopped answering: {state}") from None
        if size == 0:
            raise ConnectionError("the broker closed a connection under load")
        answers, self.unread_bytes = divmod(self.unread_bytes + size, self.answer_bytes)
        self.in_flight -= answers
        self.answered += answers
        return size, answers


def pump(lanes: Sequence[Lane], *, depth: int, warmup: float, seconds: float, pid: int) -> Load:
    """Load for `warmup + seconds`, of which the latter is measured; afterwards every lane is drained and checked."""
    selector = selectors.DefaultSelector()
    for lane in lanes:
        selector.register(lane.connection, selectors.EVENT_READ, lane)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    for lane in lanes:
        lane.send(depth)
    _run_until(time.perf_counter() + warmup, selector, buffer)
    cpu_before, began = cpu_seconds(pid), time.perf_counter()
    requests, received = _run_until(began + seconds, selector, buffer)
    elapsed = time.perf_counter() - began
    load = Load(requests, elapsed, cpu_seconds(pid) - cpu_before, received)
    for lane in lanes:
        while lane.in_flight:
            lane.receive(buffer)
        lane.ask_once()
    selector.close()
    return load


def _run_until(end: float, selector: selectors.BaseSelector, buffer: memoryview) -> tuple[int, int]:
    requests = received = 0
    while time.perf_counter() < end:
        for key, _ in selector.select(0.5):
            size, answers = key.data.receive(buffer)
            received += size
            if answers:
                requests += answers
                key.data.send(answers)
    return requests, received
