"""Leader epochs as clients see them: is theirs current, and where does an epoch end in this log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.topics import Partition


def epoch_error(partition: Partition, client_epoch: int) -> ErrorCode | None:
    """What is wrong with the leader epoch a client believes in; -1 claims nothing (KIP-320)."""
    if client_epoch < 0 or client_epoch == partition.leader_epoch:
        return None
    return ErrorCode.FENCED_LEADER_EPOCH if client_epoch < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def epoch_end(partition: Partition, epoch: int) -> tuple[int, int]:
    """The largest epoch not above `epoch` and where it ends; (-1, -1) where that is unknown."""
    if epoch == partition.leader_epoch:
        return epoch, partition.log.end_offset
    if epoch > partition.leader_epoch:
        return -1, -1
    return partition.log.end_offset_for_epoch(epoch)
