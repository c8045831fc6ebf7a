"""What the meter counts, step by step."""

from kohort.schemes.meter import Meter, View
from kohort.sim.scheduler import Scheduler


def seen(*members, basis=0):
    return View(frozenset(members), basis)


def meter_of(*members, partitions=2):
    meter = Meter(Scheduler(0))
    meter.topic_has(partitions)
    for name in members:
        meter.joined(name)
    return meter


def later(meter, duration_ms):
    meter.scheduler.run(meter.scheduler.now_ms + duration_ms)


def test_agreement_needs_everybody_the_true_view_and_one_reader_each():
    meter = meter_of("a", "b")
    meter.reads("a", [0], seen("a", "b"))
    assert meter.agreed_since_ms is None, "b has no view yet"
    later(meter, 10)
    meter.reads("b", [1], seen("a", "b"))
    assert meter.agreed_since_ms == 10
    meter.reads("b", [1], seen("a", "b", basis=1))
    assert meter.agreed_since_ms is None, "two views"
    meter.reads("a", [0], seen("a", "b", basis=1))
    assert meter.agreed_since_ms == 10
    meter.joined("c")
    assert meter.agreed_since_ms is None, "one view, but not of the group as it is"


def test_time_is_added_to_what_was_wrong_meanwhile():
    meter = meter_of("a", "b")
    later(meter, 5)
    meter.reads("a", [0, 1], seen("a"))
    later(meter, 7)
    meter.reads("b", [1], seen("a", "b"))
    later(meter, 11)
    meter.reads("a", [0], seen("a", "b"))
    later(meter, 13)
    meter.gone("b")
    later(meter, 17)
    tally = meter.now()
    assert (tally.no_reader_ms, tally.two_readers_ms, tally.disagreeing_ms) == (5 + 17, 11, 11)
    assert meter.unread == 1


def test_new_partitions_are_unread_until_somebody_reads_them():
    meter = meter_of("a", partitions=1)
    meter.reads("a", [0], seen("a"))
    meter.topic_has(2)
    assert (meter.unread, meter.agreed_since_ms) == (1, None)
    before = meter.now()
    later(meter, 3)
    assert meter.now().since(before).no_reader_ms == 3
