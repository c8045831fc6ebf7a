"""Every message in every version: round trips, hostile bytes, and what a version cannot carry."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.protocol import messages, schema
from kohort.protocol.wire import DecodeError, EncodeError, UnsupportedFieldError, uvarint_bytes
from message_filler import fill

NAMES = schema.message_names()
CASES = [(n, v) for n in NAMES for v in range(schema.message(n).valid.low, schema.message(n).valid.high + 1)]


@pytest.mark.parametrize("name", NAMES)
def test_round_trip_of_every_version(name):
    message_class = getattr(messages, name)
    for version in range(message_class.MIN_VERSION, message_class.MAX_VERSION + 1):
        for seed in range(4):
            message = fill(name, version, seed)
            data = message.encode(version)
            decoded, end = message_class.decode_from(data, version)
            assert end == len(data)
            assert decoded == message, f"v{version} seed {seed}"
            assert b"".join(bytes(part) for part in message.encode_parts(version)) == data


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_message_is_refused_at_every_byte(name):
    message_class = getattr(messages, name)
    version = message_class.MAX_VERSION
    data = fill(name, version, 1).encode(version)
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            message_class.decode(data[:length], version)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.integers(0, 3), st.data())
def test_corrupt_bytes_never_do_more_than_refuse(case, seed, data):
    name, version = case
    good = bytearray(fill(name, version, seed).encode(version))
    for _ in range(data.draw(st.integers(1, 4))):
        if good:
            good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        getattr(messages, name).decode(bytes(good), version)
    except DecodeError:
        pass


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.binary(max_size=200))
def test_random_bytes_never_do_more_than_refuse(case, data):
    name, version = case
    try:
        getattr(messages, name).decode(data, version)
    except DecodeError:
        pass


@pytest.mark.parametrize("version", [7, 9])
def test_an_array_longer_than_its_bytes_is_refused_before_it_is_built(version):
    """Two thousand million topics in a handful of bytes cost nothing."""
    if version == 7:  # group "g", generation, member "", no instance, then the count of topics
        data = b"\0\1g" + b"\0\0\0\1" + b"\0\0" + b"\xff\xff" + b"\x7f\xff\xff\xff"
    else:
        data = b"\2g" + b"\0\0\0\1" + b"\1" + b"\0" + b"\xff\xff\xff\xff\x07"
    with pytest.raises(DecodeError, match="more elements than bytes"):
        messages.OffsetCommitRequest.decode(data, version)


def test_a_varint_that_never_ends_is_refused():
    with pytest.raises(DecodeError, match="varint"):
        messages.HeartbeatRequest.decode(b"\xff" * 20, 4)


def test_a_string_is_no_longer_in_a_flexible_version_than_in_others():
    """As in Kafka: what goes into a record, whose strings have two bytes for their length, always fits."""
    kind = messages.ConsumerGroupHeartbeatRequest
    data = kind(group_id="g" * 32767).encode(1)
    assert len(kind.decode(data, 1).group_id) == 32767
    too_long = uvarint_bytes(32769) + b"g" + data[3:]
    with pytest.raises(DecodeError, match="longer than 32767"):
        kind.decode(too_long, 1)


def test_null_where_the_version_does_not_allow_it():
    with pytest.raises(DecodeError, match="group_id must not be null"):
        messages.HeartbeatRequest.decode(b"\xff\xff\0\0\0\1\0\0", 0)
    with pytest.raises(EncodeError):
        messages.HeartbeatRequest(group_id=None).encode(0)


def test_a_field_that_the_version_cannot_carry_is_refused_unless_it_may_be_left_out():
    with pytest.raises(UnsupportedFieldError, match="group_instance_id"):
        messages.HeartbeatRequest(group_id="g", group_instance_id="static-1").encode(2)
    assert messages.JoinGroupRequest(group_id="g", reason="why").encode(7) == messages.JoinGroupRequest(
        group_id="g"
    ).encode(7)


def test_unknown_tagged_fields_are_kept_in_the_order_of_their_tags():
    request = messages.HeartbeatRequest(group_id="g", unknown_tags={9: b"nine", 3: b"three"})
    data = request.encode(4)
    assert data.endswith(b"\x02\x03\x05three\x09\x04nine")
    assert messages.HeartbeatRequest.decode(data, 4).unknown_tags == {3: b"three", 9: b"nine"}


def test_records_are_neither_copied_in_nor_out():
    partition = messages.FetchResponse.PartitionData(records=[memoryview(b"abc"), memoryview(b"defg")])
    topic = messages.FetchResponse.FetchableTopicResponse(partitions=[partition])
    parts = messages.FetchResponse(responses=[topic]).encode_parts(16)
    assert any(isinstance(part, memoryview) and part == b"defg" for part in parts)
    data = b"".join(parts)
    records = messages.FetchResponse.decode(data, 16).responses[0].partitions[0].records
    assert isinstance(records, memoryview) and records.obj is data and records == b"abcdefg"


@pytest.mark.parametrize("version", [1, 9, 12])
def test_rows_that_are_written_as_they_come_stand_where_their_list_would(version):
    kind = messages.MetadataResponse
    rows = [kind.MetadataResponseTopic(name=f"t{number}", error_code=number % 3) for number in range(200)]
    encoded = kind.rows("MetadataResponseTopic", version)
    assert not encoded and kind(topics=encoded).encode(version) == kind(topics=[]).encode(version)
    encoded.add(rows[:150])
    encoded.add(rows[150:])
    assert len(encoded) == 200
    assert kind(topics=encoded, cluster_id="c").encode(version) == kind(topics=rows, cluster_id="c").encode(version)


def test_an_unknown_message_or_version_is_named():
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        messages.NoSuchRequest  # noqa: B018
    with pytest.raises(EncodeError, match="HeartbeatRequest has no version 99: 0 to 4"):
        messages.HeartbeatRequest().encode(99)


def test_repr_leaves_out_defaults():
    assert repr(messages.HeartbeatRequest(group_id="g")) == "HeartbeatRequest(group_id='g')"


def test_a_tagged_struct_that_is_null_as_apache_kafka_stores_it():
    stored = b"\x00\x00\x07worker\x0b/127.0.0.1\x02\x10orders-11a52002\x01\x00\x04\x93\xe0\x00\x01\x00\x01\x00"
    member = messages.ConsumerGroupMemberMetadataValue.decode(stored, 0)
    assert (member.client_id, member.classic_member_metadata) == ("worker", None)
    assert member.encode(0) == stored
    member.classic_member_metadata = type(member).ClassicMemberMetadata(session_timeout_ms=5)
    assert type(member).decode(member.encode(0), 0).classic_member_metadata.session_timeout_ms == 5
