"""Spark's commit log as a source reads it, and a stop right after a batch has become durable."""

from __future__ import annotations

import json
from pathlib import Path

from kohort.client.types import TopicPartition
from kohort.spark.checkpoint import last_finished
from kohort.spark.offsets import StreamOffset, TopicNote
from spark.query import Query, committed, create, numbers, produce, stopping, unique, until

END = StreamOffset("q", {TopicPartition("t", 0): (3, 9)}, {"t": TopicNote("ID", 1)})


def log_offsets(folder: Path, number: int, *sources: object) -> None:
    path = folder / "offsets" / str(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", json.dumps({"batchWatermarkMs": 0}), *map(json.dumps, sources)]))


def log_commit(folder: Path, number: int) -> None:
    path = folder / "commits" / str(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_last_finished_batch_is_the_last_of_the_commit_log(tmp_path: Path) -> None:
    assert last_finished(str(tmp_path), "q") is None
    log_offsets(tmp_path, 9, {"query": "other", "offsets": {}}, "-", END.to_json())
    assert last_finished(str(tmp_path), "q") is None
    log_commit(tmp_path, 9)
    log_offsets(tmp_path, 10, StreamOffset("q", {}).to_json())
    tmp_path.joinpath("commits", ".9.crc").write_text("")
    for location in (str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}/"):
        assert last_finished(location, "q") == END
    assert last_finished(str(tmp_path), "no such source") is None


def test_a_stop_between_triggers_commits_the_batch_that_is_durable(servers: str, tmp_path: Path) -> None:
    topic, group = unique("orders"), unique()
    create(servers, topic)
    produce(servers, topic, numbers(0, 40))
    query = Query(servers, group, subscribe=topic, checkpointLocation=str(tmp_path))
    with stopping(query):
        until(query.plan)
        log_offsets(tmp_path, 0, query.planned)
        assert query.run() == 40
        log_commit(tmp_path, 0)
    assert committed(servers, group, topic) == {0: 10, 1: 10, 2: 10, 3: 10}


def test_a_stop_within_a_batch_commits_nothing_of_it(servers: str, tmp_path: Path) -> None:
    topic, group = unique("orders"), unique()
    create(servers, topic)
    produce(servers, topic, numbers(0, 40))
    query = Query(servers, group, subscribe=topic, checkpointLocation=str(tmp_path))
    with stopping(query):
        until(lambda: query.plan(20))
        log_offsets(tmp_path, 0, query.planned)
        query.run()
        log_commit(tmp_path, 0)
        assert query.plan(20)
        log_offsets(tmp_path, 1, query.planned)
        query.run()
    assert committed(servers, group, topic) == {0: 5, 1: 5, 2: 5, 3: 5}
