"""A member of the consumer protocol against a scripted coordinator: requests, answers, time and actions as traces."""

from __future__ import annotations

from random import Random

import pytest

from client.modern_stage import HEARTBEAT_MS, ModernStage, owned_in, topic_id
from client.scripted import tp, tps
from kohort.client.effects import Assign, CommitDone, Fail, Left, Lose, OffsetsFetched, Revoke, WatchTopics
from kohort.client.errors import CommitFailedError, FencedInstanceIdError
from kohort.client.modern.states import STEPS, TRANSITIONS, MemberState
from kohort.client.states import Step
from kohort.client.types import OffsetAndMetadata
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import OffsetFetchResponse

# -- joining -----------------------------------------------------------------------------------------------------------


def test_the_first_heartbeat_tells_everything() -> None:
    stage = ModernStage(client_rack="r1", group_remote_assignor="range", max_poll_interval_ms=60_000)
    request = stage.joining("orders")
    assert stage.member.state is MemberState.JOINING
    assert (request.group_id, request.member_epoch, request.rebalance_timeout_ms) == ("g", 0, 60_000)
    assert (request.rack_id, request.server_assignor, request.instance_id) == ("r1", "range", None)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["orders"], None)
    assert owned_in(request) == {}
    assert len(request.member_id) == 36


def test_member_ids_are_made_of_chance() -> None:
    ids = {ModernStage(uniform=Random(seed).random).member.member_id for seed in range(20)}
    assert len(ids) == 20
    assert ModernStage(uniform=Random(1).random).member.member_id in ids


def test_join_take_over_acknowledge() -> None:
    stage = ModernStage()
    stage.joining()
    stage.heartbeat(3, orders=[0, 1])
    assert stage.member.state is MemberState.RECONCILING
    assert stage.member.generation.generation_id == 3
    stage.quiet()
    assert stage.act(Assign) == Assign(tps("orders-0", "orders-1"), tps("orders-0", "orders-1"), 3)
    request = stage.request("ConsumerGroupHeartbeat")
    assert owned_in(request) == {"orders": [0, 1]}
    assert (request.member_epoch, request.subscribed_topic_names, request.rebalance_timeout_ms) == (3, None, -1)
    assert stage.member.state is MemberState.STABLE
    stage.heartbeat(3)
    stage.quiet()


def test_an_assignment_of_nothing_is_told_to_the_application_and_acknowledged_already() -> None:
    stage = ModernStage()
    stage.joining()
    stage.nothing()
    assert stage.act(Assign) == Assign(frozenset(), frozenset(), 1)
    assert stage.member.settled
    stage.quiet()


def test_nothing_is_joined_before_the_first_poll() -> None:
    stage = ModernStage()
    stage.do(stage.member.subscribe(["orders"], stage.now_ms))
    stage.quiet()
    stage.poll()
    stage.request("FindCoordinator")


def test_a_join_without_an_answer_is_sent_again_with_epoch_0() -> None:
    stage = ModernStage()
    first = stage.joining()
    stage.no_answer()
    stage.pass_time(200)
    stage.coordinator_found()
    again = stage.request("ConsumerGroupHeartbeat")
    assert (again.member_id, again.member_epoch) == (first.member_id, 0)
    assert again.subscribed_topic_names == ["orders"]


# -- heartbeats --------------------------------------------------------------------------------------------------------


def test_heartbeats_come_as_often_as_the_coordinator_says_and_tell_only_news() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.pass_time(HEARTBEAT_MS - 1)
    stage.quiet()
    stage.pass_time(1)
    request = stage.heartbeat()
    assert request.member_epoch == 1
    assert (request.subscribed_topic_names, request.server_assignor, owned_in(request)) == (None, None, None)


def test_after_a_failure_everything_is_told_again() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.pass_time(HEARTBEAT_MS)
    stage.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.quiet()
    stage.pass_time(150)
    request = stage.request("ConsumerGroupHeartbeat")
    assert request.member_epoch == 1
    assert request.subscribed_topic_names == ["orders"]
    assert owned_in(request) == {"orders": [0]}
    assert request.rebalance_timeout_ms == stage.config.max_poll_interval_ms


def test_another_coordinator_is_told_everything() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.pass_time(HEARTBEAT_MS)
    stage.refuse(ErrorCode.NOT_COORDINATOR)
    stage.pass_time(200)
    stage.coordinator_found()
    request = stage.heartbeat()
    assert (request.member_epoch, owned_in(request)) == (1, {"orders": [0]})
    assert stage.member.settled
    assert stage.member.owned == tps("orders-0")


def test_another_subscription_is_told_at_once() -> None:
    stage = ModernStage(topics={"orders": 2, "refunds": 2})
    stage.stable(0)
    stage.do(stage.member.subscribe(["orders", "refunds"], stage.now_ms))
    request = stage.heartbeat()
    assert request.subscribed_topic_names == ["orders", "refunds"]
    assert owned_in(request) is None


def test_every_answer_may_bring_another_epoch() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(7)
    assert stage.member.settled
    assert stage.member.group_metadata().generation_id == 7


# -- reconciling -------------------------------------------------------------------------------------------------------


def test_what_is_kept_is_not_held_back_and_revocations_are_acknowledged_at_once() -> None:
    stage = ModernStage()
    stage.stable(0, 1)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(1, orders=[0])
    assert stage.member.held_back == tps("orders-1")
    revoke = stage.take(Revoke)
    assert revoke.partitions == tps("orders-1")
    assert revoke.deadline_ms == stage.now_ms + stage.config.max_poll_interval_ms
    stage.quiet()
    stage.do(stage.member.revoked(stage.now_ms))
    assert owned_in(stage.request("ConsumerGroupHeartbeat")) == {"orders": [0]}
    assert stage.act(Assign) == Assign(tps("orders-0"), frozenset(), 1)
    stage.heartbeat(2, orders=[0])
    assert stage.member.settled
    stage.quiet()


def test_automatic_commits_come_before_a_revocation() -> None:
    stage = ModernStage(enable_auto_commit=True, auto_commit_interval_ms=60_000)
    stage.stable(0, 1)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(1, orders=[0])
    stage.auto_commit(orders_0=5, orders_1=6)
    request = stage.request("OffsetCommit")
    assert stage.sent[0].min_version == 9
    assert (request.member_id, request.generation_id_or_member_epoch) == (stage.member.member_id, 1)
    assert stage.member.pending is None
    stage.committed()
    assert stage.act(Revoke).partitions == tps("orders-1")


def test_a_commit_of_a_topic_that_is_gone_keeps_nobody_waiting() -> None:
    stage = ModernStage(enable_auto_commit=True, auto_commit_interval_ms=60_000)
    stage.stable(0, 1)
    stage.pass_time(HEARTBEAT_MS)
    stage.nothing(1)
    stage.auto_commit(orders_0=5)
    stage.committed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert stage.act(Revoke).partitions == tps("orders-0", "orders-1")


def test_heartbeats_go_on_while_the_application_gives_partitions_up() -> None:
    stage = ModernStage()
    stage.stable(0, 1)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(1, orders=[0])
    stage.take(Revoke)
    stage.pass_time(HEARTBEAT_MS)
    assert owned_in(stage.heartbeat(1)) is None


def test_an_assignment_that_comes_while_partitions_are_given_up_is_next() -> None:
    stage = ModernStage()
    stage.stable(0, 1)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(1, orders=[0])
    stage.take(Revoke)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(2, orders=[0, 2])
    stage.do(stage.member.revoked(stage.now_ms))
    stage.heartbeat(2)
    assert stage.act(Assign) == Assign(tps("orders-0", "orders-2"), tps("orders-2"), 2)
    assert owned_in(stage.heartbeat(2)) == {"orders": [0, 2]}
    assert stage.member.settled


def test_an_assignment_that_was_not_taken_over_yet_is_replaced() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(2, orders=[0, 1])
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(3, orders=[0, 2])
    assert stage.act(Assign).partitions == tps("orders-0", "orders-2")


def test_unknown_topics_are_waited_for() -> None:
    stage = ModernStage()
    stage.joining("orders", "new")
    stage.effects.clear()
    stage.heartbeat(1, orders=[0], new=[0])
    assert stage.metadata_wanted()
    assert stage.act(Assign).partitions == tps("orders-0")
    assert owned_in(stage.heartbeat(1)) == {"orders": [0]}
    assert stage.member.state is MemberState.RECONCILING
    stage.quiet()
    stage.topics["new"] = 1
    stage.metadata()
    assert stage.act(Assign) == Assign(tps("orders-0", "new-0"), tps("new-0"), 1)
    assert owned_in(stage.heartbeat(1)) == {"new": [0], "orders": [0]}
    assert stage.member.settled


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.ids["orders"] = topic_id("orders2")
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(2, orders=[0])
    stage.metadata()
    assert stage.act(Revoke).partitions == tps("orders-0")
    assert owned_in(stage.heartbeat(2)) == {}
    assert stage.act(Assign) == Assign(tps("orders-0"), tps("orders-0"), 2)
    assert owned_in(stage.heartbeat(2)) == {"orders2": [0]}


def test_a_topic_that_metadata_forgot_is_still_known_while_it_is_owned() -> None:
    stage = ModernStage(topics={"orders": 1, "refunds": 1})
    stage.stable(0)
    del stage.topics["orders"]
    stage.metadata()
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(2, orders=[0], refunds=[0])
    assert stage.act(Assign).added == tps("refunds-0")


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_an_expression_is_the_brokers_to_match_and_its_topics_are_asked_for_by_id() -> None:
    stage = ModernStage()
    stage.do(stage.member.subscribe_regex("ord.*", stage.now_ms))
    stage.poll()
    stage.coordinator_found()
    request = stage.request("ConsumerGroupHeartbeat")
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "ord.*")
    assert stage.sent[0].min_version == 1
    stage.effects.clear()
    stage.heartbeat(1, orders=[0])
    assert stage.of(WatchTopics) == [WatchTopics(frozenset(), frozenset({topic_id("orders")}))]
    assert stage.metadata_wanted()
    stage.metadata()
    stage.act(Assign)
    stage.heartbeat(1)
    stage.do(stage.member.subscribe(["orders"], stage.now_ms))
    request = stage.heartbeat(1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["orders"], "")


def test_a_pattern_of_python_is_matched_here() -> None:
    stage = ModernStage(topics={"orders": 1, "orders-eu": 1, "refunds": 1})
    stage.do(stage.member.subscribe_pattern(lambda name: name.startswith("orders"), stage.now_ms))
    stage.poll()
    stage.coordinator_found()
    stage.quiet()
    stage.metadata()
    assert stage.heartbeat(1, orders=[0]).subscribed_topic_names == ["orders", "orders-eu"]
    stage.act(Assign)
    stage.heartbeat(1)
    stage.topics["orders-us"] = 1
    stage.metadata()
    assert stage.heartbeat(1).subscribed_topic_names == ["orders", "orders-eu", "orders-us"]


# -- dropping out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_fenced_partitions_are_lost_and_the_member_joins_anew(code: ErrorCode) -> None:
    stage = ModernStage()
    stage.stable(0, 1)
    member_id = stage.member.member_id
    stage.pass_time(HEARTBEAT_MS)
    stage.refuse(code)
    assert stage.member.state is MemberState.FENCED
    stage.quiet()
    assert stage.act(Lose).partitions == tps("orders-0", "orders-1")
    request = stage.request("ConsumerGroupHeartbeat")
    assert (request.member_id, request.member_epoch, owned_in(request)) == (member_id, 0, {})
    assert request.subscribed_topic_names == ["orders"]
    stage.heartbeat(9, orders=[0])
    assert stage.act(Assign).added == tps("orders-0")
    assert stage.of(Fail) == []


def test_fenced_while_the_application_gives_up() -> None:
    stage = ModernStage()
    stage.stable(0, 1)
    stage.pass_time(HEARTBEAT_MS)
    stage.heartbeat(2, orders=[0])
    stage.take(Revoke)
    stage.pass_time(HEARTBEAT_MS)
    stage.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    stage.quiet()
    stage.do(stage.member.revoked(stage.now_ms))
    assert stage.act(Lose).partitions == tps("orders-0")
    assert stage.request("ConsumerGroupHeartbeat").member_epoch == 0


def test_a_member_that_polls_too_late_leaves_and_joins_when_it_polls() -> None:
    stage = ModernStage(max_poll_interval_ms=7_000)
    stage.stable(0)
    stage.pass_time(HEARTBEAT_MS, polling=False)
    stage.heartbeat()
    stage.pass_time(2_000, polling=False)
    assert stage.request("ConsumerGroupHeartbeat").member_epoch == -1
    assert stage.member.state is MemberState.STALE
    assert "max.poll.interval.ms=7000" in stage.member.why_out
    stage.heartbeat(-1)
    assert stage.act(Lose).partitions == tps("orders-0")
    stage.quiet()
    stage.poll()
    assert stage.request("ConsumerGroupHeartbeat").member_epoch == 0


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, "group.protocol=classic"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, "close that one, or wait until its session has ended"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "group.consumer.assignors"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.consumer.max.size"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "group.consumer.migration.policy"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed to read as group g"),
        (ErrorCode.INVALID_REQUEST, "does not take this consumer"),
    ],
)
def test_refusals_are_the_applications_to_decide_on(code: ErrorCode, advice: str) -> None:
    stage = ModernStage(group_instance_id="i1")
    stage.joining()
    stage.refuse(code, "told by the broker")
    (failed,) = stage.of(Fail)
    assert isinstance(failed.error, KafkaError) and failed.error.code is code and not failed.fatal
    assert advice in str(failed.error)
    assert "told by the broker" in str(failed.error)
    stage.pass_time(60_000, polling=False)
    stage.quiet()
    stage.poll()
    assert stage.request("ConsumerGroupHeartbeat").member_epoch == 0


def test_a_broker_without_the_protocol() -> None:
    stage = ModernStage()
    stage.joining()
    send = stage.sent.pop(0)
    error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not speak ConsumerGroupHeartbeat")
    stage.do(stage.member.send_failed(send.token, str(error), stage.now_ms, error))
    (failed,) = stage.of(Fail)
    assert "use group.protocol=classic" in str(failed.error)


def test_a_member_that_is_refused_gives_everything_up() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.subscribe_regex("(", stage.now_ms))
    stage.refuse(ErrorCode.INVALID_REGULAR_EXPRESSION)
    assert "'('" in str(stage.of(Fail)[0].error)
    assert stage.heartbeat(-1).member_epoch == -1
    assert stage.act(Lose).partitions == tps("orders-0")
    stage.pass_time(60_000, polling=False)
    stage.quiet()


def test_another_with_the_same_instance_id_is_the_end() -> None:
    stage = ModernStage(group_instance_id="i1")
    stage.stable(0)
    stage.pass_time(HEARTBEAT_MS)
    stage.refuse(ErrorCode.FENCED_INSTANCE_ID)
    (failed,) = stage.of(Fail)
    assert failed.fatal and isinstance(failed.error, FencedInstanceIdError)
    assert stage.act(Lose).partitions == tps("orders-0")
    assert stage.of(Left)
    stage.poll()
    stage.quiet()


# -- leaving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_id", "forced", "epoch"),
    [(None, None, -1), ("i1", None, -2), ("i1", True, -1), ("i1", False, -2), (None, False, None)],
)
def test_leaving(instance_id: str | None, forced: bool | None, epoch: int | None) -> None:
    stage = ModernStage(group_instance_id=instance_id)
    stage.stable(0)
    stage.do(stage.member.leave("closing", stage.now_ms, forced))
    assert stage.member.state is MemberState.PREPARE_LEAVING
    assert stage.act(Revoke).partitions == tps("orders-0")
    if epoch is not None:
        request = stage.request("ConsumerGroupHeartbeat")
        assert (request.member_epoch, request.instance_id) == (epoch, instance_id)
        assert (request.topic_partitions, request.subscribed_topic_names) == (None, None)
        stage.heartbeat(epoch)
    assert stage.of(Left) == [Left("closing")]
    assert stage.member.state is MemberState.UNSUBSCRIBED
    stage.quiet()


def test_leaving_while_joining() -> None:
    stage = ModernStage()
    stage.joining()
    stage.sent.pop(0)
    stage.do(stage.member.leave("closing", stage.now_ms))
    assert stage.heartbeat(-1).member_epoch == -1
    assert stage.of(Left)


def test_a_commit_that_is_refused_while_it_leaves_changes_nothing_about_that() -> None:
    """Its session was over before it left: the coordinator knows it no more, and it is on its way out anyway."""
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.commit(1, FIVE, stage.now_ms))
    stage.do(stage.member.leave("closing", stage.now_ms))
    stage.act(Revoke)
    assert stage.member.state is MemberState.LEAVING
    stage.committed(ErrorCode.UNKNOWN_MEMBER_ID)
    assert stage.member.state is MemberState.LEAVING
    stage.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert stage.of(Left) == [Left("closing")]


def test_leaving_ends_without_an_answer() -> None:
    stage = ModernStage()
    stage.stable()
    stage.do(stage.member.leave("closing", stage.now_ms))
    stage.request("ConsumerGroupHeartbeat")
    stage.pass_time(stage.config.request_timeout_ms)
    assert stage.of(Left)


def test_leaving_while_the_application_takes_over() -> None:
    stage = ModernStage()
    stage.joining()
    stage.heartbeat(1, orders=[0])
    stage.take(Assign)
    stage.do(stage.member.leave("closing", stage.now_ms))
    stage.do(stage.member.assigned(stage.now_ms))
    assert stage.act(Revoke).partitions == tps("orders-0")
    epochs = [send.request.member_epoch for send in stage.sent]
    assert epochs[-1] == -1


def test_subscribing_again_after_leaving() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.leave("unsubscribed", stage.now_ms))
    stage.act(Revoke)
    stage.heartbeat(-1)
    stage.subscribe("orders")
    assert stage.request("ConsumerGroupHeartbeat").member_epoch == 0


# -- offsets -----------------------------------------------------------------------------------------------------------

FIVE = {tp("orders-0"): OffsetAndMetadata(5)}


def offsets_refused(code: ErrorCode) -> OffsetFetchResponse:
    group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", error_code=code)
    return OffsetFetchResponse(groups=[group])


def test_a_commit_with_an_old_epoch_is_sent_again_with_the_new_one() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.commit(1, FIVE, stage.now_ms))
    stage.committed(ErrorCode.STALE_MEMBER_EPOCH)
    assert stage.of(CommitDone) == []
    stage.heartbeat(2)
    request = stage.committed()
    assert request.generation_id_or_member_epoch == 2
    assert stage.of(CommitDone) == [CommitDone(1, FIVE, None)]


def test_a_commit_whose_epoch_has_passed_meanwhile_is_sent_again_at_once() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.pass_time(HEARTBEAT_MS)
    stage.do(stage.member.commit(1, FIVE, stage.now_ms))
    stage.heartbeat(2)
    stage.committed(ErrorCode.STALE_MEMBER_EPOCH)
    assert stage.committed().generation_id_or_member_epoch == 2


def test_committed_offsets_are_asked_for_as_a_member() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.fetch_offsets(4, tps("orders-0"), stage.now_ms))
    (group,) = stage.request("OffsetFetch").groups
    assert (group.member_id, group.member_epoch, stage.sent[0].min_version) == (stage.member.member_id, 1, 9)
    stage.answer(offsets_refused(ErrorCode.STALE_MEMBER_EPOCH))
    stage.heartbeat(2)
    (group,) = stage.request("OffsetFetch").groups
    assert group.member_epoch == 2
    assert stage.of(OffsetsFetched) == []


def test_committed_offsets_of_a_member_that_is_out_are_asked_for_as_nobody() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.fetch_offsets(4, tps("orders-0"), stage.now_ms))
    stage.request("OffsetFetch")
    stage.answer(offsets_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    stage.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    (group,) = stage.request("OffsetFetch").groups
    assert group.member_id in ("", None) and group.member_epoch == -1


def test_a_commit_of_a_member_that_is_out_has_failed() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.commit(1, FIVE, stage.now_ms))
    stage.committed(ErrorCode.UNKNOWN_MEMBER_ID)
    (done,) = stage.of(CommitDone)
    assert isinstance(done.error, CommitFailedError)
    assert "epoch 1 of group g" in str(done.error)
    assert stage.act(Lose).partitions == tps("orders-0")


def test_a_commit_that_waits_for_an_epoch_fails_with_the_membership() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.commit(1, FIVE, stage.now_ms))
    stage.committed(ErrorCode.STALE_MEMBER_EPOCH)
    stage.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    (done,) = stage.of(CommitDone)
    assert isinstance(done.error, CommitFailedError)


def test_a_commit_that_waits_for_an_epoch_can_be_taken_back() -> None:
    stage = ModernStage()
    stage.stable(0)
    stage.do(stage.member.commit(1, FIVE, stage.now_ms))
    stage.committed(ErrorCode.STALE_MEMBER_EPOCH)
    assert stage.member.forget(1) is False
    stage.heartbeat(2)
    stage.quiet()


def test_a_commit_before_joining_says_what_to_do() -> None:
    stage = ModernStage()
    stage.joining()
    stage.do(stage.member.commit(1, FIVE, stage.now_ms))
    (done,) = stage.of(CommitDone)
    assert "poll()" in str(done.error)


# -- the tables --------------------------------------------------------------------------------------------------------


def test_every_state_and_step_has_its_moves() -> None:
    assert set(TRANSITIONS) == set(MemberState)
    assert set(STEPS) == {Step.IDLE, Step.COMMITTING, Step.REVOKING, Step.TAKING_OVER} == set().union(*STEPS.values())
    reachable = {state for moves in TRANSITIONS.values() for state in moves}
    assert reachable == set(MemberState)


@pytest.mark.parametrize("seed", range(150))
def test_whatever_happens_the_tables_hold_and_what_is_acknowledged_was_given_up(seed: int) -> None:
    """Random answers, failures, user calls: no illegal move, one action at a time, nothing acknowledged too early."""
    chance = Random(seed)
    stage = ModernStage(topics={"orders": 4}, enable_auto_commit=chance.random() < 0.5)
    stage.subscribe("orders")
    stage.metadata()
    epoch, reading, taken = 0, set(), None
    codes = [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR]
    for _ in range(200):
        what, known = chance.random(), len(stage.sent)
        if stage.sent and what < 0.5:
            known -= 1
            request = stage.sent[0].request
            name = type(request).__name__
            if chance.random() < 0.1:
                stage.no_answer()
            elif name == "FindCoordinatorRequest":
                stage.coordinator_found()
            elif name == "OffsetCommitRequest":
                stage.committed(chance.choice([ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]))
            elif chance.random() < 0.15:
                stage.refuse(chance.choice(codes))
            else:
                epoch += chance.random() < 0.5
                numbers = [number for number in range(4) if chance.random() < 0.5]
                assigned = chance.random() < 0.5 or request.member_epoch == 0
                stage.answer(stage._accepted(max(1, epoch), {"orders": numbers} if assigned else None))
        elif what < 0.6:
            stage.pass_time(chance.choice([10, 200, HEARTBEAT_MS]))
        elif taken is not None:
            if isinstance(taken, Assign):
                stage.do(stage.member.assigned(stage.now_ms))
            elif isinstance(taken, Revoke | Lose):
                reading -= taken.partitions
                stage.do(stage.member.revoked(stage.now_ms))
            else:
                stage.do(stage.member.auto_commit({one: OffsetAndMetadata(1) for one in reading}, stage.now_ms))
            taken = None
        elif stage.member.pending is not None:
            taken = stage.member.take(stage.now_ms)
            if isinstance(taken, Assign):
                assert taken.partitions - taken.added <= reading
                reading |= taken.partitions
                assert reading == taken.partitions
            elif isinstance(taken, Revoke | Lose):
                assert taken.partitions <= reading
        elif what > 0.98:
            stage.do(stage.member.leave("closing", stage.now_ms))
        elif stage.of(Left):
            assert not reading
            stage.subscribe("orders")
        else:
            stage.poll()
        assert stage.member.owned == reading
        for send in stage.sent[known:]:
            if getattr(send.request, "topic_partitions", None) is not None:
                assert {tp(f"orders-{number}") for number in owned_in(send.request).get("orders", [])} == reading
