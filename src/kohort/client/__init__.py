"""Consumer, Producer and Admin block, their Async twins are for asyncio; `member`, `fetcher`, `batching` are the cores.

Names are imported on first use: the cores can be had without asyncio, threads or sockets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.client.admin import Admin
    from kohort.client.admin_async import AsyncAdmin
    from kohort.client.consumer import Consumer
    from kohort.client.consumer_async import AsyncConsumer
    from kohort.client.errors import (
        CommitFailedError,
        ConfigError,
        FencedInstanceIdError,
        KafkaError,
        KafkaTimeoutError,
        LogTruncationError,
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
        RebalanceInProgressError,
        RecordError,
    )
    from kohort.client.listeners import RebalanceListener
    from kohort.client.producer import Producer
    from kohort.client.producer_async import AsyncProducer, RecordMetadata
    from kohort.client.types import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
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
    "Producer",
    "RebalanceInProgressError",
    "RebalanceListener",
    "RecordError",
    "RecordMetadata",
    "TopicPartition",
]

_HOMES = {
    "Admin": "admin",
    "AsyncAdmin": "admin_async",
    "AsyncConsumer": "consumer_async",
    "AsyncProducer": "producer_async",
    "CommitFailedError": "errors",
    "ConfigError": "errors",
    "Consumer": "consumer",
    "ConsumerGroupMetadata": "types",
    "ConsumerRecord": "types",
    "FencedInstanceIdError": "errors",
    "KafkaError": "errors",
    "KafkaTimeoutError": "errors",
    "LogTruncationError": "errors",
    "NoOffsetForPartitionError": "errors",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "OffsetOutOfRangeError": "errors",
    "Producer": "producer",
    "RebalanceInProgressError": "errors",
    "RebalanceListener": "listeners",
    "RecordError": "errors",
    "RecordMetadata": "producer_async",
    "TopicPartition": "types",
}


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
