"""A streaming query's planner: which offsets the next batch holds, and when what has been read is committed.

Everything below the `start` that Spark passes to `latest_offset` is durable, and is committed to the group right there.
A partition's position after an assignment comes from the group's commit, from the checkpoint where that commit is this
query's own and older, or from startingOffsets where there is neither.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from typing import Any

from kohort.client.errors import RebalanceInProgressError
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import KafkaError
from kohort.spark import planning
from kohort.spark.accounting import DataLossError
from kohort.spark.cluster import is_transient
from kohort.spark.fetch import GONE_PATIENCE_MS, cluster_for
from kohort.spark.holdings import Holdings
from kohort.spark.membership import Membership
from kohort.spark.offsets import EARLIEST, LATEST, Piece, Ranges, StreamOffset, nested, share
from kohort.spark.options import ReadOptions

log = logging.getLogger("kohort.spark")

FIRST_ASSIGNMENT_SECONDS = 30
COMMIT_SECONDS = 5
COMMIT_RETRY_SECONDS = 0.05


class QueryDriver:
    """One per query run, in the query's driver process. Called by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster = cluster_for(options.settings)
        self.holdings = Holdings()
        self._membership = Membership(options, self.holdings)
        self._query = uuid.uuid4().hex[:16]
        self._targets: dict[TopicPartition, int] | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._known_ends: dict[TopicPartition, int] = {}
        self._missing: dict[TopicPartition, tuple[float, int]] = {}
        self._waited = False

    def start(self) -> None:
        self._membership.start()

    def stop(self, reason: str) -> None:
        self._membership.stop(reason)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def initial_offset(self) -> dict[str, Any]:
        """No partition yet: each is taken up where the group stands when it is first assigned."""
        return StreamOffset(self._query, {}).to_json()

    def stop_at_present_end(self) -> None:
        """Trigger.AvailableNow: read what is there now. Any member may own a partition later, so all are noted."""
        partitions = self._cluster.partitions_of(self._options.subscription)
        self._targets = self._log_ends(partitions)

    def latest_offset(self, start_json: dict[str, Any], limit: int | None) -> dict[str, Any]:
        start = StreamOffset.from_json(start_json)
        self._query = start.query
        self._membership.check()
        self.holdings.finish(start.ranges)
        self._wait_for_first_assignment()
        try:
            planned = self._next_batch(start, limit)
        except KafkaError as error:
            if self._targets is not None or not is_transient(error):
                raise
            log.warning("no batch can be planned now, trying again: %s", error)
            return start_json
        if not any(stop > first for first, stop in planned.values()):
            return start_json
        return StreamOffset(self._query, planned).to_json()

    def _next_batch(self, start: StreamOffset, limit: int | None) -> Ranges:
        self._resolve_new(start)
        if not self._commit() and self._targets is None:
            return {}
        planned = self.holdings.plan(self._plan(limit))
        self._reached = {tp: stop for tp, (_, stop) in planned.items()}
        return planned

    def tasks(self, end_json: Mapping[str, Any]) -> list[tuple[Piece, ...]]:
        """The tasks of a batch, from its end alone: the same for a batch of an earlier run."""
        end = StreamOffset.from_json(end_json)
        self.holdings.replay(end.ranges)
        return planning.tasks(end.ranges, self._options)

    def report(self) -> dict[str, Any] | None:
        """For the query's progress: the end of every owned log as last seen, and the lag behind it."""
        positions = self.holdings.positions()
        ends = {tp: end for tp, end in self._ends.items() if tp in positions}
        if not ends:
            return None
        lag = {tp: max(end - max(self._reached.get(tp, 0), positions[tp]), 0) for tp, end in ends.items()}
        return {"offsets": nested(ends), "lag": nested(lag), "totalLag": sum(lag.values())}

    # -- planning ------------------------------------------------------------------------------------------------------

    def _plan(self, limit: int | None) -> Ranges:
        positions = self.holdings.positions()
        self._ends = self._log_ends(positions)
        self._known_ends |= self._ends
        self._note_missing(positions)
        available: dict[TopicPartition, int] = {}
        for tp, position in positions.items():
            if tp not in self._ends:
                continue
            if position > self._ends[tp]:
                position = self._truncated(tp, position)
                positions[tp] = position
            available[tp] = max(self._stop(tp, position) - position, 0)
        taken = available if limit is None else share(available, limit)
        return {tp: (positions[tp], positions[tp] + taken[tp]) for tp in available}

    def _stop(self, tp: TopicPartition, position: int) -> int:
        end = self._ends[tp]
        return end if self._targets is None else min(end, self._targets.get(tp, position))

    def _log_ends(self, partitions: Any) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        committed_only = self._options.read_committed
        ends = self._cluster.list_offsets(dict.fromkeys(partitions, LATEST), committed_only=committed_only)
        return {tp: end or 0 for tp, end in ends.items()}

    def _note_missing(self, positions: Mapping[TopicPartition, int]) -> None:
        """Partitions that do not exist are not planned. A new one may be unknown to some brokers for a while."""
        now = time.monotonic()
        for tp in positions.keys() - self._ends.keys():
            self._missing.setdefault(tp, (now, positions[tp]))
        for tp, (since, position) in list(self._missing.items()):
            if tp in self._ends:
                del self._missing[tp]
            elif tp not in positions or now - since >= GONE_PATIENCE_MS / 1000:
                del self._missing[tp]
                self._deleted(tp, position)

    def _deleted(self, tp: TopicPartition, position: int) -> None:
        self.holdings.drop([tp])
        unread = self._known_ends.pop(tp, position) - position
        if unread > 0:
            self._lost(f"{tp} was deleted with {unread} records not read")
        else:
            log.warning("%s was deleted; every record known of had been read", tp)

    def _truncated(self, tp: TopicPartition, position: int) -> int:
        start = self._cluster.list_offsets({tp: EARLIEST}).get(tp) or 0
        end = self._ends[tp]
        self._lost(f"{tp} ends at {end}, before the position {position}: it was truncated or created anew")
        self.holdings.move(tp, start)
        return start

    def _lost(self, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{reason}. Set failOnDataLoss=false to go on with what there is")
        log.warning("%s; going on, as failOnDataLoss=false says", reason)

    # -- positions after an assignment ---------------------------------------------------------------------------------

    def _wait_for_first_assignment(self) -> None:
        """Once, and longer where the query would end without one (AvailableNow)."""
        if self._waited:
            return
        config = self._options.config()
        if self._targets is None:
            self._waited = self._membership.wait_for_assignment(FIRST_ASSIGNMENT_SECONDS)
            return
        if not self._membership.wait_for_assignment(config["max.poll.interval.ms"] / 1000):
            raise TimeoutError(
                f"group {self._options.group_id} assigned nothing within max.poll.interval.ms: {self._membership.state}"
            )
        # A cooperative group takes a second round: the others give partitions up in the first.
        self._membership.wait_for_partitions(3 * config["heartbeat.interval.ms"] / 1000)
        self._waited = True

    def _resolve_new(self, start: StreamOffset) -> None:
        new = self.holdings.unresolved()
        if not new:
            return
        starts = self._cluster.list_offsets(dict.fromkeys(new, EARLIEST))
        new = frozenset(tp for tp in new if tp in starts)
        committed = self._membership.committed(new, COMMIT_SECONDS)
        if committed is None:
            return
        positions = {tp: self._position(tp, committed.get(tp), start.next_offset(tp)) for tp in new}
        fresh = [tp for tp, position in positions.items() if position is None]
        ends = self._log_ends(fresh)
        begin = planning.resolve(
            self._cluster, self._options.starting, {tp: (starts[tp] or 0, ends[tp]) for tp in fresh if tp in ends}
        )
        known = {tp: position for tp, position in positions.items() if position is not None} | begin
        for tp, position in known.items():
            if position < (starts[tp] or 0):
                self._lost(f"{tp}: offsets [{position}, {starts[tp]}) were deleted before they were read (retention)")
                known[tp] = starts[tp] or 0
        self.holdings.resolve(known, {tp: at.offset if at else None for tp, at in committed.items()})

    def _position(self, tp: TopicPartition, group: OffsetAndMetadata | None, checkpoint: int | None) -> int | None:
        """Where to read on; None where neither the group nor the checkpoint knows."""
        if group is None or checkpoint is None or group.offset == checkpoint:
            return checkpoint if group is None else group.offset
        own = group.metadata == self.tag
        if own and group.offset < checkpoint:
            log.info(
                "%s: this query's last commit %d had not followed its checkpoint, going on at %d",
                tp, group.offset, checkpoint,
            )  # fmt: skip
            return checkpoint
        who = "a later run of this query" if own else "another member or an operator"
        log.warning(
            "%s: the checkpoint says %d, but %s has moved the group to %d since, which wins",
            tp, checkpoint, who, group.offset,
        )  # fmt: skip
        return group.offset

    # -- commits -------------------------------------------------------------------------------------------------------

    @property
    def tag(self) -> str:
        """The metadata of this query's commits, by which it knows its own."""
        return commit_tag(self._query)

    def _commit(self) -> bool:
        """Whether the next batch may begin: not while a rebalance keeps the last one from being committed.

        So a crash costs at most one batch to be read again. A cooperative rebalance is over after a heartbeat or two.
        """
        self._membership.metadata_of = lambda partition: self.tag
        deadline = time.monotonic() + COMMIT_SECONDS
        while offsets := self.holdings.uncommitted():
            error = self._membership.commit(offsets, COMMIT_SECONDS)
            if error is None:
                continue
            self._membership.check()
            rebalancing = isinstance(error, RebalanceInProgressError)
            if not rebalancing or time.monotonic() > deadline:
                log.warning("commit of %s failed and will be tried again: %s", partition_list(offsets), error)
                return not rebalancing
            time.sleep(COMMIT_RETRY_SECONDS)
        return True


def commit_tag(query: str) -> str:
    return f"kohort-spark:{query}"
