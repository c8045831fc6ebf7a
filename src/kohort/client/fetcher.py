"""What to fetch next and what came of it, sans-IO: positions, resets, validation, prefetching, isolation.

`plan(now_ms)` gives requests per node, at most one fetch in flight to each; the shell answers with `received` or
`failed`. Data waits in chunks, at most `prefetch_max_bytes` of it; `take` hands out records and moves positions.
Unlike Kafka's consumer a partition is fetched ahead while earlier data of it waits: network and application overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kohort.client import lookup_messages as lookups
from kohort.client.assigned import Assigned, FetcherConfig
from kohort.client.chunks import Chunk, extents
from kohort.client.config import parse_duration_ms
from kohort.client.errors import (
    LogTruncationError,
    OffsetOutOfRangeError,
    RecordError,
    error_for,
)
from kohort.client.metrics import Standing, Taken
from kohort.client.positions import NO_NODE, FetchState, PartitionState, Position
from kohort.client.types import NO_LEADER_EPOCH, ConsumerRecord, OffsetAndMetadata, TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FetchRequest
from kohort.protocol.uuids import ZERO_UUID

LAST_VERSION_WITH_NAMES = 12
VALIDATION_MIN_VERSION = 3
CHUNKS_AHEAD = 2


class Question(Enum):
    FETCH = "Fetch"
    RESET = "ListOffsets"
    VALIDATE = "OffsetForLeaderEpoch"


@dataclass(slots=True)
class NodeRequest:
    """One request to one node. `asked` is what the answer will be checked against."""

    token: int
    node_id: int
    question: Question
    request: Any
    asked: dict[TopicPartition, Any]
    min_version: int = 0
    max_version: int | None = None


class Fetcher(Assigned):
    """Plans requests per node, takes in their answers, hands out records."""

    def __init__(self, config: FetcherConfig) -> None:
        super().__init__(config)
        self._ready: deque[Chunk] = deque()
        self._in_flight: dict[int, NodeRequest] = {}
        self._fetching_nodes: dict[int, int] = {}
        self._token = 0
        self._skip_validation: set[int] = set()
        self._taken: dict[TopicPartition, Taken] = {}
        self.metadata_wanted = False
        """Set when an answer showed that metadata is stale; the shell refreshes and clears it."""

    # -- planning -----------------------------------------------------------------------------------------------------

    def plan(self, now_ms: int, wall_ms: int | None = None) -> list[NodeRequest]:
        """Requests that can be sent now. `wall_ms` is the time of day, where `now_ms` is not."""
        resets = self._plan_resets(now_ms, now_ms if wall_ms is None else wall_ms)
        requests = [*resets, *self._plan_validations(now_ms), *self._plan_fetches(now_ms)]
        for request in requests:
            self._in_flight[request.token] = request
        return requests

    def next_retry(self, now_ms: int) -> int | None:
        """When a partition that backs off may be asked for again."""
        return min((s.retry_at_ms for s in self._partitions.values() if s.retry_at_ms > now_ms), default=None)

    def _new(self, node_id: int, question: Question, request: Any, asked: dict[TopicPartition, Any]) -> NodeRequest:
        self._token += 1
        return NodeRequest(self._token, node_id, question, request, asked)

    def _waiting(self, wanted: FetchState, now_ms: int) -> dict[int, list[PartitionState]]:
        """Partitions in a state by leader, without those that back off or were asked for already."""
        asked = {
            tp for request in self._in_flight.values() if request.question is not Question.FETCH for tp in request.asked
        }
        by_node: dict[int, list[PartitionState]] = {}
        for tp, state in self._partitions.items():
            if state.state is not wanted or state.retry_at_ms > now_ms or tp in asked:
                continue
            if state.leader.node_id == NO_NODE:
                self.metadata_wanted = True
                continue
            by_node.setdefault(state.leader.node_id, []).append(state)
        return by_node

    def _plan_resets(self, now_ms: int, wall_ms: int) -> list[NodeRequest]:
        requests = []
        for node_id, states in self._waiting(FetchState.AWAIT_RESET, now_ms).items():
            timestamps = {state.tp: reset_timestamp(state.reset_to or "latest", wall_ms) for state in states}
            leaders = {state.tp: state.leader for state in states}
            request = lookups.list_offsets_request(
                timestamps, leaders, self.config.read_committed, self.config.request_timeout_ms
            )
            asked = {state.tp: state.reset_to for state in states}
            requests.append(self._new(node_id, Question.RESET, request, asked))
        return requests

    def _plan_validations(self, now_ms: int) -> list[NodeRequest]:
        requests = []
        for node_id, states in self._waiting(FetchState.AWAIT_VALIDATION, now_ms).items():
            if node_id in self._skip_validation:
                for state in states:
                    state.transition_to(FetchState.FETCHING)
                continue
            positions = [(state.tp, state.position, state.leader) for state in states if state.position is not None]
            request = lookups.epoch_request(positions)
            planned = self._new(node_id, Question.VALIDATE, request, {tp: position for tp, position, _ in positions})
            planned.min_version = VALIDATION_MIN_VERSION
            requests.append(planned)
        return requests

    def _plan_fetches(self, now_ms: int) -> list[NodeRequest]:
        if self.buffered_bytes >= self.config.prefetch_max_bytes:
            return []
        by_node: dict[int, list[PartitionState]] = {}
        full: set[int] = set()
        for state in self._partitions.values():
            if not state.readable or state.retry_at_ms > now_ms:
                continue
            node_id = state.node_to_read_from(now_ms)
            if node_id == NO_NODE:
                self.metadata_wanted = True
                continue
            if len(state.chunks) >= CHUNKS_AHEAD:
                # A fetch without this partition would long-poll for the idle ones while this one runs dry.
                full.add(node_id)
            by_node.setdefault(node_id, []).append(state)
        return [
            self._fetch_request(node_id, states)
            for node_id, states in by_node.items()
            if node_id not in full and node_id not in self._fetching_nodes
        ]

    def _fetch_request(self, node_id: int, states: list[PartitionState]) -> NodeRequest:
        config = self.config
        topics: dict[str, list[Any]] = {}
        asked: dict[TopicPartition, int] = {}
        for state in states:
            offset = state.fetch_ahead
            assert offset is not None
            asked[state.tp] = offset
            topics.setdefault(state.tp.topic, []).append(
                FetchRequest.FetchPartition(
                    partition=state.tp.partition,
                    current_leader_epoch=state.leader.epoch,
                    fetch_offset=offset,
                    partition_max_bytes=config.max_partition_bytes,
                )
            )
        ids = {topic: self._topic_ids.get(topic, ZERO_UUID) for topic in topics}
        request = FetchRequest(
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=int(config.read_committed),
            session_epoch=-1,
            topics=[
                FetchRequest.FetchTopic(topic=topic, topic_id=ids[topic], partitions=partitions)
                for topic, partitions in topics.items()
            ],
            rack_id=config.client_rack,
        )
        planned = self._new(node_id, Question.FETCH, request, asked)
        if ZERO_UUID in ids.values():
            planned.max_version = LAST_VERSION_WITH_NAMES
        self._fetching_nodes[node_id] = planned.token
        return planned

    # -- answers ------------------------------------------------------------------------------------------------------

    def received(self, token: int, response: Any, now_ms: int) -> None:
        request = self._in_flight.pop(token, None)
        if request is None:
            return
        if request.question is Question.FETCH:
            self._fetching_nodes.pop(request.node_id, None)
            self._fetch_answer(request, response, now_ms)
        elif request.question is Question.RESET:
            self._reset_answer(request, response, now_ms)
        else:
            self._validation_answer(request, response, now_ms)

    def failed(self, token: int, now_ms: int, error: KafkaError | None = None) -> None:
        """No answer. The partitions are asked for again after a backoff, from whoever leads them by then."""
        request = self._in_flight.pop(token, None)
        if request is None:
            return
        if request.question is Question.FETCH:
            self._fetching_nodes.pop(request.node_id, None)
        if error is not None and error.code is ErrorCode.UNSUPPORTED_VERSION:
            if request.question is Question.VALIDATE:
                self._skip_validation.add(request.node_id)
                return
            self._errors.append(error)
        elif error is not None and not error.code.retriable:
            self._errors.append(error)
        self.metadata_wanted = True
        for tp in request.asked:
            self._back_off(tp, now_ms)

    def _back_off(self, tp: TopicPartition, now_ms: int) -> None:
        if tp in self._partitions:
            self._partitions[tp].retry_at_ms = now_ms + self.config.retry_backoff_ms
            self._partitions[tp].preferred_replica = None

    def _fetch_answer(self, request: NodeRequest, response: Any, now_ms: int) -> None:
        if response.error_code:
            self._back_off_all(request, now_ms)
            return
        for topic in response.responses:
            name = topic.topic or self._topic_names.get(topic.topic_id, "")
            for partition in topic.partitions:
                tp = TopicPartition(name, partition.partition_index)
                state = self._partitions.get(tp)
                offset = request.asked.get(tp)
                if state is None or offset is None or state.fetch_ahead != offset:
                    continue
                if state.state is not FetchState.FETCHING:
                    continue
                if partition.error_code:
                    self._partition_error(state, ErrorCode.of(partition.error_code), offset, now_ms)
                else:
                    self._partition_data(state, partition, offset, now_ms)

    def _back_off_all(self, request: NodeRequest, now_ms: int) -> None:
        self.metadata_wanted = True
        for tp in request.asked:
            self._back_off(tp, now_ms)

    def _partition_data(self, state: PartitionState, partition: Any, offset: int, now_ms: int) -> None:
        if partition.high_watermark >= 0:
            state.high_watermark = partition.high_watermark
        if partition.last_stable_offset >= 0:
            state.last_stable_offset = partition.last_stable_offset
        if partition.log_start_offset >= 0:
            state.log_start_offset = partition.log_start_offset
        if partition.preferred_read_replica >= 0:
            state.preferred_replica = partition.preferred_read_replica
            state.preferred_until_ms = now_ms + self.config.metadata_max_age_ms
            return
        data = partition.records
        if data is None or len(data) == 0:
            return
        aborted: list[tuple[int, int]] = []
        if self.config.read_committed and partition.aborted_transactions:
            aborted = [(found.producer_id, found.first_offset) for found in partition.aborted_transactions]
        runs = extents(data, by_epoch=not aborted)
        if not runs:
            self._errors.append(RecordError(state.tp, offset, f"{len(data)} bytes without a whole record batch"))
            self._back_off(state.tp, now_ms)
            return
        for run in runs:
            if run.next_offset <= offset:
                continue
            piece = data[run.start : run.end]
            chunk = Chunk(state.tp, piece, offset, run.next_offset, run.leader_epoch, aborted, self.config.check_crcs)
            state.chunks.append(chunk)
            state.buffered_bytes += len(piece)
            self.buffered_bytes += len(piece)
            self._ready.append(chunk)
            offset = run.next_offset
        state.fetch_ahead = offset

    def _partition_error(self, state: PartitionState, code: ErrorCode, offset: int, now_ms: int) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, offset, now_ms)
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._errors.append(error_for(code, f"not allowed to read topic {state.tp.topic}"))
            self._back_off(state.tp, now_ms)
        elif code is ErrorCode.CORRUPT_MESSAGE:
            self._errors.append(RecordError(state.tp, offset, "the broker found the batch damaged"))
            self._back_off(state.tp, now_ms)
        else:
            self._back_off(state.tp, now_ms)
            self.metadata_wanted = True
            if not code.retriable and code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                self._errors.append(error_for(code, f"fetching {state.tp} at {offset}: {code.message}"))

    def _out_of_range(self, state: PartitionState, offset: int, now_ms: int) -> None:
        if state.preferred_replica is not None:
            state.preferred_replica = None
        elif state.chunks:
            self._back_off(state.tp, now_ms)  # what is buffered comes first; it is asked for again then
        elif self.config.auto_offset_reset == "none":
            self._errors.append(OffsetOutOfRangeError({state.tp: offset}))
            self._back_off(state.tp, now_ms)
        else:
            state.reset(self.config.auto_offset_reset)

    def _reset_answer(self, request: NodeRequest, response: Any, now_ms: int) -> None:
        found = lookups.listed_offsets(response)
        for tp, code in found.errors.items():
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._errors.append(error_for(code, f"not allowed to read topic {tp.topic}"))
            self._back_off(tp, now_ms)
            self.metadata_wanted = True
        for tp, listed in found.offsets.items():
            state = self._partitions.get(tp)
            if state is None or state.state is not FetchState.AWAIT_RESET or state.reset_to != request.asked.get(tp):
                continue
            if listed is None:
                state.reset("latest")  # by_duration: no record is that young
            else:
                state.seek_valid(Position(listed.offset, NO_LEADER_EPOCH))

    def _validation_answer(self, request: NodeRequest, response: Any, now_ms: int) -> None:
        ends, errors = lookups.epoch_ends(response)
        for tp, code in errors.items():
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._errors.append(error_for(code, f"not allowed to read topic {tp.topic}"))
            self._back_off(tp, now_ms)
            self.metadata_wanted = True
        lost: dict[TopicPartition, int] = {}
        divergent: dict[TopicPartition, OffsetAndMetadata] = {}
        for tp, end in ends.items():
            state = self._partitions.get(tp)
            if (
                state is None
                or state.state is not FetchState.AWAIT_VALIDATION
                or state.position != request.asked.get(tp)
            ):
                continue
            self._judge(state, end, lost, divergent, now_ms)
        if lost:
            self._errors.append(LogTruncationError(lost, divergent))

    def _judge(
        self,
        state: PartitionState,
        end: lookups.EpochEnd,
        lost: dict[TopicPartition, int],
        divergent: dict[TopicPartition, OffsetAndMetadata],
        now_ms: int,
    ) -> None:
        """Is the position still in the leader's log (KIP-320)?"""
        assert state.position is not None
        unknown = end.end_offset < 0 or end.leader_epoch < 0
        if not unknown and end.end_offset >= state.position.offset:
            state.transition_to(FetchState.FETCHING)
        elif self.config.auto_offset_reset != "none":
            if unknown:
                state.reset(self.config.auto_offset_reset)
            else:
                state.seek_valid(Position(end.end_offset, end.leader_epoch))
        else:
            lost[state.tp] = state.position.offset
            if not unknown:
                divergent[state.tp] = OffsetAndMetadata(end.end_offset, "", end.leader_epoch)
            self._back_off(state.tp, now_ms)

    # -- handing out --------------------------------------------------------------------------------------------------

    @property
    def has_data(self) -> bool:
        return any(self._usable(chunk) for chunk in self._ready)

    def _usable(self, chunk: Chunk) -> bool:
        state = self._partitions.get(chunk.tp)
        return state is not None and state.readable and bool(state.chunks) and state.chunks[0] is chunk

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Records in order of arrival; positions move past them. An error is raised once what came before it is out."""
        records: list[ConsumerRecord] = []
        for chunk, state in self._take_ready():
            try:
                part = chunk.take(
                    max_records - len(records), self.config.key_deserializer, self.config.value_deserializer
                )
            except RecordError:
                self._ready.appendleft(chunk)
                if records:
                    break
                raise
            records = records + part if records else part
            self._count(chunk.tp, len(part), 0)
            if chunk.exhausted:
                self._finish(chunk, state)
            else:
                self._ready.appendleft(chunk)
                if part:
                    state.position = Position(part[-1].offset + 1, chunk.leader_epoch)
            if len(records) >= max_records:
                break
        return records

    def take_chunks(self, enough: Callable[[Chunk], bool]) -> list[Chunk]:
        """Whole chunks, for decoding elsewhere; positions move past them."""
        chunks = []
        for chunk, state in self._take_ready():
            if state.position is not None and chunk.from_offset < state.position.offset:
                chunk.from_offset = state.position.offset
            self._count(chunk.tp, chunk.next_offset - chunk.from_offset, 0)
            self._finish(chunk, state)
            chunks.append(chunk)
            if enough(chunk):
                break
        return chunks

    def _take_ready(self) -> Iterator[tuple[Chunk, PartitionState]]:
        """Chunks that are next in their partition; those of paused partitions stay, stale ones go."""
        aside: list[Chunk] = []
        try:
            while self._ready:
                chunk = self._ready.popleft()
                state = self._partitions.get(chunk.tp)
                if state is None or not state.chunks or state.chunks[0] is not chunk:
                    continue
                if not state.readable:
                    aside.append(chunk)
                    continue
                yield chunk, state
        finally:
            self._ready.extendleft(reversed(aside))

    def take_counts(self) -> dict[TopicPartition, Taken]:
        """Handed out since the last call, and where each of these partitions stands now."""
        taken, self._taken = self._taken, {}
        for tp, counts in taken.items():
            if (state := self._partitions.get(tp)) is not None:
                counts.standing = Standing(state.lag(self.config.read_committed), state.lead)
        return taken

    def _count(self, tp: TopicPartition, records: int, size: int) -> None:
        counts = self._taken.get(tp)
        if counts is None:
            counts = self._taken[tp] = Taken()
        counts.records += records
        counts.size += size

    def _finish(self, chunk: Chunk, state: PartitionState) -> None:
        self._count(chunk.tp, 0, len(chunk.data))
        state.chunks.popleft()
        state.buffered_bytes -= len(chunk.data)
        self.buffered_bytes -= len(chunk.data)
        state.position = Position(chunk.next_offset, chunk.leader_epoch)


def reset_timestamp(strategy: str, wall_ms: int) -> int:
    if strategy == "earliest":
        return lookups.EARLIEST
    if strategy == "latest":
        return lookups.LATEST
    return wall_ms - parse_duration_ms(strategy.partition(":")[2])
