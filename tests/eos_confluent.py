"""The same as eos_worker.py by confluent-kafka: `python eos_confluent.py BOOTSTRAP ID`; ends at any trouble."""

import sys

from confluent_kafka import Consumer, Producer, TopicPartition


def main(bootstrap_servers: str, transactional_id: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id, "transaction.timeout.ms": 20_000}
    )
    producer.init_transactions(60)
    reading = {"group.id": "eos", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    reading |= {
        "session.timeout.ms": 6_000,
        "isolation.level": "read_committed",
        "bootstrap.servers": bootstrap_servers,
    }
    consumer = Consumer(reading)
    consumer.subscribe(["in"])
    while True:
        records = [record for record in consumer.consume(7, 0.2) if not record.error()]
        if not records:
            continue
        producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for record in records:
            producer.produce("out", record.value(), partition=record.partition())
            ends[record.topic(), record.partition()] = record.offset() + 1
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
