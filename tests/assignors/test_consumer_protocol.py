"""Subscriptions and assignments as bytes: golden forms, the message codec as an oracle, clear errors."""

from __future__ import annotations

import copy
import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.assignors import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
    decode_assignment,
    decode_subscription,
    decode_subscriptions,
    encode_assignment,
    encode_subscription,
)
from kohort.assignors.topic_partitions import Decoder, Encoder, Shape, flat
from kohort.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

some = settings(deadline=None, max_examples=60)
INT32 = st.integers(-(2**31), 2**31 - 1)
TOPIC = st.text("abcdefü-_.", min_size=1, max_size=8)
PARTITIONS = st.dictionaries(TOPIC, st.lists(INT32, max_size=5).map(tuple), max_size=5)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(TOPIC, unique=True).map(sorted).map(tuple),
    user_data=st.none() | st.binary(max_size=20),
    owned_partitions=PARTITIONS,
    generation_id=INT32,
    rack_id=st.none() | st.text(min_size=1, max_size=5),
)


def test_golden_subscription() -> None:
    subscription = Subscription(["b", "a"], b"\x07", {"a": [1, 2]}, 5, "r1")
    assert encode_subscription(subscription) == (
        b"\0\3"  # version
        b"\0\0\0\2\0\1a\0\1b"  # topics, sorted as Kafka's client sorts them
        b"\0\0\0\1\x07"  # user data
        b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\1\0\0\0\2"  # owned partitions
        b"\0\0\0\5"  # generation
        b"\0\2r1"  # rack
    )


def test_golden_assignment() -> None:
    data = encode_assignment(Assignment({"a": (3,), "b": range(2)}), version=1)
    assert data == b"\0\1\0\0\0\2\0\1a\0\0\0\1\0\0\0\3\0\1b\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
    assert decode_assignment(data).partitions == {"a": (3,), "b": (0, 1)}


@pytest.mark.parametrize("version", range(4))
@some
@given(subscription=SUBSCRIPTIONS)
def test_subscription_like_the_message_codec(version: int, subscription: Subscription) -> None:
    message = ConsumerProtocolSubscription(topics=list(subscription.topics), user_data=subscription.user_data)
    message.owned_partitions = [
        ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(numbers))
        for topic, numbers in subscription.owned_partitions.items()
    ]
    message.generation_id, message.rack_id = subscription.generation_id, subscription.rack_id
    data = encode_subscription(subscription, version)
    assert data == struct.pack(">h", version) + message.encode(version)
    expected = copy.copy(subscription)
    if version < 1:
        expected.owned_partitions = {}
    if version < 2:
        expected.generation_id = -1
    if version < 3:
        expected.rack_id = None
    assert decode_subscription(data) == expected


@some
@given(partitions=PARTITIONS, user_data=st.none() | st.binary(max_size=20), version=st.integers(0, 3))
def test_assignment_like_the_message_codec(
    partitions: dict[str, tuple[int, ...]], user_data: bytes | None, version: int
) -> None:
    message = ConsumerProtocolAssignment(user_data=user_data)
    message.assigned_partitions = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(numbers))
        for topic, numbers in partitions.items()
    ]
    data = encode_assignment(Assignment(partitions, user_data), version)
    assert data == struct.pack(">h", version) + message.encode(version)
    assert decode_assignment(data) == Assignment(partitions, user_data)


@some
@given(st.lists(PARTITIONS, max_size=6), st.data())
def test_known_shapes_change_nothing(several: list[dict[str, tuple[int, ...]]], data: st.DataObject) -> None:
    """One encoder and decoder for a group with members alike: as if each had its own."""
    several = [data.draw(st.sampled_from(several)) for _ in range(3 * len(several))]
    encoder, decoder = Encoder(), Decoder()
    for partitions in several:
        encoded = encoder.encode(partitions)
        assert encoded == Encoder().encode(partitions)
        assert encoder.encode(flat(partitions)) == encoded
        decoded, end = decoder.decode(b"??" + encoded + b"tail", 2)
        assert decoded == partitions
        assert end == 2 + len(encoded)


def test_a_shape_does_not_take_another_for_its_own() -> None:
    shape = Shape(("a", "b"), (1, 2))
    data = Encoder().encode({"a": (7,), "b": (8, 9)})
    assert shape.decode(data + bytes(40), 0) == ((7, 8, 9), len(data))
    for other in ({"a": (7,), "c": (8, 9)}, {"a": (7, 8), "b": (9,)}, {"a": (7,)}, {"b": (7,), "a": (8, 9)}):
        assert shape.decode(Encoder().encode(other) + bytes(40), 0) is None


def test_a_newer_version_is_read_as_the_highest_known() -> None:
    data = encode_subscription(Subscription(["a"], None, {"a": (1,)}, 3, "r"))
    newer = b"\0\x09" + data[2:] + b"what comes later"
    assert decode_subscription(newer) == decode_subscription(data)


@pytest.mark.parametrize("decode", [decode_subscription, decode_assignment])
def test_a_negative_version_is_refused(decode: object) -> None:
    with pytest.raises(ConsumerProtocolError, match="unsupported version -1"):
        decode(b"\xff\xff" + bytes(40))


def test_a_topic_listed_twice_is_joined() -> None:
    data = b"\0\0\0\0\0\2\0\1a\0\0\0\1\0\0\0\3\0\1a\0\0\0\1\0\0\0\4\xff\xff\xff\xff"
    assert decode_assignment(data).partitions == {"a": (3, 4)}


def test_no_bytes_are_an_empty_assignment() -> None:
    assert decode_assignment(b"") == Assignment({})


def test_an_empty_rack_is_no_rack() -> None:
    assert decode_subscription(encode_subscription(Subscription(["a"], rack_id=""))).rack_id is None


def test_members_with_the_same_topics_share_them() -> None:
    one = encode_subscription(Subscription(["a", "b"]))
    other = encode_subscription(Subscription(["a", "b"], b"own user data"))
    decoded = decode_subscriptions({"m1": one, "m2": other, "m3": encode_subscription(Subscription(["a"]))})
    assert decoded["m1"].topics is decoded["m2"].topics
    assert decoded["m3"].topics == ("a",)


def test_an_error_names_the_member() -> None:
    with pytest.raises(ConsumerProtocolError, match="'m2'"):
        decode_subscriptions({"m1": encode_subscription(Subscription(["a"])), "m2": b"\0\1"})


@some
@given(SUBSCRIPTIONS, st.integers(0, 3), st.data())
def test_cut_off_bytes_are_an_error(subscription: Subscription, version: int, data: st.DataObject) -> None:
    encoded = encode_subscription(subscription, version)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ConsumerProtocolError):
        decode_subscription(encoded[:end])


@some
@given(st.binary(max_size=60))
def test_any_bytes_decode_or_raise_the_one_error(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except ConsumerProtocolError:
            pass


def test_a_topic_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConsumerProtocolError, match="32767"):
        encode_assignment(Assignment({"x" * 40_000: (0,)}))


def test_decoded_partitions_are_an_ordinary_mapping() -> None:
    partitions = decode_assignment(encode_assignment(Assignment({"a": (1, 2), "b": (3,)}))).partitions
    assert partitions == {"a": (1, 2), "b": (3,)}
    assert dict(partitions.items())["b"] == (3,)
    assert "c" not in partitions
    assert repr(partitions) == "{'a': (1, 2), 'b': (3,)}"
    assert pickle.loads(pickle.dumps(partitions)) == copy.deepcopy(partitions) == partitions
