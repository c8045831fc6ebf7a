"""A store is asked as much at a time as it can answer."""

import pytest

from kohort.cluster.engine import EngineError
from kohort.cluster.waves import FIRST, MOST, SLOW_S, in_waves

TIMEOUT_S = 5.0


class Store:
    """Answers one after the other, so many seconds each; whoever waits for too long gives up."""

    def __init__(self, seconds_each, distance_s=0.0):
        self.seconds_each = seconds_each
        self.distance_s = distance_s
        self.now_s = 0.0
        self.waves = []

    def ask(self, questions):
        self.waves.append(len(questions))
        waits = [number * self.seconds_each for number in range(1, len(questions) + 1)]
        self.now_s += self.distance_s + min(waits[-1], TIMEOUT_S)
        late = EngineError("too late")
        return [question() if wait < TIMEOUT_S else late for question, wait in zip(questions, waits, strict=True)]

    def answers(self, count):
        return in_waves([lambda number=number: number for number in range(count)], self.ask, lambda: self.now_s)


@pytest.mark.parametrize("seconds_each", [0, 0.005, 0.1, 0.5, 1.5, 3])
def test_all_are_answered_in_order_however_slow_the_store_is(seconds_each):
    store = Store(seconds_each)
    assert store.answers(300) == list(range(300))
    assert max(store.waves) <= MOST


def test_a_store_that_is_only_far_is_asked_many_at_a_time():
    store = Store(0, distance_s=0.03)
    store.answers(500)
    assert len(store.waves) <= 500 // MOST + 4
    assert store.waves[0] == FIRST


def test_a_slow_store_is_asked_few_at_a_time_and_nobody_gives_up():
    store = Store(0.2)
    store.answers(100)
    assert all(wave * 0.2 <= 2 * SLOW_S for wave in store.waves)


def test_where_all_fail_the_store_is_out_of_reach_and_nobody_asks_again():
    store = Store(TIMEOUT_S)
    with pytest.raises(EngineError):
        store.answers(100)
    assert store.waves == [FIRST]


def test_nothing_is_asked_for_nothing():
    assert list(in_waves([], Store(1).ask, lambda: 0.0)) == []
