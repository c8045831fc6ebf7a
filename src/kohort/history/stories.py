"""The rebalances and the members of one group as rows, from its events or its stored generations. Pure Python.

What a rebalance is and what caused it is decided by coordinator/rebalances.py, as for `kohort groups explain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.coordinator.rebalances import (
    Cause,
    Generation,
    History,
    Kind,
    Rebalance,
    StoredMember,
    Who,
    exit_cause,
    from_events,
    from_generations,
)

Row = Mapping[str, Any]


def _in_order(rows: Iterable[Row]) -> list[Row]:
    """All records of a group are in one partition, so their offsets are their order."""
    return sorted(rows, key=lambda row: row["record_offset"])


def _event(row: Row) -> dict[str, Any]:
    """As GroupEvent.to_dict has it: what is empty is left out."""
    return {name: value for name, value in row.items() if value is not None}


def _generation(row: Row) -> Generation:
    members = tuple(_stored_member(member) for member in row["members"] or ())
    return Generation(row["at_ms"], row["generation"], row["protocol"] or "", row["leader_id"] or "", members)


def _stored_member(member: Row) -> StoredMember:
    partitions = frozenset((held["topic"], number) for held in member["assignment"] for number in held["partitions"])
    return StoredMember(
        Who(member["member_id"], member["instance_id"], member["client_id"], member["client_host"]),
        member["session_timeout_ms"],
        member["rebalance_timeout_ms"],
        b"",
        tuple(member["topics"]),
        partitions,
    )


# -- rebalances -------------------------------------------------------------------------------------------------------


def rebalances_of_events(events: Iterable[Row]) -> list[dict[str, Any]]:
    return _rebalances(from_events(_event(row) for row in _in_order(events)))


def rebalances_of_generations(generations: Iterable[Row]) -> list[dict[str, Any]]:
    return _rebalances(from_generations(_generation(row) for row in _in_order(generations)))


def _rebalances(history: History) -> list[dict[str, Any]]:
    source = history.source.name.lower()
    return [_rebalance(rebalance) | {"source": source} for rebalance in history.rebalances]


def _rebalance(one: Rebalance) -> dict[str, Any]:
    return {
        "started_ms": one.started_ms,
        "completed_ms": one.completed_ms,
        "duration_ms": one.standstill_ms,
        "generation": one.generation,
        "members": one.members,
        "protocol": one.protocol or None,
        "rebalance_timeout_ms": one.rebalance_timeout_ms,
        "last_back": str(one.last_back) if one.last_back else None,
        "last_back_after_ms": one.last_back_after_ms,
        "waiting_for": [str(who) for who in one.waiting_for],
        "causes": [_cause(cause) for cause in one.causes],
    }


def _cause(cause: Cause) -> dict[str, Any]:
    who = cause.who or Who("")
    return {
        "kind": cause.kind.value,
        "text": cause.text,
        "member_id": who.member_id or None,
        "instance_id": who.instance_id,
        "client_id": who.client_id or None,
        "client_host": who.host or None,
        "at_ms": cause.at_ms,
        "after_ms": cause.after_ms,
    }


# -- members ----------------------------------------------------------------------------------------------------------


def lives_of_events(events: Iterable[Row]) -> list[dict[str, Any]]:
    """Every member id from its join to its end; a side is empty where the events do not reach that far."""
    lives: dict[str, dict[str, Any]] = {}
    for row in _in_order(events):
        event = _event(row)
        kind, at_ms, generation = event["type"], event["at_ms"], event["generation"]
        if kind in ("MemberJoined", "MemberRejoined", "MemberReplaced"):
            life = _life(lives, event)
            life["last_generation"] = generation
            if kind == "MemberRejoined":
                life["rejoins"] += 1
            elif life["joined_ms"] is None:
                life |= {"joined_ms": at_ms, "first_generation": generation}
            if (old := event.get("replaced_member_id")) is not None:
                text = "came back as a new process under its group.instance.id"
                _end(_life(lives, event | {"member_id": old}), at_ms, Kind.REPLACED, text)
        elif (cause := exit_cause(event)) is not None:
            _end(_life(lives, event), at_ms, cause.kind, cause.text)
    return list(lives.values())


def _life(lives: dict[str, dict[str, Any]], event: Mapping[str, Any]) -> dict[str, Any]:
    fresh = {"joined_ms": None, "ended_ms": None, "ended": None, "reason": None, "rejoins": 0}
    life = lives.setdefault(
        event["member_id"], fresh | {"first_generation": None, "last_generation": None, "source": "events"}
    )
    for name in ("member_id", "instance_id", "client_id", "client_host"):
        life[name] = event.get(name) or life.get(name)
    return life


def _end(life: dict[str, Any], at_ms: int, kind: Kind, text: str) -> None:
    life |= {"ended_ms": at_ms, "ended": kind.value, "reason": text}


def lives_of_generations(generations: Iterable[Row]) -> list[dict[str, Any]]:
    """From the first generation that has a member to the first that has it no longer: to the rebalance, no finer."""
    lives: dict[str, dict[str, Any]] = {}
    for row in _in_order(generations):
        at_ms, number = row["at_ms"], row["generation"]
        now = {member["member_id"]: member for member in row["members"] or ()}
        for member_id, life in lives.items():
            if life["ended_ms"] is None and member_id not in now:
                _end(life, at_ms, Kind.GONE, "is in no generation from then on")
        for member_id, member in now.items():
            life = _life(lives, member)
            life |= {"last_generation": number, "source": "generations", "ended_ms": None, "ended": None}
            if life["joined_ms"] is None:
                life |= {"joined_ms": at_ms, "first_generation": number}
            elif number > life["first_generation"]:
                life["rejoins"] = number - life["first_generation"]
            lives[member_id] = life
    return list(lives.values())
