"""Topic-level log configuration: Kafka 4.3's names, types, defaults and limits, parsed from strings.

The table CONFIG_KEYS also serves DescribeConfigs. What the values do is the log's business, not this module's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kohort.config_key import LONG_MAX, ConfigError, ConfigKey, ConfigType, by_name
from kohort.storage.errors import InvalidConfig

_DAY_MS = 24 * 60 * 60 * 1000


_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST


def _key(name: str, type: ConfigType, default: Any, doc: str, *synonyms: str, **limits: Any) -> ConfigKey:
    return ConfigKey(name, type, default, doc, synonyms=synonyms, dynamic=True, **limits)


CONFIG_KEYS: dict[str, ConfigKey] = by_name(
    [
        _key(
            "cleanup.policy",
            _LIST,
            ("delete",),
            "delete, compact or both.",
            "log.cleanup.policy",
            choices=("compact", "delete"),
        ),
        _key(
            "compression.gzip.level",
            _INT,
            -1,
            "Level where the broker compresses with gzip.",
            "compression.gzip.level",
            low=1,
            high=9,
            also=(-1,),
        ),
        _key(
            "compression.lz4.level",
            _INT,
            9,
            "Level where the broker compresses with lz4.",
            "compression.lz4.level",
            low=1,
            high=17,
        ),
        _key(
            "compression.type",
            _STRING,
            "producer",
            "The codec records are stored in; producer keeps what was sent.",
            "compression.type",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        _key(
            "compression.zstd.level",
            _INT,
            3,
            "Level where the broker compresses with zstd.",
            "compression.zstd.level",
            low=-131072,
            high=22,
        ),
        _key(
            "delete.retention.ms",
            _LONG,
            _DAY_MS,
            "How long tombstones of a compacted topic are kept.",
            "log.cleaner.delete.retention.ms",
            low=0,
        ),
        _key(
            "file.delete.delay.ms",
            _LONG,
            60_000,
            "No effect: a removed file goes at once, and who reads it reads on.",
            "log.segment.delete.delay.ms",
            low=0,
        ),
        _key(
            "flush.messages",
            _LONG,
            LONG_MAX,
            "Records between two fsyncs; 1 answers producers only once their records are on disk.",
            "log.flush.interval.messages",
            low=1,
        ),
        _key(
            "flush.ms",
            _LONG,
            LONG_MAX,
            "Time between two fsyncs.",
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
            low=0,
        ),
        _key("follower.replication.throttled.replicas", _LIST, (), "No effect on a single broker."),
        _key(
            "index.interval.bytes",
            _INT,
            4096,
            "Bytes of log between two index entries.",
            "log.index.interval.bytes",
            low=0,
        ),
        _key("leader.replication.throttled.replicas", _LIST, (), "No effect on a single broker."),
        _key(
            "local.retention.bytes",
            _LONG,
            -2,
            "No effect: there is no tiered storage.",
            "log.local.retention.bytes",
            low=-2,
        ),
        _key(
            "local.retention.ms", _LONG, -2, "No effect: there is no tiered storage.", "log.local.retention.ms", low=-2
        ),
        _key(
            "max.compaction.lag.ms",
            _LONG,
            LONG_MAX,
            "The age at which a record is compacted whatever the dirty ratio.",
            "log.cleaner.max.compaction.lag.ms",
            low=1,
        ),
        _key(
            "max.message.bytes",
            _INT,
            1024 * 1024 + 12,
            "The largest record batch accepted.",
            "message.max.bytes",
            low=0,
        ),
        _key(
            "message.timestamp.after.max.ms",
            _LONG,
            3_600_000,
            "How far in the future a record may be.",
            "log.message.timestamp.after.max.ms",
            low=0,
        ),
        _key(
            "message.timestamp.before.max.ms",
            _LONG,
            LONG_MAX,
            "How old a record may be.",
            "log.message.timestamp.before.max.ms",
            low=0,
        ),
        _key(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "Whose time counts: the producer's (CreateTime) or the broker's (LogAppendTime).",
            "log.message.timestamp.type",
            choices=("CreateTime", "LogAppendTime"),
        ),
        _key(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            0.5,
            "The dirty share of a log that starts a compaction.",
            "log.cleaner.min.cleanable.ratio",
            low=0,
            high=1,
        ),
        _key(
            "min.compaction.lag.ms",
            _LONG,
            0,
            "The youngest age that is compacted.",
            "log.cleaner.min.compaction.lag.ms",
            low=0,
        ),
        _key(
            "min.insync.replicas",
            _INT,
            1,
            "No effect on a single broker: no more replicas are asked for than there are.",
            "min.insync.replicas",
            low=1,
        ),
        _key("preallocate", _BOOLEAN, False, "No effect: files grow as they are written.", "log.preallocate"),
        _key("remote.log.copy.disable", _BOOLEAN, False, "No effect: there is no tiered storage."),
        _key("remote.log.delete.on.disable", _BOOLEAN, False, "No effect: there is no tiered storage."),
        _key("remote.storage.enable", _BOOLEAN, False, "No effect: there is no tiered storage."),
        _key("retention.bytes", _LONG, -1, "How many bytes of a partition are kept; -1 all.", "log.retention.bytes"),
        _key(
            "retention.ms",
            _LONG,
            7 * _DAY_MS,
            "How long records are kept; -1 forever.",
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
            low=-1,
        ),
        _key(
            "segment.bytes",
            _INT,
            1024**3,
            "The size at which a segment file is full.",
            "log.segment.bytes",
            low=1024 * 1024,
        ),
        _key(
            "segment.index.bytes", _INT, 10 * 1024 * 1024, "The largest index file.", "log.index.size.max.bytes", low=4
        ),
        _key(
            "segment.jitter.ms",
            _LONG,
            0,
            "Time of up to this much, another for each segment, taken off the age at which it is closed.",
            "log.roll.jitter.ms",
            "log.roll.jitter.hours",
            low=0,
        ),
        _key(
            "segment.ms",
            _LONG,
            7 * _DAY_MS,
            "The age at which a segment is closed.",
            "log.roll.ms",
            "log.roll.hours",
            low=1,
        ),
        _key(
            "unclean.leader.election.enable",
            _BOOLEAN,
            False,
            "No effect on a single broker.",
            "unclean.leader.election.enable",
        ),
    ]
)


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
            try:
                values[key.attribute] = key.parse(value)
            except ConfigError as error:
                raise InvalidConfig(str(error)) from None
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
