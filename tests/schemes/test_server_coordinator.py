"""The coordinator that watches ZooKeeper: nobody starts before all have stopped, and another takes over."""

from kohort.schemes.divided import lose_one
from kohort.schemes.scheme import SESSION_TIMEOUT_MS
from kohort.schemes.server_coordinator import ServerCoordinator

SEED = 0


def group_of(*names, partitions=6):
    group = ServerCoordinator(SEED, partitions)
    for name in names:
        group.join(name)
        later(group, 1_000)
    return group


def later(group, duration_ms):
    group.scheduler.run(group.scheduler.now_ms + duration_ms)


def read(group, *names):
    return [sorted(group.meter.read_by(name)) for name in names]


def test_nobody_starts_while_one_has_not_confirmed_that_it_stopped():
    group = group_of("a", "b")
    assert read(group, "a", "b") == [[0, 1, 2], [3, 4, 5]]
    group.consumers["b"].down.cut()  # in ZooKeeper it is as alive as ever
    group.join("0")
    later(group, 30_000)
    assert read(group, "0", "a", "b") == [[], [], [3, 4, 5]]
    group.consumers["b"].down.heal()
    later(group, 1_000)
    assert read(group, "0", "a", "b") == [[0, 1], [2, 3], [4, 5]]
    assert group.meter.now().two_readers_ms == 0


def test_a_consumer_that_zookeeper_gives_up_is_waited_for_a_moment_only():
    group = group_of("a", "b")
    group.cut("b")
    later(group, SESSION_TIMEOUT_MS + 500)
    assert read(group, "a", "b") == [[], [3, 4, 5]]
    later(group, 1_000)
    assert read(group, "a", "b") == [[0, 1, 2, 3, 4, 5], [3, 4, 5]]
    group.heal("b")
    later(group, 1_000)
    assert read(group, "a", "b") == [[0, 1, 2], [3, 4, 5]]


def test_a_coordinator_that_dies_amid_a_rebalance_is_replaced_and_its_commands_are_old():
    group = group_of("a", "b")
    group.consumers["b"].down.cut()
    group.join("0")
    later(group, 1_000)
    group.lose_broker()
    later(group, SESSION_TIMEOUT_MS + 1_000)
    group.consumers["b"].down.heal()  # both coordinators' commands arrive
    later(group, 1_000)
    assert read(group, "0", "a", "b") == [[0, 1], [2, 3], [4, 5]]
    assert group.meter.agreed_since_ms is not None
    assert group.meter.now().two_readers_ms == 0


def test_coordinators_follow_one_another_until_none_is_left():
    group = group_of("a")
    for _ in range(2):
        group.lose_broker()
        later(group, SESSION_TIMEOUT_MS + 1_000)
    group.join("b")
    later(group, 1_000)
    assert read(group, "a", "b") == [[0, 1, 2], [3, 4, 5]]
    group.lose_broker()
    group.join("c")
    later(group, 60_000)
    assert read(group, "a", "b", "c") == [[0, 1, 2], [3, 4, 5], []], "they read on, but nobody coordinates"


def test_groups_are_divided_and_a_broker_that_dies_takes_only_its_own_along():
    undivided, divided, today, following = lose_one(9, SEED)
    assert (undivided.coordinators, undivided.its_own, undivided.rebalanced) == (1, 9, 9)
    assert (divided.coordinators, divided.its_own, divided.rebalanced, divided.others_rebalanced) == (3, 3, 3, 0)
    assert divided.coordinated_after_ms >= SESSION_TIMEOUT_MS - 1_000
    for real in (today, following):
        assert real.coordinators > 1 and real.its_own < 9
        assert (real.rebalanced, real.others_rebalanced) == (0, 0), "another reads what the one that died has stored"
        assert real.coordinated_after_ms <= SESSION_TIMEOUT_MS + 2_000
