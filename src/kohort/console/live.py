"""A cluster followed live: its offsets topic, kohort's group events, its groups, and the ends of its topics.

No group is joined, nothing is committed, nothing is created. Where something may not be read, a notice says so and the
rest goes on; where the cluster is out of reach, it is tried again until it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.client import AsyncConsumer
from kohort.client.admin_async import AsyncAdmin
from kohort.client.admin_types import MemberDescription
from kohort.client.metadata import TopicInfo
from kohort.client.types import TopicPartition
from kohort.console.feeding import Feeder
from kohort.console.source import Source
from kohort.coordinator.causes import Who
from kohort.coordinator.events import EVENTS_TOPIC
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.protocol.errors import KafkaError
from kohort.protocol.uuids import to_base64

LOOK_EVERY_S = 5.0
RETRY_S = 2.0
POLL_S = 0.5
RECORDS_AT_ONCE = 500
MOST_SAMPLED = 200
MOST_TAKEOVERS = 200


@dataclass(slots=True)
class LiveSource(Source):
    """`settings` are client settings by Kafka's names; what was written before `since_ms` is not read."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    since_ms: int = 0
    look_every_s: float = LOOK_EVERY_S
    _feeder: Feeder = field(init=False)
    _admin: AsyncAdmin | None = None
    _leaders: dict[int, int] = field(default_factory=dict)
    _takeovers: list[dict[str, Any]] = field(default_factory=list)
    _read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.live, self.what = True, str(self.settings.get("bootstrap.servers", ""))
        self._feeder = Feeder(self.ledger)
        self.progress = 0.0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._looking())
            tasks.create_task(self._following(OFFSETS_TOPIC))
            tasks.create_task(self._following(EVENTS_TOPIC))

    # -- what the cluster says of itself

    async def _looking(self) -> None:
        while True:
            try:
                async with AsyncAdmin({**self.settings, "client.id": "kohort-console"}) as admin:
                    self._admin = admin
                    while True:
                        await self._look(admin)
                        self.notices.pop("cluster", None)
                        await asyncio.sleep(self.look_every_s)
            except (KafkaError, OSError, TimeoutError) as error:
                _not_if_cancelled()
                self.notice(
                    "cluster",
                    "problem",
                    f"The cluster at {self.what} does not answer: {error}.",
                    "What is shown is what was known before. It is tried again until it answers.",
                )
                await asyncio.sleep(RETRY_S)
            finally:
                self._admin = None

    async def _look(self, admin: AsyncAdmin) -> None:
        groups = await admin.list_groups()
        self.ledger.listed((one.group_id, one.state, one.type) for one in groups)
        names = await admin.list_topics(internal=True)
        topics = await admin.describe_topics(names) if names else {}
        self._feeder.names = {to_base64(topic.topic_id): name for name, topic in topics.items()}
        await self._measure(admin, topics)
        if "offsets" in self.notices:
            for one in groups[:MOST_SAMPLED]:
                await self._sample(admin, one.group_id)
        self.cluster = await self._describe(admin, topics)

    async def _measure(self, admin: AsyncAdmin, topics: Mapping[str, TopicInfo]) -> None:
        asked = {
            TopicPartition(name, p.partition): "latest"
            for name, topic in topics.items()
            if not topic.internal
            for p in topic.partitions
            if p.leader >= 0
        }
        found = await admin.list_offsets(asked) if asked else {}
        now_ms = self.now_ms()
        self.ledger.grew(now_ms, [((tp.topic, tp.partition), at.offset) for tp, at in found.items() if at is not None])
        self.ledger.measure(now_ms)

    async def _describe(self, admin: AsyncAdmin, topics: Mapping[str, TopicInfo]) -> dict[str, Any]:
        described = await admin.describe_cluster()
        offsets = topics.get(OFFSETS_TOPIC)
        leaders = {} if offsets is None else {p.partition: p.leader for p in offsets.partitions}
        self._note_takeovers(leaders)
        coordinated: dict[int, int] = {}
        for group_id, past in self.ledger.groups.items():
            if leaders and past.state != "Dead":
                leader = leaders.get(partition_for(group_id, len(leaders)), -1)
                coordinated[leader] = coordinated.get(leader, 0) + 1
        return {
            "cluster_id": described.cluster_id,
            "controller": described.controller_id,
            "brokers": [
                {
                    "id": node_id,
                    "address": f"{host}:{port}",
                    "rack": rack,
                    "groups": coordinated.get(node_id, 0),
                    "offsets_partitions": sum(leader == node_id for leader in leaders.values()),
                }
                for node_id, (host, port, rack) in sorted(described.nodes.items())
            ],
            "groups_without_coordinator": coordinated.get(-1, 0),
            "takeovers": self._takeovers,
            "skipped_records": self._feeder.skipped,
        }

    def _note_takeovers(self, leaders: dict[int, int]) -> None:
        for partition, leader in leaders.items():
            before = self._leaders.get(partition)
            if before is not None and before != leader:
                self._takeovers.append({"at": self.now_ms(), "partition": partition, "from": before, "to": leader})
        self._leaders = leaders
        del self._takeovers[:-MOST_TAKEOVERS]

    async def look_at(self, group_id: str) -> None:
        """A group that said nothing since the reading began is asked for itself."""
        past = self.ledger.groups.get(group_id)
        if self._admin is not None and past is not None and not past.commits:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                await self._sample(self._admin, group_id)

    async def _sample(self, admin: AsyncAdmin, group_id: str) -> None:
        described = (await admin.describe_groups([group_id]))[group_id]
        committed = await admin.group_offsets(group_id)
        now_ms = self.now_ms()
        past = self.ledger.group(group_id)
        past.protocol = described.assignor or past.protocol
        if not past.is_told or "offsets" in self.notices:  # an answer is older than a record that came meanwhile
            held = {_who(m): [(tp.topic, tp.partition) for tp in m.assignment] for m in described.members}
            past.lanes.assign(now_ms, held)
        for tp, place in committed.items():
            known = past.commits.get((tp.topic, tp.partition))
            if place is not None and place.offset >= 0 and (not known or known[-1].offset != place.offset):
                self.ledger.commit(group_id, (tp.topic, tp.partition), place.offset, now_ms)

    # -- what its topics say

    async def _following(self, topic: str) -> None:
        while True:
            try:
                await self._follow(topic)
            except (KafkaError, OSError, TimeoutError) as error:
                _not_if_cancelled()
                if topic == OFFSETS_TOPIC:
                    self._offsets_unreadable(error)
            self._done_reading(topic)
            await asyncio.sleep(RETRY_S)

    def _offsets_unreadable(self, error: Exception) -> None:
        if isinstance(error, KafkaError) and "AUTHORIZATION" in error.code.name:
            self.notice(
                "offsets",
                "warning",
                f"{OFFSETS_TOPIC} may not be read: {error}.",
                f"Allow this client to Read the topic {OFFSETS_TOPIC}. Until then the groups are looked at every few "
                "seconds: members and lag are shown, rebalances are not.",
            )

    async def _follow(self, topic: str) -> None:
        """From `since_ms` on, for ever; returns where there is no such topic."""
        settings = {
            **self.settings,
            "client.id": "kohort-console",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
        }
        async with AsyncConsumer(settings) as consumer:
            found = await consumer.partitions_for(topic)
            partitions = [TopicPartition(topic, one.partition) for one in found]
            if not partitions:
                return
            await consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            await self._seek(consumer, ends)
            await self._take(consumer, topic, ends)

    async def _seek(self, consumer: AsyncConsumer, ends: Mapping[TopicPartition, int]) -> None:
        starts = await consumer.offsets_for_times(dict.fromkeys(ends, max(self.since_ms, 0)))
        for tp in ends:
            place = starts.get(tp)
            await consumer.seek(tp, ends[tp] if place is None else place.offset)

    async def _take(self, consumer: AsyncConsumer, topic: str, ends: Mapping[TopicPartition, int]) -> None:
        waiting = dict(ends)
        begins = {tp: await consumer.position(tp) for tp in waiting}
        total = sum(max(0, end - begins[tp]) for tp, end in waiting.items())
        taken = 0
        while True:
            records = await consumer.poll(POLL_S if topic not in self._read else 1.0, RECORDS_AT_ONCE)
            for record in records:
                if topic == EVENTS_TOPIC:
                    self._feeder.event(record.value)
                else:
                    self._feeder.offsets_record(record.key, record.value, record.timestamp)
            taken += len(records)
            if topic not in self._read:
                self.progress = min(0.99, taken / total) if total else 0.99
                if taken >= total or not records:
                    self._done_reading(topic)
            if topic == OFFSETS_TOPIC:
                self.notices.pop("offsets", None)
            await asyncio.sleep(0)  # the pages come first

    def _done_reading(self, topic: str) -> None:
        self._read.add(topic)
        if self._read >= {OFFSETS_TOPIC, EVENTS_TOPIC}:
            self.progress = None


def _not_if_cancelled() -> None:
    """An error of the moment of a cancellation takes its place: who goes on after it would never end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _who(member: MemberDescription) -> Who:
    return Who(member.member_id, member.group_instance_id, member.client_id, member.client_host)
