"""Names, versions and codes as Kafka has them."""

import pytest

from kohort.protocol import schema, uuids
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("kafka", "ours"),
    [("GroupId", "group_id"), ("ISRNodes", "isr_nodes"), ("leaderEpoch", "leader_epoch"), ("TopicId", "topic_id")],
)
def test_names(kafka, ours):
    assert schema.snake_case(kafka) == ours


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0+", [0, 99], [-1]), ("2-4", [2, 4], [1, 5]), ("3", [3], [2, 4]), ("none", [], [0, 1])],
)
def test_versions(text, inside, outside):
    versions = schema.Versions.parse(text)
    assert all(v in versions for v in inside) and not any(v in versions for v in outside)


def test_every_api_has_its_pair_of_messages():
    for api in ApiKey:
        if api.name in ("LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN"):
            continue  # removed in Kafka 4.0: the key is kept, the messages have no versions
        assert api.request.API_KEY == api.response.API_KEY == api


def test_error_codes():
    assert ErrorCode.of(79) is ErrorCode.MEMBER_ID_REQUIRED
    assert ErrorCode.of(12345) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.NOT_COORDINATOR.retriable and not ErrorCode.FENCED_INSTANCE_ID.retriable
    assert "rejoin" in str(KafkaError(ErrorCode.ILLEGAL_GENERATION, "the group moved on: rejoin"))


def test_uuids_read_back():
    text = uuids.to_base64(bytes(range(16)))
    assert len(text) == 22 and uuids.from_base64(text) == bytes(range(16))
    with pytest.raises(ValueError, match="not a Kafka uuid"):
        uuids.from_base64("abc")
