"""An idempotent producer in the simulated world: one batch in flight per partition, the same batch again until it is
acknowledged. Each value is unique, so that a loss or a duplicate can be told from everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import InitProducerIdRequest, ProduceRequest
from kohort.records.batch import Record, build_batch
from kohort.sim.client import Caller

if TYPE_CHECKING:
    from kohort.sim.world import World

TIMEOUT_MS = 10_000
RETRY_MS = 100
LAST_VERSION_WITH_NAMES = 12


class SimProducer(Caller):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._in_flight: set[TopicPartition] = set()
        self._count = 0
        self.running = True

    def start(self) -> None:
        def answered(response: Any) -> None:
            if response.error_code:
                self._scheduler.after(RETRY_MS, self.start)
                return
            self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
            self._produce()

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self._channel.request(request, answered, lambda _: self._again(self.start), TIMEOUT_MS)

    def stop(self) -> None:
        """No new records; those on their way are still sent until acknowledged."""
        self.running = False

    @property
    def idle(self) -> bool:
        return not self._in_flight

    def _again(self, action: Any, *arguments: Any) -> None:
        self._scheduler.after(RETRY_MS, action, *arguments)

    def _produce(self) -> None:
        if not self.running:
            return
        free = [tp for tp in self._world.partitions() if tp not in self._in_flight]
        if free:
            self._batch(self._random.choice(free))
        every_ms = self._world.options.produce_every_ms
        self._scheduler.after(self._random.randint(1, 2 * every_ms), self._produce)

    def _batch(self, tp: TopicPartition) -> None:
        self._in_flight.add(tp)
        values = []
        for _ in range(self._random.randint(1, 4)):
            self._count += 1
            values.append(f"{self.name}/{self._count}".encode())
        data = build_batch(
            [Record(i, self._scheduler.now_ms, None, value) for i, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequences.get(tp, 0),
        )
        self._sequences[tp] = self._sequences.get(tp, 0) + len(values)
        self._send(tp, data, values)

    def _send(self, tp: TopicPartition, data: bytes, values: list[bytes]) -> None:
        partition = ProduceRequest.PartitionProduceData(index=tp.partition, records=data)
        topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])

        def answered(response: Any) -> None:
            result = response.responses[0].partition_responses[0]
            code = ErrorCode.of(result.error_code)
            if code is ErrorCode.NONE:
                self._in_flight.discard(tp)
                for i, value in enumerate(values):
                    self._world.trace.produced(tp, result.base_offset + i, value)
            elif code.retriable or code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._routes.learn(tp, result.current_leader.leader_id)
                self._again(self._send, tp, data, values)
            else:
                self._world.trace.fail(f"producer {self.name} got {code.name} for {tp}: {result.error_message}")

        def failed(_: str) -> None:
            self._routes.learn(tp, -1)
            self._again(self._send, tp, data, values)

        self._routes.to(tp).request(request, answered, failed, TIMEOUT_MS, LAST_VERSION_WITH_NAMES)
