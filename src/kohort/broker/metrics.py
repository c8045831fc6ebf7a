"""Prometheus metrics: a snapshot of plain numbers, taken by the owner of the core, and its text form.

Names are Kafka's as its JMX exporter writes them; `kohort_` marks what Kafka does not have. The only module that knows
prometheus-client, which is an optional dependency: import this one only where metrics are wanted.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
except ImportError as error:
    raise ImportError("metrics need prometheus-client: pip install 'kohort[metrics]'") from error

from kohort import __version__
from kohort.broker.meter import MOST_GROUPS, REBALANCE_BUCKETS_MS, SLOTS, Meter
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.classic.states import GroupState
from kohort.coordinator.modern.group import ModernGroup, ModernState
from kohort.coordinator.shard import Life

if TYPE_CHECKING:
    from kohort.broker.core import Core
    from kohort.broker.topics import Partition

MOST_PARTITIONS = 1_000
OTHER_TOPICS = "(other topics)"
FIRST_SLOT = 5  # latencies below 32 us are one bucket
LAST_SLOT = 26  # about 67 s; longer ones are +Inf

Sample = tuple[tuple[str, ...], float]


@dataclass(slots=True)
class Snapshot:
    """Numbers of one moment; nothing in it changes any more."""

    simple: dict[str, float] = field(default_factory=dict)
    labelled: dict[str, list[Sample]] = field(default_factory=dict)
    latencies: dict[str, tuple[list[int], float]] = field(default_factory=dict)
    rebalances: tuple[list[int], float] = field(default_factory=lambda: ([0], 0.0))

    def add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        self.labelled.setdefault(name, []).append((labels, value))


# Name -> (help, labels); what ends in _total is a counter, the rest are gauges.
SIMPLE: dict[str, str] = {
    "kafka_server_replicamanager_partitioncount": "Partitions of this broker.",
    "kafka_server_replicamanager_leadercount": "Partitions led by this broker: on a single broker, all.",
    "kafka_server_socket_server_metrics_connection_count": "Connections that are open.",
    "kafka_server_socket_server_metrics_connection_creation_total": "Connections that were accepted.",
    "kafka_coordinator_group_groupmetadatamanager_numgroups": "Groups.",
    "kafka_coordinator_group_groupmetadatamanager_numoffsets": "Committed offsets, of all groups.",
    "kafka_server_group_coordinator_metrics_group_completed_rebalance_count": "Rebalances that were completed.",
    "kafka_server_group_coordinator_metrics_consumer_group_rebalance_count": "Epochs that groups of KIP-848 began.",
    "kafka_server_group_coordinator_metrics_offset_commit_count": "Offsets that were committed.",
    "kafka_server_group_coordinator_metrics_offset_expiration_count": "Offsets that expired.",
    "kafka_server_group_coordinator_metrics_offset_deletion_count": "Offsets that were deleted.",
    "kohort_log_append_failures_total": "Batches that could not be stored.",
    "kohort_logs_offline": "Partitions that are not served since their disk failed.",
    "kohort_lost_offsets": "Offsets that were stored once and were not there at this start.",
    "kohort_disk_free_bytes": "Free bytes where the data is; 0 in memory and in a cluster.",
    "kohort_disk_bytes": "All bytes of the disk where the data is; 0 in memory and in a cluster.",
    "kohort_members": "Members of all groups.",
    "kohort_coordinator_timers": "Entries of the coordinator's timer queues.",
    "kohort_broker_parked_fetches": "Fetches that wait for records.",
    "kafka_log_logcleanermanager_uncleanable_partitions_count": "Partitions with a batch that compaction cannot read.",
}
SERVED_LIVES = (Life.LOADING, Life.ACTIVE, Life.FAILED)
_NUM_GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
SIMPLE.update({f"{_NUM_GROUPS}{state.value.lower()}": f"Groups in state {state.value}." for state in GroupState})
LABELLED: dict[str, tuple[str, tuple[str, ...]]] = {
    "kafka_network_requestmetrics_requests_total": ("Requests answered, by api.", ("request",)),
    "kafka_server_brokertopicmetrics_messagesin_total": ("Records appended, by topic.", ("topic",)),
    "kafka_server_brokertopicmetrics_bytesin_total": ("Bytes appended, by topic.", ("topic",)),
    "kafka_server_brokertopicmetrics_bytesout_total": ("Bytes of records fetched, by topic.", ("topic",)),
    "kafka_log_log_size": ("Bytes of a log.", ("topic", "partition")),
    "kafka_log_log_numlogsegments": ("Segments of a log.", ("topic", "partition")),
    "kafka_log_log_logstartoffset": ("The first offset of a log.", ("topic", "partition")),
    "kafka_log_log_logendoffset": ("The end of a log: the offset that comes next.", ("topic", "partition")),
    "kohort_build_info": ("1, with the version that runs.", ("version", "python")),
    "kohort_coordinator_shards": ("Partitions of __consumer_offsets, by the life of their shard.", ("life",)),
    "kohort_group_rebalances_total": ("Rebalances begun, by what set them off.", ("group", "reason")),
    "kohort_group_rebalances_completed_total": ("Rebalances completed.", ("group",)),
    "kohort_group_standstill_seconds_total": ("Seconds a group spent in rebalances.", ("group",)),
    "kohort_group_evictions_total": ("Members put out, by reason.", ("group", "reason")),
    "kohort_group_joins_total": ("Members that joined.", ("group",)),
    "kohort_group_leaves_total": ("Members that left, or were removed by request.", ("group",)),
    "kohort_group_poll_timeouts_total": ("Members that left and said that they had not polled in time.", ("group",)),
    "kohort_group_refusals_total": (
        "Joins, syncs and commits refused, by error and reason.",
        ("group", "error", "reason"),
    ),
    "kohort_group_members": ("Members of a group.", ("group",)),
    "kohort_group_state": ("1 for the state a group is in.", ("group", "state")),
    "kohort_group_generation": ("The generation of a group; the epoch of one of the consumer protocol.", ("group",)),
    "kafka_server_group_coordinator_metrics_group_count": ("Groups, by protocol.", ("protocol",)),
    "kafka_server_group_coordinator_metrics_consumer_group_count": ("Groups of KIP-848, by state.", ("state",)),
    "kohort_group_assignment_epoch": ("The epoch of a KIP-848 group's target assignment.", ("group",)),
    "kohort_group_waited_for_partitions": ("Partitions of a target that other members still hold.", ("group",)),
    "kohort_group_target_failures_total": (
        "Target assignments that could not be made: the last one stands.",
        ("group", "assignor"),
    ),
    "kohort_group_lag": ("Records that a group has not committed yet, by topic.", ("group", "topic")),
}
LATENCY = ("kafka_network_requestmetrics_totaltimems", "Milliseconds from a request's arrival to its answer, by api.")
REBALANCE = ("kohort_group_rebalance_seconds", "Seconds from the begin of a rebalance to its assignment, all groups.")
EXPORTED: tuple[str, ...] = (*SIMPLE, *LABELLED, LATENCY[0], REBALANCE[0])
"""The name of every metric."""


# -- the snapshot: on the core's own thread ---------------------------------------------------------------------------


def snapshot(core: Core, meter: Meter, connections: int) -> Snapshot:
    found = Snapshot()
    _requests(found, core, meter)
    _topics(found, core)
    _disk(found, core)
    found.add("kohort_build_info", (__version__, platform.python_version()), 1)
    _groups(found, core, meter)
    found.simple["kafka_server_socket_server_metrics_connection_count"] = connections
    found.simple["kafka_server_socket_server_metrics_connection_creation_total"] = meter.connections_opened
    found.simple["kohort_broker_parked_fetches"] = len(core.purgatory)
    uncleanable = sum(not partition.deleted for partition in core.maintenance.uncleanable)
    found.simple["kafka_log_logcleanermanager_uncleanable_partitions_count"] = uncleanable
    return found


def _requests(found: Snapshot, core: Core, meter: Meter) -> None:
    """Of every api, also of those that nobody has asked for yet: a rate needs its zero."""
    for name in sorted({*(api.name for api in core.table.apis.values()), *meter.latencies}):
        slots = meter.latencies.get(name) or [0] * (SLOTS + 1)
        counts = [int(count) for count in slots[:SLOTS]]
        found.add("kafka_network_requestmetrics_requests_total", (name,), sum(counts))
        if name in meter.latencies:
            found.latencies[name] = (counts, slots[SLOTS])


def _disk(found: Snapshot, core: Core) -> None:
    found.simple["kohort_log_append_failures_total"] = core.appends.failures
    found.simple["kohort_logs_offline"] = sum(
        getattr(partition.log, "failure", None) is not None
        for topic in core.topics.by_name.values()
        for partition in topic.partitions
    )
    lost = getattr(core.store, "lost", {})
    found.simple["kohort_lost_offsets"] = sum(gap.end - gap.start for gaps in lost.values() for gap in gaps)
    path = getattr(core.store, "path", None)
    if path is not None:
        with contextlib.suppress(OSError):
            usage = shutil.disk_usage(path)
            found.simple["kohort_disk_free_bytes"], found.simple["kohort_disk_bytes"] = usage.free, usage.total


def _topics(found: Snapshot, core: Core) -> None:
    left = MOST_PARTITIONS
    count = 0
    for topic in sorted(core.topics.by_name.values(), key=lambda topic: topic.internal):  # those of users first
        count += len(topic.partitions)
        apart = len(topic.partitions) <= left
        left -= len(topic.partitions) if apart else 0
        name = topic.name if apart else OTHER_TOPICS
        for kind in ("messages_in", "bytes_in", "bytes_out"):
            metric = f"kafka_server_brokertopicmetrics_{kind.replace('_', '')}_total"
            _merge(found, metric, (name,), sum(getattr(partition, kind) for partition in topic.partitions))
        for partition in topic.partitions:
            _log(found, partition, name, str(partition.index) if apart else "")
    found.simple["kafka_server_replicamanager_partitioncount"] = count
    found.simple["kafka_server_replicamanager_leadercount"] = count


def _log(found: Snapshot, partition: Partition, topic: str, index: str) -> None:
    log, labels = partition.log, (topic, index)
    _merge(found, "kafka_log_log_size", labels, log.size_bytes)
    _merge(found, "kafka_log_log_numlogsegments", labels, len(getattr(log, "segments", ())))
    if index:
        found.add("kafka_log_log_logstartoffset", labels, log.start_offset)
        found.add("kafka_log_log_logendoffset", labels, log.end_offset)


def _merge(found: Snapshot, name: str, labels: tuple[str, ...], value: float) -> None:
    """Adds to the last sample where that has the same labels, as those of the other topics do."""
    samples = found.labelled.setdefault(name, [])
    if samples and samples[-1][0] == labels:
        samples[-1] = (labels, samples[-1][1] + value)
    else:
        samples.append((labels, value))


def _groups(found: Snapshot, core: Core, meter: Meter) -> None:
    counters = meter.groups
    coordinator = getattr(core.service("groups"), "coordinator", None)
    groups = {} if coordinator is None else coordinator.groups
    states = Counter(group.state for group in groups.values())
    prefix = "kafka_coordinator_group_groupmetadatamanager_num"
    found.simple[f"{prefix}groups"] = len(groups)
    found.simple[f"{prefix}offsets"] = sum(len(of) for group in groups.values() for of in group.offsets.values())
    for state in GroupState:
        found.simple[f"{prefix}groups{state.value.lower()}"] = states[state]
    kinds = Counter(group.type for group in groups.values())
    server = "kafka_server_group_coordinator_metrics_"
    for kind in (ClassicGroup.type, ModernGroup.type):
        found.add(f"{server}group_count", (kind,), kinds[kind])
    for modern_state in ModernState:
        found.add(f"{server}consumer_group_count", (modern_state.value.lower(),), states[modern_state])
    found.simple["kohort_members"] = sum(len(group.members) for group in groups.values())
    found.simple["kohort_coordinator_timers"] = 0 if coordinator is None else coordinator.timer_entries
    lives = Counter(() if coordinator is None else (shard.life for shard in coordinator.runtime.shards.values()))
    for life in SERVED_LIVES:
        found.add("kohort_coordinator_shards", (life.value,), lives[life])
    found.simple[f"{server}consumer_group_rebalance_count"] = counters.epochs
    found.simple[f"{server}group_completed_rebalance_count"] = counters.completed
    found.simple[f"{server}offset_commit_count"] = counters.offsets_committed
    found.simple[f"{server}offset_expiration_count"] = counters.offsets_expired
    found.simple[f"{server}offset_deletion_count"] = counters.offsets_deleted
    found.rebalances = (list(counters.durations), counters.duration_ms / 1000)
    for group_id, counts in counters.by_group.items():
        _counts(found, group_id, counts)
        group = groups.get(group_id)
        if group is not None:
            _present(found, core, group)
    shown = sum(group_id in counters.by_group for group_id in groups)
    for group in groups.values():  # those that only have offsets leave no events
        if shown >= MOST_GROUPS:
            break
        if group.group_id not in counters.by_group:
            _present(found, core, group)
            shown += 1


def _counts(found: Snapshot, group_id: str, counts: Any) -> None:
    for reason, count in counts.rebalances.items():
        found.add("kohort_group_rebalances_total", (group_id, reason), count)
    for reason, count in counts.evictions.items():
        found.add("kohort_group_evictions_total", (group_id, reason), count)
    for (error, reason), count in counts.refusals.items():
        found.add("kohort_group_refusals_total", (group_id, error, reason), count)
    found.add("kohort_group_rebalances_completed_total", (group_id,), counts.completed)
    found.add("kohort_group_standstill_seconds_total", (group_id,), counts.standstill_ms / 1000)
    found.add("kohort_group_joins_total", (group_id,), counts.joins)
    found.add("kohort_group_leaves_total", (group_id,), counts.leaves)
    found.add("kohort_group_poll_timeouts_total", (group_id,), counts.poll_timeouts)
    for assignor, count in counts.target_failures.items():
        found.add("kohort_group_target_failures_total", (group_id, assignor), count)


def _present(found: Snapshot, core: Core, group: Any) -> None:
    group_id = group.group_id
    found.add("kohort_group_members", (group_id,), len(group.members))
    found.add("kohort_group_generation", (group_id,), group.generation)
    found.add("kohort_group_state", (group_id, group.state.value), 1)
    if isinstance(group, ModernGroup):
        found.add("kohort_group_assignment_epoch", (group_id,), group.assignment_epoch)
        found.add("kohort_group_waited_for_partitions", (group_id,), _waited_for(group))
    for name, offsets in group.offsets.items():
        topic = core.topics.by_name.get(name)
        if topic is None:
            continue
        lags = [
            max(partition.log.end_offset - committed.committed_offset, 0)
            for index, committed in offsets.items()
            if (partition := topic.partition(index)) is not None
        ]
        found.add("kohort_group_lag", (group_id, name), sum(lags))


def _waited_for(group: ModernGroup) -> int:
    on_the_way = [group.members[member_id] for member_id in group.on_the_way]
    return sum(len(numbers) for member in on_the_way for numbers in group.waits_for(member).values())


# -- the text form: on any thread -------------------------------------------------------------------------------------


def families(found: Snapshot) -> Iterator[Metric]:
    for name, doc in SIMPLE.items():
        yield _family(name, doc, (), [((), found.simple.get(name, 0))])
    for name, (doc, labels) in LABELLED.items():
        yield _family(name, doc, labels, found.labelled.get(name, ()))
    yield _latency_family(found)
    counts, total = found.rebalances
    bounds = [bound / 1000 for bound in REBALANCE_BUCKETS_MS]
    yield HistogramMetricFamily(*REBALANCE, buckets=_cumulative(bounds, counts), sum_value=total)


def _family(name: str, doc: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, doc, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _latency_family(found: Snapshot) -> Metric:
    family = HistogramMetricFamily(*LATENCY, labels=("request",))
    bounds = [2**slot / 1000 for slot in range(FIRST_SLOT, LAST_SLOT + 1)]
    for name, (slots, seconds) in found.latencies.items():
        counts = [sum(slots[: FIRST_SLOT + 1]), *slots[FIRST_SLOT + 1 : LAST_SLOT + 1], sum(slots[LAST_SLOT + 1 :])]
        family.add_metric((name,), buckets=_cumulative(bounds, counts), sum_value=seconds * 1000)
    return family


def _cumulative(bounds: list[float], counts: list[int]) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip([*(f"{bound:g}" for bound in bounds), "+Inf"], counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


class Exposition:
    """The text of a scrape; one at a time."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._found = Snapshot()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def describe(self) -> list[Metric]:
        return []  # names are fixed

    def collect(self) -> Iterator[Metric]:
        return families(self._found)

    def text(self, found: Snapshot) -> bytes:
        self._found = found
        return generate_latest(self._registry)
