"""Group events as log lines: one readable line each, with its cause. What is worth INFO, and the words; no logging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.coordinator import events
from kohort.coordinator.events import GroupEvent, MemberEvent
from kohort.insight.sentences import why_of_event

_LEFT_OUT = ("type", "at_ms", "group_id", "generation", "cause")


def is_news(event: GroupEvent) -> bool:
    """Whether an operator wants to see it; the others are for those who debug."""
    return type(event) in _SENTENCES


def line(event: GroupEvent) -> str:
    """`group shop: carol (carol-5f3e, 127.0.0.1) evicted: no heartbeat for 10000 ms [generation 7]`"""
    sentence = _SENTENCES.get(type(event))
    text = sentence(event) if sentence is not None else _plain(event)
    reason = why_of_event(event)
    because = f": {reason}" if reason else ""
    return printable(f"group {event.group_id}: {text}{because} [generation {event.generation}]")


def printable(text: str) -> str:
    """Names come from clients: no line breaks, no control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _who(event: MemberEvent) -> str:
    name = event.instance_id or event.client_id
    host = event.client_host.lstrip("/")
    details = ", ".join(part for part in (event.member_id, host) if part)
    return f"{name} ({details})" if name else event.member_id


def _plain(event: GroupEvent) -> str:
    details = {name: value for name, value in event.to_dict().items() if name not in _LEFT_OUT}
    return " ".join([event.type, *(f"{name}={value}" for name, value in details.items())])


def _member(did: str) -> Callable[[Any], str]:
    return lambda event: f"{_who(event)} {did}"


def _refused(what: str) -> Callable[[Any], str]:
    return lambda event: f"{what} of {_who(event)} refused with {event.error}"


_SENTENCES: dict[type[GroupEvent], Callable[[Any], str]] = {
    events.MemberJoined: _member("joined"),
    events.MemberLeft: _member("left"),
    events.MemberEvicted: _member("evicted"),
    events.MemberReplaced: lambda event: f"{_who(event)} replaced {event.replaced_member_id}",
    events.MemberFenced: lambda event: f"{_who(event)} fenced from {event.operation}",
    events.LeaderElected: _member("leads now"),
    events.JoinRefused: _refused("join"),
    events.SyncRefused: _refused("sync"),
    events.RebalanceStarted: lambda event: f"rebalance of {event.members} members began",
    events.RebalanceCompleted: lambda event: (
        f"rebalance done after {event.duration_ms} ms, {event.members} members, {event.protocol}, "
        f"{event.leader_id} leads"
    ),
    events.RebalanceFailed: lambda event: f"rebalance failed after {event.duration_ms} ms with {event.error}",
    events.GroupLoaded: lambda event: f"loaded, {event.state}, {event.members} members, {event.offsets} offsets",
    events.GroupDeleted: lambda event: "deleted",
    events.OffsetsRemoved: lambda event: f"{event.partitions} offsets of {', '.join(event.topics)} removed",
}
