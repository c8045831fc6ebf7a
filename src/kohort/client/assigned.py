"""What a consumer reads and where it is in it: assigned partitions, positions, pauses. No requests are made here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohort.client.chunks import Deserializer
from kohort.client.errors import NoOffsetForPartitionError
from kohort.client.metrics import Standing
from kohort.client.positions import FetchState, Leader, PartitionState, Position
from kohort.client.types import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_partition_bytes: int = 1_048_576
    max_wait_ms: int = 500
    prefetch_max_bytes: int = 67_108_864
    read_committed: bool = False
    check_crcs: bool = True
    auto_offset_reset: str = "latest"
    client_rack: str = ""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    key_deserializer: Deserializer = None
    value_deserializer: Deserializer = None


class Assigned:
    """Positions and buffered data of every assigned partition."""

    def __init__(self, config: FetcherConfig) -> None:
        self.config = config
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._leaders: Mapping[TopicPartition, Leader] = {}
        self._topic_ids: Mapping[str, bytes] = {}
        self._topic_names: dict[bytes, str] = {}
        self._errors: deque[Exception] = deque()
        self._must_seek: set[TopicPartition] = set()
        self._held_back: frozenset[TopicPartition] = frozenset()
        self.buffered_bytes = 0

    # -- what is assigned ---------------------------------------------------------------------------------------------

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, state in self._partitions.items() if state.paused)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; those that stay keep position, data and pause."""
        wanted = {TopicPartition(*tp) for tp in partitions}
        for tp in [tp for tp in self._partitions if tp not in wanted]:
            self._drop(tp)
        for tp in sorted(wanted):
            if tp not in self._partitions:
                self._partitions[tp] = PartitionState(tp, self._leaders.get(tp, Leader()))

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            if tp in self._partitions:
                self._drop(tp)

    def _drop(self, tp: TopicPartition) -> None:
        state = self._partitions.pop(tp)
        self._must_seek.discard(tp)
        self._forget_buffered(state)

    def _forget_buffered(self, state: PartitionState) -> None:
        self.buffered_bytes -= state.buffered_bytes
        state.drop_buffered()

    def state(self, tp: TopicPartition) -> PartitionState:
        try:
            return self._partitions[tp]
        except KeyError:
            raise ValueError(f"{tp[0]}-{tp[1]} is not assigned to this consumer") from None

    # -- positions ----------------------------------------------------------------------------------------------------

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        if offset < 0:
            raise ValueError(f"cannot seek {tp[0]}-{tp[1]} to {offset}: offsets begin at 0")
        state = self.state(tp)
        self._forget_buffered(state)
        state.seek(Position(offset, leader_epoch))

    def seek_to(self, partitions: Iterable[TopicPartition], strategy: str) -> None:
        """`earliest` or `latest`, looked up when data is next fetched."""
        for state in [self.state(tp) for tp in partitions]:
            self._forget_buffered(state)
            state.reset(strategy)

    def position(self, tp: TopicPartition) -> int | None:
        position = self.state(tp).position
        return None if position is None else position.offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state(tp) for tp in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state(tp) for tp in partitions]:
            state.paused = False

    def hold_back(self, partitions: frozenset[TopicPartition]) -> None:
        """Neither fetch nor hand out these: they are about to be given up. Replaces what was held back before."""
        if partitions or self._held_back:
            self._held_back = partitions
            for tp, state in self._partitions.items():
                state.held = tp in partitions

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit: the positions after the records that were handed out."""
        return {
            tp: OffsetAndMetadata(state.position.offset, "", state.position.epoch)
            for tp, state in self._partitions.items()
            if state.position is not None and state.state is not FetchState.INITIALIZING
        }

    def standings(self) -> dict[TopicPartition, Standing]:
        """How far each position is from the ends of its log."""
        return {
            tp: Standing(state.lag(self.config.read_committed), state.lead) for tp, state in self._partitions.items()
        }

    def initializing(self) -> frozenset[TopicPartition]:
        """Partitions whose committed offset must be looked up."""
        found = (tp for tp, state in self._partitions.items() if state.state is FetchState.INITIALIZING)
        return frozenset(found) - self._must_seek

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Committed offsets arrived: start there, or as auto.offset.reset says where there is none."""
        for tp, committed in offsets.items():
            state = self._partitions.get(tp)
            if state is None or state.state is not FetchState.INITIALIZING:
                continue
            if committed is not None:
                state.seek(Position(committed.offset, committed.leader_epoch))
            elif self.config.auto_offset_reset == "none":
                self._must_seek.add(tp)
            else:
                state.reset(self.config.auto_offset_reset)

    def metadata_updated(self, leaders: Mapping[TopicPartition, Leader], topic_ids: Mapping[str, bytes]) -> None:
        self._leaders = leaders
        self._topic_ids = topic_ids
        self._topic_names = {topic_id: name for name, topic_id in topic_ids.items()}
        for tp, state in self._partitions.items():
            before = state.buffered_bytes
            state.leader_changed(leaders.get(tp, Leader()))
            self.buffered_bytes -= before - state.buffered_bytes

    # -- errors for the application ---------------------------------------------------------------------------------

    def take_error(self) -> Exception | None:
        if self._errors:
            return self._errors.popleft()
        self._must_seek = {tp for tp in self._must_seek if self._lacks_position(tp)}
        return NoOffsetForPartitionError(sorted(self._must_seek)) if self._must_seek else None

    @property
    def has_error(self) -> bool:
        return bool(self._errors) or any(map(self._lacks_position, self._must_seek))

    def _lacks_position(self, tp: TopicPartition) -> bool:
        state = self._partitions.get(tp)
        return state is not None and state.state is FetchState.INITIALIZING
