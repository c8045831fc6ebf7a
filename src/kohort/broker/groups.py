"""The group coordinator in the broker: requests to it, its answers to the clients, topics that come and go.

Its log is coordinator_log.py's business, its events are group_events.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kohort.broker.coordinator_log import CoordinatorLog
from kohort.broker.coordinator_service import CoordinatorService
from kohort.broker.find_coordinator import GROUP
from kohort.broker.group_config import coordinator_config
from kohort.broker.group_events import GroupEvents
from kohort.broker.group_parts import GROUPS_AT_ONCE as GROUPS_AT_A_TIME
from kohort.broker.group_parts import (
    PARTITIONS_AT_ONCE,
    Part,
    Parts,
    asked_of,
    most_commits,
    names_many_partitions,
    refuse_commits,
)
from kohort.broker.internal_topics import ensure_offsets_topic
from kohort.broker.table import Api
from kohort.broker.transaction_markers import Ending, Told
from kohort.broker.txn_commit_admission import TxnCommitAdmission
from kohort.coordinator.coordinator import GROUPS_AT_ONCE, Coordinator
from kohort.coordinator.effects import Decision, Request, SharedResponse
from kohort.coordinator.records import OFFSETS_TOPIC, OffsetCommit, TransactionalCommit
from kohort.coordinator.replay import ShardGroups
from kohort.coordinator.shard import Write
from kohort.coordinator.txn_offsets import EndTransaction
from kohort.protocol.messages import OffsetCommitRequest
from kohort.protocol.uuids import random_uuid
from kohort.records.compression import Compression
from kohort.storage.producers import check_marker

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps
    from kohort.broker.topics import Topic
    from kohort.coordinator.modern.work import Work

logger = logging.getLogger("kohort.groups")

LARGE_COMMIT = 1_000
_LARGE_COMMIT_BYTES = LARGE_COMMIT * 14
"""Less cannot hold that many: each has a number, an offset and metadata, which may be null."""


class CatalogTopics:
    """The coordinator's view of the broker's topics."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._catalog = core.topics

    def by_name(self, name: str) -> tuple[bytes, int] | None:
        topic = self._catalog.by_name.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def by_id(self, topic_id: bytes) -> str | None:
        topic = self._catalog.by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return self._catalog.by_name

    @property
    def rack(self) -> str:
        """In a cluster replicas have none: any broker may come to lead a partition, and coordinators must agree."""
        return "" if self._core.membership is not None else self._core.config["broker.rack"] or ""


class GroupWork:
    """A Job: what the coordinator wants computed off its turn."""

    def __init__(self, service: GroupService, work: Work) -> None:
        self._service = service
        self._work = work
        self._made: Any = None
        self.may_hang = work.may_hang
        self.uses_processor = not work.may_hang

    def run(self) -> None:
        self._made = self._work.compute()

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        if error is not None:
            logger.warning("%r failed: %s: %s", self._work, type(error).__name__, error)
        why = error if isinstance(error, Exception) or error is None else RuntimeError(repr(error))
        self._service.computed(self._work, self._made, why, now_ms)


class GroupService(CoordinatorService):
    """A service of the core: see the contract at the top of core.py."""

    name = "groups"
    key_type = GROUP
    topic_name = OFFSETS_TOPIC
    coordinator: Coordinator

    def __init__(self, core: Core) -> None:
        self._core = core
        config = core.config
        self.topics = CatalogTopics(core)
        self.coordinator = Coordinator(coordinator_config(config, core.topics), self.topics, self._new_uuid)
        self._effects = self.coordinator.effects
        self._log: CoordinatorLog[ShardGroups] = CoordinatorLog(
            core,
            self.coordinator.runtime,
            Compression(config["offsets.topic.compression.codec"]),
            config["offsets.load.buffer.size"],
            self._changed,
        )
        self.next_deadline = self._log.next_deadline
        self.events = GroupEvents(core)
        self._told_strays: set[str] = set()
        self._asked: dict[tuple[int, int], set[TxnCommitAdmission]] = {}  # of a partition and a producer

    def _new_uuid(self) -> str:
        return random_uuid(self._core.random_bytes(16))

    def apis(self) -> list[Api]:
        return [
            Api(8, "OffsetCommit", 2, 10, self._handle),
            Api(9, "OffsetFetch", 1, 10, self._handle_many),
            Api(11, "JoinGroup", 0, 9, self._handle),
            Api(12, "Heartbeat", 0, 4, self._handle),
            Api(13, "LeaveGroup", 0, 5, self._handle_many),
            Api(14, "SyncGroup", 0, 5, self._handle),
            Api(15, "DescribeGroups", 0, 6, self._handle_many),
            Api(16, "ListGroups", 0, 5, self._list),
            Api(28, "TxnOffsetCommit", 0, 5, self._txn_commit),
            Api(42, "DeleteGroups", 0, 2, self._handle_many),
            Api(47, "OffsetDelete", 0, 0, self._handle_many),
            Api(68, "ConsumerGroupHeartbeat", 0, 1, self._handle),
            Api(69, "ConsumerGroupDescribe", 0, 1, self._handle_many),
        ]

    # ---- requests and answers

    def _handle_many(self, core: Core, call: Call, message: Any, now_ms: int) -> Steps | None:
        """What names many groups, members or partitions is handled in parts."""
        if names_many_partitions(call, message):
            return Parts(core, call, message).ask_by_partitions(partial(self._handle_part, call))
        asked = asked_of(call, message)
        weigh = cache(self._weight)
        if len(asked) > GROUPS_AT_A_TIME or sum(weigh(*_named(one)) for one in asked) > PARTITIONS_AT_ONCE:
            handle = partial(self._handle_part, call)
            return Parts(core, call, message).ask(handle, lambda one: weigh(*_named(one)))
        self._handle(core, call, message, now_ms)
        return None

    def _weight(self, group_id: str, is_about_offsets: bool) -> int:
        """How many rows of an answer a group is; one where that is not known."""
        group = self.coordinator.group(group_id) if group_id else None
        if group is None:
            return 1
        return 1 + (sum(map(len, group.offsets.values())) if is_about_offsets else len(getattr(group, "members", ())))

    def _handle_part(self, call: Call, part: Part, message: Any) -> None:
        request = Request(part, message, call.version, call.client_id or "", call.connection.client_host)
        self.coordinator.handle(request, self._core.topics.now_ms)
        self._answer()

    def _list(self, core: Core, call: Call, message: Any, now_ms: int) -> Steps | None:
        if self.coordinator.group_count > GROUPS_AT_ONCE:
            return self._list_many(Parts(core, call, message).one(), call, message)
        self._handle(core, call, message, now_ms)
        return None

    def _list_many(self, part: Part, call: Call, message: Any) -> Steps:
        yield from self.coordinator.list_slices(Request(part, message, call.version))
        self._answer()

    def _handle(self, core: Core, call: Call, message: Any, now_ms: int) -> Steps | None:
        if call.size > _LARGE_COMMIT_BYTES and type(message) is OffsetCommitRequest and _is_too_large(core, message):
            return refuse_commits(message)
        effects = self._effects
        request = Request(call, message, call.version, call.client_id or "", call.connection.client_host)
        self.coordinator.handle(request, now_ms)
        if effects.replies:
            self._answer()
        return None

    def _answer(self) -> None:
        effects, core = self._effects, self._core
        replies, effects.replies = effects.replies, []
        for request, response in replies:
            call = request.call
            if type(call) is Part:
                call.answered(response)
            elif type(call) is Told:
                call.answered(response, core.topics.now_ms)
            elif type(response) is SharedResponse:
                core.reply_encoded(call, response.body(call.version))
            else:
                core.reply(call, response)
        if effects.events:
            happened, effects.events = effects.events, []
            self.events.report(happened)

    def computed(self, work: Work, made: Any, error: Exception | None, now_ms: int) -> None:
        self.coordinator.computed(work, made, error, now_ms)
        self._answer()

    # ---- transactions

    def _txn_commit(self, core: Core, call: Call, message: Any, now_ms: int) -> Steps | None:
        if call.size > _LARGE_COMMIT_BYTES and _is_too_large(core, message):
            return refuse_commits(message)
        request = Request(call, message, call.version, call.client_id or "", call.connection.client_host)
        TxnCommitAdmission(core, self, request).begin(now_ms)
        return None

    def ask_about(self, admission: TxnCommitAdmission, partition: int, producer_id: int) -> None:
        self._asked.setdefault((partition, producer_id), set()).add(admission)

    def still_asks(self, admission: TxnCommitAdmission, partition: int, producer_id: int) -> bool:
        """Whether no marker has come meanwhile that ended the transaction which the answer is about."""
        asked = self._asked.get((partition, producer_id), set())
        known = admission in asked
        asked.discard(admission)
        if not asked:
            self._asked.pop((partition, producer_id), None)
        return known

    def serve(self, request: Request, now_ms: int) -> None:
        self.coordinator.handle(request, now_ms)
        self._answer()

    def end_transaction(self, partition: int, ending: Ending, told: Told, now_ms: int) -> None:
        found = self._core.topics.partition(OFFSETS_TOPIC, partition)
        state = None if found is None else found.log.producers.get(ending.producer_id)
        verdict = check_marker(
            state, ending.producer_id, ending.producer_epoch, ending.coordinator_epoch, ending.version
        )
        if verdict.error:
            told.answered(verdict.error, now_ms)
            return
        asked = self._asked.pop((partition, ending.producer_id), set())
        for admission in asked:
            if admission.outlives(ending.producer_epoch):
                self.ask_about(admission, partition, ending.producer_id)
        ask = EndTransaction(
            partition, ending.producer_id, ending.producer_epoch, ending.coordinator_epoch, ending.committed
        )
        self.serve(Request(told, ask, 0), now_ms)

    def _changed(self, stored: Write[ShardGroups] | None, now_ms: int) -> None:
        if self.coordinator.is_scattered:
            self._home_strays(now_ms)
        if stored is not None and self._core.meter is not None:
            self._core.meter.groups.offsets_committed += sum(map(_commits, stored.decisions))
        self._answer()

    def _home_strays(self, now_ms: int) -> None:
        if moved := self.coordinator.home_strays(now_ms):
            some = ", ".join(moved[:5]) + (", ..." if len(moved) > 5 else "")
            logger.warning(
                "%s has %d partitions now: %d groups move with their commits to the partition of their name (%s)",
                OFFSETS_TOPIC,
                self.coordinator.config.offsets_topic_num_partitions,
                len(moved),
                some,
            )
        if not self._log.is_loading and (strays := set(self.coordinator.strays()) - self._told_strays):
            self._told_strays |= strays
            logger.warning(
                "not served: %s. What %s has of them is not in the partition of their name, and cannot be moved there "
                "while that is not served, or while a transaction is open",
                ", ".join(sorted(strays)),
                OFFSETS_TOPIC,
            )

        if self.coordinator.counts_before and self.coordinator.all_at_home:
            self._all_at_home(now_ms)

    def _all_at_home(self, now_ms: int) -> None:
        """Nothing of before the topic grew is left to look for."""
        topic, membership = self._core.topics.by_name[OFFSETS_TOPIC], self._core.membership
        if membership is not None:
            membership.homed(topic, now_ms)
        elif self._core.topics.homed(topic):
            self.coordinator.counts_before = []

    # ---- the life of the broker

    def collect(self, now_ms: int) -> None:
        if self._effects.events:  # of requests whose answers wait for the log, all at once
            self._answer()
        if self._effects.work:
            work, self._effects.work = self._effects.work, []
            for one in work:
                self._core.run_elsewhere(GroupWork(self, one))
        if self._effects.loads:  # a request has failed half way
            self._log.begin_loads(now_ms)
            self._answer()
        if self._effects.turned_away:
            turned_away, self._effects.turned_away = self._effects.turned_away, 0
            self.events.turned_away(turned_away, self.coordinator.config.max_groups, now_ms)
        if self.events.unpublished:
            self.events.publish(now_ms)
        if self.coordinator.runtime.open_shards:
            self._log.collect(now_ms)

    # ---- topics

    def _ensure_topic(self) -> Topic:
        return ensure_offsets_topic(self._core)

    def topic_created(self, topic: Topic, now_ms: int) -> None:
        """The coordinator leads the partitions of its topic however that came to be."""
        self.coordinator.topics_changed(topic.name)
        if topic.name == OFFSETS_TOPIC:
            self.coordinator.use_partitions(len(topic.partitions), now_ms, topic.grown_from)
            self._log.lead(topic, now_ms)

    def topics_deleted(self, topics: dict[str, bytes], now_ms: int) -> None:
        if OFFSETS_TOPIC in topics:
            self._log.resign(now_ms)
        self.coordinator.topics_deleted(topics, now_ms)
        self._answer()

    def topic_grew(self, name: str, now_ms: int) -> None:
        """The leader of a classic group sees it in its metadata and rejoins; groups of KIP-848 are told."""
        self.coordinator.topics_changed(name)
        super().topic_grew(name, now_ms)


def _named(asked: Any) -> tuple[str, bool]:
    """The group that a row of a request is about as a whole, nobody where it is not, and whether about its offsets."""
    if isinstance(asked, str):
        return asked, False
    return "" if getattr(asked, "topics", True) else asked.group_id, True


def _is_too_large(core: Core, message: Any) -> bool:
    asked = sum(len(topic.partitions) for topic in message.topics)
    return asked > LARGE_COMMIT and asked > most_commits(core)


def _commits(decision: Decision) -> int:
    changes = decision.changes
    if changes and type(changes[0]) is TransactionalCommit:
        return len(changes)
    return len(changes) if changes and type(changes[0]) is OffsetCommit and changes[0].value is not None else 0
