"""ConsumerGroupHeartbeat as a client writes it: all at first and after a failure, else what has changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kohort.client.states import MemberConfig
from kohort.protocol.messages import ConsumerGroupHeartbeatRequest

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""The instance keeps its partitions for a restart within the session."""

Owned = Mapping[bytes, tuple[int, ...]]
"""Partitions by the id of their topic."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """By name, or by an expression that the broker evaluates ("" ends one that it was told of)."""

    topics: tuple[str, ...]
    regex: str = ""


class Heartbeats:
    """Remembers what the coordinator was told, so that it is told once."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config
        self._told: Subscribed | None = None
        self._owned: Owned | None = None

    def forget(self) -> None:
        """Nobody knows what arrived: the next heartbeat tells everything."""
        self._told = self._owned = None

    def acknowledged(self, owned: Owned) -> bool:
        """Whether the coordinator was told of exactly these."""
        return self._owned == owned

    def joining(self, member_id: str, subscribed: Subscribed) -> Any:
        self.forget()
        request = self.going_on(member_id, JOIN_EPOCH, subscribed, {})
        request.rack_id = self._config.client_rack or None
        return request

    def going_on(self, member_id: str, epoch: int, subscribed: Subscribed, owned: Owned) -> Any:
        request = self._request(member_id, epoch)
        if self._told is None:
            request.rebalance_timeout_ms = self._config.rebalance_timeout_ms
            request.server_assignor = self._config.group_remote_assignor
        before = self._told or Subscribed(())
        if self._told is None or subscribed.topics != before.topics:
            request.subscribed_topic_names = list(subscribed.topics)
        if subscribed.regex != before.regex:
            request.subscribed_topic_regex = subscribed.regex
        if not self.acknowledged(owned):
            entry = ConsumerGroupHeartbeatRequest.TopicPartitions
            request.topic_partitions = [entry(topic_id=one, partitions=list(owned[one])) for one in sorted(owned)]
        self._told, self._owned = subscribed, dict(owned)
        return request

    def leaving(self, member_id: str, epoch: int) -> Any:
        self.forget()
        return self._request(member_id, epoch)

    def _request(self, member_id: str, epoch: int) -> Any:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._config.group_instance_id,
        )


def least_version(subscribed: Subscribed) -> int:
    """Expressions came with version 1."""
    return 1 if subscribed.regex else 0
