"""Events as JSON and back: every type, every kind of cause, and whatever else may be in the topic."""

import json
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.event_json import TYPES, UnknownEvent, from_dict, from_json
from kohort.coordinator.events import GroupEvent, MemberEvent

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBER = st.integers(-1, 2**63 - 1)
VALUES: dict[Any, Any] = {
    int: NUMBER,
    int | None: st.none() | NUMBER,
    str: TEXT,
    str | None: st.none() | st.text("ab", min_size=1),
    tuple[str, ...]: st.lists(TEXT).map(tuple),
}
WHO = st.builds(Who, TEXT, VALUES[str | None], TEXT, TEXT)
KINDS = [kind for kind in CauseKind if kind is not CauseKind.UNKNOWN]
MAYBE = st.none() | NUMBER


def causes(members: Any) -> Any:
    return st.builds(
        Cause,
        st.sampled_from(KINDS),
        members,
        by=st.none() | WHO,
        said=TEXT,
        state=TEXT,
        generation=MAYBE,
        timeout_ms=MAYBE,
        size=MAYBE,
        limit=MAYBE,
        error=TEXT,
        raw=st.just(""),
    )


@st.composite
def group_events(draw: Any) -> GroupEvent:
    kind = TYPES[draw(st.sampled_from(sorted(TYPES)))]
    hints = get_type_hints(kind)
    taken = {field.name: draw(VALUES[hints[field.name]]) for field in fields(kind) if field.name != "cause"}
    event = kind(**taken)
    others = st.lists(WHO, min_size=1, max_size=3).map(tuple)
    about = others if not isinstance(event, MemberEvent) else st.just((event.who,)) | others
    if not isinstance(event, MemberEvent):
        about = about | st.just(())
    return kind(**taken, cause=draw(st.none() | causes(about)))


def through_json(event: GroupEvent) -> GroupEvent:
    return from_json(json.dumps(event.to_dict()).encode())


@given(group_events())
def test_an_event_comes_back_as_it_was(event: GroupEvent) -> None:
    assert through_json(event) == event
    assert event.to_json() == json.dumps(event.to_dict(), separators=(",", ":"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_every_kind_comes_back(kind: CauseKind) -> None:
    who = Who("m-1", "i", "c", "/h")
    cause = Cause(kind, (who,), Who("o"), "said", "Stable", 3, 10_000, 7, 5, "NONE")
    left = events.MemberLeft(at_ms=1, group_id="g", generation=2, **who._asdict(), cause=cause)
    assert "members" not in left.to_dict()["cause"] and left.to_dict()["cause"]["kind"] == kind.value
    assert through_json(left) == left
    began = events.RebalanceStarted(at_ms=1, group_id="g", generation=2, members=2, rebalance_timeout_ms=5, cause=cause)
    assert through_json(began) == began


COMMON = {"at_ms": 5, "group_id": "g", "generation": 2}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def test_a_kind_that_this_version_does_not_know_is_kept_raw() -> None:
    cause = {"kind": "eclipsed", "moons": 2, "members": [{"member_id": "m"}]}
    plain = {"type": "MemberEvicted", **COMMON, "member_id": "m", "cause": cause}
    event = from_dict(plain)
    assert isinstance(event, events.MemberEvicted) and event.cause is not None
    assert event.cause.kind is CauseKind.UNKNOWN and json.loads(event.cause.raw) == cause
    assert through_json(event) == event and event.to_dict()["cause"] == cause


def test_events_from_before_causes_were_values_are_kept_raw() -> None:
    event = from_dict({"type": "MemberEvicted", **COMMON, "member_id": "m", "reason": "no heartbeat for 5 ms"})
    assert event.cause == Cause(CauseKind.UNKNOWN, raw="no heartbeat for 5 ms")
    assert through_json(event) == event


@pytest.mark.parametrize(
    "plain",
    [
        {"type": "Eclipse", **COMMON, "moons": 2},
        {"type": "RebalanceStarted", **COMMON, "members": "two", "rebalance_timeout_ms": 1},
        {"type": "RebalanceStarted", **COMMON},
        {"type": "OffsetsRemoved", **COMMON, "topics": "orders", "partitions": 1},
        {"type": ["MemberLeft"], **COMMON},
        {"type": "MemberLeft", "group_id": "g"},
        [],
        None,
        "text",
    ],
)
def test_what_is_no_event_is_kept_raw(plain: Any) -> None:
    event = from_dict(plain)
    assert isinstance(event, UnknownEvent) and json.loads(event.raw) == plain
    if isinstance(plain, dict):
        assert event.to_dict() == plain and from_dict(event.to_dict()) == event


@given(JSON | st.fixed_dictionaries({"type": st.sampled_from(sorted(TYPES)), **{name: JSON for name in COMMON}}))
def test_reading_never_fails(plain: Any) -> None:
    assert isinstance(from_dict(plain), GroupEvent)


@given(
    st.fixed_dictionaries(
        {"kind": st.sampled_from([kind.value for kind in KINDS])}, optional={name: JSON for name in Cause._fields[1:]}
    )
)
def test_reading_a_cause_never_fails(plain: Any) -> None:
    event = from_dict({"type": "MemberLeft", **COMMON, "member_id": "m", "cause": plain})
    assert event.cause is not None and event.cause.kind.value == plain["kind"]
    assert through_json(event) == event


@given(st.binary(max_size=40) | st.none())
def test_reading_bytes_never_fails(data: bytes | None) -> None:
    assert isinstance(from_json(data), GroupEvent)
