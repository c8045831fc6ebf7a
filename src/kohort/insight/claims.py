"""What members say of themselves when they come and go (KIP-800), where it is known word for word.

A claim is told as what it is, next to the kind of the cause: whatever a client writes, it never becomes another kind.
"""

from __future__ import annotations

from kohort.coordinator.causes import Cause, CauseKind

POLL_TIMEOUT = "consumer poll timeout has expired"
"""Kafka's consumers leave with these words when their application has not polled for max.poll.interval.ms."""


def polled_late(cause: Cause | None) -> bool:
    return cause is not None and cause.kind is CauseKind.LEFT and cause.said.rstrip(".") == POLL_TIMEOUT
