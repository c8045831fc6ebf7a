"""A coordinator with a clock and a log that the test controls: requests in, replies, records and events out."""

from collections.abc import Callable, Iterable
from typing import Any

from kohort.coordinator.context import CoordinatorConfig
from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.effects import Request, plain
from kohort.coordinator.events import GroupEvent
from kohort.coordinator.shard import Shard, Write
from kohort.protocol.errors import ErrorCode

MAX_APPEND_BYTES = 1_048_588


class FakeTopics:
    """Topic `orders` has four partitions unless told otherwise."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[bytes, int]] = {"orders": (b"orders".ljust(16, b"\x01"), 4)}

    def by_name(self, name: str) -> tuple[bytes, int] | None:
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> str | None:
        return next((name for name, (known, _) in self.topics.items() if known == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.topics

    rack = ""

    def add(self, name: str, partitions: int) -> bytes:
        topic_id = name.encode().ljust(16, b"\x01")[:16]
        self.topics[name] = (topic_id, partitions)
        return topic_id


class World:
    """`store_error` makes every append fail; `held` keeps them back until `store_held`."""

    def __init__(self, *, partitions: int = 1, load: bool = True, **config: Any) -> None:
        self.now_ms = 1_000_000
        self.topics = FakeTopics()
        self.config = CoordinatorConfig(offsets_topic_num_partitions=partitions, **config)
        self.log: dict[int, list[tuple[bytes, bytes | None]]] = {p: [] for p in range(partitions)}
        self.replies: dict[Any, Any] = {}
        self.events: list[GroupEvent] = []
        self.store_error = ErrorCode.NONE
        self.holding = False
        self.held: list[Write[Any]] = []
        self.work: list[Any] = []
        self.works_later = False
        self.sent = 0
        self.epoch = 0
        self.after: Callable[[], None] = lambda: None
        self._uuids = 0
        self.coordinator = self._new_coordinator()
        if load:
            self.load()

    def _new_uuid(self) -> str:
        self._uuids += 1
        return f"{self._uuids:04d}"

    def _new_coordinator(self) -> Coordinator:
        coordinator = Coordinator(self.config, self.topics, self._new_uuid)
        coordinator.is_active = True
        return coordinator

    def load(self) -> None:
        self.lead()
        self.carry_out()

    def lead(self) -> list[Shard[Any]]:
        """Begins to load; what `carry_out` does with it is up to the caller."""
        self.epoch += 1
        return [self.coordinator.runtime.lead(partition, self.epoch, self.now_ms) for partition in self.log]

    def read(self, shard: Shard[Any]) -> None:
        shard.state.now_ms = self.now_ms
        for offset, (key, value) in enumerate(self.log[shard.partition]):
            shard.state.read(key, value, offset)

    def loaded(self, shard: Shard[Any]) -> None:
        while not shard.state.settle(100):
            pass
        log = self.log[shard.partition]
        self.coordinator.runtime.loaded(shard, shard.incarnation, len(log), self.now_ms, MAX_APPEND_BYTES)

    def restart(self, *, load: bool = True) -> None:
        """A crash: what is in the log is all that is left."""
        self.held.clear()
        self.coordinator = self._new_coordinator()
        if load:
            self.load()

    # ---- doing

    def send(
        self, message: Any, version: int, token: Any = None, client_id: str = "c", client_host: str = "/127.0.0.1"
    ) -> Any:
        """Returns the reply where there is one at once, else None: it is parked and will show in `replies`."""
        self.sent += 1
        token = self.sent if token is None else token
        self.replies.pop(token, None)
        request = Request(token, message, version, client_id, client_host)
        self.coordinator.handle(request, self.now_ms)
        self.carry_out()
        return self.replies.get(token)

    def advance(self, milliseconds: int) -> None:
        """Time passes, stopping at each deadline, as in a broker that is woken for them."""
        until = self.now_ms + milliseconds
        while (deadline := self.coordinator.runtime.next_deadline()) is not None and deadline <= until:
            self.now_ms = max(self.now_ms, deadline)
            self.coordinator.runtime.on_time(self.now_ms)
            self.carry_out()
        self.now_ms = until

    def carry_out(self) -> None:
        """Append, then tell, then answer: the order that the broker keeps."""
        self._take()
        while writes := self.coordinator.runtime.take_writes(self.now_ms):
            for write in writes:
                if self.holding:
                    self.held.append(write)
                else:
                    self.store(write)
            self._take()
        self.after()

    def store(self, write: Write[Any]) -> None:
        if not self.store_error:
            self.log[write.shard.partition] += [pair for decision in write.decisions for pair in decision.records]
        self.coordinator.runtime.stored(write, self.store_error, self.now_ms)

    def do_work(self) -> None:
        """What is computed elsewhere comes back; with `works_later` the test says when."""
        work, self.work = self.work, []
        for one in work:
            made, error = None, None
            try:
                made = one.compute()
            except Exception as raised:
                error = raised
            self.coordinator.computed(one, made, error, self.now_ms)
        if work:
            self.carry_out()

    def store_held(self) -> None:
        self.holding = False
        while self.held:
            self.store(self.held.pop(0))
            self.carry_out()

    def _take(self) -> None:
        effects = self.coordinator.effects
        for shard in list(effects.loads):
            # What was handed to the log before is part of it, or never will be: a load ends when that is known.
            if not any(write.shard is shard for write in self.held):
                effects.loads.remove(shard)
                self.read(shard)
                self.loaded(shard)
        for request, response in effects.replies:
            assert request.call not in self.replies, f"two replies to {request.call}"
            self.replies[request.call] = plain(response)
        effects.replies.clear()
        self.events += effects.events
        effects.events.clear()
        self.work += effects.work
        effects.work.clear()
        if not self.works_later:
            self.do_work()
