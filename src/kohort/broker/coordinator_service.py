"""What the coordinators of a broker have in common: they begin and end with it, lead the partitions of their topic,
and are where the leader of a key's partition is. What they coordinate is the business of groups.py and transactions.py.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from kohort.broker.coordinator_log import CoordinatorLog
from kohort.broker.find_coordinator import NO_NODE, Node, leader_node
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.core import Core
    from kohort.broker.topics import Topic

logger = logging.getLogger("kohort.broker")


class Coordinates(Protocol):
    is_active: bool

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def partition_for(self, key: str, /) -> int: ...


class CoordinatorService(ABC):
    """A service of the core: see the contract at the top of core.py."""

    topic_name: ClassVar[str]
    coordinator: Coordinates
    _core: Core
    _log: CoordinatorLog[Any]
    next_deadline: Callable[[], int | None]
    """Of the log: asked for in every turn."""

    def start(self, now_ms: int) -> None:
        self.coordinator.start()
        topic = self._core.topics.by_name.get(self.topic_name)
        if topic is not None:
            self.topic_created(topic, now_ms)

    def stop(self, now_ms: int) -> None:
        self.coordinator.stop()

    def on_time(self, now_ms: int) -> None:
        self._log.on_time(now_ms)

    @abstractmethod
    def _ensure_topic(self) -> Topic:
        """It is made when it is first asked for."""

    @abstractmethod
    def topic_created(self, topic: Topic, now_ms: int) -> None:
        """The coordinator leads the partitions of its topic however that came to be."""

    def topic_grew(self, name: str, now_ms: int) -> None:
        if name == self.topic_name:
            self.topic_created(self._core.topics.by_name[name], now_ms)

    def coordinator_of(self, key: str, now_ms: int) -> tuple[ErrorCode, Node]:
        """Who leads the partition of a group, or of a transactional id."""
        if not self.coordinator.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE
        try:
            topic = self._ensure_topic()
        except KafkaError as error:
            logger.error("%s cannot be created: %s", self.topic_name, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE
        found = topic.partition(self.coordinator.partition_for(key))
        return leader_node(self._core, found) if found is not None else (ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE)
