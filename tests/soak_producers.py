"""The producers of the soak, idempotent: one of confluent-kafka, one of our own; and what was acknowledged to them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck

import kohort

PARTITIONS = 10

Place = tuple[str, int]


class Produced:
    """What was acknowledged: place -> offset -> value."""

    def __init__(self) -> None:
        self.acknowledged: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self.failed: list[str] = []
        self._lock = threading.Lock()

    def stored(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        with self._lock:
            known = self.acknowledged[topic, partition].setdefault(offset, value)
            if known != value:
                self.failed.append(f"{topic}-{partition} at {offset} was acknowledged for {known!r} and {value!r}")

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self.acknowledged.values()))


def produce_confluent(servers: str, topics: list[str], rate: float, stop: threading.Event, produced: Produced) -> None:
    producer = ck.Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "reconnect.backoff.max.ms": 1_000,
            "message.timeout.ms": 300_000,
            "log_level": 0,
        }
    )

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            produced.failed.append(str(error))
        else:
            produced.stored(message.topic(), message.partition(), message.offset(), message.value())

    def send(topic: str, partition: int, value: bytes) -> None:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)

    _at_rate(send, topics, rate, stop)
    if producer.flush(300):
        produced.failed.append("confluent-kafka could not flush")


def produce_own(servers: str, topics: list[str], rate: float, stop: threading.Event, produced: Produced) -> None:
    deliveries: deque[tuple[str, int, bytes, Any]] = deque()

    def collect(everything: bool) -> None:
        while deliveries and (everything or deliveries[0][3].done()):
            topic, partition, value, delivery = deliveries.popleft()
            try:
                produced.stored(topic, partition, delivery.result(300).offset, value)
            except Exception as error:
                produced.failed.append(f"kohort: {error!r}")

    with kohort.Producer(bootstrap_servers=servers, linger_ms=20, delivery_timeout_ms=300_000) as producer:

        def send(topic: str, partition: int, value: bytes) -> None:
            deliveries.append((topic, partition, value, producer.send(topic, value, partition=partition)))
            collect(False)

        _at_rate(send, topics, rate, stop)
        collect(True)


def _at_rate(send: Callable[[str, int, bytes], None], topics: list[str], rate: float, stop: threading.Event) -> None:
    began, count = time.monotonic(), 0
    while not stop.is_set():
        while count < (time.monotonic() - began) * rate:
            topic, partition = topics[count % len(topics)], (count // len(topics)) % PARTITIONS
            send(topic, partition, b"%s %d %d" % (topic.encode(), partition, count))
            count += 1
        stop.wait(0.05)
