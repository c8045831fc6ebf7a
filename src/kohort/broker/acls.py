"""Who may do what: access control entries as values, which of them speak about a resource, and what they decide. Pure.

Kafka's rules: a super user may do everything; one entry that denies outweighs all that allow; READ, WRITE, DELETE and
ALTER allow DESCRIBE as well, ALTER_CONFIGS allows DESCRIBE_CONFIGS; a resource without any entry is closed, unless
allow.everyone.if.no.acl.found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, TypeVar

_E = TypeVar("_E", bound=IntEnum)


class Resource(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
_ANYBODY = "User:*"
_O = Operation
OPERATIONS = {
    Resource.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    Resource.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    Resource.CLUSTER: (
        _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE,
    ),
    Resource.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT),
    Resource.DELEGATION_TOKEN: (_O.DESCRIBE,),
    Resource.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip
"""What there is to be done with each kind of resource."""
_IMPLIED_BY = {
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
}


class Acl(NamedTuple):
    """One entry; `acl()` makes them from names."""

    principal: str
    operation: Operation
    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL
    permission: Permission = Permission.ALLOW
    host: str = WILDCARD


def acl(
    principal: str,
    operation: str,
    resource: str,
    name: str = CLUSTER_NAME,
    *,
    pattern: str = "LITERAL",
    permission: str = "ALLOW",
    host: str = WILDCARD,
) -> Acl:
    """An entry from names; ValueError says which of them there is not.

    acl("alice", "READ", "TOPIC", "orders")
    """
    made = Acl(
        principal if ":" in principal else f"User:{principal}",
        _named(Operation, operation),
        _named(Resource, resource),
        name,
        _named(Pattern, pattern),
        _named(Permission, permission),
        host,
    )
    if made.operation != Operation.ALL and made.operation not in OPERATIONS.get(made.resource, ()):
        raise ValueError(f"nothing of the kind {made.resource.name} can be asked for {made.operation.name}")
    return made


def _named(kind: type[_E], name: str) -> _E:
    try:
        return kind[name.upper().replace("-", "_")]
    except KeyError:
        raise ValueError(f"there is no {kind.__name__.lower()} {name}, only {', '.join(kind.__members__)}") from None


class Filter(NamedTuple):
    """Which entries are meant; None and ANY mean all."""

    resource: int = Resource.ANY
    name: str | None = None
    pattern: int = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def means(self, entry: Acl) -> bool:
        return (
            self.resource in (Resource.ANY, entry.resource)
            and self._names(entry)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def _names(self, entry: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, entry.pattern):
            return False
        if self.name is None:
            return True
        return speaks_of(entry, self.name) if self.pattern == Pattern.MATCH else self.name == entry.name


def speaks_of(entry: Acl, name: str) -> bool:
    if entry.pattern == Pattern.PREFIXED:
        return name.startswith(entry.name)
    return entry.name in (name, WILDCARD)


class Entries:
    """The entries about one kind of resource, found by name. Whoever reads may be on another thread than who writes."""

    def __init__(self) -> None:
        self.all: dict[Acl, None] = {}
        self._literal: dict[str, tuple[Acl, ...]] = {}
        self._prefixed: dict[str, tuple[Acl, ...]] = {}
        self._lengths: tuple[int, ...] = ()

    def change(self, add: Iterable[Acl], remove: Iterable[Acl]) -> None:
        """What is about one name is written once, however many entries that are."""
        gone = dict.fromkeys(entry for entry in remove if entry in self.all)
        for entry in gone:
            del self.all[entry]
        new = dict.fromkeys(entry for entry in add if entry not in self.all)
        self.all |= new
        touched = dict.fromkeys((entry.pattern == Pattern.PREFIXED, entry.name) for entry in (*gone, *new))
        added = _by_place(new)
        for prefixed, name in touched:
            places = self._prefixed if prefixed else self._literal
            left = (
                *(entry for entry in places.get(name, ()) if entry not in gone),
                *added.get((prefixed, name), ()),
            )
            if left:
                places[name] = left
            else:
                places.pop(name, None)
        self._lengths = tuple({len(prefix) for prefix in self._prefixed})

    def about(self, name: str) -> list[Acl]:
        found = [*self._literal.get(name, ()), *(self._literal.get(WILDCARD, ()) if name != WILDCARD else ())]
        for length in self._lengths:
            if length <= len(name):
                found += self._prefixed.get(name[:length], ())
        return found

    def named(self, name: str) -> tuple[Acl, ...]:
        """Those with exactly this name, whether it is one or the begin of many."""
        return (*self._literal.get(name, ()), *self._prefixed.get(name, ()))


def _by_place(entries: Iterable[Acl]) -> dict[tuple[bool, str], list[Acl]]:
    places: dict[tuple[bool, str], list[Acl]] = {}
    for entry in entries:
        places.setdefault((entry.pattern == Pattern.PREFIXED, entry.name), []).append(entry)
    return places


class Acls:
    """All entries, found by the kind of resource."""

    def __init__(self, super_users: Iterable[str] = (), allow_if_none: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.allow_if_none = allow_if_none
        self._entries: dict[Resource, Entries] = {}

    def __iter__(self) -> Iterator[Acl]:
        return (entry for entries in self._entries.values() for entry in entries.all)

    def add(self, *entries: Acl) -> None:
        self.change(entries, ())

    def change(self, add: Iterable[Acl], remove: Iterable[Acl]) -> None:
        changes: dict[Resource, tuple[list[Acl], list[Acl]]] = {}
        for which, entries in enumerate((add, remove)):
            for entry in entries:
                changes.setdefault(entry.resource, ([], []))[which].append(entry)
        for resource, (new, gone) in changes.items():
            self._entries.setdefault(resource, Entries()).change(new, gone)

    def candidates(self, wanted: Filter) -> list[Acl]:
        """Those among which are all that a filter means: few where it names a resource."""
        kinds = [self._entries[kind] for kind in self._entries if wanted.resource in (Resource.ANY, kind)]
        if wanted.name is None:
            return [entry for entries in kinds for entry in entries.all]
        if wanted.pattern == Pattern.MATCH:
            return [entry for entries in kinds for entry in entries.about(wanted.name)]
        return [entry for entries in kinds for entry in entries.named(wanted.name)]

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        if principal in self.super_users:
            return True
        entries = self._entries.get(resource)
        about = entries.about(name) if entries is not None else ()
        if not about:
            return self.allow_if_none
        mine = [entry for entry in about if entry.principal in (principal, _ANYBODY) and entry.host in (host, WILDCARD)]
        if any(entry.permission == Permission.DENY and entry.operation in (operation, Operation.ALL) for entry in mine):
            return False
        enough = _IMPLIED_BY.get(operation, (operation, Operation.ALL))
        return any(entry.permission == Permission.ALLOW and entry.operation in enough for entry in mine)

    def allows_any(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether there is, or could be, a resource of the kind with which it may be done."""
        if principal in self.super_users:
            return True
        entries = self._entries.get(resource)
        every = list(entries.all) if entries is not None else []
        mine = [entry for entry in every if entry.principal in (principal, _ANYBODY) and entry.host in (host, WILDCARD)]
        wanted = [entry for entry in mine if entry.operation in (operation, Operation.ALL)]
        denied = [entry for entry in wanted if entry.permission == Permission.DENY]
        if any(entry.pattern == Pattern.LITERAL and entry.name == WILDCARD for entry in denied):
            return False
        allowed = [entry for entry in wanted if entry.permission == Permission.ALLOW]
        if self.allow_if_none and not denied:
            return True
        return any(not _covered(entry, denied) for entry in allowed)


def _covered(entry: Acl, denied: list[Acl]) -> bool:
    """Whether everything that an entry allows is denied by another."""
    if entry.pattern == Pattern.LITERAL:
        return entry.name != WILDCARD and any(speaks_of(other, entry.name) for other in denied)
    return any(other.pattern == Pattern.PREFIXED and entry.name.startswith(other.name) for other in denied)
