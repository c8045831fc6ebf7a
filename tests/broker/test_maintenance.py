"""Housekeeping by virtual time: retention, compaction elsewhere, flush intervals."""

from kohort.records.batch import Record, build_batch
from wire import World, batch, fetch_request


def keyed(key, value, timestamp):
    return build_batch([Record(0, timestamp, key, value)])


def test_retention_waits_for_its_interval_and_wakes_fetches():
    world = World({"log.retention.check.interval.ms": 60_000})
    log = world.create_topic("t", retention_ms="1000", segment_ms="1").partitions[0].log
    client = world.connect()
    client.produce("t", batch(b"old", timestamp=world.now_ms))
    world.advance(59_999)
    assert log.start_offset == 0
    world.advance(1)
    assert log.start_offset == 1
    row = client.call(fetch_request("t", 0), 12).responses[0].partitions[0]
    assert row.error_code == 1


def test_compaction_runs_elsewhere_and_keeps_the_last_value_of_a_key():
    world = World({"log.cleaner.backoff.ms": 1000})
    topic = world.create_topic("t", cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0")
    client = world.connect()
    for number in range(6):
        client.produce("t", keyed(b"k%d" % (number % 2), b"v%d" % number, world.now_ms))
        world.now_ms += 10
    world.run_jobs = False
    world.advance(1000)
    jobs = world.core.take_jobs()
    assert len(jobs) == 1
    client.produce("t", keyed(b"k9", b"meanwhile", world.now_ms))
    jobs[0].run()
    world.core.job_done(jobs[0], None, world.now_ms)
    world.turn()
    records = b"".join(map(bytes, topic.partitions[0].log.read(0, 1 << 20)))
    assert b"v0" not in records and b"v4" in records and b"meanwhile" in records


def about_to_compact():
    """A compacted topic of four segments, and the job that nobody has run yet."""
    world = World({"log.cleaner.backoff.ms": 1000})
    topic = world.create_topic("t", cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0")
    client = world.connect()
    for number in range(4):
        client.produce("t", keyed(b"k", b"v%d" % number, world.now_ms))
        world.now_ms += 10
    world.run_jobs = False
    world.advance(1000)
    (job,) = world.core.take_jobs()
    return world, topic, job


def test_a_compaction_that_fails_is_tried_again(caplog):
    world, _, job = about_to_compact()
    world.core.job_done(job, OSError("no space left"), world.now_ms)
    assert "compaction failed" in caplog.text
    world.advance(1000)
    assert len(world.core.take_jobs()) == 1


def test_a_topic_deleted_during_its_compaction():
    world, topic, job = about_to_compact()
    world.core.topics.delete(topic)
    job.run()
    world.core.job_done(job, None, world.now_ms)
    world.advance(1000)
    assert world.core.take_jobs() == []


def test_a_partition_that_another_broker_leads_is_not_compacted_here(caplog):
    """What is left of it here may be gone from the store: neither a reason to try nor one to be alarmed."""
    world, topic, job = about_to_compact()
    topic.partitions[0].leads = False
    world.core.job_done(job, OSError("gone from the store"), world.now_ms)
    assert "compaction failed" not in caplog.text
    world.advance(1000)
    assert world.core.take_jobs() == []
    topic.partitions[0].leads = True
    world.advance(1000)
    assert len(world.core.take_jobs()) == 1


def test_fsync_at_intervals():
    world = World({"kohort.fsync": "interval"})
    log = world.create_topic("t").partitions[0].log
    world.connect().produce("t", batch(b"a"))
    assert log.durable_offset == 0
    world.advance(1000)
    assert log.durable_offset == 1


def test_without_a_flush_interval_it_is_left_to_the_system():
    world = World()
    log = world.create_topic("t").partitions[0].log
    world.connect().produce("t", batch(b"a"))
    world.advance(10_000)
    assert log.durable_offset == 0
