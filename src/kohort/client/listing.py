"""Offsets by time, first and last offsets, asked of the partitions' leaders. Shared by consumers and Admin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kohort.client.cluster import Asking
from kohort.client.errors import KafkaTimeoutError, error_for
from kohort.client.lookup_messages import Found, list_offsets_request, listed_offsets
from kohort.client.metadata import leader_nodes
from kohort.client.types import OffsetAndTimestamp, TopicPartition, partition_list
from kohort.protocol.errors import KafkaError

LIST_BY_TIME_MIN_VERSION = 1
MAX_TIMESTAMP_MIN_VERSION = 7


async def list_offsets(
    cluster: Asking, timestamps: Mapping[TopicPartition, int], read_committed: bool, timeout_ms: int
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The offset for each partition's timestamp (or -1, -2, -3: latest, earliest, of the largest timestamp)."""
    wanted = {TopicPartition(*tp): timestamp for tp, timestamp in timestamps.items()}
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    failure: KafkaError | None = None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while missing := {tp: wanted[tp] for tp in wanted if tp not in found}:
                failure = await _list_once(cluster, missing, read_committed, found)
                if failure is not None:
                    await asyncio.sleep(cluster.config.retry_backoff_ms / 1000)
                    await cluster.refresh()
    except TimeoutError:
        partitions = partition_list(tp for tp in wanted if tp not in found)
        raise KafkaTimeoutError(
            f"offsets of {partitions} could not be looked up within {timeout_ms / 1000:g} s"
            + (f": {failure}" if failure else "")
        ) from failure
    return found


async def _list_once(
    cluster: Asking,
    missing: Mapping[TopicPartition, int],
    read_committed: bool,
    found: dict[TopicPartition, OffsetAndTimestamp | None],
) -> KafkaError | None:
    """One question to each leader; a retriable failure is returned, others are raised."""
    await cluster.topics({tp.topic for tp in missing})
    try:
        by_node = leader_nodes(cluster.metadata, missing)
    except KafkaError as error:
        if error.code.retriable:
            return error
        raise
    leaders = cluster.metadata.leaders()
    timeout_ms = cluster.config.request_timeout_ms
    min_version = MAX_TIMESTAMP_MIN_VERSION if min(missing.values()) < -2 else LIST_BY_TIME_MIN_VERSION

    async def ask(node_id: int, partitions: list[TopicPartition]) -> Found:
        timestamps = {tp: missing[tp] for tp in partitions}
        request = list_offsets_request(timestamps, leaders, read_committed, timeout_ms)
        return listed_offsets(await cluster.request(node_id, request, timeout_ms, min_version, lookup=True))

    answers = await asyncio.gather(*(ask(*item) for item in by_node.items()), return_exceptions=True)
    failure: KafkaError | None = None
    for answer in answers:
        if isinstance(answer, KafkaError):
            failure = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.update(answer.offsets)
            for tp, code in answer.errors.items():
                failure = error_for(code, f"{tp}: {code.message}")
    if failure is not None and not failure.code.retriable:
        raise failure
    return failure
