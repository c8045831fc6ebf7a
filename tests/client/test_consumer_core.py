"""The consumer's core with several scripted brokers: where requests go, what is repeated, what is given up."""

from __future__ import annotations

import asyncio
import copy
import pickle
import random
from random import Random
from typing import Any

import pytest

import kohort
from client.conftest import QUICK, Topics
from client.core_stage import CoreStage, tp
from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.consumer_core import ConsumerCore
from kohort.client.consumer_states import APPLICATION_MOVES, LOOKUP_MOVES, Application, Lookup
from kohort.client.errors import KafkaTimeoutError
from kohort.client.links import LINK_MOVES, LinkState
from kohort.client.metadata import FRESHNESS_MOVES, Freshness
from kohort.client.types import OffsetAndMetadata
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import HeartbeatResponse, LeaveGroupResponse, ListOffsetsRequest, OffsetFetchResponse

OFFSETS = {tp(0): OffsetAndMetadata(5)}

# -- where requests go -------------------------------------------------------------------------------------------------


def test_the_coordinator_gets_a_connection_of_its_own_as_soon_as_it_is_found() -> None:
    stage = CoreStage()
    stage.do(ev.Subscribe(frozenset({"orders"})))
    stage.do(ev.Poll())
    stage.metadata_if_asked()
    assert stage.opened == ["one"]
    one = stage.waiting("FindCoordinator")[0]
    stage.coordinator(1)
    assert stage.opened == ["one", "one"], "the connection of the bootstrap server is not shared"
    (join,) = stage.waiting("JoinGroup")
    assert join.link_id != one.link_id


def test_the_coordinator_is_connected_before_anything_is_sent_to_it() -> None:
    stage = CoreStage()
    stage.do(ev.FetchCommitted(1, frozenset({tp(0)}), 10_000))
    stage.coordinator(2)
    assert stage.opened == ["one", "two"]
    assert stage.host_of("OffsetFetch") == "two"


def test_a_coordinator_that_is_another_node_than_the_one_asked() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.pass_time(3_000)
    assert stage.host_of("Heartbeat") == "two"


def test_the_coordinator_moves_while_its_node_lives_on() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.do(ev.Commit(1, OFFSETS, 10_000))
    assert stage.host_of("OffsetCommit") == "two"
    stage.committed(ErrorCode.NOT_COORDINATOR)
    stage.pass_time(2_000)
    stage.coordinator(3)
    stage.pass_time(2_000)
    assert stage.host_of("OffsetCommit") == "three"
    stage.committed()
    assert [(done.ask_id, done.error) for done in stage.of(fx.Done)] == [(1, None)]
    assert stage.host_of("Heartbeat") == "three"
    assert "two" not in stage.hosts.values(), "the old connection is closed"


def test_the_coordinator_moves_because_its_node_died() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.stop("two")
    stage.pass_time(500)
    assert stage.host_of("FindCoordinator") == "one"
    stage.coordinator(3)
    stage.pass_time(10)
    assert stage.host_of("Heartbeat") == "three"
    stage.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    stage.do(ev.Poll())
    assert [lost.partitions for lost in stage.of(fx.Lose)] == [frozenset({tp(0), tp(1)})]
    stage.do(ev.ActionDone())
    stage.do(ev.Poll())
    assert stage.host_of("JoinGroup") == "three"


def test_a_coordinator_that_cannot_be_reached_is_looked_for_again() -> None:
    stage = CoreStage()
    stage.down.add("two")
    stage.subscribe()
    stage.coordinator(2)
    stage.pass_time(500)
    stage.coordinator(3)
    assert stage.host_of("JoinGroup") == "three"


def test_nothing_is_kept_of_requests_to_a_coordinator_that_is_given_up() -> None:
    stage = CoreStage()
    stage.stable(2)
    before = len(stage.core._owners)
    for ask_id in range(1, 6):
        stage.do(ev.Commit(ask_id, OFFSETS, 10_000, repeated=False))
    stage.committed(ErrorCode.NOT_COORDINATOR)
    assert {done.ask_id for done in stage.of(fx.Done)} == {1, 2, 3, 4, 5}
    assert len(stage.core._owners) <= before + 1, "the new search for the coordinator alone"


def lookup(stage: CoreStage, ask_id: int, node_id: int) -> None:
    stage.do(ev.Request(ask_id, ListOffsetsRequest(), 30_000, node_id))


def test_the_least_loaded_node_is_counted_over_all_of_its_connections() -> None:
    """Node 2 has nothing under way on its data connection but three requests on the coordinator's."""
    stage = CoreStage()
    stage.stable(2)
    lookup(stage, 1, 1)
    lookup(stage, 2, 2)
    (on_two,) = [one for one in stage.waiting("ListOffsets") if stage.hosts[one.link_id] == "two"]
    stage.sent.remove(on_two)
    stage.do(ev.Answered(on_two.token, None))
    for ask_id in (3, 4, 5):
        stage.do(ev.Commit(ask_id, OFFSETS, 10_000))
    assert [stage.hosts[one.link_id] for one in stage.waiting("OffsetCommit")] == ["two"] * 3
    stage.do(ev.Refresh(9, 10_000))
    assert stage.host_of("Metadata") == "one"


def test_a_broker_that_says_it_is_out_of_the_cluster_is_not_asked_about_it_again() -> None:
    """It was cut off and may stay so: whoever goes on asking it alone never hears who leads now."""
    stage = CoreStage(bootstrap_servers="one:9092")
    for ask_id in range(1, 9):
        stage.do(ev.Refresh(ask_id, 10_000))
        assert ask_id == 1 or stage.host_of("Metadata") in ("two", "three")
        stage.metadata(nodes=(2, 3))
        stage.pass_time(100)


def test_among_equals_chance_decides_who_is_asked() -> None:
    stage = CoreStage(bootstrap_servers="one:9092")
    stage.do(ev.Refresh(1, 10_000))
    stage.metadata()
    for node_id in (1, 2, 3):
        lookup(stage, 10 + node_id, node_id)
    for one in list(stage.waiting("ListOffsets")):
        stage.sent.remove(one)
        stage.do(ev.Answered(one.token, None))
    asked = set()
    for ask_id in range(20, 60):
        stage.pass_time(100)
        stage.do(ev.Refresh(ask_id, 10_000))
        asked.add(stage.host_of("Metadata"))
        stage.metadata()
    assert asked == {"one", "two", "three"}


def test_a_request_to_anyone_tries_the_next_where_a_connection_fails() -> None:
    stage = CoreStage(bootstrap_servers="dead:1,one:9092")
    stage.down.add("dead")
    stage.do(ev.Refresh(1, 10_000))
    assert stage.host_of("Metadata") == "one"
    stage.metadata()
    assert [done.error for done in stage.of(fx.Done)] == [None]


def test_nobody_can_be_reached() -> None:
    stage = CoreStage()
    stage.down.add("one")
    stage.do(ev.Refresh(1, 2_000))
    stage.pass_time(2_100, polling=False)
    (done,) = stage.of(fx.Done)
    assert isinstance(done.error, KafkaTimeoutError)
    assert "no metadata from one:9092 within 2 s: NETWORK_EXCEPTION: one is down" in str(done.error)
    assert 3 < stage.opened.count("one") < 40, "with a backoff between tries"


def test_a_request_without_an_answer_takes_its_connection_with_it() -> None:
    stage = CoreStage()
    stage.stable(2)
    lookup(stage, 1, 1)
    stage.pass_time(30_001, polling=False)
    failed = [done for done in stage.of(fx.Done) if done.ask_id == 1]
    assert [str(done.error) for done in failed] and "no answer to ListOffsets within 30 s" in str(failed[0].error)


# -- commits -----------------------------------------------------------------------------------------------------------


def test_a_commit_that_timed_out_is_never_sent_later() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.stop("two")
    stage.do(ev.Commit(1, OFFSETS, 1_000))
    stage.pass_time(1_100)
    (done,) = stage.of(fx.Done)
    assert isinstance(done.error, KafkaTimeoutError)
    assert "commit of orders-0: not done within 1 s" in str(done.error)
    stage.coordinator(3)
    stage.pass_time(2_000)
    assert stage.waiting("OffsetCommit") == []


def test_a_commit_that_nobody_waits_for_any_more_is_not_sent_either() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.stop("two")
    stage.do(ev.Commit(1, OFFSETS, 10_000))
    stage.do(ev.Forget(1))
    stage.pass_time(500)
    stage.coordinator(3)
    stage.pass_time(2_000)
    assert stage.waiting("OffsetCommit") == []
    assert stage.of(fx.Done) == []


def test_a_failure_that_passes_is_repeated_unless_told_otherwise() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.do(ev.Commit(1, OFFSETS, 10_000))
    stage.do(ev.Commit(2, OFFSETS, 10_000, repeated=False))
    stage.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert [done.ask_id for done in stage.of(fx.Done)] == [2]
    stage.pass_time(200)
    stage.committed()
    assert [(done.ask_id, done.error) for done in stage.of(fx.Done)] == [(1, None)]


# -- positions ---------------------------------------------------------------------------------------------------------


def test_initial_positions_are_looked_up_and_said() -> None:
    stage = CoreStage(fetching=True, auto_offset_reset="earliest")
    stage.stable(2)
    stage.offsets(orders_0=42)
    (found,) = stage.of(fx.PositionsFound)
    assert found.committed == {tp(0): OffsetAndMetadata(42, "", -1), tp(1): None}
    assert stage.core.fetcher is not None and stage.core.fetcher.position(tp(0)) == 42
    assert stage.host_of("ListOffsets") == "one", "partition 1 is reset at its leader"


def test_a_lookup_of_positions_that_fails_is_told_once_and_begins_anew_with_the_next_poll() -> None:
    stage = CoreStage(fetching=True)
    stage.stable(2)
    (one,) = stage.waiting("OffsetFetch")
    make = type(one.request)
    refused = OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
    )
    stage.answer("OffsetFetch", OffsetFetchResponse(groups=[refused]))
    assert stage.core.lookup is Lookup.FAILED
    stage.do(ev.Poll(max_records=10))
    assert [fail.error.code for fail in stage.of(fx.Fail)] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert [type(one.request) for one in stage.waiting("OffsetFetch")] == [make]


def test_a_position_that_is_not_found_in_time() -> None:
    stage = CoreStage(fetching=True)
    stage.stable(2)
    stage.do(ev.FindPosition(1, tp(0), 1_000))
    stage.do(ev.FindPosition(2, tp(7), 1_000))
    assert [(done.ask_id, type(done.error)) for done in stage.of(fx.Done)] == [(2, ValueError)]
    stage.pass_time(1_100)
    assert [(done.ask_id, type(done.error)) for done in stage.of(fx.Done)] == [(1, KafkaTimeoutError)]


# -- the application's turn --------------------------------------------------------------------------------------------


def test_a_poll_that_waits_is_told_once_that_there_is_something() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert len(stage.of(fx.Ready)) == 1
    stage.do(ev.Tick())
    assert stage.of(fx.Ready) == []
    stage.do(ev.Poll())
    assert [revoke.partitions for revoke in stage.of(fx.Revoke)] == [frozenset({tp(0), tp(1)})]
    assert stage.core.application is Application.ACTING


def test_polls_go_on_renewing_the_interval_while_partitions_are_given_up() -> None:
    stage = CoreStage(max_poll_interval_ms=10_000)
    stage.stable(2)
    stage.do(ev.Rejoin("test"))
    stage.do(ev.Poll())
    assert stage.of(fx.Revoke)
    for _ in range(30):
        stage.now_ms += 1_000
        stage.do(ev.Tick())
        stage.do(ev.Poll())
        while stage.waiting("Heartbeat"):
            stage.answer("Heartbeat", HeartbeatResponse())
    stage.do(ev.ActionDone())
    stage.do(ev.Poll())
    assert stage.waiting("JoinGroup"), "still a member"


def test_leaving_gives_actions_without_a_poll() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.do(ev.StopPoll())
    stage.do(ev.Leave("enough"))
    assert len(stage.of(fx.Revoke)) == 1
    stage.do(ev.ActionDone())
    stage.answer("LeaveGroup", LeaveGroupResponse())
    assert stage.of(fx.Left) == [fx.Left("enough")]
    assert stage.core.application is Application.AWAY


@pytest.mark.parametrize(
    ("states", "moves"),
    [
        (Application, APPLICATION_MOVES),
        (Lookup, LOOKUP_MOVES),
        (LinkState, LINK_MOVES),
        (Freshness, FRESHNESS_MOVES),
    ],
)
def test_every_state_has_its_row_and_can_be_reached(states: Any, moves: Any) -> None:
    assert set(moves) == set(states)
    reached = {next(iter(states))}
    while more := {to for state in reached for to in moves[state]} - reached:
        reached |= more
    assert reached == set(states)


# -- recording and replaying -------------------------------------------------------------------------------------------


def plain(effect: Any) -> Any:
    """Comparable: errors by type and text, chunks by what they hold."""
    if isinstance(effect, fx.Chunks):
        return [(chunk.tp, chunk.from_offset, chunk.next_offset, bytes(chunk.data)) for chunk in effect.chunks]
    if isinstance(effect, fx.Done | fx.Fail):
        value = getattr(effect, "value", None)
        return type(effect), repr(value), type(effect.error), str(effect.error)
    return effect


def test_a_scripted_run_replays_to_the_same_effects() -> None:
    stage = CoreStage(fetching=True)
    stage.stable(2)
    stage.offsets(orders_0=3, orders_1=4)
    stage.do(ev.Commit(1, OFFSETS, 5_000))
    stage.committed(ErrorCode.NOT_COORDINATOR)
    stage.pass_time(10_000)
    first, second = (replay(stage) for _ in range(2))
    assert first == second and sum(map(len, first)) >= 20


def replay(stage: CoreStage) -> list[Any]:
    again = ConsumerCore(stage.core.config, Random(7).random, fetching=True)
    return [[plain(effect) for effect in again.handle(event, now_ms)] for now_ms, event in stage.log]


async def read_and_record(consumer: Any, topic: str) -> tuple[list[Any], list[list[Any]]]:
    """A real run over sockets: joins, reads, commits, seeks, rebalances with another, leaves."""
    driver = consumer._open()
    driver.recording = []
    effects: list[list[Any]] = []
    handle = driver._core.handle

    def watched(event: Any, now_ms: int) -> Any:
        found = handle(event, now_ms)
        effects.append([plain(copy.copy(effect)) for effect in found])
        return found

    driver._core.handle = watched
    await consumer.subscribe(topic)
    read = 0
    while read < 100:
        read += len(await consumer.poll(0.5))
    await consumer.commit()
    async with kohort.AsyncConsumer(consumer.config_values) as other:
        await other.subscribe(topic)
        while len(consumer.assignment()) > 2:
            await asyncio.gather(consumer.poll(0.05), other.poll(0.05))
    while len(consumer.assignment()) < 4:
        await consumer.poll(0.1)
    partition = sorted(consumer.assignment())[0]
    await consumer.seek(partition, 0)
    while not (again := await consumer.poll(0.5)):
        pass
    assert again[0].offset == 0
    await consumer.committed([partition])
    await consumer.close()
    return driver.recording, effects


def test_a_recorded_run_of_the_real_consumer_replays_to_the_same_effects(
    broker: kohort.Broker, topics: Topics, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.make(records=100)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": group_id, **QUICK}
    settings |= {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}

    async def run() -> tuple[Any, list[Any], list[list[Any]]]:
        consumer = kohort.AsyncConsumer(settings)
        consumer.config_values = settings
        monkeypatch.setattr(random, "random", Random(11).random)
        consumer._open()
        monkeypatch.undo()
        recorded, effects = await read_and_record(consumer, topic)
        return consumer.config, recorded, effects

    config, recorded, effects = asyncio.run(run())
    assert len(recorded) > 50
    again = ConsumerCore(config, Random(11).random)
    for number, (now_ms, event) in enumerate(recorded):
        replayed = [plain(effect) for effect in again.handle(event, now_ms)]
        assert replayed == effects[number], f"event {number}: {event}"


def test_events_are_plain_values() -> None:
    for event in (ev.Connected(3), ev.Poll(10), ev.Commit(1, OFFSETS, 100), ev.Subscribe(frozenset({"t"})), ev.Tick()):
        assert pickle.loads(pickle.dumps(event)) == event
