"""A member of the consumer protocol on a stage: virtual time, what it sent, answers written by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from client.scripted import Stage, tps
from kohort.client.effects import Assign, MetadataSnapshot, RefreshMetadata, TopicSnapshot
from kohort.client.modern.member import ModernMember
from kohort.client.states import MemberConfig
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse

HEARTBEAT_MS = 5_000


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")[:16]


class ModernStage(Stage):
    """Metadata knows the topics of `topics`, each with an id made of its name (or of `ids`)."""

    def __init__(
        self, topics: dict[str, int] | None = None, uniform: Callable[[], float] = lambda: 0.5, **config: Any
    ) -> None:
        super().__init__(topics=topics, **config)
        self.member: ModernMember = ModernMember(self.member.config, uniform)  # type: ignore[assignment]
        self.ids = {name: topic_id(name) for name in self.topics}

    def do(self, effects: list[Any]) -> None:
        """Metadata comes when the test says so."""
        wanted = [effect for effect in effects if isinstance(effect, RefreshMetadata)]
        super().do([effect for effect in effects if effect not in wanted])
        self.effects += wanted

    @property
    def config(self) -> MemberConfig:
        return self.member.config

    def metadata(self, covers: Iterable[str] | None = None) -> None:
        known = {name: TopicSnapshot(count) for name, count in self.topics.items()}
        ids = {name: self.ids.get(name, topic_id(name)) for name in known}
        snapshot = MetadataSnapshot(known, None if covers is None else frozenset(covers), ids)
        self.do(self.member.metadata_updated(snapshot, self.now_ms))

    def metadata_wanted(self) -> bool:
        return bool(self.of(RefreshMetadata))

    # -- answers

    def heartbeat(self, epoch: int = 1, **assigned: list[int]) -> Any:
        """An answer with an assignment, where there is one; `nothing()` for an empty one."""
        request = self.request("ConsumerGroupHeartbeat")
        self.answer(self._accepted(epoch, assigned or None))
        return request

    def nothing(self, epoch: int = 1) -> Any:
        request = self.request("ConsumerGroupHeartbeat")
        self.answer(self._accepted(epoch, {}))
        return request

    def _accepted(self, epoch: int, assigned: dict[str, list[int]] | None) -> Any:
        made = ConsumerGroupHeartbeatResponse
        assignment = None
        if assigned is not None:
            topics = [
                made.TopicPartitions(topic_id=self.ids.get(name, topic_id(name)), partitions=numbers)
                for name, numbers in assigned.items()
            ]
            assignment = made.Assignment(topic_partitions=topics)
        return made(
            member_id=self.member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=HEARTBEAT_MS,
            assignment=assignment,
        )

    def refuse(self, code: ErrorCode, message: str | None = None) -> Any:
        request = self.request("ConsumerGroupHeartbeat")
        self.answer(ConsumerGroupHeartbeatResponse(error_code=code, error_message=message))
        return request

    # -- whole stretches

    def joining(self, *topics: str) -> Any:
        """Subscribed, the coordinator found: the heartbeat that joins."""
        self.subscribe(*(topics or ("orders",)))
        self.metadata()
        self.coordinator_found()
        return self.request("ConsumerGroupHeartbeat")

    def stable(self, *partitions: int, epoch: int = 1) -> None:  # type: ignore[override]
        """Subscribed to orders, joined, assigned, acknowledged."""
        self.joining()
        if partitions:
            self.heartbeat(epoch, orders=list(partitions))
        else:
            self.nothing(epoch)
        self.act(Assign)
        if partitions:
            self.heartbeat(epoch)
        self.effects.clear()
        assert self.member.settled
        self.quiet()


def owned_in(request: Any) -> dict[str, list[int]] | None:
    """What a heartbeat says of its partitions, by the names of `topic_id`; None where it says nothing."""
    if request.topic_partitions is None:
        return None
    return {bytes(one.topic_id).decode().rstrip("."): list(one.partitions) for one in request.topic_partitions}


__all__ = ["HEARTBEAT_MS", "ModernStage", "owned_in", "topic_id", "tps"]
