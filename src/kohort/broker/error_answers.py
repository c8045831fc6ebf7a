"""Answers that carry an error code, for any api and version, derived from the message definitions.

A request and its response mirror each other: the partitions of the topics asked for come back as partitions of topics,
each with an error code. Here is where a code belongs, which rows of a request a rule means, and how an answer with
these rows is made or put into another answer. Who wants that, and when, is in `faults.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from kohort.protocol import messages, schema
from kohort.protocol.errors import ErrorCode

Identity = dict[str, Any]
"""What a row is about: topic, topic_id, partition, group, ..."""

_NAMES = {
    "name": "topic",
    "topic": "topic",
    "topic_id": "topic_id",
    "partition": "partition",
    "partition_index": "partition",
    "index": "partition",
    "partition_id": "partition",
    "group_id": "group",
    "key": "group",
    "member_id": "member",
    "group_instance_id": "instance",
    "resource_type": "resource_type",
    "resource_name": "resource",
    "transactional_id": "transaction",
    "producer_id": "producer",
}
_CODES = ("error_code", "partition_error_code")
_ABSENT = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "records": b"",
}
# Their top level speaks of the fetch session and of the cluster; what is wrong with a topic belongs to its row.
_ROWS_FIRST = {
    "Fetch": {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    },
    "Metadata": {ErrorCode.REBOOTSTRAP_REQUIRED},
}


class Level(NamedTuple):
    """An array of the request and the array of the response that answers it."""

    asked: schema.Field
    answered: schema.Field
    asked_names: tuple[tuple[str, str], ...]
    answered_names: tuple[tuple[str, str], ...]
    has_code: bool

    def identity(self, item: Any) -> Identity:
        """What a row of the request is about."""
        if self.asked.struct is None:
            return {self.answered_names[0][0]: item}
        return {meaning: getattr(item, name) for meaning, name in self.asked_names}

    def answered_identity(self, row: Any) -> Identity:
        return {meaning: getattr(row, name) for meaning, name in self.answered_names}


class Shape(NamedTuple):
    """How one version of an api says that something failed."""

    name: str
    version: int
    has_code: bool
    levels: tuple[Level, ...]
    by_place: schema.Field | None = None
    """Rows of the answer that carry the code and mirror those of the request by their place alone."""

    def nodes(self, request: Any, depth: int) -> Iterator[Identity]:
        """What the request's rows at `depth` are about; 0 is the request as a whole."""
        yield from self._below(request, _root_identity(request, self.version), 0, depth)

    def _below(self, owner: Any, identity: Identity, at: int, depth: int) -> Iterator[Identity]:
        if at == depth:
            yield identity
            return
        level = self.levels[at]
        for item in getattr(owner, level.asked.name) or ():
            yield from self._below(item, identity | level.identity(item), at + 1, depth)

    def place(self, code: ErrorCode, needed: set[str]) -> int | None:
        """The depth at which the code belongs, where rows tell all of `needed`; None where there is none."""
        if self.by_place is not None:
            return None if needed else 0
        top = self.has_code and (self.name not in _ROWS_FIRST or code in _ROWS_FIRST[self.name])
        known = {_NAMES[field.name] for field in _fields(f"{self.name}Request", self.version) if field.name in _NAMES}
        if top and needed <= known:
            return 0
        for depth, level in enumerate(self.levels, 1):
            known |= {meaning for meaning, _ in level.answered_names}
            if level.has_code and needed <= _with_topic(known):
                return depth
        return None


def _with_topic(known: set[str]) -> set[str]:
    return known | {"topic"} if "topic_id" in known else known


def _fields(name: str, version: int) -> list[schema.Field]:
    return [field for field in schema.message(name).root.fields if version in field.versions]


def _root_identity(request: Any, version: int) -> Identity:
    names = {field.name for field in type(request).SCHEMA.root.fields if version in field.versions}
    names.discard("producer_id")  # the one that a producer has is not the one that it gets
    return {_NAMES[name]: getattr(request, name) for name in names if name in _NAMES}


@cache
def shape(name: str, version: int) -> Shape:
    request, response = schema.message(f"{name}Request").root, schema.message(f"{name}Response").root
    has_code = _has_code(response, version)
    levels: list[Level] = []
    while (level := _next_level(request, response, version)) is not None:
        levels.append(level)
        if level.asked.struct is None or level.answered.struct is None:
            break
        request, response = level.asked.struct, level.answered.struct
    while levels and not levels[-1].has_code:
        levels.pop()
    by_place = None
    if not has_code and not levels:
        fields = schema.message(f"{name}Response").root.fields
        by_place = next((field for field in fields if _leads_to_a_code(field, version)), None)
    return Shape(name, version, has_code, tuple(levels), by_place)


def _next_level(request: schema.StructDefinition, response: schema.StructDefinition, version: int) -> Level | None:
    asked = next((field for field in request.fields if field.is_array and version in field.versions), None)
    answered = next((field for field in response.fields if _leads_to_a_code(field, version)), None)
    if asked is None or answered is None or answered.struct is None:
        return None
    answered_names = _named(answered.struct, version)
    asked_names = _named(asked.struct, version) if asked.struct is not None else answered_names[:1]
    if not {meaning for meaning, _ in asked_names} & {meaning for meaning, _ in answered_names}:
        return None
    return Level(asked, answered, asked_names, answered_names, _has_code(answered.struct, version))


def _named(struct: schema.StructDefinition, version: int) -> tuple[tuple[str, str], ...]:
    fields = [field for field in struct.fields if version in field.versions and field.name in _NAMES]
    return tuple((_NAMES[field.name], field.name) for field in fields)


def _has_code(struct: schema.StructDefinition, version: int) -> bool:
    return any(field.name in _CODES and version in field.versions for field in struct.fields)


def _leads_to_a_code(field: schema.Field, version: int) -> bool:
    if not field.is_array or field.struct is None or version not in field.versions:
        return False
    return _has_code(field.struct, version) or any(_leads_to_a_code(f, version) for f in field.struct.fields)


# Making answers.


def whole(shape: Shape, request: Any, code: ErrorCode) -> Any:
    """The answer with the code at its top level."""
    response = getattr(messages, f"{shape.name}Response")
    made = response()
    if shape.by_place is not None:
        setattr(made, shape.by_place.name, _rows_by_place(shape, request, code))
        return made
    _fill(
        made, schema.message(f"{shape.name}Response").root, shape.version, code, _root_identity(request, shape.version)
    )
    if shape.name == "Fetch":
        made.session_id = request.session_id
    return made


def entire(name: str, version: int, request: Any, code: ErrorCode) -> Any:
    """The answer that says of everything asked for that it failed; None where the code has no place in it."""
    of = shape(name, version)
    depth = of.place(code, set())
    if depth is None:
        return None
    if depth == 0:
        return whole(of, request, code)
    response = getattr(messages, f"{name}Response")()
    merge(of, response, split(of, request, depth, code, lambda row: True), depth)
    return response


def _rows_by_place(shape: Shape, request: Any, code: ErrorCode) -> list[Any]:
    struct = shape.by_place.struct if shape.by_place is not None else None
    assert struct is not None
    asked = [field.name for field in schema.message(f"{shape.name}Request").root.fields if field.is_array]
    rows: dict[Any, Any] = {}
    for item in (item for name in asked for item in getattr(request, name) or ()):
        row = getattr(getattr(messages, f"{shape.name}Response"), struct.name)()
        _fill(row, struct, shape.version, code, {})
        by_user = any(field.name == "user" for field in struct.fields)
        if by_user:
            row.user = item.name
        rows.setdefault(item.name if by_user else id(item), row)
    return list(rows.values())


def split(shape: Shape, request: Any, depth: int, code: ErrorCode, means: Callable[[Identity], bool]) -> list[Any]:
    """Take the rows at `depth` that `means` approves of out of the request; returns them as rows of the answer."""
    return _split(shape, request, _root_identity(request, shape.version), 0, depth, code, means)


def _split(
    shape: Shape,
    owner: Any,
    identity: Identity,
    at: int,
    depth: int,
    code: ErrorCode,
    means: Callable[[Identity], bool],
) -> list[Any]:
    level = shape.levels[at]
    kept, failed = [], []
    for item in getattr(owner, level.asked.name) or ():
        here = identity | level.identity(item)
        if at + 1 == depth:
            if means(here):
                failed.append(_row(shape, level, here, code))
            else:
                kept.append(item)
            continue
        below = _split(shape, item, here, at + 1, depth, code, means)
        if below:
            row = _row(shape, level, here, ErrorCode.NONE)
            setattr(row, shape.levels[at + 1].answered.name, below)
            failed.append(row)
        if not below or getattr(item, shape.levels[at + 1].asked.name):
            kept.append(item)
    if failed:
        setattr(owner, level.asked.name, kept)
    return failed


def add(shape: Shape, failed: list[Any], identities: list[Identity], code: ErrorCode) -> None:
    """Add rows, down to the last level, for what a request means without naming it."""
    for identity in identities:
        row = _row(shape, shape.levels[-1], identity, code)
        for at in range(len(shape.levels) - 2, -1, -1):
            outer = _row(shape, shape.levels[at], identity, ErrorCode.NONE)
            setattr(outer, shape.levels[at + 1].answered.name, [row])
            row = outer
        _merge(shape, failed, [row], 0, len(shape.levels))


def _row(shape: Shape, level: Level, identity: Identity, code: ErrorCode) -> Any:
    struct = level.answered.struct
    assert struct is not None
    row = getattr(getattr(messages, f"{shape.name}Response"), struct.name)()
    _fill(row, struct, shape.version, code, identity)
    return row


def _fill(row: Any, struct: schema.StructDefinition, version: int, code: ErrorCode, identity: Identity) -> None:
    for field in struct.fields:
        if version not in field.versions:
            continue
        meaning = _NAMES.get(field.name)
        if meaning is not None and meaning in identity:
            if identity[meaning] is not None or version in field.nullable:
                setattr(row, field.name, identity[meaning])
        elif field.name in _CODES:
            setattr(row, field.name, code)
        elif field.name == "error_message" and code:
            row.error_message = code.message
        elif field.name in _ABSENT:
            setattr(row, field.name, _ABSENT[field.name])


def merge(shape: Shape, response: Any, failed: list[Any], depth: int) -> None:
    """Put failed rows among those of an answer, in place of what it says about the same things."""
    into = getattr(response, shape.levels[0].answered.name)
    _merge(shape, into, failed, 0, depth)


def join(shape: Shape, into: list[Any], failed: list[Any]) -> None:
    """Failed rows of two refusals as one."""
    _merge(shape, into, failed, 0, len(shape.levels))


def _merge(shape: Shape, into: list[Any], failed: list[Any], at: int, depth: int) -> None:
    level = shape.levels[at]
    places = {_key(level.answered_identity(row)): index for index, row in enumerate(into)}
    for row in failed:
        place = places.get(_key(level.answered_identity(row)))
        if place is None:
            into.append(row)
        elif at + 1 == depth:
            into[place] = row
        else:
            name = shape.levels[at + 1].answered.name
            _merge(shape, getattr(into[place], name), getattr(row, name), at + 1, depth)


def _key(identity: Identity) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(identity.items()))
