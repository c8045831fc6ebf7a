"""The topics of the broker: their ids, partitions and configs, what may be created, and how that is remembered.

The state document is the truth: it is saved before a topic shows, and directories it does not know are no topics.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kohort.broker.config import BrokerConfig
from kohort.broker.config_keys import TO_MILLISECONDS
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.uuids import ZERO_UUID, from_base64, to_base64
from kohort.storage.config import CONFIG_KEYS, LogConfig

if TYPE_CHECKING:
    from kohort.broker.purgatory import Waiter
    from kohort.broker.state import State
    from kohort.storage.log import Log

logger = logging.getLogger("kohort.broker")

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
MAX_NAME_LENGTH = 249
MAX_PARTITIONS = 10_000
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PRODUCER_ID_BLOCK = 1000


class Partition:
    """One partition and whoever waits for news of it."""

    __slots__ = ("deleted", "index", "leader_epoch", "log", "topic", "waiters")

    def __init__(self, topic: Topic, index: int, log: Log, leader_epoch: int) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.waiters: dict[Waiter, None] = {}
        self.deleted = False

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"


class Topic:
    """A topic; `overrides` are the configs set on it, as text; `config` is what they amount to."""

    __slots__ = ("config", "created_epoch", "name", "overrides", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, overrides: dict[str, str], created_epoch: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.overrides = overrides
        self.created_epoch = created_epoch
        self.config = LogConfig()
        self.partitions: list[Partition] = []

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def check_name(name: str | None) -> None:
    """KafkaError where Kafka refuses the name of a topic."""
    reason = None
    if not name:
        reason = "Topic name is illegal, it can't be empty"
    elif name in (".", ".."):
        reason = "Topic name cannot be '.' or '..'"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


class Catalog:
    """All topics, by name and by id, and what else the state document holds."""

    def __init__(self, config: BrokerConfig, store: Any, state: State, random_bytes: Callable[[int], bytes]) -> None:
        self.config = config
        self.store = store
        self._state = state
        self._random_bytes = random_bytes
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._collisions: dict[str, set[str]] = {}
        self._next_producer_id = 0
        self._producer_ids_end = 0
        self.epoch = 0
        self.cluster_id = ""
        self.base_config = LogConfig()

    # Loading and saving.

    def load(self) -> None:
        """Open everything the state document names; each start of the broker is a new leader epoch."""
        document = self._state.load() or {}
        self.cluster_id = document.get("cluster_id") or to_base64(self.new_id())
        self.epoch = document.get("epoch", -1) + 1
        self._next_producer_id = self._producer_ids_end = document.get("next_producer_id", 0)
        overrides = document.get("broker_configs", {})
        self.config.set_dynamic({name: self.config.key(name).parse(raw) for name, raw in overrides.items()})
        self.base_config = broker_log_config(self.config)
        for name, saved in document.get("topics", {}).items():
            topic = Topic(name, from_base64(saved["id"]), dict(saved["configs"]), saved["epoch"])
            topic.config = LogConfig.parse(topic.overrides, self.base_config)
            self._add(topic)
            self._open_partitions(topic, saved["partitions"])
        self.save()

    def save(self, extra: Topic | None = None, without: Topic | None = None) -> None:
        topics = {topic.name: topic for topic in self.by_name.values() if topic is not without}
        if extra is not None:
            topics[extra.name] = extra
        self._save_document({name: _describe(topic) for name, topic in topics.items()})

    def _save_document(self, topics: dict[str, Any]) -> None:
        document = {
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "next_producer_id": self._producer_ids_end,
            "broker_configs": {n: self.config.key(n).text(v) for n, v in self.config.dynamic.items()},
            "topics": topics,
        }
        try:
            self._state.save(document)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the state of the broker cannot be saved: {error.strerror}"
            ) from error

    # Looking up.

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.by_name.get(name)
        return topic.partition(index) if topic is not None else None

    def new_id(self) -> bytes:
        """A random uuid that its base64 form does not begin with a dash (Kafka's tools take that for an option)."""
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
        if name in self.by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        check_name(name)
        others = self._collisions.get(name.replace(".", "_"))
        if others:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {', '.join(sorted(others))}",
            )

    def create(self, name: str, partitions: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """A new topic, or the KafkaError that says why not; nothing is left behind then."""
        self.check_new(name)
        topic = Topic(name, self.new_id(), dict(overrides or {}), self.epoch)
        topic.config = LogConfig.parse(topic.overrides, self.base_config)
        described = {other.name: _describe(other) for other in self.by_name.values()}
        self._save_document(described | {name: _describe(topic) | {"partitions": partitions}})
        try:
            self._open_partitions(topic, partitions)
        except (KafkaError, OSError) as error:
            self._save_document(described)
            self._delete_logs(topic)
            raise _storage_error(error) from error
        self._add(topic)
        logger.info("created topic %s with %d partitions, id %s", name, partitions, to_base64(topic.topic_id))
        return topic

    def delete(self, topic: Topic) -> None:
        self.save(without=topic)
        del self.by_name[topic.name], self.by_id[topic.topic_id]
        self._collisions[topic.name.replace(".", "_")].discard(topic.name)
        self._delete_logs(topic)
        logger.info("deleted topic %s, id %s", topic.name, to_base64(topic.topic_id))

    def grow(self, topic: Topic, count: int) -> None:
        before = len(topic.partitions)
        try:
            self._open_partitions(topic, count)
            self.save()
        except (KafkaError, OSError) as error:
            for partition in topic.partitions[before:]:
                self._delete_log(partition)
            del topic.partitions[before:]
            raise _storage_error(error) from error
        logger.info("topic %s has %d partitions now, it had %d", topic.name, count, before)

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

    def set_broker_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Give the broker other dynamic configs; topics that do not override them follow."""
        previous = self.config.dynamic
        self.config.set_dynamic(overrides)
        try:
            self.save()
        except KafkaError:
            self.config.set_dynamic(previous)
            raise
        self.base_config = broker_log_config(self.config)
        for topic in self.by_name.values():
            self._configure(topic, LogConfig.parse(topic.overrides, self.base_config))

    def _configure(self, topic: Topic, config: LogConfig) -> None:
        topic.config = config
        for partition in topic.partitions:
            partition.log.configure(config)

    def _add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self._collisions.setdefault(topic.name.replace(".", "_"), set()).add(topic.name)

    def _open_partitions(self, topic: Topic, count: int) -> None:
        epoch = self.epoch - topic.created_epoch
        for index in range(len(topic.partitions), count):
            log = self.store.open(topic.name, index, topic_id=to_base64(topic.topic_id), config=topic.config)
            topic.partitions.append(Partition(topic, index, log, epoch))

    def _delete_logs(self, topic: Topic) -> None:
        for partition in topic.partitions:
            self._delete_log(partition)

    def _delete_log(self, partition: Partition) -> None:
        partition.deleted = True
        try:
            self.store.delete(partition.topic.name, partition.index)
        except (KafkaError, OSError) as error:
            logger.warning("%s is deleted, but its files could not be removed: %s", partition, error)


def _describe(topic: Topic) -> dict[str, Any]:
    return {
        "id": to_base64(topic.topic_id),
        "partitions": len(topic.partitions),
        "epoch": topic.created_epoch,
        "configs": topic.overrides,
    }


def _storage_error(error: Exception) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def broker_log_config(config: BrokerConfig) -> LogConfig:
    """The defaults of every topic, from the broker's own configs."""
    values: dict[str, Any] = {}
    for name, key in CONFIG_KEYS.items():
        synonym = config_synonym(config, name)
        if synonym is not None:
            values[key.attribute] = topic_value(config, synonym)
    if config["kohort.fsync"] == "always" and not config.is_set("log.flush.interval.messages"):
        values["flush_messages"] = 1
    elif config["kohort.fsync"] == "interval" and not config.is_set("log.flush.interval.ms"):
        values["flush_ms"] = 1000
    values["cleanup_policy"] = tuple(values["cleanup_policy"])
    return LogConfig(**values)


def config_synonym(config: BrokerConfig, topic_config: str) -> str | None:
    """The broker config in effect for a topic config: the first that is set, else the first with a default."""
    synonyms = [name for name in CONFIG_KEYS[topic_config].synonyms if name in config.keys]
    for name in synonyms:
        if config.is_set(name) and config[name] is not None:
            return name
    return next((name for name in synonyms if config[name] is not None), None)


def topic_value(config: BrokerConfig, synonym: str) -> Any:
    """A broker config in the unit of the topic config it stands in for."""
    value, unit = config[synonym], TO_MILLISECONDS.get(synonym)
    if unit is None:
        return value
    return value * unit if value >= 0 else -1
