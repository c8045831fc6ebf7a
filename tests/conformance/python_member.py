"""A consumer in a group, in a process of its own: prints what it is given, gives up and reads, ends when standard
input does. Arguments: the client (confluent or kohort), bootstrap servers, topic (or with a ^ an expression of the
broker), group, protocol, further settings as key=value.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

ended = threading.Event()
QUICK = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
"""Of the classic protocol; with the other they are the broker's to say."""


def tell(sign: str, partitions: Iterable[Any]) -> None:
    now_ms = time.time_ns() // 1_000_000
    for one in partitions:
        print(sign, one.partition, now_ms, flush=True)


def settings(servers: str, group: str, protocol: str, assignor: str, further: tuple[str, ...]) -> dict[str, Any]:
    own: dict[str, Any] = {"group.protocol": protocol, **dict(one.split("=", 1) for one in further)}
    if protocol == "classic":
        own |= {**QUICK, "partition.assignment.strategy": assignor}
    return {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", **own}


def confluent(servers: str, topic: str, group: str, protocol: str, *further: str) -> None:
    import confluent_kafka as ck

    # Not cooperative-sticky: librdkafka's puts data of its own into assignments, and no broker converts such a group.
    base = settings(servers, group, protocol, "range", further)
    refresh = {"topic.metadata.refresh.interval.ms": 500, "log_level": 0}
    consumer = ck.Consumer({**base, **refresh, "enable.auto.commit": False})

    def commit() -> None:
        try:
            consumer.commit(asynchronous=False)
        except ck.KafkaException:
            pass  # nothing to commit, or it is read again

    def revoked(_: Any, partitions: list[Any]) -> None:
        commit()
        tell("-", partitions)

    consumer.subscribe(
        [topic], on_assign=lambda _, new: tell("+", new), on_revoke=revoked, on_lost=lambda _, gone: tell("-", gone)
    )
    while not ended.is_set():
        message = consumer.poll(0.1)
        while message is not None:
            if message.error() is None:
                print("R", message.value().decode(), flush=True)
            message = consumer.poll(0)
        commit()
    consumer.close()


def own(servers: str, topic: str, group: str, protocol: str, *further: str) -> None:
    import kohort

    config = {**settings(servers, group, protocol, "cooperative-sticky", further), "metadata.max.age.ms": 500}
    with kohort.Consumer(**{name.replace(".", "_"): value for name, value in config.items()}) as consumer:
        consumer.subscribe(
            kohort.SubscriptionPattern(topic) if topic.startswith("^") else topic,
            on_partitions_assigned=lambda new: tell("+", new),
            on_partitions_revoked=lambda gone: tell("-", gone),
            on_partitions_lost=lambda gone: tell("-", gone),
        )
        while not ended.is_set():
            for record in consumer.poll(0.1):
                print("R", record.value.decode(), flush=True)


if __name__ == "__main__":
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    {"confluent": confluent, "kohort": own}[sys.argv[1]](*sys.argv[2:])
