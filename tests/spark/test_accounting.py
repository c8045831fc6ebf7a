"""Every offset is read or has a reason: gaps, markers and compacted records are told apart."""

from __future__ import annotations

from kohort.client.types import TopicPartition
from kohort.records.batch import Record, build_batch
from kohort.spark.accounting import Account

TP = TopicPartition("t", 0)


def batch(first: int, stop: int, **options: object) -> bytes:
    return build_batch([Record(offset, 0, None, b"x") for offset in range(first, stop)], base_offset=first, **options)


def test_whole_batches_in_order() -> None:
    account = Account(TP, 3, 9)
    assert account.walk(batch(0, 5) + batch(5, 8)) and not account.complete
    assert account.next_offset == 8 and account.gaps == []
    assert account.walk(batch(8, 20)) and account.complete


def test_an_answer_without_a_whole_batch_is_no_progress() -> None:
    account = Account(TP, 0, 9)
    assert not account.walk(b"") and not account.walk(batch(0, 5)[:-1])


def test_a_batch_beyond_the_end_of_the_range_is_left_alone() -> None:
    account = Account(TP, 0, 5)
    account.walk(batch(0, 5) + batch(7, 9))
    assert account.complete and account.gaps == []


def test_a_gap_is_a_loss_unless_the_topic_is_compacted() -> None:
    account = Account(TP, 0, 9)
    account.walk(batch(0, 2) + batch(4, 9))
    assert account.gaps == [(2, 4)]
    harmless, loss = account.explain_gaps(lambda: "compact,delete")
    assert loss is None and harmless is not None and "2 offsets" in harmless and "compaction" in harmless
    harmless, loss = account.explain_gaps(lambda: "delete")
    assert harmless is None and loss is not None and "[2, 4)" in loss


def test_the_policy_is_not_asked_for_without_a_gap() -> None:
    account = Account(TP, 0, 2)
    account.walk(batch(0, 2))

    def never() -> str:
        raise AssertionError

    assert account.explain_gaps(never) == (None, None)


def test_markers_and_compacted_records_are_counted() -> None:
    account = Account(TP, 0, 9)
    kept = build_batch([Record(0, 0, b"k", b"v"), Record(4, 0, b"l", b"v")], base_offset=0)
    account.walk(kept + batch(5, 6, control=True, transactional=True, producer_id=1, producer_epoch=0) + batch(6, 9))
    assert account.complete and (account.compacted, account.markers, account.gaps) == (3, 1, [])
