"""What keeps a member in its group: heartbeats, the session, the poll interval, the coordinator, commits.

Builds on `joining`, which says what being out means.
"""

from __future__ import annotations

from kohort.client.commits import Ask, Verdict
from kohort.client.committing import COORDINATOR_MOVED
from kohort.client.effects import Destination, Fail
from kohort.client.errors import RebalanceInProgressError, error_for
from kohort.client.joining import Joining
from kohort.client.states import MemberState, Step
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import HeartbeatRequest


class Liveness(Joining):
    # -- heartbeats ---------------------------------------------------------------------------------------------------

    def _mind_the_session(self, now_ms: int) -> None:
        heartbeat = self._heartbeat
        if now_ms >= heartbeat.poll_ends_ms:
            self._polled_too_late(now_ms)
        elif not self._finder.known:
            return
        elif now_ms >= heartbeat.session_ends_ms:
            self._coordinator_lost("session timed out without receiving a heartbeat response", now_ms)
        elif heartbeat.in_flight is None and now_ms >= heartbeat.next_ms:
            heartbeat.sent(self._send_heartbeat(), now_ms)

    def _send_heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.config.group_id,
            generation_id=self.generation.generation_id,
            member_id=self.generation.member_id,
            group_instance_id=self.config.group_instance_id,
        )
        return self._out.send(request, Destination.COORDINATOR, self.config.request_timeout_ms)

    def _heartbeat_answer(self, code: ErrorCode, now_ms: int) -> None:
        heartbeat = self._heartbeat
        if code is ErrorCode.NONE:
            heartbeat.answered(now_ms)
            self._look_at_assignments()
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            heartbeat.answered(now_ms)
            if self.state is MemberState.STABLE and not self._rejoin_needed:
                self._request_rejoin("group is already rebalancing", now_ms)
        elif code in COORDINATOR_MOVED:
            self._coordinator_lost(f"Heartbeat answered {code.name}", now_ms)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._fenced(now_ms)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._evicted("Heartbeat", code, now_ms)
        elif code.retriable:
            heartbeat.failed(now_ms)
        else:
            heartbeat.failed(now_ms)
            self._out.add(
                Fail(error_for(code, f"a heartbeat in group {self.config.group_id} was refused: {code.message}"))
            )

    def _evicted(self, api: str, code: ErrorCode, now_ms: int) -> None:
        heartbeat = self._heartbeat
        silence = (now_ms - heartbeat.last_heard_ms) / 1000
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            why = f"the coordinator no longer knows member {self.member_id}: "
            session = f"session.timeout.ms={self.config.session_timeout_ms}"
            if silence * 1000 >= self.config.session_timeout_ms:
                why += f"its last heartbeat was answered {silence:.0f} s ago, over {session}"
            elif heartbeat.last_heard_ms < heartbeat.last_answer_ms:
                why += (
                    f"it was without a coordinator for {silence:.0f} s at most, within {session}, so the one found "
                    "since has lost the group, or the group was deleted, or it removed this member"
                )
            else:
                limit = f"max.poll.interval.ms={self.config.max_poll_interval_ms}"
                why += f"it did not rejoin a rebalance within {limit}, or it was removed by an administrator"
        else:
            why = f"group {self.config.group_id} has gone on from generation {self._number} without this member"
        reason = f"encountered {code.name} from {api} response"
        self._reset(reason, now_ms, code is ErrorCode.UNKNOWN_MEMBER_ID, why)

    def _polled_too_late(self, now_ms: int) -> None:
        seconds = (now_ms - self._heartbeat.last_poll_ms) / 1000
        limit = self.config.max_poll_interval_ms
        why = (
            f"poll() was last called {seconds:.0f} s ago, over max.poll.interval.ms={limit}: handle fewer records "
            "between polls (max.poll.records) or raise max.poll.interval.ms"
        )
        self._leave_request("consumer poll timeout has expired.", None)
        self._active = False
        self._reset("consumer poll timeout has expired", now_ms, forget_member=True, why=why)

    # -- the coordinator ----------------------------------------------------------------------------------------------

    def _coordinator_lost(self, reason: str, now_ms: int) -> None:
        super()._coordinator_lost(reason, now_ms)
        self._look = None
        if self._token is None:
            return
        self._token = None
        if self.step is Step.LEAVING:
            self._left(now_ms)
        else:
            self._join_again("rebalance failed: the coordinator was lost", now_ms, self.config.retry_backoff_ms)

    def _request_refused(self, token: int, error: KafkaError, now_ms: int) -> None:
        """The broker does not speak what is needed, or refuses this client: no retry helps."""
        if token == self._token:
            self._token = None
            if self.step is Step.LEAVING:
                self._left(now_ms)
            else:
                self._fail_join(error, now_ms)
        elif token == self._heartbeat.in_flight:
            self._heartbeat.failed(now_ms)
            self._out.add(Fail(error))
        elif token == self._look:
            self._cannot_look(str(error), now_ms)
        elif (ask := self._commits.in_flight.pop(token, None)) is not None:
            self._ask_failed(ask, error, now_ms)

    # -- commits ------------------------------------------------------------------------------------------------------

    def _may_commit(self) -> bool:
        return self.state is MemberState.STABLE

    def _refuse_commit(self, ask: Ask) -> KafkaError:
        if self.rebalancing:
            return RebalanceInProgressError(
                f"group {self.config.group_id} is rebalancing ({self._rejoin_reason or 'others changed the group'}); "
                "poll() completes it, then commit again what is still assigned"
            )
        return super()._refuse_commit(ask)

    def _commit_refused(self, ask: Ask, error: KafkaError, verdict: Verdict, now_ms: int) -> None:
        current = ask.generation == self.generation
        if verdict is Verdict.REJOIN and current and not self._rejoin_needed:
            self._request_rejoin("offset commit failed since group is already rebalancing", now_ms)
        elif verdict in (Verdict.EVICTED, Verdict.OUTDATED, Verdict.FENCED) and ask.generation.valid:
            error = self._judge(ask, error, verdict, current, now_ms)
        self._ask_failed(ask, error, now_ms)

    def _judge(self, ask: Ask, error: KafkaError, verdict: Verdict, current: bool, now_ms: int) -> KafkaError:
        """The generation of the commit is gone: because we moved on (commit again), or because the group did."""
        if not current and self.generation.valid:
            return RebalanceInProgressError(
                f"the commit was sent in generation {ask.generation.generation_id}, the group is in {self._number} "
                "by now; commit again what is still assigned"
            )
        if current and verdict is Verdict.FENCED:
            self._fenced(now_ms)
            return self.fatal if isinstance(self.fatal, KafkaError) else error
        if current:
            self._evicted("OffsetCommit", error.code, now_ms)
        return self._commit_failed(ask, error.code)
