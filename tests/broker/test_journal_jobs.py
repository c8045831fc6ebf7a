"""An object of a journal that is created while no thread waits ends as one that a thread has created."""

import select

import pytest

from kohort.broker.cluster_jobs import SMALL_BYTES, JournalJob
from kohort.cluster.directory_engine import DirectoryEngine
from kohort.cluster.engine import EngineError
from kohort.cluster.journal import decode
from kohort.cluster.journal_writer import JournalWriter


class Log:
    """So many bytes to store."""

    topic_id, partition, epoch = "t", 0, 0

    def __init__(self, size):
        self.size = size

    def take_unjournaled(self, max_bytes):
        return 0, 1, [bytes(self.size)]

    def take_start(self):
        return None

    def stored_to(self, offset, seq):
        pass


@pytest.fixture
def store(tmp_path):
    engine = DirectoryEngine(tmp_path)
    creating = engine.creating()
    if creating is None:
        pytest.skip("no compiler was there to build the library")
    engine.create("journal/1.1/other", b"")
    yield engine, creating
    creating.close()


def write_of(size):
    writer = JournalWriter("1.1")
    writer.add(Log(size), 1)
    return writer.next("nonce", 0)


def job_of(engine, write):
    answers = []
    return JournalJob(engine, write, lambda *answer: answers.append(answer)), answers


def end_of(creating):
    assert select.select([creating.fd], [], [], 60)[0]
    ((job, error),) = creating.ended()
    return job, error


def test_it_is_stored_and_answered_without_a_thread(store):
    engine, creating = store
    write = write_of(1000)
    job, answers = job_of(engine, write)
    assert job.begin(creating)
    ended, error = end_of(creating)
    assert ended is job and job.ended(error)
    job.finish(None, 7)
    assert answers == [(None, None, 7)]
    assert bytes(decode(write.name, engine.get(write.name)).entries[0].data) == bytes(1000)


@pytest.mark.parametrize("whose", ["another's", "our own, of an earlier try"])
def test_where_the_name_is_taken_somebody_looks_whose_it_is(store, whose):
    engine, creating = store
    write = write_of(10)
    there = b"a seal" if whose == "another's" else write.encoded()
    engine.create(write.name, there)
    job, answers = job_of(engine, write)
    assert job.begin(creating)
    _, error = end_of(creating)
    assert not job.ended(error)
    job.run()
    job.finish(None, 7)
    assert answers == [(there if whose == "another's" else None, None, 7)]


def test_an_error_of_the_store_is_told(store):
    engine, creating = store
    (engine.root / ".tmp").rmdir()
    job, answers = job_of(engine, write_of(10))
    assert job.begin(creating)
    _, error = end_of(creating)
    assert job.ended(error)
    job.finish(None, 7)
    ((result, error, _),) = answers
    assert result is None and isinstance(error, EngineError)


def test_a_large_one_is_put_together_elsewhere(store):
    engine, creating = store
    job, _ = job_of(engine, write_of(SMALL_BYTES + 1))
    assert not job.begin(creating)
