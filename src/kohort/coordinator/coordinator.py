"""The group coordinator: which shard a request belongs to, and which handler decides. No decision is taken here.

    coordinator.handle(request, now_ms)        answers, events and loads gather in `coordinator.effects`,
                                               what is to be stored in `coordinator.runtime`

One owner, no locks, no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kohort.coordinator import admin, expiry, kinds, offsets, txn_offsets
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.classic import join
from kohort.coordinator.context import Context, CoordinatorConfig, Topics
from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.events import GroupEvent, GroupUnloaded
from kohort.coordinator.gathering import Gathering
from kohort.coordinator.group import Group
from kohort.coordinator.homing import home_strays, part
from kohort.coordinator.kinds import HEARTBEAT, KINDS
from kohort.coordinator.records import Change, partition_for
from kohort.coordinator.refusals import failed, refusal
from kohort.coordinator.replay import ShardGroups
from kohort.coordinator.runtime import Runtime
from kohort.coordinator.shard import UNAVAILABLE, Life, Shard
from kohort.coordinator.timers import TimerQueue
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

if TYPE_CHECKING:
    from kohort.coordinator.modern.work import Work

NONE = ErrorCode.NONE
ACTIVE = Life.ACTIVE
GroupShard = Shard[ShardGroups]
Handler = Callable[[Context, Request], Decision | None]
_MOST_ROUTES = 200_000
GROUPS_AT_ONCE = 250
_READS = (ConsumerGroupDescribeRequest, DescribeGroupsRequest, ListGroupsRequest, OffsetFetchRequest)


class Coordinator:
    def __init__(self, config: CoordinatorConfig, topics: Topics, new_uuid: Callable[[], str]) -> None:
        self.config = config
        self._topics = topics
        self._new_uuid = new_uuid
        self.runtime: Runtime[ShardGroups] = Runtime(self._new_state, failed, config.offsets_commit_timeout_ms)
        self.effects = self.runtime.effects
        self.is_active = False
        self._now_ms = 0
        self._nowhere: GroupShard = Shard(-1, -1, 0, Life.CLOSED, self._new_state(-1, TimerQueue(), None))
        self._on_its_way: GroupShard = Shard(-1, -1, 0, Life.LOADING, self._new_state(-1, TimerQueue(), None))
        self.is_scattered = True  # whether groups may be elsewhere than where their name belongs
        self.counts_before: list[int] = []  # of partitions, before the topic grew: groups may be where those say
        self._routes: dict[str, GroupShard] = {}  # of groups that were seen in their shard: saves the hash of the name
        self.runtime.shards_changed = self._shards_changed
        self._modern: tuple[Callable[..., Any], Handler] | None = None
        self._handlers: dict[type, Callable[[Request], None]] = {
            HeartbeatRequest: self._heartbeat,
            ConsumerGroupHeartbeatRequest: self._consumer_heartbeat,
            ConsumerGroupDescribeRequest: self._consumer_describe,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            LeaveGroupRequest: self._leave,
            OffsetDeleteRequest: self._delete_offsets,
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            DeleteGroupsRequest: self._delete_groups,
            TxnOffsetCommitRequest: self._txn_commit,
            txn_offsets.EndTransaction: self._end_transaction,
        }

    def _new_state(self, partition: int, timers: TimerQueue, previous: ShardGroups | None) -> ShardGroups:
        made = ShardGroups(partition, self.config, self._topics, self._new_uuid, timers, self.effects, previous)
        made.count_groups = self._count_groups
        return made

    def _count_groups(self) -> int:
        return sum(len(shard.state.groups) for shard in self.runtime.shards.values())

    # ---- in

    def start(self) -> None:
        self.is_active = True

    def stop(self) -> None:
        """Whoever comes now is told that nobody is here; what is under way comes to its end."""
        self.is_active = False
        self._routes.clear()

    def handle(self, request: Request, now_ms: int) -> None:
        self._now_ms = now_ms
        try:
            self._handlers[type(request.message)](request)
        except Exception:
            for shard in self._written_by(request.message):
                self.runtime.crashed(shard, now_ms)
            raise

    def _written_by(self, message: Any) -> list[GroupShard]:
        """The shards whose state a request may have changed before it failed."""
        if type(message) is DeleteGroupsRequest:
            return [self._shard(group_id) for group_id in message.groups_names]
        return [] if type(message) in _READS else [self._shard(message.group_id)]

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._topics.by_id(topic_id)

    def topics_changed(self, name: str) -> None:
        """A topic has come, has grown or is gone: groups that read it look again at their next heartbeat."""
        for shard in self._active():
            for group in shard.state.groups.values():
                group.topic_changed(name)

    def topics_deleted(self, deleted: dict[str, bytes], now_ms: int) -> None:
        """Name -> topic id. Their committed offsets go with them."""
        for name in deleted:
            self.topics_changed(name)
        for shard in self._active():
            shard.state.now_ms = now_ms
            changes: list[Change] = []
            for group in (*shard.state.groups.values(), *shard.state.strays.values()):
                changes += expiry.of_deleted_topics(shard.state, group, deleted)
            if changes:
                self.runtime.decided(shard, shard.state.decide(changes, divisible=True))

    # ---- shards

    def use_partitions(self, count: int, now_ms: int, grown_from: Sequence[int] = ()) -> None:
        """How many the topic has now, and had before: it decides where a group lives. Groups that have to move lose
        their rebalance, not their generation."""
        self.counts_before = list(grown_from)
        if count == self.config.offsets_topic_num_partitions:
            return
        self.config.offsets_topic_num_partitions = count
        self._shards_changed()
        moved = Cause(CauseKind.MOVED)
        for shard in self._active():
            state = shard.state
            state.now_ms = now_ms
            for group in state.set_strays_apart():
                KINDS[type(group)].close(state, group, ErrorCode.NOT_COORDINATOR, moved)
                state.event(group, GroupUnloaded, cause=moved)
            self.runtime.decided(shard, None)
            part(shard)

    def _shards_changed(self) -> None:
        self._routes.clear()
        self.is_scattered = True

    @property
    def all_at_home(self) -> bool:
        """Every partition is served here, nothing in them belongs elsewhere, and all that says so is stored."""
        shards = self.runtime.shards.values()
        return len(shards) == self.config.offsets_topic_num_partitions and all(
            shard.life is ACTIVE and shard.resting is None and not shard.state.strays for shard in shards
        )

    def home_strays(self, now_ms: int) -> list[str]:
        """Groups that this sent to the partition their name belongs to now."""
        moved = home_strays(self.runtime, self.partition_for, now_ms)
        self._look_around()
        return moved

    def _look_around(self) -> bool:
        """Whether all that is led here is loaded."""
        shards = self.runtime.shards.values()
        loaded = all(shard.life is not Life.LOADING for shard in shards)
        self.is_scattered = (
            not loaded or bool(self.counts_before) or any(s.state.strays or s.state.parting for s in shards)
        )
        return loaded

    def strays(self) -> list[str]:
        """Groups that are not where their name belongs, and not on their way there: nobody is served from them."""
        return [name for s in self._active() for name in s.state.strays if name not in s.state.homing]

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self.config.offsets_topic_num_partitions)

    def _active(self) -> list[GroupShard]:
        return [shard for shard in self.runtime.shards.values() if shard.life is ACTIVE]

    # ---- to look at

    def group(self, group_id: str) -> Group | None:
        shard = self._shard(group_id)
        return shard.state.groups.get(group_id) if shard.life is ACTIVE else None

    @property
    def groups(self) -> dict[str, Group]:
        """All that are served here. Made for the question: for tools, not for requests."""
        return {name: group for shard in self._active() for name, group in shard.state.groups.items()}

    def story(self, group_id: str) -> list[GroupEvent]:
        group = self.group(group_id)
        return list(group.story) if group is not None else []

    @property
    def timer_entries(self) -> int:
        """The size of the timer queues, stale entries included: for whoever watches memory."""
        return sum(len(shard.state.timers) for shard in self.runtime.shards.values())

    def has_pending(self, partition: int, producer_id: int) -> bool:
        """Whether a producer has committed offsets there in a transaction that is open."""
        shard = self.runtime.shards.get(partition)
        return shard is not None and shard.life is ACTIVE and shard.state.has_pending(producer_id)

    def is_loaded(self, partition: int) -> bool:
        shard = self.runtime.shards.get(partition)
        return shard is not None and shard.life is ACTIVE

    def life_of(self, partition: int) -> int:
        """Another number whenever the partition was loaded again; -1 where it is not led here."""
        shard = self.runtime.shards.get(partition)
        return -1 if shard is None else shard.incarnation

    # ---- where to

    def _shard(self, group_id: str) -> GroupShard:
        shard = self._routes.get(group_id)
        if not self.is_active:
            return self._nowhere
        if shard is None:
            shard = self.runtime.shards.get(self.partition_for(group_id), self._nowhere)
            if self.is_scattered:  # and where a group is now may not be where it is after a load
                if shard.life is ACTIVE and group_id not in shard.state.groups:
                    return self._elsewhere(group_id) or shard
            elif group_id in shard.state.groups:
                if len(self._routes) >= _MOST_ROUTES:
                    self._routes.clear()
                self._routes[group_id] = shard
        return shard

    def _elsewhere(self, group_id: str) -> GroupShard | None:
        """A group that is not at home, in a topic that has grown, may be on its way there, not be read yet, or be where
        nothing can be read, or another broker leads: nobody can tell, and a group that seems new would begin without
        its commits."""
        shards = self.runtime.shards
        if not self._look_around() or self._may_come_back(group_id):
            return self._on_its_way
        before = self._partitions_before(group_id)
        if any(index not in shards for index in before):
            return self._on_its_way
        return next((shards[index] for index in before if shards[index].life is Life.FAILED), None)

    def _may_come_back(self, group_id: str) -> bool:
        """Whether it is not stored yet that it has left where it was before the topic grew: with a crash it would be
        taken from there once more, and what was deleted at home with it."""
        if not self.is_scattered:
            return False
        before = self._partitions_before(group_id)
        for shard in self.runtime.shards.values():
            if group_id in shard.state.strays or (shard.state.parting and shard.partition in before):
                return True
        return False

    def _partitions_before(self, group_id: str) -> list[int]:
        return [partition_for(group_id, count) for count in self.counts_before]

    def _error(self, shard: GroupShard) -> ErrorCode:
        return UNAVAILABLE[shard.life] if self.is_active else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _reply(self, request: Request, response: Any) -> None:
        self.effects.replies.append((request, response))

    def _decide(self, handler: Handler, request: Request) -> None:
        """For a request about one group, which has a name."""
        group_id = request.message.group_id
        shard = self._routes.get(group_id) or self._shard(group_id)
        if shard.life is not ACTIVE or not group_id:
            error = self._error(shard) if group_id else ErrorCode.INVALID_GROUP_ID
            return self._reply(request, refusal(request, error))
        state = shard.state
        state.now_ms = self._now_ms
        self.runtime.decided(shard, handler(state, request))

    # ---- requests about one group

    def _heartbeat(self, request: Request) -> None:
        group_id = request.message.group_id
        shard = self._routes.get(group_id) or self._shard(group_id)
        if shard.life is ACTIVE and group_id:
            state = shard.state
            state.now_ms = self._now_ms
            HEARTBEAT[type(state.groups.get(group_id))](state, request)
            if state.answers:
                self.runtime.decided(shard, None)
        elif shard.life is Life.LOADING and group_id:
            # Nobody knows better than the member whether it is alive.
            self._reply(request, HeartbeatResponse())
        else:
            self._reply(request, refusal(request, self._error(shard) if group_id else ErrorCode.INVALID_GROUP_ID))

    def _consumer_heartbeat(self, request: Request) -> None:
        if not self.is_active:
            return self._reply(request, refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        check_request, heartbeat = self._modern or self._import_modern()
        if refused := check_request(request.message, request.version, self.config.assignors):
            response = ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=refused.message)
            return self._reply(request, response)
        self._decide(heartbeat, request)

    def _import_modern(self) -> tuple[Callable[..., Any], Handler]:
        """With the first request of its kind, as in kinds.py."""
        from kohort.coordinator.modern.heartbeat import heartbeat
        from kohort.coordinator.modern.refusing import check_request

        self._modern = check_request, heartbeat
        return self._modern

    def computed(self, work: Work, made: Any, error: Exception | None, now_ms: int) -> None:
        """What was asked for in `effects.work` has come, or has failed; the group is looked at as it is now."""
        from kohort.coordinator.modern.elsewhere import computed

        self._now_ms = now_ms
        shard = self._shard(work.group_id)
        if shard.life is not ACTIVE:
            return
        shard.state.now_ms = now_ms
        try:
            self.runtime.decided(shard, computed(shard.state, work, made, error))
        except Exception:
            self.runtime.crashed(shard, now_ms)
            raise

    def _commit(self, request: Request) -> None:
        group_id = request.message.group_id
        shard = self._routes.get(group_id) or self._shard(group_id)
        if shard.life is not ACTIVE:
            return self._reply(request, offsets.unavailable_commit(self._topics, request, self._error(shard)))
        state = shard.state
        state.now_ms = self._now_ms
        self.runtime.decided(shard, offsets.commit(state, request))

    def _txn_commit(self, request: Request) -> None:
        shard = self._shard(request.message.group_id)
        error = self._error(shard) if request.message.group_id else ErrorCode.INVALID_GROUP_ID
        if error:
            return self._reply(request, txn_offsets.response(self._topics, request, error))
        shard.state.now_ms = self._now_ms
        self.runtime.decided(shard, txn_offsets.commit(shard.state, request))

    def _end_transaction(self, request: Request) -> None:
        shard = self.runtime.shards.get(request.message.partition, self._nowhere)
        if shard.life is not ACTIVE:
            return self._reply(request, self._error(shard))
        shard.state.now_ms = self._now_ms
        self.runtime.decided(shard, txn_offsets.end(shard.state, request))

    def _join(self, request: Request) -> None:
        message, config = request.message, self.config
        error = NONE
        if not message.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif (
            not config.group_min_session_timeout_ms <= message.session_timeout_ms <= config.group_max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error:
            return self._reply(request, join.join_response(request, error, message.member_id))
        self._decide(kinds.join, request)

    def _sync(self, request: Request) -> None:
        """While the group loads Kafka 4.3 says so; older versions answered REBALANCE_IN_PROGRESS instead."""
        message = request.message
        if request.version >= 5 and (message.protocol_type is None or message.protocol_name is None):
            return self._reply(request, refusal(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        self._decide(kinds.sync, request)

    def _leave(self, request: Request) -> None:
        self._decide(kinds.leave, request)

    def _delete_offsets(self, request: Request) -> None:
        if self._may_come_back(request.message.group_id):
            return self._reply(request, refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        self._decide(offsets.delete, request)

    # ---- requests about several

    def _fetch(self, request: Request) -> None:
        message, version = request.message, request.version
        require_stable = version >= 7 and message.require_stable
        gathering = Gathering(request)
        for asked in message.groups if version >= offsets.BATCH_VERSION else [_as_group(message)]:
            shard = self._shard(asked.group_id)
            if shard.life is ACTIVE:
                row = offsets.fetch_group(shard.state, asked, version, require_stable)
            else:
                row = offsets.fetch_error(asked, self._error(shard), version)
            gathering.add(shard, asked.group_id, row)
        gathering.close(self.effects)

    def _describe(self, request: Request) -> None:
        gathering = Gathering(request)
        for group_id in request.message.groups:
            shard = self._shard(group_id)
            if shard.life is ACTIVE:
                row = admin.describe(shard.state, group_id, request)
            else:
                row = admin.describe_error(group_id, self._error(shard))
            gathering.add(shard, group_id, row)
        gathering.close(self.effects)

    def _consumer_describe(self, request: Request) -> None:
        from kohort.coordinator.modern.describe import describe

        gathering = Gathering(request)
        for group_id in request.message.group_ids:
            shard = self._shard(group_id)
            if not group_id:
                row = admin.consumer_describe_error(group_id, ErrorCode.INVALID_GROUP_ID)
            elif shard.life is ACTIVE:
                row = describe(shard.state, group_id, request)
                if request.message.include_authorized_operations and not row.error_code:
                    row.authorized_operations = admin.ALL_GROUP_OPERATIONS
            else:
                row = admin.consumer_describe_error(group_id, self._error(shard))
            gathering.add(shard, group_id, row)
        gathering.close(self.effects)

    def _list(self, request: Request) -> None:
        for _ in self.list_slices(request):
            pass

    @property
    def group_count(self) -> int:
        return sum(len(shard.state.groups) for shard in self._active())

    def list_slices(self, request: Request) -> Iterator[None]:
        """ListGroups, some groups at a time; answered at the end. What is gone by then is not in it."""
        shards = self.runtime.shards.values()
        loading = any(shard.life is Life.LOADING for shard in shards)
        if loading or not self.is_active:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.COORDINATOR_NOT_AVAILABLE
            return self._reply(request, ListGroupsResponse(error_code=error))
        gathering = Gathering(request)
        asked = [(shard, shard.incarnation, list(shard.state.groups.values())) for shard in self._active()]
        for shard, _, groups in asked:
            gathering.touch(shard)
            for start in range(0, len(groups), GROUPS_AT_ONCE):
                there = shard.state.groups.get
                some = [group for group in groups[start : start + GROUPS_AT_ONCE] if there(group.group_id) is group]
                for row in admin.list_groups(some, request):
                    gathering.add(shard, row.group_id, row)
                yield
        if any(shard.incarnation != incarnation or shard.life is not ACTIVE for shard, incarnation, _ in asked):
            response = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return self._reply(request, response)
        gathering.close(self.effects)

    def _delete_groups(self, request: Request) -> None:
        gathering = Gathering(request)
        by_shard: dict[GroupShard, list[str]] = {}
        for group_id in dict.fromkeys(request.message.groups_names):
            shard = self._on_its_way if self._may_come_back(group_id) else self._shard(group_id)
            if shard.life is ACTIVE:
                by_shard.setdefault(shard, []).append(group_id)
            else:
                gathering.add(shard, group_id, admin.delete_error(group_id, self._error(shard)))
        for shard, group_ids in by_shard.items():
            shard.state.now_ms = self._now_ms
            rows, decision = admin.delete(shard.state, group_ids)
            self.runtime.decided(shard, decision)
            for row in rows:
                gathering.add(shard, row.group_id, row)
        gathering.close(self.effects)


def _as_group(message: Any) -> Any:
    topics = message.topics
    make = OffsetFetchRequest.OffsetFetchRequestTopics
    if topics is not None:
        topics = [make(name=t.name, partition_indexes=t.partition_indexes) for t in topics]
    return OffsetFetchRequest.OffsetFetchRequestGroup(group_id=message.group_id, topics=topics)
