"""The options of the source and the sink: names, values, contradictions. Nothing here opens a connection.

Spark's names where Spark's Kafka source has them; Kafka's names, with or without `kafka.`, for the rest.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from kohort.client.config import SETTINGS, Config
from kohort.client.errors import ConfigError
from kohort.client.producer_config import ProducerConfig
from kohort.client.types import TopicPartition, partition_list
from kohort.spark.java_settings import UNDERSTOOD, from_java
from kohort.spark.limits import parse_duration_ms
from kohort.spark.offsets import EARLIEST, LATEST, SPEC_EARLIEST, SPEC_LATEST, OffsetSpec, parse_assignment, parse_json

Mode = Literal["batch", "stream"]


class OptionError(ValueError):
    """An option that does not exist, cannot have that value, or contradicts another. The text names the right one."""


READ_OPTIONS: dict[str, str] = {
    "subscribe": "Topics, comma separated.",
    "subscribePattern": "A regular expression that is found in the names of topics.",
    "assign": 'Bounded reads only: partitions as JSON, {"orders": [0, 1]}.',
    "startingOffsets": 'earliest, latest, or JSON {"orders": {"0": 23, "1": -2}}; -1 is latest, -2 earliest.',
    "startingTimestamp": "Start at the first record at or after this time (ms since 1970).",
    "startingOffsetsByTimestamp": 'The same for each partition: {"orders": {"0": 1700000000000}}.',
    "startingOffsetsByTimestampStrategy": "error or latest: what to do where no record is that new.",
    "endingOffsets": "Bounded reads only: latest (the default) or JSON; the offset after the last to read.",
    "endingTimestamp": "Bounded reads only: end before the first record at or after this time (ms since 1970).",
    "endingOffsetsByTimestamp": "The same for each partition.",
    "maxOffsetsPerTrigger": "Streams only: offsets a micro-batch holds at most, shared among partitions by their lag.",
    "maxBytesPerTrigger": "Streams only: about so many bytes, as the log has them, a micro-batch holds at most.",
    "minOffsetsPerTrigger": "Streams only: a micro-batch waits until there are so many, or for maxTriggerDelay.",
    "maxTriggerDelay": "Streams only: how long minOffsetsPerTrigger may hold a micro-batch back; default 15m.",
    "minPartitions": "At least so many tasks: large ranges are split.",
    "maxPartitions": "At most so many tasks: partitions share them. Best is one for each core of the executors.",
    "maxRecordsPerPartition": "A task reads at most so many offsets: larger ranges are split.",
    "failOnDataLoss": "true (the default): fail where records are gone before they were read; false: log and go on.",
    "includeHeaders": "Add the column headers.",
    "pushFilters": "Bounded reads only: read only what filters on places and times leave; default false.",
    "checkpointLocation": "Streams only: the query's, once more: a batch that is finished when it stops is committed.",
}
WRITE_OPTIONS: dict[str, str] = {
    "topic": "The topic to write to; wins over a column named topic.",
    "includeHeaders": "true: the column headers must exist; false: it is left out; unset: it is taken where it exists.",
    "delivery": "at-least-once (default), or exactly-once: in transactions, for streams.",
    "sourceOffsets": "in-transaction: exactly-once only, offsets of the query's kohort sources count with the batch.",
    "decisionsTopic": "Where drivers of exactly-once queries write which batches count; made where it is missing.",
}
DECISIONS_TOPIC = "_kohort_spark_decisions"
SINK_DEFAULTS = {"client.id": "kohort-spark"}
EXACTLY_ONCE_DEFAULTS = {"transaction.timeout.ms": "900000"}

NOT_HERE: dict[str, str] = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "offsets are committed to the group as soon as Spark has made a batch durable",
    "auto.commit.interval.ms": "offsets are committed to the group as soon as Spark has made a batch durable",
    "max.poll.records": "fetches are sized in bytes, use kafka.max.partition.fetch.bytes",
    "prefetch.max.bytes": "a task fetches one step ahead, use kafka.max.partition.fetch.bytes",
    "key.deserializer": "keys and values are binary columns, cast them in Spark",
    "value.deserializer": "keys and values are binary columns, cast them in Spark",
    "interceptor.classes": "there are no Java classes here, change rows in Spark",
    "sasl.kerberos.service.name": "Kerberos is not spoken here: use SCRAM, PLAIN, OAUTHBEARER or TLS certificates",
    "sasl.oauthbearer.token": "use kafka.sasl.oauthbearer.token.provider=package.module:function",
    "ssl.context": "a context cannot travel to the executors, use kafka.ssl.cafile and its like",
    "groupidprefix": "use group.id, which the query joins",
    "kafkaconsumer.polltimeoutms": "use kafka.request.timeout.ms",
    "fetchoffset.numretries": "use kafka.default.api.timeout.ms, the time within which calls are repeated",
    "fetchoffset.retryintervalms": "use kafka.retry.backoff.ms",
    "path": "this source has no path, name topics with subscribe",
}
NOT_IN_THE_SINK: dict[str, str] = {
    "key.serializer": "keys and values are written as they are, cast them in Spark",
    "value.serializer": "keys and values are written as they are, cast them in Spark",
    "interceptor.classes": "there are no Java classes here, change rows in Spark",
    "partitioner.class": "a key goes where Java's producers put it; use a column partition for more",
    "partitioner": "a key goes where Java's producers put it; use a column partition for more",
    "retries": "what may pass is sent again until kafka.delivery.timeout.ms",
    "max.in.flight.requests.per.connection": "one batch of a partition is on its way at a time, so order is kept",
    "message.max.bytes": "that is librdkafka's name of kafka.max.request.size",
    "queue.buffering.max.kbytes": "use kafka.buffer.memory, in bytes",
    "queue.buffering.max.messages": "use kafka.buffer.memory, in bytes",
    "queue.buffering.max.ms": "that is librdkafka's name of kafka.linger.ms",
    "compression.codec": "that is librdkafka's name of kafka.compression.type",
    "message.timeout.ms": "that is librdkafka's name of kafka.delivery.timeout.ms",
    "ssl.ca.location": "that is librdkafka's name of kafka.ssl.cafile",
    "ssl.certificate.location": "that is librdkafka's name of kafka.ssl.certfile",
    "ssl.key.location": "that is librdkafka's name of kafka.ssl.keyfile",
    "sasl.kerberos.service.name": NOT_HERE["sasl.kerberos.service.name"],
}
GROUP_ONLY = ("group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
              "partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms",
              "max.poll.interval.ms")  # fmt: skip
SOURCE_DEFAULTS: dict[str, Any] = {
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    "fetch.max.bytes": 64 * 1024 * 1024,
    "metadata.max.age.ms": 30_000,
    "socket.connection.setup.timeout.ms": 4_000,
    "client.id": "kohort-spark",
}
CLASSIC_DEFAULTS = {"partition.assignment.strategy": "cooperative-sticky"}

_READ_NAMES = {name.lower(): name for name in READ_OPTIONS}
_WRITE_NAMES = {name.lower(): name for name in WRITE_OPTIONS}
_SHARED_SETTINGS = ("bootstrap.servers",)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def matches(self, topic: str) -> bool:
        return self.pattern is not None and re.search(self.pattern, topic) is not None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern!r}"
        return ", ".join(self.topics or sorted({tp.topic for tp in self.partitions}))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    mode: Mode
    settings: Mapping[str, Any]
    """Kafka's settings as given, with this source's defaults: what `kohort.client.config.Config` takes."""
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec = SPEC_LATEST
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    push_filters: bool = False
    checkpoint_location: str | None = None
    given: frozenset[str] = field(default_factory=frozenset)

    def config(self) -> Config:
        return Config(self.settings)

    @property
    def group_id(self) -> str:
        return str(self.settings["group.id"])

    @property
    def read_committed(self) -> bool:
        return str(self.settings.get("isolation.level", "")).lower() == "read_committed"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    producer: Mapping[str, str]
    topic: str | None
    include_headers: bool | None
    exactly_once: bool = False
    decisions_topic: str = DECISIONS_TOPIC
    source_offsets: bool = False
    checkpoint: str | None = None


# -- reading options -----------------------------------------------------------------------------------------------


def parse_read_options(options: Mapping[str, str], mode: Mode) -> ReadOptions:
    own, settings = _sort_out(options, _READ_NAMES)
    _check_mode(own, settings, mode)
    parsed = ReadOptions(
        mode=mode,
        settings={**_defaults(settings), **settings},
        subscription=_subscription(own, mode),
        starting=_starting(own, mode),
        ending=_ending(own),
        max_offsets_per_trigger=_count(own, "maxOffsetsPerTrigger"),
        max_bytes_per_trigger=_count(own, "maxBytesPerTrigger"),
        min_offsets_per_trigger=_count(own, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_delay(own),
        min_partitions=_count(own, "minPartitions"),
        max_partitions=_count(own, "maxPartitions"),
        max_records_per_partition=_count(own, "maxRecordsPerPartition"),
        fail_on_data_loss=_flag(own, "failOnDataLoss", True),
        include_headers=_flag(own, "includeHeaders", False),
        push_filters=_flag(own, "pushFilters", False),
        checkpoint_location=own.get("checkpointLocation"),
        given=frozenset(own) | frozenset(settings),
    )
    _check_task_limits(parsed)
    try:
        parsed.config()
    except ConfigError as error:
        raise OptionError(f"kafka.{error}" if str(error).startswith("bootstrap") else str(error)) from None
    return parsed


def _defaults(settings: Mapping[str, str]) -> dict[str, Any]:
    """In a group of the consumer protocol the broker assigns, and an assignor of ours would be a contradiction."""
    classic = settings.get("group.protocol", "classic").lower() == "classic"
    return {**SOURCE_DEFAULTS, **(CLASSIC_DEFAULTS if classic else {})}


def _check_task_limits(options: ReadOptions) -> None:
    least, limit = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and limit is not None and least > limit:
        raise OptionError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={limit}")
    most = options.max_partitions
    if most is not None and options.max_records_per_partition is not None:
        raise OptionError("maxPartitions and maxRecordsPerPartition contradict each other: keep one of them")
    if most is not None and most < (options.min_partitions or 0):
        raise OptionError(f"maxPartitions={most} is less than minPartitions={options.min_partitions}")


def includes_headers(options: Mapping[str, str]) -> bool:
    """All that the schema depends on. Names are checked here already, when it is not known yet what is to be read."""
    own, _ = _sort_out(options, _READ_NAMES)
    return _flag(own, "includeHeaders", False)


def _sort_out(options: Mapping[str, str], names: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """This source's options and Kafka's settings, each under its proper name; an error for any other."""
    own: dict[str, str] = {}
    settings: dict[str, str] = {}
    for given, value in options.items():
        lower = given.lower()
        if lower in names:
            own[names[lower]] = value
            continue
        name = lower.removeprefix("kafka.")
        if (name not in SETTINGS and name not in UNDERSTOOD) or name in NOT_HERE:
            _unknown(given, name, names)
        if settings.get(name, value) != value:
            raise OptionError(f"{name} and kafka.{name} are both given and differ: keep one of them")
        settings[name] = value
    with _as_option_error():
        return own, from_java(settings)


def _unknown(given: str, name: str, names: Mapping[str, str]) -> NoReturn:
    if name in NOT_HERE:
        raise OptionError(f"{given} is not an option of this source: {NOT_HERE[name]}")
    known = {**{setting: f"kafka.{setting}" for setting in SETTINGS if setting not in NOT_HERE}, **names}
    known |= {setting: setting for setting in GROUP_ONLY}
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    raise OptionError(f"unknown option {given}" + (f"; did you mean {known[near[0]]}?" if near else ""))


def _check_mode(own: Mapping[str, str], settings: Mapping[str, str], mode: Mode) -> None:
    if "bootstrap.servers" not in settings:
        raise OptionError("kafka.bootstrap.servers is missing: host:port of one or more brokers")
    if mode == "stream":
        if "group.id" not in settings:
            raise OptionError("group.id is missing: the consumer group this query joins")
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in own:
                raise OptionError(
                    f"{name} is for bounded reads (spark.read); a stream has no end, see trigger(availableNow)"
                )
        if "pushFilters" in own:
            raise OptionError("pushFilters is for bounded reads (spark.read); Spark pushes no filters into a stream")
        if "assign" in own:
            raise OptionError("assign contradicts group.id: the group assigns partitions, use subscribe")
        return
    for name in GROUP_ONLY:
        if name in settings:
            raise OptionError(f"{name} is for streams (spark.readStream); a bounded read joins no group")
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name in own:
            raise OptionError(f"{name} is for streams; use maxRecordsPerPartition to get smaller tasks")
    if "checkpointLocation" in own:
        raise OptionError("checkpointLocation is for streams; a bounded read has no checkpoint")


def _only_one(own: Mapping[str, str], *names: str) -> str | None:
    present = [name for name in names if name in own]
    if len(present) > 1:
        raise OptionError(f"{' and '.join(present)} contradict each other: keep one of them")
    return present[0] if present else None


def _subscription(own: Mapping[str, str], mode: Mode) -> Subscription:
    chosen = _only_one(own, "subscribe", "subscribePattern", "assign")
    if chosen is None:
        raise OptionError("no topics: use subscribe or subscribePattern" + (" or assign" if mode == "batch" else ""))
    if chosen == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in own["subscribe"].split(",") if name.strip()))
        if not topics:
            raise OptionError("subscribe names no topic")
        return Subscription(topics=topics)
    if chosen == "subscribePattern":
        try:
            re.compile(own["subscribePattern"])
        except re.error as error:
            raise OptionError(f"subscribePattern is not a regular expression: {error}") from None
        if not own["subscribePattern"]:
            raise OptionError("subscribePattern is empty")
        return Subscription(pattern=own["subscribePattern"])
    with _as_option_error():
        return Subscription(partitions=tuple(parse_assignment(own["assign"])))


def _starting(own: Mapping[str, str], mode: Mode) -> OffsetSpec:
    chosen = _only_one(own, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    strategy = own.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"startingOffsetsByTimestampStrategy={strategy!r}: must be error or latest")
    if "startingOffsetsByTimestampStrategy" in own and chosen not in (
        "startingTimestamp",
        "startingOffsetsByTimestamp",
    ):
        raise OptionError("startingOffsetsByTimestampStrategy needs startingTimestamp or startingOffsetsByTimestamp")
    if chosen is None:
        return SPEC_LATEST if mode == "stream" else SPEC_EARLIEST
    if chosen == "startingTimestamp":
        return OffsetSpec("timestamp", _number(own, chosen, 0), missing_timestamp=strategy)  # type: ignore[arg-type]
    with _as_option_error():
        if chosen == "startingOffsetsByTimestamp":
            times = parse_json(own[chosen], chosen, 0)
            return OffsetSpec("timestamp", by_partition=times, missing_timestamp=strategy)  # type: ignore[arg-type]
        word = own[chosen].strip().lower()
        if word in ("earliest", "latest"):
            if mode == "batch" and word == "latest":
                raise OptionError("startingOffsets=latest would read nothing: a bounded read ends at latest")
            return SPEC_EARLIEST if word == "earliest" else SPEC_LATEST
        offsets = parse_json(own[chosen], "startingOffsets", EARLIEST)
        at_the_end = [tp for tp, offset in offsets.items() if offset == LATEST]
        if mode == "batch" and at_the_end:
            raise OptionError(
                f"startingOffsets=-1 (latest) would read nothing of {partition_list(at_the_end)}: "
                "a bounded read ends at latest"
            )
        return OffsetSpec("offset", by_partition=offsets)


def _ending(own: Mapping[str, str]) -> OffsetSpec:
    chosen = _only_one(own, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    if chosen is None:
        return SPEC_LATEST
    if chosen == "endingTimestamp":
        return OffsetSpec("timestamp", _number(own, chosen, 0), missing_timestamp="latest")
    with _as_option_error():
        if chosen == "endingOffsetsByTimestamp":
            return OffsetSpec("timestamp", by_partition=parse_json(own[chosen], chosen, 0), missing_timestamp="latest")
        word = own[chosen].strip().lower()
        if word == "earliest":
            raise OptionError("endingOffsets=earliest would read nothing: use latest or JSON")
        if word == "latest":
            return SPEC_LATEST
        return OffsetSpec("offset", by_partition=parse_json(own[chosen], "endingOffsets", -1))


def _number(own: Mapping[str, str], name: str, least: int) -> int:
    try:
        number = int(own[name])
    except ValueError:
        raise OptionError(f"{name}={own[name]!r}: must be a whole number") from None
    if number < least:
        raise OptionError(f"{name}={number}: must be at least {least}")
    return number


def _count(own: Mapping[str, str], name: str) -> int | None:
    return _number(own, name, 1) if name in own else None


def _delay(own: Mapping[str, str]) -> int:
    if "maxTriggerDelay" in own and "minOffsetsPerTrigger" not in own:
        raise OptionError("maxTriggerDelay needs minOffsetsPerTrigger, which it limits")
    with _as_option_error():
        return parse_duration_ms(own.get("maxTriggerDelay", "15m"))


def _flag(own: Mapping[str, str], name: str, default: bool) -> bool:
    text = own.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name}={own[name]!r}: must be true or false")
    return text == "true"


class _as_option_error:
    """Turns the ValueError of a parser into an OptionError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError) and not isinstance(error, OptionError):
            raise OptionError(str(error)) from None


# -- writing options -----------------------------------------------------------------------------------------------


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """`kafka.*` goes to kohort's producer, which refuses what it does not know."""
    own: dict[str, str] = {}
    producer: dict[str, str] = {}
    checkpoint = None
    for given, value in options.items():
        lower = given.lower()
        if lower in _WRITE_NAMES:
            own[_WRITE_NAMES[lower]] = value
        elif lower.startswith("kafka."):
            producer[lower.removeprefix("kafka.")] = value
        elif lower == "checkpointlocation":
            checkpoint = value
        else:
            near = difflib.get_close_matches(lower, [*_WRITE_NAMES, "kafka.bootstrap.servers"], n=1, cutoff=0.5)
            hint = (
                f"; did you mean {_WRITE_NAMES.get(near[0], near[0])}?"
                if near
                else "; Kafka's settings begin with kafka."
            )
            raise OptionError(f"unknown option {given} of the sink{hint}")
    if foreign := sorted(producer.keys() & NOT_IN_THE_SINK):
        raise OptionError(f"kafka.{foreign[0]} is not an option of this sink: {NOT_IN_THE_SINK[foreign[0]]}")
    if not producer.get("bootstrap.servers"):
        raise OptionError("kafka.bootstrap.servers is missing: host:port of one or more brokers")
    if "transactional.id" in producer:
        raise OptionError(
            "kafka.transactional.id: leave it out; with delivery=exactly-once each task has a transaction of its own"
        )
    with _as_option_error():
        producer = from_java(producer)
    exactly_once = _delivery(own)
    producer = _producer(producer, exactly_once)
    topic = own.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic is empty")
    headers = _flag(own, "includeHeaders", False) if "includeHeaders" in own else None
    return WriteOptions(
        producer=producer,
        topic=topic,
        include_headers=headers,
        exactly_once=exactly_once,
        decisions_topic=own.get("decisionsTopic", DECISIONS_TOPIC),
        source_offsets=_source_offsets(own, exactly_once, checkpoint),
        checkpoint=checkpoint,
    )


def _delivery(own: Mapping[str, str]) -> bool:
    text = own.get("delivery", "at-least-once").strip().lower()
    if text not in ("at-least-once", "exactly-once"):
        raise OptionError(f"delivery={own['delivery']!r}: must be at-least-once or exactly-once")
    if "decisionsTopic" in own:
        if text != "exactly-once":
            raise OptionError("decisionsTopic is for delivery=exactly-once")
        if not own["decisionsTopic"].strip():
            raise OptionError("decisionsTopic is empty")
    return text == "exactly-once"


def _source_offsets(own: Mapping[str, str], exactly_once: bool, checkpoint: str | None) -> bool:
    if "sourceOffsets" not in own:
        return False
    if own["sourceOffsets"].strip().lower() != "in-transaction":
        raise OptionError(f"sourceOffsets={own['sourceOffsets']!r}: must be in-transaction, or left out")
    if not exactly_once or checkpoint is None:
        raise OptionError(
            "sourceOffsets=in-transaction needs delivery=exactly-once and checkpointLocation, the same in the sink's "
            "options and in those of readStream"
        )
    return True


def _producer(given: Mapping[str, str], exactly_once: bool) -> dict[str, str]:
    settings = {**SINK_DEFAULTS, **(EXACTLY_ONCE_DEFAULTS if exactly_once else {}), **given}
    with _as_option_error():
        ProducerConfig({**settings, **({"transactional.id": "checked"} if exactly_once else {})})
    return settings
