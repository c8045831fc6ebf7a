"""Finding the group's coordinator: unknown, looked for, known. Sans-IO; the member owns one of these."""

from __future__ import annotations

from typing import Any

from kohort.client.effects import Destination, DropCoordinator, MemberOutbox, RefreshMetadata, UseCoordinator
from kohort.client.errors import error_for
from kohort.client.timing import Backoff
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FindCoordinatorRequest

GROUP_KEY_TYPE = 0


class CoordinatorFinder:
    """Asks any node who coordinates the group, again after a backoff until it is known."""

    def __init__(self, group_id: str, request_timeout_ms: int, backoff: Backoff, out: MemberOutbox) -> None:
        self._group_id = group_id
        self._request_timeout_ms = request_timeout_ms
        self._backoff = backoff
        self._out = out
        self.node: UseCoordinator | None = None
        self.in_flight: int | None = None
        self.retry_at_ms: int | None = None

    @property
    def known(self) -> bool:
        return self.node is not None

    def find(self, now_ms: int) -> None:
        """Ask, unless it is known, asked for already, or a backoff still runs."""
        if self.node is not None or self.in_flight is not None:
            return
        if self.retry_at_ms is not None and now_ms < self.retry_at_ms:
            return
        self.retry_at_ms = None
        request = FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[self._group_id])
        self.in_flight = self._out.send(request, Destination.LEAST_LOADED, self._request_timeout_ms)

    def received(self, response: Any, now_ms: int) -> KafkaError | None:
        """An error that no retry will cure, else None."""
        self.in_flight = None
        if len(response.coordinators) != 1:
            text = f"FindCoordinator answered {len(response.coordinators)} coordinators for group {self._group_id}"
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{text}, one was asked for")
        (coordinator,) = response.coordinators
        if coordinator.error_code == ErrorCode.NONE:
            self.node = UseCoordinator(coordinator.node_id, coordinator.host, coordinator.port)
            self._backoff.reset()
            self._out.add(self.node)
            self._out.report(
                f"group {self._group_id}: coordinator is node {self.node.node_id} ({self.node.host}:{self.node.port})"
            )
            return None
        error = error_for(coordinator.error_code, coordinator.error_message)
        if not error.code.retriable:
            return error
        self.failed(now_ms)
        return None

    def failed(self, now_ms: int) -> None:
        """Whoever was asked may know less of the cluster than others by now."""
        self.in_flight = None
        self._out.add(RefreshMetadata("the coordinator was not found"))
        self.retry_at_ms = now_ms + self._backoff.next_ms()

    def lost(self, reason: str, now_ms: int) -> None:
        if self.node is None:
            return
        self._out.report(f"group {self._group_id}: lost coordinator node {self.node.node_id}: {reason}")
        self.node = None
        self.retry_at_ms = now_ms + self._backoff.next_ms()
        self._out.add(DropCoordinator(reason))
