"""Brokers of one cluster without sockets, threads or clocks: real cores over a store in memory, driven by a seed.

Every question to the store is taken apart into asking and hearing the answer, with anything in between: other brokers'
steps, pauses, crashes. What a client was told, and what it has read, must be what is there in the end.
"""

import contextlib
import random

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
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "kohort.cluster.balance.delay.ms": 1000,
    "kohort.cluster.journal.objects": 3,
}
TOPIC, PARTITIONS = "orders", 4


class Violation(AssertionError):
    """Something was promised and not kept."""


class Node:
    def __init__(self, world, node_id):
        self.world = world
        self.node_id = node_id
        self.core = None
        self.asking, self.heard = [], []
        self.paused = False
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
        self.core.start(world.now_ms)
        self.membership.join("host", 9000 + self.node_id, world.now_ms)
        self.turn()

    def crash(self):
        self.core = None
        self.engine.close()

    def turn(self):
        if self.core is not None:
            self.core.flush(self.world.now_ms)
            self.asking += self.core.take_jobs()

    def tick(self):
        due = self.core.next_deadline()
        if due is not None and due <= self.world.now_ms:
            self.core.on_time(self.world.now_ms)
        self.turn()

    def ask(self):
        """The store is asked; the answer is on its way."""
        if self.asking:
            job = self.asking.pop(self.world.random.randrange(len(self.asking)))
            job.run()
            self.heard.append(job)

    def hear(self):
        if self.heard:
            job = self.heard.pop(self.world.random.randrange(len(self.heard)))
            self.core.job_done(job, None, self.world.now_ms)
            self.turn()


class World:
    def __init__(self, seed, brokers=3, trouble=0.1, config=None):
        self.random = random.Random(seed)
        self.trouble = trouble
        self.config = config or {}
        self.calm = False
        self.now_ms = 1_000_000
        self.store = MemoryStore()
        self.acknowledged, self.seen = {}, {}
        self.count = 0
        self.nodes = [Node(self, node_id) for node_id in range(1, brokers + 1)]

    def random_bytes(self, count):
        return self.random.randbytes(count)

    def mishap(self, verb, name):
        if self.calm or self.random.random() > self.trouble:
            return Mishap.NONE
        return self.random.choice([Mishap.REFUSED, Mishap.LOST_ANSWER, Mishap.RETRIED])

    # What clients do.

    def create_topic(self):
        self.calm = True
        self.settle(lambda: all(node.membership.is_member for node in self.nodes))
        self.nodes[0].membership.propose(NewTopic(self.nodes[0]), self.now_ms)
        self.nodes[0].turn()
        self.settle(self.is_settled)
        self.calm = False

    def produce(self):
        node = self.random.choice(self.nodes)
        partition = node.core and node.core.topics.partition(TOPIC, self.random.randrange(PARTITIONS))
        if node.paused or not partition or not partition.leads:
            return
        self.count += 1
        data = build_key_values([(b"k", b"%d" % self.count)], self.now_ms)
        node.core.append(Append(partition, data, read_header(data), self, self.count))
        node.turn()

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
                        for offset, value in records(partition.log):
                            self._agree(self.seen, (index, offset), value)

    def _agree(self, known, place, value):
        for other in (self.acknowledged, self.seen):
            if other.get(place, value) != value:
                raise Violation(f"{place} was {other[place]}, and is {value}")
        known[place] = value

    # What happens.

    def step(self):
        chance = self.random.random()
        node = self.random.choice(self.nodes)
        if chance < 0.35:
            self.produce()
        elif chance < 0.9:
            if node.is_up and not node.paused:
                (node.ask if self.random.random() < 0.5 else node.hear)()
        else:
            self.now_ms += self.random.randrange(1, 200)
            for each in self.nodes:
                if each.is_up and not each.paused:
                    each.tick()

    def nemesis(self):
        node = self.random.choice(self.nodes)
        what = self.random.choice(
            ["crash", "restart", "pause", "go on", "cut", "heal", "leave", "move", "answer", "read"]
        )
        if what == "restart" and not node.is_up:
            node.start()
        elif not node.is_up:
            return
        elif what == "crash":
            node.crash()
        elif what in ("pause", "go on"):
            node.paused = what == "pause"
        elif what in ("cut", "heal"):
            node.engine.cut_off = what == "cut"
        elif what == "leave" and not node.paused:
            node.membership.leave(self.now_ms)
            node.turn()
        elif what == "move" and not node.paused:
            self._wish(node)
        elif what == "answer" and node.paused and node.asking:
            node.ask()  # a question that was on its way when the broker stood still
        elif what == "read":
            self.read()

    def _wish(self, node):
        topic = node.core.topics.by_name.get(TOPIC)
        if topic is not None:
            change = {
                "kind": "want",
                "topic": to_base64(topic.topic_id),
                "partition": self.random.randrange(PARTITIONS),
            }
            node.membership.propose(Wish([change | {"leader": self.random.randrange(1, 4)}]), self.now_ms)
            node.turn()

    def run(self, steps=1500, nemesis=0.01):
        self.create_topic()
        for _ in range(steps):
            self.step()
            if self.random.random() < nemesis:
                self.nemesis()
        self.heal()
        self.settle(self.is_settled)
        self.check()

    def heal(self):
        """No more faults."""
        self.calm = True
        for node in self.nodes:
            node.paused = False
            if not node.is_up:
                node.start()
            node.engine.cut_off = False

    def settle(self, is_settled):
        """In the end every partition has one leader that serves it."""
        for _ in range(400):
            self.now_ms += 50
            for node in self.nodes:
                if node.membership.life is Life.OUTSIDE:
                    node.crash()
                    node.start()
                node.tick()
                while node.asking or node.heard:
                    node.ask()
                    node.hear()
            if is_settled():
                return
        raise Violation(f"not settled: {[self.leaders(index) for index in range(PARTITIONS)]}")

    def leaders(self, index):
        return [
            node.node_id
            for node in self.nodes
            if (partition := node.core.topics.partition(TOPIC, index)) is not None and partition.leads
        ]

    def is_settled(self):
        if not all(node.membership.is_member and node.membership.leading.is_settled for node in self.nodes):
            return False
        known = self.nodes[0].core.topics.by_name.get(TOPIC)
        return known is not None and all(len(self.leaders(index)) == 1 for index in range(PARTITIONS))

    def check(self):
        kept = {}
        for index in range(PARTITIONS):
            (leader,) = self.leaders(index)
            log = self.nodes[leader - 1].core.topics.partition(TOPIC, index).log
            kept |= {(index, offset): value for offset, value in records(log)}
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
    while True:
        try:
            return log.read(offset, 1 << 40, max_offset=log.high_watermark)
        except (NotInMemory, StoreFailed) as missing:
            with contextlib.suppress(StorageError):
                missing.load()
