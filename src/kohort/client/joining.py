"""A rebalance as a member goes through it: commit, revoke, join, assign where it leads, sync, take over; and leaving.

Each method is one step and ends by naming the next one. When a step may go on is decided in `member._advance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.assignors import (
    PROTOCOL_TYPE,
    Assignment,
    ConsumerProtocolError,
    RebalanceProtocol,
    Subscription,
    assign_group,
    decode_assignment,
    decode_group,
    encode_subscription,
)
from kohort.client.commits import NO_GENERATION, NO_GENERATION_ID, Generation
from kohort.client.committing import COORDINATOR_MOVED
from kohort.client.effects import Assign, Destination, Fail, Left, RefreshMetadata
from kohort.client.errors import FencedInstanceIdError, error_for
from kohort.client.returning import Returning
from kohort.client.snapshots import cluster_metadata, partition_map, partition_set
from kohort.client.states import MemberState, Purpose, Step
from kohort.client.types import TopicPartition, partition_list
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

JOIN_GRACE_MS = 5_000
"""JoinGroup may be parked for the whole rebalance timeout; this much more until it counts as lost."""
REASON_LENGTH = 255
RETRY_AT_ONCE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


class Joining(Returning):
    # -- giving partitions up -----------------------------------------------------------------------------------------

    def _prepare_rejoin(self, now_ms: int) -> None:
        if self._rebalance_began_ms is None:
            self._rebalance_began_ms, self._cause = now_ms, self._rejoin_reason
        self._begin_giving_up(Purpose.REJOIN, now_ms + self.config.rebalance_timeout_ms, now_ms)

    def _why_given_up(self) -> str:
        return (self._leaving or "") if self._purpose is Purpose.LEAVE else self._rejoin_reason

    def _to_give_up(self) -> tuple[frozenset[TopicPartition], bool]:
        """Which partitions, and whether they are lost already."""
        if self._purpose is Purpose.LEAVE:
            return self.owned, not self.generation.valid or self.rebalancing
        if self._purpose is Purpose.HAND_OVER:
            assert self._next_assignment is not None
            return self.owned - partition_set(self._next_assignment.partitions), False
        if not self.generation.valid:
            return self.owned, True
        if self.protocol is RebalanceProtocol.EAGER:
            return self.owned, False
        return frozenset(tp for tp in self.owned if tp.topic not in self.topics), False

    def _given_up(self, now_ms: int) -> None:
        if self._purpose is Purpose.LEAVE:
            self._send_leave(now_ms)
        elif self._purpose is Purpose.HAND_OVER:
            self._take_over(now_ms)
        else:
            self.is_leader = False
            self._group_topics = frozenset()
            self._assigned_from = None
            self._watch()
            self._go(Step.WAITING)
            self._retry_at_ms = now_ms

    # -- JoinGroup ----------------------------------------------------------------------------------------------------

    def _send_join(self, now_ms: int) -> None:
        config = self.config
        self._transition_to(MemberState.PREPARING_REBALANCE)
        self._go(Step.JOINING)
        self._joined_topics = self.topics
        self._heartbeat.in_flight = None
        self._seen()
        request = JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            member_id=self.generation.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=self._subscription(assignor))
                for name, assignor in self._assignors.items()
            ],
            reason=self._rejoin_reason[:REASON_LENGTH],
        )
        timeout_ms = max(config.request_timeout_ms, config.rebalance_timeout_ms + JOIN_GRACE_MS)
        min_version = 5 if config.group_instance_id else 0
        self._token = self._out.send(request, Destination.COORDINATOR, timeout_ms, min_version)

    def _subscription(self, assignor: Any) -> bytes:
        topics = sorted(self.topics)
        return encode_subscription(
            Subscription(
                topics=topics,
                user_data=assignor.subscription_user_data(topics),
                owned_partitions=partition_map(self.owned),
                generation_id=self.generation.generation_id,
                rack_id=self.config.client_rack or None,
            )
        )

    def _join_answer(self, response: Any, now_ms: int) -> None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(NO_GENERATION_ID, response.member_id, None)
            self._join_again(f"need to re-join with the given member-id: {response.member_id}", now_ms)
        elif code is not ErrorCode.NONE:
            self._join_failed("JoinGroup", code, now_ms)
        elif (refusal := self._other_protocol("JoinGroup", response)) is not None:
            self._fail_join(refusal, now_ms)
        else:
            self._transition_to(MemberState.COMPLETING_REBALANCE)
            self.generation = Generation(response.generation_id, response.member_id, response.protocol_name)
            self._heartbeat.start(now_ms)
            if response.leader == response.member_id:
                self._lead(response, now_ms)
            else:
                self._send_sync({}, now_ms)

    def _other_protocol(self, api: str, response: Any) -> KafkaError | None:
        """What the answer says of the protocol must be what was asked for; old versions say nothing."""
        group, name = self.config.group_id, response.protocol_name
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            text = f"{api} answered that group {group} is of type {response.protocol_type!r}, not {PROTOCOL_TYPE!r}"
        elif api == "JoinGroup" and name not in self._assignors:
            text = f"group {group} chose the assignor {name!r}, this consumer has only {', '.join(self._assignors)}"
        elif api == "SyncGroup" and name not in (None, self.generation.protocol_name):
            text = f"SyncGroup answered for the assignor {name!r}, the group chose {self.generation.protocol_name!r}"
        else:
            return None
        return error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)

    # -- the leader ---------------------------------------------------------------------------------------------------

    def _lead(self, response: Any, now_ms: int) -> None:
        try:
            self._group = decode_group(
                {member.member_id: member.metadata for member in response.members},
                {member.member_id: member.group_instance_id for member in response.members},
            )
        except ConsumerProtocolError as error:
            self._fail_join(error, now_ms)
            return
        self.is_leader = True
        self._group_topics = frozenset().union(*(one.topics for one in self._group.values()))
        self._watch()
        self._go(Step.ASSIGNING)
        self._skip_assignment = bool(response.skip_assignment)
        if not self._informed():
            self._out.add(RefreshMetadata("the leader needs metadata of every topic of the group"))
        self._assign_if_informed(now_ms)

    def _informed(self) -> bool:
        snapshot = self._snapshot
        return snapshot is not None and (snapshot.covers is None or self._group_topics <= snapshot.covers)

    def _relevant(self) -> dict[str, Any]:
        assert self._snapshot is not None
        topics = self._snapshot.topics
        return {topic: topics[topic] for topic in self._group_topics if topic in topics}

    def _assign_if_informed(self, now_ms: int) -> None:
        if not self._informed():
            return
        self._assigned_from = self._relevant()
        if self._skip_assignment:
            self._is_unseen = True
            self._send_sync({}, now_ms)
            return
        assert self._snapshot is not None
        try:
            assignor = self._assignors[self.generation.protocol_name or ""]
            metadata = cluster_metadata(self._snapshot, self._group_topics)
            assignments = assign_group(assignor, metadata, self._group, self.protocol)
        except Exception as error:
            self._fail_join(error, now_ms)
            return
        self._send_sync(assignments, now_ms)

    # -- SyncGroup ----------------------------------------------------------------------------------------------------

    def _send_sync(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        self._go(Step.SYNCING)
        self._group = {}
        if not self._finder.known:
            self._join_again("rebalance failed: the coordinator is not available", now_ms, self.config.retry_backoff_ms)
            return
        entry = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.config.group_id,
            generation_id=self.generation.generation_id,
            member_id=self.generation.member_id,
            group_instance_id=self.config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.generation.protocol_name,
            assignments=[
                entry(member_id=member_id, assignment=assignment) for member_id, assignment in assignments.items()
            ],
        )
        self._token = self._out.send(request, Destination.COORDINATOR, self.config.request_timeout_ms)

    def _sync_answer(self, response: Any, now_ms: int) -> None:
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._join_failed("SyncGroup", code, now_ms)
            return
        if (refusal := self._other_protocol("SyncGroup", response)) is not None:
            self._fail_join(refusal, now_ms)
            return
        try:
            assignment = decode_assignment(response.assignment)
        except ConsumerProtocolError as error:
            self._fail_join(error, now_ms)
            return
        self._transition_to(MemberState.STABLE)
        self._rejoin_needed = False
        if not self._fits_subscription(assignment):
            self._go(Step.IDLE)
            self._request_rejoin("received assignment does not match the current subscription", now_ms)
            return
        self._next_assignment = assignment
        revoked = self.owned - partition_set(assignment.partitions)
        if self.protocol is RebalanceProtocol.COOPERATIVE and revoked:
            self._rejoin_needed, self._rejoin_reason = True, "need to revoke partitions and re-join"
            self._note(f"gives up {partition_list(revoked)}, as generation {self._number} asks for", now_ms)
            self._describe_rebalance(now_ms)
            self._begin_giving_up(Purpose.HAND_OVER, now_ms + self.config.rebalance_timeout_ms, now_ms)
        else:
            self._describe_rebalance(now_ms)
            self._rejoin_reason = ""
            self._take_over(now_ms)
        self._check_subscription(now_ms)
        self._look_at_assignments()

    @property
    def _number(self) -> int:
        return self.generation.generation_id

    def _describe_rebalance(self, now_ms: int) -> None:
        assert self._next_assignment is not None
        assigned = partition_set(self._next_assignment.partitions)
        took_ms = now_ms - (self._rebalance_began_ms if self._rebalance_began_ms is not None else now_ms)
        self._rebalance_began_ms = None
        self._note(
            f"generation {self._number} as {'leader' if self.is_leader else 'follower'} {self.member_id}, "
            f"{self.generation.protocol_name}, {len(assigned)} partitions ({partition_list(assigned)}) "
            f"after {took_ms} ms; rebalanced because: {self._cause}",
            now_ms,
        )

    def _fits_subscription(self, assignment: Assignment) -> bool:
        if self._matches is not None:
            return all(self._matches(topic) for topic in assignment.partitions)
        return all(topic in self.topics for topic in assignment.partitions)

    def _take_over(self, now_ms: int) -> None:
        assignment, self._next_assignment = self._next_assignment, None
        assert assignment is not None
        partitions = partition_set(assignment.partitions)
        if self._matches is not None:
            self.topics |= frozenset(assignment.partitions)
            self._joined_topics = (self._joined_topics or frozenset()) | frozenset(assignment.partitions)
        try:
            self._assignors[self.generation.protocol_name or ""].on_assignment(assignment, self.group_metadata())
        except Exception as error:
            self._out.add(Fail(error))
        self._next_auto_commit_ms = now_ms + self.config.auto_commit_interval_ms
        self._go(Step.TAKING_OVER)
        self._offer(Assign(partitions, partitions - self.owned, self._number))

    # -- failures of a join -------------------------------------------------------------------------------------------

    def _join_failed(self, api: str, code: ErrorCode, now_ms: int) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._fenced(now_ms)
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset(f"encountered {code.name} from {api} response", now_ms, forget_member=True)
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._reset(f"encountered {code.name} from {api} response", now_ms, forget_member=False)
        elif code in COORDINATOR_MOVED:
            self._join_again(f"rebalance failed due to {code.name}", now_ms, self.config.retry_backoff_ms)
            self._coordinator_lost(f"{api} answered {code.name}", now_ms)
        elif code in RETRY_AT_ONCE:
            self._join_again(f"rebalance failed due to {code.name}", now_ms)
        elif code.retriable:
            self._join_again(f"rebalance failed due to {code.name}", now_ms, self.config.retry_backoff_ms)
        else:
            self._fail_join(self._explain_join_error(code), now_ms)

    def _explain_join_error(self, code: ErrorCode) -> KafkaError:
        config = self.config
        advice = {
            ErrorCode.INVALID_SESSION_TIMEOUT: f"session.timeout.ms={config.session_timeout_ms} is outside of what the "
            "broker allows (group.min.session.timeout.ms to group.max.session.timeout.ms)",
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL: f"no assignor of {', '.join(self._assignors)} is known to every "
            f"member of group {config.group_id}: give partition.assignment.strategy one that the others have",
            ErrorCode.GROUP_MAX_SIZE_REACHED: f"group {config.group_id} already has group.max.size members",
            ErrorCode.INVALID_GROUP_ID: f"the broker does not accept group.id={config.group_id!r}",
            ErrorCode.GROUP_AUTHORIZATION_FAILED: f"not allowed to read as group {config.group_id}",
        }
        return error_for(code, advice.get(code))

    def _join_again(self, reason: str, now_ms: int, delay_ms: int = 0) -> None:
        self._rejoin_needed, self._rejoin_reason = True, reason
        self._go(Step.WAITING)
        self._retry_at_ms = now_ms + delay_ms

    def _fail_join(self, error: Exception, now_ms: int) -> None:
        """The application hears of it and decides, by polling again, whether to go on."""
        self._join_again(f"rebalance failed due to {type(error).__name__}", now_ms, self.config.retry_backoff_ms)
        self._active = False
        self._out.add(Fail(error))

    # -- dropping out -------------------------------------------------------------------------------------------------

    def _reset(self, reason: str, now_ms: int, forget_member: bool, why: str | None = None) -> None:
        """Out of the group: what is owned is lost, the next thing to do is to join again."""
        self._why_out = why or reason
        self._note(f"is out of generation {self._number}: {self._why_out}", now_ms, "WARNING")
        self._transition_to(MemberState.UNJOINED)
        self.generation = NO_GENERATION if forget_member else Generation(NO_GENERATION_ID, self.member_id, None)
        self.is_leader = False
        self._assigned_from = None
        self._token = None
        self._prepare_ask = None
        self._heartbeat.in_flight = None
        self._seen()
        self._rejoin_needed, self._rejoin_reason = True, reason
        if self._taken is not None:
            self._restart = True
        elif self._leaving is not None:
            self._begin_leave(now_ms)
        else:
            self._pending = None
            self._go(Step.IDLE)

    def _fenced(self, now_ms: int) -> None:
        instance = self.config.group_instance_id
        error = FencedInstanceIdError(
            f"another consumer joined group {self.config.group_id} with group.instance.id={instance!r} and took this "
            "member's place; give every running consumer an instance id of its own, then create this consumer anew"
        )
        self.fatal = error
        self._active = False
        self._leaving = "fenced"
        self._reset("fenced by another member with the same group.instance.id", now_ms, True, str(error))
        self._out.add(Fail(error, fatal=True))

    def _begin_leave(self, now_ms: int) -> None:
        self._pending = None
        self._token = None
        self._begin_giving_up(Purpose.LEAVE, now_ms + self.config.request_timeout_ms, now_ms)

    def _send_leave(self, now_ms: int) -> None:
        token = self._leave_request(self._leaving or "leaving", self._leave_forced)
        if token is None:
            self._left(now_ms)
        else:
            self._token = token
            self._go(Step.LEAVING)
            self._give_up_by_ms = now_ms + self.config.request_timeout_ms

    def _leave_request(self, reason: str, forced: bool | None) -> int | None:
        wanted = forced if forced is not None else self.config.group_instance_id is None
        if not wanted or not self._finder.known or self.state is MemberState.UNJOINED or not self.member_id:
            return None
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=self.member_id,
            group_instance_id=self.config.group_instance_id if forced else None,
            reason=reason[:REASON_LENGTH],
        )
        request = LeaveGroupRequest(group_id=self.config.group_id, members=[identity])
        parked = self.state is MemberState.PREPARING_REBALANCE
        to = Destination.COORDINATOR_ASIDE if parked else Destination.COORDINATOR
        return self._out.send(request, to, self.config.request_timeout_ms)

    def _left(self, now_ms: int) -> None:
        reason, self._leaving = self._leaving or "", None
        self._note(f"left: {reason}", now_ms)
        self._transition_to(MemberState.UNJOINED)
        self.generation = NO_GENERATION
        self._go(Step.IDLE)
        self.topics, self._matches, self._manual = frozenset(), None, False
        self._group_topics, self._joined_topics = frozenset(), None
        self.is_leader, self._assigned_from = False, None
        self._seen()
        self._rejoin_needed, self._rejoin_reason = False, ""
        self._rebalance_began_ms = None
        self._why_out = self._why_out if self.fatal else f"it left: {reason}"
        self._watch()
        self._out.add(Left(reason))

    # -- provided by `member` ------------------------------------------------------------------------------------------

    def _check_subscription(self, now_ms: int) -> None:
        raise NotImplementedError
