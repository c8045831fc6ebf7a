"""Which brokers keep partitions and which lead them: this part of an admin, and how rows of an answer are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from kohort.client.config import Config
from kohort.client.errors import error_for
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)


class PartitionAdmin:
    config: Config

    async def _controller(
        self, what: str, request: Any, check: Callable[[Any], None], max_version: int | None = None
    ) -> Any:
        raise NotImplementedError

    async def alter_partition_reassignments(self, replicas: Mapping[TopicPartition, list[int] | None]) -> None:
        """Have partitions kept by these brokers, the first of which is preferred as leader; None ends a move that is
        under way (KIP-455)."""
        make = AlterPartitionReassignmentsRequest
        topics: dict[str, list[Any]] = {}
        for (topic, index), nodes in replicas.items():
            row = make.ReassignablePartition(partition_index=index, replicas=nodes)
            topics.setdefault(topic, []).append(row)
        request = make(
            timeout_ms=self.config.request_timeout_ms,
            topics=[make.ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

        def check(response: Any) -> None:
            check_rows([response], "reassignment", lambda r: "of partitions")
            for topic in response.responses:
                check_rows(topic.partitions, "partition", partial(partition_name, topic.name))

        await self._controller("moving partitions", request, check)

    async def list_partition_reassignments(self) -> dict[TopicPartition, tuple[list[int], list[int]]]:
        """Partitions that are on their way: the brokers they go to, and those they leave."""

        def check(response: Any) -> None:
            check_rows([response], "reassignments", lambda r: "of partitions")

        request = ListPartitionReassignmentsRequest(timeout_ms=self.config.request_timeout_ms)
        response = await self._controller("listing moves", request, check)
        return {
            TopicPartition(topic.name, row.partition_index): (list(row.adding_replicas), list(row.removing_replicas))
            for topic in response.topics
            for row in topic.partitions
        }

    async def elect_leaders(self, partitions: Iterable[TopicPartition] | None = None, unclean: bool = False) -> None:
        """Have preferred replicas lead; None means all partitions. Those that do already are no error (KIP-460)."""
        make = ElectLeadersRequest
        topics: dict[str, list[int]] = {}
        for topic, index in partitions or ():
            topics.setdefault(topic, []).append(index)
        rows = [make.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]
        request = make(
            election_type=int(unclean),
            topic_partitions=None if partitions is None else rows,
            timeout_ms=self.config.request_timeout_ms,
        )

        def check(response: Any) -> None:
            if response.error_code:
                check_rows([response], "election", lambda r: "of leaders")
            for topic in response.replica_election_results:
                failed = [r for r in topic.partition_result if r.error_code != ErrorCode.ELECTION_NOT_NEEDED]
                check_rows(failed, "partition", partial(_elected_name, topic.topic))

        await self._controller("electing leaders", request, check)


def partition_name(topic: str, partition: Any) -> str:
    return f"{topic}-{partition.partition_index}"


def _elected_name(topic: str, partition: Any) -> str:
    return f"{topic}-{partition.partition_id}"


def check_rows(results: Iterable[Any], kind: str, name_of: Callable[[Any], str]) -> None:
    failed = [result for result in results if result.error_code]
    if failed:
        code = ErrorCode.of(failed[0].error_code)
        texts = "; ".join(
            f"{kind} {name_of(one)}: {getattr(one, 'error_message', None) or ErrorCode.of(one.error_code).message}"
            for one in failed
        )
        raise error_for(code, texts)
