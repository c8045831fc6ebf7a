"""One process of the soak: consumers of four kinds that read, note what they did, commit, leave and come back.

What a consumer did goes to the ledger before it is committed, and what was acknowledged right after: a ledger survives
the kill -9 of its process. Lines are JSON arrays, times are of the monotonic clock that all processes share:

    ["A", time, consumer, group, generation, topic, partition, period]         a partition was assigned
    ["R", consumer, group, topic, partition, period, first offset, last offset]  records were processed
    ["C", sent at, acknowledged at, group, topic, partition, offset]           a commit was acknowledged
    ["V", consumer, what]                                                      a promise was broken
    ["E", consumer, what]                                                      a client gave up; it is started again
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor

import kohort
from kohort.client import KafkaError

SESSION_MS = 15_000
MAX_POLL_MS = 60_000
HEARTBEAT_MS = 1_500
COMMIT_EVERY_S = 1.0
POLL_S = 0.5
LIFETIME_S = 120

Place = tuple[str, int]
stopping = threading.Event()


class Ledger:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, rows: list[list[Any]]) -> None:
        if rows:
            os.write(self._file, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode())


class Tracker:
    """What one consumer has done since it was started."""

    def __init__(self, name: str, group: str, ledger: Ledger) -> None:
        self.name = name
        self.group = group
        self._ledger = ledger
        self._runs: dict[Place, list[int]] = {}
        self._last: dict[Place, int] = {}
        self.periods: dict[Place, int] = {}
        self.uncommitted: dict[Place, int] = {}
        self._period = 0
        self._committed_at = time.monotonic()

    def assigned(self, places: list[Place], generation: int | None = None) -> None:
        self.processed()
        self._period += 1
        rows = []
        for topic, partition in places:
            self.periods[topic, partition] = self._period
            self._last.pop((topic, partition), None)
            rows.append(["A", time.monotonic(), self.name, self.group, generation, topic, partition, self._period])
        self._ledger.write(rows)

    def revoked(self, places: list[Place]) -> None:
        self.processed()
        for place in places:
            self.periods.pop(place, None)
            self.uncommitted.pop(place, None)
            self._last.pop(place, None)

    def got(self, topic: str, partition: int, offset: int) -> None:
        place = (topic, partition)
        if place not in self.periods:
            return  # read just before it was taken away: not processed
        last = self._last.get(place)
        if last is not None and offset != last + 1:
            self._ledger.write([["V", self.name, f"{self.group} {topic}-{partition}: {offset} right after {last}"]])
        self._last[place] = offset
        self.uncommitted[place] = offset + 1
        run = self._runs.get(place)
        if run is not None and run[1] + 1 == offset:
            run[1] = offset
        else:
            self.processed()
            self._runs[place] = [offset, offset]

    def processed(self) -> None:
        """Note it: from here on it may be committed."""
        runs, self._runs = self._runs, {}
        self._ledger.write(
            [
                ["R", self.name, self.group, topic, partition, self.periods.get((topic, partition), 0), first, last]
                for (topic, partition), (first, last) in runs.items()
            ]
        )

    def due(self) -> dict[Place, int]:
        """What to commit now."""
        self.processed()
        if not self.uncommitted or time.monotonic() - self._committed_at < COMMIT_EVERY_S:
            return {}
        return dict(self.uncommitted)

    def committed(self, offsets: dict[Place, int], sent: float) -> None:
        now = self._committed_at = time.monotonic()
        for place, offset in offsets.items():
            if self.uncommitted.get(place) == offset:
                del self.uncommitted[place]
        rows = [["C", sent, now, self.group, topic, index, offset] for (topic, index), offset in offsets.items()]
        self._ledger.write(rows)

    def gave_up(self, error: BaseException) -> None:
        self._ledger.write([["E", self.name, f"{type(error).__name__}: {error}"[:300]]])


def lifetime() -> float:
    return time.monotonic() + random.expovariate(1 / LIFETIME_S)


# The four kinds.


def confluent(servers: str, topic: str, tracker: Tracker) -> None:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": tracker.group,
            "client.id": tracker.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",
            "session.timeout.ms": SESSION_MS,
            "max.poll.interval.ms": MAX_POLL_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "reconnect.backoff.max.ms": 1_000,
            "fetch.wait.max.ms": 500,
            "queued.max.messages.kbytes": 1_024,
            "log_level": 0,
        }
    )

    def places(partitions: list[Any]) -> list[Place]:
        return [(p.topic, p.partition) for p in partitions]

    def commit(offsets: dict[Place, int]) -> None:
        if not offsets:
            return
        sent = time.monotonic()
        try:
            done = consumer.commit(offsets=[ck.TopicPartition(*p, o) for p, o in offsets.items()], asynchronous=False)
        except ck.KafkaException:
            return
        good = {(p.topic, p.partition): p.offset for p in done if p.error is None}
        tracker.committed(good, sent)

    def revoked(_: Any, partitions: list[Any]) -> None:
        tracker.processed()
        commit({place: tracker.uncommitted[place] for place in places(partitions) if place in tracker.uncommitted})
        tracker.revoked(places(partitions))

    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: tracker.assigned(places(partitions)),
        on_revoke=revoked,
        on_lost=lambda _, partitions: tracker.revoked(places(partitions)),
    )
    end = lifetime()
    try:
        while not stopping.is_set() and time.monotonic() < end:
            message = consumer.poll(POLL_S)
            while message is not None:
                if message.error() is None:
                    tracker.got(message.topic(), message.partition(), message.offset())
                message = consumer.poll(0)
            commit(tracker.due())
    finally:
        consumer.close()


class KafkaPythonListener(ConsumerRebalanceListener):
    """Called where nothing may block: it only notes. What a rebalance leaves with a member keeps its position here."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.tracker.processed()

    def on_partitions_lost(self, lost: Any) -> None:
        self.tracker.revoked([(p.topic, p.partition) for p in lost])

    def on_partitions_assigned(self, assigned: Any) -> None:
        tracker, places = self.tracker, [(p.topic, p.partition) for p in assigned]
        kept = {place: offset for place, offset in tracker.uncommitted.items() if place in places}
        tracker.revoked(list(tracker.periods))
        tracker.assigned(places)
        tracker.uncommitted.update(kept)


def kafka_python(servers: str, topic: str, tracker: Tracker) -> None:
    listener = KafkaPythonListener(tracker)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id=tracker.group,
        client_id=tracker.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=SESSION_MS,
        max_poll_interval_ms=MAX_POLL_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        reconnect_backoff_max_ms=1_000,
    )
    try:
        consumer.subscribe([topic], listener=listener)
        end = lifetime()
        while not stopping.is_set() and time.monotonic() < end:
            for records in consumer.poll(timeout_ms=int(POLL_S * 1000)).values():
                for record in records:
                    tracker.got(record.topic, record.partition, record.offset)
            kafka_python_commit(consumer, tracker, tracker.due())
    finally:
        consumer.close(autocommit=False)  # else its heartbeats go on, and its group waits for it in vain


def kafka_python_commit(consumer: Any, tracker: Tracker, offsets: dict[Place, int]) -> None:
    if not offsets:
        return
    sent = time.monotonic()
    rows = {kafka.TopicPartition(*p): kafka.OffsetAndMetadata(o, "", -1) for p, o in offsets.items()}
    try:
        consumer.commit(rows, timeout_ms=30_000)
    except kafka.errors.KafkaError:
        return
    tracker.committed(offsets, sent)


class AiokafkaListener(aiokafka.ConsumerRebalanceListener):
    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.consumer: Any = None

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.tracker.processed()
        await aiokafka_commit(self.consumer, self.tracker, dict(self.tracker.uncommitted))
        self.tracker.revoked([(p.topic, p.partition) for p in revoked])

    async def on_partitions_assigned(self, assigned: Any) -> None:
        generation = self.consumer._coordinator.generation
        self.tracker.assigned([(p.topic, p.partition) for p in assigned], generation)


async def aiokafka_commit(consumer: Any, tracker: Tracker, offsets: dict[Place, int]) -> None:
    if not offsets:
        return
    sent = time.monotonic()
    try:
        await consumer.commit({aiokafka.TopicPartition(*p): offset for p, offset in offsets.items()})
    except (aiokafka.errors.KafkaError, aiokafka.errors.IllegalOperation):
        return
    tracker.committed(offsets, sent)


async def aiokafka_consumer(servers: str, topic: str, tracker: Tracker) -> None:
    listener = AiokafkaListener(tracker)
    consumer = listener.consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=tracker.group,
        client_id=tracker.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        max_poll_interval_ms=MAX_POLL_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[AiokafkaRange],
    )
    try:
        await consumer.start()
        consumer.subscribe([topic], listener=listener)
        end = lifetime()
        while not stopping.is_set() and time.monotonic() < end:
            for records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                for record in records:
                    tracker.got(record.topic, record.partition, record.offset)
            await aiokafka_commit(consumer, tracker, tracker.due())
    finally:
        await consumer.stop()


async def own(servers: str, topic: str, tracker: Tracker) -> None:
    consumer = kohort.AsyncConsumer(
        bootstrap_servers=servers,
        group_id=tracker.group,
        client_id=tracker.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy="range",
        session_timeout_ms=SESSION_MS,
        max_poll_interval_ms=MAX_POLL_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )

    async def commit(offsets: dict[Place, int]) -> None:
        if not offsets:
            return
        sent = time.monotonic()
        try:
            await consumer.commit({kohort.client.TopicPartition(*p): offset for p, offset in offsets.items()})
        except KafkaError:
            return
        tracker.committed(offsets, sent)

    async def assigned(partitions: list[Any]) -> None:
        tracker.assigned([tuple(p) for p in partitions], consumer.group_metadata().generation_id)

    async def revoked(partitions: list[Any]) -> None:
        tracker.processed()
        await commit(dict(tracker.uncommitted))
        tracker.revoked([tuple(p) for p in partitions])

    async def lost(partitions: list[Any]) -> None:
        tracker.revoked([tuple(p) for p in partitions])

    async with consumer:
        await consumer.subscribe(
            topic, on_partitions_revoked=revoked, on_partitions_assigned=assigned, on_partitions_lost=lost
        )
        end = lifetime()
        while not stopping.is_set() and time.monotonic() < end:
            for record in await consumer.poll(POLL_S):
                tracker.got(record.topic, record.partition, record.offset)
            await commit(tracker.due())


THREADED = {"confluent": confluent, "kafka-python": kafka_python}
ASYNC = {"aiokafka": aiokafka_consumer, "kohort": own}


def keep_running(kind: str, servers: str, topic: str, name: str, group: str, ledger: Ledger) -> None:
    life = 0
    while not stopping.is_set():
        life += 1
        tracker = Tracker(f"{name}.{life}", group, ledger)
        try:
            THREADED[kind](servers, topic, tracker)
        except Exception as error:
            tracker.gave_up(error)
            time.sleep(1)


async def keep_running_async(kind: str, servers: str, topic: str, name: str, group: str, ledger: Ledger) -> None:
    life = 0
    while not stopping.is_set():
        life += 1
        tracker = Tracker(f"{name}.{life}", group, ledger)
        try:
            await ASYNC[kind](servers, topic, tracker)
        except (Exception, asyncio.CancelledError) as error:  # nobody cancels here but aiokafka, itself
            tracker.gave_up(error)
            await asyncio.sleep(1)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("consumers", nargs="+", metavar="KIND:GROUP:TOPIC")
    options = parser.parse_args()
    for name in ("kafka", "aiokafka", "kohort"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    ledger = Ledger(options.ledger)
    threads, tasks = [], []
    for number, consumer in enumerate(options.consumers):
        kind, group, topic = consumer.split(":")
        arguments = (kind, options.servers, topic, f"{options.name}-{number}-{kind}", group, ledger)
        if kind in THREADED:
            threads.append(threading.Thread(target=keep_running, args=arguments))
            threads[-1].start()
        else:
            tasks.append(asyncio.create_task(keep_running_async(*arguments)))
    await asyncio.gather(*tasks)
    while any(thread.is_alive() for thread in threads):
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
