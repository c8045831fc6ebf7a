"""A member of a classic group: what it said when it joined, what it was given, and where it waits for us."""

from __future__ import annotations

from sys import intern
from typing import Any

from kohort.coordinator.causes import Who
from kohort.coordinator.effects import Request
from kohort.coordinator.records import StoredMember
from kohort.coordinator.timers import Deadline

UNKNOWN_MEMBER_ID = ""

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata) in the order of the member's preference


def protocols_of(request: Any) -> Protocols:
    """A name given twice counts once, with its first metadata: it must not have two votes."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(intern(protocol.name), protocol.metadata)
    return tuple(protocols.items())


class Member:
    """Kafka's MemberMetadata."""

    __slots__ = (
        "assignment",
        "heartbeat",
        "instance_id",
        "is_new",
        "member_id",
        "parked_join",
        "parked_sync",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "who",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        heartbeat: Deadline,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.who = Who(member_id, instance_id, client_id, client_host)
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.parked_join: Request | None = None
        self.parked_sync: Request | None = None
        self.is_new = False  # until its first generation; a new member may time out while it waits in its join
        self.heartbeat = heartbeat

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Waiting for us is being alive, except for a new member, whose client may be gone without our knowing."""
        return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)

    @property
    def client_id(self) -> str:
        return self.who.client_id

    @property
    def client_host(self) -> str:
        return self.who.client_host

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id} does not support protocol {protocol}")

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def to_stored(self, protocol: str | None, assignment: bytes) -> StoredMember:
        return StoredMember(
            *self.who,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def __repr__(self) -> str:
        return f"Member({self.member_id}, instance={self.instance_id})"
