"""What an application may do when its partitions change: a listener object, or three callables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.client.types import TopicPartition


class RebalanceListener:
    """Override what is needed. Called within poll(); may commit and seek; what it raises, poll() raises."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """About to be given up, still owned: commit what was done."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """Newly owned: seek here if positions are kept elsewhere."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """Already owned by others: commits would fail, clean up only. By default the same as revoked."""
        return self.on_partitions_revoked(partitions)


class Callables:
    """Three functions as a listener; lost partitions go to `revoked` where `lost` is not given."""

    def __init__(
        self,
        revoked: Callable[..., Any] | None,
        assigned: Callable[..., Any] | None,
        lost: Callable[..., Any] | None,
    ) -> None:
        self.on_partitions_revoked = revoked
        self.on_partitions_assigned = assigned
        self.on_partitions_lost = lost or revoked


def as_listener(
    listener: Any,
    revoked: Callable[..., Any] | None,
    assigned: Callable[..., Any] | None,
    lost: Callable[..., Any] | None,
) -> Any:
    if listener is None:
        return Callables(revoked, assigned, lost) if revoked or assigned or lost else None
    if revoked or assigned or lost:
        raise ValueError("give a listener object or on_partitions_* callables, not both")
    names = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")
    if not any(callable(getattr(listener, name, None)) for name in names):
        raise ValueError(f"a listener needs one of {', '.join(names)}")
    if not hasattr(listener, "on_partitions_lost"):
        return Callables(
            getattr(listener, "on_partitions_revoked", None), getattr(listener, "on_partitions_assigned", None), None
        )
    return listener
