"""Records of `__consumer_offsets` become rows; what nobody here can read becomes a row that says so."""

from __future__ import annotations

import dataclasses

from kohort.assignors import Assignment, Subscription, encode_assignment, encode_subscription
from kohort.coordinator import events
from kohort.coordinator.causes import Cause
from kohort.coordinator.records import GroupMetadata, OffsetAndMetadata, OffsetCommit, StoredGroup, StoredMember, encode
from kohort.history import decoding
from kohort.protocol.uuids import ZERO_UUID

KIP_848_KEY = b"\x00\x05\x00\x02g1\x00\x02m1"


def commit(offset: int, epoch: int = 3, metadata: str = "", expire_ms: int = -1) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, epoch, metadata, 1_000, expire_ms, ZERO_UUID)


def stored(protocol_type: str = "consumer", subscription: bytes | None = None) -> StoredGroup:
    said = encode_subscription(Subscription(["orders", "a"])) if subscription is None else subscription
    held = encode_assignment(Assignment({"orders": [2, 0], "a": [1]}))
    member = StoredMember("m1", "i1", "client", "/10.0.0.1", 60_000, 45_000, said, held)
    return StoredGroup(protocol_type, 7, "range", "m1", 5_000, (member,))


def test_commits_tombstones_and_what_cannot_be_read():
    written = [
        encode(OffsetCommit("g", "orders", 2, commit(42, metadata="hôtel"))),
        encode(OffsetCommit("g", "orders", 3, commit(7, epoch=-1, expire_ms=9_000))),
        encode(OffsetCommit("g", "orders", 2, None)),
        (KIP_848_KEY, b"\x00\x00"),
        (b"\x00\x0a" + KIP_848_KEY[2:], b"\x00\x00"),
        (encode(OffsetCommit("g", "orders", 2, None))[0], b"\x00\x63"),
        (b"", None),
    ]
    columns = decoding.commit_columns(*zip(*written, strict=True))
    assert tuple(columns) == decoding.COMMIT_COLUMNS
    rows = list(zip(*columns.values(), strict=True))
    assert rows[0] == ("g", "orders", 2, 42, 3, "hôtel", 1_000, None, False, None)
    # A commit with an expiry of its own is an older record, which has no leader epoch.
    assert rows[1] == ("g", "orders", 3, 7, None, "", 1_000, 9_000, False, None)
    assert rows[2] == ("g", "orders", 2, None, None, None, None, None, True, None)
    assert columns["problem"][4:6] == ["key type 10, of share or streams groups", "offset commit value version 99"]
    assert "cannot be read" in columns["problem"][3] and "cannot be read" in columns["problem"][6]
    assert decoding.commit_columns([], []) == {name: [] for name in decoding.COMMIT_COLUMNS}


def test_a_stored_generation_with_its_members():
    row = decoding.generation_row(*encode(GroupMetadata("g", stored())))
    (member,) = row.pop("members")
    assert row == {
        "group_id": "g",
        "generation": 7,
        "protocol_type": "consumer",
        "protocol": "range",
        "leader_id": "m1",
        "state_ms": 5_000,
        "tombstone": False,
    }
    assert member == {
        "member_id": "m1",
        "instance_id": "i1",
        "client_id": "client",
        "client_host": "/10.0.0.1",
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 60_000,
        "topics": ["a", "orders"],
        "assignment": [{"topic": "a", "partitions": [1]}, {"topic": "orders", "partitions": [0, 2]}],
    }


def test_groups_that_are_gone_foreign_or_broken():
    key, value = encode(GroupMetadata("g", stored("connect", b"anything")))
    (worker,) = decoding.generation_row(key, value)["members"]
    assert (worker["client_id"], worker["topics"], worker["assignment"]) == ("client", [], [])
    assert decoding.generation_row(key, None) == {"group_id": "g", "tombstone": True}
    assert decoding.generation_row(key, value[:-3])["problem"]
    assert "cannot be read" in decoding.generation_row(KIP_848_KEY, b"")["problem"]
    assert decoding.generation_row(*encode(OffsetCommit("g", "t", 0, commit(1))))["problem"] == "not a group's metadata"


def test_keys_of_a_group_begin_with_its_name():
    commits = decoding.key_prefixes(decoding.COMMIT_KEYS, ["g", "gg"])
    mine = [encode(OffsetCommit(group, "orders", 0, None))[0] for group in ("g", "gg", "ggg")]
    assert [any(key.startswith(prefix) for prefix in commits) for key in mine] == [True, True, False]
    assert decoding.key_prefixes(decoding.GENERATION_KEYS, []) == [b"\x00\x02"]
    assert encode(GroupMetadata("g", None))[0] in decoding.key_prefixes(decoding.GENERATION_KEYS, ["g"])


def test_every_field_of_every_event_is_a_column():
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.GroupEvent)]
    fields = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert len(kinds) > 15 and fields | {"type"} == {*decoding.EVENT_FIELDS, "at_ms"}


def test_every_field_of_a_cause_is_a_column():
    assert tuple(decoding.CAUSE_FIELDS) == Cause._fields
