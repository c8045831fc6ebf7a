"""One run: builds the world from its options, lets it go wrong for a while, heals it, and asks the checkers."""

from __future__ import annotations

from random import Random
from typing import Any

from kohort.client.types import TopicPartition
from kohort.coordinator.group import Group
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.protocol.errors import ErrorCode
from kohort.sim.administrator import Administrator
from kohort.sim.broker import PORT, SimBroker
from kohort.sim.checkers.transactions import Transactions
from kohort.sim.committed_reader import CommittedReader
from kohort.sim.journal import Journal
from kohort.sim.loner import SimLoner
from kohort.sim.member import SimMember
from kohort.sim.nemesis import Nemesis
from kohort.sim.network import BROKER, Network
from kohort.sim.options import OFFSETS_PARTITIONS, Options
from kohort.sim.producer import SimProducer
from kohort.sim.routes import OneRoute
from kohort.sim.scheduler import Scheduler
from kohort.sim.sink import DECISIONS, OUTPUT, Query
from kohort.sim.trace import Checker, CheckFailed, CommitAttempt, Trace
from kohort.sim.transactor import Transactor

START_MS = 1_700_000_000_000
SETTLE_MS = 240_000
TRANSACTIONS_PARTITIONS = 2


class Slot:
    """A place in a group that some consumer fills, one life after another; a static one keeps its instance id."""

    def __init__(self, world: World, index: int, group_id: str, assignors: str, protocol: str, random: Random) -> None:
        options = world.options
        self._protocol = protocol
        self._chance = world.random_for(f"protocols of slot {index}")
        self._world = world
        self._index = index
        self.group_id = group_id
        self._assignors = assignors
        self._instance_id = f"static-{index}" if random.random() < options.static_share else None
        self._manual_commit = random.random() < options.manual_commit_share
        self._topics = world.random_topics(random)
        self._lives = 0
        self._away = False
        self._retired = False
        self.member: SimMember | None = None
        self.doubles: list[SimMember] = []

    @property
    def alive(self) -> bool:
        return self.member is not None and self.member.alive and not self.member.leaving

    @property
    def lives(self) -> list[SimMember]:
        """Whoever runs under the name of this slot right now; of a static one only one may last."""
        return [one for one in (*self.doubles, self.member) if one is not None and one.alive and not one.leaving]

    def duplicate(self) -> None:
        """A deployment starts the same static member again while the old one still runs (KIP-345)."""
        if self._instance_id is not None and self.member is not None and self.alive:
            self.doubles.append(self.member)
            self.member = None
            self.fill()

    def recover(self) -> None:
        """Fill the slot unless somebody lives in it, the new one or the old."""
        if self._retired:
            return
        for life in reversed(self.lives):
            if len(self.lives) > 1 and life.protocol == "consumer" and not life.member.in_group:
                life.crash()  # its instance id is held by the other for as long as that lives: somebody ends one
        if not self.alive and (left := self.lives):
            self.member = left[-1]
        self.doubles = [double for double in self.doubles if double.alive and double is not self.member]
        if not self.alive:
            self.fill()

    def fill(self) -> None:
        self._away = False
        if self.member is not None and self.member.alive:
            if not self.member.leaving:
                return
            self.member.crash()
        self._lives += 1
        name = f"m{self._index}.{self._lives}"
        self.member = SimMember(
            self._world,
            name,
            self.group_id,
            self._topics,
            self._assignors,
            self._instance_id,
            self._manual_commit,
            protocol=self._chance.choice(("classic", "consumer")) if self._protocol == "either" else self._protocol,
        )
        self.member.start()

    def crash(self, away_ms: int) -> None:
        if self.member is not None and not self._away:
            self.member.crash()
            self._replace_after(away_ms)

    def leave(self, away_ms: int) -> None:
        if self.member is not None and not self._away:
            self.member.leave()
            self._replace_after(away_ms)

    def _replace_after(self, away_ms: int) -> None:
        self._away = True
        self._world.scheduler.after(away_ms, self._return)

    def _return(self) -> None:
        if self._away and not self._world.closing:
            self.fill()

    def resubscribe(self, topics: frozenset[str]) -> None:
        self._topics = topics
        if self.member is not None:
            self.member.resubscribe(topics)

    def close(self, *, crash: bool = False) -> None:
        """Leave for good; or, where nobody answers, just end."""
        self._retired = True
        for one in (*self.doubles, self.member):
            if one is not None:
                one.crash() if crash else one.leave()


class World:
    def __init__(self, seed: int, options: Options, checkers: list[Checker]) -> None:
        self.seed = seed
        self.options = options
        self.scheduler = Scheduler(START_MS)
        self.trace = Trace(self.scheduler, checkers)
        self.network = Network(self.scheduler, self.random_for("network"), options.max_delay_ms)
        self.closing = False
        self._random = self.random_for("world")
        self._attempts = 0
        self._make_brokers()
        self.ledger = next((one for one in checkers if isinstance(one, Transactions)), None) or Transactions()
        self.ledger.begin(self)
        self.trace.begin(self)
        self.broker.start()
        self.topics: dict[str, int] = {}
        for index in range(options.topics):
            self._create_topic(f"t{index}", self._random.randint(1, options.max_partitions))
        self.spares: dict[str, int] = {}  # topics that come and go
        for index in range(options.spare_topics):
            self._create_topic(f"x{index}", 2, self.spares)
        self.slots = self._make_slots()
        self.producers = [SimProducer(self, f"p{index}") for index in range(options.producers)]
        self.loners = [SimLoner(self, f"l{index}", f"s{index}") for index in range(options.loners)]
        self.administrator = Administrator(self, "a0")
        self._transactional: dict[str, int] = {}
        self.transactors = [Transactor(self, index) for index in range(options.transactors)]
        for index in range(2 if self.transactors else 0):
            self._create_topic(f"y{index}", 2, self._transactional)
        self.reader = CommittedReader(self, "r0")
        self.queries = [Query(self, index) for index in range(options.queries)]
        self._sinks: dict[str, int] = {}
        if self.queries:
            self._create_topic(OUTPUT, 2, self._sinks)
            self._create_topic(DECISIONS, 1, {})

    def _make_brokers(self) -> None:
        self.broker = SimBroker(self, self._broker_config())
        self.journal = Journal(self.broker.store, self.trace)
        self.network.acceptors[BROKER] = self.broker

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{name}:{PORT}" for name in self.network.acceptors)

    def routes_for(self, name: str, random: Random) -> OneRoute:
        """Of a client, to whomever it asks."""
        return OneRoute(self, name)

    def _make_nemesis(self) -> Nemesis:
        return Nemesis(self)

    def _broker_config(self) -> dict[str, Any]:
        options = self.options
        return {
            "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
            "offsets.commit.timeout.ms": options.commit_timeout_ms,
            "offsets.retention.check.interval.ms": options.retention_check_ms if options.retention_ms else 600_000,
            "group.initial.rebalance.delay.ms": options.initial_rebalance_delay_ms,
            "group.consumer.session.timeout.ms": options.session_timeout_ms,
            "group.consumer.min.session.timeout.ms": 1,
            "group.consumer.heartbeat.interval.ms": options.heartbeat_interval_ms,
            "group.consumer.min.heartbeat.interval.ms": 1,
            "transaction.state.log.num.partitions": TRANSACTIONS_PARTITIONS,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
            "log.flush.interval.messages": 1 if options.fsync_always else 2**63 - 1,
        }

    def _make_slots(self) -> list[Slot]:
        options = self.options
        group_of = [index % options.groups for index in range(options.members)]
        return [
            Slot(
                self,
                index,
                f"g{group}",
                options.assignors[group % len(options.assignors)],
                options.protocols[group % len(options.protocols)],
                self._random,
            )
            for index, group in enumerate(group_of)
        ]

    def random_for(self, name: str) -> Random:
        """Chance for one part of the world, so that a change in one does not shift all others."""
        return Random(f"{self.seed} {name}")

    # What is there.

    def _create_topic(self, name: str, partitions: int, among: dict[str, int] | None = None) -> None:
        assert self.broker.core is not None
        self.broker.core.topics.now_ms = self.scheduler.now_ms
        self.broker.core.topics.create(name, partitions)
        (self.topics if among is None else among)[name] = partitions

    def grow_a_topic(self) -> None:
        core = self.broker.core
        name = self._random.choice(sorted(self.topics))
        if core is None or self.topics[name] >= self.options.max_partitions:
            return
        core.topics.now_ms = self.scheduler.now_ms
        core.topics.grow(core.topics.by_name[name], self.topics[name] + 1)
        core.topic_grew(name, self.scheduler.now_ms)
        self.topics[name] += 1

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(name, index) for name, count in self.topics.items() for index in range(count)]

    def partitions_there(self) -> list[TopicPartition]:
        """Of all topics for users, as the broker has them now."""
        assert self.broker.core is not None
        by_name = self.broker.core.topics.by_name
        names = [name for name in (*self.topics, *self.spares) if name in by_name]
        return [TopicPartition(name, index) for name in names for index in range(by_name[name].count)]

    def spare_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(name, index) for name, count in self.spares.items() for index in range(count)]

    def transactional_partitions(self) -> list[TopicPartition]:
        """Those that transactors write to, and nobody else."""
        return [TopicPartition(name, index) for name, count in self._transactional.items() for index in range(count)]

    def sink_partitions(self) -> list[TopicPartition]:
        """Those that Spark's queries write to, and nobody else."""
        return [TopicPartition(name, index) for name, count in self._sinks.items() for index in range(count)]

    @property
    def has_modern_groups(self) -> bool:
        return set(self.options.protocols) != {"classic"}

    def group_ids(self) -> list[str]:
        consumers = [f"g{index}" for index in range(self.options.groups)]
        return consumers + [loner.group_id for loner in self.loners]

    def is_readable(self, group_id: str) -> bool:
        """Whether the partition of a group is undamaged."""
        return not self.broker.damaged or partition_for(group_id, OFFSETS_PARTITIONS) not in self.broker.damaged

    def is_online(self, group_id: str) -> bool:
        """Whether the log of a group's partition can be written, also where that was before the topic grew."""
        counts = range(OFFSETS_PARTITIONS, self.journal.partitions + 1)
        logs = [self.broker.store.get(OFFSETS_TOPIC, partition_for(group_id, count)) for count in counts]
        return all(log is not None and log.failure is None for log in logs)

    def random_topics(self, random: Random) -> frozenset[str]:
        names = sorted(self.topics) + (sorted(self.spares) if self.options.subscribe_to_spares else [])
        return frozenset(names if random.random() < 0.6 else random.sample(names, random.randint(1, len(names))))

    def random_slot(self, random: Random) -> Slot | None:
        alive = [slot for slot in self.slots if slot.alive]
        return random.choice(alive) if alive else None

    def host_names(self) -> list[str]:
        members = [slot.member.name for slot in self.slots if slot.member is not None and slot.member.alive]
        others = [*(producer.name for producer in self.producers), *(loner.name for loner in self.loners)]
        others += [name for transactor in self.transactors for name in transactor.names()]
        others += [name for query in self.queries for name in query.names()]
        return [*members, *others, self.administrator.name]

    def members(self) -> list[SimMember]:
        """Those that live and can be expected to do well."""
        alive = [slot.member for slot in self.slots if slot.member is not None and slot.alive]
        return [member for member in alive if self.is_readable(member.group_id)]

    # Commits, seen from outside.

    def group_now(self, group_id: str) -> Group | None:
        core = self.broker.core
        return None if core is None else core.coordinator.group(group_id)

    def commit_attempt(
        self, member: SimMember | SimLoner, request: Any, *, of_a_consumer: bool = True
    ) -> CommitAttempt:
        self._attempts += 1
        offsets = {
            TopicPartition(self.name_of(topic), partition.partition_index): partition.committed_offset
            for topic in request.topics
            for partition in topic.partitions
        }
        attempt = CommitAttempt(
            number=self._attempts,
            group_id=request.group_id,
            member=member.name,
            generation_id=request.generation_id_or_member_epoch,
            offsets=offsets,
            sent_ms=self.scheduler.now_ms,
            of_a_consumer=of_a_consumer,
        )
        self.trace.commit_sent(attempt)
        return attempt

    def commit_answered(self, attempt: CommitAttempt, response: Any) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.NONE:
                    tp = TopicPartition(self.name_of(topic), partition.partition_index)
                    attempt.acked.add(tp)
                    self.trace.commit_acked(attempt, tp)

    def name_of(self, topic: Any) -> str:
        return topic.name or self.name_of_id(bytes(topic.topic_id))

    def name_of_id(self, topic_id: bytes) -> str:
        """Also of a topic that is gone."""
        return self.broker.store.names_ever[topic_id]

    # The run.

    def run(self) -> None:
        scheduler, options = self.scheduler, self.options
        for slot in self.slots:
            scheduler.after(self._random.randint(0, 5_000), slot.fill)
        for producer in self.producers:
            producer.start()
        for loner in self.loners:
            loner.start()
        for transactor in self.transactors:
            transactor.start()
        if self.transactors:
            self.reader.start()
        for query in self.queries:
            query.start()
        nemesis = self._make_nemesis()
        scheduler.run(START_MS + int(options.minutes * 60_000))
        nemesis.stop()
        self._heal()
        self._settle()
        for slot in self.slots[::2]:
            slot.close()
        self._settle()
        self._close()
        self.trace.finished(self)

    def _heal(self) -> None:
        """Faults are over: everything is up again, what stalls wakes up by itself."""
        self.network.heal_all()
        if self.broker.has_failed_logs or (self.broker.damaged and self.options.damage_is_mended):
            self.broker.crash(power_loss=False)
        if self.options.damage_is_mended:
            self.broker.mend()
        self.broker.start()
        self.broker.disk_recovers()
        for producer in self.producers:
            producer.stop()
        for loner in self.loners:
            loner.stop()
        for transactor in self.transactors:
            transactor.stop()
        for query in self.queries:
            query.stop()

    def _settle(self) -> None:
        """Until the checkers are content, within a bounded time: sessions end, rebalances complete, all is read."""
        self.scheduler.run(self.scheduler.now_ms + 5_000)
        for loner in self.loners:
            loner.prove()
        limit_ms = self.scheduler.now_ms + SETTLE_MS + 2 * self._longest_wait_ms()
        while True:
            for slot in self.slots:
                slot.recover()
            self.journal.read()
            try:
                self.trace.settled(self)
                return
            except CheckFailed:
                if self.scheduler.now_ms >= limit_ms:
                    raise
            self.scheduler.run(self.scheduler.now_ms + 5_000)

    def _longest_wait_ms(self) -> int:
        """A stalled member may wake up late, time out, and be waited for in a rebalance."""
        return 45_000 + max(self.options.session_timeout_ms, 2 * self.options.max_poll_interval_ms)

    def _close(self) -> None:
        self.closing = True
        for slot in self.slots:
            slot.close(crash=not self.is_readable(slot.group_id))
        limit_ms = self.scheduler.now_ms + 60_000 + 2 * self._longest_wait_ms()
        while self._occupied() and self.scheduler.now_ms < limit_ms:
            self.scheduler.run(self.scheduler.now_ms + 2_000)
        self.scheduler.run(self.scheduler.now_ms + 5_000)

    def _occupied(self) -> bool:
        assert self.broker.core is not None
        groups = self.broker.core.coordinator.groups.values()
        return any(not group.is_empty or getattr(group, "pending_members", ()) for group in groups)
