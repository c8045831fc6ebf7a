"""A process that reads, processes and writes exactly once: `python eos_worker.py BOOTSTRAP ID`; ends at any trouble.

Every record of `in` goes to `out` in a transaction that also commits its offset; whoever starts it starts it again.
"""

import sys

import kohort
from kohort.client import TopicPartition


def main(bootstrap_servers: str, transactional_id: str) -> None:
    reading = {"group_id": "eos", "auto_offset_reset": "earliest", "enable_auto_commit": False, "max_poll_records": 7,
               "session_timeout_ms": 6_000, "isolation_level": "read_committed"}  # fmt: skip
    with (
        kohort.Consumer(bootstrap_servers=bootstrap_servers, **reading) as consumer,
        kohort.Producer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id) as producer,
    ):
        producer.begin()
        producer.abort()  # the transaction of whoever had the id before is over from here on
        consumer.subscribe("in")
        while True:
            records = consumer.poll(0.2)
            if not records:
                continue
            with producer.transaction():
                for record in records:
                    producer.send("out", record.value, partition=record.partition)
                ends = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in records}
                producer.send_offsets(ends, consumer.group_metadata())


if __name__ == "__main__":
    main(*sys.argv[1:])
