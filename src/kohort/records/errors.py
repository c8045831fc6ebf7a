"""What can be wrong with record data. Every error carries the Kafka error code a broker answers with."""

from kohort.protocol.errors import ErrorCode, KafkaError


class RecordsError(KafkaError):
    """Base of everything this package raises on bad record data."""

    default_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        self.message = message
        super().__init__(self.default_code if code is None else code, message)


class CorruptBatch(RecordsError):
    """The bytes are not a record batch: a bad length, checksum, varint or compressed stream."""


class UnsupportedMagic(RecordsError):
    """A message set of magic 0 or 1, written by a client older than Kafka 0.11."""

    default_code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class BatchTooLarge(RecordsError):
    """The batch, or what it decompresses to, is larger than allowed."""

    default_code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidBatch(RecordsError):
    """A well-formed batch that a producer may not write; `record_errors` names the records at fault."""

    default_code = ErrorCode.INVALID_RECORD

    def __init__(
        self, message: str, code: ErrorCode | None = None, record_errors: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(message, code)
        self.record_errors = record_errors
