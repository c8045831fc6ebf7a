"""Consumer, Producer and Admin block, their Async twins are for asyncio; `member`, `fetcher`, `batching` are the cores.

Names are imported on first use: the cores can be had without asyncio, threads or sockets.
"""

from importlib import import_module
from typing import Any

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

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
