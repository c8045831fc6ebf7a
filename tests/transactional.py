"""A transactional producer at the level of requests, for tests that look at every answer."""

from __future__ import annotations

from typing import Any

from kohort.broker.groups import GroupService
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Record, read_header, read_records
from wire import CoreClient, World, batch, fetch_request, produce_request

CONFIG = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}


def make_world(store: Any = None, **config: Any) -> World:
    given = {name.replace("_", "."): value for name, value in config.items()}
    made = World(CONFIG | given, store, GroupService)
    made.connect().call(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    for _ in range(100):
        made.advance(0)
    return made


class TxnProducer:
    """`tv` is the transaction.version it speaks; every method returns the error code of the answer."""

    def __init__(self, world: World, transactional_id: str = "tx", tv: int = 2, timeout_ms: int = 60_000) -> None:
        self.world = world
        self.client: CoreClient = world.connect()
        self.transactional_id = transactional_id
        self.tv = tv
        self.timeout_ms = timeout_ms
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def find(self) -> None:
        request = messages.FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        (row,) = self.client.call(request, 4).coordinators
        assert row.error_code == 0
        for _ in range(10):
            self.world.advance(0)

    def init(self, *, keep: bool = False, version: int = 5) -> ErrorCode:
        """With `keep` it says who it was (KIP-360)."""
        self.find()
        answer = self.client.call(
            messages.InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=self.id if keep else -1,
                producer_epoch=self.epoch if keep else -1,
            ),
            version,
        )
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def add(self, *partitions: tuple[str, int], version: int = 3) -> ErrorCode:
        kind = messages.AddPartitionsToTxnRequest
        topics = [kind.AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions]
        answer = self.client.call(
            kind(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            ),
            version,
        )
        (code,) = {r.partition_error_code for t in answer.results_by_topic_v3_and_below for r in t.results_by_partition}
        return ErrorCode(code)

    def send(self, value: bytes, topic: str = "t", partition: int = 0, *, enlist: bool = True) -> ErrorCode:
        if self.tv < 2 and enlist and (code := self.add((topic, partition))):
            return code
        sequence = self.sequences.get((topic, partition), 0)
        data = batch(
            value,
            transactional=True,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            timestamp=self.world.now_ms,
        )
        request = produce_request(topic, data, partition=partition)
        request.transactional_id = self.transactional_id
        answer = self.client.call(request, 12 if self.tv >= 2 else 11)
        row = answer.responses[0].partition_responses[0]
        if not row.error_code:
            self.sequences[topic, partition] = sequence + 1
        return ErrorCode(row.error_code)

    def commit_offset(self, group: str, offset: int, topic: str = "t", partition: int = 0, **member: Any) -> ErrorCode:
        if self.tv < 2:
            ask = messages.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            if code := self.client.call(ask, 3).error_code:
                return ErrorCode(code)
        kind = messages.TxnOffsetCommitRequest
        row = kind.TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = kind(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[kind.TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
            **member,
        )
        answer = self.client.call(request, 5 if self.tv >= 2 else 3)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, commit: bool = True) -> ErrorCode:
        answer = self.client.call(
            messages.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5 if self.tv >= 2 else 4,
        )
        if not answer.error_code and self.tv >= 2:
            if (answer.producer_id, answer.producer_epoch) != (self.id, self.epoch):
                self.sequences.clear()
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)


def describe(world: World, transactional_id: str = "tx") -> Any:
    request = messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return world.connect().call(request, 0).transaction_states[0]


def state_of(world: World, transactional_id: str = "tx") -> str:
    return str(describe(world, transactional_id).transaction_state)


def read(world: World, topic: str = "t", partition: int = 0, *, committed: bool = True) -> list[bytes | None]:
    """What a consumer sees: with `committed` as read_committed clients do it, by the list of aborted transactions."""
    fetch = fetch_request(topic, *[0] * (partition + 1), isolation_level=int(committed))
    rows = world.connect().call(fetch, 12).responses[0].partitions
    row = next(row for row in rows if row.partition_index == partition)
    aborted = [(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()]
    found: list[bytes | None] = []
    for header, records in batches(bytes(row.records)):
        if header.is_control:
            if records[0].key[2:4] == b"\x00\x00":
                aborted = [a for a in aborted if not (a[0] == header.producer_id and a[1] < header.base_offset)]
        elif not any(a[0] == header.producer_id and a[1] <= header.base_offset for a in aborted):
            found += [record.value for record in records]
    return found


def batches(data: bytes) -> list[tuple[Any, list[Record]]]:
    found, pos = [], 0
    while pos < len(data):
        header = read_header(data, pos)
        found.append((header, read_records(data, pos, header)))
        pos += header.size
    return found


def fetch_offset(world: World, group: str, topic: str = "t", partition: int = 0, *, stable: bool = True) -> Any:
    kind = messages.OffsetFetchRequest
    topics = [kind.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    asked = kind.OffsetFetchRequestGroup(group_id=group, topics=topics)
    answer = world.connect().call(kind(groups=[asked], require_stable=stable), 8)
    return answer.groups[0].topics[0].partitions[0]
