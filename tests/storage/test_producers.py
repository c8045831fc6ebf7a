"""Sequences, duplicates and fencing, as a broker answers an idempotent producer; and the snapshot files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import read_header
from kohort.records.control import ControlType, EndTransactionMarker
from kohort.storage.producers import ProducerStates, check_marker, decode_snapshot, encode_snapshot
from storage_world import batch

MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1


def header(sequence, *, epoch=0, count=1, producer_id=7, transactional=False):
    return read_header(
        batch(
            [("k", "v")] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def producers(*appended):
    states, offset = ProducerStates(), 0
    for each in appended:
        states.appended(each, offset)
        offset += each.last_offset_delta + 1
    return states


def test_batches_without_a_producer_id_are_not_judged():
    assert ProducerStates().check(header(-1, producer_id=-1, epoch=-1)).accepted


def test_the_next_sequence_is_accepted_a_gap_is_not():
    states = producers(header(0, count=3))
    assert states.check(header(3)).accepted
    assert states.check(header(4)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(1)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_start_anywhere():
    assert ProducerStates().check(header(41)).accepted


def test_the_last_five_batches_are_duplicates_older_ones_are_out_of_order():
    states = producers(*(header(sequence) for sequence in range(8)))
    for sequence in range(3, 8):
        assert states.check(header(sequence)).duplicate.first_offset == sequence
    assert states.check(header(2)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_must_match_first_and_last_sequence():
    states = producers(header(0, count=3))
    assert states.check(header(0, count=3)).duplicate[:4] == (0, 2, 0, 2)
    assert states.check(header(0, count=2)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_a_newer_one_starts_at_zero():
    states = producers(header(0, epoch=3))
    assert states.check(header(1, epoch=2)).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(header(0, epoch=4)).accepted
    assert states.check(header(1, epoch=4)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.appended(header(0, epoch=4), 1)
    assert states.check(header(0, epoch=3)).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_to_zero():
    states = producers(header(MAX_SEQUENCE - 1, count=2))
    assert states.check(header(0)).accepted
    states.appended(header(MAX_SEQUENCE, count=2), 2)
    assert states.check(header(MAX_SEQUENCE, count=2)).duplicate.last_sequence == 0
    assert states.check(header(1)).accepted


def test_a_producer_in_a_transaction_must_write_within_it():
    states = producers(header(0, transactional=True))
    assert states.check(header(1)).error == ErrorCode.INVALID_TXN_STATE
    assert states.check(header(1, transactional=True)).accepted


def test_markers_of_zombies_are_refused():
    states = producers(header(0, epoch=3, transactional=True))
    states.ended(7, 3, EndTransactionMarker(ControlType.COMMIT, 5), 1, 0)
    state = states.get(7)
    assert check_marker(state, 7, 2, 5).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert check_marker(state, 7, 3, 4).error == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert check_marker(state, 7, 4, 5).accepted
    assert check_marker(None, 8, 0, 0).accepted


def commit(states, epoch, offset=1):
    states.ended(7, epoch, EndTransactionMarker(ControlType.COMMIT, 5), offset, 0)


def test_a_marker_that_comes_while_the_next_transaction_is_asked_about_does_not_end_that_one():
    states = producers(header(0, epoch=3, transactional=True))
    asked = states.admission(7, 4, raises_epoch=True)
    commit(states, epoch=4)
    assert states.check(header(0, epoch=4, transactional=True), asked).accepted


def test_an_answer_about_a_transaction_that_is_over_is_worth_nothing():
    states = producers()
    asked = states.admission(7, 3, raises_epoch=True)
    commit(states, epoch=4)
    assert not states.check(header(0, epoch=3, transactional=True), asked).accepted
    asked = states.admission(7, 4, raises_epoch=False)
    commit(states, epoch=4)
    assert states.check(header(0, epoch=4, transactional=True), asked).error == ErrorCode.INVALID_TXN_STATE
    asked = states.admission(7, MAX_EPOCH, raises_epoch=True)
    commit(states, epoch=MAX_EPOCH)
    assert states.check(header(0, epoch=MAX_EPOCH, transactional=True), asked).error == ErrorCode.INVALID_TXN_STATE


def test_what_a_zombie_asks_takes_nothing_from_his_successor():
    states = producers()
    asked = states.admission(7, 4, raises_epoch=True)
    zombies = states.admission(7, 3, raises_epoch=True)
    assert states.check(header(0, epoch=4, transactional=True), asked).accepted
    assert states.check(header(0, epoch=3, transactional=True), zombies).error == ErrorCode.INVALID_TXN_STATE


def test_idle_producers_expire_but_not_within_a_transaction():
    states = producers(header(0, producer_id=1), header(0, producer_id=2, transactional=True))
    assert states.expire(now_ms=1999, expiration_ms=1000) == []
    assert states.expire(now_ms=2000, expiration_ms=1000) == [1]
    assert states.first_unstable_offset == 1
    assert states.check(header(9, producer_id=1)).accepted


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, MAX_SEQUENCE), st.integers(1, 4), st.booleans()),
        max_size=20,
    )
)
def test_snapshots_keep_the_last_batch_the_epoch_and_the_open_transaction(appends):
    states = producers(*(header(s, epoch=e, count=n, producer_id=p, transactional=t) for p, e, s, n, t in appends))
    loaded = decode_snapshot(encode_snapshot(states))
    assert loaded.first_unstable_offset == states.first_unstable_offset
    for state in states:
        other = loaded.get(state.producer_id)
        assert (other.epoch, other.last_timestamp, other.coordinator_epoch, other.txn_first_offset) == (
            state.epoch,
            state.last_timestamp,
            state.coordinator_epoch,
            state.txn_first_offset,
        )
        assert list(other.batches) == list(state.batches)[-1:]


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d[:3], lambda d: d[:9] + b"x" + d[10:], lambda d: b"\0\2" + d[2:]]
)
def test_damaged_snapshots_are_recognised(damage):
    with pytest.raises(ValueError, match="snapshot"):
        decode_snapshot(damage(encode_snapshot(producers(header(0)))))
