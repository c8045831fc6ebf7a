"""The fetcher against scripted brokers: positions, resets, validation, prefetching, isolation, errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from client.scripted import tp
from kohort.client.errors import (
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordError,
)
from kohort.client.fetcher import Fetcher, FetcherConfig, NodeRequest, Question
from kohort.client.positions import FETCH_TRANSITIONS, FetchState, Leader
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from kohort.protocol.uuids import ZERO_UUID
from kohort.records.batch import Compression, Record, build_batch
from kohort.records.control import ControlType, build_marker

ORDERS = bytes(range(16))
NOW = 5_000


def batch(first: int, count: int, **options: Any) -> bytes:
    options.setdefault("partition_leader_epoch", 3)
    records = [Record(first + i, 1_000 + i, b"k", b"v%d" % (first + i)) for i in range(count)]
    return build_batch(records, base_offset=first, **options)


class Brokers:
    """A fetcher, the leaders it knows and the requests it has sent."""

    def __init__(self, *partitions: str, **config: Any) -> None:
        config.setdefault("auto_offset_reset", "earliest")
        self.fetcher = Fetcher(FetcherConfig(**config))
        self.now_ms = NOW
        self.leaders = {tp(name): Leader(1, 3) for name in partitions}
        self.fetcher.assign(self.leaders)
        self.update()

    def update(self) -> None:
        self.fetcher.metadata_updated(self.leaders, {"orders": ORDERS})

    def committed(self, **offsets: int | None) -> None:
        self.fetcher.committed(
            {
                tp(name.replace("_", "-")): None if offset is None else OffsetAndMetadata(offset, "", 3)
                for name, offset in offsets.items()
            }
        )

    def plan(self, *questions: Question) -> list[NodeRequest]:
        requests = self.fetcher.plan(self.now_ms)
        assert [request.question for request in requests] == list(questions)
        return requests

    def fetching(self) -> NodeRequest:
        """Fetch after validation of committed positions."""
        for request in self.fetcher.plan(self.now_ms):
            if request.question is Question.VALIDATE:
                self.validated(request)
            elif request.question is Question.FETCH:
                return request
        (request,) = self.plan(Question.FETCH)
        return request

    def validated(self, request: NodeRequest, end: int = 10**6, epoch: int = 3, error: int = 0) -> None:
        made = OffsetForLeaderEpochResponse
        topics = [
            made.OffsetForLeaderTopicResult(
                topic=asked.topic,
                partitions=[
                    made.EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end, error_code=error)
                ],
            )
            for asked in request.asked
        ]
        self.fetcher.received(request.token, made(topics=topics), self.now_ms)

    def listed(self, request: NodeRequest, offset: int, error: int = 0) -> None:
        made = ListOffsetsResponse
        topics = [
            made.ListOffsetsTopicResponse(
                name=asked.topic,
                partitions=[
                    made.ListOffsetsPartitionResponse(
                        partition_index=asked.partition, offset=offset, error_code=error, leader_epoch=3
                    )
                ],
            )
            for asked in request.asked
        ]
        self.fetcher.received(request.token, made(topics=topics), self.now_ms)

    def data(self, request: NodeRequest, *batches: bytes, name: str = "orders-0", **fields: Any) -> None:
        self.answer(request, {tp(name): (b"".join(batches), fields)})

    def error(self, request: NodeRequest, code: ErrorCode, name: str = "orders-0") -> None:
        self.answer(request, {tp(name): (b"", {"error_code": code})})

    def answer(self, request: NodeRequest, found: dict[TopicPartition, tuple[bytes, dict[str, Any]]]) -> None:
        made = FetchResponse
        responses = []
        for asked, (data, fields) in found.items():
            fields = {"high_watermark": 100, "last_stable_offset": 100, "log_start_offset": 0, **fields}
            partition = made.PartitionData(partition_index=asked.partition, records=memoryview(data), **fields)
            responses.append(
                made.FetchableTopicResponse(
                    topic_id=ORDERS if asked.topic == "orders" else ZERO_UUID, partitions=[partition]
                )
            )
        self.fetcher.received(request.token, made(responses=responses), self.now_ms)

    def offsets(self, limit: int = 500) -> list[int]:
        return [record.offset for record in self.fetcher.take(limit)]


# -- positions -------------------------------------------------------------------------------------------------------


def test_a_committed_position_is_validated_then_fetched_from() -> None:
    brokers = Brokers("orders-0")
    assert brokers.fetcher.initializing() == {tp("orders-0")}
    brokers.plan()
    brokers.committed(orders_0=7)
    (request,) = brokers.plan(Question.VALIDATE)
    partition = request.request.topics[0].partitions[0]
    assert (partition.leader_epoch, partition.current_leader_epoch) == (3, 3)
    brokers.plan()
    brokers.validated(request)
    (request,) = brokers.plan(Question.FETCH)
    partition = request.request.topics[0].partitions[0]
    assert (partition.fetch_offset, partition.current_leader_epoch) == (7, 3)
    assert request.request.topics[0].topic_id == ORDERS
    brokers.data(request, batch(7, 3))
    records = brokers.fetcher.take(500)
    assert [(r.offset, r.value, r.leader_epoch) for r in records] == [(7, b"v7", 3), (8, b"v8", 3), (9, b"v9", 3)]
    assert brokers.fetcher.position(tp("orders-0")) == 10
    assert brokers.fetcher.consumed() == {tp("orders-0"): OffsetAndMetadata(10, "", 3)}


@pytest.mark.parametrize(
    ("strategy", "timestamp"), [("earliest", -2), ("latest", -1), ("by_duration:PT2S", NOW - 2_000)]
)
def test_without_a_commit_the_position_is_reset(strategy: str, timestamp: int) -> None:
    brokers = Brokers("orders-0", auto_offset_reset=strategy)
    brokers.committed(orders_0=None)
    (request,) = brokers.plan(Question.RESET)
    assert request.request.topics[0].partitions[0].timestamp == timestamp
    brokers.listed(request, 42)
    (request,) = brokers.plan(Question.FETCH)
    assert request.asked == {tp("orders-0"): 42}


def test_without_a_commit_and_a_reset_policy_the_application_must_seek() -> None:
    brokers = Brokers("orders-0", auto_offset_reset="none")
    brokers.committed(orders_0=None)
    error = brokers.fetcher.take_error()
    assert isinstance(error, NoOffsetForPartitionError)
    assert "auto.offset.reset" in str(error)
    brokers.fetcher.seek(tp("orders-0"), 5)
    assert brokers.plan(Question.FETCH)[0].asked == {tp("orders-0"): 5}


def test_a_seek_drops_what_was_fetched_and_what_is_on_its_way() -> None:
    brokers = Brokers("orders-0")
    brokers.committed(orders_0=0)
    first = brokers.fetching()
    brokers.data(first, batch(0, 3))
    (second,) = brokers.plan(Question.FETCH)
    assert second.asked == {tp("orders-0"): 3}
    brokers.fetcher.seek(tp("orders-0"), 50)
    brokers.data(second, batch(3, 3))
    assert brokers.offsets() == []
    assert brokers.fetcher.buffered_bytes == 0
    (third,) = brokers.plan(Question.FETCH)
    brokers.data(third, batch(50, 2))
    assert brokers.offsets() == [50, 51]


def test_reset_answers_for_an_older_reset_are_ignored() -> None:
    brokers = Brokers("orders-0")
    brokers.committed(orders_0=None)
    (request,) = brokers.plan(Question.RESET)
    brokers.fetcher.seek(tp("orders-0"), 9)
    brokers.listed(request, 0)
    assert brokers.fetcher.position(tp("orders-0")) == 9


def test_reset_errors_back_off_and_refresh_metadata() -> None:
    brokers = Brokers("orders-0")
    brokers.committed(orders_0=None)
    (request,) = brokers.plan(Question.RESET)
    brokers.listed(request, -1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert brokers.fetcher.metadata_wanted
    brokers.plan()
    assert brokers.fetcher.next_retry(brokers.now_ms) == NOW + 100
    brokers.now_ms += 100
    brokers.plan(Question.RESET)


# -- planning --------------------------------------------------------------------------------------------------------


def test_one_fetch_in_flight_per_node() -> None:
    brokers = Brokers("orders-0", "orders-1", "orders-2")
    brokers.leaders[tp("orders-2")] = Leader(2, 3)
    brokers.update()
    for name in ("orders-0", "orders-1", "orders-2"):
        brokers.fetcher.seek(tp(name), 0)
    first, second = brokers.plan(Question.FETCH, Question.FETCH)
    assert {first.node_id: set(first.asked), second.node_id: set(second.asked)} == {
        1: {tp("orders-0"), tp("orders-1")},
        2: {tp("orders-2")},
    }
    brokers.plan()
    brokers.data(first)
    assert brokers.plan(Question.FETCH)[0].node_id == 1


def test_fetches_ahead_but_not_without_bound() -> None:
    brokers = Brokers("orders-0", "orders-1")
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.fetcher.seek(tp("orders-1"), 0)
    first = brokers.fetching()
    brokers.data(first, batch(0, 10))
    second = brokers.fetching()
    assert second.asked == {tp("orders-0"): 10, tp("orders-1"): 0}
    brokers.data(second, batch(10, 10))
    brokers.plan()  # two chunks wait: asking for the idle partition alone would long-poll while this one runs dry
    assert brokers.offsets(10) == list(range(10))
    assert brokers.fetching().asked == {tp("orders-0"): 20, tp("orders-1"): 0}


def test_the_memory_bound_stops_fetching() -> None:
    brokers = Brokers("orders-0", prefetch_max_bytes=100)
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.data(brokers.fetching(), batch(0, 10))
    assert brokers.fetcher.buffered_bytes >= 100
    brokers.plan()
    brokers.offsets()
    assert brokers.fetcher.buffered_bytes == 0
    brokers.plan(Question.FETCH)


def test_paused_partitions_are_neither_fetched_nor_handed_out() -> None:
    brokers = Brokers("orders-0", "orders-1")
    for name in ("orders-0", "orders-1"):
        brokers.fetcher.seek(tp(name), 0)
    request = brokers.fetching()
    brokers.answer(request, {tp("orders-0"): (batch(0, 2), {}), tp("orders-1"): (batch(0, 2), {})})
    brokers.fetcher.pause([tp("orders-0")])
    assert {record.partition for record in brokers.fetcher.take(500)} == {1}
    assert set(brokers.fetching().asked) == {tp("orders-1")}
    brokers.fetcher.resume([tp("orders-0")])
    assert {record.partition for record in brokers.fetcher.take(500)} == {0}


def test_partitions_about_to_be_given_up_are_held_back() -> None:
    brokers = Brokers("orders-0", "orders-1")
    for name in ("orders-0", "orders-1"):
        brokers.fetcher.seek(tp(name), 0)
    request = brokers.fetching()
    brokers.answer(request, {tp("orders-0"): (batch(0, 2), {}), tp("orders-1"): (batch(0, 2), {})})
    brokers.fetcher.hold_back(frozenset({tp("orders-0")}))
    assert {record.partition for record in brokers.fetcher.take(500)} == {1}
    assert set(brokers.fetching().asked) == {tp("orders-1")}
    brokers.fetcher.hold_back(frozenset())
    assert {record.partition for record in brokers.fetcher.take(500)} == {0}


def test_a_topic_without_an_id_is_fetched_by_name() -> None:
    brokers = Brokers("old-0")
    brokers.fetcher.seek(tp("old-0"), 0)
    request = brokers.fetching()
    assert request.max_version == 12
    assert request.request.topics[0].topic == "old"


def test_a_partition_without_a_leader_asks_for_metadata() -> None:
    brokers = Brokers("orders-0")
    brokers.leaders.clear()
    brokers.fetcher.assign([])
    brokers.update()
    brokers.fetcher.assign([tp("orders-0")])
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.plan()
    assert brokers.fetcher.metadata_wanted


def test_unassigned_data_is_dropped() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.data(brokers.fetching(), batch(0, 2))
    brokers.fetcher.unassign([tp("orders-0")])
    assert brokers.offsets() == []
    assert brokers.fetcher.buffered_bytes == 0


def test_reading_from_a_near_replica() -> None:
    brokers = Brokers("orders-0", client_rack="a")
    brokers.fetcher.seek(tp("orders-0"), 0)
    request = brokers.fetching()
    assert request.request.rack_id == "a"
    brokers.data(request, preferred_read_replica=2)
    (near,) = brokers.plan(Question.FETCH)
    assert near.node_id == 2
    brokers.error(near, ErrorCode.OFFSET_OUT_OF_RANGE)
    (again,) = brokers.plan(Question.FETCH)
    assert again.node_id == 1


# -- leader epochs ---------------------------------------------------------------------------------------------------


def moved(brokers: Brokers) -> NodeRequest:
    """Three records read, then another leader."""
    brokers.committed(orders_0=0)
    brokers.data(brokers.fetching(), batch(0, 3))
    assert brokers.offsets() == [0, 1, 2]
    brokers.leaders[tp("orders-0")] = Leader(2, 4)
    brokers.update()
    (request,) = brokers.plan(Question.VALIDATE)
    assert request.node_id == 2
    return request


def test_after_a_leader_change_the_position_is_validated() -> None:
    brokers = Brokers("orders-0")
    brokers.validated(moved(brokers), end=3)
    (request,) = brokers.plan(Question.FETCH)
    assert (request.node_id, request.asked) == (2, {tp("orders-0"): 3})


def test_truncation_moves_the_position_back_to_where_the_logs_part() -> None:
    brokers = Brokers("orders-0")
    brokers.validated(moved(brokers), end=1)
    assert brokers.fetcher.position(tp("orders-0")) == 1


def test_truncation_without_a_reset_policy_is_raised() -> None:
    brokers = Brokers("orders-0", auto_offset_reset="none")
    brokers.validated(moved(brokers), end=1)
    error = brokers.fetcher.take_error()
    assert isinstance(error, LogTruncationError)
    assert error.divergent_offsets[tp("orders-0")].offset == 1


def test_a_log_that_knows_no_such_epoch_resets() -> None:
    brokers = Brokers("orders-0")
    brokers.validated(moved(brokers), end=-1, epoch=-1)
    brokers.plan(Question.RESET)


def test_a_broker_too_old_to_validate_is_trusted() -> None:
    brokers = Brokers("orders-0")
    request = moved(brokers)
    brokers.fetcher.failed(request.token, brokers.now_ms, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    (request,) = brokers.plan(Question.FETCH)
    assert request.asked == {tp("orders-0"): 3}


def test_records_carry_the_epoch_of_their_batch() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    data = [batch(0, 1, partition_leader_epoch=1), batch(1, 1, partition_leader_epoch=2)]
    brokers.data(brokers.fetching(), *data)
    assert [record.leader_epoch for record in brokers.fetcher.take(10)] == [1, 2]


# -- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression))
def test_every_compression(codec: Compression) -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.data(brokers.fetching(), batch(0, 50, compression=codec))
    assert brokers.offsets() == list(range(50))


def test_records_come_in_slices_and_the_position_follows() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 2)
    brokers.data(brokers.fetching(), batch(0, 10))
    assert brokers.offsets(3) == [2, 3, 4]
    assert brokers.fetcher.position(tp("orders-0")) == 5
    assert brokers.offsets(3) == [5, 6, 7]
    assert brokers.offsets(3) == [8, 9]
    assert brokers.fetcher.position(tp("orders-0")) == 10


def test_a_compacted_batch_moves_the_position_past_its_end() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    sparse = build_batch([Record(0, 1, b"k", b"a"), Record(4, 1, b"k", b"b")], base_offset=0)
    brokers.data(brokers.fetching(), sparse)
    assert brokers.offsets() == [0, 4]
    assert brokers.fetcher.position(tp("orders-0")) == 5


def test_a_cut_off_batch_is_fetched_again() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.data(brokers.fetching(), batch(0, 3), batch(3, 3)[:-5])
    assert brokers.offsets() == [0, 1, 2]
    assert brokers.fetching().asked == {tp("orders-0"): 3}


def test_a_wrong_checksum_is_an_error_that_a_seek_overcomes() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    damaged = bytearray(batch(3, 3))
    damaged[-2] ^= 0xFF
    brokers.data(brokers.fetching(), batch(0, 3))
    brokers.data(brokers.fetching(), bytes(damaged))
    assert brokers.offsets() == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(RecordError, match="orders-0 at offset 3"):
            brokers.fetcher.take(10)
    brokers.fetcher.seek(tp("orders-0"), 6)
    brokers.data(brokers.fetching(), batch(6, 1))
    assert brokers.offsets() == [6]


def test_a_deserializer_that_fails_hands_out_what_came_before() -> None:
    def number(value: bytes) -> int:
        return int(value[1:])

    brokers = Brokers("orders-0", value_deserializer=number)
    brokers.fetcher.seek(tp("orders-0"), 0)
    bad = build_batch([Record(0, 1, b"k", b"v0"), Record(1, 1, b"k", b"vX"), Record(2, 1, b"k", b"v2")], base_offset=0)
    brokers.data(brokers.fetching(), bad)
    assert [record.value for record in brokers.fetcher.take(10)] == [0]
    with pytest.raises(RecordError, match="at offset 1: the deserializer failed"):
        brokers.fetcher.take(10)
    assert brokers.fetcher.position(tp("orders-0")) == 1


def transaction(first: int, producer_id: int, abort: bool) -> Iterable[bytes]:
    yield batch(first, 2, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    kind = ControlType.ABORT if abort else ControlType.COMMIT
    yield build_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, base_offset=first + 2, timestamp=1
    )


@pytest.mark.parametrize(("read_committed", "expected"), [(True, [3, 4, 6]), (False, [0, 1, 3, 4, 6])])
def test_aborted_transactions_are_left_out(read_committed: bool, expected: list[int]) -> None:
    brokers = Brokers("orders-0", read_committed=read_committed)
    brokers.fetcher.seek(tp("orders-0"), 0)
    request = brokers.fetching()
    assert request.request.isolation_level == int(read_committed)
    aborted = [FetchResponse.AbortedTransaction(producer_id=9, first_offset=0)]
    data = [*transaction(0, 9, True), *transaction(3, 9, False), batch(6, 1)]
    brokers.data(request, *data, aborted_transactions=aborted)
    assert brokers.offsets() == expected
    assert brokers.fetcher.position(tp("orders-0")) == 7


def test_whole_chunks_for_arrow() -> None:
    pytest.importorskip("pyarrow")
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 2)
    brokers.data(brokers.fetching(), batch(0, 10))
    assert brokers.offsets(3) == [2, 3, 4]
    (chunk,) = brokers.fetcher.take_chunks(lambda _: False)
    (columns,) = chunk.arrow(["offset", "value", "topic"])
    assert columns.to_pydict()["offset"] == [5, 6, 7, 8, 9]
    assert brokers.fetcher.position(tp("orders-0")) == 10


# -- errors ----------------------------------------------------------------------------------------------------------


def test_out_of_range_resets() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 1_000)
    brokers.error(brokers.fetching(), ErrorCode.OFFSET_OUT_OF_RANGE)
    brokers.plan(Question.RESET)


def test_out_of_range_without_a_reset_policy_is_raised() -> None:
    brokers = Brokers("orders-0", auto_offset_reset="none")
    brokers.fetcher.seek(tp("orders-0"), 1_000)
    brokers.error(brokers.fetching(), ErrorCode.OFFSET_OUT_OF_RANGE)
    error = brokers.fetcher.take_error()
    assert isinstance(error, OffsetOutOfRangeError)
    assert error.offsets == {tp("orders-0"): 1_000}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_errors_that_pass_refresh_metadata_and_back_off(code: ErrorCode) -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.error(brokers.fetching(), code)
    assert brokers.fetcher.metadata_wanted
    assert brokers.fetcher.take_error() is None
    brokers.plan()
    brokers.now_ms += 100
    brokers.plan(Question.FETCH)


def test_a_fetch_without_an_answer_is_repeated() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.fetcher.failed(brokers.fetching().token, brokers.now_ms)
    brokers.plan()
    brokers.now_ms += 100
    brokers.plan(Question.FETCH)


def test_topic_authorization_is_raised() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 0)
    brokers.error(brokers.fetching(), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = brokers.fetcher.take_error()
    assert isinstance(error, KafkaError) and "orders" in str(error)


def test_lag_is_never_negative() -> None:
    brokers = Brokers("orders-0")
    brokers.fetcher.seek(tp("orders-0"), 10)
    state = brokers.fetcher.state(tp("orders-0"))
    assert state.lag(False) is None
    state.high_watermark = 4
    assert state.lag(False) == 0


def test_every_state_has_its_moves() -> None:
    assert set(FETCH_TRANSITIONS) == set(FetchState)
    assert all(FetchState.INITIALIZING not in moves for moves in FETCH_TRANSITIONS.values())
