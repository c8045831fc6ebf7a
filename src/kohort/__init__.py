"""Kafka's consumer-group coordination for Python and Spark: everything public, by name.

Names are imported on first use, so that a process pays only for what it needs. `kohort.spark` and `kohort.history` are
packages of their own, for whoever has Spark.
"""

from typing import TYPE_CHECKING

from kohort.lazy_names import imported_on_use

if TYPE_CHECKING:
    from kohort.assignors import (
        Assignment,
        Assignor,
        ClusterMetadata,
        CooperativeStickyAssignor,
        RangeAssignor,
        RebalanceProtocol,
        RoundRobinAssignor,
        StickyAssignor,
        Subscription,
    )
    from kohort.broker.acls import (
        acl,
    )
    from kohort.broker.boot import (
        StartError,
    )
    from kohort.broker.client_requests import (
        ClientRequest,
    )
    from kohort.broker.controls import (
        FaultError,
    )
    from kohort.broker.embedded import (
        Broker,
    )
    from kohort.broker.embedded_cluster import (
        Cluster,
    )
    from kohort.broker.faults import (
        Fault,
    )
    from kohort.broker.inside import (
        GroupSnapshot,
        MemberSnapshot,
        StoredRecord,
    )
    from kohort.client import (
        Admin,
        AsyncAdmin,
        AsyncConsumer,
        AsyncProducer,
        CommitFailedError,
        ConfigError,
        Consumer,
        ConsumerGroupMetadata,
        ConsumerRecord,
        FencedInstanceIdError,
        KafkaTimeoutError,
        LogTruncationError,
        NoOffsetForPartitionError,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetOutOfRangeError,
        OpenTransaction,
        Producer,
        ProducerFencedError,
        RebalanceInProgressError,
        RebalanceListener,
        RecordError,
        RecordMetadata,
        SubscriptionPattern,
        TopicPartition,
        TransactionAbortableError,
    )
    from kohort.client.admin_types import (
        ClusterDescription,
        ConfigEntry,
        GroupDescription,
        GroupListing,
        HangingTransaction,
        MemberDescription,
        NewTopic,
        ProducerState,
        Resource,
        TransactionDescription,
        TransactionListing,
    )
    from kohort.client.delivery import (
        Delivery,
    )
    from kohort.client.producer_columns import (
        ColumnsDelivery,
        StoredRows,
    )
    from kohort.coordinator.events import (
        GroupEvent,
    )
    from kohort.protocol.errors import (
        ErrorCode,
        KafkaError,
    )

__all__ = [
    "Admin",
    "Assignment",
    "Assignor",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Broker",
    "ClientRequest",
    "Cluster",
    "ClusterDescription",
    "ClusterMetadata",
    "ColumnsDelivery",
    "CommitFailedError",
    "ConfigEntry",
    "ConfigError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CooperativeStickyAssignor",
    "Delivery",
    "ErrorCode",
    "Fault",
    "FaultError",
    "FencedInstanceIdError",
    "GroupDescription",
    "GroupEvent",
    "GroupListing",
    "GroupSnapshot",
    "HangingTransaction",
    "KafkaError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "MemberDescription",
    "MemberSnapshot",
    "NewTopic",
    "NoOffsetForPartitionError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OpenTransaction",
    "Producer",
    "ProducerFencedError",
    "ProducerState",
    "RangeAssignor",
    "RebalanceInProgressError",
    "RebalanceListener",
    "RebalanceProtocol",
    "RecordError",
    "RecordMetadata",
    "Resource",
    "RoundRobinAssignor",
    "StartError",
    "StickyAssignor",
    "StoredRecord",
    "StoredRows",
    "Subscription",
    "SubscriptionPattern",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionDescription",
    "TransactionListing",
    "acl",
]
__version__ = "0.1.0"

_HOMES = {
    "Admin": "kohort.client",
    "Assignment": "kohort.assignors",
    "Assignor": "kohort.assignors",
    "AsyncAdmin": "kohort.client",
    "AsyncConsumer": "kohort.client",
    "AsyncProducer": "kohort.client",
    "Broker": "kohort.broker.embedded",
    "ClientRequest": "kohort.broker.client_requests",
    "Cluster": "kohort.broker.embedded_cluster",
    "ClusterDescription": "kohort.client.admin_types",
    "ClusterMetadata": "kohort.assignors",
    "ColumnsDelivery": "kohort.client.producer_columns",
    "CommitFailedError": "kohort.client",
    "ConfigEntry": "kohort.client.admin_types",
    "ConfigError": "kohort.client",
    "Consumer": "kohort.client",
    "ConsumerGroupMetadata": "kohort.client",
    "ConsumerRecord": "kohort.client",
    "CooperativeStickyAssignor": "kohort.assignors",
    "Delivery": "kohort.client.delivery",
    "ErrorCode": "kohort.protocol.errors",
    "Fault": "kohort.broker.faults",
    "FaultError": "kohort.broker.controls",
    "FencedInstanceIdError": "kohort.client",
    "GroupDescription": "kohort.client.admin_types",
    "GroupEvent": "kohort.coordinator.events",
    "GroupListing": "kohort.client.admin_types",
    "GroupSnapshot": "kohort.broker.inside",
    "HangingTransaction": "kohort.client.admin_types",
    "KafkaError": "kohort.protocol.errors",
    "KafkaTimeoutError": "kohort.client",
    "LogTruncationError": "kohort.client",
    "MemberDescription": "kohort.client.admin_types",
    "MemberSnapshot": "kohort.broker.inside",
    "NewTopic": "kohort.client.admin_types",
    "NoOffsetForPartitionError": "kohort.client",
    "OffsetAndMetadata": "kohort.client",
    "OffsetAndTimestamp": "kohort.client",
    "OpenTransaction": "kohort.client",
    "OffsetOutOfRangeError": "kohort.client",
    "Producer": "kohort.client",
    "ProducerState": "kohort.client.admin_types",
    "RangeAssignor": "kohort.assignors",
    "RebalanceInProgressError": "kohort.client",
    "RebalanceListener": "kohort.client",
    "RebalanceProtocol": "kohort.assignors",
    "ProducerFencedError": "kohort.client",
    "RecordError": "kohort.client",
    "TransactionAbortableError": "kohort.client",
    "RecordMetadata": "kohort.client",
    "Resource": "kohort.client.admin_types",
    "RoundRobinAssignor": "kohort.assignors",
    "StartError": "kohort.broker.boot",
    "StickyAssignor": "kohort.assignors",
    "StoredRecord": "kohort.broker.inside",
    "StoredRows": "kohort.client.producer_columns",
    "Subscription": "kohort.assignors",
    "SubscriptionPattern": "kohort.client",
    "TopicPartition": "kohort.client",
    "TransactionDescription": "kohort.client.admin_types",
    "TransactionListing": "kohort.client.admin_types",
    "acl": "kohort.broker.acls",
}


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others
    __getattr__ = imported_on_use(globals(), _HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
