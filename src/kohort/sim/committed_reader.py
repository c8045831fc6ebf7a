"""A consumer with read_committed in the simulated world: it fetches on and on, and takes what such a client takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import FetchRequest
from kohort.records.batch import iter_batches, read_records
from kohort.sim.client import Caller

if TYPE_CHECKING:
    from kohort.sim.world import World

TIMEOUT_MS = 10_000
EVERY_MS = 150
VERSION = 12
_ABORT = b"\x00\x00"


class CommittedReader(Caller):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.positions: dict[TopicPartition, int] = {}

    def start(self) -> None:
        self._fetch(0)

    def _fetch(self, turn: int) -> None:
        there = self._world.transactional_partitions()
        tp = there[turn % len(there)]
        position = self.positions.get(tp, 0)
        kind = FetchRequest
        row = kind.FetchPartition(partition=tp.partition, fetch_offset=position, partition_max_bytes=1 << 20)
        request = kind(max_wait_ms=0, isolation_level=1, topics=[kind.FetchTopic(topic=tp.topic, partitions=[row])])

        def answered(response: Any) -> None:
            if not response.error_code and response.responses:
                row = response.responses[0].partitions[0]
                self._take(tp, position, row)
                if row.error_code:
                    self._routes.learn(tp, row.current_leader.leader_id)
            self._scheduler.after(EVERY_MS, self._fetch, turn + 1)

        def failed(reason: str) -> None:
            self._routes.learn(tp, -1)
            self._scheduler.after(EVERY_MS, self._fetch, turn)

        self._routes.to(tp).request(request, answered, failed, TIMEOUT_MS, VERSION)

    def _take(self, tp: TopicPartition, position: int, row: Any) -> None:
        if row.error_code:
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._world.ledger.fail(f"{tp} has lost what was read up to {position}")
            return
        aborted = [(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()]
        view = memoryview(bytes(row.records or b""))
        for pos, header in iter_batches(view):
            if header.is_control:
                key = read_records(view, pos, header)[0].key
                if key is not None and bytes(key[2:4]) == _ABORT:
                    aborted = [a for a in aborted if a[0] != header.producer_id or a[1] > header.base_offset]
            elif not any(a[0] == header.producer_id and a[1] <= header.base_offset for a in aborted):
                for record in read_records(view, pos, header):
                    if record.offset >= position and record.value is not None:
                        self._world.ledger.seen(tp, record.offset, bytes(record.value))
            self.positions[tp] = max(self.positions.get(tp, 0), header.next_offset)
