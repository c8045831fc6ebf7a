"""The past of a group as its cluster keeps it: kohort's group events, and the generations in `__consumer_offsets`.

Both are read backwards from the end of one partition, in growing windows, within a budget of time: on a large cluster
it is better to say less than to wait. What was found means is diagnosis.py's business.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kohort.client.types import TopicPartition
from kohort.coordinator.rebalances import Generation, StoredMember
from kohort.coordinator.records import GroupMetadata, UnknownRecord, decode, group_key, partition_for

if TYPE_CHECKING:
    from kohort.cli.target import Target

OFFSETS_TOPIC = "__consumer_offsets"
EVENTS_TOPIC = "__kohort_group_events"
FIRST_WINDOW = 5_000
GROWTH = 8
POLL_S = 0.5


def read_events(target: Target, group_id: str, limit: int, budget_s: float) -> list[dict[str, Any]] | None:
    """The last events of a group, oldest first; None where the cluster keeps none: it is no kohort broker."""
    key = group_id.encode()

    def take(record: Any) -> dict[str, Any] | None:
        if record.key != key:
            return None
        try:
            found = json.loads(record.value)
        except (TypeError, ValueError):
            return None
        return found if isinstance(found, dict) and "type" in found and "at_ms" in found else None

    return _read_tail(target, EVENTS_TOPIC, group_id, take, limit, budget_s)


def read_generations(target: Target, group_id: str, limit: int, budget_s: float) -> list[Generation] | None:
    """The last stored generations of a classic group, oldest first; None where the topic cannot be read."""
    key = group_key(group_id)

    def take(record: Any) -> Generation | None:
        if record.key != key:
            return None
        try:
            change = decode(record.key, record.value)
        except UnknownRecord:
            return None
        if not isinstance(change, GroupMetadata) or change.value is None:
            return None
        stored = change.value
        members = tuple(StoredMember.of(member, stored.protocol_type) for member in stored.members)
        at_ms = stored.state_timestamp_ms if stored.state_timestamp_ms > 0 else record.timestamp
        return Generation(at_ms, stored.generation, stored.protocol or "", stored.leader_id or "", members)

    return _read_tail(target, OFFSETS_TOPIC, group_id, take, limit, budget_s)


def last_generation(target: Target, group_id: str, budget_s: float = 2.0) -> int | None:
    """The generation of a classic group, which DescribeGroups does not tell."""
    found = read_generations(target, group_id, 1, budget_s)
    return found[-1].generation if found else None


def _read_tail(
    target: Target, topic: str, group_id: str, take: Callable[[Any], Any], limit: int, budget_s: float
) -> list[Any] | None:
    from kohort.protocol.errors import KafkaError

    deadline = time.monotonic() + budget_s
    found: list[Any] = []
    try:
        # Not our topics to create, and nothing is committed.
        with target.consumer(auto_offset_reset="earliest", allow_auto_create_topics=False) as consumer:
            partitions = len(consumer.partitions_for(topic))
            if not partitions:
                return None
            tp = TopicPartition(topic, partition_for(group_id, partitions))
            consumer.assign([tp])
            (begin,), (end,) = consumer.beginning_offsets([tp]).values(), consumer.end_offsets([tp]).values()
            for start, stop in windows(begin, end):
                older = [item for item in map(take, _records(consumer, tp, start, stop, deadline)) if item is not None]
                found = older + found
                if len(found) >= limit or time.monotonic() >= deadline:
                    break
    except KafkaError:
        return None  # not allowed to read it: the caller has other sources, and says so
    return found[-limit:]


def windows(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """[start, stop) from the end backwards, each larger than the one before."""
    size, stop = FIRST_WINDOW, end
    while stop > begin:
        start = max(begin, stop - size)
        yield start, stop
        stop, size = start, size * GROWTH


def _records(consumer: Any, tp: TopicPartition, start: int, stop: int, deadline: float) -> Iterator[Any]:
    consumer.seek(tp, start)
    while consumer.position(tp) < stop and time.monotonic() < deadline:
        for record in consumer.poll(POLL_S, max_records=5_000):
            if record.offset < stop:
                yield record
