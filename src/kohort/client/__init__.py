"""Consumer, Producer and Admin block, their Async twins are for asyncio; `member`, `fetcher`, `batching` are the cores.

Names are imported on first use: the cores can be had without asyncio, threads or sockets.
"""

from typing import TYPE_CHECKING

from kohort.lazy_names import imported_on_use

if TYPE_CHECKING:
    from kohort.assignors.types import ConsumerGroupMetadata
    from kohort.client.admin import Admin
    from kohort.client.admin_async import AsyncAdmin
    from kohort.client.consumer import Consumer
    from kohort.client.consumer_async import AsyncConsumer
    from kohort.client.delivery import RecordMetadata
    from kohort.client.errors import (
        CommitFailedError,
        ConfigError,
        FencedInstanceIdError,
        KafkaError,
        KafkaTimeoutError,
        LogTruncationError,
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        RebalanceInProgressError,
        RecordError,
        TransactionAbortableError,
    )
    from kohort.client.listeners import RebalanceListener
    from kohort.client.producer import Producer
    from kohort.client.producer_async import AsyncProducer
    from kohort.client.subscriptions import SubscriptionPattern
    from kohort.client.types import (
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OpenTransaction,
        TopicPartition,
    )

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "CommitFailedError",
    "ConfigError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "FencedInstanceIdError",
    "KafkaError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OpenTransaction",
    "Producer",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RebalanceListener",
    "RecordError",
    "RecordMetadata",
    "SubscriptionPattern",
    "TopicPartition",
    "TransactionAbortableError",
]

_HOMES = {
    "Admin": "kohort.client.admin",
    "AsyncAdmin": "kohort.client.admin_async",
    "AsyncConsumer": "kohort.client.consumer_async",
    "AsyncProducer": "kohort.client.producer_async",
    "CommitFailedError": "kohort.client.errors",
    "ConfigError": "kohort.client.errors",
    "Consumer": "kohort.client.consumer",
    "ConsumerGroupMetadata": "kohort.assignors.types",
    "ConsumerRecord": "kohort.client.types",
    "FencedInstanceIdError": "kohort.client.errors",
    "KafkaError": "kohort.client.errors",
    "KafkaTimeoutError": "kohort.client.errors",
    "LogTruncationError": "kohort.client.errors",
    "NoOffsetForPartitionError": "kohort.client.errors",
    "OffsetAndMetadata": "kohort.client.types",
    "OffsetAndTimestamp": "kohort.client.types",
    "OpenTransaction": "kohort.client.types",
    "OffsetOutOfRangeError": "kohort.client.errors",
    "Producer": "kohort.client.producer",
    "RebalanceInProgressError": "kohort.client.errors",
    "RebalanceListener": "kohort.client.listeners",
    "ProducerFencedError": "kohort.client.errors",
    "RecordError": "kohort.client.errors",
    "TransactionAbortableError": "kohort.client.errors",
    "RecordMetadata": "kohort.client.delivery",
    "SubscriptionPattern": "kohort.client.subscriptions",
    "TopicPartition": "kohort.client.types",
}


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others
    __getattr__ = imported_on_use(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
