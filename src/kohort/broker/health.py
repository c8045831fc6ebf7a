"""Whether a broker lives, and whether clients should be sent to it: what `/health` and `/ready` say. Pure.

Healthy is one that needs no help: no log is offline, no partition of a coordinator has failed. Ready is one that
serves: it has started, its groups are loaded, it does not stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.coordinator.shard import Life, Shard

if TYPE_CHECKING:
    from kohort.broker.core import Core, Service
    from kohort.coordinator.runtime import Runtime

SHOWN = 20


class Health(NamedTuple):
    failures: list[str]
    """What needs a person."""
    waits_for: list[str]
    """What is not there yet."""

    @property
    def is_healthy(self) -> bool:
        return not self.failures

    @property
    def is_ready(self) -> bool:
        return not self.waits_for


def health_of(core: Core | None, is_stopping: bool) -> Health:
    if core is None:
        return Health([], ["the broker is starting"])
    failures = [
        f"{partition} is offline: {failure}"
        for topic in core.topics.by_name.values()
        for partition in topic.partitions
        if (failure := getattr(partition.log, "failure", None)) is not None
    ]
    waits_for = ["the broker is stopping"] if is_stopping else []
    for service in core.services:
        lives = Counter(shard.life for shard in _shards(service))
        if lives[Life.FAILED]:
            failures.append(f"{lives[Life.FAILED]} partitions of the coordinator of {service.name} cannot be read")
        if lives[Life.LOADING]:
            waits_for.append(f"{lives[Life.LOADING]} partitions of the coordinator of {service.name} are loading")
    return Health(failures, waits_for)


def _shards(service: Service) -> Iterable[Shard[Any]]:
    runtime: Runtime[Any] | None = getattr(getattr(service, "coordinator", None), "runtime", None)
    return () if runtime is None else runtime.shards.values()


def text(status: str, reasons: list[str]) -> bytes:
    more = [f"and {len(reasons) - SHOWN} more"] if len(reasons) > SHOWN else []
    return "".join(f"{line}\n" for line in (status, *reasons[:SHOWN], *more)).encode()
