"""Leader epochs of one log: which epoch began at which offset. Pure; the checkpoint file is written elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class LeaderEpochs:
    """Epochs and their start offsets, both increasing."""

    __slots__ = ("_epochs", "_starts", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begin `epoch` at `start_offset`; entries that contradict it go. True where anything changed."""
        if epoch < 0:
            return False
        if epoch == self.latest and start_offset >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch's answer: the largest epoch not above `epoch`, and the offset at which it ended."""
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        slot = bisect_right(self._epochs, epoch)
        if slot == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        return (self._epochs[slot - 1] if slot else epoch), self._starts[slot]

    def epoch_for(self, offset: int) -> int:
        """The epoch in which `offset` was written; -1 where that is not known."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that began at or after `end_offset`."""
        kept = [i for i, start in enumerate(self._starts) if start < end_offset]
        changed = len(kept) < len(self._starts)
        del self._epochs[len(kept) :], self._starts[len(kept) :]
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs that ended before `start_offset`; the one that spans it now begins there."""
        slot = bisect_right(self._starts, start_offset) - 1
        if slot < 0 or (slot == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:slot], self._starts[:slot]
        self._starts[0] = start_offset
        return True
