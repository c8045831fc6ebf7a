"""The configuration of consumers and admins: Kafka's names, types, defaults, one line of documentation each.

The reference in docs/ is generated from SETTINGS. Nothing here opens a connection or knows a consumer.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kohort.client.errors import ConfigError

MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration name. `parse` turns text or a Python value into the value used, or raises ValueError."""

    name: str
    parse: Callable[[Any], Any]
    default: Any
    doc: str
    kind: str


# -- types ----------------------------------------------------------------------------------------------------


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("must be true or false")


def _number(least: int, most: int = MAX_INT) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, bool):
            raise ValueError("must be a whole number")
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ValueError("must be a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"must be between {least} and {most}")
        return number

    return parse


def _one_of(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        for choice in choices:
            if isinstance(value, str) and value.lower() == choice.lower():
                return choice
        raise ValueError(f"must be one of {', '.join(choices)}")

    return parse


def _names(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        return list(value)
    return [value]


def _servers(value: Any) -> list[tuple[str, int]]:
    servers = []
    for item in _names(value):
        host, colon, port = str(item).rpartition(":")
        if not colon or not host or not port.isdigit():
            raise ValueError(f"{item!r} is not host:port")
        servers.append((host.strip("[]"), int(port)))
    if not servers:
        raise ValueError("needs at least one host:port")
    return servers


def _callable(value: Any) -> Callable[[Any], Any] | None:
    if value is not None and not callable(value):
        raise ValueError("must be a function of the bytes")
    found: Callable[[Any], Any] | None = value
    return found


def _any(value: Any) -> Any:
    return value


def _reset(value: Any) -> str:
    text = str(value).strip()
    if text.lower() in ("earliest", "latest", "none"):
        return text.lower()
    if text.lower().startswith("by_duration:"):
        parse_duration_ms(text.partition(":")[2])
        return "by_duration:" + text.partition(":")[2]
    raise ValueError("must be earliest, latest, none or by_duration:<ISO 8601 duration>, e.g. by_duration:PT1H")


def parse_duration_ms(text: str) -> int:
    """An ISO 8601 duration of days, hours, minutes and seconds, as Kafka's `by_duration:` takes it."""
    match = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", text.strip().upper())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as P1D or PT1H30M")
    days, hours, minutes = (int(group or 0) for group in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(float(match.group(4) or 0) * 1000)


def _define(kind: str, parse: Callable[[Any], Any], rows: Iterable[tuple[str, Any, str]]) -> list[Setting]:
    return [Setting(name, parse, default, doc, kind) for name, default, doc in rows]


# -- the table ------------------------------------------------------------------------------------------------

_MILLIS = [
    ("session.timeout.ms", 45_000, "The group evicts this member when no heartbeat arrived for so long."),
    ("heartbeat.interval.ms", 3_000, "Time between heartbeats; lower than session.timeout.ms, at most a third of it."),
    (
        "max.poll.interval.ms",
        300_000,
        "Longest time between polls before leaving the group; also the rebalance timeout.",
    ),
    ("auto.commit.interval.ms", 5_000, "Time between automatic commits where enable.auto.commit is true."),
    (
        "metadata.max.age.ms",
        300_000,
        "Metadata is refreshed at least this often, which finds new partitions and topics.",
    ),
    ("fetch.max.wait.ms", 500, "How long a broker may wait for fetch.min.bytes before it answers."),
    (
        "reconnect.backoff.ms",
        50,
        "First wait before connecting again to a broker; doubles at every failure, with jitter.",
    ),
    ("reconnect.backoff.max.ms", 1_000, "Longest wait before connecting again to a broker."),
    ("retry.backoff.ms", 100, "First wait before a failed request is repeated; doubles at every failure, with jitter."),
    ("retry.backoff.max.ms", 1_000, "Longest wait before a failed request is repeated."),
    ("request.timeout.ms", 30_000, "Longest wait for the answer to one request."),
    ("default.api.timeout.ms", 60_000, "Longest time a blocking call such as commit() or position() may take in all."),
    ("socket.connection.setup.timeout.ms", 10_000, "Longest wait for a connection to be established."),
    ("connections.max.idle.ms", 540_000, "Connections unused for so long are closed."),
]
_COUNTS = [
    ("max.partition.fetch.bytes", 1_048_576, "Bytes per partition a broker returns at most in one fetch."),
    ("fetch.min.bytes", 1, "A broker answers a fetch once it has this many bytes, or fetch.max.wait.ms have passed."),
    ("fetch.max.bytes", 52_428_800, "Bytes a broker returns at most in one fetch."),
    ("prefetch.max.bytes", 67_108_864, "Bytes fetched ahead of poll() at most (kohort's own)."),
    ("receive.buffer.bytes", 65_536, "TCP receive buffer (SO_RCVBUF); 0 leaves it to the system."),
    ("send.buffer.bytes", 131_072, "TCP send buffer (SO_SNDBUF); 0 leaves it to the system."),
    (
        "receive.message.max.bytes",
        536_870_912,
        "Bytes of one answer at most; what announces more is not taken for an answer (librdkafka's name).",
    ),
    ("max.poll.records", 500, "Records poll() returns at most."),
]
_TEXTS = [
    ("group.id", None, "The consumer group; needed for subscribe() and for commits."),
    (
        "group.instance.id",
        None,
        "Makes this a static member (KIP-345): a restart within the session moves no partition.",
    ),
    (
        "group.remote.assignor",
        None,
        "The broker's assignor to use with group.protocol=consumer, uniform or range; unset leaves it to the broker.",
    ),
    ("client.id", "kohort", "A name for logs and quotas of the broker."),
    ("client.rack", "", "The rack of this client, for fetching from near replicas and rack-aware assignment."),
    ("sasl.username", None, "User name for SASL."),
    ("sasl.password", None, "Password for SASL."),
    ("sasl.oauthbearer.token.endpoint.url", None, "Where OAUTHBEARER gets its tokens by client credentials."),
    ("sasl.oauthbearer.client.credentials.client.id", None, "The client's id there."),
    ("sasl.oauthbearer.client.credentials.client.secret", None, "The client's secret there."),
    ("sasl.oauthbearer.scope", None, "The scope asked for there."),
    ("ssl.cafile", None, "PEM file of the certificate authorities to trust; the system's where unset."),
    ("ssl.certfile", None, "PEM file of this client's certificate."),
    ("ssl.keyfile", None, "PEM file of this client's private key."),
    ("ssl.key.password", None, "Password of the private key."),
    (
        "ssl.truststore.location",
        None,
        "A store of the authorities to trust, PEM, PKCS#12 or JKS, as Java's clients have.",
    ),
    ("ssl.truststore.password", None, "Password of that store."),
    ("ssl.truststore.type", None, "PEM, PKCS12 or JKS; it is seen from the store itself, whatever is said here."),
    ("ssl.truststore.certificates", None, "The authorities to trust as PEM text, instead of a store."),
    ("ssl.keystore.location", None, "A store of this client's certificate and key, PEM, PKCS#12 or JKS."),
    ("ssl.keystore.password", None, "Password of that store."),
    ("ssl.keystore.type", None, "PEM, PKCS12 or JKS; it is seen from the store itself, whatever is said here."),
    ("ssl.keystore.certificate.chain", None, "This client's certificate as PEM text, instead of a store."),
    ("ssl.keystore.key", None, "The private key to it as PEM text."),
    ("ssl.endpoint.identification.algorithm", "https", "Empty: do not check that the certificate names the host."),
]
_FLAGS = [
    ("enable.auto.commit", True, "Commit the positions of returned records every auto.commit.interval.ms."),
    ("check.crcs", True, "Check the CRC-32C of every record batch."),
    ("exclude.internal.topics", True, "A pattern subscription leaves out internal topics."),
    ("allow.auto.create.topics", True, "Subscribing to a missing topic may create it, where the broker allows."),
    ("ssl.check.hostname", True, "Check that the broker's certificate names its host."),
]

SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in [
        Setting("bootstrap.servers", _servers, None, "host:port of one or more brokers, comma separated.", "list"),
        *_define("milliseconds", _number(0), _MILLIS),
        *_define("number", _number(0), _COUNTS),
        *_define("string", _text, _TEXTS),
        *_define("boolean", _flag, _FLAGS),
        Setting(
            "auto.offset.reset",
            _reset,
            "latest",
            "Where to start without a committed offset: earliest, latest, none (an error), by_duration:PT1H.",
            "string",
        ),
        Setting(
            "isolation.level",
            _one_of("read_uncommitted", "read_committed"),
            "read_uncommitted",
            "read_committed leaves out records of aborted and unfinished transactions.",
            "string",
        ),
        Setting(
            "partition.assignment.strategy",
            _names,
            ["range", "cooperative-sticky"],
            "Assignors by preference: range, roundrobin, sticky, cooperative-sticky, objects, 'package.module:Class'.",
            "list",
        ),
        Setting(
            "group.protocol",
            _one_of("classic", "consumer"),
            "classic",
            "The group's protocol: classic, where a member assigns, or consumer, where the broker does (KIP-848).",
            "string",
        ),
        Setting(
            "key.deserializer", _callable, None, "A function from the key's bytes to what records carry.", "callable"
        ),
        Setting(
            "value.deserializer",
            _callable,
            None,
            "A function from the value's bytes to what records carry.",
            "callable",
        ),
        Setting(
            "security.protocol",
            _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
            "PLAINTEXT",
            "How to talk to brokers.",
            "string",
        ),
        Setting(
            "sasl.mechanism",
            _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
            "PLAIN",
            "The SASL mechanism.",
            "string",
        ),
        Setting(
            "sasl.oauthbearer.token.provider",
            _any,
            None,
            "A function that gives a token, or (token, end in s), or its name, 'package.module:name' (kohort's own).",
            "callable",
        ),
        Setting(
            "ssl.context", _any, None, "A ready ssl.SSLContext, instead of the ssl.* files (kohort's own).", "object"
        ),
    ]
}

UNUSED = {
    "consumer": ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"),
    "classic": ("group.remote.assignor",),
}
INSTEAD = {
    "consumer": "the broker assigns and sets the times (group.remote.assignor names its assignor, "
    "group.consumer.session.timeout.ms and group.consumer.heartbeat.interval.ms are its settings, for all groups "
    "or for one); leave them out",
    "classic": "there a member assigns, by partition.assignment.strategy; or give group.protocol=consumer",
}


class Config(Mapping[str, Any]):
    """Checked settings, read as `config["session.timeout.ms"]` or `config.session_timeout_ms`."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = SETTINGS

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: setting.default for name, setting in self.SETTINGS.items()}
        self._given: set[str] = set()
        for given, value in values.items():
            name = known_name(given, self.SETTINGS)
            if name in self._given:
                raise ConfigError(f"{name} is given twice")
            try:
                self._values[name] = self.SETTINGS[name].parse(value)
            except ValueError as error:
                raise ConfigError(f"{name}={value!r}: {error}") from None
            self._given.add(name)
        self._check()

    def _check_connection(self) -> None:
        if self["bootstrap.servers"] is None:
            raise ConfigError("bootstrap.servers is missing: pass bootstrap_servers='host:port'")
        if self["security.protocol"].startswith("SASL"):
            self._check_sasl()

    def _check_sasl(self) -> None:
        if self["sasl.mechanism"] == "OAUTHBEARER":
            named = [name for name in ("token.endpoint.url", "token.provider") if self[f"sasl.oauthbearer.{name}"]]
            if not named:
                raise ConfigError(
                    "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url with the client's id and "
                    "secret, or sasl.oauthbearer.token.provider"
                )
        elif not (self["sasl.username"] and self["sasl.password"]):
            raise ConfigError(f"security.protocol={self['security.protocol']} needs sasl.username and sasl.password")

    def _check(self) -> None:
        self._check_connection()
        self._check_protocol()
        if self["heartbeat.interval.ms"] >= self["session.timeout.ms"]:
            raise ConfigError(
                f"heartbeat.interval.ms={self['heartbeat.interval.ms']} must be lower than "
                f"session.timeout.ms={self['session.timeout.ms']}; a third of it is usual"
            )
        if self["group.id"] == "":
            raise ConfigError("group.id must not be empty; leave it out to read without a group")
        if self["group.instance.id"] == "":
            raise ConfigError("group.instance.id must not be empty; leave it out for a dynamic member")
        if self["max.poll.records"] < 1:
            raise ConfigError("max.poll.records must be at least 1")

    def _check_protocol(self) -> None:
        """As in Kafka's client: what the protocol does not use must not be given."""
        protocol = self["group.protocol"]
        unused = [name for name in UNUSED[protocol] if name in self._given]
        if unused:
            names = ", ".join(unused)
            raise ConfigError(f"{names} cannot be given with group.protocol={protocol}: {INSTEAD[protocol]}")

    def is_given(self, name: str) -> bool:
        """Whether the user set it (as opposed to the default)."""
        return name in self._given

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name.replace("_", ".")]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def known_name(given: str, settings: Mapping[str, Setting] = SETTINGS) -> str:
    """Kafka's dotted name for `session_timeout_ms`; an error that names the nearest one where there is none."""
    name = given.replace("_", ".")
    if name in settings:
        return name
    near = difflib.get_close_matches(name, settings, n=1, cutoff=0.5)
    raise ConfigError(f"unknown configuration {given!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
