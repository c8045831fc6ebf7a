"""Brokers of one cluster without sockets, threads or clocks: real cores over a store in memory, driven by a seed.

Between any two requests to the store, and before an answer is heard, anything can happen: other brokers' steps, pauses,
crashes, requests that arrive late. Clocks differ. What a client was told, and what it has read, must be what is there
in the end.
"""

import contextlib
import random
from dataclasses import replace

from kohort.broker.appends import Append
from kohort.broker.cluster_topics import ClusterCatalog
from kohort.broker.config import BrokerConfig
from kohort.broker.core import Core
from kohort.broker.membership import Life, Membership
from kohort.broker.proposals import Wish
from kohort.cluster import manifests
from kohort.cluster.memory_engine import MemoryStore, Mishap
from kohort.cluster.meta_log import found_cluster
from kohort.protocol.uuids import to_base64
from kohort.records.batch import build_key_values, iter_batches, read_header, read_records
from kohort.storage.cold_segment import NotInMemory, StoreFailed
from kohort.storage.errors import StorageError
from kohort.storage.journal_store import JournalStore

CONFIG = {
    "broker.session.timeout.ms": 1200,
    "broker.heartbeat.interval.ms": 200,
    "kohort.cluster.balance.delay.ms": 300,
    "kohort.cluster.journal.objects": 3,
}
TOPIC, PARTITIONS = "orders", 4
DEEPEST = 2


class Violation(AssertionError):
    """Something was promised and not kept."""


class Abandoned(BaseException):
    """The broker that asked is gone. No Exception: those are answers of the store."""


class Node:
    def __init__(self, world, node_id):
        self.world = world
        self.node_id = node_id
        self.core = None
        self.asking, self.heard = [], []
        self.paused = False
        self.now_ms = world.now_ms  # its own clock
        self.speed = 1.0
        self.sign_ms = 0
        self.start()

    @property
    def is_up(self):
        return self.core is not None

    def start(self):
        world = self.world
        self.engine = world.store.engine(world.mishap)
        self.engine.cut_off = False
        chance, world.calm = world.calm, True
        state = found_cluster(self.engine, "cluster", "nonce")
        world.calm = chance
        config = BrokerConfig({**CONFIG, **world.config, "node.id": self.node_id})
        store = JournalStore(cluster_id=state.cluster_id, node_id=self.node_id)
        catalog = ClusterCatalog(config, store, world.random_bytes, state)
        self.core = Core(config, store, random_bytes=world.random_bytes, topics=catalog)
        self.membership = self.core.membership = Membership(self.core, self.engine, state)
        self.asking, self.heard = [], []
        self.paused = False
        self.core.start(self.now_ms)
        self.membership.join("host", 9000 + self.node_id, self.now_ms)
        self.turn()

    def crash(self):
        self.core = None
        self.asking, self.heard = [], []
        self.engine.close()

    def turn(self):
        if self.core is not None:
            self.core.flush(self.now_ms)
            self.asking += self.core.take_jobs()

    def tick(self):
        due = self.core.next_deadline()
        if due is not None and due <= self.now_ms:
            self.core.on_time(self.now_ms)
            again = self.membership.next_deadline()
            if again is not None and again <= self.now_ms:
                raise Violation(f"broker {self.node_id} would do nothing else than look at its clock")
        self.turn()
        self.world.check_signs_of_life(self)

    def ask(self):
        """The store is asked, with whatever happens meanwhile; the answer is on its way."""
        if self.asking:
            job = self.asking.pop(self.world.random.randrange(len(self.asking)))
            core, failed = self.core, None
            self.world.running.append(self)
            try:
                job.run()
            except Abandoned:
                return
            except StorageError as error:
                failed = error
            finally:
                self.world.running.pop()
            if self.core is core:
                self.heard.append((job, failed))

    def hear(self):
        if self.heard:
            job, failed = self.heard.pop(self.world.random.randrange(len(self.heard)))
            self.core.job_done(job, failed, self.now_ms)
            self.turn()

    def leads_place(self, index):
        return any(partition.index == index for partition in self.leads())

    def leads(self):
        topic = self.core.topics.by_name.get(TOPIC)
        return [] if topic is None else [partition for partition in topic.partitions if partition.leads]


class World:
    def __init__(self, seed, brokers=3, trouble=0.1, config=None):
        self.random = random.Random(seed)
        self.trouble = trouble
        self.config = config or {}
        self.calm = False
        self.running = []  # brokers with a question that is being asked, the last one first
        self.steps = 0
        self.due = []  # ends of faults: in which step, and what happens then
        self.now_ms = 1_000_000
        self.store = MemoryStore()
        self.store.listeners.append(self._created)
        self.acknowledged, self.seen = {}, {}
        self.count = 0
        self.nodes = [Node(self, node_id) for node_id in range(1, brokers + 1)]

    def random_bytes(self, count):
        return self.random.randbytes(count)

    def mishap(self, verb, name):
        if self.running and not self.calm:
            self._meanwhile(self.running[-1], verb)
        if self.calm or self.random.random() > self.trouble:
            return Mishap.NONE
        return self.random.choice([Mishap.REFUSED, Mishap.LOST_ANSWER, Mishap.RETRIED, Mishap.LATE])

    def _meanwhile(self, node, verb):
        """Before a request takes effect; the broker that makes it may be gone, or have been still for long, by then."""
        if len(self.running) > DEEPEST or self.random.random() > (3 if verb == "delete" else 1) * self.trouble:
            return
        core, chance = node.core, self.random.random()
        if core is None or node.paused:
            return
        if verb == "delete" and chance < 0.5:
            self.crash(node)
        elif chance > 0.7:
            self.stand_still(node)
        for _ in range(self.random.choice([1, 5, 40])):
            self.step()
            if self.random.random() < 0.02:
                self.nemesis()
        if node.core is not core:
            raise Abandoned

    def _created(self, name):
        """Signs of life, as the store has them, by the clock of whoever gives them."""
        if name.startswith("alive/"):
            node = self.nodes[int(name.removeprefix("alive/").partition(".")[0]) - 1]
            node.sign_ms = node.now_ms

    def check_signs_of_life(self, node):
        """Who cannot give any stops serving, by its own clock; it may have begun just now."""
        membership = node.membership
        since_ms = node.now_ms - max(node.sign_ms, membership.member_since_ms)
        if since_ms > CONFIG["broker.session.timeout.ms"] and node.leads():
            raise Violation(f"broker {node.node_id} serves, {since_ms} ms after its last sign of life")

    # What clients do.

    def create_topic(self):
        self.calm = True
        self.settle(lambda: all(node.membership.is_member for node in self.nodes))
        self.nodes[0].membership.propose(NewTopic(self.nodes[0]), self.nodes[0].now_ms)
        self.nodes[0].turn()
        self.settle(self.is_settled)
        self.calm = False

    def produce(self, node=None, index=None):
        node = node or self.random.choice(self.nodes)
        index = self.random.randrange(PARTITIONS) if index is None else index
        partition = node.core and node.core.topics.partition(TOPIC, index)
        if node.paused or not partition or not partition.leads:
            return
        self.count += 1
        data = build_key_values([(b"%d" % self.count, b"%d" % self.count)], self.now_ms)
        node.core.append(Append(partition, data, read_header(data), self, self.count))
        node.turn()

    def compact(self, index=None):
        """All that is in segments is written anew; every record has a key of its own, so that none is removed."""
        up = [node for node in self.nodes if node.is_up and not node.paused]
        led = [(node, partition) for node in up for partition in node.leads()]
        if places := [row for row in led if index in (None, row[1].index)]:
            node, partition = self.random.choice(places)
            log = partition.log
            log.config = replace(log.config, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
            log.first_dirty_offset = log.start_offset
            if (compaction := log.start_compaction(node.now_ms)) is not None:
                node.core.run_elsewhere(Compacting(partition, compaction))
                node.turn()

    def pass_time(self, longest_ms):
        took_ms = self.random.randrange(1, longest_ms)
        self.now_ms += took_ms
        for node in self.nodes:
            node.now_ms += max(int(took_ms * node.speed), 1)

    def appended(self, append, now_ms):
        if not append.error:
            place = (append.partition.index, append.base_offset)
            self._agree(self.acknowledged, place, append.purpose)

    def read(self):
        for node in self.nodes:
            if node.is_up and not node.paused:
                for index in range(PARTITIONS):
                    partition = node.core.topics.partition(TOPIC, index)
                    if partition is not None and partition.leads:
                        self._read(partition)

    def _read(self, partition):
        """Segments of a leader that was replaced may be gone: its clients are told so, and ask the next one."""
        with contextlib.suppress(StorageError):
            for offset, value in records(partition.log):
                self._agree(self.seen, (partition.index, offset), value)

    def _agree(self, known, place, value):
        for other in (self.acknowledged, self.seen):
            if other.get(place, value) != value:
                raise Violation(f"{place} was {other[place]}, and is {value}")
        known[place] = value

    # What happens.

    def step(self):
        chance = self.random.random()
        node = self.random.choice(self.nodes)
        self.count_steps()
        if chance < 0.25:
            self.produce()
        elif chance < 0.27:
            self.read()
        elif chance < 0.29:
            self.compact()
        elif chance < 0.9:
            if node.is_up and not node.paused:
                (node.ask if self.random.random() < 0.5 else node.hear)()
        else:
            self.pass_time(200)
            for each in self.nodes:
                if each.is_up and not each.paused:
                    if each.membership.life is Life.OUTSIDE:
                        each.crash()
                        each.start()
                    each.tick()
            if self.store.late and self.random.random() < 0.3:
                self.store.arrive(self.random.randrange(len(self.store.late)))

    def count_steps(self):
        self.steps += 1
        over = [row for row in self.due if row[0] <= self.steps]
        self.due = [row for row in self.due if row[0] > self.steps]
        for _, action, arguments in over:
            action(*arguments)

    def nemesis(self):
        node = self.random.choice(self.nodes)
        if node.is_up and not node.paused:
            often, seldom = [self.duel, self._wish], [self.crash, self.pause, self.cut, self.leave, self.run_fast]
            self.random.choice(2 * often + seldom)(node)

    def later(self, action, *arguments):
        self.due.append((self.steps + self.random.randrange(20, 300), action, arguments))

    def crash(self, node):
        node.crash()
        self.later(self.restart, node)

    def restart(self, node):
        if not node.is_up:
            node.start()

    def pause(self, node):
        node.paused = True
        self.later(setattr, node, "paused", False)

    def cut(self, node):
        node.engine.cut_off = True
        self.later(setattr, node.engine, "cut_off", False)

    def leave(self, node):
        node.membership.leave(node.now_ms)
        node.turn()

    def run_fast(self, node):
        """Its clock does, and it takes others for dead that are not."""
        node.speed = self.random.choice([0.3, 8.0])
        self.later(setattr, node, "speed", 1.0)

    def duel(self, node):
        """It stands still in the middle of its work, for long enough to be taken for dead, and then just goes on."""
        for _ in range(self.random.randrange(4)):
            self.produce(node)
        for _ in range(self.random.randrange(4)):
            node.ask()
        if node.is_up and not node.paused:
            self.stand_still(node)
        for _ in range(self.random.randrange(30)):
            if not node.is_up or node.paused:
                return
            self.random.choice([node.ask, node.hear, node.ask, node.hear, lambda: self.produce(node)])()

    def stand_still(self, node):
        """For long enough to be taken for dead; perhaps with its clock, as on a machine that is suspended."""
        node.paused = True
        speed, node.speed = node.speed, self.random.choice([0, node.speed])
        others = [other for other in self.nodes if other.is_up and not other.paused]
        for _ in range(self.random.randrange(10, 30)):
            self.pass_time(200)
            for other in others:
                if other.is_up and not other.paused:
                    other.tick()
                    for _ in range(6):
                        other.ask()
                        if other.is_up:
                            other.hear()
                    self.produce(other)
        node.paused, node.speed = False, speed

    def _wish(self, node):
        topic = node.core.topics.by_name.get(TOPIC)
        if topic is not None:
            change = {
                "kind": "want",
                "topic": to_base64(topic.topic_id),
                "partition": self.random.randrange(PARTITIONS),
            }
            node.membership.propose(Wish([change | {"leader": self.random.randrange(1, 4)}]), node.now_ms)
            node.turn()

    def run(self, steps=1000, nemesis=0.01):
        self.create_topic()
        for _ in range(steps):
            self.step()
            if self.random.random() < nemesis:
                self.nemesis()
        assert not self.running
        self.heal()
        self.settle(self.is_settled)
        self.settle(self.is_tidy)
        self.check()

    def heal(self):
        """No more faults."""
        self.calm = True
        self.due.clear()
        while self.store.late:
            self.store.arrive(0)
        for node in self.nodes:
            node.paused, node.speed = False, 1.0
            if not node.is_up:
                node.start()
            node.engine.cut_off = False

    def settle(self, is_settled, but=None):
        """In the end every partition has one leader that serves it."""
        for _ in range(400):
            self.pass_time(100)
            for node in [node for node in self.nodes if node is not but]:
                if node.membership.life is Life.OUTSIDE:
                    node.crash()
                    node.start()
                node.tick()
                while node.asking or node.heard:
                    node.ask()
                    node.hear()
            if is_settled():
                return
        raise Violation(
            f"not {is_settled.__name__}: {[self.leaders(index) for index in range(PARTITIONS)]}, "
            f"{len(self.store.objects)} objects"
        )

    def is_tidy(self):
        """What tidying leaves behind: a few slots of each journal that is written."""
        limit = 2 * self.config.get("kohort.cluster.journal.objects", CONFIG["kohort.cluster.journal.objects"]) + 5
        journals = [node.membership.journal for node in self.nodes]
        return self.is_settled() and all(journal.stored_seq - journal.said_trimmed < limit for journal in journals)

    def leaders(self, index, nodes=None):
        return [
            node.node_id
            for node in nodes or self.nodes
            if (partition := node.core.topics.partition(TOPIC, index)) is not None and partition.leads
        ]

    def is_settled(self):
        """One leader for everything, who serves it."""
        if not all(node.membership.is_member and node.membership.leading.is_settled for node in self.nodes):
            return False
        known = self.nodes[0].core.topics.by_name.get(TOPIC)
        return known is not None and all(len(self.leaders(index)) == 1 for index in range(PARTITIONS))

    def check(self):
        kept = {}
        for index in range(PARTITIONS):
            (leader,) = self.leaders(index)
            log = self.nodes[leader - 1].core.topics.partition(TOPIC, index).log
            try:
                kept |= {(index, offset): value for offset, value in records(log)}
            except StorageError as error:
                raise Violation(str(error)) from None
            self._check_manifest(index)
        for known, what in ((self.acknowledged, "acknowledged"), (self.seen, "read")):
            for place, value in known.items():
                if kept.get(place) != value:
                    raise Violation(f"{place} was {what} as {value}, and is {kept.get(place)}")
        values = list(kept.values())
        if len(values) != len(set(values)):
            raise Violation("a record is there twice")

    def _check_manifest(self, index):
        topic_id = to_base64(self.nodes[0].core.topics.by_name[TOPIC].topic_id)
        for row in manifests.last(self.store.engine(), topic_id, index).segments:
            if row.name not in self.store.objects:
                raise Violation(f"{row.name} is named by a manifest and gone")


class Compacting:
    def __init__(self, partition, compaction):
        self.partition = partition
        self.compaction = compaction
        self.run = compaction.run

    def finish(self, error, now_ms):
        if error is None and self.partition.leads:
            self.partition.log.finish_compaction(self.compaction)


class NewTopic:
    def __init__(self, node):
        self.node = node

    def changes(self, state, now_ms):
        return self.node.membership.catalog.plan(lambda: self.node.core.topics.create(TOPIC, PARTITIONS))[1]

    def committed(self, now_ms):
        pass

    needless = committed


def records(log):
    found, offset = [], log.start_offset
    while offset < log.high_watermark:
        for view in _views(log, offset):
            for pos, header in iter_batches(view):
                found += [(record.offset, int(record.value)) for record in read_records(view, pos, header)]
                offset = header.next_offset
    return found


def _views(log, offset):
    """As a client gets them, who asks again when the store has failed."""
    for _ in range(200):
        try:
            return log.read(offset, 1 << 40, max_offset=log.high_watermark)
        except (NotInMemory, StoreFailed) as missing:
            with contextlib.suppress(StorageError):
                missing.load()
    raise StorageError(f"{log.topic}-{log.partition} cannot be read at {offset}")
