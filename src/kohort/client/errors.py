"""What a user of the client may catch. Every message says what happened in the group and what to change."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.config_key import ConfigError
from kohort.protocol.errors import ErrorCode, KafkaError

__all__ = [
    "AuthenticationError",
    "CommitFailedError",
    "ConfigError",
    "ConsumerClosedError",
    "FencedInstanceIdError",
    "KafkaError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "NotConnectedError",
    "OffsetOutOfRangeError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RecordError",
    "TransactionAbortableError",
    "error_for",
]


class ConsumerClosedError(RuntimeError):
    """A call on a consumer or admin that was closed."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A call took longer than its timeout; what it waited for is in the message."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class NotConnectedError(KafkaError):
    """The connection to a broker is gone or could not be made."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class AuthenticationError(KafkaError):
    """The broker refused the credentials."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class CommitFailedError(KafkaError):
    """The partitions belong to others by now: the records since the last commit will be read again by their owners."""


class RebalanceInProgressError(KafkaError):
    """The group is rebalancing: poll() completes it, then commit again."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, message)


class FencedInstanceIdError(KafkaError):
    """Another consumer uses the same group.instance.id; this one is out for good."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.FENCED_INSTANCE_ID, message)


class ProducerFencedError(KafkaError):
    """Another producer has the transactional.id, or the transaction took too long: stop, or make a new producer."""


class TransactionAbortableError(KafkaError):
    """The transaction cannot be committed: abort() it, and do it again. Nothing of it will be read."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, message)


class NoOffsetForPartitionError(KafkaError):
    """auto.offset.reset=none and the group has no committed offset."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.partitions = partitions
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"no committed offset for {partition_list(partitions)} and auto.offset.reset=none: "
            "seek() to where to start, or set auto.offset.reset to earliest or latest",
        )


class OffsetOutOfRangeError(KafkaError):
    """auto.offset.reset=none and the position is not in the log (any more)."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        positions = ", ".join(f"{tp.topic}-{tp.partition} at {offset}" for tp, offset in sorted(offsets.items()))
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"position out of range: {positions}. The records were deleted (retention) or never existed: "
            "seek() to a valid offset, or set auto.offset.reset to earliest or latest",
        )


class LogTruncationError(KafkaError):
    """The leader lost records that were read here (unclean election); without a reset policy the caller decides."""

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self.offsets = dict(offsets)
        self.divergent_offsets = dict(divergent_offsets)
        places = ", ".join(
            f"{tp.topic}-{tp.partition} at {offset}"
            + (f" (the log diverges from {divergent_offsets[tp].offset})" if tp in divergent_offsets else "")
            for tp, offset in sorted(offsets.items())
        )
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log was truncated below the position: {places}. seek() to the offset from which to read again",
        )


class RecordError(KafkaError):
    """A record batch that is damaged or cannot be decoded. seek() past it to go on."""

    def __init__(self, partition: TopicPartition, offset: int, cause: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"{partition.topic}-{partition.partition} at offset {offset}: {cause}; seek() past it to go on",
        )


def error_for(code: int, message: str | None = None) -> KafkaError:
    """An exception for an error code that came over the wire."""
    known = ErrorCode.of(code)
    if known is ErrorCode.REBALANCE_IN_PROGRESS:
        return RebalanceInProgressError(message or known.message)
    if known is ErrorCode.FENCED_INSTANCE_ID:
        return FencedInstanceIdError(message or known.message)
    return KafkaError(known, message)
