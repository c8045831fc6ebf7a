"""Which batches of a fetch a read_committed consumer must not see: those of transactions that were aborted."""

from collections.abc import Iterable
from typing import Protocol

from kohort.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Record
from kohort.records.control import ControlType, control_type


class _Batch(Protocol):
    """What a BatchHeader and a batch found by the kernel have in common."""

    @property
    def attributes(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def producer_id(self) -> int: ...


class AbortedTransactions:
    """Follows a fetch batch by batch. `aborted` are the (producer id, first offset) pairs of the fetch response."""

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        self._ahead = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._open: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._ahead or self._open)

    def hides(self, batch: _Batch) -> bool:
        """Whether the records of a data batch belong to an aborted transaction."""
        self._advance(batch.last_offset)
        return bool(batch.attributes & TRANSACTIONAL_FLAG) and batch.producer_id in self._open

    def marker(self, batch: _Batch, records: list[Record]) -> None:
        """A control batch: an abort marker ends the producer's aborted transaction."""
        assert batch.attributes & CONTROL_FLAG
        self._advance(batch.last_offset)
        if records and batch.producer_id in self._open and control_type(records[0]) == ControlType.ABORT:
            self._open.discard(batch.producer_id)

    def _advance(self, last_offset: int) -> None:
        while self._ahead and self._ahead[-1][1] <= last_offset:
            self._open.add(self._ahead.pop()[0])
