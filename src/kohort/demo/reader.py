"""A process that reads orders as a member of the group: `python -m kohort.demo.reader`.

Each order is written to a file first and committed later, so a crash in between means that it is read again. The file
tells the whole truth: rows as they were read, and each commit once the group has confirmed it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import kohort
from kohort.client.errors import CommitFailedError
from kohort.protocol.errors import KafkaError

COMMIT_EVERY_S = 0.5


class Reader:
    def __init__(self, name: str, servers: str, group_id: str, topic: str, path: str, settings: dict[str, Any]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._topic = topic
        self._stop = threading.Event()
        self._positions: dict[Any, int] = {}
        self._consumer = kohort.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group_id,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )

    def _note(self, *lines: Any) -> None:
        os.write(self._file, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def run(self) -> None:
        self._consumer.subscribe(self._topic, on_partitions_revoked=self._revoked, on_partitions_lost=self._lost)
        next_commit = time.monotonic() + COMMIT_EVERY_S
        while not self._stop.is_set():
            records = self._consumer.poll(0.1)
            if records:
                now = time.monotonic()
                rows = ({"p": r.partition, "o": r.offset, "id": json.loads(r.value)["id"], "t": now} for r in records)
                self._note(*rows)
                for record in records:
                    self._positions[(record.topic, record.partition)] = record.offset + 1
            if time.monotonic() >= next_commit:
                self._commit()
                next_commit = time.monotonic() + COMMIT_EVERY_S
        self._consumer.close()

    def _commit(self) -> None:
        """Refused while the group moves on without this member: then others read these orders again."""
        from kohort.client.types import TopicPartition

        if not self._positions:
            return
        offsets = {TopicPartition(*place): offset for place, offset in self._positions.items()}
        try:
            self._consumer.commit(offsets, timeout=5)
        except (CommitFailedError, KafkaError, TimeoutError):
            return
        committed = {str(place[1]): offset for place, offset in self._positions.items()}
        self._note({"committed": committed, "t": time.monotonic()})
        self._positions.clear()

    def _revoked(self, partitions: Any) -> None:
        self._commit()
        self._lost(partitions)

    def _lost(self, partitions: Any) -> None:
        for tp in partitions:
            self._positions.pop((tp.topic, tp.partition), None)

    def stop(self, *_: object) -> None:
        self._stop.set()


def end_with_parent(stop: Any) -> None:
    """Standard input is a pipe from whoever started us: at its end they are gone, and so are we."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            sys.stdin.buffer.read()
        stop()

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    task = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader = Reader(**task)
    signal.signal(signal.SIGTERM, reader.stop)
    end_with_parent(reader.stop)
    reader.run()


if __name__ == "__main__":
    main()
