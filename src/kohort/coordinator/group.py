"""What every group has, whatever protocol its members speak, and what others may ask of it.

Offsets, expiry, admin, replay and homing know groups by this interface alone; `kinds.py` lists its implementations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from kohort.coordinator.events import Story
from kohort.coordinator.records import Change, OffsetAndMetadata, OffsetCommit
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.coordinator.context import Context
    from kohort.coordinator.effects import Request

BY_AGE = -1


class Group(ABC):
    """Committed offsets are hard state: only `apply` and the load write them."""

    __slots__ = ("group_id", "offsets", "open_transactions", "story")

    type: ClassVar[str]
    """Kafka's name of the protocol, as ListGroups shows it."""
    checks_partitions: ClassVar[bool] = False
    """Whether `partition_commit_error` has anything to say."""
    generation: int
    """Or the epoch; events carry it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets: dict[str, dict[int, OffsetAndMetadata]] = {}
        self.open_transactions: dict[tuple[str, int], set[int]] | None = None  # producer ids per partition
        self.story = Story()

    # ---- what it is

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As tools show it."""

    @property
    @abstractmethod
    def protocol_name(self) -> str:
        """The protocol type, as tools show it."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether nobody is in it; only such a group may go."""

    @abstractmethod
    def is_subscribed(self, topic: str) -> bool:
        """Whether its members read the topic, as far as that is known: such offsets neither expire nor get deleted."""

    @abstractmethod
    def holder(self, instance_id: str) -> Any:
        """The member that has the instance id, or None."""

    # ---- may this be done?

    @abstractmethod
    def commit_error(self, context: Context, request: Request) -> ErrorCode:
        """Whether the member may commit now; a commit that may also counts as a heartbeat."""

    def partition_commit_error(self, member_id: str, epoch: int, topic_id: bytes, number: int) -> ErrorCode:
        """Whether a member that may commit may commit this partition."""
        return ErrorCode.NONE

    @abstractmethod
    def txn_commit_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether the member may commit in a transaction now; ILLEGAL_GENERATION also where its epoch is stale."""

    @abstractmethod
    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the member may read the group's offsets."""

    @abstractmethod
    def offset_delete_error(self) -> ErrorCode: ...

    @abstractmethod
    def delete_error(self) -> ErrorCode: ...

    # ---- offsets

    @abstractmethod
    def expires_from(self) -> int | None:
        """None: no offset expires now. BY_AGE: by the time of each commit. Else all of them since that moment."""

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a transaction that has committed an offset of the partition is still open."""
        return self.open_transactions is not None and (topic, partition) in self.open_transactions

    # ---- for others to see and to store

    @abstractmethod
    def restore(self) -> None:
        """Starts the soft state from the hard state: after a load, and at no other time."""

    @property
    @abstractmethod
    def needs_restoring(self) -> bool:
        """Whether there is no soft state yet."""

    @property
    @abstractmethod
    def has_begun(self) -> bool:
        """Whether there is more to it than commits."""

    def topic_changed(self, topic: str) -> None:
        """A topic has come, has grown or is gone. The leader of a classic group sees it for itself."""
        return

    @abstractmethod
    def describe(self) -> Any:
        """The group of a DescribeGroupsResponse."""

    def tombstones(self) -> list[Change]:
        """For everything that the log knows of the group."""
        gone: dict[tuple[str, int], Change] = {
            (topic, index): OffsetCommit(self.group_id, topic, index, None)
            for topic, committed in self.offsets.items()
            for index in committed
        }
        for topic, index in self.open_transactions or ():
            gone.setdefault((topic, index), OffsetCommit(self.group_id, topic, index, None))
        return [*gone.values(), *self.own_tombstones()]

    @abstractmethod
    def own_records(self) -> list[Change]:
        """All that the log knows of it beside the offsets."""

    @abstractmethod
    def own_tombstones(self) -> list[Change]:
        """Those beside the offsets'."""
