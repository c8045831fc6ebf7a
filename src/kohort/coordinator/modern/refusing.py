"""Heartbeats that are refused: an error of Kafka's, and a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kohort.coordinator.modern.group import owned_partitions
from kohort.coordinator.modern.member import Member
from kohort.coordinator.modern.reconcile import Owned
from kohort.coordinator.modern_records import MemberState
from kohort.protocol.errors import ErrorCode

MOST_NAMES = 20_000
MOST_CHARACTERS = 300_000


class Refused(Exception):
    def __init__(self, error: ErrorCode, message: str, **data: Any) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.data = data


def check_request(message: Any, version: int, assignors: Collection[str]) -> Refused | None:
    """What is wrong with a heartbeat, whoever sends it."""
    epoch = message.member_epoch
    invalid = ""
    if (version >= 1 or epoch > 0 or epoch == -1) and not message.member_id.strip():
        invalid = "MemberId must not be empty."
    elif not message.group_id.strip():
        invalid = "GroupId must not be empty."
    elif message.instance_id is not None and not message.instance_id.strip():
        invalid = "InstanceId must not be empty; leave it out for a dynamic member."
    elif message.rack_id is not None and not message.rack_id.strip():
        invalid = "RackId must not be empty; leave it out where there is none."
    elif epoch == 0:
        invalid = _joining(message)
    elif epoch == -2 and message.instance_id is None:
        invalid = "Only a static member leaves with epoch -2: it needs an InstanceId."
    elif epoch < -2:
        invalid = f"MemberEpoch {epoch} means nothing: 0 joins, -1 and -2 leave."
    invalid = invalid or _too_many(message.subscribed_topic_names or ())
    if invalid:
        return Refused(ErrorCode.INVALID_REQUEST, invalid)
    if message.server_assignor is not None and message.server_assignor not in assignors:
        known = ", ".join(assignors)
        return Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"There is no server assignor {message.server_assignor}; there are {known}."
        )
    return None


def _too_many(names: Collection[str]) -> str:
    """They are one record: one that cannot be stored would have all groups of the partition read again."""
    if len(names) <= MOST_NAMES and sum(map(len, names)) <= MOST_CHARACTERS:
        return ""
    return (
        f"A member subscribes to at most {MOST_NAMES} topics by name, of {MOST_CHARACTERS} characters together; "
        "subscribe by a SubscribedTopicRegex."
    )


def _joining(message: Any) -> str:
    if message.rebalance_timeout_ms == -1:
        return "A member joins with its RebalanceTimeoutMs."
    if message.topic_partitions is None or message.topic_partitions:
        return "A member joins with an empty list of TopicPartitions."
    if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
        return "A member joins with SubscribedTopicNames or a SubscribedTopicRegex."
    return ""


def check_epoch(member: Member, message: Any) -> None:
    """0 joins, whatever is known; the epoch before may be a lost answer, where the member has nothing it should not."""
    asked, known = message.member_epoch, member.current.member_epoch
    if asked in (0, known):
        return
    if asked == member.current.previous_epoch and asked < known and _has_only(message, member):
        return
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member comes with epoch {asked} and is in epoch {known}; it must give up its partitions and rejoin.",
    )


def check_state(member: Member | None, owned: Owned | None) -> None:
    """What a later version has left behind is not known here: the member must come without partitions."""
    if member is not None and member.current.state is MemberState.UNKNOWN and (owned is None or owned):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH, "The member is in a state of another version; give up everything and rejoin."
        )


def _has_only(message: Any, member: Member) -> bool:
    owned = owned_partitions(message.topic_partitions)
    if owned is None:
        return False
    assigned = member.current.assigned
    return all(topic_id in assigned and assigned[topic_id].keys() >= set(given) for topic_id, given in owned.items())
