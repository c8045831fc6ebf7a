"""The group coordinator: dispatch only. Requests, time and stored appends go in, Effects come out.

    effects = coordinator.handle(request, now_ms)          # appends, and replies that need none
    ...append each, then coordinator.replay_appends(partition, appends, base_offset, now_ms)
    effects = coordinator.stored(append.token, NONE, now_ms)   # the replies that waited for it

One owner, no locks, no clock, no I/O. A partition of `__consumer_offsets` is served from `load_finished` to `unload`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from kohort.coordinator import admin, events, expiry, offsets
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.classic import join, session
from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.states import DEAD, EMPTY
from kohort.coordinator.context import Context, CoordinatorConfig, Topics
from kohort.coordinator.effects import (
    Append,
    Effects,
    GroupCreated,
    GroupEmptied,
    GroupRequest,
    GroupsDeleted,
    GroupsTombstoned,
    ReplyStored,
    StaticMemberStored,
    SyncStored,
    append_error,
)
from kohort.coordinator.events import GroupEvent
from kohort.coordinator.records import Change, OffsetCommit, partition_for
from kohort.coordinator.replay import Shard
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

NONE = ErrorCode.NONE


class Coordinator:
    def __init__(self, config: CoordinatorConfig, topics: Topics, new_uuid: Callable[[], str]) -> None:
        self.config = config
        self._context = Context(config, topics, new_uuid)
        self._groups = self._context.groups
        self._shards: dict[int, Shard] = {}
        self._expiry = Deadline(TimerKind.EXPIRE_OFFSETS, "")
        self._handlers: dict[type, Callable[[GroupRequest], None]] = {
            HeartbeatRequest: self._heartbeat,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            LeaveGroupRequest: self._leave,
            OffsetDeleteRequest: self._delete_offsets,
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            DeleteGroupsRequest: self._delete_groups,
        }

    # ---- in

    def handle(self, request: GroupRequest, now_ms: int, effects: Effects | None = None) -> Effects:
        """Effects are added to `effects` where the caller collects a whole turn in one."""
        context = self._context
        context.now_ms = now_ms
        context.effects = effects if effects is not None else Effects()
        self._handlers[type(request.message)](request)
        return context.effects

    def stored(self, token: Any, error: int, now_ms: int, effects: Effects | None = None) -> Effects:
        """An append is in the log and replayed, or has failed with the error of the log."""
        then = token
        if type(then) is ReplyStored and not error and effects is not None:
            effects.replies.append((then.request.token, then.response))
            return effects
        context = self._begin(now_ms, effects)
        code = append_error(error) if error else NONE
        match then:
            case ReplyStored():
                context.reply(then.request, offsets.failed(then.response, code) if code else then.response)
            case SyncStored():
                session.sync_stored(context, then, code)
            case StaticMemberStored():
                join.static_member_stored(context, then, code)
            case GroupCreated():
                join.group_created(context, then, code)
            case GroupsDeleted():
                self._groups_deleted(then, code)
            case GroupsTombstoned():
                if code:
                    self._restore_deleting(then.group_ids)
                else:
                    context.effects.events += then.events
            case GroupEmptied():
                session.group_emptied(context, then, code)
        return context.effects

    def replay(
        self, partition: int, key: bytes, value: bytes | None, now_ms: int, offset: int = -1, producer_id: int = -1
    ) -> None:
        """A record of the log: at load each of them, live those that were appended."""
        shard = self._shards[partition]
        if shard.is_loading:
            shard.read(key, value, now_ms, offset, producer_id)
        else:
            shard.apply_bytes(key, value, now_ms, offset, producer_id)

    def replay_appends(self, partition: int, appends: Iterable[Append], base_offset: int, now_ms: int) -> None:
        """`replay` for each record of a batch, without parsing again what was encoded a moment ago."""
        shard = self._shards[partition]
        apply_offset = shard.apply_offset
        for append in appends:
            for change in append.changes:
                if type(change) is OffsetCommit:
                    apply_offset(change, now_ms, base_offset)
                else:
                    shard.apply(change, now_ms, base_offset)
                base_offset += 1

    def replay_marker(self, partition: int, producer_id: int, committed: bool, now_ms: int) -> None:
        """The end of a transaction in the log."""
        shard = self._shards[partition]
        shard.settle(now_ms)
        shard.end_transaction(producer_id, committed, now_ms)

    def on_time(self, now_ms: int, effects: Effects | None = None) -> Effects:
        context = self._begin(now_ms, effects)
        for deadline in context.timers.due(now_ms):
            if deadline.kind is TimerKind.EXPIRE_OFFSETS:
                self._expire_offsets()
                continue
            group = context.groups.get(deadline.group_id)
            if group is None:
                continue
            if deadline.kind is TimerKind.DELAYED_HEARTBEAT:
                session.on_heartbeat_expired(context, group, deadline.member_id)
            elif deadline is group.sync_timer:
                session.on_sync_timer(context, group)
            elif deadline is group.join_timer:
                join.on_join_timer(context, group, deadline.kind)
        return context.effects

    def next_deadline(self) -> int | None:
        return self._context.timers.next()

    @property
    def timer_entries(self) -> int:
        """The size of the timer queue, stale entries included: for whoever watches memory."""
        return len(self._context.timers)

    # ---- partitions

    def load_started(self, partition: int, epoch: int = 0) -> None:
        assert partition not in self._shards, f"partition {partition} is already here"
        shard = self._shards[partition] = Shard(partition, epoch, {})
        shard.start_loading()

    def settle(self, partition: int, now_ms: int, limit: int) -> bool:
        """A slice of the work that `load_finished` would do at once; True when nothing is left of it."""
        return self._shards[partition].finish(now_ms, limit)

    def load_finished(self, partition: int, now_ms: int, effects: Effects | None = None) -> Effects:
        """The partition answers from here on. Members have a whole session timeout to be heard of."""
        context = self._begin(now_ms, effects)
        shard = self._shards[partition]
        shard.finish(now_ms)
        shard.is_loading = False
        loaded, shard.groups = shard.groups, context.groups
        context.groups.update(loaded)
        for group in loaded.values():
            if group.stored is None:
                continue  # offsets alone
            for member in group.members.values():
                context.reset_heartbeat(member)
            count = sum(map(len, group.offsets.values()))
            context.event(
                group,
                events.GroupLoaded,
                state=group.state.value,
                members=len(group.members),
                offsets=count,
                cause=Cause(CauseKind.LOADED),
            )
            session.check_capacity(context, group)
        if self._expiry.at_ms is None:
            context.timers.set(self._expiry, now_ms + self.config.offsets_retention_check_interval_ms)
        return context.effects

    def unload(self, partition: int, now_ms: int, effects: Effects | None = None) -> Effects:
        """The partition is led elsewhere: whoever waits here is sent to look for it."""
        context = self._begin(now_ms, effects)
        shard = self._shards.pop(partition)
        if not shard.is_loading:
            for group in [g for g in context.groups.values() if g.partition == partition]:
                self._unload_group(group)
        return context.effects

    def _unload_group(self, group: Group) -> None:
        context = self._context
        for member in group.members.values():
            join.answer_parked(context, group, member, ErrorCode.NOT_COORDINATOR, member.member_id)
            member.heartbeat.cancel()
        for pending in group.pending_members.values():
            pending.cancel()
        group.join_timer.cancel()
        group.sync_timer.cancel()
        moved = Cause(CauseKind.MOVED)
        context.transition(group, DEAD, moved)
        context.event(group, events.GroupUnloaded, cause=moved)
        del context.groups[group.group_id]

    @property
    def partitions(self) -> list[int]:
        """Those that are here, loading or loaded."""
        return list(self._shards)

    def is_loaded(self, partition: int) -> bool:
        shard = self._shards.get(partition)
        return shard is not None and not shard.is_loading

    def load_progress(self, partition: int) -> tuple[int, dict[str, int]]:
        """Records read so far, and how many were skipped for which reason."""
        shard = self._shards[partition]
        return shard.records_read, shard.skipped

    # ---- topics

    def topics_deleted(self, deleted: dict[str, bytes], now_ms: int, effects: Effects | None = None) -> Effects:
        """Name -> topic id. Their committed offsets go with them."""
        context = self._begin(now_ms, effects)
        by_partition: dict[int, list[Change]] = {}
        for group in context.groups.values():
            if changes := expiry.of_deleted_topics(context, group, deleted):
                by_partition.setdefault(group.partition, []).extend(changes)
        for partition, changes in by_partition.items():
            context.append(partition, changes, GroupsTombstoned((), []))
        return context.effects

    # ---- to look at

    def group(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    @property
    def groups(self) -> dict[str, Group]:
        return self._groups

    def story(self, group_id: str) -> list[GroupEvent]:
        group = self._groups.get(group_id)
        return list(group.story) if group is not None else []

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self.config.offsets_topic_num_partitions)

    # ---- requests

    def _begin(self, now_ms: int, effects: Effects | None) -> Context:
        context = self._context
        context.now_ms = now_ms
        context.effects = effects if effects is not None else Effects()
        return context

    def _unavailable(self, group_id: str) -> ErrorCode:
        if group_id in self._groups:
            return NONE
        shard = self._shards.get(self.partition_for(group_id))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if shard.is_loading else NONE

    def _unavailable_or_invalid(self, group_id: str) -> ErrorCode:
        return self._unavailable(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _join(self, request: GroupRequest) -> None:
        message, config = request.message, self.config
        if not message.group_id:
            return join.refuse(self._context, None, request, ErrorCode.INVALID_GROUP_ID, message.member_id)
        if not config.group_min_session_timeout_ms <= message.session_timeout_ms <= config.group_max_session_timeout_ms:
            return join.refuse(self._context, None, request, ErrorCode.INVALID_SESSION_TIMEOUT, message.member_id)
        if error := self._unavailable(message.group_id):
            return join.refuse(self._context, None, request, error, "")
        join.join(self._context, request, self.partition_for(message.group_id))

    def _sync(self, request: GroupRequest) -> None:
        """While the group loads Kafka 4.3 says so; older versions answered REBALANCE_IN_PROGRESS instead."""
        message = request.message
        if request.version >= 5 and (message.protocol_type is None or message.protocol_name is None):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        else:
            error = self._unavailable_or_invalid(message.group_id)
        if error:
            return self._context.reply(request, SyncGroupResponse(error_code=error))
        session.sync(self._context, request)

    def _heartbeat(self, request: GroupRequest) -> None:
        group_id = request.message.group_id
        if group_id not in self._groups and (error := self._unavailable_or_invalid(group_id)):
            # While the group loads nobody knows better than the member whether it is alive.
            alive = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return self._context.reply(request, HeartbeatResponse(error_code=NONE if alive else error))
        session.heartbeat(self._context, request)

    def _leave(self, request: GroupRequest) -> None:
        if error := self._unavailable_or_invalid(request.message.group_id):
            return self._context.reply(request, LeaveGroupResponse(error_code=error))
        session.leave(self._context, request)

    def _commit(self, request: GroupRequest) -> None:
        group_id = request.message.group_id
        group = self._groups.get(group_id)
        if group is not None:
            offsets.commit(self._context, request, group.partition, group, NONE)
        else:
            unavailable = self._unavailable(group_id)
            offsets.commit(self._context, request, self.partition_for(group_id), None, unavailable)

    def _fetch(self, request: GroupRequest) -> None:
        message, version = request.message, request.version
        require_stable = version >= 7 and message.require_stable
        asked_groups = message.groups if version >= offsets.BATCH_VERSION else [_as_group(message)]
        answers = []
        for asked in asked_groups:
            if error := self._unavailable(asked.group_id):
                answers.append(offsets.fetch_error(asked, error, version))
            else:
                answers.append(offsets.fetch_group(self._context, asked, version, require_stable))
        if version >= offsets.BATCH_VERSION:
            self._context.reply(request, OffsetFetchResponse(groups=answers))
        else:
            self._context.reply(request, offsets.flatten_fetch(answers[0]))

    def _delete_offsets(self, request: GroupRequest) -> None:
        group_id = request.message.group_id
        if error := self._unavailable_or_invalid(group_id):
            return self._context.reply(request, OffsetDeleteResponse(error_code=error))
        offsets.delete(self._context, request, self.partition_for(group_id))

    def _describe(self, request: GroupRequest) -> None:
        admin.describe(self._context, request, self._unavailable)

    def _list(self, request: GroupRequest) -> None:
        admin.list_groups(self._context, request, any(shard.is_loading for shard in self._shards.values()))

    def _delete_groups(self, request: GroupRequest) -> None:
        context = self._context
        by_partition: dict[int, list[str]] = {}
        response = DeleteGroupsResponse()
        for group_id in dict.fromkeys(request.message.groups_names):
            if error := self._unavailable(group_id):
                response.results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error))
            else:
                by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        outstanding: set[int] = set()
        for partition, group_ids in by_partition.items():
            answers, changes, deleted = admin.delete(context, group_ids)
            response.results += answers
            if changes:
                outstanding.add(partition)
                then = GroupsDeleted(request, response, _group_ids(changes), outstanding, partition, deleted)
                context.append(partition, changes, then)
        if not outstanding:
            context.reply(request, response)

    def _groups_deleted(self, then: GroupsDeleted, error: ErrorCode) -> None:
        if error:
            self._restore_deleting(then.group_ids)
            for result in then.response.results:
                if result.group_id in then.group_ids:
                    result.error_code = error
        else:
            self._context.effects.events += then.events
        then.outstanding.discard(then.partition)
        if not then.outstanding:
            self._context.reply(then.request, then.response)

    # ---- expiry

    def _expire_offsets(self) -> None:
        context = self._context
        context.timers.set(self._expiry, context.now_ms + self.config.offsets_retention_check_interval_ms)
        by_partition: dict[int, tuple[list[Change], list[GroupEvent]]] = {}
        for group in list(context.groups.values()):
            changes, nothing_left = expiry.expired(context, group)
            if changes or (nothing_left and group.state is EMPTY):
                expired, deleted = by_partition.setdefault(group.partition, ([], []))
                if nothing_left and group.state is EMPTY:
                    changes, event = admin.group_tombstones(context, group, CauseKind.EMPTY_AND_EXPIRED)
                    deleted.append(event)
                expired += changes
        for partition, (expired, deleted) in by_partition.items():
            context.append(partition, expired, GroupsTombstoned(_group_ids(expired), deleted))

    def _restore_deleting(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            if (group := self._groups.get(group_id)) is not None:
                group.deleting = False


def _as_group(message: Any) -> Any:
    topics = message.topics
    make = OffsetFetchRequest.OffsetFetchRequestTopics
    if topics is not None:
        topics = [make(name=t.name, partition_indexes=t.partition_indexes) for t in topics]
    return OffsetFetchRequest.OffsetFetchRequestGroup(group_id=message.group_id, topics=topics)


def _group_ids(changes: Iterable[Change]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(change.group_id for change in changes))
