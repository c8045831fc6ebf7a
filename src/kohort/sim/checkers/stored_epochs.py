"""The part of `Stored` that speaks of KIP-848: what members and tools are told of epochs and assignments is in the log.

Each rule says what is wrong, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.assignors import decode_assignment
from kohort.coordinator.modern.leaving import LEAVES, LEAVES_FOR_A_WHILE
from kohort.coordinator.modern_records import CurrentAssignment, Epochs, Kind
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.sim.journal import Journal


class StoredEpochs:
    def __init__(self, journal: Journal, name_of: Callable[[bytes], str]) -> None:
        self._journal = journal
        self._name_of = name_of

    def has(self, group_id: str, since: int) -> bool:
        """Whether it may have been a group of the consumer protocol."""
        return any(value is not None for value in self._journal.epoch(group_id).since(since))

    def _currents(self, group_id: str, member_id: str, since: int) -> list[CurrentAssignment]:
        past = self._journal.fact(group_id, Kind.CURRENT_MEMBER, member_id)
        return [value for value in past.since(since) if value is not None]

    def heartbeat(self, since: int, message: Any, response: Any) -> str:
        group_id, member_id = message.group_id, response.member_id or message.member_id
        if message.member_epoch == LEAVES:
            gone = None in self._journal.fact(group_id, Kind.MEMBER, member_id).since(since)
            return "" if gone else f"{member_id} is said to have left {group_id}, it is in the log all the time"
        stood = self._currents(group_id, member_id, since)
        epoch = LEAVES_FOR_A_WHILE if message.member_epoch == LEAVES_FOR_A_WHILE else response.member_epoch
        known = [current for current in stood if current.member_epoch == epoch]
        if not known:
            epochs = [current.member_epoch for current in stood]
            return f"{member_id} is told epoch {epoch} of {group_id}, in the log it was in {epochs}"
        if response.assignment is not None:
            told = {row.topic_id: set(row.partitions) for row in response.assignment.topic_partitions}
            if not any(told == _numbers(current.assigned) for current in known):
                return f"{member_id} is told partitions in epoch {epoch} of {group_id} that are not in the log"
        return ""

    def joined(self, since: int, group_id: str, response: Any) -> str:
        """A classic member of such a group; where the group was a classic one meanwhile it may be of that."""
        epochs = [current.member_epoch for current in self._currents(group_id, response.member_id, since)]
        was_classic = None in self._journal.epoch(group_id).since(since)
        if response.generation_id in epochs or was_classic:
            return ""
        return f"{response.member_id} joined {group_id} in {response.generation_id}, in the log it was in {epochs}"

    def synced(self, since: int, message: Any, response: Any) -> bool:
        """Whether a classic member was told what it has in such a group."""
        stood = self._currents(message.group_id, message.member_id, since)
        told = decode_assignment(response.assignment).partitions if stood and response.assignment else {}
        wanted = {topic: set(numbers) for topic, numbers in told.items() if numbers}
        for current in stood:
            named = {self._name_of(one): numbers for one, numbers in _numbers(current.assigned).items()}
            if current.member_epoch == message.generation_id and wanted.items() <= named.items():
                return True  # topics that are gone have no name any more
        return False

    def described(self, since: int, group: Any) -> str:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            gone = None in self._journal.epoch(group.group_id).since(since)
            return "" if gone else f"{group.group_id} is said to be unknown, its epoch is in the log all the time"
        if group.error_code != ErrorCode.NONE:
            return ""
        epochs = [value.epoch for value in self._journal.epoch(group.group_id).since(since) if value is not None]
        if group.group_epoch not in epochs:
            return f"{group.group_id} is shown in epoch {group.group_epoch}, in the log it was in {epochs}"
        for member in group.members:
            shown = {row.topic_id: set(row.partitions) for row in member.assignment.topic_partitions}
            stood = self._currents(group.group_id, member.member_id, since)
            if not any(
                member.member_epoch == current.member_epoch
                and shown.items() <= _numbers(current.assigned, current.pending).items()  # but for topics that are gone
                for current in stood
            ):
                return f"{member.member_id} is shown in {group.group_id} with what was never stored"
        return ""


def _numbers(*several: Epochs) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for epochs in several:
        for topic_id, numbers in epochs.items():
            found.setdefault(topic_id, set()).update(numbers)
    return found
