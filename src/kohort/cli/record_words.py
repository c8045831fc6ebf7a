"""Records of a segment in words: of groups and transactions by what they say, of others by key and value. Pure."""

from __future__ import annotations

from typing import Any

from kohort.cli.output import plural, printable
from kohort.coordinator.modern_records import Epochs, Kind, MemberMetadata, ModernChange, Partitions
from kohort.coordinator.records import (
    OFFSETS_TOPIC,
    GroupMetadata,
    OffsetCommit,
    StoredGroup,
    UnknownRecord,
    UnreadableRecord,
    decode,
)
from kohort.coordinator.transactions.records import TRANSACTIONS_TOPIC
from kohort.coordinator.transactions.records import decode as decode_transaction
from kohort.coordinator.transactions.transaction import Transaction
from kohort.protocol.uuids import to_base64
from kohort.records.batch import Record
from kohort.records.control import ControlType, control_type
from kohort.records.errors import CorruptBatch

SHOWN = 200


def told(topic: str, record: Record, is_control: bool) -> str:
    """One line, without offset and time."""
    try:
        if is_control:
            return _marker(record)
        if topic == OFFSETS_TOPIC:
            return _group_record(record)
        if topic == TRANSACTIONS_TOPIC:
            change = decode_transaction(record.key or b"", record.value)
            return f"transactional id {printable(change.transactional_id)}: {_transaction(change.value)}"
    except (UnknownRecord, UnreadableRecord, CorruptBatch) as error:
        return f"{error}; {_plain(record)}"
    return _plain(record)


def shown(data: bytes | None) -> str:
    """Text as text, other bytes as hexadecimal digits, the first of them."""
    if data is None:
        return "null"
    cut = data[:SHOWN]
    more = f"... ({len(data)} bytes)" if len(data) > SHOWN else ""
    try:
        return f'"{printable(cut.decode()) if cut else ""}"{more}'
    except UnicodeDecodeError:
        return f"0x{cut.hex()}{more}"


def _plain(record: Record) -> str:
    headers = "".join(f", header {printable(name)} {shown(value)}" for name, value in record.headers)
    return f"key {shown(record.key)}, value {shown(record.value)}{headers}"


def _marker(record: Record) -> str:
    kind = control_type(record)
    if kind in (ControlType.COMMIT, ControlType.ABORT):
        return f"the transaction ends here: {kind.name.lower()}"
    return f"control record {kind.name}"


def _group_record(record: Record) -> str:
    change = decode(record.key or b"", record.value)
    who = f"group {printable(change.group_id)}"
    if isinstance(change, OffsetCommit):
        return f"{who}: {_commit(change)}"
    if isinstance(change, GroupMetadata):
        return f"{who}: {_generation(change.value)}"
    return f"{who}: {_modern(change)}"


def _commit(change: OffsetCommit) -> str:
    where = f"{printable(change.topic)}-{change.partition}"
    if change.value is None:
        return f"the offset of {where} is gone"
    value = change.value
    epoch = f", leader epoch {value.leader_epoch}" if value.leader_epoch >= 0 else ""
    note = f', metadata "{printable(value.metadata)}"' if value.metadata else ""
    return f"{where} is committed up to {value.committed_offset}{epoch}{note}"


def _generation(value: StoredGroup | None) -> str:
    if value is None:
        return "the group is gone"
    if not value.members:
        return f"generation {value.generation}, without members"
    names = ", ".join(
        printable(m.member_id) + (f" ({printable(m.instance_id)})" if m.instance_id else "") for m in value.members
    )
    count = plural(len(value.members), "member")
    return (
        f"generation {value.generation} of {printable(value.protocol_type)}, {printable(value.protocol)}, "
        f"led by {printable(value.leader_id)}, {count}: {names}"
    )


def _modern(change: ModernChange) -> str:
    value: Any = change.value
    name = printable(change.name)
    subject = {
        Kind.GROUP: "group epoch",
        Kind.PARTITION_METADATA: "partition metadata",
        Kind.MEMBER: f"member {name}",
        Kind.TARGET: "target",
        Kind.TARGET_MEMBER: f"target of member {name}",
        Kind.CURRENT_MEMBER: f"member {name} has",
        Kind.REGEX: f"expression {name}",
    }[change.kind]
    if value is None:
        return f"{subject.removesuffix(' has')}: gone"
    if change.kind is Kind.GROUP:
        return f"{subject} {value.epoch}"
    if change.kind is Kind.TARGET:
        return f"{subject} of epoch {value.epoch}"
    if change.kind is Kind.MEMBER:
        return f"{subject} {_member(value)}"
    if change.kind is Kind.TARGET_MEMBER:
        return f"{subject}: {_partitions(value)}"
    if change.kind is Kind.CURRENT_MEMBER:
        pending = f", gives up {_partitions(value.pending)}" if value.pending else ""
        return f"{subject} {_partitions(value.assigned)} in epoch {value.member_epoch}, {value.state.name}{pending}"
    if change.kind is Kind.REGEX:
        return f"{subject} stands for {', '.join(map(printable, sorted(value.topics))) or 'no topic'}"
    return subject


def _member(value: MemberMetadata) -> str:
    topics = ", ".join(map(printable, sorted(value.topics)))
    wants = f"subscribes to {topics}" if topics else "subscribes to no names"
    regex = f", expression {printable(value.regex)}" if value.regex else ""
    instance = f", instance {printable(value.instance_id)}" if value.instance_id else ""
    return f"({printable(value.client_id)}, {printable(value.client_host)}) {wants}{regex}{instance}"


def _partitions(partitions: Partitions | Epochs) -> str:
    rows = (
        f"{to_base64(topic_id)}[{', '.join(map(str, sorted(indexes)))}]" for topic_id, indexes in partitions.items()
    )
    return "; ".join(rows) or "nothing"


def _transaction(value: Transaction | None) -> str:
    if value is None:
        return "forgotten"
    rows = ", ".join(f"{printable(topic)}-{index}" for topic, index in value.partitions)
    holds = f", with {rows}" if rows else ""
    return f"{value.state.value}, producer {value.producer_id} epoch {value.producer_epoch}{holds}"
