"""How far a request walks: the files and functions of kohort that it goes through, in the order in which it meets them.

    python tools/walk.py                    how many, of a JoinGroup, a commit, a poll with its fetch and a Spark batch
    python tools/walk.py --steps commit     each of them by name

A broker runs in this process. `join` counts its side alone; `commit` and `poll` both sides, the consumer's from the
call of the application on; `batch` plans and reads a micro-batch as Spark has it done, without Spark and with the
broker's side. What is generated from message definitions, and code that runs once at start, is not counted.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import kohort
from kafka_socket import KafkaSocket
from kohort.protocol.messages import FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest

HOME = str(Path(kohort.__file__).parent) + "/"
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
COMPREHENSIONS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")
CONFIG = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


class Walk:
    """The functions that were called while it was on, by any thread that began after `follow`."""

    def __init__(self) -> None:
        self.on = False
        self.steps: dict[tuple[str, str], None] = {}

    def follow(self) -> None:
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.on and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(HOME) and code.co_name not in COMPREHENSIONS:
                self.steps[code.co_filename.removeprefix(HOME), code.co_qualname] = None

    def of(self, work: Callable[[], Any], settle: float = 0.05) -> dict[tuple[str, str], None]:
        """What `work` goes through, once it has gone that way before; waits until what it sets off has ended."""
        work()
        time.sleep(settle)
        self.steps, self.on = {}, True
        work()
        time.sleep(settle)
        self.on = False
        return self.steps


def join(walk: Walk, broker: Any) -> dict[tuple[str, str], None]:
    """The join of a member that has its id, into a group that it makes a generation of."""
    names = iter(range(100))

    def once() -> None:
        was, walk.on = walk.on, False
        sys.setprofile(None)
        with KafkaSocket(broker.bootstrap_servers) as client:
            group = f"walk-{next(names)}"
            client.call(FindCoordinatorRequest(key=group), 1)
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
            asked = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols=[protocol],
            )
            while not asked.member_id:
                asked.member_id = client.call(asked, 5).member_id
            walk.on = was
            joined = client.call(asked, 5)
            time.sleep(0.02)
            walk.on = False
            assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=asked.member_id, assignment=b"")
            sync = SyncGroupRequest(
                group_id=group, generation_id=1, member_id=asked.member_id, assignments=[assignment]
            )
            assert joined.error_code == client.call(sync, 3).error_code == 0, joined
            walk.on = was

    return walk.of(once)


def commit(walk: Walk, broker: Any) -> dict[tuple[str, str], None]:
    with consumer_of(broker, "walk-commit") as consumer:
        while not consumer.poll(5.0):
            pass
        return walk.of(consumer.commit)


def poll(walk: Walk, broker: Any) -> dict[tuple[str, str], None]:
    """Nothing is at hand when the poll begins, as the position was moved: it asks the broker."""
    with consumer_of(broker, "walk-poll") as consumer:
        while not consumer.poll(5.0):
            pass
        (partition,) = consumer.assignment()

        def once() -> None:
            was, walk.on = walk.on, False
            consumer.seek(partition, 0)
            walk.on = was
            while not consumer.poll(5.0):
                pass

        return walk.of(once)


def batch(walk: Walk, broker: Any) -> dict[tuple[str, str], None]:
    from kohort.spark.options import parse_read_options
    from kohort.spark.stream import StreamReader

    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "t",
        "group.id": "walk-spark",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1",
    }
    reader = StreamReader(parse_read_options(options, "stream"), ("key", "value"))
    at = [reader.initialOffset()]

    def once() -> None:
        rows, end = 0, at[0]
        while not rows:
            start, end = end, reader.latestOffset(end, reader.getDefaultReadLimit())
            rows = sum(b.num_rows for task in reader.partitions(start, end) for b in reader.read(task))
        reader.commit(end)
        at[0] = end

    try:
        return walk.of(once)
    finally:
        reader.stop()


def consumer_of(broker: Any, group_id: str) -> Any:
    consumer = kohort.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    return consumer


WALKS = {"join": join, "commit": commit, "poll": poll, "batch": batch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walks", nargs="*", help=f"of {', '.join(WALKS)}; all where none is named")
    parser.add_argument("--steps", action="store_true", help="list every function")
    options = parser.parse_args()
    if unknown := set(options.walks) - set(WALKS):
        parser.error(f"no such walk: {', '.join(sorted(unknown))}; choose from {', '.join(WALKS)}")
    walk = Walk()
    walk.follow()
    with kohort.Broker(config=CONFIG) as broker:
        broker.create_topic("t", partitions=1)
        with kohort.Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            for _ in range(10):
                producer.send("t", value=b"x").result(10)
        for name in options.walks or WALKS:
            steps = WALKS[name](walk, broker)
            files = dict.fromkeys(file for file, _ in steps)
            print(f"{name:8} {len(files):3} files {len(steps):4} functions")
            if options.steps:
                for file, function in steps:
                    print(f"    {file:40} {function}")


if __name__ == "__main__":
    main()
