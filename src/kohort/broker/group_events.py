"""What happened to groups, for people and machines: counted, logged, and where configured produced to a topic."""

from __future__ import annotations

import logging
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from kohort.broker import event_log
from kohort.broker.appends import Append
from kohort.coordinator.events import EVENTS_TOPIC, GroupEvent
from kohort.coordinator.records import partition_for
from kohort.protocol.errors import KafkaError
from kohort.records.batch import build_key_values, read_header

if TYPE_CHECKING:
    from kohort.broker.core import Core

logger = logging.getLogger("kohort.groups")
_MOST_UNPUBLISHED = 1000
_GROUP_ID = attrgetter("group_id")
_NOTICE_MS = 60_000


class GroupEvents:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.unpublished: list[GroupEvent] = []  # of this turn
        self._turned_away = 0
        self._next_notice_ms: int | None = None
        self._publishes: bool = core.config["kohort.group.events.topic.enable"]

    def report(self, happened: list[GroupEvent]) -> None:
        meter = self._core.meter
        least = logger.getEffectiveLevel()
        for event in happened:
            if meter is not None:
                meter.groups.observe(event)
            level = logging.INFO if event_log.is_news(event) else logging.DEBUG
            if level >= least and logger.isEnabledFor(level):
                logger.log(level, "%s", event_log.line(event), extra={"event": event})
        if self._publishes:
            self.unpublished += happened

    def turned_away(self, requests: int, most: int, now_ms: int) -> None:
        """There is no group to tell of: one line at once, then one a minute with their number."""
        self._turned_away += requests
        if self._next_notice_ms is not None and now_ms < self._next_notice_ms:
            return
        logger.warning(
            "no room for further groups: %d requests were refused. There are %d, as many as kohort.max.groups allows; "
            "delete some that nobody uses, or raise it",
            self._turned_away,
            most,
        )
        self._turned_away, self._next_notice_ms = 0, now_ms + _NOTICE_MS

    def publish(self, now_ms: int) -> None:
        if self._core.membership is not None and EVENTS_TOPIC not in self._core.topics.by_name:
            # In a cluster a topic takes a while: as many partitions as groups have, led by who coordinates them.
            count = self._core.config["offsets.topic.num.partitions"]
            self._core.membership.ensure_topic(EVENTS_TOPIC, count, now_ms)
            del self.unpublished[:-_MOST_UNPUBLISHED]
            return
        happened, self.unpublished = self.unpublished, []
        try:
            topic = self._core.topics.by_name.get(EVENTS_TOPIC) or self._core.topics.create(EVENTS_TOPIC, 1)
        except KafkaError as error:
            logger.error("group events are lost, %s cannot be created: %s", EVENTS_TOPIC, error)
            return
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for group_id, some in groupby(happened, _GROUP_ID):
            key = group_id.encode()
            pairs = by_partition.setdefault(partition_for(group_id, len(topic.partitions)), [])
            pairs += [(key, event.to_json().encode()) for event in some]
        for index, pairs in by_partition.items():
            if not topic.partitions[index].leads:
                logger.debug("%d events are lost, the group is coordinated elsewhere by now", len(pairs))
                continue
            data = build_key_values(pairs, now_ms)
            self._core.append(Append(topic.partitions[index], data, read_header(data), self))

    def appended(self, append: Append, now_ms: int) -> None:
        """Nobody waits for them."""
