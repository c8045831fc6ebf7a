"""Single records through the kernel: byte for byte what is made of them one by one, or left to that."""

from __future__ import annotations

import random

import pytest

from kohort.records import kernel
from kohort.records.batch import Record, build_batch
from kohort.records.compression import Compression
from kohort.records.encode_plain import encode_plain

pytestmark = pytest.mark.skipif(kernel.load() is None, reason="the kernel is not built")


def records(keys, values, times=(5,)):
    return [
        Record(place, times[place % len(times)], key, value)
        for place, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_the_same_batch_as_one_by_one(seed, codec):
    chance = random.Random(seed)
    count = chance.randrange(8, 300)

    def column():
        sizes = [0, 1, 63, 64, 9000] if chance.random() < 0.3 else [0, 20]
        return (
            [None] * count if chance.random() < 0.3 else [chance.randbytes(chance.choice(sizes)) for _ in range(count)]
        )

    given = records(column(), column(), [chance.choice([0, 1_700_000_000_000, 2**62]) for _ in range(7)])
    made = encode_plain(given)
    assert made is not None and made.records() == given
    numbers = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40, "transactional": True}
    assert made.compressed(codec).framed(7, 2, 40, True) == build_batch(given, compression=codec, **numbers)


def test_a_batch_is_framed_again_with_other_numbers():
    given = records([b"k"] * 10, [b"v"] * 10)
    made = encode_plain(given)
    made.framed(7, 2, 40, False)
    assert made.framed(8, 0, 0, False) == build_batch(given, producer_id=8, producer_epoch=0, base_sequence=0)


def test_others_are_left_to_be_encoded_one_by_one():
    assert encode_plain(records([b"k", None] * 5, [b"v"] * 10)) is None
    assert encode_plain(records([b"k"] * 10, [b"v", None] * 5)) is None
    assert encode_plain([*records([b"k"] * 9, [b"v"] * 9), Record(9, 5, b"k", b"v", (("h", b""),))]) is None
    assert encode_plain(records([b"k"], [b"v"])) is None
