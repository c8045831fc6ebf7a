"""What a record of a partition takes, from a look at those that come next: what limits in bytes are counted by."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.types import TopicPartition
from kohort.protocol.errors import KafkaError
from kohort.protocol.messages import FetchRequest
from kohort.spark.accounting import Account
from kohort.spark.cluster import Cluster
from kohort.spark.connection import POOL

SAMPLE_BYTES = 64 * 1024
_BY_NAME = 12
_FAR = 2**62


class RecordSizes:
    """Looks again when a partition has moved on by as much as it has seen, and keeps what it knows else."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[TopicPartition, tuple[int, float]] = {}

    def at(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Bytes of an offset, as stored; 0 where nothing is known."""
        for tp, position in positions.items():
            good_until, known = self._seen.get(tp, (-1, 0.0))
            if position >= good_until:
                self._seen[tp] = self._look(tp, position) or (position, known)
        return {tp: self._seen[tp][1] for tp in positions}

    def _look(self, tp: TopicPartition, position: int) -> tuple[int, float] | None:
        wanted = FetchRequest.FetchPartition(
            partition=tp.partition, fetch_offset=position, partition_max_bytes=SAMPLE_BYTES
        )
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=SAMPLE_BYTES, session_id=0, session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=tp.topic, partitions=[wanted])],
        )  # fmt: skip
        account = Account(tp, position, _FAR)
        try:
            host, port = self._cluster.leader(tp)
            connection = POOL.take(host, port, self._cluster.config)
            try:
                answer = connection.call(request, _BY_NAME)
            finally:
                POOL.give_back(connection, self._cluster.config)
            account.walk(answer.responses[0].partitions[0].records or b"")
        except (KafkaError, IndexError):
            return None
        seen = account.next_offset - position
        return (account.next_offset + 10 * seen, account.bytes_per_record) if seen else None
