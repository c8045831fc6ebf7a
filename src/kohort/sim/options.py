"""A run's options, drawn from its seed. Each can be overridden, which is how a failure is shrunk to what it needs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky", "cooperative-sticky,range", "range,roundrobin")

OFFSETS_PARTITIONS = 3  # at first


@dataclass(frozen=True, slots=True)
class Options:
    """Intervals are the mean time between two faults of a kind; 0 means never."""

    minutes: float = 5.0
    groups: int = 3
    members: int = 20
    topics: int = 3
    max_partitions: int = 8
    producers: int = 2
    produce_every_ms: int = 2000
    assignors: tuple[str, ...] = ("cooperative-sticky",)
    protocols: tuple[str, ...] = ("classic",)  # of the groups in turn: classic, consumer, or either, a draw a life
    static_share: float = 0.3
    manual_commit_share: float = 0.5
    session_timeout_ms: int = 10_000
    max_poll_interval_ms: int = 30_000
    max_delay_ms: int = 20
    initial_rebalance_delay_ms: int = 0
    fsync_always: bool = False
    broker_crash_every_ms: int = 60_000
    power_loss_share: float = 0.0
    broker_stall_every_ms: int = 60_000
    disk_error_every_ms: int = 30_000
    slow_disk_every_ms: int = 60_000
    connection_loss_every_ms: int = 10_000
    partition_every_ms: int = 30_000
    member_crash_every_ms: int = 20_000
    member_stall_every_ms: int = 30_000
    late_poll_every_ms: int = 60_000
    duplicate_every_ms: int = 60_000
    member_leave_every_ms: int = 30_000
    resubscribe_every_ms: int = 40_000
    grow_every_ms: int = 60_000
    loners: int = 0  # groups with one client that is rarely a member
    commit_every_ms: int = 0  # of a loner
    transactors: int = 0  # producers with transactional ids, each with a group whose offsets are in its transactions
    transact_every_ms: int = 500
    queries: int = 0  # of Spark, with the exactly-once sink
    spare_topics: int = 0  # that may be deleted and created again
    subscribe_to_spares: bool = False
    retention_ms: int = 0  # of offsets; 0 means Kafka's week
    retention_check_ms: int = 1_000
    commit_timeout_ms: int = 5_000
    look_every_ms: int = 0
    delete_groups_every_ms: int = 0
    delete_offsets_every_ms: int = 0
    recreate_topic_every_ms: int = 0
    grow_offsets_topic_every_ms: int = 0
    offsets_error_every_ms: int = 0
    slow_offsets_every_ms: int = 0
    sync_error_every_ms: int = 0
    damage_every_ms: int = 0
    damage_is_mended: bool = True
    brokers: int = 1
    broker_session_timeout_ms: int = 3_000  # this and what follows: of several
    store_delay_ms: int = 20
    store_trouble: float = 0.0  # how many of the requests to the store fail, in one way or another
    journal_objects: int = 500
    kill_every_ms: int = 0
    pause_every_ms: int = 0
    restart_every_ms: int = 0  # after handing everything over
    store_cut_every_ms: int = 0
    hide_every_ms: int = 0  # cut off from clients
    move_every_ms: int = 0
    join_every_ms: int = 0

    @property
    def heartbeat_interval_ms(self) -> int:
        return min(3000, self.session_timeout_ms // 3)

    @classmethod
    def from_seed(cls, seed: int, **overrides: Any) -> Options:
        random = Random(f"options {seed}")

        def interval(low_ms: int, high_ms: int) -> int:
            """A third of the runs go without a fault of a kind, so that the others show more clearly."""
            return 0 if random.random() < 0.33 else random.randint(low_ms, high_ms)

        fsync_always = random.random() < 0.5
        drawn = cls(
            groups=random.randint(1, 3),
            members=random.choice([3, 6, 10, 20]),
            topics=random.randint(1, 3),
            max_partitions=random.choice([2, 4, 8]),
            producers=random.randint(1, 2),
            produce_every_ms=random.choice([1000, 2000, 4000]),
            assignors=tuple(random.choice(ASSIGNORS) for _ in range(3)),
            static_share=random.choice([0.0, 0.3, 1.0]),
            manual_commit_share=random.choice([0.0, 0.5, 1.0]),
            session_timeout_ms=random.choice([6_000, 10_000, 30_000]),
            max_poll_interval_ms=random.choice([15_000, 30_000, 60_000]),
            max_delay_ms=random.choice([2, 20, 200]),
            initial_rebalance_delay_ms=random.choice([0, 0, 3000]),
            fsync_always=fsync_always,
            broker_crash_every_ms=interval(15_000, 120_000),
            power_loss_share=0.5 if fsync_always else 0.0,
            broker_stall_every_ms=interval(20_000, 120_000),
            disk_error_every_ms=interval(5_000, 60_000),
            slow_disk_every_ms=interval(20_000, 120_000) if fsync_always else 0,
            connection_loss_every_ms=interval(2_000, 30_000),
            partition_every_ms=interval(10_000, 90_000),
            member_crash_every_ms=interval(5_000, 60_000),
            member_stall_every_ms=interval(10_000, 90_000),
            late_poll_every_ms=interval(20_000, 120_000),
            duplicate_every_ms=interval(15_000, 90_000),
            member_leave_every_ms=interval(10_000, 90_000),
            resubscribe_every_ms=interval(20_000, 120_000),
            grow_every_ms=interval(30_000, 120_000),
        )
        given = _administration(random, fsync_always)
        if overrides.get("brokers", 1) > 1:
            given = _NOT_OF_A_CLUSTER | _cluster(Random(f"cluster {seed}"))
        return replace(drawn, **(given | overrides))

    def faults(self) -> list[str]:
        """The names of the options that are intervals of faults and not off."""
        return [
            f.name for f in fields(self) if f.name.endswith(_FAULT) and f.name not in _USE and getattr(self, f.name)
        ]


_FAULT = ("_every_ms", "retention_ms")
_USE = ("produce_every_ms", "commit_every_ms", "transact_every_ms")

_MIXED = (("consumer",), ("classic", "consumer"), ("either",))
MOVING: dict[str, Any] = {"protocols": ("either",), "assignors": ("cooperative-sticky",)}
"""Groups that move between the protocols: members that are to meet in one must have an assignor in common."""


def protocols_of(seed: int) -> dict[str, Any]:
    """A third of the seeds have groups of the consumer protocol, or such as move; the worlds of the others stay."""
    random = Random(f"protocols {seed}")
    if random.random() >= 1 / 3:
        return {}
    protocols = random.choice(_MIXED)
    return dict(MOVING) if protocols == MOVING["protocols"] else {"protocols": protocols}


TRANSACTIONS: dict[str, Any] = {
    "transactors": 3,
    "members": 3,
    "groups": 1,
    "loners": 0,
    "spare_topics": 0,
    "retention_ms": 0,
    "damage_every_ms": 0,
    "grow_offsets_topic_every_ms": 0,
    "delete_groups_every_ms": 0,
    "delete_offsets_every_ms": 0,
    "recreate_topic_every_ms": 0,
}
"""A world of transactions: what takes offsets or topics away from them is left out."""


SINK: dict[str, Any] = {**TRANSACTIONS, "transactors": 0, "queries": 2}
"""A world of Spark queries that write exactly once."""


def _administration(random: Random, fsync_always: bool) -> dict[str, Any]:
    def interval(low_ms: int, high_ms: int, share: float = 0.67) -> int:
        return random.randint(low_ms, high_ms) if random.random() < share else 0

    damage_every_ms = interval(20_000, 60_000, 0.3)
    return {
        "loners": random.choice([1, 2, 3]),
        "commit_every_ms": random.choice([400, 1_000, 3_000]),
        "spare_topics": random.choice([1, 2]),
        "retention_ms": random.choice([0, 3_000, 10_000, 30_000]),
        "retention_check_ms": random.choice([100, 1_000, 5_000]),
        "commit_timeout_ms": random.choice([1_000, 5_000, 5_000]),
        "look_every_ms": interval(500, 5_000),
        "delete_groups_every_ms": interval(1_000, 20_000),
        "delete_offsets_every_ms": interval(1_000, 20_000),
        "recreate_topic_every_ms": interval(5_000, 40_000),
        # A group that cannot be found may be in a partition that cannot be read: one run shows one of the two.
        "grow_offsets_topic_every_ms": 0 if damage_every_ms else interval(15_000, 90_000, 0.3),
        "offsets_error_every_ms": interval(3_000, 40_000),
        "slow_offsets_every_ms": interval(5_000, 40_000) if fsync_always else 0,
        "sync_error_every_ms": interval(20_000, 90_000, 0.3) if fsync_always else 0,
        "damage_every_ms": damage_every_ms,
        "damage_is_mended": random.random() < 0.5,
    }


_NOT_OF_A_CLUSTER: dict[str, Any] = {
    "broker_crash_every_ms": 0,
    "broker_stall_every_ms": 0,
    "disk_error_every_ms": 0,
    "slow_disk_every_ms": 0,
    "grow_every_ms": 0,
    "power_loss_share": 0.0,
}
"""Faults of one broker and its disk; those of several have names of their own."""


def _cluster(random: Random) -> dict[str, Any]:
    def interval(low_ms: int, high_ms: int) -> int:
        return 0 if random.random() < 0.33 else random.randint(low_ms, high_ms)

    return {
        "broker_session_timeout_ms": random.choice([2_000, 3_000, 9_000]),
        "store_delay_ms": random.choice([1, 20, 150]),
        "store_trouble": random.choice([0.0, 0.01, 0.1]),
        "journal_objects": random.choice([5, 50, 500]),
        "kill_every_ms": interval(10_000, 60_000),
        "pause_every_ms": interval(5_000, 40_000),
        "restart_every_ms": interval(10_000, 60_000),
        "store_cut_every_ms": interval(10_000, 60_000),
        "hide_every_ms": interval(10_000, 60_000),
        "move_every_ms": interval(1_000, 20_000),
        "join_every_ms": interval(30_000, 90_000),
    }
