"""kill -9 in the middle of producing: what was acknowledged is there afterwards, once, whenever it happened."""

import os
import signal
import threading
import time

import pytest

from kohort.protocol import messages
from kohort.records.batch import read_header, read_records
from serving import Serving
from wire import WireClient, batch, fetch_request, produce_request

LIMIT_S = 60


class Producer:
    """An idempotent producer that goes on with its next sequence, or retries the last one, after each crash."""

    def __init__(self, topic, producer_id):
        self.topic = topic
        self.producer_id = producer_id
        self.sequence = 0
        self.acknowledged = {}
        self.refused = []

    def produce_until_it_breaks(self, address):
        try:
            client = WireClient(address)
            while True:
                values = [b"%s-%d-%d" % (self.topic.encode(), self.sequence + i, self.producer_id) for i in range(3)]
                data = batch(
                    *values,
                    producer_id=self.producer_id,
                    producer_epoch=0,
                    base_sequence=self.sequence,
                    timestamp=int(time.time() * 1000),
                )
                row = client.call(produce_request(self.topic, data), 9).responses[0].partition_responses[0]
                if row.error_code:
                    self.refused.append(row.error_code)
                    return
                for i, value in enumerate(values):
                    self.acknowledged[value] = row.base_offset + i
                self.sequence += 3
        except (OSError, EOFError):
            pass


def create(address, *topics):
    kind = messages.CreateTopicsRequest
    rows = [kind.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in topics]
    answer = WireClient(address).call(kind(topics=rows, timeout_ms=1000), 7)
    assert {row.error_code for row in answer.topics} == {0}


def producer_id(address):
    return WireClient(address).call(messages.InitProducerIdRequest(transactional_id=None), 4).producer_id


def stored(address, topic):
    """Value -> offsets of everything in the topic."""
    client, offset, found = WireClient(address), 0, {}
    while True:
        row = client.call(fetch_request(topic, offset, partition_max_bytes=8 << 20), 11).responses[0].partitions[0]
        assert row.error_code == 0
        data, pos = bytes(row.records), 0
        if not data:
            return found
        while pos < len(data):
            header = read_header(data, pos)
            for record in read_records(data, pos, header):
                found.setdefault(record.value, []).append(record.offset)
            offset = header.next_offset
            pos += header.size


@pytest.mark.timeout(600)
def test_kills_in_the_middle_of_producing(tmp_path):
    topics = ["a", "b", "c"]
    serving = Serving("--data-dir", str(tmp_path))
    create(serving.address, *topics)
    ids = [producer_id(serving.address) for _ in topics]
    producers = [Producer(topic, given) for topic, given in zip(topics, ids, strict=True)]
    for round_number in range(15):
        threads = [
            threading.Thread(target=producer.produce_until_it_breaks, args=(serving.address,)) for producer in producers
        ]
        before = [len(producer.acknowledged) for producer in producers]
        for thread in threads:
            thread.start()
        enough = before[round_number % 3] + 3 * (round_number % 7 + 1)
        end = time.monotonic() + LIMIT_S
        while len(producers[round_number % 3].acknowledged) < enough and time.monotonic() < end:
            time.sleep(0.001)
        serving.kill()
        for thread in threads:
            thread.join(LIMIT_S)
        serving = Serving("--data-dir", str(tmp_path))
        assert [producer.refused for producer in producers] == [[], [], []]
        assert producer_id(serving.address) not in ids
    for producer in producers:
        found = stored(serving.address, producer.topic)
        assert all(len(offsets) == 1 for offsets in found.values()), "a record is there twice"
        lost = {value for value, offset in producer.acknowledged.items() if found.get(value) != [offset]}
        assert not lost, f"{len(lost)} acknowledged records are lost or moved"
    assert serving.stop() == 0


def test_topics_created_before_a_kill_are_there(tmp_path):
    serving = Serving("--data-dir", str(tmp_path))
    create(serving.address, "kept")
    os.kill(serving.process.pid, signal.SIGKILL)
    serving.process.communicate(timeout=LIMIT_S)
    again = Serving("--data-dir", str(tmp_path))
    topics = WireClient(again.address).call(messages.MetadataRequest(topics=None), 9).topics
    assert [topic.name for topic in topics] == ["kept"]
    again.stop()
