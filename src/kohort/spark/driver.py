"""A streaming query's planner: which offsets the next batch holds, and when what has been read is committed.

Everything below the `start` that Spark passes to `latest_offset` is durable, and is committed to the group right there.
Where a partition is taken up after an assignment is decided in beginnings.py, from what is asked for here.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from kohort.client.errors import RebalanceInProgressError
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import KafkaError
from kohort.spark import planning
from kohort.spark.accounting import DataLossError
from kohort.spark.beginnings import Beginning, Evidence, group_began, notes_of, take_up
from kohort.spark.checkpoint import last_finished
from kohort.spark.cluster import Cluster, is_transient, resolve_topics
from kohort.spark.fetch import GONE_PATIENCE_MS, cluster_for
from kohort.spark.holdings import Holdings
from kohort.spark.limits import Holdback, take
from kohort.spark.membership import Membership
from kohort.spark.notices import Board
from kohort.spark.offsets import EARLIEST, LATEST, Piece, Ranges, StreamOffset, TopicNote, nested
from kohort.spark.options import ReadOptions
from kohort.spark.record_sizes import RecordSizes
from kohort.spark.tags import CommitTag
from kohort.spark.waiting import Waiting

log = logging.getLogger("kohort.spark")

COMMIT_SECONDS = 5.0
COMMIT_RETRY_SECONDS = 0.05
TOPICS_AGE_SECONDS = 1.0
"""How old what is known of topics may be when a batch is planned."""
PAUSE_SECONDS = 0.05
FIRST_ASSIGNMENT_SECONDS = 5.0
"""Coordinators hold back the first rebalance of a group (group.initial.rebalance.delay.ms, 3 s)."""
PATIENCE_MS = 1_000
"""Of one attempt to plan: it is repeated, and between two of them one hears what is wrong."""


class QueryDriver:
    """One per query run, in the query's driver process. Called by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._config = options.config()
        self._cluster = Cluster(self._config, patience_ms=PATIENCE_MS)
        self.holdings = Holdings()
        self._membership = Membership(options, self.holdings)
        self._membership.metadata_of = self._metadata_of
        self._board = self._membership.board = Board(options.checkpoint_location)
        self._query = uuid.uuid4().hex[:16]
        self._topics: dict[str, TopicNote] | None = None
        self._in_flight: StreamOffset | None = None
        self._holdback = Holdback(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._sizes = RecordSizes(self._cluster)
        self._looked_at = 0.0
        self._targets: dict[TopicPartition, int] | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._known_ends: dict[TopicPartition, int] = {}
        self._missing: dict[TopicPartition, tuple[float, int]] = {}
        self._waiting = Waiting(f"group {options.group_id}")
        self._waited = False
        self._in_contact = False
        """Whether a broker has answered since this run began."""
        self._initial: StreamOffset | None = None
        self._once = False

    def start(self) -> None:
        self._membership.start()

    def stop(self, reason: str) -> None:
        """Commits what is durable, as far as that is known, and leaves the group."""
        self._finish_what_the_checkpoint_has()
        self._membership.stop(reason)

    def _finish_what_the_checkpoint_has(self) -> None:
        """Spark's last word on a batch comes with the plan of the next, for which there may be no time any more."""
        location = self._options.checkpoint_location
        if location is None or self._in_flight is None:
            return
        try:
            finished = last_finished(location, self._query)
        except Exception as error:
            log.warning("checkpointLocation=%s cannot be read, the last batch may be read again: %s", location, error)
            return
        if finished == self._in_flight:
            self.holdings.finish(finished.ranges)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def initial_offset(self) -> dict[str, Any]:
        """No partition yet: each is taken up where the group stands when it is first assigned.

        What is there now is noted: what comes later is new, and is read from its first record. Where no broker answers
        it is noted when one does: Spark shows no progress of a query before it has its first offset.
        """
        if self._initial is None:
            try:
                self._initial = StreamOffset(self._query, {}, self._begin())
            except KafkaError as error:
                self._check_patience(error)
                self._waiting.says(str(error))
                self._initial = StreamOffset(self._query, {})
        return self._initial.to_json()

    def _begin(self) -> dict[str, TopicNote]:
        """The topics as they are when the query, or the first run of it that keeps ids, begins."""
        if self._topics is None:
            partitions = self._cluster.partitions_of(self._options.subscription)
            planning.check_named(self._options.starting, partitions, "starting")
            ids = {tp.topic: self._cluster.topic_id(tp.topic) for tp in partitions}
            self._topics = notes_of(partitions, ids)
        return self._topics

    def stop_at_present_end(self) -> None:
        """Trigger.AvailableNow: read what is there now. Any member may own a partition later, so all are noted."""
        patient = cluster_for(self._options.settings)
        partitions = resolve_topics(patient, self._options.subscription)
        if not partitions:
            log.warning("%s matches no topic: there is nothing to read", self._options.subscription)
        self._targets = self._log_ends(partitions, patient)

    def latest_offset(self, start_json: dict[str, Any], limit: int | None, *, once: bool = False) -> dict[str, Any]:
        """`once`: there is no other batch, so none without rows may tell what is waited for."""
        self._once = once
        if once and self._targets is None:
            self.stop_at_present_end()
        start = StreamOffset.from_json(start_json)
        self._query = start.query
        self._membership.check()
        self._waiting.begins()
        self.holdings.finish(start.ranges)
        planned = self._next(start, limit)
        if planned is None:
            self._in_flight = start.still_there(self._topics)
        else:
            self._in_flight = StreamOffset(self._query, planned, dict(self._topics or {})) if planned else None
        return start_json if self._in_flight is None else self._in_flight.to_json()

    def _resume(self, start: StreamOffset) -> StreamOffset:
        if start.topics is None:
            # Of a version that kept no ids, or of a start without brokers: offsets are of whatever topics there are.
            began = {topic: TopicNote("", note.began) for topic, note in self._begin().items()}
            return replace(start, topics=began)
        if self._topics is None:
            self._topics = dict(start.topics)
        return start

    def _next(self, start: StreamOffset, limit: int | None) -> Ranges | None:
        """What to read next, {} where there is nothing; None where that cannot be said now, which has been told.

        To Spark, an offset that stays as it is means that nothing is left to read.
        """
        while True:
            self._membership.check()
            try:
                resumed, before = self._resume(start), self.holdings.assignments
                planned = self._next_batch(resumed, limit) if self._assigned() else {}
                if any(stop > first for first, stop in planned.values()):
                    self._waiting.is_over()
                    return planned
                unsettled = self._unsettled() or self._awaited_partitions()
                if unsettled is None and self.holdings.assignments == before:
                    self._waiting.says(self._what_is_missing())
                    return {}
            except KafkaError as error:
                self._check_patience(error)
                unsettled = f"no batch can be planned now, trying again: {error}"
            self._check_time(unsettled)
            usual = FIRST_ASSIGNMENT_SECONDS if self._in_contact and not self.holdings.assignments else 0
            if self._waiting.says(unsettled or "the group has assigned partitions anew", usual) and not self._once:
                return None
            time.sleep(PAUSE_SECONDS)

    def _assigned(self) -> bool:
        """Whether the group has assigned anything, after a look at the topics."""
        self._look()
        self._in_contact = True
        return self._membership.wait_for_assignment(1.0)

    def _check_patience(self, error: KafkaError) -> None:
        """Raises what no waiting mends, and what a query meets from its very start on."""
        seconds = self._config["default.api.timeout.ms"] / 1000
        if not is_transient(error) or (not self._in_contact and self._waiting.seconds >= seconds):
            raise error

    def _check_time(self, unsettled: str | None) -> None:
        """AvailableNow: a run ends, in success or not."""
        seconds = self._config["max.poll.interval.ms"] / 1000
        if self._targets is not None and self._waiting.seconds > seconds:
            raise TimeoutError(
                f"not everything could be read, and max.poll.interval.ms ({seconds:.0f} s) has passed: {unsettled}"
            )

    def _next_batch(self, start: StreamOffset, limit: int | None) -> Ranges:
        self._resolve_new(start)
        commit = self._begin_commit()
        ranges = self._plan(limit)
        if not self._commit(commit) and self._targets is None:
            return {}
        planned = self.holdings.plan(ranges)
        if any(stop > first for first, stop in planned.values()):
            self._holdback.planned(int(time.monotonic() * 1000))
        self._reached = {tp: stop for tp, (_, stop) in planned.items()}
        return planned

    def tasks(self, end_json: Mapping[str, Any]) -> list[tuple[Piece, ...]]:
        """The tasks of a batch, from its end alone: the same for a batch of an earlier run."""
        end = self._in_flight = StreamOffset.from_json(end_json)
        self._board.of_query(end.query)
        self.holdings.replay(end.ranges)
        return planning.tasks(end.ranges, self._options)

    def report(self) -> dict[str, Any] | None:
        """For the query's progress: the end of every owned log as last seen, the lag behind it, what is waited for."""
        positions = self.holdings.positions()
        ends = {tp: end for tp, end in self._ends.items() if tp in positions}
        if not ends and self._waiting.reason is None:
            return None
        lag = {tp: max(end - max(self._reached.get(tp, 0), positions[tp]), 0) for tp, end in ends.items()}
        report: dict[str, Any] = {"offsets": nested(ends), "lag": nested(lag), "totalLag": sum(lag.values())}
        report["assignments"] = self.holdings.assignments
        return report if self._waiting.reason is None else {**report, "waiting": self._waiting.reason}

    # -- what is waited for --------------------------------------------------------------------------------------------

    def _unsettled(self) -> str | None:
        """Why it cannot be said yet what this query has to read."""
        if not self.holdings.assignments:
            return f"the group has assigned nothing yet ({self._membership.state})"
        if not self._membership.settled:
            return f"the group rebalances ({self._membership.state})"
        if unresolved := self.holdings.unresolved():
            return f"it is not known where to read {partition_list(unresolved)}"
        if self._missing:
            return f"{partition_list(self._missing)} cannot be found"
        if uncommitted := self.holdings.uncommitted():
            return f"{partition_list(uncommitted)} cannot be committed"
        return None

    def _awaited_partitions(self) -> str | None:
        """The others give partitions up first: a second round, or their next heartbeats."""
        if self._targets is not None and not self._waited:
            self._waited = True
            self._membership.wait_for_partitions(3 * self._membership.heartbeat_seconds)
            return "partitions that others have to give up first"
        return None

    def _what_is_missing(self) -> str | None:
        subscription = self._options.subscription
        if missing := [topic for topic in subscription.topics if not self._cluster.partition_count(topic)]:
            return f"topic {', '.join(missing)} does not exist, waiting for it"
        if subscription.pattern is not None and not self.holdings.owned():
            return f"no partition of a topic that {subscription} matches is assigned to this query, waiting for one"
        return None

    # -- topics --------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """At the topics: one that was deleted and created again has another id."""
        now = time.monotonic()
        if now - self._looked_at < TOPICS_AGE_SECONDS and not self.holdings.unresolved():
            return
        topics = {tp.topic for tp in self.holdings.owned()} | set(self._options.subscription.topics)
        if topics:
            self._cluster.refresh(topics)
        self._looked_at = now
        for topic in sorted({tp.topic for tp in self.holdings.known()}):
            before, present = self._begin().get(topic, TopicNote()).topic_id, self._cluster.topic_id(topic)
            if before and present and before != present:
                self._created_again(topic, before)

    def _created_again(self, topic: str, before: str) -> None:
        partitions = {tp for tp in self.holdings.known() if tp.topic == topic}
        starts = self._cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = {} if self._targets is None else self._log_ends(partitions)
        self._lost(_created_again(topic, before, self._cluster.topic_id(topic)))
        self._take_note(topic, 0)
        for tp in partitions:
            self._known_ends.pop(tp, None)
            self.holdings.move(tp, starts.get(tp) or 0)
            if tp in ends and self._targets is not None:
                self._targets[tp] = ends[tp]

    def _take_note(self, topic: str, began: int) -> None:
        assert self._topics is not None
        self._topics[topic] = TopicNote(self._cluster.topic_id(topic), began)

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
        if self._targets is None and self._holdback.holds(sum(available.values()), int(time.monotonic() * 1000)):
            return {}
        sizes: dict[TopicPartition, float] = {}
        if (most_bytes := self._options.max_bytes_per_trigger) is not None:
            sizes = self._sizes.at({tp: positions[tp] for tp, count in available.items() if count})
        taken = take(available, limit, most_bytes, sizes)
        return {tp: (positions[tp], positions[tp] + taken[tp]) for tp in available}

    def _stop(self, tp: TopicPartition, position: int) -> int:
        end = self._ends[tp]
        if self._targets is None:
            return end
        target = self._targets.get(tp, position)
        if end < target:
            self._lost(f"{tp} ends at {end}, before the end {target} that it had when this query began")
            self._targets[tp] = end
        return min(end, target)

    def _log_ends(
        self, partitions: Iterable[TopicPartition], cluster: Cluster | None = None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, LATEST)
        if not wanted:
            return {}
        ends = (cluster or self._cluster).list_offsets(wanted, committed_only=self._options.read_committed)
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
        self._looked_at = 0.0
        self._look()
        moved_to = self.holdings.positions().get(tp, position)
        if moved_to != position:
            return moved_to  # the topic was created again, which has been told
        start = self._cluster.list_offsets({tp: EARLIEST}).get(tp) or 0
        self._lost(f"{tp} ends at {self._ends[tp]}, before the position {position}: its end was cut off")
        self.holdings.move(tp, start)
        return start

    def _lost(self, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{reason}. Set failOnDataLoss=false to go on with what there is")
        log.warning("%s; going on, as failOnDataLoss=false says", reason)

    # -- positions after an assignment ---------------------------------------------------------------------------------

    def _resolve_new(self, start: StreamOffset) -> None:
        new = self.holdings.unresolved()
        if not new:
            return
        starts = self._cluster.list_offsets(dict.fromkeys(new, EARLIEST))
        new = frozenset(tp for tp in new if tp in starts)
        commits = self._commits_of(new, start)
        if commits is None:
            return
        known: dict[TopicPartition, int] = {}
        as_asked: list[TopicPartition] = []
        for tp in sorted(new):
            evidence = Evidence(self._query, self._cluster.topic_id(tp.topic), start, commits)
            at = take_up(tp, evidence)
            if at is Beginning.AS_ASKED:
                as_asked.append(tp)
            elif isinstance(at, Beginning):
                known[tp] = self._first_record(tp, at, start, starts[tp] or 0)
            else:
                known[tp] = self._not_before(tp, at, starts[tp] or 0)
            began = group_began(tp.topic, evidence)
            self._take_note(tp.topic, self._began(tp.topic) if began is None else began)
        ends = self._log_ends(as_asked)
        limits = {tp: (starts[tp] or 0, ends[tp]) for tp in as_asked if tp in ends}
        known |= {
            tp: self._not_before(tp, at, limits[tp][0])
            for tp, at in planning.resolve(self._cluster, self._options.starting, limits).items()
        }
        self.holdings.resolve(known, {tp: at.offset if at else None for tp, at in commits.items()})

    def _commits_of(
        self, new: frozenset[TopicPartition], start: StreamOffset
    ) -> dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Of new partitions and, where one has none, of all of its topic; None while the group cannot say."""
        commits = self._membership.committed(new, COMMIT_SECONDS)
        if commits is None:
            return None
        topics = {tp.topic for tp in new if commits.get(tp) is None and start.next_offset(tp) is None}
        others = [
            tp
            for topic in sorted(topics)
            for number in range(self._cluster.partition_count(topic))
            if (tp := TopicPartition(topic, number)) not in commits
        ]
        if others:
            more = self._membership.committed(others, COMMIT_SECONDS)
            return None if more is None else {**more, **commits}
        return commits

    def _began(self, topic: str) -> int:
        """How many partitions a topic had when this query began; none where another topic has its name by now."""
        note, present = self._begin().get(topic, TopicNote()), self._cluster.topic_id(topic)
        return 0 if note.topic_id and present and note.topic_id != present else note.began

    def _first_record(self, tp: TopicPartition, why: Beginning, start: StreamOffset, first: int) -> int:
        if why is Beginning.CREATED_AGAIN:
            before = start.note(tp.topic).topic_id
            self._lost(_created_again(tp.topic, before, self._cluster.topic_id(tp.topic)))
            if self._targets is not None:
                self._targets |= self._log_ends([tp])
        else:
            log.info("%s is new to the group, reading it from its first record, %d", tp, first)
        return first

    def _not_before(self, tp: TopicPartition, position: int, first: int) -> int:
        if position < first:
            self._lost(f"{tp}: offsets [{position}, {first}) were deleted before they were read (retention)")
        return max(position, first)

    # -- commits -------------------------------------------------------------------------------------------------------

    def _metadata_of(self, tp: TopicPartition) -> str:
        """Of this query's commits, by which it knows its own, and others which topic they are of."""
        note = (self._topics or {}).get(tp.topic, TopicNote())
        return CommitTag(self._query, note.topic_id, note.began).text()

    def _begin_commit(self) -> Future[None] | None:
        """Under way while the ends of the logs are asked for: a round trip less in every batch."""
        offsets = self.holdings.uncommitted()
        return self._membership.begin_commit(offsets, COMMIT_SECONDS) if offsets else None

    def _commit(self, begun: Future[None] | None) -> bool:
        """Whether the next batch may begin: not while a rebalance keeps the last one from being committed.

        So a crash costs at most one batch to be read again. A cooperative rebalance is over after a heartbeat or two.
        """
        deadline = time.monotonic() + COMMIT_SECONDS
        while begun is not None:
            error = self._membership.outcome(begun, COMMIT_SECONDS)
            if error is not None:
                self._membership.check()
                rebalancing = isinstance(error, RebalanceInProgressError)
                if not rebalancing or time.monotonic() > deadline:
                    why = str(error) or f"the coordinator did not answer within {COMMIT_SECONDS:.0f} s"
                    which = partition_list(self.holdings.uncommitted())
                    log.warning("commit of %s failed and will be tried again: %s", which, why)
                    return not rebalancing
                time.sleep(COMMIT_RETRY_SECONDS)
            begun = self._begin_commit()
        return True


def _created_again(topic: str, before: str, now: str) -> str:
    was = f"it was {before}, is {now}" if before else f"its id is {now}"
    return (
        f"topic {topic} was deleted and created again ({was}): offsets of the old one mean nothing in the new one, "
        "which is to be read from its first record"
    )
