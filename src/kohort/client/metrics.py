"""What a consumer measures of itself, under Kafka's names. Pure: time is an argument, nothing is exported from here.

Rates, averages and maxima are over Kafka's default window, two samples of 30 s; without a value an average is NaN.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from kohort.client.effects import Assign, Lose, Phase, Revoke
from kohort.client.types import TopicPartition

SAMPLE_MS = 30_000
SAMPLES = 2

COORDINATOR = "consumer-coordinator-metrics"
FETCH = "consumer-fetch-manager-metrics"
CONSUMER = "consumer-metrics"


class Sample:
    __slots__ = ("began_ms", "count", "most", "total")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self.count = 0
        self.total = 0.0
        self.most = -math.inf


class Sensor:
    """Values as they come; what they amount to lately, and in all."""

    __slots__ = ("_samples", "count", "total")

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self.count = 0
        self.total = 0.0

    def record(self, value: float, now_ms: int, count: int = 1) -> None:
        if not self._samples or now_ms - self._samples[-1].began_ms >= SAMPLE_MS:
            self._samples.append(Sample(now_ms))
        sample = self._samples[-1]
        sample.count += count
        sample.total += value
        sample.most = max(sample.most, value)
        self.count += count
        self.total += value

    def _recent(self, now_ms: int) -> list[Sample]:
        return [sample for sample in self._samples if now_ms - sample.began_ms < SAMPLE_MS * SAMPLES]

    def recent_count(self, now_ms: int) -> int:
        return sum(sample.count for sample in self._recent(now_ms))

    def recent_total(self, now_ms: int) -> float:
        return sum(sample.total for sample in self._recent(now_ms))

    def average(self, now_ms: int) -> float:
        count = self.recent_count(now_ms)
        return self.recent_total(now_ms) / count if count else math.nan

    def most(self, now_ms: int) -> float:
        return max((sample.most for sample in self._recent(now_ms)), default=math.nan)

    def rate(self, now_ms: int, *, of_values: bool = False) -> float:
        """Times, or what they add up to, per second; a window that has just begun counts as one that is full."""
        recent = self._recent(now_ms)
        if not recent:
            return 0.0
        elapsed_ms = now_ms - recent[0].began_ms
        if elapsed_ms < SAMPLE_MS * (SAMPLES - 1):
            elapsed_ms += SAMPLE_MS * (SAMPLES - 1) - elapsed_ms // SAMPLE_MS * SAMPLE_MS
        amount = sum(sample.total if of_values else sample.count for sample in recent)
        return amount / (elapsed_ms / 1000) if elapsed_ms else 0.0


class Standing(NamedTuple):
    """A partition's position between the ends of its log; None where it is not known."""

    lag: int | None
    lead: int | None


NOWHERE = Standing(None, None)


class Taken:
    """What was handed out of a partition at a time: records (of whole chunks: offsets), bytes as they were fetched."""

    __slots__ = ("records", "size", "standing")

    def __init__(self) -> None:
        self.records = 0
        self.size = 0
        self.standing = NOWHERE


class Reading:
    """What was read of one topic."""

    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        self.bytes = Sensor()
        self.records = Sensor()

    def record(self, taken: Taken, now_ms: int) -> None:
        self.records.record(taken.records, now_ms)
        self.bytes.record(taken.size, now_ms)

    def as_dict(self, now_ms: int) -> dict[str, float]:
        return {
            "bytes-consumed-rate": self.bytes.rate(now_ms, of_values=True),
            "bytes-consumed-total": self.bytes.total,
            "records-consumed-rate": self.records.rate(now_ms, of_values=True),
            "records-consumed-total": self.records.total,
        }


class Progress:
    """How far one partition was behind the end of its log, and ahead of its beginning, whenever something was read."""

    __slots__ = ("_lag", "_lead")

    def __init__(self) -> None:
        self._lag = Sensor()
        self._lead = Sensor()  # below zero, so that the most is the least

    def record(self, standing: Standing, now_ms: int) -> None:
        if standing.lag is not None:
            self._lag.record(standing.lag, now_ms)
        if standing.lead is not None:
            self._lead.record(-standing.lead, now_ms)

    def as_dict(self, now: Standing, now_ms: int) -> dict[str, float]:
        return {
            "records-lag": math.nan if now.lag is None else now.lag,
            "records-lag-avg": self._lag.average(now_ms),
            "records-lag-max": self._lag.most(now_ms),
            "records-lead": math.nan if now.lead is None else now.lead,
            "records-lead-avg": -self._lead.average(now_ms),
            "records-lead-min": -self._lead.most(now_ms),
        }


class Metrics:
    def __init__(self) -> None:
        self.join = Sensor()
        self.sync = Sensor()
        self.heartbeat = Sensor()
        self.commit = Sensor()
        self.rebalance = Sensor()
        self.failed_rebalances = Sensor()
        self.assigned = Sensor()
        self.revoked = Sensor()
        self.lost = Sensor()
        self.fetch = Sensor()
        self.fetch_size = Sensor()
        self.fetch_throttle = Sensor()
        self.read = Reading()
        self.lag = Sensor()
        self.between_polls = Sensor()
        self.poll_idle = Sensor()
        self.last_heartbeat_ms: int | None = None
        self.last_rebalance_ms: int | None = None
        self.last_poll_ms: int | None = None
        self._before_poll_ms = 0
        self._rebalance_began_ms: int | None = None
        self._read_of: dict[str, Reading] = {}
        self._progress_of: dict[TopicPartition, Progress] = {}

    # -- what happens -------------------------------------------------------------------------------------------------

    def polled(self, now_ms: int) -> None:
        if self.last_poll_ms is not None:
            self._before_poll_ms = now_ms - self.last_poll_ms
            self.between_polls.record(self._before_poll_ms, now_ms)
        self.last_poll_ms = now_ms

    def poll_ended(self, now_ms: int) -> None:
        """Kafka sets the time in a poll against the time between the beginnings of this one and the last."""
        if self.last_poll_ms is not None:
            polling_ms = now_ms - self.last_poll_ms
            if polling_ms + self._before_poll_ms:
                self.poll_idle.record(polling_ms / (polling_ms + self._before_poll_ms), now_ms)

    def handed_out(self, taken: Mapping[TopicPartition, Taken], now_ms: int) -> None:
        for tp, counts in taken.items():
            self.read.record(counts, now_ms)
            self._read_of.setdefault(tp.topic, Reading()).record(counts, now_ms)
            self._progress_of.setdefault(tp, Progress()).record(counts.standing, now_ms)
            if counts.standing.lag is not None:
                self.lag.record(counts.standing.lag, now_ms)

    def acted(self, action: Assign | Revoke | Lose, took_ms: int, now_ms: int) -> None:
        sensor = {Assign: self.assigned, Revoke: self.revoked, Lose: self.lost}[type(action)]
        sensor.record(took_ms, now_ms)

    def rebalance_began(self, now_ms: int) -> None:
        """The first JoinGroup of a rebalance; retries belong to it."""
        if self._rebalance_began_ms is None:
            self._rebalance_began_ms = now_ms

    def rebalance_ended(self, now_ms: int) -> None:
        if self._rebalance_began_ms is not None:
            self.rebalance.record(now_ms - self._rebalance_began_ms, now_ms)
        self._rebalance_began_ms = None
        self.last_rebalance_ms = now_ms

    def rebalance_failed(self, now_ms: int) -> None:
        self.failed_rebalances.record(1, now_ms)

    def reconciles(self, phase: Phase, now_ms: int) -> None:
        """A member of the consumer protocol: from an assignment that is another until it has become its own."""
        if phase is Phase.BEGINS:
            self._rebalance_began_ms = now_ms
        elif phase is Phase.ENDS:
            self.rebalance_ended(now_ms)
        else:
            self.rebalance_failed(now_ms)

    # -- what they amount to ------------------------------------------------------------------------------------------

    def as_dict(
        self, assigned_partitions: int, standings: Mapping[TopicPartition, Standing], now_ms: int
    ) -> dict[str, dict[str, float]]:
        """By Kafka's group and name; what is about one topic or partition is in a group with its name."""
        for gone in self._progress_of.keys() - standings.keys():
            del self._progress_of[gone]
        found = {
            COORDINATOR: self._of_the_group(assigned_partitions, now_ms),
            FETCH: self._of_reading(standings, now_ms),
            CONSUMER: {
                "last-poll-seconds-ago": seconds_ago(self.last_poll_ms, now_ms),
                "time-between-poll-avg": self.between_polls.average(now_ms),
                "time-between-poll-max": self.between_polls.most(now_ms),
                "poll-idle-ratio-avg": self.poll_idle.average(now_ms),
            },
        }
        for topic, read in sorted(self._read_of.items()):
            found[f"{FETCH}.{topic}"] = read.as_dict(now_ms)
        for tp, standing in sorted(standings.items()):
            progress = self._progress_of.get(tp, Progress()).as_dict(standing, now_ms)
            found.setdefault(f"{FETCH}.{tp}", {}).update(progress)  # a topic may be called like a partition
        return found

    def _of_the_group(self, assigned_partitions: int, now_ms: int) -> dict[str, float]:
        def timed(name: str, sensor: Sensor) -> dict[str, float]:
            return {f"{name}-avg": sensor.average(now_ms), f"{name}-max": sensor.most(now_ms)}

        def counted(name: str, sensor: Sensor) -> dict[str, float]:
            return {f"{name}-rate": sensor.rate(now_ms), f"{name}-total": sensor.count}

        return {
            "assigned-partitions": assigned_partitions,
            **timed("join-time", self.join),
            **counted("join", self.join),
            **timed("sync-time", self.sync),
            **counted("sync", self.sync),
            **timed("rebalance-latency", self.rebalance),
            "rebalance-latency-total": self.rebalance.total,
            "rebalance-total": self.rebalance.count,
            "rebalance-rate-per-hour": self.rebalance.rate(now_ms) * 3600,
            "failed-rebalance-total": self.failed_rebalances.count,
            "failed-rebalance-rate-per-hour": self.failed_rebalances.rate(now_ms) * 3600,
            "last-rebalance-seconds-ago": seconds_ago(self.last_rebalance_ms, now_ms),
            "heartbeat-response-time-max": self.heartbeat.most(now_ms),
            **counted("heartbeat", self.heartbeat),
            "last-heartbeat-seconds-ago": seconds_ago(self.last_heartbeat_ms, now_ms),
            **timed("commit-latency", self.commit),
            **counted("commit", self.commit),
            **timed("partition-assigned-latency", self.assigned),
            **timed("partition-revoked-latency", self.revoked),
            **timed("partition-lost-latency", self.lost),
        }

    def _of_reading(self, standings: Mapping[TopicPartition, Standing], now_ms: int) -> dict[str, float]:
        lags = [standing.lag for standing in standings.values() if standing.lag is not None]
        leads = [standing.lead for standing in standings.values() if standing.lead is not None]
        latest = self.lag.most(now_ms)
        return {
            "fetch-latency-avg": self.fetch.average(now_ms),
            "fetch-latency-max": self.fetch.most(now_ms),
            "fetch-rate": self.fetch.rate(now_ms),
            "fetch-total": self.fetch.count,
            "fetch-size-avg": self.fetch_size.average(now_ms),
            "fetch-size-max": self.fetch_size.most(now_ms),
            "fetch-throttle-time-avg": self.fetch_throttle.average(now_ms),
            "fetch-throttle-time-max": self.fetch_throttle.most(now_ms),
            "records-per-request-avg": self._records_per_request(now_ms),
            **self.read.as_dict(now_ms),
            "records-lag-max": max([*lags, *([] if math.isnan(latest) else [latest])], default=math.nan),
            "records-lead-min": min(leads, default=math.nan),
        }

    def _records_per_request(self, now_ms: int) -> float:
        fetches = self.fetch.recent_count(now_ms)
        return self.read.records.recent_total(now_ms) / fetches if fetches else math.nan


def seconds_ago(at_ms: int | None, now_ms: int) -> float:
    """-1 where it has not happened yet, as in Kafka."""
    return -1.0 if at_ms is None else (now_ms - at_ms) / 1000
