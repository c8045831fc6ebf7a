"""A message that is only named costs next to nothing, and is whole once it is used, whoever uses it first."""

import subprocess
import sys
import threading

import pytest

from kohort.broker.apis import TABLE
from kohort.protocol import messages
from serving import environment


def test_what_is_within_a_message_is_made_when_it_is_asked_for():
    program = """
from kohort.protocol.messages import JoinGroupRequest, MetadataResponse
assert "SCHEMA" not in vars(JoinGroupRequest) and JoinGroupRequest.__slots__[0] == "group_id"
assert JoinGroupRequest(group_id="g").protocols == [] and "SCHEMA" in vars(JoinGroupRequest)
assert MetadataResponse.MAX_VERSION >= 13 and MetadataResponse.SCHEMA.name == "MetadataResponse"
assert MetadataResponse.MetadataResponseTopic(name="t").partitions == []
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=environment(), timeout=60)


def test_what_a_message_does_not_have():
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        messages.HeartbeatRequest.Nothing  # noqa: B018
    with pytest.raises(AttributeError, match="has no message"):
        messages.NothingRequest  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'SCHEMA'"):
        messages.Message.SCHEMA  # noqa: B018


def test_threads_that_come_first_together_see_the_same_structs(monkeypatch):
    kind = messages._make_message("AlterPartitionRequest")
    monkeypatch.setitem(vars(messages), "AlterPartitionRequest", kind)
    monkeypatch.setattr(messages, "_UNFOLDED", {})
    together, seen = threading.Barrier(8), []

    def look() -> None:
        together.wait()
        seen.append((kind.TopicData, kind._readers))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(struct) for struct, _ in seen}) == len({id(readers) for _, readers in seen}) == 1


def test_every_handler_that_is_named_is_there():
    named = [api for api in TABLE if isinstance(api.handler, str)]
    assert len(named) > 10 and all(callable(api.function()) for api in named)
