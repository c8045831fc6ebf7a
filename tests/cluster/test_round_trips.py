"""How often a broker waits for its store, one answer after the other: on S3 every round trip takes 20 to 100 ms."""

import pytest

from cluster.world import TOPIC, World
from kohort.broker import tidying
from kohort.broker.cluster_jobs import StoreJob
from kohort.cluster import journal, loading, manifests, names
from kohort.cluster.engine import Engine, Exists
from kohort.cluster.memory_engine import MemoryEngine, MemoryStore
from kohort.cluster.state import Source

A_FEW, SOME = 12, 20


class DistantEngine(MemoryEngine):
    """Counts the longest chain of requests that wait for each other."""

    waited = 0

    def _begin(self, verb, name):
        self.waited += 1
        return super()._begin(verb, name)

    def together(self, questions):
        began, longest, answers = self.waited, self.waited, []
        for question in questions:
            self.waited = began
            answers.append(question())
            longest = max(longest, self.waited)
        self.waited = longest
        return answers

    def delete_all(self, names):
        began = self.waited
        super().delete_all(names)
        self.waited = began + bool(names)


def left_behind(objects, partitions):
    """By a broker that is dead: a manifest for each partition, and a journal with records of all of them."""
    store = MemoryStore()
    engine = DistantEngine(store)
    for index in range(partitions):
        draft = manifests.Draft("topic", index, manifests.Manifest(), manifests.Manifest(0, 0, 4), [])
        manifests.write(engine, draft, "owner")
    for seq in range(objects):
        rows = [("topic", index, 0, seq, seq + 1, [b"record"]) for index in range(partitions)]
        engine.create(names.slot("1.1", seq), journal.encode(seq, "owner", entries=rows, stored=seq - 1))
    engine.waited = 0
    return engine


@pytest.mark.parametrize("objects, partitions", [(5, 2), (50, 2), (500, 2), (50, 60)])
def test_a_take_over_waits_as_often_for_many_objects_as_for_few(objects, partitions):
    engine = left_behind(objects, partitions)
    wanted = [loading.Wanted("topic", index, 1, [Source(0, "1.1"), Source(1, "2.1")]) for index in range(partitions)]
    found = loading.load(engine, wanted, "new leader")
    assert all(len(loaded.parts) == max(objects - 5, 0) for loaded in found)
    assert engine.waited <= A_FEW
    with pytest.raises(Exists):
        engine.create(names.slot("1.1", objects), b"of the old leader")


def test_whoever_asks_for_one_object_after_the_other_is_seen(monkeypatch):
    engine = left_behind(50, 2)
    monkeypatch.setattr(DistantEngine, "together", Engine.together)
    loading.load(engine, [loading.Wanted("topic", 0, 1, [Source(0, "1.1")])], "new leader")
    assert engine.waited > 50


@pytest.mark.parametrize("journals", [1, 20])
def test_nor_oftener_for_many_who_led_before(journals):
    """Brokers that die one after the other leave a journal each."""
    engine = left_behind(10, 1)
    for life in range(2, journals + 1):
        rows = [("topic", 0, life - 1, 10 * life, 10 * life + 1, [b"record"])]
        engine.create(names.slot(f"1.{life}", 0), journal.encode(0, "owner", entries=rows))
    sources = [Source(life - 1, f"1.{life}") for life in range(1, journals + 1)]
    engine.waited = 0
    (loaded,) = loading.load(engine, [loading.Wanted("topic", 0, journals, sources)], "new leader")
    assert len(loaded.parts) == 5 + journals - 1
    assert engine.waited <= A_FEW


@pytest.mark.parametrize("records", [10, 30])
def test_no_question_of_a_broker_takes_long_whatever_there_is(records, monkeypatch):
    """Also those behind which others wait: tidying holds up a clean stop."""
    monkeypatch.setattr(MemoryStore, "engine", lambda store, chance=None: DistantEngine(store, chance))
    monkeypatch.setattr(tidying, "AGAIN_MS", 50)
    longest = {}
    run = StoreJob.run

    def counted(job):
        engine = job_engine[-1]
        engine.waited = 0
        run(job)
        longest[job._ask.__qualname__] = max(engine.waited, longest.get(job._ask.__qualname__, 0))

    job_engine = []
    monkeypatch.setattr(StoreJob, "run", counted)
    world = World(1, trouble=0, config={"kohort.cluster.journal.objects": records})
    for node in world.nodes:
        ask = node.ask

        def asking(node=node, ask=ask):
            job_engine.append(node.engine)
            ask()

        node.ask = asking
    world.create_topic()
    assert world.nodes[0].core.topics.by_name[TOPIC]
    for _ in range(2 * records):
        for node in world.nodes:
            world.produce(node)
        world.settle(world.is_settled)
    victim = max(world.nodes, key=lambda node: len(node.leads()))
    victim.crash()
    others = [node for node in world.nodes if node is not victim]
    world.settle(lambda: sum(len(node.leads()) for node in others) == 4, but=victim)
    for _ in range(50):
        world.settle(lambda: True, but=victim)
    asked = {name.removesuffix(".<locals>.<lambda>") for name in longest}
    assert {"Leading._load", "Tidying._write_drafted", "Tidying._delete"} <= asked
    assert {name: waited for name, waited in longest.items() if waited > SOME} == {}
