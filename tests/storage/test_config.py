"""Topic configs as AlterConfigs sends them: strings in, typed values or a clear refusal out."""

from dataclasses import fields

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.storage.config import CONFIG_KEYS, InvalidConfig, LogConfig


def test_every_key_has_its_field_with_the_same_default():
    config = LogConfig()
    assert {key.attribute for key in CONFIG_KEYS.values()} == {f.name for f in fields(LogConfig)} - {"overridden"}
    for name, key in CONFIG_KEYS.items():
        assert config.get(name) == key.default, name
        assert key.parse(key.format(key.default)) == key.default


def test_overrides_lie_on_top_of_the_brokers_defaults():
    base = LogConfig.parse({"retention.ms": "5000"})
    config = LogConfig.parse({"cleanup.policy": "compact, delete", "segment.bytes": "1048576"}, base)
    assert (config.retention_ms, config.segment_bytes) == (5000, 1048576)
    assert config.compact
    assert config.delete
    assert config.overridden == {"cleanup.policy", "segment.bytes"}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("segment.byte", "1", "Unknown topic config name"),
        ("segment.bytes", "1000", "must be at least 1048576"),
        ("segment.bytes", "many", "Not a number of type INT"),
        ("segment.bytes", str(2**31), "Not a number of type INT"),
        ("retention.ms", "-2", "must be at least -1"),
        ("min.cleanable.dirty.ratio", "1.5", "must be no more than 1"),
        ("cleanup.policy", "shred", "one of: compact, delete"),
        ("compression.type", "brotli", "must be one of"),
        ("compression.gzip.level", "0", "at least 1"),
        ("preallocate", "yes", "either true or false"),
        ("message.timestamp.type", "createtime", "CreateTime"),
        ("retention.ms", None, "Null value"),
    ],
)
def test_what_kafka_would_refuse_is_refused_with_the_reason(name, value, why):
    with pytest.raises(InvalidConfig, match=why) as refused:
        LogConfig.parse({name: value})
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_compaction_lags_must_not_contradict():
    with pytest.raises(InvalidConfig, match="conflict"):
        LogConfig.parse({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    assert LogConfig.parse({"compression.gzip.level": "-1"}).compression_gzip_level == -1
