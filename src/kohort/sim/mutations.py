"""Deliberate bugs, each switched on for a while: a checker is trusted because it catches them. For tests only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kohort.broker import shard_loading
from kohort.broker.purgatory import Purgatory
from kohort.client.fetcher import Fetcher
from kohort.client.types import OffsetAndMetadata
from kohort.coordinator import admin, expiry
from kohort.coordinator.classic import join, session
from kohort.coordinator.classic.group import ClassicGroup, as_classic
from kohort.coordinator.context import Context, CoordinatorConfig
from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.gathering import Gathering
from kohort.coordinator.records import OffsetCommit
from kohort.coordinator.replay import ShardGroups
from kohort.coordinator.runtime import Runtime
from kohort.coordinator.shard import Life
from kohort.protocol.errors import ErrorCode
from kohort.storage.memory_log import MemoryLog
from kohort.storage.producers import ProducerStates
from kohort.storage.segmented_log import SegmentedLog


@dataclass(frozen=True, slots=True)
class Mutation:
    """`make(original)` gives the broken version of `owner.name`."""

    title: str
    owner: Any
    name: str
    make: Callable[[Any], Any]

    @contextmanager
    def applied(self) -> Iterator[None]:
        owners = getattr(self.owner, "__mro__", (self.owner,))
        owner = next(one for one in owners if self.name in one.__dict__)
        original = owner.__dict__[self.name]
        setattr(owner, self.name, self.make(original))
        try:
            yield
        finally:
            setattr(owner, self.name, original)


def reply_before_append(original: Any) -> Any:
    def decided(self: Runtime[Any], shard: Any, decision: Any) -> None:
        original(self, shard, decision)
        if decision is not None:
            self.effects.replies.extend(shard.open.answers)
            shard.open.answers.clear()

    return decided


def _decide_on_what_is_stored(original: Any) -> Any:
    """As a coordinator would that applies records when the log has them: later decisions do not see earlier ones."""

    def decided(self: Runtime[Any], shard: Any, decision: Any) -> None:
        if decision is not None and decision.changes:
            changes, decision.changes = decision.changes, ()
            decision.then = _ApplyThen(changes, shard.next_offset, decision.then)
        original(self, shard, decision)

    return decided


@dataclass(slots=True)
class _ApplyThen:
    changes: Any
    offset: int
    then: Any

    def stored(self, context: Any, error: ErrorCode) -> Any:
        if not error:
            context.apply(self.changes, self.offset)
        return None if self.then is None else self.then.stored(context, error)


def _keep_what_was_not_stored(original: Any) -> Any:
    """A failed append is answered with its error, and what was decided stays as if it were stored."""

    def stored(self: Runtime[Any], write: Any, error: int, now_ms: int) -> bool:
        write.applied = False
        return bool(original(self, write, error, now_ms))

    return stored


def _commits_that_wait(shard: Any) -> set[tuple[str, str, int]]:
    writes = [*shard.in_flight, *([shard.open] if shard.open is not None else [])]
    changes = [change for write in writes for decision in write.decisions for change in decision.changes]
    return {
        (change.group_id, change.topic, change.partition)
        for change in changes
        if isinstance(change, OffsetCommit) and change.value is not None
    }


def _expire_behind_commits(original: Any) -> Any:
    """A commit on its way to the log does not make an offset any younger."""

    def expire(context: Any) -> Any:
        hidden = []
        for group_id, topic, partition in _commits_that_wait(context.timers.owner):
            group = context.groups.get(group_id)
            value = None if group is None else group.offsets.get(topic, {}).get(partition)
            if value is not None:
                hidden.append((value, value.commit_timestamp_ms))
                value.commit_timestamp_ms = 0
        decision = original(context)
        for value, at_ms in hidden:
            value.commit_timestamp_ms = at_ms
        return decision

    return expire


def _delete_behind_commits(original: Any) -> Any:
    """DeleteGroups removes what the log has, not what is on its way there."""

    def delete(context: Any, group_ids: Any) -> Any:
        answers, decision = original(context, group_ids)
        if decision is not None:
            waiting = _commits_that_wait(context.timers.owner)
            pairs = zip(decision.records, decision.changes, strict=True)
            kept = [(record, change) for record, change in pairs if _place(change) not in waiting]
            decision.records, decision.changes = [record for record, _ in kept], [change for _, change in kept]
        return answers, decision

    return delete


def _place(change: Any) -> tuple[str, str, int] | None:
    return (change.group_id, change.topic, change.partition) if isinstance(change, OffsetCommit) else None


def _rest_on_nothing(original: Any) -> Any:
    """An answer about several groups leaves at once, stored or not what it shows."""

    def close(self: Gathering, effects: Any) -> None:
        self._touched.clear()
        original(self, effects)

    return close


def _believe_late_answers(original: Any) -> Any:
    """What was in flight when the shard was loaded again takes effect when the log is done with it."""

    def stored(self: Runtime[Any], write: Any, error: int, now_ms: int) -> bool:
        shard = write.shard
        if write.incarnation != shard.incarnation and shard.life is Life.ACTIVE and not error:
            for decision in write.decisions:
                shard.state.apply(decision.changes, shard.next_offset)
        return bool(original(self, write, error, now_ms))

    return stored


def _wait_for_ever(original: Any) -> Any:
    def init(self: Runtime[Any], new_state: Any, failed: Any, append_timeout_ms: int) -> None:
        original(self, new_state, failed, 1 << 40)

    return init


def _expire_at_once(original: Any) -> Any:
    return property(lambda self: 0)


def _nobody_subscribes(original: Any) -> Any:
    return lambda self, topic: False


def _keep_the_dead(original: Any) -> Any:
    """A group that was deleted stays where it was, and answers as what it is."""

    def apply_group(self: ShardGroups, change: Any) -> None:
        group = self.groups.get(change.group_id)
        original(self, change)
        if group is not None:
            self.groups.setdefault(change.group_id, group)

    return apply_group


def _skip_damage(original: Any) -> Any:
    return lambda buf, pos, header: True


def _no_generation_check(original: Any) -> Any:
    def handle(self: Coordinator, request: Any) -> None:
        group = as_classic(self.group(request.message.group_id))
        if group is not None and request.message.generation_id_or_member_epoch >= 0:
            request.message.generation_id_or_member_epoch = group.generation
            if group.members and request.message.member_id not in group.members:
                request.message.member_id = next(iter(group.members))
                request.message.group_instance_id = None
        original(self, request)

    return handle


def _no_fence(original: Any) -> Any:
    """The old one is told to join again, instead of that another has taken its place."""

    def member_error(self: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        error = original(self, member_id, instance_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if error is ErrorCode.FENCED_INSTANCE_ID else error

    return member_error


def _no_heartbeat_timer(original: Any) -> Any:
    return lambda self, member, timeout_ms=None: None


def _stale_assignments(original: Any) -> Any:
    def store(context: Any, group: Any, message: Any) -> Any:
        before = {member_id: member.assignment for member_id, member in group.members.items()}
        for given in message.assignments:
            given.assignment = before.get(given.member_id) or given.assignment
        return original(context, group, message)

    return store


def _forget_generation(original: Any) -> Any:
    def restore(self: ClassicGroup) -> None:
        original(self)
        self.generation = 0

    return restore


def _forget_offsets(original: Any) -> Any:
    def restore(self: ClassicGroup) -> None:
        original(self)
        self.offsets.clear()

    return restore


def _accept_every_heartbeat(original: Any) -> Any:
    def heartbeat_error(context: Any, group: Any, request: Any) -> ErrorCode:
        original(context, group, request)
        return ErrorCode.NONE

    return heartbeat_error


def _commit_one_ahead(original: Any) -> Any:
    def consumed(self: Fetcher) -> Any:
        return {tp: OffsetAndMetadata(o.offset + 1, o.metadata, o.leader_epoch) for tp, o in original(self).items()}

    return consumed


def _skip_to_the_end(original: Any) -> Any:
    def committed(self: Fetcher, offsets: Any) -> None:
        ahead = {tp: o if o is None else OffsetAndMetadata(o.offset + 1, "", -1) for tp, o in offsets.items()}
        original(self, ahead)

    return committed


def _keep_revoked(original: Any) -> Any:
    return lambda self, partitions: None


def _forget_duplicates(original: Any) -> Any:
    def check(self: ProducerStates, *batch: Any) -> Any:
        verdict = original(self, *batch)
        return type(verdict)(ErrorCode.NONE, None, "") if verdict.duplicate is not None else verdict

    return check


def _lying_disk(original: Any) -> Any:
    def flush_async(self: MemoryLog, callback: Any = None) -> None:
        if callback is not None:
            callback(None)

    return flush_async


def _no_high_watermark(original: Any) -> Any:
    return property(lambda self: self.end_offset)


def _leak_fetches(original: Any) -> Any:
    def remove(self: Purgatory, waiter: Any) -> None:
        original(self, waiter)
        self._alive += self._sequence % 7 == 0

    return remove


def _leave_without_rebalance(original: Any) -> Any:
    def remove(context: Any, group: Any, left: Any) -> None:
        return None

    return remove


def _no_join_deadline(original: Any) -> Any:
    return lambda context, group, kind: None


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("reply before append", Runtime, "decided", reply_before_append),
    Mutation("decide on what is stored", Runtime, "decided", _decide_on_what_is_stored),
    Mutation("keep what was not stored", Runtime, "stored", _keep_what_was_not_stored),
    Mutation("load what is damaged", shard_loading, "check_crc", _skip_damage),
    Mutation("expire behind a commit that waits", expiry, "expire", _expire_behind_commits),
    Mutation("delete behind a commit that waits", admin, "delete", _delete_behind_commits),
    Mutation("answer before what it rests on is stored", Gathering, "close", _rest_on_nothing),
    Mutation("believe a late answer of the log after a reload", Runtime, "stored", _believe_late_answers),
    Mutation("wait for the log for ever", Runtime, "__init__", _wait_for_ever),
    Mutation("expire at once", CoordinatorConfig, "offsets_retention_ms", _expire_at_once),
    Mutation("expire what a member subscribes to", ClassicGroup, "is_subscribed", _nobody_subscribes),
    Mutation("keep a deleted group", ShardGroups, "_apply_own", _keep_the_dead),
    Mutation("no generation check on commit", Coordinator, "_commit", _no_generation_check),
    Mutation("forget a fence", ClassicGroup, "member_error", _no_fence),
    Mutation("skip the session timer", Context, "reset_heartbeat", _no_heartbeat_timer),
    Mutation("keep the last generation's assignments", session, "_store_assignment", _stale_assignments),
    Mutation("start from generation 0 after a restart", ClassicGroup, "restore", _forget_generation),
    Mutation("start without offsets after a restart", ClassicGroup, "restore", _forget_offsets),
    Mutation("accept every heartbeat", session, "_heartbeat_error", _accept_every_heartbeat),
    Mutation("a member leaves, nobody rebalances", session, "_rebalance_without", _leave_without_rebalance),
    Mutation("a join waits for ever", join, "on_join_timer", _no_join_deadline),
    Mutation("commit one too far", Fetcher, "consumed", _commit_one_ahead),
    Mutation("start one too late", Fetcher, "committed", _skip_to_the_end),
    Mutation("read on after a revocation", Fetcher, "unassign", _keep_revoked),
    Mutation("append duplicates", ProducerStates, "check", _forget_duplicates),
    Mutation("the disk lies about syncs", MemoryLog, "flush_async", _lying_disk),
    Mutation("show what is not on disk", SegmentedLog, "high_watermark", _no_high_watermark),
    Mutation("forget that fetches are done", Purgatory, "_remove", _leak_fetches),
)
