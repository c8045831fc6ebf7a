"""Control records: what Kafka writes into a log for itself, above all the commit and abort markers of transactions."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from kohort.records.batch import Record, build_batch
from kohort.records.errors import CorruptBatch

_KEY = Struct(">hh")
_MARKER = Struct(">hi")


class ControlType(IntEnum):
    """The kinds of control records. A consumer skips the kinds it does not know."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    type: ControlType
    coordinator_epoch: int


def control_type(record: Record) -> ControlType:
    """The kind of a record out of a control batch."""
    key = record.key
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(f"a control record needs a key of at least {_KEY.size} bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"no control record has version {version}")
    return ControlType(kind) if 0 <= kind <= ControlType.KRAFT_VOTERS else ControlType.UNKNOWN


def read_marker(record: Record) -> EndTransactionMarker:
    """The commit or abort marker in `record`."""
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise CorruptBatch(f"{kind.name} is not the end of a transaction")
    if record.value is None or len(record.value) < _MARKER.size:
        raise CorruptBatch(f"a transaction marker needs a value of at least {_MARKER.size} bytes")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise CorruptBatch(f"no transaction marker has version {version}")
    return EndTransactionMarker(kind, coordinator_epoch)


def marker_record(kind: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of the one record in a marker."""
    return _KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch)


def build_marker(
    kind: ControlType,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytes:
    """A control batch that commits or aborts the producer's open transaction."""
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"{kind.name} does not end a transaction")
    record = Record(base_offset, timestamp, *marker_record(kind, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
