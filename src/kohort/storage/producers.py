"""What a log remembers of its producers: sequences for duplicate detection, epochs for fencing, open transactions.

Pure: the rules of Kafka 4.3's ProducerAppendInfo and the byte form of its snapshot files; files are written elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import BatchHeader
from kohort.records.checksum import crc32c
from kohort.records.control import ControlType, EndTransactionMarker

BATCHES_TO_RETAIN = 5
NO_PRODUCER_EPOCH = -1
DEFAULT_EXPIRATION_MS = 86_400_000
_MAX_SEQUENCE = 2**31 - 1
_MAX_EPOCH = 2**15 - 1
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6


class AppendedBatch(NamedTuple):
    """One batch a producer has in the log."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerState:
    """One producer id in one log."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        batches: Iterable[AppendedBatch] = (),
        last_timestamp: int = -1,
        coordinator_epoch: int = -1,
        txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[AppendedBatch] = deque(batches, BATCHES_TO_RETAIN)
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.txn_first_offset = txn_first_offset

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def has_open(self, epoch: int) -> bool:
        """Whether a transaction of this epoch is open in the log."""
        return self.txn_first_offset is not None and self.epoch == epoch

    @property
    def last_offset(self) -> int | None:
        """The last data offset; None where only a marker is known."""
        return self.batches[-1].last_offset if self.batches else None


class Origin:
    """Who wants a batch appended, and what he has to show for it."""


class Admitted(Origin):
    """A client whose transaction is known to hold this partition: the coordinator was asked. Good until the producer's
    next marker that may be about the same transaction: the answer may come when that is over."""

    __slots__ = ("epoch", "raises_epoch")

    def __init__(self, epoch: int, raises_epoch: bool) -> None:
        self.epoch = epoch
        self.raises_epoch = raises_epoch  # of TV2: each transaction has its own, sequences begin with 0 in every one

    def outlives(self, marker_epoch: int) -> bool:
        """With TV2 a marker has the epoch of the next transaction, and may come while that one is asked about."""
        return self.raises_epoch and marker_epoch <= self.epoch < _MAX_EPOCH


class EndOfTransaction(Origin):
    """A transaction coordinator that writes a marker."""

    __slots__ = ("coordinator_epoch", "version")

    def __init__(self, coordinator_epoch: int, version: int) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.version = version


CLIENT = Origin()
COORDINATOR = Origin()
"""A coordinator that writes to its own log, where nobody else does: it has judged the batch itself."""


class Verdict(NamedTuple):
    """Whether a batch may be appended. `duplicate` is set where it is already in the log: acknowledge that one."""

    error: ErrorCode = ErrorCode.NONE
    duplicate: AppendedBatch | None = None
    reason: str = ""

    @property
    def accepted(self) -> bool:
        return self.error == ErrorCode.NONE and self.duplicate is None


ACCEPT = Verdict()


def check_batch(state: ProducerState | None, header: BatchHeader, admitted: Admitted | None = None) -> Verdict:
    """Judge a batch that a client produced against what its producer appended before.

    Without any state every sequence is accepted: retention or DeleteRecords may have removed the earlier batches
    (Kafka has not answered UNKNOWN_PRODUCER_ID since KIP-360). Not so of a producer of TV2 in a transaction: it begins
    with 0. A batch of a transaction that is not open here needs to be `admitted` (KIP-890).
    """
    if header.producer_id < 0:
        return ACCEPT
    is_first = state is None or not state.batches
    if is_first and admitted is not None and admitted.raises_epoch and header.base_sequence != 0:
        reason = f"producer {header.producer_id} starts with sequence {header.base_sequence} instead of 0"
        return Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, reason=reason)
    if state is None:
        return ACCEPT if admitted or not header.is_transactional else _not_open(header)
    epoch, first = header.producer_epoch, header.base_sequence
    if epoch == state.epoch:
        last = header.last_sequence
        for batch in state.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return Verdict(duplicate=batch, reason=f"sequences {first}..{last} are already at {batch.first_offset}")
    if epoch < state.epoch:
        reason = f"producer {header.producer_id} sent epoch {epoch}, the last seen one is {state.epoch}"
        return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH, reason=reason)
    if header.is_transactional and admitted is None and not state.has_open(epoch):
        return _not_open(header)
    if state.txn_first_offset is not None and not header.is_transactional:
        reason = f"producer {header.producer_id} has a transaction open and must write within it"
        return Verdict(ErrorCode.INVALID_TXN_STATE, reason=reason)
    return _check_sequence(state, header.producer_id, epoch, first)


def _not_open(header: BatchHeader) -> Verdict:
    reason = f"producer {header.producer_id} has no open transaction that holds this partition"
    return Verdict(ErrorCode.INVALID_TXN_STATE, reason=reason)


def _check_sequence(state: ProducerState, producer_id: int, epoch: int, first: int) -> Verdict:
    if epoch != state.epoch:
        if first == 0 or state.epoch == NO_PRODUCER_EPOCH:
            return ACCEPT
        reason = f"producer {producer_id} starts its epoch {epoch} with sequence {first} instead of 0"
        return Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, reason=reason)
    last = state.last_sequence
    if first == last + 1 or (first == 0 and last == _MAX_SEQUENCE):
        return ACCEPT
    reason = f"producer {producer_id} sent sequence {first} after {last}"
    return Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, reason=reason)


def check_marker(
    state: ProducerState | None, producer_id: int, epoch: int, coordinator_epoch: int, version: int = 0
) -> Verdict:
    """Judge an end-of-transaction marker that a coordinator wants to write.

    From TV2 on its epoch is higher than the one of the records (KIP-890); the same epoch where nothing is open is a
    marker that comes again.
    """
    if state is None:
        return ACCEPT
    is_repetition = epoch == state.epoch and (state.txn_first_offset is None or epoch == _MAX_EPOCH)
    if epoch < state.epoch or (version >= 2 and epoch == state.epoch and not is_repetition):
        reason = f"a marker of producer {producer_id} has epoch {epoch}, the last seen one is {state.epoch}"
        return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH, reason=reason)
    if coordinator_epoch < state.coordinator_epoch:
        reason = f"coordinator epoch {coordinator_epoch} is a zombie's, the current one is {state.coordinator_epoch}"
        return Verdict(ErrorCode.TRANSACTION_COORDINATOR_FENCED, reason=reason)
    return ACCEPT


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # the marker's
    aborted: bool
    last_stable_offset: int  # as it is once this transaction is over


class ProducerStates:
    """All producers of one log."""

    __slots__ = ("_admissions", "_open", "_states")

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self._admissions: dict[int, Admitted] = {}  # producer id -> what was begun to be asked since its last marker
        for state in states:
            self.put(state)

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    def put(self, state: ProducerState) -> None:
        self._states[state.producer_id] = state
        if state.txn_first_offset is not None:
            self._open[state.producer_id] = state.txn_first_offset

    def check(self, header: BatchHeader, origin: Origin = CLIENT) -> Verdict:
        state = self._states.get(header.producer_id)
        if isinstance(origin, EndOfTransaction):
            epoch = header.producer_epoch
            return check_marker(state, header.producer_id, epoch, origin.coordinator_epoch, origin.version)
        if origin is COORDINATOR:
            return ACCEPT
        admitted = self._admissions.get(header.producer_id)
        return check_batch(state, header, admitted if admitted is origin else None)

    def admission(self, producer_id: int, epoch: int, raises_epoch: bool) -> Admitted | None:
        """To be shown at the append when the transaction's coordinator has been asked; None: it need not be asked."""
        state = self._states.get(producer_id)
        if state is not None and state.has_open(epoch):
            return None
        found = self._admissions.get(producer_id)
        if found is not None and found.epoch == epoch and found.raises_epoch == raises_epoch:
            return found
        asked = Admitted(epoch, raises_epoch)
        if found is None or found.epoch <= epoch:  # what a zombie asks takes nothing from his successor
            self._admissions[producer_id] = asked
        return asked

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is neither committed nor aborted."""
        return min(self._open.values()) if self._open else None

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch is in the log at `base_offset`."""
        state = self._with_epoch(header.producer_id, header.producer_epoch)
        last_offset = base_offset + header.last_offset_delta
        state.batches.append(
            AppendedBatch(header.base_sequence, header.last_sequence, base_offset, last_offset, header.max_timestamp)
        )
        state.last_timestamp = header.max_timestamp
        if header.is_transactional and state.txn_first_offset is None:
            self._admissions.pop(header.producer_id, None)
            state.txn_first_offset = base_offset
            self._open[header.producer_id] = base_offset

    def ended(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, offset: int, timestamp: int
    ) -> CompletedTxn | None:
        """A marker is in the log at `offset`; None where it ended no transaction of this log."""
        state = self._with_epoch(producer_id, epoch)
        admitted = self._admissions.get(producer_id)
        if admitted is not None and not admitted.outlives(epoch):
            del self._admissions[producer_id]
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = timestamp
        first_offset, state.txn_first_offset = state.txn_first_offset, None
        if first_offset is None:
            return None
        self._open.pop(producer_id, None)
        stable = min(self._open.values(), default=offset + 1)
        return CompletedTxn(producer_id, first_offset, offset, marker.type == ControlType.ABORT, stable)

    def _with_epoch(self, producer_id: int, epoch: int) -> ProducerState:
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = ProducerState(producer_id, epoch)
        elif state.epoch != epoch:
            state.batches.clear()
            state.epoch = epoch
        return state

    def expire(self, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> list[int]:
        """Forget producers idle for `producer.id.expiration.ms`; one in a transaction stays."""
        expired = [
            state.producer_id
            for state in self._states.values()
            if state.txn_first_offset is None and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._states[producer_id]
        return expired


def encode_snapshot(states: ProducerStates) -> bytes:
    """A producer snapshot file; Kafka keeps only the last batch of each producer."""
    entries = b"".join(_encode_entry(state) for state in states)
    data = bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(states)) + entries)
    data[2:_CRC_END] = crc32c(memoryview(data)[_CRC_END:]).to_bytes(4, "big")
    return bytes(data)


def _encode_entry(state: ProducerState) -> bytes:
    last = state.batches[-1] if state.batches else AppendedBatch(-1, -1, -1, -1, -1)
    return _SNAPSHOT_ENTRY.pack(
        state.producer_id,
        state.epoch,
        last.last_sequence,
        last.last_offset,
        last.last_offset - last.first_offset,
        state.last_timestamp,
        state.coordinator_epoch,
        -1 if state.txn_first_offset is None else state.txn_first_offset,
    )


def decode_snapshot(data: bytes) -> ProducerStates:
    """ValueError where the file is damaged (the caller falls back to an older one, then to the log itself)."""
    try:
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise ValueError(f"a producer snapshot of version {version}")
        if crc32c(memoryview(data)[_CRC_END:]) != crc:
            raise ValueError("a producer snapshot with a wrong checksum")
        entries = [
            _SNAPSHOT_ENTRY.unpack_from(data, _SNAPSHOT_HEAD.size + i * _SNAPSHOT_ENTRY.size) for i in range(count)
        ]
    except struct_error:
        raise ValueError("a producer snapshot that ends too soon") from None
    return ProducerStates(_decode_entry(*entry) for entry in entries)


def _decode_entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerState:
    batches = []
    if last_offset >= 0:
        first_sequence = -1 if last_sequence < 0 else (last_sequence - delta) & _MAX_SEQUENCE
        batches = [AppendedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)]
    open_since = None if txn_first_offset < 0 else txn_first_offset
    return ProducerState(producer_id, epoch, batches, timestamp, coordinator_epoch, open_since)
