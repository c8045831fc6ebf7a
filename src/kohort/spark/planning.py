"""From options to the range of every partition: where a bounded read starts and ends, where a stream begins."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kohort.client.types import TopicPartition, partition_list
from kohort.spark.accounting import DataLossError
from kohort.spark.cluster import Cluster, log, resolve_topics
from kohort.spark.offsets import EARLIEST, LATEST, OffsetSpec, Piece, Ranges, plan_tasks
from kohort.spark.options import OptionError, ReadOptions

CORES = "KOHORT_SPARK_CORES"
"""Where a local session tells the processes of its queries how many cores they share; Spark itself does not."""


def tasks(ranges: Ranges, options: ReadOptions) -> list[tuple[Piece, ...]]:
    """What each task of a batch reads, as the options ask."""
    cores = os.environ.get(CORES, "")
    return plan_tasks(
        ranges,
        options.min_partitions,
        options.max_partitions,
        options.max_records_per_partition,
        int(cores) if cores.isdigit() else None,
    )


def bounded_ranges(cluster: Cluster, options: ReadOptions) -> Ranges:
    """[from, to) of every partition of a bounded read."""
    partitions = resolve_topics(cluster, options.subscription)
    _check_covers(options.starting, partitions, "starting")
    _check_covers(options.ending, partitions, "ending")
    check_named(options.starting, partitions, "starting")
    check_named(options.ending, partitions, "ending")
    committed_only = options.read_committed
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), committed_only=committed_only)
    limits = {tp: (starts[tp] or 0, ends[tp] or 0) for tp in partitions if tp in starts and tp in ends}
    first = resolve(cluster, options.starting, limits)
    stop = resolve(cluster, options.ending, limits)
    return {tp: _clamp(tp, first[tp], stop[tp], limits[tp], options) for tp in limits}


def resolve(
    cluster: Cluster, spec: OffsetSpec, limits: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """The offset that `spec` means for each partition; `limits` are the start and the end of their logs.

    A partition it does not name, such as one that was added later, begins with its first record.
    """
    if spec.kind == "timestamp":
        return _resolve_times(cluster, spec, limits)
    offsets: dict[TopicPartition, int] = {}
    for tp, (start, end) in limits.items():
        number = spec.of(tp)
        offsets[tp] = start if number in (EARLIEST, None) else end if number == LATEST else number
    return offsets


def _resolve_times(
    cluster: Cluster, spec: OffsetSpec, limits: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    times = {tp: ms for tp in limits if (ms := spec.of(tp)) is not None}
    found = cluster.list_offsets(times)
    too_new = [tp for tp in times if found.get(tp) is None]
    if too_new and spec.missing_timestamp == "error":
        raise OptionError(
            f"{partition_list(too_new)}: no record is as new as the timestamp asked for; "
            "startingOffsetsByTimestampStrategy=latest starts at the end there"
        )
    offsets: dict[TopicPartition, int] = {}
    for tp, (start, end) in limits.items():
        offset = found.get(tp)
        # A record may have arrived since the end was asked for.
        offsets[tp] = start if tp not in times else end if offset is None else min(offset, end)
    return offsets


def _check_covers(spec: OffsetSpec, partitions: Iterable[TopicPartition], side: str) -> None:
    """What is given one by one must name every partition, as in Spark's own source."""
    if spec.is_everywhere:
        return
    option = f"{side}Offsets" + ("ByTimestamp" if spec.kind == "timestamp" else "")
    missing = sorted(set(partitions) - set(spec.by_partition))
    if missing:
        hint = ", -1 is latest, -2 earliest" if spec.kind == "offset" else ""
        raise OptionError(f"{option} has nothing for {partition_list(missing)}: name every partition{hint}")


def check_named(spec: OffsetSpec, partitions: Iterable[TopicPartition], side: str) -> None:
    """What is given one by one must be of partitions that there are."""
    if foreign := sorted(set(spec.by_partition) - set(partitions)):
        option = f"{side}Offsets" + ("ByTimestamp" if spec.kind == "timestamp" else "")
        raise OptionError(f"{option} names {partition_list(foreign)}, which this read does not cover")


def _clamp(tp: TopicPartition, first: int, stop: int, limits: tuple[int, int], options: ReadOptions) -> tuple[int, int]:
    start, end = limits
    if start <= stop < first <= end:
        raise OptionError(f"{tp}: the read would end at offset {stop}, before its start at {first}")
    if min(first, stop) < start or max(first, stop) > end:
        reason = f"{tp}: [{first}, {stop}) was asked for, the log holds [{start}, {end})"
        if options.fail_on_data_loss:
            raise DataLossError(f"{reason}. Set failOnDataLoss=false to read what there is")
        log.warning("%s; reading what there is, as failOnDataLoss=false says", reason)
    first = min(max(first, start), end)
    return first, max(first, min(stop, end))
