"""What storage can fail with. Each error carries the Kafka error code the broker answers with."""

import errno

from kohort.protocol.errors import ErrorCode, KafkaError

_ADVICE = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of the system",
    errno.EACCES: "let this user write there",
    errno.EPERM: "let this user write there",
    errno.EROFS: "mount it for writing",
    errno.EIO: "look at the system's log, the disk fails,",
}


def advice(error: OSError) -> str:
    """What to do about it; most often there is no space."""
    return f"{_ADVICE.get(error.errno or 0, 'free space')} and retry"


class StorageError(KafkaError):
    """The disk (or its stand-in) refused: full, unreadable, or a log taken offline. Nothing half-written is kept."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        super().__init__(code, message)


class OffsetOutOfRange(KafkaError):
    """A read or DeleteRecords outside `start_offset..end_offset`."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside the log, which holds {start_offset}..{end_offset}",
        )


class DataDirInUse(StorageError):
    """Another live process holds the data directory's lock."""


class InvalidConfig(KafkaError):
    """A topic config with an unknown name or a value Kafka would refuse."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)
