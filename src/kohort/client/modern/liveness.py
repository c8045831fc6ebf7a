"""What keeps a member of the consumer protocol in its group: heartbeats and their answers, commits, leaving.

Builds on `reconciling`, which says how partitions change hands.
"""

from __future__ import annotations

from typing import Any

from kohort.client.commits import NO_GENERATION, NO_GENERATION_ID, Ask, Generation, Kind, Verdict
from kohort.client.committing import COORDINATOR_MOVED
from kohort.client.effects import Destination, Fail, Left
from kohort.client.errors import FencedInstanceIdError
from kohort.client.modern.heartbeats import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, Subscribed, least_version
from kohort.client.modern.reconciling import Reconciling
from kohort.client.modern.refusals import explained
from kohort.client.modern.states import MemberState
from kohort.client.states import Purpose
from kohort.client.types import partition_list
from kohort.protocol.errors import ErrorCode, KafkaError

PUT_OUT = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
OLD_EPOCH = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Liveness(Reconciling):
    # -- heartbeats ---------------------------------------------------------------------------------------------------

    def _subscribed_to(self) -> Subscribed:
        return Subscribed(tuple(sorted(self.topics)), self._regex)

    def _send_heartbeat(self, now_ms: int) -> None:
        subscribed = self._subscribed_to()
        if self.state is MemberState.JOINING:
            request = self._heartbeats.joining(self.member_id, subscribed)
            self._announced = True
        else:
            request = self._heartbeats.going_on(self.member_id, self._epoch, subscribed, self._owned_by_id())
        token = self._out.send(
            request, Destination.COORDINATOR, self.config.request_timeout_ms, least_version(subscribed)
        )
        self._heartbeat.sent(token, now_ms)
        if self.state is MemberState.ACKNOWLEDGING:
            self._acknowledged()

    def _heartbeat_answer(self, response: Any, now_ms: int) -> None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self._heartbeat_accepted(response, now_ms)
            return
        self._heartbeats.forget()
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._fenced_instance(now_ms)
            return
        if code in PUT_OUT and self.generation.valid:
            self._put_out("ConsumerGroupHeartbeat", code, now_ms)
            return
        self._heartbeat.failed(now_ms)
        if code in COORDINATOR_MOVED:
            self._coordinator_lost(f"ConsumerGroupHeartbeat answered {code.name}", now_ms)
        elif not code.retriable:
            self._refused(explained(code, response.error_message, self.config, self._regex), now_ms)

    def _heartbeat_accepted(self, response: Any, now_ms: int) -> None:
        self._heartbeat.answered(now_ms)
        self._heartbeat.every(response.heartbeat_interval_ms, now_ms)
        self.generation = Generation(response.member_epoch, self.member_id)
        self._commits.bring_back()
        if self.state is MemberState.PREPARE_LEAVING:
            return
        if self.state is MemberState.JOINING:
            self._note(f"joined as {self.member_id} in epoch {self._epoch}", now_ms)
            self._tell_assigned = True
        if response.assignment is not None:
            target = {
                bytes(topic.topic_id): frozenset(topic.partitions) for topic in response.assignment.topic_partitions
            }
            self._begin_reconciling(target, now_ms)
        elif self.state is MemberState.JOINING:
            self._begin_reconciling({}, now_ms)

    # -- dropping out -------------------------------------------------------------------------------------------------

    def _put_out(self, api: str, code: ErrorCode, now_ms: int) -> None:
        silence_s = (now_ms - self._heartbeat.last_heard_ms) / 1000
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            why = (
                f"the coordinator no longer knows member {self.member_id}: its last heartbeat was answered "
                f"{silence_s:.0f} s ago and its session ended, or it did not give partitions up within "
                f"max.poll.interval.ms={self.config.max_poll_interval_ms}, or it was removed by an administrator"
            )
        else:
            why = f"the coordinator has gone on from epoch {self._epoch} of member {self.member_id} without it"
        self._announced = False
        self._drop_out(MemberState.FENCED, f"encountered {code.name} from {api} response: {why}", now_ms)

    def _polled_too_late(self, now_ms: int) -> None:
        seconds, limit = (now_ms - self._heartbeat.last_poll_ms) / 1000, self.config.max_poll_interval_ms
        why = (
            f"poll() was last called {seconds:.0f} s ago, over max.poll.interval.ms={limit}: "
            "handle fewer records between polls (max.poll.records) or raise max.poll.interval.ms"
        )
        self._leave_request(None)
        self._active = False
        self._drop_out(MemberState.STALE, why, now_ms)

    def _refused(self, error: KafkaError, now_ms: int) -> None:
        """The application hears of it and decides, by polling again, whether to go on."""
        self._active = False
        self._out.add(Fail(error))
        if self.state is MemberState.JOINING:
            self._announced = False
        else:
            self._leave_request(True)
            self._drop_out(MemberState.FENCED, str(error), now_ms)

    def _fenced_instance(self, now_ms: int) -> None:
        instance = self.config.group_instance_id
        error = FencedInstanceIdError(
            f"another consumer joined group {self.config.group_id} with group.instance.id={instance!r} and took this "
            "member's place; give every running consumer an instance id of its own, then create this consumer anew"
        )
        self.fatal = error
        self._active = self._announced = False
        self._leaving = "fenced"
        self._drop_out(MemberState.FENCED, str(error), now_ms)
        self._out.add(Fail(error, fatal=True))

    def _drop_out(self, state: MemberState, why: str, now_ms: int) -> None:
        """Out of the group: what is owned is lost, the next thing to do is to join again."""
        self._why_out = why
        self._note(f"is out of epoch {self._epoch}: {why}", now_ms, "WARNING")
        self._forget_the_group()
        if self.state is MemberState.LEAVING:
            return  # it has given everything up; the answer to its leaving is all it waits for
        if self.state is not MemberState.PREPARE_LEAVING:
            self._transition_to(state)
        if self._taken is not None:
            self._restart = True
        elif self._leaving is not None:
            self._begin_leave(now_ms)
        else:
            self._lose(now_ms)

    def _forget_the_group(self) -> None:
        self.generation = Generation(NO_GENERATION_ID, self.member_id)
        self._heartbeats.forget()
        self._heartbeat.in_flight = None
        self._target, self._began_ms, self._prepare_ask = {}, None, None
        aside, self._commits.aside = self._commits.aside, []
        for ask in aside:
            if ask.kind is Kind.FETCH:
                self._commits.submit(ask)
            else:
                self._commits.finish(ask, self._commit_failed(ask, ErrorCode.UNKNOWN_MEMBER_ID))

    def _lose(self, now_ms: int) -> None:
        self._pending = None
        self._purpose = Purpose.LOSE
        self._give_up(now_ms)

    # -- leaving ------------------------------------------------------------------------------------------------------

    def _begin_leave(self, now_ms: int) -> None:
        self._pending = None
        self._transition_to(MemberState.PREPARE_LEAVING)
        self._begin_giving_up(Purpose.LEAVE, now_ms + self.config.request_timeout_ms, now_ms)

    def _send_leave(self, now_ms: int) -> None:
        self._token = self._leave_request(self._leave_forced)
        if self._token is None:
            self._left(now_ms)
        else:
            self._transition_to(MemberState.LEAVING)
            self._give_up_by_ms = now_ms + self.config.request_timeout_ms

    def _leave_request(self, forced: bool | None) -> int | None:
        """A static member says that it will be back, unless it is told otherwise (KIP-1092)."""
        static = self.config.group_instance_id is not None
        if not self._announced or not self._finder.known or (forced is False and not static):
            return None
        self._announced = False
        epoch = STATIC_LEAVE_EPOCH if static and not forced else LEAVE_EPOCH
        request = self._heartbeats.leaving(self.member_id, epoch)
        self._heartbeat.in_flight = None
        return self._out.send(request, Destination.COORDINATOR, self.config.request_timeout_ms)

    def _left(self, now_ms: int) -> None:
        reason, self._leaving = self._leaving or "", None
        self._note(f"left: {reason}", now_ms)
        self._why_out = self._why_out if self.fatal else f"it left: {reason}"
        self._forget_the_group()
        self._transition_to(MemberState.UNSUBSCRIBED)
        self._token = None
        self.topics, self._matches, self._regex, self._manual = frozenset(), None, "", False
        self._watch()
        self._out.add(Left(reason))

    # -- the coordinator ----------------------------------------------------------------------------------------------

    def _coordinator_lost(self, reason: str, now_ms: int) -> None:
        super()._coordinator_lost(reason, now_ms)
        self._heartbeats.forget()
        if self.state is MemberState.LEAVING:
            self._left(now_ms)

    def _request_refused(self, token: int, error: KafkaError, now_ms: int) -> None:
        """The broker does not speak what is needed, or refuses this client: no retry helps."""
        if token == self._token:
            self._left(now_ms)
        elif token == self._heartbeat.in_flight:
            self._heartbeat.failed(now_ms)
            self._refused(explained(error.code, str(error), self.config, self._regex), now_ms)
        elif (ask := self._commits.in_flight.pop(token, None)) is not None:
            self._ask_failed(ask, error, now_ms)

    # -- commits ------------------------------------------------------------------------------------------------------

    def _may_commit(self) -> bool:
        return self.generation.valid

    def _asks_as(self) -> Generation:
        return NO_GENERATION if self._manual else self.generation

    def _fetch_answered(self, ask: Ask, response: Any, now_ms: int) -> None:
        (group,) = response.groups
        if ErrorCode.of(group.error_code) in OLD_EPOCH and ask.generation.valid:
            self._ask_again(ask, now_ms)
        else:
            super()._fetch_answered(ask, response, now_ms)

    def _ask_again(self, ask: Ask, now_ms: int) -> None:
        """With the epoch that is known by now, or with the one that the next heartbeat brings."""
        if ask.generation != self.generation:
            self._commits.submit(ask)
        else:
            self._commits.aside.append(ask)
            self._heartbeat.hasten(now_ms)

    def _commit_refused(self, ask: Ask, error: KafkaError, verdict: Verdict, now_ms: int) -> None:
        current = ask.generation == self.generation
        if verdict is Verdict.OUTDATED and ask.generation.valid and self.generation.valid:
            if ask.kind is not Kind.AUTO:
                self._ask_again(ask, now_ms)
                return
            self._next_auto_commit_ms = now_ms + self.config.retry_backoff_ms
            self._heartbeat.hasten(now_ms)
        elif verdict is Verdict.FENCED and current:
            self._fenced_instance(now_ms)
        elif verdict in (Verdict.EVICTED, Verdict.OUTDATED) and ask.generation.valid:
            if current:
                self._put_out("OffsetCommit", error.code, now_ms)
            error = self._commit_failed(ask, error.code)
        self._ask_failed(ask, error, now_ms)

    def _refuse_commit(self, ask: Ask) -> KafkaError:
        if self.state is MemberState.JOINING and not self._why_out:
            text = f"offsets of {partition_list(ask.offsets)} were not committed: this consumer is still joining group"
            return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{text} {self.config.group_id}; poll() completes that")
        return super()._refuse_commit(ask)

    # -- provided by `member` -----------------------------------------------------------------------------------------

    _announced: bool
