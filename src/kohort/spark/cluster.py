"""Topics, leaders and log offsets, asked for over blocking connections and asked again until they can be had.

Used by the driver to plan and by executors to find leaders. Knows nothing of groups and reads no records.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from kohort.client.config import Config
from kohort.client.errors import KafkaTimeoutError, NotConnectedError
from kohort.client.types import TopicPartition, partition_list
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import DescribeConfigsRequest, ListOffsetsRequest, MetadataRequest
from kohort.protocol.uuids import ZERO_UUID, to_base64
from kohort.spark.connection import POOL, Pool
from kohort.spark.options import OptionError, Subscription
from kohort.spark.waiting import Waiting

log = logging.getLogger("kohort.spark")

T = TypeVar("T")
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_TOPIC_RESOURCE = 2
_MAX_METADATA_VERSION = 12
_MAX_LIST_OFFSETS_VERSION = 7


class TopicGone(KafkaError):
    """A topic or partition does not exist (any more)."""

    def __init__(self, partitions: Iterable[TopicPartition] | str) -> None:
        what = partitions if isinstance(partitions, str) else partition_list(partitions)
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no such topic or partition: {what}")


class Retry:
    """Repeats an attempt with growing pauses until it succeeds or the time is up."""

    def __init__(self, config: Config, timeout_ms: int | None = None) -> None:
        limit = config["default.api.timeout.ms"] if timeout_ms is None else timeout_ms
        self._deadline = time.monotonic() + limit / 1000
        self._pause = config["retry.backoff.ms"] / 1000
        self._longest = config["retry.backoff.max.ms"] / 1000
        self._waiting = Waiting("brokers " + ",".join(f"{host}:{port}" for host, port in config["bootstrap.servers"]))

    def wait(self, cause: Exception) -> None:
        """Pause before the next attempt; raises `cause` where there is no time for one."""
        if time.monotonic() + self._pause > self._deadline:
            raise cause
        self._waiting.says(str(cause))
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, self._longest)


def is_transient(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code.retriable


class Cluster:
    """One process's view of the cluster: nodes, topics, leaders. A stale one costs a round trip, never an error."""

    def __init__(self, config: Config, pool: Pool = POOL, patience_ms: int | None = None) -> None:
        self.config = config
        self._patience_ms = patience_ms
        """How long a question is repeated; default.api.timeout.ms where it is not said."""
        self._pool = pool
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._preferred: dict[TopicPartition, tuple[int, float]] = {}
        """The replica that a leader has named as the one to read from, and until when (KIP-392)."""
        self._topic_ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    # -- metadata ------------------------------------------------------------------------------------------------------

    def partitions_of(self, subscription: Subscription) -> list[TopicPartition]:
        """Every partition a subscription covers now. Topics that do not exist are left out."""
        if subscription.partitions:
            existing = set(self.refresh({tp.topic for tp in subscription.partitions}))
            return [tp for tp in subscription.partitions if tp in existing]
        if subscription.pattern is None:
            return sorted(self.refresh(subscription.topics))
        return sorted(tp for tp in self.refresh(None) if subscription.matches(tp.topic))

    def refresh(self, topics: Iterable[str] | None) -> list[TopicPartition]:
        """Ask for topics (None: all that are not internal); the partitions that exist."""
        return self._repeat(lambda: self._ask_metadata(topics))

    def topic_id(self, topic: str) -> str:
        """As last seen, in Kafka's base64; "" where the topic, or its id (before Kafka 2.8), is not known."""
        return self._topic_ids.get(topic, "")

    def partition_count(self, topic: str) -> int:
        """As last seen; 0 where there is no such topic."""
        return self._counts.get(topic, 0)

    def ids_everywhere(self, topic: str) -> set[str] | None:
        """The ids by which brokers know a topic, "" for one that has no such topic; None where one does not answer.

        A broker may not have heard of a topic that is new, but none that knew it forgets it before it is deleted.
        """
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        found: set[str] = set()
        for host, port in self._nodes.values() or self.config["bootstrap.servers"]:
            try:
                (answer,) = self._ask(host, port, request, _MAX_METADATA_VERSION).topics
            except KafkaError:
                return None
            if answer.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return None
            found.add("" if answer.error_code else to_base64(answer.topic_id))
        return found

    def leader(self, partition: TopicPartition) -> tuple[str, int]:
        """Where to fetch a partition from. Raises TopicGone, or LEADER_NOT_AVAILABLE while there is none."""
        if partition not in self._leaders and partition not in self._ask_metadata([partition.topic]):
            raise TopicGone([partition])
        node = self._nodes.get(self._leaders.get(partition, -1))
        if node is None:
            self.forget(partition)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
        return node

    def replica(self, partition: TopicPartition) -> tuple[str, int] | None:
        """The follower to read from; None where the leader has named none, or not lately."""
        node_id, until = self._preferred.get(partition, (-1, 0.0))
        if time.monotonic() >= until:
            self._preferred.pop(partition, None)
            return None
        return self._nodes.get(node_id)

    def prefer(self, partition: TopicPartition, node_id: int) -> bool:
        """The leader says where to read; whether that node is known."""
        self._preferred[partition] = (node_id, time.monotonic() + self.config["metadata.max.age.ms"] / 1000)
        return node_id in self._nodes

    def forget(self, partition: TopicPartition) -> None:
        """The leader or the replica refused or is gone: ask again before the next use."""
        self._leaders.pop(partition, None)
        self._preferred.pop(partition, None)

    def _ask_metadata(self, topics: Iterable[str] | None) -> list[TopicPartition]:
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self.ask_anyone(request, _MAX_METADATA_VERSION)
        self._nodes = {node.node_id: (node.host, node.port) for node in response.brokers}
        found: list[TopicPartition] = []
        for topic in response.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._topic_ids.pop(topic.name, None)
                self._counts.pop(topic.name, None)
                continue
            if topics is None and topic.is_internal:
                continue
            if topic.error_code and not ErrorCode.of(topic.error_code).retriable:
                raise KafkaError(
                    ErrorCode.of(topic.error_code), f"topic {topic.name}: {ErrorCode.of(topic.error_code).message}"
                )
            self._counts[topic.name] = len(topic.partitions)
            if topic.topic_id != ZERO_UUID:
                self._topic_ids[topic.name] = to_base64(topic.topic_id)
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                self._leaders[tp] = partition.leader_id
                found.append(tp)
        return found

    # -- offsets -------------------------------------------------------------------------------------------------------

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time (ms; -1 end of the log, -2 its start); None where no record is that new.

        Partitions that do not exist are left out.
        """
        found: dict[TopicPartition, int | None] = {}
        gone: set[TopicPartition] = set()

        def attempt() -> None:
            left = {tp: ms for tp, ms in times.items() if tp not in found and tp not in gone}
            self._list_offsets_once(left, committed_only, found, gone)

        self._repeat(attempt)
        return found

    def _list_offsets_once(
        self,
        times: Mapping[TopicPartition, int],
        committed_only: bool,
        found: dict[TopicPartition, int | None],
        gone: set[TopicPartition],
    ) -> None:
        by_leader: dict[tuple[str, int], dict[TopicPartition, int]] = defaultdict(dict)
        if unknown := {tp.topic for tp in times if tp not in self._leaders}:
            self._ask_metadata(unknown)
        for tp, ms in times.items():
            try:
                by_leader[self.leader(tp)][tp] = ms
            except TopicGone:
                gone.add(tp)
        trouble: Exception | None = None
        for (host, port), wanted in by_leader.items():
            try:
                answers = self._list_offsets_of(host, port, wanted, committed_only)
            except (NotConnectedError, KafkaTimeoutError) as error:
                answers, trouble = {}, error
            for tp in wanted:
                code, offset = answers.get(tp, (ErrorCode.NETWORK_EXCEPTION, -1))
                if code:
                    self.forget(tp)
                    trouble = trouble or KafkaError(code, f"offsets of {tp}: {code.message}")
                else:
                    found[tp] = offset if offset >= 0 else None
        if trouble is not None:
            raise trouble

    def _list_offsets_of(
        self, host: str, port: int, times: Mapping[TopicPartition, int], committed_only: bool
    ) -> dict[TopicPartition, tuple[ErrorCode, int]]:
        topics: dict[str, list[Any]] = defaultdict(list)
        for (topic, partition), ms in times.items():
            topics[topic].append(ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=ms))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED if committed_only else READ_UNCOMMITTED,
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=ps) for name, ps in topics.items()],
        )
        response = self._ask(host, port, request, _MAX_LIST_OFFSETS_VERSION)
        return {
            TopicPartition(topic.name, partition.partition_index): (
                ErrorCode.of(partition.error_code),
                partition.offset,
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    def cleanup_policy(self, topic: str) -> str | None:
        """`cleanup.policy` of a topic, None where it cannot be learnt."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=["cleanup.policy"]
        )
        try:
            response = self.ask_anyone(DescribeConfigsRequest(resources=[resource]), None)
        except KafkaError:
            return None
        for result in response.results:
            for setting in result.configs if result.error_code == 0 else ():
                if setting.name == "cleanup.policy":
                    policy: str | None = setting.value
                    return policy
        return None

    # -- asking --------------------------------------------------------------------------------------------------------

    def _repeat(self, attempt: Callable[[], T]) -> T:
        retry = Retry(self.config, self._patience_ms)
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not is_transient(error):
                    raise
                retry.wait(error)

    def _ask(self, host: str, port: int, request: Any, most: int | None) -> Any:
        connection = self._pool.take(host, port, self.config)
        try:
            return connection.call(request, most)
        finally:
            self._pool.give_back(connection, self.config)

    def ask_anyone(self, request: Any, most: int | None) -> Any:
        """The answer of any broker that can be reached."""
        trouble: Exception | None = None
        for host, port in dict.fromkeys([*self._nodes.values(), *self.config["bootstrap.servers"]]):
            try:
                return self._ask(host, port, request, most)
            except (NotConnectedError, KafkaTimeoutError) as error:
                trouble = error
        raise trouble or NotConnectedError("no brokers are known")


def resolve_topics(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """The partitions of a bounded read; a named topic that does not exist is an error."""
    partitions = cluster.partitions_of(subscription)
    existing = {tp.topic for tp in partitions}
    missing = sorted(set(subscription.topics) - existing)
    absent = sorted(set(subscription.partitions) - set(partitions))
    if missing or absent:
        raise OptionError(f"no such topic or partition: {', '.join(missing) or partition_list(absent)}")
    return partitions
