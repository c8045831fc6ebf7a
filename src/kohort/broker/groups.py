"""The coordinator in the broker: requests to it, its records to the log, its answers to the clients.

What a turn's requests want stored becomes one batch per partition of `__consumer_offsets`; when that is in the log it
is replayed, and then the answers leave. Who coordinates what is answered here too (FindCoordinator).
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from kohort.broker import event_log
from kohort.broker.appends import Append
from kohort.broker.group_loading import GroupLoader
from kohort.broker.internal_topics import ensure_offsets_topic
from kohort.broker.table import Api
from kohort.coordinator.context import CoordinatorConfig
from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.effects import SHARED, Effects, GroupRequest
from kohort.coordinator.effects import Append as GroupAppend
from kohort.coordinator.events import EVENTS_TOPIC, GroupEvent
from kohort.coordinator.records import OFFSETS_TOPIC, OffsetCommit, partition_for
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FindCoordinatorResponse
from kohort.protocol.uuids import random_uuid
from kohort.records.batch import build_key_values, read_header
from kohort.records.compression import Compression

if TYPE_CHECKING:
    from kohort.broker.connection import Call, Connection
    from kohort.broker.core import Core
    from kohort.broker.topics import Catalog, Partition

logger = logging.getLogger("kohort.groups")

GROUP, TRANSACTION, SHARE = 0, 1, 2  # what FindCoordinator can ask for; there are no share groups here
_NO_NODE = (-1, "", -1)
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class CatalogTopics:
    """The coordinator's view of the broker's topics."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def by_name(self, name: str) -> tuple[bytes, int] | None:
        topic = self._catalog.by_name.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def by_id(self, topic_id: bytes) -> str | None:
        topic = self._catalog.by_id.get(topic_id)
        return None if topic is None else topic.name


class GroupService:
    """`core.groups`: see the contract at the top of core.py."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._effects = Effects()
        self._compression = Compression(core.config["offsets.topic.compression.codec"])
        self.coordinator = Coordinator(_coordinator_config(core), CatalogTopics(core.topics), self._new_uuid)
        self._loader = GroupLoader(self.coordinator)
        self._now_ms = 0
        self._unpublished: list[GroupEvent] = []  # of this turn, for the topic of events
        self._publishes: bool = core.config["kohort.group.events.topic.enable"]
        self._bodies: dict[int, bytes] = {}  # of shared responses, which live for ever: their ids are their names

    def _new_uuid(self) -> str:
        return random_uuid(self._core.random_bytes(16))

    def apis(self) -> list[Api]:
        return [
            Api(8, "OffsetCommit", 2, 10, self._handle),
            Api(9, "OffsetFetch", 1, 10, self._handle_after_appends),
            Api(10, "FindCoordinator", 0, 6, self._find_coordinator),
            Api(11, "JoinGroup", 0, 9, self._handle),
            Api(12, "Heartbeat", 0, 4, self._handle),
            Api(13, "LeaveGroup", 0, 5, self._handle),
            Api(14, "SyncGroup", 0, 5, self._handle),
            Api(15, "DescribeGroups", 0, 6, self._handle_after_appends),
            Api(16, "ListGroups", 0, 5, self._handle_after_appends),
            Api(42, "DeleteGroups", 0, 2, self._handle_after_appends),
            Api(47, "OffsetDelete", 0, 0, self._handle_after_appends),
        ]

    # ---- the life of the broker

    def start(self, now_ms: int) -> None:
        topic = self._core.topics.by_name.get(OFFSETS_TOPIC)
        if topic is not None:
            self._lead(topic.partitions, now_ms)

    def _lead(self, partitions: list[Partition], now_ms: int) -> None:
        self.coordinator.config.offsets_topic_num_partitions = len(partitions)
        self._loader.start(partitions, now_ms, self._effects)
        self._now_ms = now_ms
        self._answer(now_ms)

    def on_time(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._loader:
            self._loader.step(now_ms, self._effects)
        self.coordinator.on_time(now_ms, self._effects)
        self._answer(now_ms)

    def next_deadline(self) -> int | None:
        return self._now_ms if self._loader else self.coordinator.next_deadline()

    def connection_lost(self, connection: Connection, now_ms: int) -> None:
        """Nothing: as in Kafka a member is alive until its session is over, whatever happens to its connection."""

    def topics_deleted(self, topics: dict[str, bytes], now_ms: int) -> None:
        if OFFSETS_TOPIC in topics:
            self._loader.cancel()
            for partition in list(self.coordinator.partitions):
                self.coordinator.unload(partition, now_ms, self._effects)
        self.coordinator.topics_deleted(topics, now_ms, self._effects)
        self._answer(now_ms)

    def topic_grew(self, name: str, now_ms: int) -> None:
        """Nothing for other topics: the leader of a group sees it in its metadata and rejoins."""
        if name == OFFSETS_TOPIC:
            logger.warning("%s has grown: groups whose partition changes start from nothing", OFFSETS_TOPIC)
            topic = self._core.topics.by_name[name]
            self._loader.cancel()
            for partition in list(self.coordinator.partitions):
                self.coordinator.unload(partition, now_ms, self._effects)
            self._lead(topic.partitions, now_ms)

    # ---- requests

    def _handle(self, core: Core, call: Call, message: Any, now_ms: int) -> None:
        effects = self._effects
        request = GroupRequest(call, message, call.version, call.client_id or "", call.connection.client_host)
        self.coordinator.handle(request, now_ms, effects)
        if effects.replies or effects.events:
            self._answer(now_ms)

    def _handle_after_appends(self, core: Core, call: Call, message: Any, now_ms: int) -> None:
        """Who asks after a commit in the same turn sees the commit."""
        if self._effects.appends:
            self.collect(now_ms)
            core.appends.run(now_ms)
        self._handle(core, call, message, now_ms)

    def _answer(self, now_ms: int) -> None:
        effects, core, bodies = self._effects, self._core, self._bodies
        replies, effects.replies = effects.replies, []
        for call, response in replies:
            key = id(response) * 64 + call.version
            body = bodies.get(key)
            if body is not None:
                core.reply_encoded(call, body)
            elif id(response) in SHARED:
                body = bodies[key] = response.encode(call.version)
                core.reply_encoded(call, body)
            else:
                core.reply(call, response)
        if effects.events:
            happened, effects.events = effects.events, []
            self._report(happened)
            if self._publishes:
                self._unpublished += happened

    # ---- records

    def collect(self, now_ms: int) -> None:
        """One batch per partition of what the turn wants stored."""
        effects = self._effects
        if self._unpublished:
            self._publish(now_ms)
        if not effects.appends:
            return
        appends, effects.appends = effects.appends, []
        by_partition: dict[int, list[GroupAppend]] = {}
        for append in appends:
            by_partition.setdefault(append.partition, []).append(append)
        topic = self._core.topics.by_name.get(OFFSETS_TOPIC)
        for index, group_appends in by_partition.items():
            partition = topic.partition(index) if topic is not None else None
            if partition is None:
                self._fail(group_appends, ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
                continue
            self._append(partition, group_appends, now_ms)

    def _append(self, partition: Partition, appends: list[GroupAppend], now_ms: int) -> None:
        """An append is never divided: its records are stored together or not at all."""
        data = self._build(appends, now_ms)
        if len(data) <= partition.log.config.max_message_bytes:
            self._core.append(Append(partition, data, read_header(data), self, appends))
        elif len(appends) == 1:
            self._fail(appends, ErrorCode.RECORD_LIST_TOO_LARGE, now_ms)
        else:
            middle = len(appends) // 2
            self._append(partition, appends[:middle], now_ms)
            self._append(partition, appends[middle:], now_ms)

    def _build(self, appends: list[GroupAppend], now_ms: int) -> bytes:
        pairs = [pair for append in appends for pair in append.records]
        return build_key_values(pairs, now_ms, self._compression)

    def appended(self, append: Append, now_ms: int) -> None:
        """In the log (or not): replay all of the batch, then answer."""
        if append.token is None:
            return  # events: nobody waits for them
        if append.error:
            self._fail(append.token, append.error, now_ms)
            return
        coordinator, effects = self.coordinator, self._effects
        if coordinator.is_loaded(append.partition.index):
            coordinator.replay_appends(append.partition.index, append.token, append.base_offset, now_ms)
        for group_append in append.token:
            coordinator.stored(group_append.token, 0, now_ms, effects)
        if self._core.meter is not None:
            self._core.meter.groups.offsets_committed += sum(map(_commits, append.token))
        self._answer(now_ms)

    def _fail(self, appends: list[GroupAppend], error: ErrorCode, now_ms: int) -> None:
        for append in appends:
            self.coordinator.stored(append.token, error, now_ms, self._effects)
        self._answer(now_ms)

    # ---- events

    def _publish(self, now_ms: int) -> None:
        happened, self._unpublished = self._unpublished, []
        try:
            topic = self._core.topics.by_name.get(EVENTS_TOPIC) or self._core.topics.create(EVENTS_TOPIC, 1)
        except KafkaError as error:
            logger.error("group events are lost, %s cannot be created: %s", EVENTS_TOPIC, error)
            return
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for event in happened:
            pairs = by_partition.setdefault(partition_for(event.group_id, len(topic.partitions)), [])
            pairs.append((event.group_id.encode(), _to_json(event.to_dict()).encode()))
        for index, pairs in by_partition.items():
            data = build_key_values(pairs, now_ms)
            self._core.append(Append(topic.partitions[index], data, read_header(data), self))

    def _report(self, happened: list[GroupEvent]) -> None:
        meter = self._core.meter
        for event in happened:
            if meter is not None:
                meter.groups.observe(event)
            level = logging.INFO if event_log.is_news(event) else logging.DEBUG
            if logger.isEnabledFor(level):
                logger.log(level, "%s", event_log.line(event), extra={"event": event})

    # ---- FindCoordinator

    def _find_coordinator(self, core: Core, call: Call, message: Any, now_ms: int) -> FindCoordinatorResponse:
        if call.version < 4:
            error, (node_id, host, port) = self._coordinator_of(message.key_type, now_ms)
            text = error.name if not error else error.message
            return FindCoordinatorResponse(error_code=error, error_message=text, node_id=node_id, host=host, port=port)
        coordinators = []
        for key in message.coordinator_keys:
            error, (node_id, host, port) = self._coordinator_of(message.key_type, now_ms)
            found = FindCoordinatorResponse.Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=error
            )
            if message.key_type > SHARE:
                found.error_message = error.message
            coordinators.append(found)
        return FindCoordinatorResponse(coordinators=coordinators)

    def _coordinator_of(self, key_type: int, now_ms: int) -> tuple[ErrorCode, tuple[int, str, int]]:
        """This broker, for every group and transaction; the offsets topic is made when it is first asked for."""
        core = self._core
        if key_type not in (GROUP, TRANSACTION):
            return ErrorCode.INVALID_REQUEST, _NO_NODE
        if key_type == GROUP and not self.coordinator.partitions:
            try:
                self._lead(ensure_offsets_topic(core).partitions, now_ms)
            except KafkaError as error:
                logger.error("%s cannot be created: %s", OFFSETS_TOPIC, error)
                return ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_NODE
        return ErrorCode.NONE, (core.node_id, core.host, core.port)


def _commits(append: GroupAppend) -> int:
    first = append.changes[0]
    return len(append.changes) if type(first) is OffsetCommit and first.value is not None else 0


def _coordinator_config(core: Core) -> CoordinatorConfig:
    config = core.config
    return CoordinatorConfig(
        offsets_topic_num_partitions=config["offsets.topic.num.partitions"],
        group_min_session_timeout_ms=config["group.min.session.timeout.ms"],
        group_max_session_timeout_ms=config["group.max.session.timeout.ms"],
        group_initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        group_max_size=config["group.max.size"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_minutes=config["offsets.retention.minutes"],
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
    )
