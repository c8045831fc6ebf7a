"""The configuration of producers: what all clients have in common, and Kafka's names for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kohort.client.batching import BatchingConfig
from kohort.client.config import SETTINGS, Config, Setting, _callable, _flag, _number, _one_of
from kohort.client.errors import ConfigError
from kohort.records.compression import Compression

_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_COMMON = [
    "bootstrap.servers",
    "client.id",
    "metadata.max.age.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "connections.max.idle.ms",
    "receive.buffer.bytes",
    "receive.message.max.bytes",
    "send.buffer.bytes",
    "allow.auto.create.topics",
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
]
_SECURITY = ("ssl.", "sasl.oauthbearer.")


def _acks(value: Any) -> int:
    try:
        return _ACKS[str(value).lower()]
    except KeyError:
        raise ValueError("must be all (or -1), 1 or 0") from None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a name")
    return value


def _compression(value: Any) -> Compression:
    if isinstance(value, Compression):
        return value
    names = [codec.name.lower() for codec in Compression]
    return Compression[_one_of(*names)(value).upper()]


_NUMBERS = [
    ("linger.ms", 5, "How long a record waits for company in its batch.", "milliseconds", 0),
    (
        "batch.size",
        262_144,
        "Bytes of a batch before compression at most, unless a single record is larger.",
        "number",
        0,
    ),
    ("buffer.memory", 33_554_432, "Bytes of records not yet stored; send() waits when it is full.", "number", 1),
    ("max.block.ms", 60_000, "How long send() may wait for metadata or for room in the buffer.", "milliseconds", 0),
    ("max.request.size", 1_048_576, "The largest record, and the largest request.", "number", 1),
    (
        "transaction.timeout.ms",
        60_000,
        "A transaction that is open for longer is aborted by the broker, and its producer fenced.",
        "milliseconds",
        1,
    ),
    ("delivery.timeout.ms", 120_000, "A record that is not stored within this time has failed.", "milliseconds", 0),
]

PRODUCER_SETTINGS: dict[str, Setting] = {
    **{name: setting for name, setting in SETTINGS.items() if name in _COMMON or name.startswith(_SECURITY)},
    **{name: Setting(name, _number(least), default, doc, kind) for name, default, doc, kind, least in _NUMBERS},
    "acks": Setting(
        "acks", _acks, -1, "Who must have a record: all (in-sync replicas), 1 (the leader), 0 (nobody).", "string"
    ),
    "compression.type": Setting(
        "compression.type", _compression, Compression.NONE, "none, gzip, snappy, lz4 or zstd.", "string"
    ),
    "enable.idempotence": Setting(
        "enable.idempotence",
        _flag,
        True,
        "Retries store no record twice and keep the order; needs acks=all.",
        "boolean",
    ),
    "transactional.id": Setting(
        "transactional.id", _text, None, "The name under which begin(), commit() and abort() work.", "string"
    ),
    "key.serializer": Setting("key.serializer", _callable, None, "A function from the key to bytes.", "callable"),
    "value.serializer": Setting("value.serializer", _callable, None, "A function from the value to bytes.", "callable"),
}


class ProducerConfig(Config):
    """Checked settings of a producer."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = PRODUCER_SETTINGS

    def _check(self) -> None:
        self._check_connection()
        if self["enable.idempotence"] and self["acks"] != -1:
            if self.is_given("enable.idempotence"):
                raise ConfigError("enable.idempotence=true needs acks=all: leave one of them out")
            self._values["enable.idempotence"] = False  # as Kafka: fewer acks were asked for, so no promise is made
        if self["transactional.id"] is not None and not self["enable.idempotence"]:
            raise ConfigError("a transactional.id needs enable.idempotence=true and acks=all")

    def batching(self) -> BatchingConfig:
        return BatchingConfig(
            acks=self["acks"],
            batch_size=min(self["batch.size"], self["max.request.size"]),
            linger_ms=self["linger.ms"],
            compression=self["compression.type"],
            delivery_timeout_ms=self["delivery.timeout.ms"],
            request_timeout_ms=self["request.timeout.ms"],
            retry_backoff_ms=self["retry.backoff.ms"],
            max_request_size=self["max.request.size"],
            idempotent=self["enable.idempotence"],
            transactional_id=self["transactional.id"],
        )
