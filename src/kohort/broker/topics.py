"""The topics of the broker: their ids, partitions and configs, what may be created, and how that is remembered.

One document in the store is the truth: it is saved before a topic shows and before the logs of a deleted one go, so a
crash in between is finished at the next start. Logs it has never heard of (of another Kafka) are taken in.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kohort.broker.config import BrokerConfig
from kohort.broker.topic_configs import broker_log_config
from kohort.coordinator.events import EVENTS_TOPIC
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.uuids import ZERO_UUID, from_base64, to_base64
from kohort.storage.config import LogConfig

if TYPE_CHECKING:
    from kohort.broker.purgatory import Waiter
    from kohort.storage.log import Log
    from kohort.storage.store import Store

logger = logging.getLogger("kohort.broker")

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})
METADATA_TOPIC = "__cluster_metadata"
"""The log of Kafka's controllers; no client may make one."""
DOCUMENT = "kohort.state.json"
MIN_ISR = "min.insync.replicas"
MAX_NAME_LENGTH = 249
MAX_PARTITIONS = 10_000
SLICE = 32
"""How many partitions are opened or removed before others have a turn."""
_FORMAT = 1
_T = TypeVar("_T")
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PRODUCER_ID_BLOCK = 1000


class Partition:
    """One partition and whoever waits for news of it."""

    __slots__ = (
        "bytes_in", "bytes_out", "damage", "deleted", "index", "leader_epoch", "leader_id", "leads", "log",
        "messages_in", "topic", "waiters",
    )  # fmt: skip

    def __init__(self, topic: Topic, index: int, log: Log, leader_epoch: int) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.leads = True  # whether this broker serves it
        self.leader_id: int | None = None  # in a cluster: which broker leads it, -1 for none
        self.damage = ""  # in a cluster: why it is to be led here, and cannot be
        self.waiters: dict[Waiter, None] = {}
        self.deleted = False
        self.messages_in = self.bytes_in = self.bytes_out = 0  # since the start, for the metrics

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"


class Topic:
    """A topic; `overrides` are the configs set on it, as text; `config` is what they amount to."""

    __slots__ = ("config", "count", "created_epoch", "grown_from", "name", "overrides", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, overrides: dict[str, str], created_epoch: int, count: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.overrides = overrides
        self.created_epoch = created_epoch
        self.count = count
        self.grown_from: list[int] = []  # how many partitions it had before
        self.config = LogConfig()
        self.partitions: list[Partition] = []

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS or self.name == EVENTS_TOPIC

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def describe(self) -> dict[str, Any]:
        """As the document keeps it."""
        document = {
            "id": to_base64(self.topic_id),
            "partitions": self.count,
            "epoch": self.created_epoch,
            "configs": self.overrides,
        }
        return document | ({"grown_from": self.grown_from} if self.grown_from else {})


def check_name(name: str | None) -> None:
    """KafkaError where Kafka refuses the name of a topic."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = "'.' or '..' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def finish(steps: Generator[None, None, _T]) -> _T:
    """All slices at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


class Catalog:
    """All topics, by name and by id, and what else the document holds."""

    @property
    def is_planning(self) -> bool:
        """Whether what is asked for is only noted, in a cluster."""
        return False

    def __init__(self, config: BrokerConfig, store: Store, random_bytes: Callable[[int], bytes]) -> None:
        self.config = config
        self.store = store
        self._random_bytes = random_bytes
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._collisions: dict[str, set[str]] = {}
        self.group_overrides: dict[str, dict[str, str]] = {}
        """Configs of groups that have some of their own, as text."""
        self._deleting: dict[str, str] = {}
        self._coming: dict[str, Topic] = {}
        """Topics that are being created."""
        self._growing: set[str] = set()
        self._next_producer_id = 0
        self._producer_ids_end = 0
        self.epoch = 0
        self.now_ms = 0
        self.created: Callable[[Topic], None] | None = None  # told of each new topic
        self.base_config = LogConfig()

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id

    # Loading and saving.

    def load(self, now_ms: int) -> None:
        """Open everything there is; each start of the broker is a new leader epoch."""
        self.now_ms = now_ms
        document = self._read_document()
        self.epoch = document.get("epoch", -1) + 1
        self._next_producer_id = self._producer_ids_end = document.get("next_producer_id", 0)
        self._load_configs(document)
        self.base_config = broker_log_config(self.config)
        self._deleting = document.get("deleting", {})
        topics = [
            Topic(name, from_base64(saved["id"]), dict(saved["configs"]), saved["epoch"], saved["partitions"])
            for name, saved in document.get("topics", {}).items()
        ]
        for topic in topics:
            topic.grown_from = list(document["topics"][topic.name].get("grown_from", ()))
            topic.config = LogConfig.parse(topic.overrides, self.base_config)
        configs = {topic.name: topic.config for topic in topics}
        self.store.load(lambda name: configs.get(name, self.base_config), now_ms=now_ms)
        self._finish_deletions()
        for topic in topics:
            self._open_partitions(topic, topic.count)
            self._add(topic)
        self._adopt_strangers()
        self.save()
        self.store.claim()

    def _load_configs(self, document: Mapping[str, Any]) -> None:
        broker, cluster = dict(document.get("broker_configs", {})), document.get("cluster_configs")
        if cluster is None:
            # As Kafka's formatting does: one value for the whole cluster from the first start on (KIP-966).
            default = self.config.key(MIN_ISR).format(self.config[MIN_ISR])
            cluster = {MIN_ISR: broker.pop(MIN_ISR, default)}
        self.config.set_dynamic(self.config.parse(cluster), self.config.parse(broker))
        self.group_overrides = document.get("group_configs", {})

    def _read_document(self) -> dict[str, Any]:
        data = self.store.read_file(DOCUMENT)
        if data is None and self.store.has_logs:
            from kohort.storage.inventory import FILE as INVENTORY

            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{DOCUMENT} is missing beside logs that kohort wrote: restore it from a copy; to go on without it, "
                f"with the defaults for every topic, remove {INVENTORY} from the data directory",
            )
        if data is None:
            return {}
        try:
            document = json.loads(data)
        except ValueError:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{DOCUMENT} in the data directory is damaged: restore it from a copy, "
                "or move it away and set topic configs anew",
            ) from None
        if document.get("format") != _FORMAT:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{DOCUMENT} has format {document.get('format')}, this version of kohort reads {_FORMAT}: upgrade it",
            )
        found: dict[str, Any] = document
        return found

    def _finish_deletions(self) -> None:
        for name, topic_id in self._deleting.items():
            if self.store.topic_ids.get(name) == from_base64(topic_id):
                indexes = self.store.partitions(name)
                for index in indexes:
                    self.store.delete(name, index, last=index == indexes[-1])
        self._deleting = {}

    def _adopt_strangers(self) -> None:
        for name in sorted({name for name, _ in self.store.logs} - set(self.by_name)):
            count = max(self.store.partitions(name)) + 1
            topic = Topic(name, self.store.topic_ids.get(name) or self.new_id(), {}, self.epoch, count)
            if name in INTERNAL_TOPICS:
                topic.overrides["cleanup.policy"] = "compact"
            self._open_partitions(topic, count)
            self._configure(topic, LogConfig.parse(topic.overrides, self.base_config))
            # Epochs that another broker wrote must not come again.
            newest = max(partition.log.leader_epoch for partition in topic.partitions)
            topic.created_epoch = self.epoch - newest - 1
            for partition in topic.partitions:
                partition.leader_epoch = newest + 1
            self._add(topic)
            logger.info("found topic %s with %d partitions in the data directory", name, count)

    def save(self) -> None:
        document = {
            "format": _FORMAT,
            "epoch": self.epoch,
            "next_producer_id": self._producer_ids_end,
            "broker_configs": self.config.texts(self.config.dynamic),
            "cluster_configs": self.config.texts(self.config.cluster),
            "group_configs": self.group_overrides,
            "deleting": self._deleting,
            "topics": {
                topic.name: topic.describe() for topic in itertools.chain(self.by_name.values(), self._coming.values())
            },
        }
        self.store.write_file(DOCUMENT, json.dumps(document).encode())

    # Looking up.

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.by_name.get(name)
        return topic.partition(index) if topic is not None else None

    def new_id(self) -> bytes:
        """A random uuid whose base64 form does not begin with a dash (Kafka's tools take that for an option)."""
        while True:
            raw = bytearray(self._random_bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if not to_base64(bytes(raw)).startswith("-") and bytes(raw) != ZERO_UUID:
                return bytes(raw)

    def new_producer_id(self) -> int:
        """Ids are reserved on disk a block at a time, so that none is given out twice, whatever happens."""
        if self._next_producer_id == self._producer_ids_end:
            self._producer_ids_end += _PRODUCER_ID_BLOCK
            try:
                self.save()
            except KafkaError:
                self._producer_ids_end -= _PRODUCER_ID_BLOCK
                raise
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # Changing.

    def check_new(self, name: str) -> None:
        """KafkaError where a topic of that name cannot be created now."""
        if name in self.by_name or name in self._coming:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in self._deleting:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is still being deleted.")
        check_name(name)
        if name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        others = self._collisions.get(name.replace(".", "_"))
        if others:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {', '.join(sorted(others))}",
            )

    def create(self, name: str, partitions: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """A new topic, or the KafkaError that says why not; nothing is left behind then."""
        return finish(self.creating(name, partitions, overrides))

    def creating(
        self, name: str, partitions: int, overrides: Mapping[str, str] | None = None
    ) -> Generator[None, None, Topic]:
        """`create` in slices; nobody sees the topic before it is whole, and nobody else can have its name."""
        self.check_new(name)
        topic = Topic(name, self.new_id(), dict(overrides or {}), self.epoch, partitions)
        topic.config = LogConfig.parse(topic.overrides, self.base_config)
        self._coming[name] = topic
        failed = False
        try:
            self.save()
            try:
                yield from self._opening(topic, partitions)
            except KafkaError:
                failed = True
                raise
        finally:
            del self._coming[name]
            if failed:
                self._add(topic)
                self.delete(topic)
        self._add(topic)
        logger.info("created topic %s with %d partitions, id %s", name, partitions, to_base64(topic.topic_id))
        if self.created is not None:
            self.created(topic)
        return topic

    def delete(self, topic: Topic) -> None:
        """First from the document, then its logs."""
        finish(self.deleting(topic))

    def deleting(self, topic: Topic) -> Generator[None, None, None]:
        """`delete` in slices; the topic is gone after the first, its name is free after the last."""
        if topic.name in self._growing:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Topic {topic.name} is being given partitions: try again.")
        self._forget(topic)
        self._deleting[topic.name] = to_base64(topic.topic_id)
        try:
            self.save()
        except KafkaError:
            self._add(topic)
            del self._deleting[topic.name]
            raise
        for partition in topic.partitions:
            partition.deleted = True
        for done, partition in enumerate(topic.partitions, 1):
            self._delete_log(partition, last=done == len(topic.partitions))
            if done % SLICE == 0:
                yield
        del self._deleting[topic.name]
        logger.info("deleted topic %s, id %s", topic.name, to_base64(topic.topic_id))

    def grow(self, topic: Topic, count: int) -> None:
        finish(self.growing(topic, count))

    def growing(self, topic: Topic, count: int) -> Generator[None, None, None]:
        """More partitions, in slices; nobody sees them before all are there."""
        before, shown = topic.count, topic.partitions
        if topic.name in self._growing:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic {topic.name} is being given partitions already.")
        self._growing.add(topic.name)
        wider = Topic(topic.name, topic.topic_id, topic.overrides, topic.created_epoch, count)
        wider.config, wider.partitions = topic.config, list(shown)
        try:
            yield from self._opening(wider, count)
            topic.count = count
            topic.grown_from.append(before)
            self.save()
        except KafkaError:
            topic.count, topic.grown_from = before, [had for had in topic.grown_from if had < before]
            for partition in wider.partitions[before:]:
                self._delete_log(partition)
            raise
        finally:
            self._growing.discard(topic.name)
        for partition in wider.partitions[before:]:
            partition.topic = topic
            if topic.config is not wider.config:
                self._configure_log(partition.log, topic.config)
        topic.partitions = wider.partitions
        logger.info("topic %s has %d partitions now, it had %d", topic.name, count, before)

    def homed(self, topic: Topic) -> bool:
        """Nothing is where it was before the topic grew: nobody has to look there. False where that is not saved."""
        before, topic.grown_from = topic.grown_from, []
        try:
            self.save()
        except KafkaError as error:
            topic.grown_from = before
            logger.error("not saved, it is tried again later: %s", error)
        return not topic.grown_from

    def want_leader(self, topic: Topic, partition: int, node_id: int, *, once: bool = False) -> None:
        """A broker that stands alone leads everything already."""

    def set_overrides(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Give a topic other configs, in effect at once."""
        config = LogConfig.parse(overrides, self.base_config)
        previous, topic.overrides = topic.overrides, dict(overrides)
        try:
            self.save()
        except KafkaError:
            topic.overrides = previous
            raise
        self._configure(topic, config)
        logger.info("configs of topic %s are now %s", topic.name, topic.overrides)

    def set_broker_overrides(
        self, *, cluster: Mapping[str, Any] | None = None, dynamic: Mapping[str, Any] | None = None
    ) -> None:
        """Give the cluster or this broker other dynamic configs; topics that do not override them follow."""
        previous = self.config.cluster, self.config.dynamic
        self.config.set_dynamic(
            previous[0] if cluster is None else cluster, previous[1] if dynamic is None else dynamic
        )
        try:
            self.save()
        except KafkaError:
            self.config.set_dynamic(*previous)
            raise
        self._follow_config()
        logger.info("dynamic configs are now %s, of this broker %s", self.config.cluster, self.config.dynamic)

    def set_given(self, given: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Other values of the configuration file for those `removed`; topics that do not override them follow."""
        self.config.set_given(given, removed)
        self._follow_config()

    def _follow_config(self) -> None:
        self.base_config = broker_log_config(self.config)
        for topic in self.by_name.values():
            self._configure(topic, LogConfig.parse(topic.overrides, self.base_config))

    def set_group_overrides(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Give a group other configs; none at all forgets that it had any."""
        previous = self.group_overrides
        others = {name: configs for name, configs in previous.items() if name != group_id}
        self.group_overrides = others | ({group_id: dict(overrides)} if overrides else {})
        try:
            self.save()
        except KafkaError:
            self.group_overrides = previous
            raise
        logger.info("configs of group %s are now %s", group_id, dict(overrides))

    def _configure(self, topic: Topic, config: LogConfig) -> None:
        topic.config = config
        for partition in topic.partitions:
            self._configure_log(partition.log, config)

    def _configure_log(self, log: Log, config: LogConfig) -> None:
        log.configure(config)
        log.producer_expiration_ms = self.config["producer.id.expiration.ms"]

    def _add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self._collisions.setdefault(topic.name.replace(".", "_"), set()).add(topic.name)

    def _forget(self, topic: Topic) -> None:
        del self.by_name[topic.name], self.by_id[topic.topic_id]
        self._collisions[topic.name.replace(".", "_")].discard(topic.name)

    def _open_partitions(self, topic: Topic, count: int) -> None:
        finish(self._opening(topic, count))

    def _opening(self, topic: Topic, count: int) -> Generator[None, None, None]:
        epoch = self.epoch - topic.created_epoch
        for index in range(len(topic.partitions), count):
            if index % SLICE == SLICE - 1:
                yield
            log = self.store.get(topic.name, index)
            if log is None:
                log = self.store.create(topic.name, index, topic.topic_id, topic.config, now_ms=self.now_ms)
            log.producer_expiration_ms = self.config["producer.id.expiration.ms"]
            if log.high_watermark < log.end_offset:
                log.flush()  # survivors of a crash; nobody waits for their flush any more
            topic.partitions.append(Partition(topic, index, log, epoch))

    def _delete_log(self, partition: Partition, last: bool = True) -> None:
        partition.deleted = True
        try:
            self.store.delete(partition.topic.name, partition.index, last=last)
        except KafkaError as error:
            logger.warning("%s is deleted, but its files could not be removed: %s", partition, error)
