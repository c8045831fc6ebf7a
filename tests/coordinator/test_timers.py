"""The timer queue: deadlines in order, moved lazily, cancelled without a trace."""

from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator.timers import Deadline, TimerKind, TimerQueue


def deadline(name: str = "a") -> Deadline:
    return Deadline(TimerKind.DELAYED_HEARTBEAT, "g", name)


def due(queue: TimerQueue, now_ms: int) -> list[str]:
    return [d.member_id for d in queue.due(now_ms)]


def test_deadlines_come_in_the_order_of_time() -> None:
    queue = TimerQueue()
    for name, at_ms in (("b", 20), ("a", 10), ("c", 20)):
        queue.set(deadline(name), at_ms)
    assert queue.next() == 10
    assert due(queue, 9) == []
    assert due(queue, 20) == ["a", "b", "c"]
    assert queue.next() is None


def test_a_deadline_moved_later_does_not_grow_the_heap() -> None:
    queue = TimerQueue()
    heartbeat = deadline()
    for at_ms in range(10, 100_000):
        queue.set(heartbeat, at_ms)
    assert len(queue) == 1
    assert due(queue, 50_000) == []
    assert due(queue, 99_999) == ["a"]


def test_a_deadline_moved_earlier_is_due_once() -> None:
    queue = TimerQueue()
    heartbeat = deadline()
    queue.set(heartbeat, 100)
    queue.set(heartbeat, 50)
    assert queue.next() == 50
    assert due(queue, 60) == ["a"]
    assert due(queue, 200) == []
    queue.set(heartbeat, 300)
    assert due(queue, 300) == ["a"]


def test_a_cancelled_deadline_is_never_due() -> None:
    queue = TimerQueue()
    heartbeat = deadline()
    queue.set(heartbeat, 10)
    heartbeat.cancel()
    assert queue.next() is None
    assert due(queue, 100) == []
    queue.set(heartbeat, 120)
    assert due(queue, 120) == ["a"]


def test_what_is_set_while_others_are_due_counts_too() -> None:
    queue = TimerQueue()
    first, second = deadline("first"), deadline("second")
    queue.set(first, 10)
    seen = []
    for d in queue.due(100):
        seen.append(d.member_id)
        if d is first:
            queue.set(second, 50)
    assert seen == ["first", "second"]


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 5))))
def test_against_a_plain_dict(steps: list[tuple[int, int | None, int]]) -> None:
    """Set, cancel and let time pass at random: what is due, and when the next is, as a dict of deadlines says."""
    queue, model, now_ms = TimerQueue(), {}, 0
    deadlines = [deadline(str(i)) for i in range(5)]
    for index, ahead, passing in steps:
        if ahead is None:
            deadlines[index].cancel()
            model.pop(str(index), None)
        else:
            queue.set(deadlines[index], now_ms + ahead)
            model[str(index)] = now_ms + ahead
        now_ms += passing
        expected = {name for name, at_ms in model.items() if at_ms <= now_ms}
        assert set(due(queue, now_ms)) == expected
        for name in expected:
            del model[name]
        upcoming = queue.next()
        assert (upcoming is None) == (not model)
        assert not model or upcoming <= min(model.values())
