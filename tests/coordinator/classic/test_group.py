"""Members and protocols of a group, without a coordinator around it."""

import pytest

from kohort.coordinator.classic.group import ClassicGroup, subscription_topics
from kohort.coordinator.classic.member import Member, protocols_of
from kohort.coordinator.classic.states import PREPARING_REBALANCE
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import JoinGroupRequest


def member(name: str, *protocols: str, instance: str | None = None) -> Member:
    chosen = tuple((protocol, b"") for protocol in protocols or ("range",))
    return Member(name, instance, "c", "/h", 60_000, 10_000, chosen, Deadline(TimerKind.DELAYED_HEARTBEAT, "g", name))


def group_of(*members: Member) -> ClassicGroup:
    group = ClassicGroup("g", 0)
    for m in members:
        group.add(m, protocol_type="consumer")
    group.state = PREPARING_REBALANCE
    return group


def test_the_first_to_join_leads_and_the_next_after_it() -> None:
    group = group_of(member("a"), member("b"), member("c"))
    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("b")
    group.remove("c")
    assert group.leader_id is None


def test_the_vote() -> None:
    group = group_of(member("a", "range", "rr"), member("b", "rr", "range"), member("c", "rr", "sticky", "range"))
    assert group.select_protocol() == "rr"
    assert group.supports("consumer", (("range", b""),))
    assert not group.supports("consumer", (("sticky", b""),))
    assert not group.supports("connect", (("range", b""),))


def test_a_vote_given_twice_counts_once() -> None:
    make = JoinGroupRequest.JoinGroupRequestProtocol
    request = JoinGroupRequest(
        protocols=[make(name="rr", metadata=b"1"), make(name="range"), make(name="rr", metadata=b"2")]
    )
    assert protocols_of(request) == (("rr", b"1"), ("range", b""))


@pytest.mark.parametrize(
    ("member_id", "instance_id", "error"),
    [
        ("a", None, ErrorCode.NONE),
        ("a", "i1", ErrorCode.NONE),
        ("b", "i1", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "i2", ErrorCode.UNKNOWN_MEMBER_ID),
        ("z", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_speak(member_id: str, instance_id: str | None, error: ErrorCode) -> None:
    assert group_of(member("a", instance="i1"), member("b")).member_error(member_id, instance_id) == error


def test_a_static_member_keeps_its_lead_and_its_assignment() -> None:
    old = member("a", instance="i1")
    old.assignment = b"x"
    group = group_of(old, member("b"))
    new = group.replace_static("i1", "a", "a2")
    assert (group.leader_id, group.static_members, new.assignment) == ("a2", {"i1": "a2"}, b"x")
    assert group.protocol_votes == {"range": 2}


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (b"\x00\x01\x00\x00\x00\x02\x00\x01a\x00\x02bcrest", ["a", "bc"]),
        (b"\x00\x00\x00\x00\x00\x00", []),
        (b"", None),
        (b"\x00\x00\x00\x00\x00\x01\x00\x09a", None),
        (b"\x00\x00\xff\xff\xff\xff", None),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01\xff", None),
    ],
)
def test_what_a_subscription_names(metadata: bytes, topics: list[str] | None) -> None:
    assert subscription_topics(metadata) == topics
