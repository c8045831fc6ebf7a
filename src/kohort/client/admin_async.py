"""AsyncAdmin: topics, partitions, configurations, groups and offsets of any Kafka cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from kohort.client import groups
from kohort.client import lookup_messages as lookups
from kohort.client import transaction_asks as transactions
from kohort.client.admin_partitions import PartitionAdmin
from kohort.client.admin_partitions import check_rows as _check
from kohort.client.admin_partitions import partition_name as _partition_name
from kohort.client.admin_types import (
    ClusterDescription,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    HangingTransaction,
    NewTopic,
    ProducerState,
    Resource,
    TransactionDescription,
    TransactionListing,
)
from kohort.client.cluster import Cluster, Coordinator
from kohort.client.config import Config
from kohort.client.errors import KafkaTimeoutError, error_for
from kohort.client.listing import list_offsets
from kohort.client.metadata import Node, TopicInfo, leader_nodes
from kohort.client.types import OffsetAndMetadata, OffsetAndTimestamp, OpenTransaction, TopicPartition
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import (
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
)

T = TypeVar("T")
SET, DELETE, APPEND, SUBTRACT = range(4)
GROUP, TRANSACTION = 0, 1
DEFAULT_CONFIG_SOURCES = (5, 4)


class AsyncAdmin(PartitionAdmin):
    """Every call raises KafkaError with what the broker refused and why. Use `async with`, or `close` at the end."""

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        merged = {**(config or {}), **settings}
        defaults = {"client.id": "kohort-admin", "allow.auto.create.topics": False}
        given = {name.replace("_", ".") for name in merged}
        self.config = Config({**{name: value for name, value in defaults.items() if name not in given}, **merged})
        self._cluster_or_none: Cluster | None = None

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._cluster_or_none is not None:
            await self._cluster_or_none.close()

    @property
    def _cluster(self) -> Cluster:
        if self._cluster_or_none is None:
            self._cluster_or_none = Cluster(self.config)
        return self._cluster_or_none

    async def _retried(self, what: str, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeat while the error is one that passes, within default.api.timeout.ms."""
        timeout_ms = self.config.default_api_timeout_ms
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        if not error.code.retriable or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                            raise
                        last = error
                    await asyncio.sleep(self.config.retry_backoff_ms / 1000)
                    await self._cluster.refresh()
        except TimeoutError:
            servers = self._cluster.servers()
            hint = f"the last answer was: {last}" if last else f"is a broker running at {servers}?"
            raise KafkaTimeoutError(f"{what}: not done within {timeout_ms / 1000:g} s; {hint}") from last

    async def _controller(
        self, what: str, request: Any, check: Callable[[Any], None], max_version: int | None = None
    ) -> Any:
        async def attempt() -> Any:
            node_id = await self._cluster.controller()
            response = await self._cluster.request(node_id, request, max_version=max_version)
            check(response)
            return response

        return await self._retried(what, attempt)

    # -- topics -------------------------------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        metadata = await self._cluster.refresh()
        nodes = {node.node_id: (node.host, node.port, node.rack) for node in metadata.nodes.values()}
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, nodes)

    async def api_versions(self) -> dict[str, tuple[int, int]]:
        """The apis that a broker of the cluster serves, by Kafka's name: its lowest and its highest version."""
        request = ApiVersionsRequest(client_software_name="kohort", client_software_version="0")
        response = await self._cluster.request(None, request)
        names = {int(key): key.title for key in ApiKey}
        rows = sorted(response.api_keys, key=lambda row: row.api_key)
        return {names.get(row.api_key, f"api {row.api_key}"): (row.min_version, row.max_version) for row in rows}

    async def list_topics(self, internal: bool = False) -> list[str]:
        self._cluster.watch(None)
        metadata = await self._cluster.refresh()
        return sorted(name for name, topic in metadata.topics.items() if internal or not topic.internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Partitions with leaders and replicas; UNKNOWN_TOPIC_OR_PARTITION where a topic does not exist."""
        names = set(names)
        metadata = await self._cluster.refresh(topics=names)
        if missing := sorted(names - metadata.topics.keys()):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no such topic: {', '.join(missing)}")
        return {name: metadata.topics[name] for name in sorted(names)}

    async def create_topics(self, topics: Iterable[NewTopic | str], validate_only: bool = False) -> None:
        wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in topics]
        make = CreateTopicsRequest
        request = make(
            timeout_ms=self.config.request_timeout_ms,
            validate_only=validate_only,
            topics=[
                make.CreatableTopic(
                    name=topic.name,
                    num_partitions=-1 if topic.replicas else topic.num_partitions,
                    replication_factor=-1 if topic.replicas else topic.replication_factor,
                    assignments=[
                        make.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                        for index, brokers in topic.replicas.items()
                    ],
                    configs=[make.CreatableTopicConfig(name=k, value=str(v)) for k, v in topic.configs.items()],
                )
                for topic in wanted
            ],
        )
        await self._controller("create topics", request, lambda r: _check(r.topics, "topic", lambda t: t.name))
        if not validate_only:
            await self._until_led({topic.name for topic in wanted})

    async def _until_led(self, names: set[str]) -> None:
        """A new topic is of use once its partitions have leaders; brokers hear of it a moment later."""
        deadline = asyncio.get_running_loop().time() + self.config.default_api_timeout_ms / 1000
        while asyncio.get_running_loop().time() < deadline:
            try:
                found = await self.describe_topics(names)
            except KafkaError:
                found = {}
            if found and all(p.leader >= 0 for topic in found.values() for p in topic.partitions):
                return
            await asyncio.sleep(self.config.retry_backoff_ms / 1000)

    async def delete_topics(self, names: Iterable[str]) -> None:
        names = list(names)
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=self.config.request_timeout_ms)
        await self._controller(
            "delete topics", request, lambda r: _check(r.responses, "topic", lambda t: t.name), max_version=5
        )

    async def create_partitions(self, counts: Mapping[str, int], validate_only: bool = False) -> None:
        """Grow topics to these totals."""
        topic = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            topics=[topic(name=name, count=count, assignments=None) for name, count in counts.items()],
            timeout_ms=self.config.request_timeout_ms,
            validate_only=validate_only,
        )
        await self._controller("create partitions", request, lambda r: _check(r.results, "topic", lambda t: t.name))

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete everything below these offsets (-1: everything); the new first offsets."""
        wanted = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        await self._cluster.topics({tp.topic for tp in wanted})
        lows: dict[TopicPartition, int] = {}
        for node_id, partitions in leader_nodes(self._cluster.metadata, wanted).items():
            make = DeleteRecordsRequest
            topics: dict[str, list[Any]] = {}
            for tp in partitions:
                entry = make.DeleteRecordsPartition(partition_index=tp.partition, offset=wanted[tp])
                topics.setdefault(tp.topic, []).append(entry)
            request = make(
                topics=[make.DeleteRecordsTopic(name=name, partitions=found) for name, found in topics.items()],
                timeout_ms=self.config.request_timeout_ms,
            )
            response = await self._cluster.request(node_id, request)
            for topic in response.topics:
                _check(topic.partitions, "partition", partial(_partition_name, topic.name))
                lows.update({TopicPartition(topic.name, p.partition_index): p.low_watermark for p in topic.partitions})
        return lows

    # -- configurations -----------------------------------------------------------------------------------------------

    async def describe_configs(self, resources: Iterable[Resource]) -> dict[Resource, dict[str, ConfigEntry]]:
        found: dict[Resource, dict[str, ConfigEntry]] = {}
        for resource in resources:
            entry = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=int(resource.type), resource_name=resource.name, configuration_keys=None
            )
            response = await self._ask_about(resource, DescribeConfigsRequest(resources=[entry]))
            _check(response.results, "configuration of", lambda r: r.resource_name)
            found[resource] = {
                config.name: ConfigEntry(
                    config.name,
                    config.value,
                    config.read_only,
                    config.config_source in DEFAULT_CONFIG_SOURCES,
                    config.is_sensitive,
                    config.config_source,
                    config.documentation,
                )
                for config in response.results[0].configs
            }
        return found

    async def alter_configs(
        self, changes: Mapping[Resource, Mapping[str, str | None]], validate_only: bool = False
    ) -> None:
        """Set values; None takes a value back to its default. What is not named stays (KIP-339)."""
        make = IncrementalAlterConfigsRequest
        for resource, values in changes.items():
            configs = [
                make.AlterableConfig(
                    name=name,
                    config_operation=DELETE if value is None else SET,
                    value=None if value is None else str(value),
                )
                for name, value in values.items()
            ]
            entry = make.AlterConfigsResource(
                resource_type=int(resource.type), resource_name=resource.name, configs=configs
            )
            response = await self._ask_about(resource, make(resources=[entry], validate_only=validate_only))
            _check(response.responses, "configuration of", lambda r: r.resource_name)

    async def edit_config_list(
        self, resource: Resource, name: str, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> None:
        """Put values into a configuration that is a list, or take them out; the others stay."""
        make = IncrementalAlterConfigsRequest
        for operation, values in ((APPEND, list(add)), (SUBTRACT, list(remove))):
            if values:
                config = make.AlterableConfig(name=name, config_operation=operation, value=",".join(values))
                entry = make.AlterConfigsResource(
                    resource_type=int(resource.type), resource_name=resource.name, configs=[config]
                )
                response = await self._ask_about(resource, make(resources=[entry]))
                _check(response.responses, "configuration of", lambda r: r.resource_name)

    async def _ask_about(self, resource: Resource, request: Any) -> Any:
        async def attempt() -> Any:
            await self._cluster.controller()
            if resource.type.name == "BROKER" and resource.name:
                return await self._cluster.request(int(resource.name), request)
            return await self._cluster.request(None, request)

        return await self._retried(f"configuration of {resource.name}", attempt)

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def list_offsets(
        self, specs: Mapping[TopicPartition, int | str], read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets for "earliest", "latest", "max_timestamp" or a time in milliseconds; None where no record is."""
        names = {"earliest": lookups.EARLIEST, "latest": lookups.LATEST, "max_timestamp": lookups.MAX_TIMESTAMP}
        timestamps = {TopicPartition(*tp): names[spec] if isinstance(spec, str) else spec for tp, spec in specs.items()}
        return await list_offsets(self._cluster, timestamps, read_committed, self.config.default_api_timeout_ms)

    # -- groups -------------------------------------------------------------------------------------------------------

    async def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """All groups of the cluster, by their states ("Stable", "Empty", ...) and types ("classic", "consumer")."""
        await self._cluster.refresh()
        states, types = list(states), list(types)

        async def ask(node_id: int) -> list[GroupListing]:
            minimum = 5 if types else 4 if states else 0
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            response = await self._cluster.request(node_id, request, min_version=minimum)
            if response.error_code:
                raise error_for(response.error_code)
            return [
                GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type or "classic")
                for group in response.groups
            ]

        async def attempt() -> list[GroupListing]:
            answers = await asyncio.gather(*(ask(node_id) for node_id in self._cluster.metadata.nodes))
            return sorted({g.group_id: g for answer in answers for g in answer}.values(), key=lambda g: g.group_id)

        return await self._retried("list groups", attempt)

    async def _at_coordinator(
        self, key: str, work: Callable[[Coordinator, int], Coroutine[Any, Any, T]], key_type: int = GROUP
    ) -> T:
        """`work(coordinator, node_id)` at the coordinator of a group or a transaction, again where it has moved."""

        async def attempt() -> T:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            response = await self._cluster.request(None, request)
            found = response.coordinators[0]
            if found.error_code:
                raise error_for(found.error_code, found.error_message)
            node = Node(found.node_id, found.host, found.port)
            return await work(self._cluster.coordinator(node), found.node_id)

        return await self._retried(f"{'group' if key_type == GROUP else 'transaction of'} {key}", attempt)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """State, members and assignments. A group that does not exist has the state "Dead"."""

        async def describe(group_id: str) -> GroupDescription:
            return await self._at_coordinator(group_id, lambda c, n: groups.describe(c, n, group_id, self._timeout))

        ids = list(dict.fromkeys(group_ids))
        found = await asyncio.gather(*(describe(group_id) for group_id in ids))
        return dict(zip(ids, found, strict=True))

    @property
    def _timeout(self) -> int:
        return int(self.config["request.timeout.ms"])

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete empty groups with their offsets; NON_EMPTY_GROUP where members are left."""

        async def delete(group_id: str) -> None:
            await self._at_coordinator(group_id, lambda c, n: groups.delete(c, group_id, self._timeout))

        for group_id in group_ids:
            await delete(group_id)

    async def remove_members(
        self,
        group_id: str,
        member_ids: Iterable[str] = (),
        group_instance_ids: Iterable[str] = (),
        reason: str = "removed by an administrator",
    ) -> None:
        """Put members out of the group (KIP-345, KIP-571): the others take over their partitions at once."""
        members = [(member_id, None) for member_id in member_ids] + [("", one) for one in group_instance_ids]
        await self._at_coordinator(group_id, lambda c, n: groups.remove(c, group_id, members, reason, self._timeout))

    async def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Committed offsets: of these partitions (None where there is no commit), or all that the group has."""
        wanted = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
        return await self._at_coordinator(group_id, lambda c, n: groups.offsets(c, group_id, wanted, self._timeout))

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Set the offsets of a group without members; UNKNOWN_MEMBER_ID says that it has some."""
        wanted = {
            TopicPartition(*tp): found if isinstance(found, OffsetAndMetadata) else OffsetAndMetadata(found)
            for tp, found in offsets.items()
        }
        await self._at_coordinator(group_id, lambda c, n: groups.alter(c, group_id, wanted, self._timeout))

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets; GROUP_SUBSCRIBED_TO_TOPIC where a member still reads the topic."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        await self._at_coordinator(group_id, lambda c, n: groups.delete_offsets(c, group_id, wanted, self._timeout))

    # -- transactions -------------------------------------------------------------------------------------------------

    async def list_transactions(self, states: Iterable[str] = ()) -> list[TransactionListing]:
        """All transactional ids of the cluster, by the states of their transactions ("Ongoing", "Empty", ...)."""
        await self._cluster.refresh()
        states = list(states)

        async def attempt() -> list[TransactionListing]:
            nodes = self._cluster.metadata.nodes
            answers = await asyncio.gather(*(transactions.list_at(self._cluster, node, states) for node in nodes))
            rows = {row.transactional_id: row for answer in answers for row in answer}
            return sorted(rows.values(), key=lambda row: row.transactional_id)

        return await self._retried("list transactions", attempt)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        """State, producer and partitions; None for an id that nobody knows."""

        async def describe(name: str) -> TransactionDescription | None:
            ask = lambda c, node: transactions.describe(c, node, name, self._timeout)  # noqa: E731
            return await self._at_coordinator(name, ask, TRANSACTION)

        ids = list(dict.fromkeys(transactional_ids))
        found = await asyncio.gather(*(describe(name) for name in ids))
        return dict(zip(ids, found, strict=True))

    async def describe_producers(self, partitions: Iterable[TopicPartition]) -> list[ProducerState]:
        """What the logs of these partitions know of their producers, open transactions included."""
        wanted = list(partitions)
        return await self._retried("producers", lambda: transactions.producers(self._cluster, wanted))

    async def hanging_transactions(
        self, topics: Iterable[str] | None = None, older_than_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Transactions that are open in a partition of these topics, or of all, and that nobody will ever end. Those
        whose last record is not older than any transaction may be are left out: they may be under way."""
        names = await self.list_topics(internal=True) if topics is None else list(topics)
        found = await self.describe_topics(names)
        partitions = [TopicPartition(t.name, p.partition) for t in found.values() for p in t.partitions]
        before_ms = time.time() * 1000 - older_than_ms
        states = await self.describe_producers(partitions)
        old = [p for p in states if p.start_offset is not None and p.last_timestamp_ms <= before_ms]
        if not old:
            return []
        known = {row.producer_id: row.transactional_id for row in await self.list_transactions()}
        ids = {known[producer.producer_id] for producer in old if producer.producer_id in known}
        return transactions.hanging(old, known, await self.describe_transactions(ids))

    async def abort_transaction(self, producer: ProducerState) -> None:
        """Write the abort of a transaction that hangs into its partition. Of one that its coordinator knows, this takes
        a part out: use `terminate_transaction`."""
        await self._retried("abort a transaction", lambda: transactions.write_abort(self._cluster, producer))

    async def terminate_transaction(self, transactional_id: str) -> None:
        """Abort what a transactional id has open and fence its producer, as the next producer of the id would."""
        ask = lambda c, node: transactions.terminate(c, transactional_id, self._timeout)  # noqa: E731
        await self._at_coordinator(transactional_id, ask, TRANSACTION)

    async def end_transaction(self, transaction: OpenTransaction, commit: bool = True) -> None:
        """Commit or abort what a producer has handed over; once more does no harm. ProducerFencedError where that is no
        longer possible: it has ended otherwise."""
        ask = lambda c, node: transactions.end(c, transaction, commit, self._timeout)  # noqa: E731
        await self._at_coordinator(transaction.transactional_id, ask, TRANSACTION)
