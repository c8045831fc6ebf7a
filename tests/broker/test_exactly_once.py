"""kill -9 of broker and clients in a loop that reads, processes and writes: every input is in the output once."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kohort
from kohort.client import KafkaError, TopicPartition
from kohort.client.admin_types import NewTopic
from serving import Serving

WORKER = Path(__file__).parents[1] / "eos_worker.py"
LIMIT_S = 150
RECORDS = 600


def output(address):
    """Every value that a read_committed consumer finds, up to the end of what is stable."""
    partitions = [TopicPartition("out", 0), TopicPartition("out", 1)]
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with kohort.Consumer(bootstrap_servers=address, **settings) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found = []
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            found += [int(record.value) for record in consumer.poll(1)]
        return found


class Workers:
    """Two of them, started again whenever one has ended."""

    def __init__(self, address):
        self._address = address
        self._running = [None, None]

    def keep_up(self):
        for number, process in enumerate(self._running):
            if process is None or process.poll() is not None:
                command = [sys.executable, str(WORKER), self._address, f"worker-{number}"]
                self._running[number] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self, number):
        process = self._running[number]
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def stop(self):
        for number in range(len(self._running)):
            self.kill(number)


@pytest.mark.timeout(LIMIT_S + 60)
def test_every_input_is_in_the_output_once(tmp_path):
    generator = random.Random(11)
    serving = Serving("--data-dir", str(tmp_path))
    address = serving.address
    again = ("--data-dir", str(tmp_path), "--port", address.rpartition(":")[2])
    workers = Workers(address)
    try:
        with kohort.Producer(bootstrap_servers=address) as producer:
            with kohort.Admin(bootstrap_servers=address) as admin:
                admin.create_topics([NewTopic("in", 2), NewTopic("out", 2)])
            for i in range(RECORDS):
                producer.send("in", str(i), partition=i % 2)
        deadline, troubles, found = time.monotonic() + LIMIT_S, 0, []
        while len(found) < RECORDS:
            assert time.monotonic() < deadline, f"{len(found)} of {RECORDS} after {troubles} kills"
            workers.keep_up()
            time.sleep(generator.uniform(0.1, 0.6))
            if troubles < 6:
                troubles += 1
                if troubles % 2:
                    serving.kill()
                    serving = Serving(*again)
                    assert serving.address == address
                else:
                    workers.kill(generator.randrange(2))
            try:
                found = output(address)
            except KafkaError:
                continue
        assert sorted(found) == list(range(RECORDS))
    finally:
        workers.stop()
        serving.kill()
