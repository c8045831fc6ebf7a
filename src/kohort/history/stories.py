"""The rebalances and the members of one group as rows, from its events or its stored generations. Pure Python.

What a rebalance is and what caused it is decided by the room insight/, as for `kohort groups explain`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from kohort.coordinator import events as happened
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.event_json import from_dict
from kohort.coordinator.events import MemberEvent
from kohort.history.kinds import CONSUMER
from kohort.insight import assignments, patterns
from kohort.insight.generations import GenerationMember, GenerationReader, StoredGeneration
from kohort.insight.group_past import estimated_standstill_ms
from kohort.insight.handovers import HandOverReader
from kohort.insight.lanes import Lanes
from kohort.insight.modern_past import ModernPast
from kohort.insight.rebalances import History, Rebalance, Trigger, exit_of, from_events
from kohort.insight.sentences import told
from kohort.insight.whatif import Choice, replay

Row = Mapping[str, Any]
KINDS = frozenset(kind.value for kind in CauseKind)


def _in_order(rows: Iterable[Row]) -> list[Row]:
    """All records of a group are in one partition, so their offsets are their order."""
    return sorted(rows, key=lambda row: row["record_offset"])


def stored_generation(row: Row) -> StoredGeneration:
    members = tuple(_stored_member(member) for member in row["members"] or ())
    return StoredGeneration(row["at_ms"], row["generation"], row["protocol"] or "", row["leader_id"] or "", members)


def _stored_member(member: Row) -> GenerationMember:
    partitions = frozenset((held["topic"], number) for held in member["assignment"] for number in held["partitions"])
    return GenerationMember(
        Who(member["member_id"], member["instance_id"], member["client_id"], member["client_host"]),
        member["session_timeout_ms"],
        member["rebalance_timeout_ms"],
        tuple(member["topics"]),
        partitions,
    )


# -- rebalances -------------------------------------------------------------------------------------------------------


def rebalances_of_events(events: Iterable[Row]) -> list[dict[str, Any]]:
    return _rebalances(from_events(from_dict(row) for row in _in_order(events)))


def rebalances_of_generations(generations: Iterable[Row]) -> list[dict[str, Any]]:
    """With a standstill that is estimated where `last_commit_ms`, the group's before the generation, is known."""
    reader = GenerationReader()
    for row in _in_order(generations):
        before_ms = reader.history.last_ms
        made = reader.read(stored_generation(row))
        if made is not None:
            made.estimated_standstill_ms = estimated_standstill_ms(made, before_ms, row.get("last_commit_ms"))
    return _rebalances(reader.history)


def rebalances_of_records(records: Iterable[Row]) -> list[dict[str, Any]]:
    """Of a KIP-848 group: its epochs."""
    past = ModernPast(Lanes(), Lanes())
    for row, data in _read(records):
        past.read(row["at_ms"], row["kind"], row["member_id"], data, {})
    return _rebalances(past.history)


def _read(records: Iterable[Row]) -> Iterator[tuple[Row, dict[str, Any] | None]]:
    """Records of consumer groups in their order, with what they say."""
    for row in _in_order(records):
        if row["family"] == CONSUMER:
            yield row, None if row["tombstone"] or row["data"] is None else json.loads(row["data"])


def _rebalances(history: History) -> list[dict[str, Any]]:
    source = history.source.name.lower()
    return [_rebalance(rebalance) | {"source": source} for rebalance in history.rebalances]


def _rebalance(one: Rebalance) -> dict[str, Any]:
    return {
        "started_ms": one.started_ms,
        "completed_ms": one.completed_ms,
        "duration_ms": one.standstill_ms,
        "estimated_standstill_ms": one.estimated_standstill_ms,
        "generation": one.generation,
        "members": one.members,
        "protocol": one.protocol or None,
        "rebalance_timeout_ms": one.rebalance_timeout_ms,
        "last_back": str(one.last_back) if one.last_back else None,
        "last_back_after_ms": one.last_back_after_ms,
        "waiting_for": [str(who) for who in one.waiting_for],
        "causes": [_trigger(trigger) for trigger in one.triggers],
    }


def _trigger(trigger: Trigger) -> dict[str, Any]:
    cause = trigger.cause
    who = trigger.who or Who("")
    return {
        "kind": trigger.kind.value,
        "text": trigger.text,
        "member_id": who.member_id or None,
        "instance_id": who.instance_id,
        "client_id": who.client_id or None,
        "client_host": who.client_host or None,
        "at_ms": trigger.at_ms,
        "after_ms": cause.timeout_ms,
        "said": cause.said or None,
    }


def told_rebalance(row: Row) -> Rebalance:
    """A row of the report `rebalances` as what it was made of, as far as patterns and costs ask."""
    return Rebalance(
        row["started_ms"],
        [_told_trigger(cause) for cause in row["causes"] or ()],
        row["completed_ms"],
        row["generation"],
        row["members_after"],
        row["protocol"] or "",
        row["duration_ms"],
        row["estimated_standstill_ms"],
    )


def _told_trigger(row: Row) -> Trigger:
    who = Who(row["member_id"] or "", row["instance_id"], row["client_id"] or "", row["client_host"] or "")
    members = (who,) if who != Who("") else ()
    kind = CauseKind(row["kind"]) if row["kind"] in KINDS else CauseKind.UNKNOWN
    return Trigger(row["at_ms"], Cause(kind, members, timeout_ms=row["after_ms"]))


def _told(rows: Iterable[Row]) -> list[Rebalance]:
    return sorted(map(told_rebalance, rows), key=lambda one: (one.started_ms, one.generation or 0))


# -- patterns ---------------------------------------------------------------------------------------------------------


def storms(rebalances: Iterable[Row]) -> list[dict[str, Any]]:
    return [
        one._asdict() | {"kinds": [{"kind": kind.value, "times": times} for kind, times in one.kinds]}
        for one in patterns.storms(_told(rebalances))
    ]


def flapping(rebalances: Iterable[Row]) -> list[dict[str, Any]]:
    return [
        one.who._asdict()
        | {"started_ms": one.started_ms, "ended_ms": one.ended_ms, "times": one.times, "kind": one.kind.value}
        for one in patterns.flapping(_told(rebalances))
    ]


def moves(generations: Iterable[Row]) -> list[dict[str, Any]]:
    found = assignments.shifts(stored_generation(row) for row in _in_order(generations))
    return [
        one.moves._asdict()
        | {"at_ms": one.at_ms, "generation": one.generation, "members": len(one.held)}
        | {"partitions": one.partitions, "most": one.most, "least": one.least}
        for one in found
    ]


def costs(rebalances: Iterable[Row] | None, generations: Iterable[Row] | None) -> list[dict[str, Any]]:
    """A row a rebalance."""
    stored = (stored_generation(row) for row in _in_order(generations or ()))
    return [
        cost._asdict()
        | {"started_ms": one.started_ms, "generation": one.generation}
        | {"cause": one.triggers[0].kind.value if one.triggers else CauseKind.UNKNOWN.value}
        | {"estimated": one.standstill_ms is None and one.estimated_standstill_ms is not None}
        for one, cost in assignments.costs(_told(rebalances or ()), stored)
    ]


def whatif(rebalances: Iterable[Row] | None, generations: Iterable[Row] | None, choice: Choice) -> dict[str, Any]:
    """One row of a group: as it was, and as it would have been."""
    stored = [stored_generation(row) for row in _in_order(generations or ())]
    found = replay(_told(rebalances or ()), stored, choice)
    would = {f"would_{name}": value for name, value in found.would._asdict().items()}
    return found.was._asdict() | would | {"notes": list(found.notes)}


# -- members ----------------------------------------------------------------------------------------------------------


def lives_of_events(events: Iterable[Row]) -> list[dict[str, Any]]:
    """Every member id from its join to its end; a side is empty where the events do not reach that far."""
    lives: dict[str, dict[str, Any]] = {}
    for row in _in_order(events):
        event = from_dict(row)
        if isinstance(event, happened.MemberJoined | happened.MemberRejoined | happened.MemberReplaced):
            life = _life(lives, event.who)
            life["last_generation"] = event.generation
            if isinstance(event, happened.MemberRejoined):
                life["rejoins"] += 1
            elif life["joined_ms"] is None:
                life |= {"joined_ms": event.at_ms, "first_generation": event.generation}
            if isinstance(event, happened.MemberReplaced):
                replaced = Cause(CauseKind.REPLACED, (event.who,))
                _end(_life(lives, event.who._replace(member_id=event.replaced_member_id)), event.at_ms, replaced)
        elif isinstance(event, MemberEvent) and (went := exit_of(event)) is not None:
            _end(_life(lives, event.who), went.at_ms, went.cause)
    return list(lives.values())


def _life(lives: dict[str, dict[str, Any]], who: Who) -> dict[str, Any]:
    fresh = {"joined_ms": None, "ended_ms": None, "ended": None, "reason": None, "rejoins": 0}
    life = lives.setdefault(
        who.member_id, fresh | {"first_generation": None, "last_generation": None, "source": "events"}
    )
    for name, value in who._asdict().items():
        life[name] = value or life.get(name)
    return life


def _end(life: dict[str, Any], at_ms: int, cause: Cause) -> None:
    life |= {"ended_ms": at_ms, "ended": cause.kind.value, "reason": told(cause)}


def lives_of_records(records: Iterable[Row]) -> list[dict[str, Any]]:
    """Of a KIP-848 group: from the first record of a member to its end; how it went is not stored."""
    lives: dict[str, dict[str, Any]] = {}
    for row, data in _read(records):
        member_id = row["member_id"]
        if member_id is None:
            continue
        if row["kind"] == "ConsumerGroupMemberMetadata":
            if data is None:
                _end(_life(lives, Who(member_id)), row["at_ms"], Cause(CauseKind.GONE))
                continue
            who = Who(member_id, data.get("instance_id"), data.get("client_id", ""), data.get("client_host", ""))
            life = _life(lives, who)
            life |= {"ended_ms": None, "ended": None, "reason": None, "source": "epochs"}
            if life["joined_ms"] is None:
                life["joined_ms"] = row["at_ms"]
        elif row["kind"] == "ConsumerGroupCurrentMemberAssignment" and data is not None and member_id in lives:
            life = lives[member_id]
            life["last_generation"] = max(data["member_epoch"], life["last_generation"] or 0)
            if life["first_generation"] is None:
                life["first_generation"] = data["member_epoch"]
    return list(lives.values())


# -- hand-overs and expressions of KIP-848 groups ---------------------------------------------------------------------


def handovers_of_records(records: Iterable[Row]) -> list[dict[str, Any]]:
    reader = HandOverReader()
    for row, data in _read(records):
        reader.read(row["at_ms"], row["kind"], row["member_id"], data)
    return [asdict(one) | {"waited_ms": one.waited_ms} for one in reader.all()]


def expressions_of_records(records: Iterable[Row]) -> list[dict[str, Any]]:
    """What each expression stood for, from when on: a row where that has changed."""
    found: list[dict[str, Any]] = []
    last: dict[str, list[str]] = {}
    for row, data in _read(records):
        if row["kind"] == "ConsumerGroupRegularExpression" and data is not None:
            topics, regex = sorted(data["topics"]), data["regular_expression"]
            if last.get(regex) != topics:
                last[regex] = topics
                found.append({"at_ms": row["at_ms"], "regex": regex, "topics": topics})
    return found


def lives_of_generations(generations: Iterable[Row]) -> list[dict[str, Any]]:
    """From the first generation that has a member to the first that has it no longer: to the rebalance, no finer."""
    lives: dict[str, dict[str, Any]] = {}
    for row in _in_order(generations):
        at_ms, number = row["at_ms"], row["generation"]
        now = {member["member_id"]: member for member in row["members"] or ()}
        for member_id, life in lives.items():
            if life["ended_ms"] is None and member_id not in now:
                _end(life, at_ms, Cause(CauseKind.GONE))
        for member_id, member in now.items():
            life = _life(lives, _stored_member(member).who)
            life |= {"last_generation": number, "source": "generations", "ended_ms": None, "ended": None}
            if life["joined_ms"] is None:
                life |= {"joined_ms": at_ms, "first_generation": number}
            elif number > life["first_generation"]:
                life["rejoins"] = number - life["first_generation"]
            lives[member_id] = life
    return list(lives.values())
