"""Topic-level log configuration: Kafka 4.3's names, types, defaults and limits, parsed from strings.

The table CONFIG_KEYS also serves DescribeConfigs. What the values do is the log's business, not this module's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from kohort.storage.errors import InvalidConfig

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_DAY_MS = 24 * 60 * 60 * 1000


class ConfigType(Enum):
    """Kafka's config types; the value is the type's number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: Any
    synonyms: tuple[str, ...] = ()  # broker configs that give the default, most specific first
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    also: tuple[int, ...] = ()  # values allowed outside low..high

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_").replace("-", "_")

    def parse(self, value: Any) -> Any:
        """The typed value of a config given as a string (or already typed); InvalidConfig where Kafka refuses it."""
        try:
            parsed = _PARSERS[self.type](value)
        except ValueError:
            raise self._invalid(value, f"not a {self.type.name.lower()}") from None
        if self.type is ConfigType.LIST:
            self._check_list(value, parsed)
        elif self.choices and parsed not in self.choices:
            raise self._invalid(value, f"must be one of {', '.join(self.choices)}")
        elif parsed in self.also and not isinstance(parsed, bool):
            return parsed
        elif self.low is not None and parsed < self.low:
            raise self._invalid(value, f"must be at least {self.low}")
        elif self.high is not None and parsed > self.high:
            raise self._invalid(value, f"must be no more than {self.high}")
        return parsed

    def format(self, value: Any) -> str:
        """The string DescribeConfigs shows."""
        if self.type is ConfigType.LIST:
            return ",".join(value)
        if self.type is ConfigType.BOOLEAN:
            return "true" if value else "false"
        return str(value)

    def _check_list(self, value: Any, items: tuple[str, ...]) -> None:
        if self.choices and (wrong := [item for item in items if item not in self.choices]):
            raise self._invalid(value, f"{', '.join(wrong)} is none of {', '.join(self.choices)}")
        if len(set(items)) != len(items):
            raise self._invalid(value, "an item is given twice")

    def _invalid(self, value: Any, why: str) -> InvalidConfig:
        return InvalidConfig(f"Invalid value {value} for configuration {self.name}: {why}")


def _parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    lowered = str(value).strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(value)
    return lowered == "true"


def _parse_integer(limit: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(str(value).strip())
        if not -limit - 1 <= number <= limit:
            raise ValueError(value)
        return number

    return parse


def _parse_list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return tuple(value)


_PARSERS: dict[ConfigType, Callable[[Any], Any]] = {
    ConfigType.BOOLEAN: _parse_bool,
    ConfigType.STRING: lambda value: str(value).strip(),
    ConfigType.INT: _parse_integer(INT_MAX),
    ConfigType.LONG: _parse_integer(LONG_MAX),
    ConfigType.DOUBLE: lambda value: float(str(value).strip()),
    ConfigType.LIST: _parse_list,
}


def _key(name: str, type: ConfigType, default: Any, *synonyms: str, **limits: Any) -> ConfigKey:
    return ConfigKey(name, type, default, synonyms, **limits)


_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

# fmt: off
CONFIG_KEYS: dict[str, ConfigKey] = {key.name: key for key in (
    _key("cleanup.policy", _LIST, ("delete",), "log.cleanup.policy", choices=("compact", "delete")),
    _key("compression.gzip.level", _INT, -1, "compression.gzip.level", low=1, high=9, also=(-1,)),
    _key("compression.lz4.level", _INT, 9, "compression.lz4.level", low=1, high=17),
    _key("compression.type", _STRING, "producer", "compression.type",
         choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    _key("compression.zstd.level", _INT, 3, "compression.zstd.level", low=-131072, high=22),
    _key("delete.retention.ms", _LONG, _DAY_MS, "log.cleaner.delete.retention.ms", low=0),
    _key("file.delete.delay.ms", _LONG, 60_000, "log.segment.delete.delay.ms", low=0),
    _key("flush.messages", _LONG, LONG_MAX, "log.flush.interval.messages", low=1),
    _key("flush.ms", _LONG, LONG_MAX, "log.flush.interval.ms", "log.flush.scheduler.interval.ms", low=0),
    _key("follower.replication.throttled.replicas", _LIST, ()),
    _key("index.interval.bytes", _INT, 4096, "log.index.interval.bytes", low=0),
    _key("leader.replication.throttled.replicas", _LIST, ()),
    _key("local.retention.bytes", _LONG, -2, "log.local.retention.bytes", low=-2),
    _key("local.retention.ms", _LONG, -2, "log.local.retention.ms", low=-2),
    _key("max.compaction.lag.ms", _LONG, LONG_MAX, "log.cleaner.max.compaction.lag.ms", low=1),
    _key("max.message.bytes", _INT, 1024 * 1024 + 12, "message.max.bytes", low=0),
    _key("message.timestamp.after.max.ms", _LONG, 3_600_000, "log.message.timestamp.after.max.ms", low=0),
    _key("message.timestamp.before.max.ms", _LONG, LONG_MAX, "log.message.timestamp.before.max.ms", low=0),
    _key("message.timestamp.type", _STRING, "CreateTime", "log.message.timestamp.type",
         choices=("CreateTime", "LogAppendTime")),
    _key("min.cleanable.dirty.ratio", _DOUBLE, 0.5, "log.cleaner.min.cleanable.ratio", low=0, high=1),
    _key("min.compaction.lag.ms", _LONG, 0, "log.cleaner.min.compaction.lag.ms", low=0),
    _key("min.insync.replicas", _INT, 1, "min.insync.replicas", low=1),
    _key("preallocate", _BOOLEAN, False, "log.preallocate"),
    _key("remote.log.copy.disable", _BOOLEAN, False),
    _key("remote.log.delete.on.disable", _BOOLEAN, False),
    _key("remote.storage.enable", _BOOLEAN, False),
    _key("retention.bytes", _LONG, -1, "log.retention.bytes"),
    _key("retention.ms", _LONG, 7 * _DAY_MS, "log.retention.ms", "log.retention.minutes", "log.retention.hours",
         low=-1),
    _key("segment.bytes", _INT, 1024**3, "log.segment.bytes", low=1024 * 1024),
    _key("segment.index.bytes", _INT, 10 * 1024 * 1024, "log.index.size.max.bytes", low=4),
    _key("segment.jitter.ms", _LONG, 0, "log.roll.jitter.ms", "log.roll.jitter.hours", low=0),
    _key("segment.ms", _LONG, 7 * _DAY_MS, "log.roll.ms", "log.roll.hours", low=1),
    _key("unclean.leader.election.enable", _BOOLEAN, False, "unclean.leader.election.enable"),
)}
# fmt: on


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The effective values of one topic. Built directly it takes any value (say, tiny segments); `parse` checks."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1024**3
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False
    overridden: frozenset[str] = field(default=frozenset(), compare=False)  # names set on the topic itself

    @classmethod
    def parse(cls, overrides: Mapping[str, Any], base: LogConfig | None = None) -> LogConfig:
        """`base` (the broker's defaults) with a topic's own settings; InvalidConfig names setting and reason."""
        values = {f.name: getattr(base, f.name) for f in fields(cls)} if base else {}
        for name, value in overrides.items():
            key = CONFIG_KEYS.get(name)
            if key is None:
                raise InvalidConfig(f"Unknown topic config name: {name}")
            if value is None:
                raise InvalidConfig(f"Null value not supported for topic configs: {name}")
            values[key.attribute] = key.parse(value)
        values["overridden"] = frozenset(overrides)
        config = cls(**values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfig(
                f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms})"
                f" > max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            )
        return config

    def get(self, name: str) -> Any:
        """The typed value of a config by Kafka's name."""
        return getattr(self, CONFIG_KEYS[name].attribute)

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def roll_ms(self) -> int:
        """How old a segment may get: a compacted one must leave the active role in time for max.compaction.lag.ms."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def flush_every_append(self) -> bool:
        """flush.messages=1: an append counts only once it is on disk (group commit)."""
        return self.flush_messages == 1
