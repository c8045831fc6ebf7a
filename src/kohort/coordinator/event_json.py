"""Group events read back from the JSON that `GroupEvent.to_dict` makes, as in `__kohort_group_events`. Pure.

Reading never fails: what another version wrote, or what is no event at all, is kept as it came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

from kohort.coordinator import events
from kohort.coordinator.causes import Cause
from kohort.coordinator.events import GroupEvent, MemberEvent, event

T = TypeVar("T")
_ABSTRACT = (GroupEvent, MemberEvent)
TYPES: dict[str, type[GroupEvent]] = {
    name: kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, GroupEvent) and kind not in _ABSTRACT
}
"""Every type of event by its name."""


@event
class UnknownEvent(GroupEvent):
    """Of another version, or not whole: `raw` is the JSON as it was read."""

    raw: str

    @property
    def type(self) -> str:
        return str(self.to_dict().get("type", "UnknownEvent"))

    def to_json(self) -> str:
        return self.raw

    def to_dict(self) -> dict[str, Any]:
        plain = json.loads(self.raw)
        return plain if isinstance(plain, dict) else {"type": "UnknownEvent", "raw": self.raw}


def from_json(text: str | bytes | None) -> GroupEvent:
    try:
        plain = json.loads(text or "")
    except ValueError:
        plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    return from_dict(plain)


def from_dict(plain: Any) -> GroupEvent:
    given = plain if isinstance(plain, Mapping) else {}
    kind = TYPES.get(str(given.get("type")))
    if kind is not None:
        try:
            return _read(kind, given)
        except _NotWhole:
            pass
    return UnknownEvent(
        at_ms=_or(_integer, given.get("at_ms"), 0),
        group_id=_or(_text, given.get("group_id"), ""),
        generation=_or(_integer, given.get("generation"), -1),
        raw=json.dumps(plain, default=str, sort_keys=True),
    )


class _NotWhole(Exception):
    """A field is missing or of another type."""


def _read(kind: type[GroupEvent], given: Mapping[str, Any]) -> GroupEvent:
    taken: dict[str, Any] = {}
    for name, read, default in _READERS[kind]:
        value = given.get(name)
        taken[name] = default if value is None and default is not MISSING else read(value)
    cause = given.get("cause")
    if cause is None and given.get("reason"):
        cause = {"raw": given["reason"]}  # before causes were values
    if cause is None:
        return kind(**taken)
    event = kind(**taken)
    return kind(**taken, cause=Cause.from_dict(cause, event.who if isinstance(event, MemberEvent) else None))


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise _NotWhole
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _NotWhole
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise _NotWhole
    return tuple(map(_text, value))


def _or(read: Callable[[Any], T], value: Any, otherwise: T) -> T:
    try:
        return read(value)
    except _NotWhole:
        return otherwise


_BY_TYPE: dict[Any, tuple[Callable[[Any], Any], Any]] = {
    int: (_integer, MISSING),
    int | None: (_integer, None),
    str: (_text, ""),  # an empty text was left out
    str | None: (_text, None),
    tuple[str, ...]: (_texts, MISSING),
}


def _readers(kind: type[GroupEvent]) -> tuple[tuple[str, Callable[[Any], Any], Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, *_BY_TYPE[hints[field.name]]) for field in fields(kind) if field.name != "cause")


_READERS = {kind: _readers(kind) for kind in TYPES.values()}
