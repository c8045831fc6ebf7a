"""What a consumer measures of itself: windows, the rebalance as it goes, and a real consumer's figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import kohort
from client.conftest import Topics, until
from client.core_stage import CoreStage, tp
from client.modern_stage import HEARTBEAT_MS, ModernStage
from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.measuring import measure_answer
from kohort.client.metrics import CONSUMER, COORDINATOR, FETCH, Metrics, Sensor, Standing, Taken
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import FetchResponse, JoinGroupResponse


def test_averages_and_maxima_are_of_the_last_minute() -> None:
    sensor = Sensor()
    assert math.isnan(sensor.average(0)) and math.isnan(sensor.most(0)) and sensor.rate(0) == 0
    sensor.record(10, 1_000)
    sensor.record(30, 2_000)
    assert (sensor.average(2_000), sensor.most(2_000)) == (20, 30)
    sensor.record(2, 40_000)
    assert (sensor.average(40_000), sensor.most(40_000)) == (14, 30)
    assert (sensor.average(62_000), sensor.most(62_000)) == (2, 2), "the first sample is out of the window"
    assert math.isnan(sensor.average(200_000))
    assert (sensor.count, sensor.total) == (3, 42)


def test_a_rate_over_a_window_that_has_just_begun() -> None:
    sensor = Sensor()
    for at_ms in range(0, 30_000, 1_000):
        sensor.record(5, at_ms)
    assert sensor.rate(29_999) == 30 / 59.999
    for at_ms in range(30_000, 60_000, 1_000):
        sensor.record(5, at_ms)
    assert round(sensor.rate(59_999), 2) == 1.0
    assert round(sensor.rate(59_999, of_values=True), 1) == 5.0


def of_the_group(stage: CoreStage) -> dict[str, float]:
    return stage.core.measured(stage.now_ms)[COORDINATOR]


def test_a_rebalance_is_measured_from_its_first_join_to_its_sync() -> None:
    stage = CoreStage()
    stage.subscribe()
    stage.coordinator(2)
    stage.now_ms += 50
    stage.answer("JoinGroup", JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m1"))
    stage.now_ms += 1_000
    stage.joined()
    stage.now_ms += 200
    stage.synced(0, 1)
    found = of_the_group(stage)
    assert (found["join-time-avg"], found["join-time-max"], found["join-total"]) == (1_000, 1_000, 1)
    assert (found["sync-time-avg"], found["sync-total"]) == (200, 1)
    assert (found["rebalance-latency-avg"], found["rebalance-latency-total"]) == (1_250, 1_250)
    assert (found["rebalance-total"], found["failed-rebalance-total"]) == (1, 0)
    stage.do(ev.Poll())
    stage.now_ms += 70
    stage.do(ev.ActionDone())
    found = of_the_group(stage)
    assert (found["partition-assigned-latency-max"], found["assigned-partitions"]) == (70, 2)
    assert found["last-rebalance-seconds-ago"] == 0.07
    assert found["last-heartbeat-seconds-ago"] == -1


def test_joins_that_fail_are_counted() -> None:
    stage = CoreStage()
    stage.subscribe()
    stage.coordinator(2)
    stage.answer("JoinGroup", JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    found = of_the_group(stage)
    assert (found["failed-rebalance-total"], found["rebalance-total"], found["join-total"]) == (1, 0, 0)


def test_heartbeats_and_commits_are_measured() -> None:
    stage = CoreStage()
    stage.stable(2)
    stage.pass_time(3_000)
    stage.now_ms += 15
    stage.heartbeat()
    stage.do(ev.Commit(1, {tp(0): OffsetAndMetadata(5)}, 10_000))
    stage.now_ms += 40
    stage.committed()
    assert stage.of(fx.Done)
    found = of_the_group(stage)
    assert (found["heartbeat-response-time-max"], found["heartbeat-total"]) == (15, 1)
    assert found["last-heartbeat-seconds-ago"] == 0.04
    assert (found["commit-latency-avg"], found["commit-total"]) == (40, 1)


def test_fetches_that_a_quota_slows_down_are_measured() -> None:
    metrics = Metrics()
    for throttled_ms in (0, 80):
        measure_answer(metrics, ApiKey.FETCH, FetchResponse(throttle_time_ms=throttled_ms), 10, 1_000)
    found = metrics.as_dict(0, {}, 1_000)[FETCH]
    assert (found["fetch-throttle-time-avg"], found["fetch-throttle-time-max"]) == (40, 80)
    assert (found["fetch-latency-avg"], found["fetch-total"]) == (10, 2)


def taken(records: int, size: int, lag: int | None, lead: int | None) -> Taken:
    counts = Taken()
    counts.records, counts.size, counts.standing = records, size, Standing(lag, lead)
    return counts


def test_what_is_read_is_measured_by_topic_and_partition() -> None:
    metrics = Metrics()
    for _ in range(4):
        measure_answer(metrics, ApiKey.FETCH, FetchResponse(), 10, 1_000)
    metrics.handed_out({tp(0): taken(10, 500, 90, 10), tp(1): taken(2, 100, None, None)}, 1_000)
    metrics.handed_out({tp(0): taken(20, 700, 70, 30)}, 2_000)
    now = Standing(60, 40)
    found = metrics.as_dict(2, {tp(0): now, tp(1): Standing(None, None)}, 3_000)
    assert found[FETCH]["records-per-request-avg"] == 8
    assert (found[FETCH]["records-consumed-total"], found[FETCH]["bytes-consumed-total"]) == (32, 1_300)
    assert found[f"{FETCH}.{tp(0).topic}"]["records-consumed-total"] == 32
    of_one = found[f"{FETCH}.{tp(0)}"]
    assert (of_one["records-lag"], of_one["records-lag-avg"], of_one["records-lag-max"]) == (60, 80, 90)
    assert (of_one["records-lead"], of_one["records-lead-avg"], of_one["records-lead-min"]) == (40, 20, 10)
    assert math.isnan(found[f"{FETCH}.{tp(1)}"]["records-lag-avg"])
    assert f"{FETCH}.{tp(0)}" not in metrics.as_dict(0, {}, 3_000)


def test_a_topic_called_like_a_partition_hides_nothing() -> None:
    metrics, other = Metrics(), TopicPartition(str(tp(0)), 3)
    metrics.handed_out({other: taken(5, 50, 1, 1)}, 1_000)
    found = metrics.as_dict(1, {tp(0): Standing(7, 8)}, 1_000)[f"{FETCH}.{tp(0)}"]
    assert (found["records-consumed-total"], found["records-lag"]) == (5, 7)


def test_the_share_of_time_in_polls() -> None:
    metrics = Metrics()
    metrics.polled(1_000)
    metrics.poll_ended(1_000)
    assert math.isnan(metrics.as_dict(0, {}, 1_000)[CONSUMER]["poll-idle-ratio-avg"]), "no time has passed"
    metrics.polled(1_400)
    metrics.poll_ended(1_500)
    assert metrics.as_dict(0, {}, 1_500)[CONSUMER]["poll-idle-ratio-avg"] == 0.2


def test_a_real_consumer_measures_what_it_reads(topics: Topics, consumer: Callable[..., kohort.Consumer]) -> None:
    topic = topics.make(records=100)
    reader = consumer()
    reader.subscribe(topic)
    values: list[Any] = []
    until(lambda: len(values) == 100, "100 records", lambda: values.extend(reader.poll(0.5)))
    reader.commit()
    found = reader.metrics()
    assert found[FETCH]["records-consumed-total"] == 100
    assert found[FETCH]["bytes-consumed-total"] > 100
    assert found[FETCH]["records-lag-max"] >= 0 and found[FETCH]["records-lead-min"] == 25
    assert sum(v["records-consumed-total"] for k, v in found.items() if k == f"{FETCH}.{topic}") == 100
    assert found[CONSUMER]["poll-idle-ratio-avg"] > 0
    assert found[FETCH]["records-per-request-avg"] > 0
    assert found[FETCH]["fetch-total"] > 0 and found[FETCH]["fetch-rate"] > 0
    of_one = found[f"{FETCH}.{topic}-0"]
    assert (of_one["records-lag"], of_one["records-lead"], of_one["records-lag-avg"]) == (0, 25, 0)
    assert found[COORDINATOR]["assigned-partitions"] == 4
    assert found[COORDINATOR]["rebalance-total"] == found[COORDINATOR]["join-total"] == 1
    assert found[COORDINATOR]["commit-total"] >= 1
    assert 0 <= found[CONSUMER]["last-poll-seconds-ago"] < 60


def test_a_member_of_the_consumer_protocol_measures_how_long_it_reconciles() -> None:
    """From an assignment that is another to the acknowledgement; being put out meanwhile counts as a failure."""
    stage, metrics = ModernStage(topics={"orders": 4}), Metrics()

    def measured() -> dict[str, float]:
        for effect in stage.of(fx.Rebalance):
            metrics.reconciles(effect.phase, stage.now_ms)
        stage.effects.clear()
        return metrics.as_dict(0, {}, stage.now_ms)[COORDINATOR]

    stage.joining()
    stage.heartbeat(1, orders=[0, 1])
    assert measured()["rebalance-total"] == 0
    stage.now_ms += 70
    stage.act(fx.Assign)
    found = measured()
    assert (found["rebalance-total"], found["rebalance-latency-max"], found["failed-rebalance-total"]) == (1, 70, 0)
    assert found["last-rebalance-seconds-ago"] == 0
    stage.heartbeat(1)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(2, orders=[0])
    stage.pass_time(HEARTBEAT_MS)
    stage.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    found = measured()
    assert (found["rebalance-total"], found["failed-rebalance-total"]) == (1, 1)


def test_a_real_member_of_the_consumer_protocol_counts_its_rebalances(topics: Topics, broker: kohort.Broker) -> None:
    topic = topics.make(records=20)
    settings = {"group_id": "measured", "group_protocol": "consumer", "auto_offset_reset": "earliest"}
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as reader:
        reader.subscribe(topic)
        values: list[Any] = []
        until(lambda: len(values) == 20, "20 records", lambda: values.extend(reader.poll(0.5)))
        found = reader.metrics()[COORDINATOR]
    assert found["assigned-partitions"] == 4
    assert found["rebalance-total"] >= 1 and found["rebalance-latency-max"] >= 0
    assert found["failed-rebalance-total"] == 0 and 0 <= found["last-rebalance-seconds-ago"] < 60
    assert found["heartbeat-total"] >= 1 and found["join-total"] == found["sync-total"] == 0
