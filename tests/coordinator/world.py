"""A coordinator with a clock and a log that the test controls: requests in, replies, records and events out."""

from collections.abc import Callable
from typing import Any

from kohort.coordinator.context import CoordinatorConfig
from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.effects import Append, Effects, GroupRequest
from kohort.coordinator.events import GroupEvent
from kohort.protocol.errors import ErrorCode


class FakeTopics:
    """Topic `orders` has four partitions unless told otherwise."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[bytes, int]] = {"orders": (b"orders".ljust(16, b"\x01"), 4)}

    def by_name(self, name: str) -> tuple[bytes, int] | None:
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> str | None:
        return next((name for name, (known, _) in self.topics.items() if known == topic_id), None)

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
        self.held: list[Append] = []
        self.sent = 0
        self.after: Callable[[], None] = lambda: None
        self._uuids = 0
        self.coordinator = self._new_coordinator()
        if load:
            self.load()

    def _new_uuid(self) -> str:
        self._uuids += 1
        return f"{self._uuids:04d}"

    def _new_coordinator(self) -> Coordinator:
        return Coordinator(self.config, self.topics, self._new_uuid)

    def load(self, partitions: list[int] | None = None) -> None:
        for partition in partitions if partitions is not None else list(self.log):
            self.coordinator.load_started(partition, 0)
            for offset, (key, value) in enumerate(self.log[partition]):
                self.coordinator.replay(partition, key, value, self.now_ms, offset)
            self.carry_out(self.coordinator.load_finished(partition, self.now_ms))

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
        request = GroupRequest(token, message, version, client_id, client_host)
        self.carry_out(self.coordinator.handle(request, self.now_ms))
        return self.replies.get(token)

    def advance(self, milliseconds: int) -> None:
        """Time passes, stopping at each deadline, as in a broker that is woken for them."""
        until = self.now_ms + milliseconds
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= until:
            self.now_ms = max(self.now_ms, deadline)
            self.carry_out(self.coordinator.on_time(self.now_ms))
        self.now_ms = until

    def carry_out(self, effects: Effects) -> None:
        self._take(effects)
        appends = list(effects.appends)
        while appends:
            append = appends.pop(0)
            if self.holding:
                self.held.append(append)
                continue
            done = self.store(append)
            self._take(done)
            appends += done.appends
        self.after()

    def store(self, append: Append) -> Effects:
        """Append, then replay, then tell: the order that the broker keeps."""
        if not self.store_error:
            log = self.log[append.partition]
            self.coordinator.replay_appends(append.partition, [append], len(log), self.now_ms)
            log += append.records
        return self.coordinator.stored(append.token, self.store_error, self.now_ms)

    def store_held(self) -> None:
        self.holding = False
        held, self.held = self.held, []
        for append in held:
            self.carry_out(self.store(append))

    def _take(self, effects: Effects) -> None:
        for token, response in effects.replies:
            assert token not in self.replies, f"two replies to {token}"
            self.replies[token] = response
        self.events += effects.events
